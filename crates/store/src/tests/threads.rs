//! Many threads at once.
use super::bed::{Bed, FILE, LZ4, ZSTD, fill};
use crate::MAX_UNIT_ORDER;
use outswap_core::slots::Unused;
use outswap_core::store::Store;
use outswap_core::units::{PAGE_BYTES, PART_PAGES, SlotId};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

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
