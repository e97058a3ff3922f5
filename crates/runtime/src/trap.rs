//! Trapped system calls: what the filters caught is served here, or made to run in the gate with its pages resident.
use crate::assist::{self, CallPins, Cx, MAX_RW_COUNT};
use crate::calls;
use crate::gate::{self, Part};
use crate::layout::*;
use crate::live::Live;
use crate::signals::OURS;
use crate::threads::{self, Thread};
use crate::{budget, deliver, exec, foreign, fork, memory, parts, rights, rlimits, signals};
use outswap_control::Stat;
use outswap_core::pager::Fault;
use outswap_sys::signal::{KernelSigaction, Siginfo, Stack, Ucontext, bit, without_sigxfsz};
use outswap_sys::{Errno, nr, os};

/// Flags whose messages stay where they are, or are something else than the next bytes of a stream: MSG_OOB, MSG_PEEK,
/// MSG_ERRQUEUE.
const NOT_A_STREAM: usize = 0x1 | 0x2 | 0x2000;
/// More than a datagram holds: UDP has 64 KiB, Unix sockets 208 KiB unless `net.core.wmem_max` is raised.
const DATAGRAM_BYTES: usize = 1 << 20;
const EFAULT: isize = -(Errno::EFAULT.0 as isize);
const EINVAL: isize = -(Errno::EINVAL.0 as isize);
const EBADF: isize = -(Errno::EBADF.0 as isize);
const EPERM: isize = -(Errno::EPERM.0 as isize);
const EIO: isize = -(Errno::EIO.0 as isize);
const ENOMEM: isize = -(Errno::ENOMEM.0 as isize);

/// What becomes of a trapped call.
enum Outcome {
    /// It was served: this is what it returns.
    Done(isize),
    /// It runs in the stub of this slot, once the handler returns, with these arguments.
    Run(usize, [usize; 6]),
}

/// Serves a trap. The interrupted code continues as if its system call had returned, or in the gate.
pub fn on_trap(live: &'static Live, info: &Siginfo, uc: &mut Ucontext) {
    signals::count_trap(live);
    if gate::is_back(info.addr) {
        return parts::go_on(live, uc);
    }
    let nr = info.syscall as usize;
    let args = parts::arguments(&uc.gregs);
    if gate::is_hook(info.addr) {
        uc.gregs.rax = from_library(live, nr % gate::NUMBERS, args) as u64;
        return;
    }
    let value = match nr {
        nr::FORK => return fork(live, nr, args, uc),
        nr::CLONE if args[0] & CLONE_VM == 0 => return fork(live, nr, args, uc),
        nr::VFORK | nr::CLONE => return foreign::clone(live, nr, args, uc),
        nr::EXECVE | nr::EXECVEAT => return exec::exec(live, nr, args, uc),
        nr::EXIT => end_thread(live, args[0], uc),
        nr::EXIT_GROUP => {
            if live.is_own_process() {
                live.contexts.with(|_| budget::leave(live));
            }
            os::exit_group(args[0] as i32)
        }
        nr::SIGALTSTACK => sigaltstack(live, args, uc),
        nr::RT_SIGACTION => sigaction(live, args),
        nr::RT_SIGPROCMASK => sigprocmask(live, args, uc),
        // Our descriptors are where a program that counts upwards never comes; one that names them finds none.
        nr::CLOSE | nr::DUP2 | nr::DUP3 if is_our_fd(live, args[usize::from(nr != nr::CLOSE)]) => EBADF,
        nr::CLOSE_RANGE => close_range(live, args),
        nr::PROCESS_MADVISE => match process_madvise(live, args) {
            Some(value) => value,
            None => return assisted(live, nr, args, assist::window_bytes(live), uc),
        },
        // A process that only shares the memory has limits of its own, which the kernel keeps.
        nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64 if live.is_own_process() => {
            match live.with(move |cx| rlimits::call(live, cx, nr, args)) {
                Some(value) => value,
                None => return assisted(live, nr, args, assist::window_bytes(live), uc),
            }
        }
        _ if live.is_own_process() && rights::changes(nr, args[0]) => return rights::call(live, nr, args, uc),
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 | nr::RECVFROM | nr::SENDTO => {
            return transfer(live, nr, args, uc);
        }
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV | nr::PREADV2 | nr::PWRITEV2 => {
            return vector(live, nr, args, uc);
        }
        nr::SENDMSG | nr::RECVMSG
            if args[2] & NOT_A_STREAM == 0 && is_long_message(live, args[1]) && kind(args[0]) == Kind::Stream =>
        {
            return parts::start(live, Part::Message, nr, args, &mut uc.gregs);
        }
        nr::MMAP if !live.is_own_process() && args[3] & os::MAP_ANONYMOUS == 0 => {
            // The background thread has other descriptors than a process that shares only the memory.
            -(Errno::EAGAIN.0 as isize)
        }
        _ => return assisted(live, nr, args, assist::window_bytes(live), uc),
    };
    uc.gregs.rax = value as u64;
}

