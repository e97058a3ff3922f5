//! Spilling: the oldest units of the RAM tiers move to the file, so that there is room for newer ones.
use crate::broken::{self, Broken};
use crate::compress::Worker;
use crate::file::{Segment, UnitId};
use crate::io::FileIo;
use crate::limits::WAIT_SPINS;
use crate::pool::SpanRef;
use crate::record::Record;
use crate::state::Tiers;
use crate::stats::add;
use outswap_core::store::StoreError;
use outswap_sys::os;

impl<I: FileIo> Tiers<I> {
    /// Gives back pool memory, or moves something down. False where nothing could be done.
    pub(crate) fn make_room(&self, worker: &mut Worker) -> bool {
        self.discard_cached() > 0 || self.compact() || self.spill(worker) == Ok(true)
    }

    /// Moves the oldest span of the last RAM tier that has any to the file. `Ok(false)`: there is nothing to move.
    pub(crate) fn spill(&self, worker: &mut Worker) -> Result<bool, StoreError> {
        let Some(file) = self.order.file else { return Ok(false) };
        let mut busy = false;
        let mut oldest: Option<(u64, usize, usize)> = None;
        for tier in self.order.ram().filter(|&t| t < file) {
            for (i, shard) in self.records.shards().iter().enumerate() {
                let shard = shard.lock();
                let part = &shard.pools[tier];
                if part.spilling {
                    busy = true;
                } else if let Some(birth) = self.pools[tier].oldest_birth(part)
                    && oldest.is_none_or(|(least, ..)| birth < least)
                {
                    oldest = Some((birth, tier, i));
                }
            }
        }
        let Some((_, tier, index)) = oldest else {
            return Ok(busy && self.wait_for_spill(file));
        };
        let pool = &self.pools[tier];
        let Some(span) = pool.drain_begin(&mut self.records.shards()[index].lock().pools[tier]) else {
            return Ok(true);
        };
        let result = self.spill_span(file, tier, index, span, worker);
        let empty = pool.drain_end(&mut self.records.shards()[index].lock().pools[tier], span);
        self.release(tier, empty);
        result.map(|()| true)
    }

    /// Waits for another thread that is spilling what there is. False where that takes too long.
    fn wait_for_spill(&self, file: usize) -> bool {
        let spilling =
            || self.records.shards().iter().any(|shard| shard.lock().pools[..file].iter().any(|part| part.spilling));
        for waits in 0..WAIT_SPINS {
            if !spilling() {
                return true;
            }
            os::wait_a_little(waits);
        }
        false
    }

    fn spill_span(
        &self,
        file: usize,
        tier: usize,
        index: usize,
        span: SpanRef,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let pool = &self.pools[tier];
        let mut from = 0;
        loop {
            let (object, header) = {
                let _shard = self.records.shards()[index].lock();
                let Some((i, object)) = pool.next_live(span, from) else { return Ok(()) };
                from = i + 1;
                let header = pool.header(object);
                worker.packed[..header.len as usize].copy_from_slice(pool.payload(object, header));
                (object, header)
            };
            let id = UnitId { slot: header.slot, len: header.len as u32, order: header.order, codec: header.codec };
            let Worker { packed, sealed, .. } = worker;
            let seal = self.file.seal(id, &packed[..header.len as usize], sealed).ok_or(StoreError::Full)?;
            let offset = self.append(sealed, seal, id.pages())?;
            let mut bytes = 0;
            let mut moved = 0;
            {
                let mut shard = self.records.shards()[index].lock();
                // A draining span takes nothing new and is not compacted: a live object here is the one copied.
                if let Some(header) = pool.still_live(object, id.slot) {
                    for i in 0..id.pages() {
                        if header.live >> i & 1 != 0 && !broken::is(Broken::SpillForgotten) {
                            let record = Record::file(file, id, i as usize, offset, seal.nonce);
                            self.records.put(&shard, id.slot + i, record);
                            bytes += record.share_bytes();
                            moved += 1;
                        }
                    }
                    if !broken::is(Broken::SpilledStays) {
                        let none = pool.remove(&mut shard.pools[tier], object);
                        debug_assert!(none.is_none(), "a draining span is its spiller's");
                    }
                }
            }
            self.count_file_bytes(offset, bytes, 0);
            add(&self.stats.pages_out_file, moved as u64);
            let segment = Segment::at(offset);
            self.file.segments.release(&self.io, segment, id.pages() - moved);
        }
    }
}
