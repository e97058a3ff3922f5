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
//! A process writes only to a file of its own ([`crate::volume`]), and only under keys that were drawn since it last forked
//! or was forked ([`crate::keys`]). A forked child reads what it shares with its parent from the parent's file, through a
//! descriptor that cannot write, and writes to a new one.
use crate::compress::Codec;
use crate::io::{self, FileIo, NewFile};
use crate::keys::{Keys, TAG_BYTES};
use crate::limits::*;
use crate::lock::SpinLock;
use crate::stats::{StoreStats, add};
use crate::volume::*;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use outswap_core::store::StoreError;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{Errno, Result, os};

/// Bytes of a unit's header in the file.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;
/// Units begin at multiples of this.
pub(crate) const UNIT_ALIGN: usize = 16;

// A unit as large as can be, with what stands around it.
const _: () = assert!((UNIT_HEADER_BYTES + CHUNK_BYTES + TAG_BYTES).next_multiple_of(UNIT_ALIGN) <= UNIT_BYTES);

/// A unit's identity: what its seal is bound to besides the nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnitId {
    pub slot: u32,
    pub len: u16,
    pub chunk: bool,
    pub codec: Codec,
}

impl UnitId {
    fn bytes(self) -> [u8; UNIT_HEADER_BYTES] {
        let bits = self.len as u32 | (self.chunk as u32) << 16 | (self.codec as u32) << 17 | 1 << 31;
        let mut bytes = [0; UNIT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..].copy_from_slice(&bits.to_le_bytes());
        bytes
    }

    /// Reads a unit's header; `None` behind a segment's last unit.
    pub fn parse(bytes: &[u8]) -> Option<UnitId> {
        let slot = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let bits = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let (len, chunk) = (bits as u16, bits >> 16 & 1 != 0);
        (bits >> 31 == 1).then_some(UnitId { slot, len, chunk, codec: Codec::from_bits((bits >> 17) as u64) })
    }

    /// Bytes the unit takes in a segment.
    pub fn stored_bytes(self) -> usize {
        (UNIT_HEADER_BYTES + self.len as usize + TAG_BYTES).next_multiple_of(UNIT_ALIGN)
    }

    /// Pages in the unit.
    pub fn pages(self) -> u32 {
        if self.chunk { CHUNK_PAGES as u32 } else { 1 }
    }
}

/// A unit as it will stand in the file.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// Bytes there.
    pub stored: usize,
    pub nonce: u64,
    /// The number of its key.
    pub key: u16,
}

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
const SHARED: u32 = 1 << 3;
/// It cannot be known when the segment may be freed: never.
const PINNED: u32 = 1 << 4;
const KEY_SHIFT: u32 = 16;

/// What this process knows of a segment. Private memory.
#[repr(C)]
struct Usage {
    /// Live slots, and one more while a buffer holds the segment or the cleaner reads it.
    live: AtomicU32,
    /// Slots ever written.
    written: AtomicU32,
    /// Bytes ever written.
    filled: AtomicU32,
    /// State and flags (both meaningful in this process's own file only), number of the key.
    bits: AtomicU32,
}

impl Usage {
    fn key(&self) -> u16 {
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

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum BufferState {
    Free = 0,
    /// A segment is being found for it.
    Opening,
    Open,
    Writing,
    /// Writing failed; it is tried again later and read from until then.
    Stuck,
    /// A segment of another process's file that was not written when this process was forked: only read from.
    Kept,
}

#[derive(Clone, Copy)]
struct Buffer {
    state: BufferState,
    segment: u32,
    filled: u32,
}

/// The file tier of one process. All-zero memory is a tier without a file, see [`FileTier::set`].
pub(crate) struct FileTier {
    family: usize,
    usage: usize,
    buffers_at: usize,
    segment_count: u32,
    max_segments: u32,
    /// Whether `max_segments` is a limit for the family, not the size of the tables.
    bounded: bool,
    min_fd: i32,
    pub keys: Keys,
    volumes: [Volume; MAX_VOLUMES],
    /// The file that this process writes: its number + 1; 0 for none.
    own: AtomicU32,
    /// Descriptors + 1; 0 for none.
    write_fd: AtomicI32,
    directory_fd: AtomicI32,
    /// Keeps a number for the file of a child, when the program has used up all others.
    spare_fd: AtomicI32,
    open_error: AtomicI32,
    /// Children may read the own file. Private memory: who shares a table must not be able to say that nobody does.
    shared: AtomicBool,
    /// The process that this is.
    pid: AtomicI32,
    /// Its number in the family + 1; 0 for none.
    process: AtomicU32,
    /// Its pid namespace, see [`Family`].
    space: AtomicU32,
    execs: SpinLock<Execs>,
    buffers: SpinLock<[Buffer; SEGMENT_BUFFERS]>,
    buffers_used: AtomicU32,
    retry_at_ns: AtomicU64,
    reaped_at_ns: AtomicU64,
    // Of the own file: all but `left_seen` counts segments.
    scan: AtomicU32,
    in_use: AtomicU32,
    empty: AtomicU32,
    left: AtomicU32,
    left_seen: AtomicU32,
    /// Live bytes in it.
    own_bytes: AtomicU64,
    clean_wanted: AtomicBool,
    clean_at_ns: AtomicU64,
    freed_slots: AtomicU64,
    freed_at_rest: AtomicU64,
}

/// Threads that are about to execute a program, and what the first one took out of the family.
struct Execs {
    count: u32,
    /// Numbers of the files there + 1.
    files: [u32; MAX_VOLUMES],
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
    let usage = segments * MAX_VOLUMES * size_of::<Usage>();
    [size_of::<Family>(), usage, crate::keys::table_bytes(), SEGMENT_BUFFERS * SEGMENT_BYTES]
}

/// What both sides of a fork need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForkedUse {
    /// The child's number in each file's table.
    users: [u8; MAX_VOLUMES],
    /// The child's number in the family + 1.
    process: u32,
    /// Something that the child needs will not be freed while the file is open anywhere.
    pinned: bool,
}

/// The child needs nothing of the file.
const NO_USER: u8 = u8::MAX;

impl ForkedUse {
    pub const NONE: ForkedUse = ForkedUse { users: [NO_USER; MAX_VOLUMES], process: 0, pinned: false };

