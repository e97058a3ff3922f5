//! The state machine: faults, reclaim, and the memory calls, over a machine and a store.
use crate::lock::{Guard, SpinLock};
use crate::machine::{BatchNo, Event, Machine, Prot, PutError};
use crate::page::{State, Word};
use crate::pins::{Pins, mask_of};
use crate::ring::Ring;
use crate::slots::{Order, Slots, hash_page};
use crate::store::{Folio, Page, Store, StoreError};
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering::*, fence};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{BLOCK_PAGES, BlockNo, FOLIO_PAGES, FrameNo, PAGE_BYTES, PageNo, SlotId};
use crate::vma::{Map, Vma};

/// Sizes and switches, fixed at start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Pages of the managed range; a multiple of [`BLOCK_PAGES`].
    pub pages: u32,
    /// Slots in all.
    pub slots: usize,
    /// Batches.
    pub batches: usize,
    /// Pin slots.
    pub pins: usize,
    /// Most mappings.
    pub mappings: usize,
    /// Seed of the content hashes.
    pub seed: u64,
    /// Whether sequential accesses are served by whole folios.
    pub folios: bool,
}

/// How a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The page is there (or was already): run the instruction again.
    Done,
    /// No managed page: not ours.
    NotMapped,
    /// The store gave something else than what was stored. The page stays in the store; the program must not go on.
    Corrupt,
    /// The store cannot be read.
    Unreadable,
    /// No memory for the page.
    NoMemory,
}

/// What one step of reclaim achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many frames were freed.
    Freed(usize),
    /// Pages moved to the swap cache.
    Isolated,
    /// Nothing can be evicted now.
    Nothing,
    /// The stores have no room.
    StoreFull,
}

/// What became of an attempt to take a block.
enum Isolated {
    /// Pages of it lie in this batch.
    Batch(BatchNo),
    /// It has nothing that may be taken now.
    Nothing,
    /// The machine refused all that was asked for.
    Refused,
    /// No batch is free.
    NoWindow,
}

/// Scratch memory of one thread at work in the pager.
#[repr(C, align(4096))]
pub struct Context<W> {
    buffer: Folio,
    saved: [Word; BLOCK_PAGES],
    /// The store's scratch.
    pub worker: W,
}

impl<W> Context<W> {
    /// A context around a store's worker.
    pub fn new(worker: W) -> Context<W> {
        Context { buffer: [0; PAGE_BYTES * FOLIO_PAGES], saved: [Word::UNTOUCHED; BLOCK_PAGES], worker }
    }
}

/// What is remembered of a block.
#[repr(C)]
struct Block {
    /// 1 while the block waits in the reclaim queue.
    queued: AtomicU32,
    /// Stream detector: where the next access of a stream would be (low byte), length of the run so far.
    stream: AtomicU32,
    /// Visits of reclaim that still pass the block by, because the machine refused to take its pages (low half), and how many
    /// they were at first.
    rest: AtomicU32,
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Block {}

/// A batch.
#[repr(C)]
struct Batch {
    block: AtomicU32,
    /// Frames taken into this batch that count in the budget until it is released.
    frames: AtomicU32,
    /// Frames that still hold the only copy in memory of a cached page.
    live: AtomicU64,
    /// Slot that may still hold a frame's content, plus 1; 0 for none.
    retained: [AtomicU32; BLOCK_PAGES],
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Batch {}

struct Batches {
    free: Ring,
    /// Batches waiting for write-out, oldest first: the inactive list.
    inactive: Ring,
    inactive_frames: usize,
}

/// Runs of sequential faults from which neighbours are brought in too, and how many pages then.
const STREAM_SHORT: u32 = 1;
const STREAM_LONG: u32 = 2;
const STREAM_SHORT_PAGES: usize = 4;
/// Faults in sequence after which one fault brings in the rest of its block, and the least limit for that: what comes in must
/// still be there when the stream reaches it.
const STREAM_AHEAD: u32 = 8;
const STREAM_AHEAD_LIMIT_PAGES: u64 = 16 * BLOCK_PAGES as u64;
/// Streams that can be followed across the border of a block at the same time.
const LEFT_BLOCKS: usize = 16;
/// The share of the budget that the swap cache holds before its oldest pages are written out: 1/8, enough that a page in
/// use is touched again before it goes, small against what it costs in resident pages.
const INACTIVE_SHARE: usize = 8;
/// Steps of reclaim without success after which the limit is exceeded: alone, and while other threads are at it.
const IDLE_STEPS: u32 = 4;
const IDLE_STEPS_WITH_WORK: u32 = 40;
/// Pages that come in without an attempt to make room after one that failed.
const REST_PAGES: u32 = 16;
/// Visits of reclaim that pass a block by after the machine refused all that was wanted of it: at first, and at most. Each
/// refusal on end makes them four times as many.
const REST_VISITS: u32 = 8;
const REST_VISITS_MAX: u32 = 512;
/// Blocks that the machine may refuse in one step of reclaim: among those that are not resting, and, where nothing else is
/// left, among those that are.
const REFUSALS_MAX: u32 = 32;
const REFUSALS_RESTING_MAX: u32 = 4;
/// The visits in [`Block::rest`].
const REST: u32 = 0xffff;
/// Refusals of the machine after which a page is not moved; from half of them on it is evicted first.
const MOVE_TRIES: u32 = 64;
/// Attempts to bring in a page that is mapped but that the machine says is not.
const GONE_TRIES: u32 = 1000;
/// Pages of one region bit: 2 MiB.
const REGION_PAGES: u32 = 512;

/// The pager.
pub struct Pager<M, S> {
    /// The machine.
    pub machine: M,
    /// The store.
    pub store: S,
    /// Ranges in use by system calls.
    pub pins: Pins,
    words: Table<AtomicU64>,
    blocks: Table<Block>,
    regions: Table<AtomicU64>,
    queue: SpinLock<Ring>,
    slots: Slots,
    batches: Table<Batch>,
    batch_lists: SpinLock<Batches>,
    map: SpinLock<Map>,
    /// Held through a whole memory call (mmap, munmap, ...), which may wait for pages.
    call: SpinLock<()>,
    resident: AtomicI64,
    isolated: AtomicI64,
    retained: AtomicI64,
    used_regions: AtomicU64,
    swapcache_max: AtomicI64,
    limit: AtomicU64,
    /// Pages that are still to come in before room is made again.
    rest: AtomicU32,
    /// Blocks that the latest streams are about to enter.
    left_block: [AtomicU32; LEFT_BLOCKS],
    config: Config,
}

impl<M: Machine, S: Store> Pager<M, S> {
    /// Reserves all tables. `None` where the address space has no room for them.
    pub fn new(machine: M, store: S, from: &impl Reserve, config: Config) -> Option<Self> {
        assert!(machine.grain() <= FOLIO_PAGES, "a fault's pages fit the buffer");
        assert!(config.pages.is_multiple_of(BLOCK_PAGES as u32) && config.batches > 0, "sizes fit the blocks");
        let pages = config.pages as usize;
        let blocks = pages / BLOCK_PAGES;
        let mut free = Ring::new(from, config.batches)?;
        (0..config.batches as u32).for_each(|w| free.push(w));
        Some(Pager {
            machine,
            store,
            pins: Pins::new(from, config.pins)?,
            words: Table::new(from, pages)?,
            blocks: Table::new(from, blocks)?,
            regions: Table::new(from, (pages / REGION_PAGES as usize).div_ceil(64) + 1)?,
            queue: SpinLock::new(Ring::new(from, blocks)?),
            slots: Slots::new(from, config.slots)?,
            batches: Table::new(from, config.batches)?,
            batch_lists: SpinLock::new(Batches {
                free,
                inactive: Ring::new(from, config.batches)?,
                inactive_frames: 0,
            }),
            map: SpinLock::new(Map::new(from, config.pages, config.mappings)?),
            call: SpinLock::new(()),
            resident: AtomicI64::new(0),
            isolated: AtomicI64::new(0),
            retained: AtomicI64::new(0),
            used_regions: AtomicU64::new(0),
            swapcache_max: AtomicI64::new(i64::MAX),
            limit: AtomicU64::new(u64::MAX >> 1),
            rest: AtomicU32::new(0),
            left_block: [const { AtomicU32::new(0) }; LEFT_BLOCKS],
            config,
        })
    }

