//! What is remembered of each slot, how it is packed, and the locks that cover it.
use crate::compress::Codec;
use crate::file::{MAX_NONCE, Segment, UNIT_ALIGN, UnitId};
use crate::limits::{CLUSTER_ORDER, MAX_FILE_BYTES, MAX_TIERS, MAX_UNIT_BYTES, MAX_UNIT_ORDER, MAX_VOLUMES, SHARDS};
use crate::lock::{Guard, SpinLock};
use crate::pool::{Object, PoolShard};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};

/// A slot's record: where its content is.
///
/// `place`: bits 0-2 tier + 1 (0: holds nothing). In RAM: bits 8-39 the object. In the file: bits 3-4 codec, bits 5-21 length,
/// bits 24-59 offset / 16, bits 60-63 which of the process's files; then `seal` has in bits 0-55 the unit's nonce, in bits
/// 56-59 the page of the unit, in bits 60-62 the unit's order. Below, an offset has the file in its topmost four of 44 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Record {
    place: u64,
    seal: u64,
}

const LEN_SHIFT: u32 = 5;
const LEN_BITS: u32 = 17;
const OFFSET_SHIFT: u32 = 24;
const NONCE_BITS: u32 = 56;
const INDEX_SHIFT: u32 = NONCE_BITS;
const INDEX_BITS: u32 = 4;
const ORDER_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const ORDER_BITS: u32 = 3;

const _: () = assert!(MAX_TIERS < 1 << 3 && MAX_UNIT_BYTES < 1 << LEN_BITS && LEN_SHIFT + LEN_BITS <= OFFSET_SHIFT);
const _: () = assert!(MAX_UNIT_ORDER.get() < 1 << ORDER_BITS && MAX_UNIT_ORDER.pages() <= 1 << INDEX_BITS);
const _: () = assert!(ORDER_SHIFT + ORDER_BITS <= u64::BITS && MAX_NONCE < 1 << NONCE_BITS);
// 36 bits for an offset of 16 bytes in a file and 4 for which file it is.
const _: () =
    assert!(MAX_FILE_BYTES <= (UNIT_ALIGN as u64) << 36 && MAX_VOLUMES <= 1 << 4 && OFFSET_SHIFT + 40 <= u64::BITS);

impl Record {
    /// That of a slot that holds nothing.
    pub const NONE: Record = Record { place: 0, seal: 0 };

    /// A unit in a pool.
    pub fn ram(tier: usize, object: Object) -> Record {
        Record { place: (tier as u64 + 1) | (object.0 as u64) << 8, seal: 0 }
    }

    /// Page `index` of a unit in a file.
    pub fn file(tier: usize, id: UnitId, index: usize, offset: u64, nonce: u64) -> Record {
        let place = (tier as u64 + 1)
            | (id.codec as u64) << 3
            | (id.len as u64) << LEN_SHIFT
            | (offset / UNIT_ALIGN as u64) << OFFSET_SHIFT;
        let seal = nonce | (index as u64) << INDEX_SHIFT | (id.order.get() as u64) << ORDER_SHIFT;
        Record { place, seal }
    }

    /// The tier that has the content, if any has.
    pub fn tier(self) -> Option<usize> {
        (self.place as usize & 7).checked_sub(1)
    }

    /// In a pool: the unit's object.
    pub fn object(self) -> Object {
        Object((self.place >> 8) as u32)
    }

    /// In a file: the page of its unit.
    pub fn index(self) -> usize {
        (self.seal >> INDEX_SHIFT) as usize & ((1 << INDEX_BITS) - 1)
    }

    /// In a file: the unit of which `slot` is a part.
    pub fn unit(self, slot: u32) -> UnitId {
        UnitId {
            slot: slot - self.index() as u32,
            len: (self.place >> LEN_SHIFT) as u32 & ((1 << LEN_BITS) - 1),
            order: Order::new((self.seal >> ORDER_SHIFT) as usize & ((1 << ORDER_BITS) - 1)),
            codec: Codec::from_bits(self.place >> 3),
        }
    }

