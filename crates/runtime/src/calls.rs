//! The table of system calls that are assisted: what their arguments point to.
//!
//! [`CALLS`] has one row for each call that is assisted, which is all that such a call needs. Calls without a row that carry a
//! pointer into managed memory get [`crate::limits::DEFAULT_BYTES`] there.
use crate::limits::CALL_NUMBERS;
use outswap_core::protection::Access;
use outswap_sys::nr;

/// What an argument points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// No pointer.
    No,
    /// A buffer whose length in bytes is argument `k`.
    Buf(u8),
    /// The same, whose length is an int: what the register has above it says nothing.
    IntBuf(u8),
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

impl Call {
    /// What it does to the memory that its arguments name.
    pub fn access(&self) -> Access {
        match self.nr {
            nr::WRITE | nr::PWRITE64 | nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 | nr::SENDTO => Access::Read,
            _ => Access::Write,
        }
    }
}

/// A structure that says itself how long it is: the kernel looks for zeros behind what it knows, in a page at most.
const EXTENSIBLE: u32 = 4096;

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
    call!(OPENAT2, [No, Str, N(EXTENSIBLE)]),
    call!(CREAT, [Str]),
    call!(STAT, [Str, N(144)]),
    call!(LSTAT, [Str, N(144)]),
    call!(FSTAT, [No, N(144)]),
    call!(NEWFSTATAT, [No, Str, N(144)]),
    call!(STATX, [No, Str, No, No, N(256)]),
    call!(ACCESS, [Str]),
    call!(FACCESSAT, [No, Str]),
    call!(FACCESSAT2, [No, Str]),
    call!(READLINK, [Str, IntBuf(2)]),
    call!(READLINKAT, [No, Str, IntBuf(3)]),
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
    call!(GETDENTS, [No, Buf(2)], transfer),
    call!(GETDENTS64, [No, Buf(2)], transfer),
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
    call!(BIND, [No, IntBuf(2)]),
    call!(CONNECT, [No, IntBuf(2)]),
    call!(ACCEPT, [No, SizedBy(2), N(4)]),
    call!(ACCEPT4, [No, SizedBy(2), N(4)]),
    call!(GETSOCKNAME, [No, SizedBy(2), N(4)]),
    call!(GETPEERNAME, [No, SizedBy(2), N(4)]),
    call!(GETSOCKOPT, [No, No, No, SizedBy(4), N(4)]),
    call!(SETSOCKOPT, [No, No, No, IntBuf(4)]),
    call!(SENDTO, [No, Buf(2), No, No, IntBuf(5)], transfer),
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
    call!(PRCTL, [No, N(1024), N(512), N(64), N(80)]),
    call!(SCHED_GETAFFINITY, [No, No, IntBuf(1)]),
    call!(SCHED_SETAFFINITY, [No, No, IntBuf(1)]),
    call!(SCHED_GETPARAM, [No, N(4)]),
    call!(SCHED_SETPARAM, [No, N(4)]),
    call!(SCHED_SETSCHEDULER, [No, No, N(4)]),
    call!(SCHED_RR_GET_INTERVAL, [No, N(16)]),
    call!(SCHED_GETATTR, [No, IntBuf(2)]),
    call!(SCHED_SETATTR, [No, N(EXTENSIBLE)]),
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
    call!(SEMCTL, [No, No, No, N(65536)]),
    call!(MSGSND, [No, Message(2)]),
    call!(MSGRCV, [No, Message(2)]),
    call!(MSGCTL, [No, No, N(256)]),
    call!(SHMCTL, [No, No, N(256)]),
    call!(SETHOSTNAME, [IntBuf(1)]),
    call!(SETDOMAINNAME, [IntBuf(1)]),
    call!(SYSLOG, [No, IntBuf(2)]),
    call!(CAPGET, [N(8), N(24)]),
    call!(CAPSET, [N(8), N(24)]),
    call!(GET_ROBUST_LIST, [No, N(8), N(8)]),
    call!(SET_TID_ADDRESS, [Forever(4)]),
    call!(SET_ROBUST_LIST, [Forever(24)]),
    call!(RSEQ, [Forever(32)]),
    call!(PERF_EVENT_OPEN, [N(EXTENSIBLE)]),
    call!(MBIND, [No, No, No, N(128)]),
    call!(SET_MEMPOLICY, [No, N(128)]),
    call!(GET_MEMPOLICY, [N(4), N(128), No, N(1)]),
    call!(FUTEX_WAITV, [Each(1, 24), No, No, N(16)]),
    call!(FUTEX_WAKE, [N(4)]),
    call!(FUTEX_WAIT, [N(4), No, No, No, N(16)]),
    call!(FUTEX_REQUEUE, [N(48)]),
    call!(SECCOMP, [No, No, N(16)]),
    call!(BPF, [No, IntBuf(2)]),
    call!(ADD_KEY, [Str, Str, Buf(3)]),
    call!(REQUEST_KEY, [Str, Str, Str]),
    call!(KEYCTL, [No, N(65536), N(65536), N(65536), N(65536)]),
    call!(PTRACE, [No, No, N(64), N(65536)]),
    call!(ARCH_PRCTL, [No, N(8)]),
    call!(MODIFY_LDT, [No, Buf(2)]),
    call!(SET_THREAD_AREA, [N(16)]),
    call!(GET_THREAD_AREA, [N(16)]),
    call!(PIDFD_SEND_SIGNAL, [No, No, N(128)]),
    call!(KCMP, [No, No, No, No, N(12)]),
    call!(PROCESS_MADVISE, [No, Each(2, 16)]),
    call!(MIGRATE_PAGES, [No, No, N(128), N(128)]),
    call!(MOVE_PAGES, [No, No, Each(1, 8), Each(1, 4), Each(1, 4)]),
    call!(CACHESTAT, [No, N(16), N(40)]),
    call!(FCHMODAT2, [No, Str]),
    call!(FILE_GETATTR, [No, Str, Buf(3)]),
    call!(FILE_SETATTR, [No, Str, Buf(3)]),
    call!(SETXATTRAT, [No, Str, No, Str, Buf(5)]),
    call!(GETXATTRAT, [No, Str, No, Str, Buf(5)]),
    call!(LISTXATTRAT, [No, Str, No, Buf(4)]),
    call!(REMOVEXATTRAT, [No, Str, No, Str]),
    call!(FSOPEN, [Str]),
    call!(FSPICK, [No, Str]),
    call!(FSCONFIG, [No, No, Str, N(65536)]),
    call!(OPEN_TREE, [No, Str]),
    call!(OPEN_TREE_ATTR, [No, Str, No, Buf(4)]),
    call!(MOVE_MOUNT, [No, Str, No, Str]),
    call!(MOUNT_SETATTR, [No, Str, No, Buf(4)]),
    call!(STATMOUNT, [N(EXTENSIBLE), Buf(2)]),
    call!(LISTMOUNT, [N(EXTENSIBLE), Each(2, 8)]),
    call!(LISTNS, [N(EXTENSIBLE), Each(2, 8)]),
    call!(USTAT, [No, N(32)]),
    call!(SYSFS, [No, Str, N(256)]),
    call!(QUOTACTL, [No, Str, No, N(4096)]),
    call!(QUOTACTL_FD, [No, No, No, N(4096)]),
    call!(PIVOT_ROOT, [Str, Str]),
    call!(LANDLOCK_CREATE_RULESET, [Buf(1)]),
    call!(LANDLOCK_ADD_RULE, [No, No, N(16)]),
    call!(LSM_GET_SELF_ATTR, [No, SizedBy(2), N(4)]),
    call!(LSM_SET_SELF_ATTR, [No, IntBuf(2)]),
    call!(LSM_LIST_MODULES, [SizedBy(1), N(4)]),
    call!(ACCT, [Str]),
    call!(SWAPON, [Str]),
    call!(SWAPOFF, [Str]),
    call!(REBOOT, [No, No, No, Str]),
    call!(INIT_MODULE, [Buf(1), No, Str]),
    call!(FINIT_MODULE, [No, Str]),
    call!(DELETE_MODULE, [Str]),
    call!(KEXEC_LOAD, [No, No, Each(1, 32)]),
    call!(KEXEC_FILE_LOAD, [No, No, No, Buf(2)]),
    // These two are served, not assisted: only which arguments are pointers matters.
    call!(EXECVE, [Str, N(8), N(8)], nested),
    call!(EXECVEAT, [No, Str, N(8), N(8)], nested),
];

