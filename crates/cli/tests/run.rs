//! `outswap run` as a user meets it, with programs that need no library of ours.
use outswap_control::{Place, Process, Shared, Stat, source, until_nul};
use std::ffi::CStr;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A static program that does what its arguments say.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile sig_atomic_t got;
static void handler(int signal) { got = signal; }
static int blocked(int signal) {
    sigset_t set;
    sigprocmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, signal);
}
static int ignored(int signal) {
    struct sigaction action;
    sigaction(signal, NULL, &action);
    return action.sa_handler == SIG_IGN;
}
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "exit")) return atoi(argv[2]);
    if (!strcmp(what, "die")) { raise(atoi(argv[2])); return 99; }
    if (!strcmp(what, "args")) {
        for (int i = 0; i < argc; i++) printf("%s\n", argv[i]);
        return 0;
    }
    if (!strcmp(what, "inherited")) {
        printf("blocked");
        for (int s = 1; s < 65; s++) if (blocked(s) > 0) printf(" %d", s);
        printf(" ignored");
        for (int s = 1; s < 65; s++) if (s != 32 && s != 33 && ignored(s)) printf(" %d", s);
        printf(" fds");
        for (int fd = 0; fd < 4096; fd++) if (dup2(fd, fd) == fd) printf(" %d", fd);
        printf("\n");
        return 0;
    }
    if (!strcmp(what, "catch")) {
        sigset_t all, none;
        sigfillset(&all);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &all, NULL);
        for (int s = 1; s < 65; s++) signal(s, s == SIGTSTP ? SIG_DFL : handler);
        printf("%d\n", getpid());
        fflush(stdout);
        while (got != SIGTERM) {
            sigsuspend(&none);
            printf("%d\n", got);
            fflush(stdout);
        }
        return 7;
    }
    if (!strcmp(what, "pause")) {
        printf("%d\n", getpid());
        fflush(stdout);
        for (;;) pause();
    }
    return 0;
}
"#;

/// A library that does nothing in a program, and counts as the runtime where `outswap run` tries whether it is loaded.
const LIBRARY: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void start(int argc, char **argv) {
    uint32_t one = 1, source = SOURCE;
    const char *place = getenv("OUTSWAP_CONTROL");
    if (argc != 1 || !place || strcmp(argv[0], "outswap: trial")) return;
    if (pwrite(atoi(place) + 1, &one, sizeof one, STARTED_AT) < 0 || pwrite(atoi(place) + 1, &source, sizeof source, SOURCE_AT) < 0)
        _exit(9);
}
"#;

struct Files {
    dir: PathBuf,
    /// The program, static.
    program: PathBuf,
    /// The program, dynamically linked.
    dynamic: PathBuf,
    /// `outswap` with libraries beside it that do nothing, but say of the program that `outswap run` tries that it is managed.
    outswap: PathBuf,
    /// `outswap` with empty libraries beside it.
    emptied: PathBuf,
}

/// Builds the static program once for all tests of this process.
fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the target directory is writable");
        let source = dir.join("program.c");
        std::fs::write(&source, PROGRAM).expect("writable");
        std::fs::write(dir.join("empty.c"), "").expect("writable");
        let build = |name: &str, flags: &[&str], source: &str| {
            let out = dir.join(name);
            let built = Command::new("cc").args(flags).arg("-o").arg(&out).arg(dir.join(source)).status();
            assert!(built.expect("a C compiler is installed").success());
            out
        };
        let program = build("program", &["-O1", "-static"], "program.c");
        let dynamic = build("dynamic", &["-O1"], "program.c");
        std::fs::write(dir.join("library.c"), LIBRARY).expect("writable");
        let defines = [
            format!("-DSTARTED_AT={}", offset_of!(Shared, processes_started)),
            format!("-DSOURCE_AT={}", offset_of!(Shared, processes) + offset_of!(Process, fault_source)),
            format!("-DSOURCE={}u", source::number("copy")),
        ];
        let flags: Vec<&str> = ["-shared", "-fPIC"].into_iter().chain(defines.iter().map(String::as_str)).collect();
        build("liboutswap_preload.so", &flags, "library.c");
        build("liboutswap_malloc.so", &["-shared", "-fPIC"], "empty.c");
        let outswap = link_outswap(&dir);
        let empty = dir.join("emptied");
        std::fs::create_dir_all(&empty).expect("writable");
        for name in ["emptied/liboutswap_preload.so", "emptied/liboutswap_malloc.so"] {
            build(name, &["-shared", "-fPIC"], "empty.c");
        }
        let emptied = link_outswap(&empty);
        Files { dir, program, dynamic, outswap, emptied }
    })
}

