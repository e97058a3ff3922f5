//! pid namespaces. A process in another one than the supervisor's is known by a mark in the control block ([`Control::mark`]): its number
//! there is that of some other process here.
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use outswap_control::Control;
use outswap_sys::{nr, os};

/// A child is the first of a namespace of process ids, or all that come are in another.
pub const CLONE_NEWPID: usize = 0x2000_0000;

/// Children are made in another pid namespace than this process is in.
static CHILDREN_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// At set-up: finds out in which runs' namespaces this process is. Where no `/proc` tells, it is in none.
pub fn begin(control: &Control) {
    let own = os::stat_at(None, b"/proc/self/ns/pid\0").map(|status| status.inode);
    // A supervisor that does not know its own is taken to have the same.
    let is_elsewhere = |level: &&Control| level.config.pid_namespace != 0 && own != Ok(level.config.pid_namespace);
    control.levels().filter(is_elsewhere).for_each(Control::mark);
    // Of a namespace that has no first process yet nothing is told.
    let childrens = os::stat_at(None, b"/proc/self/ns/pid_for_children\0").map(|status| status.inode);
    if own.is_ok() && childrens != own {
        CHILDREN_ELSEWHERE.store(true, Relaxed);
    }
}

/// A call was made, and succeeded.
pub fn note_call(nr: usize, args: [usize; 6]) {
    let moves = match nr {
        nr::UNSHARE => args[0] & CLONE_NEWPID != 0,
        // Of any kind, or of several by a descriptor of a process.
        nr::SETNS => args[1] == 0 || args[1] & CLONE_NEWPID != 0,
        _ => false,
    };
    if moves {
        CHILDREN_ELSEWHERE.store(true, Relaxed);
    }
}

/// In a forked child, made with these flags, before it takes a record.
pub fn become_child(control: &Control, flags: usize) {
    let moves = flags & CLONE_NEWPID != 0 || CHILDREN_ELSEWHERE.load(Relaxed);
    control.levels().filter(|level| moves || level.is_marked()).for_each(Control::mark);
}
