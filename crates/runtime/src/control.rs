//! The control block: what the processes of one tree share with each other and with their supervisor.
//!
//! The supervisor (`outswap run`) makes two memory files. The first holds the [`Config`], and is sealed before anybody else
//! sees it: nothing can change it any more, so paths and limits in it can be trusted. The second, [`Shared`], is what every
//! process of the tree maps to publish what it uses and counts, and what it has to say. It cannot change its length, but
//! every process can write anything there, also one with fewer rights than the others: all of it is checked where it is
//! read, and the worst that it can do is to be wrong. Nothing in it is needed to find a page again, so a process that dies at
//! any instant harms nobody.
//!
//! The program inherits both as descriptors with neighbouring numbers, named in [`ENV`].
use core::ops::Deref;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use outswap_sys::{Errno, os};

/// Environment variable that names the control block; see [`Place`].
pub const ENV: &str = "OUTSWAP_CONTROL";
/// First bytes of a configuration.
pub const MAGIC: u64 = 0x4f55_5453_5741_5031;
/// Layout version; supervisor and preload library must agree.
pub const VERSION: u32 = 2;
/// Runs inside each other whose limits all hold; those further out are not obeyed.
pub const MAX_LEVELS: usize = 4;
/// Processes of one tree that are counted at the same time; later ones obey the limit, but do not count in it.
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

/// Bytes of the longest value of [`ENV`], with a NUL.
pub const PLACE_BYTES: usize = 64;

/// What the command line asked for, and what else never changes during a run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Process id of the supervisor.
    pub supervisor_pid: i32,
    /// Descriptor under which the supervisor keeps this file; [`Shared`] is under the next one.
    pub supervisor_fd: i32,
    /// One of [`source`].
    pub fault_source: u32,
    /// Device and inode of the file that holds [`Shared`].
    pub shared_file: [u64; 2],
    /// Random bits that say where the gate is, see [`crate::layout::place_gate`]. A run inside another has those of the outermost,
    /// whose filter all processes inherit.
    pub gate: u64,
    /// Budget for the anonymous memory of the whole tree, in bytes; 0 for none.
    pub ram_bytes: u64,
    /// Limit of resident managed memory of the whole tree, in bytes; 0 for none.
    pub resident_bytes: u64,
    /// 1: exec'd children are not managed.
    pub no_follow: u32,
    /// 1: the program keeps its own allocator.
    pub keep_malloc: u32,
    /// Tiers, unused ones have kind `NONE`.
    pub tiers: [Tier; MAX_TIERS],
    /// Value of [`ENV`] in the run around this one, NUL-terminated; empty where there is none.
    pub outer: [u8; PLACE_BYTES],
    /// Directory of the swap file, NUL-terminated.
    pub swap_dir: [u8; 1024],
    /// Value of `LD_PRELOAD` that managed children get first, NUL-terminated.
    pub preload: [u8; 2048],
}

impl Config {
    /// Nothing asked for.
    pub const EMPTY: Config = Config {
        magic: MAGIC,
        version: VERSION,
        supervisor_pid: 0,
        supervisor_fd: -1,
        fault_source: source::AUTO,
        shared_file: [0; 2],
        gate: 0,
        ram_bytes: 0,
        resident_bytes: 0,
        no_follow: 0,
        keep_malloc: 0,
        tiers: [Tier { kind: tier::NONE, algorithm: 0, level: 0, pad: 0, max_bytes: 0 }; MAX_TIERS],
        outer: [0; PLACE_BYTES],
        swap_dir: [0; 1024],
        preload: [0; 2048],
    };
    /// The bytes that go into the file.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: integers and arrays of them without padding in between, as the assertion below says.
        unsafe { core::slice::from_raw_parts((self as *const Config).cast(), size_of::<Config>()) }
    }
}
const _: () = assert!(size_of::<Config>() == 72 + MAX_TIERS * size_of::<Tier>() + PLACE_BYTES + 1024 + 2048);
const _: () = assert!(size_of::<Tier>() == 24);