const CLONE_VM: usize = 0x100;

/// A call of the preload library's functions.
fn from_library(live: &'static Live, nr: usize, args: [usize; 6]) -> isize {
    live.stat(Stat::CallsWrapped, 1);
    if nr == gate::KEEP {
        let kept = live.with(move |cx| assist::keep(live, cx, args[0], args[1]));
        return if kept { 0 } else { -(Errno::ENOMEM.0 as isize) };
    }
    match live.with(move |cx| memory::call(nr, args, cx)) {
        Some(value) => value,
        // SAFETY: the program's own call.
        None => unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) },
    }
}

fn fork(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let thread = threads::current(live, uc);
    let pid = fork::fork(live, nr, args, thread);
    uc.gregs.rax = pid as u64;
    if pid == 0 && nr == nr::CLONE && args[1] != 0 {
        uc.gregs.rsp = args[1] as u64;
    }
}

/// A transfer of one buffer: whole, in pieces where it is a file, in parts where it is a stream.
fn transfer(live: &'static Live, nr: usize, mut args: [usize; 6], uc: &mut Ucontext) {
    let [fd, at, len, flags, ..] = args;
    // Asked once: it moves with the limit, and what is whole by one answer would be cut by another.
    let window_bytes = assist::window_bytes(live);
    let long = overlaps_arena(at, len) && len > window_bytes;
    // What the kernel refuses it must see as it is.
    if !long || (len as isize) < 0 || at.checked_add(len).is_none_or(|end| end > TASK_SIZE) {
        return assisted(live, nr, args, window_bytes, uc);
    }
    args[2] = len.min(MAX_RW_COUNT);
    const MSG_WAITALL: usize = 0x100;
    match (nr, kind(fd)) {
        (nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64, Kind::File) => {
            uc.gregs.rax = pieces(live, nr, args) as u64;
        }
        (nr::WRITE, Kind::Pipe | Kind::Stream) => parts::start(live, Part::Stream, nr, args, &mut uc.gregs),
        (nr::SENDTO, Kind::Stream) if flags & NOT_A_STREAM == 0 => {
            parts::start(live, Part::Stream, nr, args, &mut uc.gregs);
        }
        (nr::RECVFROM, Kind::Stream) if flags & (MSG_WAITALL | NOT_A_STREAM) == MSG_WAITALL => {
            parts::start(live, Part::Stream, nr, args, &mut uc.gregs);
        }
        (_, Kind::Messages) => assisted(live, nr, args, DATAGRAM_BYTES, uc),
        _ => assisted(live, nr, args, window_bytes, uc),
    }
}

