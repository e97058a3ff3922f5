//! A region of memory on which a fault source works as it does in a managed process, under the smallest pager there can be: a
//! page is untouched, resident, taken, or owned by the thread that is about to change that.
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, Prot, PutError, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::vma::Vma;
use outswap_source::{Host, Source};
use outswap_sys::{Errno, PAGE_BYTES, os};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};

/// Pages of the region: a block, as in a managed process.
pub const PAGES: usize = BLOCK_PAGES;
/// Bytes of the region.
pub const BYTES: usize = PAGES * PAGE_BYTES;

/// The one batch.
const BATCH: BatchNo = BatchNo(0);
/// Attempts in a row that may take no page, and that may not put one back.
const TRIES: u32 = 1000;

const UNTOUCHED: u8 = 0;
const RESIDENT: u8 = 1;
const TAKEN: u8 = 2;
const OWNED: u8 = 3;

/// The region.
pub struct Scratch {
    source: Source,
    fd: i32,
    region: usize,
    frames: usize,
    states: [AtomicU8; PAGES],
    faults: AtomicU64,
    threads: AtomicBool,
}

fn step(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| format!("{what}: {e:?}")
}

fn map(prot: usize) -> Result<usize, String> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
    // SAFETY: no address is given, so nothing is replaced; an advice that drops nothing. Huge pages would hide single ones.
    unsafe {
        let at = os::mmap(0, BYTES, prot, flags, -1, 0).map_err(step("mmap"))?;
        let _ = os::madvise(at, BYTES, os::MADV_NOHUGEPAGE);
        Ok(at)
    }
}

impl Scratch {
    /// A region of untouched pages that can be read and written.
    pub fn new(source: Source) -> Result<Scratch, String> {
        source.learn();
        let fd = source.open().map_err(step("opening it"))?;
        let (region, frames) = (map(os::PROT_NONE)?, map(os::PROT_READ | os::PROT_WRITE)?);
        for at in [region, frames] {
            source.register(fd, at, BYTES).map_err(step("registering memory"))?;
        }
        let states = [const { AtomicU8::new(UNTOUCHED) }; PAGES];
        let scratch =
            Scratch { source, fd, region, frames, states, faults: AtomicU64::new(0), threads: AtomicBool::new(false) };
        if !source.protect(&scratch, PageNo(0), PAGES, Prot::READ_WRITE) {
            return Err("the access of the region cannot be changed".into());
        }
        Ok(scratch)
    }

