//! Segments: which are taken, what lives in them, and which one is taken, freed or cleaned next.
use super::address::Segment;
use super::files::Files;
use super::keys::Keys;
use super::rest::Rest;
use super::users::Table;
use super::volume::CLOSING;
use crate::broken::{self, Broken};
use crate::io::FileIo;
use crate::limits::{
    CLEAN_FREED_SLOTS, CLEAN_MIN_SEGMENTS, CLEANER_RESERVE_MIN_SEGMENTS, MAX_KEYS, MAX_VOLUMES, REAP_NS, RETRY_NS,
    SEGMENT_BYTES, TEND_SEGMENTS,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};
use outswap_core::store::StoreError;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::Result;

/// Never used.
const UNUSED: u32 = 0;
const EMPTY: u32 = 1;
/// Being taken or freed.
const BUSY: u32 = 2;
const USED: u32 = 3;
/// This process does not need it any more; others may.
const LEFT: u32 = 4;
const STATE: u32 = 7;
/// A child was forked that needs the segment.
pub(super) const SHARED: u32 = 1 << 3;
/// It cannot be known when the segment may be freed: never.
pub(super) const PINNED: u32 = 1 << 4;
const KEY_SHIFT: u32 = 16;

const _: () = assert!(MAX_KEYS <= 1 << (u32::BITS - KEY_SHIFT) && (STATE | SHARED | PINNED) >> KEY_SHIFT == 0);

/// What this process knows of a segment. Private memory.
#[repr(C)]
pub(super) struct Usage {
    /// Live slots, and one more while a buffer holds the segment or the cleaner reads it.
    pub live: AtomicU32,
    /// Slots ever written.
    pub written: AtomicU32,
    /// Bytes ever written.
    pub filled: AtomicU32,
    /// State and flags (both meaningful in this process's own file only), number of the key.
    pub bits: AtomicU32,
}

impl Usage {
    /// The number of the key that it is sealed under.
    pub fn key(&self) -> u16 {
        (self.bits.load(Acquire) >> KEY_SHIFT) as u16
    }

    fn state(&self) -> u32 {
        self.bits.load(Acquire) & STATE
    }

    /// About how many bytes of the segment are live.
    fn live_bytes(&self) -> u64 {
        let (live, written) = (self.live.load(Relaxed) as u64, self.written.load(Relaxed).max(1) as u64);
        self.filled.load(Relaxed) as u64 * live.min(written) / written
    }
}

/// Bytes of the table of segments for files of so many segments.
pub(super) fn table_bytes(segments: usize) -> usize {
    segments * MAX_VOLUMES * size_of::<Usage>()
}

/// The segments of all files of a process, with the keys that they are sealed under.
pub(crate) struct Segments {
    pub files: Files,
    pub keys: Keys,
    usage: usize,
    max_segments: u32,
    /// Whether `max_segments` is a limit for the family, not the size of the tables.
    bounded: bool,
    /// After a search for dead processes.
    pub(super) reaping: Rest,
    /// After one for what was left.
    pub(super) tending: Rest,
    /// Half of what the files may have is used, or a segment was refused.
    tight: AtomicBool,
    // Of the own file: all but `left_seen` counts segments.
    scan: AtomicU32,
    in_use: AtomicU32,
    empty: AtomicU32,
    left: AtomicU32,
    left_seen: AtomicU32,
    /// Live bytes in it.
    own_bytes: AtomicU64,
    clean_wanted: AtomicBool,
    /// After cleaning that won nothing.
    pub(super) cleaning: Rest,
    freed_slots: AtomicU64,
    freed_at_rest: AtomicU64,
}

impl Segments {
    /// Sets up `usage`, a zeroed table of [`table_bytes`], for files of which all in the family together may have `max_bytes`
    /// (0: no limit). Files and keys are to be set before.
    pub(super) fn set(&mut self, usage: usize, max_bytes: u64) {
        self.usage = usage;
        self.bounded = max_bytes != 0;
        let count = self.files.segment_count() as u64;
        let max = if self.bounded { max_bytes / SEGMENT_BYTES as u64 } else { count };
        self.max_segments = max.min(count) as u32;
    }

    /// What this process knows of a segment.
    pub(super) fn usage(&self, segment: Segment) -> &Usage {
        let count = self.files.segment_count();
        debug_assert!(segment.volume() < MAX_VOLUMES && segment.number() < count);
        // SAFETY: the table has `count` entries for each file.
        unsafe { &*(self.usage as *const Usage).add(segment.volume() * count as usize + segment.number() as usize) }
    }

