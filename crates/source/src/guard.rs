//! Guard markers and SIGSEGV (`MADV_GUARD_INSTALL`, Linux 6.13), for hosts that forbid userfaultfd. A missing page is a marker in
//! the page table, not a mapping of its own, so mappings stay whole and `vm.max_map_count` does not matter.
//!
//! Removing a marker shows a page of zeros to whoever touches it, and the content comes a moment later. So it depends on who else
//! can touch managed memory just then ([`Host::is_alone`]):
//! - Nobody: the page is filled in place. Other processes do not look meanwhile ([`FaultSource::SHOWS_ZEROS`]).
//! - Other threads: the page is closed first, by taking its access (a split of the mapping), and filled through
//!   `/proc/self/mem`, which ignores that. It needs no flush of other processors, because nothing was there.
//!
//! A page leaves by moving its page table entry into a frame (`mremap`), so that no write is lost and nothing is copied; for that
//! moment too, its old place is closed to others.
//!
//! Markers cost page tables, so they are installed by regions of 2 MiB at the first touch: a region is *opened*. Before, it has no access.
//! In an open region each page that the kernel does not manage is resident, or missing and marked, whether anything is mapped there or not.
use crate::access;
use crate::host::{self, FaultSource, Host, RETRIES, Taker};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::*};
use outswap_control::MANAGED_MAX_BYTES;
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::occupancy::Occupancy;
use outswap_core::regions::REGION_PAGES;
use outswap_core::units::{BLOCK_PAGES, FrameNo, PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::signal::SIGSEGV;
use outswap_sys::{Errno, Result, nr, os, ret, syscall5};

/// Regions of all the managed memory there can be.
const REGIONS: usize = MANAGED_MAX_BYTES / (REGION_PAGES as usize * PAGE_BYTES);
/// Batches whose frames may be moved into; other batches are copied into.
const BATCHES: usize = 1 << 14;
/// Pieces of batches that were moved and not released yet. Each is a mapping of its own, and so is what lies before it; of
/// the kernel's default of 65,530 mappings that leaves three quarters to the program. Beyond that, pages are copied.
const PIECES_MAX: u32 = 8192;
/// Pieces that a released batch may keep mapped, all together [`PIECES_MAX`] / 2: new frames cost three changes of mappings.
const PIECES_KEPT: u16 = 8;
/// Beside a count of pieces: one of them was closed to other threads. To use such frames again was 3 to 14 % slower with two threads.
const CLOSED: u16 = 1 << 15;
/// Pages from which on moving them costs less than copying them: it changes mappings, whose price does not depend on the number.
const MOVE_PAGES_MIN: usize = 3;

/// One bit for each region: set once it is open, which it stays.
static OPEN: [AtomicU64; REGIONS.div_ceil(64)] = [const { AtomicU64::new(0) }; REGIONS.div_ceil(64)];
/// Whoever closes pages for a moment takes a place. Who changes the access of a range, or opens a region, keeps them all out: it
/// would give access to a page that is only half there.
static CLOSING: Occupancy = Occupancy::new();
/// How many pieces were moved into each batch since it had new frames, with [`CLOSED`], and into all.
static PIECES: [AtomicU16; BATCHES] = [const { AtomicU16::new(0) }; BATCHES];
static PIECES_ALL: AtomicU32 = AtomicU32::new(0);

fn is_open(region: u32) -> bool {
    OPEN[region as usize / 64].load(Acquire) >> (region % 64) & 1 != 0
}

/// Calls `f` for the parts of a range that lie in open regions, each as long as it can be.
fn in_open(first: PageNo, count: u32, mut f: impl FnMut(PageNo, u32)) {
    let (mut page, end) = (first.0, first.0 + count);
    while page < end {
        let region = page / REGION_PAGES;
        // Most of a large range was never touched.
        if OPEN[region as usize / 64].load(Acquire) >> (region % 64) == 0 {
            page = (region + 64 - region % 64).saturating_mul(REGION_PAGES).min(end);
            continue;
        }
        let mut stop = page;
        while stop < end && is_open(stop / REGION_PAGES) {
            stop = ((stop / REGION_PAGES + 1) * REGION_PAGES).min(end);
        }
        if stop > page {
            f(PageNo(page), stop - page);
            page = stop;
        } else {
            page = ((region + 1) * REGION_PAGES).min(end);
        }
    }
}

/// Runs `f` while nobody closes pages.
fn alone<R>(host: &impl Host, f: impl FnOnce() -> R) -> R {
    CLOSING.enter_alone(|tries| host.wait(tries));
    let result = f();
    CLOSING.leave_alone();
    result
}

/// Runs `f`, which may close pages for a moment; not within another of these.
fn closing<R>(host: &impl Host, f: impl FnOnce() -> R) -> R {
    let place = CLOSING.enter(|tries| host.wait(tries));
    let result = f();
    CLOSING.leave(place);
    result
}

fn advise(host: &impl Host, first: PageNo, count: usize, advice: usize) -> Result<()> {
    // SAFETY: the caller owns the pages, or nothing is mapped there; Rust keeps no reference into managed memory.
    unsafe { os::madvise(host.address(first), count * PAGE_BYTES, advice) }
}

/// Marks pages as missing. What they hold is gone with that, in the same step.
fn mark(host: &impl Host, first: PageNo, count: usize) -> Result<()> {
    advise(host, first, count, os::MADV_GUARD_INSTALL)
}

/// Takes the marks away: whoever has access finds zeros there from now on.
fn unmark(host: &impl Host, first: PageNo, count: usize) -> Result<()> {
    advise(host, first, count, os::MADV_GUARD_REMOVE)
}

/// Calls `f` for the parts of a range that the kernel does not manage by itself: mapped, with what they are in, or free.
fn ours(host: &impl Host, first: PageNo, count: u32, mut f: impl FnMut(PageNo, u32, Option<Vma>)) {
    let (mut page, end) = (first.0, first.0 + count);
    while page < end {
        let next = host.next_in(page, end);
        let from = next.map_or(end, |vma| vma.first.0);
        if from > page {
            f(PageNo(page), from - page, None);
        }
        if let Some(vma) = next.filter(|vma| !vma.foreign) {
            f(vma.first, vma.count, Some(vma));
        }
        page = next.map_or(end, |vma| vma.end());
    }
}

/// Gives pages that were closed for a moment the access that their mappings say. That joins mappings, so it fails only where
/// others split theirs.
fn reopen(host: &impl Host, first: PageNo, count: usize) {
    let _ = until(host, || access::restore(host, first, count));
}

/// Tries until it succeeds, but not for ever.
fn until(host: &impl Host, f: impl Fn() -> bool) -> bool {
    (0..RETRIES).any(|tries| {
        let done = f();
        if !done {
            host.wait(tries);
        }
        done
    })
}

/// Opens the regions of pages that are about to be put.
fn open(host: &impl Host, first: PageNo, count: usize) -> Result<()> {
    for region in first.0 / REGION_PAGES..=(first.0 + count as u32 - 1) / REGION_PAGES {
        if !is_open(region) {
            alone(host, || open_region(host, region))?;
        }
    }
    Ok(())
}

fn open_region(host: &impl Host, region: u32) -> Result<()> {
    if is_open(region) {
        return Ok(());
    }
    let first = PageNo(region * REGION_PAGES);
    let count = REGION_PAGES.min(host.pages() - first.0);
    let mut result = Ok(());
    ours(host, first, count, |first, count, _| result = result.and(mark(host, first, count as usize)));
    let result = result.and_then(|()| access::restore(host, first, count as usize).then_some(()).ok_or(Errno::ENOMEM));
    match result {
        Ok(()) => _ = OPEN[region as usize / 64].fetch_or(1 << (region % 64), AcqRel),
        Err(_) => ours(host, first, count, |first, count, _| {
            let _ = host.set_access(first, count as usize, Prot::NONE);
        }),
    }
    result
}

fn meaning(error: Errno) -> PutError {
    match error {
        Errno::ENOMEM => PutError::NoMemory,
        Errno::EAGAIN => PutError::Again,
        _ => PutError::Gone,
    }
}

fn write(host: &impl Host, first: PageNo, src: &[u8]) -> Result<()> {
    if access::write(host, first, src) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Puts content into pages of an open region, all or none.
fn fill(host: &impl Host, first: PageNo, src: &[u8]) -> Result<()> {
    let count = src.len() / PAGE_BYTES;
    if host.is_alone() {
        let result = fill_in_place(host, first, src);
        return result.inspect_err(|_| _ = mark(host, first, count));
    }
    closing(host, || {
        let result = host
            .set_access(first, count, Prot::NONE)
            .and_then(|()| unmark(host, first, count))
            .and_then(|()| write(host, first, src));
        if result.is_err() {
            let _ = mark(host, first, count);
        }
        reopen(host, first, count);
        result
    })
}

/// Nobody else can touch the pages meanwhile.
fn fill_in_place(host: &impl Host, first: PageNo, src: &[u8]) -> Result<()> {
    let count = src.len() / PAGE_BYTES;
    let vma = host.find(first).filter(|vma| !vma.foreign && vma.end() >= first.0 + count as u32);
    unmark(host, first, count)?;
    if vma.is_none_or(|vma| vma.prot.0 & Prot::WRITE.0 == 0) {
        return write(host, first, src);
    }
    // One page comes by the fault of the copy, without the address space's lock.
    if count > 1 {
        advise(host, first, count, os::MADV_POPULATE_WRITE)?;
    }
    // SAFETY: the pages are there and writable, nobody else uses them, and Rust keeps no reference into managed memory.
    unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), host.address(first) as *mut u8, src.len()) };
    Ok(())
}