    fn pause(&self) -> impl Fn(u32) + '_ {
        |spins| self.machine.pause(spins)
    }
    fn word(&self, page: PageNo) -> Word {
        Word(self.words[page.0 as usize].load(SeqCst))
    }
    fn claim(&self, page: PageNo, seen: Word) -> bool {
        self.words[page.0 as usize].compare_exchange(seen.0, seen.busy().0, SeqCst, Relaxed).is_ok()
    }
    fn change(&self, page: PageNo, seen: Word, to: Word) -> bool {
        self.words[page.0 as usize].compare_exchange(seen.0, to.0, SeqCst, Relaxed).is_ok()
    }
    /// Gives up ownership. Only the owner writes a busy word.
    fn settle(&self, page: PageNo, word: Word) {
        self.words[page.0 as usize].store(word.0, SeqCst);
    }

    /// Pages mapped in the program.
    pub fn resident_pages(&self) -> u64 {
        self.resident.load(Relaxed).max(0) as u64
    }
    /// Frames of the batches.
    pub fn isolated_pages(&self) -> u64 {
        self.isolated.load(Relaxed).max(0) as u64
    }
    /// Real memory of managed pages, in pages.
    pub fn used_pages(&self) -> u64 {
        self.resident_pages() + self.isolated_pages()
    }
    /// The limit for [`Pager::used_pages`].
    pub fn limit_pages(&self) -> u64 {
        self.limit.load(Relaxed)
    }
    /// Sets the limit. Takes effect with the next fault or reclaim.
    pub fn set_limit_pages(&self, pages: u64) {
        self.limit.store(pages, Relaxed);
    }
    /// Sets how many resident pages may keep the copy in the store that they came from.
    pub fn set_swapcache_max(&self, pages: u64) {
        self.swapcache_max.store(pages.min(i64::MAX as u64) as i64, Relaxed);
    }
    /// Resident pages whose copy in the store is kept.
    pub fn swapcache_pages(&self) -> u64 {
        self.retained.load(Relaxed).max(0) as u64
    }
    /// Pages mapped, and those of them that are in writable managed mappings.
    pub fn mapped_pages(&self) -> (u64, u64) {
        let map = self.map.lock(self.pause());
        (map.mapped() as u64, map.data() as u64)
    }
    /// Pages of regions that were ever touched: an upper bound of the pages that were.
    pub fn touched_pages(&self) -> u64 {
        self.used_regions.load(Relaxed) * REGION_PAGES as u64
    }
    /// Bytes of this pager's tables that were ever touched, about.
    pub fn table_bytes(&self) -> u64 {
        // A word a page; a block, and its place in the queue.
        const BLOCK_BYTES: u64 = core::mem::size_of::<Block>() as u64 + 4;
        const REGION_BYTES: u64 = REGION_PAGES as u64 * 8 + REGION_PAGES as u64 / BLOCK_PAGES as u64 * BLOCK_BYTES;
        self.used_regions.load(Relaxed) * REGION_BYTES + self.slots.table_bytes(self.pause())
    }
    /// Slots in use.
    pub fn used_slots(&self) -> u64 {
        self.slots.used(self.pause())
    }
    /// The page's state, for tests and `mincore`.
    pub fn state(&self, page: PageNo) -> State {
        self.word(page).state()
    }

    fn free_slot(&self, slot: SlotId) {
        self.store.free(slot);
        self.slots.free(slot, self.pause());
    }

    /// Frees the slot of a page that is locked: what it holds may be a secret, and nobody needs the copy.
    fn wipe_slot(&self, slot: SlotId) {
        self.store.wipe(slot);
        self.slots.free(slot, self.pause());
    }

    fn drop_retained(&self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            self.retained.fetch_sub(1, Relaxed);
            self.free_slot(slot);
        }
    }

    fn mark_region(&self, page: PageNo) {
        let region = page.0 / REGION_PAGES;
        let word = &self.regions[region as usize / 64];
        let bit = 1 << (region % 64);
        if word.load(Relaxed) & bit == 0 && word.fetch_or(bit, SeqCst) & bit == 0 {
            self.used_regions.fetch_add(1, Relaxed);
        }
    }

    /// Puts a block with resident pages on the reclaim queue, once.
    fn enqueue(&self, block: BlockNo) {
        let queued = &self.blocks[block.0 as usize].queued;
        if queued.load(SeqCst) == 0 && queued.swap(1, SeqCst) == 0 {
            self.queue.lock(self.pause()).push(block.0);
        }
    }

    // ------------------------------------------------------------------ faults

    /// Answers a fault on `page`: brings the page in, or finds that it is not ours.
    pub fn fault(&self, page: PageNo, cx: &mut Context<S::Worker>) -> Fault {
        if page.0 >= self.config.pages {
            return Fault::NotMapped;
        }
        let mut spins = 0;
        let mut again = 0u32;
        let mut alone = false;
        loop {
            let word = self.word(page);
            let outcome = match word.state() {
                State::Resident => Some(Fault::Done),
                State::Busy => {
                    if spins == 0 {
                        self.machine.count(Event::FaultWaited, 1);
                    }
                    self.machine.pause(spins);
                    spins += 1;
                    None
                }
                State::Untouched | State::Zero => self.first_touch(page, word, alone, cx),
                State::Isolated => self.hit(page, word, cx),
                State::Swapped => self.swap_in(page, word, alone, cx),
            };
            match outcome {
                // Pages that lie in one mapping here may lie in two of the machine's, which installs nothing across a border;
                // and the map changes before the machine does. From now on it is asked for this page alone.
                Some(Fault::NotMapped) if again < GONE_TRIES && self.find(page).is_some_and(|v| !v.foreign) => {
                    alone = true;
                }
                Some(outcome) => return outcome,
                None => {}
            }
            again += 1;
            if again > 1 {
                self.machine.pause(again);
            }
        }
    }

    /// How many pages, from `page` on, a fault should bring in: more where the block's accesses run in sequence.
    fn stream(&self, page: PageNo) -> usize {
        let index = page.index_in_block() as u32;
        let hint = self.blocks[page.block().0 as usize].stream.load(Relaxed);
        let (mut next, mut run) = (hint & 0xff, hint >> 8);
        if index == 0 && page.0 > 0 {
            // A stream enters a new block only if it has just left the one before; an old run says nothing.
            let before = page.block().0 as usize - 1;
            let goes_on = self.left_block[before % LEFT_BLOCKS].load(Relaxed) == page.block().0;
            (next, run) = (if goes_on { 0 } else { 0xff }, self.blocks[before].stream.load(Relaxed) >> 8);
        }
        run = if next == index && (index > 0 || run > 0) { (run + 1).min(0xffff) } else { 0 };
        let rest = FOLIO_PAGES - page.0 as usize % FOLIO_PAGES;
        let pages = match run {
            _ if !self.config.folios => 1,
            0 => 1,
            STREAM_SHORT => STREAM_SHORT_PAGES - page.0 as usize % STREAM_SHORT_PAGES,
            STREAM_LONG.. => rest,
        };
        let after = index + pages as u32;
        self.blocks[page.block().0 as usize].stream.store(run << 8 | after, Relaxed);
        if after == BLOCK_PAGES as u32 {
            self.left_block[page.block().0 as usize % LEFT_BLOCKS].store(page.block().0 + 1, Relaxed);
        }
        pages
    }

