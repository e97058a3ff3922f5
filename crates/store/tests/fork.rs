//! Fork tests, in a process with one thread. Each scenario runs in a child of its own.
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_store::{Algorithm, Config, SEGMENT_BYTES, TierConfig, TierKind, Tiers, Worker};
use outswap_store::{FileIo, LiveIo, MAX_USERS, MAX_VOLUMES};
use outswap_sys::signal::{bit, set_mask};
use outswap_sys::{Errno, nr, os, syscall0, syscall1, syscall2, syscall4, syscall5};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
    /// Forks as the runtime does; the child runs `child` and ends.
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

/// How a descriptor was opened: `O_RDONLY`, `O_RDWR`.
fn access(fd: i32) -> usize {
    const F_GETFL: usize = 3;
    os::fcntl(fd, F_GETFL, 0).expect("an open descriptor") & 3
}

fn size_of_file(fd: i32) -> isize {
    // SAFETY: seeking touches no memory. whence = SEEK_END.
    unsafe { outswap_sys::syscall3(nr::LSEEK, fd as usize, 0, 2) }
}

/// Descriptors that this process has.
fn open_descriptors() -> Vec<i32> {
    const F_GETFD: usize = 1;
    (0..1024).filter(|&fd| os::fcntl(fd, F_GETFD, 0).is_ok()).collect()
}

/// A child can read its ancestors' files and change nothing there; its own is another.
fn ancestors_files_are_only_read() {
    #[track_caller]
    fn check_rights(bed: &mut Bed, others: &[i32], ancestors: usize) {
        let own = bed.store.file_descriptor().expect("a file of its own");
        let all: Vec<i32> = bed.store.descriptors().collect();
        assert!(all.iter().all(|&fd| fd >= 200), "{all:?}");
        // The own file twice, its directory, a number kept for a child, and each ancestor's file.
        assert_eq!(all.len(), 4 + ancestors);
        // Every descriptor of a regular file that this process has is known, and only one can write.
        assert!(open_descriptors().iter().all(|fd| all.contains(fd) || others.contains(fd)));
        for fd in all.into_iter().filter(|&fd| fd != own) {
            assert_eq!(access(fd), os::O_RDONLY, "descriptor {fd}");
            assert!(os::pwrite(fd, b"overwritten", 0).is_err() && os::punch_hole(fd, 0, 1 << 20).is_err());
            assert!(os::ftruncate(fd, 0).is_err());
            // Harms nobody who reads through the same.
            let _ = os::fcntl(fd, F_SETFL, O_DIRECT);
        }
    }
    const F_SETFL: usize = 4;
    const O_DIRECT: usize = 0o40000;
    let others = open_descriptors();
    let mut bed = Bed::new(&[file(0)]);
    check_rights(&mut bed, &others, 0);
    (0..500).for_each(|slot| bed.put(slot, slot));
    let own = bed.store.file_descriptor().expect("a file");
    let size = size_of_file(own);
    let child = bed.fork(|bed| {
        check_rights(bed, &others, 1);
        (500..900).for_each(|slot| bed.put(slot, slot));
        let grandchild = bed.fork(|bed| {
            check_rights(bed, &others, 2);
            (900..1300).for_each(|slot| bed.put(slot, slot));
            (0..1300).for_each(|slot| bed.check(slot, slot));
            // What is not needed any more is closed.
            (0..500).for_each(|slot| bed.free(slot));
            check_rights(bed, &others, 1);
            (500..900).for_each(|slot| bed.free(slot));
            check_rights(bed, &others, 0);
        });
        assert_eq!(wait(grandchild), 0);
        (0..900).for_each(|slot| bed.check(slot, slot));
    });
    assert_eq!(wait(child), 0);
    assert!(size >= size_of_file(own) - SEGMENT_BYTES as isize, "only the open segment is written by a fork");
    (0..500).for_each(|slot| bed.check(slot, slot));
}

