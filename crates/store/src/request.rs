//! Asking for a file: a process that cannot make one, because its root directory is another or its rights are fewer, asks who makes files
//! for others. Each request brings a socket of its own for the answer, since all processes ask by the same one.
use core::mem::size_of;
use outswap_sys::{Errno, Result, nr, os, ret, syscall3, syscall4};

/// How long an answer is waited for.
const WAIT_MS: usize = 1000;
/// Attempts, a millisecond apart, to hand a request over.
const ATTEMPTS: u32 = 100;

const AF_UNIX: usize = 1;
const SOCK_SEQPACKET: usize = 5;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const POLLIN: u64 = 1;

/// Descriptors in an answer.
const FILES: usize = 2;

/// A `struct cmsghdr` with descriptors behind it.
#[repr(C, align(8))]
struct Rights<const N: usize> {
    bytes: usize,
    level: i32,
    kind: i32,
    fds: [i32; N],
}

impl<const N: usize> Rights<N> {
    const BYTES: usize = size_of::<usize>() + 2 * size_of::<i32>() + N * size_of::<i32>();
}

/// A `struct msghdr` of one byte with control data.
#[repr(C)]
struct Message {
    name: usize,
    name_bytes: usize,
    parts: *const [usize; 2],
    part_count: usize,
    control: usize,
    control_bytes: usize,
    flags: usize,
}

/// Sends or receives one byte with descriptors.
///
/// # Safety
/// `call` is `sendmsg` or `recvmsg`; descriptors that come are the caller's.
unsafe fn message<const N: usize>(call: usize, fd: i32, rights: &mut Rights<N>, flags: usize) -> Result<usize> {
    let mut byte = 1u8;
    let part = [&raw mut byte as usize, 1];
    let mut message = Message {
        name: 0,
        name_bytes: 0,
        parts: &part,
        part_count: 1,
        control: core::ptr::from_mut(rights) as usize,
        control_bytes: size_of::<Rights<N>>(),
        flags: 0,
    };
    // SAFETY: all that it names is here, and as long as it says.
    ret(unsafe { syscall3(call, fd as usize, &raw mut message as usize, flags) })
}

/// Asks for a file, and waits for it: a descriptor that can write, and one that can only read.
///
/// # Errors
/// `ETIMEDOUT` where nobody answers, `EPROTO` for an answer that is no file, and what the calls say.
pub(crate) fn ask(requests_fd: i32) -> Result<[i32; FILES]> {
    let mut pair = [0i32; 2];
    let kind = SOCK_SEQPACKET | os::O_CLOEXEC;
    // SAFETY: a place for two descriptors.
    ret(unsafe { syscall4(nr::SOCKETPAIR, AF_UNIX, kind, 0, pair.as_mut_ptr() as usize) })?;
    let [own, theirs] = pair;
    let sent = send(requests_fd, theirs);
    let _ = os::close(theirs);
    let answer = sent.and_then(|()| receive(own));
    let _ = os::close(own);
    answer
}

fn send(requests_fd: i32, fd: i32) -> Result<()> {
    let mut attempt = 0;
    loop {
        let mut rights = Rights { bytes: Rights::<1>::BYTES, level: SOL_SOCKET, kind: SCM_RIGHTS, fds: [fd] };
        // SAFETY: sends only.
        match unsafe { message(nr::SENDMSG, requests_fd, &mut rights, MSG_DONTWAIT | MSG_NOSIGNAL) } {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            // Others have asked, and were not answered yet.
            Err(Errno::EAGAIN) if attempt < ATTEMPTS => {
                attempt += 1;
                os::sleep_ns(1_000_000);
            }
            Err(error) => return Err(error),
        }
    }
}

fn receive(fd: i32) -> Result<[i32; FILES]> {
    let mut poll = fd as u32 as u64 | POLLIN << 32;
    // SAFETY: one `struct pollfd`.
    let wait = || ret(unsafe { syscall3(nr::POLL, &raw mut poll as usize, 1, WAIT_MS) });
    match core::iter::repeat_with(wait).find(|ready| *ready != Err(Errno::EINTR)) {
        Some(Ok(0)) | None => return Err(Errno::ETIMEDOUT),
        Some(ready) => ready?,
    };
    let mut rights = Rights { bytes: 0, level: 0, kind: 0, fds: [0; FILES] };
    // SAFETY: what comes is kept or closed below.
    let len = unsafe { message(nr::RECVMSG, fd, &mut rights, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) }?;
    let is_rights = (rights.level, rights.kind) == (SOL_SOCKET, SCM_RIGHTS);
    let came = if is_rights { rights.bytes.saturating_sub(Rights::<0>::BYTES) / size_of::<i32>() } else { 0 };
    let [one, other] = rights.fds;
    let is_file = |fd| os::fstat(fd).ok().filter(|status| status.is_regular());
    if len == 1
        && came == FILES
        && let (Some(one), Some(other)) = (is_file(one), is_file(other))
        && (one.device, one.inode) == (other.device, other.inode)
    {
        return Ok(rights.fds);
    }
    for fd in rights.fds.into_iter().take(came) {
        let _ = os::close(fd);
    }
    Err(Errno::EPROTO)
}
