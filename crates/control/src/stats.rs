//! What a process counts.
use crate::fingerprint;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Log2 buckets of the fault latency histogram: bucket `i` counts latencies in `[2^i, 2^(i+1))` ns.
pub const LATENCY_BUCKETS: usize = 40;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident = $key:literal),* $(,)?) => {
        /// Counters and gauges of a process.
        #[repr(usize)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Stat { $($(#[$doc])* $name),* }
        /// Names of the statistics, in the order of [`Stat`]. Names that end in `_bytes` are gauges, all others count up.
        pub const STAT_NAMES: &[&str] = &[$($key),*];
        /// All statistics.
        pub const ALL_STATS: &[Stat] = &[$(Stat::$name),*];
    };
}
stats! {
    /// Gauge: managed memory mapped in the program.
    ResidentBytes = "resident_bytes",
    /// Gauge: pages in frames: isolated, being written out, or read ahead.
    IsolatedBytes = "cached_bytes",
    /// Gauge: compressed or plain RAM pool, in pages really held.
    PoolBytes = "pool_bytes",
    /// Gauge: bytes of stored objects in the pool (utilisation = this / pool_bytes).
    PoolUsedBytes = "pool_used_bytes",
    /// Gauge: runtime tables and buffers.
    TablesBytes = "tables_bytes",
    /// Gauge: bytes of live data in the swap file.
    FileBytes = "file_bytes",
    /// Gauge: memory that the swap file takes, where its directory lies in memory.
    FileMemoryBytes = "file_memory_bytes",
    /// Gauge: other anonymous memory of the process (stacks, libraries' data).
    UnmanagedBytes = "unmanaged_bytes",
    /// Gauge: what counts in the budget.
    ChargeBytes = "charge_bytes",
    /// Highest value of resident + cached.
    PeakResidentBytes = "peak_resident_bytes",
    /// Highest value of pool.
    PeakPoolBytes = "peak_pool_bytes",
    /// Highest value of tables.
    PeakTablesBytes = "peak_tables_bytes",
    /// Highest value of file.
    PeakFileBytes = "peak_file_bytes",
    /// Highest charge.
    PeakChargeBytes = "peak_charge_bytes",
    /// Faults: first touch of an untouched or known-zero page.
    FaultFirstTouch = "fault_first_touch",
    /// Faults: page found in the swap cache.
    FaultHit = "fault_hit",
    /// Faults: content read from a store that is not memory, while others were read ahead.
    FaultMiss = "fault_miss",
    /// Faults: content read straight from a store that is memory, perhaps with neighbours.
    FaultBypass = "fault_bypass",
    /// Faults that had to wait for another thread's work on the same page.
    FaultWaited = "fault_waited",
    /// Nanoseconds that faults waited: for other threads, for the store, or for the kernel to be ready.
    FaultWaitNs = "fault_wait_ns",
    /// Nanoseconds that faults took in all, from the handler's begin to its end, with what they waited and made room for.
    FaultNs = "fault_ns",
    /// Pages installed by first-touch faults (neighbours included).
    PagesFirstTouch = "pages_first_touch",
    /// Of these, pages that are mapped as the zero page until they are written to.
    PagesZeroMapped = "pages_zero_mapped",
    /// The same that are left to the kernel, which fills them as they are touched.
    PagesUntrapped = "pages_untrapped",
    /// Huge pages that first touches brought.
    HugeIn = "huge_in",
    /// Pages written to a compressed or plain RAM tier.
    PagesOutRam = "pages_out_ram",
    /// Pages read from a RAM tier.
    PagesInRam = "pages_in_ram",
    /// Pages written to the file tier.
    PagesOutFile = "pages_out_file",
    /// Pages read from the file tier.
    PagesInFile = "pages_in_file",
    /// Bytes written to the file.
    BytesOutFile = "out_file_written_total",
    /// Bytes read from the file.
    BytesInFile = "in_file_read_total",
    /// Writes of the file: one for a segment of 256 KiB, or for what there is of one at a fork.
    FileWrites = "file_writes",
    /// Reads of the file that were made at the same time as others.
    FileReadsTogether = "file_reads_together",
    /// Requests that tiers which are slowed to a device have made of it.
    DeviceRequests = "device_requests",
    /// Nanoseconds that the device took for them, of each from when it was made.
    DeviceNs = "device_ns",
    /// Nanoseconds of these that were waited.
    DeviceWaitNs = "device_wait_ns",
    /// Bytes that went into compression.
    CompressIn = "compress_in_total",
    /// Bytes that came out of compression.
    CompressOut = "compress_out_total",
    /// Pages evicted by going back to the slot that still held their content.
    PagesClean = "pages_clean",
    /// Those of them that were not even looked at: they were write-protected, and nobody wrote to them.
    PagesUnwritten = "pages_unwritten",
    /// Write-protected pages that were written: taken over in place, their slot given up.
    PagesReused = "pages_reused",
    /// Pages that came back along with an isolated page of their block that was touched.
    PagesPutBack = "pages_put_back",
    /// Pages read ahead of faults, into frames.
    PagesReadAhead = "pages_read_ahead",
    /// Those of them that were wanted.
    PagesAheadHit = "pages_ahead_hit",
    /// Those of them that were dropped before anybody wanted them.
    PagesAheadDropped = "pages_ahead_dropped",
    /// Pages of streams that were brought in while the program was at the block before.
    PagesStreamedAhead = "pages_streamed_ahead",
    /// Pages found to be all zero and not stored.
    PagesZero = "pages_zero",
    /// Pages taken out of the program's reach.
    PagesTaken = "pages_taken",
    /// Pages taken by write-protect and copy: shared by fork, or scattered over their block.
    PagesTakenByCopy = "pages_taken_by_copy",
    /// Folios swapped out whole.
    FoliosOut = "folios_out",
    /// Folio swap-outs that fell back to smaller ones or single pages.
    FolioFallbacks = "folio_fallbacks",
    /// Parts of 256 KiB that were swapped out as part of a larger folio.
    FolioBlocks = "folio_blocks",
    /// Folios swapped in whole.
    FoliosIn = "folios_in",
    /// Looks at what the program has used.
    Looks = "looks",
    /// Nanoseconds that they took.
    LookNs = "look_ns",
    /// Reclaim done by a thread of the program.
    DirectReclaims = "direct_reclaims",
    /// Reclaim done in the background.
    BackgroundReclaims = "background_reclaims",
    /// Nanoseconds that threads of the program took for pages taken, and frames freed, on behalf of the background thread. Part of
    /// [`Stat::FaultNs`].
    TakeNs = "take_ns",
    /// Nanoseconds of a processor that reclaim took in the background.
    BackgroundNs = "background_ns",
    /// System calls assisted in a wrapper.
    CallsWrapped = "calls_wrapped",
    /// System calls assisted after a trap.
    CallsTrapped = "calls_trapped",
    /// Calls of the C library's functions on memory that was there, made without a trap.
    CallsDirect = "calls_direct",
    /// Forks of managed processes.
    Forks = "forks",
    /// Pages of shared anonymous mappings that were managed from the start.
    SharedPages = "shared_pages",
    /// Shared mappings that were made whole, and are the kernel's since.
    SharedWhole = "shared_whole",
    /// Pages mapped of these then.
    SharedWholePages = "shared_whole_pages",
    /// Those of them that held something, and were copied.
    SharedCopiedPages = "shared_copied_pages",
    /// Pages of shared memory that was the kernel's from the start: `memfd_create`, and anonymous memory that cannot be managed.
    SharedUnmanagedPages = "shared_unmanaged_pages",
    /// Times the budget could not be held.
    OverBudget = "over_budget",
    /// Units that did not compress and were stored raw.
    RawUnits = "raw_units",
    /// Writes refused by a full store.
    StoreFull = "store_full",
    /// Batches of pages that were not given to a store because it had refused others.
    StorePassedBy = "store_passed_by",
    /// Times that a thread slept because it wanted memory and the store was full.
    FullWaits = "full_waits",
    /// Nanoseconds of that.
    FullWaitNs = "full_wait_ns",
    /// Pages that could not be read from a store.
    StoreErrors = "store_errors",
    /// Writes to the file that failed.
    WriteErrors = "write_errors",
    /// Units whose checksum did not match.
    Corruptions = "corruptions",
    /// Warnings given.
    Warnings = "warnings",
    /// Sum of the pool's size over all looks at the budget, KiB.
    PoolSeenKib = "pool_seen_kib",
    /// Sum of what was used of the pool over the same looks, KiB.
    PoolUsedSeenKib = "pool_used_seen_kib",
}
/// How many statistics there are.
pub const STAT_COUNT: usize = STAT_NAMES.len();