/// Where pages go that are taken.
#[derive(Clone, Copy)]
struct Frames {
    batch: BatchNo,
    offset: usize,
}

impl Frames {
    fn at(self, page: usize) -> Frames {
        Frames { offset: self.offset + page, ..self }
    }
    /// The number of pieces that the batch was moved into; `None` where pages are to be copied into it.
    fn pieces(self, count: usize) -> Option<&'static AtomicU16> {
        let fits = self.offset + count <= BLOCK_PAGES;
        PIECES.get(self.batch.0 as usize).filter(|_| fits)
    }
}

/// Takes pages within one mapping, or some of those.
fn take_within(host: &impl Host, first: PageNo, present: Mask, frames: Frames) -> Mask {
    if host.is_alone() {
        return take_closed(host, first, present, frames, false);
    }
    let count = present.end();
    closing(host, || {
        let closed = host.set_access(first, count, Prot::NONE).is_ok();
        let taken = if closed { take_closed(host, first, present, frames, true) } else { Mask::EMPTY };
        reopen(host, first, count);
        taken
    })
}

/// Takes pages that nobody can touch meanwhile.
fn take_closed(host: &impl Host, first: PageNo, present: Mask, frames: Frames, hidden: bool) -> Mask {
    let count = present.end();
    if present.count() >= MOVE_PAGES_MIN && move_out(host, first, count, frames, hidden) {
        return present;
    }
    let mut taken = Mask::EMPTY;
    for (at, run) in present.runs() {
        let (page, to) = (first.plus(at), frames.at(at));
        let read = access::read(host, page, run, host.batch_address(to.batch, to.offset));
        if read && mark(host, page, run).is_ok() {
            taken |= Mask::range(at, run);
        }
    }
    taken
}

