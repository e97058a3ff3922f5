//! vfork, and clone with `CLONE_VM`: new threads, and processes that share the memory.
use crate::gate::{self, Start};
use crate::limits::{CALL_PINS, OPEN_THREADS};
use crate::live::Live;
use crate::namespaces::CLONE_NEWPID;
use crate::reclaim::Ensured;
use crate::stacks::{self, Thread};
use crate::{descriptors, dispatch, dispositions, pins, reclaim, sharers, sites, threads, whole};
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr, os};

/// The memory is shared.
pub const CLONE_VM: usize = 0x100;
/// The child has the same dispositions of signals, which takes [`CLONE_VM`].
const CLONE_SIGHAND: usize = 0x800;
/// The child has the same root directory.
const CLONE_FS: usize = 0x200;
/// The child has the same descriptors.
pub const CLONE_FILES: usize = 0x400;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SETTLS: usize = 0x8_0000;
const CLONE_PARENT_SETTID: usize = 0x0010_0000;
const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
const CLONE_CHILD_SETTID: usize = 0x0100_0000;
const SIGCHLD: usize = 17;

/// The arguments of clone that stand for a call.
fn of_clone(nr: usize, args: [usize; 6]) -> [usize; 6] {
    if nr == nr::VFORK { [CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0] } else { args }
}

/// The same call for a child that has memory of its own. `None` where that would be something else: its parent does not wait for it, or it
/// has the same descriptors, which each process's runtime has of its own.
pub fn as_fork(nr: usize, args: [usize; 6]) -> Option<[usize; 6]> {
    let mut args = of_clone(nr, args);
    let is_alike = args[0] & (CLONE_VFORK | CLONE_THREAD | CLONE_FILES) == CLONE_VFORK;
    args[0] &= !(CLONE_VM | CLONE_SIGHAND);
    is_alike.then_some(args)
}

