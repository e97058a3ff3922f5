//! What parent and child have in common stays as it was, is counted, and is given back.
use crate::bed::{Bed, Gate, file, wait};
use outswap_core::store::{Store, StoreError};
use outswap_store::ProcessStore;
use outswap_store::{MAX_USERS, SEGMENT_BYTES, TierConfig};
use outswap_sys::os;
use std::sync::atomic::Ordering::Relaxed;

/// The dead are looked for now and then, when a store is asked to shrink.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
const LOOKS: usize = 100;

/// Parent, child and grandchild see what was there at their fork and what they write themselves.
pub fn each_process_keeps_its_own(tiers: &[TierConfig]) {
    fn rewrite(bed: &mut Bed, salt: u32) {
        for slot in (0..1000).filter(|s| s % 3 != 0) {
            bed.free(slot);
            bed.put(slot, salt + slot);
        }
    }
    fn check(bed: &mut Bed, old: u32, new: u32) {
        for slot in 0..1000 {
            bed.check(slot, if slot % 3 == 0 { old } else { new } + slot);
        }
    }
    let mut bed = Bed::new(tiers);
    (0..1000).for_each(|slot| bed.put(slot, slot));
    let child = bed.fork(|bed| {
        (0..1000).for_each(|slot| bed.check(slot, slot));
        rewrite(bed, 10_000);
        let grandchild = bed.fork(|bed| {
            check(bed, 0, 10_000);
            rewrite(bed, 20_000);
            check(bed, 0, 20_000);
        });
        rewrite(bed, 30_000);
        check(bed, 0, 30_000);
        assert_eq!(wait(grandchild), 0);
        check(bed, 0, 30_000);
    });
    rewrite(&mut bed, 40_000);
    bed.store.shrink(1 << 20, bed.worker);
    check(&mut bed, 0, 40_000);
    assert_eq!(wait(child), 0);
    check(&mut bed, 0, 40_000);
    (0..1000).for_each(|slot| bed.free(slot));
    // All three are done with the file, and those that ended have said nothing; the open segment at most is left.
    for _ in 0..LOOKS {
        if bed.store.file_segment_bytes() > SEGMENT_BYTES as u64 {
            std::thread::sleep(LOOK);
            bed.store.shrink(0, bed.worker);
        }
    }
    assert!(bed.store.file_segment_bytes() <= SEGMENT_BYTES as u64, "segments leaked");
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
}

/// What the parent frees stays readable in the child, while the parent fills the file anew.
pub fn freed_here_is_kept_for_the_other() {
    let mut bed = Bed::new(&[file(40)]);
    let gate = Gate::new();
    (0..1000).for_each(|slot| bed.put(slot, slot));
    let child = bed.fork(|bed| {
        gate.pass();
        (0..1000).for_each(|slot| bed.check(slot, slot));
    });
    (0..1000).for_each(|slot| bed.free(slot));
    (0..1000).for_each(|slot| bed.put(slot, 5000 + slot));
    gate.open();
    assert_eq!(wait(child), 0);
    (0..1000).for_each(|slot| bed.check(slot, 5000 + slot));
}

/// A process that is killed leaves its segments; they are found when room is wanted.
pub fn the_dead_are_cleared() {
    let mut bed = Bed::new(&[file(24)]);
    let gate = Gate::new();
    let child = bed.fork(|bed| {
        (0..1200).for_each(|slot| bed.put(slot, slot));
        gate.open();
        let _ = os::kill(os::getpid(), 9);
    });
    gate.pass();
    assert_eq!(wait(child), 9);
    assert!(bed.store.file_segment_bytes() > 18 * SEGMENT_BYTES as u64);
    (0..1200).for_each(|slot| bed.put(slot, 7000 + slot));
    (0..1200).for_each(|slot| bed.check(slot, 7000 + slot));
}