    pub fn is_pinned(self) -> bool {
        self.pinned
    }
}

impl FileTier {
    /// Makes zeroed memory a valid tier without a file.
    ///
    /// # Safety
    /// `at` points to zeroed memory that nothing else uses.
    pub unsafe fn zero_to_valid(at: *mut FileTier) {
        // SAFETY: as the caller says; all-zero is valid for every other field.
        unsafe { Keys::zero_to_valid(&raw mut (*at).keys) };
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
        max_bytes: u64,
        min_fd: i32,
        directory: &[u8],
    ) -> Result<()> {
        let text = directory.split(|&b| b == 0).next().unwrap_or(&[]);
        let mut path = [0u8; DIRECTORY_BYTES];
        if text.is_empty() || text.len() >= path.len() {
            return Err(Errno::ENOENT);
        }
        path[..text.len()].copy_from_slice(text);
        (self.family, self.usage, self.buffers_at) = (memory.family, memory.usage, memory.buffers);
        self.segment_count = segments;
        self.bounded = max_bytes != 0;
        let max = if self.bounded { max_bytes / SEGMENT_BYTES as u64 } else { segments as u64 };
        self.max_segments = max.min(segments as u64) as u32;
        self.min_fd = min_fd;
        self.keys.set(memory.keys);
        self.pid.store(os::getpid(), Relaxed);
        let mut result = Ok(());
        self.keys.renew(|secret| {
            result = io.random(secret);
            result.is_ok()
        });
        result?;
        if let Some(process) = self.family().reserve(0, core::iter::empty()) {
            self.family().set(process, os::getpid());
            self.process.store(process as u32 + 1, Relaxed);
        }
        match io::open_directory(&path[..=text.len()]).and_then(|fd| io::raise(fd, min_fd)) {
            Ok(fd) => self.directory_fd.store(fd + 1, Release),
            Err(e) => {
                self.open_error.store(e.0, Relaxed);
                return Ok(());
            }
        }
        self.open_own(io);
        Ok(())
    }

    fn family(&self) -> &Family {
        // SAFETY: `set` was given zeroed memory for it, which lives as long as the store; all its fields are atomics.
        unsafe { &*(self.family as *const Family) }
    }

    fn process(&self) -> Option<usize> {
        (self.process.load(Relaxed) as usize).checked_sub(1)
    }

    fn usage(&self, segment: u32) -> &Usage {
        let (volume, number) = (volume_of(segment), number_of(segment));
        debug_assert!(volume < MAX_VOLUMES && number < self.segment_count);
        // SAFETY: the table has `segment_count` entries for each file.
        unsafe { &*(self.usage as *const Usage).add(volume * self.segment_count as usize + number as usize) }
    }

    fn volume(&self, segment: u32) -> &Volume {
        &self.volumes[volume_of(segment)]
    }

    /// The number of the file that this process writes.
    fn own(&self) -> Option<usize> {
        (self.own.load(Acquire) as usize).checked_sub(1)
    }

    /// Whether an offset is in the file that this process writes.
    pub fn is_own(&self, offset: u64) -> bool {
        self.own() == Some(volume_of((offset / SEGMENT_BYTES as u64) as u32))
    }

    /// Bytes of buffers and private tables that were touched.
    pub fn touched_bytes(&self) -> u64 {
        let buffers = self.buffers_used.load(Relaxed) as u64 * SEGMENT_BYTES as u64;
        let usage =
            |v: &Volume| (v.bound.load(Relaxed) as usize * size_of::<Usage>()).next_multiple_of(PAGE_BYTES) as u64;
        buffers + self.volumes.iter().map(usage).sum::<u64>() + self.keys.touched_bytes()
    }

    /// Bytes of all segments in use by the family.
    pub fn segment_bytes(&self) -> u64 {
        self.family().bytes()
    }

    /// Counts live bytes at an offset, or takes them off, where they are in this process's own file.
    pub fn count_own(&self, offset: u64, added_bytes: u64, removed_bytes: u64) {
        if self.is_own(offset) {
            self.own_bytes.fetch_add(added_bytes.wrapping_sub(removed_bytes), Relaxed);
        }
    }

    // ---- descriptors ----

    fn fd_of(word: &AtomicI32) -> Option<i32> {
        let fd = word.load(Acquire);
        (fd != 0).then_some(fd - 1)
    }

    /// All descriptors in use now.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        let own = [&self.write_fd, &self.directory_fd, &self.spare_fd].into_iter().filter_map(Self::fd_of);
        own.chain(self.volumes.iter().filter_map(|volume| volume.fd()))
    }

    /// The descriptor that writes the own file.
    pub fn write_fd(&self) -> Option<i32> {
        Self::fd_of(&self.write_fd)
    }

    /// The same, if it is of that file still: what the program has under the number is not to be written to.
    fn own_write_fd(&self) -> Option<i32> {
        let own = &self.volumes[self.own()?];
        self.write_fd().filter(|&fd| own.is_of(fd))
    }

    /// Why there is no file to write, if that is so.
    pub fn open_error(&self) -> Option<Errno> {
        self.own().is_none().then(|| Errno(self.open_error.load(Relaxed)))
    }

    fn close(word: &AtomicI32) {
        if let Some(fd) = Self::fd_of(word) {
            // Closed before it is forgotten: until then the runtime keeps the program from using the number.
            let _ = os::close(fd);
            word.store(0, Release);
        }
    }

    /// Whether children read a file that this process can still write.
    pub fn is_writing_shared(&self) -> bool {
        self.shared.load(Acquire)
    }

