//! Runs a small region through each fault source and checks every byte.
//!
//! Each probe runs in a child of its own, because it takes over signals, and because a kernel that does not keep its
//! promises may kill it.
use outswap_control::source;
use outswap_sys::uffd::{COPY_FEATURES, MOVE_FEATURES, Uffd};
use outswap_sys::{Errno, PAGE_BYTES, os};
use serde::Serialize;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Pages of the region.
pub const PAGES: usize = 64;
const BYTES: usize = PAGES * PAGE_BYTES;
/// Seconds after which a probe that hangs is ended.
const PROBE_SECONDS: u32 = 10;

/// What came of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Name of the source.
    pub source: &'static str,
    /// All bytes came back.
    pub works: bool,
    /// Faults that were answered.
    pub faults: u64,
    /// Time from the first touch to the last, for each page.
    pub page_ns: u64,
    /// What went wrong.
    pub error: Option<String>,
}

/// Tries one source (`source::MOVE`, `COPY` or `MPROTECT`).
pub fn probe(number: u32) -> Probe {
    let name = crate::args::source_name(number).unwrap_or("?");
    let answer = in_child(move || try_source(number).map(|(faults, ns)| format!("{faults} {ns}")));
    let (faults, page_ns, error) = match answer {
        Ok(text) => {
            let mut numbers = text.split(' ').map(|n| n.parse::<u64>().unwrap_or(0));
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0) / PAGES as u64, None)
        }
        Err(error) => (0, 0, Some(error)),
    };
    Probe { source: name, works: error.is_none(), faults, page_ns, error }
}

/// Runs `work` in a forked child and brings its answer back.
pub fn in_child(work: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
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
            unsafe { libc::alarm(PROBE_SECONDS) };
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
        return Err(format!("the probe was killed by signal {}", libc::WTERMSIG(status)));
    }
    match text.split_at_checked(1) {
        Some(("+", answer)) => Ok(answer.to_string()),
        Some((_, why)) => Err(why.to_string()),
        None => Err(format!("the probe ended with status {}", libc::WEXITSTATUS(status))),
    }
}

/// What the handler needs, set before the first fault.
struct Shared {
    region: AtomicUsize,
    kept: AtomicUsize,
    fd: AtomicI32,
    source: AtomicUsize,
    faults: AtomicU64,
    unprotected: AtomicU64,
}
static SHARED: Shared = Shared {
    region: AtomicUsize::new(0),
    kept: AtomicUsize::new(0),
    fd: AtomicI32::new(-1),
    source: AtomicUsize::new(0),
    faults: AtomicU64::new(0),
    unprotected: AtomicU64::new(0),
};
/// Stands in `Shared::source` while a write to a protected page is expected.
const WRITE_PROTECTED: usize = 100;

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information of a fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let (region, kept) = (SHARED.region.load(Relaxed), SHARED.kept.load(Relaxed));
    let offset = address.wrapping_sub(region) & !(PAGE_BYTES - 1);
    if offset >= BYTES {
        let _ = os::kill(os::getpid(), libc::SIGKILL);
        return;
    }
    let (page, from) = (region + offset, kept + offset);
    let uffd = Uffd(SHARED.fd.load(Relaxed));
    let sigbus = signal == libc::SIGBUS;
    // SAFETY: both areas belong to the probe, and this is its only thread: nobody else changes the page meanwhile.
    let filled = unsafe {
        match SHARED.source.load(Relaxed) {
            n if n == WRITE_PROTECTED && sigbus => {
                SHARED.unprotected.fetch_add(1, Relaxed);
                uffd.write_protect(page, PAGE_BYTES, false).is_ok()
            }
            n if n == source::MOVE as usize && sigbus => {
                // EAGAIN with nothing done is the kernel asking to try again.
                (0..100).any(|_| uffd.move_pages(page, from, PAGE_BYTES).done_bytes == PAGE_BYTES)
            }
            n if n == source::COPY as usize && sigbus => {
                uffd.copy(page, from as *const u8, PAGE_BYTES).done_bytes == PAGE_BYTES
            }
            n if n == source::MPROTECT as usize && !sigbus => {
                let content = std::slice::from_raw_parts(from as *const u8, PAGE_BYTES);
                os::pwrite(uffd.0, content, page as u64) == Ok(PAGE_BYTES)
                    && os::mprotect(page, PAGE_BYTES, os::PROT_READ | os::PROT_WRITE).is_ok()
            }
            _ => false,
        }
    };
    if !filled {
        let _ = os::kill(os::getpid(), libc::SIGKILL);
    }
    SHARED.faults.fetch_add(1, Relaxed);
}

/// A byte of the pattern, different in each page and place.
fn pattern(i: usize) -> u8 {
    (i.wrapping_mul(0x9e37_79b9) >> 11) as u8 ^ (i / PAGE_BYTES) as u8
}

fn step(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| format!("{what}: {e:?}")
}

