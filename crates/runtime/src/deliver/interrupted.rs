//! Calls that a signal interrupts: what the handler sees of them, and what becomes of them.
use crate::gate::{self, InStub};
use crate::live::Live;
use crate::usermem::peek;
use crate::{direct, parts, sites, stub_call};
use outswap_sys::signal::{Ucontext, bit};
use outswap_sys::{Errno, nr};

const EINTR: u64 = -(Errno::EINTR.0 as i64) as u64;

/// The signal mask that holds while a call waits that has one of its own, where `signal` came while such a call waited, or may as well have.
pub fn mask_of_call(uc: &Ucontext, signal: i32) -> Option<u64> {
    // SAFETY: the pin is this call's.
    let mask = |pin| unsafe { (*gate::state(pin)).waits_with };
    match gate::in_stub(uc.gregs.rip as usize, uc.gregs.rdi as usize)? {
        // One that its mask blocks came before it, or is ours, which the kernel has not blocked.
        InStub::Before(pin) => mask(pin).filter(|mask| mask & bit(signal) == 0),
        // With any other result, the mask had ended with the call.
        InStub::After(pin) if uc.gregs.rax == EINTR => mask(pin).filter(|mask| mask & bit(signal) == 0),
        InStub::After(_) | InStub::Kept(_) | InStub::Freed => None,
    }
}

/// Brings code that was interrupted in a call's stub, or on the way to it, back to where the program made the call. What the call held is free
/// then. `waits`: it is taken to have waited, with a mask of its own.
pub fn leave_stub(live: &'static Live, uc: &mut Ucontext, waits: bool) {
    let g = &mut uc.gregs;
    let is_restarted = stub_call::is_restarted(g);
    sites::leave_landing(g);
    let Some(place) = gate::in_stub(g.rip as usize, g.rdi as usize) else { return };
    match place {
        InStub::Freed => g.rip = g.rcx,
        InStub::Before(pin) => {
            let again = g.rax;
            stub_call::restore(pin, g);
            // SAFETY: the pin is this call's.
            let state = unsafe { &*gate::state(pin) };
            if state.done_bytes > 0 {
                g.rax = state.done_bytes as u64;
            } else if again == nr::RESTART_SYSCALL as u64 || waits {
                g.rax = EINTR;
            } else {
                let behind = g.rip;
                // The call is made anew, and trapped anew.
                stub_call::make_anew(direct::again(state.nr, state.to), g);
                if is_restarted {
                    g.rcx = behind;
                }
            }
            parts::release(live, pin);
        }
        InStub::After(pin) => {
            let result = g.rax as isize;
            parts::finish(live, pin, result, g);
        }
        InStub::Kept(pin) => {
            // SAFETY: the pin is this call's.
            let result = unsafe { (*gate::state(pin)).result };
            parts::finish(live, pin, result, g);
        }
    }
}

/// Calls that wait, and that a signal ends with `EINTR` where its handler does not want them to be started again.
const SLOW_CALLS: &[usize] = &[
    nr::READ,
    nr::WRITE,
    nr::READV,
    nr::WRITEV,
    nr::PREAD64,
    nr::PWRITE64,
    nr::PREADV,
    nr::PWRITEV,
    nr::PREADV2,
    nr::PWRITEV2,
    nr::RECVFROM,
    nr::SENDTO,
    nr::RECVMSG,
    nr::SENDMSG,
    nr::RECVMMSG,
    nr::SENDMMSG,
    nr::ACCEPT,
    nr::ACCEPT4,
    nr::CONNECT,
    nr::WAIT4,
    nr::WAITID,
    nr::FUTEX,
    nr::FUTEX_WAIT,
    nr::FUTEX_WAITV,
    nr::OPEN,
    nr::OPENAT,
    nr::OPENAT2,
    nr::CREAT,
    nr::IOCTL,
    nr::FCNTL,
    nr::FLOCK,
    nr::SEMOP,
    nr::SEMTIMEDOP,
    nr::MSGSND,
    nr::MSGRCV,
    nr::MQ_TIMEDSEND,
    nr::MQ_TIMEDRECEIVE,
    nr::GETRANDOM,
    nr::SPLICE,
    nr::TEE,
    nr::VMSPLICE,
    nr::SENDFILE,
    nr::REQUEST_KEY,
];

/// Whether a call is started again whatever the handler wants: who waits for a mutex with priority inheritance has it when that returns.
fn is_lock(nr: usize, operation: u64) -> bool {
    const PRIVATE_OR_CLOCK: u32 = 128 | 256;
    const LOCK_PI: u32 = 6;
    const WAIT_REQUEUE_PI: u32 = 11;
    const LOCK_PI2: u32 = 13;
    nr == nr::FUTEX && matches!(operation as u32 & !PRIVATE_OR_CLOCK, LOCK_PI | WAIT_REQUEUE_PI | LOCK_PI2)
}

/// Makes a call that our own handler lets the kernel start again end with `EINTR`, as the program's handler wants it.
pub fn interrupt_call(uc: &mut Ucontext) {
    let mut code = [0u8; 2];
    let nr = gate::meant(uc.gregs.rax as usize);
    if !SLOW_CALLS.contains(&nr) || is_lock(nr, uc.gregs.rsi) {
        return;
    }
    if peek(uc.gregs.rip as usize, &mut code) && code == [0x0f, 0x05] {
        uc.gregs.rax = EINTR;
        uc.gregs.rip += 2;
    }
}
