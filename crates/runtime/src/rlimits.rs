//! `RLIMIT_AS`, `RLIMIT_DATA` and `RLIMIT_NOFILE`, as the program sees them.
//!
//! Of the first two the kernel never hears: it would count the runtime's terabytes of reserved address space. The limits that
//! the program sets for itself are kept here, copied by fork, and held against what the program maps. What was reserved but not
//! touched when a limit was set does not count: allocators reserve in advance, and ours reserves more than others. Of
//! descriptors the kernel holds the soft limit; it does not hear of a lower hard one, because a forked child needs numbers for
//! descriptors of the runtime's when the program has used up its own.
//!
//! A program that is executed and managed finds the limits in its environment ([`VARIABLE`]) and goes on keeping them here. So
//! nothing that cannot be undone is done before an exec, which may fail. Only for a program that is not managed the kernel
//! gets them.
use crate::contexts::Cx;
use crate::errno::{EFAULT, EINVAL, EPERM};
use crate::layout::{OWN_CALL, RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE};
use crate::live::Live;
use crate::{kept, pins, process, procfs, sharers};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use outswap_core::lock::SpinLock;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{nr, os, ret, syscall5};

/// `struct rlimit64`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limit {
    soft: u64,
    hard: u64,
}
impl Limit {
    const NONE: Limit = Limit { soft: u64::MAX, hard: u64::MAX };
}

/// What is kept of one limit.
struct Kept {
    resource: usize,
    /// What the program set, or found.
    program: Shared,
    /// What the kernel holds this process to.
    kernel: Shared,
    /// Pages of address space (of private writable mappings, for data) that are the runtime's.
    our_pages: AtomicU64,
    /// Managed pages that do not count, because they were reserved and not touched when the limit was set.
    reserve_pages: AtomicU64,
}

/// A limit that any thread may read at any time.
struct Shared {
    soft: AtomicU64,
    hard: AtomicU64,
}
impl Shared {
    const fn none() -> Shared {
        Shared { soft: AtomicU64::new(u64::MAX), hard: AtomicU64::new(u64::MAX) }
    }
    fn get(&self) -> Limit {
        Limit { soft: self.soft.load(Relaxed), hard: self.hard.load(Relaxed) }
    }
    fn set(&self, limit: Limit) {
        self.soft.store(limit.soft, Relaxed);
        self.hard.store(limit.hard, Relaxed);
    }
}

const fn kept(resource: usize) -> Kept {
    Kept {
        resource,
        program: Shared::none(),
        kernel: Shared::none(),
        our_pages: AtomicU64::new(0),
        reserve_pages: AtomicU64::new(0),
    }
}
static KEPT: [Kept; 3] = [kept(RLIMIT_AS), kept(RLIMIT_DATA), kept(RLIMIT_NOFILE)];
const AS: usize = 0;
const DATA: usize = 1;
const FILES: usize = 2;

/// Environment variable with the limits of a managed program that the kernel does not know, see [`HandedOn`].
pub const VARIABLE: &[u8] = b"OUTSWAP_LIMITS";
/// Held by who changes a limit, inside the runtime.
static CHANGING: SpinLock<()> = SpinLock::new(());
/// Whether the program has any such limit: else nothing needs to be counted.
static LIMITED: AtomicBool = AtomicBool::new(false);

/// The kernel's limit of this process.
fn kernel_limit(resource: usize) -> Limit {
    let mut limit = Limit::NONE;
    // SAFETY: a place for a `struct rlimit64`.
    unsafe { syscall5(nr::PRLIMIT64, 0, resource, 0, &raw mut limit as usize, OWN_CALL) };
    limit
}

/// Whether the kernel holds this process to a limit of address space, and to one of data.
pub fn kernel_has() -> (bool, bool) {
    let has = |resource| kernel_limit(resource).soft != u64::MAX;
    (has(RLIMIT_AS), has(RLIMIT_DATA))
}

fn set_kernel_limit(resource: usize, limit: Limit) -> outswap_sys::Result<()> {
    // SAFETY: a `struct rlimit64` that lives through the call.
    ret(unsafe { syscall5(nr::PRLIMIT64, 0, resource, &raw const limit as usize, 0, OWN_CALL) }).map(drop)
}

/// Limits as they are handed on to a program that is executed: for each, what the program set, and what the kernel has. Where
/// the kernel has something else by then, a program in between, which was not managed, has set its own.
#[derive(Clone, Copy)]
pub struct HandedOn {
    text: [u8; HANDED_BYTES],
    len: usize,
}
/// In hexadecimal digits: the number of the resource, the program's soft and hard limit, and the kernel's.
const NUMBERS: usize = 5;
const DIGITS: usize = 16;
const HANDED_BYTES: usize = KEPT.len() * NUMBERS * DIGITS;

