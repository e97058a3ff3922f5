//! The runtime of this process: one, made at start, and what belongs to it.
use crate::assist::Cx;
use crate::contexts::Contexts;
use crate::control::{Control, Process, Stat};
use crate::deliver::Actions;
use crate::layout::{OWN_CALL, RLIMIT_NOFILE};
use crate::machine::{LiveMachine, address};
use crate::source::Source;
use crate::{budget, foreign, gate};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering::*};
use outswap_core::lock::{Guard, SpinLock};
use outswap_core::pager::Pager;
use outswap_core::table::Reserve;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PageNo};
use outswap_store::Tiers;
use outswap_sys::uffd::{self, Uffd};
use outswap_sys::{Result, nr, os};

/// Ranges that a forked child finds empty (`MADV_WIPEONFORK`) or does not have (`MADV_DONTFORK`).
const WIPES: usize = 64;

#[derive(Clone, Copy, Default)]
struct Wipe {
    first: u32,
    count: u32,
    /// Not only empty, but not mapped.
    gone: bool,
}

/// Tables of the live runtime: mapped without reserving, never unmapped.
pub struct Mapped;
impl Reserve for Mapped {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        match os::mmap_anonymous(bytes.next_multiple_of(PAGE_BYTES)) {
            Ok(at) => {
                // A huge page would be held for one touched byte.
                // SAFETY: an advice that drops nothing.
                let _ = unsafe { os::madvise(at, bytes.next_multiple_of(PAGE_BYTES), os::MADV_NOHUGEPAGE) };
                at as *mut u8
            }
            Err(_) => core::ptr::null_mut(),
        }
    }
}

/// The heap that grows by `brk`.
#[derive(Default)]
pub struct Heap {
    /// First address; 0 before first use.
    pub start: usize,
    /// The break.
    pub end: usize,
    /// Where it must end.
    pub limit: usize,
}

/// Everything of one managed process.
pub struct Live {
    /// The state machine over this process's memory.
    pub pager: Pager<LiveMachine, &'static Tiers>,
    /// The control block of the tree.
    pub control: &'static Control,
    /// Stacks and scratch memory.
    pub contexts: &'static Contexts,
    /// The process that this runtime serves; differs from `getpid()` in a vforked child.
    pub pid: AtomicI32,
    /// The program's own dispositions of signals.
    pub actions: Actions,
    /// What the budget knows.
    pub budget: budget::Budget,
    /// Bytes of staging memory.
    pub stage_bytes: usize,
    /// The range in which the runtime's descriptors are. Not all in it are the runtime's.
    pub fds: (i32, i32),
    /// Forked, or child of a fork: pages may be shared with another process.
    pub forked: AtomicBool,
    heap: SpinLock<Heap>,
    wipes: SpinLock<[Wipe; WIPES]>,
    locked: AtomicI64,
    on_fault: AtomicI64,
    lock_future: AtomicBool,
    future_on_fault: AtomicBool,
}

static LIVE: AtomicPtr<Live> = AtomicPtr::new(core::ptr::null_mut());
/// 0: not looked at; 1: being set up; 2: set up, or nothing to do.
static STATE: AtomicU32 = AtomicU32::new(0);

/// The runtime, if this process is managed.
pub fn try_live() -> Option<&'static Live> {
    // SAFETY: set once, to memory that is never freed.
    unsafe { LIVE.load(Acquire).as_ref() }
}

/// The runtime.
///
/// # Panics
/// Before set-up; only code that set-up makes reachable calls this.
pub fn live() -> &'static Live {
    try_live().expect("the runtime is set up before its handlers and hooks run")
}

/// Called by the machine now and then: looks at the budget.
pub fn budget_tick() {
    if let Some(live) = try_live() {
        budget::tick(live);
    }
}

/// Called by the machine when reclaim cannot hold the limit.
pub fn over_budget() {
    if let Some(live) = try_live() {
        budget::over(live);
    }
}

/// Places the runtime.
pub fn set(live: &'static Live) {
    LIVE.store(live as *const Live as *mut Live, Release);
}