/// A transfer of several buffers: as [`transfer`].
fn vector(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let window_bytes = assist::window_bytes(live);
    if !is_long_vector(live, args[1], args[2], window_bytes) {
        return assisted(live, nr, args, window_bytes, uc);
    }
    match (nr, kind(args[0])) {
        (_, Kind::File) => uc.gregs.rax = pieces(live, nr, args) as u64,
        (_, Kind::Messages) => assisted(live, nr, args, DATAGRAM_BYTES, uc),
        (nr::READV | nr::WRITEV, _) => parts::start(live, Part::Vector, nr, args, &mut uc.gregs),
        _ => assisted(live, nr, args, window_bytes, uc),
    }
}

/// Serves a call in the runtime, or has it run in its stub once all that its arguments point to is resident; of a transfer, as
/// much as `window_bytes`.
pub fn assisted(live: &'static Live, nr: usize, args: [usize; 6], window_bytes: usize, uc: &mut Ucontext) {
    let outcome = live.with(move |cx| serve(live, cx, nr, args, window_bytes));
    if let Outcome::Run(slot, _) = outcome
        // SAFETY: the slot is this call's.
        && let Some(mask) = unsafe { (*gate::state(slot)).waits_with }
        && let Some(thread) = threads::current(live, uc)
    {
        // A signal that is held back may be what the call waits for.
        thread.let_come(mask);
    }
    match outcome {
        Outcome::Done(value) => uc.gregs.rax = value as u64,
        Outcome::Run(slot, args) => parts::run(slot, Part::Whole, nr, args, &mut uc.gregs),
    }
}

fn serve(live: &'static Live, cx: &mut Cx, nr: usize, mut args: [usize; 6], window_bytes: usize) -> Outcome {
    if let Some(value) = memory::call(nr, args, cx) {
        return Outcome::Done(value);
    }
    let mut pins = CallPins::new(live);
    // SAFETY: the slot is this call's.
    unsafe { (*gate::state(pins.slot())).waits_with = None };
    if nr == nr::IOCTL && args[1] == 0x8912 {
        // SIOCGIFCONF: struct ifconf has a length and a pointer.
        let mut ifconf = [0u8; 16];
        if pins.pin(cx, args[2], 16).is_ok() && assist::peek(args[2], &mut ifconf) {
            let _ = pins.pin(cx, word(&ifconf, 8), (word(&ifconf, 0) as u32 as usize).min(1 << 20));
        }
        return Outcome::Run(pins.slot(), args);
    }
    if let Err(fault) = pins.arguments(cx, calls::find(nr), &mut args, window_bytes) {
        pins.release();
        return Outcome::Done(match fault {
            Fault::Corrupt | Fault::Unreadable => {
                live.warn(
                    b"warning: a system call's memory cannot be read back from the store: the call fails with EIO",
                );
                EIO
            }
            Fault::NoMemory => ENOMEM,
            Fault::Done | Fault::NotMapped => EFAULT,
        });
    }
    if let Some(at) = mask_argument(nr) {
        replace_mask(&mut pins, cx, nr, at, &mut args);
    }
    Outcome::Run(pins.slot(), args)
}

/// Eight bytes of a structure, as a number.
pub fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Reads a structure of the program's.
pub fn read<const N: usize>(live: &'static Live, at: usize) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    if overlaps_arena(at, N) {
        return live.with(move |cx| assist::copy_in(live, cx, at, &mut bytes).then_some(bytes));
    }
    assist::peek(at, &mut bytes).then_some(bytes)
}

/// Writes a structure of the program's.
fn write<const N: usize>(live: &'static Live, at: usize, bytes: [u8; N]) -> bool {
    if !overlaps_arena(at, N) {
        return assist::poke(at, &bytes);
    }
    live.with(move |cx| assist::copy_out(live, cx, at, &bytes))
}

