//! `outswap run --keep-pid`: the process that was started is the program, and the supervisor is beside it.
use outswap_e2e::workloads::python;
use outswap_e2e::{MIB, Outcome, Run, Running, Tmp, build, plain_mode, setup, stats};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

/// 64 MiB of noise, and a digest of it after each line that is read.
const NOISE: &str = "import hashlib,os,random,sys\nrandom.seed(7)\na=bytearray(random.randbytes(64<<20))\n\
    d=hashlib.sha256(a).hexdigest()\nprint(os.getpid(),flush=True)\n\
    for _ in sys.argv[1:]:\n  open(_).read()\n  print(hashlib.sha256(a).hexdigest()==d,flush=True)\n";

fn keep(args: &[&str]) -> Run {
    Run::new(setup::outswap()).args(["run", "--keep-pid", "--ram", "32M"]).args(args).timeout_s(60)
}

/// The supervisor of a program, as that has it in its environment.
fn supervisor(program: &Running) -> i32 {
    for _ in 0..2000 {
        let environment = fs::read(format!("/proc/{}/environ", program.pid)).unwrap_or_default();
        let texts = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let number = |text: &str| text.split_once(":/proc/")?.1.split_once("/fd/")?.0.parse().ok();
        if let Some(supervisor) = texts.filter(|text| text.starts_with("OUTSWAP_")).find_map(|text| number(&text)) {
            return supervisor;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("no supervisor beside {}", program.pid);
}

fn lines(end: &Outcome) -> Vec<String> {
    end.text().lines().map(str::to_owned).collect()
}

#[test]
fn the_process_that_was_started_is_the_program() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let program = r#"echo $$ $PPID $LISTEN_PID; cat <&3; exit 5"#;
    let script = format!(
        "echo $$ $PPID $$; LISTEN_PID=$$ exec {} run --keep-pid --ram 32M --stats {} -- sh -c '{program}' 3<<end\nwhat the socket brings\nend\n",
        setup::outswap().display(),
        file.display()
    );
    let end = Run::new("sh").args(["-c", &script]).run().exited(5);
    let lines = lines(&end);
    assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "what the socket brings", "{}", end.describe());
    assert!(end.stderr.is_empty(), "{}", end.describe());
    // The supervisor has standard error as long as it has something to say, so it has ended now.
    let stats = stats::read(&file);
    let found = ["/managed", "/exit/status", "/exit/signal", "/processes/managed"].map(|at| stats.pointer(at).cloned());
    assert_eq!(found, [Some(true.into()), Some(5.into()), Some(serde_json::Value::Null), Some(2.into())], "{stats:#}");
}

#[test]
fn the_program_has_no_child_to_wait_for() {
    if plain_mode() {
        return;
    }
    let script = "import os\ntry:\n  print(os.waitpid(-1,0))\nexcept ChildProcessError:\n  print('none')\n\
        if os.fork()==0: os._exit(9)\np,s=os.wait()\nprint(s>>8)\ntry:\n  print(os.waitid(os.P_ALL,0,os.WEXITED))\n\
        except ChildProcessError:\n  print('none')\n";
    let end = keep(&["--", python(), "-c", script]).run().succeeded();
    assert_eq!(lines(&end), ["none", "9", "none"], "{}", end.describe());
    let end = keep(&["--", "bash", "-c", "sleep 0.05 & wait; wait -n; echo $?; jobs; (exit 4); echo $?"]).run();
    assert_eq!(lines(&end.succeeded()), ["127", "4"]);
}

/// Of the two that make the supervisor each may be long in saying so.
#[test]
fn the_program_knows_its_supervisor_whoever_is_first() {
    if plain_mode() {
        return;
    }
    let slow = build::library("tests/programs/slow_parent.c");
    let program = keep(&["--", "sleep", "100"]).env("LD_PRELOAD", slow).start();
    let known = fs::read_link(format!("/proc/{}/exe", supervisor(&program)));
    program.signal(libc::SIGKILL);
    program.wait();
    assert_eq!(known.ok().and_then(|path| path.canonicalize().ok()), setup::outswap().canonicalize().ok());
}

