//! Runtime contexts: a stack and scratch memory for each thread at work in the runtime.
//!
//! A fault must not depend on how much of the program's (or its alternate) stack is left, so runtime work runs on a stack
//! of its own. Being inside also marks a thread as at work: fork waits until no other is.
//!
//! Work is a closure, so that nothing can hold a context longer than that, and a second one inside is refused: a thread that
//! waited for another context, or in a call of the program's, while it has one would stop a fork for ever, and with it everybody
//! who waits for the fork.
use crate::limits::CONTEXT_STACK_BYTES;
use crate::store::OurStore;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::occupancy::{Occupancy, PLACES};
use outswap_core::pager::Context;
use outswap_core::store::Store;
use outswap_sys::{PAGE_BYTES, os, tables};

// Calls a function with one argument on another stack. In a frame of its own, so that debuggers find the way back.
global_asm!(
    ".globl outswap_on_stack",
    ".hidden outswap_on_stack",
    ".type outswap_on_stack, @function",
    "outswap_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size outswap_on_stack, . - outswap_on_stack",
);
unsafe extern "C" {
    fn outswap_on_stack(argument: *mut (), function: *const (), top: usize);
}

/// Scratch memory of a thread at work in the runtime.
pub type Cx = Context<<OurStore as Store>::Worker>;

/// Scratch memory, after the stack.
const SCRATCH_BYTES: usize = core::mem::size_of::<Cx>().next_multiple_of(PAGE_BYTES);
/// A page without access, the stack, the scratch memory.
const STRIDE: usize = PAGE_BYTES + CONTEXT_STACK_BYTES + SCRATCH_BYTES;

/// All contexts.
pub struct Contexts {
    base: AtomicUsize,
    occupancy: Occupancy,
    /// Contexts whose stack has its guard page: one mapping more each, so only those that are used.
    guarded: AtomicU64,
}

impl Contexts {
    /// Without memory yet.
    pub const fn unreserved() -> Contexts {
        Contexts { base: AtomicUsize::new(0), occupancy: Occupancy::new(), guarded: AtomicU64::new(0) }
    }

    /// Bytes of memory for [`Contexts::begin`].
    pub const BYTES: usize = STRIDE * PLACES;

    /// Has the contexts lie at an address, in memory that is theirs.
    pub fn begin(&self, at: usize) {
        // Not in dumps: scratch memory holds pages that were worked on.
        tables::advise(at, Self::BYTES);
        self.base.store(at, Release);
    }

    /// Runs `f` with a context, on its stack. All signals must be blocked, or come to handlers that let the program wait
    /// ([`crate::stacks::Kept`]).
    ///
    /// # Panics
    /// Where the caller is inside already.
    pub fn with<R>(&self, f: impl FnOnce(&mut Cx) -> R) -> R {
        self.assert_outside();
        let place = self.occupancy.enter(os::wait_a_little);
        let result = self.run(place, f);
        self.occupancy.leave(place);
        result
    }

    /// As [`Contexts::with`], while every other thread is kept out.
    ///
    /// # Panics
    /// Where the caller is inside already.
    pub fn alone<R>(&self, f: impl FnOnce(&mut Cx) -> R) -> R {
        self.assert_outside();
        self.occupancy.enter_alone(os::wait_a_little);
        let result = self.run(0, f);
        self.occupancy.leave_alone();
        result
    }

    /// In a forked child of the thread that is alone: nobody else is inside.
    pub fn only_this(&self) {
        self.occupancy.only_this();
    }

    /// Whether an address lies in a context's stack.
    pub fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.load(Relaxed)) < STRIDE * PLACES
    }

    /// # Panics
    /// Where the caller runs in a context: it must not wait for anything that somebody else may do only after a fork.
    pub fn assert_outside(&self) {
        let here: usize;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
        assert!(!self.holds(here), "a thread has one context at most, and none while it waits");
    }

    fn guard(&self, place: usize) {
        if self.guarded.load(Relaxed) & 1 << place == 0 {
            let at = self.base.load(Acquire) + place * STRIDE;
            // SAFETY: the page below the stack of a context that is the caller's; nobody uses it. Where the kernel has no room
            // for another mapping, the stack goes without.
            let _ = unsafe { os::mprotect(at, PAGE_BYTES, os::PROT_NONE) };
            self.guarded.fetch_or(1 << place, Relaxed);
        }
    }

    /// Runs `f` on the stack of a place that is the caller's.
    fn run<R>(&self, place: usize, f: impl FnOnce(&mut Cx) -> R) -> R {
        struct Frame<F, R> {
            f: Option<F>,
            cx: *mut Cx,
            place: usize,
            result: Option<R>,
        }
        extern "C" fn enter<F: FnOnce(&mut Cx) -> R, R>(frame: *mut Frame<F, R>) {
            // SAFETY: `run` passes its own frame, which nobody else uses until this returns.
            let frame = unsafe { &mut *frame };
            if let Some(f) = frame.f.take() {
                // SAFETY: the scratch memory is reserved, zero is a valid context, and the place is the caller's.
                let cx = unsafe { &mut *frame.cx };
                cx.lane = frame.place;
                frame.result = Some(f(cx));
            }
        }
        fn entry<F: FnOnce(&mut Cx) -> R, R>(_: &F) -> extern "C" fn(*mut Frame<F, R>) {
            enter::<F, R>
        }
        self.guard(place);
        let top = self.base.load(Acquire) + place * STRIDE + PAGE_BYTES + CONTEXT_STACK_BYTES;
        let enter = entry(&f);
        let mut frame = Frame { f: Some(f), cx: top as *mut Cx, place, result: None };
        // SAFETY: the stack is reserved and ours, and `enter` takes the frame.
        unsafe { outswap_on_stack((&raw mut frame).cast(), enter as *const (), top & !15) };
        frame.result.expect("enter always runs the closure")
    }

    /// Bytes of address space.
    pub fn reserved_bytes(&self) -> usize {
        STRIDE * PLACES
    }
}