/// Who gave up writing to what its children read cannot change it; both go on, in files of their own.
fn what_children_read_is_given_up() {
    const F_GETFL: usize = 3;
    let writable = |bed: &Bed| bed.store.descriptors().filter(|&fd| access(fd) != os::O_RDONLY).collect::<Vec<_>>();
    let mut bed = Bed::new(&[file(0)]);
    (0..700).for_each(|slot| bed.put(slot, slot));
    let before = bed.store.file_descriptor().expect("a file");
    bed.store.give_up_writing();
    assert_eq!(bed.store.file_descriptor(), Some(before), "nobody else reads it");
    for round in 0..40 {
        let gate = Gate::new();
        let first = round % 7 * 100;
        let child = bed.fork(|bed| {
            bed.store.give_up_writing();
            gate.pass();
            (0..700).for_each(|slot| bed.check(slot, slot));
            (2000..2200).for_each(|slot| bed.put(slot, slot));
            let grandchild = bed.fork(|bed| {
                (0..700).chain(2000..2200).for_each(|slot| bed.check(slot, slot));
            });
            bed.store.give_up_writing();
            (2000..2200).for_each(|slot| bed.check(slot, slot));
            assert_eq!(wait(grandchild), 0);
        });
        assert!(bed.store.is_writing_shared());
        let old = os::fstat(bed.store.file_descriptor().expect("a file")).expect("open").inode;
        bed.store.give_up_writing();
        assert!(!bed.store.is_writing_shared());
        let now = writable(&bed);
        assert!(now.len() == 1 && os::fstat(now[0]).expect("open").inode != old, "{now:?}");
        // Each round the same pages leave the oldest file, so that it is closed in the end.
        for slot in first..first + 100 {
            bed.check(slot, slot);
            bed.free(slot);
            bed.put(slot, slot);
        }
        gate.open();
        assert_eq!(wait(child), 0);
        (0..700).for_each(|slot| bed.check(slot, slot));
        assert!(bed.store.descriptors().count() <= 4 + 8 && os::fcntl(now[0], F_GETFL, 0).is_ok());
    }
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
    // Without a directory there is no new file: then nothing is written at all, and everything is still there.
    let child = bed.fork(|bed| (0..700).for_each(|slot| bed.check(slot, slot)));
    bed.store.leave_directory();
    bed.store.give_up_writing();
    assert!(writable(&bed).is_empty() && bed.store.file_error() == Some(Errno::ENOENT));
    assert_eq!(bed.try_put(3000, 1), Err(StoreError::Full));
    assert_eq!(wait(child), 0);
    (0..700).for_each(|slot| bed.check(slot, slot));
}

/// What the program puts under the number of a descriptor that it closed is not written to, cut or closed by the store.
fn another_file_under_our_number_is_left_alone() {
    let mut bed = Bed::new(&[file(0)]);
    (0..600).for_each(|slot| bed.put(slot, slot));
    let text = vec![b'V'; 1 << 20];
    let name = std::env::temp_dir().join(format!(".outswap-test-{}", os::getpid()));
    std::fs::write(&name, &text).expect("room");
    let path = [name.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let low = os::open(&path, os::O_RDWR, 0).expect("just made");
    let is_file = |fd: &i32| os::fstat(*fd).expect("open").is_regular();
    for fd in bed.store.descriptors().filter(is_file).collect::<Vec<_>>() {
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { syscall2(nr::DUP2, low as usize, fd as usize) }, fd as isize);
    }
    let unharmed = || std::fs::read(&name).expect("ours") == text;
    // Dead segments are not punched, full ones not written.
    (0..600).for_each(|slot| bed.free(slot));
    (600..1000).for_each(|slot| bed.try_put(slot, slot).unwrap_or_default());
    bed.store.shrink(1 << 20, bed.worker);
    assert!(unharmed());
    // Nor by a child, or after the file was given up.
    let child = bed.fork(|bed| (0..600).for_each(|slot| bed.try_put(slot, slot).unwrap_or_default()));
    assert_eq!(wait(child), 0);
    bed.store.give_up_writing();
    (1000..1600).for_each(|slot| bed.try_put(slot, slot).unwrap_or_default());
    assert!(unharmed());
    std::fs::remove_file(&name).expect("ours");
}

