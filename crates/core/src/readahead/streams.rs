//! Streams: where touches follow each other, upwards or downwards, more and more of what comes next is brought in.
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
const RUN_MAX: u32 = 0x7fff;
const _: () = assert!(BLOCK_PAGES < 1 << 8 && AHEAD < RUN_MAX);

/// Touches that followed each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// How many went before the last one; 0 where that begins a run, of either direction.
    length: u32,
    /// They go downwards.
    falls: bool,
}

impl Run {
    const NONE: Run = Run { length: 0, falls: false };

    /// With one touch more, that goes on in a direction.
    fn with(self, falls: bool) -> Run {
        let length = if self.falls == falls || self.length == 0 { (self.length + 1).min(RUN_MAX) } else { SHORT };
        Run { length, falls }
    }
    /// Whether it can go on in a direction.
    fn goes(self, falls: bool) -> bool {
        self.length == 0 || self.falls == falls
    }
}

/// The run that was seen last in a block, and the pages of the block that came with its last touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    run: Run,
    first: u32,
    end: u32,
}

impl Seen {
    fn of(word: u32) -> Seen {
        let run = Run { length: word >> 16 & RUN_MAX, falls: word >> 31 == 1 };
        Seen { run, first: word >> 8 & 0xff, end: word & 0xff }
    }
    fn word(self) -> u32 {
        u32::from(self.run.falls) << 31 | self.run.length << 16 | self.first << 8 | self.end
    }
}

/// The policy.
pub struct Streams {
    /// A [`Seen`] of each block.
    runs: Table<AtomicU32>,
    /// Blocks that the latest streams are about to enter at their start, each found by the block that they left.
    left: [AtomicU32; LEFT_BLOCKS],
    /// The same at their end, plus 1.
    left_falling: [AtomicU32; LEFT_BLOCKS],
}

impl Streams {
    /// Reserves a word a block. `None` where there is no memory.
    pub fn new(from: &impl Reserve, sizes: Sizes) -> Option<Streams> {
        let left = || [const { AtomicU32::new(0) }; LEFT_BLOCKS];
        let runs = Table::new(from, sizes.pages / BLOCK_PAGES)?;
        Some(Streams { runs, left: left(), left_falling: left() })
    }

    fn seen(&self, block: usize) -> Seen {
        Seen::of(self.runs[block].load(Relaxed))
    }

    /// The run that enters a block by a touch of its page `index`. Only a stream that has just left the block beside it does; an
    /// old run says nothing.
    fn entering(&self, block: usize, index: usize) -> Option<Run> {
        let rises = index == 0 && block > 0 && self.left[(block - 1) % LEFT_BLOCKS].load(Relaxed) as usize == block;
        let goes_on = |run: Run, falls| (run.length > 0).then(|| run.with(falls));
        if rises {
            return goes_on(self.seen(block - 1).run, false);
        }
        let above = block + 1;
        let falls = index == BLOCK_PAGES - 1
            && above < self.runs.len()
            && self.left_falling[above % LEFT_BLOCKS].load(Relaxed) as usize == above;
        if falls { goes_on(self.seen(above).run, true) } else { None }
    }

    /// The run that a touch of `page` goes on with.
    fn run(&self, page: PageNo) -> Run {
        if broken::is(Broken::NoStreams) {
            return Run::NONE;
        }
        let (block, index) = (page.block().0 as usize, page.index_in_block());
        if let Some(run) = self.entering(block, index) {
            return run;
        }
        let Seen { run, first, end } = self.seen(block);
        if index > 0 && end as usize == index {
            run.with(false)
        } else if first as usize == index + 1 && !broken::is(Broken::StreamsRise) {
            run.with(true)
        } else {
            Run::NONE
        }
    }
}

impl Readahead for Streams {
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
        let Run { length, falls } = self.run(page);
        let group = match length {
            0 => return Plan::only(page, 1),
            SHORT => SHORT_PAGES,
            LONG.. => PART_PAGES,
        };
        let at = page.0 as usize % group;
        if falls {
            return Plan { before: at, ..Plan::only(page, 1) };
        }
        let pages = group - at;
        let ahead =
            length >= AHEAD && pages > 1 && limit_pages >= AHEAD_LIMIT_PAGES && !broken::is(Broken::NoReadAhead);
        let block_end = page.block().first_page().plus(BLOCK_PAGES);
        Plan { ahead_end: if ahead { block_end } else { page.plus(pages) }, ..Plan::only(page, pages) }
    }

    fn answered(&self, page: PageNo, first: PageNo, end: PageNo) {
        let block = page.block();
        let in_block = |page: PageNo| page.0.saturating_sub(block.first_page().0).min(BLOCK_PAGES as u32);
        let seen = Seen { run: self.run(page), first: in_block(first), end: in_block(end) };
        self.runs[block.0 as usize].store(seen.word(), Relaxed);
        let at = block.0 as usize % LEFT_BLOCKS;
        if seen.end == BLOCK_PAGES as u32 && seen.run.goes(false) {
            self.left[at].store(block.0 + 1, Relaxed);
        }
        if seen.first == 0 && seen.run.goes(true) {
            self.left_falling[at].store(block.0, Relaxed);
        }
    }

    fn block_bytes(&self) -> usize {
        size_of::<AtomicU32>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Over, Window};
    use super::*;
    use crate::table::tests::Leak;
    use crate::units::{Order, SlotId};

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
            policy.answered(page, page, end);
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
    fn a_stream_that_goes_downwards_needs_a_touch_a_folio() {
        let policy = streams();
        let (mut next, mut touches) = (8 * BLOCK_PAGES as u32, 0);
        while next > 0 {
            let page = PageNo(next - 1);
            let plan = policy.plan(page, u64::MAX);
            assert_eq!((plan.pages, plan.ahead_end), (1, page.plus(1)), "nothing above the page comes");
            let first = PageNo(page.0 - plan.before as u32);
            assert_eq!(first.folio(Order::PART), page.folio(Order::PART), "{plan:?}");
            policy.answered(page, first, page.plus(1));
            (next, touches) = (first.0, touches + 1);
        }
        assert!((33..=36).contains(&touches), "{touches} touches of 32 folios");
        let window = policy.missed(PageNo(100), SlotId(0), u64::MAX, &|_| ());
        assert_eq!(window, None, "another place");
        policy.answered(PageNo(100), PageNo(100), PageNo(101));
        let window = policy.missed(PageNo(99), SlotId(0), u64::MAX, &|_| ());
        assert_eq!(window, Some(Window { over: Over::Pages, first: 98, step: -1, count: 3 }), "from a slow store");
    }

    #[test]
    fn a_run_that_turns_begins_anew() {
        let policy = streams();
        for page in 0..10 {
            policy.answered(PageNo(200 + page), PageNo(200 + page), PageNo(201 + page));
        }
        assert_eq!(policy.run(PageNo(210)), Run { length: 10, falls: false });
        assert_eq!(policy.run(PageNo(208)), Run { length: SHORT, falls: true });
        assert_eq!(policy.run(PageNo(207)), Run::NONE);
        let seen = Seen { run: Run { length: RUN_MAX, falls: true }, first: 63, end: 64 };
        assert_eq!((Seen::of(seen.word()), seen.run.with(true)), (seen, seen.run));
    }

    #[test]
    fn scattered_touches_bring_their_own_page() {
        let policy = streams();
        for page in (0..200u32).map(|i| PageNo(i * 67 % 512)) {
            assert_eq!(policy.plan(page, u64::MAX), Plan::only(page, 1));
            policy.answered(page, page, page.plus(1));
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
