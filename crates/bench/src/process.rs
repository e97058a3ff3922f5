//! Starting a measured program, waiting for it, and stopping when a signal says so.
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::units::Bytes;

/// The signals that end a benchmark in order.
const SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Why a run gave no result.
#[derive(Debug)]
pub enum Failure {
    /// This signal asked us to end.
    Interrupted(libc::c_int),
    /// The program could not be run, or failed.
    Failed(String),
}

/// What a run gave.
pub struct Outcome {
    /// Its standard output.
    pub stdout: String,
    /// From before it was started until its end was known.
    pub wall: Duration,
}

/// A program that was started, and all that stays in its process group. What still runs when this is dropped is killed.
pub struct Running {
    child: Child,
    ended: bool,
    name: String,
    start: Instant,
}

impl Running {
    /// Its process, and the number of its group.
    pub fn id(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// What it prints, where that was piped and has not been taken before.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Kills what runs in the group, and waits for the program itself.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.ended {
            // SAFETY: no memory is involved. The group bears the number of a child that nobody has waited for yet, so
            // the number is still ours, and one that has ended keeps its status.
            unsafe { libc::kill(-self.id(), libc::SIGKILL) };
            self.ended = true;
        }
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = self.end();
    }
}

fn signal_set() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before anything reads it; the signals are valid ones.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in SIGNALS {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks the ending signals in this thread and in those it starts.
pub fn block_signals() {
    // SAFETY: the set is valid; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signal_set(), std::ptr::null_mut()) };
}

fn unblock_signals() {
    // SAFETY: the set is valid; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &signal_set(), std::ptr::null_mut()) };
}

/// The ending signals, held back so that a benchmark stops where it can clean up.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Holds them back from now on.
    pub fn hold() -> io::Result<Signals> {
        block_signals();
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &signal_set(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd })
    }

    /// The signal that has come, if one has.
    pub fn pending(&self) -> Option<libc::c_int> {
        // SAFETY: all-zero bytes are a valid value of this plain structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: the buffer is as long as it is said to be.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        (got == size as isize).then_some(info.ssi_signo as libc::c_int)
    }

    /// Starts `command`, in a process group of its own and in the memory cgroup whose `cgroup.procs` is given.
    pub fn start(&self, command: &mut Command, cgroup: Option<&File>) -> Result<Running, Failure> {
        if let Some(signal) = self.pending() {
            return Err(Failure::Interrupted(signal));
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let procs = cgroup.map(|file| file.as_raw_fd());
        let prepare = move || {
            // SAFETY: only calls that are async-signal-safe, on a descriptor that is open until the exec.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                unblock_signals();
                match procs {
                    Some(fd) if libc::write(fd, b"0".as_ptr().cast(), 1) != 1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            }
        };
        command.process_group(0);
        // SAFETY: see `prepare`: it allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let start = Instant::now();
        let child = command.spawn().map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
        Ok(Running { child, ended: false, name, start })
    }

    /// Waits for the end of a program, and gives the time since its start. One that has not ended at `limit`, or when a
    /// signal asks us to end, is killed.
    pub fn finish(&self, running: &mut Running, limit: Duration) -> Result<Duration, Failure> {
        let waited = self.wait(&running.child, limit);
        let status = running.end().map_err(|error| Failure::Failed(error.to_string()))?;
        let wall = running.start.elapsed();
        waited?;
        let name = &running.name;
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(wall),
            (Some(code), _) => Err(Failure::Failed(format!("{name} ended with status {code}"))),
            (_, signal) => Err(Failure::Failed(format!("{name} was ended by signal {}", signal.unwrap_or(0)))),
        }
    }

    /// Starts `command` (in the memory cgroup whose `cgroup.procs` is given), waits for its end, and gives what it
    /// printed. A program that runs longer than `limit` is killed.
    pub fn run(&self, command: &mut Command, cgroup: Option<&File>, limit: Duration) -> Result<Outcome, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = self.start(command, cgroup)?;
        let wall = self.finish(&mut running, limit)?;
        Ok(Outcome { stdout: drain(&mut running.child), wall })
    }

    /// Touches `size` bytes in a process that ends again, so that what runs next is given memory in the same state.
    ///
    /// In a virtual machine, memory that the guest has not used before costs a fault in the host as well, several
    /// times what is measured here; whoever runs first would pay for it.
    pub fn warm_memory(&self, exe: &Path, size: Bytes) -> Result<(), Failure> {
        let mut command = Command::new(exe);
        command.args(["touch-worker", "fill"]).arg(size.0.to_string()).arg("1");
        self.run(&mut command, None, Duration::from_secs(600)).map(|_| ())
    }

    fn wait(&self, child: &Child, limit: Duration) -> Result<(), Failure> {
        // SAFETY: our own child, not yet waited for, so the number is still its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
        if fd < 0 {
            return Err(Failure::Failed(format!("pidfd_open: {}", io::Error::last_os_error())));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        let watch = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let deadline = Instant::now() + limit;
        loop {
            let mut fds = [watch(&pidfd), watch(&self.fd)];
            let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis().min(i32::MAX as u128);
            // SAFETY: two valid entries.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, left_ms as libc::c_int) };
            if fds[0].revents != 0 && ready > 0 {
                return Ok(());
            }
            if let Some(signal) = self.pending() {
                return Err(Failure::Interrupted(signal));
            }
            if ready == 0 {
                return Err(Failure::Failed(format!("no end after {} s", limit.as_secs())));
            }
        }
    }
}

/// What an ended child printed. Does not wait for others that may still hold its standard output.
fn drain(child: &mut Child) -> String {
    let mut bytes = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        // SAFETY: an open descriptor; only its own flag changes.
        unsafe { libc::fcntl(stdout.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        // What was read before "would block" is all there is.
        let _ = stdout.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Ends this process by `signal`, as if it had never been held back.
pub fn die_by(signal: libc::c_int) -> ! {
    // SAFETY: default action and this process only.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    unblock_signals();
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(result: Result<Outcome, Failure>) -> String {
        match result {
            Err(Failure::Failed(text)) => text,
            Err(Failure::Interrupted(signal)) => panic!("signal {signal} came from nowhere"),
            Ok(outcome) => panic!("ended well, with {:?}", outcome.stdout),
        }
    }

    #[test]
    fn output_status_signal_and_overrun_are_told_apart() {
        let signals = Signals::hold().expect("signalfd is in every kernel we run on");
        let run = |script: &str, limit| signals.run(Command::new("sh").args(["-c", script]), None, limit);
        let minute = Duration::from_secs(60);
        assert_eq!(run("echo hello", minute).expect("sh runs").stdout, "hello\n");
        assert_eq!(failure(run("exit 3", minute)), "sh ended with status 3");
        assert_eq!(failure(run("kill -9 $$", minute)), "sh was ended by signal 9");
        assert_eq!(failure(run("exec sleep 600", Duration::from_millis(20))), "no end after 0 s");
        let missing = signals.run(&mut Command::new("/nonexistent/program"), None, minute);
        assert!(failure(missing).starts_with("/nonexistent/program: "));
    }
}
