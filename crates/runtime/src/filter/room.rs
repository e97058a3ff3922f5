//! Room in a program's own filters for what the runtime needs.
//!
//! A program that locks itself in lists what it calls itself. Whatever else is called in it then fails, or ends it: so what it installs is
//! preceded by a few instructions that let calls of the runtime's pass, which are told by where they come from. Whoever has taken such a
//! program over can jump there: what passes is what concerns the process's own memory, threads and signals, the runtime's descriptors, and
//! userfaultfd for the program's own accesses; not files by name, and no memory that can be executed.
use super::program::*;
use crate::dispositions::SIGNALS;
use crate::gate;
use crate::layout::OWN_CALL;
use crate::limits::CALL_NUMBERS;
use core::ops::RangeInclusive;
use outswap_sys::{PAGE_BYTES, nr, os};

/// Calls that pass whatever their arguments are.
const FREE: &[usize] = &[
    nr::MADVISE,
    nr::MINCORE,
    nr::MUNMAP,
    nr::MREMAP,
    nr::FUTEX,
    nr::FUTEX_WAITV,
    nr::SCHED_YIELD,
    nr::NANOSLEEP,
    nr::RESTART_SYSCALL,
    nr::CLOCK_GETTIME,
    nr::GETRANDOM,
    nr::GETPID,
    nr::GETPPID,
    nr::GETTID,
    nr::GETUID,
    nr::GETEUID,
    nr::GETGID,
    nr::GETEGID,
    nr::RT_SIGACTION,
    nr::RT_SIGPROCMASK,
    nr::RT_SIGPENDING,
    nr::RT_SIGTIMEDWAIT,
    nr::SIGALTSTACK,
    nr::FSTAT,
    nr::CLOSE,
    nr::EXIT,
    nr::EXIT_GROUP,
];

/// Calls that pass on the runtime's descriptors, which come first.
const ON_OURS: &[usize] = &[nr::READ, nr::PREAD64, nr::FALLOCATE, nr::FTRUNCATE, nr::FCNTL];

/// What the numbers of its requests have in common.
const UFFDIO: (u32, u32) = (0xff00, 0xaa00);
const UFFD_USER_MODE_ONLY: u32 = 1;
const PROT_EXEC: u32 = 4;
const MAP_ANONYMOUS: u32 = 0x20;
const F_DUPFD_CLOEXEC: u32 = 1030;
const SOL_SOCKET: u32 = 1;
/// `SO_TYPE`, `SO_RCVTIMEO`, `SO_SNDTIMEO`, `SO_DOMAIN`.
const SOCKET_OPTIONS: [u32; 4] = [3, 20, 21, 39];
const ARCH_GET_FS: u32 = 0x1003;
const RLIMIT_NOFILE: u32 = 7;
/// `WNOHANG | WEXITED | WNOWAIT | __WALL`: a look at a child, which stays as it is.
const ONLY_LOOK: u32 = 1 | 4 | 0x0100_0000 | 0x4000_0000;

/// What is different from process to process.
pub struct Whose {
    /// The page that calls of the runtime's come from.
    pub from: usize,
    /// The runtime's descriptors.
    pub ours: RangeInclusive<i32>,
    /// Those of them that are the process's memory. No access rights hold back what is written there, so it must be managed.
    pub memory: [Option<i32>; 2],
    /// Where managed memory is; twice 0: nowhere.
    pub managed: [(usize, usize); 2],
    /// The flags that the runtime's own thread is made with.
    pub thread: usize,
    /// The process's number. Children have another: what names it is for their filter to judge.
    pub pid: i32,
}

