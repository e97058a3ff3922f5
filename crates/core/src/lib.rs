//! The pager's decisions and bookkeeping: page states, slots, swap cache, reclaim lists, address map.
//!
//! The modules stand in the order in which they build on each other: each uses only those above it.
//!
//! This crate does no I/O, starts no thread, and has no clock but the one that its machine lends it. It is generic over two
//! traits, [`machine::Machine`] and [`store::Store`], so that the live pager and the simulated machine of the tests run the same
//! state machine.
//! It runs in a signal handler at any instruction of the program: it allocates nothing, and its locks are spin locks
//! that are held only where no signal makes the program go on meanwhile.
#![cfg_attr(not(any(test, loom, outswap_broken)), no_std)]

// Numbers, and what everything is made of.
pub mod broken;
pub mod units;
pub mod mask;
pub mod sync;
pub mod lock;
pub mod table;
pub mod ring;
pub mod chain;
pub mod occupancy;
pub mod device;

// State.
pub mod page;
pub mod regions;
pub mod slots;
pub mod swapcache;
pub mod owners;
pub mod protection;
pub mod copies;
pub mod left;
pub mod clean;

// What the pager stands on.
pub mod store;
pub mod machine;
pub mod vma;
pub mod pins;
pub mod frames;
pub mod writeback;
pub mod full;
pub mod looks;
pub mod workingset;

// Policies.
pub mod orders;
pub mod readahead;
pub mod reclaim;
pub mod ahead;
pub(crate) mod upcoming;

// The pager, and what it does.
pub mod pager;
pub mod trap;
pub mod mm;
pub mod aging;
pub mod isolate;
pub mod hold;
pub mod pageout;
pub mod large;
pub mod dropahead;
pub mod room;
pub mod bring;
pub mod reuse;
pub mod untrap;
pub mod huge;
pub mod firsttouch;
pub mod hit;
pub mod swapahead;
pub mod swapin;
pub mod fault;
pub mod streamahead;
pub mod hints;
pub mod mremap;
pub mod mlock;
pub mod whole;
pub mod check;
