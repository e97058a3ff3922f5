//! Which arguments of a system call are pointers: what stands in the other argument registers is left over from earlier and may
//! look like an address of anything.
use crate::calls::{Arg, CALLS, ROWS};
use crate::limits::CALL_NUMBERS;
use outswap_sys::nr;

/// Which arguments of a call are pointers. A set of arguments is a number: bit `i` stands for argument `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pointers {
    /// The same ones in every call.
    Always(u8),
    /// Those that the value of an argument decides.
    ByValue {
        /// The argument that decides.
        arg: u8,
        /// The bits of its lower half that do.
        bits: u32,
        /// From which value on which arguments are pointers, ascending, the first from 0 on.
        from: &'static [(u32, u8)],
    },
    /// Some in every call, and others that flags in an argument ask for.
    ByFlags {
        /// The arguments that are pointers in any case.
        always: u8,
        /// The argument with the flags.
        arg: u8,
        /// Flags, any of which makes these arguments pointers.
        flags: &'static [(u32, u8)],
    },
    /// The call is refused: it takes pointers that nobody could follow, or gives what managed memory cannot have.
    Refused,
}

/// All six arguments: what is assumed of a call that is not known.
pub const ALL_ARGS: u8 = 0b11_1111;

const fn args<const N: usize>(list: [u8; N]) -> u8 {
    let (mut set, mut i) = (0, 0);
    while i < N {
        set |= 1 << list[i];
        i += 1;
    }
    set
}

const NONE: u8 = 0;

