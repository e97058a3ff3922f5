//! Writing isolated pages out: each becomes Zero, or Swapped at the slot that still holds it, or is stored. Mechanism only.
//!
//! The store is given several folios at a time, and may take its time: a batch that is being written out can wait, and its pages
//! can be touched meanwhile.
use crate::broken::{self, Broken};
use crate::clean::{hash_page, is_zero};
use crate::frames::Part;
use crate::machine::{BatchNo, Event, Machine};
use crate::mask::Mask;
use crate::orders::Orders;
use crate::page::{DIRTIED_MAX, State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::reclaim::Reclaim;
use crate::store::{Folio, Store, Stored, WRITES_MAX, Write};
use crate::units::{BLOCK_PAGES, Order, PART_PAGES, SlotId};
use crate::writeback::{Given, Out, Sorted, Stage, Writeback};

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It is released; or not (false), where a store refused a page, or the machine the release: it is to be tried again.
    Done(bool),
    /// It has to wait: how long, in the terms of [`Machine::pause`].
    Wait(u32),
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Writes out the pages of a batch and releases it. Returns false, with the batch unreleased, where a store refused a page,
    /// or the machine the release: it is to be tried again.
    pub(crate) fn write_out(&self, batch: BatchNo, cx: &mut Context<S::Worker>) -> bool {
        let mut writeback = self.begin_writeback(batch, cx);
        loop {
            match self.writeback_step(&mut writeback, cx) {
                Progress::Done(released) => return released,
                Progress::Wait(spins) => self.machine.pause(spins),
            }
        }
    }

    /// Begins to write out a batch.
    pub(crate) fn begin_writeback(&self, batch: BatchNo, cx: &mut Context<S::Worker>) -> Writeback {
        let out = Out { batch, base: self.frames.block(batch).first_page() };
        let left = self.frames.end_watches(batch);
        if left > 0 {
            self.policy().watched(0, left);
        }
        self.sort(out, &mut cx.sorted);
        Writeback::new(out)
    }

    /// Goes on with a batch up to where it has to wait.
    pub(crate) fn writeback_step(&self, writeback: &mut Writeback, cx: &mut Context<S::Worker>) -> Progress {
        loop {
            let write = match writeback.stage {
                Stage::Give => {
                    self.gather(writeback, &cx.sorted, cx.lane);
                    if writeback.given_len == 0 {
                        (writeback.stage, writeback.waits) = (Stage::End, 0);
                        continue;
                    }
                    self.give(writeback, cx)
                }
                Stage::Write(ticket) => self.store.finish_write(ticket, &mut cx.worker),
                Stage::End => return self.end(writeback),
            };
            match write {
                Write::Done(stored) => {
                    self.written(writeback, stored, &mut cx.sorted);
                    writeback.stage = Stage::Give;
                }
                Write::Later(_) if broken::is(Broken::WriteNotAwaited) => {
                    let mut all = Stored::default();
                    (0..writeback.given_len).for_each(|i| all.insert(i));
                    self.written(writeback, all, &mut cx.sorted);
                    writeback.stage = Stage::Give;
                }
                Write::Later(ticket) => {
                    writeback.stage = Stage::Write(ticket);
                    writeback.waits += 1;
                    return Progress::Wait(writeback.waits);
                }
            }
        }
    }

    /// Chooses the next folios and gets slots for them, for a context of this lane.
    fn gather(&self, writeback: &mut Writeback, sorted: &Sorted, lane: usize) {
        writeback.given_len = 0;
        if self.is_passed_by(writeback, sorted) {
            writeback.at = BLOCK_PAGES;
        }
        if let Some(part) = self.frames.take_part(writeback.out.batch) {
            let goes_whole = |i: usize| sorted.leaving[i].is_some() && self.is_at(writeback.out, i);
            if writeback.at == 0 && (0..BLOCK_PAGES).all(goes_whole) {
                let whole = part.order;
                writeback.given[0] = Given { whole, ..Given::alone(0, Order::BLOCK, part.slot) };
                (writeback.given_len, writeback.at) = (1, BLOCK_PAGES);
                return;
            }
            self.put_part(part);
        }
        while writeback.at < BLOCK_PAGES && writeback.given_len < WRITES_MAX {
            let at = writeback.at;
            if sorted.leaving[at].is_none() || !self.is_at(writeback.out, at) {
                writeback.at += 1;
                continue;
            }
            let mut order = self.orders().goes(at, &sorted.leaving);
            if writeback.refused {
                // Where one page had no room, no folio has.
                order = Order::PAGE;
            } else if at < writeback.ladder.0 {
                order = order.min(writeback.ladder.1);
            }
            let all_leave = || sorted.leaving[at..at + order.pages()].iter().all(Option::is_some);
            assert!(order.fits_at(at) && all_leave(), "a folio goes whole");
            if let Some(slot) = self.slots.alloc(order, lane, self.pause()) {
                writeback.given[writeback.given_len] = Given::alone(at, order, slot);
                writeback.given_len += 1;
                writeback.at += order.pages();
            } else if writeback.given_len > 0 {
                // What is stored first may make some slots free.
                return;
            } else {
                self.refuse(writeback, at, order);
            }
        }
    }

    /// Puts slots that a batch had for all its pages, and that hold nothing.
    pub(crate) fn put_part(&self, part: Part) {
        let slots = if broken::is(Broken::PartKept) { 0 } else { BLOCK_PAGES };
        (0..slots).for_each(|i| self.slots.put(part.slot.plus(i), self.pause(), |_holds_nothing| ()));
    }

    /// Whether what is left of a batch is not given to the store, which has refused a page of it, or one before.
    fn is_passed_by(&self, writeback: &mut Writeback, sorted: &Sorted) -> bool {
        if broken::is(Broken::FullInsisted) {
            return false;
        }
        if writeback.at == 0 && !writeback.refused && sorted.leaving.iter().any(Option::is_some) {
            writeback.passed_by = self.full.passes(|| self.machine.now_ns());
        }
        writeback.passed_by || writeback.refused
    }

    /// Gives the store what was gathered.
    fn give(&self, writeback: &Writeback, cx: &mut Context<S::Worker>) -> Write {
        let mut folios = [Folio { first: SlotId(0), content: &[] }; WRITES_MAX];
        let given = &writeback.given[..writeback.given_len];
        for (folio, &Given { at, order, slot, .. }) in folios.iter_mut().zip(given) {
            *folio = Folio { first: slot, content: self.content(writeback.out, at as usize, order.pages()) };
        }
        self.store.write(&folios[..given.len()], &mut cx.worker)
    }

    /// Draws the conclusion from a write that is over.
    fn written(&self, writeback: &mut Writeback, stored: Stored, sorted: &mut Sorted) {
        let mut refused = None;
        for i in 0..writeback.given_len {
            let Given { at, order, whole, slot } = writeback.given[i];
            let at = at as usize;
            let pages = (at..at + order.pages()).zip((0..).map(|n| slot.plus(n)));
            if !stored.contains(i) {
                pages.for_each(|(_, slot)| self.slots.put(slot, self.pause(), |_holds_nothing| ()));
                refused = refused.or(Some((at, order)));
                continue;
            }
            for (i, slot) in pages {
                self.slots.set_hash(slot, sorted.hashes[i]);
                self.commit(writeback.out, i, slot, whole);
                sorted.leaving[i] = None;
            }
            self.full.took();
            if order > Order::PAGE {
                self.machine.count(Event::FoliosOut, 1);
            }
            if whole.is_large() {
                self.machine.count(Event::FolioBlocks, 1);
            }
        }
        let Some((at, order)) = refused else { return };
        // Who is refused one is refused the rest: they are tried again, from the first on.
        writeback.at = at;
        if order > Order::PAGE || !self.drop_stale(writeback.out, at) {
            self.refuse(writeback, at, order);
        }
    }

    /// There is no room for a folio: it is tried again in smaller ones, and from a page alone on nothing of its part is.
    fn refuse(&self, writeback: &mut Writeback, at: usize, order: Order) {
        if order > Order::PAGE && !broken::is(Broken::NoLadder) {
            self.machine.count(Event::FolioFallbacks, 1);
            let lower = self.orders().lower(order);
            assert!(lower < order, "what follows a refusal is a lower order");
            writeback.ladder = (at + order.pages(), lower);
        } else {
            writeback.refused = true;
            writeback.at = (at / PART_PAGES + 1) * PART_PAGES;
            self.full.refused(self.machine.now_ns());
        }
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
        // SAFETY: a frame that held a page keeps it until its batch is released, which only who writes it out does.
        unsafe { self.machine.frame(out.frame(index), pages) }
    }

    /// Looks at all pages of a batch, and is done with those that are zero or clean.
    fn sort(&self, out: Out, sorted: &mut Sorted) {
        let (mut zero, mut clean) = (0, 0);
        for i in 0..BLOCK_PAGES {
            sorted.leaving[i] = None;
            let word = self.pages.get(out.page(i));
            if !self.frames.is_live(out.frame(i)) || word.state() != State::Isolated || word.frame() != out.frame(i) {
                continue;
            }
            if let Some(slot) = self.frames.slot(out.frame(i)).filter(|_| self.protection.is_epoch_of(word))
                && self.becomes_clean(out, i, word, self.slots.hash(slot))
            {
                clean += 1;
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
            sorted.leaving[i] = Some(word.order());
        }
        if zero > 0 {
            self.machine.count(Event::PagesZero, zero);
        }
        if clean > 0 {
            self.machine.count(Event::PagesClean, clean);
        }
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
        self.take_from_swapcache(slot);
        self.frames.end_live(frame);
        // Not written this time, or written what it held.
        let dirtied = word.dirtied().saturating_sub(1);
        let gone =
            Word::swapped(slot, word.order()).with_locked(word.locked()).with_past_of(word).with_dirtied(dirtied);
        self.pages.release(out.page(index), gone.with_stamp(self.workingset.evict()));
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
    fn commit(&self, out: Out, index: usize, slot: SlotId, order: Order) {
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
        let stale = self.frames.take_slot(frame);
        // Where it came from a slot, it was written since.
        let dirtied = if stale.is_some() { DIRTIED_MAX } else { word.dirtied() };
        self.leave_swapcache(stale);
        self.frames.end_live(frame);
        self.owners.set(slot, out.page(index));
        let gone = Word::swapped(slot, order).with_locked(word.locked()).with_past_of(word).with_dirtied(dirtied);
        self.pages.release(out.page(index), gone.with_stamp(self.workingset.evict()));
    }

    /// Ends a batch when nobody reads its frames any more. Not where pages are left in it.
    fn end(&self, writeback: &mut Writeback) -> Progress {
        let out = writeback.out;
        let live = self.frames.live(out.batch);
        if live.is_empty() {
            if writeback.keeps_frames {
                if broken::is(Broken::KeptUncounted) {
                    self.frames.emptied(out.batch);
                }
                self.frames.keep(out.batch, self.pause());
                return Progress::Done(true);
            }
            return Progress::Done(self.release_batch(out.batch));
        }
        if writeback.refused || writeback.passed_by {
            self.machine.count(if writeback.refused { Event::StoreFull } else { Event::StorePassedBy }, 1);
            return Progress::Done(false);
        }
        if live.iter().any(|i| self.is_at(out, i)) {
            // Its touch failed and it went back to the batch: write it out with the next pass.
            return Progress::Done(false);
        }
        // Pages that are being touched right now still read their frames.
        writeback.waits += 1;
        Progress::Wait(writeback.waits - 1)
    }

    /// Releases a batch that was written out and kept. Returns how many frames that freed; `None` where no batch is kept, or the
    /// machine refuses.
    pub fn release_kept(&self) -> Option<usize> {
        let batch = self.frames.pop_kept(self.pause())?;
        let pages = self.frames.filled_pages(batch);
        if !self.release_batch(batch) {
            self.frames.make_inactive(batch, self.pause());
            return None;
        }
        Some(pages)
    }

    /// Which frames of a batch another process has as well: those that were full at a fork.
    pub(crate) fn shared_frames(&self, batch: BatchNo) -> Mask {
        if self.copies.is_shared() { self.machine.shared_frames(batch) } else { Mask::EMPTY }
    }

    /// Gives an empty batch back. False where the machine refuses: its memory still counts.
    fn release_batch(&self, batch: BatchNo) -> bool {
        let shared = self.shared_frames(batch);
        if !self.machine.release(batch) && !broken::is(Broken::ReleaseForgotten) {
            return false;
        }
        self.copies.left(shared.count() as u64);
        self.frames.emptied(batch);
        self.frames.give_back(batch, self.pause());
        true
    }
}