    /// The range of pages that a fault on `page` should bring in: `page` itself and, unless it is wanted alone, what the stream
    /// detector adds after it, and what the machine's grain adds around it, within the page's mapping.
    fn fault_range(&self, page: PageNo, alone: bool) -> (PageNo, usize) {
        if alone {
            return (page, 1);
        }
        let pages = self.stream(page);
        let grain = self.machine.grain() as u32;
        if pages == 1 && grain == 1 {
            return (page, 1);
        }
        let Some(vma) = self.map.lock(self.pause()).find(page) else { return (page, 1) };
        let mut first = page.0 & !(grain - 1);
        let mut end = (page.0 + pages as u32).max(first + grain);
        (first, end) = (first.max(vma.first.0), end.min(vma.end()));
        (PageNo(first), (end - first) as usize)
    }

    /// Claims the longest run of pages around `page`, within `count` pages from `first`, for which `wanted` holds.
    /// The words as seen go to `saved`. `None` where `page` itself could not be claimed.
    fn claim_run(
        &self,
        page: PageNo,
        seen: Word,
        (first, count): (PageNo, usize),
        saved: &mut [Word; BLOCK_PAGES],
        wanted: impl Fn(Word) -> bool,
    ) -> Option<(PageNo, usize)> {
        if !self.claim(page, seen) {
            return None;
        }
        let (mut start, mut end) = (page.0, page.0 + 1);
        let at = |p: u32| (p - first.0) as usize;
        saved[at(page.0)] = seen;
        let grab = |p: u32, saved: &mut [Word; BLOCK_PAGES]| {
            let word = self.word(PageNo(p));
            let ok = wanted(word) && self.claim(PageNo(p), word);
            saved[at(p)] = word;
            ok
        };
        while end < first.0 + count as u32 && grab(end, saved) {
            end += 1;
        }
        while start > first.0 && grab(start - 1, saved) {
            start -= 1;
        }
        saved.copy_within(at(start)..at(end), 0);
        Some((PageNo(start), (end - start) as usize))
    }

    fn first_touch(&self, page: PageNo, seen: Word, alone: bool, cx: &mut Context<S::Worker>) -> Option<Fault> {
        let range = self.fault_range(page, alone);
        self.make_room(range.1, cx);
        let fresh = |w: Word| matches!(w.state(), State::Untouched | State::Zero);
        let (first, count) = self.claim_run(page, seen, range, &mut cx.saved, fresh)?;
        // Before the look at the map: unmapping changes the map, then discards what lies in marked regions.
        self.mark_region(first);
        self.mark_region(first.plus(count - 1));
        let Some((first, count)) = self.keep_mapped(page, first, count, &mut cx.saved) else {
            return Some(Fault::NotMapped);
        };
        let (done, error) = self.machine.put_zero(first, count);
        let folio = done == FOLIO_PAGES && first == first.folio();
        for i in 0..count {
            let old = cx.saved[i];
            self.settle(
                first.plus(i),
                if i < done { Word::resident(None, folio).with_locked(old.locked()) } else { old },
            );
        }
        self.resident.fetch_add(done as i64, Relaxed);
        if done > 0 {
            self.enqueue(first.block());
            self.machine.count(Event::PagesFirstTouch, done as u64);
        }
        if first.0 + (done as u32) > page.0 {
            self.machine.count(Event::FaultFirstTouch, 1);
            return Some(Fault::Done);
        }
        self.put_failed(error)
    }

    /// Gives up those of the owned pages `first..first + count` that are not in the mapping of `page`; all where there is
    /// none. Looked up only while the pages are owned: unmapping changes the map before it waits for owned pages, so what
    /// is mapped now is discarded after it was put, or not at all. Pages of a mapping that is held are locked from here on.
    fn keep_mapped(
        &self,
        page: PageNo,
        first: PageNo,
        count: usize,
        saved: &mut [Word; BLOCK_PAGES],
    ) -> Option<(PageNo, usize)> {
        let vma = self.map.lock(self.pause()).find(page).filter(|v| !v.foreign);
        let (from, to) = vma.map_or((0, 0), |v| (v.first.0.max(first.0), v.end().min(first.0 + count as u32)));
        for (i, &word) in saved[..count].iter().enumerate() {
            let p = first.plus(i);
            if p.0 < from || p.0 >= to {
                self.settle(p, word);
            }
        }
        let held = vma?.is_held();
        let skipped = (from - first.0) as usize;
        saved.copy_within(skipped..skipped + (to - from) as usize, 0);
        if held {
            saved[..(to - from) as usize].iter_mut().for_each(|word| *word = word.with_locked(true));
        }
        Some((PageNo(from), (to - from) as usize))
    }

    fn put_failed(&self, error: Option<PutError>) -> Option<Fault> {
        match error {
            Some(PutError::Gone) => Some(Fault::NotMapped),
            Some(PutError::NoMemory) => Some(Fault::NoMemory),
            // Who tries again waits longer each time.
            Some(PutError::Again) | None => None,
        }
    }

    /// A touch of a page in the swap cache: its frame goes back to the program.
    fn hit(&self, page: PageNo, seen: Word, cx: &mut Context<S::Worker>) -> Option<Fault> {
        self.make_room(1, cx);
        if !self.claim(page, seen) {
            return None;
        }
        let frame = seen.frame();
        let (batch, index) = (&self.batches[frame.0 as usize / BLOCK_PAGES], frame.0 as usize % BLOCK_PAGES);
        // SAFETY: the frame's live bit is ours to clear, so the batch is not released before that.
        let content = unsafe { self.machine.frame(frame, 1) };
        let (done, error) = self.machine.put(page, content);
        if done == 0 {
            self.settle(page, seen);
            return self.put_failed(error);
        }
        let slot = batch.retained[index].swap(0, Relaxed).checked_sub(1).map(SlotId);
        self.resident.fetch_add(1, Relaxed);
        let slot = self.unless_locked(seen, slot);
        let word = Word::resident(slot, seen.folio()).with_referenced(seen.referenced() + 1).with_locked(seen.locked());
        batch.live.fetch_and(!(1 << index), SeqCst);
        self.settle(page, word);
        self.enqueue(page.block());
        self.machine.count(Event::FaultHit, 1);
        Some(Fault::Done)
    }

    /// The slot that a page which comes in keeps: none where it is locked, because it will not be evicted.
    fn unless_locked(&self, word: Word, slot: Option<SlotId>) -> Option<SlotId> {
        let slot = slot?;
        if !word.locked() {
            return Some(slot);
        }
        self.retained.fetch_sub(1, Relaxed);
        self.wipe_slot(slot);
        None
    }

    fn swap_in(&self, page: PageNo, seen: Word, alone: bool, cx: &mut Context<S::Worker>) -> Option<Fault> {
        let (outcome, pages) = self.bring_in(page, seen, alone, cx)?;
        if outcome == Fault::Done {
            self.machine.count(if pages > 1 { Event::FaultMiss } else { Event::FaultBypass }, 1);
            let run = self.blocks[page.block().0 as usize].stream.load(Relaxed) >> 8;
            if run >= STREAM_AHEAD && pages > 1 && self.limit_pages() >= STREAM_AHEAD_LIMIT_PAGES {
                self.read_ahead(PageNo(page.folio().0 + FOLIO_PAGES as u32), cx);
            }
        }
        Some(outcome)
    }

    /// Brings in the rest of a block, folio by folio from `next` on, for a stream that will touch it. Gives up where anything
    /// is in the way.
    fn read_ahead(&self, mut next: PageNo, cx: &mut Context<S::Worker>) {
        while next.index_in_block() != 0 {
            let word = self.word(next);
            if word.state() != State::Swapped {
                return;
            }
            match self.bring_in(next, word, false, cx) {
                Some((Fault::Done, FOLIO_PAGES)) => next = next.plus(FOLIO_PAGES),
                _ => return,
            }
        }
    }

