//! Copies that the kernel makes unseen. After a fork, parent and child share their pages until one of them writes; what the writer
//! gets then is new memory of which nobody tells, and a measurement finds out late: Python's children, which write to each object
//! that they read, had half of their limit again in a tenth of a second.
//!
//! So where a process that shares pages is found to be over its limit, all its pages are write-protected, once a fork. From then on
//! each write to a page that is still shared is a fault first, which makes room as any other does, and is counted until the next
//! measurement knows of it. Pages that are not shared any more are given back by runs, at the first write to one of them.
//!
//! And a page that leaves while others have it frees nothing, though this process has the less: what it was charged with is for them to be
//! charged with, who know nothing of it. Until the next measurement it is counted here.
//!
//! What a measurement then finds of either is this process's part alone. The others' part, taken for as much, counts here until each of
//! them has measured, too: one that gets no processor does not for a while. Measurements are numbered for that, in the order in which they
//! begin, whoever measures.
use crate::broken::{self, Broken};
use crate::sync::{AtomicBool, AtomicU64, Ordering::*};

/// What is known of the kernel's copies.
pub struct Copies {
    /// Pages are held: a write to one that was here at the last fork is noticed.
    held: AtomicBool,
    /// Pages may be shared: there was a fork.
    shared: AtomicBool,
    /// Pages that the kernel may have copied since the last measurement.
    allowed_pages: AtomicU64,
    /// Pages that have left since the last measurement, and that others have still.
    left_pages: AtomicU64,
    /// The others' part of what measurements have found, and the number of the last of these. What is found while others have not measured
    /// since that one is put in the second place, so that it does not hold up the first.
    found: [Found; 2],
}

struct Found {
    pages: AtomicU64,
    number: AtomicU64,
}

impl Found {
    fn none() -> Found {
        Found { pages: AtomicU64::new(0), number: AtomicU64::new(0) }
    }
    fn set(&self, pages: u64, number: u64) {
        self.pages.store(pages, Relaxed);
        self.number.store(number, Relaxed);
    }
    fn get(&self) -> (u64, u64) {
        (self.pages.load(Relaxed), self.number.load(Relaxed))
    }
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            held: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            allowed_pages: AtomicU64::new(0),
            left_pages: AtomicU64::new(0),
            found: [Found::none(), Found::none()],
        }
    }
}

impl Copies {
    /// Whether pages are held since the last fork.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }
    /// All pages are shared anew. What a parent's pages have come to is none of its child's.
    pub fn forked(&self, is_child: bool) {
        self.held.store(false, Relaxed);
        self.shared.store(true, Relaxed);
        if is_child {
            [&self.allowed_pages, &self.left_pages].iter().for_each(|pages| pages.store(0, Relaxed));
            self.found.iter().for_each(|found| found.set(0, 0));
        }
    }
    /// Whether pages may be shared.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }
    /// Pages that may have been copied since the last measurement.
    pub fn unmeasured_pages(&self) -> u64 {
        self.allowed_pages.load(Relaxed)
    }
    /// Measurement `number` begins: what was copied up to now is found by it. `others` is the lowest number of the last measurements of
    /// those who may share pages, `None` where there is nobody. By one thread at a time.
    pub fn begin_measurement(&self, number: u64, others: Option<u64>) {
        let seen = self.allowed_pages.swap(0, Relaxed) + self.left_pages.swap(0, Relaxed);
        let [first, second] = &self.found;
        let others = others.filter(|_| !broken::is(Broken::OthersKnow)).unwrap_or(u64::MAX);
        for _ in 0..2 {
            if others > first.get().1 {
                let (pages, number) = second.get();
                first.set(pages, number);
                second.set(0, 0);
            }
        }
        let place = if first.get().0 == 0 { first } else { second };
        if seen > 0 {
            place.set(place.get().0 + seen / 2, number);
        }
    }
    /// Pages that others have, and perhaps do not know of: what left while they had it, and what measurements have found that they have not
    /// made.
    pub fn others_pages(&self) -> u64 {
        self.left_pages.load(Relaxed) + self.found.each_ref().map(|found| found.get().0).iter().sum::<u64>()
    }
    /// So many have left that others have.
    pub(crate) fn left(&self, pages: u64) {
        if !broken::is(Broken::LeftIsFree) {
            self.left_pages.fetch_add(pages, Relaxed);
        }
    }
    /// Holds them; whether they were held before.
    pub(crate) fn hold(&self) -> bool {
        self.held.swap(true, Relaxed)
    }
    /// So many may be written from now on.
    pub(crate) fn allowed(&self, pages: u64) {
        if self.is_held() {
            self.allowed_pages.fetch_add(pages, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn left(copies: &Copies, pages: u64, number: u64, others: Option<u64>) -> u64 {
        copies.left(pages);
        copies.begin_measurement(number, others);
        copies.others_pages()
    }

    #[test]
    fn the_others_part_counts_until_each_of_them_has_measured() {
        let copies = Copies::default();
        assert_eq!(left(&copies, 100, 1, Some(0)), 50);
        assert_eq!(left(&copies, 20, 2, Some(1)), 60, "that one began before");
        assert_eq!(left(&copies, 20, 4, Some(1)), 70);
        // They know of the first, and all the rest is one part.
        assert_eq!(left(&copies, 0, 6, Some(3)), 20);
        assert_eq!(left(&copies, 2, 7, Some(3)), 21);
        assert_eq!(left(&copies, 0, 8, Some(5)), 1);
        assert_eq!(left(&copies, 0, 10, Some(9)), 0);
    }

    #[test]
    fn where_nobody_is_left_nothing_counts() {
        let copies = Copies::default();
        left(&copies, 100, 1, Some(0));
        assert_eq!(left(&copies, 10, 2, Some(0)), 55);
        assert_eq!(left(&copies, 0, 3, None), 0);
        assert_eq!(left(&copies, 10, 4, None), 5, "until the next measurement");
        copies.forked(false);
        assert_eq!(copies.others_pages(), 5);
        copies.forked(true);
        assert_eq!(copies.others_pages(), 0, "they are the parent's");
    }

    #[test]
    fn who_measures_often_gets_rid_of_what_others_know() {
        let copies = Copies::default();
        let mut others = 0;
        for number in 1..1000 {
            // The others measure once in ten times.
            others = if number % 10 == 0 { number } else { others };
            assert!(left(&copies, 2, number, Some(others)) <= 20, "{number}");
        }
    }
}
