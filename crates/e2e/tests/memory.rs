//! The limit and what is said of it, compared with what the kernel counts: memory that cannot be managed, alone and beside memory
//! that can, programs that run unmanaged, statistics, and the limits of containers.
//!
//! What needs a memory control group of its own is ignored where none can be made, and a line says so.
use libtest_mimic::{Arguments, Failed, Trial};
use outswap_e2e::{MIB, Outcome, Run, Setup, Tmp, build, plain_mode, setup, stats};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PROGRAM: &str = "tests/programs/unmanaged.c";
/// What a process has beside what the test's program asks for: libraries, and what the runtime reserves.
const BESIDE_BYTES: u64 = 6 * MIB;
/// Kinds of memory that cannot be managed, and how a warning calls them. That of the program's `.bss` can be, unless [`BSS_OFF`].
const KINDS: [(&str, &str); 6] = [
    ("bss", "data of tests_programs_unmanaged_c"),
    ("code", "executable anonymous memory"),
    ("pages", "private pages of outswap-pages-"),
    ("stack", "the main stack"),
    ("threads", "thread stacks"),
    ("reserved", "other anonymous memory"),
];

/// Where files lie in memory.
const MEMORY_DIR: &str = "/dev/shm";

const BSS_OFF: [&str; 2] = ["--mechanism", "bss=off"];

fn program() -> String {
    build::program(PROGRAM).to_string_lossy().into_owned()
}

fn static_program() -> String {
    build::static_program(PROGRAM).to_string_lossy().into_owned()
}

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

/// Runs `outswap run` with statistics; what it wrote, and how it ended.
fn run(options: &[&str], command: &[&str]) -> (Outcome, Value) {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let run = Run::new(setup::outswap()).arg("run").args(options).arg("--stats").arg(&file).arg("--").args(command);
    let end = run.timeout_s(120).supervised().run();
    assert!(end.status.signal().is_some() || !end.stdout.is_empty(), "{}", end.describe());
    let stats = stats::read(&file);
    assert_eq!(
        number(&stats, "/problems/warnings"),
        lines_with(&end, "outswap: warning:") as u64,
        "{}",
        end.describe()
    );
    (end, stats)
}

fn ok(end: Outcome) -> Outcome {
    let end = end.exited(0);
    assert!(end.text().lines().all(|line| line == "ok") && !end.stdout.is_empty(), "{}", end.describe());
    end
}

fn lines_with(end: &Outcome, what: &str) -> usize {
    end.errors().lines().filter(|line| line.contains(what)).count()
}

/// Whether the peak in the statistics is what was seen from outside.
fn is_the_peak(end: &Outcome, stats: &Value) {
    let (told, seen) = (number(stats, "/memory/tree_peak_bytes"), end.peak.largest.anon_bytes);
    let tolerance = BESIDE_BYTES + seen / 20;
    assert!(told.abs_diff(seen) <= tolerance, "told {told}, seen {seen}\n{stats:#}\n{}", end.describe());
}

fn each_kind(kind: &str, name: &str) {
    let plain = ok(Run::new(program()).args([kind, "48", "1000"]).run());
    let (end, stats) = run(&[&["--ram", "32M", "--summary"], &BSS_OFF[..]].concat(), &[&program(), kind, "48", "1000"]);
    let end = ok(end.same_as(&plain));
    is_the_peak(&end, &stats);
    let unmanaged = number(&stats, "/memory/tree_peaks/unmanaged_bytes");
    assert!((48 * MIB..48 * MIB + BESIDE_BYTES).contains(&unmanaged), "{stats:#}");
    assert!(number(&stats, "/problems/over_budget") > 0, "{stats:#}");
    let warning = format!("cannot be managed ({name}");
    assert_eq!((lines_with(&end, "cannot be managed"), lines_with(&end, &warning)), (1, 1), "{}", end.describe());
    assert_eq!(number(&stats, "/problems/warnings"), 1, "{stats:#}");
    assert_eq!(lines_with(&end, "unmanaged   peak "), 1, "{}", end.describe());
}

