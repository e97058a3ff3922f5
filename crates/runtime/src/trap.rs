//! Trapped system calls: what the filters caught is served here, or made to run in the gate with its pages resident.
use crate::assisted::assisted;
use crate::clone::{self, CLONE_FILES, CLONE_VM};
use crate::errno::{EAGAIN, EBADF, EFAULT, EINVAL, ENOMEM, EPERM, ESRCH};
use crate::gate::{self, Part};
use crate::layout::overlaps_managed;
use crate::limits::IOV_MAX;
use crate::live::Live;
use crate::pins::{self, read};
use crate::sigcalls::{sigaction, sigaltstack, sigpending, sigprocmask, sigtimedwait};
use crate::usermem::{peek, word};
use crate::{
    avoided, background, calls, charge, constants, deliver, descriptors, direct, dispatch, exec, fork, full, given,
    memory, parts, privileges, procfs, reclaim, rlimits, sites, stub_call, threads, traced, transfer, unseen, whole,
    wishes,
};
use outswap_control::{Once, Stat};
use outswap_sys::signal::{Siginfo, Ucontext};
use outswap_sys::{nr, os};

/// Serves a call that was told by where it comes from ([`dispatch`]), not by a filter.
pub fn on_dispatch(live: &'static Live, info: &Siginfo, uc: &mut Ucontext) {
    let args = stub_call::arguments(&uc.gregs);
    if dispatch::is_long(info) && info.syscall as usize == nr::RT_SIGRETURN {
        // Its frame is where the stack pointer is. One that is ours has the address above it that a handler returns to.
        let back = word_at(uc.gregs.rsp as usize - size_of::<usize>());
        let is_ours = back == Some(deliver::returns());
        uc.gregs.rip = if is_ours { deliver::returns() } else { gate::start_stub() } as u64;
        uc.gregs.rax = nr::RT_SIGRETURN as u64;
        return;
    }
    if !dispatch::pass(info, args, uc) {
        on_trap(live, info, uc);
    }
}

/// A word of memory that may not be there.
fn word_at(at: usize) -> Option<usize> {
    let mut bytes = [0u8; size_of::<usize>()];
    peek(at, &mut bytes).then(|| usize::from_ne_bytes(bytes))
}

