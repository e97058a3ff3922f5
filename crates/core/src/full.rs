//! A store that refuses: how long it is left alone, and whether the program may take memory beyond the limit meanwhile.
//!
//! To compress, to write and to be refused costs as much as to be taken. So after a refusal nothing is given to the store until
//! there is cause to think that it has room: slots were given up, time has passed, or many batches have been passed by. Each
//! refusal on end makes all three longer, up to a bound; each page that is stored makes them shorter. What needs no store goes all
//! the while: pages of zeros, and pages whose slot still holds them.
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How often the rest can be doubled.
const LEVEL_MAX: u32 = 8;
/// The shortest rest, and the longest. Space on a disk is freed by others, who do not tell.
const REST_NS: u64 = 20_000_000;
const REST_MAX_NS: u64 = 1_000_000_000;
/// Slots that are given up before the store is tried again, after one refusal, and at most: as many pages as a batch has, since what
/// is given up makes room, but for what is lost between other slots.
const FREED_SLOTS: u32 = 16;
const FREED_MAX_SLOTS: u32 = 64;
/// Batches that are passed by before it is tried again, after one refusal.
const PASSED_BATCHES: u32 = 4;

/// What is known of a store that refuses. All zero: it takes what it is given.
pub struct Full {
    /// When it began to refuse, plus 1; 0 where it takes pages.
    since_ns: AtomicU64,
    /// When it refused last, plus 1; 0 where it never did.
    refused_ns: AtomicU64,
    /// Until when it rests; 0 where it does not.
    until_ns: AtomicU64,
    /// Refusals on end, less what was stored since.
    level: AtomicU32,
    /// Slots given up, and batches passed by, since it refused.
    freed: AtomicU32,
    passed: AtomicU32,
    /// The limit is not to be exceeded for want of room in it.
    insists: AtomicBool,
    /// It is exceeded all the same, until something is stored.
    gave_up: AtomicBool,
    /// Whether it was to be tried at once: [`NOT_ASKED`], [`ASKED`] or [`REFUSED`]; and when that was so.
    last_try: AtomicU32,
    tried_ns: AtomicU64,
    /// Since when threads are held back and none gets its page, plus 1, and when one was last.
    held_since_ns: AtomicU64,
    held_last_ns: AtomicU64,
}

/// What a thread that was held back has learned for so long holds: threads that wait look more often, and a refusal is old then.
const HOLDS_NS: u64 = 1_000_000_000;

/// So long after a refusal others are to be expected.
const LATELY_NS: u64 = 5_000_000_000;

const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
/// It was, and has refused.
const REFUSED: u32 = 2;

impl Default for Full {
    fn default() -> Full {
        Full {
            since_ns: AtomicU64::new(0),
            refused_ns: AtomicU64::new(0),
            until_ns: AtomicU64::new(0),
            level: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            insists: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            last_try: AtomicU32::new(NOT_ASKED),
            tried_ns: AtomicU64::new(0),
            held_since_ns: AtomicU64::new(0),
            held_last_ns: AtomicU64::new(0),
        }
    }
}

impl Full {
    /// Whether the store has refused, and taken nothing since.
    pub fn is_full(&self) -> bool {
        self.since_ns.load(Relaxed) != 0
    }

    /// Whether it has refused a short while ago, whatever it took since: what is given to it next may come back.
    pub(crate) fn may_refuse(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let refused_ns = self.refused_ns.load(Relaxed);
        refused_ns != 0 && now_ns().saturating_sub(refused_ns) < LATELY_NS
    }

    /// A thread is held back: for how long threads have been, without one that got its page, nanoseconds.
    pub fn held_ns(&self, now_ns: u64) -> u64 {
        let last_ns = self.held_last_ns.swap(now_ns, Relaxed);
        let since_ns = self.held_since_ns.load(Relaxed);
        if since_ns == 0 || now_ns.saturating_sub(last_ns) > HOLDS_NS {
            self.held_since_ns.store(now_ns + 1, Relaxed);
            return 0;
        }
        now_ns.saturating_sub(since_ns - 1)
    }

