//! Stores for evicted pages: plain RAM, compressed RAM and an encrypted, unlinked file, as the tiers of one
//! [`Tiers`].
//!
//! Everything here may run in a signal handler: no allocation after [`Tiers::init`], no locks but short
//! spinlocks, raw system calls only. Slots are spread over [`SHARDS`] shards by cluster (512 slots); a shard's
//! lock covers its slots' records and its part of every pool. Files are never read or written under a lock.
//!
//! ```text
//! put: compress ──► first tier with room ──► no room: free spans, compact, spill the oldest span to the file
//! get: record of the slot (under the shard's lock) ──► copy out, unlock, decode
//! ```
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod limits;
mod lock;
mod stats;
mod io;
mod compress;
mod pool;
mod file;
#[cfg(test)]
mod tests;

pub use compress::{Algorithm, Worker};
use compress::{Codec, Compressor, decode};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use file::{FileTier, ForkedUse, Kept, Memory, Seal, Segment, UNIT_HEADER_BYTES, UnitId};
pub use io::{FileIo, LiveIo, NewFile};
pub use limits::{
    CHUNK_BYTES, CHUNK_PAGES, DESCRIPTORS, MAX_SLOTS, MAX_TIERS, MAX_USERS, MAX_VOLUMES, SEGMENT_BYTES, SHARDS,
};
use limits::{
    CLUSTER_ORDER, FILE_SLACK_BYTES, MAX_POOL_BYTES, MAX_REGIONS, MIN_POOL_BYTES, POOL_ADDRESS_SPACE_PARTS,
    POOL_SLACK_BYTES, SEGMENT_BUFFERS, SPAN_BYTES, UNIT_BYTES, VOLUME_ORDER, WAIT_SPINS,
};
use lock::{Guard, SpinLock};
use outswap_core::store::{Folio, Page, Store, StoreError};
use outswap_core::units::{FOLIO_PAGES, PAGE_BYTES, SlotId};
use outswap_sys::{Errno, os};
use pool::{Budget, Header, NoRoom, Object, Pool, PoolShard, SpanRef};
pub use stats::StoreStats;
use stats::add;

/// Records in a page of the record table.
const RECORDS_PER_PAGE: usize = PAGE_BYTES / 16;

/// What a tier is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierKind {
    /// Pages in RAM as they are.
    Ram,
    /// Compressed pages in RAM.
    Compressed(Algorithm),
    /// An encrypted, unlinked file. At most one tier is a file, and nothing is moved further down from it.
    File,
}

/// One tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierConfig {
    /// What it is made of.
    pub kind: TierKind,
    /// The most it may hold, 0 for no limit: memory really held for RAM, bytes of whole segments in use by the
    /// process and its forks for a file (which therefore needs [`SEGMENT_BYTES`] at least).
    pub max_bytes: u64,
}

/// What a store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// Tiers from the fastest on, at most [`MAX_TIERS`].
    pub tiers: &'a [TierConfig],
    /// Slots, from 0 on; at most [`MAX_SLOTS`].
    pub slots: u32,
    /// Directory of the file, with or without a NUL byte at its end. The file is opened by [`Tiers::init`], those of forked
    /// children as they are forked.
    pub directory: &'a [u8],
    /// The store's descriptors are moved to this number or above, see [`Tiers::descriptors`].
    pub min_fd: i32,
}

/// Why a store could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// No tiers, too many, two files, or no slots.
    Config,
    /// The system refused memory or randomness, or the directory's name is empty or too long.
    System(Errno),
}

/// A slot's record: where its content is.
///
/// `place`: bits 0-2 tier + 1 (0: holds nothing). In RAM: bits 8-39 the object. In the file: bit 3 chunk,
/// bits 4-5 page of the chunk, bits 6-7 codec, bits 8-22 length, bits 24-59 offset / 16, bits 60-63 which of the process's
/// files; then `nonce` is the unit's. Below, an offset has the file in its topmost four of 44 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
struct Record {
    place: u64,
    nonce: u64,
}

const INDEX_BITS: u64 = 3 << 4;

impl Record {
    fn ram(tier: usize, object: Object) -> Record {
        Record { place: (tier as u64 + 1) | (object.0 as u64) << 8, nonce: 0 }
    }
    fn file(tier: usize, id: UnitId, index: usize, offset: u64, nonce: u64) -> Record {
        let place = (tier as u64 + 1)
            | (id.chunk as u64) << 3
            | (index as u64) << 4
            | (id.codec as u64) << 6
            | (id.len as u64) << 8
            | (offset / file::UNIT_ALIGN as u64) << 24;
        Record { place, nonce }
    }
    fn tier(self) -> Option<usize> {
        (self.place as usize & 7).checked_sub(1)
    }
    fn object(self) -> Object {
        Object((self.place >> 8) as u32)
    }
    fn index(self) -> usize {
        (self.place >> 4) as usize & 3
    }
    fn unit(self, slot: u32) -> UnitId {
        UnitId {
            slot: slot - self.index() as u32,
            len: (self.place >> 8) as u16 & 0x7fff,
            chunk: self.place >> 3 & 1 != 0,
            codec: Codec::from_bits(self.place >> 6),
        }
    }
    fn offset(self) -> u64 {
        (self.place >> 24) * file::UNIT_ALIGN as u64
    }
    fn segment(self) -> Segment {
        Segment::at(self.offset())
    }
    /// A page's part of its unit's bytes in the file.
    fn share_bytes(self) -> u64 {
        let id = self.unit(3);
        (id.stored_bytes() / id.pages() as usize) as u64
    }
    /// Whether two slots `apart` pages apart are of the same unit in the file.
    fn same_unit(self, other: Record, apart: usize) -> bool {
        (self.place ^ other.place) & !INDEX_BITS == 0
            && self.nonce == other.nonce
            && self.index() + apart == other.index()
    }
}

