//! The live machine: managed memory and batches of this process.
//!
//! What differs between the fault sources is in [`outswap_source`]; this file holds what they share.
use crate::arena::{address, page_of};
use crate::clock;
use crate::dumps::DUMPS;
use crate::huge::HugePages;
use crate::layout::bss;
use crate::limits::PROGRESS_PAGES;
use crate::procfs;
use crate::store::OurStore;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_control::{Access, Control, Process, Recorded, Stat, Wish};
use outswap_core::machine::{BatchNo, Event, Machine, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::pager::Pager;
use outswap_core::units::{BLOCK_PAGES, FrameNo, MAX_FOLIO_PAGES, PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_source::{Host, Source};
use outswap_sys::{Errno, os};

/// How long another process is waited for that reads this one's memory, or writes to it, and has not asked.
const VISIT_NS: u64 = 3_000_000_000;
/// Bytes of a page that are looked at to see whether anything is there.
const LOOKED_AT_BYTES: usize = 256;
/// Pages that are discarded at once of which others are told.
const DISCARDED_MUCH_PAGES: u32 = 256;

/// The pager over this process's memory.
pub type LivePager = Pager<LiveMachine, &'static OurStore>;

/// What the machine tells of itself while it works. Functions, and not a trait's, so that the machine's type names nobody.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Pages have come in or gone, some tens since the last time.
    pub progress: fn(),
    /// The limit of resident pages could not be held.
    pub over_limit: fn(),
    /// The same because the store is full.
    pub over_limit_full: fn(),
    /// Much of the program's memory is about to lose its content.
    pub discarding: fn(),
    /// Less is used than this process has said.
    pub uses_less: fn(),
    /// Pages were left to the kernel.
    pub has_left: fn(),
    /// Whether pages may be left to the kernel, as far as the other processes go.
    pub may_leave: fn() -> bool,
    /// Something is to be read ahead.
    pub ahead: fn(),
    /// See [`Machine::stream_is_asked`].
    pub stream: fn() -> bool,
    /// See [`Host::is_alone`].
    pub is_alone: fn() -> bool,
    /// Reads the program's memory without faulting.
    pub peek: fn(usize, &mut [u8]) -> bool,
}

/// Tells the kernel what frames are for, all alike, so that they are one mapping.
pub fn advise_frames(at: usize, len: usize) {
    // What is on its way out is as little for core dumps as what is stored: the program may not want its pages there.
    for advice in [os::MADV_NOHUGEPAGE, os::MADV_DONTDUMP] {
        // SAFETY: an advice that drops nothing.
        let _ = unsafe { os::madvise(at, len, advice) };
    }
}

/// Managed memory of this process. Everything that a fork changes is an atomic.
pub struct LiveMachine {
    /// Bytes of the managed range, without the program's `.bss`.
    pub arena_bytes: AtomicUsize,
    /// Start of the batches.
    pub stage: AtomicUsize,
    /// The fault source, as in [`outswap_control::source`].
    pub source: AtomicU32,
    /// The fault source's descriptor.
    pub source_fd: AtomicI32,
    /// Counters of this process.
    pub record: AtomicPtr<Process>,
    /// The number of this process, where its accesses are recorded; else 0.
    pub recorded_pid: AtomicI32,
    /// Whether zero pages may be mapped, and whether any were.
    pub zeros: AtomicBool,
    pub has_mapped_zeros: AtomicBool,
    /// Whether pages may be left to the kernel.
    pub untraps: AtomicBool,
    /// Huge pages.
    pub huge: HugePages,
    /// Pages installed so far.
    installed: AtomicU64,
    pager: AtomicPtr<LivePager>,
    control: &'static Control,
    hooks: Hooks,
}

impl LiveMachine {
    /// Has a range in core dumps, and what lies around it. See [`crate::dumps`].
    pub fn show_in_dumps(&self, first: PageNo, count: usize) {
        let pages = (self.arena_bytes.load(Relaxed) / PAGE_BYTES) as u32;
        DUMPS.show(first, count, pages, |first, count| {
            // SAFETY: an advice that drops nothing.
            unsafe { os::madvise(address(first), count as usize * PAGE_BYTES, os::MADV_DODUMP) }
        });
    }

    /// Numbers that pages can have.
    pub fn pages(&self) -> u32 {
        match bss() {
            (start, end) if start < end => page_of(end).0,
            _ => (self.arena_bytes.load(Relaxed) / PAGE_BYTES) as u32,
        }
    }

    /// Before set-up.
    pub const fn new(control: &'static Control, hooks: Hooks) -> LiveMachine {
        LiveMachine {
            arena_bytes: AtomicUsize::new(0),
            stage: AtomicUsize::new(0),
            source: AtomicU32::new(0),
            source_fd: AtomicI32::new(-1),
            record: AtomicPtr::new(core::ptr::null_mut()),
            recorded_pid: AtomicI32::new(0),
            zeros: AtomicBool::new(false),
            has_mapped_zeros: AtomicBool::new(false),
            untraps: AtomicBool::new(false),
            huge: HugePages::new(),
            installed: AtomicU64::new(0),
            pager: AtomicPtr::new(core::ptr::null_mut()),
            control,
            hooks,
        }
    }

    /// Says where the pager is that this machine is part of.
    pub fn belongs_to(&self, pager: &'static LivePager) {
        self.pager.store((&raw const *pager).cast_mut(), Release);
    }

    fn try_pager(&self) -> Option<&'static LivePager> {
        // SAFETY: null, or what `belongs_to` was given, which lives for ever.
        unsafe { self.pager.load(Acquire).as_ref() }
    }

    fn pager(&self) -> &'static LivePager {
        self.try_pager().expect("the pager is in place before there is managed memory")
    }

    /// Adds to a counter of this process.
    pub fn stat(&self, stat: Stat, n: u64) {
        let record = self.record.load(Relaxed);
        if !record.is_null() {
            // SAFETY: a record lies in the control block, which stays mapped.
            unsafe { &*record }.counters.add(stat, n);
        }
    }
    /// Other processes may want to read this one's memory, or to write to it: from now on they have to ask first, and whoever has not is
    /// waited for.
    fn announce_taking(&self) {
        // SAFETY: as in `stat`.
        let Some(wish) = unsafe { self.record.load(Relaxed).as_ref() }.map(|record| &record.wish) else { return };
        if wish.takes.load(Acquire) == 2 {
            return;
        }
        wish.takes.fetch_max(1, SeqCst);
        let (until_ns, mut spins) = (os::monotonic_ns() + VISIT_NS, 0);
        while Wish::kind(wish.state.load(SeqCst)) == Wish::VISIT
            && !procfs::is_gone_from(self.control, wish.owner.load(Acquire) as i32)
            && os::monotonic_ns() < until_ns
        {
            os::wait_a_little(spins);
            spins += 1;
        }
        wish.takes.store(2, Release);
    }
    /// The fault source.
    ///
    /// # Panics
    /// Before set-up has chosen one; nothing asks before.
    pub fn source(&self) -> Source {
        Source::of(self.source.load(Relaxed)).expect("a fault source was chosen")
    }
    /// Records that this process begins, where accesses are recorded; as a copy of `parent`, or with nothing (0).
    pub fn record_begin(&self, pid: i32, parent: i32) {
        if self.control.config.record == 0 {
            return;
        }
        self.recorded_pid.store(pid, Relaxed);
        self.note(if parent == 0 { Recorded::Begins } else { Recorded::Forked }, PageNo(parent as u32), 0);
    }

    /// Records a touch of a page that is not resident; `fresh` where it has no content.
    pub fn record_touch(&self, page: PageNo, write: bool, fresh: bool) {
        self.note(
            match (write, fresh) {
                (false, false) => Recorded::Read,
                (true, false) => Recorded::Write,
                (false, true) => Recorded::ReadFirst,
                (true, true) => Recorded::WriteFirst,
            },
            page,
            1,
        );
    }

    /// Records something, where accesses are recorded.
    pub fn note(&self, what: Recorded, first: PageNo, pages: u32) {
        let pid = self.recorded_pid.load(Relaxed);
        if pid != 0 {
            let has_reader = || self.control.exists(self.control.config.supervisor_pid);
            self.control.accesses.put(Access { pid, what, first: first.0, pages }, os::wait_a_little, has_reader);
        }
    }

    fn installed(&self, pages: usize) {
        let before = self.installed.fetch_add(pages as u64, Relaxed);
        if before / PROGRESS_PAGES != (before + pages as u64) / PROGRESS_PAGES {
            (self.hooks.progress)();
        }
    }
}

