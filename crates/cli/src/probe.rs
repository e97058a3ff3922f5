//! Runs a small region through each fault source, the same code that a managed process runs, and checks every byte.
//!
//! Each probe runs in a child of its own, because it takes over signals, and because a kernel that does not keep its
//! promises may kill it.
use crate::limits;
use crate::scratch::{BYTES, Scratch};
use outswap_source::Source;
use outswap_sys::uffd::Uffd;
use outswap_sys::{Errno, PAGE_BYTES, os};
use serde::Serialize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

pub use crate::scratch::PAGES;

/// How often all pages are taken while another thread writes to them.
const ROUNDS: usize = 50;
/// Seconds after which a probe that hangs is ended.
const PROBE_SECONDS: u32 = 10;

/// How the error of a probe begins that could make no thread, and so not try all.
pub const NO_THREAD: &str = "all bytes came back, but no thread can be made to write meanwhile";

/// What came of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Name of the source.
    pub source: &'static str,
    /// All bytes came back.
    pub works: bool,
    /// Faults that were answered while it came back.
    pub faults: u64,
    /// Time from the first touch to the last, for each page.
    pub page_ns: u64,
    /// What went wrong.
    pub error: Option<String>,
}

/// Tries one source.
pub fn probe(source: Source) -> Probe {
    let answer = in_child(move || try_source(source).map(|(faults, ns)| format!("{faults} {ns}")));
    let (faults, page_ns, error) = match answer {
        Ok(text) => {
            let mut numbers = text.split(' ').map(|n| n.parse::<u64>().unwrap_or(0));
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0) / PAGES as u64, None)
        }
        Err(error) => (0, 0, Some(error)),
    };
    Probe { source: source.name(), works: error.is_none(), faults, page_ns, error }
}

/// Runs `work` in a forked child and brings its answer back.
pub fn in_child(work: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
    in_child_for(PROBE_SECONDS, work)
}

/// The same, with the seconds after which the child is ended: 0 for never, where it ends what it waits for by itself.
pub fn in_child_for(seconds: u32, work: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are ours alone once made.
    let (mut reader, mut writer) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(format!("pipe: {}", std::io::Error::last_os_error()));
        }
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    // SAFETY: the child only makes its probe and ends; with one thread in this program it may do all that we may.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            // SAFETY: plain call.
            unsafe { libc::alarm(seconds) };
            let text = match work() {
                Ok(text) => format!("+{text}"),
                Err(text) => format!("-{text}"),
            };
            let _ = writer.write_all(text.as_bytes());
            os::exit_group(0);
        }
        _ => drop(writer),
    }
    let mut text = String::new();
    let read = reader.read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: our own child; `status` has room for the answer.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    read.map_err(|e| format!("pipe: {e}"))?;
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let behind = limits::behind(signal).map_or(String::new(), |limit| format!(": {limit}"));
        return Err(format!("the probe was killed by signal {signal}{behind}"));
    }
    match text.split_at_checked(1) {
        Some(("+", answer)) => Ok(answer.to_string()),
        Some((_, why)) => Err(why.to_string()),
        None => Err(format!("the probe ended with status {}", libc::WEXITSTATUS(status))),
    }
}

/// What the handler works on.
static SCRATCH: OnceLock<Scratch> = OnceLock::new();

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information of a fault, and the registers at it.
    let (address, code, err) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        ((*info).si_addr() as usize, (*info).si_code, context.uc_mcontext.gregs[libc::REG_ERR as usize] as u64)
    };
    if !SCRATCH.get().is_some_and(|scratch| scratch.answer(signal, code, address, err)) {
        let _ = os::kill(os::getpid(), libc::SIGKILL);
    }
}

/// A byte of the pattern, different in each page and place.
fn pattern(i: usize) -> u8 {
    (i.wrapping_mul(0x9e37_79b9) >> 11) as u8 ^ (i / PAGE_BYTES) as u8
}

/// Has a source take a region out and bring it back in; gives the number of faults and the time in ns. Runs in a child.
fn try_source(source: Source) -> Result<(u64, u64), String> {
    let made = Scratch::new(source)?;
    let scratch = SCRATCH.get_or_init(|| made);
    // SAFETY: the handler only uses what was stored above and raw system calls; a zero mask is a valid one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    let expected = (PAGES / scratch.grain()) as u64;
    let arrived = |faults| match faults {
        n if n == expected => Ok(()),
        n => Err(format!("{n} faults arrived instead of {expected} for {PAGES} pages")),
    };
    // SAFETY: the region is ours; a page that is missing is filled by the handler.
    let get = |i: usize| unsafe { scratch.at(i).read_volatile() };
    // SAFETY: as above.
    let set = |i: usize, byte: u8| unsafe { scratch.at(i).write_volatile(byte) };

    if let Some(i) = (0..BYTES).step_by(PAGE_BYTES).find(|&i| get(i) != 0) {
        return Err(format!("byte {i} was not zero at the first touch"));
    }
    arrived(scratch.faults())?;
    (0..BYTES).for_each(|i| set(i, pattern(i)));
    scratch.take()?;
    let start_ns = os::monotonic_ns();
    let wrong = (0..BYTES).step_by(PAGE_BYTES).find(|&i| get(i) != pattern(i));
    let ns = os::monotonic_ns() - start_ns;
    if let Some(i) = wrong.or((0..BYTES).find(|&i| get(i) != pattern(i))) {
        return Err(format!("byte {i} came back wrong"));
    }
    let faults = scratch.faults();
    arrived(faults)?;
    scratch.release()?;
    // A page that came back must be an ordinary, writable one.
    set(0, !pattern(0));
    if get(0) != !pattern(0) {
        return Err("a page that came back lost a write".into());
    }
    keeps_writes(scratch)?;
    Ok((faults, ns))
}

