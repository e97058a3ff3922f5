//! Accesses that are being recorded, on their way from the processes of the tree to the supervisor.
//!
//! One ring for all, so that they come out in the order in which they happened. A process waits until there is a free place, draws
//! its number, and fills it; the mark that says so is written last, and is another one each time round. Anything
//! may stand there: a place that is not filled in time is passed by, and its event is lost.
use crate::fingerprint::layout;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Places of the ring.
pub const ACCESS_PLACES: usize = 1 << 16;
/// Waits for a free place between two looks at whether the supervisor still lives.
const WAITS: u32 = 64;

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Recorded {
    /// The process begins, with nothing in managed memory.
    Begins = 1,
    /// The process begins with what another has, whose number stands in place of the page's.
    Forked,
    /// It has ended.
    Ends,
    /// A page was read that was not in the window.
    Read,
    /// A page was written that was not in the window.
    Write,
    /// The same of pages without content.
    ReadFirst,
    /// See [`Recorded::ReadFirst`].
    WriteFirst,
    /// Pages have lost their content.
    Gone,
}

impl Recorded {
    const ALL: [Recorded; 8] = [
        Recorded::Begins,
        Recorded::Forked,
        Recorded::Ends,
        Recorded::Read,
        Recorded::Write,
        Recorded::ReadFirst,
        Recorded::WriteFirst,
        Recorded::Gone,
    ];
}

/// An event: of which process, what, and of which pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The process.
    pub pid: i32,
    /// What happened.
    pub what: Recorded,
    /// The first page, or what `what` says.
    pub first: u32,
    /// How many pages.
    pub pages: u32,
}

/// A place of the ring.
#[repr(C)]
pub struct AccessPlace {
    /// The first page, and in the upper half how many.
    range: AtomicU64,
    /// From the top: which time round, what ([`Recorded`]), the process.
    mark: AtomicU64,
}

/// The ring.
#[repr(C)]
pub struct Accesses {
    /// Numbers drawn.
    drawn: AtomicU64,
    /// Numbers that the supervisor is done with.
    taken: AtomicU64,
    /// 1 once nobody takes anything any more.
    closed: AtomicU32,
    /// Events that were lost, because a place was not filled in time.
    lost: AtomicU32,
    places: [AccessPlace; ACCESS_PLACES],
}

/// Goes on with how all of it lies in memory.
pub(crate) const fn layout(hash: u64) -> u64 {
    let hash = layout!(hash, AccessPlace { range, mark });
    layout!(hash, Accesses { drawn, taken, closed, lost, places })
}

fn round(number: u64) -> u64 {
    // Never 0, which is what an unused place has.
    number / ACCESS_PLACES as u64 % ((1 << 24) - 1) + 1
}

impl Accesses {
    /// Records an event. Waits with `pause` while the ring is full, unless `has_reader` says that nobody empties it.
    pub fn put(&self, access: Access, pause: impl Fn(u32), has_reader: impl Fn() -> bool) {
        if self.closed.load(Relaxed) != 0 {
            return;
        }
        let mut waits = 0;
        // A number is drawn only where its place is free: who waits with one, and is killed, stops all that come after.
        let number = loop {
            let number = self.drawn.load(Relaxed);
            if number.wrapping_sub(self.taken.load(Acquire)) >= ACCESS_PLACES as u64 {
                pause(waits);
                waits += 1;
                if self.closed.load(Relaxed) != 0 || waits % WAITS == 0 && !has_reader() {
                    return self.closed.store(1, Relaxed);
                }
            } else if self.drawn.compare_exchange_weak(number, number.wrapping_add(1), Relaxed, Relaxed).is_ok() {
                break number;
            }
        };
        let place = &self.places[number as usize % ACCESS_PLACES];
        place.range.store(u64::from(access.pages) << 32 | u64::from(access.first), Relaxed);
        let mark = round(number) << 40 | (access.what as u64) << 32 | u64::from(access.pid as u32);
        place.mark.store(mark, Release);
    }

