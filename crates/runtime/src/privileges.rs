//! Calls that change what a process may do. The background thread must not keep rights that the program gives up, in whose memory
//! it runs; and some of these calls want a process with one thread. So it ends before such a call, and starts anew with what
//! rights are left.
use crate::calls;
use crate::live::Live;
use crate::pins::{build_more, build_more_direct, pinned};
use crate::sandbox::Filter;
use crate::store::ProcessStore;
use crate::{avoided, confined, descriptors, gate, kept, namespaces, reclaim, scheduling, sharers, sites};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr, os};

/// Serves such a call.
pub fn call(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let Some((pin, args)) = pinned(live, nr, args, live.window_bytes()) else {
        uc.gregs.rax = -(Errno::EFAULT.0 as i64) as u64;
        return;
    };
    hold_off(live);
    if live.is_own_process() && live.pager.store.is_writing_shared() {
        live.contexts.alone(|_| live.pager.store.give_up_writing());
    }
    let installs = calls::installs_filter(nr, args[0], args[1]);
    let _installing = installs.then(|| avoided::INSTALLING.lock(os::wait_a_little));
    let avoided = avoided::all();
    if installs {
        finish_code(live);
    }
    let filter = Filter::of(live, nr, args);
    let [a, b, mut c, d, e, f] = args;
    if let Some(filter) = &filter {
        c = filter.argument();
        filter.obey(live);
    }
    // SAFETY: the program's own call, on memory that is resident.
    let value = unsafe { gate::call(nr, a, b, c, d, e, f) };
    if installs && !is_installed(nr, args[1], value) {
        avoided::again(avoided);
    } else if value >= 0 {
        namespaces::note_call(nr, args);
        if matches!(nr, nr::UNSHARE | nr::SETNS) {
            reclaim::note_apart();
        }
        kept::leave_rights();
        if filter.is_some() && !avoided::may_name_files() {
            live.pager.store.leave_directory();
        }
        if installs {
            // It may end who asks.
            live.pager.store.leave_requests();
            scheduling::leave();
        }
        match nr {
            nr::LANDLOCK_RESTRICT_SELF => kept::note_landlock(),
            nr::CHROOT | nr::PIVOT_ROOT => confined::confine(),
            // It would lead out of the root directory for somebody who could not leave that by other means any more.
            _ if confined::is_confined() => confined::leave_directories(live),
            _ => {}
        }
    }
    uc.gregs.rax = value as u64;
    reclaim::let_go(live);
    live.pager.pins.release(pin);
}

/// Ends the background thread until [`reclaim::let_go`], and what else would keep what the caller has now.
fn hold_off(live: &Live) {
    reclaim::hold_off(live);
    if live.is_own_process() {
        descriptors::open_all(live);
        live.contexts.alone(|_| live.pager.store.leave_ring());
    }
}

/// Serves `close_range` with [`calls::CLOSE_RANGE_UNSHARE`]. A thread of ours would make a table that is the caller's alone one that two have, and keep open
/// what is closed.
pub fn unshare_range(live: &'static Live, args: [usize; 6]) -> isize {
    hold_off(live);
    let value = descriptors::close_range(live, args);
    if value >= 0 {
        reclaim::note_apart();
    }
    reclaim::let_go(live);
    value
}

/// Whether a filter was installed by a call with such flags that gave this.
fn is_installed(nr: usize, flags: usize, value: isize) -> bool {
    const TSYNC: usize = 1;
    const NEW_LISTENER: usize = 8;
    // A thread that cannot have the filter is told by its number, but where that would be the number of a descriptor.
    let tells_of_thread = nr == nr::SECCOMP && flags & (TSYNC | NEW_LISTENER) == TSYNC;
    value == 0 || value > 0 && !tells_of_thread
}

/// Installs a filter for a process that only shares the memory. What that one avoids is not known; it is soon another program.
pub fn install_of_sharer(live: &'static Live, nr: usize, args: [usize; 6]) -> isize {
    let Some((pin, args)) = pinned(live, nr, args, live.window_bytes()) else { return -(Errno::EFAULT.0 as isize) };
    let filter = Filter::of(live, nr, args);
    let [a, b, c, d, e, f] = args;
    let c = filter.as_ref().map_or(c, Filter::argument);
    // SAFETY: the program's own call, on memory that is resident.
    let value = unsafe { gate::call(nr, a, b, c, d, e, f) };
    live.pager.pins.release(pin);
    value
}

/// The same as [`finish_code`], while nobody installs a filter that may be refused.
pub fn finish_code_alone(live: &Live) {
    let _installing = avoided::INSTALLING.lock(os::wait_a_little);
    finish_code(live);
}

/// Makes and changes all code that may be needed, because after this it may not be done any more.
pub fn finish_code(live: &Live) {
    while build_more(live) || build_more_direct(live) {}
    sites::take_over(live);
    // Of a process that only shares the memory it is that one alone which may not.
    if live.is_own_process() {
        avoided::leave_code();
    }
}

/// Serves `chroot` and `pivot_root` of a process that only shares the memory. Returns the result.
pub fn by_sharer(live: &'static Live, nr: usize, args: [usize; 6]) -> isize {
    let Some((pin, [a, b, c, d, e, f])) = pinned(live, nr, args, live.window_bytes()) else {
        return -(Errno::EFAULT.0 as isize);
    };
    // SAFETY: the program's own call, on memory that is resident.
    let value = unsafe { gate::call(nr, a, b, c, d, e, f) };
    if value >= 0 && sharers::shares_root() {
        confined::by_sharer(live);
        // By the background thread: the caller has descriptors of its own.
        live.with(move |_| confined::leave_directories(live));
    }
    live.pager.pins.release(pin);
    value
}

/// A process that only shares the memory ends: the background thread need not live for it any longer.
pub fn sharer_ends(live: &Live) {
    if confined::keeps_one_thread(live) && sharers::is_only_one() {
        reclaim::retire(live);
    }
}
