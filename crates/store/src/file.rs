//! The file tier: sealed units in log-structured segments of an unlinked file, shared by a process and its
//! forked children.
//!
//! ```text
//! file    | segment 0 | segment 1 | ...                     256 KiB each
//! segment | unit | unit | ...                               written in one piece, never overwritten in use
//! unit    | slot 4 B | bits 4 B | ciphertext | tag 16 B | pad to 16 |
//! ```
//! A segment is filled in a buffer in memory and written when it is full; until it is written, reads are
//! answered from the buffer. It dies as a whole: when no process of the tree has a live slot in it, its blocks
//! are punched out of the file and its number is used again.
//!
//! Which processes need a segment is kept in shared memory, one bit a process. A private table counts the live
//! slots of this process in each segment; when a count falls to zero, the process takes its bit away.
use crate::compress::{Codec, UNIT_BYTES};
use crate::lock::SpinLock;
use crate::stats::{StoreStats, add};
use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes128Gcm, Key, Nonce, Tag};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use outswap_core::store::StoreError;
use outswap_sys::{Errno, Result, os};

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = 256 << 10;
/// Processes of a tree that can share a file at the same time. The last bit stands for "for ever".
pub const MAX_USERS: usize = 127;
const FOR_EVER: usize = MAX_USERS;
/// Segments being filled or written at the same time.
pub(crate) const BUFFERS: usize = 4;
/// Bytes of a unit's header in the file.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Units begin at multiples of this.
pub(crate) const UNIT_ALIGN: usize = 16;
/// How often a failing read is tried.
const READ_TRIES: usize = 3;
/// How long a tier that failed to write takes nothing new.
const RETRY_NS: u64 = 100_000_000;
/// Fewer segments than this are not worth cleaning.
const CLEAN_MIN_SEGMENTS: u64 = 8;

/// What the file tier asks of the system. Tests put a failing one in its place.
pub trait FileIo: Sync {
    /// Reads at an offset, as `pread(2)`.
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes at an offset, as `pwrite(2)`.
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize>;
    /// Frees a range of the file.
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()>;
}

/// The real system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveIo;

impl FileIo for LiveIo {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
        os::pread(fd, buf, offset)
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
        os::pwrite(fd, buf, offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()> {
        os::punch_hole(fd, offset, len)
    }
}

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
        if self.chunk { crate::compress::CHUNK_PAGES as u32 } else { 1 }
    }
}

const UNUSED: u32 = 0;
const FREE: u32 = 1;
const BUSY: u32 = 2;
const USED: u32 = 3;
const STATE: u32 = 3;

/// A segment, as all processes see it.
#[repr(C)]
struct Segment {
    /// Two bits of state; the rest counts reuses, so that a late check cannot free the next life.
    state: AtomicU32,
    pad: u32,
    users: [AtomicU64; 2],
}

/// What all processes that share the file see.
#[repr(C)]
struct Shared {
    nonce: AtomicU64,
    /// Segments from this number on were never used.
    next: AtomicU32,
    free: AtomicU32,
    in_use: AtomicU32,
    /// A child lives in another pid namespace: processes can no longer be told dead by their number.
    pids_unknown: AtomicU32,
    /// Process ids; 0 free, `RESERVED` between fork and the child's first step, negative while being cleared.
    users: [AtomicI32; MAX_USERS],
}

const RESERVED: i32 = i32::MIN;

/// What this process alone knows of a segment.
#[repr(C)]
struct Usage {
    /// Live slots, and one more while a buffer holds the segment.
    live: AtomicU32,
    /// Slots ever written.
    written: AtomicU32,
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
}

#[derive(Clone, Copy)]
struct Buffer {
    state: BufferState,
    segment: u32,
    filled: u32,
    flushed: u32,
}

