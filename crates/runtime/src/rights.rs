//! Calls that change what a process may do. The background thread must not keep rights that the program gives up, in whose memory
//! it runs; and some of these calls want a process with one thread. So it ends before such a call, and starts anew with what
//! rights are left.
use crate::assist::{self, CallPins};
use crate::live::Live;
use crate::{calls, gate, reclaim, trap};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr};

const PR_SET_SECCOMP: usize = 22;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_SECUREBITS: usize = 28;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_CAP_AMBIENT: usize = 47;
/// Options of prctl that change rights.
pub const PRCTL_OPTIONS: [usize; 5] =
    [PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT];

/// Calls that change the rights of the calling thread, apart from prctl.
pub const CALLS: [usize; 17] = [
    nr::SETUID,
    nr::SETGID,
    nr::SETREUID,
    nr::SETREGID,
    nr::SETRESUID,
    nr::SETRESGID,
    nr::SETFSUID,
    nr::SETFSGID,
    nr::SETGROUPS,
    nr::CAPSET,
    nr::UNSHARE,
    nr::SETNS,
    nr::SECCOMP,
    nr::LANDLOCK_RESTRICT_SELF,
    nr::CHROOT,
    nr::PIVOT_ROOT,
    nr::PRCTL,
];

/// Whether the process has another root directory than it began with. Who may change it can leave it, so the swap directory is only
/// given up with rights.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether a call changes rights.
pub fn changes(nr: usize, first: usize) -> bool {
    CALLS.contains(&nr) && (nr != nr::PRCTL || PRCTL_OPTIONS.contains(&first))
}

/// Serves such a call.
pub fn call(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let pinned = live.with(move |cx| {
        let mut pins = CallPins::new(live);
        let mut args = args;
        let filter = match nr {
            nr::SECCOMP => args[2],
            nr::PRCTL if args[0] == PR_SET_SECCOMP => args[2],
            _ => 0,
        };
        let mut ok = pins.arguments(cx, calls::find(nr), &mut args, assist::window_bytes(live)).is_ok();
        // struct sock_fprog: a count and a pointer.
        const FILTER_BYTES: usize = 8;
        let mut program = [0u8; 16];
        if filter != 0 && pins.pin(cx, filter, program.len()).is_ok() && assist::peek(filter, &mut program) {
            let count = u16::from_le_bytes([program[0], program[1]]) as usize;
            ok &= pins.pin(cx, trap::word(&program, 8), count * FILTER_BYTES).is_ok();
        }
        if ok {
            return Some((pins.slot(), args));
        }
        pins.release();
        None
    });
    let Some((slot, args)) = pinned else {
        uc.gregs.rax = -(Errno::EFAULT.0 as i64) as u64;
        return;
    };
    reclaim::hold_off(live);
    if live.is_own_process() && live.pager.store.is_writing_shared() {
        live.contexts.alone(|_| live.pager.store.give_up_writing());
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's own call, on memory that is resident.
    let value = unsafe { gate::call(nr, a, b, c, d, e, f) };
    if value >= 0 {
        match nr {
            nr::CHROOT | nr::PIVOT_ROOT => CONFINED.store(true, Relaxed),
            // It would lead out of the root directory for somebody who could not leave that by other means any more.
            _ if CONFINED.load(Relaxed) => live.pager.store.leave_directory(),
            _ => {}
        }
    }
    uc.gregs.rax = value as u64;
    reclaim::let_go(live);
    live.pager.pins.release(slot);
}
