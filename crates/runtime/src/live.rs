//! The process: its pager, and what else belongs to it. There is one, made at start.
use crate::arena::{self, address, page_of};
use crate::contexts::{Contexts, Cx};
use crate::dispositions::Dispositions;
use crate::layout::{ARENA, bss};
use crate::limits::GROWS;
use crate::longwrites::{LongWrites, Room};
use crate::machine::LivePager;
use crate::mlocks::Mlocks;
use crate::objects::Objects;
use crate::stacks::{self, Thread};
use crate::wipes::{Wipe, Wipes};
use crate::{budget, desk, gate, sharers};
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use outswap_control::{Control, Place, Process, Stat};
use outswap_core::lock::{Guard, SpinLock};
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_source::Source;
use outswap_sys::{Result, nr, os};

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
    pub pager: LivePager,
    /// The control block of the tree.
    pub control: &'static Control,
    /// Stacks and scratch memory.
    pub contexts: &'static Contexts,
    /// The process that this runtime serves; differs from `getpid()` in a vforked child.
    pub pid: AtomicI32,
    /// The program's own dispositions of signals.
    pub dispositions: Dispositions,
    /// What the budget knows.
    pub budget: budget::State,
    /// The pin that was taken last.
    pub last_pin: AtomicUsize,
    /// Room of long writes to files.
    pub long_writes: LongWrites,
    /// Bytes of staging memory.
    pub stage_bytes: usize,
    /// The control block's descriptors: the first of them.
    pub control_fd: i32,
    /// The range in which the runtime's descriptors are. Not all in it are the runtime's.
    pub fds: RangeInclusive<i32>,
    /// See [`Process::family`](outswap_control::Process::family).
    pub family: AtomicU32,
    /// Whether the memory may have other users than the calling thread: a thread was made, or a process that shares it.
    pub threaded: AtomicBool,
    /// What the program mlocked.
    pub mlocks: Mlocks,
    /// Shared memory that is managed.
    pub objects: Objects,
    /// What a forked child does not get.
    pub wipes: Wipes,
    /// Mappings that grow downwards.
    pub grows: Wipes<GROWS>,
    /// Whether calls are made without a trap where they can be ([`crate::direct`]).
    pub direct: AtomicBool,
    heap: SpinLock<Heap>,
}

static LIVE: AtomicPtr<Live> = AtomicPtr::new(core::ptr::null_mut());

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

/// Places the runtime.
pub fn set(live: &'static Live) {
    LIVE.store(live as *const Live as *mut Live, Release);
}

