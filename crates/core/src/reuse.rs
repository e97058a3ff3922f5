//! Reuse: pages that come in to be read are write-protected, and keep their slot. What was not written when the page goes again is
//! still there, so it goes without being read, copied or stored; the first write is noticed, and gives the slot up, and nothing
//! is copied.
//!
//! The rule that a page is taken over in place where nobody else uses it is that of Liang Zhang, "mm: reuse the unshared swapcache
//! page in do_wp_page", 2022.
use crate::broken::{self, Broken};
use crate::machine::{Event, Machine};
use crate::mask::Mask;
use crate::page::{DIRTIED_MAX, EPOCH_UNSURE, State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::store::Store;
use crate::units::{BLOCK_PAGES, PageNo};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// This process was forked off.
    pub fn forked(&self) {
        if !broken::is(Broken::EpochKept) {
            self.protection.forked();
        }
    }

    /// The epoch that pages are protected in that come in with these words for an access; 0 where they come in writable.
    pub(crate) fn protection_of(&self, words: &[Word], access: Access) -> u64 {
        let may_be = access == Access::Read
            && words.iter().all(|word| !word.locked() && word.dirtied() == 0)
            && (self.machine.puts_protected() || broken::is(Broken::PutUnprotected) && self.machine.write_protects());
        if may_be && self.protection.wants(words.len() as u32) { self.protection.epoch() } else { 0 }
    }

    /// Lets the program write to resident pages: those from `page`, as seen, to the last before `end` in its block that are
    /// resident. Returns how many; none where another thread was faster, or the machine refuses.
    pub(crate) fn allow_writes(&self, page: PageNo, seen: Word, end: PageNo, cx: &mut Context<S::Worker>) -> usize {
        let block_end = page.block().first_page().0 + BLOCK_PAGES as u32;
        let most = (end.0.min(block_end).max(page.0 + 1) - page.0) as usize;
        let resident = |word: Word| word.state() == State::Resident && !word.is_untrapped();
        let Some((first, count)) = self.claim_run(page, seen, (page, most), &mut cx.saved, resident) else { return 0 };
        let shared = if self.copies.is_held() { self.machine.shared(first, count) } else { Mask::EMPTY };
        let allowed = self.machine.allow_writes(first, count);
        let (mut written, mut copied) = (0, 0);
        for (i, &word) in cx.saved[..count].iter().enumerate() {
            if !allowed || word.protected() == 0 {
                // It may have come half way.
                self.pages.release(first.plus(i), word.with_doubt());
            } else {
                copied += u64::from(shared.contains(i));
                // Held pages without a slot were not protected to be reused.
                written += u32::from(word.slot().is_some() || word.protected() != EPOCH_UNSURE);
                let writable = Word::resident(None, word.order())
                    .with_referenced(word.referenced())
                    .with_locked(word.locked())
                    .with_past_of(word)
                    .with_dirtied(DIRTIED_MAX);
                self.pages.release(first.plus(i), writable);
                self.leave_swapcache(word.slot());
            }
        }
        // Reclaim may have passed by while they were owned.
        self.add_block(first.block());
        if !allowed {
            return 0;
        }
        self.copies.allowed(copied);
        self.protection.written(written);
        self.machine.count(Event::PagesReused, u64::from(written));
        count
    }
}
