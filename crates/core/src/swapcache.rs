//! The swap cache: pages in memory that have a slot, which may still hold their content.
//!
//! A page's slot stands with the page: in its word while it is resident, with its frame while it is isolated. So no index is
//! shared, and putting a page in or taking it out locks nothing. What is kept here is how many there are, and may be: such a
//! page costs memory twice.
use crate::sync::{AtomicI64, Ordering::Relaxed};

/// How many pages are in the swap cache.
pub struct SwapCache {
    pages: AtomicI64,
    max: AtomicI64,
}

impl Default for SwapCache {
    fn default() -> SwapCache {
        SwapCache { pages: AtomicI64::new(0), max: AtomicI64::new(i64::MAX) }
    }
}

impl SwapCache {
    /// Pages in it.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed).max(0) as u64
    }
    /// Sets how many there may be. Pages that are in it stay until they change or are evicted.
    pub fn set_max_pages(&self, pages: u64) {
        self.max.store(pages.min(i64::MAX as u64) as i64, Relaxed);
    }
    /// Counts a page that comes in and keeps its slot. False where there are enough: its slot is to be put.
    #[must_use]
    pub fn enter(&self) -> bool {
        let room = self.pages.load(Relaxed) < self.max.load(Relaxed);
        if room {
            self.pages.fetch_add(1, Relaxed);
        }
        room
    }
    /// Whether so many more may come in, as of now.
    pub fn has_room(&self, pages: usize) -> bool {
        self.pages.load(Relaxed) + pages as i64 <= self.max.load(Relaxed)
    }
    /// Counts a page out.
    pub fn leave(&self) {
        self.pages.fetch_sub(1, Relaxed);
    }
}