/// The part of a NUL-terminated field before the NUL.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
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
    IsolatedBytes = "cached_bytes",
    /// Gauge: compressed or plain RAM pool, in pages really held.
    PoolBytes = "pool_bytes",
    /// Gauge: bytes of stored objects in the pool (utilisation = this / pool_bytes).
    PoolUsedBytes = "pool_used_bytes",
    /// Gauge: runtime tables and buffers.
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
    /// Process id; 0: free; negative: process `-pid` is folding it into the tree's sums.
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
    /// 0: free; positive: the process that writes it; [`READY`]: written.
    pub state: AtomicI32,
    /// Length of the text.
    pub len: AtomicU32,
    /// The text, without the `outswap: ` at its head.
    pub text: [AtomicU8; MESSAGE_BYTES],
}
/// State of a message that is written.
pub const READY: i32 = -1;

/// What is said once in a run, though it holds for every process from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Once {
    /// There are more processes than records.
    Full,
    /// A process has no swap file.
    NoFile,
    /// A process that was forked by one that has a swap file has none.
    NoFileAfterFork,
    /// A system call names more memory than may be resident at once.
    TooLong,
}
impl Once {
    fn text(self) -> &'static [u8] {
        match self {
            Once::Full => b"warning: too many managed processes: some obey the limit, but do not count in it",
            Once::NoFile => b"warning: the swap file cannot be made (see --swap-dir); nothing is written to disk",
            Once::NoFileAfterFork => {
                b"warning: after a fork, a process cannot make a swap file of its own (see --swap-dir): it writes nothing to disk"
            }
            Once::TooLong => {
                b"warning: a system call names more memory at once than half of what may be resident: it fails with ENOMEM (give more --ram)"
            }
        }
    }
}

/// What every process of the tree can write.
#[repr(C)]
pub struct Shared {
    /// Highest sum of the charges of all live processes that was seen, bytes.
    pub peak_charge_bytes: AtomicU64,
    /// Managed processes ever started.
    pub processes_started: AtomicU32,
    /// Children that were run unmanaged.
    pub processes_unmanaged: AtomicU32,
    /// Messages dropped because the queue was full.
    pub messages_dropped: AtomicU32,
    /// Records that were ever in use: those behind it need not be looked at for a sum.
    pub records_used: AtomicU32,
    /// What of [`Once`] was said, a bit each.
    pub told: AtomicU32,
    /// Sums over processes that ended.
    pub ended: Counters,
    /// Messages.
    pub messages: [Message; MAX_MESSAGES],
    /// Records of live processes.
    pub processes: [Process; MAX_PROCESSES],
}

/// A charge beyond this is a lie, and counts as this: so many cannot overflow a sum.
pub const CHARGE_MAX_BYTES: u64 = 1 << 47;

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

impl Process {
    /// What the process is charged with, in bytes; never more than [`CHARGE_MAX_BYTES`].
    pub fn charge(&self) -> u64 {
        self.charge_bytes.load(Relaxed).min(CHARGE_MAX_BYTES)
    }
}

/// Whether a process exists. A number that names no single process is none's.
pub fn exists(pid: i32) -> bool {
    pid > 0 && os::kill(pid, 0) != Err(Errno::ESRCH)
}

impl Shared {
    /// The records that were ever in use.
    pub fn used_records(&self) -> &[Process] {
        &self.processes[..(self.records_used.load(Relaxed) as usize).min(MAX_PROCESSES)]
    }

    /// Sum of the charges of all live processes but the one with this record, bytes.
    pub fn charges_of_others(&self, own: *const Process) -> u64 {
        let others = self.used_records().iter().filter(|p| p.pid.load(Relaxed) > 0 && !core::ptr::eq(*p, own));
        others.map(Process::charge).sum()
    }