    /// Brings a swapped page in, with the neighbours that its access pattern asks for unless it is wanted alone. How it ended, and how many pages were
    /// claimed for it.
    fn bring_in(&self, page: PageNo, seen: Word, alone: bool, cx: &mut Context<S::Worker>) -> Option<(Fault, usize)> {
        let mut range = self.fault_range(page, alone);
        self.make_room(range.1, cx);
        loop {
            let swapped = |w: Word| w.state() == State::Swapped;
            let (first, count) = self.claim_run(page, seen, range, &mut cx.saved, swapped)?;
            match self.fetch(first, count, cx) {
                Ok(()) => return self.install(page, first, count, cx).map(|outcome| (outcome, count)),
                Err(error) => {
                    (0..count).for_each(|i| self.settle(first.plus(i), cx.saved[i]));
                    if count > 1 {
                        // A neighbour that cannot be read must not hurt the page that is wanted.
                        range = (page, 1);
                        continue;
                    }
                    let (event, fault) = match error {
                        StoreError::Corrupt => (Event::Corruptions, Fault::Corrupt),
                        StoreError::Io | StoreError::Full => (Event::StoreErrors, Fault::Unreadable),
                    };
                    self.machine.count(event, 1);
                    return Some((fault, count));
                }
            }
        }
    }

    /// Reads the owned pages `first..first + count`, whose words are in `cx.saved`, into the buffer and verifies them.
    fn fetch(&self, first: PageNo, count: usize, cx: &mut Context<S::Worker>) -> Result<(), StoreError> {
        debug_assert!(first.0 as usize + count <= self.words.len());
        let slot_at = |i: usize| cx.saved[i].slot().expect("a swapped page has a slot");
        let mut i = 0;
        while i < count {
            let slot = slot_at(i);
            let mut n = 1;
            while i + n < count && slot_at(i + n) == slot.plus(n) {
                n += 1;
            }
            self.store.get(slot, &mut cx.buffer[i * PAGE_BYTES..(i + n) * PAGE_BYTES], &mut cx.worker)?;
            for k in 0..n {
                let content = &cx.buffer[(i + k) * PAGE_BYTES..(i + k + 1) * PAGE_BYTES];
                if hash_page(content, self.config.seed) != self.slots.hash(slot.plus(k)) {
                    return Err(StoreError::Corrupt);
                }
            }
            i += n;
        }
        Ok(())
    }

    fn install(&self, page: PageNo, first: PageNo, count: usize, cx: &mut Context<S::Worker>) -> Option<Fault> {
        let (done, error) = self.machine.put(first, &cx.buffer[..count * PAGE_BYTES]);
        let folio = done == FOLIO_PAGES && first == first.folio();
        for i in 0..count {
            let old = cx.saved[i];
            if i >= done {
                self.settle(first.plus(i), old);
                continue;
            }
            let mut slot = old.slot();
            if old.locked() {
                self.settle(first.plus(i), Word::resident(None, folio).with_locked(true));
                if let Some(slot) = slot.take() {
                    self.wipe_slot(slot);
                }
            } else if self.retained.load(Relaxed) < self.swapcache_max.load(Relaxed) {
                self.retained.fetch_add(1, Relaxed);
                self.settle(first.plus(i), Word::resident(slot, folio));
                slot = None;
            } else {
                self.settle(first.plus(i), Word::resident(None, folio));
            }
            if let Some(slot) = slot {
                self.free_slot(slot);
            }
        }
        self.resident.fetch_add(done as i64, Relaxed);
        if done > 0 {
            self.enqueue(first.block());
        }
        if first.0 + (done as u32) <= page.0 {
            return self.put_failed(error);
        }
        if folio {
            self.machine.count(Event::FoliosIn, 1);
        }
        Some(Fault::Done)
    }

    // ----------------------------------------------------------------- reclaim

    /// Reclaims in the caller until `pages` more fit under the limit, or nothing more can be done.
    pub fn make_room(&self, pages: usize, cx: &mut Context<S::Worker>) -> bool {
        let mut idle = 0;
        if self.used_pages() + pages as u64 > self.limit_pages() {
            // Where nothing could be evicted just now, the next faults need not find that out again: a full store is slow.
            let rest = self.rest.load(Relaxed);
            if rest > 0 {
                self.rest.store(rest.saturating_sub(pages as u32), Relaxed);
                return false;
            }
            self.machine.count(Event::DirectReclaims, 1);
        }
        while self.used_pages() + pages as u64 > self.limit_pages() {
            match self.reclaim(cx) {
                Step::Freed(_) | Step::Isolated => idle = 0,
                Step::Nothing | Step::StoreFull => {
                    idle += 1;
                    // What other threads are writing out is about to be free.
                    let patience = if self.batches_at_work() > 0 { IDLE_STEPS_WITH_WORK } else { IDLE_STEPS };
                    if idle > patience {
                        self.rest.store(REST_PAGES, Relaxed);
                        self.machine.count(Event::OverLimit, 1);
                        return false;
                    }
                    self.machine.pause(idle);
                }
            }
        }
        true
    }

    /// Batches that some thread is filling or writing out.
    fn batches_at_work(&self) -> usize {
        let lists = self.batch_lists.lock(self.pause());
        self.batches.len() - lists.free.len() - lists.inactive.len()
    }

    /// One step of reclaim: fill the inactive list up to its share, else write out its oldest batch.
    pub fn reclaim(&self, cx: &mut Context<S::Worker>) -> Step {
        let share = (self.limit_pages() as usize / INACTIVE_SHARE).max(BLOCK_PAGES);
        let few = self.batch_lists.lock(self.pause()).inactive_frames < share;
        if few && self.isolate_next(cx) {
            return Step::Isolated;
        }
        let mut lists = self.batch_lists.lock(self.pause());
        let Some(number) = lists.inactive.pop() else {
            drop(lists);
            return if self.isolate_next(cx) { Step::Isolated } else { Step::Nothing };
        };
        let batch = BatchNo(number);
        let frames = self.batches[number as usize].frames.load(Relaxed) as usize;
        lists.inactive_frames -= frames;
        drop(lists);
        if self.write_out(batch, cx) {
            return Step::Freed(frames);
        }
        self.make_inactive(batch);
        Step::StoreFull
    }

    fn make_inactive(&self, batch: BatchNo) {
        let mut lists = self.batch_lists.lock(self.pause());
        lists.inactive.push(batch.0);
        lists.inactive_frames += self.batches[batch.0 as usize].frames.load(Relaxed) as usize;
    }

    /// Takes the next block of the queue that has something to take into a batch.
    fn isolate_next(&self, cx: &mut Context<S::Worker>) -> bool {
        // Blocks that were refused lately are asked again only where no other has anything.
        self.isolate_pass(false, REFUSALS_MAX, cx)
            .unwrap_or_else(|rests| rests && self.isolate_pass(true, REFUSALS_RESTING_MAX, cx).unwrap_or(false))
    }

    /// One pass over the queue. Whether a block was isolated; `Err` where none had anything to take, with whether some were
    /// passed by because they rest. Ends after so many refusals of the machine.
    fn isolate_pass(&self, resting_too: bool, refusals_max: u32, cx: &mut Context<S::Worker>) -> Result<bool, bool> {
        let mut tries = self.queue.lock(self.pause()).len().min(4096);
        let (mut refusals, mut rests) = (0, false);
        while tries > 0 && refusals < refusals_max {
            let Some(block) = self.queue.lock(self.pause()).pop() else { return Err(rests) };
            let block = BlockNo(block);
            let state = &self.blocks[block.0 as usize];
            state.queued.store(0, SeqCst);
            tries -= 1;
            let rest = state.rest.load(Relaxed);
            if rest & REST != 0 && !resting_too {
                state.rest.store(rest - 1, Relaxed);
                rests = true;
                self.enqueue(block);
                continue;
            }
            match self.isolate(block, u64::MAX, cx) {
                Isolated::Batch(batch) => {
                    self.make_inactive(batch);
                    return Ok(true);
                }
                Isolated::NoWindow => return Ok(false),
                Isolated::Refused => refusals += 1,
                Isolated::Nothing => {}
            }
        }
        if refusals == refusals_max { Ok(false) } else { Err(rests) }
    }

