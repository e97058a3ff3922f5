//! brk.
use super::common::*;
use super::map::unmap;
use crate::arena::{address, page_of};
use crate::layout::ARENA;
use crate::limits::BRK_PAGES;
use crate::live::Live;
use crate::rlimits;
use outswap_core::machine::Prot;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::nr;

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
