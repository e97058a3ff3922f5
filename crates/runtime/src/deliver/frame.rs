//! Signal frames: put where the program's handlers find them, and taken back when those return.
use crate::dispositions::OURS;
use crate::limits::{FP_ALIGN, FP_MAX_BYTES, HANDLER_BYTES, OVERLAP_BYTES};
use crate::live::try_live;
use crate::stacks::{self, Kept, Thread};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use outswap_sys::signal::*;
use outswap_sys::{nr, os};

/// Below the stack pointer, code may keep data.
const RED_ZONE_BYTES: usize = 128;
const SIGINFO_BYTES: usize = 128;
/// Bits of eflags that a handler starts without: direction, resume, trap.
const EFLAGS_CLEARED: u64 = 0x400 | 0x1_0000 | 0x100;

/// The segments of 64-bit code.
const USER_CS: u16 = 0x33;
const USER_DS: u16 = 0x2b;

/// Where in what the kernel leaves free of a frame: which thread it was made for, and the upper end of the stack on which that
/// one returns, 0 where it has none.
const TID: usize = 0;
const PLACE: usize = 1;
/// The mask while a handler is returned from.
static DURING_RETURN: u64 = !OURS;

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
    // padding is for those that look for the instruction before. Nothing is written to the stack of the handler, which the
    // program may have made read-only meanwhile: the kernel would only read the frame.
    ".hidden outswap_return, outswap_restorer, outswap_fault_return, outswap_look, outswap_looked",
    ".globl outswap_return, outswap_restorer, outswap_fault_return, outswap_look, outswap_looked",
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
    // Where the handler of faults returns to, with what is kept for the thread in rax. A signal that comes between the look and the kernel's
    // own return has the look made once more ([`looks_again`]).
    "outswap_fault_return:",
    "mov rbx, rax",
    "outswap_look:",
    "cmp dword ptr [rbx], 0",
    "jne 3f",
    "mov eax, 15",
    "syscall",
    "outswap_looked:",
    "3:",
    "mov rdi, rbx",
    "mov rsi, rsp",
    "call [rip + {deliver_kept}]",
    "jmp outswap_restorer",
    "nop",
    "outswap_return:",
    "mov rbx, rsp",
    "and rsp, -16",
    "mov eax, {rt_sigprocmask}", // from here on only our own signals come
    "mov edi, 2",
    "lea rsi, [rip + {during_return}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov eax, {gettid}",
    "syscall",
    "cmp rax, [rbx + {tid}]",
    "mov rax, [rbx + {place}]",
    "je 2f",
    "call {return_stack}", // a forked child, or one that borrowed the memory
    "2:",
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
    rt_sigprocmask = const nr::RT_SIGPROCMASK,
    gettid = const nr::GETTID,
    during_return = sym DURING_RETURN,
    tid = const offset_of!(Ucontext, reserved) + TID * 8,
    place = const offset_of!(Ucontext, reserved) + PLACE * 8,
    return_stack = sym return_stack,
    on_return = sym on_return,
    deliver_kept = sym DELIVER_KEPT,
);

/// Where handlers of the program return to, with the stack pointer at what the kernel's `rt_sigreturn` wants there.
pub fn returns() -> usize {
    outswap_return as *const () as usize
}

unsafe extern "C" {
    fn outswap_copy(to: usize, from: usize, len: usize) -> u32;
    fn outswap_copy_at();
    fn outswap_copy_failed();
    fn outswap_return();
    fn outswap_restorer();
    fn outswap_fault_return();
    fn outswap_look();
    fn outswap_looked();
}

/// What the code that returns from the handler of faults calls where a signal was kept.
static DELIVER_KEPT: AtomicUsize = AtomicUsize::new(0);

/// Code that returns from the handler of faults, and has `deliver` called with a signal that was kept.
pub fn fault_restorer(deliver: unsafe extern "C" fn(*const Kept, *mut Ucontext)) -> usize {
    DELIVER_KEPT.store(deliver as usize, Release);
    outswap_fault_return as *const () as usize
}

