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
use crate::io;
use crate::limits::{FAMILY_FILES, FAMILY_PROCESSES, MAX_USERS, SEGMENT_BYTES, USER_WORDS, VOLUME_ORDER};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{Errno, nr, os, syscall5};

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

/// A process's number and what is said of it, in one word of shared memory; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Free,
    /// Alive, as far as its number tells.
    Process(u32),
    /// About to be forked by this process.
    Reserved(u32),
    /// About to execute a program; afterwards it has the same number, but nothing of what it shared.
    Executes(u32),
    /// What a dead process held is being given up by this one.
    Reaping(u32),
}

const PID_BITS: u32 = 24;

impl Entry {
    fn of(word: u32) -> Entry {
        let pid = word & ((1 << PID_BITS) - 1);
        match word >> PID_BITS {
            _ if pid == 0 => Entry::Free,
            1 => Entry::Reserved(pid),
            2 => Entry::Executes(pid),
            3 => Entry::Reaping(pid),
            _ => Entry::Process(pid),
        }
    }

    fn word(self) -> u32 {
        match self {
            Entry::Free => 0,
            Entry::Process(pid) => pid,
            Entry::Reserved(pid) => 1 << PID_BITS | pid,
            Entry::Executes(pid) => 2 << PID_BITS | pid,
            Entry::Reaping(pid) => 3 << PID_BITS | pid,
        }
    }
}

/// Whether a process has ended: there is none of this number, or only what its parent, this process, has not waited for.
fn is_dead(pid: u32) -> bool {
    const P_PID: usize = 1;
    /// `WNOHANG | WEXITED | WNOWAIT | __WALL`
    const ONLY_LOOK: usize = 1 | 4 | 0x0100_0000 | 0x4000_0000;
    if os::kill(pid as i32, 0) == Err(Errno::ESRCH) {
        return true;
    }
    let mut info = [0u32; 32];
    let at = info.as_mut_ptr() as usize;
    // SAFETY: the buffer has the size of `siginfo_t`; its first word is the signal, 0 where the child has not ended.
    unsafe { syscall5(nr::WAITID, P_PID, pid as usize, at, ONLY_LOOK, 0) == 0 && info[0] != 0 }
}

/// Processes by number, in shared memory.
pub(crate) struct Pids<const N: usize>([AtomicU32; N]);

impl<const N: usize> Pids<N> {
    fn get(&self, user: usize) -> Entry {
        Entry::of(self.0[user].load(Acquire))
    }

    fn change(&self, user: usize, from: Entry, to: Entry) -> bool {
        self.0[user].compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
    }

    /// Takes a number for a process that is about to be forked by this one.
    pub fn reserve(&self) -> Option<usize> {
        let reserved = Entry::Reserved(os::getpid() as u32);
        (0..N).find(|&user| self.get(user) == Entry::Free && self.change(user, Entry::Free, reserved))
    }

    /// In the parent: the number that it reserved is this process's. The child may have said so itself, or have ended already,
    /// and the number may be another's by now.
    pub fn confirm(&self, user: usize, pid: i32) {
        self.change(user, Entry::Reserved(os::getpid() as u32), Entry::Process(pid as u32));
    }

    /// In the child: the number that its parent reserved is its own. False where it was given to another: the parent was
    /// killed, and every number was needed. In another pid namespace the parent knows it by another number.
    pub fn claim(&self, user: usize, parent_pid: i32, pid: i32, other_namespace: bool) -> bool {
        let (reserved, own) = (Entry::Reserved(parent_pid as u32), Entry::Process(pid as u32));
        self.change(user, reserved, own)
            || match self.get(user) {
                entry @ Entry::Process(known) if known == pid as u32 || other_namespace => {
                    self.change(user, entry, own)
                }
                _ => false,
            }
    }

    /// Sets a number's process, 0 for none.
    pub fn set(&self, user: usize, pid: i32) {
        self.0[user].store(pid as u32, Release);
    }

    /// A process says that it is about to execute a program (`to`), or that this failed. Once it has, only `is_gone` tells.
    pub fn executes(&self, user: usize, pid: i32, to: bool) {
        let (alive, executes) = (Entry::Process(pid as u32), Entry::Executes(pid as u32));
        if to {
            self.change(user, alive, executes)
        } else {
            self.change(user, executes, alive)
        };
    }

