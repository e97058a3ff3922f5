//! Signals for the program: its handlers run as the kernel would have run them.
//!
//! The kernel is told of one handler for all of the program's signals, which runs on an alternate stack of ours. It copies the
//! signal frame to where the kernel would have put it (the stack of the interrupted code, or the program's alternate stack), and
//! returns into the program's handler there. So a frame may lie in managed memory, which the kernel could not write where a page
//! is missing; the program's alternate stack need only be as large as it would have to be; and no frame of ours lies below a
//! handler that throws an exception, is unwound by a cancelled thread, or leaves by `siglongjmp`.
//!
//! A call that was interrupted in its stub is first brought back to where the program made it: what is seen from the handler is
//! the program's own code, and what the call held is free.
use crate::gate::{self, InStub};
use crate::layout::{GATE_CODE_BYTES, gate};
use crate::live::Live;
use crate::signals::{OURS, SIGNALS, fall};
use crate::threads::{self, Thread};
use crate::{assist, parts};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use outswap_core::lock::SpinLock;
use outswap_sys::signal::*;
use outswap_sys::{Errno, Result, nr, os};

const SIGNAL_MAX: usize = 64;
const SIGSEGV_CODE_KERNEL: i32 = 0x80;
/// Below the stack pointer, code may keep data.
const RED_ZONE_BYTES: usize = 128;
const SIGINFO_BYTES: usize = 128;
/// Bits of eflags that a handler starts without: direction, resume, trap.
const EFLAGS_CLEARED: u64 = 0x400 | 0x1_0000 | 0x100;
const EINTR: u64 = -(Errno::EINTR.0 as i64) as u64;

/// What the program asked for each signal. Readers take no lock: they may run in any thread, also one of another process that
/// shares the memory.
pub struct Actions {
    version: AtomicU32,
    writer: SpinLock<()>,
    table: [[AtomicU64; 4]; SIGNAL_MAX],
}

impl Default for Actions {
    fn default() -> Actions {
        Actions {
            version: AtomicU32::new(0),
            writer: SpinLock::new(()),
            table: [const { [const { AtomicU64::new(0) }; 4] }; SIGNAL_MAX],
        }
    }
}

impl Actions {
    /// The disposition of a signal (1 to 64).
    pub fn get(&self, signal: i32) -> KernelSigaction {
        let entry = &self.table[signal as usize - 1];
        let mut spins = 0;
        loop {
            let version = self.version.load(Acquire);
            let words = [0, 1, 2, 3].map(|i| entry[i].load(Relaxed));
            fence(Acquire);
            if version & 1 == 0 && self.version.load(Relaxed) == version {
                let [handler, flags, restorer, mask] = words;
                return KernelSigaction { handler: handler as usize, flags, restorer: restorer as usize, mask };
            }
            os::wait_a_little(spins);
            spins += 1;
        }
    }

    /// Changes the disposition of a signal. Only in the process whose engine this is, with all signals blocked.
    pub fn set(&self, signal: i32, action: &KernelSigaction) {
        let _writer = self.writer.lock(os::wait_a_little);
        let entry = &self.table[signal as usize - 1];
        self.version.fetch_add(1, AcqRel);
        fence(Release);
        let words = [action.handler as u64, action.flags, action.restorer as u64, action.mask];
        for (word, value) in entry.iter().zip(words) {
            word.store(value, Relaxed);
        }
        self.version.fetch_add(1, Release);
    }

    /// As the kernel takes a disposition for a signal that is delivered: a handler that wants it is reset.
    fn take(&self, signal: i32) -> KernelSigaction {
        let action = self.get(signal);
        if action.flags & SA_RESETHAND != 0 && action.handler > SIG_IGN {
            self.set(signal, &KernelSigaction { handler: SIG_DFL, ..action });
        }
        action
    }
}

/// The disposition that the kernel gets in place of one with a handler of the program's.
fn stand_in(action: &KernelSigaction) -> KernelSigaction {
    const PASSED_ON: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART | SA_NODEFER | SA_RESETHAND;
    KernelSigaction {
        handler: on_signal as *const () as usize,
        flags: action.flags & PASSED_ON | SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: plain_restorer(),
        mask: !OURS,
    }
}

/// Takes over the handlers that were installed before the engine was there.
pub fn adopt(live: &Live) {
    for signal in (1..=SIGNAL_MAX as i32).filter(|s| !SIGNALS.contains(s)) {
        let mut action = KernelSigaction::default();
        // SAFETY: only reads; then the program's handler is called by ours.
        unsafe {
            if sigaction(signal, None, Some(&mut action)).is_ok() && action.handler > SIG_IGN {
                live.actions.set(signal, &action);
                let _ = sigaction(signal, Some(&stand_in(&action)), None);
            }
        }
    }
}