/// Moves pages into frames, and marks where they were; also those between them that are missing, which moves their marks. False
/// where that cannot be done, and nothing changed. `hidden`: they have no access.
fn move_out(host: &impl Host, first: PageNo, count: usize, frames: Frames, hidden: bool) -> bool {
    const MAYMOVE_FIXED_DONTUNMAP: usize = 1 | 2 | 4;
    let (from, to, bytes) = (host.address(first), host.batch_address(frames.batch, frames.offset), count * PAGE_BYTES);
    let Some(pieces) = frames.pieces(count).filter(|_| PIECES_ALL.load(Relaxed) < PIECES_MAX) else { return false };
    // SAFETY: the caller owns the pages and the frames, which are empty; the mapping stays where the pages were.
    if ret(unsafe { syscall5(nr::MREMAP, from, bytes, bytes, MAYMOVE_FIXED_DONTUNMAP, to) }).is_err() {
        return false;
    }
    pieces.fetch_add(1, Relaxed);
    pieces.fetch_or(if hidden { CLOSED } else { 0 }, Relaxed);
    PIECES_ALL.fetch_add(1, Relaxed);
    let is_plain = !hidden && host.find(first).is_some_and(|vma| vma.prot == Prot::READ_WRITE);
    // SAFETY: the frames are the caller's. As all that is on its way out, they are in no core dump.
    let _ = unsafe { os::madvise(to, bytes, os::MADV_DONTDUMP) };
    // SAFETY: as above.
    let shown = is_plain || unsafe { os::mprotect(to, bytes, os::PROT_READ | os::PROT_WRITE) }.is_ok();
    let marked = until(host, || mark(host, first, count).is_ok());
    if !shown || !marked {
        // The program must not run on with zeros in place of its pages.
        host.post(b"error: memory that was being evicted could not be kept; a process was ended to keep its data safe");
        os::exit_group(125);
    }
    true
}

