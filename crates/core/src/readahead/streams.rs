//! Streams: where touches follow each other, more and more of what comes next is brought in.
//!
//! A run of touches is followed within its block, and into the next one by a few words that say which blocks the latest streams
//! are about to enter. The rule is our own; that readahead should follow its own success is that of Hugh Dickins, "swap: add a
//! simple detector for inappropriate swapin readahead", 2012.
use super::{Plan, Readahead, Sizes};
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, PART_PAGES, PageNo};

/// Touches in sequence from which on a few neighbours come too, and from which on the whole folio does.
const SHORT: u32 = 1;
const LONG: u32 = 2;
const SHORT_PAGES: usize = 4;
/// Touches in sequence after which one brings in the rest of its block, and the least limit for that: what comes in must still
/// be there when the stream reaches it.
const AHEAD: u32 = 8;
const AHEAD_LIMIT_PAGES: u64 = 16 * BLOCK_PAGES as u64;
/// Streams that can be followed across the border of a block at the same time.
const LEFT_BLOCKS: usize = 16;
/// The longest run that is told apart from longer ones.
const RUN_MAX: u32 = 0xffff;
/// As the next index of a run: no page of the block continues it.
const NOWHERE: u32 = 0xff;
const _: () = assert!(BLOCK_PAGES < NOWHERE as usize && AHEAD < RUN_MAX);

/// The policy.
pub struct Streams {
    /// Of each block: where its run's next touch would be (low byte), the run's length so far.
    runs: Table<AtomicU32>,
    /// Blocks that the latest streams are about to enter.
    left: [AtomicU32; LEFT_BLOCKS],
}

impl Streams {
    /// Reserves a word a block. `None` where there is no memory.
    pub fn new(from: &impl Reserve, sizes: Sizes) -> Option<Streams> {
        let left = [const { AtomicU32::new(0) }; LEFT_BLOCKS];
        Some(Streams { runs: Table::new(from, sizes.pages / BLOCK_PAGES)?, left })
    }

    /// How long the run is that a touch of `page` continues; 0 where it starts one.
    fn run(&self, page: PageNo) -> u32 {
        let index = page.index_in_block() as u32;
        let seen = self.runs[page.block().0 as usize].load(Relaxed);
        let (mut next, mut run) = (seen & 0xff, seen >> 8);
        if index == 0 && page.0 > 0 {
            // A stream enters a new block only if it has just left the one before; an old run says nothing.
            let before = page.block().0 as usize - 1;
            let goes_on = self.left[before % LEFT_BLOCKS].load(Relaxed) == page.block().0;
            (next, run) = (if goes_on { 0 } else { NOWHERE }, self.runs[before].load(Relaxed) >> 8);
        }
        if broken::is(Broken::NoStreams) {
            return 0;
        }
        if next == index && (index > 0 || run > 0) { (run + 1).min(RUN_MAX) } else { 0 }
    }
}

impl Readahead for Streams {
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
        let run = self.run(page);
        let pages = match run {
            0 => 1,
            SHORT => SHORT_PAGES - page.0 as usize % SHORT_PAGES,
            LONG.. => PART_PAGES - page.0 as usize % PART_PAGES,
        };
        let ahead = run >= AHEAD && pages > 1 && limit_pages >= AHEAD_LIMIT_PAGES && !broken::is(Broken::NoReadAhead);
        let block_end = page.block().first_page().plus(BLOCK_PAGES);
        Plan { pages, ahead_end: if ahead { block_end } else { page.plus(pages) } }
    }

    fn answered(&self, page: PageNo, end: PageNo) {
        let block = page.block();
        let after = end.0.saturating_sub(block.first_page().0).min(BLOCK_PAGES as u32);
        self.runs[block.0 as usize].store(self.run(page) << 8 | after, Relaxed);
        if after == BLOCK_PAGES as u32 {
            self.left[block.0 as usize % LEFT_BLOCKS].store(block.0 + 1, Relaxed);
        }
    }

    fn block_bytes(&self) -> usize {
        size_of::<AtomicU32>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;

    fn streams() -> Streams {
        Streams::new(&Leak, Sizes { pages: 8 * BLOCK_PAGES, page_cluster: 3 }).expect("there is memory")
    }

    /// Touches pages one after the other as far as what comes with them leaves it to be touched; how many touches that took.
    fn touches(policy: &Streams, pages: core::ops::Range<u32>, limit_pages: u64) -> usize {
        let (mut page, mut touches) = (PageNo(pages.start), 0);
        while page.0 < pages.end {
            let plan = policy.plan(page, limit_pages);
            assert_eq!(policy.plan(page, limit_pages), plan, "asking changes nothing");
            let end = page.plus(plan.pages).max(plan.ahead_end);
            assert!(plan.pages >= 1 && end.0 <= page.block().first_page().0 + BLOCK_PAGES as u32, "{plan:?}");
            policy.answered(page, end);
            (page, touches) = (end, touches + 1);
        }
        touches
    }

    #[test]
    fn a_stream_needs_a_touch_a_folio_and_then_a_touch_a_block() {
        let small = touches(&streams(), 0..8 * BLOCK_PAGES as u32, AHEAD_LIMIT_PAGES - 1);
        assert!((33..=36).contains(&small), "{small} touches of 32 folios");
        let large = touches(&streams(), 0..8 * BLOCK_PAGES as u32, AHEAD_LIMIT_PAGES);
        assert!((14..=18).contains(&large), "{large} touches of 8 blocks");
    }

    #[test]
    fn scattered_touches_bring_their_own_page() {
        let policy = streams();
        for page in (0..200u32).map(|i| PageNo(i * 67 % 512)) {
            assert_eq!(policy.plan(page, u64::MAX), Plan::only(page, 1));
            policy.answered(page, page.plus(1));
        }
    }

    #[test]
    fn a_block_is_entered_only_by_the_stream_that_left_the_one_before() {
        let policy = streams();
        touches(&policy, 0..BLOCK_PAGES as u32, 0);
        let next = PageNo(BLOCK_PAGES as u32);
        assert!(policy.plan(next, 0).pages > 1, "it goes on");
        // Another stream leaves a block that has the same place among the last ones.
        policy.left[0].store(17, Relaxed);
        assert_eq!(policy.plan(next, 0).pages, 1, "nothing says that it does");
    }
}
