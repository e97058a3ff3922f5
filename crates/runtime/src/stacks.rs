//! What the runtime keeps for each thread: an alternate stack for its handlers, and what the program believes of its own.
//!
//! The kernel's alternate stack of a thread is always one of ours, so that a fault can be answered however little is left of the
//! program's stack, and wherever that lies. The stack that the program asked for is remembered here and used for its own
//! handlers ([`crate::deliver`]).
//!
//! ```text
//! lowest                                                                  what the kernel takes for thread 1's alternate stack
//! | contexts ... | guard, return stack 0, signal stack 0 | guard, return stack 1, signal stack 1 | ...
//!                                                                                            ^ where a handler starts
//! ```
//! What the kernel is told of as the alternate stack ends where a thread's own signal stack does, and begins where the lowest of all
//! stacks of the runtime does. So a signal that comes while the runtime works, on whatever stack of its own, has its frame put below
//! what is in use there, and not over the frame of the signal before.
use crate::dispositions::OURS;
use crate::gate::{RESERVED, Start};
use crate::limits::{FP_ALIGN, FP_MAX_BYTES, RETURN_STACK_BYTES, SIGNAL_STACK_BYTES, THREADS};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_sys::signal::{SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, Siginfo, Stack, Ucontext, bit, sigaltstack};
use outswap_sys::{Errno, PAGE_BYTES, Result, nr, os, syscall4};

/// A page without access below both.
const STRIDE: usize = PAGE_BYTES + RETURN_STACK_BYTES + SIGNAL_STACK_BYTES;
/// The code of a signal that was sent to a thread.
pub const SI_TKILL: i32 = -6;
/// The smallest stack that the kernel accepts.
const MINSIGSTKSZ: usize = 2048;

/// A thread. All-zero memory is a free place.
#[repr(C)]
pub struct Thread {
    /// What starting the thread needs.
    pub start: core::cell::UnsafeCell<Start>,
    /// Thread id, 0 for a free place.
    pub tid: AtomicI32,
    /// Which of our signals the thread believes to have blocked.
    pretended: AtomicU64,
    /// Which of these were sent meanwhile.
    waiting: AtomicU64,
    /// See [`Thread::tries_again`]: where the thread last tried again, after how many changes, and how often.
    tried: [AtomicUsize; 2],
    tried_changes: AtomicU32,
    tried_times: AtomicU32,
    sp: AtomicUsize,
    size: AtomicUsize,
    flags: AtomicI32,
    /// A signal that came while the thread's fault was served.
    pub kept: Kept,
    /// A signal's frame is being copied to the program's memory, or from there.
    pub copies: AtomicBool,
}

// SAFETY: `start` is written by whoever reserved the place, before the thread exists; `kept` by the thread alone.
unsafe impl Sync for Thread {}

/// A signal of the program's that came while a fault of the same thread was served: it is the program's once that is done, as if it had come
/// just before the instruction that faulted. Read by the code that returns from the fault ([`crate::deliver`]).
#[repr(C)]
pub struct Kept {
    /// The signal; 0 for none.
    signal: AtomicI32,
    /// The thread that it came to: a child of `vfork` has its parent's place for a while, and may be killed.
    tid: AtomicI32,
    info: core::cell::UnsafeCell<FullInfo>,
}

/// The kernel's whole `siginfo_t`.
pub type FullInfo = [u64; 16];

// SAFETY: a thread has one of its own; where it has none, it shares one in which nothing is put.
unsafe impl Sync for Kept {}

impl Kept {
    /// Without a signal.
    pub const fn none() -> Kept {
        Kept { signal: AtomicI32::new(0), tid: AtomicI32::new(0), info: core::cell::UnsafeCell::new([0; 16]) }
    }

    /// Whether there is a signal of the calling thread's.
    pub fn is_some(&self) -> bool {
        self.signal.load(Relaxed) != 0 && self.tid.load(Relaxed) == os::gettid()
    }

    /// Keeps a signal. False where there is one.
    ///
    /// # Safety
    /// `info` is the kernel's, and the calling thread the one whose place this is.
    pub unsafe fn put(&self, signal: i32, info: *const Siginfo) -> bool {
        if self.is_some() {
            return false;
        }
        // SAFETY: as the caller says. Nobody reads it before the signal is noted.
        unsafe { *self.info.get() = *info.cast() };
        self.tid.store(os::gettid(), Relaxed);
        core::sync::atomic::compiler_fence(Release);
        self.signal.store(signal, Relaxed);
        true
    }