impl HandedOn {
    fn empty() -> HandedOn {
        HandedOn { text: [0; HANDED_BYTES], len: 0 }
    }
    /// The value of [`VARIABLE`]; empty where the kernel knows all limits.
    pub fn value(&self) -> &[u8] {
        &self.text[..self.len]
    }
    fn add(&mut self, resource: usize, program: Limit, kernel: Limit) {
        for number in [resource as u64, program.soft, program.hard, kernel.soft, kernel.hard] {
            for i in (0..DIGITS).rev() {
                self.text[self.len] = b"0123456789abcdef"[(number >> (4 * i)) as usize & 15];
                self.len += 1;
            }
        }
    }
    /// What the program set, and what the kernel had then. None where the text was made by somebody else.
    fn find(text: &[u8], resource: usize) -> Option<(Limit, Limit)> {
        text.chunks_exact(NUMBERS * DIGITS).find_map(|limit| {
            let number = |i: usize| {
                let digits = core::str::from_utf8(&limit[i * DIGITS..(i + 1) * DIGITS]).ok()?;
                u64::from_str_radix(digits, 16).ok()
            };
            let (program, kernel) =
                (Limit { soft: number(1)?, hard: number(2)? }, Limit { soft: number(3)?, hard: number(4)? });
            // Whoever can write the environment can lower limits, but not raise them.
            let lower = program.soft <= program.hard && program.hard <= kernel.hard;
            (number(0)? == resource as u64 && lower).then_some((program, kernel))
        })
    }
}

/// Before anything is reserved in a process: raises the kernel's soft limits as far as they go. The program goes on seeing
/// those that it had, or those that were handed on to it (the value of [`VARIABLE`]).
pub fn begin_setup(handed_on: &[u8], min_fd: i32) {
    for kept in &KEPT {
        let found = kernel_limit(kept.resource);
        let handed = HandedOn::find(handed_on, kept.resource).filter(|(_, kernel)| *kernel == found);
        let raised = Limit { soft: found.hard, hard: found.hard };
        let is_raised = found != raised && set_kernel_limit(kept.resource, raised).is_ok();
        kept.program.set(handed.map_or(found, |(program, _)| program));
        kept.kernel.set(if is_raised { raised } else { found });
    }
    kept::STATM.open(min_fd);
    for (kept, size) in KEPT.iter().zip(procfs::sizes_pages().unwrap_or([0; 2])) {
        kept.our_pages.store(size, Relaxed);
    }
    publish();
}

/// Whether the kernel holds this process to no limit of address space and data.
pub fn are_none() -> bool {
    KEPT[..FILES].iter().all(|kept| kept.kernel.get().soft == u64::MAX)
}

/// After everything is reserved and opened: what was added since [`begin_setup`] is the runtime's. Of pages that were the program's before,
/// `managed` have become managed memory, and `uncounted` of these the kernel counts as data no more.
pub fn end_setup(managed: u64, uncounted: u64) {
    let now = procfs::sizes_pages().unwrap_or([0; 2]);
    for (kept, now) in KEPT.iter().zip(now) {
        let before = kept.our_pages.load(Relaxed);
        let gone = if kept.resource == RLIMIT_DATA { uncounted } else { 0 };
        kept.our_pages.store((now + gone).saturating_sub(before), Relaxed);
    }
    KEPT[AS].our_pages.fetch_add(managed, Relaxed);
    let files = &KEPT[FILES];
    let limit = Limit { soft: files.program.get().soft, hard: files.kernel.get().hard };
    if set_kernel_limit(RLIMIT_NOFILE, limit).is_ok() {
        files.kernel.set(limit);
    }
}

/// The process cannot be managed: the kernel gets its limits back.
pub fn give_up_setup() {
    kept::close_all();
    for kept in &KEPT {
        let _ = set_kernel_limit(kept.resource, kept.program.get());
    }
    LIMITED.store(false, Relaxed);
}

fn publish() {
    LIMITED.store(KEPT[..FILES].iter().any(|kept| kept.program.get().soft != u64::MAX), Relaxed);
}

/// Whether the program has a limit of what it maps. Then all its mappings are to be counted, not only those that may be managed.
pub fn is_limited() -> bool {
    LIMITED.load(Relaxed)
}