const fn index() -> [u8; CALL_NUMBERS] {
    assert!(CALLS.len() < 255);
    let mut table = [u8::MAX; CALL_NUMBERS];
    let mut i = 0;
    while i < CALLS.len() {
        assert!(table[CALLS[i].nr] == u8::MAX, "one row a call");
        table[CALLS[i].nr] = i as u8;
        i += 1;
    }
    table
}
/// For each call its row of [`CALLS`], or the largest number.
pub const ROWS: [u8; CALL_NUMBERS] = index();
static INDEX: [u8; CALL_NUMBERS] = ROWS;

/// The row of a call, if it has one.
pub fn find(nr: usize) -> Option<&'static Call> {
    CALLS.get(*INDEX.get(nr)? as usize)
}

/// Option of prctl that installs a filter.
pub const PR_SET_SECCOMP: usize = 22;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_SECUREBITS: usize = 28;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_CAP_AMBIENT: usize = 47;
/// Options of prctl that change rights.
pub const RIGHTS_OPTIONS: [usize; 5] =
    [PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT];

/// Options of prctl after which files about the process may not be opened any more, or no code made.
pub const REACH_OPTIONS: [usize; 2] = [PR_SET_DUMPABLE, PR_SET_MDWE];
const PR_SET_DUMPABLE: usize = 4;
/// Memory that could be written becomes executable no more.
pub const PR_SET_MDWE: usize = 65;