    /// In a file: the nonce of its unit.
    pub fn nonce(self) -> u64 {
        self.seal & ((1 << NONCE_BITS) - 1)
    }

    /// In a file: where the unit begins.
    pub fn offset(self) -> u64 {
        (self.place >> OFFSET_SHIFT) * UNIT_ALIGN as u64
    }

    /// In a file: the segment that the unit is in.
    pub fn segment(self) -> Segment {
        Segment::at(self.offset())
    }

    /// A page's part of its unit's bytes in the file.
    pub fn share_bytes(self) -> u64 {
        let id = self.unit(self.index() as u32);
        (id.stored_bytes() / id.order.pages()) as u64
    }

    /// Whether two slots `apart` pages apart are of the same unit in the file.
    pub fn same_unit(self, other: Record, apart: usize) -> bool {
        self.place == other.place && self.seal.wrapping_add((apart as u64) << INDEX_SHIFT) == other.seal
    }
}

/// What a shard's lock covers, besides its slots' records.
pub(crate) struct Shard {
    pub pools: [PoolShard; MAX_TIERS],
}

/// Records in a page of the table.
const RECORDS_PER_PAGE: usize = PAGE_BYTES / size_of::<Record>();

/// The records of all slots. All-zero memory is a table of no slots.
pub(crate) struct Records {
    slots: u32,
    table: usize,
    /// One byte for each page of the table: touched.
    touched: usize,
    touched_pages: AtomicU64,
    shards: [SpinLock<Shard>; SHARDS],
}

/// Sizes of the regions of a table for so many slots: the records, and which of its pages are touched.
pub(crate) fn table_bytes(slots: u32) -> [usize; 2] {
    let table = slots as usize * size_of::<Record>();
    [table, table.div_ceil(PAGE_BYTES)]
}

impl Records {
    /// Sets the records up in two zeroed regions of [`table_bytes`].
    pub fn set(&mut self, slots: u32, table: usize, touched: usize) {
        (self.slots, self.table, self.touched) = (slots, table, touched);
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Whether all of so many slots exist.
    pub fn in_range(&self, first: SlotId, pages: usize) -> bool {
        first.0 as usize + pages <= self.slots as usize
    }

    /// Bytes of the table that were touched.
    pub fn touched_bytes(&self) -> u64 {
        self.touched_pages.load(Relaxed) * PAGE_BYTES as u64
    }

    /// All shards.
    pub fn shards(&self) -> &[SpinLock<Shard>; SHARDS] {
        &self.shards
    }

    /// Locks the shard of a slot, and of all others of its cluster.
    pub fn lock(&self, slot: u32) -> Guard<'_, Shard> {
        self.shards[(slot >> CLUSTER_ORDER) as usize % SHARDS].lock()
    }

    /// The record of a slot in a locked shard.
    pub fn get(&self, _shard: &Guard<'_, Shard>, slot: u32) -> Record {
        debug_assert!(slot < self.slots);
        // SAFETY: the table has a record for each slot, and the shard's lock is held.
        unsafe { (self.table as *const Record).add(slot as usize).read() }
    }

    /// Changes the record of a slot in a locked shard.
    pub fn put(&self, _shard: &Guard<'_, Shard>, slot: u32, record: Record) {
        debug_assert!(slot < self.slots);
        let page = slot as usize / RECORDS_PER_PAGE;
        // SAFETY: one byte for each page of the table; the shard's lock is held.
        unsafe {
            let touched = &*((self.touched + page) as *const AtomicU8);
            if touched.load(Relaxed) == 0 {
                touched.store(1, Relaxed);
                self.touched_pages.fetch_add(1, Relaxed);
            }
            (self.table as *mut Record).add(slot as usize).write(record);
        }
    }
}
