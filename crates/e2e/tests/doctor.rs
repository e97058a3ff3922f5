//! `outswap doctor` says what is so: where it ends with 0 `outswap run` manages a program, and where not, `outswap run` ends with 125
//! before the program does anything, and tells the same cause.
use outswap_e2e::{MIB, Outcome, Setup, Tmp, plain_mode, setup};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const PRELOAD: &str = "liboutswap_preload.so";

/// The binary and its libraries in a directory of their own, where a test may damage them.
fn copy(dir: &Tmp) -> PathBuf {
    let from = setup::outswap();
    let beside = from.parent().expect("a file has a directory");
    for (source, name) in [(from.clone(), "outswap"), (beside.join(PRELOAD), PRELOAD)] {
        setup::copy_program(&source, &dir.join(name));
    }
    dir.join("outswap")
}

fn is_managed(setup: &Setup, dir: &Tmp) -> (bool, Outcome) {
    let mark = dir.join("started");
    let _ = fs::remove_file(&mark);
    let script = ": > \"$0\"; grep -c liboutswap_preload /proc/self/maps";
    let end = setup.managed(32 * MIB, "sh").args(["-c", script]).arg(&mark).run();
    let loaded = end.text().trim().parse::<u32>().is_ok_and(|count| count > 0);
    match end.status.code() {
        Some(125) => assert!(!mark.exists(), "it started all the same: {}", end.describe()),
        _ => assert!(mark.exists() && loaded && !end.errors().contains("unmanaged"), "{}", end.describe()),
    }
    (end.status.code() != Some(125), end)
}

/// What doctor says, after it was compared with what run does.
fn agreed(setup: &Setup, dir: &Tmp) -> (Value, Outcome) {
    let (managed, run) = is_managed(setup, dir);
    let end = setup.doctor().arg("--json").run().exited(if managed { 0 } else { 125 });
    let report: Value = serde_json::from_slice(&end.stdout).expect("one JSON object");
    assert_eq!(report["works"], managed, "{report:#}");
    assert_eq!(report["cause"].is_null(), managed, "{report:#}");
    if let Some(cause) = report["cause"].as_str() {
        assert!(run.errors().starts_with(&format!("outswap: {cause}")), "another cause: {cause}: {}", run.describe());
        assert_eq!(run.errors().lines().count(), 1, "{}", run.describe());
    }
    let verdict = setup.doctor().run().text();
    let first = verdict.lines().next().unwrap_or_default();
    let wanted = match (report["cause"].as_str(), report["fault_source"].as_str()) {
        (Some(cause), _) => format!("outswap run does not work here: {cause}"),
        (None, source) => format!("outswap run works here, with the fault source {}", source.expect("it has one")),
    };
    assert_eq!(first, wanted);
    (report, run)
}

fn cause(report: &Value) -> &str {
    report["cause"].as_str().unwrap_or_default()
}

/// What a check of the report says.
fn value_of<'a>(report: &'a Value, name: &str) -> &'a str {
    let check = report["checks"].as_array().expect("an array").iter().find(|check| check["name"] == name);
    check.expect("it is there")["value"].as_str().expect("a text")
}

#[test]
fn where_all_is_well() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let (report, run) = agreed(&Setup::new(), &dir);
    assert_eq!(report["works"], true, "{report:#}");
    assert_eq!(run.errors(), "", "nothing is told where nothing is amiss");
    let value = value_of(&report, "managed_program");
    let faults = value.split("; ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(faults.is_some_and(|n| n > 0), "memory was evicted and came back: {value}");
    // What reads several places of the file at once, and what does not.
    let says = |name| value_of(&report, name).contains("swap file");
    assert!(says("io_uring") && !says("userfaultfd_privileged"), "{report:#}");
}

