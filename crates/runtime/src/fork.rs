//! fork: parent and child each go on with their own runtime over their own copy of everything.
//!
//! The kernel copies the tables, the pool and the frames by copy-on-write, as it copies the program. What it does not copy is
//! the registration with userfaultfd and the reclaim thread; the child makes both anew before any of its code runs. The fork
//! happens while no other thread is inside the runtime, so that the copy is whole.
use crate::layout::in_arena;
use crate::live::{self, Live};
use crate::source::Source;
use crate::threads::{self, Thread};
use crate::{assist, budget, exec, foreign, gate, reclaim, rlimits};
use core::sync::atomic::Ordering::*;
use outswap_control::{Control, Once, Process, Stat};
use outswap_sys::{Errno, Result, nr, os};

/// Where the kernel writes thread ids of its own accord, for flags of clone.
const CLONE_PARENT_SETTID: usize = 0x0010_0000;
const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
const CLONE_CHILD_SETTID: usize = 0x0100_0000;
const CLONE_PIDFD: usize = 0x1000;
const CLONE_VFORK: usize = 0x4000;

/// Serves fork and clone without shared memory, for a thread of the program's. Runs in the trap handler, with all signals
/// blocked. Both sides go on in this handler; a stack that the caller gave for the child is the caller's to set there.
pub fn fork(live: &'static Live, nr: usize, args: [usize; 6], thread: Option<&'static Thread>) -> isize {
    if !live.is_own_process() {
        // A vforked child that forks: its child would share nothing with the runtime it stands on.
        return -(Errno::EAGAIN.0 as isize);
    }
    const SIGCHLD: usize = 17;
    let mut args = if nr == nr::FORK { [SIGCHLD, 0, 0, 0, 0, 0] } else { args };
    // Waiting for the child to execute or end is done below, where others are let in again.
    let waits = args[0] & CLONE_VFORK != 0;
    args[0] &= !CLONE_VFORK;
    let end = if waits { end_of_child() } else { None };
    let result = live.contexts.alone(|cx| {
        for (flags, at) in
            [(CLONE_PARENT_SETTID | CLONE_PIDFD, args[2]), (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, args[3])]
        {
            if args[0] & flags != 0 && in_arena(at) {
                assist::keep(live, cx, at, 4);
            }
        }
        let parent_tid = os::gettid();
        let had_file = live.pager.store.file_error().is_none();
        let ticket = live.pager.store.fork_prepare();
        live.forked.store(true, Relaxed);
        budget::before_fork(live);
        // SAFETY: clone without CLONE_VM on the current stack; the child gets a copy of this stack, too.
        let pid = unsafe { gate::call(nr::CLONE, args[0], 0, args[2], args[3], args[4], 0) };
        if pid == 0 {
            let own = rlimits::with_all_descriptors(|| {
                become_child(live, parent_tid).map(|()| live.pager.store.fork_child(ticket))
            });
            if let Err(e) = own {
                // Without its fault source the child would read zeros where its data is: it must not run.
                live.control.post(b"error: a forked child could not set up its memory and was ended");
                let _ = e;
                os::exit_group(125);
            }
            threads::only_this(thread);
            live.wipe();
        } else {
            live.pager.store.fork_parent(ticket, pid.max(0) as i32);
        }
        if had_file && live.pager.store.file_error().is_some() {
            live.control.post_once(Once::NoFileAfterFork);
        }
        pid
    });
    if let Some([read, write]) = end {
        let _ = os::close(if result == 0 { read } else { write });
        if result != 0 {
            if result > 0 {
                let mut byte = [0u8; 1];
                while os::read(read, &mut byte) == Err(Errno::EINTR) {}
            }
            let _ = os::close(read);
        }
    }
    if result >= 0 {
        live.stat(Stat::Forks, (result > 0) as u64);
        // Inside the runtime, so that another thread's fork does not copy a lock or a measurement half done.
        live.contexts.with(|_| {
            budget::measure(live);
            budget::refresh(live);
        });
        if result == 0 {
            reclaim::wake_if_low(live);
        }
    }
    result
}

/// A pipe whose end tells that a child has executed a program or ended: the kernel closes its part then.
fn end_of_child() -> Option<[i32; 2]> {
    let mut fds = [0i32; 2];
    // SAFETY: a place for two descriptors.
    outswap_sys::ret(unsafe { outswap_sys::syscall2(nr::PIPE2, fds.as_mut_ptr() as usize, os::O_CLOEXEC) }).ok()?;
    Some(fds)
}

fn become_child(live: &Live, parent_tid: i32) -> Result<()> {
    let pid = os::getpid();
    live.pid.store(pid, Relaxed);
    reclaim::forget();
    foreign::forget();
    live.contexts.only_this();
    budget::forget(live);
    exec::forget();
    // Calls of the parent's other threads do not exist here. This thread's go on: a handler that interrupted one may fork.
    for (slot, owner) in live.pager.pins.in_use() {
        if owner == parent_tid as u32 {
            live.pager.pins.owner_word(slot).store(os::gettid() as u32, Release);
        } else {
            live.pager.pins.release(slot);
        }
    }
    let machine = &live.pager.machine;
    // Until the child has measured, it stands for the half that the parent gave up.
    let half = live.record().charge();
    let record = take_record(live.control, pid);
    record.charge_bytes.store(half, Release);
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

/// Opens `/proc/self/mem` at a descriptor of at least `min_fd`. A process that changed its rights is not dumpable, and may not
/// open its own memory (`EACCES`); it is made dumpable for the time of the call. Another process of the same user could attach
/// to it in that instant.
pub fn open_mem(min_fd: i32) -> Result<i32> {
    const PR_GET_DUMPABLE: usize = 3;
    const PR_SET_DUMPABLE: usize = 4;
    let open = || os::open(b"/proc/self/mem\0", os::O_RDWR | os::O_CLOEXEC, 0);
    // SAFETY: takes integers only.
    let dumpable = |set: usize, value: usize| unsafe { outswap_sys::syscall2(nr::PRCTL, set, value) };
    let low = match open() {
        Err(Errno::EACCES) => {
            let before = dumpable(PR_GET_DUMPABLE, 0);
            dumpable(PR_SET_DUMPABLE, 1);
            let opened = open();
            // 2 (a core for root only) is the system's to set; to set it again is refused, and 0 gives less.
            dumpable(PR_SET_DUMPABLE, if before == 1 { 1 } else { 0 });
            opened?
        }
        other => other?,
    };
    Ok(live::raise(low, min_fd))
}

/// Takes a record of the control block for this process. With more processes than records it counts for itself alone, until
/// there is one.
pub fn take_record(control: &Control, pid: i32) -> &Process {
    control.take(pid).unwrap_or_else(|| {
        budget::UNCOUNTED.counters.clear();
        control.post_once(Once::Full);
        &budget::UNCOUNTED
    })
}