    /// Folds the record of an ended process into the sums and frees it. `pid` is what the record was seen with: the process,
    /// or a folder that is dead, whose work is taken up. Returns whether this caller did it.
    pub fn fold(&self, process: &Process, pid: i32) -> bool {
        if pid == 0 || process.pid.compare_exchange(pid, -os::getpid(), AcqRel, Relaxed).is_err() {
            return false;
        }
        process.charge_bytes.store(0, Relaxed);
        self.ended.fold(&process.counters);
        // Unless somebody took us for dead, and goes on with it.
        let _ = process.pid.compare_exchange(-os::getpid(), 0, Release, Relaxed);
        true
    }

    /// Folds a record if its process is dead, or its folder. `is_dead` is asked about numbers above 0 only.
    pub fn fold_if(&self, process: &Process, is_dead: impl FnOnce(i32) -> bool) -> bool {
        let pid = process.pid.load(Acquire);
        let whose = pid.checked_abs().unwrap_or(i32::MAX);
        pid != 0 && is_dead(whose) && self.fold(process, pid)
    }

    /// Takes a record for a process. A record that this process had before an exec, or that a dead process left, is folded
    /// into the sums first. `None` with as many live processes as there are records.
    pub fn take(&self, pid: i32) -> Option<&Process> {
        for record in &self.processes {
            self.fold_if(record, |whose| whose == pid);
        }
        for attempt in 0..2 {
            for (i, record) in self.processes.iter().enumerate() {
                if attempt == 1 {
                    self.fold_if(record, |whose| !exists(whose));
                }
                if record.pid.load(Relaxed) == 0 && record.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok() {
                    // Whoever wrongly takes a process for dead may have left something.
                    record.charge_bytes.store(0, Relaxed);
                    record.counters.clear();
                    self.records_used.fetch_max(i as u32 + 1, Relaxed);
                    self.processes_started.fetch_add(1, Relaxed);
                    return Some(record);
                }
            }
        }
        None
    }

    /// Queues a message for the supervisor; counted and dropped where the queue is full.
    pub fn post(&self, text: &[u8]) {
        for message in &self.messages {
            if message.state.compare_exchange(0, os::getpid(), Acquire, Relaxed).is_ok() {
                let len = text.len().min(MESSAGE_BYTES);
                for (to, from) in message.text.iter().zip(&text[..len]) {
                    to.store(*from, Relaxed);
                }
                message.len.store(len as u32, Relaxed);
                message.state.store(READY, Release);
                return;
            }
        }
        self.messages_dropped.fetch_add(1, Relaxed);
    }

    /// Queues a message unless a process of the tree did so before.
    pub fn post_once(&self, what: Once) {
        let bit = 1 << what as u32;
        if self.told.fetch_or(bit, Relaxed) & bit == 0 {
            self.post(what.text());
        }
    }

    /// Hands every waiting message to `print` and frees it, and frees those that somebody was killed at. The text may be
    /// anything at all.
    pub fn drain(&self, mut print: impl FnMut(&[u8])) {
        for message in &self.messages {
            let state = message.state.load(Acquire);
            if state > 0 && exists(state) {
                continue;
            }
            if state == READY {
                let mut text = [0u8; MESSAGE_BYTES];
                for (to, from) in text.iter_mut().zip(&message.text) {
                    *to = from.load(Relaxed);
                }
                print(&text[..(message.len.load(Relaxed) as usize).min(MESSAGE_BYTES)]);
            }
            let _ = message.state.compare_exchange(state, 0, AcqRel, Relaxed);
        }
    }
}

/// The control block of one run, as this process has it mapped, and those of the runs around it.
pub struct Control {
    /// What was asked for.
    pub config: &'static Config,
    shared: &'static Shared,
    /// The run that this one is inside of.
    pub outer: Option<&'static Control>,
    /// This process's record here, where this is an outer run; null before it has one.
    pub record: AtomicPtr<Process>,
}

