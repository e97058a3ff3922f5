//! Trapped system calls: what the filters caught is served here, or made to run in the gate with its pages resident.
use crate::assist::{self, Pins};
use crate::calls;
use crate::layout::*;
use crate::live::Live;
use crate::signals::OURS;
use crate::{exec, fork, gate, memory, rlimits, signals};
use outswap_core::engine::{Context, Fault};
use outswap_store::Worker;
use outswap_sys::signal::{KernelSigaction, SIGBUS, SIGSEGV, SIGSYS, Siginfo, Stack, Ucontext, bit};
use outswap_sys::{Errno, nr, os};

type Cx = Context<Worker>;
const IOV_MAX: usize = 1024;
const EFAULT: isize = -(Errno::EFAULT.0 as isize);
const EINVAL: isize = -(Errno::EINVAL.0 as isize);
const EBADF: isize = -(Errno::EBADF.0 as isize);
const EPERM: isize = -(Errno::EPERM.0 as isize);
const EIO: isize = -(Errno::EIO.0 as isize);

/// What becomes of a trapped call.
enum Outcome {
    /// It was served: this is what it returns.
    Done(isize),
    /// It runs in the stub of this slot, once the handler returns.
    Run(usize),
    /// It runs in pieces, in this handler.
    Pieces,
    /// A message larger than may be resident at once: a part of it goes, as streams allow.
    Message,
}

/// Masks and structures that calls in progress point to instead of the program's own, one set a slot.
#[repr(C)]
struct Substitute {
    mask: u64,
    pair: [usize; 2],
    stack: Stack,
}
static SUBSTITUTES: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// Reserves what trapped calls need.
pub fn reserve() -> outswap_sys::Result<()> {
    let at = os::mmap_anonymous(HAZARDS * core::mem::size_of::<Substitute>())?;
    SUBSTITUTES.store(at, core::sync::atomic::Ordering::Release);
    Ok(())
}

fn substitute(slot: usize) -> *mut Substitute {
    let base = SUBSTITUTES.load(core::sync::atomic::Ordering::Acquire) as *mut Substitute;
    base.wrapping_add(slot)
}

/// Serves a trap. The interrupted code continues as if its system call had returned, or in the gate.
pub fn on_trap(live: &Live, info: &Siginfo, uc: &mut Ucontext) {
    signals::count_trap(live);
    let nr = info.syscall as usize;
    let g = &uc.gregs;
    let mut args = [g.rdi as usize, g.rsi as usize, g.rdx as usize, g.r10 as usize, g.r8 as usize, g.r9 as usize];
    let is_fork = nr == nr::FORK || nr == nr::CLONE && args[0] & 0x100 == 0;
    if is_fork {
        let pid = fork::fork(live, nr, args);
        uc.gregs.rax = pid as u64;
        if pid == 0 && nr == nr::CLONE && args[1] != 0 {
            uc.gregs.rsp = args[1] as u64;
        }
        return;
    }
    if nr == nr::EXECVE || nr == nr::EXECVEAT {
        uc.gregs.rax = exec::exec(live, nr, args, uc.sigmask) as u64;
        return;
    }
    if nr == nr::EXIT {
        return end_thread(live, args[0], uc);
    }
    if nr == nr::SIGALTSTACK {
        return sigaltstack(live, args, uc);
    }
    if nr == nr::CLONE {
        clone_thread(live, args, uc);
        return;
    }
    let mask = &mut uc.sigmask;
    match live.contexts.hold().run(|cx| serve(live, cx, nr, &mut args, mask)) {
        Outcome::Done(value) => uc.gregs.rax = value as u64,
        Outcome::Pieces => uc.gregs.rax = pieces(live, nr, args) as u64,
        Outcome::Message => uc.gregs.rax = message(live, nr, args, uc.sigmask) as u64,
        Outcome::Run(slot) => {
            let to = uc.gregs.rip as usize;
            let g = &mut uc.gregs;
            g.rax = nr as u64;
            [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9] = args.map(|a| a as u64);
            g.rip = gate::stub(slot, to) as u64;
        }
    }
}

