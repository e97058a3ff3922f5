//! The pager on a simulated machine: memory, stores and threads that do what a seed says, and a plain model of what a program
//! must find.
//!
//! The modules stand in the order in which they build on each other.
#![cfg(not(loom))]

pub mod clock;
pub mod sched;
pub mod sabotage;
pub mod store;
pub mod slow;
pub mod chaos;
pub mod machine;
pub mod world;
pub mod program;
pub mod run;
