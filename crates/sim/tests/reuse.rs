//! What is known of pages without looking at them, and what comes back with a page that was touched while it waited.
use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Machine, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::room::Step;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble, Worker};
use outswap_sim::world::{Arena, context};
use std::sync::atomic::Ordering::Relaxed;

const PAGES: u32 = BLOCK_PAGES as u32;

struct Program {
    pager: Box<SimPager>,
    cx: Box<Context<Worker>>,
    #[expect(dead_code, reason = "owns the memory of the tables, so it is dropped after the pager")]
    arena: Arena,
}

impl Program {
    fn new(reuse: protection::Kind) -> Program {
        Program::with(reuse, Trouble::default())
    }

    fn with(reuse: protection::Kind, trouble: Trouble) -> Program {
        Program::on(1, reuse, trouble)
    }

    /// On a machine that a seed decides over.
    fn on(seed: u64, reuse: protection::Kind, trouble: Trouble) -> Program {
        let config = Config {
            pages: 2 * PAGES,
            slots: 512,
            batches: 4,
            pins: 1,
            mappings: 8,
            seed: 1,
            readahead: readahead::Kind::Off,
            page_cluster: 0,
            reclaim: reclaim::Kind::Fifo,
            orders: orders::Any::Small,
            reuse,
        };
        let arena = Arena::default();
        let machine = SimMachine::new(seed, config.pages as usize, config.batches, 1, Chaos::default(), Sabotage::None);
        let store = SimStore::new(1, config.slots, trouble, Sabotage::None);
        let pager = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        assert!(pager.map(PageNo(0), config.pages, Prot::READ_WRITE, false));
        Program { pager, cx: context(), arena }
    }

    /// An access to a page, which holds `now`, or will; how many faults it took.
    fn access(&mut self, page: u32, access: Access, now: u8) -> u32 {
        for faults in 0..9 {
            let found = self.pager.machine.access(page, access == Access::Write, |content| match access {
                Access::Read => assert_eq!(content[7], now, "page {page}"),
                Access::Write => content[7] = now,
            });
            if found == Found::Done {
                return faults;
            }
            assert_eq!(self.pager.fault(PageNo(page), access, &mut self.cx), Fault::Done);
        }
        panic!("page {page} cannot be used");
    }

    fn page_out(&mut self) {
        self.pager.page_out(PageNo(0), PAGES, true, &mut self.cx);
        assert_eq!(self.pager.used_pages(), 0);
    }

    fn count(&self, event: Event) -> u64 {
        self.pager.machine.events[event as usize].load(Relaxed)
    }

    /// Pages with their numbers in them, in the store, all of which were read since they were written.
    fn filled(reuse: protection::Kind, pages: u32) -> Program {
        let mut program = Program::new(reuse);
        program.fill(pages);
        program
    }

    fn fill(&mut self, pages: u32) {
        let program = self;
        for round in 0..2 {
            for page in 0..pages {
                let access = if round == 0 { Access::Write } else { Access::Read };
                program.access(page, access, page as u8 + 1);
            }
            if round == 0 {
                program.page_out();
            }
        }
    }
}

#[test]
fn what_was_only_read_goes_without_being_looked_at() {
    for (reuse, known) in [(protection::Kind::Protect, true), (protection::Kind::Hash, false)] {
        const ROUNDS: u32 = 8;
        let mut program = Program::filled(reuse, PAGES);
        for _ in 0..ROUNDS {
            program.page_out();
            for page in 0..PAGES {
                assert_eq!(program.access(page, Access::Read, page as u8 + 1), 1);
            }
        }
        assert_eq!(program.count(Event::PagesClean), u64::from(ROUNDS * PAGES), "{reuse:?}");
        // The machine may keep some in frames all the same.
        let unwritten = program.count(Event::PagesUnwritten);
        assert_eq!(unwritten > 0, known, "{reuse:?}: {unwritten}");
        program.pager.check();
    }
}

