//! The tiers as one store: making it, what the runtime reads and sets, and core's [`Store`].
use crate::compress::Worker;
use crate::config::{InitError, Later, SetUp, Tier, TierOrder};
use crate::file::FileTier;
use crate::io::FileIo;
use crate::kinds::{TierKind, Unit};
use crate::limits::{MAX_SLOTS, MAX_TIERS, MAX_UNIT_ORDER, SEGMENT_BYTES, UNIT_ORDER};
use crate::pace::{DeviceStates, Pace, Paced};
use crate::record;
use crate::regions::Regions;
use crate::ring::RingIo;
use crate::state::Tiers;
use crate::stats::{StoreStats, add};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::device::{Device, Request};
use outswap_core::slots::Unused;
use outswap_core::store::{Folio, Read, Run, Store, StoreError, Stored, Write};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use outswap_sys::Errno;

/// One tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierConfig {
    /// What it is made of.
    pub kind: TierKind,
    /// The most it may hold, 0 for no limit: memory really held for RAM, bytes of whole segments in use by the
    /// process and its forks for a file (which therefore needs [`SEGMENT_BYTES`](crate::SEGMENT_BYTES) at least).
    pub max_bytes: u64,
    /// The order of the units that folios are cut into and compressed in, at most [`MAX_UNIT_ORDER`]. The first tier that says so
    /// has its way. `None`: as the first compressor likes it best.
    pub unit_order: Option<Order>,
    /// The device that it is slowed to; [`Device::NONE`] for none.
    pub device: Device,
}

impl TierConfig {
    /// A tier whose units are as its compressor likes them best.
    pub const fn new(kind: TierKind, max_bytes: u64) -> TierConfig {
        TierConfig { kind, max_bytes, unit_order: None, device: Device::NONE }
    }
}

/// What a store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// Tiers from the fastest on, at most [`MAX_TIERS`].
    pub tiers: &'a [TierConfig],
    /// Slots, from 0 on; at most [`MAX_SLOTS`](crate::MAX_SLOTS).
    pub slots: u32,
    /// Directory of the file, with or without a NUL byte at its end. The file is made by [`Tiers::init`], and those of forked children as
    /// they are forked, but for those that are made later.
    pub directory: &'a [u8],
    /// Where a file is asked for that this process cannot make; `None`: nowhere.
    pub requests_fd: Option<i32>,
    /// The store's descriptors are moved to this number or above.
    pub min_fd: i32,
    /// Whose file is made when it is needed.
    pub later: Later,
    /// What the devices of the tiers are at, in memory that is shared with other processes. `None`: the store has such memory of
    /// its own, which those that are forked share.
    pub devices: Option<&'static DeviceStates>,
}

impl Config<'_> {
    /// The tiers as they run.
    ///
    /// # Errors
    /// Where they make no sense.
    fn order(&self) -> Result<TierOrder, InitError> {
        if self.slots == 0 || self.tiers.iter().any(|t| t.unit_order > Some(MAX_UNIT_ORDER)) {
            return Err(InitError::Config);
        }
        let wanted = self.tiers.iter().find_map(|t| t.unit_order);
        let liked = || self.tiers.iter().find_map(|t| t.kind.unit_order());
        let order = wanted.or_else(liked).unwrap_or(UNIT_ORDER);
        let settle = |t: &TierConfig| {
            let tier = t.kind.settle(order);
            Tier { is_synchronous: tier.is_synchronous && t.device.is_none(), ..tier }
        };
        TierOrder::new(self.tiers.iter().map(settle), order)
    }

    /// What the set-up of a tier is told.
    fn of(&self, tier: usize) -> SetUp<'_> {
        let max_bytes = self.tiers.get(tier).map_or(0, |t| t.max_bytes);
        let Config { directory, requests_fd, min_fd, later, .. } = *self;
        SetUp { max_bytes, directory, requests_fd, min_fd, later }
    }
}

