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
pub(crate) fn fill(seed: u64, out: &mut [u8]) {
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
    no_random: AtomicBool,
    no_file: AtomicBool,
    size_limit: AtomicU64,
    /// Segments that the disk has room for, 0 for enough, and which the file takes up.
    disk: AtomicUsize,
    on_disk: Mutex<std::collections::BTreeSet<u64>>,
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
        let disk = self.0.disk.load(SeqCst);
        if disk != 0 {
            let mut on_disk = self.0.on_disk.lock().expect("no test panics while it holds this");
            if on_disk.insert(offset / SEGMENT_BYTES as u64) && on_disk.len() > disk {
                on_disk.remove(&(offset / SEGMENT_BYTES as u64));
                return Err(Errno::ENOSPC);
            }
        }
        let len = if self.0.short.load(SeqCst) { buf.len().min(5000) } else { buf.len() };
        os::pwrite(fd, &buf[..len], offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> outswap_sys::Result<()> {
        self.0.punched.fetch_add(1, SeqCst);
        self.0.on_disk.lock().expect("no test panics while it holds this").remove(&(offset / SEGMENT_BYTES as u64));
        os::punch_hole(fd, offset, len)
    }
    fn create(&self, directory_fd: i32) -> outswap_sys::Result<NewFile> {
        if self.0.no_file.load(SeqCst) { Err(Errno::EACCES) } else { LiveIo.create(directory_fd) }
    }
    fn random(&self, buf: &mut [u8]) -> outswap_sys::Result<()> {
        if self.0.no_random.load(SeqCst) { Err(Errno::ENOSYS) } else { LiveIo.random(buf) }
    }
    fn size_limit_bytes(&self) -> u64 {
        match self.0.size_limit.load(SeqCst) {
            0 => LiveIo.size_limit_bytes(),
            bytes => bytes,
        }
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

pub(crate) fn proptest_config() -> ProptestConfig {
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
}

/// Stores pages 0.. of a kind that compresses to half until the file has been written to.
fn fill_file(bed: &mut Bed, worker: &mut Worker, pages: u32) {
    for slot in 0..pages {
        bed.store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room in the file");
    }
}

fn read_of(store: &Tiers<FaultIo>, worker: &mut Worker, slot: u32) -> Result<Page, StoreError> {
    let mut out = [0; PAGE_BYTES];
    store.get(SlotId(slot), &mut out, worker).map(|()| out)
}

fn read(bed: &Bed, worker: &mut Worker, slot: u32) -> Result<Page, StoreError> {
    read_of(bed.store, worker, slot)
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
    let tickets: Vec<_> = (0..MAX_USERS + 1).map(|_| bed.store.fork_prepare()).collect();
    assert_eq!(tickets.iter().filter(|t| t.is_pinned()).count(), 1);
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 1);
    tickets.into_iter().for_each(|ticket| bed.store.fork_parent(ticket, -1));
    let held = bed.store.file_segment_bytes();
    (0..300).for_each(|slot| bed.store.free(SlotId(slot)));
    assert_eq!(bed.store.file_segment_bytes(), held);
}

/// Forks; the child makes raw system calls only, then ends with a status of 0 unless `child` says otherwise.
fn fork_store(bed: &Bed, child: impl FnOnce() -> i32) -> i32 {
    let ticket = bed.store.fork_prepare();
    // SAFETY: the child does as said above.
    let pid = unsafe { outswap_sys::syscall0(outswap_sys::nr::FORK) } as i32;
    if pid == 0 {
        // SAFETY: touches no memory. The child ends if it hangs.
        unsafe { outswap_sys::syscall1(outswap_sys::nr::ALARM, 50) };
        bed.store.fork_child(ticket);
        os::exit_group(child());
    }
    bed.store.fork_parent(ticket, pid);
    pid
}

fn wait(pid: i32) -> i32 {
    let mut status = 0i32;
    // SAFETY: `status` lives through the call.
    let got = unsafe { outswap_sys::syscall4(outswap_sys::nr::WAIT4, pid as usize, &raw mut status as usize, 0, 0) };
    assert_eq!(got, pid as isize);
    status
}

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
    let record = store.record(&store.lock(slot), slot);
    let secret = store.file.segments.keys.secret(store.file.segments.key_of(record.offset()));
    (secret.iter().fold(1, |sum, &word| sum.wrapping_mul(0x100_0000_01b3) ^ word as u64), record.nonce)
}

#[test]
fn no_key_is_used_twice_with_a_nonce_or_known_to_the_other_side_of_a_fork() {
    const PUTS: usize = 60;
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    let content = page(2);
    let seen = shared_words();
    let mut put = |slot: u32, out: &[AtomicU64]| {
        if store.put_page(SlotId(slot), &content, worker).is_ok() {
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
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    (0..100).for_each(|slot| store.put_page(SlotId(slot), &page(2), worker).expect("room"));
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
    store.put_page(SlotId(200), &page(2), worker).expect("room");
    assert_eq!(wait(child), 0);
    let key = store.file.segments.key_of(store.record(&store.lock(200), 200).offset());
    let words = store.file.segments.keys.secret(key).map(|word| word as u64);
    let held: Vec<u64> = seen.iter().map(|word| word.load(SeqCst)).collect();
    assert!(held.iter().any(|&word| word != 0));
    assert!(!held.chunks_exact(5).any(|secret| secret == words), "the child has the parent's new key");
    // What was there before the fork is read with the old one.
    assert!(
        store.file.segments.key_of(store.record(&store.lock(0), 0).offset()) != key
            && read(&bed, worker, 0) == Ok(page(2))
    );
}

#[test]
fn without_randomness_nothing_is_written_after_a_fork() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 200);
    let written = bed.store.stats().file_written_total.load(Relaxed);
    bed.faults.no_random.store(true, SeqCst);
    let child = fork_store(&bed, || bed.store.put_page(SlotId(300), &page(2), worker).is_ok() as i32);
    assert_eq!(wait(child), 0, "the child wrote without a key of its own");
    assert_eq!(bed.store.put_page(SlotId(300), &page(2), worker), Err(StoreError::Full));
    assert!((0..200).all(|slot| read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2))));
    bed.faults.no_random.store(false, SeqCst);
    let child = fork_store(&bed, || bed.store.put_page(SlotId(300), &page(2), worker).is_err() as i32);
    assert_eq!(wait(child), 0, "the child has a key again");
    assert_eq!(bed.store.put_page(SlotId(300), &page(2), worker), Ok(()));
    assert!(bed.store.stats().file_written_total.load(Relaxed) >= written);
}