/// What is to precede a program's filter; its last instruction stands for the first of that.
pub fn build_room(whose: &Whose) -> Program {
    let mut program = Program::new(8);
    let p = &mut program;
    let rest = p.ret(0);
    let allow = p.ret(ALLOW);
    p.branch(JEQ, whose.from as u32, allow, rest);
    p.push(AND, !(PAGE_BYTES as u32 - 1), 0, 0);
    let low = p.load(AT_IP);
    p.branch(JEQ, (whose.from >> 32) as u32, low, rest);
    let is_us = p.load(AT_IP + 4);
    let mut targets = [rest; CALL_NUMBERS];
    FREE.iter().for_each(|&nr| targets[nr] = is_us);
    // What a handler returns by does what registers say, as any code can.
    targets[nr::RT_SIGRETURN] = allow;
    let (first, end) = (*whose.ours.start() as u32, *whose.ours.end() as u32 + 1);
    let ours_at = |p: &mut Program, arg: u32| p.switch(at_arg(arg), !0, &[(0, rest), (first, is_us), (end, rest)]);
    let on_ours = ours_at(p, 0);
    ON_OURS.iter().for_each(|&nr| targets[nr] = on_ours);
    let places = whose.managed.iter().filter(|place| place.0 < place.1);
    let in_managed = places.fold(rest, |next, &place| p.if_inside(3, place, is_us, next));
    let on_memory = |next, fd: &i32| p.if_word((0, 0), !0, *fd as u32, in_managed, next);
    targets[nr::PWRITE64] = whose.memory.iter().flatten().fold(on_ours, on_memory);
    // To a number of ours.
    let raised = ours_at(p, 2);
    let raised = p.if_word((1, 0), !0, F_DUPFD_CLOEXEC, raised, on_ours);
    // What of the program's it is like, and how much waits there.
    targets[nr::FCNTL] = p.if_word((1, 0), !0, os::F_GETFL as u32, is_us, raised);
    let waits = p.if_word((1, 0), !0, os::FIONREAD as u32, is_us, rest);
    targets[nr::IOCTL] = p.if_word((1, 0), UFFDIO.0, UFFDIO.1, is_us, waits);
    targets[nr::USERFAULTFD] = p.if_word((0, 0), UFFD_USER_MODE_ONLY, UFFD_USER_MODE_ONLY, is_us, rest);
    targets[nr::MPROTECT] = p.if_word((2, 0), PROT_EXEC, 0, is_us, rest);
    let anonymous = p.if_word((3, 0), MAP_ANONYMOUS, MAP_ANONYMOUS, is_us, rest);
    targets[nr::MMAP] = p.if_word((2, 0), PROT_EXEC, 0, anonymous, rest);
    targets[nr::CLONE] = p.if_word((0, 0), !0, whose.thread as u32, is_us, rest);
    // Whether somebody is there, and how a child ended, which stays as it is.
    targets[nr::KILL] = p.if_word((1, 0), !0, 0, is_us, rest);
    targets[nr::TKILL] = targets[nr::KILL];
    targets[nr::WAITID] = p.if_word((3, 0), !0, ONLY_LOOK, is_us, rest);
    // Signals that the runtime takes, to the process itself.
    let itself = p.if_word((0, 0), !0, whose.pid as u32, is_us, rest);
    let is_taken = |p: &mut Program, no: At| {
        SIGNALS.iter().fold(no, |next, &signal| p.if_word((2, 0), !0, signal as u32, itself, next))
    };
    targets[nr::RT_TGSIGQUEUEINFO] = is_taken(p, rest);
    let exists = p.if_word((2, 0), !0, 0, is_us, rest);
    targets[nr::TGKILL] = is_taken(p, exists);
    // Limits are looked at; that of descriptors is changed, for as long as a child's runtime opens its own.
    let high = p.if_word((2, 1), !0, 0, is_us, rest);
    let only_read = p.if_word((2, 0), !0, 0, high, rest);
    let changed = p.if_word((4, 0), !0, OWN_CALL as u32, is_us, only_read);
    let own = p.if_word((1, 0), !0, RLIMIT_NOFILE, changed, only_read);
    targets[nr::PRLIMIT64] = p.if_word((0, 0), !0, 0, own, rest);
    let option = SOCKET_OPTIONS.iter().fold(rest, |no, &option| p.if_word((2, 0), !0, option, is_us, no));
    targets[nr::GETSOCKOPT] = p.if_word((1, 0), !0, SOL_SOCKET, option, rest);
    targets[nr::ARCH_PRCTL] = p.if_word((0, 0), !0, ARCH_GET_FS, is_us, rest);
    // Numbers of no call: the runtime's own filter, which is older, has them trapped.
    let beyond = [(CALL_NUMBERS, rest), (gate::TRAPPED, allow), (gate::TRAPPED + gate::NUMBERS, rest)];
    p.finish(&targets, &beyond, rest);
    program
}

