//! mmap and munmap.
use super::common::*;
use super::lock::{may_map_locked, mlock_like, mlock_on_fault, mlock_range};
use super::{insist, near};
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::dumps::DUMPS;
use crate::errno::{EAGAIN, EEXIST, EINVAL, ENOMEM};
use crate::layout::{in_user_space, overlaps_managed};
use crate::live::Live;
use crate::{avoided, process, procfs, rlimits};
use outswap_control::Stat;
use outswap_core::machine::Prot;
use outswap_core::protection::Access;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::ObjectNo;
use outswap_sys::nr;
use outswap_sys::os::*;

/// What a mapping is for the runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The kernel's.
    Kernels,
    /// Managed.
    Private,
    /// Managed as long as this process alone has it.
    Shared,
}

/// Of which kind a mapping is. Stacks stay with the kernel.
fn kind(live: &Live, prot: usize, flags: usize) -> Kind {
    let excluded = MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB | MAP_32BIT;
    let managed = flags & MAP_ANONYMOUS != 0 && flags & excluded == 0 && prot & !PROT_ALL == 0;
    match flags & MAP_TYPE {
        MAP_PRIVATE if managed => Kind::Private,
        MAP_SHARED if managed && live.objects.is_open() => Kind::Shared,
        _ => Kind::Kernels,
    }
}

/// Whether a descriptor is open on memory without a name.
fn is_memfd(fd: usize) -> bool {
    if !avoided::may_name_files() {
        return false;
    }
    const HEAD: &[u8] = b"/memfd:";
    let path = procfs::of_descriptor(b"/proc/self/fd/", fd as i32);
    let mut target = [0u8; HEAD.len()];
    let (from, to) = (path.as_ptr() as usize, target.as_mut_ptr() as usize);
    pass(nr::READLINK, [from, to, target.len(), 0, 0, 0]) == HEAD.len() as isize && target == HEAD
}

/// Leaves a mapping to the kernel. Shared memory is counted: nothing of it is in the limit.
pub fn leave(live: &Live, args: [usize; 6]) -> isize {
    let at = pass(nr::MMAP, args);
    let [_, len, _, flags, fd, _] = args;
    let is_mapped = at >= 0 || at <= -4096;
    if is_mapped && flags & MAP_TYPE == MAP_SHARED && (flags & MAP_ANONYMOUS != 0 || is_memfd(fd)) {
        live.stat(Stat::SharedUnmanagedPages, len.div_ceil(PAGE_BYTES) as u64);
    }
    at
}

/// Large mappings start at large borders, so that folios and allocators' own alignments fit.
pub fn alignment(count: u32) -> u32 {
    match count {
        0..16 => 1,
        16..1024 => 16,
        _ => 512,
    }
}

/// What is as large may lie anywhere: its tables, some pages of 4 KiB, are little beside it.
const APART_PAGES: u32 = 4096;

/// The alignment of a hint as far as what is to lie there is as large, in pages, up to that of a huge page: who asks for a place at such
/// a border wants one, and would cut off what lies over it.
fn alignment_of_hint(addr: usize, count: u32) -> u32 {
    let pages = addr / PAGE_BYTES;
    if pages == 0 { 1 } else { 1 << pages.trailing_zeros().min(count.ilog2()).min(9) }
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
    let is_mimalloc = live.control.config.keep_malloc == 0;
    if is_mimalloc && flags & MAP_NORESERVE != 0 && len == ALLOCATOR_RESERVE_BYTES {
        return false;
    }
    let Some(count) = pages(len) else { return false };
    let private_data = flags & MAP_TYPE == MAP_PRIVATE && prot & PROT_WRITE != 0;
    let mut new = [count as u64, if private_data { count as u64 } else { 0 }];
    if flags & MAP_FIXED != 0 {
        if !live.is_managed(addr, count as usize * PAGE_BYTES) {
            return true;
        }
        let _ = each(live, page_of(addr), count, |vma| {
            // Of data, too, whatever it was, as in the kernel.
            new = new.map(|pages: u64| pages.saturating_sub(vma.count as u64));
            0
        });
    }
    rlimits::allow(live, new[0], new[1])
}

