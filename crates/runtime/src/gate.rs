//! The gate: the only code from which system calls may name managed memory.
//!
//! The filter traps every other system call with a pointer into the managed range. Beside the plain gate there is one
//! stub for each pin; a trapped call is made to continue in the stub of its pin, which issues the call, frees the
//! pin and returns to where the call came from. So the call itself runs outside of any handler, with the program's own
//! signal mask, can be interrupted and restarted by the kernel, and signal handlers run as they always do.
//!
//! ```text
//! gate     syscall; ret                                     our own calls
//!          start of new threads and sharing processes       (threads.rs, sharers.rs)
//! stubs    one for each pin, each with two entries:
//!            whole   syscall; free the pin; back to the caller
//!            part    syscall; keep the result; trap back, to go on with the next part
//! back     a call that is always trapped
//! hook     the same, for the functions of the preload library
//! ```
//! Where a stub returns to, and what else it needs, stands in the pin's [`CallState`], which lies wherever the kernel put it.
use crate::layout::*;
use crate::limits::{CALL_PINS, CLONE_PINS, MESSAGE_PARTS, OWNED_PINS, PINS, STUB_BYTES};
use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use outswap_core::pins::{DIRECT, DIRECT_FIRST};
use outswap_sys::signal::Stack;
use outswap_sys::{PAGE_BYTES, Result, nr, os, ret, tables};

/// A call in parts, and what of it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Part {
    /// The call runs whole.
    Whole = 0,
    /// Bytes of a stream, one window after the other, until all are through.
    Stream,
    /// A message on a stream, so many buffers after the other; its header stands in the pin.
    Message,
    /// The buffers of a vector, so many after the other.
    Vector,
    /// An exec, whose strings are in a buffer of ours.
    Exec,
}

/// What a call in progress needs, one for each pin. It belongs to whoever has the pin.
#[repr(C)]
pub struct CallState {
    /// Where the stub returns to. Read by the stub.
    pub to: usize,
    /// What a part of the call gave. Written by the stub.
    pub result: isize,
    /// The call as the program made it.
    pub nr: usize,
    /// Its arguments.
    pub args: [usize; 6],
    /// How it runs.
    pub part: Part,
    /// The buffer of an exec, and the execution domain that it changed.
    pub buffer: usize,
    /// See `buffer`.
    pub domain: Option<usize>,
    /// Bytes done by earlier parts.
    pub done_bytes: usize,
    /// Bytes of all parts, and of a stream's part under way.
    pub total_bytes: usize,
    /// See `total_bytes`.
    pub part_bytes: usize,
    /// How long all parts may wait that are left, if that is bounded, and when the one under way began.
    pub time_ns: Option<u64>,
    /// See `time_ns`.
    pub begun_ns: u64,
    /// The signal mask that the program wants while the call waits.
    pub waits_with: Option<u64>,
    /// What the kernel gets in place of it.
    pub mask: u64,
    /// What `pselect6` points to in place of the program's.
    pub pair: [usize; 2],
    /// A `struct msghdr` in place of the program's.
    pub header: [usize; 7],
    /// Its buffers.
    pub parts: [[usize; 2]; MESSAGE_PARTS],
}

static STATES: AtomicUsize = AtomicUsize::new(0);

/// The state of a pin. What it points to may be used by whoever has the pin.
pub fn state(pin: usize) -> *mut CallState {
    (STATES.load(Acquire) as *mut CallState).wrapping_add(pin)
}

/// Bytes of a stub's first entry, and of its second.
const WHOLE_BYTES: usize = 34;
const PART_BYTES: usize = 26;
const _: () = assert!(WHOLE_BYTES + PART_BYTES <= STUB_BYTES);

