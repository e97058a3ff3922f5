//! `pthread_sigmask` of the C library, answered where it is called: `sigprocmask` and `sigsetjmp` call it inside of the C library, and each such
//! call would be trapped.
use crate::dispositions::OURS;
use crate::gate;
use crate::layout::in_managed;
use crate::live::{Live, try_live};
use crate::stacks::{self, Thread};
use core::ops::Range;
use outswap_sys::signal::bit;
use outswap_sys::{Errno, Result, nr, ret, syscall4};

/// `mov eax, 14` and `syscall`: the call of the kernel's.
const CALLS: &[u8] = &[0xb8, 0x0e, 0, 0, 0, 0x0f, 0x05];
/// How far from where the function begins it is.
const CALL_WITHIN: usize = 128;
/// Signals of the C library's own, which programs cannot block.
const INTERNAL: u64 = bit(32) | bit(33);

/// Whether the function at an address is the C library's, and the one that [`serve`] does the work of.
///
/// # Safety
/// The library's code is readable.
pub unsafe fn is_in(function: usize, library: Range<usize>) -> bool {
    if !library.contains(&function) || library.end - function < CALL_WITHIN {
        return false;
    }
    // SAFETY: as the caller says.
    let code = unsafe { core::slice::from_raw_parts(function as *const u8, CALL_WITHIN) };
    code.windows(CALLS.len()).any(|bytes| bytes == CALLS)
}

/// Does what that function does.
///
/// # Errors
/// Those of the kernel.
///
/// # Safety
/// As `pthread_sigmask`.
pub unsafe fn serve(how: i32, new: *const u64, old: *mut u64) -> Result<()> {
    // SAFETY: null, or a whole set, of which the kernel looks at the first word.
    let set = unsafe { new.as_ref() }.map(|set| *set & !INTERNAL);
    let before = match try_live() {
        // The kernel must not meet a missing page: of a stack that lies in managed memory.
        Some(live) => match thread(live).filter(|_| !in_managed(&raw const set as usize)) {
            Some(thread) => change(thread, how, set)?,
            None => ask(gate::TRAPPED, how, set)?,
        },
        None => ask(0, how, set)?,
    };
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before;
    }
    Ok(())
}

/// What is kept for the calling thread.
fn thread(live: &Live) -> Option<&'static Thread> {
    if live.is_own_process() { stacks::own_stacks() } else { live.sharer_thread() }
}

/// Changes the mask that the program believes in; returns what it was. Our signals are never in the kernel's.
fn change(thread: &Thread, how: i32, set: Option<u64>) -> Result<u64> {
    let was = thread.pretended();
    let Some(set) = set else { return Ok(kernel(0, None)? | was) };
    let pretended = match how {
        0 => was | set,
        1 => was & !set,
        2 => set,
        _ => return Err(Errno::EINVAL),
    };
    // What was held comes while the call lasts, as a signal does that the kernel held: a handler that leaves for good finds the new mask.
    thread.set_pretended(pretended);
    Ok(kernel(how, Some(set & !OURS))? | was)
}

/// The kernel's mask, changed; what it was.
fn kernel(how: i32, set: Option<u64>) -> Result<u64> {
    let mut old = 0u64;
    let at = set.as_ref().map_or(0, |set| set as *const u64 as usize);
    // SAFETY: null or a set, and a place for one.
    ret(unsafe { syscall4(nr::RT_SIGPROCMASK, how as usize, at, &raw mut old as usize, 8) })?;
    Ok(old & !OURS)
}

/// Makes the call, with what is added to its number so that it is trapped: calls of this library's code pass.
fn ask(trapped: usize, how: i32, set: Option<u64>) -> Result<u64> {
    let (value, mut old): (isize, u64);
    old = 0;
    let at = set.as_ref().map_or(0, |set| set as *const u64 as usize);
    // SAFETY: null or a set, and a place for one.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") trapped | nr::RT_SIGPROCMASK => value, in("rdi") how as usize,
                         in("rsi") at, in("rdx") &raw mut old, in("r10") 8, out("rcx") _, out("r11") _);
    }
    ret(value)?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_known_by_its_call() {
        let is_it = |code: &[u8]| {
            let at = code.as_ptr() as usize;
            // SAFETY: so many bytes.
            unsafe { is_in(at, at..at + code.len()) }
        };
        let mut code = [0x90; CALL_WITHIN];
        assert!(!is_it(&code));
        code[CALL_WITHIN - CALLS.len()..].copy_from_slice(CALLS);
        assert!(is_it(&code) && !is_it(&code[..CALL_WITHIN - 1]) && !is_it(&[]));
        code[CALL_WITHIN - 2] ^= 1;
        assert!(!is_it(&code));
    }

    #[test]
    fn it_does_what_the_c_library_does() {
        let (user, alarm) = (bit(10), bit(14));
        let mut old = 0;
        // SAFETY: whole sets.
        unsafe {
            assert_eq!(serve(2, &0, core::ptr::null_mut()), Ok(()));
            assert_eq!(serve(0, &(user | INTERNAL), &mut old), Ok(()));
            assert_eq!(serve(0, &alarm, &mut old), Ok(()));
            assert_eq!(old, user);
            assert_eq!(serve(1, &user, &mut old), Ok(()));
            assert_eq!(old, user | alarm);
            assert_eq!(serve(7, core::ptr::null(), &mut old), Ok(()));
            assert_eq!(old, alarm);
            assert_eq!(serve(7, &user, &mut old), Err(Errno::EINVAL));
            assert_eq!(serve(2, &0, core::ptr::null_mut()), Ok(()));
        }
    }
}
