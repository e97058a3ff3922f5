//! The process filter: calls that the runtime must know of whatever they point to.
use super::program::*;
use crate::calls::{self, CALLS, REACH_OPTIONS, RIGHTS, RIGHTS_OPTIONS};
use crate::layout::{OWN_CALL, RLIMITS};
use crate::limits::CALL_NUMBERS;
use crate::structures::{LONG, STRUCTURES, Structure};
use core::ops::RangeInclusive;
use outswap_sys::{nr, os};

/// What the process filter must know.
pub struct Known<'a> {
    /// Code of the C library, as ascending address ranges.
    pub libc: &'a [(usize, usize)],
    /// Code of the program and of its other libraries, as ascending address ranges.
    pub all: &'a [(usize, usize)],
    /// Our descriptors.
    pub fds: RangeInclusive<i32>,
    /// Where the program's own allocator asks for memory, inside the C library, where it is in use, and where the dynamic linker maps
    /// libraries.
    pub heap: &'a [(usize, usize)],
}

/// Calls that are trapped when they come from the C library.
const FROM_LIBRARY: &[usize] = &[
    nr::EXIT,
    nr::EXIT_GROUP,
    nr::RT_SIGPENDING,
    nr::RT_SIGTIMEDWAIT,
    // Limits: what the runtime uses is not the program's.
    nr::SETRLIMIT,
    nr::GETRLIMIT,
];

/// Calls that are trapped wherever they come from, beside those with hidden pointers: those that make processes and threads, those that
/// decide who gets the signals which the runtime needs, those that change memory as a whole, and one that may make the table of descriptors the
/// caller's own, which a thread of ours has as well. (Sanitizers and Go make these by instructions of their own.)
const FROM_ALL: &[usize] = &[
    nr::FORK,
    nr::VFORK,
    nr::CLONE,
    nr::RT_SIGACTION,
    nr::RT_SIGPROCMASK,
    nr::SIGALTSTACK,
    nr::MLOCKALL,
    nr::MUNLOCKALL,
    nr::PROCESS_MADVISE,
    nr::CLOSE_RANGE,
];

/// Calls that are trapped for our descriptors wherever they come from: who goes through all numbers finds these closed, and does not close
/// or replace them. Without that of userfaultfd, what is missing would be zeros.
const BY_DESCRIPTOR: &[usize] = &[nr::CLOSE, nr::FSTAT, nr::NEWFSTATAT, nr::DUP2, nr::DUP3];

/// Calls that are trapped wherever they come from, all of them or some.
pub fn from_all() -> impl Iterator<Item = usize> {
    FROM_ALL.iter().chain(BY_DESCRIPTOR).copied()
}

/// Whether the filter looks at a call, or at some of a number's calls.
pub fn looks_at(nr: usize) -> bool {
    const BY_ARGUMENT: [usize; 4] = [nr::PRLIMIT64, nr::BRK, nr::MMAP, nr::MPROTECT];
    [FROM_LIBRARY, FROM_ALL, &RIGHTS, &BY_ARGUMENT, BY_DESCRIPTOR].iter().any(|calls| calls.contains(&nr))
        || calls::find(nr).is_some_and(|call| call.nested)
        || STRUCTURES.iter().any(|row| row.nr == nr)
}

/// Codes of `ioctl` for networks and their devices, from the first to the last that has a structure with pointers.
const IOCTLS: RangeInclusive<u32> = 0x890b..=0x8bff;
/// In the code of an `ioctl`: the kernel reads what the argument points to.
const ENCODED_IN: u32 = 0x4000_0000;
/// The same: any of these where that has 16 bytes or more.
const ENCODED_LONG: u32 = 0x3ff0_0000;