/// Calls whose operation, command or flags decide what is a pointer. Values that are not listed are taken to be what the
/// value before them is, and those beyond the last that is known to use everything that it might.
#[rustfmt::skip]
const DEPENDENT: &[(usize, Pointers)] = &[
    // FUTEX_CMD_MASK: without the private and the clock flag.
    (nr::FUTEX, Pointers::ByValue { arg: 1, bits: !0x180, from: &[
        (0, args([0, 3])),                                           // WAIT
        (1, args([0])),                                              // WAKE, FD
        (3, args([0, 4])),                                           // REQUEUE, CMP_REQUEUE, WAKE_OP
        (6, args([0, 3])),                                           // LOCK_PI
        (7, args([0])),                                              // UNLOCK_PI, TRYLOCK_PI
        (9, args([0, 3])),                                           // WAIT_BITSET
        (10, args([0])),                                             // WAKE_BITSET
        (11, args([0, 3, 4])),                                       // WAIT_REQUEUE_PI
        (12, args([0, 4])),                                          // CMP_REQUEUE_PI
        (13, args([0, 3])),                                          // LOCK_PI2
        (14, ALL_ARGS),
    ] }),
    (nr::FCNTL, Pointers::ByValue { arg: 1, bits: !0, from: &[
        (0, NONE),
        (5, args([2])),                                              // GETLK, SETLK, SETLKW
        (8, NONE),                                                   // SETOWN to GETSIG
        (12, args([2])),                                             // GETOWN_EX, SETOWN_EX, GETOWNER_UIDS, OFD_*
        (1024, NONE),                                                // SETLEASE to GET_SEALS
        (1035, args([2])),                                           // *_RW_HINT, *DELEG
    ] }),
    (nr::IOCTL, Pointers::ByValue { arg: 1, bits: !0, from: &[
        (0, args([2])),
        (0x5409, NONE),                                              // TCSBRK, TCXONC, TCFLSH, TIOC[EN]XCL, TIOCSCTTY
        (0x540f, args([2])),
        (0x5422, NONE),                                              // TIOCNOTTY
        (0x5423, args([2])),
        (0x5450, NONE),                                              // FIONCLEX, FIOCLEX
        (0x5452, args([2])),
    ] }),
    (nr::PRCTL, Pointers::ByValue { arg: 0, bits: !0, from: &[
        (0, NONE),                                                   // SET_PDEATHSIG
        (2, args([1])),                                              // GET_PDEATHSIG
        (3, NONE),
        (5, args([1])),                                              // GET_UNALIGN
        (6, NONE),
        (9, args([1])),                                              // GET_FPEMU
        (10, NONE),
        (11, args([1])),                                             // GET_FPEXC
        (12, NONE),
        (15, args([1])),                                             // SET_NAME, GET_NAME
        (17, NONE),
        (19, args([1])),                                             // GET_ENDIAN
        (20, NONE),
        (22, args([2])),                                             // SET_SECCOMP
        (23, NONE),
        (25, args([1])),                                             // GET_TSC
        (26, NONE),
        (35, args([2])),                                             // SET_MM
        (36, NONE),
        (37, args([1])),                                             // GET_CHILD_SUBREAPER
        (38, NONE),
        (40, args([1])),                                             // GET_TID_ADDRESS
        (41, NONE),
        // The newer ones want 0 in what they do not use.
        (48, args([1, 2, 3, 4])),
    ] }),
    (nr::PTRACE, Pointers::ByValue { arg: 0, bits: !0, from: &[
        (0, NONE),                                                   // TRACEME
        (1, args([3])),                                              // PEEK*: the address is the other process's
        (4, NONE),                                                   // POKE*, CONT, KILL, SINGLESTEP
        (12, args([3])),                                             // *REGS
        (16, NONE),                                                  // ATTACH, DETACH
        (18, args([2, 3])),
        (24, NONE),                                                  // SYSCALL
        (25, args([2, 3])),                                          // *_THREAD_AREA, ARCH_PRCTL
        (31, NONE),                                                  // SYSEMU*, SINGLEBLOCK, SETOPTIONS
        (0x4201, args([3])),                                         // GETEVENTMSG, *SIGINFO, *REGSET
        (0x4206, NONE),                                              // SEIZE, INTERRUPT, LISTEN
        (0x4209, args([2, 3])),
    ] }),
    (nr::SEMCTL, Pointers::ByValue { arg: 2, bits: !0x100, from: &[  // without IPC_64
        (0, NONE),                                                   // IPC_RMID
        (1, args([3])),                                              // IPC_SET, IPC_STAT, IPC_INFO
        (11, NONE),                                                  // GETPID, GETVAL
        (13, args([3])),                                             // GETALL
        (14, NONE),                                                  // GETNCNT, GETZCNT, SETVAL
        (17, args([3])),
    ] }),
    (nr::KEYCTL, Pointers::ByValue { arg: 0, bits: !0, from: &[
        (0, NONE),                                                   // GET_KEYRING_ID
        (1, args([1])),                                              // JOIN_SESSION_KEYRING
        (2, args([2])),                                              // UPDATE
        (3, NONE),
        (6, args([2])),                                              // DESCRIBE
        (7, NONE),
        (10, args([2, 3])),                                          // SEARCH, READ, INSTANTIATE
        (13, NONE),
        (17, args([2])),                                             // GET_SECURITY
        (18, NONE),
        (20, args([2])),                                             // INSTANTIATE_IOV
        (21, NONE),
        (23, args([1, 2, 3, 4])),
    ] }),
    (nr::SYSFS, Pointers::ByValue { arg: 0, bits: !0, from: &[
        (0, args([1])),
        (2, args([2])),
        (3, NONE),
    ] }),
    (nr::CLONE, Pointers::ByFlags { always: args([1]), arg: 0, flags: &[
        (0x10_1000, args([2])),                                      // PARENT_SETTID, PIDFD
        (0x120_0000, args([3])),                                     // CHILD_SETTID, CHILD_CLEARTID
        (0x8_0000, args([4])),                                       // SETTLS
    ] }),
    (nr::MREMAP, Pointers::ByFlags { always: args([0]), arg: 3, flags: &[
        (0x6, args([4])),                                            // FIXED, DONTUNMAP
    ] }),
    // clone3 hides its stack in a structure; io_uring and Linux AIO keep pointers after the call. Every program has another way.
    (nr::CLONE3, Pointers::Refused),
    (nr::IO_URING_SETUP, Pointers::Refused),
    (nr::IO_URING_ENTER, Pointers::Refused),
    (nr::IO_URING_REGISTER, Pointers::Refused),
    (nr::IO_SETUP, Pointers::Refused),
    (nr::IO_DESTROY, Pointers::Refused),
    (nr::IO_GETEVENTS, Pointers::Refused),
    (nr::IO_SUBMIT, Pointers::Refused),
    (nr::IO_CANCEL, Pointers::Refused),
    (nr::IO_PGETEVENTS, Pointers::Refused),
    // A key would have to go with each page wherever that goes.
    (nr::PKEY_ALLOC, Pointers::Refused),
];