/// Serves a trap. The interrupted code continues as if its system call had returned, or in the gate.
pub fn on_trap(live: &'static Live, info: &Siginfo, uc: &mut Ucontext) {
    if unseen::is_here() {
        return pass(info, uc);
    }
    live.stat(Stat::CallsTrapped, 1);
    if gate::is_back(info.addr) {
        return parts::go_on(live, uc);
    }
    let nr = info.syscall as usize;
    let args = stub_call::arguments(&uc.gregs);
    if gate::is_hook(info.addr) {
        uc.gregs.rax = from_library(live, nr % gate::NUMBERS, args) as u64;
        return;
    }
    let nr = gate::meant(nr);
    if let Some(value) = whole::before_call(live, nr, args) {
        uc.gregs.rax = value as u64;
        return;
    }
    if full::holds_back_call(live, nr, args) {
        // It is made again, after signals that came meanwhile.
        return stub_call::make_anew(info.syscall as usize, &mut uc.gregs);
    }
    let value = match nr {
        nr::FORK => return fork(live, nr, args, uc),
        // Of two processes with memory of their own, each would close and replace what the other's runtime needs.
        nr::CLONE if args[0] & (CLONE_VM | CLONE_FILES) == CLONE_FILES => {
            live.control.post_once(Once::SharedFiles);
            EINVAL
        }
        nr::CLONE if args[0] & CLONE_VM == 0 => return fork(live, nr, args, uc),
        nr::VFORK | nr::CLONE => {
            return clone::clone(live, nr, args, uc, |args, uc| fork(live, nr::CLONE, args, uc));
        }
        nr::EXECVE | nr::EXECVEAT => return exec::exec(live, nr, args, uc),
        nr::EXIT => end_thread(live, args[0], uc),
        nr::EXIT_GROUP => {
            if live.is_own_process() {
                live.contexts.with(|_| charge::leave(live));
            } else {
                privileges::sharer_ends(live);
            }
            os::exit_group(args[0] as i32)
        }
        nr::PTRACE if args[0] == traced::TRACEME && !live.is_own_process() && traced::ask(|pid| live.is_alive(pid)) => {
            0
        }
        // A process that shares the memory and stops all its threads, as sanitizers do that look for leaks: its own faults are answered by
        // that thread, which is none of the program's.
        nr::PTRACE if traced::begins(args[0]) && background::is_thread(args[1] as u32) => ESRCH,
        nr::PRCTL if args[0] == os::PR_SET_SYSCALL_USER_DISPATCH => {
            if dispatch::tells_of_ours(args) {
                live.control.post_once(Once::Dispatch);
                EINVAL
            } else if !live.with(move |cx| pins::keep(live, cx, args[4], 1)) {
                // The kernel reads that byte by itself, at every call.
                EFAULT
            } else {
                dispatch::asked(args)
            }
        }
        nr::SIGALTSTACK => sigaltstack(live, args, uc),
        nr::IOCTL => match given::before_ioctl(live, args) {
            Some(value) => value,
            None => return assisted(live, nr, args, live.window_bytes(), uc),
        },
        // The kernel refuses that to a thread with a filter, and it would kill the runtime's own calls.
        _ if calls::is_strict_mode(nr, args[0], args[1]) => {
            live.control.post_once(Once::Strict);
            EINVAL
        }
        nr::RT_SIGACTION => sigaction(live, args),
        nr::RT_SIGPROCMASK => {
            sites::note_mask(live);
            sigprocmask(live, args, uc)
        }
        nr::RT_SIGPENDING | nr::RT_SIGTIMEDWAIT => {
            let call = if nr == nr::RT_SIGPENDING { sigpending } else { sigtimedwait };
            match call(live, args, uc) {
                Some(value) => value,
                None => return assisted(live, nr, args, live.window_bytes(), uc),
            }
        }
        // Our descriptors are where a program that counts upwards never comes. Who closes one has found it in a list of them, and minds
        // if that fails.
        nr::CLOSE if descriptors::is_ours(live, args[0] as u32 as i32) => 0,
        nr::FSTAT | nr::NEWFSTATAT if descriptors::is_ours(live, args[0] as u32 as i32) => EBADF,
        nr::DUP2 | nr::DUP3 if descriptors::is_ours(live, args[1] as u32 as i32) => EBADF,
        nr::CLOSE_RANGE if live.is_own_process() && args[2] & calls::CLOSE_RANGE_UNSHARE != 0 => {
            privileges::unshare_range(live, args)
        }
        nr::CLOSE_RANGE => descriptors::close_range(live, args),
        nr::PROCESS_MADVISE => match process_madvise(live, args) {
            Some(value) => value,
            None => return assisted(live, nr, args, live.window_bytes(), uc),
        },
        nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64 => match rlimits::call(live, nr, args) {
            Some(value) => value,
            None => return assisted(live, nr, args, live.window_bytes(), uc),
        },
        // Code whose place loses its access while it is evicted, or closed, could not have it again.
        nr::PRCTL if args[0] == calls::PR_SET_MDWE && live.source().changes_access() && memory::has_code(live) => {
            live.control.post_once(Once::CodeKept);
            EINVAL
        }
        nr::PRCTL if live.is_own_process() && calls::REACH_OPTIONS.contains(&args[0]) => {
            descriptors::open_all(live);
            privileges::finish_code_alone(live);
            return assisted(live, nr, args, live.window_bytes(), uc);
        }
        _ if live.is_own_process() && calls::changes_rights(nr, args[0]) => {
            return privileges::call(live, nr, args, uc);
        }
        // Of a process that only shares the memory.
        nr::PRCTL | nr::SECCOMP if calls::installs_filter(nr, args[0], args[1]) => {
            privileges::install_of_sharer(live, nr, args)
        }
        nr::CHROOT | nr::PIVOT_ROOT => privileges::by_sharer(live, nr, args),
        nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV => match wishes::transfer(live, nr, args) {
            Some(value) => value,
            None => return assisted(live, nr, args, live.window_bytes(), uc),
        },
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 | nr::RECVFROM | nr::SENDTO => {
            return transfer::transfer(live, nr, args, uc);
        }
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV | nr::PREADV2 | nr::PWRITEV2 => {
            return transfer::vector(live, nr, args, uc);
        }
        nr::GETRANDOM => return transfer::random(live, args, uc),
        nr::SENDMSG | nr::RECVMSG if transfer::is_message_in_parts(live, args) => {
            return parts::start(live, Part::Message, nr, args, &mut uc.gregs);
        }
        nr::MMAP if memory::is_linkers(info.addr) && !overlaps_managed(args[0], args[1]) => memory::load(live, args),
        nr::MPROTECT if memory::is_linkers(info.addr) => live.with(move |cx| constants::protect(live, cx, args)),
        nr::MMAP if !live.is_own_process() && args[3] & os::MAP_ANONYMOUS == 0 => {
            // The background thread has other descriptors than a process that shares only the memory.
            EAGAIN
        }
        _ => return assisted(live, nr, args, live.window_bytes(), uc),
    };
    uc.gregs.rax = value as u64;
}