/// Whether an array of `struct iovec` names more managed memory than `most_bytes`. One that the kernel will refuse does
/// not.
fn is_long_vector(live: &'static Live, vec: usize, count: usize, most_bytes: usize) -> bool {
    if count > assist::IOV_MAX {
        return false;
    }
    live.with(move |cx| {
        let mut bytes = 0usize;
        let right = assist::each_iovec(live, cx, vec, count, |base, len| {
            if overlaps_arena(base, len) {
                bytes = bytes.saturating_add(len);
            }
            (len as isize) >= 0 && base.checked_add(len).is_some_and(|end| end <= TASK_SIZE)
        });
        right && bytes > most_bytes
    })
}

fn is_long_message(live: &'static Live, at: usize) -> bool {
    read::<{ assist::MSGHDR_BYTES }>(live, at)
        .is_some_and(|header| is_long_vector(live, word(&header, 16), word(&header, 24), assist::window_bytes(live)))
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
fn replace_mask(pins: &mut CallPins<'_>, cx: &mut Cx, nr: usize, at: usize, args: &mut [usize; 6]) {
    // SAFETY: the slot is this call's until it returns.
    let state = unsafe { &mut *gate::state(pins.slot()) };
    let mut from = args[at];
    let mut pair = [0u8; 16];
    if nr == nr::PSELECT6 {
        if from == 0 || !assist::peek(from, &mut pair) {
            return;
        }
        from = word(&pair, 0);
    }
    let mut mask = [0u8; 8];
    if from == 0 || pins.pin(cx, from, mask.len()).is_err() || !assist::peek(from, &mut mask) {
        return;
    }
    let mask = u64::from_le_bytes(mask);
    state.waits_with = Some(mask);
    if mask & OURS == 0 {
        return;
    }
    state.mask = mask & !OURS;
    let place = &raw const state.mask as usize;
    args[at] = place;
    if nr == nr::PSELECT6 {
        state.pair = [place, word(&pair, 8)];
        args[at] = state.pair.as_ptr() as usize;
    }
}

fn sigaction(live: &'static Live, [signal, new, old, size, ..]: [usize; 6]) -> isize {
    const BYTES: usize = core::mem::size_of::<KernelSigaction>();
    if size != 8 {
        return EINVAL;
    }
    let action = match new {
        0 => None,
        at => match read::<BYTES>(live, at) {
            // SAFETY: plain old data of that size.
            Some(bytes) => Some(unsafe { core::mem::transmute::<[u8; BYTES], KernelSigaction>(bytes) }),
            None => return EFAULT,
        },
    };
    match deliver::change(live, signal as i32, action.as_ref(), !live.is_own_process()) {
        Err(e) => -(e.0 as isize),
        Ok(before) if old != 0 => {
            // SAFETY: plain old data of that size.
            let bytes = unsafe { core::mem::transmute::<KernelSigaction, [u8; BYTES]>(before) };
            if write(live, old, bytes) { 0 } else { EFAULT }
        }
        Ok(_) => 0,
    }
}

fn sigprocmask(live: &'static Live, [how, new, old, size, ..]: [usize; 6], uc: &mut Ucontext) -> isize {
    if size != 8 {
        return EINVAL;
    }
    let thread = threads::current(live, uc);
    let before = uc.sigmask | thread.map_or(0, Thread::pretended);
    let mut after = before;
    if new != 0 {
        let Some(set) = read::<8>(live, new).map(u64::from_le_bytes) else { return EFAULT };
        after = match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return EINVAL,
        };
    }
    const SIGKILL: u64 = bit(9);
    const SIGSTOP: u64 = bit(19);
    uc.sigmask = after & !(OURS | SIGKILL | SIGSTOP);
    if let Some(thread) = thread {
        thread.set_pretended(after);
    }
    if old != 0 && !write(live, old, before.to_le_bytes()) {
        return EFAULT;
    }
    0
}

