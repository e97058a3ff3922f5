//! What the statistics say, compared with what is seen from outside.
use outswap_e2e::sample::children;
use outswap_e2e::{MIB, Outcome, Run, Tmp, build, plain_mode, setup, stats};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
const DISK: &str = "/var/tmp";
/// What a process has beside what the test's program asks for: libraries, and what the runtime reserves.
const BESIDE_BYTES: u64 = 6 * MIB;

fn held() -> String {
    build::program("tests/programs/held.c").to_string_lossy().into_owned()
}

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

fn told(end: &Outcome) -> usize {
    end.errors().lines().filter(|line| line.starts_with("outswap: warning:")).count()
}

fn outswap(options: &[&str], file: &Path, command: &[&str]) -> Run {
    let run = Run::new(setup::outswap()).arg("run").args(options).arg("--stats").arg(file).arg("--").args(command);
    run.timeout_s(120).supervised()
}

fn run(options: &[&str], command: &[&str]) -> (Outcome, Value) {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let end = outswap(options, &file, command).run();
    let stats = stats::read(&file);
    (end, stats)
}

/// The first child of a process.
fn child_of(pid: i32) -> i32 {
    *children(pid).first().expect("it has one")
}

/// The swap files that a process has open, under their descriptors.
fn swap_files(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten().map(|entry| entry.path());
    let is_swap = |path: &PathBuf| {
        let name = fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(DISK) && name.ends_with(" (deleted)")
    };
    entries.filter(is_swap).collect()
}

/// Runs the program that waits with 48 MiB of noise, in a limit that does not have room for it, and does something meanwhile.
fn while_held(meanwhile: impl FnOnce(i32)) -> (Outcome, Value) {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let options = ["--ram", "24M", "--swap", "file", "--swap-dir", DISK];
    let mut running = outswap(&options, &file, &[&held(), "noise", "48", &dir.path().to_string_lossy()]).start();
    running.until_there(&dir.join("ready"));
    meanwhile(child_of(running.pid));
    fs::write(dir.join("go"), "").expect("ours");
    let end = running.wait();
    let stats = stats::read(&file);
    (end, stats)
}

#[test]
fn what_went_to_the_file_is_there() {
    if plain_mode() {
        return;
    }
    let mut blocks_bytes = 0;
    let (end, stats) = while_held(|pid| {
        let files = swap_files(pid).into_iter().filter_map(|path| fs::metadata(path).ok());
        // It is open more than once, and may grow between two looks.
        let mut files: Vec<_> = files.map(|file| (file.ino(), file.blocks() * 512)).collect();
        files.sort();
        files.dedup_by_key(|file| file.0);
        blocks_bytes = files.iter().map(|file| file.1).sum();
    });
    let end = end.exited(0);
    let text = end.text();
    let written = text.lines().find_map(|line| line.strip_prefix("wrote ")?.parse::<u64>().ok());
    let (written, out) = (written.expect("it says so"), number(&stats, "/stores/file/bytes_out"));
    assert!(written.abs_diff(out) < MIB, "{written} written, {out} told: {stats:#}");
    let peak = number(&stats, "/memory/tree_peaks/file_bytes");
    assert!(blocks_bytes > 20 * MIB && blocks_bytes.abs_diff(peak) < peak / 4 + MIB, "{blocks_bytes}: {stats:#}");
    let (charge, seen) = (number(&stats, "/memory/summed_peaks/charge_bytes"), end.peak.largest_part_bytes);
    assert!(charge.abs_diff(seen) < BESIDE_BYTES, "told {charge}, seen {seen}: {stats:#}");
    assert_eq!(number(&stats, "/fault_latency/count"), number(&stats, "/faults/total"), "{stats:#}");
    assert_eq!(number(&stats, "/problems/corruptions"), 0, "{stats:#}");
}