/// All other calls, by which of their arguments are addresses of memory that the call changes, or pointers of a call that the
/// runtime serves by itself.
#[rustfmt::skip]
const OTHERS: &[(u8, &[usize])] = &[
    (NONE, &[
        // A trapped return from a signal handler would find another stack, and the exits never return to free what was held
        // for them; the kernel's own probes are calls in the middle of other code.
        nr::RT_SIGRETURN, nr::EXIT, nr::EXIT_GROUP, nr::RESTART_SYSCALL, nr::URETPROBE, nr::UPROBE,
        nr::FORK, nr::VFORK, nr::UNSHARE, nr::SETNS, nr::PERSONALITY,
        nr::CLOSE, nr::CLOSE_RANGE, nr::DUP, nr::DUP2, nr::DUP3, nr::LSEEK, nr::FLOCK, nr::FSYNC, nr::FDATASYNC, nr::SYNC,
        nr::SYNCFS, nr::SYNC_FILE_RANGE, nr::FTRUNCATE, nr::FALLOCATE, nr::FADVISE64, nr::READAHEAD, nr::FCHDIR, nr::FCHMOD,
        nr::FCHOWN, nr::UMASK, nr::TEE, nr::VHANGUP,
        nr::SOCKET, nr::LISTEN, nr::SHUTDOWN,
        nr::EPOLL_CREATE, nr::EPOLL_CREATE1, nr::EVENTFD, nr::EVENTFD2, nr::TIMERFD_CREATE, nr::INOTIFY_INIT,
        nr::INOTIFY_INIT1, nr::INOTIFY_RM_WATCH, nr::FANOTIFY_INIT, nr::USERFAULTFD, nr::MEMFD_SECRET, nr::PIDFD_OPEN,
        nr::PIDFD_GETFD, nr::FSMOUNT, nr::LANDLOCK_RESTRICT_SELF,
        nr::KILL, nr::TKILL, nr::TGKILL, nr::PAUSE, nr::ALARM, nr::SCHED_YIELD, nr::MEMBARRIER, nr::PROCESS_MRELEASE,
        nr::GETPID, nr::GETTID, nr::GETPPID, nr::GETPGRP, nr::GETPGID, nr::SETPGID, nr::GETSID, nr::SETSID,
        nr::GETUID, nr::GETEUID, nr::GETGID, nr::GETEGID, nr::SETUID, nr::SETGID, nr::SETREUID, nr::SETREGID, nr::SETRESUID,
        nr::SETRESGID, nr::SETFSUID, nr::SETFSGID,
        nr::GETPRIORITY, nr::SETPRIORITY, nr::SCHED_GETSCHEDULER, nr::SCHED_GET_PRIORITY_MAX, nr::SCHED_GET_PRIORITY_MIN,
        nr::IOPRIO_GET, nr::IOPRIO_SET, nr::IOPL, nr::IOPERM,
        nr::SHMGET, nr::SEMGET, nr::MSGGET, nr::TIMER_DELETE, nr::TIMER_GETOVERRUN,
        nr::MLOCKALL, nr::MUNLOCKALL, nr::PKEY_FREE,
        // These have numbers only: the kernel answers ENOSYS whatever they are given.
        nr::USELIB, nr::_SYSCTL, nr::CREATE_MODULE, nr::GET_KERNEL_SYMS, nr::QUERY_MODULE, nr::NFSSERVCTL, nr::GETPMSG,
        nr::PUTPMSG, nr::AFS_SYSCALL, nr::TUXCALL, nr::SECURITY, nr::LOOKUP_DCOOKIE, nr::EPOLL_CTL_OLD, nr::EPOLL_WAIT_OLD,
        nr::VSERVER,
    ]),
    (args([0]), &[
        nr::MMAP, nr::MUNMAP, nr::MPROTECT, nr::PKEY_MPROTECT, nr::MADVISE, nr::BRK, nr::MLOCK, nr::MUNLOCK, nr::MLOCK2,
        nr::MSYNC, nr::MSEAL, nr::REMAP_FILE_PAGES, nr::SHMDT, nr::MAP_SHADOW_STACK, nr::SET_MEMPOLICY_HOME_NODE,
    ]),
    (args([1]), &[nr::SHMAT]),
    (args([0, 1]), &[nr::SIGALTSTACK]),
    (args([0, 2]), &[nr::MINCORE]),
    (args([1, 2]), &[nr::RT_SIGACTION, nr::RT_SIGPROCMASK]),
];

/// In [`POINTERS`]: row so much less of [`DEPENDENT`].
const IS_DEPENDENT: u8 = 0x40;

/// In [`POINTERS`]: a call that is in no table.
const UNKNOWN: u8 = u8::MAX;

