//! Calls that a program which is linked to fixed addresses makes by instructions of its own.
//!
//! The process filter knows calls by where they come from. But a program that this one executes, and that is not managed, may have its code
//! at the same fixed addresses; it inherits the filter, and has nobody to answer. So calls from there are told by the kernel's dispatch of
//! calls (Gabriel Krisman Bertazi, "kernel: entry: Support Syscall User Dispatch", Linux 5.11), which ends with an exec. It is of one
//! thread, and inherited by none: each begins with it. Without it, such a program can take from the runtime the signals that it needs, as
//! all do that Free Pascal has made.
use crate::avoided;
use crate::code::{FIXED_END, USER_END};
use core::sync::atomic::{AtomicBool, Ordering::*};
use outswap_sys::os;
use outswap_sys::signal::Siginfo;

/// The code of such a signal.
const SYS_USER_DISPATCH: i32 = 2;

/// The program lies at fixed addresses, and the kernel tells of its calls.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Calls from elsewhere than that are made as they are: where such code does not lie, and how many bytes that is. Nothing where all calls
/// are.
pub fn passes() -> [usize; 2] {
    if IS_ON.load(Relaxed) && avoided::may_dispatch() { [FIXED_END, USER_END - FIXED_END] } else { [0, 0] }
}

/// The calling thread's calls are told from now on. `fixed` is where code lies at fixed addresses.
pub fn begin(fixed: (usize, usize)) {
    if fixed.1 > 0 {
        IS_ON.store(true, Relaxed);
        again();
    }
}

/// The same in a forked child.
pub fn again() {
    let [from, bytes] = passes();
    let is_on = bytes > 0 && os::dispatch_calls(from, bytes).is_ok();
    IS_ON.store(is_on, Relaxed);
}

/// Whether a SIGSYS tells of such a call.
pub fn tells(info: &Siginfo) -> bool {
    info.code == SYS_USER_DISPATCH && info.addr < FIXED_END && IS_ON.load(Relaxed)
}
