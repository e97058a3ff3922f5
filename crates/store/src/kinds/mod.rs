//! The kinds of tiers, one file each. Here they are registered: a new one has an arm in each `match` below, a variant of
//! [`Tier`] and its configuration. The rest of the store knows which tiers are in RAM, and which one is the file.
mod unit;
mod ram;
mod compressed;
mod file;

use crate::compress::Worker;
use crate::config::{Config, InitError, Tier};
use crate::io::FileIo;
use crate::record::Record;
use crate::regions::Regions;
use crate::state::Tiers;
use outswap_core::store::StoreError;
use outswap_core::units::SlotId;
pub(crate) use unit::Unit;

impl<I: FileIo> Tiers<I> {
    /// Maps and opens what a tier needs.
    pub(crate) fn set_up(&mut self, tier: usize, config: &Config<'_>, regions: &mut Regions) -> Result<(), InitError> {
        match self.order.tier(tier) {
            Tier::None => Ok(()),
            Tier::Ram | Tier::Compressed(_) => self.set_up_pool(tier, &config.tiers[tier], regions),
            Tier::File => self.set_up_file(config, &config.tiers[tier], regions),
        }
    }

    /// Offers a unit to a tier.
    ///
    /// # Errors
    /// The tier does not take it, or not all of it: then `unit.stored_pages` says what is to be freed.
    pub(crate) fn offer(&self, tier: usize, unit: &mut Unit<'_>, worker: &mut Worker) -> Result<(), StoreError> {
        match self.order.tier(tier) {
            Tier::None => Err(StoreError::Full),
            Tier::Ram => self.put_ram(tier, unit, worker),
            Tier::Compressed(compressor) => self.put_compressed(tier, compressor, unit, worker),
            Tier::File => self.put_file(tier, unit, worker),
        }
    }

    /// Reads what one unit has of `out`, from `slot` on. Returns the pages read.
    pub(crate) fn get_unit(&self, slot: u32, out: &mut [u8], worker: &mut Worker) -> Result<usize, StoreError> {
        loop {
            let shard = self.records.lock(slot);
            let record = self.records.get(&shard, slot);
            let Some(tier) = record.tier() else { return Err(StoreError::Corrupt) };
            match self.order.tier(tier) {
                Tier::None => return Err(StoreError::Corrupt),
                Tier::Ram | Tier::Compressed(_) => return self.get_ram(tier, shard, record, slot, out, worker),
                Tier::File => {
                    if let Some(pages) = self.get_file(shard, record, slot, out, worker)? {
                        return Ok(pages);
                    }
                }
            }
        }
    }

    /// Frees a slot. With `wipe`, its object is overwritten first, if no other slot shares it.
    pub(crate) fn free_slot(&self, slot: SlotId, wipe: bool) {
        if !self.records.in_range(slot, 1) {
            return;
        }
        let shard = self.records.lock(slot.0);
        let record = self.records.get(&shard, slot.0);
        let Some(tier) = record.tier() else { return };
        self.records.put(&shard, slot.0, Record::default());
        match self.order.tier(tier) {
            Tier::None => {}
            Tier::Ram | Tier::Compressed(_) => self.free_ram(tier, shard, record, slot.0, wipe),
            Tier::File => self.free_file(shard, record),
        }
    }

    /// Whether reading `slot` needs no file (see "synchronous store").
    pub fn is_synchronous(&self, slot: SlotId) -> bool {
        let shard = self.records.lock(slot.0);
        let tier = self.records.get(&shard, slot.0).tier();
        tier.is_none_or(|tier| self.order.tier(tier) != Tier::File)
    }
}
