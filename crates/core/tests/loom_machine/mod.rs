//! The machine of the loom models.

use crate::loom_bed::Memory;
use loom::thread;
use outswap_core::machine::{BatchNo, Event, Machine, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::sync::{AtomicU64, Ordering::SeqCst};
use outswap_core::units::{BLOCK_PAGES, FrameNo, PAGE_BYTES, PageNo};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

pub const BATCHES: usize = 2;
/// In a page of the machine: a write faults.
const PROTECTED: u64 = 1 << 32;
/// The same: while it is missing, a touch of it fills it with zeros.
const UNTRAPPED: u64 = 1 << 33;

/// What the machine holds lies in atomics too, so that loom sees which of its steps depend on each other. A page's
/// content is one byte, repeated.
pub struct TestMachine {
    /// Of each page its content plus 1, or 0 where it is missing; with [`PROTECTED`] or [`UNTRAPPED`].
    pages: [AtomicU64; BLOCK_PAGES],
    /// The frames of each batch that hold a page.
    filled: [AtomicU64; BATCHES],
    frames: UnsafeCell<Memory>,
    /// Set before the threads start.
    pub grain: AtomicUsize,
    /// The same: pages may be left to the kernel.
    pub untraps: AtomicBool,
    /// Releases and drops that are refused from now on, and whether one was.
    pub refusals: AtomicU64,
    refused: AtomicU64,
}
// SAFETY: frames are written only while nobody may read them, and loom runs one thread at a time.
unsafe impl Sync for TestMachine {}
// SAFETY: as above.
unsafe impl Send for TestMachine {}

impl TestMachine {
    pub fn new() -> TestMachine {
        TestMachine {
            pages: [const { AtomicU64::new(0) }; BLOCK_PAGES],
            filled: [const { AtomicU64::new(0) }; BATCHES],
            frames: UnsafeCell::new(Memory::new(BATCHES * BLOCK_PAGES * PAGE_BYTES)),
            grain: AtomicUsize::new(1),
            untraps: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
    fn refuses(&self) -> bool {
        let left = self.refusals.load(SeqCst);
        let refuses = left > 0 && self.refusals.compare_exchange(left, left - 1, SeqCst, SeqCst).is_ok();
        if refuses {
            self.refused.store(1, SeqCst);
        }
        refuses
    }
    pub fn has_refused(&self) -> bool {
        self.refused.load(SeqCst) == 1
    }
    fn page(&self, page: PageNo) -> &AtomicU64 {
        &self.pages[page.0 as usize]
    }
    fn frame_ptr(&self, frame: usize) -> *mut u8 {
        // SAFETY: within the allocation.
        unsafe { (*self.frames.get()).base.add(frame * PAGE_BYTES) }
    }
    /// The program's own access; `None` where it would fault.
    pub fn access(&self, page: PageNo, write: Option<u8>) -> Option<u8> {
        let page = self.page(page);
        loop {
            let content = page.load(SeqCst);
            if content == UNTRAPPED {
                // The kernel fills it.
                let _ = page.compare_exchange(content, UNTRAPPED | 1, SeqCst, SeqCst);
                continue;
            }
            let found = u8::try_from((content & !(PROTECTED | UNTRAPPED)).checked_sub(1)?).expect("a byte");
            let Some(byte) = write else { return Some(found) };
            if content & PROTECTED != 0 {
                return None;
            }
            if page.compare_exchange(content, byte as u64 + 1 | content & UNTRAPPED, SeqCst, SeqCst).is_ok() {
                return Some(byte);
            }
        }
    }
    fn put_byte(&self, page: PageNo, byte: u8, write_protected: bool) {
        let content = byte as u64 + 1 | if write_protected { PROTECTED } else { 0 };
        assert_eq!(self.page(page).swap(content, SeqCst), 0, "put on a missing page only");
    }
}

impl Machine for TestMachine {
    fn pause(&self, _: u32) {
        thread::yield_now();
    }
    fn take(&self, first: PageNo, count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        assert!(wanted.all().end() <= count, "pages of the run only");
        for i in wanted.clean.iter() {
            let content = self.page(first.plus(i)).swap(0, SeqCst);
            assert!(content & PROTECTED != 0, "a clean page cannot have been written");
        }
        for i in wanted.framed.iter() {
            let content = self.page(first.plus(i)).swap(0, SeqCst);
            assert!(content != 0 && content & UNTRAPPED == 0, "a resident page is mapped, and trapped");
            let bit = 1 << (offset + i);
            let frame = batch.0 as usize * BLOCK_PAGES + offset + i;
            // SAFETY: within the allocation, and nobody reads an empty frame.
            unsafe { self.frame_ptr(frame).write_bytes(((content & !PROTECTED) - 1) as u8, PAGE_BYTES) };
            assert!(self.filled[batch.0 as usize].fetch_or(bit, SeqCst) & bit == 0, "the frame is free");
        }
        Taken { framed: wanted.framed, dropped: wanted.clean }
    }
    fn write_protects(&self) -> bool {
        true
    }
    fn allow_writes(&self, first: PageNo, count: usize) -> bool {
        (0..count).for_each(|i| {
            self.page(first.plus(i)).fetch_and(!PROTECTED, SeqCst);
        });
        true
    }
    fn put_back(&self, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
        let number = batch.0 as usize;
        assert!((pages - held).is_empty(), "what is given back is held");
        for i in pages.iter() {
            let frame = self.frame_ptr(number * BLOCK_PAGES + i);
            // SAFETY: within the allocation, and in the caller's hand.
            let byte = unsafe { frame.read() };
            assert!(self.filled[number].fetch_and(!(1 << i), SeqCst) >> i & 1 == 1, "the frame holds the page");
            // SAFETY: as above; nobody may refer to the frame any more.
            unsafe { frame.write_bytes(0xdb, PAGE_BYTES) };
            self.put_byte(first.plus(i), byte, false);
        }
        pages
    }
    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8] {
        let (batch, index) = (frame.0 as usize / BLOCK_PAGES, frame.0 as usize % BLOCK_PAGES);
        assert!(self.filled[batch].load(SeqCst) >> index & 1 == 1, "the frame holds a page");
        // SAFETY: within the allocation; not written before it is released.
        unsafe { std::slice::from_raw_parts(self.frame_ptr(frame.0 as usize), pages * PAGE_BYTES) }
    }
    fn fill(&self, frame: FrameNo, content: &[u8]) -> bool {
        let (batch, index) = (frame.0 as usize / BLOCK_PAGES, frame.0 as usize % BLOCK_PAGES);
        // SAFETY: within the allocation, and nobody reads an empty frame.
        unsafe { self.frame_ptr(frame.0 as usize).copy_from_nonoverlapping(content.as_ptr(), PAGE_BYTES) };
        assert!(self.filled[batch].fetch_or(1 << index, SeqCst) >> index & 1 == 0, "the frame is free");
        true
    }
    fn release(&self, batch: BatchNo) -> bool {
        if self.refuses() {
            return false;
        }
        let filled = self.filled[batch.0 as usize].swap(0, SeqCst);
        for index in (0..BLOCK_PAGES).filter(|i| filled & 1 << i != 0) {
            // SAFETY: within the allocation, and nobody may refer to the frame any more.
            unsafe { self.frame_ptr(batch.0 as usize * BLOCK_PAGES + index).write_bytes(0xdb, PAGE_BYTES) };
        }
        true
    }
    fn put(&self, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        for (i, page) in src.chunks_exact(PAGE_BYTES).enumerate() {
            let frame = (page.as_ptr() as usize).wrapping_sub(self.frame_ptr(0) as usize) / PAGE_BYTES;
            if let Some(filled) = self.filled.get(frame / BLOCK_PAGES) {
                assert!(filled.load(SeqCst) >> (frame % BLOCK_PAGES) & 1 == 1, "the frame still holds the page");
            }
            self.put_byte(first.plus(i), page[0], write_protected);
        }
        (src.len() / PAGE_BYTES, None)
    }
    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        (0..count).for_each(|i| self.put_byte(first.plus(i), 0, false));
        (count, None)
    }
    fn drop_pages(&self, first: PageNo, count: usize) -> bool {
        let kept = self.refuses();
        (0..count).for_each(|i| {
            let page = self.page(first.plus(i));
            // Kept pages stay mapped, as zeros.
            let before = page.load(SeqCst);
            let now = if kept && before & !UNTRAPPED > 0 { 1 } else { 0 };
            page.store(now | before & UNTRAPPED, SeqCst);
        });
        !kept
    }
    fn transfer(&self, from: PageNo, to: PageNo) -> bool {
        let content = self.page(from).swap(0, SeqCst) & !PROTECTED;
        assert!(content != 0, "a resident page is mapped");
        assert_eq!(self.page(to).swap(content, SeqCst), 0, "moved to a missing page only");
        true
    }
    fn untraps(&self) -> bool {
        self.untraps.load(Relaxed)
    }
    fn untrap(&self, first: PageNo, count: usize) -> bool {
        (0..count).for_each(|i| assert_eq!(self.page(first.plus(i)).swap(UNTRAPPED, SeqCst), 0, "it holds nothing"));
        true
    }
    fn trap(&self, first: PageNo, count: usize, _: Mask) -> Option<Mask> {
        let is_there = |i: &usize| self.page(first.plus(*i)).fetch_and(!UNTRAPPED, SeqCst) & !UNTRAPPED != 0;
        Some((0..count).filter(is_there).collect())
    }
    fn protect(&self, _: PageNo, _: usize, _: Prot) -> bool {
        true
    }
    fn grain(&self) -> usize {
        self.grain.load(std::sync::atomic::Ordering::Relaxed)
    }
    fn count(&self, _: Event, _: u64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}