/// Where the code was interrupted that looks for a signal that was kept, and then returns: has it look again.
pub fn looks_again(uc: &mut Ucontext) {
    let [look, looked] = [outswap_look as *const (), outswap_looked as *const ()].map(|at| at as u64);
    if (look..looked).contains(&uc.gregs.rip) {
        uc.gregs.rip = look;
    }
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
pub fn enter_handler(
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
    if !stacks::holds(here) && here < top && top - here < OVERLAP_BYTES {
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
    let own = if stacks::holds(here) { stacks::by_stack(here) } else { None };
    let mut frame = Frame { ret: returns(), uc: *uc, info: [0; SIGINFO_BYTES] };
    frame.uc.stack = thread.map_or(stack, Thread::saved_stack);
    frame.uc.sigmask |= pretended;
    frame.uc.fpstate = if bytes > 0 { fp } else { 0 };
    frame.uc.reserved[TID] = os::gettid() as u64;
    frame.uc.reserved[PLACE] = place_of_return(own);
    // SAFETY: the kernel's siginfo has that many bytes.
    frame.info = unsafe { *(info as *const Siginfo).cast() };
    // A missing page of the program's raises our signals in the copy.
    if let Some(own) = own {
        own.copies.store(true, Relaxed);
    }
    set_mask(!OURS);
    let copied =
        copy_out(fp, uc.fpstate, bytes) && copy_out(at, &raw const frame as usize, core::mem::size_of::<Frame>());
    set_mask(u64::MAX);
    if let Some(own) = own {
        own.copies.store(false, Relaxed);
        own.let_come(pretended);
    }
    if !copied {
        return false;
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    let mask = during | action.mask | own;
    if let Some(thread) = thread {
        if stack.flags & SS_AUTODISARM != 0 {
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
    if g.csgsfs as u16 != USER_CS {
        // What was interrupted is code of 32 bits; no handler is.
        g.csgsfs = g.csgsfs & !(0xffff | 0xffff << 48) | u64::from(USER_CS) | u64::from(USER_DS) << 48;
    }
    g.rip = action.handler as u64;
    g.rsp = at as u64;
    g.rdi = signal as u64;
    g.rsi = (at + offset_of!(Frame, info)) as u64;
    g.rdx = (at + offset_of!(Frame, uc)) as u64;
    g.rax = 0;
    g.eflags &= !EFLAGS_CLEARED;
    true
}

/// The upper end of the stack for returns, which lies below the other.
fn place_of_return(thread: Option<&Thread>) -> u64 {
    thread.map_or(0, |thread| thread.return_top() as u64)
}

/// Where a handler of the program's is returned from: the kernel reads the whole frame, of which pages may be missing where it
/// lies. 0 for a thread without stacks of ours.
unsafe extern "C" fn return_stack() -> u64 {
    place_of_return(stacks::own_stacks())
}

/// A handler of the program's returns: the frame goes to our own stack, and what the kernel will restore is made what the kernel
/// knows. Returns where the context is.
unsafe extern "C" fn on_return(uc: *mut Ucontext) -> *mut Ucontext {
    // SAFETY: `enter_handler` put the frame there, with its return address before the context; the program may have changed it.
    let frame = unsafe { &mut *uc };
    let Some(own) = stacks::own_stacks() else {
        frame.sigmask &= !OURS;
        return uc;
    };
    own.copies.store(true, Relaxed);
    let mut context = *frame;
    let mask = context.sigmask;
    context.sigmask = mask & !OURS;
    let (stack, sp) = (context.stack, context.gregs.rsp as usize);
    context.stack = own.kernel_stack();
    // Both above what this function uses, and what a signal of ours may put below it until the kernel has read them.
    let bytes = fp_bytes(context.fpstate).min(FP_MAX_BYTES);
    let at = own.return_top();
    let place = (at + size_of::<Ucontext>()).next_multiple_of(FP_ALIGN);
    // SAFETY: the upper end of the stack that this runs on, with room for both, and state of that length behind the frame.
    unsafe {
        if bytes > 0 {
            core::ptr::copy_nonoverlapping(context.fpstate as *const u8, place as *mut u8, bytes);
            context.fpstate = place;
        }
        (at as *mut Ucontext).write(context);
    }
    own.copies.store(false, Relaxed);
    if let Some(live) = try_live() {
        let thread = live.sharer_thread().unwrap_or(own);
        // As the kernel puts it back, which minds no error either.
        let _ = stacks::change_stack(thread, Some(&stack), sp);
        own.let_come(mask);
        thread.set_pretended(mask);
    }
    at as *mut Ucontext
}