/// `sigaction` as the program sees it, for every signal. `shared`: the caller is another process than the engine's, whose
/// dispositions are its own.
pub fn change(live: &Live, signal: i32, new: Option<&KernelSigaction>, shared: bool) -> Result<KernelSigaction> {
    if SIGNALS.contains(&signal) {
        let old = live.actions.get(signal);
        if let Some(new) = new.filter(|_| !shared) {
            live.actions.set(signal, new);
        }
        return Ok(old);
    }
    let mut old = KernelSigaction::default();
    let mut stood_in = None;
    if let Some(new) = new {
        let mut action = *new;
        action.mask &= !OURS;
        if new.handler > SIG_IGN && !shared && (1..=SIGNAL_MAX as i32).contains(&signal) {
            action = stand_in(new);
            stood_in = Some(live.actions.get(signal));
            live.actions.set(signal, new);
        }
        // SAFETY: the program's own request, or a handler of ours in its place.
        if let Err(e) = unsafe { sigaction(signal, Some(&action), Some(&mut old)) } {
            if let Some(before) = stood_in {
                live.actions.set(signal, &before);
            }
            return Err(e);
        }
    } else {
        // SAFETY: only reads.
        unsafe { sigaction(signal, None, Some(&mut old))? };
    }
    if old.handler == on_signal as *const () as usize {
        old = stood_in.unwrap_or_else(|| live.actions.get(signal));
    }
    Ok(old)
}

/// What stands where the program's handler starts. The start is what the kernel makes too.
#[repr(C)]
struct Frame {
    /// Where the handler returns to.
    ret: usize,
    uc: Ucontext,
    info: [u8; SIGINFO_BYTES],
    /// Index of the thread, for the way back.
    thread: usize,
    pad: usize,
}

global_asm!(
    ".hidden outswap_copy, outswap_copy_at, outswap_copy_failed",
    ".globl outswap_copy, outswap_copy_at, outswap_copy_failed",
    "outswap_copy:",
    "mov rcx, rdx",
    "outswap_copy_at:",
    "rep movsb",
    "mov eax, 1",
    "ret",
    "outswap_copy_failed:",
    "xor eax, eax",
    "ret",
    // A handler returns here, with the stack pointer at its ucontext. Unwinders go on from there by what is said below; the
    // padding is for those that look for the instruction before.
    ".hidden outswap_return, outswap_restorer",
    ".globl outswap_return, outswap_restorer",
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    ".cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06", // CFA: what is saved as rsp
    ".cfi_escape 0x10, 8, 2, 0x77, 0x28",          // r8 and so on: at their places in the ucontext
    ".cfi_escape 0x10, 9, 2, 0x77, 0x30",
    ".cfi_escape 0x10, 10, 2, 0x77, 0x38",
    ".cfi_escape 0x10, 11, 3, 0x77, 0xc0, 0x00",
    ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0x00",
    ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0x00",
    ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0x00",
    ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0x00",
    ".cfi_escape 0x10, 5, 3, 0x77, 0xe8, 0x00",
    ".cfi_escape 0x10, 4, 3, 0x77, 0xf0, 0x00",
    ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00",
    ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01",
    ".cfi_escape 0x10, 1, 3, 0x77, 0x88, 0x01",
    ".cfi_escape 0x10, 0, 3, 0x77, 0x90, 0x01",
    ".cfi_escape 0x10, 2, 3, 0x77, 0x98, 0x01",
    ".cfi_escape 0x10, 7, 3, 0x77, 0xa0, 0x01",
    ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01",
    "nop",
    "outswap_return:",
    "mov rdi, rsp",
    "mov rbx, rsp",
    "and rsp, -16",
    "call {on_return}",
    "mov rsp, rbx",
    "outswap_restorer:",
    "mov rax, 15", // rt_sigreturn; the bytes that some unwinders look for
    "syscall",
    ".cfi_endproc",
    on_return = sym on_return,
);
unsafe extern "C" {
    fn outswap_copy(to: usize, from: usize, len: usize) -> u32;
    fn outswap_copy_at();
    fn outswap_copy_failed();
    fn outswap_return();
    fn outswap_restorer();
}

/// Code that returns from a handler of ours.
pub fn plain_restorer() -> usize {
    outswap_restorer as *const () as usize
}

/// Lets a copy to the program's memory fail where that is not writable: whether the fault was one, which is then answered.
pub fn copy_failed(uc: &mut Ucontext) -> bool {
    let at = outswap_copy_at as *const () as u64;
    let ours = uc.gregs.rip == at;
    if ours {
        uc.gregs.rip = outswap_copy_failed as *const () as u64;
    }
    ours
}