/// Puts `outswap` into a directory of its own. A link where that is allowed: a copy could still be open for writing in
/// another test's child when it is executed.
fn link_outswap(dir: &Path) -> PathBuf {
    let path = dir.join("outswap");
    let from = env!("CARGO_BIN_EXE_outswap");
    let _ = std::fs::remove_file(&path);
    std::fs::hard_link(from, &path)
        .or_else(|_| std::fs::copy(from, &path).map(drop))
        .expect("the directory is writable");
    path
}

fn put(name: &str, text: &str, mode: u32) -> PathBuf {
    let path = files().dir.join(name);
    std::fs::write(&path, text).expect("writable");
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our file");
    path
}

fn outswap() -> Command {
    without_variables(Command::new(env!("CARGO_BIN_EXE_outswap")))
}

fn without_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OUTSWAP_")) {
        command.env_remove(name);
    }
    command
}

fn run(words: &[&str]) -> Output {
    outswap().arg("run").args(words).output().expect("outswap starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the static program without management.
fn run_program(words: &[&str]) -> Output {
    let program = files().program.to_str().expect("UTF-8");
    run(&[&["--allow-unmanaged", "--quiet", "--", program], words].concat())
}

#[track_caller]
fn refused(output: &Output, status: i32, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("outswap: ") && said.contains(words), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let program = files().program.to_str().expect("UTF-8");
    for (flag, value, words) in [
        ("--ram", "lots", "--ram: 'lots' is not a size"),
        ("--ram", "-5M", "--ram: '-5M' is not a size"),
        ("--ram", "0", "no memory"),
        ("--ram", "15M", "too small"),
        ("--ram", "200%", "more than the machine"),
        ("--resident", "1.2.3G", "--resident"),
        ("--swap", "disk", "'disk' is not a tier"),
        ("--swap", "file,compressed", "last tier"),
        ("--swap", "compressed:zstd:99", "levels"),
        ("--fault-source", "magic", "not a fault source"),
        ("--malloc", "jemalloc", "not an allocator"),
        ("--no-such-flag", "x", "--no-such-flag"),
    ] {
        let flag = format!("{flag}={value}");
        refused(&run(&[&flag, "--allow-unmanaged", program, "exit", "0"]), 125, words);
    }
    refused(&run(&[]), 125, "PROGRAM");
    refused(&outswap().output().expect("outswap starts"), 125, "subcommand");
    let output = outswap().args(["run", "true"]).env("OUTSWAP_RAM", "junk").output().expect("outswap starts");
    refused(&output, 125, "OUTSWAP_RAM: 'junk'");
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (words, want) in
        [(&["--version"][..], "outswap 0."), (&["--help"], "doctor"), (&["run", "--help"], "--swap-dir")]
    {
        let output = outswap().args(words).output().expect("outswap starts");
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(want) && output.stderr.is_empty());
    }
}

#[test]
fn not_found_and_not_executable() {
    refused(&run(&["no-such-program-anywhere"]), 127, "not found");
    refused(&run(&["/no/such/program"]), 127, "not found");
    refused(&run(&["/"]), 126, "directory");
    let plain = put("not-executable", "#!/bin/sh\n", 0o644);
    // Execute permission is what counts, even for root.
    refused(&run(&[plain.to_str().expect("UTF-8")]), 126, "permission denied");
    let lost = put("lost-interpreter", "#!/no/such/interpreter\n", 0o755);
    refused(&run(&[lost.to_str().expect("UTF-8")]), 127, "interpreter");
    let broken = put("broken", "\x7fELF\x02\x01\x01", 0o755);
    refused(&run(&[broken.to_str().expect("UTF-8")]), 126, "ELF");
}

#[test]
fn the_swap_directory_must_be_writable() {
    refused(&run(&["--swap-dir", "/no/such/directory", "true"]), 125, "--swap-dir");
    refused(&run(&["--swap-dir", "/proc", "true"]), 125, "--swap-dir");
    let file = put("a-file", "", 0o644);
    refused(&run(&["--swap-dir", file.to_str().expect("UTF-8"), "true"]), 125, "--swap-dir");
}

#[test]
fn a_static_program_is_refused_and_runs_where_allowed() {
    let program = files().program.to_str().expect("UTF-8");
    refused(&run(&[program, "exit", "0"]), 125, "statically linked");
    let script = put("script", &format!("#!{program} args\n"), 0o755);
    refused(&run(&[script.to_str().expect("UTF-8")]), 125, "statically linked");
    let output = run(&["--allow-unmanaged", script.to_str().expect("UTF-8"), "x y", "--ram"]);
    let script = script.to_str().expect("UTF-8");
    assert_eq!(text(&output.stdout), format!("{program}\nargs\n{script}\nx y\n--ram\n"));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("outswap: warning: ") && said.contains("unmanaged") && said.lines().count() == 1,
        "{said}"
    );
    let output = run_program(&["args"]);
    assert!(output.stderr.is_empty() && output.status.success());
    let output = outswap()
        .args(["run", program, "exit", "5"])
        .env("OUTSWAP_ALLOW_UNMANAGED", "1")
        .env("OUTSWAP_QUIET", "1")
        .output();
    assert_eq!(output.expect("outswap starts").status.code(), Some(5));
}

