//! Functions in front of those of the C library that make the calls which programs make most: where all that such a call names is
//! in memory, it needs no trap ([`outswap_runtime::direct`]).
use crate::{__errno_location, finish, next_function};
use core::ffi::{CStr, c_int};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use outswap_runtime::direct;
use outswap_runtime::redirect::Code;
use outswap_runtime::segments::{PT_LOAD, each_object};
use outswap_runtime::{sigaction, sigmask, sites};
use outswap_sys::{Errno, nr};

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// The segment that an address lies in: empty where that is not known.
fn segment_of(address: usize) -> Range<usize> {
    let mut found = 0..0;
    each_object(|base, _, segments| {
        let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let mut ranges = loaded.map(|segment| {
            let start = base.wrapping_add(segment.at as usize);
            start..start.wrapping_add(segment.bytes as usize)
        });
        let range = ranges.find(|range| range.contains(&address));
        found = range.clone().unwrap_or_default();
        range.is_some()
    });
    found
}

/// Where the C library's code lies: empty where that is not known.
pub fn c_library_code() -> Range<usize> {
    static RANGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let [start, end] = RANGE.each_ref().map(|place| place.load(Acquire));
    if end > 0 {
        return start..end;
    }
    let Range { start, end } = segment_of(__errno_location as *const () as usize);
    RANGE[0].store(start, Relaxed);
    RANGE[1].store(end, Release);
    start..end
}

/// Of an address of a function: it is somebody else's than the C library's, who must see all calls.
const FOREIGN: usize = 1 << 63;
/// In place of an address: there is no such function.
const NOWHERE: usize = 1;
/// The same: it is ours, to which that of the C library jumps.
const HERE: usize = 2;

type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// A function of the C library that one of ours stands in front of.
struct Behind {
    name: &'static CStr,
    /// Its address, perhaps with [`FOREIGN`], or [`NOWHERE`]; 0 as long as it was not looked for.
    address: AtomicUsize,
}

/// Finds a function. `None` while another is looked for: C libraries before 2.34 allocate memory for that, and an allocator that begins makes
/// calls of its own.
fn find(name: &CStr) -> Option<usize> {
    static IS_BUSY: AtomicBool = AtomicBool::new(false);
    if IS_BUSY.swap(true, Acquire) {
        return None;
    }
    let address = next_function(name);
    IS_BUSY.store(false, Release);
    Some(address)
}

impl Behind {
    fn find(&self) -> usize {
        let address = match find(self.name) {
            None => return NOWHERE,
            Some(0) => NOWHERE,
            Some(address) if c_library_code().contains(&address) => address,
            Some(address) => address | FOREIGN,
        };
        self.address.store(address, Relaxed);
        address
    }

    /// Whether the C library itself calls it often, with memory of the program's.
    fn is_used_inside(&self) -> bool {
        [c"read", c"write", c"getdents64"].contains(&self.name)
    }

    /// Lets the C library's function jump to ours.
    fn redirect(&self, code: &Code, ours: usize) {
        let function = self.get();
        if function == NOWHERE || function == HERE || function & FOREIGN != 0 {
            return;
        }
        self.address.store(HERE, Relaxed);
        // SAFETY: a function of the C library's that is in use by nobody else, since the process has one thread; ours does not call it where
        // it is here.
        if !unsafe { code.redirect(function, ours) } {
            self.address.store(function, Relaxed);
        }
    }

    fn get(&self) -> usize {
        match self.address.load(Relaxed) {
            0 => self.find(),
            address => address,
        }
    }
}

/// A call of the kernel's: its number, its arguments (the others are 0), and whether a thread can be cancelled in it.
struct Made<const N: usize>(usize, [usize; N], Cancel);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cancel {
    /// The function is a point at which a thread can be cancelled, also while it waits.
    Point,
    Never,
}

/// Makes a call, in which the thread may have to be cancelled, and gives what the C library's function does. One that is alone can be cancelled
/// by itself, before; one that is not, also while it waits.
fn with_cancel(cancel: Cancel, alone: bool, make: impl FnOnce() -> isize) -> isize {
    const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;
    if cancel == Cancel::Never {
        return finish(make());
    }
    let mut old = 0;
    // SAFETY: no more than the place for the old type.
    unsafe {
        if alone {
            pthread_testcancel();
            return finish(make());
        }
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &mut old);
        let value = make();
        pthread_setcanceltype(old, core::ptr::null_mut());
        finish(value)
    }
}

