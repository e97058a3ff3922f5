//! The slot map: which slots are in use, by how many, and what they hold.
//!
//! Slots come from clusters of 512 that each serve one order, so that requests for whole folios do not starve (Ryan Roberts, "mm:
//! swap: allow storage of all mTHP orders", 2024). Per slot the map has the number of its users, and a 128-bit hash of its
//! content (see [`crate::clean`]).
//!
//! Who frees a slot: nobody. A user puts it ([`Slots::put`]); with the last one it is unused, the store is told so by the
//! [`Unused`] that only `put` makes, and then it can be handed out again.
use crate::lock::SpinLock;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{MAX_FOLIO_PAGES, MAX_ORDER, Order, SlotId};

/// Slots in a cluster.
pub const CLUSTER_SLOTS: usize = 512;
// A folio lies in one cluster.
const _: () = assert!(CLUSTER_SLOTS.is_multiple_of(MAX_FOLIO_PAGES));
const NONE: u32 = 0;
/// Orders that slots are handed out in.
const ORDERS: usize = MAX_ORDER + 1;

#[repr(C)]
struct Cluster {
    /// Slots in use.
    used: [AtomicU64; CLUSTER_SLOTS / 64],
    /// Next cluster of the list this one is on, plus 1.
    next: AtomicU32,
    /// 0: free, else what [`kind_of`] the order is, with LISTED when on a list.
    kind: AtomicU32,
    /// Users of each slot.
    users: [AtomicU8; CLUSTER_SLOTS],
    /// Slots of pages in memory that were counted as scarce.
    scarce: [AtomicU64; CLUSTER_SLOTS / 64],
}
/// Users that a slot can have.
pub const USERS_MAX: u8 = u8::MAX;
const LISTED: u32 = 0x100;

const fn kind_of(order: Order) -> u32 {
    order.get() as u32 + 1
}

impl Cluster {
    fn is_empty(&self) -> bool {
        self.used.iter().all(|w| w.load(Relaxed) == 0)
    }
    /// The order that it serves, whether listed or not; `None` while it is free.
    fn order(&self) -> Option<Order> {
        let kind = self.kind.load(Relaxed) & !LISTED;
        kind.checked_sub(1).map(|order| Order::new(order as usize))
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
    /// Marks slots as used.
    fn take(&self, at: usize, pages: usize) {
        for (i, bits) in words_of(at, pages) {
            self.used[i].fetch_or(bits, Relaxed);
        }
    }
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
    /// Clusters on a list of those with room of which no slot is in use.
    idle: u32,
    used_slots: u64,
}

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
}

impl Slots {
    /// Reserves a map of `count` slots (rounded down to whole clusters).
    pub fn new(from: &impl Reserve, count: usize) -> Option<Slots> {
        let clusters = count / CLUSTER_SLOTS;
        Some(Slots {
            clusters: Table::new(from, clusters)?,
            hashes: Table::new(from, clusters * CLUSTER_SLOTS)?,
            lists: SpinLock::new(Lists { partial: [NONE; ORDERS], free: NONE, fresh: 0, idle: 0, used_slots: 0 }),
        })
    }

    /// Hands out the slots of a folio, the first of which this is, each with one user; `None` when there are no more.
    pub fn alloc(&self, order: Order, pause: impl Fn(u32)) -> Option<SlotId> {
        let mut lists = self.lists.lock(pause);
        let o = order.get();
        loop {
            if lists.partial[o] == NONE {
                self.add_cluster(&mut lists, order).or_else(|| self.regroup(&mut lists, order))?;
            }
            let number = lists.partial[o] - 1;
            let cluster = &self.clusters[number as usize];
            if let Some(at) = cluster.find(order) {
                lists.idle -= cluster.is_empty() as u32;
                cluster.take(at, order.pages());
                lists.used_slots += order.pages() as u64;
                for users in &cluster.users[at..at + order.pages()] {
                    users.store(1, Relaxed);
                }
                return Some(SlotId(number * CLUSTER_SLOTS as u32 + at as u32));
            }
            lists.partial[o] = cluster.next.load(Relaxed);
            cluster.kind.store(kind_of(order), Relaxed);
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
        lists.idle += 1;
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

    /// Sorts the clusters anew once an order has run out of them: those that have become empty serve any order again.
    /// For single pages the clusters whose folios are all broken are turned over, or, as the last resort, one that
    /// still has room for a folio, of the lowest order. Otherwise slots would stay free for ever while the store is called full.
    fn regroup(&self, lists: &mut Lists, order: Order) -> Option<()> {
        let all = (self.clusters.len() * CLUSTER_SLOTS) as u64;
        let hope = if order == Order::PAGE { lists.used_slots < all } else { lists.idle > 0 };
        if !hope {
            return None;
        }
        (lists.free, lists.partial, lists.idle) = (NONE, [NONE; ORDERS], 0);
        for number in 0..lists.fresh {
            let cluster = &self.clusters[number as usize];
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
        if lists.partial[order.get()] != NONE {
            return Some(());
        }
        if lists.free != NONE {
            return self.add_cluster(lists, order);
        }
        // Here the order is that of pages, and only clusters with room for folios are left.
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
        let mut lists = self.lists.lock(pause);
        let number = slot.0 / CLUSTER_SLOTS as u32;
        let index = slot.0 as usize % CLUSTER_SLOTS;
        let cluster = &self.clusters[number as usize];
        let old = cluster.used[index / 64].fetch_and(!(1 << (index % 64)), Relaxed);
        assert!(old & 1 << (index % 64) != 0, "slot freed twice");
        lists.used_slots -= 1;
        let kind = cluster.kind.load(Relaxed);
        let empty = cluster.is_empty();
        if kind & LISTED != 0 {
            lists.idle += empty as u32;
        } else if empty {
            self.list_free(&mut lists, number);
        } else if let Some(order) = cluster.order()
            && cluster.find(order).is_some()
        {
            self.list(&mut lists, number, order);
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

    /// Slots in use now.
    pub fn used(&self, pause: impl Fn(u32)) -> u64 {
        self.lists.lock(pause).used_slots
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