/// A program whose `.bss` is managed, wherever it is linked to.
fn a_large_bss_is_held_to_the_limit(program: &Path) {
    for mib in [32, 20] {
        let (end, stats) = run(&["--ram", &format!("{mib}M")], &[&program.to_string_lossy(), "bss", "48", "300"]);
        let end = ok(end);
        is_the_peak(&end, &stats);
        assert!(end.stderr.is_empty(), "{}", end.describe());
        assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") < BESIDE_BYTES, "{stats:#}");
        assert!(number(&stats, "/stores/file/pages_out") * 4096 > 12 * MIB, "{stats:#}");
        end.within(mib * MIB);
    }
}

/// Zeros of a library that the program opens while it runs: the linker maps it in another way where its segments begin at larger borders.
fn zeros_of_an_opened_library_are_held_to_the_limit(source: &str) {
    for border_bytes in [4096, 2 * MIB] {
        let library = build::library_with_borders("tests/programs/zeros_library.c", border_bytes);
        let command =
            [build::program("tests/programs/opens.c"), library].map(|path| path.to_string_lossy().into_owned());
        let command = [command[0].as_str(), &command[1]];
        ok(Run::new(command[0]).args([command[1]]).run());
        let options = ["--ram", "16M", "--fault-source", source];
        let (end, stats) = run(&options, &command);
        let end = ok(end);
        // That nothing more could go for a moment may be said on a busy machine.
        assert_eq!(lines_with(&end, "managed"), 0, "{}", end.describe());
        assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") < BESIDE_BYTES, "{stats:#}");
        let out_pages = number(&stats, "/stores/file/pages_out") + number(&stats, "/stores/memory/pages_out");
        assert!(out_pages * 4096 > 24 * MIB, "{stats:#}");
        end.within(16 * MIB);
        let (end, stats) = run(&[&options, &BSS_OFF[..]].concat(), &command);
        let end = ok(end);
        assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 20 * MIB, "{stats:#}");
        assert_eq!(lines_with(&end, "cannot be managed ("), 1, "{}", end.describe());
    }
}

/// A filter that sees a program's own calls at fixed addresses would see those of others there, which are not managed: so its `.bss` is
/// not either, and that is said.
fn a_bss_at_fixed_addresses_beside_calls_of_its_own_is_not_managed() {
    let program = build::fixed_program_with(PROGRAM, "OWN_CALL").to_string_lossy().into_owned();
    let (end, stats) = run(&["--ram", "32M"], &[&program, "bss", "48", "1000"]);
    let end = ok(end);
    assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 48 * MIB, "{stats:#}");
    assert_eq!(lines_with(&end, "cannot be managed (data of "), 1, "{}", end.describe());
}

/// The runtime would use it, and it the `.bss`.
fn a_bss_beside_a_memcpy_of_the_programs_own_is_not_managed() {
    let program = build::program_with(PROGRAM, "OWN_MEMCPY").to_string_lossy().into_owned();
    let (end, stats) = run(&["--ram", "32M"], &[&program, "heap", "48", "1"]);
    ok(end);
    assert!(
        number(&stats, "/stores/file/pages_out") > 0 || number(&stats, "/stores/memory/pages_out") > 0,
        "{stats:#}"
    );
    let (end, stats) = run(&["--ram", "32M"], &[&program, "bss", "48", "1000"]);
    ok(end);
    assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 48 * MIB, "{stats:#}");
}

/// The program has 96 MiB of it, and may have 140 MiB of data.
fn a_bss_counts_once_in_a_limit_of_data() {
    for source in ["auto", "copy", "guard", "mprotect"] {
        let script = "ulimit -S -d 143360; exec \"$0\" heap 24 1";
        let options = ["--ram", "64M", "--fault-source", source];
        let (end, _) = run(&options, &["sh", "-c", script, &program()]);
        ok(end);
    }
}

fn within_the_limit_nothing_is_told() {
    let (end, stats) = run(&[&["--ram", "64M"], &BSS_OFF[..]].concat(), &[&program(), "bss", "40", "300"]);
    let end = ok(end);
    is_the_peak(&end, &stats);
    assert!(end.stderr.is_empty(), "{}", end.describe());
    assert_eq!(number(&stats, "/problems/over_budget"), 0, "{stats:#}");
}

fn what_came_and_went_between_two_looks_is_seen_at_the_end() {
    for options in [&["--ram", "32M"][..], &["--resident", "32M"]] {
        let (end, stats) = run(&[options, &BSS_OFF].concat(), &[&program(), "bss", "40", "0"]);
        let end = ok(end);
        let peak = number(&stats, "/memory/tree_peak_bytes");
        assert!((40 * MIB..40 * MIB + BESIDE_BYTES).contains(&peak), "{stats:#}");
        let over = u64::from(options[0] == "--ram");
        assert_eq!(number(&stats, "/problems/over_budget"), over, "{stats:#}");
        assert_eq!(lines_with(&end, "cannot be managed"), over as usize, "{}", end.describe());
    }
}

/// The managed process sleeps while its neighbour grows, so nothing that it does itself makes room. Who looks is one of the
/// supervisor's threads, which may get no processor for a while: one of five tries has to be within the limit.
fn managed_memory_makes_room_for_a_neighbour(neighbour: &str, kind: &str) {
    let (program, ram) = (program(), 64 * MIB);
    let command = [&*program, "heap", "56", "1", neighbour, kind, "48", "1200"];
    for left in (0..5).rev() {
        let (end, stats) = run(&[&["--ram", "64M"], &BSS_OFF[..]].concat(), &command);
        let end = ok(end);
        is_the_peak(&end, &stats);
        let out = number(&stats, "/stores/memory/pages_out") + number(&stats, "/stores/file/pages_out");
        assert!(out * 4096 > 32 * MIB, "{stats:#}");
        if left == 0 || end.peak.within(ram).is_ok() {
            end.within(ram);
            break;
        }
    }
}

