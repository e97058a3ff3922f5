//! Page states: one atomic word a page, who may change it, and to what.
//!
//! ```text
//!  63          32 31   30 29 28  18 17   16 15     12 11 8   7     6     5   4        3 2   0
//! +--------------+-----+----+-----+-------+---------+-----+----+------+----+----------+-----+
//! | slot or frame|AHEAD|HEAT|STAMP|DIRTIED|PROTECTED|order|BUSY|LOCKED|SLOT|REFERENCED|state|
//! +--------------+-----+----+-----+-------+---------+-----+----+------+----+----------+-----+
//! ```
//! UNTRAPPED is the highest bit, of a resident page without a slot.
//! A word of zero is an untouched page, so a table of fresh memory needs no initialisation.
//!
//! | state | mapped in the program | real memory | slot | what may claim it |
//! | --- | --- | --- | --- | --- |
//! | Untouched | no | none | none | a fault, discard, the target of a move |
//! | Resident | yes | the program's page | in the swap cache: the one that it came from | isolation, discard, a move |
//! | Resident, UNTRAPPED | yes, or not yet: then the kernel makes one of zeros ([`crate::trap`]) | the program's page, if there is one | none | as above |
//! | Isolated | no | a frame of a batch; the batch's live bit says that it counts | in the swap cache: the frame's | a fault, write-out, discard |
//! | Isolated, AHEAD | no | a frame of a batch of pages read ahead ([`crate::ahead`]) | in the swap cache: the frame's, which holds the same | a fault, the drop of pages read ahead, discard, a move |
//! | Swapped | no | none, or the store's | one | a fault, discard, a move |
//! | Zero | no | none | none | a fault, discard, the target of a move |
//!
//! Every change goes through [`Pages::claim`], a compare-and-swap from the word that was seen: the page is Busy then, and its
//! owner's alone until [`Pages::release`], which asserts that it was owned and that [`TRANSITIONS`] has the change. The bits
//! REFERENCED and LOCKED of a page that nobody owns may be changed in place ([`Pages::change`]).
use crate::broken::{self, Broken};
use crate::sync::{AtomicU64, Ordering::*};
use crate::table::{Reserve, Table};
use crate::units::{FrameNo, MAX_ORDER, Order, PageNo, SlotId};

/// The state of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    /// Never written: reads as zero, holds nothing.
    Untouched = 0,
    /// Mapped in the program. With a slot ([`Word::slot`]), that may still hold this content.
    Resident = 1,
    /// In a frame of a batch, unmapped: on its way out, unless it is touched.
    Isolated = 2,
    /// Only in a store.
    Swapped = 3,
    /// Known to be all zero; holds nothing.
    Zero = 4,
    /// One thread owns it, and is changing it.
    Busy = 5,
}

/// What a page may become, by the state that it was claimed in (row), as bits of [`State`] values. A page that holds something
/// loses it only by becoming Untouched, which discards it, and leaves memory for a store only by way of a frame, or where its
/// slot is known to hold its content.
pub const TRANSITIONS: [u8; 5] = {
    const U: u8 = 1 << State::Untouched as u8;
    const R: u8 = 1 << State::Resident as u8;
    const I: u8 = 1 << State::Isolated as u8;
    const S: u8 = 1 << State::Swapped as u8;
    const Z: u8 = 1 << State::Zero as u8;
    [
        // Untouched: a first touch; the target of a move.
        U | R | S,
        // Resident: isolated; gone back to the slot that holds its content; discarded or moved away.
        R | I | S | U,
        // Isolated: touched; written out, found clean, found to be zero; discarded.
        I | R | S | Z | U,
        // Swapped: swapped in; read ahead; discarded or moved away.
        S | R | I | U,
        // Zero: as Untouched.
        Z | R | S | U,
    ]
};

/// The value of a page word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