/// What somebody has written over is not handed to the program, which gets SIGBUS.
#[test]
fn what_was_written_over_is_a_corruption() {
    if plain_mode() {
        return;
    }
    let (end, stats) = while_held(|pid| {
        for path in swap_files(pid) {
            let Ok(file) = OpenOptions::new().write(true).open(path) else { continue };
            for at in (0..file.metadata().expect("it is open").len()).step_by(PAGE as usize) {
                file.write_all_at(&[0x5a; 64], at).expect("there is room");
            }
        }
    });
    assert_eq!(end.status.signal(), Some(libc::SIGBUS), "{}", end.describe());
    assert!(number(&stats, "/problems/corruptions") > 0, "{stats:#}");
    assert_eq!(number(&stats, "/problems/warnings"), told(&end) as u64, "{stats:#}\n{}", end.describe());
}

/// A program that goes on after SIGBUS may meet it at thousands of pages: why is said once.
#[test]
fn why_a_program_gets_sigbus_is_said_once() {
    if plain_mode() {
        return;
    }
    let program = build::program("tests/calls/mappings_used_up.c").to_string_lossy().into_owned();
    let (end, _) = run(&["--resident", "4M", "--fault-source", "mprotect"], &[&program]);
    let said = end.errors().lines().filter(|line| line.contains("the program gets SIGBUS")).count();
    // What the program leaves free of them is more where there may be more.
    let max = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse::<u64>().ok());
    assert!(said == 1 || said == 0 && max.is_some_and(|max| max > 70_000), "{said} lines: {}", end.describe());
    end.exited(0);
}

#[test]
fn what_was_asked_for_is_told() {
    if plain_mode() {
        return;
    }
    let options =
        ["--resident", "24M", "--swap", "ram:1M,compressed:zstd:5:2M,file:3M", "--swap-dir", DISK, "--no-follow"];
    let (end, stats) = run(&options, &["true"]);
    end.exited(0);
    let config = &stats["config"];
    assert_eq!((&config["resident_bytes"], &config["ram_bytes"]), (&json!(24 * MIB), &json!(0)), "{stats:#}");
    assert_eq!((&config["swap_dir"], &config["follow"]), (&json!(DISK), &json!(false)), "{stats:#}");
    let tier = |i: usize| ["kind", "algorithm", "level", "max_bytes"].map(|name| config["swap"][i][name].clone());
    assert_eq!(tier(0), [json!("ram"), Value::Null, json!(0), json!(MIB)], "{stats:#}");
    assert_eq!(tier(1), [json!("compressed"), json!("zstd"), json!(5), json!(2 * MIB)], "{stats:#}");
    assert_eq!(tier(2), [json!("file"), Value::Null, json!(0), json!(3 * MIB)], "{stats:#}");
    assert_eq!(run(&["--ram", "32M"], &["true"]).1["config"]["follow"], true);
}

#[test]
fn each_program_that_runs_unmanaged_counts() {
    if plain_mode() {
        return;
    }
    let program = build::static_program("tests/programs/held.c").to_string_lossy().into_owned();
    let script = "\"$0\" touch 1 0 && \"$0\" touch 1 0";
    let (end, stats) = run(&["--ram", "32M"], &["sh", "-c", script, &program]);
    let end = end.exited(0);
    let seen = ["unmanaged", "managed"].map(|kind| number(&stats, &format!("/processes/{kind}")));
    assert_eq!(seen, [2, 1], "{stats:#}");
    assert_eq!((number(&stats, "/problems/warnings"), told(&end)), (2, 2), "{stats:#}\n{}", end.describe());
}

/// A few pages are fewer than what a process publishes at a time.
#[test]
fn what_a_small_program_has_is_told() {
    if plain_mode() {
        return;
    }
    let (end, stats) = run(&["--ram", "64M"], &[&held(), "touch", "50", "1000"]);
    end.exited(0);
    for path in ["current", "summed_peaks", "tree_peaks"] {
        let bytes = number(&stats, &format!("/memory/{path}/resident_bytes"));
        assert!((50 * PAGE..50 * PAGE + MIB).contains(&bytes), "{path}: {stats:#}");
    }
    // All of it comes and goes between two looks.
    let (end, stats) = run(&["--ram", "64M"], &[&held(), "out", "1023", "300"]);
    end.exited(0);
    for path in ["summed_peaks", "tree_peaks"] {
        let bytes = number(&stats, &format!("/memory/{path}/resident_bytes"));
        assert!((960 * PAGE..1023 * PAGE + MIB).contains(&bytes), "{path}: {stats:#}");
    }
}

