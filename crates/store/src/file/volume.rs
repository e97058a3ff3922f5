//! One file, as one process knows it.
use super::users::{FOR_EVER, SharedTable, Table};
use crate::io;
use crate::limits::{MAX_USERS, USER_WORDS};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use outswap_sys::os;

/// A descriptor, or none, which is what all-zero memory is.
pub(super) struct Descriptor {
    /// The number + 1; 0 for none.
    word: AtomicI32,
}

impl Descriptor {
    /// Its number.
    pub fn get(&self) -> Option<i32> {
        let fd = self.word.load(Acquire);
        (fd != 0).then_some(fd - 1)
    }

    /// Is this descriptor from now on.
    pub fn set(&self, fd: i32) {
        self.word.store(fd + 1, Release);
    }

    /// Is none from now on; what it was is not closed.
    pub fn forget(&self) {
        self.word.store(0, Release);
    }

    /// Closes it, if there is one.
    pub fn close(&self) {
        if let Some(fd) = self.get() {
            // Closed before it is forgotten: until then the runtime keeps the program from using the number.
            let _ = os::close(fd);
            self.forget();
        }
    }
}

/// No file.
pub(super) const FREE: u32 = 0;
/// A file that this process needs.
pub(super) const HELD: u32 = 1;
/// A file that this process does not need any more, and that is closed once nobody reads it.
pub(super) const CLOSING: u32 = 2;
/// Such a file that is being closed: its place is no other's yet.
const ENDING: u32 = 3;

/// What a process knows of one file. Private memory; all-zero is no file.
pub(super) struct Volume {
    pub state: AtomicU32,
    /// For reading.
    fd: Descriptor,
    /// Device, inode and number of names of the file, by which it is known from what a program put in the place of a descriptor.
    identity: [AtomicU64; 3],
    /// Who needs what of it, if it was ever shared.
    pub table: SharedTable,
    /// This process's number in the table.
    pub user: AtomicU32,
    /// Numbers there that this process reserved for its children, a bit each.
    forked: [AtomicU64; USER_WORDS],
    /// This process has nothing in segments from this number on.
    pub bound: AtomicU32,
    /// Segments in which this process has something.
    pub live_segments: AtomicU32,
    readers: AtomicU32,
    /// Number in the family + 1; 0 for none.
    pub family: AtomicU32,
}

impl Volume {
    /// Begins with a newly opened file.
    pub fn begin(&self, fd: i32, family: Option<usize>) {
        let status = os::fstat(fd).unwrap_or_default();
        self.identity[0].store(status.device, Release);
        self.identity[1].store(status.inode, Release);
        self.identity[2].store(status.links, Release);
        self.fd.set(fd);
        self.table.reset();
        self.forked.iter().for_each(|word| word.store(0, Relaxed));
        self.bound.store(0, Release);
        self.live_segments.store(0, Release);
        self.family.store(family.map_or(0, |id| id as u32 + 1), Release);
        self.state.store(HELD, SeqCst);
    }

    /// In a forked child: what was the parent's is now only read, as `user`; what it does not need is to be closed.
    pub fn begin_child(&self, user: usize, parent_pid: i32, pid: i32, pids_unknown: bool) {
        // Threads that read are the parent's.
        self.readers.store(0, SeqCst);
        self.forked.iter().for_each(|word| word.store(0, Relaxed));
        self.user.store(user.min(FOR_EVER) as u32, Relaxed);
        if self.state.load(SeqCst) != FREE && user > FOR_EVER {
            self.state.store(CLOSING, SeqCst);
        }
        if let Some(table) = self.table.head() {
            if pids_unknown {
                table.pids_unknown.store(1, Release);
            }
            if user < MAX_USERS && !table.users.claim(user, parent_pid, pid, pids_unknown) {
                // What it does not keep it will not find, or find changed, and say so.
                self.user.store(FOR_EVER as u32, Relaxed);
            }
        }
    }

    /// The descriptor for reading.
    pub fn fd(&self) -> Option<i32> {
        self.fd.get()
    }

