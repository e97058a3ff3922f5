//! The part of the control block that never changes during a run, and the version of the whole.
use crate::fingerprint::{self, layout, number, short, texts};
use crate::library::Library;
use crate::shared::{self, MAX_MESSAGES, MAX_PROCESSES, MAX_TIERS};
use crate::stats::{self, STAT_NAMES};

/// Environment variable that names the control block; see [`crate::Place`].
pub const ENV: &str = "OUTSWAP_CONTROL";
/// First bytes of a configuration.
pub const MAGIC: u64 = 0x4f55_5453_5741_5031;
/// Bytes of the longest value of [`ENV`], with a NUL.
pub const PLACE_BYTES: usize = 64;

/// Where the range of managed memory starts, the same in all processes.
pub const ARENA: usize = 0x2000_0000_0000;
/// Largest managed range, and the range that the filter recognises: 12 TiB. MariaDB reserves 8 in one piece, and what it then uses of
/// them could not be managed elsewhere. A page's number has 32 bits.
pub const ARENA_MAX_BYTES: usize = 12 << 40;
/// What of a program's `.bss` is managed at most: more is the kernel's. Its pages have numbers after those of the largest arena, and
/// of [`BSS_AFTER_BYTES`].
pub const BSS_MAX_BYTES: usize = 64 << 30;
/// Address space that there would be between both, if they lay one after the other as their pages' numbers do.
pub const BSS_AFTER_BYTES: usize = 2 << 20;
/// All that pages can have numbers of.
pub const MANAGED_MAX_BYTES: usize = ARENA_MAX_BYTES + BSS_AFTER_BYTES + BSS_MAX_BYTES;
/// Bytes of the longest name of a kind of tier, with a NUL.
pub const TIER_KIND_BYTES: usize = 16;
/// Libraries that are loaded into a program at most.
pub const LIBRARIES: usize = 2;
/// Numbers of a device that a tier is slowed to.
pub const DEVICE_WORDS: usize = 10;

/// What has a name and is stored as a number: fault sources, policies.
pub mod source {
    use crate::fingerprint;

    /// What is chosen where nobody asks for one.
    pub const AUTO: u32 = 0;

    /// The number of what has this name: the same in every build, whichever names that knows.
    pub const fn number(name: &str) -> u32 {
        fingerprint::short(fingerprint::text(fingerprint::START, name))
    }
}

/// One tier of the swap specification, in order from the fastest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tier {
    /// The name of its kind, NUL-terminated; empty: no tier here.
    pub kind: [u8; TIER_KIND_BYTES],
    /// The options of that kind, as it packs them.
    pub parameters: [i32; 2],
    /// Limit in bytes, 0 for none.
    pub max_bytes: u64,
    /// The device that it is slowed to, as its model has it; all zero: none.
    pub device: [u64; DEVICE_WORDS],
}

impl Tier {
    /// No tier.
    pub const NONE: Tier =
        Tier { kind: [0; TIER_KIND_BYTES], parameters: [0; 2], max_bytes: 0, device: [0; DEVICE_WORDS] };
}

/// What is done where a program wants memory, the limit is reached, and no store has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WhenFull {
    /// The limit is exceeded.
    Exceed = 0,
    /// Who wants memory waits until there is room, up to a bound.
    Wait = 1,
    /// The process is ended.
    Fail = 2,
}

impl WhenFull {
    /// All of them, by name.
    pub const ALL: [(&str, WhenFull); 3] =
        [("exceed", WhenFull::Exceed), ("wait", WhenFull::Wait), ("fail", WhenFull::Fail)];
}

