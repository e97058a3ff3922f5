//! The live runtime: fault entry, reclaim thread, system-call boundary, fork, signals, budget and statistics.
//!
//! `no_std` and without an allocator: everything here may run in a signal handler at any instruction of the program, or before
//! the C library is ready.
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod assist;
pub mod budget;
pub mod calls;
pub mod code;
pub mod contexts;
pub mod deliver;
pub mod exec;
pub mod filter;
pub mod foreign;
pub mod fork;
pub mod gate;
pub mod init;
pub mod layout;
pub mod live;
pub mod machine;
pub mod memory;
pub mod parts;
pub mod reclaim;
pub mod rights;
pub mod rlimits;
pub mod signals;
pub mod source;
pub mod threads;
pub mod trap;