/// What a shard's lock covers, besides its slots' records.
struct Shard {
    pools: [PoolShard; MAX_TIERS],
}

/// A tier as it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    None,
    Ram,
    Compressed(Compressor),
    File,
}

/// The tiers of a swap specification, as one store.
pub struct Tiers<I: FileIo = LiveIo> {
    tiers: [Tier; MAX_TIERS],
    /// The last RAM tier and the file: what spills where.
    last_ram: Option<usize>,
    file_tier: Option<usize>,
    /// Pages of a folio that are compressed together.
    folio_unit_pages: usize,
    slots: u32,
    records: usize,
    /// One byte for each page of the record table: touched.
    record_pages: usize,
    touched_record_pages: AtomicU64,
    cleaning_buffer: SpinLock<usize>,
    cleaning_used: AtomicU32,
    shards: [SpinLock<Shard>; SHARDS],
    pools: [Pool; MAX_TIERS],
    budget: Budget,
    file: FileTier,
    stats: StoreStats,
    regions: [(usize, usize); MAX_REGIONS],
    io: I,
}

/// What a fork needs to be told to both sides, see [`Tiers::fork_prepare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkTicket {
    child: ForkedUse,
    parent_pid: i32,
}

impl ForkTicket {
    /// Whether the tree has so many processes that what the child shares will never be freed.
    pub fn is_pinned(self) -> bool {
        self.child.is_pinned()
    }
}

/// Regions mapped for one store, to be unmapped when making it fails.
struct Regions([(usize, usize); MAX_REGIONS], usize);

impl Regions {
    fn map(&mut self, bytes: usize, shared: bool) -> Result<usize, Errno> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let at = if shared {
            let flags = os::MAP_SHARED | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
            // SAFETY: no address given, so nothing is replaced.
            unsafe { os::mmap(0, bytes, os::PROT_READ | os::PROT_WRITE, flags, -1, 0)? }
        } else {
            os::mmap_anonymous(bytes)?
        };
        // What is swapped out is not for core dumps, least of all the key; failing is harmless.
        // SAFETY: an advice that drops nothing.
        let _ = unsafe { os::madvise(at, bytes, os::MADV_DONTDUMP) };
        if !shared {
            // A huge page would be held for one touched byte, uncounted.
            // SAFETY: an advice that drops nothing.
            let _ = unsafe { os::madvise(at, bytes, os::MADV_NOHUGEPAGE) };
        }
        self.0[self.1] = (at, bytes);
        self.1 += 1;
        Ok(at)
    }

    fn unmap(&self) {
        for &(at, bytes) in &self.0[..self.1] {
            // SAFETY: the store that was to use the regions does not exist (any more).
            let _ = unsafe { os::munmap(at, bytes) };
        }
    }
}

