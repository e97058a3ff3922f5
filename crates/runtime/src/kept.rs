//! Files of `/proc` about this process that stay open. One that is opened for a moment takes a number for that moment, which a program
//! that has used up its numbers, gives one back and asks for it again would miss; and it cannot be opened while there is none.
//!
//! They are opened while this process has one thread. Most processes end, or execute another program, before they need more than the first
//! of them, and to open and to close one costs 15 us; so of the others only the number is held at first, by a copy of another, which
//! stands for the file once that is asked for, and for all of them before there is a second thread or what may be opened changes.
use crate::limits::KEPT_FDS;
use crate::{avoided, process};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use outswap_sys::Errno;
use outswap_sys::os::{self, FileStatus};
use outswap_sys::procfs::read_file;

/// Memory in pages. Empty once the main thread has ended, which `THREAD` then tells in its place.
pub static STATM: KeptFile = KeptFile::new(b"/proc/self/statm\0", b"/proc/thread-self/statm\0");
/// Memory by kind, and the share of what is shared. As above.
pub static SMAPS_ROLLUP: KeptFile = KeptFile::new(b"/proc/self/smaps_rollup\0", b"/proc/thread-self/smaps_rollup\0");
/// The directory of threads.
pub static TASK: KeptFile = KeptFile::new(b"/proc/self/task\0", b"/proc/self/task\0");
/// The process's memory. Only where there is no better way to it.
pub static MEM: KeptFile = KeptFile::new(b"/proc/self/mem\0", b"/proc/thread-self/mem\0");

/// What the page table has of each page. What it tells goes by the rights of who opened it: it is closed when these change.
pub static PAGEMAP: KeptFile = KeptFile::new(b"/proc/self/pagemap\0", b"/proc/self/pagemap\0");

const ALL: [&KeptFile; KEPT_FDS as usize] = [&STATM, &SMAPS_ROLLUP, &TASK, &MEM, &PAGEMAP];

/// A file that stays open.
pub struct KeptFile {
    path: &'static [u8],
    /// The same for a thread whose process's main thread may have ended.
    thread_path: &'static [u8],
    fd: AtomicI32,
    state: AtomicU32,
    /// What the number stood for when it was last looked at: a program can do things to it that are not seen.
    identity: [AtomicU64; 2],
}

const NONE: i32 = -1;

// States of a file.
/// There is no number.
const CLOSED: u32 = 0;
/// The number stands for something else.
const HELD: u32 = 1;
/// Being opened.
const OPENING: u32 = 2;
const OPEN: u32 = 3;

/// The process that they are about.
static PID: AtomicI32 = AtomicI32::new(0);

static WANTS_MEM: AtomicBool = AtomicBool::new(false);
/// A thread of this process has given up the right to open some files.
static IS_LANDLOCKED: AtomicBool = AtomicBool::new(false);

impl KeptFile {
    const fn new(path: &'static [u8], thread_path: &'static [u8]) -> KeptFile {
        let identity = [const { AtomicU64::new(0) }; 2];
        KeptFile { path, thread_path, fd: AtomicI32::new(NONE), state: AtomicU32::new(CLOSED), identity }
    }

    /// Opens it, at whatever number. Not everybody may open his own memory.
    fn open_low(&self) -> outswap_sys::Result<i32> {
        match self.is_mem() {
            true => outswap_source::open_mem(),
            false => os::open(self.path, os::O_RDONLY | os::O_CLOEXEC, 0),
        }
    }

    /// Opens it, at `min_fd` or above where that can be, unless it has a number. The caller is the only thread of its process.
    pub fn open(&self, min_fd: i32) {
        PID.store(os::getpid(), Relaxed);
        if self.state.load(Relaxed) == CLOSED
            && let Ok(low) = self.open_low()
        {
            self.begin(process::raise(low, min_fd), OPEN);
        }
    }

    /// Holds a number for it, at `min_fd` or above, by a copy of another. Where there is none to copy, or no number, it is opened.
    fn hold(&self, other: &KeptFile, min_fd: i32) {
        if self.state.load(Relaxed) != CLOSED {
            return;
        }
        match other.fd().map(|fd| os::fcntl(fd, os::F_DUPFD_CLOEXEC, min_fd as usize)) {
            Some(Ok(fd)) => self.begin(fd as i32, HELD),
            _ => self.open(min_fd),
        }
    }

    fn begin(&self, fd: i32, state: u32) {
        match os::fstat(fd) {
            Ok(status) => {
                self.identify(&status);
                self.fd.store(fd, Release);
                self.state.store(state, Release);
            }
            Err(_) => _ = os::close(fd),
        }
    }

    fn identify(&self, status: &FileStatus) {
        self.identity[0].store(status.device, Relaxed);
        self.identity[1].store(status.inode, Relaxed);
    }

    /// The kernel's word on what the number stands for, if that is what it is known to.
    fn known_status(&self) -> Option<FileStatus> {
        let status = os::fstat(self.fd.load(Acquire)).ok()?;
        let identity = self.identity.each_ref().map(|part| part.load(Relaxed));
        (identity == [status.device, status.inode]).then_some(status)
    }

