#![cfg_attr(not(test), no_std)]
pub mod store;
pub mod units;