/// Each page in memory may keep a slot that costs nothing; of those that do, so many, and a page that comes back from its frame
/// gives one up that has become scarce.
#[test]
fn slots_that_take_no_scarce_room_are_kept_however_many() {
    let file = Trouble { slow_in: 1, ..Trouble::default() };
    for reuse in [protection::Kind::Protect, protection::Kind::Hash] {
        let mut program = Program::with(reuse, file);
        program.pager.set_swapcache_max(3);
        program.fill(PAGES);
        assert_eq!((program.pager.swapcache_pages(), program.pager.swapcache_scarce_pages()), (u64::from(PAGES), 0));
        program.page_out();
        assert_eq!(program.count(Event::PagesClean), u64::from(PAGES), "{reuse:?}: nothing is stored again");
        let read = |program: &mut Program, kept: u64| {
            (0..PAGES).for_each(|page| _ = program.access(page, Access::Read, page as u8 + 1));
            assert_eq!(program.pager.swapcache_pages(), kept, "{reuse:?}");
            program.pager.check();
        };
        read(&mut program, u64::from(PAGES));
        // The file fills up: as they come back from their frames, all but so many give their slots up.
        program.pager.store.calm();
        program.pager.page_out(PageNo(0), PAGES, false, &mut program.cx);
        read(&mut program, 3);
        assert_eq!(program.pager.swapcache_scarce_pages(), 3);
    }
}

#[test]
fn where_nothing_is_to_be_known_all_is_stored_again() {
    let mut program = Program::filled(protection::Kind::Off, PAGES);
    program.pager.set_swapcache_max(u64::MAX);
    for _ in 0..3 {
        assert_eq!(program.pager.swapcache_pages(), 0, "no page in memory has a slot");
        program.page_out();
        for page in 0..PAGES {
            assert_eq!(program.access(page, Access::Read, page as u8 + 1), 1);
        }
    }
    assert_eq!((program.count(Event::PagesClean), program.count(Event::PagesUnwritten)), (0, 0));
    program.pager.check();
}

#[test]
fn the_first_write_gives_the_slot_up_and_copies_nothing() {
    let mut program = Program::filled(protection::Kind::Protect, 8);
    assert_eq!((program.pager.used_slots(), program.pager.swapcache_pages()), (8, 8));
    assert_eq!(program.access(3, Access::Write, 200), 1, "it is noticed");
    assert_eq!(program.access(3, Access::Write, 201), 0);
    assert_eq!(program.count(Event::PagesReused), 1);
    assert_eq!((program.pager.used_slots(), program.pager.swapcache_pages()), (7, 7));
    program.page_out();
    assert_eq!(program.pager.used_slots(), 8);
    for page in 0..8 {
        program.access(page, Access::Read, if page == 3 { 201 } else { page as u8 + 1 });
    }
    // It is likely to be written again, so nobody wants to notice.
    assert_eq!(program.access(3, Access::Write, 202), 0);
    assert_eq!(program.access(4, Access::Write, 203), 1);
    program.pager.check();
}

#[test]
fn what_is_known_of_a_parents_pages_says_nothing_of_a_childs() {
    let mut program = Program::filled(protection::Kind::Protect, 8);
    // As it is in a child: the tables are the parent's, the protection is gone.
    program.pager.forked();
    program.pager.machine.forked(1, true);
    for page in 0..8 {
        assert_eq!(program.access(page, Access::Write, 100 + page as u8), 0, "nobody notices");
    }
    program.page_out();
    for page in 0..8 {
        program.access(page, Access::Read, 100 + page as u8);
    }
    // What came in since is the child's own.
    assert_eq!(program.access(5, Access::Write, 9), 0, "it was written after it had come in to be read");
    program.page_out();
    (0..4).for_each(|page| _ = program.access(page, Access::Read, 100 + page as u8));
    program.page_out();
    assert_eq!(program.count(Event::StoreErrors) + program.count(Event::Corruptions), 0);
    program.pager.check();
}

