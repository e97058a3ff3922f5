//! The pager: the whole of it, its configuration and its switches.
//!
//! What it does is in the files below: [`crate::isolate`] and [`crate::pageout`] take pages out, [`crate::room`] has them do so
//! until there is room under the limit, [`crate::swapin`] brings pages back, [`crate::fault`] is the way in for both the program
//! and its calls, [`crate::mm`] and its neighbours are the memory calls.
use crate::ahead::Ahead;
use crate::broken::{self, Broken};
use crate::copies::Copies;
use crate::frames::Frames;
use crate::full::Full;
use crate::left::LeftToKernel;
use crate::lock::{Guard, SpinLock};
use crate::looks::Looks;
use crate::machine::Machine;
use crate::orders::{self, Orders};
use crate::owners::Owners;
use crate::page::{Pages, State, Word};
use crate::pins::Pins;
use crate::protection::{self, Protection};
use crate::readahead::{self, Readahead, Sizes};
use crate::reclaim::{self, Reclaim};
use crate::regions::{REGION_PAGES, Regions};
use crate::slots::Slots;
use crate::store::Store;
use crate::swapcache::SwapCache;
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use crate::table::Reserve;
use crate::units::{BLOCK_PAGES, BlockNo, PAGE_BYTES, PART_PAGES, PageNo, SlotId};
use crate::upcoming::Upcoming;
use crate::vma::Map;
use crate::workingset::Workingset;
use crate::writeback::Sorted;

/// Sizes and switches, fixed at start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Pages of the managed range; a multiple of [`BLOCK_PAGES`].
    pub pages: u32,
    /// Slots in all.
    pub slots: usize,
    /// Batches of frames.
    pub batches: usize,
    /// Calls that can have pages pinned at the same time.
    pub pins: usize,
    /// Most mappings.
    pub mappings: usize,
    /// Seed of the content hashes.
    pub seed: u64,
    /// Which pages a fault brings besides its own.
    pub readahead: readahead::Kind,
    /// The largest window that is read ahead has 2 to this power pages; at most [`readahead::PAGE_CLUSTER_MAX`].
    pub page_cluster: u32,
    /// Which pages go.
    pub reclaim: reclaim::Kind,
    /// Which order of folio pages come and go as.
    pub orders: orders::Any,
    /// How pages are known to be unchanged.
    pub reuse: protection::Kind,
}

/// What a pager decides by. A type of its own, so that a policy from elsewhere can take a place ([`Chosen`]).
pub trait Policies: Sync {
    /// Which pages a fault brings besides its own.
    type Readahead: Readahead;
    /// Which pages go.
    type Reclaim: Reclaim;
    /// Which order of folio pages come and go as.
    type Orders: Orders;
    /// The policies.
    fn get(&self) -> &Chosen<Self::Readahead, Self::Reclaim, Self::Orders>;
}

/// Policies, one of each kind.
pub struct Chosen<A, C, O> {
    /// Which pages a fault brings besides its own.
    pub readahead: A,
    /// Which pages go.
    pub reclaim: C,
    /// Which order of folio pages come and go as.
    pub orders: O,
}

impl<A: Readahead, C: Reclaim, O: Orders> Policies for Chosen<A, C, O> {
    type Readahead = A;
    type Reclaim = C;
    type Orders = O;
    fn get(&self) -> &Chosen<A, C, O> {
        self
    }
}

/// The policies that this crate has, by what the configuration says.
pub type Standard = Chosen<readahead::Any, reclaim::Any, orders::Any>;

/// Scratch memory of one thread at work in the pager.
#[repr(C, align(4096))]
pub struct Context<W> {
    /// What is read on its way in.
    pub(crate) buffer: [u8; PAGE_BYTES * PART_PAGES],
    /// The words of claimed pages, as they were seen.
    pub(crate) saved: [Word; BLOCK_PAGES],
    /// What is known of the batch that is being written out.
    pub(crate) sorted: Sorted,
    /// The store's scratch.
    pub worker: W,
    /// Contexts of different lanes, numbers modulo a few, take slots without waiting for each other ([`crate::slots`]).
    pub lane: usize,
}

impl<W> Context<W> {
    /// A context around a store's worker.
    pub fn new(worker: W) -> Context<W> {
        Context {
            buffer: [0; PAGE_BYTES * PART_PAGES],
            saved: [Word::UNTOUCHED; BLOCK_PAGES],
            sorted: Sorted::NOTHING,
            worker,
            lane: 0,
        }
    }
}

