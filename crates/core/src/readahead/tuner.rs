//! A window that follows its own success: Hugh Dickins, "swap: add a simple detector for inappropriate swapin readahead", 2012.
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Hits that are taken for granted at the start.
const HITS_AT_START: u32 = 4;

/// How large the next window is.
pub(super) struct Tuner {
    max: u32,
    /// Pages read ahead that were wanted since the last window.
    hits: AtomicU32,
    /// Where the last miss was that was decided on without any.
    last: AtomicU32,
}

impl Tuner {
    /// Windows have at most `2^page_cluster` pages.
    pub fn new(page_cluster: u32) -> Tuner {
        Tuner { max: 1 << page_cluster, hits: AtomicU32::new(HITS_AT_START), last: AtomicU32::new(0) }
    }

    /// A page that was read ahead was wanted.
    pub fn hit(&self) {
        if !broken::is(Broken::AheadUntold) {
            self.hits.fetch_add(1, Relaxed);
        }
    }

    /// Pages of the window for a miss at a number, which is that of a page or a slot: a power of two, 1 for none.
    pub fn window(&self, at: u32) -> u32 {
        if self.max == 1 {
            return 1;
        }
        let window = match self.hits.swap(0, Relaxed) {
            // Only a second one beside the last is a sign of order.
            0 if self.last.swap(at, Relaxed).abs_diff(at) == 1 => 2,
            0 => 1,
            hits => hits.saturating_add(2).min(self.max).next_power_of_two().max(4),
        };
        window.min(self.max)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_its_hits() {
        let tuner = Tuner::new(4);
        let window = |hits: u32, at: u32| {
            (0..hits).for_each(|_| tuner.hit());
            tuner.window(at)
        };
        assert_eq!(window(0, 100), 8, "four hits at the start");
        // A place is remembered only where there were no hits.
        assert_eq!([window(0, 7), window(0, 8), window(0, 7), window(0, 9)], [1, 2, 2, 1]);
        assert_eq!(
            [window(1, 10), window(0, 10), window(0, 10)],
            [4, 2, 1],
            "beside 9, where nothing else was between"
        );
        assert_eq!([1, 2, 3, 6, 7, 14, 15, 1000].map(|hits| window(hits, 0)), [4, 4, 8, 8, 16, 16, 16, 16]);
    }

    #[test]
    fn the_maximum_holds() {
        for (page_cluster, windows) in [(0, [1, 1, 1]), (1, [2, 1, 2]), (2, [4, 1, 2]), (3, [8, 1, 2])] {
            let tuner = Tuner::new(page_cluster);
            assert_eq!([tuner.window(50), tuner.window(80), tuner.window(81)], windows);
        }
    }
}
