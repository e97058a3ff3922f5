//! Programs that insist on an address outside of managed memory.
//!
//! `mmap` with an address but without `MAP_FIXED` asks for a place; most programs take another as well. Managed memory can only lie in
//! the managed range, so such a hint is not followed. Some programs need the place all the same: what they get elsewhere they give
//! back, and ask again for the next place, thousands of times, until they give up. These, and of their mappings only
//! reservations without access, get what they ask for: it is the kernel's then.
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// So many reservations in a row, each given back before the next, make a demand of the wish. Java tries a hundred places for what it
/// would like to have low; ZGC tries eight thousand, and ends.
const TRIES: u32 = 1024;

/// What a process got for its hints. Threads that change it at the same time may be counted wrongly, which makes a demand come later.
#[derive(Debug)]
pub struct Insistence {
    /// Reservations elsewhere than asked, each given back before the next.
    in_a_row: AtomicU32,
    /// The last one, until it is given back.
    at: AtomicUsize,
    len: AtomicUsize,
}

static OURS: Insistence = Insistence::new();

/// That of this process.
pub fn of_this_process() -> &'static Insistence {
    &OURS
}

impl Insistence {
    const fn new() -> Insistence {
        Insistence { in_a_row: AtomicU32::new(0), at: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }

    /// Whether hints are demands by now.
    pub fn is_serious(&self) -> bool {
        self.in_a_row.load(Relaxed) >= TRIES
    }

    /// A reservation was made elsewhere than asked for.
    pub fn missed(&self, at: usize, len: usize) {
        if self.at.swap(at, Relaxed) == 0 {
            self.in_a_row.fetch_add(1, Relaxed);
        } else {
            self.in_a_row.store(1, Relaxed);
        }
        self.len.store(len, Relaxed);
    }

    /// The program may use memory of a range from now on: it takes what it gets.
    pub fn used(&self, at: usize, len: usize) {
        let reserved = self.at.load(Relaxed);
        if reserved != 0 && at < reserved.saturating_add(self.len.load(Relaxed)) && reserved < at.saturating_add(len) {
            self.at.store(0, Relaxed);
            self.in_a_row.store(0, Relaxed);
        }
    }

    /// A range was unmapped.
    pub fn unmapped(&self, at: usize, len: usize) {
        if at != 0 && self.at.load(Relaxed) == at && self.len.load(Relaxed) == len {
            self.at.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_back_every_time_insists() {
        let insistence = Insistence::new();
        for i in 1..=TRIES as usize {
            assert!(!insistence.is_serious());
            insistence.missed(i << 12, 4096);
            insistence.unmapped(i << 12, 4096);
        }
        assert!(insistence.is_serious());
    }

    #[test]
    fn who_uses_what_it_gets_does_not_insist() {
        let insistence = Insistence::new();
        for i in 1..=3 * TRIES as usize {
            insistence.missed(i << 16, 4 * 4096);
            insistence.used((i << 16) + 4096, 4096);
            insistence.unmapped(i << 16, 4 * 4096);
            assert!(!insistence.is_serious());
        }
        insistence.missed(1 << 16, 4096);
        insistence.used(2 << 16, 4096);
        assert_eq!(insistence.in_a_row.load(Relaxed), 1, "something else was used");
    }

    #[test]
    fn who_keeps_one_or_a_part_of_it_does_not() {
        for given_back in [(0, 0), (1 << 20, 2048), (1 << 21, 4096)] {
            let insistence = Insistence::new();
            for i in 0..3 * TRIES as usize {
                insistence.missed(1 << 20, 4096);
                let (at, len) = if i % 500 == 0 { given_back } else { (1 << 20, 4096) };
                insistence.unmapped(at, len);
                assert!(!insistence.is_serious());
            }
        }
    }
}
