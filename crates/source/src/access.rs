//! What the sources share that work without userfaultfd: `/proc/self/mem`, through which content goes in and out of pages without
//! regard to access rights, and the map, which says what access pages should have.
use crate::host::{FaultSource, Host};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use outswap_core::machine::{BatchNo, Prot};
use outswap_core::mask::Mask;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::{Errno, Result, nr, os, ret, syscall2, syscall4};

/// Opens `/proc/self/mem`. A process that changed its rights is not dumpable, and may not
/// open its own memory (`EACCES`); it is made dumpable for the time of the call. Another process of the same user could attach
/// to it in that instant.
pub fn open_mem() -> Result<i32> {
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

/// Opens `/proc/self/mem`, and proves that it disregards access: it does not where the kernel was started with `proc_mem.force_override=never`, or
/// `ptrace`, or was built so (Linux 6.12).
///
/// # Errors
/// `EPERM` where it does not, and those of [`open_mem`].
pub fn open_overriding() -> Result<i32> {
    /// One proof is for the forked children, too.
    static IS_PROVEN: AtomicBool = AtomicBool::new(false);
    let mem = open_mem()?;
    if IS_PROVEN.load(Relaxed) {
        return Ok(mem);
    }
    let proven = os::mmap_anonymous(PAGE_BYTES).and_then(|page| {
        // SAFETY: a fresh page that nobody else knows of.
        let closed = unsafe { os::mprotect(page, PAGE_BYTES, 0) };
        let (content, mut found) = (PAGE_BYTES, 0usize);
        let proven = closed.is_ok()
            && transfer(nr::PWRITE64, mem, (&raw const content) as usize, size_of::<usize>(), page)
            && transfer(nr::PREAD64, mem, (&raw mut found) as usize, size_of::<usize>(), page)
            && found == content;
        // SAFETY: as above.
        let _ = unsafe { os::munmap(page, PAGE_BYTES) };
        if proven { Ok(()) } else { Err(Errno::EPERM) }
    });
    match proven {
        Ok(()) => {
            IS_PROVEN.store(true, Relaxed);
            Ok(mem)
        }
        Err(error) => {
            let _ = os::close(mem);
            Err(error)
        }
    }
}

fn transfer(nr: usize, fd: i32, local: usize, len: usize, remote: usize) -> bool {
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

/// Reads the content of pages to memory of ours.
pub fn read(host: &impl Host, first: PageNo, count: usize, to: usize) -> bool {
    transfer(nr::PREAD64, host.source_fd(), to, count * PAGE_BYTES, host.address(first))
}

/// Writes content to pages.
pub fn write(host: &impl Host, first: PageNo, src: &[u8]) -> bool {
    transfer(nr::PWRITE64, host.source_fd(), src.as_ptr() as usize, src.len(), host.address(first))
}

/// Gives pages the access that their mappings say. False where the kernel refuses some of it.
pub fn restore(host: &impl Host, first: PageNo, count: usize) -> bool {
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

/// Whether the program has the access at a page that it wanted, as the map says; `err` is the processor's error code. Where the
/// kernel has it not, the page is missing.
pub fn is_missing(host: &impl Host, page: PageNo, err: u64) -> bool {
    host.find(page).is_some_and(|vma| !vma.foreign && allows(&vma, err))
}

/// Whether a mapping allows the access that a fault was about; `err` is the processor's error code.
pub fn allows(vma: &Vma, err: u64) -> bool {
    const WRITE: u64 = 2;
    const FETCH: u64 = 16;
    let need = match err {
        e if e & FETCH != 0 => os::PROT_EXEC,
        e if e & WRITE != 0 => os::PROT_WRITE,
        _ => os::PROT_READ,
    };
    // The processor has no memory that can be written or executed but not read.
    let readable = need == os::PROT_READ && vma.prot != Prot::NONE;
    readable || vma.prot.0 as usize & need != 0
}

/// Gives pages back from frames by copying them. See [`outswap_core::machine::Machine::put_back`].
pub fn put_back<S: FaultSource>(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask) -> Mask {
    let mut back = Mask::EMPTY;
    for (at, len) in pages.runs() {
        // SAFETY: the caller has the batch in hand, whose frames hold the pages.
        let content =
            unsafe { core::slice::from_raw_parts(host.batch_address(batch, at) as *const u8, len * PAGE_BYTES) };
        if S::put(host, first.plus(at), content, false).0 == len {
            back |= Mask::range(at, len);
        }
    }
    host.empty_frames(batch, back);
    back
}
