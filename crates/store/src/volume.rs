//! The files of a process: the one that it writes, and those of the processes that it stems from, which it only reads.
//!
//! Each file has one writer. What others need of it stands in a table in shared memory, with one bit for each segment and
//! each process that shares the file; the writer makes it when it first forks, and frees a segment when it does not need
//! it itself and no bit is left.
//!
//! Everyone who shares a file can write its table, and one of them may be hostile. So nothing that is read from shared
//! memory is used as an index, a length or a bound of a loop, and which segments hold something of this process's own is
//! known from private memory alone. Wrong bits can make a file larger, or take from others what they share with its
//! writer: they then see that, because what they read is authenticated.
use crate::file::SEGMENT_BYTES;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{Errno, os};

/// Files that a process can need at the same time, its own among them.
pub const MAX_VOLUMES: usize = 16;
/// log2 of the most segments of a file.
pub(crate) const VOLUME_ORDER: u32 = 22;
/// Processes that can share a file with its writer at the same time. One more bit stands for "for ever".
pub const MAX_USERS: usize = 127;
pub(crate) const FOR_EVER: usize = MAX_USERS;

/// The file that a segment's number belongs to.
pub(crate) fn volume_of(segment: u32) -> usize {
    segment as usize >> VOLUME_ORDER
}

/// A segment's number within its file.
pub(crate) fn number_of(segment: u32) -> u32 {
    segment & ((1 << VOLUME_ORDER) - 1)
}

/// The number of a segment among those of all files.
pub(crate) fn segment_of(volume: usize, number: u32) -> u32 {
    (volume as u32) << VOLUME_ORDER | number
}

/// Between fork and the child's first step.
const RESERVED: i32 = i32::MIN;

/// Processes by number, in shared memory: 0 free, negative while what a dead one held is given up.
pub(crate) struct Pids<const N: usize>([AtomicI32; N]);

impl<const N: usize> Pids<N> {
    /// Takes a number for a process that is about to be forked.
    pub fn reserve(&self) -> Option<usize> {
        self.0
            .iter()
            .position(|pid| pid.load(Relaxed) == 0 && pid.compare_exchange(0, RESERVED, AcqRel, Relaxed).is_ok())
    }

    /// In the parent: the reserved number is this process's. The child may have said so itself, or have ended already.
    pub fn confirm(&self, user: usize, pid: i32) {
        let _ = self.0[user].compare_exchange(RESERVED, pid, AcqRel, Relaxed);
    }

    /// Sets a number's process, 0 for none.
    pub fn set(&self, user: usize, pid: i32) {
        self.0[user].store(pid, Release);
    }

    /// Calls `forget` for each number whose process is dead, then frees it. Returns whether there were any.
    pub fn reap(&self, mut forget: impl FnMut(usize)) -> bool {
        let me = os::getpid();
        let mut any = false;
        for (user, entry) in self.0.iter().enumerate() {
            let pid = entry.load(Acquire);
            // A negative number: who gave up what it held died too.
            if pid == 0 || pid == RESERVED || pid.abs() == me || os::kill(pid.abs(), 0) != Err(Errno::ESRCH) {
                continue;
            }
            if entry.compare_exchange(pid, -me, AcqRel, Relaxed).is_err() {
                continue;
            }
            forget(user);
            entry.store(0, Release);
            any = true;
        }
        any
    }
}

/// What all who share a file see. One [`Users`] for each segment follows.
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
pub(crate) type Users = [AtomicU64; 2];

/// Bytes of a file's table.
fn table_bytes(segments: u32) -> usize {
    (size_of::<Table>() + segments as usize * size_of::<Users>()).next_multiple_of(PAGE_BYTES)
}

/// No file.
pub(crate) const FREE: u32 = 0;
/// A file that this process needs.
pub(crate) const HELD: u32 = 1;
/// A file that this process does not need any more, and that is closed once nobody reads it.
pub(crate) const CLOSING: u32 = 2;

/// What a process knows of one file. Private memory; all-zero is no file.
pub(crate) struct Volume {
    pub state: AtomicU32,
    /// Descriptor for reading + 1; 0 for none.
    fd: AtomicI32,
    /// Device and inode of the file, by which it is known from what a program put in the place of a descriptor.
    identity: [AtomicU64; 2],
    table: AtomicUsize,
    /// This process's number in the table.
    pub user: AtomicU32,
    /// This process has nothing in segments from this number on.
    pub bound: AtomicU32,
    /// Segments in which this process has something.
    pub live_segments: AtomicU32,
    readers: AtomicU32,
    /// Number in the [`Family`] + 1; 0 for none.
    pub family: AtomicU32,
}

