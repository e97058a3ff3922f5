//! Virtual time.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A clock that stands still until it is told how much time has passed. All that were cloned from one show the same time.
#[derive(Clone, Default, Debug)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// Lets time pass.
    pub fn pass_ns(&self, ns: u64) {
        self.0.fetch_add(ns, Relaxed);
    }
}