impl Tiers<RingIo> {
    /// Makes a store that lives until the process ends, in memory of its own.
    pub fn init(config: &Config<'_>) -> Result<&'static Tiers<RingIo>, InitError> {
        Tiers::init_with(config, RingIo::default())
    }
}

impl<I: FileIo> Tiers<I> {
    /// As [`Tiers::init`], with the file reached through `io`.
    pub fn init_with(config: &Config<'_>, io: I) -> Result<&'static Tiers<I>, InitError> {
        let mut regions = Regions::NONE;
        match Self::make(config, io, &mut regions) {
            Ok(tiers) => Ok(tiers),
            Err(e) => {
                // SAFETY: nobody has seen the store yet, so nobody uses its regions.
                unsafe { regions.unmap() };
                Err(e)
            }
        }
    }

    fn make(config: &Config<'_>, io: I, regions: &mut Regions) -> Result<&'static Tiers<I>, InitError> {
        let order = config.order()?;
        let slots = config.slots.min(MAX_SLOTS);
        let at = regions.map(size_of::<Self>(), false).map_err(InitError::System)? as *mut Self;
        // SAFETY: fresh zeroed memory of the right size, page-aligned. All-zero is a valid value of every field
        // but the order, the keys and `io`, which are written here before a reference is made.
        let this = unsafe {
            (&raw mut (*at).io).write(Paced::new(io));
            (&raw mut (*at).order).write(order);
            FileTier::zero_to_valid(&raw mut (*at).file);
            &mut *at
        };
        this.budget.limit_bytes.store(u64::MAX, Relaxed);
        this.memory_limit_bytes.store(u64::MAX, Relaxed);
        let [table, touched] = record::table_bytes(slots);
        let table = regions.map(table, false).map_err(InitError::System)?;
        let touched = regions.map(touched, false).map_err(InitError::System)?;
        this.records.set(slots, table, touched);
        this.set_devices(config, regions)?;
        for tier in 0..MAX_TIERS {
            if Some(tier) != this.order.file {
                this.set_up(tier, &config.of(tier), regions)?;
            }
        }
        // Last, as it opens descriptors: nothing fails after that.
        if let Some(file) = this.order.file {
            this.set_up(file, &config.of(file), regions)?;
            this.io.begin(config.min_fd);
        }
        this.regions = *regions;
        Ok(this)
    }

    /// Has the tiers that are slowed to a device know where its state is.
    fn set_devices(&mut self, config: &Config<'_>, regions: &mut Regions) -> Result<(), InitError> {
        if config.tiers.iter().all(|t| t.device.is_none()) {
            return Ok(());
        }
        let states = match config.devices {
            Some(states) => states,
            None => {
                let at = regions.map(size_of::<DeviceStates>(), true).map_err(InitError::System)?;
                // SAFETY: zeroed memory of this size, which lives as long as the store.
                unsafe { &*(at as *const DeviceStates) }
            }
        };
        for (tier, asked) in config.tiers.iter().enumerate().filter(|(_, t)| !t.device.is_none()) {
            let pace = if Some(tier) == self.order.file { &mut self.io.pace } else { &mut self.paces[tier] };
            pace.set(asked.device, &states[tier]);
        }
        Ok(())
    }

    /// Unmaps the store and closes its files.
    ///
    /// # Safety
    /// Nothing may use the store any more, in any thread.
    pub unsafe fn destroy(&'static self) {
        if self.order.file.is_some() {
            // SAFETY: as the caller says.
            unsafe { self.file.destroy() };
            self.io.end();
        }
        let regions = self.regions;
        // SAFETY: the store is never used again, so its `io` may be dropped here.
        unsafe { core::ptr::drop_in_place((&raw const self.io).cast_mut()) };
        // SAFETY: nor is anything else of it.
        unsafe { regions.unmap() };
    }

    // ---- what the runtime reads and sets ----

    /// Counters and gauges. The pool gauges are brought up to date by this call.
    pub(crate) fn stats(&self) -> &StoreStats {
        self.stats.pool_bytes.store(self.budget.held_bytes.load(Relaxed), Relaxed);
        let sum = |count: fn(&Pace) -> &AtomicU64| {
            self.paces.iter().chain([&self.io.pace]).map(|pace| count(pace).load(Relaxed)).sum::<u64>()
        };
        self.stats.device_requests.store(sum(|pace| &pace.requests), Relaxed);
        self.stats.file_reads_together.store(self.io.reads_together(), Relaxed);
        self.stats.device_ns.store(sum(|pace| &pace.taken_ns), Relaxed);
        self.stats.device_wait_ns.store(sum(|pace| &pace.waited_ns), Relaxed);
        self.stats.pool_used_bytes.store(self.pools.iter().map(|p| p.used_bytes()).sum(), Relaxed);
        &self.stats
    }

    /// The files lie in memory: what is in them takes room there as what is in the pools does.
    pub(crate) fn count_file_as_memory(&self) {
        self.file_in_memory.store(true, Relaxed);
    }

    /// How many slots can be used; fewer than asked for only beyond [`MAX_SLOTS`].
    pub fn slots(&self) -> u32 {
        self.records.slots()
    }

    /// All descriptors that the store has open now, so that the runtime can guard just these against the program: of the own
    /// file, of its directory, one that keeps a number for a child, and of ancestors' files. Takes no lock.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.order.file.iter().flat_map(|_| self.file.files().descriptors().chain(self.io.descriptor()))
    }

    /// Closes the directory in which children get their files; those forked later have none to write to. For a process that
    /// is about to change its root directory so as to be confined to it: a descriptor of a directory would lead out.
    pub(crate) fn leave_directory(&self) {
        if self.order.file.is_some() {
            self.file.files().leave_directory();
        }
    }

    /// Nobody is asked for files any more.
    pub(crate) fn leave_requests(&self) {
        if self.order.file.is_some() {
            self.file.files().leave_requests();
        }
    }

    /// The descriptor that writes this process's file.
    pub fn file_descriptor(&self) -> Option<i32> {
        self.order.file.and(self.file.files().write_fd())
    }

    /// The descriptor of the ring through which files are read, where there is one. Of no file: nothing is reached by it alone.
    pub fn ring_descriptor(&self) -> Option<i32> {
        self.io.descriptor()
    }

    /// Whether the file of this process is to be made when it is needed.
    pub(crate) fn is_file_put_off(&self) -> bool {
        self.order.file.is_some() && self.file.files().is_put_off()
    }

    /// Makes the file of this process, where that was put off.
    pub(crate) fn make_file(&self) {
        if self.is_file_put_off() {
            self.file.make_own(&self.io);
        }
    }

    /// Why this process has no file to write to, if it should have: its file tier is full then.
    pub(crate) fn file_error(&self) -> Option<Errno> {
        self.order.file.and(self.file.files().open_error())
    }

    /// Bytes of segments in use in the files of the process and of all that it shares them with.
    pub fn file_segment_bytes(&self) -> u64 {
        if self.order.file.is_some() { self.file.segment_bytes() } else { 0 }
    }

    // ---- putting ----

    /// Puts a unit into the first tier that takes it.
    fn put_unit(&self, first: u32, raw: &[u8], worker: &mut Worker) -> Result<(), StoreError> {
        let mut unit = Unit::new(first, raw, self.order.file.is_some());
        loop {
            for tier in 0..MAX_TIERS {
                if self.offer(tier, &mut unit, worker).is_ok() {
                    let (offset, bytes) = (first as u64 * PAGE_BYTES as u64, raw.len() as u64);
                    worker.requests.add(&self.paces, tier, Request { is_write: true, offset, bytes });
                    return Ok(());
                }
                for i in 0..core::mem::take(&mut unit.stored_pages) {
                    self.free_slot(SlotId(first).plus(i), false);
                }
            }
            // A unit that does not compress was passed on to the file; now it may be kept raw.
            if !unit.skip_incompressible || unit.packed.is_none_or(|(_, len)| len.is_some()) {
                return Err(StoreError::Full);
            }
            unit.skip_incompressible = false;
        }
    }

    /// Puts a folio, all or nothing.
    fn put_folio(&self, first: SlotId, content: &[u8], worker: &mut Worker) -> Result<(), StoreError> {
        let pages = content.len() / PAGE_BYTES;
        let fits = Order::of(pages).is_some_and(|order| order.fits_at(first.0 as usize));
        if !fits || !self.records.in_range(first, pages) {
            add(&self.stats.full, 1);
            return Err(StoreError::Full);
        }
        let unit_pages = self.order.unit_order.pages().min(pages);
        for (i, unit) in content.chunks_exact(unit_pages * PAGE_BYTES).enumerate() {
            if let Err(e) = self.put_unit(first.0 + (i * unit_pages) as u32, unit, worker) {
                (0..i * unit_pages).for_each(|j| self.free_slot(first.plus(j), false));
                add(&self.stats.full, 1);
                return Err(e);
            }
        }
        Ok(())
    }
}

impl<I: FileIo> Store for Tiers<I> {
    type Worker = Worker;

