//! Descriptors and rights: what a process can write to, and under which numbers.
use crate::bed::{Bed, Gate, file, wait};
use outswap_core::store::{Store, StoreError};
use outswap_store::ProcessStore;
use outswap_store::{Config, DESCRIPTORS, Later, SEGMENT_BYTES, Tiers};
use outswap_sys::{Errno, nr, os, syscall2, syscall4};
use std::sync::atomic::Ordering::Relaxed;

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
pub fn ancestors_files_are_only_read() {
    #[track_caller]
    fn check_rights(bed: &mut Bed, others: &[i32], ancestors: usize) {
        bed.store.make_file();
        let own = bed.store.file_descriptor().expect("a file of its own");
        let all: Vec<i32> = bed.store.descriptors().collect();
        assert!(all.iter().all(|&fd| fd >= 200), "{all:?}");
        // The own file twice, its directory, a number kept for a child, each ancestor's file, and a ring where that is allowed.
        let ring = bed.store.ring_descriptor();
        assert_eq!(all.len(), 4 + ancestors + ring.iter().count());
        // Every descriptor of a regular file that this process has is known, and only one can write.
        assert!(open_descriptors().iter().all(|fd| all.contains(fd) || others.contains(fd)));
        for fd in all.into_iter().filter(|&fd| fd != own && Some(fd) != ring) {
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
pub fn what_children_read_is_given_up() {
    const F_GETFL: usize = 3;
    let writable = |bed: &Bed| {
        let files = bed.store.descriptors().filter(|&fd| Some(fd) != bed.store.ring_descriptor());
        files.filter(|&fd| access(fd) != os::O_RDONLY).collect::<Vec<_>>()
    };
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
        assert!(bed.store.descriptors().count() <= 5 + 8 && os::fcntl(now[0], F_GETFL, 0).is_ok());
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
pub fn another_file_under_our_number_is_left_alone() {
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
pub fn numbers_are_in_the_guarded_range() {
    fn descend(bed: &mut Bed, depth: u32) {
        let range = 200..200 + DESCRIPTORS;
        assert!(bed.store.descriptors().all(|fd| range.contains(&fd)));
        (depth * 100..depth * 100 + 80).for_each(|slot| bed.try_put(slot, slot).unwrap_or_default());
        assert!(bed.store.descriptors().all(|fd| range.contains(&fd)));
        if depth < 20 {
            let child = bed.fork(|bed| descend(bed, depth + 1));
            assert_eq!(wait(child), 0);
        }
    }
    let mut bed = Bed::new(&[file(0)]);
    descend(&mut bed, 0);
    // The program has all the numbers that are free there.
    while os::fcntl(0, os::F_DUPFD, 200).expect("below the limit") < 200 + DESCRIPTORS as usize {}
    let child = bed.fork(|bed| descend(bed, 0));
    assert_eq!(wait(child), 0);
    let directory = std::env::temp_dir().into_os_string().into_encoded_bytes();
    let config = Config {
        tiers: &[file(0)],
        slots: 1 << 16,
        directory: &directory,
        requests_fd: None,
        min_fd: 200,
        later: Later::Never,
        devices: None,
    };
    let store = Tiers::init(&config).expect("memory for a store");
    assert_eq!((store.descriptors().count(), store.file_error()), (0, Some(Errno::EMFILE)));
}

/// Neither a used-up table of descriptors nor another root directory keeps a child from its file.
pub fn a_file_needs_no_descriptor_or_path_at_the_fork() {
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

/// A limit that the program lowered moves no number of the store's, whenever its file is made.
pub fn a_lowered_limit_moves_no_number() {
    const RLIMIT_NOFILE: usize = 7;
    let mut bed = Bed::new(&[file(0)]);
    let limits = [64u64, 1 << 10];
    // SAFETY: a `struct rlimit64` that lives through the call.
    let set = unsafe { syscall4(nr::PRLIMIT64, 0, RLIMIT_NOFILE, limits.as_ptr() as usize, 0) };
    assert_eq!(set, 0);
    let in_range = |bed: &Bed| bed.store.descriptors().all(|fd| (200..200 + DESCRIPTORS).contains(&fd));
    (0..300).for_each(|slot| bed.put(slot, slot));
    assert!(in_range(&bed));
    (0..300).for_each(|slot| bed.check(slot, slot));
    let mut found = [0u64; 2];
    // SAFETY: a place for a `struct rlimit64`.
    let get = unsafe { syscall4(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, found.as_mut_ptr() as usize) };
    assert_eq!((get, found), (0, limits), "the program's limit is as it was");
}