#[test]
fn what_the_kernel_will_copy_makes_room_first_once_it_is_held() {
    const LIMIT: u64 = 24;
    let mut program = Program::new(protection::Kind::Hash);
    program.pager.set_limit_pages(LIMIT);
    for page in 0..20 {
        program.access(page, Access::Write, page as u8 + 1);
    }
    program.pager.forked();
    program.pager.copies.forked(true);
    program.pager.machine.forked(1, true);
    assert_eq!(program.access(19, Access::Write, 20), 0, "nobody notices");
    assert!(program.pager.hold_copies(&mut program.cx) && !program.pager.hold_copies(&mut program.cx));
    for page in 0..20 {
        let faults = program.access(page, Access::Write, 100 + page as u8);
        assert!(page > 3 || faults == 1, "a write to page {page} is noticed");
        let (used, copied) = (program.pager.used_pages(), program.pager.copies.unmeasured_pages());
        assert!(used + copied <= LIMIT, "{used} pages, and {copied} that the kernel has copied");
    }
    // A measurement knows of them, and what came in since is the child's own.
    program.pager.copies.begin_measurement(1, None);
    program.page_out();
    for page in 0..20 {
        assert_eq!(program.access(page, Access::Write, 100 + page as u8), 1);
    }
    assert_eq!(program.pager.copies.unmeasured_pages(), 0);
    program.pager.check();
}

#[test]
fn what_is_held_and_shared_no_more_is_given_back_in_one_piece() {
    const SHARED: u32 = 8;
    let mut program = Program::new(protection::Kind::Hash);
    for page in 0..20 {
        program.access(page, Access::Write, page as u8 + 1);
    }
    program.pager.forked();
    program.pager.copies.forked(false);
    program.pager.machine.forked(1, false);
    assert!(program.pager.hold_copies(&mut program.cx));
    (SHARED..20).for_each(|page| program.pager.machine.is_alone_with(PageNo(page)));
    for page in SHARED..20 {
        assert_eq!(program.access(page, Access::Write, 50), u32::from(page == SHARED), "page {page}");
    }
    assert_eq!(program.pager.copies.unmeasured_pages(), 0, "nothing is copied");
    for page in 0..SHARED {
        assert_eq!(program.access(page, Access::Write, 50), 1, "page {page}");
    }
    assert_eq!(program.pager.copies.unmeasured_pages(), u64::from(SHARED));
    program.pager.check();
}

#[test]
fn what_leaves_while_others_have_it_counts_until_they_have_measured() {
    let mut program = Program::new(protection::Kind::Hash);
    for page in 0..20 {
        program.access(page, Access::Write, page as u8 + 1);
    }
    let others = |program: &Program| program.pager.copies.others_pages();
    program.page_out();
    assert_eq!(others(&program), 0, "no others");
    for page in 0..20 {
        program.access(page, Access::Read, page as u8 + 1);
    }
    program.pager.forked();
    program.pager.copies.forked(true);
    program.pager.machine.forked(1, true);
    (0..8).for_each(|page| program.pager.machine.is_alone_with(PageNo(page)));
    // What is shared is refused now and then.
    for _ in 0..64 {
        program.pager.page_out(PageNo(0), PAGES, true, &mut program.cx);
    }
    program.page_out();
    assert_eq!(others(&program), 12, "the eight are gone");
    for page in 0..20 {
        program.access(page, Access::Read, page as u8 + 1);
    }
    assert_eq!(others(&program), 12, "what came back is this process's own");
    program.page_out();
    assert_eq!(others(&program), 12);
    program.pager.copies.begin_measurement(5, Some(3));
    assert_eq!(others(&program), 6, "the others' part");
    program.pager.copies.begin_measurement(7, Some(4));
    assert_eq!(others(&program), 6, "they have not measured since");
    program.pager.copies.begin_measurement(8, Some(6));
    assert_eq!(others(&program), 0);
    program.pager.check();
}

