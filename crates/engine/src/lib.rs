//! The live engine: fault entry, reclaim thread, system-call boundary, fork, signals, budget and statistics.
#![cfg_attr(not(test), no_std)]

pub mod control;
