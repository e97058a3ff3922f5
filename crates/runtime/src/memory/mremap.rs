//! mremap.
use super::advise::{extend_wipes, hand_over_wipes, may_move_wipes, move_wipes};
use super::common::*;
use super::lock::{may_hold, may_map_locked, mlock_like, mlock_on_fault, mlock_range, munlock_vma};
use super::map::{alignment, unmap};
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENOMEM};
use crate::layout::{TASK_SIZE, in_user_space, overlaps_managed};
use crate::live::Live;
use crate::pins::copy_in;
use crate::rlimits;
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::nr;
use outswap_sys::os::*;

/// Whether the program's limits allow a mapping to grow.
fn may_grow(live: &Live, vma: &Vma, pages: u32) -> bool {
    let data = if vma.prot.0 & Prot::WRITE.0 != 0 { pages } else { 0 };
    rlimits::allow(live, pages as u64, data as u64)
}

/// What is asked for a range of managed memory. All pages are the program's.
struct Request {
    first: PageNo,
    /// How many pages it has, and is to have.
    old: u32,
    new: u32,
    flags: usize,
    new_addr: usize,
}

impl Request {
    /// Makes of a call's arguments what they ask for.
    ///
    /// # Errors
    /// The kernel's for what it refuses whatever is mapped.
    fn of([addr, old_len, new_len, flags, new_addr, _]: [usize; 6]) -> Result<Request, isize> {
        // Of what keeps its old place the new one is a wish, and judged all the same.
        let names_place = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
        if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
            || names_place && flags & MREMAP_MAYMOVE == 0
            || !addr.is_multiple_of(PAGE_BYTES)
            || new_len == 0
            || names_place && !new_addr.is_multiple_of(PAGE_BYTES)
        {
            return Err(EINVAL);
        }
        // What wraps to no length is one; what is too long lies in no mapping, or fits nowhere.
        if whole_pages(new_len) == 0 || new_len > TASK_SIZE {
            return Err(EINVAL);
        }
        let old = pages(whole_pages(old_len)).ok_or(EFAULT)?;
        let new = pages(new_len).ok_or(ENOMEM)?;
        if names_place && !in_user_space(new_addr, new_len) {
            return Err(EINVAL);
        }
        if flags & MREMAP_DONTUNMAP != 0 && old != new {
            return Err(EINVAL);
        }
        let (old_bytes, new_bytes) = (old as usize * PAGE_BYTES, new as usize * PAGE_BYTES);
        if names_place && addr < new_addr.saturating_add(new_bytes) && new_addr < addr.saturating_add(old_bytes) {
            return Err(EINVAL);
        }
        Ok(Request { first: page_of(addr), old, new, flags, new_addr })
    }

    fn new_bytes(&self) -> usize {
        self.new as usize * PAGE_BYTES
    }
    fn is_fixed(&self) -> bool {
        self.flags & MREMAP_FIXED != 0
    }
    fn keeps_old(&self) -> bool {
        self.flags & MREMAP_DONTUNMAP != 0
    }
}

