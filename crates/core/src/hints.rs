//! What is known of a range beforehand: a call is about to use it, or the program gives advice.
use crate::bring::Fault;
use crate::broken::{self, Broken};
use crate::isolate::{By, Isolated};
use crate::large::Large;
use crate::machine::{Machine, Prot};
use crate::mask::Mask;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, BlockNo, PART_PAGES, PageNo};

/// Whether the kernel meets no fault at a page: it is there, and for a call that writes it is not write-protected.
fn is_ready(word: Word, writes: bool) -> bool {
    word.state() == State::Resident && !(writes && word.protected() != 0)
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Brings a range in and keeps it in until the pin that the caller published it in is released. Pages that
    /// are not mapped or not accessible are left out. Returns how many pages from the start are sure to be there; fewer
    /// than `count` only where a page cannot be brought in.
    ///
    /// For a call that writes, or may, no page is write-protected afterwards: the kernel meets no fault.
    pub fn pin(&self, first: PageNo, count: u32, access: Access, cx: &mut Context<S::Worker>) -> (u32, Fault) {
        let mut page = first.0;
        let end = first.0 + count;
        while page < end {
            let Some(vma) = self.next_in(page, end) else { break };
            page = vma.first.0;
            if vma.foreign || vma.prot == Prot::NONE {
                page = vma.end();
                continue;
            }
            while page < vma.end() {
                let word = self.pages.get(PageNo(page));
                let writes = access == Access::Write && !broken::is(Broken::CallsOnlyRead);
                if !is_ready(word, writes) {
                    if word.state() != State::Resident {
                        self.machine.used_by_call(PageNo(page), word.state() == State::Untouched);
                    }
                    let access = if writes { Access::Write } else { Access::Read };
                    match self.fault_in(PageNo(page), PageNo(vma.end()), access, cx) {
                        // Reclaim may have taken it again before it saw the pin: look again.
                        Fault::Done => continue,
                        error => return (page - first.0, error),
                    }
                }
                page += 1;
            }
        }
        (count, Fault::Done)
    }

    /// Whether a call on a range that was published in a pin can be made as things are: all pages are there, and for a call that
    /// writes, or may, none is write-protected. They stay so until the pin is released. What is not managed is not there.
    pub fn is_pinned(&self, first: PageNo, count: u32, access: Access) -> bool {
        if broken::is(Broken::DirectUnchecked) {
            return true;
        }
        (first.0..first.0 + count).all(|page| is_ready(self.pages.get(PageNo(page)), access == Access::Write))
    }

    /// Evicts a page if it was read ahead, and is in memory by that alone.
    fn evict_ahead(&self, page: PageNo) {
        let word = self.pages.get(page);
        if word.is_ahead() {
            self.drop_ahead_page(page, word);
        }
    }

    /// Evicts a range as far as it can be (`MADV_PAGEOUT`), with what waits in batches of its blocks, or only unmaps it (`MADV_COLD`).
    pub fn page_out(&self, first: PageNo, count: u32, write: bool, cx: &mut Context<S::Worker>) {
        // What is to go is not wanted ahead. What is being read now is waited for, and goes, too.
        if write && self.ahead.forget(self.pause()) {
            self.settle_range(first, count);
        }
        self.touched(first, count, |first, count| {
            let (mut page, end) = (first.0, first.0 + count);
            while page < end {
                let block = PageNo(page).block();
                let goes = |going: PageNo, _: Word| (page..end).contains(&going.0);
                if let Some(large) = if write { self.large(block, u64::MAX, goes, cx.lane) } else { None } {
                    for block in large.blocks() {
                        self.page_out_block(block, Mask::range(0, BLOCK_PAGES), write, Some(&large), cx);
                    }
                    page = large.end().first_page().0;
                    continue;
                }
                let stop = end.min(block.first_page().0 + BLOCK_PAGES as u32);
                let mask = Mask::range(PageNo(page).index_in_block(), (stop - page) as usize);
                page = stop;
                if write && self.ahead.batches() > 0 {
                    mask.iter().for_each(|i| self.evict_ahead(block.first_page().plus(i)));
                }
                if mask.iter().any(|i| self.state(block.first_page().plus(i)) == State::Resident) {
                    self.page_out_block(block, mask, write, None, cx);
                }
                if write && !broken::is(Broken::WaitingStays) {
                    self.page_out_waiting(block, mask, cx);
                }
            }
        });
    }

    /// Writes out what waits of these pages of a block. What waits beside it, in the same batch, goes with it.
    fn page_out_waiting(&self, block: BlockNo, mask: Mask, cx: &mut Context<S::Worker>) {
        for i in mask.iter() {
            let word = self.pages.get(block.first_page().plus(i));
            if word.state() != State::Isolated || word.is_ahead() {
                continue;
            }
            let batch = self.frames.batch_of(word.frame());
            if self.frames.take_inactive(batch, block, self.pause()) && !self.write_out(batch, cx) {
                // There is no room for more.
                return self.frames.make_inactive(batch, self.pause());
            }
        }
    }

    /// The same for these pages of a block, which goes as part of a larger folio, perhaps.
    fn page_out_block(
        &self,
        block: BlockNo,
        mask: Mask,
        write: bool,
        large: Option<&Large>,
        cx: &mut Context<S::Worker>,
    ) {
        if !self.frames.has_free(self.pause()) {
            self.reclaim(cx);
        }
        let isolated = self.isolate(block, By::Program(mask), cx);
        if let Some(large) = large {
            self.give_part(large, block, &isolated);
        }
        if let Isolated::Batch(batch) = isolated
            && (!write || !self.write_out(batch, cx))
        {
            self.frames.make_inactive(batch, self.pause());
        }
    }

    /// Brings in what fits of a range without evicting anything (`MADV_WILLNEED`).
    pub fn will_need(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) {
        self.touched(first, count, |first, count| {
            let end = first.0 + count;
            for page in first.0..end {
                if self.used_pages() + PART_PAGES as u64 > self.limit_pages() {
                    return;
                }
                if matches!(self.state(PageNo(page)), State::Swapped | State::Isolated) {
                    self.fault_in(PageNo(page), PageNo(end), Access::Read, cx);
                }
            }
        });
    }
}
