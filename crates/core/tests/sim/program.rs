//! Random programs over the simulated machine, checked against a plain array of pages.
use super::machine::{Access, Chaos, Sabotage, SimMachine, SimPager};
use super::sched::{self, Rng, guarded, step};
use super::store::{SimStore, Trouble, Worker};
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Fault, Pager, Step};
use outswap_core::store::Page;
use outswap_core::table::Reserve;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PageNo};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};

/// Memory for the pager's tables.
#[derive(Default)]
pub struct Arena(Mutex<Vec<(usize, Layout)>>);

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

const NOBODY: u8 = 255;
/// Owner of pages over which the kernel manages something else.
const FOREIGN: u8 = 254;

/// What the program believes: who may use which page, and what it holds.
struct Model {
    owner: Vec<AtomicU8>,
    prot: Vec<AtomicU8>,
    locked: Vec<AtomicBool>,
    /// `None` is a page of zeros.
    content: Vec<Mutex<Option<Box<Page>>>>,
    programs_left: AtomicUsize,
    /// System calls under way.
    calls: AtomicUsize,
}

/// One simulated process.
struct World {
    // Declared first: dropped before the memory it lies in.
    pager: Box<SimPager>,
    #[expect(dead_code, reason = "owns the tables' memory")]
    arena: Arena,
    model: Model,
    config: Config,
    setup: Setup,
    /// Whether to tell what the threads do (`OUTSWAP_SIM_TRACE`).
    told: bool,
}

/// What a seed decides before anything runs.
#[derive(Clone, Copy, Debug)]
struct Setup {
    threads: usize,
    reclaimer: bool,
    ops: usize,
    pages: usize,
    mapped: usize,
    max_limit: usize,
    grain: usize,
    trouble: Trouble,
    chaos: Chaos,
    no_memory: bool,
    /// Nothing goes wrong, and there are slots and batches for everybody.
    calm: bool,
    /// Long runs of one owner, written from start to end with content that is never zero: whole folios come and go.
    dense: bool,
}

/// How to run a seed.
#[derive(Clone, Copy)]
pub struct Options {
    pub parallel: bool,
    pub sabotage: Sabotage,
    pub forks: bool,
}
impl Options {
    pub const USUAL: Options = Options { parallel: false, sabotage: Sabotage::None, forks: true };
}

/// What a run did, to see that the seeds reach what they are meant to reach.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    pub seeds: u64,
    pub trace: u64,
    pub steps: u64,
    pub events: [u64; outswap_core::machine::EVENTS],
    pub forks: u64,
}

impl Outcome {
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
    pub fn parse(line: &str) -> Outcome {
        let mut numbers = line.split(' ').map(|n| n.parse().expect("written by `line`"));
        let mut next = || numbers.next().expect("written by `line`");
        let (seeds, steps, forks) = (next(), next(), next());
        let mut events = [0; outswap_core::machine::EVENTS];
        events.iter_mut().for_each(|e| *e = next());
        Outcome { trace: 0, seeds, steps, forks, events }
    }
}

/// Runs one seed to its end. The error says what was wrong.
pub fn run_seed(seed: u64, options: Options) -> Result<Outcome, String> {
    let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed);
    let world = guarded(|| World::new(&mut rng, options))?;
    let mut outcome = Outcome { seeds: 1, ..Outcome::default() };
    world.phase(&mut rng, options, &mut outcome)?;
    if options.forks && rng.once_in(5) {
        world.fork(&mut rng, options, &mut outcome, 0)?;
    }
    guarded(|| world.finish())?;
    for (sum, n) in outcome.events.iter_mut().zip(&world.pager.machine.events) {
        *sum = n.load(Relaxed);
    }
    Ok(outcome)
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