impl Host for LiveMachine {
    fn source_fd(&self) -> i32 {
        self.source_fd.load(Relaxed)
    }

    fn address(&self, page: PageNo) -> usize {
        address(page)
    }

    fn batch_address(&self, batch: BatchNo, offset: usize) -> usize {
        self.stage.load(Relaxed) + (batch.0 as usize * BLOCK_PAGES + offset) * PAGE_BYTES
    }

    fn wait(&self, tries: u32) {
        os::wait_a_little(tries);
    }

    fn stat(&self, stat: Stat, n: u64) {
        self.stat(stat, n);
    }

    fn post(&self, text: &[u8]) {
        self.control.post(text);
    }

    fn find(&self, page: PageNo) -> Option<Vma> {
        self.pager().find(page)
    }

    fn next_in(&self, page: u32, end: u32) -> Option<Vma> {
        self.pager().next_in(page, end)
    }

    fn limit_pages(&self) -> Option<u64> {
        self.try_pager().map(LivePager::limit_pages)
    }

    fn pages(&self) -> u32 {
        self.pages()
    }

    fn is_alone(&self) -> bool {
        (self.hooks.is_alone)()
    }

    fn split_huge(&self, first: PageNo) -> bool {
        self.huge.split(first)
    }

    fn new_frames(&self, batch: BatchNo) -> bool {
        let (at, len) = (self.batch_address(batch, 0), BLOCK_PAGES * PAGE_BYTES);
        let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE | os::MAP_FIXED;
        // SAFETY: the batch is the caller's, and no frame of it is needed any more.
        let made = unsafe { os::mmap(at, len, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.is_ok();
        if made {
            advise_frames(at, len);
        }
        made
    }

    fn settle_range(&self, first: PageNo, count: u32) {
        self.pager().settle_range(first, count);
    }

    fn with_resident(&self, first: PageNo, count: u32, f: impl FnMut(PageNo, usize) -> bool) -> bool {
        self.pager().with_resident(first, count, f)
    }
}

/// Sees to it that there is a page, which is the caller's.
///
/// # Panics
/// Where there is no memory for its page table: a touch of it would be told for ever.
fn put_zero_if_missing(machine: &LiveMachine, page: PageNo) {
    const TRIES: u32 = 1000;
    let is_there = (0..TRIES).any(|tries| {
        let progress = machine.uffd().zero(address(page), PAGE_BYTES);
        match progress.error {
            None | Some(Errno::EEXIST) => true,
            Some(_) => {
                os::wait_a_little(tries);
                false
            }
        }
    });
    assert!(is_there, "a page of zeros can be mapped where there is none");
}

/// Puts zeros where pages are missing that count as left to the kernel, though their touches are told: a call that uses them would fail. What
/// the kernel has filled, or will, stays as it is.
fn fill(machine: &LiveMachine, first: PageNo, count: usize) {
    for i in 0..count {
        let _ = machine.source().put_zero(machine, first.plus(i), 1);
    }
}

/// Drops those of some pages of a block, all of them the caller's, that are the kernel's page of zeros: the program has only read them. Returns
/// those that are gone. They would count, though they are no memory. And a mapping that has nothing else has no page table that the kernel
/// copies for a child, which would miss for ever what its parent has.
fn drop_zeros(machine: &LiveMachine, first: PageNo, pages: Mask) -> Mask {
    let mut gone = Mask::EMPTY;
    for (start, len) in pages.runs() {
        let at = address(first.plus(start));
        // A write from here on faults, and waits; one before has made it another page.
        let is_protected = machine.forbid_writes(first.plus(start), len);
        let is_zeros = |i: &usize| is_protected && is_zeros(machine, first.plus(*i));
        // Before Linux 6.7 nobody tells, but for the content.
        let told = if is_protected { procfs::zero_pages(at, len) } else { None };
        let zeros = told.map_or_else(|| (start..start + len).filter(is_zeros).collect(), |zeros| zeros.at(start));
        for (i, n) in zeros.runs().filter(|&(i, n)| machine.drop_content(first.plus(i), n)) {
            gone |= Mask::range(i, n);
        }
        let kept = Mask::range(start, len) - gone;
        for (i, n) in kept.runs() {
            let _ = machine.allow_writes(first.plus(i), n);
        }
        for i in (if is_protected { zeros - gone } else { kept }).iter() {
            // To ask for one where one is tells the kernel that the mapping has pages.
            put_zero_if_missing(machine, first.plus(i));
            machine.has_mapped_zeros.store(true, Relaxed);
        }
    }
    gone
}

/// Whether a page, which is the caller's and write-protected, holds nothing but zeros.
fn is_zeros(machine: &LiveMachine, page: PageNo) -> bool {
    let mut part = [0u8; LOOKED_AT_BYTES];
    let mut parts = (0..PAGE_BYTES).step_by(LOOKED_AT_BYTES);
    parts.all(|at| (machine.hooks.peek)(address(page) + at, &mut part) && part == [0; LOOKED_AT_BYTES])
}

impl Machine for LiveMachine {
    fn pause(&self, spins: u32) {
        os::wait_a_little(spins);
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn take(&self, first: PageNo, count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        self.announce_taking();
        self.source().take(self, first, count, wanted, batch, offset)
    }

    fn shared(&self, first: PageNo, count: usize) -> Mask {
        procfs::shared_pages(address(first), count)
    }

    fn shared_frames(&self, batch: BatchNo) -> Mask {
        procfs::shared_pages(self.frame_address(batch.frame(0)), BLOCK_PAGES)
    }

    fn put_back(&self, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
        let back = self.source().put_back(self, first, batch, pages, held);
        self.installed(back.count());
        back
    }

    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8] {
        // SAFETY: the caller says that the frames hold pages and are not released meanwhile; staging memory is mapped.
        unsafe { core::slice::from_raw_parts(self.frame_address(frame) as *const u8, pages * PAGE_BYTES) }
    }

    fn fill(&self, frame: FrameNo, content: &[u8]) -> bool {
        self.source().fill(self, frame, content)
    }

    fn ahead_is_asked(&self) {
        (self.hooks.ahead)();
    }

    fn stream_is_asked(&self) -> bool {
        (self.hooks.stream)()
    }

    fn release(&self, batch: BatchNo) -> bool {
        let freed = self.source().release(self, batch);
        (self.hooks.progress)();
        freed
    }

    fn put(&self, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        let (done, error) = self.source().put(self, first, src, write_protected);
        self.installed(done);
        (done, error)
    }

    fn moves_back(&self) -> bool {
        self.source().moves_back()
    }

    fn write_protects(&self) -> bool {
        self.source().write_protects()
    }

    fn puts_protected(&self) -> bool {
        self.source().puts_protected()
    }

    fn forbid_writes(&self, first: PageNo, count: usize) -> bool {
        self.source().forbid_writes(self, first, count)
    }

    fn allow_writes(&self, first: PageNo, count: usize) -> bool {
        self.source().allow_writes(self, first, count)
    }

    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        let (done, error) = self.source().put_zero(self, first, count);
        self.installed(done);
        (done, error)
    }

    /// The kernel flushes the TLBs of other processors for each page that it makes of a zero page, so not where a program runs on several.
    fn maps_zero(&self) -> bool {
        self.zeros.load(Relaxed) && (self.hooks.is_alone)()
    }

    fn map_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        self.has_mapped_zeros.store(true, Relaxed);
        let (done, error) = self.source().map_zero(self, first, count);
        self.installed(done);
        (done, error)
    }