    /// Takes the signal.
    ///
    /// # Safety
    /// The calling thread is the one whose place this is, and no other signal can come meanwhile.
    pub unsafe fn take(&self) -> Option<(i32, FullInfo)> {
        let signal = if self.is_some() { self.signal.load(Relaxed) } else { 0 };
        core::sync::atomic::compiler_fence(Acquire);
        // SAFETY: as the caller says.
        let info = unsafe { *self.info.get() };
        self.signal.store(0, Relaxed);
        (signal != 0).then_some((signal, info))
    }
}

static TABLE: AtomicUsize = AtomicUsize::new(0);
static STACKS: AtomicUsize = AtomicUsize::new(0);
/// The lowest address of all stacks of the runtime.
static LOWEST: AtomicUsize = AtomicUsize::new(0);
/// No place at or above this was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Signals of ours that were sent to the process while all threads believed to have them blocked.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// Reserves table and stacks, and as much below them as other stacks of the runtime need. Returns where that is.
pub fn reserve(below_bytes: usize) -> Result<usize> {
    let table = outswap_sys::tables::map(THREADS * core::mem::size_of::<Thread>())?;
    let bytes = below_bytes + THREADS * STRIDE;
    let lowest = os::mmap_anonymous(bytes)?;
    // A huge page would be held for the few pages of fifteen threads that are touched.
    // SAFETY: an advice that drops nothing. Failing is harmless.
    let _ = unsafe { os::madvise(lowest, bytes, os::MADV_NOHUGEPAGE) };
    LOWEST.store(lowest, Release);
    STACKS.store(lowest + below_bytes, Release);
    TABLE.store(table, Release);
    Ok(lowest)
}

/// How many threads there were at most, at a time.
pub fn used() -> usize {
    USED.load(Acquire)
}

fn all() -> &'static [Thread] {
    let at = TABLE.load(Acquire);
    let len = if at == 0 { 0 } else { THREADS };
    let at = if at == 0 { core::mem::align_of::<Thread>() } else { at };
    // SAFETY: reserved memory of that size, never unmapped; zero is a valid `Thread`.
    unsafe { core::slice::from_raw_parts(at as *const Thread, len) }
}

