//! Processes that execute a program, or live in a pid namespace of their own.
use crate::bed::{Bed, Gate, file, wait};
use outswap_core::store::Store;
use outswap_store::ProcessStore;
use outswap_store::SEGMENT_BYTES;
use outswap_sys::{nr, os, syscall5};
use std::sync::atomic::Ordering::Relaxed;

/// A child that executes a program or ends, waited for or not, has no share in its parent's file any more. One whose exec fails
/// has all that it had.
pub fn who_executes_shares_nothing() {
    let mut bed = Bed::new(&[file(40)]);
    let rewrite = |bed: &mut Bed| {
        for slot in 0..600 {
            bed.check(slot, slot);
            bed.free(slot);
            bed.put(slot, slot);
        }
    };
    (0..600).for_each(|slot| bed.put(slot, slot));
    let alone = bed.store.file_segment_bytes();
    let mut children = Vec::new();
    for round in 0..6 {
        let (ready, go) = (Gate::new(), Gate::new());
        let child = bed.fork(|bed| {
            (1000..1100).for_each(|slot| bed.put(slot, slot));
            bed.store.begin_exec();
            // Two threads try; one fails before the other.
            bed.store.begin_exec();
            bed.store.exec_failed();
            ready.open();
            go.pass();
            (0..600).chain(1000..1100).for_each(|slot| bed.check(slot, slot));
            if round == 0 {
                let _ = os::kill(os::getpid(), 9);
            }
            let error = std::os::unix::process::CommandExt::exec(&mut std::process::Command::new("/no such program"));
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            bed.store.exec_failed();
            (1100..1200).for_each(|slot| bed.put(slot, slot));
            ready.open();
            go.pass();
            (0..600).chain(1000..1200).for_each(|slot| bed.check(slot, slot));
            bed.store.begin_exec();
            let mut sleep = std::process::Command::new("sleep");
            let _ = std::os::unix::process::CommandExt::exec(sleep.arg("40"));
        });
        children.push(child);
        ready.pass();
        rewrite(&mut bed);
        go.open();
        if round > 0 {
            ready.pass();
            rewrite(&mut bed);
            go.open();
        }
        // By then the descriptors of the program before are closed.
        let executed =
            |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"sleep\0"));
        let ended =
            |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        while !executed(child) && !ended(child) {
            std::thread::yield_now();
        }
        (0..600).for_each(|slot| bed.free(slot));
        (0..600).for_each(|slot| bed.put(slot, slot));
        bed.store.shrink(1, bed.worker);
        let now = bed.store.file_segment_bytes();
        assert!(now <= alone + 2 * SEGMENT_BYTES as u64, "round {round}: {now} bytes in use, {alone} alone");
    }
    for (round, child) in children.into_iter().enumerate() {
        let _ = os::kill(child, 9);
        assert_eq!(wait(child), 9, "round {round}");
    }
    (0..600).for_each(|slot| bed.check(slot, slot));
    assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
}

/// In a pid namespace of its own a child counts those outside, whom it does not see, as alive.
pub fn a_namespace_does_not_forget_who_is_outside() {
    const CLONE_NEWPID: usize = 0x2000_0000;
    const SIGCHLD: usize = 17;
    let mut bed = Bed::new(&[file(16)]);
    (0..700).for_each(|slot| bed.put(slot, slot));
    let ticket = bed.store.fork_prepare();
    // SAFETY: as fork, in a process with one thread.
    let pid = unsafe { syscall5(nr::CLONE, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0) } as i32;
    if pid < 0 {
        // Only root may.
        bed.store.fork_parent(ticket, pid);
        return;
    }
    if pid == 0 {
        bed.store.fork_child(ticket);
        assert_eq!(os::getpid(), 1);
        let written = (1000..3000).take_while(|&slot| bed.try_put(slot, slot).is_ok()).count();
        assert!(bed.store.file_segment_bytes() <= 16 * SEGMENT_BYTES as u64);
        assert!((100..400).contains(&written), "{written} pages beside the parent's");
        (0..700).chain(1000..1000 + written as u32).for_each(|slot| bed.check(slot, slot));
        let grandchild = bed.fork(|bed| (0..700).for_each(|slot| bed.check(slot, slot)));
        assert_eq!(wait(grandchild), 0);
        os::exit_group(0);
    }
    bed.store.fork_parent(ticket, pid);
    assert_eq!(wait(pid), 0);
    // Its room is free again.
    (700..800).for_each(|slot| bed.put(slot, slot));
    (0..800).for_each(|slot| bed.check(slot, slot));
}
