//! A machine that exists only as tables, and insists on its contract.
pub use crate::chaos::Chaos;
use crate::clock::Clock;
use crate::sabotage::Sabotage;
use crate::sched::{self, Rng, step};
use crate::store::SimStore;
use outswap_core::machine::{BatchNo, Event, Machine, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::page::State;
use outswap_core::pager::{Pager, Policies};
use outswap_core::store::{Page, Store};
use outswap_core::units::{BLOCK_PAGES, BlockNo, FrameNo, MAX_FOLIO_PAGES, Order, PAGE_BYTES, PageNo};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, OnceLock};

/// The pager over this machine.
pub type SimPager = Pager<SimMachine, SimStore>;

/// How long a pause is.
const PAUSE_NS: u64 = 1000;

/// Tells the state of a page of the pager at this address.
type StateOf = fn(usize, PageNo) -> State;

struct Mapping {
    rng: Rng,
    chaos: Chaos,
    pages: Vec<Option<Box<Page>>>,
    /// What a page held before its last write; kept only for sabotage.
    before: Vec<Option<Box<Page>>>,
    /// Pages of which a process forked off has the same frame.
    shared: Vec<bool>,
    /// Pages that the kernel fills as they are touched.
    untrapped: Vec<bool>,
    /// Pages at which a write faults.
    protected: Vec<bool>,
    prot: Vec<Prot>,
    filled: Vec<bool>,
    /// Frames that were full at a fork, and have held nothing else since.
    frames_shared: Vec<bool>,
    /// Frames whose page was protected when it was taken, and is so still if it moves back.
    frames_protected: Vec<bool>,
    /// Pages over which the kernel manages something else.
    foreign: Vec<bool>,
    /// Pages that can never be taken.
    stubborn: Vec<bool>,
    /// Pages that the program has used since they were last asked for.
    accessed: Vec<bool>,
    /// Pages at which one of the machine's own mappings starts.
    borders: Vec<bool>,
}

/// The machine.
pub struct SimMachine {
    mapping: Mutex<Mapping>,
    frames: AtomicPtr<u8>,
    frame_count: usize,
    grain: usize,
    write_protects: bool,
    protects_unwritable: bool,
    moves_back: bool,
    pager: OnceLock<(usize, StateOf)>,
    /// What the pager counted.
    pub events: [AtomicU64; outswap_core::machine::EVENTS],
    /// Calls of `take`.
    pub takes: AtomicU64,
    /// The time. Each pause lets some pass.
    pub clock: Clock,
    /// Somebody has time to meet streams half-way.
    pub meets_streams: AtomicBool,
    sabotage: Sabotage,
}

fn layout(frames: usize) -> Layout {
    Layout::from_size_align(frames * PAGE_BYTES, PAGE_BYTES).expect("a page's size is a power of two")
}

/// How an access of the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It did what was asked.
    Done,
    /// The page is not there: a fault.
    Missing,
    /// It must not be written: a fault.
    Protected,
}

impl SimMachine {
    /// A machine of so many pages and batches.
    pub fn new(seed: u64, pages: usize, batches: usize, grain: usize, chaos: Chaos, sabotage: Sabotage) -> Self {
        let frame_count = batches * BLOCK_PAGES;
        // SAFETY: the size is not zero.
        let frames = unsafe { alloc_zeroed(layout(frame_count)) };
        assert!(!frames.is_null());
        let mut borders = Rng(seed ^ 0xb0_4de4);
        SimMachine {
            mapping: Mutex::new(Mapping {
                rng: Rng(seed),
                chaos,
                pages: (0..pages).map(|_| None).collect(),
                before: (0..pages).map(|_| None).collect(),
                shared: vec![false; pages],
                untrapped: vec![false; pages],
                protected: vec![false; pages],
                prot: vec![Prot::NONE; pages],
                filled: vec![false; frame_count],
                frames_shared: vec![false; frame_count],
                frames_protected: vec![false; frame_count],
                foreign: vec![false; pages],
                stubborn: vec![false; pages],
                accessed: vec![false; pages],
                borders: (0..pages).map(|_| borders.once_in(chaos.border_in)).collect(),
            }),
            frames: AtomicPtr::new(frames),
            frame_count,
            grain,
            write_protects: !seed.is_multiple_of(4),
            protects_unwritable: seed % 8 != 3,
            moves_back: seed.is_multiple_of(2),
            pager: OnceLock::new(),
            events: [const { AtomicU64::new(0) }; outswap_core::machine::EVENTS],
            takes: AtomicU64::new(0),
            clock: Clock::default(),
            meets_streams: AtomicBool::new(false),
            sabotage,
        }
    }

