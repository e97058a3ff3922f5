//! mlock and its kin. What the program locked this way is never evicted; what the runtime holds in memory for other reasons (pages
//! of a call, pages that the kernel uses by itself) is not counted here.
use super::common::*;
use crate::arena::{address, page_of};
use crate::budget;
use crate::contexts::Cx;
use crate::errno::{EAGAIN, EINVAL, ENOMEM, EPERM};
use crate::live::Live;
use crate::pins;
use outswap_core::fault::Fault;
use outswap_core::machine::Prot;
use outswap_core::protection::Access;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::nr;

/// Whether the budget has room for so many more pages that stay, beside those that are mlocked, and those that children find empty.
pub fn may_hold(live: &Live, pages: u64) -> bool {
    budget::may_hold(live.pager.limit_pages(), live.mlocks.present_pages() + live.wipes.pages() + pages)
}

/// Whether the kernel's rules let the program have a new mapping of so many pages, which is locked if it asks for that or has all
/// locked that comes. Else the error.
pub fn may_map_locked(live: &Live, asked: bool, count: u32) -> Result<(), isize> {
    if asked && !live.mlocks.can_mlock() {
        return Err(EPERM);
    }
    if (asked || live.mlocks.future()) && !live.mlocks.may_mlock(count) {
        return Err(EAGAIN);
    }
    Ok(())
}

/// Locks a range as the one is locked that it takes the place of; where not all of it can be brought in, what is there and what comes.
pub fn mlock_like(live: &Live, cx: &mut Cx, vma: &Vma, first: PageNo, count: u32) {
    if vma.locked && (vma.on_fault || !mlock_range(live, cx, first, count)) {
        mlock_on_fault(live, first, count);
    }
}

/// Brings a managed range in and locks it; false where the budget has no room for that.
pub fn mlock_range(live: &Live, cx: &mut Cx, first: PageNo, count: u32) -> bool {
    if !may_hold(live, count as u64) {
        return false;
    }
    let Some(pin) = pins::acquire(live, outswap_sys::os::gettid() as u32) else { return false };
    live.pager.pins.publish(pin, first, count);
    let (pinned, fault) = live.pager.pin(first, count, Access::Write, cx);
    let done = fault == Fault::Done && pinned == count && live.pager.set_locked(first, count, true, false);
    if done {
        have_filled(live, first, count);
        live.mlocks.add(count as i64, false);
    }
    live.pager.pins.release(pin);
    done
}

/// Locks the pages of a managed range as they are touched, and those that are there. False where the map has no room.
pub fn mlock_on_fault(live: &Live, first: PageNo, count: u32) -> bool {
    let done = live.pager.set_locked(first, count, true, true);
    if done {
        live.mlocks.add(count as i64, true);
    }
    done
}

/// Unlocks a mapping, or a part of one. False where the map has no room.
pub fn munlock_vma(live: &Live, vma: &Vma) -> bool {
    let done = live.pager.set_locked(vma.first, vma.count, false, false);
    if done {
        live.mlocks.add(-(vma.count as i64), vma.on_fault);
    }
    done
}

/// How many pages of a range are mlocked.
fn locked_in(live: &Live, first: PageNo, count: u32) -> u32 {
    let mut locked = 0;
    let _ = each(live, first, count, |vma| {
        locked += if vma.locked { vma.count } else { 0 };
        0
    });
    locked
}

