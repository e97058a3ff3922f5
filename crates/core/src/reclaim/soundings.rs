//! Soundings: a few pages of a block go first, and tell whether the block is in use.
//!
//! Pages that wait tell by being touched, at the price of a fault, and where nobody touches them they have only taken room. So a block that is
//! full is sounded: a few of its pages wait, and meanwhile its others stay where they are. Where one of them is touched, the block goes back to the
//! queue; where none is, the others go. That one page of a region tells of all is from DAMON (SeongJae Park and others, "Profiling dynamic data
//! access patterns with controlled overhead and quality", 2019); that it tells by being out of reach is our own. A block that was touched in each
//! of several waits is passed by for some passes, as in generalized CLOCK (Alan Jay Smith, "Sequentiality and prefetching in database systems", 1978).
use super::delayed::Delayed;
use crate::broken::{self, Broken};
use crate::mask::Mask;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, BlockNo};

/// Pages of a sounding. Blocks with no more than twice as many go at once.
const PAGES: usize = 8;
/// A sounding takes as long as this share of the limit takes to be evicted.
const WAIT_SHARE: u64 = 128;
/// Waits on end in which a block was touched that count: as many passes take it by, less one. A single one may be the last of a program that
/// goes through it once.
const STREAK_MAX: u32 = 3;

/// Of a block's word: passes that still take it by.
const LEFT: u32 = 0xff;
/// Waits on end in which it was touched.
const STREAK_SHIFT: u32 = 8;
/// Pages of it were taken, and none was touched since.
const WAITS: u32 = 1 << 16;
/// It is sounded: when it is taken the next time, it goes whole.
const SOUNDED: u32 = 1 << 17;

/// What is known of each block, and the blocks that are sounded.
pub(super) struct Soundings {
    words: Table<AtomicU32>,
    /// Those that are sounded, oldest first.
    queue: Delayed,
}

// Two threads that change a block's word at once lose a pass, a wait or a sounding.
impl Soundings {
    /// What it takes for a block, bytes.
    pub(super) const BLOCK_BYTES: usize = size_of::<u32>() + Delayed::BLOCK_BYTES;

    /// Reserves what is known of each block. `None` where there is no memory.
    pub(super) fn new(from: &impl Reserve, pages: usize) -> Option<Soundings> {
        Some(Soundings { words: Table::new(from, pages / BLOCK_PAGES)?, queue: Delayed::new(from, pages)? })
    }

    /// Sets how long a sounding takes, by the limit.
    pub(super) fn set_limit_pages(&self, limit_pages: u64) {
        self.queue.set_length_pages(limit_pages / WAIT_SHARE);
    }

    fn word(&self, block: BlockNo) -> &AtomicU32 {
        &self.words[block.0 as usize]
    }

    /// Whether a block is in the queue of those that are sounded.
    pub(super) fn has(&self, block: BlockNo) -> bool {
        self.queue.has(block)
    }

    /// How many are.
    pub(super) fn len(&self, pause: &impl Fn(u32)) -> usize {
        self.queue.len(pause)
    }

    /// Whether a block whose turn it is is passed by this time.
    pub(super) fn passes(&self, block: BlockNo) -> bool {
        let word = self.word(block);
        let known = word.load(Relaxed);
        if known & LEFT > 0 {
            word.store(known - 1, Relaxed);
        }
        known & LEFT > 0
    }

    /// Of these pages of a block that may go, those that go now, when so many were evicted before.
    pub(super) fn part(&self, block: BlockNo, wanted: Mask, evicted: u32) -> Mask {
        let word = self.word(block);
        let known = word.load(Relaxed);
        // Nobody touched it in its last wait, so what was before that counts no more.
        let kept = if known & WAITS > 0 { 0 } else { known & LEFT << STREAK_SHIFT };
        let is_sounding = known & SOUNDED == 0 && wanted.count() > 2 * PAGES;
        word.store(kept | WAITS | if is_sounding { SOUNDED } else { 0 }, Relaxed);
        if !is_sounding {
            return wanted;
        }
        self.queue.begin(block, evicted);
        // From another place on each time.
        let start = evicted.wrapping_mul(0x9e37_79b1) as usize >> 16;
        let places = (0..BLOCK_PAGES).map(|i| (start + i) % BLOCK_PAGES).filter(|&i| wanted.contains(i));
        let mut part = Mask::EMPTY;
        places.take(PAGES).for_each(|i| part.insert(i));
        part
    }

    /// Queues a block that is sounded. False where it is not.
    pub(super) fn back(&self, block: BlockNo, pause: &impl Fn(u32)) -> bool {
        let is_sounded = self.word(block).load(Relaxed) & SOUNDED > 0;
        if is_sounded {
            self.queue.add(block, pause);
        }
        is_sounded
    }