/// For each call its set of pointers, or its row of [`DEPENDENT`].
static POINTERS: [u8; CALL_NUMBERS] = {
    assert!(DEPENDENT.len() < (UNKNOWN - IS_DEPENDENT) as usize);
    let mut table = [UNKNOWN; CALL_NUMBERS];
    let mut i = 0;
    while i < OTHERS.len() {
        let (set, numbers) = OTHERS[i];
        let mut k = 0;
        while k < numbers.len() {
            assert!(table[numbers[k]] == UNKNOWN && ROWS[numbers[k]] == u8::MAX, "one place a call");
            table[numbers[k]] = set;
            k += 1;
        }
        i += 1;
    }
    i = 0;
    while i < CALLS.len() {
        let (mut set, mut k) = (0, 0);
        while k < CALLS[i].args.len() {
            set |= (!matches!(CALLS[i].args[k], Arg::No) as u8) << k;
            k += 1;
        }
        table[CALLS[i].nr] = set;
        i += 1;
    }
    i = 0;
    while i < DEPENDENT.len() {
        table[DEPENDENT[i].0] = IS_DEPENDENT + i as u8;
        i += 1;
    }
    table
};

/// Which arguments of a call are pointers; `None` if the call is not known.
pub fn pointers(nr: usize) -> Option<Pointers> {
    match *POINTERS.get(nr)? {
        UNKNOWN => None,
        set if set < IS_DEPENDENT => Some(Pointers::Always(set)),
        row => Some(DEPENDENT[(row - IS_DEPENDENT) as usize].1),
    }
}