const STATE: u64 = 0b111;
const REFERENCED_SHIFT: u32 = 3;
const REFERENCED: u64 = 0b11 << REFERENCED_SHIFT;
const SLOT: u64 = 1 << 5;
const LOCKED: u64 = 1 << 6;
const BUSY: u64 = 1 << 7;
const ORDER_SHIFT: u32 = 8;
const ORDER: u64 = 0b1111 << ORDER_SHIFT;
const _: () = assert!(MAX_ORDER as u64 <= ORDER >> ORDER_SHIFT);
const PROTECTED_SHIFT: u32 = 12;
const PROTECTED: u64 = 0b1111 << PROTECTED_SHIFT;
const DIRTIED_SHIFT: u32 = 16;
const DIRTIED: u64 = 0b11 << DIRTIED_SHIFT;
const STAMP_SHIFT: u32 = 18;
/// Bits of [`Word::stamp`].
pub const STAMP_BITS: u32 = 11;
const STAMP: u64 = ((1 << STAMP_BITS) - 1) << STAMP_SHIFT;
const HEAT_SHIFT: u32 = STAMP_SHIFT + STAMP_BITS;
const HEAT: u64 = 0b11 << HEAT_SHIFT;
/// Highest value of [`Word::heat`].
pub const HEAT_MAX: u64 = HEAT >> HEAT_SHIFT;
const AHEAD: u64 = 1 << 31;
/// Where a resident page with a slot has that.
const UNTRAPPED: u64 = 1 << 63;
const _: () = assert!(STAMP & DIRTIED == 0 && HEAT & (STAMP | AHEAD) == 0);

/// In place of an epoch, of a page that may be write-protected still, but may have been written: a call that writes to it must
/// see to it first.
pub const EPOCH_UNSURE: u64 = PROTECTED >> PROTECTED_SHIFT;
/// The last epoch of [`Word::protected`].
pub const EPOCH_MAX: u64 = EPOCH_UNSURE - 1;
/// Highest value of [`Word::dirtied`].
pub const DIRTIED_MAX: u64 = DIRTIED >> DIRTIED_SHIFT;

/// Highest count of references: how many passes of reclaim pass a page by that was touched while it was isolated.
pub const REFERENCED_MAX: u64 = 3;

impl Word {
    /// The word of an untouched page.
    pub const UNTOUCHED: Word = Word(0);

