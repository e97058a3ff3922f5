//! Experiments: one for each mechanism of swap that has figures published of it, and one with a server.
//!
//! Each prints its figures beside the published ones, beside those of this machine's kernel where root allows, and says in a line
//! whether the mechanism paid. Their workers look at every byte of what they had stored.
mod verdict;
mod histogram;
mod meter;
mod lab;
mod leak;
mod reuse;
mod swapin_path;
mod contention;
mod large_folios;
mod redis;
mod sources;

use std::process::ExitCode;

use clap::Subcommand;

use crate::process::Failure;

/// What a user can ask for.
#[derive(Subcommand)]
pub enum Task {
    /// Read and write memory over the limit: evictions that need no write, also after a fork
    Reuse(reuse::Args),
    /// What a page costs that comes back by a hit, a miss or a bypass, for sequential and random readers
    SwapinPath(swapin_path::Args),
    /// The index of the swap cache: tagged and under one lock, and as it is here, from 1 to 8 threads
    CacheContention(contention::Args),
    /// Memory that goes and comes by folios, and by single pages
    LargeFolios(large_folios::Args),
    /// A Redis server with most of its data over the limit, under a client that is not the bottleneck
    Redis(redis::Args),
    /// The sources of faults beside each other, and how far each is from what its parts take
    Sources(sources::Args),
}

/// What experiments start as processes of their own.
#[derive(Subcommand)]
pub enum Worker {
    #[command(name = "reuse-worker", hide = true)]
    Reuse(reuse::worker::Args),
    #[command(name = "swapin-worker", hide = true)]
    SwapinPath(swapin_path::worker::Args),
    #[command(name = "folios-worker", hide = true)]
    LargeFolios(large_folios::worker::Args),
    #[command(name = "redis-load", hide = true)]
    Redis(redis::load::Args),
    #[command(name = "floor-worker", hide = true)]
    Floor,
}

/// Runs one of them.
pub fn main(task: &Task) -> Result<(), Failure> {
    match task {
        Task::Reuse(args) => reuse::main(args),
        Task::SwapinPath(args) => swapin_path::main(args),
        Task::CacheContention(args) => contention::main(args),
        Task::LargeFolios(args) => large_folios::main(args),
        Task::Redis(args) => redis::main(args),
        Task::Sources(args) => sources::main(args),
    }
}

/// Runs a worker.
pub fn worker_main(worker: &Worker) -> ExitCode {
    match worker {
        Worker::Reuse(args) => reuse::worker::main(args),
        Worker::SwapinPath(args) => swapin_path::worker::main(args),
        Worker::LargeFolios(args) => large_folios::worker::main(args),
        Worker::Redis(args) => redis::load::main(args),
        Worker::Floor => sources::floor::main(),
    }
}