/// The file tier of one process. All-zero memory is a tier without a file, see [`FileTier::set`].
pub(crate) struct FileTier {
    shared: usize,
    usage: usize,
    buffers_at: usize,
    segment_count: u32,
    max_segments: u32,
    min_fd: i32,
    directory: [u8; 1024],
    cipher: Option<Aes128Gcm>,
    salt: [u8; 4],
    /// Descriptor + 1; 0 before the file is opened.
    fd: AtomicI32,
    user: AtomicU32,
    buffers: SpinLock<[Buffer; BUFFERS]>,
    buffers_used: AtomicU32,
    retry_at_ns: AtomicU64,
    scan: AtomicU32,
    own_segments: AtomicU64,
    clean_wanted: AtomicBool,
}

/// Sizes of the tables for `segments` segments: shared, private.
pub(crate) fn table_bytes(segments: usize) -> (usize, usize) {
    (size_of::<Shared>() + segments * size_of::<Segment>(), segments * size_of::<Usage>())
}

impl FileTier {
    /// Makes zeroed memory a valid tier without a file.
    ///
    /// # Safety
    /// `at` points to zeroed memory that nothing else uses.
    pub unsafe fn zero_to_valid(at: *mut FileTier) {
        // SAFETY: as the caller says; all-zero is valid for every other field.
        unsafe { (&raw mut (*at).cipher).write(None) };
    }

