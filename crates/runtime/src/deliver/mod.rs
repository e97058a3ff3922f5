//! Signals for the program: its handlers run as the kernel would have run them.
//!
//! The kernel is told of one handler for all of the program's signals, which runs on an alternate stack of ours. It copies the
//! signal frame to where the kernel would have put it (the stack of the interrupted code, or the program's alternate stack), and
//! returns into the program's handler there. So a frame may lie in managed memory, which the kernel could not write where a page
//! is missing; the program's alternate stack need only be as large as it would have to be; and no frame of ours lies below a
//! handler that throws an exception, is unwound by a cancelled thread, or leaves by `siglongjmp`.
//!
//! A call that was interrupted in its stub is first brought back to where the program made it: what is seen from the handler is
//! the program's own code, and what the call held is free.

mod interrupted;
mod frame;

pub use frame::{copy_failed, plain_restorer, returns};

use crate::dispositions::{OURS, SIGNAL_MAX, SIGNALS, set_default};
use crate::live::{Live, try_live};
use crate::stacks::{self, Kept, Thread};
use crate::{stub_call, threads};
use core::sync::atomic::Ordering::Relaxed;
use frame::enter_handler;
use interrupted::{interrupt_call, leave_stub, mask_of_call};
use outswap_sys::signal::*;
use outswap_sys::{Result, nr, os};

/// What shells add to the signal that a program died of, for its status.
const SIGNALLED: i32 = 128;
const SIGSEGV_CODE_KERNEL: i32 = 0x80;

/// The disposition of a signal that is delivered. A handler that wants that is reset; for other signals than ours, the kernel
/// does so.
fn take_disposition(live: &'static Live, signal: i32) -> KernelSigaction {
    let action = live.dispositions.get(signal);
    let resets = action.flags & SA_RESETHAND != 0 && action.handler > SIG_IGN && SIGNALS.contains(&signal);
    if resets && live.is_own_process() {
        live.contexts.with(|_| {
            // Unless another thread has changed it meanwhile.
            if live.dispositions.get(signal).handler == action.handler {
                live.dispositions.set(signal, &KernelSigaction { handler: SIG_DFL, ..action });
            }
        });
    }
    action
}

/// The disposition that the kernel gets in place of one with a handler of the program's.
fn stand_in(action: &KernelSigaction) -> KernelSigaction {
    const PASSED_ON: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART | SA_NODEFER | SA_RESETHAND;
    KernelSigaction {
        handler: on_signal as *const () as usize,
        flags: action.flags & PASSED_ON | SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: plain_restorer(),
        mask: u64::MAX,
    }
}

/// Takes over the handlers that were installed before the runtime was there.
pub fn adopt(live: &Live) {
    for signal in (1..=SIGNAL_MAX as i32).filter(|s| !SIGNALS.contains(s)) {
        let mut action = KernelSigaction::default();
        // SAFETY: only reads; then the program's handler is called by ours.
        unsafe {
            if sigaction(signal, None, Some(&mut action)).is_ok() && action.handler > SIG_IGN {
                live.dispositions.set(signal, &action);
                let _ = sigaction(signal, Some(&stand_in(&action)), None);
            }
        }
    }
}

