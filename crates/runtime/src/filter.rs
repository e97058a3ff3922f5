//! The seccomp filters.
//!
//! The **range filter** knows nothing of this process: it traps every system call, from anywhere but the gate, one of whose
//! pointers leads into the managed range. It is installed once and inherited by everything that is executed, where it notices
//! nothing unless that program is managed too.
//!
//! The **process filter** traps calls whose effect the runtime must know although no argument points into managed memory: fork,
//! signal masks and dispositions, exec, closing of our descriptors, calls whose pointers hide in structures. It only looks at
//! calls made from this process's own code, so a program executed later, whose code lies elsewhere, is not affected.
//!
//! Both run on every system call, so both first branch on the call's number, by a binary search, and look at where the call
//! comes from last. The kernel sees that a call is allowed by its number alone, and does not run the filters for it at all.
use crate::calls::{self, CALLS, Pointers};
use crate::layout::{ARENA, ARENA_MAX_BYTES, OWN_CALL, RLIMITS};
use crate::{gate, rights};
use outswap_sys::{Result, nr, ret, syscall3, syscall5};

#[repr(C)]
#[derive(Clone, Copy)]
struct Op {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

const LOAD: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const JA: u16 = 0x05;
const AND: u16 = 0x54;
const RET: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const ARCH_X86_64: u32 = 0xc000_003e;
const AT_NR: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_IP: u32 = 8;
const fn at_arg(i: u32) -> u32 {
    16 + i * 8
}

/// Instructions of a program at most. The kernel takes 4,096, and for all filters of a process 32,768.
const MAX_OPS: usize = 1024;
/// How far a conditional jump is made to reach: a little less than it can, because relays may come in between.
const NEAR: usize = 250;
/// Calls beyond this number have no targets of their own.
const NUMBERS: usize = 512;

/// An instruction of a program, as a target of jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct At(usize);

/// A program under construction. It is written from its end to its start: jumps only lead forward, so what an instruction leads
/// to is there before it.
struct Program {
    ops: [Op; MAX_OPS],
    /// The first instruction so far.
    start: usize,
    /// How many values a search compares one by one: fewer make calls faster, more make the program shorter.
    few: u64,
}

impl Program {
    fn new(few: u64) -> Program {
        Program { ops: [Op { code: 0, jt: 0, jf: 0, k: 0 }; MAX_OPS], start: MAX_OPS, few }
    }

    fn ops(&self) -> &[Op] {
        &self.ops[self.start..]
    }

    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> At {
        self.start = self.start.checked_sub(1).expect("filter fits");
        self.ops[self.start] = Op { code, jt, jf, k };
        At(self.start)
    }

    /// Loads a word of `seccomp_data`, then goes on with the instruction written last.
    fn load(&mut self, at: u32) -> At {
        self.push(LOAD, at, 0, 0)
    }

    fn ret(&mut self, value: u32) -> At {
        self.push(RET, value, 0, 0)
    }

    /// Makes `to` what comes next.
    fn then(&mut self, to: At) -> At {
        if to.0 == self.start { to } else { self.push(JA, (to.0 - self.start) as u32, 0, 0) }
    }

    /// A place within reach of a conditional jump that leads to `to`.
    fn near(&mut self, to: At) -> At {
        if to.0 - self.start <= NEAR {
            return to;
        }
        let relay = |&i: &usize| self.ops[i].code == JA && i + 1 + self.ops[i].k as usize == to.0;
        match (self.start..self.start + NEAR).find(relay) {
            Some(i) => At(i),
            None => self.push(JA, (to.0 - self.start) as u32, 0, 0),
        }
    }

    fn branch(&mut self, code: u16, k: u32, yes: At, no: At) -> At {
        let (yes, no) = (self.near(yes), self.near(no));
        self.push(code, k, (yes.0 - self.start) as u8, (no.0 - self.start) as u8)
    }

    /// Branches on what is loaded, a value below `end`, by a binary search. From the value of each border on, up to the next,
    /// its target holds; what is loaded is not below the first.
    fn search(&mut self, borders: &[(u32, At)], end: u64) -> At {
        if let [(_, to)] = borders {
            return *to;
        }
        if let Some(at) = self.few(borders, end) {
            return at;
        }
        let (below, above) = borders.split_at(borders.len() / 2);
        let from = above[0].0;
        let above = self.search(above, end);
        let below = self.search(below, from as u64);
        self.branch(JGE, from, above, below)
    }

