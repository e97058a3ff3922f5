//! Copies that the kernel makes unseen. After a fork, parent and child share their pages until one of them writes; what the writer
//! gets then is new memory of which nobody tells, and a measurement finds out late: Python's children, which write to each object
//! that they read, had half of their limit again in a tenth of a second.
//!
//! So where a process that shares pages is found to be over its limit, all its pages are write-protected, once a fork. From then on
//! each write to a page that is still shared is a fault first, which makes room as any other does, and is counted until the next
//! measurement knows of it. Pages that are not shared any more are given back by runs, at the first write to one of them.
//!
//! And a page that leaves while others have it frees nothing, though this process has the less: what it was charged with is for them to be
//! charged with, who know nothing of it. Until the next measurement it is counted here.
//!
//! What a measurement then finds of either is this process's part alone. The others' part, taken for as much, counts until the measurement
//! after it: by then they have measured, too.
use crate::broken::{self, Broken};
use crate::sync::{AtomicBool, AtomicU64, Ordering::*};

/// What is known of the kernel's copies.
pub struct Copies {
    /// Pages are held: a write to one that was here at the last fork is noticed.
    held: AtomicBool,
    /// Pages may be shared: there was a fork.
    shared: AtomicBool,
    /// Pages that the kernel may have copied since the last measurement.
    allowed_pages: AtomicU64,
    /// Pages that have left since the last measurement, and that others have still.
    left_pages: AtomicU64,
    /// The others' part of what was so before the last measurement.
    before_pages: AtomicU64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            held: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            allowed_pages: AtomicU64::new(0),
            left_pages: AtomicU64::new(0),
            before_pages: AtomicU64::new(0),
        }
    }
}

impl Copies {
    /// Whether pages are held since the last fork.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }
    /// All pages are shared anew. What a parent's pages have come to is none of its child's.
    pub fn forked(&self, is_child: bool) {
        self.held.store(false, Relaxed);
        self.shared.store(true, Relaxed);
        if is_child {
            [&self.allowed_pages, &self.left_pages, &self.before_pages]
                .iter()
                .for_each(|pages| pages.store(0, Relaxed));
        }
    }
    /// Whether pages may be shared.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }
    /// Pages that may have been copied since the last measurement.
    pub fn unmeasured_pages(&self) -> u64 {
        self.allowed_pages.load(Relaxed)
    }
    /// Measuring begins: what was copied up to now is found by it.
    pub fn begin_measurement(&self) {
        let seen = self.allowed_pages.swap(0, Relaxed) + self.left_pages.swap(0, Relaxed);
        self.before_pages.store(seen / 2, Relaxed);
    }
    /// Pages that others have, and perhaps do not know of: what left while they had it, and what became theirs alone before the last
    /// measurement.
    pub fn others_pages(&self) -> u64 {
        self.left_pages.load(Relaxed) + self.before_pages.load(Relaxed)
    }
    /// So many have left that others have.
    pub(crate) fn left(&self, pages: u64) {
        if !broken::is(Broken::LeftIsFree) {
            self.left_pages.fetch_add(pages, Relaxed);
        }
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
