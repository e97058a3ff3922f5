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
use crate::{assist, foreign, parts};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use outswap_core::lock::SpinLock;
use outswap_sys::signal::*;
use outswap_sys::{Errno, Result, nr, os};

const SIGNAL_MAX: usize = 64;
const SIGSEGV_CODE_KERNEL: i32 = 0x80;
/// The processor's state at most: some more than today's.
const FP_MAX_BYTES: usize = 16 * 1024;
/// Below the stack pointer, code may keep data.
const RED_ZONE_BYTES: usize = 128;
const SIGINFO_BYTES: usize = 128;
/// Stack that is left to a handler of ours on a stack of the program's, and how far from its frame the kernel's may be.
const HANDLER_BYTES: usize = 8 * 1024;
const OVERLAP_BYTES: usize = 64 * 1024;
/// Bits of eflags that a handler starts without: direction, resume, trap.
const EFLAGS_CLEARED: u64 = 0x400 | 0x1_0000 | 0x100;
const EINTR: u64 = -(Errno::EINTR.0 as i64) as u64;

/// The disposition of a signal that is delivered. A handler that wants that is reset; for other signals than ours, the kernel
/// does so.
fn take(live: &'static Live, signal: i32) -> KernelSigaction {
    let action = live.actions.get(signal);
    let resets = action.flags & SA_RESETHAND != 0 && action.handler > SIG_IGN && SIGNALS.contains(&signal);
    if resets && live.is_own_process() {
        live.contexts.with(|_| {
            // Unless another thread has changed it meanwhile.
            if live.actions.get(signal).handler == action.handler {
                live.actions.set(signal, &KernelSigaction { handler: SIG_DFL, ..action });
            }
        });
    }
    action
}

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

    /// Changes the disposition of a signal. Only in the process whose runtime this is, with all signals blocked, inside the runtime:
    /// a fork must not copy a change half done.
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
}

/// The disposition that the kernel gets in place of one with a handler of the program's.
fn stand_in(action: &KernelSigaction) -> KernelSigaction {
    const PASSED_ON: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART | SA_NODEFER | SA_RESETHAND;
    KernelSigaction {
        handler: on_signal as *const () as usize,
        flags: action.flags & PASSED_ON | SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: plain_restorer(),
        mask: u64::MAX,
    }
}

/// Takes over the handlers that were installed before the runtime was there.
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