    /// A page came in that might have been held back.
    pub(crate) fn let_in(&self) {
        if self.held_since_ns.load(Relaxed) != 0 {
            self.held_since_ns.store(0, Relaxed);
        }
    }

    /// In a forked child, whose store is another: nothing is known of it.
    pub fn forget(&self) {
        for word in [&self.since_ns, &self.refused_ns, &self.until_ns, &self.held_since_ns] {
            word.store(0, Relaxed);
        }
        self.level.store(0, Relaxed);
        self.gave_up.store(false, Relaxed);
        self.last_try.store(NOT_ASKED, Relaxed);
    }

    /// Whether a batch is to be passed by: the store is not asked.
    pub(crate) fn passes(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let until_ns = self.until_ns.load(Relaxed);
        if until_ns == 0 {
            return false;
        }
        let level = self.level.load(Relaxed);
        let rests = self.freed.load(Relaxed) < (FREED_SLOTS << level).min(FREED_MAX_SLOTS)
            && self.passed.fetch_add(1, Relaxed) < PASSED_BATCHES << level
            && now_ns() < until_ns;
        if !rests {
            // Whoever is the first to ask tries; what comes of it is said in a moment.
            self.until_ns.store(0, Relaxed);
        }
        rests
    }

    /// A page was refused.
    pub(crate) fn refused(&self, now_ns: u64) {
        if self.since_ns.load(Relaxed) == 0 {
            self.since_ns.store(now_ns + 1, Relaxed);
        }
        self.refused_ns.store(now_ns + 1, Relaxed);
        // Several may be refused at the same time: what they make of it differs by a step or two.
        let level = self.level.load(Relaxed);
        self.level.store((level + 1).min(LEVEL_MAX), Relaxed);
        self.freed.store(0, Relaxed);
        self.passed.store(0, Relaxed);
        if self.last_try.load(Relaxed) == ASKED {
            self.tried_ns.store(now_ns, Relaxed);
            self.last_try.store(REFUSED, Relaxed);
        }
        self.until_ns.store(now_ns + (REST_NS << level).min(REST_MAX_NS), Relaxed);
    }

    /// Something was stored.
    pub(crate) fn took(&self) {
        if self.level.load(Relaxed) == 0 && self.since_ns.load(Relaxed) == 0 {
            return;
        }
        self.level.store(self.level.load(Relaxed).saturating_sub(1), Relaxed);
        self.until_ns.store(0, Relaxed);
        self.since_ns.store(0, Relaxed);
        self.gave_up.store(false, Relaxed);
        self.last_try.store(NOT_ASKED, Relaxed);
    }

    /// A slot was given up.
    pub(crate) fn freed(&self) {
        if self.until_ns.load(Relaxed) != 0 {
            self.freed.fetch_add(1, Relaxed);
        }
    }

    /// Says whether the limit is to hold while the store is full, for pages that the program had not before.
    pub fn set_insists(&self, insists: bool) {
        self.insists.store(insists, Relaxed);
    }

    /// Whether such a page has to wait for room.
    pub fn holds_back(&self) -> bool {
        self.is_full() && self.insists.load(Relaxed) && !self.gave_up.load(Relaxed)
    }

    /// Whether who insists had waited long enough.
    pub fn has_given_up(&self) -> bool {
        self.gave_up.load(Relaxed)
    }

    /// Has the store tried at once, whatever it rests for. False where it was just now, and has refused, and stored nothing since.
    pub fn try_at_once(&self, now_ns: u64) -> bool {
        match self.last_try.load(Relaxed) {
            REFUSED if now_ns.saturating_sub(self.tried_ns.load(Relaxed)) < HOLDS_NS => false,
            _ => {
                self.last_try.store(ASKED, Relaxed);
                self.until_ns.store(0, Relaxed);
                true
            }
        }
    }

    /// There is room again, which others have left: what comes next is told anew.
    pub fn has_room(&self) {
        self.last_try.store(NOT_ASKED, Relaxed);
    }