    /// Branches as [`Program::search`], one value after the other, if all but a few have the same target. An island in a range
    /// of values has two borders but needs one comparison.
    fn few(&mut self, borders: &[(u32, At)], end: u64) -> Option<At> {
        let stop = |i: usize| borders.get(i + 1).map_or(end, |b| b.0 as u64);
        let width = |i: usize| stop(i) - borders[i].0 as u64;
        let rest = borders[(0..borders.len()).max_by_key(|&i| width(i))?].1;
        let others = (0..borders.len()).filter(|&i| borders[i].1 != rest);
        if others.clone().map(width).sum::<u64>() > self.few {
            return None;
        }
        let values = others.flat_map(|i| (borders[i].0 as u64..stop(i)).map(move |value| (value, i)));
        let mut next = rest;
        for (value, i) in values.rev() {
            next = self.branch(JEQ, value as u32, borders[i].1, next);
        }
        Some(next)
    }

    /// Loads a word of `seccomp_data` and branches on those of its `bits`, as [`Program::search`].
    fn switch(&mut self, word: u32, bits: u32, borders: &[(u32, At)]) -> At {
        let to = self.search(borders, 1 << 32);
        self.then(to);
        if bits != !0 {
            self.push(AND, bits, 0, 0);
        }
        self.load(word)
    }

    /// Branches on whether an argument lies in the managed range.
    fn if_managed(&mut self, arg: u8, yes: At, no: At) -> At {
        const { assert!(ARENA.is_multiple_of(1 << 32) && ARENA_MAX_BYTES.is_multiple_of(1 << 32)) };
        let to = self.branch(JGE, ((ARENA + ARENA_MAX_BYTES) >> 32) as u32, no, yes);
        self.branch(JGE, (ARENA >> 32) as u32, to, no);
        self.load(at_arg(arg as u32) + 4)
    }

    /// Branches on whether one of a set of arguments lies in the managed range.
    fn if_any_managed(&mut self, set: u8, yes: At, no: At) -> At {
        (0..6).rev().filter(|i| set & 1 << i != 0).fold(no, |no, i| self.if_managed(i, yes, no))
    }

    /// Branches on whether the call comes from one of these address ranges, which ascend.
    fn if_from(&mut self, code: &[(usize, usize)], yes: At, no: At) -> At {
        // 64 bits are compared in halves: each upper half that occurs has a search of its own for the lower one.
        let mut next = no;
        let halves = code.iter().filter(|r| r.1 > r.0).flat_map(|r| r.0 >> 32..=(r.1 - 1) >> 32);
        let mut last = None;
        for half in halves {
            if last.replace(half) == Some(half) {
                continue;
            }
            let mut borders = Borders::new(no);
            for &(start, end) in code {
                let (low, high) = (start.max(half << 32), end.min((half + 1) << 32));
                if low < high {
                    borders.add(low as u32, yes);
                    if high as u32 != 0 {
                        borders.add(high as u32, no);
                    }
                }
            }
            let low = self.switch(AT_IP, !0, borders.get());
            next = self.branch(JEQ, half as u32, low, next);
        }
        self.then(next);
        self.load(AT_IP + 4)
    }

    /// Branches on the call's number and completes the program. Calls of another architecture are allowed: they carry 32-bit
    /// pointers, which cannot reach managed memory.
    fn finish(&mut self, targets: &[At; NUMBERS], beyond: &[(usize, At)], allow: At) {
        let mut borders = Borders::new(targets[0]);
        for (nr, &to) in targets.iter().enumerate() {
            borders.add(nr as u32, to);
        }
        for &(nr, to) in beyond {
            borders.add(nr as u32, to);
        }
        let body = self.switch(AT_NR, !0, borders.get());
        self.branch(JEQ, ARCH_X86_64, body, allow);
        self.load(AT_ARCH);
    }

