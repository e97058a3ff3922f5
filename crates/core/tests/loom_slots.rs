//! The slot map under the loom model checker: threads of different lanes that take slots of a store with few left, beside others that
//! free some.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p outswap-core --test loom_slots --release`
#![cfg(loom)]

mod loom_bed;
mod loom_threads;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;
use loom_bed::Arena;
use outswap_core::slots::{CLUSTER_SLOTS, Slots};
use outswap_core::units::{MAX_ORDER, Order, SlotId};

/// As many clusters as there are.
const CLUSTERS: usize = 1;
const ALL: usize = CLUSTERS * CLUSTER_SLOTS;

fn pause(_: u32) {
    thread::yield_now();
}

/// A slot map that is full but for some, and how many more are in use by the threads' account.
struct World {
    slots: Slots,
    taken: AtomicUsize,
    #[expect(dead_code, reason = "owns the memory of the tables, so it is dropped after the map")]
    arena: Arena,
}

impl World {
    fn new(free: usize) -> World {
        let arena = Arena::default();
        let slots = Slots::new(&arena, ALL).expect("tables fit");
        let world = World { slots, taken: AtomicUsize::new(0), arena };
        (0..ALL - free).for_each(|_| assert!(world.takes(0)));
        // Its lane gives the cluster up where it has no more.
        assert!(free > 0 || !world.takes(0));
        world
    }
    fn takes(&self, lane: usize) -> bool {
        let slot = self.slots.alloc(Order::PAGE, lane, pause);
        if let Some(slot) = slot {
            assert!(self.slots.in_use(slot) && self.slots.is_single(slot), "it is this thread's");
            self.taken.fetch_add(1, SeqCst);
        }
        slot.is_some()
    }
    fn takes_folio(&self, order: Order) -> bool {
        let is_taken = self.slots.alloc(order, 0, pause).is_some();
        self.taken.fetch_add(if is_taken { order.pages() } else { 0 }, SeqCst);
        is_taken
    }
    fn frees(&self, slot: usize) {
        self.taken.fetch_sub(1, SeqCst);
        self.slots.put(SlotId(slot as u32), pause, |_| ());
    }
    /// Afterwards each free slot can be had, and no other.
    fn check(&self) {
        assert_eq!(self.slots.used(), self.taken.load(SeqCst) as u64, "slots in use");
        if self.slots.used() == 0 {
            assert!(self.takes_folio(Order::MAX), "all slots are free");
        }
        while self.takes(1) {}
        assert_eq!(
            (self.slots.used(), self.taken.load(SeqCst)),
            (ALL as u64, ALL),
            "all slots were handed out, each once"
        );
    }
}

fn model(free: usize, threads: &'static [fn(&World)]) {
    model_with(free, |_| (), threads, |_| ());
}

/// The same after something that the first thread does alone, and with something that it does at the end.
fn model_with(free: usize, first: fn(&World), threads: &'static [fn(&World)], last: fn(&World)) {
    let made = move || {
        let world = World::new(free);
        first(&world);
        world
    };
    loom_threads::model(3, made, threads, move |world| {
        last(world);
        world.check();
    });
}

#[test]
fn one_takes_the_last_ones_while_another_frees_one() {
    fn takes_two(w: &World) {
        assert!(w.takes(0), "one was free");
        w.takes(0);
    }
    model(1, &[takes_two, |w| w.frees(200)]);
}

#[test]
fn two_lanes_take_from_the_same_last_cluster() {
    fn takes<const LANE: usize>(w: &World) {
        assert!(w.takes(LANE), "there is one for each");
    }
    model(2, &[takes::<0>, takes::<1>]);
}

#[test]
fn two_slots_of_a_cluster_that_nobody_has_are_freed() {
    model(0, &[|w| w.frees(7), |w| w.frees(300)]);
}

const HALF: Order = Order::new(MAX_ORDER - 1);

/// Frees all but two slots, and has the cluster given up by its lane, which has no whole folio of the order that it serves.
fn all_but_two(w: &World) {
    (0..ALL).filter(|slot| ![5, 500].contains(slot)).for_each(|slot| w.frees(slot));
    assert!(w.slots.alloc(Order::MAX, 0, pause).is_none());
}

#[test]
fn the_last_two_slots_of_a_cluster_are_freed() {
    model_with(0, all_but_two, &[|w| w.frees(5), |w| w.frees(500)], |_| ());
}

#[test]
fn the_last_two_slots_of_a_folio_are_freed() {
    fn of_a_folio(w: &World) {
        assert!(w.takes_folio(Order::MAX));
        all_but_two(w);
    }
    model_with(ALL, of_a_folio, &[|w| w.frees(5), |w| w.frees(500)], |_| ());
}

#[test]
fn the_last_slots_of_two_folios_are_freed() {
    fn of_two_folios(w: &World) {
        (0..2).for_each(|_| assert!(w.takes_folio(HALF)));
        (0..ALL).filter(|slot| ![5, 500].contains(slot)).for_each(|slot| w.frees(slot));
        assert!(!w.takes_folio(HALF));
    }
    model_with(ALL, of_two_folios, &[|w| w.frees(5), |w| w.frees(500)], |_| ());
}

#[test]
fn a_folio_is_freed_while_its_lane_gives_the_cluster_up() {
    fn halves(w: &World) {
        (0..2).for_each(|_| assert!(w.takes_folio(HALF)));
        (1..ALL / 2).for_each(|slot| w.frees(slot));
    }
    fn takes_half(w: &World) {
        w.takes_folio(HALF);
    }
    fn one_half_was_free(w: &World) {
        assert!(w.taken.load(SeqCst) == ALL || w.takes_folio(HALF), "what is free is found");
    }
    model_with(ALL, halves, &[takes_half, |w| w.frees(0)], one_half_was_free);
}
