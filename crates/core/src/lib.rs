//! The pager's decisions and bookkeeping: page states, slots, swap cache, reclaim lists, address map.
//!
//! This crate has no clock, does no I/O and starts no thread. It is generic over two traits, [`machine::Machine`]
//! and [`store::Store`], so that the live pager and the simulated machine of the tests run the same state machine.
//! It runs in a signal handler at any instruction of the program: it allocates nothing, and its locks are spin locks
//! that ordinary code holds only while all signals are blocked.
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod lock;
pub mod machine;
pub mod occupancy;
pub mod page;
pub mod pager;
pub mod pins;
pub mod ring;
pub mod slots;
pub mod store;
pub mod sync;
pub mod table;
pub mod units;
pub mod vma;
