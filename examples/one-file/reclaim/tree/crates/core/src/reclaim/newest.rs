//! The block that came in last goes first.
use super::{Asked, Reclaim, Search, Verdict};
use crate::lock::SpinLock;
use crate::page::Word;
use crate::ring::Ring;
use crate::sync::{AtomicU32, Ordering::SeqCst};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, BlockNo};

/// The policy.
pub struct Newest {
    /// 1 while the block waits.
    waits: Table<AtomicU32>,
    blocks: SpinLock<Ring>,
}

impl Newest {
    /// Reserves room for all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Newest> {
        let blocks = pages / BLOCK_PAGES;
        Some(Newest { waits: Table::new(from, blocks)?, blocks: SpinLock::new(Ring::new(from, blocks)?) })
    }
}

impl Reclaim for Newest {
    fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        let waits = &self.waits[block.0 as usize];
        if waits.load(SeqCst) == 0 && waits.swap(1, SeqCst) == 0 {
            self.blocks.lock(pause).push(block.0);
        }
    }
    fn search(&self, pause: &impl Fn(u32)) -> Search {
        Search { left: self.blocks.lock(pause).len(), ..Search::default() }
    }
    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        search.left = search.left.checked_sub(1)?;
        let block = BlockNo(self.blocks.lock(pause).pop_newest()?);
        self.waits[block.0 as usize].store(0, SeqCst);
        Some(block)
    }
    fn asked(&self, _: BlockNo, _: Asked, _: Option<&mut Search>) {}
    fn judge(&self, _: Word) -> Verdict {
        Verdict::Take
    }
    fn touched(&self, _: Word) -> u64 {
        0
    }
    fn isolated_max_pages(&self, limit_pages: u64) -> usize {
        (limit_pages as usize / 8).max(BLOCK_PAGES)
    }
    fn block_bytes(&self) -> usize {
        2 * size_of::<u32>()
    }
}
