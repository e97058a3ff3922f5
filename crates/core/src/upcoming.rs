//! Blocks that streams are about to enter: asked for by who follows a stream, brought in by a thread that nobody waits for.
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::BlockNo;

/// Blocks that are asked for at the same time. Of more, the oldest are forgotten.
const BLOCKS: usize = 4;

/// The blocks.
pub(crate) struct Upcoming {
    /// Their numbers plus 1; 0 for none.
    blocks: [AtomicU32; BLOCKS],
}

impl Default for Upcoming {
    fn default() -> Upcoming {
        Upcoming { blocks: [const { AtomicU32::new(0) }; BLOCKS] }
    }
}

impl Upcoming {
    fn place(&self, block: BlockNo) -> &AtomicU32 {
        &self.blocks[block.0 as usize % BLOCKS]
    }

    /// Asks for a block.
    pub(crate) fn ask(&self, block: BlockNo) {
        self.place(block).store(block.0 + 1, Relaxed);
    }

    /// A block is there, or is not to come any more.
    pub(crate) fn done(&self, block: BlockNo) {
        // Another one may have been asked for since.
        let _ = self.place(block).compare_exchange(block.0 + 1, 0, Relaxed, Relaxed);
    }

    /// One that is asked for.
    pub(crate) fn next(&self) -> Option<BlockNo> {
        self.blocks.iter().find_map(|place| place.load(Relaxed).checked_sub(1)).map(BlockNo)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_asked_for_until_they_are_there() {
        let upcoming = Upcoming::default();
        assert_eq!(upcoming.next(), None);
        upcoming.ask(BlockNo(0));
        upcoming.ask(BlockNo(9));
        assert_eq!(upcoming.next(), Some(BlockNo(0)));
        upcoming.done(BlockNo(0));
        assert_eq!(upcoming.next(), Some(BlockNo(9)));
        // One of the same place.
        upcoming.ask(BlockNo(9 + BLOCKS as u32));
        upcoming.done(BlockNo(9));
        assert_eq!(upcoming.next(), Some(BlockNo(9 + BLOCKS as u32)));
    }
}
