//! Starts the program with as little between it and us as can be.
use crate::libraries;
use crate::supervise::Signals;
use outswap_control::{self as control, PLACE_BYTES, Place};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::{mem, ptr};

/// Bytes of stack for the few calls between clone and exec.
const STACK_BYTES: usize = 64 << 10;

/// Variables with the number of the process that something is meant for, in systemd's interfaces (`sd_listen_fds(3)`,
/// `sd_watchdog_enabled(3)`, `systemd.exec(5)`). Where they name us, the program is meant, which runs in a process of its own.
const MEANT_FOR: [&[u8]; 3] = [b"LISTEN_PID=", b"WATCHDOG_PID=", b"SYSTEMD_EXEC_PID="];
/// Bytes of such a variable, with a NUL.
const MEANT_BYTES: usize = 32;

/// One of [`MEANT_FOR`], for the program: the child writes its number, which nobody knows before it is there.
struct Meant {
    entry: UnsafeCell<[u8; MEANT_BYTES]>,
    /// Bytes of the name, with its equals sign.
    name_bytes: usize,
}

impl Meant {
    /// `None` where an entry of the environment is none of them, or names another process.
    fn of(entry: &CStr, pid: libc::pid_t) -> Option<Meant> {
        let name = MEANT_FOR.iter().find(|name| entry.to_bytes().starts_with(name))?;
        let value = std::str::from_utf8(&entry.to_bytes()[name.len()..]).ok()?;
        if value.parse() != Ok(pid) {
            return None;
        }
        let mut bytes = [0; MEANT_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Some(Meant { entry: UnsafeCell::new(bytes), name_bytes: name.len() })
    }

    fn as_ptr(&self) -> *const libc::c_char {
        self.entry.get().cast()
    }

    /// Writes the number of a process. Takes no lock and no memory.
    ///
    /// # Safety
    /// Nobody else uses the entry meanwhile.
    unsafe fn set(&self, pid: libc::pid_t) {
        // SAFETY: the caller vouches.
        let entry = unsafe { &mut *self.entry.get() };
        let mut at = self.name_bytes;
        let digits = pid.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
        for place in (0..digits).rev() {
            entry[at] = b'0' + (pid.unsigned_abs() / 10u32.pow(place) % 10) as u8;
            at += 1;
        }
        entry[at] = 0;
    }
}

struct Start<'a> {
    path: &'a CStr,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    meant: &'a [Meant],
    signals: &'a Signals,
    supervisor: libc::pid_t,
    timers: &'a Timers,
    errno: AtomicI32,
}

/// The process's timers of the kernel's (`alarm`, `setitimer`). They go on through an exec, so that whoever sets one and executes us means
/// the program, and not through the start of a process.
pub struct Timers([(libc::c_int, libc::itimerval); 3]);

impl Timers {
    /// Stops those of this process.
    pub fn take() -> Timers {
        Timers([libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF].map(|which| {
            // SAFETY: numbers alone, of which all may be zero.
            let (none, mut was): (libc::itimerval, libc::itimerval) = unsafe { (mem::zeroed(), mem::zeroed()) };
            // SAFETY: the kernel reads one place and writes the other.
            unsafe { libc::setitimer(which, &none, &mut was) };
            (which, was)
        }))
    }

    /// Starts them in the calling process. Async-signal-safe.
    fn give(&self) {
        for (which, timer) in self.0.iter().filter(|(_, timer)| timer.it_value.tv_sec | timer.it_value.tv_usec != 0) {
            // SAFETY: the kernel reads it.
            unsafe { libc::setitimer(*which, timer, ptr::null_mut()) };
        }
    }
}

/// Why the program did not start.
pub enum SpawnError {
    /// No process could be made.
    Clone(std::io::Error),
    /// The process could not execute the file.
    Exec(std::io::Error),
}