/// Whether this caller is to set the process up. Others wait until it is done; a call from inside set-up gets false.
pub fn begin_setup(tid: &AtomicI32) -> bool {
    if STATE.load(Acquire) == 2 {
        return false;
    }
    if STATE.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
        tid.store(os::gettid(), Release);
        return true;
    }
    while STATE.load(Acquire) == 1 && tid.load(Acquire) != os::gettid() {
        os::sched_yield();
    }
    false
}

/// Set-up is over.
pub fn end_setup() {
    STATE.store(2, Release);
}

impl Live {
    /// Everything but the runtime and what was reserved for it.
    pub fn new(
        pager: Pager<LiveMachine, &'static Tiers>,
        control: &'static Control,
        contexts: &'static Contexts,
        stage_bytes: usize,
        fds: (i32, i32),
    ) -> Live {
        Live {
            pager,
            control,
            contexts,
            pid: AtomicI32::new(os::getpid()),
            actions: Actions::default(),
            budget: budget::Budget::default(),
            stage_bytes,
            fds,
            forked: AtomicBool::new(false),
            heap: SpinLock::new(Heap::default()),
            wipes: SpinLock::new([Wipe::default(); WIPES]),
            locked: AtomicI64::new(0),
            on_fault: AtomicI64::new(0),
            lock_future: AtomicBool::new(false),
            future_on_fault: AtomicBool::new(false),
        }
    }

