//! What the families of memory calls share.
use crate::arena::address;
use crate::gate;
use crate::live::Live;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::nr;
use outswap_sys::os::{MADV_POPULATE_READ, MADV_POPULATE_WRITE, PROT_EXEC, PROT_READ, PROT_WRITE};

/// All access that there is.
pub const PROT_ALL: usize = PROT_READ | PROT_WRITE | PROT_EXEC;

/// A length in pages; `None` where there are not so many.
pub fn pages(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.checked_add(PAGE_BYTES - 1)? / PAGE_BYTES).ok()
}

/// A length in whole pages as the kernel rounds it: beyond the largest it wraps to none.
pub fn whole_pages(bytes: usize) -> usize {
    bytes.wrapping_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1)
}

/// Issues a call that is none of ours, from the gate because an argument may look like managed memory.
pub fn pass(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: it is the program's own call on memory that the runtime does not manage.
    unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// The part of a range before, in, and after the stretch of managed memory that it touches. No range that a program can name touches
/// two: there is much between them that cannot be unmapped without ending it.
pub fn split(live: &Live, addr: usize, len: usize) -> [(usize, usize); 3] {
    let end = addr.saturating_add(len);
    let (first, last) = live.stretch(addr, len);
    let clamp = |a: usize| a.clamp(first, last);
    [
        (addr, end.min(first).saturating_sub(addr)),
        (clamp(addr), clamp(end) - clamp(addr)),
        (addr.max(last), end.saturating_sub(addr.max(last))),
    ]
}

/// Calls `f` for each mapping in a managed range; returns whether there was no hole.
pub fn each(live: &Live, first: PageNo, count: u32, mut f: impl FnMut(Vma) -> isize) -> Result<bool, isize> {
    let (mut page, end, mut whole) = (first.0, first.0 + count, true);
    while let Some(vma) = live.pager.next_in(page, end) {
        whole &= vma.first.0 == page;
        let result = f(vma);
        if result < 0 {
            return Err(result);
        }
        page = vma.end();
    }
    Ok(whole && page >= end)
}

/// Has the kernel fill those of a range's pages that are left to it and not filled yet, as far as the range's access goes.
pub fn have_filled(live: &Live, first: PageNo, count: u32) {
    if live.pager.untrapped_pages() == 0 {
        return;
    }
    let (at, len) = (address(first), count as usize * PAGE_BYTES);
    if pass(nr::MADVISE, [at, len, MADV_POPULATE_WRITE, 0, 0, 0]) < 0 {
        pass(nr::MADVISE, [at, len, MADV_POPULATE_READ, 0, 0, 0]);
    }
}