    /// Lets the machine look at the pager's page words, to see that pages it is given are owned. The pager stays where it is.
    ///
    /// # Panics
    /// Where it was done before.
    pub fn attach<S: Store, P: Policies>(&self, pager: &Pager<SimMachine, S, P>) {
        fn state<S: Store, P: Policies>(pager: usize, page: PageNo) -> State {
            // SAFETY: the pager owns this machine, so it outlives every call of it.
            unsafe { &*(pager as *const Pager<SimMachine, S, P>) }.state(page)
        }
        let set = self.pager.set((std::ptr::from_ref(pager) as usize, state::<S, P>));
        assert!(set.is_ok(), "a machine has one pager");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Mapping> {
        // Another thread that panicked here has already reported why.
        self.mapping.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn assert_owned(&self, page: PageNo, who: &str) {
        let (pager, state) = self.pager.get().expect("the machine was attached to a pager");
        assert_eq!(state(*pager, page), State::Busy, "{who}: page {} is not owned by the caller", page.0);
    }

    fn frame_ptr(&self, frame: usize) -> *mut u8 {
        assert!(frame < self.frame_count, "frame {frame} does not exist");
        // SAFETY: within the allocation.
        unsafe { self.frames.load(Relaxed).add(frame * PAGE_BYTES) }
    }

    /// A program's instruction that reads or writes a page.
    pub fn access(&self, page: u32, write: bool, f: impl FnOnce(&mut Page)) -> Found {
        let mut m = self.lock();
        let i = page as usize;
        let needs = if write { 3 } else { 1 };
        assert!(m.prot[i].0 & needs == needs, "page {page} has access {:?} instead of {needs}", m.prot[i]);
        if m.pages[i].is_none() && m.untrapped[i] {
            m.pages[i] = Some(Box::new([0; PAGE_BYTES]));
        }
        if m.pages[i].is_none() {
            return Found::Missing;
        }
        if write && m.protected[i] {
            return Found::Protected;
        }
        if write {
            m.shared[i] = false;
            if self.sabotage == Sabotage::TakeOldContent {
                m.before[i] = m.pages[i].clone();
            }
            if self.sabotage == Sabotage::LosesWrite && m.rng.once_in(50) {
                return Found::Done;
            }
        }
        m.accessed[i] = true;
        f(m.pages[i].as_mut().expect("looked at above"));
        Found::Done
    }

    /// How many pages of a block the program has used since the last time that this was asked.
    pub fn accessed_pages(&self, block: BlockNo) -> u64 {
        let first = block.first_page().0 as usize;
        let mut m = self.lock();
        let used = m.accessed[first..first + BLOCK_PAGES].iter_mut().map(core::mem::take);
        used.filter(|used| *used).count() as u64
    }

    /// Whether a page is in the program's reach, or will be when it is touched, without a fault.
    pub fn is_mapped(&self, page: u32) -> bool {
        let m = self.lock();
        m.pages[page as usize].is_some() || m.untrapped[page as usize]
    }
    /// The program's access to a page.
    pub fn prot(&self, page: usize) -> Prot {
        self.lock().prot[page]
    }
    /// Pages that the program reaches without a fault.
    pub fn mapped_pages(&self) -> u64 {
        let m = self.lock();
        m.pages.iter().zip(&m.untrapped).filter(|(page, untrapped)| page.is_some() || **untrapped).count() as u64
    }
    /// Frames that hold a page.
    pub fn filled_frames(&self) -> u64 {
        self.lock().filled.iter().filter(|&&f| f).count() as u64
    }
    /// Has the kernel manage a page, or no longer.
    pub fn set_foreign(&self, page: usize, foreign: bool) {
        self.lock().foreign[page] = foreign;
    }
    /// Has touches of missing pages told, though the pager takes them for the kernel's to fill.
    pub fn trap_unasked(&self, pages: std::ops::Range<usize>) {
        self.lock().untrapped[pages].fill(false);
    }
    /// From now on pages of this range cannot be taken, and those of one before can.
    pub fn refuse(&self, pages: std::ops::Range<usize>) {
        let mut machine = self.lock();
        machine.stubborn.fill(false);
        machine.stubborn[pages].fill(true);
    }
    /// Another of the machine's own mappings starts at this page.
    pub fn set_border(&self, page: usize) {
        self.lock().borders[page] = true;
    }
    /// Whether pages lie in more than one of the machine's own mappings.
    fn has_border(&self, first: PageNo, count: usize) -> bool {
        let first = first.0 as usize;
        self.lock().borders[first + 1..first + count].contains(&true)
    }
    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        self.lock().chaos = Chaos::default();
    }
    /// The other side has given up a page, or has one of its own: this side has it alone.
    pub fn is_alone_with(&self, page: PageNo) {
        self.lock().shared[page.0 as usize] = false;
    }
    /// A process was forked off: both sides share all pages that are mapped.
    pub fn forked(&self, seed: u64, is_child: bool) {
        let mut m = self.lock();
        m.rng = Rng(seed);
        m.shared = m.pages.iter().map(Option::is_some).collect();
        m.frames_shared = m.filled.clone();
        if is_child {
            // Its memory is registered anew, all of it.
            m.untrapped.fill(false);
            // What protects the parent's pages protects none of the child's.
            m.protected.fill(false);
        }
    }

    fn put_one(&self, page: PageNo, content: Option<&[u8]>, write_protected: bool) -> Option<PutError> {
        step();
        self.assert_owned(page, "put");
        let mut m = self.lock();
        let chaos = m.chaos;
        if m.rng.once_in(chaos.put_again_in) {
            return Some(PutError::Again);
        }
        if m.rng.once_in(chaos.no_memory_in) {
            return Some(PutError::NoMemory);
        }
        let i = page.0 as usize;
        assert!(!m.foreign[i], "put: page {} is not managed now", page.0);
        if m.untrapped[i] {
            assert!(content.is_none(), "put: page {} is the kernel's to fill", page.0);
            return Some(PutError::Gone);
        }
        assert!(m.pages[i].is_none(), "put: page {} is mapped already", page.0);
        let mut copy: Box<Page> = Box::new([0; PAGE_BYTES]);
        if let Some(content) = content {
            let offset = (content.as_ptr() as usize).wrapping_sub(self.frames.load(Relaxed) as usize);
            let frame = offset / PAGE_BYTES;
            assert!(frame >= self.frame_count || m.filled[frame], "put: page {} from an empty frame", page.0);
            copy.copy_from_slice(content);
            if self.sabotage == Sabotage::PutWrongByte && m.rng.once_in(20) {
                copy[m.rng.below(PAGE_BYTES)] ^= 1;
            }
        }
        m.pages[i] = Some(copy);
        m.before[i] = None;
        m.shared[i] = false;
        m.protected[i] = write_protected && (self.protects_unwritable || m.prot[i].0 & Prot::WRITE.0 != 0);
        None
    }
}

impl Drop for SimMachine {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.frames.load(Relaxed), layout(self.frame_count)) };
    }
}

