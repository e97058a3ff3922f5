//! Pins: page ranges that a system call is using.
//!
//! A caller publishes its ranges, then makes sure that the pages are resident. Reclaim marks pages busy, then looks at
//! the pins. With sequentially consistent stores and loads on both sides one of the two always sees the other:
//! either the caller finds the page busy and waits, or reclaim finds the range and lets the page be.
//!
//! A call with more ranges than its pin holds links further records to it. The code that ends a call clears the pin's owner
//! word and nothing else, perhaps long after; its records are free from that instant, because each names the acquisition that
//! it belongs to: the pin, and the pin's serial number then.
//!
//! Threads in the midst of their own code, who may be interrupted and never come back, take *direct* pins: a few, so that few can
//! be lost that way, named not by a thread's id, which would have to be asked for, but by any number that tells threads apart.
use crate::mask::Mask;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{BLOCK_PAGES, BlockNo, PageNo};

/// Ranges that one pin, and one record linked to it, can publish.
pub const RANGES: usize = if cfg!(loom) { 2 } else { 14 };

/// Direct pins: as many calls as can be in progress that were made without entering the runtime, each of which may wait for long.
pub const DIRECT: usize = if cfg!(loom) { 1 } else { 512 };
/// So many may be taken at first, and more of them from [`Pins::allow_direct`] on.
pub const DIRECT_FIRST: usize = if cfg!(loom) { 1 } else { 64 };

/// The ranges of one call in progress.
#[repr(C, align(128))]
pub struct Pin {
    /// 0: free. Otherwise the thread that uses it. Cleared by the code that ends the call.
    pub owner: AtomicU32,
    /// How often the pin was taken.
    serial: AtomicU32,
    /// The record linked last, plus 1; 0 for none. Used by the owner only.
    last: AtomicU32,
    reserved: AtomicU32,
    ranges: Ranges,
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Pin {}

/// More ranges of a call.
#[repr(C, align(128))]
struct More {
    /// Slot plus 1, and its serial number: free as soon as that acquisition is over.
    link: AtomicU64,
    reserved: AtomicU64,
    ranges: Ranges,
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for More {}

/// First page and page count, packed, of each range; 0 for none. Filled from the first on, and never emptied while in use.
#[repr(C)]
struct Ranges([AtomicU64; RANGES]);

/// All pins, and records that can be linked to those that are not direct, as many as these.
pub struct Pins {
    /// The direct ones come last.
    pins: Table<Pin>,
    more: Table<More>,
    /// No pin at or above this was ever used.
    high_water: AtomicUsize,
    /// How often a record was taken (upper half); no record at or above the lower half is in use.
    more_high: AtomicU64,
    /// The direct pins that were ever used, as bits.
    direct_used: [AtomicU64; DIRECT.div_ceil(64)],
    /// How many of them may be taken.
    direct_allowed: AtomicUsize,
}

/// Where, of so many direct pins, a thread looks for one at its n-th try. Numbers that tell threads apart often differ by multiples of a page or a
/// stack, and those who wait for long have taken their places when there were fewer: so each try is anywhere. (The mixing function is the last
/// part of MurmurHash3, by Austin Appleby.)
fn place(who: u32, n: u32, of: usize) -> usize {
    let mut mixed = who.wrapping_add(n.wrapping_mul(0x9e37_79b9));
    mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    ((u64::from(mixed ^ (mixed >> 16)) * of as u64) >> 32) as usize
}

fn pack(first: u64, end: u64) -> u64 {
    first << 32 | (end - first)
}
fn unpack(range: u64) -> (u64, u64) {
    (range >> 32, (range >> 32) + (range & 0xffff_ffff))
}

impl Ranges {
    fn clear(&self) {
        self.0.iter().for_each(|range| range.store(0, Relaxed));
    }

    /// Adds a range: where it overlaps or touches one that is there, that one grows. False where there is no room.
    fn add(&self, first: u64, end: u64) -> bool {
        for range in &self.0 {
            let old = range.load(Relaxed);
            if old == 0 {
                range.store(pack(first, end), SeqCst);
                return true;
            }
            let (from, to) = unpack(old);
            if first <= to && from <= end {
                if first < from || to < end {
                    range.store(pack(first.min(from), end.max(to)), SeqCst);
                }
                return true;
            }
        }
        false
    }

    /// Lets the nearest range grow over a new one and what lies between.
    fn join(&self, first: u64, end: u64) {
        let joined = |range: &AtomicU64| {
            let (from, to) = unpack(range.load(Relaxed));
            (first.min(from), end.max(to))
        };
        let span = |range: &&AtomicU64| {
            let (from, to) = joined(range);
            to - from
        };
        if let Some(nearest) = self.0.iter().min_by_key(span) {
            let (from, to) = joined(nearest);
            nearest.store(pack(from, to), SeqCst);
        }
    }