    /// Opens it, if its number is held. False where it is not open then. The caller is the only thread of its process; where it is not, one
    /// of them finds it open a little later.
    fn open_held(&self) -> bool {
        if self.state.load(Acquire) != HELD || PID.load(Relaxed) != os::getpid() || !avoided::may_name_files() {
            return self.state.load(Acquire) == OPEN;
        }
        if self.state.compare_exchange(HELD, OPENING, AcqRel, Relaxed).is_err() {
            return false;
        }
        let number = self.fd.load(Relaxed);
        let is_held = self.known_status().is_some();
        // The number is given up first: there may be no other.
        self.close();
        if is_held {
            process::with_all_descriptors(|| self.open(number));
        }
        self.state.load(Acquire) == OPEN
    }

    /// Gives the number up.
    fn close(&self) {
        if self.known_status().is_some() {
            let _ = os::close(self.fd.load(Relaxed));
        }
        self.forget();
    }

    fn forget(&self) {
        self.fd.store(NONE, Release);
        self.state.store(CLOSED, Release);
    }

    fn is_mem(&self) -> bool {
        core::ptr::eq(self, &MEM)
    }

    /// The kernel's word on it, if it is open still.
    pub fn status(&self) -> Option<FileStatus> {
        if self.open_held() { self.known_status() } else { None }
    }

    /// Its number, if it is open still.
    pub fn fd(&self) -> Option<i32> {
        self.status().map(|_| self.fd.load(Acquire))
    }

    /// Reads a part of it, if it is open still; returns the bytes read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        self.fd().map_or(0, |fd| os::pread(fd, buf, offset).unwrap_or(0))
    }

    /// Reads it from its start; returns the bytes read.
    pub fn read(&self, buf: &mut [u8]) -> usize {
        let len = self.read_at(buf, 0);
        // No number at all stands for no memory.
        let is_nothing = len == 0 || buf[..len].starts_with(b"0 0");
        if is_nothing && avoided::may_name_files() { read_file(self.thread_path, buf) } else { len }
    }
}

/// Opens the first, and [`MEM`] where that is wanted, and holds numbers for the others, at `min_fd` or above: a process that forks may have
/// used up its numbers by then. The caller is the only thread of its process. False where [`MEM`] is wanted and cannot be opened.
#[must_use]
pub fn open(min_fd: i32) -> bool {
    STATM.open(min_fd);
    if wants_mem() {
        MEM.open(min_fd);
    }
    ALL.iter().filter(|file| !file.is_mem()).for_each(|file| file.hold(&STATM, min_fd));
    !wants_mem() || MEM.fd().is_some()
}

/// Opens what is only held by now. The caller is the only thread of its process, which is to have another, or to be allowed less.
pub fn open_held() {
    ALL.iter().for_each(|file| _ = file.open_held());
}

/// Whether [`MEM`] is wanted.
pub fn wants_mem() -> bool {
    WANTS_MEM.load(Relaxed)
}

/// It is from now on, in children, too.
pub fn want_mem() {
    WANTS_MEM.store(true, Relaxed);
}

/// Some thread may not open everything any more.
pub fn note_landlock() {
    IS_LANDLOCKED.store(true, Relaxed);
}

/// Whether the calling thread may open the process's memory, as a child does that it makes, for all that is known.
pub fn may_open_mem() -> bool {
    if !IS_LANDLOCKED.load(Relaxed) {
        return true;
    }
    match outswap_source::open_mem() {
        Ok(fd) => os::close(fd).is_ok(),
        // That no number is left says nothing.
        Err(error) => ![Errno::EACCES, Errno::EPERM].contains(&error),
    }
}

/// In a forked child, which may share pages: what is open is about the parent, and holds the numbers from here on. The caller is the only
/// thread of its process. `confined`: no directory is to be held that may lead out of the root directory.
#[must_use]
pub fn renew(min_fd: i32, confined: bool) -> bool {
    for file in ALL {
        let is_directory = core::ptr::eq(file, &TASK);
        let is_for_later = avoided::may_name_files() && !file.is_mem() && !(confined && is_directory);
        if is_for_later && file.state.load(Relaxed) != CLOSED && file.known_status().is_some() {
            file.state.store(HELD, Release);
        } else {
            file.close();
        }
    }
    PID.store(os::getpid(), Relaxed);
    // It is needed soon, and nothing else tells what it does.
    let _ = STATM.open_held();
    !avoided::may_name_files() || open(min_fd)
}

/// Closes all.
pub fn close_all() {
    ALL.iter().for_each(|file| file.close());
}

/// Closes what is a directory: it would lead out of the root directory. Without it a process counts as one with other threads.
pub fn leave_directory() {
    TASK.close();
}

/// Closes what tells by the rights of who opened it.
pub fn leave_rights() {
    PAGEMAP.close();
}

/// Whether a descriptor is one of these.
pub fn is_ours(fd: i32) -> bool {
    fd >= 0 && ALL.iter().any(|file| file.fd.load(Relaxed) == fd)
}