/// `sigaction` as the program sees it, for every signal. `shared`: the caller is another process than the runtime's, whose
/// dispositions are its own.
pub fn change(
    live: &'static Live,
    signal: i32,
    new: Option<&KernelSigaction>,
    shared: bool,
) -> Result<KernelSigaction> {
    let new = new.map(as_kept);
    if SIGNALS.contains(&signal) {
        let old = live.dispositions.get(signal);
        if let Some(new) = new.filter(|_| !shared) {
            live.contexts.with(|_| live.dispositions.set(signal, &new));
            if new.handler == SIG_IGN {
                stacks::discard_waiting(signal);
            }
        }
        return Ok(old);
    }
    let mut old = KernelSigaction::default();
    let mut stood_in = None;
    let before = live.dispositions.idle_mask(signal);
    if let Some(new) = &new {
        let mut action = *new;
        action.mask &= !OURS;
        if new.handler > SIG_IGN && !shared && (1..=SIGNAL_MAX as i32).contains(&signal) {
            action = stand_in(new);
            stood_in = Some(live.dispositions.get(signal));
            live.contexts.with(|_| live.dispositions.set(signal, new));
        }
        // SAFETY: the program's own request, or a handler of ours in its place.
        if let Err(e) = unsafe { sigaction(signal, Some(&action), Some(&mut old)) } {
            if let Some(before) = stood_in {
                live.contexts.with(|_| live.dispositions.set(signal, &before));
            }
            return Err(e);
        }
        if new.handler <= SIG_IGN && !shared {
            live.dispositions.set_idle_mask(signal, new.mask);
        }
    } else {
        // SAFETY: only reads.
        unsafe { sigaction(signal, None, Some(&mut old))? };
    }
    // The kernel, which resets a handler, leaves the rest of what it was given.
    let was_reset = old.handler == SIG_DFL && old.flags & SA_RESETHAND != 0 && old.restorer == plain_restorer();
    if old.handler == on_signal as *const () as usize || was_reset {
        let asked = stood_in.unwrap_or_else(|| live.dispositions.get(signal));
        old = KernelSigaction { handler: if was_reset { SIG_DFL } else { asked.handler }, ..asked };
    } else if old.mask == before & !OURS {
        old.mask = before;
    }
    Ok(old)
}

/// A disposition as the kernel keeps it: without flags that it does not know (Peter Collingbourne, "signal: clear non-uapi flag bits when
/// passing/returning sa_flags", Linux 5.11), and with signals that can be blocked.
fn as_kept(action: &KernelSigaction) -> KernelSigaction {
    const SA_EXPOSE_TAGBITS: u64 = 0x800;
    const KNOWN: u64 = SA_NOCLDSTOP
        | SA_NOCLDWAIT
        | SA_SIGINFO
        | SA_ONSTACK
        | SA_RESTART
        | SA_NODEFER
        | SA_RESETHAND
        | SA_EXPOSE_TAGBITS
        | SA_RESTORER;
    const SIGKILL: i32 = 9;
    const SIGSTOP: i32 = 19;
    const NEVER_BLOCKED: u64 = bit(SIGKILL) | bit(SIGSTOP);
    KernelSigaction { flags: action.flags & KNOWN, mask: action.mask & !NEVER_BLOCKED, ..*action }
}

unsafe extern "C" fn on_signal(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    let Some(live) = try_live() else { return };
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    unsafe { deliver(live, signal, info, uc) }
}

/// Hands a signal to the program, as the kernel would have done: on return from the handler that calls this, the program's own
/// handler runs, or its default does.
///
/// # Safety
/// `info` and `uc` are what the kernel passed to the handler that calls this, as its last act, on an alternate stack of ours
/// where there is one.
pub unsafe fn deliver(live: &'static Live, signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel's own structures.
    let (info, uc) = unsafe { (&mut *info, &mut *uc) };
    let ours = SIGNALS.contains(&signal);
    let sent = info.code <= 0;
    let rsp = uc.gregs.rsp as usize;
    if live.contexts.holds(rsp) || stacks::holds(rsp) {
        // Nothing of the program's may run on the runtime's stacks, or in the midst of its work.
        if !ours && keep(signal, info, uc) {
            return;
        }
        if sent || !ours {
            return postpone(signal, info, uc);
        }
        live.control.post(b"error: a fault in the runtime itself: the program is ended to keep its data safe");
        return end_by(signal, uc);
    }
    let thread = threads::current_or_new(live, uc);
    let call_mask = mask_of_call(uc, signal);
    let pretended = call_mask.map_or_else(|| thread.map_or(0, Thread::pretended), |mask| mask & OURS);
    if ours && pretended & bit(signal) != 0 {
        if let (true, Some(thread)) = (sent, thread) {
            return thread.hold(signal, info);
        }
        // A fault at a blocked signal is death.
        return end_by(signal, uc);
    }
    let action = take_disposition(live, signal);
    match action.handler {
        SIG_IGN if sent || !ours => return,
        SIG_DFL | SIG_IGN => {
            // One that was sent does not end the first process of a pid namespace.
            if ours && !(sent && os::getpid() == 1) {
                end_by(signal, uc);
            }
            return;
        }
        _ => {}
    }
    let was_at = uc.gregs.rip as usize;
    let is_restarted = stub_call::is_restarted(&uc.gregs);
    leave_stub(live, uc, call_mask.is_some());
    if signal == SIGSYS && !sent && info.addr == was_at {
        // Trapped in a stub, by a filter of the program's own: it is told of its own call.
        info.addr = uc.gregs.rip as usize;
    }
    if ours && sent && is_restarted && action.flags & SA_RESTART == 0 {
        interrupt_call(uc);
    }
    // A call that waits with a mask of its own has its handlers run with that; the old one comes back with the frame.
    let during = call_mask.unwrap_or_else(|| uc.sigmask | thread.map_or(0, Thread::pretended));
    if enter_handler(thread, signal, info, uc, &action, during) {
        return;
    }
    // Without room for its frame, the program gets SIGSEGV, and dies of it where that is the signal, or has no room either.
    let segv = take_disposition(live, SIGSEGV);
    *info = Siginfo::of_kernel(SIGSEGV, SIGSEGV_CODE_KERNEL);
    let free = thread.is_none_or(|t| t.pretended() & bit(SIGSEGV) == 0);
    if signal != SIGSEGV && free && segv.handler > SIG_IGN && enter_handler(thread, SIGSEGV, info, uc, &segv, during) {
        return;
    }
    if os::getpid() == 1 {
        // What is sent does not end it, and there is no fault that would come again.
        os::exit_group(SIGNALLED + SIGSEGV);
    }
    end_by(SIGSEGV, uc);
}