/// Opens the plain gate. Before this, no call may name managed memory: the filter may have been inherited.
pub fn open() -> Result<()> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE replaces nothing.
    let at = unsafe { os::mmap(gate(), GATE_BYTES, os::PROT_READ | os::PROT_WRITE, flags, -1, 0)? };
    if at != gate() {
        return Err(outswap_sys::Errno::EEXIST);
    }
    // SAFETY: fresh memory, ours alone; the second piece of code lies between its two symbols.
    unsafe {
        core::slice::from_raw_parts_mut(gate() as *mut u8, 3).copy_from_slice(&[0x0f, 0x05, 0xc3]); // syscall; ret
        let (from, to) = (outswap_start as *const () as usize, outswap_start_end as *const () as usize);
        assert!(to - from <= PAGE_BYTES - START_AT, "the start of threads fits the gate's page");
        core::ptr::copy_nonoverlapping(from as *const u8, (gate() + START_AT) as *mut u8, to - from);
        // Nothing writes the page from here on.
        make_code(gate(), PAGE_BYTES)?;
        // All calls of the runtime come from there: our own structures may lie in managed memory too, where the program puts
        // its stacks there.
        outswap_sys::issue_from(gate());
    }
    Ok(())
}

/// Writes the code of a pin's stub, which is to run at `at`. Without an owner word, nothing is freed, and there is no second
/// entry.
fn write_stub(stub: &mut [u8], pin: usize, at: usize, state_at: usize, owner_at: Option<usize>, back_at: usize) {
    let state_at = (state_at as u64).to_le_bytes();
    stub[..2].copy_from_slice(&[0x0f, 0x05]); // syscall
    stub[2..4].copy_from_slice(&[0x49, 0xbb]); // mov r11, state
    stub[4..12].copy_from_slice(&state_at);
    stub[12..15].copy_from_slice(&[0x49, 0x8b, 0x0b]); // mov rcx, [r11]
    let Some(owner_at) = owner_at else {
        stub[15..17].copy_from_slice(&[0xff, 0xe1]); // jmp rcx
        // Of a call by number of the 32-bit kernel, which leaves all registers but these.
        let part = &mut stub[WHOLE_BYTES..];
        part[..2].copy_from_slice(&[0xcd, 0x80]); // int 0x80
        part[2..4].copy_from_slice(&[0x49, 0xbb]); // mov r11, state
        part[4..12].copy_from_slice(&state_at);
        part[12..15].copy_from_slice(&[0x41, 0xff, 0x23]); // jmp [r11]
        return;
    };
    stub[15..17].copy_from_slice(&[0x49, 0xbb]); // mov r11, owner word
    stub[17..25].copy_from_slice(&(owner_at as u64).to_le_bytes());
    stub[25..32].copy_from_slice(&[0x41, 0xc7, 0x03, 0, 0, 0, 0]); // mov dword [r11], 0
    stub[32..34].copy_from_slice(&[0xff, 0xe1]); // jmp rcx
    let part = &mut stub[WHOLE_BYTES..];
    part[..2].copy_from_slice(&[0x0f, 0x05]); // syscall
    part[2..4].copy_from_slice(&[0x49, 0xbb]); // mov r11, state
    part[4..12].copy_from_slice(&state_at);
    part[12..16].copy_from_slice(&[0x49, 0x89, 0x43, 0x08]); // mov [r11 + 8], rax
    part[16] = 0xbf; // mov edi, pin
    part[17..21].copy_from_slice(&(pin as u32).to_le_bytes());
    part[21] = 0xe9; // jmp back
    let next = at + WHOLE_BYTES + PART_BYTES;
    part[22..PART_BYTES].copy_from_slice(&((back_at as i64 - next as i64) as i32).to_le_bytes());
}

/// Pins whose stubs are in one page.
const PAGE_PINS: usize = PAGE_BYTES / STUB_BYTES;
const _: () = {
    assert!(
        CALL_PINS.is_multiple_of(PAGE_PINS) && DIRECT.is_multiple_of(PAGE_PINS),
        "what is built later is whole pages"
    );
    assert!(DIRECT_FIRST == PAGE_PINS && CLONE_PINS == PAGE_PINS, "what is built first is a page of each kind");
};

/// How many pins of those that enter the runtime have a stub.
static BUILT: AtomicUsize = AtomicUsize::new(0);

/// The same of direct pins.
static DIRECT_BUILT: AtomicUsize = AtomicUsize::new(0);

/// How many direct pins have a stub.
pub fn direct_built() -> usize {
    DIRECT_BUILT.load(Acquire)
}

/// How many pins may be taken by calls that enter the runtime: those that have a stub, which are a page of them at first and grow by [`more`],
/// because few programs have many calls in progress, and all stubs are as many pages as a small program.
pub fn built() -> usize {
    BUILT.load(Acquire)
}

