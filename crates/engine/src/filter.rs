//! The seccomp filters.
//!
//! The **range filter** knows nothing of this process: it traps every system call, from anywhere but the gate, that has an
//! argument in the managed range. It is installed once and inherited by everything that is executed, where it notices nothing
//! unless that program is managed too.
//!
//! The **process filter** traps calls whose effect the engine must know although no argument points into managed memory: fork,
//! signal masks and dispositions, exec, closing of our descriptors, calls whose pointers hide in structures. It only looks at
//! calls made from this process's C library, so a program executed later, whose library lies elsewhere, is not affected.
use crate::calls::CALLS;
use crate::layout::{ARENA, ARENA_MAX_BYTES, GATE, GATE_CODE_BYTES};
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
const JGT: u16 = 0x25;
const JSET: u16 = 0x45;
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

/// A program under construction; jumps are only forward to the next few instructions.
struct Program {
    ops: [Op; 512],
    len: usize,
}

impl Program {
    fn new() -> Program {
        Program { ops: [Op { code: 0, jt: 0, jf: 0, k: 0 }; 512], len: 0 }
    }
    fn op(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        assert!(self.len < self.ops.len(), "filter fits");
        self.ops[self.len] = Op { code, jt, jf, k };
        self.len += 1;
    }
    fn load(&mut self, at: u32) {
        self.op(LOAD, at, 0, 0);
    }
    fn ret(&mut self, value: u32) {
        self.op(RET, value, 0, 0);
    }
    /// Allows calls of another architecture: they carry 32-bit pointers, which cannot reach managed memory.
    fn only_x86_64(&mut self) {
        self.load(AT_ARCH);
        self.op(JEQ, ARCH_X86_64, 1, 0);
        self.ret(ALLOW);
    }
    fn install(&mut self) -> Result<()> {
        #[repr(C)]
        struct Fprog {
            len: u16,
            ops: *const Op,
        }
        let fprog = Fprog { len: self.len as u16, ops: self.ops.as_ptr() };
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

/// Frequent calls that take no pointer, and those that must never be trapped.
const WITHOUT_POINTERS: [usize; 16] = [
    nr::RT_SIGRETURN,
    nr::EXIT,
    nr::EXIT_GROUP,
    nr::CLOSE,
    nr::LSEEK,
    nr::GETPID,
    nr::GETTID,
    nr::GETPPID,
    nr::SCHED_YIELD,
    nr::KILL,
    nr::TGKILL,
    nr::FORK,
    nr::VFORK,
    nr::SOCKET,
    nr::SHUTDOWN,
    nr::FSYNC,
];

/// Installs the range filter.
pub fn install_range() -> Result<()> {
    build_range().install()
}

fn build_range() -> Program {
    let mut p = Program::new();
    p.only_x86_64();
    // The gate lies in one 4 GiB window, so its upper half is one number.
    p.load(AT_IP + 4);
    p.op(JEQ, (GATE >> 32) as u32, 0, 4);
    p.load(AT_IP);
    p.op(JGE, GATE as u32, 0, 2);
    p.op(JGE, GATE as u32 + GATE_CODE_BYTES as u32, 1, 0);
    p.ret(ALLOW);
    p.load(AT_NR);
    // Calls without pointers: what stands in the registers that they do not use may look like one. A trapped rt_sigreturn
    // would find another stack, and the exits never return to free what was held for them.
    for nr in WITHOUT_POINTERS {
        p.op(JEQ, nr as u32, 0, 1);
        p.ret(ALLOW);
    }
    // clone3 hides its stack in a structure; io_uring and Linux AIO keep pointers after the call. Every program has another way.
    for nr in [nr::CLONE3, nr::IO_URING_SETUP, nr::IO_URING_ENTER, nr::IO_URING_REGISTER, nr::IO_SETUP] {
        p.op(JEQ, nr as u32, 0, 1);
        p.ret(ERRNO | outswap_sys::Errno::ENOSYS.0 as u32);
    }
    for i in 0..6 {
        p.load(at_arg(i) + 4);
        p.op(JGE, (ARENA >> 32) as u32, 0, 2);
        p.op(JGE, ((ARENA + ARENA_MAX_BYTES) >> 32) as u32, 1, 0);
        p.ret(TRAP);
    }
    p.ret(ALLOW);
    p
}

/// What the process filter must know.
pub struct Known {
    /// Code of the C library, as address ranges.
    pub code: [(usize, usize); 4],
    /// Our descriptors.
    pub fds: core::ops::RangeInclusive<i32>,
    /// Whether the program's own allocator is used, whose mappings come from inside the C library.
    pub keep_malloc: bool,
}

/// Installs the process filter.
pub fn install_process(known: &Known) -> Result<()> {
    build_process(known).install()
}

fn build_process(known: &Known) -> Program {
    let mut p = Program::new();
    p.only_x86_64();
    // Comparing 64 bits in halves: a range that crosses a 4 GiB border is cut at the border, into ranges within one window.
    let mut windows = [(0usize, 0usize); 8];
    let mut n = 0;
    for &(start, end) in known.code.iter().filter(|r| r.1 > r.0) {
        let mut start = start;
        while start < end {
            let stop = end.min(((start >> 32) + 1) << 32);
            windows[n] = (start, stop);
            n += 1;
            start = stop;
        }
    }
    let windows = &windows[..n];
    for (i, &(start, end)) in windows.iter().enumerate() {
        let to_body = ((windows.len() - 1 - i) * 5 + 1) as u8;
        p.load(AT_IP + 4);
        p.op(JEQ, (start >> 32) as u32, 0, 3);
        p.load(AT_IP);
        p.op(JGE, start as u32, 0, 1);
        p.op(JGT, (end - 1) as u32, 0, to_body);
    }
    p.ret(ALLOW);
    p.load(AT_NR);
    for nr in [
        nr::FORK,
        nr::EXIT,
        nr::RT_SIGACTION,
        nr::RT_SIGPROCMASK,
        nr::SIGALTSTACK,
        nr::MLOCKALL,
        nr::MUNLOCKALL,
        nr::PROCESS_MADVISE,
        nr::GETRLIMIT,
        nr::SETRLIMIT,
        nr::PRLIMIT64,
    ] {
        p.op(JEQ, nr as u32, 0, 1);
        p.ret(TRAP);
    }
    for call in CALLS.iter().filter(|c| c.nested) {
        p.op(JEQ, call.nr as u32, 0, 1);
        p.ret(TRAP);
    }
    // fork as glibc makes it: clone without CLONE_VM.
    p.op(JEQ, nr::CLONE as u32, 0, 4);
    p.load(at_arg(0));
    p.op(JSET, 0x100, 1, 0);
    p.ret(TRAP);
    p.ret(ALLOW);
    let (first, last) = (*known.fds.start() as u32, *known.fds.end() as u32);
    p.op(JEQ, nr::CLOSE as u32, 0, 5);
    p.load(at_arg(0));
    p.op(JGE, first, 0, 2);
    p.op(JGT, last, 1, 0);
    p.ret(TRAP);
    p.ret(ALLOW);
    for nr in [nr::DUP2, nr::DUP3] {
        p.op(JEQ, nr as u32, 0, 5);
        p.load(at_arg(1));
        p.op(JGE, first, 0, 2);
        p.op(JGT, last, 1, 0);
        p.ret(TRAP);
        p.ret(ALLOW);
    }
    p.op(JEQ, nr::CLOSE_RANGE as u32, 0, 4);
    p.load(at_arg(1));
    p.op(JGE, first, 0, 1);
    p.ret(TRAP);
    p.ret(ALLOW);
    // SIOCGIFCONF is the one ioctl in common use whose buffer hides in its structure.
    p.op(JEQ, nr::IOCTL as u32, 0, 4);
    p.load(at_arg(1));
    p.op(JEQ, 0x8912, 0, 1);
    p.ret(TRAP);
    p.ret(ALLOW);
    if known.keep_malloc {
        p.op(JEQ, nr::BRK as u32, 0, 1);
        p.ret(TRAP);
        // Private anonymous mappings but not stacks.
        p.op(JEQ, nr::MMAP as u32, 0, 6);
        p.load(at_arg(3));
        p.op(JSET, 0x20000, 3, 0);
        p.op(JSET, 0x20, 0, 2);
        p.op(JSET, 0x2, 0, 1);
        p.ret(TRAP);
        p.ret(ALLOW);
    }
    p.ret(ALLOW);
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would.
    fn run(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&(nr as u32).to_le_bytes());
        data[4..8].copy_from_slice(&ARCH_X86_64.to_le_bytes());
        data[8..16].copy_from_slice(&ip.to_le_bytes());
        for (i, arg) in args.iter().enumerate() {
            data[16 + i * 8..24 + i * 8].copy_from_slice(&arg.to_le_bytes());
        }
        let (mut pc, mut a) = (0, 0u32);
        loop {
            let op = p.ops[pc];
            pc += 1;
            let jump = |yes: bool| if yes { op.jt as usize } else { op.jf as usize };
            match op.code {
                LOAD => a = u32::from_le_bytes(data[op.k as usize..op.k as usize + 4].try_into().unwrap()),
                JEQ => pc += jump(a == op.k),
                JGE => pc += jump(a >= op.k),
                JGT => pc += jump(a > op.k),
                JSET => pc += jump(a & op.k != 0),
                RET => return op.k,
                _ => panic!("unknown instruction"),
            }
        }
    }

    fn process(keep_malloc: bool) -> Program {
        let library = [(0x7f00_0000_1000, 0x7f00_0010_0000), (0x7eff_ffff_0000, 0x7f00_0000_0800), (0, 0), (0, 0)];
        build_process(&Known { code: library, fds: 1000..=1010, keep_malloc })
    }

    #[test]
    fn range_filter_traps_pointers_into_managed_memory() {
        let p = build_range();
        let arena = ARENA as u64;
        for i in 0..6 {
            let mut args = [0u64; 6];
            args[i] = arena + 5;
            assert_eq!(run(&p, nr::READ, 0x5555_0000_0000, args), TRAP, "argument {i}");
            assert_eq!(run(&p, nr::READ, GATE as u64 + 2, args), ALLOW, "from the gate");
            args[i] = arena - 1;
            assert_eq!(run(&p, nr::READ, 0x5555_0000_0000, args), ALLOW);
            args[i] = arena + ARENA_MAX_BYTES as u64;
            assert_eq!(run(&p, nr::READ, 0x5555_0000_0000, args), ALLOW);
        }
        assert_eq!(run(&p, nr::CLONE3, 0x5555_0000_0000, [0; 6]), ERRNO | 38);
        assert_eq!(run(&p, nr::IO_URING_SETUP, 0x5555_0000_0000, [0; 6]), ERRNO | 38);
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
        assert_eq!(run(&p, nr::CLONE, lib, [0x100 | 17, 0, 0, 0, 0, 0]), ALLOW);
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
}
