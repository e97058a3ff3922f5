//! mremap.
use super::advise::move_wipes;
use super::common::*;
use super::lock::{mlock_like, mlock_on_fault, mlock_range, munlock_vma};
use super::map::{alignment, unmap};
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENOMEM};
use crate::layout::{TASK_SIZE, overlaps_arena};
use crate::live::Live;
use crate::pins::copy_in;
use crate::rlimits;
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::nr;
use outswap_sys::os::*;

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;

/// Whether the program's limits allow a mapping to grow.
fn may_grow(live: &Live, vma: &Vma, pages: u32) -> bool {
    let data = if vma.prot.0 & Prot::WRITE.0 != 0 { pages } else { 0 };
    rlimits::allow(live, pages as u64, data as u64)
}

/// `mremap`.
pub fn mremap(live: &Live, cx: &mut Cx, [addr, old_len, new_len, flags, new_addr, _]: [usize; 6]) -> isize {
    let args = [addr, old_len, new_len, flags, new_addr, 0];
    let to_arena = flags & MREMAP_FIXED != 0 && overlaps_arena(new_addr, new_len.max(1));
    if !overlaps_arena(addr, old_len.max(1)) {
        // Another mapping is to be moved over managed memory: no program is known to do that, and refusing is safe.
        return if to_arena { EINVAL } else { pass(nr::MREMAP, args) };
    }
    if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
        || flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 && flags & MREMAP_MAYMOVE == 0
        || !addr.is_multiple_of(PAGE_BYTES)
        || new_len == 0
        || flags & MREMAP_FIXED != 0 && !new_addr.is_multiple_of(PAGE_BYTES)
    {
        return EINVAL;
    }
    // What wraps to no length is one; what is too long lies in no mapping, or fits nowhere.
    if whole_pages(new_len) == 0 || new_len > TASK_SIZE {
        return EINVAL;
    }
    let Some(old) = pages(whole_pages(old_len)) else { return EFAULT };
    let Some(new) = pages(new_len) else { return ENOMEM };
    if flags & MREMAP_FIXED != 0 && !in_user_space(new_addr, new_len) {
        return EINVAL;
    }
    if flags & MREMAP_DONTUNMAP != 0 && old != new {
        return EINVAL;
    }
    let (old_bytes, new_bytes) = (old as usize * PAGE_BYTES, new as usize * PAGE_BYTES);
    if flags & MREMAP_FIXED != 0
        && addr < new_addr.saturating_add(new_bytes)
        && new_addr < addr.saturating_add(old_bytes)
    {
        return EINVAL;
    }
    let first = page_of(addr);
    let _call = live.pager.begin_call();
    let Some(mut vma) = live.pager.find(first) else { return EFAULT };
    if vma.foreign {
        return mremap_foreign(live, vma, args);
    }
    // What the runtime holds for itself divides no mapping of the program's.
    while let Some(next) = live.pager.find(PageNo(vma.end())) {
        let alike = Vma { kept: vma.kept, private: vma.private, first: vma.first, count: vma.count, ..next } == vma;
        if first.0.saturating_add(old) < vma.end() || !alike {
            break;
        }
        vma.count += next.count;
    }
    // Zero pages of a private mapping cannot be duplicated.
    if old == 0 {
        return EINVAL;
    }
    if old > vma.end() - first.0 {
        return EFAULT;
    }
    let growth = if flags & MREMAP_DONTUNMAP != 0 { new } else { new.saturating_sub(old) };
    if !may_grow(live, &vma, growth) {
        return ENOMEM;
    }
    if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) == 0 {
        if new <= old {
            if new < old && !unmap(live, first.plus(new as usize), old - new) {
                return ENOMEM;
            }
            return addr as isize;
        }
        let (tail, extra) = (first.plus(old as usize), new - old);
        if first.0 + old == vma.end() && live.is_managed(addr, new_bytes) && live.pager.is_free(tail, extra) {
            return match live.pager.map(tail, extra, vma.prot, false) {
                true if vma.on_fault => {
                    mlock_on_fault(live, tail, extra);
                    addr as isize
                }
                true if vma.locked && !mlock_range(live, cx, tail, extra) => {
                    live.pager.unmap(tail, extra);
                    EAGAIN
                }
                true => addr as isize,
                false => ENOMEM,
            };
        }
        if flags & MREMAP_MAYMOVE == 0 {
            return ENOMEM;
        }
    }
    let target = if flags & MREMAP_FIXED != 0 {
        if !live.is_managed(new_addr, new_bytes) {
            return if to_arena { ENOMEM } else { move_out(live, cx, first, old, new, vma, flags, new_addr) };
        }
        if !unmap(live, page_of(new_addr), new) {
            return ENOMEM;
        }
        page_of(new_addr)
    } else {
        match live.pager.gap(new, alignment(new)) {
            Some(target) => target,
            None => return ENOMEM,
        }
    };
    if !live.pager.map(target, new, Prot::READ_WRITE, false) {
        return ENOMEM;
    }
    let moved = old.min(new);
    if vma.prot != Prot::READ_WRITE {
        live.pager.protect(first, old, Prot::READ_WRITE);
    }
    if vma.locked && !munlock_vma(live, &Vma { first, count: old, ..vma }) {
        live.pager.unmap(target, new);
        return ENOMEM;
    }
    let done = live.pager.move_pages(first, target, moved, cx);
    if done < moved {
        let back = live.pager.move_pages(target, first, done, cx);
        assert!(back == done, "pages can go back to where they came from");
        if vma.prot != Prot::READ_WRITE {
            live.pager.protect(first, old, vma.prot);
        }
        mlock_like(live, cx, &vma, first, old);
        live.pager.unmap(target, new);
        return ENOMEM;
    }
    if vma.prot != Prot::READ_WRITE {
        live.pager.protect(target, new, vma.prot);
    }
    mlock_like(live, cx, &vma, target, new);
    move_wipes(live, cx, first, target, moved);
    if flags & MREMAP_DONTUNMAP == 0 {
        unmap(live, first, old);
    } else if vma.prot != Prot::READ_WRITE {
        live.pager.protect(first, old, vma.prot);
    }
    address(target) as isize
}