/// Flag of `close_range`: the caller has a table of descriptors of its own from there on.
pub const CLOSE_RANGE_UNSHARE: usize = 2;

/// Calls that change the rights of the calling thread, apart from prctl.
pub const RIGHTS: [usize; 17] = [
    nr::SETUID,
    nr::SETGID,
    nr::SETREUID,
    nr::SETREGID,
    nr::SETRESUID,
    nr::SETRESGID,
    nr::SETFSUID,
    nr::SETFSGID,
    nr::SETGROUPS,
    nr::CAPSET,
    nr::UNSHARE,
    nr::SETNS,
    nr::SECCOMP,
    nr::LANDLOCK_RESTRICT_SELF,
    nr::CHROOT,
    nr::PIVOT_ROOT,
    nr::PRCTL,
];

/// Whether a call changes rights.
pub fn changes_rights(nr: usize, first: usize) -> bool {
    const SECCOMP_SET_MODE_FILTER: u32 = 1;
    match nr {
        nr::PRCTL => RIGHTS_OPTIONS.contains(&first),
        // What comes after only asks.
        nr::SECCOMP => first as u32 <= SECCOMP_SET_MODE_FILTER,
        _ => RIGHTS.contains(&nr),
    }
}

/// Whether a call asks for strict mode of seccomp. With flags it asks whether there is such a call, as it fails for all.
pub fn is_strict_mode(nr: usize, first: usize, second: usize) -> bool {
    const SECCOMP_MODE_STRICT: usize = 1;
    const SECCOMP_SET_MODE_STRICT: usize = 0;
    let is_question = nr == nr::SECCOMP && second as u32 != 0;
    !is_question && sets_seccomp(nr, first, second, (SECCOMP_MODE_STRICT, SECCOMP_SET_MODE_STRICT))
}

/// Whether a call installs a filter of the program's own.
pub fn installs_filter(nr: usize, first: usize, second: usize) -> bool {
    const SECCOMP_MODE_FILTER: usize = 2;
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    sets_seccomp(nr, first, second, (SECCOMP_MODE_FILTER, SECCOMP_SET_MODE_FILTER))
}

