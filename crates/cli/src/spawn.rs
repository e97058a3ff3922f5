//! Starts the program with as little between it and us as can be.
use crate::libraries;
use crate::supervise::Signals;
use outswap_control::{self as control, PLACE_BYTES, Place};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Bytes of stack for the few calls between clone and exec.
const STACK_BYTES: usize = 64 << 10;

struct Start<'a> {
    path: &'a CStr,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    signals: &'a Signals,
    supervisor: libc::pid_t,
    errno: AtomicI32,
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
pub fn spawn(path: &CStr, argv: &[CString], envp: &[CString], signals: &Signals) -> Result<libc::pid_t, SpawnError> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    let start = Start {
        path,
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        signals,
        supervisor: outswap_sys::os::getpid(),
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
        start.signals.restore_for_program();
        libc::execve(start.path.as_ptr(), start.argv, start.envp);
        start.errno.store(*libc::__errno_location(), Relaxed);
        libc::_exit(0)
    }
}