/// Writes the stubs of pins from `first` on, which are to run where they belong.
fn write_stubs(code: &mut [u8], first: usize, owner_word: impl Fn(usize) -> usize) {
    for (pin, stub) in (first..).zip(code.chunks_exact_mut(STUB_BYTES)) {
        let owner_at = (pin < OWNED_PINS).then(|| owner_word(pin));
        write_stub(stub, pin, stub_at(pin), state(pin) as usize, owner_at, back());
    }
}

/// Builds the first stubs, and those of pins that are not taken in the runtime; all of them where memory cannot be made code as it is, so
/// that each page would need a descriptor. `owner_word(pin)` is the address of the pin's owner word.
///
/// # Errors
/// Memory cannot be made executable, or there is none.
pub fn build(owner_word: impl Fn(usize) -> usize) -> Result<()> {
    STATES.store(tables::map(PINS * core::mem::size_of::<CallState>())?, Release);
    // SAFETY: pages of stubs, and the page after them, ours alone and not used by anyone yet; nothing writes them after `make_code`.
    unsafe {
        for first in [0, CALL_PINS, OWNED_PINS] {
            let code = core::slice::from_raw_parts_mut(stub_at(first) as *mut u8, PAGE_BYTES);
            write_stubs(code, first, &owner_word);
        }
        let number = (TRAPPED as u32).to_le_bytes();
        let code = core::slice::from_raw_parts_mut(back() as *mut u8, PAGE_BYTES);
        code[0] = 0xb8; // mov eax, TRAPPED
        code[1..5].copy_from_slice(&number);
        code[5..BACK_BYTES].copy_from_slice(&[0x0f, 0x05]); // syscall
        let code = &mut code[hook() - back()..];
        code[0] = 0x0d; // or eax, TRAPPED
        code[1..5].copy_from_slice(&number);
        code[5..8].copy_from_slice(&[0x0f, 0x05, 0xc3]); // syscall; ret
        // With what is between them, which nobody goes to before it is written: one mapping.
        let (at, len) = (stubs(), back() + PAGE_BYTES - stubs());
        if os::mprotect(at, len, CODE).is_ok() {
            BUILT.store(PAGE_PINS, Release);
            DIRECT_BUILT.store(DIRECT_FIRST, Release);
            return Ok(());
        }
        let code = core::slice::from_raw_parts_mut(at as *mut u8, OWNED_PINS * STUB_BYTES);
        write_stubs(code, 0, &owner_word);
        make_code(at, len)?;
    }
    BUILT.store(CALL_PINS, Release);
    DIRECT_BUILT.store(DIRECT, Release);
    Ok(())
}

/// Builds the stubs of some more pins. False where all have one, or the system refuses.
pub fn more(owner_word: impl Fn(usize) -> usize) -> bool {
    let first = built();
    let is_done = first < CALL_PINS && write_page(first, owner_word);
    if is_done {
        BUILT.fetch_max(first + PAGE_PINS, AcqRel);
    }
    is_done
}

/// The same of direct pins.
pub fn more_direct(owner_word: impl Fn(usize) -> usize) -> bool {
    let first = direct_built();
    let is_done = first < DIRECT && write_page(CALL_PINS + first, owner_word);
    if is_done {
        DIRECT_BUILT.fetch_max(first + PAGE_PINS, AcqRel);
    }
    is_done
}

/// Writes the stubs of a page, from that of pin `first` on. False where the system refuses.
fn write_page(first: usize, owner_word: impl Fn(usize) -> usize) -> bool {
    // Elsewhere, and then moved there as a whole: another thread may do the same, and a third run one of its stubs by then.
    // SAFETY: fresh memory, and a page of the gate in whose place comes one that has the same in it, if any has.
    unsafe {
        let (access, flags) = (os::PROT_READ | os::PROT_WRITE, os::MAP_PRIVATE | os::MAP_ANONYMOUS);
        let Ok(at) = os::mmap(0, PAGE_BYTES, access, flags, -1, 0) else { return false };
        write_stubs(core::slice::from_raw_parts_mut(at as *mut u8, PAGE_BYTES), first, owner_word);
        let is_done = make_code(at, PAGE_BYTES).is_ok() && os::move_to(at, stub_at(first), PAGE_BYTES).is_ok();
        if !is_done {
            let _ = os::munmap(at, PAGE_BYTES);
        }
        is_done
    }
}