impl Volume {
    /// Begins with a newly opened file.
    pub fn begin(&self, fd: i32, family: Option<usize>) {
        let status = os::fstat(fd).unwrap_or_default();
        self.identity[0].store(status.device, Release);
        self.identity[1].store(status.inode, Release);
        self.fd.store(fd + 1, Release);
        self.table.store(0, Release);
        self.bound.store(0, Release);
        self.live_segments.store(0, Release);
        self.family.store(family.map_or(0, |id| id as u32 + 1), Release);
        self.state.store(HELD, SeqCst);
    }

    /// In a forked child: what was the parent's is now only read, as `user`; what it does not need is to be closed.
    pub fn begin_child(&self, user: usize, pid: i32, pids_unknown: bool) {
        // Threads that read are the parent's.
        self.readers.store(0, SeqCst);
        self.user.store(user.min(FOR_EVER) as u32, Relaxed);
        if self.state.load(SeqCst) != FREE && user > FOR_EVER {
            self.state.store(CLOSING, SeqCst);
        }
        if let Some(table) = self.table() {
            if user < MAX_USERS {
                table.users.set(user, pid);
            }
            if pids_unknown {
                table.pids_unknown.store(1, Release);
            }
        }
    }

    /// The descriptor for reading.
    pub fn fd(&self) -> Option<i32> {
        let fd = self.fd.load(Acquire);
        (fd != 0).then_some(fd - 1)
    }

