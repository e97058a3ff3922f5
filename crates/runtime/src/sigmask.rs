//! `pthread_sigmask` of the C library, answered where it is called: `sigprocmask` and `sigsetjmp` call it inside of the C library, and each such
//! call would be trapped.
use crate::dispositions::OURS;
use crate::live::{Live, try_live};
use crate::stacks::{self, Thread};
use crate::{direct, gate};
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
    // SAFETY: as the caller says.
    unsafe { change_mask(how, set, old) }
}

/// Makes the kernel's call, with the C library's own arguments, and gives what that does.
///
/// # Safety
/// As the call itself; there is room for the old set, if it is asked for.
pub unsafe fn call(args: [usize; 4]) -> isize {
    let [how, new, old, bytes] = args;
    let mut set = [0u64];
    // A program may give the C library an address that leads nowhere.
    let is_seen = bytes == size_of::<u64>() && (new == 0 || direct::read(new, &mut set).is_some());
    // SAFETY: the caller vouches.
    let done = unsafe {
        if is_seen {
            change_mask(how as i32, (new != 0).then_some(set[0]), old as *mut u64)
        } else {
            gate::ask(try_live().is_some(), nr::RT_SIGPROCMASK, args)
        }
    };
    done.map_or_else(|e| -(e.0 as isize), |()| 0)
}

/// Changes the mask to what a set and `how` make of it, and gives the old one.
unsafe fn change_mask(how: i32, set: Option<u64>, old: *mut u64) -> Result<()> {
    let live = try_live();
    let thread = live.and_then(thread);
    // SAFETY: as the caller says.
    unsafe {
        if let Some((thread, change)) = thread.and_then(|thread| Some((thread, change(thread, how, set)?))) {
            let done = change.make(thread, how, set, old);
            // A stack in managed memory, of which a page has just left.
            if done != Err(Errno::EFAULT) {
                return done;
            }
        }
        let at = set.as_ref().map_or(0, |set| set as *const u64 as usize);
        gate::ask(live.is_some(), nr::RT_SIGPROCMASK, [how as usize, at, old as usize, 8])
    }
}

/// What is kept for the calling thread.
fn thread(live: &Live) -> Option<&'static Thread> {
    if live.is_own_process() { stacks::own_stacks() } else { live.sharer_thread() }
}

/// What of our signals the thread is to believe blocked, before and after.
struct Change {
    was: u64,
    pretended: u64,
}

/// How a call changes that. `None` where a trap is to do it: that gives the error, or lets signals come that are held here, of which the
/// handlers are to find the new mask as a whole.
fn change(thread: &Thread, how: i32, set: Option<u64>) -> Option<Change> {
    let was = thread.pretended();
    let pretended = match (how, set) {
        (_, None) => was,
        (0, Some(set)) => was | set,
        (1, Some(set)) => was & !set,
        (2, Some(set)) => set,
        _ => return None,
    };
    (thread.held() & !pretended == 0).then_some(Change { was, pretended })
}

impl Change {
    /// Makes it. Our signals are never in the kernel's mask. Signals that it unblocks come within the kernel's call, and their handlers find
    /// the old mask where it was asked for. Where it fails, nothing is changed.
    unsafe fn make(self, thread: &Thread, how: i32, set: Option<u64>, old: *mut u64) -> Result<()> {
        if !old.is_null() {
            // SAFETY: the kernel writes a set there, if it can.
            ret(unsafe { syscall4(nr::RT_SIGPROCMASK, 0, 0, old as usize, 8) })?;
            // SAFETY: there is a place, as the kernel has found.
            unsafe { old.write_unaligned(old.read_unaligned() & !OURS | self.was) };
        }
        let Some(set) = set.map(|set| set & !OURS) else { return Ok(()) };
        thread.set_pretended(self.pretended);
        // SAFETY: a set that lives through the call.
        let done = ret(unsafe { syscall4(nr::RT_SIGPROCMASK, how as usize, &raw const set as usize, 0, 8) }).map(drop);
        if done.is_err() {
            thread.set_pretended(self.was);
        }
        done
    }
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
            assert_eq!(serve(7, &user, &mut old), Err(outswap_sys::Errno::EINVAL));
            assert_eq!(serve(2, &0, core::ptr::null_mut()), Ok(()));
        }
    }
}
