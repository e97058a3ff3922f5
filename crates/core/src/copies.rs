//! Copies that the kernel makes unseen. After a fork, parent and child share their pages until one of them writes; what the writer
//! gets then is new memory of which nobody tells, and a measurement finds out late: Python's children, which write to each object
//! that they read, had half of their limit again in a tenth of a second.
//!
//! So where a process that shares pages is found to be over its limit, all its pages are write-protected, once a fork. From then on
//! each write is a fault first, which makes room as any other does, and is counted until the next measurement knows of it.
use crate::sync::{AtomicBool, AtomicU64, Ordering::*};

/// What is known of the kernel's copies.
pub struct Copies {
    /// Pages are held: a write to one that was here at the last fork is noticed.
    held: AtomicBool,
    /// Pages that the kernel may have copied since the last measurement.
    allowed_pages: AtomicU64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { held: AtomicBool::new(false), allowed_pages: AtomicU64::new(0) }
    }
}

impl Copies {
    /// Whether pages are held since the last fork.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }
    /// All pages are shared anew.
    pub fn forked(&self) {
        self.held.store(false, Relaxed);
    }
    /// Pages that may have been copied since the last measurement.
    pub fn unmeasured_pages(&self) -> u64 {
        self.allowed_pages.load(Relaxed)
    }
    /// Measuring begins: what was copied up to now is found by it.
    pub fn begin_measurement(&self) {
        self.allowed_pages.store(0, Relaxed);
    }
    /// Holds them; whether they were held before.
    pub(crate) fn hold(&self) -> bool {
        self.held.swap(true, Relaxed)
    }
    /// So many may be written from now on.
    pub(crate) fn allowed(&self, pages: u64) {
        if self.is_held() {
            self.allowed_pages.fetch_add(pages, Relaxed);
        }
    }
}