    /// The key of the segment at an offset.
    pub fn key_of(&self, offset: u64) -> u16 {
        self.usage(Segment::at(offset)).key()
    }

    /// Bytes of private tables that were touched.
    pub(super) fn touched_bytes(&self) -> u64 {
        let usage = |entries: u32| (entries as usize * size_of::<Usage>()).next_multiple_of(PAGE_BYTES) as u64;
        let tables = self.files.volumes.iter().map(|volume| usage(volume.bound.load(Relaxed))).sum::<u64>();
        tables + self.keys.touched_bytes()
    }

    /// Counts live bytes at an offset, or takes them off, where they are in this process's own file.
    pub fn count_own(&self, offset: u64, added_bytes: u64, removed_bytes: u64) {
        if self.files.is_own(Segment::at(offset)) {
            self.own_bytes.fetch_add(added_bytes.wrapping_sub(removed_bytes), Relaxed);
        }
    }

    // ---- the own file ----

    /// Opens a new file for this process, while it has one thread. False where that fails.
    pub(super) fn open_own<I: FileIo>(&self, io: &I) -> bool {
        self.files.open_own(|| self.try_open_own(io))
    }

    fn try_open_own<I: FileIo>(&self, io: &I) -> Result<()> {
        let index = self.files.vacant()?;
        self.clear_usage(index);
        self.files.create(io, index)?;
        self.forget_own();
        self.files.set_own(index);
        Ok(())
    }

    /// Puts off to make a new file, where that may be. The process has one thread.
    pub(super) fn put_off(&self) -> bool {
        if !self.files.may_put_off() {
            return false;
        }
        self.forget_own();
        self.files.put_off();
        true
    }

    /// What was counted is of the file that was written before.
    fn forget_own(&self) {
        for count in [&self.in_use, &self.empty, &self.left, &self.left_seen, &self.scan] {
            count.store(0, Relaxed);
        }
        self.own_bytes.store(0, Relaxed);
        self.clean_wanted.store(false, Relaxed);
        self.tight.store(false, Relaxed);
    }

    /// Forgets what a file that had this number before left in the table.
    fn clear_usage(&self, index: usize) {
        let used = self.files.volumes[index].bound.load(Acquire);
        for number in 0..used {
            let usage = self.usage(Segment::new(index, number));
            for word in [&usage.live, &usage.written, &usage.filled, &usage.bits] {
                word.store(0, Relaxed);
            }
        }
    }

    // ---- taking ----

    /// Segments in use of the own file.
    pub(super) fn own_segments(&self) -> u32 {
        self.in_use.load(Relaxed)
    }

    /// Tells the family how large the own file is.
    pub(super) fn publish(&self) {
        if let Some(own) = self.files.own_volume()
            && let Some(file) = (own.family.load(Relaxed) as usize).checked_sub(1)
        {
            self.files.family().set_size(file, self.in_use.load(Relaxed));
        }
    }

    /// Whether what the family uses, with one segment that was just added, is within the limit. Who does not clean leaves one
    /// to the cleaner, which may have one more: it could not empty any where that is lost, and it gives back what it takes.
    fn fits(&self, cleaning: bool, reap: bool) -> bool {
        if !self.bounded {
            return self.in_use.load(Relaxed) <= self.max_segments;
        }
        let max_segments = match self.max_segments {
            few @ 0..CLEANER_RESERVE_MIN_SEGMENTS => few,
            max if cleaning => max + 1,
            max => max - 1,
        };
        // Who is not counted gets nothing.
        let counted = self.files.own_volume().is_some_and(|own| own.family.load(Relaxed) != 0);
        counted && self.files.family().segments(reap.then(|| self.files.space.load(Relaxed))) <= max_segments as u64
    }

    /// Whether what is kept for the cleaner is free: a part of the limit, and a segment that can be written.
    pub(super) fn has_reserve<I: FileIo>(&self, io: &I) -> bool {
        self.fits(false, false) && self.files.own().is_none_or(|own| self.leaves_one(own, self.end_segment(io)))
    }

    /// The segments that can be written lie below this one.
    fn end_segment<I: FileIo>(&self, io: &I) -> u32 {
        (io.size_limit_bytes() / SEGMENT_BYTES as u64).min(self.files.segment_count() as u64) as u32
    }

