//! Writing isolated pages out: each becomes Zero, or Swapped at the slot that still holds it, or is stored. Mechanism only.
use crate::broken::{self, Broken};
use crate::clean::{hash_page, is_zero};
use crate::machine::{BatchNo, Event, Machine};
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::pins::mask_of;
use crate::slots::Order;
use crate::store::{Folio, Page, Store};
use crate::units::{BLOCK_PAGES, FOLIO_PAGES, FrameNo, PageNo, SlotId};

/// What a look at the pages of a batch has found.
struct Sorted {
    /// Pages to be stored.
    changed: u64,
    /// Those of them that came in as part of a whole folio.
    whole: u64,
    /// The hashes of their contents.
    hashes: [u128; BLOCK_PAGES],
}

/// A batch that is being written out. Its frames keep their bytes until it is released, also where a page is touched meanwhile.
#[derive(Clone, Copy)]
struct Out {
    batch: BatchNo,
    base: PageNo,
}

impl Out {
    fn page(self, index: usize) -> PageNo {
        self.base.plus(index)
    }
    fn frame(self, index: usize) -> FrameNo {
        self.batch.frame(index)
    }
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Writes out the pages of a batch and releases it. Returns false, with the batch unreleased, where a store refused a page,
    /// or the machine the release: it is to be tried again.
    pub(crate) fn write_out(&self, batch: BatchNo, cx: &mut Context<S::Worker>) -> bool {
        let out = Out { batch, base: self.frames.block(batch).first_page() };
        let sorted = self.sort(out);
        let mut refused = false;
        for start in (0..BLOCK_PAGES).step_by(FOLIO_PAGES) {
            let bits = mask_of(start, FOLIO_PAGES);
            if sorted.changed & bits == 0 {
                continue;
            }
            let group = |mask: u64| (mask & bits) >> start;
            if self.orders().goes(group(sorted.changed), group(sorted.whole)) == Order::Folio {
                if self.write_folio(out, start, &sorted.hashes, cx) {
                    continue;
                }
                self.machine.count(Event::FolioFallbacks, 1);
            }
            let pages = (start..start + FOLIO_PAGES).filter(|i| sorted.changed & 1 << i != 0);
            for i in pages {
                if self.is_at(out, i) && !self.write_page(out, i, sorted.hashes[i], cx) {
                    refused = true;
                    break;
                }
            }
        }
        self.is_empty(out, refused) && self.release_batch(batch)
    }

    /// Whether a page still lies in its frame of the batch.
    fn is_at(&self, out: Out, index: usize) -> bool {
        let word = self.pages.get(out.page(index));
        word.state() == State::Isolated && word.frame() == out.frame(index)
    }

    /// Claims a page that still lies in its frame; its word as it was seen.
    fn claim_at(&self, out: Out, index: usize) -> Option<Word> {
        let word = self.pages.get(out.page(index));
        let ours = word.state() == State::Isolated && word.frame() == out.frame(index);
        (ours && self.pages.claim(out.page(index), word)).then_some(word)
    }

    /// The content of pages of the batch that still lay in their frames when the caller looked.
    fn content(&self, out: Out, index: usize, pages: usize) -> &[u8] {
        // SAFETY: a frame that held a page keeps it until its batch is released, which only the caller of `write_out` does.
        unsafe { self.machine.frame(out.frame(index), pages) }
    }

    /// Looks at all pages of a batch, and is done with those that are zero or clean.
    fn sort(&self, out: Out) -> Sorted {
        let mut sorted = Sorted { changed: 0, whole: 0, hashes: [0; BLOCK_PAGES] };
        let (mut zero, mut clean) = (0, 0);
        for i in 0..BLOCK_PAGES {
            let word = self.pages.get(out.page(i));
            if !self.frames.is_live(out.frame(i)) || word.state() != State::Isolated || word.frame() != out.frame(i) {
                continue;
            }
            let bytes = self.content(out, i, 1);
            if is_zero(bytes) && !broken::is(Broken::NoZero) {
                zero += self.becomes_zero(out, i, word) as u64;
                continue;
            }
            sorted.hashes[i] = hash_page(bytes, self.seed);
            if self.becomes_clean(out, i, word, sorted.hashes[i]) {
                clean += 1;
                continue;
            }
            sorted.changed |= 1 << i;
            sorted.whole |= (word.folio() as u64) << i;
        }
        if zero > 0 {
            self.machine.count(Event::PagesZero, zero);
        }
        if clean > 0 {
            self.machine.count(Event::PagesClean, clean);
        }
        sorted
    }

    /// A page of zeros needs neither frame nor slot. False where it was touched meanwhile.
    fn becomes_zero(&self, out: Out, index: usize, word: Word) -> bool {
        // Claimed first: the slot of its frame is read and put by the owner only.
        let claimed = self.pages.claim(out.page(index), word);
        if claimed {
            let frame = out.frame(index);
            self.leave_swapcache(self.frames.take_slot(frame));
            self.frames.end_live(frame);
            self.pages.release(out.page(index), Word::zero().with_locked(word.locked()));
        }
        claimed
    }

