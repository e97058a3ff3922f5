//! Who is at work in the pager, under the loom model checker: threads that take places beside one that forks.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p outswap-core --test loom_occupancy --release`
#![cfg(loom)]

mod loom_threads;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;
use outswap_core::occupancy::Occupancy;

/// The places, and who is in each of the first ones, by an account of its own.
struct World {
    all: Occupancy,
    inside: [AtomicUsize; 3],
}

fn pause(_: u32) {
    thread::yield_now();
}

impl World {
    fn works(&self) {
        let place = self.all.enter(pause);
        assert_eq!(self.inside[place].fetch_add(1, SeqCst), 0, "one thread in a place");
        self.inside[place].fetch_sub(1, SeqCst);
        self.all.leave(place);
    }
    fn forks(&self) {
        self.all.enter_alone(pause);
        for (place, inside) in self.inside.iter().enumerate() {
            assert_eq!(inside.load(SeqCst), 0, "place {place} is empty while another thread is alone");
        }
        assert_eq!(self.inside[0].fetch_add(1, SeqCst), 0);
        self.inside[0].fetch_sub(1, SeqCst);
        self.all.leave_alone();
    }
}

fn model(preemptions: usize, threads: &'static [fn(&World)]) {
    let made = || {
        let inside = [const { () }; 3].map(|()| AtomicUsize::new(0));
        let world = World { all: Occupancy::new(), inside };
        // Loom's atomics are made when first used, which must be before there are threads.
        world.forks();
        world
    };
    loom_threads::model(preemptions, made, threads, |world| assert!(!world.all.is_occupied()));
}

#[test]
fn two_at_work_beside_a_fork() {
    model(1, &[World::works, World::works, World::forks]);
}

#[test]
fn two_forks() {
    model(3, &[World::forks, World::forks]);
}

#[test]
fn at_work_twice_beside_a_fork() {
    model(
        3,
        &[
            |w| {
                w.works();
                w.works();
            },
            World::forks,
        ],
    );
}