/// Branches on the argument that decides whether a call has a structure with pointers; `no` is reached with it loaded.
fn by_value(p: &mut Program, nr: usize, yes: At, no: At) -> At {
    let (mut next, mut arg) = (no, 0);
    for when in STRUCTURES.iter().filter(|row| row.nr == nr).filter_map(Structure::trapped_when) {
        arg = when.arg;
        // The others are below, in few branches for all.
        if when.from == when.to && !IOCTLS.contains(&when.from) {
            next = p.branch(JEQ, when.from, yes, next);
        }
    }
    if nr == nr::SETSOCKOPT {
        next = p.branch(JGE, LONG.from, yes, next);
    }
    if nr == nr::IOCTL {
        let small = p.branch(JSET, ENCODED_LONG, yes, next);
        next = p.branch(JSET, ENCODED_IN, small, next);
        let above = p.branch(JGE, IOCTLS.end() + 1, next, yes);
        next = p.branch(JGE, *IOCTLS.start(), above, next);
    }
    p.then(next);
    p.load(at_arg(arg as u32))
}

/// Traps what is trapped wherever it comes from: `from_all` decides whether that is code of this process, `allow` makes the call.
fn trap_all(p: &mut Program, targets: &mut [At; CALL_NUMBERS], fds: &RangeInclusive<i32>, from_all: At, allow: At) {
    for &nr in FROM_ALL {
        targets[nr] = from_all;
    }
    for call in CALLS.iter().filter(|c| c.nested) {
        targets[call.nr] = from_all;
    }
    // Structures with pointers: some calls for some values of an argument.
    for row in STRUCTURES.iter().filter(|row| row.trapped_when().is_none()) {
        targets[row.nr] = from_all;
    }
    for nr in [nr::SETSOCKOPT, nr::GETSOCKOPT, nr::IOCTL] {
        targets[nr] = by_value(p, nr, from_all, allow);
    }
    let ours = [(0, allow), (*fds.start() as u32, from_all), (*fds.end() as u32 + 1, allow)];
    let named = p.switch(at_arg(0), !0, &ours);
    let replaced = p.switch(at_arg(1), !0, &ours);
    for &nr in BY_DESCRIPTOR {
        targets[nr] = if matches!(nr, nr::DUP2 | nr::DUP3) { replaced } else { named };
    }
}

/// Builds the filter for code of a library that makes calls by instructions of its own, and is loaded after the process filter was installed.
/// `fds` are our descriptors.
pub fn build_library(code: (usize, usize), fds: &RangeInclusive<i32>) -> Program {
    let mut p = Program::new(8);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let from_all = p.if_from(&[code], trap, allow);
    let mut targets = [allow; CALL_NUMBERS];
    trap_all(&mut p, &mut targets, fds, from_all, allow);
    let dispatch = p.branch(JEQ, os::PR_SET_SYSCALL_USER_DISPATCH as u32, from_all, allow);
    targets[nr::PRCTL] = by_value(&mut p, nr::PRCTL, from_all, dispatch);
    p.finish(&targets, &[(CALL_NUMBERS, allow)], allow);
    p
}

/// Builds it.
pub fn build_process(known: &Known<'_>) -> Program {
    // Every program that is executed adds one such filter, and the kernel limits their total.
    let mut p = Program::new(8);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let from_library = p.if_from(known.libc, trap, allow);
    let from_all = p.if_from(known.all, trap, from_library);
    let mut targets = [allow; CALL_NUMBERS];
    // Rights: the runtime's thread has them too, and must not keep them longer.
    for &nr in FROM_LIBRARY.iter().chain(&RIGHTS) {
        targets[nr] = from_library;
    }
    trap_all(&mut p, &mut targets, &known.fds, from_all, allow);
    let with_rights = RIGHTS_OPTIONS
        .iter()
        .chain(&REACH_OPTIONS)
        .fold(allow, |next, &option| p.branch(JEQ, option as u32, from_library, next));
    let with_rights = p.branch(JEQ, os::PR_SET_SYSCALL_USER_DISPATCH as u32, from_all, with_rights);
    targets[nr::PRCTL] = by_value(&mut p, nr::PRCTL, from_all, with_rights);
    // Only limits that the program sees otherwise than the kernel: a C library asks for that of the stack before its program can
    // have a handler, and may lie where that of this process does.
    RLIMITS.iter().fold(allow, |next, &resource| p.branch(JEQ, resource as u32, from_library, next));
    let asked = p.load(at_arg(1));
    p.branch(JEQ, OWN_CALL as u32, allow, asked);
    targets[nr::PRLIMIT64] = p.load(at_arg(4));
    let from_heap = p.if_from(known.heap, trap, allow);
    targets[nr::BRK] = from_heap;
    // What the dynamic linker makes constants, and little else.
    targets[nr::MPROTECT] = from_heap;
    // Private anonymous mappings but not stacks, and what the dynamic linker maps of libraries.
    let is_private = p.branch(JSET, os::MAP_PRIVATE as u32, from_heap, allow);
    let is_library = p.branch(JEQ, (os::MAP_PRIVATE | os::MAP_DENYWRITE) as u32, from_heap, allow);
    let is_anonymous = p.branch(JSET, os::MAP_ANONYMOUS as u32, is_private, is_library);
    p.branch(JSET, os::MAP_STACK as u32, allow, is_anonymous);
    targets[nr::MMAP] = p.load(at_arg(3));
    p.finish(&targets, &[(CALL_NUMBERS, allow)], allow);
    p
}

