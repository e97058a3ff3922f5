//! The slot allocator and slot map.
//!
//! Slots come from clusters of 512 that each serve one order (SWAP.md 3: so that requests for whole folios do not
//! starve). Per slot the map keeps a 128-bit hash of the content: it is the checksum that is verified when a page comes
//! back, and the means to know that a page is clean without a write fault.
use crate::lock::SpinLock;
use crate::memory::{Reserve, Table, Zeroed};
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};
use crate::units::{FOLIO_PAGES, SlotId};

/// Slots in a cluster.
pub const CLUSTER_SLOTS: usize = 512;
const NONE: u32 = 0;

#[repr(C)]
struct Cluster {
    /// Slots in use.
    used: [AtomicU64; CLUSTER_SLOTS / 64],
    /// Next cluster of the list this one is on, plus 1.
    next: AtomicU32,
    /// 0: free, else order + 1, with LISTED when on a list.
    kind: AtomicU32,
}
const LISTED: u32 = 0x100;
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Cluster {}

#[repr(C)]
struct Hash([AtomicU64; 2]);
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Hash {}

/// The two orders that slots are handed out in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One page.
    Page,
    /// A large folio: 16 slots, aligned to 16.
    Folio,
}

struct Lists {
    /// Heads of the lists of clusters with room, by order, plus 1.
    partial: [u32; 2],
    /// Head of the list of empty clusters, plus 1.
    free: u32,
    /// First cluster never used.
    fresh: u32,
    used_slots: u64,
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
            lists: SpinLock::new(Lists { partial: [NONE; 2], free: NONE, fresh: 0, used_slots: 0 }),
        })
    }

    /// Hands out a slot, or the first of 16; `None` when there are no more.
    pub fn alloc(&self, order: Order, pause: impl Fn(u32)) -> Option<SlotId> {
        let mut lists = self.lists.lock(pause);
        let o = order as usize;
        loop {
            if lists.partial[o] == NONE {
                self.add_cluster(&mut lists, order)?;
            }
            let number = lists.partial[o] - 1;
            let cluster = &self.clusters[number as usize];
            if let Some(index) = find(cluster, order) {
                let width = if order == Order::Page { 1 } else { 0xffff };
                cluster.used[index / 64].fetch_or(width << (index % 64), Relaxed);
                lists.used_slots += if order == Order::Page { 1 } else { FOLIO_PAGES as u64 };
                return Some(SlotId(number * CLUSTER_SLOTS as u32 + index as u32));
            }
            lists.partial[o] = cluster.next.load(Relaxed);
            cluster.kind.store(order as u32 + 1, Relaxed);
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
        let cluster = &self.clusters[number as usize];
        cluster.kind.store((order as u32 + 1) | LISTED, Relaxed);
        cluster.next.store(lists.partial[order as usize], Relaxed);
        lists.partial[order as usize] = number + 1;
        Some(())
    }

    /// Takes a slot back.
    ///
    /// # Panics
    /// When the slot is not in use: two owners of one slot would mean wrong data.
    pub fn free(&self, slot: SlotId, pause: impl Fn(u32)) {
        let mut lists = self.lists.lock(pause);
        let number = slot.0 / CLUSTER_SLOTS as u32;
        let index = slot.0 as usize % CLUSTER_SLOTS;
        let cluster = &self.clusters[number as usize];
        let old = cluster.used[index / 64].fetch_and(!(1 << (index % 64)), Relaxed);
        assert!(old & 1 << (index % 64) != 0, "slot freed twice");
        lists.used_slots -= 1;
        let kind = cluster.kind.load(Relaxed);
        let empty = cluster.used.iter().all(|w| w.load(Relaxed) == 0);
        if kind & LISTED == 0 {
            let order = kind as usize - 1;
            if empty {
                cluster.kind.store(0, Relaxed);
                cluster.next.store(lists.free, Relaxed);
                lists.free = number + 1;
            } else if order == Order::Page as usize || find(cluster, Order::Folio).is_some() {
                cluster.kind.store(kind | LISTED, Relaxed);
                cluster.next.store(lists.partial[order], Relaxed);
                lists.partial[order] = number + 1;
            }
        }
    }

    /// Whether a slot is in use.
    pub fn in_use(&self, slot: SlotId) -> bool {
        let index = slot.0 as usize % CLUSTER_SLOTS;
        self.clusters[slot.0 as usize / CLUSTER_SLOTS].used[index / 64].load(Relaxed) & 1 << (index % 64) != 0
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

fn find(cluster: &Cluster, order: Order) -> Option<usize> {
    for (i, used) in cluster.used.iter().enumerate() {
        let used = used.load(Relaxed);
        match order {
            Order::Page if used != u64::MAX => return Some(i * 64 + used.trailing_ones() as usize),
            Order::Page => {}
            Order::Folio => {
                if let Some(q) = (0..4).find(|q| used >> (q * 16) & 0xffff == 0) {
                    return Some(i * 64 + q * 16);
                }
            }
        }
    }
    None
}

/// Hash of a page's content (XXH3, 128 bits, seeded per process so that nobody can prepare two pages that collide).
pub fn hash_page(page: &[u8], seed: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(page, seed)
}