    /// This process's record in the control block.
    pub fn record(&self) -> &'static Process {
        // SAFETY: the record lies in the control block, which stays mapped; set before the runtime is.
        unsafe { &*self.pager.machine.record.load(Acquire) }
    }
    /// Counts.
    pub fn stat(&self, stat: Stat, n: u64) {
        self.pager.machine.stat(stat, n);
    }
    /// Tells the user something once; the supervisor prints it.
    pub fn warn(&self, text: &[u8]) {
        self.stat(Stat::Warnings, 1);
        self.control.post(text);
    }
    /// Whether this is the process whose runtime this is, not a vforked child that borrows its memory.
    pub fn is_own_process(&self) -> bool {
        !foreign::any() || os::getpid() == self.pid.load(Relaxed)
    }
    /// Works in the runtime, with a context: in this thread, or, for a process that only shares the memory, in the background
    /// thread. What is captured and given back refers to nothing on the caller's stack, which may be gone before it is done. All
    /// signals must be blocked.
    pub fn with<R: 'static>(&'static self, f: impl FnOnce(&mut Cx) -> R + 'static) -> R {
        if self.is_own_process() { self.contexts.with(f) } else { foreign::ask(self, f) }
    }
    /// Whether a descriptor is the runtime's.
    pub fn is_ours(&self, fd: i32) -> bool {
        let machine = &self.pager.machine;
        let source = [machine.uffd.load(Relaxed), machine.mem_fd.load(Relaxed)];
        // The control block's two come first.
        (self.fds.0..self.fds.0 + 2).contains(&fd)
            || source.contains(&fd)
            || self.pager.store.descriptors().any(|ours| ours == fd)
    }
    /// The fault source.
    pub fn source(&self) -> Source {
        Source::of(self.pager.machine.source.load(Relaxed))
    }

    /// The `brk` heap.
    pub fn heap(&self) -> Guard<'_, Heap> {
        self.heap.lock(os::wait_a_little)
    }
    /// Pages that the program locked.
    pub fn locked_pages(&self) -> u64 {
        self.locked.load(Relaxed).max(0) as u64
    }
    /// Pages that the program locked all at once, so that they are all there.
    pub fn present_locked_pages(&self) -> u64 {
        (self.locked.load(Relaxed) - self.on_fault.load(Relaxed)).max(0) as u64
    }
    /// Adds to the counts of locked pages.
    pub fn add_locked(&self, pages: i64, on_fault: bool) {
        self.locked.fetch_add(pages, Relaxed);
        if on_fault {
            self.on_fault.fetch_add(pages, Relaxed);
        }
    }
    /// Whether mappings made from now on are locked (`MCL_FUTURE`).
    pub fn lock_future(&self) -> bool {
        self.lock_future.load(Relaxed)
    }
    /// Whether that is to be as their pages are touched (`MCL_ONFAULT`).
    pub fn future_on_fault(&self) -> bool {
        self.future_on_fault.load(Relaxed)
    }
    /// Sets [`Live::lock_future`] and [`Live::future_on_fault`].
    pub fn set_lock_future(&self, on: bool, on_fault: bool) {
        self.future_on_fault.store(on_fault, Relaxed);
        self.lock_future.store(on, Relaxed);
    }
    /// `RLIMIT_MEMLOCK`, in bytes.
    pub fn lock_limit_bytes(&self) -> u64 {
        let mut limit = [u64::MAX; 2];
        // SAFETY: `limit` has the layout of `struct rlimit64`; 8 is RLIMIT_MEMLOCK.
        unsafe { outswap_sys::syscall4(nr::PRLIMIT64, 0, 8, 0, limit.as_mut_ptr() as usize) };
        limit[0]
    }
    /// Whether the kernel's own rules would let the program lock `count` more pages.
    pub fn may_lock(&self, count: u32) -> bool {
        let limit = self.lock_limit_bytes();
        if limit == u64::MAX || has_capability(CAP_IPC_LOCK) {
            return true;
        }
        limit > 0 && (self.locked_pages() + count as u64) * PAGE_BYTES as u64 <= limit
    }

    /// Remembers a range that forked children find empty, or `gone`.
    pub fn add_wipe(&self, first: PageNo, count: u32, gone: bool) -> bool {
        let mut wipes = self.wipes.lock(os::wait_a_little);
        match wipes.iter_mut().find(|w| w.count == 0) {
            Some(free) => {
                *free = Wipe { first: first.0, count, gone };
                true
            }
            None => false,
        }
    }
    /// Pages of the ranges that children find empty.
    pub fn wiped_pages(&self) -> u64 {
        self.wipes.lock(os::wait_a_little).iter().filter(|w| !w.gone).map(|w| w.count as u64).sum()
    }
    /// The first part of a range that children find empty, or do not have (true).
    pub fn next_wipe(&self, first: u32, end: u32) -> Option<(PageNo, u32, bool)> {
        let wipes = self.wipes.lock(os::wait_a_little);
        let in_range = |w: &&Wipe| w.count > 0 && w.first < end && w.first + w.count > first;
        let wipe = wipes.iter().filter(in_range).min_by_key(|w| w.first)?;
        let (from, to) = (wipe.first.max(first), (wipe.first + wipe.count).min(end));
        Some((PageNo(from), to - from, wipe.gone))
    }
    /// Forgets a range: it is unmapped, or children are to get it after all. What overlaps it is cut.
    pub fn forget_wipe(&self, first: PageNo, count: u32) {
        let (start, end) = (first.0, first.0 + count);
        let mut wipes = self.wipes.lock(os::wait_a_little);
        for i in 0..WIPES {
            let Wipe { first, count, gone } = wipes[i];
            let last = first + count;
            if count == 0 || first >= end || last <= start {
                continue;
            }
            wipes[i].count = start.saturating_sub(first);
            if last > end {
                let rest = Wipe { first: end, count: last - end, gone };
                // Cutting a hole makes two of one; with all places taken, a child gets the rest after all.
                let place = if wipes[i].count == 0 { Some(i) } else { wipes.iter().position(|w| w.count == 0) };
                if let Some(place) = place {
                    wipes[place] = rest;
                }
            }
        }
    }
    /// In a forked child: empties or unmaps what it must not have.
    pub fn wipe(&self) {
        let wipes = *self.wipes.lock(os::wait_a_little);
        for Wipe { first, count, gone } in wipes.into_iter().filter(|w| w.count > 0) {
            if gone {
                self.pager.unmap(PageNo(first), count);
                self.forget_wipe(PageNo(first), count);
            } else {
                self.pager.discard(PageNo(first), count);
            }
        }
    }

    /// Makes a range that something else was mapped over part of the managed range again.
    pub fn restore(&self, first: PageNo, count: u32) {
        let len = count as usize * PAGE_BYTES;
        let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE | os::MAP_FIXED;
        // SAFETY: the range is managed address space whose mapping the program gave up.
        let at = unsafe { gate::call(nr::MMAP, address(first), len, os::PROT_NONE, flags, usize::MAX, 0) };
        assert!(at == address(first) as isize, "managed address space can be mapped again");
        self.register(address(first), len).expect("managed address space can be registered again");
    }

    /// Registers a range of managed or staging memory with the fault source.
    pub fn register(&self, addr: usize, len: usize) -> Result<()> {
        // SAFETY: an advice that drops nothing. Huge pages would make one touch cost 512 pages.
        let _ = unsafe { gate::call3(nr::MADVISE, addr, len, os::MADV_NOHUGEPAGE) };
        match self.source() {
            Source::Mprotect => Ok(()),
            Source::Move | Source::Copy => self.pager.machine.uffd().register(addr, len, true),
        }
    }

    /// Registers all managed memory but what the kernel manages there, and the batches. For a new userfaultfd.
    pub fn register_all(&self) -> Result<()> {
        let machine = &self.pager.machine;
        let all = (machine.arena_bytes.load(Relaxed) / PAGE_BYTES) as u32;
        let mut page = 0;
        while page < all {
            let mut end = all;
            let mut next = page;
            // Up to the next foreign mapping.
            while let Some(vma) = self.pager.next_in(next, all) {
                if vma.foreign {
                    end = vma.first.0;
                    break;
                }
                next = vma.end();
            }
            if end > page {
                self.register(address(PageNo(page)), (end - page) as usize * PAGE_BYTES)?;
            }
            page = if end < all { self.pager.next_in(end, all).map_or(all, |v| v.end()) } else { all };
        }
        if self.source() != Source::Mprotect {
            machine.uffd().register(machine.stage.load(Relaxed), self.stage_bytes, true)?;
        }
        Ok(())
    }
}

