//! What the pager asks of the machine: to move pages out of and into the program's reach.
use crate::mask::Mask;
use crate::units::{FrameNo, PageNo};

/// A batch: 64 frames in which the pages of one block wait for write-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchNo(pub u32);

/// Access that the program asked for, as the bits of `PROT_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prot(pub u8);
impl Prot {
    /// No access.
    pub const NONE: Prot = Prot(0);
    /// Read.
    pub const READ: Prot = Prot(1);
    /// Write.
    pub const WRITE: Prot = Prot(2);
    /// Read and write.
    pub const READ_WRITE: Prot = Prot(3);
}

/// Why pages could not be installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutError {
    /// The address space is changing; try again.
    Again,
    /// Nothing is mapped there any more.
    Gone,
    /// The machine has no memory.
    NoMemory,
}

/// What happened, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
#[repr(usize)]
pub enum Event {
    FaultFirstTouch,
    FaultHit,
    FaultMiss,
    FaultBypass,
    FaultWaited,
    /// Nanoseconds.
    FaultWaitNs,
    PagesFirstTouch,
    PagesClean,
    PagesZero,
    PagesTaken,
    FoliosOut,
    FolioFallbacks,
    FoliosIn,
    StoreFull,
    StoreErrors,
    Corruptions,
    DirectReclaims,
    Looks,
    /// Nanoseconds.
    LookNs,
    OverLimit,
}
/// How many kinds of [`Event`] there are.
pub const EVENTS: usize = Event::OverLimit as usize + 1;

/// The machine. Page numbers count from the start of the managed range. Pages passed to a call are owned (Busy) by
/// the caller, except where said.
pub trait Machine: Sync {
    /// Called while waiting for another thread; `spins` grows.
    fn pause(&self, spins: u32);

    /// The time, in nanoseconds since some instant: virtual where the machine is.
    fn now_ns(&self) -> u64;

    /// Takes the present pages among `count` (at most [`crate::units::MAX_FOLIO_PAGES`]) pages from `first` out of the program's
    /// reach, into the frames of `batch` from `offset` on, page by page at the same distance. `present`, counted from `first`
    /// and not empty, says which pages are resident. Returns those that were taken; the others stay mapped, unchanged.
    /// From the instant a page is taken no write of the program reaches its frame.
    fn take(&self, first: PageNo, count: usize, present: Mask, batch: BatchNo, offset: usize) -> Mask;

    /// The content of a frame that holds a page.
    ///
    /// # Safety
    /// The frame must hold a page, and not be released while the reference lives.
    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8];

    /// Frees all frames of a batch. False where that failed, and nothing changed.
    fn release(&self, batch: BatchNo) -> bool;

    /// Installs whole pages with content from `src`. Returns how many pages were installed, and why it stopped.
    fn put(&self, first: PageNo, src: &[u8]) -> (usize, Option<PutError>);

    /// Installs `count` zero pages.
    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>);

    /// Drops the content of pages that are mapped. Returns whether the program's next touch of them will be noticed; where
    /// not, they stay mapped, as zeros.
    fn drop_pages(&self, first: PageNo, count: usize) -> bool;

    /// Moves one mapped page to another place where none is. Returns false where that failed and nothing changed.
    fn transfer(&self, from: PageNo, to: PageNo) -> bool;

    /// Changes the program's access to a range of managed pages. The pages need not be owned.
    fn protect(&self, first: PageNo, count: usize, prot: Prot) -> bool;

    /// Smallest number of pages that one fault should install: 1, or more where the machine has a coarse grain.
    fn grain(&self) -> usize;

    /// A call is about to use a page that is not resident; `fresh` where it has no content. For machines that record accesses.
    fn used_by_call(&self, page: PageNo, fresh: bool) {
        let _ = (page, fresh);
    }

    /// Pages lose their content, of which some may have had none. For machines that record accesses.
    fn discarded(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Counts.
    fn count(&self, event: Event, n: u64);
}
