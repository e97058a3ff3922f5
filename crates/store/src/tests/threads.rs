//! Many threads at once.
use super::bed::{Bed, FILE, LZ4, ZSTD, fill, page, read_of};
use crate::{MAX_UNIT_ORDER, SEGMENT_BYTES};
use outswap_core::slots::Unused;
use outswap_core::store::Store;
use outswap_core::units::{PAGE_BYTES, PART_PAGES, SlotId};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Others take what is kept for the cleaner while it works, if they may: then a file that is full stays so.
#[test]
fn a_file_with_room_takes_what_many_threads_write() {
    const SEGMENTS: u64 = 24;
    const SLOTS: u32 = 24 * 63 * 7 / 10 / 3;
    const ROUNDS: u64 = 20_000;
    let mut bed = Bed::new(&[(FILE, SEGMENTS * SEGMENT_BYTES as u64)], 1 << 14);
    let workers: Vec<_> = (0..3).map(|_| bed.worker()).collect();
    let store = bed.store;
    let refused: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(t, worker)| {
                scope.spawn(move || {
                    let first = t as u32 * SLOTS;
                    let mut seeds: BTreeMap<u32, u64> = BTreeMap::new();
                    let (mut state, mut refused) = (t as u64 + 1, 0);
                    for round in 0..ROUNDS {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let slot = first + (state >> 33) as u32 % SLOTS;
                        if let Some(seed) = seeds.remove(&slot) {
                            assert!(read_of(store, worker, slot) == Ok(page(seed)), "slot {slot} differs");
                            store.free(Unused::vouched(SlotId(slot)));
                        }
                        let seed = round * 4 + 3;
                        match store.put(SlotId(slot), &page(seed), worker) {
                            Ok(()) => _ = seeds.insert(slot, seed),
                            // Some are where the cleaner has no processor for a while.
                            Err(_) => refused += u64::from(round >= ROUNDS / 4 * 3),
                        }
                    }
                    refused
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread finds wrong bytes")).sum()
    });
    let last = ROUNDS / 4 * 3;
    assert!(refused < last / 4, "of the last {last}, {refused} were refused");
    assert!(store.stats().file_moved_units.load(Relaxed) > 0);
    assert!(store.file_segment_bytes() <= SEGMENTS * SEGMENT_BYTES as u64);
}

#[test]
fn threads_see_their_own_pages() {
    for (tiers, unit_order) in [
        (vec![(LZ4, 0)], None),
        (vec![(LZ4, 3 << 20), (FILE, 0)], None),
        (vec![(LZ4, 3 << 20), (FILE, 0)], Some(MAX_UNIT_ORDER)),
        (vec![(ZSTD, 1 << 20), (FILE, 0)], None),
    ] {
        let mut bed = Bed::with_units(&tiers, unit_order, 1 << 15);
        let workers: Vec<_> = (0..4).map(|_| bed.worker()).collect();
        let shrinker = bed.worker();
        let store = bed.store;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .enumerate()
                .map(|(t, worker)| {
                    scope.spawn(move || {
                        // Interleaved folios: every shard is used by every thread.
                        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
                        let mut state = t as u64 + 1;
                        for round in 0..6000u64 {
                            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                            let folio = (state >> 33) as u32 % 256 * 4 + t as u32;
                            let first = folio * 16;
                            if let Some(seed) = held.remove(&first) {
                                let mut out = [0u8; PAGE_BYTES * PART_PAGES];
                                store.get(SlotId(first), &mut out, worker).expect("a stored folio");
                                let mut want = [0u8; PAGE_BYTES * PART_PAGES];
                                fill(seed, &mut want);
                                assert!(out == want, "folio {folio} differs");
                                if round % 3 != 0 {
                                    (0..16).for_each(|i| store.free(Unused::vouched(SlotId(first + i))));
                                } else {
                                    held.insert(first, seed);
                                }
                            } else {
                                let mut folio = [0u8; PAGE_BYTES * PART_PAGES];
                                let seed = round * 8 + (state >> 60) % 4;
                                fill(seed, &mut folio);
                                if store.put(SlotId(first), &folio, worker).is_ok() {
                                    held.insert(first, seed);
                                }
                            }
                        }
                    })
                })
                .collect();
            let stop = &stop;
            let shrinking = scope.spawn(move || {
                while !stop.load(SeqCst) {
                    store.shrink(200_000, shrinker);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            for thread in threads {
                thread.join().expect("no thread finds wrong bytes");
            }
            stop.store(true, SeqCst);
            shrinking.join().expect("shrinking does not panic");
        });
        assert_eq!(store.stats().corruptions.load(Relaxed), 0);
        if tiers.len() > 1 {
            assert!(store.stats().pages_in_file.load(Relaxed) > 0, "the file tier took no part");
        }
    }
}
