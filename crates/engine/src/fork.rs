//! fork: parent and child each go on with their own engine over their own copy of everything.
//!
//! The kernel copies the tables, the pool and the frames by copy-on-write, as it copies the program. What it does not copy is
//! the registration with userfaultfd and the reclaim thread; the child makes both anew before any of its code runs. The fork
//! happens while no other thread is inside the engine, so that the copy is whole.
use crate::control::{Control, Process, Stat};
use crate::layout::in_arena;
use crate::live::{self, Live};
use crate::source::Source;
use crate::{assist, budget, exec, gate, reclaim, signals};
use core::sync::atomic::Ordering::*;
use outswap_sys::{Errno, Result, nr, os};

/// Where the kernel writes thread ids of its own accord, for flags of clone.
const CLONE_PARENT_SETTID: usize = 0x0010_0000;
const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
const CLONE_CHILD_SETTID: usize = 0x0100_0000;
const CLONE_PIDFD: usize = 0x1000;

/// Serves fork and clone without shared memory. Runs in the trap handler, with all signals blocked. Both sides go on in
/// this handler; a stack that the caller gave for the child is the caller's to set there.
pub fn fork(live: &Live, nr: usize, args: [usize; 6]) -> isize {
    if !live.is_own_process() {
        // A vforked child that forks: its child would share nothing with the engine it stands on.
        return -(Errno::EAGAIN.0 as isize);
    }
    const SIGCHLD: usize = 17;
    let args = if nr == nr::FORK { [SIGCHLD, 0, 0, 0, 0, 0] } else { args };
    let tid = os::gettid();
    let mut held = live.contexts.exclude(tid);
    let result = held.run(|cx| {
        for (flags, at) in
            [(CLONE_PARENT_SETTID | CLONE_PIDFD, args[2]), (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, args[3])]
        {
            if args[0] & flags != 0 && in_arena(at) {
                assist::keep(live, cx, at, 4);
            }
        }
        let ticket = live.engine.store.fork_prepare();
        live.forked.store(true, Relaxed);
        budget::before_fork(live);
        // SAFETY: clone without CLONE_VM on the current stack; the child gets a copy of this stack, too.
        let pid = unsafe { gate::call(nr::CLONE, args[0], 0, args[2], args[3], args[4], 0) };
        if pid == 0 {
            if let Err(e) = become_child(live, tid) {
                // Without its fault source the child would read zeros where its data is: it must not run.
                live.control.post(b"error: a forked child could not set up its memory and was ended");
                let _ = e;
                os::exit_group(125);
            }
            live.engine.store.fork_child(ticket);
            signals::adopt_altstack(tid);
            live.wipe();
        } else {
            live.engine.store.fork_parent(ticket, pid.max(0) as i32);
        }
        pid
    });
    drop(held);
    live.contexts.readmit();
    if result >= 0 {
        live.stat(Stat::Forks, (result > 0) as u64);
        // Inside the engine, so that another thread's fork does not copy a lock or a measurement half done.
        let _held = live.contexts.hold();
        budget::measure(live);
        budget::refresh(live);
        if result == 0 {
            reclaim::wake_if_low(live);
        }
    }
    result
}

fn become_child(live: &Live, parent_tid: i32) -> Result<()> {
    let pid = os::getpid();
    live.pid.store(pid, Relaxed);
    reclaim::forget();
    live.contexts.only_this();
    budget::forget(live);
    exec::forget();
    // Calls of the parent's other threads do not exist here. This thread's go on: a handler that interrupted one may fork.
    for (slot, owner) in live.engine.hazards.in_use() {
        if owner == parent_tid as u32 {
            live.engine.hazards.owner_word(slot).store(os::gettid() as u32, Release);
        } else {
            live.engine.hazards.release(slot);
        }
    }
    let machine = &live.engine.machine;
    let record = take_record(live.control, pid).ok_or(Errno::EAGAIN)?;
    record.fault_source.store(machine.source.load(Relaxed), Relaxed);
    machine.record.store(record as *const Process as *mut Process, Release);
    match live.source() {
        Source::Mprotect => {
            let old = machine.mem_fd.load(Relaxed);
            let _ = os::close(old);
            machine.mem_fd.store(open_mem(old)?, Relaxed);
        }
        source => {
            let old = machine.uffd.load(Relaxed);
            let _ = os::close(old);
            machine.uffd.store(live::open_uffd(source, old)?.0, Relaxed);
            live.register_all()?;
        }
    }
    Ok(())
}

/// Opens `/proc/self/mem` at a descriptor of at least `min_fd`.
pub fn open_mem(min_fd: i32) -> Result<i32> {
    let low = os::open(b"/proc/self/mem\0", os::O_RDWR | os::O_CLOEXEC, 0)?;
    Ok(live::raise(low, min_fd))
}

/// Takes a record of the control block for this process. With more processes than records it counts for itself alone, until
/// there is one.
pub fn take_record(control: &Control, pid: i32) -> Option<&Process> {
    Some(control.take(pid).unwrap_or_else(|| {
        budget::UNCOUNTED.counters.clear();
        if control.full_told.swap(1, Relaxed) == 0 {
            control.post(b"warning: too many managed processes: some obey the limit, but do not count in it");
        }
        &budget::UNCOUNTED
    }))
}
