//! A page comes back from its frame alone: the end of every hit that brings no others.
use crate::bring::Next;
use crate::machine::{Event, Machine};
use crate::page::Word;
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::units::PageNo;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Takes a page, which is claimed, back from its frame, and no other. It is released in any case.
    pub(crate) fn hit_alone(&self, page: PageNo, seen: Word, referenced: u64) -> Result<(), Next> {
        let frame = seen.frame();
        // SAFETY: the frame's live bit is ours to clear, so the batch is not released before that.
        let content = unsafe { self.machine.frame(frame, 1) };
        let (done, error) = self.machine.put(page, content, false);
        if done == 0 {
            self.pages.release(page, seen);
            return Err(self.put_failed(error));
        }
        self.add_resident(1);
        let slot = self.unless_locked(seen, self.frames.take_slot(frame));
        self.frames.end_live(frame);
        let word = Word::resident(slot, seen.order()).with_referenced(referenced).with_locked(seen.locked());
        self.pages.release(page, word.with_past_of(seen));
        if seen.is_ahead() {
            // A swap-in, but for when it was read.
            self.came_back(page.block(), 1, !self.full.is_full());
        } else {
            self.add_block(page.block());
        }
        self.machine.count(Event::FaultHit, 1);
        Ok(())
    }
}