const CODE: usize = os::PROT_READ | os::PROT_EXEC;

/// Makes code of what was written to memory. Where that is refused (systemd's `MemoryDenyWriteExecute`), the same is mapped from a file.
///
/// # Safety
/// The range must be mapped, and whole pages; nobody writes to it any more.
unsafe fn make_code(at: usize, len: usize) -> Result<()> {
    const MFD_CLOEXEC: usize = 1;
    // SAFETY: as the caller says; the content stays what it is.
    let refused = match unsafe { os::mprotect(at, len, CODE) } {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let fd = os::memfd_create(b"liboutswap_gate\0", MFD_CLOEXEC).map_err(|_| refused)?;
    // SAFETY: as above.
    let content = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let is_written = os::pwrite(fd, content, 0) == Ok(len);
    // SAFETY: replaces memory of ours by what is the same.
    let mapped = unsafe { os::mmap(at, len, CODE, os::MAP_PRIVATE | os::MAP_FIXED, fd, 0) };
    let _ = os::close(fd);
    if is_written && mapped.is_ok() { Ok(()) } else { Err(refused) }
}

fn stubs() -> usize {
    gate() + PAGE_BYTES
}

fn stub_at(pin: usize) -> usize {
    stubs() + pin * STUB_BYTES
}

fn back() -> usize {
    gate() + GATE_CODE_BYTES
}

fn hook() -> usize {
    back() + 16
}

const BACK_BYTES: usize = 7;
/// Numbers of no call, which are always trapped: [`NUMBERS`] from here on, the last bits being the number of the call meant. Without
/// the bit of x32's calls (0x4000_0000), for which filters of systemd's `SystemCallArchitectures=native` end a process.
pub const TRAPPED: usize = 0x0f53_0000;
/// See [`TRAPPED`].
pub const NUMBERS: usize = 0x1000;
/// In place of a call's number: keep the pages of a range for the kernel, see [`crate::pins::keep`].
pub const KEEP: usize = NUMBERS - 1;

/// The number of the call that is meant.
pub fn meant(nr: usize) -> usize {
    if (TRAPPED..TRAPPED + NUMBERS).contains(&nr) { nr - TRAPPED } else { nr }
}

/// Makes a call that is always trapped, so that it is served on the runtime's alternate stack, whatever the caller's stack is.
///
/// # Safety
/// As the system call itself. The gate must be open.
pub unsafe fn trapped(nr: usize, args: [usize; 6]) -> isize {
    let value: isize;
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller vouches for the call; the code called is `syscall; ret`.
    unsafe {
        core::arch::asm!("call {hook}", hook = in(reg) hook(), inlateout("rax") nr as isize => value, in("rdi") a,
                         in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    value
}

/// Makes a call of the program's from here, by a number that is always trapped where the process is `managed`: calls of this library's code
/// pass the filters.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// As the system call itself.
pub unsafe fn ask(managed: bool, nr: usize, [a, b, c, d]: [usize; 4]) -> Result<()> {
    let nr = if managed { TRAPPED | nr } else { nr };
    let value: isize;
    // SAFETY: the caller vouches for the call.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") nr as isize => value, in("rdi") a, in("rsi") b, in("rdx") c,
                         in("r10") d, out("rcx") _, out("r11") _);
    }
    ret(value).map(drop)
}

/// Whether a trapped call is one of [`trapped`].
pub fn is_hook(address: usize) -> bool {
    address == hook() + BACK_BYTES
}

/// Whether a trapped call is that of a stub that wants the next part: `address` is what the kernel says of the trap.
pub fn is_back(address: usize) -> bool {
    address.wrapping_sub(back()) <= BACK_BYTES
}

/// Where in a stub some code was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InStub {
    /// Before the call, or where the kernel will start it again.
    Before(usize),
    /// After the call: its result is in `rax`.
    After(usize),
    /// The pin is free already: `rcx` is where to go.
    Freed,
    /// After a part: its result is in the pin.
    Kept(usize),
}

