//! The pager itself under the loom model checker: two threads, one block, every interleaving of the atomics with at
//! most a few preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p outswap-core --test loom --release`; `LOOM_MAX_PREEMPTIONS` goes deeper.
//! Loom takes sequentially consistent accesses for acquire and release only, so what holds here holds a fortiori.
#![cfg(loom)]

mod loom_bed;
mod loom_machine;

use loom::sync::Arc;
use loom::thread;
use loom_bed::{Arena, Memory};
use loom_machine::TestMachine;
use outswap_core::fault::Fault;
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::pins::RANGES;
use outswap_core::protection::Access;
use outswap_core::readahead::{Over, Window};
use outswap_core::room::Step;
use outswap_core::slots::Unused;
use outswap_core::store::{Store, StoreError};
use outswap_core::sync::Ordering::SeqCst;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PageNo, SlotId};
use outswap_core::{orders, protection, readahead, reclaim};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: PageNo = PageNo(5);
/// A context, made in place: loom's threads have small stacks.
struct Cx(Memory);
impl Cx {
    fn new() -> Cx {
        Cx(Memory::new(size_of::<Context<()>>()))
    }
    fn get(&mut self) -> &mut Context<()> {
        // SAFETY: a context consists of numbers, which may be zero, and the memory is ours alone.
        unsafe { &mut *(self.0.base as *mut Context<()>) }
    }
}

/// Keeps one byte a slot. Says that it is slow where that was set, before the threads start.
struct TestStore(Mutex<Vec<Option<u8>>>, std::sync::atomic::AtomicBool);
impl TestStore {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<u8>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
impl Store for TestStore {
    type Worker = ();
    fn put(&self, first: SlotId, content: &[u8], _: &mut ()) -> Result<(), StoreError> {
        let [byte, ..] = *content else { panic!("a page is not empty") };
        if content.len() > PAGE_BYTES {
            return Err(StoreError::Full);
        }
        assert!(content.iter().all(|&b| b == byte), "no frame is stored that was released");
        assert!(self.lock()[first.0 as usize].replace(byte).is_none(), "the slot is free");
        Ok(())
    }
    fn get(&self, first: SlotId, out: &mut [u8], _: &mut ()) -> Result<(), StoreError> {
        for (i, out) in out.chunks_exact_mut(PAGE_BYTES).enumerate() {
            out.fill(self.lock()[first.0 as usize + i].expect("the slot is in use"));
        }
        Ok(())
    }
    fn is_synchronous(&self, _: SlotId) -> bool {
        !self.1.load(std::sync::atomic::Ordering::Relaxed)
    }
    fn free(&self, slot: Unused) {
        assert!(self.lock()[slot.slot().0 as usize].take().is_some(), "the slot is in use");
    }
    fn memory_bytes(&self) -> u64 {
        0
    }
    fn shrink(&self, _: u64, _: &mut ()) -> u64 {
        0
    }
}

struct World {
    pager: Pager<TestMachine, TestStore>,
    #[expect(dead_code, reason = "owns the memory of the tables, so it is dropped after the pager")]
    arena: Arena,
}

impl World {
    fn new() -> Arc<World> {
        let machine = TestMachine::new();
        let store = TestStore(Mutex::new(vec![None; 512]), false.into());
        let config = Config {
            pages: BLOCK_PAGES as u32,
            slots: 512,
            batches: loom_machine::BATCHES,
            pins: 1,
            mappings: 4,
            seed: 7,
            readahead: readahead::Kind::Streams,
            page_cluster: readahead::PAGE_CLUSTER,
            reclaim: reclaim::Kind::DEFAULT,
            orders: orders::Any::Small,
            reuse: protection::Kind::Protect,
        };
        let arena = Arena::default();
        let pager = Pager::new(machine, store, &arena, config).expect("tables fit");
        assert!(pager.map(PageNo(0), 16, Prot::READ_WRITE, false));
        let world = World { pager, arena };
        world.warm_up(&mut Cx::new());
        Arc::new(world)
    }
    /// Uses once whatever two threads could be the first to use at the same time: loom's atomics must be made before.
    fn warm_up(&self, cx: &mut Cx) {
        let near = [PAGE, PAGE.plus(1), PAGE.plus(2)];
        for write in [false, true] {
            for page in near {
                assert_eq!(self.pager.fault(page, Access::Read, cx.get()), Fault::Done);
                assert_eq!(self.pager.fault(page, Access::Write, cx.get()), Fault::Done);
                self.pager.machine.access(page, Some(9));
            }
            for _ in 0..loom_machine::BATCHES {
                self.pager.page_out(PAGE, 3, write, cx.get());
                self.pager.will_need(PAGE, 3, cx.get());
                let _ = self.pager.reclaim(cx.get());
            }
        }
        written(1)(self, cx);
        self.page_out(true, cx);
        reads_ahead_here(self, cx);
        self.touch(None, cx);
        assert!(self.pager.drop_ahead() > 0);
        self.page_out(true, cx);
        self.pager.store.1.store(false, std::sync::atomic::Ordering::Relaxed);
        let slot = self.pager.pins.acquire(1, usize::MAX).expect("none is in use");
        (0..=RANGES as u32).for_each(|i| self.pager.pins.publish(slot, PageNo(20 + 2 * i), 1));
        self.pager.pins.mask(PAGE.block());
        self.pager.pins.release(slot);
        self.pager.pins.mask(PAGE.block());
        self.pager.discard(PageNo(0), BLOCK_PAGES as u32);
        self.pager.set_limit_pages(0);
        while matches!(self.pager.reclaim(cx.get()), Step::Freed(_)) {}
        self.pager.set_limit_pages(BLOCK_PAGES as u64);
        self.pager.check();
        assert_eq!((self.pager.used_pages(), self.pager.used_slots()), (0, 0));
    }
    /// A program's access, which faults until it succeeds.
    fn touch(&self, write: Option<u8>, cx: &mut Cx) -> u8 {
        loop {
            if let Some(byte) = self.pager.machine.access(PAGE, write) {
                return byte;
            }
            let wanted = if write.is_some() { Access::Write } else { Access::Read };
            assert_eq!(self.pager.fault(PAGE, wanted, cx.get()), Fault::Done);
        }
    }
    fn page_out(&self, write: bool, cx: &mut Cx) {
        self.pager.page_out(PAGE, 1, write, cx.get());
    }
    /// The page's content, and that the books are right, once all threads are done.
    fn ends_with(&self, byte: u8) {
        self.pager.check();
        assert_eq!(self.touch(None, &mut Cx::new()), byte, "the page's content");
        self.pager.check();
        let held = self.pager.store.lock().iter().flatten().count() as u64;
        assert_eq!(held, self.pager.used_slots(), "slots: store against pager");
    }
}

/// A model with fewer than these has threads that never meet.
const INTERLEAVINGS_MIN: usize = 10;

/// Runs `first` and `second` at once on what `before` left, in all interleavings, then `after`.
fn model(
    before: impl Fn(&World, &mut Cx) + Sync + Send + 'static,
    first: impl Fn(&World, &mut Cx) + Sync + Send + Copy + 'static,
    second: impl Fn(&World, &mut Cx) + Sync + Send + Copy + 'static,
    after: impl Fn(&World) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let world = World::new();
        before(&world, &mut Cx::new());
        let other = world.clone();
        let thread = thread::spawn(move || second(&other, &mut Cx::new()));
        first(&world, &mut Cx::new());
        thread.join().expect("no panic");
        after(&world);
    });
    let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs >= INTERLEAVINGS_MIN, "two threads that meet have more than {runs} interleavings");
}

