//! What a program has never touched is left to the kernel while there is plenty ([`crate::trap`]): which pages, and how many.
use crate::bring::{Next, Target};
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine, Prot};
use crate::page::Word;
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::units::{BlockNo, MAX_FOLIO_PAGES, PageNo};
use crate::vma::Vma;

/// Pages are left to the kernel as long as no more than one part in so many of the limit is used. Memory that is not managed may grow by as much
/// as it hides before it is seen, while twice as much is used: by then they are trapped ([`crate::trap`]).
const LEAVE_SHARE: u64 = 3;
/// One part in so many of the limit at most is left at once.
const GROUP_SHARE: u64 = 16;
/// Fewer neighbours are not worth a mapping of the kernel's.
const RUN_MIN: usize = 4;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Leaves the pages around a page that holds nothing to the kernel. `None` where none are to be, or that failed; nothing has changed then.
    pub(crate) fn leave_to_kernel(&self, target: &Target) -> Option<Next> {
        let page = target.page;
        if target.seen != Word::UNTOUCHED || !self.machine.untraps() || self.copies.is_shared() {
            return None;
        }
        let (first, count) = self.untouched_around(page)?;
        let beside = self.left_beside(first, count);
        if count < RUN_MIN || !self.left.has_room(beside) {
            return None;
        }
        // First: other threads may be about to leave some, too.
        self.add_resident(count as i64);
        if !self.has_room_for_left() {
            self.add_resident(-(count as i64));
            return None;
        }
        // Others may have taken much since this process looked last.
        self.machine.will_use(count);
        if !self.has_room_for_left() || !self.leave_run(page, first, count, beside) {
            self.add_resident(-(count as i64));
            self.machine.uses_less();
            return None;
        }
        for block in first.block().0..=first.plus(count - 1).block().0 {
            self.left.add_block(BlockNo(block), &self.pause());
            self.add_block(BlockNo(block));
        }
        self.machine.count(Event::PagesFirstTouch, count as u64);
        self.machine.count(Event::PagesUntrapped, count as u64);
        self.machine.count(Event::FaultFirstTouch, 1);
        Some(Next::There(count))
    }

    /// Leaves pages to the kernel, around `page`. False where somebody else has touched some, or unmapped some, or the machine refuses.
    fn leave_run(&self, page: PageNo, first: PageNo, count: usize, beside: u32) -> bool {
        let claim = |i: usize| self.pages.claim(first.plus(i), Word::UNTOUCHED);
        let claimed = (0..count).take_while(|&i| claim(i)).count();
        let give_up = |word: Word| (0..claimed).for_each(|i| self.pages.release(first.plus(i), word));
        // As with others: before the look at the map, which is changed before what was there is discarded.
        self.regions.mark(first);
        self.regions.mark(first.plus(count - 1));
        let is_mapped = self.plain(page).is_some_and(|vma| vma.first <= first && first.0 + count as u32 <= vma.end());
        if claimed < count || !is_mapped || !self.machine.untrap(first, count) {
            give_up(Word::UNTOUCHED);
            return false;
        }
        self.left.add(count as u64, beside);
        give_up(Word::untrapped());
        true
    }

    /// Fills a page that is left to the kernel, and of which a touch was told, unless the kernel has filled it, or will. It counts as before.
    pub(crate) fn fill_left(&self, page: PageNo, word: Word) {
        if self.pages.claim(page, word) {
            let _ = self.machine.put_zero(page, 1);
            self.pages.release(page, word);
        }
    }

    /// Whether a page is left to the kernel, which may have filled it.
    pub fn is_left_to_kernel(&self, page: PageNo) -> bool {
        self.pages.get(page).is_untrapped()
    }

    /// The mapping around a page, where it is the program's to read and write and its pages may be evicted.
    fn plain(&self, page: PageNo) -> Option<Vma> {
        let is_plain = |vma: &Vma| !vma.foreign && !vma.is_held() && vma.object.is_none();
        self.find(page).filter(|vma| is_plain(vma) && vma.prot == Prot::READ_WRITE)
    }

    /// The pages around one that hold nothing, in its mapping and in as large a part of memory as may be left at once.
    fn untouched_around(&self, page: PageNo) -> Option<(PageNo, usize)> {
        let most = (self.limit_pages() / GROUP_SHARE).min(MAX_FOLIO_PAGES as u64) as u32;
        let group_pages = 1 << most.checked_ilog2()?;
        let group = page.0 & !(group_pages - 1);
        let vma = self.plain(page)?;
        let (from, to) = (group.max(vma.first.0), vma.end().min(group + group_pages));
        let is_untouched = |&page: &u32| self.pages.get(PageNo(page)) == Word::UNTOUCHED;
        let first = page.0 - (from..page.0).rev().take_while(is_untouched).count() as u32;
        let end = page.0 + (page.0..to).take_while(is_untouched).count() as u32;
        Some((PageNo(first), (end - first) as usize))
    }

    fn has_room_for_left(&self) -> bool {
        self.used_pages() <= self.limit_pages() / LEAVE_SHARE || broken::is(Broken::UntrappedUnlimited)
    }
}
