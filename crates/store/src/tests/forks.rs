//! Forks: what cannot be shared, written or opened.
use super::bed::{Bed, FILE, LZ4, fill_file, fork_store, page, read_of, record_of, wait};
use crate::{MAX_USERS, SEGMENT_BYTES, Worker};
use outswap_core::slots::Unused;
use outswap_core::store::{Store, StoreError};
use outswap_core::units::SlotId;
use outswap_sys::{Errno, os};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

#[test]
fn failed_forks_leave_nothing_and_many_are_pinned() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 300);
    for _ in 0..300 {
        let ticket = bed.store.fork_prepare();
        assert!(!ticket.is_pinned());
        bed.store.fork_parent(ticket, -1);
    }
    let held = bed.store.file_segment_bytes();
    (0..300).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    assert!(bed.store.file_segment_bytes() <= SEGMENT_BYTES as u64 && held > SEGMENT_BYTES as u64);

    // Children that never say who they are keep their entries; the one too many shares segments for ever.
    fill_file(&mut bed, worker, 300);
    let tickets: Vec<_> = (0..MAX_USERS + 1).map(|_| bed.store.fork_prepare()).collect();
    assert_eq!(tickets.iter().filter(|t| t.is_pinned()).count(), 1);
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 1);
    tickets.into_iter().for_each(|ticket| bed.store.fork_parent(ticket, -1));
    let held = bed.store.file_segment_bytes();
    (0..300).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    assert_eq!(bed.store.file_segment_bytes(), held);
}

