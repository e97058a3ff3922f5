//! The C library's allocation functions over mimalloc, whose memory comes from `mmap` and so is managed.
//!
//! The C library's own allocator takes its memory by calls from inside the C library, which only a trap can see; mimalloc's
//! are ordinary calls, and it gives freed memory back in large pieces.
#![cfg_attr(not(test), no_std)]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libmimalloc_sys as mi;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process; nothing here panics in the first place.
    unsafe { abort() }
}

unsafe extern "C" {
    #[cfg(not(test))]
    fn abort() -> !;
    fn __errno_location() -> *mut c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;
/// What every block is aligned to.
const MIN_ALIGN: usize = 16;

fn checked(at: *mut c_void) -> *mut c_void {
    if at.is_null() {
        // SAFETY: the C library gives each thread its errno.
        unsafe { *__errno_location() = ENOMEM };
    }
    at
}

/// `malloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    checked(unsafe { mi::mi_malloc(bytes) })
}

/// `calloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: any sizes are allowed.
    checked(unsafe { mi::mi_calloc(count, bytes) })
}

/// `free(3)`.
///
/// # Safety
/// As `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    // SAFETY: the caller vouches.
    unsafe { mi::mi_free(at) }
}

/// `realloc(3)`. As in glibc, nothing is left of a block that shrinks to no bytes.
///
/// # Safety
/// As `realloc(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 && !at.is_null() {
        // SAFETY: the caller vouches.
        unsafe { free(at) };
        return core::ptr::null_mut();
    }
    // SAFETY: the caller vouches.
    checked(unsafe { mi::mi_realloc(at, bytes) })
}

/// `reallocarray(3)`.
///
/// # Safety
/// As `reallocarray(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller vouches.
        Some(bytes) => unsafe { realloc(at, bytes) },
        None => checked(core::ptr::null_mut()),
    }
}

/// `aligned_alloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    memalign(align, bytes)
}

/// `memalign(3)`. As in glibc, the alignment is rounded up to a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    let Some(align) = align.checked_next_power_of_two() else {
        // SAFETY: the C library gives each thread its errno.
        unsafe { *__errno_location() = EINVAL };
        return core::ptr::null_mut();
    };
    // SAFETY: a power of two.
    checked(unsafe { mi::mi_malloc_aligned(bytes, align.max(MIN_ALIGN)) })
}

/// `posix_memalign(3)`.
///
/// # Safety
/// `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(core::mem::size_of::<usize>()) {
        return EINVAL;
    }
    // SAFETY: a power of two.
    let at = unsafe { mi::mi_malloc_aligned(bytes, align) };
    if at.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller vouches.
    unsafe { *out = at };
    0
}

/// `valloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    memalign(4096, bytes)
}

/// `pvalloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(4096) {
        Some(bytes) => memalign(4096, bytes),
        None => checked(core::ptr::null_mut()),
    }
}

/// `malloc_usable_size(3)`.
///
/// # Safety
/// As `malloc_usable_size(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> usize {
    // SAFETY: the caller vouches.
    unsafe { mi::mi_usable_size(at) }
}

/// `malloc_trim(3)`: gives back what it can.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    // SAFETY: may be called at any time.
    unsafe { mi::mi_collect(true) };
    1
}

/// Where the C library's `dlopen` is, once it is known.
static NEXT_DLOPEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn find_dlopen() -> usize {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    // SAFETY: a NUL-terminated name.
    let next = unsafe { dlsym(RTLD_NEXT, c"dlopen".as_ptr()) } as usize;
    NEXT_DLOPEN.store(next, Relaxed);
    if next == 0 { no_dlopen as *const () as usize } else { next }
}

extern "C" fn no_dlopen(_: *const c_char, _: c_int) -> *mut c_void {
    core::ptr::null_mut()
}

