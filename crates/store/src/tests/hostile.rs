//! A child that writes anything to what it shares with its parent.
use super::bed::{Bed, FILE, fill_file, page, proptest_config, read, read_of};
use crate::SEGMENT_BYTES;
use outswap_core::slots::Unused;
use outswap_core::store::Store;
use outswap_core::units::SlotId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Clone, Debug)]
enum Hostile {
    Put(u32),
    Free(u32),
    Get(u32),
    Fork(bool),
    Shrink,
    Table(usize, u64),
    Family(usize, u64),
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let slot = 0..1500u32;
    let value = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..4u64];
    prop_oneof![
        20 => slot.clone().prop_map(Hostile::Put),
        12 => slot.clone().prop_map(Hostile::Free),
        8 => slot.prop_map(Hostile::Get),
        1 => any::<bool>().prop_map(Hostile::Fork),
        1 => Just(Hostile::Shrink),
        6 => (0..400usize, value.clone()).prop_map(|(at, value)| Hostile::Table(at, value)),
        3 => (any::<usize>(), value).prop_map(|(at, value)| Hostile::Family(at, value)),
    ]
}

proptest! {
    #![proptest_config(proptest_config())]

    /// A child may write anything to what it shares with its parent: the parent's pages stay what they are.
    #[test]
    fn scribbling_over_shared_tables_changes_no_page(
        max in prop_oneof![Just(0), Just(6u64), Just(40)],
        ops in prop::collection::vec(hostile(), 300..2000),
    ) {
        let mut bed = Bed::new(&[(FILE, max * SEGMENT_BYTES as u64)], 2048);
        let worker = bed.worker();
        let store = bed.store;
        let mut model = BTreeMap::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Hostile::Put(slot) => {
                    let seed = i as u64 * 4 + 3;
                    if !model.contains_key(&slot) && store.put(SlotId(slot), &page(seed), worker).is_ok() {
                        model.insert(slot, seed);
                    }
                }
                Hostile::Free(slot) => {
                    if model.remove(&slot).is_some() {
                        store.free(Unused::vouched(SlotId(slot)));
                    }
                }
                Hostile::Get(slot) => {
                    if let Some(&seed) = model.get(&slot) {
                        prop_assert!(read(&bed, worker, slot) == Ok(page(seed)));
                    }
                }
                Hostile::Fork(fails) => {
                    let ticket = store.fork_prepare();
                    store.fork_parent(ticket, if fails { -1 } else { 1 });
                }
                Hostile::Shrink => drop(store.shrink(1 << 20, worker)),
                Hostile::Table(at, value) => {
                    if let Some((table, words)) = store.file.files().shared_table() {
                        // SAFETY: within the table, which is made of atomics.
                        unsafe { &*(table as *const AtomicU64).add(at % words) }.store(value, SeqCst);
                    }
                }
                Hostile::Family(at, value) => {
                    let (family, words) = store.file.files().shared_family();
                    // SAFETY: as above.
                    unsafe { &*(family as *const AtomicU64).add(at % words) }.store(value, SeqCst);
                }
            }
        }
        for (&slot, &seed) in &model {
            prop_assert!(read(&bed, worker, slot) == Ok(page(seed)));
        }
        prop_assert_eq!(store.stats().corruptions.load(Relaxed), 0);
    }
}

#[test]
fn a_hostile_child_at_work_changes_no_page() {
    let mut bed = Bed::new(&[(FILE, 40 * SEGMENT_BYTES as u64)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 200);
    let ticket = store.fork_prepare();
    store.fork_parent(ticket, 1);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        let scribble = || {
            let (table, words) = store.file.files().shared_table().expect("the file is shared");
            let (family, family_words) = store.file.files().shared_family();
            let mut state = 1u64;
            while !stop.load(SeqCst) {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (at, value) = (state >> 40, [0, u64::MAX, state, 1][state as usize >> 20 & 3]);
                let (to, len) = if at % 5 == 0 { (family, family_words) } else { (table, words.min(400)) };
                // SAFETY: within the table, which is made of atomics and stays mapped until the threads are joined.
                unsafe { &*(to as *const AtomicU64).add(at as usize % len) }.store(value, Relaxed);
            }
        };
        scope.spawn(scribble);
        let mut held: BTreeMap<u32, u64> = (0..200).map(|slot| (slot, slot as u64 * 4 + 2)).collect();
        let mut state = 7u64;
        for round in 0..20_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let slot = (state >> 33) as u32 % 1000;
            if let Some(seed) = held.remove(&slot) {
                assert!(read_of(store, worker, slot) == Ok(page(seed)), "slot {slot} differs");
                store.free(Unused::vouched(SlotId(slot)));
            } else if store.put(SlotId(slot), &page(round * 4 + 3), worker).is_ok() {
                held.insert(slot, round * 4 + 3);
            }
            if round % 500 == 0 {
                let ticket = store.fork_prepare();
                store.fork_parent(ticket, if round % 1000 == 0 { -1 } else { 1 });
            }
        }
        drop(stopping);
        assert!(held.into_iter().all(|(slot, seed)| read_of(store, worker, slot) == Ok(page(seed))));
    });
    assert_eq!(store.stats().corruptions.load(Relaxed), 0);
}
