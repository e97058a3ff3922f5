//! mprotect and SIGSEGV, for hosts that forbid userfaultfd: a page that is not resident has no access rights. Content goes in
//! and out through `/proc/self/mem`, which ignores access rights.
//!
//! Every border between resident and other pages is a border between two kernel mappings, of which a process may have 65,530
//! by default; so the more pages may be resident, the larger the groups in which they come in.
use crate::access;
use crate::host::{self, FaultSource, GRAIN_MAX_PAGES, Host};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, PAGE_BYTES, PageNo};
use outswap_sys::signal::SIGSEGV;
use outswap_sys::{Result, procfs};

/// The kernel's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;

static MAPPINGS_MAX: AtomicU64 = AtomicU64::new(MAPPINGS_DEFAULT);

fn restore(host: &impl Host, first: PageNo, pages: Mask) {
    for (at, len) in pages.runs() {
        access::restore(host, first.plus(at), len);
    }
}

/// Takes the access from pages whose content is about to go. False where the kernel has no room for another mapping.
fn close(host: &impl Host, first: PageNo, count: usize) -> bool {
    host.set_access(first, count, Prot::NONE).is_ok()
}

/// mprotect and SIGSEGV.
pub struct Mprotect;

impl FaultSource for Mprotect {
    const CHANGES_ACCESS: bool = true;
    const ASKS_MAP: bool = true;

    /// Learns how many mappings a process may have (`vm.max_map_count`).
    fn learn() {
        let mut text = [0u8; 24];
        let len = procfs::read_file(b"/proc/sys/vm/max_map_count\0", &mut text);
        let max = procfs::number(&text[..len]);
        if max > 0 {
            MAPPINGS_MAX.store(max, Relaxed);
        }
    }

    fn open() -> Result<i32> {
        access::open_overriding()
    }

    fn register(_fd: i32, _addr: usize, _len: usize) -> Result<()> {
        Ok(())
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        const SEGV_ACCERR: i32 = 2;
        signal == SIGSEGV && code == SEGV_ACCERR
    }

    fn is_missing(host: &impl Host, page: PageNo, err: u64) -> bool {
        access::is_missing(host, page, err)
    }

    /// Only resident pages can be written there.
    fn counted_pages(_host: &impl Host, writable: u64, resident: u64) -> u64 {
        writable.min(resident)
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        let present = wanted.all();
        let count = present.end();
        // Within one mapping, the pages between are owned and without access too; beyond it, other things may lie.
        let whole = host.find(first).is_some_and(|v| v.end() >= first.0 + count as u32);
        if whole && host.set_access(first, count, Prot::NONE).is_err() {
            restore(host, first, present);
            return Taken::default();
        }
        let mut taken = Mask::EMPTY;
        for (at, run) in present.runs() {
            let (page, frame) = (first.plus(at), host.batch_address(batch, offset + at));
            let closed = whole || host.set_access(page, run, Prot::NONE).is_ok();
            let copied = closed && access::read(host, page, run, frame);
            if copied && host.drop_content(page, run) {
                taken |= Mask::range(at, run);
            }
        }
        restore(host, first, present - taken);
        Taken { framed: taken, dropped: Mask::EMPTY }
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, _held: Mask) -> Mask {
        access::put_back::<Mprotect>(host, first, batch, pages)
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8], _write_protected: bool) -> (usize, Option<PutError>) {
        let count = src.len() / PAGE_BYTES;
        if !access::write(host, first, src) {
            let _ = host.drop_content(first, count);
            return (0, Some(PutError::Gone));
        }
        if !access::restore(host, first, count) {
            let _ = host.set_access(first, count, Prot::NONE);
            let _ = host.drop_content(first, count);
            return (0, Some(PutError::NoMemory));
        }
        (count, None)
    }

    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
        host::fill_plainly(host, frame, content)
    }

    /// The kernel fills the pages with zeros when they are touched.
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        if !access::restore(host, first, count) {
            let _ = host.set_access(first, count, Prot::NONE);
            return (0, Some(PutError::NoMemory));
        }
        (count, None)
    }

    fn drop_pages(host: &impl Host, first: PageNo, count: usize) -> bool {
        // Closed first: a write in between would be kept under a page that counts as empty.
        let closed = close(host, first, count);
        assert!(host.drop_content(first, count), "managed pages can be dropped");
        closed
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        let mut page = [0u8; PAGE_BYTES];
        if !access::read(host, from, 1, page.as_mut_ptr() as usize) || Self::put(host, to, &page, false).0 == 0 {
            return false;
        }
        // Where there is no room for another mapping, the whole old range is closed when it is unmapped, right after this.
        let _ = close(host, from, 1);
        assert!(host.drop_content(from, 1), "managed pages can be dropped");
        true
    }

    /// The map already says the new access; a page that is busy gets it from there.
    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        if prot == Prot::NONE {
            // Whoever owns a page now may have looked at the map before it changed.
            host.settle_range(first, count as u32);
            return host.set_access(first, count, prot).is_ok();
        }
        // Reclaim must not take a page between the look at it and the change: it would be accessible, and empty.
        host.with_resident(first, count as u32, |first, count| host.set_access(first, count, prot).is_ok())
    }

    /// A resident group between pages that are not is a mapping, and so is what lies before it: half of
    /// the mappings that a process may have are enough for that with groups of this size. The rest is the program's.
    fn grain(host: &impl Host) -> usize {
        let Some(limit_pages) = host.limit_pages() else { return GRAIN_MAX_PAGES };
        let groups_max = (MAPPINGS_MAX.load(Relaxed) / 4).max(1);
        let pages = limit_pages.div_ceil(groups_max).clamp(1, GRAIN_MAX_PAGES as u64);
        pages.next_power_of_two() as usize
    }
}
