//! Memory calls: map, unmap, protect, discard.
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine, Prot};
use crate::page::{State, Word};
use crate::pager::{Pager, Policies};
use crate::readahead::Readahead;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, Order, PageNo};
use crate::vma::{ObjectNo, Vma};

/// Pages that are discarded at most before the machine is told of more.
const DISCARDED_PAGES: u32 = 1024;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// A page that was read ahead ceases to be one, and nobody wanted it.
    pub(crate) fn ahead_in_vain(&self) {
        self.machine.count(Event::PagesAheadDropped, 1);
        self.readahead().dropped(1);
    }

    /// The mapping around a page.
    pub fn find(&self, page: PageNo) -> Option<Vma> {
        self.map.lock(self.pause()).find(page)
    }
    /// The same, with how often something was mapped, unmapped or changed until then.
    pub fn find_and_changes(&self, page: PageNo) -> (Option<Vma>, u32) {
        let map = self.map.lock(self.pause());
        (map.find(page), map.changes())
    }
    /// The first mapping in `[page, end)`, cut to it.
    pub fn next_in(&self, page: u32, end: u32) -> Option<Vma> {
        self.map.lock(self.pause()).next_in(page, end)
    }
    /// Whether every page of a range is mapped.
    pub fn covered(&self, first: PageNo, count: u32) -> bool {
        self.map.lock(self.pause()).covered(first, count)
    }
    /// Whether no page of a range is mapped.
    pub fn is_free(&self, first: PageNo, count: u32) -> bool {
        self.map.lock(self.pause()).is_free(first, count)
    }
    /// Whether no page of a range is mapped, and it lies near to what is, or where gaps were taken.
    pub fn is_free_near(&self, first: PageNo, count: u32) -> bool {
        let map = self.map.lock(self.pause());
        map.is_free(first, count) && map.is_near(first, count)
    }
    /// Whether the map certainly has room for so many more mappings.
    pub fn has_room(&self, extra: usize) -> bool {
        self.map.lock(self.pause()).has_room(extra)
    }
    /// Has new mappings placed from `bottom` on, where there is room. To be called before anything is mapped.
    pub fn set_bottom(&self, bottom: PageNo) {
        self.map.lock(self.pause()).set_bottom(bottom);
    }
    /// See [`Pager::set_bottom`].
    pub fn bottom(&self) -> PageNo {
        self.map.lock(self.pause()).bottom()
    }
    /// Has new mappings placed below `top` only.
    pub fn set_top(&self, top: PageNo) {
        self.map.lock(self.pause()).set_top(top);
    }
    /// A gap for a new mapping.
    pub fn gap(&self, count: u32, align: u32) -> Option<PageNo> {
        self.map.lock(self.pause()).gap(count, align)
    }

    /// Maps a free range. Its pages are untouched. False where the map or the machine refuses.
    pub fn map(&self, first: PageNo, count: u32, prot: Prot, locked: bool) -> bool {
        self.map_as(Vma { locked, ..Vma::new(first, count, prot) })
    }

    /// Maps a free range as part of a shared object. As [`Pager::map`].
    pub fn map_shared(&self, first: PageNo, count: u32, prot: Prot, object: ObjectNo) -> bool {
        self.map_as(Vma { object: Some(object), ..Vma::new(first, count, prot) })
    }

    fn map_as(&self, vma: Vma) -> bool {
        let Vma { first, count, prot, .. } = vma;
        if self.map.lock(self.pause()).insert(vma).is_err() {
            return false;
        }
        if prot != Prot::NONE && !self.machine.protect(first, count as usize, prot) {
            let _ = self.map.lock(self.pause()).remove(first, count);
            // A stream that ends at the border may have been here meanwhile.
            self.forget(first, count);
            return false;
        }
        true
    }

    /// Whether nothing of a free range is in memory or in a store. The machine may have refused to drop pages of what was mapped
    /// there before; they are dropped here if that is possible now.
    pub fn vacate(&self, first: PageNo, count: u32) -> bool {
        let is_empty = || {
            let mut empty = true;
            self.touched(first, count, |first, count| {
                let mut states = (0..count as usize).map(|i| self.state(first.plus(i)));
                empty &= states.all(|state| matches!(state, State::Untouched | State::Zero));
            });
            empty
        };
        if is_empty() {
            return true;
        }
        self.forget(first, count);
        is_empty()
    }

    /// Marks a range that was vacated ([`Pager::vacate`]) as holding something that the kernel manages.
    pub fn map_foreign(&self, first: PageNo, count: u32, prot: Prot) -> bool {
        let vma = Vma { foreign: true, ..Vma::new(first, count, prot) };
        self.map.lock(self.pause()).insert(vma).is_ok()
    }

    /// Marks a whole mapping whose content was taken ([`Pager::take_content`]) as holding something that the kernel manages.
    pub fn make_foreign(&self, vma: &Vma) -> bool {
        let foreign = Vma { foreign: true, ..Vma::new(vma.first, vma.count, vma.prot) };
        let change = |v: &mut Vma| *v = Vma { first: v.first, count: v.count, ..foreign };
        self.map.lock(self.pause()).update(vma.first, vma.count, change).is_ok()
    }

    /// Unmaps managed pages: their content is dropped and the range is free. Foreign parts must have been given back by
    /// the caller before.
    pub fn unmap(&self, first: PageNo, count: u32) -> bool {
        if self.map.lock(self.pause()).remove(first, count).is_err() {
            return false;
        }
        self.machine.protect(first, count as usize, Prot::NONE);
        self.forget(first, count);
        true
    }

    /// Has the map say what access there is to a part of a mapping: all that is to be done where the kernel manages it. False where the
    /// map has no room for that.
    #[must_use]
    pub fn note_protection(&self, first: PageNo, count: u32, prot: Prot) -> bool {
        self.map.lock(self.pause()).update(first, count, |v| v.prot = prot).is_ok()
    }

    /// Changes the program's access to mapped pages. The content stays.
    pub fn protect(&self, first: PageNo, count: u32, prot: Prot) -> bool {
        if !self.covered(first, count) {
            return false;
        }
        let (mut page, end) = (first.0, first.0 + count);
        while let Some(vma) = self.next_in(page, end) {
            // One mapping at a time, so that map and machine agree also where one of them refuses half-way.
            if !self.note_protection(vma.first, vma.count, prot) {
                return false;
            }
            if !self.machine.protect(vma.first, vma.count as usize, prot) {
                // The way back needs no more entries than the way here. Part of the range may have changed.
                let back = self.note_protection(vma.first, vma.count, vma.prot);
                debug_assert!(back);
                let _ = self.machine.protect(vma.first, vma.count as usize, vma.prot);
                return false;
            }
            page = vma.end();
        }
        true
    }

    /// Calls `f` for the parts of a range that may hold pages, skipping regions never touched.
    pub fn touched(&self, first: PageNo, count: u32, f: impl FnMut(PageNo, u32)) {
        self.regions.touched(first, count, f);
    }

    /// Drops the content of a range: its pages read as zero again. Those that are left to the kernel are so still.
    pub fn discard(&self, first: PageNo, count: u32) {
        self.discard_all(first, count, false);
    }

    /// The same of a range that is not mapped any more, or will be another mapping.
    fn forget(&self, first: PageNo, count: u32) {
        self.discard_all(first, count, true);
    }

    fn discard_all(&self, first: PageNo, count: u32, forgets: bool) {
        self.touched(first, count, |first, count| {
            let end = first.0 + count;
            for part in (first.0..end).step_by(DISCARDED_PAGES as usize) {
                self.discard_part(PageNo(part), DISCARDED_PAGES.min(end - part), forgets);
            }
        });
    }

    fn discard_part(&self, first: PageNo, count: u32, forgets: bool) {
        self.machine.discarded(first, count);
        let (mut page, end) = (first.0, first.0 + count);
        let mut spins = 0;
        while page < end {
            let stop = end.min((page / BLOCK_PAGES as u32 + 1) * BLOCK_PAGES as u32);
            let done = self.discard_run(PageNo(page), (stop - page) as usize, forgets);
            if done == 0 {
                self.machine.pause(spins);
                spins += 1;
            } else {
                spins = 0;
            }
            page += done as u32;
        }
    }

    /// Discards pages of one block up to the first that another thread owns. Waiting for that one while holding others
    /// could deadlock. `forgets`: also what is left to the kernel is nobody's afterwards.
    pub(crate) fn discard_run(&self, first: PageNo, count: usize, forgets: bool) -> usize {
        // What holds nothing need not be owned: whoever brings a page in there now does so after this.
        let empty = (0..count).take_while(|&i| self.pages.get(first.plus(i)) == Word::UNTOUCHED).count();
        if empty > 0 {
            return empty;
        }
        let mut saved = [Word::UNTOUCHED; BLOCK_PAGES];
        let (mut n, mut mapped) = (0, 0i64);
        while n < count {
            let word = self.pages.get(first.plus(n));
            let is_like_others = n == 0 || word.is_untrapped() == saved[0].is_untrapped();
            if word.state() == State::Busy || !is_like_others || !self.pages.claim(first.plus(n), word) {
                break;
            }
            saved[n] = word;
            n += 1;
        }
        let is_left = n > 0 && saved[0].is_untrapped();
        if is_left && (!forgets || self.trap_owned(first, &mut saved[..n]).is_none()) {
            // The kernel fills it anew.
            self.machine.drop_pages(first, n);
            for (i, &word) in saved[..n].iter().enumerate() {
                self.pages.release(first.plus(i), word.with_locked(word.locked() && !forgets));
            }
            // Reclaim may have passed by while they were owned.
            self.add_block(first.block());
            return n;
        }
        let any = saved[..n].iter().any(|word| word.state() == State::Resident);
        let closed = !any || self.machine.drop_pages(first, n) || broken::is(Broken::DropForgotten);
        for (i, &word) in saved[..n].iter().enumerate() {
            match word.state() {
                State::Resident => {
                    self.leave_swapcache(word.slot());
                    if !closed {
                        // A page of zeros that is still there.
                        self.pages.release(first.plus(i), Word::resident(None, Order::PAGE));
                        continue;
                    }
                    mapped += 1;
                }
                State::Swapped => {
                    if let Some(slot) = word.slot().filter(|_| !broken::is(Broken::SlotsLeak)) {
                        self.put_slot(slot);
                    }
                }
                State::Isolated => {
                    self.leave_swapcache(self.frames.take_slot(word.frame()));
                    self.frames.end_live(word.frame());
                    if word.is_ahead() {
                        self.ahead_in_vain();
                    }
                }
                State::Untouched | State::Zero | State::Busy => {}
            }
            self.pages.release(first.plus(i), Word::UNTOUCHED);
        }
        self.add_resident(-mapped);
        if !closed {
            self.add_block(first.block());
        }
        n
    }

    /// Calls `f` for the resident pages of a range, run by run, while they are owned. Returns whether `f` always did.
    pub fn with_resident(&self, first: PageNo, count: u32, mut f: impl FnMut(PageNo, usize) -> bool) -> bool {
        let mut ok = true;
        self.touched(first, count, |first, count| {
            let (mut page, end) = (first.0, first.0 + count);
            let mut spins = 0;
            while page < end {
                let stop = end.min((page / BLOCK_PAGES as u32 + 1) * BLOCK_PAGES as u32);
                let mut saved = [Word::UNTOUCHED; BLOCK_PAGES];
                let mut n = 0;
                while page + (n as u32) < stop {
                    let word = self.pages.get(PageNo(page).plus(n));
                    if word.state() != State::Resident || !self.pages.claim(PageNo(page).plus(n), word) {
                        break;
                    }
                    saved[n] = word;
                    n += 1;
                }
                if n > 0 {
                    ok &= f(PageNo(page), n);
                    (0..n).for_each(|i| self.pages.release(PageNo(page).plus(i), saved[i]));
                    // Reclaim may have passed by while they were owned.
                    self.add_block(PageNo(page).block());
                    page += n as u32;
                    spins = 0;
                } else if matches!(self.state(PageNo(page)), State::Busy | State::Resident) {
                    self.machine.pause(spins);
                    spins += 1;
                } else {
                    page += 1;
                }
            }
        });
        ok
    }

    /// Waits until each page of a range was seen without an owner.
    pub fn settle_range(&self, first: PageNo, count: u32) {
        self.touched(first, count, |first, count| {
            for i in 0..count as usize {
                let mut spins = 0;
                while self.state(first.plus(i)) == State::Busy {
                    self.machine.pause(spins);
                    spins += 1;
                }
            }
        });
    }
}