#[test]
fn the_exit_status_is_the_programs() {
    for status in [0, 1, 42, 125, 255] {
        assert_eq!(run_program(&["exit", &status.to_string()]).status.code(), Some(status));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT, libc::SIGPIPE, libc::SIGUSR1, 40] {
        let status = run_program(&["die", &signal.to_string()]).status;
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
    }
}

/// Waits until a process is in a state, as `/proc` names it.
fn wait_for_state(pid: i32, state: char) {
    for _ in 0..2000 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(state)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("process {pid} never was in state {state}");
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: takes no pointers; the callers name processes that they started and have not waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

struct Running {
    outswap: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    program_pid: i32,
}

impl Running {
    fn start(what: &str) -> Running {
        let mut command = outswap();
        command.args(["run", "--allow-unmanaged", "--quiet"]).arg(&files().program).arg(what);
        Running::start_command(command)
    }

    fn start_command(mut command: Command) -> Running {
        let mut outswap = command.process_group(0).stdout(Stdio::piped()).spawn().expect("outswap starts");
        let mut lines = BufReader::new(outswap.stdout.take().expect("piped")).lines();
        let first = lines.next().expect("a line").expect("text");
        Running { outswap, lines, program_pid: first.parse().expect("a process id") }
    }
    fn pid(&self) -> i32 {
        self.outswap.id() as i32
    }
    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }
    fn end(mut self) -> ExitStatus {
        self.outswap.wait().expect("our child")
    }
}

#[test]
fn signals_reach_the_program() {
    let mut running = Running::start("catch");
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGWINCH,
        libc::SIGALRM,
        libc::SIGCONT,
        36,
        libc::SIGTERM,
    ] {
        kill(running.pid(), signal);
        assert_eq!(running.line(), signal.to_string());
    }
    assert_eq!(running.end().code(), Some(7));
}

