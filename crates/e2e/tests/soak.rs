//! The stress whose every byte is looked at (`tests/soak/stress.c`), and random calls on memory beside those of a plain run
//! (`tests/soak/memory_calls.c`) and on all else (`tests/soak/other_calls.c`), with every fault source. With `OUTSWAP_SOAK_S`, for so
//! many seconds over every source and store, until the first failure (`make soak`); over those sources alone that
//! `OUTSWAP_SOAK_SOURCES` names with commas between, for a kernel that has not all.
use libtest_mimic::{Arguments, Failed, Trial};
use outswap_e2e::sample::Sample;
use outswap_e2e::{MIB, Outcome, Run, Setup, Tmp, build, env_or, plain_mode, setup, stats};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SOURCES: [&str; 4] = ["move", "copy", "guard", "mprotect"];
/// What each process of the stress works on, and how many threads it has.
const DATA_MIB: u64 = 96;
const THREADS: u64 = 3;
const RAM_BYTES: u64 = 80 * MIB;
/// One run of a soak. Many short ones see more starts and ends than a long one.
const RUN_S: u64 = 60;
/// One run where no soak is asked for.
const SMOKE_S: u64 = 4;
/// Seeds of random calls where no soak is asked for; and the limit that is more than they use.
const SMOKE_SEEDS: std::ops::Range<u64> = 1..2;
const CALLS_RAM_BYTES: u64 = 1 << 30;
/// What a run may take beyond its time: the watchdog of the program itself is to speak first.
const GRACE_S: u64 = 240;

/// One way of running it.
#[derive(Clone, Copy)]
struct Way {
    source: &'static str,
    swap: &'static str,
    data_mib: u64,
}

/// The longest options first: without a file, all that does not fit would stay in memory.
fn ways() -> Vec<Way> {
    let mut list = Vec::new();
    let wanted = std::env::var("OUTSWAP_SOAK_SOURCES").unwrap_or_else(|_| SOURCES.join(","));
    for swap in ["compressed,file", "file", "compressed:zstd,file", "compressed"] {
        let data_mib = if swap == "compressed" { DATA_MIB / 2 } else { DATA_MIB };
        let sources = SOURCES.into_iter().filter(|source| wanted.split(',').any(|name| name == *source));
        list.extend(sources.map(|source| Way { source, swap, data_mib }));
    }
    assert!(!list.is_empty(), "OUTSWAP_SOAK_SOURCES names no source: {wanted}");
    list
}

fn command(way: Way, seconds: u64, seed: u64, stats: &str) -> Run {
    let stress = build::program("tests/soak/stress.c");
    let numbers = [seconds, seed, THREADS, way.data_mib].map(|n| n.to_string());
    let setup = Setup::new().option("--fault-source", way.source).option("--swap", way.swap).option("--stats", stats);
    setup.managed(RAM_BYTES, stress).args(numbers).timeout_s(seconds + GRACE_S)
}

/// Operations of a run, from what it printed.
fn operations(end: &Outcome) -> u64 {
    let text = end.text();
    let number = text.lines().find_map(|l| l.split_once(" operations:")).and_then(|(n, _)| n.parse().ok());
    number.unwrap_or_else(|| panic!("no number of operations: {}", end.describe()))
}

fn run(way: Way, seconds: u64, seed: u64) -> Outcome {
    let dir = Tmp::new();
    let stats = dir.join("stats.json");
    let end = command(way, seconds, seed, &stats.to_string_lossy()).dir(dir.path()).run().exited(0);
    assert!(end.text().ends_with("bad 0\n"), "{}", end.describe());
    assert!(operations(&end) > 0, "{}", end.describe());
    if !plain_mode() {
        let stats = stats::read(&stats);
        stats::nothing_lost(&stats).unwrap_or_else(|why| panic!("{why}: {}", end.describe()));
        // Without a file, what does not fit stays in memory, and Outswap says so.
        if !way.swap.contains("file") && stats["problems"]["over_budget"] != 0 {
            assert!(end.errors().contains("the limit is exceeded"), "{}", end.describe());
            return end;
        }
        if end.peak.within(RAM_BYTES).is_err() {
            eprintln!("{stats:#}");
        }
    }
    end.within(RAM_BYTES)
}

/// Programs that make calls at random.
struct Random {
    name: &'static str,
    program: &'static str,
    resident: &'static str,
    /// Of every second seed; of the others one.
    threads: u64,
}

