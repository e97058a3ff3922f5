//! `outswap run` as its user sees it: statuses, signals, streams, environment, statistics. Where both sides are run
//! plainly (`OUTSWAP_E2E_PLAIN=1`), what only Outswap does is not asked for.
use outswap_e2e::workloads::python;
use outswap_e2e::{KIB, MIB, Outcome, Run, Setup, Tmp, plain_mode, setup, stats};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

const RAM_BYTES: u64 = 32 * MIB;

fn shell(script: &str) -> Run {
    Setup::new().managed(RAM_BYTES, "sh").args(["-c", script])
}

/// `outswap run` with these very arguments.
fn run(args: &[&str]) -> Outcome {
    Run::new(setup::outswap()).arg("run").args(args).run()
}

/// One line of ours on standard error, status 125, and no program.
fn refused(args: &[&str]) -> String {
    let dir = Tmp::new();
    let mark = dir.join("started");
    let end = run(&[args, &["touch", &mark.to_string_lossy()]].concat()).exited(125);
    assert!(!mark.exists(), "started all the same: {}", end.describe());
    assert!(end.stdout.is_empty(), "{}", end.describe());
    let errors = end.errors();
    assert!(errors.lines().count() == 1 && errors.starts_with("outswap: "), "not one line of ours: {}", end.describe());
    errors
}

#[test]
fn the_programs_status_is_ours() {
    for status in [0, 1, 7, 124, 125, 126, 127, 200, 255] {
        shell(&format!("exit {status}")).run().exited(status);
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGABRT, libc::SIGBUS, libc::SIGSEGV, libc::SIGUSR1] {
        let end = shell(&format!("ulimit -c 0; kill -{signal} $$")).run();
        let told = end.status.signal() == Some(signal) || end.status.code() == Some(128 + signal);
        assert!(told, "signal {signal}: {}", end.describe());
    }
}

#[test]
fn signals_reach_the_program() {
    for (name, signal) in
        [("TERM", libc::SIGTERM), ("INT", libc::SIGINT), ("HUP", libc::SIGHUP), ("USR1", libc::SIGUSR1)]
    {
        let dir = Tmp::new();
        let ready = dir.join("ready");
        let script = format!("trap 'echo got {name}; exit 9' {name}; : > ready; while :; do sleep 0.01; done");
        let mut running = shell(&script).dir(dir.path()).timeout_s(30).start();
        running.until_there(&ready);
        running.signal(signal);
        let end = running.wait().exited(9);
        assert_eq!(end.text(), format!("got {name}\n"), "{}", end.describe());
    }
}

/// Runs a script of Python, which is given the words of a command that runs what follows it.
fn beside(script: &str) -> Outcome {
    let words: Vec<_> = match plain_mode() {
        true => vec!["env".into()],
        false => [setup::outswap().to_string_lossy().as_ref(), "run", "--ram", "32M", "--strict", "--"]
            .map(String::from)
            .into(),
    };
    Run::new(python()).args(["-c", script]).args(&words).timeout_s(60).run().succeeded()
}

#[test]
fn what_is_set_before_and_sent_with_a_value_is_the_programs() {
    // A timer goes on through an exec.
    let script = r#"
import ctypes, os, signal, subprocess, sys, tempfile
directory = tempfile.TemporaryDirectory()
script = directory.name + '/script'
# What has no first line goes to the shell at the second attempt.
with open(script, 'w') as file:
    file.write('exec sleep 20')
os.chmod(script, 0o755)
for words in [['sleep', '20'], [script] if 'run' in sys.argv else ['sh', script]]:
    child = os.fork()
    if child == 0:
        signal.alarm(1)
        os.execvp(sys.argv[1], sys.argv[1:] + words)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM, (words, status)
waits = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [40])\nprint('ready', flush=True)\nprint(signal.sigwaitinfo([40]).si_code)"
child = subprocess.Popen(sys.argv[1:] + [sys.executable, '-c', waits], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == 'ready\n'
assert ctypes.CDLL(None).sigqueue(child.pid, 40, ctypes.c_void_p(7)) == 0
SI_QUEUE = -1
assert int(child.stdout.readline()) == SI_QUEUE and child.wait() == 0
"#;
    beside(script);
}

