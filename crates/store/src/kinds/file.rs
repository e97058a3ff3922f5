//! The file as a tier: sealed units in segments of files, and slots that point there.
use super::unit::Unit;
use super::{Kind, OptionError, Parameters, Words};
use crate::broken::{self, Broken};
use crate::compress::{Codec, Worker, decode};
use crate::config::{InitError, SetUp};
use crate::file::{self, Memory, UNIT_HEADER_BYTES, UnitId};
use crate::io::FileIo;
use crate::limits::{FILE_SLACK_BYTES, SEGMENT_BYTES, TIMED_READS, VOLUME_ORDER};
use crate::lock::Guard;
use crate::record::{Record, Shard};
use crate::regions::Regions;
use crate::state::Tiers;
use crate::stats::add;
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::store::StoreError;
use outswap_core::units::{Order, PAGE_BYTES};
use outswap_sys::os;

/// An encrypted file without a name. At most one tier is a file, and nothing is moved further down from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File;

impl Kind for File {
    const IN_FILE: bool = true;

    fn parse<'a>(_: &mut Words<'a>) -> Result<File, OptionError<'a>> {
        Ok(File)
    }
    fn unpack(_: Parameters) -> Option<File> {
        Some(File)
    }
    /// What is not compressed is read by the page: a larger unit would be read, and its seal opened, for the one that is wanted.
    fn unit_order(self) -> Option<Order> {
        Some(Order::PAGE)
    }
    fn set_up<I: FileIo>(
        store: &mut Tiers<I>,
        _: usize,
        asked: &SetUp<'_>,
        regions: &mut Regions,
    ) -> Result<(), InitError> {
        store.set_up_file(asked, regions)
    }
    fn put<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        _: Parameters,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        store.put_file(tier, unit, worker)
    }
    fn get<I: FileIo>(
        store: &Tiers<I>,
        _: usize,
        shard: Guard<'_, Shard>,
        record: Record,
        slot: u32,
        out: &mut [u8],
        worker: &mut Worker,
    ) -> Result<Option<usize>, StoreError> {
        store.get_file(shard, record, slot, out, worker)
    }
    fn free<I: FileIo>(store: &Tiers<I>, _: usize, shard: Guard<'_, Shard>, record: Record, _: u32, _: bool) {
        store.free_file(shard, record);
    }
}

impl<I: FileIo> Tiers<I> {
    /// Maps the file's tables and opens it.
    pub(super) fn set_up_file(&mut self, asked: &SetUp<'_>, regions: &mut Regions) -> Result<(), InitError> {
        let all = self.records.slots() as u64 * PAGE_BYTES as u64;
        // Twice what the slots can hold: segments that are half dead, and those of other processes of the tree.
        let bytes = if asked.max_bytes == 0 { 2 * all + FILE_SLACK_BYTES } else { asked.max_bytes };
        // One more: the cleaner's way out of a file that is full to the last.
        let segments = (bytes / SEGMENT_BYTES as u64 + 1).clamp(1, 1 << VOLUME_ORDER) as usize;
        let [family, usage, keys, buffers] = file::memory_bytes(segments);
        let mut map = |bytes, shared| regions.map(bytes, shared).map_err(InitError::System);
        let memory = Memory {
            family: map(family, true)?,
            usage: map(usage, false)?,
            keys: map(keys, false)?,
            buffers: map(buffers, false)?,
        };
        *self.cleaning_buffer.lock() = map(SEGMENT_BYTES, false)?;
        self.file.set(&self.io, &memory, segments as u32, asked).map_err(InitError::System)
    }

