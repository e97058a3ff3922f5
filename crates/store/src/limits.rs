//! The limits of this crate in one place, with what ties them together checked at compile time. What belongs to one
//! format alone (how a word is packed, what a size class holds) stands beside that format.
use outswap_core::units::{MAX_FOLIO_PAGES, Order, PAGE_BYTES};

// ---- tiers and slots ----

/// Most tiers of one store.
pub const MAX_TIERS: usize = 4;
/// Most slots of one store (256 GiB).
pub const MAX_SLOTS: u32 = 1 << 26;
/// Shards of slots, records and pools.
pub const SHARDS: usize = 8;
/// log2 of the slots of a cluster, which lie in one shard.
pub(crate) const CLUSTER_ORDER: u32 = 9;
/// Most regions of memory that a store maps as it is made.
pub(crate) const MAX_REGIONS: usize = 16;
/// Of these: the store itself, its records, and which pages of the records were touched.
const STORE_REGIONS: usize = 3;
/// Of these, for each pool: its memory and its table of spans.
const POOL_REGIONS: usize = 2;
/// Of these, for the file: four of the tier, and the cleaner's buffer.
const FILE_REGIONS: usize = 5;
/// Of these: what devices are at.
const DEVICE_REGIONS: usize = 1;

// Folios, and with them the units that they are cut into, never lie in two clusters.
const _: () = assert!((1usize << CLUSTER_ORDER).is_multiple_of(MAX_FOLIO_PAGES) && MAX_UNIT_PAGES <= MAX_FOLIO_PAGES);
const _: () = assert!(STORE_REGIONS + (MAX_TIERS - 1) * POOL_REGIONS + FILE_REGIONS + DEVICE_REGIONS <= MAX_REGIONS);
const _: () = assert!(STORE_REGIONS + MAX_TIERS * POOL_REGIONS + DEVICE_REGIONS <= MAX_REGIONS);

// ---- units ----

/// The order of the units that a folio is cut into where no tier wants another.
pub const UNIT_ORDER: Order = Order::new(2);
/// The highest order of a unit.
pub const MAX_UNIT_ORDER: Order = Order::PART;
/// Pages of a unit of that order.
pub const MAX_UNIT_PAGES: usize = MAX_UNIT_ORDER.pages();
/// Bytes of these.
pub const MAX_UNIT_BYTES: usize = MAX_UNIT_PAGES * PAGE_BYTES;
/// Most bytes of a unit with the file tier's header and tag around it.
pub(crate) const MAX_SEALED_BYTES: usize = MAX_UNIT_BYTES + 64;

/// What is read from a file for one fault at the same time: a folio of units that are not compressed, or a few of the largest.
pub(crate) const FETCH_BYTES: usize = MAX_SEALED_BYTES + MAX_UNIT_PAGES * 64;
/// Units that are fetched at the same time, at most.
pub(crate) const FETCH_UNITS: usize = 16;
/// Bytes that are not wanted between two that are: no more are read to spare a second read.
pub(crate) const FETCH_GAP_BYTES: u64 = PAGE_BYTES as u64;

const _: () = assert!(UNIT_ORDER.get() <= MAX_UNIT_ORDER.get());

// ---- devices ----

/// Writes that a device may be behind with before the next one waits.
pub(crate) const WRITES_BEHIND: usize = 4;
/// Most bytes of one request to a device that a tier in RAM is slowed to.
pub(crate) const REQUEST_BYTES_MAX: u64 = 512 << 10;
/// The longest that a device is behind: what it is at stands in memory that others can write.
pub(crate) const BACKLOG_MAX_NS: u64 = 10_000_000_000;

// ---- pools ----

/// Bytes of a span. Larger ones would leave more behind when sparse, smaller ones lose more at their ends.
pub(crate) const SPAN_BYTES: usize = 128 << 10;
/// Most bytes of a pool: object numbers have 32 bits of 64 bytes.
pub(crate) const MAX_POOL_BYTES: u64 = 256 << 30;
/// Where address space is short, a pool is made smaller down to this.
pub(crate) const MIN_POOL_BYTES: usize = 16 * SPAN_BYTES;
/// Virtual size of a pool beyond what it may hold: spans of all classes and shards that are hardly begun.
pub(crate) const POOL_SLACK_BYTES: u64 = 256 << 20;
/// A span's end that no object fits in is address space that a pool has beyond what it may hold: at most one part in so many.
pub(crate) const POOL_SPAN_END_PARTS: u64 = 2;
/// A pool takes one part in so many of a limited address space: the program needs its share.
pub(crate) const POOL_ADDRESS_SPACE_PARTS: u64 = 4;
/// Free spans whose memory is kept for the next one that asks: saves the kernel call and its TLB shootdown.
pub(crate) const CACHED_SPANS: u32 = 8;
/// How many spans of one list are looked at for a victim, or for a free object.
pub(crate) const SCANNED_SPANS: usize = 16;
/// How many spans of one list are looked at for room for an object that compaction moves.
pub(crate) const COMPACT_SCANNED_SPANS: usize = 4 * SCANNED_SPANS;
/// How many classes up an object may move when its own has no room.
pub(crate) const UPGRADED_CLASSES: usize = 4;