/// Moves managed memory to a fixed address outside the managed range: it leaves management.
#[allow(clippy::too_many_arguments)]
fn move_out(live: &Live, cx: &mut Cx, first: PageNo, old: u32, new: u32, vma: Vma, flags: usize, to: usize) -> isize {
    let map_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    let at = pass(nr::MMAP, [to, new as usize * PAGE_BYTES, PROT_READ | PROT_WRITE, map_flags, usize::MAX, 0]);
    if at as usize != to {
        return at;
    }
    if vma.prot != Prot::READ_WRITE {
        live.pager.protect(first, old, Prot::READ_WRITE);
    }
    for i in 0..old.min(new) as usize {
        if matches!(live.pager.state(first.plus(i)), State::Untouched | State::Zero) {
            continue;
        }
        let mut page = [0u8; PAGE_BYTES];
        if !copy_in(live, cx, address(first.plus(i)), &mut page) {
            pass(nr::MUNMAP, [to, new as usize * PAGE_BYTES, 0, 0, 0, 0]);
            return ENOMEM;
        }
        // SAFETY: the new mapping is writable and not known to anyone yet.
        unsafe { core::ptr::copy_nonoverlapping(page.as_ptr(), (to + i * PAGE_BYTES) as *mut u8, PAGE_BYTES) };
    }
    if vma.prot != Prot::READ_WRITE {
        pass(nr::MPROTECT, [to, new as usize * PAGE_BYTES, vma.prot.0 as usize, 0, 0, 0]);
    }
    if flags & MREMAP_DONTUNMAP == 0 {
        unmap(live, first, old);
    } else {
        live.pager.discard(first, old);
    }
    to as isize
}

/// `mremap` of something that the kernel manages, put over managed memory.
fn mremap_foreign(live: &Live, vma: Vma, args: [usize; 6]) -> isize {
    let [addr, old_len, new_len, flags, new_addr, _] = args;
    let (Some(old), Some(new)) = (pages(whole_pages(old_len)), pages(new_len)) else { return EINVAL };
    if flags & MREMAP_FIXED != 0 && overlaps_arena(new_addr, new_len) {
        return EINVAL;
    }
    let first = page_of(addr);
    if old > vma.end() - first.0 {
        return EFAULT;
    }
    // Growing in place would run into managed memory.
    if new > old && flags & MREMAP_MAYMOVE == 0 {
        return ENOMEM;
    }
    let mut args = args;
    if new > old && flags & MREMAP_FIXED == 0 {
        let at = pass(nr::MMAP, [0, new_len, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, usize::MAX, 0]);
        if at < 0 && at > -4096 {
            return at;
        }
        args[3] |= MREMAP_FIXED;
        args[4] = at as usize;
    }
    let result = pass(nr::MREMAP, args);
    if result < 0 && result > -4096 {
        return result;
    }
    if result as usize != addr && old > 0 && flags & MREMAP_DONTUNMAP == 0 {
        live.restore(first, old);
        live.pager.unmap(first, old);
    } else if result as usize == addr && new < old {
        live.restore(first.plus(new as usize), old - new);
        live.pager.unmap(first.plus(new as usize), old - new);
    }
    result
}
