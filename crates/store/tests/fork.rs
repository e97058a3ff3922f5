//! Fork tests, in a process with one thread. Each scenario runs in a child of its own.
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_store::{Algorithm, Config, SEGMENT_BYTES, TierConfig, TierKind, Tiers, Worker};
use outswap_sys::{nr, os, syscall0, syscall1, syscall4};

const LZ4: TierKind = TierKind::Compressed(Algorithm::Lz4);

fn page(seed: u32) -> Page {
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

struct Bed {
    store: &'static Tiers,
    worker: &'static mut Worker,
}

impl Bed {
    fn new(tiers: &[TierConfig]) -> Bed {
        let directory = std::env::temp_dir().into_os_string().into_encoded_bytes();
        let config = Config { tiers, slots: 1 << 16, directory: &directory, min_fd: 200 };
        let store = Tiers::init(&config).expect("memory for a store");
        let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
        // SAFETY: fresh zeroed memory that is never unmapped.
        Bed { store, worker: unsafe { Worker::init(at as *mut u8) } }
    }
    fn put(&mut self, slot: u32, seed: u32) {
        self.store.put_page(SlotId(slot), &page(seed), self.worker).expect("room");
    }
    fn try_put(&mut self, slot: u32, seed: u32) -> Result<(), StoreError> {
        self.store.put_page(SlotId(slot), &page(seed), self.worker)
    }
    fn check(&mut self, slot: u32, seed: u32) {
        let mut out = [0; PAGE_BYTES];
        self.store.get(SlotId(slot), &mut out, self.worker).expect("a stored page");
        assert!(out == page(seed), "slot {slot} differs in process {}", os::getpid());
    }
    fn free(&self, slot: u32) {
        self.store.free(SlotId(slot));
    }
    /// Forks as the engine does; the child runs `child` and ends.
    fn fork(&mut self, child: impl FnOnce(&mut Bed)) -> i32 {
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
fn fork() -> i32 {
    // SAFETY: this process has one thread.
    let pid = unsafe { syscall0(nr::FORK) as i32 };
    if pid == 0 {
        // SAFETY: touches no memory.
        unsafe { syscall1(nr::ALARM, 50) };
    }
    pid
}

fn wait(pid: i32) -> i32 {
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
struct Gate(i32, i32);

impl Gate {
    fn new() -> Gate {
        let mut fds = [0i32; 2];
        // SAFETY: `fds` lives through the call.
        let got = unsafe { syscall1(nr::PIPE, fds.as_mut_ptr() as usize) };
        assert_eq!(got, 0);
        Gate(fds[0], fds[1])
    }
    fn open(&self) {
        assert_eq!(os::write(self.1, b"x"), Ok(1));
    }
    fn pass(&self) {
        assert_eq!(os::read(self.0, &mut [0]), Ok(1));
    }
}

fn file(max_segments: u64) -> TierConfig {
    TierConfig { kind: TierKind::File, max_bytes: max_segments * SEGMENT_BYTES as u64 }
}

/// Parent, child and grandchild see what was there at their fork and what they write themselves.
fn each_process_keeps_its_own(tiers: &[TierConfig]) {
    fn rewrite(bed: &mut Bed, salt: u32) {
        for slot in (0..1000).filter(|s| s % 3 != 0) {
            bed.free(slot);
            bed.put(slot, salt + slot);
        }
    }
    fn check(bed: &mut Bed, old: u32, new: u32) {
        for slot in 0..1000 {
            bed.check(slot, if slot % 3 == 0 { old } else { new } + slot);
        }
    }
    let mut bed = Bed::new(tiers);
    (0..1000).for_each(|slot| bed.put(slot, slot));
    let child = bed.fork(|bed| {
        (0..1000).for_each(|slot| bed.check(slot, slot));
        rewrite(bed, 10_000);
        let grandchild = bed.fork(|bed| {
            check(bed, 0, 10_000);
            rewrite(bed, 20_000);
            check(bed, 0, 20_000);
            bed.store.release_process();
        });
        rewrite(bed, 30_000);
        check(bed, 0, 30_000);
        assert_eq!(wait(grandchild), 0);
        check(bed, 0, 30_000);
        bed.store.release_process();
    });
    rewrite(&mut bed, 40_000);
    bed.store.shrink(1 << 20, bed.worker);
    check(&mut bed, 0, 40_000);
    assert_eq!(wait(child), 0);
    check(&mut bed, 0, 40_000);
    (0..1000).for_each(|slot| bed.free(slot));
    // All three are done with the file; the open segment at most is left.
    assert!(bed.store.file_segment_bytes() <= SEGMENT_BYTES as u64, "segments leaked");
    assert_eq!(bed.store.stats().corruptions.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// What the parent frees stays readable in the child, while the parent fills the file anew.
fn freed_here_is_kept_for_the_other() {
    let mut bed = Bed::new(&[file(40)]);
    let gate = Gate::new();
    (0..1000).for_each(|slot| bed.put(slot, slot));
    let child = bed.fork(|bed| {
        gate.pass();
        (0..1000).for_each(|slot| bed.check(slot, slot));
        bed.store.release_process();
    });
    (0..1000).for_each(|slot| bed.free(slot));
    (0..1000).for_each(|slot| bed.put(slot, 5000 + slot));
    gate.open();
    assert_eq!(wait(child), 0);
    (0..1000).for_each(|slot| bed.check(slot, 5000 + slot));
}

/// A process that is killed leaves its segments; they are found when room is wanted.
fn the_dead_are_cleared() {
    let mut bed = Bed::new(&[file(24)]);
    let gate = Gate::new();
    let child = bed.fork(|bed| {
        (0..1200).for_each(|slot| bed.put(slot, slot));
        gate.open();
        let _ = os::kill(os::getpid(), 9);
    });
    gate.pass();
    assert_eq!(wait(child), 9);
    assert!(bed.store.file_segment_bytes() > 18 * SEGMENT_BYTES as u64);
    (0..1200).for_each(|slot| bed.put(slot, 7000 + slot));
    (0..1200).for_each(|slot| bed.check(slot, 7000 + slot));
}

/// The maximum holds for the tree: what the child has filled, the parent cannot have.
fn the_limit_is_the_trees() {
    let mut bed = Bed::new(&[file(16)]);
    let (filled, end) = (Gate::new(), Gate::new());
    let child = bed.fork(|bed| {
        let mut slot = 0;
        while bed.try_put(slot, slot).is_ok() {
            slot += 1;
        }
        filled.open();
        end.pass();
        (0..slot).for_each(|slot| bed.check(slot, slot));
        bed.store.release_process();
    });
    filled.pass();
    assert_eq!(bed.try_put(0, 1), Err(StoreError::Full));
    assert!(bed.store.file_segment_bytes() <= 16 * SEGMENT_BYTES as u64);
    end.open();
    assert_eq!(wait(child), 0);
    bed.put(0, 1);
    bed.check(0, 1);
}

/// Many forks in turn neither run out of entries nor leak space.
fn entries_are_used_again() {
    let mut bed = Bed::new(&[file(16)]);
    (0..100).for_each(|slot| bed.put(slot, slot));
    for round in 0..300 {
        let child = bed.fork(|bed| {
            bed.check(round % 100, round % 100);
            // Every other child ends without a word.
            if round % 2 == 0 {
                bed.store.release_process();
            }
        });
        assert_eq!(wait(child), 0);
    }
    assert_eq!(bed.store.stats().pinned_forks.load(std::sync::atomic::Ordering::Relaxed), 0);
    (0..100).for_each(|slot| bed.free(slot));
    (0..100).for_each(|slot| bed.put(slot, 300 + slot));
    assert!(bed.store.file_segment_bytes() <= 4 * SEGMENT_BYTES as u64);
}

/// With little address space the tables are smaller, and what does not fit in the pool goes to the file.
fn little_address_space_is_enough() {
    let vm_pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let vm_pages: u64 = vm_pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let limit = [vm_pages * PAGE_BYTES as u64 + (120 << 20); 2];
    // SAFETY: `limit` has the layout of `struct rlimit`. 9 = RLIMIT_AS.
    let got = unsafe { syscall4(nr::PRLIMIT64, 0, 9, limit.as_ptr() as usize, 0) };
    assert_eq!(got, 0);
    let mut bed = Bed::new(&[TierConfig { kind: LZ4, max_bytes: 0 }, file(400)]);
    (0..20_000).for_each(|slot| bed.put(slot, slot));
    (0..20_000).for_each(|slot| bed.check(slot, slot));
}

fn main() {
    let lz4 = |max_bytes| TierConfig { kind: LZ4, max_bytes };
    type Scenario<'a> = (&'a str, &'a dyn Fn());
    let scenarios: [Scenario; 8] = [
        ("file only", &|| each_process_keeps_its_own(&[file(0)])),
        ("compressed over file", &|| each_process_keeps_its_own(&[lz4(1 << 20), file(0)])),
        ("compressed only", &|| each_process_keeps_its_own(&[lz4(0)])),
        ("freed here is kept for the other", &freed_here_is_kept_for_the_other),
        ("the dead are cleared", &the_dead_are_cleared),
        ("the limit is the tree's", &the_limit_is_the_trees),
        ("entries are used again", &entries_are_used_again),
        ("little address space is enough", &little_address_space_is_enough),
    ];
    let mut failed = 0;
    for (name, scenario) in scenarios {
        let pid = fork();
        if pid == 0 {
            scenario();
            os::exit_group(0);
        }
        let ok = wait(pid) == 0;
        println!("fork: {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += !ok as i32;
    }
    assert_eq!(failed, 0, "{failed} scenarios failed");
}
