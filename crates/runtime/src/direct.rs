//! Calls that need no trap. A function of the preload library stands in front of each function of the C library that makes such
//! a call. Where all that the call names is in memory, it is pinned, and the call is made in the stub of its pin, as it would be
//! after a trap: a signal that interrupts it finds the program at an instruction that makes the call anew, which is trapped.
//! Else the C library's function makes the call, which is trapped, and its memory is brought in.
//!
//! The runtime is not entered: no signal is blocked, and the thread can be interrupted at any instruction by a handler that makes
//! calls, forks, or never comes back. So all that this changes is a pin that is this thread's alone until the call is over
//! ([`outswap_core::pins`]); one that was left behind keeps its pages in memory, and the thread makes no such calls any more.
use crate::arena::page_of;
use crate::calls::{self, Arg, Call};
use crate::gate::{self, Part};
use crate::layout::overlaps_managed;
use crate::limits::WINDOW_LEAST_BYTES;
use crate::live::{Live, try_live};
use crate::stub_call::SYSCALL_BYTES;
use crate::usermem::{Iovec, Msghdr, peek};
use crate::{descriptors, stacks};
use core::mem::size_of;
use core::sync::atomic::Ordering::Relaxed;
use outswap_control::Stat;
use outswap_core::pins::RANGES;
use outswap_core::protection::Access;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::nr;

/// What a call may name in all: looking at its pages must cost less than a trap.
const BYTES_MAX: usize = 128 << 10;
/// An address so little above the stack pointer is on the stack, and can be read.
const NEAR_BYTES: usize = 4096;

/// A number that tells the calling thread apart from the others: the place of its control block, as the ABI for thread-local
/// storage has it. For threads that call functions of the C library, which reads there, too.
fn this_thread() -> u32 {
    let at: usize;
    // SAFETY: the C library gives each thread such a block, whose first word is its own address.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) at, options(nostack, readonly, preserves_flags)) };
    number(at)
}

fn number(block_at: usize) -> u32 {
    ((block_at >> 6) as u32).max(1)
}

/// The same of a thread that may have no such block, or one that is not in memory. To be asked before a fork, which may change it.
pub fn whoever_calls() -> u32 {
    const ARCH_GET_FS: usize = 0x1003;
    let mut at = 0usize;
    // SAFETY: the kernel writes a word.
    let _ = unsafe { gate::call(nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut at as usize, 0, 0, 0, 0) };
    number(at)
}

/// A path is at most as long, with its end.
const PATH_MAX: usize = 4096;

/// Managed memory that a call names.
#[derive(Clone, Copy)]
enum Named {
    /// So many bytes, for which the call needs that access.
    Bytes(usize, usize, Access),
    /// A path.
    Path(usize),
}

/// All of it.
struct Ranges {
    list: [Named; RANGES],
    len: usize,
    bytes: usize,
    access: Access,
}

impl Ranges {
    /// Adds what lies in managed memory of a range. `None` where that cannot be told here.
    fn add(&mut self, live: &Live, at: usize, len: usize) -> Option<()> {
        if len == 0 || !overlaps_managed(at, len) {
            return Some(());
        }
        self.bytes = self.bytes.checked_add(len).filter(|bytes| *bytes <= BYTES_MAX)?;
        if !live.is_managed(at, len) {
            return None;
        }
        self.push(Named::Bytes(at, len, self.access))
    }

    fn push(&mut self, named: Named) -> Option<()> {
        *self.list.get_mut(self.len)? = named;
        self.len += 1;
        Some(())
    }

    /// The same of a path.
    fn path(&mut self, live: &Live, at: usize) -> Option<()> {
        if !overlaps_managed(at, PATH_MAX) {
            return Some(());
        }
        self.bytes = self.bytes.checked_add(PATH_MAX).filter(|bytes| *bytes <= BYTES_MAX)?;
        if !live.is_managed(at, 1) {
            return None;
        }
        self.push(Named::Path(at))
    }

    fn vector(&mut self, live: &Live, at: usize, count: usize) -> Option<()> {
        if count > RANGES {
            return None;
        }
        self.add(live, at, count * size_of::<Iovec>())?;
        let mut buffers = [Iovec::default(); RANGES];
        read(at, &mut buffers[..count])?;
        buffers[..count].iter().try_for_each(|iov| self.add(live, iov.base, iov.len))
    }

    fn message(&mut self, live: &Live, at: usize) -> Option<()> {
        self.add(live, at, size_of::<Msghdr>())?;
        let mut header = [Msghdr::default()];
        read(at, &mut header)?;
        let [header] = header;
        if header.name != 0 {
            self.add(live, header.name, header.namelen as usize)?;
        }
        self.add(live, header.control, header.controllen)?;
        self.vector(live, header.iov, header.iovlen)
    }

