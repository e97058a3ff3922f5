//! The memory calls, as the program sees them: mmap, munmap, mremap, mprotect, madvise, mlock, mincore and their kin, for
//! ranges that may straddle managed and other memory.
//!
//! Every function returns what the kernel's call would: a value, or a negative error number.

mod common;
mod lock;
mod insist;
mod near;
mod map;
mod library;
mod protect;
mod advise;
mod mremap;
mod brk;
mod shm;
mod query;

pub use advise::{hand_over_wipes, madvise};
pub use library::{is_linkers, know as know_linker, load};
pub use lock::{may_hold, unlock_all};
pub use map::{grow, mmap, munmap};
pub use near::know as know_code;
pub use protect::has_code;

use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::errno::{EINVAL, error};
use crate::layout::overlaps_managed;
use crate::live::Live;
use brk::brk;
use lock::{mlock, mlockall};
use mremap::mremap;
use outswap_core::units::PageNo;
use outswap_sys::{Errno, nr};
use protect::mprotect;
use query::{mincore, msync};
use shm::{shmat, shmdt};

/// Whether a range is one mapping of the kernel's, in managed memory.
pub fn is_kernels(live: &Live, addr: usize, len: usize) -> bool {
    let inside = live.is_managed(addr, len).then(|| live.pager.find(page_of(addr))).flatten();
    inside.is_some_and(|vma| vma.foreign && len <= address(PageNo(vma.end())) - addr)
}

/// Serves a memory call; `None` where `nr` is none.
pub fn call(live: &Live, nr: usize, args: [usize; 6], cx: &mut Cx) -> Option<isize> {
    let [a, b, c, ..] = args;
    // What is an int to the kernel: the register may have anything above it.
    let int = |arg: usize| arg as u32 as usize;
    Some(match nr {
        nr::MMAP => mmap(live, cx, args),
        nr::MUNMAP => munmap(live, a, b),
        nr::MPROTECT => mprotect(live, a, b, c),
        // Protection keys need a key that the runtime would have to carry along; -1 means none.
        nr::PKEY_MPROTECT if args[3] as i32 == -1 => mprotect(live, a, b, c),
        nr::PKEY_MPROTECT => EINVAL,
        nr::MADVISE => madvise(live, cx, a, b, int(c)),
        nr::MREMAP => mremap(live, cx, args),
        nr::MLOCK | nr::MUNLOCK => mlock(live, cx, nr, a, b, 0),
        nr::MLOCK2 => mlock(live, cx, nr, a, b, int(c)),
        nr::MLOCKALL | nr::MUNLOCKALL => mlockall(live, cx, nr, int(a)),
        nr::MINCORE => mincore(live, cx, a, b, c),
        nr::MSYNC => msync(live, a, b, int(c)),
        nr::BRK => brk(live, cx, a),
        nr::REMAP_FILE_PAGES if is_kernels(live, a, b) => common::pass(nr, args),
        nr::REMAP_FILE_PAGES => EINVAL,
        // What is sealed could not be evicted. As on kernels before 6.10.
        nr::MSEAL if overlaps_managed(a, b) => error(Errno::ENOSYS),
        nr::SHMAT if overlaps_managed(b, 1) => shmat(live, a, b, int(c)),
        nr::SHMDT if overlaps_managed(a, 1) => shmdt(live, a),
        _ => return None,
    })
}