    /// The state. A value that no transition writes means that memory was overwritten.
    ///
    /// # Panics
    /// On such a value: data could not be trusted any more.
    pub fn state(self) -> State {
        if self.0 & BUSY != 0 { State::Busy } else { self.state_when_free() }
    }
    /// The state, or that in which the page was claimed.
    fn state_when_free(self) -> State {
        match self.0 & STATE {
            0 => State::Untouched,
            1 => State::Resident,
            2 => State::Isolated,
            3 => State::Swapped,
            4 => State::Zero,
            _ => panic!("page word overwritten"),
        }
    }
    /// A resident page; `slot` still holds its content as of now.
    pub fn resident(slot: Option<SlotId>, order: Order) -> Word {
        let slot = slot.map_or(0, |s| (s.0 as u64) << 32 | SLOT);
        Word(State::Resident as u64 | Word::of(order) | slot)
    }
    /// A resident page that the kernel fills by itself: it may hold nothing yet ([`crate::trap`]).
    pub fn untrapped() -> Word {
        Word(State::Resident as u64 | Word::of(Order::PAGE) | UNTRAPPED)
    }
    /// Whether it is one, or was when it was claimed.
    pub fn is_untrapped(self) -> bool {
        self.0 & (STATE | SLOT | UNTRAPPED) == State::Resident as u64 | UNTRAPPED
    }
    /// The word of such a page that was found to hold something, and of which the next touch is noticed.
    pub fn trapped(self) -> Word {
        debug_assert!(self.is_untrapped());
        Word(self.0 & !UNTRAPPED)
    }
    /// A page in a frame.
    pub fn isolated(frame: FrameNo, order: Order) -> Word {
        Word(State::Isolated as u64 | (frame.0 as u64) << 32 | Word::of(order))
    }
    /// A page in a store.
    pub fn swapped(slot: SlotId, order: Order) -> Word {
        Word(State::Swapped as u64 | (slot.0 as u64) << 32 | SLOT | Word::of(order))
    }
    /// A page known to be zero.
    pub fn zero() -> Word {
        Word(State::Zero as u64)
    }
    /// The same word while one thread owns the page.
    pub fn busy(self) -> Word {
        Word(self.0 | BUSY)
    }
    /// The slot that holds the content (Swapped), or may still hold it (Resident).
    pub fn slot(self) -> Option<SlotId> {
        (self.0 & SLOT != 0).then_some(SlotId((self.0 >> 32) as u32))
    }
    /// The frame of a cached page.
    pub fn frame(self) -> FrameNo {
        FrameNo((self.0 >> 32) as u32)
    }
    fn of(order: Order) -> u64 {
        (order.get() as u64) << ORDER_SHIFT
    }
    /// The order of the folio that the page came in, was first touched or is stored as part of.
    ///
    /// # Panics
    /// On a value that no order has: memory was overwritten.
    pub fn order(self) -> Order {
        Order::new(((self.0 & ORDER) >> ORDER_SHIFT) as usize)
    }
    /// The word with another order.
    pub fn with_order(self, order: Order) -> Word {
        Word(self.0 & !ORDER | Word::of(order))
    }
    /// How many passes of reclaim still pass the page by.
    pub fn referenced(self) -> u64 {
        (self.0 & REFERENCED) >> REFERENCED_SHIFT
    }
    /// The word with another count of references, at most [`REFERENCED_MAX`].
    pub fn with_referenced(self, referenced: u64) -> Word {
        Word(self.0 & !REFERENCED | referenced.min(REFERENCED_MAX) << REFERENCED_SHIFT)
    }
    /// The epoch in which a resident page was write-protected ([`crate::reuse`]); 0 for a page that the program may write to.
    pub fn protected(self) -> u64 {
        (self.0 & PROTECTED) >> PROTECTED_SHIFT
    }
    /// The word with another epoch of protection.
    pub fn with_protected(self, epoch: u64) -> Word {
        debug_assert!(epoch <= EPOCH_UNSURE);
        Word(self.0 & !PROTECTED | epoch << PROTECTED_SHIFT)
    }
    /// The word of a page of which it is no longer sure that a write to it would be noticed.
    pub fn with_doubt(self) -> Word {
        if self.protected() == 0 { self } else { self.with_protected(EPOCH_UNSURE) }
    }
    /// How likely the page is to be written once it is there: counts down each time that it was not.
    pub fn dirtied(self) -> u64 {
        (self.0 & DIRTIED) >> DIRTIED_SHIFT
    }
    /// The word with another such count, at most [`DIRTIED_MAX`].
    pub fn with_dirtied(self, dirtied: u64) -> Word {
        Word(self.0 & !DIRTIED | dirtied.min(DIRTIED_MAX) << DIRTIED_SHIFT)
    }
    /// How often in a row the page came back from a store soon ([`crate::reclaim::Reclaim::refaulted`]).
    pub fn heat(self) -> u64 {
        (self.0 & HEAT) >> HEAT_SHIFT
    }
    /// The word with another such count, at most [`HEAT_MAX`].
    pub fn with_heat(self, heat: u64) -> Word {
        Word(self.0 & !HEAT | heat.min(HEAT_MAX) << HEAT_SHIFT)
    }
    /// The word with what another one has of the page's past: [`Word::dirtied`] and [`Word::heat`].
    pub fn with_past_of(self, other: Word) -> Word {
        const PAST: u64 = DIRTIED | HEAT;
        Word(self.0 & !PAST | other.0 & PAST)
    }
    /// When a page in a store was evicted ([`crate::workingset`]).
    pub fn stamp(self) -> u64 {
        (self.0 & STAMP) >> STAMP_SHIFT
    }
    /// The word with another such time, of as many bits.
    pub fn with_stamp(self, stamp: u64) -> Word {
        Word(self.0 & !STAMP | stamp << STAMP_SHIFT & STAMP)
    }
    /// Whether a page in a frame was read ahead, and not touched since.
    pub fn is_ahead(self) -> bool {
        self.0 & (BUSY | STATE | AHEAD) == State::Isolated as u64 | AHEAD
    }
    /// The word of a page in a frame that was read ahead.
    pub fn with_ahead(self) -> Word {
        debug_assert!(self.state() == State::Isolated);
        Word(self.0 | AHEAD)
    }
    /// Whether the page stays in memory once it is there: the program locked it (`mlock`), or the kernel uses it by itself.
    pub fn locked(self) -> bool {
        self.0 & LOCKED != 0
    }
    /// The word with the lock set or lifted.
    pub fn with_locked(self, locked: bool) -> Word {
        Word(self.0 & !LOCKED | if locked { LOCKED } else { 0 })
    }
}

impl core::fmt::Debug for Word {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.state())?;
        if let Some(slot) = self.slot() {
            write!(f, " slot {}", slot.0)?;
        }
        if self.state() == State::Isolated {
            write!(f, " frame {}{}", self.frame().0, if self.is_ahead() { " ahead" } else { "" })?;
        }
        write!(
            f,
            " referenced {} order {}{}",
            self.referenced(),
            self.order().get(),
            if self.locked() { " locked" } else { "" }
        )?;
        write!(f, " protected {} dirtied {}", self.protected(), self.dirtied())
    }
}

/// The words of all pages.
pub struct Pages {
    words: Table<AtomicU64>,
}

