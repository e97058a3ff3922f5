//! Tiers in RAM: each keeps its units in a pool. The plain one keeps single pages as they are.
use super::unit::Unit;
use super::{Kind, OptionError, Parameters, Words};
use crate::broken::{self, Broken};
use crate::compress::{Codec, Worker, decode};
use crate::config::InitError;
use crate::io::FileIo;
use crate::limits::{
    CLUSTER_ORDER, MAX_POOL_BYTES, MIN_POOL_BYTES, POOL_ADDRESS_SPACE_PARTS, POOL_SLACK_BYTES, POOL_SPAN_END_PARTS,
    SPAN_BYTES,
};
use crate::lock::Guard;
use crate::pool::{self, Header, NoRoom};
use crate::record::{Record, Shard};
use crate::regions::{Regions, address_space_limit_bytes};
use crate::state::Tiers;
use crate::stats::add;
use outswap_core::device::Request;
use outswap_core::store::StoreError;
use outswap_core::units::{Order, PAGE_BYTES};

/// Pages in RAM as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ram;

impl Kind for Ram {
    const IN_POOL: bool = true;

    fn parse<'a>(_: &mut Words<'a>) -> Result<Ram, OptionError<'a>> {
        Ok(Ram)
    }
    fn unpack(_: Parameters) -> Option<Ram> {
        Some(Ram)
    }
    fn put<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        _: Parameters,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let result = store.put_raw(tier, unit, worker);
        if result.is_err() {
            // Making room uses the worker's buffer.
            unit.packed = None;
        }
        result
    }
}

impl<I: FileIo> Tiers<I> {
    /// Maps a pool for a tier, as large as it may ever be where address space allows.
    pub(super) fn set_up_pool(&mut self, tier: usize, max_bytes: u64, regions: &mut Regions) -> Result<(), InitError> {
        let max = if max_bytes == 0 { u64::MAX } else { max_bytes };
        let all = self.records.slots() as u64 * PAGE_BYTES as u64;
        let ends = max.saturating_add(max / POOL_SPAN_END_PARTS);
        let want = ends.min(all + all / 16).saturating_add(POOL_SLACK_BYTES).min(MAX_POOL_BYTES);
        let limit_bytes = address_space_limit_bytes();
        let mut bytes = limit_bytes.map_or(want, |limit| want.min(limit / POOL_ADDRESS_SPACE_PARTS)) as usize;
        loop {
            bytes = (bytes / SPAN_BYTES).max(1) * SPAN_BYTES;
            match regions.map(bytes, false) {
                Ok(base) => {
                    let spans = regions.map(pool::table_bytes(bytes), false).map_err(InitError::System)?;
                    self.pools[tier].set(base, bytes, spans, max);
                    return Ok(());
                }
                Err(e) if bytes <= MIN_POOL_BYTES => return Err(InitError::System(e)),
                Err(_) => bytes /= 2,
            }
        }
    }

    /// Stores a unit as one object.
    pub(super) fn insert(
        &self,
        tier: usize,
        first: u32,
        order: Order,
        codec: Codec,
        payload: &[u8],
    ) -> Result<(), NoRoom> {
        let mut shard = self.records.lock(first);
        let header = Header::new(first, order, codec, payload.len());
        let object = self.pools[tier].insert(&mut shard.pools[tier], header, payload, &self.budget)?;
        for i in 0..order.pages() as u32 {
            self.records.put(&shard, first + i, Record::ram(tier, object));
        }
        add(&self.stats.pages_out_ram, order.pages() as u64);
        Ok(())
    }

    /// Stores a unit as it is, making room where this is the last RAM tier.
    pub(super) fn put_raw(&self, tier: usize, unit: &mut Unit<'_>, worker: &mut Worker) -> Result<(), StoreError> {
        // Raw units are stored by page: the largest object is smaller than the largest of them, and any page
        // can then be freed alone.
        let codec = if broken::is(Broken::RawAsCompressed) { Codec::Lz4 } else { Codec::Raw };
        for (i, page) in unit.raw.chunks_exact(PAGE_BYTES).enumerate() {
            while self.insert(tier, unit.first + i as u32, Order::PAGE, codec, page).is_err() {
                if Some(tier) != self.order.last_ram || !self.make_room(worker) {
                    unit.stored_pages = i;
                    return Err(StoreError::Full);
                }
            }
        }
        Ok(())
    }

    /// Reads what one unit in a pool has of `out`, from `slot` on. Returns the pages read.
    pub(super) fn get_ram(
        &self,
        tier: usize,
        shard: Guard<'_, Shard>,
        record: Record,
        slot: u32,
        out: &mut [u8],
        worker: &mut Worker,
    ) -> Result<usize, StoreError> {
        let want = out.len() / PAGE_BYTES;
        let pool = &self.pools[tier];
        let header = pool.header(record.object());
        let skip = (slot - header.slot) as usize;
        let size = header.order.pages();
        let most = want.min(size - skip.min(size - 1));
        let run = (1..most).find(|&i| self.records.get(&shard, slot + i as u32) != record).unwrap_or(most);
        let after = slot + run as u32;
        if run < want && after >> CLUSTER_ORDER == slot >> CLUSTER_ORDER && after < self.records.slots() {
            let next = self.records.get(&shard, after);
            if next.tier() == Some(tier) {
                pool.prefetch(next.object());
            }
        }
        let out = &mut out[..run * PAGE_BYTES];
        let payload = pool.payload(record.object(), header);
        let Worker { packed, scratch, requests, .. } = worker;
        let (offset, bytes) = (slot as u64 * PAGE_BYTES as u64, (run * PAGE_BYTES) as u64);
        requests.add(&self.paces, tier, Request { is_write: false, offset, bytes });
        let (unit, skip) = (size * PAGE_BYTES, skip * PAGE_BYTES);
        let decoded = if header.codec == Codec::Zstd {
            // Too slow to keep others waiting.
            let packed = &mut packed[..payload.len()];
            packed.copy_from_slice(payload);
            drop(shard);
            decode(header.codec, packed, unit, skip, out, scratch)
        } else {
            // As fast as copying it: decoded where it lies.
            let decoded = decode(header.codec, payload, unit, skip, out, scratch);
            drop(shard);
            decoded
        };
        if decoded.is_err() {
            return Err(self.corrupt());
        }
        add(&self.stats.pages_in_ram, run as u64);
        Ok(run)
    }

    /// Frees a slot whose content is in a pool, as its record said. With `wipe`, its object is overwritten first, if no other
    /// slot shares it.
    pub(super) fn free_ram(&self, tier: usize, mut shard: Guard<'_, Shard>, record: Record, slot: u32, wipe: bool) {
        let (pool, object) = (&self.pools[tier], record.object());
        let mut header = pool.header(object);
        header.live &= !(1 << (slot - header.slot));
        if header.live != 0 && !broken::is(Broken::LiveIgnored) {
            pool.set_header(object, header);
            return;
        }
        if wipe {
            pool.wipe(object, header);
        }
        let span = pool.remove(&mut shard.pools[tier], object);
        drop(shard);
        self.release(tier, span);
    }
}
