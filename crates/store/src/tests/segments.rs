//! The life of segments: punched, cleaned, used again.
use super::bed::{Bed, FILE, RAM, fill_file, fork_store, page, read, wait};
use crate::{SEGMENT_BYTES, Worker};
use outswap_core::slots::Unused;
use outswap_core::store::{Page, Store};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_sys::os;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// What a slot holds in these tests: no compressor makes it smaller.
fn content(slot: u32) -> Page {
    page(slot as u64 * 4 + 3)
}

/// Fills slots from the first on until one is refused: how many were taken.
fn fill_up(bed: &Bed, worker: &mut Worker) -> u32 {
    let is_taken = |&slot: &u32| bed.store.put(SlotId(slot), &content(slot), worker).is_ok();
    (0..).take_while(is_taken).count() as u32
}

#[test]
fn dead_segments_are_punched_and_used_again() {
    let max = 4 * SEGMENT_BYTES as u64;
    let mut bed = Bed::new(&[(FILE, max)], 1 << 14);
    let worker = bed.worker();
    for round in 0..20u64 {
        for slot in 0..150 {
            bed.store.put(SlotId(slot), &page(round * 1000 + slot as u64 * 4 + 3), worker).expect("room");
        }
        for slot in 0..150 {
            assert!(read(&bed, worker, slot) == Ok(page(round * 1000 + slot as u64 * 4 + 3)));
            bed.store.free(Unused::vouched(SlotId(slot)));
        }
        assert!(bed.store.file_segment_bytes() <= max);
    }
    assert!(bed.faults.punched.load(SeqCst) >= 20);
    let fd = bed.store.file_descriptor().expect("the file is open");
    // SAFETY: seeking touches no memory. whence = SEEK_END.
    let end = unsafe { outswap_sys::syscall3(outswap_sys::nr::LSEEK, fd as usize, 0, 2) };
    assert!(end as u64 <= max, "the file grew to {end}");
}

#[test]
fn buffers_that_are_written_give_their_memory_back() {
    const SLOTS: u32 = 4000;
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let store = bed.store;
    let workers: Vec<_> = (0..4).map(|_| bed.worker()).collect();
    std::thread::scope(|scope| {
        for (first, worker) in (0..).zip(workers) {
            scope.spawn(move || {
                for slot in (first..SLOTS).step_by(4) {
                    store.put(SlotId(slot), &content(slot), worker).expect("room");
                }
            });
        }
    });
    // One that is being filled, and another.
    let most = 2 * SEGMENT_BYTES as u64;
    assert!(store.file.buffer_bytes() <= most, "{} bytes", store.file.buffer_bytes());
    let worker = bed.worker();
    // The one that is being filled is written before a fork.
    store.fork_parent(store.fork_prepare(), os::getpid());
    store.tend();
    assert!(store.file.buffer_bytes() > 0, "something was written since");
    store.tend();
    assert_eq!(store.file.buffer_bytes(), 0);
    assert!((0..SLOTS).all(|slot| read(&bed, worker, slot) == Ok(content(slot))));
    let more = SLOTS..SLOTS + 200;
    more.clone().for_each(|slot| store.put(SlotId(slot), &content(slot), worker).expect("room"));
    assert_eq!(store.file.buffer_bytes(), SEGMENT_BYTES as u64);
    assert!(more.clone().all(|slot| read(&bed, worker, slot) == Ok(content(slot))));
}

