//! Tests of the whole store, by subject.
pub(crate) mod bed;
mod devices;
mod fetch;
mod model;
mod threads;
mod ram;
mod units;
mod faults;
mod segments;
mod forks;
mod keys;
mod hostile;

pub(crate) use bed::{fill, proptest_config};