impl Thread {
    fn index(&self) -> usize {
        (self as *const Thread as usize - TABLE.load(Acquire)) / core::mem::size_of::<Thread>()
    }
    /// The alternate stack that the kernel is told of.
    pub fn kernel_stack(&self) -> Stack {
        let (lowest, end) = (LOWEST.load(Acquire), self.return_end() + SIGNAL_STACK_BYTES);
        Stack { sp: lowest, flags: 0, size: end - lowest }
    }
    /// Upper end of the stack on which the thread returns from handlers, below the one on which it runs ours.
    pub fn return_end(&self) -> usize {
        self.return_stack() + RETURN_STACK_BYTES
    }
    /// Where the code that returns begins on that stack: above lies what the kernel is to restore.
    pub fn return_top(&self) -> usize {
        (self.return_end() - FP_MAX_BYTES - FP_ALIGN - core::mem::size_of::<Ucontext>()) & !(FP_ALIGN - 1)
    }
    /// Lowest address of the stack on which the thread returns from handlers of the program's.
    pub fn return_stack(&self) -> usize {
        STACKS.load(Acquire) + self.index() * STRIDE + PAGE_BYTES
    }
    /// The alternate stack as the program knows it.
    pub fn stack(&self) -> Stack {
        let stack = self.saved_stack();
        let off = if stack.size == 0 { SS_DISABLE } else { 0 };
        Stack { flags: stack.flags & SS_AUTODISARM | off, ..stack }
    }
    /// The same as signal frames have it: with the flags that were given, none where there never was one. Such a frame has that
    /// stay which its handler sets.
    pub fn saved_stack(&self) -> Stack {
        Stack { sp: self.sp.load(Relaxed), flags: self.flags.load(Relaxed), size: self.size.load(Relaxed) }
    }
    /// Sets [`Thread::stack`].
    pub fn set_stack(&self, stack: &Stack) {
        let off = stack.flags & SS_DISABLE != 0;
        self.sp.store(if off { 0 } else { stack.sp }, Relaxed);
        self.size.store(if off { 0 } else { stack.size }, Relaxed);
        self.flags.store(stack.flags, Relaxed);
    }
    /// The thread that executed the program has none, and was never given one.
    pub fn begin_without_stack(&self) {
        self.flags.store(0, Relaxed);
    }
    /// Whether a stack pointer lies in the program's alternate stack. One that disarms itself is never in use, as in the kernel.
    pub fn is_on_stack(&self, sp: usize) -> bool {
        let stack = self.stack();
        stack.flags & SS_AUTODISARM == 0 && stack.size > 0 && sp > stack.sp && sp - stack.sp <= stack.size
    }
    /// Whether the thread is to run an instruction again whose access failed: at a place, by address and instruction, where so many changes of
    /// mappings have been: if there were any since it last tried there, as each makes an access look as if it had come too early. So many
    /// times in a row at most.
    pub fn tries_again(&self, place: [usize; 2], changes: u32, at_most: u32) -> bool {
        let before = [0, 1].map(|i: usize| self.tried[i].swap(place[i], Relaxed));
        let is_elsewhere = before != place;
        let is_changed = self.tried_changes.swap(changes, Relaxed) != changes;
        let times = if is_elsewhere { 0 } else { self.tried_times.load(Relaxed) };
        let again = (is_elsewhere || is_changed) && times < at_most;
        self.tried_times.store(if again { times.saturating_add(1) } else { 0 }, Relaxed);
        again
    }
    /// Which of our signals the thread believes to have blocked.
    pub fn pretended(&self) -> u64 {
        self.pretended.load(Relaxed)
    }
    /// Sets [`Thread::pretended`]; signals that were sent while blocked come now.
    pub fn set_pretended(&self, mask: u64) {
        // Either who finds that nobody takes a signal sees this, or that signal is seen here.
        self.pretended.store(mask & OURS, SeqCst);
        self.let_come(mask);
    }
    /// Lets those of the signals that wait come that are not in `mask`.
    pub fn let_come(&self, mask: u64) {
        let mut free = 0;
        for waiting in [&self.waiting, &WAITING] {
            if waiting.load(SeqCst) & !mask != 0 {
                free |= waiting.fetch_and(mask, SeqCst) & !mask;
            }
        }
        for signal in (1..=64).filter(|s| free & bit(*s) != 0) {
            let _ = os::tgkill(os::getpid(), os::gettid(), signal);
        }
    }
    /// Our signals that were sent, and wait for the thread to unblock them.
    pub fn held(&self) -> u64 {
        (self.waiting.load(Relaxed) | WAITING.load(Relaxed)) & self.pretended()
    }
    /// Takes one of the signals in `set` that wait, and whether it was sent to the thread, not to its process.
    pub fn take_held(&self, set: u64) -> Option<(i32, bool)> {
        let wanted = self.held() & set;
        let signals = (1..=64).filter(|signal| wanted & bit(*signal) != 0);
        let mut taken = signals.flat_map(|signal| [(signal, true), (signal, false)]);
        taken.find(|(signal, own)| {
            let waiting = if *own { &self.waiting } else { &WAITING };
            waiting.fetch_and(!bit(*signal), Relaxed) & bit(*signal) != 0
        })
    }
    /// Keeps a signal that was sent while the thread believes to have it blocked. One that was sent to the whole process goes to a
    /// thread that does not, or waits for the first that unblocks it.
    pub fn hold(&self, signal: i32, info: &Siginfo) {
        if info.code == SI_TKILL {
            return self.wait(signal);
        }
        let takes = |t: &&Thread| t.tid.load(Acquire) > 0 && t.pretended.load(SeqCst) & bit(signal) == 0;
        let takers = || all()[..USED.load(Acquire)].iter().filter(takes);
        let sent = takers().any(|thread| {
            let (pid, tid) = (os::getpid(), thread.tid.load(Acquire));
            // What a process sends with a code that only the kernel may use, the kernel does not let be passed on as it is.
            let queued = info.code < 0 && {
                let info = info as *const Siginfo as usize;
                // SAFETY: the kernel's own siginfo.
                unsafe { syscall4(nr::RT_TGSIGQUEUEINFO, pid as usize, tid as usize, signal as usize, info) == 0 }
            };
            queued || os::tgkill(pid, tid, signal).is_ok()
        });
        if sent {
            return;
        }
        WAITING.fetch_or(bit(signal), SeqCst);
        // One that has unblocked it meanwhile may have looked before it was there.
        if let Some(thread) = takers().next()
            && WAITING.fetch_and(!bit(signal), SeqCst) & bit(signal) != 0
            && os::tgkill(os::getpid(), thread.tid.load(Acquire), signal).is_err()
        {
            WAITING.fetch_or(bit(signal), SeqCst);
        }
    }