    /// Hands events to `f`, in order, until there are no more, or one is still being filled in. With `patience` over, that
    /// one is passed by. Gives whether there were any.
    pub fn drain(&self, is_patience_over: bool, mut f: impl FnMut(Access)) -> bool {
        let mut any = false;
        for turn in 0..ACCESS_PLACES {
            let number = self.taken.load(Relaxed);
            if number == self.drawn.load(Relaxed) {
                break;
            }
            let place = &self.places[number as usize % ACCESS_PLACES];
            let mark = place.mark.load(Acquire);
            if mark >> 40 == round(number) {
                let range = place.range.load(Relaxed);
                if let Some(&what) = Recorded::ALL.get(((mark >> 32 & 0xff) as usize).wrapping_sub(1)) {
                    f(Access { pid: mark as i32, what, first: range as u32, pages: (range >> 32) as u32 });
                }
            } else if is_patience_over && turn == 0 {
                self.lost.fetch_add(1, Relaxed);
            } else {
                break;
            }
            any = true;
            self.taken.store(number.wrapping_add(1), Release);
        }
        any
    }

    /// From now on nothing is recorded: nobody takes it.
    pub fn close(&self) {
        self.closed.store(1, Relaxed);
    }

    /// Whether something waits to be taken.
    pub fn is_waiting(&self) -> bool {
        self.taken.load(Relaxed) != self.drawn.load(Relaxed)
    }

    /// Events that were lost.
    pub fn lost(&self) -> u32 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_sys::os;

    fn ring() -> &'static Accesses {
        let at = os::mmap_anonymous(size_of::<Accesses>()).expect("memory");
        // SAFETY: fresh zero pages are a valid ring, and stay mapped.
        unsafe { &*(at as *const Accesses) }
    }

    fn access(first: u32) -> Access {
        Access { pid: 7, what: Recorded::ALL[first as usize % 8], first, pages: first / 2 }
    }

    fn put(ring: &Accesses, first: u32) {
        ring.put(access(first), |_| (), || true);
    }

    fn drained(ring: &Accesses) -> Vec<Access> {
        let mut all = Vec::new();
        ring.drain(false, |access| all.push(access));
        all
    }

    #[test]
    fn events_come_out_in_order_many_times_round() {
        let ring = ring();
        let mut next = 0;
        for _ in 0..10 {
            let from = next;
            (0..ACCESS_PLACES as u32 / 3 * 2).for_each(|_| {
                put(ring, next);
                next += 1;
            });
            assert!(drained(ring).into_iter().eq((from..next).map(access)));
            assert!(!ring.is_waiting());
        }
    }

    #[test]
    fn a_full_ring_is_waited_for_and_one_that_nobody_empties_is_not() {
        let ring = ring();
        (0..ACCESS_PLACES as u32).for_each(|n| put(ring, n));
        let waits = core::cell::Cell::new(0);
        ring.put(
            access(1),
            |_| {
                waits.set(waits.get() + 1);
                assert_eq!(drained(ring).len(), ACCESS_PLACES);
            },
            || true,
        );
        assert_eq!((waits.get(), drained(ring).len()), (1, 1));
        (0..ACCESS_PLACES as u32).for_each(|n| put(ring, n));
        let drawn = ring.drawn.load(Relaxed);
        // Who waits, and may be killed, has no place that others wait for.
        ring.put(access(1), |_| assert_eq!(ring.drawn.load(Relaxed), drawn), || false);
        ring.put(access(1), |_| (), || unreachable!("it is closed"));
    }

    #[test]
    fn a_place_that_is_never_filled_is_passed_by_in_the_end() {
        let ring = ring();
        put(ring, 1);
        // Somebody drew a number and was killed.
        ring.drawn.fetch_add(1, Relaxed);
        put(ring, 2);
        assert_eq!(drained(ring), [access(1)]);
        assert_eq!(drained(ring), []);
        assert!(ring.is_waiting());
        let mut all = Vec::new();
        assert!(ring.drain(true, |access| all.push(access)));
        assert_eq!((all, ring.lost()), (vec![access(2)], 1));
    }

    #[test]
    fn whatever_stands_there_is_read_without_harm() {
        let ring = ring();
        let mut state = 1u64;
        for place in &ring.places {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            place.range.store(state, Relaxed);
            place.mark.store(state & !(0xff_ffff << 40) | 1 << 40, Relaxed);
        }
        ring.places[0].mark.store(1 << 40, Relaxed);
        ring.drawn.store(u64::MAX, Relaxed);
        let mut count = 0;
        ring.drain(true, |_| count += 1);
        assert!(count < ACCESS_PLACES);
        ring.taken.store(u64::MAX, Relaxed);
        ring.drawn.store(3, Relaxed);
        ring.drain(true, |_| ());
    }
}
