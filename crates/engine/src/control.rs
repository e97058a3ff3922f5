//! The control block: one shared memory file for a whole process tree.
//!
//! The supervisor (`outswap run`) makes it, fills in [`Config`], and passes it to the program as an inherited
//! descriptor named in [`ENV`]. Every managed process maps it, takes one [`Process`] record, and publishes what
//! it uses and counts there. All fields that change are atomics, because every process of the tree writes here;
//! nothing in it is needed to find a page again, so a process that dies at any instant harms nobody.
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Environment variable that names the control block, as `FD:PATH`: an inherited descriptor, and a path to
/// open where the descriptor was closed.
pub const ENV: &str = "OUTSWAP_CONTROL";
/// First bytes of a control block.
pub const MAGIC: u64 = 0x4f55_5453_5741_5031;
/// Layout version; supervisor and preload library must agree.
pub const VERSION: u32 = 1;
/// Processes of one tree that can be managed at the same time; later ones run unmanaged, with a warning.
pub const MAX_PROCESSES: usize = 512;
/// Tiers of a swap specification.
pub const MAX_TIERS: usize = 4;
/// Messages that wait for the supervisor; further ones are counted and dropped.
pub const MAX_MESSAGES: usize = 64;
/// Bytes of one message.
pub const MESSAGE_BYTES: usize = 240;
/// Log2 buckets of the fault latency histogram: bucket `i` counts latencies in `[2^i, 2^(i+1))` ns.
pub const LATENCY_BUCKETS: usize = 40;

/// Kinds of tier, as stored in [`Tier::kind`].
pub mod tier {
    /// No tier here.
    pub const NONE: u32 = 0;
    /// Uncompressed RAM.
    pub const RAM: u32 = 1;
    /// Compressed RAM.
    pub const COMPRESSED: u32 = 2;
    /// Encrypted, unlinked file.
    pub const FILE: u32 = 3;
    /// LZ4.
    pub const LZ4: u32 = 0;
    /// Zstandard.
    pub const ZSTD: u32 = 1;
}

/// Fault sources, as stored in [`Config::fault_source`].
pub mod source {
    /// The best that works here.
    pub const AUTO: u32 = 0;
    /// userfaultfd with `UFFDIO_MOVE`.
    pub const MOVE: u32 = 1;
    /// userfaultfd with `UFFDIO_COPY`.
    pub const COPY: u32 = 2;
    /// mprotect and SIGSEGV.
    pub const MPROTECT: u32 = 3;
}

/// One tier of the swap specification, in order from the fastest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tier {
    /// One of [`tier`]'s kinds.
    pub kind: u32,
    /// Compressor (`tier::LZ4` or `tier::ZSTD`).
    pub algorithm: u32,
    /// Compression level (zstd), 0 for the default.
    pub level: i32,
    pad: u32,
    /// Limit in bytes, 0 for none.
    pub max_bytes: u64,
}

/// What the command line asked for. Written before the program starts, read-only afterwards.
#[repr(C)]
pub struct Config {
    /// Budget for the anonymous memory of the whole tree, in bytes; 0 for none.
    pub ram_bytes: u64,
    /// Limit of resident managed memory of the whole tree, in bytes; 0 for none.
    pub resident_bytes: u64,
    /// One of [`source`].
    pub fault_source: u32,
    /// 1: exec'd children are not managed.
    pub no_follow: u32,
    /// 1: the program keeps its own allocator.
    pub keep_malloc: u32,
    /// Pad to 8 bytes.
    pub reserved: u32,
    /// Tiers, unused ones have kind `NONE`.
    pub tiers: [Tier; MAX_TIERS],
    /// Directory of the swap file, NUL-terminated.
    pub swap_dir: [u8; 1024],
    /// Value of `LD_PRELOAD` that managed children get first, NUL-terminated.
    pub preload: [u8; 2048],
}

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
    /// Gauge: managed memory in staging frames (the swap cache).
    CachedBytes = "cached_bytes",
    /// Gauge: compressed or plain RAM pool, in pages really held.
    PoolBytes = "pool_bytes",
    /// Gauge: bytes of stored objects in the pool (utilisation = this / pool_bytes).
    PoolUsedBytes = "pool_used_bytes",
    /// Gauge: engine tables and buffers.
    TablesBytes = "tables_bytes",
    /// Gauge: bytes of live data in the swap file.
    FileBytes = "file_bytes",
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
    /// Faults: content read from a store through readahead.
    FaultMiss = "fault_miss",
    /// Faults: content read from a store for this page alone.
    FaultBypass = "fault_bypass",
    /// Faults that had to wait for another thread's work on the same page.
    FaultWaited = "fault_waited",
    /// Pages installed by first-touch faults (neighbours included).
    PagesFirstTouch = "pages_first_touch",
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
    /// Bytes that went into compression.
    CompressIn = "compress_in_total",
    /// Bytes that came out of compression.
    CompressOut = "compress_out_total",
    /// Pages evicted by going back to the slot that still held their content.
    PagesClean = "pages_clean",
    /// Pages found to be all zero and not stored.
    PagesZero = "pages_zero",
    /// Pages taken out of the program's reach.
    PagesTaken = "pages_taken",
    /// Pages taken by write-protect and copy: shared by fork, or scattered over their block.
    PagesTakenByCopy = "pages_taken_by_copy",
    /// Folios swapped out whole.
    FoliosOut = "folios_out",
    /// Folio swap-outs that fell back to single pages.
    FolioFallbacks = "folio_fallbacks",
    /// Folios swapped in whole.
    FoliosIn = "folios_in",
    /// Reclaim done by a thread of the program.
    DirectReclaims = "direct_reclaims",
    /// Reclaim done in the background.
    BackgroundReclaims = "background_reclaims",
    /// System calls assisted in a wrapper.
    CallsWrapped = "calls_wrapped",
    /// System calls assisted after a trap.
    CallsTrapped = "calls_trapped",
    /// Forks of managed processes.
    Forks = "forks",
    /// Times the budget could not be held.
    OverBudget = "over_budget",
    /// Units that did not compress and were stored raw.
    RawUnits = "raw_units",
    /// Writes refused by a full store.
    StoreFull = "store_full",
    /// Read or write errors of a store.
    StoreErrors = "store_errors",
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