/// Has a child that nobody knows make its call as it is: what of its arguments is managed memory is not there.
fn pass(info: &Siginfo, uc: &mut Ucontext) {
    let nr = info.syscall as usize;
    if gate::is_hook(info.addr) {
        let [a, b, c, d, e, f] = stub_call::arguments(&uc.gregs);
        // SAFETY: the program's own call.
        uc.gregs.rax = unsafe { gate::call(nr % gate::NUMBERS, a, b, c, d, e, f) } as u64;
        return;
    }
    uc.gregs.rax = gate::meant(nr) as u64;
    match gate::clone_stub(uc.gregs.rip as usize) {
        Some(stub) => uc.gregs.rip = stub as u64,
        None => uc.gregs.rax = EAGAIN as u64,
    }
}

/// A call of the preload library's functions.
fn from_library(live: &'static Live, nr: usize, args: [usize; 6]) -> isize {
    live.stat(Stat::CallsWrapped, 1);
    if let Some(value) = whole::before_call(live, nr, args) {
        return value;
    }
    if nr == nr::MMAP
        && args[3] & os::MAP_ANONYMOUS == 0
        && !live.is_own_process()
        && !overlaps_managed(args[0], args[1])
    {
        // The background thread has other descriptors than a process that shares only the memory.
        // SAFETY: the program's own call, on memory that is not managed.
        return unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) };
    }
    if nr == gate::KEEP {
        let kept = live.with(move |cx| pins::keep(live, cx, args[0], args[1]));
        return if kept { 0 } else { ENOMEM };
    }
    match live.with(move |cx| memory::call(live, nr, args, cx)) {
        Some(value) => value,
        // SAFETY: the program's own call.
        None => unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) },
    }
}

fn fork(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let thread = threads::current_or_new(live, uc);
    let pid = fork::fork(live, nr, args, thread);
    uc.gregs.rax = pid as u64;
    if pid == 0 && nr == nr::CLONE && args[1] != 0 {
        uc.gregs.rsp = args[1] as u64;
    }
}

/// A thread ends: its place is free once it is gone.
fn end_thread(live: &'static Live, status: usize, uc: &mut Ucontext) -> ! {
    threads::note_end(status as i32);
    if live.is_own_process() {
        direct::end_thread(live);
        reclaim::thread_ends(live);
        if let Some(thread) = threads::current_or_new(live, uc) {
            gate::end_thread(&thread.tid, status);
        }
    } else {
        privileges::sharer_ends(live);
    }
    os::exit_thread(status as i32)
}

/// Whether a descriptor of a process names this one; where nobody says, it is taken to.
fn is_own(pidfd: i32) -> bool {
    if pidfd < 0 || !avoided::may_name_files() {
        return true;
    }
    procfs::of_pidfd(pidfd).is_none_or(|pid| pid == os::getpid())
}

/// Advice for managed memory of this very process must not go past the runtime, nor may what is beside it in the vector hide it. `None`
/// where the kernel is to do it.
fn process_madvise(live: &'static Live, args: [usize; 6]) -> Option<isize> {
    let [pidfd, vec, count, advice, flags, _] = args;
    if flags != 0 || count > IOV_MAX {
        return Some(EINVAL);
    }
    const F_GETFD: usize = 1;
    let own = is_own(pidfd as i32);
    // In place of a descriptor: PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP.
    let names_itself = [-10_000, -10_001].contains(&(pidfd as i32));
    if !names_itself && os::fcntl(pidfd as i32, F_GETFD, 0).is_err() {
        return Some(EBADF);
    }
    let iov = |i: usize| read::<16>(live, vec + i * 16).map(|iov| (word(&iov, 0), word(&iov, 8)));
    let mut any_managed = false;
    for i in 0..count {
        let Some((base, len)) = iov(i) else { return Some(EFAULT) };
        any_managed |= overlaps_managed(base, len);
    }
    // Only advice that is known to keep content may come from another process; the kernel does all else for those alone that have the same
    // memory, which is this one's.
    let keeps_content = matches!(advice, os::MADV_COLD | os::MADV_PAGEOUT | os::MADV_WILLNEED);
    if !any_managed || !own && keeps_content {
        return None;
    }
    if !keeps_content {
        return Some(if own { EPERM } else { EINVAL });
    }
    let mut total = 0isize;
    for i in 0..count {
        // What is there now is what is done, whatever was there before.
        let Some((base, len)) = iov(i) else { return Some(if total > 0 { total } else { EFAULT }) };
        let value = live.with(move |cx| memory::madvise(live, cx, base, len, advice));
        if value < 0 {
            return Some(if total > 0 { total } else { value });
        }
        total += len as isize;
    }
    Some(total)
}
