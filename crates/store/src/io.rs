//! What the file tier asks of the system.
use crate::limits::{DESCRIPTORS, MAX_FILE_BYTES};
use crate::request;
use outswap_sys::{Errno, Result, nr, os, syscall3, syscall4};

const AT_FDCWD: i32 = -100;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_DIRECTORY: usize = 0o200000;
const O_PATH: usize = 0o10000000;
const EISDIR: Errno = Errno(21);

/// A new file without a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Descriptor for its writer.
    pub write_fd: i32,
    /// Descriptor that can only read. Forked children get no other: opened now, because later the process may be in another
    /// root directory or have other rights.
    pub read_fd: i32,
}

/// One of several reads of a file.
#[derive(Debug)]
pub struct FileRead<'a> {
    /// Where its bytes go.
    pub buf: &'a mut [u8],
    /// Where they are in the file.
    pub offset: u64,
    /// How it ended, as that of `pread(2)`.
    pub result: Result<usize>,
}

/// What the file tier asks of the system. Tests put a failing one in its place.
pub trait FileIo: Sync {
    /// Reads at an offset, as `pread(2)`.
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Makes several reads of a file, at the same time where that can be.
    fn pread_all(&self, fd: i32, reads: &mut [FileRead<'_>]) {
        for read in reads {
            read.result = self.pread(fd, read.buf, read.offset);
        }
    }
    /// Writes at an offset, as `pwrite(2)`.
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize>;
    /// Frees a range of the file.
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()>;

    /// Prepares for [`FileIo::pread_all`], while the process has one thread. Descriptors have this number or one above.
    fn begin(&self, min_fd: i32) {
        let _ = min_fd;
    }
    /// Ends that: later reads are made one after the other.
    fn end(&self) {}
    /// In a forked child, before it does anything else.
    fn begin_child(&self, min_fd: i32) {
        let _ = min_fd;
    }
    /// The descriptor that it has open for that.
    fn descriptor(&self) -> Option<i32> {
        None
    }
    /// Reads that were made at the same time as others.
    fn reads_together(&self) -> u64 {
        0
    }

    /// Makes a file in a directory.
    fn create(&self, directory_fd: i32) -> Result<NewFile> {
        create(directory_fd)
    }
    /// Has somebody else make a file, who is asked by a descriptor.
    fn request(&self, requests_fd: i32) -> Result<NewFile> {
        request::ask(requests_fd).map(|[write_fd, read_fd]| NewFile { write_fd, read_fd })
    }
    /// Fills `buf` with random bytes for keys.
    fn random(&self, buf: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match os::getrandom(&mut buf[filled..]) {
                Ok(n) => filled += n,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// The longest that a file of this process may become, in bytes (`RLIMIT_FSIZE`).
    fn size_limit_bytes(&self) -> u64 {
        rlimit(1)
    }
}

/// The real system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveIo;

impl FileIo for LiveIo {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
        os::pread(fd, buf, offset)
    }

    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
        outswap_sys::signal::without_sigxfsz(|| os::pwrite(fd, buf, offset), |done| *done == Err(Errno::EFBIG))
    }

    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()> {
        os::punch_hole(fd, offset, len)
    }
}

/// The soft limit of a resource; `u64::MAX` for none.
pub(crate) fn rlimit(resource: usize) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { syscall4(nr::PRLIMIT64, 0, resource, 0, limit.as_mut_ptr() as usize) };
    limit[0]
}

fn openat(directory_fd: i32, path: &[u8], flags: usize) -> Result<i32> {
    assert!(path.last() == Some(&0), "path must be NUL-terminated");
    let at = directory_fd as isize as usize;
    // SAFETY: the path is NUL-terminated and lives through the call.
    outswap_sys::ret(unsafe { syscall4(nr::OPENAT, at, path.as_ptr() as usize, flags, 0o600) }).map(|fd| fd as i32)
}

/// Opens a directory to make files in, by this process and its children, wherever their root directory is then. `path` ends
/// with a NUL byte.
pub(crate) fn open_directory(path: &[u8]) -> Result<i32> {
    openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | os::O_CLOEXEC)
}

/// Moves a descriptor out of the program's way: to one of the [`DESCRIPTORS`] numbers from `min_fd` on. Where the program has
/// taken all of these, the descriptor is closed. Where a lowered limit forbids them, it is as high as that allows.
pub(crate) fn raise(low: i32, min_fd: i32) -> Result<i32> {
    const RLIMIT_NOFILE: usize = 7;
    const BELOW_LIMIT: usize = 16;
    let min_fd = min_fd.max(0);
    let end = min_fd + DESCRIPTORS;
    if (min_fd..end).contains(&low) {
        return Ok(low);
    }
    let soft = rlimit(RLIMIT_NOFILE).min(i32::MAX as u64) as usize;
    for at in [min_fd as usize, soft.saturating_sub(BELOW_LIMIT), soft / 2] {
        let allowed = at >= min_fd as usize || soft < end as usize;
        let Some(Ok(high)) = allowed.then(|| os::fcntl(low, os::F_DUPFD_CLOEXEC, at)) else { continue };
        let high = high as i32;
        if (min_fd..end).contains(&high) || soft < end as usize && high > low {
            let _ = os::close(low);
            return Ok(high);
        }
        let _ = os::close(high);
    }
    if soft < end as usize {
        return Ok(low);
    }
    let _ = os::close(low);
    Err(Errno::EMFILE)
}

