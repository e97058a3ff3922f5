//! The gate: the only code from which system calls may name managed memory.
//!
//! The filter traps every other system call with an argument in the managed range. Beside the plain gate there is one
//! stub for each hazard slot; a trapped call is made to continue in the stub of its slot, which issues the call, frees the
//! slot and returns to where the call came from. So the call itself runs outside of any handler, with the program's own
//! signal mask, can be interrupted and restarted by the kernel, and signal handlers run as they always do.
use crate::layout::*;
use outswap_sys::{Result, os, ret};

const RETURNS: usize = GATE + GATE_CODE_BYTES;
/// The last slots are never freed: each belongs to one place that clones threads (see [`clone_stub`]).
const PERMANENT: usize = 64;

/// Hazard slots that calls may use.
pub const CALL_SLOTS: usize = HAZARDS - PERMANENT;

/// Opens the plain gate. Before this, no call may name managed memory: the filter may have been inherited.
pub fn open() -> Result<()> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE replaces nothing.
    let at =
        unsafe { os::mmap(GATE, GATE_BYTES.next_multiple_of(4096), os::PROT_READ | os::PROT_WRITE, flags, -1, 0)? };
    if at != GATE {
        return Err(outswap_sys::Errno::EEXIST);
    }
    // SAFETY: fresh memory, ours alone.
    unsafe { core::slice::from_raw_parts_mut(GATE as *mut u8, 3) }.copy_from_slice(&[0x0f, 0x05, 0xc3]); // syscall; ret
    // SAFETY: nothing writes the page from here on.
    unsafe { os::mprotect(GATE, 4096, os::PROT_READ | os::PROT_EXEC)? };
    // The engine's own structures may lie in managed memory too: a handler can run on an alternate stack there.
    // SAFETY: the page just written is never unmapped or changed.
    unsafe { outswap_sys::issue_from(GATE) };
    Ok(())
}

/// Builds the stubs. `owner_word(slot)` is the address of the slot's owner word.
pub fn build(owner_word: impl Fn(usize) -> usize) -> Result<()> {
    // SAFETY: the stubs' pages, ours alone and not used by anyone yet.
    let code = unsafe { core::slice::from_raw_parts_mut((GATE + 4096) as *mut u8, GATE_CODE_BYTES - 4096) };
    for slot in 0..HAZARDS {
        let stub = &mut code[slot * STUB_BYTES..][..STUB_BYTES];
        let at = GATE + 4096 + slot * STUB_BYTES;
        let relative = |end: usize| ((RETURNS + slot * 8) as i64 - (at + end) as i64) as i32;
        if slot < CALL_SLOTS {
            stub[..2].copy_from_slice(&[0x0f, 0x05]); // syscall
            stub[2..4].copy_from_slice(&[0x49, 0xbb]); // mov r11, owner word
            stub[4..12].copy_from_slice(&(owner_word(slot) as u64).to_le_bytes());
            stub[12..15].copy_from_slice(&[0x48, 0x8b, 0x0d]); // mov rcx, [rip + return address]
            stub[15..19].copy_from_slice(&relative(19).to_le_bytes());
            stub[19..26].copy_from_slice(&[0x41, 0xc7, 0x03, 0, 0, 0, 0]); // mov dword [r11], 0
            stub[26..28].copy_from_slice(&[0xff, 0xe1]); // jmp rcx
        } else {
            stub[..2].copy_from_slice(&[0x0f, 0x05]); // syscall
            stub[2..5].copy_from_slice(&[0x48, 0x8b, 0x0d]); // mov rcx, [rip + return address]
            stub[5..9].copy_from_slice(&relative(9).to_le_bytes());
            stub[9..11].copy_from_slice(&[0xff, 0xe1]); // jmp rcx
        }
    }
    // The return addresses start on the page after the code: GATE_CODE_BYTES is a multiple of the page.
    const { assert!(GATE_CODE_BYTES.is_multiple_of(4096)) };
    // SAFETY: nothing writes the stubs from here on.
    unsafe { os::mprotect(GATE + 4096, GATE_CODE_BYTES - 4096, os::PROT_READ | os::PROT_EXEC) }
}

/// Issues a system call that may name managed memory. (Once the gate is open, every call of the engine comes from there; this
/// name says where that matters.)
///
/// # Safety
/// As the system call itself.
#[allow(clippy::too_many_arguments)]
pub unsafe fn call(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the caller vouches.
    unsafe { outswap_sys::syscall6(nr, a, b, c, d, e, f) }
}

/// [`call`] with three arguments, as a `Result`.
///
/// # Safety
/// As the system call itself.
pub unsafe fn call3(nr: usize, a: usize, b: usize, c: usize) -> Result<usize> {
    // SAFETY: the caller vouches.
    ret(unsafe { call(nr, a, b, c, 0, 0, 0) })
}

/// Makes the stub of `slot` return to `to`, and gives the stub's address.
pub fn stub(slot: usize, to: usize) -> usize {
    // SAFETY: the slot is the caller's, and the return address lies in the gate's data.
    unsafe { core::ptr::write_volatile((RETURNS + slot * 8) as *mut usize, to) };
    GATE + 4096 + slot * STUB_BYTES
}

/// The stub that issues a call and returns to `to` without freeing anything: for clone, whose child passes through it too.
/// `None` when more places clone threads than there are stubs.
pub fn clone_stub(to: usize) -> Option<usize> {
    use core::sync::atomic::{AtomicUsize, Ordering::*};
    (CALL_SLOTS..HAZARDS).find_map(|slot| {
        // SAFETY: the return addresses are aligned words of the gate's data.
        let word = unsafe { AtomicUsize::from_ptr((RETURNS + slot * 8) as *mut usize) };
        let ours = match word.compare_exchange(0, to, AcqRel, Acquire) {
            Ok(_) => true,
            Err(old) => old == to,
        };
        ours.then_some(GATE + 4096 + slot * STUB_BYTES)
    })
}