/// The maximum holds for the tree: what the child has filled, the parent cannot have.
pub fn the_limit_is_the_trees() {
    let mut bed = Bed::new(&[file(16)]);
    let (filled, end) = (Gate::new(), Gate::new());
    let child = bed.fork(|bed| {
        let mut slot = 0;
        while bed.try_put(slot, slot).is_ok() {
            slot += 1;
        }
        filled.open();
        end.pass();
        (0..slot).for_each(|slot| bed.check(slot, slot));
    });
    filled.pass();
    assert_eq!(bed.try_put(0, 1), Err(StoreError::Full));
    assert!(bed.store.file_segment_bytes() <= 16 * SEGMENT_BYTES as u64);
    end.open();
    assert_eq!(wait(child), 0);
    // The dead are not looked for at each try.
    let is_there = (0..LOOKS).any(|_| {
        std::thread::sleep(LOOK);
        bed.try_put(0, 1).is_ok()
    });
    assert!(is_there, "the child's room is free again");
    bed.check(0, 1);
}

/// Many forks in turn neither run out of entries nor leak space.
pub fn entries_are_used_again() {
    let mut bed = Bed::new(&[file(16)]);
    (0..100).for_each(|slot| bed.put(slot, slot));
    for round in 0..300 {
        let child = bed.fork(|bed| {
            bed.check(round % 100, round % 100);
        });
        assert_eq!(wait(child), 0);
    }
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 0);
    (0..100).for_each(|slot| bed.free(slot));
    (0..100).for_each(|slot| bed.put(slot, 300 + slot));
    assert!(bed.store.file_segment_bytes() <= 4 * SEGMENT_BYTES as u64);
}

/// Beyond the children that a file's table has room for, what is shared stays; what each writes itself is freed as ever.
pub fn with_many_sharers_own_segments_are_freed() {
    fn rewrite(bed: &mut Bed) -> u64 {
        let before = bed.store.file_segment_bytes();
        for round in 0..4 {
            (1000..1600).for_each(|slot| bed.put(slot, round + slot));
            (1000..1600).for_each(|slot| bed.check(slot, round + slot));
            (1000..1600).for_each(|slot| bed.free(slot));
        }
        bed.store.file_segment_bytes() - before
    }
    let mut bed = Bed::new(&[file(0)]);
    (0..200).for_each(|slot| bed.put(slot, slot));
    let gate = Gate::new();
    let mut children: Vec<i32> = (0..MAX_USERS + 2)
        .map(|_| {
            bed.fork(|bed| {
                gate.pass();
                bed.check(7, 7);
            })
        })
        .collect();
    assert_eq!(bed.store.stats().pinned_forks.load(Relaxed), 2);
    assert!(rewrite(&mut bed) <= SEGMENT_BYTES as u64);
    children.push(bed.fork(|bed| {
        assert!(rewrite(bed) <= SEGMENT_BYTES as u64);
        // A child of such a child.
        let grandchild = bed.fork(|bed| assert!(rewrite(bed) <= SEGMENT_BYTES as u64));
        assert_eq!(wait(grandchild), 0);
        bed.check(7, 7);
    }));
    (0..MAX_USERS + 2).for_each(|_| gate.open());
    children.into_iter().for_each(|child| assert_eq!(wait(child), 0));
}

/// A limit holds for files of dead parents, too, as long as a child has them open.
pub fn what_a_dead_parent_left_counts() {
    let mut bed = Bed::new(&[file(16)]);
    let (done, end) = (Gate::new(), Gate::new());
    let child = bed.fork(|bed| {
        (0..400).for_each(|slot| bed.put(slot, slot));
        bed.fork(|bed| {
            end.pass();
            (0..400).for_each(|slot| bed.check(slot, slot));
            done.open();
        });
        // The child ends; what it wrote is still its own child's.
    });
    assert_eq!(wait(child), 0);
    let mut slot = 0;
    while bed.try_put(slot, slot).is_ok() {
        slot += 1;
    }
    let own = bed.store.file_segment_bytes();
    assert!(slot > 100 && own <= 16 * SEGMENT_BYTES as u64, "{slot} {own}");
    assert!(slot < 750, "what the grandchild reads was not counted: {slot} pages");
    end.open();
    done.pass();
    (0..slot).for_each(|slot| bed.check(slot, slot));
}