#[test]
fn a_child_that_forks_many_pins_nothing_of_its_parents_file() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 300);
    let held = bed.store.file_segment_bytes();
    let child = fork_store(&bed, || {
        // None of them lives when the next one is made.
        let ended = (0..2 * MAX_USERS).all(|_| wait(fork_store(&bed, || 0)) == 0);
        let pinned = bed.store.stats().pinned_forks.load(Relaxed);
        let right = (0..300).all(|slot| read_of(bed.store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        i32::from(!ended) | i32::from(pinned != 0) << 1 | i32::from(!right) << 2
    });
    assert_eq!(wait(child), 0);
    (0..300).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    bed.store.tend();
    let now = bed.store.file_segment_bytes();
    assert!(held > 2 * SEGMENT_BYTES as u64 && now <= 2 * SEGMENT_BYTES as u64, "{now} of {held} bytes");
}

#[test]
fn what_an_ended_child_shared_is_given_back_without_another_fork() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let few = 2 * SEGMENT_BYTES as u64;
    fill_file(&mut bed, worker, 600);
    let child = fork_store(&bed, || 0);
    assert_eq!(wait(child), 0);
    (0..600).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    assert!(bed.store.file_segment_bytes() <= few, "it has ended before");

    fill_file(&mut bed, worker, 600);
    let held = bed.store.file_segment_bytes();
    let child = fork_store(&bed, || {
        os::sleep_ns(300_000_000);
        0
    });
    (0..600).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    std::thread::sleep(std::time::Duration::from_millis(20));
    bed.store.tend();
    assert!(held > few && bed.store.file_segment_bytes() >= held, "it is needed");
    assert_eq!(wait(child), 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    bed.store.tend();
    assert!(bed.store.file_segment_bytes() <= few, "it has ended since");
}

#[test]
fn what_could_not_be_written_before_a_fork_goes_to_each_sides_own_file() {
    let mut bed = Bed::new(&[(LZ4, 1 << 20), (FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    let chunks = |slot: u32| page(slot as u64 * 4 + 3);
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut stored = 0;
    while store.put(SlotId(stored), &chunks(stored), worker).is_ok() && !store.is_synchronous(SlotId(stored)) {
        stored += 1;
    }
    assert!(stored > 60, "a buffer is stuck");
    // A slot that goes before the fork, one that goes after.
    store.free(Unused::vouched(SlotId(0)));
    let parent_file = store.file_descriptor().expect("a file");
    let right =
        |worker: &mut Worker, from: u32| (from..stored).all(|slot| read_of(store, worker, slot) == Ok(chunks(slot)));
    let child = fork_store(&bed, || {
        if !right(worker, 1) {
            return 1;
        }
        let grandchild = fork_store(&bed, || {
            bed.faults.write_error.store(0, SeqCst);
            let filled = (3000..3300).all(|slot| store.put(SlotId(slot), &chunks(slot), worker).is_ok());
            !(filled && right(worker, 1) && store.stats().corruptions.load(Relaxed) == 0) as i32
        });
        if wait(grandchild) != 0 {
            return 2;
        }
        bed.faults.write_error.store(0, SeqCst);
        store.free(Unused::vouched(SlotId(1)));
        if !(3000..3300).all(|slot| store.put(SlotId(slot), &chunks(slot), worker).is_ok()) {
            return 3;
        }
        let own = (2..stored).all(|slot| store.file.files().is_own(record_of(store, slot).segment()));
        if !own || !right(worker, 2) || store.stats().pages_in_file.load(Relaxed) == 0 {
            return 4;
        }
        // Nothing keeps the parent's file open here.
        (store.descriptors().count() != 4) as i32 * 5
    });
    assert_eq!(wait(child), 0);
    // SAFETY: seeking touches no memory. whence = SEEK_END.
    let end = unsafe { outswap_sys::syscall3(outswap_sys::nr::LSEEK, parent_file as usize, 0, 2) };
    assert_eq!(end, 0, "a child wrote to its parent's file");
    bed.faults.write_error.store(0, SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(150));
    (3000..3300).for_each(|slot| store.put(SlotId(slot), &chunks(slot), worker).expect("room"));
    assert!(right(worker, 1));
}

#[test]
fn what_a_child_reads_is_not_punched() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 300);
    let mut ends = [0i32; 2];
    // SAFETY: `ends` lives through the call.
    assert_eq!(unsafe { outswap_sys::syscall1(outswap_sys::nr::PIPE, ends.as_mut_ptr() as usize) }, 0);
    let child = fork_store(&bed, || {
        let told = os::read(ends[0], &mut [0]) == Ok(1);
        let right = (0..300).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        !(told && right && store.stats().corruptions.load(Relaxed) == 0) as i32
    });
    (0..300).for_each(|slot| store.free(Unused::vouched(SlotId(slot))));
    assert_eq!(os::write(ends[1], b"x"), Ok(1));
    assert_eq!(wait(child), 0, "the child still needs what its parent freed");
    // Now nobody does.
    (0..300).for_each(|slot| store.put(SlotId(slot), &page(slot as u64 * 4 + 3), worker).expect("room"));
    (0..300).for_each(|slot| store.free(Unused::vouched(SlotId(slot))));
    assert!(bed.faults.punched.load(SeqCst) > 0);
    ends.into_iter().for_each(|end| os::close(end).expect("an open end"));
}

#[test]
fn a_child_without_a_file_reads_and_refuses() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 300);
    // The last segment cannot be written before the fork either.
    bed.faults.write_error.store(usize::MAX, SeqCst);
    bed.faults.no_file.store(true, SeqCst);
    let child = fork_store(&bed, || {
        let stats = store.stats();
        let right = (0..300).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        let refused = store.put(SlotId(400), &page(2), worker) == Err(StoreError::Full);
        let told = store.file_error() == Some(Errno::EACCES) && stats.forks_without_file.load(Relaxed) == 1;
        // Its own child has a file again, and takes over what was not written.
        bed.faults.no_file.store(false, SeqCst);
        bed.faults.write_error.store(0, SeqCst);
        let grandchild = fork_store(&bed, || {
            let room = (400..700).all(|slot| store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok());
            let right =
                (0..300).chain(400..700).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
            !(room && right) as i32
        });
        if wait(grandchild) != 0 {
            return 2;
        }
        !(right && refused && told) as i32
    });
    assert_eq!(wait(child), 0);
    assert_eq!(store.stats().forks_without_file.load(Relaxed), 0);
    assert_eq!(store.file_error(), None);
}