/// Copies to the program's memory, whose missing pages come in as the copy touches them.
fn copy_out(to: usize, from: usize, len: usize) -> bool {
    // SAFETY: `from` is memory of ours of that length; a fault at `to` ends the copy (`copy_failed`).
    unsafe { outswap_copy(to, from, len) != 0 }
}

unsafe extern "C" fn on_signal(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    let Some(live) = crate::live::try_live() else { return };
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    unsafe { deliver(live, signal, info, uc) }
}

/// Brings code that was interrupted in a call's stub back to where the program made the call. What the call held is free then.
fn leave_stub(live: &'static Live, uc: &mut Ucontext) {
    let g = &mut uc.gregs;
    let Some(place) = gate::in_stub(g.rip as usize, g.rdi as usize) else { return };
    match place {
        InStub::Freed => g.rip = g.rcx,
        InStub::Before(slot) => {
            let again = g.rax;
            parts::restore(slot, g);
            // SAFETY: the slot is this call's.
            let state = unsafe { &*gate::state(slot) };
            if state.done_bytes > 0 {
                g.rax = state.done_bytes as u64;
            } else if again == nr::RESTART_SYSCALL as u64 {
                g.rax = EINTR;
            } else {
                g.rax = state.nr as u64;
                // The call is made anew, and trapped anew.
                g.rip -= 2;
            }
            parts::release(live, slot);
        }
        InStub::After(slot) => {
            let result = g.rax as isize;
            parts::finish(live, slot, result, g);
        }
        InStub::Kept(slot) => {
            // SAFETY: the slot is this call's.
            let result = unsafe { (*gate::state(slot)).result };
            parts::finish(live, slot, result, g);
        }
    }
}

/// Hands a signal to the program, as the kernel would have done: on return from the handler that calls this, the program's own
/// handler runs, or its default does.
///
/// # Safety
/// `info` and `uc` are what the kernel passed to the handler that calls this, as its last act, on an alternate stack of ours
/// where there is one.
pub unsafe fn deliver(live: &'static Live, signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel's own structures.
    let (info, uc) = unsafe { (&mut *info, &mut *uc) };
    let ours = SIGNALS.contains(&signal);
    let sent = info.code <= 0;
    let rsp = uc.gregs.rsp as usize;
    if live.contexts.holds(rsp) || threads::holds(rsp) && ours && !sent {
        // Nothing of the program's may run on the engine's stacks.
        live.control.post(b"error: a fault in the engine itself: the program is ended to keep its data safe");
        return fall(signal);
    }
    let thread = threads::current(live, uc);
    if ours && thread.is_some_and(|t| t.pretended() & bit(signal) != 0) {
        if let (true, Some(thread)) = (sent, thread) {
            return thread.hold(signal);
        }
        // A fault at a blocked signal is death.
        return fall(signal);
    }
    let action = live.actions.take(signal);
    match action.handler {
        SIG_IGN if sent || !ours => return,
        SIG_DFL | SIG_IGN => {
            if ours {
                // A fault comes again by itself; a signal that was sent, or a fault found by the store, does not.
                uc.sigmask &= !bit(signal);
                fall(signal);
                let _ = os::tgkill(os::getpid(), os::gettid(), signal);
            }
            return;
        }
        _ => {}
    }
    leave_stub(live, uc);
    if ours && sent && action.flags & SA_RESTART == 0 {
        interrupt_call(uc);
    }
    if enter_handler(thread, signal, info, uc, &action) {
        return;
    }
    // Without room for its frame, the program gets SIGSEGV, and dies of it where that is the signal, or has no room either.
    let segv = live.actions.take(SIGSEGV);
    *info = Siginfo::of_kernel(SIGSEGV, SIGSEGV_CODE_KERNEL);
    let free = thread.is_none_or(|t| t.pretended() & bit(SIGSEGV) == 0);
    if signal != SIGSEGV && free && segv.handler > SIG_IGN && enter_handler(thread, SIGSEGV, info, uc, &segv) {
        return;
    }
    uc.sigmask &= !bit(SIGSEGV);
    fall(SIGSEGV);
    let _ = os::tgkill(os::getpid(), os::gettid(), SIGSEGV);
}

/// Makes a call that our own handler lets the kernel start again end with `EINTR`, as the program's handler wants it.
fn interrupt_call(uc: &mut Ucontext) {
    let mut code = [0u8; 2];
    if assist::peek(uc.gregs.rip as usize, &mut code) && code == [0x0f, 0x05] {
        uc.gregs.rax = EINTR;
        uc.gregs.rip += 2;
    }
}

