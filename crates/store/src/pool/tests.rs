//! A pool against a model of it.
use super::object::HEADER_BYTES;
use super::*;
use crate::compress::Codec;
use crate::tests::{fill, proptest_config};
use core::sync::atomic::AtomicU64;
use outswap_core::units::{Order, PAGE_BYTES};
use outswap_sys::os;
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(proptest_config())]

    #[test]
    fn pool_keeps_objects_apart(
        ops in prop::collection::vec((0..10u8, prop_oneof![1..14000usize, 1..57344usize], any::<u64>()), 1..800),
        limit_pages in 20..400u64,
    ) {
        const BYTES: usize = 16 << 20;
        let base = os::mmap_anonymous(BYTES).expect("memory for a pool");
        let table = os::mmap_anonymous(table_bytes(BYTES)).expect("memory for a table");
        let head = os::mmap_anonymous(2 * size_of::<Pool>()).expect("memory for a pool's head");
        let part = os::mmap_anonymous(size_of::<PoolShard>()).expect("memory for a shard");
        // SAFETY: zeroed memory is a valid pool and a valid shard, and this test alone uses them.
        let (pool, part) = unsafe { (&mut *(head as *mut Pool), &mut *(part as *mut PoolShard)) };
        pool.set(base, BYTES, table, u64::MAX);
        let limit_bytes = limit_pages * PAGE_BYTES as u64;
        let budget = Budget { held_bytes: AtomicU64::new(0), limit_bytes: AtomicU64::new(limit_bytes) };
        let mut model: BTreeMap<u32, (Object, Vec<u8>)> = BTreeMap::new();
        let mut slot = 0;
        for (kind, len, seed) in ops {
            match kind {
                0..=5 => {
                    let mut payload = vec![0; len.next_multiple_of(8)];
                    fill(seed | 3, &mut payload);
                    payload.truncate(len);
                    slot += 1;
                    let header = Header::new(slot, Order::PAGE, Codec::Lz4, len);
                    if let Ok(object) = pool.insert(part, header, &payload, &budget) {
                        model.insert(slot, (object, payload));
                    }
                }
                6..=8 => {
                    let pick = model.keys().nth(seed as usize % model.len().max(1)).copied();
                    if let Some((object, _)) = pick.and_then(|slot| model.remove(&slot)) {
                        if let Some(span) = pool.remove(part, object) {
                            pool.release(span, &budget);
                        }
                    }
                }
                _ => {
                    let held = pool.held_bytes();
                    let span = pool.compact(part, |header, object| {
                        model.get_mut(&header.slot).expect("moved objects are live").0 = object;
                    });
                    if let Some(span) = span {
                        pool.release(span, &budget);
                    }
                    prop_assert!(pool.held_bytes() <= held);
                }
            }
            prop_assert!(pool.held_bytes() <= limit_bytes);
        }
        let used: usize = model.values().map(|(_, payload)| payload.len() + HEADER_BYTES).sum();
        prop_assert_eq!(pool.used_bytes(), used as u64);
        for (slot, (object, payload)) in &model {
            let header = pool.header(*object);
            prop_assert_eq!(header.slot, *slot);
            prop_assert!(pool.payload(*object, header) == &payload[..]);
        }
        for (object, _) in model.values() {
            if let Some(span) = pool.remove(part, *object) {
                pool.release(span, &budget);
            }
        }
        pool.discard_cached(&budget);
        prop_assert_eq!(pool.held_bytes(), 0);
        // SAFETY: nothing refers to these regions any more.
        unsafe {
            let _ = os::munmap(base, BYTES);
            let _ = os::munmap(table, table_bytes(BYTES));
        }
    }
}