fn unmanaged_programs_are_told_of() {
    let (end, stats) = run(&["--ram", "32M"], &[&program(), "heap", "1", "1", &static_program(), "bss", "48", "1500"]);
    let end = ok(end);
    is_the_peak(&end, &stats);
    assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 48 * MIB, "{stats:#}");
    assert_eq!(lines_with(&end, "cannot be managed"), 1, "{}", end.describe());
    // What the program starts is to be left alone, so it is not counted.
    let left = ["heap", "1", "1", &program(), "bss", "48", "600"];
    let (end, stats) = run(&["--ram", "32M", "--no-follow"], &[&[&*program()], &left[..]].concat());
    assert!(number(&stats, "/memory/tree_peak_bytes") < 16 * MIB, "{stats:#}");
    assert_eq!(lines_with(&ok(end), "cannot be managed"), 0);
}

/// Whoever comes after it has its room at once, before anybody has looked again.
fn what_ran_unmanaged_counts_no_more_afterwards() {
    let script = "\"$0\" bss 40 1500 && exec \"$1\" heap 40 0";
    for _ in 0..2 {
        let (end, stats) = run(&["--ram", "64M"], &["sh", "-c", script, &static_program(), &program()]);
        let end = ok(end);
        is_the_peak(&end, &stats);
        assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 40 * MIB, "{stats:#}");
        let out = ["memory", "file"].map(|store| number(&stats, &format!("/stores/{store}/pages_out")));
        assert_eq!(out, [0, 0], "there was room: {stats:#}");
    }
}

/// As the first process of a container, which is given all orphans: here one that runs unmanaged.
fn orphans_of_a_container_are_counted() {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let script = "(\"$0\" bss 48 1500 &); sleep 4; echo ok";
    let run =
        Run::new("unshare").args(["-p", "-f", "--mount-proc"]).arg(setup::outswap()).args(["run", "--ram", "32M"]);
    let run = run.arg("--stats").arg(&file).args(["--", "sh", "-c", script, &static_program()]);
    let end = ok(run.timeout_s(120).supervised().run());
    let stats = stats::read(&file);
    assert!(number(&stats, "/memory/tree_peaks/unmanaged_bytes") >= 48 * MIB, "{stats:#}");
    assert_eq!(lines_with(&end, "cannot be managed"), 1, "{}", end.describe());
}

fn a_limit_of_resident_pages_has_a_true_peak() {
    let (end, stats) = run(&["--resident", "16M", "--swap", "compressed"], &[&program(), "heap", "48", "300"]);
    let end = ok(end);
    // Noise does not compress: the pool has what is not resident.
    assert!(number(&stats, "/memory/tree_peak_bytes") > 44 * MIB, "{stats:#}");
    is_the_peak(&end, &stats);
}

/// What is written again after each fork stays in memory: it is the same managed pages, whoever has copied them.
fn copies_after_forks_do_not_fill_a_limit_of_resident_pages() {
    let program = build::program("tests/programs/forks.c").to_string_lossy().into_owned();
    let (end, stats) = run(&["--resident", "24M"], &[&program]);
    ok(end);
    let faults: u64 = ["hit", "miss", "bypass"].map(|kind| number(&stats, &format!("/faults/{kind}"))).iter().sum();
    // Of 40 MiB, 16 go once, and come back once, several by each fault; 8 MiB are written 72 times.
    assert!((1..2048).contains(&faults), "{stats:#}");
}

/// What two processes share is freed by neither alone, and what one of them writes to is copied unseen: the limit holds all the same.
fn what_is_shared_stays_in_the_limit() {
    let program = build::program("tests/programs/shared_writes.c").to_string_lossy().into_owned();
    let (end, stats) = run(&["--ram", "256M", "--swap", "compressed,file"], &[&program, "448", "200", "1500"]);
    let end = ok(end);
    is_the_peak(&end, &stats);
    assert_eq!(number(&stats, "/problems/over_budget"), 0, "{stats:#}");
    end.within(256 * MIB);
}

/// Fresh memory that is read first is the kernel's page of zeros, and becomes memory by a write that with `mprotect` nobody sees.
fn what_is_read_first_stays_in_the_limit(source: &str) {
    let program = build::program("tests/programs/read_first.c").to_string_lossy().into_owned();
    let (end, stats) = run(&["--ram", "48M", "--fault-source", source], &[&program, "4", "64"]);
    let end = ok(end);
    is_the_peak(&end, &stats);
    end.within(48 * MIB);
}