    /// Whether a segment cannot be written, as the file may not become that long.
    pub(super) fn is_beyond<I: FileIo>(&self, io: &I, segment: Segment) -> bool {
        segment.number() >= self.end_segment(io)
    }

    /// Whether the own file has an empty segment that can be written.
    pub(super) fn has_room<I: FileIo>(&self, io: &I) -> bool {
        self.files.own().is_some_and(|own| self.has_empty(own, self.end_segment(io)))
    }

    fn has_empty(&self, own: usize, end: u32) -> bool {
        let is_empty = |number| self.usage(Segment::new(own, number)).state() == EMPTY;
        self.files.volumes[own].bound.load(Acquire) < end || self.empty.load(Acquire) > 0 && (0..end).any(is_empty)
    }

    /// Whether a file has an empty segment below the `end` of what can be written, or none need be kept for the cleaner.
    fn leaves_one(&self, own: usize, end: u32) -> bool {
        end < CLEANER_RESERVE_MIN_SEGMENTS || self.has_empty(own, end)
    }

    /// Whether half of what the files may have is used, or a segment was refused.
    pub(super) fn is_tight(&self) -> bool {
        self.tight.load(Relaxed)
    }

    /// Looks whether that much is used: from there on a swap counts as full that keeps what is in memory, too.
    fn look_for_tightness(&self) {
        let used = || self.files.family().segments(None);
        self.tight.store(self.bounded && used() * 2 > self.max_segments as u64, Relaxed);
    }

    /// Takes an empty segment for a buffer. What is kept for the cleaner is for who is `cleaning`.
    pub(super) fn claim<I: FileIo>(
        &self,
        io: &I,
        cleaning: bool,
        key: u16,
    ) -> core::result::Result<Segment, StoreError> {
        let mut reap = false;
        loop {
            self.in_use.fetch_add(1, AcqRel);
            self.publish();
            if self.fits(cleaning, reap)
                && let Some(segment) = self.find(io, cleaning)
            {
                self.take(segment, key);
                self.look_for_tightness();
                return Ok(segment);
            }
            self.in_use.fetch_sub(1, AcqRel);
            self.publish();
            self.tight.store(true, Relaxed);
            if reap || self.reaping.rests() {
                return Err(StoreError::Full);
            }
            reap = true;
            self.reaping.begin(REAP_NS);
            self.collect(io, true);
        }
    }

    /// As [`Segments::claim`], whatever the limit: for what was within it before. `None` where nothing can be written.
    pub(super) fn claim_unlimited<I: FileIo>(&self, io: &I) -> Option<Segment> {
        let key = self.keys.current_key()?;
        let segment = self.find_below(self.files.own()?, self.end_segment(io))?;
        self.in_use.fetch_add(1, AcqRel);
        self.publish();
        self.take(segment, key);
        Some(segment)
    }

    /// Makes a busy segment one that a buffer holds.
    fn take(&self, segment: Segment, key: u16) {
        let usage = self.usage(segment);
        usage.written.store(0, Relaxed);
        usage.filled.store(0, Relaxed);
        self.keys.hold(key);
        usage.bits.store(USED | (key as u32) << KEY_SHIFT, Release);
        usage.live.store(1, Release);
        self.files.volume(segment).live_segments.fetch_add(1, AcqRel);
        if self.in_use.load(Relaxed).saturating_sub(self.left.load(Relaxed)) > CLEAN_MIN_SEGMENTS {
            self.clean_wanted.store(true, Relaxed);
        }
    }

    /// Makes an empty segment of the own file busy. Who does not clean leaves one; who does, and finds none, has one that cannot be
    /// written: what it empties can, and takes what was moved in the end.
    fn find<I: FileIo>(&self, io: &I, cleaning: bool) -> Option<Segment> {
        let own = self.files.own()?;
        let end = self.end_segment(io);
        if cleaning {
            return self.find_below(own, end).or_else(|| self.find_below(own, self.files.segment_count()));
        }
        let segment = self.find_below(own, end)?;
        // Looked at afterwards: of two that take the last ones at the same time, one sees what the other has.
        fence(SeqCst);
        if !self.leaves_one(own, end) {
            self.usage(segment).bits.store(EMPTY, Release);
            self.empty.fetch_add(1, AcqRel);
            return None;
        }
        Some(segment)
    }

