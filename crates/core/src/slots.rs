//! The slot map: which slots are in use, by how many, and what they hold.
//!
//! Slots come from clusters of 512 that each serve one order, so that requests for whole folios do not starve (Ryan Roberts, "mm:
//! swap: allow storage of all mTHP orders", 2024). Per slot the map has the number of its users, and a 128-bit hash of its
//! content (see [`crate::clean`]).
//!
//! Who asks for slots comes from a *lane*: it holds a cluster of each order that it asked for, from which nobody else is given slots, so
//! that threads of different lanes have nothing to wait for. The kernel does so for each processor (Tim Chen, "mm/swap: add cache for swap
//! slots allocation", 2017, and Kairui Song, "mm, swap: use percpu cluster as allocation fast path", 2025); which one a thread runs on is not
//! known here. The lock of the lists is taken where a held cluster has no more room, and where a cluster gets room that neither is held nor on a
//! list; those of all lanes where the lists have nothing.
//!
//! Who frees a slot: nobody. A user puts it ([`Slots::put`]); with the last one it is unused, the store is told so by the
//! [`Unused`] that only `put` makes, and then it can be handed out again.
use crate::lock::SpinLock;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*, fence};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{MAX_FOLIO_PAGES, MAX_ORDER, Order, SlotId};

/// Slots in a cluster.
pub const CLUSTER_SLOTS: usize = 512;
// A folio lies in one cluster.
const _: () = assert!(CLUSTER_SLOTS.is_multiple_of(MAX_FOLIO_PAGES));
const NONE: u32 = 0;
/// Orders that slots are handed out in.
const ORDERS: usize = MAX_ORDER + 1;
/// Lanes. A number modulo this says whose is meant.
const LANES: usize = 8;

#[repr(C)]
struct Cluster {
    /// Slots in use.
    used: [AtomicU64; CLUSTER_SLOTS / 64],
    /// Next cluster of the list this one is on, plus 1.
    next: AtomicU32,
    /// 0: free, else what [`kind_of`] the order is, with LISTED when on a list, and HELD when a lane has it. Changed under the lock of the lists.
    kind: AtomicU32,
    /// Users of each slot.
    users: [AtomicU8; CLUSTER_SLOTS],
    /// Slots of pages in memory that were counted as scarce.
    scarce: [AtomicU64; CLUSTER_SLOTS / 64],
}
/// Users that a slot can have.
pub const USERS_MAX: u8 = u8::MAX;
const LISTED: u32 = 0x100;
const HELD: u32 = 0x200;

const fn kind_of(order: Order) -> u32 {
    order.get() as u32 + 1
}

impl Cluster {
    fn is_empty(&self) -> bool {
        self.used.iter().all(|w| w.load(Relaxed) == 0)
    }
    /// The order that it serves, whether listed or held or not; `None` while it is free.
    fn order(&self) -> Option<Order> {
        order_of(self.kind.load(Relaxed))
    }
    /// The first of the slots of a folio that is free.
    fn find(&self, order: Order) -> Option<usize> {
        let word = |i: usize| self.used[i].load(Relaxed);
        if order == Order::PAGE {
            let i = (0..self.used.len()).find(|&i| word(i) != u64::MAX)?;
            return Some(i * 64 + word(i).trailing_ones() as usize);
        }
        let is_free = |at: usize| words_of(at, order.pages()).all(|(i, bits)| word(i) & bits == 0);
        (0..CLUSTER_SLOTS).step_by(order.pages()).find(|&at| is_free(at))
    }
    /// Marks slots as used. Acquire: who had them before has done with them.
    fn take(&self, at: usize, pages: usize) {
        for (i, bits) in words_of(at, pages) {
            let before = self.used[i].fetch_or(bits, Acquire);
            assert!(before & bits == 0, "a slot in use is not handed out");
        }
        for users in &self.users[at..at + pages] {
            users.store(1, Relaxed);
        }
    }
}

fn order_of(kind: u32) -> Option<Order> {
    (kind & !(LISTED | HELD)).checked_sub(1).map(|order| Order::new(order as usize))
}

/// The words that have the bits of slots, which do not lie across words unless they fill them, and their bits.
fn words_of(at: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    let bits = if pages >= 64 { u64::MAX } else { ((1 << pages) - 1) << (at % 64) };
    (at / 64..(at + pages).div_ceil(64)).map(move |i| (i, bits))
}

// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Cluster {}

#[repr(C)]
struct Hash([AtomicU64; 2]);
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Hash {}

struct Lists {
    /// Heads of the lists of clusters with room, by order, plus 1.
    partial: [u32; ORDERS],
    /// Head of the list of empty clusters, plus 1.
    free: u32,
    /// First cluster never used.
    fresh: u32,
}

