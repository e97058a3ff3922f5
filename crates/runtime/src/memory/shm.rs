//! shmat and shmdt.
use super::common::*;
use super::map::{make_foreign, unmap};
use crate::arena::{address, page_of};
use crate::errno::{EINVAL, ENOMEM};
use crate::live::Live;
use outswap_core::machine::Prot;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::nr;

/// `shmat` to an address in the managed range.
pub fn shmat(live: &Live, id: usize, addr: usize, flags: usize) -> isize {
    const IPC_STAT: usize = 2;
    const SHM_RND: usize = 0o20000;
    const SHM_REMAP: usize = 0o40000;
    const SHM_RDONLY: usize = 0o10000;
    let mut stat = [0u64; 16];
    let result = pass(nr::SHMCTL, [id, IPC_STAT, stat.as_mut_ptr() as usize, 0, 0, 0]);
    if result < 0 {
        return result;
    }
    // `shm_segsz` follows the 48 bytes of `struct ipc64_perm`.
    let Some(count) = pages(stat[6] as usize) else { return EINVAL };
    let addr = if flags & SHM_RND != 0 { addr & !(PAGE_BYTES - 1) } else { addr };
    if !addr.is_multiple_of(PAGE_BYTES) || !live.is_managed(addr, count as usize * PAGE_BYTES) {
        return EINVAL;
    }
    let first = page_of(addr);
    let _call = live.pager.begin_call();
    if flags & SHM_REMAP == 0 && !live.pager.is_free(first, count) {
        return EINVAL;
    }
    // Tried out elsewhere first, so that an error changes nothing.
    let probe = pass(nr::SHMAT, [id, 0, flags & !(SHM_REMAP | SHM_RND), 0, 0, 0]);
    if probe < 0 && probe > -4096 {
        return probe;
    }
    pass(nr::SHMDT, [probe as usize, 0, 0, 0, 0, 0]);
    if !unmap(live, first, count) || !live.pager.vacate(first, count) {
        return ENOMEM;
    }
    let prot = if flags & SHM_RDONLY != 0 { Prot::READ } else { Prot::READ_WRITE };
    let args = [id, addr, flags | SHM_REMAP, 0, 0, 0];
    let (at, is_mapped) = make_foreign(live, first, count, prot, || pass(nr::SHMAT, args));
    if !is_mapped {
        live.restore(first, count);
        return if at as usize == addr { ENOMEM } else { at };
    }
    at
}

/// `shmdt` of a segment in the managed range.
pub fn shmdt(live: &Live, addr: usize) -> isize {
    let _call = live.pager.begin_call();
    let inside = live.is_managed(addr, 1) && addr.is_multiple_of(PAGE_BYTES);
    let Some(vma) = inside.then(|| live.pager.find(page_of(addr))).flatten().filter(|v| v.foreign) else {
        return EINVAL;
    };
    let result = pass(nr::SHMDT, [addr, 0, 0, 0, 0, 0]);
    if result == 0 {
        // What the map has as one mapping may be several segments: as far as the kernel has nothing now.
        let first = page_of(addr);
        let mut flag = 0u8;
        let is_gone =
            |page: &PageNo| pass(nr::MINCORE, [address(*page), PAGE_BYTES, &raw mut flag as usize, 0, 0, 0]) == ENOMEM;
        let count = (first.0..vma.end()).map(PageNo).take_while(is_gone).count() as u32;
        live.restore(first, count);
        live.pager.unmap(first, count);
        live.renew(first, count);
    }
    result
}
