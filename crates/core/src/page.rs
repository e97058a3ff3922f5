//! The page word: one atomic a page.
//!
//! ```text
//!  63            32 31      8 7      6    5  4    3      2   0
//! +----------------+---------+------+----+-------+-------+-----+
//! | slot or frame  |    0    |LOCKED|SLOT| referenced  | FOLIO |state|
//! +----------------+---------+------+----+-------+-------+-----+
//! ```
//! A word of zero is an untouched page, so a table of fresh memory needs no initialisation.
use crate::units::{FrameNo, SlotId};

/// The state of a page. DESIGN: one atomic word a page, every transition a compare-and-swap from the state seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    /// Never written: reads as zero, holds nothing.
    Untouched = 0,
    /// Mapped in the program. With [`Word::has_slot`], the slot may still hold this content.
    Resident = 1,
    /// In a frame of a batch, unmapped.
    Isolated = 2,
    /// Only in a store.
    Swapped = 3,
    /// Known to be all zero; holds nothing.
    Zero = 4,
    /// One thread is changing it.
    Busy = 5,
}

/// The value of a page word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

const STATE: u64 = 0b111;
const FOLIO: u64 = 1 << 3;
const REFERENCED_SHIFT: u32 = 4;
const REFERENCED: u64 = 0b11 << REFERENCED_SHIFT;
const SLOT: u64 = 1 << 6;
const LOCKED: u64 = 1 << 7;

/// Highest referenced: how many eviction passes skip a page that was touched in the swap cache.
pub const REFERENCED_MAX: u64 = 3;

impl Word {
    /// The word of an untouched page.
    pub const UNTOUCHED: Word = Word(0);

    /// The state. A value that no transition writes means that memory was overwritten.
    ///
    /// # Panics
    /// On such a value: data could not be trusted any more.
    pub fn state(self) -> State {
        match self.0 & STATE {
            0 => State::Untouched,
            1 => State::Resident,
            2 => State::Isolated,
            3 => State::Swapped,
            4 => State::Zero,
            5 => State::Busy,
            _ => panic!("page word overwritten"),
        }
    }
    /// A resident page; `slot` still holds its content as of now.
    pub fn resident(slot: Option<SlotId>, folio: bool) -> Word {
        let slot = slot.map_or(0, |s| (s.0 as u64) << 32 | SLOT);
        Word(State::Resident as u64 | if folio { FOLIO } else { 0 } | slot)
    }
    /// A page in a frame.
    pub fn isolated(frame: FrameNo, folio: bool) -> Word {
        Word(State::Isolated as u64 | (frame.0 as u64) << 32 | if folio { FOLIO } else { 0 })
    }
    /// A page in a store.
    pub fn swapped(slot: SlotId, folio: bool) -> Word {
        Word(State::Swapped as u64 | (slot.0 as u64) << 32 | SLOT | if folio { FOLIO } else { 0 })
    }
    /// A page known to be zero.
    pub fn zero() -> Word {
        Word(State::Zero as u64)
    }
    /// The same word while one thread owns the page.
    pub fn busy(self) -> Word {
        Word(self.0 & !STATE | State::Busy as u64)
    }
    /// The slot that holds the content (Swapped), or may still hold it (Resident).
    pub fn slot(self) -> Option<SlotId> {
        (self.0 & SLOT != 0).then_some(SlotId((self.0 >> 32) as u32))
    }
    /// The frame of a cached page.
    pub fn frame(self) -> FrameNo {
        FrameNo((self.0 >> 32) as u32)
    }
    /// Whether the page came in, or was first touched, as part of a whole folio.
    pub fn folio(self) -> bool {
        self.0 & FOLIO != 0
    }
    /// How often eviction skips the page.
    pub fn referenced(self) -> u64 {
        (self.0 & REFERENCED) >> REFERENCED_SHIFT
    }
    /// The word with another referenced.
    pub fn with_referenced(self, referenced: u64) -> Word {
        Word(self.0 & !REFERENCED | referenced.min(REFERENCED_MAX) << REFERENCED_SHIFT)
    }
    /// Whether the program locked the page (`mlock`).
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
            write!(f, " frame {}", self.frame().0)?;
        }
        write!(
            f,
            " referenced {}{}{}",
            self.referenced(),
            if self.folio() { " folio" } else { "" },
            if self.locked() { " locked" } else { "" }
        )
    }
}