/// Puts a filter after that. `None` where it does not fit.
pub fn after(room: &Program, filter: &[Op], to: &mut [Op]) -> Option<usize> {
    let (_, before) = room.ops().split_last()?;
    let to = to.get_mut(..before.len() + filter.len())?;
    to[..before.len()].copy_from_slice(before);
    to[before.len()..].copy_from_slice(filter);
    Some(to.len())
}

#[cfg(test)]
mod tests {
    use super::super::interpreter::{ELSEWHERE, run_ops};
    use super::super::judge::answer;
    use super::*;

    const FROM: u64 = 0x1fff_ff00_1000;
    const KILL: u32 = 0x8000_0000;
    const THREAD: usize = 0x11_0000;

    const CODE: u64 = 0x5555_0000_1000;

    fn room() -> Program {
        build_room(&Whose {
            from: FROM as usize,
            ours: 928..=991,
            memory: [Some(930), None],
            managed: [(0x2000_0000_0000, 0x2c00_0000_0000), (0x60_0000, 0x70_0000)],
            thread: THREAD,
            pid: 77,
        })
    }

    /// What becomes of a call in a program that allows none but `getpgid`.
    fn of(nr: usize, ip: u64, args: [u64; 6]) -> u32 {
        let locked = [
            Op { code: LOAD, jt: 0, jf: 0, k: AT_NR },
            Op { code: JEQ, jt: 0, jf: 1, k: nr::GETPGID as u32 },
            Op { code: RET, jt: 0, jf: 0, k: ALLOW },
            Op { code: RET, jt: 0, jf: 0, k: KILL },
        ];
        let mut all = [Op { code: 0, jt: 0, jf: 0, k: 0 }; 1024];
        let len = after(&room(), &locked, &mut all).expect("it fits");
        let found = run_ops(&all[..len], ARCH_X86_64, nr, ip, args).0;
        assert_eq!(found, answer(&all[..len], nr, ip, args), "both ways to run it");
        assert_eq!(run_ops(&all[..len], ARCH_X86_64 ^ 1, nr, ip, args).0, if nr == nr::GETPGID { ALLOW } else { KILL });
        found
    }

