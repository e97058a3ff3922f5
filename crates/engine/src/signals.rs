//! The engine's signals: SIGBUS and SIGSEGV for faults, SIGSYS for trapped calls.
//!
//! The engine's handlers stay in place whatever the program does; what the program installs for these signals is kept here
//! and called for everything that is not ours, as the kernel would call it. The three signals are never blocked, because a
//! fault at a blocked signal is death.
use crate::control::Stat;
use crate::layout::*;
use crate::live::{Live, try_live};
use crate::machine::page_of;
use crate::source::Source;
use crate::trap;
use core::arch::{global_asm, x86_64::_rdtsc};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::engine::Fault;
use outswap_core::machine::Prot;
use outswap_core::word::State;
use outswap_sys::signal::*;
use outswap_sys::{Result, os};

/// Signals that the program can never block.
pub const OURS: u64 = bit(SIGBUS) | bit(SIGSEGV) | bit(SIGSYS);
const SIGNALS: [i32; 3] = [SIGBUS, SIGSEGV, SIGSYS];
const BUS_ADRERR: i32 = 2;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const SYS_SECCOMP: i32 = 1;
const SS_DISABLE: i32 = 2;

/// The program's dispositions of our signals.
#[derive(Clone, Copy, Default)]
pub struct Actions([KernelSigaction; 3]);

impl Actions {
    /// The disposition of one of our signals; `None` for others.
    pub fn get(&mut self, signal: i32) -> Option<&mut KernelSigaction> {
        SIGNALS.iter().position(|s| *s == signal).map(|i| &mut self.0[i])
    }
}

global_asm!(
    ".globl outswap_restorer",
    ".hidden outswap_restorer",
    "outswap_restorer:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
);
unsafe extern "C" {
    fn outswap_restorer();
}