/// Who does little but bring memory back is told so, once; who works with it is not.
fn who_thrashes_is_told(limit: &str, passes: &str, times: usize) {
    let program = build::program("tests/programs/thrash.c").to_string_lossy().into_owned();
    let (end, stats) = run(&[limit, "24M"], &[&program, "64", "16", passes]);
    let end = ok(end);
    let told: Vec<String> = end.errors().lines().map(str::to_owned).collect();
    assert_eq!(told.len(), times, "{}", end.describe());
    let is_it =
        |line: &String| line.contains("bringing its memory back") && line.ends_with(&format!("(give more {limit})"));
    assert!(told.iter().all(is_it), "{}", end.describe());
    assert_eq!(number(&stats, "/problems/warnings"), times as u64, "{stats:#}");
}

/// What is not used any more makes room for another process, which would work in next to nothing without.
fn who_waits_gives_its_memory_up(limit: &str, how: &[&str]) {
    let program = build::program("tests/programs/idle.c").to_string_lossy().into_owned();
    let words = [&[&program, "32", "28"], how].concat();
    // In a pool, memory would be the process's still.
    let (end, stats) = run(&[limit, "40M", "--swap", "file"], &words);
    ok(end);
    assert_eq!(number(&stats, "/problems/over_budget"), 0, "{stats:#}");
    // The child went over its 28 MiB a few times; in what was left at first it has millions.
    let faults: u64 = ["hit", "miss", "bypass"].map(|kind| number(&stats, &format!("/faults/{kind}"))).iter().sum();
    assert!(faults < 500_000, "{stats:#}");
}

/// The background thread takes pages from a program that goes over them all the time: nothing of what it writes is lost.
fn what_is_in_use_stays_right_beside_another(source: &str, runs: u32) {
    let program = build::program("tests/programs/beside.c").to_string_lossy().into_owned();
    let options = ["--resident", "24M", "--swap", "file", "--fault-source", source];
    for _ in 0..runs {
        let (end, stats) = run(&options, &[&program, "8", "32", "3000"]);
        ok(end);
        assert!(number(&stats, "/stores/file/pages_out") > 2048, "{stats:#}");
    }
}

/// Whether the kernel has huge pages for who asks for them, now.
fn has_huge_pages(program: &str) -> bool {
    Run::new(program).args(["try"]).run().status.success()
}

/// What comes as a huge page is right whatever is done to it, and leaves as all else does.
fn a_huge_page_is_memory_as_all_other(source: &str, how: &str) {
    let program = build::program("tests/programs/huge.c").to_string_lossy().into_owned();
    let options =
        |orders| ["--resident", "28M", "--swap", "compressed", "--fault-source", source, "--folio-orders", orders];
    for orders in ["0,4,9", "0,4"] {
        let is_wanted = orders == "0,4,9" && source == "move";
        let has_some = is_wanted && has_huge_pages(&program);
        let (end, stats) = run(&options(orders), &[&program, how]);
        ok(end);
        let huge = number(&stats, "/counters/huge_in");
        assert!(is_wanted || huge == 0, "{orders}: {stats:#}");
        assert!(huge > 0 || !has_some || !has_huge_pages(&program), "{orders}: {stats:#}");
        assert_eq!(number(&stats, "/problems/over_budget"), 0, "{stats:#}");
        assert!(number(&stats, "/pages/taken") > (8 << 20) / 4096, "{stats:#}");
    }
}

/// The program for processes in other pid namespaces, after the words of a command that it is started by. `None` where there are none.
fn in_pid_namespaces(before: &[&str], children: &str, how: &[&str]) -> Option<(Outcome, Value)> {
    let program = build::program("tests/programs/pid_namespaces.c").to_string_lossy().into_owned();
    let words = [before, &[&program, children, "40"], how].concat();
    let (end, stats) = run(&["--ram", "64M", "--swap", "compressed,file"], &words);
    let is_there = end.stdout != b"not here\n" && !end.errors().contains("unshare failed");
    is_there.then(|| (ok(end), stats))
}

/// Each child has the same number, and sees its parent under none.
fn what_is_in_other_pid_namespaces_counts(how: &str) {
    let Some((end, stats)) = in_pid_namespaces(&[], "4", &[how]) else { return };
    // For the moment in which a process has lost its lock, it is not counted.
    if how != "lose" {
        is_the_peak(&end, &stats);
    }
    end.within(64 * MIB);
}

/// What a killed one had is room again, also where only the kernel knows in which namespace it is.
fn what_was_killed_in_other_pid_namespaces_counts_no_longer(before: &[&str], how: &[&str]) {
    let Some((end, stats)) = in_pid_namespaces(before, "5", how) else { return };
    end.within(64 * MIB);
    let out: u64 = ["memory", "file"].map(|store| number(&stats, &format!("/stores/{store}/pages_out"))).iter().sum();
    assert!(out < 20 * MIB / 4096, "there was room for each of them: {stats:#}");
}