    /// What the arguments of a call name.
    fn of(live: &Live, call: &Call, args: &[usize; 6]) -> Option<Ranges> {
        let access = call.access();
        let mut ranges = Ranges { list: [Named::Bytes(0, 0, access); RANGES], len: 0, bytes: 0, access };
        for (&spec, &at) in call.args.iter().zip(args) {
            match spec {
                Arg::No => {}
                Arg::Buf(k) => ranges.add(live, at, args[k as usize])?,
                Arg::IntBuf(k) => ranges.add(live, at, args[k as usize] as u32 as usize)?,
                Arg::Each(k, bytes) => ranges.add(live, at, args[k as usize] as u32 as usize * bytes as usize)?,
                Arg::Iov(k) => ranges.vector(live, at, args[k as usize])?,
                Arg::Msg => ranges.message(live, at)?,
                Arg::N(bytes) => ranges.add(live, at, bytes as usize)?,
                Arg::Str => ranges.path(live, at)?,
                // Of these, none that is managed.
                Arg::Message(_) | Arg::Mmsg(_) | Arg::SizedBy(_) => {
                    if overlaps_managed(at, PAGE_BYTES) {
                        return None;
                    }
                }
                Arg::FdSet(_) | Arg::Forever(_) => return None,
            }
        }
        Some(ranges)
    }
}

/// Reads plain data of the program's, which may not be there. `None` where it is not.
pub(crate) fn read<T: Copy>(at: usize, values: &mut [T]) -> Option<()> {
    let len = size_of_val(values);
    let here = &raw const len as usize;
    // SAFETY: plain data, of which any bytes are a value.
    let bytes = unsafe { core::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), len) };
    if at > here && at - here < NEAR_BYTES.saturating_sub(len) {
        // SAFETY: the caller's part of the stack, which nobody unmaps; it is not ours, which Rust knows of.
        unsafe { core::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), len) };
        return Some(());
    }
    peek(at, bytes).then_some(())
}

/// Whether a path ends in the page in which it begins, which is pinned.
fn ends_in_page(at: usize) -> bool {
    let mut chunk = [0; 256];
    let len = chunk.len().min(PAGE_BYTES - at % PAGE_BYTES);
    peek(at, &mut chunk[..len]) && chunk[..len].contains(&0)
}

/// A call that can be made as things are. To be made, or a pin is lost.
#[must_use]
pub struct Direct {
    issue: Issue,
    /// Whether the process has one thread, as far as the runtime knows.
    pub alone: bool,
}

/// What [`outswap_direct_call`] needs.
#[repr(C)]
struct Issue {
    nr: usize,
    /// Where the stub finds where to go on.
    to: *mut usize,
    stub: usize,
    args: [usize; 6],
}

// Jumps into a stub, which comes back behind the `syscall`. Who was interrupted in the stub is sent to that instruction instead, with
// the registers of the call, and a number that is always trapped (`again`).
core::arch::global_asm!(
    ".hidden outswap_direct_call, outswap_direct_done",
    ".globl outswap_direct_call, outswap_direct_done",
    "outswap_direct_call:",
    ".cfi_startproc",
    "mov r11, rdi",
    "mov rax, [r11]",
    "mov rcx, [r11 + 8]",
    "lea rdx, [rip + outswap_direct_done]",
    "mov [rcx], rdx",
    "mov rdi, [r11 + 24]",
    "mov rsi, [r11 + 32]",
    "mov rdx, [r11 + 40]",
    "mov r10, [r11 + 48]",
    "mov r8, [r11 + 56]",
    "mov r9, [r11 + 64]",
    "jmp qword ptr [r11 + 16]",
    "syscall",
    "outswap_direct_done:",
    "ret",
    ".cfi_endproc",
);
unsafe extern "C" {
    fn outswap_direct_call(issue: *const Issue) -> isize;
    fn outswap_direct_done();
}
const _: () = {
    assert!(core::mem::offset_of!(Issue, to) == 8 && core::mem::offset_of!(Issue, stub) == 16);
    assert!(core::mem::offset_of!(Issue, args) == 24);
};

/// The number with which a call is made anew that was interrupted, and would have gone on at `to`. The filters trap calls with hidden
/// pointers by where they come from, and do not know this place.
pub fn again(nr: usize, to: usize) -> usize {
    if to == outswap_direct_done as *const () as usize { gate::TRAPPED | nr } else { nr }
}

/// What such a call may name, where it is more than the least: so much that all threads together have no more than half of the limit.
fn most_bytes(live: &Live) -> usize {
    let part_pages = live.pager.limit_pages() as usize / (2 * stacks::used().max(1));
    live.window_bytes().min(part_pages.saturating_mul(PAGE_BYTES))
}