fn written(byte: u8) -> impl Fn(&World, &mut Cx) + Copy {
    move |w, cx| {
        w.touch(Some(byte), cx);
    }
}
fn swapped(w: &World, cx: &mut Cx) {
    written(1)(w, cx);
    w.page_out(true, cx);
    assert_eq!(w.pager.state(PAGE), State::Swapped);
}
fn cached(w: &World, cx: &mut Cx) {
    written(1)(w, cx);
    w.page_out(false, cx);
    assert_eq!(w.pager.state(PAGE), State::Isolated);
}
/// Resident, with a copy in the store that is still right.
fn clean(w: &World, cx: &mut Cx) {
    swapped(w, cx);
    w.touch(None, cx);
    assert_eq!(w.pager.swapcache_pages(), 1);
}

/// From now on the store is slow, and somebody reads the page ahead.
fn reads_ahead_here(w: &World, cx: &mut Cx) {
    w.pager.store.1.store(true, std::sync::atomic::Ordering::Relaxed);
    w.pager.ask_ahead(Window { over: Over::Pages, first: PAGE.0, step: 1, count: 2 });
    assert!(w.pager.read_ahead(cx.get()));
}
/// Read ahead, and not touched since.
fn read_ahead(w: &World, cx: &mut Cx) {
    swapped(w, cx);
    reads_ahead_here(w, cx);
    assert_eq!((w.pager.state(PAGE), w.pager.ahead_pages()), (State::Isolated, 1));
}

