//! Processes that share this memory without being this process: children of vfork, posix_spawn and `clone(CLONE_VM)`, until
//! they execute another program or end.
//!
//! Such a process can be killed at any instruction while everybody else lives on. So it never works on the runtime's tables
//! itself: it leaves what it wants on a desk, and the background thread of the process that owns the runtime does it. What lies
//! on the desk is whole and refers to nothing on our part of the asking thread's stack, so it can be done also while that thread
//! ends; one that has ended asks for nothing any more.
use crate::assist::Cx;
use crate::gate::{self, Start};
use crate::live::Live;
use crate::reclaim;
use crate::threads::{self, Thread};
use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, size_of};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr, os, syscall2, syscall3, syscall5};

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
const CLONE_CHILD_SETTID: usize = 0x0100_0000;
const SIGCHLD: usize = 17;

/// Processes that can share the memory at the same time; beyond that, vfork answers `EAGAIN`.
const SHARERS: usize = 64;
/// Requests at the same time; further ones wait.
const DESKS: usize = 16;
const DESK_BYTES: usize = 4096;

/// In place of a thread id: the process is being made.
const RESERVED: u32 = u32::MAX;

/// A process that shares the memory.
#[repr(C)]
struct Sharer {
    /// Its thread id. The kernel clears it when the process leaves this memory, however it does so.
    tid: AtomicU32,
    start: UnsafeCell<Start>,
    thread: Thread,
}

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;

/// A place for one request.
#[repr(C, align(64))]
struct Desk {
    /// The thread that asks; 0: free.
    owner: AtomicU32,
    state: AtomicU32,
    call: AtomicUsize,
    data: UnsafeCell<[u64; DESK_BYTES / 8]>,
}

// SAFETY: a desk's data belongs to its owner, but for the time between ASKED and DONE, when it is the background thread's.
unsafe impl Sync for Desk {}

static ANY: AtomicBool = AtomicBool::new(false);
static SHARERS_AT: AtomicUsize = AtomicUsize::new(0);
static DESKS_ALL: [Desk; DESKS] = [const {
    Desk {
        owner: AtomicU32::new(0),
        state: AtomicU32::new(IDLE),
        call: AtomicUsize::new(0),
        data: UnsafeCell::new([0; DESK_BYTES / 8]),
    }
}; DESKS];
/// The thread for which the background thread works.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Reserves what is needed.
pub fn reserve() -> outswap_sys::Result<()> {
    SHARERS_AT.store(os::mmap_anonymous(SHARERS * size_of::<Sharer>())?, Release);
    Ok(())
}

fn sharers() -> &'static [Sharer] {
    let at = SHARERS_AT.load(Acquire);
    let len = if at == 0 { 0 } else { SHARERS };
    let at = if at == 0 { core::mem::align_of::<Sharer>() } else { at };
    // SAFETY: reserved memory of that size, never unmapped; zero is a valid `Sharer`.
    unsafe { core::slice::from_raw_parts(at as *const Sharer, len) }
}

/// Whether there ever was a process that shares this memory.
pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// Whether a thread lives that is of this process or shares its memory.
pub fn is_alive(live: &Live, tid: i32) -> bool {
    // SAFETY: signal 0 is not sent.
    let of_process = unsafe { syscall3(nr::TGKILL, live.pid.load(Relaxed) as usize, tid as usize, 0) } == 0;
    of_process || sharers().iter().any(|s| s.tid.load(Acquire) == tid as u32) || any() && may_share(tid)
}

/// Whether a thread lives that uses the caller's memory: one of a process that shares it and has threads, or of whose leaving the
/// kernel tells the program instead of us. When in doubt it does.
fn may_share(tid: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: signal 0 is not sent.
    let lives = unsafe { syscall2(nr::TKILL, tid as usize, 0) } == 0;
    // SAFETY: takes integers only. Above 0: these are two memories.
    lives && unsafe { syscall5(nr::KCMP, os::gettid() as usize, tid as usize, KCMP_VM, 0, 0) } <= 0
}