#[test]
fn without_the_directory_children_have_no_file() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 100);
    assert_eq!(store.descriptors().count(), 4);
    store.leave_directory();
    assert_eq!(store.descriptors().count(), 3);
    let child = fork_store(&bed, || {
        let right = (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        let full = store.put(SlotId(200), &page(2), worker) == Err(StoreError::Full);
        !(right && full && store.file_error() == Some(Errno::ENOENT)) as i32
    });
    assert_eq!(wait(child), 0);
    assert_eq!(store.put(SlotId(200), &page(2), worker), Ok(()));
}

#[test]
fn a_file_that_is_put_off_is_made_when_it_is_needed() {
    let mut bed = Bed::later(1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    assert!(store.is_file_put_off() && store.file_error().is_none() && !store.is_writing_shared());
    assert_eq!(store.descriptors().count(), 4, "the directory, and three numbers that are held");
    // A child of a process that has none has none, and makes its own.
    let child = fork_store(&bed, || {
        let waits = store.is_file_put_off() && store.stats().forks_without_file.load(Relaxed) == 0;
        let room = (0..100).all(|slot| store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok());
        let right = room && (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        // It has one as any other then, which its child reads.
        let grandchild = fork_store(&bed, || {
            let right = (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
            let room = store.put(SlotId(200), &page(2), worker).is_ok();
            !(right && room && read_of(store, worker, 200) == Ok(page(2))) as i32
        });
        !(waits && right && !store.is_file_put_off() && wait(grandchild) == 0) as i32
    });
    assert_eq!(wait(child), 0);
    assert!(store.is_file_put_off(), "the child's is none of ours");
    fill_file(&mut bed, worker, 100);
    // Of who has one, a child puts its own off, and reads the other's.
    let child = fork_store(&bed, || {
        let right = (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        let waits = store.is_file_put_off();
        let room = (100..200).all(|slot| store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok());
        let all = (0..200).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        !(right && waits && room && all && !store.is_file_put_off()) as i32
    });
    assert_eq!(wait(child), 0);
    assert!(
        !store.is_file_put_off() && (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)))
    );
    assert_eq!(store.descriptors().count(), 4);
}

#[test]
fn a_file_that_was_put_off_and_cannot_be_made_is_told_of() {
    let mut bed = Bed::later(1 << 12);
    let worker = bed.worker();
    bed.faults.no_file.store(true, SeqCst);
    assert_eq!(bed.store.file_error(), None, "nobody knows yet");
    assert_eq!(bed.store.put(SlotId(1), &page(2), worker), Err(StoreError::Full));
    assert_eq!((bed.store.file_error(), bed.store.is_file_put_off()), (Some(Errno::EACCES), false));
    // As one that is made at once.
    let left = Bed::later(1 << 12);
    left.store.leave_directory();
    assert_eq!(left.store.descriptors().count(), 0, "nothing leads to the directory");
    left.store.make_file();
    assert_eq!(left.store.file_error(), Some(Errno::ENOENT));
}

#[test]
fn who_uses_up_all_numbers_leaves_one_for_the_file_of_a_child() {
    let mut bed = Bed::later(1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    let fills = |worker: &mut Worker, from: u32| {
        let mut range = from..from + 100;
        range.all(|slot| {
            store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok()
                && read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2))
        })
    };
    // In a process of its own: the others of this test's need some.
    let program = fork_store(&bed, || {
        let some = store.descriptors().next().expect("a directory");
        while os::fcntl(some, os::F_DUPFD_CLOEXEC, 0).is_ok() {}
        let right = store.is_file_put_off() && fills(worker, 0);
        let child = fork_store(&bed, || !(fills(worker, 200) && store.file_error().is_none()) as i32);
        !(right && wait(child) == 0) as i32
    });
    assert_eq!(wait(program), 0);
}
