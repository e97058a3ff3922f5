use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

const LZ4: TierKind = TierKind::Compressed(Algorithm::Lz4);
const ZSTD: TierKind = TierKind::Compressed(Algorithm::Zstd(3));

fn directory() -> Vec<u8> {
    std::env::temp_dir().into_os_string().into_encoded_bytes()
}

/// Fills pages so that the content tells `seed`: by `seed % 4` zeros, text-like, half random, all random.
fn fill(seed: u64, out: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let value = match seed % 4 {
            0 => 0,
            1 => seed ^ ((i / 16) as u64) << 40,
            2 if i / 32 % 2 == 0 => next(),
            2 => seed,
            _ => next(),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn page(seed: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    fill(seed, &mut page);
    page
}

/// What an injected fault does.
#[derive(Default)]
struct Faults {
    write_error: AtomicUsize,
    read_error: AtomicUsize,
    short: AtomicBool,
    truncated: AtomicBool,
    flip: AtomicBool,
    punched: AtomicUsize,
    swap: Mutex<Option<(u64, u64)>>,
}

#[derive(Clone, Default)]
struct FaultIo(Arc<Faults>);

fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl FileIo for FaultIo {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> outswap_sys::Result<usize> {
        if take(&self.0.read_error) {
            return Err(Errno::EIO);
        }
        if self.0.truncated.load(SeqCst) {
            return Ok(0);
        }
        let offset = match *self.0.swap.lock().expect("no test panics while it holds this") {
            Some((a, b)) if a == offset => b,
            _ => offset,
        };
        let len = if self.0.short.load(SeqCst) { buf.len().min(100) } else { buf.len() };
        let n = os::pread(fd, &mut buf[..len], offset)?;
        if self.0.flip.load(SeqCst) && n > 50 {
            buf[50] ^= 4;
        }
        Ok(n)
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> outswap_sys::Result<usize> {
        if take(&self.0.write_error) {
            return Err(Errno::ENOSPC);
        }
        let len = if self.0.short.load(SeqCst) { buf.len().min(5000) } else { buf.len() };
        os::pwrite(fd, &buf[..len], offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> outswap_sys::Result<()> {
        self.0.punched.fetch_add(1, SeqCst);
        os::punch_hole(fd, offset, len)
    }
}

/// A store that is unmapped at the end of its test, with a worker.
struct Bed {
    store: &'static Tiers<FaultIo>,
    faults: Arc<Faults>,
    workers: Vec<usize>,
}

impl Bed {
    fn new(tiers: &[(TierKind, u64)], slots: u32) -> Bed {
        let tiers: Vec<_> = tiers.iter().map(|&(kind, max_bytes)| TierConfig { kind, max_bytes }).collect();
        let io = FaultIo::default();
        let faults = io.0.clone();
        let directory = directory();
        let config = Config { tiers: &tiers, slots, directory: &directory, min_fd: 100 };
        let store = Tiers::init_with(&config, io).expect("memory for a small store");
        Bed { store, faults, workers: Vec::new() }
    }

    fn worker(&mut self) -> &'static mut Worker {
        let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
        self.workers.push(at);
        // SAFETY: fresh zeroed memory, unmapped in `drop` only.
        unsafe { Worker::init(at as *mut u8) }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // SAFETY: the test is over; its threads were joined.
        unsafe {
            self.store.destroy();
            for &at in &self.workers {
                let _ = os::munmap(at, Worker::BYTES);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    PutPage(u32, u64),
    PutFolio(u32, u64),
    Get(u32, usize),
    Free(u32),
    FreeRange(u32, u32),
    Shrink(u64),
    Limit(u64),
}

const MODEL_SLOTS: u32 = 4096;

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..MODEL_SLOTS;
    prop_oneof![
        4 => (slot.clone(), any::<u64>()).prop_map(|(s, c)| Op::PutPage(s, c)),
        12 => (slot.clone(), any::<u64>()).prop_map(|(s, c)| Op::PutFolio(s & !15, c)),
        6 => (slot.clone(), 1..40usize).prop_map(|(s, n)| Op::Get(s, n)),
        4 => slot.clone().prop_map(Op::Free),
        2 => (slot, 1..64u32).prop_map(|(s, n)| Op::FreeRange(s, n)),
        1 => (0..2_000_000u64).prop_map(Op::Shrink),
        1 => (0..4_000_000u64).prop_map(Op::Limit),
    ]
}

fn configs() -> impl Strategy<Value = Vec<(TierKind, u64)>> {
    prop_oneof![
        Just(vec![(LZ4, 0)]),
        Just(vec![(TierKind::Ram, 0)]),
        Just(vec![(LZ4, 600_000), (TierKind::File, 0)]),
        Just(vec![(ZSTD, 600_000), (TierKind::File, 2 << 20)]),
        Just(vec![(TierKind::Ram, 400_000), (LZ4, 400_000), (TierKind::File, 0)]),
        Just(vec![(TierKind::Ram, 400_000), (LZ4, 400_000), (ZSTD, 0)]),
        Just(vec![(TierKind::File, 3 << 20)]),
        Just(vec![(LZ4, 50_000), (TierKind::File, 300_000)]),
    ]
}

fn check(store: &Tiers<FaultIo>, worker: &mut Worker, model: &BTreeMap<u32, Page>, first: u32, pages: usize) {
    let mut out = vec![0xaa; pages * PAGE_BYTES];
    store.get(SlotId(first), &mut out, worker).expect("a stored page");
    for (i, page) in out.chunks_exact(PAGE_BYTES).enumerate() {
        assert!(page == &model[&(first + i as u32)][..], "slot {} differs", first + i as u32);
    }
}

fn proptest_config() -> ProptestConfig {
    ProptestConfig { cases: 96, max_shrink_iters: 400, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(proptest_config())]

    #[test]
    fn tiers_hold_what_was_put(tiers in configs(), ops in prop::collection::vec(op(), 1..600)) {
        let mut bed = Bed::new(&tiers, MODEL_SLOTS);
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
                    if store.put_page(SlotId(slot), &content, worker).is_ok() {
                        model.insert(slot, content);
                    }
                }
                Op::PutFolio(first, seed) => {
                    if model.range(first..first + 16).next().is_some() {
                        continue;
                    }
                    let mut folio: Folio = [0; PAGE_BYTES * FOLIO_PAGES];
                    for (i, page) in folio.chunks_exact_mut(PAGE_BYTES).enumerate() {
                        fill(if seed & 64 == 0 { seed } else { seed ^ i as u64 }, page);
                    }
                    if store.put_folio(SlotId(first), &folio, worker).is_ok() {
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
                        store.free(SlotId(slot));
                    }
                }
                Op::FreeRange(first, count) => {
                    for slot in first..first + count {
                        if model.remove(&slot).is_some() {
                            store.free(SlotId(slot));
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
            store.free(SlotId(slot));
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

    #[test]
    fn pool_keeps_objects_apart(
        ops in prop::collection::vec((0..10u8, 1..14000usize, any::<u64>()), 1..800),
        limit_pages in 20..400u64,
    ) {
        const BYTES: usize = 16 << 20;
        let base = os::mmap_anonymous(BYTES).expect("memory for a pool");
        let table = os::mmap_anonymous(pool::table_bytes(BYTES)).expect("memory for a table");
        let head = os::mmap_anonymous(2 * size_of::<Pool>()).expect("memory for a pool's head");
        let part = os::mmap_anonymous(size_of::<PoolShard>()).expect("memory for a shard");
        // SAFETY: zeroed memory is a valid pool and a valid shard, and this test alone uses them.
        let (pool, part) = unsafe { (&mut *(head as *mut Pool), &mut *(part as *mut PoolShard)) };
        pool.set(base, BYTES, table, u64::MAX);
        let limit_bytes = limit_pages * PAGE_BYTES as u64;
        let limits = Limits { held_bytes: AtomicU64::new(0), limit_bytes: AtomicU64::new(limit_bytes) };
        let mut model: BTreeMap<u32, (Object, Vec<u8>)> = BTreeMap::new();
        let mut slot = 0;
        for (kind, len, seed) in ops {
            match kind {
                0..=5 => {
                    let mut payload = vec![0; len.next_multiple_of(8)];
                    fill(seed | 3, &mut payload);
                    payload.truncate(len);
                    slot += 1;
                    let header = Header { slot, live: 1, chunk: false, len: len as u16, codec: Codec::Lz4 };
                    if let Ok(object) = pool.insert(part, header, &payload, &limits) {
                        model.insert(slot, (object, payload));
                    }
                }
                6..=8 => {
                    let pick = model.keys().nth(seed as usize % model.len().max(1)).copied();
                    if let Some((object, _)) = pick.and_then(|slot| model.remove(&slot)) {
                        if let Some(span) = pool.remove(part, object) {
                            pool.release(span, &limits);
                        }
                    }
                }
                _ => {
                    let held = pool.held_bytes();
                    let span = pool.compact(part, |header, object| {
                        model.get_mut(&header.slot).expect("moved objects are live").0 = object;
                    });
                    if let Some(span) = span {
                        pool.release(span, &limits);
                    }
                    prop_assert!(pool.held_bytes() <= held);
                }
            }
            prop_assert!(pool.held_bytes() <= limit_bytes);
        }
        let used: usize = model.values().map(|(_, payload)| payload.len() + pool::HEADER_BYTES).sum();
        prop_assert_eq!(pool.used_bytes(), used as u64);
        for (slot, (object, payload)) in &model {
            let header = pool.header(*object);
            prop_assert_eq!(header.slot, *slot);
            prop_assert!(pool.payload(*object, header) == &payload[..]);
        }
        for (object, _) in model.values() {
            if let Some(span) = pool.remove(part, *object) {
                pool.release(span, &limits);
            }
        }
        pool.discard_cached(&limits);
        prop_assert_eq!(pool.held_bytes(), 0);
        // SAFETY: nothing refers to these regions any more.
        unsafe {
            let _ = os::munmap(base, BYTES);
            let _ = os::munmap(table, pool::table_bytes(BYTES));
        }
    }
}

/// Stores pages 0.. of a kind that compresses to half until the file has been written to.
fn fill_file(bed: &mut Bed, worker: &mut Worker, pages: u32) {
    for slot in 0..pages {
        bed.store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room in the file");
    }
}

fn read(bed: &Bed, worker: &mut Worker, slot: u32) -> Result<Page, StoreError> {
    let mut out = [0; PAGE_BYTES];
    bed.store.get(SlotId(slot), &mut out, worker).map(|()| out)
}

#[test]
fn threads_see_their_own_pages() {
    for tiers in [vec![(LZ4, 0)], vec![(LZ4, 3 << 20), (TierKind::File, 0)], vec![(ZSTD, 1 << 20), (TierKind::File, 0)]]
    {
        let mut bed = Bed::new(&tiers, 1 << 15);
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
                                let mut out = [0u8; PAGE_BYTES * FOLIO_PAGES];
                                store.get(SlotId(first), &mut out, worker).expect("a stored folio");
                                let mut want = [0u8; PAGE_BYTES * FOLIO_PAGES];
                                fill(seed, &mut want);
                                assert!(out == want, "folio {folio} differs");
                                if round % 3 != 0 {
                                    (0..16).for_each(|i| store.free(SlotId(first + i)));
                                } else {
                                    held.insert(first, seed);
                                }
                            } else {
                                let mut folio = [0u8; PAGE_BYTES * FOLIO_PAGES];
                                let seed = round * 8 + (state >> 60) % 4;
                                fill(seed, &mut folio);
                                if store.put_folio(SlotId(first), &folio, worker).is_ok() {
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

#[test]
fn full_disk_keeps_pages_and_ends() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut stored = 0;
    while bed.store.put_page(SlotId(stored), &page(stored as u64 * 4 + 3), worker).is_ok() {
        stored += 1;
        assert!(stored < 1000, "writes that fail must be noticed");
    }
    assert!(stored > 0 && bed.store.stats().errors.load(Relaxed) > 0);
    for slot in 0..stored {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 3)), "slot {slot} lost");
    }
    assert_eq!(bed.store.put_page(SlotId(5000), &page(3), worker), Err(StoreError::Full));
    bed.faults.write_error.store(0, SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(150));
    assert_eq!(bed.store.put_page(SlotId(5000), &page(3), worker), Ok(()));
    for slot in 0..stored {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 3)), "slot {slot} lost");
    }
}

#[test]
fn full_disk_keeps_spilled_pages_in_ram() {
    let mut bed = Bed::new(&[(LZ4, 300_000), (TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut held = Vec::new();
    for slot in 0..2000 {
        if bed.store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok() {
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
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.short.store(true, SeqCst);
    fill_file(&mut bed, worker, 600);
    for slot in 0..600 {
        assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
    }
}

#[test]
fn read_errors_are_retried_then_reported() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
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
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 600);
    bed.faults.flip.store(true, SeqCst);
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Corrupt));
    bed.faults.flip.store(false, SeqCst);
    let offset = |slot: u32| bed.store.record(&bed.store.lock(slot), slot).offset();
    *bed.faults.swap.lock().expect("not poisoned") = Some((offset(0), offset(1)));
    assert_eq!(read(&bed, worker, 0).err(), Some(StoreError::Corrupt));
    *bed.faults.swap.lock().expect("not poisoned") = None;
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 2);
}

#[test]
fn file_does_not_hold_plain_text() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    let mut text = [0u8; PAGE_BYTES];
    text.iter_mut().zip(b"the quick brown fox jumps ".iter().cycle()).for_each(|(to, &from)| *to = from);
    for slot in 0..200 {
        bed.store.put_page(SlotId(slot), &text, worker).expect("room in the file");
    }
    let fd = bed.store.file_descriptor().expect("the file is open");
    assert!(fd >= 100);
    let mut bytes = vec![0; SEGMENT_BYTES];
    let n = os::pread(fd, &mut bytes, 0).expect("a readable file");
    assert!(n > 100_000 && !bytes.windows(10).any(|w| w == b"quick brow"));
}

#[test]
fn dead_segments_are_punched_and_used_again() {
    let max = 4 * SEGMENT_BYTES as u64;
    let mut bed = Bed::new(&[(TierKind::File, max)], 1 << 14);
    let worker = bed.worker();
    for round in 0..20u64 {
        for slot in 0..150 {
            bed.store.put_page(SlotId(slot), &page(round * 1000 + slot as u64 * 4 + 3), worker).expect("room");
        }
        for slot in 0..150 {
            assert!(read(&bed, worker, slot) == Ok(page(round * 1000 + slot as u64 * 4 + 3)));
            bed.store.free(SlotId(slot));
        }
        assert!(bed.store.file_segment_bytes() <= max);
    }
    assert!(bed.faults.punched.load(SeqCst) >= 20);
    let fd = bed.store.file_descriptor().expect("the file is open");
    // SAFETY: seeking touches no memory. whence = SEEK_END.
    let end = unsafe { outswap_sys::syscall3(outswap_sys::nr::LSEEK, fd as usize, 0, 2) };
    assert!(end as u64 <= max, "the file grew to {end}");
}

#[test]
fn sparse_segments_are_cleaned() {
    let max = 8 * SEGMENT_BYTES as u64;
    let mut bed = Bed::new(&[(TierKind::File, max)], 1 << 14);
    let worker = bed.worker();
    let content = |slot: u32| page(slot as u64 * 4 + 3);
    let mut slot = 0;
    while bed.store.put_page(SlotId(slot), &content(slot), worker).is_ok() {
        slot += 1;
    }
    assert!(slot > 300);
    // One page of eight stays in every segment, so none is free; yet there is room for more.
    (0..slot).filter(|s| s % 8 != 0).for_each(|s| bed.store.free(SlotId(s)));
    for s in slot..slot + 200 {
        bed.store.put_page(SlotId(s), &content(s), worker).expect("room after cleaning");
    }
    assert!(bed.store.stats().file_moved_units.load(Relaxed) > 0);
    for s in (0..slot).step_by(8).chain(slot..slot + 200) {
        assert!(read(&bed, worker, s) == Ok(content(s)), "slot {s} differs");
    }
    assert!(bed.store.file_segment_bytes() <= max);
}

#[test]
fn limits_are_held_and_zero_is_a_limit() {
    let mut bed = Bed::new(&[(LZ4, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.set_memory_limit_bytes(0);
    assert_eq!(bed.store.put_page(SlotId(0), &page(2), worker), Err(StoreError::Full));
    bed.store.set_memory_limit_bytes(1 << 20);
    let mut stored = 0;
    while bed.store.put_page(SlotId(stored), &page(stored as u64 * 4 + 2), worker).is_ok() {
        stored += 1;
    }
    assert!(stored > 300, "half-compressible pages take about half: {stored}");
    let stats = bed.store.stats();
    assert!(stats.pool_bytes.load(Relaxed) <= 1 << 20);
    assert!(stats.pool_used_bytes.load(Relaxed) * 10 > stats.pool_bytes.load(Relaxed) * 9);
    (0..stored).for_each(|slot| bed.store.free(SlotId(slot)));
    assert_eq!(bed.store.put_page(SlotId(0), &page(2), worker), Ok(()));

    let mut bed = Bed::new(&[(LZ4, 0), (TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.set_memory_limit_bytes(0);
    assert_eq!(bed.store.put_page(SlotId(0), &page(2), worker), Ok(()));
    assert!(!bed.store.is_synchronous(SlotId(0)));
    assert!(read(&bed, worker, 0) == Ok(page(2)));
}

#[test]
fn shrink_empties_the_pool_into_the_file() {
    // Units of one page, and chunks.
    for kind in [LZ4, ZSTD] {
        let mut bed = Bed::new(&[(kind, 0), (TierKind::File, 0)], 1 << 14);
        let worker = bed.worker();
        for folio in 0..64u32 {
            let mut content = [0u8; PAGE_BYTES * FOLIO_PAGES];
            fill(folio as u64 * 4 + 2, &mut content);
            bed.store.put_folio(SlotId(folio * 16), &content, worker).expect("room");
        }
        // A chunk of which a part was freed moves with what is left.
        bed.store.free(SlotId(1));
        let held = bed.store.stats().pool_bytes.load(Relaxed);
        assert_eq!(bed.store.shrink(u64::MAX, worker), held);
        assert_eq!(bed.store.stats().pool_bytes.load(Relaxed), 0);
        assert_eq!(bed.store.stats().pages_out_file.load(Relaxed), 1023);
        for folio in 0..64u32 {
            let mut want = [0u8; PAGE_BYTES * FOLIO_PAGES];
            fill(folio as u64 * 4 + 2, &mut want);
            let mut got = [0u8; 14 * PAGE_BYTES];
            bed.store.get(SlotId(folio * 16 + 2), &mut got, worker).expect("a stored folio");
            assert!(got == want[2 * PAGE_BYTES..]);
        }
    }
}

#[test]
fn incompressible_pages_go_down_or_stay_raw() {
    let mut bed = Bed::new(&[(LZ4, 0), (TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.store.put_page(SlotId(0), &page(3), worker).expect("room");
    assert!(!bed.store.is_synchronous(SlotId(0)));
    assert_eq!(bed.store.stats().raw_units.load(Relaxed), 1);
    // With the file broken, RAM is better than nothing.
    let mut bed = Bed::new(&[(LZ4, 0), (TierKind::File, 1)], 1 << 14);
    let worker = bed.worker();
    bed.store.put_page(SlotId(0), &page(3), worker).expect("room");
    assert!(bed.store.is_synchronous(SlotId(0)));
    let mut folio = [0u8; PAGE_BYTES * FOLIO_PAGES];
    fill(7, &mut folio);
    bed.store.put_folio(SlotId(16), &folio, worker).expect("room");
    let mut got = [0u8; PAGE_BYTES * FOLIO_PAGES];
    bed.store.get(SlotId(16), &mut got, worker).expect("a stored folio");
    assert!(got == folio && read(&bed, worker, 0) == Ok(page(3)));
}

#[test]
fn compaction_wins_memory_back() {
    let mut bed = Bed::new(&[(LZ4, 0)], 1 << 15);
    let worker = bed.worker();
    for slot in 0..16384 {
        bed.store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room");
    }
    let full = bed.store.stats().pool_bytes.load(Relaxed);
    (0..16384).filter(|s| s % 5 != 0).for_each(|s| bed.store.free(SlotId(s)));
    bed.store.shrink(u64::MAX, worker);
    let left = bed.store.stats().pool_bytes.load(Relaxed);
    assert!(left * 3 < full, "a fifth lives, {left} of {full} bytes are held");
    assert!(bed.store.stats().compacted_objects.load(Relaxed) > 0);
    for s in (0..16384).step_by(5) {
        assert!(read(&bed, worker, s) == Ok(page(s as u64 * 4 + 2)));
    }
}

#[test]
fn nonsense_is_refused() {
    let directory = directory();
    let config = |tiers| Config { tiers, slots: 100, directory: &directory, min_fd: 0 };
    let file = TierConfig { kind: TierKind::File, max_bytes: 0 };
    assert_eq!(Tiers::init(&config(&[])).err(), Some(InitError::Config));
    assert_eq!(Tiers::init(&config(&[file, file])).err(), Some(InitError::Config));
    let nowhere = Config { tiers: &[file], slots: 100, directory: b"", min_fd: 0 };
    assert_eq!(Tiers::init(&nowhere).err(), Some(InitError::System(Errno::ENOENT)));
    // With a directory that does not exist, the tier is full.
    let missing = Config { tiers: &[file], slots: 100, directory: b"/nonexistent/outswap\0", min_fd: 0 };
    let store = Tiers::init(&missing).expect("a store that says why it has no file");
    assert_eq!(store.file_error(), Some(Errno::ENOENT));
    let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
    // SAFETY: fresh zeroed memory that is never unmapped.
    let worker = unsafe { Worker::init(at as *mut u8) };
    assert_eq!(store.put_page(SlotId(0), &page(2), worker), Err(StoreError::Full));
    assert_eq!(store.put_page(SlotId(100), &page(2), worker), Err(StoreError::Full));
    assert_eq!(store.stats().full.load(Relaxed), 2);
}

#[test]
fn every_zstd_level_round_trips() {
    for level in [-5, 0, 1, 3, 9, 15, 19, 22] {
        let mut bed = Bed::new(&[(TierKind::Compressed(Algorithm::Zstd(level)), 0)], 64);
        let worker = bed.worker();
        let mut folio = [0u8; PAGE_BYTES * FOLIO_PAGES];
        fill(2, &mut folio);
        bed.store.put_folio(SlotId(0), &folio, worker).expect("room");
        bed.store.put_page(SlotId(16), &page(1), worker).expect("room");
        let mut got = [0u8; PAGE_BYTES * FOLIO_PAGES];
        bed.store.get(SlotId(0), &mut got, worker).expect("a stored folio");
        assert!(got == folio && read(&bed, worker, 16) == Ok(page(1)), "level {level}");
        assert_eq!(bed.store.stats().raw_units.load(Relaxed), 0, "level {level} compresses");
    }
    const { assert!(Worker::BYTES <= 512 << 10) };
}

#[test]
fn failed_forks_leave_nothing_and_many_are_pinned() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 300);
    for _ in 0..300 {
        let ticket = bed.store.fork_prepare();
        assert!(!ticket.is_pinned());
        bed.store.fork_parent(ticket, -1);
    }
    let held = bed.store.file_segment_bytes();
    (0..300).for_each(|slot| bed.store.free(SlotId(slot)));
    assert!(bed.store.file_segment_bytes() <= SEGMENT_BYTES as u64 && held > SEGMENT_BYTES as u64);

    // Children that never say who they are keep their entries; the one too many shares segments for ever.
    fill_file(&mut bed, worker, 300);
    let tickets: Vec<_> = (0..MAX_USERS).map(|_| bed.store.fork_prepare()).collect();
    assert_eq!(tickets.iter().filter(|t| t.is_pinned()).count(), 1);
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 1);
    tickets.into_iter().for_each(|ticket| bed.store.fork_parent(ticket, -1));
    let held = bed.store.file_segment_bytes();
    (0..300).for_each(|slot| bed.store.free(SlotId(slot)));
    assert_eq!(bed.store.file_segment_bytes(), held);
}

#[test]
fn nonces_are_not_used_twice_across_fork() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 10);
    let worker = bed.worker();
    let flags = os::MAP_SHARED | os::MAP_ANONYMOUS;
    // SAFETY: no address given, so nothing is replaced.
    let at = unsafe { os::mmap(0, PAGE_BYTES, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.expect("a shared page");
    // SAFETY: fresh shared memory, zero is a valid value, never unmapped.
    let seen: &[AtomicU64; 200] = unsafe { &*(at as *const _) };
    let content = page(2);
    let ticket = bed.store.fork_prepare();
    // SAFETY: the child makes raw system calls only, then ends.
    let pid = unsafe { outswap_sys::syscall0(outswap_sys::nr::FORK) } as i32;
    let own = if pid == 0 { &seen[100..] } else { &seen[..100] };
    if pid == 0 {
        bed.store.fork_child(ticket);
    } else {
        bed.store.fork_parent(ticket, pid);
    }
    for (slot, nonce) in own.iter().enumerate() {
        let slot = slot as u32;
        if bed.store.put_page(SlotId(slot), &content, worker).is_ok() {
            nonce.store(bed.store.record(&bed.store.lock(slot), slot).nonce + 1, SeqCst);
        }
    }
    if pid == 0 {
        os::exit_group(0);
    }
    let mut status = 0i32;
    // SAFETY: `status` lives through the call.
    let got = unsafe { outswap_sys::syscall4(outswap_sys::nr::WAIT4, pid as usize, &raw mut status as usize, 0, 0) };
    assert_eq!((got, status), (pid as isize, 0));
    let nonces: std::collections::BTreeSet<u64> = seen.iter().map(|n| n.load(SeqCst)).collect();
    assert!(nonces.len() == 200 && !nonces.contains(&0));
}