/// The record of one managed process.
#[repr(C, align(64))]
pub struct Process {
    /// Process id; 0: free; -1: being folded into the tree's sums.
    pub pid: AtomicI32,
    /// Fault source in use ([`source`]).
    pub fault_source: AtomicU32,
    /// Anonymous memory of this process as counted in the budget, bytes.
    pub charge_bytes: AtomicU64,
    /// Counters.
    pub counters: Counters,
}

/// One message for the supervisor's standard error.
#[repr(C)]
pub struct Message {
    /// 0 free, 1 being written, 2 ready.
    pub state: AtomicU32,
    /// Length of the text.
    pub len: AtomicU32,
    /// The text, without the `outswap: ` at its head.
    pub text: core::cell::UnsafeCell<[u8; MESSAGE_BYTES]>,
}

/// The whole block.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Process id of the supervisor.
    pub supervisor_pid: i32,
    /// What was asked for.
    pub config: Config,
    /// Sum of the charges of all live processes, bytes.
    pub charge_bytes: AtomicU64,
    /// Highest value of `charge_bytes`.
    pub peak_charge_bytes: AtomicU64,
    /// Raised by a process that is over the budget and cannot shrink alone; others wait on it.
    pub pressure: AtomicU32,
    /// Managed processes ever started.
    pub processes_started: AtomicU32,
    /// Children that were run unmanaged.
    pub processes_unmanaged: AtomicU32,
    /// Messages dropped because the queue was full.
    pub messages_dropped: AtomicU32,
    /// Sums over processes that ended.
    pub ended: Counters,
    /// Messages.
    pub messages: [Message; MAX_MESSAGES],
    /// Records of live processes.
    pub processes: [Process; MAX_PROCESSES],
}

// SAFETY: the only non-atomic field that changes is a message's text, which belongs to whoever moved its state
// from 0 to 1, and to the one reader once the state is 2.
unsafe impl Sync for Message {}

impl Counters {
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
    /// Adds all of `other` to this: counters and peaks are summed, gauges of the moment are left out.
    pub fn fold(&self, other: &Counters) {
        for &stat in ALL_STATS {
            let name = STAT_NAMES[stat as usize];
            if !name.ends_with("_bytes") || name.starts_with("peak_") {
                self.add(stat, other.get(stat));
            }
        }
        for (to, from) in self.latency_ns.iter().zip(&other.latency_ns) {
            to.fetch_add(from.load(Relaxed), Relaxed);
        }
    }
    /// Sets everything to zero.
    pub fn clear(&self) {
        self.stats.iter().chain(&self.latency_ns).for_each(|s| s.store(0, Relaxed));
    }
}

impl Control {
    /// Folds the record of an ended process into the sums and frees it. Returns whether this caller did it.
    pub fn fold(&self, process: &Process, pid: i32) -> bool {
        if process.pid.compare_exchange(pid, -1, AcqRel, Relaxed).is_err() {
            return false;
        }
        self.charge_bytes.fetch_sub(process.charge_bytes.swap(0, AcqRel), AcqRel);
        self.ended.fold(&process.counters);
        process.counters.clear();
        process.pid.store(0, Release);
        true
    }

    /// Queues a message for the supervisor; counted and dropped where the queue is full.
    pub fn post(&self, text: &[u8]) {
        for message in &self.messages {
            if message.state.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                let len = text.len().min(MESSAGE_BYTES);
                // SAFETY: moving the state from 0 to 1 made the text ours.
                unsafe { (&mut *message.text.get())[..len].copy_from_slice(&text[..len]) };
                message.len.store(len as u32, Relaxed);
                message.state.store(2, Release);
                return;
            }
        }
        self.messages_dropped.fetch_add(1, Relaxed);
    }

    /// Hands every waiting message to `print` and frees it.
    pub fn drain(&self, mut print: impl FnMut(&[u8])) {
        for message in &self.messages {
            if message.state.load(Acquire) == 2 {
                let len = message.len.load(Relaxed) as usize;
                // SAFETY: state 2 makes the text the reader's; there is one reader, the supervisor.
                print(unsafe { &(&*message.text.get())[..len] });
                message.state.store(0, Release);
            }
        }
    }
}