const RANDOM: [Random; 2] = [
    Random { name: "memory_calls", program: "tests/soak/memory_calls.c", resident: "8M", threads: 3 },
    Random { name: "other_calls", program: "tests/soak/other_calls.c", resident: "4M", threads: 1 },
];

/// Random calls, plainly and managed: each is to end the same way, and all content is to be the same.
fn random_calls(random: &Random, source: &str, seed: u64, steps: u64) {
    let program = random.program;
    let calls = build::program(program);
    let setup = Setup::new().option("--fault-source", source).option("--swap", "compressed");
    let setup = setup.option("--resident", random.resident);
    let threads = if seed.is_multiple_of(2) { random.threads } else { 1 };
    let numbers = [seed, steps, threads].map(|n| n.to_string());
    let (dir, other) = (Tmp::new(), Tmp::new());
    let plain = setup.plain(&calls).args(&numbers).dir(dir.path()).timeout_s(GRACE_S).run().exited(0);
    let command = setup.managed(CALLS_RAM_BYTES, &calls).args(&numbers).dir(other.path()).timeout_s(GRACE_S);
    let end = command.run().exited(0);
    let (wanted, found) = (plain.text(), end.text());
    assert!(wanted.lines().count() as u64 > steps * threads, "the program said all that it did");
    if let Some((wanted, found)) = wanted.lines().zip(found.lines()).find(|(wanted, found)| wanted != found) {
        let words: Vec<_> = command.command.iter().map(|word| word.to_string_lossy()).collect();
        panic!(
            "plainly: {wanted}\nunder Outswap: {found}\nto repeat it (the program: cc -O1 -pthread {program}):\n{}",
            words.join(" ")
        );
    }
    assert_eq!(wanted.len(), found.len(), "{}", end.describe());
}

fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        catch_unwind(AssertUnwindSafe(test))
            .map_err(|payload| Failed::from(payload.downcast::<String>().map_or("panicked".into(), |text| *text)))
    })
}

fn smoke() -> Vec<Trial> {
    let stress = SOURCES.map(|source| {
        trial(format!("smoke::{source}"), move || {
            let way = Way { source, swap: "compressed,file", data_mib: DATA_MIB };
            println!("{source}: at most {}", run(way, SMOKE_S, u64::from(std::process::id())).peak.worst);
        })
    });
    let calls = RANDOM.iter().flat_map(|random| {
        SOURCES.map(|source| {
            let test = move || SMOKE_SEEDS.for_each(|seed| random_calls(random, source, seed, 1500));
            trial(format!("{}::{source}", random.name), test)
        })
    });
    stress.into_iter().chain(calls).collect()
}

fn soak(seconds: u64) -> ExitCode {
    let started = Instant::now();
    let ways = ways();
    let mut seed = env_or("OUTSWAP_SOAK_SEED", u64::from(std::process::id()));
    let (mut runs, mut total) = (0, 0);
    for (i, &way) in ways.iter().enumerate() {
        let until = Duration::from_secs(seconds * (i as u64 + 1) / ways.len() as u64);
        let (mut done, mut most) = (0, Sample::default());
        while started.elapsed() < until {
            let left_s = (until - started.elapsed()).as_secs().clamp(1, RUN_S);
            seed += 1;
            // It says itself how to repeat it.
            RANDOM.iter().for_each(|random| random_calls(random, way.source, seed, 3000));
            match catch_unwind(|| run(way, left_s, seed)) {
                Ok(end) => {
                    done += operations(&end);
                    if end.peak.worst.charged_bytes() > most.charged_bytes() {
                        most = end.peak.worst;
                    }
                }
                Err(payload) => {
                    if let Some(text) = payload.downcast_ref::<String>() {
                        eprintln!("{text}");
                    }
                    let words = command(way, left_s, seed, "stats.json").command;
                    let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
                    eprintln!("to repeat it (the program: cc -O1 -pthread tests/soak/stress.c):\n{}", words.join(" "));
                    return ExitCode::FAILURE;
                }
            }
            runs += 1;
        }
        println!("--fault-source {} --swap {}: {done} operations, at most {most}", way.source, way.swap);
        total += done;
    }
    println!("{total} operations in {runs} runs and {:.0} s, bad 0", started.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    if !plain_mode() {
        assert!(setup::outswap().is_file());
    }
    match env_or("OUTSWAP_SOAK_S", 0) {
        0 => libtest_mimic::run(&Arguments::from_args(), smoke()).exit_code(),
        seconds => soak(seconds),
    }
}
