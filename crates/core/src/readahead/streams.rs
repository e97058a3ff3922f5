//! Streams: where touches follow each other, upwards, downwards or upwards by equal steps, more and more of what comes next is brought
//! in.
//!
//! A run of touches is followed within its block, and into the next one by a few words that say which blocks the latest streams
//! are about to enter. The rule is our own; that readahead should follow its own success is that of Hugh Dickins, "swap: add a
//! simple detector for inappropriate swapin readahead", 2012.
//!
//! Objects of a few pages make short runs wherever a program uses them at random. So it is remembered how many of the latest short runs
//! went on, and where few do, a touch brings its own page until the run is longer than that.
use super::{Plan, Readahead, Sizes};
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, PART_PAGES, PageNo};

/// Touches in sequence from which on a few neighbours come too, and from which on the whole folio does.
const SHORT: u32 = 1;
const LONG: u32 = 2;
const SHORT_PAGES: usize = 4;
/// Kinds of runs of which it is remembered whether such went on: of two touches, of three, by steps for the first time, and longer ones
/// by steps.
const JUDGED: usize = 4;
/// How sure it is that a run goes on: as many parts of this. So many of the latest runs count, about, and below the half nothing is
/// brought for them.
const SURE: u32 = 1 << 12;
const LATEST: u32 = 16;
/// Touches of all blocks after which a run has ended if it has not gone on. CPython's objects took 1.12 times as long without that:
/// they lie together, and are used together, but not in order.
const RECENT: u32 = 256;
/// Pages that come after a touch that goes on by steps for the first time.
const SHORT_STEPS: usize = 2;
/// Touches in sequence after which one brings in the rest of its block, and the least limit for that: what comes in must still
/// be there when the stream reaches it.
const AHEAD: u32 = 8;
const AHEAD_LIMIT_PAGES: u64 = 16 * BLOCK_PAGES as u64;
/// Streams that can be followed across the border of a block at the same time.
const LEFT_BLOCKS: usize = 16;
/// The longest run that is told apart from longer ones.
const RUN_MAX: u32 = 0x3ff;
/// The longest step, in pages: two of them fit into a block.
const STEP_MAX: u32 = BLOCK_PAGES as u32 / 2;
const _: () = assert!(AHEAD < RUN_MAX && STEP_MAX < 1 << 6 && BLOCK_PAGES as u32 + STEP_MAX < 1 << 7);

/// Touches that followed each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// How many went before the last one; 0 where that begins a run, of either direction. The first two touches of a run of longer
    /// steps count as one: two are at some distance always.
    length: u32,
    /// They go downwards.
    falls: bool,
    /// Pages from one touch to the next; 1 where they go downwards.
    step: u32,
}

impl Run {
    const NONE: Run = Run { length: 0, falls: false, step: 1 };

    /// With one touch more, that goes on in a direction.
    fn with(self, falls: bool) -> Run {
        let length = if self.falls == falls || self.length == 0 { (self.length + 1).min(RUN_MAX) } else { SHORT };
        Run { length, falls, step: if falls { 1 } else { self.step } }
    }
    /// What two touches at this distance may begin.
    fn of_step(step: u32) -> Run {
        if (2..=STEP_MAX).contains(&step) && !broken::is(Broken::StreamsKeepStep) {
            Run { step, ..Run::NONE }
        } else {
            Run::NONE
        }
    }
    /// Whether touches of the next page, or of the next at its step, are more than chance.
    fn is_seen(self) -> bool {
        self.length > 0 || self.step > 1
    }
    /// Whether it can go on in a direction.
    fn goes(self, falls: bool) -> bool {
        self.length == 0 || self.falls == falls
    }
}

/// The run that was seen last in a block, the first page of the block that came with its last touch, and the one that it goes on with
/// upwards, which may lie in the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    run: Run,
    first: u32,
    next: u32,
}

impl Seen {
    /// `None` where nothing was touched yet.
    fn of(word: u32) -> Option<Seen> {
        let run = Run { length: word >> 20 & RUN_MAX, falls: word >> 30 & 1 == 1, step: word >> 14 & 0x3f };
        (run.step > 0).then_some(Seen { run, first: word >> 7 & 0x7f, next: word & 0x7f })
    }
    fn word(self) -> u32 {
        let Run { length, falls, step } = self.run;
        u32::from(falls) << 30 | length << 20 | step << 14 | self.first << 7 | self.next
    }
}

