//! Sets of signals.
use std::mem::MaybeUninit;

/// The set that has this signal alone.
pub fn only(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is emptied, and so written, before anything else.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// Has a signal wait for this thread.
pub fn block(signal: i32) {
    change(libc::SIG_BLOCK, signal);
}

/// Lets a signal through to this thread.
pub fn unblock(signal: i32) {
    change(libc::SIG_UNBLOCK, signal);
}

fn change(how: libc::c_int, signal: i32) {
    // SAFETY: the kernel reads a set, and nobody wants to know what the mask was.
    unsafe { libc::pthread_sigmask(how, &only(signal), std::ptr::null_mut()) };
}