    /// Has the limit exceeded until something is stored.
    pub fn give_up(&self) {
        self.gave_up.store(true, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_on_end_makes_the_rest_longer_up_to_a_bound() {
        let full = Full::default();
        assert!(!full.is_full() && !full.passes(|| 0), "it takes pages");
        let mut rests = Vec::new();
        for _ in 0..12 {
            full.refused(0);
            // Time stands still, nothing is freed: it is tried again after so many batches.
            rests.push((0..).take_while(|_| full.passes(|| 0)).count());
            assert!(!full.passes(|| 0), "it is tried once the rest is over");
        }
        assert!(rests.windows(2).all(|two| two[0] <= two[1]) && rests[0] < rests[3], "{rests:?}");
        assert_eq!(rests[11], (PASSED_BATCHES << LEVEL_MAX) as usize);
        full.refused(5);
        assert!(full.passes(|| 5 + REST_MAX_NS - 1) && !full.passes(|| 5 + REST_MAX_NS), "the time is bounded");
        full.took();
        assert!(full.may_refuse(|| 5) && full.may_refuse(|| LATELY_NS) && !full.may_refuse(|| LATELY_NS + 6));
        assert!(!Full::default().may_refuse(|| 5));
    }

    #[test]
    fn how_long_threads_are_held_back_ends_with_a_page_that_comes_in_or_a_pause() {
        let full = Full::default();
        let ms = |ms: u64| ms * 1_000_000;
        full.refused(0);
        assert_eq!([7000, 7100, 8000].map(|at| full.held_ns(ms(at))), [0, ms(100), ms(1000)], "since one was");
        full.took();
        assert_eq!(full.held_ns(ms(8500)), ms(1500), "what others have stored helps nobody who waits");
        full.let_in();
        assert_eq!([8600, 8700].map(|at| full.held_ns(ms(at))), [0, ms(100)]);
        assert_eq!([9800, 9900].map(|at| full.held_ns(ms(at))), [0, ms(100)], "nobody waited for a second");
        full.give_up();
        full.refused(ms(9900));
        full.set_insists(true);
        full.forget();
        assert!(!full.is_full() && !full.has_given_up());
        full.refused(ms(9900));
        assert!(full.holds_back(), "that is not forgotten");
    }

    #[test]
    fn slots_given_up_end_the_rest_and_what_is_stored_shortens_the_next() {
        let full = Full::default();
        full.refused(0);
        (0..(FREED_SLOTS << 1) - 1).for_each(|_| full.freed());
        assert!(full.passes(|| 0));
        full.freed();
        assert!(!full.passes(|| 0));
        full.refused(0);
        full.refused(0);
        let level = full.level.load(Relaxed);
        full.took();
        assert!(!full.is_full() && !full.passes(|| 0));
        assert_eq!(full.level.load(Relaxed), level - 1);
        full.freed();
        full.refused(0);
        assert_eq!(
            (full.level.load(Relaxed), full.freed.load(Relaxed)),
            (level, 0),
            "what was freed before is used up"
        );
        (0..20).for_each(|_| full.took());
        assert_eq!(full.level.load(Relaxed), 0);
    }

    #[test]
    fn it_is_tried_at_once_before_anybody_ends_for_it() {
        let full = Full::default();
        full.refused(0);
        assert!(full.passes(|| 0) && full.try_at_once(0) && !full.passes(|| 0));
        assert!(full.try_at_once(0), "what came of it is not known yet");
        full.refused(0);
        assert!(!full.try_at_once(HOLDS_NS - 1) && full.passes(|| 0));
        assert!(full.try_at_once(HOLDS_NS), "that was long ago");
        full.refused(0);
        full.took();
        full.refused(0);
        assert!(full.try_at_once(0), "it had room meanwhile");
    }

    #[test]
    fn who_insists_is_held_back_until_something_is_stored_or_it_gives_up() {
        let full = Full::default();
        full.refused(0);
        assert!(!full.holds_back());
        full.set_insists(true);
        assert!(full.holds_back());
        full.give_up();
        assert!(!full.holds_back() && full.has_given_up());
        full.took();
        assert!(!full.holds_back(), "there is room");
        full.refused(0);
        assert!(full.holds_back(), "it insists anew");
    }
}
