//! The table of assisted system calls: one row a call, saying what its arguments point to.
//!
//! A row is all that a call needs. Calls without a row that carry a pointer into managed memory get
//! [`DEFAULT_BYTES`] there.
use outswap_sys::nr;

/// What an argument points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// No pointer.
    No,
    /// A buffer whose length in bytes is argument `k`.
    Buf(u8),
    /// A buffer of argument `k` bytes after 8 bytes of head (System V messages).
    Message(u8),
    /// An array of argument `k` elements of so many bytes.
    Each(u8, u16),
    /// A structure of so many bytes.
    N(u32),
    /// A NUL-terminated string.
    Str,
    /// An array of `struct iovec` with argument `k` elements, and what they point to.
    Iov(u8),
    /// A `struct msghdr` and what it points to.
    Msg,
    /// An array of argument `k` `struct mmsghdr`, and what they point to.
    Mmsg(u8),
    /// A buffer whose length is the 32-bit number that argument `k` points to.
    SizedBy(u8),
    /// An `fd_set` for argument `k` descriptors.
    FdSet(u8),
    /// A structure that the kernel goes on using after the call: never evicted from then on.
    Forever(u32),
}
use Arg::*;

/// A call that is assisted.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number.
    pub nr: usize,
    /// Arguments; those left out are no pointers.
    pub args: &'static [Arg],
    /// Whether the call moves bytes and may be cut short, so that a large transfer need not be resident at once.
    pub transfer: bool,
    /// Whether pointers hide behind other memory, so that the filter cannot see them and must trap every such call.
    pub nested: bool,
}

/// Bytes made resident behind a pointer argument of a call that has no row.
pub const DEFAULT_BYTES: u32 = 64 * 1024;

macro_rules! call {
    ($name:ident, [$($arg:expr),*]) => {
        Call { nr: nr::$name, args: &[$($arg),*], transfer: false, nested: false }
    };
    ($name:ident, [$($arg:expr),*], transfer) => {
        Call { nr: nr::$name, args: &[$($arg),*], transfer: true, nested: false }
    };
    ($name:ident, [$($arg:expr),*], nested) => {
        Call { nr: nr::$name, args: &[$($arg),*], transfer: false, nested: true }
    };
    ($name:ident, [$($arg:expr),*], transfer nested) => {
        Call { nr: nr::$name, args: &[$($arg),*], transfer: true, nested: true }
    };
}