#[test]
fn a_file_in_memory_has_its_part_of_the_limit() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let limit = 8 * SEGMENT_BYTES as u64;
    bed.store.set_memory_limit_bytes(limit);
    assert_eq!(bed.store.file_memory_bytes(), 0, "on a disk");
    bed.store.count_file_as_memory();
    let mut slot = 0;
    let mut fill = || {
        while bed.store.put(SlotId(slot), &page(slot as u64 * 4 + 3), worker).is_ok() {
            slot += 1;
            assert!(slot < 1 << 14, "nothing is refused");
        }
        slot
    };
    let filled = fill();
    let file = bed.store.file_memory_bytes();
    assert!(filled > 100 && file > limit && file <= limit + 2 * SEGMENT_BYTES as u64, "{filled} slots, {file} bytes");
    assert_eq!(bed.store.file_segment_bytes(), file);
    assert!(bed.store.memory_bytes() > file && bed.store.is_scarce(SlotId(0)));
    bed.store.set_memory_limit_bytes(2 * limit);
    assert!(fill() > filled + 100, "there is room again");
}

#[test]
fn room_in_a_file_is_scarce_from_half_full_on_and_in_memory_always() {
    for first in [None, Some((RAM, 8 * PAGE_BYTES as u64))] {
        let tiers: Vec<_> = first.into_iter().chain([(FILE, 8 * SEGMENT_BYTES as u64)]).collect();
        let mut bed = Bed::new(&tiers, 1 << 14);
        let worker = bed.worker();
        let half = 4 * SEGMENT_BYTES as u64;
        let (mut slot, mut times_in_memory) = (0, 0);
        while bed.store.file_segment_bytes() <= half {
            bed.store.put(SlotId(slot), &content(slot), worker).expect("room");
            slot += 1;
            if bed.store.file_segment_bytes() <= half {
                let is_in_memory = bed.store.is_synchronous(SlotId(0));
                assert_eq!(bed.store.is_scarce(SlotId(0)), is_in_memory, "{slot} slots");
                times_in_memory += u32::from(is_in_memory);
            }
        }
        assert_eq!(times_in_memory > 0, first.is_some());
        assert!(slot > 100 && bed.store.is_scarce(SlotId(0)), "a file that is over half full");
        assert!(bed.store.is_scarce(SlotId(slot - 1)));
        (1..slot).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
        assert!(bed.store.file_segment_bytes() <= half && !bed.store.is_scarce(SlotId(0)), "there is room again");
    }
    // Without a limit it is the disk that fills up.
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let mut slot = 0;
    bed.faults.disk.store(3, SeqCst);
    while bed.store.put(SlotId(slot), &content(slot), worker).is_ok() {
        assert!(!bed.store.is_scarce(SlotId(0)));
        slot += 1;
    }
    assert!(bed.store.is_scarce(SlotId(0)), "a disk that is full");
    bed.faults.disk.store(0, SeqCst);
    while bed.store.put(SlotId(slot), &content(slot), worker).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!bed.store.is_scarce(SlotId(0)), "a disk with room");
}

#[test]
fn sparse_segments_are_cleaned() {
    let max = 8 * SEGMENT_BYTES as u64;
    let mut bed = Bed::new(&[(FILE, max)], 1 << 14);
    let worker = bed.worker();
    let slot = fill_up(&bed, worker);
    assert!(slot > 300);
    // One page of eight stays in every segment, so none is free; yet there is room for more.
    (0..slot).filter(|s| s % 8 != 0).for_each(|s| bed.store.free(Unused::vouched(SlotId(s))));
    for s in slot..slot + 200 {
        bed.store.put(SlotId(s), &content(s), worker).expect("room after cleaning");
    }
    assert!(bed.store.stats().file_moved_units.load(Relaxed) > 0);
    for s in (0..slot).step_by(8).chain(slot..slot + 200) {
        assert!(read(&bed, worker, s) == Ok(content(s)), "slot {s} differs");
    }
    assert!(bed.store.file_segment_bytes() <= max);
}

