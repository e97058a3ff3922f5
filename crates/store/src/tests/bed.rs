//! What the tests of the whole store share: contents, a file that fails on demand, stores that end with their test.
use crate::record::Record;
use crate::{
    Algorithm, Compressed, Config, File, FileIo, FileRead, Later, LiveIo, NewFile, Ram, RingIo, SEGMENT_BYTES,
    TierConfig, TierKind, Tiers, Worker,
};
use outswap_core::device::Device;
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use outswap_sys::{Errno, os};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

pub(crate) const LZ4: TierKind = TierKind::Compressed(Compressed(Algorithm::Lz4));
pub(crate) const ZSTD: TierKind = TierKind::Compressed(Compressed(Algorithm::Zstd(3)));

pub(crate) const RAM: TierKind = TierKind::Ram(Ram);
pub(crate) const FILE: TierKind = TierKind::File(File);

pub(crate) fn directory() -> Vec<u8> {
    std::env::temp_dir().into_os_string().into_encoded_bytes()
}

/// Fills pages so that the content tells `seed`: by `seed % 4` zeros, text-like, half random, all random.
pub(crate) fn fill(seed: u64, out: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let value = match seed % 4 {
            0 => 0,
            1 => seed ^ ((i / 16) as u64) << 40,
            2 if i / 32 % 2 == 0 => next(),
            2 => seed,
            _ => next(),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

pub(crate) fn page(seed: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    fill(seed, &mut page);
    page
}

/// What an injected fault does.
#[derive(Default)]
pub(crate) struct Faults {
    pub write_error: AtomicUsize,
    pub read_error: AtomicUsize,
    pub short: AtomicBool,
    pub truncated: AtomicBool,
    pub no_random: AtomicBool,
    pub no_file: AtomicBool,
    pub size_limit: AtomicU64,
    /// Segments that the disk has room for, 0 for enough, and which the file takes up.
    pub disk: AtomicUsize,
    pub on_disk: Mutex<std::collections::BTreeSet<u64>>,
    pub flip: AtomicBool,
    pub punched: AtomicUsize,
    pub swap: Mutex<Option<(u64, u64)>>,
    /// Single reads, and batches, that were made.
    pub reads: AtomicUsize,
    pub batches: AtomicUsize,
    /// Batches of reads go to the system together.
    pub ring: RingIo,
}

#[derive(Clone, Default)]
pub(crate) struct FaultIo(Arc<Faults>);

pub(crate) fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl FileIo for FaultIo {
    fn pread_all(&self, fd: i32, reads: &mut [FileRead<'_>]) {
        if self.0.ring.descriptor().is_some() {
            self.0.batches.fetch_add(1, SeqCst);
            return self.0.ring.pread_all(fd, reads);
        }
        for read in reads {
            read.result = self.pread(fd, read.buf, read.offset);
        }
    }
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> outswap_sys::Result<usize> {
        self.0.reads.fetch_add(1, SeqCst);
        if take(&self.0.read_error) {
            return Err(Errno::EIO);
        }
        if self.0.truncated.load(SeqCst) {
            return Ok(0);
        }
        let offset = match *self.0.swap.lock().expect("no test panics while it holds this") {
            Some((a, b)) if a == offset => b,
            _ => offset,
        };
        let len = if self.0.short.load(SeqCst) { buf.len().min(100) } else { buf.len() };
        let n = os::pread(fd, &mut buf[..len], offset)?;
        if self.0.flip.load(SeqCst) && n > 50 {
            buf[50] ^= 4;
        }
        Ok(n)
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> outswap_sys::Result<usize> {
        if take(&self.0.write_error) {
            return Err(Errno::ENOSPC);
        }
        let size_limit = self.0.size_limit.load(SeqCst);
        if size_limit != 0 && offset + buf.len() as u64 > size_limit {
            return Err(Errno::EFBIG);
        }
        let disk = self.0.disk.load(SeqCst);
        if disk != 0 {
            let mut on_disk = self.0.on_disk.lock().expect("no test panics while it holds this");
            if on_disk.insert(offset / SEGMENT_BYTES as u64) && on_disk.len() > disk {
                on_disk.remove(&(offset / SEGMENT_BYTES as u64));
                return Err(Errno::ENOSPC);
            }
        }
        let len = if self.0.short.load(SeqCst) { buf.len().min(5000) } else { buf.len() };
        os::pwrite(fd, &buf[..len], offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> outswap_sys::Result<()> {
        self.0.punched.fetch_add(1, SeqCst);
        self.0.on_disk.lock().expect("no test panics while it holds this").remove(&(offset / SEGMENT_BYTES as u64));
        os::punch_hole(fd, offset, len)
    }
    fn create(&self, directory_fd: i32) -> outswap_sys::Result<NewFile> {
        if self.0.no_file.load(SeqCst) { Err(Errno::EACCES) } else { LiveIo.create(directory_fd) }
    }
    fn random(&self, buf: &mut [u8]) -> outswap_sys::Result<()> {
        if self.0.no_random.load(SeqCst) { Err(Errno::ENOSYS) } else { LiveIo.random(buf) }
    }
    fn size_limit_bytes(&self) -> u64 {
        match self.0.size_limit.load(SeqCst) {
            0 => LiveIo.size_limit_bytes(),
            bytes => bytes,
        }
    }
}

/// A store that is unmapped at the end of its test, with a worker.
pub(crate) struct Bed {
    pub store: &'static Tiers<FaultIo>,
    pub faults: Arc<Faults>,
    workers: Vec<usize>,
}

impl Bed {
    pub fn new(tiers: &[(TierKind, u64)], slots: u32) -> Bed {
        Bed::of(tiers, slots, Later::Never, |config| config)
    }

    /// With folios cut into units of an order.
    pub fn with_units(tiers: &[(TierKind, u64)], unit_order: Option<Order>, slots: u32) -> Bed {
        Bed::of(tiers, slots, Later::Never, |config| TierConfig { unit_order, ..config })
    }

    /// With all tiers slowed to a device.
    pub fn with_device(tiers: &[(TierKind, u64)], device: Device, slots: u32) -> Bed {
        Bed::of(tiers, slots, Later::Never, |config| TierConfig { device, ..config })
    }

    fn of(tiers: &[(TierKind, u64)], slots: u32, later: Later, change: impl Fn(TierConfig) -> TierConfig) -> Bed {
        let tiers: Vec<_> = tiers.iter().map(|&(kind, max_bytes)| change(TierConfig::new(kind, max_bytes))).collect();
        let io = FaultIo::default();
        let faults = io.0.clone();
        let directory = directory();
        let config = Config {
            tiers: &tiers,
            slots,
            directory: &directory,
            requests_fd: None,
            min_fd: 100,
            later,
            devices: None,
        };
        let store = Tiers::init_with(&config, io).expect("memory for a small store");
        Bed { store, faults, workers: Vec::new() }
    }

    /// A store with a file alone, which is made when it is needed.
    pub fn later(slots: u32) -> Bed {
        Bed::of(&[(FILE, 0)], slots, Later::All, |tier| tier)
    }

    pub fn worker(&mut self) -> &'static mut Worker {
        let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
        self.workers.push(at);
        // SAFETY: fresh zeroed memory, unmapped in `drop` only.
        unsafe { Worker::init(at as *mut u8) }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // SAFETY: the test is over; its threads were joined.
        unsafe {
            self.store.destroy();
            for &at in &self.workers {
                let _ = os::munmap(at, Worker::BYTES);
            }
        }
    }
}

pub(crate) fn proptest_config() -> ProptestConfig {
    ProptestConfig { cases: 96, max_shrink_iters: 400, failure_persistence: None, ..Default::default() }
}

/// Stores pages 0.. of a kind that compresses to half until the file has been written to.
pub(crate) fn fill_file(bed: &mut Bed, worker: &mut Worker, pages: u32) {
    for slot in 0..pages {
        bed.store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room in the file");
    }
}

pub(crate) fn read_of(store: &Tiers<FaultIo>, worker: &mut Worker, slot: u32) -> Result<Page, StoreError> {
    let mut out = [0; PAGE_BYTES];
    store.get(SlotId(slot), &mut out, worker).map(|()| out)
}

pub(crate) fn read(bed: &Bed, worker: &mut Worker, slot: u32) -> Result<Page, StoreError> {
    read_of(bed.store, worker, slot)
}

/// Forks; the child makes raw system calls only, then ends with a status of 0 unless `child` says otherwise.
pub(crate) fn fork_store(bed: &Bed, child: impl FnOnce() -> i32) -> i32 {
    let ticket = bed.store.fork_prepare();
    // SAFETY: the child does as said above.
    let pid = unsafe { outswap_sys::syscall0(outswap_sys::nr::FORK) } as i32;
    if pid == 0 {
        // SAFETY: touches no memory. The child ends if it hangs.
        unsafe { outswap_sys::syscall1(outswap_sys::nr::ALARM, 50) };
        bed.store.fork_child(ticket);
        os::exit_group(child());
    }
    bed.store.fork_parent(ticket, pid);
    pid
}

pub(crate) fn wait(pid: i32) -> i32 {
    let mut status = 0i32;
    // SAFETY: `status` lives through the call.
    let got = unsafe { outswap_sys::syscall4(outswap_sys::nr::WAIT4, pid as usize, &raw mut status as usize, 0, 0) };
    assert_eq!(got, pid as isize);
    status
}

/// What is remembered of a slot.
pub(crate) fn record_of(store: &Tiers<FaultIo>, slot: u32) -> Record {
    store.records.get(&store.records.lock(slot), slot)
}