/// Whether a call sets a mode of seccomp, which `prctl` and `seccomp` have different numbers for.
fn sets_seccomp(nr: usize, first: usize, second: usize, (mode, operation): (usize, usize)) -> bool {
    match nr {
        nr::PRCTL => first as u32 as usize == PR_SET_SECCOMP && second == mode,
        nr::SECCOMP => first as u32 as usize == operation,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_consistent() {
        for call in CALLS {
            let name = nr::name(call.nr);
            assert!(!call.args.is_empty() && call.args.len() <= 6, "{name}");
            assert!(
                call.args.last() != Some(&No) && call.args.iter().any(|arg| *arg != No),
                "{name}: ends with a pointer"
            );
            for (i, arg) in call.args.iter().enumerate() {
                match *arg {
                    Buf(k) | IntBuf(k) | Message(k) | Each(k, _) | Iov(k) | Mmsg(k) | FdSet(k) => {
                        assert!(k < 6 && k as usize != i, "{name}: a length is another argument");
                        let is_pointer = call.args.get(k as usize).is_some_and(|length| *length != No);
                        assert!(!is_pointer, "{name}: and no pointer");
                    }
                    SizedBy(k) => assert_eq!(call.args.get(k as usize), Some(&N(4)), "{name}: a length to be read"),
                    N(bytes) | Forever(bytes) => assert!(bytes > 0 && bytes <= crate::limits::DEFAULT_BYTES, "{name}"),
                    No | Str | Msg => {}
                }
                if let Each(_, bytes) = *arg {
                    assert!(bytes > 0, "{name}");
                }
            }
            // What may be cut has something to be cut.
            assert!(!call.transfer || call.args.iter().any(|arg| matches!(arg, Buf(_) | Iov(_) | Msg)), "{name}");
            // What hides pointers has a structure that hides them.
            let hides = call.args.iter().any(|arg| matches!(arg, Iov(_) | Msg | Mmsg(_) | N(8) | N(16)));
            assert!(!call.nested || hides, "{name}");
            assert_eq!(find(call.nr).map(|row| row.nr), Some(call.nr));
        }
        assert!(find(nr::GETPID).is_none() && find(CALL_NUMBERS).is_none() && find(usize::MAX).is_none());
    }

    #[test]
    fn calls_that_hide_pointers_are_marked() {
        for call in CALLS.iter().filter(|c| c.args.iter().any(|arg| matches!(arg, Iov(_) | Msg | Mmsg(_)))) {
            assert!(call.nested, "{}", nr::name(call.nr));
        }
    }

    #[test]
    fn strict_mode_is_told_apart_from_filters() {
        assert!(is_strict_mode(nr::PRCTL, PR_SET_SECCOMP, 1) && is_strict_mode(nr::SECCOMP, 0, 0));
        assert!(!is_strict_mode(nr::PRCTL, PR_SET_SECCOMP, 2) && !is_strict_mode(nr::SECCOMP, 1, 1));
        assert!(!is_strict_mode(nr::SECCOMP, 0, 1), "libseccomp asks so");
        assert!(installs_filter(nr::PRCTL, PR_SET_SECCOMP, 2) && installs_filter(nr::SECCOMP, 1, 8));
        assert!(
            !installs_filter(nr::PRCTL, PR_SET_SECCOMP, 1)
                && !installs_filter(nr::SECCOMP, 3, 1)
                && !installs_filter(1, 22, 2)
        );
        assert!(!is_strict_mode(nr::PRCTL, PR_SET_SECCOMP - 1, 1) && !is_strict_mode(nr::READ, 0, 1));
    }

    #[test]
    fn prctl_changes_rights_by_its_option() {
        for nr in RIGHTS {
            assert_eq!(changes_rights(nr, 0), nr != nr::PRCTL, "{}", nr::name(nr));
        }
        assert!(RIGHTS_OPTIONS.iter().all(|&option| changes_rights(nr::PRCTL, option)));
        assert!(!changes_rights(nr::PRCTL, 1) && !changes_rights(nr::GETUID, PR_SET_SECCOMP));
    }
}
