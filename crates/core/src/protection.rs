//! Write protection: which pages come in so that the first write is noticed, and what that says of them later.
//!
//! Noticing a write costs a fault. So a page that was written after it had come in to be read comes in writable the next few
//! times; and where many are written, all do for a while.
//!
//! A process that was forked off has its pages from its parent, without the protection. What is said of them is of another
//! *epoch*, and does not count.
use crate::broken::{self, Broken};
use crate::page::{EPOCH_MAX, Word};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// What wants a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes, or may.
    Write,
}

/// Protected pages after which it is judged whether protecting pays.
const TRIAL_PAGES: u32 = 128;
/// One in so many may be written: noticing a write costs several times what knowing a page to be clean saves.
const WRITTEN_SHARE: u32 = 8;
/// Pages that come in writable after a trial that did not pay: at first, and at most.
const REST_PAGES: u32 = 512;
const REST_MAX_PAGES: u32 = 1 << 15;

/// How pages are known to be unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// By write protection, where the fault source has it, else by their hashes.
    Protect,
    /// By their hashes alone.
    Hash,
    /// Not at all.
    Off,
}

impl Kind {
    /// All, with the names that a user gives.
    pub const ALL: &[(&str, Kind)] = &[("protect", Kind::Protect), ("hash", Kind::Hash), ("off", Kind::Off)];
    /// What is used where nobody asks for another.
    pub const DEFAULT: Kind = Kind::Protect;

    /// What it does, in words.
    pub const fn about(self) -> &'static str {
        match self {
            Kind::Protect => "pages that come in to be read are write-protected, where that pays; else by their hashes",
            Kind::Hash => "each page that goes is read and its hash compared",
            Kind::Off => "no page keeps its slot, and each that goes is stored again",
        }
    }
}

/// Whether pages come in write-protected.
pub struct Protection {
    enabled: bool,
    keeps_slots: bool,
    /// Which protection counts; 0 for none.
    epoch: AtomicU32,
    /// Pages of this trial that came in protected, and first writes since its start.
    protected_pages: AtomicU32,
    written_pages: AtomicU32,
    /// Pages that are to come in writable before the next trial, and how many it were the last time.
    rest_pages: AtomicU32,
    rested_pages: AtomicU32,
}

impl Protection {
    /// As asked.
    pub fn new(kind: Kind) -> Protection {
        let enabled = kind == Kind::Protect;
        Protection {
            enabled,
            keeps_slots: kind != Kind::Off,
            epoch: AtomicU32::new(enabled as u32),
            protected_pages: AtomicU32::new(0),
            written_pages: AtomicU32::new(0),
            rest_pages: AtomicU32::new(0),
            rested_pages: AtomicU32::new(0),
        }
    }

    /// Whether pages that come in may keep their slot, so that it can be known of them that they did not change.
    pub fn keeps_slots(&self) -> bool {
        self.keeps_slots || broken::is(Broken::OffKeeps)
    }

    /// Which protection counts now; 0 for none.
    pub fn epoch(&self) -> u64 {
        u64::from(self.epoch.load(Relaxed))
    }

    /// This process was forked off: what is known of its pages' protection is its parent's.
    pub fn forked(&self) {
        let epoch = self.epoch.load(Relaxed);
        // There is a last one.
        let next = if epoch == 0 || u64::from(epoch) == EPOCH_MAX { 0 } else { epoch + 1 };
        self.epoch.store(next, Relaxed);
    }

    /// Whether a resident page has not been written since it came in: what its slot holds is its content.
    pub fn is_known_clean(&self, word: Word) -> bool {
        self.is_epoch_of(word) && word.slot().is_some()
    }

    /// Whether a page was write-protected while it was in the program's reach, and not written.
    pub fn is_epoch_of(&self, word: Word) -> bool {
        word.protected() != 0 && word.protected() == self.epoch()
    }

    /// Whether so many pages that come in now are to be protected.
    pub fn wants(&self, pages: u32) -> bool {
        if !self.enabled || self.epoch.load(Relaxed) == 0 {
            return false;
        }
        let rest = self.rest_pages.load(Relaxed);
        if rest > 0 {
            self.rest_pages.store(rest.saturating_sub(pages), Relaxed);
        }
        rest == 0
    }

    /// So many pages have come in protected.
    pub fn protected(&self, pages: u32) {
        let all = self.protected_pages.fetch_add(pages, Relaxed) + pages;
        if all < TRIAL_PAGES {
            return;
        }
        // Threads that end a trial at once may count it twice, which costs a rest, or a trial more.
        self.protected_pages.store(0, Relaxed);
        let written = self.written_pages.swap(0, Relaxed);
        let rest = if written > all / WRITTEN_SHARE {
            (self.rested_pages.load(Relaxed) * 2).clamp(REST_PAGES, REST_MAX_PAGES)
        } else {
            0
        };
        self.rested_pages.store(rest, Relaxed);
        self.rest_pages.store(rest, Relaxed);
    }

    /// So many protected pages were written.
    pub fn written(&self, pages: u32) {
        self.written_pages.fetch_add(pages, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn protecting_rests_where_it_does_not_pay_and_longer_each_time() {
        let protection = Protection::new(Kind::Protect);
        let mut rests = Vec::new();
        for _ in 0..9 {
            assert!(protection.wants(1));
            protection.written(TRIAL_PAGES / WRITTEN_SHARE + 1);
            protection.protected(TRIAL_PAGES);
            rests.push((0..).take_while(|_| !protection.wants(1)).count() as u32);
        }
        assert_eq!(rests[..3], [REST_PAGES, REST_PAGES * 2, REST_PAGES * 4]);
        assert_eq!(rests[8], REST_MAX_PAGES);
        // Few writes: it pays, and all is forgotten.
        protection.written(TRIAL_PAGES / WRITTEN_SHARE);
        protection.protected(TRIAL_PAGES);
        assert!(protection.wants(1));
        protection.written(TRIAL_PAGES);
        protection.protected(TRIAL_PAGES);
        assert_eq!((0..).take_while(|_| !protection.wants(1)).count() as u32, REST_PAGES);
    }

    #[test]
    fn each_fork_has_an_epoch_up_to_the_last() {
        let protection = Protection::new(Kind::Protect);
        let mut seen = std::collections::BTreeSet::new();
        while protection.epoch() != 0 {
            assert!(protection.wants(1) && seen.insert(protection.epoch()));
            protection.forked();
        }
        assert_eq!(seen.len() as u64, EPOCH_MAX);
        protection.forked();
        assert!(protection.epoch() == 0 && !protection.wants(1));
        assert!(!Protection::new(Kind::Hash).wants(1));
    }
}
