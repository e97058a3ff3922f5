//! The live runtime: fault entry, reclaim thread, system-call boundary, fork, signals, budget and statistics.
//!
//! `no_std` and without an allocator: everything here may run in a signal handler at any instruction of the program, or before
//! the C library is ready.
//!
//! The order of the modules below is their layering: each uses only what stands above it. The same holds among the files of a
//! folder, which use nothing of their folder's `mod.rs`.
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

// Numbers, tables and layout.
mod store;
mod limits;
mod errno;
pub mod layout;
mod calls;
mod structures;
mod pointers;

// What the kernel and the C library know of this process.
mod clock;
mod process;
mod avoided;
mod kept;
mod child_end;
mod procfs;
pub mod segments;
mod code;
mod scan;
mod heap_calls;
mod contexts;
mod dispositions;
mod namespaces;
mod scheduling;

// Arithmetic.
mod budget;
mod longwrites;
mod wipes;
mod mlocks;
mod objects;

// The gate, the filters, and the stacks on which what they trap is served.
pub mod gate;
mod unseen;
mod filter;
mod stacks;

// Managed memory.
mod arena;
mod dumps;
mod huge;
mod machine;

// Processes that share the memory.
mod background;
mod sharers;
mod desk;

// The process.
pub mod live;
mod confined;
mod usermem;
mod bss;
mod threads;
mod descriptors;
mod pins;
mod records;
mod charge;
mod halves;
mod pressure;
mod full;
pub mod rlimits;

// Calls.
mod whole;
mod kind;
mod merging;
mod memory;
mod constants;
mod given;
mod stub_call;
pub mod direct;
pub mod redirect;
pub mod sigmask;
pub mod sites;
mod assisted;
mod dispatch;
mod traced;
mod exec;
mod parts;
mod wishes;
mod transfer;

// Threads, processes, signals.
mod accessed;
mod reclaim;
mod clone;
mod fork;
mod sandbox;
mod privileges;
mod deliver;
pub mod sigaction;
mod sigcalls;
mod trap;
mod signals;
pub mod init;
