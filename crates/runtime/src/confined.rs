//! Processes with another root directory than they began with.
//!
//! A process that sandboxes itself may have a child that shares its memory and its root directory change that directory, to an empty one
//! that is gone with the child. It then makes sure that nothing leads out: no descriptor of a directory, and one thread alone, since rights
//! are given up by thread. So the runtime gives its directories up there, and has no thread of its own in such a process until the
//! program has a second one.
use crate::kept;
use crate::live::Live;
use crate::store::ProcessStore;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Whether the process has another root directory. Who may change it can leave it, so for that alone the swap directory is not given up.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether a child that shared the memory has confined it, which had one thread. Forked children have this, too.
static BY_SHARER: AtomicBool = AtomicBool::new(false);

/// The process has another root directory from here on.
pub fn confine() {
    CONFINED.store(true, Relaxed);
}

/// Whether it has.
pub fn is_confined() -> bool {
    CONFINED.load(Relaxed)
}

/// Closes the directories: they would lead out of the root directory.
pub fn leave_directories(live: &Live) {
    live.pager.store.leave_directory();
    kept::leave_directory();
}

/// Whether the process is to have no thread of ours unless a process needs it that shares its memory.
pub fn keeps_one_thread(live: &Live) -> bool {
    BY_SHARER.load(Relaxed) && !live.threaded.load(Relaxed)
}

/// A child that shares the memory has confined the process.
pub fn by_sharer(live: &Live) {
    confine();
    BY_SHARER.store(!live.threaded.load(Relaxed), Relaxed);
}
