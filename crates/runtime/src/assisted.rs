//! Calls that are made in a stub, once all that their arguments point to is resident.
use crate::contexts::Cx;
use crate::dispositions::OURS;
use crate::errno::{EFAULT, EIO, ENOMEM};
use crate::gate::{self, Part};
use crate::kind::{Kind, is_file_transfer, is_nonblocking, kind};
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::pins::{CallPins, UNCUT};
use crate::usermem::{peek, word};
use crate::{calls, memory, stub_call, threads, whole};
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::fault::Fault;
use outswap_sys::nr;
use outswap_sys::signal::Ucontext;

/// What becomes of a trapped call.
enum Outcome {
    /// It was served: this is what it returns.
    Done(isize),
    /// It runs in the stub of this pin, once the handler returns, with these arguments.
    Run(usize, [usize; 6]),
    /// It waits for the shared memory around an address to be whole.
    Whole(usize),
}

/// Serves a call in the runtime, or has it run in its stub once all that its arguments point to is resident; of a transfer, as
/// much as `window_bytes`.
pub fn assisted(live: &'static Live, nr: usize, args: [usize; 6], window_bytes: usize, uc: &mut Ucontext) {
    // Of a process that only shares the memory nothing can be made whole: a fork waits for its calls, or fails.
    let alone = !live.threaded.load(Relaxed) || !live.is_own_process();
    let outcome = loop {
        match live.with(move |cx| serve(live, cx, nr, args, window_bytes, alone)) {
            Outcome::Whole(at) => {
                if let Err(error) = whole::range(live, at, 1) {
                    break Outcome::Done(error);
                }
            }
            outcome => break outcome,
        }
    };
    if let Outcome::Run(pin, _) = outcome
        // SAFETY: the pin is this call's.
        && let Some(mask) = unsafe { (*gate::state(pin)).waits_with }
        && let Some(thread) = threads::current_or_new(live, uc)
    {
        // A signal that is held back may be what the call waits for.
        thread.let_come(mask);
    }
    match outcome {
        Outcome::Done(value) => uc.gregs.rax = value as u64,
        Outcome::Whole(_) => unreachable!("is made whole above"),
        Outcome::Run(pin, args) => stub_call::resume(pin, Part::Whole, nr, args, &mut uc.gregs),
    }
}

/// `alone`: no other thread's fork can come while the call is in the kernel.
fn serve(
    live: &'static Live,
    cx: &mut Cx,
    nr: usize,
    mut args: [usize; 6],
    window_bytes: usize,
    alone: bool,
) -> Outcome {
    if let Some(value) = memory::call(live, nr, args, cx) {
        return Outcome::Done(value);
    }
    let mut pins = CallPins::new(live);
    // SAFETY: the pin is this call's.
    unsafe { (*gate::state(pins.number())).waits_with = None };
    let window_bytes = cut_bytes(live, nr, args, window_bytes, pins.number());
    if let Err(fault) = pins.arguments(cx, calls::find(nr), &mut args, window_bytes) {
        pins.release();
        return Outcome::Done(match fault {
            Fault::Corrupt | Fault::Unreadable => {
                live.warn(
                    b"warning: a system call's memory cannot be read back from the store: the call fails with EIO",
                );
                EIO
            }
            Fault::NoMemory | Fault::Full => ENOMEM,
            Fault::Done | Fault::NotMapped => EFAULT,
        });
    }
    if let Some(at) = pins.shared().filter(|_| !alone && !is_file_transfer(nr, args[0])) {
        pins.release();
        return Outcome::Whole(at);
    }
    if let Some(at) = mask_argument(nr) {
        replace_mask(&mut pins, cx, nr, at, &mut args);
    }
    Outcome::Run(pins.number(), args)
}

/// Of a call beside so many others as its pin says, what it may have resident of a window: less where it reads and waits.
fn cut_bytes(live: &Live, nr: usize, [fd, at, len, flags, ..]: [usize; 6], window_bytes: usize, pin: usize) -> usize {
    let flags = match nr {
        nr::READ => 0,
        nr::RECVFROM => flags,
        _ => return window_bytes,
    };
    let waiting_bytes = live.waiting_bytes(pin);
    let is_cut = window_bytes != UNCUT
        && len.min(window_bytes) > waiting_bytes
        && overlaps_managed(at, len)
        && matches!(kind(fd), Kind::Pipe | Kind::Stream)
        && !is_nonblocking(fd, flags);
    if is_cut { waiting_bytes } else { window_bytes }
}

/// Which argument of a call is a signal mask that holds while it waits.
pub fn mask_argument(nr: usize) -> Option<usize> {
    match nr {
        nr::RT_SIGSUSPEND => Some(0),
        nr::PPOLL => Some(3),
        nr::EPOLL_PWAIT => Some(4),
        nr::EPOLL_PWAIT2 => Some(4),
        nr::PSELECT6 => Some(5),
        _ => None,
    }
}

/// A handler that runs while the call waits has the call's mask: our signals must not be in it.
fn replace_mask(pins: &mut CallPins<'_>, cx: &mut Cx, nr: usize, at: usize, args: &mut [usize; 6]) {
    // SAFETY: the pin is this call's until it returns.
    let state = unsafe { &mut *gate::state(pins.number()) };
    let mut from = args[at];
    let mut pair = [0u8; 16];
    if nr == nr::PSELECT6 {
        if from == 0 || !peek(from, &mut pair) {
            return;
        }
        from = word(&pair, 0);
    }
    let mut mask = [0u8; 8];
    if from == 0 || pins.pin(cx, from, mask.len()).is_err() || !peek(from, &mut mask) {
        return;
    }
    let mask = u64::from_le_bytes(mask);
    state.waits_with = Some(mask);
    if mask & OURS == 0 {
        return;
    }
    state.mask = mask & !OURS;
    let place = &raw const state.mask as usize;
    args[at] = place;
    if nr == nr::PSELECT6 {
        state.pair = [place, word(&pair, 8)];
        args[at] = state.pair.as_ptr() as usize;
    }
}
