//! Swapping in: a hit takes a page back from its frame, a miss or a bypass reads it from the store.
//!
//! Kairui Song, "mm/swap, shmem: use new swapin helper to skip readahead conditionally", 2024, gives the three their names. A
//! bypass comes straight from a store that is synchronous, with neighbours that cost little. A miss comes alone, and others are
//! read ahead of later faults ([`crate::swapahead`]).
use crate::bring::{Fault, Next, Target, Way};
use crate::broken::{self, Broken};
use crate::clean::hash_page;
use crate::machine::{BatchNo, Event, Machine};
use crate::mask::Mask;
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::readahead::Readahead;
use crate::reclaim::{Along, Reclaim, Returned};
use crate::store::{Read, Store, StoreError, Ticket};
use crate::swapahead::runs_of;
use crate::units::{Order, PAGE_BYTES, PageNo, SlotId};

/// Runs of neighbours up to which a batch's pages come back together. Pages that are scattered over their block were not used
/// together, and to take them again costs several times as much.
const DENSE_RUNS: usize = 8;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// A touch of an isolated page: it goes back from its frame to the program, and what waits with it where reclaim's policy says so.
    pub(crate) fn hit(&self, target: &Target, cx: &mut Context<S::Worker>) -> Next {
        let Target { page, seen, .. } = *target;
        if seen.is_ahead() {
            return self.hit_ahead(target);
        }
        if !self.pages.claim(page, seen) {
            return Next::Again;
        }
        let frame = seen.frame();
        let batch = self.frames.batch_of(frame);
        if self.frames.end_watch(frame) {
            self.policy().watched(1, 0);
        }
        let along = if broken::is(Broken::HitsAlone) { Along::Nothing } else { self.policy().hit(page.block()) };
        let is_dense = along != Along::Nothing && self.frames.live(batch).runs().nth(DENSE_RUNS).is_none();
        if along == Along::Watched && is_dense && !broken::is(Broken::ProbesUnseen) {
            self.frames.watch(frame);
        }
        let all = along == Along::All && is_dense;
        // Not while it is written out: who does so reads its frames.
        if (all || self.machine.moves_back()) && self.frames.hold(batch) {
            let others = if all { self.frames.live(batch) - Mask::single(page.index_in_block()) } else { Mask::EMPTY };
            let back = self.put_back(page, seen, batch, others, cx);
            self.frames.let_go(batch);
            if back > 0 {
                self.add_block(page.block());
                self.machine.count(Event::FaultHit, 1);
                self.machine.count(Event::PagesPutBack, back as u64 - 1);
                return Next::There(1);
            }
        }
        match self.hit_alone(page, seen, self.policy().touched(seen)) {
            Ok(()) => Next::There(1),
            Err(next) => next,
        }
    }

    /// Gives back what can be of a batch that is in hand: the page that was touched, which is owned, and these others that lie in it.
    /// Returns how many pages; none where the touched one is not among them, which is owned still then.
    fn put_back(
        &self,
        touched: PageNo,
        seen: Word,
        batch: BatchNo,
        others: Mask,
        cx: &mut Context<S::Worker>,
    ) -> usize {
        let first = touched.block().first_page();
        let mut owned = Mask::single(touched.index_in_block());
        cx.saved[touched.index_in_block()] = seen;
        for i in others.iter() {
            let (page, word) = (first.plus(i), self.pages.get(first.plus(i)));
            let is_there = word.state() == State::Isolated && word.frame() == batch.frame(i);
            if is_there && self.pages.claim(page, word) {
                cx.saved[i] = word;
                owned.insert(i);
            }
        }
        let shared = self.shared_frames(batch);
        let back = self.machine.put_back(first, batch, owned, self.frames.held(batch));
        self.copies.left((back & shared).count() as u64);
        assert!((back - owned).is_empty(), "the machine gives back what it was asked for");
        self.frames.moved_out(batch, back, self.pause());
        if !back.is_empty()
            && let Some(part) = self.frames.take_part(batch)
        {
            // It does not go whole.
            self.put_part(part);
        }
        // The machine may not have been able to free them.
        self.frames.taint(batch, back);
        self.add_resident(back.count() as i64);
        for i in owned.iter() {
            let (page, old) = (first.plus(i), cx.saved[i]);
            if back.contains(i) {
                let slot = self.unless_locked(old, self.frames.take_slot(batch.frame(i)));
                let referenced = if page == touched { self.policy().touched(old) } else { old.referenced() };
                let word = Word::resident(slot, old.order()).with_referenced(referenced).with_locked(old.locked());
                let may_be_protected = self.machine.moves_back() && !broken::is(Broken::MovedWritable);
                let protected = if may_be_protected { old.with_doubt().protected() } else { 0 };
                self.pages.release(page, word.with_past_of(old).with_protected(protected));
            } else if page != touched {
                self.pages.release(page, old);
            }
        }
        if back.contains(touched.index_in_block()) {
            return back.count();
        }
        if !back.is_empty() {
            self.add_block(touched.block());
        }
        0
    }

    /// Brings a swapped page in, with those of the target's range that are swapped too.
    pub(crate) fn swap_in(&self, target: &mut Target, cx: &mut Context<S::Worker>) -> Next {
        let way = target.way;
        // What is slow is not to be waited for with what is not.
        let comes = |slot: SlotId| way != Way::Bypass || self.store.is_synchronous(slot);
        let swapped = |w: Word| w.state() == State::Swapped && w.slot().is_some_and(comes);
        let Some(claimed) = self.claim_run(target.page, target.seen, target.range, &mut cx.saved, swapped) else {
            return Next::Again;
        };
        target.claimed = claimed;
        if way == Way::Miss {
            self.ask_after_miss(target.page, target.seen);
            target.way = Way::MissAsked;
        }
        if target.way == Way::MissAsked {
            let is_slow = target.seen.slot().is_some_and(|slot| !self.store.is_synchronous(slot));
            target.asked_ns = if is_slow { self.machine.now_ns() } else { 0 };
        }
        let (runs, len) = runs_of(&cx.saved[..claimed.1]);
        let read = self.store.read(&runs[..len], &mut cx.buffer[..claimed.1 * PAGE_BYTES], &mut cx.worker);
        self.swapped_in(target, read, cx)
    }

    /// Goes on with a read.
    pub(crate) fn finish_swap_in(&self, target: &mut Target, ticket: Ticket, cx: &mut Context<S::Worker>) -> Next {
        let out = &mut cx.buffer[..target.claimed.1 * PAGE_BYTES];
        let read = self.store.finish_read(ticket, out, &mut cx.worker);
        self.swapped_in(target, read, cx)
    }

    fn swapped_in(&self, target: &mut Target, read: Result<Read, StoreError>, cx: &mut Context<S::Worker>) -> Next {
        let (first, count) = target.claimed;
        let verified = match read {
            Ok(Read::Later(ticket)) => return Next::Reading(ticket),
            Ok(Read::Done) => self.verify(count, cx),
            Err(error) => Err(error),
        };
        let Err(error) = verified else {
            if target.way == Way::MissAsked && target.asked_ns > 0 {
                self.readahead().waited(self.machine.now_ns().saturating_sub(target.asked_ns));
            }
            return self.install(target, cx);
        };
        (0..count).for_each(|i| self.pages.release(first.plus(i), cx.saved[i]));
        if count > 1 {
            // A neighbour that cannot be read must not hurt the page that is wanted.
            return Next::Alone;
        }
        let (event, end) = match error {
            StoreError::Corrupt => (Event::Corruptions, Fault::Corrupt),
            StoreError::Io | StoreError::Full => (Event::StoreErrors, Fault::Unreadable),
        };
        self.machine.count(event, 1);
        Next::Failed(end)
    }

    /// Compares what was read with the hashes of what was stored.
    fn verify(&self, count: usize, cx: &Context<S::Worker>) -> Result<(), StoreError> {
        if broken::is(Broken::Unverified) {
            return Ok(());
        }
        let pages = cx.buffer[..count * PAGE_BYTES].chunks_exact(PAGE_BYTES);
        for (content, word) in pages.zip(&cx.saved) {
            let slot = word.slot().expect("a swapped page has a slot");
            if hash_page(content, self.seed) != self.slots.hash(slot) {
                return Err(StoreError::Corrupt);
            }
        }
        Ok(())
    }

    /// Gives the program the pages that were claimed, whose content is in the buffer.
    fn install(&self, target: &Target, cx: &mut Context<S::Worker>) -> Next {
        let Target { page, access, claimed: (first, count), .. } = *target;
        // What comes back to memory is to leave room in a store that has none.
        let keeps_slots = !self.full.is_full();
        let mut epoch = self.protection_of(&cx.saved[..count], access);
        let slots = || cx.saved[..count].iter().filter_map(|word| word.slot());
        let could_keep = || self.swapcache.has_room(count) || !slots().any(|slot| self.is_scarce(slot));
        if epoch != 0 && !(keeps_slots && could_keep()) {
            // Without their slots nothing would be known of them.
            epoch = 0;
        }
        let (done, error) = self.machine.put(first, &cx.buffer[..count * PAGE_BYTES], epoch != 0);
        if epoch != 0 {
            self.protection.protected(done as u32);
        }
        let order = self.orders().came(first, done);
        let returned = match done {
            0 => Returned::default(),
            _ => {
                let distance_pages = self.workingset.refault(target.seen.stamp());
                self.policy().refaulted(target.seen, distance_pages, self.limit_pages())
            }
        };
        // What keeps its slot is part of the folio that is stored there, as long as that comes by whole parts.
        let stored = |old: Word| if order == Order::PART { order.max(old.order()) } else { order };
        for (i, &old) in cx.saved[..count].iter().enumerate() {
            let page = first.plus(i);
            let slot = old.slot().expect("a swapped page has a slot");
            let Returned { referenced, heat } =
                if page == target.page { returned } else { Returned { referenced: 0, heat: old.heat() } };
            if i >= done {
                self.pages.release(page, old);
            } else if old.locked() {
                self.pages.release(page, Word::resident(None, order).with_locked(true));
                self.wipe_slot(slot);
            } else if keeps_slots && self.enter_swapcache(slot) {
                let word = Word::resident(Some(slot), stored(old)).with_dirtied(old.dirtied()).with_protected(epoch);
                self.pages.release(page, word.with_referenced(referenced).with_heat(heat));
            } else {
                // Others were faster: it came in protected all the same.
                let word = Word::resident(None, order).with_dirtied(old.dirtied()).with_protected(epoch);
                self.pages.release(page, word.with_doubt().with_referenced(referenced).with_heat(heat));
                self.put_slot(slot);
            }
        }
        self.add_resident(done as i64);
        if done > 0 {
            self.came_back(first.block(), done, keeps_slots);
        }
        if first.0 + (done as u32) <= page.0 {
            return self.put_failed(error);
        }
        if order > Order::PAGE {
            self.machine.count(Event::FoliosIn, 1);
        }
        Next::There(count)
    }
}