    /// A page whose slot still holds its content goes back to it. False where it has none, has changed, or was touched.
    fn becomes_clean(&self, out: Out, index: usize, word: Word, hash: u128) -> bool {
        let frame = out.frame(index);
        let Some(slot) = self.frames.slot(frame) else { return false };
        let same = self.slots.hash(slot) == hash || broken::is(Broken::DirtyIsClean);
        if !same || broken::is(Broken::NothingIsClean) || !self.pages.claim(out.page(index), word) {
            return false;
        }
        if self.frames.slot(frame) != Some(slot) {
            self.pages.release(out.page(index), word);
            return false;
        }
        self.frames.set_slot(frame, None);
        self.swapcache.leave();
        self.frames.end_live(frame);
        self.pages.release(out.page(index), Word::swapped(slot, word.folio()).with_locked(word.locked()));
        true
    }

    /// Stores one page. False where there is no room for it.
    fn write_page(&self, out: Out, index: usize, hash: u128, cx: &mut Context<S::Worker>) -> bool {
        let Some(slot) = self.slots.alloc(Order::Page, self.pause()) else { return false };
        let bytes: &Page = self.content(out, index, 1).try_into().expect("a frame is a page");
        let mut stored = self.store.put_page(slot, bytes, &mut cx.worker);
        if stored.is_err() && self.drop_stale(out, index) {
            // The copy of what the page held before made room.
            stored = self.store.put_page(slot, bytes, &mut cx.worker);
        }
        if stored.is_err() {
            self.slots.put(slot, self.pause(), |_holds_nothing| ());
            return false;
        }
        self.slots.set_hash(slot, hash);
        self.commit(out, index, slot, false);
        true
    }

    /// Stores a whole folio. False where there is no room for it as one.
    fn write_folio(&self, out: Out, start: usize, hashes: &[u128; BLOCK_PAGES], cx: &mut Context<S::Worker>) -> bool {
        let Some(slot) = self.slots.alloc(Order::Folio, self.pause()) else { return false };
        let bytes = self.content(out, start, FOLIO_PAGES);
        let folio: &Folio = bytes.try_into().expect("16 frames are a folio");
        if self.store.put_folio(slot, folio, &mut cx.worker).is_err() {
            (0..FOLIO_PAGES).for_each(|i| self.slots.put(slot.plus(i), self.pause(), |_holds_nothing| ()));
            return false;
        }
        for i in 0..FOLIO_PAGES {
            self.slots.set_hash(slot.plus(i), hashes[start + i]);
            self.commit(out, start + i, slot.plus(i), true);
        }
        self.machine.count(Event::FoliosOut, 1);
        true
    }

    /// Puts the slot that a changed page came from. Returns whether there was one.
    fn drop_stale(&self, out: Out, index: usize) -> bool {
        let Some(word) = self.claim_at(out, index) else { return false };
        let old = self.frames.take_slot(out.frame(index));
        self.leave_swapcache(old);
        self.pages.release(out.page(index), word);
        old.is_some()
    }

    /// The content of a frame is in `slot` now: the page becomes Swapped, unless it was touched meanwhile.
    fn commit(&self, out: Out, index: usize, slot: SlotId, folio: bool) {
        let claimed = self.claim_at(out, index).or_else(|| {
            let word = self.pages.get(out.page(index));
            let blindly = broken::is(Broken::CommitBlindly) && word.state() == State::Resident;
            (blindly && self.pages.claim(out.page(index), word)).then_some(word)
        });
        let Some(word) = claimed else {
            self.put_slot(slot);
            return;
        };
        let frame = out.frame(index);
        self.leave_swapcache(self.frames.take_slot(frame));
        self.frames.end_live(frame);
        self.pages.release(out.page(index), Word::swapped(slot, folio).with_locked(word.locked()));
    }

    /// Waits until nobody reads the batch's frames any more. False where pages are left in it.
    fn is_empty(&self, out: Out, refused: bool) -> bool {
        let mut spins = 0;
        loop {
            let live = self.frames.live(out.batch);
            if live.is_empty() {
                return true;
            }
            if refused {
                self.machine.count(Event::StoreFull, 1);
                return false;
            }
            if live.iter().any(|i| self.is_at(out, i)) {
                // Its touch failed and it went back to the batch: write it out with the next pass.
                return false;
            }
            // Pages that are being touched right now still read their frames.
            self.machine.pause(spins);
            spins += 1;
        }
    }

    /// Gives an empty batch back. False where the machine refuses: its memory still counts.
    fn release_batch(&self, batch: BatchNo) -> bool {
        if !self.machine.release(batch) && !broken::is(Broken::ReleaseForgotten) {
            return false;
        }
        self.frames.emptied(batch);
        self.frames.give_back(batch, self.pause());
        true
    }
}
