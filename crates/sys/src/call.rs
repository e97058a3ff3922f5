//! The system call instruction and its error numbers.
use core::arch::asm;

/// A Linux error number, as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

/// What a system call gives: its value, or the kernel's error number.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $value:expr),* $(,)?) => {
        #[allow(missing_docs)]
        impl Errno { $(pub const $name: Errno = Errno($value);)* }
        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(n) => write!(f, "errno {n}"),
                }
            }
        }
    };
}
errnos! {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, E2BIG = 7, EBADF = 9, ECHILD = 10, EAGAIN = 11,
    ENOMEM = 12, EACCES = 13, EFAULT = 14, EBUSY = 16, EEXIST = 17, ENODEV = 19, EINVAL = 22, EMFILE = 24,
    ENOTTY = 25, ENOSPC = 28, EPIPE = 32, ERANGE = 34, ENOSYS = 38, EOVERFLOW = 75, EOPNOTSUPP = 95,
    ETIMEDOUT = 110,
}

/// Turns the kernel's return value into a `Result`.
#[inline]
pub fn ret(value: isize) -> Result<usize> {
    if (-4095..0).contains(&value) { Err(Errno((-value) as i32)) } else { Ok(value as usize) }
}

macro_rules! syscall {
    ($(#[$doc:meta])* $name:ident, $($arg:ident => $reg:tt),*) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the system call itself: pointers must be right for it, and what it does to the address
        /// space must not break Rust's view of memory.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(nr: usize $(, $arg: usize)*) -> isize {
            let value: isize;
            // SAFETY: the caller vouches for the call; the clobbers are those of the x86-64 ABI.
            unsafe {
                asm!("syscall", inlateout("rax") nr as isize => value, $(in($reg) $arg,)*
                     lateout("rcx") _, lateout("r11") _, options(nostack));
            }
            value
        }
    };
}
syscall!(/** A system call without arguments. */ syscall0,);
syscall!(/** A system call with one argument. */ syscall1, a => "rdi");
syscall!(/** A system call with two arguments. */ syscall2, a => "rdi", b => "rsi");
syscall!(/** A system call with three arguments. */ syscall3, a => "rdi", b => "rsi", c => "rdx");
syscall!(/** A system call with four arguments. */ syscall4, a => "rdi", b => "rsi", c => "rdx", d => "r10");
syscall!(/** A system call with five arguments. */ syscall5, a => "rdi", b => "rsi", c => "rdx", d => "r10", e => "r8");
syscall!(/** A system call with six arguments. */ syscall6, a => "rdi", b => "rsi", c => "rdx", d => "r10", e => "r8", f => "r9");