    /// Whether a descriptor is of this file still. Where the numbers that the runtime guards are not to be had, a program can
    /// close one of ours and have another file under its number.
    pub fn is_of(&self, fd: i32) -> bool {
        // Another file that was given its inode has a name, unless it was made like ours, which has none. (With NFS ours has a hidden
        // one as long as it is open.)
        os::fstat(fd).is_ok_and(|status| {
            let now = [status.device, status.inode, status.links];
            now.iter().zip(&self.identity).all(|(is, was)| *is == was.load(Acquire))
        })
    }

    /// Calls `read` with the descriptor, which is not closed meanwhile; `None` where the file is not there any more.
    pub fn reading<T>(&self, read: impl FnOnce(i32) -> T) -> Option<T> {
        self.readers.fetch_add(1, SeqCst);
        let fd = if self.state.load(SeqCst) == HELD { self.fd() } else { None };
        let result = fd.map(read);
        self.readers.fetch_sub(1, SeqCst);
        result
    }

    /// Takes a user's marks off all segments that this process knows.
    pub fn leave_all(&self, user: usize) {
        self.table.leave_all(self.bound.load(Acquire), user);
    }

    /// Gives up what processes needed that are dead or have executed a program. Returns whether there were any. For the file's
    /// writer: it knows all segments of which some may be marked.
    pub fn reap(&self, reserved: bool) -> bool {
        self.reap_of(reserved, |_| true)
    }

    /// Does so for this process's children: they need nothing of the file that it does not know.
    pub fn reap_forked(&self) -> bool {
        self.reap_of(true, |user| self.forked[user / 64].load(Relaxed) >> (user % 64) & 1 != 0)
    }

    fn reap_of(&self, reserved: bool, is_of: impl Fn(usize) -> bool) -> bool {
        let Some((table, fd)) = self.table.head().zip(self.fd()) else { return false };
        let can_tell = |user| is_of(user) && table.pids_unknown.load(Acquire) == 0;
        let is_gone = |user| is_of(user) && io::is_unlocked(fd, user);
        table.users.reap(reserved, can_tell, is_gone, |user| self.leave_all(user))
    }

    /// A number in the table was reserved for a child of this process.
    pub fn reserved(&self, user: usize) {
        self.forked[user / 64].fetch_or(1 << (user % 64), Relaxed);
    }

    /// Before this process executes a program, which ends its share in the file: until that has happened, it holds a lock that
    /// the kernel releases as it closes the descriptor. Where locks do not work, the process counts as long as its number lives.
    pub fn begin_exec(&self, pid: i32) {
        if let (HELD, Some((table, user)), Some(fd)) = (self.state.load(SeqCst), self.table_of_user(), self.fd())
            && io::lock(fd, user, true)
        {
            table.users.executes(user, pid, true);
        }
    }

    /// After such an attempt failed.
    pub fn exec_failed(&self, pid: i32) {
        if let (Some((table, user)), Some(fd)) = (self.table_of_user(), self.fd()) {
            table.users.executes(user, pid, false);
            io::lock(fd, user, false);
        }
    }

    fn table_of_user(&self) -> Option<(&Table, usize)> {
        let user = self.user.load(Relaxed) as usize;
        self.table.head().zip((user < MAX_USERS).then_some(user))
    }

    /// Closes the file once nobody reads it; this process needs it no more. Returns its number in the family, once.
    pub fn close_if_idle(&self, segments: u32) -> Option<usize> {
        if self.readers.load(SeqCst) != 0 || self.state.compare_exchange(CLOSING, ENDING, SeqCst, SeqCst).is_err() {
            return None;
        }
        if let Some(fd) = self.fd() {
            // Closed before it is forgotten: until then the runtime keeps the program from using the number.
            if self.is_of(fd) {
                let _ = os::close(fd);
            }
            self.fd.forget();
        }
        let user = self.user.load(Relaxed) as usize;
        if let Some(table) = self.table.head()
            && user < MAX_USERS
        {
            table.users.set(user, 0);
        }
        // SAFETY: the file is not this process's any more, and nobody reads it.
        unsafe { self.table.unmap(segments) };
        let number = (self.family.swap(0, AcqRel) as usize).checked_sub(1);
        // Another file may have the place from here on.
        self.state.store(FREE, SeqCst);
        number
    }
}