/// Counters of one process, or the sum of those that ended.
#[repr(C)]
pub struct Counters {
    /// Indexed by [`Stat`].
    pub stats: [AtomicU64; STAT_COUNT],
    /// Fault latencies, log2 buckets of nanoseconds.
    pub latency_ns: [AtomicU64; LATENCY_BUCKETS],
}

/// Goes on with how the counters lie in memory.
pub(crate) const fn layout(hash: u64) -> u64 {
    fingerprint::layout!(hash, Counters { stats, latency_ns })
}

impl Counters {
    /// Nothing counted.
    pub const fn zero() -> Counters {
        Counters {
            stats: [const { AtomicU64::new(0) }; STAT_COUNT],
            latency_ns: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }
    /// Reads one statistic.
    pub fn get(&self, stat: Stat) -> u64 {
        self.stats[stat as usize].load(Relaxed)
    }
    /// Adds to a counter.
    pub fn add(&self, stat: Stat, n: u64) {
        self.stats[stat as usize].fetch_add(n, Relaxed);
    }
    /// Sets a gauge.
    pub fn set(&self, stat: Stat, n: u64) {
        self.stats[stat as usize].store(n, Relaxed);
    }
    /// Moves all of `other` here: counters and peaks are added, gauges of the moment are dropped. Whoever is killed at it
    /// loses one number, and whoever goes on with it counts none twice.
    pub fn fold(&self, other: &Counters) {
        for &stat in ALL_STATS {
            let n = other.stats[stat as usize].swap(0, Relaxed);
            let name = STAT_NAMES[stat as usize];
            if !name.ends_with("_bytes") || name.starts_with("peak_") {
                self.add(stat, n);
            }
        }
        for (to, from) in self.latency_ns.iter().zip(&other.latency_ns) {
            to.fetch_add(from.swap(0, Relaxed), Relaxed);
        }
    }
    /// Sets everything to zero.
    pub fn clear(&self) {
        self.stats.iter().chain(&self.latency_ns).for_each(|s| s.store(0, Relaxed));
    }
}