/// `sigaltstack`: the stack that the program believes in. The kernel's is always ours.
fn sigaltstack(live: &'static Live, [new, old, ..]: [usize; 6], uc: &mut Ucontext) -> isize {
    const BYTES: usize = core::mem::size_of::<Stack>();
    let stack = match new {
        0 => None,
        at => match read::<BYTES>(live, at) {
            Some(bytes) => Some(Stack { sp: word(&bytes, 0), flags: word(&bytes, 8) as i32, size: word(&bytes, 16) }),
            None => return EFAULT,
        },
    };
    let Some(thread) = threads::current(live, uc) else { return -(Errno::ENOMEM.0 as isize) };
    match threads::change_stack(thread, stack.as_ref(), uc.gregs.rsp as usize) {
        Err(e) => -(e.0 as isize),
        Ok(before) if old != 0 => {
            let mut bytes = [0u8; BYTES];
            bytes[..8].copy_from_slice(&before.sp.to_le_bytes());
            bytes[8..12].copy_from_slice(&before.flags.to_le_bytes());
            bytes[16..].copy_from_slice(&before.size.to_le_bytes());
            if write(live, old, bytes) { 0 } else { EFAULT }
        }
        Ok(_) => 0,
    }
}

/// With what status a thread of the program ended last.
static LAST_STATUS: core::sync::atomic::AtomicI32 = core::sync::atomic::AtomicI32::new(0);

/// The status that a process ends with whose last thread ends by itself.
pub fn last_status() -> i32 {
    LAST_STATUS.load(core::sync::atomic::Ordering::Acquire)
}

/// A thread ends: its place is free once it is gone.
fn end_thread(live: &'static Live, status: usize, uc: &mut Ucontext) -> ! {
    LAST_STATUS.store(status as i32, core::sync::atomic::Ordering::Release);
    if live.is_own_process() {
        if let Some(thread) = threads::current(live, uc) {
            gate::end_thread(&thread.tid, status);
        }
    }
    os::exit_thread(status as i32)
}

fn is_our_fd(live: &Live, fd: usize) -> bool {
    live.is_ours(fd as u32 as i32)
}

/// `close_range`, which passes over our descriptors.
fn close_range(live: &Live, [first, last, flags, ..]: [usize; 6]) -> isize {
    let (first, last) = (first as u32 as usize, last as u32 as usize);
    let close = |first: usize, last: usize| {
        // SAFETY: closes the program's descriptors, as it asked.
        unsafe { outswap_sys::syscall3(nr::CLOSE_RANGE, first, last, flags) }
    };
    if first > last || last < live.fds.0 as usize {
        return close(first, last);
    }
    let (mut from, mut result) = (first, 0);
    for ours in (live.fds.0..=live.fds.1).map(|fd| fd as usize).filter(|fd| (first..=last).contains(fd)) {
        if live.is_ours(ours as i32) {
            if from < ours {
                result = result.min(close(from, ours - 1));
            }
            from = ours + 1;
        }
    }
    if from <= last { result.min(close(from, last)) } else { result }
}

/// Advice for managed memory of this very process must not go past the runtime. `None` where the kernel is to do it.
fn process_madvise(live: &'static Live, args: [usize; 6]) -> Option<isize> {
    let [pidfd, vec, count, advice, flags, _] = args;
    let mut total = 0isize;
    if flags != 0 {
        return Some(EINVAL);
    }
    const F_GETFD: usize = 1;
    if os::fcntl(pidfd as i32, F_GETFD, 0).is_err() {
        return Some(EBADF);
    }
    for i in 0..count.min(assist::IOV_MAX) {
        let Some(iov) = read::<16>(live, vec + i * 16) else { return Some(EFAULT) };
        let (base, len) = (word(&iov, 0), word(&iov, 8));
        if !overlaps_arena(base, len) {
            return None;
        }
        // Only advice that is known to keep content may come from another process.
        if !matches!(advice, os::MADV_COLD | os::MADV_PAGEOUT | os::MADV_WILLNEED) {
            return Some(EPERM);
        }
        let value = live.with(move |cx| memory::madvise(live, cx, base, len, advice));
        if value < 0 {
            return Some(if total > 0 { total } else { value });
        }
        total += len as isize;
    }
    Some(total)
}