/// Starts `path` in a child that shares our memory until it executes (as `vfork` does, so nothing is copied, and an
/// error of exec is known at once). The child gets the signal mask and dispositions that we were started with, and
/// dies with us if we are killed: whoever kills the process they started means the program.
pub fn spawn(
    path: &CStr,
    argv: &[CString],
    envp: &[CString],
    signals: &Signals,
    timers: &Timers,
) -> Result<libc::pid_t, SpawnError> {
    let supervisor = outswap_sys::os::getpid();
    let found = envp.iter().enumerate().filter_map(|(i, entry)| Some((i, Meant::of(entry, supervisor)?)));
    let (places, meant): (Vec<_>, Vec<_>) = found.unzip();
    let (argv, mut envp) = (pointers(argv), pointers(envp));
    places.iter().zip(&meant).for_each(|(&i, meant)| envp[i] = meant.as_ptr());
    let start = Start {
        path,
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        meant: &meant,
        signals,
        supervisor,
        timers,
        errno: AtomicI32::new(0),
    };
    let mut stack = vec![0u128; STACK_BYTES / 16];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: with CLONE_VFORK this thread, the only one, sleeps until the child has executed or ended, so all that
    // `start` points to outlives the child's use of it; the stack is the child's alone and 16-byte aligned.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(child, top.cast(), flags, (&raw const start).cast_mut().cast())
    };
    if pid < 0 {
        return Err(SpawnError::Clone(std::io::Error::last_os_error()));
    }
    match start.errno.load(Relaxed) {
        0 => Ok(pid),
        errno => {
            // SAFETY: our own child, which ended without executing; a null status is allowed.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Err(SpawnError::Exec(std::io::Error::from_raw_os_error(errno)))
        }
    }
}

/// Becomes the program, with the signal mask and dispositions that we were started with. Comes back only where that fails.
pub fn become_program(path: &CStr, argv: &[CString], envp: &[CString], signals: &Signals) -> SpawnError {
    let (argv, envp) = (pointers(argv), pointers(envp));
    signals.restore_for_program();
    // SAFETY: NULL-terminated arrays of NUL-terminated strings, which live as long as this call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    SpawnError::Exec(std::io::Error::last_os_error())
}

/// What `execve` wants: their addresses, and a NULL.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Our environment, with what managed programs need.
pub fn environment(managed: Option<(Place, &str)>) -> Vec<CString> {
    let mut list = Vec::new();
    let mut preload_before = Vec::new();
    for (name, value) in std::env::vars_os() {
        if managed.is_some() && (name == control::ENV || name == "LD_PRELOAD") {
            if name == "LD_PRELOAD" {
                preload_before = value.into_vec();
            }
            continue;
        }
        list.push([name.as_bytes(), b"=", value.as_bytes()].concat());
    }
    if let Some((place, preload)) = managed {
        list.push([control::ENV.as_bytes(), b"=", place.write(&mut [0; PLACE_BYTES])].concat());
        list.push([b"LD_PRELOAD=", libraries::join(preload, &preload_before).as_slice()].concat());
    }
    // No NUL byte can come out of an environment.
    list.into_iter().filter_map(|entry| CString::new(entry).ok()).collect()
}

extern "C" fn child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a `Start` that lives while we run.
    let start = unsafe { &*argument.cast_const().cast::<Start>() };
    // SAFETY: plain calls without locks or allocation; argument and environment lists are NULL-terminated arrays of
    // NUL-terminated strings that live in the sleeping parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Did the supervisor die before it could be watched? (From inside a new PID namespace it is seen as 0.)
        if ![start.supervisor, 0].contains(&libc::getppid()) {
            libc::_exit(0);
        }
        // The parent sleeps.
        start.meant.iter().for_each(|meant| meant.set(libc::getpid()));
        start.timers.give();
        start.signals.restore_for_program();
        libc::execve(start.path.as_ptr(), start.argv, start.envp);
        start.errno.store(*libc::__errno_location(), Relaxed);
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_for_us_is_meant_for_the_program() {
        for pid in [1, 9, 10, 4_194_304, libc::pid_t::MAX] {
            let found = Meant::of(c"LISTEN_PID=77", 77).expect("it names us");
            // SAFETY: nobody else has it; it is NUL-terminated.
            let text = unsafe {
                found.set(pid);
                CStr::from_ptr(found.as_ptr())
            };
            assert_eq!(text.to_str(), Ok(&*format!("LISTEN_PID={pid}")));
        }
        assert!(Meant::of(c"WATCHDOG_PID=5", 5).is_some() && Meant::of(c"SYSTEMD_EXEC_PID=5", 5).is_some());
        let others = [c"LISTEN_PID=78", c"LISTEN_PID=", c"LISTEN_PID", c"LISTEN_PIDS=77", c"MY_LISTEN_PID=77", c"X=77"];
        assert!(others.iter().all(|entry| Meant::of(entry, 77).is_none()), "another process, or nothing");
    }
}