fn parts_are_what_the_whole_is_of() {
    let (end, stats) = run(&["--ram", "32M", "--swap", "file"], &[&program(), "heap", "48", "400"]);
    let end = ok(end);
    is_the_peak(&end, &stats);
    let now = |name: &str| number(&stats, &format!("/memory/current/{name}_bytes"));
    let parts: u64 = ["resident", "cached", "pool", "tables", "unmanaged"].map(now).iter().sum();
    assert!(parts.abs_diff(now("charge")) < MIB / 2, "{parts} of {}: {stats:#}", now("charge"));
    // One process: both kinds of peaks are the same, and none is more than the whole.
    for name in ["resident", "pool", "tables", "file"] {
        let [whole, sum] =
            ["tree_peaks", "summed_peaks"].map(|kind| number(&stats, &format!("/memory/{kind}/{name}_bytes")));
        assert!(whole <= sum && (sum - whole <= MIB), "{name}: {stats:#}");
        assert!(name == "file" || whole <= number(&stats, "/memory/tree_peak_bytes"), "{name}: {stats:#}");
    }
    // Written once and read once from one end to the other: what does not fit went out, and came back.
    let [out, back, bytes_out, bytes_in] =
        ["pages_out", "pages_in", "bytes_out", "bytes_in"].map(|name| number(&stats, &format!("/stores/file/{name}")));
    assert!(out * 4096 > 16 * MIB && back * 4096 > 16 * MIB, "{stats:#}");
    assert!(bytes_out.abs_diff(out * 4096) < out * 4096 / 20 + MIB, "{stats:#}");
    assert!(bytes_in.abs_diff(back * 4096) < back * 4096 / 20 + MIB, "{stats:#}");
    assert_eq!(number(&stats, "/problems/store_errors"), 0);
}

fn peaks_of_one_after_the_other_are_no_sum() {
    let script = format!("for i in 1 2 3 4; do {} heap 16 200 || exit 1; done", program());
    let (end, stats) = run(&["--ram", "64M"], &["sh", "-c", &script]);
    is_the_peak(&ok(end), &stats);
    let [whole, sum] =
        ["tree_peaks", "summed_peaks"].map(|kind| number(&stats, &format!("/memory/{kind}/resident_bytes")));
    assert!((16 * MIB..24 * MIB).contains(&whole) && sum > 60 * MIB, "{stats:#}");
}

/// Why there is no directory in memory, if so.
fn no_memory_dir() -> Option<String> {
    let end = Run::new("stat").args(["-f", "-c", "%T", MEMORY_DIR]).run();
    (end.text().trim() != "tmpfs").then(|| format!("{MEMORY_DIR} is no tmpfs"))
}

/// A swap file in memory has its part of the limit, as a pool has. What does not fit is told as excess.
fn a_swap_file_in_memory_counts() {
    let options = |ram: &'static str, swap: &'static str| ["--ram", ram, "--swap", swap, "--swap-dir", MEMORY_DIR];
    for swap in ["compressed,file", "file"] {
        let (end, stats) = run(&options("32M", swap), &[&program(), "heap", "90", "300"]);
        let end = ok(end);
        let (told, file) = (number(&stats, "/memory/tree_peak_bytes"), number(&stats, "/memory/tree_peaks/file_bytes"));
        let seen = end.peak.largest.anon_bytes + file;
        assert!(file > 8 * MIB && file < 32 * MIB, "{stats:#}");
        assert!(told.abs_diff(seen) <= 2 * BESIDE_BYTES, "told {told}, seen {seen}\n{stats:#}\n{}", end.describe());
        assert!(number(&stats, "/memory/current/file_memory_bytes") > 8 * MIB, "{stats:#}");
        assert!(number(&stats, "/problems/over_budget") > 0, "{stats:#}");
        assert_eq!(
            lines_with(&end, "the swap file lies in memory, and --ram leaves it no more"),
            1,
            "{}",
            end.describe()
        );
    }
    // What both are too small for is in the limit.
    let (end, stats) = run(&options("64M", "file"), &[&program(), "heap", "50", "300"]);
    ok(end);
    assert_eq!(number(&stats, "/problems/over_budget"), 0, "{stats:#}");
}

/// Runs a command with a small file system at a place that it alone sees.
const SMALL_DISK: &str = "mount -t tmpfs -o size=4M none \"$0\" && exec \"$@\"";

/// Why no file system can be mounted, if so.
fn no_small_disk() -> Option<String> {
    let dir = Tmp::new();
    let end = Run::new("unshare").args(["-m", "sh", "-c", SMALL_DISK]).arg(dir.path()).arg("true").run();
    (!end.status.success()).then(|| end.errors().trim().to_owned())
}

/// Why no process can be the first of a container, if so.
fn no_container() -> Option<String> {
    let end = Run::new("unshare").args(["-p", "-f", "--mount-proc", "true"]).run();
    (!end.status.success()).then(|| end.errors().trim().to_owned())
}