/// Has pages taken, again and again, while another thread writes to them: no write may be lost.
fn keeps_writes(scratch: &Scratch) -> Result<(), String> {
    let word = |page: usize| scratch.at(page * PAGE_BYTES).cast::<u64>();
    // SAFETY: words of the region, each aligned and written by one thread; a page that is missing is filled by the handler.
    let (get, set) = (|page| unsafe { word(page).read_volatile() }, |page, n| unsafe { word(page).write_volatile(n) });
    (0..PAGES).for_each(|page| set(page, 0));
    let ended = AtomicBool::new(false);
    scratch.begin_threads();
    std::thread::scope(|threads| {
        let writer = std::thread::Builder::new().spawn_scoped(threads, || {
            let mut lost = None;
            for n in 1.. {
                for page in 0..PAGES {
                    lost = lost.or((get(page) != n - 1).then_some(page));
                    set(page, n);
                }
                if ended.load(Relaxed) {
                    return lost.or((0..PAGES).find(|&page| get(page) != n));
                }
            }
            lost
        });
        let writer = writer.map_err(|e| format!("{NO_THREAD}: {e}"))?;
        let round = |_| {
            scratch.take()?;
            (0..PAGES).for_each(|page| _ = get(page));
            scratch.release()
        };
        let taken = (0..ROUNDS).try_for_each(round);
        ended.store(true, Relaxed);
        match writer.join() {
            Ok(None) => taken,
            Ok(Some(page)) => Err(format!("page {page} lost a write that was made while it was taken")),
            Err(_) => Err("the thread that writes panicked".into()),
        }
    })
}

/// Whether a seccomp filter can be installed without privilege, and traps what it is to trap.
pub fn seccomp() -> Result<String, String> {
    in_child(|| {
        static TRAPPED: AtomicI32 = AtomicI32::new(0);
        extern "C" fn on_trap(_: libc::c_int) {
            TRAPPED.fetch_add(1, Relaxed);
        }
        // Traps getpgrp, which nothing here needs, and lets all else pass.
        let op = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
        let mut code = [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_getpgrp as u32, 1),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP, 0),
        ];
        let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
        let error = || std::io::Error::last_os_error().to_string();
        // SAFETY: the program and its code live through the calls; the handler only counts.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(format!("no_new_privs: {}", error()));
            }
            libc::signal(libc::SIGSYS, on_trap as *const () as usize);
            if libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) != 0 {
                return Err(format!("seccomp: {}", error()));
            }
            libc::syscall(libc::SYS_getpgrp);
        }
        match TRAPPED.load(Relaxed) {
            1 => Ok("a filter was installed and trapped a call".into()),
            n => Err(format!("a filter was installed, and {n} calls trapped instead of 1")),
        }
    })
}

/// Whether io_uring can be set up.
pub fn io_uring() -> Result<(), Errno> {
    let mut parameters = [0u64; 15];
    // SAFETY: the buffer has the size of `struct io_uring_params`, all zero as the call demands.
    let fd = outswap_sys::ret(unsafe {
        outswap_sys::syscall2(outswap_sys::nr::IO_URING_SETUP, 2, parameters.as_mut_ptr() as usize)
    })?;
    os::close(fd as i32)
}

/// Whether userfaultfd may be opened for faults of the kernel, too, which takes privilege.
pub fn privileged_userfaultfd() -> Result<(), Errno> {
    // SAFETY: takes flags only.
    let fd = outswap_sys::ret(unsafe { outswap_sys::syscall1(outswap_sys::nr::USERFAULTFD, os::O_CLOEXEC) })?;
    os::close(fd as i32)
}

/// Whether a userfaultfd for faults of user space opens with these features.
pub fn userfaultfd(features: u64) -> Result<(), Errno> {
    Uffd::open(features).and_then(|uffd| os::close(uffd.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_either_proves_itself_or_says_why_not() {
        for &source in Source::ALL {
            let probe = probe(source);
            assert_eq!(probe.works, probe.error.is_none());
            assert_eq!(probe.faults, if probe.works { PAGES as u64 } else { 0 }, "{probe:?}");
        }
    }

    #[test]
    fn a_child_that_dies_is_an_error() {
        assert_eq!(in_child(|| Ok("fine".into())), Ok("fine".into()));
        assert_eq!(in_child(|| Err("bad".into())), Err("bad".into()));
        let error = in_child(|| {
            let _ = os::kill(os::getpid(), libc::SIGKILL);
            Ok(String::new())
        });
        assert_eq!(error, Err("the probe was killed by signal 9".into()));
        assert_eq!(in_child(|| os::exit_group(3)), Err("the probe ended with status 3".into()));
    }
}
