//! What the sources over userfaultfd share. A page comes by `UFFDIO_COPY`. Where it is not moved, it is taken by write-protecting
//! it, copying it, and dropping it: a write in between faults, finds the page busy, and waits.
use crate::hidden;
use crate::host::{Host, RETRIES};
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, PutError};
use outswap_core::mask::Mask;
use outswap_core::units::{PAGE_BYTES, PART_PAGES, PageNo};
use outswap_sys::Errno;
use outswap_sys::signal::SIGBUS;

#[repr(C, align(4096))]
struct Zeros([u8; PAGE_BYTES * PART_PAGES]);
static ZEROS: Zeros = Zeros([0; PAGE_BYTES * PART_PAGES]);

/// Whether a signal is that of a userfaultfd.
pub fn may_be_missing(signal: i32, code: i32) -> bool {
    const BUS_ADRERR: i32 = 2;
    signal == SIGBUS && code == BUS_ADRERR
}

fn meaning(error: Errno) -> PutError {
    match error {
        Errno::ENOMEM => PutError::NoMemory,
        Errno::ENOENT | Errno::EINVAL | Errno::EFAULT | Errno::ESRCH => PutError::Gone,
        _ => PutError::Again,
    }
}

/// Takes pages by copying them. See [`outswap_core::machine::Machine::take`].
pub fn take(host: &impl Host, first: PageNo, count: usize, present: Mask, batch: BatchNo, offset: usize) -> Mask {
    let uffd = host.uffd();
    if uffd.write_protect(host.address(first), count * PAGE_BYTES, true).is_err() {
        // Part of the range may be protected already.
        let _ = uffd.write_protect(host.address(first), count * PAGE_BYTES, false);
        // Something that is not managed may lie between the pages: take them one by one.
        if count == 1 {
            return Mask::EMPTY;
        }
        let single = Mask::single(0);
        let is_taken = |&i: &usize| !take(host, first.plus(i), 1, single, batch, offset + i).is_empty();
        return present.iter().filter(is_taken).collect();
    }
    let (mut taken, mut hidden) = (Mask::EMPTY, Mask::EMPTY);
    let mut tries = 0;
    for (mut at, len) in present.runs() {
        let end = at + len;
        while at < end {
            let dst = host.batch_address(batch, offset + at);
            // SAFETY: the batch's frames are ours and empty; the source is a present page, which the kernel reads for us
            // and answers EFAULT for where the program has no read access.
            let progress =
                unsafe { uffd.copy(dst, host.address(first.plus(at)) as *const u8, (end - at) * PAGE_BYTES) };
            let done = progress.done_bytes / PAGE_BYTES;
            taken |= Mask::range(at, done);
            at += done;
            match progress.error {
                None => {}
                Some(Errno::EAGAIN) if tries < RETRIES => {
                    tries += 1;
                    host.wait(tries);
                }
                Some(Errno::EFAULT) => {
                    hidden |= hidden::take(host, first.plus(at), end - at, batch, offset + at).at(at);
                    at = end;
                }
                Some(_) => at += 1,
            }
        }
    }
    // The range holds nothing else than these pages: it is owned as a whole, and all of it is managed, or write-protecting it
    // had failed.
    if taken != present || !host.drop_content(first, count) {
        // A page that cannot be dropped (locked by a call that nobody saw) stays where it is.
        for (at, len) in taken.runs() {
            if !host.drop_content(first.plus(at), len) {
                taken = taken - Mask::range(at, len);
            }
        }
        let _ = uffd.write_protect(host.address(first), count * PAGE_BYTES, false);
    }
    taken |= hidden;
    host.stat(Stat::PagesTakenByCopy, taken.count() as u64);
    taken
}

/// See [`outswap_core::machine::Machine::put`].
pub fn put(host: &impl Host, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
    // SAFETY: the caller owns the pages; `src` holds whole pages.
    let progress = unsafe { host.uffd().copy(host.address(first), src.as_ptr(), src.len()) };
    let done = progress.done_bytes / PAGE_BYTES;
    (done, progress.error.map(meaning))
}

/// See [`outswap_core::machine::Machine::put_zero`]. Pages are copied from zeros: the kernel's shared zero page would be
/// exchanged for a real one at the first write, behind the runtime's back.
pub fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
    let mut done = 0;
    while done < count {
        let n = (count - done).min(PART_PAGES);
        let (put, error) = put(host, first.plus(done), &ZEROS.0[..n * PAGE_BYTES]);
        done += put;
        if error.is_some() {
            return (done, error);
        }
    }
    (done, None)
}

/// Moves a page by copying it. See [`outswap_core::machine::Machine::transfer`].
pub fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
    // SAFETY: the caller owns both pages; the source is present.
    let progress = unsafe { host.uffd().copy(host.address(to), host.address(from) as *const u8, PAGE_BYTES) };
    if progress.error.is_some() {
        return false;
    }
    assert!(host.drop_content(from, 1), "managed pages can be dropped");
    true
}