/// Takes away the marks that came into a batch with pieces that were moved there.
fn unmark_frames(host: &impl Host, batch: BatchNo) -> bool {
    // SAFETY: the batch is the caller's, and no frame of it is needed any more.
    unsafe { os::madvise(host.batch_address(batch, 0), BLOCK_PAGES * PAGE_BYTES, os::MADV_GUARD_REMOVE) }.is_ok()
}

/// Guard markers.
pub struct Guard;

impl FaultSource for Guard {
    const CHANGES_ACCESS: bool = true;
    const ASKS_MAP: bool = true;
    const SHOWS_ZEROS: bool = true;
    const TAKER: Taker = Taker::Lone;

    fn open() -> Result<i32> {
        let page = os::mmap_anonymous(PAGE_BYTES)?;
        // SAFETY: a fresh page that nobody else knows of.
        let known = unsafe {
            let known = os::madvise(page, PAGE_BYTES, os::MADV_GUARD_INSTALL);
            let _ = os::munmap(page, PAGE_BYTES);
            known
        };
        known.and_then(|()| access::open_overriding())
    }

    fn register(_fd: i32, _addr: usize, _len: usize) -> Result<()> {
        Ok(())
    }

    fn renew(host: &impl Host, first: PageNo, count: u32) -> Result<()> {
        alone(host, || {
            let mut result = Ok(());
            in_open(first, count, |first, count| result = result.and(mark(host, first, count as usize)));
            result
        })
    }

    /// No region is opened meanwhile.
    fn while_still<R>(host: &impl Host, f: impl FnOnce() -> R) -> R {
        alone(host, f)
    }

    /// A marker where there is access, or no access: the region is not open, or the page is closed, or the program has none.
    fn may_be_missing(signal: i32, code: i32) -> bool {
        const SEGV_MAPERR: i32 = 1;
        const SEGV_ACCERR: i32 = 2;
        signal == SIGSEGV && matches!(code, SEGV_MAPERR | SEGV_ACCERR)
    }

    fn is_missing(host: &impl Host, page: PageNo, err: u64) -> bool {
        access::is_missing(host, page, err)
    }