/// The store's numbers are those that the runtime guards, or none: however many files a chain of forks needs.
fn numbers_are_in_the_guarded_range() {
    fn descend(bed: &mut Bed, depth: u32) {
        let range = 200..200 + outswap_store::DESCRIPTORS;
        assert!(bed.store.descriptors().all(|fd| range.contains(&fd)));
        (depth * 100..depth * 100 + 80).for_each(|slot| bed.try_put(slot, slot).unwrap_or_default());
        if depth < 20 {
            let child = bed.fork(|bed| descend(bed, depth + 1));
            assert_eq!(wait(child), 0);
        }
    }
    let mut bed = Bed::new(&[file(0)]);
    descend(&mut bed, 0);
    // The program has all the numbers that are free there.
    while os::fcntl(0, os::F_DUPFD, 200).expect("below the limit") < 200 + outswap_store::DESCRIPTORS as usize {}
    let child = bed.fork(|bed| descend(bed, 0));
    assert_eq!(wait(child), 0);
    let directory = std::env::temp_dir().into_os_string().into_encoded_bytes();
    let config = Config { tiers: &[file(0)], slots: 1 << 16, directory: &directory, min_fd: 200 };
    let store = Tiers::init(&config).expect("memory for a store");
    assert_eq!((store.descriptors().count(), store.file_error()), (0, Some(Errno::EMFILE)));
}

/// A child that executes a program or ends, waited for or not, has no share in its parent's file any more. One whose exec fails
/// has all that it had.
fn who_executes_shares_nothing() {
    let mut bed = Bed::new(&[file(40)]);
    let rewrite = |bed: &mut Bed| {
        for slot in 0..600 {
            bed.check(slot, slot);
            bed.free(slot);
            bed.put(slot, slot);
        }
    };
    (0..600).for_each(|slot| bed.put(slot, slot));
    let alone = bed.store.file_segment_bytes();
    let mut children = Vec::new();
    for round in 0..6 {
        let (ready, go) = (Gate::new(), Gate::new());
        let child = bed.fork(|bed| {
            (1000..1100).for_each(|slot| bed.put(slot, slot));
            bed.store.begin_exec();
            // Two threads try; one fails before the other.
            bed.store.begin_exec();
            bed.store.exec_failed();
            ready.open();
            go.pass();
            (0..600).chain(1000..1100).for_each(|slot| bed.check(slot, slot));
            if round == 0 {
                let _ = os::kill(os::getpid(), 9);
            }
            let error = std::os::unix::process::CommandExt::exec(&mut std::process::Command::new("/no such program"));
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            bed.store.exec_failed();
            (1100..1200).for_each(|slot| bed.put(slot, slot));
            ready.open();
            go.pass();
            (0..600).chain(1000..1200).for_each(|slot| bed.check(slot, slot));
            bed.store.begin_exec();
            let mut sleep = std::process::Command::new("sleep");
            let _ = std::os::unix::process::CommandExt::exec(sleep.arg("40"));
        });
        children.push(child);
        ready.pass();
        rewrite(&mut bed);
        go.open();
        if round > 0 {
            ready.pass();
            rewrite(&mut bed);
            go.open();
        }
        let ours = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own_program());
        while ours(child) {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        (0..600).for_each(|slot| bed.free(slot));
        (0..600).for_each(|slot| bed.put(slot, slot));
        bed.store.shrink(1, bed.worker);
        let now = bed.store.file_segment_bytes();
        assert!(now <= alone + 2 * SEGMENT_BYTES as u64, "round {round}: {now} bytes in use, {alone} alone");
    }
    for (round, child) in children.into_iter().enumerate() {
        let _ = os::kill(child, 9);
        assert_eq!(wait(child), 9, "round {round}");
    }
    (0..600).for_each(|slot| bed.check(slot, slot));
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
}

