//! The preload library: it sets the runtime up before the program runs, and stands in front of the C library's memory
//! functions, whose fresh mappings no filter can recognise.
#![cfg_attr(not(test), no_std)]

mod direct;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use outswap_runtime::layout::overlaps_managed;
use outswap_runtime::{gate, init, rlimits};
use outswap_sys::{Errno, nr, os};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn dlsym(handle: *mut c_void, name: *const u8) -> *mut c_void;
    fn pthread_mutexattr_getrobust(attr: *const c_void, robust: *mut c_int) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
        // A sanitizer that stands before the C library begins in a function of its own: where it wants addresses that are wanted here, it is
        // to have them already, so that this process is the one that does without.
        direct::c_library_code();
        // Before others are looked for: C libraries before 2.34 allocate memory for that, by which a heap would begin that is not managed.
        init::start(environment);
        direct::find_all();
        direct::take_over();
    }
    start
};

/// `ring` names the crate `alloc` for what it does not do here, so that there must be an allocator. There is none: nothing here may
/// allocate, and `scripts/check-symbols.sh` fails where the linker has found anything that would.
struct Nothing;

#[global_allocator]
static ALLOCATOR: Nothing = Nothing;

/// The mark of it in the library.
#[inline(never)]
fn allocates() -> *mut u8 {
    panic!("nothing may allocate here")
}

// SAFETY: no memory is given out.
unsafe impl core::alloc::GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        allocates()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {
        allocates();
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    use outswap_sys::signal;
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
    if let Some(live) = outswap_runtime::live::try_live() {
        live.control.post(&text.bytes[..text.len]);
    }
    const SIGABRT: i32 = 6;
    // SAFETY: the default disposition runs no code.
    let _ = unsafe { signal::sigaction(SIGABRT, Some(&signal::KernelSigaction::default()), None) };
    signal::set_mask(!signal::bit(SIGABRT));
    let _ = os::tgkill(os::getpid(), os::gettid(), SIGABRT);
    os::exit_group(134)
}

/// Nothing unwinds here, but code of `core` that is not optimised away, in builds without optimisation, names what would be called then.
#[cfg(all(debug_assertions, not(test)))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    panic!("nothing unwinds here")
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

/// Serves a memory call in the runtime if it concerns managed memory, else passes it on.
fn memory_call(nr: usize, args: [usize; 6], concerns_us: bool) -> isize {
    if concerns_us && init::ensure().is_some() {
        // SAFETY: the program's own call; the runtime is set up.
        return finish(unsafe { gate::trapped(nr, args) });
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
    // Shared memory that has a descriptor is counted.
    let shared = flags as usize & os::MAP_TYPE == os::MAP_SHARED;
    let ours = if fixed {
        overlaps_managed(addr, len)
    } else {
        anonymous || shared || rlimits::is_limited() || overlaps_managed(addr, 1)
    };
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
    memory_call(nr::MUNMAP, [addr, len, 0, 0, 0, 0], overlaps_managed(addr, len)) as c_int
}

/// `mprotect(3)`.
///
/// # Safety
/// As `mprotect(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: usize, len: usize, prot: c_int) -> c_int {
    memory_call(nr::MPROTECT, [addr, len, prot as usize, 0, 0, 0], overlaps_managed(addr, len)) as c_int
}

/// `madvise(3)`.
///
/// # Safety
/// As `madvise(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    memory_call(nr::MADVISE, [addr, len, advice as usize, 0, 0, 0], overlaps_managed(addr, len)) as c_int
}

/// `mremap(2)`. The fifth argument is only read by the kernel's rules, so passing whatever stands there is harmless.
///
/// # Safety
/// As `mremap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(addr: usize, old: usize, new: usize, flags: c_int, to: usize) -> isize {
    let is_moved_to = flags as usize & os::MREMAP_FIXED != 0 && overlaps_managed(to, new);
    let ours = is_moved_to || overlaps_managed(addr, old.max(1));
    memory_call(nr::MREMAP, [addr, old, new, flags as usize, to, 0], ours)
}

/// The function of a name that stands behind ours; 0 where there is none.
fn next_function(name: &CStr) -> usize {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    // SAFETY: a NUL-terminated name.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) as usize }
}

type MutexInit = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
static NEXT_MUTEX_INIT: AtomicUsize = AtomicUsize::new(0);

/// `pthread_mutex_init(3)`: a robust mutex is part of a list that the kernel walks by itself when its owner dies, also of a signal
/// that nobody can catch, so its memory must always be there.
///
/// # Safety
/// As `pthread_mutex_init(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, attr: *const c_void) -> c_int {
    const MUTEX_BYTES: usize = 40;
    const PTHREAD_MUTEX_ROBUST: c_int = 1;
    let mut next = NEXT_MUTEX_INIT.load(Acquire);
    if next == 0 {
        next = next_function(c"pthread_mutex_init");
        if next == 0 {
            return Errno::ENOSYS.0;
        }
        NEXT_MUTEX_INIT.store(next, Release);
    }
    // SAFETY: that is the C library's function.
    let next: MutexInit = unsafe { core::mem::transmute(next) };
    let mut robust = 0;
    // SAFETY: the program's own attributes.
    let known = !attr.is_null() && unsafe { pthread_mutexattr_getrobust(attr, &mut robust) } == 0;
    let at = mutex as usize;
    if known && robust == PTHREAD_MUTEX_ROBUST && overlaps_managed(at, MUTEX_BYTES) && init::ensure().is_some() {
        // SAFETY: a range of the program's memory.
        if unsafe { gate::trapped(gate::KEEP, [at, MUTEX_BYTES, 0, 0, 0, 0]) } < 0 {
            return Errno::ENOMEM.0;
        }
    }
    // SAFETY: the program's own call.
    unsafe { next(mutex, attr) }
}
