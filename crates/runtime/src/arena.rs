//! The managed range of addresses.
use crate::gate;
use crate::layout::{ARENA, ARENA_SIZES, BSS_PAGE, bss};
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::{Result, nr, os};

/// Address of a page.
pub fn address(page: PageNo) -> usize {
    match (page.0 as usize).checked_sub(BSS_PAGE) {
        None => ARENA + page.0 as usize * PAGE_BYTES,
        Some(n) => bss().0 + n * PAGE_BYTES,
    }
}

/// The page around an address of managed memory, or the one after all of a stretch of it for the address after that.
pub fn page_of(addr: usize) -> PageNo {
    let (start, end) = bss();
    if start <= addr && addr <= end && end > 0 {
        return PageNo((BSS_PAGE + (addr - start) / PAGE_BYTES) as u32);
    }
    PageNo(((addr - ARENA) / PAGE_BYTES) as u32)
}

/// Reserves the managed range, as large as the address-space limit allows. Returns how many bytes that are.
pub fn reserve() -> Option<usize> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE | os::MAP_FIXED_NOREPLACE;
    ARENA_SIZES.iter().copied().find(|&bytes| {
        // Tables and staging need a part of a limited address space too: half as much again must be free.
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing; the probe is given back at once.
        unsafe {
            let Ok(probe) =
                os::mmap(0, bytes / 2, os::PROT_NONE, os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE, -1, 0)
            else {
                return false;
            };
            let at = gate::call(nr::MMAP, ARENA, bytes, os::PROT_NONE, flags, usize::MAX, 0);
            let _ = os::munmap(probe, bytes / 2);
            if at == ARENA as isize {
                // What is in dumps is told later (`dumps`).
                let _ = gate::call3(nr::MADVISE, ARENA, bytes, os::MADV_DONTDUMP);
            }
            at == ARENA as isize
        }
    })
}

/// Makes a range that something else was mapped over reserved address space again. False where the kernel has no room for another mapping,
/// which it takes in the middle of one; then nothing has changed.
pub fn remap(first: PageNo, count: u32) -> bool {
    let len = count as usize * PAGE_BYTES;
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE | os::MAP_FIXED;
    // SAFETY: the range is managed address space whose mapping the program gave up.
    let at = unsafe { gate::call(nr::MMAP, address(first), len, os::PROT_NONE, flags, usize::MAX, 0) };
    at == address(first) as isize
}
/// Makes pages a mapping of the kernel's of their own, by advice that does nothing else for anonymous memory.
///
/// # Errors
/// `ENOMEM` where the kernel has no room for another mapping.
pub fn keep_apart(first: PageNo, count: usize) -> Result<()> {
    // SAFETY: no content changes.
    unsafe { os::madvise(address(first), count * PAGE_BYTES, os::MADV_RANDOM) }
}