fn own_program() -> std::path::PathBuf {
    std::fs::read_link("/proc/self/exe").expect("a program")
}

/// In a pid namespace of its own a child counts those outside, whom it does not see, as alive.
fn a_namespace_does_not_forget_who_is_outside() {
    const CLONE_NEWPID: usize = 0x2000_0000;
    const SIGCHLD: usize = 17;
    let mut bed = Bed::new(&[file(16)]);
    (0..700).for_each(|slot| bed.put(slot, slot));
    let ticket = bed.store.fork_prepare();
    // SAFETY: as fork, in a process with one thread.
    let pid = unsafe { syscall5(nr::CLONE, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0) } as i32;
    if pid < 0 {
        // Only root may.
        bed.store.fork_parent(ticket, pid);
        return;
    }
    if pid == 0 {
        bed.store.fork_child(ticket);
        assert_eq!(os::getpid(), 1);
        let written = (1000..3000).take_while(|&slot| bed.try_put(slot, slot).is_ok()).count();
        assert!(bed.store.file_segment_bytes() <= 16 * SEGMENT_BYTES as u64);
        assert!((100..400).contains(&written), "{written} pages beside the parent's");
        (0..700).chain(1000..1000 + written as u32).for_each(|slot| bed.check(slot, slot));
        let grandchild = bed.fork(|bed| (0..700).for_each(|slot| bed.check(slot, slot)));
        assert_eq!(wait(grandchild), 0);
        os::exit_group(0);
    }
    bed.store.fork_parent(ticket, pid);
    assert_eq!(wait(pid), 0);
    // Its room is free again.
    (700..800).for_each(|slot| bed.put(slot, slot));
    (0..800).for_each(|slot| bed.check(slot, slot));
}

/// Beyond the children that a file's table has room for, what is shared stays; what each writes itself is freed as ever.
fn with_many_sharers_own_segments_are_freed() {
    fn rewrite(bed: &mut Bed) -> u64 {
        let before = bed.store.file_segment_bytes();
        for round in 0..4 {
            (1000..1600).for_each(|slot| bed.put(slot, round + slot));
            (1000..1600).for_each(|slot| bed.check(slot, round + slot));
            (1000..1600).for_each(|slot| bed.free(slot));
        }
        bed.store.file_segment_bytes() - before
    }
    let mut bed = Bed::new(&[file(0)]);
    (0..200).for_each(|slot| bed.put(slot, slot));
    let gate = Gate::new();
    let mut children: Vec<i32> = (0..MAX_USERS + 2)
        .map(|_| {
            bed.fork(|bed| {
                gate.pass();
                bed.check(7, 7);
            })
        })
        .collect();
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 2);
    assert!(rewrite(&mut bed) <= SEGMENT_BYTES as u64);
    children.push(bed.fork(|bed| {
        assert!(rewrite(bed) <= SEGMENT_BYTES as u64);
        // A child of such a child.
        let grandchild = bed.fork(|bed| assert!(rewrite(bed) <= SEGMENT_BYTES as u64));
        assert_eq!(wait(grandchild), 0);
        bed.check(7, 7);
    }));
    (0..MAX_USERS + 2).for_each(|_| gate.open());
    children.into_iter().for_each(|child| assert_eq!(wait(child), 0));
}

