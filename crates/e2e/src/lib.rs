//! Helpers of the end-to-end tests: every test runs a program twice, plainly and under `outswap run`, and compares.
//!
//! Environment: `OUTSWAP_BIN` names the binary to test (default: the workspace's release build), with its libraries
//! beside it. `OUTSWAP_E2E_PLAIN=1` runs both sides plainly, which proves the tests themselves.
pub mod place;
pub mod stats;
pub mod sample;
pub mod process;
pub mod build;
pub mod setup;
pub mod wire;
pub mod workloads;
pub mod applications;
pub mod calls;

pub use place::plain_mode;
pub use process::{Outcome, Run, Running};
pub use setup::{Setup, Tmp};

/// A binary kilobyte.
pub const KIB: u64 = 1 << 10;
/// A binary megabyte.
pub const MIB: u64 = 1 << 20;

/// Whether all is asked for, also what takes long (`make e2e-full`).
pub fn is_full() -> bool {
    env_or("OUTSWAP_E2E_FULL", 0) != 0
}

/// A number from the environment, or its default.
pub fn env_or(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
