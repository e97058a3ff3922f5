//! userfaultfd with `UFFDIO_COPY` (Linux 5.11): a page is taken by write-protecting it, copying it, and dropping it. A write
//! in between faults, finds the page busy, and waits. Also serves [`super::moving`] for pages that cannot be moved.
use super::hidden;
use crate::gate;
use crate::machine::{LiveMachine, address, drop_content};
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, Machine, Prot, PutError};
use outswap_core::pins::mask_of;
use outswap_core::units::{FOLIO_PAGES, PAGE_BYTES, PageNo};
use outswap_sys::{Errno, nr};

/// Attempts while the kernel asks to try again; it does so while another thread changes the address space.
pub(super) const RETRIES: u32 = 100;

#[repr(C, align(4096))]
struct Zeros([u8; PAGE_BYTES * FOLIO_PAGES]);
static ZEROS: Zeros = Zeros([0; PAGE_BYTES * FOLIO_PAGES]);

/// See [`outswap_core::machine::Machine::take`].
pub fn take(m: &LiveMachine, first: PageNo, count: usize, present: u64, batch: BatchNo, offset: usize) -> u64 {
    let uffd = m.uffd();
    if uffd.write_protect(address(first), count * PAGE_BYTES, true).is_err() {
        // Part of the range may be protected already.
        let _ = uffd.write_protect(address(first), count * PAGE_BYTES, false);
        // Something that is not managed may lie between the pages: take them one by one.
        let single = |i: usize| {
            if count > 1 && present & 1 << i != 0 { take(m, first.plus(i), 1, 1, batch, offset + i) << i } else { 0 }
        };
        return (0..count).fold(0, |taken, i| taken | single(i));
    }
    let (mut taken, mut hidden) = (0u64, 0u64);
    let (mut at, mut tries) = (0, 0);
    while at < count && present >> at != 0 {
        at += (present >> at).trailing_zeros() as usize;
        let run = (!(present >> at)).trailing_zeros() as usize;
        let run = run.min(count - at);
        let dst = m.batch_address(batch, offset + at);
        // SAFETY: the batch's frames are ours and empty; the source is a present page, which the kernel reads for us and
        // answers EFAULT for where the program has no read access.
        let progress = unsafe { uffd.copy(dst, address(first.plus(at)) as *const u8, run * PAGE_BYTES) };
        let done = progress.done_bytes / PAGE_BYTES;
        taken |= mask_of(at, done);
        at += done;
        match progress.error {
            None => {}
            Some(Errno::EAGAIN) if tries < RETRIES => {
                tries += 1;
                m.pause(tries);
            }
            Some(Errno::EFAULT) => {
                hidden |= hidden::take(m, first.plus(at), run - done, batch, offset + at) << at;
                at += run - done;
            }
            Some(_) => at += 1,
        }
    }
    // The range holds nothing else than these pages: it is owned as a whole, and all of it is managed, or write-protecting it
    // had failed.
    if taken != present || !drop_content(first, count) {
        let mut dropped = 0u64;
        let mut at = 0;
        while at < 64 && taken >> at != 0 {
            at += (taken >> at).trailing_zeros() as usize;
            let run = (!(taken >> at)).trailing_zeros() as usize;
            if drop_content(first.plus(at), run) {
                dropped |= mask_of(at, run);
            }
            at += run;
        }
        // A page that cannot be dropped (locked by a call that nobody saw) stays where it is.
        taken = dropped;
        let _ = uffd.write_protect(address(first), count * PAGE_BYTES, false);
    }
    taken |= hidden;
    m.stat(Stat::PagesTakenByCopy, taken.count_ones() as u64);
    taken
}

/// See [`outswap_core::machine::Machine::put`].
pub fn put(m: &LiveMachine, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
    // SAFETY: the caller owns the pages; `src` holds whole pages.
    let progress = unsafe { m.uffd().copy(address(first), src.as_ptr(), src.len()) };
    let done = progress.done_bytes / PAGE_BYTES;
    (done, progress.error.map(meaning))
}

/// See [`outswap_core::machine::Machine::put_zero`]. Pages are copied from zeros: the kernel's shared zero page would be
/// exchanged for a real one at the first write, behind the runtime's back.
pub fn put_zero(m: &LiveMachine, first: PageNo, count: usize) -> (usize, Option<PutError>) {
    let mut done = 0;
    while done < count {
        let n = (count - done).min(FOLIO_PAGES);
        let (put, error) = put(m, first.plus(done), &ZEROS.0[..n * PAGE_BYTES]);
        done += put;
        if error.is_some() {
            return (done, error);
        }
    }
    (done, None)
}

fn meaning(error: Errno) -> PutError {
    match error {
        Errno::ENOMEM => PutError::NoMemory,
        Errno::ENOENT | Errno::EINVAL | Errno::EFAULT | Errno::ESRCH => PutError::Gone,
        _ => PutError::Again,
    }
}

/// See [`outswap_core::machine::Machine::transfer`].
pub fn transfer(m: &LiveMachine, from: PageNo, to: PageNo) -> bool {
    // SAFETY: the caller owns both pages; the source is present.
    let progress = unsafe { m.uffd().copy(address(to), address(from) as *const u8, PAGE_BYTES) };
    if progress.error.is_some() {
        return false;
    }
    assert!(drop_content(from, 1), "managed pages can be dropped");
    true
}

/// See [`outswap_core::machine::Machine::protect`].
pub fn protect(first: PageNo, count: usize, prot: Prot) -> bool {
    // SAFETY: managed memory is never accessed by Rust except through pages known to be accessible.
    unsafe { gate::call3(nr::MPROTECT, address(first), count * PAGE_BYTES, prot.0 as usize) }.is_ok()
}