impl Control {
    /// Puts the parts together.
    pub fn new(config: &'static Config, shared: &'static Shared, outer: Option<&'static Control>) -> Control {
        Control { config, shared, outer, record: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// This run and those around it, from the inside out.
    pub fn levels(&self) -> impl Iterator<Item = &Control> {
        core::iter::successors(Some(self), |c| c.outer)
    }

    /// Whether any of the runs has a budget for memory.
    pub fn has_budget(&self) -> bool {
        self.levels().any(|c| c.config.ram_bytes > 0)
    }
}

impl Deref for Control {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        self.shared
    }
}

/// Where a control block is found: `FD:/proc/PID/fd/N` in text. `FD` is the inherited descriptor of the configuration, and
/// `FD + 1` that of the shared part. Where a program in between has closed them, the supervisor `PID` has them as `N` and
/// `N + 1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The inherited descriptor.
    pub fd: i32,
    /// Process id of the supervisor.
    pub supervisor_pid: i32,
    /// The supervisor's own descriptor.
    pub supervisor_fd: i32,
}

impl Place {
    /// Reads the value of [`ENV`].
    pub fn parse(value: &[u8]) -> Option<Place> {
        let (fd, rest) = take_number(value)?;
        let (supervisor_pid, rest) = take_number(rest.strip_prefix(b":/proc/")?)?;
        let (supervisor_fd, rest) = take_number(rest.strip_prefix(b"/fd/")?)?;
        (rest.is_empty() && supervisor_pid > 0).then_some(Place { fd, supervisor_pid, supervisor_fd })
    }

    /// The value of [`ENV`].
    pub fn write<'a>(&self, buf: &'a mut [u8; PLACE_BYTES]) -> &'a [u8] {
        let mut text = Text { buf, len: 0 };
        text.number(self.fd);
        text.put(b":/proc/");
        text.number(self.supervisor_pid);
        text.put(b"/fd/");
        text.number(self.supervisor_fd);
        let len = text.len;
        &buf[..len]
    }

    /// Whether both name the same run, wherever its descriptors are.
    pub fn is_same_run(&self, other: &Place) -> bool {
        (self.supervisor_pid, self.supervisor_fd) == (other.supervisor_pid, other.supervisor_fd)
    }

    /// Maps the configuration and the shared part, by the inherited descriptors, or as the supervisor has them.
    pub fn open(&self) -> Option<Opened> {
        if let Some((config, shared)) = map(self.fd, self.fd.checked_add(1)?) {
            return Some(Opened { config, shared, fds: None });
        }
        let config = self.open_supervisors(self.supervisor_fd, os::O_RDONLY)?;
        let shared = self.open_supervisors(self.supervisor_fd.checked_add(1)?, os::O_RDWR);
        let mapped = shared.and_then(|shared| map(config, shared));
        match (mapped, shared) {
            (Some((mapped, shared_part)), Some(shared)) => {
                Some(Opened { config: mapped, shared: shared_part, fds: Some((config, shared)) })
            }
            _ => {
                let _ = os::close(config);
                let _ = shared.map(os::close);
                None
            }
        }
    }

    fn open_supervisors(&self, fd: i32, flags: usize) -> Option<i32> {
        let (mut name, mut path) = ([0u8; 16], [0u8; PLACE_BYTES]);
        let mut text = Text { buf: &mut name, len: 0 };
        text.put(b"/fd/");
        text.number(fd);
        text.put(b"\0");
        let len = text.len;
        os::open_regular(None, process_path(&mut path, self.supervisor_pid, &name[..len]), flags).map(|(fd, _)| fd)
    }

    /// Whether this is the place of a run that was started inside the run at `ours`, as its configuration says.
    pub fn is_inside(&self, ours: &Place) -> bool {
        let Some(config) = map_config(self.fd) else { return false };
        let outer = Place::parse(until_nul(&config.outer));
        let inside = outer.is_some_and(|outer| outer.is_same_run(ours));
        // SAFETY: made above, and nobody else has the reference.
        let _ = unsafe { os::munmap(config as *const Config as usize, size_of::<Config>()) };
        inside
    }
}

