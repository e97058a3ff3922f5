//! What comes to `outswap` in moments that are short: signals while the program is started or stopped, and a standard error that nobody reads.
use outswap_e2e::workloads::python;
use outswap_e2e::{Outcome, Run, Tmp, build, plain_mode, setup};
use std::fs;

/// What all scripts begin with. Each is given the command that runs what follows, and a name that a library may make.
const TOOLS: &str = r#"
import fcntl, os, pty, signal, subprocess, sys, time
mark, ours = sys.argv[1], sys.argv[2:]
def until(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, 'it takes too long'
        time.sleep(0.002)
def state_of(pid):
    with open(f'/proc/{pid}/stat') as file:
        return file.read().rsplit(') ', 1)[1].split()[0]
def until_state(pid, letters):
    until(lambda: state_of(pid) in letters)
def in_terminal(words):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(words[0], words)
    return pid, terminal
def ended(pid):
    until(lambda: state_of(pid) == 'Z')
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def full_pipe():
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    try:
        while True: os.write(write, b'x' * 4096)
    except BlockingIOError: pass
    os.set_blocking(write, True)
    return read, write
def rest(read):
    text = b''
    while part := os.read(read, 65536): text += part
    return text.lstrip(b'x').decode()
"#;

/// Runs a script with a library in `outswap` and all that it starts, which waits in a function of that name.
fn beside(slow: &str, script: &str, options: &[&str]) -> Outcome {
    let dir = Tmp::new();
    let ours = setup::outswap().to_string_lossy().into_owned();
    let run = Run::new(python()).args(["-c", &format!("{TOOLS}{script}")]).arg(dir.join("mark"));
    let run = run.args([&ours, "run", "--ram", "32M"]).args(options).arg("--").env("SLOW", slow);
    let library = build::library("tests/programs/slow_start.c");
    run.env("MARK", dir.join("mark")).env("SLOW_LIBRARY", library).timeout_s(60).run().succeeded()
}

#[test]
fn a_stop_while_the_program_is_executed_stops_and_can_be_continued() {
    if plain_mode() {
        return;
    }
    let script = r#"
os.environ['LD_PRELOAD'] = os.environ['SLOW_LIBRARY']
child = subprocess.Popen(ours + ['sh', '-c', 'exit 7'], preexec_fn=os.setpgrp)
until(lambda: os.path.exists(mark))
os.killpg(child.pid, signal.SIGTSTP)
until_state(child.pid, 'T')
os.killpg(child.pid, signal.SIGCONT)
print(ended(child.pid))
"#;
    let end = beside("execve", script, &[]);
    assert_eq!(end.text(), "7\n", "{}", end.describe());
}

#[test]
fn what_a_terminal_sends_just_before_the_program_is_there_comes_to_it() {
    if plain_mode() {
        return;
    }
    let script = r#"
os.environ['LD_PRELOAD'] = os.environ['SLOW_LIBRARY']
pid, terminal = in_terminal(ours + ['sleep', '30'])
until(lambda: os.path.exists(mark))
os.write(terminal, b'\x03')
print(ended(pid))
"#;
    for slow in ["fork", "execve"] {
        let end = beside(slow, script, &[]);
        assert_eq!(end.text(), format!("-{}\n", libc::SIGINT), "{slow}: {}", end.describe());
    }
}

#[test]
fn who_is_continued_as_it_stops_goes_on() {
    if plain_mode() {
        return;
    }
    let script = r#"
os.environ['LD_PRELOAD'] = os.environ['SLOW_LIBRARY']
script = "import sys, time; print('ready', flush=True); time.sleep(0.3); sys.exit(7)"
child = subprocess.Popen(ours + [sys.executable, '-c', script], preexec_fn=os.setpgrp, stdout=subprocess.PIPE)
assert child.stdout.readline() == b'ready\n'
os.killpg(child.pid, signal.SIGTSTP)
print(ended(child.pid))
"#;
    let end = beside("raise", script, &[]);
    assert_eq!(end.text(), "7\n", "{}", end.describe());
}

/// Standard error is full, and there is something to be said: a program that runs unmanaged.
#[test]
fn nobody_waits_for_who_reads_standard_error() {
    if plain_mode() {
        return;
    }
    let unmanaged = build::static_program("tests/programs/unmanaged.c");
    let script = format!(
        r#"
read, write = full_pipe()
script = f"{unmanaged} >&- 2>&-; trap 'exit 9' TERM; : > {{mark}}; while :; do sleep 0.02; done"
child = subprocess.Popen(ours + ['sh', '-c', script], stderr=write)
os.close(write)
until(lambda: os.path.exists(mark))
program = int(open(f'/proc/{{child.pid}}/task/{{child.pid}}/children').read().split()[0])
time.sleep(0.5)
child.terminate()
until(lambda: not os.path.exists(f'/proc/{{program}}'))
# What there is to say is still to be read, or whoever waits for it to be has had enough.
if os.environ['SLOW'] == 'reads':
    print('unmanaged' in rest(read), child.wait(30))
else:
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    print(child.wait(30))
"#,
        unmanaged = unmanaged.display()
    );
    let end = beside("reads", &script, &[]);
    assert_eq!(end.text(), "True 9\n", "{}", end.describe());
    let end = beside("does not read", &script, &[]);
    assert_eq!(end.text(), format!("-{}\n", libc::SIGINT), "{}", end.describe());
}

#[test]
fn who_has_no_reader_for_a_warning_runs() {
    if plain_mode() {
        return;
    }
    let script = r#"
read, write = os.pipe()
os.close(read)
os.environ['OUTSWAP_' + 'NOTHING'] = '1'
print(subprocess.call(ours + ['sh', '-c', 'exit 7'], stderr=write))
"#;
    let end = beside("", script, &[]);
    assert_eq!(end.text(), "7\n", "{}", end.describe());
}

/// SIGCHLD of somebody else's is a signal as others are.
#[test]
fn a_signal_for_children_that_was_sent_comes_to_the_program() {
    if plain_mode() {
        return;
    }
    let script = r#"
waits = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [17])\nprint('ready', flush=True)\nprint(signal.sigwaitinfo([17]).si_signo)"
child = subprocess.Popen(ours + [sys.executable, '-c', waits], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == 'ready\n'
child.send_signal(signal.SIGCHLD)
print(child.stdout.readline().strip(), child.wait())
"#;
    let end = beside("", script, &[]);
    assert_eq!(end.text(), "17 0\n", "{}", end.describe());
}

/// What was there before stays where the program does not start, and nothing new is left.
#[test]
fn a_program_that_cannot_be_executed_costs_no_file() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    // What somebody writes to cannot be executed (ETXTBSY).
    let busy = dir.join("busy");
    fs::copy("/bin/true", &busy).expect("it is there");
    let _written = fs::OpenOptions::new().append(true).open(&busy).expect("ours");
    for words in [["run", "--stats"], ["record", "-o"]] {
        for before in [Some("what was there before"), None] {
            let file = dir.join("file");
            let _ = fs::remove_file(&file);
            before.iter().for_each(|text| fs::write(&file, text).expect("ours"));
            let run = Run::new(setup::outswap()).args(words).arg(&file).args(["--".as_ref(), busy.as_os_str()]);
            let end = run.env("OUTSWAP_RAM", "32M").run().exited(126);
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), before, "{words:?}: {}", end.describe());
        }
    }
}

/// A pipe that nobody reads yet is waited for, by whoever may be interrupted.
#[test]
fn who_waits_for_the_reader_of_a_trace_can_be_interrupted() {
    if plain_mode() {
        return;
    }
    let script = r#"
os.mkfifo(mark)
words = [ours[0], 'record', '-o', mark, '--', 'true']
child = subprocess.Popen(words)
until(lambda: 'wait_for_partner' in open(f'/proc/{child.pid}/wchan').read() or state_of(child.pid) == 'S')
time.sleep(0.3)
child.send_signal(signal.SIGINT)
print(child.wait(30))
# A report of what could be does not open it.
os.environ['OUTSWAP_STATS'] = mark
print(subprocess.call([ours[0], 'doctor'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30))
"#;
    let end = beside("", script, &[]);
    assert_eq!(end.text(), format!("-{}\n0\n", libc::SIGINT), "{}", end.describe());
}