/// Makes a file for another process, in a directory whose path ends with a NUL byte. Both descriptors are the caller's.
///
/// # Errors
/// What the system says.
pub fn make_file(directory: &[u8]) -> Result<NewFile> {
    let directory_fd = open_directory(directory)?;
    let made = create(directory_fd);
    let _ = os::close(directory_fd);
    made
}

fn create(directory_fd: i32) -> Result<NewFile> {
    let flags = os::O_RDWR | os::O_CLOEXEC;
    // Exclusive: nobody can give it a name.
    match openat(directory_fd, b".\0", flags | os::O_TMPFILE | O_EXCL) {
        Ok(write_fd) => match reopen(write_fd) {
            Some(read_fd) => return Ok(NewFile { write_fd, read_fd }),
            // No /proc here: a file with a name can be opened twice without it.
            None => drop(os::close(write_fd)),
        },
        // File systems without O_TMPFILE answer in one of these ways.
        Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOENT | EISDIR) => {}
        Err(e) => return Err(e),
    }
    let name = random_name()?;
    let write_fd = openat(directory_fd, &name, flags | O_CREAT | O_EXCL)?;
    let read_fd = openat(directory_fd, &name, os::O_RDONLY | os::O_CLOEXEC);
    let at = directory_fd as isize as usize;
    // SAFETY: the name is NUL-terminated and lives through the call.
    let gone = outswap_sys::ret(unsafe { syscall3(nr::UNLINKAT, at, name.as_ptr() as usize, 0) });
    match (read_fd, gone) {
        (Ok(read_fd), Ok(_)) if is_same(write_fd, read_fd) => Ok(NewFile { write_fd, read_fd }),
        (read_fd, gone) => {
            let _ = os::close(write_fd);
            let _ = read_fd.map(os::close);
            Err(read_fd.and(gone.map(|_| 0)).err().unwrap_or(Errno::EIO))
        }
    }
}

/// Opens a file without a name once more, for reading only.
fn reopen(fd: i32) -> Option<i32> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut path = [0u8; PREFIX.len() + 12];
    path[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = core::iter::successors(Some(fd), |n| (*n >= 10).then_some(n / 10)).count();
    let mut rest = fd as u32;
    for digit in path[PREFIX.len()..PREFIX.len() + digits].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let read_fd = openat(AT_FDCWD, &path[..=PREFIX.len() + digits], os::O_RDONLY | os::O_CLOEXEC).ok()?;
    if is_same(fd, read_fd) {
        return Some(read_fd);
    }
    // What is mounted on /proc here is something else.
    let _ = os::close(read_fd);
    None
}

/// Whether two descriptors are of one file.
fn is_same(a: i32, b: i32) -> bool {
    let identity = |fd: i32| os::fstat(fd).ok().map(|status| (status.device, status.inode));
    identity(a).is_some_and(|of_a| identity(b) == Some(of_a))
}

/// `struct flock`.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    bytes: i64,
    pid: i32,
}

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
/// Locks lie behind all that a file may hold.
const LOCKS_AT: i64 = 1 << 41;
const _: () = assert!(MAX_FILE_BYTES <= LOCKS_AT as u64);

/// Asks for or about a lock of one byte, which stands for a user of the file. It belongs to the process (its table of
/// descriptors), is not inherited by a forked child, and ends with the descriptor.
fn flock(fd: i32, command: usize, kind: i16, user: usize) -> Option<i16> {
    let mut lock = Flock { kind, whence: 0, start: LOCKS_AT + user as i64, bytes: 1, pid: 0 };
    let done = os::fcntl(fd, command, &raw mut lock as usize);
    done.is_ok().then_some(lock.kind)
}

/// Locks or unlocks a user's byte. False where that cannot be.
pub(crate) fn lock(fd: i32, user: usize, locked: bool) -> bool {
    const F_SETLK: usize = 6;
    flock(fd, F_SETLK, if locked { F_RDLCK } else { F_UNLCK }, user).is_some()
}

/// Whether it is certain that no other process has locked a user's byte.
pub(crate) fn is_unlocked(fd: i32, user: usize) -> bool {
    const F_GETLK: usize = 5;
    flock(fd, F_GETLK, F_WRLCK, user) == Some(F_UNLCK)
}

/// A name that nobody has guessed, with a NUL byte.
fn random_name() -> Result<[u8; 26]> {
    let mut random = [0u8; 8];
    if os::getrandom(&mut random)? < random.len() {
        return Err(Errno::EAGAIN);
    }
    let mut name = *b".outswap-0000000000000000\0";
    for (digits, byte) in name[9..25].chunks_exact_mut(2).zip(random) {
        digits.copy_from_slice(&[b"0123456789abcdef"[(byte >> 4) as usize], b"0123456789abcdef"[(byte & 15) as usize]]);
    }
    Ok(name)
}