/// Pins what a call names, if all of it is in memory. `None` where it is not, where the call names nothing that is managed and
/// would pass by itself, or where this cannot be told here.
pub fn prepare(nr: usize, args: [usize; 6]) -> Option<Direct> {
    let (live, call) = (try_live()?, calls::find(nr)?);
    // Shared memory may have to be made whole first; a process that only shares the memory can be killed at any instruction.
    if !live.direct.load(Relaxed) || live.objects.any() || !live.is_own_process() {
        return None;
    }
    // Who asks about our descriptors finds none: that is the business of a trap.
    if [nr::NEWFSTATAT, nr::FSTAT].contains(&nr) && descriptors::is_ours(live, args[0] as i32) {
        return None;
    }
    let ranges = Ranges::of(live, call, &args)?;
    if ranges.len == 0 && !call.nested || ranges.bytes > WINDOW_LEAST_BYTES && ranges.bytes > most_bytes(live) {
        return None;
    }
    let pins = &live.pager.pins;
    let pin = pins.acquire_direct(this_thread())?;
    let holds = |at: usize, len: usize, access: Access| {
        if !live.is_managed(at, len) {
            return false;
        }
        let first = page_of(at);
        let count = page_of(at + len - 1).0 - first.0 + 1;
        pins.publish_direct(pin, first, count) && live.pager.is_pinned(first, count, access)
    };
    let is_there = |named: &Named| match *named {
        Named::Bytes(at, len, access) => holds(at, len, access),
        Named::Path(at) => holds(at, PATH_MAX, Access::Read) || holds(at, 1, Access::Read) && ends_in_page(at),
    };
    if !ranges.list[..ranges.len].iter().all(is_there) {
        pins.release(pin);
        return None;
    }
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pin) };
    (state.nr, state.args, state.part, state.done_bytes, state.waits_with) = (nr, args, Part::Whole, 0, None);
    live.stat(Stat::CallsDirect, 1);
    let issue = Issue { nr, to: &raw mut state.to, stub: gate::stub(pin, false), args };
    Some(Direct { issue, alone: !live.threaded.load(Relaxed) })
}

impl Direct {
    /// Makes the call, and gives what the kernel does.
    ///
    /// # Safety
    /// As the call itself.
    pub unsafe fn make(self) -> isize {
        // SAFETY: the caller vouches for the call; the pin is this call's until it is over.
        unsafe { outswap_direct_call(&self.issue) }
    }
}

/// Whether the process has one thread, as far as the runtime knows, or is another one that shares its memory for a while.
pub fn is_alone() -> bool {
    try_live().is_some_and(|live| !live.threaded.load(Relaxed) || !live.is_own_process())
}

/// Whether any of what a call may name is managed.
fn names_managed(nr: usize, args: &[usize; 6]) -> bool {
    let Some(call) = calls::find(nr) else { return args.iter().any(|&at| overlaps_managed(at, PAGE_BYTES)) };
    call.args.iter().zip(args).any(|(&spec, &at)| {
        let bytes = match spec {
            Arg::No => return false,
            Arg::Buf(k) => args[k as usize].max(1),
            Arg::IntBuf(k) => (args[k as usize] as u32 as usize).max(1),
            Arg::N(bytes) => bytes as usize,
            _ => PATH_MAX,
        };
        overlaps_managed(at, bytes)
    })
}

/// Makes a call as the C library does: it is trapped if it names managed memory. (The filters let calls of this library pass.)
///
/// # Safety
/// As the call itself.
pub unsafe fn call(nr: usize, args: [usize; 6]) -> isize {
    let is_trapped = try_live().is_some() && names_managed(nr, &args);
    let nr = if is_trapped { gate::TRAPPED | nr } else { nr };
    // In place of a stub, the instruction itself; who makes the call after a trap comes back behind it, too.
    let (mut unused, syscall) = (0, outswap_direct_done as *const () as usize - SYSCALL_BYTES);
    let issue = Issue { nr, to: &raw mut unused, stub: syscall, args };
    // SAFETY: the caller vouches for the call.
    unsafe { outswap_direct_call(&issue) }
}

/// The calling thread ends: what calls it has left behind.
pub fn end_thread(live: &Live) {
    // Where threads share what tells them apart, another one's call may look like this one's.
    if live.direct.load(Relaxed) {
        let me = whoever_calls();
        live.pager.pins.release_direct(|owner| owner == me);
    }
}

/// In a forked child of the thread `me`: other threads' calls do not exist here. This thread's do: a handler that interrupted one
/// may fork.
pub fn only(live: &Live, me: u32) {
    live.pager.pins.release_direct(|owner| owner != me);
}
