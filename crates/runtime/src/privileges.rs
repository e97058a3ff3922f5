//! Calls that change what a process may do. The background thread must not keep rights that the program gives up, in whose memory
//! it runs; and some of these calls want a process with one thread. So it ends before such a call, and starts anew with what
//! rights are left.
use crate::calls;
use crate::live::Live;
use crate::pins::CallPins;
use crate::sandbox::Filter;
use crate::store::ProcessStore;
use crate::{avoided, gate, kept, reclaim};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr};

/// Whether the process has another root directory than it began with. Who may change it can leave it, so the swap directory is only
/// given up with rights.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Serves such a call.
pub fn call(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let pinned = live.with(move |cx| {
        let mut pins = CallPins::new(live);
        let mut args = args;
        if pins.arguments(cx, calls::find(nr), &mut args, live.window_bytes()).is_ok() {
            return Some((pins.number(), args));
        }
        pins.release();
        None
    });
    let Some((pin, args)) = pinned else {
        uc.gregs.rax = -(Errno::EFAULT.0 as i64) as u64;
        return;
    };
    reclaim::hold_off(live);
    if live.is_own_process() {
        live.contexts.alone(|_| live.pager.store.leave_ring());
    }
    if live.is_own_process() && live.pager.store.is_writing_shared() {
        live.contexts.alone(|_| live.pager.store.give_up_writing());
    }
    let filter = Filter::of(live, nr, args);
    let [a, b, mut c, d, e, f] = args;
    if let Some(filter) = &filter {
        c = filter.argument();
        filter.obey();
    }
    // SAFETY: the program's own call, on memory that is resident.
    let value = unsafe { gate::call(nr, a, b, c, d, e, f) };
    if value >= 0 {
        kept::leave_rights();
        if filter.is_some() && !avoided::may_name_files() {
            live.pager.store.leave_directory();
        }
        match nr {
            nr::CHROOT | nr::PIVOT_ROOT => CONFINED.store(true, Relaxed),
            // It would lead out of the root directory for somebody who could not leave that by other means any more.
            _ if CONFINED.load(Relaxed) => {
                live.pager.store.leave_directory();
                kept::leave_directory();
            }
            _ => {}
        }
    }
    uc.gregs.rax = value as u64;
    reclaim::let_go(live);
    live.pager.pins.release(pin);
}
