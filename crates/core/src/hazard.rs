//! Hazards: page ranges that a system call is using.
//!
//! A caller publishes its ranges, then makes sure that the pages are resident. Reclaim marks pages busy, then looks at
//! the hazards. With sequentially consistent stores and loads on both sides one of the two always sees the other:
//! either the caller finds the page busy and waits, or reclaim finds the range and lets the page be.
use crate::memory::{Reserve, Table, Zeroed};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use crate::units::{BLOCK_PAGES, BlockNo, PageNo};

/// Ranges that one slot can publish; a call with more has neighbours merged.
pub const RANGES: usize = 8;

/// The ranges of one call in progress.
#[repr(C, align(128))]
pub struct Hazard {
    /// 0: free. Otherwise the thread that uses it. Cleared by the code that ends the call.
    pub owner: AtomicU32,
    reserved: AtomicU32,
    /// First page and page count, packed; 0 for none.
    ranges: [AtomicU64; RANGES],
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Hazard {}

/// All hazard slots.
pub struct Hazards {
    slots: Table<Hazard>,
    /// No slot at or above this was ever used.
    high_water: AtomicUsize,
}

fn pack(first: PageNo, count: u32) -> u64 {
    (first.0 as u64) << 32 | count as u64
}

impl Hazards {
    /// Reserves `len` slots.
    pub fn new(from: &impl Reserve, len: usize) -> Option<Hazards> {
        Some(Hazards { slots: Table::new(from, len)?, high_water: AtomicUsize::new(0) })
    }

    /// Takes a free slot for `owner` (not 0); `None` when all are in use.
    pub fn acquire(&self, owner: u32) -> Option<usize> {
        for (i, slot) in self.slots.iter().enumerate() {
            if slot.owner.load(Relaxed) == 0 && slot.owner.compare_exchange(0, owner, SeqCst, Relaxed).is_ok() {
                for range in &slot.ranges {
                    range.store(0, Relaxed);
                }
                self.high_water.fetch_max(i + 1, SeqCst);
                return Some(i);
            }
        }
        None
    }

    /// Publishes one more range of a slot. Where the slot is full, the range joins the nearest one, which then also
    /// covers what lies between.
    pub fn publish(&self, slot: usize, first: PageNo, count: u32) {
        let ranges = &self.slots[slot].ranges;
        let (mut best, mut best_span) = (0, u64::MAX);
        for (i, range) in ranges.iter().enumerate() {
            let old = range.load(Relaxed);
            if old == 0 {
                range.store(pack(first, count), SeqCst);
                fence(SeqCst);
                return;
            }
            let (start, end) = join(old, first, count);
            if end - start < best_span {
                (best, best_span) = (i, end - start);
            }
        }
        let (start, end) = join(ranges[best].load(Relaxed), first, count);
        ranges[best].store(pack(PageNo(start as u32), (end - start) as u32), SeqCst);
        fence(SeqCst);
    }

    /// Frees a slot.
    pub fn release(&self, slot: usize) {
        self.slots[slot].owner.store(0, Release);
    }

    /// Address of a slot's owner word, for code that clears it without calling.
    pub fn owner_word(&self, slot: usize) -> &AtomicU32 {
        &self.slots[slot].owner
    }

    /// Owners of all slots in use, with their numbers.
    pub fn in_use(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let high = self.high_water.load(SeqCst);
        self.slots[..high].iter().enumerate().map(|(i, s)| (i, s.owner.load(SeqCst))).filter(|&(_, o)| o != 0)
    }

    /// The pages of a block that some call is using, as a mask.
    pub fn mask(&self, block: BlockNo) -> u64 {
        let (start, end) = (block.first_page().0 as u64, block.first_page().0 as u64 + BLOCK_PAGES as u64);
        let mut mask = 0;
        for slot in &self.slots[..self.high_water.load(SeqCst)] {
            if slot.owner.load(SeqCst) == 0 {
                continue;
            }
            for range in &slot.ranges {
                let range = range.load(SeqCst);
                let (first, last) = (range >> 32, (range >> 32) + (range & 0xffff_ffff));
                let (from, to) = (first.max(start), last.min(end));
                if from < to {
                    mask |= mask_of((from - start) as usize, (to - from) as usize);
                }
            }
        }
        mask
    }
}

fn join(old: u64, first: PageNo, count: u32) -> (u64, u64) {
    let (start, end) = (old >> 32, (old >> 32) + (old & 0xffff_ffff));
    (start.min(first.0 as u64), end.max(first.0 as u64 + count as u64))
}

/// A mask of `count` bits from bit `first` on.
pub fn mask_of(first: usize, count: usize) -> u64 {
    if count == 0 { 0 } else { (u64::MAX >> (64 - count)) << first }
}