/// `mremap`.
pub fn mremap(live: &Live, cx: &mut Cx, [addr, old_len, new_len, flags, new_addr, _]: [usize; 6]) -> isize {
    let args = [addr, old_len, new_len, flags, new_addr, 0];
    let to_arena = flags & MREMAP_FIXED != 0 && overlaps_managed(new_addr, new_len.max(1));
    if !overlaps_managed(addr, old_len.max(1)) {
        // Another mapping is to be moved over managed memory: no program is known to do that, and refusing is safe.
        return if to_arena { EINVAL } else { pass(nr::MREMAP, args) };
    }
    let mut asked = match Request::of(args) {
        Ok(asked) => asked,
        Err(error) => return error,
    };
    let _call = live.pager.begin_call();
    let Some(vma) = live.pager.find(asked.first) else { return EFAULT };
    if vma.foreign {
        return mremap_foreign(live, vma, args);
    }
    // Shared memory moves as the kernel's, and is so by now (`whole`).
    if vma.object.is_some() {
        return EAGAIN;
    }
    let vma = whole_mapping(live, vma, &asked);
    // Zero pages of a private mapping cannot be duplicated.
    if asked.old == 0 {
        return EINVAL;
    }
    if asked.old > vma.end() - asked.first.0 {
        let shrinks = asked.new <= asked.old && !asked.keeps_old();
        if !shrinks || !asked.is_fixed() {
            return if shrinks { shrink(live, asked.first, asked.old, asked.new) } else { EFAULT };
        }
        // What is cut off may be anything; what moves may not.
        if shrink(live, asked.first, asked.old, asked.new) == ENOMEM {
            return ENOMEM;
        }
        asked.old = asked.new;
        if asked.old > vma.end() - asked.first.0 {
            return EFAULT;
        }
    }
    let growth = if asked.keeps_old() { asked.new } else { asked.new.saturating_sub(asked.old) };
    if !may_grow(live, &vma, growth) {
        return ENOMEM;
    }
    let more = asked.new.saturating_sub(asked.old);
    let may_lock = || may_map_locked(live, true, more).is_ok() && (vma.on_fault || may_hold(live, u64::from(more)));
    if vma.locked && more > 0 && !may_lock() {
        return EAGAIN;
    }
    if !may_move_wipes(live, asked.first, asked.old.min(asked.new), more, asked.keeps_old()) {
        return ENOMEM;
    }
    if !asked.is_fixed() && !asked.keeps_old() {
        if let Some(result) = in_place(live, cx, &asked, &vma) {
            return result;
        }
    }
    if asked.is_fixed() && !to_arena {
        return move_out(live, cx, &asked, vma);
    }
    match target(live, &asked) {
        Some(target) => relocate(live, cx, &asked, &vma, target),
        None => ENOMEM,
    }
}

/// The mapping as the program knows it: what the runtime holds for itself divides none of the program's.
fn whole_mapping(live: &Live, mut vma: Vma, asked: &Request) -> Vma {
    while let Some(next) = live.pager.find(PageNo(vma.end())) {
        let alike = Vma { kept: vma.kept, private: vma.private, first: vma.first, count: vma.count, ..next } == vma;
        if asked.first.0.saturating_add(asked.old) < vma.end() || !alike {
            break;
        }
        vma.count += next.count;
    }
    vma
}

/// Shrinks a mapping, or lets it grow where it is. `None` where it has to move.
fn in_place(live: &Live, cx: &mut Cx, asked: &Request, vma: &Vma) -> Option<isize> {
    let &Request { first, old, new, flags, .. } = asked;
    let addr = address(first);
    if new <= old {
        return Some(shrink(live, first, old, new));
    }
    let (tail, extra) = (first.plus(old as usize), new - old);
    if first.0 + old == vma.end() && live.is_managed(addr, asked.new_bytes()) && live.pager.is_free(tail, extra) {
        if !live.pager.map(tail, extra, vma.prot, false) {
            return Some(ENOMEM);
        }
        if vma.on_fault {
            mlock_on_fault(live, tail, extra);
        } else if vma.locked && !mlock_range(live, cx, tail, extra) {
            live.pager.unmap(tail, extra);
            return Some(EAGAIN);
        }
        extend_wipes(live, cx, tail, extra);
        return Some(addr as isize);
    }
    (flags & MREMAP_MAYMOVE == 0).then_some(ENOMEM)
}

/// Cuts off what lies behind the first `new` pages of a range, whatever that is.
fn shrink(live: &Live, first: PageNo, old: u32, new: u32) -> isize {
    let is_cut = new == old || unmap(live, first.plus(new as usize), old - new);
    if is_cut { address(first) as isize } else { ENOMEM }
}

/// Where in managed memory a mapping moves to: the place asked for, once nothing is there, or one that is free.
fn target(live: &Live, asked: &Request) -> Option<PageNo> {
    if !asked.is_fixed() {
        // A hint, as for `mmap`.
        let at = asked.new_addr;
        let hinted = asked.keeps_old() && at != 0 && at.is_multiple_of(PAGE_BYTES);
        if hinted && live.is_managed(at, asked.new_bytes()) && live.pager.is_free(page_of(at), asked.new) {
            return Some(page_of(at));
        }
        return live.pager.gap(asked.new, alignment(asked.new));
    }
    let is_ours = live.is_managed(asked.new_addr, asked.new_bytes());
    (is_ours && unmap(live, page_of(asked.new_addr), asked.new)).then(|| page_of(asked.new_addr))
}

