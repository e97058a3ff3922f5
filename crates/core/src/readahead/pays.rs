//! Whether reading ahead pays: by how many of the pages read ahead are wanted, and by what waiting for one costs.
//!
//! A page that is read ahead and wanted saves the wait for it, but for its own fault. One that is not takes the reading, and the place of
//! a page that may be wanted again, which then has to be waited for. From a hard disk reading ahead pays if one page in three is wanted;
//! from a file that the kernel has in memory, where a page takes little longer than a fault, only where nearly all are.
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Pages, wanted or not, after which it is judged, and half of which are counted from then on.
const JUDGED_PAGES: u32 = 256;
/// One window in so many is read ahead where that does not pay, so that it is seen when it would.
const PROBES: u32 = 16;
/// What a page costs that is read ahead for nothing, beside what follows from its having taken a place.
const WASTE_NS: u64 = 15_000;
/// Of the wait for a page, what is left where it was read ahead.
const HIT_NS: u64 = 8_000;
/// At least that much is thought to be saved.
const SAVED_MIN_NS: u64 = 500;
/// So many of the latest waits count, about.
const LATEST: u32 = 16;

/// What is known.
pub(super) struct Pays {
    /// Pages read ahead that were wanted, and that were dropped.
    wanted: AtomicU32,
    dropped: AtomicU32,
    /// What the latest waits for one page took, ns.
    wait_ns: AtomicU32,
    /// Reading ahead does not pay.
    is_off: AtomicU32,
    /// Windows that were not read since the last one that was.
    passed: AtomicU32,
}

impl Pays {
    /// Nothing is known: it pays.
    pub fn new() -> Pays {
        let zero = || AtomicU32::new(0);
        Pays { wanted: zero(), dropped: zero(), wait_ns: zero(), is_off: zero(), passed: zero() }
    }

    /// A page that was read ahead is wanted.
    pub fn wanted(&self) {
        self.wanted.fetch_add(1, Relaxed);
    }

    /// So many were not.
    pub fn dropped(&self, pages: u32) {
        self.dropped.fetch_add(pages, Relaxed);
        self.judge();
    }

    /// A page that was not read ahead was waited for.
    pub fn waited(&self, ns: u64) {
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        let was = self.wait_ns.load(Relaxed);
        // Several threads may do so at once: one of them counts.
        let is = if was == 0 { ns } else { was - was / LATEST + ns / LATEST };
        self.wait_ns.store(is.max(1), Relaxed);
    }

    /// Whether a window is to be read ahead.
    pub fn allows(&self) -> bool {
        self.judge();
        if self.is_off.load(Relaxed) == 0 {
            return true;
        }
        let passed = self.passed.load(Relaxed) + 1;
        self.passed.store(passed % PROBES, Relaxed);
        passed == PROBES
    }

    fn judge(&self) {
        let (wanted, dropped) = (self.wanted.load(Relaxed), self.dropped.load(Relaxed));
        if wanted.saturating_add(dropped) < JUDGED_PAGES {
            return;
        }
        let wait_ns = u64::from(self.wait_ns.load(Relaxed));
        let saved_ns = wait_ns.saturating_sub(HIT_NS).max(SAVED_MIN_NS);
        let pays = u64::from(wanted) * saved_ns >= u64::from(dropped) * (WASTE_NS + wait_ns / 2);
        self.is_off.store(u32::from(!pays && !broken::is(Broken::AheadPays)), Relaxed);
        self.wanted.store(wanted / 2, Relaxed);
        self.dropped.store(dropped / 2, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How many of 160 windows are read where a page takes so long, and so many in a hundred of those read ahead are wanted.
    fn windows(pays: &Pays, wait_ns: u64, wanted: u32) -> usize {
        (0..100).for_each(|_| pays.waited(wait_ns));
        for _ in 0..20 {
            (0..wanted).for_each(|_| pays.wanted());
            pays.dropped(100 - wanted);
        }
        (0..160).filter(|_| pays.allows()).count()
    }

    #[test]
    fn the_longer_a_page_takes_the_fewer_need_to_be_wanted() {
        const PAGE_CACHE_NS: u64 = 9_000;
        const NVME_NS: u64 = 80_000;
        const DISK_NS: u64 = 8_000_000;
        let pays = Pays::new();
        assert!(pays.allows(), "nothing is known");
        for (wait_ns, least) in [(PAGE_CACHE_NS, 96), (NVME_NS, 44), (DISK_NS, 34)] {
            assert_eq!(windows(&pays, wait_ns, least), 160, "{wait_ns}");
            assert_eq!(windows(&pays, wait_ns, least - 3), 10, "{wait_ns}: one in sixteen, to see");
        }
        assert_eq!(windows(&pays, PAGE_CACHE_NS, 100), 160, "what is all wanted");
        assert_eq!(windows(&pays, DISK_NS, 0), 10);
    }
}
