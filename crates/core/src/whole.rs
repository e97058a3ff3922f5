//! Taking the content of a range away, wherever it is: the range leaves the pager's hands, and goes on with the same content as
//! memory of the kernel's.
//!
//! What a page held is handed over while the page is owned, and the page is out of the program's reach by then: no write of the
//! program is lost. A touch of it waits, or finds nothing; it is for the caller to see that nobody takes that for zeros.
use crate::bring::Fault;
use crate::broken::{self, Broken};
use crate::machine::{Machine, Wanted};
use crate::mask::Mask;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, Order, PageNo};

/// Attempts to take a page that the machine refuses.
const TAKE_TRIES: u32 = 64;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Takes the content of a mapped range, also where it is locked or in use by a call, and hands it over page by page to `keep`.
    /// What held nothing, or was known to be zero, is left out.
    ///
    /// # Errors
    /// Why a page could not be had: it keeps what it holds. What was handed over by then holds nothing any more, see
    /// [`Pager::put_content`].
    pub fn take_content(
        &self,
        first: PageNo,
        count: u32,
        cx: &mut Context<S::Worker>,
        mut keep: impl FnMut(PageNo, &[u8]),
    ) -> Result<(), Fault> {
        let mut outcome = Ok(());
        self.touched(first, count, |first, count| {
            let (mut page, end) = (first, first.plus(count as usize));
            let (mut spins, mut refusals) = (0, 0);
            // Pages of the block that were handed over before one that stayed: a neighbour's touch may have made them pages of zeros.
            let (mut handed, mut block) = (Mask::EMPTY, page.block());
            while page < end && outcome.is_ok() {
                if page.block() != block {
                    (handed, block) = (Mask::EMPTY, page.block());
                }
                if handed.contains(page.index_in_block()) {
                    page = page.plus(1);
                    continue;
                }
                let word = self.pages.get(page);
                let done = match word.state() {
                    State::Untouched | State::Zero => 1,
                    State::Busy => 0,
                    State::Isolated => self.take_isolated(page, word, &mut keep) as usize,
                    State::Swapped if broken::is(Broken::StoredStays) => 1,
                    State::Swapped => {
                        match self.fault_in(page, end, Access::Read, cx) {
                            Fault::Done => spins = 0,
                            error => outcome = Err(error),
                        }
                        continue;
                    }
                    State::Resident => {
                        let taken = self.take_resident(page, end, handed, cx, &mut keep);
                        if !broken::is(Broken::HandedTwice) {
                            handed |= taken.at(page.index_in_block());
                        }
                        let done = (0..BLOCK_PAGES).take_while(|&i| taken.contains(i)).count();
                        refusals = if done > 0 { 0 } else { refusals + 1 };
                        done
                    }
                };
                if refusals >= TAKE_TRIES {
                    outcome = Err(Fault::NoMemory);
                } else if done == 0 {
                    self.machine.pause(spins);
                    spins += 1;
                } else {
                    page = page.plus(done);
                    spins = 0;
                }
            }
        });
        outcome
    }

    /// Takes the content of a page's frame. False where another thread was faster.
    fn take_isolated(&self, page: PageNo, word: Word, keep: &mut impl FnMut(PageNo, &[u8])) -> bool {
        if !self.pages.claim(page, word) {
            return false;
        }
        let frame = word.frame();
        // SAFETY: the frame's live bit is ours to clear, so the batch is not released before that.
        keep(page, unsafe { self.machine.frame(frame, 1) });
        self.leave_swapcache(self.frames.take_slot(frame));
        self.frames.end_live(frame);
        self.pages.release(page, Word::UNTOUCHED);
        true
    }

    /// Takes resident pages from `page` on, of its block, before `end` and the next that was handed over. Returns those that it
    /// hands over, by their distance.
    fn take_resident(
        &self,
        page: PageNo,
        end: PageNo,
        handed: Mask,
        cx: &mut Context<S::Worker>,
        keep: &mut impl FnMut(PageNo, &[u8]),
    ) -> Mask {
        let at = page.index_in_block();
        let Some(batch) = self.frames.take_free(page.block(), self.pause()) else {
            self.reclaim(cx);
            return Mask::EMPTY;
        };
        let most = (BLOCK_PAGES - at).min((end.0 - page.0) as usize);
        let most = (0..most).take_while(|i| !handed.contains(at + i)).count();
        let mut claimed = 0;
        while claimed < most {
            let word = self.pages.get(page.plus(claimed));
            if word.state() != State::Resident || !self.pages.claim(page.plus(claimed), word) {
                break;
            }
            cx.saved[claimed] = word;
            claimed += 1;
        }
        let unfilled = self.trap_owned(page, &mut cx.saved[..claimed]);
        let framed = unfilled.map_or(Mask::EMPTY, |unfilled| Mask::range(0, claimed) - unfilled);
        let wanted = Wanted { framed, clean: Mask::EMPTY };
        let taken =
            if !framed.is_empty() { self.machine.take(page, claimed, wanted, batch, at).framed } else { Mask::EMPTY };
        self.frames.fill(batch, taken.at(at));
        self.add_resident(-(taken.count() as i64));
        for (i, &old) in cx.saved[..claimed].iter().enumerate() {
            if !taken.contains(i) {
                self.pages.release(page.plus(i), old.with_doubt());
                continue;
            }
            let frame = batch.frame(at + i);
            // SAFETY: the page was taken into this frame just now, and the batch is ours.
            keep(page.plus(i), unsafe { self.machine.frame(frame, 1) });
            self.leave_swapcache(old.slot());
            self.frames.set_slot(frame, None);
            self.frames.end_live(frame);
            self.pages.release(page.plus(i), Word::UNTOUCHED);
        }
        if taken != wanted.framed {
            self.frames.taint(batch, (wanted.framed - taken).at(at));
            self.add_block(page.block());
        }
        if self.machine.release(batch) {
            self.frames.emptied(batch);
            self.frames.give_back(batch, self.pause());
        } else {
            self.frames.make_inactive(batch, self.pause());
        }
        taken
    }

    /// Puts content back that was taken. The page must hold nothing, and nobody but the caller may be at work. False where the
    /// machine has no memory.
    pub fn put_content(&self, page: PageNo, content: &[u8]) -> bool {
        let word = self.pages.get(page);
        if !matches!(word.state(), State::Untouched | State::Zero) || !self.pages.claim(page, word) {
            return false;
        }
        let locked = self.find(page).is_some_and(|vma| vma.is_held());
        let (done, _) = self.machine.put(page, content, false);
        if done == 0 {
            self.pages.release(page, word);
            return false;
        }
        self.regions.mark(page);
        self.pages.release(page, Word::resident(None, Order::PAGE).with_locked(locked));
        self.add_resident(1);
        self.add_block(page.block());
        true
    }
}
