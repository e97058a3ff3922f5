//! The memory calls, as the program sees them: mmap, munmap, mremap, mprotect, madvise, mlock, mincore and their kin, for
//! ranges that may straddle managed and other memory.
//!
//! Every function returns what the kernel's call would: a value, or a negative error number.
use crate::layout::*;
use crate::live::{Live, live};
use crate::machine::{address, page_of};
use crate::{assist, gate, rlimits};
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::pager::{Context, Fault};
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_store::Worker;
use outswap_sys::os::*;
use outswap_sys::{Errno, nr};

type Cx = Context<Worker>;

const fn error(e: Errno) -> isize {
    -(e.0 as isize)
}
const EINVAL: isize = error(Errno::EINVAL);
const ENOMEM: isize = error(Errno::ENOMEM);
const EEXIST: isize = error(Errno::EEXIST);
const EPERM: isize = error(Errno::EPERM);
const EAGAIN: isize = error(Errno::EAGAIN);
const EFAULT: isize = error(Errno::EFAULT);

const PROT_ALL: usize = PROT_READ | PROT_WRITE | PROT_EXEC;
/// Pages locked at most: an eighth of the budget must stay free to evict.
const LOCK_SHARE: u64 = 8;

fn pages(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.checked_add(PAGE_BYTES - 1)? / PAGE_BYTES).ok()
}

/// A length in whole pages as the kernel rounds it: beyond the largest it wraps to none.
fn whole_pages(bytes: usize) -> usize {
    bytes.wrapping_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1)
}

/// Whether a process can have all of a range. What goes beyond is refused before anything of it is touched.
fn in_user_space(addr: usize, len: usize) -> bool {
    addr <= TASK_SIZE && len <= TASK_SIZE - addr
}

impl Live {
    fn arena_end(&self) -> usize {
        ARENA + self.pager.machine.arena_bytes.load(core::sync::atomic::Ordering::Relaxed)
    }

    /// Whether the whole of a range is in this process's managed range.
    fn managed(&self, addr: usize, len: usize) -> bool {
        addr >= ARENA && addr <= self.arena_end() && len <= self.arena_end() - addr
    }
}

