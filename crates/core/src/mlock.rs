//! What holds pages in memory: locks of the program's, pages that the kernel uses by itself, contents of which no copy may be.
use crate::bring::Fault;
use crate::broken::{self, Broken};
use crate::machine::Machine;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::store::Store;
use crate::units::PageNo;
use crate::vma::Vma;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Sets or lifts the lock of a range. Locked pages are never evicted. To lock all of it at once, the caller holds a pin
    /// over the range and has pinned it; else pages are locked as they are touched. What is held for another reason stays
    /// locked. False, and nothing changed, where the map has no room for another mapping.
    pub fn set_locked(&self, first: PageNo, count: u32, locked: bool, on_fault: bool) -> bool {
        self.hold(first, count, |v| (v.locked, v.on_fault) = (locked, on_fault))
    }

    /// Locks pages that the kernel uses by itself, until they are unmapped. The caller holds a pin over the range and has
    /// pinned it.
    pub fn keep(&self, first: PageNo, count: u32) {
        if !self.hold(first, count, |v| v.kept = true) {
            self.lock_pages(first, count, true);
        }
    }

    /// Sees to it that no copy of a range's content is anywhere but in the program's reach: what is out comes in, and no page is
    /// evicted any more. Copies that were dropped before are no longer known; what they held may lie in free memory of the store
    /// until it is used again.
    pub fn keep_private(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) -> Fault {
        if !self.hold(first, count, |v| v.private = true) {
            return Fault::NoMemory;
        }
        let (mut outcome, mut in_frames) = (Fault::Done, false);
        self.touched(first, count, |first, count| {
            for page in (0..count as usize).map(|i| first.plus(i)) {
                let mut spins = 0;
                while outcome == Fault::Done {
                    let word = self.pages.get(page);
                    match word.state() {
                        State::Untouched | State::Zero => break,
                        State::Resident if word.slot().is_none() => break,
                        State::Resident if self.pages.claim(page, word) => {
                            let kept =
                                Word::resident(None, word.order()).with_locked(true).with_protected(word.protected());
                            self.pages.release(page, kept.with_doubt());
                            self.unless_locked(word.with_locked(true), word.slot());
                            // Reclaim may have passed by while it was owned.
                            self.add_block(page.block());
                            break;
                        }
                        State::Swapped | State::Isolated => {
                            in_frames |= word.state() == State::Isolated;
                            outcome = self.fault_in(page, first.plus(count as usize), Access::Write, cx);
                        }
                        State::Resident | State::Busy => {
                            self.machine.pause(spins);
                            spins += 1;
                        }
                    }
                }
            }
        });
        if in_frames {
            self.empty_frames(first, count, cx);
        }
        // Frames of pages read ahead keep what was in them, also when those were touched.
        self.drop_all_ahead();
        outcome
    }

    /// Lifts [`Pager::keep_private`], unless the map has no room for that.
    pub fn end_private(&self, first: PageNo, count: u32) {
        let mut page = first.0;
        while let Some(vma) = self.next_in(page, first.0 + count) {
            if vma.private {
                self.hold(vma.first, vma.count, |v| v.private = false);
            }
            page = vma.end();
        }
    }

    /// Writes out the waiting batches of a range's blocks, whose frames still hold what was in them when pages were touched, and releases
    /// those that are kept. A batch that another thread has at hand is released by that thread.
    fn empty_frames(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) {
        while self.release_kept().is_some() {}
        let blocks = first.block().0..=PageNo(first.0 + count - 1).block().0;
        for _ in 0..self.frames.inactive(self.pause()).1 {
            let Some(batch) = self.frames.pop_inactive(self.pause()) else { return };
            if !blocks.contains(&self.frames.block(batch).0) || !self.write_out(batch, cx) {
                self.frames.make_inactive(batch, self.pause());
            }
        }
    }

    /// Changes what holds the pages of a range, first in the map: a page touched from then on is locked, or not, by what the map
    /// says. False where the map has no room for that.
    fn hold(&self, first: PageNo, count: u32, change: impl Fn(&mut Vma)) -> bool {
        if self.map.lock(self.pause()).update(first, count, change).is_err() {
            return false;
        }
        let mut page = first.0;
        while let Some(vma) = self.next_in(page, first.0 + count) {
            if vma.is_held() {
                // What is locked is not taken back, and would count though nothing is there.
                self.trap_range(vma.first, vma.count);
            }
            self.lock_pages(vma.first, vma.count, vma.is_held());
            page = vma.end();
        }
        true
    }

    fn lock_pages(&self, first: PageNo, count: u32, locked: bool) {
        self.touched(first, count, |first, count| {
            for page in (0..count as usize).map(|i| first.plus(i)) {
                let mut spins = 0;
                loop {
                    let word = self.pages.get(page);
                    // What is not there and holds nothing is locked by its mapping when it is touched.
                    let empty = matches!(word.state(), State::Untouched | State::Zero);
                    // Whoever owns a page may have looked at the map before it changed: what it is locked as is seen when it is released.
                    let is_owned = word.state() == State::Busy && !broken::is(Broken::OwnedUnlocked);
                    if !is_owned && (word.locked() == locked || empty && locked) {
                        break;
                    }
                    if word.state() != State::Busy && self.pages.change(page, word, word.with_locked(locked)) {
                        break;
                    }
                    self.machine.pause(spins);
                    spins += 1;
                }
            }
        });
    }
}
