//! Private memory that the program registers with a userfaultfd of its own: it becomes the kernel's first, at the same addresses and
//! with the same pages, and is not managed from then on. A page has one userfaultfd at most, and which pages are missing is the
//! program's to say from then on.
use crate::charge;
use crate::contexts::Cx;
use crate::dumps::DUMPS;
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENOMEM};
use crate::live::Live;
use crate::memory::{self, may_hold};
use crate::pins::{read, write};
use crate::usermem::word;
use crate::whole;
use crate::{arena, gate, kept};
use outswap_control::Once;
use outswap_core::page::State;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::{nr, os};

const UFFDIO_API: usize = 0xc018_aa3f;
/// Features by which a call on registered memory (fork, `mremap`, `madvise`, `munmap`) waits until the program has read of it. Such calls
/// are made where others of the runtime wait for their end.
const EVENTS: usize = 0x4e;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_MOVE: usize = 0xc028_aa05;

/// Before an `ioctl` of the program's: gives away what it needs so. `Some` where it is not to be made: what it returns.
pub fn before_ioctl(live: &'static Live, [_, code, at, ..]: [usize; 6]) -> Option<isize> {
    // Of a registration its range, of a move where it takes from.
    let field = match code as u32 as usize {
        UFFDIO_API => {
            let bytes = read::<24>(live, at)?;
            // As a kernel answers that has not got them.
            return (word(&bytes, 8) & EVENTS != 0).then(|| if write(live, at, [0; 24]) { EINVAL } else { EFAULT });
        }
        UFFDIO_REGISTER => 0,
        UFFDIO_MOVE => 8,
        _ => return None,
    };
    let bytes = read::<24>(live, at)?;
    let (start, len) = match field {
        0 => (word(&bytes, 0), word(&bytes, 8)),
        _ => (word(&bytes, 8), word(&bytes, 16)),
    };
    let (first, count) = whole::managed(live, start, len).filter(|_| start.is_multiple_of(PAGE_BYTES) && len > 0)?;
    if !live.is_own_process() {
        // Only who has the runtime can keep everybody out of it.
        return Some(EAGAIN);
    }
    if whole::range(live, start, len).is_err() {
        return Some(ENOMEM);
    }
    let mut gave = false;
    let refused = live.contexts.alone(|cx| {
        let mut page = first.0;
        while let Some(vma) = live.pager.next_in(page, first.0 + count) {
            page = vma.end();
            if vma.foreign {
                continue;
            }
            if !give(live, cx, &vma) {
                return Some(ENOMEM);
            }
            gave = true;
        }
        None
    });
    if gave {
        // Everything else has less room from now on.
        live.contexts.with(|_| {
            charge::measure(live);
            charge::refresh(live);
        });
    }
    refused
}

fn pass(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: calls on memory that only this thread knows.
    unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// Whether a page that is in memory is a zero page that was mapped ([`outswap_core::machine::Machine::map_zero`]).
fn is_never_written(page: PageNo) -> bool {
    let at = arena::address(page);
    let part = |fd| os::part(fd, at, PAGE_BYTES, os::Mapped::ZeroOrNothing).is_ok_and(|part| part.start == at);
    kept::PAGEMAP.fd().is_some_and(part)
}

/// Gives a mapping, or a part of one, to the kernel. False where that cannot be, and nothing has changed. Everybody else must be kept
/// out of the runtime.
fn give(live: &Live, cx: &mut Cx, vma: &Vma) -> bool {
    live.pager.trap_range(vma.first, vma.count);
    let mut there = 0u64;
    live.pager.touched(vma.first, vma.count, |first, n| {
        let pages = (0..n as usize).map(|i| live.pager.state(first.plus(i)));
        there += pages.filter(|state| *state != State::Untouched).count() as u64;
    });
    // What is the kernel's stays in memory.
    let fits = may_hold(live, there);
    if !fits || !live.pager.has_room(2) || !whole::wait_for_calls(live, vma.first, vma.count) {
        return false;
    }
    let bytes = vma.count as usize * PAGE_BYTES;
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
    let at = pass(nr::MMAP, [0, bytes, os::PROT_READ | os::PROT_WRITE, flags, usize::MAX, 0]);
    if at < 0 && at > -4096 {
        return false;
    }
    let at = at as usize;
    let Some(written) = whole::Copied::new(vma.first, vma.count) else {
        pass(nr::MUNMAP, [at, bytes, 0, 0, 0, 0]);
        return false;
    };
    // A huge page would be there where the program has touched nothing.
    pass(nr::MADVISE, [at, bytes, os::MADV_NOHUGEPAGE, 0, 0, 0]);
    let place = |page: PageNo| (at + (page.0 - vma.first.0) as usize * PAGE_BYTES) as *mut u8;
    // A page of zeros that was touched is there, and not missing. One that came as a zero page with another one's touch is not, but for
    // who has only read it, which nobody can tell.
    let is_new = |page| live.pager.state(page) == State::Resident && is_never_written(page);
    live.pager.touched(vma.first, vma.count, |first, n| {
        let there = (0..n as usize).map(|i| first.plus(i));
        let there = there.filter(|page| live.pager.state(*page) != State::Untouched && !is_new(*page));
        // SAFETY: a page of the new mapping, which nobody else knows.
        there.for_each(|page| unsafe { place(page).write_volatile(0) });
    });
    let taken = live.pager.take_content(vma.first, vma.count, cx, |page, content| {
        if content.iter().all(|byte| *byte == 0) {
            // It is there by now, or was never written to.
            return;
        }
        // SAFETY: as above; a page of content.
        unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), place(page), PAGE_BYTES) };
        written.insert(page);
    });
    if taken.is_err() || !whole::give(live, vma, at) {
        whole::take_back(live, vma, at, &written);
        return false;
    }
    memory::hand_over_wipes(live, vma.first, vma.count, arena::address(vma.first));
    if DUMPS.hides() {
        // What of it the program has hidden is not known here, and its secrets may be there.
        pass(nr::MADVISE, [arena::address(vma.first), bytes, os::MADV_DONTDUMP, 0, 0, 0]);
    }
    live.wipes.forget(vma.first, vma.count);
    live.grows.forget(vma.first, vma.count);
    live.control.post_once(Once::Given);
    true
}
