//! First in, first out, with references, and what comes back from the store on probation.
//!
//! A block of which pages come back waits in a queue of its own, and goes when a small share of the limit has gone since: unless
//! a page of it was touched while it waited isolated, after which it is queued with the others. Where a program goes over more memory
//! than there is again and again, first in, first out evicts each page just before it is wanted, and so does the least recently used;
//! here most of what is in memory stays, and is found there the next time round. That what is new to a cache should leave it first, and
//! has to earn its place, is from 2Q (Theodore Johnson and Dennis Shasha, 1994) and from bimodal insertion (Moinuddin Qureshi and
//! others, "Adaptive insertion policies for high performance caching", 2007); that it is what comes *back* which waits so, and what is
//! touched for the first time not, is our own.
use super::delayed::Delayed;
use super::fifo::Fifo;
use super::{Along, Asked, Reclaim, Returned, Search};
use crate::broken::{self, Broken};
use crate::page::Word;
use crate::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use crate::table::Reserve;
use crate::units::BlockNo;

/// A block on probation goes when this share of the limit was evicted since it came back, but so many pages at least, or this share
/// where that is less: what one instruction needs is there together.
const PROBATION_SHARE: u64 = 64;
const LEAST_PAGES: u64 = 64;
const LEAST_SHARE: u64 = 8;
/// Where fewer pages than this come back into a block while it is on probation, only one block in so many is, to see whether that has
/// changed: to take a block costs as much for one page as for many. Told from so many blocks.
const DENSE_PAGES: u32 = 4;
const SAMPLE: u32 = 16;
const WINDOW_BLOCKS: u32 = 32;

/// The policy.
pub struct Probation {
    /// All other blocks, and what is as there.
    main: Fifo,
    /// Blocks that have come back, oldest first.
    queue: Delayed,
    /// Pages evicted so far; differences count.
    pub(super) evicted: AtomicU32,
    /// Of the latest blocks: how many there were, and how many pages came into them.
    blocks: AtomicU32,
    pages: AtomicU32,
    /// Few pages come into a block.
    is_sparse: AtomicBool,
}

impl Probation {
    /// Reserves queues of all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Probation> {
        Some(Probation {
            main: Fifo::new(from, pages)?,
            queue: Delayed::new(from, pages)?,
            evicted: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            is_sparse: AtomicBool::new(false),
        })
    }

    /// Whether a block that is in no queue goes on probation.
    fn is_wanted(&self, block: BlockNo) -> bool {
        // Two threads may decide at once, on the same numbers or on few: a window more or less.
        if self.blocks.load(Relaxed) >= WINDOW_BLOCKS {
            let (blocks, pages) = (self.blocks.swap(0, Relaxed), self.pages.swap(0, Relaxed));
            self.is_sparse.store(pages < blocks.saturating_mul(DENSE_PAGES), Relaxed);
        }
        !self.is_sparse.load(Relaxed) || block.0.wrapping_mul(0x9e37_79b1) >> 16 & (SAMPLE - 1) == 0
    }

    /// Takes the block that goes next.
    pub(super) fn take(&self, pause: &impl Fn(u32)) -> Option<u32> {
        let over = self.queue.take_over(self.evicted.load(Relaxed), pause);
        over.or_else(|| self.main.queue.take(pause)).or_else(|| self.queue.take(pause))
    }

    /// Goes on with a search among the blocks that `take` gives: these, and so many others.
    pub(super) fn next_of(
        &self,
        search: &mut Search,
        take: impl Fn() -> Option<u32>,
        others: impl Fn() -> usize,
        pause: &impl Fn(u32),
    ) -> Option<BlockNo> {
        let len = || self.main.queue.len(pause) + self.queue.len(pause) + others();
        self.main.rest.next(search, || take().map(BlockNo), |block| self.main.add(block, pause), len)
    }
}

