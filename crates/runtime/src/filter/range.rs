//! The range filter: pointers into managed memory; and the one like it for the program's `.bss`.
use super::program::*;
use crate::code::FIXED_END;
use crate::gate;
use crate::limits::CALL_NUMBERS;
use crate::pointers::{self, Pointers};
use outswap_sys::{nr, os};

/// Builds it. Calls from the gate's code pass. With `fixed_passes` those from fixed addresses do, too: managed programs there have them told
/// in another way ([`crate::dispatch`]), and those that are not managed have nobody to answer, though the kernel may give them what is the managed
/// range here (Go's programs ask for memory at random addresses).
pub fn build_range(gate_start: usize, gate_code_bytes: usize, fixed_passes: bool) -> Program {
    let mut p = Program::new(2);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let refuse = p.ret(ERRNO | outswap_sys::Errno::ENOSYS.0 as u32);
    let no_memory = p.ret(ERRNO | outswap_sys::Errno::ENOMEM.0 as u32);
    let [trap_elsewhere, refuse, no_memory] = [trap, refuse, no_memory].map(|answer| {
        if !fixed_passes {
            return answer;
        }
        const { assert!(FIXED_END == 1 << 32, "whose upper word is 0") };
        p.branch(JEQ, 0, allow, answer);
        p.load(AT_IP + 4)
    });
    let gate = [(gate_start, gate_start + gate_code_bytes)];
    let managed = p.if_from(&gate, allow, trap_elsewhere);
    let (mut targets, others) = targets(&mut p, managed, allow, refuse, pointers::pointers, Program::if_managed);
    // Who only wishes for a place there does without: a program that is not managed must not get it, since what it then has there would be
    // trapped. (What wishes for one in a managed program does so through the C library, which the process filter sees.)
    let without = p.if_from(&gate, allow, no_memory);
    p.branch(JSET, FIXED, managed, without);
    let placed = p.load(at_arg(3));
    targets[nr::MMAP] = p.if_managed(0, placed, allow);
    // To end it is allowed: who is executed may have to.
    let invalid = p.ret(ERRNO | outswap_sys::Errno::EINVAL.0 as u32);
    p.branch(JEQ, 0, allow, invalid);
    let upper = p.load(at_arg(1) + 4);
    p.branch(JEQ, 0, upper, invalid);
    let merges = p.load(at_arg(1));
    p.branch(JEQ, os::PR_SET_MEMORY_MERGE as u32, merges, targets[nr::PRCTL]);
    targets[nr::PRCTL] = p.load(at_arg(0));
    // Numbers of no call are our own way to be trapped.
    let beyond = [(CALL_NUMBERS, others), (gate::TRAPPED, trap), (gate::TRAPPED + gate::NUMBERS, others)];
    p.finish(&targets, &beyond, allow);
    p
}

/// Builds the same for the program's `.bss`, a range of addresses. Only calls of this process's own code are trapped, since the filter
/// outlives the program. It is kept short, because each such program adds one: of calls that are seldom made, every argument may be a
/// pointer.
pub fn build_bss(bss: (usize, usize), code: &[(usize, usize)]) -> Program {
    let mut p = Program::new(8);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let managed = p.if_from(code, trap, allow);
    let is_inside = |p: &mut Program, arg: u8, yes: At, no: At| p.if_inside(arg, bss, yes, no);
    let (targets, others) = targets(&mut p, managed, allow, allow, roughly, is_inside);
    p.finish(&targets, &[(CALL_NUMBERS, others)], allow);
    p
}

/// Flags of `mmap` with which an address is no wish: `MAP_FIXED`, `MAP_FIXED_NOREPLACE`.
const FIXED: u32 = 0x10 | 0x10_0000;

/// Calls that programs make often: they are not to be trapped because of what is left over in other registers.
const OFTEN: &[usize] = &[
    nr::READ,
    nr::WRITE,
    nr::PREAD64,
    nr::PWRITE64,
    nr::READV,
    nr::WRITEV,
    nr::POLL,
    nr::SENDTO,
    nr::RECVFROM,
    nr::FUTEX,
    nr::EPOLL_WAIT,
    nr::CLOCK_GETTIME,
];