/// What an instruction pointer says of a call in progress.
pub fn in_stub(rip: usize, rdi: usize) -> Option<InStub> {
    if is_back(rip) {
        return Some(InStub::Kept(rdi));
    }
    let offset = rip.wrapping_sub(stubs());
    let (pin, at) = (offset / STUB_BYTES, offset % STUB_BYTES);
    if pin >= OWNED_PINS {
        return None;
    }
    Some(match at {
        0 | WHOLE_BYTES => InStub::Before(pin),
        32 => InStub::Freed,
        1..32 => InStub::After(pin),
        _ if at - WHOLE_BYTES < 16 => InStub::After(pin),
        _ => InStub::Kept(pin),
    })
}

/// Whether an address is in the code whose calls pass, where only filters of the program's own trap.
pub fn holds(address: usize) -> bool {
    (gate()..gate() + GATE_CODE_BYTES).contains(&address)
}

/// Issues a system call that may name managed memory. (Once the gate is open, every call of the runtime comes from there; this
/// name says where that matters.)
///
/// # Safety
/// As the system call itself.
#[allow(clippy::too_many_arguments)]
pub unsafe fn call(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the caller vouches.
    unsafe { outswap_sys::syscall6(nr, a, b, c, d, e, f) }
}

/// [`call`] with three arguments, as a `Result`.
///
/// # Safety
/// As the system call itself.
pub unsafe fn call3(nr: usize, a: usize, b: usize, c: usize) -> Result<usize> {
    // SAFETY: the caller vouches.
    ret(unsafe { call(nr, a, b, c, 0, 0, 0) })
}

/// The stub of a pin, which returns to where its state says, or traps back once the call is done.
pub fn stub(pin: usize, comes_back: bool) -> usize {
    stub_at(pin) + if comes_back { WHOLE_BYTES } else { 0 }
}

/// A stub that issues a call and returns to `to` without freeing anything: for clone with the caller's stack, whose child passes
/// through it too. `None` when more places clone than there are stubs.
pub fn clone_stub(to: usize) -> Option<usize> {
    stub_to(to, PINS)
}

/// A stub below a number that returns there.
fn stub_to(to: usize, end: usize) -> Option<usize> {
    (OWNED_PINS..end).find_map(|pin| {
        // SAFETY: the first word of a state that no call ever uses.
        let word = unsafe { AtomicUsize::from_ptr(&raw mut (*state(pin)).to) };
        let ours = match word.compare_exchange(0, to, AcqRel, Acquire) {
            Ok(_) => true,
            Err(old) => old == to,
        };
        ours.then_some(stub_at(pin))
    })
}

/// The same for calls that are made as they are, of which a program may have many places: some are left for those that clone. `is_long`: an
/// x86-64 call; else one by `int 0x80`.
pub fn pass_stub(to: usize, is_long: bool) -> Option<usize> {
    const FOR_CLONE: usize = 16;
    let stub = stub_to(to, PINS - FOR_CLONE)?;
    Some(stub + if is_long { 0 } else { WHOLE_BYTES })
}

/// In place of the thread id of a thread that is about to start.
pub const RESERVED: i32 = -1;

/// What a clone with `CLONE_VM` needs on both sides. `r9`, which clone does not use, points to it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Start {
    /// Where both go on.
    pub to: usize,
    /// `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9` as they were, for both: what the call got may differ.
    pub registers: [u64; 6],
    /// The alternate stack that the child sets; none where the size is 0.
    pub stack: Stack,
    /// Where the parent notes the child's thread id in place of [`RESERVED`], or 0 where there is none.
    pub tid_at: usize,
    /// What the parent sets to 0 where there is no child.
    pub fail_at: usize,
    /// 1 once the parent does not need this any more.
    pub parent_done: core::sync::atomic::AtomicU32,
    /// From where and for how many bytes calls of the child are made as they are; all where that is 0 ([`crate::dispatch`]).
    pub passes: [usize; 2],
}

/// Offset of the start of threads in the gate's page.
const START_AT: usize = 64;

/// The code that a clone described by a [`Start`] runs through.
pub fn start_stub() -> usize {
    gate() + START_AT
}