#[cfg(test)]
mod tests {
    use super::super::interpreter::*;
    use super::*;
    use crate::calls;

    const HEAP_AT: usize = 0x7f00_0000_3000;

    fn process(keep_malloc: bool) -> Program {
        let heap = [(HEAP_AT, HEAP_AT + 1), (HEAP_AT + 0x100, HEAP_AT + 0x101)];
        let library = [(0x7eff_ffff_0000, 0x7f00_0000_0800), (0x7f00_0000_1000, 0x7f00_0010_0000)];
        let all = [(0x5555_0000_0000, 0x5555_0001_0000), library[0], library[1], (0x7f00_1000_0000, 0x7f00_1001_0000)];
        let heap = if keep_malloc { &heap[..] } else { &[] };
        build_process(&Known { libc: &library, all: &all, fds: 1000..=1010, heap })
    }

    #[test]
    fn the_filter_of_a_library_traps_its_code_alone() {
        let (start, end) = (0x7f00_0000_3000, 0x7f00_0010_0000);
        let p = build_library((start, end), &(1000..=1010));
        let whole = build_process(&Known { libc: &[], all: &[(start, end)], fds: 1000..=1010, heap: &[] });
        assert!(p.ops().len() < whole.ops().len());
        for nr in 0..CALL_NUMBERS {
            for args in [
                [0; 6],
                [0, 0x8912, 0, 0, 0, 0],
                [1, 26, 0, 0, 0, 0],
                [os::PR_SET_SYSCALL_USER_DISPATCH as u64, 1, 0, 0, 0, 0],
                [1005, 1005, 0, 0, 0, 0],
            ] {
                let of_whole = run(&whole, nr, start as u64, args);
                assert_eq!(run(&p, nr, start as u64, args), of_whole, "call {nr}: as code that is there at start");
                assert_eq!(run(&p, nr, end as u64 - 1, args), of_whole, "call {nr}, the last one");
                assert_eq!(
                    [start - 1, end].map(|at| run(&p, nr, at as u64, args)),
                    [ALLOW; 2],
                    "call {nr}, from elsewhere"
                );
            }
        }
        assert_eq!(run(&p, nr::RT_SIGPROCMASK, start as u64, [2, 8, 0, 8, 0, 0]), TRAP);
    }