    /// Takes the resident pages of a block that `mask` names, except pages that are locked, in use by a call, or hot,
    /// into a free batch. The block goes back on the queue where it still has resident pages.
    fn isolate(&self, block: BlockNo, mask: u64, cx: &mut Context<S::Worker>) -> Isolated {
        // The batch freed last has its tables warm, and few batches are ever touched.
        let number = self.batch_lists.lock(self.pause()).free.pop_newest();
        let Some(number) = number else {
            self.enqueue(block);
            return Isolated::NoWindow;
        };
        self.batches[number as usize].block.store(block.0, Relaxed);
        let base = block.first_page();
        let pinned = self.pins.mask(block);
        let (mut wanted, mut blocked, mut left) = (0u64, 0u64, false);
        for i in 0..BLOCK_PAGES {
            let page = base.plus(i);
            let word = self.word(page);
            match word.state() {
                State::Resident => {
                    if word.locked() || pinned & 1 << i != 0 || mask & 1 << i == 0 {
                        left = true;
                        blocked |= 1 << i;
                    } else if word.referenced() > 0 && mask == u64::MAX {
                        self.change(page, word, word.with_referenced(word.referenced() - 1));
                        left = true;
                        blocked |= 1 << i;
                    } else {
                        wanted |= 1 << i;
                    }
                }
                State::Isolated | State::Busy => blocked |= 1 << i,
                State::Untouched | State::Swapped | State::Zero => {}
            }
        }
        let (mut taken_all, mut refused) = (0u64, false);
        let mut from = 0;
        while wanted >> from != 0 && from < BLOCK_PAGES {
            let start = from + (wanted >> from).trailing_zeros() as usize;
            // The run ends at the last wanted page before the next blocked one.
            let barrier =
                if blocked >> start == 0 { BLOCK_PAGES } else { start + (blocked >> start).trailing_zeros() as usize };
            let in_run = wanted & mask_of(start, barrier - start);
            let end = BLOCK_PAGES - in_run.leading_zeros() as usize;
            let (asked, taken) = self.isolate_run(base, start, end, in_run, BatchNo(number), cx);
            left |= taken != in_run;
            refused |= asked & !taken != 0;
            taken_all |= taken;
            from = barrier.max(end);
            if from >= BLOCK_PAGES {
                break;
            }
        }
        if left {
            self.enqueue(block);
        }
        if taken_all == 0 {
            // Pages that could not be dropped may have left copies.
            if wanted == 0 || self.machine.release(BatchNo(number)) {
                self.batch_lists.lock(self.pause()).free.push(number);
            } else {
                self.make_inactive(BatchNo(number));
            }
            return if self.rest(block, refused) { Isolated::Refused } else { Isolated::Nothing };
        }
        self.rest(block, false);
        self.machine.count(Event::PagesTaken, taken_all.count_ones() as u64);
        Isolated::Batch(BatchNo(number))
    }

    /// Remembers whether the machine refused a block; returns it.
    fn rest(&self, block: BlockNo, refused: bool) -> bool {
        let rest = &self.blocks[block.0 as usize].rest;
        let before = rest.load(Relaxed) >> 16;
        let visits = match refused {
            true if before == 0 => REST_VISITS,
            true => (before * 4).min(REST_VISITS_MAX),
            false => 0,
        };
        if visits != before || refused {
            rest.store(visits << 16 | visits, Relaxed);
        }
        refused
    }

    /// Takes the wanted pages among `start..end` of a block; all pages between are claimed, because a page that came in
    /// while its neighbours move would be moved with them. Returns the pages that the machine was asked for, and those that
    /// were taken.
    fn isolate_run(
        &self,
        base: PageNo,
        start: usize,
        end: usize,
        wanted: u64,
        number: BatchNo,
        cx: &mut Context<S::Worker>,
    ) -> (u64, u64) {
        let batch = &self.batches[number.0 as usize];
        let mut claimed = start;
        let mut present = 0u64;
        while claimed < end {
            let page = base.plus(claimed);
            let word = self.word(page);
            let movable = wanted & 1 << claimed != 0;
            let ok = match word.state() {
                State::Resident => movable && !word.locked(),
                State::Untouched | State::Swapped | State::Zero => true,
                State::Isolated | State::Busy => false,
            };
            if !ok || !self.claim(page, word) {
                break;
            }
            cx.saved[claimed] = word;
            if word.state() == State::Resident {
                present |= 1 << claimed;
            }
            claimed += 1;
        }
        // A call that published its range before we claimed these pages counts on them; one that publishes later finds
        // them busy and waits.
        fence(SeqCst);
        let pinned = self.pins.mask(base.block());
        let (mut asked, mut taken) = (0, 0);
        if present != 0 && pinned & present == 0 {
            asked = present;
            let first = base.plus(start);
            taken = self.machine.take(first, claimed - start, present >> start, number, start) << start;
            debug_assert!(taken & !present == 0);
        }
        let frames = taken.count_ones();
        batch.frames.fetch_add(frames, Relaxed);
        batch.live.fetch_or(taken, SeqCst);
        self.isolated.fetch_add(frames as i64, Relaxed);
        self.resident.fetch_sub(frames as i64, Relaxed);
        for i in start..claimed {
            let old = cx.saved[i];
            if taken & 1 << i == 0 {
                self.settle(base.plus(i), old);
                continue;
            }
            batch.retained[i].store(old.slot().map_or(0, |s| s.0 + 1), Relaxed);
            let frame = FrameNo(number.0 * BLOCK_PAGES as u32 + i as u32);
            self.settle(base.plus(i), Word::isolated(frame, old.folio()).with_referenced(old.referenced()));
        }
        (asked, taken)
    }