/// Makes a call directly where it can be, else with the function behind ours. `made`: what the C library's function asks of the kernel, if it
/// asks once; `args`: its own arguments.
unsafe fn call<const N: usize>(behind: &Behind, made: Option<Made<N>>, args: [usize; 6]) -> isize {
    let function = behind.get();
    if function & FOREIGN == 0
        && let Some(Made(nr, counted, cancel)) = made
    {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&counted);
        if let Some(direct) = direct::prepare(nr, all) {
            let alone = direct.alone;
            // SAFETY: the program's own call.
            return with_cancel(cancel, alone, || unsafe { direct.make() });
        }
        if function == NOWHERE || function == HERE {
            // SAFETY: the program's own call.
            return with_cancel(cancel, direct::is_alone(), || unsafe { direct::call(nr, all) });
        }
    }
    if function == NOWHERE || function == HERE {
        return finish(-(Errno::EINVAL.0 as isize));
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: that is a function of this name, and the program's own call; arguments that it does not have are not looked at.
    unsafe { core::mem::transmute::<usize, Function>(function & !FOREIGN)(a, b, c, d, e, f) }
}

const AT_FDCWD: usize = -100isize as usize;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;

/// The mode of a file that is to be opened: an argument that is only there where a file may be made.
fn mode(flags: usize, mode: usize) -> usize {
    const O_CREAT: usize = 0o100;
    const O_TMPFILE: usize = 0o20_000_000;
    if flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE { mode as u32 as usize } else { 0 }
}

/// A call that opens a file, at which a thread can be cancelled.
fn opens(directory: usize, path: usize, flags: usize, given: usize) -> Option<Made<4>> {
    Some(Made(nr::OPENAT, [directory, path, flags as u32 as usize, mode(flags, given)], Cancel::Point))
}

/// What a function that older C libraries have asks of the kernel: those themselves another call than later ones, which programs that were built
/// with the older ones come to. `None` where the version of `struct stat` is another one than there is.
fn older(of_link: bool, version: usize, path: usize, to: usize) -> Option<Made<4>> {
    if version as u32 > 1 {
        return None;
    }
    if behind::stat.get() == NOWHERE {
        return never(if of_link { nr::LSTAT } else { nr::STAT }, [path, to, 0, 0]);
    }
    never(nr::NEWFSTATAT, [AT_FDCWD, path, to, if of_link { AT_SYMLINK_NOFOLLOW } else { 0 }])
}

fn point<const N: usize>(nr: usize, args: [usize; N]) -> Option<Made<N>> {
    Some(Made(nr, args, Cancel::Point))
}

fn never<const N: usize>(nr: usize, args: [usize; N]) -> Option<Made<N>> {
    Some(Made(nr, args, Cancel::Never))
}

/// Until the C library 2.34, functions for threads were a library of their own.
fn say_where_sites_are() {
    let library = c_library_code();
    let of_threads = pthread_setcanceltype as *const () as usize;
    let of_threads = if library.contains(&of_threads) { 0..0 } else { segment_of(of_threads) };
    // SAFETY: the linker's lists say that it is code; nobody unloads these libraries.
    unsafe { sites::know(library, of_threads) };
}

/// The same of what `sigaction` and `sigprocmask` call.
fn take_signals_over(code: &Code) {
    let library = c_library_code();
    let [sigaction, sigmask] = [c"sigaction", c"pthread_sigmask"].map(next_function);
    // SAFETY: the C library's code is there to be read. The process has one thread, and ours does not call what is found.
    unsafe {
        if library.contains(&sigaction)
            && let Some(function) = sigaction::find(sigaction, library.clone())
        {
            code.redirect(function, serve_sigaction as *const () as usize);
        }
        if sigmask::is_in(sigmask, library) {
            code.redirect(sigmask, serve_sigmask as *const () as usize);
        }
    }
}

