//! The store itself: what its mechanisms share.
use crate::config::TierOrder;
use crate::file::FileTier;
use crate::io::FileIo;
use crate::limits::MAX_TIERS;
use crate::lock::SpinLock;
use crate::pace::{Pace, Paced};
use crate::pool::{Budget, Pool, SpanRef};
use crate::record::Records;
use crate::regions::Regions;
use crate::ring::RingIo;
use crate::stats::{StoreStats, add};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use outswap_core::store::StoreError;

/// The tiers of a swap specification, as one store.
pub struct Tiers<I: FileIo = RingIo> {
    pub(crate) order: TierOrder,
    pub(crate) records: Records,
    /// Those of the RAM tiers, by the tier's number.
    pub(crate) pools: [Pool; MAX_TIERS],
    pub(crate) budget: Budget,
    pub(crate) file: FileTier,
    /// The files lie in memory, and count as the pools do; and the most that all of it may be.
    pub(crate) file_in_memory: AtomicBool,
    pub(crate) memory_limit_bytes: AtomicU64,
    /// See [`StoreStats::pages_in_file_near`].
    pub(crate) near_pages: AtomicU64,
    /// Where the cleaner reads a segment, and whether it ever did.
    pub(crate) cleaning_buffer: SpinLock<usize>,
    pub(crate) cleaning_used: AtomicU32,
    pub(crate) stats: StoreStats,
    pub(crate) regions: Regions,
    /// The system, as slow as the file's device where it has one.
    pub(crate) io: Paced<I>,
    /// Of the tiers in RAM, by the tier's number.
    pub(crate) paces: [Pace; MAX_TIERS],
}

impl<I: FileIo> Tiers<I> {
    /// Gives a pool a span that became free; not under a lock.
    pub(crate) fn release(&self, tier: usize, span: Option<SpanRef>) {
        if let Some(span) = span {
            self.pools[tier].release(span, &self.budget);
        }
    }

    /// Gives back the memory of free spans of all pools. Returns the bytes.
    pub(crate) fn discard_cached(&self) -> u64 {
        self.order.ram().map(|t| self.pools[t].discard_cached(&self.budget)).sum()
    }

    /// Bytes of memory that the own file takes; 0 where it lies on a disk.
    pub(crate) fn file_memory_bytes(&self) -> u64 {
        if self.order.file.is_some() && self.file_in_memory.load(Relaxed) { self.file.own_bytes() } else { 0 }
    }

    /// Whether more in the file would be more memory than the store may have.
    pub(crate) fn is_memory_used_up(&self) -> bool {
        let file_bytes = self.file_memory_bytes();
        let all_bytes = file_bytes.saturating_add(self.budget.held_bytes.load(Relaxed));
        file_bytes > 0 && all_bytes > self.memory_limit_bytes.load(Relaxed)
    }

    /// Counts what became live, or no longer is, at an offset of a file.
    pub(crate) fn count_file_bytes(&self, offset: u64, added: u64, removed: u64) {
        add(&self.stats.file_live_bytes, added.wrapping_sub(removed));
        self.file.segments.count_own(offset, added, removed);
    }

    /// Counts a unit that came back changed.
    pub(crate) fn corrupt(&self) -> StoreError {
        add(&self.stats.corruptions, 1);
        StoreError::Corrupt
    }
}
