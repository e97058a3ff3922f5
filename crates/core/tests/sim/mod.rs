//! The simulated process: machine, store, schedule and programs.
pub mod machine;
pub mod program;
pub mod sched;
pub mod store;