    /// Has a signal that was sent to the thread wait until it can come ([`Thread::let_come`]).
    pub fn wait(&self, signal: i32) {
        self.waiting.fetch_or(bit(signal), SeqCst);
    }

    /// Makes a free place that of a thread about to start, which is of the process or shares its memory.
    fn clear(&self) {
        self.pretended.store(0, Relaxed);
        self.waiting.store(0, Relaxed);
        self.kept.signal.store(0, Relaxed);
        self.copies.store(false, Relaxed);
        self.set_stack(&Stack { sp: 0, flags: SS_DISABLE, size: 0 });
    }
    /// Takes over what a new thread inherits.
    pub fn inherit(&self, from: Option<&Thread>) {
        self.clear();
        self.pretended.store(from.map_or(0, Thread::pretended), Relaxed);
    }
    /// As [`Thread::inherit`], for a child that also keeps the alternate stack.
    pub fn inherit_all(&self, from: Option<&Thread>) {
        self.inherit(from);
        if let Some(from) = from {
            self.set_stack(&from.saved_stack());
        }
    }
}

/// Reserves a place for a thread that is about to start. `is_alive` tells of a thread id whether that thread lives.
pub fn reserve_place(is_alive: impl Fn(i32) -> bool) -> Option<&'static Thread> {
    let free = |t: &&Thread| {
        // SAFETY: atomics of the table; the parent's mark is only read.
        let done = || unsafe { (*t.start.get()).parent_done.load(Acquire) } != 0 || t.index() >= USED.load(Acquire);
        let taken = t.tid.load(Relaxed) == 0 && done() && t.tid.compare_exchange(0, RESERVED, AcqRel, Relaxed).is_ok();
        // Between the two another thread may have had the place, whose child has ended before it was through itself: it may have noted that
        // child's number here.
        if taken && done() {
            t.tid.store(RESERVED, Release);
            return true;
        }
        if taken {
            let _ = t.tid.compare_exchange(RESERVED, 0, AcqRel, Relaxed);
        }
        false
    };
    let taken = all().iter().find(free).or_else(|| {
        // Threads that ended by an instruction of the program's own.
        for thread in all() {
            let tid = thread.tid.load(Acquire);
            if tid > 0 && !is_alive(tid) {
                let _ = thread.tid.compare_exchange(tid, 0, AcqRel, Relaxed);
            }
        }
        all().iter().find(free)
    })?;
    if taken.index() >= USED.load(Acquire) {
        USED.fetch_max(taken.index() + 1, AcqRel);
        // SAFETY: the page below a stack that nobody uses yet. Without room for another mapping there is no guard.
        let _ = unsafe { os::mprotect(taken.return_stack() - PAGE_BYTES, PAGE_BYTES, os::PROT_NONE) };
    }
    taken.clear();
    Some(taken)
}

/// The thread with a number, where it has a place.
pub fn by_tid(tid: i32) -> Option<&'static Thread> {
    all()[..USED.load(Acquire)].iter().find(|thread| thread.tid.load(Acquire) == tid)
}

/// The thread that calls, as the kernel knows it by its alternate stack: with that, the place of the stacks. `None` where it has
/// none of ours.
pub fn own_stacks() -> Option<&'static Thread> {
    let mut stack = Stack::default();
    // SAFETY: only reads.
    unsafe { sigaltstack(None, Some(&mut stack)) }.ok()?;
    by_kernel_stack(&stack)
}

/// The thread of an alternate stack as the kernel names it, [`Thread::kernel_stack`]. `None` for none of ours.
pub fn by_kernel_stack(stack: &Stack) -> Option<&'static Thread> {
    let last = stack.sp.wrapping_add(stack.size).wrapping_sub(1);
    by_stack(last).filter(|_| stack.flags & SS_DISABLE == 0)
}

/// The thread one of whose stacks an address lies in.
pub fn by_stack(address: usize) -> Option<&'static Thread> {
    let index = address.wrapping_sub(STACKS.load(Acquire)) / STRIDE;
    all().get(index)
}

/// Whether an address lies in one of our stacks.
pub fn holds(address: usize) -> bool {
    address.wrapping_sub(STACKS.load(Acquire)) < THREADS * STRIDE
}

