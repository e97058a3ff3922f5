//! What the sources over userfaultfd share. A page comes by `UFFDIO_COPY`. Where it is not moved, it is taken by write-protecting
//! it, copying it, and dropping it: a write in between faults, finds the page busy, and waits.
use crate::hidden;
use crate::host::{Host, RETRIES};
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, PAGE_BYTES, PART_PAGES, PageNo};
use outswap_sys::Errno;
use outswap_sys::signal::SIGBUS;

#[repr(C, align(4096))]
struct Zeros([u8; PAGE_BYTES * PART_PAGES]);
static ZEROS: Zeros = Zeros([0; PAGE_BYTES * PART_PAGES]);

/// Whether a signal is that of a userfaultfd.
pub fn may_be_missing(signal: i32, code: i32) -> bool {
    const BUS_ADRERR: i32 = 2;
    signal == SIGBUS && code == BUS_ADRERR
}

fn meaning(error: Errno) -> PutError {
    match error {
        Errno::ENOMEM => PutError::NoMemory,
        Errno::ENOENT | Errno::EINVAL | Errno::EFAULT | Errno::ESRCH => PutError::Gone,
        _ => PutError::Again,
    }
}

/// The parts of pages, which count from `first`, that one managed mapping has each: where it begins, and up to where it has any. What no mapping
/// has any more, or one of the kernel's, is by itself. The kernel moves, protects and fills what one mapping has.
pub fn parts(host: &impl Host, first: PageNo, pages: Mask) -> impl Iterator<Item = (usize, usize)> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let at = pages.next(from)?;
        let managed = host.find(first.plus(at)).filter(|vma| !vma.foreign);
        let len = managed.map_or(1, |vma| (vma.end() - first.plus(at).0) as usize);
        let part = pages & Mask::range(at, len.min(pages.end() - at));
        from = part.end();
        Some((at, from - at))
    })
}

/// Has pages taken mapping by mapping: `take` is told where a part begins, how far it goes, and its pages, counted from there.
pub fn take_by_mapping(
    host: &impl Host,
    first: PageNo,
    wanted: Wanted,
    take: impl Fn(usize, usize, Wanted) -> Taken,
) -> Taken {
    let parts = parts(host, first, wanted.all());
    parts.fold(Taken::default(), |taken, (at, count)| taken.and_part(at, take(at, count, wanted.part(at, count))))
}

/// Takes pages of one mapping, as far as that is known, by copying those that are needed and dropping all. See
/// [`outswap_core::machine::Machine::take`].
pub fn take_part(
    host: &impl Host,
    first: PageNo,
    count: usize,
    wanted: Wanted,
    batch: BatchNo,
    offset: usize,
) -> Taken {
    // What lies between the pages and is not managed, or is about to be something else, is not ours to drop. Whoever has begun to
    // change the map since waits for the pages that are owned.
    let is_one = host.find(first).is_some_and(|vma| !vma.foreign && vma.end() as usize >= first.0 as usize + count);
    let whole = if is_one { count } else { 0 };
    if wanted.framed.is_empty() {
        // A write to one of them faults and waits: their protection stays until they are gone.
        return Taken { framed: Mask::EMPTY, dropped: drop_pages(host, first, whole, wanted.clean) };
    }
    let uffd = host.uffd();
    // Of what is not managed, the program may have protected pages itself, or not.
    if count > 1 && !is_one || uffd.write_protect(host.address(first), count * PAGE_BYTES, true).is_err() {
        if count == 1 {
            let _ = uffd.write_protect(host.address(first), PAGE_BYTES, false);
            return Taken::default();
        }
        // Something that is not managed may lie between the pages: take them one by one. What is protected by now stays so until its
        // turn, as it may be known by its protection that it was not written.
        let single = Wanted { framed: Mask::single(0), clean: Mask::EMPTY };
        let is_taken = |&i: &usize| !take_part(host, first.plus(i), 1, single, batch, offset + i).framed.is_empty();
        return Taken { framed: wanted.framed.iter().filter(is_taken).collect(), dropped: Mask::EMPTY };
    }
    let mut hidden = Mask::EMPTY;
    // The frames are ours and empty; the sources are present pages, which the kernel reads for us and answers EFAULT for where the
    // program has no read access.
    let places = |at: usize| (host.batch_address(batch, offset + at), host.address(first.plus(at)) as *const u8);
    let copied = copy_runs(host, wanted.framed, places, |at, len| {
        let taken = hidden::take(host, first.plus(at), len, batch, offset + at).at(at);
        hidden |= taken;
    });
    let whole = if copied == wanted.framed { whole } else { 0 };
    let gone = drop_pages(host, first, whole, copied | wanted.clean);
    if gone != wanted.all() {
        // A page that cannot be dropped (locked by a call that nobody saw) stays where it is.
        let _ = uffd.write_protect(host.address(first), count * PAGE_BYTES, false);
    }
    host.stat(Stat::PagesTakenByCopy, (gone & copied).count() as u64);
    Taken { framed: gone & copied | hidden, dropped: gone & wanted.clean }
}

