//! Pages read ahead that nobody wanted go back to their slots, which hold the same: nothing is read, compressed or written.
use crate::broken::{self, Broken};
use crate::machine::{BatchNo, Machine};
use crate::page::{State, Word};
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::units::{FrameNo, PageNo};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Frames of pages read ahead that count in the budget.
    pub fn ahead_pages(&self) -> u64 {
        self.ahead.pages()
    }

    /// Drops the pages of the oldest batch of those read ahead. Returns how many frames that has freed: none where there is no such
    /// batch, or one of its pages is being touched just now.
    pub fn drop_ahead(&self) -> usize {
        self.drop_ahead_if(|_| true)
    }

    /// The same where it has had its time, or there are too many, or all its pages were touched.
    pub(crate) fn drop_old_ahead(&self) -> usize {
        if self.ahead.batches() == 0 {
            return 0;
        }
        let (limit, isolated) = (self.limit_pages(), self.looks.taken_pages());
        let too_many = self.ahead.pages() > self.ahead.max_pages(limit);
        self.drop_ahead_if(|batch| {
            too_many || self.frames.live(batch).is_empty() || self.ahead.is_old(batch, limit, isolated)
        })
    }

    /// Drops all, as far as nobody is at them just now.
    pub(crate) fn drop_all_ahead(&self) {
        for _ in 0..self.ahead.batches() {
            self.drop_ahead();
        }
    }

    fn drop_ahead_if(&self, wanted: impl Fn(BatchNo) -> bool) -> usize {
        let Some(batch) = self.ahead.take_oldest(wanted, self.pause()) else { return 0 };
        for i in self.frames.live(batch).iter() {
            self.drop_ahead_frame(batch.frame(i));
        }
        // Who touches a page just now, or has not filled its frame yet, needs the frame.
        let is_empty = self.frames.live(batch).is_empty() || broken::is(Broken::AheadReleased);
        // Not before: a frame that could not be filled ceases to count before it ceases to be live.
        let pages = self.frames.filled_pages(batch);
        if !is_empty || !self.machine.release(batch) {
            self.ahead.keep(batch, self.pause());
            return 0;
        }
        self.ahead.released(pages);
        self.frames.emptied(batch);
        self.frames.give_back(batch, self.pause());
        pages
    }

    /// Drops the page of a frame of a batch in hand, unless somebody else has it, or had.
    fn drop_ahead_frame(&self, frame: FrameNo) {
        let Some(page) = self.ahead.owner(frame) else { return };
        let word = self.pages.get(page);
        if word.is_ahead() && word.frame() == frame {
            self.drop_ahead_page(page, word);
        }
    }

    /// Drops a page that was read ahead, as seen. False where another thread was faster.
    pub(crate) fn drop_ahead_page(&self, page: PageNo, word: Word) -> bool {
        debug_assert!(word.state() == State::Isolated && word.is_ahead());
        if !self.pages.claim(page, word) {
            return false;
        }
        let slot = self.frames.take_slot(word.frame()).expect("a page that was read ahead has its slot");
        self.take_from_swapcache(slot);
        self.frames.end_live(word.frame());
        let gone = Word::swapped(slot, word.order()).with_locked(word.locked()).with_past_of(word);
        self.pages.release(page, gone);
        self.ahead_in_vain();
        true
    }
}