#[test]
fn a_passed_on_signal_that_kills_the_program_kills_outswap_too() {
    let running = Running::start("pause");
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.end().signal(), Some(libc::SIGTERM));
}

#[test]
fn the_program_dies_with_a_killed_supervisor() {
    let running = Running::start("pause");
    let program = running.program_pid;
    kill(running.pid(), libc::SIGKILL);
    assert_eq!(running.end().signal(), Some(libc::SIGKILL));
    for _ in 0..2000 {
        let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the program lives on");
}

#[test]
fn stopping_and_continuing() {
    let running = Running::start("pause");
    let (outswap, program) = (running.pid(), running.program_pid);
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        kill(outswap, signal);
        wait_for_state(program, 'T');
        wait_for_state(outswap, 'T');
        let mut status = 0;
        // SAFETY: `status` has room for the answer; who has stopped can be waited for again.
        assert_eq!(unsafe { libc::waitpid(outswap, &mut status, libc::WUNTRACED) }, outswap);
        assert!(libc::WIFSTOPPED(status));
        assert_eq!(libc::WSTOPSIG(status), signal, "who waits for it is told what stopped the program");
        kill(outswap, libc::SIGCONT);
        wait_for_state(program, 'S');
        wait_for_state(outswap, 'S');
    }
    // A stop that only the program got must not stop the supervisor for good.
    kill(program, libc::SIGSTOP);
    wait_for_state(program, 'T');
    kill(program, libc::SIGCONT);
    kill(program, libc::SIGUSR1);
    assert_eq!(running.end().signal(), Some(libc::SIGUSR1));
}

#[test]
fn the_program_inherits_what_we_were_given() {
    let plain = |command: &mut Command| text(&command.output().expect("starts").stdout);
    let prepare = |command: &mut Command| {
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
                // Who runs the tests in the background has them ignore some.
                for signal in 1..32 {
                    libc::signal(signal, libc::SIG_DFL);
                }
                for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                Ok(())
            });
        }
    };
    let mut direct = Command::new(&files().program);
    prepare(direct.arg("inherited"));
    let mut under = outswap();
    under.args(["run", "--allow-unmanaged", "--quiet", "--stats", "/dev/null"]).arg(&files().program).arg("inherited");
    prepare(&mut under);
    let (direct, under) = (plain(&mut direct), plain(&mut under));
    assert!(direct.contains("blocked 12 ignored 1 13 17 "), "{direct}");
    assert_eq!(direct, under);
}

#[test]
fn statistics_of_an_unmanaged_run() {
    let program = files().program.to_str().expect("UTF-8");
    let path = put("stats.json", &"x".repeat(100_000), 0o644);
    let words = ["--allow-unmanaged", "--quiet", "--summary", "--ram", "64M", "--stats", path.to_str().expect("UTF-8")];
    let output = run(&[&words, &["--", program, "exit", "3"][..]].concat());
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.lines().all(|l| l.starts_with("outswap: ")) && said.contains("not managed"), "{said}");
    let stats: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("one JSON object");
    assert_eq!(stats["schema"], "outswap.stats/1");
    assert_eq!(stats["managed"], false);
    assert_eq!((&stats["exit"]["status"], &stats["exit"]["signal"]), (&3.into(), &serde_json::Value::Null));
    assert_eq!(stats["config"]["ram_bytes"], 64 << 20);
    assert_eq!(stats["command"], serde_json::json!([program, "exit", "3"]));
    let lost = Path::new("/no/such/directory/stats.json").to_str().expect("UTF-8");
    refused(&run(&["--allow-unmanaged", "--quiet", "--stats", lost, program, "exit", "0"]), 125, "--stats");
}

