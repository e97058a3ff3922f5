//! Forks that nobody saw: made by an instruction in code that was loaded or written after start, which no filter knows.
//!
//! The child's memory is a copy, but nobody brings in what is missing there: the fault source serves the parent alone, and what the
//! runtime does through descriptors would reach the parent's memory. So with userfaultfd, where a missing page would read as zeros,
//! managed memory is inherited only at the moment of a fork that the runtime makes itself; with the other sources, missing pages
//! have no access in the child either. Whoever then touches managed memory there is ended with a message. Calls go to the kernel as
//! they are: such a child can execute a program, or end.
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use outswap_sys::{PAGE_BYTES, Result, os};

/// A word of memory that is empty in a forked child.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the mark.
///
/// # Errors
/// Where there is no memory for it.
pub fn reserve() -> Result<()> {
    const MADV_WIPEONFORK: usize = 18;
    let at = os::mmap_anonymous(PAGE_BYTES)?;
    // SAFETY: a fresh page, which a child finds empty.
    unsafe { os::madvise(at, PAGE_BYTES, MADV_WIPEONFORK)? };
    MARK.store(at as *mut AtomicU32, Release);
    adopt();
    Ok(())
}

/// In a process that the runtime knows: at start, and in each child that it makes.
pub fn adopt() {
    // SAFETY: a page that is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Acquire).as_ref() } {
        mark.store(1, Release);
    }
}

/// Whether the runtime does not know this process.
pub fn is_here() -> bool {
    // SAFETY: as above.
    unsafe { MARK.load(Acquire).as_ref() }.is_some_and(|mark| mark.load(Relaxed) == 0)
}