    /// Goes on in a new file where children may read the own one, to which nothing of this process can write afterwards. Its
    /// segments are not freed one by one any more, but all at once, when nobody needs any. Without a new file there is none to
    /// write to. No other call may be in progress.
    pub fn give_up_writing<I: FileIo>(&self, io: &I, stats: &StoreStats) {
        // A vforked child has a table of descriptors of its own: the file is its parent's to give up.
        if !self.is_writing_shared() || os::getpid() != self.pid.load(Relaxed) {
            return;
        }
        self.flush_open(io, stats);
        if let Some(own) = self.own()
            && self.volumes[own].live_segments.load(Acquire) == 0
        {
            self.volumes[own].state.store(CLOSING, SeqCst);
        }
        self.begin_own(io);
    }

    /// Has a new file, or none, instead of the one that was written.
    fn begin_own<I: FileIo>(&self, io: &I) -> bool {
        if self.own_write_fd().is_none() {
            self.write_fd.store(0, Release);
        }
        Self::close(&self.write_fd);
        self.own.store(0, Release);
        self.shared.store(false, Release);
        for buffer in self.buffers.lock().iter_mut().filter(|b| b.state == BufferState::Stuck) {
            buffer.state = BufferState::Kept;
        }
        self.close_idle();
        self.open_own(io)
    }

    /// Closes the directory: children forked from now on have no file to write to.
    pub fn leave_directory(&self) {
        Self::close(&self.directory_fd);
    }

    /// Opens a new file for this process, while it has one thread. False where that fails.
    fn open_own<I: FileIo>(&self, io: &I) -> bool {
        Self::close(&self.spare_fd);
        let opened = self.try_open_own(io);
        self.open_error.store(opened.err().map_or(0, |e| e.0), Relaxed);
        // Of a file that children may read anyway.
        if let Some(fd) = self.own().and_then(|own| self.volumes[own].fd())
            && let Ok(spare) = os::fcntl(fd, os::F_DUPFD_CLOEXEC, self.min_fd.max(0) as usize)
            && let Ok(spare) = io::raise(spare as i32, self.min_fd)
        {
            self.spare_fd.store(spare + 1, Release);
        }
        opened.is_ok()
    }

    fn try_open_own<I: FileIo>(&self, io: &I) -> Result<()> {
        let directory = Self::fd_of(&self.directory_fd).ok_or(Errno::ENOENT)?;
        let index = self.volumes.iter().position(|v| v.state.load(SeqCst) == FREE).ok_or(Errno::EMFILE)?;
        self.clear_usage(index);
        let NewFile { write_fd, read_fd } = io.create(directory)?;
        let write_fd = io::raise(write_fd, self.min_fd);
        let read_fd = io::raise(read_fd, self.min_fd);
        let (write_fd, read_fd) = match (write_fd, read_fd) {
            (Ok(write_fd), Ok(read_fd)) => (write_fd, read_fd),
            (one, other) => {
                let _ = one.map(os::close);
                let _ = other.map(os::close);
                return Err(Errno::EMFILE);
            }
        };
        self.write_fd.store(write_fd + 1, Release);
        let family = self.process().and_then(|process| self.family().take_file(process, self.space.load(Relaxed)));
        let volume = &self.volumes[index];
        volume.begin(read_fd, family);
        volume.user.store(FOR_EVER as u32, Relaxed);
        for count in [&self.in_use, &self.empty, &self.left, &self.left_seen, &self.scan] {
            count.store(0, Relaxed);
        }
        self.own_bytes.store(0, Relaxed);
        self.clean_wanted.store(false, Relaxed);
        self.own.store(index as u32 + 1, Release);
        Ok(())
    }

    /// Forgets what a file that had this number before left in the table.
    fn clear_usage(&self, index: usize) {
        let used = self.volumes[index].bound.load(Acquire);
        for number in 0..used {
            let usage = self.usage(segment_of(index, number));
            for word in [&usage.live, &usage.written, &usage.filled, &usage.bits] {
                word.store(0, Relaxed);
            }
        }
    }

    // ---- sealing ----

    /// Seals `payload` into `out` as it will stand in the file.
    pub fn seal(&self, id: UnitId, payload: &[u8], out: &mut [u8; UNIT_BYTES]) -> Option<Seal> {
        self.own()?;
        let end = UNIT_HEADER_BYTES + payload.len();
        out[UNIT_HEADER_BYTES..end].copy_from_slice(payload);
        self.seal_in_place(id, out)
    }

    /// Seals the payload that stands in `unit` behind the header.
    fn seal_in_place(&self, id: UnitId, unit: &mut [u8]) -> Option<Seal> {
        let sealer = self.keys.current()?;
        let (header, stored) = (id.bytes(), id.stored_bytes());
        let end = UNIT_HEADER_BYTES + id.len as usize;
        let nonce = self.keys.next_nonce();
        unit[..UNIT_HEADER_BYTES].copy_from_slice(&header);
        let tag = sealer.seal(nonce, &header, &mut unit[UNIT_HEADER_BYTES..end])?;
        unit[end..end + TAG_BYTES].copy_from_slice(&tag);
        unit[end + TAG_BYTES..stored].fill(0);
        Some(Seal { stored, nonce, key: sealer.key })
    }

    /// Opens a unit in place. False where it is not what was sealed; then it is worthless.
    fn open_in_place(&self, id: UnitId, key: u16, nonce: u64, unit: &mut [u8]) -> bool {
        let end = UNIT_HEADER_BYTES + id.len as usize;
        let Some((head, rest)) = unit.get_mut(..end + TAG_BYTES).map(|unit| unit.split_at_mut(UNIT_HEADER_BYTES))
        else {
            return false;
        };
        let (body, tag) = rest.split_at_mut(id.len as usize);
        // The expected identity, not the one read, is what the seal must fit.
        head == id.bytes() && self.keys.reader(key).open(nonce, &id.bytes(), body, tag)
    }

