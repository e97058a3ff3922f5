//! Making shared memory whole: a shared object ([`crate::objects`]) becomes shared memory of the kernel's, at the same addresses
//! and with the same content, and is not managed from then on.
//!
//! That is done before a second process can see it (a fork), before the kernel is to know it as what it is (a second mapping by
//! `mremap`, memory that the kernel uses of its own accord), and before a part of it goes that could come back. Everybody else
//! is kept out of the runtime meanwhile: a thread that touches the memory faults, waits to come in, and runs the instruction
//! again when it finds that objects were made whole since.
//!
//! A call of another thread that is in the kernel with a buffer there must not lose its pages, nor wait on a futex that has
//! another name by then (the kernel knows a word of shared memory by its place in the object, and one of private memory by its
//! address). So a process with several threads makes memory whole also before such a call; but for transfers of files, which
//! end soon and are waited for.
use crate::arena::address;
use crate::contexts::Cx;
use crate::errno::{EAGAIN, ENOMEM};
use crate::gate;
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::pins;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use outswap_control::{Once, Stat};
use outswap_core::clean::is_zero;
use outswap_core::machine::{Machine, Prot};
use outswap_core::page::State;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::{ObjectNo, Vma};
use outswap_sys::os::*;
use outswap_sys::{nr, os};

/// How long a call of another thread on the memory may take to end.
const CALLS_NS: u64 = 1_000_000_000;
/// Attempts to put back what cannot become the kernel's.
const BACK_TRIES: u32 = 1 << 12;

