//! Which parts of the managed range were ever touched, so that calls over large empty ranges skip them.
use crate::sync::{AtomicU64, Ordering::*};
use crate::table::{Reserve, Table};
use crate::units::PageNo;

/// Pages of one region: 2 MiB.
pub const REGION_PAGES: u32 = 512;

/// One bit a region: set before a page of it holds anything, never cleared.
pub struct Regions {
    bits: Table<AtomicU64>,
    used: AtomicU64,
}

impl Regions {
    /// Reserves the bits of a range of `pages` pages. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Regions> {
        let words = (pages / REGION_PAGES as usize).div_ceil(64) + 1;
        Some(Regions { bits: Table::new(from, words)?, used: AtomicU64::new(0) })
    }

    /// Marks a page's region as touched.
    pub fn mark(&self, page: PageNo) {
        let region = page.0 / REGION_PAGES;
        let word = &self.bits[region as usize / 64];
        let bit = 1 << (region % 64);
        if word.load(Relaxed) & bit == 0 && word.fetch_or(bit, SeqCst) & bit == 0 {
            self.used.fetch_add(1, Relaxed);
        }
    }

    /// How many regions were touched.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Calls `f` for the parts of a range that lie in touched regions, in order, each within one region.
    pub fn touched(&self, first: PageNo, count: u32, mut f: impl FnMut(PageNo, u32)) {
        let (mut page, end) = (first.0, first.0 + count);
        while page < end {
            let region = page / REGION_PAGES;
            let region_end = ((region + 1) * REGION_PAGES).min(end);
            let bits = self.bits[region as usize / 64].load(SeqCst) >> (region % 64);
            if bits == 0 {
                page = (region + 64 - region % 64).saturating_mul(REGION_PAGES).min(end);
                continue;
            }
            if bits & 1 != 0 {
                f(PageNo(page), region_end - page);
            }
            page = region_end;
        }
    }
}