    /// Writes out the pages of a batch and releases it. Returns false, with the batch unreleased, where a store refused
    /// a page, or the machine the release: it is to be tried again.
    fn write_out(&self, number: BatchNo, cx: &mut Context<S::Worker>) -> bool {
        let batch = &self.batches[number.0 as usize];
        let base = BlockNo(batch.block.load(Relaxed)).first_page();
        let frame0 = number.0 * BLOCK_PAGES as u32;
        // SAFETY: frames with their live bit set hold pages; the batch is released at the end of this function only.
        let content = |i: usize| unsafe { self.machine.frame(FrameNo(frame0 + i as u32), 1) };
        let is_ours = |word: Word, i: usize| word.state() == State::Isolated && word.frame().0 == frame0 + i as u32;
        let mut dirty = 0u64;
        let mut folios = 0u64;
        let mut hashes = [0u128; BLOCK_PAGES];
        let mut clean = 0u64;
        let mut zero = 0u64;
        for i in 0..BLOCK_PAGES {
            let page = base.plus(i);
            let word = self.word(page);
            if batch.live.load(SeqCst) & 1 << i == 0 || !is_ours(word, i) {
                continue;
            }
            let bytes = content(i);
            let retained = batch.retained[i].load(Relaxed).checked_sub(1).map(SlotId);
            if is_zero(bytes) {
                // Claimed first: the retained slot is read and freed by the owner only.
                if self.claim(page, word) {
                    let retained = batch.retained[i].swap(0, Relaxed).checked_sub(1).map(SlotId);
                    self.drop_retained(retained);
                    batch.live.fetch_and(!(1 << i), SeqCst);
                    self.settle(page, Word::zero().with_locked(word.locked()));
                    zero += 1;
                }
                continue;
            }
            hashes[i] = hash_page(bytes, self.config.seed);
            if let Some(slot) = retained {
                if self.slots.hash(slot) == hashes[i] && self.claim(page, word) {
                    if batch.retained[i].load(Relaxed) == slot.0 + 1 {
                        batch.retained[i].store(0, Relaxed);
                        self.retained.fetch_sub(1, Relaxed);
                        batch.live.fetch_and(!(1 << i), SeqCst);
                        self.settle(page, Word::swapped(slot, word.folio()).with_locked(word.locked()));
                        clean += 1;
                        continue;
                    }
                    self.settle(page, word);
                }
            }
            dirty |= 1 << i;
            if word.folio() {
                folios |= 1 << i;
            }
        }
        if zero > 0 {
            self.machine.count(Event::PagesZero, zero);
        }
        if clean > 0 {
            self.machine.count(Event::PagesClean, clean);
        }
        let mut refused = false;
        for group in 0..BLOCK_PAGES / FOLIO_PAGES {
            let start = group * FOLIO_PAGES;
            let bits = mask_of(start, FOLIO_PAGES);
            if dirty & bits == 0 {
                continue;
            }
            if dirty & folios & bits == bits {
                if self.write_folio(batch, base, frame0, start, &hashes, cx) {
                    continue;
                }
                self.machine.count(Event::FolioFallbacks, 1);
            }
            for i in start..start + FOLIO_PAGES {
                if dirty & 1 << i == 0 {
                    continue;
                }
                let page = base.plus(i);
                if !is_ours(self.word(page), i) {
                    continue;
                }
                let Some(slot) = self.slots.alloc(Order::Page, self.pause()) else {
                    refused = true;
                    break;
                };
                let bytes: &Page = content(i).try_into().expect("a frame is a page");
                let mut stored = self.store.put_page(slot, bytes, &mut cx.worker);
                if stored.is_err() && self.drop_stale(batch, page, i, frame0) {
                    // The copy of what the page held before made room.
                    stored = self.store.put_page(slot, bytes, &mut cx.worker);
                }
                if stored.is_err() {
                    self.slots.free(slot, self.pause());
                    refused = true;
                    break;
                }
                self.slots.set_hash(slot, hashes[i]);
                self.commit(batch, page, i, frame0, slot, false);
            }
        }
        // Pages that are being touched right now still read their frames.
        let mut spins = 0;
        while batch.live.load(SeqCst) != 0 {
            if refused {
                self.machine.count(Event::StoreFull, 1);
                return false;
            }
            let live = batch.live.load(SeqCst);
            if (0..BLOCK_PAGES).any(|i| live & 1 << i != 0 && is_ours(self.word(base.plus(i)), i)) {
                // Its touch failed and it went back to the cache: write it out with the next pass.
                return false;
            }
            self.machine.pause(spins);
            spins += 1;
        }
        if !self.machine.release(number) {
            // Its memory still counts.
            return false;
        }
        let frames = batch.frames.swap(0, Relaxed);
        self.isolated.fetch_sub(frames as i64, Relaxed);
        self.batch_lists.lock(self.pause()).free.push(number.0);
        true
    }

    /// Frees the slot that a dirty page in the cache came from. Returns whether there was one.
    fn drop_stale(&self, batch: &Batch, page: PageNo, index: usize, frame0: u32) -> bool {
        let word = self.word(page);
        let ours = word.state() == State::Isolated && word.frame().0 == frame0 + index as u32;
        if !ours || !self.claim(page, word) {
            return false;
        }
        let old = batch.retained[index].swap(0, Relaxed).checked_sub(1).map(SlotId);
        self.drop_retained(old);
        self.settle(page, word);
        old.is_some()
    }

    fn write_folio(
        &self,
        batch: &Batch,
        base: PageNo,
        frame0: u32,
        start: usize,
        hashes: &[u128; BLOCK_PAGES],
        cx: &mut Context<S::Worker>,
    ) -> bool {
        let Some(slot) = self.slots.alloc(Order::Folio, self.pause()) else { return false };
        // SAFETY: the 16 frames held pages when the caller looked; frames keep their bytes until the batch is released,
        // which only the caller does, even where a page was touched meanwhile.
        let bytes = unsafe { self.machine.frame(FrameNo(frame0 + start as u32), FOLIO_PAGES) };
        let folio: &Folio = bytes.try_into().expect("16 frames are a folio");
        if self.store.put_folio(slot, folio, &mut cx.worker).is_err() {
            (0..FOLIO_PAGES).for_each(|i| self.slots.free(slot.plus(i), self.pause()));
            return false;
        }
        for i in 0..FOLIO_PAGES {
            self.slots.set_hash(slot.plus(i), hashes[start + i]);
            self.commit(batch, base.plus(start + i), start + i, frame0, slot.plus(i), true);
        }
        self.machine.count(Event::FoliosOut, 1);
        true
    }

    /// The content of frame `index` is in `slot` now: the page becomes Swapped, unless it was touched meanwhile.
    fn commit(&self, batch: &Batch, page: PageNo, index: usize, frame0: u32, slot: SlotId, folio: bool) {
        let word = self.word(page);
        let ours = word.state() == State::Isolated && word.frame().0 == frame0 + index as u32;
        if !ours || !self.claim(page, word) {
            self.free_slot(slot);
            return;
        }
        let old = batch.retained[index].swap(0, Relaxed).checked_sub(1).map(SlotId);
        self.drop_retained(old);
        batch.live.fetch_and(!(1 << index), SeqCst);
        self.settle(page, Word::swapped(slot, folio).with_locked(word.locked()));
    }

    // ------------------------------------------------------------ memory calls