    fn untraps(&self) -> bool {
        self.untraps.load(Relaxed) && (self.hooks.may_leave)()
    }

    fn will_use(&self, pages: usize) {
        self.installed(pages);
    }

    fn uses_less(&self) {
        (self.hooks.uses_less)();
    }

    fn untrap(&self, first: PageNo, count: usize) -> bool {
        if self.source().untrap(self, first, count) {
            return true;
        }
        // Of several mappings of the kernel's, the first may be unregistered and filled: then all counts as left.
        let mut is_all_empty = true;
        for at in (0..count).step_by(BLOCK_PAGES) {
            let there = self.trap(first.plus(at), BLOCK_PAGES.min(count - at), Mask::EMPTY);
            is_all_empty &= there.is_some_and(|there| there.is_empty());
        }
        if !is_all_empty {
            fill(self, first, count);
        }
        !is_all_empty
    }

    fn trap(&self, first: PageNo, count: usize, left: Mask) -> Option<Mask> {
        let (source, at) = (self.source(), address(first));
        if source.register(self.source_fd(), at, count * PAGE_BYTES).is_err() {
            // Of several mappings of the kernel's, the first may be registered. Between what is left lie pages that must stay so.
            for (i, len) in left.runs() {
                if !source.untrap(self, first.plus(i), len) {
                    fill(self, first.plus(i), len);
                }
            }
            return None;
        }
        let Some((there, shared)) = procfs::pages_there(at, count) else {
            // Nobody tells: where there is no page, the kernel's page of zeros is.
            self.has_mapped_zeros.store(true, Relaxed);
            (0..count).for_each(|i| put_zero_if_missing(self, first.plus(i)));
            return Some(Mask::range(0, count));
        };
        Some(there - drop_zeros(self, first, shared & left))
    }