/// A chain of forks in which each process writes: beyond the most files, there is none to write to, and all is read right.
fn long_chains_of_forks_keep_all_data() {
    const DEPTH: u32 = 20;
    fn descend(bed: &mut Bed, depth: u32) {
        let written = (0..40).filter(|i| bed.try_put(depth * 100 + i, depth * 100 + i).is_ok()).count();
        let has_file = depth < MAX_VOLUMES as u32;
        assert_eq!(written, if has_file { 40 } else { 0 }, "at depth {depth}");
        assert_eq!(bed.store.file_error(), (!has_file).then_some(Errno::EMFILE));
        for above in 0..=depth.min(MAX_VOLUMES as u32 - 1) {
            (0..40).for_each(|i| bed.check(above * 100 + i, above * 100 + i));
        }
        if depth == DEPTH {
            // Without what one of the ancestors left, there is room again for a child's file.
            (0..40).for_each(|i| bed.free(300 + i));
            let child = bed.fork(|bed| {
                bed.put(300, 1);
                bed.check(300, 1);
                bed.check(1500, 1500);
            });
            assert_eq!(wait(child), 0);
            return;
        }
        let child = bed.fork(|bed| descend(bed, depth + 1));
        assert_eq!(wait(child), 0);
        (0..written as u32).for_each(|i| bed.check(depth * 100 + i, depth * 100 + i));
    }
    descend(&mut Bed::new(&[file(0)]), 0);
}

/// A chain in which nobody keeps what the ancestors wrote can be as long as it likes, and its files are closed.
fn chains_of_forks_that_keep_nothing_have_no_end() {
    fn descend(bed: &mut Bed, depth: u32) {
        (0..100).for_each(|slot| bed.put(slot, depth + slot));
        (0..100).for_each(|slot| bed.check(slot, depth + slot));
        (0..100).for_each(|slot| bed.free(slot));
        assert!(bed.store.descriptors().count() <= 5);
        if depth < 40 {
            let child = bed.fork(|bed| descend(bed, depth + 1));
            assert_eq!(wait(child), 0);
        }
    }
    descend(&mut Bed::new(&[file(0)]), 0);
}

/// A limit holds for files of dead parents, too, as long as a child has them open.
fn what_a_dead_parent_left_counts() {
    let mut bed = Bed::new(&[file(16)]);
    let (done, end) = (Gate::new(), Gate::new());
    let child = bed.fork(|bed| {
        (0..400).for_each(|slot| bed.put(slot, slot));
        bed.fork(|bed| {
            end.pass();
            (0..400).for_each(|slot| bed.check(slot, slot));
            done.open();
        });
        // The child ends; what it wrote is still its own child's.
    });
    assert_eq!(wait(child), 0);
    let mut slot = 0;
    while bed.try_put(slot, slot).is_ok() {
        slot += 1;
    }
    let own = bed.store.file_segment_bytes();
    assert!(slot > 100 && own <= 16 * SEGMENT_BYTES as u64, "{slot} {own}");
    assert!(slot < 750, "what the grandchild reads was not counted: {slot} pages");
    end.open();
    done.pass();
    (0..slot).for_each(|slot| bed.check(slot, slot));
}

/// Neither a used-up table of descriptors nor another root directory keeps a child from its file.
fn a_file_needs_no_descriptor_or_path_at_the_fork() {
    let mut bed = Bed::new(&[file(0)]);
    (0..300).for_each(|slot| bed.put(slot, slot));
    // Only root may; for others this part is the same as before.
    let empty = std::env::temp_dir().join(format!(".outswap-test-{}", os::getpid()));
    std::fs::create_dir(&empty).expect("a directory");
    let inside = std::os::unix::fs::chroot(&empty).is_ok();
    let check = |bed: &mut Bed| {
        (0..300).for_each(|slot| bed.check(slot, slot));
        (300..600).for_each(|slot| bed.put(slot, slot));
        (0..600).for_each(|slot| bed.check(slot, slot));
        let child = bed.fork(|bed| {
            (0..600).for_each(|slot| bed.check(slot, slot));
            (600..900).for_each(|slot| bed.put(slot, slot));
        });
        assert_eq!(wait(child), 0);
    };
    let child = bed.fork(check);
    assert_eq!(wait(child), 0);
    while os::fcntl(0, os::F_DUPFD, 0).is_ok() {}
    let child = bed.fork(|bed| {
        (0..300).for_each(|slot| bed.check(slot, slot));
        (300..600).for_each(|slot| bed.put(slot, slot));
        (0..600).for_each(|slot| bed.check(slot, slot));
    });
    assert_eq!(wait(child), 0);
    let _ = inside || std::fs::remove_dir(&empty).is_ok();
}

