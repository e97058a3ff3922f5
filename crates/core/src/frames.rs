//! Frames: real memory outside of the program's reach, in batches of one block's pages, in which isolated pages lie until they
//! are touched or written out.
//!
//! A frame belongs to its batch until the batch is released. A batch belongs to the free list, to the thread that fills it, writes
//! it out or gives its pages back, to the inactive list, or to those that are kept: nobody needs what their frames hold, and they
//! are released by a thread for which that costs less than for the one that wrote them out.
use crate::lock::SpinLock;
use crate::machine::BatchNo;
use crate::mask::Mask;
use crate::ring::Ring;
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{BLOCK_PAGES, BlockNo, FrameNo, Order, SlotId};

#[repr(C)]
struct Batch {
    block: AtomicU32,
    /// 1 while it is on the inactive list and no thread has it in hand.
    waits: AtomicU32,
    /// Frames that hold a page, or did; they count in the budget.
    filled: AtomicU64,
    /// Frames that may hold copies of pages that stayed where they were.
    stale: AtomicU64,
    /// Frames that still hold the only copy in memory of an isolated page.
    live: AtomicU64,
    /// Frames of which it is to be told whether their pages are touched before they leave ([`crate::reclaim::Along::Watched`]).
    watched: AtomicU64,
    /// A [`Part`]: its slot, plus 1, and above it the order; 0 for none. Changed by who has the batch in hand.
    part: AtomicU64,
    /// Slot that may still hold a frame's content, plus 1; 0 for none. Changed by the owner of the page.
    slots: [AtomicU32; BLOCK_PAGES],
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Batch {}

/// Slots for all pages of a batch: its part of those of a folio larger than a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first.
    pub slot: SlotId,
    /// The order of the folio.
    pub order: Order,
}

struct Lists {
    free: Ring,
    /// How many of all were never used: the last ones. They are in no list, so that none needs to be written at start.
    fresh: usize,
    /// Batches waiting for write-out, oldest first: the inactive list.
    inactive: Ring,
    inactive_pages: usize,
    /// How many of those were there when it was marked: the oldest ones.
    marked: usize,
    /// Batches that are written out and not released.
    kept: Ring,
}

impl Lists {
    fn free_batches(&self) -> usize {
        self.free.len() + self.fresh
    }

    /// Takes a free batch of so many in all.
    fn take_free(&mut self, all: usize) -> Option<u32> {
        self.free.pop_newest().or_else(|| {
            let next = all - self.fresh;
            self.fresh = self.fresh.checked_sub(1)?;
            Some(next as u32)
        })
    }
}

/// All batches.
pub struct Frames {
    batches: Table<Batch>,
    lists: SpinLock<Lists>,
    isolated: AtomicI64,
    /// See [`Frames::mark_inactive`].
    extra_pages: AtomicUsize,
}

impl BatchNo {
    /// The batch's frame for the `index`th page of its block.
    pub fn frame(self, index: usize) -> FrameNo {
        FrameNo(self.0 * BLOCK_PAGES as u32 + index as u32)
    }
}

impl FrameNo {
    /// The frame's batch, and its place in it.
    fn split(self) -> (BatchNo, usize) {
        (BatchNo(self.0 / BLOCK_PAGES as u32), self.0 as usize % BLOCK_PAGES)
    }
}

impl Frames {
    /// Reserves `count` batches, all free. `None` where there is no memory.
    pub fn new(from: &impl Reserve, count: usize) -> Option<Frames> {
        let [free, inactive, kept] = [Ring::new(from, count)?, Ring::new(from, count)?, Ring::new(from, count)?];
        let lists = Lists { free, fresh: count, inactive, inactive_pages: 0, marked: 0, kept };
        let (lists, isolated, extra_pages) = (SpinLock::new(lists), AtomicI64::new(0), AtomicUsize::new(0));
        Some(Frames { batches: Table::new(from, count)?, lists, isolated, extra_pages })
    }

    fn batch(&self, number: BatchNo) -> &Batch {
        &self.batches[number.0 as usize]
    }

    /// All batches.
    pub fn batches(&self) -> usize {
        self.batches.len()
    }
    /// Frames in use.
    pub fn isolated_pages(&self) -> u64 {
        self.isolated.load(Relaxed).max(0) as u64
    }

