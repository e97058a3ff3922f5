//! The machine is as before, however a benchmark with kernel swap ends.
//!
//! Needs root, zram and a memory cgroup. Where the machine lacks one of them the test counts as ignored, not as passed; where it
//! has them all, a benchmark that does not start is a failure.
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outswap-bench"));
    command.args(["touch", "--only=kernel", "--size=64M", "--resident=16M", "--threads=1", "--workloads=rand-write"]);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A benchmark of programs, here with a program that every machine has.
fn programs_bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outswap-bench"));
    command.args(["programs", "--only=kernel", "--quick", "--programs=sort", "--percent=50", "--runs=100000"]);
    command.arg("--allow-other-swap").stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// An experiment of the kernel's side alone, which does not end by itself.
fn experiment(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outswap-bench"));
    command.arg(name).args(["--only=kernel", "--allow-other-swap", "--runs=100000"]).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn redis_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
}

/// What is swapped out to this device; none where it is not swapped to.
fn used_kib(device: &str) -> Option<u64> {
    let swaps = fs::read_to_string("/proc/swaps").expect("every Linux has /proc/swaps");
    let line = swaps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|line| line[0] == device)?;
    Some(line[3].parse().expect("a number of KiB"))
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: a process that this test started, directly or not, and that has not been waited for.
    let sent = unsafe { libc::kill(pid as libc::pid_t, signal) };
    assert_eq!(sent, 0, "kill {pid}");
}

/// A benchmark whose worker runs now, in more memory than it may have.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    device: String,
    cgroup: PathBuf,
    guardian: u32,
    worker: u32,
}

impl Running {
    /// Starts one of the touching worker, and waits until it swaps.
    fn start() -> Running {
        Running::of(&mut bench(&["--allow-other-swap", "--runs=100000"]))
    }

    fn of(command: &mut Command) -> Running {
        let mut child = command.spawn().expect("the benchmark was built");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("standard error is text");
        let Some(rest) = line.strip_prefix("outswap-bench: kernel swap on ") else {
            child.wait().expect("it is our child");
            panic!("it does not start: {line}");
        };
        let (device, rest) = rest.split_once(", memory cgroup ").expect("the line names the group");
        let (cgroup, guardian) = rest.trim().split_once(", guardian ").expect("the line names the guardian");
        let cgroup = PathBuf::from(cgroup);
        let worker = || {
            let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            procs.lines().next().and_then(|pid| pid.parse().ok())
        };
        assert!(used_kib(device).is_some());
        eventually("a worker runs in the group", || worker().is_some());
        eventually("pages are in swap", || used_kib(device) > Some(4096));
        Running {
            worker: worker().unwrap_or(0),
            device: device.to_owned(),
            guardian: guardian.parse().expect("a process id"),
            cgroup,
            child,
            stderr,
        }
    }

    fn assert_gone(mut self) {
        eventually("the benchmark ends", || self.child.try_wait().expect("it is our child").is_some());
        eventually("swap is off", || used_kib(&self.device).is_none());
        eventually("the device is gone", || !Path::new(&self.device.replace("/dev/", "/sys/block/")).exists());
        eventually("the group is gone", || !self.cgroup.exists());
        eventually("the worker is gone", || !Path::new(&format!("/proc/{}", self.worker)).exists());
        let rest: Vec<String> =
            self.stderr.by_ref().lines().map(|line| line.expect("standard error is text")).collect();
        assert!(!rest.iter().any(|line| line.contains("could not be taken down")), "{rest:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails half-way must not leave the benchmark running; one that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What this machine lacks, by a look of the test's own.
fn lacks() -> Option<&'static str> {
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_zram = Path::new("/sys/class/zram-control/hot_add").exists();
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let has_cgroup = v2.split_whitespace().any(|c| c == "memory") || Path::new("/sys/fs/cgroup/memory").exists();
    [(is_root, "root"), (has_zram, "zram"), (has_cgroup, "a memory cgroup")]
        .into_iter()
        .find_map(|(has, what)| (!has).then_some(what))
}

fn main() -> std::process::ExitCode {
    let lacks = lacks();
    if let Some(what) = lacks {
        println!("this machine has no {what}");
    }
    let test = || -> Result<(), Failed> {
        nothing_of_kernel_swap_is_left_however_the_benchmark_ends();
        Ok(())
    };
    let trial = Trial::test("nothing_of_kernel_swap_is_left_however_the_benchmark_ends", test);
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(lacks.is_some())]).exit_code()
}

fn nothing_of_kernel_swap_is_left_however_the_benchmark_ends() {
    let running = Running::start();
    // While it runs, a second one sees the first one's swap and refuses to start.
    let second = bench(&[]).output().expect("the benchmark was built");
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("other swap is on"));

    kill(running.child.id(), libc::SIGKILL);
    running.assert_gone();

    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let running = Running::start();
        kill(running.child.id(), signal);
        running.assert_gone();
    }

    // The same for programs, which have a folder as well.
    let running = Running::of(&mut programs_bench());
    let folder = std::env::temp_dir().join(format!("outswap-bench-programs-{}", running.child.id()));
    assert!(folder.exists());
    kill(running.child.id(), libc::SIGINT);
    running.assert_gone();
    assert!(!folder.exists());

    // And for experiments, of which one has a server and a folder of its own.
    let running =
        Running::of(&mut experiment("reuse", &["--size=64M", "--resident=16M", "--passes=100", "--writes=50"]));
    kill(running.child.id(), libc::SIGINT);
    running.assert_gone();
    if redis_is_there() {
        let running = Running::of(&mut experiment("redis", &["--keys=60000", "--requests=20000"]));
        let folder = std::env::temp_dir().join(format!("outswap-bench-redis-{}", running.child.id()));
        assert!(folder.exists());
        kill(running.child.id(), libc::SIGTERM);
        running.assert_gone();
        assert!(!folder.exists());
    }

    // The guardian is killed: the benchmark does its work.
    let running = Running::start();
    kill(running.guardian, libc::SIGKILL);
    kill(running.child.id(), libc::SIGTERM);
    running.assert_gone();

    // A normal end: its line on standard error names what must be gone.
    let output = bench(&["--allow-other-swap", "--runs=1"]).output().expect("the benchmark was built");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let (_, rest) = stderr.split_once("kernel swap on ").expect("it says where it swaps to");
    let (device, rest) = rest.split_once(", memory cgroup ").expect("the line names the group");
    let (cgroup, _) = rest.split_once(',').expect("the line names the guardian");
    assert_eq!(used_kib(device), None);
    assert!(!Path::new(&device.replace("/dev/", "/sys/block/")).exists());
    assert!(!Path::new(cgroup).exists());
}
