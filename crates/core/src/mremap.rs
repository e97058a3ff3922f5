//! Moving pages to another place (`mremap`).
use crate::bring::Fault;
use crate::machine::Machine;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::store::Store;
use crate::units::PageNo;

/// Refusals of the machine after which a page is not moved; from half of them on it is evicted first.
const MOVE_TRIES: u32 = 64;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Moves the content of a range to another, free of pages, that does not overlap it. The access of both is the caller's
    /// business; both must be readable and writable while pages move. Returns how many pages from the start were moved; fewer
    /// than `count` only where the machine refuses one again and again.
    pub fn move_pages(&self, from: PageNo, to: PageNo, count: u32, cx: &mut Context<S::Worker>) -> u32 {
        // By blocks: by pages, each would be a call of its own, and a border between mappings.
        self.trap_range(from, count);
        let mut done = count;
        self.touched(from, count, |first, n| {
            let mut i = first.0 - from.0;
            let end = i + n;
            let (mut spins, mut refusals) = (0, 0);
            while i < end && done == count {
                let (src, dst) = (PageNo(from.0 + i), PageNo(to.0 + i));
                let word = self.pages.get(src);
                let moved = match word.state() {
                    State::Untouched | State::Zero => true,
                    State::Busy => false,
                    // What lies in a store moves without the machine.
                    State::Isolated if word.is_ahead() => {
                        self.drop_ahead_page(src, word);
                        false
                    }
                    // Its frame belongs to the old place's batch: bring it back first.
                    State::Isolated => {
                        refusals += (self.fault_in(src, src.plus(1), Access::Write, cx) != Fault::Done) as u32;
                        false
                    }
                    State::Resident | State::Swapped => {
                        let moved = self.move_page(src, word, dst);
                        refusals += (moved == Some(false)) as u32;
                        moved == Some(true)
                    }
                };
                if moved {
                    i += 1;
                    (spins, refusals) = (0, 0);
                    continue;
                }
                if refusals >= MOVE_TRIES {
                    done = i;
                } else if refusals > MOVE_TRIES / 2 {
                    // What lies in a store moves without the machine.
                    self.page_out(src, 1, true, cx);
                }
                self.machine.pause(spins);
                spins += 1;
            }
        });
        done
    }

    /// Moves one page; `Some(false)` where the machine refuses, `None` where another thread was faster.
    fn move_page(&self, src: PageNo, word: Word, dst: PageNo) -> Option<bool> {
        if !self.pages.claim(src, word) {
            return None;
        }
        let target = self.pages.get(dst);
        let empty = matches!(target.state(), State::Untouched | State::Zero);
        if !empty || !self.pages.claim(dst, target) {
            self.pages.release(src, word);
            self.add_block(src.block());
            if !empty {
                // Brought in along with a neighbour; the program knows nothing of the new place yet.
                self.discard_run(dst, 1, true);
            }
            return None;
        }
        self.regions.mark(dst);
        let mut trapped = [word];
        let (word, moved_nothing) = match self.trap_owned(src, &mut trapped) {
            Some(unfilled) => (trapped[0], !unfilled.is_empty()),
            None => {
                self.pages.release(dst, target);
                self.pages.release(src, word);
                self.add_block(src.block());
                return Some(false);
            }
        };
        if moved_nothing {
            self.pages.release(dst, target);
            self.pages.release(src, word);
            return Some(true);
        }
        let moved = word.state() == State::Swapped || self.machine.transfer(src, dst);
        let (left, arrived) =
            if moved { (Word::UNTOUCHED, word.with_locked(false).with_doubt()) } else { (word, target) };
        if let Some(slot) = arrived.slot().filter(|_| moved) {
            self.owners.set(slot, dst);
        }
        self.pages.release(dst, arrived);
        self.pages.release(src, left);
        // Also where it stays: reclaim may have passed by while the page was owned.
        self.add_block(if moved { dst.block() } else { src.block() });
        Some(moved)
    }
}