    fn put_huge(&self, first: PageNo) -> bool {
        let source = self.source();
        let put = |from| {
            // A touch of what is missing has made a page table there, with nothing in it, and to that the kernel moves single pages alone. Since
            // Linux 6.14 that goes with what is dropped of two MiB (Qi Zheng, "mm: pgtable: reclaim empty PTE page in
            // madvise(MADV_DONTNEED)").
            source.drop_pages(self, first, MAX_FOLIO_PAGES);
            source.put_huge(self, first, from)
        };
        source.moves_huge() && self.huge.put(first, put)
    }

    fn is_written(&self, page: PageNo) -> bool {
        let mut start = [0u8; LOOKED_AT_BYTES];
        self.source().moves_huge() && (self.hooks.peek)(address(page), &mut start) && start != [0; LOOKED_AT_BYTES]
    }

    fn drop_pages(&self, first: PageNo, count: usize) -> bool {
        self.source().drop_pages(self, first, count)
    }

    fn transfer(&self, from: PageNo, to: PageNo) -> bool {
        self.source().transfer(self, from, to)
    }

    fn protect(&self, first: PageNo, count: usize, prot: Prot) -> bool {
        if prot != Prot::NONE {
            self.show_in_dumps(first, count);
        }
        self.source().protect(self, first, count, prot)
    }

