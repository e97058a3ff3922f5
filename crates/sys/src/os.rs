//! Memory, file, process and clock calls.
use crate::call::*;
use crate::nr;

/// `PROT_NONE`: no access.
pub const PROT_NONE: usize = 0;
/// `PROT_READ`.
pub const PROT_READ: usize = 1;
/// `PROT_WRITE`.
pub const PROT_WRITE: usize = 2;
/// `PROT_EXEC`.
pub const PROT_EXEC: usize = 4;
/// `MAP_SHARED`.
pub const MAP_SHARED: usize = 0x01;
/// `MAP_PRIVATE`.
pub const MAP_PRIVATE: usize = 0x02;
/// `MAP_TYPE`: the bits that hold the sharing kind.
pub const MAP_TYPE: usize = 0x0f;
/// `MAP_FIXED`.
pub const MAP_FIXED: usize = 0x10;
/// `MAP_ANONYMOUS`.
pub const MAP_ANONYMOUS: usize = 0x20;
/// `MAP_32BIT`.
pub const MAP_32BIT: usize = 0x40;
/// `MAP_GROWSDOWN`.
pub const MAP_GROWSDOWN: usize = 0x100;
/// `MAP_DENYWRITE`: ignored, but given by the dynamic linker alone.
pub const MAP_DENYWRITE: usize = 0x800;
/// `MAP_LOCKED`.
pub const MAP_LOCKED: usize = 0x2000;
/// `MAP_NORESERVE`.
pub const MAP_NORESERVE: usize = 0x4000;
/// `MAP_POPULATE`.
pub const MAP_POPULATE: usize = 0x8000;
/// `MAP_STACK`.
pub const MAP_STACK: usize = 0x20000;
/// `MAP_HUGETLB`.
pub const MAP_HUGETLB: usize = 0x40000;
/// `MAP_FIXED_NOREPLACE`.
pub const MAP_FIXED_NOREPLACE: usize = 0x100000;