/// Locking without limit.
const CAP_IPC_LOCK: u32 = 14;

/// Whether this process has a capability, one of the first 32.
pub fn has_capability(number: u32) -> bool {
    #[repr(C)]
    struct Header(u32, i32);
    let header = Header(0x2008_0522, 0);
    let mut data = [0u32; 6];
    // SAFETY: version 3 of capget: a header and two records of three words.
    let ok = unsafe { outswap_sys::syscall2(nr::CAPGET, &raw const header as usize, data.as_mut_ptr() as usize) } == 0;
    ok && data[0] & 1 << number != 0
}

/// Opens a userfaultfd for a fault source, at a descriptor of at least `min_fd`.
pub fn open_uffd(source: Source, min_fd: i32) -> Result<Uffd> {
    let features = uffd::FEATURE_SIGBUS
        | uffd::FEATURE_PAGEFAULT_FLAG_WP
        | if source == Source::Move { uffd::FEATURE_MOVE } else { 0 };
    let low = Uffd::open(features)?;
    Ok(Uffd(raise(low.0, min_fd)))
}

/// Descriptor numbers that this process may have (`RLIMIT_NOFILE`).
pub fn fd_limit() -> usize {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { outswap_sys::syscall5(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr() as usize, OWN_CALL) };
    limit[0].min(i32::MAX as u64) as usize
}

/// Moves a descriptor out of the program's way: to `min_fd` or above, or as high as a lowered limit allows.
pub fn raise(low: i32, min_fd: i32) -> i32 {
    const BELOW_LIMIT: usize = 16;
    let soft = fd_limit();
    for at in [min_fd as usize, soft.saturating_sub(BELOW_LIMIT), soft / 2] {
        if at > low as usize
            && let Ok(high) = os::fcntl(low, os::F_DUPFD_CLOEXEC, at)
        {
            let _ = os::close(low);
            return high as i32;
        }
    }
    low
}

/// Pages of a staging area of so many bytes.
pub const fn batches(stage_bytes: usize) -> usize {
    stage_bytes / (BLOCK_PAGES * PAGE_BYTES)
}
