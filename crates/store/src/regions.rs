//! The memory of a store: regions that are mapped as it is made, and unmapped together.
use crate::io::rlimit;
use crate::limits::MAX_REGIONS;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{Errno, os, tables};

/// Regions mapped for one store. All-zero memory: none.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    /// Where they begin, and their sizes in bytes.
    mapped: [(usize, usize); MAX_REGIONS],
    count: usize,
}

impl Regions {
    /// None yet.
    pub const NONE: Regions = Regions { mapped: [(0, 0); MAX_REGIONS], count: 0 };

    /// Maps zeroed memory, for this process alone or shared with those that it forks. Returns where it begins.
    pub fn map(&mut self, bytes: usize, shared: bool) -> Result<usize, Errno> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let at = if shared {
            let flags = os::MAP_SHARED | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
            // SAFETY: no address given, so nothing is replaced.
            let at = unsafe { os::mmap(0, bytes, os::PROT_READ | os::PROT_WRITE, flags, -1, 0)? };
            // What is swapped out is not for core dumps, least of all the key; failing is harmless.
            // SAFETY: an advice that drops nothing.
            let _ = unsafe { os::madvise(at, bytes, os::MADV_DONTDUMP) };
            at
        } else {
            tables::map(bytes)?
        };
        self.mapped[self.count] = (at, bytes);
        self.count += 1;
        Ok(at)
    }

    /// Unmaps all of them.
    ///
    /// # Safety
    /// Nothing refers to the regions any more.
    pub unsafe fn unmap(&self) {
        for &(at, bytes) in &self.mapped[..self.count] {
            // SAFETY: mapped by `map`; the rest is as the caller says.
            let _ = unsafe { os::munmap(at, bytes) };
        }
    }
}

/// The process's limit of address space, if it has one.
pub(crate) fn address_space_limit_bytes() -> Option<u64> {
    const RLIMIT_AS: usize = 9;
    let limit_bytes = rlimit(RLIMIT_AS);
    (limit_bytes != u64::MAX).then_some(limit_bytes)
}
