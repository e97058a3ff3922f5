//! How many isolated pages wait for a touch: as many as pays.
//!
//! A page that waits and is touched has told that it is in use, at the price of a fault; one that waits in vain has only taken
//! room. Where many of the pages that leave memory were touched while they waited, the wait is too long for what it tells, or all
//! is in use; where few were, more may wait.
use crate::sync::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// The share of the limit that may wait: at most, and at least.
const SHARE: usize = 16;
const SHARE_MIN: usize = 128;
/// It is halved where more than one in so many was touched, doubled where less than one in so many was.
const MANY: usize = 4;
const FEW: usize = 16;
/// Decided each time that this share of the limit has come and gone.
const WINDOW_SHARE: usize = 8;

/// The share that waits.
pub(super) struct Waiting {
    share: AtomicUsize,
    hits: AtomicU32,
    evicted: AtomicUsize,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { share: AtomicUsize::new(SHARE), hits: AtomicU32::new(0), evicted: AtomicUsize::new(0) }
    }
}

impl Waiting {
    /// An isolated page was touched.
    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    /// So many pages have left memory.
    pub(super) fn evicted(&self, pages: usize) {
        self.evicted.fetch_add(pages, Relaxed);
    }

    /// The most pages that may wait.
    pub(super) fn max_pages(&self, limit_pages: usize) -> usize {
        let (hits, evicted) = (self.hits.load(Relaxed) as usize, self.evicted.load(Relaxed));
        let share = self.share.load(Relaxed);
        if (hits + evicted) * WINDOW_SHARE < limit_pages {
            return limit_pages / share;
        }
        // Two threads may decide at once, on the same numbers or on none: a window more or less.
        let next = if hits * MANY > evicted {
            (share * 2).min(SHARE_MIN)
        } else if hits * FEW < evicted {
            (share / 2).max(SHARE)
        } else {
            share
        };
        self.share.store(next, Relaxed);
        self.hits.store(0, Relaxed);
        self.evicted.store(0, Relaxed);
        limit_pages / next
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fewer_wait_while_many_are_touched_and_more_again_when_few_are() {
        const LIMIT: usize = 8192;
        let waiting = Waiting::default();
        let window = |hits: usize, evicted: usize| {
            (0..hits).for_each(|_| waiting.hit());
            waiting.evicted(evicted);
            waiting.max_pages(LIMIT)
        };
        assert_eq!(window(100, 100), LIMIT / SHARE, "too early to tell");
        assert_eq!(window(300, 600), LIMIT / SHARE / 2);
        assert_eq!(window(150, 1000), LIMIT / SHARE / 2, "neither many nor few");
        assert_eq!(window(1000, 1000), LIMIT / SHARE / 4);
        (0..9).for_each(|_| assert!(window(1000, 0) >= LIMIT / SHARE_MIN));
        assert_eq!(window(1000, 0), LIMIT / SHARE_MIN);
        (0..9).for_each(|_| assert!(window(0, 2000) <= LIMIT / SHARE));
        assert_eq!(window(1, 2000), LIMIT / SHARE);
    }
}