fn pass(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: calls on memory that only this thread knows, or on an object while everybody else is kept out.
    unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// The managed pages of a range of addresses.
pub fn managed(live: &Live, addr: usize, len: usize) -> Option<(PageNo, u32)> {
    live.managed_pages(addr, len)
}

/// The first shared object that has pages in a range.
fn first_in(live: &Live, first: PageNo, count: u32) -> Option<ObjectNo> {
    live.objects.mapped_in(first, count).find(|&object| {
        let mut page = first.0;
        while let Some(vma) = live.pager.next_in(page, first.0 + count) {
            if vma.object == Some(object) {
                return true;
            }
            page = vma.end();
        }
        false
    })
}

/// What is left of an object: `f` is called for each of its mappings, until it says no. Returns whether it always said yes.
fn each(live: &Live, object: ObjectNo, mut f: impl FnMut(Vma) -> bool) -> bool {
    let (first, count) = live.objects.extent(object);
    let mut page = first.0;
    while let Some(vma) = live.pager.next_in(page, first.0 + count) {
        page = vma.end();
        if vma.object == Some(object) && !f(vma) {
            return false;
        }
    }
    true
}

/// Makes every shared object whole that has pages in a range. For a thread that is outside of the runtime.
///
/// # Errors
/// The error number of the call that wants it, which must not be made then.
pub fn range(live: &'static Live, addr: usize, len: usize) -> Result<(), isize> {
    managed(live, addr, len).map_or(Ok(()), |(first, count)| pages(live, first, count))
}

/// Makes every shared object whole. As [`range`].
pub fn everything(live: &'static Live) -> Result<(), isize> {
    pages(live, PageNo(0), live.pager.machine.pages())
}

fn pages(live: &'static Live, first: PageNo, count: u32) -> Result<(), isize> {
    if !live.objects.any() {
        return Ok(());
    }
    let own = live.is_own_process();
    if !live.with(move |_| first_in(live, first, count).is_some()) {
        return Ok(());
    }
    if !own {
        // Only who has the runtime can keep everybody out of it.
        return Err(EAGAIN);
    }
    live.contexts.alone(|cx| {
        while let Some(object) = first_in(live, first, count) {
            make(live, cx, object)?;
        }
        Ok(())
    })
}

/// Makes every shared object whole. Everybody else must be kept out.
///
/// # Errors
/// As [`range`].
pub fn all(live: &Live, cx: &mut Cx) -> Result<(), isize> {
    while let Some(object) = first_in(live, PageNo(0), live.pager.machine.pages()) {
        make(live, cx, object)?;
    }
    Ok(())
}

/// Makes whole what a range is only a part of, where that part holds something: what is left could grow over it again (`mremap`).
fn cut(live: &'static Live, addr: usize, len: usize) -> Result<(), isize> {
    let Some((first, count)) = managed(live, addr, len).filter(|_| live.objects.any()) else { return Ok(()) };
    let end = first.0 + count;
    let is_cut = move |object: ObjectNo| {
        let goes_whole = each(live, object, |vma| vma.first.0 >= first.0 && vma.end() <= end);
        !goes_whole && part_holds(live, object, first.0, end)
    };
    match live.with(move |_| live.objects.mapped_in(first, count).any(is_cut)) {
        true => range(live, addr, len),
        false => Ok(()),
    }
}

/// Whether the part of an object between two pages holds something.
fn part_holds(live: &Live, object: ObjectNo, start: u32, end: u32) -> bool {
    !each(live, object, |vma| {
        let (from, to) = (vma.first.0.max(start), vma.end().min(end));
        let mut empty = true;
        if from < to {
            live.pager.touched(PageNo(from), to - from, |page, n| {
                let mut states = (0..n as usize).map(|i| live.pager.state(page.plus(i)));
                empty &= states.all(|state| matches!(state, State::Untouched | State::Zero));
            });
        }
        empty
    })
}

/// Before a call of the program's: makes whole what it needs so. `Some` where the call is not to be made: what it returns.
pub fn before_call(live: &'static Live, nr: usize, args: [usize; 6]) -> Option<isize> {
    const MADV_REMOVE: usize = 9;
    const MADV_DONTFORK: usize = 10;
    const SHM_REMAP: usize = 0o40000;
    if !live.objects.any() {
        return None;
    }
    let [a, b, c, d, ..] = args;
    let outcome = match nr {
        nr::MMAP if d & MAP_FIXED != 0 => cut(live, a, b),
        nr::MUNMAP => cut(live, a, b),
        nr::MREMAP => range(live, a, b.max(1)).and_then(|()| match d & MREMAP_FIXED {
            0 => Ok(()),
            _ => cut(live, args[4], c),
        }),
        nr::MADVISE if c == MADV_DONTFORK || c == MADV_REMOVE && has_read_only(live, a, b) => range(live, a, b),
        nr::REMAP_FILE_PAGES => range(live, a, b),
        // How long the segment is, the kernel knows.
        nr::SHMAT if c & SHM_REMAP != 0 && overlaps_managed(b, 1) => everything(live),
        // What the kernel writes, or reads, of its own accord.
        nr::SET_TID_ADDRESS => range(live, a, 4),
        nr::SET_ROBUST_LIST => range(live, a, 24),
        nr::RSEQ | gate::KEEP => range(live, a, b),
        _ => Ok(()),
    };
    // Few of these calls are known to answer EAGAIN.
    outcome.err().map(|_| ENOMEM)
}

/// Whether any mapping of a range may not be written to.
fn has_read_only(live: &'static Live, addr: usize, len: usize) -> bool {
    let is_read_only = |vma: &Vma| vma.prot.0 & Prot::WRITE.0 == 0;
    managed(live, addr, len).is_some_and(|(first, count)| {
        live.with(move |_| {
            let (mut page, end) = (first.0, first.0 + count);
            core::iter::from_fn(|| {
                let vma = live.pager.next_in(page, end)?;
                page = vma.end();
                Some(vma)
            })
            .any(|vma| is_read_only(&vma))
        })
    })
}

/// Waits until no other thread has a call in the kernel that uses pages of a range. New ones cannot begin.
pub fn wait_for_calls(live: &Live, first: PageNo, count: u32) -> bool {
    let me = os::gettid() as u32;
    let (began_ns, mut spins) = (os::monotonic_ns(), 0);
    while live.pager.pins.users(first, count, me).is_some() {
        pins::free_dead(live);
        if os::monotonic_ns().saturating_sub(began_ns) > CALLS_NS {
            return false;
        }
        os::wait_a_little(spins);
        spins += 1;
    }
    true
}

/// Pages that were copied and hold something, a bit for each: what of a copy is in memory says nothing, because the kernel may have swapped
/// it out.
pub struct Copied {
    at: usize,
    bytes: usize,
    first: PageNo,
}

impl Copied {
    /// None of so many, from `first` on. `None` where there is no memory for it.
    pub fn new(first: PageNo, count: u32) -> Option<Copied> {
        let bytes = (count as usize).div_ceil(8).next_multiple_of(PAGE_BYTES);
        os::mmap_anonymous(bytes).ok().map(|at| Copied { at, bytes, first })
    }

    fn bit(&self, page: PageNo) -> (&AtomicU8, u8) {
        let i = (page.0 - self.first.0) as usize;
        assert!(i / 8 < self.bytes, "a page of the copy");
        // SAFETY: ours, as long as `self` is, and so long; any bytes are numbers.
        (unsafe { &*((self.at + i / 8) as *const AtomicU8) }, 1 << (i % 8))
    }

    /// A page was copied.
    pub fn insert(&self, page: PageNo) {
        let (byte, bit) = self.bit(page);
        byte.fetch_or(bit, Relaxed);
    }

    fn contains(&self, page: PageNo) -> bool {
        let (byte, bit) = self.bit(page);
        byte.load(Relaxed) & bit != 0
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        let _ = unsafe { os::munmap(self.at, self.bytes) };
    }
}

/// Makes an object whole. Everybody else must be kept out of the runtime.
///
/// # Errors
/// Of the call that wants it; the object is as it was then.
fn make(live: &Live, cx: &mut Cx, object: ObjectNo) -> Result<(), isize> {
    let (first, count) = live.objects.extent(object);
    let bytes = count as usize * PAGE_BYTES;
    if !each(live, object, |vma| wait_for_calls(live, vma.first, vma.count)) {
        return Err(EAGAIN);
    }
    // The program's own mapping was let through: it has what it asked for.
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    let at = pass(nr::MMAP, [0, bytes, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]);
    if at < 0 && at > -4096 {
        return Err(ENOMEM);
    }
    let place = |page: PageNo| at as usize + (page.0 - first.0) as usize * PAGE_BYTES;
    let Some(written) = Copied::new(first, count) else {
        pass(nr::MUNMAP, [at as usize, bytes, 0, 0, 0, 0]);
        return Err(ENOMEM);
    };
    drop_holes(live, object, &place);
    let mut copied = 0;
    let taken = each(live, object, |vma| {
        let taken = live.pager.take_content(vma.first, vma.count, cx, |page, content| {
            if !is_zero(content) {
                // SAFETY: new memory of the object's length, which nobody else knows; a page of content.
                unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), place(page) as *mut u8, PAGE_BYTES) };
                written.insert(page);
                copied += 1;
            }
        });
        taken.is_ok()
    });
    let given = |vma: Vma| {
        let given = give(live, &vma, place(vma.first));
        if given {
            live.stat(Stat::SharedWholePages, vma.count as u64);
        }
        given
    };
    if !taken || !each(live, object, given) {
        each(live, object, |vma| {
            take_back(live, &vma, place(vma.first), &written);
            true
        });
        return Err(EAGAIN);
    }
    live.stat(Stat::SharedWhole, 1);
    live.stat(Stat::SharedCopiedPages, copied);
    live.control.post_once(Once::SharedIsWhole);
    live.objects.free(object);
    Ok(())
}

