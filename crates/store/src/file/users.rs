//! Who needs what of a file that was shared: a table in shared memory, one bit for each segment and process.
//!
//! Everyone who shares the file can write it, and one of them may be hostile: nothing that is read here is used as an index,
//! a length or a bound of a loop.
use super::pids::Pids;
use crate::limits::{MAX_USERS, USER_WORDS, VOLUME_ORDER};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// The user that stands for all whose number is not known: what it needs is never freed.
pub(super) const FOR_EVER: usize = MAX_USERS;

/// What all who share a file see. One `Users` for each segment follows.
#[repr(C)]
pub(crate) struct Table {
    /// Counts how often someone gave up a segment, so that the file's writer knows when to look.
    pub left: AtomicU32,
    /// A child lives in another pid namespace: processes can no longer be told dead by their number.
    pub pids_unknown: AtomicU32,
    pub users: Pids<MAX_USERS>,
    _pad: u32,
}

/// One bit for each process that needs the segment.
type Users = [AtomicU64; USER_WORDS];

/// Bytes of a file's table.
fn table_bytes(segments: u32) -> usize {
    (size_of::<Table>() + segments as usize * size_of::<Users>()).next_multiple_of(PAGE_BYTES)
}

/// Where this process has a file's table. All-zero memory: the file was never shared.
pub(super) struct SharedTable {
    at: AtomicUsize,
}

impl SharedTable {
    /// The table, if the file was ever shared.
    pub fn head(&self) -> Option<&Table> {
        let at = self.at.load(Acquire) as *const Table;
        // SAFETY: null, or a table that stays mapped while this process has something in the file.
        unsafe { at.as_ref() }
    }

    /// Who needs a segment, if the file was ever shared. `number` is from private memory, below the file's size.
    fn users(&self, number: u32) -> Option<&Users> {
        let at = self.at.load(Acquire);
        debug_assert!(number < 1 << VOLUME_ORDER);
        // SAFETY: as in `head`; an entry for each segment of the file lies behind the head.
        (at != 0).then(|| unsafe { &*((at + size_of::<Table>()) as *const Users).add(number as usize) })
    }

    /// Makes the table, in the file's writer.
    pub fn make(&self, segments: u32) -> Option<&Table> {
        if self.at.load(Acquire) == 0 {
            let flags = os::MAP_SHARED | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
            let bytes = table_bytes(segments);
            // SAFETY: no address given, so nothing is replaced.
            let at = unsafe { os::mmap(0, bytes, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.ok()?;
            // SAFETY: an advice that drops nothing; failing is harmless.
            let _ = unsafe { os::madvise(at, bytes, os::MADV_DONTDUMP) };
            self.at.store(at, Release);
        }
        self.head()
    }

    /// There is none: the place is for a new file.
    pub fn reset(&self) {
        self.at.store(0, Release);
    }

    /// Unmaps the table of a file of so many segments.
    ///
    /// # Safety
    /// Nobody in this process uses it any more.
    pub unsafe fn unmap(&self, segments: u32) {
        let at = self.at.load(Acquire);
        if at != 0 {
            // SAFETY: mapped by `make` with this size, here or in an ancestor; whoever used it is through.
            let _ = unsafe { os::munmap(at, table_bytes(segments)) };
            self.reset();
        }
    }

    /// Marks a segment as needed by a user.
    pub fn join(&self, number: u32, user: usize) {
        if let Some(users) = self.users(number) {
            users[user / 64].fetch_or(1 << (user % 64), AcqRel);
        }
    }

    /// Takes a user's mark off a segment.
    pub fn leave(&self, number: u32, user: usize) {
        if user == FOR_EVER {
            return;
        }
        if let (Some(users), Some(table)) = (self.users(number), self.head()) {
            users[user / 64].fetch_and(!(1 << (user % 64)), AcqRel);
            table.left.fetch_add(1, AcqRel);
        }
    }

    /// Takes a user's marks off all segments below `bound`.
    pub fn leave_all(&self, bound: u32, user: usize) {
        for number in 0..bound {
            if self.users(number).is_some_and(|users| users[user / 64].load(Acquire) >> (user % 64) & 1 != 0) {
                self.leave(number, user);
            }
        }
    }

    /// Whether another process needs a segment.
    pub fn is_shared(&self, number: u32) -> bool {
        self.users(number).is_some_and(|users| users.iter().any(|word| word.load(Acquire) != 0))
    }

    #[cfg(test)]
    pub fn table_words(&self, segments: u32) -> usize {
        table_bytes(segments) / 8
    }
}
