//! The engine on a simulated machine: random programs under random schedules, with things going wrong, against a plain
//! array of pages.
//!
//! `OUTSWAP_SIM_SEEDS=N` runs N seeds, `OUTSWAP_SIM_SEED=N` runs seed N alone.
mod sim;

use sim::machine::Sabotage;
use sim::program::{Options, Outcome, run_seed};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

const SEEDS: u64 = 3000;
const SEEDS_PARALLEL: u64 = 300;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Keeps this thread, and those that it starts, on one processor: handing the baton on is several times faster so.
fn stay_on_one_cpu(worker: usize) {
    unsafe extern "C" {
        fn sched_getaffinity(pid: i32, bytes: usize, mask: *mut u64) -> i32;
        fn sched_setaffinity(pid: i32, bytes: usize, mask: *const u64) -> i32;
    }
    let mut mask = [0u64; 16];
    let bytes = std::mem::size_of_val(&mask);
    // SAFETY: the mask is valid for its size.
    if unsafe { sched_getaffinity(0, bytes, mask.as_mut_ptr()) } <= 0 {
        return;
    }
    let cpus: Vec<usize> = (0..1024).filter(|&c| mask[c / 64] & 1 << (c % 64) != 0).collect();
    if let Some(&cpu) = cpus.get(worker % cpus.len().max(1)) {
        let mut one = [0u64; 16];
        one[cpu / 64] = 1 << (cpu % 64);
        // SAFETY: as above. Where it fails, the run is slower.
        unsafe { sched_setaffinity(0, bytes, one.as_ptr()) };
    }
}

/// Runs seeds on all processors; fails with the smallest seed that failed.
fn run_seeds(seeds: std::ops::Range<u64>, options: Options) -> Vec<Outcome> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let results: Vec<(Vec<Outcome>, Option<(u64, String)>)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let (next, stop, seeds) = (&next, &stop, &seeds);
                scope.spawn(move || {
                    if !options.parallel {
                        stay_on_one_cpu(worker);
                    }
                    let mut outcomes = Vec::new();
                    while !stop.load(Relaxed) {
                        let seed = next.fetch_add(1, Relaxed);
                        if seed >= seeds.end {
                            break;
                        }
                        match run_seed(seed, options) {
                            Ok(outcome) => outcomes.push(outcome),
                            Err(message) => {
                                stop.store(true, Relaxed);
                                return (outcomes, Some((seed, message)));
                            }
                        }
                    }
                    (outcomes, None)
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("panics are caught within")).collect()
    });
    if let Some((seed, message)) = results.iter().filter_map(|r| r.1.clone()).min() {
        let replay = if options.parallel {
            "(threads ran at once: it may need many runs to fail again)".to_owned()
        } else {
            format!("replay: OUTSWAP_SIM_SEED={seed} cargo test -p outswap-core --release --test simulation random_programs")
        };
        panic!("seed {seed}: {message}\n{replay}");
    }
    results.into_iter().flat_map(|r| r.0).collect()
}

#[test]
fn random_programs() {
    let seeds = match number("OUTSWAP_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OUTSWAP_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let many = seeds.end - seeds.start >= 1000;
    let outcomes = run_seeds(seeds, Options::USUAL);
    let mut events = [0; outswap_core::machine::EVENTS];
    for outcome in &outcomes {
        events.iter_mut().zip(outcome.events).for_each(|(sum, n)| *sum += n);
    }
    let steps: u64 = outcomes.iter().map(|o| o.steps).sum();
    let forks: u64 = outcomes.iter().map(|o| o.forks).sum();
    println!("{} seeds, {steps} steps, {forks} forks, events {events:?}", outcomes.len());
    if many {
        // A harness that no longer reaches a part of the engine proves nothing about it.
        assert!(events.iter().all(|&n| n > 0), "every kind of event happens: {events:?}");
        assert!(forks > 0);
    }
}

#[test]
fn random_programs_with_threads_at_once() {
    let seeds = number("OUTSWAP_SIM_SEEDS").map_or(SEEDS_PARALLEL, |n| n / 10);
    let outcomes = run_seeds(0..seeds, Options { parallel: true, forks: false, ..Options::USUAL });
    assert_eq!(outcomes.len() as u64, seeds);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let first = run_seed(seed, Options::USUAL).expect("checked elsewhere");
        let second = run_seed(seed, Options::USUAL).expect("checked elsewhere");
        assert_eq!((first.trace, first.steps, first.events), (second.trace, second.steps, second.events), "seed {seed}");
    }
}

/// Every defect that a machine or store may have must be noticed, or the other tests prove nothing.
#[test]
fn defects_are_noticed() {
    for sabotage in [
        Sabotage::StoreWrongPage,
        Sabotage::StoreForgets,
        Sabotage::PutWrongByte,
        Sabotage::LosesWrite,
        Sabotage::TakeOldContent,
        Sabotage::KeepsDropped,
        Sabotage::TransferEmpty,
    ] {
        let options = Options { sabotage, forks: false, ..Options::USUAL };
        let failures: Vec<String> = (0..12).filter_map(|seed| run_seed(seed, options).err()).collect();
        assert!(!failures.is_empty(), "{sabotage:?} was not noticed");
        println!("{sabotage:?}: {} of 12 seeds, such as: {}", failures.len(), failures[0]);
    }
}
