//! Raw Linux system calls for the fault path.
//!
//! Nothing here allocates, touches thread-local storage, sets `errno` or takes a lock, so every
//! function may be called in a signal handler at any instruction of the program. That is why
//! this crate exists beside `libc`: the libc wrappers set `errno`, are cancellation points, and are
//! the very functions that the preload library replaces.
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod call;
pub mod nr;
pub mod numbers;
pub mod os;
pub mod procfs;
pub mod signal;
pub mod tables;
pub mod uffd;
pub mod uring;

pub use call::{Errno, Result, issue_from, ret, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5, syscall6};

/// What `prlimit64` has as its fifth argument, which the kernel ignores, where the runtime calls it. It does so before the gate is
/// there, when its code may lie where the C library of a program lay whose filter is still in force.
pub const OWN_CALL: usize = 0x6f77_6e21;

/// Bytes in a page, the unit of state.
pub const PAGE_BYTES: usize = 4096;