/// Issues a call that is none of ours, from the gate because an argument may look like managed memory.
fn pass(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: it is the program's own call on memory that the runtime does not manage.
    unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// The part of a range before, in, and after the managed range.
fn split(live: &Live, addr: usize, len: usize) -> [(usize, usize); 3] {
    let end = addr.saturating_add(len);
    let clamp = |a: usize| a.clamp(ARENA, live.arena_end());
    [
        (addr, end.min(ARENA).saturating_sub(addr)),
        (clamp(addr), clamp(end) - clamp(addr)),
        (addr.max(live.arena_end()), end.saturating_sub(addr.max(live.arena_end()))),
    ]
}

/// Whether a mapping is of the kind that the runtime manages. Code stays with the kernel, as do stacks.
fn wanted(prot: usize, flags: usize) -> bool {
    let excluded = MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB | MAP_32BIT;
    flags & MAP_ANONYMOUS != 0 && flags & MAP_TYPE == MAP_PRIVATE && flags & excluded == 0 && prot & !PROT_ALL == 0
}

/// Large mappings start at large borders, so that folios and allocators' own alignments fit.
fn alignment(count: u32) -> u32 {
    match count {
        0..16 => 1,
        16..1024 => 16,
        _ => 512,
    }
}

/// What mimalloc reserves in advance (`arena_reserve`). Under a limit that would leave the program too little of it; refused, the
/// allocator maps what it needs.
const ALLOCATOR_RESERVE_BYTES: usize = 1 << 30;

/// Whether the program's limits allow a new mapping. One over others adds only what was not mapped there; outside of the managed
/// range that is not known before, and counts from then on.
fn may_map(live: &Live, [addr, len, prot, flags, ..]: [usize; 6]) -> bool {
    if !rlimits::is_limited() {
        return true;
    }
    if flags & MAP_NORESERVE != 0 && len == ALLOCATOR_RESERVE_BYTES {
        return false;
    }
    let Some(count) = pages(len) else { return false };
    let private_data = flags & MAP_TYPE == MAP_PRIVATE && prot & PROT_WRITE != 0;
    let mut new = [count as u64, if private_data { count as u64 } else { 0 }];
    if flags & MAP_FIXED != 0 {
        if !live.managed(addr, count as usize * PAGE_BYTES) {
            return true;
        }
        let _ = each(live, page_of(addr), count, |vma| {
            new[0] -= vma.count as u64;
            if vma.prot.0 & Prot::WRITE.0 != 0 {
                new[1] = new[1].saturating_sub(vma.count as u64);
            }
            0
        });
    }
    rlimits::allow(live, new[0], new[1])
}

/// Whether the program's limits allow a mapping to grow.
fn may_grow(live: &Live, vma: &Vma, pages: u32) -> bool {
    let data = if vma.prot.0 & Prot::WRITE.0 != 0 { pages } else { 0 };
    rlimits::allow(live, pages as u64, data as u64)
}

/// `mmap`.
pub fn mmap(live: &Live, cx: &mut Cx, [addr, len, prot, flags, fd, offset]: [usize; 6]) -> isize {
    let args = [addr, len, prot, flags, fd, offset];
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if !may_map(live, args) {
        return ENOMEM;
    }
    if fixed && overlaps_arena(addr, len) {
        return mmap_fixed(live, cx, args);
    }
    if fixed || !wanted(prot, flags) || prot & PROT_EXEC != 0 || len == 0 {
        return pass(nr::MMAP, args);
    }
    // A reservation that is larger than the managed range, or than what is left of it, is the kernel's to make.
    let Some(count) = pages(len) else { return pass(nr::MMAP, [0, len, prot, flags, fd, offset]) };
    let _call = live.pager.begin_call();
    // A hint is a wish: it is followed where it can be.
    let hinted = addr.is_multiple_of(PAGE_BYTES) && live.managed(addr, count as usize * PAGE_BYTES) && addr != 0;
    let first = if hinted && live.pager.is_free(page_of(addr), count) {
        page_of(addr)
    } else {
        match live.pager.gap(count, alignment(count)) {
            Some(first) => first,
            None => return pass(nr::MMAP, [0, len, prot, flags, fd, offset]),
        }
    };
    finish_mmap(live, cx, first, count, prot, flags)
}

fn finish_mmap(live: &Live, cx: &mut Cx, first: PageNo, count: u32, prot: usize, flags: usize) -> isize {
    let on_fault = flags & MAP_LOCKED == 0 && live.future_on_fault();
    let lock = flags & MAP_LOCKED != 0 || live.lock_future();
    if !live.pager.map(first, count, Prot(prot as u8), false) {
        return ENOMEM;
    }
    let locked = match (lock, on_fault) {
        (true, true) => lock_on_fault(live, first, count),
        (true, false) => prot == 0 || lock_range(live, cx, first, count),
        (false, _) => true,
    };
    if !locked {
        live.pager.unmap(first, count);
        return EAGAIN;
    }
    if flags & MAP_POPULATE != 0 && prot != 0 {
        populate(live, cx, first, count);
    }
    address(first) as isize
}

/// Touches pages for `MAP_POPULATE`, as far as that evicts nothing.
fn populate(live: &Live, cx: &mut Cx, first: PageNo, count: u32) {
    for i in 0..count as usize {
        if live.pager.used_pages() + 64 > live.pager.limit_pages() {
            return;
        }
        live.pager.fault(first.plus(i), cx);
    }
}

fn mmap_fixed(live: &Live, cx: &mut Cx, args: [usize; 6]) -> isize {
    let [addr, len, prot, flags, ..] = args;
    let Some(count) = pages(len) else { return ENOMEM };
    if !addr.is_multiple_of(PAGE_BYTES) || len == 0 {
        return EINVAL;
    }
    if !live.managed(addr, count as usize * PAGE_BYTES) {
        return ENOMEM;
    }
    let first = page_of(addr);
    let _call = live.pager.begin_call();
    if flags & MAP_FIXED_NOREPLACE != 0 && !live.pager.is_free(first, count) {
        return EEXIST;
    }
    if wanted(prot, flags) {
        if !unmap(live, first, count) {
            return ENOMEM;
        }
        return finish_mmap(live, cx, first, count, prot, flags);
    }
    // Something that the kernel manages goes over managed memory: try it out elsewhere first, so that an error changes
    // nothing.
    let probe = pass(nr::MMAP, [0, len, prot, flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE), args[4], args[5]]);
    if probe < 0 && probe > -4096 {
        return probe;
    }
    pass(nr::MUNMAP, [probe as usize, len, 0, 0, 0, 0]);
    if !unmap(live, first, count) || !live.pager.vacate(first, count) {
        return ENOMEM;
    }
    let at = pass(nr::MMAP, [addr, len, prot, flags & !MAP_FIXED_NOREPLACE | MAP_FIXED, args[4], args[5]]);
    if at as usize != addr || !live.pager.map_foreign(first, count, Prot((prot & PROT_ALL) as u8)) {
        live.restore(first, count);
        return if at as usize == addr { ENOMEM } else { at };
    }
    at
}