/// Every assisted call.
#[rustfmt::skip]
pub const CALLS: &[Call] = &[
    call!(READ, [No, Buf(2)], transfer),
    call!(WRITE, [No, Buf(2)], transfer),
    call!(PREAD64, [No, Buf(2)], transfer),
    call!(PWRITE64, [No, Buf(2)], transfer),
    call!(READV, [No, Iov(2)], transfer nested),
    call!(WRITEV, [No, Iov(2)], transfer nested),
    call!(PREADV, [No, Iov(2)], transfer nested),
    call!(PWRITEV, [No, Iov(2)], transfer nested),
    call!(PREADV2, [No, Iov(2)], transfer nested),
    call!(PWRITEV2, [No, Iov(2)], transfer nested),
    call!(OPEN, [Str]),
    call!(OPENAT, [No, Str]),
    call!(OPENAT2, [No, Str, N(24)]),
    call!(CREAT, [Str]),
    call!(STAT, [Str, N(144)]),
    call!(LSTAT, [Str, N(144)]),
    call!(FSTAT, [No, N(144)]),
    call!(NEWFSTATAT, [No, Str, N(144)]),
    call!(STATX, [No, Str, No, No, N(256)]),
    call!(ACCESS, [Str]),
    call!(FACCESSAT, [No, Str]),
    call!(FACCESSAT2, [No, Str]),
    call!(READLINK, [Str, Buf(2)]),
    call!(READLINKAT, [No, Str, Buf(3)]),
    call!(MKDIR, [Str]),
    call!(MKDIRAT, [No, Str]),
    call!(RMDIR, [Str]),
    call!(UNLINK, [Str]),
    call!(UNLINKAT, [No, Str]),
    call!(RENAME, [Str, Str]),
    call!(RENAMEAT, [No, Str, No, Str]),
    call!(RENAMEAT2, [No, Str, No, Str]),
    call!(LINK, [Str, Str]),
    call!(LINKAT, [No, Str, No, Str]),
    call!(SYMLINK, [Str, Str]),
    call!(SYMLINKAT, [Str, No, Str]),
    call!(MKNOD, [Str]),
    call!(MKNODAT, [No, Str]),
    call!(CHMOD, [Str]),
    call!(FCHMODAT, [No, Str]),
    call!(CHOWN, [Str]),
    call!(LCHOWN, [Str]),
    call!(FCHOWNAT, [No, Str]),
    call!(TRUNCATE, [Str]),
    call!(STATFS, [Str, N(120)]),
    call!(FSTATFS, [No, N(120)]),
    call!(UTIME, [Str, N(16)]),
    call!(UTIMES, [Str, N(32)]),
    call!(FUTIMESAT, [No, Str, N(32)]),
    call!(UTIMENSAT, [No, Str, N(32)]),
    call!(GETDENTS, [No, Buf(2)]),
    call!(GETDENTS64, [No, Buf(2)]),
    call!(GETCWD, [Buf(1)]),
    call!(CHDIR, [Str]),
    call!(CHROOT, [Str]),
    call!(MOUNT, [Str, Str, Str, No, N(4096)]),
    call!(UMOUNT2, [Str]),
    call!(POLL, [Each(1, 8)]),
    call!(PPOLL, [Each(1, 8), No, N(16), N(8)], nested),
    call!(SELECT, [No, FdSet(0), FdSet(0), FdSet(0), N(16)]),
    call!(PSELECT6, [No, FdSet(0), FdSet(0), FdSet(0), N(16), N(16)], nested),
    call!(EPOLL_CTL, [No, No, No, N(12)]),
    call!(EPOLL_WAIT, [No, Each(2, 12)]),
    call!(EPOLL_PWAIT, [No, Each(2, 12), No, No, N(8)], nested),
    call!(EPOLL_PWAIT2, [No, Each(2, 12), No, N(16), N(8)], nested),
    call!(SOCKETPAIR, [No, No, No, N(8)]),
    call!(BIND, [No, Buf(2)]),
    call!(CONNECT, [No, Buf(2)]),
    call!(ACCEPT, [No, SizedBy(2), N(4)]),
    call!(ACCEPT4, [No, SizedBy(2), N(4)]),
    call!(GETSOCKNAME, [No, SizedBy(2), N(4)]),
    call!(GETPEERNAME, [No, SizedBy(2), N(4)]),
    call!(GETSOCKOPT, [No, No, No, SizedBy(4), N(4)]),
    call!(SETSOCKOPT, [No, No, No, Buf(4)]),
    call!(SENDTO, [No, Buf(2), No, No, Buf(5)], transfer),
    call!(RECVFROM, [No, Buf(2), No, No, SizedBy(5), N(4)], transfer),
    call!(SENDMSG, [No, Msg], transfer nested),
    call!(RECVMSG, [No, Msg], transfer nested),
    call!(SENDMMSG, [No, Mmsg(2)], nested),
    call!(RECVMMSG, [No, Mmsg(2), No, No, N(16)], nested),
    call!(PIPE, [N(8)]),
    call!(PIPE2, [N(8)]),
    call!(WAIT4, [No, N(4), No, N(144)]),
    call!(WAITID, [No, No, N(128), No, N(144)]),
    call!(FUTEX, [N(4), No, No, N(16), N(4)]),
    call!(NANOSLEEP, [N(16), N(16)]),
    call!(CLOCK_NANOSLEEP, [No, No, N(16), N(16)]),
    call!(CLOCK_GETTIME, [No, N(16)]),
    call!(CLOCK_SETTIME, [No, N(16)]),
    call!(CLOCK_GETRES, [No, N(16)]),
    call!(CLOCK_ADJTIME, [No, N(208)]),
    call!(ADJTIMEX, [N(208)]),
    call!(GETTIMEOFDAY, [N(16), N(8)]),
    call!(SETTIMEOFDAY, [N(16), N(8)]),
    call!(TIME, [N(8)]),
    call!(TIMES, [N(32)]),
    call!(GETRUSAGE, [No, N(144)]),
    call!(GETRLIMIT, [No, N(16)]),
    call!(SETRLIMIT, [No, N(16)]),
    call!(PRLIMIT64, [No, No, N(16), N(16)]),
    call!(TIMER_CREATE, [No, N(64), N(4)]),
    call!(TIMER_SETTIME, [No, No, N(32), N(32)]),
    call!(TIMER_GETTIME, [No, N(32)]),
    call!(TIMERFD_SETTIME, [No, No, N(32), N(32)]),
    call!(TIMERFD_GETTIME, [No, N(32)]),
    call!(SETITIMER, [No, N(32), N(32)]),
    call!(GETITIMER, [No, N(32)]),
    call!(UNAME, [N(390)]),
    call!(SYSINFO, [N(112)]),
    call!(GETGROUPS, [No, Each(0, 4)]),
    call!(SETGROUPS, [No, Each(0, 4)]),
    call!(GETRESUID, [N(4), N(4), N(4)]),
    call!(GETRESGID, [N(4), N(4), N(4)]),
    call!(RT_SIGPENDING, [Buf(1)]),
    call!(RT_SIGTIMEDWAIT, [Buf(3), N(128), N(16)]),
    call!(RT_SIGQUEUEINFO, [No, No, N(128)]),
    call!(RT_TGSIGQUEUEINFO, [No, No, No, N(128)]),
    call!(RT_SIGSUSPEND, [N(8)], nested),
    call!(SIGNALFD, [No, Buf(2)]),
    call!(SIGNALFD4, [No, Buf(2)]),
    call!(INOTIFY_ADD_WATCH, [No, Str]),
    call!(FANOTIFY_MARK, [No, No, No, No, Str]),
    call!(GETRANDOM, [Buf(1)], transfer),
    call!(MEMFD_CREATE, [Str]),
    call!(SENDFILE, [No, No, N(8)]),
    call!(SPLICE, [No, N(8), No, N(8)]),
    call!(VMSPLICE, [No, Iov(2)], nested),
    call!(COPY_FILE_RANGE, [No, N(8), No, N(8)]),
    call!(PROCESS_VM_READV, [No, Iov(2), No, Iov(4)], nested),
    call!(PROCESS_VM_WRITEV, [No, Iov(2), No, Iov(4)], nested),
    call!(SETXATTR, [Str, Str, Buf(3)]),
    call!(LSETXATTR, [Str, Str, Buf(3)]),
    call!(FSETXATTR, [No, Str, Buf(3)]),
    call!(GETXATTR, [Str, Str, Buf(3)]),
    call!(LGETXATTR, [Str, Str, Buf(3)]),
    call!(FGETXATTR, [No, Str, Buf(3)]),
    call!(LISTXATTR, [Str, Buf(2)]),
    call!(LLISTXATTR, [Str, Buf(2)]),
    call!(FLISTXATTR, [No, Buf(2)]),
    call!(REMOVEXATTR, [Str, Str]),
    call!(LREMOVEXATTR, [Str, Str]),
    call!(FREMOVEXATTR, [No, Str]),
    call!(PRCTL, [No, N(64), N(64), N(64), N(64)]),
    call!(SCHED_GETAFFINITY, [No, No, Buf(1)]),
    call!(SCHED_SETAFFINITY, [No, No, Buf(1)]),
    call!(SCHED_GETPARAM, [No, N(4)]),
    call!(SCHED_SETPARAM, [No, N(4)]),
    call!(SCHED_SETSCHEDULER, [No, No, N(4)]),
    call!(SCHED_RR_GET_INTERVAL, [No, N(16)]),
    call!(SCHED_GETATTR, [No, Buf(2)]),
    call!(SCHED_SETATTR, [No, N(64)]),
    call!(IOCTL, [No, No, N(4096)]),
    call!(FCNTL, [No, No, N(32)]),
    call!(GETCPU, [N(4), N(4)]),
    call!(NAME_TO_HANDLE_AT, [No, Str, N(136), N(8)]),
    call!(OPEN_BY_HANDLE_AT, [No, N(136)]),
    call!(MQ_OPEN, [Str, No, No, N(64)]),
    call!(MQ_UNLINK, [Str]),
    call!(MQ_TIMEDSEND, [No, Buf(2), No, No, N(16)]),
    call!(MQ_TIMEDRECEIVE, [No, Buf(2), No, N(4), N(16)]),
    call!(MQ_GETSETATTR, [No, N(64), N(64)]),
    call!(MQ_NOTIFY, [No, N(64)]),
    call!(SEMOP, [No, Each(2, 6)]),
    call!(SEMTIMEDOP, [No, Each(2, 6), No, N(16)]),
    call!(SEMCTL, [No, No, No, N(4096)]),
    call!(MSGSND, [No, Message(2)]),
    call!(MSGRCV, [No, Message(2)]),
    call!(MSGCTL, [No, No, N(256)]),
    call!(SHMCTL, [No, No, N(256)]),
    call!(SETHOSTNAME, [Buf(1)]),
    call!(SETDOMAINNAME, [Buf(1)]),
    call!(SYSLOG, [No, Buf(2)]),
    call!(CAPGET, [N(8), N(24)]),
    call!(CAPSET, [N(8), N(24)]),
    call!(GET_ROBUST_LIST, [No, N(8), N(8)]),
    call!(SET_TID_ADDRESS, [Forever(4)]),
    call!(SET_ROBUST_LIST, [Forever(24)]),
    call!(RSEQ, [Forever(32)]),
    call!(PERF_EVENT_OPEN, [N(136)]),
    call!(MBIND, [No, No, No, N(128)]),
    call!(SET_MEMPOLICY, [No, N(128)]),
    call!(GET_MEMPOLICY, [N(4), N(128)]),
    call!(EXECVE, [Str], nested),
    call!(EXECVEAT, [No, Str], nested),
];

const fn index() -> [u8; 512] {
    assert!(CALLS.len() < 255);
    let mut table = [u8::MAX; 512];
    let mut i = 0;
    while i < CALLS.len() {
        assert!(table[CALLS[i].nr] == u8::MAX, "one row a call");
        table[CALLS[i].nr] = i as u8;
        i += 1;
    }
    table
}
static INDEX: [u8; 512] = index();

/// The row of a call, if it has one.
pub fn find(nr: usize) -> Option<&'static Call> {
    CALLS.get(*INDEX.get(nr)? as usize)
}
