//! What an object is: its size class, its header, and its place in the pool.
use crate::compress::{Codec, worthwhile};
use crate::limits::{MAX_POOL_BYTES, MAX_SLOTS, MAX_UNIT_BYTES, MAX_UNIT_ORDER, MAX_UNIT_PAGES, SPAN_BYTES};
use outswap_core::units::Order;

/// Bytes before an object's payload.
pub(crate) const HEADER_BYTES: usize = 8;
/// Object addresses are multiples of this.
pub(super) const GRAIN: usize = 64;

/// Number of size classes.
pub(super) const CLASSES: usize = 32 + 16 + 1 + 16 + 16 + 16 + 13;

/// Object sizes: steps of 64 bytes, from 2 KiB on 128, from 4 KiB on 256 and so on, to what the largest unit takes that is worth
/// compressing (3 % loss on average at worst), and one exact fit for a raw page, without which raw pages would lose 6 %.
pub(super) const CLASS_BYTES: [u16; CLASSES] = {
    let mut table = [0; CLASSES];
    let (mut i, mut size) = (0, 0);
    while i < CLASSES {
        size = if size == 4096 {
            4160
        } else if size == 4160 {
            4352
        } else {
            size + if size < 2048 {
                64
            } else if size < 4096 {
                128
            } else if size < 8192 {
                256
            } else if size < 16384 {
                512
            } else if size < 32768 {
                1024
            } else {
                2048
            }
        };
        table[i] = size;
        i += 1;
    }
    table
};

// What is known of a span counts its objects in 16 bits.
const _: () = assert!(CLASS_BYTES[CLASSES - 1] as usize <= SPAN_BYTES && SPAN_BYTES / GRAIN <= u16::MAX as usize);
// Whatever is worth compressing has a class.
const _: () = assert!(HEADER_BYTES + worthwhile(MAX_UNIT_BYTES) <= CLASS_BYTES[CLASSES - 1] as usize);
// An object's number has 32 bits.
const _: () = assert!(MAX_POOL_BYTES <= GRAIN as u64 * (1 << 32));

/// The smallest class for an object of `bytes`, header included.
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    let class = CLASS_BYTES.partition_point(|&size| (size as usize) < bytes);
    (class < CLASSES).then_some(class)
}

/// Objects of a class that a span has room for.
pub(super) fn span_objects(class: usize) -> usize {
    SPAN_BYTES / CLASS_BYTES[class] as usize
}

/// What stands before an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// First slot of the unit.
    pub slot: u32,
    /// One bit for each page of the unit that is still in use.
    pub live: u16,
    /// The unit's order.
    pub order: Order,
    /// Payload bytes.
    pub len: u16,
    pub codec: Codec,
}

/// Half a page: about what a page is compressed to.
pub(super) const PREFETCH_BYTES: usize = 2048;

/// In the place of a header: the object is free. The low 16 bits are the next free object's index + 1.
pub(super) const FREE: u64 = 1 << 63;
const SLOT_BITS: u32 = 26;
const LIVE_SHIFT: u32 = SLOT_BITS;
const LEN_SHIFT: u32 = LIVE_SHIFT + u16::BITS;
const ORDER_SHIFT: u32 = LEN_SHIFT + u16::BITS;
const ORDER_BITS: u32 = 3;
const CODEC_SHIFT: u32 = ORDER_SHIFT + ORDER_BITS;
const CODEC_BITS: u32 = 2;
const _: () = assert!(MAX_SLOTS <= 1 << SLOT_BITS && MAX_UNIT_PAGES <= u16::BITS as usize);
const _: () = assert!(MAX_UNIT_ORDER.get() < 1 << ORDER_BITS && 1 << (CODEC_SHIFT + CODEC_BITS) <= FREE);

impl Header {
    /// That of a new object: all pages of its unit are in use. What is longer than a length has bits for has no class either.
    pub fn new(slot: u32, order: Order, codec: Codec, len: usize) -> Header {
        Header { slot, live: (u16::MAX) >> (u16::BITS as usize - order.pages()), order, len: len as u16, codec }
    }

    pub(super) fn pack(self) -> u64 {
        self.slot as u64
            | (self.live as u64) << LIVE_SHIFT
            | (self.len as u64) << LEN_SHIFT
            | (self.order.get() as u64) << ORDER_SHIFT
            | (self.codec as u64) << CODEC_SHIFT
    }
    pub(super) fn unpack(word: u64) -> Header {
        Header {
            slot: word as u32 & ((1 << SLOT_BITS) - 1),
            live: (word >> LIVE_SHIFT) as u16,
            len: (word >> LEN_SHIFT) as u16,
            order: Order::new((word >> ORDER_SHIFT) as usize & ((1 << ORDER_BITS) - 1)),
            codec: Codec::from_bits(word >> CODEC_SHIFT),
        }
    }
}

/// An object: its offset in the pool in units of 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object(pub u32);