impl Machine for SimMachine {
    fn pause(&self, spins: u32) {
        assert!(spins < 1_000_000 || sched::is_parallel(), "a thread waits for ever");
        self.clock.pass_ns(PAUSE_NS);
        sched::wait(spins);
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn take(&self, first: PageNo, count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        let present = wanted.all();
        assert!(count <= BLOCK_PAGES && offset + count <= BLOCK_PAGES, "take: a batch has 64 frames");
        assert!(!present.is_empty() && present.end() <= count, "take: pages of the run only");
        self.takes.fetch_add(1, Relaxed);
        assert!((wanted.framed & wanted.clean).is_empty(), "take: a page is needed or not");
        let mut taken = Taken::default();
        // Sometimes it is simpler to keep clean pages, too.
        let drops = self.lock().rng.once_in(2);
        let mut lifts = false;
        for i in 0..count {
            step();
            let page = first.plus(i);
            self.assert_owned(page, "take");
            let mut m = self.lock();
            let at = page.0 as usize;
            if !present.contains(i) {
                assert!(m.pages[at].is_none(), "take: page {} would move along with its neighbours", page.0);
                continue;
            }
            assert!(m.pages[at].is_some(), "take: page {} is not mapped", page.0);
            assert!(!m.untrapped[at], "take: the next touch of page {} would not be noticed", page.0);
            assert!(!m.foreign[at], "take: page {} is not managed now", page.0);
            let frame = batch.0 as usize * BLOCK_PAGES + offset + i;
            assert!(!m.filled[frame], "take: frame {frame} is in use");
            let chaos = m.chaos;
            let is_clean = wanted.clean.contains(i);
            assert!(!is_clean || m.protected[at], "take: page {} may have been written", page.0);
            if m.stubborn[at] || m.rng.once_in(chaos.take_refused_in) || m.shared[at] && m.rng.once_in(2) {
                lifts = true;
                continue;
            }
            if is_clean && drops {
                m.pages[at] = None;
                (m.before[at], m.shared[at], m.protected[at]) = (None, false, false);
                taken.dropped.insert(i);
                continue;
            }
            // As the kernel does with a page that it has itself swapped out.
            m.frames_protected[frame] = m.protected[at] && m.rng.once_in(2);
            m.protected[at] = false;
            let content = m.pages[at].take().expect("looked at above");
            let content = m.before[at].take().unwrap_or(content);
            m.shared[at] = false;
            m.filled[frame] = true;
            // SAFETY: the frame was empty, so nobody reads it; whoever reads it later learned of it after this.
            unsafe { self.frame_ptr(frame).copy_from_nonoverlapping(content.as_ptr(), PAGE_BYTES) };
            taken.framed.insert(i);
        }
        if lifts {
            // What is left may lose its protection.
            let mut m = self.lock();
            for i in (present - taken.all()).iter() {
                m.protected[first.plus(i).0 as usize] &= m.rng.once_in(2);
            }
        }
        step();
        taken
    }

    fn shared(&self, first: PageNo, count: usize) -> Mask {
        let m = self.lock();
        (0..count).filter(|&i| m.shared[first.0 as usize + i]).collect()
    }

    fn shared_frames(&self, batch: BatchNo) -> Mask {
        let m = self.lock();
        (0..BLOCK_PAGES).filter(|&i| m.frames_shared[batch.0 as usize * BLOCK_PAGES + i]).collect()
    }

    fn put_back(&self, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
        let mut back = Mask::EMPTY;
        let frame_of = |i: usize| batch.0 as usize * BLOCK_PAGES + i;
        {
            let m = self.lock();
            (0..BLOCK_PAGES).for_each(|i| {
                assert!(held.contains(i) || !m.filled[frame_of(i)], "put back: frame {i} holds something")
            });
        }
        for i in pages.iter() {
            step();
            self.assert_owned(first.plus(i), "put back");
            let mut m = self.lock();
            let (chaos, at) = (m.chaos, first.plus(i).0 as usize);
            assert!(m.filled[frame_of(i)], "put back: frame {i} is empty");
            assert!(
                m.pages[at].is_none() && !m.foreign[at],
                "put back: page {at} is mapped already, or not managed now"
            );
            if m.rng.once_in(chaos.put_again_in) || m.rng.once_in(chaos.no_memory_in) {
                continue;
            }
            let mut copy: Box<Page> = Box::new([0; PAGE_BYTES]);
            // SAFETY: within the allocation, and filled; the caller has the batch in hand.
            unsafe {
                copy.copy_from_slice(std::slice::from_raw_parts(self.frame_ptr(frame_of(i)), PAGE_BYTES));
                self.frame_ptr(frame_of(i)).write_bytes(0xdb, PAGE_BYTES);
            }
            m.pages[at] = Some(copy);
            (m.before[at], m.shared[at]) = (None, false);
            m.protected[at] = self.moves_back && m.frames_protected[frame_of(i)];
            m.filled[frame_of(i)] = false;
            m.frames_shared[frame_of(i)] = false;
            back.insert(i);
        }
        step();
        back
    }

    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8] {
        step();
        let m = self.lock();
        let first = frame.0 as usize;
        assert!(m.filled[first..first + pages].iter().all(|&f| f), "frame {first}+{pages} read while empty");
        // SAFETY: within the allocation; filled frames are not written until they are released, and by the caller's
        // promise that is not before the last use of the reference.
        unsafe { std::slice::from_raw_parts(self.frame_ptr(first), pages * PAGE_BYTES) }
    }

