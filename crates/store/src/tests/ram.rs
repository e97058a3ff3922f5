//! Tiers in RAM: limits, compaction, spilling, compressors.
use super::bed::{Bed, FILE, LZ4, RAM, ZSTD, fill, page, read};
use crate::{Algorithm, Compressed, MAX_UNIT_ORDER, TierKind, Worker};
use outswap_core::slots::Unused;
use outswap_core::store::{Store, StoreError};
use outswap_core::units::{Order, PAGE_BYTES, PART_PAGES, SlotId};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn limits_are_held_and_zero_is_a_limit() {
    let mut bed = Bed::new(&[(LZ4, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.set_memory_limit_bytes(0);
    assert_eq!(bed.store.put(SlotId(0), &page(2), worker), Err(StoreError::Full));
    bed.store.set_memory_limit_bytes(1 << 20);
    let mut stored = 0;
    while bed.store.put(SlotId(stored), &page(stored as u64 * 4 + 2), worker).is_ok() {
        stored += 1;
    }
    assert!(stored > 300, "half-compressible pages take about half: {stored}");
    let stats = bed.store.stats();
    assert!(stats.pool_bytes.load(Relaxed) <= 1 << 20);
    assert!(stats.pool_used_bytes.load(Relaxed) * 10 > stats.pool_bytes.load(Relaxed) * 9);
    (0..stored).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
    assert_eq!(bed.store.put(SlotId(0), &page(2), worker), Ok(()));

    let mut bed = Bed::new(&[(LZ4, 0), (FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.set_memory_limit_bytes(0);
    assert_eq!(bed.store.put(SlotId(0), &page(2), worker), Ok(()));
    assert!(!bed.store.is_synchronous(SlotId(0)));
    assert!(read(&bed, worker, 0) == Ok(page(2)));
}

#[test]
fn shrink_empties_the_pool_into_the_file() {
    // Units of one page, and of four.
    for kind in [LZ4, ZSTD] {
        let mut bed = Bed::new(&[(kind, 0), (FILE, 0)], 1 << 14);
        let worker = bed.worker();
        for folio in 0..64u32 {
            let mut content = [0u8; PAGE_BYTES * PART_PAGES];
            fill(folio as u64 * 4 + 2, &mut content);
            bed.store.put(SlotId(folio * 16), &content, worker).expect("room");
        }
        // A unit of which a part was freed moves with what is left.
        bed.store.free(Unused::vouched(SlotId(1)));
        let held = bed.store.stats().pool_bytes.load(Relaxed);
        assert_eq!(bed.store.shrink(u64::MAX, worker), held);
        assert_eq!(bed.store.stats().pool_bytes.load(Relaxed), 0);
        assert_eq!(bed.store.stats().pages_out_file.load(Relaxed), 1023);
        for folio in 0..64u32 {
            let mut want = [0u8; PAGE_BYTES * PART_PAGES];
            fill(folio as u64 * 4 + 2, &mut want);
            let mut got = [0u8; 14 * PAGE_BYTES];
            bed.store.get(SlotId(folio * 16 + 2), &mut got, worker).expect("a stored folio");
            assert!(got == want[2 * PAGE_BYTES..]);
        }
    }
}

#[test]
fn incompressible_pages_go_down_or_stay_raw() {
    let mut bed = Bed::new(&[(LZ4, 0), (FILE, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.put(SlotId(0), &page(3), worker).expect("room");
    assert!(!bed.store.is_synchronous(SlotId(0)));
    assert_eq!(bed.store.stats().raw_units.load(Relaxed), 1);
    // With the file broken, RAM is better than nothing.
    let mut bed = Bed::new(&[(LZ4, 0), (FILE, 1)], 1 << 14);
    let worker = bed.worker();
    bed.store.put(SlotId(0), &page(3), worker).expect("room");
    assert!(bed.store.is_synchronous(SlotId(0)));
    let mut folio = [0u8; PAGE_BYTES * PART_PAGES];
    fill(7, &mut folio);
    bed.store.put(SlotId(16), &folio, worker).expect("room");
    let mut got = [0u8; PAGE_BYTES * PART_PAGES];
    bed.store.get(SlotId(16), &mut got, worker).expect("a stored folio");
    assert!(got == folio && read(&bed, worker, 0) == Ok(page(3)));
}

/// Whether bytes stand in the memory of a RAM tier's pool.
fn is_in_pool(bed: &Bed, bytes: &[u8]) -> bool {
    let (at, len) = bed.store.pools[0].memory();
    // SAFETY: a pool's memory, which only this test uses.
    let memory = unsafe { std::slice::from_raw_parts(at as *const u8, len) };
    memory.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn what_is_wiped_is_gone_once_nothing_shares_it() {
    const SECRET: &[u8] = b"a word that nobody else may see";
    for (kind, pages) in [(RAM, 1), (LZ4, 1), (ZSTD, 4)] {
        let mut bed = Bed::new(&[(kind, 8 << 20)], 64);
        let worker = bed.worker();
        let mut content = vec![0u8; pages as usize * PAGE_BYTES];
        fill(3, &mut content[..PAGE_BYTES / 2]);
        content[100..100 + SECRET.len()].copy_from_slice(SECRET);
        bed.store.put(SlotId(0), &content, worker).expect("room");
        bed.store.put(SlotId(32), &page(3), worker).expect("room");
        assert!(is_in_pool(&bed, SECRET), "{kind:?}: a codec that keeps what does not repeat");
        for slot in 0..pages {
            assert!(is_in_pool(&bed, SECRET), "{kind:?}: the unit is still in use");
            bed.store.wipe(Unused::vouched(SlotId(slot)));
        }
        assert!(!is_in_pool(&bed, SECRET), "{kind:?}");
        assert!(read(&bed, worker, 32) == Ok(page(3)), "{kind:?}");
    }
}

#[test]
fn compaction_wins_memory_back() {
    let mut bed = Bed::new(&[(LZ4, 0)], 1 << 15);
    let worker = bed.worker();
    for slot in 0..16384 {
        bed.store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room");
    }
    let full = bed.store.stats().pool_bytes.load(Relaxed);
    (0..16384).filter(|s| s % 5 != 0).for_each(|s| bed.store.free(Unused::vouched(SlotId(s))));
    bed.store.shrink(u64::MAX, worker);
    let left = bed.store.stats().pool_bytes.load(Relaxed);
    assert!(left * 3 < full, "a fifth lives, {left} of {full} bytes are held");
    assert!(bed.store.stats().compacted_objects.load(Relaxed) > 0);
    for s in (0..16384).step_by(5) {
        assert!(read(&bed, worker, s) == Ok(page(s as u64 * 4 + 2)));
    }
}

#[test]
fn every_zstd_level_round_trips() {
    let units = [None, Some(Order::PAGE), Some(Order::new(3)), Some(MAX_UNIT_ORDER)];
    for (level, unit_order) in
        [-5, 0, 1, 3, 9, 15, 19, 22].into_iter().flat_map(|level| units.map(|unit| (level, unit)))
    {
        let mut bed = Bed::with_units(&[(TierKind::Compressed(Compressed(Algorithm::Zstd(level))), 0)], unit_order, 64);
        let worker = bed.worker();
        let mut folio = [0u8; PAGE_BYTES * PART_PAGES];
        fill(2, &mut folio);
        bed.store.put(SlotId(0), &folio, worker).expect("room");
        bed.store.put(SlotId(16), &page(1), worker).expect("room");
        let mut got = [0u8; PAGE_BYTES * PART_PAGES];
        bed.store.get(SlotId(0), &mut got, worker).expect("a stored folio");
        assert!(got == folio && read(&bed, worker, 16) == Ok(page(1)), "level {level}");
        assert_eq!(bed.store.stats().raw_units.load(Relaxed), 0, "level {level} compresses");
    }
    const { assert!(Worker::BYTES <= 2 << 20) };
}
