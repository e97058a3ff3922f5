//! System calls on memory that is there, which need no trap. (What they do, `tests/calls/direct.c` looks at.)
use outswap_e2e::{MIB, Setup, Tmp, build, plain_mode, stats};

/// What `tests/programs/reads.c` makes of each kind.
const READS: u64 = 10_000;

/// Runs it; gives the calls that were made directly, and those that were trapped.
fn calls(setup: Setup, preload: Option<(&str, &std::path::Path)>) -> [u64; 2] {
    calls_of("tests/programs/reads.c", setup, preload)
}

/// The same of another program.
fn calls_of(program: &str, setup: Setup, preload: Option<(&str, &std::path::Path)>) -> [u64; 2] {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let setup = setup.option("--stats", &file.to_string_lossy());
    let mut run = setup.managed(32 * MIB, build::program(program));
    if let Some((library, seen)) = preload {
        run = run.env("LD_PRELOAD", library).env("SEEN", seen);
    }
    assert_eq!(run.run().succeeded().text(), "ok\n");
    let stats = stats::read(file);
    ["calls_direct", "calls_trapped"].map(|name| stats["counters"][name].as_u64().expect("it is counted"))
}

#[test]
fn calls_on_memory_that_is_there_are_not_trapped() {
    if plain_mode() {
        return;
    }
    for source in ["move", "copy", "mprotect"] {
        let [direct, trapped] = calls(Setup::new().option("--fault-source", source), None);
        assert!(direct >= 4 * READS - 100 && trapped < 100, "{source}: {direct} direct, {trapped} trapped");
    }
}

#[test]
fn they_can_all_be_trapped() {
    if plain_mode() {
        return;
    }
    let [direct, trapped] = calls(Setup::new().option("--mechanism", "calls=trapped"), None);
    assert!(direct == 0 && trapped >= 4 * READS, "{direct} direct, {trapped} trapped");
}

/// Another library that stands in front of a function of the C library sees all its calls.
#[test]
fn libraries_of_the_users_see_the_calls_that_they_stand_in_front_of() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let (library, seen) = (build::library("tests/programs/sees_reads.c"), dir.join("seen"));
    let [direct, trapped] = calls(Setup::new(), Some((&library.to_string_lossy(), &seen)));
    // The supervisor has loaded it, too.
    let reads = std::fs::read_to_string(&seen).expect("it was loaded");
    assert!(reads.lines().any(|line| line == format!("{READS} {READS}")), "{reads}");
    assert!(direct.abs_diff(2 * READS) < 100 && trapped >= 2 * READS, "{direct} direct, {trapped} trapped");
}

/// Locks on the heap, of more threads than may have direct calls in progress at first.
#[test]
fn calls_of_locks_are_not_trapped_once_there_are_threads() {
    if plain_mode() {
        return;
    }
    // Each turn is one call at least; each thread needs some traps to begin and to end.
    const TURNS: u64 = 10_000;
    let program = "tests/programs/turns.c";
    for source in ["move", "mprotect"] {
        let [direct, trapped] = calls_of(program, Setup::new().option("--fault-source", source), None);
        assert!(direct >= TURNS && trapped < TURNS / 4, "{source}: {direct} direct, {trapped} trapped");
    }
    let [direct, trapped] = calls_of(program, Setup::new().option("--mechanism", "calls=trapped"), None);
    assert!(direct == 0 && trapped >= TURNS, "{direct} direct, {trapped} trapped");
}

/// `posix_spawn` asks for each signal and resets it.
#[test]
fn to_start_a_program_asks_for_signals_without_traps() {
    if plain_mode() {
        return;
    }
    let trapped = |setup: Setup| {
        let dir = Tmp::new();
        let file = dir.join("stats.json");
        let setup = setup.option("--stats", &file.to_string_lossy());
        assert_eq!(setup.managed(32 * MIB, build::program("tests/programs/spawns.c")).run().succeeded().text(), "ok\n");
        stats::read(file)["counters"]["calls_trapped"].as_u64().expect("it is counted")
    };
    // In the children, too, there are some.
    const SPAWNS: u64 = 50;
    let (direct, all) = (trapped(Setup::new()), trapped(Setup::new().option("--mechanism", "calls=trapped")));
    assert!(direct < SPAWNS * 30 && all > SPAWNS * 100, "{direct} trapped, {all} where all are");
}