/// The pager.
pub struct Pager<M, S, P = Standard> {
    /// The machine.
    pub machine: M,
    /// The store.
    pub store: S,
    /// Ranges in use by system calls.
    pub pins: Pins,
    pub(crate) policies: P,
    pub(crate) pages: Pages,
    pub(crate) regions: Regions,
    pub(crate) slots: Slots,
    pub(crate) frames: Frames,
    pub(crate) swapcache: SwapCache,
    pub(crate) owners: Owners,
    pub(crate) ahead: Ahead,
    pub(crate) upcoming: Upcoming,
    pub(crate) map: SpinLock<Map>,
    /// Held through a whole memory call (mmap, munmap, ...), which may wait for pages.
    call: SpinLock<()>,
    resident: AtomicI64,
    limit: AtomicU64,
    /// Pages that are still to come in before room is made again.
    pub(crate) rest: AtomicU32,
    /// What is known of a store that refuses.
    pub full: Full,
    pub(crate) seed: u64,
    pub(crate) looks: Looks,
    /// When pages were evicted, and which came back soon.
    pub workingset: Workingset,
    pub(crate) protection: Protection,
    /// What the kernel copies after a fork.
    pub copies: Copies,
    pub(crate) left: LeftToKernel,
}

impl<M: Machine, S: Store> Pager<M, S> {
    /// Reserves all tables. `None` where the address space has no room for them.
    pub fn new(machine: M, store: S, from: &impl Reserve, config: Config) -> Option<Self> {
        let pages = config.pages as usize;
        let sizes = Sizes { pages, page_cluster: config.page_cluster };
        let policies = Chosen {
            readahead: readahead::Any::new(config.readahead, from, sizes)?,
            reclaim: reclaim::Any::new(config.reclaim, from, pages)?,
            orders: config.orders,
        };
        Pager::with(machine, store, policies, from, config)
    }
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// As [`Pager::new`], with policies of the caller's in place of those that the configuration names.
    pub fn with(machine: M, store: S, policies: P, from: &impl Reserve, config: Config) -> Option<Self> {
        assert!(machine.grain() <= PART_PAGES, "a fault's pages fit the buffer");
        assert!(config.pages.is_multiple_of(BLOCK_PAGES as u32) && config.batches > 0, "sizes fit the blocks");
        assert!(config.page_cluster <= readahead::PAGE_CLUSTER_MAX, "a window is bounded");
        let pages = config.pages as usize;
        let (swapcache, protection) = (SwapCache::default(), Protection::new(config.reuse));
        if !protection.keeps_slots() {
            swapcache.set_max_pages(0);
        }
        let owners = Owners::new(from, config.slots, policies.get().readahead.wants_owners())?;
        Some(Pager {
            machine,
            store,
            pins: Pins::new(from, config.pins)?,
            policies,
            pages: Pages::new(from, pages)?,
            regions: Regions::new(from, pages)?,
            slots: Slots::new(from, config.slots)?,
            frames: Frames::new(from, config.batches)?,
            swapcache,
            owners,
            ahead: Ahead::new(from, config.batches)?,
            upcoming: Upcoming::default(),
            map: SpinLock::new(Map::new(from, config.pages, config.mappings)?),
            call: SpinLock::new(()),
            resident: AtomicI64::new(0),
            limit: AtomicU64::new(u64::MAX >> 1),
            rest: AtomicU32::new(0),
            full: Full::default(),
            seed: config.seed,
            looks: Looks::default(),
            workingset: Workingset::default(),
            protection,
            copies: Copies::default(),
            left: LeftToKernel::new(from, pages / BLOCK_PAGES)?,
        })
    }

