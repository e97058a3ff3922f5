//! userfaultfd: creating it, registering ranges, and the calls that fill, move and protect pages.
use crate::call::*;
use crate::{nr, os};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `UFFD_USER_MODE_ONLY`: faults from the kernel are not reported; needs no privilege (Linux 5.11).
pub const USER_MODE_ONLY: usize = 1;

/// Feature bit: write-protect faults are reported.
pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
/// Feature bit: faults raise SIGBUS in the faulting thread instead of a message.
pub const FEATURE_SIGBUS: u64 = 1 << 7;
/// Feature bit: `UFFDIO_MOVE` (Linux 6.8).
pub const FEATURE_MOVE: u64 = 1 << 16;

/// Feature bit: shared memory can be write-protected (Linux 5.19).
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;

/// Features that pages need to be write-protected, copied and filled, their faults raising SIGBUS (Linux 5.11).
pub const COPY_FEATURES: u64 = FEATURE_SIGBUS | FEATURE_PAGEFAULT_FLAG_WP;
/// [`COPY_FEATURES`], with `UFFDIO_MOVE`.
pub const MOVE_FEATURES: u64 = COPY_FEATURES | FEATURE_MOVE;

const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;

const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 2;
const MOVE_ALLOW_SRC_HOLES: u64 = 2;
const COPY_DONTWAKE: u64 = 1;
const COPY_WRITE_PROTECTED: u64 = 2;
const MOVE_DONTWAKE: u64 = 1;
const ZEROPAGE_DONTWAKE: u64 = 1;

/// See [`protects_unwritable`].
static PROTECTS_UNWRITABLE: AtomicBool = AtomicBool::new(false);

/// Whether this kernel's `UFFDIO_COPY` write-protects pages that it is to protect also in memory that may not be written to at the moment,
/// as far as is known from a userfaultfd that was opened. Before Linux 5.17.5 it does not, and once such memory may be written to again, nobody
/// hears of it (Nadav Amit, "userfaultfd: mark uffd_wp regardless of VM_WRITE flag"); and before 5.19 pages that the kernel had swapped out lose it at
/// a `swapoff` (Miaohe Lin, "mm/swapfile: fix lost swap bits in unuse_pte()"). It is known by a feature that came with 5.19.
pub fn protects_unwritable() -> bool {
    PROTECTS_UNWRITABLE.load(Relaxed)
}

/// A userfaultfd descriptor. Not closed on drop: it lives as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uffd(pub i32);

/// How far a copy or move came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done from the start of the range.
    pub done_bytes: usize,
    /// Why it stopped before the end; `None` when the whole range is done.
    pub error: Option<Errno>,
}

impl Uffd {
    /// Opens a userfaultfd with the given features.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where a sandbox forbids it, `EINVAL` where the kernel lacks a feature.
    pub fn open(features: u64) -> Result<Uffd> {
        // SAFETY: takes flags only.
        let fd = ret(unsafe { syscall1(nr::USERFAULTFD, os::O_CLOEXEC | 0o4000 | USER_MODE_ONLY) })? as i32;
        let mut api = [0xaau64, features, 0];
        // SAFETY: `api` has the layout of `struct uffdio_api`.
        match ret(unsafe { syscall3(nr::IOCTL, fd as usize, UFFDIO_API, api.as_mut_ptr() as usize) }) {
            // The kernel answers with all features that it has; some accept others (Linux 6.1 to 6.1.25).
            Ok(_) if api[1] & features != features => {
                let _ = os::close(fd);
                Err(Errno::EINVAL)
            }
            Ok(_) => {
                PROTECTS_UNWRITABLE.store(api[1] & FEATURE_WP_HUGETLBFS_SHMEM != 0, Relaxed);
                Ok(Uffd(fd))
            }
            Err(e) => {
                let _ = os::close(fd);
                Err(e)
            }
        }
    }

    fn ioctl(self, request: usize, arg: *mut u64) -> Result<()> {
        // SAFETY: every caller passes the structure that belongs to the request.
        ret(unsafe { syscall3(nr::IOCTL, self.0 as usize, request, arg as usize) }).map(drop)
    }

    /// Registers a range for missing pages and, if asked, write protection.
    pub fn register(self, addr: usize, len: usize, write_protect: bool) -> Result<()> {
        let mode = REGISTER_MISSING | if write_protect { REGISTER_WP } else { 0 };
        let mut arg = [addr as u64, len as u64, mode, 0];
        self.ioctl(UFFDIO_REGISTER, arg.as_mut_ptr())
    }

    /// Unregisters a range.
    pub fn unregister(self, addr: usize, len: usize) -> Result<()> {
        let mut arg = [addr as u64, len as u64];
        self.ioctl(UFFDIO_UNREGISTER, arg.as_mut_ptr())
    }

    /// Fills missing pages at `dst` with `len` bytes from `src` (whole pages), write-protected if asked.
    ///
    /// # Safety
    /// `dst` must be managed memory whose missing pages the caller owns, and `src` readable.
    pub unsafe fn copy(self, dst: usize, src: *const u8, len: usize, write_protected: bool) -> Progress {
        let mode = COPY_DONTWAKE | if write_protected { COPY_WRITE_PROTECTED } else { 0 };
        let mut arg = [dst as u64, src as u64, len as u64, mode, 0];
        let result = self.ioctl(UFFDIO_COPY, arg.as_mut_ptr());
        Self::progress(result, arg[4] as i64, len)
    }

    /// Maps the kernel's zero page at missing pages of `len` bytes at `dst`.
    pub fn zero(self, dst: usize, len: usize) -> Progress {
        let mut arg = [dst as u64, len as u64, ZEROPAGE_DONTWAKE, 0];
        let result = self.ioctl(UFFDIO_ZEROPAGE, arg.as_mut_ptr());
        Self::progress(result, arg[3] as i64, len)
    }

    /// Moves the pages of `len` bytes at `src` to `dst`, leaving holes where `src` has none.
    ///
    /// # Safety
    /// Content vanishes from `src`: the caller must own the pages of both ranges.
    pub unsafe fn move_pages(self, dst: usize, src: usize, len: usize) -> Progress {
        let mut arg = [dst as u64, src as u64, len as u64, MOVE_ALLOW_SRC_HOLES | MOVE_DONTWAKE, 0];
        let result = self.ioctl(UFFDIO_MOVE, arg.as_mut_ptr());
        Self::progress(result, arg[4] as i64, len)
    }

    fn progress(result: Result<()>, done: i64, len: usize) -> Progress {
        match result {
            Ok(()) => Progress { done_bytes: len, error: None },
            // The kernel reports a part that was done as a positive count beside EAGAIN.
            Err(e) => Progress { done_bytes: if done > 0 { done as usize } else { 0 }, error: Some(e) },
        }
    }

    /// Sets or lifts write protection of the pages present in a range.
    pub fn write_protect(self, addr: usize, len: usize, protect: bool) -> Result<()> {
        // Lifting always says DONTWAKE: in SIGBUS mode nobody sleeps in the kernel on a fault.
        let mut arg = [addr as u64, len as u64, if protect { 1 } else { 2 }];
        self.ioctl(UFFDIO_WRITEPROTECT, arg.as_mut_ptr())
    }
}