#[test]
fn what_the_program_closes_is_closed() {
    let script = r#"
import os, subprocess, sys, socket
read, write = os.pipe()
listens = socket.create_server(('127.0.0.1', 0))
os.set_inheritable(listens.fileno(), True)
child = subprocess.Popen(sys.argv[1:] + ['sh', '-c', f'exec <&- >&- {write}>&- {listens.fileno()}>&-; echo closed >&2; sleep 20'],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[write, listens.fileno()])
os.close(write)
address = listens.getsockname()
listens.close()
assert child.stderr.readline() == b'closed\n'
assert child.stdout.read() == b'' and os.read(read, 1) == b''
try:
    child.stdin.write(b'x'); child.stdin.flush(); print('somebody reads')
except BrokenPipeError: pass
try: socket.create_connection(address); print('somebody listens')
except ConnectionRefusedError: pass
assert child.poll() is None
child.terminate()
child.wait()
"#;
    let end = beside(script);
    assert_eq!(end.text(), "", "{}", end.describe());
}

#[test]
fn a_terminal_that_hangs_up_tells_the_program() {
    let script = r#"
import os, pty, sys, time
read, write = os.pipe()
pid, terminal = pty.fork()
if pid == 0:
    os.set_inheritable(write, True)
    os.execvp(sys.argv[1], sys.argv[1:] + ['sh', '-c', f"trap 'exit 9' HUP; echo ready >&{write}; while :; do sleep 0.05; done"])
os.close(write)
assert os.read(read, 6) == b'ready\n'
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    let end = beside(script);
    assert_eq!(end.text(), "9\n", "{}", end.describe());
}

#[test]
fn a_program_cannot_mark_what_keeps_others_managed() {
    if !setup::is_root() {
        return;
    }
    let script = r#"
import fcntl, os, sys
for fd in range(3, 1100):
    try: fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    except OSError: pass
os.setgid(65534)
os.setuid(65534)
os.execv(sys.executable, [sys.executable, '-c', 'a = [bytes([i % 251]) * 4096 for i in range(20000)]; print(sum(x[7] for x in a))'])
"#;
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let setup = Setup::new().with_binary(setup::readable_binary());
    let setup = if plain_mode() { setup } else { setup.option("--stats", &file.to_string_lossy()) };
    let end = setup.managed(RAM_BYTES, python()).args(["-c", script]).run().succeeded();
    assert_eq!(end.text(), "2493160\n", "{}", end.describe());
    if !plain_mode() {
        assert!(number(&stats::read(&file), "/pages/taken") > 0, "it ran unmanaged: {}", end.describe());
    }
}

#[test]
fn output_is_the_programs_alone() {
    let script = "printf 'one\\0two'; echo three >&2; seq 1 100000";
    let plain = Setup::new().plain("sh").args(["-c", script]).run().succeeded();
    let managed = shell(script).run().same_as(&plain);
    let theirs: Vec<_> = managed.errors().lines().filter(|l| !l.starts_with("outswap: ")).map(String::from).collect();
    assert_eq!(theirs, ["three"], "{}", managed.describe());
}

#[test]
fn input_arguments_and_directory_are_handed_on() {
    let dir = Tmp::new();
    let script = "pwd; printf '%s|' \"$@\"; cat";
    let words = ["-c", script, "sh", "a b", "", "--ram", "-x", "*"];
    let plain = Setup::new().plain("sh").args(words).dir(dir.path()).run().succeeded();
    Setup::new().managed(RAM_BYTES, "sh").args(words).dir(dir.path()).run().same_as(&plain);
    let echoed = shell("printf 'to be read' | { read -r line; echo \"$line\"; }; echo end").run();
    assert_eq!(echoed.text(), "to be read\nend\n");
}

