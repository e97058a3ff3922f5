//! userfaultfd with `UFFDIO_COPY` (Linux 5.11): a page is taken by write-protecting it, copying it, and dropping it. A write
//! in between faults, finds the page busy, and waits. Also serves [`super::moving`] for pages that cannot be moved.
use super::hidden::{self};
use super::host::{FaultSource, Host};
use crate::arena::{address, drop_content, set_access};
use crate::limits::RETRIES;
use crate::process;
use outswap_control::{Stat, source};
use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::mask::Mask;
use outswap_core::units::{FOLIO_PAGES, PAGE_BYTES, PageNo};
use outswap_sys::signal::SIGBUS;
use outswap_sys::uffd::{COPY_FEATURES, Uffd};
use outswap_sys::{Errno, Result};

#[repr(C, align(4096))]
struct Zeros([u8; PAGE_BYTES * FOLIO_PAGES]);
static ZEROS: Zeros = Zeros([0; PAGE_BYTES * FOLIO_PAGES]);

/// Opens a userfaultfd at a descriptor of at least `min_fd`.
pub(super) fn open_uffd(features: u64, min_fd: i32) -> Result<i32> {
    Ok(process::raise(Uffd::open(features)?.0, min_fd))
}

/// Whether a signal is that of a userfaultfd.
pub(super) fn is_uffd_signal(signal: i32, code: i32) -> bool {
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

/// userfaultfd with `UFFDIO_COPY`.
pub struct Copying;

impl FaultSource for Copying {
    const NUMBER: u32 = source::COPY;

    fn open(min_fd: i32) -> Result<i32> {
        open_uffd(COPY_FEATURES, min_fd)
    }

    fn register(fd: i32, addr: usize, len: usize) -> Result<()> {
        Uffd(fd).register(addr, len, true)
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        is_uffd_signal(signal, code)
    }

    fn take(host: &impl Host, first: PageNo, count: usize, present: Mask, batch: BatchNo, offset: usize) -> Mask {
        let uffd = host.uffd();
        if uffd.write_protect(address(first), count * PAGE_BYTES, true).is_err() {
            // Part of the range may be protected already.
            let _ = uffd.write_protect(address(first), count * PAGE_BYTES, false);
            // Something that is not managed may lie between the pages: take them one by one.
            if count == 1 {
                return Mask::EMPTY;
            }
            let single = Mask::single(0);
            let is_taken = |&i: &usize| !Self::take(host, first.plus(i), 1, single, batch, offset + i).is_empty();
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
                let progress = unsafe { uffd.copy(dst, address(first.plus(at)) as *const u8, (end - at) * PAGE_BYTES) };
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
        if taken != present || !drop_content(first, count) {
            // A page that cannot be dropped (locked by a call that nobody saw) stays where it is.
            for (at, len) in taken.runs() {
                if !drop_content(first.plus(at), len) {
                    taken = taken - Mask::range(at, len);
                }
            }
            let _ = uffd.write_protect(address(first), count * PAGE_BYTES, false);
        }
        taken |= hidden;
        host.stat(Stat::PagesTakenByCopy, taken.count() as u64);
        taken
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
        // SAFETY: the caller owns the pages; `src` holds whole pages.
        let progress = unsafe { host.uffd().copy(address(first), src.as_ptr(), src.len()) };
        let done = progress.done_bytes / PAGE_BYTES;
        (done, progress.error.map(meaning))
    }

    /// Pages are copied from zeros: the kernel's shared zero page would be
    /// exchanged for a real one at the first write, behind the runtime's back.
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        let mut done = 0;
        while done < count {
            let n = (count - done).min(FOLIO_PAGES);
            let (put, error) = Self::put(host, first.plus(done), &ZEROS.0[..n * PAGE_BYTES]);
            done += put;
            if error.is_some() {
                return (done, error);
            }
        }
        (done, None)
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        // SAFETY: the caller owns both pages; the source is present.
        let progress = unsafe { host.uffd().copy(address(to), address(from) as *const u8, PAGE_BYTES) };
        if progress.error.is_some() {
            return false;
        }
        assert!(drop_content(from, 1), "managed pages can be dropped");
        true
    }

    fn protect(_host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        set_access(first, count, prot).is_ok()
    }
}