fn writes_that_fail_are_told_of() {
    let (dir, small) = (Tmp::new(), Tmp::new());
    let file = dir.join("stats.json");
    let run = Run::new("unshare").args(["-m", "sh", "-c", SMALL_DISK]).arg(small.path()).arg(setup::outswap());
    let run = run.args(["run", "--ram", "32M", "--swap", "file", "--swap-dir"]).arg(small.path());
    let run = run.arg("--stats").arg(&file).arg("--").args([&*program(), "heap", "48", "1"]).supervised();
    let end = ok(run.run());
    let told = format!("no space left (ENOSPC) in {}", small.path().display());
    assert_eq!(lines_with(&end, &told), 1, "{}", end.describe());
    let stats = stats::read(&file);
    assert!(number(&stats, "/problems/store_errors") > 0, "{stats:#}");
    assert_eq!(number(&stats, "/counters/store_errors"), 0, "nothing that was written could not be read: {stats:#}");
}

/// A memory control group with a limit, and one without inside of it; both go with this.
struct Group {
    outer: PathBuf,
    inner: PathBuf,
    limit_file: &'static str,
}

impl Group {
    /// Makes them.
    fn make(limit_bytes: u64) -> Result<Group, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("outswap-e2e-{}-{name}", std::process::id());
        let root_v1 = Path::new("/sys/fs/cgroup/memory");
        let root_v2 = Path::new("/sys/fs/cgroup");
        let is_v1 = root_v1.join("memory.limit_in_bytes").exists();
        let (root, limit_file) = if is_v1 { (root_v1, "memory.limit_in_bytes") } else { (root_v2, "memory.max") };
        let outer = root.join(name);
        let tell = |e: std::io::Error| format!("{}: {e}", outer.display());
        fs::create_dir(&outer).map_err(tell)?;
        let group = Group { inner: outer.join("inner"), outer: outer.clone(), limit_file };
        if !is_v1 {
            fs::write(group.outer.join("cgroup.subtree_control"), "+memory").map_err(tell)?;
        }
        fs::write(group.outer.join(limit_file), limit_bytes.to_string()).map_err(tell)?;
        // Swap that somebody else has on this machine is not for it. Where the kernel keeps no account of swap, there is no such file.
        let (swap_file, swap) =
            if is_v1 { ("memory.memsw.limit_in_bytes", limit_bytes) } else { ("memory.swap.max", 0) };
        let swap_file = group.outer.join(swap_file);
        if swap_file.exists() {
            fs::write(swap_file, swap.to_string()).map_err(tell)?;
        }
        fs::create_dir(&group.inner).map_err(tell)?;
        Ok(group)
    }

    /// Runs `outswap run` in the inner one.
    fn run(&self, args: &[&str]) -> Outcome {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let procs = self.inner.join("cgroup.procs");
        let run = Run::new("sh").args(["-c", script]).arg(procs).arg(setup::outswap()).arg("run").args(args);
        run.timeout_s(60).supervised().run()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        for path in [&self.inner, &self.outer] {
            // Processes that have ended are in it for a moment.
            while path.exists() && fs::remove_dir(path).is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            if path.exists() {
                eprintln!("{} is left", path.display());
            }
        }
    }
}

fn group(limit_bytes: u64) -> Group {
    Group::make(limit_bytes).expect("one was made before")
}

fn sizes_are_of_the_container() {
    let (group, dir) = (group(96 * MIB), Tmp::new());
    let file = dir.join("stats.json");
    let file = file.to_string_lossy();
    for (ram, bytes, source) in [("50%", 48 * MIB, "given"), ("auto", 96 * MIB / 100 * 90, "container")] {
        group.run(&["--ram", ram, "--stats", &file, "--", "true"]).exited(0);
        let stats = stats::read(&*file);
        assert_eq!(
            (number(&stats, "/config/ram_bytes"), stats["config"]["ram_source"].as_str()),
            (bytes, Some(source))
        );
    }
    let end = group.run(&["--ram", "80M", "--", "true"]).exited(0);
    assert_eq!(lines_with(&end, "warning"), 0, "{}", end.describe());
    let end = group.run(&["--ram", "512M", "--", "sh", "-c", "true; true"]).exited(0);
    let warning = format!("({})", group.outer.join(group.limit_file).display());
    assert_eq!((lines_with(&end, "container's limit"), lines_with(&end, &warning)), (1, 1), "{}", end.describe());
    let end = group.run(&["--ram", "40M", "--resident", "512M", "--", "true"]).exited(0);
    assert_eq!(
        lines_with(&end, "warning: --resident: 512 MiB are more than the container's limit"),
        1,
        "{}",
        end.describe()
    );
    let end = group.run(&["--ram", "512M", "--resident", "512M", "--quiet", "--", "true"]).exited(0);
    assert!(end.stderr.is_empty(), "{}", end.describe());
}

