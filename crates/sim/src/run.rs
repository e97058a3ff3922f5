//! Runs the program of a seed: its threads, its forks, and the checks of what they leave.
use crate::machine::SimMachine;
use crate::program::Program;
use crate::sched::{self, Rng, guarded, step};
use crate::world::{FOREIGN, NOBODY, Options, Outcome, World, context};
use outswap_core::machine::Prot;
use outswap_core::page::State;
use outswap_core::pager::{Pager, Policies};
use outswap_core::room::Step;
use outswap_core::store::Store;
use outswap_core::units::{BLOCK_PAGES, BlockNo, PageNo};
use std::sync::atomic::Ordering::*;

/// More than a full store rests.
const FULL_REST_NS: u64 = 6_000_000_000;

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
    /// Runs the program's threads to their end.
    fn phase(&self, rng: &mut Rng, options: Options, outcome: &mut Outcome) -> Result<(), String> {
        let setup = &self.setup;
        self.model.programs_left.store(setup.threads, SeqCst);
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for me in 0..setup.threads {
            let seed = rng.draw();
            bodies.push(Box::new(move || {
                Program::new(self, me as u8, seed).run();
                self.model.programs_left.fetch_sub(1, SeqCst);
            }));
        }
        if setup.reclaimer {
            let seed = rng.draw();
            bodies.push(Box::new(move || self.reclaim_in_background(seed)));
        }
        let (trace, steps) = sched::run(rng.draw(), options.parallel, bodies)?;
        outcome.trace = outcome.trace.rotate_left(7) ^ trace;
        outcome.steps += steps;
        guarded(|| self.quiet_check())
    }

    fn reclaim_in_background(&self, seed: u64) {
        let mut rng = Rng(seed);
        let mut cx = context();
        let slack = rng.below(20) as u64;
        let writes_only = rng.once_in(2);
        while self.model.programs_left.load(SeqCst) > 0 {
            if self.pager.look_is_due() {
                look(&self.pager, self.setup.pages);
            }
            self.pager.read_ahead(&mut cx);
            self.pager.bring_stream(&mut cx);
            if self.pager.used_pages() + slack > self.pager.limit_pages() {
                // A program's thread that needs room takes pages as well, so that this one need not.
                let writes = writes_only && !rng.once_in(4);
                match if writes { self.pager.write_back(&mut cx) } else { self.pager.reclaim(&mut cx) } {
                    Step::Freed(_) | Step::Kept(_) | Step::Isolated => step(),
                    Step::Nothing | Step::StoreFull => sched::wait(0),
                }
            } else {
                sched::wait(0);
            }
        }
    }

    /// Forks the process at a quiet point; both sides go on and are checked. The pager's tables are copied as the
    /// kernel copies them for the live pager.
    fn fork(&self, rng: &mut Rng, options: Options, outcome: &mut Outcome, depth: u32) -> Result<(), String> {
        let child_seed = rng.draw();
        if rng.once_in(2) {
            self.pager.trap_all(false);
        }
        // SAFETY: the child goes on with a copy of this thread only; it uses nothing that another thread of the test
        // process may have held locked at this instant, and leaves by `_exit`.
        let pid = unsafe { fork() };
        assert!(pid >= 0, "fork");
        let mut side = Rng(if pid == 0 { child_seed } else { rng.draw() });
        if pid == 0 {
            self.pager.forked();
        }
        self.pager.copies.forked(pid == 0);
        self.pager.machine.forked(side.draw(), pid == 0);
        if pid == 0 {
            self.pager.trap_all(true);
            assert_eq!(self.pager.untrapped_pages(), 0, "a child has all of its memory registered");
        }
        self.pager.store.forked(side.draw());
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
        let holding = pager.used_slots() - pager.waiting_slots();
        assert_eq!(pager.store.used_slots(), holding, "slots: store against pager");
        assert_eq!(pager.machine.mapped_pages(), pager.resident_pages(), "mapped pages: machine against pager");
        assert_eq!(pager.machine.filled_frames(), pager.isolated_pages(), "frames: machine against pager");
        if self.config.mappings >= 100 {
            assert_eq!(pager.locked_by_nobody(), 0, "pages are locked that no mapping holds");
        }
        for page in 0..self.setup.pages {
            let mapped = self.model.owner[page].load(Relaxed) != NOBODY;
            assert_eq!(pager.covered(PageNo(page as u32), 1), mapped, "page {page}: the address map");
            let state = pager.state(PageNo(page as u32));
            if self.model.owner[page].load(Relaxed) == FOREIGN {
                assert!(matches!(state, State::Untouched | State::Zero), "page {page} is the kernel's: {state:?}");
            } else if !mapped {
                // What the machine did not drop or trap is zeros, until it is evicted.
                let chaos = &self.setup.chaos;
                let kept = state != State::Swapped && (chaos.drop_kept_in > 0 || chaos.trap_refused_in > 0);
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
        // By then a store that was full is tried again.
        pager.machine.clock.pass_ns(FULL_REST_NS);
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
            // What is shared does not go while the store may refuse it.
            pager.machine.clock.pass_ns(FULL_REST_NS);
            let mut idle = 0;
            // A page that a forked process shares is refused half of the time.
            while idle < 40 {
                match pager.reclaim(&mut program.cx) {
                    Step::Freed(_) | Step::Kept(_) | Step::Isolated => idle = 0,
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

/// Looks at what the program has used, and tells the pager.
pub fn look<S: Store, P: Policies>(pager: &Pager<SimMachine, S, P>, pages: usize) {
    let begun_ns = pager.begin_look();
    for block in (0..(pages / BLOCK_PAGES) as u32).map(BlockNo) {
        pager.looked(block, 1, pager.machine.accessed_pages(block));
        step();
    }
    pager.end_look(begun_ns);
}