    fn put(&self, first: SlotId, content: &[u8], worker: &mut Worker) -> Result<(), StoreError> {
        let result = self.put_folio(first, content, worker);
        worker.requests.end(&self.paces);
        result
    }

    fn write(&self, folios: &[Folio<'_>], worker: &mut Worker) -> Write {
        let mut stored = Stored::default();
        for (i, folio) in folios.iter().enumerate() {
            if self.put_folio(folio.first, folio.content, worker).is_err() {
                // Who is refused one makes room before the next.
                break;
            }
            stored.insert(i);
        }
        worker.requests.end(&self.paces);
        Write::Done(stored)
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Worker) -> Result<(), StoreError> {
        let pages = (out.len() / PAGE_BYTES) as u32;
        self.read(&[Run { first, pages, at: 0 }], out, worker).map(|_done| ())
    }

    fn read(&self, runs: &[Run], out: &mut [u8], worker: &mut Worker) -> Result<Read, StoreError> {
        let result = self.fetch(runs, out, worker);
        worker.requests.end(&self.paces);
        result.map(|()| Read::Done)
    }

    fn is_synchronous(&self, slot: SlotId) -> bool {
        Tiers::is_synchronous(self, slot)
    }

    fn is_scarce(&self, slot: SlotId) -> bool {
        Tiers::is_scarce(self, slot)
    }

    fn free(&self, slot: Unused) {
        self.free_slot(slot.slot(), false);
    }

    fn wipe(&self, slot: Unused) {
        self.free_slot(slot.slot(), true);
    }

    fn memory_bytes(&self) -> u64 {
        let tables = size_of::<Self>().next_multiple_of(PAGE_BYTES) as u64
            + self.records.touched_bytes()
            + self.order.ram().map(|t| self.pools[t].touched_table_bytes()).sum::<u64>();
        let file = match self.order.file {
            Some(_) => self.file.touched_bytes() + self.cleaning_used.load(Relaxed) as u64 * SEGMENT_BYTES as u64,
            None => 0,
        };
        self.budget.held_bytes.load(Relaxed) + tables + file + self.file_memory_bytes()
    }

    /// All RAM tiers together, and the file where that lies in memory. A put that would exceed it first spills older units.
    fn set_memory_limit_bytes(&self, bytes: u64) {
        self.memory_limit_bytes.store(bytes, Relaxed);
        self.budget.limit_bytes.store(bytes.saturating_sub(self.file_memory_bytes()), Relaxed);
    }

    /// Of the RAM tiers: puts alone do not win them back.
    fn excess_bytes(&self) -> u64 {
        self.budget.held_bytes.load(Relaxed).saturating_sub(self.budget.limit_bytes.load(Relaxed))
    }

    fn shrink(&self, bytes: u64, worker: &mut Worker) -> u64 {
        if self.order.file.is_some() {
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
