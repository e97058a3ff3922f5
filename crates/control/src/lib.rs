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
//!
//! Both sides must be of one build: [`VERSION`] is derived from how the structures lie in memory, and a process attaches to
//! nothing else.
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod fingerprint;
mod text;
mod stats;
mod accesses;
mod outside;
mod wish;
mod messages;
mod shared;
mod library;
mod config;
mod place;
mod block;

pub use accesses::{ACCESS_PLACES, Access, AccessPlace, Accesses, Recorded};
pub use block::{CONTROL_FDS, Control, MAX_LEVELS};
pub use config::{
    ARENA, ARENA_MAX_BYTES, BSS_AFTER_BYTES, BSS_MAX_BYTES, Config, DEVICE_WORDS, ENV, EXIT_FULL, LIBRARIES, MAGIC,
    MANAGED_MAX_BYTES, PLACE_BYTES, TIER_KIND_BYTES, Tier, VERSION, WhenFull, source,
};
pub use library::{Found, Library};
pub use messages::{MESSAGE_BYTES, Message, Once, READY};
pub use outside::{CHARGE_MAX_BYTES, MAX_OUTSIDE, Unmanaged};
pub use place::{CONFIG_SEALS, Opened, Place, SHARED_SEALS, place_pair};
pub use shared::{
    DEVICE_STATE_WORDS, MARKS, MAX_MESSAGES, MAX_PROCESSES, MAX_TIERS, Process, SILENT_MARKS, Shared, TREE_PEAKS,
    exists,
};
pub use stats::{ALL_STATS, Counters, LATENCY_BUCKETS, STAT_COUNT, STAT_NAMES, Stat};
pub use text::{Text, process_path, until_nul};
pub use wish::Wish;
