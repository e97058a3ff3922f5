//! The files of a process: the one that it writes, and those of the processes that it stems from, which it only reads.
//!
//! Each file has one writer. What others need of it stands in a table in shared memory ([`super::users`]); the writer makes it
//! when it first forks, and frees a segment when it does not need it itself and no bit is left. Which segments hold something
//! of this process's own is known from private memory alone. Wrong bits can make a file larger, or take from others what
//! they share with its writer: they then see that, because what they read is authenticated.
use super::address::Segment;
use super::family::Family;
use super::users::FOR_EVER;
use super::volume::{CLOSING, Descriptor, FREE, HELD, Volume};
use crate::io::{self, FileIo, FileRead, NewFile};
use crate::limits::{MAX_USERS, MAX_VOLUMES};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::*};
use outswap_sys::numbers::with_all_descriptors;
use outswap_sys::{Errno, Result, os};

/// The files of one process, and its place in the family.
pub(crate) struct Files {
    family: usize,
    /// Segments that the table of each file has room for.
    segment_count: u32,
    min_fd: i32,
    pub(super) volumes: [Volume; MAX_VOLUMES],
    /// The file that this process writes: its number + 1; 0 for none.
    own: AtomicU32,
    write_fd: Descriptor,
    directory_fd: Descriptor,
    /// Where files are asked for that this process cannot make. Not the store's own: it is not closed.
    requests_fd: Descriptor,
    /// Keeps a number for the file of a child, when the program has used up all others.
    spare_fd: Descriptor,
    /// Keeps that number while the other two are kept for the file that is put off.
    later_fd: Descriptor,
    open_error: AtomicI32,
    /// Whether the own file is made when it is needed: 0, 1, or 2 while it is being made.
    put_off: AtomicU32,
    /// Children may put it off.
    pub(super) may_put_off: AtomicBool,
    /// Children may read the own file. Private memory: who shares a table must not be able to say that nobody does.
    pub(super) shared: AtomicBool,
    /// The process that this is.
    pub(super) pid: AtomicI32,
    /// Its number in the family + 1; 0 for none.
    pub(super) process: AtomicU32,
    /// Its pid namespace, see [`Family`].
    pub(super) space: AtomicU32,
}

impl Files {
    /// Sets up the files of a process that has none yet; `family` is zeroed memory for a [`Family`].
    pub(super) fn set(&mut self, family: usize, segment_count: u32, min_fd: i32) {
        (self.family, self.segment_count, self.min_fd) = (family, segment_count, min_fd);
        self.pid.store(os::getpid(), Relaxed);
    }

    /// Becomes the first of a family.
    pub(super) fn begin_family(&self) {
        if let Some(process) = self.family().reserve(0, core::iter::empty()) {
            self.family().set(process, os::getpid());
            self.process.store(process as u32 + 1, Relaxed);
        }
    }

    /// Opens the directory in which files are made; `path` ends with a NUL byte. False where that fails, which
    /// [`Files::open_error`] then tells.
    pub(super) fn open_directory(&self, path: &[u8]) -> bool {
        let opened = io::open_directory(path).and_then(|fd| io::raise(fd, self.min_fd));
        match opened {
            Ok(fd) => self.directory_fd.set(fd),
            Err(e) => self.open_error.store(e.0, Relaxed),
        }
        opened.is_ok()
    }

    /// Says where files are to be asked for that this process cannot make.
    pub(super) fn ask_at(&self, requests_fd: i32) {
        self.requests_fd.set(requests_fd);
    }

    pub(super) fn family(&self) -> &Family {
        // SAFETY: `set` was given zeroed memory for it, which lives as long as the store; all its fields are atomics.
        unsafe { &*(self.family as *const Family) }
    }

    pub(super) fn process(&self) -> Option<usize> {
        (self.process.load(Relaxed) as usize).checked_sub(1)
    }

    /// Whether the calling process is the one that this is: not a vforked child.
    pub(super) fn is_self(&self) -> bool {
        os::getpid() == self.pid.load(Relaxed)
    }

    pub(super) fn volume(&self, segment: Segment) -> &Volume {
        &self.volumes[segment.volume()]
    }

    /// Segments that the table of each file has room for.
    pub(super) fn segment_count(&self) -> u32 {
        self.segment_count
    }

    /// Descriptors have this number or one above.
    pub fn min_fd(&self) -> i32 {
        self.min_fd
    }

    /// The number of the file that this process writes.
    pub(super) fn own(&self) -> Option<usize> {
        (self.own.load(Acquire) as usize).checked_sub(1)
    }

    /// The file that this process writes.
    pub(super) fn own_volume(&self) -> Option<&Volume> {
        self.own().map(|own| &self.volumes[own])
    }

    /// Whether a segment is in the file that this process writes.
    pub fn is_own(&self, segment: Segment) -> bool {
        self.own() == Some(segment.volume())
    }

    // ---- descriptors ----

