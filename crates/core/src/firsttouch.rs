//! The first touch of a page that holds nothing: it comes as zeros.
use crate::bring::{Fault, Next, Target};
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine};
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::readahead::Plan;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, PART_PAGES, PageNo};

/// So many pages before one are in use where memory is being filled upwards. Where pages are first used in no order, this is rare until most of
/// them are.
const FILLED_PAGES: u32 = 4;

/// What comes with the first touch of `page` where memory is being filled: the rest of its part, `most` pages at most.
pub(crate) fn filling(page: PageNo, most: usize) -> Plan {
    Plan::only(page, PART_PAGES - page.0 as usize % PART_PAGES).within(page, most)
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Whether memory is being filled upwards at a page of which `seen` is the word. Who allocates by small pieces leaves no run of
    /// touches: each piece's header is written before the pieces below are.
    pub(crate) fn is_filled_up_to(&self, seen: Word, page: PageNo) -> bool {
        let is_used = |before: u32| self.pages.get(PageNo(before)).state() != State::Untouched;
        seen.state() == State::Untouched
            && page.0 >= FILLED_PAGES
            && (page.0 - FILLED_PAGES..page.0).rev().all(is_used)
            && !broken::is(Broken::NothingIsFilled)
    }

    /// Installs zeros for a page, and for those of its range that hold nothing either.
    pub(crate) fn first_touch(&self, target: &Target, cx: &mut Context<S::Worker>) -> Next {
        if let Some(next) = self.huge_touch(target) {
            return next;
        }
        let page = target.page;
        let fresh = |w: Word| matches!(w.state(), State::Untouched | State::Zero);
        let Some((first, count)) = self.claim_run(page, target.seen, target.range, &mut cx.saved, fresh) else {
            return Next::Again;
        };
        // Before the look at the map: unmapping changes the map, then discards what lies in marked regions.
        if !broken::is(Broken::NoRegions) {
            self.regions.mark(first);
            self.regions.mark(first.plus(count - 1));
        }
        let Some((first, count)) = self.keep_mapped(page, first, count, &mut cx.saved) else {
            return Next::Failed(Fault::NotMapped);
        };
        let (done, error) = self.machine.put_zero(first, count);
        let order = self.orders().came(first, done);
        for (i, &old) in cx.saved[..count].iter().enumerate() {
            let word = if i < done { Word::resident(None, order).with_locked(old.locked()) } else { old };
            self.pages.release(first.plus(i), word);
        }
        self.add_resident(done as i64);
        if done > 0 {
            self.add_block(first.block());
            self.machine.count(Event::PagesFirstTouch, done as u64);
        }
        if first.0 + (done as u32) <= page.0 {
            return self.put_failed(error);
        }
        self.machine.count(Event::FaultFirstTouch, 1);
        Next::There(count)
    }

    /// Gives up those of the owned pages `first..first + count` that are not in the mapping of `page`; all where there is
    /// none. Looked up only while the pages are owned: unmapping changes the map before it waits for owned pages, so what
    /// is mapped now is discarded after it was put, or not at all. Pages of a mapping that is held are locked from here on.
    fn keep_mapped(
        &self,
        page: PageNo,
        first: PageNo,
        count: usize,
        saved: &mut [Word; BLOCK_PAGES],
    ) -> Option<(PageNo, usize)> {
        if broken::is(Broken::MapUnchecked) {
            return Some((first, count));
        }
        let vma = self.find(page).filter(|v| !v.foreign);
        let (from, to) = vma.map_or((0, 0), |v| (v.first.0.max(first.0), v.end().min(first.0 + count as u32)));
        for (i, &word) in saved[..count].iter().enumerate() {
            let p = first.plus(i);
            if p.0 < from || p.0 >= to {
                self.pages.release(p, word);
            }
        }
        let held = vma?.is_held();
        let skipped = (from - first.0) as usize;
        saved.copy_within(skipped..skipped + (to - from) as usize, 0);
        if held {
            saved[..(to - from) as usize].iter_mut().for_each(|word| *word = word.with_locked(true));
        }
        Some((PageNo(from), (to - from) as usize))
    }
}