/// Moves a mapping within managed memory. What cannot go leaves everything as it was.
fn relocate(live: &Live, cx: &mut Cx, asked: &Request, vma: &Vma, target: PageNo) -> isize {
    let &Request { first, old, new, .. } = asked;
    if !live.pager.map(target, new, Prot::READ_WRITE, false) {
        return ENOMEM;
    }
    let moved = old.min(new);
    let protect = |first: PageNo, count: u32, prot: Prot| {
        if vma.prot != Prot::READ_WRITE {
            live.pager.protect(first, count, prot);
        }
    };
    protect(first, old, Prot::READ_WRITE);
    if vma.locked && !munlock_vma(live, &Vma { first, count: old, ..*vma }) {
        live.pager.unmap(target, new);
        return ENOMEM;
    }
    let done = live.pager.move_pages(first, target, moved, cx);
    if done < moved {
        let back = live.pager.move_pages(target, first, done, cx);
        assert!(back == done, "pages can go back to where they came from");
        protect(first, old, vma.prot);
        mlock_like(live, cx, vma, first, old);
        live.pager.unmap(target, new);
        return ENOMEM;
    }
    protect(target, new, vma.prot);
    mlock_like(live, cx, vma, target, new);
    move_wipes(live, cx, first, target, moved, asked.keeps_old());
    if new > old {
        extend_wipes(live, cx, target.plus(old as usize), new - old);
    }
    if asked.keeps_old() {
        protect(first, old, vma.prot);
    } else {
        unmap(live, first, old);
    }
    address(target) as isize
}

/// Moves managed memory to a fixed address outside the managed range: it leaves management.
fn move_out(live: &Live, cx: &mut Cx, asked: &Request, vma: Vma) -> isize {
    let &Request { first, old, new, new_addr: to, .. } = asked;
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
            if vma.prot != Prot::READ_WRITE {
                live.pager.protect(first, old, vma.prot);
            }
            return ENOMEM;
        }
        // SAFETY: the new mapping is writable and not known to anyone yet.
        unsafe { core::ptr::copy_nonoverlapping(page.as_ptr(), (to + i * PAGE_BYTES) as *mut u8, PAGE_BYTES) };
    }
    if vma.prot != Prot::READ_WRITE {
        pass(nr::MPROTECT, [to, new as usize * PAGE_BYTES, vma.prot.0 as usize, 0, 0, 0]);
    }
    hand_over_wipes(live, first, old.min(new), to);
    if asked.keeps_old() {
        live.pager.discard(first, old);
        if vma.prot != Prot::READ_WRITE {
            live.pager.protect(first, old, vma.prot);
        }
    } else {
        unmap(live, first, old);
    }
    to as isize
}