fn reads_one(w: &World, cx: &mut Cx) {
    assert_eq!(w.touch(None, cx), 1);
}
fn evicts(w: &World, cx: &mut Cx) {
    w.page_out(true, cx);
}
fn writes_out(w: &World, cx: &mut Cx) {
    // The only batch there is may be empty already, or have gone back to the list; but there is room in the store.
    let step = w.pager.reclaim(cx.get());
    assert!(step != Step::StoreFull || w.pager.machine.has_refused(), "{step:?}");
}
fn drops_ahead(w: &World, _: &mut Cx) {
    w.pager.drop_ahead();
}
fn discards(w: &World, _: &mut Cx) {
    w.pager.discard(PAGE, 1);
}
/// A thread that has its pin slot already. (Loom lets each of the slot's eight ranges be read as it was before it was
/// cleared; two threads that also take the slot make 2^16 times as many interleavings, all alike.)
fn with_slot(before: impl Fn(&World, &mut Cx) + Copy) -> impl Fn(&World, &mut Cx) + Copy {
    move |w, cx| {
        before(w, cx);
        assert_eq!(w.pager.pins.acquire(1, usize::MAX), Some(0));
    }
}
/// A system call: the page must stay from the end of `pin` to the release.
fn calls(w: &World, cx: &mut Cx) {
    let slot = 0;
    w.pager.pins.publish(slot, PAGE, 1);
    assert_eq!(w.pager.pin(PAGE, 1, Access::Write, cx.get()), (1, Fault::Done));
    assert_eq!(w.pager.machine.access(PAGE, None), Some(1), "no EFAULT");
    assert_eq!(w.pager.machine.access(PAGE, None), Some(1), "no EFAULT");
    w.pager.pins.release(slot);
}

/// The same, made only where all is there already.
fn calls_directly(w: &World, _: &mut Cx) {
    let pin = w.pager.pins.acquire_direct(7).expect("nobody else has it");
    if w.pager.pins.publish_direct(pin, PAGE, 1) && w.pager.is_pinned(PAGE, 1, Access::Write) {
        (0..2).for_each(|_| assert_eq!(w.pager.machine.access(PAGE, None), Some(1), "no EFAULT"));
    }
    w.pager.pins.release(pin);
}

/// The same with more ranges than the slot holds: the page's is in a linked record.
fn calls_with_many(w: &World, cx: &mut Cx) {
    (0..RANGES as u32).for_each(|i| w.pager.pins.publish(0, PageNo(20 + 2 * i), 1));
    calls(w, cx);
}