#[test]
fn libraries_that_cannot_be_loaded() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let setup = Setup::new().with_binary(copy(&dir));
    let library = dir.join(PRELOAD);
    assert_eq!(agreed(&setup, &dir).0["works"], true);
    let whole = fs::metadata(&library).expect("it is there").len();
    for bytes in [0, 100, 3000, whole / 200] {
        fs::copy(setup::outswap().with_file_name(PRELOAD), &library).expect("room");
        let file = fs::OpenOptions::new().write(true).open(&library).expect("ours");
        file.set_len(bytes).expect("ours");
        let (report, _) = agreed(&setup, &dir);
        assert!(cause(&report).contains(PRELOAD), "cut to {bytes}: {report:#}");
        let run =
            setup.clone().option("--allow-unmanaged", "--quiet").managed(32 * MIB, "echo").arg("x").run().succeeded();
        assert_eq!((run.text().as_str(), run.errors().as_str()), ("x\n", ""), "the way round");
    }
    fs::write(&library, "no library at all, and longer than a header of one has to be ..................")
        .expect("ours");
    assert!(cause(&agreed(&setup, &dir).0).contains(PRELOAD));
    fs::remove_file(&library).expect("ours");
    assert!(cause(&agreed(&setup, &dir).0).contains(PRELOAD));
}

#[test]
fn a_library_that_may_not_be_read() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let setup = Setup::nobody().with_binary(copy(&dir));
    assert_eq!(agreed(&setup, &dir).0["works"], true);
    fs::set_permissions(dir.join(PRELOAD), Permissions::from_mode(0o000)).expect("ours");
    assert!(cause(&agreed(&setup, &dir).0).contains(PRELOAD));
}

#[test]
fn too_little_address_space() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let mut seen = [false; 2];
    for kib in [200_000, 1_000_000, 16_000_000] {
        let words = ["sh", "-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"].map(Into::into).to_vec();
        let (report, _) = agreed(&Setup { launcher: words, ..Setup::new() }, &dir);
        let works = report["works"] == true;
        assert!(works || cause(&report).contains("ulimit -v"), "{report:#}");
        seen[usize::from(works)] = true;
    }
    assert_eq!(seen, [true; 2], "both were to be seen");
}

#[test]
fn the_limit_that_is_in_the_way_is_named() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    for (limit, named) in [("-d 4000000", "ulimit -d"), ("-f 1000", "ulimit -f"), ("-s 52", "ulimit -s")] {
        let words = ["sh", "-c", &format!("ulimit {limit}; exec \"$@\""), "sh"].map(Into::into).to_vec();
        let (report, _) = agreed(&Setup { launcher: words, ..Setup::new() }, &dir);
        assert!(report["works"] == false && cause(&report).contains(&format!("(see {named})")), "{limit}: {report:#}");
    }
}

#[test]
fn a_fault_source_that_was_asked_for_and_is_refused_is_named() {
    if plain_mode() {
        return;
    }
    for (errno, meaning) in [("EPERM", "it is forbidden"), ("ENOSYS", "the kernel does not have it")] {
        let setup = Setup::denied(errno).option("--fault-source", "move");
        let end = setup.managed(32 * MIB, "true").run().exited(125);
        let named = format!("the fault source move does not work ({errno}: {meaning}");
        let told = end.errors();
        assert!(told.contains(&named) && told.contains("leave --fault-source out"), "{}", end.describe());
        assert!(told.contains("outswap doctor") && told.lines().count() == 1, "{}", end.describe());
    }
}

#[test]
fn where_no_thread_can_be_made() {
    if plain_mode() {
        return;
    }
    let setup = Setup::without_threads();
    let (report, _) = agreed(&setup, &Tmp::new());
    assert_eq!(report["works"], true, "{report:#}");
    for source in report["sources"].as_array().expect("an array") {
        let error = source["error"].as_str().expect("it was not tried to the end");
        assert!(!error.contains("signal") && (error.contains("no thread") || source["source"] != "move"), "{source}");
    }
    let table = setup.doctor().run().exited(0);
    assert_eq!(table.errors(), "", "no panic");
    let used = report["fault_source"].as_str().expect("it works");
    let row = table.text().lines().find(|line| line.trim().starts_with(used)).expect("it has a row").to_owned();
    assert!(row.contains("limited"), "{row}");
    assert!(!table.text().contains("report this kernel"), "{}", table.text());
}