#[test]
fn closed_standard_streams_stay_closed() {
    let mut command = outswap();
    command.args(["run", "--allow-unmanaged", "--quiet", "--stats"]).arg(files().dir.join("closed.json"));
    command.arg(&files().program).arg("exit").arg("4");
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            (0..3).for_each(|fd| {
                libc::close(fd);
            });
            Ok(())
        });
    }
    assert_eq!(command.status().expect("outswap starts").code(), Some(4));
    let written = std::fs::read(files().dir.join("closed.json")).expect("written");
    assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok());
}

/// How a process ends within a while; it is killed where it does not.
fn end_in_time(mut child: Child) -> Option<ExitStatus> {
    for _ in 0..1000 {
        if let Some(status) = child.try_wait().expect("our child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
    None
}

#[test]
fn where_a_standard_stream_is_closed_signals_are_passed_on() {
    for closed in [&[0][..], &[1], &[0, 1], &[0, 1, 2]] {
        let ready = files().dir.join("ready");
        let _ = std::fs::remove_file(&ready);
        let script = format!(
            "c=; for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] || c=$c$fd; done; echo $c > {0}.new; mv {0}.new {0}; exec sleep 100",
            ready.display()
        );
        let mut command = outswap();
        command.args(["run", "--allow-unmanaged", "--quiet", "--", "sh", "-c", &script]);
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                closed.iter().for_each(|&fd| _ = libc::close(fd));
                Ok(())
            });
        }
        let child = command.spawn().expect("outswap starts");
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = std::fs::read_to_string(&ready).expect("written");
        assert_eq!(found.trim(), closed.iter().map(i32::to_string).collect::<String>(), "closed for the program");
        kill(child.id() as i32, libc::SIGTERM);
        assert_eq!(end_in_time(child).map(|status| status.signal()), Some(Some(libc::SIGTERM)), "{closed:?}");
    }
}

#[test]
fn who_waits_for_a_reader_of_the_statistics_can_be_ended() {
    let pipe = files().dir.join("nobody-reads");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is everywhere").success());
    let mut command = outswap();
    command.args(["run", "--allow-unmanaged", "--quiet", "--stats"]).arg(&pipe).args(["sleep", "100"]);
    let child = command.spawn().expect("outswap starts");
    std::thread::sleep(Duration::from_millis(300));
    kill(child.id() as i32, libc::SIGTERM);
    assert_eq!(end_in_time(child).map(|status| status.signal()), Some(Some(libc::SIGTERM)));
}

#[test]
fn a_library_that_does_nothing_is_told_of_before_the_program_starts() {
    let mut command = without_variables(Command::new(&files().emptied));
    command.args(["run", "--ram", "64M"]).arg(&files().dynamic).args(["exit", "6"]);
    refused(&command.output().expect("outswap starts"), 125, "--allow-unmanaged");
    command.env("OUTSWAP_ALLOW_UNMANAGED", "1");
    let output = command.output().expect("outswap starts");
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("it runs unmanaged"), "{}", text(&output.stderr));
    assert!(command.env("OUTSWAP_QUIET", "1").output().expect("outswap starts").stderr.is_empty());
}

#[test]
fn a_program_that_does_not_load_the_library_is_told_of() {
    // What can be tried loads it, this program does not.
    let mut command = without_variables(Command::new(&files().outswap));
    command.args(["run", "--ram", "64M"]).arg(&files().dynamic).args(["exit", "6"]);
    let output = command.output().expect("outswap starts");
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("ran unmanaged"), "{}", text(&output.stderr));
    assert!(command.env("OUTSWAP_QUIET", "1").output().expect("outswap starts").stderr.is_empty());
}

#[test]
fn without_the_libraries_nothing_starts() {
    let lonely = files().dir.join("lonely");
    std::fs::create_dir_all(&lonely).expect("writable");
    let outswap = link_outswap(&lonely);
    let mut command = without_variables(Command::new(outswap));
    let output = command.arg("run").arg(&files().dynamic).output().expect("outswap starts");
    refused(&output, 125, "liboutswap_preload.so");
}

