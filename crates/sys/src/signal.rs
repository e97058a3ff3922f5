//! Signals at the level of the kernel's own structures.
use crate::call::*;
use crate::nr;

/// `SIGBUS`.
pub const SIGBUS: i32 = 7;
/// `SIGSEGV`.
pub const SIGSEGV: i32 = 11;
/// `SIGPIPE`.
pub const SIGPIPE: i32 = 13;
/// `SIGXFSZ`.
pub const SIGXFSZ: i32 = 25;
/// `SIGSYS`.
pub const SIGSYS: i32 = 31;
/// `SIG_DFL`.
pub const SIG_DFL: usize = 0;
/// `SIG_IGN`.
pub const SIG_IGN: usize = 1;
/// `SA_NOCLDSTOP`.
pub const SA_NOCLDSTOP: u64 = 1;
/// `SA_NOCLDWAIT`.
pub const SA_NOCLDWAIT: u64 = 2;
/// `SA_SIGINFO`.
pub const SA_SIGINFO: u64 = 4;
/// `SA_ONSTACK`.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// `SA_RESTORER`.
pub const SA_RESTORER: u64 = 0x0400_0000;
/// `SA_RESTART`.
pub const SA_RESTART: u64 = 0x1000_0000;
/// `SA_NODEFER`.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// `SA_RESETHAND`.
pub const SA_RESETHAND: u64 = 0x8000_0000;

/// The kernel's `struct sigaction` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelSigaction {
    /// Handler address, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_*` bits.
    pub flags: u64,
    /// Address of the code that calls `rt_sigreturn`.
    pub restorer: usize,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// The bit of a signal in a 64-bit mask.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Sets and reads a disposition.
///
/// # Safety
/// A new handler must be async-signal-safe code that lives as long as it is installed.
pub unsafe fn sigaction(signal: i32, new: Option<&KernelSigaction>, old: Option<&mut KernelSigaction>) -> Result<()> {
    let new = new.map_or(0, |p| p as *const _ as usize);
    let old = old.map_or(0, |p| p as *mut _ as usize);
    // SAFETY: both pointers are null or point to whole structures.
    ret(unsafe { syscall4(nr::RT_SIGACTION, signal as usize, new, old, 8) }).map(drop)
}

/// Replaces the calling thread's signal mask and returns the old one.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both point to 8 bytes; how = SIG_SETMASK.
    unsafe { syscall4(nr::RT_SIGPROCMASK, 2, &raw const mask as usize, &raw mut old as usize, 8) };
    old
}

/// The signals that the kernel holds back for the calling thread.
pub fn pending() -> u64 {
    let mut pending = 0u64;
    // SAFETY: `pending` lives through the call.
    unsafe { syscall2(nr::RT_SIGPENDING, &raw mut pending as usize, size_of::<u64>()) };
    pending
}

/// Makes a write, and takes the signal back that it raises beyond `RLIMIT_FSIZE` (`SIGXFSZ`): it would kill a program for something that the
/// program did not do.
pub fn without_sigxfsz<T>(write: impl FnOnce() -> T, is_too_big: impl FnOnce(&T) -> bool) -> T {
    without_signal(write, |done| is_too_big(done).then_some(SIGXFSZ))
}

/// Makes a write, and takes the signal back of which `raised` says, from its outcome, that it was raised by it.
pub fn without_signal<T>(write: impl FnOnce() -> T, raised: impl FnOnce(&T) -> Option<i32>) -> T {
    let mask = set_mask(u64::MAX);
    let pending = pending();
    let done = write();
    // One that was there before is the program's own, and ours has merged with it.
    if let Some(signal) = raised(&done).filter(|signal| pending & bit(*signal) == 0) {
        let (set, now) = (bit(signal), [0i64; 2]);
        let (set, now) = (&raw const set as usize, now.as_ptr() as usize);
        // SAFETY: the set and the timeout live through the call, and no information is asked for.
        unsafe { syscall4(nr::RT_SIGTIMEDWAIT, set, 0, now, size_of::<u64>()) };
    }
    set_mask(mask);
    done
}

/// `SS_ONSTACK`.
pub const SS_ONSTACK: i32 = 1;
/// `SS_DISABLE`.
pub const SS_DISABLE: i32 = 2;
/// `SS_AUTODISARM`.
pub const SS_AUTODISARM: i32 = 1 << 31;

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack {
    /// Lowest address.
    pub sp: usize,
    /// `SS_ONSTACK`, `SS_DISABLE`.
    pub flags: i32,
    /// Bytes.
    pub size: usize,
}

/// Sets and reads the alternate stack.
///
/// # Safety
/// The new stack must live until it is replaced.
pub unsafe fn sigaltstack(new: Option<&Stack>, old: Option<&mut Stack>) -> Result<()> {
    let new = new.map_or(0, |p| p as *const _ as usize);
    let old = old.map_or(0, |p| p as *mut _ as usize);
    // SAFETY: both pointers are null or point to whole structures.
    ret(unsafe { syscall2(nr::SIGALTSTACK, new, old) }).map(drop)
}

/// Registers as the kernel lays them out in `mcontext_t.gregs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Gregs {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub eflags: u64,
    pub csgsfs: u64,
    pub err: u64,
    pub trapno: u64,
    pub oldmask: u64,
    pub cr2: u64,
}

/// The kernel's `ucontext_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ucontext {
    /// `uc_flags`.
    pub flags: u64,
    /// `uc_link`.
    pub link: usize,
    /// `uc_stack`.
    pub stack: Stack,
    /// General registers.
    pub gregs: Gregs,
    /// Pointer to the floating-point state.
    pub fpstate: usize,
    /// What the kernel neither writes nor reads (`reserved1` of its `sigcontext`).
    pub reserved: [u64; 8],
    /// The mask that returning from the handler restores.
    pub sigmask: u64,
}

/// The parts of `siginfo_t` that synchronous signals fill in.
#[repr(C)]
pub struct Siginfo {
    /// Signal number.
    pub signo: i32,
    /// Error number.
    pub errno: i32,
    /// What raised it.
    pub code: i32,
    pad: i32,
    /// Faulting address (SIGBUS, SIGSEGV), or address of the trapped call (SIGSYS).
    pub addr: usize,
    /// Number of the trapped call (SIGSYS).
    pub syscall: i32,
    /// Architecture of the trapped call (SIGSYS).
    pub arch: u32,
}

impl Siginfo {
    /// A signal that the kernel raises for no address.
    pub fn of_kernel(signo: i32, code: i32) -> Siginfo {
        Siginfo { signo, errno: 0, code, pad: 0, addr: 0, syscall: 0, arch: 0 }
    }
}