/// Bytes of the floating-point state behind a frame.
fn fp_bytes(fpstate: usize) -> usize {
    const MAGIC: u32 = 0x4650_5853;
    const FXSAVE_BYTES: usize = 512;
    if fpstate == 0 {
        return 0;
    }
    // SAFETY: the kernel put at least the 512 bytes of FXSAVE there, whose reserved end says more.
    let (magic, bytes) = unsafe { (*((fpstate + 464) as *const u32), *((fpstate + 468) as *const u32)) };
    if magic == MAGIC { bytes as usize } else { FXSAVE_BYTES }
}

/// Puts the frame where the program's handler finds it, and changes what the kernel will go on with. False where the memory
/// there cannot be written.
fn enter_handler(
    thread: Option<&'static Thread>,
    signal: i32,
    info: &mut Siginfo,
    uc: &mut Ucontext,
    action: &KernelSigaction,
) -> bool {
    let rsp = uc.gregs.rsp as usize;
    let stack = thread.map_or(Stack { sp: 0, flags: SS_DISABLE, size: 0 }, Thread::stack);
    let on_stack = thread.is_some_and(|t| t.is_on_stack(rsp));
    let switch = action.flags & SA_ONSTACK != 0 && stack.size > 0 && !on_stack;
    let top = if switch { stack.sp + stack.size } else { rsp - RED_ZONE_BYTES };
    let bytes = fp_bytes(uc.fpstate);
    let fp = (top - bytes) & !63;
    // As at the start of any function, the stack is aligned but for the return address.
    let at = ((fp - core::mem::size_of::<Frame>()) & !15) - 8;
    if (switch || on_stack) && at < stack.sp {
        return false;
    }
    let pretended = thread.map_or(0, Thread::pretended);
    let mut frame = Frame {
        ret: outswap_return as *const () as usize,
        uc: *uc,
        info: [0; SIGINFO_BYTES],
        thread: thread.map_or(usize::MAX, Thread::index),
        pad: 0,
    };
    frame.uc.stack = stack;
    frame.uc.sigmask |= pretended;
    frame.uc.fpstate = if bytes > 0 { fp } else { 0 };
    // SAFETY: the kernel's siginfo has that many bytes.
    frame.info = unsafe { *(info as *const Siginfo).cast() };
    // A missing page of the program's raises our signals in the copy.
    let copied =
        copy_out(fp, uc.fpstate, bytes) && copy_out(at, &raw const frame as usize, core::mem::size_of::<Frame>());
    if !copied {
        return false;
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    let mask = uc.sigmask | pretended | action.mask | own;
    if let Some(thread) = thread {
        if switch && stack.flags & SS_AUTODISARM != 0 {
            thread.set_stack(&Stack { sp: 0, flags: SS_DISABLE, size: 0 });
        }
        thread.set_pretended(mask);
    }
    uc.sigmask = mask & !OURS;
    if bytes > 0 {
        // Handlers start with a clean floating-point state.
        const MXCSR_AT: usize = 24;
        const MXCSR_DEFAULT: u32 = 0x1f80;
        const XSTATE_BV_AT: usize = 512;
        const XFEATURE_PKRU: u64 = 1 << 9;
        // SAFETY: the kernel's frame on our stack; the state has a header behind FXSAVE's part where it is longer than that.
        unsafe {
            *((uc.fpstate + MXCSR_AT) as *mut u32) = MXCSR_DEFAULT;
            if bytes > XSTATE_BV_AT {
                *((uc.fpstate + XSTATE_BV_AT) as *mut u64) &= XFEATURE_PKRU;
            }
        }
    }
    let g = &mut uc.gregs;
    g.rip = action.handler as u64;
    g.rsp = at as u64;
    g.rdi = signal as u64;
    g.rsi = (at + core::mem::offset_of!(Frame, info)) as u64;
    g.rdx = (at + core::mem::offset_of!(Frame, uc)) as u64;
    g.rax = 0;
    g.eflags &= !EFLAGS_CLEARED;
    true
}

/// A handler of the program's returns: what the kernel will restore is made what the kernel knows.
unsafe extern "C" fn on_return(uc: *mut Ucontext) {
    // SAFETY: `enter_handler` put the frame there, with its return address before the context.
    let frame = unsafe { &mut *uc.byte_sub(core::mem::offset_of!(Frame, uc)).cast::<Frame>() };
    let mask = frame.uc.sigmask;
    frame.uc.sigmask = mask & !OURS;
    if let Some(thread) = threads::at(frame.thread) {
        if frame.uc.stack.flags & SS_AUTODISARM != 0 {
            let stack = frame.uc.stack;
            thread.set_stack(&stack);
        }
        thread.set_pretended(mask);
        frame.uc.stack = thread.kernel_stack();
    }
}

/// Whether a trap comes from the gate, where only filters of the program's own trap.
pub fn from_gate(address: usize) -> bool {
    (gate()..gate() + GATE_CODE_BYTES).contains(&address)
}