#[test]
fn a_refused_userfaultfd_is_fallen_back_from_and_told_of() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    for errno in ["EPERM", "ENOSYS"] {
        let setup = Setup::denied(errno);
        let (report, run) = agreed(&setup, &dir);
        let source = report["fault_source"].as_str().expect("it works");
        assert_eq!(Some(source), setup.fault_source());
        let told = format!("outswap: warning: userfaultfd is refused ({errno}): the fault source {source} is used");
        assert!(run.errors().starts_with(&told) && run.errors().lines().count() == 1, "{}", run.describe());
        let asked = setup.clone().option("--fault-source", source).managed(32 * MIB, "true").run().succeeded();
        assert_eq!(asked.errors(), "", "who asks for it knows");
        let mut quiet = setup;
        quiet.options.push("--quiet".into());
        assert_eq!(quiet.managed(32 * MIB, "true").run().succeeded().errors(), "");
    }
}

#[test]
fn filters_that_are_refused() {
    if plain_mode() {
        return;
    }
    let (report, _) = agreed(&Setup::without_filters(), &Tmp::new());
    assert!(cause(&report).contains("seccomp"), "{report:#}");
}

#[test]
fn no_proc() {
    if plain_mode() {
        return;
    }
    let setup = Setup::without_proc();
    let dir = Tmp::new();
    if setup.plain("true").run().status.code() == Some(124) {
        eprintln!("no mounts of one's own here: not tried");
        return;
    }
    let (report, _) = agreed(&setup, &dir);
    assert!(cause(&report).contains("/proc"), "{report:#}");
}

#[test]
fn a_swap_directory_in_memory() {
    if plain_mode() {
        return;
    }
    const MEMORY: &str = "/dev/shm";
    let is_memory = |directory: &str| {
        let kind = Setup::new().plain("stat").args(["-f", "-c", "%T", directory]).run().text();
        ["tmpfs", "ramfs"].contains(&kind.trim())
    };
    if !is_memory(MEMORY) || is_memory("/var/tmp") {
        eprintln!("no directory in memory beside one on a disk here: not tried");
        return;
    }
    let run = |swap: &str, named: bool, quiet: bool| {
        let mut setup = Setup::new().option("--swap", swap);
        if named {
            setup = setup.option("--swap-dir", MEMORY);
        }
        if quiet {
            setup.options.push("--quiet".into());
        }
        setup.managed(32 * MIB, "true").env("TMPDIR", MEMORY).run().succeeded().errors()
    };
    let told = run("compressed,file", true, false);
    assert!(told.starts_with("outswap: warning: the swap directory /dev/shm lies in memory"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(run("compressed,file", true, true), "");
    assert_eq!(run("compressed", true, false), "", "no file is made");
    assert_eq!(run("compressed,file", false, false), "", "nobody named it, and /var/tmp is better");
    let report = Setup::new().doctor().arg("--json").env("TMPDIR", MEMORY).run().exited(0);
    let report: Value = serde_json::from_slice(&report.stdout).expect("one JSON object");
    let value = value_of(&report, "swap_dir");
    assert!(value.starts_with("/var/tmp:"), "{value}");
}

#[test]
fn statistics_that_cannot_be_written() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let stats = dir.join("stats.json");
    let refused = Setup::new().doctor().arg("--json").env("OUTSWAP_STATS", dir.join("no/stats.json")).run().exited(125);
    assert!(refused.text().contains("--stats: cannot write"), "run would not start: {}", refused.describe());
    Setup::new().doctor().env("OUTSWAP_STATS", &stats).run().exited(0);
    assert!(!stats.exists(), "nothing was run");
}
