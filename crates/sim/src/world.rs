//! What a program of a seed runs in: the pager, the machine, and a plain model of what must be found.
use crate::machine::{Chaos, SimMachine, SimPager};
use crate::sabotage::Sabotage;
use crate::sched::Rng;
use crate::store::{SimStore, Trouble, Worker};
use outswap_core::machine::Prot;
use outswap_core::orders;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::slots::CLUSTER_SLOTS;
use outswap_core::store::Page;
use outswap_core::table::Reserve;
use outswap_core::units::{BLOCK_PAGES, Order, PAGE_BYTES, PageNo};
use outswap_core::{protection, readahead, reclaim};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};

/// Memory for the pager's tables.
#[derive(Default)]
pub struct Arena(Mutex<Vec<(usize, Layout)>>);

impl Arena {
    /// What of it would be in memory, bytes: pages of which anything is not zero. Nobody may write to it meanwhile.
    pub fn touched_bytes(&self) -> usize {
        let tables = self.0.lock().expect("no panic while held");
        let touched = |(base, layout): &(usize, Layout)| {
            // SAFETY: allocated below with this layout, as zeros, and nobody writes.
            let table = unsafe { std::slice::from_raw_parts(*base as *const u8, layout.size()) };
            table.chunks(PAGE_BYTES).filter(|page| page.iter().any(|byte| *byte != 0)).count() * PAGE_BYTES
        };
        tables.iter().map(touched).sum()
    }
}

impl Reserve for Arena {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).expect("sizes are small");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        self.0.lock().expect("no panic while held").push((base as usize, layout));
        base
    }
}
impl Drop for Arena {
    fn drop(&mut self) {
        for (base, layout) in self.0.get_mut().expect("no panic while held").drain(..) {
            // SAFETY: allocated above with this layout; the pager is gone.
            unsafe { dealloc(base as *mut u8, layout) };
        }
    }
}

pub(crate) const NOBODY: u8 = 255;
/// Owner of pages over which the kernel manages something else.
pub(crate) const FOREIGN: u8 = 254;

/// What the program believes: who may use which page, and what it holds.
pub(crate) struct Model {
    pub(crate) owner: Vec<AtomicU8>,
    pub(crate) prot: Vec<AtomicU8>,
    pub(crate) locked: Vec<AtomicBool>,
    /// `None` is a page of zeros.
    pub(crate) content: Vec<Mutex<Option<Box<Page>>>>,
    pub(crate) programs_left: AtomicUsize,
    /// System calls under way.
    pub(crate) calls: AtomicUsize,
}

/// One simulated process.
pub(crate) struct World {
    // Declared first: dropped before the memory it lies in.
    pub(crate) pager: Box<SimPager>,
    #[expect(dead_code, reason = "owns the tables' memory")]
    pub(crate) arena: Arena,
    pub(crate) model: Model,
    pub(crate) config: Config,
    pub(crate) setup: Setup,
    /// Whether to tell what the threads do (`OUTSWAP_SIM_TRACE`).
    pub(crate) told: bool,
}

/// What a seed decides before anything runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) threads: usize,
    pub(crate) reclaimer: bool,
    pub(crate) ops: usize,
    pub(crate) pages: usize,
    pub(crate) mapped: usize,
    pub(crate) max_limit: usize,
    pub(crate) grain: usize,
    pub(crate) trouble: Trouble,
    pub(crate) chaos: Chaos,
    pub(crate) no_memory: bool,
    /// Nothing goes wrong, and there are slots and batches for everybody.
    pub(crate) calm: bool,
    /// Long runs of one owner, written from start to end with content that is never zero: whole folios come and go.
    pub(crate) dense: bool,
    /// There is memory for folios of the highest order, and plenty of it until a limit is set.
    pub(crate) large: bool,
    /// The limit is not exceeded for want of room in the store, for a while.
    pub(crate) insists: bool,
}

/// How to run a seed.
#[derive(Clone, Copy)]
pub struct Options {
    /// Threads run at once, not in a schedule.
    pub parallel: bool,
    /// What is wrong with machine or store.
    pub sabotage: Sabotage,
    /// Programs may fork.
    pub forks: bool,
    /// There is memory for folios of the highest order.
    pub large: bool,
}
impl Options {
    /// As most tests run.
    pub const USUAL: Options = Options { parallel: false, sabotage: Sabotage::None, forks: true, large: false };
}

/// What a run did, to see that the seeds reach what they are meant to reach.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Programs.
    pub seeds: u64,
    /// A sum over all that was scheduled.
    pub trace: u64,
    /// Steps of the schedule.
    pub steps: u64,
    /// What the pagers counted.
    pub events: [u64; outswap_core::machine::EVENTS],
    /// Forks.
    pub forks: u64,
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome { seeds: 0, trace: 0, steps: 0, events: [0; outswap_core::machine::EVENTS], forks: 0 }
    }
}