    fn put_huge(&self, first: PageNo) -> bool {
        step();
        assert!(Order::MAX.fits_at(first.0 as usize), "put huge: page {} begins none", first.0);
        (0..MAX_FOLIO_PAGES).for_each(|i| self.assert_owned(first.plus(i), "put huge"));
        if self.has_border(first, MAX_FOLIO_PAGES) {
            return false;
        }
        let mut m = self.lock();
        let (chaos, from) = (m.chaos, first.0 as usize);
        if m.rng.once_in(chaos.no_memory_in) || m.rng.once_in(chaos.put_again_in) {
            return false;
        }
        for at in from..from + MAX_FOLIO_PAGES {
            assert!(
                !m.foreign[at] && m.pages[at].is_none(),
                "put huge: page {at} is mapped already, or not managed now"
            );
            m.pages[at] = Some(Box::new([0; PAGE_BYTES]));
            (m.before[at], m.shared[at], m.protected[at]) = (None, false, false);
        }
        true
    }

    fn is_written(&self, page: PageNo) -> bool {
        step();
        self.lock().pages[page.0 as usize].as_ref().is_some_and(|page| page.iter().any(|&byte| byte != 0))
    }

    fn stream_is_asked(&self) -> bool {
        self.meets_streams.load(Relaxed)
    }

