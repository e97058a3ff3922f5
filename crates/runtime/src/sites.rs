//! Places in the midst of the C library's functions that make calls for locks and masks of signals: contended mutexes, conditions, semaphores,
//! the start and end of threads, `swapcontext`. Nothing can be put in front of those, and each such call of a lock in managed memory would
//! be trapped.
//!
//! `mov eax, NUMBER` before a `syscall` has room for a jump, and is all that is replaced: who comes to one of the instructions behind it from
//! elsewhere, or was interrupted there, finds them as they were. The jump leads to a *landing* of its own, which keeps all registers and what
//! lies below the stack pointer, makes the call, and goes on behind the `syscall`. Landings have unwind information, as a thread may be
//! cancelled in a call.
//!
//! The code is looked through when a process is about to have its second thread, which most never have, or has changed masks often, as those do
//! that go from context to context.
use crate::direct;
use crate::heap_calls::SYSCALL;
use crate::live::Live;
use crate::pointers::pointers_of;
use crate::redirect::Code;
use crate::scan::pairs;
use crate::{avoided, process, sigmask, threads};
use core::arch::global_asm;
use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize, Ordering::*};
use outswap_sys::nr;
use outswap_sys::signal::Gregs;

/// Places at most: the C library 2.36 has 68.
const SITES: usize = 96;
/// Bytes of a landing.
const LANDING_BYTES: usize = 32;
/// Bytes of `mov eax, NUMBER`.
const MOVE_BYTES: usize = 5;
/// Between that and the call there may be so many.
const BETWEEN_MAX: usize = 16;
const MOVE: u8 = 0xb8;
/// The calls.
const NUMBERS: [usize; 2] = [nr::FUTEX, nr::RT_SIGPROCMASK];

/// A place in some code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Site {
    /// Where the number is set.
    at: usize,
    /// Behind the call.
    back: usize,
    nr: usize,
}

/// An instruction between the two that is understood here.
#[derive(Clone, Copy)]
enum Between {
    /// `xor sil, MASK`.
    XorSil(u8),
    /// `and esi, MASK`.
    AndEsi(u32),
    /// `xor edx, edx`.
    ZeroEdx,
}

/// The first instruction, and those behind it. `None` where it is another one.
fn between(code: &[u8]) -> Option<(Between, &[u8])> {
    match *code {
        [0x40, 0x80, 0xf6, mask, ref rest @ ..] => Some((Between::XorSil(mask), rest)),
        [0x81, 0xe6, a, b, c, d, ref rest @ ..] => Some((Between::AndEsi(u32::from_le_bytes([a, b, c, d])), rest)),
        [0x31, 0xd2, ref rest @ ..] => Some((Between::ZeroEdx, rest)),
        _ => None,
    }
}

/// The place that begins with the first byte of some code, behind `before`.
fn site(before: u8, code: &[u8]) -> Option<Site> {
    // With a prefix it is another register.
    if code[0] != MOVE || matches!(before, 0x40..=0x4f) {
        return None;
    }
    let number = code.get(1..MOVE_BYTES)?;
    let nr = NUMBERS.into_iter().find(|nr| number == (*nr as u32).to_le_bytes())?;
    let mut rest = &code[MOVE_BYTES..];
    while !rest.starts_with(&SYSCALL) {
        rest = between(rest)?.1;
    }
    let back = code.len() - rest.len() + SYSCALL.len();
    (back <= MOVE_BYTES + BETWEEN_MAX).then_some(Site { at: 0, back, nr })
}

/// All places in some code of which the first byte is at address `base`.
fn sites(code: &[u8], base: usize) -> impl Iterator<Item = Site> + '_ {
    const LOW: [u8; NUMBERS.len()] = [NUMBERS[0] as u8, NUMBERS[1] as u8];
    let begins = |first: u8, second: u8| (first == MOVE) & ((second == LOW[0]) | (second == LOW[1]));
    pairs(code, begins).filter_map(move |at| {
        let before = code[..at].last().copied().unwrap_or(0);
        site(before, &code[at..]).map(|site| Site { at: base + at, back: base + at + site.back, nr: site.nr })
    })
}

