//! mprotect and SIGSEGV, for hosts that forbid userfaultfd: a page that is not resident has no access rights. Content goes in
//! and out through `/proc/self/mem`, which ignores access rights.
//!
//! Every border between resident and other pages is a border between two kernel mappings, of which a process may have 65,530
//! by default; so the more pages may be resident, the larger the groups in which they come in.
use crate::host::{FaultSource, GRAIN_MAX_PAGES, Host};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::signal::SIGSEGV;
use outswap_sys::{Errno, Result, nr, os, procfs, ret, syscall2, syscall4};

/// The kernel's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;

static MAPPINGS_MAX: AtomicU64 = AtomicU64::new(MAPPINGS_DEFAULT);

fn transfer_bytes(nr: usize, fd: i32, local: usize, len: usize, remote: usize) -> bool {
    let mut done = 0;
    while done < len {
        // SAFETY: `local` is memory of ours of that length; `remote` is an offset in /proc/self/mem.
        match ret(unsafe { syscall4(nr, fd as usize, local + done, len - done, remote + done) }) {
            Ok(0) => return false,
            Ok(n) => done += n,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

fn restore(host: &impl Host, first: PageNo, pages: Mask) {
    for (at, len) in pages.runs() {
        restore_access(host, first.plus(at), len);
    }
}

/// Gives pages the access that their mappings say.
fn restore_access(host: &impl Host, first: PageNo, count: usize) -> bool {
    let (mut page, end) = (first.0, first.0 + count as u32);
    let mut ok = true;
    while let Some(vma) = host.next_in(page, end) {
        if vma.prot != Prot::NONE && !vma.foreign {
            ok &= host.set_access(vma.first, vma.count as usize, vma.prot).is_ok();
        }
        page = vma.end();
    }
    ok
}

/// Takes the access from pages whose content is about to go. False where the kernel has no room for another mapping.
fn close(host: &impl Host, first: PageNo, count: usize) -> bool {
    host.set_access(first, count, Prot::NONE).is_ok()
}

/// Opens `/proc/self/mem`. A process that changed its rights is not dumpable, and may not
/// open its own memory (`EACCES`); it is made dumpable for the time of the call. Another process of the same user could attach
/// to it in that instant.
fn open_mem() -> Result<i32> {
    const PR_GET_DUMPABLE: usize = 3;
    const PR_SET_DUMPABLE: usize = 4;
    let open = || os::open(b"/proc/self/mem\0", os::O_RDWR | os::O_CLOEXEC, 0);
    // SAFETY: takes integers only.
    let dumpable = |set: usize, value: usize| unsafe { syscall2(nr::PRCTL, set, value) };
    match open() {
        Err(Errno::EACCES) => {
            let before = dumpable(PR_GET_DUMPABLE, 0);
            dumpable(PR_SET_DUMPABLE, 1);
            let opened = open();
            // 2 (a core for root only) is the system's to set; to set it again is refused, and 0 gives less.
            dumpable(PR_SET_DUMPABLE, if before == 1 { 1 } else { 0 });
            opened
        }
        other => other,
    }
}

/// mprotect and SIGSEGV.
pub struct Mprotect;

impl FaultSource for Mprotect {
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
        open_mem()
    }

    fn register(_fd: i32, _addr: usize, _len: usize) -> Result<()> {
        Ok(())
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        const SEGV_ACCERR: i32 = 2;
        signal == SIGSEGV && code == SEGV_ACCERR
    }

    /// Without access rights in the kernel either the page is not resident, or the program has none.
    fn is_missing(host: &impl Host, page: PageNo, err: u64) -> bool {
        const WRITE: u64 = 2;
        const FETCH: u64 = 16;
        let Some(vma) = host.find(page) else { return false };
        let need = match err {
            e if e & FETCH != 0 => os::PROT_EXEC,
            e if e & WRITE != 0 => os::PROT_WRITE,
            _ => os::PROT_READ,
        };
        // The processor has no memory that can be written or executed but not read.
        let readable = need == os::PROT_READ && vma.prot != Prot::NONE;
        !vma.foreign && (readable || vma.prot.0 as usize & need != 0)
    }

    /// Only resident pages can be written there.
    fn counted_pages(writable: u64, resident: u64) -> u64 {
        writable.min(resident)
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        let present = wanted.all();
        let fd = host.source_fd();
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
            let copied = closed && transfer_bytes(nr::PREAD64, fd, frame, run * PAGE_BYTES, host.address(page));
            if copied && host.drop_content(page, run) {
                taken |= Mask::range(at, run);
            }
        }
        restore(host, first, present - taken);
        Taken { framed: taken, dropped: Mask::EMPTY }
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, _held: Mask) -> Mask {
        let mut back = Mask::EMPTY;
        for (at, len) in pages.runs() {
            // SAFETY: the caller has the batch in hand, whose frames hold the pages.
            let content = unsafe {
                core::slice::from_raw_parts(host.batch_address(batch, at) as *const u8, len * PAGE_BYTES)
            };
            if Self::put(host, first.plus(at), content, false).0 == len {
                back |= Mask::range(at, len);
            }
        }
        host.empty_frames(batch, back);
        back
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8], _write_protected: bool) -> (usize, Option<PutError>) {
        let fd = host.source_fd();
        let count = src.len() / PAGE_BYTES;
        if !transfer_bytes(nr::PWRITE64, fd, src.as_ptr() as usize, src.len(), host.address(first)) {
            let _ = host.drop_content(first, count);
            return (0, Some(PutError::Gone));
        }
        if !restore_access(host, first, count) {
            let _ = host.set_access(first, count, Prot::NONE);
            let _ = host.drop_content(first, count);
            return (0, Some(PutError::NoMemory));
        }
        (count, None)
    }

    /// The kernel fills the pages with zeros when they are touched.
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        if !restore_access(host, first, count) {
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
        let fd = host.source_fd();
        let at = page.as_mut_ptr() as usize;
        if !transfer_bytes(nr::PREAD64, fd, at, PAGE_BYTES, host.address(from)) || Self::put(host, to, &page, false).0 == 0 {
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