#[test]
fn a_full_file_is_cleaned_though_what_is_kept_for_that_is_lost() {
    let max = 8 * SEGMENT_BYTES as u64;
    let mut bed = Bed::new(&[(FILE, max)], 1 << 14);
    let worker = bed.worker();
    let filled = fill_up(&bed, worker);
    // A buffer of before a fork takes it, whatever the limit.
    bed.store.file.adopt(&bed.store.io).expect("a segment beyond what is for all");
    assert_eq!(bed.store.file_segment_bytes(), max);
    (0..filled).filter(|slot| slot % 4 != 0).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    for slot in 5000..5150 {
        bed.store.put(SlotId(slot), &content(slot), worker).expect("most of the file is dead");
        assert!(bed.store.file_segment_bytes() <= max, "only what is emptied at once is beyond the limit");
    }
    for slot in (0..filled).step_by(4).chain(5000..5150) {
        assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
    }
}

#[test]
fn a_store_that_cannot_write_does_not_read_either() {
    // Refusals by a broken file, and by a full one: neither may make the cleaner read the file over and over.
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 2000);
    (0..2000).filter(|slot| slot % 4 != 0).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let refuse = |bed: &Bed, worker: &mut Worker, puts: u32| {
        let before = bed.store.stats().file_read_total.load(Relaxed);
        let full =
            (0..puts).filter(|i| bed.store.put(SlotId(8000 + i), &page(*i as u64 * 4 + 2), worker).is_err()).count();
        (full, (bed.store.stats().file_read_total.load(Relaxed) - before) as usize / SEGMENT_BYTES)
    };
    let (full, read) = refuse(&bed, worker, 5000);
    assert!(full > 4000 && read * 20 < full, "{read} segments were read for {full} refusals");

    let mut bed = Bed::new(&[(FILE, 8 * SEGMENT_BYTES as u64)], 1 << 14);
    let worker = bed.worker();
    let mut filled = 0;
    while bed.store.put(SlotId(filled), &page(filled as u64 * 4 + 3), worker).is_ok() {
        filled += 1;
    }
    // A little is free everywhere, which is not worth cleaning for.
    (0..filled).filter(|slot| slot % 6 == 0).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    let (full, read) = refuse(&bed, worker, 5000);
    assert!(full > 4900 && read * 20 < full, "{read} segments were read for {full} refusals");
}

#[test]
fn cleaning_reads_in_proportion_to_what_is_written() {
    let mut bed = Bed::new(&[(FILE, 24 * SEGMENT_BYTES as u64)], 1 << 14);
    let worker = bed.worker();
    let mut state = 1u64;
    let mut held = std::collections::BTreeMap::new();
    for round in 0..30_000u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let slot = (state >> 33) as u32 % 1000;
        if held.remove(&slot).is_some() {
            bed.store.free(Unused::vouched(SlotId(slot)));
        } else if bed.store.put(SlotId(slot), &page(round * 4 + 3), worker).is_ok() {
            held.insert(slot, round * 4 + 3);
        }
    }
    assert!(held.iter().all(|(&slot, &seed)| read(&bed, worker, slot) == Ok(page(seed))));
    let stats = bed.store.stats();
    let (read, written) = (stats.file_read_total.load(Relaxed), stats.file_written_total.load(Relaxed));
    assert!(stats.file_moved_units.load(Relaxed) > 0 && read < 4 * written, "{read} read for {written} written");
}

#[test]
fn a_limit_of_file_size_is_kept_and_what_lies_below_it_is_used_again() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.size_limit.store(4 * SEGMENT_BYTES as u64 + 1000, SeqCst);
    for round in 0..3u64 {
        let mut filled = 0;
        while bed.store.put(SlotId(filled), &page(round + filled as u64 * 4 + 3), worker).is_ok() {
            filled += 1;
        }
        assert!((150..300).contains(&filled), "{filled} pages in four segments");
        (0..filled).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    }
    assert_eq!(bed.store.stats().errors.load(Relaxed), 0);
}