    // ------------------------------------------------------------------ lists

    /// Takes a free batch for a block: the one that was given back last, whose tables are warm, so that few are ever touched.
    pub fn take_free(&self, block: BlockNo, pause: impl Fn(u32)) -> Option<BatchNo> {
        let number = BatchNo(self.lists.lock(pause).take_free(self.batches.len())?);
        let batch = self.batch(number);
        batch.block.store(block.0, Relaxed);
        batch.watched.store(0, Relaxed);
        Some(number)
    }
    /// Gives a batch back that holds nothing.
    ///
    /// # Panics
    /// Where it still has slots, which would be nobody's.
    pub fn give_back(&self, number: BatchNo, pause: impl Fn(u32)) {
        assert!(self.part(number).is_none(), "a batch that is free has no slots");
        self.lists.lock(pause).free.push(number.0);
    }
    /// Whether a batch is free.
    pub fn has_free(&self, pause: impl Fn(u32)) -> bool {
        self.lists.lock(pause).free_batches() > 0
    }
    /// Puts a batch on the inactive list.
    pub fn make_inactive(&self, number: BatchNo, pause: impl Fn(u32)) {
        let mut lists = self.lists.lock(pause);
        lists.inactive.push(number.0);
        lists.inactive_pages += self.filled_pages(number);
        self.batch(number).waits.store(1, Release);
    }
    /// Takes the oldest batch of the inactive list that no thread has in hand.
    pub fn pop_inactive(&self, pause: impl Fn(u32)) -> Option<BatchNo> {
        self.pop(&mut self.lists.lock(pause))
    }
    /// The same, of those that were on the list when it was marked.
    pub fn pop_marked(&self, pause: impl Fn(u32)) -> Option<BatchNo> {
        let mut lists = self.lists.lock(pause);
        if lists.marked > 0 { self.pop(&mut lists) } else { None }
    }
    /// Marks what is on the inactive list. So many pages wait there beyond their share, until as many of those
    /// that are on it now have left it, or it is marked anew.
    pub fn mark_inactive(&self, extra_pages: usize, pause: impl Fn(u32)) {
        let mut lists = self.lists.lock(pause);
        lists.marked = lists.inactive.len();
        self.extra_pages.store(extra_pages, Relaxed);
    }
    /// How many pages wait beyond their share.
    pub fn extra_pages(&self) -> usize {
        self.extra_pages.load(Relaxed)
    }
    fn pop(&self, lists: &mut Lists) -> Option<BatchNo> {
        for _ in 0..lists.inactive.len() {
            let number = BatchNo(lists.inactive.pop()?);
            if self.hold(number) {
                let is_marked = lists.marked > 0;
                self.has_left(lists, number, is_marked);
                return Some(number);
            }
            lists.inactive.push(number.0);
        }
        None
    }
    /// A batch in hand is off the inactive list, on which it was when that was marked, perhaps.
    fn has_left(&self, lists: &mut Lists, number: BatchNo, is_marked: bool) {
        let pages = self.filled_pages(number);
        lists.inactive_pages -= pages;
        if is_marked {
            lists.marked -= 1;
            let extra_pages = self.extra_pages.load(Relaxed).saturating_sub(pages.max(1));
            self.extra_pages.store(extra_pages, Relaxed);
        }
    }
    /// Takes this batch of the inactive list, wherever it is there. False where another thread has it in hand, or it is not on the list, or is another
    /// block's by now.
    pub fn take_inactive(&self, number: BatchNo, block: BlockNo, pause: impl Fn(u32)) -> bool {
        if !self.hold(number) {
            return false;
        }
        if self.block(number) != block {
            self.let_go(number);
            return false;
        }
        let mut lists = self.lists.lock(pause);
        let marked = lists.marked;
        for at in 0..lists.inactive.len() {
            match lists.inactive.pop() {
                Some(waiting) if waiting == number.0 => self.has_left(&mut lists, number, at < marked),
                Some(waiting) => lists.inactive.push(waiting),
                None => {}
            }
        }
        true
    }
    /// Takes a batch of the inactive list in hand, where it stays. False where another thread has it, or it is not on the list.
    pub fn hold(&self, number: BatchNo) -> bool {
        self.batch(number).waits.compare_exchange(1, 0, Acquire, Relaxed).is_ok()
    }
    /// Ends a [`Frames::hold`].
    pub fn let_go(&self, number: BatchNo) {
        self.batch(number).waits.store(1, Release);
    }
    /// Frames of a batch in hand, on the inactive list, have become empty.
    pub fn moved_out(&self, number: BatchNo, frames: Mask, pause: impl Fn(u32)) {
        let batch = self.batch(number);
        let mut lists = self.lists.lock(pause);
        batch.live.fetch_and(!frames.first_word(), SeqCst);
        batch.filled.fetch_and(!frames.first_word(), Relaxed);
        lists.inactive_pages -= frames.count();
        self.isolated.fetch_sub(frames.count() as i64, Relaxed);
    }
    /// Keeps a batch that is written out. Its frames count in the budget still.
    pub fn keep(&self, number: BatchNo, pause: impl Fn(u32)) {
        self.lists.lock(pause).kept.push(number.0);
    }
    /// Takes the batch that was kept last.
    pub fn pop_kept(&self, pause: impl Fn(u32)) -> Option<BatchNo> {
        self.lists.lock(pause).kept.pop_newest().map(BatchNo)
    }
    /// Frames, and batches, of the inactive list.
    pub fn inactive(&self, pause: impl Fn(u32)) -> (usize, usize) {
        let lists = self.lists.lock(pause);
        (lists.inactive_pages, lists.inactive.len())
    }
    /// Batches that some thread is filling, writing out or releasing.
    pub fn at_work(&self, pause: impl Fn(u32)) -> usize {
        let lists = self.lists.lock(pause);
        self.batches.len() - lists.free_batches() - lists.inactive.len() - lists.kept.len()
    }

