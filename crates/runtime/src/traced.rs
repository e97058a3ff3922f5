//! Debuggers start a program by a vforked child that asks to be traced and executes it. Between the two, a signal stops that child,
//! and its debugger waits for the exec and cannot let it go on: a trap would hang both. So the child is traced from its exec on, which
//! comes before its debugger can look.
use core::sync::atomic::{AtomicI32, Ordering::*};
use outswap_sys::{nr, os, ret, syscall4};

/// `PTRACE_TRACEME`.
pub const TRACEME: usize = 0;

/// Whether a request of `ptrace` makes the caller the tracer of a thread: `PTRACE_ATTACH`, `PTRACE_SEIZE`.
pub fn begins(request: usize) -> bool {
    matches!(request, 16 | 0x4206)
}

/// The process that asked, 0 for none.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// A process that shares the memory asks to be traced. False where another did, which has not executed a program yet.
pub fn ask(is_alive: impl Fn(i32) -> bool) -> bool {
    let (pid, before) = (os::getpid(), ASKED.load(Acquire));
    (before == 0 || before == pid || !is_alive(before)) && ASKED.compare_exchange(before, pid, AcqRel, Relaxed).is_ok()
}

/// The process is about to execute a program: it is traced now if it asked.
pub fn begin() {
    let pid = os::getpid();
    if ASKED.load(Acquire) == pid && ASKED.compare_exchange(pid, 0, AcqRel, Relaxed).is_ok() {
        // SAFETY: a call without memory.
        let _ = ret(unsafe { syscall4(nr::PTRACE, TRACEME, 0, 0, 0) });
    }
}
