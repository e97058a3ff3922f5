//! Random calls against a model, over many configurations.
use super::bed::{Bed, FILE, FaultIo, LZ4, RAM, ZSTD, fill, page, proptest_config};
use crate::{MAX_UNIT_ORDER, SEGMENT_BYTES, TierKind, Tiers, Worker};
use outswap_core::slots::Unused;
use outswap_core::store::{Page, Store};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Clone, Debug)]
enum Op {
    PutPage(u32, u64),
    PutFolio(u32, Order, u64),
    Get(u32, usize),
    Free(u32),
    FreeRange(u32, u32),
    Shrink(u64),
    Limit(u64),
}

const MODEL_SLOTS: u32 = 4096;

/// That of what comes in at one time, mostly.
fn order() -> impl Strategy<Value = Order> {
    prop_oneof![3 => Just(Order::PART), 1 => (0..=Order::MAX.get()).prop_map(Order::new)]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..MODEL_SLOTS;
    prop_oneof![
        4 => (slot.clone(), any::<u64>()).prop_map(|(s, c)| Op::PutPage(s, c)),
        12 => (slot.clone(), order(), any::<u64>())
            .prop_map(|(s, order, c)| Op::PutFolio(s / order.pages() as u32 * order.pages() as u32, order, c)),
        6 => (slot.clone(), prop_oneof![1..40usize, Just(512)]).prop_map(|(s, n)| Op::Get(s, n)),
        4 => slot.clone().prop_map(Op::Free),
        2 => (slot, 1..64u32).prop_map(|(s, n)| Op::FreeRange(s, n)),
        1 => (0..2_000_000u64).prop_map(Op::Shrink),
        1 => (0..4_000_000u64).prop_map(Op::Limit),
    ]
}

fn configs() -> impl Strategy<Value = Vec<(TierKind, u64)>> {
    prop_oneof![
        Just(vec![(LZ4, 0)]),
        Just(vec![(RAM, 0)]),
        Just(vec![(LZ4, 600_000), (FILE, 0)]),
        Just(vec![(ZSTD, 600_000), (FILE, 2 << 20)]),
        Just(vec![(RAM, 400_000), (LZ4, 400_000), (FILE, 0)]),
        Just(vec![(RAM, 400_000), (LZ4, 400_000), (ZSTD, 0)]),
        Just(vec![(FILE, 3 << 20)]),
        Just(vec![(LZ4, 50_000), (FILE, 300_000)]),
    ]
}

/// The units that folios are cut into.
fn unit_orders() -> impl Strategy<Value = Option<Order>> {
    prop_oneof![
        1 => Just(None),
        4 => (0..=MAX_UNIT_ORDER.get()).prop_map(|order| Some(Order::new(order))),
    ]
}

fn check(store: &Tiers<FaultIo>, worker: &mut Worker, model: &BTreeMap<u32, Page>, first: u32, pages: usize) {
    let mut out = vec![0xaa; pages * PAGE_BYTES];
    store.get(SlotId(first), &mut out, worker).expect("a stored page");
    for (i, page) in out.chunks_exact(PAGE_BYTES).enumerate() {
        assert!(page == &model[&(first + i as u32)][..], "slot {} differs", first + i as u32);
    }
}

proptest! {
    #![proptest_config(proptest_config())]

    #[test]
    fn tiers_hold_what_was_put(
        tiers in configs(),
        unit_order in unit_orders(),
        ops in prop::collection::vec(op(), 1..600),
    ) {
        let mut bed = Bed::with_units(&tiers, unit_order, MODEL_SLOTS);
        let worker = bed.worker();
        let store = bed.store;
        let mut model: BTreeMap<u32, Page> = BTreeMap::new();
        for op in ops {
            match op {
                Op::PutPage(slot, seed) => {
                    if model.contains_key(&slot) {
                        continue;
                    }
                    let content = page(seed);
                    if store.put(SlotId(slot), &content, worker).is_ok() {
                        model.insert(slot, content);
                    }
                }
                Op::PutFolio(first, order, seed) => {
                    if model.range(first..first + order.pages() as u32).next().is_some() {
                        continue;
                    }
                    let mut folio = vec![0; PAGE_BYTES * order.pages()];
                    for (i, page) in folio.chunks_exact_mut(PAGE_BYTES).enumerate() {
                        fill(if seed & 64 == 0 { seed } else { seed ^ i as u64 }, page);
                    }
                    if store.put(SlotId(first), &folio, worker).is_ok() {
                        for (i, page) in folio.chunks_exact(PAGE_BYTES).enumerate() {
                            model.insert(first + i as u32, page.try_into().expect("a page's length"));
                        }
                    }
                }
                Op::Get(first, pages) => {
                    let run = (0..pages as u32).take_while(|i| model.contains_key(&(first + i))).count();
                    if run > 0 {
                        check(store, worker, &model, first, run);
                    }
                }
                Op::Free(slot) => {
                    if model.remove(&slot).is_some() {
                        store.free(Unused::vouched(SlotId(slot)));
                    }
                }
                Op::FreeRange(first, count) => {
                    for slot in first..first + count {
                        if model.remove(&slot).is_some() {
                            store.free(Unused::vouched(SlotId(slot)));
                        }
                    }
                }
                Op::Shrink(bytes) => {
                    let before = store.stats().pool_bytes.load(Relaxed);
                    let given = store.shrink(bytes, worker);
                    prop_assert!(store.stats().pool_bytes.load(Relaxed) + given <= before);
                }
                Op::Limit(bytes) => store.set_memory_limit_bytes(bytes),
            }
        }
        for &slot in model.keys() {
            check(store, worker, &model, slot, 1);
        }
        for &slot in model.keys() {
            store.free(Unused::vouched(SlotId(slot)));
        }
        store.shrink(u64::MAX, worker);
        let stats = store.stats();
        prop_assert_eq!(stats.pool_used_bytes.load(Relaxed), 0);
        prop_assert_eq!(stats.pool_bytes.load(Relaxed), 0);
        prop_assert_eq!(stats.file_live_bytes.load(Relaxed), 0);
        // Nothing lives: only what stands in the open buffer holds a segment.
        prop_assert!(store.file_segment_bytes() <= SEGMENT_BYTES as u64);
        prop_assert_eq!(stats.corruptions.load(Relaxed), 0);
    }
}
