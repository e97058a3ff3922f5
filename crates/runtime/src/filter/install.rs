//! Hands filters to the kernel.
use super::process::{Known, build_process};
use super::program::{Op, Program};
use super::range::{build_bss, build_range};
use outswap_sys::{Result, nr, ret, syscall3, syscall5};

/// Installs the range filter. Calls from the gate's code pass, and with `fixed_passes` those from fixed addresses.
pub fn install_range(gate_start: usize, gate_code_bytes: usize, fixed_passes: bool) -> Result<()> {
    install(&build_range(gate_start, gate_code_bytes, fixed_passes))
}

/// Installs the filter of the program's `.bss`, for calls from `code`.
pub fn install_bss(bss: (usize, usize), code: &[(usize, usize)]) -> Result<()> {
    install(&build_bss(bss, code))
}

/// Installs the process filter.
pub fn install_process(known: &Known<'_>) -> Result<()> {
    install(&build_process(known))
}

fn install(program: &Program) -> Result<()> {
    #[repr(C)]
    struct Fprog {
        len: u16,
        ops: *const Op,
    }
    let fprog = Fprog { len: program.ops().len() as u16, ops: program.ops().as_ptr() };
    // SAFETY: prctl(PR_SET_NO_NEW_PRIVS) and seccomp(SET_MODE_FILTER, TSYNC where there are threads already); the program
    // lives through the call.
    unsafe {
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        let _ = ret(syscall3(nr::SECCOMP, 1, 0, &raw const fprog as usize)).or_else(|_| {
            ret(syscall5(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            ret(syscall3(nr::SECCOMP, 1, 0, &raw const fprog as usize))
        })?;
    }
    Ok(())
}