    fn install(&self) -> Result<()> {
        #[repr(C)]
        struct Fprog {
            len: u16,
            ops: *const Op,
        }
        let fprog = Fprog { len: self.ops().len() as u16, ops: self.ops().as_ptr() };
        // SAFETY: prctl(PR_SET_NO_NEW_PRIVS) and seccomp(SET_MODE_FILTER, TSYNC where there are threads already); the program
        // lives through the call.
        unsafe {
            const PR_SET_NO_NEW_PRIVS: usize = 38;
            let _ = ret(syscall3(nr::SECCOMP, 1, 0, &raw const fprog as usize)).or_else(|_| {
                ret(syscall5(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
                ret(syscall3(nr::SECCOMP, 1, 0, &raw const fprog as usize))
            })?;
        }
        Ok(())
    }
}

/// From which value on which target holds: neighbours differ.
struct Borders {
    of: [(u32, At); 320],
    len: usize,
}

impl Borders {
    fn new(first: At) -> Borders {
        let mut borders = Borders { of: [(0, At(0)); 320], len: 1 };
        borders.of[0].1 = first;
        borders
    }

    /// Adds a border that is not below the ones so far.
    fn add(&mut self, from: u32, to: At) {
        let (last, before) = self.of[self.len - 1];
        if before == to {
            return;
        }
        if last == from {
            self.of[self.len - 1].1 = to;
            return;
        }
        self.of[self.len] = (from, to);
        self.len += 1;
    }

    fn get(&self) -> &[(u32, At)] {
        &self.of[..self.len]
    }
}

/// Installs the range filter. Calls from the gate's code pass.
pub fn install_range(gate_start: usize, gate_code_bytes: usize) -> Result<()> {
    build_range(gate_start, gate_code_bytes).install()
}

fn build_range(gate_start: usize, gate_code_bytes: usize) -> Program {
    let mut p = Program::new(2);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let refuse = p.ret(ERRNO | outswap_sys::Errno::ENOSYS.0 as u32);
    let managed = p.if_from(&[(gate_start, gate_start + gate_code_bytes)], allow, trap);
    // The check of a set of arguments is that of its first, then that of the others: sets share their ends.
    let mut checks = [None; 1 << 6];
    checks[0] = Some(allow);
    fn check(p: &mut Program, checks: &mut [Option<At>; 1 << 6], set: u8, managed: At) -> At {
        if let Some(at) = checks[set as usize] {
            return at;
        }
        let rest = check(p, checks, set & (set - 1), managed);
        let at = p.if_managed(set.trailing_zeros() as u8, managed, rest);
        checks[set as usize] = Some(at);
        at
    }
    let others = check(&mut p, &mut checks, calls::ALL_ARGS, managed);
    let mut targets = [others; NUMBERS];
    for (nr, target) in targets.iter_mut().enumerate() {
        *target = match calls::pointers(nr) {
            None => others,
            Some(Pointers::Always(set)) => check(&mut p, &mut checks, set, managed),
            Some(Pointers::ByValue { arg, bits, from }) => {
                let first = check(&mut p, &mut checks, from[0].1, managed);
                let mut borders = Borders::new(first);
                for &(value, set) in &from[1..] {
                    borders.add(value, check(&mut p, &mut checks, set, managed));
                }
                p.switch(at_arg(arg as u32), bits, borders.get())
            }
            Some(Pointers::ByFlags { always, arg, flags }) => {
                let rest = flags.iter().fold(allow, |next, &(flag, set)| {
                    let asked = p.if_any_managed(set, managed, next);
                    p.branch(JSET, flag, asked, next);
                    p.load(at_arg(arg as u32))
                });
                p.if_any_managed(always, managed, rest)
            }
            Some(Pointers::Refused) => refuse,
        };
    }
    // Numbers of no call are our own way to be trapped.
    let beyond = [(NUMBERS, others), (gate::TRAPPED, trap), (gate::TRAPPED + gate::NUMBERS, others)];
    p.finish(&targets, &beyond, allow);
    p
}

/// What the process filter must know.
pub struct Known<'a> {
    /// Code of the C library, as ascending address ranges.
    pub library: &'a [(usize, usize)],
    /// Code of the program and of its other libraries, as ascending address ranges.
    pub all: &'a [(usize, usize)],
    /// Our descriptors.
    pub fds: core::ops::RangeInclusive<i32>,
    /// Whether the program's own allocator is used, whose mappings come from inside the C library.
    pub keep_malloc: bool,
}

/// Installs the process filter.
pub fn install_process(known: &Known<'_>) -> Result<()> {
    build_process(known).install()
}

/// Calls that are trapped when they come from the C library.
const FROM_LIBRARY: &[usize] = &[
    nr::EXIT,
    nr::EXIT_GROUP,
    nr::RT_SIGACTION,
    nr::RT_SIGPROCMASK,
    nr::SIGALTSTACK,
    nr::MLOCKALL,
    nr::MUNLOCKALL,
    nr::PROCESS_MADVISE,
    // Limits: what the runtime uses is not the program's.
    nr::SETRLIMIT,
    nr::GETRLIMIT,
];

/// Calls that are trapped wherever they come from, beside those with hidden pointers: those that make processes and threads.
const FROM_ALL: &[usize] = &[nr::FORK, nr::VFORK, nr::CLONE];

fn build_process(known: &Known<'_>) -> Program {
    // Every program that is executed adds one such filter, and the kernel limits their total.
    let mut p = Program::new(8);
    let trap = p.ret(TRAP);
    let allow = p.ret(ALLOW);
    let from_library = p.if_from(known.library, trap, allow);
    let from_all = p.if_from(known.all, trap, from_library);
    let mut targets = [allow; NUMBERS];
    // Rights: the runtime's thread has them too, and must not keep them longer.
    for &nr in FROM_LIBRARY.iter().chain(&rights::CALLS) {
        targets[nr] = from_library;
    }
    for &nr in FROM_ALL {
        targets[nr] = from_all;
    }
    for call in CALLS.iter().filter(|c| c.nested) {
        targets[call.nr] = from_all;
    }
    rights::PRCTL_OPTIONS.iter().fold(allow, |next, &option| p.branch(JEQ, option as u32, from_library, next));
    targets[nr::PRCTL] = p.load(at_arg(0));
    // Only limits that the program sees otherwise than the kernel: a C library asks for that of the stack before its program can
    // have a handler, and may lie where that of this process does.
    RLIMITS.iter().fold(allow, |next, &resource| p.branch(JEQ, resource as u32, from_library, next));
    let asked = p.load(at_arg(1));
    p.branch(JEQ, OWN_CALL as u32, allow, asked);
    targets[nr::PRLIMIT64] = p.load(at_arg(4));
    let ours = [(0, allow), (*known.fds.start() as u32, from_library), (*known.fds.end() as u32 + 1, allow)];
    targets[nr::CLOSE] = p.switch(at_arg(0), !0, &ours);
    targets[nr::DUP2] = p.switch(at_arg(1), !0, &ours);
    targets[nr::DUP3] = targets[nr::DUP2];
    targets[nr::CLOSE_RANGE] = p.switch(at_arg(1), !0, &ours[..2]);
    // SIOCGIFCONF is the one ioctl in common use whose buffer hides in its structure.
    p.branch(JEQ, 0x8912, from_all, allow);
    targets[nr::IOCTL] = p.load(at_arg(1));
    if known.keep_malloc {
        targets[nr::BRK] = from_library;
        // Private anonymous mappings but not stacks.
        const MAP_PRIVATE: u32 = 0x2;
        const MAP_ANONYMOUS: u32 = 0x20;
        const MAP_STACK: u32 = 0x20000;
        let is_private = p.branch(JSET, MAP_PRIVATE, from_library, allow);
        let is_anonymous = p.branch(JSET, MAP_ANONYMOUS, is_private, allow);
        p.branch(JSET, MAP_STACK, allow, is_anonymous);
        targets[nr::MMAP] = p.load(at_arg(3));
    }
    p.finish(&targets, &[(NUMBERS, allow)], allow);
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATE: usize = 0x1fff_ff00_0000;
    const GATE_BYTES: usize = 0x21000;
    const ELSEWHERE: u64 = 0x5555_0000_0000;

    /// Runs a filter as the kernel would. Returns its answer and how many instructions that took.
    fn execute(p: &Program, arch: u32, nr: usize, ip: u64, args: [u64; 6]) -> (u32, usize) {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&(nr as u32).to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        data[8..16].copy_from_slice(&ip.to_le_bytes());
        for (i, arg) in args.iter().enumerate() {
            data[16 + i * 8..24 + i * 8].copy_from_slice(&arg.to_le_bytes());
        }
        let (mut pc, mut a) = (0, 0u32);
        for steps in 1.. {
            let op = p.ops()[pc];
            pc += 1;
            let jump = |yes: bool| if yes { op.jt as usize } else { op.jf as usize };
            match op.code {
                LOAD => a = u32::from_le_bytes(data[op.k as usize..op.k as usize + 4].try_into().unwrap()),
                JEQ => pc += jump(a == op.k),
                JGE => pc += jump(a >= op.k),
                JSET => pc += jump(a & op.k != 0),
                JA => pc += op.k as usize,
                AND => a &= op.k,
                RET => return (op.k, steps),
                _ => panic!("unknown instruction"),
            }
        }
        unreachable!()
    }

    fn count(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> (u32, usize) {
        execute(p, ARCH_X86_64, nr, ip, args)
    }

    fn run(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> u32 {
        count(p, nr, ip, args).0
    }

    /// Whether the kernel sees that a call is allowed whatever its arguments are, and then runs no filter for it. It follows
    /// the program until something else than the number and the architecture is loaded.
    fn is_free(p: &Program, nr: usize) -> bool {
        let (mut pc, mut a) = (0, 0u32);
        loop {
            let op = p.ops()[pc];
            pc += 1;
            let jump = |yes: bool| if yes { op.jt as usize } else { op.jf as usize };
            match (op.code, op.k) {
                (LOAD, AT_NR) => a = nr as u32,
                (LOAD, AT_ARCH) => a = ARCH_X86_64,
                (JEQ, k) => pc += jump(a == k),
                (JGE, k) => pc += jump(a >= k),
                (JSET, k) => pc += jump(a & k != 0),
                (JA, k) => pc += k as usize,
                (AND, k) => a &= k,
                (RET, value) => return value == ALLOW,
                _ => return false,
            }
        }
    }

    /// Instructions that the kernel makes of a program: it clears its registers, a jump that does not go on to the next
    /// instruction either way becomes two, and large numbers are loaded first.
    fn kernel_ops(p: &Program) -> usize {
        let ops = p.ops().iter().map(|op| match op.code {
            RET => 2,
            JEQ | JGE | JSET => 1 + (op.jt != 0 && op.jf != 0) as usize + (op.k >> 31) as usize,
            _ => 1,
        });
        3 + ops.sum::<usize>()
    }

    fn range() -> Program {
        build_range(GATE, GATE_BYTES)
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
        for nr in (0..NUMBERS + 64).chain([1000, 0x4000_0000, 0x4000_0001, u32::MAX as usize]) {
            let expected = match calls::pointers(nr) {
                Some(Pointers::Always(set)) => set,
                None => calls::ALL_ARGS,
                Some(Pointers::Refused) => {
                    let managed = [ARENA as u64; 6];
                    assert_eq!(run(&p, nr, ELSEWHERE, managed), ERRNO | 38);
                    assert_eq!(run(&p, nr, ELSEWHERE, [0; 6]), ERRNO | 38);
                    continue;
                }
                Some(_) => continue,
            };
            assert_eq!(trapped_args(&p, nr, ELSEWHERE, [0; 6]), expected, "call {nr}");
            assert_eq!(trapped_args(&p, nr, ELSEWHERE, [u64::MAX; 6]), expected, "call {nr}");
            assert_eq!(trapped_args(&p, nr, GATE as u64, [0; 6]), 0, "call {nr}, from the gate");
        }
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
            let nr = random() as usize % NUMBERS;
            let args = [(); 6].map(|()| match random() % 5 {
                0 => random(),
                1 => random() % 0x40,
                2 => 1 << (random() % 64),
                3 => 0x5400 + random() % 0x80,
                _ => ARENA as u64 + random() % ARENA_MAX_BYTES as u64,
            });
            let set = calls::pointers_of(nr, &args.map(|a| a as usize));
            let managed = (0..6).any(|i| set & 1 << i != 0 && crate::layout::in_arena(args[i] as usize));
            let expected = match calls::pointers(nr) {
                Some(Pointers::Refused) => ERRNO | 38,
                _ if managed => TRAP,
                _ => ALLOW,
            };
            assert_eq!(run(&p, nr, ELSEWHERE, args), expected, "call {nr} {args:x?}");
            trapped += managed as u32;
        }
        assert!((50_000..250_000).contains(&trapped), "{trapped}");
    }

    #[test]
    fn the_gate_is_where_it_was_said_to_be() {
        let from = |p: &Program, ip: usize| run(p, nr::READ, ip as u64, [0, ARENA as u64, 0, 0, 0, 0]);
        for gate in [GATE, 0x7123_4567_8000, 0x1_ffff_f000, 0x5_0000_0000] {
            let p = build_range(gate, GATE_BYTES);
            for inside in [gate, gate + 2, gate + 0x1000, gate + GATE_BYTES - 1] {
                assert_eq!(from(&p, inside), ALLOW, "{inside:x}");
            }
            for outside in [0, gate - 1, gate + GATE_BYTES, gate ^ 1 << 32, gate ^ 1 << 40, usize::MAX] {
                assert_eq!(from(&p, outside), TRAP, "{outside:x}");
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
                (14, calls::ALL_ARGS & !args(&[1])),
                (0x40, calls::ALL_ARGS & !args(&[1])),
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

    #[test]
    fn calls_without_pointers_are_free_and_others_cheap() {
        let p = range();
        let library = [(0x7f00_0000_1000, 0x7f00_0010_0000)];
        let all: Vec<_> = (0..8).map(|i| (0x7f00_0000_1000 + (i << 30), 0x7f00_0010_0000 + (i << 30))).collect();
        let small = build_process(&Known { library: &library, all: &all[..3], fds: 1000..=1010, keep_malloc: false });
        let process = build_process(&Known { library: &library, all: &all, fds: 1000..=1010, keep_malloc: true });
        // The kernel has room for so many instructions in a chain, of which each filter takes 4 more than it has. Each program
        // that is executed adds a filter.
        const MAX_INSNS_PER_PATH: usize = 32768;
        let execs = |each: &Program| (MAX_INSNS_PER_PATH - kernel_ops(&p) - 4) / (kernel_ops(each) + 4);
        println!(
            "{} instructions in the kernel, then {} or {}",
            kernel_ops(&p),
            kernel_ops(&small),
            kernel_ops(&process)
        );
        assert!(execs(&small) >= 230, "{}", execs(&small));
        assert!(execs(&process) >= 190, "{}", execs(&process));
        for nr in [nr::GETPPID, nr::GETPID, nr::GETTID, nr::LSEEK, nr::SCHED_YIELD, nr::RT_SIGRETURN, nr::SOCKET] {
            assert!(is_free(&p, nr) && is_free(&process, nr), "call {nr}");
        }
        for nr in [nr::READ, nr::WRITE, nr::FUTEX, nr::CLOCK_GETTIME, nr::EPOLL_WAIT, nr::SENDTO, nr::RECVFROM] {
            assert!(is_free(&process, nr) && !is_free(&p, nr), "call {nr}");
        }
        let most = |p: &Program| (0..NUMBERS).map(|nr| count(p, nr, ELSEWHERE, [0x7fff_ffff_0000; 6]).1).max().unwrap();
        assert!(most(&p) <= 40, "{}", most(&p));
        assert!(most(&process) <= 30, "{}", most(&process));
        for (nr, args, in_range, in_process) in [
            (nr::GETPID, [0; 6], 16, 16),
            (nr::READ, [3, 0x7fff_0000_0000, 1, 0, 0, 0], 18, 16),
            (nr::FUTEX, [0x7fff_0000_0000, 129, 1, 0, 0, 0], 24, 16),
            (nr::MMAP, [0, 4096, 3, 0x22, 0, 0], 18, 20),
        ] {
            let steps = (count(&p, nr, ELSEWHERE, args).1, count(&process, nr, ELSEWHERE, args).1);
            println!("call {nr}: {steps:?} instructions");
            assert!(steps.0 <= in_range && steps.1 <= in_process, "call {nr}: {steps:?}");
        }
        println!("{} and {} instructions in all", p.ops().len(), process.ops().len());
    }

    fn process(keep_malloc: bool) -> Program {
        let library = [(0x7eff_ffff_0000, 0x7f00_0000_0800), (0x7f00_0000_1000, 0x7f00_0010_0000)];
        let all = [(0x5555_0000_0000, 0x5555_0001_0000), library[0], library[1], (0x7f00_1000_0000, 0x7f00_1001_0000)];
        build_process(&Known { library: &library, all: &all, fds: 1000..=1010, keep_malloc })
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
        for option in 0..64 {
            let changes_rights = matches!(option, 22 | 24 | 28 | 38 | 47);
            let expected = if changes_rights { TRAP } else { ALLOW };
            assert_eq!(run(&p, nr::PRCTL, lib, [option, 0, 0, 0, 0, 0]), expected, "prctl {option}");
            assert_eq!(run(&p, nr::PRCTL, 0x1000, [option, 0, 0, 0, 0, 0]), ALLOW);
        }
        assert_eq!(run(&p, nr::RT_SIGPROCMASK, lib, [0, 8, 0, 8, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::RT_SIGPROCMASK, 0x1000, [0, 8, 0, 8, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::CLOSE, lib, [999, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::CLOSE, lib, [1000, 0, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::CLOSE, lib, [1010, 0, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::CLOSE, lib, [1011, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::DUP2, lib, [1, 1005, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::DUP3, lib, [1005, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::CLOSE_RANGE, lib, [3, u32::MAX as u64, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::CLOSE_RANGE, lib, [3, 20, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::WRITEV, lib, [0; 6]), TRAP);
        assert_eq!(run(&p, nr::READ, lib, [0; 6]), ALLOW);
        assert_eq!(run(&p, nr::IOCTL, lib, [0, 0x8912, 0, 0, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::IOCTL, lib, [0, 0x5413, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x22, 0, 0]), ALLOW);
        let p = process(true);
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x22, 0, 0]), TRAP);
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x20022, 0, 0]), ALLOW, "a stack");
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x21, 0, 0]), ALLOW, "shared");
        assert_eq!(run(&p, nr::MMAP, lib, [0, 0, 0, 0x2, 3, 0]), ALLOW, "a file");
        assert_eq!(run(&p, nr::BRK, lib, [0; 6]), TRAP);
    }

    #[test]
    fn process_filter_sees_hidden_pointers_wherever_they_come_from() {
        let (lib, own, other) = (0x7f00_0000_2000, [0x5555_0000_1000, 0x7f00_1000_8000], [0x40_1000, 0x5555_0001_0000]);
        let p = process(true);
        for nr in (0..NUMBERS).filter(|&nr| nr != nr::IOCTL) {
            let hidden = matches!(nr, nr::FORK | nr::VFORK | nr::CLONE) || calls::find(nr).is_some_and(|c| c.nested);
            for args in [[0; 6], [1005, 1005, 1005, 0x22, 0, 0]] {
                for ip in own {
                    assert_eq!(run(&p, nr, ip, args), if hidden { TRAP } else { ALLOW }, "call {nr} from {ip:x}");
                }
                for ip in other {
                    assert_eq!(run(&p, nr, ip, args), ALLOW, "call {nr} from {ip:x}");
                }
            }
            assert!(!hidden || run(&p, nr, lib, [0; 6]) == TRAP, "call {nr}");
        }
        for ip in own {
            assert_eq!(run(&p, nr::IOCTL, ip, [0, 0x8912, 0, 0, 0, 0]), TRAP);
            assert_eq!(run(&p, nr::IOCTL, ip, [0, 0x5401, 0, 0, 0, 0]), ALLOW);
        }
        let nowhere = build_process(&Known { library: &[], all: &[], fds: 1000..=1010, keep_malloc: false });
        assert!((0..NUMBERS).all(|nr| run(&nowhere, nr, lib, [0; 6]) == ALLOW));
    }

    #[test]
    fn calls_of_another_architecture_pass() {
        const I386: u32 = 0x4000_0003;
        for p in [range(), process(true)] {
            for nr in 0..NUMBERS {
                assert_eq!(execute(&p, I386, nr, 0x7f00_0000_2000, [ARENA as u64; 6]).0, ALLOW, "call {nr}");
            }
        }
    }
}