#[test]
fn environment_holds_only_what_is_documented() {
    let script = "import os,json;print(json.dumps(dict(os.environ)))";
    let variables = |run: Run| -> serde_json::Map<String, Value> {
        let end = run.args(["-c", script]).env("OWN_VARIABLE", "own value").run().succeeded();
        serde_json::from_str(&end.text()).expect("python prints JSON")
    };
    let python = outswap_e2e::workloads::python();
    let plain = variables(Setup::new().plain(python));
    let mut managed = variables(Setup::new().managed(RAM_BYTES, python));
    for documented in ["OUTSWAP_CONTROL", "LD_PRELOAD", "OUTSWAP_E2E_MANAGED"] {
        if !plain.contains_key(documented) {
            managed.remove(documented);
        }
    }
    // The shell's own record of what it ran.
    let without = |mut map: serde_json::Map<String, Value>| {
        map.remove("_");
        map
    };
    assert_eq!(without(managed), without(plain));
}

#[test]
fn sockets_and_watchdogs_of_systemd_are_for_the_program() {
    let outswap = if plain_mode() { "env".into() } else { format!("{} run --ram 32M --", setup::outswap().display()) };
    let program = r#"echo "$LISTEN_PID $WATCHDOG_PID $SYSTEMD_EXEC_PID $$ $OTHER_PID"; cat <&3"#;
    let numbers = "LISTEN_FDS=1 LISTEN_PID=$$ WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=$$ OTHER_PID=$$";
    let script = format!("echo $$; {numbers} exec {outswap} sh -c '{program}' 3<<end\nwhat the socket brings\nend\n");
    let end = Run::new("sh").args(["-c", &script]).run().exited(0);
    let text = String::from_utf8_lossy(&end.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    let [ours, numbers, input] = lines[..] else { panic!("{}", end.describe()) };
    let numbers: Vec<_> = numbers.split(' ').collect();
    let program = numbers[3];
    assert_eq!((numbers, input), (vec![program, program, program, program, ours], "what the socket brings"));
    assert!(plain_mode() || program != ours, "the program has a process of its own");
}

#[test]
fn missing_and_not_executable_programs() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let plain_file = dir.join("file");
    fs::write(&plain_file, "text").expect("the directory is ours");
    fs::set_permissions(&plain_file, Permissions::from_mode(0o644)).expect("the file is ours");
    for (program, status) in
        [("no-such-program-anywhere", 127), ("/no/such/path", 127), (&*plain_file.to_string_lossy(), 126), ("/", 126)]
    {
        let end = run(&["--ram", "32M", "--", program]).exited(status);
        assert!(end.stdout.is_empty() && end.errors().starts_with("outswap: "), "{}", end.describe());
    }
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    if plain_mode() {
        return;
    }
    for (option, value) in [
        ("--ram", "lots"),
        ("--ram", "-5M"),
        ("--ram", "0"),
        ("--ram", "64K"),
        ("--ram", "5X"),
        ("--ram", "0%"),
        ("--resident", "some"),
        ("--swap", "tape"),
        ("--swap", ""),
        ("--swap", "compressed:lzma"),
        ("--swap", "file:much"),
        ("--swap-dir", "/no/such/directory"),
        ("--fault-source", "magic"),
        ("--malloc", "other"),
        ("--readahead", "magic"),
        ("--page-cluster", "many"),
    ] {
        refused(&[option, value, "--"]);
    }
}

#[test]
fn static_programs_are_recognised() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let (source, binary) = (dir.join("static.c"), dir.join("static"));
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"static\"); return 3; }\n").expect("ours");
    Run::new("cc").args(["-static", "-o"]).arg(&binary).arg(&source).run().succeeded();
    let binary = binary.to_string_lossy();
    let end = run(&["--ram", "32M", "--", &binary]).exited(125);
    assert!(end.stdout.is_empty() && end.errors().lines().count() == 1, "{}", end.describe());
    assert!(end.errors().contains("--allow-unmanaged"), "{}", end.describe());
    assert_eq!(run(&["--ram", "32M", "--allow-unmanaged", "--", &binary]).exited(3).text(), "static\n");
    // As a child it runs unmanaged, because the program would not work otherwise.
    assert_eq!(run(&["--ram", "32M", "--", "sh", "-c", &format!("{binary}; echo $?")]).exited(0).text(), "static\n3\n");
}

