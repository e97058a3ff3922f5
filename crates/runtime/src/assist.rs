//! Assistance for system calls: what their arguments point to is made resident and kept so until they return.
use crate::calls::{self, Arg, Call, DEFAULT_BYTES};
use crate::layout::*;
use crate::live::Live;
use crate::machine::page_of;
use crate::{foreign, gate};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use outswap_control::Once;
use outswap_core::pager::{Context, Fault};
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_store::Worker;
use outswap_sys::{nr, os};

/// Scratch memory of a thread at work in the runtime.
pub type Cx = Context<Worker>;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iovec {
    base: usize,
    len: usize,
}

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Msghdr {
    name: usize,
    namelen: u32,
    iov: usize,
    iovlen: usize,
    control: usize,
    controllen: usize,
    flags: i32,
}
/// Bytes of a `struct msghdr`.
pub const MSGHDR_BYTES: usize = core::mem::size_of::<Msghdr>();
const MMSGHDR_BYTES: usize = 64;
/// The kernel's `UIO_MAXIOV`.
pub const IOV_MAX: usize = 1024;
/// The most that one call moves.
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
/// Longest string that any call takes (an argument of exec).
const STRING_MAX_BYTES: usize = 128 * 1024;

/// A pin being filled for a call.
pub struct CallPins<'a> {
    live: &'a Live,
    slot: usize,
    /// Managed bytes that were asked for.
    pinned_bytes: usize,
}

/// Bytes of a transfer that are resident at once: an eighth of the limit, 64 KiB to 1 MiB.
pub fn window_bytes(live: &Live) -> usize {
    (live.pager.limit_pages() as usize / 8).saturating_mul(PAGE_BYTES).clamp(64 << 10, 1 << 20)
}

/// Managed bytes that one call may have resident: what is in use cannot be evicted, so that more would break the limit.
fn pinned_max_bytes(live: &Live) -> usize {
    const LEAST_BYTES: usize = 4 << 20;
    (live.pager.limit_pages() as usize / 2).saturating_mul(PAGE_BYTES).max(LEAST_BYTES)
}

/// Ranges up to this length are not looked at before they are pinned: what of them the kernel cannot reach costs little.
const SHORT_BYTES: usize = 64 << 10;
/// The longest socket address, and more control data than the kernel takes (`net.core.optmem_max`, 128 KiB by default).
pub const NAME_MAX_BYTES: usize = 128;
/// See [`NAME_MAX_BYTES`].
pub const CONTROL_MAX_BYTES: usize = 1 << 20;

