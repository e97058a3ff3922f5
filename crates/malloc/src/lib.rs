//! The C library's allocation functions over mimalloc, whose memory comes from `mmap` and so is managed.
//!
//! The C library's own allocator takes its memory by calls from inside the C library, which only a trap can see; mimalloc's
//! are ordinary calls, and it gives freed memory back in large pieces.
#![cfg_attr(not(test), no_std)]

use core::ffi::{c_int, c_void};
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
}

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

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

/// `realloc(3)`.
///
/// # Safety
/// As `realloc(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
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

/// `memalign(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        // SAFETY: the C library gives each thread its errno.
        unsafe { *__errno_location() = EINVAL };
        return core::ptr::null_mut();
    }
    // SAFETY: a power of two.
    checked(unsafe { mi::mi_malloc_aligned(bytes, align) })
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
