//! Files of `/proc` about this process that stay open. One that is opened for a moment takes a number for that moment, which a program
//! that has used up its numbers, gives one back and asks for it again would miss; and it cannot be opened while there is none.
//!
//! They are opened while this process has one thread: as it is set up, and in a forked child.
use crate::limits::KEPT_FDS;
use crate::{avoided, process};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
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
    /// What it was when it was opened: a program can do things to a number that are not seen.
    identity: [AtomicU64; 2],
}

const NONE: i32 = -1;

static WANTS_MEM: AtomicBool = AtomicBool::new(false);

impl KeptFile {
    const fn new(path: &'static [u8], thread_path: &'static [u8]) -> KeptFile {
        KeptFile { path, thread_path, fd: AtomicI32::new(NONE), identity: [const { AtomicU64::new(0) }; 2] }
    }

    /// Opens it, at `min_fd` or above, unless it is open.
    fn open(&self, min_fd: i32) {
        if self.fd.load(Relaxed) != NONE {
            return;
        }
        // Not everybody may open his own memory.
        let opened = match self.is_mem() {
            true => outswap_source::open_mem(),
            false => os::open(self.path, os::O_RDONLY | os::O_CLOEXEC, 0),
        };
        let Ok(low) = opened else { return };
        let fd = process::raise(low, min_fd);
        match os::fstat(fd) {
            Ok(status) => {
                self.identity[0].store(status.device, Relaxed);
                self.identity[1].store(status.inode, Relaxed);
                self.fd.store(fd, Release);
            }
            Err(_) => _ = os::close(fd),
        }
    }

    fn close(&self) {
        if self.status().is_some() {
            let _ = os::close(self.fd.swap(NONE, AcqRel));
        }
    }

    fn is_mem(&self) -> bool {
        core::ptr::eq(self, &MEM)
    }

    /// The kernel's word on it, if it is open still.
    pub fn status(&self) -> Option<FileStatus> {
        let status = os::fstat(self.fd.load(Acquire)).ok()?;
        let identity = self.identity.each_ref().map(|part| part.load(Relaxed));
        (identity == [status.device, status.inode]).then_some(status)
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

/// Opens all, at `min_fd` or above: a process that forks may have used up its numbers by then. The caller is the only thread of its
/// process.
/// False where [`MEM`] is wanted and cannot be opened.
#[must_use]
pub fn open(min_fd: i32) -> bool {
    ALL.iter().filter(|file| wants_mem() || !file.is_mem()).for_each(|file| file.open(min_fd));
    !wants_mem() || MEM.fd().is_some()
}

/// Whether [`MEM`] is wanted.
pub fn wants_mem() -> bool {
    WANTS_MEM.load(Relaxed)
}

/// It is from now on, in children, too.
pub fn want_mem() {
    WANTS_MEM.store(true, Relaxed);
}

/// In a forked child, which may share pages: what is open is about the parent. The caller is the only thread of its process.
#[must_use]
pub fn renew(min_fd: i32) -> bool {
    for file in ALL {
        file.close();
        file.fd.store(NONE, Relaxed);
    }
    !avoided::may_name_files() || open(min_fd)
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