/// Where the library's code is that may have such places, from its first to behind its last byte.
static CODE: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];
/// Whether it was looked through.
static DONE: AtomicBool = AtomicBool::new(false);

static AT: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];
static NUMBER: [AtomicU16; SITES] = [const { AtomicU16::new(0) }; SITES];
/// Where landings go on. Read by them.
static BACK: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];

/// Says where the code is: of the C library, and of its functions for threads where these are a library of their own.
///
/// # Safety
/// It is readable, and stays so.
pub unsafe fn know(library: Range<usize>, of_threads: Range<usize>) {
    let of_threads = if library == of_threads { 0..0 } else { of_threads };
    for (place, range) in CODE.iter().zip([library, of_threads]) {
        place[0].store(range.start, Relaxed);
        place[1].store(range.end, Relaxed);
    }
}

/// Has the places lead here, if the process has one thread of the program's, which is in the runtime: about to make another, for example.
pub fn take_over(live: &Live) {
    let is_wanted = live.direct.load(Relaxed) && live.is_own_process() && avoided::may_change_code();
    if DONE.load(Relaxed) || !is_wanted || !threads::is_program_alone() {
        return;
    }
    let Some(code) = process::with_all_descriptors(Code::of_this_process) else { return };
    DONE.store(true, Relaxed);
    let mut jumps = code.jumps();
    let mut number = 0;
    for [start, end] in CODE.each_ref().map(|place| place.each_ref().map(|bound| bound.load(Relaxed))) {
        // SAFETY: `know` vouches.
        let bytes = unsafe { slice::from_raw_parts(start.max(1) as *const u8, end - start) };
        for site in sites(bytes, start) {
            if number == SITES {
                return;
            }
            AT[number].store(site.at, Relaxed);
            NUMBER[number].store(site.nr as u16, Relaxed);
            BACK[number].store(site.back, Release);
            // SAFETY: nobody is in the midst of the one instruction that is replaced, as nobody else runs.
            if unsafe { jumps.add(site.at, landing(number)) } {
                number += 1;
            }
        }
    }
}

/// A change of the mask was trapped.
pub fn note_mask(live: &Live) {
    /// To look through the code takes as long as some hundred traps.
    const OFTEN: u32 = 256;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !DONE.load(Relaxed) && COUNT.fetch_add(1, Relaxed) % OFTEN == OFTEN - 1 {
        take_over(live);
    }
}

fn landing(number: usize) -> usize {
    outswap_sites as *const () as usize + number * LANDING_BYTES
}

/// Where some code was interrupted as it came to a landing, which is not known by unwind information yet: it goes back to where it came from.
pub fn leave_landing(g: &mut Gregs) {
    let offset = (g.rip as usize).wrapping_sub(landing(0));
    if offset.is_multiple_of(LANDING_BYTES)
        && let Some(at) = AT.get(offset / LANDING_BYTES)
    {
        g.rip = at.load(Relaxed) as u64;
    }
}

/// Registers in which arguments are, as the code finds them again.
#[repr(C)]
struct Arguments {
    rdi: usize,
    rsi: usize,
    rdx: usize,
    r10: usize,
    r8: usize,
    r9: usize,
}

/// Does what the instructions between the two do.
fn pass_through(mut code: &[u8], arguments: &mut Arguments) {
    while let Some((instruction, rest)) = between(code) {
        match instruction {
            Between::XorSil(mask) => arguments.rsi ^= usize::from(mask),
            Between::AndEsi(mask) => arguments.rsi &= mask as usize,
            Between::ZeroEdx => arguments.rdx = 0,
        }
        code = rest;
    }
}