const S_IFIFO: u32 = 0o010000;
const S_IFCHR: u32 = 0o020000;
const S_IFBLK: u32 = 0o060000;
const S_IFREG: u32 = 0o100000;
const S_IFSOCK: u32 = 0o140000;

/// Type of what a descriptor is open on, and its major number where that is a device.
fn file_type(fd: usize) -> (u32, u32) {
    const S_IFMT: u32 = 0o170000;
    let mut stat = [0u32; 36];
    // SAFETY: the buffer has the size of `struct stat`; the mode is at byte 24, the device at byte 40.
    let ok = unsafe { outswap_sys::syscall2(nr::FSTAT, fd, stat.as_mut_ptr() as usize) } == 0;
    if ok { (stat[6] & S_IFMT, stat[10] >> 8 & 0xfff) } else { (0, 0) }
}

/// What a descriptor is open on, as far as transfers differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file, or a device like one (`/dev/zero`), whose transfers are never cut short.
    File,
    Pipe,
    /// A socket whose bytes follow each other.
    Stream,
    /// A socket whose messages are whole or nothing.
    Messages,
    Other,
}

fn kind(fd: usize) -> Kind {
    const MEM_MAJOR: u32 = 1;
    match file_type(fd) {
        (S_IFREG | S_IFBLK, _) | (S_IFCHR, MEM_MAJOR) => Kind::File,
        (S_IFIFO, _) => Kind::Pipe,
        (S_IFSOCK, _) if is_stream(fd) => Kind::Stream,
        (S_IFSOCK, _) => Kind::Messages,
        _ => Kind::Other,
    }
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

/// A transfer between a file and more memory than may be resident at once. As in the kernel, no signal interrupts it.
fn pieces(live: &'static Live, nr: usize, args: [usize; 6]) -> isize {
    let [fd, buf, len, offset, _, flags] = args;
    let one = match nr {
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 => return piece(live, nr, fd, buf, len, Some(offset), false),
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
    if len > assist::IOV_MAX {
        return EINVAL;
    }
    let mut done = 0usize;
    for i in 0..len {
        let Some(iov) = read::<16>(live, buf + i * 16) else { return if done > 0 { done as isize } else { EFAULT } };
        let (base, len) = (word(&iov, 0), word(&iov, 8).min(MAX_RW_COUNT - done));
        let value = piece(live, one.0, fd, base, len, one.1.then_some(offset + done), done > 0);
        if value < 0 {
            return if done > 0 { done as isize } else { value };
        }
        done += value as usize;
        if value as usize != word(&iov, 8) {
            break;
        }
    }
    done as isize
}

/// One buffer of [`pieces`]; `goes_on`: others came before it.
fn piece(
    live: &'static Live,
    nr: usize,
    fd: usize,
    buf: usize,
    len: usize,
    offset: Option<usize>,
    goes_on: bool,
) -> isize {
    let window = assist::window_bytes(live);
    let mut done = 0;
    while done < len {
        let (at, part) = (buf + done, window.min(len - done));
        let pinned = live.with(move |cx| {
            let mut pins = CallPins::new(live);
            match pins.pin(cx, at, part) {
                Ok(()) => Some(pins.slot()),
                Err(_) => {
                    pins.release();
                    None
                }
            }
        });
        let Some(slot) = pinned else { return if done > 0 { done as isize } else { EIO } };
        // The file may be slow: nobody must wait for this thread meanwhile.
        live.contexts.assert_outside();
        // SAFETY: the program's own call, on a part of its buffer.
        let call = || unsafe { gate::call(nr, fd, at, part, offset.map_or(0, |o| o + done), 0, 0) };
        // The kernel cuts a write at the limit of file size, and raises a signal only where nothing of it fits.
        let is_cut = |value: &isize| *value == -(Errno::EFBIG.0 as isize);
        let value = if goes_on || done > 0 { without_sigxfsz(call, is_cut) } else { call() };
        live.pager.pins.release(slot);
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
