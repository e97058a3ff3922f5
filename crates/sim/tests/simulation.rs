//! The pager on a simulated machine: random programs under random schedules, with things going wrong, against a plain
//! array of pages.
//!
//! `OUTSWAP_SIM_SEEDS=N` runs N seeds, `OUTSWAP_SIM_SEED=N` runs seed N alone.

use outswap_core::fault::{Fault, Faulting, Progress};
use outswap_core::machine::{Event, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::room::Step;
use outswap_core::slots::CLUSTER_SLOTS;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::run::look;
use outswap_sim::run::run_seed;
use outswap_sim::sabotage::Sabotage;
use outswap_sim::slow::Slow;
use outswap_sim::store::{SimStore, Trouble, Worker};
use outswap_sim::world::{Arena, Options, Outcome, context};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

const SEEDS: u64 = 1000;
const SEEDS_PARALLEL: u64 = 300;
const SEEDS_LARGE: u64 = 40;

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

/// Runs every `stride`th seed; gives the first that failed, and why.
fn run_seeds(seeds: Range<u64>, stride: usize, options: Options) -> Result<Outcome, (u64, String)> {
    let mut sum = Outcome::default();
    for seed in seeds.step_by(stride) {
        sum.add(&run_seed(seed, options).map_err(|message| (seed, message))?);
    }
    Ok(sum)
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Runs seeds on all processors, each in a process of its own: a seed may fork, and no other thread may be starting or
/// ending then.
fn run_in_processes(seeds: Range<u64>) -> Outcome {
    let program = std::env::current_exe().expect("a test knows where it is");
    let children: Vec<_> = (0..workers())
        .map(|worker| {
            Command::new(&program)
                .args(["--exact", "simulation::random_programs", "--nocapture", "--test-threads=1"])
                .env("OUTSWAP_SIM_WORKER", format!("{worker} {} {} {}", seeds.start, seeds.end, workers()))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the test itself can be run")
        })
        .collect();
    let mut sum = Outcome::default();
    let mut failures = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().find_map(|l| l.strip_prefix("outcome ")) {
            Some(line) if output.status.success() => sum.add(&Outcome::parse(line)),
            _ => failures.push(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    sum
}

/// What seeds came to, of this test.
fn explain(result: Result<Outcome, (u64, String)>, test: &str) -> Outcome {
    result.unwrap_or_else(|(seed, message)| {
        panic!(
            "seed {seed}: {message}\nreplay: OUTSWAP_SIM_SEED={seed} cargo test -p outswap-sim --release --test \
             simulation -- --exact simulation::{test}"
        )
    })
}

#[test]
fn random_programs() {
    if let Ok(share) = std::env::var("OUTSWAP_SIM_WORKER") {
        let numbers: Vec<u64> = share.split(' ').map(|n| n.parse().expect("written by this test")).collect();
        let worker = numbers[0] as usize;
        stay_on_one_cpu(worker);
        let seeds = numbers[1] + numbers[0]..numbers[2];
        let outcome = explain(run_seeds(seeds, numbers[3] as usize, Options::USUAL), "random_programs");
        println!("\noutcome {}", outcome.line());
        return;
    }
    if let Some(seed) = number("OUTSWAP_SIM_SEED") {
        stay_on_one_cpu(0);
        explain(run_seeds(seed..seed + 1, 1, Options::USUAL), "random_programs");
        return;
    }
    let seeds = number("OUTSWAP_SIM_SEEDS").unwrap_or(SEEDS);
    let sum = run_in_processes(0..seeds);
    println!("{seeds} seeds, {} steps, {} forks, events {:?}", sum.steps, sum.forks, sum.events);
    assert_eq!(sum.seeds, seeds);
    if seeds >= 1000 {
        // A harness that no longer reaches a part of the pager proves nothing about it.
        assert!(sum.events.iter().all(|&n| n > 0), "every kind of event happens: {:?}", sum.events);
        assert!(sum.forks > 0);
    }
}

#[test]
fn random_programs_with_large_folios() {
    let seeds = match number("OUTSWAP_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OUTSWAP_SIM_SEEDS").map_or(SEEDS_LARGE, |n| n / 10),
    };
    let options = Options { large: true, forks: false, ..Options::USUAL };
    let sum = explain(run_seeds(seeds, 1, options), "random_programs_with_large_folios");
    println!("{} seeds, {} steps, events {:?}", sum.seeds, sum.steps, sum.events);
    if sum.seeds >= SEEDS_LARGE {
        assert!(sum.events[Event::FolioBlocks as usize] > sum.seeds / 2, "they are there: {:?}", sum.events);
    }
}

#[test]
fn random_programs_with_threads_at_once() {
    let seeds = number("OUTSWAP_SIM_SEEDS").map_or(SEEDS_PARALLEL, |n| n / 10);
    for seed in 0..seeds {
        let options = Options { parallel: true, forks: false, large: seed % 8 == 0, ..Options::USUAL };
        if let Err(message) = run_seed(seed, options) {
            panic!("seed {seed}: {message}\n(the threads ran at once: it may take many runs to fail again)");
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    let options = Options { forks: false, ..Options::USUAL };
    for seed in 0..20 {
        let first = run_seed(seed, options).expect("random programs pass");
        let second = run_seed(seed, options).expect("random programs pass");
        assert_eq!(
            (first.trace, first.steps, first.events),
            (second.trace, second.steps, second.events),
            "seed {seed}"
        );
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

fn config(pages: usize, batches: usize, orders: orders::Any) -> Config {
    Config {
        pages: pages as u32,
        slots: 2 * pages.max(CLUSTER_SLOTS),
        batches,
        pins: 1,
        mappings: 8,
        seed: 1,
        readahead: readahead::Kind::Streams,
        page_cluster: readahead::PAGE_CLUSTER,
        reclaim: reclaim::Kind::Fifo,
        orders,
        reuse: protection::Kind::Protect,
    }
}

/// A pager over `blocks` blocks, mapped as a whole, that works.
fn plain_pager(arena: &Arena, blocks: usize, chaos: Chaos) -> Box<SimPager> {
    pager_with(arena, blocks, chaos, orders::Any::Small, Trouble::default())
}

fn pager_with(arena: &Arena, blocks: usize, chaos: Chaos, orders: orders::Any, trouble: Trouble) -> Box<SimPager> {
    let pages = blocks * BLOCK_PAGES;
    let machine = SimMachine::new(1, pages, 8, 1, chaos, Sabotage::None);
    let store = SimStore::new(1, 2 * pages.max(CLUSTER_SLOTS), trouble, Sabotage::None);
    let config = config(pages, 8, orders);
    let pager = Box::new(Pager::new(machine, store, arena, config).expect("tables fit"));
    pager.machine.attach(&pager);
    assert!(pager.map(PageNo(0), pages as u32, Prot::READ_WRITE, false));
    pager
}

#[test]
fn blocks_that_are_refused_for_ever_do_not_hold_up_others() {
    const STUBBORN: usize = 600;
    const BUSY: usize = 40;
    let arena = Arena::default();
    let pager = plain_pager(&arena, STUBBORN + BUSY, Chaos::default());
    let mut cx = context();
    let stubborn = STUBBORN * BLOCK_PAGES;
    pager.machine.refuse(0..stubborn);
    (0..stubborn).for_each(|page| assert_eq!(pager.fault(PageNo(page as u32), Access::Write, &mut cx), Fault::Done));
    // A quarter of what the program works on fits beside them.
    let limit = (stubborn + BUSY * BLOCK_PAGES / 4) as u64;
    pager.set_limit_pages(limit);
    let (mut faults, mut over) = (0, 0);
    for round in 0..4u8 {
        let before = pager.machine.takes.load(Relaxed);
        for page in stubborn..stubborn + BUSY * BLOCK_PAGES {
            while pager.machine.access(page as u32, true, |content| content[0] += 1) != Found::Done {
                assert_eq!(pager.fault(PageNo(page as u32), Access::Write, &mut cx), Fault::Done);
                faults += 1;
            }
            pager.machine.access(page as u32, false, |content| assert_eq!(content[0], round + 1));
            over = over.max(pager.used_pages().saturating_sub(limit));
        }
        let takes = pager.machine.takes.load(Relaxed) - before;
        // Each of them is asked a few times, less and less often. Of the others some pages stay when a block's turn comes.
        let most = if round < 3 { 2 * STUBBORN } else { 0 } + 2 * BUSY;
        assert!(takes <= most as u64, "round {round}: {takes} attempts");
    }
    assert!(faults >= 4 * BUSY * BLOCK_PAGES * 3 / 4, "the others are evicted: {faults} faults");
    assert!(over <= 32, "{over} pages over the limit");
    pager.check();
}

#[test]
fn reclaim_ends_where_everything_is_refused() {
    const BLOCKS: usize = 300;
    // Steps of reclaim without success, blocks refused in each, and runs of pages in a block.
    const TAKES_MAX: u64 = 5 * 36;
    let arena = Arena::default();
    let pager = plain_pager(&arena, BLOCKS, Chaos::default());
    let mut cx = context();
    pager.machine.refuse(0..BLOCKS * BLOCK_PAGES);
    pager.set_limit_pages(10);
    for page in 0..(BLOCKS * BLOCK_PAGES) as u32 {
        let takes = pager.machine.takes.load(Relaxed);
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        let takes = pager.machine.takes.load(Relaxed) - takes;
        assert!(takes <= TAKES_MAX, "{takes} attempts in one fault");
    }
    pager.check();
}

#[test]
fn a_page_is_handed_over_once() {
    const PAGES: u32 = 4;
    let arena = Arena::default();
    let pager = plain_pager(&arena, 1, Chaos::default());
    let (mut cx, mut others) = (context(), context());
    for page in 0..PAGES {
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        let wrote = pager.machine.access(page, true, |content| content[..4].copy_from_slice(&(page + 1).to_le_bytes()));
        assert_eq!(wrote, Found::Done);
    }
    // The first is refused once. When the last has gone, another thread touches one that has gone before.
    pager.machine.refuse(0..1);
    let mut handed = Vec::new();
    let call = pager.begin_call();
    let outcome = pager.take_content(PageNo(0), PAGES, &mut cx, |page, content| {
        if page == PageNo(PAGES - 1) {
            pager.machine.refuse(0..0);
            assert_eq!(pager.fault(PageNo(1), Access::Write, &mut others), Fault::Done);
        }
        handed.push((page.0, u32::from_le_bytes(content[..4].try_into().expect("4 bytes"))));
    });
    drop(call);
    assert_eq!(outcome, Ok(()));
    handed.sort();
    assert_eq!(handed, (0..PAGES).map(|page| (page, page + 1)).collect::<Vec<_>>());
}

#[test]
fn a_move_ends_where_the_machine_refuses() {
    const PAGES: u32 = 2 * BLOCK_PAGES as u32;
    let arena = Arena::default();
    let pager = plain_pager(&arena, 4, Chaos { transfer_refused_in: 1, ..Chaos::default() });
    let mut cx = context();
    let write = |page: u32, cx: &mut Context<_>| {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done);
        assert_eq!(
            pager.machine.access(page, true, |content| content[..4].copy_from_slice(&page.to_le_bytes())),
            Found::Done
        );
    };
    // What can be evicted moves all the same.
    (0..10).for_each(|page| write(page, &mut cx));
    assert_eq!(pager.move_pages(PageNo(0), PageNo(PAGES), 10, &mut cx), 10);
    for page in 0..10u32 {
        assert_eq!(pager.fault(PageNo(PAGES + page), Access::Write, &mut cx), Fault::Done);
        pager.machine.access(PAGES + page, false, |content| assert_eq!(content[..4], page.to_le_bytes()));
    }
    // What cannot be stays where it is, and all after it.
    (20..30).for_each(|page| write(page, &mut cx));
    pager.machine.refuse(25..26);
    assert_eq!(pager.move_pages(PageNo(20), PageNo(PAGES + 20), 10, &mut cx), 5);
    assert_eq!(pager.move_pages(PageNo(PAGES + 20), PageNo(20), 5, &mut cx), 5);
    for page in 20..30u32 {
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        pager.machine.access(page, false, |content| assert_eq!(content[..4], page.to_le_bytes()));
    }
    pager.check();
}

/// Writes a page's number there as a program does; how many faults that took.
fn touch(pager: &SimPager, page: u32, cx: &mut Context<Worker>) -> u32 {
    let mut faults = 0;
    while write_number(&pager.machine, page) != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
        faults += 1;
    }
    faults
}

#[test]
fn streams_pass_the_borders_of_the_machines_own_mappings() {
    const BLOCKS: usize = 12;
    const PAGES: u32 = (BLOCKS * BLOCK_PAGES) as u32;
    // Also within what a stream that enters a block would bring in at once.
    for border in [1, 2, 3, 7, 15, 16, 17, 63] {
        let arena = Arena::default();
        let pager = pager_with(&arena, BLOCKS, Chaos::default(), orders::Any::AsItCame, Trouble::default());
        let mut cx = context();
        (0..BLOCKS).for_each(|block| pager.machine.set_border(block * BLOCK_PAGES + border));
        pager.set_limit_pages(2 * BLOCK_PAGES as u64);
        for round in 0..2u8 {
            println!("border {border}, round {round}");
            for page in 0..PAGES {
                touch(&pager, page, &mut cx);
            }
            for page in 0..PAGES {
                assert_eq!(
                    pager.fault(PageNo(page), Access::Write, &mut cx),
                    Fault::Done,
                    "border {border}, page {page} read"
                );
                pager.machine.access(page, false, |content| assert_eq!(content[..4], (page + 1).to_le_bytes()));
            }
        }
        assert!(pager.machine.events[Event::FoliosIn as usize].load(Relaxed) > 0, "streams are followed elsewhere");
        pager.check();
    }
}

const STREAM_BLOCKS: u32 = 60;
const STREAM_PAGES: u32 = STREAM_BLOCKS * BLOCK_PAGES as u32;

fn pager_of_streams(arena: &Arena) -> Box<SimPager> {
    let pager = pager_with(arena, STREAM_BLOCKS as usize, Chaos::default(), orders::Any::AsItCame, Trouble::default());
    pager.set_limit_pages(STREAM_PAGES as u64 / 3);
    pager
}

#[test]
fn what_a_stream_will_touch_comes_before_it_gets_there() {
    let (arena, mut cx) = (Arena::default(), context());
    let pager = pager_of_streams(&arena);
    for page in 0..STREAM_PAGES {
        touch(&pager, page, &mut cx);
    }
    let faults: u32 = (0..STREAM_PAGES).map(|page| touch(&pager, page, &mut cx)).sum();
    // A fault a block, but for the start of the stream; four where nothing is read ahead, 64 where no stream is seen.
    assert!((STREAM_BLOCKS..STREAM_BLOCKS * 2).contains(&faults), "{faults} faults");
    pager.check();
}

#[test]
fn a_stream_downwards_comes_before_it_gets_there() {
    let (arena, mut cx) = (Arena::default(), context());
    let pager = pager_of_streams(&arena);
    // First touches, then pages that come back: a fault a folio each.
    for _ in 0..2 {
        let faults: u32 = (0..STREAM_PAGES).rev().map(|page| touch(&pager, page, &mut cx)).sum();
        assert!((STREAM_PAGES / 16..STREAM_PAGES / 16 + 8).contains(&faults), "{faults} faults");
    }
    pager.check();
}

/// Runs the instruction that was interrupted by a fault once more, as the program would.
fn write_number(machine: &SimMachine, page: u32) -> Found {
    machine.access(page, true, |content| content[..4].copy_from_slice(&(page + 1).to_le_bytes()))
}

fn count(machine: &SimMachine, event: Event) -> u64 {
    machine.events[event as usize].load(Relaxed)
}

/// A pager over a store whose reads and writes take time, and what the memory holds.
type SlowPager = Pager<SimMachine, Slow<SimStore>>;

const DELAY_NS: u64 = 10;
const PAUSE_NS: u64 = 100;

fn slow_pager(arena: &Arena, pages: u32, limit_pages: u64) -> Box<SlowPager> {
    let machine = SimMachine::new(1, pages as usize, 8, 1, Chaos::default(), Sabotage::None);
    let store = SimStore::new(1, 2 * CLUSTER_SLOTS, Trouble::default(), Sabotage::None);
    let store = Slow::new(store, machine.clock.clone(), DELAY_NS);
    let pager = Box::new(
        Pager::new(machine, store, arena, config(pages as usize, 8, orders::Any::AsItCame)).expect("tables fit"),
    );
    pager.machine.attach(&pager);
    assert!(pager.map(PageNo(0), pages, Prot::READ_WRITE, false));
    let mut cx = context();
    for page in 0..pages {
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        assert_eq!(write_number(&pager.machine, page), Found::Done);
    }
    pager.page_out(PageNo(0), pages, true, &mut cx);
    assert_eq!(pager.resident_pages(), 0);
    pager.set_limit_pages(limit_pages);
    pager
}

/// As many programs at once as there are contexts touch pages, one after the other, each with all others' steps between its own.
/// With `write`, each changes what it has touched. Returns how long that took.
fn touch_at_once(pager: &SlowPager, pages: &[u32], contexts: &mut [Box<Context<Worker>>], write: bool) -> u64 {
    let since_ns = pager.machine.clock.now_ns();
    let mut waiting = pages.iter();
    let mut running: Vec<Option<(u32, Faulting)>> = contexts.iter().map(|_| None).collect();
    let mut done = 0;
    while done < pages.len() {
        for (place, cx) in running.iter_mut().zip(&mut *contexts) {
            let Some((page, fault)) = place else {
                *place = waiting.next().map(|&page| (page, Faulting::touch(PageNo(page), Access::Write)));
                continue;
            };
            match pager.fault_step(fault, cx) {
                Progress::Wait(..) => {}
                Progress::Done(end) => {
                    assert_eq!(end, Fault::Done, "page {page}");
                    let access = pager.machine.access(*page, write, |content| {
                        assert_eq!(content[..4], (*page + 1).to_le_bytes());
                        content[5] = content[5].wrapping_add(write as u8);
                    });
                    // Another program's reclaim may have taken it again.
                    if access == Found::Missing {
                        *fault = Faulting::touch(PageNo(*page), Access::Write);
                        continue;
                    }
                    done += 1;
                    *place = None;
                }
            }
        }
        pager.machine.clock.pass_ns(1);
    }
    pager.machine.clock.now_ns() - since_ns
}

#[test]
fn faults_wait_for_their_reads_in_virtual_time() {
    const PAGES: u32 = 4 * BLOCK_PAGES as u32;
    const AT_ONCE: usize = 6;
    let arena = Arena::default();
    let pager = slow_pager(&arena, PAGES, 2 * PAGES as u64);
    let mut contexts: Vec<_> = (0..AT_ONCE).map(|_| context()).collect();
    // Pages far from each other, and two programs at the same one now and then.
    let pages: Vec<u32> = (0..48).map(|i| if i % 8 == 7 { i * 5 - 5 } else { i * 5 }).collect();
    let time_ns = touch_at_once(&pager, &pages, &mut contexts, false);
    let one_by_one_ns = pages.len() as u64 * DELAY_NS;
    assert_eq!(pager.store.most_at_once().0, AT_ONCE, "reads at once");
    assert!(time_ns < one_by_one_ns / 3, "{time_ns} ns; one by one {one_by_one_ns}");
    let waited_ns = count(&pager.machine, Event::FaultWaitNs);
    assert!(waited_ns > time_ns && waited_ns <= AT_ONCE as u64 * time_ns, "{waited_ns} ns waited in {time_ns}");
    pager.check();
}

#[test]
fn batches_wait_for_their_writes_in_virtual_time() {
    const PAGES: u32 = 4 * BLOCK_PAGES as u32;
    const LIMIT_PAGES: u64 = PAGES as u64 / 2;
    let time_ns = [1, 4].map(|at_once| {
        let arena = Arena::default();
        let pager = slow_pager(&arena, PAGES, LIMIT_PAGES);
        let mut contexts: Vec<_> = (0..at_once).map(|_| context()).collect();
        let pages: Vec<u32> = (0..4 * PAGES).map(|i| i * 37 % PAGES).collect();
        let time_ns = touch_at_once(&pager, &pages, &mut contexts, true);
        let (reads, writes) = pager.store.most_at_once();
        assert!(
            (reads > 1) == (at_once > 1) && (writes > 1) == (at_once > 1),
            "{reads} reads, {writes} writes at once"
        );
        assert!(count(&pager.machine, Event::PagesTaken) > 3 * PAGES as u64);
        pager.check();
        time_ns
    });
    assert!(time_ns[1] * 2 < time_ns[0], "{time_ns:?} ns by one program, and by four");
}

#[test]
fn what_calls_bring_in_is_no_stream_of_the_programs() {
    let arena = Arena::default();
    let pager = pager_with(&arena, 2, Chaos::default(), orders::Any::AsItCame, Trouble::default());
    let mut cx = context();
    for page in 0..BLOCK_PAGES as u32 {
        touch(&pager, page, &mut cx);
    }
    pager.page_out(PageNo(0), BLOCK_PAGES as u32, true, &mut cx);
    // One call after the other reads one page after the other; then the program touches the next.
    for page in 0..20 {
        assert_eq!(pager.pin(PageNo(page), 1, Access::Write, &mut cx), (1, Fault::Done));
    }
    assert_eq!(pager.resident_pages(), 20, "a call brings what it needs");
    touch(&pager, 20, &mut cx);
    assert_eq!(pager.resident_pages(), 21, "nothing says that the program goes on there");
    // A call that needs much has it brought by the folio.
    let before = count(&pager.machine, Event::FoliosIn);
    assert_eq!(pager.pin(PageNo(32), 32, Access::Write, &mut cx), (32, Fault::Done));
    assert_eq!(count(&pager.machine, Event::FoliosIn), before + 2);
    pager.check();
}

#[test]
fn a_page_touched_while_isolated_is_passed_by_once() {
    let arena = Arena::default();
    let pager = plain_pager(&arena, 1, Chaos::default());
    let mut cx = context();
    for page in 0..8 {
        touch(&pager, page, &mut cx);
    }
    pager.page_out(PageNo(0), 8, false, &mut cx);
    assert_eq!(touch(&pager, 5, &mut cx), 1, "it was isolated");
    touch(&pager, 20, &mut cx);
    assert_eq!(pager.reclaim(&mut cx), Step::Isolated);
    assert_eq!((pager.state(PageNo(20)), pager.state(PageNo(5))), (State::Isolated, State::Resident));
    assert_eq!(pager.reclaim(&mut cx), Step::Isolated);
    assert_eq!(pager.state(PageNo(5)), State::Isolated);
    pager.check();
}

#[test]
fn what_did_not_change_is_not_stored_again() {
    const PAGES: u32 = 32;
    let arena = Arena::default();
    let pager = plain_pager(&arena, 1, Chaos::default());
    let mut cx = context();
    for page in 0..PAGES {
        touch(&pager, page, &mut cx);
    }
    for round in 0..3 {
        pager.page_out(PageNo(0), PAGES, true, &mut cx);
        assert_eq!(count(&pager.machine, Event::PagesClean), (PAGES as u64 - 4) * round, "round {round}");
        for page in 0..PAGES {
            assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        }
        for page in 0..4 {
            pager.machine.access(page, true, |content| content[100] ^= 1);
        }
    }
    pager.check();
}

#[test]
fn a_store_that_gives_something_else_is_noticed_before_the_program_is() {
    let arena = Arena::default();
    let pager = plain_pager(&arena, 1, Chaos::default());
    let mut cx = context();
    touch(&pager, 3, &mut cx);
    pager.store.damage_puts();
    pager.page_out(PageNo(3), 1, true, &mut cx);
    assert_eq!(pager.fault(PageNo(3), Access::Write, &mut cx), Fault::Corrupt);
    assert_eq!(pager.machine.access(3, false, |_| ()), Found::Missing);
    assert_eq!((count(&pager.machine, Event::Corruptions), pager.state(PageNo(3))), (1, State::Swapped));
}

#[test]
fn pages_of_zeros_are_not_stored() {
    let arena = Arena::default();
    let pager = plain_pager(&arena, 1, Chaos::default());
    let mut cx = context();
    for page in 0..8 {
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
    }
    write_number(&pager.machine, 3);
    pager.page_out(PageNo(0), 8, true, &mut cx);
    assert_eq!((count(&pager.machine, Event::PagesZero), pager.used_slots()), (7, 1));
    assert_eq!(pager.state(PageNo(2)), State::Zero);
    pager.check();
}

#[test]
fn what_came_in_whole_goes_out_whole() {
    let arena = Arena::default();
    let pager = pager_with(&arena, 1, Chaos::default(), orders::Any::AsItCame, Trouble::default());
    let mut cx = context();
    // A stream is seen after a few pages; from then on whole folios are touched.
    for page in 0..BLOCK_PAGES as u32 {
        touch(&pager, page, &mut cx);
    }
    for round in 1..=3 {
        pager.page_out(PageNo(0), BLOCK_PAGES as u32, true, &mut cx);
        // The first one was touched page by page, then it came in whole like the others.
        assert_eq!(count(&pager.machine, Event::FoliosOut), 4 * round - 1, "round {round}");
        assert_eq!(pager.pin(PageNo(0), BLOCK_PAGES as u32, Access::Write, &mut cx), (BLOCK_PAGES as u32, Fault::Done));
        for page in 0..BLOCK_PAGES as u32 {
            pager.machine.access(page, true, |content| content[50] ^= 1);
        }
    }
    assert_eq!(count(&pager.machine, Event::FolioFallbacks), 0);
    pager.check();
}

#[test]
fn a_folio_that_has_no_room_goes_in_smaller_ones() {
    const ROOM_PAGES: usize = 41;
    let arena = Arena::default();
    let trouble = Trouble { capacity: ROOM_PAGES, ..Trouble::default() };
    let pager = pager_with(&arena, 1, Chaos::default(), orders::Any::Largest, trouble);
    let mut cx = context();
    for page in 0..BLOCK_PAGES as u32 {
        touch(&pager, page, &mut cx);
    }
    pager.page_out(PageNo(0), BLOCK_PAGES as u32, true, &mut cx);
    // 64 have no room, 32 have; of the other half 32 and 16 have none, 8 have; then 8, 4 and 2 have none, and one page has.
    assert_eq!((count(&pager.machine, Event::FoliosOut), count(&pager.machine, Event::FolioFallbacks)), (2, 6));
    assert_eq!((pager.used_slots(), pager.store.used_slots()), (ROOM_PAGES as u64, ROOM_PAGES as u64));
    for page in 0..BLOCK_PAGES as u32 {
        assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
        let found = pager.machine.access(page, false, |content| assert_eq!(content[..4], (page + 1).to_le_bytes()));
        assert_eq!(found, Found::Done);
    }
    pager.check();
}

/// Faults on blocks that are used all the time, while others are read once.
fn faults_on_what_is_used(reclaim: reclaim::Kind) -> u64 {
    const BLOCKS: usize = 40;
    const USED: u32 = 4;
    let arena = Arena::default();
    let pages = BLOCKS * BLOCK_PAGES;
    let machine = SimMachine::new(1, pages, 8, 1, Chaos::default(), Sabotage::None);
    let store = SimStore::new(1, 2 * pages, Trouble::default(), Sabotage::None);
    let config = Config { reclaim, ..config(pages, 8, orders::Any::Small) };
    let pager: Box<SimPager> = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
    pager.machine.attach(&pager);
    assert!(pager.map(PageNo(0), pages as u32, Prot::READ_WRITE, false));
    pager.set_limit_pages(12 * BLOCK_PAGES as u64);
    let mut cx = context();
    let mut faults = 0;
    for once in 0..3 * pages as u32 {
        touch(&pager, USED * BLOCK_PAGES as u32 + once % (pages as u32 - USED * BLOCK_PAGES as u32), &mut cx);
        faults += touch(&pager, once * 37 % (USED * BLOCK_PAGES as u32), &mut cx) as u64;
        pager.machine.clock.pass_ns(PAUSE_NS);
        if pager.look_is_due() {
            look(&pager, pages);
        }
    }
    pager.check();
    faults
}

#[test]
fn what_the_program_uses_stays() {
    let (fifo, accessed) =
        (faults_on_what_is_used(reclaim::Kind::Fifo), faults_on_what_is_used(reclaim::Kind::Accessed));
    // Each of the 256 pages in use is touched for the first time once.
    assert!(accessed <= 2 * 256 && fifo > 4 * accessed, "{accessed} faults where accesses are known, {fifo} where not");
}
