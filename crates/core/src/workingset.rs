//! Refault distance: how many pages were evicted between a page's own eviction and its return. With so many more pages of memory it
//! would not have left.
//!
//! Johannes Weiner, "mm: thrash detection-based file cache sizing", 2014. The clock is the count of evictions; a page's word keeps
//! its reading at the page's eviction, in steps, and as many bits of it as there is room for: a page that was away for very long
//! may look as if it had come back soon.
use crate::page::STAMP_BITS;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Steps of the clock in the distance that counts as near.
const STEPS: u64 = 32;

/// The clock, and how many pages came back soon.
pub struct Workingset {
    evicted_pages: AtomicU64,
    near_pages: AtomicU64,
    near_refaults: AtomicU64,
}

impl Default for Workingset {
    fn default() -> Workingset {
        let zero = || AtomicU64::new(0);
        Workingset { evicted_pages: zero(), near_pages: zero(), near_refaults: zero() }
    }
}

impl Workingset {
    /// Sets the distance up to which a refault is counted. What is out now may be mistaken for a while.
    pub fn set_near_pages(&self, pages: u64) {
        self.near_pages.store(pages, Relaxed);
    }

    /// Pages that came back within that distance, so far.
    pub fn near_refaults(&self) -> u64 {
        self.near_refaults.load(Relaxed)
    }

    /// Counts from nothing, in a forked child.
    pub fn forget(&self) {
        self.near_refaults.store(0, Relaxed);
    }

    fn step_pages(&self) -> u64 {
        (self.near_pages.load(Relaxed) / STEPS).max(1)
    }

    /// A page is evicted. Returns what is to be kept in its word.
    pub(crate) fn evict(&self) -> u64 {
        let evicted_pages = self.evicted_pages.fetch_add(1, Relaxed);
        evicted_pages / self.step_pages() % (1 << STAMP_BITS)
    }

    /// A page is brought back because it was touched, with what was kept in its word.
    pub(crate) fn refault(&self, stamp: u64) {
        let now = self.evicted_pages.load(Relaxed) / self.step_pages();
        let steps = now.wrapping_sub(stamp) % (1 << STAMP_BITS);
        if steps < STEPS && self.near_pages.load(Relaxed) > 0 {
            self.near_refaults.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_within_the_distance_is_counted() {
        for near_pages in [64, 1000, 100_000] {
            let workingset = Workingset::default();
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
}
