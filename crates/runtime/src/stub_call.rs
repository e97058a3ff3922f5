//! Calls in progress: how a trapped call continues in the stub of its pin.
use crate::gate::{self, Part};
use outswap_sys::signal::Gregs;

/// Bytes of the instruction that makes a call.
pub const SYSCALL_BYTES: usize = 2;

/// Where a program's arguments are.
pub fn arguments(g: &Gregs) -> [usize; 6] {
    [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9].map(|a| a as usize)
}

/// Gives a call other arguments.
pub fn set_arguments(g: &mut Gregs, args: [usize; 6]) {
    [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9] = args.map(|a| a as u64);
}

/// Has code that is behind the instruction of a call which was not made go on at that instruction. Signals may come first, and must not take
/// the call for one that the kernel has ended ([`is_restarted`]).
pub fn make_anew(nr: usize, g: &mut Gregs) {
    g.rip -= SYSCALL_BYTES as u64;
    g.rax = nr as u64;
    g.rcx = 0;
}

/// Whether code is at a call which the kernel has ended to start it again, and not before one that was never made: the kernel leaves the
/// address behind the instruction in `rcx`, which a call changes in any case.
pub fn is_restarted(g: &Gregs) -> bool {
    g.rcx == g.rip.wrapping_add(SYSCALL_BYTES as u64)
}

/// Makes the interrupted code go on in the stub of a pin, with these arguments. What it was when it was trapped is kept.
pub fn resume(pin: usize, part: Part, nr: usize, args: [usize; 6], g: &mut Gregs) {
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pin) };
    state.to = g.rip as usize;
    state.nr = nr;
    state.args = arguments(g);
    state.part = part;
    state.done_bytes = 0;
    enter(pin, part, nr, args, g);
}

/// Makes the interrupted code go on in the stub of a pin that has its state already.
pub fn enter(pin: usize, part: Part, nr: usize, args: [usize; 6], g: &mut Gregs) {
    // The program keeps its registers over a call: where the kernel gets others, they are put back.
    let comes_back = part != Part::Whole || args != arguments(g);
    g.rax = nr as u64;
    set_arguments(g, args);
    g.rip = gate::stub(pin, comes_back) as u64;
}

/// Puts arguments and place back as they were when the program made the call.
pub fn restore(pin: usize, g: &mut Gregs) {
    // SAFETY: the pin is this call's.
    let state = unsafe { &*gate::state(pin) };
    set_arguments(g, state.args);
    g.rip = state.to as u64;
}
