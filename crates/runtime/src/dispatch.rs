//! Calls that a program which is linked to fixed addresses makes by instructions of its own.
//!
//! The process filter knows calls by where they come from. But a program that this one executes, and that is not managed, may have its code
//! at the same fixed addresses; it inherits the filter, and has nobody to answer. So calls from there are told by the kernel's dispatch of
//! calls (Gabriel Krisman Bertazi, "kernel: entry: Support Syscall User Dispatch", Linux 5.11), which ends with an exec. It is of one
//! thread, and inherited by none: each begins with it. Without it, such a program can take from the runtime the signals that it needs, as
//! all do that Free Pascal has made.
use crate::assisted;
use crate::avoided;
use crate::code::FIXED_END;
use crate::errno::ENOSYS;
use crate::layout::{GATE_BYTES, gate as gate_at, in_managed};
use crate::limits::CALL_NUMBERS;
use crate::pointers::{self, Pointers};
use crate::{filter, gate};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use outswap_sys::signal::{Siginfo, Ucontext};
use outswap_sys::{nr, os, syscall5};

/// The code of such a signal.
const SYS_USER_DISPATCH: i32 = 2;
/// Modes of `PR_SET_SYSCALL_USER_DISPATCH`: no call is told, or all but those from a range, or those alone (Linux 6.18).
const OFF: usize = 0;
const ALL_BUT: usize = 1;
const ONLY: usize = 2;
/// `AUDIT_ARCH_X86_64`, the architecture of calls by `syscall`. Others are those of the 32-bit kernel, by `int 0x80`.
const LONG: u32 = 0xc000_003e;

/// The program lies at fixed addresses, and the kernel tells of its calls.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Calls from elsewhere than that are made as they are: where such code does not lie, and how many bytes that is. Nothing where all calls
/// are.
pub fn passes() -> [usize; 2] {
    if IS_ON.load(Relaxed) && avoided::may_dispatch() { [FIXED_END, usize::MAX - FIXED_END] } else { [0, 0] }
}

/// Whether the kernel can tell of calls so.
pub fn is_possible() -> bool {
    os::dispatch_none().is_ok()
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

/// Whether a SIGSYS tells of such a call, and not the program that asked for the same itself.
pub fn tells(info: &Siginfo) -> bool {
    let is_ours = || {
        let [from, bytes] = PASSES_OF_PROGRAM.each_ref().map(|word| word.load(Relaxed));
        bytes == 0 || info.addr.wrapping_sub(from) < bytes
    };
    info.code == SYS_USER_DISPATCH && info.addr < FIXED_END && IS_ON.load(Relaxed) && is_ours()
}

/// What the program wants to pass that asked for it itself, in any thread, as [`passes`].
static PASSES_OF_PROGRAM: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// What passes of the calls of who asks so, as [`passes`]. Nothing where no call is told, or the kernel knows no such mode.
fn passes_of(mode: usize, from: usize, bytes: usize) -> Option<[usize; 2]> {
    match mode {
        // Without a range nothing passes but what the program's own byte says.
        ALL_BUT => Some([from, bytes.max(1)]),
        ONLY if bytes > 0 => Some([from.wrapping_add(bytes), bytes.wrapping_neg()]),
        _ => None,
    }
}

/// Whether the program would be told of the runtime's own calls, which nobody could answer then: those of the gate and of our code.
pub fn tells_of_ours([_, mode, from, bytes, ..]: [usize; 6]) -> bool {
    let Some([from, bytes]) = passes_of(mode, from, bytes) else { return false };
    let end = gate_at() + GATE_BYTES;
    ![gate_at(), end - 1, tells_of_ours as *const () as usize].into_iter().all(|at| at.wrapping_sub(from) < bytes)
}

/// `prctl(PR_SET_SYSCALL_USER_DISPATCH)` of the program's own: it has in the calling thread what it asks for, and else what is ours.
pub fn asked([option, mode, from, bytes, selector, _]: [usize; 6]) -> isize {
    // SAFETY: the program's call.
    let value = unsafe { syscall5(nr::PRCTL, option, mode, from, bytes, selector) };
    if value == 0 {
        let passes = passes_of(mode, from, bytes).unwrap_or_default();
        PASSES_OF_PROGRAM.iter().zip(passes).for_each(|(word, value)| word.store(value, Relaxed));
        if mode == OFF && IS_ON.load(Relaxed) {
            again();
        }
    }
    value
}

/// Whether the number of a call that was told is one of `syscall`, not of `int 0x80`.
pub fn is_long(info: &Siginfo) -> bool {
    info.arch == LONG
}

/// Makes such a call as it is made from elsewhere, where nothing of it concerns the runtime: it goes on in the gate. False where it does, or
/// where too many places make calls.
pub fn pass(info: &Siginfo, args: [usize; 6], uc: &mut Ucontext) -> bool {
    let nr = info.syscall as usize;
    let is_long = is_long(info);
    // Of a 32-bit call no filter has ever looked at anything.
    let is_free = !is_long || {
        let set = pointers::pointers_of(nr, &args);
        let names_managed = (0..6).any(|i| set >> i & 1 != 0 && in_managed(args[i]));
        // Those that wait with a mask of their own may have to let ours come.
        let has_mask = assisted::mask_argument(nr).is_some();
        let is_refused = matches!(pointers::pointers(nr), Some(Pointers::Refused));
        // The runtime's own numbers are always trapped.
        nr < CALL_NUMBERS && !names_managed && !has_mask && !is_refused && !filter::looks_at(nr)
    };
    if !is_free {
        return false;
    }
    match gate::pass_stub(uc.gregs.rip as usize, is_long) {
        Some(stub) => uc.gregs.rip = stub as u64,
        // What is no call of this kernel's is not made as one.
        None if !is_long => uc.gregs.rax = ENOSYS as u64,
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_be_told_of_our_calls_is_known() {
        let code = tells_of_ours as *const () as usize;
        let (lowest, highest) = (code.min(gate_at()), code.max(gate_at() + GATE_BYTES));
        let is_refused = |mode, from: usize, bytes| tells_of_ours([0, mode, from, bytes, 0, 0]);
        assert!(!is_refused(OFF, 0, 0) && !is_refused(3, 0, 0), "nobody is told anything");
        assert!(is_refused(ALL_BUT, 0, 0) && is_refused(ALL_BUT, 1 << 20, 1 << 20));
        assert!(
            !is_refused(ALL_BUT, lowest, highest - lowest + 1) && is_refused(ALL_BUT, lowest + 1, highest - lowest)
        );
        assert!(is_refused(ALL_BUT, code, 1) && is_refused(ALL_BUT, gate_at(), GATE_BYTES));
        assert!(!is_refused(ALL_BUT, FIXED_END, usize::MAX - FIXED_END), "a range may go round");
        assert!(!is_refused(ONLY, 1 << 20, 1 << 20) && is_refused(ONLY, code, 1) && is_refused(ONLY, 0, 1 << 47));
        assert!(is_refused(ONLY, gate_at() + GATE_BYTES - 1, 1) && !is_refused(ONLY, gate_at() + GATE_BYTES, 1));
    }
}
