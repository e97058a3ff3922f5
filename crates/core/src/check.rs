//! Invariants: that the books agree with the page words.
use crate::machine::Machine;
use crate::page::State;
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::units::{PageNo, SlotId};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Checks that the books agree with the page words. For tests: no other thread may be at work.
    ///
    /// # Panics
    /// Where they do not.
    pub fn check(&self) {
        let mut untrapped = 0;
        let (mut resident, mut isolated, mut slots, mut cached, mut scarce) = (0, 0, 0, 0, 0);
        for page in (0..self.pages.len() as u32).map(PageNo) {
            let word = self.pages.get(page);
            let slot_in_memory = match word.state() {
                State::Resident => word.slot(),
                State::Isolated => self.frames.slot(word.frame()),
                _ => None,
            };
            scarce += slot_in_memory.is_some_and(|slot| self.slots.is_scarce(slot)) as u64;
            match word.state() {
                State::Resident => {
                    resident += 1;
                    untrapped += word.is_untrapped() as u64;
                    let is_known = !word.is_untrapped() || self.left.has_block(page.block());
                    assert!(is_known, "a page that is left to the kernel is in a block that is known to have some");
                    cached += word.slot().is_some() as u64;
                    slots += word.slot().is_some() as u64;
                }
                State::Isolated => {
                    isolated += 1;
                    let frame = word.frame();
                    assert!(self.frames.is_live(frame), "an isolated page has a live frame");
                    if word.is_ahead() {
                        assert_eq!(self.ahead.owner(frame), Some(page), "a page read ahead is known by its frame");
                        assert!(self.frames.slot(frame).is_some(), "a page read ahead keeps its slot");
                    } else {
                        assert_eq!(self.frames.block_of(frame), page.block(), "a batch holds pages of one block");
                    }
                    cached += self.frames.slot(frame).is_some() as u64;
                    slots += self.frames.slot(frame).is_some() as u64;
                }
                State::Swapped => {
                    slots += 1;
                    let slot = word.slot().expect("a swapped page has a slot");
                    assert!(
                        self.slots.in_use(slot) && !self.slots.is_scarce(slot),
                        "its slot is in use, and counts as none's"
                    );
                }
                State::Busy => panic!("page {} is busy though nobody works", page.0),
                State::Untouched | State::Zero => {}
            }
        }
        self.frames.check(isolated);
        assert_eq!(self.resident_pages(), resident, "resident pages");
        assert_eq!(self.untrapped_pages(), untrapped, "pages that are left to the kernel");
        assert_eq!(self.swapcache_pages(), cached, "pages in the swap cache");
        assert_eq!(self.swapcache_scarce_pages(), scarce, "those of them with a slot whose room is scarce");
        assert_eq!(self.used_slots(), slots + self.waiting_slots(), "slots in use");
    }

    /// Slots in use that hold nothing yet: they wait for parts of large folios. For tests, as [`Pager::check`].
    pub fn waiting_slots(&self) -> u64 {
        self.frames.part_slots() as u64
    }

    /// The slot that a page is stored in, which is not in memory. For tests.
    pub fn stored_in(&self, page: PageNo) -> Option<SlotId> {
        let word = self.pages.get(page);
        if word.state() == State::Swapped { word.slot() } else { None }
    }

    /// How many resident pages are locked that no mapping holds. For tests, as [`Pager::check`]. Where the map had no room for what
    /// holds pages, there may be some.
    pub fn locked_by_nobody(&self) -> usize {
        let is_locked = |&page: &PageNo| {
            let word = self.pages.get(page);
            word.state() == State::Resident && word.locked()
        };
        let is_held = |page: PageNo| self.find(page).is_some_and(|vma| vma.is_held());
        (0..self.pages.len() as u32).map(PageNo).filter(is_locked).filter(|&page| !is_held(page)).count()
    }
}
