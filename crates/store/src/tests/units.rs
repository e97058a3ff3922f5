//! Units of each order, in folios of each order.
use super::bed::{Bed, FILE, LZ4, RAM, ZSTD, fill, read, record_of};
use crate::compress::Codec;
use crate::file::UnitId;
use crate::record::Record;
use crate::{MAX_UNIT_BYTES, MAX_UNIT_ORDER, SEGMENT_BYTES, TierKind, Worker};
use outswap_core::slots::Unused;
use outswap_core::store::Store;
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use std::sync::atomic::Ordering::Relaxed;

const SLOTS: u32 = 1 << 13;

fn unit_orders() -> &'static [Order] {
    &Order::ALL[..=MAX_UNIT_ORDER.get()]
}

/// Every fourth page of another sort: as much that compresses as what does not.
fn folio(seed: u64, order: Order) -> Vec<u8> {
    let mut content = vec![0; order.pages() * PAGE_BYTES];
    for (i, page) in content.chunks_exact_mut(PAGE_BYTES).enumerate() {
        fill(seed * 1024 + i as u64 / 4, page);
    }
    content
}

/// One folio of each order, each where it belongs, with gaps between them.
fn folios() -> Vec<(u32, Order)> {
    let mut next = 0u32;
    let of_order = |&order: &Order| {
        let first = (next + 1).next_multiple_of(order.pages() as u32);
        next = first + order.pages() as u32;
        (first, order)
    };
    Order::ALL.iter().rev().map(of_order).collect()
}

fn free(bed: &Bed, slot: u32) {
    bed.store.free(Unused::vouched(SlotId(slot)));
}

fn assert_reads(bed: &Bed, worker: &mut Worker, what: &str) {
    for (first, order) in folios() {
        let want = folio(first as u64, order);
        let mut got = vec![0; want.len()];
        bed.store.get(SlotId(first), &mut got, worker).expect("a stored folio");
        assert!(got == want, "{what}: folio of {} pages", order.pages());
        for (i, page) in want.chunks_exact(PAGE_BYTES).enumerate() {
            let got = read(bed, worker, first + i as u32);
            assert!(got.is_ok_and(|got| got == *page), "{what}: page {i} of {}", order.pages());
        }
    }
}

/// Puts one folio of each order, reads them whole and by page, has them moved to the file where there is one, reads them again,
/// and frees them page by page, while what is left of each is read.
fn round(tiers: &[(TierKind, u64)], unit_order: Order) {
    let mut bed = Bed::with_units(tiers, Some(unit_order), SLOTS);
    let worker = bed.worker();
    let what = format!("{tiers:?}, units of {} pages", unit_order.pages());
    for (first, order) in folios() {
        bed.store.put(SlotId(first), &folio(first as u64, order), worker).expect("room");
    }
    assert_reads(&bed, worker, &what);
    let has_file = tiers.iter().any(|tier| tier.0 == FILE);
    bed.store.shrink(u64::MAX, worker);
    assert_reads(&bed, worker, &what);
    if has_file {
        let in_file = |(first, order): (u32, Order)| {
            (first..first + order.pages() as u32).all(|slot| !bed.store.is_synchronous(SlotId(slot)))
        };
        assert!(folios().into_iter().all(in_file), "{what}: all is spilled");
    }
    for (first, order) in folios() {
        let want = folio(first as u64, order);
        // From both ends, so that each unit is cut short at each.
        let (mut from, mut to) = (0, order.pages());
        while from < to {
            if (to - from) % 2 == 0 {
                free(&bed, first + from as u32);
                from += 1;
            } else {
                to -= 1;
                free(&bed, first + to as u32);
            }
            let mut got = vec![0; (to - from).min(40) * PAGE_BYTES];
            if !got.is_empty() {
                bed.store.get(SlotId(first + from as u32), &mut got, worker).expect("what is left of a folio");
                assert!(got == want[from * PAGE_BYTES..][..got.len()], "{what}: from page {from} of {}", order.pages());
            }
            if from == order.pages() / 4 {
                // Compaction and the cleaner meet units of which a part is free.
                bed.store.shrink(u64::MAX, worker);
            }
        }
    }
    bed.store.shrink(u64::MAX, worker);
    let stats = bed.store.stats();
    assert_eq!((stats.pool_used_bytes.load(Relaxed), stats.pool_bytes.load(Relaxed)), (0, 0), "{what}");
    assert_eq!((stats.file_live_bytes.load(Relaxed), stats.corruptions.load(Relaxed)), (0, 0), "{what}");
    assert!(bed.store.file_segment_bytes() <= SEGMENT_BYTES as u64, "{what}");
}

#[test]
fn folios_of_each_order_in_units_of_each_order_come_back() {
    for tiers in [
        vec![(RAM, 0)],
        vec![(LZ4, 0)],
        vec![(ZSTD, 0)],
        vec![(FILE, 0)],
        vec![(LZ4, 0), (FILE, 0)],
        vec![(ZSTD, 0), (FILE, 0)],
        vec![(RAM, 400_000), (LZ4, 400_000), (ZSTD, 400_000), (FILE, 0)],
    ] {
        unit_orders().iter().for_each(|&order| round(&tiers, order));
    }
}