#[test]
fn what_a_limit_of_file_size_leaves_is_cleaned() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.size_limit.store(8 * SEGMENT_BYTES as u64, SeqCst);
    let filled = fill_up(&bed, worker);
    assert!(filled > 400);
    (0..filled).filter(|slot| slot % 4 != 0).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    for slot in 5000..5200 {
        bed.store.put(SlotId(slot), &content(slot), worker).expect("most of the file is dead");
    }
    for slot in (0..filled).step_by(4).chain(5000..5200) {
        assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
    }
}

#[test]
fn what_a_lowered_limit_of_file_size_cuts_off_is_moved() {
    // With and without an empty segment below the limit.
    for is_empty in [true, false] {
        let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
        let worker = bed.worker();
        (0..1500).for_each(|slot| bed.store.put(SlotId(slot), &content(slot), worker).expect("room"));
        bed.faults.size_limit.store(12 * SEGMENT_BYTES as u64, SeqCst);
        let stays = |slot: u32| if is_empty { slot >= 1300 } else { slot.is_multiple_of(6) };
        (0..1500).filter(|&slot| !stays(slot)).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
        let child = fork_store(&bed, || 0);
        assert_eq!(wait(child), 0);
        for slot in 5000..5300 {
            bed.store.put(SlotId(slot), &content(slot), worker).expect("room below the limit");
        }
        for slot in (0..1500).filter(|&slot| stays(slot)).chain(5000..5300) {
            assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
        }
        let errors = bed.store.stats().errors.load(Relaxed);
        assert!((1..20).contains(&errors), "{errors} writes failed");
    }
}

#[test]
fn a_full_disk_is_cleaned_though_the_buffers_are_stuck() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.disk.store(24, SeqCst);
    let filled = fill_up(&bed, worker);
    let mut live: std::collections::BTreeSet<u32> = (0..filled).collect();
    let part = |live: &mut std::collections::BTreeSet<u32>, parts: u32| {
        live.retain(|&slot| {
            let stays = slot % parts == 0;
            if !stays {
                bed.store.free(Unused::vouched(SlotId(slot)));
            }
            stays
        })
    };
    // What is won by cleaning others have before it can be written to: one buffer after the other is stuck.
    let mut few = live.split_off(&(filled - 6 * 63));
    part(&mut few, 3);
    bed.faults.disk.store(1, SeqCst);
    let (mut slot, mut refused) = (5000, 0);
    while refused < 6 {
        if bed.store.put(SlotId(slot), &content(slot), worker).is_ok() {
            few.insert(slot);
            slot += 1;
        } else {
            refused += 1;
            std::thread::sleep(std::time::Duration::from_millis(110));
        }
    }
    assert!(slot > 5000 + 63, "several were filled");
    // From here on the disk is full of this file alone.
    live.append(&mut few);
    part(&mut live, 4);
    let on_disk = bed.faults.on_disk.lock().expect("no test panics while it holds this").len();
    bed.faults.disk.store(on_disk, SeqCst);
    let (mut more, mut refused) = (0, 0);
    while more < 400 && refused < 100 {
        let slot = 8000 + more;
        if bed.store.put(SlotId(slot), &content(slot), worker).is_ok() {
            live.insert(slot);
            more += 1;
        } else {
            refused += 1;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    assert_eq!(more, 400, "{refused} refusals");
    for slot in live {
        assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
    }
}

#[test]
fn a_full_disk_is_cleaned() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.disk.store(16, SeqCst);
    let filled = fill_up(&bed, worker);
    assert!(filled > 16 * 60);
    // Two of three go, but none of a whole segment: room that only cleaning finds.
    (0..filled).filter(|slot| slot % 3 != 0).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    let (mut more, mut refused) = (0, 0);
    while more < 400 && refused < 100 {
        if bed.store.put(SlotId(5000 + more), &content(5000 + more), worker).is_ok() {
            more += 1;
        } else {
            refused += 1;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    assert_eq!(more, 400, "{refused} refusals");
    for slot in (0..filled).step_by(3).chain(5000..5400) {
        assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
    }
}