/// `mmap`.
pub fn mmap(live: &Live, cx: &mut Cx, [addr, len, prot, flags, fd, offset]: [usize; 6]) -> isize {
    let args = [addr, len, prot, flags, fd, offset];
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if !offset.is_multiple_of(PAGE_BYTES) {
        return EINVAL;
    }
    if !may_map(live, args) {
        return ENOMEM;
    }
    if fixed && overlaps_managed(addr, len) {
        return mmap_fixed(live, cx, args);
    }
    let kind = kind(live, prot, flags);
    let is_code = if prot & PROT_EXEC != 0 { near::is_code(addr, len) } else { near::is_wanted(addr, len) };
    if fixed || kind == Kind::Kernels || is_code || len == 0 {
        return leave(live, args);
    }
    // A reservation that is larger than the managed range, or than what is left of it, is the kernel's to make.
    let elsewhere = [0, len, prot, flags, fd, offset];
    let Some(count) = pages(len) else { return leave(live, elsewhere) };
    if let Err(error) = may_map_locked(live, flags & MAP_LOCKED != 0, count) {
        return error;
    }
    let insistence = insist::of_this_process();
    let wishes = addr != 0 && kind == Kind::Private && prot == 0 && !overlaps_managed(addr, len);
    if wishes && insistence.is_serious() {
        let at = leave(live, args);
        if at as usize == addr {
            return at;
        }
        if at >= 0 || at <= -4096 {
            pass(nr::MUNMAP, [at as usize, len, 0, 0, 0, 0]);
        }
    }
    let _call = live.pager.begin_call();
    // A hint is a wish: it is followed where it can be, unless it is little memory that is managed address space by chance alone, as are
    // random addresses, which V8 asks for: each would need tables of its own.
    let hinted = addr.is_multiple_of(PAGE_BYTES) && live.is_managed(addr, count as usize * PAGE_BYTES) && addr != 0;
    let followed = |first| {
        if count < APART_PAGES { live.pager.is_free_near(first, count) } else { live.pager.is_free(first, count) }
    };
    let first = if hinted && followed(page_of(addr)) {
        page_of(addr)
    } else {
        let align = alignment(count).max(alignment_of_hint(addr, count));
        let found = match live.grows.is_empty() {
            true => live.pager.gap(count, align),
            // What grows downwards keeps room below it: much where there is, for the allocator may map more than the program
            // would without it.
            false => [GROWTH_PAGES, GUARD_PAGES]
                .into_iter()
                .filter_map(|room| live.pager.gap(count.checked_add(room)?, align))
                .next(),
        };
        match found {
            Some(first) => first,
            None => return leave(live, elsewhere),
        }
    };
    let object = match kind {
        Kind::Shared => match live.objects.add(first, count) {
            None => return leave(live, elsewhere),
            object => object,
        },
        _ => None,
    };
    let at = finish_mmap(live, cx, first, count, object, prot, flags);
    if wishes && at > 0 {
        insistence.missed(at as usize, count as usize * PAGE_BYTES);
    }
    at
}

/// Maps a free range, of which there is the object already where it is shared.
pub fn finish_mmap(
    live: &Live,
    cx: &mut Cx,
    first: PageNo,
    count: u32,
    object: Option<ObjectNo>,
    prot: usize,
    flags: usize,
) -> isize {
    let on_fault = flags & MAP_LOCKED == 0 && live.mlocks.future_on_fault();
    let lock = flags & MAP_LOCKED != 0 || live.mlocks.future();
    let mapped = match object {
        None => live.pager.map(first, count, Prot(prot as u8), false),
        Some(object) => live.pager.map_shared(first, count, Prot(prot as u8), object),
    };
    if !mapped {
        object.inspect(|object| live.objects.free(*object));
        return ENOMEM;
    }
    let locked = match (lock, on_fault) {
        (true, true) => mlock_on_fault(live, first, count),
        // It may be given access later.
        (true, false) if prot == 0 => mlock_on_fault(live, first, count),
        (true, false) => mlock_range(live, cx, first, count),
        (false, _) => true,
    };
    if !locked {
        unmap(live, first, count);
        return EAGAIN;
    }
    if object.is_some() {
        live.stat(Stat::SharedPages, count as u64);
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
        live.pager.fault(first.plus(i), Access::Write, cx);
    }
    have_filled(live, first, count);
}