#[test]
fn keys_are_used_again_only_when_nothing_needs_them() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    let fork = || store.fork_parent(store.fork_prepare(), os::getpid());
    // Nothing was written: one key follows the other in the same place.
    (0..1000).for_each(|_| fork());
    assert!(store.file.segments.keys.touched_bytes() <= PAGE_BYTES as u64);
    let mut secrets = std::collections::BTreeSet::new();
    for slot in 0..300 {
        store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).expect("room");
        let key = store.file.segments.key_of(store.record(&store.lock(slot), slot).offset());
        assert!(secrets.insert((key, store.file.segments.keys.secret(key))));
        fork();
    }
    assert_eq!(secrets.iter().map(|secret| secret.0).collect::<std::collections::BTreeSet<_>>().len(), 300);
    assert!((0..300).all(|slot| read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2))));
    (0..300).for_each(|slot| store.free(SlotId(slot)));
    let used = store.file.segments.keys.touched_bytes();
    (0..1000).for_each(|_| fork());
    assert_eq!(store.file.segments.keys.touched_bytes(), used);
    // Every key is needed: none is used twice.
    store.put_page(SlotId(0), &page(2), worker).expect("room");
    while let Some(key) = store.file.segments.keys.current_key() {
        store.file.segments.keys.hold(key);
        fork();
    }
    assert_eq!(store.file.segments.keys.touched_bytes(), file::memory_bytes(1)[2] as u64);
    assert_eq!(store.put_page(SlotId(1), &page(2), worker), Err(StoreError::Full));
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    store.file.segments.keys.release(77);
    fork();
    store.put_page(SlotId(1), &page(6), worker).expect("a key is free again");
    assert_eq!(store.file.segments.key_of(store.record(&store.lock(1), 1).offset()), 77);
    assert!(read(&bed, worker, 0) == Ok(page(2)) && read(&bed, worker, 1) == Ok(page(6)));
}