/// Unmaps a managed range; what the kernel manages there is given back first.
fn unmap(live: &Live, first: PageNo, count: u32) -> bool {
    let (mut page, end) = (first.0, first.0 + count);
    while let Some(vma) = live.pager.next_in(page, end) {
        if vma.foreign {
            live.restore(vma.first, vma.count);
        } else if vma.locked {
            live.add_locked(-(vma.count as i64), vma.on_fault);
        }
        page = vma.end();
    }
    live.forget_wipe(first, count);
    live.pager.unmap(first, count)
}

/// `munmap`.
pub fn munmap(live: &Live, addr: usize, len: usize) -> isize {
    if !overlaps_arena(addr, len) {
        return pass(nr::MUNMAP, [addr, len, 0, 0, 0, 0]);
    }
    if !addr.is_multiple_of(PAGE_BYTES) || len == 0 || !in_user_space(addr, len) {
        return EINVAL;
    }
    let [before, inside, after] = split(live, addr, whole_pages(len));
    // First what may fail.
    for (addr, len) in [before, after] {
        if len > 0 {
            let result = pass(nr::MUNMAP, [addr, len, 0, 0, 0, 0]);
            if result < 0 {
                return result;
            }
        }
    }
    if inside.1 > 0 {
        let _call = live.pager.begin_call();
        if !unmap(live, page_of(inside.0), (inside.1 / PAGE_BYTES) as u32) {
            return ENOMEM;
        }
    }
    0
}