/// Whose children live on, or end at once, or have children themselves, is charged with what it has; there is room enough that nobody
/// measures at each fork.
#[test]
fn forks_with_plenty_of_room_count_what_there_is() {
    const MANY: &str = "for (1..200) { fork or exit; wait }";
    const LIVING: &str = "for (1..12) { fork or do { sleep 1; exit } } 1 while wait > 0;";
    const NESTED: &str =
        "for (1..12) { if (fork) { wait; $_ == 1 or exit; last } } if ($$ != $first) { sleep 1; exit }";
    if plain_mode() {
        return;
    }
    for forks in [MANY, LIVING, NESTED] {
        let script = format!(
            "my $first = $$; my $x = 'x'; $x x= 40_000_000; select undef, undef, undef, 0.2; {forks} print qq(ok\n);"
        );
        // Each measures what it shares with the others at its own time, and who has not yet counts with its half. On a busy machine that is
        // late, so that what some have of the same pages counts beside it: the more, the later, but never twice. What is seen of processes
        // one after the other may be too much as well, where pages become another's in between; of one process alone it never is.
        let is_right = || {
            let (end, stats) = run(&["--ram", "4G"], &["perl", "-e", &script]);
            let end = end.exited(0);
            assert_eq!(end.text(), "ok\n", "{}", end.describe());
            let (told, seen) = (number(&stats, "/memory/tree_peak_bytes"), end.peak.largest.anon_bytes);
            let tolerance = BESIDE_BYTES + seen / 20;
            let one = end.peak.largest_part_bytes;
            let is_possible = (one.saturating_sub(tolerance)..=2 * seen + tolerance).contains(&told);
            assert!(is_possible, "told {told}, seen {seen}, {one} of one\n{stats:#}\n{}", end.describe());
            told.abs_diff(seen) <= tolerance
        };
        assert!((0..5).any(|_| is_right()), "not what was seen, each time: {forks}");
    }
}

#[test]
fn each_warning_counts() {
    if plain_mode() {
        return;
    }
    let (end, stats) = run(&["--ram", "32M"], &[&held(), "shared", "16", "0"]);
    let end = end.exited(0);
    assert!(end.errors().contains("made whole"), "{}", end.describe());
    assert_eq!((number(&stats, "/problems/warnings"), told(&end)), (1, 1), "{stats:#}");
    // What `--quiet` holds back counts as well, and so does what is said of variables before anything else.
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let run = outswap(&["--ram", "32M", "--quiet"], &file, &[&held(), "shared", "16", "0"]);
    let end = run.env("OUTSWAP_RAMM", "1G").run().exited(0);
    let stats = stats::read(&file);
    assert_eq!((number(&stats, "/problems/warnings"), end.stderr.len()), (2, 0), "{stats:#}\n{}", end.describe());
}

/// What the kernel moves in one call has to be of one mapping: pages of several are moved mapping by mapping, and not copied one by one.
#[test]
fn what_lies_in_pieces_is_moved() {
    if plain_mode() {
        return;
    }
    let apart = build::program("tests/programs/apart.c").to_string_lossy().into_owned();
    let options = ["--resident", "32M", "--swap", "compressed:lz4"];
    for source in ["auto", "copy"] {
        let (end, stats) = run(&[&options[..], &["--fault-source", source]].concat(), &[&apart]);
        let end = end.exited(0);
        assert_eq!(end.text(), "ok\n", "{}", end.describe());
        let (taken, copied) = (number(&stats, "/pages/taken"), number(&stats, "/pages/taken_by_copy"));
        assert!(taken > 8192, "{stats:#}");
        assert!(stats["fault_sources"] != json!(["move"]) || copied < taken / 4, "{copied} of {taken}\n{stats:#}");
    }
}
