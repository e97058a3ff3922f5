//! Running a program: its output, its end, its memory, and an end to it when it takes too long.
use crate::place::plain_mode;
use crate::sample::{Peak, Sampler, Tree};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A command to be run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Variables added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Directory to run in.
    pub dir: Option<PathBuf>,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether the first process is the supervisor, which is no part of the program.
    pub supervised: bool,
}

impl Run {
    /// A program without arguments.
    pub fn new(program: impl AsRef<OsStr>) -> Run {
        Run {
            command: vec![program.as_ref().into()],
            env: Vec::new(),
            dir: None,
            timeout: Duration::from_secs(120),
            supervised: false,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.command.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Run {
        self.command.extend(args.into_iter().map(|a| a.as_ref().into()));
        self
    }

    /// Adds a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Run {
        self.env.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets the directory.
    pub fn dir(mut self, dir: &Path) -> Run {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the longest time.
    pub fn timeout_s(mut self, seconds: u64) -> Run {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    /// Says that the first process is the supervisor.
    pub fn supervised(mut self) -> Run {
        self.supervised = true;
        self
    }

    /// Starts it.
    pub fn start(&self) -> Running {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(self.env.iter().cloned()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Not the tests' own locale, so that sorting and messages are the same everywhere.
        command.env("LC_ALL", "C");
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        // Who runs the tests in the background, or with `nohup`, has them ignore some signals.
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in (1..32).filter(|s| ![libc::SIGKILL, libc::SIGSTOP].contains(s)) {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.command));
        let pid = child.id() as i32;
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        Running {
            run: self.clone(),
            started: Instant::now(),
            sampler: Some(Sampler::start(pid, !self.supervised)),
            tree: Tree::new(pid),
            pid,
            child,
            stdout: Some(stdout),
            stderr: Some(stderr),
            ended: false,
        }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Outcome {
        self.start().wait()
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// A program that runs. Dropping it ends it and all that it started.
pub struct Running {
    run: Run,
    started: Instant,
    sampler: Option<Sampler>,
    tree: Tree,
    /// The process that was started.
    pub pid: i32,
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    ended: bool,
}

impl Running {
    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_some()
    }

    /// Waits until a file is there, or the program has ended.
    ///
    /// # Panics
    /// After a minute.
    pub fn until_there(&mut self, mark: &Path) {
        let until = Instant::now() + Duration::from_secs(60);
        while !mark.exists() && !self.has_ended() {
            assert!(Instant::now() < until, "{} never came", mark.display());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to the process that was started.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointer; the child is not reaped yet, so the number is still its own.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for the end; past its time, ends the whole tree and panics with what it said.
    pub fn wait(mut self) -> Outcome {
        let mut status = None;
        while status.is_none() && self.started.elapsed() < self.run.timeout {
            status = self.child.try_wait().expect("the child is ours");
            if status.is_none() {
                thread::sleep(Duration::from_millis(3));
            }
        }
        let took = self.started.elapsed();
        let timed_out = status.is_none();
        if timed_out {
            self.end_all();
        }
        self.ended = true;
        let peak = self.sampler.take().expect("taken only here").finish();
        let text = |pipe: Option<JoinHandle<Vec<u8>>>| pipe.and_then(|p| p.join().ok()).unwrap_or_default();
        let stdout = text(self.stdout.take());
        let stderr = text(self.stderr.take());
        let status = status.unwrap_or_else(|| ExitStatus::from_raw(libc::SIGKILL));
        let outcome = Outcome { command: self.run.command.clone(), status, stdout, stderr, peak, took };
        assert!(!timed_out, "ended after {:?}: {}", self.run.timeout, outcome.describe());
        outcome
    }

    fn end_all(&mut self) {
        let pids = self.tree.update();
        // SAFETY: kill takes no pointer; the group and all pids descend from our own child, which is not reaped yet.
        unsafe {
            libc::kill(-self.pid, libc::SIGKILL);
            for pid in pids {
                libc::kill(pid, libc::SIGKILL);
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.end_all();
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was run.
    pub command: Vec<OsString>,
    /// Status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Memory.
    pub peak: Peak,
    /// Time from start to end.
    pub took: Duration,
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(3000)..]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

impl Outcome {
    /// All that helps to see what went wrong.
    pub fn describe(&self) -> String {
        let command: Vec<_> = self.command.iter().map(|w| w.to_string_lossy()).collect();
        let mut command = command.join(" ");
        command.truncate(command.char_indices().nth(300).map_or(command.len(), |c| c.0));
        format!(
            "{command}\n{} after {:?}, {:?}\n--- standard output ---\n{}\n--- standard error ---\n{}",
            self.status,
            self.took,
            self.peak.largest,
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }

    /// Panics unless it exited with 0.
    pub fn succeeded(self) -> Outcome {
        assert!(self.status.success(), "{}", self.describe());
        self
    }

    /// Panics unless it exited with `status`.
    pub fn exited(self, status: i32) -> Outcome {
        assert_eq!(self.status.code(), Some(status), "{}", self.describe());
        self
    }

    /// Panics unless both ended alike and printed the same.
    pub fn same_as(self, plain: &Outcome) -> Outcome {
        assert_eq!(self.status, plain.status, "{}\n=== plainly ===\n{}", self.describe(), plain.describe());
        assert!(
            self.stdout == plain.stdout,
            "another output\n{}\n=== plainly ===\n{}",
            self.describe(),
            plain.describe()
        );
        self
    }

    /// Panics unless the tree stayed in its budget.
    pub fn within(self, ram_bytes: u64) -> Outcome {
        if !plain_mode()
            && let Err(why) = self.peak.within(ram_bytes)
        {
            panic!("{why}\n{}", self.describe());
        }
        self
    }

    /// Panics where a process had more than `ram_bytes` + 5 % + 8 MiB for itself.
    pub fn each_within(self, ram_bytes: u64) -> Outcome {
        if !plain_mode()
            && let Err(why) = self.peak.each_within(ram_bytes)
        {
            panic!("{why}\n{}", self.describe());
        }
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_signals_are_told() {
        let end = Run::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]).run();
        assert_eq!((end.status.code(), end.text().as_str(), end.errors().as_str()), (Some(7), "out\n", "err\n"));
        assert_eq!(Run::new("sh").args(["-c", "kill -TERM $$"]).run().status.signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let end = std::panic::catch_unwind(|| {
            Run::new("sh").args(["-c", "echo $$; setsid sleep 1000 & echo $!; wait"]).timeout_s(1).run()
        });
        let text = *end.expect_err("it does not end alone").downcast::<String>().expect("a formatted message");
        let pids: Vec<i32> = text.lines().filter_map(|l| l.parse().ok()).collect();
        assert_eq!(pids.len(), 2, "{text}");
        for pid in pids {
            let deadline = Instant::now() + Duration::from_secs(10);
            let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) => stat.contains(") Z "),
                Err(_) => true,
            };
            while !gone() {
                assert!(Instant::now() < deadline, "{pid} lives");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    #[should_panic(expected = "another output")]
    fn another_output_is_seen() {
        let a = Run::new("echo").arg("a").run();
        Run::new("echo").arg("b").run().same_as(&a);
    }
}