#[test]
fn fault_against_fault_first_touch() {
    model(|_, _| {}, written(1), |w, cx| assert!(w.touch(None, cx) <= 1), |w| w.ends_with(1));
}
#[test]
fn fault_against_fault_swapped() {
    model(swapped, reads_one, reads_one, |w| w.ends_with(1));
}
#[test]
fn fault_against_fault_cached() {
    model(cached, reads_one, reads_one, |w| w.ends_with(1));
}
#[test]
fn write_against_evict() {
    model(written(1), written(2), evicts, |w| w.ends_with(2));
}
#[test]
fn write_against_evict_of_a_clean_page() {
    model(clean, written(2), evicts, |w| w.ends_with(2));
}
#[test]
fn evict_against_evict() {
    model(written(1), evicts, evicts, |w| w.ends_with(1));
}
#[test]
fn pin_against_evict() {
    model(with_slot(written(1)), calls, evicts, |w| w.ends_with(1));
}
#[test]
fn direct_call_against_evict() {
    model(written(1), calls_directly, evicts, |w| w.ends_with(1));
}
#[test]
fn direct_call_on_a_clean_page_against_evict() {
    model(clean, calls_directly, evicts, |w| w.ends_with(1));
}
#[test]
fn pin_with_many_ranges_against_evict() {
    model(with_slot(written(1)), calls_with_many, evicts, |w| w.ends_with(1));
}
#[test]
fn pin_of_a_swapped_page_against_evict() {
    model(with_slot(swapped), calls, evicts, |w| w.ends_with(1));
}
#[test]
fn pin_against_write_out() {
    model(with_slot(cached), calls, writes_out, |w| w.ends_with(1));
}
#[test]
fn evict_against_discard() {
    model(written(1), discards, evicts, |w| w.ends_with(0));
}
#[test]
fn write_out_against_discard() {
    model(cached, discards, writes_out, |w| w.ends_with(0));
}
#[test]
fn swap_in_against_discard() {
    model(swapped, discards, |w, cx| assert!(w.touch(None, cx) <= 1), |w| w.ends_with(0));
}
#[test]
fn write_out_against_touch() {
    model(cached, written(2), writes_out, |w| w.ends_with(2));
}
#[test]
fn write_out_of_a_clean_page_against_touch() {
    let clean_and_cached = |w: &World, cx: &mut Cx| {
        clean(w, cx);
        w.page_out(false, cx);
    };
    model(clean_and_cached, written(2), writes_out, |w| w.ends_with(2));
}
#[test]
fn touch_of_a_page_read_ahead_against_its_drop() {
    model(read_ahead, written(2), drops_ahead, |w| w.ends_with(2));
}
#[test]
fn touch_of_a_page_read_ahead_against_touch() {
    model(read_ahead, reads_one, reads_one, |w| w.ends_with(1));
}
#[test]
fn drop_of_a_page_read_ahead_against_discard() {
    model(read_ahead, discards, drops_ahead, |w| w.ends_with(0));
}
#[test]
fn drop_of_a_page_read_ahead_against_drop() {
    model(read_ahead, drops_ahead, drops_ahead, |w| {
        w.ends_with(1);
        while w.pager.drop_ahead() > 0 {}
        assert_eq!(w.pager.ahead_pages(), 0, "no frame is lost");
    });
}
#[test]
fn reading_ahead_against_touch() {
    model(swapped, written(2), reads_ahead_here, |w| w.ends_with(2));
}
#[test]
fn reading_ahead_against_discard() {
    model(swapped, discards, reads_ahead_here, |w| w.ends_with(0));
}
#[test]
fn reading_ahead_against_drop() {
    // Both lie in one batch.
    let one_of_two = |w: &World, cx: &mut Cx| {
        for page in [PAGE, PAGE.plus(1)] {
            assert_eq!(w.pager.fault(page, Access::Write, cx.get()), Fault::Done);
            w.pager.machine.access(page, Some(1));
        }
        evicts_all(w, cx);
        w.pager.store.1.store(true, std::sync::atomic::Ordering::Relaxed);
        w.pager.ask_ahead(Window { over: Over::Pages, first: PAGE.0 + 1, step: 1, count: 1 });
        assert!(w.pager.read_ahead(cx.get()));
        w.pager.ask_ahead(Window { over: Over::Pages, first: PAGE.0, step: 1, count: 2 });
    };
    let reads = |w: &World, cx: &mut Cx| assert!(w.pager.read_ahead(cx.get()));
    model(one_of_two, drops_ahead, reads, |w| {
        w.ends_with(1);
        while w.pager.drop_ahead() > 0 {}
        assert_eq!(w.pager.ahead_pages(), 0, "no frame is lost");
        w.pager.check();
    });
}
#[test]
fn reading_ahead_against_move() {
    model(swapped, moves, reads_ahead_here, is_elsewhere);
}
#[test]
fn reading_ahead_against_evict() {
    let asked = |w: &World, cx: &mut Cx| {
        swapped(w, cx);
        w.pager.store.1.store(true, std::sync::atomic::Ordering::Relaxed);
        w.pager.ask_ahead(Window { over: Over::Pages, first: PAGE.0, step: 1, count: 2 });
    };
    let reads = |w: &World, cx: &mut Cx| {
        w.pager.read_ahead(cx.get());
    };
    model(asked, evicts, reads, |w| {
        assert_eq!(w.pager.state(PAGE), State::Swapped, "what was evicted is not in memory");
        w.ends_with(1);
    });
}
#[test]
fn move_of_a_page_read_ahead_against_its_drop() {
    model(read_ahead, moves, drops_ahead, is_elsewhere);
}
fn refusing(before: impl Fn(&World, &mut Cx) + Copy) -> impl Fn(&World, &mut Cx) + Copy {
    move |w, cx| {
        before(w, cx);
        w.pager.machine.refusals.store(1, SeqCst);
    }
}
/// The frames that the machine did not free count until it does.
fn is_released_later(w: &World) {
    w.pager.check();
    w.pager.set_limit_pages(0);
    let mut cx = Cx::new();
    while w.pager.used_pages() > 0 {
        let _ = w.pager.reclaim(cx.get());
    }
    w.pager.check();
}
#[test]
fn write_out_that_is_not_released_against_touch() {
    model(refusing(cached), written(2), writes_out, |w| {
        w.ends_with(2);
        is_released_later(w);
        w.ends_with(2);
    });
}
#[test]
fn discard_that_is_not_dropped_against_evict() {
    model(refusing(written(1)), discards, evicts, |w| {
        w.ends_with(0);
        is_released_later(w);
    });
}
/// Where `moves` takes the page to.
const ELSEWHERE: PageNo = PageNo(12);
fn moves(w: &World, cx: &mut Cx) {
    assert_eq!(w.pager.move_pages(PAGE, ELSEWHERE, 1, cx.get()), 1);
}
fn is_elsewhere(w: &World) {
    w.pager.check();
    assert_eq!(w.pager.state(PAGE), State::Untouched);
    let mut cx = Cx::new();
    while w.pager.machine.access(ELSEWHERE, None).is_none() {
        assert_eq!(w.pager.fault(ELSEWHERE, Access::Write, cx.get()), Fault::Done);
    }
    assert_eq!(w.pager.machine.access(ELSEWHERE, None), Some(1));
    w.pager.check();
}
fn evicts_all(w: &World, cx: &mut Cx) {
    w.pager.page_out(PageNo(0), BLOCK_PAGES as u32, true, cx.get());
}
#[test]
fn move_against_evict() {
    model(written(1), moves, evicts_all, is_elsewhere);
}
#[test]
fn move_against_write_out() {
    model(cached, moves, writes_out, is_elsewhere);
}
#[test]
fn fault_with_neighbours_against_unmap() {
    let coarse = |w: &World, _: &mut Cx| w.pager.machine.grain.store(2, std::sync::atomic::Ordering::Relaxed);
    let unmaps_before = |w: &World, _: &mut Cx| assert!(w.pager.unmap(PageNo(0), PAGE.0));
    model(coarse, written(2), unmaps_before, |w| {
        assert_eq!(w.pager.state(PageNo(PAGE.0 - 1)), State::Untouched, "nothing comes in where nothing is mapped");
        w.ends_with(2);
    });
}