impl Outcome {
    /// Adds another sum.
    pub fn add(&mut self, other: &Outcome) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.forks += other.forks;
        self.events.iter_mut().zip(other.events).for_each(|(sum, n)| *sum += n);
    }
    /// What [`Outcome::parse`] reads.
    pub fn line(&self) -> String {
        let numbers = [self.seeds, self.steps, self.forks].into_iter().chain(self.events);
        numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
    }
    /// Reads what [`Outcome::line`] wrote.
    pub fn parse(line: &str) -> Outcome {
        let mut numbers = line.split(' ').map(|n| n.parse().expect("written by `line`"));
        let mut next = || numbers.next().expect("written by `line`");
        let (seeds, steps, forks) = (next(), next(), next());
        let mut events = [0; outswap_core::machine::EVENTS];
        events.iter_mut().for_each(|e| *e = next());
        Outcome { trace: 0, seeds, steps, forks, events }
    }
}

/// The limit that programs begin with for which huge pages come.
const HUGE_LIMIT_PAGES: u64 = 1 << 13;

/// What a pager of so many pages has by itself, for a test.
pub fn config(pages: u32) -> Config {
    Config {
        pages,
        slots: 2 * (pages as usize).max(CLUSTER_SLOTS),
        batches: 32,
        pins: 8,
        mappings: 64,
        seed: 1,
        readahead: readahead::Kind::DEFAULT,
        page_cluster: readahead::PAGE_CLUSTER,
        reclaim: reclaim::Kind::DEFAULT,
        orders: orders::Any::DEFAULT,
        reuse: protection::Kind::Protect,
    }
}

/// A pager without mappings, and without threads or schedules around it.
///
/// # Panics
/// Where there is no memory for its tables.
pub fn pager(arena: &Arena, config: Config, chaos: Chaos, trouble: Trouble, limit_pages: u64) -> Box<SimPager> {
    let machine = SimMachine::new(1, config.pages as usize, config.batches, 1, chaos, Sabotage::None);
    let store = SimStore::new(1, config.slots, trouble, Sabotage::None);
    let pager = Box::new(Pager::new(machine, store, arena, config).expect("tables fit"));
    pager.machine.attach(&pager);
    pager.set_limit_pages(limit_pages);
    pager
}

/// Orders as they are by themselves, and huge pages.
pub fn with_huge() -> orders::Any {
    let bits = 1 << Order::PART.get() | 1 << Order::MAX.get();
    orders::Any::Listed(orders::Listed::new(bits).expect("both of them are there"))
}

/// Orders of which some are larger than a block: with huge pages, or, as often where `any`, of what came in whatever order.
fn draw_large(rng: &mut Rng, any: bool) -> orders::Any {
    let large = rng.pick(&[1, 3]);
    if any && rng.once_in(2) {
        return orders::Any::Largest;
    }
    let bits = 1 << Order::PART.get() | large << (Order::BLOCK.get() + 1) | 1 << Order::MAX.get();
    orders::Any::Listed(orders::Listed::new(bits).expect("all of them are there"))
}

/// A policy by its name, or one of orders of which each is switched on by itself.
fn draw_orders(rng: &mut Rng) -> orders::Any {
    if rng.once_in(4) {
        let huge = if rng.once_in(2) { 1 << Order::MAX.get() } else { 0 };
        let bits = rng.below(1 << Order::MAX.get()) as u64 | huge;
        return orders::Any::Listed(orders::Listed::new(bits).expect("all of them are there"));
    }
    orders::Any::ALL[rng.below(orders::Any::ALL.len())].1
}