/// Has the process end by a signal. A fault comes again by itself; a signal that was sent, or a fault found by the store, does not.
fn end_by(signal: i32, uc: &mut Ucontext) {
    uc.sigmask &= !bit(signal);
    set_default(signal);
    let _ = os::tgkill(os::getpid(), os::gettid(), signal);
}

/// Code that returns from the handler of faults: where a signal was kept meanwhile, it is delivered.
pub fn fault_restorer() -> usize {
    frame::fault_restorer(deliver_kept)
}

/// Keeps a signal that came while a fault was served, until that is done; so all others wait, too. Nobody else in the runtime lets signals
/// come that are not ours. False where that cannot be.
fn keep(signal: i32, info: &Siginfo, uc: &mut Ucontext) -> bool {
    // SAFETY: the kernel's own structure, and the thread that was interrupted.
    let is_kept = stacks::by_kernel_stack(&uc.stack).is_some_and(|thread| unsafe { thread.kept.put(signal, info) });
    if is_kept {
        uc.sigmask |= !OURS;
        frame::looks_again(uc);
    }
    is_kept
}

/// Hands the signal to the program that was kept while the fault was served that `uc` is of.
unsafe extern "C" fn deliver_kept(kept: *const Kept, uc: *mut Ucontext) {
    set_mask(u64::MAX);
    // SAFETY: the place of the calling thread, and the kernel's own structure. No other signal comes.
    unsafe {
        if let (Some(live), Some((signal, mut info))) = (try_live(), (*kept).take()) {
            deliver(live, signal, info.as_mut_ptr().cast(), uc);
        }
    }
}

/// A signal that was sent comes again when the handler that it interrupted returns: until then it is blocked.
fn postpone(signal: i32, info: &Siginfo, uc: &mut Ucontext) {
    if OURS & bit(signal) != 0
        && let Some(thread) = stacks::by_kernel_stack(&uc.stack).filter(|thread| thread.copies.load(Relaxed))
    {
        // Blocked, it could not tell of a page that is missing there.
        return thread.wait(signal);
    }
    uc.sigmask |= bit(signal);
    set_mask(u64::MAX);
    if stacks::by_kernel_stack(&uc.stack).is_some_and(|thread| thread.kept.is_some()) {
        // What is returned to may not be what was interrupted when that was kept: it waits for the same.
        uc.sigmask |= !OURS;
        frame::looks_again(uc);
    }
    send_again(signal, info);
}

/// Sends the calling thread a signal that it was sent. It has it blocked.
pub fn send_again(signal: i32, info: &Siginfo) {
    let (pid, tid, info) = (os::getpid() as usize, os::gettid() as usize, info as *const Siginfo as usize);
    // SAFETY: the kernel's own siginfo, sent to this very thread.
    unsafe { outswap_sys::syscall4(nr::RT_TGSIGQUEUEINFO, pid, tid, signal as usize, info) };
}