    /// Makes a unit of the segment at `from` one under the current key, where it is of another. `None` where that cannot be.
    pub fn reseal(&self, id: UnitId, from: u64, nonce: u64, unit: &mut [u8]) -> Option<Seal> {
        let key = self.usage((from / SEGMENT_BYTES as u64) as u32).key();
        // None of another is drawn while this thread is here.
        let current = self.keys.current_key()?;
        if key == current {
            return Some(Seal { stored: id.stored_bytes(), nonce, key });
        }
        if self.open_in_place(id, key, nonce, unit) { self.seal_in_place(id, unit) } else { None }
    }

    /// Reads the unit at `offset` and opens its seal; its payload then stands in `buf` behind the header.
    pub fn read<I: FileIo>(
        &self,
        io: &I,
        id: UnitId,
        nonce: u64,
        offset: u64,
        buf: &mut [u8; UNIT_BYTES],
        stats: &StoreStats,
    ) -> core::result::Result<(), StoreError> {
        let stored = UNIT_HEADER_BYTES + id.len as usize + TAG_BYTES;
        if stored > buf.len() {
            return Err(StoreError::Corrupt);
        }
        let key = self.usage((offset / SEGMENT_BYTES as u64) as u32).key();
        self.read_raw(io, offset, &mut buf[..stored], stats)?;
        if self.open_in_place(id, key, nonce, buf) { Ok(()) } else { Err(StoreError::Corrupt) }
    }

    /// Reads from a segment's file; `None` where this process does not have it any more.
    fn pread<I: FileIo>(&self, io: &I, segment: u32, buf: &mut [u8], offset: u64) -> Option<Result<usize>> {
        if self.own() == Some(volume_of(segment)) {
            // Not through the descriptor that children inherit: its flags are theirs to change, too.
            return self.write_fd().map(|fd| io.pread(fd, buf, offset));
        }
        let volume = self.volume(segment);
        let done = volume.reading(|fd| match io.pread(fd, buf, offset) {
            Err(Errno::EINVAL) if volume.is_of(fd) => {
                // Flags belong to all who inherited the descriptor: one of them has set O_DIRECT.
                const F_SETFL: usize = 4;
                let _ = os::fcntl(fd, F_SETFL, 0);
                io.pread(fd, buf, offset)
            }
            done => done,
        });
        if volume.state.load(SeqCst) == CLOSING {
            self.close_idle();
        }
        done
    }