#[test]
fn what_could_not_be_written_before_a_fork_goes_to_each_sides_own_file() {
    let mut bed = Bed::new(&[(LZ4, 1 << 20), (TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    let chunks = |slot: u32| page(slot as u64 * 4 + 3);
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let mut stored = 0;
    while store.put_page(SlotId(stored), &chunks(stored), worker).is_ok() && !store.is_synchronous(SlotId(stored)) {
        stored += 1;
    }
    assert!(stored > 60, "a buffer is stuck");
    // A slot that goes before the fork, one that goes after.
    store.free(SlotId(0));
    let parent_file = store.file_descriptor().expect("a file");
    let right =
        |worker: &mut Worker, from: u32| (from..stored).all(|slot| read_of(store, worker, slot) == Ok(chunks(slot)));
    let child = fork_store(&bed, || {
        if !right(worker, 1) {
            return 1;
        }
        let grandchild = fork_store(&bed, || {
            bed.faults.write_error.store(0, SeqCst);
            let filled = (3000..3300).all(|slot| store.put_page(SlotId(slot), &chunks(slot), worker).is_ok());
            !(filled && right(worker, 1) && store.stats().corruptions.load(Relaxed) == 0) as i32
        });
        if wait(grandchild) != 0 {
            return 2;
        }
        bed.faults.write_error.store(0, SeqCst);
        store.free(SlotId(1));
        if !(3000..3300).all(|slot| store.put_page(SlotId(slot), &chunks(slot), worker).is_ok()) {
            return 3;
        }
        let own = (2..stored).all(|slot| store.file.files().is_own(store.record(&store.lock(slot), slot).segment()));
        if !own || !right(worker, 2) || store.stats().pages_in_file.load(Relaxed) == 0 {
            return 4;
        }
        // Nothing keeps the parent's file open here.
        (store.descriptors().count() != 4) as i32 * 5
    });
    assert_eq!(wait(child), 0);
    // SAFETY: seeking touches no memory. whence = SEEK_END.
    let end = unsafe { outswap_sys::syscall3(outswap_sys::nr::LSEEK, parent_file as usize, 0, 2) };
    assert_eq!(end, 0, "a child wrote to its parent's file");
    bed.faults.write_error.store(0, SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(150));
    (3000..3300).for_each(|slot| store.put_page(SlotId(slot), &chunks(slot), worker).expect("room"));
    assert!(right(worker, 1));
}

#[test]
fn a_child_without_a_file_reads_and_refuses() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 300);
    // The last segment cannot be written before the fork either.
    bed.faults.write_error.store(usize::MAX, SeqCst);
    bed.faults.no_file.store(true, SeqCst);
    let child = fork_store(&bed, || {
        let stats = store.stats();
        let right = (0..300).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        let refused = store.put_page(SlotId(400), &page(2), worker) == Err(StoreError::Full);
        let told = store.file_error() == Some(Errno::EACCES) && stats.forks_without_file.load(Relaxed) == 1;
        // Its own child has a file again, and takes over what was not written.
        bed.faults.no_file.store(false, SeqCst);
        bed.faults.write_error.store(0, SeqCst);
        let grandchild = fork_store(&bed, || {
            let room = (400..700).all(|slot| store.put_page(SlotId(slot), &page(slot as u64 * 4 + 2), worker).is_ok());
            let right =
                (0..300).chain(400..700).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
            !(room && right) as i32
        });
        if wait(grandchild) != 0 {
            return 2;
        }
        !(right && refused && told) as i32
    });
    assert_eq!(wait(child), 0);
    assert_eq!(store.stats().forks_without_file.load(Relaxed), 0);
    assert_eq!(store.file_error(), None);
}

#[test]
fn a_store_that_cannot_write_does_not_read_either() {
    // Refusals by a broken file, and by a full one: neither may make the cleaner read the file over and over.
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 2000);
    (0..2000).filter(|slot| slot % 4 != 0).for_each(|slot| bed.store.free(SlotId(slot)));
    bed.faults.write_error.store(usize::MAX, SeqCst);
    let refuse = |bed: &Bed, worker: &mut Worker, puts: u32| {
        let before = bed.store.stats().file_read_total.load(Relaxed);
        let full = (0..puts)
            .filter(|i| bed.store.put_page(SlotId(8000 + i), &page(*i as u64 * 4 + 2), worker).is_err())
            .count();
        (full, (bed.store.stats().file_read_total.load(Relaxed) - before) as usize / SEGMENT_BYTES)
    };
    let (full, read) = refuse(&bed, worker, 5000);
    assert!(full > 4000 && read * 20 < full, "{read} segments were read for {full} refusals");

    let mut bed = Bed::new(&[(TierKind::File, 8 * SEGMENT_BYTES as u64)], 1 << 14);
    let worker = bed.worker();
    let mut filled = 0;
    while bed.store.put_page(SlotId(filled), &page(filled as u64 * 4 + 3), worker).is_ok() {
        filled += 1;
    }
    // A little is free everywhere, which is not worth cleaning for.
    (0..filled).filter(|slot| slot % 6 == 0).for_each(|slot| bed.store.free(SlotId(slot)));
    let (full, read) = refuse(&bed, worker, 5000);
    assert!(full > 4900 && read * 20 < full, "{read} segments were read for {full} refusals");
}