    /// The pages of a batch that wait are watched, but not that of the caller's frame, which is live.
    pub fn watch(&self, frame: FrameNo) {
        let (number, index) = frame.split();
        let batch = self.batch(number);
        batch.watched.fetch_or(batch.live.load(Relaxed) & !(1 << index), Relaxed);
    }
    /// Ends that for a frame. Says whether it was watched.
    pub fn end_watch(&self, frame: FrameNo) -> bool {
        let (number, index) = frame.split();
        let watched = &self.batch(number).watched;
        watched.load(Relaxed) >> index & 1 != 0 && watched.fetch_and(!(1 << index), Relaxed) >> index & 1 != 0
    }
    /// Ends it for a batch. Says how many pages of it were watched to the end.
    pub fn end_watches(&self, number: BatchNo) -> u32 {
        let batch = self.batch(number);
        match batch.watched.load(Relaxed) {
            0 => 0,
            _ => (batch.watched.swap(0, Relaxed) & batch.live.load(Relaxed)).count_ones(),
        }
    }

    // ---------------------------------------------------------------- batches

    /// The block whose pages a batch holds.
    pub fn block(&self, number: BatchNo) -> BlockNo {
        BlockNo(self.batch(number).block.load(Relaxed))
    }
    /// Frames of a batch that count in the budget.
    pub fn filled_pages(&self, number: BatchNo) -> usize {
        self.batch(number).filled.load(Relaxed).count_ones() as usize
    }
    /// Frames of a batch that may hold anything.
    pub fn held(&self, number: BatchNo) -> Mask {
        let batch = self.batch(number);
        Mask::of_word(batch.filled.load(Relaxed) | batch.stale.load(Relaxed))
    }
    /// These frames may hold copies of pages that stayed where they were.
    pub fn taint(&self, number: BatchNo, frames: Mask) {
        self.batch(number).stale.fetch_or(frames.first_word(), Relaxed);
    }
    /// Pages came into these frames.
    pub fn fill(&self, number: BatchNo, frames: Mask) {
        let batch = self.batch(number);
        batch.filled.fetch_or(frames.first_word(), Relaxed);
        batch.live.fetch_or(frames.first_word(), SeqCst);
        self.isolated.fetch_add(frames.count() as i64, Relaxed);
    }
    /// A frame that was to be filled was not: it holds nothing.
    pub fn unfill(&self, frame: FrameNo) {
        let (number, index) = frame.split();
        self.batch(number).filled.fetch_and(!(1 << index), Relaxed);
        self.isolated.fetch_sub(1, Relaxed);
        // Last: as long as it is live, its batch is not released.
        self.end_live(frame);
    }
    /// Frames of a batch that hold the only copy in memory of a page.
    pub fn live(&self, number: BatchNo) -> Mask {
        Mask::of_word(self.batch(number).live.load(SeqCst))
    }
    /// The machine has freed all frames of a batch.
    pub fn emptied(&self, number: BatchNo) {
        self.batch(number).stale.store(0, Relaxed);
        let filled = self.batch(number).filled.swap(0, Relaxed).count_ones();
        self.isolated.fetch_sub(i64::from(filled), Relaxed);
    }