    /// Serialises the calls that change the address map.
    ///
    /// Who owns a page (Busy) never takes this lock before the page is given up: faults, reclaim and write-out do not take it at
    /// all. So pages may be waited for while it is held, as long as their owners live.
    pub fn begin_call(&self) -> Guard<'_, ()> {
        self.call.lock(self.pause())
    }

    /// The mapping around a page.
    pub fn find(&self, page: PageNo) -> Option<Vma> {
        self.map.lock(self.pause()).find(page)
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
    /// Has new mappings placed from `bottom` on, where there is room. To be called before anything is mapped.
    pub fn set_bottom(&self, bottom: PageNo) {
        self.map.lock(self.pause()).set_bottom(bottom);
    }
    /// See [`Pager::set_bottom`].
    pub fn bottom(&self) -> PageNo {
        self.map.lock(self.pause()).bottom()
    }
    /// A gap for a new mapping.
    pub fn gap(&self, count: u32, align: u32) -> Option<PageNo> {
        self.map.lock(self.pause()).gap(count, align)
    }

    /// Maps a free range. Its pages are untouched. False where the map or the machine refuses.
    pub fn map(&self, first: PageNo, count: u32, prot: Prot, locked: bool) -> bool {
        let vma = Vma { locked, ..Vma::new(first, count, prot) };
        if self.map.lock(self.pause()).insert(vma).is_err() {
            return false;
        }
        if prot != Prot::NONE && !self.machine.protect(first, count as usize, prot) {
            let _ = self.map.lock(self.pause()).remove(first, count);
            // A stream that ends at the border may have been here meanwhile.
            self.discard(first, count);
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
        self.discard(first, count);
        is_empty()
    }

    /// Marks a range that was vacated ([`Pager::vacate`]) as holding something that the kernel manages.
    pub fn map_foreign(&self, first: PageNo, count: u32, prot: Prot) -> bool {
        let vma = Vma { foreign: true, ..Vma::new(first, count, prot) };
        self.map.lock(self.pause()).insert(vma).is_ok()
    }

    /// Unmaps managed pages: their content is dropped and the range is free. Foreign parts must have been given back by
    /// the caller before.
    pub fn unmap(&self, first: PageNo, count: u32) -> bool {
        if self.map.lock(self.pause()).remove(first, count).is_err() {
            return false;
        }
        self.machine.protect(first, count as usize, Prot::NONE);
        self.discard(first, count);
        true
    }

    /// Changes the program's access to mapped pages. The content stays.
    pub fn protect(&self, first: PageNo, count: u32, prot: Prot) -> bool {
        if !self.covered(first, count) {
            return false;
        }
        let (mut page, end) = (first.0, first.0 + count);
        while let Some(vma) = self.next_in(page, end) {
            // One mapping at a time, so that map and machine agree also where one of them refuses half-way.
            if self.map.lock(self.pause()).update(vma.first, vma.count, |v| v.prot = prot).is_err() {
                return false;
            }
            if !self.machine.protect(vma.first, vma.count as usize, prot) {
                // The way back needs no more entries than the way here.
                let back = self.map.lock(self.pause()).update(vma.first, vma.count, |v| v.prot = vma.prot);
                debug_assert!(back.is_ok());
                return false;
            }
            page = vma.end();
        }
        true
    }

    /// Calls `f` for the parts of a range that may hold pages, skipping regions never touched.
    pub fn touched(&self, first: PageNo, count: u32, mut f: impl FnMut(PageNo, u32)) {
        let (mut page, end) = (first.0, first.0 + count);
        while page < end {
            let region = page / REGION_PAGES;
            let region_end = ((region + 1) * REGION_PAGES).min(end);
            let bits = self.regions[region as usize / 64].load(SeqCst) >> (region % 64);
            if bits == 0 {
                page = (region + 64 - region % 64).saturating_mul(REGION_PAGES).min(end);
            } else if bits & 1 == 0 {
                page = region_end;
            } else {
                f(PageNo(page), region_end - page);
                page = region_end;
            }
        }
    }

    /// Drops the content of a range: its pages read as zero again.
    pub fn discard(&self, first: PageNo, count: u32) {
        self.touched(first, count, |first, count| {
            let (mut page, end) = (first.0, first.0 + count);
            let mut spins = 0;
            while page < end {
                let stop = end.min((page / BLOCK_PAGES as u32 + 1) * BLOCK_PAGES as u32);
                let done = self.discard_run(PageNo(page), (stop - page) as usize);
                if done == 0 {
                    self.machine.pause(spins);
                    spins += 1;
                } else {
                    spins = 0;
                }
                page += done as u32;
            }
        });
    }

    /// Discards pages of one block up to the first that another thread owns. Waiting for that one while holding others
    /// could deadlock.
    fn discard_run(&self, first: PageNo, count: usize) -> usize {
        let mut saved = [Word::UNTOUCHED; BLOCK_PAGES];
        let (mut n, mut mapped, mut any) = (0, 0i64, false);
        while n < count {
            let word = self.word(first.plus(n));
            if word.state() == State::Busy || !self.claim(first.plus(n), word) {
                break;
            }
            saved[n] = word;
            any |= word.state() == State::Resident;
            n += 1;
        }
        let closed = !any || self.machine.drop_pages(first, n);
        for (i, &word) in saved[..n].iter().enumerate() {
            match word.state() {
                State::Resident => {
                    self.drop_retained(word.slot());
                    if !closed {
                        // A page of zeros that is still there.
                        self.settle(first.plus(i), Word::resident(None, false));
                        continue;
                    }
                    mapped += 1;
                }
                State::Swapped => {
                    if let Some(slot) = word.slot() {
                        self.free_slot(slot);
                    }
                }
                State::Isolated => {
                    let frame = word.frame().0 as usize;
                    let batch = &self.batches[frame / BLOCK_PAGES];
                    let old = batch.retained[frame % BLOCK_PAGES].swap(0, Relaxed).checked_sub(1).map(SlotId);
                    self.drop_retained(old);
                    batch.live.fetch_and(!(1 << (frame % BLOCK_PAGES)), SeqCst);
                }
                State::Untouched | State::Zero | State::Busy => {}
            }
            self.settle(first.plus(i), Word::UNTOUCHED);
        }
        self.resident.fetch_sub(mapped, Relaxed);
        if !closed {
            self.enqueue(first.block());
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
                    let word = self.word(PageNo(page).plus(n));
                    if word.state() != State::Resident || !self.claim(PageNo(page).plus(n), word) {
                        break;
                    }
                    saved[n] = word;
                    n += 1;
                }
                if n > 0 {
                    ok &= f(PageNo(page), n);
                    (0..n).for_each(|i| self.settle(PageNo(page).plus(i), saved[i]));
                    // Reclaim may have passed by while they were owned.
                    self.enqueue(PageNo(page).block());
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

    /// Moves the content of a range to another, free of pages, that does not overlap it. The access of both is the caller's
    /// business; both must be readable and writable while pages move. Returns how many pages from the start were moved; fewer
    /// than `count` only where the machine refuses one again and again.
    pub fn move_pages(&self, from: PageNo, to: PageNo, count: u32, cx: &mut Context<S::Worker>) -> u32 {
        let mut done = count;
        self.touched(from, count, |first, n| {
            let mut i = first.0 - from.0;
            let end = i + n;
            let (mut spins, mut refusals) = (0, 0);
            while i < end && done == count {
                let (src, dst) = (PageNo(from.0 + i), PageNo(to.0 + i));
                let word = self.word(src);
                let moved = match word.state() {
                    State::Untouched | State::Zero => true,
                    State::Busy => false,
                    // Its frame belongs to the old place's batch: bring it back first.
                    State::Isolated => {
                        refusals += (self.fault(src, cx) != Fault::Done) as u32;
                        false
                    }
                    State::Resident | State::Swapped => {
                        let moved = self.move_page(src, word, dst);
                        refusals += (moved == Some(false)) as u32;
                        moved == Some(true)
                    }
                };
                if moved {
                    i += 1;
                    (spins, refusals) = (0, 0);
                    continue;
                }
                if refusals >= MOVE_TRIES {
                    done = i;
                } else if refusals > MOVE_TRIES / 2 {
                    // What lies in a store moves without the machine.
                    self.page_out(src, 1, true, cx);
                }
                self.machine.pause(spins);
                spins += 1;
            }
        });
        done
    }

    /// Moves one page; `Some(false)` where the machine refuses, `None` where another thread was faster.
    fn move_page(&self, src: PageNo, word: Word, dst: PageNo) -> Option<bool> {
        if !self.claim(src, word) {
            return None;
        }
        let target = self.word(dst);
        let empty = matches!(target.state(), State::Untouched | State::Zero);
        if !empty || !self.claim(dst, target) {
            self.settle(src, word);
            self.enqueue(src.block());
            if !empty {
                // Brought in along with a neighbour; the program knows nothing of the new place yet.
                self.discard_run(dst, 1);
            }
            return None;
        }
        self.mark_region(dst);
        let moved = word.state() == State::Swapped || self.machine.transfer(src, dst);
        let (left, arrived) = if moved { (Word::UNTOUCHED, Word(word.0).with_locked(false)) } else { (word, target) };
        self.settle(dst, arrived);
        self.settle(src, left);
        // Also where it stays: reclaim may have passed by while the page was owned.
        self.enqueue(if moved { dst.block() } else { src.block() });
        Some(moved)
    }

    /// Brings a range in and keeps it in until the pin slot that the caller published it in is released. Pages that
    /// are not mapped or not accessible are left out. Returns how many pages from the start are sure to be there; fewer
    /// than `count` only where a page cannot be brought in.
    pub fn pin(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) -> (u32, Fault) {
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
                if self.word(PageNo(page)).state() != State::Resident {
                    match self.fault(PageNo(page), cx) {
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

    /// Sets or lifts the lock of a range. Locked pages are never evicted. To lock all of it at once, the caller holds a pin
    /// over the range and has pinned it; else pages are locked as they are touched. What is held for another reason stays
    /// locked. False, and nothing changed, where the map has no room for another mapping.
    pub fn set_locked(&self, first: PageNo, count: u32, locked: bool, on_fault: bool) -> bool {
        self.hold(first, count, |v| (v.locked, v.on_fault) = (locked, on_fault))
    }

    /// Locks pages that the kernel uses by itself, until they are unmapped. The caller holds a pin over the range and has
    /// pinned it.
    pub fn keep(&self, first: PageNo, count: u32) {
        if !self.hold(first, count, |v| v.kept = true) {
            self.lock_pages(first, count, true);
        }
    }

    /// Sees to it that no copy of a range's content is anywhere but in the program's reach: what is out comes in, and no page is
    /// evicted any more. Copies that were dropped before are no longer known; what they held may lie in free memory of the store
    /// until it is used again.
    pub fn keep_private(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) -> Fault {
        if !self.hold(first, count, |v| v.private = true) {
            return Fault::NoMemory;
        }
        let (mut outcome, mut in_frames) = (Fault::Done, false);
        self.touched(first, count, |first, count| {
            for page in (0..count as usize).map(|i| first.plus(i)) {
                let mut spins = 0;
                while outcome == Fault::Done {
                    let word = self.word(page);
                    match word.state() {
                        State::Untouched | State::Zero => break,
                        State::Resident if word.slot().is_none() => break,
                        State::Resident if self.claim(page, word) => {
                            self.settle(page, Word::resident(None, word.folio()).with_locked(true));
                            self.unless_locked(word.with_locked(true), word.slot());
                            break;
                        }
                        State::Swapped | State::Isolated => {
                            in_frames |= word.state() == State::Isolated;
                            outcome = self.fault(page, cx);
                        }
                        State::Resident | State::Busy => {
                            self.machine.pause(spins);
                            spins += 1;
                        }
                    }
                }
            }
        });
        if in_frames {
            self.empty_frames(first, count, cx);
        }
        outcome
    }

    /// Lifts [`Pager::keep_private`], unless the map has no room for that.
    pub fn end_private(&self, first: PageNo, count: u32) {
        let mut page = first.0;
        while let Some(vma) = self.next_in(page, first.0 + count) {
            if vma.private {
                self.hold(vma.first, vma.count, |v| v.private = false);
            }
            page = vma.end();
        }
    }

    /// Writes out the waiting batches of a range's blocks, whose frames still hold what was in them when pages were touched. A
    /// batch that another thread has at hand is released by that thread.
    fn empty_frames(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) {
        let blocks = first.block().0..=PageNo(first.0 + count - 1).block().0;
        let waiting = self.batch_lists.lock(self.pause()).inactive.len();
        for _ in 0..waiting {
            let mut lists = self.batch_lists.lock(self.pause());
            let Some(number) = lists.inactive.pop() else { return };
            let batch = &self.batches[number as usize];
            lists.inactive_frames -= batch.frames.load(Relaxed) as usize;
            drop(lists);
            if !blocks.contains(&batch.block.load(Relaxed)) || !self.write_out(BatchNo(number), cx) {
                self.make_inactive(BatchNo(number));
            }
        }
    }

    /// Changes what holds the pages of a range, first in the map: a page touched from then on is locked, or not, by what the map
    /// says. False where the map has no room for that.
    fn hold(&self, first: PageNo, count: u32, change: impl Fn(&mut Vma)) -> bool {
        if self.map.lock(self.pause()).update(first, count, change).is_err() {
            return false;
        }
        let mut page = first.0;
        while let Some(vma) = self.next_in(page, first.0 + count) {
            self.lock_pages(vma.first, vma.count, vma.is_held());
            page = vma.end();
        }
        true
    }

    fn lock_pages(&self, first: PageNo, count: u32, locked: bool) {
        self.touched(first, count, |first, count| {
            for page in (0..count as usize).map(|i| first.plus(i)) {
                let mut spins = 0;
                loop {
                    let word = self.word(page);
                    // What is not there and holds nothing is locked by its mapping when it is touched.
                    let empty = matches!(word.state(), State::Untouched | State::Zero);
                    if word.locked() == locked || empty && locked {
                        break;
                    }
                    if word.state() != State::Busy && self.change(page, word, word.with_locked(locked)) {
                        break;
                    }
                    self.machine.pause(spins);
                    spins += 1;
                }
            }
        });
    }

    /// Evicts a range as far as it can be (`MADV_PAGEOUT`), or only unmaps it (`MADV_COLD`).
    pub fn page_out(&self, first: PageNo, count: u32, write: bool, cx: &mut Context<S::Worker>) {
        self.touched(first, count, |first, count| {
            let (mut page, end) = (first.0, first.0 + count);
            while page < end {
                let block = PageNo(page).block();
                let stop = end.min(block.first_page().0 + BLOCK_PAGES as u32);
                let mask = mask_of(PageNo(page).index_in_block(), (stop - page) as usize);
                page = stop;
                let resident = (0..BLOCK_PAGES)
                    .any(|i| mask & 1 << i != 0 && self.state(block.first_page().plus(i)) == State::Resident);
                if !resident {
                    continue;
                }
                if self.batch_lists.lock(self.pause()).free.is_empty() {
                    self.reclaim(cx);
                }
                if let Isolated::Batch(batch) = self.isolate(block, mask, cx) {
                    if !write || !self.write_out(batch, cx) {
                        self.make_inactive(batch);
                    }
                }
            }
        });
    }

    /// Brings in what fits of a range without evicting anything (`MADV_WILLNEED`).
    pub fn will_need(&self, first: PageNo, count: u32, cx: &mut Context<S::Worker>) {
        self.touched(first, count, |first, count| {
            for page in first.0..first.0 + count {
                if self.used_pages() + FOLIO_PAGES as u64 > self.limit_pages() {
                    return;
                }
                if matches!(self.state(PageNo(page)), State::Swapped | State::Isolated) {
                    self.fault(PageNo(page), cx);
                }
            }
        });
    }

    /// Checks that the books agree with the page words. For tests: no other thread may be at work.
    ///
    /// # Panics
    /// Where they do not.
    pub fn check(&self) {
        let (mut resident, mut cached, mut slots, mut retained) = (0i64, 0u64, 0u64, 0i64);
        for page in 0..self.config.pages {
            let word = self.word(PageNo(page));
            match word.state() {
                State::Resident => {
                    resident += 1;
                    retained += word.slot().is_some() as i64;
                    slots += word.slot().is_some() as u64;
                }
                State::Isolated => {
                    cached += 1;
                    let frame = word.frame().0 as usize;
                    let batch = &self.batches[frame / BLOCK_PAGES];
                    assert!(batch.live.load(SeqCst) & 1 << (frame % BLOCK_PAGES) != 0, "cached page has a live frame");
                    assert_eq!(batch.block.load(SeqCst), PageNo(page).block().0);
                    let kept = batch.retained[frame % BLOCK_PAGES].load(SeqCst) != 0;
                    retained += kept as i64;
                    slots += kept as u64;
                }
                State::Swapped => {
                    slots += 1;
                    assert!(self.slots.in_use(word.slot().expect("a swapped page has a slot")));
                }
                State::Busy => panic!("page {page} is busy though nobody works"),
                State::Untouched | State::Zero => {}
            }
        }
        let live: u64 = self.batches.iter().map(|w| w.live.load(SeqCst).count_ones() as u64).sum();
        assert_eq!(live, cached, "live frames");
        assert_eq!(self.resident.load(SeqCst), resident, "resident pages");
        assert_eq!(self.retained.load(SeqCst), retained, "retained pages");
        assert_eq!(self.used_slots(), slots, "slots in use");
        let frames: u64 = self.batches.iter().map(|w| w.frames.load(SeqCst) as u64).sum();
        assert_eq!(self.isolated_pages(), frames, "isolated frames");
    }
}

fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(64).all(|chunk| {
        chunk.chunks_exact(8).fold(0u64, |acc, w| acc | u64::from_ne_bytes(w.try_into().expect("8 bytes"))) == 0
    })
}