/// What stands in argument registers that a call does not use is left over from earlier, and may be any number.
#[test]
fn unused_registers_of_unmanaged_programs_mean_nothing() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let (source, binary) = (dir.join("left.c"), dir.join("left"));
    let text = r#"
        #include <stdio.h>
        #include <sys/syscall.h>
        static long call(long nr, long a, long b, long c, long d) {
            long r;
            register long r10 __asm__("r10") = d, r8 __asm__("r8") = 0x200012345678, r9 __asm__("r9") = 0x23ffffffffff;
            __asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                             : "rcx", "r11", "memory");
            return r;
        }
        int main(void) {
            long in_range = 0x200012345678, word = 0;
            printf("%d", call(SYS_getpid, in_range, in_range, in_range, in_range) > 0);
            printf(" %ld", call(SYS_getppid, in_range, in_range, in_range, in_range) * 0);
            printf(" %ld", call(SYS_write, 1, (long)"", 0, in_range));
            printf(" %ld", call(SYS_futex, (long)&word, 1, 1, in_range)); /* FUTEX_WAKE */
            printf(" %ld", call(SYS_fcntl, 1, 1, in_range, in_range)); /* F_GETFD */
            printf(" %ld", call(SYS_ioctl, 1, 0x5450, in_range, in_range)); /* FIONCLEX */
            printf(" %ld", call(SYS_lseek, -1, 0, 0, in_range));
            printf(" %d\n", call(SYS_fork, in_range, in_range, in_range, in_range) >= 0);
            return 0;
        }
    "#;
    fs::write(&source, text).expect("ours");
    Run::new("cc").args(["-static", "-o"]).arg(&binary).arg(&source).run().succeeded();
    let end = run(&["--ram", "32M", "--", "sh", "-c", &format!("{} | sort | uniq", binary.to_string_lossy())]);
    assert_eq!(end.exited(0).text(), "1 0 0 0 0 0 -9 1\n");
}

/// Without random addresses, the code of each program that is executed would lie where its parent's filter looks.
#[test]
fn programs_run_where_addresses_are_not_random() {
    if plain_mode() {
        return;
    }
    let outswap = setup::outswap();
    for follow in [None, Some("--no-follow")] {
        let end = Run::new("setarch")
            .arg("-R")
            .arg(&outswap)
            .args(["run", "--ram", "32M"])
            .args(follow)
            .args(["--", "sh", "-c", "sh -c 'trap : TERM; (exit 4); echo $?'; echo $?"])
            .run();
        assert_eq!(end.exited(0).text(), "4\n0\n", "{follow:?}");
    }
}

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

/// Some programs make sure at their start that nothing runs beside them, as Chromium's zygotes do.
#[test]
fn a_program_that_has_hardly_begun_has_one_thread() {
    // A directory of one has three names.
    let script = "@a = (1) x 30000; print ((stat '/proc/self/task')[3])";
    for ram_bytes in [64 * MIB, 96 * MIB, 256 * MIB] {
        let end = Setup::new().managed(ram_bytes, "perl").args(["-e", script]).run().succeeded();
        assert_eq!(end.text(), "3", "{ram_bytes}");
    }
}

#[test]
fn statistics_go_to_standard_output_behind_what_the_program_wrote() {
    if plain_mode() {
        return;
    }
    let (dir, ours) = (Tmp::new(), setup::outswap());
    let file = dir.join("output");
    // To a pipe, and to a file of which the program has written a part.
    let words = |run: Run| run.arg(&ours).args(["run", "--ram", "32M", "--stats", "-", "--", "echo", "hello"]);
    let piped = words(Run::new("env")).run().succeeded().text();
    words(Run::new("sh").args(["-c", "\"$@\" >\"$0\""]).arg(&file)).run().succeeded();
    for text in [piped, std::fs::read_to_string(&file).expect("it was written")] {
        let (first, rest) = text.split_once('\n').expect("a line");
        let stats: Value = serde_json::from_str(rest).expect("JSON, and nothing else");
        assert_eq!((first, number(&stats, "/exit/status")), ("hello", 0), "{text}");
    }
}