/// Tracers wait for whatever there is (`__WALL`), until there is nothing.
#[test]
fn the_program_has_no_child_of_any_kind() {
    if plain_mode() {
        return;
    }
    let wall = 0x4000_0000;
    let script = format!(
        "import os\nif os.fork()==0: os._exit(3)\ntry:\n  while True: print(os.waitpid(-1,{wall})[1]>>8)\n\
         except ChildProcessError: print('none')\nprint(open('/proc/thread-self/children').read())\n"
    );
    let end = keep(&["--", python(), "-c", &script]).run().succeeded();
    assert_eq!(lines(&end), ["3", "none", ""], "{}", end.describe());
    // Whom orphans come to has it as a child that can be told from others.
    let script = "import ctypes,os,sys\nctypes.CDLL(None).prctl(36,1)\nos.execv(sys.argv[1],sys.argv[1:])";
    let program = "import os\ntry:\n  print(os.waitpid(-1,0))\nexcept ChildProcessError:\n  print('none')\n";
    let ours = setup::outswap().to_string_lossy().into_owned();
    let end = Run::new(python()).args([
        "-c",
        script,
        &ours,
        "run",
        "--keep-pid",
        "--ram",
        "32M",
        "--",
        python(),
        "-c",
        program,
    ]);
    assert_eq!(lines(&end.timeout_s(60).run().succeeded()), ["none"]);
}

#[test]
fn signals_are_the_programs() {
    if plain_mode() {
        return;
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR1] {
        let dir = Tmp::new();
        let (ready, file) = (dir.join("ready"), dir.join("stats.json"));
        let options = ["--stats", &*file.to_string_lossy(), "--summary", "--"];
        let script = format!(": > {}; exec sleep 100", ready.display());
        let mut program = keep(&[&options[..], &["sh", "-c", &script]].concat()).start();
        program.until_there(&ready);
        program.signal(signal);
        let end = program.wait();
        assert_eq!(end.status.signal(), Some(signal), "{}", end.describe());
        assert!(end.errors().contains("outswap: memory "), "{}", end.describe());
        assert_eq!(stats::read(&file)["exit"]["signal"], signal, "{}", end.describe());
    }
}

#[test]
fn what_its_group_is_sent_does_not_end_the_supervisor() {
    if plain_mode() {
        return;
    }
    let script = "trap 'echo got; exit 3' INT; kill -INT 0; sleep 1";
    let end = Run::new("setsid").arg("-w").arg(setup::outswap());
    let end = end.args(["run", "--keep-pid", "--ram", "32M", "--summary", "--", "sh", "-c", script]).run().exited(3);
    assert_eq!(lines(&end), ["got"]);
    assert!(end.errors().contains("outswap: memory "), "{}", end.describe());
}

#[test]
fn the_program_goes_on_without_its_supervisor() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let [first, second] = ["first", "second"].map(|name| {
        let path = dir.join(name);
        Run::new("mkfifo").arg(&path).run().succeeded();
        path
    });
    let program = keep(&["--", python(), "-c", NOISE, &first.to_string_lossy(), &second.to_string_lossy()]).start();
    let supervisor = supervisor(&program);
    fs::write(&first, "on").expect("the program reads it");
    // SAFETY: takes no pointer. It lives as long as the program does.
    assert_eq!(unsafe { libc::kill(supervisor, libc::SIGKILL) }, 0);
    fs::write(&second, "on").expect("the program reads it");
    let pid = program.pid.to_string();
    let end = program.wait().succeeded().within(32 * MIB);
    assert_eq!(lines(&end), [pid.as_str(), "True", "True"]);
}