/// Calls `f` for each mapping in a managed range; returns whether there was no hole.
fn each(live: &Live, first: PageNo, count: u32, mut f: impl FnMut(Vma) -> isize) -> Result<bool, isize> {
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

/// `mprotect`.
pub fn mprotect(live: &Live, addr: usize, len: usize, prot: usize) -> isize {
    let aligned = len.checked_next_multiple_of(PAGE_BYTES);
    let (true, Some(len)) = (addr.is_multiple_of(PAGE_BYTES), aligned) else {
        return pass(nr::MPROTECT, [addr, len, prot, 0, 0, 0]);
    };
    // PROT_SEM has no meaning here; the grow bits need a stack.
    if prot & !(PROT_ALL | 8) != 0 {
        return EINVAL;
    }
    if addr.checked_add(len).is_none() {
        return ENOMEM;
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
                        let result =
                            pass(nr::MPROTECT, [address(vma.first), vma.count as usize * PAGE_BYTES, prot, 0, 0, 0]);
                        if result < 0 {
                            return result;
                        }
                    } else {
                        let more =
                            if prot & PROT_WRITE != 0 && vma.prot.0 & Prot::WRITE.0 == 0 { vma.count } else { 0 };
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

/// Advice numbers that `os` does not name.
mod advice {
    pub const NORMAL: usize = 0;
    pub const SEQUENTIAL: usize = 2;
    pub const REMOVE: usize = 9;
    pub const DONTFORK: usize = 10;
    pub const DOFORK: usize = 11;
    pub const MERGEABLE: usize = 12;
    pub const UNMERGEABLE: usize = 13;
    pub const HUGEPAGE: usize = 14;
    pub const NOHUGEPAGE: usize = 15;
    pub const DODUMP: usize = 17;
    pub const WIPEONFORK: usize = 18;
    pub const KEEPONFORK: usize = 19;
    pub const POPULATE_READ: usize = 22;
    pub const POPULATE_WRITE: usize = 23;
    pub const DONTNEED_LOCKED: usize = 24;
    pub const COLLAPSE: usize = 25;
}

/// `madvise`.
pub fn madvise(live: &Live, cx: &mut Cx, addr: usize, len: usize, what: usize) -> isize {
    let aligned = len.checked_next_multiple_of(PAGE_BYTES);
    let (true, Some(len)) = (addr.is_multiple_of(PAGE_BYTES), aligned) else { return EINVAL };
    let Some(end) = addr.checked_add(len) else { return EINVAL };
    let known = what <= MADV_WILLNEED
        || (MADV_DONTNEED..=advice::KEEPONFORK).contains(&what) && !(5..=7).contains(&what)
        || (MADV_COLD..=advice::COLLAPSE).contains(&what);
    if !known {
        // An advice of a kernel to come might drop pages behind the runtime's back.
        return if overlaps_arena(addr, len) { EINVAL } else { pass(nr::MADVISE, [addr, len, what, 0, 0, 0]) };
    }
    if addr == end {
        return 0;
    }
    let _call = live.pager.begin_call();
    let mut hole = false;
    for (i, (addr, len)) in split(live, addr, len).into_iter().enumerate() {
        if len == 0 {
            continue;
        }
        let outcome = if i != 1 {
            Err(pass(nr::MADVISE, [addr, len, what, 0, 0, 0]))
        } else {
            each(live, page_of(addr), (len / PAGE_BYTES) as u32, |vma| {
                if vma.foreign {
                    pass(nr::MADVISE, [address(vma.first), vma.count as usize * PAGE_BYTES, what, 0, 0, 0])
                } else {
                    advise(live, cx, vma, what)
                }
            })
        };
        match outcome {
            Ok(whole) => hole |= !whole,
            Err(0) => {}
            Err(ENOMEM) if i != 1 => hole = true,
            Err(error) => return error,
        }
    }
    if hole { ENOMEM } else { 0 }
}

fn advise(live: &Live, cx: &mut Cx, vma: Vma, what: usize) -> isize {
    let pager = &live.pager;
    match what {
        MADV_DONTNEED | MADV_FREE if vma.locked => return EINVAL,
        MADV_DONTNEED | MADV_FREE | advice::DONTNEED_LOCKED if vma.kept => {
            pager.discard(vma.first, vma.count);
            let mut pins = assist::CallPins::new(live);
            if pins.pin(cx, address(vma.first), vma.count as usize * PAGE_BYTES).is_ok() {
                pager.keep(vma.first, vma.count);
            }
            pins.release();
        }
        // Dropping freed pages at once is one of the moments at which the kernel may do so.
        MADV_DONTNEED | MADV_FREE => pager.discard(vma.first, vma.count),
        advice::DONTNEED_LOCKED => {
            pager.discard(vma.first, vma.count);
            if vma.locked && !vma.on_fault {
                live.add_locked(-(vma.count as i64), false);
                lock_range(live, cx, vma.first, vma.count);
            }
        }
        MADV_WILLNEED => pager.will_need(vma.first, vma.count, cx),
        MADV_COLD | MADV_PAGEOUT if vma.locked => return EINVAL,
        MADV_COLD | MADV_PAGEOUT => pager.page_out(vma.first, vma.count, what == MADV_PAGEOUT, cx),
        // Only shared memory has a hole to punch; huge pages are not made of managed memory.
        advice::REMOVE | advice::COLLAPSE => return EINVAL,
        advice::WIPEONFORK => return wipe_on_fork(live, cx, vma.first, vma.count),
        advice::DONTFORK => {
            end_wipe(live, vma.first, vma.count);
            if !live.add_wipe(vma.first, vma.count, true) {
                return EAGAIN;
            }
        }
        advice::KEEPONFORK | advice::DOFORK => end_wipe(live, vma.first, vma.count),
        advice::POPULATE_READ | advice::POPULATE_WRITE => {
            let need = if what == advice::POPULATE_READ { PROT_READ } else { PROT_WRITE };
            if vma.prot.0 as usize & need == 0 {
                return EFAULT;
            }
            for i in 0..vma.count as usize {
                pager.fault(vma.first.plus(i), cx);
            }
        }
        advice::NORMAL..=advice::SEQUENTIAL
        | advice::MERGEABLE
        | advice::UNMERGEABLE
        | advice::HUGEPAGE
        | advice::NOHUGEPAGE => {}
        MADV_DONTDUMP | advice::DODUMP => {
            return pass(nr::MADVISE, [address(vma.first), vma.count as usize * PAGE_BYTES, what, 0, 0, 0]);
        }
        _ => return EINVAL,
    }
    0
}

/// Has forked children find a range empty. A copy of what it holds must not be in what they inherit of the store either, so it
/// is not evicted from here on.
fn wipe_on_fork(live: &Live, cx: &mut Cx, first: PageNo, count: u32) -> isize {
    if !may_hold(live, live.wiped_pages() + count as u64) {
        return EAGAIN;
    }
    live.forget_wipe(first, count);
    if !live.add_wipe(first, count, false) {
        end_wipe(live, first, count);
        return EAGAIN;
    }
    match live.pager.keep_private(first, count, cx) {
        Fault::Done => 0,
        _ => {
            end_wipe(live, first, count);
            EAGAIN
        }
    }
}

/// Children get a range as it is again.
fn end_wipe(live: &Live, first: PageNo, count: u32) {
    live.forget_wipe(first, count);
    live.pager.end_private(first, count);
}

/// Whether the budget has room for so many pages that stay, beside those that are locked.
fn may_hold(live: &Live, pages: u64) -> bool {
    let limit = live.pager.limit_pages();
    live.present_locked_pages() + pages <= limit - limit / LOCK_SHARE
}

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;

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
        if first.0 + old == vma.end() && live.managed(addr, new_bytes) && live.pager.is_free(tail, extra) {
            return match live.pager.map(tail, extra, vma.prot, false) {
                true if vma.on_fault => {
                    lock_on_fault(live, tail, extra);
                    addr as isize
                }
                true if vma.locked && !lock_range(live, cx, tail, extra) => {
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
        if !live.managed(new_addr, new_bytes) {
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
    if vma.locked && !unlock(live, &Vma { first, count: old, ..vma }) {
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
        lock_like(live, cx, &vma, first, old);
        live.pager.unmap(target, new);
        return ENOMEM;
    }
    if vma.prot != Prot::READ_WRITE {
        live.pager.protect(target, new, vma.prot);
    }
    lock_like(live, cx, &vma, target, new);
    move_wipes(live, cx, first, target, moved);
    if flags & MREMAP_DONTUNMAP == 0 {
        unmap(live, first, old);
    } else if vma.prot != Prot::READ_WRITE {
        live.pager.protect(first, old, vma.prot);
    }
    address(target) as isize
}

/// What forked children are not to have of a range that moves, they do not get in its new place.
fn move_wipes(live: &Live, cx: &mut Cx, from: PageNo, to: PageNo, count: u32) {
    let (mut page, end) = (from.0, from.0 + count);
    while let Some((first, n, gone)) = live.next_wipe(page, end) {
        page = first.0 + n;
        let target = PageNo(to.0 + (first.0 - from.0));
        live.forget_wipe(first, n);
        if gone {
            live.add_wipe(target, n, true);
        } else {
            wipe_on_fork(live, cx, target, n);
        }
    }
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
        if !assist::copy_in(live, cx, address(first.plus(i)), &mut page) {
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

/// Locks a range as the one is locked that it takes the place of, as far as there is room: the move is not undone for that.
fn lock_like(live: &Live, cx: &mut Cx, vma: &Vma, first: PageNo, count: u32) {
    if vma.on_fault {
        lock_on_fault(live, first, count);
    } else if vma.locked {
        lock_range(live, cx, first, count);
    }
}

/// Brings a managed range in and locks it; false where the budget has no room for that.
fn lock_range(live: &Live, cx: &mut Cx, first: PageNo, count: u32) -> bool {
    if !may_hold(live, live.wiped_pages() + count as u64) {
        return false;
    }
    let Some(slot) = live.pager.pins.acquire(outswap_sys::os::gettid() as u32) else { return false };
    live.pager.pins.publish(slot, first, count);
    let (pinned, fault) = live.pager.pin(first, count, cx);
    let done = fault == Fault::Done && pinned == count && live.pager.set_locked(first, count, true, false);
    if done {
        live.add_locked(count as i64, false);
    }
    live.pager.pins.release(slot);
    done
}

/// Locks the pages of a managed range as they are touched, and those that are there. False where the map has no room.
fn lock_on_fault(live: &Live, first: PageNo, count: u32) -> bool {
    let done = live.pager.set_locked(first, count, true, true);
    if done {
        live.add_locked(count as i64, true);
    }
    done
}

/// Unlocks a mapping, or a part of one. False where the map has no room.
fn unlock(live: &Live, vma: &Vma) -> bool {
    let done = live.pager.set_locked(vma.first, vma.count, false, false);
    if done {
        live.add_locked(-(vma.count as i64), vma.on_fault);
    }
    done
}

/// `mlock`, `mlock2`, `munlock`.
pub fn mlock(live: &Live, cx: &mut Cx, nr: usize, addr: usize, len: usize, flags: usize) -> isize {
    const MLOCK_ONFAULT: usize = 1;
    let start = addr & !(PAGE_BYTES - 1);
    let Some(end) = start.checked_add(whole_pages(len.wrapping_add(addr - start))) else { return EINVAL };
    if nr == nr::MLOCK2 && flags & !MLOCK_ONFAULT != 0 {
        return EINVAL;
    }
    if start == end {
        return 0;
    }
    let _call = live.pager.begin_call();
    for (i, (addr, len)) in split(live, start, end - start).into_iter().enumerate() {
        if len == 0 {
            continue;
        }
        if i != 1 {
            let result = pass(nr, [addr, len, flags, 0, 0, 0]);
            if result < 0 {
                return result;
            }
            continue;
        }
        let first = page_of(addr);
        let count = (len / PAGE_BYTES) as u32;
        if nr != nr::MUNLOCK && !live.may_lock(count) {
            return if live.lock_limit_bytes() == 0 { EPERM } else { ENOMEM };
        }
        let mut next = first;
        let outcome = each(live, first, count, |vma| {
            // Nothing behind a hole is locked.
            if vma.first != next {
                return ENOMEM;
            }
            next = PageNo(vma.end());
            if vma.foreign {
                return pass(nr, [address(vma.first), vma.count as usize * PAGE_BYTES, flags, 0, 0, 0]);
            }
            if nr == nr::MUNLOCK {
                if vma.locked && !unlock(live, &vma) {
                    return ENOMEM;
                }
            } else if flags & MLOCK_ONFAULT != 0 {
                if !vma.locked && !lock_on_fault(live, vma.first, vma.count) {
                    return ENOMEM;
                }
            } else if vma.prot == Prot::NONE {
                // Nothing can be brought in for a program that may not read it.
                return ENOMEM;
            } else if !vma.locked || vma.on_fault {
                if !lock_range(live, cx, vma.first, vma.count) {
                    return ENOMEM;
                }
                if vma.locked {
                    live.add_locked(-(vma.count as i64), true);
                }
            }
            0
        });
        match outcome {
            Ok(true) => {}
            Ok(false) => return ENOMEM,
            Err(error) => return error,
        }
    }
    0
}

/// `mlockall` and `munlockall`. Other memory than managed is never evicted by us, and is not locked for the kernel: the
/// runtime's tables are large and mostly untouched.
pub fn mlockall(live: &Live, cx: &mut Cx, nr: usize, flags: usize) -> isize {
    const CURRENT: usize = 1;
    const FUTURE: usize = 2;
    const ONFAULT: usize = 4;
    let all = (live.arena_end() - ARENA) / PAGE_BYTES;
    let _call = live.pager.begin_call();
    if nr == nr::MUNLOCKALL {
        live.set_lock_future(false, false);
        let _ = each(live, PageNo(0), all as u32, |vma| {
            if vma.locked && !vma.foreign {
                unlock(live, &vma);
            }
            0
        });
        return 0;
    }
    if flags == 0 || flags & !(CURRENT | FUTURE | ONFAULT) != 0 || flags == ONFAULT {
        return EINVAL;
    }
    if !live.may_lock(0) {
        return EPERM;
    }
    if flags & CURRENT != 0 {
        let outcome = each(live, PageNo(0), all as u32, |vma| {
            if vma.foreign || vma.locked {
                return 0;
            }
            if flags & ONFAULT != 0 {
                if !live.may_lock(vma.count) || !lock_on_fault(live, vma.first, vma.count) {
                    return ENOMEM;
                }
            } else if vma.prot != Prot::NONE {
                if !live.may_lock(vma.count) || !lock_range(live, cx, vma.first, vma.count) {
                    return ENOMEM;
                }
            }
            0
        });
        if let Err(error) = outcome {
            return error;
        }
    }
    live.set_lock_future(flags & FUTURE != 0, flags & ONFAULT != 0);
    0
}

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
                let result = pass(nr::MINCORE, [addr, part, out.as_mut_ptr() as usize, 0, 0, 0]);
                if result < 0 {
                    return result;
                }
                continue;
            }
            let first = page_of(addr);
            let count = (part / PAGE_BYTES) as u32;
            if !live.pager.covered(first, count) {
                return ENOMEM;
            }
            for (i, out) in out[..count as usize].iter_mut().enumerate() {
                *out = matches!(live.pager.state(first.plus(i)), State::Resident | State::Isolated) as u8;
            }
        }
        if !assist::copy_out(live, cx, vec + at / PAGE_BYTES, &found[..step / PAGE_BYTES]) {
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
                    return 0;
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

/// Address space for `brk`, where the program keeps its own allocator: 64 GiB, or an eighth of a smaller managed range.
const BRK_PAGES: u32 = 1 << 24;

/// `brk`: the heap that grows by it is a managed mapping.
pub fn brk(live: &Live, addr: usize) -> isize {
    let _call = live.pager.begin_call();
    let mut heap = live.heap();
    if heap.start == 0 {
        let all = ((live.arena_end() - ARENA) / PAGE_BYTES) as u32;
        let room = BRK_PAGES.min(all / 8);
        // The gap is not mapped: the heap starts in its own corner, near the upper end, and other mappings start from below.
        let first = PageNo(all - room - live.pager.bottom().0 % room);
        if !live.pager.is_free(first, room) {
            return pass(nr::BRK, [addr, 0, 0, 0, 0, 0]);
        }
        heap.start = address(first);
        heap.end = heap.start;
        heap.limit = heap.start + room as usize * PAGE_BYTES;
    }
    if addr < heap.start || addr > heap.limit {
        return heap.end as isize;
    }
    let (old, new) = (heap.end.next_multiple_of(PAGE_BYTES), addr.next_multiple_of(PAGE_BYTES));
    let changed = match new.cmp(&old) {
        core::cmp::Ordering::Greater => {
            let count = ((new - old) / PAGE_BYTES) as u32;
            rlimits::allow(live, count as u64, count as u64)
                && live.pager.is_free(page_of(old), count)
                && live.pager.map(page_of(old), count, Prot::READ_WRITE, false)
        }
        core::cmp::Ordering::Less => unmap(live, page_of(new), ((old - new) / PAGE_BYTES) as u32),
        core::cmp::Ordering::Equal => true,
    };
    if changed {
        heap.end = addr;
    }
    heap.end as isize
}

/// `shmat` to an address in the managed range.
fn shmat(live: &Live, id: usize, addr: usize, flags: usize) -> isize {
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
    if !addr.is_multiple_of(PAGE_BYTES) || !live.managed(addr, count as usize * PAGE_BYTES) {
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
    let at = pass(nr::SHMAT, [id, addr, flags | SHM_REMAP, 0, 0, 0]);
    let prot = if flags & SHM_RDONLY != 0 { Prot::READ } else { Prot::READ_WRITE };
    if at as usize != addr || !live.pager.map_foreign(first, count, prot) {
        live.restore(first, count);
        return if at as usize == addr { ENOMEM } else { at };
    }
    at
}

/// `shmdt` of a segment in the managed range.
fn shmdt(live: &Live, addr: usize) -> isize {
    let _call = live.pager.begin_call();
    let inside = live.managed(addr, 1) && addr.is_multiple_of(PAGE_BYTES);
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
    }
    result
}

/// Serves a memory call; `None` where `nr` is none.
pub fn call(nr: usize, args: [usize; 6], cx: &mut Cx) -> Option<isize> {
    let live = live();
    let [a, b, c, ..] = args;
    Some(match nr {
        nr::MMAP => mmap(live, cx, args),
        nr::MUNMAP => munmap(live, a, b),
        nr::MPROTECT => mprotect(live, a, b, c),
        // Protection keys need a key that the runtime would have to carry along; -1 means none.
        nr::PKEY_MPROTECT if args[3] as isize == -1 => mprotect(live, a, b, c),
        nr::PKEY_MPROTECT => EINVAL,
        nr::MADVISE => madvise(live, cx, a, b, c),
        nr::MREMAP => mremap(live, cx, args),
        nr::MLOCK | nr::MUNLOCK => mlock(live, cx, nr, a, b, 0),
        nr::MLOCK2 => mlock(live, cx, nr, a, b, c),
        nr::MLOCKALL | nr::MUNLOCKALL => mlockall(live, cx, nr, a),
        nr::MINCORE => mincore(live, cx, a, b, c),
        nr::MSYNC => msync(live, a, b, c),
        nr::BRK => brk(live, a),
        nr::REMAP_FILE_PAGES => EINVAL,
        // What is sealed could not be evicted. As on kernels before 6.10.
        nr::MSEAL if overlaps_arena(a, b) => error(Errno::ENOSYS),
        nr::SHMAT if overlaps_arena(b, 1) => shmat(live, a, b, c),
        nr::SHMDT if overlaps_arena(a, 1) => shmdt(live, a),
        _ => return None,
    })
}