/// Two pages come in, of which one may keep its slot: a call can write to both all the same.
#[test]
fn swap_in_against_swap_in_beyond_the_swap_cache() {
    let before = |w: &World, cx: &mut Cx| {
        for page in [PAGE, ELSEWHERE] {
            assert_eq!(w.pager.fault(page, Access::Write, cx.get()), Fault::Done);
            assert_eq!(w.pager.machine.access(page, Some(1)), Some(1));
        }
        evicts_all(w, cx);
        w.pager.set_swapcache_max(1);
    };
    let read = |w: &World, cx: &mut Cx, page| assert_eq!(w.pager.fault(page, Access::Read, cx.get()), Fault::Done);
    model(
        before,
        move |w, cx| read(w, cx, PAGE),
        move |w, cx| read(w, cx, ELSEWHERE),
        |w| {
            assert_eq!(w.pager.pin(PAGE, 8, Access::Write, Cx::new().get()), (8, Fault::Done));
            assert!([PAGE, ELSEWHERE].iter().all(|&page| w.pager.machine.access(page, Some(2)).is_some()));
        },
    );
}

/// All around the page is left to the kernel, which has filled nothing of it.
fn left(w: &World, cx: &mut Cx) {
    w.pager.machine.untraps.store(true, Relaxed);
    assert_eq!(w.pager.fault(PAGE, Access::Write, cx.get()), Fault::Done);
    assert!(w.pager.untrapped_pages() > 0);
}
fn traps(w: &World, _: &mut Cx) {
    w.pager.trap_all(false);
}
#[test]
fn write_of_a_page_left_to_the_kernel_against_evict() {
    model(left, written(2), evicts, |w| w.ends_with(2));
}
#[test]
fn write_of_a_page_left_to_the_kernel_against_trap() {
    model(left, written(2), traps, |w| w.ends_with(2));
}
#[test]
fn call_on_a_page_left_to_the_kernel_against_trap() {
    let calls = |w: &World, cx: &mut Cx| {
        w.pager.pins.publish(0, PAGE, 1);
        assert_eq!(w.pager.pin(PAGE, 1, Access::Write, cx.get()), (1, Fault::Done));
        assert_eq!(w.pager.machine.access(PAGE, Some(3)), Some(3), "no EFAULT");
        w.pager.pins.release(0);
    };
    model(with_slot(left), calls, traps, |w| w.ends_with(3));
}
#[test]
fn leaving_to_the_kernel_against_unmap() {
    let untraps = |w: &World, _: &mut Cx| w.pager.machine.untraps.store(true, Relaxed);
    let unmaps = |w: &World, _: &mut Cx| assert!(w.pager.unmap(PageNo(PAGE.0 + 1), 2));
    model(untraps, written(2), unmaps, |w| {
        assert_eq!(w.pager.state(PageNo(PAGE.0 + 1)), State::Untouched, "nothing is left where nothing is mapped");
        w.ends_with(2);
    });
}
