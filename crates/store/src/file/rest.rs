//! Rests: for how long something that failed, or found nothing to do, is not tried again.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_sys::os;

/// Until when something rests. All-zero memory: it does not.
pub(super) struct Rest {
    until_ns: AtomicU64,
}

impl Rest {
    /// Whether the time has not come.
    pub fn rests(&self) -> bool {
        let until_ns = self.until_ns.load(Relaxed);
        until_ns != 0 && os::monotonic_ns() < until_ns
    }

    /// Begins to rest.
    pub fn begin(&self, duration_ns: u64) {
        self.until_ns.store(os::monotonic_ns() + duration_ns, Relaxed);
    }

    /// Rests no longer.
    pub fn end(&self) {
        self.until_ns.store(0, Relaxed);
    }
}