/// `mlock`, `mlock2`, `munlock`.
pub fn mlock(live: &Live, cx: &mut Cx, nr: usize, addr: usize, len: usize, flags: usize) -> isize {
    const MLOCK_ONFAULT: usize = 1;
    let start = addr & !(PAGE_BYTES - 1);
    let Some(end) = start.checked_add(whole_pages(len.wrapping_add(addr - start))) else { return EINVAL };
    if nr == nr::MLOCK2 && flags & !MLOCK_ONFAULT != 0 {
        return EINVAL;
    }
    if nr != nr::MUNLOCK && !live.mlocks.can_mlock() {
        return EPERM;
    }
    if start == end {
        return 0;
    }
    let _call = live.pager.begin_call();
    for (i, (addr, len)) in split(live, start, end - start).into_iter().enumerate() {
        if len == 0 {
            continue;
        }
        if i != 1 {
            let result = pass(nr, [addr, len, flags, 0, 0, 0]);
            if result < 0 {
                return result;
            }
            continue;
        }
        let first = page_of(addr);
        let count = (len / PAGE_BYTES) as u32;
        if nr != nr::MUNLOCK && !live.mlocks.may_mlock(count - locked_in(live, first, count)) {
            return ENOMEM;
        }
        let mut next = first;
        let mut all_there = true;
        let outcome = each(live, first, count, |vma| {
            // Nothing behind a hole is locked.
            if vma.first != next {
                return ENOMEM;
            }
            next = PageNo(vma.end());
            if vma.foreign {
                let result = pass(nr, [address(vma.first), vma.count as usize * PAGE_BYTES, flags, 0, 0, 0]);
                // It is locked, and so is what comes behind, but for what of it cannot be brought in.
                all_there &= result != ENOMEM;
                return if result == ENOMEM { 0 } else { result };
            }
            if nr == nr::MUNLOCK {
                if vma.locked && !munlock_vma(live, &vma) {
                    return ENOMEM;
                }
            } else if flags & MLOCK_ONFAULT != 0 {
                if !vma.locked && !mlock_on_fault(live, vma.first, vma.count) {
                    return ENOMEM;
                }
            } else if vma.prot == Prot::NONE {
                // Nothing can be brought in for a program that may not read it. As in the kernel, the range is locked all the same.
                if !vma.locked && !mlock_on_fault(live, vma.first, vma.count) {
                    return ENOMEM;
                }
                all_there = false;
            } else if !vma.locked || vma.on_fault {
                if !mlock_range(live, cx, vma.first, vma.count) {
                    return ENOMEM;
                }
                if vma.locked {
                    live.mlocks.add(-(vma.count as i64), true);
                }
            }
            0
        });
        match outcome {
            Ok(true) if all_there => {}
            Ok(_) => return ENOMEM,
            Err(error) => return error,
        }
    }
    0
}

/// Lifts all that the program locked, and what is to be locked from now on. A forked child inherits no locks.
pub fn unlock_all(live: &Live) {
    live.mlocks.set_future(false, false);
    if live.mlocks.pages() == 0 {
        return;
    }
    let _ = each(live, PageNo(0), live.pager.machine.pages(), |vma| {
        if vma.locked && !vma.foreign {
            munlock_vma(live, &vma);
        }
        0
    });
}

/// `mlockall` and `munlockall`. Other memory than managed is never evicted by us, and is not locked for the kernel: the
/// runtime's tables are large and mostly untouched.
pub fn mlockall(live: &Live, cx: &mut Cx, nr: usize, flags: usize) -> isize {
    const CURRENT: usize = 1;
    const FUTURE: usize = 2;
    const ONFAULT: usize = 4;
    let all = live.pager.machine.pages();
    let _call = live.pager.begin_call();
    if nr == nr::MUNLOCKALL {
        unlock_all(live);
        // What else than managed memory the program has locked by `mlock`. Nothing of ours is.
        return pass(nr, [0; 6]);
    }
    if flags == 0 || flags & !(CURRENT | FUTURE | ONFAULT) != 0 || flags == ONFAULT {
        return EINVAL;
    }
    if !live.mlocks.can_mlock() {
        return EPERM;
    }
    if flags & CURRENT != 0 {
        // Where not all of it may be locked, nothing is.
        let (mut locks, mut stays) = (0, 0);
        let _ = each(live, PageNo(0), all, |vma| {
            if !vma.foreign && !vma.locked {
                locks += vma.count;
                stays += if vma.prot == Prot::NONE { 0 } else { vma.count as u64 };
            }
            0
        });
        if !live.mlocks.may_mlock(locks) || flags & ONFAULT == 0 && !may_hold(live, stays) {
            return ENOMEM;
        }
        let outcome = each(live, PageNo(0), all, |vma| {
            if vma.foreign || vma.locked {
                return 0;
            }
            let locked = if flags & ONFAULT != 0 || vma.prot == Prot::NONE {
                mlock_on_fault(live, vma.first, vma.count)
            } else {
                mlock_range(live, cx, vma.first, vma.count)
            };
            if locked { 0 } else { ENOMEM }
        });
        if let Err(error) = outcome {
            return error;
        }
    }
    live.mlocks.set_future(flags & FUTURE != 0, flags & ONFAULT != 0);
    0
}