/// `sigaction` as the program sees it, for every signal. `shared`: the caller is another process than the runtime's, whose
/// dispositions are its own.
pub fn change(
    live: &'static Live,
    signal: i32,
    new: Option<&KernelSigaction>,
    shared: bool,
) -> Result<KernelSigaction> {
    if SIGNALS.contains(&signal) {
        let old = live.actions.get(signal);
        if let Some(new) = new.filter(|_| !shared) {
            live.contexts.with(|_| live.actions.set(signal, new));
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
            live.contexts.with(|_| live.actions.set(signal, new));
        }
        // SAFETY: the program's own request, or a handler of ours in its place.
        if let Err(e) = unsafe { sigaction(signal, Some(&action), Some(&mut old)) } {
            if let Some(before) = stood_in {
                live.contexts.with(|_| live.actions.set(signal, &before));
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
    "mov rbx, rsp",
    "and rsp, -16",
    "call {return_stack}",
    "test rax, rax",
    "cmovz rax, rsp", // a thread without stacks of ours returns from where it is
    "mov rsp, rax",
    "mov rdi, rbx",
    "call {on_return}",
    "mov rsp, rax",
    "outswap_restorer:",
    "mov rax, 15", // rt_sigreturn; the bytes that some unwinders look for
    "syscall",
    ".cfi_endproc",
    return_stack = sym return_stack,
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

/// The signal mask that holds while a call waits that has one of its own, where code was interrupted in such a call.
fn mask_of_call(uc: &Ucontext) -> Option<u64> {
    match gate::in_stub(uc.gregs.rip as usize, uc.gregs.rdi as usize)? {
        InStub::Freed => None,
        // SAFETY: the slot is this call's.
        InStub::Before(slot) | InStub::After(slot) | InStub::Kept(slot) => unsafe { (*gate::state(slot)).waits_with },
    }
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
            } else if again == nr::RESTART_SYSCALL as u64 || state.waits_with.is_some() {
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
    if live.contexts.holds(rsp) || threads::holds(rsp) {
        // Nothing of the program's may run on the runtime's stacks, or in the midst of its work.
        if sent {
            return postpone(signal, info, uc);
        }
        live.control.post(b"error: a fault in the runtime itself: the program is ended to keep its data safe");
        return fall(signal);
    }
    let thread = threads::current(live, uc);
    let call_mask = mask_of_call(uc);
    let pretended = call_mask.map_or_else(|| thread.map_or(0, Thread::pretended), |mask| mask & OURS);
    if ours && pretended & bit(signal) != 0 {
        if let (true, Some(thread)) = (sent, thread) {
            return thread.hold(signal, info);
        }
        // A fault at a blocked signal is death.
        return fall(signal);
    }
    let action = take(live, signal);
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
    // A call that waits with a mask of its own has its handlers run with that; the old one comes back with the frame.
    let during = call_mask.unwrap_or_else(|| uc.sigmask | thread.map_or(0, Thread::pretended));
    if enter_handler(thread, signal, info, uc, &action, during) {
        return;
    }
    // Without room for its frame, the program gets SIGSEGV, and dies of it where that is the signal, or has no room either.
    let segv = take(live, SIGSEGV);
    *info = Siginfo::of_kernel(SIGSEGV, SIGSEGV_CODE_KERNEL);
    let free = thread.is_none_or(|t| t.pretended() & bit(SIGSEGV) == 0);
    if signal != SIGSEGV && free && segv.handler > SIG_IGN && enter_handler(thread, SIGSEGV, info, uc, &segv, during) {
        return;
    }
    uc.sigmask &= !bit(SIGSEGV);
    fall(SIGSEGV);
    let _ = os::tgkill(os::getpid(), os::gettid(), SIGSEGV);
}

/// A signal of ours that was sent comes again when the handler that it interrupted returns: until then it is blocked.
fn postpone(signal: i32, info: &Siginfo, uc: &mut Ucontext) {
    uc.sigmask |= bit(signal);
    set_mask(u64::MAX);
    let (pid, tid, info) = (os::getpid() as usize, os::gettid() as usize, info as *const Siginfo as usize);
    // SAFETY: the kernel's own siginfo, sent to this very thread.
    unsafe { outswap_sys::syscall4(nr::RT_TGSIGQUEUEINFO, pid, tid, signal as usize, info) };
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
    nr::OPEN,
    nr::OPENAT,
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
    nr::SENDFILE,
];

/// Makes a call that our own handler lets the kernel start again end with `EINTR`, as the program's handler wants it.
fn interrupt_call(uc: &mut Ucontext) {
    let mut code = [0u8; 2];
    if !SLOW_CALLS.contains(&(uc.gregs.rax as usize)) {
        return;
    }
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
    during: u64,
) -> bool {
    let rsp = uc.gregs.rsp as usize;
    let stack = thread.map_or(Stack { sp: 0, flags: SS_DISABLE, size: 0 }, Thread::stack);
    let on_stack = thread.is_some_and(|t| t.is_on_stack(rsp));
    let switch = action.flags & SA_ONSTACK != 0 && stack.size > 0 && !on_stack;
    let mut top = if switch { stack.sp + stack.size } else { rsp - RED_ZONE_BYTES };
    let here = &raw const stack as usize;
    if !threads::holds(here) && here < top && top - here < OVERLAP_BYTES {
        // A thread without a stack of ours: the handler that calls this, and the kernel's frame, lie right there.
        top = here - HANDLER_BYTES;
    }
    let bytes = fp_bytes(uc.fpstate);
    let fp = (top - bytes) & !63;
    // As at the start of any function, the stack is aligned but for the return address.
    let at = ((fp - core::mem::size_of::<Frame>()) & !15) - 8;
    if (switch || on_stack) && at < stack.sp {
        return false;
    }
    let pretended = thread.map_or(0, Thread::pretended);
    let mut frame = Frame { ret: outswap_return as *const () as usize, uc: *uc, info: [0; SIGINFO_BYTES] };
    frame.uc.stack = stack;
    frame.uc.sigmask |= pretended;
    frame.uc.fpstate = if bytes > 0 { fp } else { 0 };
    // SAFETY: the kernel's siginfo has that many bytes.
    frame.info = unsafe { *(info as *const Siginfo).cast() };
    // A missing page of the program's raises our signals in the copy.
    set_mask(!OURS);
    let copied =
        copy_out(fp, uc.fpstate, bytes) && copy_out(at, &raw const frame as usize, core::mem::size_of::<Frame>());
    set_mask(u64::MAX);
    if !copied {
        return false;
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    let mask = during | action.mask | own;
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

/// Where a handler of the program's is returned from: the kernel reads the whole frame, of which pages may be missing where it
/// lies. 0 for a thread without stacks of ours. From here on only our own signals come.
unsafe extern "C" fn return_stack() -> usize {
    set_mask(!OURS);
    // The upper end of the stack for returns, which lies below the other.
    threads::own_stacks().map_or(0, |thread| thread.kernel_stack().sp)
}

/// A handler of the program's returns: the frame goes to our own stack, and what the kernel will restore is made what the kernel
/// knows. Returns where the context is.
unsafe extern "C" fn on_return(uc: *mut Ucontext) -> *mut Ucontext {
    // SAFETY: `enter_handler` put the frame there, with its return address before the context; the program may have changed it.
    let frame = unsafe { &mut *uc };
    let mask = frame.sigmask;
    let Some(own) = threads::own_stacks() else {
        frame.sigmask = mask & !OURS;
        return uc;
    };
    let mut context = *frame;
    context.sigmask = mask & !OURS;
    if let Some(live) = crate::live::try_live() {
        let thread = foreign::thread(live).unwrap_or(own);
        if context.stack.flags & SS_AUTODISARM != 0 {
            thread.set_stack(&context.stack);
        }
        thread.set_pretended(mask);
    }
    context.stack = own.kernel_stack();
    // The floating-point state first, as it is aligned, then the context: both below what this function uses.
    let bytes = fp_bytes(context.fpstate).min(FP_MAX_BYTES);
    let place = own.return_stack();
    // SAFETY: the lower part of the stack that this runs on, and state of that length behind the frame.
    unsafe {
        if bytes > 0 {
            core::ptr::copy_nonoverlapping(context.fpstate as *const u8, place as *mut u8, bytes);
            context.fpstate = place;
        }
        let at = (place + FP_MAX_BYTES) as *mut Ucontext;
        at.write(context);
        at
    }
}

/// Whether a trap comes from the gate, where only filters of the program's own trap.
pub fn from_gate(address: usize) -> bool {
    (gate()..gate() + GATE_CODE_BYTES).contains(&address)
}
