//! Calls in progress: how a trapped call continues in the stub of its pin.
use crate::gate::{self, Part};
use outswap_sys::signal::Gregs;

/// Where a program's arguments are.
pub fn arguments(g: &Gregs) -> [usize; 6] {
    [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9].map(|a| a as usize)
}

/// Gives a call other arguments.
pub fn set_arguments(g: &mut Gregs, args: [usize; 6]) {
    [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9] = args.map(|a| a as u64);
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