/// `mremap` of something that the kernel manages, put over managed memory.
fn mremap_foreign(live: &Live, vma: Vma, args: [usize; 6]) -> isize {
    let [addr, old_len, new_len, flags, new_addr, _] = args;
    let (Some(old), Some(new)) = (pages(whole_pages(old_len)), pages(new_len)) else { return EINVAL };
    if flags & MREMAP_FIXED != 0 && overlaps_managed(new_addr, new_len) {
        return EINVAL;
    }
    let first = page_of(addr);
    if old > vma.end() - first.0 {
        let shrinks = (1..=old).contains(&new) && flags & MREMAP_DONTUNMAP == 0;
        if !shrinks || flags & MREMAP_FIXED == 0 {
            return if shrinks { shrink(live, first, old, new) } else { EFAULT };
        }
        if shrink(live, first, old, new) == ENOMEM {
            return ENOMEM;
        }
        // It is whole by now, or the kernel says that it is not.
        let cut = [addr, new as usize * PAGE_BYTES, new_len, flags, new_addr, 0];
        return if new > vma.end() - first.0 { EFAULT } else { mremap_foreign(live, vma, cut) };
    }
    // Growing in place would run into managed memory.
    if new > old && flags & MREMAP_MAYMOVE == 0 {
        return ENOMEM;
    }
    let (mut args, mut reserved) = (args, None);
    if new > old && flags & MREMAP_FIXED == 0 {
        let at = pass(nr::MMAP, [0, new_len, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, usize::MAX, 0]);
        if at < 0 && at > -4096 {
            return at;
        }
        args[3] |= MREMAP_FIXED;
        args[4] = at as usize;
        reserved = Some(at as usize);
    }
    let result = pass(nr::MREMAP, args);
    if result < 0 && result > -4096 {
        if let Some(at) = reserved {
            pass(nr::MUNMAP, [at, new_len, 0, 0, 0, 0]);
        }
        return result;
    }
    if result as usize != addr && old > 0 && flags & MREMAP_DONTUNMAP == 0 {
        live.restore(first, old);
        live.pager.unmap(first, old);
        live.renew(first, old);
    } else if result as usize == addr && new < old {
        live.restore(first.plus(new as usize), old - new);
        live.pager.unmap(first.plus(new as usize), old - new);
        live.renew(first.plus(new as usize), old - new);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ARENA;

    fn of(old_len: usize, new_len: usize, flags: usize, new_addr: usize) -> Result<(u32, u32), isize> {
        Request::of([ARENA, old_len, new_len, flags, new_addr, 0]).map(|asked| (asked.old, asked.new))
    }

    #[test]
    fn lengths_are_in_whole_pages() {
        assert_eq!(of(1, 4097, 0, 0), Ok((1, 2)));
        assert_eq!(of(0, 4096, MREMAP_MAYMOVE, 0), Ok((0, 1)), "refused once it is known what is mapped");
        assert_eq!(of(1, 0, 0, 0), Err(EINVAL));
        assert_eq!(of(usize::MAX, 1, 0, 0), Ok((0, 1)), "wraps as in the kernel");
        assert_eq!(of(1, usize::MAX, 0, 0), Err(EINVAL));
        assert_eq!(of(1, TASK_SIZE + 1, 0, 0), Err(EINVAL));
        assert_eq!(of(usize::MAX / 2, 1, 0, 0), Err(EFAULT));
    }

    #[test]
    fn flags_go_together_as_in_the_kernel() {
        let (may_move, fixed, dont_unmap) = (MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP);
        let elsewhere = ARENA + (1 << 20);
        assert_eq!(of(4096, 4096, 8, 0), Err(EINVAL));
        assert_eq!(of(4096, 4096, fixed, elsewhere), Err(EINVAL));
        assert_eq!(of(4096, 4096, dont_unmap, 0), Err(EINVAL));
        assert_eq!(of(4096, 4096, may_move | dont_unmap, 0), Ok((1, 1)));
        assert_eq!(of(4096, 8192, may_move | dont_unmap, 0), Err(EINVAL));
        assert_eq!(of(4096, 8192, may_move | fixed, elsewhere), Ok((1, 2)));
        assert_eq!(of(4096, 8192, may_move | fixed, elsewhere + 1), Err(EINVAL));
        assert_eq!(of(4096, 8192, may_move | fixed, TASK_SIZE), Err(EINVAL));
        let asked = Request::of([ARENA + 1, 4096, 4096, 0, 0, 0]);
        assert!(asked.is_err_and(|error| error == EINVAL));
    }

    #[test]
    fn nothing_moves_over_itself() {
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(of(8192, 4096, flags, ARENA + 4096), Err(EINVAL));
        assert_eq!(of(4096, 8192, flags, ARENA - 4096), Err(EINVAL));
        assert_eq!(of(8192, 4096, flags, ARENA), Err(EINVAL));
        assert_eq!(of(8192, 4096, flags, ARENA + 8192), Ok((2, 1)));
        assert_eq!(of(4096, 4096, flags, ARENA - 4096), Ok((1, 1)));
    }
}