impl Pages {
    /// Reserves the words of `pages` pages, all untouched. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Pages> {
        Some(Pages { words: Table::new(from, pages)? })
    }

    /// How many pages there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The word of a page, now.
    pub fn get(&self, page: PageNo) -> Word {
        Word(self.words[page.0 as usize].load(SeqCst))
    }

    /// Makes a page the caller's, if its word is still the one that was seen.
    #[must_use]
    pub fn claim(&self, page: PageNo, seen: Word) -> bool {
        debug_assert!(seen.state() != State::Busy, "an owned page is not claimed");
        self.words[page.0 as usize].compare_exchange(seen.0, seen.busy().0, SeqCst, Relaxed).is_ok()
    }

    /// Changes the bits of a page that nobody owns, if its word is still the one that was seen. The state stays.
    #[must_use]
    pub fn change(&self, page: PageNo, seen: Word, to: Word) -> bool {
        debug_assert!(seen.state() == to.state() && seen.state() != State::Busy, "a state is changed by its owner");
        self.words[page.0 as usize].compare_exchange(seen.0, to.0, SeqCst, Relaxed).is_ok()
    }

    /// Gives a claimed page up, with what it is now.
    ///
    /// # Panics
    /// Where the page was not owned, or was claimed in a state from which it may not become this: its content would be lost, or
    /// another thread's.
    pub fn release(&self, page: PageNo, word: Word) {
        let owned = Word(self.words[page.0 as usize].swap(word.0, SeqCst));
        if broken::is(Broken::ReleaseUnchecked) {
            return;
        }
        assert!(owned.state() == State::Busy, "a page that is released was owned");
        let allowed = TRANSITIONS[owned.state_when_free() as usize] >> word.state() as u32 & 1;
        assert!(allowed == 1, "a page becomes what it may become");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_word_keeps_all_but_its_state() {
        let word =
            Word::swapped(SlotId(7), Order::MAX).with_referenced(2).with_locked(true).with_dirtied(3).with_protected(9);
        let busy = word.busy();
        assert_eq!(busy.state(), State::Busy);
        assert_eq!(
            (busy.slot(), busy.order(), busy.referenced(), busy.locked()),
            (Some(SlotId(7)), Order::MAX, 2, true)
        );
        assert_eq!((busy.dirtied(), busy.protected()), (3, 9));
        assert_eq!(busy.state_when_free(), State::Swapped);
    }

    #[test]
    fn only_a_page_in_a_frame_that_nobody_owns_is_one_read_ahead() {
        let word = Word::isolated(FrameNo(u32::MAX), Order::PAGE).with_ahead();
        assert!(word.is_ahead() && word.with_locked(true).is_ahead() && !word.busy().is_ahead());
        assert_eq!((word.frame(), word.state()), (FrameNo(u32::MAX), State::Isolated));
        assert!(!Word::isolated(FrameNo(u32::MAX), Order::PAGE).is_ahead());
        assert!(!Word::swapped(SlotId(u32::MAX), Order::MAX).is_ahead());
    }

    #[test]
    #[should_panic(expected = "page word overwritten")]
    fn a_word_that_no_transition_writes_is_noticed() {
        let _ = Word(6).state();
    }

    #[test]
    fn a_page_becomes_only_what_it_may() {
        use crate::table::tests::Leak;
        let words = |state: State| match state {
            State::Untouched => Word::UNTOUCHED,
            State::Resident => Word::resident(None, Order::PAGE),
            State::Isolated => Word::isolated(FrameNo(0), Order::PAGE),
            State::Swapped => Word::swapped(SlotId(0), Order::PAGE),
            State::Zero => Word::zero(),
            State::Busy => unreachable!("no page is claimed twice"),
        };
        let all = [State::Untouched, State::Resident, State::Isolated, State::Swapped, State::Zero];
        let mut forbidden = 0;
        for from in all {
            for to in all {
                let pages = Pages::new(&Leak, 1).expect("there is memory");
                pages.words[0].store(words(from).0, SeqCst);
                assert!(pages.claim(PageNo(0), words(from)));
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pages.release(PageNo(0), words(to))));
                let allowed = TRANSITIONS[from as usize] >> to as u32 & 1 == 1;
                assert_eq!(outcome.is_ok(), allowed, "{from:?} to {to:?}");
                forbidden += !allowed as u32;
                // It is nobody's now.
                let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    pages.release(PageNo(0), words(to));
                }));
                assert!(again.is_err(), "released twice");
            }
        }
        assert_eq!(forbidden, 25 - 20);
    }
}