    /// Makes an empty segment of a file, below `end`, busy.
    fn find_below(&self, own: usize, end: u32) -> Option<Segment> {
        let volume = &self.files.volumes[own];
        let used = volume.bound.load(Acquire);
        if self.empty.load(Acquire) > 0 && used > 0 {
            let start = self.scan.load(Relaxed) % used;
            for i in 0..used {
                let number = (start + i) % used;
                let segment = Segment::new(own, number);
                let bits = &self.usage(segment).bits;
                if number < end
                    && bits.load(Relaxed) & STATE == EMPTY
                    && bits.compare_exchange(EMPTY, BUSY, AcqRel, Relaxed).is_ok()
                {
                    self.empty.fetch_sub(1, AcqRel);
                    self.scan.store(number + 1, Relaxed);
                    return Some(segment);
                }
            }
        }
        let number = volume.bound.fetch_update(AcqRel, Acquire, |next| (next < end).then_some(next + 1)).ok()?;
        let segment = Segment::new(own, number);
        debug_assert!(self.usage(segment).state() == UNUSED);
        self.usage(segment).bits.store(BUSY, Release);
        Some(segment)
    }

    // ---- freeing ----

    /// Takes `slots` live slots off a segment; the last one gives the segment up. Does file I/O: no locks held.
    pub fn release<I: FileIo>(&self, io: &I, segment: Segment, slots: u32) {
        self.freed_slots.fetch_add(slots as u64, Relaxed);
        let usage = self.usage(segment);
        if slots == 0 || usage.live.fetch_sub(slots, AcqRel) != slots {
            return;
        }
        self.keys.release(usage.key());
        let volume = self.files.volume(segment);
        if !self.files.is_own(segment) {
            volume.table.leave(segment.number(), volume.user.load(Relaxed) as usize);
            if volume.live_segments.fetch_sub(1, AcqRel) == 1 {
                volume.state.store(CLOSING, SeqCst);
                self.files.close_idle();
            }
            return;
        }
        volume.live_segments.fetch_sub(1, AcqRel);
        let bits = usage.bits.load(Acquire);
        if bits & PINNED == 0 {
            self.left.fetch_add(1, AcqRel);
        }
        usage.bits.store(bits & !STATE | LEFT, Release);
        self.free_left(io, segment);
        self.collect_if_told(io);
        self.tend_left(io);
    }

    /// Frees a segment of the own file that nobody needs any more.
    fn free_left<I: FileIo>(&self, io: &I, segment: Segment) -> bool {
        let usage = self.usage(segment);
        let bits = usage.bits.load(Acquire);
        let busy = bits & !STATE | BUSY;
        if bits & STATE != LEFT
            || bits & PINNED != 0
            || usage.bits.compare_exchange(bits, busy, AcqRel, Relaxed).is_err()
        {
            return false;
        }
        // Looked at only now that nobody else can free the segment and let it begin anew.
        let is_shared = bits & SHARED != 0 && self.files.volume(segment).table.is_shared(segment.number());
        if is_shared && !broken::is(Broken::SharedPunched) {
            usage.bits.store(bits, Release);
            return false;
        }
        if let Some(fd) = self.files.own_write_fd() {
            // Where the file system cannot do it, the blocks are overwritten by the next use.
            let _ = io.punch(fd, segment.file_offset(), SEGMENT_BYTES as u64);
        }
        usage.bits.store(EMPTY, Release);
        self.left.fetch_sub(1, AcqRel);
        self.empty.fetch_add(1, AcqRel);
        self.in_use.fetch_sub(1, AcqRel);
        self.publish();
        self.look_for_tightness();
        true
    }

