//! The threads of the program: which one calls, and how it got its place among the stacks.
use crate::background::{self, THREAD};
use crate::live::Live;
use crate::stacks::{self, Thread};
use crate::{kept, sharers};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use outswap_sys::os::FileStatus;
use outswap_sys::signal::{Stack, Ucontext, sigaltstack};
use outswap_sys::{Errno, Result, os};

/// Reserves a place for a thread that is about to start.
pub fn reserve_place(live: &Live) -> Option<&'static Thread> {
    stacks::reserve_place(|tid| live.is_alive(tid))
}

/// Whether the process has threads already, at set-up: nothing can be done for those, whose calls would fail where memory is evicted. Only a
/// library that is set up before ours can make them. Not where there is no `/proc` to tell.
pub fn are_there_others() -> bool {
    os::stat_at(None, b"/proc/self/task\0").is_ok_and(|status| in_tasks(&status) > 1)
}

/// Gives the calling thread its stack, at set-up.
pub fn set_up_own_stack(live: &Live) -> Result<()> {
    let thread = reserve_place(live).ok_or(Errno::ENOMEM)?;
    // SAFETY: the place is the caller's.
    unsafe { (*thread.start.get()).parent_done.store(1, Release) };
    let mut old = Stack::default();
    // SAFETY: only reads.
    unsafe { sigaltstack(None, Some(&mut old))? };
    thread.set_stack(&old);
    if old.size == 0 {
        thread.begin_without_stack();
    }
    // SAFETY: memory that stays mapped.
    unsafe { sigaltstack(Some(&thread.kernel_stack()), None)? };
    thread.tid.store(os::gettid(), Release);
    Ok(())
}

/// Makes sure that the calling thread has a stack of ours from now on, where there is room for one.
pub fn adopt(live: &Live, uc: &mut Ucontext) {
    if stacks::by_kernel_stack(&uc.stack).is_none() {
        current_or_new(live, uc);
    }
}

/// The calling thread, from what the kernel says of the interrupted code; a thread that is not known yet gets its place, and its
/// stack when the handler returns. `None` where there is no place left.
pub fn current_or_new(live: &Live, uc: &mut Ucontext) -> Option<&'static Thread> {
    if let Some(thread) = stacks::by_kernel_stack(&uc.stack) {
        return Some(live.sharer_thread().unwrap_or(thread));
    }
    if !live.is_own_process() {
        return live.sharer_thread();
    }
    let tid = os::gettid();
    let thread = match stacks::by_tid(tid) {
        Some(thread) => thread,
        None => {
            let thread = reserve_place(live)?;
            // SAFETY: the place is the caller's.
            unsafe { (*thread.start.get()).parent_done.store(1, Release) };
            thread.set_stack(&uc.stack);
            thread.tid.store(tid, Release);
            thread
        }
    };
    // Returning from the handler sets it, unless that handler runs on the old one.
    uc.stack = thread.kernel_stack();
    Some(thread)
}

/// So often a process that was found to have more threads is taken to have them still.
const ASKS: u32 = 64;
static ASKS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread is the only one that can touch the program's memory: not the background thread, and without another
/// thread of the program's or a process that shares the memory. Some threads are made without the runtime's knowledge, so the
/// kernel is asked. While the caller is in the runtime, nobody can make one where there is none.
pub fn is_alone() -> bool {
    if sharers::is_any_here() || background::is_calling() {
        return false;
    }
    let left = ASKS_LEFT.load(Relaxed);
    if left > 0 {
        ASKS_LEFT.store(left - 1, Relaxed);
        return false;
    }
    // The same before and after: it may end meanwhile.
    let background = THREAD.load(SeqCst);
    let alone = count() == 1 + (background != 0) as u64 && THREAD.load(SeqCst) == background;
    if !alone {
        ASKS_LEFT.store(ASKS, Relaxed);
    }
    alone
}

/// Whether the program has one thread, and nobody shares its memory. It may have more at once, where the caller is not that one.
pub fn is_program_alone() -> bool {
    let background = THREAD.load(SeqCst);
    !sharers::is_any_here() && count() == 1 + (background != 0) as u64 && THREAD.load(SeqCst) == background
}

/// The threads of this process; more than there can be where that cannot be known.
fn count() -> u64 {
    kept::TASK.status().map_or(u64::MAX, |status| in_tasks(&status))
}

/// How many threads a process has, by the directory of them: that has two names, and one more for each directory in it.
fn in_tasks(directory: &FileStatus) -> u64 {
    directory.links.saturating_sub(2)
}

/// In a forked child: there is one thread.
pub fn forget() {
    ASKS_LEFT.store(0, Relaxed);
}

/// With what status a thread of the program ended last.
static LAST_STATUS: AtomicI32 = AtomicI32::new(0);

/// The status that a process ends with whose last thread ends by itself.
pub fn last_status() -> i32 {
    LAST_STATUS.load(Acquire)
}

/// A thread ends by itself, with a status.
pub fn note_end(status: i32) {
    LAST_STATUS.store(status, Release);
}
