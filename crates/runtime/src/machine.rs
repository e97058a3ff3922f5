//! The live machine: managed memory and batches of this process.
//!
//! What differs between the fault sources is in [`crate::source`]; this file holds what they share.
use crate::layout::ARENA;
use crate::source::Source;
use crate::{gate, live};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_control::{Process, Stat};
use outswap_core::machine::{BatchNo, Event, Machine, Prot, PutError};
use outswap_core::units::{BLOCK_PAGES, FrameNo, PAGE_BYTES, PageNo};
use outswap_sys::uffd::Uffd;
use outswap_sys::{nr, os};

/// Managed memory of this process. Everything that a fork changes is an atomic.
pub struct LiveMachine {
    /// Bytes of the managed range.
    pub arena_bytes: AtomicUsize,
    /// Start of the batches.
    pub stage: AtomicUsize,
    /// The fault source, as in [`outswap_control::source`].
    pub source: AtomicU32,
    /// userfaultfd, where the source uses one.
    pub uffd: AtomicI32,
    /// `/proc/self/mem`, where the source uses it.
    pub mem_fd: AtomicI32,
    /// Counters of this process.
    pub record: AtomicPtr<Process>,
    /// Pages installed since the budget was last looked at.
    pub installed: AtomicU64,
}

/// Address of a page.
pub fn address(page: PageNo) -> usize {
    ARENA + page.0 as usize * PAGE_BYTES
}

/// The page around an address of the managed range.
pub fn page_of(addr: usize) -> PageNo {
    PageNo(((addr - ARENA) / PAGE_BYTES) as u32)
}

impl LiveMachine {
    /// Before set-up.
    pub const fn unset() -> LiveMachine {
        LiveMachine {
            arena_bytes: AtomicUsize::new(0),
            stage: AtomicUsize::new(0),
            source: AtomicU32::new(0),
            uffd: AtomicI32::new(-1),
            mem_fd: AtomicI32::new(-1),
            record: AtomicPtr::new(core::ptr::null_mut()),
            installed: AtomicU64::new(0),
        }
    }

    /// The userfaultfd.
    pub fn uffd(&self) -> Uffd {
        Uffd(self.uffd.load(Relaxed))
    }
    /// Address of a frame.
    pub fn frame_address(&self, frame: FrameNo) -> usize {
        self.stage.load(Relaxed) + frame.0 as usize * PAGE_BYTES
    }
    /// Address of a batch's frame.
    pub fn batch_address(&self, batch: BatchNo, offset: usize) -> usize {
        self.frame_address(FrameNo(batch.0 * BLOCK_PAGES as u32 + offset as u32))
    }
    /// Adds to a counter of this process.
    pub fn stat(&self, stat: Stat, n: u64) {
        let record = self.record.load(Relaxed);
        if !record.is_null() {
            // SAFETY: a record lies in the control block, which stays mapped.
            unsafe { &*record }.counters.add(stat, n);
        }
    }
    fn source(&self) -> Source {
        Source::of(self.source.load(Relaxed))
    }
    fn installed(&self, pages: usize) {
        let before = self.installed.fetch_add(pages as u64, Relaxed);
        if before / 64 != (before + pages as u64) / 64 {
            live::budget_tick();
        }
    }
}

/// Drops the content of managed pages. False where the kernel refuses, which it does for locked memory.
#[must_use]
pub fn drop_content(first: PageNo, count: usize) -> bool {
    // SAFETY: the caller owns the pages, whose content is to go; Rust keeps no reference into managed memory.
    unsafe { gate::call3(nr::MADVISE, address(first), count * PAGE_BYTES, os::MADV_DONTNEED) }.is_ok()
}

impl Machine for LiveMachine {
    fn pause(&self, spins: u32) {
        os::wait_a_little(spins);
    }

    fn take(&self, first: PageNo, count: usize, present: u64, batch: BatchNo, offset: usize) -> u64 {
        self.source().take(self, first, count, present, batch, offset)
    }

    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8] {
        // SAFETY: the caller says that the frames hold pages and are not released meanwhile; staging memory is mapped.
        unsafe { core::slice::from_raw_parts(self.frame_address(frame) as *const u8, pages * PAGE_BYTES) }
    }

    fn release(&self, batch: BatchNo) -> bool {
        let at = self.batch_address(batch, 0);
        // SAFETY: the batch is the caller's, and no frame of it is needed any more.
        let freed = unsafe { os::madvise(at, BLOCK_PAGES * PAGE_BYTES, os::MADV_DONTNEED) }.is_ok();
        live::budget_tick();
        freed
    }

    fn put(&self, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
        let (done, error) = self.source().put(self, first, src);
        self.installed(done);
        (done, error)
    }

    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        let (done, error) = self.source().put_zero(self, first, count);
        self.installed(done);
        (done, error)
    }

    fn drop_pages(&self, first: PageNo, count: usize) -> bool {
        self.source().drop_pages(first, count)
    }

    fn transfer(&self, from: PageNo, to: PageNo) -> bool {
        self.source().transfer(self, from, to)
    }

    fn protect(&self, first: PageNo, count: usize, prot: Prot) -> bool {
        self.source().protect(first, count, prot)
    }

    fn grain(&self) -> usize {
        self.source().grain()
    }

    fn count(&self, event: Event, n: u64) {
        if event == Event::OverLimit {
            return live::over_budget();
        }
        self.stat(
            match event {
                Event::FaultFirstTouch => Stat::FaultFirstTouch,
                Event::FaultHit => Stat::FaultHit,
                Event::FaultMiss => Stat::FaultMiss,
                Event::FaultBypass => Stat::FaultBypass,
                Event::FaultWaited => Stat::FaultWaited,
                Event::PagesFirstTouch => Stat::PagesFirstTouch,
                Event::PagesClean => Stat::PagesClean,
                Event::PagesZero => Stat::PagesZero,
                Event::PagesTaken => Stat::PagesTaken,
                Event::FoliosOut => Stat::FoliosOut,
                Event::FolioFallbacks => Stat::FolioFallbacks,
                Event::FoliosIn => Stat::FoliosIn,
                Event::StoreFull => Stat::StoreFull,
                Event::StoreErrors => Stat::StoreErrors,
                Event::Corruptions => Stat::Corruptions,
                Event::DirectReclaims => Stat::DirectReclaims,
                Event::OverLimit => Stat::OverBudget,
            },
            n,
        );
    }
}