/// What may be a pointer, in few different answers.
fn roughly(nr: usize) -> Option<Pointers> {
    let exact = pointers::pointers(nr)?;
    let may_have = !matches!(exact, Pointers::Always(0) | Pointers::Refused) && !OFTEN.contains(&nr);
    Some(if may_have { Pointers::Always(pointers::ALL_ARGS) } else { exact })
}

/// Where each call goes, by whether one of its pointers is managed: `is_managed` branches on whether an argument is. And where one goes
/// that is not known.
fn targets(
    p: &mut Program,
    managed: At,
    allow: At,
    refuse: At,
    pointers: fn(usize) -> Option<Pointers>,
    is_managed: impl Fn(&mut Program, u8, At, At) -> At,
) -> ([At; CALL_NUMBERS], At) {
    // The check of a set of arguments is that of its first, then that of the others: sets share their ends.
    let mut checks = [None; 1 << 6];
    checks[0] = Some(allow);
    fn check(
        p: &mut Program,
        checks: &mut [Option<At>; 1 << 6],
        set: u8,
        managed: At,
        is_managed: &impl Fn(&mut Program, u8, At, At) -> At,
    ) -> At {
        if let Some(at) = checks[set as usize] {
            return at;
        }
        let rest = check(p, checks, set & (set - 1), managed, is_managed);
        let at = is_managed(p, set.trailing_zeros() as u8, managed, rest);
        checks[set as usize] = Some(at);
        at
    }
    let any = |p: &mut Program, set: u8, no: At| {
        (0..6).rev().filter(|i| set & 1 << i != 0).fold(no, |no, i| is_managed(p, i, managed, no))
    };
    let others = check(p, &mut checks, pointers::ALL_ARGS, managed, &is_managed);
    let mut targets = [others; CALL_NUMBERS];
    for (nr, target) in targets.iter_mut().enumerate() {
        *target = match pointers(nr) {
            None => others,
            Some(Pointers::Always(set)) => check(p, &mut checks, set, managed, &is_managed),
            Some(Pointers::ByValue { arg, bits, from }) => {
                let first = check(p, &mut checks, from[0].1, managed, &is_managed);
                let mut borders = Borders::new(first);
                for &(value, set) in &from[1..] {
                    borders.add(value, check(p, &mut checks, set, managed, &is_managed));
                }
                p.switch(at_arg(arg as u32), bits, borders.get())
            }
            Some(Pointers::ByFlags { always, arg, flags }) => {
                let rest = flags.iter().fold(allow, |next, &(flag, set)| {
                    let asked = any(p, set, next);
                    p.branch(JSET, flag, asked, next);
                    p.load(at_arg(arg as u32))
                });
                any(p, always, rest)
            }
            Some(Pointers::Refused) => refuse,
        };
    }
    (targets, others)
}

#[cfg(test)]
mod tests {
    use super::super::interpreter::*;
    use super::*;
    use crate::layout::{ARENA, ARENA_MAX_BYTES};

    const GATE: usize = 0x1fff_ff00_0000;
    const GATE_BYTES: usize = 0x21000;
    const INVALID: u32 = ERRNO | 22;

    fn range() -> Program {
        build_range(GATE, GATE_BYTES, true)
    }