#[test]
fn the_control_block_carries_the_configuration_and_brings_back_messages_and_counters() {
    let stats = files().dir.join("managed.json");
    let mut command = without_variables(Command::new(&files().outswap));
    command.args(["run", "--ram", "64M", "--resident", "32M", "--swap", "compressed:zstd:3:1G,file", "--swap-dir"]);
    command.args(["/var/tmp", "--fault-source", "copy", "--no-follow", "--stats"]).arg(&stats);
    command.arg(&files().dynamic).arg("pause").env("LD_PRELOAD", "libm.so.6").stderr(Stdio::piped());
    let mut running = Running::start_command(command);
    let (supervisor, program) = (running.pid(), running.program_pid);

    let environment = std::fs::read_to_string(format!("/proc/{program}/environ")).expect("our program");
    let variable = |name: &str| environment.split('\0').find_map(|v| v.strip_prefix(name)?.strip_prefix('='));
    let preload = files().dir.join("liboutswap_preload.so").display().to_string();
    assert_eq!(variable("LD_PRELOAD"), Some(format!("{preload}:libm.so.6").as_str()));
    let value = variable("OUTSWAP_CONTROL").expect("it finds the block");
    let place = Place::parse(value.as_bytes()).expect("a place");
    assert_eq!((place.supervisor_pid, place.supervisor_fd), (supervisor, place.fd));
    assert!(place.fd >= 100);
    for fd in [place.fd, place.fd + 1] {
        let link = |pid: i32| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).expect("it is inherited");
        assert_eq!(link(program), link(supervisor));
    }

    let control = place.open().expect("as the supervisor has it");
    let (config, control) = (control.config, control.shared);
    assert_eq!(config.supervisor_pid, supervisor);
    assert_eq!((config.ram_bytes, config.resident_bytes), (64 << 20, 32 << 20));
    assert_eq!((config.fault_source, config.no_follow, config.keep_malloc), (source::number("copy"), 1, 1));
    let tiers = config.tiers.map(|t| (until_nul(&t.kind).to_vec(), t.parameters, t.max_bytes));
    assert_eq!(tiers[0], (b"compressed".to_vec(), [1, 3], 1 << 30));
    assert_eq!(tiers[1], (b"file".to_vec(), [0, 0], 0));
    assert!(tiers[2..].iter().all(|tier| tier.0.is_empty()));
    assert!(config.swap_dir.starts_with(b"/var/tmp\0"));
    assert_eq!(CStr::from_bytes_until_nul(&config.preload).expect("NUL").to_str(), Ok(preload.as_str()));

    // As the library in the program would.
    control.post(b"warning: something happened");
    control.processes_started.store(1, Relaxed);
    control.records_used.store(1, Relaxed);
    let record = &control.processes[0];
    record.pid.store(program, Relaxed);
    record.fault_source.store(source::number("copy"), Relaxed);
    record.counters.add(Stat::FaultMiss, 5);
    let mut said = BufReader::new(running.outswap.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "outswap: warning: something happened\n", "messages come while the program runs");
    control.post(b"warning: \x07the end");
    kill(supervisor, libc::SIGTERM);
    assert_eq!(running.end().signal(), Some(libc::SIGTERM));
    let rest = said.lines().map(|l| l.expect("text")).collect::<Vec<_>>();
    assert_eq!(rest, ["outswap: warning: ?the end"]);
    let stats: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&stats).expect("written")).expect("one JSON object");
    assert_eq!((&stats["managed"], &stats["faults"]["miss"]), (&true.into(), &5.into()));
    assert_eq!((&stats["exit"]["signal"], &stats["fault_sources"][0]), (&15.into(), &"copy".into()));
    assert_eq!(stats["config"]["swap"][0]["level"], 3);
    assert_eq!(stats["problems"]["warnings"], 2, "those that came at the end, too");
}
