//! Relocation: whose a unit in a segment is, and how its slots come to have it in another place.
use crate::broken::{self, Broken};
use crate::file::UnitId;
use crate::io::FileIo;
use crate::record::Record;
use crate::state::Tiers;

impl<I: FileIo> Tiers<I> {
    /// Calls `each` with the units of a segment, in turn, while it returns true.
    pub(crate) fn for_units(&self, bytes: &mut [u8], mut each: impl FnMut(UnitId, usize, &mut [u8]) -> bool) {
        let mut at = 0;
        while let Some(id) = UnitId::parse(bytes.get(at..).unwrap_or(&[])) {
            let end = at + id.stored_bytes();
            if end > bytes.len() || id.slot as usize + id.pages() as usize > self.records.slots() as usize {
                return;
            }
            if !each(id, at, &mut bytes[at..end]) {
                return;
            }
            at = end;
        }
    }

    /// Whether a record is that of `slot` in a unit at `from`.
    fn is_at(&self, record: Record, slot: u32, id: UnitId, from: u64) -> bool {
        record.tier() == self.order.file
            && record.offset() == from
            && slot - id.slot == record.index() as u32
            && record.unit(slot) == id
    }

    /// The nonce of a unit, where any of its slots is live.
    pub(crate) fn find_unit(&self, id: UnitId, from: u64) -> Option<u64> {
        let shard = self.records.lock(id.slot);
        let mut of_unit = (0..id.pages()).map(|i| (self.records.get(&shard, id.slot + i), id.slot + i));
        of_unit.find(|&(record, slot)| self.is_at(record, slot, id, from)).map(|(record, _)| record.nonce())
    }

    /// Makes the live slots of a unit those of its copy at `to`. Returns how many there were.
    pub(crate) fn repoint(&self, id: UnitId, from: u64, nonce: u64, to: u64, new_nonce: u64) -> u32 {
        let shard = self.records.lock(id.slot);
        let mut moved = 0;
        for i in 0..id.pages() {
            let record = self.records.get(&shard, id.slot + i);
            // The nonce tells this unit from a later one in the same place.
            if self.is_at(record, id.slot + i, id, from) && record.nonce() == nonce {
                let file = self.order.file.unwrap_or(0);
                if !broken::is(Broken::CleanForgotten) {
                    self.records.put(&shard, id.slot + i, Record::file(file, id, i as usize, to, new_nonce));
                }
                moved += 1;
            }
        }
        moved
    }
}
