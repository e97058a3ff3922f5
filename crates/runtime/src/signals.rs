//! The runtime's signals: SIGBUS and SIGSEGV for faults, SIGSYS for trapped calls.
//!
//! The runtime's handlers stay in place whatever the program does; everything that is not ours is the program's
//! ([`crate::deliver`]). The three signals are never blocked, because a fault at a blocked signal is death.
use crate::layout::*;
use crate::live::{Live, try_live};
use crate::machine::page_of;
use crate::source::Source;
use crate::{deliver, threads, trap};
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use outswap_control::Stat;
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::pager::Fault;
use outswap_sys::signal::*;
use outswap_sys::{Result, os};

/// Signals that the program can never block.
pub const OURS: u64 = bit(SIGBUS) | bit(SIGSEGV) | bit(SIGSYS);
/// The same, as a list.
pub const SIGNALS: [i32; 3] = [SIGBUS, SIGSEGV, SIGSYS];
const BUS_ADRERR: i32 = 2;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const SYS_SECCOMP: i32 = 1;

/// Installs the handlers; the dispositions that were there become the program's. `old` gets those, to be put back by
/// [`uninstall`].
pub fn install(old: &mut [KernelSigaction; 3]) -> Result<()> {
    for (signal, old) in SIGNALS.into_iter().zip(old) {
        let handler = if signal == SIGSYS { on_sigsys as *const () } else { on_fault as *const () };
        // While the runtime works, on its own stack, even these wait: the kernel would put the frame of one over that of the first.
        // One that is sent and ignored must not interrupt a call.
        let action = KernelSigaction {
            handler: handler as usize,
            flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_RESTART,
            restorer: deliver::plain_restorer(),
            mask: u64::MAX,
        };
        // SAFETY: the handlers keep the contract of the fault path.
        unsafe { sigaction(signal, Some(&action), Some(old))? };
    }
    let mask = set_mask(u64::MAX);
    set_mask(mask & !OURS);
    Ok(())
}

/// Gives the program its dispositions back: this process will not be managed after all.
pub fn uninstall(old: &[KernelSigaction; 3]) {
    for (signal, old) in SIGNALS.into_iter().zip(old) {
        // SAFETY: these were the dispositions before.
        let _ = unsafe { sigaction(signal, Some(old), None) };
    }
}

/// Time-stamp counter ticks to nanoseconds: ticks and time at start.
static TSC_START: AtomicU64 = AtomicU64::new(0);
static TSC_START_NS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per 2^20 ticks.
static TSC_SCALE: AtomicU64 = AtomicU64::new(0);
/// The scale is derived once so much time has passed, for three digits.
const TSC_SETTLE_NS: u64 = 2_000_000;

/// Remembers where the time-stamp counter stands.
pub fn start_clock() {
    TSC_START_NS.store(os::monotonic_ns(), Relaxed);
    // SAFETY: every x86-64 processor has the counter.
    TSC_START.store(unsafe { _rdtsc() }, Relaxed);
}