/// Exit status of a process that was ended because the stores were full ([`WhenFull::Fail`]).
pub const EXIT_FULL: i32 = 122;

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
    /// Descriptor under which the supervisor keeps this file; [`crate::Shared`] is under the next one.
    pub supervisor_fd: i32,
    /// A number of [`source`].
    pub fault_source: u32,
    /// The same of policies: readahead, reclaim, orders of folios, reuse, shared anonymous memory, calls,
    /// the program's `.bss`, zeros.
    pub policies: [u32; 8],
    /// 1: accesses to pages are recorded, in [`crate::Shared::accesses`].
    pub record: u32,
    /// 1: the directory of the swap file lies in memory, so that what is in the file counts in the budget.
    pub file_in_memory: u32,
    /// The largest window that is read ahead has 2 to this power pages.
    pub page_cluster: u64,
    /// Orders of folios, a bit each, where they are named one by one; 0 where the policy says them.
    pub folio_orders: u64,
    /// The supervisor's pid namespace, by its inode; 0 where it does not know.
    pub pid_namespace: u64,
    /// Device and inode of the socket at which files are asked for; its descriptor is the next after [`Place::fd`](crate::Place::fd)'s two.
    pub requests: [u64; 2],
    /// Device and inode of the file that holds [`crate::Shared`].
    pub shared_file: [u64; 2],
    /// Random bits that say where the gate is. A run inside another has those of the outermost, whose filter all processes
    /// inherit.
    pub gate: u64,
    /// Budget for the anonymous memory of the whole tree, in bytes; 0 for none.
    pub ram_bytes: u64,
    /// Limit of resident managed memory of the whole tree, in bytes; 0 for none.
    pub resident_bytes: u64,
    /// 1: exec'd children are not managed.
    pub no_follow: u32,
    /// 1: the program keeps its own allocator.
    pub keep_malloc: u32,
    /// What is done where the stores are full: [`WhenFull`] as a number.
    pub when_full: u32,
    /// 1: a program that cannot be managed is not executed.
    pub strict: u16,
    /// 1: the first program may run unmanaged.
    pub allow_unmanaged: u16,
    /// Tiers, unused ones have no kind.
    pub tiers: [Tier; MAX_TIERS],
    /// Value of [`ENV`] in the run around this one, NUL-terminated; empty where there is none.
    pub outer: [u8; PLACE_BYTES],
    /// Directory of the swap file, NUL-terminated.
    pub swap_dir: [u8; 1024],
    /// Value of `LD_PRELOAD` that managed children get first, NUL-terminated.
    pub preload: [u8; 2048],
    /// The libraries that are named there, in that order.
    pub libraries: [Library; LIBRARIES],
}

impl Config {
    /// What is done where the stores are full.
    pub fn when_full(&self) -> WhenFull {
        let known = WhenFull::ALL.iter().find(|(_, when)| *when as u32 == self.when_full);
        known.map_or(WhenFull::Exceed, |(_, when)| *when)
    }
    /// Nothing asked for.
    pub const EMPTY: Config = Config {
        magic: MAGIC,
        version: VERSION,
        supervisor_pid: 0,
        supervisor_fd: -1,
        fault_source: source::AUTO,
        policies: [source::AUTO; 8],
        record: 0,
        file_in_memory: 0,
        page_cluster: 0,
        folio_orders: 0,
        pid_namespace: 0,
        requests: [0; 2],
        shared_file: [0; 2],
        gate: 0,
        ram_bytes: 0,
        resident_bytes: 0,
        no_follow: 0,
        keep_malloc: 0,
        when_full: WhenFull::Exceed as u32,
        strict: 0,
        allow_unmanaged: 0,
        tiers: [Tier::NONE; MAX_TIERS],
        outer: [0; PLACE_BYTES],
        swap_dir: [0; 1024],
        preload: [0; 2048],
        libraries: [Library::NONE; LIBRARIES],
    };
    /// The bytes that go into the file.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: integers and arrays of them without padding in between, as the assertion below says.
        unsafe { core::slice::from_raw_parts((self as *const Config).cast(), size_of::<Config>()) }
    }
}
const _: () =
    assert!(size_of::<Config>() == 160 + MAX_TIERS * size_of::<Tier>() + PLACE_BYTES + 1024 + 2048 + LIBRARIES * 48);
const _: () = assert!(size_of::<Library>() == 48);
const _: () = assert!(size_of::<Tier>() == 32 + 8 * DEVICE_WORDS);

/// Raised by hand where something in the block means something else than before without lying elsewhere.
const MEANING: u32 = 4;

/// The version of the control block: the same for a supervisor and a preload library that agree about the size of its
/// structures, about name, place and size of each of their fields, and about the statistics. A process attaches to no other.
pub const VERSION: u32 = {
    let mut hash = number(fingerprint::START, MEANING as u64);
    hash = layout!(hash, Tier { kind, parameters, max_bytes, device });
    hash = layout!(hash, Library { file, size_bytes, written_ns, hashed_bytes, hash });
    hash = layout!(
        hash,
        Config {
            magic,
            version,
            supervisor_pid,
            supervisor_fd,
            fault_source,
            policies,
            record,
            file_in_memory,
            page_cluster,
            folio_orders,
            pid_namespace,
            requests,
            shared_file,
            gate,
            ram_bytes,
            resident_bytes,
            no_follow,
            keep_malloc,
            when_full,
            strict,
            allow_unmanaged,
            tiers,
            outer,
            swap_dir,
            preload,
            libraries,
        }
    );
    hash = shared::layout(stats::layout(hash));
    hash = number(number(number(hash, MAX_TIERS as u64), MAX_PROCESSES as u64), MAX_MESSAGES as u64);
    short(texts(hash, STAT_NAMES))
};