/// Serves vfork, and clone with `CLONE_VM`: the call is made to run with what the new thread or process needs. Where a process that shares
/// the memory would need a thread of ours that cannot be had (the kernel makes none for who has another namespace of process ids for its
/// children), `fork` is called in place of that, with what [`as_fork`] gives.
pub fn clone(
    live: &'static Live,
    nr: usize,
    args: [usize; 6],
    uc: &mut Ucontext,
    fork: impl FnOnce([usize; 6], &mut Ucontext),
) {
    let own_args = args;
    // Of processes that share the memory, and have the same number each in a namespace of its own, none could be told from the others.
    if args[0] & CLONE_NEWPID != 0
        && nr == nr::CLONE
        && live.is_own_process()
        && let Some(args) = as_fork(nr, own_args)
    {
        return fork(args, uc);
    }
    let mut args = of_clone(nr, args);
    let parent = threads::current_or_new(live, uc);
    let flags = args[0];
    let fail = |uc: &mut Ucontext| uc.gregs.rax = -(Errno::EAGAIN.0 as i64) as u64;
    if live.is_own_process() {
        descriptors::open_all(live);
    }
    // Each may wait in a call, and its handlers in others: who has none of what a call in progress needs would wait for another's end.
    const SPARE: usize = 32;
    if stacks::used() + SPARE > gate::built() && gate::built() < CALL_PINS && !pins::build_more(live) {
        return fail(uc);
    }
    if flags & CLONE_THREAD == 0 && live.is_own_process() {
        sharers::announce();
        reclaim::expect_sharer();
        let mut spins = 0;
        loop {
            match reclaim::ensure() {
                Ensured::Lives => break,
                Ensured::HeldOff => os::wait_a_little(spins),
                Ensured::Impossible => {
                    reclaim::end_expectation();
                    return match as_fork(nr, own_args) {
                        Some(args) => fork(args, uc),
                        None => fail(uc),
                    };
                }
            }
            spins += 1;
        }
    }
    if flags & CLONE_THREAD != 0 && flags & CLONE_SETTLS == 0 {
        // Two threads that cannot be told apart by what is theirs.
        live.direct.store(false, SeqCst);
    }
    if flags & CLONE_THREAD != 0 && flags & (CLONE_FILES | CLONE_FS) != CLONE_FILES | CLONE_FS {
        reclaim::note_apart();
    }
    if flags & CLONE_THREAD != 0 && !live.is_own_process() {
        sharers::announce_threads();
    }
    if flags & CLONE_THREAD != 0 {
        sites::take_over(live);
        pins::build_direct(live, stacks::used());
        if stacks::used() >= OPEN_THREADS {
            dispositions::open(live.source().signal());
        }
    }
    if flags & CLONE_VFORK == 0 {
        live.threaded.store(true, SeqCst);
        if flags & CLONE_THREAD == 0 {
            // It may go on for long beside this process, which must not wait for it to fork.
            live.objects.close();
            let _ = whole::everything(live);
        }
    }
    let tid = flags & (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID);
    for (wanted, at) in [(flags & CLONE_PARENT_SETTID, args[2]), (tid, args[3]), (flags & CLONE_SETTLS, args[4])] {
        if wanted != 0 {
            let _ = whole::range(live, at, 256);
        }
    }
    live.with(move |cx| {
        // What the kernel writes of its own accord, now or later.
        for at in [args[2], args[3], args[4]] {
            pins::keep(live, cx, at, 256);
        }
    });
    // With a program's own arrangement for the child's id there is no place for ours.
    let arranged = flags & (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID) != 0;
    if flags & CLONE_THREAD == 0 && arranged {
        sharers::announce_without_place();
    }
    let sharer = if flags & CLONE_THREAD != 0 || arranged { None } else { sharers::reserve_place() };
    if flags & CLONE_THREAD == 0 && live.is_own_process() {
        reclaim::end_expectation();
    }
    if flags & CLONE_THREAD == 0 && !arranged && sharer.is_none() {
        return fail(uc);
    }
    // A child of vfork keeps its parent's alternate stack, which its parent does not need meanwhile.
    let thread = if flags & CLONE_VFORK == 0 { threads::reserve_place(live) } else { None };
    if let Some(thread) = thread {
        thread.inherit(parent);
        // SAFETY: the place is this call's. Where a sharer's start is used, its own is not waited for.
        unsafe { (*thread.start.get()).parent_done.store(1, Release) };
    }
    if let Some(sharer) = sharer {
        sharer.shares_root.store(flags & CLONE_FS != 0, Relaxed);
        if flags & CLONE_VFORK != 0 {
            sharer.thread.inherit_all(parent);
        } else {
            sharer.thread.inherit(parent);
        }
        args[0] |= CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID;
        args[3] = sharer.tid.as_ptr() as usize;
    }
    let start = match (sharer, thread) {
        (Some(sharer), _) => sharer.start.get(),
        (None, Some(thread)) => thread.start.get(),
        (None, None) => core::ptr::null_mut(),
    };
    let g = &mut uc.gregs;
    let registers = [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9];
    [g.rdi, g.rsi, g.rdx, g.r10, g.r8, _] = args.map(|a| a as u64);
    g.rax = nr::CLONE as u64;
    if start.is_null() {
        match gate::clone_stub(g.rip as usize) {
            Some(stub) => g.rip = stub as u64,
            None => fail(uc),
        }
        return;
    }
    // SAFETY: the place is this call's until both sides are through.
    let start = unsafe { &mut *start };
    start.to = g.rip as usize;
    start.registers = registers;
    start.stack = thread.map_or_else(Default::default, Thread::kernel_stack);
    // For a sharer, the kernel itself says when it has left; a failed clone is told by a 0 in the same word.
    start.tid_at = thread.map_or(NOWHERE.as_ptr() as usize, |t| t.tid.as_ptr() as usize);
    start.fail_at = sharer.map_or(start.tid_at, |s| s.tid.as_ptr() as usize);
    start.passes = dispatch::passes();
    start.parent_done.store(0, Release);
    g.r9 = start as *mut Start as u64;
    g.rip = gate::start_stub() as u64;
}

/// Where thread ids go that nobody needs.
static NOWHERE: AtomicU32 = AtomicU32::new(0);