impl World {
    fn new(rng: &mut Rng, options: Options) -> World {
        let blocks = rng.range(3, 14);
        let pages = blocks * BLOCK_PAGES;
        let batches = rng.pick(&[1, 2, 3, 4, 6, 8]);
        let slots = rng.pick(&[512, 1024, 2048, 2048]);
        let troubled = rng.once_in(2);
        let broken = rng.once_in(4);
        let no_memory = rng.once_in(8);
        let chaotic = rng.once_in(2);
        let setup = Setup {
            threads: rng.range(1, 4),
            reclaimer: rng.once_in(2),
            ops: rng.range(30, 160),
            pages,
            mapped: rng.range(pages / 4, pages * 3 / 4),
            max_limit: rng.range(8, 200.min(pages / 2)),
            grain: rng.pick(&[1, 1, 16]),
            trouble: Trouble {
                full_in: if troubled { rng.pick(&[0, 5, 20, 100]) } else { 0 },
                burst: rng.pick(&[0, 3, 40]),
                io_in: if broken { rng.pick(&[3, 20]) } else { 0 },
                dead_in: if broken { rng.pick(&[0, 30, 100]) } else { 0 },
                corrupt_in: if broken { rng.pick(&[0, 30, 100]) } else { 0 },
                capacity: if troubled && rng.once_in(2) { rng.range(4, pages / 2) } else { 0 },
            },
            chaos: Chaos {
                take_refused_in: if chaotic { rng.pick(&[0, 3, 10, 60]) } else { 0 },
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
            dense: rng.once_in(3),
        };
        let config = Config {
            pages: pages as u32,
            slots,
            batches,
            pins: rng.pick(&[1, 2, 8]),
            mappings: rng.pick(&[24, 200]),
            seed: rng.next(),
            folios: !rng.once_in(4),
        };
        let machine = SimMachine::new(rng.next(), pages, batches, setup.grain, setup.chaos, options.sabotage);
        let store = SimStore::new(rng.next(), slots, setup.trouble, options.sabotage);
        let arena = Arena::default();
        let pager = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        pager.set_limit_pages(rng.range(8, setup.max_limit) as u64);
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

    /// Runs the program's threads to their end.
    fn phase(&self, rng: &mut Rng, options: Options, outcome: &mut Outcome) -> Result<(), String> {
        let setup = &self.setup;
        self.model.programs_left.store(setup.threads, SeqCst);
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for me in 0..setup.threads {
            let seed = rng.next();
            bodies.push(Box::new(move || {
                Program::new(self, me as u8, seed).run();
                self.model.programs_left.fetch_sub(1, SeqCst);
            }));
        }
        if setup.reclaimer {
            let seed = rng.next();
            bodies.push(Box::new(move || self.reclaim_in_background(seed)));
        }
        let (trace, steps) = sched::run(rng.next(), options.parallel, bodies)?;
        outcome.trace = outcome.trace.rotate_left(7) ^ trace;
        outcome.steps += steps;
        guarded(|| self.quiet_check())
    }

    fn reclaim_in_background(&self, seed: u64) {
        let mut rng = Rng(seed);
        let mut cx = context();
        let slack = rng.below(20) as u64;
        while self.model.programs_left.load(SeqCst) > 0 {
            if self.pager.used_pages() + slack > self.pager.limit_pages() {
                match self.pager.reclaim(&mut cx) {
                    Step::Freed(_) | Step::Isolated => step(),
                    Step::Nothing | Step::StoreFull => sched::wait(),
                }
            } else {
                sched::wait();
            }
        }
    }

    /// Forks the process at a quiet point; both sides go on and are checked. The pager's tables are copied as the
    /// kernel copies them for the live pager.
    fn fork(&self, rng: &mut Rng, options: Options, outcome: &mut Outcome, depth: u32) -> Result<(), String> {
        let child_seed = rng.next();
        // SAFETY: the child goes on with a copy of this thread only; it uses nothing that another thread of the test
        // process may have held locked at this instant, and leaves by `_exit`.
        let pid = unsafe { fork() };
        assert!(pid >= 0, "fork");
        let mut side = Rng(if pid == 0 { child_seed } else { rng.next() });
        self.pager.machine.forked(side.next());
        self.pager.store.forked(side.next());
        let mut result = self.phase(&mut side, options, outcome);
        if pid == 0 {
            if result.is_ok() && depth < 2 && side.once_in(3) {
                result = self.fork(&mut side, options, outcome, depth + 1);
            }
            let result = result.and_then(|()| guarded(|| self.finish()));
            if let Err(message) = &result {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "in a forked process: {message}");
            }
            // SAFETY: ends the process.
            unsafe { _exit(result.is_err() as i32) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for the call.
        let waited = unsafe { waitpid(pid, &mut status, 0) };
        assert_eq!(waited, pid);
        outcome.forks += 1;
        result?;
        if status == 0 { Ok(()) } else { Err(format!("a forked process failed (status {status:#x})")) }
    }

    /// Checks that hold whenever no thread is at work.
    fn quiet_check(&self) {
        let pager = &self.pager;
        pager.check();
        assert_eq!(pager.store.used_slots(), pager.used_slots(), "slots: store against pager");
        assert_eq!(pager.machine.mapped_pages(), pager.resident_pages(), "mapped pages: machine against pager");
        assert_eq!(pager.machine.filled_frames(), pager.isolated_pages(), "frames: machine against pager");
        for page in 0..self.setup.pages {
            let mapped = self.model.owner[page].load(Relaxed) != NOBODY;
            assert_eq!(pager.covered(PageNo(page as u32), 1), mapped, "page {page}: the address map");
            let state = pager.state(PageNo(page as u32));
            if self.model.owner[page].load(Relaxed) == FOREIGN {
                assert!(matches!(state, State::Untouched | State::Zero), "page {page} is the kernel's: {state:?}");
            } else if !mapped {
                // What the machine did not drop is zeros, until it is evicted.
                let kept = state != State::Swapped && self.setup.chaos.drop_kept_in > 0;
                assert!(state == State::Untouched || kept, "page {page} is not mapped: {state:?}");
            }
            if self.model.locked[page].load(Relaxed) {
                assert!(pager.machine.is_mapped(page as u32), "page {page} is locked");
            }
        }
    }

    /// Everything is read back, put out as far as possible, read back again, and unmapped; nothing may be left.
    fn finish(&self) {
        let pager = &self.pager;
        pager.machine.calm();
        pager.store.calm();
        let mut program = Program::new(self, 0, 1);
        program.chaos_over = true;
        let verify_all = |program: &mut Program| {
            for page in 0..self.setup.pages as u32 {
                if self.model.owner[page as usize].load(Relaxed) < FOREIGN {
                    if self.model.prot[page as usize].load(Relaxed) == 0 {
                        if !pager.protect(PageNo(page), 1, Prot::READ) {
                            assert!(self.config.mappings < 100, "page {page}: the map has room");
                            continue;
                        }
                        self.model.prot[page as usize].store(1, Relaxed);
                    }
                    program.verify(page);
                }
            }
        };
        verify_all(&mut program);
        self.quiet_check();
        self.model.locked.iter().for_each(|locked| locked.store(false, Relaxed));
        let (mut page, end) = (0, self.setup.pages as u32);
        while let Some(vma) = pager.next_in(page, end) {
            // Whole mappings need no room in the map.
            assert!(pager.set_locked(vma.first, vma.count, false, false));
            pager.end_private(vma.first, vma.count);
            page = vma.end();
        }
        if self.config.slots >= self.setup.pages * 2 {
            pager.set_limit_pages(0);
            pager.set_swapcache_max(0);
            let mut idle = 0;
            while idle < 10 {
                match pager.reclaim(&mut program.cx) {
                    Step::Freed(_) | Step::Isolated => idle = 0,
                    Step::Nothing | Step::StoreFull => idle += 1,
                }
            }
            assert_eq!(pager.used_pages(), 0, "all pages can be evicted, and reclaim finds them");
            self.quiet_check();
        }
        pager.set_limit_pages(self.setup.max_limit as u64);
        verify_all(&mut program);
        self.quiet_check();
        for page in 0..self.setup.pages {
            self.pager.machine.set_foreign(page, false);
        }
        pager.discard(PageNo(0), self.setup.pages as u32);
        pager.set_limit_pages(0);
        while matches!(pager.reclaim(&mut program.cx), Step::Freed(_)) {}
        pager.check();
        assert_eq!((pager.used_slots(), pager.resident_pages()), (0, 0), "nothing is left");
        assert_eq!((pager.store.used_slots(), pager.machine.mapped_pages()), (0, 0), "nothing is left");
        assert_eq!((pager.isolated_pages(), pager.machine.filled_frames()), (0, 0), "no frame is left");
    }
}

pub fn context() -> Box<Context<Worker>> {
    Box::new(Context::new(Worker::default()))
}

/// One thread of the program.
struct Program<'a> {
    world: &'a World,
    pager: &'a SimPager,
    me: u8,
    rng: Rng,
    cx: Box<Context<Worker>>,
    writes: u64,
    chaos_over: bool,
}

impl<'a> Program<'a> {
    fn new(world: &'a World, me: u8, seed: u64) -> Self {
        let pager = &*world.pager;
        Program { world, pager, me, rng: Rng(seed), cx: context(), writes: 0, chaos_over: false }
    }

    fn tell(&self, what: &str, first: usize, count: usize) {
        if self.world.told {
            eprintln!("thread {}: {what} {first}+{count}", self.me);
        }
    }
    fn model(&self) -> &'a Model {
        &self.world.model
    }
    fn mine(&self, page: usize) -> bool {
        self.model().owner[page].load(Relaxed) == self.me
    }
    fn prot(&self, page: usize) -> u8 {
        self.model().prot[page].load(Relaxed)
    }
    fn locked(&self, page: usize) -> bool {
        self.model().locked[page].load(Relaxed)
    }

    fn run(&mut self) {
        if self.world.setup.dense {
            for page in 0..self.world.setup.pages {
                if self.mine(page) {
                    self.write(page as u32);
                }
            }
        }
        for _ in 0..self.world.setup.ops {
            step();
            match self.rng.below(100) {
                0..22 => self.on_page(|s, page| s.verify(page)),
                22..44 => self.on_page(|s, page| s.write(page)),
                44..56 => self.sequential(),
                56..62 => self.discard(),
                62..66 => self.unmap(),
                66..70 => self.map(),
                70..73 => self.protect(),
                73..77 => self.remap(),
                77..79 => self.lock(),
                79..81 => self.unlock(),
                81..86 => self.page_out(),
                86..89 => self.will_need(),
                89..92 => self.change_limits(),
                92..96 => self.call(),
                96 => self.stray(),
                97 => self.map_foreign(),
                98 => self.unmap_foreign(),
                _ => self.verify_mine(),
            }
        }
    }

    /// A page of this thread, at random.
    fn page(&mut self) -> Option<usize> {
        let pages = self.world.setup.pages;
        // Some pages are used more than others.
        let span = if self.rng.once_in(2) { pages } else { pages / 8 };
        let start = self.rng.below(span);
        (0..pages).map(|i| (start + i) % pages).find(|&p| self.mine(p))
    }
    /// A run of this thread's pages, of at most `max`, all with `wanted`.
    fn run_of(&mut self, max: usize, wanted: impl Fn(&Self, usize) -> bool) -> Option<(usize, usize)> {
        let first = self.page()?;
        let max = self.rng.range(1, max);
        let pages = self.world.setup.pages;
        let count = (first..pages).take(max).take_while(|&p| self.mine(p) && wanted(self, p)).count();
        (count > 0).then_some((first, count))
    }

    fn on_page(&mut self, f: impl Fn(&mut Self, u32)) {
        if let Some(page) = self.page() {
            f(self, page as u32);
        }
    }

    /// Fails unless the pager's answer has a cause that was injected. True where it is worth trying again.
    fn excuse(&mut self, fault: Fault, page: u32, tries: u32) -> bool {
        match fault {
            Fault::Done => {
                assert!(tries < 20_000, "page {page} never comes");
                true
            }
            Fault::NoMemory => {
                assert!(self.world.setup.no_memory && !self.chaos_over, "page {page}: no memory");
                true
            }
            Fault::Corrupt => {
                assert!(self.cx.worker.saw_corrupt, "page {page}: called corrupt though the store was right");
                false
            }
            Fault::Unreadable => {
                assert!(self.cx.worker.saw_io, "page {page}: called unreadable though the store was read");
                tries < 20
            }
            Fault::NotMapped => panic!("page {page}: not mapped"),
        }
    }

    /// The program gives up the content of a page that cannot be read back.
    fn lose(&mut self, page: u32) {
        *self.model().content[page as usize].lock().expect("no panic while held") = None;
        self.pager.discard(PageNo(page), 1);
    }

    /// An instruction of the program that uses a page: it faults, and is run again, until the page is there.
    fn access(&mut self, page: u32, write: bool, mut f: impl FnMut(&mut Page)) {
        self.tell(if write { "write" } else { "read" }, page as usize, 1);
        let mut tries = 0;
        loop {
            step();
            if self.pager.machine.access(page, write, &mut f) == Access::Done {
                return;
            }
            assert!(!self.locked(page as usize), "page {page} is locked, and yet not there");
            self.cx.worker = Worker::default();
            let limit = self.pager.limit_pages();
            let fault = self.pager.fault(PageNo(page), &mut self.cx);
            self.check_limit(limit);
            tries += 1;
            if !self.excuse(fault, page, tries) {
                self.lose(page);
            }
        }
    }

    /// After a fault the limit holds but for what the threads at work may add together, unless pages are held in.
    fn check_limit(&self, limit_before: u64) {
        let limit = self.pager.limit_pages();
        let held = self.model().calls.load(Relaxed) > 0 || self.model().locked.iter().any(|l| l.load(Relaxed));
        if self.world.setup.calm && !self.chaos_over && !held && limit == limit_before {
            let used = self.pager.used_pages();
            let most = limit + 32 * (self.world.setup.threads as u64 + 1);
            assert!(used <= most, "{used} pages in use with a limit of {limit}");
        }
    }

    fn expect(&self, page: u32, found: &Page) {
        let expected = self.model().content[page as usize].lock().expect("no panic while held");
        let zero: Page = [0; PAGE_BYTES];
        let expected = expected.as_deref().unwrap_or(&zero);
        if expected != found {
            let at = expected.iter().zip(found).position(|(a, b)| a != b).expect("they differ");
            let some = at..(at + 8).min(PAGE_BYTES);
            let (found, expected) = (&found[some.clone()], &expected[some]);
            panic!("page {page} holds wrong bytes from byte {at} on: {found:x?} instead of {expected:x?}");
        }
    }

    fn verify(&mut self, page: u32) {
        if self.prot(page as usize) == 0 {
            return;
        }
        let mut found: Page = [0; PAGE_BYTES];
        self.access(page, false, |content| found = *content);
        self.expect(page, &found);
    }

    /// The content of a new write: incompressible, repeated, zero, or a change of a part.
    fn new_content(&mut self, page: u32) -> Option<Box<Page>> {
        self.writes += 1;
        let mut content: Box<Page> = Box::new([0; PAGE_BYTES]);
        match self.rng.below(8) {
            0 if !self.world.setup.dense => return None,
            1 => content.fill(self.rng.range(1, 4) as u8),
            2 | 3 => {
                let old = self.model().content[page as usize].lock().expect("no panic while held").clone();
                content = old.unwrap_or(content);
                let at = self.rng.below(PAGE_BYTES - 8);
                content[at..at + 8].copy_from_slice(&self.rng.next().to_ne_bytes());
            }
            4 => {
                // The same bytes again.
                let old = self.model().content[page as usize].lock().expect("no panic while held").clone();
                if old.is_some() || !self.world.setup.dense {
                    return old;
                }
                content.fill(5);
            }
            _ => {
                let mut noise = Rng((self.me as u64) << 56 | (page as u64) << 32 | self.writes);
                content.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&noise.next().to_ne_bytes()));
            }
        }
        Some(content)
    }

    fn write(&mut self, page: u32) {
        if self.prot(page as usize) & 2 == 0 {
            return;
        }
        let content = self.new_content(page);
        let zero: Page = [0; PAGE_BYTES];
        let bytes = content.as_deref().unwrap_or(&zero);
        let model = self.model();
        self.access(page, true, |to| *to = *bytes);
        *model.content[page as usize].lock().expect("no panic while held") = content;
    }

    fn sequential(&mut self) {
        let Some((first, count)) = self.run_of(80, |_, _| true) else { return };
        let write = self.rng.once_in(2);
        for page in first..first + count {
            if write { self.write(page as u32) } else { self.verify(page as u32) }
        }
    }

    fn verify_mine(&mut self) {
        for page in 0..self.world.setup.pages {
            if self.mine(page) {
                self.verify(page as u32);
            }
        }
    }

    fn forget(&self, page: usize) -> Option<Box<Page>> {
        self.model().locked[page].store(false, Relaxed);
        self.model().content[page].lock().expect("no panic while held").take()
    }

    fn discard(&mut self) {
        // The kernel refuses this for locked pages.
        let Some((first, count)) = self.run_of(70, |s, p| !s.locked(p)) else { return };
        self.tell("discard", first, count);
        self.pager.discard(PageNo(first as u32), count as u32);
        (first..first + count).for_each(|p| drop(self.forget(p)));
    }

    fn map(&mut self) {
        let count = self.rng.range(1, 70) as u32;
        let align = self.rng.pick(&[1, 1, 16, 64]);
        let call = self.pager.begin_call();
        if let Some(first) = self.pager.gap(count, align) {
            assert!(self.pager.is_free(first, count));
            self.tell("map", first.0 as usize, count as usize);
            if self.pager.map(first, count, Prot::READ_WRITE, false) {
                self.own(first.0 as usize, count as usize);
            } else {
                assert!(self.pager.is_free(first, count), "a mapping that was refused leaves nothing behind");
            }
        }
        drop(call);
    }
    fn own(&self, first: usize, count: usize) {
        for page in first..first + count {
            assert_eq!(self.model().owner[page].load(Relaxed), NOBODY, "page {page} was given away twice");
            self.model().owner[page].store(self.me, Relaxed);
            self.model().prot[page].store(3, Relaxed);
        }
    }

    /// An access that hits nothing, by mistake: it brings nothing in.
    fn stray(&mut self) {
        let page = self.rng.below(self.world.setup.pages);
        if self.model().owner[page].load(Relaxed) >= FOREIGN {
            let fault = self.pager.fault(PageNo(page as u32), &mut self.cx);
            // Another thread may map it meanwhile, and use it.
            if self.model().owner[page].load(Relaxed) >= FOREIGN {
                assert!(matches!(fault, Fault::NotMapped | Fault::NoMemory | Fault::Done), "{fault:?}");
            }
        }
        assert_eq!(self.pager.fault(PageNo(self.world.setup.pages as u32), &mut self.cx), Fault::NotMapped);
    }

    fn map_foreign(&mut self) {
        let count = self.rng.range(1, 20) as u32;
        let call = self.pager.begin_call();
        let gap = self.pager.gap(count, 1).filter(|&f| self.pager.vacate(f, count));
        let gap = gap.filter(|&f| self.pager.map_foreign(f, count, Prot::READ_WRITE));
        if let Some(first) = gap {
            self.tell("map foreign", first.0 as usize, count as usize);
            for page in first.0 as usize..(first.0 + count) as usize {
                assert_eq!(self.model().owner[page].swap(FOREIGN, Relaxed), NOBODY);
                self.pager.machine.set_foreign(page, true);
            }
        }
        drop(call);
    }
    fn unmap_foreign(&mut self) {
        let call = self.pager.begin_call();
        let pages = self.world.setup.pages;
        let foreign = |p: usize| self.model().owner[p].load(Relaxed) == FOREIGN;
        if let Some(first) = (0..pages).find(|&p| foreign(p)) {
            let count = (first..pages).take_while(|&p| foreign(p)).count();
            // Given back first, as the pager asks.
            (first..first + count).for_each(|p| self.pager.machine.set_foreign(p, false));
            if self.pager.unmap(PageNo(first as u32), count as u32) {
                self.tell("unmap foreign", first, count);
                self.disown(first, count);
            } else {
                (first..first + count).for_each(|p| self.pager.machine.set_foreign(p, true));
            }
        }
        drop(call);
    }

    fn unmap(&mut self) {
        let Some((first, count)) = self.run_of(50, |_, _| true) else { return };
        self.tell("unmap", first, count);
        let call = self.pager.begin_call();
        if self.pager.unmap(PageNo(first as u32), count as u32) {
            self.disown(first, count);
        }
        drop(call);
    }
    fn disown(&self, first: usize, count: usize) {
        for page in first..first + count {
            self.forget(page);
            self.model().owner[page].store(NOBODY, Relaxed);
            self.model().prot[page].store(0, Relaxed);
        }
    }

    fn protect(&mut self) {
        let Some((first, count)) = self.run_of(40, |_, _| true) else { return };
        let prot = self.rng.pick(&[0, 1, 1, 3, 3]);
        self.tell(["protect none", "protect read", "", "protect write"][prot as usize], first, count);
        let call = self.pager.begin_call();
        let done = self.pager.protect(PageNo(first as u32), count as u32, Prot(prot));
        for page in first..first + count {
            // Refused, it may have changed a part, as the kernel's does; but map and machine must agree.
            let now = self.pager.find(PageNo(page as u32)).expect("the page is mapped").prot;
            assert_eq!(self.pager.machine.prot(page), now, "page {page}: map against machine");
            assert!(now == Prot(prot) || !done && now == Prot(self.prot(page)), "page {page}: access");
            self.model().prot[page].store(now.0, Relaxed);
        }
        drop(call);
    }

    fn remap(&mut self) {
        let Some((first, count)) = self.run_of(50, |s, p| s.prot(p) == 3) else { return };
        let (n, from) = (count as u32, PageNo(first as u32));
        let call = self.pager.begin_call();
        if let Some(to) = self.pager.gap(n, self.rng.pick(&[1, 1, 16])) {
            if self.pager.map(to, n, Prot::READ_WRITE, false) {
                self.tell("move from", first, count);
                self.tell("move to", to.0 as usize, count);
                let moved = self.pager.move_pages(from, to, n, &mut self.cx);
                assert_eq!(moved, n, "the machine does not refuse for ever");
                self.own(to.0 as usize, count);
                for i in 0..count {
                    let content = self.forget(first + i);
                    *self.model().content[to.0 as usize + i].lock().expect("no panic while held") = content;
                }
                if self.pager.unmap(from, n) {
                    self.disown(first, count);
                } else {
                    self.pager.discard(from, n);
                }
            }
        }
        drop(call);
    }

    fn lock(&mut self) {
        let all = self.model().locked.iter().filter(|l| l.load(Relaxed)).count();
        if all > self.world.setup.max_limit / 4 {
            return;
        }
        let Some((first, count)) = self.run_of(5, |s, p| s.prot(p) != 0) else { return };
        let (page, n) = (PageNo(first as u32), count as u32);
        let way = self.rng.below(3);
        if way > 0 {
            // What is not there yet is locked when it is touched.
            self.tell(if way == 1 { "lock on fault" } else { "keep private" }, first, count);
            let call = self.pager.begin_call();
            self.cx.worker = Worker::default();
            let done = match way {
                1 => self.pager.set_locked(page, n, true, true),
                _ => self.pager.keep_private(page, n, &mut self.cx) == Fault::Done,
            };
            drop(call);
            for page in first..first + count {
                self.verify(page as u32);
                if done && self.pager.machine.is_mapped(page as u32) {
                    self.model().locked[page].store(true, Relaxed);
                }
            }
            return;
        }
        let Some(pin) = self.pager.pins.acquire(self.me as u32 + 1) else { return };
        self.pager.pins.publish(pin, page, n);
        if self.pin(first, count) == count {
            self.tell("lock", first, count);
            let call = self.pager.begin_call();
            let done = self.pager.set_locked(page, n, true, false);
            drop(call);
            if done {
                (first..first + count).for_each(|p| self.model().locked[p].store(true, Relaxed));
            }
        }
        self.pager.pins.release(pin);
    }

    fn unlock(&mut self) {
        let Some((first, count)) = self.run_of(10, |_, _| true) else { return };
        (first..first + count).for_each(|p| self.model().locked[p].store(false, Relaxed));
        let call = self.pager.begin_call();
        self.pager.set_locked(PageNo(first as u32), count as u32, false, false);
        self.pager.end_private(PageNo(first as u32), count as u32);
        drop(call);
    }

    fn page_out(&mut self) {
        let Some((first, count)) = self.run_of(90, |_, _| true) else { return };
        // A hint may name any pages, also those of others.
        let (first, count) = if self.rng.once_in(3) { (first & !15, count | 31) } else { (first, count) };
        let count = count.min(self.world.setup.pages - first);
        let write = self.rng.once_in(2);
        self.tell(if write { "page out" } else { "cold" }, first, count);
        self.pager.page_out(PageNo(first as u32), count as u32, write, &mut self.cx);
    }

    fn will_need(&mut self) {
        let Some((first, count)) = self.run_of(90, |_, _| true) else { return };
        self.pager.will_need(PageNo(first as u32), count as u32, &mut self.cx);
    }

    fn change_limits(&mut self) {
        let limit = self.rng.range(8, self.world.setup.max_limit);
        self.pager.set_limit_pages(limit as u64);
        if self.rng.once_in(3) {
            self.pager.set_swapcache_max(self.rng.pick(&[0, 5, 50, u64::MAX]));
        }
    }

    /// Brings a published range in; gives how many pages from its start are there.
    fn pin(&mut self, first: usize, count: usize) -> usize {
        let mut tries = 0;
        loop {
            self.cx.worker = Worker::default();
            let (sure, fault) = self.pager.pin(PageNo(first as u32), count as u32, &mut self.cx);
            assert!(sure as usize <= count);
            tries += 1;
            if fault == Fault::Done {
                assert_eq!(sure as usize, count);
                return count;
            }
            if !self.excuse(fault, first as u32 + sure, tries) {
                return sure as usize;
            }
        }
    }

    /// A system call: the kernel uses pages that must not go until it is done.
    fn call(&mut self) {
        self.model().calls.fetch_add(1, Relaxed);
        self.call_inner();
        self.model().calls.fetch_sub(1, Relaxed);
    }
    fn call_inner(&mut self) {
        let Some(pin) = self.pager.pins.acquire(self.me as u32 + 1) else { return };
        let mut ranges = Vec::new();
        for _ in 0..self.rng.pick(&[1, 1, 2, 4, 11, 40]) {
            let most = self.rng.pick(&[2, 6, 20]);
            if let Some((first, count)) = self.run_of(most, |_, _| true) {
                self.pager.pins.publish(pin, PageNo(first as u32), count as u32);
                self.tell("call with", first, count);
                ranges.push((first, count));
            }
        }
        for range in &mut ranges {
            range.1 = self.pin(range.0, range.1);
        }
        for _ in 0..self.rng.below(12) {
            step();
            if ranges.is_empty() {
                break;
            }
            let (first, count) = self.rng.pick(&ranges);
            if count == 0 {
                continue;
            }
            let page = first + self.rng.below(count);
            if self.prot(page) == 0 {
                continue;
            }
            let write = self.prot(page) & 2 != 0 && self.rng.once_in(2);
            let mut found: Page = [0; PAGE_BYTES];
            let byte = self.rng.next() as u8;
            let at = self.rng.below(PAGE_BYTES);
            let there = self.pager.machine.access(page as u32, write, |content| {
                found = *content;
                if write {
                    content[at] = byte;
                }
            });
            assert_eq!(there, Access::Done, "EFAULT: page {page} went away under a system call");
            self.expect(page as u32, &found);
            if write {
                found[at] = byte;
                *self.model().content[page].lock().expect("no panic while held") = Some(Box::new(found));
            }
        }
        self.pager.pins.release(pin);
    }
}
