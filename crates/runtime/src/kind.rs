//! What a descriptor is open on, as far as calls differ by it.
use outswap_sys::{nr, os};

const O_NONBLOCK: isize = 0o4000;
const S_IFIFO: u32 = 0o010000;
const S_IFCHR: u32 = 0o020000;
const S_IFBLK: u32 = 0o060000;
const S_IFREG: u32 = 0o100000;
const S_IFSOCK: u32 = 0o140000;

/// Type of what a descriptor is open on, its major and minor numbers where that is a device, and whether everybody may read it, nobody may
/// write to it, and it has no length.
fn file_type(fd: usize) -> (u32, (u32, u32), bool) {
    const S_IFMT: u32 = 0o170000;
    const RIGHTS: u32 = 0o777;
    const ALL_READ: u32 = 0o444;
    let mut stat = [0u32; 36];
    // SAFETY: the buffer has the size of `struct stat`; the mode is at byte 24, the device at byte 40, the length at byte 48.
    let ok = unsafe { outswap_sys::syscall2(nr::FSTAT, fd, stat.as_mut_ptr() as usize) } == 0;
    let is_told = stat[6] & RIGHTS == ALL_READ && stat[12..14] == [0, 0];
    if ok { (stat[6] & S_IFMT, (stat[10] >> 8 & 0xfff, stat[10] & 0xff), is_told) } else { (0, (0, 0), false) }
}

/// What a descriptor is open on, as far as transfers differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file, or a device like one (`/dev/zero`), whose transfers are never cut short.
    File,
    /// A file that the kernel writes as it is read, as those of `/proc` that tell of threads, with their signals: reads give what there is. Also any
    /// other that everybody may read, nobody may write to, and has no length; whoever has just made it writes to it as to others.
    Told,
    /// A pipe.
    Pipe,
    /// A socket whose bytes follow each other.
    Stream,
    /// A socket whose messages are whole or nothing.
    Messages,
    /// Anything else.
    Other,
}

/// What a descriptor is open on.
pub fn kind(fd: usize) -> Kind {
    const MEM_MAJOR: u32 = 1;
    /// `/dev/kmsg` is of that major, but reads of it wait.
    const KMSG_MINOR: u32 = 11;
    match file_type(fd) {
        (S_IFCHR, (MEM_MAJOR, KMSG_MINOR), _) => Kind::Other,
        (S_IFREG, _, true) => Kind::Told,
        (S_IFREG | S_IFBLK, ..) | (S_IFCHR, (MEM_MAJOR, _), _) => Kind::File,
        (S_IFIFO, ..) => Kind::Pipe,
        (S_IFSOCK, ..) if is_stream(fd) => Kind::Stream,
        (S_IFSOCK, ..) => Kind::Messages,
        _ => Kind::Other,
    }
}

/// An option of a socket itself, `None` where it has none of that size.
fn option<const WORDS: usize>(fd: usize, name: usize) -> Option<[u32; WORDS]> {
    const SOL_SOCKET: usize = 1;
    let (mut value, mut len) = ([0u32; WORDS], 4 * WORDS as u32);
    let (value_at, len_at) = (value.as_mut_ptr() as usize, &raw mut len as usize);
    // SAFETY: places for the value and its length.
    let ok = unsafe { outswap_sys::syscall5(nr::GETSOCKOPT, fd, SOL_SOCKET, name, value_at, len_at) } == 0;
    (ok && len == 4 * WORDS as u32).then_some(value)
}

fn is_stream(fd: usize) -> bool {
    const SO_TYPE: usize = 3;
    const SOCK_STREAM: u32 = 1;
    option(fd, SO_TYPE) == Some([SOCK_STREAM])
}

/// How long a call waits in all on a socket, to send or to receive, nanoseconds; `None` where that is for ever, or where each of its waits may be
/// so long.
pub fn time_out_ns(fd: usize, sends: bool) -> Option<u64> {
    const SO_DOMAIN: usize = 39;
    const AF_UNIX: u32 = 1;
    const SO_RCVTIMEO: usize = 20;
    const SO_SNDTIMEO: usize = 21;
    // Seconds, microseconds.
    let [low, high, us, _] = option(fd, if sends { SO_SNDTIMEO } else { SO_RCVTIMEO })?;
    let ns = (u64::from(high) << 32 | u64::from(low)).saturating_mul(1_000_000_000);
    let ns = Some(ns.saturating_add(u64::from(us) * 1000)).filter(|ns| *ns > 0)?;
    (!sends || option(fd, SO_DOMAIN)? != [AF_UNIX]).then_some(ns)
}

/// Whether reads of a descriptor do not wait, by a call's `flags` or by those of the open file.
pub fn is_nonblocking(fd: usize, flags: usize) -> bool {
    const MSG_DONTWAIT: usize = 0x40;
    // SAFETY: asks for flags. An error has all bits of its kind.
    let status = || unsafe { outswap_sys::syscall2(nr::FCNTL, fd, os::F_GETFL) }.max(0);
    flags & MSG_DONTWAIT != 0 || status() & O_NONBLOCK != 0
}

/// Whether something waits to be read from a pipe or socket, also where that cannot be told. To find out by reading would be to be told of an
/// error that is for the program's next call.
pub fn has_more(fd: usize) -> bool {
    let mut bytes = 0u32;
    // SAFETY: a place for the number.
    let told = unsafe { outswap_sys::syscall3(nr::IOCTL, fd, os::FIONREAD, &raw mut bytes as usize) };
    told != 0 || bytes > 0
}

/// Whether a call is a transfer of a file's content, which ends soon.
pub fn is_file_transfer(nr: usize, fd: usize) -> bool {
    const TRANSFERS: [usize; 10] = [
        nr::READ,
        nr::WRITE,
        nr::PREAD64,
        nr::PWRITE64,
        nr::READV,
        nr::WRITEV,
        nr::PREADV,
        nr::PWRITEV,
        nr::PREADV2,
        nr::PWRITEV2,
    ];
    TRANSFERS.contains(&nr) && matches!(kind(fd), Kind::File | Kind::Told)
}
