//! What everybody may know of the background thread: whether it lives, whether it sleeps, and how it is woken.
use crate::procfs;
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_sys::os;

/// The thread's id, 0 while there is none. The kernel clears it when the thread has ended, however it did so.
pub static THREAD: AtomicU32 = AtomicU32::new(0);

/// Counts up where the thread is to look for work.
pub static WAKE: AtomicU32 = AtomicU32::new(0);

/// 1 while the thread sleeps: it is outside of the pager then.
pub static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// How many calls want that there is no such thread meanwhile.
pub static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Wakes the thread.
pub fn wake() {
    if ASLEEP.load(SeqCst) != 0 && ASLEEP.swap(0, SeqCst) != 0 {
        WAKE.fetch_add(1, SeqCst);
        os::futex_wake(&WAKE, 1, false);
    }
}

/// Whether the thread sleeps. It may be about to wake.
pub fn is_asleep() -> bool {
    ASLEEP.load(Relaxed) != 0
}

/// Whether a thread id is that of the thread.
pub fn is_thread(tid: u32) -> bool {
    THREAD.load(Relaxed) == tid
}

/// Whether the calling thread is this one. No system call while it sleeps: each fault may ask. (Where its stack is would say nothing: in the
/// runtime all threads are on other stacks.)
pub fn is_calling() -> bool {
    THREAD.load(SeqCst) != 0 && !is_asleep() && is_thread(os::gettid() as u32)
}

/// Whether the thread lives, or will when a call that wants it gone is over. `pid` is the process
/// that it is of.
pub fn will_serve(pid: i32) -> bool {
    THREAD.load(SeqCst) != 0 || HOLDS.load(SeqCst) != 0 && !procfs::is_gone(pid)
}

/// In a forked child the thread is gone.
pub fn forget() {
    THREAD.store(0, Release);
    ASLEEP.store(0, Release);
    HOLDS.store(0, Release);
}