fn a_program_that_the_kernel_ended_is_told_of() {
    let group = group(64 * MIB);
    let program = program();
    // On a busy machine the kernel may end the supervisor, too, before it has told.
    let is_told = |args: &[&str], signal, line| {
        let is_so = |end: &Outcome| end.status.signal() == signal && lines_with(end, line) == 1;
        (0..5).any(|_| is_so(&group.run(args)))
    };
    for quiet in [&[][..], &["--quiet"]] {
        let options = [&["--ram", "512M", "--swap", "compressed"], quiet, &["--"]].concat();
        let line =
            "outswap: error: the program was killed, and the kernel ended a process of its group for want of memory";
        assert!(is_told(&[&options[..], &[&program, "heap", "120", "1"]].concat(), Some(libc::SIGKILL), line));
        // Another process than the first one.
        let script = "\"$0\" heap 120 1; echo ok";
        let line = "outswap: error: the kernel ended a process of the program's group for want of memory";
        assert!(is_told(&[&options[..], &["sh", "-c", script, &program]].concat(), None, line));
    }
    let end = group.run(&["--ram", "40M", "--", &program, "heap", "120", "1"]);
    assert_eq!(lines_with(&ok(end), "for want of memory"), 0);
    let end = group.run(&["--ram", "40M", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(
        (end.status.signal(), lines_with(&end, "for want of memory")),
        (Some(libc::SIGKILL), 0),
        "{}",
        end.describe()
    );
}

fn trial(name: impl Into<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        catch_unwind(AssertUnwindSafe(test)).map_err(|payload| {
            let text = payload.downcast::<String>().map(|text| *text);
            Failed::from(text.unwrap_or_else(|p| p.downcast::<&str>().map_or("panicked".into(), |t| t.to_string())))
        })
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if plain_mode() {
        println!("all of it is about what `outswap` says");
        return ExitCode::SUCCESS;
    }
    assert!(Setup::new().binary.is_file());
    let no_group = Group::make(64 * MIB).err();
    if let Some(why) = &no_group {
        println!("NOT TESTED here: the limits of containers, since no memory control group can be made ({why})");
    }
    let no_disk = no_small_disk();
    if let Some(why) = &no_disk {
        println!("NOT TESTED here: writes that fail, since no small file system can be mounted ({why})");
    }
    let no_memory_dir = no_memory_dir();
    if let Some(why) = &no_memory_dir {
        println!("NOT TESTED here: swap files in memory ({why})");
    }
    let no_container = no_container();
    if let Some(why) = &no_container {
        println!("NOT TESTED here: orphans in a container, since none can be made ({why})");
    }
    let mut trials: Vec<Trial> =
        KINDS.map(|(kind, name)| trial(format!("each_kind::{kind}"), move || each_kind(kind, name))).into();
    // With guard, what was wrong once was found by two runs of three.
    trials.extend([("move", 1), ("copy", 1), ("guard", 3), ("mprotect", 1)].map(|(source, runs)| {
        trial(format!("what_is_in_use_stays_right_beside_another::{source}"), move || {
            what_is_in_use_stays_right_beside_another(source, runs);
        })
    }));
    trials.extend(["move", "copy", "guard", "mprotect"].map(|source| {
        trial(format!("zeros_of_an_opened_library_are_held_to_the_limit::{source}"), move || {
            zeros_of_an_opened_library_are_held_to_the_limit(source);
        })
    }));
    trials.extend([
        trial("a_large_bss_is_held_to_the_limit::random", || {
            a_large_bss_is_held_to_the_limit(&build::program(PROGRAM));
        }),
        trial("a_large_bss_is_held_to_the_limit::fixed", || {
            a_large_bss_is_held_to_the_limit(&build::fixed_program(PROGRAM));
        }),
        trial(
            "a_bss_at_fixed_addresses_beside_calls_of_its_own_is_not_managed",
            a_bss_at_fixed_addresses_beside_calls_of_its_own_is_not_managed,
        ),
        trial(
            "a_bss_beside_a_memcpy_of_the_programs_own_is_not_managed",
            a_bss_beside_a_memcpy_of_the_programs_own_is_not_managed,
        ),
        trial("a_bss_counts_once_in_a_limit_of_data", a_bss_counts_once_in_a_limit_of_data),
        trial("what_is_shared_stays_in_the_limit", what_is_shared_stays_in_the_limit),
        trial("what_is_read_first_stays_in_the_limit::mprotect", || what_is_read_first_stays_in_the_limit("mprotect")),
        trial("what_is_read_first_stays_in_the_limit::move", || what_is_read_first_stays_in_the_limit("move")),
        trial("who_waits_gives_its_memory_up::executed", || who_waits_gives_its_memory_up("--ram", &[])),
        trial("who_waits_gives_its_memory_up::forked", || who_waits_gives_its_memory_up("--ram", &["same"])),
        trial("who_waits_gives_its_memory_up::resident", || who_waits_gives_its_memory_up("--resident", &[])),
        trial("a_huge_page_is_memory_as_all_other::fork", || a_huge_page_is_memory_as_all_other("move", "fork")),
        trial("a_huge_page_is_memory_as_all_other::scatter", || a_huge_page_is_memory_as_all_other("move", "scatter")),
        trial("a_huge_page_is_memory_as_all_other::lock", || a_huge_page_is_memory_as_all_other("move", "lock")),
        trial("a_huge_page_is_memory_as_all_other::move", || a_huge_page_is_memory_as_all_other("move", "move")),
        trial("a_huge_page_is_memory_as_all_other::protect", || a_huge_page_is_memory_as_all_other("move", "protect")),
        trial("a_huge_page_is_memory_as_all_other::unmap", || a_huge_page_is_memory_as_all_other("move", "unmap")),
        trial("a_huge_page_is_memory_as_all_other::drop", || a_huge_page_is_memory_as_all_other("move", "drop")),
        trial("a_huge_page_is_memory_as_all_other::leave", || a_huge_page_is_memory_as_all_other("move", "leave")),
        trial("a_huge_page_is_memory_as_all_other::copy", || a_huge_page_is_memory_as_all_other("copy", "leave")),
        trial("who_thrashes_is_told::ram", || who_thrashes_is_told("--ram", "0", 1)),
        trial("who_thrashes_is_told::resident", || who_thrashes_is_told("--resident", "0", 1)),
        trial("who_thrashes_is_told::who_works_is_not", || who_thrashes_is_told("--ram", "1000", 0)),
        trial("what_is_in_other_pid_namespaces_counts::hold", || what_is_in_other_pid_namespaces_counts("hold")),
        trial("what_is_in_other_pid_namespaces_counts::kill", || what_is_in_other_pid_namespaces_counts("kill")),
        trial("what_is_in_other_pid_namespaces_counts::lose", || what_is_in_other_pid_namespaces_counts("lose")),
        trial("what_is_in_other_pid_namespaces_counts::fail", || what_is_in_other_pid_namespaces_counts("fail")),
        trial("what_was_killed_in_other_pid_namespaces_counts_no_longer::own", || {
            what_was_killed_in_other_pid_namespaces_counts_no_longer(&[], &["one"]);
        }),
        trial("what_was_killed_in_other_pid_namespaces_counts_no_longer::unshared", || {
            let before = ["unshare", "--user", "--map-root-user", "--pid"];
            what_was_killed_in_other_pid_namespaces_counts_no_longer(&before, &["one", "inherit"]);
        }),
        trial("within_the_limit_nothing_is_told", within_the_limit_nothing_is_told),
        trial(
            "what_came_and_went_between_two_looks_is_seen_at_the_end",
            what_came_and_went_between_two_looks_is_seen_at_the_end,
        ),
        trial("managed_memory_makes_room_for_a_neighbour::managed", || {
            managed_memory_makes_room_for_a_neighbour(&program(), "bss");
        }),
        trial("managed_memory_makes_room_for_a_neighbour::unmanaged", || {
            managed_memory_makes_room_for_a_neighbour(&static_program(), "bss");
        }),
        trial("unmanaged_programs_are_told_of", unmanaged_programs_are_told_of),
        trial("what_ran_unmanaged_counts_no_more_afterwards", what_ran_unmanaged_counts_no_more_afterwards),
        trial("orphans_of_a_container_are_counted", orphans_of_a_container_are_counted)
            .with_ignored_flag(no_container.is_some()),
        trial("a_limit_of_resident_pages_has_a_true_peak", a_limit_of_resident_pages_has_a_true_peak),
        trial(
            "copies_after_forks_do_not_fill_a_limit_of_resident_pages",
            copies_after_forks_do_not_fill_a_limit_of_resident_pages,
        ),
        trial("parts_are_what_the_whole_is_of", parts_are_what_the_whole_is_of),
        trial("peaks_of_one_after_the_other_are_no_sum", peaks_of_one_after_the_other_are_no_sum),
        trial("writes_that_fail_are_told_of", writes_that_fail_are_told_of).with_ignored_flag(no_disk.is_some()),
        trial("a_swap_file_in_memory_counts", a_swap_file_in_memory_counts).with_ignored_flag(no_memory_dir.is_some()),
        trial("container::sizes_are_of_the_container", sizes_are_of_the_container)
            .with_ignored_flag(no_group.is_some()),
        trial("container::a_program_that_the_kernel_ended_is_told_of", a_program_that_the_kernel_ended_is_told_of)
            .with_ignored_flag(no_group.is_some()),
    ]);
    libtest_mimic::run(&arguments, trials).exit_code()
}
