//! mprotect.
use super::common::*;
use super::insist;
use crate::arena::{address, page_of};
use crate::errno::{EINVAL, ENOMEM};
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::rlimits;
use outswap_core::machine::Prot;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::nr;
use outswap_sys::os::{PROT_EXEC, PROT_WRITE};

/// `mprotect`.
pub fn mprotect(live: &Live, addr: usize, len: usize, prot: usize) -> isize {
    let aligned = len.checked_next_multiple_of(PAGE_BYTES);
    let (true, Some(len)) = (addr.is_multiple_of(PAGE_BYTES), aligned) else {
        return pass(nr::MPROTECT, [addr, len, prot, 0, 0, 0]);
    };
    // PROT_SEM has no meaning here; the grow bits need a stack, which is the kernel's, as when a library wants it executable.
    if prot & !(PROT_ALL | 8) != 0 {
        return if len > 0 && overlaps_managed(addr, len) {
            EINVAL
        } else {
            pass(nr::MPROTECT, [addr, len, prot, 0, 0, 0])
        };
    }
    if addr.checked_add(len).is_none() {
        return ENOMEM;
    }
    if prot & PROT_ALL != 0 {
        insist::of_this_process().used(addr, len);
    }
    let _call = live.pager.begin_call();
    for (i, (addr, len)) in split(live, addr, len).into_iter().enumerate() {
        if len == 0 {
            continue;
        }
        if i != 1 {
            let result = pass(nr::MPROTECT, [addr, len, prot, 0, 0, 0]);
            if result < 0 {
                return result;
            }
            continue;
        }
        // As in the kernel, what lies before a hole is changed.
        let (mut page, end) = (page_of(addr).0, page_of(addr).0 + (len / PAGE_BYTES) as u32);
        while page < end {
            match live.pager.next_in(page, end) {
                Some(vma) if vma.first.0 == page => {
                    if vma.foreign {
                        // What a call can reach is told by the map, too.
                        if !live.pager.note_protection(vma.first, vma.count, Prot((prot & PROT_ALL) as u8)) {
                            return ENOMEM;
                        }
                        let result =
                            pass(nr::MPROTECT, [address(vma.first), vma.count as usize * PAGE_BYTES, prot, 0, 0, 0]);
                        if result < 0 {
                            // It needs no more entries than the way here.
                            let _ = live.pager.note_protection(vma.first, vma.count, vma.prot);
                            return result;
                        }
                    } else {
                        let becomes_data =
                            prot & PROT_WRITE != 0 && vma.prot.0 & Prot::WRITE.0 == 0 && vma.object.is_none();
                        let more = if becomes_data { vma.count } else { 0 };
                        if !rlimits::allow(live, 0, more as u64)
                            || !live.pager.protect(vma.first, vma.count, Prot((prot & PROT_ALL) as u8))
                        {
                            return ENOMEM;
                        }
                    }
                    page = vma.end();
                }
                _ => return ENOMEM,
            }
        }
    }
    0
}

/// Whether any managed memory is executable.
pub fn has_code(live: &Live) -> bool {
    let mut page = 0;
    while let Some(vma) = live.pager.next_in(page, u32::MAX) {
        if !vma.foreign && usize::from(vma.prot.0) & PROT_EXEC != 0 {
            return true;
        }
        page = vma.end();
    }
    false
}