/// The policy.
pub struct Streams {
    /// A [`Seen`] of each block, and above it when that was.
    runs: Table<AtomicU64>,
    /// Touches so far.
    touches: AtomicU32,
    /// Blocks that the latest streams are about to enter at their start, each found by the block that they left.
    left: [AtomicU32; LEFT_BLOCKS],
    /// The same at their end, plus 1.
    left_falling: [AtomicU32; LEFT_BLOCKS],
    /// Of the latest runs of each kind, how many lacked the next touch, in parts of [`SURE`].
    ended: [AtomicU32; JUDGED],
}

impl Streams {
    /// Reserves a word a block. `None` where there is no memory.
    pub fn new(from: &impl Reserve, sizes: Sizes) -> Option<Streams> {
        let left = || [const { AtomicU32::new(0) }; LEFT_BLOCKS];
        let runs = Table::new(from, sizes.pages / BLOCK_PAGES)?;
        Some(Streams {
            runs,
            touches: AtomicU32::new(0),
            left: left(),
            left_falling: left(),
            ended: [const { AtomicU32::new(0) }; JUDGED],
        })
    }

    fn seen(&self, block: usize) -> Option<Seen> {
        Seen::of(self.runs[block].load(Relaxed) as u32)
    }

    /// Whether one of the latest streams has all of a block.
    fn is_leaving(&self, block: usize) -> bool {
        self.left[block % LEFT_BLOCKS].load(Relaxed) as usize == block + 1
    }

    /// The run that enters a block by a touch of its page `index`. Only a stream that has just left the block beside it does; an
    /// old run says nothing.
    fn entering(&self, block: usize, index: usize) -> Option<Run> {
        if block > 0
            && self.is_leaving(block - 1)
            && let Some(seen) = self.seen(block - 1)
            && seen.next as usize == BLOCK_PAGES + index
        {
            return seen.run.is_seen().then(|| seen.run.with(false));
        }
        let above = block + 1;
        let falls = index == BLOCK_PAGES - 1
            && above < self.runs.len()
            && self.left_falling[above % LEFT_BLOCKS].load(Relaxed) as usize == above;
        let seen = if falls { self.seen(above) } else { None };
        seen.filter(|seen| seen.run.length > 0).map(|seen| seen.run.with(true))
    }

    /// What is known of runs of the kind of one, if that is judged.
    fn ended(&self, run: Run) -> Option<&AtomicU32> {
        let kind = match (run.length, run.step) {
            (0, _) => return None,
            (SHORT | LONG, 1) => run.length - SHORT,
            (SHORT, _) => 2,
            (_, 2..) => 3,
            _ => return None,
        };
        self.ended.get(kind as usize)
    }

    /// Whether most of the latest runs as long as this one went on.
    fn goes_on(&self, run: Run) -> bool {
        self.ended(run).is_none_or(|ended| ended.load(Relaxed) <= SURE / 2) || broken::is(Broken::ShortRunsGoOn)
    }

    /// A block was touched again, `age` touches after the last time: whether the run that was seen there has gone on. Soon after, it
    /// may yet: other pages of the block are in use, in whatever order.
    fn judge(&self, last: Run, now: Run, age: u32) {
        let went_on = now.step == last.step && now.length > last.length;
        // What came by steps is more than the next page: a touch of another one of the block tells at once, and one much later
        // says nothing.
        let is_known = if last.step > 1 { age <= RECENT } else { now.length > last.length || age > RECENT };
        if is_known && !(went_on && last.step > 1) {
            self.count(last, went_on);
        }
    }

    /// Counts that a run went on, or did not.
    fn count(&self, run: Run, went_on: bool) {
        let Some(ended) = self.ended(run) else { return };
        let was = ended.load(Relaxed);
        // Several threads may do so at once: what they make of it differs by a step or two.
        let is = if went_on { was - was / LATEST } else { was + (SURE - was) / LATEST };
        if is != was {
            ended.store(is, Relaxed);
        }
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
        let Some(Seen { run, first, next }) = self.seen(block) else { return Run::NONE };
        let index = index as u32;
        if next == index {
            run.with(false)
        } else if first == index + 1 && !broken::is(Broken::StreamsRise) {
            run.with(true)
        } else if run.length >= AHEAD && (first..next).contains(&index) && self.is_leaving(block) {
            // It was to come with the last touch, and has not, or is gone again.
            run.with(false)
        } else {
            match (index + run.step).saturating_sub(next) {
                1 => Run { length: SHORT, ..Run::NONE },
                step => Run::of_step(step),
            }
        }
    }
}