/// `pthread_sigmask` gives the error itself.
unsafe extern "C" fn serve_sigmask(how: c_int, new: *const u64, old: *mut u64) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { sigmask::serve(how, new, old) }.map_or_else(|e| e.0, |()| 0)
}

unsafe extern "C" fn serve_sigaction(
    signal: c_int,
    new: *const sigaction::Action,
    old: *mut sigaction::Action,
) -> c_int {
    // SAFETY: the caller vouches.
    finish(unsafe { sigaction::serve(signal, new, old) }.map_or_else(|e| -(e.0 as isize), |()| 0)) as c_int
}

macro_rules! functions {
    ($($name:ident $made:expr;)+) => {
        /// Finds what stands behind ours, while that may still take locks: later, a handler may make the first such call.
        pub fn find_all() {
            $(behind::$name.find();)+
            find_syscall();
        }

        /// Lets callers inside of the C library come here, too. To be called once the process is set up.
        pub fn take_over() {
            let Some(code) = Code::open() else { return };
            $(if behind::$name.is_used_inside() {
                behind::$name.redirect(&code, ours::$name as *const () as usize);
            })+
            take_signals_over(&code);
            say_where_sites_are();
        }

        #[allow(non_upper_case_globals)]
        mod behind {
            use super::{AtomicUsize, Behind, CStr};
            $(pub static $name: Behind = Behind {
                name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                address: AtomicUsize::new(0),
            };)+
        }

        /// Our functions. The names that others see may be somebody else's: the program's own.
        mod ours {
            #[allow(clippy::wildcard_imports)]
            use super::*;
            $(pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
                let args = [a, b, c, d, e, f];
                let made: fn([usize; 6]) -> _ = $made;
                // SAFETY: the caller vouches.
                unsafe { call(&behind::$name, made(args), args) }
            })+
        }

        $(
            /// The function of this name of the C library. One that is somebody else's finds registers and stack as its caller left them: it may
            /// have other arguments.
            ///
            /// # Safety
            /// As that function.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "mov r11, [rip + {behind} + {address}]",
                    "test r11, r11",
                    "jns {ours}",
                    "btr r11, {foreign}",
                    "jmp r11",
                    ".cfi_endproc",
                    behind = sym behind::$name,
                    address = const offset_of!(Behind, address),
                    foreign = const FOREIGN.trailing_zeros(),
                    ours = sym ours::$name,
                )
            }
        )+
    };
}

