//! Processes that share this memory without being this process: children of vfork, posix_spawn and `clone(CLONE_VM)`, until
//! they execute another program or end.
//!
//! Such a process can be killed at any instruction while everybody else lives on. So it never works on the runtime's tables
//! itself ([`crate::desk`]), but for the pin of an exec, which is one word.
use crate::gate::Start;
use crate::limits::SHARERS;
use crate::stacks::Thread;
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use outswap_sys::{Errno, nr, os, ret, syscall3, syscall5};

/// In place of a thread id: the process is being made.
const RESERVED: u32 = u32::MAX;

/// A process that shares the memory.
#[repr(C)]
pub struct Sharer {
    /// Its thread id. The kernel clears it when the process leaves this memory, however it does so.
    pub tid: AtomicU32,
    /// What starting it needs.
    pub start: UnsafeCell<Start>,
    /// What is kept for its only thread.
    pub thread: Thread,
    /// It has the same root directory as the process whose memory it shares, and changes it for both.
    pub shares_root: AtomicBool,
    /// Limits that it has set itself, a bit for each ([`crate::rlimits`]).
    limits_set: AtomicU32,
}

static ANY: AtomicBool = AtomicBool::new(false);
/// Whether there ever was one that has no place here.
static WITHOUT_PLACE: AtomicBool = AtomicBool::new(false);
/// Whether one has ever made a thread.
static WITH_THREADS: AtomicBool = AtomicBool::new(false);

static SHARERS_AT: AtomicUsize = AtomicUsize::new(0);
/// No place from here on was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

impl Sharer {
    fn start_is_fresh(&self) -> bool {
        // SAFETY: a word of the place; only told apart from what was ever written.
        unsafe { (*self.start.get()).to == 0 }
    }
}

/// Reserves what is needed.
pub fn reserve() -> outswap_sys::Result<()> {
    SHARERS_AT.store(outswap_sys::tables::map(SHARERS * size_of::<Sharer>())?, Release);
    Ok(())
}

/// The places that were ever used, or are about to be: the memory of others is not looked at.
fn sharers() -> &'static [Sharer] {
    &places()[..USED.load(SeqCst)]
}

fn places() -> &'static [Sharer] {
    let at = SHARERS_AT.load(Acquire);
    let len = if at == 0 { 0 } else { SHARERS };
    let at = if at == 0 { core::mem::align_of::<Sharer>() } else { at };
    // SAFETY: reserved memory of that size, never unmapped; zero is a valid `Sharer`.
    unsafe { core::slice::from_raw_parts(at as *const Sharer, len) }
}

/// Whether there ever was a process that shares this memory.
pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// From here on there may be one.
pub fn announce() {
    ANY.store(true, SeqCst);
}

/// From here on there may be one that has no place: when it leaves, the kernel tells the program alone.
pub fn announce_without_place() {
    WITHOUT_PLACE.store(true, SeqCst);
}

/// From here on one may have threads, which have no place.
pub fn announce_threads() {
    WITH_THREADS.store(true, SeqCst);
}

/// Whether a process may share this memory now.
pub fn is_any_here() -> bool {
    any() && (WITHOUT_PLACE.load(SeqCst) || sharers().iter().any(|s| s.tid.load(Acquire) != 0))
}

/// Whether the calling process is the only one that shares this memory without being this process.
pub fn is_only_one() -> bool {
    let tid = os::gettid() as u32;
    !WITHOUT_PLACE.load(SeqCst)
        && sharers().iter().all(|s| matches!(s.tid.load(Acquire), 0) || s.tid.load(Acquire) == tid)
}

/// Reserves a place for a process that is about to start.
pub fn reserve_place() -> Option<&'static Sharer> {
    let free = |(i, s): &(usize, &Sharer)| {
        // SAFETY: an atomic of the place.
        let done = unsafe { (*s.start.get()).parent_done.load(Acquire) } != 0 || s.start_is_fresh();
        // First: who looks for processes looks no further.
        USED.fetch_max(i + 1, SeqCst);
        done && s.tid.compare_exchange(0, RESERVED, AcqRel, Relaxed).is_ok()
    };
    let (_, sharer) = places().iter().enumerate().find(free)?;
    sharer.limits_set.store(0, Relaxed);
    Some(sharer)
}

/// Whether a thread lives that is of process `pid`, whose runtime this is, or shares its memory.
pub fn is_alive(pid: i32, tid: i32) -> bool {
    // SAFETY: signal 0 is not sent.
    let asked = ret(unsafe { syscall3(nr::TGKILL, pid as usize, tid as usize, 0) });
    // What confines signals may refuse those to a thread of the own process, which lives.
    let of_process = matches!(asked, Ok(_) | Err(Errno::EPERM));
    let has_place = || sharers().iter().any(|s| s.tid.load(Acquire) == tid as u32);
    let may_lack_one = || WITHOUT_PLACE.load(SeqCst) || WITH_THREADS.load(SeqCst);
    of_process || has_place() || may_lack_one() && may_share(tid)
}

/// Whether a thread lives that uses the caller's memory: one of a process that shares it and has threads, or of whose leaving the
/// kernel tells the program instead of us. When in doubt it does: who may not be asked about, or where nobody may ask, as in containers.
fn may_share(tid: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: takes integers only. Above 0: these are two memories.
    os::is_thread(tid) && unsafe { syscall5(nr::KCMP, os::gettid() as usize, tid as usize, KCMP_VM, 0, 0) } <= 0
}

/// What is kept for the calling thread where it is of a process that shares the memory, and not of the
/// one whose runtime this is.
pub fn thread() -> Option<&'static Thread> {
    own().map(|sharer| &sharer.thread)
}

/// Whether the calling thread is of a process that shares the memory and the root directory.
pub fn shares_root() -> bool {
    own().is_some_and(|sharer| sharer.shares_root.load(Relaxed))
}

fn own() -> Option<&'static Sharer> {
    let tid = os::gettid() as u32;
    sharers().iter().find(|s| s.tid.load(Acquire) == tid)
}

/// Whether the calling thread is of a process that shares the memory, and has set this limit itself.
pub fn has_set_limit(which: usize) -> bool {
    own().is_some_and(|sharer| sharer.limits_set.load(Relaxed) & 1 << which != 0)
}

/// It has.
pub fn note_limit(which: usize) {
    if let Some(sharer) = own() {
        sharer.limits_set.fetch_or(1 << which, Relaxed);
    }
}

/// In a forked child nobody shares the memory.
pub fn forget() {
    ANY.store(false, Relaxed);
    WITHOUT_PLACE.store(false, Relaxed);
    WITH_THREADS.store(false, Relaxed);
    for sharer in sharers() {
        sharer.tid.store(0, Relaxed);
        // SAFETY: no other thread or process uses the place.
        unsafe { (*sharer.start.get()).parent_done.store(1, Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_executed_a_program_shares_no_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let pid = child.id() as i32;
        assert!(os::is_thread(pid), "it lives");
        assert!(!may_share(pid));
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!may_share(pid) && !may_share(0) && !may_share(i32::MAX));
        let of_thread = std::thread::spawn(|| may_share(os::gettid()));
        assert!(of_thread.join().expect("no panic") && may_share(os::getpid()) && may_share(os::gettid()));
    }
}