#[test]
fn larger_units_take_less_room() {
    for kind in [LZ4, ZSTD] {
        let held = |&order: &Order| {
            let mut bed = Bed::with_units(&[(kind, 0)], Some(order), SLOTS);
            let worker = bed.worker();
            // Pages that differ, but much like their neighbours.
            let mut content = vec![0; 64 * PAGE_BYTES];
            for first in (0..SLOTS / 2).step_by(64) {
                for (i, page) in content.chunks_exact_mut(PAGE_BYTES).enumerate() {
                    fill(2, page);
                    page[..8].copy_from_slice(&(first as u64 + i as u64).to_le_bytes());
                }
                bed.store.put(SlotId(first), &content, worker).expect("room");
            }
            let stats = bed.store.stats();
            let (held, used) = (stats.pool_bytes.load(Relaxed), stats.pool_used_bytes.load(Relaxed));
            assert!(used * 10 > held * 9, "{kind:?}, order {}: {used} of {held} bytes", order.get());
            held
        };
        let held: Vec<u64> = unit_orders().iter().map(held).collect();
        assert!(held.windows(2).all(|pair| pair[1] < pair[0]), "{kind:?}: {held:?}");
    }
}

#[test]
fn a_limited_pool_holds_what_it_may_of_units_that_fill_spans_badly() {
    // About 44 KiB of 64: two of them in a span of 128 KiB, whose end is lost.
    let mut content = vec![0; MAX_UNIT_BYTES];
    fill(3, &mut content[..43 << 10]);
    let max_bytes = 1 << 30;
    let mut bed = Bed::with_units(&[(LZ4, max_bytes)], Some(MAX_UNIT_ORDER), 1 << 20);
    let worker = bed.worker();
    let mut slot = 0;
    while slot < 1 << 20 && bed.store.put(SlotId(slot), &content, worker).is_ok() {
        slot += MAX_UNIT_ORDER.pages() as u32;
    }
    let held = bed.store.stats().pool_bytes.load(Relaxed);
    assert!(held <= max_bytes && held > max_bytes / 100 * 99, "{held} bytes are held of {max_bytes}");
}

#[test]
fn records_and_headers_keep_what_they_are_given() {
    for &order in unit_orders() {
        for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd] {
            for len in [0, 1, 4096, order.pages() * PAGE_BYTES] {
                let slot = (3 << 20 | 5) * order.pages() as u32;
                let id = UnitId { slot, len: len.min(order.pages() * PAGE_BYTES) as u32, order, codec };
                let (offset, nonce) = ((16u64 << 40) - 16, crate::file::MAX_NONCE);
                for index in 0..order.pages() {
                    let record = Record::file(3, id, index, offset, nonce);
                    assert_eq!(record.unit(slot + index as u32), id);
                    assert_eq!((record.tier(), record.index()), (Some(3), index));
                    assert_eq!((record.offset(), record.nonce()), (offset, nonce));
                    assert!(Record::file(3, id, 0, offset, nonce).same_unit(record, index));
                    assert!(!Record::file(3, id, 0, offset, nonce - 1).same_unit(record, index));
                }
                assert_eq!(UnitId::parse(&id.header()), Some(id));
            }
        }
    }
}

#[test]
fn headers_that_no_unit_has_are_none() {
    let id = UnitId { slot: 32, len: 4096, order: Order::new(2), codec: Codec::Lz4 };
    assert_eq!(UnitId::parse(&id.header()), Some(id));
    for wrong in [
        UnitId { slot: 33, ..id },
        UnitId { len: 4 * PAGE_BYTES as u32 + 1, ..id },
        UnitId { order: Order::new(MAX_UNIT_ORDER.get() + 1), ..id },
        UnitId { order: Order::new(7), ..id },
    ] {
        assert_eq!(UnitId::parse(&wrong.header()), None, "{wrong:?}");
    }
    assert_eq!(UnitId::parse(&[0; 8]), None);
    assert_eq!(UnitId::parse(&id.header()[..7]), None);
}

#[test]
fn order_and_length_are_sealed() {
    let mut bed = Bed::with_units(&[(FILE, 0)], Some(MAX_UNIT_ORDER), SLOTS);
    let worker = bed.worker();
    bed.store.put(SlotId(64), &folio(3, MAX_UNIT_ORDER), worker).expect("room");
    let record = record_of(bed.store, 64);
    let (id, tier) = (record.unit(64), record.tier().expect("it is stored"));
    let put = |id: UnitId| {
        let shard = bed.store.records.lock(64);
        bed.store.records.put(&shard, 64, Record::file(tier, id, 0, record.offset(), record.nonce()));
    };
    for wrong in [
        UnitId { order: Order::new(3), ..id },
        UnitId { len: id.len - 1, ..id },
        UnitId { len: id.len - 16, ..id },
        UnitId { codec: Codec::Lz4, ..id },
    ] {
        put(wrong);
        assert!(read(&bed, worker, 64).is_err(), "{wrong:?}");
    }
    put(id);
    assert!(read(&bed, worker, 64).is_ok_and(|page| page == folio(3, MAX_UNIT_ORDER)[..PAGE_BYTES]));
}
