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

/// The pages that a machine is to take. No page is in both sets, and one at least is in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Their content is needed: they go to frames.
    pub framed: Mask,
    /// They were write-protected when they came, and have not been written since. They can be dropped.
    pub clean: Mask,
}

impl Wanted {
    /// Those of so many pages from one on, counted from there.
    pub fn part(self, at: usize, count: usize) -> Wanted {
        let part = |mask: Mask| (mask & Mask::range(at, count)).from(at);
        Wanted { framed: part(self.framed), clean: part(self.clean) }
    }

    /// All of them.
    pub fn all(self) -> Mask {
        self.framed | self.clean
    }
}

/// Those that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// They are in frames: also clean ones, where that was simpler.
    pub framed: Mask,
    /// They are gone.
    pub dropped: Mask,
}

impl Taken {
    /// These, and those of a part that begins at a page.
    pub fn and_part(self, at: usize, part: Taken) -> Taken {
        Taken { framed: self.framed | part.framed.at(at), dropped: self.dropped | part.dropped.at(at) }
    }

    /// All of them.
    pub fn all(self) -> Mask {
        self.framed | self.dropped
    }
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
    PagesZeroMapped,
    /// Pages that were left to the kernel to fill.
    PagesUntrapped,
    HugeIn,
    PagesClean,
    PagesUnwritten,
    PagesReused,
    PagesPutBack,
    PagesReadAhead,
    PagesAheadHit,
    /// Pages of a stream that were brought in while the program was at the block before.
    PagesStreamedAhead,
    PagesAheadDropped,
    PagesZero,
    PagesTaken,
    FoliosOut,
    FolioFallbacks,
    /// Blocks that were stored as part of a folio of several.
    FolioBlocks,
    FoliosIn,
    StoreFull,
    /// Batches that were not given to a store because it had refused others.
    StorePassedBy,
    StoreErrors,
    Corruptions,
    DirectReclaims,
    Looks,
    /// Nanoseconds.
    LookNs,
    OverLimit,
    /// The same because the store is full.
    OverLimitFull,
}
/// How many kinds of [`Event`] there are.
pub const EVENTS: usize = Event::OverLimitFull as usize + 1;

/// The machine. Page numbers count from the start of the managed range. Pages passed to a call are owned (Busy) by
/// the caller, except where said.
pub trait Machine: Sync {
    /// Called while waiting for another thread; `spins` grows, and with it the pause.
    fn pause(&self, spins: u32);

    /// The time, in nanoseconds since some instant: virtual where the machine is.
    fn now_ns(&self) -> u64;

