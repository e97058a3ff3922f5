//! Runs filters as the kernel does, for tests.
use super::program::*;

/// Where no code of a process is.
pub const ELSEWHERE: u64 = 0x5555_0000_0000;

/// Runs a filter as the kernel would. Returns its answer and how many instructions that took.
pub fn execute(p: &Program, arch: u32, nr: usize, ip: u64, args: [u64; 6]) -> (u32, usize) {
    run_ops(p.ops(), arch, nr, ip, args)
}

/// The same with its instructions.
pub fn run_ops(ops: &[Op], arch: u32, nr: usize, ip: u64, args: [u64; 6]) -> (u32, usize) {
    let mut data = [0u8; 64];
    data[..4].copy_from_slice(&(nr as u32).to_le_bytes());
    data[4..8].copy_from_slice(&arch.to_le_bytes());
    data[8..16].copy_from_slice(&ip.to_le_bytes());
    for (i, arg) in args.iter().enumerate() {
        data[16 + i * 8..24 + i * 8].copy_from_slice(&arg.to_le_bytes());
    }
    let (mut pc, mut a) = (0, 0u32);
    for steps in 1.. {
        let op = ops[pc];
        pc += 1;
        let jump = |yes: bool| if yes { op.jt as usize } else { op.jf as usize };
        match op.code {
            LOAD => a = u32::from_le_bytes(data[op.k as usize..op.k as usize + 4].try_into().expect("four bytes")),
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

/// [`execute`] on this architecture.
pub fn count(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> (u32, usize) {
    execute(p, ARCH_X86_64, nr, ip, args)
}

/// What a filter answers.
pub fn run(p: &Program, nr: usize, ip: u64, args: [u64; 6]) -> u32 {
    count(p, nr, ip, args).0
}

/// Whether the kernel sees that a call is allowed whatever its arguments are, and then runs no filter for it. It follows
/// the program until something else than the number and the architecture is loaded.
pub fn is_free(p: &Program, nr: usize) -> bool {
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
pub fn kernel_ops(p: &Program) -> usize {
    let ops = p.ops().iter().map(|op| match op.code {
        RET => 2,
        JEQ | JGE | JSET => 1 + (op.jt != 0 && op.jf != 0) as usize + (op.k >> 31) as usize,
        _ => 1,
    });
    3 + ops.sum::<usize>()
}