/// Copies runs of pages to where they are missing, as far as it goes: each from and to where `places` says, which is the caller's
/// to use. What is left of a run whose next page cannot be read is for `unreadable`. Returns those that were copied.
fn copy_runs(
    host: &impl Host,
    pages: Mask,
    places: impl Fn(usize) -> (usize, *const u8),
    mut unreadable: impl FnMut(usize, usize),
) -> Mask {
    let (mut copied, mut tries) = (Mask::EMPTY, 0);
    for (mut at, len) in pages.runs() {
        let end = at + len;
        while at < end {
            let (dst, src) = places(at);
            // SAFETY: the caller owns the places; what is mapped at one of them already stays.
            let progress = unsafe { host.uffd().copy(dst, src, (end - at) * PAGE_BYTES, false) };
            let done = progress.done_bytes / PAGE_BYTES;
            copied |= Mask::range(at, done);
            at += done;
            match progress.error {
                None => {}
                Some(Errno::EAGAIN) if tries < RETRIES => {
                    tries += 1;
                    host.wait(tries);
                }
                Some(Errno::EFAULT) => {
                    unreadable(at, end - at);
                    at = end;
                }
                Some(_) => at += 1,
            }
        }
    }
    copied
}

/// Drops pages: all of the range at once, where that works and the range is not empty, or run by run. Returns those that are gone.
fn drop_pages(host: &impl Host, first: PageNo, range_pages: usize, pages: Mask) -> Mask {
    if range_pages > 0 && host.drop_content(first, range_pages) {
        return pages;
    }
    let mut gone = Mask::EMPTY;
    for (at, len) in pages.runs() {
        if host.drop_content(first.plus(at), len) {
            gone |= Mask::range(at, len);
        }
    }
    gone
}

/// See [`outswap_core::machine::Machine::put`].
pub fn put(host: &impl Host, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
    // SAFETY: the caller owns the pages; `src` holds whole pages.
    let progress = unsafe { host.uffd().copy(host.address(first), src.as_ptr(), src.len(), write_protected) };
    let done = progress.done_bytes / PAGE_BYTES;
    (done, progress.error.map(meaning))
}

/// Fills a frame, which is missing as a page of the program's is. See [`outswap_core::machine::Machine::fill`].
pub fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
    for tries in 0..RETRIES {
        // SAFETY: the frame is the caller's and empty; the content is a page.
        match unsafe { host.uffd().copy(host.frame_address(frame), content.as_ptr(), PAGE_BYTES, false) }.error {
            None => return true,
            Some(Errno::EAGAIN) => host.wait(tries),
            Some(_) => break,
        }
    }
    false
}

/// Gives pages back by copying them. See [`outswap_core::machine::Machine::put_back`].
pub fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask) -> Mask {
    // The caller owns the pages and has the batch in hand, whose frames hold them.
    let places = |at: usize| (host.address(first.plus(at)), host.batch_address(batch, at) as *const u8);
    let part = |(at, count)| copy_runs(host, pages & Mask::range(at, count), places, |_, _| {});
    let back = parts(host, first, pages).map(part).fold(Mask::EMPTY, |back, part| back | part);
    host.empty_frames(batch, back);
    back
}

/// See [`outswap_core::machine::Machine::allow_writes`], and [`outswap_core::machine::Machine::forbid_writes`].
pub fn set_writes(host: &impl Host, first: PageNo, count: usize, allowed: bool) -> bool {
    (0..RETRIES).any(|tries| {
        match host.uffd().write_protect(host.address(first), count * PAGE_BYTES, !allowed) {
            Ok(()) => true,
            Err(Errno::EAGAIN) => {
                host.wait(tries);
                false
            }
            // Something that is not managed lies between, or nothing is mapped any more: page by page, as far as it goes.
            Err(_) if count > 1 => (0..count).filter(|&i| set_writes(host, first.plus(i), 1, allowed)).count() == count,
            Err(_) => false,
        }
    })
}

/// See [`outswap_core::machine::Machine::put_zero`]. Pages are copied from zeros: the kernel's shared zero page would be
/// exchanged for a real one at the first write, behind the runtime's back.
pub fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
    let mut done = 0;
    while done < count {
        let n = (count - done).min(PART_PAGES);
        let (put, error) = put(host, first.plus(done), &ZEROS.0[..n * PAGE_BYTES], false);
        done += put;
        if error.is_some() {
            return (done, error);
        }
    }
    (done, None)
}

/// See [`outswap_core::machine::Machine::map_zero`].
pub fn map_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
    let progress = host.uffd().zero(host.address(first), count * PAGE_BYTES);
    (progress.done_bytes / PAGE_BYTES, progress.error.map(meaning))
}

/// See [`outswap_core::machine::Machine::untrap`].
pub fn untrap(host: &impl Host, first: PageNo, count: usize) -> bool {
    host.uffd().unregister(host.address(first), count * PAGE_BYTES).is_ok()
}

/// Moves a page by copying it. See [`outswap_core::machine::Machine::transfer`].
pub fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
    // SAFETY: the caller owns both pages; the source is present.
    let progress = unsafe { host.uffd().copy(host.address(to), host.address(from) as *const u8, PAGE_BYTES, false) };
    if progress.error.is_some() {
        return false;
    }
    assert!(host.drop_content(from, 1), "managed pages can be dropped");
    true
}