    /// Calls `forget` for each number whose process is gone, then frees it. Returns whether there were any. `is_gone` says so
    /// of a number whose process was about to execute; `can_tell` whether a process is to be judged by its number. With
    /// `reserved`, forks that their parent did not live to see are counted as gone, too.
    pub fn reap(
        &self,
        reserved: bool,
        can_tell: impl Fn(usize) -> bool,
        is_gone: impl Fn(usize) -> bool,
        mut forget: impl FnMut(usize),
    ) -> bool {
        let me = os::getpid() as u32;
        let mut any = false;
        for user in 0..N {
            let entry = self.get(user);
            let gone = match entry {
                Entry::Free => false,
                Entry::Executes(pid) => pid != me && (is_gone(user) || can_tell(user) && is_dead(pid)),
                // Who gave up what it held died too.
                Entry::Process(pid) | Entry::Reaping(pid) => pid != me && can_tell(user) && is_dead(pid),
                Entry::Reserved(pid) => reserved && pid != me && can_tell(user) && is_dead(pid),
            };
            if gone && self.change(user, entry, Entry::Reaping(me)) {
                forget(user);
                self.0[user].store(0, Release);
                any = true;
            }
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
pub(crate) type Users = [AtomicU64; USER_WORDS];

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
    pub fn begin_child(&self, user: usize, parent_pid: i32, pid: i32, pids_unknown: bool) {
        // Threads that read are the parent's.
        self.readers.store(0, SeqCst);
        self.user.store(user.min(FOR_EVER) as u32, Relaxed);
        if self.state.load(SeqCst) != FREE && user > FOR_EVER {
            self.state.store(CLOSING, SeqCst);
        }
        if let Some(table) = self.table() {
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
        let fd = self.fd.load(Acquire);
        (fd != 0).then_some(fd - 1)
    }

    /// Whether a descriptor is of this file still. Where the numbers that the runtime guards are not to be had, a program can
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

    /// Gives up what processes needed that are dead or have executed a program. Returns whether there were any. For the file's
    /// writer: it knows all segments of which some may be marked.
    pub fn reap(&self, reserved: bool) -> bool {
        let Some((table, fd)) = self.table().zip(self.fd()) else { return false };
        let can_tell = |_| table.pids_unknown.load(Acquire) == 0;
        table.users.reap(reserved, can_tell, |user| io::is_unlocked(fd, user), |user| self.leave_all(user))
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
        self.table().zip((user < MAX_USERS).then_some(user))
    }

    /// Closes the file once nobody reads it; this process needs it no more. Returns its number in the family, once.
    pub fn close_if_idle(&self, segments: u32) -> Option<usize> {
        if self.readers.load(SeqCst) != 0 || self.state.compare_exchange(CLOSING, FREE, SeqCst, SeqCst).is_err() {
            return None;
        }
        if let Some(fd) = self.fd() {
            // Closed before it is forgotten: until then the runtime keeps the program from using the number.
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

const WORDS: usize = FAMILY_FILES / 64;

/// What the whole family sees of the sizes of its files, so that a limit can hold for all of them together. Only the limit
/// rests on it.
#[repr(C)]
pub(crate) struct Family {
    processes: Pids<FAMILY_PROCESSES>,
    /// In which pid namespace a process is known by its number: 0, or the number + 1 of the process that began it, which
    /// itself is known by its number outside.
    spaces: [AtomicU32; FAMILY_PROCESSES],
    /// Segments in use in a file + 1, as its writer says; 0 for no file.
    sizes: [AtomicU32; FAMILY_FILES],
    /// Which files a process has open: they take room as long as anyone has.
    open: [[AtomicU64; WORDS]; FAMILY_PROCESSES],
}

impl Family {
    /// Takes a number for a process that is about to be forked; it will have these files open.
    pub fn reserve(&self, space: u32, files: impl Iterator<Item = usize>) -> Option<usize> {
        let process = self.processes.reserve().or_else(|| {
            self.reap(space, true);
            self.processes.reserve()
        })?;
        self.spaces[process].store(space, Release);
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

    /// In the child, see [`Pids::claim`].
    pub fn claim(&self, process: usize, parent_pid: i32, pid: i32) -> bool {
        self.processes.claim(process, parent_pid, pid, false)
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

    /// Forgets dead processes, as seen from a pid namespace.
    fn reap(&self, space: u32, reserved: bool) -> bool {
        let clear = |process: usize| self.open[process].iter().for_each(|word| word.store(0, Release));
        let can_tell = |process: usize| self.spaces[process].load(Acquire) == space;
        self.processes.reap(
            reserved,
            can_tell,
            |_| false,
            |process| {
                clear(process);
                // A namespace ends with the process that began it.
                for other in 0..FAMILY_PROCESSES {
                    if self.spaces[other].load(Acquire) == process as u32 + 1 {
                        clear(other);
                        self.spaces[other].store(0, Release);
                        self.processes.set(other, 0);
                    }
                }
            },
        )
    }

    /// Files that some process has open.
    fn opened(&self) -> [u64; WORDS] {
        let mut all = [0; WORDS];
        for (process, open) in self.open.iter().enumerate() {
            if self.processes.get(process) != Entry::Free {
                all.iter_mut().zip(open).for_each(|(all, word)| *all |= word.load(Acquire));
            }
        }
        all
    }

    /// Takes a number for a new file of a process.
    pub fn take_file(&self, process: usize, space: u32) -> Option<usize> {
        for attempt in 0..2 {
            let opened = self.opened();
            for file in 0..FAMILY_FILES {
                if opened[file / 64] >> (file % 64) & 1 == 0 {
                    // Whoever had it open has closed it.
                    self.mark(process, file);
                    self.sizes[file].store(1, Release);
                    return Some(file);
                }
            }
            if attempt == 0 && !self.reap(space, true) {
                break;
            }
        }
        None
    }

    /// The writer of a file says how many segments are in use in it.
    pub fn set_size(&self, file: usize, segments: u32) {
        self.sizes[file].store(segments.saturating_add(1), Release);
    }

    /// Segments in use by the family, without what only dead processes hold where a pid namespace to look from is given.
    pub fn segments(&self, reap_from: Option<u32>) -> u64 {
        if let Some(space) = reap_from {
            self.reap(space, false);
        }
        let opened = self.opened();
        let open = |&file: &usize| opened[file / 64] >> (file % 64) & 1 != 0;
        (0..FAMILY_FILES).filter(open).map(|file| self.sizes[file].load(Acquire).saturating_sub(1) as u64).sum()
    }

    /// The same in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments(None) * SEGMENT_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pids(entries: [Entry; 4]) -> Pids<4> {
        Pids(entries.map(|entry| AtomicU32::new(entry.word())))
    }

    #[test]
    fn words_tell_what_they_were_made_of() {
        for pid in [1, 77, 1 << 22] {
            for entry in [Entry::Process(pid), Entry::Reserved(pid), Entry::Executes(pid), Entry::Reaping(pid)] {
                assert_eq!(Entry::of(entry.word()), entry);
            }
        }
        assert_eq!((Entry::of(0), Entry::Free.word()), (Entry::Free, 0));
    }

    #[test]
    fn only_the_one_who_reserved_a_number_confirms_it() {
        let me = os::getpid() as u32;
        let users = pids([Entry::Free; 4]);
        assert_eq!(users.reserve(), Some(0));
        // The child came, ended and was forgotten before its parent got here; another parent has the number now.
        users.0[0].store(Entry::Reserved(me + 1).word(), Release);
        users.confirm(0, 4321);
        assert_eq!(users.get(0), Entry::Reserved(me + 1));
        assert!(!users.claim(0, me as i32, 4321, false), "the child of the first parent does not have it");
        assert!(users.claim(0, me as i32 + 1, 99, false) && users.get(0) == Entry::Process(99));
        assert!(users.claim(0, me as i32 + 1, 99, false), "confirmed before it came to say so itself");
        assert!(!users.claim(0, me as i32 + 1, 98, false) && users.claim(0, me as i32 + 1, 1, true));
    }

    #[test]
    fn the_dead_are_forgotten_and_the_unknown_are_not() {
        // Larger than any process id.
        const DEAD: u32 = (1 << 22) + 1;
        let me = os::getpid() as u32;
        let all = [Entry::Process(DEAD), Entry::Reserved(DEAD), Entry::Executes(DEAD), Entry::Reaping(DEAD)];
        let reap = |users: &Pids<4>, reserved, known: bool, gone: bool| {
            let mut found = Vec::new();
            let any = users.reap(reserved, |_| known, |_| gone, |user| found.push(user));
            assert_eq!(any, !found.is_empty());
            assert!(found.iter().all(|&user| users.get(user) == Entry::Free));
            found
        };
        assert_eq!(reap(&pids(all), false, true, false), [0, 2, 3], "the fork may be going on");
        assert_eq!(reap(&pids(all), true, true, false), [0, 1, 2, 3]);
        assert_eq!(reap(&pids(all), true, false, false), [], "numbers of another namespace");
        assert_eq!(reap(&pids(all), true, false, true), [2], "the lock tells");
        let alive = [Entry::Process(1), Entry::Reserved(1), Entry::Executes(1), Entry::Reaping(me)];
        assert_eq!(reap(&pids(alive), true, true, false), []);
        assert_eq!(reap(&pids(alive), true, true, true), [2], "another program has the number");
    }

    #[test]
    fn a_namespace_ends_with_the_process_that_began_it() {
        const DEAD: i32 = (1 << 22) + 1;
        // SAFETY: all-zero is a valid value.
        let family: Box<Family> = unsafe { Box::new(core::mem::zeroed()) };
        let add = |space, pid| {
            let process = family.reserve(space, core::iter::empty()).expect("a number");
            family.set(process, pid);
            (process, family.take_file(process, space).expect("a number"))
        };
        let (outside, own) = add(0, 1);
        let (first, its) = add(0, 1);
        let space = first as u32 + 1;
        let (inside, theirs) = add(space, DEAD);
        for (file, segments) in [(own, 100), (its, 20), (theirs, 3)] {
            family.set_size(file, segments);
        }
        assert_eq!(family.segments(Some(0)), 123, "not to be judged from outside");
        assert_eq!(family.segments(Some(space)), 120, "dead, as seen from inside");
        family.set(outside, DEAD);
        family.set(inside, 1);
        family.mark(inside, theirs);
        assert_eq!(family.segments(Some(space)), 123, "who is outside is not dead for being unknown here");
        family.set(outside, 1);
        family.set(first, DEAD);
        assert_eq!(family.segments(Some(0)), 100);
    }
}