impl World {
    pub(crate) fn new(rng: &mut Rng, options: Options) -> World {
        // There are folios of the highest order, and plenty of memory until a limit is set, so that huge pages come. Few: they take long.
        let large = rng.once_in(100) || options.large;
        let blocks = if large { rng.range(17, 19) } else { rng.range(3, 14) };
        let pages = blocks * BLOCK_PAGES;
        let batches = rng.pick(&[1, 2, 3, 4, 6, 8]);
        let slots = rng.pick(&[512, 1024, 2048, 2048]) * if large { 4 } else { 1 };
        let troubled = rng.once_in(2);
        let broken = rng.once_in(4);
        let no_memory = rng.once_in(8);
        let chaotic = rng.once_in(2);
        let untraps_in = rng.pick(&[0, 0, 1, 3]);
        // What is left to the kernel is a part of the limit.
        let limits = match untraps_in {
            _ if large => (64, pages),
            0 => (8, 200.min(pages / 2)),
            _ => (64, 640.min(pages)),
        };
        let setup = Setup {
            threads: rng.range(1, 4),
            reclaimer: rng.once_in(2),
            ops: if large { rng.range(10, 40) } else { rng.range(30, 160) },
            pages,
            mapped: if large { pages - 32 } else { rng.range(pages / 4, pages * 3 / 4) },
            max_limit: rng.range(limits.0, limits.1),
            grain: rng.pick(&[1, 1, 16]),
            trouble: Trouble {
                full_in: if troubled { rng.pick(&[0, 5, 20, 100]) } else { 0 },
                burst: rng.pick(&[0, 3, 40]),
                io_in: if broken { rng.pick(&[3, 20]) } else { 0 },
                dead_in: if broken { rng.pick(&[0, 30, 100]) } else { 0 },
                corrupt_in: if broken { rng.pick(&[0, 30, 100]) } else { 0 },
                capacity: if troubled && rng.once_in(2) { rng.range(4, pages / 2) } else { 0 },
                later_in: rng.pick(&[0, 0, 1, 3]),
                slow_in: rng.pick(&[0, 0, 1, 2]),
                scarce_in: rng.pick(&[0, 1, 4]),
            },
            chaos: Chaos {
                take_refused_in: if chaotic { rng.pick(&[0, 3, 10, 60]) } else { 0 },
                maps_zero_in: rng.pick(&[0, 1, 3]),
                untraps_in,
                trap_refused_in: if chaotic { rng.pick(&[0, 4, 30]) } else { 0 },
                zeros_taken_in: [0, 1, 2][(slots + pages) / BLOCK_PAGES % 3],
                put_again_in: if chaotic { rng.pick(&[0, 4, 30]) } else { 0 },
                no_memory_in: if no_memory { 20 } else { 0 },
                transfer_refused_in: if chaotic { 5 } else { 0 },
                protect_refused_in: if chaotic { 10 } else { 0 },
                release_refused_in: if chaotic { rng.pick(&[0, 2, 20]) } else { 0 },
                drop_kept_in: if chaotic { rng.pick(&[0, 4, 30]) } else { 0 },
                border_in: if chaotic { rng.pick(&[0, 7, 40]) } else { 0 },
            },
            no_memory,
            calm: slots >= pages * 2 && batches >= 6 && !troubled && !broken && !chaotic && !no_memory,
            dense: large || rng.once_in(3),
            large,
            insists: rng.once_in(3),
        };
        let config = Config {
            pages: pages as u32,
            slots,
            batches,
            pins: rng.pick(&[1, 2, 8]),
            mappings: rng.pick(&[24, 200]),
            seed: rng.draw(),
            orders: if large { draw_large(rng, options.large) } else { draw_orders(rng) },
            readahead: readahead::Kind::ALL[rng.below(readahead::Kind::ALL.len())].1,
            page_cluster: rng.range(0, readahead::PAGE_CLUSTER_MAX as usize) as u32,
            reclaim: reclaim::Kind::ALL[rng.below(reclaim::Kind::ALL.len())].1,
            reuse: protection::Kind::ALL[rng.below(protection::Kind::ALL.len())].1,
        };
        let machine = SimMachine::new(rng.draw(), pages, batches, setup.grain, setup.chaos, options.sabotage);
        let store = SimStore::new(rng.draw(), slots, setup.trouble, options.sabotage);
        let arena = Arena::default();
        let pager = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        pager.machine.meets_streams.store(rng.once_in(2), Relaxed);
        pager.full.set_insists(setup.insists);
        let limit = rng.range(limits.0, setup.max_limit) as u64;
        pager.set_limit_pages(if large { HUGE_LIMIT_PAGES } else { limit });
        pager.set_swapcache_max(rng.pick(&[0, 10, u64::MAX]));
        let model = Model {
            owner: (0..pages).map(|_| AtomicU8::new(NOBODY)).collect(),
            prot: (0..pages).map(|_| AtomicU8::new(0)).collect(),
            locked: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            content: (0..pages).map(|_| Mutex::new(None)).collect(),
            programs_left: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        };
        // Threads own runs of pages, so that they share blocks and folios, but no page.
        while !pager.map(PageNo(0), setup.mapped as u32, Prot::READ_WRITE, false) {}
        let mut page = 0;
        while page < setup.mapped {
            let owner = rng.below(setup.threads) as u8;
            let run =
                if setup.dense { rng.pick(&[16, 48, 64, 128]) } else { rng.pick(&[1, 1, 2, 3, 5, 8, 16, 24, 40]) };
            for _ in 0..run {
                if page < setup.mapped {
                    model.owner[page].store(owner, Relaxed);
                    model.prot[page].store(3, Relaxed);
                    page += 1;
                }
            }
        }
        World { pager, arena, model, config, setup, told: std::env::var_os("OUTSWAP_SIM_TRACE").is_some() }
    }
}

/// A context for one thread.
pub fn context() -> Box<Context<Worker>> {
    Box::new(Context::new(Worker::default()))
}