/// What waits to go at a fork is in frames, and both have these.
#[test]
fn frames_that_others_have_count_as_their_pages_do() {
    for touched in [0, 5] {
        let mut program = Program::new(protection::Kind::Hash);
        for page in 0..20 {
            program.access(page, Access::Write, page as u8 + 1);
        }
        while program.pager.resident_pages() > 0 {
            assert_eq!(program.pager.reclaim(&mut program.cx), Step::Isolated);
        }
        program.pager.forked();
        program.pager.copies.forked(false);
        program.pager.machine.forked(1, false);
        // All of them come back with the one that is touched, as copies.
        (0..touched).for_each(|page| _ = program.access(page, Access::Read, page as u8 + 1));
        assert_eq!(program.pager.copies.others_pages(), if touched > 0 { 20 } else { 0 });
        while program.pager.used_pages() > 0 {
            assert_ne!(program.pager.reclaim(&mut program.cx), Step::Nothing);
        }
        assert_eq!(program.pager.copies.others_pages(), 20);
        program.pager.check();
    }
}

#[test]
fn calls_that_write_meet_no_protection() {
    let mut program = Program::filled(protection::Kind::Protect, 20);
    let pin = program.pager.pins.acquire(1, usize::MAX).expect("none is in use");
    for (access, faults) in [(Access::Read, true), (Access::Write, false)] {
        program.pager.pins.publish(pin, PageNo(0), 20);
        assert_eq!(program.pager.pin(PageNo(0), 20, access, &mut program.cx), (20, Fault::Done));
        let found = program.pager.machine.access(11, true, |content| content[7] = 77);
        assert_eq!(found == Found::Protected, faults, "{access:?}");
    }
    program.pager.pins.release(pin);
    program.page_out();
    assert_eq!(program.access(11, Access::Read, 77), 1);
    program.pager.check();
}

/// The kernel keeps the protection of a page that it has swapped out by itself, wherever that is moved.
#[test]
fn what_was_moved_back_may_be_protected_still() {
    let (mut moved, mut protected) = (0, 0);
    // Machines that move pages back, and write-protect them.
    for seed in (2..42).step_by(4) {
        let mut program = Program::on(seed, protection::Kind::Protect, Trouble::default());
        assert!(program.pager.machine.moves_back() && program.pager.machine.write_protects());
        program.fill(20);
        program.pager.page_out(PageNo(0), PAGES, false, &mut program.cx);
        let waiting: Vec<_> = (0..20).filter(|&page| program.pager.state(PageNo(page)) == State::Isolated).collect();
        (0..20).for_each(|page| _ = program.access(page, Access::Read, page as u8 + 1));
        let pin = program.pager.pins.acquire(1, usize::MAX).expect("none is in use");
        program.pager.pins.publish(pin, PageNo(0), 20);
        moved += waiting.len();
        let is_protected = |&&page: &&u32| program.pager.machine.access(page, true, |_| ()) == Found::Protected;
        protected += waiting.iter().filter(is_protected).count();
        assert_eq!(program.pager.pin(PageNo(0), 20, Access::Write, &mut program.cx), (20, Fault::Done));
        for page in 0..20 {
            let found = program.pager.machine.access(page, true, |content| content[7] = 77);
            assert_eq!(found, Found::Done, "page {page}: a call meets protection");
        }
        program.pager.pins.release(pin);
        program.page_out();
        (0..20).for_each(|page| _ = program.access(page, Access::Read, 77));
        program.pager.check();
    }
    assert!(protected > 20 && moved - protected > 20, "{moved} pages moved, {protected} protected");
}

#[test]
fn a_touch_of_an_isolated_page_brings_back_all_that_wait_with_it() {
    let mut program = Program::new(protection::Kind::Hash);
    for page in 0..40 {
        program.access(page, Access::Write, page as u8 + 1);
    }
    // Isolated only.
    program.pager.page_out(PageNo(0), PAGES, false, &mut program.cx);
    assert_eq!(program.pager.state(PageNo(17)), State::Isolated);
    assert_eq!(program.access(17, Access::Read, 18), 1);
    for page in 0..40 {
        assert_eq!(program.access(page, Access::Write, page as u8 + 1), 0, "page {page} came with it");
    }
    assert_eq!((program.count(Event::FaultHit), program.count(Event::PagesPutBack)), (1, 39));
    assert_eq!((program.pager.resident_pages(), program.pager.isolated_pages()), (40, 0));
    program.pager.check();
    // The empty batch goes when its turn comes.
    program.page_out();
    program.pager.check();
    for page in 0..40 {
        program.access(page, Access::Read, page as u8 + 1);
    }
}