/// The arguments of this very call that are pointers, as a set.
pub fn pointers_of(nr: usize, args: &[usize; 6]) -> u8 {
    match pointers(nr) {
        None => ALL_ARGS,
        Some(Pointers::Refused) => NONE,
        Some(Pointers::Always(set)) => set,
        Some(Pointers::ByValue { arg, bits, from }) => {
            let value = args[arg as usize] as u32 & bits;
            from.iter().rev().find(|f| f.0 <= value).map_or(NONE, |f| f.1)
        }
        Some(Pointers::ByFlags { always, arg, flags }) => {
            let given = args[arg as usize] as u32;
            flags.iter().filter(|f| f.0 & given != 0).fold(always, |set, f| set | f.1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's list of calls.
    fn listed() -> Vec<(usize, &'static str)> {
        let lines = include_str!("syscalls_64.txt").lines().filter(|line| !line.starts_with('#'));
        let calls: Vec<_> = lines
            .map(|line| line.split_once(' ').expect("a number and a name"))
            .map(|(nr, name)| (nr.parse().expect("a number"), name))
            .collect();
        assert!(calls.len() > 380 && calls.is_sorted_by(|a, b| a.0 < b.0));
        calls
    }

    /// The kernel that the list is of. A newer one has calls without a line, which are served as unknown ones are (docs/limits.md).
    const LISTED_KERNEL: (u32, u32) = (6, 19);

    /// The copy of the list against what this machine says, where it does.
    #[test]
    fn the_list_has_all_calls_of_the_headers() {
        let Ok(text) = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h") else { return };
        let defines = text.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
        let calls: Vec<(usize, &str)> =
            defines.map(|(name, nr)| (nr.trim().parse().expect("a number"), name)).collect();
        assert!(calls.len() > 300, "{} calls in the header", calls.len());
        let listed = listed();
        let is_newer = |nr: usize| listed.last().is_some_and(|last| nr > last.0);
        let missing: Vec<_> = calls.iter().filter(|call| !listed.contains(call) && !is_newer(call.0)).collect();
        assert!(missing.is_empty(), "not in syscalls_64.txt: {missing:?}");
    }

    #[test]
    fn the_list_has_all_calls_of_the_kernel() {
        /// What the kernel's own functions are called, where that differs.
        const NAMES: [(&str, &str); 6] = [
            ("newstat", "stat"),
            ("newfstat", "fstat"),
            ("newlstat", "lstat"),
            ("newuname", "uname"),
            ("sendfile64", "sendfile"),
            ("umount", "umount2"),
        ];
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says which it is");
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
        if (numbers.next(), numbers.next()) > (Some(LISTED_KERNEL.0), Some(LISTED_KERNEL.1)) {
            return;
        }
        let places = ["/sys/kernel/tracing/events/syscalls", "/sys/kernel/debug/tracing/events/syscalls"];
        let Some(files) = places.iter().find_map(|place| std::fs::read_dir(place).ok()) else { return };
        let files: Vec<String> = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let calls: Vec<&str> = files.iter().filter_map(|name| name.strip_prefix("sys_enter_")).collect();
        assert!(calls.len() > 300, "{} calls can be traced", calls.len());
        let listed = listed();
        let name = |call| NAMES.iter().find(|row| row.0 == call).map_or(call, |row| row.1);
        let missing: Vec<_> = calls.iter().filter(|call| !listed.iter().any(|row| row.1 == name(**call))).collect();
        assert!(missing.is_empty(), "not in syscalls_64.txt: {missing:?}");
    }

    /// Calls whose arguments are addresses of memory that they change, or that the runtime serves without a row: what they name
    /// need not be in memory first.
    const SERVED: &[usize] = &[
        nr::MMAP,
        nr::MUNMAP,
        nr::MPROTECT,
        nr::PKEY_MPROTECT,
        nr::MADVISE,
        nr::MREMAP,
        nr::BRK,
        nr::MLOCK,
        nr::MUNLOCK,
        nr::MLOCK2,
        nr::MSYNC,
        nr::MINCORE,
        nr::MSEAL,
        nr::REMAP_FILE_PAGES,
        nr::SHMAT,
        nr::SHMDT,
        nr::MAP_SHADOW_STACK,
        nr::SET_MEMPOLICY_HOME_NODE,
        nr::SIGALTSTACK,
        nr::RT_SIGACTION,
        nr::RT_SIGPROCMASK,
        nr::CLONE,
    ];

    #[test]
    fn every_call_is_known() {
        let listed = listed();
        for nr in 0..CALL_NUMBERS + 100 {
            let name = listed.iter().find(|call| call.0 == nr).map(|call| call.1);
            assert_eq!(name.unwrap_or("unknown"), nr::name(nr), "{nr}");
            assert_eq!(pointers(nr).is_some(), name.is_some(), "{nr} {name:?}: has it pointers, and to what?");
        }
    }

    #[test]
    fn of_every_call_it_is_decided_what_its_pointers_lead_to() {
        for (nr, name) in listed() {
            let row = crate::calls::find(nr).is_some();
            let refused = pointers(nr) == Some(Pointers::Refused);
            let none = pointers(nr) == Some(Pointers::Always(NONE));
            let decisions = [row, refused, none, SERVED.contains(&nr)].into_iter().filter(|yes| *yes).count();
            assert_eq!(decisions, 1, "{name}: a row in calls.rs, refused, no pointers, or served");
            let inner = crate::structures::STRUCTURES.iter().any(|structure| structure.nr == nr);
            assert!(row || !inner, "{name}: its structures are found by its row");
        }
    }

    #[test]
    fn assisted_arguments_are_pointers() {
        for call in CALLS {
            let assisted = (0..call.args.len()).filter(|&i| call.args[i] != Arg::No).fold(0u8, |set, i| set | 1 << i);
            let possible = match pointers(call.nr) {
                Some(Pointers::Always(set)) => set,
                Some(Pointers::ByValue { from, .. }) => from.iter().fold(0, |sets, f| sets | f.1),
                Some(Pointers::ByFlags { always, flags, .. }) => flags.iter().fold(always, |sets, f| sets | f.1),
                None | Some(Pointers::Refused) => 0,
            };
            assert_eq!(assisted & !possible, 0, "{}", nr::name(call.nr));
        }
    }

    #[test]
    fn deciding_values_ascend_from_0() {
        for (nr, pointers) in DEPENDENT {
            if let Pointers::ByValue { from, .. } = pointers {
                assert!(from[0].0 == 0 && from.is_sorted_by(|a, b| a.0 < b.0), "{}", nr::name(*nr));
            }
        }
    }

    #[test]
    fn pointers_of_a_call_follow_its_arguments() {
        let of = |nr: usize, args: [usize; 6]| pointers_of(nr, &args);
        assert_eq!(of(nr::READ, [0; 6]), 0b10);
        assert_eq!(of(nr::FCNTL, [0, 3, 0, 0, 0, 0]), 0, "F_GETFL");
        assert_eq!(of(nr::FCNTL, [0, 6, 0, 0, 0, 0]), 0b100, "F_SETLK");
        assert_eq!(of(nr::CLONE, [0x10_0000, 0, 0, 0, 0, 0]), 0b110);
        assert_eq!(of(nr::IO_SETUP, [0; 6]), 0);
        assert_eq!(of(CALL_NUMBERS, [0; 6]), ALL_ARGS);
    }
}