    /// Whether any of the ranges has pages from `start` to `end`.
    fn overlap(&self, start: u64, end: u64) -> bool {
        let used = self.0.iter().map(|range| range.load(SeqCst)).take_while(|range| *range != 0);
        used.map(unpack).any(|(first, last)| first.max(start) < last.min(end))
    }

    /// The pages from `start` to `end`, no more than a mask has, that the ranges cover.
    fn mask(&self, start: u64, end: u64) -> Mask {
        let mut mask = Mask::EMPTY;
        for range in &self.0 {
            let range = range.load(SeqCst);
            if range == 0 {
                break;
            }
            let (first, last) = unpack(range);
            let (from, to) = (first.max(start), last.min(end));
            if from < to {
                mask |= Mask::range((from - start) as usize, (to - from) as usize);
            }
        }
        mask
    }
}

impl Pins {
    /// Reserves `len` pins, and the direct ones, whose numbers come after them.
    pub fn new(from: &impl Reserve, len: usize) -> Option<Pins> {
        Some(Pins {
            pins: Table::new(from, len + DIRECT)?,
            more: Table::new(from, len)?,
            high_water: AtomicUsize::new(0),
            more_high: AtomicU64::new(0),
            direct_used: core::array::from_fn(|_| AtomicU64::new(0)),
            direct_allowed: AtomicUsize::new(DIRECT_FIRST),
        })
    }

    /// The number of the first direct pin.
    fn direct_first(&self) -> usize {
        self.more.len()
    }

    /// Takes a direct pin for the thread that `who` (not 0) stands for. `None` where it has one already, in code that it was
    /// interrupted in or has left for good, or where there is none.
    pub fn acquire_direct(&self, who: u32) -> Option<usize> {
        /// Looked at before giving up: others are somebody else's to look at first.
        const TRIES: u32 = 16;
        let allowed = self.direct_allowed.load(Acquire);
        for at in (0..TRIES).map(|i| place(who, i, allowed)) {
            let number = self.direct_first() + at;
            let pin = &self.pins[number];
            match pin.owner.load(Relaxed) {
                0 => {
                    // First: a pin that is taken is looked for among these alone.
                    let (used, bit) = (&self.direct_used[at / 64], 1 << (at % 64));
                    if used.load(Relaxed) & bit == 0 {
                        used.fetch_or(bit, SeqCst);
                    }
                    if pin.owner.compare_exchange(0, who, SeqCst, Relaxed).is_ok() {
                        pin.ranges.clear();
                        return Some(number);
                    }
                }
                owner if owner == who => return None,
                _ => {}
            }
        }
        None
    }

    /// How many direct pins may be taken.
    pub fn direct_allowed(&self) -> usize {
        self.direct_allowed.load(Acquire)
    }

    /// Lets some more direct pins be taken, of the first `count`: others may let some be taken at the same time. A thread that has left one
    /// behind may take another from then on.
    pub fn allow_direct(&self, count: usize) {
        let more = self.direct_allowed() + DIRECT_FIRST;
        self.direct_allowed.fetch_max(more.min(count).min(DIRECT), AcqRel);
    }

    /// Publishes one more range of a direct pin. False where it has room for no more.
    #[must_use]
    pub fn publish_direct(&self, pin: usize, first: PageNo, count: u32) -> bool {
        let added = self.pins[pin].ranges.add(first.0 as u64, first.0 as u64 + count as u64);
        fence(SeqCst);
        added
    }

    /// Frees those direct pins of whose owner `is_gone` says so.
    pub fn release_direct(&self, is_gone: impl Fn(u32) -> bool) {
        for pin in self.direct_ever_used() {
            let owner = pin.owner.load(SeqCst);
            if owner != 0 && is_gone(owner) {
                // Unless it ends just now, and another begins.
                let _ = pin.owner.compare_exchange(owner, 0, AcqRel, Relaxed);
            }
        }
    }

    /// The direct pins that were ever taken, or are about to be. The others' memory is not looked at: in a forked child each page of it would be
    /// a page fault.
    fn direct_ever_used(&self) -> impl Iterator<Item = &Pin> {
        self.direct_used.iter().enumerate().flat_map(move |(i, used)| {
            let mut left = used.load(SeqCst);
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(&self.pins[self.direct_first() + i * 64 + bit])
            })
        })
    }

    /// Takes a free pin for `owner` (not 0), of those below a number; `None` when all are in use.
    pub fn acquire(&self, owner: u32, below: usize) -> Option<usize> {
        for (i, pin) in self.pins[..self.direct_first().min(below)].iter().enumerate() {
            if pin.owner.load(Relaxed) != 0 {
                continue;
            }
            // First: who takes it may be killed at any instruction, and those who look for the dead look no higher.
            if self.high_water.load(Relaxed) <= i {
                self.high_water.fetch_max(i + 1, SeqCst);
            }
            if pin.owner.compare_exchange(0, owner, SeqCst, Relaxed).is_ok() {
                // Before this, records of the acquisition before look as if they were in use again, which harms nobody.
                pin.serial.fetch_add(1, SeqCst);
                pin.last.store(0, Relaxed);
                pin.ranges.clear();
                return Some(i);
            }
        }
        None
    }