    /// Slots that a batch in hand has for all its pages.
    fn part(&self, number: BatchNo) -> Option<Part> {
        let word = self.batch(number).part.load(Relaxed);
        let slot = (word as u32).checked_sub(1).map(SlotId)?;
        Some(Part { slot, order: Order::new((word >> 32) as usize) })
    }
    /// Gives them to it.
    pub fn set_part(&self, number: BatchNo, part: Part) {
        let word = (part.order.get() as u64) << 32 | u64::from(part.slot.0 + 1);
        self.batch(number).part.store(word, Relaxed);
    }
    /// Takes them away from it.
    pub fn take_part(&self, number: BatchNo) -> Option<Part> {
        let part = self.part(number)?;
        self.batch(number).part.store(0, Relaxed);
        Some(part)
    }
    /// Slots that batches have which do not hold anything yet. No other thread may be at work.
    pub fn part_slots(&self) -> usize {
        let with_part = |&number: &u32| self.part(BatchNo(number)).is_some();
        (0..self.batches.len() as u32).filter(with_part).count() * BLOCK_PAGES
    }

    // ----------------------------------------------------------------- frames

    /// A frame's page is elsewhere now: it need not be kept any longer.
    pub fn end_live(&self, frame: FrameNo) {
        let (number, index) = frame.split();
        self.batch(number).live.fetch_and(!(1 << index), SeqCst);
    }
    /// Whether a frame holds the only copy in memory of its page.
    pub fn is_live(&self, frame: FrameNo) -> bool {
        let (number, index) = frame.split();
        self.live(number).contains(index)
    }
    /// The batch of a frame.
    pub fn batch_of(&self, frame: FrameNo) -> BatchNo {
        frame.split().0
    }
    /// The block whose pages the frame's batch holds.
    pub fn block_of(&self, frame: FrameNo) -> BlockNo {
        self.block(frame.split().0)
    }
    /// The slot that may still hold a frame's content.
    pub fn slot(&self, frame: FrameNo) -> Option<SlotId> {
        let (number, index) = frame.split();
        self.batch(number).slots[index].load(Relaxed).checked_sub(1).map(SlotId)
    }
    /// Sets the slot that may still hold a frame's content.
    pub fn set_slot(&self, frame: FrameNo, slot: Option<SlotId>) {
        let (number, index) = frame.split();
        self.batch(number).slots[index].store(slot.map_or(0, |slot| slot.0 + 1), Relaxed);
    }
    /// Takes that slot away from a frame.
    pub fn take_slot(&self, frame: FrameNo) -> Option<SlotId> {
        let (number, index) = frame.split();
        self.batch(number).slots[index].swap(0, Relaxed).checked_sub(1).map(SlotId)
    }

    /// Checks that the books agree: `live` frames, each one's batch.
    ///
    /// # Panics
    /// Where they do not. No other thread may be at work.
    pub fn check(&self, live: u64) {
        let sum = |f: fn(&Batch) -> u64| self.batches.iter().map(f).sum::<u64>();
        assert_eq!(sum(|b| b.live.load(SeqCst).count_ones() as u64), live, "live frames");
        assert_eq!(sum(|b| b.filled.load(SeqCst).count_ones() as u64), self.isolated_pages(), "isolated frames");
    }
}
