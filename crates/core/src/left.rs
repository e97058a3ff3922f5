//! Which pages are left to the kernel to fill ([`crate::trap`]): how many, and the blocks that they lie in.
use crate::chain::Chain;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};
use crate::table::Reserve;
use crate::units::BlockNo;

/// So many patches at most, each of which takes the kernel two mappings more. A process may have 65,530 by default.
const PATCHES_MAX: u32 = 4096;

/// Attempts to take some back that are left out after one that took nothing: what is left is locked, or in use by calls that wait.
const REST: u32 = 256;

/// The books of what is left to the kernel.
pub struct LeftToKernel {
    /// Blocks with such pages, the oldest first.
    blocks: Chain,
    pages: AtomicU64,
    /// Pieces of memory that such pages lie in side by side; about, where several threads change them.
    patches: AtomicU32,
    /// Attempts to take some back that are still left out.
    rest: AtomicU32,
}

impl LeftToKernel {
    /// Reserves the books of a range of so many blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, blocks: usize) -> Option<LeftToKernel> {
        Some(LeftToKernel {
            blocks: Chain::new(from, blocks)?,
            pages: AtomicU64::new(0),
            patches: AtomicU32::new(0),
            rest: AtomicU32::new(0),
        })
    }

    /// Pages that are left to the kernel, filled by now or not.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Whether there may be more, beside so many others: before them, and behind.
    pub fn has_room(&self, beside: u32) -> bool {
        beside > 0 || self.patches.load(Relaxed) < PATCHES_MAX
    }

    /// Pages side by side are left from now on, beside so many others.
    pub fn add(&self, pages: u64, beside: u32) {
        self.pages.fetch_add(pages, Relaxed);
        self.change_patches(1, beside);
    }

    /// Pages side by side are not left any more, beside so many others that are.
    pub fn remove(&self, pages: u64, beside: u32) {
        let before = self.pages.fetch_sub(pages, Relaxed);
        assert!(before >= pages, "what is taken back was left");
        if before == pages {
            self.patches.store(0, Relaxed);
        } else {
            self.change_patches(beside, 1);
        }
    }

    fn change_patches(&self, more: u32, fewer: u32) {
        let mut patches = self.patches.load(Relaxed);
        // Who fails, another has changed it.
        while let Err(now) =
            self.patches.compare_exchange_weak(patches, (patches + more).saturating_sub(fewer), Relaxed, Relaxed)
        {
            patches = now;
        }
    }

    /// Whether an attempt to take some back is due: there are some, and they were not found to be in use a short while ago.
    pub fn is_due(&self) -> bool {
        if self.pages() == 0 {
            return false;
        }
        let rest = self.rest.load(Relaxed);
        // Two at once may count as one.
        self.rest.store(rest.saturating_sub(1), Relaxed);
        rest == 0
    }

    /// An attempt took nothing.
    pub fn took_nothing(&self) {
        self.rest.store(REST, Relaxed);
    }

    /// A block has such pages.
    pub fn add_block(&self, block: BlockNo, pause: &impl Fn(u32)) {
        self.blocks.add(block.0, pause);
    }

    /// Whether a block is known to have some.
    pub fn has_block(&self, block: BlockNo) -> bool {
        self.blocks.has(block.0)
    }

    /// The block that has had some for the longest time. It may have none any more.
    pub fn next_block(&self, pause: &impl Fn(u32)) -> Option<BlockNo> {
        self.blocks.take(pause).map(BlockNo)
    }

    /// Blocks that may have some.
    pub fn blocks(&self, pause: &impl Fn(u32)) -> usize {
        self.blocks.len(pause)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;

    #[test]
    fn patches_are_bounded_and_those_that_are_gone_do_not_count() {
        let left = LeftToKernel::new(&Leak, 64).expect("there is memory");
        for _ in 0..PATCHES_MAX {
            assert!(left.has_room(0));
            left.add(3, 0);
        }
        assert!(!left.has_room(0) && left.has_room(1) && left.has_room(2));
        // Of two that become one, another takes the place; one that becomes two takes one more.
        left.add(5, 2);
        assert!(left.has_room(0));
        left.remove(1, 2);
        assert!(!left.has_room(0));
        left.remove(1, 1);
        assert!(!left.has_room(0));
        left.remove(3, 0);
        assert!(left.has_room(0));
        left.remove(u64::from(PATCHES_MAX) * 3, 0);
        assert!((left.pages(), left.has_room(0)) == (0, true));
    }

    #[test]
    fn what_cannot_be_taken_back_is_left_alone_for_a_while() {
        let left = LeftToKernel::new(&Leak, 64).expect("there is memory");
        assert!(!left.is_due(), "nothing is left");
        left.add(7, 0);
        assert!(left.is_due() && left.is_due());
        left.took_nothing();
        assert_eq!((0..).take_while(|_| !left.is_due()).count(), REST as usize);
        assert!(left.is_due());
    }
}