impl Readahead for Streams {
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
        let run = self.run(page);
        let Run { length, falls, step } = run;
        if length == 0 || !self.goes_on(run) {
            return Plan::only(page, 1);
        }
        let has_room = limit_pages >= AHEAD_LIMIT_PAGES && !broken::is(Broken::NoReadAhead);
        let block_end = page.block().first_page().plus(BLOCK_PAGES);
        if step > 1 {
            if !has_room {
                return Plan::only(page, 1);
            }
            let (more, step) = (if length >= LONG { BLOCK_PAGES } else { SHORT_STEPS }, step as usize);
            return Plan { step, ahead_end: page.plus(1 + more * step).min(block_end), ..Plan::only(page, 1) };
        }
        let group = if length == SHORT { SHORT_PAGES } else { PART_PAGES };
        let at = page.0 as usize % group;
        if falls {
            return Plan { before: at, ..Plan::only(page, 1) };
        }
        let pages = group - at;
        let ahead = length >= AHEAD && pages > 1 && has_room;
        Plan { ahead_end: if ahead { block_end } else { page.plus(pages) }, ..Plan::only(page, pages) }
    }

    fn answered(&self, page: PageNo, first: PageNo, end: PageNo) {
        let block = page.block();
        let in_block = |page: PageNo| page.0.saturating_sub(block.first_page().0).min(BLOCK_PAGES as u32);
        let run = self.run(page);
        // Where several threads do so at once, some touches are not counted.
        let now = self.touches.load(Relaxed).wrapping_add(1);
        self.touches.store(now, Relaxed);
        let word = self.runs[block.0 as usize].load(Relaxed);
        if let Some(last) = Seen::of(word as u32) {
            self.judge(last.run, run, now.wrapping_sub((word >> 32) as u32));
        }
        if run.step > 1 && run.length > SHORT {
            // It may have come from the block before.
            self.count(Run { length: run.length - 1, ..run }, true);
        }
        // What came by steps ends at the page that would have been next.
        let next =
            if run.step > 1 { end.max(page.plus(run.step as usize)).0 - block.first_page().0 } else { in_block(end) };
        let seen = Seen { run, first: in_block(first), next };
        self.runs[block.0 as usize].store(u64::from(now) << 32 | u64::from(seen.word()), Relaxed);
        let at = block.0 as usize % LEFT_BLOCKS;
        if seen.next >= BLOCK_PAGES as u32 && seen.run.goes(false) {
            self.left[at].store(block.0 + 1, Relaxed);
        }
        if seen.first == 0 && seen.run.goes(true) {
            self.left_falling[at].store(block.0, Relaxed);
        }
    }

    fn block_bytes(&self) -> usize {
        size_of::<AtomicU64>()
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
    fn short_runs_bring_more_only_where_such_go_on() {
        const BLOCKS: usize = 1024;
        let policy =
            Streams::new(&Leak, Sizes { pages: BLOCKS * BLOCK_PAGES, page_cluster: 3 }).expect("there is memory");
        let mut random = 7u32;
        let mut objects = |pages: u32| {
            let mut in_vain = 0;
            for _ in 0..4000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let mut page = PageNo((random >> 8) % ((BLOCKS * BLOCK_PAGES) as u32 / pages) * pages);
                let object_end = page.plus(pages as usize);
                while page < object_end {
                    let end = page.plus(policy.plan(page, u64::MAX).pages);
                    policy.answered(page, page, end);
                    in_vain += end.0.saturating_sub(object_end.0);
                    page = end;
                }
            }
            in_vain
        };
        for (pages, most) in [(2, 1200), (3, 4000)] {
            let in_vain = objects(pages);
            assert!(in_vain < most, "{in_vain} pages in vain with 4000 objects of {pages} pages");
        }
        // Those that go on come after that all the same, and are believed again.
        let reach = touches(&policy, 0..8 * BLOCK_PAGES as u32, AHEAD_LIMIT_PAGES);
        assert!((14..=24).contains(&reach), "{reach} touches of 8 blocks");
        for _ in 0..4 {
            (0..8).for_each(|block| _ = touches(&policy, block * 64..block * 64 + 32, 0));
        }
        assert!((1..=LONG).all(|length| policy.goes_on(Run { length, ..Run::NONE })));
    }

    #[test]
    fn a_run_that_turns_begins_anew() {
        let policy = streams();
        for page in 0..10 {
            policy.answered(PageNo(200 + page), PageNo(200 + page), PageNo(201 + page));
        }
        assert_eq!(policy.run(PageNo(210)), Run { length: 10, ..Run::NONE });
        assert_eq!(policy.run(PageNo(208)), Run { length: SHORT, falls: true, step: 1 });
        assert_eq!(policy.run(PageNo(207)), Run::NONE);
        let seen = Seen { run: Run { length: RUN_MAX, falls: true, step: STEP_MAX }, first: 64, next: 95 };
        assert_eq!(Seen::of(seen.word()), Some(seen));
        assert_eq!(seen.run.with(true).length, RUN_MAX);
        assert_eq!(Seen::of(0), None);
    }

    #[test]
    fn a_stream_by_steps_needs_a_touch_a_block() {
        for step in [2, 3, 7, STEP_MAX] {
            let policy = streams();
            let (mut page, mut touches, mut came) = (PageNo(5), 0, Vec::new());
            while page.0 < 8 * BLOCK_PAGES as u32 {
                let plan = policy.plan(page, u64::MAX);
                assert_eq!((plan.before, plan.pages), (0, 1), "{plan:?}");
                let mut end = page;
                while end == page || end < plan.ahead_end {
                    assert!(end.block() == page.block() && (end == page || plan.step == step as usize), "{plan:?}");
                    came.push(end.0);
                    end = end.plus(step as usize);
                }
                policy.answered(page, page, if end.0 == page.0 + step { page.plus(1) } else { end });
                (page, touches) = (end, touches + 1);
            }
            assert_eq!(came, (5..8 * BLOCK_PAGES as u32).step_by(step as usize).collect::<Vec<_>>());
            assert!((9..=13).contains(&touches), "{touches} touches of 8 blocks by steps of {step}");
            let window = policy.missed(PageNo(8 * step), SlotId(0), u64::MAX, &|_| ());
            assert_eq!(window, None, "another place");
        }
    }

    /// Touches pages upwards, where they have not come yet. How many touches that took, and how many pages came in vain.
    fn walk(policy: &Streams, pages: &[u32]) -> (usize, usize) {
        let mut came = std::collections::BTreeSet::new();
        let mut touches = 0;
        for &page in pages {
            if came.contains(&page) {
                continue;
            }
            let plan = policy.plan(PageNo(page), u64::MAX);
            let mut end = PageNo(page);
            while end.0 == page || end < plan.ahead_end {
                came.insert(end.0);
                end = end.plus(plan.step);
            }
            let alone = end.0 == page + plan.step as u32;
            policy.answered(PageNo(page), PageNo(page), if alone { PageNo(page + 1) } else { end });
            touches += 1;
        }
        (touches, came.iter().filter(|page| !pages.contains(page)).count())
    }

    #[test]
    fn steps_bring_more_only_where_such_go_on() {
        let policy = streams();
        // Rows of a picture that are no whole number of pages, column by column.
        let rows: Vec<u32> = (0..200).map(|row| row * 9600 / 4096).collect();
        let in_vain: usize = (0..4).map(|_| walk(&policy, &rows).1).sum();
        assert!(in_vain < 120, "{in_vain} pages in vain");
        let later: usize = (0..8).map(|_| walk(&policy, &rows).1).sum();
        assert!(later < 16, "{later} pages in vain, when it is known");
        // Those that go on are believed again, and stay so.
        let even: Vec<u32> = (0..8 * BLOCK_PAGES as u32).step_by(7).collect();
        (0..4).for_each(|_| _ = walk(&policy, &even));
        for _ in 0..4 {
            let (touches, in_vain) = walk(&policy, &even);
            assert!(touches <= 16 && in_vain == 0, "{touches} touches of 8 blocks, {in_vain} pages in vain");
        }
    }

    #[test]
    fn two_touches_are_no_stream_by_steps() {
        let policy = streams();
        for page in [PageNo(3), PageNo(10)] {
            assert_eq!(policy.plan(page, u64::MAX).ahead_end, page.plus(1));
            policy.answered(page, page, page.plus(1));
        }
        assert_eq!(policy.run(PageNo(17)), Run { length: 1, falls: false, step: 7 });
        assert_eq!(policy.run(PageNo(16)), Run { length: 0, falls: false, step: 6 }, "it begins anew");
        assert_eq!(policy.run(PageNo(11)), Run { length: SHORT, ..Run::NONE }, "the page beside the last one");
        assert_eq!(policy.plan(PageNo(17), u64::MAX).ahead_end, PageNo(32), "two more, 24 and 31");
        assert_eq!(policy.plan(PageNo(17), AHEAD_LIMIT_PAGES - 1), Plan::only(PageNo(17), 1), "they would not stay");
        let window = policy.missed(PageNo(17), SlotId(0), u64::MAX, &|_| ());
        assert_eq!(window, Some(Window { over: Over::Pages, first: 24, step: 7, count: 2 }), "from a slow store");
    }

    #[test]
    fn scattered_touches_bring_their_own_page() {
        let policy = streams();
        let mut random = 1u32;
        let mut more = 0;
        for _ in 0..1000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let page = PageNo(random >> 23);
            more += usize::from(policy.plan(page, u64::MAX) != Plan::only(page, 1));
            policy.answered(page, page, page.plus(1));
        }
        // Some follow each other by chance.
        assert!(more < 50, "{more} of 1000 touches brought more than a page");
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