    fn fill(&self, frame: FrameNo, content: &[u8]) -> bool {
        step();
        let mut m = self.lock();
        let (chaos, at) = (m.chaos, frame.0 as usize);
        if m.rng.once_in(chaos.no_memory_in) {
            return false;
        }
        assert!(!std::mem::replace(&mut m.filled[at], true), "fill: frame {at} is in use");
        m.frames_protected[at] = false;
        // SAFETY: the frame was empty, so nobody reads it; whoever reads it later learned of it after this.
        unsafe { self.frame_ptr(at).copy_from_nonoverlapping(content.as_ptr(), PAGE_BYTES) };
        drop(m);
        step();
        true
    }

    fn release(&self, batch: BatchNo) -> bool {
        step();
        let mut m = self.lock();
        let chaos = m.chaos;
        if m.rng.once_in(chaos.release_refused_in) {
            return false;
        }
        let first = batch.0 as usize * BLOCK_PAGES;
        for frame in first..first + BLOCK_PAGES {
            m.frames_shared[frame] = false;
            if std::mem::replace(&mut m.filled[frame], false) {
                // Whoever still reads the frame gets something that matches no page.
                // SAFETY: within the allocation, and nobody may refer to it any more.
                unsafe { self.frame_ptr(frame).write_bytes(0xdb, PAGE_BYTES) };
            }
        }
        drop(m);
        step();
        true
    }