/// What a lane has: by order, the cluster that it holds, plus 1. In a line of the processor's cache of its own.
#[repr(align(64))]
struct Lane(SpinLock<[u32; ORDERS]>);

/// Counts what is in use, in clusters of which each `LANES`th has this one.
#[repr(align(64))]
struct Used(AtomicU64);

/// A slot without users, which still holds what they left.
#[derive(Debug)]
pub struct Unused(SlotId);

impl Unused {
    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.0
    }
    /// A slot that the caller, who has no slot map, knows to have no users: for tests of stores.
    pub fn vouched(slot: SlotId) -> Unused {
        Unused(slot)
    }
}

/// All slots.
pub struct Slots {
    clusters: Table<Cluster>,
    hashes: Table<Hash>,
    lists: SpinLock<Lists>,
    lanes: [Lane; LANES],
    used_slots: [Used; LANES],
    /// A cluster that is on a list, or held, has become empty since the clusters were sorted last.
    emptied: AtomicBool,
}

impl Slots {
    /// Reserves a map of `count` slots (rounded down to whole clusters).
    pub fn new(from: &impl Reserve, count: usize) -> Option<Slots> {
        let clusters = count / CLUSTER_SLOTS;
        Some(Slots {
            clusters: Table::new(from, clusters)?,
            hashes: Table::new(from, clusters * CLUSTER_SLOTS)?,
            lists: SpinLock::new(Lists { partial: [NONE; ORDERS], free: NONE, fresh: 0 }),
            lanes: core::array::from_fn(|_| Lane(SpinLock::new([NONE; ORDERS]))),
            used_slots: core::array::from_fn(|_| Used(AtomicU64::new(0))),
            emptied: AtomicBool::new(false),
        })
    }

    /// Hands out the slots of a folio, the first of which this is, each with one user; `None` when there are no more. Threads that come
    /// from different lanes do not wait for each other, as a rule.
    pub fn alloc(&self, order: Order, lane: usize, pause: impl Fn(u32)) -> Option<SlotId> {
        let lane = lane % LANES;
        {
            let mut held = self.lanes[lane].0.lock(&pause);
            let place = &mut held[order.get()];
            if *place != NONE
                && let Some(slot) = self.take(*place - 1, order)
            {
                return Some(slot);
            }
            let mut lists = self.lists.lock(&pause);
            self.let_go(&mut lists, place);
            if let Some(slot) = self.hold(&mut lists, order, place) {
                return Some(slot);
            }
        }
        self.alloc_of_all(order, lane, &pause)
    }

    /// The same where no list has anything: of what the lanes hold, or of clusters that serve another order. With all locks, so that what is
    /// free is found whoever has had it.
    fn alloc_of_all(&self, order: Order, lane: usize, pause: &impl Fn(u32)) -> Option<SlotId> {
        let mut lanes: [_; LANES] = core::array::from_fn(|i| self.lanes[i].0.lock(pause));
        let mut lists = self.lists.lock(pause);
        for held in &mut lanes {
            for (at, place) in held.iter_mut().enumerate() {
                // Others are of no use to a folio.
                let is_empty = |number: u32| self.clusters[number as usize].is_empty();
                if order == Order::PAGE || at == order.get() || place.checked_sub(1).is_some_and(is_empty) {
                    self.let_go(&mut lists, place);
                }
            }
        }
        let place = &mut lanes[lane][order.get()];
        self.hold(&mut lists, order, place).or_else(|| {
            self.regroup(&mut lists, order)?;
            self.hold(&mut lists, order, place)
        })
    }

    /// Takes slots of a cluster that the caller's lane holds.
    fn take(&self, number: u32, order: Order) -> Option<SlotId> {
        let cluster = &self.clusters[number as usize];
        let at = cluster.find(order)?;
        cluster.take(at, order.pages());
        self.used_in(number).fetch_add(order.pages() as u64, Relaxed);
        Some(SlotId(number * CLUSTER_SLOTS as u32 + at as u32))
    }

    fn used_in(&self, number: u32) -> &AtomicU64 {
        &self.used_slots[number as usize % LANES].0
    }

    /// Takes slots of a cluster with room for `order`, which it takes off its list and puts in a lane's place.
    fn hold(&self, lists: &mut Lists, order: Order, place: &mut u32) -> Option<SlotId> {
        let o = order.get();
        if lists.partial[o] == NONE {
            self.add_cluster(lists, order)?;
        }
        let number = lists.partial[o] - 1;
        let cluster = &self.clusters[number as usize];
        lists.partial[o] = cluster.next.load(Relaxed);
        cluster.kind.store(kind_of(order) | HELD, Relaxed);
        *place = number + 1;
        let slot = self.take(number, order);
        assert!(slot.is_some(), "what was on the list has room");
        slot
    }