// Name, and of its arguments the call that the C library's function makes with them.
functions! {
    read |[fd, to, len, ..]| point(nr::READ, [fd, to, len]);
    write |[fd, from, len, ..]| point(nr::WRITE, [fd, from, len]);
    pread |[fd, to, len, at, ..]| point(nr::PREAD64, [fd, to, len, at]);
    pread64 |[fd, to, len, at, ..]| point(nr::PREAD64, [fd, to, len, at]);
    pwrite |[fd, from, len, at, ..]| point(nr::PWRITE64, [fd, from, len, at]);
    pwrite64 |[fd, from, len, at, ..]| point(nr::PWRITE64, [fd, from, len, at]);
    readv |[fd, to, count, ..]| point(nr::READV, [fd, to, count]);
    writev |[fd, from, count, ..]| point(nr::WRITEV, [fd, from, count]);
    recv |[fd, to, len, flags, ..]| point(nr::RECVFROM, [fd, to, len, flags]);
    send |[fd, from, len, flags, ..]| point(nr::SENDTO, [fd, from, len, flags]);
    recvfrom |args| point(nr::RECVFROM, args);
    sendto |args| point(nr::SENDTO, args);
    recvmsg |[fd, message, flags, ..]| point(nr::RECVMSG, [fd, message, flags]);
    sendmsg |[fd, message, flags, ..]| point(nr::SENDMSG, [fd, message, flags]);
    poll |[fds, count, timeout, ..]| point(nr::POLL, [fds, count, timeout]);
    epoll_wait |[fd, events, count, timeout, ..]| point(nr::EPOLL_WAIT, [fd, events, count, timeout]);
    epoll_ctl |[epoll, what, fd, event, ..]| never(nr::EPOLL_CTL, [epoll, what, fd, event]);
    getdents64 |[fd, to, len, ..]| never(nr::GETDENTS64, [fd, to, len.min(i32::MAX as usize)]);
    open |[path, flags, mode, ..]| opens(AT_FDCWD, path, flags, mode);
    open64 |[path, flags, mode, ..]| opens(AT_FDCWD, path, flags, mode);
    openat |[at, path, flags, mode, ..]| opens(at, path, flags, mode);
    openat64 |[at, path, flags, mode, ..]| opens(at, path, flags, mode);
    stat |[path, to, ..]| never(nr::NEWFSTATAT, [AT_FDCWD, path, to, 0]);
    stat64 |[path, to, ..]| never(nr::NEWFSTATAT, [AT_FDCWD, path, to, 0]);
    lstat |[path, to, ..]| never(nr::NEWFSTATAT, [AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW]);
    lstat64 |[path, to, ..]| never(nr::NEWFSTATAT, [AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW]);
    fstatat |[at, path, to, flags, ..]| never(nr::NEWFSTATAT, [at, path, to, flags]);
    fstatat64 |[at, path, to, flags, ..]| never(nr::NEWFSTATAT, [at, path, to, flags]);
    __xstat |[version, path, to, ..]| older(false, version, path, to);
    __xstat64 |[version, path, to, ..]| older(false, version, path, to);
    __lxstat |[version, path, to, ..]| older(true, version, path, to);
    __lxstat64 |[version, path, to, ..]| older(true, version, path, to);
    fstat |[fd, to, ..]| never(nr::FSTAT, [fd, to]);
    fstat64 |[fd, to, ..]| never(nr::FSTAT, [fd, to]);
    statx |[at, path, flags, mask, to, ..]| never(nr::STATX, [at, path, flags, mask, to]);
    access |[path, mode, ..]| never(nr::ACCESS, [path, mode]);
    readlink |[path, to, len, ..]| never(nr::READLINK, [path, to, len]);
    readlinkat |[at, path, to, len, ..]| never(nr::READLINKAT, [at, path, to, len]);
    unlink |[path, ..]| never(nr::UNLINK, [path]);
    unlinkat |[at, path, flags, ..]| never(nr::UNLINKAT, [at, path, flags]);
    rename |[from, to, ..]| never(nr::RENAME, [from, to]);
    mkdir |[path, mode, ..]| never(nr::MKDIR, [path, mode]);
}

/// The function behind ours, or 0 as long as it was not looked for; and whether it is somebody else's than the C library's, who must see all calls.
static NEXT_SYSCALL: AtomicUsize = AtomicUsize::new(0);
static SYSCALL_IS_FOREIGN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn find_syscall() -> usize {
    let Some(address) = find(c"syscall") else { return 0 };
    SYSCALL_IS_FOREIGN.store(usize::from(!c_library_code().contains(&address)), Relaxed);
    NEXT_SYSCALL.store(address, Relaxed);
    address
}

/// `syscall(SYS_futex, ...)`: many languages' locks are made of it. The seventh argument is read where it would be; the kernel looks at it where
/// it is one.
unsafe extern "C" fn syscall_futex(_: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the program's own call.
    finish(unsafe { sites::futex([a, b, c, d, e, f]) })
}

/// `syscall(2)`. Of all calls but that one, the C library's function finds registers and stack as its caller left them: some make a child that
/// goes on with them.
///
/// # Safety
/// As `syscall(2)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize) -> isize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "4:",
        "mov r11, [rip + {next}]",
        "test r11, r11",
        "jz 2f",
        "cmp rdi, {futex}",
        "jne 5f",
        "cmp qword ptr [rip + {is_foreign}], 0",
        "je {syscall_futex}",
        "5:",
        "jmp r11",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jnz 4b",
        "mov rax, -1",
        "ret",
        ".cfi_endproc",
        futex = const nr::FUTEX,
        next = sym NEXT_SYSCALL,
        is_foreign = sym SYSCALL_IS_FOREIGN,
        find = sym find_syscall,
        syscall_futex = sym syscall_futex,
    );
}
