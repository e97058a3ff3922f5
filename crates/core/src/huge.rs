//! Memory that a program fills from its start to its end comes as huge pages, as long as there is plenty.
//!
//! To make a page of 4 KiB costs the kernel several times as much as a part of 2 MiB of that size, and programs reach more memory by a
//! TLB of huge pages. But a huge page is memory also where nobody wants it. So one comes only where the program has entered 2 MiB
//! of which it had nothing, all of the 2 MiB before are in memory, and what was looked at of these holds something; and only up to
//! a part of the limit, since what is to leave has to be split.
use crate::bring::{Next, Target};
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine, Prot};
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::units::{BLOCK_PAGES, BlockNo, MAX_FOLIO_PAGES, Order, PART_PAGES, PageNo};

/// Huge pages come as long as no more than one part in so many of the limit is used.
const LIMIT_SHARE: u64 = 2;
/// Places that are looked at of the folio before: the last page of each of so many equal parts.
const LOOKED_AT: usize = 4;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Installs a huge page of zeros around a page that holds nothing. `None` where none is to come, or could be had; nothing has
    /// changed then.
    pub(crate) fn huge_touch(&self, target: &Target) -> Option<Next> {
        let first = target.page.folio(Order::MAX);
        let enters = (target.page.0 - first.0) < PART_PAGES as u32;
        let is_wanted = enters && self.orders().huge() && self.has_plenty() && self.is_filled_before(first);
        if !is_wanted || !self.may_be_huge(first) || !self.claim_untouched(first) {
            return None;
        }
        // As with single pages: before the look at the map, which is changed before what was there is discarded.
        self.regions.mark(first);
        let is_put = self.has_plenty() && self.may_be_huge(first) && self.machine.put_huge(first);
        let order = self.orders().came(first, PART_PAGES);
        let word = if is_put { Word::resident(None, order) } else { Word::UNTOUCHED };
        (0..MAX_FOLIO_PAGES).for_each(|i| self.pages.release(first.plus(i), word));
        if !is_put {
            return None;
        }
        self.add_resident(MAX_FOLIO_PAGES as i64);
        (0..MAX_FOLIO_PAGES / BLOCK_PAGES).for_each(|i| self.add_block(BlockNo(first.block().0 + i as u32)));
        self.machine.count(Event::PagesFirstTouch, MAX_FOLIO_PAGES as u64);
        self.machine.count(Event::HugeIn, 1);
        self.machine.count(Event::FaultFirstTouch, 1);
        Some(Next::There(MAX_FOLIO_PAGES))
    }

    /// Whether there is room for huge pages, far below the limit.
    fn has_plenty(&self) -> bool {
        let used = self.used_pages() + self.copies.unmeasured_pages();
        used + MAX_FOLIO_PAGES as u64 <= self.limit_pages() / LIMIT_SHARE || broken::is(Broken::HugeUnlimited)
    }

    /// Whether the program has filled the folio before this one, as far as a look tells. What came as a huge page is in memory, whether
    /// it was wanted or not; its content says more, and that a call is at it, which may be about to fill it.
    fn is_filled_before(&self, first: PageNo) -> bool {
        if broken::is(Broken::HugeUnasked) {
            return true;
        }
        let Some(before) = first.0.checked_sub(MAX_FOLIO_PAGES as u32).map(PageNo) else { return false };
        let is_there = |i: usize| self.state(before.plus(i)) == State::Resident;
        let is_in_use = |part: usize| {
            let page = before.plus((part + 1) * (MAX_FOLIO_PAGES / LOOKED_AT) - 1);
            self.pins.mask(page.block()).contains(page.index_in_block()) || self.machine.is_written(page)
        };
        (0..MAX_FOLIO_PAGES).rev().all(is_there) && (0..LOOKED_AT).all(is_in_use)
    }

    /// Whether all pages of a folio lie in one mapping that is the program's to read and write, and whose pages may be evicted.
    fn may_be_huge(&self, first: PageNo) -> bool {
        let last = first.plus(MAX_FOLIO_PAGES - 1);
        (last.0 as usize) < self.pages.len()
            && self.find(first).is_some_and(|vma| {
                let is_plain = !vma.foreign && !vma.is_held() && vma.object.is_none();
                is_plain && vma.prot == Prot::READ_WRITE && vma.end() > last.0
            })
    }

    /// Claims all pages of a folio, if none of them was ever touched.
    fn claim_untouched(&self, first: PageNo) -> bool {
        let claimed = (0..MAX_FOLIO_PAGES)
            .take_while(|&i| {
                let page = first.plus(i);
                self.pages.get(page) == Word::UNTOUCHED && self.pages.claim(page, Word::UNTOUCHED)
            })
            .count();
        if claimed < MAX_FOLIO_PAGES {
            (0..claimed).for_each(|i| self.pages.release(first.plus(i), Word::UNTOUCHED));
        }
        claimed == MAX_FOLIO_PAGES
    }
}
