//! The records of pins under the loom model checker: calls that end and calls that begin.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p outswap-core --test loom_pins --release`
#![cfg(loom)]

mod loom_bed;

use loom::sync::Arc;
use loom::thread;
use loom_bed::Arena;
use outswap_core::mask::Mask;
use outswap_core::pins::{Pins, RANGES};
use outswap_core::sync::Ordering::Release;
use outswap_core::units::{BlockNo, PageNo};

/// Pins alone, with `len` slots and as many records.
struct Slots {
    pins: Pins,
    #[expect(dead_code, reason = "owns the memory of the tables, so it is dropped after the pins")]
    arena: Arena,
}
impl Slots {
    fn new(len: usize) -> Slots {
        let arena = Arena::default();
        let pins = Pins::new(&arena, len).expect("tables fit");
        let slots = Slots { pins, arena };
        // As `warm_up`.
        let taken: Vec<usize> = (0..len).map(|i| slots.fill(i as u32, 40)).collect();
        taken.into_iter().for_each(|slot| slots.ends(slot));
        slots
    }
    /// A call with so many ranges, from `first` on, that one of them is in a record; returns its slot.
    fn fill(&self, owner: u32, first: u32) -> usize {
        let slot = self.pins.acquire(owner + 1, usize::MAX).expect("there are as many slots as calls");
        self.more(slot, first);
        slot
    }
    fn more(&self, slot: usize, first: u32) {
        (0..=RANGES as u32).for_each(|i| self.pins.publish(slot, PageNo(first + 2 * i), 1));
        self.covers(first);
    }
    fn covers(&self, first: u32) {
        let wanted: Mask = (0..=RANGES).map(|i| first as usize + 2 * i).collect();
        assert_eq!(self.pins.mask(BlockNo(0)) & wanted, wanted, "what is published is covered");
    }
    /// As the stub ends a call: one plain store.
    fn ends(&self, slot: usize) {
        self.pins.owner_word(slot).store(0, Release);
    }
}

fn check_slots(len: usize, threads: [fn(&Slots); 2], after: fn(&Slots)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let slots = Arc::new(Slots::new(len));
        // One call is under way, in slot 0.
        assert_eq!(slots.fill(7, 0), 0);
        let other = slots.clone();
        let thread = thread::spawn(move || threads[1](&other));
        threads[0](&slots);
        thread.join().expect("no panic");
        after(&slots);
    });
}

fn nothing_is_left(slots: &Slots) {
    assert_eq!(slots.pins.mask(BlockNo(0)), Mask::EMPTY, "all that is over is free");
}

#[test]
fn a_record_is_taken_again_by_the_next_call_of_its_slot() {
    let again = |slots: &Slots| {
        slots.ends(0);
        let slot = slots.fill(8, 12);
        slots.covers(12);
        slots.ends(slot);
    };
    let reclaims = |slots: &Slots| {
        slots.pins.mask(BlockNo(0));
        slots.pins.mask(BlockNo(0));
    };
    check_slots(1, [again, reclaims], nothing_is_left);
}
#[test]
fn a_record_is_taken_by_another_call_than_the_one_that_ended() {
    let ends = |slots: &Slots| {
        slots.ends(0);
        slots.pins.mask(BlockNo(0));
    };
    let takes = |slots: &Slots| {
        // With two slots there are two records: one of them is the ended call's, or will be free.
        let slot = slots.fill(8, 12);
        slots.covers(12);
        slots.ends(slot);
    };
    check_slots(2, [ends, takes], nothing_is_left);
}
#[test]
fn two_calls_at_once_take_different_records() {
    let ends_and_takes = |slots: &Slots| {
        slots.ends(0);
        let slot = slots.fill(8, 12);
        slots.covers(12);
        slots.ends(slot);
    };
    let takes = |slots: &Slots| {
        let slot = slots.fill(9, 24);
        slots.covers(24);
        slots.ends(slot);
    };
    check_slots(2, [ends_and_takes, takes], nothing_is_left);
}
