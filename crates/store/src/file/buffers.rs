//! Buffers: segments on their way to the file, which are read from until they are written; and reading what was written.
use super::address::Segment;
use super::rest::Rest;
use super::segments::Segments;
use crate::io::{FileIo, FileRead};
use crate::limits::{CLEANER_BUFFERS, FETCH_UNITS, READ_TRIES, RETRY_NS, SEGMENT_BUFFERS, SEGMENT_BYTES, WAIT_SPINS};
use crate::lock::SpinLock;
use crate::stats::{StoreStats, add};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use outswap_core::store::StoreError;
use outswap_sys::{Errno, Result, os};

type StoreResult<T> = core::result::Result<T, StoreError>;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum BufferState {
    Free = 0,
    /// A segment is being found for it, or its memory is given back: nobody else uses it.
    Opening,
    Open,
    Writing,
    /// Writing failed; it is tried again later and read from until then.
    Stuck,
    /// As `Stuck`, but its segment lies where the file may not be written any more: the cleaner moves what is in it.
    Beyond,
    /// A segment of another process's file that was not written when this process was forked: only read from.
    Kept,
}

#[derive(Clone, Copy)]
struct Buffer {
    state: BufferState,
    segment: Segment,
    filled: u32,
}

impl Buffer {
    fn is_of(&self, segment: Segment) -> bool {
        self.state != BufferState::Free && self.segment == segment
    }
}

/// Buffers that are free, by number.
fn free(buffers: &[Buffer]) -> impl Iterator<Item = usize> + '_ {
    buffers.iter().enumerate().filter(|(_, b)| b.state == BufferState::Free).map(|(i, _)| i)
}

/// What the buffers were at one moment.
pub(super) struct Snapshot([Buffer; SEGMENT_BUFFERS]);

impl Snapshot {
    /// Whether one of them is of a segment.
    pub fn holds(&self, segment: Segment) -> bool {
        self.0.iter().any(|buffer| buffer.is_of(segment))
    }
}

/// Bytes that a buffer still holds of another process's file, see [`Buffers::kept`].
pub(crate) struct Kept {
    /// Where they stand in memory.
    pub at: *mut u8,
    pub filled_bytes: usize,
    /// The offset that they were to be written to.
    pub offset: u64,
}

/// Bytes of a segment that are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// Where they are among the segments of all files.
    pub offset: u64,
    pub bytes: usize,
    /// Where they go in a buffer: behind those of the range before.
    pub at: usize,
}

/// Ranges that are wanted together.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub ranges: [Range; FETCH_UNITS],
    pub len: usize,
    /// Which of them are there.
    fetched: u16,
}

const _: () = assert!(FETCH_UNITS <= u16::BITS as usize);

impl Wanted {
    /// None.
    pub const NOTHING: Wanted =
        Wanted { ranges: [Range { offset: 0, bytes: 0, at: 0 }; FETCH_UNITS], len: 0, fetched: 0 };

    /// Whether a range was read.
    pub fn has(&self, range: usize) -> bool {
        self.fetched >> range & 1 != 0
    }
}

/// The buffers of one process.
pub(super) struct Buffers {
    at: usize,
    buffers: SpinLock<[Buffer; SEGMENT_BUFFERS]>,
    /// Which have memory, a bit for each.
    touched: AtomicU32,
    /// Something was put into one since [`Buffers::rest`] was called last.
    appended: AtomicBool,
    /// The open buffer has what was kept for the cleaner, and takes nothing else: others would fill it while a segment is being
    /// emptied into it. Changed under the lock.
    is_cleaners: AtomicBool,
    /// A buffer is `Beyond`.
    has_beyond: AtomicBool,
    /// After a failure to write.
    pub retry: Rest,
}

/// What [`Buffers::append`] has to do next.
enum Step {
    /// Nothing: the unit stands at this offset.
    Done(u64),
    /// To write this buffer.
    Flush(usize),
    /// To find a segment for this buffer.
    Open(usize),
    /// To wait for others who do so.
    Wait,
}

impl Buffers {
    /// Sets the buffers up in memory of [`SEGMENT_BUFFERS`] segments.
    pub fn set(&mut self, at: usize) {
        self.at = at;
    }

    /// Bytes of buffers that have memory.
    pub fn touched_bytes(&self) -> u64 {
        u64::from(self.touched.load(Relaxed).count_ones()) * SEGMENT_BYTES as u64
    }

    fn is_touched(&self, index: usize) -> bool {
        self.touched.load(Relaxed) >> index & 1 != 0
    }