/// A control block that was found.
pub struct Opened {
    /// The configuration.
    pub config: &'static Config,
    /// The part that all can write.
    pub shared: &'static Shared,
    /// New descriptors of both, the caller's to close, where the inherited ones are gone.
    pub fds: Option<(i32, i32)>,
}

/// Seals of a configuration: nothing about it can change.
pub const CONFIG_SEALS: usize = os::F_SEAL_WRITE | SHARED_SEALS;
/// Seals of the shared part: its length cannot change, so that reading it cannot fault.
pub const SHARED_SEALS: usize = os::F_SEAL_SHRINK | os::F_SEAL_GROW | os::F_SEAL_SEAL;

/// Whether a descriptor is a file that can be used as part of a control block: sealed, of the right length, and made by root
/// or by who we are ourselves. Another user's file could say what that user likes.
fn checked(fd: i32, size_bytes: usize, seals: usize) -> Option<os::FileStatus> {
    let status = os::fstat(fd).ok()?;
    let sealed = os::fcntl(fd, os::F_GET_SEALS, 0).ok()? & seals == seals;
    let trusted = status.uid == 0 || status.uid == os::geteuid();
    (status.is_regular() && status.size_bytes == size_bytes as u64 && sealed && trusted).then_some(status)
}

fn map_config(fd: i32) -> Option<&'static Config> {
    checked(fd, size_of::<Config>(), CONFIG_SEALS)?;
    // Private: kernels before 6.7 refuse any shared mapping of a file that is sealed against writing.
    // SAFETY: no address given.
    let at = unsafe { os::mmap(0, size_of::<Config>(), os::PROT_READ, os::MAP_PRIVATE, fd, 0) }.ok()?;
    // SAFETY: the file is long enough and never changes, and all fields are integers.
    let config = unsafe { &*(at as *const Config) };
    if config.magic == MAGIC && config.version == VERSION {
        return Some(config);
    }
    // SAFETY: nobody uses the mapping.
    let _ = unsafe { os::munmap(at, size_of::<Config>()) };
    None
}

/// Maps both parts. The shared part must be the very file that the configuration names.
fn map(config_fd: i32, shared_fd: i32) -> Option<(&'static Config, &'static Shared)> {
    let config = map_config(config_fd)?;
    let status = checked(shared_fd, size_of::<Shared>(), SHARED_SEALS);
    let at = status.filter(|s| [s.device, s.inode] == config.shared_file).and_then(|_| {
        let (prot, flags) = (os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED);
        // SAFETY: no address given.
        unsafe { os::mmap(0, size_of::<Shared>(), prot, flags, shared_fd, 0) }.ok()
    });
    match at {
        // SAFETY: the file is as long and stays so, and all fields are atomic integers.
        Some(at) => Some((config, unsafe { &*(at as *const Shared) })),
        None => {
            // SAFETY: made above, and nobody else has the reference.
            let _ = unsafe { os::munmap(config as *const Config as usize, size_of::<Config>()) };
            None
        }
    }
}

/// Attempts to find two free numbers next to each other.
const PAIR_ATTEMPTS: usize = 16;

/// Makes copies of two descriptors that live through exec, at neighbouring free numbers of at least `from`. Returns the
/// first.
pub fn place_pair(config_fd: i32, shared_fd: i32, from: usize) -> outswap_sys::Result<i32> {
    let mut from = from;
    for _ in 0..PAIR_ATTEMPTS {
        let first = os::fcntl(config_fd, os::F_DUPFD, from)?;
        match os::fcntl(shared_fd, os::F_DUPFD, first + 1) {
            Ok(second) if second == first + 1 => return Ok(first as i32),
            second => {
                os::close(first as i32)?;
                from = second?;
                os::close(from as i32)?;
            }
        }
    }
    Err(Errno::EMFILE)
}

