//! A first-in-first-out queue of numbers, each in it once at most, whose links lie in a table by number. So it takes memory for the numbers
//! that were ever in it, however many came and went since; a ring of the same capacity takes more of its memory with each one that comes,
//! until it has been all the way round.
use crate::lock::SpinLock;
use crate::sync::{AtomicU32, Ordering::*};
use crate::table::{Reserve, Table};

/// As the link of a number: it is not in the queue.
const OUT: u32 = 0;
/// As the link of a number: it is the last.
const LAST: u32 = u32::MAX;

/// Both ends; they mean nothing where the queue is empty.
#[derive(Default)]
struct Ends {
    first: u32,
    last: u32,
    len: usize,
}

/// The queue.
pub struct Chain {
    /// Of each number: [`OUT`], [`LAST`], or the number behind it, plus 1. Changed under the lock.
    links: Table<AtomicU32>,
    ends: SpinLock<Ends>,
}

impl Chain {
    /// What it takes for each number that was ever in it, bytes.
    pub const NUMBER_BYTES: usize = size_of::<u32>();

    /// Reserves a queue of the numbers below `numbers`, which are fewer than `u32::MAX`. `None` where there is no memory.
    ///
    /// # Panics
    /// With more numbers.
    pub fn new(from: &impl Reserve, numbers: usize) -> Option<Chain> {
        assert!(numbers < LAST as usize, "each number plus 1 is less than the mark of the last one");
        Some(Chain { links: Table::new(from, numbers)?, ends: SpinLock::new(Ends::default()) })
    }

    /// Appends a number that is not in the queue. Where it is, nothing is done, and whoever takes it out afterwards sees all that came before
    /// this call.
    pub fn add(&self, number: u32, pause: &impl Fn(u32)) {
        let link = &self.links[number as usize];
        // Sequentially consistent with the store in `take`: either this finds the number gone, or what was changed before is found by
        // whoever took it.
        if link.load(SeqCst) != OUT {
            return;
        }
        let mut ends = self.ends.lock(pause);
        if link.load(SeqCst) != OUT {
            return;
        }
        link.store(LAST, SeqCst);
        if ends.len == 0 {
            ends.first = number;
        } else {
            self.links[ends.last as usize].store(number + 1, Relaxed);
        }
        ends.last = number;
        ends.len += 1;
    }

    /// Whether a number is in the queue. Ordered as [`Chain::add`] is: where it is, whoever takes it out afterwards sees all that came
    /// before this call.
    pub fn has(&self, number: u32) -> bool {
        self.links[number as usize].load(SeqCst) != OUT
    }

    /// Takes out the number that has been in it for the longest time.
    pub fn take(&self, pause: &impl Fn(u32)) -> Option<u32> {
        self.take_if(|_| true, pause)
    }

    /// The same, where that number is wanted.
    pub fn take_if(&self, wanted: impl Fn(u32) -> bool, pause: &impl Fn(u32)) -> Option<u32> {
        let mut ends = self.ends.lock(pause);
        let first = ends.first;
        if ends.len == 0 || !wanted(first) {
            return None;
        }
        let link = &self.links[first as usize];
        match link.load(Relaxed) {
            LAST => assert!(ends.len == 1, "the last one has none behind it"),
            next => ends.first = next.checked_sub(1).expect("all between the ends are in the queue"),
        }
        ends.len -= 1;
        link.store(OUT, SeqCst);
        Some(first)
    }

    /// How many numbers are in it.
    pub fn len(&self, pause: &impl Fn(u32)) -> usize {
        self.ends.lock(pause).len
    }
}
