//! A queue of blocks that wait for a time, which is told in evictions.
use crate::chain::Chain;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, BlockNo};

/// The queue, first in, first out.
pub(super) struct Delayed {
    queue: Chain,
    /// Of each block, what was evicted before its time began.
    since: Table<AtomicU32>,
    /// How many pages evicted the time takes.
    length_pages: AtomicU64,
}

impl Delayed {
    /// What it takes for a block, bytes.
    pub(super) const BLOCK_BYTES: usize = Chain::NUMBER_BYTES + size_of::<u32>();

    /// Reserves a queue of all blocks. `None` where there is no memory.
    pub(super) fn new(from: &impl Reserve, pages: usize) -> Option<Delayed> {
        let blocks = pages / BLOCK_PAGES;
        Some(Delayed {
            queue: Chain::new(from, blocks)?,
            since: Table::new(from, blocks)?,
            length_pages: AtomicU64::new(0),
        })
    }

    /// Sets how many pages evicted the time takes.
    pub(super) fn set_length_pages(&self, pages: u64) {
        self.length_pages.store(pages, Relaxed);
    }

    /// How many that are.
    #[cfg(all(test, not(loom)))]
    pub(super) fn length_pages(&self) -> u64 {
        self.length_pages.load(Relaxed)
    }

    /// A block's time begins, when so many pages were evicted before; differences count.
    pub(super) fn begin(&self, block: BlockNo, evicted: u32) {
        self.since[block.0 as usize].store(evicted, Relaxed);
    }

    /// Queues a block, where it is not queued.
    pub(super) fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        self.queue.add(block.0, pause);
    }

    /// Whether a block is queued.
    pub(super) fn has(&self, block: BlockNo) -> bool {
        self.queue.has(block.0)
    }

    /// How many are.
    pub(super) fn len(&self, pause: &impl Fn(u32)) -> usize {
        self.queue.len(pause)
    }

    /// Takes out the first block, where its time is over when so many pages were evicted.
    pub(super) fn take_over(&self, evicted: u32, pause: &impl Fn(u32)) -> Option<u32> {
        let is_over = |block: u32| {
            let age_pages = evicted.wrapping_sub(self.since[block as usize].load(Relaxed));
            u64::from(age_pages) >= self.length_pages.load(Relaxed)
        };
        self.queue.take_if(is_over, pause)
    }

    /// Takes out the first block.
    pub(super) fn take(&self, pause: &impl Fn(u32)) -> Option<u32> {
        self.queue.take(pause)
    }
}
