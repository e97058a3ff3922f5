//! brk.
use super::common::*;
use super::lock::may_map_locked;
use super::map::{finish_mmap, unmap};
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::layout::ARENA;
use crate::limits::BRK_PAGES;
use crate::live::Live;
use crate::rlimits;
use outswap_core::machine::Prot;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::nr;

/// How far from the kernel's break an address can be for a caller that goes by it.
const KERNEL_HEAP_MAX_BYTES: usize = 1 << 40;

/// `brk`: the heap that grows by it is a managed mapping.
pub fn brk(live: &Live, cx: &mut Cx, addr: usize) -> isize {
    let _call = live.pager.begin_call();
    let mut heap = live.heap();
    if addr != 0 && !(ARENA..live.arena_end()).contains(&addr) {
        // A C library that was used before this process was set up (by code that runs before all constructors) has the kernel's
        // break, and takes another that is above what it asked for for a success. It may give back what it has there. It gets no
        // more, and makes its heap of mappings, which are managed.
        let kernel = pass(nr::BRK, [0; 6]);
        if (kernel as usize).abs_diff(addr) < KERNEL_HEAP_MAX_BYTES {
            return if addr < kernel as usize { pass(nr::BRK, [addr, 0, 0, 0, 0, 0]) } else { kernel };
        }
    }
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
                && may_map_locked(live, false, count).is_ok()
                && finish_mmap(live, cx, page_of(old), count, None, Prot::READ_WRITE.0 as usize, 0) > 0
        }
        core::cmp::Ordering::Less => unmap(live, page_of(new), ((old - new) / PAGE_BYTES) as u32),
        core::cmp::Ordering::Equal => true,
    };
    if changed {
        heap.end = addr;
    }
    heap.end as isize
}
