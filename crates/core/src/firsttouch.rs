//! The first touch of a page that holds nothing: it comes as zeros.
use crate::bring::{Fault, Next, Target};
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine, Prot};
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::readahead::Plan;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, PART_PAGES, PageNo};

/// So many pages before one are in use where memory is being filled upwards. Where pages are first used in no order, this is rare until most of
/// them are.
const FILLED_PAGES: u32 = 4;

/// Zero pages are mapped as long as no more than one part in so many of the limit is used: they count as pages in memory from then on, since
/// nobody is told when they become that.
const MAPPED_SHARE: u64 = 2;
/// With so many pages planned or more, a touch is that of a stream: its pages come as memory, many at once, which costs less than to make each
/// of a zero page.
const STREAM_PAGES: usize = 5;

/// What comes with the first touch of `page` where memory is being filled: the rest of its part, `most` pages at most.
pub(crate) fn filling(page: PageNo, most: usize) -> Plan {
    Plan::only(page, PART_PAGES - page.0 as usize % PART_PAGES).within(page, most)
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// The pages around the first touch of `page`, of which `seen` is the word, that come as mapped zero pages: those of its block and its mapping.
    /// `None` where there is not plenty of room, and where they are about to be touched one after the other.
    pub(crate) fn zeros_around(&self, seen: Word, page: PageNo, plan: Plan) -> Option<(PageNo, usize)> {
        let is_stream = plan.step > 1 || plan.pages >= STREAM_PAGES || plan.ahead_end > page.plus(plan.pages);
        if seen != Word::UNTOUCHED || is_stream || !self.has_room_for_zeros() || self.orders().pages_max() == 1 {
            return None;
        }
        let vma = self.find(page)?;
        let is_plain = !vma.foreign && !vma.is_held() && vma.object.is_none() && vma.prot == Prot::READ_WRITE;
        let block = page.block().first_page();
        let (first, end) = (block.0.max(vma.first.0), vma.end().min(block.0 + BLOCK_PAGES as u32));
        (is_plain && end - first > 1 && self.machine.maps_zero()).then_some((PageNo(first), (end - first) as usize))
    }

    /// Whether a block of zero pages fits far below the limit.
    fn has_room_for_zeros(&self) -> bool {
        // Pages that a process shares are told by what the kernel says of them, which says the same of zero pages.
        let fits = self.used_pages() + BLOCK_PAGES as u64 <= self.limit_pages() / MAPPED_SHARE;
        fits && !self.copies.is_shared() || broken::is(Broken::ZerosUnlimited)
    }

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
        if let Some(next) = self.huge_touch(target).or_else(|| self.leave_to_kernel(target)) {
            return next;
        }
        let page = target.page;
        let mapped = target.mapped;
        if mapped && target.range.1 > 1 && !self.has_room_for_zeros() {
            // The limit has changed.
            return Next::Alone;
        }
        let fresh = |w: Word| w.state() == State::Untouched || !mapped && w.state() == State::Zero;
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
        let (done, error) =
            if mapped { self.machine.map_zero(first, count) } else { self.machine.put_zero(first, count) };
        // What comes only because it costs nothing says nothing of how it is used.
        let order = self.orders().came(first, if mapped { 1 } else { done });
        for (i, &old) in cx.saved[..count].iter().enumerate() {
            let word = if i < done { Word::resident(None, order).with_locked(old.locked()) } else { old };
            self.pages.release(first.plus(i), word);
        }
        self.add_resident(done as i64);
        if done > 0 {
            self.add_block(first.block());
            self.machine.count(Event::PagesFirstTouch, done as u64);
            if mapped {
                self.machine.count(Event::PagesZeroMapped, done as u64);
            }
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