    /// Sets the tier up over zeroed tables of [`table_bytes`] and `BUFFERS` zeroed segments of buffers.
    #[allow(clippy::too_many_arguments)]
    pub fn set(
        &mut self,
        shared: usize,
        usage: usize,
        buffers_at: usize,
        segments: u32,
        max_bytes: u64,
        min_fd: i32,
        directory: &[u8],
    ) -> Result<()> {
        let mut secret = [0u8; 20];
        let mut filled = 0;
        while filled < secret.len() {
            match os::getrandom(&mut secret[filled..]) {
                Ok(n) => filled += n,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        self.cipher = Some(Aes128Gcm::new(Key::<Aes128Gcm>::from_slice(&secret[..16])));
        self.salt.copy_from_slice(&secret[16..]);
        for byte in &mut secret {
            // SAFETY: a byte of our own array. Volatile, so that the key does not stay on the stack.
            unsafe { core::ptr::write_volatile(byte, 0) };
        }
        let room = self.directory.len() - 1;
        let text = directory.split(|&b| b == 0).next().unwrap_or(&[]);
        if text.is_empty() || text.len() > room {
            return Err(Errno::ENOENT);
        }
        self.directory[..text.len()].copy_from_slice(text);
        (self.shared, self.usage, self.buffers_at) = (shared, usage, buffers_at);
        self.segment_count = segments;
        let max = if max_bytes == 0 { segments as u64 } else { max_bytes / SEGMENT_BYTES as u64 };
        self.max_segments = max.min(segments as u64) as u32;
        self.min_fd = min_fd;
        self.user.store(0, Relaxed);
        self.shared().users[0].store(os::getpid(), Relaxed);
        Ok(())
    }

    fn shared(&self) -> &Shared {
        // SAFETY: `set` was given the table, which lives as long as the store.
        unsafe { &*(self.shared as *const Shared) }
    }

    fn segment(&self, segment: u32) -> &Segment {
        debug_assert!(segment < self.segment_count);
        // SAFETY: the table has `segment_count` entries behind the head.
        unsafe { &*((self.shared + size_of::<Shared>()) as *const Segment).add(segment as usize) }
    }

    fn usage(&self, segment: u32) -> &Usage {
        debug_assert!(segment < self.segment_count);
        // SAFETY: the table has `segment_count` entries.
        unsafe { &*(self.usage as *const Usage).add(segment as usize) }
    }

    fn used_segments(&self) -> u32 {
        self.shared().next.load(Acquire).min(self.segment_count)
    }

    /// Bytes of buffers and private tables that were touched.
    pub fn touched_bytes(&self) -> u64 {
        let buffers = self.buffers_used.load(Relaxed) as u64 * SEGMENT_BYTES as u64;
        buffers + (self.used_segments() as usize * size_of::<Usage>()).next_multiple_of(4096) as u64
    }

    /// Bytes of all segments in use by the tree.
    pub fn segment_bytes(&self) -> u64 {
        self.shared().in_use.load(Relaxed) as u64 * SEGMENT_BYTES as u64
    }

    /// The descriptor of the file, once it is open.
    pub fn fd(&self) -> Option<i32> {
        let fd = self.fd.load(Acquire);
        (fd != 0).then_some(fd - 1)
    }

    // ---- opening ----

    fn open(&self) -> Result<i32> {
        if let Some(fd) = self.fd() {
            return Ok(fd);
        }
        let flags = os::O_RDWR | os::O_CLOEXEC;
        let fd = match os::open(&self.directory, flags | os::O_TMPFILE, 0o600) {
            Ok(fd) => fd,
            // File systems without O_TMPFILE answer in one of these ways.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOENT | Errno(21)) => self.create_and_unlink(flags)?,
            Err(e) => return Err(e),
        };
        let high = os::fcntl(fd, os::F_DUPFD_CLOEXEC, self.min_fd.max(0) as usize);
        let fd = match high {
            Ok(high) => {
                let _ = os::close(fd);
                high as i32
            }
            // The limit of descriptors is lower than the wish: keep the one we have.
            Err(_) => fd,
        };
        self.fd.store(fd + 1, Release);
        Ok(fd)
    }

    fn create_and_unlink(&self, flags: usize) -> Result<i32> {
        const O_CREAT_EXCL: usize = 0o100 | 0o200;
        const AT_FDCWD: usize = -100isize as usize;
        let mut random = [0u8; 8];
        os::getrandom(&mut random)?;
        let mut path = [0u8; 1024 + 32];
        let len = self.directory.iter().position(|&b| b == 0).ok_or(Errno::ENOENT)?;
        path[..len].copy_from_slice(&self.directory[..len]);
        let name = b"/.outswap-";
        path[len..len + name.len()].copy_from_slice(name);
        for (i, byte) in random.iter().enumerate() {
            path[len + name.len() + 2 * i] = b"0123456789abcdef"[(byte >> 4) as usize];
            path[len + name.len() + 2 * i + 1] = b"0123456789abcdef"[(byte & 15) as usize];
        }
        let fd = os::open(&path, flags | O_CREAT_EXCL, 0o600)?;
        // SAFETY: the path is NUL-terminated and lives through the call.
        let gone = unsafe { outswap_sys::syscall3(outswap_sys::nr::UNLINKAT, AT_FDCWD, path.as_ptr() as usize, 0) };
        match outswap_sys::ret(gone) {
            Ok(_) => Ok(fd),
            Err(e) => {
                let _ = os::close(fd);
                Err(e)
            }
        }
    }

    // ---- sealing ----

    /// Seals `payload` into `out` as it will stand in the file. Returns its length there and its nonce.
    pub fn seal(&self, id: UnitId, payload: &[u8], out: &mut [u8; UNIT_BYTES]) -> Option<(usize, u64)> {
        let cipher = self.cipher.as_ref()?;
        let header = id.bytes();
        let nonce = self.shared().nonce.fetch_add(1, Relaxed);
        let end = UNIT_HEADER_BYTES + payload.len();
        out[..UNIT_HEADER_BYTES].copy_from_slice(&header);
        out[UNIT_HEADER_BYTES..end].copy_from_slice(payload);
        let body = &mut out[UNIT_HEADER_BYTES..end];
        let tag = cipher.encrypt_in_place_detached(&self.nonce(nonce), &header, body).ok()?;
        out[end..end + TAG_BYTES].copy_from_slice(&tag);
        let stored = id.stored_bytes();
        out[end + TAG_BYTES..stored].fill(0);
        Some((stored, nonce))
    }

    fn nonce(&self, counter: u64) -> Nonce<aes_gcm::aead::consts::U12> {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.salt);
        bytes[4..].copy_from_slice(&counter.to_le_bytes());
        bytes.into()
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
        let end = UNIT_HEADER_BYTES + id.len as usize;
        let stored = end + TAG_BYTES;
        if stored > buf.len() {
            return Err(StoreError::Corrupt);
        }
        self.read_raw(io, offset, &mut buf[..stored], stats)?;
        let (head, rest) = buf.split_at_mut(UNIT_HEADER_BYTES);
        let (body, rest) = rest.split_at_mut(id.len as usize);
        let tag = Tag::clone_from_slice(&rest[..TAG_BYTES]);
        let cipher = self.cipher.as_ref().ok_or(StoreError::Io)?;
        if head != id.bytes() {
            return Err(StoreError::Corrupt);
        }
        // The expected identity, not the one read, is what the seal must fit.
        cipher.decrypt_in_place_detached(&self.nonce(nonce), &id.bytes(), body, &tag).map_err(|_| StoreError::Corrupt)
    }

    /// Reads bytes of a segment from its buffer or the file.
    pub fn read_raw<I: FileIo>(
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
        let Some(fd) = self.fd() else { return Err(StoreError::Io) };
        let (mut done, mut tries) = (0, 0);
        while done < buf.len() {
            match io.pread(fd, &mut buf[done..], offset + done as u64) {
                Ok(n) if n > 0 => done += n.min(buf.len() - done),
                Err(Errno::EINTR) => {}
                // An error, or an end of file where there must be data.
                _ => {
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

    // ---- writing ----

    fn buffer(&self, index: usize) -> usize {
        self.buffers_at + index * SEGMENT_BYTES
    }

    /// Puts a sealed unit of `slots` pages into the open segment. Returns its offset in the file.
    pub fn append<I: FileIo>(
        &self,
        io: &I,
        sealed: &[u8],
        slots: u32,
        cleaning: bool,
        stats: &StoreStats,
    ) -> core::result::Result<u64, StoreError> {
        enum Step {
            Flush(usize),
            Open(usize),
            Wait,
        }
        loop {
            let step = {
                let mut buffers = self.buffers.lock();
                if let Some(i) = buffers.iter().position(|b| b.state == BufferState::Open) {
                    let buffer = &mut buffers[i];
                    let at = buffer.filled as usize;
                    if at + sealed.len() <= SEGMENT_BYTES {
                        // SAFETY: the open buffer's unfilled part is written under its lock only.
                        unsafe {
                            let to = (self.buffer(i) + at) as *mut u8;
                            core::ptr::copy_nonoverlapping(sealed.as_ptr(), to, sealed.len());
                        }
                        buffer.filled += sealed.len() as u32;
                        let usage = self.usage(buffer.segment);
                        usage.live.fetch_add(slots, Relaxed);
                        usage.written.fetch_add(slots, Relaxed);
                        return Ok(buffer.segment as u64 * SEGMENT_BYTES as u64 + at as u64);
                    }
                    buffer.state = BufferState::Writing;
                    Step::Flush(i)
                } else if buffers.iter().any(|b| b.state == BufferState::Opening) {
                    Step::Wait
                } else {
                    let retry_at_ns = self.retry_at_ns.load(Relaxed);
                    if retry_at_ns != 0 && os::monotonic_ns() < retry_at_ns {
                        return Err(StoreError::Full);
                    }
                    if let Some(i) = buffers.iter().position(|b| b.state == BufferState::Stuck) {
                        buffers[i].state = BufferState::Writing;
                        Step::Flush(i)
                    } else if let Some(i) = buffers.iter().position(|b| b.state == BufferState::Free) {
                        buffers[i].state = BufferState::Opening;
                        Step::Open(i)
                    } else {
                        Step::Wait
                    }
                }
            };
            match step {
                // Others write their segments, or open one: both end soon, and need nothing of us.
                Step::Wait => os::sched_yield(),
                Step::Flush(i) => self.flush(io, i, stats)?,
                Step::Open(i) => {
                    let segment = match self.open() {
                        Ok(_) => self.claim(io, cleaning),
                        Err(_) => {
                            self.failed(stats);
                            Err(StoreError::Full)
                        }
                    };
                    let mut buffers = self.buffers.lock();
                    match segment {
                        Ok(segment) => {
                            self.buffers_used.fetch_max(i as u32 + 1, Relaxed);
                            buffers[i] = Buffer { state: BufferState::Open, segment, filled: 0, flushed: 0 };
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

    fn failed(&self, stats: &StoreStats) {
        add(&stats.errors, 1);
        self.retry_at_ns.store(os::monotonic_ns() + RETRY_NS, Relaxed);
    }

    /// Writes what a buffer in state `Writing` holds. On failure the buffer keeps it.
    fn flush<I: FileIo>(&self, io: &I, index: usize, stats: &StoreStats) -> core::result::Result<(), StoreError> {
        let Buffer { segment, filled, flushed, .. } = self.buffers.lock()[index];
        // Only the buffer's own mark is left: nobody will ever read it.
        let dead = self.usage(segment).live.load(Acquire) == 1;
        let write = || self.write(io, index, segment, flushed as usize, filled as usize, stats);
        // A full disk may be full of what children that ended had shared.
        if !dead && write().is_err() && !(self.reap(io) && write().is_ok()) {
            self.buffers.lock()[index].state = BufferState::Stuck;
            self.failed(stats);
            return Err(StoreError::Full);
        }
        self.retry_at_ns.store(0, Relaxed);
        self.buffers.lock()[index].state = BufferState::Free;
        self.release_slots(io, segment, 1);
        Ok(())
    }

    fn write<I: FileIo>(
        &self,
        io: &I,
        index: usize,
        segment: u32,
        from: usize,
        to: usize,
        stats: &StoreStats,
    ) -> Result<()> {
        let fd = self.open()?;
        // SAFETY: what is filled does not change, and the buffer is not given up before this returns.
        let bytes = unsafe { core::slice::from_raw_parts((self.buffer(index) + from) as *const u8, to - from) };
        let offset = segment as u64 * SEGMENT_BYTES as u64 + from as u64;
        let mut done = 0;
        while done < bytes.len() {
            match io.pwrite(fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => done += n,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        add(&stats.file_written_total, done as u64);
        Ok(())
    }

    // ---- segments ----

    fn claim<I: FileIo>(&self, io: &I, cleaning: bool) -> core::result::Result<u32, StoreError> {
        let shared = self.shared();
        // The last segment of a bounded file is for the cleaner, which needs room to make room.
        let kept = if !cleaning && self.max_segments >= 4 { 1 } else { 0 };
        let mut reaped = false;
        loop {
            if shared.in_use.fetch_add(1, AcqRel) < self.max_segments.saturating_sub(kept) {
                break;
            }
            shared.in_use.fetch_sub(1, AcqRel);
            if reaped || !self.reap(io) {
                return Err(StoreError::Full);
            }
            reaped = true;
        }
        let Some(segment) = self.find() else {
            shared.in_use.fetch_sub(1, AcqRel);
            return Err(StoreError::Full);
        };
        let entry = self.segment(segment);
        let user = self.user.load(Relaxed) as usize;
        // The bit first: whoever sees the segment used and without users may free it.
        entry.users[user / 64].fetch_or(1 << (user % 64), AcqRel);
        let usage = self.usage(segment);
        usage.live.store(1, Relaxed);
        usage.written.store(0, Relaxed);
        let state = entry.state.load(Relaxed);
        entry.state.store((state & !STATE) | USED, Release);
        let own = self.own_segments.fetch_add(1, Relaxed) + 1;
        if own > CLEAN_MIN_SEGMENTS {
            self.clean_wanted.store(true, Relaxed);
        }
        Ok(segment)
    }

    /// Makes a free segment busy.
    fn find(&self) -> Option<u32> {
        let shared = self.shared();
        let used = self.used_segments();
        if shared.free.load(Acquire) > 0 && used > 0 {
            let start = self.scan.load(Relaxed) % used;
            for i in 0..used {
                let segment = (start + i) % used;
                let entry = self.segment(segment);
                let state = entry.state.load(Relaxed);
                if state & STATE == FREE
                    && entry.state.compare_exchange(state, (state & !STATE) | BUSY, AcqRel, Relaxed).is_ok()
                {
                    shared.free.fetch_sub(1, AcqRel);
                    self.scan.store(segment + 1, Relaxed);
                    return Some(segment);
                }
            }
        }
        let segment =
            shared.next.fetch_update(AcqRel, Acquire, |next| (next < self.segment_count).then_some(next + 1)).ok()?;
        self.segment(segment).state.store(UNUSED | BUSY, Release);
        Some(segment)
    }

    /// Takes `slots` live slots off a segment; the last one gives the segment up. Does file I/O: no locks held.
    pub fn release_slots<I: FileIo>(&self, io: &I, segment: u32, slots: u32) {
        if slots > 0 && self.usage(segment).live.fetch_sub(slots, AcqRel) == slots {
            self.own_segments.fetch_sub(1, Relaxed);
            self.leave(io, segment, self.user.load(Relaxed) as usize);
        }
    }

    /// Takes a user's bit off a segment and frees the segment if it was the last.
    fn leave<I: FileIo>(&self, io: &I, segment: u32, user: usize) {
        if user == FOR_EVER {
            return;
        }
        let entry = self.segment(segment);
        entry.users[user / 64].fetch_and(!(1 << (user % 64)), AcqRel);
        let state = entry.state.load(Acquire);
        if state & STATE != USED || entry.users.iter().any(|word| word.load(Acquire) != 0) {
            return;
        }
        let life = state & !STATE;
        if entry.state.compare_exchange(state, life | BUSY, AcqRel, Relaxed).is_err() {
            return;
        }
        if let Some(fd) = self.fd() {
            // Where the file system cannot do it, the blocks are overwritten by the next use.
            let _ = io.punch(fd, segment as u64 * SEGMENT_BYTES as u64, SEGMENT_BYTES as u64);
        }
        let shared = self.shared();
        entry.state.store(life.wrapping_add(STATE + 1) | FREE, Release);
        shared.free.fetch_add(1, AcqRel);
        shared.in_use.fetch_sub(1, AcqRel);
    }

    /// Frees what dead processes held. Returns whether there were any.
    fn reap<I: FileIo>(&self, io: &I) -> bool {
        let shared = self.shared();
        if shared.pids_unknown.load(Acquire) != 0 {
            return false;
        }
        let me = os::getpid();
        let mut any = false;
        for (user, entry) in shared.users.iter().enumerate() {
            let pid = entry.load(Acquire);
            if pid == 0 || pid == RESERVED || pid == me || os::kill(pid.abs(), 0) != Err(Errno::ESRCH) {
                continue;
            }
            // A negative number: its cleaner died too.
            if entry.compare_exchange(pid, -me, AcqRel, Relaxed).is_err() {
                continue;
            }
            self.leave_all(io, user);
            entry.store(0, Release);
            any = true;
        }
        any
    }

    fn leave_all<I: FileIo>(&self, io: &I, user: usize) {
        for segment in 0..self.used_segments() {
            if self.segment(segment).users[user / 64].load(Acquire) >> (user % 64) & 1 != 0 {
                self.leave(io, segment, user);
            }
        }
    }

    // ---- cleaning ----

    /// Whether so little of this process's segments is live that one should be emptied.
    pub fn wants_cleaning(&self, live_bytes: u64) -> bool {
        self.clean_wanted.load(Relaxed)
            && self.clean_wanted.swap(false, Relaxed)
            && live_bytes * 2 < self.own_segments.load(Relaxed) * SEGMENT_BYTES as u64
    }

    /// The segment, written and not buffered, of which the smallest part is live.
    pub fn sparsest(&self) -> Option<u32> {
        let mut best: Option<(u64, u32)> = None;
        let buffered = *self.buffers.lock();
        for segment in 0..self.used_segments() {
            let usage = self.usage(segment);
            let (live, written) = (usage.live.load(Relaxed) as u64, usage.written.load(Relaxed) as u64);
            let busy = |b: &Buffer| b.state != BufferState::Free && b.segment == segment;
            // At least a quarter must be won.
            if live == 0 || written == 0 || live * 4 > written * 3 || buffered.iter().any(busy) {
                continue;
            }
            let share = live * 1024 / written;
            if best.is_none_or(|(least, _)| share < least) {
                best = Some((share, segment));
            }
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

    // ---- fork and exit ----

    /// Writes out the open segment and reserves an entry for the child. False where no entry was free.
    pub fn fork_prepare<I: FileIo>(&self, io: &I, stats: &StoreStats) -> u32 {
        let open = self.buffers.lock().iter().position(|b| b.state == BufferState::Open);
        if let Some(i) = open {
            let Buffer { segment, filled, flushed, .. } = self.buffers.lock()[i];
            match self.write(io, i, segment, flushed as usize, filled as usize, stats) {
                Ok(()) => self.buffers.lock()[i].flushed = filled,
                Err(_) => {
                    // Both keep the bytes and will write the same ones to the same place.
                    self.buffers.lock()[i].state = BufferState::Stuck;
                    self.failed(stats);
                }
            }
        }
        // Children that ended hold on to what they shared.
        self.reap(io);
        let shared = self.shared();
        let free = || shared.users.iter().position(|u| u.compare_exchange(0, RESERVED, AcqRel, Relaxed).is_ok());
        let child = free().unwrap_or_else(|| {
            add(&stats.pinned_forks, 1);
            FOR_EVER
        });
        for segment in 0..self.used_segments() {
            if self.usage(segment).live.load(Acquire) > 0 {
                self.segment(segment).users[child / 64].fetch_or(1 << (child % 64), AcqRel);
            }
        }
        child as u32
    }

    /// In the parent, after the fork: `child_pid` as fork returned it, or not positive where it failed.
    pub fn fork_parent<I: FileIo>(&self, io: &I, child: u32, child_pid: i32) {
        if child as usize == FOR_EVER {
            return;
        }
        let entry = &self.shared().users[child as usize];
        if child_pid > 0 {
            // The child may have done so itself, or have ended already.
            let _ = entry.compare_exchange(RESERVED, child_pid, AcqRel, Relaxed);
        } else {
            self.leave_all(io, child as usize);
            entry.store(0, Release);
        }
    }

    /// In the child, before anything else: `parent_pid` is the parent's own idea of its process id.
    pub fn fork_child<I: FileIo>(&self, io: &I, child: u32, parent_pid: i32) {
        let shared = self.shared();
        // SAFETY: touches no memory.
        let seen = unsafe { outswap_sys::syscall0(outswap_sys::nr::GETPPID) } as i32;
        if seen != parent_pid && seen == 0 {
            shared.pids_unknown.store(1, Release);
        }
        self.user.store(child, Relaxed);
        if (child as usize) < MAX_USERS {
            shared.users[child as usize].store(os::getpid(), Release);
        }
        for i in 0..BUFFERS {
            let buffer = self.buffers.lock()[i];
            if buffer.state == BufferState::Open {
                // Written in full; the parent goes on filling it.
                self.buffers.lock()[i].state = BufferState::Free;
                self.release_slots(io, buffer.segment, 1);
            }
        }
    }

    /// Gives up all that this process holds. The store must not be used afterwards.
    pub fn release_process<I: FileIo>(&self, io: &I) {
        let user = self.user.load(Relaxed) as usize;
        if user < MAX_USERS {
            self.leave_all(io, user);
            self.shared().users[user].store(0, Release);
        }
    }
}
