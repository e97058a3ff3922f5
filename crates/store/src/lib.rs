//! Stores for evicted pages: plain RAM, compressed RAM and an encrypted, unlinked file, as the tiers of one
//! [`Tiers`].
//!
//! Everything here may run in a signal handler: no allocation after [`Tiers::init`], no locks but short
//! spinlocks, raw system calls only. Slots are spread over [`SHARDS`] shards by cluster (512 slots); a shard's
//! lock covers its slots' records and its part of every pool. Files are never read or written under a lock.
//!
//! ```text
//! put: compress ──► first tier with room ──► no room: free spans, compact, spill the oldest span to the file
//! get: record of the slot (under the shard's lock) ──► copy out, unlock, decode
//! ```
#![cfg_attr(not(any(test, outswap_broken)), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

// The order is that of the layers: a module uses only what stands above it.
mod broken;
mod limits;
mod lock;
mod stats;
mod request;
mod io;
mod pace;
mod ring;
mod regions;
mod compress;
mod pool;
mod config;
mod file;
mod record;
mod state;
mod compact;
mod relocate;
mod clean;
mod spill;
mod kinds;
mod fetch;
mod fork;
mod tiers;
mod process;
#[cfg(test)]
mod tests;

pub use compress::{Algorithm, Worker};
pub use config::{InitError, Later};
pub use fork::ForkTicket;
pub use io::{FileIo, FileRead, LiveIo, NewFile, make_file};
pub use kinds::{Compressed, File, KIND_NAME_BYTES, OptionError, Parameters, Ram, TierKind, Words};
pub use limits::{
    DESCRIPTORS, MAX_SLOTS, MAX_TIERS, MAX_UNIT_BYTES, MAX_UNIT_ORDER, MAX_UNIT_PAGES, MAX_USERS, MAX_VOLUMES,
    SEGMENT_BYTES, SHARDS, UNIT_ORDER,
};
pub use pace::{DEVICE_STATE_WORDS, DeviceStates};
pub use process::{Asked, AskedTier, ProcessStore};
pub use ring::RingIo;
pub use state::Tiers;
pub use stats::StoreStats;
pub use tiers::{Config, TierConfig};
