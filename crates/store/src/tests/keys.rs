//! Keys and nonces over forks.
use super::bed::{Bed, FILE, FaultIo, fill_file, fork_store, page, read, read_of, record_of, wait};
use crate::{Tiers, file};
use outswap_core::slots::Unused;
use outswap_core::store::{Store, StoreError};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_sys::os;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Memory that forked children share, of atomic words.
fn shared_words() -> &'static [AtomicU64; 1000] {
    let flags = os::MAP_SHARED | os::MAP_ANONYMOUS;
    // SAFETY: no address given, so nothing is replaced.
    let at = unsafe { os::mmap(0, 8000, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.expect("shared memory");
    // SAFETY: fresh shared memory, zero is a valid value, never unmapped.
    unsafe { &*(at as *const _) }
}

/// The key of a slot's unit, folded to a word, and its nonce.
fn seal_of(store: &Tiers<FaultIo>, slot: u32) -> (u64, u64) {
    let record = record_of(store, slot);
    let secret = store.file.segments.keys.secret(store.file.segments.key_of(record.offset()));
    (secret.iter().fold(1, |sum, &word| sum.wrapping_mul(0x100_0000_01b3) ^ word as u64), record.nonce())
}

#[test]
fn no_key_is_used_twice_with_a_nonce_or_known_to_the_other_side_of_a_fork() {
    const PUTS: usize = 60;
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    let content = page(2);
    let seen = shared_words();
    let mut put = |slot: u32, out: &[AtomicU64]| {
        if store.put(SlotId(slot), &content, worker).is_ok() {
            let (key, nonce) = seal_of(store, slot);
            out[0].store(key, SeqCst);
            out[1].store(nonce + 1, SeqCst);
        }
    };
    // Before the first fork, between it and the second, and after that; and in each child.
    let parts: Vec<_> = seen[..PUTS * 2 * 5].chunks_exact(PUTS * 2).collect();
    let mut children = Vec::new();
    for round in 0..3 {
        for (i, out) in parts[round].chunks_exact(2).enumerate() {
            put((round * PUTS + i) as u32, out);
        }
        if round < 2 {
            children.push(fork_store(&bed, || {
                for (i, out) in parts[3 + round].chunks_exact(2).enumerate() {
                    put((1000 + i) as u32, out);
                }
                0
            }));
        }
    }
    children.into_iter().for_each(|child| assert_eq!(wait(child), 0));
    let pairs: Vec<(u64, u64)> =
        seen[..PUTS * 10].chunks_exact(2).map(|pair| (pair[0].load(SeqCst), pair[1].load(SeqCst))).collect();
    assert!(pairs.iter().all(|&(key, nonce)| key != 0 && nonce != 0));
    assert_eq!(pairs.iter().collect::<std::collections::BTreeSet<_>>().len(), 5 * PUTS);
    let keys: Vec<std::collections::BTreeSet<u64>> =
        pairs.chunks_exact(PUTS).map(|part| part.iter().map(|pair| pair.0).collect()).collect();
    for (i, a) in keys.iter().enumerate() {
        assert_eq!(a.len(), 1, "one key from fork to fork");
        assert!(keys[..i].iter().all(|b| a.is_disjoint(b)), "part {i} has a key of another");
    }
    let last = bed.worker();
    for slot in 0..3 * PUTS as u32 {
        assert!(read_of(store, last, slot) == Ok(content));
    }
}

#[test]
fn a_child_does_not_hold_a_key_of_what_its_parent_writes_later() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    (0..100).for_each(|slot| store.put(SlotId(slot), &page(2), worker).expect("room"));
    let seen = shared_words();
    let child = fork_store(&bed, || {
        // Everything that the child has of keys, a while after the fork.
        for key in 0..40 {
            let secret = store.file.segments.keys.secret(key);
            for (i, word) in secret.iter().enumerate() {
                seen[key as usize * 5 + i].store(*word as u64, SeqCst);
            }
        }
        0
    });
    store.put(SlotId(200), &page(2), worker).expect("room");
    assert_eq!(wait(child), 0);
    let key = store.file.segments.key_of(record_of(store, 200).offset());
    let words = store.file.segments.keys.secret(key).map(|word| word as u64);
    let held: Vec<u64> = seen.iter().map(|word| word.load(SeqCst)).collect();
    assert!(held.iter().any(|&word| word != 0));
    assert!(!held.chunks_exact(5).any(|secret| secret == words), "the child has the parent's new key");
    // What was there before the fork is read with the old one.
    assert!(store.file.segments.key_of(record_of(store, 0).offset()) != key && read(&bed, worker, 0) == Ok(page(2)));
}

#[test]
fn without_randomness_nothing_is_written_after_a_fork() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 200);
    let written = bed.store.stats().file_written_total.load(Relaxed);
    bed.faults.no_random.store(true, SeqCst);
    let child = fork_store(&bed, || bed.store.put(SlotId(300), &page(2), worker).is_ok() as i32);
    assert_eq!(wait(child), 0, "the child wrote without a key of its own");
    assert_eq!(bed.store.put(SlotId(300), &page(2), worker), Err(StoreError::Full));
    assert!((0..200).all(|slot| read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2))));
    bed.faults.no_random.store(false, SeqCst);
    let child = fork_store(&bed, || bed.store.put(SlotId(300), &page(2), worker).is_err() as i32);
    assert_eq!(wait(child), 0, "the child has a key again");
    assert_eq!(bed.store.put(SlotId(300), &page(2), worker), Ok(()));
    assert!(bed.store.stats().file_written_total.load(Relaxed) >= written);
}

#[test]
fn keys_are_used_again_only_when_nothing_needs_them() {
    let mut bed = Bed::new(&[(FILE, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    let fork = || store.fork_parent(store.fork_prepare(), os::getpid());
    // Nothing was written: one key follows the other in the same place.
    (0..1000).for_each(|_| fork());
    assert!(store.file.segments.keys.touched_bytes() <= PAGE_BYTES as u64);
    let mut secrets = std::collections::BTreeSet::new();
    for slot in 0..300 {
        store.put(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room");
        let key = store.file.segments.key_of(record_of(store, slot).offset());
        assert!(secrets.insert((key, store.file.segments.keys.secret(key))));
        fork();
    }
    assert_eq!(secrets.iter().map(|secret| secret.0).collect::<std::collections::BTreeSet<_>>().len(), 300);
    assert!((0..300).all(|slot| read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2))));
    (0..300).for_each(|slot| store.free(Unused::vouched(SlotId(slot))));
    let used = store.file.segments.keys.touched_bytes();
    (0..1000).for_each(|_| fork());
    assert_eq!(store.file.segments.keys.touched_bytes(), used);
    // Every key is needed: none is used twice.
    store.put(SlotId(0), &page(2), worker).expect("room");
    while let Some(key) = store.file.segments.keys.current_key() {
        store.file.segments.keys.hold(key);
        fork();
    }
    assert_eq!(store.file.segments.keys.touched_bytes(), file::memory_bytes(1)[2] as u64);
    assert_eq!(store.put(SlotId(1), &page(2), worker), Err(StoreError::Full));
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    store.file.segments.keys.release(77);
    fork();
    store.put(SlotId(1), &page(6), worker).expect("a key is free again");
    assert_eq!(store.file.segments.key_of(record_of(store, 1).offset()), 77);
    assert!(read(&bed, worker, 0) == Ok(page(2)) && read(&bed, worker, 1) == Ok(page(6)));
}
