//! What the scenarios share: a store, contents, forks, and gates for processes to wait at.
use outswap_core::slots::Unused;
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_store::ProcessStore;
use outswap_store::{Algorithm, Compressed, Config, File, Later, SEGMENT_BYTES, TierConfig, TierKind, Tiers, Worker};
use outswap_sys::{nr, os, syscall0, syscall1, syscall4};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub const LZ4: TierKind = TierKind::Compressed(Compressed(Algorithm::Lz4));

pub fn page(seed: u32) -> Page {
    let mut page = [0; PAGE_BYTES];
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Every fourth run of 64 bytes repeats, so that units are large but still compress.
        let value = if i / 8 % 4 == 0 { seed as u64 } else { state };
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Whose file is made when it is needed, in all scenarios.
pub static LATER: AtomicU32 = AtomicU32::new(0);

pub struct Bed {
    pub store: &'static Tiers,
    pub worker: &'static mut Worker,
}

impl Bed {
    pub fn new(tiers: &[TierConfig]) -> Bed {
        let directory = std::env::temp_dir().into_os_string().into_encoded_bytes();
        let config = Config {
            tiers,
            slots: 1 << 16,
            directory: &directory,
            requests_fd: None,
            min_fd: 200,
            later: [Later::Never, Later::Children, Later::All][LATER.load(Relaxed) as usize],
            devices: None,
        };
        let store = Tiers::init(&config).expect("memory for a store");
        let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
        // SAFETY: fresh zeroed memory that is never unmapped.
        Bed { store, worker: unsafe { Worker::init(at as *mut u8) } }
    }
    pub fn put(&mut self, slot: u32, seed: u32) {
        self.store.put(SlotId(slot), &page(seed), self.worker).expect("room");
    }
    pub fn try_put(&mut self, slot: u32, seed: u32) -> Result<(), StoreError> {
        self.store.put(SlotId(slot), &page(seed), self.worker)
    }
    /// Puts a folio, of which each page has a seed.
    pub fn try_put_folio(&mut self, first: u32, seeds: &[u32]) -> Result<(), StoreError> {
        let content: Vec<u8> = seeds.iter().flat_map(|&seed| page(seed)).collect();
        self.store.put(SlotId(first), &content, self.worker)
    }
    pub fn check(&mut self, slot: u32, seed: u32) {
        let mut out = [0; PAGE_BYTES];
        self.store.get(SlotId(slot), &mut out, self.worker).expect("a stored page");
        assert!(out == page(seed), "slot {slot} differs in process {}", os::getpid());
    }
    pub fn free(&self, slot: u32) {
        self.store.free(Unused::vouched(SlotId(slot)));
    }
    /// Forks as the runtime does; the child runs `child` and ends.
    pub fn fork(&mut self, child: impl FnOnce(&mut Bed)) -> i32 {
        let ticket = self.store.fork_prepare();
        let pid = fork();
        if pid == 0 {
            self.store.fork_child(ticket);
            child(self);
            os::exit_group(0);
        }
        self.store.fork_parent(ticket, pid);
        pid
    }
}

/// Forks; the child ends by SIGALRM if it hangs, so that one that waits for a failed other does not wait for ever.
pub fn fork() -> i32 {
    // SAFETY: this process has one thread.
    let pid = unsafe { syscall0(nr::FORK) as i32 };
    if pid == 0 {
        // SAFETY: touches no memory.
        unsafe { syscall1(nr::ALARM, 50) };
    }
    pid
}

pub fn wait(pid: i32) -> i32 {
    let mut status = 0i32;
    loop {
        // SAFETY: `status` lives through the call.
        let got = unsafe { syscall4(nr::WAIT4, pid as usize, &raw mut status as usize, 0, 0) };
        if got == pid as isize {
            return status;
        }
        assert_eq!(got, -4, "only a signal may interrupt");
    }
}

/// A pipe on which one process tells others to go on.
pub struct Gate(i32, i32);

impl Gate {
    pub fn new() -> Gate {
        let mut fds = [0i32; 2];
        // SAFETY: `fds` lives through the call.
        let got = unsafe { syscall1(nr::PIPE, fds.as_mut_ptr() as usize) };
        assert_eq!(got, 0);
        Gate(fds[0], fds[1])
    }
    pub fn open(&self) {
        assert_eq!(os::write(self.1, b"x"), Ok(1));
    }
    pub fn pass(&self) {
        assert_eq!(os::read(self.0, &mut [0]), Ok(1));
    }
}

pub fn file(max_segments: u64) -> TierConfig {
    TierConfig::new(TierKind::File(File), max_segments * SEGMENT_BYTES as u64)
}