    #[test]
    fn the_runtimes_calls_pass_and_the_programs_are_the_filters() {
        for ip in [FROM + 2, FROM + 0xfff, FROM + 0x1000, FROM + (1 << 32), ELSEWHERE] {
            let us = if ip & !0xfff == FROM { ALLOW } else { KILL };
            for &nr in FREE {
                assert_eq!(of(nr, ip, [0; 6]), us, "{}", nr::name(nr));
            }
            for &nr in ON_OURS {
                let with = |fd: u64| of(nr, ip, [fd, 0, 0, 0, 0, 0]);
                assert_eq!(
                    [927, 928, 991, 992, 928 + (1 << 31)].map(with),
                    [KILL, us, us, KILL, KILL],
                    "{}",
                    nr::name(nr)
                );
            }
            let write = |(fd, at)| of(nr::PWRITE64, ip, [fd, 0, 1, at, 0, 0]);
            assert_eq!([(927, 0), (929, 0), (929, CODE), (930, CODE), (930, 0)].map(write), [KILL, us, us, KILL, KILL]);
            assert_eq!([0x5f_ffff, 0x60_0000, 0x6f_ffff, 0x70_0000].map(|at| write((930, at))), [KILL, us, us, KILL]);
            assert_eq!(
                [0x2000_0000_0000, 0x2bff_ffff_ffff, 0x2c00_0000_0000].map(|at| write((930, at))),
                [us, us, KILL]
            );
            assert_eq!(of(nr::FCNTL, ip, [3, 1030, 930, 0, 0, 0]), us);
            assert_eq!(of(nr::FCNTL, ip, [3, 1030, 3, 0, 0, 0]), KILL);
            assert_eq!(of(nr::IOCTL, ip, [3, 0xc028_aa03, 0, 0, 0, 0]), us);
            assert_eq!(of(nr::IOCTL, ip, [3, 0x5401, 0, 0, 0, 0]), KILL);
            assert_eq!(
                [(nr::FCNTL, 3), (nr::IOCTL, 0x541b), (nr::FCNTL, 4)].map(|(nr, what)| of(
                    nr,
                    ip,
                    [3, what, 0, 0, 0, 0]
                )),
                [us, us, KILL]
            );
            assert_eq!([0, 1, 0x8_0801].map(|flags| of(nr::USERFAULTFD, ip, [flags, 0, 0, 0, 0, 0])), [KILL, us, us]);
            assert_eq!([0, 3, 7].map(|prot| of(nr::MPROTECT, ip, [0, 0, prot, 0, 0, 0])), [us, us, KILL]);
            let map = |(prot, flags)| of(nr::MMAP, ip, [0, 0, prot, flags, 0, 0]);
            assert_eq!([(3, 0x22), (3, 2), (7, 0x22)].map(map), [us, KILL, KILL]);
            assert_eq!([THREAD as u64, 17].map(|flags| of(nr::CLONE, ip, [flags, 0, 0, 0, 0, 0])), [us, KILL]);
            assert_eq!([0, 9].map(|signal| of(nr::KILL, ip, [1, signal, 0, 0, 0, 0])), [us, KILL]);
            let signal = |nr| move |(pid, signal)| of(nr, ip, [pid, 1, signal, 0, 0, 0]);
            let each = [(1, 0), (77, 9), (77, 11), (77, 7), (77, 31), (1, 11)];
            assert_eq!(each.map(signal(nr::TGKILL)), [us, KILL, us, us, us, KILL]);
            assert_eq!(each.map(signal(nr::RT_TGSIGQUEUEINFO)), [KILL, KILL, us, us, us, KILL]);
            assert_eq!([0x4100_0005, 4].map(|how| of(nr::WAITID, ip, [1, 9, 8, how, 0, 0])), [us, KILL]);
            let limits = |(pid, new)| of(nr::PRLIMIT64, ip, [pid, 7, new, 0, 0, 0]);
            assert_eq!([(0, 0), (1, 0), (0, 8), (0, 1 << 40)].map(limits), [us, KILL, KILL, KILL]);
            let change = |(resource, mark)| of(nr::PRLIMIT64, ip, [0, resource, 8, 0, mark, 0]);
            assert_eq!([(7, OWN_CALL as u64), (7, 0), (3, OWN_CALL as u64)].map(change), [us, KILL, KILL]);
            assert_eq!(
                [(1, 3), (1, 20), (1, 21), (1, 39), (1, 4), (6, 3)].map(|(a, b)| of(
                    nr::GETSOCKOPT,
                    ip,
                    [3, a, b, 0, 0, 0]
                )),
                [us, us, us, us, KILL, KILL]
            );
            for nr in [nr::OPENAT, nr::EXECVE, nr::SOCKET, nr::PTRACE, nr::PROCESS_VM_WRITEV, nr::NEWFSTATAT, 600] {
                assert_eq!(of(nr, ip, [928; 6]), KILL, "{}", nr::name(nr));
            }
            assert_eq!(of(nr::GETPGID, ip, [0; 6]), ALLOW, "what the program's filter says");
            assert_eq!(of(nr::RT_SIGRETURN, ip, [0; 6]), ALLOW);
            assert_eq!([gate::TRAPPED, gate::TRAPPED + gate::NUMBERS].map(|nr| of(nr, ip, [0; 6])), [ALLOW, KILL]);
        }
    }

    #[test]
    fn what_does_not_fit_stays_as_it_is() {
        let room = room();
        let filter = [Op { code: RET, jt: 0, jf: 0, k: ALLOW }; 8];
        let mut to = [filter[0]; 300];
        let len = after(&room, &filter, &mut to).expect("it fits");
        assert_eq!(len, room.ops().len() - 1 + 8);
        assert!(after(&room, &filter, &mut to[..len - 1]).is_none());
        println!("{} instructions", room.ops().len());
    }
}
