//! Who is at work: a fixed number of places, and one thread that can keep everybody else out.
//!
//! A thread takes a place before it works on shared tables and gives it back afterwards. Whoever is about to fork keeps all
//! others out and waits until nobody is inside, so that the copy of the tables is whole.
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Places: threads that can be at work at the same time; more wait.
pub const PLACES: usize = 64;

/// The places. All-zero: nobody inside.
pub struct Occupancy {
    /// One bit a place.
    taken: AtomicU64,
    /// 1 while one thread has everybody else kept out.
    closed: AtomicU32,
}

impl Default for Occupancy {
    fn default() -> Occupancy {
        Occupancy::new()
    }
}

impl Occupancy {
    /// Nobody inside.
    pub const fn new() -> Occupancy {
        Occupancy { taken: AtomicU64::new(0), closed: AtomicU32::new(0) }
    }

    /// Takes a place, calling `pause` with a growing count while there is none or others are kept out.
    pub fn enter(&self, pause: impl Fn(u32)) -> usize {
        let mut spins = 0;
        loop {
            let taken = self.taken.load(Relaxed);
            if taken != u64::MAX && self.closed.load(SeqCst) == 0 {
                let place = taken.trailing_ones() as usize;
                if self.taken.compare_exchange(taken, taken | 1 << place, SeqCst, Relaxed).is_ok() {
                    // Whoever closes looks at the places after closing: one of the two sees the other.
                    if self.closed.load(SeqCst) == 0 {
                        return place;
                    }
                    self.leave(place);
                }
            }
            pause(spins);
            spins = spins.saturating_add(1);
        }
    }

    /// Gives a place back.
    ///
    /// # Panics
    /// Where it was not taken: two threads would have worked in it.
    pub fn leave(&self, place: usize) {
        let before = self.taken.fetch_and(!(1 << place), SeqCst);
        assert!(before & 1 << place != 0, "a place that is given back was taken");
    }

    /// Keeps every other thread out, waits until none is inside, and takes place 0.
    pub fn enter_alone(&self, pause: impl Fn(u32)) {
        let mut spins = 0;
        while self.closed.compare_exchange(0, 1, SeqCst, Relaxed).is_err() {
            pause(spins);
            spins = spins.saturating_add(1);
        }
        spins = 0;
        // In one step: another thread may take a place for a moment before it sees that it is kept out.
        while self.taken.compare_exchange(0, 1, SeqCst, Relaxed).is_err() {
            pause(spins);
            spins = spins.saturating_add(1);
        }
    }

    /// In a forked child of the thread that is alone: a place that another thread was about to give back is free.
    pub fn only_this(&self) {
        self.taken.store(1, SeqCst);
    }

    /// Gives place 0 back and lets others in again.
    pub fn leave_alone(&self) {
        self.leave(0);
        self.closed.store(0, SeqCst);
    }

    /// Whether any place is taken.
    pub fn is_occupied(&self) -> bool {
        self.taken.load(SeqCst) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_out_once() {
        let all = Occupancy::new();
        let places: Vec<usize> = (0..PLACES).map(|_| all.enter(|_| panic!("there is room"))).collect();
        assert_eq!(places, (0..PLACES).collect::<Vec<_>>());
        all.leave(17);
        assert_eq!(all.enter(|_| panic!("one is free")), 17);
        places.into_iter().for_each(|p| all.leave(p));
        assert!(!all.is_occupied());
    }

    #[test]
    fn nobody_enters_while_one_is_alone() {
        let all = Occupancy::new();
        all.enter_alone(|_| panic!("nobody is inside"));
        let waited = std::cell::Cell::new(0);
        let place = all.enter(|spins| {
            waited.set(spins);
            if spins == 3 {
                all.leave_alone();
            }
        });
        assert_eq!((place, waited.get()), (0, 3));
    }

    #[test]
    #[should_panic(expected = "given back was taken")]
    fn a_place_is_given_back_once() {
        let all = Occupancy::new();
        let place = all.enter(|_| ());
        all.leave(place);
        all.leave(place);
    }
}
