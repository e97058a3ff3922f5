//! What a fault source is, and what it asks of the process that it works for.
use crate::arena::drop_content;
use outswap_control::Stat;
use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::mask::Mask;
use outswap_core::units::PageNo;
use outswap_core::vma::Vma;
use outswap_sys::Result;
use outswap_sys::uffd::Uffd;

/// The process that a fault source works for.
pub trait Host {
    /// The descriptor that [`FaultSource::open`] gave.
    fn source_fd(&self) -> i32;
    /// Address of a batch's frame.
    fn batch_address(&self, batch: BatchNo, offset: usize) -> usize;
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
    /// Waits until nobody owns a page of a range who may have looked at the map before now.
    fn settle_range(&self, first: PageNo, count: u32);
    /// Calls `f` for the resident pages of a range, which stay resident meanwhile. Returns whether `f` always said yes.
    fn with_resident(&self, first: PageNo, count: u32, f: impl FnMut(PageNo, usize) -> bool) -> bool;

    /// The source's descriptor, of a source that uses userfaultfd.
    fn uffd(&self) -> Uffd {
        Uffd(self.source_fd())
    }
}

/// A fault source. What is not said here is as in [`outswap_core::machine::Machine`].
pub trait FaultSource {
    /// Its number in the control block.
    const NUMBER: u32;
    /// Whether the kernel cannot tell a missing page from one that the program has no access to, so that the map is asked.
    const ASKS_MAP: bool = false;

    /// Learns what it must know of this system, once, before anything else.
    fn learn() {}
    /// Opens what it needs, at a descriptor of at least `min_fd`.
    ///
    /// # Errors
    /// Those of the system call that makes the descriptor: the source does not work here.
    fn open(min_fd: i32) -> Result<i32>;
    /// Registers a range of managed or staging memory, whole pages.
    ///
    /// # Errors
    /// The kernel's, for memory that cannot be registered.
    fn register(fd: i32, addr: usize, len: usize) -> Result<()>;
    /// Whether a signal may be about a missing page of managed memory.
    fn may_be_missing(signal: i32, code: i32) -> bool;
    /// Whether it is, as the map says; `err` is the processor's error code. Asked only of a source that [`Self::ASKS_MAP`].
    fn is_missing(_host: &impl Host, _page: PageNo, _err: u64) -> bool {
        true
    }
    /// Of so many writable managed pages, those that the kernel counts as data; `resident` of them are there.
    fn counted_pages(writable: u64, _resident: u64) -> u64 {
        writable
    }

    /// See [`outswap_core::machine::Machine::take`].
    fn take(host: &impl Host, first: PageNo, count: usize, present: Mask, batch: BatchNo, offset: usize) -> Mask;
    /// See [`outswap_core::machine::Machine::put`].
    fn put(host: &impl Host, first: PageNo, src: &[u8]) -> (usize, Option<PutError>);
    /// See [`outswap_core::machine::Machine::put_zero`].
    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>);
    /// See [`outswap_core::machine::Machine::drop_pages`].
    fn drop_pages(first: PageNo, count: usize) -> bool {
        assert!(drop_content(first, count), "managed pages can be dropped");
        true
    }
    /// See [`outswap_core::machine::Machine::transfer`].
    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool;
    /// See [`outswap_core::machine::Machine::protect`].
    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool;
    /// See [`outswap_core::machine::Machine::grain`].
    fn grain(_host: &impl Host) -> usize {
        1
    }
}