/// The process's limit of address space, if it has one.
fn address_space_limit_bytes() -> Option<u64> {
    const RLIMIT_AS: usize = 9;
    let mut limit = [u64::MAX; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { outswap_sys::syscall4(outswap_sys::nr::PRLIMIT64, 0, RLIMIT_AS, 0, limit.as_mut_ptr() as usize) };
    (limit[0] != u64::MAX).then_some(limit[0])
}

impl Tiers<LiveIo> {
    /// Makes a store that lives until the process ends, in memory of its own.
    pub fn init(config: &Config<'_>) -> Result<&'static Tiers<LiveIo>, InitError> {
        Tiers::init_with(config, LiveIo)
    }
}

impl<I: FileIo> Tiers<I> {
    /// As [`Tiers::init`], with the file reached through `io`.
    pub fn init_with(config: &Config<'_>, io: I) -> Result<&'static Tiers<I>, InitError> {
        let mut regions = Regions([(0, 0); MAX_REGIONS], 0);
        // SAFETY: nobody has seen the store yet, so on failure nobody uses its regions.
        match Self::make(config, io, &mut regions) {
            Ok(tiers) => Ok(tiers),
            Err(e) => {
                regions.unmap();
                Err(e)
            }
        }
    }

    fn make(config: &Config<'_>, io: I, regions: &mut Regions) -> Result<&'static Tiers<I>, InitError> {
        let files = config.tiers.iter().filter(|t| t.kind == TierKind::File).count();
        if config.tiers.is_empty() || config.tiers.len() > MAX_TIERS || files > 1 || config.slots == 0 {
            return Err(InitError::Config);
        }
        let slots = config.slots.min(MAX_SLOTS);
        let at = regions.map(size_of::<Self>(), false).map_err(InitError::System)? as *mut Self;
        // SAFETY: fresh zeroed memory of the right size, page-aligned. All-zero is a valid value of every field
        // but the enums, the options and `io`, which are written here before a reference is made.
        let this = unsafe {
            (&raw mut (*at).io).write(io);
            (&raw mut (*at).tiers).write([Tier::None; MAX_TIERS]);
            (&raw mut (*at).last_ram).write(None);
            (&raw mut (*at).file_tier).write(None);
            FileTier::zero_to_valid(&raw mut (*at).file);
            &mut *at
        };
        this.budget.limit_bytes.store(u64::MAX, Relaxed);
        this.slots = slots;
        let table = slots as usize * size_of::<Record>();
        this.records = regions.map(table, false).map_err(InitError::System)?;
        this.record_pages = regions.map(table.div_ceil(PAGE_BYTES), false).map_err(InitError::System)?;

        let first = config.tiers.iter().find_map(|t| match t.kind {
            TierKind::Compressed(algorithm) => Some(Compressor::new(algorithm).folio_unit_pages()),
            _ => None,
        });
        this.folio_unit_pages = first.unwrap_or(CHUNK_PAGES);

        let limit_bytes = address_space_limit_bytes();
        for (i, tier) in config.tiers.iter().enumerate() {
            this.tiers[i] = match tier.kind {
                TierKind::Ram => Tier::Ram,
                TierKind::Compressed(algorithm) => Tier::Compressed(Compressor::new(algorithm)),
                TierKind::File => Tier::File,
            };
            if tier.kind == TierKind::File {
                this.file_tier = Some(i);
                continue;
            }
            this.last_ram = Some(i);
            let max = if tier.max_bytes == 0 { u64::MAX } else { tier.max_bytes };
            let all = slots as u64 * PAGE_BYTES as u64;
            let want = max.min(all + all / 16).saturating_add(POOL_SLACK_BYTES).min(MAX_POOL_BYTES);
            let mut bytes = limit_bytes.map_or(want, |limit| want.min(limit / POOL_ADDRESS_SPACE_PARTS)) as usize;
            loop {
                bytes = (bytes / SPAN_BYTES).max(1) * SPAN_BYTES;
                match regions.map(bytes, false) {
                    Ok(base) => {
                        let spans = regions.map(pool::table_bytes(bytes), false).map_err(InitError::System)?;
                        this.pools[i].set(base, bytes, spans, max);
                        break;
                    }
                    Err(e) if bytes <= MIN_POOL_BYTES => return Err(InitError::System(e)),
                    Err(_) => bytes /= 2,
                }
            }
        }
        // Last, as it opens descriptors: nothing fails after that.
        if let Some(tier) = config.tiers.iter().find(|t| t.kind == TierKind::File) {
            this.make_file(config, tier, regions)?;
        }
        this.regions = regions.0;
        Ok(this)
    }

    fn make_file(&mut self, config: &Config<'_>, tier: &TierConfig, regions: &mut Regions) -> Result<(), InitError> {
        let all = self.slots as u64 * PAGE_BYTES as u64;
        // Twice what the slots can hold: segments that are half dead, and those of other processes of the tree.
        let bytes = if tier.max_bytes == 0 { 2 * all + FILE_SLACK_BYTES } else { tier.max_bytes };
        let segments = (bytes / SEGMENT_BYTES as u64).clamp(1, 1 << VOLUME_ORDER) as usize;
        let [family, usage, keys, buffers] = file::memory_bytes(segments);
        let mut map = |bytes, shared| regions.map(bytes, shared).map_err(InitError::System);
        let memory = Memory {
            family: map(family, true)?,
            usage: map(usage, false)?,
            keys: map(keys, false)?,
            buffers: map(buffers, false)?,
        };
        *self.cleaning_buffer.lock() = map(SEGMENT_BYTES, false)?;
        let (max, fd) = (tier.max_bytes, config.min_fd);
        self.file.set(&self.io, &memory, segments as u32, max, fd, config.directory).map_err(InitError::System)
    }

    /// Unmaps the store and closes its files.
    ///
    /// # Safety
    /// Nothing may use the store any more, in any thread.
    pub unsafe fn destroy(&'static self) {
        if self.file_tier.is_some() {
            // SAFETY: as the caller says.
            unsafe { self.file.destroy() };
        }
        let count = self.regions.iter().take_while(|r| r.1 > 0).count();
        let regions = Regions(self.regions, count);
        // SAFETY: the store is never used again, so its `io` may be dropped here.
        unsafe { core::ptr::drop_in_place((&raw const self.io).cast_mut()) };
        regions.unmap();
    }

    // ---- what the runtime reads and sets ----

    /// Counters and gauges. The pool gauges are brought up to date by this call.
    pub fn stats(&self) -> &StoreStats {
        self.stats.pool_bytes.store(self.budget.held_bytes.load(Relaxed), Relaxed);
        self.stats.pool_used_bytes.store(self.pools.iter().map(|p| p.used_bytes()).sum(), Relaxed);
        &self.stats
    }

    /// How many slots can be used; fewer than asked for only beyond [`MAX_SLOTS`].
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Sets how much memory all RAM tiers together may hold. A put that would exceed it first spills older
    /// units; a limit below what is held now is reached by [`Store::shrink`].
    pub fn set_memory_limit_bytes(&self, bytes: u64) {
        self.budget.limit_bytes.store(bytes, Relaxed);
    }

    /// Bytes that the RAM tiers hold beyond their limit, which puts alone do not win back.
    pub fn excess_bytes(&self) -> u64 {
        self.budget.held_bytes.load(Relaxed).saturating_sub(self.budget.limit_bytes.load(Relaxed))
    }

    /// All descriptors that the store has open now, so that the runtime can guard just these against the program: of the own
    /// file, of its directory, one that keeps a number for a child, and of ancestors' files. Takes no lock.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.file_tier.iter().flat_map(|_| self.file.files().descriptors())
    }

    /// Closes the directory in which children get their files; those forked later have none to write to. For a process that
    /// is about to change its root directory so as to be confined to it: a descriptor of a directory would lead out.
    pub fn leave_directory(&self) {
        if self.file_tier.is_some() {
            self.file.files().leave_directory();
        }
    }

    /// The descriptor that writes this process's file.
    pub fn file_descriptor(&self) -> Option<i32> {
        self.file_tier.and(self.file.files().write_fd())
    }

    /// Why this process has no file to write to, if it should have: its file tier is full then.
    pub fn file_error(&self) -> Option<Errno> {
        self.file_tier.and(self.file.files().open_error())
    }

    /// Bytes of segments in use in the files of the process and of all that it shares them with.
    pub fn file_segment_bytes(&self) -> u64 {
        if self.file_tier.is_some() { self.file.segment_bytes() } else { 0 }
    }

    /// Whether reading `slot` needs no file (see "synchronous store").
    pub fn is_synchronous(&self, slot: SlotId) -> bool {
        let shard = self.lock(slot.0);
        self.record(&shard, slot.0).tier() != self.file_tier || self.file_tier.is_none()
    }

    // ---- fork and exit ----

    /// In the parent before a fork, while no other call is in progress anywhere in the process.
    pub fn fork_prepare(&self) -> ForkTicket {
        let file = self.file_tier.map(|_| self.file.fork_prepare(&self.io, &self.stats));
        let child = file.unwrap_or(ForkedUse::NONE);
        ForkTicket { child, parent_pid: os::getpid() }
    }

    /// In the parent after the fork; `child_pid` is what fork returned (not positive: it failed).
    pub fn fork_parent(&self, ticket: ForkTicket, child_pid: i32) {
        if self.file_tier.is_some() {
            self.file.fork_parent(&self.io, &ticket.child, child_pid);
        }
    }

    /// In the child, before any other use of the store and before any of the program's code runs: afterwards the child has no
    /// descriptor that can write to its parent's file.
    pub fn fork_child(&self, ticket: ForkTicket) {
        self.stats.begin_child();
        if self.file_tier.is_some() {
            self.file.fork_child(&self.io, &ticket.child, ticket.parent_pid, &self.stats);
            self.adopt();
        }
    }

    /// Whether the process can write to a file that its children may read, see [`Tiers::give_up_writing`].
    pub fn is_writing_shared(&self) -> bool {
        self.file_tier.is_some() && self.file.files().is_writing_shared()
    }

    /// Before the process gives up rights that its children keep: afterwards it cannot change what they read, which is then in
    /// a file that it only reads as well. What it swaps out later goes to a new file; where none can be made, the tier is full.
    /// No other call may be in progress anywhere in the process. Does nothing in a vforked child.
    pub fn give_up_writing(&self) {
        if self.file_tier.is_some() {
            self.file.give_up_writing(&self.io, &self.stats);
            self.adopt();
        }
    }

    /// Makes what could not be written to the file before, in a forked child to its parent's, the own file's, sealed anew.
    fn adopt(&self) {
        for index in 0..SEGMENT_BUFFERS {
            let Some(Kept { at, filled_bytes, offset: from }) = self.file.kept(index) else { continue };
            let Some(to) = self.file.adopt(&self.io) else { return };
            // SAFETY: the filled part of a buffer that only this thread, the only one of its process, knows.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at, filled_bytes) };
            let mut moved = 0;
            self.for_units(bytes, |id, at, unit| {
                let old = from + at as u64;
                if let Some(nonce) = self.find_unit(id, old)
                    && let Some(seal) = self.file.reseal(id, old, nonce, unit)
                {
                    let pages = self.repoint(id, old, nonce, to + at as u64, seal.nonce);
                    let share_bytes = (id.stored_bytes() / id.pages() as usize) as u64;
                    self.file.segments.count_own(to, pages as u64 * share_bytes, 0);
                    moved += pages;
                }
                true
            });
            self.file.adopted(&self.io, index, to, moved);
        }
    }

    /// Before the process executes a program: what it shares with others is theirs as soon as it has. While it tries, a file
    /// with a limit is full. For the process itself, not for one that it vforked.
    pub fn begin_exec(&self) {
        if self.file_tier.is_some() {
            self.file.begin_exec();
        }
    }

    /// After an exec that [`Tiers::begin_exec`] announced has failed.
    pub fn exec_failed(&self) {
        if self.file_tier.is_some() {
            self.file.exec_failed();
        }
    }

    /// At exit: gives up this process's part of the files of others. The store must not be used afterwards.
    pub fn release_process(&self) {
        if self.file_tier.is_some() {
            self.file.files().release_process();
        }
    }

    // ---- records ----

    fn lock(&self, slot: u32) -> Guard<'_, Shard> {
        self.shards[(slot >> CLUSTER_ORDER) as usize % SHARDS].lock()
    }

    fn record(&self, _shard: &Guard<'_, Shard>, slot: u32) -> Record {
        debug_assert!(slot < self.slots);
        // SAFETY: the table has a record for each slot, and the shard's lock is held.
        unsafe { (self.records as *const Record).add(slot as usize).read() }
    }

    fn set_record(&self, _shard: &Guard<'_, Shard>, slot: u32, record: Record) {
        debug_assert!(slot < self.slots);
        let page = slot as usize / RECORDS_PER_PAGE;
        // SAFETY: one byte for each page of the table; the shard's lock is held.
        unsafe {
            let touched = &*((self.record_pages + page) as *const AtomicU8);
            if touched.load(Relaxed) == 0 {
                touched.store(1, Relaxed);
                self.touched_record_pages.fetch_add(1, Relaxed);
            }
            (self.records as *mut Record).add(slot as usize).write(record);
        }
    }

    fn in_range(&self, first: SlotId, pages: usize) -> bool {
        first.0 as usize + pages <= self.slots as usize
    }

    // ---- putting ----

    fn insert(&self, tier: usize, first: u32, pages: usize, codec: Codec, payload: &[u8]) -> Result<(), NoRoom> {
        let mut shard = self.lock(first);
        let live = (1u8 << pages) - 1;
        let header = Header { slot: first, live, chunk: pages > 1, len: payload.len() as u16, codec };
        let object = self.pools[tier].insert(&mut shard.pools[tier], header, payload, &self.budget)?;
        for i in 0..pages as u32 {
            self.set_record(&shard, first + i, Record::ram(tier, object));
        }
        add(&self.stats.pages_out_ram, pages as u64);
        Ok(())
    }

    /// Stores a unit of RAM, making room where this is the last RAM tier. `payload` is `None` for what the
    /// worker has packed.
    fn put_ram(
        &self,
        tier: usize,
        first: u32,
        pages: usize,
        packed: Option<usize>,
        raw: &[u8],
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let Some(len) = packed else {
            // Raw chunks are stored by page: the largest object is smaller than a chunk, and any page of it
            // can then be freed alone.
            for (i, page) in raw.chunks_exact(PAGE_BYTES).enumerate() {
                while self.insert(tier, first + i as u32, 1, Codec::Raw, page).is_err() {
                    if Some(tier) != self.last_ram || !self.make_room(worker) {
                        (0..i as u32).for_each(|j| self.free(SlotId(first + j)));
                        return Err(StoreError::Full);
                    }
                }
            }
            return Ok(());
        };
        let codec = match self.tiers[tier] {
            Tier::Compressed(compressor) => compressor.codec,
            _ => return Err(StoreError::Full),
        };
        if self.insert(tier, first, pages, codec, &worker.packed[..len]).is_ok() {
            return Ok(());
        }
        if Some(tier) != self.last_ram {
            return Err(StoreError::Full);
        }
        // Making room uses the worker's buffer, so the unit is packed again afterwards, which is seldom.
        loop {
            if !self.make_room(worker) {
                return Err(StoreError::Full);
            }
            let Tier::Compressed(compressor) = self.tiers[tier] else { return Err(StoreError::Full) };
            let len = compressor.compress(raw, worker).ok_or(StoreError::Full)?;
            if self.insert(tier, first, pages, codec, &worker.packed[..len]).is_ok() {
                return Ok(());
            }
        }
    }

    /// Seals a unit and appends it to the file. `packed` as in `put_ram`.
    fn put_file(
        &self,
        tier: usize,
        first: u32,
        pages: usize,
        packed: Option<(Codec, usize)>,
        raw: &[u8],
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let (codec, len) = packed.unwrap_or((Codec::Raw, raw.len()));
        let id = UnitId { slot: first, len: len as u16, chunk: pages > 1, codec };
        let Worker { packed: buffer, sealed, .. } = worker;
        let payload = if packed.is_some() { &buffer[..len] } else { raw };
        let seal = self.file.seal(id, payload, sealed).ok_or(StoreError::Full)?;
        let offset = self.append(sealed, seal, pages as u32)?;
        let shard = self.lock(first);
        let mut bytes = 0;
        for i in 0..pages {
            let record = Record::file(tier, id, i, offset, seal.nonce);
            bytes += record.share_bytes();
            self.set_record(&shard, first + i as u32, record);
        }
        drop(shard);
        self.count_file_bytes(offset, bytes, 0);
        add(&self.stats.pages_out_file, pages as u64);
        Ok(())
    }

    /// Counts what became live, or no longer is, at an offset of a file.
    fn count_file_bytes(&self, offset: u64, added: u64, removed: u64) {
        add(&self.stats.file_live_bytes, added.wrapping_sub(removed));
        self.file.segments.count_own(offset, added, removed);
    }

    /// Appends to the file, cleaning a sparse segment where there is no room, or much is dead.
    fn append(&self, sealed: &[u8; UNIT_BYTES], seal: Seal, pages: u32) -> Result<u64, StoreError> {
        let append = || self.file.append(&self.io, &sealed[..seal.stored], seal.key, pages, false, &self.stats);
        match append() {
            Ok(offset) => {
                if self.file.segments.wants_cleaning() {
                    self.clean();
                }
                Ok(offset)
            }
            Err(_) if self.clean() => append(),
            Err(e) => Err(e),
        }
    }

    fn put_unit(&self, first: u32, raw: &[u8], worker: &mut Worker) -> Result<(), StoreError> {
        let pages = raw.len() / PAGE_BYTES;
        // The compressor whose result stands in the worker, and that result.
        let mut packed: Option<(Compressor, Option<usize>)> = None;
        // Set once a unit that does not compress has been passed on to the file; then it may be kept raw.
        for skip_incompressible in [self.file_tier.is_some(), false] {
            for (i, &tier) in self.tiers.iter().enumerate() {
                let result = match tier {
                    Tier::None => continue,
                    Tier::Ram => {
                        let result = self.put_ram(i, first, pages, None, raw, worker);
                        if result.is_err() {
                            // Making room uses the worker's buffer.
                            packed = None;
                        }
                        result
                    }
                    Tier::Compressed(compressor) => {
                        let len = match packed {
                            Some((by, len)) if by == compressor => len,
                            _ => {
                                let len = compressor.compress(raw, worker);
                                add(&self.stats.compress_in_total, raw.len() as u64);
                                add(&self.stats.compress_out_total, len.unwrap_or(raw.len()) as u64);
                                if len.is_none() {
                                    add(&self.stats.raw_units, 1);
                                }
                                packed = Some((compressor, len));
                                len
                            }
                        };
                        if len.is_none() && skip_incompressible {
                            continue;
                        }
                        let result = self.put_ram(i, first, pages, len, raw, worker);
                        if result.is_err() && Some(i) == self.last_ram {
                            packed = None;
                        }
                        result
                    }
                    Tier::File => {
                        let done = packed.and_then(|(by, len)| len.map(|len| (by.codec, len)));
                        self.put_file(i, first, pages, done, raw, worker)
                    }
                };
                if result.is_ok() {
                    return Ok(());
                }
            }
            if !skip_incompressible || packed.is_none_or(|(_, len)| len.is_some()) {
                break;
            }
        }
        Err(StoreError::Full)
    }

    // ---- making room ----

    fn release(&self, tier: usize, span: Option<SpanRef>) {
        if let Some(span) = span {
            self.pools[tier].release(span, &self.budget);
        }
    }

    fn ram_tiers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_TIERS).filter(|&i| matches!(self.tiers[i], Tier::Ram | Tier::Compressed(_)))
    }

    /// Gives back pool memory, or moves something down. False where nothing could be done.
    fn make_room(&self, worker: &mut Worker) -> bool {
        self.discard_cached() > 0 || self.compact() || self.spill(worker) == Ok(true)
    }

    fn discard_cached(&self) -> u64 {
        self.ram_tiers().map(|t| self.pools[t].discard_cached(&self.budget)).sum()
    }

    /// Empties one sparse span, where the pools' utilisation promises any.
    fn compact(&self) -> bool {
        for tier in self.ram_tiers() {
            let pool = &self.pools[tier];
            if pool.used_bytes() * 8 > pool.held_bytes() * 7 {
                continue;
            }
            for shard in &self.shards {
                let mut shard = shard.lock();
                let mut part = shard.pools[tier];
                let span = pool.compact(&mut part, |header, object| {
                    for i in 0..CHUNK_PAGES as u32 {
                        if header.live >> i & 1 != 0 {
                            self.set_record(&shard, header.slot + i, Record::ram(tier, object));
                        }
                    }
                    add(&self.stats.compacted_objects, 1);
                });
                shard.pools[tier] = part;
                drop(shard);
                if span.is_some() {
                    self.release(tier, span);
                    return true;
                }
            }
        }
        false
    }

    /// Moves the oldest span of the last RAM tier that has any to the file. `Ok(false)`: there is nothing to move.
    fn spill(&self, worker: &mut Worker) -> Result<bool, StoreError> {
        let Some(file) = self.file_tier else { return Ok(false) };
        let mut busy = false;
        let mut oldest: Option<(u64, usize, usize)> = None;
        for tier in self.ram_tiers().filter(|&t| t < file) {
            for (i, shard) in self.shards.iter().enumerate() {
                let shard = shard.lock();
                let part = &shard.pools[tier];
                if part.spilling {
                    busy = true;
                } else if let Some(birth) = self.pools[tier].oldest_birth(part)
                    && oldest.is_none_or(|(least, ..)| birth < least)
                {
                    oldest = Some((birth, tier, i));
                }
            }
        }
        let Some((_, tier, index)) = oldest else {
            return Ok(busy && self.wait_for_spill(file));
        };
        let pool = &self.pools[tier];
        let Some(span) = pool.drain_begin(&mut self.shards[index].lock().pools[tier]) else { return Ok(true) };
        let result = self.spill_span(file, tier, index, span, worker);
        let empty = pool.drain_end(&mut self.shards[index].lock().pools[tier], span);
        self.release(tier, empty);
        result.map(|()| true)
    }

    /// Waits for another thread that is spilling what there is. False where that takes too long.
    fn wait_for_spill(&self, file: usize) -> bool {
        let spilling = || self.shards.iter().any(|shard| shard.lock().pools[..file].iter().any(|part| part.spilling));
        for waits in 0..WAIT_SPINS {
            if !spilling() {
                return true;
            }
            os::wait_a_little(waits);
        }
        false
    }

    fn spill_span(
        &self,
        file: usize,
        tier: usize,
        index: usize,
        span: SpanRef,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let pool = &self.pools[tier];
        let mut from = 0;
        loop {
            let (object, header) = {
                let _shard = self.shards[index].lock();
                let Some((i, object)) = pool.next_live(span, from) else { return Ok(()) };
                from = i + 1;
                let header = pool.header(object);
                worker.packed[..header.len as usize].copy_from_slice(pool.payload(object, header));
                (object, header)
            };
            let id = UnitId { slot: header.slot, len: header.len, chunk: header.chunk, codec: header.codec };
            let Worker { packed, sealed, .. } = worker;
            let seal = self.file.seal(id, &packed[..header.len as usize], sealed).ok_or(StoreError::Full)?;
            let offset = self.append(sealed, seal, id.pages())?;
            let mut bytes = 0;
            let mut moved = 0;
            {
                let mut shard = self.shards[index].lock();
                // A draining span takes nothing new and is not compacted: a live object here is the one copied.
                if let Some(header) = pool.still_live(object, id.slot) {
                    for i in 0..id.pages() {
                        if header.live >> i & 1 != 0 {
                            let record = Record::file(file, id, i as usize, offset, seal.nonce);
                            self.set_record(&shard, id.slot + i, record);
                            bytes += record.share_bytes();
                            moved += 1;
                        }
                    }
                    let none = pool.remove(&mut shard.pools[tier], object);
                    debug_assert!(none.is_none(), "a draining span is its spiller's");
                }
            }
            self.count_file_bytes(offset, bytes, 0);
            add(&self.stats.pages_out_file, moved as u64);
            let segment = Segment::at(offset);
            self.file.segments.release(&self.io, segment, id.pages() - moved);
        }
    }

    /// Moves what is live in the sparsest segment into the open one. False where no segment was emptied; the cleaner then
    /// rests for a while, so that a store without room does not read its file over and over.
    fn clean(&self) -> bool {
        // One cleaner at a time; the one that cleans also comes here through `append`.
        let Some(buffer) = self.cleaning_buffer.try_lock() else { return false };
        if !self.file.segments.may_clean() {
            return false;
        }
        // What only dead children shared can be cleaned, too.
        self.file.segments.tend(&self.io);
        // Held, or it could be freed and filled anew while its old content is being moved.
        let Some(segment) = self.file.sparsest().filter(|&segment| self.file.hold(&self.io, segment)) else {
            self.file.segments.rest_cleaning();
            return false;
        };
        self.clean_segment(segment, *buffer);
        let emptied = self.file.segments.is_emptied(segment);
        self.file.segments.release(&self.io, segment, 1);
        if emptied {
            self.file.cleaned();
        } else {
            self.file.segments.rest_cleaning();
        }
        emptied
    }

    fn clean_segment(&self, segment: Segment, buffer: usize) {
        self.cleaning_used.store(1, Relaxed);
        // SAFETY: a region of this size, used under its lock only.
        let bytes = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u8, SEGMENT_BYTES) };
        let base = segment.offset();
        if self.file.read_segment(&self.io, segment, bytes, &self.stats) {
            self.for_units(bytes, |id, at, unit| self.move_unit(id, base + at as u64, unit).is_ok());
        }
    }

    /// Calls `each` with the units of a segment, in turn, while it returns true.
    fn for_units(&self, bytes: &mut [u8], mut each: impl FnMut(UnitId, usize, &mut [u8]) -> bool) {
        let mut at = 0;
        while let Some(id) = UnitId::parse(bytes.get(at..).unwrap_or(&[])) {
            let end = at + id.stored_bytes();
            if end > bytes.len() || id.slot as usize + id.pages() as usize > self.slots as usize {
                return;
            }
            if !each(id, at, &mut bytes[at..end]) {
                return;
            }
            at = end;
        }
    }

    /// Whether a record is that of `slot` in a unit at `from`.
    fn is_at(&self, record: Record, slot: u32, id: UnitId, from: u64) -> bool {
        record.tier() == self.file_tier
            && record.offset() == from
            && slot - id.slot == record.index() as u32
            && record.unit(slot) == id
    }

    /// The nonce of a unit, where any of its slots is live.
    fn find_unit(&self, id: UnitId, from: u64) -> Option<u64> {
        let shard = self.lock(id.slot);
        let mut of_unit = (0..id.pages()).map(|i| (self.record(&shard, id.slot + i), id.slot + i));
        of_unit.find(|&(record, slot)| self.is_at(record, slot, id, from)).map(|(record, _)| record.nonce)
    }

    /// Makes the live slots of a unit those of its copy at `to`. Returns how many there were.
    fn repoint(&self, id: UnitId, from: u64, nonce: u64, to: u64, new_nonce: u64) -> u32 {
        let shard = self.lock(id.slot);
        let mut moved = 0;
        for i in 0..id.pages() {
            let record = self.record(&shard, id.slot + i);
            // The nonce tells this unit from a later one in the same place.
            if self.is_at(record, id.slot + i, id, from) && record.nonce == nonce {
                let file = self.file_tier.unwrap_or(0);
                self.set_record(&shard, id.slot + i, Record::file(file, id, i as usize, to, new_nonce));
                moved += 1;
            }
        }
        moved
    }

    /// Moves what is live of a unit of the own file. A unit under the current key moves as it is: its seal is bound to the
    /// slot, not to the place.
    fn move_unit(&self, id: UnitId, from: u64, unit: &mut [u8]) -> Result<(), StoreError> {
        let Some(nonce) = self.find_unit(id, from) else { return Ok(()) };
        let Some(seal) = self.file.reseal(id, from, nonce, unit) else { return Ok(()) };
        let to = self.file.append(&self.io, unit, seal.key, id.pages(), true, &self.stats)?;
        let moved = self.repoint(id, from, nonce, to, seal.nonce);
        self.file.segments.release(&self.io, Segment::at(to), id.pages() - moved);
        self.file.segments.release(&self.io, Segment::at(from), moved);
        add(&self.stats.file_moved_units, (moved > 0) as u64);
        Ok(())
    }

    // ---- getting ----

    /// Reads what one unit has of `out`, from `slot` on. Returns the pages read.
    fn get_unit(&self, slot: u32, out: &mut [u8], worker: &mut Worker) -> Result<usize, StoreError> {
        let want = out.len() / PAGE_BYTES;
        loop {
            let shard = self.lock(slot);
            let record = self.record(&shard, slot);
            let Some(tier) = record.tier() else { return Err(StoreError::Corrupt) };
            // Slots of a unit are freed one by one and used again alone: each page's own record counts.
            if Some(tier) != self.file_tier {
                let pool = &self.pools[tier];
                let header = pool.header(record.object());
                let skip = (slot - header.slot) as usize;
                let size = if header.chunk { CHUNK_PAGES } else { 1 };
                let most = want.min(size - skip.min(size - 1));
                let run = (1..most).find(|&i| self.record(&shard, slot + i as u32) != record).unwrap_or(most);
                let after = slot + run as u32;
                if run < want && after >> CLUSTER_ORDER == slot >> CLUSTER_ORDER && after < self.slots {
                    let next = self.record(&shard, after);
                    if next.tier() == Some(tier) {
                        pool.prefetch(next.object());
                    }
                }
                let out = &mut out[..run * PAGE_BYTES];
                let payload = pool.payload(record.object(), header);
                let Worker { packed, scratch, .. } = worker;
                let (unit, skip) = (size * PAGE_BYTES, skip * PAGE_BYTES);
                let decoded = if header.codec == Codec::Zstd {
                    // Too slow to keep others waiting.
                    let packed = &mut packed[..payload.len()];
                    packed.copy_from_slice(payload);
                    drop(shard);
                    decode(header.codec, packed, unit, skip, out, scratch)
                } else {
                    // As fast as copying it: decoded where it lies.
                    let decoded = decode(header.codec, payload, unit, skip, out, scratch);
                    drop(shard);
                    decoded
                };
                if decoded.is_err() {
                    return Err(self.corrupt());
                }
                add(&self.stats.pages_in_ram, run as u64);
                return Ok(run);
            }
            let id = record.unit(slot);
            let skip = record.index();
            let most = want.min(id.pages() as usize - skip);
            let run = (1..most).find(|&i| !record.same_unit(self.record(&shard, slot + i as u32), i)).unwrap_or(most);
            drop(shard);
            let read = self.file.read(&self.io, id, record.nonce, record.offset(), &mut worker.packed, &self.stats);
            if read.is_err() && self.record(&self.lock(slot), slot) != record {
                // The cleaner moved the unit meanwhile.
                continue;
            }
            read.inspect_err(|&e| {
                if e == StoreError::Corrupt {
                    self.corrupt();
                }
            })?;
            let out = &mut out[..run * PAGE_BYTES];
            let unit = id.pages() as usize * PAGE_BYTES;
            let Worker { packed, scratch, .. } = worker;
            let src = &packed[UNIT_HEADER_BYTES..UNIT_HEADER_BYTES + id.len as usize];
            decode(id.codec, src, unit, skip * PAGE_BYTES, out, scratch).map_err(|()| self.corrupt())?;
            add(&self.stats.pages_in_file, run as u64);
            return Ok(run);
        }
    }

    fn corrupt(&self) -> StoreError {
        add(&self.stats.corruptions, 1);
        StoreError::Corrupt
    }

    /// Frees a slot. With `wipe`, its object is overwritten first, if no other slot shares it.
    fn free_slot(&self, slot: SlotId, wipe: bool) {
        if !self.in_range(slot, 1) {
            return;
        }
        let mut shard = self.lock(slot.0);
        let record = self.record(&shard, slot.0);
        let Some(tier) = record.tier() else { return };
        self.set_record(&shard, slot.0, Record::default());
        if Some(tier) == self.file_tier {
            drop(shard);
            self.count_file_bytes(record.offset(), 0, record.share_bytes());
            self.file.segments.release(&self.io, record.segment(), 1);
            return;
        }
        let (pool, object) = (&self.pools[tier], record.object());
        let mut header = pool.header(object);
        header.live &= !(1 << (slot.0 - header.slot));
        if header.live != 0 {
            pool.set_header(object, header);
            return;
        }
        if wipe {
            pool.wipe(object, header);
        }
        let span = pool.remove(&mut shard.pools[tier], object);
        drop(shard);
        self.release(tier, span);
    }
}

