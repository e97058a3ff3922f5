//! A pool of objects in RAM: compressed units, or raw pages (the plain RAM tier is this pool with raw objects).
//!
//! ```text
//! pool    | span 0 | span 1 | span 2 | ...          128 KiB each, one size class and one shard each
//! span    | object | object | free | object | ~~~   ~~~ never touched: no memory held
//! object  | header 8 B | payload | loss |           header: owner slot, live pages, length, codec
//! ```
//! A span's memory is touched from its start on and only as objects fill it, so what a span holds is known
//! without asking the kernel. The header names the owner, so that an object can be moved (compaction) and its
//! slots' records changed. Every function that takes a [`PoolShard`] runs under that shard's lock.
mod object;
mod span;
mod alloc;
mod compact;
mod drain;
#[cfg(test)]
mod tests;

pub(crate) use object::{Header, Object};
pub(crate) use span::{Budget, NoRoom, Pool, PoolShard, SpanRef, table_bytes};
