//! The file tier: sealed units in log-structured segments of unlinked files.
//!
//! ```text
//! file    | segment 0 | segment 1 | ...                     256 KiB each
//! segment | unit | unit | ...                               written in one piece, under one key, never overwritten in use
//! unit    | slot 4 B | bits 4 B | ciphertext | tag 16 B | pad to 16 |
//! ```
//! A segment is filled in a buffer in memory and written when it is full; until it is written, reads are
//! answered from the buffer. It dies as a whole: when no process has a live slot in it, its blocks
//! are punched out of the file and its number is used again.
//!
//! A process writes only to a file of its own ([`files`]), and only under keys that were drawn since it last forked
//! or was forked ([`keys`]). A forked child reads what it shares with its parent from the parent's file, through a
//! descriptor that cannot write, and writes to a new one.
mod address;
mod rest;
mod keys;
mod seal;
mod pids;
mod users;
mod family;
mod volume;
mod files;
mod segments;
mod buffers;
mod fork;
mod exec;

use crate::config::{Later, SetUp};
use crate::io::FileIo;
use crate::limits::{DIRECTORY_BYTES, FETCH_BYTES, MAX_SEALED_BYTES, SEGMENT_BUFFERS, SEGMENT_BYTES};
use crate::stats::{StoreStats, add};
pub(crate) use address::Segment;
use buffers::Buffers;
pub(crate) use buffers::{Kept, Range, Wanted};
use core::sync::atomic::Ordering::*;
use exec::Execs;
use family::Family;
pub(crate) use files::Files;
pub(crate) use fork::ForkedUse;
use keys::Keys;
pub(crate) use keys::MAX_NONCE;
use outswap_core::store::StoreError;
use outswap_sys::{Errno, Result};
pub(crate) use seal::{Seal, UNIT_ALIGN, UNIT_HEADER_BYTES, UnitId};
use segments::Segments;
use volume::CLOSING;

/// The file tier of one process. All-zero memory is a tier without a file, see [`FileTier::set`].
pub(crate) struct FileTier {
    pub segments: Segments,
    buffers: Buffers,
    execs: Execs,
}

/// Zeroed memory for a file tier.
pub(crate) struct Memory {
    /// Shared by the family.
    pub family: usize,
    pub usage: usize,
    pub keys: usize,
    /// [`SEGMENT_BUFFERS`] segments.
    pub buffers: usize,
}

/// Sizes of the regions of a [`Memory`] for files of `segments` segments: family, usage, keys, buffers.
pub(crate) fn memory_bytes(segments: usize) -> [usize; 4] {
    let buffers = SEGMENT_BUFFERS * SEGMENT_BYTES;
    [size_of::<Family>(), segments::table_bytes(segments), keys::table_bytes(), buffers]
}

impl FileTier {
    /// Makes zeroed memory a valid tier without a file.
    ///
    /// # Safety
    /// `at` points to zeroed memory that nothing else uses.
    pub unsafe fn zero_to_valid(at: *mut FileTier) {
        // SAFETY: as the caller says; all-zero is valid for every other field.
        unsafe { Keys::zero_to_valid(&raw mut (*at).segments.keys) };
    }

    /// Sets the tier up and opens its file. Without a file the tier is full.
    ///
    /// # Errors
    /// No randomness, or the directory's name is empty or too long.
    pub fn set<I: FileIo>(
        &mut self,
        io: &I,
        memory: &Memory,
        segments: u32,
        &SetUp { max_bytes, directory, requests_fd, min_fd, later }: &SetUp<'_>,
    ) -> Result<()> {
        let text = directory.split(|&b| b == 0).next().unwrap_or(&[]);
        let mut path = [0u8; DIRECTORY_BYTES];
        if text.is_empty() || text.len() >= path.len() {
            return Err(Errno::ENOENT);
        }
        path[..text.len()].copy_from_slice(text);
        self.buffers.set(memory.buffers);
        self.segments.files.set(memory.family, segments, min_fd);
        self.segments.keys.set(memory.keys);
        self.segments.set(memory.usage, max_bytes);
        let mut result = Ok(());
        self.segments.keys.renew(|secret| {
            result = io.random(secret);
            result.is_ok()
        });
        result?;
        self.segments.files.begin_family();
        if let Some(fd) = requests_fd {
            self.segments.files.ask_at(fd);
        }
        if self.segments.files.open_directory(&path[..=text.len()]) || requests_fd.is_some() {
            self.segments.files.may_put_off.store(later != Later::Never, Relaxed);
            if later != Later::All || !self.segments.put_off() {
                self.segments.open_own(io);
            }
        }
        Ok(())
    }

    /// The files of this process.
    pub fn files(&self) -> &Files {
        &self.segments.files
    }

    /// Bytes of buffers and private tables that were touched.
    pub fn touched_bytes(&self) -> u64 {
        self.buffer_bytes() + self.segments.touched_bytes()
    }