#[test]
fn statistics_are_whole_and_add_up() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    // 96 MiB that compress and 16 MiB that do not, all touched twice, and a child with its own.
    let script = "import os\na=bytearray(b'abcdefgh'*(12<<20))\nb=bytearray(os.urandom(16<<20))\n\
                  s=sum(a[::4096])+sum(b[::4096])\nassert s==sum(a[::4096])+sum(b[::4096])\n\
                  p=os.fork()\nif p==0:\n  a[::4096]=bytes(len(a)//4096)\n  os._exit(sum(a[::4096]))\n\
                  assert os.waitpid(p,0)[1]==0\nos._exit(5)";
    let setup = Setup::new().option("--stats", &file.to_string_lossy());
    setup.managed(RAM_BYTES, outswap_e2e::workloads::python()).args(["-c", script]).run().exited(5).within(RAM_BYTES);
    let stats = stats::read(&file);
    assert!(stats["schema"].as_str().is_some_and(|s| s.starts_with("outswap.stats/")), "{stats:#}");
    assert_eq!(stats["managed"], true);
    assert_eq!((number(&stats, "/exit/status"), &stats["exit"]["signal"]), (5, &Value::Null));
    assert_eq!(number(&stats, "/config/ram_bytes"), RAM_BYTES);
    assert_eq!(stats["config"]["swap"].as_array().map(Vec::len), Some(2));
    assert!(number(&stats, "/processes/managed") >= 2 && number(&stats, "/processes/forks") >= 1, "{stats:#}");
    assert!(!stats["fault_sources"].as_array().expect("a list").is_empty());
    let n = |path: &str| number(&stats, path);
    // What different parts of Outswap counted, held against each other and against what the program did. It touched 112 MiB.
    const PROGRAM_PAGES: u64 = 112 * MIB / (4 * KIB);
    assert!(n("/pages/first_touch") >= PROGRAM_PAGES, "{stats:#}");
    // A fault brings at most a folio for the first time.
    assert!(n("/faults/first_touch") >= PROGRAM_PAGES / 16, "{stats:#}");
    // Each page that was taken went back as it was, or out, or was dropped; what went out, and back, was taken before.
    // Hits on pages read ahead are others: those were not taken, but read.
    let left =
        n("/faults/hit") - n("/pages/ahead_hit") + n("/pages/zero") + n("/pages/clean") + n("/stores/memory/pages_out");
    let taken = n("/pages/taken");
    let isolated_max = RAM_BYTES / 8 / (4 * KIB) + 64;
    assert!(left <= taken + 2 * isolated_max, "{left} of {taken} pages taken: {stats:#}");
    assert!(n("/faults/miss") > 0 && n("/faults/total") > n("/faults/first_touch"), "{stats:#}");
    // Calls bring pages in too, whose faults nobody waits for: latencies are those of the program's own touches. First writes of pages
    // that only were to be read, and touches that a stream overtook, took time and brought nothing.
    let brought_nothing = n("/faults/waited") + n("/pages/reused") + n("/counters/pages_streamed_ahead");
    assert!(n("/fault_latency/count") <= n("/faults/total") + brought_nothing, "{stats:#}");
    let buckets = stats["fault_latency"]["buckets"].as_array().expect("a list");
    let counts: u64 = buckets.iter().map(|b| b["count"].as_u64().expect("a number")).sum();
    assert_eq!(counts, n("/fault_latency/count"));
    assert!(counts > 0, "{stats:#}");
    // Most of 112 MiB had to leave 32 MiB, and was read again.
    let (out, back) = (
        n("/stores/memory/pages_out") + n("/stores/file/pages_out"),
        n("/stores/memory/pages_in") + n("/stores/file/pages_in"),
    );
    assert!(out * 4 * KIB > 48 * MIB && back * 4 * KIB > 32 * MIB, "{stats:#}");
    assert!(n("/compression/in_bytes") > n("/compression/out_bytes"), "{stats:#}");
    assert!(stats["compression"]["ratio"].as_f64().is_some_and(|r| r > 1.0), "{stats:#}");
    assert!(n("/memory/tree_peak_bytes") > 8 * MIB && n("/memory/tree_peak_bytes") < 2 * RAM_BYTES, "{stats:#}");
    assert!(n("/memory/summed_peaks/resident_bytes") > 0 && n("/pages/taken") > 0, "{stats:#}");
    assert_eq!((n("/problems/corruptions"), n("/problems/store_errors")), (0, 0));
    assert!(n("/duration_ns") > 1_000_000);
}

