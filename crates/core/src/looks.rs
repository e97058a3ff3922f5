//! When the machine is asked what the program has used.
//!
//! To ask costs time for each resident page, so it is asked when enough was evicted since, and for a third of the time at most
//! of the thread that does nothing else but make room. With more, programs gained no more time (a ninth: more was read back).
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// A look is due when one part in so many of the limit has been isolated since the last one.
const TAKEN_SHARE: u64 = 8;
/// Time between looks, at least, in terms of what the last one took.
const PAUSE_FACTOR: u64 = 2;
/// The share of the limit in use, in quarters, from which on looks are made: those before any eviction give the first one
/// something to go by.
const USED_QUARTERS: u64 = 3;

/// When looks were made, and what has happened since.
pub struct Looks {
    taken_pages: AtomicU64,
    /// Of these, those before the last look.
    seen_pages: AtomicU64,
    next_ns: AtomicU64,
    count: AtomicU64,
}

impl Default for Looks {
    fn default() -> Looks {
        let zero = || AtomicU64::new(0);
        Looks { taken_pages: zero(), seen_pages: zero(), next_ns: zero(), count: zero() }
    }
}

impl Looks {
    /// Counts pages that were isolated.
    pub fn taken(&self, pages: u64) {
        self.taken_pages.fetch_add(pages, Relaxed);
    }

    /// Pages that were isolated so far.
    pub fn taken_pages(&self) -> u64 {
        self.taken_pages.load(Relaxed)
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, used_pages: u64, limit_pages: u64, now_ns: impl FnOnce() -> u64) -> bool {
        let since_pages = self.taken_pages.load(Relaxed) - self.seen_pages.load(Relaxed);
        let is_first = self.count.load(Relaxed) == 0 && used_pages * 4 > limit_pages * USED_QUARTERS;
        (is_first || since_pages > limit_pages / TAKEN_SHARE) && now_ns() >= self.next_ns.load(Relaxed)
    }

    /// A look begins.
    pub fn begin(&self) {
        self.seen_pages.store(self.taken_pages.load(Relaxed), Relaxed);
    }

    /// It is over.
    pub fn end(&self, begun_ns: u64, now_ns: u64) {
        self.next_ns.store(now_ns + now_ns.saturating_sub(begun_ns) * PAUSE_FACTOR, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn looks_follow_evictions_and_take_a_small_share_of_the_time() {
        const LIMIT_PAGES: u64 = 800;
        let looks = Looks::default();
        let due = |used_pages, now_ns: u64| looks.is_due(used_pages, LIMIT_PAGES, || now_ns);
        assert!(!due(LIMIT_PAGES / 2, 0), "there is no need yet");
        assert!(due(LIMIT_PAGES, 0), "the first comes before evictions");
        looks.begin();
        looks.end(1000, 2000);
        assert!(!due(LIMIT_PAGES, 1_000_000), "nothing was evicted since");
        looks.taken(LIMIT_PAGES / TAKEN_SHARE + 1);
        assert!(due(LIMIT_PAGES, 1_000_000) && !due(LIMIT_PAGES, 2000 + 1000 * PAUSE_FACTOR - 1));
        looks.begin();
        assert!(!due(LIMIT_PAGES, 1_000_000), "what was evicted before it counts no more");
    }
}
