//! Engine contexts: a stack and scratch memory for each thread at work in the engine.
//!
//! A fault must not depend on how much of the program's (or its alternate) stack is left, so engine work runs on a stack
//! of its own. Holding a context also marks a thread as inside the engine: fork waits until no other is held.
use core::arch::asm;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::engine::Context;
use outswap_store::Worker;
use outswap_sys::{Result, os};

/// Contexts: threads that can be at work in the engine at the same time; more wait.
pub const CONTEXTS: usize = 64;
const STACK_BYTES: usize = 96 * 1024;

/// All contexts.
pub struct Contexts {
    base: AtomicUsize,
    held: AtomicU64,
    /// Thread that has everybody else kept out, 0 for none.
    exclusive: AtomicI32,
}

/// A held context.
pub struct Held<'a> {
    contexts: &'a Contexts,
    index: usize,
}

const fn stride() -> usize {
    STACK_BYTES + core::mem::size_of::<Context<Worker>>().next_multiple_of(4096) + 4096
}

fn pause(spins: u32) {
    if spins < 50 { core::hint::spin_loop() } else { os::sched_yield() }
}

impl Contexts {
    /// Without memory yet.
    pub const fn unreserved() -> Contexts {
        Contexts { base: AtomicUsize::new(0), held: AtomicU64::new(0), exclusive: AtomicI32::new(0) }
    }

    /// Reserves the memory.
    pub fn reserve(&self) -> Result<()> {
        self.base.store(os::mmap_anonymous(stride() * CONTEXTS)?, Release);
        Ok(())
    }

    /// Takes a context. All signals must be blocked.
    pub fn hold(&self) -> Held<'_> {
        let mut spins = 0;
        loop {
            let held = self.held.load(Relaxed);
            if held != u64::MAX && self.exclusive.load(SeqCst) == 0 {
                let index = held.trailing_ones() as usize;
                if self.held.compare_exchange(held, held | 1 << index, SeqCst, Relaxed).is_ok() {
                    if self.exclusive.load(SeqCst) == 0 {
                        return Held { contexts: self, index };
                    }
                    self.held.fetch_and(!(1 << index), SeqCst);
                }
            }
            pause(spins);
            spins += 1;
        }
    }

    /// Keeps every other thread out and waits until none is inside.
    pub fn exclude(&self, tid: i32) -> Held<'_> {
        let mut spins = 0;
        while self.exclusive.compare_exchange(0, tid, SeqCst, Relaxed).is_err() {
            pause(spins);
            spins += 1;
        }
        spins = 0;
        while self.held.load(SeqCst) != 0 {
            pause(spins);
            spins += 1;
        }
        self.held.store(1, SeqCst);
        Held { contexts: self, index: 0 }
    }

    /// In a forked child of the thread that keeps others out: a context that another thread was about to give back, or to take,
    /// is free.
    pub fn only_this(&self) {
        self.held.store(1, SeqCst);
    }

    /// Lets others in again.
    pub fn readmit(&self) {
        self.exclusive.store(0, SeqCst);
    }

    /// Bytes of address space.
    pub fn reserved_bytes(&self) -> usize {
        stride() * CONTEXTS
    }
}

impl Held<'_> {
    /// The scratch memory.
    pub fn scratch(&mut self) -> &mut Context<Worker> {
        let base = self.contexts.base.load(Acquire) + self.index * stride() + STACK_BYTES;
        // SAFETY: the memory is reserved, zero is a valid context, and holding it makes it ours.
        unsafe { &mut *(base.next_multiple_of(4096) as *mut Context<Worker>) }
    }

    /// Runs `f` on this context's stack.
    pub fn run<R>(&mut self, f: impl FnOnce(&mut Context<Worker>) -> R) -> R {
        struct Frame<F, R> {
            f: Option<F>,
            cx: *mut Context<Worker>,
            result: Option<R>,
        }
        extern "C" fn enter<F: FnOnce(&mut Context<Worker>) -> R, R>(frame: *mut Frame<F, R>) {
            // SAFETY: `run` passes its own frame, which nobody else uses until this returns.
            let frame = unsafe { &mut *frame };
            if let Some(f) = frame.f.take() {
                // SAFETY: the context is held by the thread that runs this.
                frame.result = Some(f(unsafe { &mut *frame.cx }));
            }
        }
        fn entry<F: FnOnce(&mut Context<Worker>) -> R, R>(_: &F) -> extern "C" fn(*mut Frame<F, R>) {
            enter::<F, R>
        }
        let top = self.contexts.base.load(Acquire) + self.index * stride() + STACK_BYTES;
        let enter = entry(&f);
        let mut frame = Frame { f: Some(f), cx: self.scratch() as *mut _, result: None };
        // SAFETY: the stack is reserved and ours; `enter` has the C calling convention, and the old stack pointer is kept
        // in a callee-saved register.
        unsafe {
            asm!("mov r12, rsp", "mov rsp, {top}", "call {enter}", "mov rsp, r12",
                 top = in(reg) top & !15, enter = in(reg) enter, inlateout("rdi") &raw mut frame => _,
                 out("r12") _, clobber_abi("C"));
        }
        frame.result.expect("enter always runs the closure")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.contexts.held.fetch_and(!(1 << self.index), SeqCst);
    }
}