#[test]
fn what_cannot_be_executed_is_told_as_ever_and_leaves_nothing_behind() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let lost = dir.join("lost");
    fs::write(&lost, "#!/no/such/interpreter\n").expect("ours");
    // What is not ELF and no script is the shell's, as `execvp` has it.
    let plain = dir.join("plain");
    fs::write(&plain, "echo $$; exit 6\n").expect("ours");
    for program in [&lost, &plain] {
        fs::set_permissions(program, Permissions::from_mode(0o755)).expect("ours");
    }
    for (options, program, status, text) in [
        (&[][..], "no-such-program-anywhere", 127, "not found"),
        (&[], &*lost.to_string_lossy(), 127, "interpreter"),
        (&[], "/", 126, "directory"),
        (&["--stats", "/no/such/directory/file"], "true", 125, "--stats"),
    ] {
        let end = keep(&[options, &["--", program]].concat()).run().exited(status);
        let told = end.errors();
        assert!(told.lines().count() == 1 && told.contains(text) && end.stdout.is_empty(), "{}", end.describe());
    }
    let program = keep(&["--", &plain.to_string_lossy()]).start();
    let pid = program.pid.to_string();
    assert_eq!(lines(&program.wait().exited(6)), [pid]);
}

#[test]
fn a_run_inside_a_run_keeps_its_number() {
    if plain_mode() {
        return;
    }
    let ours = setup::outswap().to_string_lossy().into_owned();
    for (outer, inner) in [(true, true), (true, false), (false, true)] {
        let option = |keeps: bool| keeps.then_some("--keep-pid");
        let run = Run::new(&ours).arg("run").args(option(outer)).args(["--ram", "32M", "--", &ours, "run"]);
        let run = run.args(option(inner)).args(["--ram", "96M", "--", python(), "-c", NOISE]).timeout_s(60);
        let program = run.start();
        let pid = program.pid.to_string();
        let end = program.wait().succeeded();
        assert_eq!(lines(&end) == [pid], outer && inner, "{}", end.describe());
        assert!(end.stderr.is_empty(), "{}", end.describe());
    }
}

/// The end of a container's first process is the end of all others.
#[test]
fn the_first_process_of_a_container_cannot_promise_a_report() {
    if plain_mode() || !setup::is_root() {
        return;
    }
    let first = |options: &[&str]| {
        let run = Run::new("unshare").args(["--pid", "--fork", "--mount-proc"]).arg(setup::outswap());
        run.args(["run", "--keep-pid", "--ram", "32M"]).args(options).args(["--", "sh", "-c", "echo $$; exit 4"]).run()
    };
    assert_eq!(lines(&first(&[]).exited(4)), ["1"]);
    let end = first(&["--summary"]).exited(125);
    assert!(end.stdout.is_empty() && end.errors().contains("first process"), "{}", end.describe());
}

/// The kernel tells who may not trace a process that its status is 0, until its parent has waited for it.
#[test]
fn the_status_of_another_users_program_is_right_or_unknown() {
    if plain_mode() || !setup::is_root() {
        return;
    }
    let dir = Tmp::new();
    for (waits_s, is_told) in [("0.2", true), ("3", false)] {
        let file = dir.join(waits_s);
        let command = format!(
            "import subprocess, sys, time\nchild = subprocess.Popen(sys.argv[1:])\ntime.sleep({waits_s})\nprint(child.wait())"
        );
        let run = Run::new("setpriv").args(["--bounding-set", "-sys_ptrace", python(), "-c", &command]);
        let run = run.arg(setup::outswap()).args(["run", "--keep-pid", "--ram", "32M", "--stats"]).arg(&file);
        let run = run.args(["--", "setpriv", "--reuid", "12345", "--clear-groups", "sh", "-c", "exit 3"]);
        let end = run.timeout_s(60).run().succeeded();
        assert_eq!(end.text(), "3\n", "{}", end.describe());
        let exit = stats::read(&file)["exit"].clone();
        let is_known = exit["status"] == 3 && exit["signal"].is_null();
        assert!(is_known && is_told || exit["status"].is_null() && exit["signal"].is_null(), "{waits_s}: {exit}");
    }
}