#[test]
fn a_page_that_comes_back_soon_twice_stays_once() {
    const LIMIT_PAGES: u64 = 4 * BLOCK_PAGES as u64;
    for (evicted, stays) in [(LIMIT_PAGES as u32 / 8 - 4, true), (LIMIT_PAGES as u32 / 8 + 4, false)] {
        let mut program = Program::new(protection::Kind::Protect);
        program.pager.set_limit_pages(LIMIT_PAGES);
        for _ in 0..2 {
            program.access(40, Access::Write, 1);
            program.pager.page_out(PageNo(40), 1, true, &mut program.cx);
            assert_eq!(program.pager.state(PageNo(40)), State::Swapped);
            (PAGES..PAGES + evicted).for_each(|page| _ = program.access(page, Access::Write, 1));
            program.pager.page_out(PageNo(PAGES), evicted, true, &mut program.cx);
        }
        program.access(40, Access::Write, 1);
        program.access(20, Access::Write, 1);
        assert_eq!(program.pager.resident_pages(), 2);
        assert_eq!(program.pager.reclaim(&mut program.cx), Step::Isolated);
        assert_ne!(program.pager.state(PageNo(20)), State::Resident);
        assert_eq!(program.pager.state(PageNo(40)) == State::Resident, stays, "after {evicted} others");
        // Once.
        while program.pager.resident_pages() > 0 {
            assert_eq!(program.pager.reclaim(&mut program.cx), Step::Isolated);
        }
        program.pager.check();
    }
}

/// What is yielded to others has until the next time to be touched; nobody else writes it out before.
#[test]
fn what_is_yielded_goes_unless_it_is_touched_meanwhile() {
    let mut program = Program::new(protection::Kind::Off);
    (0..2 * PAGES).for_each(|page| _ = program.access(page, Access::Write, page as u8));
    program.pager.set_limit_pages(u64::from(3 * PAGES));
    assert_eq!((program.pager.isolated_pages(), program.pager.has_yielded()), (0, false));
    program.pager.yield_pages(BLOCK_PAGES, &mut program.cx);
    assert!(program.pager.has_yielded() && program.pager.isolated_pages() == u64::from(PAGES));
    // Another's turn: more is isolated, and what waits still does.
    assert_eq!(program.pager.reclaim(&mut program.cx), Step::Isolated);
    assert_eq!(program.pager.workingset.evicted_pages(), 0);
    // All comes back, and nothing goes.
    (0..2 * PAGES).for_each(|page| _ = program.access(page, Access::Read, page as u8));
    while program.pager.write_yielded(&mut program.cx) {}
    assert!(!program.pager.has_yielded());
    assert_eq!((program.pager.workingset.evicted_pages(), program.pager.resident_pages()), (0, u64::from(2 * PAGES)));
    // One of the blocks is not touched.
    program.pager.yield_pages(2 * BLOCK_PAGES, &mut program.cx);
    assert_eq!(program.pager.resident_pages(), 2, "those that brought the others back have a reference");
    (0..PAGES).for_each(|page| _ = program.access(page, Access::Read, page as u8));
    while program.pager.write_yielded(&mut program.cx) {}
    assert!(!program.pager.has_yielded());
    let [there, gone] = [program.pager.resident_pages(), program.pager.workingset.evicted_pages()];
    assert_eq!((there, gone, program.pager.isolated_pages()), (u64::from(PAGES) + 1, u64::from(PAGES) - 1, 0));
    (0..2 * PAGES).for_each(|page| _ = program.access(page, Access::Read, page as u8));
    program.pager.check();
}
