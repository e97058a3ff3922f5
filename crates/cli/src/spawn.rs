//! Starts the program with as little between it and us as can be.
use crate::libraries;
use crate::supervise::{Job, Signals};
use outswap_control::{self as control, PLACE_BYTES, Place};
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::{mem, ptr};

/// The child may begin.
const GO: u8 = 0;

/// Variables with the number of the process that something is meant for, in systemd's interfaces (`sd_listen_fds(3)`,
/// `sd_watchdog_enabled(3)`, `systemd.exec(5)`). Where they name us, the program is meant, which runs in a process of its own.
const MEANT_FOR: [&[u8]; 3] = [b"LISTEN_PID=", b"WATCHDOG_PID=", b"SYSTEMD_EXEC_PID="];
/// One of [`MEANT_FOR`] that names a process, as another is to find it. `None` where an entry of the environment is none of them, or names yet
/// another.
fn meant_for(entry: &CStr, from: libc::pid_t, to: libc::pid_t) -> Option<CString> {
    let name = MEANT_FOR.into_iter().find(|name| entry.to_bytes().starts_with(name))?;
    let value = std::str::from_utf8(&entry.to_bytes()[name.len()..]).ok()?;
    if value.parse() != Ok(from) {
        return None;
    }
    CString::new([name, to.to_string().as_bytes()].concat()).ok()
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

    /// Starts them in the calling process.
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

/// Starts `path` in a child, passing signals on from the moment in which it is there. The child gets the signal mask and dispositions that we
/// were started with, and dies with us if we are killed: whoever kills the process they started means the program. This process must have
/// no other thread.
pub fn spawn(
    path: &CStr,
    argv: &[CString],
    envp: &[CString],
    signals: &Signals,
    timers: &Timers,
) -> Result<Job, SpawnError> {
    let supervisor = outswap_sys::os::getpid();
    let (ours, theirs) = UnixStream::pair().map_err(SpawnError::Clone)?;
    // SAFETY: no other thread has a lock that the child would find taken for ever.
    match unsafe { libc::fork() } {
        0 => {
            drop(ours);
            await_start(supervisor, &theirs);
            timers.give();
            let pid = outswap_sys::os::getpid();
            let own = |entry: &CString| meant_for(entry, supervisor, pid).unwrap_or_else(|| entry.clone());
            let envp: Vec<_> = envp.iter().map(own).collect();
            if let SpawnError::Exec(error) = become_program(path, argv, &envp, signals) {
                let _ = (&theirs).write_all(&error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes());
            }
            exit_child()
        }
        pid if pid < 0 => Err(SpawnError::Clone(std::io::Error::last_os_error())),
        pid => {
            drop(theirs);
            let mut job = Job::new(pid);
            // What came before it was there has come to nobody else; what came since it has twice, which is once: its signals are blocked.
            job.send_waiting(signals);
            // One that was killed meanwhile needs not be told.
            let _ = (&ours).write_all(&[GO]);
            job.await_exec(signals, &ours).map_err(SpawnError::Exec)?;
            Ok(job)
        }
    }
}

/// In the child: waits until it may begin.
fn await_start(supervisor: libc::pid_t, mut socket: &UnixStream) {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let is_told = socket.read_exact(&mut [0]).is_ok();
    // Did the supervisor die before it could be watched? (From inside a new PID namespace it is seen as 0.)
    // SAFETY: takes nothing.
    if !is_told || ![supervisor, 0].contains(&unsafe { libc::getppid() }) {
        exit_child();
    }
}

/// Ends the child: what is to be done at an end is its parent's.
fn exit_child() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_for_us_is_meant_for_the_program() {
        for pid in [1, 9, 10, 4_194_304, libc::pid_t::MAX] {
            let found = meant_for(c"LISTEN_PID=77", 77, pid).expect("it names us");
            assert_eq!(found.to_str(), Ok(&*format!("LISTEN_PID={pid}")));
        }
        let is_meant = |entry, pid| meant_for(entry, pid, 1).is_some();
        assert!(is_meant(c"WATCHDOG_PID=5", 5) && is_meant(c"SYSTEMD_EXEC_PID=5", 5));
        let others = [c"LISTEN_PID=78", c"LISTEN_PID=", c"LISTEN_PID", c"LISTEN_PIDS=77", c"MY_LISTEN_PID=77", c"X=77"];
        assert!(!others.iter().any(|entry| is_meant(entry, 77)), "another process, or nothing");
    }
}