// Copied into the gate, so it must not refer to any other place.
global_asm!(
    ".hidden outswap_start, outswap_start_end",
    ".globl outswap_start, outswap_start_end",
    "outswap_start:",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "mov r11, [r9 + 80]",
    "xor ecx, ecx",
    "test rax, rax",
    "cmovns ecx, eax",
    // Not where the child has ended before, which it says there.
    "mov r10, rax",
    "mov eax, {reserved}",
    "lock cmpxchg [r11], ecx",
    "mov rax, r10",
    "test rax, rax",
    "jns 4f",
    "mov r11, [r9 + 88]",
    "mov dword ptr [r11], 0",
    "4:",
    "mov rdi, [r9 + 8]",
    "mov rsi, [r9 + 16]",
    "mov rdx, [r9 + 24]",
    "mov r10, [r9 + 32]",
    "mov r8, [r9 + 40]",
    "mov r11, [r9 + 48]",
    "mov rcx, [r9]",
    "mov dword ptr [r9 + 96], 1",
    "mov r9, r11",
    "jmp rcx",
    "2:",
    "cmp qword ptr [r9 + 72], 0",
    "je 3f",
    "lea rdi, [r9 + 56]",
    "xor esi, esi",
    "mov eax, 131", // sigaltstack
    "syscall",
    "3:",
    "mov r10, [r9 + 112]",
    "test r10, r10",
    "jz 5f",
    "mov edi, {dispatch}",
    "mov esi, 1",
    "mov rdx, [r9 + 104]",
    "xor r8d, r8d",
    "mov eax, 157", // prctl
    "syscall",
    "5:",
    "xor eax, eax",
    "mov rdi, [r9 + 8]",
    "mov rsi, [r9 + 16]",
    "mov rdx, [r9 + 24]",
    "mov r10, [r9 + 32]",
    "mov r8, [r9 + 40]",
    "mov rcx, [r9]",
    "mov r9, [r9 + 48]",
    "jmp rcx",
    "outswap_start_end:",
    reserved = const RESERVED,
    dispatch = const outswap_sys::os::PR_SET_SYSCALL_USER_DISPATCH,
);
unsafe extern "C" {
    fn outswap_start();
    fn outswap_start_end();
}
const _: () = {
    assert!(core::mem::offset_of!(Start, registers) == 8 && core::mem::offset_of!(Start, stack) == 56);
    assert!(core::mem::offset_of!(Start, tid_at) == 80 && core::mem::offset_of!(Start, fail_at) == 88);
    assert!(core::mem::offset_of!(Start, parent_done) == 96 && core::mem::offset_of!(Stack, size) == 16);
    assert!(core::mem::offset_of!(Start, passes) == 104);
    assert!(core::mem::offset_of!(CallState, to) == 0 && core::mem::offset_of!(CallState, result) == 8);
};