fn mmap_fixed(live: &Live, cx: &mut Cx, args: [usize; 6]) -> isize {
    let [addr, len, prot, flags, ..] = args;
    let Some(count) = pages(len) else { return ENOMEM };
    if !addr.is_multiple_of(PAGE_BYTES) || len == 0 {
        return EINVAL;
    }
    if !live.is_managed(addr, count as usize * PAGE_BYTES) {
        return ENOMEM;
    }
    let first = page_of(addr);
    let _call = live.pager.begin_call();
    if flags & MAP_FIXED_NOREPLACE != 0 && !live.pager.is_free(first, count) {
        return EEXIST;
    }
    // The kernel's could not grow where the managed range is reserved below.
    let grows = flags & MAP_GROWSDOWN != 0 && flags & MAP_TYPE == MAP_PRIVATE;
    let kind = kind(live, prot, if grows { flags & !(MAP_GROWSDOWN | MAP_STACK) } else { flags });
    if kind != Kind::Kernels {
        if let Err(error) = may_map_locked(live, flags & MAP_LOCKED != 0, count) {
            return error;
        }
        if !unmap(live, first, count) {
            return ENOMEM;
        }
        if grows && !live.grows.add(first, count, false) {
            return ENOMEM;
        }
        let object = if kind == Kind::Shared { live.objects.add(first, count) } else { None };
        if kind == Kind::Private || object.is_some() {
            let at = finish_mmap(live, cx, first, count, object, prot, flags);
            if grows && at < 0 {
                live.grows.forget(first, count);
            }
            return at;
        }
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
    let args = [addr, len, prot, flags & !MAP_FIXED_NOREPLACE | MAP_FIXED, args[4], args[5]];
    let (at, is_mapped) = make_foreign(live, first, count, Prot((prot & PROT_ALL) as u8), || leave(live, args));
    if !is_mapped {
        live.restore(first, count);
        return if at as usize == addr { ENOMEM } else { at };
    }
    at
}

/// Has the kernel manage a range that was vacated, by a call that gives its address. Returns what that gave, and whether the map
/// knows.
pub fn make_foreign(live: &Live, first: PageNo, count: u32, prot: Prot, call: impl FnOnce() -> isize) -> (isize, bool) {
    // To the map the range is free until the call is over.
    live.source().while_still(&live.pager.machine, || {
        let at = call();
        (at, at as usize == address(first) && live.pager.map_foreign(first, count, prot))
    })
}

/// Unmaps a managed range; what the kernel manages there is given back first.
pub fn unmap(live: &Live, first: PageNo, count: u32) -> bool {
    if !live.wipes.may_unmap(first, count) || !live.grows.may_cut(first, count, 0) {
        return false;
    }
    let (mut page, mut end) = (first.0, first.0 + count);
    let mut any_foreign = false;
    while let Some(vma) = live.pager.next_in(page, end) {
        if vma.foreign && !live.try_restore(vma.first, vma.count) {
            // What lies before it goes all the same, as with the kernel's own.
            end = vma.first.0;
            break;
        }
        any_foreign |= vma.foreign;
        page = vma.end();
    }
    let (is_all, count) = (end == first.0 + count, end - first.0);
    if count == 0 {
        return false;
    }
    page = first.0;
    while let Some(vma) = live.pager.next_in(page, end) {
        if vma.locked && !vma.foreign {
            live.mlocks.add(-(vma.count as i64), vma.on_fault);
        }
        page = vma.end();
    }
    live.wipes.forget(first, count);
    live.grows.forget(first, count);
    let unmapped = live.pager.unmap(first, count);
    if unmapped {
        rlimits::note_unmapped(live);
        if DUMPS.hides() {
            // What comes here next is not hidden.
            pass(nr::MADVISE, [address(first), count as usize * PAGE_BYTES, MADV_DODUMP, 0, 0, 0]);
        }
        end_objects(live, first, count);
        if any_foreign {
            live.renew(first, count);
        }
    }
    unmapped && is_all
}

/// Free pages that stay below a mapping that grows, and above another one with access, as the kernel keeps them by default.
const GUARD_PAGES: u32 = 256;
/// Pages that nothing is put into without need below a mapping that grows: what stacks may have by default, and the guard.
const GROWTH_PAGES: u32 = 2048 + GUARD_PAGES;

/// Whether a mapping that grows downwards (`MAP_GROWSDOWN`) now has a page that was touched below it.
pub fn grow(live: &Live, cx: &mut Cx, page: PageNo) -> bool {
    if live.grows.is_empty() {
        return false;
    }
    let _call = live.pager.begin_call();
    let all = live.pager.machine.pages();
    let Some(above) = live.pager.next_in(page.0, all).filter(|vma| !vma.foreign) else { return false };
    if above.first.0 == page.0 {
        // Another thread's touch was first.
        return true;
    }
    let Some((first, pages)) = live.grows.next(above.first.0, all, false) else { return false };
    let count = above.first.0 - page.0;
    let size = (first.0 + pages).min(above.end()) - page.0;
    let near = page.0.saturating_sub(GUARD_PAGES);
    let mut may_be = first == above.first
        && size as u64 * PAGE_BYTES as u64 <= process::stack_limit_bytes()
        && rlimits::allow(live, count as u64, count as u64)
        && may_map_locked(live, above.locked, count).is_ok();
    let _ = each(live, PageNo(near), page.0 - near, |vma| {
        may_be &= vma.prot == Prot::NONE || live.grows.next(vma.end() - 1, vma.end(), false).is_some();
        0
    });
    if !may_be || !live.grows.grow(above.first, count) {
        return false;
    }
    if finish_mmap(live, cx, page, count, None, above.prot.0 as usize, 0) < 0 {
        live.grows.forget(page, count);
        return false;
    }
    if !live.mlocks.future() {
        mlock_like(live, cx, &above, page, count);
    }
    true
}

/// Frees the numbers of shared objects of which nothing is left in a range, and nowhere else.
fn end_objects(live: &Live, first: PageNo, count: u32) {
    for object in live.objects.mapped_in(first, count) {
        let (first, count) = live.objects.extent(object);
        let mut left = false;
        let _ = each(live, first, count, |vma| {
            left |= vma.object == Some(object);
            0
        });
        if !left {
            live.objects.free(object);
        }
    }
}

/// `munmap`.
pub fn munmap(live: &Live, addr: usize, len: usize) -> isize {
    if !overlaps_managed(addr, len) {
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
        let (first, count) = (page_of(inside.0), (inside.1 / PAGE_BYTES) as u32);
        if !unmap(live, first, count) {
            return ENOMEM;
        }
        insist::of_this_process().unmapped(addr, whole_pages(len));
    }
    0
}