    /// Reads bytes of a segment from its buffer or the file.
    fn read_raw<I: FileIo>(
        &self,
        io: &I,
        offset: u64,
        buf: &mut [u8],
        stats: &StoreStats,
    ) -> core::result::Result<(), StoreError> {
        let (segment, at) = ((offset / SEGMENT_BYTES as u64) as u32, offset as usize % SEGMENT_BYTES);
        {
            let buffers = self.buffers.lock();
            let holds =
                |b: &Buffer| b.segment == segment && !matches!(b.state, BufferState::Free | BufferState::Opening);
            if let Some(i) = buffers.iter().position(holds) {
                let end = (at + buf.len()).min(buffers[i].filled as usize);
                let len = end.saturating_sub(at);
                // SAFETY: the buffer's filled part is written, and stays while its lock is held.
                let held = unsafe { core::slice::from_raw_parts((self.buffer(i) + at) as *const u8, len) };
                buf[..len].copy_from_slice(held);
                buf[len..].fill(0);
                return Ok(());
            }
        }
        let at = number_of(segment) as u64 * SEGMENT_BYTES as u64 + at as u64;
        let (mut done, mut tries) = (0, 0);
        while done < buf.len() {
            match self.pread(io, segment, &mut buf[done..], at + done as u64) {
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

    /// Reads as much of a segment as its file has; the rest is zero, which is no unit. False on an error.
    pub fn read_segment<I: FileIo>(&self, io: &I, segment: u32, bytes: &mut [u8], stats: &StoreStats) -> bool {
        bytes.fill(0);
        let at = number_of(segment) as u64 * SEGMENT_BYTES as u64;
        let mut done = 0;
        while done < bytes.len() {
            match self.pread(io, segment, &mut bytes[done..], at + done as u64) {
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

    fn buffer(&self, index: usize) -> usize {
        self.buffers_at + index * SEGMENT_BYTES
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
        enum Step {
            Flush(usize),
            Open(usize),
            Wait,
        }
        let mut waits = 0;
        loop {
            // After a failure only the cleaner goes on, in another buffer: what it frees is what a full disk lacks.
            let rests = self.rests(&self.retry_at_ns);
            if self.own().is_none() || rests && !cleaning {
                return Err(StoreError::Full);
            }
            let step = {
                let mut buffers = self.buffers.lock();
                if let Some(i) = buffers.iter().position(|b| b.state == BufferState::Open) {
                    let buffer = &mut buffers[i];
                    let usage = self.usage(buffer.segment);
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
                        buffer.filled += unit.len() as u32;
                        usage.live.fetch_add(slots, Relaxed);
                        usage.written.fetch_add(slots, Relaxed);
                        usage.filled.store(buffer.filled, Relaxed);
                        return Ok(buffer.segment as u64 * SEGMENT_BYTES as u64 + at as u64);
                    }
                    buffer.state = BufferState::Writing;
                    Step::Flush(i)
                } else if buffers.iter().any(|b| b.state == BufferState::Opening) {
                    Step::Wait
                } else {
                    let stuck = buffers.iter().position(|b| b.state == BufferState::Stuck).filter(|_| !rests);
                    if let Some(i) = stuck {
                        buffers[i].state = BufferState::Writing;
                        Step::Flush(i)
                    } else if let Some(i) = buffers.iter().position(|b| b.state == BufferState::Free) {
                        buffers[i].state = BufferState::Opening;
                        Step::Open(i)
                    } else if buffers.iter().any(|b| b.state == BufferState::Writing) {
                        Step::Wait
                    } else {
                        // None is free, and none will be.
                        return Err(StoreError::Full);
                    }
                }
            };
            match step {
                // Others write their segments, or open one: both end soon, unless the disk or a process hangs.
                Step::Wait if waits == WAIT_SPINS => return Err(StoreError::Full),
                Step::Wait => {
                    os::wait_a_little(waits);
                    waits += 1;
                }
                Step::Flush(i) => match self.flush(io, i, stats) {
                    Err(e) if !cleaning => return Err(e),
                    _ => {}
                },
                Step::Open(i) => {
                    let segment = self.claim(io, cleaning, key);
                    let mut buffers = self.buffers.lock();
                    match segment {
                        Ok(segment) => {
                            self.buffers_used.fetch_max(i as u32 + 1, Relaxed);
                            buffers[i] = Buffer { state: BufferState::Open, segment, filled: 0 };
                        }
                        Err(e) => {
                            buffers[i].state = BufferState::Free;
                            return Err(e);
                        }
                    }
                }
            }
        }
    }

    /// Whether the time until which something rests, 0 for none, has not come.
    fn rests(&self, until_ns: &AtomicU64) -> bool {
        let until_ns = until_ns.load(Relaxed);
        until_ns != 0 && os::monotonic_ns() < until_ns
    }

    fn failed(&self, stats: &StoreStats) {
        add(&stats.errors, 1);
        self.retry_at_ns.store(os::monotonic_ns() + RETRY_NS, Relaxed);
    }

    /// Writes what a buffer in state `Writing` holds. On failure the buffer keeps it.
    fn flush<I: FileIo>(&self, io: &I, index: usize, stats: &StoreStats) -> core::result::Result<(), StoreError> {
        let Buffer { segment, filled, .. } = self.buffers.lock()[index];
        // Only the buffer's own mark is left: nobody will ever read it.
        let dead = self.usage(segment).live.load(Acquire) == 1;
        let write = || self.write(io, index, segment, filled as usize, stats);
        // A full disk may be full of what children that ended had shared.
        if !dead && write().is_err() && !(self.collect(io, true) && write().is_ok()) {
            self.buffers.lock()[index].state = BufferState::Stuck;
            self.failed(stats);
            return Err(StoreError::Full);
        }
        self.retry_at_ns.store(0, Relaxed);
        self.buffers.lock()[index].state = BufferState::Free;
        self.release_slots(io, segment, 1);
        Ok(())
    }

    fn write<I: FileIo>(&self, io: &I, index: usize, segment: u32, len: usize, stats: &StoreStats) -> Result<()> {
        // Only its own file: what another process's file holds is that process's.
        if self.own() != Some(volume_of(segment)) {
            return Err(Errno::EBADF);
        }
        let fd = self.own_write_fd().ok_or(Errno::EBADF)?;
        // SAFETY: what is filled does not change, and the buffer is not given up before this returns.
        let bytes = unsafe { core::slice::from_raw_parts(self.buffer(index) as *const u8, len) };
        let offset = number_of(segment) as u64 * SEGMENT_BYTES as u64;
        let mut done = 0;
        while done < bytes.len() {
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

    // ---- segments ----

    /// Tells the family how large the own file is.
    fn publish(&self) {
        if let Some(own) = self.own()
            && let Some(file) = (self.volumes[own].family.load(Relaxed) as usize).checked_sub(1)
        {
            self.family().set_size(file, self.in_use.load(Relaxed));
        }
    }

    /// Whether what the family uses, with one segment that was just added, is within the limit.
    fn fits(&self, kept: u32, reap: bool) -> bool {
        if !self.bounded {
            return self.in_use.load(Relaxed) <= self.max_segments;
        }
        // Who is not counted gets nothing.
        let counted = self.own().is_some_and(|own| self.volumes[own].family.load(Relaxed) != 0);
        counted
            && self.family().segments(reap.then(|| self.space.load(Relaxed)))
                <= self.max_segments.saturating_sub(kept) as u64
    }

    fn claim<I: FileIo>(&self, io: &I, cleaning: bool, key: u16) -> core::result::Result<u32, StoreError> {
        // The last segment of a bounded file is for the cleaner, which needs room to make room.
        let kept = if !cleaning && self.bounded && self.max_segments >= CLEANER_RESERVE_MIN_SEGMENTS { 1 } else { 0 };
        let mut reap = false;
        loop {
            self.in_use.fetch_add(1, AcqRel);
            self.publish();
            if self.fits(kept, reap)
                && let Some(segment) = self.find(io)
            {
                self.take(segment, key);
                return Ok(segment);
            }
            self.in_use.fetch_sub(1, AcqRel);
            self.publish();
            if reap || self.rests(&self.reaped_at_ns) {
                return Err(StoreError::Full);
            }
            reap = true;
            self.reaped_at_ns.store(os::monotonic_ns() + REAP_NS, Relaxed);
            self.collect(io, true);
        }
    }

    /// Makes a busy segment one that a buffer holds.
    fn take(&self, segment: u32, key: u16) {
        let usage = self.usage(segment);
        usage.written.store(0, Relaxed);
        usage.filled.store(0, Relaxed);
        self.keys.hold(key);
        usage.bits.store(USED | (key as u32) << KEY_SHIFT, Release);
        usage.live.store(1, Release);
        self.volume(segment).live_segments.fetch_add(1, AcqRel);
        if self.in_use.load(Relaxed).saturating_sub(self.left.load(Relaxed)) > CLEAN_MIN_SEGMENTS {
            self.clean_wanted.store(true, Relaxed);
        }
    }

    /// Makes an empty segment of the own file busy.
    fn find<I: FileIo>(&self, io: &I) -> Option<u32> {
        let own = self.own()?;
        let volume = &self.volumes[own];
        let used = volume.bound.load(Acquire);
        let limit = (io.size_limit_bytes() / SEGMENT_BYTES as u64).min(self.segment_count as u64) as u32;
        if self.empty.load(Acquire) > 0 && used > 0 {
            let start = self.scan.load(Relaxed) % used;
            for i in 0..used {
                let number = (start + i) % used;
                let segment = segment_of(own, number);
                let bits = &self.usage(segment).bits;
                if number < limit
                    && bits.load(Relaxed) & STATE == EMPTY
                    && bits.compare_exchange(EMPTY, BUSY, AcqRel, Relaxed).is_ok()
                {
                    self.empty.fetch_sub(1, AcqRel);
                    self.scan.store(number + 1, Relaxed);
                    return Some(segment);
                }
            }
        }
        let number = volume.bound.fetch_update(AcqRel, Acquire, |next| (next < limit).then_some(next + 1)).ok()?;
        let segment = segment_of(own, number);
        debug_assert!(self.usage(segment).state() == UNUSED);
        self.usage(segment).bits.store(BUSY, Release);
        Some(segment)
    }

    /// Takes `slots` live slots off a segment; the last one gives the segment up. Does file I/O: no locks held.
    pub fn release_slots<I: FileIo>(&self, io: &I, segment: u32, slots: u32) {
        self.freed_slots.fetch_add(slots as u64, Relaxed);
        let usage = self.usage(segment);
        if slots == 0 || usage.live.fetch_sub(slots, AcqRel) != slots {
            return;
        }
        self.keys.release(usage.key());
        let volume = self.volume(segment);
        if self.own() != Some(volume_of(segment)) {
            volume.leave(number_of(segment), volume.user.load(Relaxed) as usize);
            if volume.live_segments.fetch_sub(1, AcqRel) == 1 {
                volume.state.store(CLOSING, SeqCst);
                self.close_idle();
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
    }

    /// Frees a segment of the own file that nobody needs any more.
    fn free_left<I: FileIo>(&self, io: &I, segment: u32) -> bool {
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
        if bits & SHARED != 0 && self.volume(segment).is_shared(number_of(segment)) {
            usage.bits.store(bits, Release);
            return false;
        }
        if let Some(fd) = self.own_write_fd() {
            // Where the file system cannot do it, the blocks are overwritten by the next use.
            let _ = io.punch(fd, number_of(segment) as u64 * SEGMENT_BYTES as u64, SEGMENT_BYTES as u64);
        }
        usage.bits.store(EMPTY, Release);
        self.left.fetch_sub(1, AcqRel);
        self.empty.fetch_add(1, AcqRel);
        self.in_use.fetch_sub(1, AcqRel);
        self.publish();
        true
    }

    /// Frees the segments of the own file that this process had left before others did. Returns whether there were any.
    pub fn collect<I: FileIo>(&self, io: &I, reap: bool) -> bool {
        let Some(own) = self.own() else { return false };
        if self.left.load(Acquire) == 0 {
            return false;
        }
        let volume = &self.volumes[own];
        if reap {
            volume.reap(false);
        }
        if let Some(table) = volume.table() {
            self.left_seen.store(table.left.load(Acquire), Relaxed);
        }
        let mut any = false;
        for number in 0..volume.bound.load(Acquire) {
            let segment = segment_of(own, number);
            any |= self.usage(segment).state() == LEFT && self.free_left(io, segment);
        }
        any
    }

    /// Does so now and then, looking for dead processes.
    pub fn tend<I: FileIo>(&self, io: &I) {
        let shared = || self.own().is_some_and(|own| self.volumes[own].table().is_some());
        if shared() && !self.rests(&self.reaped_at_ns) {
            self.reaped_at_ns.store(os::monotonic_ns() + REAP_NS, Relaxed);
            if let Some(own) = self.own() {
                self.volumes[own].reap(false);
            }
            self.collect(io, false);
        }
    }

    /// Does so where another process says that it has left something.
    fn collect_if_told<I: FileIo>(&self, io: &I) {
        let told = |table: &Table| table.left.load(Acquire) != self.left_seen.load(Relaxed);
        if self.left.load(Acquire) > 0
            && let Some(own) = self.own()
            && self.volumes[own].table().is_some_and(told)
        {
            self.collect(io, false);
        }
    }

    /// Closes files that this process does not need any more, unless someone reads there just now.
    fn close_idle(&self) {
        // A vforked child has a table of descriptors of its own: its parent closes the parent's.
        if os::getpid() != self.pid.load(Relaxed) {
            return;
        }
        for volume in &self.volumes {
            if volume.state.load(SeqCst) == CLOSING
                && let Some(file) = volume.close_if_idle(self.segment_count)
                && let Some(process) = self.process()
            {
                self.family().close(process, file);
            }
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
        !self.rests(&self.clean_at_ns) || freed >= CLEAN_FREED_SLOTS
    }

    /// The cleaner emptied a segment: what could not be written for want of room is tried again at once.
    pub fn cleaned(&self) {
        self.retry_at_ns.store(0, Relaxed);
    }

    /// The cleaner won nothing.
    pub fn rest_cleaning(&self) {
        self.freed_at_rest.store(self.freed_slots.load(Relaxed), Relaxed);
        self.clean_at_ns.store(os::monotonic_ns() + RETRY_NS, Relaxed);
    }

    /// The segment of the own file, written and not buffered, of which the smallest part is live, and that would be free
    /// once it is empty.
    pub fn sparsest(&self) -> Option<u32> {
        let own = self.own()?;
        let volume = &self.volumes[own];
        let mut best: Option<(u64, u32)> = None;
        let buffered = *self.buffers.lock();
        for number in 0..volume.bound.load(Acquire) {
            let segment = segment_of(own, number);
            let usage = self.usage(segment);
            let (bits, bytes) = (usage.bits.load(Acquire), usage.live_bytes());
            let busy = |b: &Buffer| b.state != BufferState::Free && b.segment == segment;
            // At least a quarter must be won.
            if bits & STATE != USED
                || usage.live.load(Relaxed) == 0
                || bytes * 4 > SEGMENT_BYTES as u64 * 3
                || best.is_some_and(|(least, _)| bytes >= least)
                || bits & PINNED != 0
                || bits & SHARED != 0 && volume.is_shared(number)
                || buffered.iter().any(busy)
            {
                continue;
            }
            best = Some((bytes, segment));
        }
        best.map(|(_, segment)| segment)
    }

    /// Keeps a segment with live slots from being freed, as one more slot would. False where it has none any more, or is not
    /// written out.
    pub fn hold<I: FileIo>(&self, io: &I, segment: u32) -> bool {
        let usage = self.usage(segment);
        if usage.live.fetch_update(AcqRel, Acquire, |live| (live > 0).then_some(live + 1)).is_err() {
            return false;
        }
        let open = |b: &Buffer| b.state != BufferState::Free && b.segment == segment;
        let ready = usage.written.load(Acquire) > 0 && !self.buffers.lock().iter().any(open);
        if !ready {
            self.release_slots(io, segment, 1);
        }
        ready
    }

    /// Whether nothing but the caller's own [`FileTier::hold`] is left of a segment.
    pub fn is_emptied(&self, segment: u32) -> bool {
        self.usage(segment).live.load(Acquire) == 1
    }

    // ---- fork and exit ----

    /// Writes out and closes the open segment. Failing, the buffer keeps it.
    fn flush_open<I: FileIo>(&self, io: &I, stats: &StoreStats) {
        let open = {
            let mut buffers = self.buffers.lock();
            let open = buffers.iter().position(|b| b.state == BufferState::Open);
            open.inspect(|&i| buffers[i].state = BufferState::Writing)
        };
        if let Some(i) = open {
            let _ = self.flush(io, i, stats);
        }
    }

    /// Writes out and closes the open segment, and reserves what the child needs in the tables of the files.
    pub fn fork_prepare<I: FileIo>(&self, io: &I, stats: &StoreStats) -> ForkedUse {
        // Failing, both keep the bytes.
        self.flush_open(io, stats);
        self.forget_kept(io);
        self.close_idle();
        self.collect(io, true);
        let mut forked = ForkedUse::NONE;
        for (index, volume) in self.volumes.iter().enumerate() {
            if volume.state.load(SeqCst) == HELD && volume.live_segments.load(Acquire) > 0 {
                forked.users[index] = self.share(index, volume) as u8;
                // What this process itself does not hold as a numbered user, nobody will free.
                let freed = self.own() == Some(index) || volume.user.load(Relaxed) != FOR_EVER as u32;
                forked.pinned |= freed && forked.users[index] == FOR_EVER as u8;
            }
        }
        add(&stats.pinned_forks, forked.pinned as u64);
        let files = self.volumes.iter().zip(forked.users).filter(|(_, user)| *user != NO_USER);
        let files = files.filter_map(|(volume, _)| (volume.family.load(Relaxed) as usize).checked_sub(1));
        forked.process = self.family().reserve(self.space.load(Relaxed), files).map_or(0, |process| process as u32 + 1);
        forked
    }

    /// Marks what this process needs of a file as needed by a child, too. Returns the child's number there.
    fn share(&self, index: usize, volume: &Volume) -> usize {
        let own = self.own() == Some(index);
        if !own && volume.user.load(Relaxed) == FOR_EVER as u32 {
            return FOR_EVER;
        }
        let table = if own { volume.share(self.segment_count) } else { volume.table() };
        if own {
            self.shared.store(true, Release);
        }
        let reserve = |table: &Table| {
            table.users.reserve().or_else(|| {
                // Others do not know all segments of the file.
                if own {
                    volume.reap(true);
                }
                table.users.reserve()
            })
        };
        let user = table.and_then(reserve).unwrap_or(FOR_EVER);
        for number in 0..volume.bound.load(Acquire) {
            let usage = self.usage(segment_of(index, number));
            if usage.live.load(Acquire) > 0 {
                usage.bits.fetch_or(if table.is_none() || user == FOR_EVER { SHARED | PINNED } else { SHARED }, AcqRel);
                volume.join(number, user);
            }
        }
        user
    }

    /// In the parent, after the fork: `child_pid` as fork returned it, or not positive where it failed.
    pub fn fork_parent<I: FileIo>(&self, io: &I, forked: &ForkedUse, child_pid: i32) {
        for (volume, user) in self.volumes.iter().zip(forked.users) {
            let user = user as usize;
            let Some(table) = volume.table().filter(|_| user < MAX_USERS) else { continue };
            if child_pid > 0 {
                table.users.confirm(user, child_pid);
            } else {
                volume.leave_all(user);
                table.users.set(user, 0);
            }
        }
        if let Some(process) = (forked.process as usize).checked_sub(1) {
            if child_pid > 0 {
                self.family().confirm(process, child_pid);
            } else {
                self.family().forget(process);
            }
        }
        if child_pid > 0 {
            self.keys.renew(|secret| io.random(secret).is_ok());
        }
        // One that could not be had before.
        if self.own().is_none() {
            self.open_own(io);
        }
    }

    /// In the child, before anything else: `parent_pid` is the parent's own idea of its process id. Afterwards the child
    /// cannot write to any file but its own new one.
    pub fn fork_child<I: FileIo>(&self, io: &I, forked: &ForkedUse, parent_pid: i32, stats: &StoreStats) {
        // SAFETY: touches no memory.
        let seen = unsafe { outswap_sys::syscall0(outswap_sys::nr::GETPPID) } as i32;
        let pids_unknown = seen != parent_pid && seen == 0;
        let pid = os::getpid();
        self.pid.store(pid, Relaxed);
        self.keys.renew(|secret| io.random(secret).is_ok());
        for until in [&self.retry_at_ns, &self.reaped_at_ns, &self.clean_at_ns] {
            until.store(0, Relaxed);
        }
        *self.execs.lock() = Execs { count: 0, files: [0; MAX_VOLUMES] };
        self.process.store(forked.process, Relaxed);
        if pids_unknown {
            // The first of a pid namespace is known by the number that its parent has of it. Without a number for all of them
            // nobody judges.
            self.space.store(if forked.process == 0 { u32::MAX } else { forked.process }, Relaxed);
        } else if let Some(process) = self.process()
            && !self.family().claim(process, parent_pid, pid)
        {
            self.process.store(0, Relaxed);
        }
        for (volume, user) in self.volumes.iter().zip(forked.users) {
            volume.begin_child(user as usize, parent_pid, pid, pids_unknown);
        }
        add(&stats.forks_without_file, !self.begin_own(io) as u64);
    }

    /// A buffer with a segment of another process's file that was never written: its memory, with what is filled of it, and
    /// the offset. While the process has one thread.
    pub fn kept(&self, index: usize) -> Option<(*mut u8, usize, u64)> {
        let Buffer { state, segment, filled } = self.buffers.lock()[index];
        let kept = state == BufferState::Kept;
        kept.then(|| (self.buffer(index) as *mut u8, filled as usize, segment as u64 * SEGMENT_BYTES as u64))
    }

    /// Finds a segment of the own file for what a kept buffer holds, whatever the limit: it was within it before the fork.
    /// `None` where nothing can be written.
    pub fn adopt<I: FileIo>(&self, io: &I) -> Option<u64> {
        let key = self.keys.current_key()?;
        let segment = self.find(io)?;
        self.in_use.fetch_add(1, AcqRel);
        self.publish();
        self.take(segment, key);
        Some(segment as u64 * SEGMENT_BYTES as u64)
    }

    /// A kept buffer's bytes, of which `slots` slots are live, are now those of the segment at `to`.
    pub fn adopted<I: FileIo>(&self, io: &I, index: usize, to: u64, slots: u32) {
        let segment = (to / SEGMENT_BYTES as u64) as u32;
        let (from, usage) = (self.buffers.lock()[index], self.usage(segment));
        usage.live.fetch_add(slots, AcqRel);
        usage.written.store(slots, Relaxed);
        usage.filled.store(from.filled, Relaxed);
        self.buffers.lock()[index] = Buffer { state: BufferState::Stuck, segment, filled: from.filled };
        self.release_slots(io, from.segment, slots + 1);
    }

    /// Frees kept buffers in which nothing is live any more.
    fn forget_kept<I: FileIo>(&self, io: &I) {
        for index in 0..SEGMENT_BUFFERS {
            let buffer = self.buffers.lock()[index];
            if buffer.state == BufferState::Kept && self.usage(buffer.segment).live.load(Acquire) == 1 {
                self.buffers.lock()[index].state = BufferState::Free;
                self.release_slots(io, buffer.segment, 1);
            }
        }
    }

    /// Before this process executes a program, which ends its share in all files. While it does, nothing new is written.
    pub fn begin_exec(&self) {
        let mut execs = self.execs.lock();
        execs.count += 1;
        if execs.count > 1 || os::getpid() != self.pid.load(Relaxed) {
            return;
        }
        self.volumes.iter().for_each(|volume| volume.begin_exec(os::getpid()));
        for (file, volume) in execs.files.iter_mut().zip(&self.volumes) {
            *file = volume.family.swap(0, AcqRel);
        }
        if let Some(process) = self.process() {
            self.process.store(0, Relaxed);
            self.family().forget(process);
        }
    }

    /// After such an attempt failed; the last one's ends what the first began.
    pub fn exec_failed(&self) {
        let mut execs = self.execs.lock();
        // A fork in between has forgotten all.
        let last = execs.count == 1;
        execs.count = execs.count.saturating_sub(1);
        if !last || os::getpid() != self.pid.load(Relaxed) {
            return;
        }
        self.volumes.iter().for_each(|volume| volume.exec_failed(os::getpid()));
        let space = self.space.load(Relaxed);
        let held = |(index, &file): (usize, &u32)| {
            let other = self.own() != Some(index) && self.volumes[index].state.load(SeqCst) != FREE;
            (file as usize).checked_sub(1).filter(|_| other)
        };
        let Some(process) = self.family().reserve(space, execs.files.iter().enumerate().filter_map(held)) else {
            return;
        };
        self.family().set(process, os::getpid());
        self.process.store(process as u32 + 1, Relaxed);
        for (index, file) in execs.files.iter().enumerate() {
            if let Some(file) = held((index, file)) {
                self.volumes[index].family.store(file as u32 + 1, Release);
            }
        }
        if let Some(own) = self.own() {
            // Somebody else may have its number by now.
            let file = self.family().take_file(process, space);
            self.volumes[own].family.store(file.map_or(0, |file| file as u32 + 1), Release);
            self.publish();
        }
    }

    /// Gives up all that this process holds of other processes' files. The store must not be used afterwards.
    pub fn release_process(&self) {
        for volume in self.volumes.iter().filter(|v| v.state.load(SeqCst) == HELD) {
            let user = volume.user.load(Relaxed) as usize;
            if let Some(table) = volume.table().filter(|_| user < MAX_USERS) {
                volume.leave_all(user);
                table.users.set(user, 0);
                volume.user.store(FOR_EVER as u32, Relaxed);
            }
        }
        if let Some(process) = self.process() {
            self.family().forget(process);
        }
    }

    /// Closes and unmaps everything.
    ///
    /// # Safety
    /// Nothing uses the tier any more.
    pub unsafe fn destroy(&self) {
        self.release_process();
        [&self.write_fd, &self.directory_fd, &self.spare_fd].into_iter().for_each(Self::close);
        for volume in &self.volumes {
            volume.state.store(CLOSING, SeqCst);
            volume.close_if_idle(self.segment_count);
        }
    }

    /// The key of the segment at an offset.
    #[cfg(test)]
    pub fn key_of(&self, offset: u64) -> u16 {
        self.usage((offset / SEGMENT_BYTES as u64) as u32).key()
    }

    /// The own file's table, if it was ever shared, for who scribbles over it: its address and words.
    #[cfg(test)]
    pub fn shared_table(&self) -> Option<(usize, usize)> {
        let volume = &self.volumes[self.own()?];
        Some((volume.table()? as *const Table as usize, volume.table_words(self.segment_count)))
    }

    /// The same of the family.
    #[cfg(test)]
    pub fn shared_family(&self) -> (usize, usize) {
        (self.family, size_of::<Family>() / 8)
    }
}