const _: () = assert!(SPAN_BYTES.is_multiple_of(PAGE_BYTES) && MAX_POOL_BYTES.is_multiple_of(SPAN_BYTES as u64));
const _: () = assert!(MIN_POOL_BYTES >= SPAN_BYTES && MIN_POOL_BYTES as u64 <= POOL_SLACK_BYTES);

// ---- files and segments ----

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = 256 << 10;
/// Segments being filled or written at the same time.
pub(crate) const SEGMENT_BUFFERS: usize = 5;
/// Of these: kept for the cleaner, which makes the room that those lack which cannot be written.
pub(crate) const CLEANER_BUFFERS: usize = 1;
/// log2 of the most segments of a file.
pub(crate) const VOLUME_ORDER: u32 = 22;
/// Files that a process can need at the same time, its own among them.
pub const MAX_VOLUMES: usize = 16;
/// What the table of a file without a limit has room for beyond twice the slots.
pub(crate) const FILE_SLACK_BYTES: u64 = 1 << 30;
/// A bounded file of so many segments keeps one for the cleaner, which needs room to make room.
pub(crate) const CLEANER_RESERVE_MIN_SEGMENTS: u32 = 4;
/// Segments at most that are freed at once where nobody wants the room.
pub(crate) const TEND_SEGMENTS: usize = 64;
/// How often a put that finds no room has a segment emptied: others may take what that wins.
pub(crate) const CLEAN_TRIES: u32 = 8;
/// Fewer segments than this are not worth cleaning.
pub(crate) const CLEAN_MIN_SEGMENTS: u32 = 8;
/// A resting cleaner is woken when so many slots were freed: about what a segment holds.
pub(crate) const CLEAN_FREED_SLOTS: u64 = 128;
/// How often a failing read is tried.
pub(crate) const READ_TRIES: usize = 3;
/// How long a tier that failed to write takes nothing new, and how long a cleaner rests that won nothing.
pub(crate) const RETRY_NS: u64 = 100_000_000;
/// How long after a search for dead processes there is no other.
pub(crate) const REAP_NS: u64 = 10_000_000;
/// How long a segment's buffer is waited for: about a second. Then the tier is called full, and pages stay in memory.
/// A thread that spills is waited for as long.
pub(crate) const WAIT_SPINS: u32 = 20_000;
/// Longest name of a directory, with its NUL byte.
pub(crate) const DIRECTORY_BYTES: usize = 1024;
/// Bytes that a file can have, whatever its table.
pub(crate) const MAX_FILE_BYTES: u64 = SEGMENT_BYTES as u64 * (1 << VOLUME_ORDER);

const _: () = assert!(SEGMENT_BYTES >= MAX_SEALED_BYTES && SEGMENT_BYTES.is_multiple_of(PAGE_BYTES));
// A segment among those of all files has one number of 32 bits.
const _: () = assert!((MAX_VOLUMES as u64) << VOLUME_ORDER <= 1 << 32);
// Every slot can be in the file, twice, and the file can still have the slack.
const _: () = assert!(2 * MAX_SLOTS as u64 * PAGE_BYTES as u64 + FILE_SLACK_BYTES <= MAX_FILE_BYTES);
// What the cleaner keeps must leave something for others.
const _: () = assert!(CLEANER_BUFFERS < SEGMENT_BUFFERS);
const _: () = assert!(CLEANER_RESERVE_MIN_SEGMENTS > 1 && CLEAN_MIN_SEGMENTS >= CLEANER_RESERVE_MIN_SEGMENTS);
// A search for the dead comes before another attempt to write what they may have left no room for.
const _: () = assert!(REAP_NS < RETRY_NS);

/// One read of the file in so many is timed: looking at the clock costs a hundredth of it.
pub(crate) const TIMED_READS: u64 = 8;

// ---- keys ----

/// Most keys that a process can need at the same time.
pub(crate) const MAX_KEYS: usize = 1 << 16;
/// Entries looked at for a key that is not needed, before a new one is taken.
pub(crate) const SCANNED_KEYS: u32 = 64;

// A segment knows its key by 16 bits.
const _: () = assert!(MAX_KEYS <= 1 << 16 && SCANNED_KEYS as usize <= MAX_KEYS);

// ---- processes that share files ----

/// Processes that can share a file with its writer at the same time. One more bit stands for "for ever".
pub const MAX_USERS: usize = 127;
/// Words of 64 bits for these bits of one segment.
pub(crate) const USER_WORDS: usize = 2;
/// Processes of a family: as many as a tree can have managed.
pub(crate) const FAMILY_PROCESSES: usize = 512;
/// Files of a family whose sizes are known at the same time.
pub(crate) const FAMILY_FILES: usize = 1024;
/// Numbers from `min_fd` on that a store's descriptors have: more than it ever opens, and for a fork's short time some more.
pub const DESCRIPTORS: i32 = 48;

const _: () = assert!(MAX_USERS < 64 * USER_WORDS);
const _: () = assert!(FAMILY_FILES.is_multiple_of(64) && FAMILY_FILES >= FAMILY_PROCESSES);
// One for reading each file, the writer of the own one, the directory and the number kept for a child; and those of a file
// that is being made while the old one is still open, and a ring.
const _: () = assert!(MAX_VOLUMES + 3 + 3 + 1 < DESCRIPTORS as usize);