impl Reclaim for Probation {
    fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        // Where another thread takes it out of this queue at the same time, it finds what the caller has brought.
        if !self.queue.has(block) {
            self.main.add(block, pause);
        }
    }

    fn came_back(&self, block: BlockNo, pages: usize, pause: &impl Fn(u32)) {
        if self.queue.has(block) {
            self.pages.fetch_add(pages as u32, Relaxed);
        } else if !self.is_wanted(block) || broken::is(Broken::NoProbation) {
            self.main.add(block, pause);
        } else if !self.main.queue.has(block.0) {
            // Two threads may find that it is in neither queue, and bring it into both: it is asked twice then.
            self.pages.fetch_add(pages as u32, Relaxed);
            self.blocks.fetch_add(1, Relaxed);
            self.queue.begin(block, self.evicted.load(Relaxed));
            self.queue.add(block, pause);
        }
    }

    fn search(&self, pause: &impl Fn(u32)) -> Search {
        Search { left: self.main.search(pause).left + self.queue.len(pause), ..self.main.search(pause) }
    }

    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        self.next_of(search, || self.take(pause), || 0, pause)
    }

    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        self.main.asked(block, asked, search);
    }

    fn hit(&self, block: BlockNo) -> Along {
        self.main.hit(block)
    }

    fn watched(&self, touched: u32, left: u32) {
        self.main.watched(touched, left);
    }

    fn refaulted(&self, word: Word, distance_pages: u64, limit_pages: u64) -> Returned {
        self.main.refaulted(word, distance_pages, limit_pages)
    }

    fn evicted(&self, pages: usize) {
        self.evicted.fetch_add(pages as u32, Relaxed);
        self.main.evicted(pages);
    }

    fn isolated_max_pages(&self, limit_pages: u64) -> usize {
        let least = LEAST_PAGES.min(limit_pages / LEAST_SHARE);
        self.queue.set_length_pages((limit_pages / PROBATION_SHARE).max(least));
        self.main.isolated_max_pages(limit_pages)
    }

    fn block_bytes(&self) -> usize {
        self.main.block_bytes() + Delayed::BLOCK_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;
    use crate::units::BLOCK_PAGES;

    const LIMIT: u64 = 64 * PROBATION_SHARE;

    fn policy(blocks: u32) -> Probation {
        let policy = Probation::new(&Leak, blocks as usize * BLOCK_PAGES).expect("there is memory");
        policy.isolated_max_pages(LIMIT);
        policy
    }

    fn next(policy: &Probation) -> Option<u32> {
        policy.next(&mut policy.search(&|_| ()), &|_| ()).map(|block| block.0)
    }

    #[test]
    fn what_came_back_goes_after_its_time_and_before_the_others() {
        let policy = policy(8);
        (0..4).for_each(|block| policy.add(BlockNo(block), &|_| ()));
        policy.came_back(BlockNo(6), 8, &|_| ());
        assert_eq!(next(&policy), Some(0), "its time is not over");
        policy.evicted(63);
        assert_eq!(next(&policy), Some(1));
        policy.came_back(BlockNo(7), 8, &|_| ());
        policy.evicted(1);
        assert_eq!((next(&policy), next(&policy)), (Some(6), Some(2)), "its time is over, that of the other is not");
        assert_eq!((next(&policy), next(&policy), next(&policy)), (Some(3), Some(7), None), "before there is nothing");
    }

    #[test]
    fn a_block_is_in_one_queue_once_and_stays_in_it() {
        let policy = policy(8);
        policy.add(BlockNo(1), &|_| ());
        policy.came_back(BlockNo(1), 8, &|_| ());
        policy.came_back(BlockNo(2), 8, &|_| ());
        policy.evicted(64);
        (0..3).for_each(|_| policy.came_back(BlockNo(2), 8, &|_| ()));
        policy.add(BlockNo(2), &|_| ());
        assert_eq!((next(&policy), next(&policy), next(&policy)), (Some(2), Some(1), None));
        policy.back(BlockNo(2), &|_| ());
        policy.add(BlockNo(1), &|_| ());
        assert_eq!((next(&policy), next(&policy)), (Some(2), Some(1)), "what is left of a block waits with the others");
    }

    #[test]
    fn the_time_is_a_share_of_the_limit() {
        let policy = policy(8);
        policy.add(BlockNo(0), &|_| ());
        policy.evicted.store(u32::MAX, Relaxed);
        policy.came_back(BlockNo(1), 8, &|_| ());
        policy.isolated_max_pages(2 * LIMIT);
        policy.evicted(127);
        assert_eq!(next(&policy), Some(0));
        policy.add(BlockNo(0), &|_| ());
        policy.evicted(1);
        assert_eq!(next(&policy), Some(1), "also where the count begins anew");
        for (limit, length) in [(64, 8), (512, 64), (2048, 64), (LIMIT, 64), (1 << 20, 1 << 14)] {
            policy.isolated_max_pages(limit);
            assert_eq!(policy.queue.length_pages(), length);
        }
    }

    #[test]
    fn where_few_pages_come_back_into_a_block_few_blocks_are_on_probation() {
        let policy = policy(4096);
        let on = |first: u32, pages: usize| {
            let on = |&block: &u32| {
                policy.came_back(BlockNo(block), pages, &|_| ());
                policy.queue.has(BlockNo(block))
            };
            (first..first + 1024).filter(on).count()
        };
        assert_eq!(on(0, DENSE_PAGES as usize), 1024);
        let few = on(1024, 1);
        assert!((32..200).contains(&few), "{few}");
        let many = on(2048, 8);
        assert!(many > 256, "it has changed: {many}");
    }
}