    /// Seals a unit, packed where that was done, and appends it to the file.
    pub(super) fn put_file(&self, tier: usize, unit: &Unit<'_>, worker: &mut Worker) -> Result<(), StoreError> {
        let (first, pages) = (unit.first, unit.pages());
        let packed = unit.packed.and_then(|(by, len)| len.map(|len| (by.codec, len)));
        let (codec, len) = packed.unwrap_or((Codec::Raw, unit.raw.len()));
        let id = UnitId { slot: first, len: len as u32, order: unit.order(), codec };
        let Worker { packed: buffer, sealed, .. } = worker;
        let payload = if packed.is_some() { &buffer[..len] } else { unit.raw };
        let seal = self.file.seal(id, payload, sealed).ok_or(StoreError::Full)?;
        let offset = self.append(sealed, seal, pages as u32)?;
        let shard = self.records.lock(first);
        let mut bytes = 0;
        for i in 0..pages {
            let record = Record::file(tier, id, i, offset, seal.nonce);
            bytes += record.share_bytes();
            self.records.put(&shard, first + i as u32, record);
        }
        drop(shard);
        self.count_file_bytes(offset, bytes, 0);
        add(&self.stats.pages_out_file, pages as u64);
        Ok(())
    }

    /// Reads what one unit in a file has of `out`, from `slot` on. Returns the pages read; `None` where the unit was moved
    /// meanwhile.
    pub(super) fn get_file(
        &self,
        shard: Guard<'_, Shard>,
        record: Record,
        slot: u32,
        out: &mut [u8],
        worker: &mut Worker,
    ) -> Result<Option<usize>, StoreError> {
        let want = out.len() / PAGE_BYTES;
        let id = record.unit(slot);
        let skip = self.skipped(record);
        let most = want.min(id.pages() as usize - skip);
        let run = (1..most).find(|&i| !record.same_unit(self.records.get(&shard, slot + i as u32), i)).unwrap_or(most);
        drop(shard);
        let is_timed = self.stats.pages_in_file.load(Relaxed).is_multiple_of(TIMED_READS);
        let start_ns = is_timed.then(os::monotonic_ns);
        let read = self.file.read(&self.io, id, record.nonce(), record.offset(), &mut worker.packed, &self.stats);
        if read.is_err() && self.records.get(&self.records.lock(slot), slot) != record {
            // The cleaner moved the unit meanwhile.
            return Ok(None);
        }
        read.inspect_err(|&e| {
            if e == StoreError::Corrupt {
                self.corrupt();
            }
        })?;
        let out = &mut out[..run * PAGE_BYTES];
        let unit = id.pages() as usize * PAGE_BYTES;
        let Worker { packed, scratch, .. } = worker;
        let src = &packed[UNIT_HEADER_BYTES..UNIT_HEADER_BYTES + id.len as usize];
        decode(id.codec, src, unit, skip * PAGE_BYTES, out, scratch).map_err(|()| self.corrupt())?;
        self.count_read(record, run);
        if let Some(start_ns) = start_ns {
            add(&self.stats.file_read_ns, os::monotonic_ns().saturating_sub(start_ns));
            add(&self.stats.file_pages_timed, run as u64);
        }
        Ok(Some(run))
    }

    /// Counts pages that were read from a unit in a file.
    pub(crate) fn count_read(&self, record: Record, pages: usize) {
        add(&self.stats.pages_in_file, pages as u64);
        let newer_units = self.file.segments.keys.sealed().saturating_sub(record.nonce());
        let unit_pages = record.unit(record.index() as u32).pages() as u64;
        if newer_units.saturating_mul(unit_pages) < self.near_pages.load(Relaxed) {
            add(&self.stats.pages_in_file_near, pages as u64);
        }
    }

    /// Pages of a unit in a file that stand before the one of a record.
    pub(crate) fn skipped(&self, record: Record) -> usize {
        if broken::is(Broken::IndexIgnored) { 0 } else { record.index() }
    }

    /// Frees a slot whose content is in a file, as its record said.
    pub(super) fn free_file(&self, shard: Guard<'_, Shard>, record: Record) {
        drop(shard);
        self.count_file_bytes(record.offset(), 0, record.share_bytes());
        self.file.segments.release(&self.io, record.segment(), 1);
    }
}