    /// The arguments whose values in the managed range are trapped, others being as given.
    fn trapped_args(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> u8 {
        let arena = ARENA as u64;
        (0..6).fold(0, |set, i| {
            let with = |value: u64| {
                let mut args = args;
                args[i] = value;
                run(p, nr, ip, args)
            };
            let inside = [arena, arena + 0x1_2345_6789, arena + ARENA_MAX_BYTES as u64 - 1].map(with);
            let outside = [arena - 1, arena + ARENA_MAX_BYTES as u64, u64::MAX, 1 << 32].map(with);
            assert!(inside.iter().all(|v| *v == inside[0]), "call {nr}, argument {i}: {inside:x?}");
            assert!(outside.iter().all(|v| *v == run(p, nr, ip, args)), "call {nr}, argument {i}: {outside:x?}");
            set | ((inside[0] == TRAP) as u8) << i
        })
    }

    #[test]
    fn range_filter_traps_pointers_of_every_call_and_nothing_else() {
        let p = range();
        for nr in (0..CALL_NUMBERS + 64).chain([1000, 0x4000_0000, 0x4000_0001, u32::MAX as usize]) {
            let expected = match pointers::pointers(nr) {
                Some(Pointers::Always(set)) => set,
                None => pointers::ALL_ARGS,
                Some(Pointers::Refused) => {
                    let managed = [ARENA as u64; 6];
                    assert_eq!(run(&p, nr, ELSEWHERE, managed), ERRNO | 38);
                    assert_eq!(run(&p, nr, ELSEWHERE, [0; 6]), ERRNO | 38);
                    continue;
                }
                Some(_) => continue,
            };
            // Of `mmap` what insists on a place.
            let others = if nr == nr::MMAP { [0, 0, 0, FIXED as u64, 0, 0] } else { [0; 6] };
            assert_eq!(trapped_args(&p, nr, ELSEWHERE, others), expected, "call {nr}");
            assert_eq!(trapped_args(&p, nr, ELSEWHERE, [u64::MAX; 6]), expected, "call {nr}");
            assert_eq!(trapped_args(&p, nr, GATE as u64, [0; 6]), 0, "call {nr}, from the gate");
        }
    }

    #[test]
    fn nobody_has_the_kernel_merge_pages() {
        let merge = |ip: u64, on: u64| run(&range(), nr::PRCTL, ip, [os::PR_SET_MEMORY_MERGE as u64, on, 0, 0, 0, 0]);
        for ip in [ELSEWHERE, GATE as u64, 0x40_1000] {
            assert_eq!(
                [0, 1, 2, 1 << 32, u64::MAX].map(|on| merge(ip, on)),
                [ALLOW, INVALID, INVALID, INVALID, INVALID]
            );
        }
        assert_eq!(run(&range(), nr::PRCTL, ELSEWHERE, [os::PR_SET_MEMORY_MERGE as u64 + 1, 1, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn range_filter_and_table_agree_on_any_call() {
        let p = range();
        let mut seed = 1u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
        };
        let mut trapped = 0;
        for _ in 0..300_000 {
            let nr = random() as usize % CALL_NUMBERS;
            let args = [(); 6].map(|()| match random() % 5 {
                0 => random(),
                1 => random() % 0x40,
                2 => 1 << (random() % 64),
                3 => 0x5400 + random() % 0x80,
                _ => ARENA as u64 + random() % ARENA_MAX_BYTES as u64,
            });
            let set = pointers::pointers_of(nr, &args.map(|a| a as usize));
            let managed = (0..6).any(|i| set & 1 << i != 0 && crate::layout::in_arena(args[i] as usize));
            let expected = match pointers::pointers(nr) {
                Some(Pointers::Refused) => ERRNO | 38,
                _ if managed && nr == nr::MMAP && args[3] as u32 & FIXED == 0 => ERRNO | 12,
                _ if managed => TRAP,
                _ => ALLOW,
            };
            assert_eq!(run(&p, nr, ELSEWHERE, args), expected, "call {nr} {args:x?}");
            trapped += managed as u32;
        }
        assert!((50_000..250_000).contains(&trapped), "{trapped}");
    }

    #[test]
    fn a_programs_bss_is_seen_from_its_own_code_alone() {
        let code: Vec<_> = (0..9).map(|i| (0x7f00_0000_1000 + (i << 33), 0x7f00_0010_0000 + (i << 33))).collect();
        let (here, own) = (0x7f00_0000_2000, 0x7f02_0000_2000);
        // Below 4 GiB, across a border of that, and over several.
        for (start, end) in
            [(0x40_4000, 0x640_4000), (0x5555_ffff_0123, 0x5556_1000_0000), (0x5555_8000_0010, 0x5558_0000_1000)]
        {
            let p = build_bss((start, end), &code);
            println!("{} instructions, {} in the kernel", p.ops().len(), kernel_ops(&p));
            let read = |ip: usize, at: usize| run(&p, nr::READ, ip as u64, [0, at as u64, 0, 0, 0, 0]);
            for inside in [start, start + 1, (start + end) / 2, end - 1] {
                assert_eq!((read(here, inside), read(own, inside)), (TRAP, TRAP), "{inside:x}");
                assert_eq!(read(0x40_1000, inside), ALLOW, "somebody else's code");
            }
            for outside in [0, start - 1, end, end + (1 << 32), start ^ 1 << 40, ARENA, usize::MAX] {
                assert_eq!(read(here, outside), ALLOW, "{outside:x}");
            }
            let mut seed = 0x9e37_79b9_7f4a_7c15u64;
            let mut random = || {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                seed >> 16 ^ seed << 32
            };
            for _ in 0..50_000 {
                let nr = random() as usize % CALL_NUMBERS;
                let args = [(); 6].map(|()| match random() % 4 {
                    0 => random(),
                    1 => random() % 0x40,
                    2 => 0x5400 + random() % 0x80,
                    _ => (start as u64) + random() % (end - start) as u64,
                });
                let inside = |set: u8| (0..6).any(|i| set & 1 << i != 0 && (start..end).contains(&(args[i] as usize)));
                let trapped = run(&p, nr, here as u64, args) == TRAP;
                let sure = inside(pointers::pointers_of(nr, &args.map(|a| a as usize)));
                let possible = match roughly(nr) {
                    None => inside(pointers::ALL_ARGS),
                    Some(Pointers::Always(set)) => inside(set),
                    Some(Pointers::Refused) => false,
                    Some(_) => sure,
                };
                assert!(trapped == possible && (trapped || !sure), "call {nr} {args:x?}");
            }
        }
    }

    #[test]
    fn the_gate_is_where_it_was_said_to_be() {
        let from = |p: &Program, ip: usize| run(p, nr::READ, ip as u64, [0, ARENA as u64, 0, 0, 0, 0]);
        for gate in [GATE, 0x7123_4567_8000, 0x1_ffff_f000, 0x5_0000_0000] {
            for fixed_passes in [false, true] {
                let p = build_range(gate, GATE_BYTES, fixed_passes);
                for inside in [gate, gate + 2, gate + 0x1000, gate + GATE_BYTES - 1] {
                    assert_eq!(from(&p, inside), ALLOW, "{inside:x}");
                }
                let around = [gate - 1, gate + GATE_BYTES, gate ^ 1 << 32, gate ^ 1 << 40];
                for outside in around.into_iter().chain([FIXED_END, usize::MAX]) {
                    let passes = fixed_passes && outside < FIXED_END;
                    assert_eq!(from(&p, outside), if passes { ALLOW } else { TRAP }, "{outside:x}");
                }
                for low in [0, 0x401000, FIXED_END - 1] {
                    assert_eq!(from(&p, low) == ALLOW, fixed_passes, "{low:x}");
                    let io_uring = run(&p, nr::IO_URING_SETUP, low as u64, [0; 6]);
                    assert_eq!(io_uring == ALLOW, fixed_passes, "{low:x}");
                }
            }
        }
    }

    #[test]
    fn a_wish_for_a_place_is_refused_and_what_insists_is_trapped() {
        const PLACE: u64 = ARENA as u64 + (1 << 40);
        const ENOMEM: u32 = ERRNO | outswap_sys::Errno::ENOMEM.0 as u32;
        let call = |p: &Program, ip: usize, place, flags| run(p, nr::MMAP, ip as u64, [place, 4096, 3, flags, 0, 0]);
        for fixed_passes in [false, true] {
            let p = build_range(GATE, GATE_BYTES, fixed_passes);
            for (flags, answer) in [(0x22, ENOMEM), (0x32, TRAP), (0x10_0022, TRAP)] {
                assert_eq!(call(&p, ELSEWHERE as usize, PLACE, flags), answer, "{flags:x}");
                assert_eq!(call(&p, GATE, PLACE, flags), ALLOW, "{flags:x}");
                assert_eq!(call(&p, 0x40_1000, PLACE, flags), if fixed_passes { ALLOW } else { answer }, "{flags:x}");
                for place in [0, 0xc0_0000_0000, 0x7f00_0000_0000] {
                    assert_eq!(call(&p, ELSEWHERE as usize, place, flags), ALLOW, "{flags:x}");
                }
            }
        }
    }

    #[test]
    fn what_is_a_pointer_may_depend_on_other_arguments() {
        let p = range();
        let args = |list: &[u8]| list.iter().fold(0u8, |set, i| set | 1 << i);
        // Which arguments are trapped, given the one that decides.
        let with = |nr: usize, arg: usize, value: u64| {
            (0..6).filter(|&i| i != arg).fold(0u8, |set, i| {
                let mut args = [0; 6];
                args[arg] = value;
                args[i] = ARENA as u64 + 0x1_0000_0010;
                set | ((run(&p, nr, ELSEWHERE, args) == TRAP) as u8) << i
            })
        };
        for flags in [0, 0x80, 0x100, 0x180, 0x1234_5678_0000_0000] {
            for (op, expected) in [
                (0, args(&[0, 3])),
                (1, args(&[0])),
                (2, args(&[0])),
                (3, args(&[0, 4])),
                (4, args(&[0, 4])),
                (5, args(&[0, 4])),
                (6, args(&[0, 3])),
                (7, args(&[0])),
                (8, args(&[0])),
                (9, args(&[0, 3])),
                (10, args(&[0])),
                (11, args(&[0, 3, 4])),
                (12, args(&[0, 4])),
                (13, args(&[0, 3])),
                (14, pointers::ALL_ARGS & !args(&[1])),
                (0x40, pointers::ALL_ARGS & !args(&[1])),
            ] {
                assert_eq!(with(nr::FUTEX, 1, op | flags), expected, "futex {op} {flags:x}");
            }
        }
        for command in (0..5).chain(8..12).chain(1024..1035) {
            assert_eq!(with(nr::FCNTL, 1, command), 0, "fcntl {command}");
        }
        for command in (5..8).chain(15..17).chain(36..39).chain(1035..1039) {
            assert_eq!(with(nr::FCNTL, 1, command), args(&[2]), "fcntl {command}");
        }
        for (request, expected) in
            [(0x5401, 4), (0x540f, 4), (0x5413, 4), (0x5421, 4), (0x5422, 0), (0x5450, 0), (0x5451, 0), (0x8912, 4)]
        {
            assert_eq!(with(nr::IOCTL, 1, request), expected, "ioctl {request:x}");
        }
        for (option, expected) in [(1, 0), (4, 0), (15, 2), (16, 2), (22, 4), (37, 2), (38, 0), (0x5356_4d41, 0b11110)]
        {
            assert_eq!(with(nr::PRCTL, 0, option), expected, "prctl {option}");
        }
        for (command, expected) in [(0, 0), (1, 8), (2, 8), (12, 0), (13, 8), (16, 0), (17, 8), (0x102, 8), (0x110, 0)]
        {
            assert_eq!(with(nr::SEMCTL, 2, command), expected, "semctl {command}");
        }
        for (request, expected) in [(0, 0), (2, 8), (5, 0), (12, 8), (16, 0), (24, 0), (0x4202, 8), (0x4206, 0)] {
            assert_eq!(with(nr::PTRACE, 0, request), expected, "ptrace {request:x}");
        }
        for (flags, expected) in [
            (17, args(&[1])),
            (0x120_0011, args(&[1, 3])),
            (0x10_0000, args(&[1, 2])),
            (0x1000, args(&[1, 2])),
            (0x8_0000, args(&[1, 4])),
            (0x13d_0f00, args(&[1, 2, 3, 4])),
        ] {
            assert_eq!(with(nr::CLONE, 0, flags), expected, "clone {flags:x}");
        }
        for (flags, expected) in [(0, 1), (1, 1), (3, args(&[0, 4])), (5, args(&[0, 4]))] {
            assert_eq!(with(nr::MREMAP, 3, flags), expected, "mremap {flags:x}");
        }
    }
}
