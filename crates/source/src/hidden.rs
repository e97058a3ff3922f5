//! Pages that the kernel moves and copies for nobody: their mapping lost its access while they were resident (`PROT_NONE`, or
//! code that cannot be read), so `UFFDIO_MOVE` finds unequal access and `UFFDIO_COPY` cannot read them.
//!
//! `mremap` with `MREMAP_DONTUNMAP` (Linux 5.7) takes them out of the program's reach in one step, access or not, to a place
//! of the kernel's choice, where they are made readable and copied into the batch. The mapping that they leave stays as it
//! is, registered with userfaultfd, and is not split; what arrives is registered with nothing.
use crate::host::{Host, RETRIES};
use outswap_core::machine::{BatchNo, Prot};
use outswap_core::mask::Mask;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::{Errno, Result, nr, os, ret, syscall5};

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;

/// Takes `count` resident pages, all of them, into the frames of `batch` from `offset` on. Returns those taken, counted from
/// `first`; the others are where they were.
pub fn take(host: &impl Host, first: PageNo, count: usize, batch: BatchNo, offset: usize) -> Mask {
    let away = match move_away(host, first, count) {
        Ok(away) => away,
        // The pages may lie in several mappings of the kernel's.
        Err(Errno::EFAULT | Errno::EINVAL) if count > 1 => {
            let half = count / 2;
            let rest = take(host, first.plus(half), count - half, batch, offset + half);
            return take(host, first, half, batch, offset) | rest.at(half);
        }
        Err(_) => return Mask::EMPTY,
    };
    // SAFETY: the mapping was made just now, and only this function knows of it.
    let readable = unsafe { os::mprotect(away, count * PAGE_BYTES, os::PROT_READ) }.is_ok();
    let done = if readable { copy(host, host.batch_address(batch, offset), away, count) } else { 0 };
    if done < count {
        put_back(host, away + done * PAGE_BYTES, first.plus(done), count - done).unwrap_or_else(|_| lost(host));
    }
    if done > 0 {
        // SAFETY: as above; what lay here is in the batch. Where this fails, the pages stay until the process ends.
        let _ = unsafe { os::munmap(away, done * PAGE_BYTES) };
    }
    Mask::range(0, done)
}

fn move_away(host: &impl Host, first: PageNo, count: usize) -> Result<usize> {
    let bytes = count * PAGE_BYTES;
    // SAFETY: the caller owns the pages; a touch of the program finds them missing, and waits.
    ret(unsafe { syscall5(nr::MREMAP, host.address(first), bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0) })
}

/// Copies pages into empty frames. Returns how many.
fn copy(host: &impl Host, to: usize, from: usize, count: usize) -> usize {
    let mut done = 0;
    for tries in 0..RETRIES {
        let at = done * PAGE_BYTES;
        // SAFETY: the batch's frames are the caller's and empty; the source is readable.
        let progress = unsafe { host.uffd().copy(to + at, (from + at) as *const u8, count * PAGE_BYTES - at, false) };
        done += progress.done_bytes / PAGE_BYTES;
        match progress.error {
            Some(Errno::EAGAIN) => host.wait(tries),
            _ => break,
        }
    }
    done
}

/// Moves pages back to where they came from. They replace the mapping there, so it is registered anew; it has no hole that a
/// touch could fill meanwhile, because every page of it is there.
fn put_back(host: &impl Host, away: usize, first: PageNo, count: usize) -> Result<()> {
    let (uffd, bytes, to) = (host.uffd(), count * PAGE_BYTES, host.address(first));
    // SAFETY: the caller owns the pages of the range, of which none is there now.
    ret(unsafe { syscall5(nr::MREMAP, away, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) })?;
    uffd.register(to, bytes, true)?;
    uffd.write_protect(to, bytes, false)?;
    // The program may change its access meanwhile, first in the map, then in the kernel: what the map says after the change
    // here is what counts.
    for _ in 0..RETRIES {
        let mut same = true;
        for page in (0..count).map(|i| first.plus(i)) {
            let prot = || host.find(page).map_or(Prot::NONE, |vma| vma.prot);
            let now = prot();
            host.set_access(page, 1, now)?;
            same &= prot() == now;
        }
        if same {
            break;
        }
    }
    Ok(())
}

/// The pages are at an address that the program does not know, and cannot go back: it must not run on without them.
fn lost(host: &impl Host) -> ! {
    host.post(b"error: memory that was being evicted could not be put back; a process was ended to keep its data safe");
    os::exit_group(125)
}