/// The thread that asked for what the calling thread does: itself, unless that is the background thread at a desk.
pub fn caller() -> u32 {
    let tid = os::gettid() as u32;
    match SERVED.load(Relaxed) {
        0 => tid,
        served if reclaim::is_thread(tid) => served,
        _ => tid,
    }
}

/// What is kept for the calling thread where it is of a process that shares the memory.
pub fn thread(live: &Live) -> Option<&'static Thread> {
    if live.is_own_process() {
        return None;
    }
    let tid = os::gettid() as u32;
    sharers().iter().find(|s| s.tid.load(Acquire) == tid).map(|s| &s.thread)
}

/// In a forked child nobody shares the memory.
pub fn forget() {
    ANY.store(false, Relaxed);
    SERVED.store(0, Relaxed);
    for sharer in sharers() {
        sharer.tid.store(0, Relaxed);
        // SAFETY: no other thread or process uses the place.
        unsafe { (*sharer.start.get()).parent_done.store(1, Relaxed) };
    }
    for desk in &DESKS_ALL {
        desk.owner.store(0, Relaxed);
        desk.state.store(IDLE, Relaxed);
    }
}

/// Serves vfork, and clone with `CLONE_VM`: the call is made to run with what the new thread or process needs.
pub fn clone(live: &'static Live, nr: usize, mut args: [usize; 6], uc: &mut Ucontext) {
    if nr == nr::VFORK {
        args = [CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0];
    }
    let parent = threads::current(live, uc);
    let flags = args[0];
    let fail = |uc: &mut Ucontext| uc.gregs.rax = -(Errno::EAGAIN.0 as i64) as u64;
    if flags & CLONE_THREAD == 0 && live.is_own_process() {
        ANY.store(true, SeqCst);
        let mut spins = 0;
        while !reclaim::ensure(live) {
            if !reclaim::is_held_off() {
                return fail(uc);
            }
            os::wait_a_little(spins);
            spins += 1;
        }
    }
    live.with(move |cx| {
        // What the kernel writes of its own accord, now or later.
        for at in [args[2], args[3], args[4]] {
            crate::assist::keep(live, cx, at, 256);
        }
    });
    let free = |s: &&Sharer| {
        // SAFETY: an atomic of the place.
        let done = unsafe { (*s.start.get()).parent_done.load(Acquire) } != 0 || s.start_is_fresh();
        done && s.tid.compare_exchange(0, RESERVED, AcqRel, Relaxed).is_ok()
    };
    // With a program's own arrangement for the child's id there is no place for ours.
    let arranged = flags & (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID) != 0;
    let sharer = if flags & CLONE_THREAD != 0 || arranged { None } else { sharers().iter().find(free) };
    if flags & CLONE_THREAD == 0 && !arranged && sharer.is_none() {
        return fail(uc);
    }
    // A child of vfork keeps its parent's alternate stack, which its parent does not need meanwhile.
    let thread = if flags & CLONE_VFORK == 0 { threads::take(live) } else { None };
    if let Some(thread) = thread {
        thread.inherit(parent);
        // SAFETY: the place is this call's. Where a sharer's start is used, its own is not waited for.
        unsafe { (*thread.start.get()).parent_done.store(1, Release) };
    }
    if let Some(sharer) = sharer {
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
    start.parent_done.store(0, Release);
    g.r9 = start as *mut Start as u64;
    g.rip = gate::start_stub() as u64;
}

/// Where thread ids go that nobody needs.
static NOWHERE: AtomicU32 = AtomicU32::new(0);

impl Sharer {
    fn start_is_fresh(&self) -> bool {
        // SAFETY: a word of the place; only told apart from what was ever written.
        unsafe { (*self.start.get()).to == 0 }
    }
}

/// What a request is made of: a closure before, its result afterwards.
union Work<F, R> {
    f: ManuallyDrop<F>,
    result: ManuallyDrop<R>,
}

unsafe fn work<F: FnOnce(&mut Cx) -> R, R>(data: *mut u64, cx: &mut Cx) {
    // SAFETY: `ask` put an `F` there, which is taken once.
    unsafe {
        let place = data.cast::<Work<F, R>>();
        let f = ManuallyDrop::take(&mut (*place).f);
        (*place).result = ManuallyDrop::new(f(cx));
    }
}

/// Has the background thread do something.
///
/// # Panics
/// Never: a process whose runtime is gone is ended with a message, since its memory cannot be had any more.
pub fn ask<R: 'static, F: FnOnce(&mut Cx) -> R + 'static>(live: &'static Live, f: F) -> R {
    const { assert!(size_of::<Work<F, R>>() <= DESK_BYTES && align_of::<Work<F, R>>() <= 64) };
    let desk = take_desk(live);
    let data = desk.data.get().cast::<u64>();
    // SAFETY: the desk is ours, and large enough.
    unsafe { data.cast::<Work<F, R>>().write(Work { f: ManuallyDrop::new(f) }) };
    desk.call.store(work::<F, R> as *const () as usize, Relaxed);
    desk.state.store(ASKED, SeqCst);
    reclaim::wake();
    while desk.state.load(Acquire) != DONE {
        const LOOK_NS: u64 = 20_000_000;
        let _ = os::futex_wait(&desk.state, ASKED, LOOK_NS, false);
        if desk.state.load(Acquire) != DONE && !reclaim::will_serve(live) {
            end(live);
        }
    }
    // SAFETY: done: the result is there, and is taken once.
    let result = unsafe { ManuallyDrop::take(&mut (*data.cast::<Work<F, R>>()).result) };
    desk.state.store(IDLE, Relaxed);
    desk.owner.store(0, Release);
    result
}

fn end(live: &Live) -> ! {
    live.control.post(
        b"error: a process outlived the one whose memory it shares, and was ended: nobody can bring its memory in",
    );
    let _ = os::kill(os::getpid(), 9);
    os::exit_group(125);
}

fn take_desk(live: &'static Live) -> &'static Desk {
    let tid = os::gettid() as u32;
    let mut spins = 0;
    loop {
        for desk in &DESKS_ALL {
            let owner = desk.owner.load(Acquire);
            // A desk whose owner is gone is free once nobody works at it.
            let left = owner != 0 && desk.state.load(Acquire) != ASKED && !is_alive(live, owner as i32);
            if (owner == 0 || left) && desk.owner.compare_exchange(owner, tid, AcqRel, Relaxed).is_ok() {
                return desk;
            }
        }
        if !reclaim::will_serve(live) {
            end(live);
        }
        os::wait_a_little(spins);
        spins += 1;
    }
}

/// Does what lies on the desks. Called by the background thread; says whether there was anything.
pub fn serve(live: &'static Live) -> bool {
    let mut any = false;
    for desk in DESKS_ALL.iter().filter(|d| d.state.load(SeqCst) == ASKED) {
        any = true;
        let owner = desk.owner.load(Acquire);
        if !is_alive(live, owner as i32) {
            // What it pointed to may be used for something else by now.
            desk.state.store(DONE, SeqCst);
            continue;
        }
        SERVED.store(owner, Relaxed);
        let call = desk.call.load(Relaxed);
        let data = desk.data.get().cast::<u64>();
        live.contexts.with(|cx| {
            // SAFETY: `ask` stored this function for what it put on the desk.
            unsafe {
                let call: unsafe fn(*mut u64, &mut Cx) = core::mem::transmute(call);
                call(data, cx);
            }
        });
        SERVED.store(0, Relaxed);
        desk.state.store(DONE, SeqCst);
        os::futex_wake(&desk.state, 1, false);
    }
    any
}

/// Whether somebody waits at a desk.
pub fn is_asked() -> bool {
    any() && DESKS_ALL.iter().any(|d| d.state.load(SeqCst) == ASKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_executed_a_program_shares_no_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let pid = child.id() as i32;
        // SAFETY: signal 0 is not sent.
        assert_eq!(unsafe { syscall2(nr::TKILL, pid as usize, 0) }, 0, "it lives");
        assert!(!may_share(pid));
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!may_share(pid) && !may_share(0) && !may_share(i32::MAX));
        let of_thread = std::thread::spawn(|| may_share(os::gettid()));
        assert!(of_thread.join().expect("no panic") && may_share(os::getpid()) && may_share(os::gettid()));
    }
}
