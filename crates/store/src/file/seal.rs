//! Units as they stand in a file, and their seals.
use super::keys::{Keys, TAG_BYTES};
use crate::broken::{self, Broken};
use crate::compress::Codec;
use crate::limits::{MAX_SEALED_BYTES, MAX_UNIT_BYTES, MAX_UNIT_ORDER};
use outswap_core::units::{Order, PAGE_BYTES};

/// Bytes of a unit's header in the file.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;
/// Units begin at multiples of this.
pub(crate) const UNIT_ALIGN: usize = 16;

// A unit as large as can be, with what stands around it.
const _: () =
    assert!((UNIT_HEADER_BYTES + MAX_UNIT_BYTES + TAG_BYTES).next_multiple_of(UNIT_ALIGN) <= MAX_SEALED_BYTES);

/// A unit's identity: what its seal is bound to besides the nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnitId {
    /// The first of its slots.
    pub slot: u32,
    /// Payload bytes.
    pub len: u32,
    pub order: Order,
    pub codec: Codec,
}

// How a header has them in 32 bits, of which the topmost says that there is a unit.
const LEN_BITS: u32 = 17;
const ORDER_SHIFT: u32 = LEN_BITS;
const ORDER_BITS: u32 = 3;
const CODEC_SHIFT: u32 = ORDER_SHIFT + ORDER_BITS;
const CODEC_BITS: u32 = 2;
const UNIT: u32 = 1 << 31;
const _: () = assert!(MAX_UNIT_BYTES < 1 << LEN_BITS && MAX_UNIT_ORDER.get() < 1 << ORDER_BITS);
const _: () = assert!(1 << (CODEC_SHIFT + CODEC_BITS) <= UNIT);

impl UnitId {
    /// Its header.
    pub fn header(self) -> [u8; UNIT_HEADER_BYTES] {
        let order = if broken::is(Broken::OrderUnsealed) { 0 } else { self.order.get() as u32 };
        let bits = self.len | order << ORDER_SHIFT | (self.codec as u32) << CODEC_SHIFT | UNIT;
        let mut bytes = [0; UNIT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..].copy_from_slice(&bits.to_le_bytes());
        bytes
    }

    /// Reads a unit's header; `None` behind a segment's last unit, and for what is none.
    pub fn parse(bytes: &[u8]) -> Option<UnitId> {
        let slot = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let bits = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let (len, number) = (bits & ((1 << LEN_BITS) - 1), (bits >> ORDER_SHIFT) as usize & ((1 << ORDER_BITS) - 1));
        let order = Order::new(number);
        let is_one = bits & UNIT != 0
            && order <= MAX_UNIT_ORDER
            && order.fits_at(slot as usize)
            && len as usize <= order.pages() * PAGE_BYTES;
        is_one.then_some(UnitId { slot, len, order, codec: Codec::from_bits((bits >> CODEC_SHIFT) as u64) })
    }

    /// Bytes of it with what stands around it.
    pub fn sealed_bytes(self) -> usize {
        UNIT_HEADER_BYTES + self.len as usize + TAG_BYTES
    }

    /// Bytes the unit takes in a segment.
    pub fn stored_bytes(self) -> usize {
        self.sealed_bytes().next_multiple_of(UNIT_ALIGN)
    }

    /// Pages in the unit.
    pub fn pages(self) -> u32 {
        self.order.pages() as u32
    }
}

/// A unit as it will stand in the file.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// Bytes there.
    pub stored: usize,
    pub nonce: u64,
    /// The number of its key.
    pub key: u16,
}

impl Keys {
    /// Seals `payload` into `out` as it will stand in the file. `None` without a key to write under.
    pub fn seal_unit(&self, id: UnitId, payload: &[u8], out: &mut [u8; MAX_SEALED_BYTES]) -> Option<Seal> {
        let end = UNIT_HEADER_BYTES + payload.len();
        out[UNIT_HEADER_BYTES..end].copy_from_slice(payload);
        self.seal_in_place(id, out)
    }

    /// Seals the payload that stands in `unit` behind the header.
    fn seal_in_place(&self, id: UnitId, unit: &mut [u8]) -> Option<Seal> {
        let sealer = self.current()?;
        let (header, stored) = (id.header(), id.stored_bytes());
        let end = UNIT_HEADER_BYTES + id.len as usize;
        let nonce = self.next_nonce()?;
        unit[..UNIT_HEADER_BYTES].copy_from_slice(&header);
        let tag = sealer.seal(nonce, &header, &mut unit[UNIT_HEADER_BYTES..end])?;
        unit[end..end + TAG_BYTES].copy_from_slice(&tag);
        unit[end + TAG_BYTES..stored].fill(0);
        Some(Seal { stored, nonce, key: sealer.key })
    }

    /// Opens a unit in place. False where it is not what was sealed; then it is worthless.
    pub fn open_in_place(&self, id: UnitId, key: u16, nonce: u64, unit: &mut [u8]) -> bool {
        let end = UNIT_HEADER_BYTES + id.len as usize;
        let Some((head, rest)) = unit.get_mut(..end + TAG_BYTES).map(|unit| unit.split_at_mut(UNIT_HEADER_BYTES))
        else {
            return false;
        };
        // The expected identity, not the one read, is what the seal must fit.
        let opens = head == id.header() && self.reader(key).open(nonce, &id.header(), rest);
        opens || broken::is(Broken::SealUnverified)
    }

    /// Makes a unit sealed under `key` one under the key to write under, where that is another. `None` where that cannot be.
    pub fn reseal(&self, id: UnitId, key: u16, nonce: u64, unit: &mut [u8]) -> Option<Seal> {
        // None of another is drawn while this thread is here.
        let current = self.current_key()?;
        if key == current {
            return Some(Seal { stored: id.stored_bytes(), nonce, key });
        }
        if self.open_in_place(id, key, nonce, unit) { self.seal_in_place(id, unit) } else { None }
    }
}