/// A family of processes that put, free, read, fork, end and are killed at random: each sees its own pages.
fn random_families(tiers: &[TierConfig], seeds: std::ops::Range<u64>) {
    const SLOTS: u32 = 1500;
    const DEPTH: u32 = 20;
    const FORKS: u32 = 40;
    fn next(state: &mut u64) -> u32 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as u32
    }
    fn live(bed: &mut Bed, state: &mut u64, model: &mut [u32], depth: u32, forks: &AtomicU32) {
        let mut children: Vec<(i32, bool)> = Vec::new();
        for _ in 0..40 {
            // A run of slots: segments must become empty now and then.
            let (first, count) = (next(state) % SLOTS, 1 + next(state) % 100);
            let slots = first..(first + count).min(SLOTS);
            match next(state) % 16 {
                0..7 => {
                    for slot in slots.filter(|&slot| model[slot as usize] == 0).collect::<Vec<_>>() {
                        let seed = next(state) | 1;
                        if bed.try_put(slot, seed).is_ok() {
                            model[slot as usize] = seed;
                        }
                    }
                }
                7..11 => {
                    for slot in slots {
                        if std::mem::take(&mut model[slot as usize]) != 0 {
                            bed.free(slot);
                        }
                    }
                }
                11..14 => slots
                    .filter(|&slot| model[slot as usize] != 0)
                    .for_each(|slot| bed.check(slot, model[slot as usize])),
                14 if next(state).is_multiple_of(4) => bed.store.give_up_writing(),
                14 => drop(bed.store.shrink(1 << 18, bed.worker)),
                _ if depth < DEPTH && children.len() < 3 && forks.fetch_add(1, Relaxed) < FORKS => {
                    let (mut its, killed) = (*state ^ 0x5555, next(state).is_multiple_of(3));
                    let child = bed.fork(|bed| {
                        let deeper = depth + 1 + next(&mut its) % 6;
                        live(bed, &mut its, model, deeper, forks);
                        if killed {
                            let _ = os::kill(os::getpid(), 9);
                        }
                    });
                    if next(state).is_multiple_of(2) {
                        assert_eq!(wait(child), if killed { 9 } else { 0 });
                    } else {
                        children.push((child, killed));
                    }
                }
                _ => {}
            }
        }
        (0..SLOTS).filter(|&slot| model[slot as usize] != 0).for_each(|slot| bed.check(slot, model[slot as usize]));
        for (child, killed) in children {
            assert_eq!(wait(child), if killed { 9 } else { 0 }, "a child of process {}", os::getpid());
        }
        (0..SLOTS).filter(|&slot| model[slot as usize] != 0).for_each(|slot| bed.check(slot, model[slot as usize]));
        assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
    }
    for seed in seeds {
        println!("fork: family {seed}");
        let flags = os::MAP_SHARED | os::MAP_ANONYMOUS;
        // SAFETY: no address given, so nothing is replaced.
        let at =
            unsafe { os::mmap(0, PAGE_BYTES, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.expect("a shared page");
        // SAFETY: fresh shared memory, zero is a valid value, never unmapped.
        let forks = unsafe { &*(at as *const AtomicU32) };
        live(&mut Bed::new(tiers), &mut { seed }, &mut [0; SLOTS as usize], 0, forks);
    }
}

fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: `set` lives through the call.
    unsafe { syscall2(nr::RT_SIGPENDING, &raw mut set as usize, 8) };
    set
}

