//! Programs that lock themselves in by a filter of their own. It gets room for the runtime's calls ([`crate::filter::build_room`]) as it is
//! installed; what has no room there (files by name, other memory by process) is not called any more where the filter would end the
//! process for it.
use crate::filter::{Op, Whose, after, answer, build_room, is_harmless, is_made};
use crate::layout::{ARENA, bss, gate};
use crate::live::Live;
use crate::{avoided, calls, kept, parts, reclaim, usermem};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use outswap_sys::{nr, os};

/// What the kernel accepts of instructions.
const OPS_MAX: usize = 4096;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
/// A `struct sock_fprog`.
const FPROG_BYTES: usize = 16;

/// A filter that a program is about to install, with room for the runtime.
pub struct Filter {
    /// Where it is: instructions, and behind them what points to them.
    at: usize,
    len: usize,
}

/// Bytes that instructions take.
const OPS_BYTES: usize = OPS_MAX * size_of::<Op>();

impl Filter {
    /// The filter of a call that installs one. `None` for other calls, and where there is no room.
    pub fn of(live: &Live, nr: usize, args: [usize; 6]) -> Option<Filter> {
        if !calls::installs_filter(nr, args[0], args[1]) {
            return None;
        }
        let mut fprog = [0u8; FPROG_BYTES];
        if !usermem::peek(args[2], &mut fprog) {
            return None;
        }
        let (theirs, theirs_at) = (u16::from_le_bytes([fprog[0], fprog[1]]) as usize, usermem::word(&fprog, 8));
        if theirs == 0 || theirs > OPS_MAX {
            return None;
        }
        let at = os::mmap_anonymous(2 * OPS_BYTES + FPROG_BYTES).ok()?;
        let mut filter = Filter { at, len: 0 };
        // SAFETY: fresh memory of that size, ours alone; any bytes are instructions.
        let (to, from) = unsafe {
            let to = core::slice::from_raw_parts_mut(at as *mut Op, OPS_MAX);
            (to, core::slice::from_raw_parts_mut((at + OPS_BYTES) as *mut Op, theirs))
        };
        // SAFETY: the same bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(from.as_mut_ptr().cast::<u8>(), size_of_val(from)) };
        if !usermem::peek(theirs_at, bytes) {
            return None;
        }
        let source = live.source().asks_map().then(|| live.pager.machine.source_fd.load(Relaxed));
        let room = build_room(&Whose {
            from: gate(),
            ours: live.fds.clone(),
            memory: [source, kept::MEM.fd()],
            managed: [(ARENA, live.arena_end()), bss()],
            thread: reclaim::THREAD_FLAGS,
            pid: os::getpid(),
        });
        filter.len = after(&room, from, to)?;
        // SAFETY: behind both.
        unsafe {
            ((at + 2 * OPS_BYTES) as *mut usize).write(filter.len);
            ((at + 2 * OPS_BYTES + 8) as *mut usize).write(at);
        }
        Some(filter)
    }

    /// What the call gets in place of the program's.
    pub fn argument(&self) -> usize {
        self.at + 2 * OPS_BYTES
    }

    /// It is about to be installed, for other threads perhaps, too: what it does not allow is not called any more.
    pub fn obey(&self, live: &Live) {
        // SAFETY: written in `of`, and nobody changes it.
        let ops = unsafe { core::slice::from_raw_parts(self.at as *const Op, self.len) };
        let of = |nr: usize, args: [u64; 6]| answer(ops, nr, gate() as u64, args);
        const AT_FDCWD: u64 = -100i64 as u64;
        let name = gate() as u64;
        let open = |flags: usize| of(nr::OPENAT, [AT_FDCWD, name, (flags | os::O_CLOEXEC) as u64, 0o600, 0, 0]);
        let opens = [os::O_RDONLY, os::O_WRONLY, os::O_RDWR, os::O_RDWR | O_CREAT | O_EXCL].map(open);
        // A child opens its own memory.
        if !opens.into_iter().all(is_made) {
            avoided::cannot_open();
        }
        let unlink = of(nr::UNLINKAT, [AT_FDCWD, name, 0, 0, 0, 0]);
        let stat = of(nr::NEWFSTATAT, [AT_FDCWD, name, name, 0, 0, 0]);
        let link = of(nr::READLINK, [name, name, 1, 0, 0, 0]);
        if !opens.into_iter().chain([unlink, stat, link]).all(is_harmless) {
            avoided::avoid_names();
        }
        if !is_harmless(of(nr::PREAD64, [3, name, 1, 0, 0, 0])) {
            avoided::avoid_reads();
        }
        let quiet = parts::MSG_NOSIGNAL as u64;
        let sends = [of(nr::SENDTO, [3, name, 1, quiet, 0, 0]), of(nr::SENDMSG, [3, name, quiet, 0, 0, 0])];
        if !sends.into_iter().all(is_made) {
            avoided::avoid_sends();
        }
        let tid = os::gettid() as u64;
        let memory = match kept::MEM.fd() {
            // Of what is not managed: the room lets the rest pass.
            Some(fd) if kept::wants_mem() => {
                [nr::PREAD64, nr::PWRITE64].map(|nr| of(nr, [fd as u64, name, 1, name, 0, 0]))
            }
            _ => [nr::PROCESS_VM_READV, nr::PROCESS_VM_WRITEV].map(|nr| of(nr, [tid, name, 1, name, 1, 0])),
        };
        if !memory.into_iter().all(is_made) {
            // Calls made without a trap would look at the map of pages with signals open.
            live.direct.store(false, SeqCst);
            avoided::avoid_memory();
        }
        if !is_harmless(of(nr::PRCTL, [os::PR_SET_SYSCALL_USER_DISPATCH as u64, 1, 0, 0, 0, 0])) {
            avoided::avoid_dispatch();
        }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        let _ = unsafe { os::munmap(self.at, 2 * OPS_BYTES + FPROG_BYTES) };
    }
}
