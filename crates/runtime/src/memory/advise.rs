//! madvise, and what forked children are not to get.
use super::common::*;
use super::lock::{may_hold, mlock_range};
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::dumps::DUMPS;
use crate::errno::{EACCES, EAGAIN, EFAULT, EINVAL, ENOMEM};
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::pins::CallPins;
use outswap_core::fault::Fault;
use outswap_core::protection::Access;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::nr;
use outswap_sys::os::*;

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
    pub const WIPEONFORK: usize = 18;
    pub const KEEPONFORK: usize = 19;
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
        return if overlaps_managed(addr, len) { EINVAL } else { pass(nr::MADVISE, [addr, len, what, 0, 0, 0]) };
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
            // These end at the first page that cannot be had, all others where all is done that can be.
            let ends_at_hole = matches!(what, MADV_POPULATE_READ | MADV_POPULATE_WRITE);
            let mut next = page_of(addr);
            each(live, page_of(addr), (len / PAGE_BYTES) as u32, |vma| {
                if ends_at_hole && vma.first != next {
                    return ENOMEM;
                }
                next = PageNo(vma.end());
                if vma.foreign {
                    if what == MADV_DONTDUMP {
                        // Nor is what the kernel manages in the range to be shown later, with what lies around it.
                        live.pager.machine.show_in_dumps(vma.first, vma.count as usize);
                        DUMPS.hide();
                    }
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
    if vma.object.is_some()
        && let Some(value) = advise_shared(live, &vma, what)
    {
        return value;
    }
    match what {
        MADV_DONTNEED | MADV_FREE if vma.locked => return EINVAL,
        MADV_DONTNEED | MADV_FREE | advice::DONTNEED_LOCKED if vma.kept => {
            pager.discard(vma.first, vma.count);
            let mut pins = CallPins::new(live);
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
                live.mlocks.add(-(vma.count as i64), false);
                mlock_range(live, cx, vma.first, vma.count);
            }
        }
        MADV_WILLNEED => pager.will_need(vma.first, vma.count, cx),
        MADV_COLD | MADV_PAGEOUT if vma.locked => return EINVAL,
        MADV_COLD | MADV_PAGEOUT => pager.page_out(vma.first, vma.count, what == MADV_PAGEOUT, cx),
        // Only shared memory has a hole to punch; huge pages are not made of managed memory.
        advice::REMOVE | advice::COLLAPSE => return EINVAL,
        advice::WIPEONFORK => return wipe_on_fork(live, cx, vma.first, vma.count),
        advice::DONTFORK => {
            if !live.wipes.add(vma.first, vma.count, true) {
                return EAGAIN;
            }
        }
        advice::KEEPONFORK | advice::DOFORK if !live.wipes.may_cut(vma.first, vma.count, 0) => return EAGAIN,
        advice::KEEPONFORK => end_wipe(live, vma.first, vma.count),
        advice::DOFORK => live.wipes.forget_kind(vma.first, vma.count, true),
        MADV_POPULATE_READ | MADV_POPULATE_WRITE => {
            let need = if what == MADV_POPULATE_READ { PROT_READ } else { PROT_WRITE };
            if vma.prot.0 as usize & need == 0 {
                return EINVAL;
            }
            let access = if what == MADV_POPULATE_READ { Access::Read } else { Access::Write };
            for i in 0..vma.count as usize {
                match pager.fault(vma.first.plus(i), access, cx) {
                    Fault::NoMemory | Fault::Full => return ENOMEM,
                    Fault::Corrupt | Fault::Unreadable => return EFAULT,
                    Fault::Done | Fault::NotMapped => {}
                }
            }
            have_filled(live, vma.first, vma.count);
        }
        advice::NORMAL..=advice::SEQUENTIAL
        | advice::MERGEABLE
        | advice::UNMERGEABLE
        | advice::HUGEPAGE
        | advice::NOHUGEPAGE => {}
        MADV_DONTDUMP | MADV_DODUMP => {
            if what == MADV_DONTDUMP {
                pager.machine.show_in_dumps(vma.first, vma.count as usize);
                DUMPS.hide();
            }
            return pass(nr::MADVISE, [address(vma.first), vma.count as usize * PAGE_BYTES, what, 0, 0, 0]);
        }
        _ => return EINVAL,
    }
    0
}

/// Advice that means something else for shared memory, whose content is the object's and not the mapping's; `None` for other
/// advice.
fn advise_shared(live: &Live, vma: &Vma, what: usize) -> Option<isize> {
    Some(match what {
        MADV_DONTNEED | advice::REMOVE if vma.locked => EINVAL,
        // The content stays.
        MADV_DONTNEED | advice::DONTNEED_LOCKED => 0,
        MADV_FREE | advice::WIPEONFORK => EINVAL,
        advice::REMOVE if vma.prot.0 as usize & PROT_WRITE == 0 => EACCES,
        advice::REMOVE => {
            live.pager.discard(vma.first, vma.count);
            0
        }
        // A child that is not to have it must not be given it: it is whole by now (`whole`).
        advice::DONTFORK => EAGAIN,
        _ => return None,
    })
}

/// Has forked children find a range empty. A copy of what it holds must not be in what they inherit of the store either, so it
/// is not evicted from here on.
fn wipe_on_fork(live: &Live, cx: &mut Cx, first: PageNo, count: u32) -> isize {
    let held = live.wipes.pages_in(first.0, first.0 + count);
    if !may_hold(live, u64::from(count - held)) || !live.wipes.may_cut(first, count, 1) {
        return EAGAIN;
    }
    live.wipes.forget_kind(first, count, false);
    if !live.wipes.add(first, count, false) {
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

/// Children do not find a range empty any more.
fn end_wipe(live: &Live, first: PageNo, count: u32) {
    live.wipes.forget_kind(first, count, false);
    live.pager.end_private(first, count);
}

/// Whether a range can move and grow by so many pages with what forked children are not to have of it; `stays`: it is to hold that in its
/// old place, too.
pub fn may_move_wipes(live: &Live, first: PageNo, count: u32, more: u32, stays: bool) -> bool {
    let (end, wipes) = (first.0 + count, &live.wipes);
    let ranges = wipes.ranges_in(first.0, end);
    if ranges == 0 {
        return true;
    }
    let grows = if wipes.next(end - 1, end, false).is_some() { more } else { 0 };
    let again = if stays { wipes.pages_in(first.0, end) } else { 0 };
    // Each may be cut, and go on behind what moves.
    wipes.has_room(2 * ranges + 2) && may_hold(live, u64::from(grows + again))
}

/// What forked children are not to have of a range that moves, they do not get in its new place, nor in the old one where that `stays`.
pub fn move_wipes(live: &Live, cx: &mut Cx, from: PageNo, to: PageNo, count: u32, stays: bool) {
    let end = from.0 + count;
    for gone in [false, true] {
        let mut page = from.0;
        while let Some((first, n)) = live.wipes.next(page, end, gone) {
            page = first.0 + n;
            let target = PageNo(to.0 + (first.0 - from.0));
            if !stays {
                live.wipes.forget_kind(first, n, gone);
            }
            if gone {
                live.wipes.add(target, n, true);
            } else {
                wipe_on_fork(live, cx, target, n);
            }
        }
    }
}

/// The pages from `first` on are of what the page before them is: a mapping has grown.
pub fn extend_wipes(live: &Live, cx: &mut Cx, first: PageNo, count: u32) {
    let is = |gone: bool| live.wipes.next(first.0 - 1, first.0, gone).is_some();
    if is(false) {
        wipe_on_fork(live, cx, first, count);
    }
    if is(true) {
        live.wipes.add(first, count, true);
    }
}

/// Tells the kernel the same of memory that it has now, from `to` on.
pub fn hand_over_wipes(live: &Live, from: PageNo, count: u32, to: usize) {
    for (gone, advice) in [(false, advice::WIPEONFORK), (true, advice::DONTFORK)] {
        let mut page = from.0;
        while let Some((first, n)) = live.wipes.next(page, from.0 + count, gone) {
            page = first.0 + n;
            let at = to + (first.0 - from.0) as usize * PAGE_BYTES;
            pass(nr::MADVISE, [at, n as usize * PAGE_BYTES, advice, 0, 0, 0]);
        }
    }
}