/// A text that is put together without memory of its own. What does not fit is left out.
struct Text<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    fn put(&mut self, text: &[u8]) {
        for (to, from) in self.buf[self.len..].iter_mut().zip(text) {
            *to = *from;
            self.len += 1;
        }
    }
    fn number(&mut self, n: i32) {
        let (mut digits, mut at, mut rest) = ([0u8; 10], 10, n.max(0));
        while at == 10 || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.put(&digits[at..]);
    }
}

/// `/proc/PID` and a name, which ends with a NUL, below it.
pub fn process_path<'a>(buf: &'a mut [u8], pid: i32, name: &[u8]) -> &'a [u8] {
    let mut text = Text { buf, len: 0 };
    text.put(b"/proc/");
    text.number(pid);
    text.put(name);
    let len = text.len;
    &buf[..len]
}

/// The decimal number that a text begins with, and the rest. `None` for no digit, or too many.
fn take_number(text: &[u8]) -> Option<(i32, &[u8])> {
    let len = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let add = |n: i32, c: &u8| n.checked_mul(10)?.checked_add((c - b'0') as i32);
    Some((text[..len].iter().try_fold(0, add).filter(|_| len > 0)?, &text[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> &'static Shared {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        unsafe { &*(at as *const Shared) }
    }

    /// A number that no process has.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = Place { fd: 1008, supervisor_pid: 4242, supervisor_fd: 976 };
        let mut buf = [0; PLACE_BYTES];
        assert_eq!(place.write(&mut buf), b"1008:/proc/4242/fd/976");
        assert_eq!(Place::parse(b"1008:/proc/4242/fd/976"), Some(place));
        let largest = Place { fd: i32::MAX, supervisor_pid: i32::MAX, supervisor_fd: i32::MAX };
        assert_eq!(Place::parse(largest.write(&mut [0; PLACE_BYTES])), Some(largest));
        let smallest = Place { fd: 0, supervisor_pid: 1, supervisor_fd: 0 };
        assert_eq!(Place::parse(smallest.write(&mut [0; PLACE_BYTES])), Some(smallest));
        assert!(place.is_same_run(&Place { fd: 5, ..place }) && !place.is_same_run(&smallest));
    }

    #[test]
    fn nothing_but_a_place_is_a_place() {
        for value in [
            "",
            "1008",
            ":/proc/1/fd/2",
            "1008:/tmp/evil",
            "1008:/proc/1/fd/2/../../../../tmp/evil",
            "1008:/proc/self/fd/2",
            "1008:/proc/0/fd/2",
            "1008:/proc/-1/fd/2",
            "-1:/proc/1/fd/2",
            "+1:/proc/1/fd/2",
            "1 :/proc/1/fd/2",
            "1008:/proc/1/fd/",
            "1008:/proc/1/fd/2 ",
            "1008:/proc/99999999999/fd/2",
            "2147483648:/proc/1/fd/2",
            "18446744073709552624:/proc/1/fd/2",
        ] {
            assert_eq!(Place::parse(value.as_bytes()), None, "{value}");
        }
        assert!(Place { fd: -1, supervisor_pid: NOBODY, supervisor_fd: 3 }.open().is_none());
        assert!(Place { fd: i32::MAX, supervisor_pid: 1, supervisor_fd: i32::MAX }.open().is_none());
    }

    #[test]
    fn the_tree_uses_what_its_live_processes_do() {
        let shared = shared();
        let records: Vec<_> = (1..=3).map(|pid| shared.take(pid).expect("room")).collect();
        records.iter().zip([10, 200, 3000]).for_each(|(r, n)| r.charge_bytes.store(n, Relaxed));
        assert_eq!(shared.used_records().len(), 3);
        assert_eq!(shared.charges_of_others(core::ptr::null()), 3210);
        assert_eq!(shared.charges_of_others(records[1]), 3010);
        assert!(shared.fold(records[2], 3) && !shared.fold(records[2], 3));
        assert_eq!(shared.charges_of_others(core::ptr::null()), 210);
        // A process that was taken for dead publishes in a record that is not its own any more.
        records[2].charge_bytes.store(77, Relaxed);
        assert_eq!(shared.charges_of_others(core::ptr::null()), 210);
        assert_eq!(shared.take(4).map(Process::charge), Some(0));
        records[0].charge_bytes.store(u64::MAX, Relaxed);
        assert_eq!(shared.charges_of_others(core::ptr::null()), CHARGE_MAX_BYTES + 200);
        shared.records_used.store(u32::MAX, Relaxed);
        assert_eq!(shared.used_records().len(), MAX_PROCESSES);
    }

    #[test]
    fn a_record_whose_folder_was_killed_is_folded_by_another_and_counts_once() {
        let shared = shared();
        let record = shared.take(NOBODY).expect("room");
        record.counters.add(Stat::FaultMiss, 5);
        record.counters.add(Stat::PagesClean, 7);
        record.counters.set(Stat::ResidentBytes, 4096);
        record.counters.set(Stat::PeakResidentBytes, 8192);
        record.charge_bytes.store(99, Relaxed);
        // A folder was killed when it had moved one counter.
        record.pid.store(-NOBODY, Relaxed);
        shared.ended.add(Stat::FaultMiss, record.counters.stats[Stat::FaultMiss as usize].swap(0, Relaxed));
        assert!(!shared.fold_if(record, |pid| pid != NOBODY), "not while the folder lives");
        assert!(shared.fold_if(record, |pid| pid == NOBODY && !exists(pid)));
        assert_eq!((record.pid.load(Relaxed), record.charge()), (0, 0));
        let sums = [Stat::FaultMiss, Stat::PagesClean, Stat::ResidentBytes, Stat::PeakResidentBytes];
        assert_eq!(sums.map(|stat| shared.ended.get(stat)), [5, 7, 0, 8192]);
        assert!(sums.iter().all(|stat| record.counters.get(*stat) == 0));
    }

    #[test]
    fn records_of_the_dead_are_taken_over_and_those_of_the_living_are_not() {
        let shared = shared();
        for record in &shared.processes {
            record.pid.store(os::getpid(), Relaxed);
        }
        assert!(shared.take(5).is_none());
        let place = |record: &Process| shared.processes.iter().position(|r| core::ptr::eq(r, record));
        for (i, left) in [(7, NOBODY), (9, -NOBODY), (11, i32::MIN), (13, 0)] {
            shared.processes[i].pid.store(left, Relaxed);
            assert_eq!(shared.take(5).and_then(place), Some(i), "{left}");
            shared.processes[i].pid.store(os::getpid(), Relaxed);
        }
        // What this process had before an exec.
        let record = shared.take(os::getpid()).expect("all were its own");
        assert_eq!(record.pid.load(Relaxed), os::getpid());
        assert!(shared.processes[1..].iter().all(|r| r.pid.load(Relaxed) == 0));
    }

    #[test]
    fn messages_come_out_as_they_went_in_and_none_is_lost_for_good() {
        let shared = shared();
        let drained = || {
            let mut all = Vec::new();
            shared.drain(|text| all.push(text.to_vec()));
            all
        };
        shared.post(b"one");
        shared.post(&[b'x'; 1000]);
        assert_eq!(drained(), [b"one".to_vec(), vec![b'x'; MESSAGE_BYTES]]);
        shared.messages[0].state.store(READY, Relaxed);
        shared.messages[0].len.store(100_000, Relaxed);
        assert_eq!(drained().concat().len(), MESSAGE_BYTES, "a false length");
        // Writers that were killed hold their places no longer; one that lives does.
        shared.messages.iter().for_each(|m| m.state.store(NOBODY, Relaxed));
        shared.messages[3].state.store(os::getpid(), Relaxed);
        shared.post(b"lost");
        assert_eq!(shared.messages_dropped.load(Relaxed), 1);
        assert!(drained().is_empty());
        (0..MAX_MESSAGES).for_each(|_| shared.post(b"again"));
        assert_eq!((drained().len(), shared.messages_dropped.load(Relaxed)), (MAX_MESSAGES - 1, 2));
    }
}