    fn grain(&self) -> usize {
        self.source().grain(self)
    }

    fn used_by_call(&self, page: PageNo, fresh: bool) {
        // Whether the call writes is not told.
        self.record_touch(page, false, fresh);
    }

    fn discarded(&self, first: PageNo, count: u32) {
        self.note(Recorded::Gone, first, count);
        if count >= DISCARDED_MUCH_PAGES {
            (self.hooks.discarding)();
        }
    }

    fn count(&self, event: Event, n: u64) {
        if event == Event::OverLimit {
            return (self.hooks.over_limit)();
        }
        match event {
            Event::HugeIn => self.installed(MAX_FOLIO_PAGES),
            Event::PagesUntrapped => (self.hooks.has_left)(),
            _ => {}
        }
        if event == Event::OverLimitFull {
            return (self.hooks.over_limit_full)();
        }
        self.stat(
            match event {
                Event::FaultFirstTouch => Stat::FaultFirstTouch,
                Event::FaultHit => Stat::FaultHit,
                Event::FaultMiss => Stat::FaultMiss,
                Event::FaultBypass => Stat::FaultBypass,
                Event::FaultWaited => Stat::FaultWaited,
                Event::FaultWaitNs => Stat::FaultWaitNs,
                Event::PagesFirstTouch => Stat::PagesFirstTouch,
                Event::PagesZeroMapped => Stat::PagesZeroMapped,
                Event::PagesUntrapped => Stat::PagesUntrapped,
                Event::HugeIn => Stat::HugeIn,
                Event::PagesClean => Stat::PagesClean,
                Event::PagesUnwritten => Stat::PagesUnwritten,
                Event::PagesReused => Stat::PagesReused,
                Event::PagesPutBack => Stat::PagesPutBack,
                Event::PagesReadAhead => Stat::PagesReadAhead,
                Event::PagesStreamedAhead => Stat::PagesStreamedAhead,
                Event::PagesAheadHit => Stat::PagesAheadHit,
                Event::PagesAheadDropped => Stat::PagesAheadDropped,
                Event::PagesZero => Stat::PagesZero,
                Event::PagesTaken => Stat::PagesTaken,
                Event::FoliosOut => Stat::FoliosOut,
                Event::FolioFallbacks => Stat::FolioFallbacks,
                Event::FolioBlocks => Stat::FolioBlocks,
                Event::FoliosIn => Stat::FoliosIn,
                Event::StoreFull => Stat::StoreFull,
                Event::StorePassedBy => Stat::StorePassedBy,
                Event::StoreErrors => Stat::StoreErrors,
                Event::Corruptions => Stat::Corruptions,
                Event::Looks => Stat::Looks,
                Event::LookNs => Stat::LookNs,
                Event::DirectReclaims => Stat::DirectReclaims,
                Event::OverLimit | Event::OverLimitFull => Stat::OverBudget,
            },
            n,
        );
    }
}