#[test]
fn what_a_parent_did_is_not_counted_for_its_children_too() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let script = "import os\na=bytearray(os.urandom(1<<20)*64)\nfor i in range(20):\n  p=os.fork()\n  if p==0: os._exit(a[i<<20])\n  \
                  assert os.WEXITSTATUS(os.waitpid(p,0)[1])==a[i<<20]";
    let setup = Setup::new().option("--stats", &file.to_string_lossy());
    setup.managed(RAM_BYTES, outswap_e2e::workloads::python()).args(["-c", script]).run().succeeded();
    let stats = stats::read(&file);
    let n = |path: &str| number(&stats, path);
    let taken_bytes = n("/pages/taken") * 4 * KIB;
    assert!(n("/processes/forks") == 20 && taken_bytes > 32 * MIB, "{stats:#}");
    // Each page that is taken is written to a store once; from there it may go to the file.
    assert!(n("/compression/in_bytes") <= taken_bytes && n("/compression/in_bytes") > 32 * MIB, "{stats:#}");
    assert!(n("/stores/memory/pages_out") * 4 * KIB <= taken_bytes, "{stats:#}");
}

#[test]
fn summary_goes_to_standard_error() {
    if plain_mode() {
        return;
    }
    let end = run(&["--ram", "32M", "--summary", "--", "echo", "hello"]).exited(0);
    assert_eq!(end.text(), "hello\n");
    assert!(end.errors().lines().count() > 2, "{}", end.describe());
    assert!(end.errors().lines().all(|l| l.starts_with("outswap: ")), "{}", end.describe());
    let quiet = run(&["--ram", "32M", "--", "echo", "hello"]).exited(0);
    assert!(quiet.stderr.is_empty(), "{}", quiet.describe());
}

#[test]
fn flags_are_variables_too() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let command = Run::new(setup::outswap()).args(["run", "true"]).env("OUTSWAP_RAM", "48M");
    command.env("OUTSWAP_STATS", &file).env("OUTSWAP_MALLOC", "mimalloc").run().exited(0);
    let stats = stats::read(&file);
    assert_eq!(number(&stats, "/config/ram_bytes"), 48 * MIB);
    assert_eq!(stats["config"]["malloc"], "mimalloc");
    let bad = Run::new(setup::outswap()).args(["run", "true"]).env("OUTSWAP_RAM", "junk").run().exited(125);
    assert!(bad.errors().contains("OUTSWAP_RAM"), "{}", bad.describe());
}

#[test]
fn sizes_are_taken_as_kubernetes_writes_them_and_the_last_option_wins() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let words = ["--ram", "1Gi", "--swap", "ram", "--ram", "64Mi", "--swap", "compressed:256Mi,file:4Gi", "--stats"];
    run(&[&words[..], &[&file.to_string_lossy(), "--", "true"]].concat()).succeeded();
    let stats = stats::read(&file);
    assert_eq!(number(&stats, "/config/ram_bytes"), 64 * MIB);
    let tiers = ["/config/swap/0/max_bytes", "/config/swap/1/max_bytes"].map(|path| number(&stats, path));
    assert_eq!(tiers, [256 * MIB, 4096 * MIB], "{stats:#}");
}

#[test]
fn one_process_is_one() {
    if plain_mode() {
        return;
    }
    let end = run(&["--ram", "32M", "--summary", "--", "true"]).exited(0);
    assert!(end.errors().lines().any(|line| line.ends_with(", 1 managed process")), "{}", end.describe());
}