    /// Publishes one more range of a pin. Where no record can be linked, the range joins the nearest one of the pin, which
    /// then also covers what lies between.
    pub fn publish(&self, pin: usize, first: PageNo, count: u32) {
        let (first, end) = (first.0 as u64, first.0 as u64 + count as u64);
        let it = &self.pins[pin];
        let last = || self.more.get((it.last.load(Relaxed) as usize).wrapping_sub(1));
        let added = it.ranges.add(first, end)
            || last().is_some_and(|more| more.ranges.add(first, end))
            || self.link(pin) && last().is_some_and(|more| more.ranges.add(first, end));
        if !added {
            it.ranges.join(first, end);
        }
        fence(SeqCst);
    }

    /// Links a free record to a pin.
    fn link(&self, pin: usize) -> bool {
        let it = &self.pins[pin];
        let mine = (pin as u64 + 1) << 32 | it.serial.load(Relaxed) as u64;
        for (i, more) in self.more.iter().enumerate() {
            let seen = more.link.load(SeqCst);
            // What is over stays over: the link is as it was seen only as long as nobody took the record.
            if self.is_live(seen) || more.link.compare_exchange(seen, mine, SeqCst, Relaxed).is_err() {
                continue;
            }
            more.ranges.clear();
            let mut high = self.more_high.load(SeqCst);
            loop {
                let raised = (high >> 32).wrapping_add(1) << 32 | (high & 0xffff_ffff).max(i as u64 + 1);
                match self.more_high.compare_exchange(high, raised, SeqCst, SeqCst) {
                    Ok(_) => break,
                    Err(now) => high = now,
                }
            }
            it.last.store(i as u32 + 1, Relaxed);
            return true;
        }
        false
    }

    /// Whether the acquisition that a link names is not over.
    fn is_live(&self, link: u64) -> bool {
        let Some(it) = self.pins.get((link >> 32).wrapping_sub(1) as usize) else { return false };
        it.owner.load(SeqCst) != 0 && it.serial.load(SeqCst) == link as u32
    }

    /// Frees a pin.
    pub fn release(&self, pin: usize) {
        self.pins[pin].owner.store(0, Release);
    }

    /// Address of a pin's owner word, for code that clears it without calling.
    pub fn owner_word(&self, pin: usize) -> &AtomicU32 {
        &self.pins[pin].owner
    }

    /// Owners of all pins in use, with their numbers; not of the direct ones.
    pub fn in_use(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let high = self.high_water.load(SeqCst);
        self.pins[..high].iter().enumerate().map(|(i, s)| (i, s.owner.load(SeqCst))).filter(|&(_, o)| o != 0)
    }

    /// Who but `except` has a pin that names pages of a range. Direct pins are not looked at.
    pub fn users(&self, first: PageNo, count: u32, except: u32) -> Option<u32> {
        let (start, end) = (first.0 as u64, first.0 as u64 + count as u64);
        let others = |owner: u32| owner != 0 && owner != except;
        let pin = self.in_use().find(|&(pin, owner)| others(owner) && self.pins[pin].ranges.overlap(start, end));
        let more = || {
            let live =
                self.more.iter().filter(|more| more.ranges.overlap(start, end) && self.is_live(more.link.load(SeqCst)));
            let owner = |more: &More| self.pins[(more.link.load(SeqCst) >> 32) as usize - 1].owner.load(SeqCst);
            live.map(owner).find(|&owner| others(owner))
        };
        pin.map(|(_, owner)| owner).or_else(more)
    }

    /// The pages of a block that some call is using.
    pub fn mask(&self, block: BlockNo) -> Mask {
        let (start, end) = (block.first_page().0 as u64, block.first_page().0 as u64 + BLOCK_PAGES as u64);
        let mut mask = Mask::EMPTY;
        for pin in &self.pins[..self.high_water.load(SeqCst)] {
            if pin.owner.load(SeqCst) != 0 {
                mask |= pin.ranges.mask(start, end);
            }
        }
        for pin in self.direct_ever_used() {
            if pin.owner.load(SeqCst) != 0 {
                mask |= pin.ranges.mask(start, end);
            }
        }
        let seen = self.more_high.load(SeqCst);
        let high = seen & 0xffff_ffff;
        let mut used = 0;
        for (i, more) in self.more[..high as usize].iter().enumerate() {
            if self.is_live(more.link.load(SeqCst)) {
                mask |= more.ranges.mask(start, end);
                used = i as u64 + 1;
            }
        }
        if used < high {
            // Who has taken a record since has changed the upper half, or raises the lower one after this.
            let _ = self.more_high.compare_exchange(seen, seen & !0xffff_ffff | used, SeqCst, Relaxed);
        }
        mask
    }
}
