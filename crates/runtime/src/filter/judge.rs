//! What a program's own filter answers to a call, as the kernel would find: all instructions that it takes.
use super::program::{ALLOW, ARCH_X86_64, ERRNO, Op};

/// Ends the process.
const KILL: u32 = 0x8000_0000;
/// What of an answer says what is done.
const ACTION: u32 = 0xffff_0000;
/// The call is made, and written down.
const LOG: u32 = 0x7ffc_0000;
/// Words that a program can keep.
const WORDS: usize = 16;
/// Bytes of `seccomp_data`.
const DATA_BYTES: u32 = 64;

/// Whether a call fails at worst.
pub fn is_harmless(answer: u32) -> bool {
    matches!(answer & ACTION, ALLOW | LOG | ERRNO)
}

/// Whether it is made.
pub fn is_made(answer: u32) -> bool {
    matches!(answer & ACTION, ALLOW | LOG)
}

/// Runs a filter. What the kernel would refuse to install ends the process, so that nobody relies on it.
pub fn answer(ops: &[Op], nr: usize, ip: u64, args: [u64; 6]) -> u32 {
    run(ops, nr, ip, args).unwrap_or(KILL)
}

fn run(ops: &[Op], nr: usize, ip: u64, args: [u64; 6]) -> Option<u32> {
    let data = |at: u32| -> Option<u32> {
        let half = |word: u64, at: u32| if at.is_multiple_of(8) { word as u32 } else { (word >> 32) as u32 };
        match at {
            0 => Some(nr as u32),
            4 => Some(ARCH_X86_64),
            8 | 12 => Some(half(ip, at)),
            16.. if at < DATA_BYTES && at.is_multiple_of(4) => Some(half(args[(at as usize - 16) / 8], at)),
            _ => None,
        }
    };
    let (mut pc, mut a, mut x, mut kept) = (0usize, 0u32, 0u32, [0u32; WORDS]);
    loop {
        // Jumps only lead forward, so this ends.
        let op = ops.get(pc)?;
        pc += 1;
        let other = if op.code & 8 != 0 { x } else { op.k };
        let mut jump = |yes: bool| pc += if yes { op.jt as usize } else { op.jf as usize };
        match (op.code & 7, op.code & 0xf8) {
            (0, 0x00) => a = op.k,
            (0, 0x20) => a = data(op.k)?,
            (0, 0x60) => a = *kept.get(op.k as usize)?,
            (0, 0x80) => a = DATA_BYTES,
            (1, 0x00) => x = op.k,
            (1, 0x60) => x = *kept.get(op.k as usize)?,
            (1, 0x80) => x = DATA_BYTES,
            (2, 0) => *kept.get_mut(op.k as usize)? = a,
            (3, 0) => *kept.get_mut(op.k as usize)? = x,
            (4, what) => {
                a = match what & 0xf0 {
                    0x00 => a.wrapping_add(other),
                    0x10 => a.wrapping_sub(other),
                    0x20 => a.wrapping_mul(other),
                    0x30 => a.checked_div(other).unwrap_or(0),
                    0x40 => a | other,
                    0x50 => a & other,
                    0x60 => a.checked_shl(other).unwrap_or(0),
                    0x70 => a.checked_shr(other).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0x90 => a.checked_rem(other).unwrap_or(0),
                    0xa0 => a ^ other,
                    _ => return None,
                }
            }
            (5, 0x00) => pc = pc.checked_add(op.k as usize)?,
            (5, what) => match what & 0xf0 {
                0x10 => jump(a == other),
                0x20 => jump(a > other),
                0x30 => jump(a >= other),
                0x40 => jump(a & other != 0),
                _ => return None,
            },
            (6, 0x00) => return Some(op.k),
            (6, 0x10) => return Some(a),
            (7, 0x00) => x = a,
            (7, 0x80) => a = x,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(code: u16, k: u32, jt: u8, jf: u8) -> Op {
        Op { code, jt, jf, k }
    }

    #[test]
    fn words_are_kept_and_reckoned_with() {
        // (nr * 3 - 1) ^ the high half of the second argument, by way of both registers and a kept word.
        let program = [
            op(0x20, 0, 0, 0),
            op(0x24, 3, 0, 0),
            op(0x14, 1, 0, 0),
            op(0x02, 15, 0, 0),
            op(0x20, 28, 0, 0),
            op(0x07, 0, 0, 0),
            op(0x60, 15, 0, 0),
            op(0xac, 0, 0, 0),
            op(0x16, 0, 0, 0),
        ];
        assert_eq!(answer(&program, 5, 0, [0, 7 << 32, 0, 0, 0, 0]), 14 ^ 7);
        let branches = [op(0x20, 16, 0, 0), op(0x25, 9, 0, 1), op(0x06, ALLOW, 0, 0), op(0x06, ERRNO | 1, 0, 0)];
        assert_eq!([9, 10].map(|arg| answer(&branches, 0, 0, [arg, 0, 0, 0, 0, 0])), [ERRNO | 1, ALLOW]);
        assert!(is_made(ALLOW) && is_made(LOG) && is_harmless(ERRNO | 13) && !is_made(ERRNO | 13));
        assert!(![KILL, 0, 0x0003_0000, 0x7ff0_0000, 0x7fc0_0000].iter().any(|&answer| is_harmless(answer)));
    }

    #[test]
    fn what_is_no_program_ends_the_process() {
        for program in [
            &[][..],
            &[op(0x20, 2, 0, 0)],
            &[op(0x20, 64, 0, 0)],
            &[op(0x02, 16, 0, 0)],
            &[op(0x05, u32::MAX, 0, 0)],
            &[op(0xff, 0, 0, 0)],
        ] {
            assert_eq!(answer(program, 0, 0, [0; 6]), KILL);
        }
    }
}
