//! The swap cache: pages in memory that have a slot, which may still hold their content.
//!
//! A page's slot stands with the page: in its word while it is resident, with its frame while it is isolated. So no index is
//! shared, and putting a page in or taking it out locks nothing. What is kept here is how many there are; and how many there may
//! be whose slot takes room that is scarce, memory above all: such a page costs it twice. One whose slot is in a file
//! with room costs nothing, and there may be any number of these.
use crate::sync::{AtomicI64, Ordering::Relaxed};

/// How many pages are in the swap cache.
pub struct SwapCache {
    pages: AtomicI64,
    /// Those of them with a slot whose room is scarce.
    scarce: AtomicI64,
    max: AtomicI64,
}

impl Default for SwapCache {
    fn default() -> SwapCache {
        SwapCache { pages: AtomicI64::new(0), scarce: AtomicI64::new(0), max: AtomicI64::new(i64::MAX) }
    }
}

impl SwapCache {
    /// Pages in it.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed).max(0) as u64
    }
    /// Those of them that came in with a slot whose room was scarce.
    pub fn scarce_pages(&self) -> u64 {
        self.scarce.load(Relaxed).max(0) as u64
    }
    /// Sets how many of these there may be. Pages that are in it stay until they change, are evicted, or come back from a frame.
    pub fn set_max_pages(&self, pages: u64) {
        self.max.store(pages.min(i64::MAX as u64) as i64, Relaxed);
    }
    /// Counts a page that comes in and keeps its slot. False where the slot is scarce and there are enough: it is to be put.
    #[must_use]
    pub fn enter(&self, scarce: bool) -> bool {
        if scarce && !self.has_room(1) {
            return false;
        }
        self.scarce.fetch_add(i64::from(scarce), Relaxed);
        self.pages.fetch_add(1, Relaxed);
        true
    }
    /// Whether so many more may come in with scarce slots, as of now.
    pub fn has_room(&self, pages: usize) -> bool {
        self.scarce.load(Relaxed).saturating_add(pages as i64) <= self.max.load(Relaxed)
    }
    /// Counts a page out, which was counted in as it is said here.
    pub fn leave(&self, scarce: bool) {
        self.scarce.fetch_sub(i64::from(scarce), Relaxed);
        self.pages.fetch_sub(1, Relaxed);
    }
}