/// `dlopen(3)`, without `RTLD_DEEPBIND`: a library that is opened with it finds the C library's `free` before this one, and is given
/// blocks of this one. It jumps where the C library looks who has called: paths are looked up for the caller.
///
/// # Safety
/// As `dlopen(3)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "and esi, {but_deep}",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "2:",
        "jmp rax",
        ".cfi_endproc",
        but_deep = const !0x8i32,
        next = sym NEXT_DLOPEN,
        find = sym find_dlopen,
    )
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_int, c_void};
    use core::hint::black_box;

    const EINVAL: c_int = super::EINVAL;
    const ENOMEM: c_int = super::ENOMEM;

    // The compiler knows functions of these names, and reasons about calls of them that it sees.
    fn malloc(bytes: usize) -> *mut c_void {
        black_box(super::malloc as extern "C" fn(_) -> _)(bytes)
    }
    fn memalign(align: usize, bytes: usize) -> *mut c_void {
        black_box(super::memalign as extern "C" fn(_, _) -> _)(align, bytes)
    }
    fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
        black_box(super::aligned_alloc as extern "C" fn(_, _) -> _)(align, bytes)
    }
    fn valloc(bytes: usize) -> *mut c_void {
        black_box(super::valloc as extern "C" fn(_) -> _)(bytes)
    }
    fn pvalloc(bytes: usize) -> *mut c_void {
        black_box(super::pvalloc as extern "C" fn(_) -> _)(bytes)
    }
    unsafe fn free(at: *mut c_void) {
        // SAFETY: the caller vouches.
        unsafe { black_box(super::free as unsafe extern "C" fn(_))(at) };
    }
    unsafe fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
        // SAFETY: the caller vouches.
        unsafe { black_box(super::realloc as unsafe extern "C" fn(_, _) -> _)(at, bytes) }
    }
    unsafe fn reallocarray(at: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
        // SAFETY: the caller vouches.
        unsafe { black_box(super::reallocarray as unsafe extern "C" fn(_, _, _) -> _)(at, count, bytes) }
    }
    unsafe fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
        // SAFETY: the caller vouches.
        unsafe { black_box(super::posix_memalign as unsafe extern "C" fn(_, _, _) -> _)(out, align, bytes) }
    }
    unsafe fn malloc_usable_size(at: *mut c_void) -> usize {
        // SAFETY: the caller vouches.
        unsafe { black_box(super::malloc_usable_size as unsafe extern "C" fn(_) -> _)(at) }
    }

    fn errno() -> c_int {
        // SAFETY: the C library gives each thread its errno.
        unsafe { *super::__errno_location() }
    }
    fn clear_errno() {
        // SAFETY: as above.
        unsafe { *super::__errno_location() = 0 };
    }
    /// A block that can be written as a whole; frees it.
    fn check(at: *mut c_void, align: usize, bytes: usize) {
        assert!(!at.is_null());
        assert_eq!(at as usize % align, 0, "aligned to {align}");
        // SAFETY: a block of that size, freed once.
        unsafe {
            assert!(malloc_usable_size(at) >= bytes);
            at.cast::<u8>().write_bytes(0xa5, bytes);
            free(at);
        }
    }

    #[test]
    fn alignments_are_rounded_up() {
        for (asked, given) in [(0, 16), (1, 16), (8, 16), (17, 32), (24, 32), (48, 64), (4095, 4096), (65537, 131072)] {
            for bytes in [0, 1, 24, 96, 5000, 300_000] {
                check(memalign(asked, bytes), given, bytes);
                check(aligned_alloc(asked, bytes), given, bytes);
            }
        }
        clear_errno();
        assert!(memalign(usize::MAX / 2 + 2, 1).is_null());
        assert_eq!(errno(), EINVAL);
    }

    #[test]
    fn posix_memalign_wants_powers_of_two_of_pointers() {
        let mut at = core::ptr::null_mut();
        for align in [0, 1, 4, 12, 24, 48] {
            // SAFETY: `at` is writable.
            assert_eq!(unsafe { posix_memalign(&mut at, align, 100) }, EINVAL, "{align}");
            assert!(at.is_null(), "untouched on an error");
        }
        for align in [8, 16, 64, 4096, 1 << 20] {
            // SAFETY: as above.
            assert_eq!(unsafe { posix_memalign(&mut at, align, 100) }, 0);
            check(at, align, 100);
        }
    }

    #[test]
    fn whole_pages() {
        check(valloc(1), 4096, 1);
        check(valloc(0), 4096, 0);
        check(pvalloc(1), 4096, 4096);
        check(pvalloc(4097), 4096, 8192);
        clear_errno();
        assert!(pvalloc(usize::MAX - 10).is_null());
        assert_eq!(errno(), ENOMEM);
    }

    #[test]
    fn nothing_is_left_of_a_block_without_bytes() {
        clear_errno();
        // SAFETY: blocks of this allocator, freed once.
        unsafe {
            assert!(realloc(malloc(10), 0).is_null());
            assert!(reallocarray(malloc(10), 0, 8).is_null());
            assert_eq!(errno(), 0);
            // Without a block it is `malloc(0)`, which gives one.
            check(realloc(core::ptr::null_mut(), 0), 16, 0);
            let at = malloc(100);
            at.cast::<u8>().write_bytes(7, 100);
            let at = realloc(at, 100_000);
            assert!((0..100).all(|i| *at.cast::<u8>().add(i) == 7));
            // A failure leaves the block as it is.
            assert!(reallocarray(at, usize::MAX / 2, 4).is_null());
            assert_eq!(errno(), ENOMEM);
            check(at, 16, 100_000);
            assert_eq!(malloc_usable_size(core::ptr::null_mut()), 0);
        }
    }
}
