//! What an object is: its size class, its header, and its place in the pool.
use crate::compress::Codec;
use crate::limits::{MAX_POOL_BYTES, MAX_SLOTS, SPAN_BYTES};

/// Bytes before an object's payload.
pub(crate) const HEADER_BYTES: usize = 8;
/// Object addresses are multiples of this.
pub(super) const GRAIN: usize = 64;

/// Number of size classes.
pub(super) const CLASSES: usize = 32 + 16 + 1 + 16 + 13;

/// Object sizes: steps of 64 bytes, from 2 KiB on 128, from 4 KiB on 256, from 8 KiB on 512 (3 % loss on
/// average at worst), and one exact fit for a raw page, without which raw pages would lose 6 %.
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
            } else {
                512
            }
        };
        table[i] = size;
        i += 1;
    }
    table
};

// What is known of a span counts its objects in 16 bits.
const _: () = assert!(CLASS_BYTES[CLASSES - 1] as usize <= SPAN_BYTES && SPAN_BYTES / GRAIN <= u16::MAX as usize);
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
    pub live: u8,
    /// The unit is a chunk, not a page.
    pub chunk: bool,
    /// Payload bytes.
    pub len: u16,
    pub codec: Codec,
}

/// Half a page: about what a page is compressed to.
pub(super) const PREFETCH_BYTES: usize = 2048;

/// In the place of a header: the object is free. The low 16 bits are the next free object's index + 1.
pub(super) const FREE: u64 = 1 << 63;
const SLOT_BITS: u32 = 26;
const _: () = assert!(MAX_SLOTS <= 1 << SLOT_BITS);

impl Header {
    pub(super) fn pack(self) -> u64 {
        self.slot as u64
            | (self.live as u64) << SLOT_BITS
            | (self.chunk as u64) << 30
            | (self.len as u64) << 32
            | (self.codec as u64) << 48
    }
    pub(super) fn unpack(word: u64) -> Header {
        Header {
            slot: word as u32 & ((1 << SLOT_BITS) - 1),
            live: (word >> SLOT_BITS) as u8 & 15,
            chunk: word >> 30 & 1 != 0,
            len: (word >> 32) as u16,
            codec: Codec::from_bits(word >> 48),
        }
    }
}

/// An object: its offset in the pool in units of 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object(pub u32);