    /// Takes the present pages among `count` (at most [`crate::units::MAX_FOLIO_PAGES`]) pages from `first` out of the program's
    /// reach, into the frames of `batch` from `offset` on, page by page at the same distance. `wanted`, counted from `first`,
    /// says which pages are resident. Pages that stay are mapped, unchanged, but perhaps writable that were not.
    /// From the instant a page is taken no write of the program reaches its frame.
    fn take(&self, first: PageNo, count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken;

    /// Which of `count` pages from `first`, counted from there, another process has as well, since a fork. Asked where there was one. Those
    /// of which nobody tells are left out.
    fn shared(&self, first: PageNo, count: usize) -> Mask {
        let _ = (first, count);
        Mask::EMPTY
    }

    /// The same of the frames of a batch.
    fn shared_frames(&self, batch: BatchNo) -> Mask {
        let _ = batch;
        Mask::EMPTY
    }

    /// Gives pages back from frames of `batch` to their places in its block, whose first page is `first`: those of `pages`, each
    /// from the frame at the same distance. `held` says which of the batch's frames hold anything. Returns those that are mapped
    /// again; their frames are empty. They are writable, but that where pages move ([`Machine::moves_back`]), those that were
    /// write-protected when they were taken may be so still.
    fn put_back(&self, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask;

    /// Whether [`Machine::put_back`] moves pages, which is cheap for a single one, too: copying leaves its frame to be freed.
    fn moves_back(&self) -> bool {
        false
    }

    /// The content of a frame that holds a page.
    ///
    /// # Safety
    /// The frame must hold a page, and not be released while the reference lives.
    unsafe fn frame(&self, frame: FrameNo, pages: usize) -> &[u8];

    /// Fills a frame that holds nothing with a page's content. False where there is no memory for it.
    fn fill(&self, frame: FrameNo, content: &[u8]) -> bool;

    /// Something is to be read ahead ([`crate::pager::Pager::read_ahead`]), in a thread that nobody waits for.
    fn ahead_is_asked(&self) {}

    /// A stream is about to enter a block: [`crate::pager::Pager::bring_stream`] is to be called, in a thread that nobody waits for.
    /// False where there is none that has time.
    fn stream_is_asked(&self) -> bool {
        false
    }

    /// Frees all frames of a batch. False where that failed, and nothing changed.
    fn release(&self, batch: BatchNo) -> bool;

    /// Installs whole pages with content from `src`, write-protected if asked and [`Machine::puts_protected`]. Returns how many
    /// pages were installed, and why it stopped.
    fn put(&self, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>);

    /// Whether it can write-protect pages, so that the first write to each is a fault.
    fn write_protects(&self) -> bool;

    /// Whether what is put write-protected is so whatever access there is to it at that moment, also when that changes.
    fn puts_protected(&self) -> bool {
        self.write_protects()
    }

    /// Has the first write to each of these mapped pages noticed. False where that failed, perhaps half way. Asked only where
    /// [`Machine::write_protects`].
    fn forbid_writes(&self, first: PageNo, count: usize) -> bool {
        let _ = (first, count);
        false
    }

    /// Lets the program write to mapped pages, as far as it asked for that. Returns false where that failed.
    fn allow_writes(&self, first: PageNo, count: usize) -> bool;

    /// Installs `count` zero pages.
    fn put_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>);

    /// Whether [`Machine::map_zero`] can be asked now.
    fn maps_zero(&self) -> bool {
        false
    }

    /// Installs `count` zero pages that are memory only once they are written to. Asked only where [`Machine::maps_zero`].
    fn map_zero(&self, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        self.put_zero(first, count)
    }

    /// Whether [`Machine::untrap`] can be asked now.
    fn untraps(&self) -> bool {
        false
    }

    /// Leaves pages that hold nothing to the kernel, which fills them with zeros as they are touched: nobody is told. False where that cannot
    /// be, and nothing changed. Of some that count as left it may not have come to pass: their touches are told all the same.
    fn untrap(&self, first: PageNo, count: usize) -> bool {
        let _ = (first, count);
        false
    }

    /// So many pages are about to count as used, at once, and do so already in the caller's account: who shares the limit is to know of it, and
    /// the limit is to be what they leave.
    fn will_use(&self, pages: usize) {
        let _ = pages;
    }

    /// They do not count as used any more.
    fn uses_less(&self) {}

    /// Has touches of missing pages among these, at most those of a block, noticed again, where some (`left`) were left to the kernel. Of those,
    /// it may take away what holds nothing but zeros. Returns the pages that are there then. `None` where that cannot be, and nothing changed.
    fn trap(&self, first: PageNo, count: usize, left: Mask) -> Option<Mask> {
        let _ = (first, count, left);
        None
    }

    /// Installs the zero pages of a whole folio of [`crate::units::Order::MAX`] as a huge page. False where none can be had, or that
    /// failed, and nothing changed.
    fn put_huge(&self, first: PageNo) -> bool {
        let _ = first;
        false
    }

    /// Whether a mapped page begins with anything but zeros. The page need not be owned: by the time of the answer that may have
    /// changed. False where nobody can say.
    fn is_written(&self, page: PageNo) -> bool {
        let _ = page;
        false
    }

    /// Drops the content of pages that are mapped. Returns whether the program's next touch of them will be noticed; where
    /// not, they stay mapped, as zeros.
    fn drop_pages(&self, first: PageNo, count: usize) -> bool;

    /// Moves one mapped page to another place where none is, where it may be write-protected still if it was. Returns false where that
    /// failed and nothing changed.
    fn transfer(&self, from: PageNo, to: PageNo) -> bool;

    /// Changes the program's access to a range of managed pages. The pages need not be owned.
    fn protect(&self, first: PageNo, count: usize, prot: Prot) -> bool;

    /// Smallest number of pages that one fault should install: 1, or more where the machine has a coarse grain.
    fn grain(&self) -> usize;

    /// A call is about to use a page that is not resident; `fresh` where it has no content. For machines that record accesses.
    fn used_by_call(&self, page: PageNo, fresh: bool) {
        let _ = (page, fresh);
    }

    /// Pages are about to lose their content, of which some may have none: of what goes at once, a few MiB at a time. For machines that record
    /// accesses, or tell others what they use.
    fn discarded(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Counts.
    fn count(&self, event: Event, n: u64);
}
