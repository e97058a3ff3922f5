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
//! The **filter of the program's `.bss`** is as the range filter, for the one range of addresses where that lies, and sees only calls
//! from this process's own code, as the process filter does. Only programs with a large `.bss` have it.
//!
//! The **filter of a library** that the program opens while it runs, and that makes calls by instructions of its own, is the part of the process
//! filter that concerns such code, for where the library's lies.
//!
//! **Filters of the program's own** are preceded by room for the runtime's calls (`room.rs`).
//!
//! All run on every system call, so both first branch on the call's number, by a binary search, and look at where the call
//! comes from last. The kernel sees that a call is allowed by its number alone, and does not run the filters for it at all.

mod program;
#[cfg(test)]
mod interpreter;
mod range;
mod process;
mod install;
mod judge;
mod room;

pub use install::{install_bss, install_library, install_process, install_range};
pub use judge::{answer, is_harmless, is_made};
pub use process::{Known, from_all, looks_at};
pub use program::{OUR_TRAP, Op};
pub use room::{Whose, after, build_room};

#[cfg(test)]
mod tests {
    use super::interpreter::*;
    use super::process::build_process;
    use super::program::*;
    use super::range::build_range;
    use super::*;
    use crate::layout::ARENA;
    use crate::limits::CALL_NUMBERS;
    use outswap_sys::nr;

    fn range() -> Program {
        build_range(0x1fff_ff00_0000, 0x21000, true)
    }

    #[test]
    fn calls_without_pointers_are_free_and_others_cheap() {
        let p = range();
        let library = [(0x7f00_0000_1000, 0x7f00_0010_0000)];
        let all: Vec<_> = (0..8).map(|i| (0x7f00_0000_1000 + (i << 30), 0x7f00_0010_0000 + (i << 30))).collect();
        let heap = [0x7f00_0000_3002, 0x7f00_0000_3048, 0x7f00_0000_5002, 0x7f00_0020_0ca3, 0x7f00_0020_0d07]
            .map(|at| (at, at + 1));
        let known = |all, heap| Known { libc: &library, all, fds: 1000..=1010, heap };
        let small = build_process(&known(&all[..3], &heap));
        let process = build_process(&known(&all, &[library[0], heap[3], heap[4]]));
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
        assert!(execs(&small) >= 164, "{}", execs(&small));
        assert!(execs(&process) >= 146, "{}", execs(&process));
        for nr in [nr::GETPPID, nr::GETPID, nr::GETTID, nr::LSEEK, nr::SCHED_YIELD, nr::RT_SIGRETURN, nr::SOCKET] {
            assert!(is_free(&p, nr) && is_free(&process, nr), "call {nr}");
        }
        for nr in [nr::READ, nr::WRITE, nr::FUTEX, nr::CLOCK_GETTIME, nr::EPOLL_WAIT, nr::SENDTO, nr::RECVFROM] {
            assert!(is_free(&process, nr) && !is_free(&p, nr), "call {nr}");
        }
        let most =
            |p: &Program| (0..CALL_NUMBERS).map(|nr| count(p, nr, ELSEWHERE, [0x7fff_ffff_0000; 6]).1).max().unwrap();
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

    #[test]
    fn calls_of_another_architecture_pass() {
        const I386: u32 = 0x4000_0003;
        for p in [
            range(),
            build_process(&Known {
                libc: &[(0x7f00_0000_1000, 0x7f00_0010_0000)],
                all: &[],
                fds: 1000..=1010,
                heap: &[(0x7f00_0000_1000, 0x7f00_0010_0000)],
            }),
        ] {
            for nr in 0..CALL_NUMBERS {
                assert_eq!(execute(&p, I386, nr, 0x7f00_0000_2000, [ARENA as u64; 6]).0, ALLOW, "call {nr}");
            }
        }
    }
}