    /// All descriptors in use now.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.own_descriptors()
            .into_iter()
            .filter_map(Descriptor::get)
            .chain(self.volumes.iter().filter_map(|volume| volume.fd()))
    }

    /// All but those of files that are read.
    fn own_descriptors(&self) -> [&Descriptor; 4] {
        [&self.write_fd, &self.directory_fd, &self.spare_fd, &self.later_fd]
    }

    /// Those that are held for a file that is put off: two for itself, and one for a child's.
    fn held(&self) -> [&Descriptor; 3] {
        [&self.write_fd, &self.spare_fd, &self.later_fd]
    }

    /// The descriptor that writes the own file.
    pub fn write_fd(&self) -> Option<i32> {
        self.write_fd.get()
    }

    /// The same, if it is of that file still: what the program has under the number is not to be written to.
    pub(super) fn own_write_fd(&self) -> Option<i32> {
        let own = self.own_volume()?;
        self.write_fd().filter(|&fd| own.is_of(fd))
    }

    /// Why there is no file to write, if that is so.
    pub fn open_error(&self) -> Option<Errno> {
        (!self.has_own()).then(|| Errno(self.open_error.load(Relaxed)))
    }

    /// Whether there is a file to write, or one that is made when it is needed.
    pub(super) fn has_own(&self) -> bool {
        self.is_put_off() || self.own().is_some()
    }

    /// Whether the file to write is made when it is needed.
    pub fn is_put_off(&self) -> bool {
        self.put_off.load(Acquire) != 0
    }

    /// Whether a file may be made when it is needed: where that is by a directory, which the process does not lose unasked.
    pub(super) fn may_put_off(&self) -> bool {
        self.may_put_off.load(Relaxed) && self.directory_fd.get().is_some()
    }

    /// The own file is made when it is needed; until then its numbers are held. The process has one thread.
    pub(super) fn put_off(&self) {
        for held in self.held() {
            held.close();
            if let Some(fd) = self.directory_fd.get()
                && let Ok(copy) = os::fcntl(fd, os::F_DUPFD_CLOEXEC, self.min_fd.max(0) as usize)
                && let Ok(copy) = io::raise(copy as i32, self.min_fd)
            {
                held.set(copy);
            }
        }
        self.put_off.store(1, Release);
    }

    /// Gives up the numbers that are held, unless the program has put something else there.
    fn release_held(&self) {
        for held in self.held() {
            match held.get().map(os::fstat) {
                Some(Ok(status)) if !status.is_regular() => held.close(),
                _ => held.forget(),
            }
        }
    }

    /// Makes it with `open` where that was put off. Others wait meanwhile. Not for a process that shares the memory and has descriptors of its
    /// own.
    pub(super) fn take_up(&self, open: impl FnOnce()) {
        if !self.is_put_off() || !self.is_self() {
            return;
        }
        let mut spins = 0;
        loop {
            match self.put_off.compare_exchange(1, 2, AcqRel, Acquire) {
                Ok(_) => {
                    self.release_held();
                    with_all_descriptors(open);
                    return self.put_off.store(0, Release);
                }
                Err(0) => return,
                Err(_) => os::wait_a_little(spins),
            }
            spins += 1;
        }
    }

    /// Whether children read a file that this process can still write.
    pub fn is_writing_shared(&self) -> bool {
        self.shared.load(Acquire)
    }

    /// Closes the directory: children forked from now on have to ask for a file to write to.
    pub fn leave_directory(&self) {
        self.directory_fd.close();
        if self.is_put_off() {
            self.release_held();
        }
    }

    /// Nobody is asked any more.
    pub fn leave_requests(&self) {
        self.requests_fd.forget();
    }

    // ---- the own file ----

    /// Stops writing to the own file, which stays open for reading as long as something in it is needed.
    pub(super) fn end_own(&self) {
        if self.own_write_fd().is_none() {
            self.write_fd.forget();
        }
        self.write_fd.close();
        self.own.store(0, Release);
        self.shared.store(false, Release);
    }

    /// Opens a new file to write with `open`, while this process has one thread. False where that fails.
    pub(super) fn open_own(&self, open: impl FnOnce() -> Result<()>) -> bool {
        self.spare_fd.close();
        let opened = open();
        self.open_error.store(opened.err().map_or(0, |e| e.0), Relaxed);
        // Of a file that children may read anyway.
        if let Some(fd) = self.own_volume().and_then(Volume::fd)
            && let Ok(spare) = os::fcntl(fd, os::F_DUPFD_CLOEXEC, self.min_fd.max(0) as usize)
            && let Ok(spare) = io::raise(spare as i32, self.min_fd)
        {
            self.spare_fd.set(spare);
        }
        opened.is_ok()
    }

    /// Where a new file could go.
    ///
    /// # Errors
    /// `ENOENT` without a directory and nobody to ask, `EMFILE` where this process needs too many files.
    pub(super) fn vacant(&self) -> Result<usize> {
        self.directory_fd.get().or(self.requests_fd.get()).ok_or(Errno::ENOENT)?;
        self.volumes.iter().position(|v| v.state.load(SeqCst) == FREE).ok_or(Errno::EMFILE)
    }

    /// Makes a file there, which is the own one after [`Files::set_own`].
    pub(super) fn create<I: FileIo>(&self, io: &I, index: usize) -> Result<()> {
        let made = self.directory_fd.get().map_or(Err(Errno::ENOENT), |directory| io.create(directory));
        let NewFile { write_fd, read_fd } = match (made, self.requests_fd.get()) {
            // Where it is rights or a directory that are missing; who asks in vain does not wait again.
            (Err(error @ (Errno::ENOENT | Errno::EACCES | Errno::EPERM)), Some(requests_fd)) => {
                io.request(requests_fd).map_err(|_| {
                    self.leave_requests();
                    error
                })?
            }
            (made, _) => made?,
        };
        let write_fd = io::raise(write_fd, self.min_fd);
        let read_fd = io::raise(read_fd, self.min_fd);
        let (write_fd, read_fd) = match (write_fd, read_fd) {
            (Ok(write_fd), Ok(read_fd)) => (write_fd, read_fd),
            (one, other) => {
                let _ = one.map(os::close);
                let _ = other.map(os::close);
                return Err(Errno::EMFILE);
            }
        };
        self.write_fd.set(write_fd);
        let family = self.process().and_then(|process| self.family().take_file(process, self.space.load(Relaxed)));
        let volume = &self.volumes[index];
        volume.begin(read_fd, family);
        volume.user.store(FOR_EVER as u32, Relaxed);
        Ok(())
    }

    /// The file made last is the own one.
    pub(super) fn set_own(&self, index: usize) {
        self.own.store(index as u32 + 1, Release);
    }

    // ---- reading and closing ----

    /// Reads from a segment's file; `None` where this process does not have it any more.
    pub(super) fn pread<I: FileIo>(
        &self,
        io: &I,
        segment: Segment,
        buf: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        if self.is_own(segment) {
            // Not through the descriptor that children inherit: its flags are theirs to change, too.
            return self.write_fd().map(|fd| io.pread(fd, buf, offset));
        }
        let volume = self.volume(segment);
        let done = volume.reading(|fd| match io.pread(fd, buf, offset) {
            Err(Errno::EINVAL) if volume.is_of(fd) => {
                // Flags belong to all who inherited the descriptor: one of them has set O_DIRECT.
                const F_SETFL: usize = 4;
                let _ = os::fcntl(fd, F_SETFL, 0);
                io.pread(fd, buf, offset)
            }
            done => done,
        });
        if volume.state.load(SeqCst) == CLOSING {
            self.close_idle();
        }
        done
    }

    /// Makes several reads of the file that a segment is in. Where this process does not have it any more, nothing is read.
    pub(super) fn pread_all<I: FileIo>(&self, io: &I, segment: Segment, reads: &mut [FileRead<'_>]) {
        if self.is_own(segment) {
            if let Some(fd) = self.write_fd() {
                io.pread_all(fd, reads);
            }
            return;
        }
        let volume = self.volume(segment);
        volume.reading(|fd| io.pread_all(fd, reads));
        if volume.state.load(SeqCst) == CLOSING {
            self.close_idle();
        }
    }

    /// Closes files that this process does not need any more, unless someone reads there just now.
    pub(super) fn close_idle(&self) {
        // A vforked child has a table of descriptors of its own: its parent closes the parent's.
        if !self.is_self() {
            return;
        }
        for volume in &self.volumes {
            if volume.state.load(SeqCst) == CLOSING
                && let Some(file) = volume.close_if_idle(self.segment_count)
                && let Some(process) = self.process()
            {
                self.family().close(process, file);
            }
        }
    }

    /// Gives up all that this process holds of other processes' files. The store must not be used afterwards.
    fn release_process(&self) {
        for volume in self.volumes.iter().filter(|v| v.state.load(SeqCst) == HELD) {
            let user = volume.user.load(Relaxed) as usize;
            if let Some(table) = volume.table.head().filter(|_| user < MAX_USERS) {
                volume.leave_all(user);
                table.users.set(user, 0);
                volume.user.store(FOR_EVER as u32, Relaxed);
            }
        }
        if let Some(process) = self.process() {
            self.family().forget(process);
        }
    }

    /// Closes and unmaps everything.
    ///
    /// # Safety
    /// Nothing uses the files any more.
    pub(super) unsafe fn destroy(&self) {
        self.release_process();
        self.own_descriptors().into_iter().for_each(Descriptor::close);
        for volume in &self.volumes {
            volume.state.store(CLOSING, SeqCst);
            volume.close_if_idle(self.segment_count);
        }
    }

    /// The own file's table, if it was ever shared, for who scribbles over it: its address and words.
    #[cfg(test)]
    pub fn shared_table(&self) -> Option<(usize, usize)> {
        let table = &self.own_volume()?.table;
        Some((core::ptr::from_ref(table.head()?) as usize, table.table_words(self.segment_count)))
    }

    /// The same of the family.
    #[cfg(test)]
    pub fn shared_family(&self) -> (usize, usize) {
        (self.family, size_of::<Family>() / 8)
    }
}