#[test]
fn misspelt_variables_are_told_of_in_one_line() {
    if plain_mode() {
        return;
    }
    let command = |words: &[&str]| Run::new(setup::outswap()).args(["run", "--ram", "32M"]).args(words);
    let misspelt = |run: Run| run.env("OUTSWAP_RAMM", "64M").env("OUTSWAP_QUEIT", "").run().exited(0);
    let end = misspelt(command(&["true"]));
    let errors = end.errors();
    assert!(errors.lines().count() == 1 && errors.contains("(did you mean OUTSWAP_RAM?)"), "{}", end.describe());
    assert!(errors.contains("(did you mean OUTSWAP_QUIET?)"), "{}", end.describe());
    assert_eq!(misspelt(command(&["--quiet", "true"])).errors(), "");
    // A run inside a run finds what Outswap set for it.
    let inner = setup::outswap().to_string_lossy().into_owned();
    let limited = format!("ulimit -Sn 512; {inner} run --ram 32M sh -c 'ulimit -Sn 256; env'");
    let end = command(&["--", "sh", "-c", &limited]).run().exited(0);
    assert!(end.stderr.is_empty() && end.text().contains("OUTSWAP_CONTROL="), "{}", end.describe());
}

#[test]
fn a_script_with_carriage_returns_is_told_of() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let script = dir.join("script");
    fs::write(&script, "#!/bin/sh\r\nexit 3\r\n").expect("the directory is ours");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("the file is ours");
    let end = run(&["--ram", "32M", "--", &script.to_string_lossy()]).exited(127);
    let errors = end.errors();
    assert!(errors.lines().count() == 1 && errors.contains("carriage return"), "{}", end.describe());
    assert!(!errors.contains('\r'), "{}", end.describe());
}

/// `outswap` and its libraries where `LD_PRELOAD` cannot name them: a space and a colon end a name there.
#[test]
fn works_where_the_path_has_spaces_and_colons() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let home = dir.join("my programs: all");
    fs::create_dir(&home).expect("the directory is ours");
    let built = setup::outswap();
    for name in ["outswap", "liboutswap_preload.so", "liboutswap_malloc.so"] {
        setup::copy_program(&built.with_file_name(name), &home.join(name));
    }
    let stats = dir.join("stats.json");
    let mut places = Vec::new();
    let mut setups = vec![Setup::new(), Setup::new().option("--malloc", "mimalloc"), Setup::nobody()];
    if setup::is_root() {
        // A program that gives up its rights loads the libraries as somebody else.
        setups.push(Setup::new());
    }
    for (i, mut setup) in setups.into_iter().enumerate() {
        let _ = fs::remove_file(&stats);
        setup.binary = home.join("outswap");
        let setup = setup.option("--stats", &stats.to_string_lossy());
        let script = "echo $LD_PRELOAD; env -i /bin/sh -c '/bin/sh -c \"exit 7\"; exit $?'; exit $?";
        let run = if i < 3 {
            setup.managed(RAM_BYTES, "sh").args(["-c", script])
        } else {
            let other = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script];
            setup.managed(RAM_BYTES, "setpriv").args(other)
        };
        let end = run.run().exited(7);
        assert!(end.stderr.is_empty(), "{}", end.describe());
        places.extend(end.text().trim().split(':').filter_map(|path| Some(Path::new(path).parent()?.to_path_buf())));
        // The shell, `env`, and two more shells.
        let managed = number(&stats::read(&stats), "/processes/managed");
        assert!(managed >= 4, "only {managed} processes were managed: {}", end.describe());
    }
    assert_eq!(places.len(), 5 - usize::from(!setup::is_root()), "{places:?}");
    for place in places {
        let _ = fs::remove_dir_all(place);
    }
}