/// Takes a region out and faults it back in; gives the number of faults and the time in ns. Runs in a child.
fn try_source(number: u32) -> Result<(u64, u64), String> {
    let map = || os::mmap_anonymous(BYTES).map_err(step("mmap"));
    let (region, kept) = (map()?, map()?);
    let at = |base: usize, i: usize| (base + i) as *mut u8;
    // SAFETY: `region` is ours, writable, and `BYTES` long. Huge pages would hide the single pages that are tested.
    unsafe {
        os::madvise(region, BYTES, os::MADV_NOHUGEPAGE).ok();
        os::madvise(kept, BYTES, os::MADV_NOHUGEPAGE).ok();
        (0..BYTES).for_each(|i| at(region, i).write_volatile(pattern(i)));
    }
    SHARED.region.store(region, Relaxed);
    SHARED.kept.store(kept, Relaxed);
    SHARED.source.store(number as usize, Relaxed);
    // SAFETY: the handler only uses what was stored above and raw system calls; a zero mask is a valid one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    match number {
        source::MOVE => take_by_move(region, kept)?,
        source::COPY => take_by_copy(region, kept)?,
        _ => take_by_mprotect(region, kept)?,
    }
    let start_ns = os::monotonic_ns();
    // SAFETY: the region is ours; a page that is missing is filled by the handler.
    let wrong = (0..PAGES).find(|p| unsafe { at(region, p * PAGE_BYTES).read_volatile() } != pattern(p * PAGE_BYTES));
    let ns = os::monotonic_ns() - start_ns;
    // SAFETY: as above.
    let wrong = wrong.or((0..BYTES).find(|&i| unsafe { at(region, i).read_volatile() } != pattern(i)));
    if let Some(i) = wrong {
        return Err(format!("byte {i} came back wrong"));
    }
    let faults = SHARED.faults.load(Relaxed);
    if faults != PAGES as u64 {
        return Err(format!("{faults} faults arrived for {PAGES} pages"));
    }
    // A page that came back must be an ordinary, writable one.
    // SAFETY: as above.
    unsafe {
        at(region, 0).write_volatile(!pattern(0));
        if at(region, 0).read_volatile() != !pattern(0) {
            return Err("a page that came back lost a write".into());
        }
    }
    Ok((faults, ns))
}

fn take_by_move(region: usize, kept: usize) -> Result<(), String> {
    let uffd = Uffd::open(MOVE_FEATURES).map_err(step("userfaultfd with UFFDIO_MOVE"))?;
    SHARED.fd.store(uffd.0, Relaxed);
    uffd.register(region, BYTES, true).map_err(step("UFFDIO_REGISTER"))?;
    uffd.register(kept, BYTES, false).map_err(step("UFFDIO_REGISTER"))?;
    let mut done = 0;
    for _ in 0..1000 {
        // SAFETY: both areas are the probe's own, and nothing lies at `kept` yet.
        let progress = unsafe { uffd.move_pages(kept + done, region + done, BYTES - done) };
        done += progress.done_bytes;
        match progress.error {
            None => return Ok(()),
            Some(Errno::EAGAIN) => {}
            Some(e) => return Err(format!("UFFDIO_MOVE: {e:?}")),
        }
    }
    Err("UFFDIO_MOVE does not get on".into())
}

fn take_by_copy(region: usize, kept: usize) -> Result<(), String> {
    let uffd = Uffd::open(COPY_FEATURES).map_err(step("userfaultfd"))?;
    SHARED.fd.store(uffd.0, Relaxed);
    uffd.register(region, BYTES, true).map_err(step("UFFDIO_REGISTER"))?;
    uffd.write_protect(region, BYTES, true).map_err(step("UFFDIO_WRITEPROTECT"))?;
    SHARED.source.store(WRITE_PROTECTED, Relaxed);
    // SAFETY: the region is ours; the handler lifts the protection that the first write meets.
    unsafe { (region as *mut u8).write_volatile(pattern(0)) };
    if SHARED.unprotected.load(Relaxed) != 1 {
        return Err("a write to a protected page was not reported".into());
    }
    SHARED.faults.store(0, Relaxed);
    SHARED.source.store(source::COPY as usize, Relaxed);
    // SAFETY: two separate areas of this length; the region's pages are present, and dropped only once copied.
    unsafe {
        std::ptr::copy_nonoverlapping(region as *const u8, kept as *mut u8, BYTES);
        os::madvise(region, BYTES, os::MADV_DONTNEED).map_err(step("MADV_DONTNEED"))
    }
}

fn take_by_mprotect(region: usize, kept: usize) -> Result<(), String> {
    let memory = os::open(b"/proc/self/mem\0", os::O_RDWR | os::O_CLOEXEC, 0).map_err(step("/proc/self/mem"))?;
    SHARED.fd.store(memory, Relaxed);
    // SAFETY: the region is ours and no reference into it exists; `kept` is a separate area of this length.
    unsafe {
        os::mprotect(region, BYTES, os::PROT_NONE).map_err(step("mprotect"))?;
        let copy = std::slice::from_raw_parts_mut(kept as *mut u8, BYTES);
        let mut done = 0;
        while done < BYTES {
            match os::pread(memory, &mut copy[done..], (region + done) as u64) {
                Ok(n) if n > 0 => done += n,
                other => {
                    return Err(format!("reading /proc/self/mem under protection: {other:?}"));
                }
            }
        }
        os::madvise(region, BYTES, os::MADV_DONTNEED).map_err(step("MADV_DONTNEED"))?;
        // Written back under protection once, so that a kernel that forbids it is told from a page that is lost.
        os::pwrite(memory, &copy[..1], region as u64).map_err(step("writing /proc/self/mem under protection"))?;
        os::madvise(region, PAGE_BYTES, os::MADV_DONTNEED).map_err(step("MADV_DONTNEED"))
    }
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
        for number in [source::MOVE, source::COPY, source::MPROTECT] {
            let probe = probe(number);
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