    /// Bytes of buffers that have memory.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffers.touched_bytes()
    }

    /// See [`Buffers::rest`].
    pub fn rest(&self) {
        self.buffers.rest();
    }

    /// Bytes of all segments in use by the family.
    pub fn segment_bytes(&self) -> u64 {
        self.files().family().bytes()
    }

    /// Bytes of the segments in use of the own file.
    pub fn own_bytes(&self) -> u64 {
        self.segments.own_segments() as u64 * SEGMENT_BYTES as u64
    }

    /// Whether there is no file to write, it could not be written a short while ago, or it is so full that room in it is scarce.
    pub fn is_tight(&self) -> bool {
        !self.files().has_own() || self.segments.is_tight() || self.buffers.retry.rests()
    }

    /// Makes the file where that was put off: it is needed, or could not be made any more afterwards.
    pub fn make_own<I: FileIo>(&self, io: &I) {
        self.files().take_up(|| _ = self.segments.open_own(io));
    }

    /// Seals `payload` into `out` as it will stand in the file. `None` where nothing can be written.
    pub fn seal(&self, id: UnitId, payload: &[u8], out: &mut [u8; MAX_SEALED_BYTES]) -> Option<Seal> {
        if !self.files().has_own() {
            return None;
        }
        self.segments.keys.seal_unit(id, payload, out)
    }

    /// Makes a unit of the segment at `from` one under the current key, where it is of another. `None` where that cannot be.
    pub fn reseal(&self, id: UnitId, from: u64, nonce: u64, unit: &mut [u8]) -> Option<Seal> {
        self.segments.keys.reseal(id, self.segments.key_of(from), nonce, unit)
    }

    /// Puts a sealed unit of `slots` pages into the open segment. Returns its offset among the segments of all files.
    pub fn append<I: FileIo>(
        &self,
        io: &I,
        unit: &[u8],
        key: u16,
        slots: u32,
        cleaning: bool,
        stats: &StoreStats,
    ) -> core::result::Result<u64, StoreError> {
        self.make_own(io);
        self.buffers.append(&self.segments, io, unit, key, slots, cleaning, stats)
    }

    /// Reads the unit at `offset` and opens its seal; its payload then stands in `buf` behind the header.
    pub fn read<I: FileIo>(
        &self,
        io: &I,
        id: UnitId,
        nonce: u64,
        offset: u64,
        buf: &mut [u8; MAX_SEALED_BYTES],
        stats: &StoreStats,
    ) -> core::result::Result<(), StoreError> {
        let stored = id.sealed_bytes();
        if stored > buf.len() {
            return Err(StoreError::Corrupt);
        }
        let key = self.segments.key_of(offset);
        self.buffers.read(&self.segments, io, offset, &mut buf[..stored], stats)?;
        if self.segments.keys.open_in_place(id, key, nonce, buf) { Ok(()) } else { Err(StoreError::Corrupt) }
    }

    /// Reads ranges of segments, several at the same time where that can be.
    pub fn fetch<I: FileIo>(&self, io: &I, wanted: &mut Wanted, buf: &mut [u8; FETCH_BYTES], stats: &StoreStats) {
        self.buffers.fetch(&self.segments, io, wanted, buf, stats);
    }

    /// Opens the seal of a unit that was read from `offset`. False where it is not what was sealed.
    pub fn open(&self, id: UnitId, nonce: u64, offset: u64, unit: &mut [u8]) -> bool {
        self.segments.keys.open_in_place(id, self.segments.key_of(offset), nonce, unit)
    }

    /// Reads as much of a segment as its buffer or its file has; the rest is zero, which is no unit. False on an error.
    pub fn read_segment<I: FileIo>(&self, io: &I, segment: Segment, bytes: &mut [u8], stats: &StoreStats) -> bool {
        self.buffers.read_segment(&self.segments, io, segment, bytes, stats)
    }

    // ---- cleaning ----

    /// Whether a buffer waits for the cleaner to move what is in it: its segment cannot be written any more.
    pub fn wants_moving(&self) -> bool {
        self.buffers.has_beyond()
    }

    /// The segment of such a buffer, where nothing in it is live, or there is one that can be written in its place.
    pub fn stranded<I: FileIo>(&self, io: &I) -> Option<Segment> {
        let has_place = |segment: &Segment| self.segments.is_emptied(*segment) || self.segments.has_room(io);
        self.buffers.beyond(&self.segments).filter(has_place)
    }

    /// What was live in that segment was moved. False where something is left.
    pub fn moved<I: FileIo>(&self, io: &I, segment: Segment) -> bool {
        self.buffers.moved(&self.segments, io, segment)
    }

    /// The segment of the own file, written and not buffered, of which the smallest part is live, and that could be written
    /// once it is empty.
    pub fn sparsest<I: FileIo>(&self, io: &I) -> Option<Segment> {
        let buffered = self.buffers.snapshot();
        self.segments.sparsest(io, |segment| buffered.holds(segment))
    }

    /// Keeps a segment with live slots from being freed, as one more slot would. False where it has none any more, or is not
    /// written out.
    pub fn hold<I: FileIo>(&self, io: &I, segment: Segment) -> bool {
        let usage = self.segments.usage(segment);
        if usage.live.fetch_update(AcqRel, Acquire, |live| (live > 0).then_some(live + 1)).is_err() {
            return false;
        }
        let ready = usage.written.load(Acquire) > 0 && !self.buffers.snapshot().holds(segment);
        if !ready {
            self.segments.release(io, segment, 1);
        }
        ready
    }

    /// The cleaner emptied a segment: what could not be written for want of room is tried again at once.
    pub fn cleaned<I: FileIo>(&self, io: &I) {
        self.buffers.retry.end();
        self.buffers.share_open(&self.segments, io);
    }

    // ---- fork and exit ----

    /// Goes on in a new file where children may read the own one, to which nothing of this process can write afterwards. Its
    /// segments are not freed one by one any more, but all at once, when nobody needs any. Without a new file there is none to
    /// write to. No other call may be in progress.
    pub fn give_up_writing<I: FileIo>(&self, io: &I, stats: &StoreStats) {
        // A vforked child has a table of descriptors of its own: the file is its parent's to give up.
        if !self.files().is_writing_shared() || !self.files().is_self() {
            return;
        }
        self.buffers.flush_open(&self.segments, io, stats);
        if let Some(own) = self.files().own_volume()
            && own.live_segments.load(Acquire) == 0
        {
            own.state.store(CLOSING, SeqCst);
        }
        self.end_own();
        self.segments.open_own(io);
    }

    /// Has no file any more to write to.
    fn end_own(&self) {
        self.files().end_own();
        self.buffers.keep_stuck();
        self.files().close_idle();
    }

    /// Writes out and closes the open segment, and reserves what the child needs in the tables of the files.
    pub fn fork_prepare<I: FileIo>(&self, io: &I, stats: &StoreStats) -> ForkedUse {
        // Failing, both keep the bytes.
        self.buffers.flush_open(&self.segments, io, stats);
        self.buffers.forget_kept(&self.segments, io);
        self.files().close_idle();
        if self.segments.has_left() {
            self.segments.collect(io, true);
        }
        self.segments.fork_prepare(stats)
    }

    /// In the parent, after the fork: `child_pid` as fork returned it, or not positive where it failed.
    pub fn fork_parent<I: FileIo>(&self, io: &I, forked: &ForkedUse, child_pid: i32) {
        self.segments.fork_parent(io, forked, child_pid);
    }

    /// In the child, before anything else: `parent_pid` is the parent's own idea of its process id. Afterwards the child
    /// cannot write to any file but its own new one.
    pub fn fork_child<I: FileIo>(&self, io: &I, forked: &ForkedUse, parent_pid: i32, stats: &StoreStats) {
        self.buffers.retry.end();
        self.execs.begin_child();
        self.segments.fork_child(io, forked, parent_pid);
        if self.files().is_put_off() {
            return;
        }
        self.end_own();
        // What was not written before goes to the new file now.
        let is_needed = (0..SEGMENT_BUFFERS).any(|index| self.kept(index).is_some());
        if is_needed || !self.segments.put_off() {
            add(&stats.forks_without_file, !self.segments.open_own(io) as u64);
        }
    }

    /// A buffer with a segment of another process's file that was never written. While the process has one thread.
    pub fn kept(&self, index: usize) -> Option<Kept> {
        self.buffers.kept(index)
    }

    /// Finds a segment of the own file for what a kept buffer holds, whatever the limit: it was within it before the fork.
    /// Returns its offset; `None` where nothing can be written.
    pub fn adopt<I: FileIo>(&self, io: &I) -> Option<u64> {
        self.segments.claim_unlimited(io).map(Segment::offset)
    }

    /// A kept buffer's bytes, of which `slots` slots are live, are now those of the segment at `to`.
    pub fn adopted<I: FileIo>(&self, io: &I, index: usize, to: u64, slots: u32) {
        self.buffers.adopted(&self.segments, io, index, to, slots);
    }

    /// Before this process executes a program, which ends its share in all files. While it does, nothing new is written.
    pub fn begin_exec(&self) {
        self.execs.begin(&self.segments);
    }

    /// After such an attempt failed; the last one's ends what the first began.
    pub fn exec_failed(&self) {
        self.execs.failed(&self.segments);
    }

    /// Closes and unmaps everything.
    ///
    /// # Safety
    /// Nothing uses the tier any more.
    pub unsafe fn destroy(&self) {
        // SAFETY: as the caller says.
        unsafe { self.files().destroy() };
    }
}
