//! mprotect and SIGSEGV, for hosts that forbid userfaultfd: a page that is not resident has no access rights. Content goes in
//! and out through `/proc/self/mem`, which ignores access rights.
//!
//! Every border between resident and other pages is a border between two kernel mappings, of which a process may have 65,530
//! by default; so the more pages may be resident, the larger the groups in which they come in.
use crate::live::{live, try_live};
use crate::machine::{LiveMachine, address, drop_content};
use crate::{budget, gate};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::pins::mask_of;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::{Errno, Result, nr};

/// Most pages that come in together because of the kernel's limit of mappings.
const GRAIN_MAX_PAGES: u64 = 16;
/// The kernel's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;
static MAPPINGS_MAX: AtomicU64 = AtomicU64::new(MAPPINGS_DEFAULT);

/// Learns how many mappings a process may have (`vm.max_map_count`).
pub fn learn_limits() {
    let mut text = [0u8; 24];
    let len = budget::read_file(b"/proc/sys/vm/max_map_count\0", &mut text);
    let max = budget::number(&text[..len]);
    if max > 0 {
        MAPPINGS_MAX.store(max, Relaxed);
    }
}

/// See [`outswap_core::machine::Machine::grain`]. A resident group between pages that are not is a mapping, and so is what lies before it: half of
/// the mappings that a process may have are enough for that with groups of this size. The rest is the program's.
pub fn grain() -> usize {
    let Some(live) = try_live() else { return GRAIN_MAX_PAGES as usize };
    let groups_max = (MAPPINGS_MAX.load(Relaxed) / 4).max(1);
    let pages = live.pager.limit_pages().div_ceil(groups_max).clamp(1, GRAIN_MAX_PAGES);
    pages.next_power_of_two() as usize
}

fn set_access(first: PageNo, count: usize, prot: Prot) -> Result<()> {
    // SAFETY: managed memory is never accessed by Rust.
    unsafe { gate::call3(nr::MPROTECT, address(first), count * PAGE_BYTES, prot.0 as usize) }.map(drop)
}

fn transfer_bytes(nr: usize, fd: i32, local: usize, len: usize, remote: usize) -> bool {
    let mut done = 0;
    while done < len {
        // SAFETY: `local` is memory of ours of that length; `remote` is an offset in /proc/self/mem. The gate is used because
        // that offset lies in the managed range.
        let n = unsafe { gate::call(nr, fd as usize, local + done, len - done, remote + done, 0, 0) };
        match outswap_sys::ret(n) {
            Ok(0) => return false,
            Ok(n) => done += n,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// See [`outswap_core::machine::Machine::take`].
pub fn take(m: &LiveMachine, first: PageNo, _count: usize, present: u64, batch: BatchNo, offset: usize) -> u64 {
    let fd = m.mem_fd.load(Relaxed);
    let count = 64 - present.leading_zeros() as usize;
    // Within one mapping, the pages between are owned and without access too; beyond it, other things may lie.
    let whole = live().pager.find(first).is_some_and(|v| v.end() >= first.0 + count as u32);
    if whole && set_access(first, count, Prot::NONE).is_err() {
        restore(first, present);
        return 0;
    }
    let mut taken = 0u64;
    let mut at = 0;
    while at < count {
        at += (present >> at).trailing_zeros() as usize;
        let run = (!(present >> at)).trailing_zeros() as usize;
        let (page, frame) = (first.plus(at), m.batch_address(batch, offset + at));
        let closed = whole || set_access(page, run, Prot::NONE).is_ok();
        let copied = closed && transfer_bytes(nr::PREAD64, fd, frame, run * PAGE_BYTES, address(page));
        if copied && drop_content(page, run) {
            taken |= mask_of(at, run);
        }
        at += run;
    }
    restore(first, present & !taken);
    taken
}

fn restore(first: PageNo, pages: u64) {
    let mut at = 0;
    while at < 64 && pages >> at != 0 {
        at += (pages >> at).trailing_zeros() as usize;
        let run = (!(pages >> at)).trailing_zeros() as usize;
        restore_access(first.plus(at), run);
        at += run;
    }
}

/// Gives pages the access that their mappings say.
fn restore_access(first: PageNo, count: usize) -> bool {
    let (mut page, end) = (first.0, first.0 + count as u32);
    let mut ok = true;
    while let Some(vma) = live().pager.next_in(page, end) {
        if vma.prot != Prot::NONE && !vma.foreign {
            ok &= set_access(vma.first, vma.count as usize, vma.prot).is_ok();
        }
        page = vma.end();
    }
    ok
}

/// See [`outswap_core::machine::Machine::put`].
pub fn put(m: &LiveMachine, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
    let fd = m.mem_fd.load(Relaxed);
    let count = src.len() / PAGE_BYTES;
    if !transfer_bytes(nr::PWRITE64, fd, src.as_ptr() as usize, src.len(), address(first)) {
        let _ = drop_content(first, count);
        return (0, Some(PutError::Gone));
    }
    if !restore_access(first, count) {
        let _ = set_access(first, count, Prot::NONE);
        let _ = drop_content(first, count);
        return (0, Some(PutError::NoMemory));
    }
    (count, None)
}

/// See [`outswap_core::machine::Machine::put_zero`]. The kernel fills the pages with zeros when they are touched.
pub fn put_zero(first: PageNo, count: usize) -> (usize, Option<PutError>) {
    if !restore_access(first, count) {
        let _ = set_access(first, count, Prot::NONE);
        return (0, Some(PutError::NoMemory));
    }
    (count, None)
}

/// Takes the access from pages whose content is about to go. False where the kernel has no room for another mapping.
pub fn close(first: PageNo, count: usize) -> bool {
    set_access(first, count, Prot::NONE).is_ok()
}

/// See [`outswap_core::machine::Machine::transfer`].
pub fn transfer(m: &LiveMachine, from: PageNo, to: PageNo) -> bool {
    let mut page = [0u8; PAGE_BYTES];
    let fd = m.mem_fd.load(Relaxed);
    let at = page.as_mut_ptr() as usize;
    if !transfer_bytes(nr::PREAD64, fd, at, PAGE_BYTES, address(from)) || put(m, to, &page).0 == 0 {
        return false;
    }
    // Where there is no room for another mapping, the whole old range is closed when it is unmapped, right after this.
    let _ = close(from, 1);
    assert!(drop_content(from, 1), "managed pages can be dropped");
    true
}

/// See [`outswap_core::machine::Machine::protect`]. The map already says the new access; a page that is busy gets it from there.
pub fn protect(first: PageNo, count: usize, prot: Prot) -> bool {
    let pager = &live().pager;
    if prot == Prot::NONE {
        // Whoever owns a page now may have looked at the map before it changed.
        pager.settle_range(first, count as u32);
        return set_access(first, count, prot).is_ok();
    }
    // Reclaim must not take a page between the look at it and the change: it would be accessible, and empty.
    pager.with_resident(first, count as u32, |first, count| set_access(first, count, prot).is_ok())
}