/// Ends the calling thread after storing 0 to `word`, with no use of a stack in between: whoever sees the 0 may use the stack.
pub fn end_thread(word: &core::sync::atomic::AtomicI32, status: usize) -> ! {
    // SAFETY: does not return; the word lives for ever.
    unsafe {
        core::arch::asm!("mov dword ptr [{word}], 0", "syscall", "ud2", word = in(reg) word.as_ptr(), in("rax") nr::EXIT,
                         in("rdi") status, in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0, in("r9") 0,
                         options(noreturn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page for code, with a word of memory after it.
    fn page() -> (&'static mut [u8], &'static AtomicUsize) {
        let (prot, flags) = (os::PROT_READ | os::PROT_WRITE | os::PROT_EXEC, os::MAP_PRIVATE | os::MAP_ANONYMOUS);
        // SAFETY: no address given; the pages are this test's alone and stay mapped.
        unsafe {
            let at = os::mmap(0, 2 * PAGE_BYTES, prot, flags, -1, 0).expect("memory");
            (core::slice::from_raw_parts_mut(at as *mut u8, PAGE_BYTES), &*((at + PAGE_BYTES) as *const AtomicUsize))
        }
    }

    /// Makes a call by jumping to code that goes on at the address in `to`. Returns its result, and `rdi` then.
    fn enter(code: usize, to: &AtomicUsize, nr: usize) -> (isize, usize) {
        let (value, rdi): (isize, usize);
        // SAFETY: the code makes a call without arguments and comes back.
        unsafe {
            core::arch::asm!("lea r9, [rip + 2f]", "mov [r8], r9", "jmp r10", "2:", in("r8") to.as_ptr(),
                             in("r10") code, inlateout("rax") nr as isize => value, inlateout("rdi") 0usize => rdi,
                             out("rcx") _, out("r9") _, out("r11") _);
        }
        (value, rdi)
    }

    #[test]
    fn a_stub_makes_its_call_frees_its_pin_and_goes_back() {
        let (code, word) = page();
        let at = code.as_ptr() as usize;
        let state = [const { AtomicUsize::new(0) }; 2];
        word.store(usize::MAX, Relaxed);
        write_stub(&mut code[..STUB_BYTES], 7, at, state.as_ptr() as usize, Some(word.as_ptr() as usize), at + 128);
        assert_eq!(enter(at, &state[0], nr::GETPID), (os::getpid() as isize, 0));
        assert_eq!(word.load(Relaxed), usize::MAX << 32, "the pin is free, and nothing else is touched");
    }

    #[test]
    fn a_stub_keeps_the_result_of_a_part_and_tells_whose_it_is() {
        let (code, word) = page();
        let at = code.as_ptr() as usize;
        let state = [const { AtomicUsize::new(0) }; 2];
        word.store(usize::MAX, Relaxed);
        write_stub(
            &mut code[64..][..STUB_BYTES],
            4031,
            at + 64,
            state.as_ptr() as usize,
            Some(word.as_ptr() as usize),
            at + 512,
        );
        // Where the trap would be: back to where the state says.
        code[512..514].copy_from_slice(&[0x49, 0x8b]); // mov rcx, [r11]
        code[514..517].copy_from_slice(&[0x0b, 0xff, 0xe1]); // jmp rcx
        let pid = os::getpid() as isize;
        assert_eq!(enter(at + 64 + WHOLE_BYTES, &state[0], nr::GETPID), (pid, 4031));
        assert_eq!(state[1].load(Relaxed), pid as usize);
        assert_eq!(word.load(Relaxed), usize::MAX, "the pin is not free yet");
    }

    #[test]
    fn a_stub_that_clones_frees_nothing() {
        let (code, word) = page();
        let at = code.as_ptr() as usize;
        let state = [const { AtomicUsize::new(0) }; 2];
        write_stub(&mut code[..STUB_BYTES], OWNED_PINS, at, state.as_ptr() as usize, None, at + 128);
        assert_eq!(enter(at, &state[0], nr::GETPID).0, os::getpid() as isize);
        assert_eq!((word.load(Relaxed), state[1].load(Relaxed)), (0, 0));
        assert!(code[17..WHOLE_BYTES].iter().all(|b| *b == 0) && code[WHOLE_BYTES..][..2] == [0xcd, 0x80]);
        assert_eq!(code[WHOLE_BYTES..][2..12], code[2..12], "and goes back by the same word");
    }

    /// Where a stub's instructions start, by their lengths.
    const WHOLE: [usize; 6] = [0, 2, 12, 15, 25, 32];
    const PART: [usize; 5] = [0, 2, 12, 16, 21];

    #[test]
    fn every_instruction_of_a_stub_is_told_apart() {
        assert_eq!((WHOLE[5] + 2, PART[4] + 5), (WHOLE_BYTES, PART_BYTES), "the last are two jumps");
        let whole = |at: usize| in_stub(stubs() + 5 * STUB_BYTES + at, 0);
        assert_eq!(whole(0), Some(InStub::Before(5)));
        for at in WHOLE[1..5].iter().copied() {
            assert_eq!(whole(at), Some(InStub::After(5)), "{at}");
        }
        assert_eq!(whole(32), Some(InStub::Freed));
        let part = |at: usize| in_stub(stubs() + 5 * STUB_BYTES + WHOLE_BYTES + at, 0);
        assert_eq!(part(0), Some(InStub::Before(5)));
        assert_eq!((part(2), part(12)), (Some(InStub::After(5)), Some(InStub::After(5))));
        assert_eq!((part(16), part(21)), (Some(InStub::Kept(5)), Some(InStub::Kept(5))));
        assert_eq!(in_stub(back(), 7), Some(InStub::Kept(7)));
        assert_eq!(in_stub(stubs() + OWNED_PINS * STUB_BYTES, 0), None, "clones pass signals through");
        assert_eq!(in_stub(gate(), 0), None);
        assert_eq!(in_stub(gate() - 1, 0), None);
    }
}