fn ticks_to_ns(ticks: u64) -> u64 {
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

/// Whether a fault is about a managed page that is merely not there.
fn is_ours(live: &Live, signal: i32, addr: usize, code: i32, err: u64) -> bool {
    let end = ARENA + live.pager.machine.arena_bytes.load(Relaxed);
    if !(ARENA..end).contains(&addr) {
        return false;
    }
    match live.source() {
        Source::Move | Source::Copy => signal == SIGBUS && code == BUS_ADRERR,
        Source::Mprotect => {
            if signal != SIGSEGV || code != SEGV_ACCERR {
                return false;
            }
            // Without access rights in the kernel either the page is not resident, or the program has none.
            const WRITE: u64 = 2;
            const FETCH: u64 = 16;
            let Some(vma) = live.pager.find(page_of(addr)) else { return false };
            let need = match err {
                e if e & FETCH != 0 => os::PROT_EXEC,
                e if e & WRITE != 0 => os::PROT_WRITE,
                _ => os::PROT_READ,
            };
            // The processor has no memory that can be written or executed but not read.
            let readable = need == os::PROT_READ && vma.prot != Prot::NONE;
            !vma.foreign && (readable || vma.prot.0 as usize & need != 0)
        }
    }
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    let (siginfo, ucontext) = unsafe { (&mut *info, &mut *uc) };
    let Some(live) = try_live() else { return fall(signal) };
    threads::adopt(live, ucontext);
    let mut signal = signal;
    let (addr, code, err) = (siginfo.addr, siginfo.code, ucontext.gregs.err);
    let ours = match live.source() {
        // Looking at the map takes its lock, which a fork in another thread must not copy held: that is done inside the runtime.
        Source::Mprotect if signal == SIGSEGV && code == SEGV_ACCERR && in_arena(addr) => {
            live.with(move |_| is_ours(live, SIGSEGV, addr, code, err))
        }
        Source::Mprotect => false,
        Source::Move | Source::Copy => is_ours(live, signal, addr, code, err),
    };
    if ours {
        // SAFETY: every x86-64 processor has the counter.
        let start = unsafe { _rdtsc() };
        let page = page_of(addr);
        let outcome = live.with(move |cx| live.pager.fault(page, cx));
        // SAFETY: as above.
        let ticks = unsafe { _rdtsc() }.saturating_sub(start);
        let bucket = ticks_to_ns(ticks).max(1).ilog2() as usize;
        let buckets = &live.record().counters.latency_ns;
        buckets[bucket.min(buckets.len() - 1)].fetch_add(1, Relaxed);
        match outcome {
            Fault::Done => return,
            Fault::NotMapped => {
                // Another thread may have put something else there, or brought the page in, since the fault.
                if live.pager.state(page) == State::Resident {
                    return;
                }
            }
            Fault::Corrupt => live.warn(b"warning: what the store gave back is not what was stored: the program gets SIGBUS instead of wrong data"),
            Fault::Unreadable => live.warn(b"warning: the swap file cannot be read: the program gets SIGBUS"),
            Fault::NoMemory => live.warn(b"warning: the machine has no memory for a page: the program gets SIGBUS"),
        }
        signal = SIGBUS;
        siginfo.signo = SIGBUS;
    } else if signal == SIGSEGV && code == SEGV_ACCERR && in_arena(addr) && is_hole(live, addr) {
        // The reserved range is mapped without access where the program has nothing mapped.
        siginfo.code = SEGV_MAPERR;
    }
    if code > 0 && deliver::copy_failed(ucontext) {
        return;
    }
    // SAFETY: the kernel's own structures.
    unsafe { deliver::deliver(live, signal, info, uc) }
}

fn is_hole(live: &'static Live, addr: usize) -> bool {
    let inside = addr < ARENA + live.pager.machine.arena_bytes.load(Relaxed);
    live.with(move |_| inside && live.pager.find(page_of(addr)).is_none())
}

unsafe extern "C" fn on_sigsys(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    let siginfo = unsafe { &*info };
    match try_live() {
        // What traps in the gate is trapped by a filter of the program's own.
        Some(live) if siginfo.code == SYS_SECCOMP && !deliver::from_gate(siginfo.addr) => {
            // SAFETY: as above; nobody else has the context of the interrupted code.
            unsafe { trap::on_trap(live, siginfo, &mut *uc) }
        }
        // SAFETY: as above.
        Some(live) => unsafe { deliver::deliver(live, signal, info, uc) },
        // During set-up: the probe for an inherited filter.
        None if siginfo.code == SYS_SECCOMP => {
            TRAPPED.store(true, Release);
            // SAFETY: as above.
            unsafe { (*uc).gregs.rax = 0 };
        }
        None => fall(signal),
    }
}

/// Set by a trap before the runtime is in place.
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// Whether a trap came before the runtime was in place.
pub fn was_trapped() -> bool {
    TRAPPED.load(Acquire)
}

/// Sets the default disposition, so that the fault that comes again ends the process as it would have.
pub fn fall(signal: i32) {
    // SAFETY: the default disposition runs no code.
    let _ = unsafe { sigaction(signal, Some(&KernelSigaction::default()), None) };
}

/// Counts a trapped call.
pub fn count_trap(live: &Live) {
    live.stat(Stat::CallsTrapped, 1);
}