    pub(crate) fn pause(&self) -> impl Fn(u32) + '_ {
        |spins| self.machine.pause(spins)
    }
    pub(crate) fn readahead(&self) -> &P::Readahead {
        &self.policies.get().readahead
    }
    pub(crate) fn policy(&self) -> &P::Reclaim {
        &self.policies.get().reclaim
    }
    pub(crate) fn orders(&self) -> &P::Orders {
        &self.policies.get().orders
    }
    /// Tells reclaim that a block has resident pages.
    pub(crate) fn add_block(&self, block: BlockNo) {
        self.policy().add(block, &self.pause());
    }
    /// Tells reclaim that so many pages of a block came back from the store; `keeps_slots`: and it has room.
    pub(crate) fn came_back(&self, block: BlockNo, pages: usize, keeps_slots: bool) {
        if keeps_slots {
            self.policy().came_back(block, pages, &self.pause());
        } else {
            // What has given its slots up would need others at once, of which a full store has none.
            self.add_block(block);
        }
    }

    // ---------------------------------------------------------------- account

    /// Pages mapped in the program.
    pub fn resident_pages(&self) -> u64 {
        self.resident.load(Relaxed).max(0) as u64
    }
    /// Adds to the pages mapped in the program.
    pub(crate) fn add_resident(&self, pages: i64) {
        self.resident.fetch_add(pages, Relaxed);
    }
    /// Frames outside of the program's reach.
    pub fn isolated_pages(&self) -> u64 {
        self.frames.isolated_pages()
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
        self.workingset.set_limit_pages(pages);
    }
    /// Sets how many pages in memory may keep the slot that they came from, where its room is scarce ([`Store::is_scarce`]).
    pub fn set_swapcache_max(&self, pages: u64) {
        if self.protection.keeps_slots() {
            self.swapcache.set_max_pages(pages);
        }
    }
    /// Pages in memory that have a slot.
    pub fn swapcache_pages(&self) -> u64 {
        self.swapcache.pages()
    }
    /// Those of them whose slot takes room that was scarce when they came in.
    pub fn swapcache_scarce_pages(&self) -> u64 {
        self.swapcache.scarce_pages()
    }
    /// Pages mapped, and those of them that are in private writable managed mappings.
    pub fn mapped_pages(&self) -> (u64, u64) {
        let map = self.map.lock(self.pause());
        (map.mapped() as u64, map.data() as u64)
    }
    /// Pages of writable managed mappings.
    pub fn writable_pages(&self) -> u64 {
        self.map.lock(self.pause()).writable() as u64
    }
    /// Pages of regions that were ever touched: an upper bound of the pages that were.
    pub fn touched_pages(&self) -> u64 {
        self.regions.used() * REGION_PAGES as u64
    }
    /// Bytes of this pager's tables that were ever touched, about.
    pub fn table_bytes(&self) -> u64 {
        let block_bytes = (self.readahead().block_bytes() + self.policy().block_bytes()) as u64;
        let region_bytes =
            REGION_PAGES as u64 * size_of::<Word>() as u64 + REGION_PAGES as u64 / BLOCK_PAGES as u64 * block_bytes;
        let owner_bytes = self.owners.slot_bytes() * self.slots.touched(self.pause());
        self.regions.used() * region_bytes + self.slots.table_bytes(self.pause()) + owner_bytes
    }
    /// Slots in use.
    pub fn used_slots(&self) -> u64 {
        self.slots.used()
    }
    /// The page's state, for tests and `mincore`.
    pub fn state(&self, page: PageNo) -> State {
        self.pages.get(page).state()
    }

    // ------------------------------------------------------------------ slots

    /// Gives up the use of a slot.
    pub(crate) fn put_slot(&self, slot: SlotId) {
        self.slots.put(slot, self.pause(), |unused| {
            if !broken::is(Broken::StoreKeeps) {
                self.store.free(unused);
            }
            self.full.freed();
        });
    }
    /// As [`Pager::put_slot`], for a page that is locked: what the slot holds may be a secret, and nobody needs the copy.
    pub(crate) fn wipe_slot(&self, slot: SlotId) {
        self.slots.put(slot, self.pause(), |unused| {
            self.store.wipe(unused);
            self.full.freed();
        });
    }
    /// Whether room for slots is bounded for this one: where it is scarce, or no page is to keep any.
    pub(crate) fn is_scarce(&self, slot: SlotId) -> bool {
        !self.protection.keeps_slots() || self.store.is_scarce(slot) || broken::is(Broken::AllScarce)
    }
    /// Whether a page that comes in could keep this slot, as of now, as many others do.
    pub(crate) fn could_keep(&self, slot: SlotId, others: usize) -> bool {
        self.swapcache.has_room(others + 1) || !self.is_scarce(slot)
    }
    /// Puts a page into the swap cache with its slot. False where there are enough: its slot is to be put.
    #[must_use]
    pub(crate) fn enter_swapcache(&self, slot: SlotId) -> bool {
        let scarce = self.is_scarce(slot);
        let entered = self.swapcache.enter(scarce);
        if entered && scarce {
            self.slots.set_scarce(slot, true);
        }
        entered
    }
    /// Takes a page out of the swap cache, of which this is the slot; the page goes back to it, or it is put.
    pub(crate) fn take_from_swapcache(&self, slot: SlotId) {
        self.swapcache.leave(self.slots.set_scarce(slot, false));
    }
    /// Takes a page out of the swap cache whose slot this was, if it was in it.
    pub(crate) fn leave_swapcache(&self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            self.take_from_swapcache(slot);
            self.put_slot(slot);
        }
    }

    /// Serialises the calls that change the address map.
    ///
    /// Who owns a page (Busy) never takes this lock before the page is given up: faults, reclaim and write-out do not take it at
    /// all. So pages may be waited for while it is held, as long as their owners live.
    pub fn begin_call(&self) -> Guard<'_, ()> {
        self.call.lock(self.pause())
    }
}