/// Whether the program may map so many more pages, of which `data` are private and writable.
pub fn allow(live: &Live, pages: u64, data: u64) -> bool {
    if !is_limited() {
        return true;
    }
    let (mapped, writable) = live.pager.mapped_pages();
    // Of managed memory the kernel counts what is writable there, shared or not.
    let counted = live.counted_pages();
    let ours = |which: usize| KEPT[which].our_pages.load(Relaxed);
    let reserve = |which: usize| KEPT[which].reserve_pages.load(Relaxed);
    let [size, private] = procfs::sizes_pages().unwrap_or([0; 2]);
    let used = [
        (size.saturating_sub(ours(AS)) + mapped).saturating_sub(reserve(AS)),
        (private.saturating_sub(ours(DATA) + counted) + writable).saturating_sub(reserve(DATA)),
    ];
    let fits = |which: usize, more: u64, bytes: u64| {
        more == 0 || bytes == u64::MAX || used[which] + more <= bytes / PAGE_BYTES as u64
    };
    // As the kernel has it, a soft limit of no data at all means the hard one.
    let Limit { soft, hard } = KEPT[DATA].program.get();
    fits(AS, pages, KEPT[AS].program.get().soft) && fits(DATA, data, if soft == 0 { hard } else { soft })
}

/// Something was unmapped: what is not mapped any more is not reserved.
pub fn note_unmapped(live: &Live) {
    if is_limited() {
        let (mapped, writable) = live.pager.mapped_pages();
        KEPT[AS].reserve_pages.fetch_min(mapped, Relaxed);
        KEPT[DATA].reserve_pages.fetch_min(writable, Relaxed);
    }
}

/// Serves getrlimit, setrlimit and prlimit64 for these limits of the calling process; `None` where the call is about something else.
pub fn call(live: &'static Live, nr: usize, [a, b, c, d, ..]: [usize; 6]) -> Option<isize> {
    let (pid, resource, new, old) = match nr {
        nr::GETRLIMIT => (0, a, None, Some(b)),
        nr::SETRLIMIT => (0, a, Some(b), None),
        nr::PRLIMIT64 => (a as i32, b, Some(c).filter(|at| *at != 0), Some(d).filter(|at| *at != 0)),
        _ => return None,
    };
    let which = KEPT.iter().position(|kept| kept.resource == resource as u32 as usize)?;
    // The number of any of its threads names a process.
    if pid != 0 && os::tgkill(os::getpid(), pid, 0).is_err() {
        return None;
    }
    let wanted = match new {
        None => None,
        Some(at) => match live.with(move |cx| read(live, cx, at)) {
            None => return Some(EFAULT),
            wanted => wanted,
        },
    };
    let before = if live.is_own_process() {
        live.with(move |_| change(live, which, wanted))
    } else {
        change_of_sharer(live, which, wanted)
    };
    let before = match before {
        Ok(before) => before,
        Err(error) => return Some(error),
    };
    Some(match old {
        Some(old) if !live.with(move |cx| write(live, cx, old, before)) => EFAULT,
        _ => 0,
    })
}

/// A limit that the program has written there.
fn read(live: &Live, cx: &mut Cx, at: usize) -> Option<Limit> {
    let mut bytes = [0u8; size_of::<Limit>()];
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    pins::copy_in(live, cx, at, &mut bytes).then(|| Limit { soft: half(&bytes[..8]), hard: half(&bytes[8..]) })
}

/// Writes one for the program. False where it cannot be written to.
fn write(live: &Live, cx: &mut Cx, at: usize, limit: Limit) -> bool {
    let mut bytes = [0u8; size_of::<Limit>()];
    bytes[..8].copy_from_slice(&limit.soft.to_le_bytes());
    bytes[8..].copy_from_slice(&limit.hard.to_le_bytes());
    pins::copy_out(live, cx, at, &bytes)
}

/// Whether the kernel's rules let a limit be set.
fn check(wanted: Limit, before: Limit) -> Result<(), isize> {
    const CAP_SYS_RESOURCE: u32 = 24;
    match wanted {
        _ if wanted.soft > wanted.hard => Err(EINVAL),
        _ if wanted.hard > before.hard && !process::has_capability(CAP_SYS_RESOURCE) => Err(EPERM),
        _ => Ok(()),
    }
}

/// As [`change`], for a process that only shares the memory: its limits are this one's until it sets its own, which the kernel keeps.
fn change_of_sharer(live: &'static Live, which: usize, wanted: Option<Limit>) -> Result<Limit, isize> {
    let (resource, program, kernel) = live.with(move |_| {
        let _changing = CHANGING.lock(os::wait_a_little);
        (KEPT[which].resource, KEPT[which].program.get(), KEPT[which].kernel.get())
    });
    let now = kernel_limit(resource);
    let before = if now == kernel && !sharers::has_set_limit(which) { program } else { now };
    // What it has anyway is handed on to what it executes.
    if let Some(wanted) = wanted.filter(|wanted| *wanted != before) {
        check(wanted, before)?;
        set_kernel_limit(resource, wanted).map_err(|e| -(e.0 as isize))?;
        sharers::note_limit(which);
    }
    Ok(before)
}

