//! Files that fail, lie or are full, and configurations that make no sense.
use super::bed::{Bed, FILE, LZ4, directory, fill_file, page, read, record_of};
use crate::{Config, InitError, Later, MAX_UNIT_ORDER, SEGMENT_BYTES, TierConfig, Tiers, Worker};
use outswap_core::store::{Store, StoreError};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use outswap_sys::{Errno, os};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

#[test]
fn full_disk_keeps_pages_and_ends() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut stored = 0;
    while bed.store.put(SlotId(stored), &page(stored as u64 * 4 + 3), worker).is_ok() {
        stored += 1;
        assert!(stored < 1000, "writes that fail must be noticed");
    }
    let stats = bed.store.stats();
    assert!(stored > 0 && stats.errors.load(Relaxed) > 0);
    assert_eq!(stats.write_errors.load(Relaxed), stats.errors.load(Relaxed), "nothing was read");
    assert_eq!(stats.file_errno.load(Relaxed), Errno::ENOSPC.0 as u64);
    for slot in 0..stored {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 3)), "slot {slot} lost");
    }
    assert_eq!(bed.store.put(SlotId(5000), &page(3), worker), Err(StoreError::Full));
    bed.faults.write_error.store(0, SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(150));
    assert_eq!(bed.store.put(SlotId(5000), &page(3), worker), Ok(()));
    assert_eq!(bed.store.stats().file_errno.load(Relaxed), 0, "what could not be written is");
    for slot in 0..stored {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 3)), "slot {slot} lost");
    }
}

#[test]
fn full_disk_keeps_spilled_pages_in_ram() {
    let mut bed = Bed::new(&[(LZ4, 300_000), (FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut held = Vec::new();
    for slot in 0..2000 {
        if bed.store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok() {
            held.push(slot);
        }
    }
    assert!(held.len() < 2000, "both tiers are bounded");
    for slot in held {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2)), "slot {slot} lost");
    }
}

#[test]
fn short_transfers_are_continued() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.short.store(true, SeqCst);
    fill_file(&mut bed, worker, 600);
    for slot in 0..600 {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
    }
}

#[test]
fn read_errors_are_retried_then_reported() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 600);
    bed.faults.read_error.store(2, SeqCst);
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    bed.faults.read_error.store(usize::MAX, SeqCst);
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Io));
    bed.faults.read_error.store(0, SeqCst);
    bed.faults.truncated.store(true, SeqCst);
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Io));
    bed.faults.truncated.store(false, SeqCst);
    assert!(read(&bed, worker, 0) == Ok(page(2)));
}

#[test]
fn changed_and_exchanged_units_are_found() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 600);
    bed.faults.flip.store(true, SeqCst);
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Corrupt));
    bed.faults.flip.store(false, SeqCst);
    let offset = |slot: u32| record_of(bed.store, slot).offset();
    *bed.faults.swap.lock().expect("not poisoned") = Some((offset(0), offset(1)));
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Corrupt));
    *bed.faults.swap.lock().expect("not poisoned") = None;
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 2);
}

#[test]
fn file_does_not_hold_plain_text() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let mut text = [0u8; PAGE_BYTES];
    text.iter_mut().zip(b"the quick brown fox jumps ".iter().cycle()).for_each(|(to, &from)| *to = from);
    for slot in 0..200 {
        bed.store.put(SlotId(slot), &text, worker).expect("room in the file");
    }
    let fd = bed.store.file_descriptor().expect("the file is open");
    assert!(fd >= 100);
    let mut bytes = vec![0; SEGMENT_BYTES];
    let n = os::pread(fd, &mut bytes, 0).expect("a readable file");
    assert!(n > 100_000 && !bytes.windows(10).any(|w| w == b"quick brow"));
}

/// However many pages there are, and in whatever order they come: those that lie side by side in the file go there together.
#[test]
fn a_segment_is_one_write() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let mut slots: Vec<u32> = (0..1000).collect();
    slots.sort_by_key(|slot| slot * 7919 % 1000);
    for &slot in &slots {
        bed.store.put(SlotId(slot), &page(slot as u64 * 4 + 3), worker).expect("room in the file");
    }
    let stats = bed.store.stats();
    let (writes, bytes) = (stats.file_writes.load(Relaxed), stats.file_written_total.load(Relaxed));
    let segments = bed.store.file_segment_bytes() / SEGMENT_BYTES as u64;
    // The last one is being filled.
    assert_eq!(writes, segments - 1);
    assert!(segments > 10 && bytes > writes * (SEGMENT_BYTES as u64 - 2 * PAGE_BYTES as u64), "{bytes} in {writes}");
}

#[test]
fn nonsense_is_refused() {
    let directory = directory();
    let file = TierConfig::new(FILE, 0);
    let (twice, large) =
        ([file, file], [TierConfig { unit_order: Some(Order::new(MAX_UNIT_ORDER.get() + 1)), ..file }]);
    let config = |tiers| Config {
        tiers,
        slots: 100,
        directory: &directory,
        requests_fd: None,
        min_fd: 0,
        later: Later::Never,
        devices: None,
    };
    assert_eq!(Tiers::init(&config(&[])).err(), Some(InitError::Config));
    assert_eq!(Tiers::init(&config(&twice)).err(), Some(InitError::Config));
    assert_eq!(Tiers::init(&config(&large)).err(), Some(InitError::Config));
    let nowhere = Config {
        tiers: &[file],
        slots: 100,
        directory: b"",
        requests_fd: None,
        min_fd: 0,
        later: Later::Never,
        devices: None,
    };
    assert_eq!(Tiers::init(&nowhere).err(), Some(InitError::System(Errno::ENOENT)));
    // With a directory that does not exist, the tier is full.
    let missing = Config {
        tiers: &[file],
        slots: 100,
        directory: b"/nonexistent/outswap\0",
        requests_fd: None,
        min_fd: 0,
        later: Later::Never,
        devices: None,
    };
    let store = Tiers::init(&missing).expect("a store that says why it has no file");
    assert_eq!(store.file_error(), Some(Errno::ENOENT));
    let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
    // SAFETY: fresh zeroed memory that is never unmapped.
    let worker = unsafe { Worker::init(at as *mut u8) };
    assert_eq!(store.put(SlotId(0), &page(2), worker), Err(StoreError::Full));
    assert_eq!(store.put(SlotId(100), &page(2), worker), Err(StoreError::Full));
    assert_eq!(store.stats().full.load(Relaxed), 2);
}