/// `MADV_DONTNEED`.
pub const MADV_DONTNEED: usize = 4;
/// `MADV_RANDOM`.
pub const MADV_RANDOM: usize = 1;
/// `MADV_WILLNEED`.
pub const MADV_WILLNEED: usize = 3;
/// `MADV_FREE`.
pub const MADV_FREE: usize = 8;
/// `MADV_HUGEPAGE`.
pub const MADV_HUGEPAGE: usize = 14;
/// `MADV_NOHUGEPAGE`.
pub const MADV_NOHUGEPAGE: usize = 15;
/// `MADV_DONTFORK`.
pub const MADV_DONTFORK: usize = 10;
/// `MADV_DOFORK`.
pub const MADV_DOFORK: usize = 11;
/// `MADV_WIPEONFORK`.
pub const MADV_WIPEONFORK: usize = 18;
/// `MADV_DODUMP`.
pub const MADV_DODUMP: usize = 17;
/// `MADV_DONTDUMP`.
pub const MADV_DONTDUMP: usize = 16;
/// `MADV_COLD`.
pub const MADV_COLD: usize = 20;
/// `MADV_PAGEOUT`.
pub const MADV_PAGEOUT: usize = 21;

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED`, nothing that Rust still uses may lie in the range.
pub unsafe fn mmap(addr: usize, len: usize, prot: usize, flags: usize, fd: i32, offset: usize) -> Result<usize> {
    // SAFETY: the caller vouches for the range.
    ret(unsafe { syscall6(nr::MMAP, addr, len, prot, flags, fd as usize, offset) })
}

/// Maps fresh anonymous private memory without reserving commit charge, at a place of the kernel's choice.
pub fn mmap_anonymous(len: usize) -> Result<usize> {
    // SAFETY: no address given, so nothing is replaced.
    unsafe { mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) }
}

/// Unmaps a range.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn munmap(addr: usize, len: usize) -> Result<()> {
    // SAFETY: the caller vouches for the range.
    ret(unsafe { syscall2(nr::MUNMAP, addr, len) }).map(drop)
}

/// `mremap`: to anywhere.
pub const MREMAP_MAYMOVE: usize = 1;
/// To the address that is named.
pub const MREMAP_FIXED: usize = 2;
/// Leaving the old place mapped.
pub const MREMAP_DONTUNMAP: usize = 4;

/// Moves a mapping of so many bytes to another address, in place of what is there.
///
/// # Safety
/// Nothing may use the old range any more, nor what was in the new one.
pub unsafe fn move_to(from: usize, to: usize, len: usize) -> Result<()> {
    // SAFETY: as the caller says.
    ret(unsafe { syscall5(nr::MREMAP, from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) }).map(drop)
}

/// Changes the protection of a range.
///
/// # Safety
/// What Rust still reads or writes there must stay readable or writable.
pub unsafe fn mprotect(addr: usize, len: usize, prot: usize) -> Result<()> {
    // SAFETY: the caller vouches for the range.
    ret(unsafe { syscall3(nr::MPROTECT, addr, len, prot) }).map(drop)
}

/// `MADV_POPULATE_READ`.
pub const MADV_POPULATE_READ: usize = 22;
/// `MADV_POPULATE_WRITE`.
pub const MADV_POPULATE_WRITE: usize = 23;
/// `MADV_GUARD_INSTALL`.
pub const MADV_GUARD_INSTALL: usize = 102;
/// `MADV_GUARD_REMOVE`.
pub const MADV_GUARD_REMOVE: usize = 103;

/// Advises the kernel; `MADV_DONTNEED` drops content.
///
/// # Safety
/// Content that an advice drops must not be needed by Rust.
pub unsafe fn madvise(addr: usize, len: usize, advice: usize) -> Result<()> {
    // SAFETY: the caller vouches for the range.
    ret(unsafe { syscall3(nr::MADVISE, addr, len, advice) }).map(drop)
}

/// Asks which pages of a range are in memory: bit 0 of one byte for each page.
///
/// # Panics
/// Where `flags` has not one byte for each page.
pub fn mincore(addr: usize, len: usize, flags: &mut [u8]) -> Result<()> {
    assert!(flags.len() >= len.div_ceil(crate::PAGE_BYTES), "one byte for each page");
    // SAFETY: `flags` is long enough; the range is only looked at.
    ret(unsafe { syscall3(nr::MINCORE, addr, len, flags.as_mut_ptr() as usize) }).map(drop)
}

/// The working directory, where a descriptor of a directory is expected.
const AT_FDCWD: i32 = -100;

/// Opens a file. `path` must end with a NUL byte.
pub fn open(path: &[u8], flags: usize, mode: usize) -> Result<i32> {
    assert!(path.last() == Some(&0), "path must be NUL-terminated");
    // SAFETY: the path is NUL-terminated and lives through the call.
    ret(unsafe { syscall4(nr::OPENAT, AT_FDCWD as usize, path.as_ptr() as usize, flags, mode) }).map(|fd| fd as i32)
}
/// `O_RDONLY`.
pub const O_RDONLY: usize = 0;
/// Open to write.
pub const O_WRONLY: usize = 1;
/// `O_RDWR`.
pub const O_RDWR: usize = 2;
/// `O_CLOEXEC`.
pub const O_CLOEXEC: usize = 0o2000000;
/// `O_NOCTTY`: a terminal does not become the controlling one.
pub const O_NOCTTY: usize = 0o400;
/// `O_NONBLOCK`: opening does not wait, for the other end of a FIFO say.
pub const O_NONBLOCK: usize = 0o4000;
/// `O_TMPFILE` with its directory bit.
pub const O_TMPFILE: usize = 0o20200000;

/// Closes a descriptor that this crate's callers own.
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: closing touches no memory.
    ret(unsafe { syscall1(nr::CLOSE, fd as usize) }).map(drop)
}

/// Reads up to `buf.len()` bytes.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is exclusively ours for its length.
    ret(unsafe { syscall3(nr::READ, fd as usize, buf.as_mut_ptr() as usize, buf.len()) })
}

/// Writes up to `buf.len()` bytes.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: the buffer is readable for its length.
    ret(unsafe { syscall3(nr::WRITE, fd as usize, buf.as_ptr() as usize, buf.len()) })
}

/// Reads at an offset.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the buffer is exclusively ours for its length.
    ret(unsafe { syscall4(nr::PREAD64, fd as usize, buf.as_mut_ptr() as usize, buf.len(), offset as usize) })
}

/// What [`part`] looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Huge pages of the processor.
    Huge,
    /// The kernel's zero page, or nothing: what was never written to.
    ZeroOrNothing,
    /// The kernel's zero page.
    Zero,
}

/// The first part of a range, of whole pages, that the kernel has mapped so, by a descriptor of the process's
/// `/proc/PID/pagemap` (`PAGEMAP_SCAN`, Linux 6.7). Empty, at 0, where there is none.
///
/// # Errors
/// `ENOTTY` where the kernel is older.
pub fn part(pagemap_fd: i32, addr: usize, len: usize, mapped: Mapped) -> Result<core::ops::Range<usize>> {
    const PAGEMAP_SCAN: usize = 0xc060_6610;
    const PAGE_IS_PRESENT: u64 = 1 << 3;
    const PAGE_IS_PFNZERO: u64 = 1 << 5;
    const PAGE_IS_HUGE: u64 = 1 << 6;
    let (inverted, any_of) = match mapped {
        Mapped::Huge => (0, PAGE_IS_HUGE),
        Mapped::ZeroOrNothing => (PAGE_IS_PRESENT, PAGE_IS_PRESENT | PAGE_IS_PFNZERO),
        Mapped::Zero => (0, PAGE_IS_PFNZERO),
    };
    // `struct page_region`: start, end, categories.
    let mut found = [0u64; 3];
    // `struct pm_scan_arg`: size, flags, start, end, where the walk ended, vec, its length, most pages; categories that are inverted, that
    // must be there, of which one must be, and that are told.
    let vec = &raw mut found as u64;
    let (start, end) = (addr as u64, (addr + len) as u64);
    let mut arg = [12 * 8, 0, start, end, 0, vec, 1, 0, inverted, 0, any_of, any_of];
    // SAFETY: the structure of this request, which names one place for a region, and that is there.
    ret(unsafe { syscall3(nr::IOCTL, pagemap_fd as usize, PAGEMAP_SCAN, arg.as_mut_ptr() as usize) })?;
    Ok(found[0] as usize..found[1] as usize)
}

/// Writes at an offset.
pub fn pwrite(fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
    // SAFETY: the buffer is readable for its length.
    ret(unsafe { syscall4(nr::PWRITE64, fd as usize, buf.as_ptr() as usize, buf.len(), offset as usize) })
}

/// Frees a range of a file (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
pub fn punch_hole(fd: i32, offset: u64, len: u64) -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall4(nr::FALLOCATE, fd as usize, 3, offset as usize, len as usize) }).map(drop)
}

/// `fcntl` with an integer argument.
pub fn fcntl(fd: i32, cmd: usize, arg: usize) -> Result<usize> {
    // SAFETY: only integer commands are used by this crate's callers.
    ret(unsafe { syscall3(nr::FCNTL, fd as usize, cmd, arg) })
}
/// A `struct flock`.
#[repr(C)]
struct FileLock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

fn lock_call(fd: i32, cmd: usize, at: u32) -> Result<FileLock> {
    let mut lock = FileLock { kind: F_WRLCK, whence: 0, start: i64::from(at), len: 1, pid: 0 };
    // SAFETY: a lock is read, and written by one of the commands.
    ret(unsafe { syscall3(nr::FCNTL, fd as usize, cmd, &raw mut lock as usize) })?;
    Ok(lock)
}

/// Locks a byte of a file that is open for writing, for this process: until it closes any descriptor of that file, or ends. Does not wait.
///
/// # Errors
/// `EAGAIN` or `EACCES` where another process has locked it.
pub fn lock_byte(fd: i32, at: u32) -> Result<()> {
    const F_SETLK: usize = 6;
    lock_call(fd, F_SETLK, at).map(drop)
}

/// Which other process has locked a byte of a file: 0 for one that has no number in the caller's pid namespace.
pub fn locked_by(fd: i32, at: u32) -> Result<Option<i32>> {
    const F_GETLK: usize = 5;
    lock_call(fd, F_GETLK, at).map(|lock| (lock.kind != F_UNLCK).then_some(lock.pid))
}
/// `F_SETFD`.
pub const F_SETFD: usize = 2;
/// `F_DUPFD`.
pub const F_DUPFD: usize = 0;
/// `F_DUPFD_CLOEXEC`.
pub const F_DUPFD_CLOEXEC: usize = 1030;

/// Creates an anonymous memory file. `name` must end with a NUL byte; `flags` as `memfd_create`.
pub fn memfd_create(name: &[u8], flags: usize) -> Result<i32> {
    assert!(name.last() == Some(&0), "name must be NUL-terminated");
    // SAFETY: the name is NUL-terminated and lives through the call.
    ret(unsafe { syscall2(nr::MEMFD_CREATE, name.as_ptr() as usize, flags) }).map(|fd| fd as i32)
}

/// `F_ADD_SEALS`.
pub const F_ADD_SEALS: usize = 1033;
/// `F_GET_SEALS`.
pub const F_GET_SEALS: usize = 1034;
/// `F_SEAL_SEAL`: no further seals.
pub const F_SEAL_SEAL: usize = 1;
/// `F_SEAL_SHRINK`.
pub const F_SEAL_SHRINK: usize = 2;
/// `F_SEAL_GROW`.
pub const F_SEAL_GROW: usize = 4;
/// `F_SEAL_WRITE`.
pub const F_SEAL_WRITE: usize = 8;

/// What a file says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileStatus {
    /// Device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Names that it has.
    pub links: u64,
    /// Kind and access rights, as `st_mode`.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Length.
    pub size_bytes: u64,
    /// When what it holds was last written to.
    pub written_ns: u64,
}

impl FileStatus {
    /// From a `struct stat`, as eight-byte words.
    fn of(stat: &[u64; 18]) -> FileStatus {
        FileStatus {
            device: stat[0],
            inode: stat[1],
            links: stat[2],
            mode: stat[3] as u32,
            uid: (stat[3] >> 32) as u32,
            size_bytes: stat[6],
            written_ns: stat[11].wrapping_mul(1_000_000_000).wrapping_add(stat[12]),
        }
    }
    /// Whether it is a regular file: no FIFO, device, directory or socket.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170000 == 0o100000
    }
}

/// Asks about an open file.
pub fn fstat(fd: i32) -> Result<FileStatus> {
    let mut stat = [0u64; 18];
    // SAFETY: the buffer has the size of `struct stat`.
    ret(unsafe { syscall2(nr::FSTAT, fd as usize, stat.as_mut_ptr() as usize) })?;
    Ok(FileStatus::of(&stat))
}

/// Asks about a file by its name, which must end with a NUL byte, seen from a directory (`None`: the working directory).
/// Symbolic links are followed; nothing is opened.
pub fn stat_at(directory: Option<i32>, path: &[u8]) -> Result<FileStatus> {
    assert!(path.last() == Some(&0), "path must be NUL-terminated");
    let mut stat = [0u64; 18];
    let (at, path) = (directory.unwrap_or(AT_FDCWD) as usize, path.as_ptr() as usize);
    // SAFETY: the path is NUL-terminated, and the buffer has the size of `struct stat`.
    ret(unsafe { syscall4(nr::NEWFSTATAT, at, path, stat.as_mut_ptr() as usize, 0) })?;
    Ok(FileStatus::of(&stat))
}

/// Opens a regular file for reading or (with [`O_RDWR`]) for both, seen from a directory. What is not regular is not opened: that could
/// block, or set a device to work.
///
/// # Errors
/// The kernel's, or [`Errno::EACCES`] where the file is not regular.
pub fn open_regular(directory: Option<i32>, path: &[u8], flags: usize) -> Result<(i32, FileStatus)> {
    if !stat_at(directory, path)?.is_regular() {
        return Err(Errno::EACCES);
    }
    let (at, flags) = (directory.unwrap_or(AT_FDCWD) as usize, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    // SAFETY: `stat_at` has checked that the path is NUL-terminated.
    let fd = ret(unsafe { syscall4(nr::OPENAT, at, path.as_ptr() as usize, flags, 0) })? as i32;
    // Another file may have the name by now.
    match fstat(fd) {
        Ok(status) if status.is_regular() => Ok((fd, status)),
        found => {
            let _ = close(fd);
            Err(found.err().unwrap_or(Errno::EACCES))
        }
    }
}

/// Whether this process may access a file (NUL-terminated path) so (`R_OK`, `X_OK`), by its real user's rights.
pub fn may_access(path: &[u8], right: usize) -> bool {
    assert!(path.last() == Some(&0), "path must be NUL-terminated");
    // SAFETY: the path is NUL-terminated and lives through the call.
    ret(unsafe { syscall3(nr::FACCESSAT, AT_FDCWD as usize, path.as_ptr() as usize, right) }).is_ok()
}

/// The effective user of the calling thread.
pub fn geteuid() -> u32 {
    // SAFETY: touches no memory.
    unsafe { syscall0(nr::GETEUID) as u32 }
}

/// Whether this process has taken on the user or group of a program, so that it is not only its user's.
pub fn has_mixed_ids() -> bool {
    let differ = |one, other| {
        // SAFETY: reads numbers of this process.
        unsafe { syscall0(one) != syscall0(other) }
    };
    differ(nr::GETUID, nr::GETEUID) || differ(nr::GETGID, nr::GETEGID)
}

/// `ADDR_NO_RANDOMIZE`: the kernel chooses the same addresses each time.
pub const ADDR_NO_RANDOMIZE: usize = 0x0004_0000;

/// Sets the execution domain of the calling thread; `None` only asks. Returns the one before.
pub fn personality(domain: Option<usize>) -> Result<usize> {
    // SAFETY: touches no memory; it concerns programs that are executed later.
    ret(unsafe { syscall1(nr::PERSONALITY, domain.unwrap_or(0xffff_ffff)) })
}

/// `F_GETFL`, of `fcntl`: the flags of an open file.
pub const F_GETFL: usize = 3;
/// `FIONREAD`, of `ioctl`: how many bytes wait to be read.
pub const FIONREAD: usize = 0x541b;
/// `PR_SET_SYSCALL_USER_DISPATCH`.
pub const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// Has calls of the calling thread that come from elsewhere than a range of addresses told by SIGSYS, and not made.
pub fn dispatch_calls(from: usize, bytes: usize) -> Result<()> {
    const ON: usize = 1;
    // SAFETY: touches no memory.
    ret(unsafe { syscall5(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, ON, from, bytes, 0) }).map(drop)
}

/// Has no calls of the calling thread told so.
///
/// # Errors
/// `EINVAL` where the kernel cannot do it.
pub fn dispatch_none() -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall5(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) }).map(drop)
}

/// `PR_SET_MEMORY_MERGE`.
pub const PR_SET_MEMORY_MERGE: usize = 67;

/// Whether the kernel may merge equal pages of all of this process's memory (KSM). False where it does not say.
pub fn merges_pages() -> bool {
    const PR_GET_MEMORY_MERGE: usize = 68;
    // SAFETY: touches no memory.
    ret(unsafe { syscall5(nr::PRCTL, PR_GET_MEMORY_MERGE, 0, 0, 0, 0) }) == Ok(1)
}

/// Ends that, and gives each page that was merged its own memory again.
///
/// # Errors
/// `EINVAL` where the kernel cannot do it, `ENOMEM`, `EINTR`.
pub fn merge_none() -> Result<()> {
    // SAFETY: no page's content changes.
    ret(unsafe { syscall5(nr::PRCTL, PR_SET_MEMORY_MERGE, 0, 0, 0, 0) }).map(drop)
}

/// Whether a thread exists, of whatever process.
pub fn is_thread(tid: i32) -> bool {
    // SAFETY: signal 0 is not sent.
    tid > 0 && ret(unsafe { syscall2(nr::TKILL, tid as usize, 0) }) != Err(Errno::ESRCH)
}

/// Sets a file's length.
pub fn ftruncate(fd: i32, len: u64) -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall2(nr::FTRUNCATE, fd as usize, len as usize) }).map(drop)
}

/// Waits until what was written to a file is on its device.
pub fn fdatasync(fd: i32) -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall1(nr::FDATASYNC, fd as usize) }).map(drop)
}

/// Fills `buf` with random bytes from the kernel.
pub fn getrandom(buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is exclusively ours for its length.
    ret(unsafe { syscall3(nr::GETRANDOM, buf.as_mut_ptr() as usize, buf.len(), 0) })
}

/// The process id.
pub fn getpid() -> i32 {
    // SAFETY: touches no memory.
    unsafe { syscall0(nr::GETPID) as i32 }
}

/// The thread id.
pub fn gettid() -> i32 {
    // SAFETY: touches no memory.
    unsafe { syscall0(nr::GETTID) as i32 }
}

/// Fills `mask` with the processors that the calling thread may run on, a bit for each; returns how many words of it the kernel knows.
/// `EINVAL`: the mask is shorter than that.
pub fn affinity(mask: &mut [u64]) -> Result<usize> {
    // SAFETY: the mask is exclusively ours for its length.
    let bytes = ret(unsafe { syscall3(nr::SCHED_GETAFFINITY, 0, size_of_val(mask), mask.as_mut_ptr() as usize) })?;
    Ok(bytes / size_of::<u64>())
}

/// Has a thread run on these processors, of those that its process may use. `EINVAL`: there is none.
pub fn set_affinity(tid: i32, mask: &[u64]) -> Result<()> {
    // SAFETY: only reads the mask.
    ret(unsafe { syscall3(nr::SCHED_SETAFFINITY, tid as usize, size_of_val(mask), mask.as_ptr() as usize) }).map(drop)
}

/// The policy that threads have as a rule (`SCHED_OTHER`).
pub const USUAL_POLICY: i32 = 0;

/// By what policy the calling thread is scheduled.
pub fn policy() -> Result<i32> {
    const SCHED_RESET_ON_FORK: usize = 0x4000_0000;
    // SAFETY: touches no memory.
    let policy = ret(unsafe { syscall1(nr::SCHED_GETSCHEDULER, 0) })?;
    Ok((policy & !SCHED_RESET_ON_FORK) as i32)
}

/// Whether a policy goes before all others on its processor, or has times of its own.
pub fn is_real_time(policy: i32) -> bool {
    const SCHED_FIFO: i32 = 1;
    const SCHED_RR: i32 = 2;
    const SCHED_DEADLINE: i32 = 6;
    matches!(policy, SCHED_FIFO | SCHED_RR | SCHED_DEADLINE)
}

/// Gives a thread a policy that is no real-time one.
pub fn set_policy(tid: i32, policy: i32) -> Result<()> {
    let priority = 0i32;
    let at = &raw const priority as usize;
    // SAFETY: only reads the priority, which is all of `struct sched_param`.
    ret(unsafe { syscall3(nr::SCHED_SETSCHEDULER, tid as usize, policy as usize, at) }).map(drop)
}

/// Sends a signal to a process; signal 0 only asks whether it exists.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall2(nr::KILL, pid as usize, signal as usize) }).map(drop)
}

/// Sends a signal to a thread.
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: touches no memory.
    ret(unsafe { syscall3(nr::TGKILL, pid as usize, tid as usize, signal as usize) }).map(drop)
}

/// Gives up the processor once.
pub fn sched_yield() {
    // SAFETY: touches no memory.
    unsafe { syscall0(nr::SCHED_YIELD) };
}

/// Waits for another thread: spins, then gives up the processor, then sleeps, so that an owner of lower priority gets on.
/// `spins` counts the calls since the wait began.
pub fn wait_a_little(spins: u32) {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 1024;
    const SLEEP_NS: u64 = 50_000;
    match spins {
        0..SPINS => core::hint::spin_loop(),
        SPINS..YIELDS => sched_yield(),
        _ => sleep_ns(SLEEP_NS),
    }
}

/// Sleeps, or less where a signal comes.
pub fn sleep_ns(duration_ns: u64) {
    let time = [(duration_ns / 1_000_000_000) as i64, (duration_ns % 1_000_000_000) as i64];
    // SAFETY: `time` has the layout of `struct timespec`; the time that is left is not asked for.
    unsafe { syscall2(nr::NANOSLEEP, time.as_ptr() as usize, 0) };
}

/// Ends the process at once.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall1(nr::EXIT_GROUP, status as usize) };
    }
}

/// Ends the calling thread. With the last thread, the process ends with its status.
pub fn exit_thread(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall1(nr::EXIT, status as usize) };
    }
}

/// Nanoseconds on the monotonic clock.
pub fn monotonic_ns() -> u64 {
    let mut ts = [0i64; 2];
    // SAFETY: `ts` has the layout of `struct timespec`.
    unsafe { syscall2(nr::CLOCK_GETTIME, 1, ts.as_mut_ptr() as usize) };
    ts[0] as u64 * 1_000_000_000 + ts[1] as u64
}

/// Nanoseconds of processor time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    let mut ts = [0i64; 2];
    // SAFETY: `ts` has the layout of `struct timespec`.
    unsafe { syscall2(nr::CLOCK_GETTIME, 3, ts.as_mut_ptr() as usize) };
    ts[0] as u64 * 1_000_000_000 + ts[1] as u64
}

/// Waits while `*word == expected`, at most `timeout_ns`. Works across processes when the word lies in a
/// shared mapping and `shared` is set.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout_ns: u64, shared: bool) -> Result<()> {
    let ts = [(timeout_ns / 1_000_000_000) as i64, (timeout_ns % 1_000_000_000) as i64];
    let op = if shared { 0 } else { 128 };
    // SAFETY: the word and the timeout live through the call.
    ret(unsafe { syscall4(nr::FUTEX, word.as_ptr() as usize, op, expected as usize, ts.as_ptr() as usize) }).map(drop)
}

/// Waits while both words are what they are said to be, until somebody wakes a waiter of one, or the time is over: of the first word, which
/// is this process's alone, or of the second, which it may share. Where the kernel waits for one word only (before Linux 5.16), that is
/// the first.
pub fn futex_wait_either(
    own: (&core::sync::atomic::AtomicU32, u32),
    shared: (&core::sync::atomic::AtomicU32, u32),
    timeout_ns: u64,
) {
    /// `struct futex_waitv`: value, address, flags, and 4 bytes that are nothing.
    #[repr(C)]
    struct Waiter(u64, u64, u32, u32);
    const U32: u32 = 2;
    const PRIVATE: u32 = 128;
    const CLOCK_MONOTONIC: usize = 1;
    let waiters = [
        Waiter(own.1 as u64, own.0.as_ptr() as u64, U32 | PRIVATE, 0),
        Waiter(shared.1 as u64, shared.0.as_ptr() as u64, U32, 0),
    ];
    let until_ns = monotonic_ns().saturating_add(timeout_ns);
    let until = [(until_ns / 1_000_000_000) as i64, (until_ns % 1_000_000_000) as i64];
    let (at, until) = (waiters.as_ptr() as usize, until.as_ptr() as usize);
    // SAFETY: words, structures and time live through the call.
    let waited = ret(unsafe { syscall5(nr::FUTEX_WAITV, at, waiters.len(), 0, until, CLOCK_MONOTONIC) });
    // Whatever else a kernel or a filter answers that has not got the call.
    if waited.is_err_and(|error| !matches!(error, Errno::EAGAIN | Errno::ETIMEDOUT | Errno::EINTR)) {
        let _ = futex_wait(own.0, own.1, timeout_ns, false);
    }
}

/// Wakes up to `count` waiters of `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: usize, shared: bool) {
    let op = if shared { 1 } else { 129 };
    // SAFETY: the word lives through the call.
    unsafe { syscall3(nr::FUTEX, word.as_ptr() as usize, op, count) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn either_word_ends_a_wait() {
        const LONG_NS: u64 = 60_000_000_000;
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        for (which, word) in words.iter().enumerate() {
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    while word.load(SeqCst) == 0 {
                        futex_wait_either((&words[0], which as u32), (&words[1], 0), LONG_NS);
                    }
                });
                // It may be waiting by now, or see the change before it does.
                futex_wait_either((&words[0], which as u32), (&words[1], 0), 5_000_000);
                word.store(1, SeqCst);
                while !waiter.is_finished() {
                    futex_wake(word, 1, which == 1);
                    sched_yield();
                }
            });
        }
        futex_wait_either((&words[0], 0), (&words[1], 0), LONG_NS);
    }
}