fn serve(live: &Live, cx: &mut Cx, nr: usize, args: &mut [usize; 6], mask: &mut u64) -> Outcome {
    if let Some(value) = memory::call(nr, *args, cx) {
        return Outcome::Done(value);
    }
    match nr {
        nr::RT_SIGACTION => return Outcome::Done(sigaction(live, cx, *args)),
        nr::RT_SIGPROCMASK => return Outcome::Done(sigprocmask(live, cx, *args, mask)),
        // Our descriptors are where a program that counts upwards never comes; one that names them finds none.
        nr::CLOSE if is_our_fd(live, args[0]) => return Outcome::Done(EBADF),
        nr::DUP2 | nr::DUP3 if is_our_fd(live, args[1]) => return Outcome::Done(EBADF),
        nr::CLOSE_RANGE if args[1] as u32 >= live.fds.0 as u32 => {
            return Outcome::Done(close_range(live, *args));
        }
        nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64 => {
            if let Some(value) = rlimits::call(live, cx, nr, *args) {
                return Outcome::Done(value);
            }
        }
        nr::PROCESS_MADVISE => return process_madvise(live, cx, *args),
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV | nr::PREADV2 | nr::PWRITEV2
            if managed_bytes(live, cx, args[1], args[2]) > assist::window_bytes(live) && is_file(args[0]) =>
        {
            return Outcome::Pieces;
        }
        nr::SENDMSG | nr::RECVMSG => {
            let mut header = [0u8; assist::MSGHDR_BYTES];
            if assist::copy_in(live, cx, args[1], &mut header) {
                let (iov, count) = (word(&header, 16), word(&header, 24));
                if managed_bytes(live, cx, iov, count) > assist::window_bytes(live) && is_stream(args[0]) {
                    return Outcome::Message;
                }
            }
        }
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64
            if args[2] > assist::window_bytes(live) && overlaps_arena(args[1], args[2]) && is_file(args[0]) =>
        {
            return Outcome::Pieces;
        }
        nr::IOCTL if args[1] == 0x8912 => {
            // struct ifconf: a length and a pointer.
            let mut pins = Pins::new(live);
            let mut ifconf = [0u8; 16];
            if pins.pin(cx, args[2], 16).is_ok() && assist::peek(args[2], &mut ifconf) {
                let word = |at: usize| u64::from_le_bytes(ifconf[at..at + 8].try_into().expect("8 bytes"));
                let _ = pins.pin(cx, word(8) as usize, (word(0) as u32 as usize).min(1 << 20));
            }
            return Outcome::Run(pins.slot());
        }
        _ => {}
    }
    let mut pins = Pins::new(live);
    let result = pins.arguments(cx, calls::find(nr), args);
    if let Err(fault) = result {
        pins.release();
        return Outcome::Done(match fault {
            Fault::Corrupt | Fault::Unreadable => {
                live.warn(
                    b"warning: a system call's memory cannot be read back from the store: the call fails with EIO",
                );
                EIO
            }
            _ => EFAULT,
        });
    }
    if let Some(at) = mask_argument(nr) {
        replace_mask(&mut pins, cx, nr, at, args);
    }
    Outcome::Run(pins.slot())
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Bytes of managed memory that an array of `struct iovec` names; 0 where the kernel will refuse it.
fn managed_bytes(live: &Live, cx: &mut Cx, vec: usize, count: usize) -> usize {
    let mut bytes = 0usize;
    for i in 0..count.min(IOV_MAX) {
        let mut iov = [0u8; 16];
        if !assist::copy_in(live, cx, vec + i * 16, &mut iov) || (word(&iov, 8) as isize) < 0 {
            return 0;
        }
        if overlaps_arena(word(&iov, 0), word(&iov, 8)) {
            bytes = bytes.saturating_add(word(&iov, 8));
        }
    }
    bytes
}

/// Which argument of a call is a signal mask that holds while it waits.
fn mask_argument(nr: usize) -> Option<usize> {
    match nr {
        nr::RT_SIGSUSPEND => Some(0),
        nr::PPOLL => Some(3),
        nr::EPOLL_PWAIT => Some(4),
        nr::EPOLL_PWAIT2 => Some(4),
        nr::PSELECT6 => Some(5),
        _ => None,
    }
}

/// A handler that runs while the call waits has the call's mask: our signals must not be in it.
fn replace_mask(pins: &mut Pins<'_>, cx: &mut Cx, nr: usize, at: usize, args: &mut [usize; 6]) {
    let to = substitute(pins.slot());
    let mut from = args[at];
    let mut pair = [0u8; 16];
    if nr == nr::PSELECT6 {
        if from == 0 || !assist::peek(from, &mut pair) {
            return;
        }
        from = usize::from_le_bytes(pair[..8].try_into().expect("8 bytes"));
    }
    let mut mask = [0u8; 8];
    if pins.pin(cx, from, mask.len()).is_err() {
        return;
    }
    if from == 0 || !assist::peek(from, &mut mask) || u64::from_le_bytes(mask) & OURS == 0 {
        return;
    }
    // SAFETY: the slot, and with it its substitutes, are this call's until it returns.
    unsafe {
        (*to).mask = u64::from_le_bytes(mask) & !OURS;
        let place = &raw const (*to).mask as usize;
        if nr == nr::PSELECT6 {
            (*to).pair = [place, usize::from_le_bytes(pair[8..].try_into().expect("8 bytes"))];
            args[at] = &raw const (*to).pair as usize;
        } else {
            args[at] = place;
        }
    }
}

fn sigaction(live: &Live, cx: &mut Cx, [signal, new, old, size, ..]: [usize; 6]) -> isize {
    const BYTES: usize = core::mem::size_of::<KernelSigaction>();
    if size != 8 {
        return EINVAL;
    }
    let mut action = KernelSigaction::default();
    // SAFETY: plain old data.
    let bytes = unsafe { &mut *(&raw mut action).cast::<[u8; BYTES]>() };
    if new != 0 && !assist::copy_in(live, cx, new, bytes) {
        return EFAULT;
    }
    let signal = signal as i32;
    let mut before = KernelSigaction::default();
    if matches!(signal, SIGBUS | SIGSEGV | SIGSYS) {
        let mut actions = live.actions.lock(|s| crate::live::pause(live, s));
        if let Some(slot) = actions.get(signal) {
            before = *slot;
            // A vforked child borrows this memory, but its dispositions are its own and end with its exec.
            if new != 0 && live.is_own_process() {
                *slot = action;
            }
        }
    } else {
        action.mask &= !OURS;
        let new = (new != 0).then_some(&action);
        // SAFETY: the program's own request, without our signals in the mask.
        if let Err(e) = unsafe { outswap_sys::signal::sigaction(signal, new, Some(&mut before)) } {
            return -(e.0 as isize);
        }
    }
    // SAFETY: plain old data.
    let bytes = unsafe { &*(&raw const before).cast::<[u8; BYTES]>() };
    if old != 0 && !assist::copy_out(live, cx, old, bytes) {
        return EFAULT;
    }
    0
}

fn sigprocmask(live: &Live, cx: &mut Cx, [how, new, old, size, ..]: [usize; 6], mask: &mut u64) -> isize {
    if size != 8 {
        return EINVAL;
    }
    let mut set = [0u8; 8];
    if new != 0 && !assist::copy_in(live, cx, new, &mut set) {
        return EFAULT;
    }
    let (set, before) = (u64::from_le_bytes(set), *mask | signals::pretended());
    let after = match how {
        _ if new == 0 => before,
        0 => before | set,
        1 => before & !set,
        2 => set,
        _ => return EINVAL,
    };
    const SIGKILL: u64 = bit(9);
    const SIGSTOP: u64 = bit(19);
    *mask = after & !(OURS | SIGKILL | SIGSTOP);
    signals::set_pretended(after & OURS);
    if old != 0 && !assist::copy_out(live, cx, old, &before.to_le_bytes()) {
        return EFAULT;
    }
    0
}

/// `sigaltstack`. The stack cannot be changed from a handler that runs on it, so the call itself runs in the gate, with a copy
/// of what the program asked for. To a program, the stack that the engine gave its thread is none.
fn sigaltstack(live: &Live, [new, old, ..]: [usize; 6], uc: &mut Ucontext) {
    const BYTES: usize = core::mem::size_of::<Stack>();
    const SS_ONSTACK: i32 = 1;
    const SS_DISABLE: i32 = 2;
    let now = uc.stack;
    let given = signals::is_given_altstack(now.sp);
    let on = now.flags & SS_DISABLE == 0 && (uc.gregs.rsp as usize).wrapping_sub(now.sp) < now.size;
    let result = live.contexts.hold().run(|cx| {
        let mut stack = Stack::default();
        // SAFETY: plain old data.
        let bytes = unsafe { &mut *(&raw mut stack).cast::<[u8; BYTES]>() };
        if new != 0 && !assist::copy_in(live, cx, new, bytes) {
            return Err(EFAULT);
        }
        if old != 0 {
            let mut before = now;
            if given || now.flags & SS_DISABLE != 0 {
                before = Stack { sp: 0, flags: SS_DISABLE, size: 0 };
            } else if on {
                before.flags |= SS_ONSTACK;
            }
            // SAFETY: plain old data.
            let bytes = unsafe { &*(&raw const before).cast::<[u8; BYTES]>() };
            if !assist::copy_out(live, cx, old, bytes) {
                return Err(EFAULT);
            }
        }
        if new == 0 {
            return Ok(None);
        }
        if stack.flags & SS_DISABLE != 0 {
            stack = signals::given_altstack().unwrap_or(stack);
        } else if stack.size < 1 << 30 {
            // The kernel writes signal frames there on its own.
            assist::keep(live, cx, stack.sp, stack.size);
        }
        let slot = Pins::new(live).slot();
        // SAFETY: the slot, and with it its substitutes, are this call's until it returns.
        unsafe { (*substitute(slot)).stack = stack };
        Ok(Some(slot))
    });
    match result {
        Err(error) => uc.gregs.rax = error as u64,
        Ok(None) => uc.gregs.rax = 0,
        Ok(Some(slot)) => {
            uc.gregs.rax = nr::SIGALTSTACK as u64;
            // SAFETY: as above; only the address is taken.
            uc.gregs.rdi = unsafe { &raw const (*substitute(slot)).stack } as u64;
            uc.gregs.rsi = 0;
            uc.gregs.rip = gate::stub(slot, uc.gregs.rip as usize) as u64;
        }
    }
}

/// With what status a thread of the program ended last.
static LAST_STATUS: core::sync::atomic::AtomicI32 = core::sync::atomic::AtomicI32::new(0);

/// The status that a process ends with whose last thread ends by itself.
pub fn last_status() -> i32 {
    LAST_STATUS.load(core::sync::atomic::Ordering::Acquire)
}

/// A thread ends. The kernel then walks its list of robust mutexes by itself, so those in managed memory must be there; they
/// stay until it is noticed that the thread is gone.
fn end_thread(live: &Live, status: usize, uc: &mut Ucontext) {
    LAST_STATUS.store(status as i32, core::sync::atomic::Ordering::Release);
    signals::set_pretended(0);
    let slot = live.contexts.hold().run(|cx| {
        let mut pins = Pins::new(live);
        let mut any = false;
        let (mut head, mut len) = (0usize, 0usize);
        // SAFETY: two places for the results.
        let ok = unsafe {
            outswap_sys::syscall3(nr::GET_ROBUST_LIST, 0, &raw mut head as usize, &raw mut len as usize) == 0
        };
        const ROBUST_LIST_LIMIT: usize = 2048;
        let mut fields = [0u8; 24];
        if ok && head != 0 && assist::peek(head, &mut fields) {
            let word = |at: usize| usize::from_le_bytes(fields[at..at + 8].try_into().expect("8 bytes"));
            let (mut entry, offset, pending) = (word(0), word(8), word(16));
            for _ in 0..ROBUST_LIST_LIMIT {
                // The lowest bit marks mutexes with priority inheritance.
                let at = entry & !1;
                if at == head || at == 0 {
                    break;
                }
                any |= in_arena(at);
                let mut next = [0u8; 8];
                let pinned = pins.pin(cx, at, 8).is_ok() && pins.pin(cx, at.wrapping_add(offset), 4).is_ok();
                if !pinned || !assist::peek(at, &mut next) {
                    break;
                }
                entry = usize::from_le_bytes(next);
            }
            if pending != 0 {
                any |= in_arena(pending & !1);
                let _ = pins.pin(cx, (pending & !1).wrapping_add(offset), 4);
            }
        }
        if any {
            return Some(pins.slot());
        }
        pins.release();
        None
    });
    match slot {
        Some(slot) => {
            uc.gregs.rax = nr::EXIT as u64;
            uc.gregs.rip = gate::stub(slot, uc.gregs.rip as usize) as u64;
        }
        // SAFETY: ends this thread, as it asked.
        None => unsafe {
            outswap_sys::syscall1(nr::EXIT, status);
        },
    }
}

fn is_our_fd(live: &Live, fd: usize) -> bool {
    (live.fds.0..=live.fds.1).contains(&(fd as i32))
}

fn close_range(live: &Live, [first, last, flags, ..]: [usize; 6]) -> isize {
    let (low, high) = (live.fds.0 as usize, live.fds.1 as usize);
    let (first, last) = (first as u32 as usize, last as u32 as usize);
    let mut result = 0;
    for (first, last) in [(first, last.min(low - 1)), (first.max(high + 1), last)] {
        if first <= last {
            // SAFETY: closes the program's descriptors, as it asked.
            let value = unsafe { outswap_sys::syscall3(nr::CLOSE_RANGE, first, last, flags) };
            result = result.min(value);
        }
    }
    if first > last { EINVAL } else { result }
}

/// Advice for managed memory of this very process must not go past the engine.
fn process_madvise(live: &Live, cx: &mut Cx, args: [usize; 6]) -> Outcome {
    let [pidfd, vec, count, advice, flags, _] = args;
    let mut total = 0isize;
    if flags != 0 {
        return Outcome::Done(EINVAL);
    }
    if os::fcntl(pidfd as i32, 1, 0).is_err() {
        return Outcome::Done(EBADF);
    }
    for i in 0..count.min(1024) {
        let mut iov = [0u8; 16];
        if !assist::copy_in(live, cx, vec + i * 16, &mut iov) {
            return Outcome::Done(EFAULT);
        }
        let word = |at: usize| usize::from_le_bytes(iov[at..at + 8].try_into().expect("8 bytes"));
        if !overlaps_arena(word(0), word(8)) {
            let mut pins = Pins::new(live);
            let _ = pins.pin(cx, vec, count.min(1024) * 16);
            return Outcome::Run(pins.slot());
        }
        // Only advice that is known to keep content may come from another process.
        if !matches!(advice, os::MADV_COLD | os::MADV_PAGEOUT | os::MADV_WILLNEED) {
            return Outcome::Done(EPERM);
        }
        let value = memory::madvise(live, cx, word(0), word(8), advice);
        if value < 0 {
            return Outcome::Done(if total > 0 { total } else { value });
        }
        total += word(8) as isize;
    }
    Outcome::Done(total)
}

/// A thread whose stack lies in managed memory. The child passes through the same code, so no slot can be freed there;
/// what the kernel writes on its own is kept resident for good.
fn clone_thread(live: &Live, args: [usize; 6], uc: &mut Ucontext) {
    const KEPT_BYTES: usize = 64 * 1024;
    live.contexts.hold().run(|cx| {
        let stack = args[1];
        if in_arena(stack) {
            assist::keep(live, cx, (stack - KEPT_BYTES).max(ARENA), KEPT_BYTES);
        }
        for at in [args[2], args[3], args[4]] {
            if in_arena(at) {
                assist::keep(live, cx, at, 256);
            }
        }
    });
    match gate::clone_stub(uc.gregs.rip as usize) {
        Some(stub) => {
            uc.gregs.rax = nr::CLONE as u64;
            uc.gregs.rip = stub as u64;
        }
        None => uc.gregs.rax = -(Errno::EAGAIN.0 as isize) as u64,
    }
}

/// Whether a descriptor is a file, whose transfers are never cut short.
fn is_file(fd: usize) -> bool {
    let mut stat = [0u32; 36];
    // SAFETY: the buffer has the size of `struct stat`; the mode is at byte 24.
    let ok = unsafe { outswap_sys::syscall2(nr::FSTAT, fd, stat.as_mut_ptr() as usize) } == 0;
    const S_IFMT: u32 = 0o170000;
    const S_IFREG: u32 = 0o100000;
    const S_IFBLK: u32 = 0o060000;
    ok && matches!(stat[6] & S_IFMT, S_IFREG | S_IFBLK)
}

fn is_stream(fd: usize) -> bool {
    const SOL_SOCKET: usize = 1;
    const SO_TYPE: usize = 3;
    const SOCK_STREAM: u32 = 1;
    let (mut kind, mut len) = (0u32, 4u32);
    let (kind_at, len_at) = (&raw mut kind as usize, &raw mut len as usize);
    // SAFETY: places for the value and its length.
    let ok = unsafe { outswap_sys::syscall5(nr::GETSOCKOPT, fd, SOL_SOCKET, SO_TYPE, kind_at, len_at) } == 0;
    ok && kind == SOCK_STREAM
}

/// Sends or receives the part of a message that may be resident at once. The call may wait, so the program's own signal
/// mask holds meanwhile.
fn message(live: &Live, nr: usize, [fd, at, flags, ..]: [usize; 6], mask: u64) -> isize {
    const PARTS: usize = 16;
    let mut header = [0u8; assist::MSGHDR_BYTES];
    let mut parts = [[0usize; 2]; PARTS];
    let prepared = live.contexts.hold().run(|cx| {
        if !assist::copy_in(live, cx, at, &mut header) {
            return Err(EFAULT);
        }
        let mut pins = Pins::new(live);
        let (mut used, mut room, mut failed) = (0, assist::window_bytes(live), false);
        failed |= pins
            .pin(cx, word(&header, 0), u32::from_le_bytes(header[8..12].try_into().expect("4 bytes")) as usize)
            .is_err();
        failed |= pins.pin(cx, word(&header, 32), word(&header, 40)).is_err();
        for i in 0..word(&header, 24).min(PARTS) {
            let mut iov = [0u8; 16];
            let from = word(&header, 16) + i * 16;
            if pins.pin(cx, from, 16).is_err() || !assist::peek(from, &mut iov) {
                failed = true;
                break;
            }
            let (base, len) = (word(&iov, 0), word(&iov, 8).min(room));
            failed |= pins.pin(cx, base, len).is_err();
            parts[i] = [base, len];
            used = i + 1;
            room -= len;
            if room == 0 || len < word(&iov, 8) {
                break;
            }
        }
        if failed {
            pins.release();
            return Err(EIO);
        }
        Ok((pins.slot(), used))
    });
    let (slot, used) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    header[16..24].copy_from_slice(&(parts.as_ptr() as usize).to_le_bytes());
    header[24..32].copy_from_slice(&used.to_le_bytes());
    outswap_sys::signal::set_mask(mask);
    // SAFETY: the program's own call, with a header and parts that live here.
    let value = unsafe { gate::call(nr, fd, header.as_mut_ptr() as usize, flags, 0, 0, 0) };
    outswap_sys::signal::set_mask(u64::MAX);
    live.engine.hazards.release(slot);
    if value >= 0 && nr == nr::RECVMSG {
        // What the kernel tells: lengths of name and control data, and flags.
        let told = live.contexts.hold().run(|cx| {
            assist::copy_out(live, cx, at + 8, &header[8..12]) && assist::copy_out(live, cx, at + 40, &header[40..52])
        });
        if !told {
            return EFAULT;
        }
    }
    value
}

/// A transfer between a file and more memory than may be resident at once.
fn pieces(live: &Live, nr: usize, args: [usize; 6]) -> isize {
    let [fd, buf, len, offset, _, flags] = args;
    let one = match nr {
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 => return piece(live, nr, fd, buf, len, Some(offset)),
        nr::READV => (nr::READ, false),
        nr::WRITEV => (nr::WRITE, false),
        nr::PREADV => (nr::PREAD64, true),
        nr::PWRITEV => (nr::PWRITE64, true),
        // With flags, or at the file's own position, which these calls name -1.
        nr::PREADV2 if flags == 0 => {
            (if offset as isize == -1 { nr::READ } else { nr::PREAD64 }, offset as isize != -1)
        }
        nr::PWRITEV2 if flags == 0 => {
            (if offset as isize == -1 { nr::WRITE } else { nr::PWRITE64 }, offset as isize != -1)
        }
        _ => return -(Errno::EOPNOTSUPP.0 as isize),
    };
    if len > IOV_MAX {
        return EINVAL;
    }
    let mut done = 0;
    for i in 0..len {
        let mut iov = [0u8; 16];
        let read = live.contexts.hold().run(|cx| assist::copy_in(live, cx, buf + i * 16, &mut iov));
        let word = |at: usize| usize::from_le_bytes(iov[at..at + 8].try_into().expect("8 bytes"));
        if !read {
            return if done > 0 { done } else { EFAULT };
        }
        let value = piece(live, one.0, fd, word(0), word(8), one.1.then_some(offset + done as usize));
        if value < 0 {
            return if done > 0 { done } else { value };
        }
        done += value;
        if (value as usize) < word(8) {
            break;
        }
    }
    done
}

fn piece(live: &Live, nr: usize, fd: usize, buf: usize, len: usize, offset: Option<usize>) -> isize {
    let window = assist::window_bytes(live);
    let mut done = 0;
    while done < len {
        let part = window.min(len - done);
        let pinned = live.contexts.hold().run(|cx| {
            let mut pins = Pins::new(live);
            match pins.pin(cx, buf + done, part) {
                Ok(()) => Ok(pins.slot()),
                Err(_) => {
                    pins.release();
                    Err(())
                }
            }
        });
        let Ok(slot) = pinned else { return if done > 0 { done as isize } else { EIO } };
        // SAFETY: the program's own call, on a part of its buffer.
        let value = unsafe { gate::call(nr, fd, buf + done, part, offset.map_or(0, |o| o + done), 0, 0) };
        live.engine.hazards.release(slot);
        match value {
            n if n < 0 => return if done > 0 { done as isize } else { n },
            n => done += n as usize,
        }
        if (value as usize) < part {
            break;
        }
    }
    done as isize
}