    /// Whether there are segments of the own file that others need, or needed, and this process does not.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Acquire) > 0
    }

    /// Frees the segments of the own file that this process had left before others did. Returns whether there were any.
    pub(super) fn collect<I: FileIo>(&self, io: &I, reap: bool) -> bool {
        self.collect_some(io, reap, usize::MAX) > 0
    }

    /// The same of so many at most. Returns how many there were.
    fn collect_some<I: FileIo>(&self, io: &I, reap: bool, most: usize) -> usize {
        let Some(own) = self.files.own() else { return 0 };
        let volume = &self.files.volumes[own];
        if reap {
            volume.reap(false);
        }
        if !self.has_left() {
            return 0;
        }
        if let Some(table) = volume.table.head() {
            self.left_seen.store(table.left.load(Acquire), Relaxed);
        }
        let all = (0..volume.bound.load(Acquire)).map(|number| Segment::new(own, number));
        all.filter(|&segment| self.usage(segment).state() == LEFT && self.free_left(io, segment)).take(most).count()
    }

    /// Does so now and then, looking for dead processes.
    pub fn tend<I: FileIo>(&self, io: &I) {
        self.tend_after(io, &self.reaping, REAP_NS, usize::MAX);
    }

    fn tend_after<I: FileIo>(&self, io: &I, rest: &Rest, rest_ns: u64, most: usize) {
        let shared = || self.files.own_volume().is_some_and(|own| own.table.head().is_some());
        if shared() && !rest.rests() {
            rest.begin(rest_ns);
            if let Some(own) = self.files.own_volume() {
                own.reap(false);
            }
            // What their files held counts no more.
            self.files.family().reap(self.files.space.load(Relaxed), false);
            if self.collect_some(io, false, most) == most {
                rest.end();
            }
        }
    }

    /// Does so where there is something that others may have ended with: a child that ends or executes a program tells nobody. A part at a
    /// time: nobody waits for that room, and a fault may wait for this.
    pub fn tend_left<I: FileIo>(&self, io: &I) {
        if self.has_left() {
            // Not the same rest: who wants room does not find the search made just before something was given up.
            self.tend_after(io, &self.tending, RETRY_NS, TEND_SEGMENTS);
        }
    }

    /// Does so where another process says that it has left something.
    fn collect_if_told<I: FileIo>(&self, io: &I) {
        let told = |table: &Table| table.left.load(Acquire) != self.left_seen.load(Relaxed);
        if self.left.load(Acquire) > 0
            && let Some(own) = self.files.own_volume()
            && own.table.head().is_some_and(told)
        {
            self.collect(io, false);
        }
    }

    // ---- cleaning ----

    /// Whether so little of this process's segments is live that one should be emptied.
    pub fn wants_cleaning(&self) -> bool {
        let segments = || self.in_use.load(Relaxed).saturating_sub(self.left.load(Relaxed)) as u64;
        self.clean_wanted.load(Relaxed)
            && self.clean_wanted.swap(false, Relaxed)
            && self.own_bytes.load(Relaxed) * 2 < segments() * SEGMENT_BYTES as u64
    }

    /// Whether the cleaner may look for work: not soon after it won nothing, unless much was freed since.
    pub fn may_clean(&self) -> bool {
        let freed = self.freed_slots.load(Relaxed).wrapping_sub(self.freed_at_rest.load(Relaxed));
        !self.cleaning.rests() || freed >= CLEAN_FREED_SLOTS
    }

    /// The cleaner won nothing.
    pub fn rest_cleaning(&self) {
        self.freed_at_rest.store(self.freed_slots.load(Relaxed), Relaxed);
        self.cleaning.begin(RETRY_NS);
    }

    /// The segment of the own file, written and not `buffered`, of which the smallest part is live, and that could be written
    /// once it is empty.
    pub(super) fn sparsest<I: FileIo>(&self, io: &I, buffered: impl Fn(Segment) -> bool) -> Option<Segment> {
        let own = self.files.own()?;
        let volume = &self.files.volumes[own];
        let mut best: Option<(u64, Segment)> = None;
        for number in 0..volume.bound.load(Acquire).min(self.end_segment(io)) {
            let segment = Segment::new(own, number);
            let usage = self.usage(segment);
            let (bits, bytes) = (usage.bits.load(Acquire), usage.live_bytes());
            // At least a quarter must be won.
            if bits & STATE != USED
                || usage.live.load(Relaxed) == 0
                || usage.written.load(Relaxed) == 0
                || bytes * 4 > SEGMENT_BYTES as u64 * 3
                || best.is_some_and(|(least, _)| bytes >= least)
                || bits & PINNED != 0
                || bits & SHARED != 0 && volume.table.is_shared(number)
                || buffered(segment)
            {
                continue;
            }
            best = Some((bytes, segment));
        }
        best.map(|(_, segment)| segment)
    }

    /// Whether nothing but the caller's own `FileTier::hold` is left of a segment.
    pub fn is_emptied(&self, segment: Segment) -> bool {
        self.usage(segment).live.load(Acquire) == 1
    }
}
