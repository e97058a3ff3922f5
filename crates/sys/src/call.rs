//! The system call instruction and its error numbers.
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A Linux error number, as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

/// What a system call gives: its value, or the kernel's error number.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $value:expr),* $(,)?) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($value);)*

            /// Its name, where it is one of those above.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "errno {}", self.0),
                }
            }
        }
    };
}
errnos! {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, E2BIG = 7, ENOEXEC = 8, EBADF = 9, ECHILD = 10, EAGAIN = 11,
    ENOMEM = 12, EACCES = 13, EFAULT = 14, EBUSY = 16, EEXIST = 17, ENODEV = 19, ENOTDIR = 20, EINVAL = 22, EMFILE = 24,
    ENOTTY = 25, EFBIG = 27, ENOSPC = 28, EPIPE = 32, ERANGE = 34, ENOSYS = 38, EOVERFLOW = 75, EOPNOTSUPP = 95,
    EPROTO = 71, ETIMEDOUT = 110,
}

/// Turns the kernel's return value into a `Result`.
#[inline]
pub fn ret(value: isize) -> Result<usize> {
    if (-4095..0).contains(&value) { Err(Errno((-value) as i32)) } else { Ok(value as usize) }
}

global_asm!(".globl outswap_sys_plain", ".hidden outswap_sys_plain", "outswap_sys_plain:", "syscall", "ret",);
unsafe extern "C" {
    fn outswap_sys_plain();
}

/// Where system calls are issued from; 0 for this crate's own code.
static ISSUER: AtomicUsize = AtomicUsize::new(0);

/// Issues all system calls from now on at `address`, where the instructions `syscall; ret` must stand. A seccomp filter can
/// tell calls apart by the address that they come from.
///
/// # Safety
/// The code at `address` must be those instructions, for as long as the process lives.
pub unsafe fn issue_from(address: usize) {
    ISSUER.store(address, Relaxed);
}

/// A system call with six arguments.
///
/// # Safety
/// As the system call itself: pointers must be right for it, and what it does to the address space must not break Rust's
/// view of memory.
#[inline]
#[allow(clippy::too_many_arguments)]
pub unsafe fn syscall6(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let value: isize;
    let issuer = match ISSUER.load(Relaxed) {
        0 => outswap_sys_plain as *const () as usize,
        address => address,
    };
    // SAFETY: the caller vouches for the call; the code called is `syscall; ret`, whose clobbers are those of the x86-64
    // ABI. The assembly may push, so the red zone is not used.
    unsafe {
        asm!("call {issuer}", issuer = in(reg) issuer, inlateout("rax") nr as isize => value, in("rdi") a, in("rsi") b,
             in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    value
}

macro_rules! syscall {
    ($(#[$doc:meta])* $name:ident($($arg:ident),*), $($zero:literal),*) => {
        $(#[$doc])*
        ///
        /// Argument registers that the call does not use are zeroed: a filter sees all six, and whatever stood in them
        /// before could look like a pointer into managed memory.
        ///
        /// # Safety
        /// As [`syscall6`].
        #[inline]
        pub unsafe fn $name(nr: usize $(, $arg: usize)*) -> isize {
            // SAFETY: the caller vouches.
            unsafe { syscall6(nr $(, $arg)* $(, $zero)*) }
        }
    };
}
syscall!(/** A system call without arguments. */ syscall0(), 0, 0, 0, 0, 0, 0);
syscall!(/** A system call with one argument. */ syscall1(a), 0, 0, 0, 0, 0);
syscall!(/** A system call with two arguments. */ syscall2(a, b), 0, 0, 0, 0);
syscall!(/** A system call with three arguments. */ syscall3(a, b, c), 0, 0, 0);
syscall!(/** A system call with four arguments. */ syscall4(a, b, c, d), 0, 0);
syscall!(/** A system call with five arguments. */ syscall5(a, b, c, d, e), 0);