    /// What the buffers are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(*self.buffers.lock())
    }

    fn buffer(&self, index: usize) -> usize {
        self.at + index * SEGMENT_BYTES
    }

    // ---- reading ----

    /// Reads bytes of a segment from its buffer. False where none holds it.
    fn read_held(&self, offset: u64, buf: &mut [u8]) -> bool {
        let (segment, at) = (Segment::at(offset), offset as usize % SEGMENT_BYTES);
        let buffers = self.buffers.lock();
        let holds = |b: &Buffer| b.segment == segment && !matches!(b.state, BufferState::Free | BufferState::Opening);
        let Some(i) = buffers.iter().position(holds) else { return false };
        let end = (at + buf.len()).min(buffers[i].filled as usize);
        let len = end.saturating_sub(at);
        // SAFETY: the buffer's filled part is written, and stays while its lock is held.
        let held = unsafe { core::slice::from_raw_parts((self.buffer(i) + at) as *const u8, len) };
        buf[..len].copy_from_slice(held);
        buf[len..].fill(0);
        true
    }

    /// Reads ranges of segments, those of one file at the same time where that can be. What fails is not tried again.
    pub fn fetch<I: FileIo>(
        &self,
        segments: &Segments,
        io: &I,
        wanted: &mut Wanted,
        buf: &mut [u8],
        stats: &StoreStats,
    ) {
        let mut begun = 0;
        while begun < wanted.len {
            let volume = Segment::at(wanted.ranges[begun].offset).volume();
            let mut reads: [FileRead<'_>; FETCH_UNITS] =
                core::array::from_fn(|_| FileRead { buf: &mut [], offset: 0, result: Ok(0) });
            let mut of = [0; FETCH_UNITS];
            let (mut count, mut rest, mut rest_at) = (0, &mut *buf, 0);
            let same = |range: &&Range| Segment::at(range.offset).volume() == volume;
            let end = begun + wanted.ranges[begun..wanted.len].iter().take_while(same).count();
            for (i, range) in wanted.ranges[..end].iter().enumerate().skip(begun) {
                let (part, behind) = core::mem::take(&mut rest).split_at_mut(range.at + range.bytes - rest_at);
                (rest, rest_at) = (behind, range.at + range.bytes);
                let part_at = part.len() - range.bytes;
                let part = &mut part[part_at..];
                if self.read_held(range.offset, part) {
                    wanted.fetched |= 1 << i;
                } else {
                    let offset = Segment::at(range.offset).file_offset_of(range.offset);
                    reads[count] = FileRead { buf: part, offset, result: Ok(0) };
                    of[count] = i;
                    count += 1;
                }
            }
            let reads = &mut reads[..count];
            if count > 0 {
                segments.files.pread_all(io, Segment::at(wanted.ranges[begun].offset), reads);
            }
            for (read, i) in reads.iter().zip(of) {
                if read.result == Ok(read.buf.len()) {
                    wanted.fetched |= 1 << i;
                    add(&stats.file_read_total, read.buf.len() as u64);
                }
            }
            begun = end;
        }
    }

    /// Reads bytes of a segment from its buffer or the file.
    pub fn read<I: FileIo>(
        &self,
        segments: &Segments,
        io: &I,
        offset: u64,
        buf: &mut [u8],
        stats: &StoreStats,
    ) -> StoreResult<()> {
        if self.read_held(offset, buf) {
            return Ok(());
        }
        let segment = Segment::at(offset);
        let at = segment.file_offset_of(offset);
        let (mut done, mut tries) = (0, 0);
        while done < buf.len() {
            match segments.files.pread(io, segment, &mut buf[done..], at + done as u64) {
                Some(Ok(n)) if n > 0 => done += n.min(buf.len() - done),
                Some(Err(Errno::EINTR)) => {}
                None => return Err(StoreError::Io),
                // An error, or an end of file where there must be data.
                Some(_) => {
                    add(&stats.errors, 1);
                    tries += 1;
                    if tries == READ_TRIES {
                        return Err(StoreError::Io);
                    }
                }
            }
        }
        add(&stats.file_read_total, buf.len() as u64);
        Ok(())
    }

    /// Reads as much of a segment as its buffer or its file has; the rest is zero, which is no unit. False on an error.
    pub fn read_segment<I: FileIo>(
        &self,
        segments: &Segments,
        io: &I,
        segment: Segment,
        bytes: &mut [u8],
        stats: &StoreStats,
    ) -> bool {
        if self.read_held(segment.offset(), bytes) {
            return true;
        }
        bytes.fill(0);
        let at = segment.file_offset();
        let mut done = 0;
        while done < bytes.len() {
            match segments.files.pread(io, segment, &mut bytes[done..], at + done as u64) {
                Some(Ok(0)) => break,
                Some(Ok(n)) => done += n.min(bytes.len() - done),
                Some(Err(Errno::EINTR)) => {}
                _ => return false,
            }
        }
        add(&stats.file_read_total, done as u64);
        true
    }

    // ---- writing ----

    /// Puts a sealed unit of `slots` pages into the open segment. Returns its offset among the segments of all files.
    pub fn append<I: FileIo>(
        &self,
        segments: &Segments,
        io: &I,
        unit: &[u8],
        key: u16,
        slots: u32,
        cleaning: bool,
        stats: &StoreStats,
    ) -> StoreResult<u64> {
        let (mut waits, mut has_asked) = (0, false);
        if self.has_beyond() {
            self.reconsider(segments, io);
        }
        loop {
            // After a failure only the cleaner goes on, in another buffer: what it frees is what a full disk lacks.
            let rests = self.retry.rests();
            if segments.files.own().is_none() || rests && !cleaning {
                return Err(StoreError::Full);
            }
            let step = match self.step(segments, unit, key, slots, rests, cleaning) {
                // Dear to find out, and so only by who would be refused, once.
                Err(_) if !cleaning && !has_asked && self.is_cleaners.load(Relaxed) => {
                    has_asked = true;
                    self.share_open(segments, io);
                    continue;
                }
                step => step?,
            };
            match step {
                Step::Done(offset) => return Ok(offset),
                // Others write their segments, or open one: both end soon, unless the disk or a process hangs.
                Step::Wait if waits == WAIT_SPINS => return Err(StoreError::Full),
                Step::Wait => {
                    os::wait_a_little(waits);
                    waits += 1;
                }
                Step::Flush(i) => match self.flush(segments, io, i, stats) {
                    Err(e) if !cleaning => return Err(e),
                    _ => {}
                },
                Step::Open(i) => self.open(segments, io, i, key, cleaning)?,
            }
        }
    }

    /// Puts the unit into the open buffer, or says what has to be done first. `rests`: writing failed a short while ago.
    fn step(
        &self,
        segments: &Segments,
        unit: &[u8],
        key: u16,
        slots: u32,
        rests: bool,
        cleaning: bool,
    ) -> StoreResult<Step> {
        let mut buffers = self.buffers.lock();
        let open = buffers.iter().position(|b| b.state == BufferState::Open);
        let is_open_to_all = cleaning || !self.is_cleaners.load(Relaxed);
        if let Some(i) = open.filter(|_| is_open_to_all) {
            let buffer = &mut buffers[i];
            let usage = segments.usage(buffer.segment);
            if usage.key() != key {
                // Sealed before a fork: cannot be, as none happens meanwhile.
                return Err(StoreError::Full);
            }
            let at = buffer.filled as usize;
            if at + unit.len() <= SEGMENT_BYTES {
                // SAFETY: the open buffer's unfilled part is written under its lock only.
                unsafe {
                    let to = (self.buffer(i) + at) as *mut u8;
                    core::ptr::copy_nonoverlapping(unit.as_ptr(), to, unit.len());
                }
                self.appended.store(true, Relaxed);
                buffer.filled += unit.len() as u32;
                usage.live.fetch_add(slots, Relaxed);
                usage.written.fetch_add(slots, Relaxed);
                usage.filled.store(buffer.filled, Relaxed);
                return Ok(Step::Done(buffer.segment.offset() + at as u64));
            }
            buffer.state = BufferState::Writing;
            Ok(Step::Flush(i))
        } else if buffers.iter().any(|b| b.state == BufferState::Opening) {
            Ok(Step::Wait)
        } else {
            let is_kept = open.is_some() || !cleaning && free(&*buffers).count() <= CLEANER_BUFFERS;
            let vacant = free(&*buffers).find(|&i| self.is_touched(i)).or(free(&*buffers).next()).filter(|_| !is_kept);
            let stuck = buffers.iter().position(|b| b.state == BufferState::Stuck).filter(|_| !rests);
            if let Some(i) = stuck {
                buffers[i].state = BufferState::Writing;
                Ok(Step::Flush(i))
            } else if let Some(i) = vacant {
                buffers[i].state = BufferState::Opening;
                Ok(Step::Open(i))
            } else if buffers.iter().any(|b| b.state == BufferState::Writing) {
                Ok(Step::Wait)
            } else {
                // None is free, and none will be.
                Err(StoreError::Full)
            }
        }
    }

    /// Finds a segment for a buffer in state `Opening`.
    fn open<I: FileIo>(&self, segments: &Segments, io: &I, index: usize, key: u16, cleaning: bool) -> StoreResult<()> {
        let segment = segments.claim(io, cleaning, key);
        let is_limits = cleaning && !segments.has_reserve(io);
        let mut buffers = self.buffers.lock();
        let is_cleaners = cleaning && (is_limits || free(&*buffers).count() < CLEANER_BUFFERS);
        match segment {
            Ok(segment) => {
                self.touched.fetch_or(1 << index, Relaxed);
                buffers[index] = Buffer { state: BufferState::Open, segment, filled: 0 };
                self.is_cleaners.store(is_cleaners, Relaxed);
                Ok(())
            }
            Err(e) => {
                buffers[index].state = BufferState::Free;
                Err(e)
            }
        }
    }

    /// The open buffer is everybody's, as soon as what is kept for the cleaner is free again.
    pub fn share_open<I: FileIo>(&self, segments: &Segments, io: &I) {
        let open = |buffers: &[Buffer]| buffers.iter().find(|b| b.state == BufferState::Open).map(|b| b.segment);
        let segment = open(&*self.buffers.lock());
        if !segments.has_reserve(io) {
            return;
        }
        let buffers = self.buffers.lock();
        // The cleaner may have begun another one since.
        if open(&*buffers) == segment && free(&*buffers).count() >= CLEANER_BUFFERS {
            self.is_cleaners.store(false, Relaxed);
        }
    }

    /// Writes what a buffer in state `Writing` holds. On failure the buffer keeps it.
    fn flush<I: FileIo>(&self, segments: &Segments, io: &I, index: usize, stats: &StoreStats) -> StoreResult<()> {
        let Buffer { segment, filled, .. } = self.buffers.lock()[index];
        // Only the buffer's own mark is left: nobody will ever read it.
        let dead = segments.usage(segment).live.load(Acquire) == 1;
        let write = || self.write(segments, io, index, segment, filled as usize, stats);
        // A full disk may be full of what children that ended had shared.
        let written = if dead { Ok(()) } else { write() };
        let written = written.or_else(|e| if segments.collect(io, true) { write() } else { Err(e) });
        if !dead {
            stats.file_errno.store(written.err().map_or(0, |e| e.0 as u64), Relaxed);
        }
        if let Err(error) = written {
            let is_beyond = error == Errno::EFBIG && segments.is_beyond(io, segment);
            let state = if is_beyond { BufferState::Beyond } else { BufferState::Stuck };
            self.buffers.lock()[index].state = state;
            add(&stats.errors, 1);
            add(&stats.write_errors, 1);
            if is_beyond {
                // Others can be written: nothing rests.
                self.has_beyond.store(true, Release);
            } else {
                self.retry.begin(RETRY_NS);
            }
            return Err(StoreError::Full);
        }
        self.retry.end();
        self.let_go(index);
        segments.release(io, segment, 1);
        Ok(())
    }

    /// A buffer in state `Writing` is written, and free. As one at a time is filled, its memory is given back where a free one has some.
    fn let_go(&self, index: usize) {
        let mut buffers = self.buffers.lock();
        let is_spare = free(&*buffers).any(|i| self.is_touched(i));
        buffers[index].state = if is_spare { BufferState::Opening } else { BufferState::Free };
        drop(buffers);
        if is_spare {
            self.give_back(index);
        }
    }

    /// Gives back the memory of a buffer in state `Opening`, which is free then.
    fn give_back(&self, index: usize) {
        // SAFETY: nobody reads or fills a buffer in this state, whose memory is of its own.
        if unsafe { os::madvise(self.buffer(index), SEGMENT_BYTES, os::MADV_DONTNEED) }.is_ok() {
            self.touched.fetch_and(!(1 << index), Relaxed);
        }
        self.buffers.lock()[index].state = BufferState::Free;
    }

    /// Called now and then: where nothing was written since the last time, free buffers give their memory back. Each of many processes has its own.
    pub fn rest(&self) {
        if self.appended.swap(false, Relaxed) {
            return;
        }
        for index in 0..SEGMENT_BUFFERS {
            let mut buffers = self.buffers.lock();
            if buffers[index].state == BufferState::Free && self.is_touched(index) {
                buffers[index].state = BufferState::Opening;
                drop(buffers);
                self.give_back(index);
            }
        }
    }

    fn write<I: FileIo>(
        &self,
        segments: &Segments,
        io: &I,
        index: usize,
        segment: Segment,
        len: usize,
        stats: &StoreStats,
    ) -> Result<()> {
        // Only its own file: what another process's file holds is that process's.
        if !segments.files.is_own(segment) {
            return Err(Errno::EBADF);
        }
        let fd = segments.files.own_write_fd().ok_or(Errno::EBADF)?;
        // SAFETY: what is filled does not change, and the buffer is not given up before this returns.
        let bytes = unsafe { core::slice::from_raw_parts(self.buffer(index) as *const u8, len) };
        let offset = segment.file_offset();
        let mut done = 0;
        while done < bytes.len() {
            add(&stats.file_writes, 1);
            match io.pwrite(fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => done += n.min(bytes.len() - done),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        add(&stats.file_written_total, done as u64);
        Ok(())
    }

    /// Writes out and closes the open segment. Failing, the buffer keeps it.
    pub fn flush_open<I: FileIo>(&self, segments: &Segments, io: &I, stats: &StoreStats) {
        let open = {
            let mut buffers = self.buffers.lock();
            let open = buffers.iter().position(|b| b.state == BufferState::Open);
            open.inspect(|&i| buffers[i].state = BufferState::Writing)
        };
        if let Some(i) = open {
            let _ = self.flush(segments, io, i, stats);
        }
    }

    // ---- what is to be moved ----

    /// Whether there is a buffer whose segment cannot be written any more.
    pub fn has_beyond(&self) -> bool {
        self.has_beyond.load(Acquire)
    }

    /// Those of which the limit was raised meanwhile wait to be written as all else that could not be.
    fn reconsider<I: FileIo>(&self, segments: &Segments, io: &I) {
        let mut buffers = self.buffers.lock();
        for buffer in buffers.iter_mut().filter(|b| b.state == BufferState::Beyond) {
            if !segments.is_beyond(io, buffer.segment) {
                buffer.state = BufferState::Stuck;
            }
        }
    }

    /// The segment of such a buffer, of which the least is live. It stays that buffer's until [`Buffers::moved`]; for the cleaner.
    pub fn beyond(&self, segments: &Segments) -> Option<Segment> {
        let buffers = self.buffers.lock();
        let all = buffers.iter().filter(|b| b.state == BufferState::Beyond).map(|b| b.segment);
        let beyond = all.min_by_key(|&segment| segments.usage(segment).live.load(Relaxed));
        self.has_beyond.store(beyond.is_some(), Release);
        beyond
    }

    /// What was live in that segment was moved. False where something is left.
    pub fn moved<I: FileIo>(&self, segments: &Segments, io: &I, segment: Segment) -> bool {
        if !segments.is_emptied(segment) {
            return false;
        }
        let is_it = |b: &&mut Buffer| b.state == BufferState::Beyond && b.segment == segment;
        if let Some(buffer) = self.buffers.lock().iter_mut().find(is_it) {
            buffer.state = BufferState::Free;
        }
        segments.release(io, segment, 1);
        true
    }

    // ---- after a fork ----

    /// This process has another file from now on: what could not be written to the one before is only read from.
    pub fn keep_stuck(&self) {
        let is_unwritten = |b: &&mut Buffer| matches!(b.state, BufferState::Stuck | BufferState::Beyond);
        for buffer in self.buffers.lock().iter_mut().filter(is_unwritten) {
            buffer.state = BufferState::Kept;
        }
    }

    /// A buffer with a segment of another process's file that was never written. While the process has one thread.
    pub fn kept(&self, index: usize) -> Option<Kept> {
        let Buffer { state, segment, filled } = self.buffers.lock()[index];
        let at = self.buffer(index) as *mut u8;
        (state == BufferState::Kept).then(|| Kept { at, filled_bytes: filled as usize, offset: segment.offset() })
    }

    /// A kept buffer's bytes, of which `slots` slots are live, are now those of the segment at `to`.
    pub fn adopted<I: FileIo>(&self, segments: &Segments, io: &I, index: usize, to: u64, slots: u32) {
        let segment = Segment::at(to);
        let (from, usage) = (self.buffers.lock()[index], segments.usage(segment));
        usage.live.fetch_add(slots, AcqRel);
        usage.written.store(slots, Relaxed);
        usage.filled.store(from.filled, Relaxed);
        self.buffers.lock()[index] = Buffer { state: BufferState::Stuck, segment, filled: from.filled };
        segments.release(io, from.segment, slots + 1);
    }

    /// Frees kept buffers in which nothing is live any more.
    pub fn forget_kept<I: FileIo>(&self, segments: &Segments, io: &I) {
        for index in 0..SEGMENT_BUFFERS {
            let buffer = self.buffers.lock()[index];
            if buffer.state == BufferState::Kept && segments.usage(buffer.segment).live.load(Acquire) == 1 {
                self.buffers.lock()[index].state = BufferState::Free;
                segments.release(io, buffer.segment, 1);
            }
        }
    }
}