    /// What is writable, in open regions.
    fn counted_pages(host: &impl Host, _writable: u64, _resident: u64) -> u64 {
        let (mut page, end, mut counted) = (0, host.pages(), 0);
        while let Some(vma) = host.next_in(page, end) {
            if !vma.foreign && vma.prot.0 & Prot::WRITE.0 != 0 {
                in_open(vma.first, vma.count, |_, count| counted += count as u64);
            }
            page = vma.end();
        }
        counted
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        let present = wanted.all();
        let frames = Frames { batch, offset };
        let mut taken = Mask::EMPTY;
        // Beyond the mapping, other things may lie between the pages. All that lies between them within it is owned, too.
        let (mut page, end) = (first.0, first.0 + present.end() as u32);
        while let Some(vma) = host.next_in(page, end) {
            let at = (vma.first.0 - first.0) as usize;
            let inside = present & Mask::range(at, vma.count as usize);
            if let Some(start) = inside.first() {
                taken |= take_within(host, first.plus(start), inside.from(start), frames.at(start)).at(start);
            }
            page = vma.end();
        }
        Taken { framed: taken, dropped: Mask::EMPTY }
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, _held: Mask) -> Mask {
        access::put_back::<Guard>(host, first, batch, pages)
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8], _write_protected: bool) -> (usize, Option<PutError>) {
        let count = src.len() / PAGE_BYTES;
        match open(host, first, count).and_then(|()| fill(host, first, src)) {
            Ok(()) => (count, None),
            Err(error) => (0, Some(meaning(error))),
        }
    }

    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
        host::fill_plainly(host, frame, content)
    }

    /// Without its mark, a page is one of zeros. The kernel is asked to make them all at once, which is for speed alone: what it
    /// does not make now it makes at a touch.
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        match open(host, first, count).and_then(|()| unmark(host, first, count)) {
            Ok(()) => {
                let _ = advise(host, first, count, os::MADV_POPULATE_WRITE);
                (count, None)
            }
            Err(error) => (0, Some(meaning(error))),
        }
    }

    fn drop_pages(host: &impl Host, first: PageNo, count: usize) -> bool {
        assert!(mark(host, first, count).is_ok(), "managed pages can be dropped");
        true
    }

    /// A batch that many pieces were moved into gets new frames.
    fn release(host: &impl Host, batch: BatchNo) -> bool {
        let Some(pieces) = PIECES.get(batch.0 as usize).filter(|pieces| pieces.load(Relaxed) > 0) else {
            return host.drop_frames(batch);
        };
        let are_kept = pieces.load(Relaxed) <= PIECES_KEPT && PIECES_ALL.load(Relaxed) <= PIECES_MAX / 2;
        if are_kept && unmark_frames(host, batch) && host.drop_frames(batch) {
            return true;
        }
        if !host.new_frames(batch) {
            return false;
        }
        PIECES_ALL.fetch_sub(u32::from(pieces.swap(0, Relaxed) & !CLOSED), Relaxed);
        true
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        let mut page = [0u8; PAGE_BYTES];
        // It stays closed until the new place has it.
        let read = closing(host, || {
            let closed = host.is_alone() || host.set_access(from, 1, Prot::NONE).is_ok();
            closed && access::read(host, from, 1, page.as_mut_ptr() as usize)
        });
        let moved = read && Self::put(host, to, &page, false).0 == 1;
        if moved {
            assert!(mark(host, from, 1).is_ok(), "managed pages can be dropped");
        }
        closing(host, || reopen(host, from, 1));
        moved
    }

    /// Where no region is open there is no access yet; it comes when one is opened.
    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        alone(host, || {
            let mut ok = true;
            in_open(first, count as u32, |first, count| ok &= host.set_access(first, count as usize, prot).is_ok());
            ok
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use outswap_control::Stat;
    use outswap_sys::{syscall6, uffd::Uffd};

    const COUNT: u32 = 16;
    const MAP_FLAGS: usize = os::MAP_PRIVATE | os::MAP_ANONYMOUS;
    /// Regions are the process's: each test has some of its own.
    const FIRST: [u32; 4] = [0, 4 * REGION_PAGES, 8 * REGION_PAGES, 12 * REGION_PAGES];

    /// Pages of real memory. Between any two steps of the source, `other` may look at them and write to them, as another thread
    /// could.
    struct Memory<'a> {
        first: u32,
        pages: usize,
        frames: usize,
        fd: i32,
        alone: bool,
        other: &'a dyn Fn(&Memory<'_>),
        looks: Cell<bool>,
        renewed: Cell<u32>,
    }

    impl<'a> Memory<'a> {
        fn new(first: u32, alone: bool, other: &'a dyn Fn(&Memory<'_>)) -> Memory<'a> {
            let map = |prot| {
                // SAFETY: no address is given, so nothing is replaced; the advice drops nothing.
                unsafe {
                    let at = os::mmap(0, BLOCK_PAGES * PAGE_BYTES, prot, MAP_FLAGS, -1, 0).expect("memory");
                    let _ = os::madvise(at, BLOCK_PAGES * PAGE_BYTES, os::MADV_NOHUGEPAGE);
                    at
                }
            };
            let fd = Guard::open().expect("this kernel has guard markers");
            let frames = map(os::PROT_READ | os::PROT_WRITE);
            let (pages, looks, renewed) = (map(os::PROT_NONE), Cell::default(), Cell::default());
            Memory { first, pages, frames, fd, alone, other, looks, renewed }
        }
        fn page(&self, at: usize) -> PageNo {
            PageNo(self.first).plus(at)
        }
        fn at(&self, page: PageNo) -> usize {
            self.pages + (page.0 - self.first) as usize * PAGE_BYTES
        }
        /// What another thread finds in the first word of a page; `None` where it would wait.
        fn see(&self, at: usize) -> Option<u64> {
            let mut word = 0u64;
            let (local, remote) = ([&raw mut word as usize, 8], [self.pages + at * PAGE_BYTES, 8]);
            transfer(nr::PROCESS_VM_READV, &local, &remote).then_some(word)
        }
        /// Has another thread write the first word of a page; false where it would wait.
        fn write(&self, at: usize, word: u64) -> bool {
            let (local, remote) = ([&raw const word as usize, 8], [self.pages + at * PAGE_BYTES, 8]);
            transfer(nr::PROCESS_VM_WRITEV, &local, &remote)
        }
        fn frame(&self, at: usize) -> u64 {
            // SAFETY: a frame that can be read, aligned.
            unsafe { ((self.frames + at * PAGE_BYTES) as *const u64).read() }
        }
    }

    /// As the program's own access to memory goes: what it may not do is refused.
    fn transfer(nr: usize, local: &[usize; 2], remote: &[usize; 2]) -> bool {
        let pid = os::getpid() as usize;
        // SAFETY: eight bytes of ours, and eight of a page that Rust keeps no reference into.
        unsafe { syscall6(nr, pid, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0) == 8 }
    }

    impl Host for Memory<'_> {
        fn source_fd(&self) -> i32 {
            self.fd
        }
        fn address(&self, page: PageNo) -> usize {
            if self.looks.replace(false) {
                (self.other)(self);
                self.looks.set(true);
            }
            self.at(page)
        }
        fn batch_address(&self, _: BatchNo, offset: usize) -> usize {
            self.frames + offset * PAGE_BYTES
        }
        fn wait(&self, tries: u32) {
            os::wait_a_little(tries);
        }
        fn stat(&self, _: Stat, _: u64) {}
        fn post(&self, _: &[u8]) {}
        fn find(&self, page: PageNo) -> Option<Vma> {
            self.next_in(page.0, page.0 + 1).map(|_| Vma::new(PageNo(self.first), COUNT, Prot::READ_WRITE))
        }
        fn next_in(&self, page: u32, end: u32) -> Option<Vma> {
            let (from, to) = (page.max(self.first), end.min(self.first + COUNT));
            let foreign = |first: u32, end: u32| {
                (first < end).then(|| Vma { foreign: true, ..Vma::new(PageNo(first), end - first, Prot::NONE) })
            };
            let ours = (from < to).then(|| Vma::new(PageNo(from), to - from, Prot::READ_WRITE));
            // All around is somebody else's.
            foreign(page, end.min(self.first)).or(ours).or(foreign(page, end))
        }
        fn limit_pages(&self) -> Option<u64> {
            None
        }
        fn pages(&self) -> u32 {
            self.first + 2 * REGION_PAGES
        }
        fn is_alone(&self) -> bool {
            self.alone
        }
        fn new_frames(&self, _: BatchNo) -> bool {
            self.renewed.set(self.renewed.get() + 1);
            let (len, prot) = (BLOCK_PAGES * PAGE_BYTES, os::PROT_READ | os::PROT_WRITE);
            // SAFETY: the frames are this test's.
            unsafe { os::mmap(self.frames, len, prot, MAP_FLAGS | os::MAP_FIXED, -1, 0) }.is_ok()
        }
        fn settle_range(&self, _: PageNo, _: u32) {}
        fn with_resident(&self, _: PageNo, _: u32, _: impl FnMut(PageNo, usize) -> bool) -> bool {
            unreachable!("the source does not ask")
        }
        fn uffd(&self) -> Uffd {
            unreachable!("there is none")
        }
    }

    fn is_there() -> bool {
        // A kernel that has no guard markers says so; then `outswap doctor` does too.
        Guard::open().is_ok()
    }

    const CONTENT: u64 = 0x0102_0304_0506_0708;

    fn pages(count: usize) -> Vec<u8> {
        CONTENT.to_ne_bytes().repeat(count * PAGE_BYTES / 8)
    }

    /// What another thread finds in a page while four are put and taken, and what it writes; whether all of it was right.
    fn goes_in_and_out(first: u32, alone: bool) -> bool {
        let (seen, written) = (RefCell::new(Vec::new()), Cell::new(CONTENT));
        let other = |memory: &Memory<'_>| {
            seen.borrow_mut().push(memory.see(2));
            if memory.write(2, written.get() + 1) {
                written.set(written.get() + 1);
            }
        };
        let memory = Memory::new(first, alone, &other);
        let batch = BatchNo(first);
        let mut right = true;
        for round in 0..4 {
            written.set(CONTENT);
            seen.borrow_mut().clear();
            memory.looks.set(true);
            assert_eq!(Guard::put(&memory, memory.page(0), &pages(4), false), (4, None));
            memory.looks.set(false);
            // From the first sight of it on the page has what was put, and what was written since.
            right &= seen.borrow().iter().all(|word| word.is_none_or(|word| word >= CONTENT));
            right &= memory.see(2) == Some(written.get()) && memory.see(3) == Some(CONTENT);
            assert_eq!(memory.see(4), None, "its neighbour is missing still");
            memory.looks.set(true);
            let present = if round % 2 == 0 { Mask::range(0, 4) } else { Mask::single(0) | Mask::single(2) };
            let taken =
                Guard::take(&memory, memory.page(0), 4, Wanted { framed: present, clean: Mask::EMPTY }, batch, 8)
                    .framed;
            memory.looks.set(false);
            assert_eq!(taken, present);
            right &= memory.frame(10) == written.get() && memory.see(2).is_none();
            assert!(Guard::release(&memory, batch) && memory.frame(10) == 0);
            assert!(Guard::drop_pages(&memory, memory.page(0), 4) && memory.see(3).is_none());
        }
        right
    }

    #[test]
    fn others_see_all_of_a_page_or_nothing_and_lose_no_write() {
        if is_there() {
            assert!(goes_in_and_out(FIRST[0], false));
        }
    }

    #[test]
    fn to_believe_oneself_alone_would_be_noticed() {
        if is_there() {
            assert!(!goes_in_and_out(FIRST[1], true));
        }
    }

    #[test]
    fn frames_that_pages_were_moved_into_are_used_again_for_some_time() {
        const ROUNDS: u32 = 3 * PIECES_KEPT as u32;
        if !is_there() {
            return;
        }
        let (memory, batch) = (Memory::new(FIRST[3], true, &|_| {}), BatchNo(FIRST[3] % BATCHES as u32));
        let all = Wanted { framed: Mask::range(0, 3) | Mask::range(5, 3), clean: Mask::EMPTY };
        for round in 0..ROUNDS {
            let put = [0, 5].map(|at| Guard::put(&memory, memory.page(at), &pages(3), false));
            assert_eq!(put, [(3, None); 2]);
            assert_eq!(Guard::take(&memory, memory.page(0), 8, all, batch, 8).framed, all.framed, "round {round}");
            assert_eq!([8, 10, 13, 15].map(|at| memory.frame(at)), [CONTENT; 4]);
            assert!(Guard::release(&memory, batch));
            // Each frame can be written again, also where a mark came along.
            assert!((0..20).all(|at| Guard::fill(&memory, FrameNo(at), &pages(1))), "round {round}");
            assert!(Guard::release(&memory, batch) && (0..20).all(|at| memory.frame(at) == 0));
        }
        assert!((1..ROUNDS / 4).contains(&memory.renewed.get()), "{} of {ROUNDS}", memory.renewed.get());
    }

    #[test]
    fn a_region_opens_once_and_keeps_what_it_has() {
        if !is_there() {
            return;
        }
        let memory = Memory::new(FIRST[2], false, &|_| {});
        assert!(!is_open(FIRST[2] / REGION_PAGES));
        assert_eq!(Guard::put_zero(&memory, memory.page(1), 2), (2, None));
        assert!(is_open(FIRST[2] / REGION_PAGES) && !is_open(FIRST[2] / REGION_PAGES + 1));
        assert_eq!([0, 1, 2, 3].map(|at| memory.see(at)), [None, Some(0), Some(0), None]);
        assert!(memory.write(1, 7));
        assert_eq!(Guard::put(&memory, memory.page(3), &pages(1), false), (1, None));
        assert!(Guard::transfer(&memory, memory.page(1), memory.page(9)));
        assert_eq!([1, 2, 3, 9].map(|at| memory.see(at)), [None, Some(0), Some(CONTENT), Some(7)]);
        assert!(Guard::protect(&memory, memory.page(0), COUNT as usize, Prot::NONE));
        assert_eq!(memory.see(9), None);
        assert!(Guard::protect(&memory, memory.page(0), COUNT as usize, Prot::READ));
        assert_eq!((memory.see(9), memory.write(9, 8), memory.see(1)), (Some(7), false, None));
        assert_eq!(Guard::counted_pages(&memory, 0, 0), COUNT as u64);
        assert!(Guard::renew(&memory, memory.page(0), COUNT).is_ok());
        assert_eq!((0..COUNT as usize).find_map(|at| memory.see(at)), None);
    }

    #[test]
    fn what_is_open_is_found_in_one_piece() {
        const REGION: u32 = 1000;
        for region in [REGION, REGION + 1, REGION + 3, REGION + 200] {
            OPEN[region as usize / 64].fetch_or(1 << (region % 64), AcqRel);
        }
        let found = |first: u32, count: u32| {
            let mut found = Vec::new();
            in_open(PageNo(first), count, |first, count| found.push((first.0, count)));
            found
        };
        let page = |region: u32| region * REGION_PAGES;
        let whole = [(page(REGION), 2 * REGION_PAGES), (page(REGION + 3), REGION_PAGES), (page(REGION + 200), 5)];
        assert_eq!(found(page(REGION) - 7, 200 * REGION_PAGES + 12), whole);
        assert_eq!(found(page(REGION) + 500, 100), [(page(REGION) + 500, 100)]);
        assert_eq!(found(page(REGION + 2), REGION_PAGES + 1), [(page(REGION + 3), 1)]);
        assert_eq!(found(page(REGION + 4), 196 * REGION_PAGES), []);
    }
}