#[test]
fn a_run_inside_a_run_keeps_to_both_limits() {
    if plain_mode() {
        return;
    }
    let script = "import os\na=bytearray(os.urandom(64<<20))\nfor _ in range(3):\n  s=sum(a[::4096])\nprint(len(a))";
    let (ours, python) = (setup::outswap().to_string_lossy().into_owned(), outswap_e2e::workloads::python());
    for (outer, inner) in [("96M", "32M"), ("32M", "96M")] {
        let dir = Tmp::new();
        let (one, two) = (dir.join("outer.json"), dir.join("inner.json"));
        let (one, two) = (one.to_string_lossy(), two.to_string_lossy());
        let command = ["--ram", outer, "--stats", &one, "--", "sh", "-c", "\"$@\"", "sh", &ours, "run", "--ram", inner];
        let end = run(&[&command[..], &["--stats", &two, "--", python, "-c", script]].concat()).succeeded();
        assert_eq!(end.text(), format!("{}\n", 64 * MIB), "{}", end.describe());
        let [outer, inner] = [&one, &two].map(|path| stats::read(path.as_ref()));
        assert_eq!((&outer["managed"], &inner["managed"]), (&true.into(), &true.into()), "{}", end.describe());
        let peaks = [&outer, &inner].map(|stats| number(stats, "/memory/tree_peak_bytes"));
        assert!(peaks.iter().all(|&p| p > 16 * MIB && p < 32 * MIB + 12 * MIB), "{outer:#} {inner:#}");
        // The outer run counts the shell and the inner `outswap`, and what the inner run manages.
        assert!(number(&outer, "/processes/managed") > number(&inner, "/processes/managed"), "{outer:#}");
    }
}

#[test]
fn what_ended_processes_held_does_not_weigh_on_later_ones() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    // One after the other, each with two thirds of the limit.
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {} -S -c 'x=b\"ab\"*(12<<20)' || exit 1; done",
        outswap_e2e::workloads::python()
    );
    let setup = Setup::new().option("--stats", &file.to_string_lossy());
    setup.managed(48 * MIB, "sh").args(["-c", &script]).run().succeeded();
    let stats = stats::read(&file);
    let n = |path: &str| number(&stats, path);
    assert!(n("/processes/managed") >= 13 && n("/memory/tree_peak_bytes") > 24 * MIB, "{stats:#}");
    assert_eq!((n("/stores/memory/pages_out"), n("/problems/over_budget")), (0, 0), "{stats:#}");
}

#[test]
fn programs_that_are_left_alone_keep_their_own_libraries() {
    let mut setup = Setup::new();
    setup.options.push("--no-follow".into());
    for value in ["libm.so.6", "libm.so.6:libdl.so.2", ""] {
        // The shell is managed, what it starts is not.
        let run = setup.managed(RAM_BYTES, "sh").args(["-c", "env; :"]).env("LD_PRELOAD", value);
        let text = run.run().succeeded().text();
        let found: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("LD_PRELOAD=")).collect();
        assert_eq!(found.concat(), value, "{text}");
        assert!(!text.contains("OUTSWAP_CONTROL="), "{text}");
    }
}

#[test]
fn executing_what_is_no_file_neither_waits_nor_touches_it() {
    let dir = Tmp::new();
    let script = "mkfifo pipe && chmod +x pipe || exit 9; ./pipe; echo $?; /dev/null; echo $?; ./.; echo $?";
    let plain = Setup::new().plain("sh").args(["-c", script]).dir(dir.path()).timeout_s(20).run().succeeded();
    fs::remove_file(dir.join("pipe")).expect("ours");
    shell(script).dir(dir.path()).timeout_s(20).run().same_as(&plain);
    assert_eq!(plain.text(), "126\n126\n126\n");
}

#[test]
fn nothing_is_left_behind() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let script = "x=bytearray(b'12345678'*(8<<20)); import sys; sys.stdout.write(str(sum(x[::4096])))";
    let swap = dir.path().to_string_lossy().into_owned();
    for way in [vec!["--swap", "file"], vec![]] {
        let mut setup = Setup::new().option("--swap-dir", &swap);
        setup.options.extend(way.iter().map(Into::into));
        setup
            .managed(RAM_BYTES, outswap_e2e::workloads::python())
            .args(["-c", script])
            .run()
            .exited(0)
            .within(RAM_BYTES);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0, "files were left in the swap directory");
}