    /// A lane gives up what it holds: to the list on which it belongs by now.
    fn let_go(&self, lists: &mut Lists, place: &mut u32) {
        let Some(number) = core::mem::replace(place, NONE).checked_sub(1) else { return };
        let cluster = &self.clusters[number as usize];
        let order = cluster.order().expect("a cluster that is held serves an order");
        cluster.kind.store(kind_of(order), Relaxed);
        // Who frees a slot of it sees that it is nobody's, or is seen by this (see `hand_back`).
        fence(SeqCst);
        self.sort_in(lists, number);
    }

    /// Puts a cluster that is neither held nor listed on the list on which it belongs, if on any. A free one is there.
    fn sort_in(&self, lists: &mut Lists, number: u32) {
        let cluster = &self.clusters[number as usize];
        let Some(order) = cluster.order() else { return };
        if cluster.is_empty() {
            self.list_free(lists, number);
        } else if cluster.find(order).is_some() {
            self.list(lists, number, order);
        }
    }

    fn add_cluster(&self, lists: &mut Lists, order: Order) -> Option<()> {
        let number = if lists.free != NONE {
            let number = lists.free - 1;
            lists.free = self.clusters[number as usize].next.load(Relaxed);
            number
        } else if (lists.fresh as usize) < self.clusters.len() {
            lists.fresh += 1;
            lists.fresh - 1
        } else {
            return None;
        };
        self.list(lists, number, order);
        Some(())
    }

    /// Puts a cluster on the list of those with room for `order`.
    fn list(&self, lists: &mut Lists, number: u32, order: Order) {
        let cluster = &self.clusters[number as usize];
        cluster.kind.store(kind_of(order) | LISTED, Relaxed);
        cluster.next.store(lists.partial[order.get()], Relaxed);
        lists.partial[order.get()] = number + 1;
    }

    fn list_free(&self, lists: &mut Lists, number: u32) {
        let cluster = &self.clusters[number as usize];
        cluster.kind.store(0, Relaxed);
        cluster.next.store(lists.free, Relaxed);
        lists.free = number + 1;
    }

    /// Sorts the clusters that no lane holds anew once an order has run out of them: those that have become empty serve any order again.
    /// For single pages the clusters whose folios are all broken are turned over, or, as the last resort, one that
    /// still has room for a folio, of the lowest order. Otherwise slots would stay free for ever while the store is called full. `None` where
    /// there is nothing for this order.
    fn regroup(&self, lists: &mut Lists, order: Order) -> Option<()> {
        let all = (self.clusters.len() * CLUSTER_SLOTS) as u64;
        let was_emptied = self.emptied.swap(false, Acquire);
        let hope = was_emptied || order == Order::PAGE && self.used() < all;
        if !hope {
            return None;
        }
        (lists.free, lists.partial) = (NONE, [NONE; ORDERS]);
        for number in 0..lists.fresh {
            let cluster = &self.clusters[number as usize];
            if cluster.kind.load(Relaxed) & HELD != 0 {
                continue;
            }
            let serves = cluster.order().unwrap_or(Order::PAGE);
            if cluster.is_empty() {
                self.list_free(lists, number);
            } else if cluster.find(serves).is_some() {
                self.list(lists, number, serves);
            } else if order == Order::PAGE && cluster.find(Order::PAGE).is_some() {
                self.list(lists, number, Order::PAGE);
            } else {
                cluster.kind.store(kind_of(serves), Relaxed);
            }
        }
        if lists.partial[order.get()] != NONE || lists.free != NONE {
            return Some(());
        }
        if order > Order::PAGE {
            // What was emptied is in use again.
            return None;
        }
        // Only clusters with room for folios are left.
        let from = lists.partial.iter().position(|&head| head != NONE)?;
        let number = lists.partial[from] - 1;
        lists.partial[from] = self.clusters[number as usize].next.load(Relaxed);
        self.list(lists, number, Order::PAGE);
        Some(())
    }

    fn users(&self, slot: SlotId) -> &AtomicU8 {
        &self.clusters[slot.0 as usize / CLUSTER_SLOTS].users[slot.0 as usize % CLUSTER_SLOTS]
    }