impl<I: FileIo> Store for Tiers<I> {
    type Worker = Worker;

    fn put_page(&self, slot: SlotId, page: &Page, worker: &mut Worker) -> Result<(), StoreError> {
        let result = if self.in_range(slot, 1) { self.put_unit(slot.0, page, worker) } else { Err(StoreError::Full) };
        if result.is_err() {
            add(&self.stats.full, 1);
        }
        result
    }

    fn put_folio(&self, first: SlotId, folio: &Folio, worker: &mut Worker) -> Result<(), StoreError> {
        if !self.in_range(first, FOLIO_PAGES) || !(first.0 as usize).is_multiple_of(FOLIO_PAGES) {
            return Err(StoreError::Full);
        }
        let pages = self.folio_unit_pages;
        for (i, unit) in folio.chunks_exact(pages * PAGE_BYTES).enumerate() {
            if let Err(e) = self.put_unit(first.0 + (i * pages) as u32, unit, worker) {
                (0..i * pages).for_each(|j| self.free(first.plus(j)));
                add(&self.stats.full, 1);
                return Err(e);
            }
        }
        Ok(())
    }

    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Worker) -> Result<(), StoreError> {
        if !self.in_range(first, out.len() / PAGE_BYTES) {
            return Err(StoreError::Corrupt);
        }
        let mut done = 0;
        while done < out.len() {
            let slot = first.0 + (done / PAGE_BYTES) as u32;
            done += self.get_unit(slot, &mut out[done..], worker)? * PAGE_BYTES;
        }
        Ok(())
    }

    fn free(&self, slot: SlotId) {
        self.free_slot(slot, false);
    }

    fn wipe(&self, slot: SlotId) {
        self.free_slot(slot, true);
    }

    fn memory_bytes(&self) -> u64 {
        let tables = size_of::<Self>().next_multiple_of(PAGE_BYTES) as u64
            + self.touched_record_pages.load(Relaxed) * PAGE_BYTES as u64
            + self.ram_tiers().map(|t| self.pools[t].touched_table_bytes()).sum::<u64>();
        let file = match self.file_tier {
            Some(_) => self.file.touched_bytes() + self.cleaning_used.load(Relaxed) as u64 * SEGMENT_BYTES as u64,
            None => 0,
        };
        self.budget.held_bytes.load(Relaxed) + tables + file
    }

    fn shrink(&self, bytes: u64, worker: &mut Worker) -> u64 {
        if self.file_tier.is_some() {
            self.file.segments.tend(&self.io);
        }
        let mut done = self.discard_cached();
        while done < bytes {
            if !self.compact() && self.spill(worker) != Ok(true) {
                break;
            }
            done += self.discard_cached();
        }
        done
    }
}
