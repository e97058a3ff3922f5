//! userfaultfd with `UFFDIO_MOVE` (Linux 6.8): a page is taken by moving its frame into a staging window. No write can be
//! lost, because the page leaves the page table and reaches the window in one step.
use super::copying;
use crate::machine::{LiveMachine, address};
use outswap_core::hazard::mask_of;
use outswap_core::machine::{Machine, WindowNo};
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::Errno;

/// Pages that are copied instead when one of them cannot be moved. After a fork that is all of them, and a failed move
/// costs a system call each.
const COPY_RUN: usize = 16;
/// Attempts while the kernel asks to try again; it does so while another thread changes the address space.
const RETRIES: u32 = 100;

/// See [`Machine::take`].
pub fn take(m: &LiveMachine, first: PageNo, count: usize, present: u64, window: WindowNo, offset: usize) -> u64 {
    let mut taken = 0u64;
    let mut at = 0;
    let mut tries = 0;
    while at < count && present >> at != 0 {
        at += (present >> at).trailing_zeros() as usize;
        let end = 64 - present.leading_zeros() as usize;
        let dst = m.window_address(window, offset + at);
        // SAFETY: the caller owns the pages and the window.
        let progress = unsafe { m.uffd().move_pages(dst, address(first.plus(at)), (end - at) * PAGE_BYTES) };
        let moved = progress.done_bytes / PAGE_BYTES;
        taken |= mask_of(at, moved) & present;
        at += moved;
        match progress.error {
            None => break,
            Some(Errno::EAGAIN) if moved > 0 || tries < RETRIES => {
                tries += 1;
                m.pause(tries);
            }
            Some(_) => {
                if at >= count || present >> at == 0 {
                    break;
                }
                at += (present >> at).trailing_zeros() as usize;
                let run = COPY_RUN.min(end - at);
                let bits = (present & mask_of(at, run)) >> at;
                taken |= copying::take(m, first.plus(at), run, bits, window, offset + at) << at;
                at += run;
            }
        }
    }
    taken
}

/// See [`Machine::transfer`].
pub fn transfer(m: &LiveMachine, from: PageNo, to: PageNo) -> bool {
    // SAFETY: the caller owns both pages.
    let progress = unsafe { m.uffd().move_pages(address(to), address(from), PAGE_BYTES) };
    progress.error.is_none() || copying::transfer(m, from, to)
}