    fn put(&self, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        if self.has_border(first, src.len() / PAGE_BYTES) {
            return (0, Some(PutError::Gone));
        }
        for (i, content) in src.chunks_exact(PAGE_BYTES).enumerate() {
            if let Some(error) = self.put_one(first.plus(i), Some(content), write_protected) {
                return (i, Some(error));
            }
        }
        step();
        (src.len() / PAGE_BYTES, None)
    }

    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        if self.has_border(first, count) {
            return (0, Some(PutError::Gone));
        }
        for i in 0..count {
            if let Some(error) = self.put_one(first.plus(i), None, false) {
                return (i, Some(error));
            }
        }
        step();
        (count, None)
    }

    fn maps_zero(&self) -> bool {
        let mut m = self.lock();
        let maps_zero_in = m.chaos.maps_zero_in;
        m.rng.once_in(maps_zero_in)
    }

    fn untraps(&self) -> bool {
        let mut m = self.lock();
        let untraps_in = m.chaos.untraps_in;
        m.rng.once_in(untraps_in)
    }

    fn untrap(&self, first: PageNo, count: usize) -> bool {
        step();
        (0..count).for_each(|i| self.assert_owned(first.plus(i), "untrap"));
        let mut m = self.lock();
        let (chaos, from) = (m.chaos, first.0 as usize);
        if m.rng.once_in(chaos.no_memory_in) {
            return false;
        }
        for at in from..from + count {
            let is_empty = !m.foreign[at] && m.pages[at].is_none() && !m.untrapped[at];
            assert!(is_empty, "untrap: page {at} holds something, or is not managed now");
            m.untrapped[at] = true;
        }
        drop(m);
        step();
        true
    }

    fn trap(&self, first: PageNo, count: usize, left: Mask) -> Option<Mask> {
        step();
        assert!((1..=BLOCK_PAGES).contains(&count), "trap: pages of a block");
        (0..count).for_each(|i| self.assert_owned(first.plus(i), "trap"));
        let mut m = self.lock();
        let (chaos, from) = (m.chaos, first.0 as usize);
        // What is registered already takes nothing.
        let is_left = m.untrapped[from..from + count].contains(&true);
        if is_left && m.rng.once_in(chaos.trap_refused_in) {
            return None;
        }
        m.untrapped[from..from + count].fill(false);
        for at in left.iter().map(|i| from + i) {
            let is_zero = m.pages[at].as_ref().is_some_and(|page| page.iter().all(|byte| *byte == 0));
            if is_zero && m.rng.once_in(chaos.zeros_taken_in) {
                (m.pages[at], m.before[at], m.shared[at], m.protected[at]) = (None, None, false, false);
            }
        }
        let there = (0..count).filter(|i| m.pages[from + i].is_some()).collect();
        drop(m);
        step();
        Some(there)
    }

    fn moves_back(&self) -> bool {
        self.moves_back
    }

    fn write_protects(&self) -> bool {
        self.write_protects
    }

    fn puts_protected(&self) -> bool {
        self.write_protects && self.protects_unwritable
    }

    fn forbid_writes(&self, first: PageNo, count: usize) -> bool {
        step();
        let mut m = self.lock();
        let chaos = m.chaos;
        let refused = m.rng.once_in(chaos.put_again_in);
        drop(m);
        for i in 0..count {
            let page = first.plus(i);
            self.assert_owned(page, "forbid writes");
            let mut m = self.lock();
            let at = page.0 as usize;
            assert!(m.pages[at].is_some(), "forbid writes: page {at} is not mapped");
            // It may have come half way before it was refused.
            m.protected[at] |= !refused || i < count / 2;
        }
        step();
        !refused
    }

    fn allow_writes(&self, first: PageNo, count: usize) -> bool {
        step();
        let mut m = self.lock();
        let chaos = m.chaos;
        let refused = m.rng.once_in(chaos.put_again_in);
        drop(m);
        for i in 0..count {
            let page = first.plus(i);
            self.assert_owned(page, "allow writes");
            let mut m = self.lock();
            let at = page.0 as usize;
            assert!(m.pages[at].is_some(), "allow writes: page {at} is not mapped");
            // It may have come half way before it was refused.
            m.protected[at] &= refused && i >= count / 2;
        }
        step();
        !refused
    }

    fn drop_pages(&self, first: PageNo, count: usize) -> bool {
        let kept = {
            let mut m = self.lock();
            let chaos = m.chaos;
            m.rng.once_in(chaos.drop_kept_in)
        };
        for i in 0..count {
            step();
            self.assert_owned(first.plus(i), "drop");
            let mut m = self.lock();
            let at = first.plus(i).0 as usize;
            assert!(!m.foreign[at], "drop: page {at} is not managed now");
            if self.sabotage != Sabotage::KeepsDropped {
                let zeros = || Box::new([0; PAGE_BYTES]);
                m.pages[at] = m.pages[at].take().filter(|_| kept).map(|_| zeros());
                (m.before[at], m.shared[at], m.protected[at]) = (None, false, false);
            }
        }
        step();
        !kept
    }

    fn transfer(&self, from: PageNo, to: PageNo) -> bool {
        step();
        self.assert_owned(from, "transfer from");
        self.assert_owned(to, "transfer to");
        let mut m = self.lock();
        let chaos = m.chaos;
        if m.rng.once_in(chaos.transfer_refused_in) {
            return false;
        }
        let (from, to) = (from.0 as usize, to.0 as usize);
        assert!(m.pages[from].is_some() && m.pages[to].is_none(), "transfer: from a mapped page to a missing one");
        assert!(!m.untrapped[from] && !m.untrapped[to], "transfer: pages whose touches are noticed");
        m.pages[to] = m.pages[from].take();
        m.protected[to] = std::mem::replace(&mut m.protected[from], false) && m.rng.once_in(2);
        m.shared[to] = std::mem::replace(&mut m.shared[from], false);
        if self.sabotage == Sabotage::TransferEmpty {
            m.pages[to] = Some(Box::new([0; PAGE_BYTES]));
        }
        drop(m);
        step();
        true
    }

    fn protect(&self, first: PageNo, count: usize, prot: Prot) -> bool {
        step();
        let mut m = self.lock();
        let chaos = m.chaos;
        // Taking access away needs no memory, so it cannot fail.
        if prot == Prot::READ_WRITE && m.rng.once_in(chaos.protect_refused_in) {
            return false;
        }
        m.prot[first.0 as usize..first.0 as usize + count].fill(prot);
        drop(m);
        step();
        true
    }

    fn grain(&self) -> usize {
        step();
        self.grain
    }

    fn count(&self, event: Event, n: u64) {
        self.events[event as usize].fetch_add(n, Relaxed);
        step();
    }
}