impl Live {
    /// Everything but the runtime and what was reserved for it.
    pub fn new(
        pager: LivePager,
        control: &'static Control,
        contexts: &'static Contexts,
        stage_bytes: usize,
        (control_fd, fds): (i32, RangeInclusive<i32>),
        objects: Objects,
        direct: bool,
    ) -> Live {
        Live {
            pager,
            control,
            contexts,
            pid: AtomicI32::new(os::getpid()),
            dispositions: Dispositions::default(),
            budget: budget::State::default(),
            last_pin: AtomicUsize::new(0),
            long_writes: LongWrites::default(),
            stage_bytes,
            control_fd,
            fds,
            family: AtomicU32::new(0),
            threaded: AtomicBool::new(false),
            mlocks: Mlocks::default(),
            objects,
            wipes: Wipes::default(),
            grows: Wipes::default(),
            direct: AtomicBool::new(direct),
            heap: SpinLock::new(Heap::default()),
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
        self.control.post(text);
    }
    /// Where this process has the control block of its run: what children find in their environment.
    pub fn place(&self) -> Place {
        let config = self.control.config;
        Place { fd: self.control_fd, supervisor_pid: config.supervisor_pid, supervisor_fd: config.supervisor_fd }
    }
    /// The fault source.
    pub fn source(&self) -> Source {
        self.pager.machine.source()
    }
    /// The `brk` heap.
    pub fn heap(&self) -> Guard<'_, Heap> {
        self.heap.lock(os::wait_a_little)
    }
    /// Bytes of a transfer that are resident at once.
    pub fn window_bytes(&self) -> usize {
        budget::window_bytes(self.pager.limit_pages())
    }
    /// Room to make a long write to a file one operation, if there is any.
    pub fn room_for_record(&self, bytes: usize) -> Option<Room<'_>> {
        let limit_pages = self.pager.limit_pages();
        let half_bytes = limit_pages as usize / 2 * PAGE_BYTES;
        if bytes <= budget::record_bytes(limit_pages) { self.long_writes.take(bytes, half_bytes) } else { None }
    }
    /// The same of one that may wait, by the number of its pin: pins are taken from the first on, so it says how many others are in progress.
    /// Those of processes that have executed a program are in nobody's way until they are found: there are no more than threads.
    pub fn waiting_bytes(&self, pin: usize) -> usize {
        budget::waiting_bytes(self.pager.limit_pages(), pin.min(stacks::used()))
    }

    /// Forked, or child of a fork: pages may be shared with another process.
    pub fn may_share(&self) -> bool {
        self.family.load(Relaxed) != 0
    }

    /// Before a fork: the child will be of this process's family, of which it is the first where it has none yet.
    /// Says whether it is.
    pub fn join_family(&self) -> bool {
        let number = self.control.number(self.pid.load(Relaxed)) as u32;
        self.family.compare_exchange(0, number, Relaxed, Relaxed).is_ok()
    }

    /// That fork failed, and it was the first.
    pub fn leave_family(&self) {
        self.family.store(0, Relaxed);
    }

    /// Whether this is the process whose runtime this is, not a vforked child that borrows its memory.
    pub fn is_own_process(&self) -> bool {
        !sharers::any() || os::getpid() == self.pid.load(Relaxed)
    }
    /// What is kept for the calling thread where it is of a process that shares the memory.
    pub fn sharer_thread(&self) -> Option<&'static Thread> {
        if self.is_own_process() { None } else { sharers::thread() }
    }
    /// Whether a thread lives that is of this process or shares its memory.
    pub fn is_alive(&self, tid: i32) -> bool {
        sharers::is_alive(self.pid.load(Relaxed), tid)
    }
    /// Works in the runtime, with a context: in this thread, or, for a process that only shares the memory, in the background
    /// thread. What is captured and given back refers to nothing on the caller's stack, which may be gone before it is done. All
    /// signals must be blocked.
    pub fn with<R: 'static>(&'static self, f: impl FnOnce(&mut Cx) -> R + 'static) -> R {
        if self.is_own_process() { self.contexts.with(f) } else { desk::ask(self.pid.load(Relaxed), self.control, f) }
    }

    /// Of writable managed pages, those that the kernel counts as data.
    pub fn counted_pages(&self) -> u64 {
        self.source().counted_pages(&self.pager.machine, self.pager.writable_pages(), self.pager.resident_pages())
    }
    /// The first address after this process's managed range.
    pub fn arena_end(&self) -> usize {
        ARENA + self.pager.machine.arena_bytes.load(Relaxed)
    }
    /// The stretch of managed memory that a range touches first: the managed part of the program's `.bss`, or the managed range, also
    /// where it touches neither. A range of a nonsensical length may touch both.
    pub fn stretch(&self, addr: usize, len: usize) -> (usize, usize) {
        let (bss, arena) = (bss(), (ARENA, self.arena_end()));
        let touches = |(start, end): (usize, usize)| addr < end && addr.saturating_add(len) > start;
        if touches(bss) && (bss.0 < arena.0 || !touches(arena)) { bss } else { arena }
    }
    /// The part of a range that is managed memory.
    pub fn managed_part(&self, addr: usize, len: usize) -> Option<(usize, usize)> {
        let (start, end) = self.stretch(addr, len);
        let (start, end) = (addr.max(start), addr.saturating_add(len).min(end));
        (start < end).then_some((start, end))
    }
    /// The same in pages.
    pub fn managed_pages(&self, addr: usize, len: usize) -> Option<(PageNo, u32)> {
        let (start, end) = self.managed_part(addr, len)?;
        Some((page_of(start), page_of(end - 1).0 - page_of(start).0 + 1))
    }
    /// Whether the whole of a range is in this process's managed memory.
    pub fn is_managed(&self, addr: usize, len: usize) -> bool {
        let within = |(start, end): (usize, usize)| start <= addr && addr <= end && len <= end - addr;
        within((ARENA, self.arena_end())) || bss().1 > 0 && within(bss())
    }

    /// In a forked child: empties or unmaps what it must not have.
    pub fn wipe(&self) {
        while let Some(Wipe { first, count, .. }) = self.wipes.any_gone() {
            if !self.pager.unmap(PageNo(first), count) {
                self.pager.discard(PageNo(first), count);
            }
            self.wipes.forget(PageNo(first), count);
            self.grows.forget(PageNo(first), count);
        }
        (0..).map_while(|n| self.wipes.nth(n)).for_each(|wipe| self.pager.discard(PageNo(wipe.first), wipe.count));
    }

    /// Makes a range that something else was mapped over part of the managed range again.
    ///
    /// # Panics
    /// Where the kernel has no room for another mapping.
    pub fn restore(&self, first: PageNo, count: u32) {
        assert!(self.try_restore(first, count), "managed address space can be mapped again");
    }

    /// The same. False where the kernel has no room for another mapping; then nothing has changed.
    pub fn try_restore(&self, first: PageNo, count: u32) -> bool {
        if !arena::remap(first, count) {
            return false;
        }
        // A new mapping is in dumps: one of the kernel's with what lies around it, only if that is, too.
        self.pager.machine.show_in_dumps(first, count as usize);
        self.inherit_range(address(first), count as usize * PAGE_BYTES, false);
        self.register(address(first), count as usize * PAGE_BYTES)
            .expect("managed address space can be registered again");
        self.renew(first, count);
        true
    }

    /// Tells the fault source of a range that was made managed again and is now free in the map.
    pub fn renew(&self, first: PageNo, count: u32) {
        self.source().renew(&self.pager.machine, first, count).expect("managed address space can be made ready again");
    }

    /// Registers a range of managed or staging memory with the fault source.
    pub fn register(&self, addr: usize, len: usize) -> Result<()> {
        // SAFETY: an advice that drops nothing. Huge pages would make one touch cost 512 pages.
        let _ = unsafe { gate::call3(nr::MADVISE, addr, len, os::MADV_NOHUGEPAGE) };
        self.source().register(self.pager.machine.source_fd.load(Relaxed), addr, len)
    }

    /// Registers all managed memory but what the kernel manages there, and the batches. For a descriptor of
    /// the fault source that is new.
    pub fn register_all(&self) -> Result<()> {
        let machine = &self.pager.machine;
        self.each_ours(|addr, len| self.register(addr, len))?;
        self.source().register(machine.source_fd.load(Relaxed), machine.stage.load(Relaxed), self.stage_bytes)
    }

    /// Says whether forked children get managed memory: only those that the runtime makes, where others would find zeros in it
    /// ([`crate::unseen`]). What the kernel manages there is inherited as the program says.
    ///
    /// It splits no mapping, so it does not fail. If it does for a part all the same, a child dies when it touches that.
    pub fn inherit(&self, yes: bool) {
        let _ = self.each_ours(|addr, len| {
            self.inherit_range(addr, len, yes);
            Ok(())
        });
    }

    fn inherit_range(&self, addr: usize, len: usize, yes: bool) {
        if self.source().loses_pages() {
            let advice = if yes { os::MADV_DOFORK } else { os::MADV_DONTFORK };
            // SAFETY: an advice that drops nothing.
            let _ = unsafe { gate::call3(nr::MADVISE, addr, len, advice) };
        }
    }

    /// Calls `f` for all managed memory but what the kernel manages there.
    fn each_ours(&self, mut f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let arena_pages = (self.pager.machine.arena_bytes.load(Relaxed) / PAGE_BYTES) as u32;
        self.each_ours_of(0, arena_pages, &mut f)?;
        let (start, end) = bss();
        if start < end { self.each_ours_of(page_of(start).0, page_of(end).0, &mut f) } else { Ok(()) }
    }

    /// The same of a stretch of it: all pages from a number on, up to another one.
    fn each_ours_of(&self, first: u32, all: u32, f: &mut impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let mut page = first;
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
                f(address(PageNo(page)), (end - page) as usize * PAGE_BYTES)?;
            }
            page = if end < all { self.pager.next_in(end, all).map_or(all, |v| v.end()) } else { all };
        }
        Ok(())
    }
}
