//! fork: parent and child each go on with their own runtime over their own copy of everything.
//!
//! The kernel copies the tables, the pool and the frames by copy-on-write, as it copies the program. What it does not copy is
//! the registration with userfaultfd and the reclaim thread; the child makes both anew before any of its code runs. The fork
//! happens while no other thread is inside the runtime, so that the copy is whole. Shared memory is the kernel's by then, so that
//! both sides have the same.
use crate::child_end::{self, ChildEnd};
use crate::errno::EAGAIN;
use crate::halves::Half;
use crate::layout::in_managed;
use crate::live::Live;
use crate::stacks::{self, Thread};
use crate::store::ProcessStore;
use crate::{
    avoided, bss, charge, confined, desk, direct, dispatch, dispositions, exec, gate, halves, kept, memory, namespaces,
    pins, pressure, process, reclaim, records, sharers, threads, unseen, whole, wishes,
};
use core::sync::atomic::Ordering::*;
use outswap_control::{CONTROL_FDS, Once, Process, Stat};
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
        return EAGAIN;
    }
    if live.source().asks_map() && !avoided::may_open_files() {
        // The child could not open its own memory.
        live.warn(b"warning: a program's own filter lets it open no files, without which it cannot fork with this fault source");
        return EAGAIN;
    }
    if live.source().asks_map() && !kept::may_open_mem() {
        live.warn(b"warning: Landlock lets the program not open its own memory, without which it cannot fork with this fault source");
        return EAGAIN;
    }
    const SIGCHLD: usize = 17;
    let mut args = if nr == nr::FORK { [SIGCHLD, 0, 0, 0, 0, 0] } else { args };
    // Waiting for the child to execute or end is done below, where others are let in again.
    let waits = args[0] & CLONE_VFORK != 0;
    args[0] &= !CLONE_VFORK;
    let mut end = None;
    let result = live.contexts.alone(|cx| {
        if let Err(error) = whole::all(live, cx) {
            live.control.post(b"warning: shared memory cannot be made whole for a fork, which fails");
            return error;
        }
        for (flags, at) in
            [(CLONE_PARENT_SETTID | CLONE_PIDFD, args[2]), (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, args[3])]
        {
            if args[0] & flags != 0 && in_managed(at) {
                pins::keep(live, cx, at, 4);
            }
        }
        // Whose pages are shared is to know of them.
        live.pager.machine.untraps.store(false, Relaxed);
        live.pager.trap_all(false);
        // A child would have copies of them.
        while live.pager.release_kept().is_some() {}
        let parent = (os::gettid(), direct::whoever_calls());
        let had_file = live.pager.store.file_error().is_none();
        let ticket = live.pager.store.fork_prepare();
        let is_first = live.join_family();
        let half = halves::before_fork(live);
        if waits {
            end = ChildEnd::new(live.control_fd + CONTROL_FDS);
        }
        live.inherit(true);
        // SAFETY: clone without CLONE_VM on the current stack; the child gets a copy of this stack, too.
        let pid = unsafe { gate::call(nr::CLONE, args[0], 0, args[2], args[3], args[4], 0) };
        if pid == 0 {
            unseen::adopt();
        } else if pid < 0 {
            halves::failed(live, &half);
            if is_first {
                live.leave_family();
            }
        }
        live.inherit(false);
        if pid == 0 {
            let own = process::with_all_descriptors(|| {
                become_child(live, parent, args[0], &half, end).map(|()| live.pager.store.fork_child(ticket))
            });
            if let Err(e) = own {
                // Without its fault source the child would read zeros where its data is: it must not run.
                live.control.post(b"error: a forked child could not set up its memory and was ended");
                let _ = e;
                os::exit_group(125);
            }
            halves::become_child(live, &half);
            stacks::only_this(thread);
            memory::unlock_all(live);
            live.wipe();
        } else {
            live.pager.store.fork_parent(ticket, pid.max(0) as i32);
            if let Some(end) = &end {
                end.only_read();
            }
        }
        if had_file && live.pager.store.file_error().is_some() {
            live.control.post_once(Once::NoFileLater);
        }
        pid
    });
    if let Some(end) = end.filter(|_| result != 0) {
        // At once, where there is no child.
        end.wait();
    }
    if result >= 0 {
        charge::forked(live, result == 0);
        live.stat(Stat::Forks, (result > 0) as u64);
        // Inside the runtime, so that another thread's fork does not copy a lock or a measurement half done.
        live.contexts.with(|cx| {
            halves::after_fork(live);
            charge::refresh(live);
            // At once: the thread that would do it later may have to wait for a processor.
            if result > 0 && charge::copies_would_exceed(live) {
                live.pager.hold_copies(cx);
            }
        });
        reclaim::wake_to_hold(live);
        if result == 0 {
            reclaim::wake_if_low(live);
        }
    } else {
        // What it was charged with less.
        live.contexts.with(|_| charge::refresh(live));
    }
    result
}

fn become_child(
    live: &Live,
    (parent_tid, parent): (i32, u32),
    flags: usize,
    half: &Half,
    end: Option<ChildEnd>,
) -> Result<()> {
    let pid = os::getpid();
    live.pid.store(pid, Relaxed);
    live.threaded.store(false, Relaxed);
    live.long_writes.forget();
    reclaim::forget();
    sharers::forget();
    avoided::forget();
    threads::forget();
    dispositions::close(live.source().signal());
    dispatch::again();
    if !kept::renew(live.control_fd + CONTROL_FDS, confined::is_confined()) {
        return Err(Errno::EACCES);
    }
    child_end::become_child(end);
    desk::forget();
    wishes::forget();
    live.contexts.only_this();
    charge::forget(live);
    pressure::forget(live);
    live.pager.forget_yielded();
    exec::forget();
    // Calls of the parent's other threads do not exist here. This thread's go on: a handler that interrupted one may fork.
    for (pin, owner) in live.pager.pins.in_use() {
        if owner == parent_tid as u32 {
            live.pager.pins.owner_word(pin).store(os::gettid() as u32, Release);
        } else {
            live.pager.pins.release(pin);
        }
    }
    direct::only(live, parent);
    live.pager.forked();
    live.pager.full.forget();
    let machine = &live.pager.machine;
    namespaces::become_child(live.control, flags);
    let record = records::take_record(live.control, pid);
    // Until the child has measured, it stands for the half that the parent gave up.
    record.family.store(live.family.load(Relaxed), Release);
    record.charge_bytes.store(half.charge_bytes(), Release);
    half.born();
    record.fault_source.store(machine.source.load(Relaxed), Relaxed);
    if live.source().shows_zeros() {
        // What is out in the parent is out here.
        record.wish.takes.store(live.record().wish.takes.load(Relaxed), Relaxed);
    }
    bss::publish(record);
    machine.record.store(record as *const Process as *mut Process, Release);
    machine.record_begin(pid, machine.recorded_pid.load(Relaxed));
    let old = machine.source_fd.load(Relaxed);
    let _ = os::close(old);
    machine.source_fd.store(process::raise(live.source().open()?, old), Relaxed);
    live.register_all()?;
    // What the parent left to the kernel is registered here.
    live.pager.trap_all(true);
    Ok(())
}