impl<'a> CallPins<'a> {
    /// Takes a pin, waiting while all are in use.
    pub fn new(live: &'a Live) -> CallPins<'a> {
        let tid = foreign::caller();
        let mut spins = 0;
        loop {
            if let Some(slot) = live.pager.pins.acquire(tid) {
                if slot < gate::CALL_SLOTS {
                    return CallPins { live, slot, pinned_bytes: 0 };
                }
                live.pager.pins.release(slot);
            }
            if spins == 1000 {
                free_dead(live);
            }
            os::wait_a_little(spins);
            spins += 1;
        }
    }

    /// The slot's number.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Ends the assistance.
    pub fn release(self) {
        self.live.pager.pins.release(self.slot);
    }

    /// Makes what lies in managed memory of a range resident. Whatever is not accessible is left for the kernel to find.
    ///
    /// # Errors
    /// [`Fault::NoMemory`] also where a call names more than may be resident at once.
    pub fn pin(&mut self, cx: &mut Cx, addr: usize, len: usize) -> Result<(), Fault> {
        let end_of_arena = ARENA + self.live.pager.machine.arena_bytes.load(core::sync::atomic::Ordering::Relaxed);
        let (start, end) = (addr.max(ARENA), addr.saturating_add(len).min(end_of_arena));
        if start >= end {
            return Ok(());
        }
        let end = if len > SHORT_BYTES { end.min(addr.saturating_add(self.reachable(addr, len))) } else { end };
        if start >= end {
            return Ok(());
        }
        self.pinned_bytes = self.pinned_bytes.saturating_add(end - start);
        if self.pinned_bytes > pinned_max_bytes(self.live) {
            self.live.control.post_once(Once::TooLong);
            return Err(Fault::NoMemory);
        }
        let first = page_of(start);
        let count = page_of(end - 1).0 - first.0 + 1;
        self.live.pager.pins.publish(self.slot, first, count);
        match self.live.pager.pin(first, count, cx).1 {
            Fault::Done | Fault::NotMapped => Ok(()),
            error => Err(error),
        }
    }

    /// How much of a buffer there is: in managed memory, up to the first page that is not mapped or has no access. The kernel
    /// goes no further; a number that is no address, with a length to match, must not bring in all that lies between.
    fn reachable(&self, addr: usize, len: usize) -> usize {
        let end = addr.saturating_add(len);
        if addr < ARENA && end > ARENA && os::mincore(ARENA - PAGE_BYTES, PAGE_BYTES, &mut [0]).is_err() {
            return ARENA - addr;
        }
        let mut at = if end > ARENA { addr.max(ARENA) } else { addr };
        while at < end && in_arena(at) {
            match self.live.pager.find(page_of(at)) {
                Some(vma) if vma.prot.0 != 0 => at = crate::machine::address(PageNo(vma.end())),
                _ => return at - addr,
            }
        }
        len
    }

    /// Reads from the program's memory, wherever it is, without faulting.
    fn read<T: Copy + Default>(&mut self, cx: &mut Cx, addr: usize) -> Option<T> {
        let mut value = [T::default()];
        let len = core::mem::size_of::<T>();
        self.pin(cx, addr, len).ok()?;
        // SAFETY: plain old data of that size.
        let bytes = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), len) };
        peek(addr, bytes).then_some(value[0])
    }

    fn string(&mut self, cx: &mut Cx, addr: usize) -> Result<(), Fault> {
        if !in_arena(addr) {
            return Ok(());
        }
        let (mut at, mut total) = (addr, 0);
        while total < STRING_MAX_BYTES {
            let rest = PAGE_BYTES - at % PAGE_BYTES;
            self.pin(cx, at, rest)?;
            let mut chunk = [0u8; 256];
            for part in (0..rest).step_by(chunk.len()) {
                let len = chunk.len().min(rest - part);
                if !peek(at + part, &mut chunk[..len]) || chunk[..len].contains(&0) {
                    return Ok(());
                }
            }
            at += rest;
            total += rest;
        }
        Ok(())
    }

    /// Makes resident what an array of `struct iovec` names, as far as `limit` allows. Returns how many elements may go out; all
    /// where the kernel refuses the array, which it must see as a whole then.
    fn vector(&mut self, cx: &mut Cx, addr: usize, count: usize, limit: &mut Option<usize>) -> Result<usize, Fault> {
        if count > IOV_MAX {
            return Ok(count);
        }
        self.pin(cx, addr, count * 16)?;
        for i in 0..count {
            match self.read::<Iovec>(cx, addr.wrapping_add(i * 16)) {
                // One alone counts as the largest that a call moves where it is too large; of several it is refused.
                Some(iov) if is_allowed(&iov) && (count == 1 || !is_refused(iov.base, iov.len)) => {}
                _ => return Ok(count),
            }
        }
        let mut usable = 0;
        for i in 0..count {
            let Some(iov) = self.read::<Iovec>(cx, addr.wrapping_add(i * 16)).filter(is_allowed) else {
                return Ok(count);
            };
            if overlaps_arena(iov.base, iov.len.max(1)) {
                if let Some(limit) = limit {
                    if iov.len > *limit {
                        return Ok(usable);
                    }
                    *limit -= iov.len;
                }
                self.pin(cx, iov.base, iov.len)?;
            }
            usable = i + 1;
        }
        Ok(usable)
    }

    fn message(&mut self, cx: &mut Cx, addr: usize) -> Result<(), Fault> {
        self.pin(cx, addr, core::mem::size_of::<Msghdr>())?;
        let Some(msg) = self.read::<Msghdr>(cx, addr) else { return Ok(()) };
        self.pin(cx, msg.name, (msg.namelen as usize).min(NAME_MAX_BYTES))?;
        self.pin(cx, msg.control, msg.controllen.min(CONTROL_MAX_BYTES))?;
        self.vector(cx, msg.iov, msg.iovlen, &mut None).map(drop)
    }

    /// Makes everything resident that a call's arguments point to. Lengths of a transfer in `args` are cut to `window_bytes`.
    pub fn arguments(
        &mut self,
        cx: &mut Cx,
        call: Option<&Call>,
        args: &mut [usize; 6],
        window_bytes: usize,
    ) -> Result<(), Fault> {
        let Some(call) = call else {
            for &arg in args.iter() {
                if in_arena(arg) {
                    self.pin(cx, arg, DEFAULT_BYTES as usize)?;
                }
            }
            return Ok(());
        };
        const MSG_WAITALL: usize = 0x100;
        let waits_for_all = call.nr == nr::RECVFROM && args[3] & MSG_WAITALL != 0;
        let pointers = calls::pointers_of(call.nr, args);
        for (i, spec) in call.args.iter().enumerate() {
            if pointers & 1 << i == 0 {
                continue;
            }
            let at = args[i];
            match *spec {
                Arg::No => {}
                Arg::Buf(k) => {
                    let len = &mut args[k as usize];
                    if matches!(call.nr, nr::SENDTO | nr::RECVFROM) {
                        // Sockets take any length for the largest.
                        *len = (*len).min(MAX_RW_COUNT);
                    } else if is_refused(at, *len) {
                        // The kernel refuses this length; cut, it would not.
                        continue;
                    }
                    // Who waits for all of it takes less for the end of the connection.
                    if call.transfer && !waits_for_all && overlaps_arena(at, *len) {
                        *len = (*len).min(window_bytes);
                    }
                    let len = self.reachable(at, *len);
                    self.pin(cx, at, len)?;
                }
                Arg::Message(k) => self.pin(cx, at, args[k as usize].saturating_add(8))?,
                Arg::Each(k, bytes) => {
                    // Some calls take an int here, whose upper half says nothing.
                    let count = (args[k as usize] as u32 as usize).min(1 << 20);
                    self.pin(cx, at, count * bytes as usize)?;
                }
                Arg::N(bytes) => self.pin(cx, at, bytes as usize)?,
                Arg::Str => self.string(cx, at)?,
                Arg::Iov(k) => {
                    let mut limit = call.transfer.then_some(window_bytes);
                    let count = args[k as usize];
                    let usable = self.vector(cx, at, count, &mut limit)?;
                    // One element at least goes out whole, however long: the call would do nothing otherwise.
                    if usable == 0 && count > 0 {
                        if let Some(iov) = self.read::<Iovec>(cx, at) {
                            self.pin(cx, iov.base, self.reachable(iov.base, iov.len))?;
                        }
                    }
                    if call.transfer && usable < count {
                        args[k as usize] = usable.max(1);
                    }
                }
                Arg::Msg => self.message(cx, at)?,
                Arg::Mmsg(k) => {
                    for i in 0..args[k as usize].min(IOV_MAX) {
                        self.pin(cx, at + i * MMSGHDR_BYTES, MMSGHDR_BYTES)?;
                        self.message(cx, at + i * MMSGHDR_BYTES)?;
                    }
                }
                Arg::SizedBy(k) => {
                    if let Some(len) = self.read::<u32>(cx, args[k as usize]) {
                        self.pin(cx, at, (len as usize).min(1 << 20))?;
                    }
                }
                Arg::FdSet(k) => self.pin(cx, at, (args[k as usize] as u32 as usize).div_ceil(64).min(1 << 14) * 8)?,
                Arg::Forever(bytes) => {
                    self.pin(cx, at, bytes as usize)?;
                    if in_arena(at) {
                        let first = page_of(at);
                        let count = page_of(at + bytes as usize - 1).0 - first.0 + 1;
                        let _call = self.live.pager.begin_call();
                        self.live.pager.keep(first, count);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Frees the slots of threads that are gone: a thread can die inside a call.
pub fn free_dead(live: &Live) {
    for (slot, owner) in live.pager.pins.in_use() {
        // Whatever process it is of: a vforked child is no thread of ours, but it uses our slots.
        if !foreign::is_alive(live, owner as i32) {
            // Unless it has another owner by now.
            let _ = live.pager.pins.owner_word(slot).compare_exchange(owner, 0, AcqRel, Relaxed);
        }
    }
}

/// Whether the kernel accepts an element of a vector: a length that is not negative. One that is too large counts as the largest
/// that a call moves.
fn is_allowed(iov: &Iovec) -> bool {
    (iov.len as isize) >= 0
}

/// Whether the kernel refuses a buffer: its length is negative, or it ends beyond what a process can have.
fn is_refused(addr: usize, len: usize) -> bool {
    (len as isize) < 0 || in_arena(addr) && addr.saturating_add(len) > TASK_SIZE
}

fn transfer(nr: usize, addr: usize, local: *mut u8, len: usize) -> bool {
    if len == 0 {
        return true;
    }
    let mine = Iovec { base: local as usize, len };
    let theirs = Iovec { base: addr, len };
    let (a, b) = (&raw const mine as usize, &raw const theirs as usize);
    // By the thread's number: a main thread that has ended leaves the process's number without memory.
    // SAFETY: the local part is memory of ours of that length; the other part is checked by the kernel.
    unsafe { gate::call(nr, os::gettid() as usize, a, 1, b, 1, 0) == len as isize }
}

/// Reads the program's memory without faulting. What is managed must be resident.
pub fn peek(addr: usize, buf: &mut [u8]) -> bool {
    transfer(nr::PROCESS_VM_READV, addr, buf.as_mut_ptr(), buf.len())
}

/// Writes the program's memory without faulting. What is managed must be resident.
pub fn poke(addr: usize, buf: &[u8]) -> bool {
    transfer(nr::PROCESS_VM_WRITEV, addr, buf.as_ptr().cast_mut(), buf.len())
}

/// Calls `f` with base and length of each of an array of `struct iovec`, until it says no. False where it did, or where the array
/// cannot be read.
pub fn each_iovec(live: &Live, cx: &mut Cx, vec: usize, count: usize, mut f: impl FnMut(usize, usize) -> bool) -> bool {
    const BATCH: usize = 64;
    let mut batch = [0u8; BATCH * 16];
    let mut at = 0;
    while at < count {
        let n = BATCH.min(count - at);
        let bytes = &mut batch[..n * 16];
        if !copy_in(live, cx, vec + at * 16, bytes) {
            return false;
        }
        for iov in bytes.chunks_exact(16) {
            let word = |at: usize| usize::from_le_bytes(iov[at..at + 8].try_into().expect("8 bytes"));
            if !f(word(0), word(8)) {
                return false;
            }
        }
        at += n;
    }
    true
}

/// Reads the program's memory, bringing in what is not resident. False where it is not readable.
pub fn copy_in(live: &Live, cx: &mut Cx, addr: usize, buf: &mut [u8]) -> bool {
    let mut pins = CallPins::new(live);
    let ok = pins.pin(cx, addr, buf.len()).is_ok() && peek(addr, buf);
    pins.release();
    ok
}

/// [`copy_in`] of a 32-bit number.
pub fn copy_in_u32(live: &Live, cx: &mut Cx, addr: usize) -> Option<u32> {
    let mut bytes = [0u8; 4];
    copy_in(live, cx, addr, &mut bytes).then_some(u32::from_le_bytes(bytes))
}

/// Writes the program's memory, bringing in what is not resident. False where it is not writable.
pub fn copy_out(live: &Live, cx: &mut Cx, addr: usize, buf: &[u8]) -> bool {
    let mut pins = CallPins::new(live);
    let ok = pins.pin(cx, addr, buf.len()).is_ok() && poke(addr, buf);
    pins.release();
    ok
}

/// Keeps the pages of a range resident for good: the kernel uses them on its own. False where they cannot be brought in.
pub fn keep(live: &Live, cx: &mut Cx, addr: usize, len: usize) -> bool {
    if !overlaps_arena(addr, len) {
        return true;
    }
    let mut pins = CallPins::new(live);
    let ok = pins.pin(cx, addr, len).is_ok();
    if ok {
        let first: PageNo = page_of(addr.max(ARENA));
        let count = page_of(addr + len - 1).0 - first.0 + 1;
        let _call = live.pager.begin_call();
        live.pager.keep(first, count);
    }
    pins.release();
    ok
}