    /// A page of a block is touched while it waits, or comes back while others do.
    pub(super) fn touched(&self, block: BlockNo) {
        let word = self.word(block);
        let known = word.load(Relaxed);
        if known & WAITS > 0 && !broken::is(Broken::SoundingsUnheard) {
            let streak = ((known >> STREAK_SHIFT & LEFT) + 1).min(STREAK_MAX);
            word.store(known & SOUNDED | streak << STREAK_SHIFT | (streak - 1), Relaxed);
        }
    }

    /// Takes out the block that was sounded first, where it has had its time by now, or `at_once`. Says whether it was touched meanwhile: it is
    /// sounded no more then, and goes to the other blocks.
    pub(super) fn take(&self, evicted: u32, at_once: bool, pause: &impl Fn(u32)) -> Option<(BlockNo, bool)> {
        let first = if at_once { self.queue.take(pause) } else { self.queue.take_over(evicted, pause) };
        let block = BlockNo(first?);
        let word = self.word(block);
        let known = word.load(Relaxed);
        let was_touched = known & WAITS == 0;
        if was_touched {
            word.store(known & !SOUNDED, Relaxed);
        }
        Some((block, was_touched))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;

    const BLOCK: BlockNo = BlockNo(1);

    fn all() -> Mask {
        Mask::range(0, BLOCK_PAGES)
    }

    fn soundings() -> Soundings {
        let soundings = Soundings::new(&Leak, 4 * BLOCK_PAGES).expect("there is memory");
        soundings.set_limit_pages(100 * WAIT_SHARE);
        soundings
    }

    /// Sounds the block when so many pages were evicted, touches it if so, and takes it when its time is over.
    fn sound(soundings: &Soundings, evicted: u32, touched: bool) -> bool {
        let part = soundings.part(BLOCK, all(), evicted);
        assert_eq!(part.count(), PAGES, "{part:?}");
        assert!(soundings.back(BLOCK, &|_| ()) && soundings.has(BLOCK) && soundings.len(&|_| ()) == 1);
        if touched {
            soundings.touched(BLOCK);
        }
        assert_eq!(soundings.take(evicted.wrapping_add(99), false, &|_| ()), None, "its time is not over");
        let (block, was_touched) = soundings.take(evicted.wrapping_add(100), false, &|_| ()).expect("it is over");
        assert_eq!((block, soundings.has(BLOCK)), (BLOCK, false));
        was_touched
    }

    #[test]
    fn a_block_that_is_not_touched_while_it_is_sounded_goes_whole() {
        let soundings = soundings();
        assert!(!sound(&soundings, u32::MAX - 50, false));
        assert_eq!(soundings.part(BLOCK, all(), 7), all());
        assert!(!soundings.back(BLOCK, &|_| ()), "what is left of it waits with the others");
        assert!(!sound(&soundings, 1000, false), "and is sounded when it is full again");
    }

    #[test]
    fn a_block_that_is_touched_while_it_is_sounded_is_sounded_again() {
        let soundings = soundings();
        let passes = |touched: bool| {
            assert_eq!(sound(&soundings, 5, touched), touched);
            let passes = (0..).take_while(|_| soundings.passes(BLOCK)).count();
            assert!(!soundings.passes(BlockNo(0)) && !soundings.passes(BlockNo(2)), "of others nothing is known");
            passes
        };
        assert_eq!([passes(true), passes(true), passes(true), passes(true)], [0, 1, 2, 2], "the more waits on end");
        assert_eq!(passes(false), 0);
        soundings.part(BLOCK, all(), 9);
        assert_eq!([passes(true), passes(true)], [0, 1], "it begins anew");
    }

    #[test]
    fn a_block_with_few_pages_goes_at_once() {
        let soundings = soundings();
        let few = Mask::range(3, 2 * PAGES);
        assert_eq!(soundings.part(BLOCK, few, 0), few);
        assert!(!soundings.back(BLOCK, &|_| ()));
        let more = Mask::range(3, 2 * PAGES + 1);
        let part = soundings.part(BLOCK, more, 0);
        assert!((part - more).is_empty() && part.count() == PAGES);
        soundings.back(BLOCK, &|_| ());
        assert_eq!(soundings.take(0, true, &|_| ()), Some((BLOCK, false)), "where there is nothing else");
    }

    #[test]
    fn other_pages_are_taken_each_time() {
        let soundings = soundings();
        let mut seen = Mask::EMPTY;
        for n in 0..100 {
            seen |= soundings.part(BLOCK, all(), n * 12_345);
            soundings.touched(BLOCK);
            soundings.back(BLOCK, &|_| ());
            soundings.take(0, true, &|_| ());
        }
        assert_eq!(seen, all());
    }
}
