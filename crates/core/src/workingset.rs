//! Refault distance: how many pages were evicted between a page's own eviction and its return. With so many more pages of memory it
//! would not have left.
//!
//! Johannes Weiner, "mm: thrash detection-based file cache sizing", 2014. The clock is the count of evictions; a page's word keeps
//! its reading at the page's eviction, in steps, and as many bits of it as there is room for: a page that was away for very long
//! may look as if it had come back soon.
use crate::page::STAMP_BITS;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Steps of the clock while as many pages as the limit allows are evicted. It goes round after sixteen times as many.
const STEPS: u64 = 128;

/// A page comes back soon if fewer pages than this share of the limit were evicted meanwhile: it was in use when it went.
pub(crate) const SOON_SHARE: u64 = 8;

/// The clock, and how many pages came back soon.
pub struct Workingset {
    evicted_pages: AtomicU64,
    step_pages: AtomicU64,
    near_pages: AtomicU64,
    near_refaults: AtomicU64,
    soon_refaults: AtomicU64,
}

impl Default for Workingset {
    fn default() -> Workingset {
        let zero = || AtomicU64::new(0);
        let (evicted_pages, step_pages) = (zero(), AtomicU64::new(1));
        Workingset { evicted_pages, step_pages, near_pages: zero(), near_refaults: zero(), soon_refaults: zero() }
    }
}

impl Workingset {
    /// Sets the distance up to which a refault is counted.
    pub fn set_near_pages(&self, pages: u64) {
        self.near_pages.store(pages, Relaxed);
    }

    /// Pages that came back within that distance, so far.
    pub fn near_refaults(&self) -> u64 {
        self.near_refaults.load(Relaxed)
    }

    /// Pages that were evicted so far. A forked child goes on from its parent's count.
    pub fn evicted_pages(&self) -> u64 {
        self.evicted_pages.load(Relaxed)
    }

    /// Pages that came back before an eighth of the limit had been evicted, so far.
    pub fn soon_refaults(&self) -> u64 {
        self.soon_refaults.load(Relaxed)
    }

    /// Counts from nothing, in a forked child.
    pub fn forget(&self) {
        self.near_refaults.store(0, Relaxed);
    }

    /// The limit has become another. What is out may be mistaken for a while where the clock must go at another pace; it keeps its
    /// pace while that still does.
    pub(crate) fn set_limit_pages(&self, pages: u64) {
        let (step, wanted) = (self.step_pages.load(Relaxed), (pages / STEPS).max(1));
        if wanted < step / 2 || wanted / 2 > step {
            self.step_pages.store(wanted, Relaxed);
        }
    }

    /// A page is evicted. Returns what is to be kept in its word.
    pub(crate) fn evict(&self) -> u64 {
        let evicted_pages = self.evicted_pages.fetch_add(1, Relaxed);
        evicted_pages / self.step_pages.load(Relaxed) % (1 << STAMP_BITS)
    }

    /// A page is brought back because it was touched, with what was kept in its word. Returns how many were evicted meanwhile,
    /// about.
    pub(crate) fn refault(&self, stamp: u64) -> u64 {
        let step_pages = self.step_pages.load(Relaxed);
        let now = self.evicted_pages.load(Relaxed) / step_pages;
        let distance_pages = now.wrapping_sub(stamp) % (1 << STAMP_BITS) * step_pages;
        if distance_pages < STEPS / SOON_SHARE * step_pages {
            self.soon_refaults.fetch_add(1, Relaxed);
        }
        if distance_pages < self.near_pages.load(Relaxed) {
            self.near_refaults.fetch_add(1, Relaxed);
        }
        distance_pages
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_within_the_distance_is_counted() {
        for near_pages in [64, 1000, 100_000] {
            let workingset = Workingset::default();
            workingset.set_limit_pages(near_pages * 16);
            workingset.set_near_pages(near_pages);
            for (away, counts) in [(0, 1), (near_pages / 2, 1), (near_pages * 5 / 4, 0), (near_pages * 100, 0)] {
                let stamp = workingset.evict();
                assert!(stamp < 1 << STAMP_BITS);
                (0..away).for_each(|_| _ = workingset.evict());
                let before = workingset.near_refaults();
                workingset.refault(stamp);
                assert_eq!(workingset.near_refaults() - before, counts, "{away} of {near_pages}");
            }
        }
    }

    #[test]
    fn without_a_distance_nothing_is_near() {
        let workingset = Workingset::default();
        workingset.refault(workingset.evict());
        assert_eq!(workingset.near_refaults(), 0);
    }

    #[test]
    fn distances_are_known_to_a_step() {
        for limit_pages in [100, 4096, 1_000_000] {
            let workingset = Workingset::default();
            workingset.set_limit_pages(limit_pages);
            let step = (limit_pages / STEPS).max(1);
            for away in [0, limit_pages / 8, limit_pages, limit_pages * 7] {
                let stamp = workingset.evict();
                (0..away).for_each(|_| _ = workingset.evict());
                let known = workingset.refault(stamp);
                assert!(known.abs_diff(away + 1) <= step, "{known} for {away} of {limit_pages}");
            }
        }
    }

    #[test]
    fn the_clock_keeps_its_pace_under_small_changes_of_the_limit() {
        let workingset = Workingset::default();
        workingset.set_limit_pages(100 * STEPS);
        (0..5000).for_each(|_| _ = workingset.evict());
        let stamp = workingset.evict();
        for percent in [130, 60, 190, 51] {
            workingset.set_limit_pages(percent * STEPS);
            assert_eq!(workingset.refault(stamp), 0, "{percent} %");
        }
        workingset.set_limit_pages(300 * STEPS);
        assert_eq!(workingset.step_pages.load(Relaxed), 300);
    }
}