/// Writes beyond a limit of file size leave no signal behind, and take none that was there.
fn a_limit_of_file_size_kills_nobody() {
    const SIGXFSZ: i32 = 25;
    const EFBIG: Errno = Errno(27);
    let mut bed = Bed::new(&[file(0)]);
    let old_mask = set_mask(u64::MAX);
    let limit = [3 * SEGMENT_BYTES as u64 + 5000, u64::MAX];
    // SAFETY: `limit` has the layout of `struct rlimit64`. 1 = RLIMIT_FSIZE.
    assert_eq!(unsafe { syscall4(nr::PRLIMIT64, 0, 1, limit.as_ptr() as usize, 0) }, 0);
    let mut stored = 0;
    while bed.try_put(stored, stored).is_ok() {
        stored += 1;
        assert!(stored < 1000, "the limit is noticed");
    }
    assert!(stored > 100 && pending() & bit(SIGXFSZ) == 0);
    let fd = bed.store.file_descriptor().expect("a file");
    assert_eq!(LiveIo.pwrite(fd, b"beyond", 10 << 20), Err(EFBIG));
    assert_eq!(pending() & bit(SIGXFSZ), 0);
    // The program's own, raised before ours, stays.
    os::pwrite(fd, b"beyond", 10 << 20).expect_err("the limit");
    assert_eq!(LiveIo.pwrite(fd, b"beyond", 10 << 20), Err(EFBIG));
    assert_eq!(pending() & bit(SIGXFSZ), bit(SIGXFSZ));
    let (set, now) = (bit(SIGXFSZ), [0i64; 2]);
    // SAFETY: set and timeout live through the call.
    let got =
        unsafe { syscall4(nr::RT_SIGTIMEDWAIT, &raw const set as usize, 0, now.as_ptr() as usize, size_of::<u64>()) };
    assert_eq!(got, SIGXFSZ as isize);
    set_mask(old_mask);
    (0..stored).for_each(|slot| bed.check(slot, slot));
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
    let scenarios: [Scenario; 23] = [
        ("file only", &|| each_process_keeps_its_own(&[file(0)])),
        ("compressed over file", &|| each_process_keeps_its_own(&[lz4(1 << 20), file(0)])),
        ("compressed only", &|| each_process_keeps_its_own(&[lz4(0)])),
        ("freed here is kept for the other", &freed_here_is_kept_for_the_other),
        ("the dead are cleared", &the_dead_are_cleared),
        ("the limit is the tree's", &the_limit_is_the_trees),
        ("entries are used again", &entries_are_used_again),
        ("ancestors' files are only read", &ancestors_files_are_only_read),
        ("what children read is given up", &what_children_read_is_given_up),
        ("another file under our number is left alone", &another_file_under_our_number_is_left_alone),
        ("numbers are in the guarded range", &numbers_are_in_the_guarded_range),
        ("who executes shares nothing", &who_executes_shares_nothing),
        ("a namespace does not forget who is outside", &a_namespace_does_not_forget_who_is_outside),
        ("with many sharers own segments are freed", &with_many_sharers_own_segments_are_freed),
        ("long chains of forks keep all data", &long_chains_of_forks_keep_all_data),
        ("chains of forks that keep nothing have no end", &chains_of_forks_that_keep_nothing_have_no_end),
        ("what a dead parent left counts", &what_a_dead_parent_left_counts),
        ("a file needs no descriptor or path at the fork", &a_file_needs_no_descriptor_or_path_at_the_fork),
        ("random families over a file", &|| random_families(&[file(0)], 0..4)),
        ("random families over a small file", &|| random_families(&[file(30)], 4..8)),
        ("random families over two tiers", &|| random_families(&[lz4(500_000), file(0)], 8..12)),
        ("a limit of file size kills nobody", &a_limit_of_file_size_kills_nobody),
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