/// Makes a call of `futex`.
///
/// # Safety
/// As the call itself.
pub unsafe fn futex(mut args: [usize; 6]) -> isize {
    // What is left there by chance is not looked at by the kernel.
    const POINTERS: [usize; 2] = [3, 4];
    // Of these operations, the fourth argument is a number: REQUEUE, CMP_REQUEUE, WAKE_OP, CMP_REQUEUE_PI.
    const COUNTS: [usize; 4] = [3, 4, 5, 12];
    // Without the private and the clock flag.
    let operation = args[1] as u32 as usize & !0x180;
    let used = pointers_of(nr::FUTEX, &args);
    for i in POINTERS.into_iter().filter(|i| used & 1 << i == 0 && !(*i == 3 && COUNTS.contains(&operation))) {
        args[i] = 0;
    }
    // SAFETY: the caller vouches.
    unsafe {
        match direct::prepare(nr::FUTEX, args) {
            Some(direct) => direct.make(),
            None => direct::call(nr::FUTEX, args),
        }
    }
}

/// Makes the call of a place, and gives what the kernel does. Called by the landings.
unsafe extern "C" fn serve(arguments: &mut Arguments, number: usize) -> isize {
    let [at, back] = [&AT, &BACK].map(|table| table[number].load(Relaxed));
    let behind = at + MOVE_BYTES;
    // SAFETY: the C library's code, which was looked at.
    pass_through(unsafe { slice::from_raw_parts(behind as *const u8, back - SYSCALL.len() - behind) }, arguments);
    let &mut Arguments { rdi, rsi, rdx, r10, r8, r9 } = arguments;
    // SAFETY: the C library's own call.
    unsafe {
        match usize::from(NUMBER[number].load(Relaxed)) {
            nr::FUTEX => futex([rdi, rsi, rdx, r10, r8, r9]),
            _ => sigmask::call([rdi, rsi, rdx, r10]),
        }
    }
}