/// Sets a limit, if asked, by the kernel's rules. Returns what it was.
fn change(live: &Live, which: usize, wanted: Option<Limit>) -> Result<Limit, isize> {
    let kept = &KEPT[which];
    let _changing = CHANGING.lock(os::wait_a_little);
    // Those that another process set for this one the kernel has.
    let now = kernel_limit(kept.resource);
    let before = if now == kept.kernel.get() { kept.program.get() } else { now };
    let Some(wanted) = wanted else { return Ok(before) };
    check(wanted, before)?;
    let hard = wanted.hard.max(now.hard);
    let kernel = Limit { soft: if which == FILES { wanted.soft } else { hard }, hard };
    if kernel != now {
        set_kernel_limit(kept.resource, kernel).map_err(|e| -(e.0 as isize))?;
    }
    kept.kernel.set(kernel);
    let (mapped, writable) = live.pager.mapped_pages();
    let reserve = if which == AS { mapped } else { writable }.saturating_sub(live.pager.touched_pages());
    kept.reserve_pages.store(reserve, Relaxed);
    kept.program.set(wanted);
    publish();
    Ok(before)
}

/// Whether the calling process has the limit that is kept here: it is not a vforked child that set its own, and nobody else set another.
fn has_kept(which: usize) -> bool {
    kernel_limit(KEPT[which].resource) == KEPT[which].kernel.get() && !sharers::has_set_limit(which)
}

/// Limits of the calling process that the kernel does not know, for a program that it executes.
pub fn handed_on() -> HandedOn {
    let mut handed = HandedOn::empty();
    for (which, kept) in KEPT.iter().enumerate() {
        let (program, kernel) = (kept.program.get(), kept.kernel.get());
        if program != kernel && has_kept(which) {
            handed.add(kept.resource, program, kernel);
        }
    }
    handed
}

/// Before an exec of a program that will not be managed: gives the kernel the limits, which hold for what is executed. A hard
/// limit cannot be raised again by everybody, so it is lowered only where the exec will hardly fail.
pub fn give_to_kernel(runs: bool) {
    for (which, kept) in KEPT.iter().enumerate() {
        let (program, kernel) = (kept.program.get(), kept.kernel.get());
        if has_kept(which) {
            let hard = if runs { program.hard } else { kernel.hard };
            let _ = set_kernel_limit(kept.resource, Limit { soft: program.soft, hard });
        }
    }
}

/// After an exec that failed: undoes [`give_to_kernel`] as far as it can be.
pub fn take_back(live: &Live) {
    for kept in &KEPT {
        let (program, kernel, now) = (kept.program.get(), kept.kernel.get(), kernel_limit(kept.resource));
        let given = now.soft == program.soft && (now.hard == program.hard || now.hard == kernel.hard);
        if now == kernel || !given || set_kernel_limit(kept.resource, kernel).is_ok() {
            continue;
        }
        let soft = if kept.resource == RLIMIT_NOFILE { now.soft } else { now.hard };
        let rest = Limit { soft, hard: now.hard };
        if set_kernel_limit(kept.resource, rest).is_ok() && live.is_own_process() {
            kept.kernel.set(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Limit = Limit { soft: 1024, hard: u64::MAX };

    #[test]
    fn limits_that_are_handed_on_are_found_again() {
        let mut handed = HandedOn::empty();
        assert_eq!(HandedOn::find(handed.value(), RLIMIT_AS), None);
        let limits = [
            (RLIMIT_AS, Limit { soft: 1 << 31, hard: 1 << 32 }),
            (RLIMIT_DATA, Limit { soft: 0, hard: u64::MAX }),
            (RLIMIT_NOFILE, Limit { soft: 32, hard: 32 }),
        ];
        limits.iter().for_each(|(resource, program)| handed.add(*resource, *program, KERNEL));
        assert_eq!(handed.value().len(), HANDED_BYTES);
        for (resource, program) in limits {
            assert_eq!(HandedOn::find(handed.value(), resource), Some((program, KERNEL)));
        }
    }

    #[test]
    fn limits_that_nobody_handed_on_are_none() {
        let mut handed = HandedOn::empty();
        handed.add(RLIMIT_AS, Limit { soft: 5, hard: 10 }, Limit { soft: 9, hard: 9 });
        assert_eq!(HandedOn::find(handed.value(), RLIMIT_AS), None, "above the kernel's");
        let mut handed = HandedOn::empty();
        handed.add(RLIMIT_AS, Limit { soft: 10, hard: 5 }, KERNEL);
        assert_eq!(HandedOn::find(handed.value(), RLIMIT_AS), None, "soft above hard");
        for text in [b"".as_slice(), b"9", &[b'x'; HANDED_BYTES], &[0xff; HANDED_BYTES], &[b'0'; HANDED_BYTES]] {
            assert_eq!(HandedOn::find(text, RLIMIT_AS), None);
        }
    }
}
