//! mincore and msync.
use super::common::*;
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::errno::{EBUSY, EFAULT, EINVAL, ENOMEM};
use crate::layout::in_user_space;
use crate::live::Live;
use crate::pins::copy_out;
use crate::procfs;
use outswap_core::page::State;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES};
use outswap_sys::nr;

/// `mincore`.
pub fn mincore(live: &Live, cx: &mut Cx, addr: usize, len: usize, vec: usize) -> isize {
    if !addr.is_multiple_of(PAGE_BYTES) {
        return EINVAL;
    }
    if !in_user_space(addr, len) {
        return ENOMEM;
    }
    let len = whole_pages(len);
    let (start, mut at) = (addr, 0);
    while at < len {
        // In steps, so that what is found fits a buffer.
        let step = (len - at).min(1024 * PAGE_BYTES);
        let mut found = [0u8; 1024];
        for (i, (addr, part)) in split(live, addr + at, step).into_iter().enumerate() {
            if part == 0 {
                continue;
            }
            let out = &mut found[(addr - (start + at)) / PAGE_BYTES..];
            if i != 1 {
                let before = (addr - (start + at)) / PAGE_BYTES;
                let result = pass(nr::MINCORE, [addr, part, out.as_mut_ptr() as usize, 0, 0, 0]);
                // Of a part with a hole the kernel does not tell how far it came; what lies before it is known.
                let is_told = result == 0 || copy_out(live, cx, vec + at / PAGE_BYTES, &found[..before]);
                match result {
                    0 => continue,
                    _ if is_told => return result,
                    _ => return EFAULT,
                }
            }
            let first = page_of(addr);
            let count = (part / PAGE_BYTES) as u32;
            let mut seen = 0;
            let looked = each(live, first, count, |vma| {
                if vma.first.0 - first.0 == seen {
                    seen = vma.end() - first.0;
                }
                let out = &mut out[(vma.first.0 - first.0) as usize..][..vma.count as usize];
                if vma.foreign {
                    // A forked child may not have what the kernel manages there.
                    return pass(
                        nr::MINCORE,
                        [address(vma.first), out.len() * PAGE_BYTES, out.as_mut_ptr() as usize, 0, 0, 0],
                    );
                }
                for (at, out) in (0..).step_by(BLOCK_PAGES).zip(out.chunks_mut(BLOCK_PAGES)) {
                    let first = vma.first.plus(at);
                    let is_left = (0..out.len()).any(|i| live.pager.is_left_to_kernel(first.plus(i)));
                    let filled = if is_left { procfs::pages_there(address(first), out.len()) } else { None };
                    for (i, out) in out.iter_mut().enumerate() {
                        let page = first.plus(i);
                        *out = match filled.filter(|_| live.pager.is_left_to_kernel(page)) {
                            Some((filled, _)) => filled.contains(i),
                            None => matches!(live.pager.state(page), State::Resident | State::Isolated),
                        } as u8;
                    }
                }
                0
            });
            match looked {
                Ok(true) => {}
                // What lies before a hole is told of.
                Ok(false) => {
                    let told = (addr - (start + at)) / PAGE_BYTES + seen as usize;
                    return if copy_out(live, cx, vec + at / PAGE_BYTES, &found[..told]) { ENOMEM } else { EFAULT };
                }
                Err(error) => return error,
            }
        }
        if !copy_out(live, cx, vec + at / PAGE_BYTES, &found[..step / PAGE_BYTES]) {
            return EFAULT;
        }
        at += step;
    }
    0
}

/// `msync` of a range that touches managed memory: there is nothing to write back, only holes to report.
pub fn msync(live: &Live, addr: usize, len: usize, flags: usize) -> isize {
    if !addr.is_multiple_of(PAGE_BYTES) || flags & !7 != 0 || flags & 5 == 5 {
        return EINVAL;
    }
    let len = whole_pages(len);
    if addr.checked_add(len).is_none() {
        return ENOMEM;
    }
    let mut result = 0;
    for (i, (addr, len)) in split(live, addr, len).into_iter().enumerate() {
        if len == 0 {
            continue;
        }
        let part = if i != 1 {
            pass(nr::MSYNC, [addr, len, flags, 0, 0, 0])
        } else {
            match each(live, page_of(addr), (len / PAGE_BYTES) as u32, |vma| {
                if !vma.foreign {
                    const MS_INVALIDATE: usize = 2;
                    return if vma.locked && flags & MS_INVALIDATE != 0 { EBUSY } else { 0 };
                }
                pass(nr::MSYNC, [address(vma.first), vma.count as usize * PAGE_BYTES, flags, 0, 0, 0])
            }) {
                Ok(true) => 0,
                Ok(false) => ENOMEM,
                Err(error) => error,
            }
        };
        result = result.min(part);
    }
    result
}