    /// A byte of the region.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < BYTES, "the region ends here");
        (self.region + offset) as *mut u8
    }

    /// From now on, more than one thread touches the region.
    pub fn begin_threads(&self) {
        self.threads.store(true, SeqCst);
    }

    /// Faults answered since the last time that this was asked.
    pub fn faults(&self) -> u64 {
        self.faults.swap(0, Relaxed)
    }
    /// Pages that one fault brings.
    pub fn grain(&self) -> usize {
        self.source.grain(self)
    }

    /// Makes a page the caller's, once nobody else owns it; the state that it had.
    fn own(&self, page: usize) -> u8 {
        for spins in 0.. {
            let seen = self.states[page].load(Acquire);
            if seen != OWNED && self.states[page].compare_exchange(seen, OWNED, AcqRel, Relaxed).is_ok() {
                return seen;
            }
            os::wait_a_little(spins);
        }
        unreachable!("an alarm ends a probe that waits for ever")
    }

    /// Takes all pages, which are resident, in as many steps as it needs. They must all be resident again before the next time.
    pub fn take(&self) -> Result<(), String> {
        let mut left: Mask = (0..PAGES).filter(|&page| self.own(page) == RESIDENT).collect();
        let mut tries = 0;
        while let Some(first) = left.first()
            && tries < TRIES
        {
            let present = left.from(first);
            let wanted = Wanted { framed: present, clean: Mask::EMPTY };
            let taken = self.source.take(self, PageNo(first as u32), present.end(), wanted, BATCH, first).framed;
            if !(taken - present).is_empty() {
                return Err(format!("it took pages that it was not asked for: {taken:?} of {present:?}"));
            }
            left = left - taken.at(first);
            tries = if taken.is_empty() { tries + 1 } else { 0 };
        }
        for (page, state) in self.states.iter().enumerate() {
            state.store(if left.contains(page) { RESIDENT } else { TAKEN }, Release);
        }
        if left.is_empty() { Ok(()) } else { Err(format!("{} of {PAGES} pages cannot be taken", left.count())) }
    }

    /// Empties the frames, when all pages have been touched since they were taken.
    pub fn release(&self) -> Result<(), String> {
        for (page, state) in self.states.iter().enumerate() {
            // Who brought it in may still be at it, though it can be read already.
            let seen = self.own(page);
            state.store(seen, Release);
            if seen != RESIDENT {
                return Err(format!("page {page} can be read, and nothing has brought it in"));
            }
        }
        if self.source.release(self, BATCH) { Ok(()) } else { Err("the frames cannot be emptied".into()) }
    }

    /// Answers a signal. False where it is no fault of the region's, or a page cannot be brought in.
    pub fn answer(&self, signal: i32, code: i32, address: usize, err: u64) -> bool {
        let page = address.wrapping_sub(self.region) / PAGE_BYTES;
        if page >= PAGES || !self.source.may_be_missing(signal, code) {
            return false;
        }
        if self.source.asks_map() && !self.source.is_missing(self, PageNo(page as u32), err) {
            return false;
        }
        self.faults.fetch_add(1, Relaxed);
        let grain = self.grain();
        let first = page / grain * grain;
        (first..first + grain).all(|page| self.bring(page))
    }

    fn bring(&self, page: usize) -> bool {
        let (state, number) = (self.own(page), PageNo(page as u32));
        let put = || match state {
            UNTOUCHED => self.source.put_zero(self, number, 1),
            _ => {
                // SAFETY: a taken page's frame holds it, and is not emptied before all pages are resident.
                let frame =
                    unsafe { std::slice::from_raw_parts(self.batch_address(BATCH, page) as *const u8, PAGE_BYTES) };
                self.source.put(self, number, frame, false)
            }
        };
        let there = state == RESIDENT
            || (0..TRIES).any(|tries| {
                let done = put();
                if let (0, Some(PutError::Again)) = done {
                    self.wait(tries);
                }
                done.0 == 1
            });
        self.states[page].store(if there { RESIDENT } else { state }, Release);
        there
    }
}

impl Host for Scratch {
    fn source_fd(&self) -> i32 {
        self.fd
    }
    fn address(&self, page: PageNo) -> usize {
        self.region + page.0 as usize * PAGE_BYTES
    }
    fn batch_address(&self, batch: BatchNo, offset: usize) -> usize {
        self.frames + (batch.0 as usize * BLOCK_PAGES + offset) * PAGE_BYTES
    }
    fn wait(&self, tries: u32) {
        os::wait_a_little(tries);
    }
    fn stat(&self, _: Stat, _: u64) {}
    fn post(&self, _: &[u8]) {}
    fn find(&self, page: PageNo) -> Option<Vma> {
        self.next_in(page.0, page.0 + 1).map(|_| Vma::new(PageNo(0), PAGES as u32, Prot::READ_WRITE))
    }
    fn next_in(&self, page: u32, end: u32) -> Option<Vma> {
        let end = end.min(PAGES as u32);
        (page < end).then(|| Vma::new(PageNo(page), end - page, Prot::READ_WRITE))
    }
    fn limit_pages(&self) -> Option<u64> {
        Some(PAGES as u64)
    }
    fn pages(&self) -> u32 {
        PAGES as u32
    }
    fn is_alone(&self) -> bool {
        !self.threads.load(SeqCst)
    }
    fn new_frames(&self, batch: BatchNo) -> bool {
        let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_FIXED;
        // SAFETY: no page's content is in a frame.
        unsafe { os::mmap(self.batch_address(batch, 0), BYTES, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.is_ok()
    }
    /// The map never changes.
    fn settle_range(&self, _: PageNo, _: u32) {}
    fn with_resident(&self, first: PageNo, count: u32, mut f: impl FnMut(PageNo, usize) -> bool) -> bool {
        (first.0..first.0 + count).all(|page| {
            let state = self.own(page as usize);
            let yes = state != RESIDENT || f(PageNo(page), 1);
            self.states[page as usize].store(state, Release);
            yes
        })
    }
}