    /// Whether a descriptor is of this file still. Where the numbers that the engine guards are not to be had, a program can
    /// close one of ours and have another file under its number.
    pub fn is_of(&self, fd: i32) -> bool {
        let [device, inode] = &self.identity;
        // The file has no name; another that was given its inode has one, unless it was made like ours.
        os::fstat(fd).is_ok_and(|status| {
            (status.device, status.inode, status.links) == (device.load(Acquire), inode.load(Acquire), 0)
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

    /// The table, if the file was ever shared.
    pub fn table(&self) -> Option<&Table> {
        let at = self.table.load(Acquire) as *const Table;
        // SAFETY: null, or a table that stays mapped while this process has something in the file.
        unsafe { at.as_ref() }
    }

    /// Who needs a segment, if the file was ever shared. `number` is from private memory, below the file's size.
    pub fn users(&self, number: u32) -> Option<&Users> {
        let at = self.table.load(Acquire);
        debug_assert!(number < 1 << VOLUME_ORDER);
        // SAFETY: as in `table`; an entry for each segment of the file lies behind the head.
        (at != 0).then(|| unsafe { &*((at + size_of::<Table>()) as *const Users).add(number as usize) })
    }

    /// Makes the table, in the file's writer.
    pub fn share(&self, segments: u32) -> Option<&Table> {
        if self.table.load(Acquire) == 0 {
            let flags = os::MAP_SHARED | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
            let bytes = table_bytes(segments);
            // SAFETY: no address given, so nothing is replaced.
            let at = unsafe { os::mmap(0, bytes, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.ok()?;
            // SAFETY: an advice that drops nothing; failing is harmless.
            let _ = unsafe { os::madvise(at, bytes, os::MADV_DONTDUMP) };
            self.table.store(at, Release);
        }
        self.table()
    }

    #[cfg(test)]
    pub fn table_words(&self, segments: u32) -> usize {
        table_bytes(segments) / 8
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
        if let (Some(users), Some(table)) = (self.users(number), self.table()) {
            users[user / 64].fetch_and(!(1 << (user % 64)), AcqRel);
            table.left.fetch_add(1, AcqRel);
        }
    }

    /// Takes a user's marks off all segments that this process knows.
    pub fn leave_all(&self, user: usize) {
        for number in 0..self.bound.load(Acquire) {
            if self.users(number).is_some_and(|users| users[user / 64].load(Acquire) >> (user % 64) & 1 != 0) {
                self.leave(number, user);
            }
        }
    }

    /// Whether another process needs a segment.
    pub fn is_shared(&self, number: u32) -> bool {
        self.users(number).is_some_and(|users| users.iter().any(|word| word.load(Acquire) != 0))
    }

    /// Gives up what dead processes needed. Returns whether there were any.
    pub fn reap(&self) -> bool {
        self.table()
            .is_some_and(|table| table.pids_unknown.load(Acquire) == 0 && table.users.reap(|user| self.leave_all(user)))
    }

    /// Closes the file once nobody reads it; this process needs it no more. Returns its number in the family, once.
    pub fn close_if_idle(&self, segments: u32) -> Option<usize> {
        if self.readers.load(SeqCst) != 0 || self.state.compare_exchange(CLOSING, FREE, SeqCst, SeqCst).is_err() {
            return None;
        }
        if let Some(fd) = self.fd() {
            // Closed before it is forgotten: until then the engine keeps the program from using the number.
            if self.is_of(fd) {
                let _ = os::close(fd);
            }
            self.fd.store(0, Release);
        }
        let user = self.user.load(Relaxed) as usize;
        if let Some(table) = self.table() {
            if user < MAX_USERS {
                table.users.set(user, 0);
            }
            // SAFETY: mapped by `share` with this size, here or in an ancestor; whoever used it is through.
            let _ = unsafe { os::munmap(table as *const Table as usize, table_bytes(segments)) };
            self.table.store(0, Release);
        }
        (self.family.swap(0, AcqRel) as usize).checked_sub(1)
    }
}

/// Files whose sizes are known at the same time.
const FILES: usize = 1024;
/// Processes of a family: as many as a tree can have managed.
pub(crate) const PROCESSES: usize = 512;
const WORDS: usize = FILES / 64;

/// What the whole family sees of the sizes of its files, so that a limit can hold for all of them together. Only the limit
/// rests on it.
#[repr(C)]
pub(crate) struct Family {
    processes: Pids<PROCESSES>,
    /// Segments in use in a file + 1, as its writer says; 0 for no file.
    sizes: [AtomicU32; FILES],
    /// Which files a process has open: they take room as long as anyone has.
    open: [[AtomicU64; WORDS]; PROCESSES],
}

impl Family {
    /// Takes a number for a process that is about to be forked; it will have these files open.
    pub fn reserve(&self, files: impl Iterator<Item = usize>) -> Option<usize> {
        let process = self.processes.reserve().or_else(|| {
            self.reap();
            self.processes.reserve()
        })?;
        self.open[process].iter().for_each(|word| word.store(0, Release));
        files.for_each(|file| self.mark(process, file));
        Some(process)
    }

    fn mark(&self, process: usize, file: usize) {
        self.open[process][file / 64].fetch_or(1 << (file % 64), AcqRel);
    }

    /// In the parent, see [`Pids::confirm`].
    pub fn confirm(&self, process: usize, pid: i32) {
        self.processes.confirm(process, pid);
    }

    /// In the process itself.
    pub fn set(&self, process: usize, pid: i32) {
        self.processes.set(process, pid);
    }

    /// A process is gone.
    pub fn forget(&self, process: usize) {
        self.open[process].iter().for_each(|word| word.store(0, Release));
        self.processes.set(process, 0);
    }

    /// A process has closed a file.
    pub fn close(&self, process: usize, file: usize) {
        self.open[process][file / 64].fetch_and(!(1 << (file % 64)), AcqRel);
    }

    fn reap(&self) -> bool {
        self.processes.reap(|process| self.open[process].iter().for_each(|word| word.store(0, Release)))
    }

    /// Files that some process has open.
    fn opened(&self) -> [u64; WORDS] {
        let mut all = [0; WORDS];
        for (pid, open) in self.processes.0.iter().zip(&self.open) {
            if pid.load(Acquire) != 0 {
                all.iter_mut().zip(open).for_each(|(all, word)| *all |= word.load(Acquire));
            }
        }
        all
    }

    /// Takes a number for a new file of a process.
    pub fn take_file(&self, process: usize) -> Option<usize> {
        for attempt in 0..2 {
            let opened = self.opened();
            for file in 0..FILES {
                if opened[file / 64] >> (file % 64) & 1 == 0 {
                    // Whoever had it open has closed it.
                    self.mark(process, file);
                    self.sizes[file].store(1, Release);
                    return Some(file);
                }
            }
            if attempt == 0 && !self.reap() {
                break;
            }
        }
        None
    }

    /// The writer of a file says how many segments are in use in it.
    pub fn set_size(&self, file: usize, segments: u32) {
        self.sizes[file].store(segments.saturating_add(1), Release);
    }

    /// Segments in use by the family, without what only dead processes hold where `reap` says so.
    pub fn segments(&self, reap: bool) -> u64 {
        if reap {
            self.reap();
        }
        let opened = self.opened();
        let open = |&file: &usize| opened[file / 64] >> (file % 64) & 1 != 0;
        (0..FILES).filter(open).map(|file| self.sizes[file].load(Acquire).saturating_sub(1) as u64).sum()
    }

    /// The same in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments(false) * SEGMENT_BYTES as u64
    }
}
