//! Time by the processor's time-stamp counter, which costs no system call.
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_sys::os;

/// Time-stamp counter ticks to nanoseconds: ticks and time at start.
static TSC_START: AtomicU64 = AtomicU64::new(0);

static TSC_START_NS: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds per 2^20 ticks.
static TSC_SCALE: AtomicU64 = AtomicU64::new(0);

/// The scale is derived once so much time has passed, for three digits.
const TSC_SETTLE_NS: u64 = 2_000_000;

/// Remembers where the time-stamp counter stands.
pub fn start() {
    TSC_START_NS.store(os::monotonic_ns(), Relaxed);
    // SAFETY: every x86-64 processor has the counter.
    TSC_START.store(unsafe { _rdtsc() }, Relaxed);
}

/// Where the counter stands.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { _rdtsc() }
}

/// The time, in nanoseconds since the processor was reset.
pub fn now_ns() -> u64 {
    ticks_to_ns(ticks())
}

/// Nanoseconds of so many ticks.
pub fn ticks_to_ns(ticks: u64) -> u64 {
    let mut scale = TSC_SCALE.load(Relaxed);
    if scale == 0 {
        let ns = os::monotonic_ns() - TSC_START_NS.load(Relaxed);
        // SAFETY: as above.
        let all = unsafe { _rdtsc() } - TSC_START.load(Relaxed);
        scale = (ns << 20) / all.max(1);
        if ns > TSC_SETTLE_NS {
            TSC_SCALE.store(scale, Relaxed);
        }
    }
    ((ticks as u128 * scale as u128) >> 20) as u64
}