    /// Adds a user of a slot that the caller uses. False where it has as many as can be.
    #[must_use]
    pub fn dup(&self, slot: SlotId) -> bool {
        let users = self.users(slot);
        let mut seen = users.load(Relaxed);
        loop {
            assert!(seen > 0, "a slot that is shared is in use");
            if seen == USERS_MAX {
                return false;
            }
            match users.compare_exchange(seen, seen + 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether a slot has just one user, who asks.
    pub fn is_single(&self, slot: SlotId) -> bool {
        self.users(slot).load(Relaxed) == 1
    }

    /// Gives up the caller's use of a slot. With its last user gone, `unused` is called, to have the store forget what it holds;
    /// only then can it be handed out again.
    ///
    /// # Panics
    /// When the slot is not in use: two owners of one slot would mean wrong data.
    pub fn put(&self, slot: SlotId, pause: impl Fn(u32), unused: impl FnOnce(Unused)) {
        // Release: what this user read comes before what the next one stores.
        let before = self.users(slot).fetch_sub(1, AcqRel);
        assert!(before > 0, "slot freed twice");
        if before > 1 {
            return;
        }
        unused(Unused(slot));
        self.hand_back(slot, pause);
    }

    /// Makes an unused slot available.
    fn hand_back(&self, slot: SlotId, pause: impl Fn(u32)) {
        let number = slot.0 / CLUSTER_SLOTS as u32;
        let index = slot.0 as usize % CLUSTER_SLOTS;
        let cluster = &self.clusters[number as usize];
        let bit = 1 << (index % 64);
        // Before it can be taken again: who counts may find too few in use, and looks in vain, but not too many.
        self.used_in(number).fetch_sub(1, Relaxed);
        // Release: what was done with the slot comes before what is done with it next.
        let old = cluster.used[index / 64].fetch_and(!bit, Release);
        assert!(old & bit != 0, "slot freed twice");
        // Either this sees that the cluster is nobody's, or who puts it there sees that it has room.
        fence(SeqCst);
        let note_if_empty = || {
            if old == bit && cluster.is_empty() {
                self.emptied.store(true, Release);
            }
        };
        let is_reached = |kind: u32| kind & (LISTED | HELD) != 0;
        let kind = cluster.kind.load(Relaxed);
        if is_reached(kind) {
            return note_if_empty();
        }
        // Of a free one, whoever freed its last slot with this one has been faster.
        let has_room = |order| cluster.is_empty() || cluster.find(order).is_some();
        if !order_of(kind).is_some_and(has_room) {
            return;
        }
        let mut lists = self.lists.lock(pause);
        if is_reached(cluster.kind.load(Relaxed)) {
            // It may have been listed while this slot was the last.
            note_if_empty();
        } else {
            self.sort_in(&mut lists, number);
        }
    }

    /// Notes whether a page in memory keeps this slot of its as one of those of which there may be so many. Returns what was noted
    /// before.
    pub(crate) fn set_scarce(&self, slot: SlotId, scarce: bool) -> bool {
        let index = slot.0 as usize % CLUSTER_SLOTS;
        let (word, bit) = (&self.clusters[slot.0 as usize / CLUSTER_SLOTS].scarce[index / 64], 1 << (index % 64));
        let before = if scarce { word.fetch_or(bit, Relaxed) } else { word.fetch_and(!bit, Relaxed) };
        before & bit != 0
    }

    /// What was noted last.
    pub(crate) fn is_scarce(&self, slot: SlotId) -> bool {
        let index = slot.0 as usize % CLUSTER_SLOTS;
        self.clusters[slot.0 as usize / CLUSTER_SLOTS].scarce[index / 64].load(Relaxed) & 1 << (index % 64) != 0
    }

    /// Whether a slot is in use.
    pub fn in_use(&self, slot: SlotId) -> bool {
        let index = slot.0 as usize % CLUSTER_SLOTS;
        self.clusters[slot.0 as usize / CLUSTER_SLOTS].used[index / 64].load(Relaxed) & 1 << (index % 64) != 0
    }

    /// Bytes of the slot map that were ever touched, about.
    pub fn table_bytes(&self, pause: impl Fn(u32)) -> u64 {
        const CLUSTER_BYTES: usize = core::mem::size_of::<Cluster>() + CLUSTER_SLOTS * core::mem::size_of::<Hash>();
        self.lists.lock(pause).fresh as u64 * CLUSTER_BYTES as u64
    }

    /// Slots of the clusters that were ever used.
    pub fn touched(&self, pause: impl Fn(u32)) -> u64 {
        self.lists.lock(pause).fresh as u64 * CLUSTER_SLOTS as u64
    }

    /// Slots in use now; about, while others take and free some.
    pub fn used(&self) -> u64 {
        self.used_slots.iter().fold(0, |all, used| all.wrapping_add(used.0.load(Relaxed)))
    }

    /// Remembers the hash of what a slot holds.
    pub fn set_hash(&self, slot: SlotId, hash: u128) {
        let entry = &self.hashes[slot.0 as usize].0;
        entry[0].store(hash as u64, Relaxed);
        entry[1].store((hash >> 64) as u64, Relaxed);
    }

    /// The hash of what a slot holds.
    pub fn hash(&self, slot: SlotId) -> u128 {
        let entry = &self.hashes[slot.0 as usize].0;
        entry[0].load(Relaxed) as u128 | (entry[1].load(Relaxed) as u128) << 64
    }
}