/// Unmaps of the new memory what the program has unmapped of the object.
fn drop_holes(live: &Live, object: ObjectNo, place: &impl Fn(PageNo) -> usize) {
    let (first, count) = live.objects.extent(object);
    let mut from = first;
    let unmap = |from: PageNo, to: PageNo| {
        if from < to {
            pass(nr::MUNMAP, [place(from), (to.0 - from.0) as usize * PAGE_BYTES, 0, 0, 0, 0]);
        }
    };
    each(live, object, |vma| {
        unmap(from, vma.first);
        from = PageNo(vma.end());
        true
    });
    unmap(from, first.plus(count as usize));
}

/// Puts the kernel's memory in the place of a mapping whose content it has by now, in one step: at no time is nothing mapped
/// there. False where the kernel refuses.
pub fn give(live: &Live, vma: &Vma, from: usize) -> bool {
    let (to, bytes) = (address(vma.first), vma.count as usize * PAGE_BYTES);
    let protect =
        |prot: Prot| vma.prot == Prot::READ_WRITE || pass(nr::MPROTECT, [from, bytes, prot.0 as usize, 0, 0, 0]) == 0;
    if !protect(vma.prot) {
        return false;
    }
    if pass(nr::MREMAP, [from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0]) != to as isize {
        protect(Prot::READ_WRITE);
        // Where the kernel found no room for another mapping, it has touched nothing. Later on, the old mapping is gone.
        let is_there = |page: PageNo| os::mincore(address(page), PAGE_BYTES, &mut [0]).is_ok();
        if !(vma.first.0..vma.end()).map(PageNo).all(is_there) {
            live.restore(vma.first, vma.count);
            live.pager.machine.protect(vma.first, vma.count as usize, vma.prot);
        }
        return false;
    }
    assert!(live.pager.make_foreign(vma), "a whole mapping needs no room in the map");
    if vma.locked {
        const ONFAULT: usize = 1;
        live.mlocks.add(-(vma.count as i64), vma.on_fault);
        // Nothing of ours evicts it; the kernel does as far as it lets the program lock memory.
        pass(nr::MLOCK2, [to, bytes, if vma.on_fault { ONFAULT } else { 0 }, 0, 0, 0]);
    }
    true
}

/// Puts the content of a mapping back that could not become the kernel's.
pub fn take_back(live: &Live, vma: &Vma, from: usize, written: &Copied) {
    for i in 0..vma.count as usize {
        let (page, at) = (vma.first.plus(i), from + i * PAGE_BYTES);
        // Of another mapping of the object, it may be the kernel's by now, and is not here.
        if !written.contains(page) || os::mincore(at, PAGE_BYTES, &mut [0]).is_err() {
            continue;
        }
        // SAFETY: mapped and readable, known to nobody else.
        let content = unsafe { core::slice::from_raw_parts(at as *const u8, PAGE_BYTES) };
        let back = (0..BACK_TRIES).any(|tries| {
            let back = live.pager.put_content(page, content);
            if !back {
                os::wait_a_little(tries);
            }
            back
        });
        assert!(back, "what was taken from the program can be given back");
    }
    pass(nr::MUNMAP, [from, vma.count as usize * PAGE_BYTES, 0, 0, 0, 0]);
}
