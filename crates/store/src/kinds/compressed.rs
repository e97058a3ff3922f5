//! Compressed RAM tiers: pools of units that one compressor has packed.
use super::unit::Unit;
use crate::compress::{Compressor, Worker};
use crate::io::FileIo;
use crate::state::Tiers;
use crate::stats::add;
use outswap_core::store::StoreError;

impl<I: FileIo> Tiers<I> {
    /// Puts a unit into a compressed tier.
    pub(super) fn put_compressed(
        &self,
        tier: usize,
        compressor: Compressor,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let len = match unit.packed {
            Some((by, len)) if by == compressor => len,
            _ => self.pack(compressor, unit, worker),
        };
        let result = match len {
            None if unit.skip_incompressible => return Err(StoreError::Full),
            None => self.put_raw(tier, unit, worker),
            Some(len) => self.put_packed(tier, compressor, len, unit, worker),
        };
        if result.is_err() && Some(tier) == self.order.last_ram {
            // Making room uses the worker's buffer.
            unit.packed = None;
        }
        result
    }

    /// Compresses a unit into the worker's buffer. `None` where that saves too little.
    fn pack(&self, compressor: Compressor, unit: &mut Unit<'_>, worker: &mut Worker) -> Option<usize> {
        let len = compressor.compress(unit.raw, worker);
        add(&self.stats.compress_in_total, unit.raw.len() as u64);
        add(&self.stats.compress_out_total, len.unwrap_or(unit.raw.len()) as u64);
        if len.is_none() {
            add(&self.stats.raw_units, 1);
        }
        unit.packed = Some((compressor, len));
        len
    }

    /// Stores what the worker has packed, making room where this is the last RAM tier.
    fn put_packed(
        &self,
        tier: usize,
        compressor: Compressor,
        len: usize,
        unit: &Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let insert = |packed: &[u8]| self.insert(tier, unit.first, unit.order(), compressor.codec, packed);
        if insert(&worker.packed[..len]).is_ok() {
            return Ok(());
        }
        if Some(tier) != self.order.last_ram {
            return Err(StoreError::Full);
        }
        // Making room uses the worker's buffer, so the unit is packed again afterwards, which is seldom.
        loop {
            if !self.make_room(worker) {
                return Err(StoreError::Full);
            }
            let len = compressor.compress(unit.raw, worker).ok_or(StoreError::Full)?;
            if insert(&worker.packed[..len]).is_ok() {
                return Ok(());
            }
        }
    }
}
