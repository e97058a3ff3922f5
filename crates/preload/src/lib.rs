//! The preload library: it sets the engine up before the program runs, and stands in front of the C library's memory
//! functions, whose fresh mappings no filter can recognise.
#![cfg_attr(not(test), no_std)]

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_engine::control::Stat;
use outswap_engine::layout::overlaps_arena;
use outswap_engine::{init, memory, rlimits, signals};
use outswap_sys::{Errno, nr, os, signal};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn dlsym(handle: *mut c_void, name: *const u8) -> *mut c_void;
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(at: *mut c_void);
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = {
    extern "C" fn start() {
        init::ensure();
    }
    start
};

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    struct Text {
        bytes: [u8; 200],
        len: usize,
    }
    impl Write for Text {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let n = s.len().min(self.bytes.len() - self.len);
            self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
            self.len += n;
            Ok(())
        }
    }
    let mut text = Text { bytes: [0; 200], len: 0 };
    let place = info.location().map_or(("?", 0), |l| (l.file(), l.line()));
    let _ = write!(
        text,
        "error: internal error, the program is ended to keep its data safe: {}:{}: {}",
        place.0,
        place.1,
        info.message()
    );
    if let Some(live) = outswap_engine::live::try_live() {
        live.control.post(&text.bytes[..text.len]);
    }
    const SIGABRT: i32 = 6;
    // SAFETY: the default disposition runs no code.
    let _ = unsafe { signal::sigaction(SIGABRT, Some(&signal::KernelSigaction::default()), None) };
    signal::set_mask(!signal::bit(SIGABRT));
    let _ = os::tgkill(os::getpid(), os::gettid(), SIGABRT);
    os::exit_group(134)
}

/// Turns a raw result into what the C function returns.
fn finish(value: isize) -> isize {
    if (-4095..0).contains(&value) {
        // SAFETY: the C library gives each thread its errno.
        unsafe { *__errno_location() = -value as c_int };
        return -1;
    }
    value
}

/// Serves a memory call in the engine if it concerns managed memory, else passes it on.
fn memory_call(nr: usize, args: [usize; 6], concerns_us: bool) -> isize {
    if concerns_us && let Some(live) = init::ensure() {
        let mask = signal::set_mask(u64::MAX);
        let value = live.contexts.hold().run(|cx| memory::call(nr, args, cx));
        signal::set_mask(mask);
        if let Some(value) = value {
            live.stat(Stat::CallsWrapped, 1);
            return finish(value);
        }
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's own call.
    finish(unsafe { outswap_sys::syscall6(nr, a, b, c, d, e, f) })
}

/// `mmap(3)`.
///
/// # Safety
/// As `mmap(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: c_long) -> isize {
    let fixed = flags as usize & (os::MAP_FIXED | os::MAP_FIXED_NOREPLACE) != 0;
    let anonymous = flags as usize & os::MAP_ANONYMOUS != 0;
    let ours =
        if fixed { overlaps_arena(addr, len) } else { anonymous || rlimits::is_limited() || overlaps_arena(addr, 1) };
    memory_call(nr::MMAP, [addr, len, prot as usize, flags as usize, fd as usize, offset as usize], ours)
}

/// `mmap64`.
///
/// # Safety
/// As `mmap(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> isize {
    // SAFETY: the same function.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

/// `munmap(3)`.
///
/// # Safety
/// As `munmap(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: usize, len: usize) -> c_int {
    memory_call(nr::MUNMAP, [addr, len, 0, 0, 0, 0], overlaps_arena(addr, len)) as c_int
}

/// `mprotect(3)`.
///
/// # Safety
/// As `mprotect(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: usize, len: usize, prot: c_int) -> c_int {
    memory_call(nr::MPROTECT, [addr, len, prot as usize, 0, 0, 0], overlaps_arena(addr, len)) as c_int
}

/// `madvise(3)`.
///
/// # Safety
/// As `madvise(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    memory_call(nr::MADVISE, [addr, len, advice as usize, 0, 0, 0], overlaps_arena(addr, len)) as c_int
}

/// `mremap(2)`. The fifth argument is only read by the kernel's rules, so passing whatever stands there is harmless.
///
/// # Safety
/// As `mremap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(addr: usize, old: usize, new: usize, flags: c_int, to: usize) -> isize {
    memory_call(nr::MREMAP, [addr, old, new, flags as usize, to, 0], overlaps_arena(addr, old.max(1)))
}

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate = unsafe extern "C" fn(*mut c_void, *const c_void, Start, *mut c_void) -> c_int;

struct Thread {
    start: Start,
    arg: *mut c_void,
}

/// The key whose destructor gives a thread's alternate stack back, plus 1.
static KEY: AtomicU32 = AtomicU32::new(0);
static NEXT_PTHREAD_CREATE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn give_back(stack: *mut c_void) {
    signals::give_altstack(stack as usize);
}

unsafe extern "C" fn run(thread: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below passed a `Thread` made by it, to this thread alone.
    let (start, arg) = unsafe {
        let thread = thread.cast::<Thread>();
        let copy = ((*thread).start, (*thread).arg);
        free(thread.cast());
        copy
    };
    if let Ok(Some(stack)) = signals::take_altstack() {
        // SAFETY: the key exists before any thread runs this.
        unsafe { pthread_setspecific(KEY.load(Acquire) - 1, stack as *const c_void) };
    }
    // SAFETY: what the program asked for.
    unsafe { start(arg) }
}

/// `pthread_create(3)`: every thread gets an alternate stack, so that a fault on a stack in managed memory can be answered.
///
/// # Safety
/// As `pthread_create(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attr: *const c_void,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    let mut next = NEXT_PTHREAD_CREATE.load(Acquire);
    if next == 0 {
        const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
        // SAFETY: a NUL-terminated name.
        next = unsafe { dlsym(RTLD_NEXT, c"pthread_create".as_ptr().cast()) } as usize;
        if next == 0 {
            return Errno::EAGAIN.0;
        }
        NEXT_PTHREAD_CREATE.store(next, Release);
    }
    // SAFETY: that is the C library's function.
    let next: PthreadCreate = unsafe { core::mem::transmute(next) };
    if init::ensure().is_none() {
        // SAFETY: the program's own call.
        return unsafe { next(thread, attr, start, arg) };
    }
    if KEY.load(Acquire) == 0 {
        let mut key = 0;
        // SAFETY: a place for the key and a destructor that stays loaded.
        if unsafe { pthread_key_create(&mut key, Some(give_back)) } == 0 {
            // Two first threads may both make a key; the one that is kept works for both.
            let _ = KEY.compare_exchange(0, key + 1, AcqRel, Relaxed);
        }
    }
    // SAFETY: memory for one `Thread`, freed by the new thread, or here if there is none.
    unsafe {
        let info = malloc(core::mem::size_of::<Thread>()).cast::<Thread>();
        if info.is_null() || KEY.load(Acquire) == 0 {
            return Errno::EAGAIN.0;
        }
        info.write(Thread { start, arg });
        let result = next(thread, attr, run, info.cast());
        if result != 0 {
            free(info.cast());
        }
        result
    }
}
