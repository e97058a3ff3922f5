//! Hands filters to the kernel.
use super::process::{Known, build_library, build_process};
use super::program::{Op, Program};
use super::range::{build_bss, build_range};
use core::ops::RangeInclusive;
use outswap_sys::{Errno, Result, nr, ret, syscall3, syscall5};

/// Installs the range filter. Calls from the gate's code pass, and with `fixed_passes` those from fixed addresses.
pub fn install_range(gate_start: usize, gate_code_bytes: usize, fixed_passes: bool) -> Result<()> {
    install(&build_range(gate_start, gate_code_bytes, fixed_passes), 0)
}

/// Installs the filter of the program's `.bss`, for calls from `code`.
pub fn install_bss(bss: (usize, usize), code: &[(usize, usize)]) -> Result<()> {
    install(&build_bss(bss, code), 0)
}

/// Installs the process filter.
pub fn install_process(known: &Known<'_>) -> Result<()> {
    install(&build_process(known), 0)
}

/// Installs the filter of a library that lies at these addresses, for all threads. `fds` are our descriptors.
///
/// # Errors
/// As the kernel's; `EBUSY` where some thread has other filters than this one.
pub fn install_library(code: (usize, usize), fds: &RangeInclusive<i32>) -> Result<()> {
    const FOR_ALL_THREADS: usize = 1;
    install(&build_library(code, fds), FOR_ALL_THREADS)
}

#[inline(never)]
fn install(program: &Program, flags: usize) -> Result<()> {
    #[repr(C)]
    struct Fprog {
        len: u16,
        ops: *const Op,
    }
    let fprog = Fprog { len: program.ops().len() as u16, ops: program.ops().as_ptr() };
    const SET_MODE_FILTER: usize = 1;
    // SAFETY: prctl(PR_SET_NO_NEW_PRIVS) and seccomp; the program lives through the call.
    let other = unsafe {
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        let hand_over = || ret(syscall3(nr::SECCOMP, SET_MODE_FILTER, flags, &raw const fprog as usize));
        match hand_over() {
            // Who lacks the right to that must give up others.
            Err(Errno::EACCES) => {
                ret(syscall5(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
                hand_over()?
            }
            answer => answer?,
        }
    };
    // A thread that cannot have it.
    if other == 0 { Ok(()) } else { Err(Errno::EBUSY) }
}