// A landing. Of the registers, a call changes `rax`, `rcx` and `r11`; the 128 bytes below the stack pointer may be in use. To a debugger and
// to who unwinds the stack it looks as if it had been called from behind the `syscall`.
global_asm!(
    ".hidden outswap_sites",
    ".globl outswap_sites",
    ".balign 32",
    "outswap_sites:",
    ".set outswap_sites_next, 0",
    ".rept {sites}",
    ".balign 32",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, r11",
    "mov r11, [rip + {back} + 8 * outswap_sites_next]",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa_offset 128",
    "push r11",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    ".byte 0x6a, outswap_sites_next", // push
    ".cfi_def_cfa_offset 144",
    "jmp outswap_sites_common",
    ".cfi_endproc",
    ".set outswap_sites_next, outswap_sites_next + 1",
    ".endr",
    "outswap_sites_common:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 144",
    ".cfi_offset rip, -136",
    "pushfq",
    ".cfi_def_cfa_offset 152",
    "push rbp",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset rbp, -160",
    "mov rbp, rsp",
    ".cfi_def_cfa rbp, 160",
    "and rsp, -16",
    "sub rsp, 304",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "movaps [rsp + 48], xmm0",
    "movaps [rsp + 64], xmm1",
    "movaps [rsp + 80], xmm2",
    "movaps [rsp + 96], xmm3",
    "movaps [rsp + 112], xmm4",
    "movaps [rsp + 128], xmm5",
    "movaps [rsp + 144], xmm6",
    "movaps [rsp + 160], xmm7",
    "movaps [rsp + 176], xmm8",
    "movaps [rsp + 192], xmm9",
    "movaps [rsp + 208], xmm10",
    "movaps [rsp + 224], xmm11",
    "movaps [rsp + 240], xmm12",
    "movaps [rsp + 256], xmm13",
    "movaps [rsp + 272], xmm14",
    "movaps [rsp + 288], xmm15",
    "cld",
    "mov rdi, rsp",
    "mov rsi, [rbp + 16]",
    "call {serve}",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov r10, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "movaps xmm0, [rsp + 48]",
    "movaps xmm1, [rsp + 64]",
    "movaps xmm2, [rsp + 80]",
    "movaps xmm3, [rsp + 96]",
    "movaps xmm4, [rsp + 112]",
    "movaps xmm5, [rsp + 128]",
    "movaps xmm6, [rsp + 144]",
    "movaps xmm7, [rsp + 160]",
    "movaps xmm8, [rsp + 176]",
    "movaps xmm9, [rsp + 192]",
    "movaps xmm10, [rsp + 208]",
    "movaps xmm11, [rsp + 224]",
    "movaps xmm12, [rsp + 240]",
    "movaps xmm13, [rsp + 256]",
    "movaps xmm14, [rsp + 272]",
    "movaps xmm15, [rsp + 288]",
    "mov rsp, rbp",
    ".cfi_def_cfa_register rsp",
    "pop rbp",
    ".cfi_def_cfa_offset 152",
    ".cfi_restore rbp",
    "popfq",
    ".cfi_def_cfa_offset 144",
    "mov r11, [rsp + 8]",
    ".cfi_register rip, r11",
    "lea rsp, [rsp + 144]",
    ".cfi_def_cfa_offset 0",
    "jmp r11",
    ".cfi_endproc",
    sites = const SITES,
    back = sym BACK,
    serve = sym serve,
);
unsafe extern "C" {
    fn outswap_sites();
}
// Of a number of a place, one byte is pushed, with its sign.
const _: () = assert!(size_of::<Arguments>() == 48 && SITES <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    const FUTEX: [u8; 5] = [0xb8, 0xca, 0, 0, 0];
    const MASK: [u8; 5] = [0xb8, 0x0e, 0, 0, 0];

    fn code(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn places_are_known_by_their_instructions_wherever_they_lie() {
        let plain = code(&[&FUTEX, &SYSCALL]);
        let with_between = code(&[&FUTEX, &[0x81, 0xe6, 0x80, 0, 0, 0, 0x40, 0x80, 0xf6, 0x81], &SYSCALL]);
        let of_mask = code(&[&MASK, &SYSCALL]);
        for fill in 0..40 {
            let mut all = vec![0x90; fill];
            let mut expected = Vec::new();
            for (part, nr) in [(&plain, nr::FUTEX), (&with_between, nr::FUTEX), (&of_mask, nr::RT_SIGPROCMASK)] {
                expected.push(Site { at: 1000 + all.len(), back: 1000 + all.len() + part.len(), nr });
                all.extend_from_slice(part);
                all.extend([0xc3; 7]);
            }
            assert_eq!(sites(&all, 1000).collect::<Vec<_>>(), expected, "{fill}");
            // The last one ends too early.
            let end = all.len() - 8;
            assert_eq!(sites(&all[..end], 1000).count(), 2, "{fill}");
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let none = |parts: &[&[u8]]| assert_eq!(sites(&code(parts), 0).count(), 0, "{parts:x?}");
        none(&[&[0xb8, 0x0f, 0, 0, 0], &SYSCALL]); // another call
        none(&[&[0x41], &FUTEX, &SYSCALL]); // r8d
        none(&[&FUTEX, &[0x90], &SYSCALL]);
        none(&[&FUTEX, &[0x31, 0xd2].repeat(8), &SYSCALL]); // too long
        none(&[&FUTEX]);
        none(&[]);
    }

    /// What code of the C library's has in its registers, and below the stack pointer.
    #[repr(C)]
    #[derive(Clone, PartialEq, Debug)]
    struct State {
        /// `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`, `rbx`, `rbp`, `r12` to `r15`.
        registers: [u64; 12],
        /// The furthest word, and the nearest.
        red_zone: [u64; 2],
        /// What the stack pointer has moved by, and flags.
        moved: u64,
        flags: u64,
        vectors: [u64; 32],
        result: i64,
    }

    // `outswap_sites_try(state, landing)`: goes to a landing as from the place in the midst of it.
    global_asm!(
        ".hidden outswap_sites_try, outswap_sites_site, outswap_sites_tried",
        ".globl outswap_sites_try, outswap_sites_site, outswap_sites_tried",
        "outswap_sites_try:",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 136",
        "mov [rsp + 128], rdi",
        "mov rax, rdi",
        "mov rcx, rsi",
        ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movups xmm\\n, [rax + 128 + 16 * \\n]",
        ".endr",
        "mov rdi, [rax + 96]",
        "mov [rsp - 128], rdi",
        "mov rdi, [rax + 104]",
        "mov [rsp - 8], rdi",
        "mov rdi, [rax]",
        "mov rsi, [rax + 8]",
        "mov rdx, [rax + 16]",
        "mov r10, [rax + 24]",
        "mov r8, [rax + 32]",
        "mov r9, [rax + 40]",
        "mov rbx, [rax + 48]",
        "mov rbp, [rax + 56]",
        "mov r12, [rax + 64]",
        "mov r13, [rax + 72]",
        "mov r14, [rax + 80]",
        "mov r15, [rax + 88]",
        "mov [rax + 112], rsp",
        "stc",
        "jmp rcx",
        "outswap_sites_site:",
        "mov eax, 202",
        "xor sil, 0x80",
        "syscall",
        "outswap_sites_tried:",
        "mov rcx, [rsp + 128]",
        "mov [rcx + 384], rax",
        "mov [rcx], rdi",
        "mov rdi, [rsp - 128]",
        "mov [rcx + 96], rdi",
        "mov rdi, [rsp - 8]",
        "mov [rcx + 104], rdi",
        "mov [rcx + 8], rsi",
        "mov [rcx + 16], rdx",
        "mov [rcx + 24], r10",
        "mov [rcx + 32], r8",
        "mov [rcx + 40], r9",
        "mov [rcx + 48], rbx",
        "mov [rcx + 56], rbp",
        "mov [rcx + 64], r12",
        "mov [rcx + 72], r13",
        "mov [rcx + 80], r14",
        "mov [rcx + 88], r15",
        ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movups [rcx + 128 + 16 * \\n], xmm\\n",
        ".endr",
        "pushfq",
        "pop qword ptr [rcx + 120]",
        "mov rax, rsp",
        "sub rax, [rcx + 112]",
        "mov [rcx + 112], rax",
        "add rsp, 136",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    );
    unsafe extern "C" {
        fn outswap_sites_try(state: &mut State, landing: usize);
        fn outswap_sites_site();
        fn outswap_sites_tried();
    }

    #[test]
    fn a_landing_leaves_all_but_the_result_as_a_call_does() {
        const LAST: usize = SITES - 1;
        const WAKE: u64 = 1;
        const CARRY: u64 = 1;
        AT[LAST].store(outswap_sites_site as *const () as usize, Relaxed);
        BACK[LAST].store(outswap_sites_tried as *const () as usize, Relaxed);
        NUMBER[LAST].store(nr::FUTEX as u16, Relaxed);
        let word = AtomicU32::new(3);
        for (at, result) in [(word.as_ptr() as u64, 0), (word.as_ptr() as u64 + 1, -22)] {
            let before = State {
                registers: core::array::from_fn(|i| 0x0123_4567_89ab_0000 + i as u64),
                red_zone: [5, 6],
                moved: 0,
                flags: 0,
                vectors: core::array::from_fn(|i| 0xfedc_ba98_7654_0000 + i as u64),
                result: 0,
            };
            let mut after = before.clone();
            (after.registers[0], after.registers[1], after.registers[2]) = (at, WAKE, 1);
            // SAFETY: wakes nobody.
            unsafe { outswap_sites_try(&mut after, landing(LAST)) };
            assert_eq!(after.flags & CARRY, CARRY);
            let mut expected = State { flags: after.flags, result, ..before };
            // With the private flag, which the instruction in between adds.
            expected.registers[..3].copy_from_slice(&[at, WAKE | 0x80, 1]);
            assert_eq!(after, expected);
        }
    }

    #[test]
    fn who_is_interrupted_at_a_landing_is_sent_back() {
        AT[7].store(0x1234, Relaxed);
        // SAFETY: plain numbers.
        let mut g: Gregs = unsafe { core::mem::zeroed() };
        for (rip, expected) in
            [(landing(7), 0x1234), (landing(7) + 1, landing(7) + 1), (landing(SITES), landing(SITES)), (5, 5)]
        {
            g.rip = rip as u64;
            leave_landing(&mut g);
            assert_eq!(g.rip as usize, expected);
        }
    }
}
