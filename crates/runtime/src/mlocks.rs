//! How much of its memory the program mlocked (`mlock` and its kin), and what it mlocks from now on.
use crate::process;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use outswap_core::units::PAGE_BYTES;

/// What the program mlocked.
#[derive(Default)]
pub struct Mlocks {
    pages: AtomicI64,
    on_fault_pages: AtomicI64,
    future: AtomicBool,
    future_on_fault: AtomicBool,
}

impl Mlocks {
    /// Pages that the program mlocked.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed).max(0) as u64
    }

    /// Pages that the program mlocked all at once, so that they are all there.
    pub fn present_pages(&self) -> u64 {
        (self.pages.load(Relaxed) - self.on_fault_pages.load(Relaxed)).max(0) as u64
    }

    /// Adds to the counts of mlocked pages.
    pub fn add(&self, pages: i64, on_fault: bool) {
        self.pages.fetch_add(pages, Relaxed);
        if on_fault {
            self.on_fault_pages.fetch_add(pages, Relaxed);
        }
    }

    /// Whether mappings made from now on are mlocked (`MCL_FUTURE`).
    pub fn future(&self) -> bool {
        self.future.load(Relaxed)
    }

    /// Whether that is to be as their pages are touched (`MCL_ONFAULT`).
    pub fn future_on_fault(&self) -> bool {
        self.future_on_fault.load(Relaxed)
    }

    /// Sets [`Mlocks::future`] and [`Mlocks::future_on_fault`].
    pub fn set_future(&self, on: bool, on_fault: bool) {
        self.future_on_fault.store(on_fault, Relaxed);
        self.future.store(on, Relaxed);
    }

    /// Whether the kernel's own rules would let the program lock anything.
    pub fn can_mlock(&self) -> bool {
        process::mlock_limit_bytes() > 0 || process::has_capability(process::CAP_IPC_LOCK)
    }

    /// Whether the kernel's own rules would let the program lock `count` more pages.
    pub fn may_mlock(&self, count: u32) -> bool {
        let limit = process::mlock_limit_bytes();
        if limit == u64::MAX || process::has_capability(process::CAP_IPC_LOCK) {
            return true;
        }
        limit > 0 && (self.pages() + count as u64) * PAGE_BYTES as u64 <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_as_it_is_touched_is_not_all_there() {
        let locks = Mlocks::default();
        locks.add(10, false);
        locks.add(5, true);
        assert_eq!((locks.pages(), locks.present_pages()), (15, 10));
        locks.add(-5, true);
        locks.add(-12, false);
        assert_eq!((locks.pages(), locks.present_pages()), (0, 0), "never less than nothing");
    }

    #[test]
    fn what_comes_is_locked_as_was_asked() {
        let locks = Mlocks::default();
        assert!(!locks.future());
        locks.set_future(true, true);
        assert!(locks.future() && locks.future_on_fault());
        locks.set_future(true, false);
        assert!(locks.future() && !locks.future_on_fault());
    }
}