#[test]
fn cleaning_reads_in_proportion_to_what_is_written() {
    let mut bed = Bed::new(&[(TierKind::File, 24 * SEGMENT_BYTES as u64)], 1 << 14);
    let worker = bed.worker();
    let mut state = 1u64;
    let mut held = std::collections::BTreeMap::new();
    for round in 0..30_000u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let slot = (state >> 33) as u32 % 1000;
        if held.remove(&slot).is_some() {
            bed.store.free(SlotId(slot));
        } else if bed.store.put_page(SlotId(slot), &page(round * 4 + 3), worker).is_ok() {
            held.insert(slot, round * 4 + 3);
        }
    }
    assert!(held.iter().all(|(&slot, &seed)| read(&bed, worker, slot) == Ok(page(seed))));
    let stats = bed.store.stats();
    let (read, written) = (stats.file_read_total.load(Relaxed), stats.file_written_total.load(Relaxed));
    assert!(stats.file_moved_units.load(Relaxed) > 0 && read < 4 * written, "{read} read for {written} written");
}

#[test]
fn a_limit_of_file_size_is_kept_and_what_lies_below_it_is_used_again() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.size_limit.store(4 * SEGMENT_BYTES as u64 + 1000, SeqCst);
    for round in 0..3u64 {
        let mut filled = 0;
        while bed.store.put_page(SlotId(filled), &page(round + filled as u64 * 4 + 3), worker).is_ok() {
            filled += 1;
        }
        assert!((150..300).contains(&filled), "{filled} pages in four segments");
        (0..filled).for_each(|slot| bed.store.free(SlotId(slot)));
    }
    assert_eq!(bed.store.stats().errors.load(Relaxed), 0);
}

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
        let mut bed = Bed::new(&[(TierKind::File, max * SEGMENT_BYTES as u64)], 2048);
        let worker = bed.worker();
        let store = bed.store;
        let mut model = BTreeMap::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Hostile::Put(slot) => {
                    let seed = i as u64 * 4 + 3;
                    if !model.contains_key(&slot) && store.put_page(SlotId(slot), &page(seed), worker).is_ok() {
                        model.insert(slot, seed);
                    }
                }
                Hostile::Free(slot) => {
                    if model.remove(&slot).is_some() {
                        store.free(SlotId(slot));
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
    let mut bed = Bed::new(&[(TierKind::File, 40 * SEGMENT_BYTES as u64)], 1 << 12);
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
                store.free(SlotId(slot));
            } else if store.put_page(SlotId(slot), &page(round * 4 + 3), worker).is_ok() {
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

#[test]
fn without_the_directory_children_have_no_file() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 12);
    let worker = bed.worker();
    let store = bed.store;
    fill_file(&mut bed, worker, 100);
    assert_eq!(store.descriptors().count(), 4);
    store.leave_directory();
    assert_eq!(store.descriptors().count(), 3);
    let child = fork_store(&bed, || {
        let right = (0..100).all(|slot| read_of(store, worker, slot) == Ok(page(slot as u64 * 4 + 2)));
        let full = store.put_page(SlotId(200), &page(2), worker) == Err(StoreError::Full);
        !(right && full && store.file_error() == Some(Errno::ENOENT)) as i32
    });
    assert_eq!(wait(child), 0);
    assert_eq!(store.put_page(SlotId(200), &page(2), worker), Ok(()));
}

#[test]
fn a_full_disk_is_cleaned() {
    let mut bed = Bed::new(&[(TierKind::File, 0)], 1 << 14);
    let worker = bed.worker();
    bed.faults.disk.store(16, SeqCst);
    let content = |slot: u32| page(slot as u64 * 4 + 3);
    let mut filled = 0;
    while bed.store.put_page(SlotId(filled), &content(filled), worker).is_ok() {
        filled += 1;
    }
    assert!(filled > 16 * 60);
    // Two of three go, but none of a whole segment: room that only cleaning finds.
    (0..filled).filter(|slot| slot % 3 != 0).for_each(|slot| bed.store.free(SlotId(slot)));
    let (mut more, mut refused) = (0, 0);
    while more < 400 && refused < 100 {
        if bed.store.put_page(SlotId(5000 + more), &content(5000 + more), worker).is_ok() {
            more += 1;
        } else {
            refused += 1;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    assert_eq!(more, 400, "{refused} refusals");
    for slot in (0..filled).step_by(3).chain(5000..5400) {
        assert!(read(&bed, worker, slot) == Ok(content(slot)), "slot {slot} differs");
    }
}
