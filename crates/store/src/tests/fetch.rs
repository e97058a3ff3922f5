//! Reads of several places of a file: few, together, and each found out where it fails.
use super::bed::{Bed, FILE, LZ4, fill_file, fork_store, page, read, record_of, wait};
use crate::{FileIo, SEGMENT_BYTES, Worker};
use outswap_core::store::{Read, Run, Store, StoreError};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Reads runs of slots that [`fill_file`] has filled, into places that are not side by side, and looks at every byte.
fn read_runs(bed: &Bed, worker: &mut Worker, runs: &[(u32, u32)]) -> Result<(), StoreError> {
    let (mut list, mut at) = (Vec::new(), 0);
    for &(first, pages) in runs {
        list.push(Run { first: SlotId(first), pages, at });
        at += pages + 1;
    }
    let mut out = vec![0xa5; at as usize * PAGE_BYTES];
    assert_eq!(bed.store.read(&list, &mut out, worker)?, Read::Done);
    for run in &list {
        for i in 0..run.pages {
            let want = page((run.first.0 + i) as u64 * 4 + 2);
            assert!(out[(run.at + i) as usize * PAGE_BYTES..][..PAGE_BYTES] == want, "slot {}", run.first.0 + i);
        }
        let behind = (run.at + run.pages) as usize * PAGE_BYTES;
        assert!(out[behind..behind + PAGE_BYTES].iter().all(|&b| b == 0xa5), "more was written than asked for");
    }
    Ok(())
}

const SCATTERED: &[(u32, u32)] = &[(0, 2), (100, 1), (40, 3), (300, 1), (7, 1), (500, 4)];

#[test]
fn neighbours_in_the_file_are_one_read() {
    for tiers in [&[(FILE, 0)][..], &[(LZ4, 1 << 17), (FILE, 0)]] {
        let mut bed = Bed::new(tiers, 1 << 12);
        let worker = bed.worker();
        fill_file(&mut bed, worker, 1200);
        for first in [0, 16, 80] {
            assert!(!bed.store.is_synchronous(SlotId(first)));
            let before = bed.faults.reads.load(SeqCst);
            read_runs(&bed, worker, &[(first, 16)]).expect("it can be read");
            let reads = bed.faults.reads.load(SeqCst) - before;
            // A folio can lie in two segments.
            assert!((1..=2).contains(&reads), "{reads} reads for slots from {first} on");
        }
        assert!(bed.store.stats().file_read_total.load(Relaxed) > 0);
    }
}

#[test]
fn several_places_are_read_together_and_each_failure_is_found() {
    for order in [Order::PAGE, Order::new(2)] {
        let mut bed = Bed::with_units(&[(FILE, 0)], Some(order), 1 << 12);
        let worker = bed.worker();
        for first in (0..1024).step_by(order.pages()) {
            let content: Vec<u8> = (first..first + order.pages() as u32).flat_map(|s| page(s as u64 * 4 + 2)).collect();
            bed.store.put(SlotId(first), &content, worker).expect("room in the file");
        }
        bed.faults.ring.begin(100);
        let has_ring = bed.faults.ring.descriptor().is_some();
        read_runs(&bed, worker, SCATTERED).expect("it can be read");
        assert_eq!(bed.faults.batches.load(SeqCst) > 0, has_ring);
        assert_eq!(bed.faults.ring.reads_together() > 0, has_ring);
        // What the file does not have any more: the ring gives less, and the reads alone say so.
        let fd = bed.store.file_descriptor().expect("the file is open");
        let cut = record_of(bed.store, 300).offset() % (1 << 40);
        assert!(cut > SEGMENT_BYTES as u64 / 2, "further on than the others");
        outswap_sys::os::ftruncate(fd, cut + 100).expect("ours");
        assert_eq!(read_runs(&bed, worker, SCATTERED), Err(StoreError::Io), "never what is not there");
        read_runs(&bed, worker, &[(0, 2), (100, 1), (7, 1)]).expect("these are there");
        bed.faults.ring.end();
        assert!(bed.faults.ring.descriptor().is_none());
        read_runs(&bed, worker, &[(0, 2), (100, 1), (7, 1)]).expect("one after the other");
    }
}

#[test]
fn a_descriptor_that_somebody_closed_is_done_without() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 1024);
    bed.faults.ring.begin(100);
    if let Some(fd) = bed.faults.ring.descriptor() {
        outswap_sys::os::close(fd).expect("ours");
    }
    read_runs(&bed, worker, SCATTERED).expect("one after the other");
}

#[test]
fn errors_and_changes_among_several_are_told_apart() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 1024);
    // Each batch read fails; alone they are tried again.
    bed.faults.read_error.store(6, SeqCst);
    read_runs(&bed, worker, SCATTERED).expect("tried again");
    bed.faults.short.store(true, SeqCst);
    read_runs(&bed, worker, SCATTERED).expect("continued");
    bed.faults.short.store(false, SeqCst);
    let offset = |slot: u32| record_of(bed.store, slot).offset();
    *bed.faults.swap.lock().expect("not poisoned") = Some((offset(40), offset(43)));
    assert_eq!(read_runs(&bed, worker, SCATTERED), Err(StoreError::Corrupt));
    *bed.faults.swap.lock().expect("not poisoned") = None;
    read_runs(&bed, worker, SCATTERED).expect("as it was");
}

#[test]
fn a_child_has_a_ring_of_its_own() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 1024);
    bed.faults.ring.begin(100);
    let before = bed.faults.ring.descriptor();
    let status = wait(fork_store(&bed, || {
        // The ring of the tests is not the store's, so it is told by hand.
        bed.faults.ring.begin_child(100);
        let mut out = [[0u8; PAGE_BYTES]; 3];
        let runs = [(0, 0), (500, 1), (200, 2)].map(|(slot, at)| Run { first: SlotId(slot), pages: 1, at });
        let done = bed.store.read(&runs, out.as_flattened_mut(), worker).is_ok();
        let right = [0, 500, 200].iter().zip(&out).all(|(&slot, out)| *out == page(slot * 4 + 2));
        let ring = bed.faults.ring.descriptor().is_some() == before.is_some();
        !(done && right && ring) as i32
    }));
    assert_eq!(status, 0);
    assert_eq!(bed.faults.ring.descriptor(), before);
    assert!(read(&bed, worker, 3) == Ok(page(14)));
    read_runs(&bed, worker, SCATTERED).expect("the parent's is as it was");
}
