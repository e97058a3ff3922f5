//! `sigaction` of the C library, answered where it is called: `posix_spawn`, and with it `system` and `popen`, asks for each signal and resets
//! it, some 120 calls for each program that is started, which would be trapped one by one.
//!
//! All that the C library does with dispositions goes through one function of its own, which has no name. It is found from the one that has: by a
//! jump to code that makes this call of the kernel's, right behind the code that handlers return to. Where that is not so, nothing is changed.
use crate::dispositions::SIGNALS;
use crate::layout::in_managed;
use crate::live::try_live;
use crate::redirect::{JUMP, JUMP_BYTES};
use crate::{deliver, gate};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use outswap_sys::signal::{KernelSigaction, SA_RESTORER, SIG_IGN};
use outswap_sys::{Result, nr};

/// `struct sigaction` of the C library.
#[repr(C)]
pub struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// What handlers that the C library installs return to.
static RESTORER: AtomicUsize = AtomicUsize::new(0);

/// `mov rax, 15` and `syscall`: the end of a handler.
const RETURNS: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov eax, 13` and `syscall`: the call of the kernel's.
const CALLS: &[u8] = &[0xb8, 0x0d, 0, 0, 0, 0x0f, 0x05];

/// The function behind `sigaction` in the C library's `code`, of which the first byte is at address `base`; and what handlers return to.
fn find_in(code: &[u8], base: usize, sigaction: usize) -> Option<(usize, usize)> {
    /// How far the jump may be from where the function begins, and the call from where the other does.
    const JUMP_WITHIN: usize = 64;
    const CALL_WITHIN: usize = 512;
    let begins = sigaction.checked_sub(base)?;
    let first = code.get(begins..begins.checked_add(JUMP_WITHIN)?)?;
    first.windows(JUMP_BYTES).enumerate().filter(|(_, jump)| jump[0] == JUMP).find_map(|(at, jump)| {
        let distance = i32::from_le_bytes([jump[1], jump[2], jump[3], jump[4]]);
        let target = (begins + at + JUMP_BYTES).checked_add_signed(distance as isize)?;
        let body = code.get(target..target.checked_add(CALL_WITHIN)?)?;
        // Aligned, with what fills up to there in between.
        let before = code.get(target.checked_sub(16)?..target)?;
        let is_it = before.starts_with(RETURNS) && body.windows(CALLS.len()).any(|bytes| bytes == CALLS);
        is_it.then_some((base + target, base + target - 16))
    })
}

/// The function behind the C library's `sigaction`, which [`serve`] does the work of from here on. `None` where it is not known.
///
/// # Safety
/// The range is readable code.
pub unsafe fn find(sigaction: usize, code: Range<usize>) -> Option<usize> {
    // SAFETY: as the caller says.
    let bytes = unsafe { core::slice::from_raw_parts(code.start as *const u8, code.len()) };
    let (function, restorer) = find_in(bytes, code.start, sigaction)?;
    RESTORER.store(restorer, Relaxed);
    Some(function)
}

/// Does what that function does.
///
/// # Errors
/// Those of the kernel.
///
/// # Safety
/// As `sigaction`.
pub unsafe fn serve(signal: i32, new: *const Action, old: *mut Action) -> Result<()> {
    // SAFETY: null, or a whole structure.
    let wanted = unsafe { new.as_ref() }.map(|new| KernelSigaction {
        handler: new.handler,
        // As the C library's `int` becomes a `long`.
        flags: new.flags as i64 as u64 | SA_RESTORER,
        restorer: RESTORER.load(Relaxed),
        mask: new.mask[0],
    });
    // The kernel must not meet a missing page: of a stack that lies in managed memory.
    let is_here = !in_managed(&raw const wanted as usize);
    let was = match try_live() {
        // Nothing of the runtime's is changed by these.
        Some(live) if is_here && !live.is_own_process() => deliver::change(live, signal, wanted.as_ref(), true)?,
        Some(live) if is_here && wanted.is_none_or(|new| !SIGNALS.contains(&signal) && new.handler <= SIG_IGN) => {
            deliver::change(live, signal, wanted.as_ref(), false)?
        }
        live => {
            let mut was = KernelSigaction::default();
            let at = wanted.as_ref().map_or(0, |new| new as *const _ as usize);
            // SAFETY: the program's own call.
            unsafe { gate::ask(live.is_some(), nr::RT_SIGACTION, [signal as usize, at, &raw mut was as usize, 8])? };
            was
        }
    };
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() } {
        (old.handler, old.mask[0], old.flags, old.restorer) = (was.handler, was.mask, was.flags as i32, was.restorer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x7000_0000;

    /// Code with the jump from 0x100 to a function at 0x400.
    fn library() -> Vec<u8> {
        let mut code = vec![0x90; 0x1000];
        code[0x108] = JUMP; // one that goes elsewhere
        code[0x109..0x10d].copy_from_slice(&0x700i32.to_le_bytes());
        code[0x120] = JUMP;
        code[0x121..0x125].copy_from_slice(&(0x400i32 - 0x125).to_le_bytes());
        code[0x3f0..][..RETURNS.len()].copy_from_slice(RETURNS);
        code[0x450..][..CALLS.len()].copy_from_slice(CALLS);
        code
    }

    #[test]
    fn the_function_is_found_by_what_it_is_and_else_not_at_all() {
        let found = |code: &[u8]| find_in(code, BASE, BASE + 0x100);
        assert_eq!(found(&library()), Some((BASE + 0x400, BASE + 0x3f0)));
        for at in [0x120, 0x3f0, 0x450] {
            let mut code = library();
            code[at] ^= 1;
            assert_eq!(found(&code), None, "{at:#x}");
        }
        for len in [0, 0x100, 0x124, 0x5ff] {
            assert_eq!(found(&library()[..len]), None, "{len:#x}");
        }
        assert_eq!(find_in(&library(), BASE, BASE - 1), None);
        assert_eq!(find_in(&library(), BASE, usize::MAX), None);
    }

    #[test]
    fn it_does_what_the_c_library_does() {
        const SIGRTMAX: i32 = 64;
        let none = || Action { handler: 7, mask: [7; 16], flags: 7, restorer: 7 };
        let (mut old, ignore) = (none(), Action { handler: SIG_IGN, mask: [1 << 20; 16], flags: 0, restorer: 0 });
        // SAFETY: whole structures; no handler.
        unsafe {
            assert_eq!(serve(SIGRTMAX, &ignore, core::ptr::null_mut()), Ok(()));
            assert_eq!(serve(SIGRTMAX, core::ptr::null(), &mut old), Ok(()));
            assert_eq!((old.handler, old.mask[0], old.mask[1]), (SIG_IGN, 1 << 20, 7));
            // The highest flag is the sign; and the old one may go to where the new one is.
            let mut both = Action { handler: SIG_IGN, mask: [0; 16], flags: i32::MIN | 1, restorer: 0 };
            let at = &raw mut both;
            assert_eq!(serve(SIGRTMAX, at, at), Ok(()));
            assert_eq!((both.handler, both.mask[0], both.flags & i32::MIN), (SIG_IGN, 1 << 20, 0));
            assert_eq!(serve(SIGRTMAX, core::ptr::null(), &mut old), Ok(()));
            assert_eq!(old.flags & (i32::MIN | 1), i32::MIN | 1);
            assert_eq!(serve(9, &ignore, core::ptr::null_mut()), Err(outswap_sys::Errno::EINVAL));
            assert_eq!(serve(65, core::ptr::null(), &mut old), Err(outswap_sys::Errno::EINVAL));
        }
    }
}
