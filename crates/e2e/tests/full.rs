//! Stores that are full, with what no compressor makes smaller: how often they are tried in vain, what is said of them, and
//! `--when-full`.
use outswap_e2e::{Outcome, Run, Tmp, build, plain_mode, setup, stats};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SWAP: &str = "compressed,file:16M";
/// More than `--ram 32M` and [`SWAP`] have room for.
const MIB: &str = "72";

fn program() -> String {
    build::program("tests/programs/random.c").to_string_lossy().into_owned()
}

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

/// Runs a command with a store that is too small; how it ended, and the statistics.
fn run(options: &[&str], command: &[&str]) -> (Outcome, Value) {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let run = Run::new(setup::outswap()).args(["run", "--ram", "32M", "--swap", SWAP]).args(options);
    let end = run.arg("--stats").arg(&file).arg("--").args(command).timeout_s(300).supervised().run();
    (end, stats::read(&file))
}

/// The one line of ours, which names the cause and what is to be done.
fn line(end: &Outcome, what: &str) {
    let errors = end.errors();
    let told: Vec<&str> = errors.lines().filter(|line| line.starts_with("outswap: ")).collect();
    assert!(told.len() == 1 && told[0].contains(what), "not one line with '{what}': {}", end.describe());
    assert!(told[0].contains("file:16M allows (in /"), "{}", end.describe());
    assert!(told[0].ends_with("; allow more there, or give more --ram"), "{}", end.describe());
}

#[test]
fn a_full_store_is_not_tried_again_and_again() {
    if plain_mode() {
        return;
    }
    let data = 72 << 20;
    let (end, stats) = run(&[], &[&program(), MIB, "0"]);
    assert_eq!(end.clone().exited(0).text(), "ok\n");
    line(&end, "the limit is exceeded rather than data lost");
    // Each page is compressed once, and a few of them in vain.
    assert!(number(&stats, "/compression/in_bytes") < data, "{stats:#}");
    assert!(number(&stats, "/stores/file/bytes_out") < data, "{stats:#}");
    let [refused, passed] = ["/problems/store_full", "/counters/store_passed_by"].map(|path| number(&stats, path));
    assert!(refused > 0 && passed > refused, "{stats:#}");
    assert!(number(&stats, "/problems/over_budget") > 0 && number(&stats, "/counters/full_waits") == 0, "{stats:#}");

    let (end, stats) = run(&[], &[&program(), MIB, "2"]);
    assert_eq!(end.exited(0).text(), "ok\n");
    let peak = number(&stats, "/memory/tree_peak_bytes");
    assert!(peak < data + (8 << 20), "more than without Outswap: {stats:#}");
}

#[test]
fn a_program_that_has_no_room_fails_where_it_is_told_to() {
    if plain_mode() {
        return;
    }
    let fails = ["--when-full", "fail"];
    let (end, stats) = run(&fails, &[&program(), MIB, "0"]);
    let end = end.exited(122);
    assert!(end.stdout.is_empty(), "{}", end.describe());
    line(&end, "error: ");
    // As far beyond as the limit allows for a process (docs/limits.md): it grows by gigabytes a second.
    assert!(number(&stats, "/memory/tree_peak_bytes") < (33 << 20) + (8 << 20), "{stats:#}");
    // What fits runs, and one process of a tree may fail where others go on.
    assert_eq!(run(&fails, &[&program(), "40", "3"]).0.exited(0).text(), "ok\n");
    let both = format!("{0} {MIB} 0; echo $?; {0} 20 1", program());
    assert_eq!(run(&fails, &["sh", "-c", &both]).0.exited(0).text(), "122\nok\n");
    // So does a program to which a call brings its memory.
    let dir = Tmp::new();
    let file = dir.join("random");
    let mut to = fs::File::create(&file).expect("the directory is ours");
    let mut state = 88_172_645_463_325_252u64;
    for _ in 0..72 << 7 {
        let mut block = Vec::with_capacity(8192);
        for _ in 0..1024 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        to.write_all(&block).expect("there is room");
    }
    let file = file.to_string_lossy();
    let (end, _) = run(&fails, &[&program(), MIB, "0", &file]);
    line(&end.exited(122), "error: ");
    let (end, _) = run(&[], &[&program(), MIB, "1", &file]);
    assert_eq!(end.exited(0).text(), "ok\n");
}

/// Starts a command under `--when-full wait`, its messages in `err`; waits until it waits for room.
fn waits(dir: &Path, script: &str) -> outswap_e2e::process::Running {
    let line = format!(
        "exec \"$0\" run --ram 32M --swap {SWAP} --when-full wait --stats {0}/stats.json -- sh -c '{script}' 2> {0}/err",
        dir.display()
    );
    let mut running = Run::new("sh").args(["-c", &line]).arg(setup::outswap()).timeout_s(300).supervised().start();
    let started = Instant::now();
    let told = || fs::read_to_string(dir.join("err")).unwrap_or_default();
    while !told().contains("the program waits for room") && started.elapsed() < Duration::from_secs(200) {
        assert!(!running.has_ended(), "it has ended and did not wait: {}", told());
        thread::sleep(Duration::from_millis(10));
    }
    assert!(told().contains("warning: the swap file has all that file:16M allows"), "{}", told());
    running
}

#[test]
fn a_program_that_waits_goes_on_when_another_gives_memory_back() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let (path, program) = (dir.path().display(), program());
    let script = format!(
        "OUTSWAP_E2E_HOLD={path}/hold {program} 24 1 & while [ ! -e {path}/hold.ready ]; do sleep 0.02; done; {program} 32 2; wait"
    );
    let running = waits(dir.path(), &script);
    fs::write(dir.join("hold.stop"), "").expect("the directory is ours");
    let end = running.wait().exited(0);
    assert_eq!(end.text(), "ok\nok\n", "{}", end.describe());
    let stats = stats::read(dir.join("stats.json"));
    let waited = ["/counters/full_waits", "/counters/full_wait_ns"].map(|path| number(&stats, path));
    assert!(waited[0] > 0 && waited[1] > 0, "{stats:#}");
    assert_eq!(number(&stats, "/counters/over_budget"), 0, "nobody has given up: {stats:#}");
}

#[test]
fn a_program_that_waits_can_be_ended_by_a_signal() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let running = waits(dir.path(), &format!("exec {} {MIB} 0", program()));
    running.signal(libc::SIGTERM);
    let end = running.wait();
    assert_eq!(end.status.signal(), Some(libc::SIGTERM), "{}", end.describe());
}
