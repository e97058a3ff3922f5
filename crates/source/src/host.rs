//! What a fault source is, and what it asks of the process that it works for.
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{BLOCK_PAGES, FrameNo, PAGE_BYTES, PageNo};
use outswap_core::vma::Vma;
use outswap_sys::uffd::Uffd;
use outswap_sys::{Result, os};

/// Attempts while the kernel asks to try again; it does so while another thread changes the address space.
pub const RETRIES: u32 = 100;
/// Most pages that a source may want to come in together; a power of two.
pub const GRAIN_MAX_PAGES: usize = 16;
const _: () = assert!(GRAIN_MAX_PAGES.is_power_of_two());

/// The process that a fault source works for: a managed one, or one that tries a source out.
pub trait Host {
    /// The descriptor that [`FaultSource::open`] gave, perhaps under another number.
    fn source_fd(&self) -> i32;
    /// Address of a page.
    fn address(&self, page: PageNo) -> usize;
    /// Address of a batch's frame.
    fn batch_address(&self, batch: BatchNo, offset: usize) -> usize;
    /// Address of a frame by its number.
    fn frame_address(&self, frame: FrameNo) -> usize {
        let (batch, offset) = (frame.0 / BLOCK_PAGES as u32, frame.0 as usize % BLOCK_PAGES);
        self.batch_address(BatchNo(batch), offset)
    }
    /// Called while the kernel asks to try again; `tries` grows.
    fn wait(&self, tries: u32);
    /// Adds to a counter.
    fn stat(&self, stat: Stat, n: u64);
    /// Tells the user something.
    fn post(&self, text: &[u8]);
    /// The mapping around a page.
    fn find(&self, page: PageNo) -> Option<Vma>;
    /// The first part of a mapping in a range of pages.
    fn next_in(&self, page: u32, end: u32) -> Option<Vma>;
    /// How many pages may be resident; `None` before the process is set up.
    fn limit_pages(&self) -> Option<u64>;
    /// Pages of the managed range, mapped or not.
    fn pages(&self) -> u32;
    /// Whether nobody but the caller can touch managed memory before it returns to the program: there is no other thread of the
    /// program's, and no process that shares its memory. When in doubt, false.
    fn is_alone(&self) -> bool;
    /// Gives a batch frames that hold nothing, in place of what is mapped there. False where that failed, and nothing changed.
    #[must_use]
    fn new_frames(&self, batch: BatchNo) -> bool;
    /// Whether pages of this block came as part of a huge page ([`outswap_core::machine::Machine::put_huge`]) that was not split since; it
    /// counts as split from now on.
    fn split_huge(&self, _first: PageNo) -> bool {
        false
    }
    /// Waits until nobody owns a page of a range who may have looked at the map before now.
    fn settle_range(&self, first: PageNo, count: u32);
    /// Calls `f` for the resident pages of a range, which stay resident meanwhile. Returns whether `f` always said yes.
    fn with_resident(&self, first: PageNo, count: u32, f: impl FnMut(PageNo, usize) -> bool) -> bool;

    /// The source's descriptor, of a source that uses userfaultfd.
    fn uffd(&self) -> Uffd {
        Uffd(self.source_fd())
    }

    /// Drops the content of pages that the caller owns. False where the kernel refuses, which it does for locked memory.
    #[must_use]
    fn drop_content(&self, first: PageNo, count: usize) -> bool {
        // SAFETY: the caller owns the pages, whose content is to go; Rust keeps no reference into managed memory.
        unsafe { os::madvise(self.address(first), count * PAGE_BYTES, os::MADV_DONTNEED) }.is_ok()
    }

    /// Frees frames of a batch, which is the caller's, that hold nothing needed. Where the kernel refuses, which it does for locked
    /// memory, that is done when the batch is released.
    fn empty_frames(&self, batch: BatchNo, frames: Mask) {
        for (at, len) in frames.runs() {
            // SAFETY: the batch is the caller's, and these frames hold nothing that is needed.
            let _ = unsafe { os::madvise(self.batch_address(batch, at), len * PAGE_BYTES, os::MADV_DONTNEED) };
        }
    }

    /// Empties the frames of a batch, which nobody needs any more. False where the kernel refuses.
    #[must_use]
    fn drop_frames(&self, batch: BatchNo) -> bool {
        let at = self.batch_address(batch, 0);
        // SAFETY: the batch is the caller's, and no frame of it is needed any more.
        unsafe { os::madvise(at, BLOCK_PAGES * PAGE_BYTES, os::MADV_DONTNEED) }.is_ok()
    }

    /// Changes the access that the kernel grants to pages.
    ///
    /// # Errors
    /// `ENOMEM` where the kernel has no room for another mapping, or has nothing mapped there.
    fn set_access(&self, first: PageNo, count: usize, prot: Prot) -> Result<()> {
        // SAFETY: managed memory is never accessed by Rust except through pages known to be accessible.
        unsafe { os::mprotect(self.address(first), count * PAGE_BYTES, prot.0 as usize) }
    }
}

/// Fills a frame, for sources whose frames are ordinary memory. See [`outswap_core::machine::Machine::fill`].
pub fn fill_plainly(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
    assert_eq!(content.len(), PAGE_BYTES, "a frame holds a page");
    // SAFETY: the frame is the caller's, and the content is a page.
    unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), host.frame_address(frame) as *mut u8, PAGE_BYTES) };
    true
}