    #[test]
    fn process_filter_traps_only_what_it_must() {
        let lib = 0x7f00_0000_2000;
        let p = process(false);
        assert_eq!(run(&p, nr::FORK, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::FORK, 0x7eff_ffff_8000, [0; 6]), TRAP, "a range across a 4 GiB border, below it");
        assert_eq!(run(&p, nr::FORK, 0x7f00_0000_0400, [0; 6]), TRAP, "and above it");
        assert_eq!(run(&p, nr::FORK, 0x7f00_0000_0900, [0; 6]), ALLOW, "between the ranges");
        assert_eq!(run(&p, nr::FORK, 0x1000, [0; 6]), ALLOW);
        assert_eq!(run(&p, nr::CLONE, lib, [17, 0, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::CLONE, lib, [0x100 | 17, 0, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::VFORK, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::EXIT_GROUP, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::SETRESUID, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::GETRESUID, lib, [0; 6]), ALLOW);
        for resource in 0..16 {
            let expected = if matches!(resource, 2 | 7 | 9) { TRAP } else { ALLOW };
            assert_eq!(run(&p, nr::PRLIMIT64, lib, [0, resource, 0, 1, 0, 0]), expected, "prlimit of {resource}");
            assert_eq!(run(&p, nr::SETRLIMIT, lib, [resource, 0, 0, 0, 0, 0]), TRAP);
            assert_eq!(run(&p, nr::GETRLIMIT, lib, [resource, 0, 0, 0, 0, 0]), TRAP);
            assert_eq!(run(&p, nr::PRLIMIT64, lib, [0, resource, 0, 1, OWN_CALL as u64, 0]), ALLOW, "our own");
            assert_eq!(run(&p, nr::PRLIMIT64, 0x1000, [0, resource, 0, 1, 0, 0]), ALLOW, "from elsewhere");
        }
        for option in 0..80 {
            // Those that change rights or what may be opened, and who asks to be told of calls.
            let is_known = matches!(option, 4 | 22 | 24 | 28 | 35 | 38 | 47 | 59 | 65);
            let expected = if is_known { TRAP } else { ALLOW };
            assert_eq!(run(&p, nr::PRCTL, lib, [option, 0, 0, 0, 0, 0]), expected, "prctl {option}");
            assert_eq!(run(&p, nr::PRCTL, 0x1000, [option, 0, 0, 0, 0, 0]), ALLOW);
        }
        assert_eq!(run(&p, nr::PRCTL, 0x5555_0000_1000, [59, 1, 0, 0, 0, 0]), TRAP, "also in the program's own code");
        assert_eq!(run(&p, nr::RT_SIGPROCMASK, lib, [0, 8, 0, 8, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::RT_SIGPROCMASK, 0x1000, [0, 8, 0, 8, 0, 0]), ALLOW);
        for nr in [nr::CLOSE, nr::FSTAT, nr::NEWFSTATAT] {
            let at = |fd: u64| run(&p, nr, lib, [fd, 0, 0, 0, 0, 0]);
            assert_eq!(
                [999, 1000, 1010, 1011, -100i32 as u32 as u64].map(at),
                [ALLOW, TRAP, TRAP, ALLOW, ALLOW],
                "call {nr}"
            );
        }
        assert_eq!(run(&p, nr::DUP2, lib, [1, 1005, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::DUP3, lib, [1005, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::CLOSE_RANGE, lib, [3, u32::MAX as u64, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::CLOSE_RANGE, lib, [3, 20, 2, 0, 0, 0]), TRAP, "the table becomes the caller's own");
        assert_eq!(run(&p, nr::WRITEV, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::READ, lib, [0; 6]), ALLOW);
        assert_eq!(run(&p, nr::IOCTL, lib, [0, 0x8912, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::IOCTL, lib, [0, 0x5413, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x22, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::BRK, HEAP_AT as u64, [0; 6]), ALLOW);
        let p = process(true);
        for at in [HEAP_AT, HEAP_AT + 0x100] {
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 0, 0x22, 0, 0]), TRAP);
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 0, 0x20022, 0, 0]), ALLOW, "a stack");
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 0, 0x21, 0, 0]), ALLOW, "shared");
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 0, 0x2, 3, 0]), ALLOW, "a file");
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 1, 0x802, 3, 0]), TRAP, "a library");
            assert_eq!(run(&p, nr::MMAP, at as u64, [0, 0, 5, 0x812, 3, 0]), ALLOW, "a part of one");
            assert_eq!(run(&p, nr::BRK, at as u64, [0; 6]), TRAP);
            assert_eq!(run(&p, nr::MPROTECT, at as u64, [0, 4096, 1, 0, 0, 0]), TRAP);
        }
        for elsewhere in [lib, HEAP_AT as u64 - 2, HEAP_AT as u64 + 1, HEAP_AT as u64 + 0x1000] {
            assert_eq!(run(&p, nr::MMAP, elsewhere, [0, 0, 0, 0x22, 0, 0]), ALLOW, "not the allocator");
            assert_eq!(run(&p, nr::BRK, elsewhere, [0; 6]), ALLOW);
            assert_eq!(run(&p, nr::MPROTECT, elsewhere, [0, 4096, 1, 0, 0, 0]), ALLOW);
        }
    }

    #[test]
    fn process_filter_sees_hidden_pointers_wherever_they_come_from() {
        let (lib, own, other) = (0x7f00_0000_2000, [0x5555_0000_1000, 0x7f00_1000_8000], [0x40_1000, 0x5555_0001_0000]);
        let p = process(true);
        let has_structure = |nr| STRUCTURES.iter().any(|row| row.nr == nr && row.trapped_when().is_none());
        for nr in 0..CALL_NUMBERS {
            let hidden = FROM_ALL.contains(&nr) || calls::find(nr).is_some_and(|c| c.nested) || has_structure(nr);
            for args in [[0; 6], [1005, 1005, 1005, 0x22, 0, 0]] {
                let is_ours = BY_DESCRIPTOR.contains(&nr) && args[0] == 1005;
                for ip in own {
                    assert_eq!(
                        run(&p, nr, ip, args),
                        if hidden || is_ours { TRAP } else { ALLOW },
                        "call {nr} from {ip:x}"
                    );
                }
                for ip in other {
                    assert_eq!(run(&p, nr, ip, args), ALLOW, "call {nr} from {ip:x}");
                }
            }
            assert!(!hidden || run(&p, nr, lib, [0; 6]) == TRAP, "call {nr}");
            let args = [[0; 6], [1005, 1005, 1005, 0x22, 0, 0]];
            let is_trapped =
                [lib, own[0], HEAP_AT as u64].iter().any(|&ip| args.iter().any(|&a| run(&p, nr, ip, a) == TRAP));
            assert!(!is_trapped || looks_at(nr), "call {nr}");
        }
        for row in STRUCTURES {
            let Some(when) = row.trapped_when() else { continue };
            let with = |value: u32, ip: u64| {
                let mut args = [0; 6];
                args[when.arg as usize] = 0x1_0000_0000 | value as u64;
                run(&p, row.nr, ip, args)
            };
            for value in [when.from, when.to, when.from.midpoint(when.to)] {
                for ip in own {
                    assert_eq!(with(value, ip), TRAP, "call {} {value:x}", row.nr);
                }
                assert_eq!(with(value, other[0]), ALLOW);
            }
        }
        for ip in own {
            // TCGETS, FIONREAD, SIOCATMARK, one beyond the networks', EVIOCGVERSION, RNDGETENTCNT, one of 15 bytes, and one that
            // only the program reads.
            for code in [0x5401, 0x541b, 0x8905, 0x8c00, 0x8004_4501, 0x8004_5200, 0x400f_1234, 0x8018_1234] {
                assert_eq!(run(&p, nr::IOCTL, ip, [0, code, 0, 0, 0, 0]), ALLOW, "{code:x}");
            }
            assert_eq!(run(&p, nr::SETSOCKOPT, ip, [3, 1, 2, 0, 4, 0]), ALLOW);
            assert_eq!(run(&p, nr::SETSOCKOPT, ip, [3, 1, 26, 0, 16, 0]), TRAP);
            assert_eq!(run(&p, nr::PRCTL, ip, [15, 0, 0, 0, 0, 0]), ALLOW);
        }
        let nowhere = build_process(&Known { libc: &[], all: &[], fds: 1000..=1010, heap: &[] });
        assert!((0..CALL_NUMBERS).all(|nr| run(&nowhere, nr, lib, [0; 6]) == ALLOW));
    }
}
