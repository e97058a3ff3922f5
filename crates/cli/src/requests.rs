//! Makes swap files for processes that cannot: their root directory is another, or they have no right to write to the directory.
//!
//! A request is a message of one byte with a socket, at which the answer goes: two descriptors of a new file without a name. Only who has
//! the same user as this process gets one (the kernel tells the sender of each message): to others, files of ours would be room that they are not
//! given.
use outswap_store::{NewFile, make_file};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Requests that are answered in a row.
const TURN: usize = 16;
/// And the pause then.
const PAUSE: Duration = Duration::from_millis(5);
const STACK_BYTES: usize = 64 << 10;
/// Room for control data: more than descriptors that are waited for.
const CONTROL_WORDS: usize = 16;

/// Where requests come.
pub struct Requests {
    socket: OwnedFd,
    /// Ends with a NUL byte.
    directory: Vec<u8>,
}

impl Requests {
    /// Requests at a socket whose messages say whose they are, for files in a directory.
    pub fn new(socket: OwnedFd, directory: &OsStr) -> Requests {
        Requests { socket, directory: [directory.as_bytes(), b"\0"].concat() }
    }

    /// Answers requests in a thread of their own, until the process ends: to close what a request brings may take as long as its sender
    /// likes. Signals are the caller's.
    pub fn serve_apart(self) {
        // Without a thread nobody is answered.
        let _ = std::thread::Builder::new().name("requests".into()).stack_size(STACK_BYTES).spawn(move || self.serve());
    }

    /// Answers them until nobody can ask any more.
    fn serve(&self) {
        let mut left = TURN;
        while self.wait() {
            match receive(self.socket.as_raw_fd()) {
                Received::Request(reply) => self.answer(&reply),
                Received::Nonsense | Received::Nothing => {}
                Received::End => return,
            }
            left -= 1;
            if left == 0 {
                left = TURN;
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Waits until something is there; false where nothing will ever be.
    fn wait(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, as said.
        let ready = unsafe { libc::poll(&mut poll, 1, -1) };
        ready < 0 || poll.revents & (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) == libc::POLLIN
    }

    /// Without a file the socket is closed, which is an answer, too.
    fn answer(&self, reply: &OwnedFd) {
        let fd = reply.as_raw_fd();
        if number(fd, libc::SO_DOMAIN) != Some(libc::AF_UNIX) || number(fd, libc::SO_TYPE) != Some(libc::SOCK_SEQPACKET)
        {
            return;
        }
        if let Ok(NewFile { write_fd, read_fd }) = make_file(&self.directory) {
            // SAFETY: they are ours.
            let files = [write_fd, read_fd].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            send(fd, &files);
        }
    }
}

/// What came at the socket.
enum Received {
    /// A request of our own user's, to be answered there.
    Request(OwnedFd),
    /// Something else.
    Nonsense,
    /// Nothing yet.
    Nothing,
    /// Nothing ever.
    End,
}

fn receive(socket: RawFd) -> Received {
    let (mut byte, mut control) = (0u8, [0u64; CONTROL_WORDS]);
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zero is a message of nothing.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    // SAFETY: all that the message names is here, and as long as it says.
    let len = unsafe { libc::recvmsg(socket, &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    if len < 0 {
        let again = matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
        return if again { Received::Nothing } else { Received::End };
    }
    let (mut fds, mut user) = (Vec::new(), None);
    // SAFETY: the kernel has written the control data, and said how much; descriptors in it are ours from here on.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while let Some(head) = header.as_ref() {
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = head.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                fds.extend((0..bytes / size_of::<RawFd>()).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
                user = Some(libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().uid);
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    // SAFETY: asks for a number.
    let is_ours = user == Some(unsafe { libc::getuid() });
    match (len, fds.pop()) {
        (1, Some(reply)) if fds.is_empty() && is_ours => Received::Request(reply),
        _ => Received::Nonsense,
    }
}

/// A number that is an option of a socket; `None` where that is no socket.
fn number(socket: RawFd, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    let (at, len) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: there is room for the answer.
    let result = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, option, at, len) };
    (result == 0).then_some(value)
}

/// Sends descriptors. Who does not take them gets none.
fn send(socket: RawFd, files: &[OwnedFd; 2]) {
    let (mut byte, mut control) = (1u8, [0u64; CONTROL_WORDS]);
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let bytes = size_of::<[RawFd; 2]>() as u32;
    // SAFETY: as in `receive`; there is more room for control data than two descriptors take.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        libc::CMSG_DATA(header).cast::<[RawFd; 2]>().write_unaligned(files.each_ref().map(AsRawFd::as_raw_fd));
        libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_store::{FileIo, LiveIo};
    use std::os::unix::fs::MetadataExt;

    fn pair() -> [OwnedFd; 2] {
        let mut fds = [-1; 2];
        // SAFETY: a place for two descriptors, which are nobody else's.
        unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, fds.as_mut_ptr()), 0);
            let [ours, theirs] = fds.map(|fd| OwnedFd::from_raw_fd(fd));
            crate::block::say_whose(&ours);
            [ours, theirs]
        }
    }

    /// Asks in this thread, and serves in another until that is answered.
    fn ask(directory: &str, before: &[&[u8]]) -> outswap_sys::Result<NewFile> {
        let [ours, theirs] = pair();
        let requests = Requests::new(ours, OsStr::new(directory));
        for message in before {
            // SAFETY: sends what is there.
            unsafe { libc::send(theirs.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        }
        std::thread::scope(|scope| {
            let server = scope.spawn(move || requests.serve());
            let answer = LiveIo.request(theirs.as_raw_fd());
            drop(theirs);
            server.join().expect("no panic");
            answer
        })
    }

    #[test]
    fn a_file_without_a_name_is_made() {
        let directory = std::env::temp_dir();
        let NewFile { write_fd, read_fd } = ask(directory.to_str().expect("a name"), &[]).expect("a file");
        // SAFETY: ours alone.
        let [write, read] = [write_fd, read_fd].map(|fd| std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let [one, other] = [&write, &read].map(|file| file.metadata().expect("a file"));
        assert_eq!((one.ino(), one.nlink(), one.len()), (other.ino(), 0, 0));
        std::os::unix::fs::FileExt::write_at(&write, b"x", 0).expect("may be written");
        assert!(std::os::unix::fs::FileExt::write_at(&read, b"x", 0).is_err());
    }

    #[test]
    fn who_cannot_be_served_is_told_so_at_once() {
        let began = std::time::Instant::now();
        assert!(ask("/nonexistent/outswap", &[]).is_err());
        assert!(began.elapsed().as_millis() < 900, "nobody waits for an answer that does not come");
    }

    #[test]
    fn nonsense_is_passed_over() {
        let file =
            ask(std::env::temp_dir().to_str().expect("a name"), &[b"x", b"", b"too long", b"y"]).expect("a file");
        for fd in [file.write_fd, file.read_fd] {
            outswap_sys::os::close(fd).expect("ours");
        }
    }
}
