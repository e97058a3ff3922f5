//! Whose a slot is: the page whose content was stored in it last.
//!
//! Slots lie beside each other that went out after each other, whosever they are; a readahead policy that goes by that needs the
//! way back from a slot to its page. It is a hint: only the page's own word says that its content is in that slot.
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::table::{Reserve, Table};
use crate::units::{PageNo, SlotId};

/// The pages of all slots, where they are kept.
pub struct Owners(Option<Table<AtomicU32>>);

impl Owners {
    /// Reserves a word a slot, if they are to be kept. `None` where there is no memory.
    pub fn new(from: &impl Reserve, slots: usize, kept: bool) -> Option<Owners> {
        Some(Owners(if kept { Some(Table::new(from, slots)?) } else { None }))
    }
    /// A page's content is in a slot.
    pub fn set(&self, slot: SlotId, page: PageNo) {
        if let Some(entry) = self.0.as_ref().and_then(|table| table.get(slot.0 as usize)) {
            entry.store(page.0.wrapping_add(1), Relaxed);
        }
    }
    /// The page whose content was put in a slot last; `None` for a slot that was never used, or that there is not.
    pub fn of(&self, slot: SlotId) -> Option<PageNo> {
        self.0.as_ref()?.get(slot.0 as usize)?.load(Relaxed).checked_sub(1).map(PageNo)
    }
    /// Bytes for each slot that was ever used.
    pub fn slot_bytes(&self) -> u64 {
        if self.0.is_some() { size_of::<AtomicU32>() as u64 } else { 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;

    #[test]
    fn owners_are_known_where_they_are_kept() {
        let kept = Owners::new(&Leak, 4, true).expect("there is memory");
        kept.set(SlotId(2), PageNo(7));
        kept.set(SlotId(9), PageNo(7));
        assert_eq!([1, 2, 9].map(|slot| kept.of(SlotId(slot))), [None, Some(PageNo(7)), None]);
        let none = Owners::new(&Leak, 4, false).expect("nothing is needed");
        none.set(SlotId(2), PageNo(7));
        assert_eq!((none.of(SlotId(2)), none.slot_bytes()), (None, 0));
    }
}