/// A thread that has best take pages out of the program's reach.
///
/// Whoever does so flushes the TLB of each other processor that runs a thread of the process. On a virtual machine whose hypervisor
/// passes interrupts on, that took 16 us of who flushed and 9 to 11 us of each that was interrupted (`outswap-bench sources`, "flush").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taker {
    /// The one that has just touched a page, while the background thread sleeps: where no other runs, nobody is interrupted. It frees
    /// frames as well.
    Toucher,
    /// The same where it is the program's only one; where it is not, the background thread.
    Lone,
}

/// A fault source. What is not said here is as in [`outswap_core::machine::Machine`].
///
/// It makes its system calls through [`outswap_sys`], which issues them from where a managed process's filter lets them pass.
pub trait FaultSource {
    /// Whether the kernel cannot tell a missing page from one that the program has no access to, so that the map is asked.
    const ASKS_MAP: bool = false;
    /// Whether memory has other access than the program gave it where a page is missing, or comes or goes, and is given it back then.
    const CHANGES_ACCESS: bool = false;
    /// Whether a forked child that was not told the source finds zeros where a page is missing, and not a fault.
    const LOSES_PAGES: bool = false;
    /// See [`outswap_core::machine::Machine::write_protects`].
    const WRITE_PROTECTS: bool = false;
    /// Whether it can have a huge page moved into managed memory.
    const MOVES_HUGE: bool = false;
    /// Whether the kernel finds zeros where a page is on its way in or out, if it looks for another process just then.
    const SHOWS_ZEROS: bool = false;
    /// Who has best take pages.
    const TAKER: Taker = Taker::Toucher;

    /// Learns what it must know of this system, once, before anything else.
    fn learn() {}
    /// Opens what it needs; whoever asked may give it another number.
    ///
    /// # Errors
    /// Those of the system call that makes the descriptor: the source does not work here.
    fn open() -> Result<i32>;
    /// Registers a range of managed or staging memory, whole pages.
    ///
    /// # Errors
    /// The kernel's, for memory that cannot be registered.
    fn register(fd: i32, addr: usize, len: usize) -> Result<()>;
    /// A range is reserved address space again, after the kernel managed something there; nothing of ours is mapped there yet.
    ///
    /// # Errors
    /// The kernel's.
    fn renew(_host: &impl Host, _first: PageNo, _count: u32) -> Result<()> {
        Ok(())
    }
    /// Runs `f`, which has the kernel manage a range from now on: the source does nothing meanwhile to what is free in the map.
    fn while_still<R>(_host: &impl Host, f: impl FnOnce() -> R) -> R {
        f()
    }
    /// Whether a signal may be about a missing page of managed memory.
    fn may_be_missing(signal: i32, code: i32) -> bool;
    /// Whether it is, as the map says; `err` is the processor's error code. Asked only of a source that [`Self::ASKS_MAP`].
    fn is_missing(_host: &impl Host, _page: PageNo, _err: u64) -> bool {
        true
    }
    /// Of so many writable managed pages, those that the kernel counts as data; `resident` of them are there.
    fn counted_pages(_host: &impl Host, writable: u64, _resident: u64) -> u64 {
        writable
    }

    /// See [`outswap_core::machine::Machine::take`].
    fn take(host: &impl Host, first: PageNo, count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken;
    /// See [`outswap_core::machine::Machine::put_back`].
    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask;
    /// See [`outswap_core::machine::Machine::moves_back`].
    const MOVES_BACK: bool = false;
    /// See [`outswap_core::machine::Machine::put`].
    fn put(host: &impl Host, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>);
    /// See [`outswap_core::machine::Machine::forbid_writes`].
    fn forbid_writes(_host: &impl Host, _first: PageNo, _count: usize) -> bool {
        false
    }
    /// See [`outswap_core::machine::Machine::allow_writes`].
    fn allow_writes(_host: &impl Host, _first: PageNo, _count: usize) -> bool {
        true
    }
    /// See [`outswap_core::machine::Machine::put_zero`].
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>);
    /// Whether pages of zeros can be mapped that are no memory before they are written to: then that is done by [`FaultSource::map_zero`].
    const MAPS_ZERO: bool = false;
    /// See [`outswap_core::machine::Machine::map_zero`].
    fn map_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        Self::put_zero(host, first, count)
    }
    /// Whether pages can be left to the kernel: then that is done by [`FaultSource::untrap`], and ended by [`FaultSource::register`].
    const UNTRAPS: bool = false;
    /// See [`outswap_core::machine::Machine::untrap`].
    fn untrap(_host: &impl Host, _first: PageNo, _count: usize) -> bool {
        false
    }
    /// Moves a huge page of zeros from elsewhere to the pages from `first` on, which hold nothing. False where that failed; then nothing
    /// is mapped there.
    fn put_huge(_host: &impl Host, _first: PageNo, _from: usize) -> bool {
        false
    }
    /// See [`outswap_core::machine::Machine::drop_pages`].
    fn drop_pages(host: &impl Host, first: PageNo, count: usize) -> bool {
        assert!(host.drop_content(first, count), "managed pages can be dropped");
        true
    }
    /// Fills a frame that holds nothing. See [`outswap_core::machine::Machine::fill`].
    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool;
    /// See [`outswap_core::machine::Machine::release`].
    fn release(host: &impl Host, batch: BatchNo) -> bool {
        host.drop_frames(batch)
    }
    /// See [`outswap_core::machine::Machine::transfer`].
    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool;
    /// See [`outswap_core::machine::Machine::protect`].
    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool;
    /// See [`outswap_core::machine::Machine::grain`]: a power of two, at most [`GRAIN_MAX_PAGES`].
    fn grain(_host: &impl Host) -> usize {
        1
    }
}