/// A signal is ignored from now on: those that wait are gone.
pub fn discard_waiting(signal: i32) {
    let waiting = all()[..USED.load(Acquire)].iter().map(|thread| &thread.waiting).chain([&WAITING]);
    waiting.for_each(|waiting| {
        waiting.fetch_and(!bit(signal), SeqCst);
    });
}

/// In a forked child, the calling thread, which was `own`, is the only one, under a new number.
pub fn only_this(own: Option<&Thread>) {
    // What waits for the parent does not wait for the child.
    WAITING.store(0, Relaxed);
    for thread in &all()[..USED.load(Acquire)] {
        thread.waiting.store(0, Relaxed);
        thread.kept.signal.store(0, Relaxed);
        let own = own.is_some_and(|own| core::ptr::eq(own, thread));
        thread.tid.store(if own { os::gettid() } else { 0 }, Release);
        // SAFETY: no other thread uses the place.
        unsafe { (*thread.start.get()).parent_done.store(1, Release) };
    }
}

/// `sigaltstack` as the program sees it. `sp` is its stack pointer.
///
/// # Errors
/// As the kernel's: `EPERM` on the stack in use, `EINVAL`, `ENOMEM` for one that is too small.
pub fn change_stack(thread: &Thread, new: Option<&Stack>, sp: usize) -> core::result::Result<Stack, Errno> {
    let mut old = thread.stack();
    let on = thread.is_on_stack(sp);
    if on {
        old.flags |= SS_ONSTACK;
    }
    if let Some(new) = new {
        if on {
            return Err(Errno::EPERM);
        }
        match new.flags & !SS_AUTODISARM {
            SS_DISABLE => thread.set_stack(new),
            0 | SS_ONSTACK if new.size < MINSIGSTKSZ => return Err(Errno::ENOMEM),
            0 | SS_ONSTACK => thread.set_stack(new),
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_sys::signal::{SIGBUS, SIGSEGV};

    const SIGINT: i32 = 2;

    fn thread() -> &'static Thread {
        let at = os::mmap_anonymous(size_of::<Thread>()).expect("memory");
        // SAFETY: fresh zero pages are a valid thread, and stay mapped.
        unsafe { &*(at as *const Thread) }
    }

    const LARGE: Stack = Stack { sp: 0x10_0000, flags: 0, size: 0x4000 };

    #[test]
    fn what_fails_again_though_nothing_changed_is_wrong() {
        let thread = thread();
        let again = |place, changes| thread.tries_again(place, changes, 100);
        assert!(again([1, 2], 7) && !again([1, 2], 7));
        assert!(again([1, 2], 8), "something was mapped since");
        assert!(again([3, 2], 8) && again([3, 4], 8), "another place");
        assert!(!again([3, 4], 8));
        assert_eq!((9..1000).take_while(|&changes| again([3, 4], changes)).count(), 100);
        assert!(again([3, 4], 1000), "and anew once it was told");
        let unbounded = (0..1000).take_while(|&changes| thread.tries_again([5, 6], changes, u32::MAX)).count();
        assert_eq!(unbounded, 1000);
    }

    #[test]
    fn a_stack_is_changed_by_the_kernels_rules() {
        let thread = thread();
        let outside = 0x7fff_0000;
        let change =
            |new: Option<&Stack>, sp: usize| change_stack(thread, new, sp).map(|old| (old.sp, old.flags, old.size));
        assert_eq!(change(Some(&LARGE), outside), Ok((0, SS_DISABLE, 0)));
        assert_eq!(change(None, outside), Ok((0x10_0000, 0, 0x4000)));
        let inside = LARGE.sp + LARGE.size;
        assert_eq!(change(None, inside), Ok((0x10_0000, SS_ONSTACK, 0x4000)));
        assert_eq!(change(Some(&LARGE), inside), Err(Errno::EPERM));
        let small = Stack { size: MINSIGSTKSZ - 1, ..LARGE };
        assert_eq!(change(Some(&small), outside), Err(Errno::ENOMEM));
        assert_eq!(change(Some(&Stack { flags: 4, ..LARGE }), outside), Err(Errno::EINVAL));
        let off = Stack { flags: SS_DISABLE, ..LARGE };
        assert_eq!(change(Some(&off), outside), Ok((0x10_0000, 0, 0x4000)), "what failed changed nothing");
        assert_eq!(change(None, outside), Ok((0, SS_DISABLE, 0)));
        let off = Stack { flags: SS_DISABLE | SS_AUTODISARM, ..LARGE };
        assert_eq!(change(Some(&off), outside), Ok((0, SS_DISABLE, 0)));
        assert_eq!(change(None, outside), Ok((0, SS_DISABLE | SS_AUTODISARM, 0)));
    }

    #[test]
    fn a_stack_that_disarms_itself_is_never_in_use() {
        let thread = thread();
        thread.set_stack(&LARGE);
        for (sp, on) in
            [(LARGE.sp, false), (LARGE.sp + 1, true), (LARGE.sp + LARGE.size, true), (LARGE.sp + LARGE.size + 1, false)]
        {
            assert_eq!(thread.is_on_stack(sp), on, "{sp:x}");
        }
        thread.set_stack(&Stack { flags: SS_AUTODISARM, ..LARGE });
        assert!(!thread.is_on_stack(LARGE.sp + 8));
        assert_eq!(thread.stack().flags, SS_AUTODISARM);
    }

    #[test]
    fn a_signal_is_kept_once_as_it_is_and_for_its_thread_alone() {
        let (kept, info): (Kept, FullInfo) = (Kept::none(), core::array::from_fn(|i| i as u64 * 3 + 1));
        let put = |signal| {
            // SAFETY: as much as the kernel's structure has.
            unsafe { kept.put(signal, info.as_ptr().cast()) }
        };
        // SAFETY: no signal comes here.
        let take = || unsafe { kept.take() };
        assert_eq!(take(), None);
        assert!(put(SIGINT) && kept.is_some() && !put(SIGBUS), "there is room for one");
        assert_eq!((take(), kept.is_some(), take()), (Some((SIGINT, info)), false, None));
        assert!(put(SIGINT));
        kept.tid.store(1, Relaxed);
        assert!(!kept.is_some(), "another thread's");
        assert!(put(SIGBUS), "which is gone");
        assert_eq!(take(), Some((SIGBUS, info)));
    }

    #[test]
    fn what_the_kernel_takes_for_a_stack_ends_with_the_threads_own_and_holds_all_of_ours() {
        const BELOW_BYTES: usize = 16 * PAGE_BYTES;
        let lowest = reserve(BELOW_BYTES).expect("memory");
        for thread in [&all()[0], &all()[7], &all()[THREADS - 1]] {
            let stack = thread.kernel_stack();
            assert_eq!((stack.sp, stack.sp + stack.size), (lowest, thread.return_end() + SIGNAL_STACK_BYTES));
            assert!(by_kernel_stack(&stack).is_some_and(|found| core::ptr::eq(found, thread)));
            assert!(by_stack(thread.return_stack()).is_some_and(|found| core::ptr::eq(found, thread)));
            assert!(holds(thread.return_stack()) && !holds(lowest), "what lies below belongs to others");
            assert!(by_kernel_stack(&Stack { flags: SS_DISABLE, ..stack }).is_none());
        }
        assert!(by_kernel_stack(&Stack::default()).is_none() && by_kernel_stack(&LARGE).is_none());
        let (mut is_it, mappings) = (false, std::fs::read_to_string("/proc/self/smaps").expect("it is there"));
        let flags = mappings.lines().find(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Ok(from), Ok(to))) =
                range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)))
            {
                is_it = (from..to).contains(&lowest);
            }
            is_it && line.starts_with("VmFlags:")
        });
        let is_small = flags.expect("each mapping has some").split(' ').any(|flag| flag == "nh");
        assert!(is_small || !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists(), "{flags:?}");
    }

    #[test]
    fn a_new_thread_inherits_what_is_blocked_and_a_child_its_stack_too() {
        let (parent, child) = (thread(), thread());
        parent.set_pretended(bit(SIGSEGV) | bit(SIGINT));
        parent.set_stack(&LARGE);
        assert_eq!(parent.pretended(), bit(SIGSEGV), "others than ours are the kernel's to block");
        child.inherit(Some(parent));
        assert_eq!((child.pretended(), child.stack().size), (bit(SIGSEGV), 0));
        child.inherit_all(Some(parent));
        assert_eq!((child.pretended(), child.stack().size), (bit(SIGSEGV), LARGE.size));
        child.set_pretended(bit(SIGBUS));
        child.inherit(None);
        assert_eq!(child.pretended(), 0);
    }
}
