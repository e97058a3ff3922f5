//! Reading for the pager: what of several runs stands in a file is fetched together, neighbours in one read.
use crate::broken::{self, Broken};
use crate::compress::{Worker, decode};
use crate::file::{Range, UNIT_HEADER_BYTES, Wanted};
use crate::io::FileIo;
use crate::limits::{FETCH_BYTES, FETCH_GAP_BYTES, FETCH_UNITS, SEGMENT_BYTES};
use crate::record::Record;
use crate::state::Tiers;
use outswap_core::store::{Run, StoreError};
use outswap_core::units::PAGE_BYTES;

/// A unit of which pages are wanted.
#[derive(Clone, Copy)]
struct Part {
    slot: u32,
    pages: u32,
    /// Where they go, in pages.
    at: u32,
    record: Record,
    /// Which range of [`Batch::wanted`] has the unit, and where in the buffer it will stand.
    range: usize,
    buffered_at: usize,
}

/// Units that are fetched together.
struct Batch {
    parts: [Part; FETCH_UNITS],
    len: usize,
    wanted: Wanted,
}

impl Batch {
    const EMPTY: Batch = Batch {
        parts: [Part { slot: 0, pages: 0, at: 0, record: Record::NONE, range: 0, buffered_at: 0 }; FETCH_UNITS],
        len: 0,
        wanted: Wanted::NOTHING,
    };

    /// Adds a unit. False where there is no room.
    fn add(&mut self, part: Part) -> bool {
        let (offset, bytes) = (part.record.offset(), part.record.unit(part.slot).sealed_bytes());
        let ranges = &mut self.wanted.ranges[..self.wanted.len];
        let (end, room) = (ranges.last().map_or(0, |last| last.at + last.bytes), self.len < FETCH_UNITS);
        if let Some(last) = ranges.last_mut()
            && let Some(gap) = offset.checked_sub(last.offset + last.bytes as u64)
            && gap <= FETCH_GAP_BYTES
            && offset / SEGMENT_BYTES as u64 == last.offset / SEGMENT_BYTES as u64
            && end + gap as usize + bytes <= FETCH_BYTES
            && room
            && !broken::is(Broken::NeighboursApart)
        {
            let buffered_at = end + gap as usize;
            last.bytes = buffered_at + bytes - last.at;
            self.parts[self.len] = Part { range: ranges.len() - 1, buffered_at, ..part };
        } else if end + bytes <= FETCH_BYTES && room {
            self.parts[self.len] = Part { range: ranges.len(), buffered_at: end, ..part };
            self.wanted.ranges[self.wanted.len] = Range { offset, bytes, at: end };
            self.wanted.len += 1;
        } else {
            return false;
        }
        self.len += 1;
        true
    }
}

impl<I: FileIo> Tiers<I> {
    /// Reads runs of slots into one buffer.
    pub(crate) fn fetch(&self, runs: &[Run], out: &mut [u8], worker: &mut Worker) -> Result<(), StoreError> {
        let mut batch = Batch::EMPTY;
        for run in runs {
            if !self.records.in_range(run.first, run.pages as usize) {
                return Err(StoreError::Corrupt);
            }
            let mut done = 0;
            while done < run.pages {
                let (slot, at) = (run.first.0 + done, run.at + done);
                let shard = self.records.lock(slot);
                let record = self.records.get(&shard, slot);
                let tier = record.tier().ok_or(StoreError::Corrupt)?;
                let end = (run.at + run.pages) as usize * PAGE_BYTES;
                if self.order.file != Some(tier) {
                    let out = &mut out[at as usize * PAGE_BYTES..end];
                    done += self.read_unit(tier, shard, record, slot, out, worker)?.unwrap_or(0) as u32;
                    continue;
                }
                let most = (run.pages - done).min(record.unit(slot).pages() - record.index() as u32);
                let same = |&i: &u32| !record.same_unit(self.records.get(&shard, slot + i), i as usize);
                let pages = (1..most).find(same).unwrap_or(most);
                drop(shard);
                if batch.add(Part { slot, pages, at, record, range: 0, buffered_at: 0 }) {
                    done += pages;
                } else {
                    self.fetch_batch(&mut batch, out, worker)?;
                }
            }
        }
        self.fetch_batch(&mut batch, out, worker)
    }

    /// Fetches what is gathered, and begins anew.
    fn fetch_batch(&self, batch: &mut Batch, out: &mut [u8], worker: &mut Worker) -> Result<(), StoreError> {
        if batch.len > 1 {
            self.file.fetch(&self.io, &mut batch.wanted, &mut worker.fetched, &self.stats);
        }
        for part in &batch.parts[..batch.len] {
            let from = part.at as usize * PAGE_BYTES;
            let out = &mut out[from..from + part.pages as usize * PAGE_BYTES];
            let fetched = batch.len > 1 && batch.wanted.has(part.range);
            if fetched && self.open(part, out, worker) {
                continue;
            }
            // Alone it is tried again, also at where the cleaner may have moved it.
            let mut done = 0;
            while done < part.pages {
                let out = &mut out[done as usize * PAGE_BYTES..];
                done += self.get_unit(part.slot + done, out, worker)? as u32;
            }
        }
        (batch.len, batch.wanted) = (0, Wanted::NOTHING);
        Ok(())
    }

    /// Opens the seal of a unit that was fetched, and decodes what is wanted of it. False where it is not what was stored.
    fn open(&self, part: &Part, out: &mut [u8], worker: &mut Worker) -> bool {
        let Part { record, slot, buffered_at, .. } = *part;
        let (id, skip) = (record.unit(slot), self.skipped(record));
        let Worker { fetched, scratch, .. } = worker;
        let Some(unit) = fetched.get_mut(buffered_at..buffered_at + id.sealed_bytes()) else { return false };
        if !self.file.open(id, record.nonce(), record.offset(), unit) {
            return false;
        }
        let payload = &unit[UNIT_HEADER_BYTES..UNIT_HEADER_BYTES + id.len as usize];
        let unit_bytes = id.pages() as usize * PAGE_BYTES;
        let decoded = decode(id.codec, payload, unit_bytes, skip * PAGE_BYTES, out, scratch).is_ok();
        if decoded {
            self.count_read(record, part.pages as usize);
        }
        decoded
    }
}