/// Installs the handlers; the dispositions that were there become the program's.
pub fn install(actions: &mut Actions) -> Result<()> {
    for signal in SIGNALS {
        let handler = if signal == SIGSYS { on_sigsys as *const () } else { on_fault as *const () };
        let action = KernelSigaction {
            handler: handler as usize,
            flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
            restorer: outswap_restorer as *const () as usize,
            mask: u64::MAX,
        };
        // SAFETY: the handlers keep the contract of the fault path.
        unsafe { sigaction(signal, Some(&action), actions.get(signal))? };
    }
    let mask = set_mask(u64::MAX);
    set_mask(mask & !OURS);
    Ok(())
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
fn is_ours(live: &Live, signal: i32, info: &Siginfo, uc: &Ucontext) -> bool {
    let end = ARENA + live.engine.machine.arena_bytes.load(Relaxed);
    if !(ARENA..end).contains(&info.addr) {
        return false;
    }
    match live.source() {
        Source::Move | Source::Copy => signal == SIGBUS && info.code == BUS_ADRERR,
        Source::Mprotect => {
            if signal != SIGSEGV || info.code != SEGV_ACCERR {
                return false;
            }
            // Without access rights in the kernel either the page is not resident, or the program has none.
            const WRITE: u64 = 2;
            const FETCH: u64 = 16;
            let Some(vma) = live.engine.find(page_of(info.addr)) else { return false };
            let need = match uc.gregs.err {
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
    let (siginfo, ucontext) = unsafe { (&*info, &*uc) };
    let Some(live) = try_live() else { return fall(signal) };
    // Looking at the map takes its lock, which a fork in another thread must not copy held: inside the engine it waits.
    let ours = match live.source() {
        Source::Mprotect => {
            let _held = live.contexts.hold();
            is_ours(live, signal, siginfo, ucontext)
        }
        Source::Move | Source::Copy => is_ours(live, signal, siginfo, ucontext),
    };
    if ours {
        // SAFETY: every x86-64 processor has the counter.
        let start = unsafe { _rdtsc() };
        let page = page_of(siginfo.addr);
        let outcome = live.contexts.hold().run(|cx| live.engine.fault(page, cx));
        // SAFETY: as above.
        let ticks = unsafe { _rdtsc() }.saturating_sub(start);
        let bucket = ticks_to_ns(ticks).max(1).ilog2() as usize;
        let buckets = &live.record().counters.latency_ns;
        buckets[bucket.min(buckets.len() - 1)].fetch_add(1, Relaxed);
        match outcome {
            Fault::Done => return,
            Fault::NotMapped => {
                // Another thread may have put something else there, or brought the page in, since the fault.
                if live.engine.state(page) == State::Resident {
                    return;
                }
            }
            Fault::Corrupt => live.warn(b"warning: what the store gave back is not what was stored: the program gets SIGBUS instead of wrong data"),
            Fault::Unreadable => live.warn(b"warning: the swap file cannot be read: the program gets SIGBUS"),
            Fault::NoMemory => live.warn(b"warning: the machine has no memory for a page: the program gets SIGBUS"),
        }
        // SAFETY: the kernel's own structures.
        return unsafe { dispatch(live, SIGBUS, info, uc) };
    }
    if signal == SIGSEGV && siginfo.code == SEGV_ACCERR && in_arena(siginfo.addr) && is_hole(live, siginfo.addr) {
        // The reserved range is mapped without access where the program has nothing mapped.
        // SAFETY: the kernel's own structure, which is this handler's.
        unsafe { (*info).code = SEGV_MAPERR };
    }
    // SAFETY: the kernel's own structures.
    unsafe { dispatch(live, signal, info, uc) }
}

fn is_hole(live: &Live, addr: usize) -> bool {
    let inside = addr < ARENA + live.engine.machine.arena_bytes.load(Relaxed);
    let _held = live.contexts.hold();
    inside && live.engine.find(page_of(addr)).is_none()
}

unsafe extern "C" fn on_sigsys(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    let siginfo = unsafe { &*info };
    match try_live() {
        // What traps in the gate is trapped by a filter of the program's own.
        Some(live) if siginfo.code == SYS_SECCOMP && !(GATE..GATE + GATE_CODE_BYTES).contains(&siginfo.addr) => {
            // SAFETY: as above; nobody else has the context of the interrupted code.
            unsafe { trap::on_trap(live, siginfo, &mut *uc) }
        }
        // SAFETY: as above.
        Some(live) => unsafe { dispatch(live, signal, info, uc) },
        // During set-up: the probe for an inherited filter.
        None if siginfo.code == SYS_SECCOMP => {
            TRAPPED.store(true, Release);
            // SAFETY: as above.
            unsafe { (*uc).gregs.rax = 0 };
        }
        None => fall(signal),
    }
}

/// Set by a trap before the engine is in place.
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// Whether a trap came before the engine was in place.
pub fn was_trapped() -> bool {
    TRAPPED.load(Acquire)
}

/// Gives the program its dispositions back: this process will not be managed after all.
pub fn uninstall(actions: &mut Actions) {
    for signal in SIGNALS {
        // SAFETY: these were the dispositions before.
        let _ = unsafe { sigaction(signal, actions.get(signal).as_deref(), None) };
    }
}

/// Sets the default disposition, so that the fault that comes again ends the process as it would have.
fn fall(signal: i32) {
    // SAFETY: the default disposition runs no code.
    let _ = unsafe { sigaction(signal, Some(&KernelSigaction::default()), None) };
}

/// Hands a signal to the program, as the kernel would have done.
///
/// # Safety
/// `info` and `uc` are what the kernel passed to the handler that calls this, as its last act.
unsafe fn dispatch(live: &Live, signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    let action = {
        let _held = live.contexts.hold();
        let mut actions = live.actions.lock(|s| crate::live::pause(live, s));
        let Some(slot) = actions.get(signal) else { return };
        let action = *slot;
        if action.flags & SA_RESETHAND != 0 {
            slot.handler = SIG_DFL;
        }
        action
    };
    // SAFETY: the kernel's own structures.
    let sent = unsafe { (*info).code } <= 0;
    // A fault at a blocked signal is death.
    let blocked = !sent && pretended() & bit(signal) != 0;
    match action.handler {
        SIG_IGN if sent => {}
        _ if blocked => fall(signal),
        SIG_DFL | SIG_IGN => {
            // A fault comes again by itself; a signal that was sent, or a fault found by the store, does not.
            // SAFETY: the mask is the one that returning restores.
            unsafe { (*uc).sigmask &= !bit(signal) };
            fall(signal);
            let _ = os::tgkill(os::getpid(), os::gettid(), signal);
        }
        handler => {
            // SAFETY: as above.
            let before = unsafe { (*uc).sigmask };
            let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
            set_mask((before | action.mask | own) & !OURS);
            // SAFETY: the program installed this function as a handler of this signal.
            let handler: unsafe extern "C" fn(i32, *mut Siginfo, *mut Ucontext) =
                unsafe { core::mem::transmute(handler) };
            // SAFETY: called with what the kernel would have passed.
            unsafe { handler(signal, info, uc) };
            set_mask(u64::MAX);
            // SAFETY: as above; the handler may have changed the mask to return to.
            unsafe { (*uc).sigmask &= !OURS };
        }
    }
}

/// Which of our signals a thread believes to have blocked: thread in the upper half, mask in the lower; only those that
/// block any have an entry.
static PRETENDED: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Which of our signals the calling thread believes to have blocked.
pub fn pretended() -> u64 {
    let tid = os::gettid() as u64;
    let entry = PRETENDED.iter().map(|p| p.load(Acquire)).find(|p| p >> 32 == tid);
    entry.map_or(0, |p| p & OURS)
}

/// Remembers [`pretended`]. With all places taken, the thread is not told of its block.
pub fn set_pretended(mask: u64) {
    let tid = os::gettid() as u64;
    let value = if mask == 0 { 0 } else { tid << 32 | mask };
    if let Some(entry) = PRETENDED.iter().find(|p| p.load(Acquire) >> 32 == tid) {
        entry.store(value, Release);
    } else if mask != 0 {
        let _ = PRETENDED.iter().any(|p| p.compare_exchange(0, value, AcqRel, Relaxed).is_ok());
    }
}

/// Counts a trapped call.
pub fn count_trap(live: &Live) {
    live.stat(Stat::CallsTrapped, 1);
}

/// An alternate stack for handlers, so that a fault on a stack in managed memory can be answered.
pub const ALTSTACK_BYTES: usize = 128 * 1024;

/// Alternate stacks that the engine gave: where, and to which thread (0: free).
struct Given {
    sp: AtomicUsize,
    tid: AtomicI32,
}
const GIVEN_MAX: usize = 4096;
static GIVEN: [Given; GIVEN_MAX] = [const { Given { sp: AtomicUsize::new(0), tid: AtomicI32::new(0) } }; GIVEN_MAX];

/// Whether an alternate stack is one of ours.
pub fn is_given_altstack(sp: usize) -> bool {
    sp != 0 && GIVEN.iter().map_while(|g| Some(g.sp.load(Acquire)).filter(|s| *s != 0)).any(|s| s == sp)
}

/// The alternate stack that the engine gave the calling thread.
pub fn given_altstack() -> Option<Stack> {
    let tid = os::gettid();
    GIVEN.iter().find(|g| g.tid.load(Acquire) == tid).map(|g| Stack {
        sp: g.sp.load(Acquire),
        flags: 0,
        size: ALTSTACK_BYTES,
    })
}

/// Gives the calling thread an alternate stack if it has none, and says where it is. With all places taken, threads
/// go without: then only faults on stacks in managed memory cannot be answered.
pub fn take_altstack() -> Result<Option<usize>> {
    let mut old = Stack::default();
    // SAFETY: only reads.
    unsafe { sigaltstack(None, Some(&mut old))? };
    if old.flags & SS_DISABLE == 0 {
        return Ok(None);
    }
    let tid = os::gettid();
    let Some(given) = GIVEN.iter().find(|g| g.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok()) else {
        return Ok(None);
    };
    if given.sp.load(Acquire) == 0 {
        given.sp.store(os::mmap_anonymous(ALTSTACK_BYTES)?, Release);
    }
    let sp = given.sp.load(Acquire);
    // SAFETY: memory that stays mapped while the thread uses it.
    unsafe { sigaltstack(Some(&Stack { sp, flags: 0, size: ALTSTACK_BYTES }), None)? };
    Ok(Some(sp))
}

/// Takes an ending thread's alternate stack back.
pub fn give_altstack(sp: usize) {
    let mut now = Stack::default();
    // SAFETY: only reads.
    let known = unsafe { sigaltstack(None, Some(&mut now)) }.is_ok();
    if known && now.sp == sp {
        // SAFETY: no stack at all replaces ours.
        let _ = unsafe { sigaltstack(Some(&Stack { sp: 0, flags: SS_DISABLE, size: 0 }), None) };
    }
    if let Some(given) = GIVEN.iter().find(|g| g.sp.load(Acquire) == sp) {
        given.tid.store(0, Release);
    }
}

/// In a forked child, the calling thread is the only one, under a new number.
pub fn adopt_altstack(old_tid: i32) {
    let tid = os::gettid();
    for entry in &PRETENDED {
        let value = entry.load(Acquire);
        let own = value >> 32 == old_tid as u64;
        entry.store(if own { (tid as u64) << 32 | value & OURS } else { 0 }, Release);
    }
    for given in GIVEN.iter().take_while(|g| g.sp.load(Acquire) != 0) {
        let own = given.tid.load(Acquire) == old_tid;
        given.tid.store(if own { tid } else { 0 }, Release);
    }
}
