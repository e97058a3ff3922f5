//! A store that has no room: how often it is asked in vain, what the program finds, and who is held back.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::slots::CLUSTER_SLOTS;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble, Worker};
use outswap_sim::world::{Arena, context};
use std::sync::atomic::Ordering::Relaxed;

const PAGES: u32 = 16 * BLOCK_PAGES as u32;
const LIMIT_PAGES: u64 = 2 * BLOCK_PAGES as u64;
const STORE_PAGES: usize = 3 * BLOCK_PAGES;
/// What has room in memory and store together, but for what is about to leave.
const ROOM_PAGES: u32 = LIMIT_PAGES as u32 + STORE_PAGES as u32;
/// What the limit may be exceeded by where it holds: what one fault brings.
const SLACK_PAGES: u64 = 32;

struct Program {
    pager: Box<SimPager>,
    cx: Box<Context<Worker>>,
}

impl Program {
    /// A program whose store has room for [`STORE_PAGES`].
    fn new(arena: &Arena) -> Program {
        let slots = 2 * (PAGES as usize).max(CLUSTER_SLOTS);
        let machine = SimMachine::new(1, PAGES as usize, 32, 1, Chaos::default(), Sabotage::None);
        let trouble = Trouble { capacity: STORE_PAGES, ..Trouble::default() };
        let store = SimStore::new(1, slots, trouble, Sabotage::None);
        let config = Config {
            pages: PAGES,
            slots,
            batches: 32,
            pins: 1,
            mappings: 8,
            seed: 1,
            readahead: readahead::Kind::Streams,
            page_cluster: readahead::PAGE_CLUSTER,
            reclaim: reclaim::Kind::Fifo,
            orders: orders::Any::Small,
            reuse: protection::Kind::Protect,
        };
        let pager = Box::new(Pager::new(machine, store, arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
        pager.set_limit_pages(LIMIT_PAGES);
        Program { pager, cx: context() }
    }

    /// Writes to a page, unless that is not to be now.
    fn write(&mut self, page: u32, round: u32) -> Fault {
        let number = [(page + 1).to_le_bytes(), round.to_le_bytes()].concat();
        while self.pager.machine.access(page, true, |content| content[..8].copy_from_slice(&number)) != Found::Done {
            match self.pager.fault(PageNo(page), Access::Write, &mut self.cx) {
                Fault::Done => {}
                fault => return fault,
            }
        }
        Fault::Done
    }

    /// The same by a program that waits for room, as long as there may be some.
    fn wait_and_write(&mut self, page: u32, round: u32) -> Fault {
        const STEP_NS: u64 = 10_000_000;
        const STEPS: u32 = 200;
        for _ in 0..STEPS {
            if self.write(page, round) == Fault::Done {
                return Fault::Done;
            }
            self.pager.machine.clock.pass_ns(STEP_NS);
        }
        self.write(page, round)
    }

    /// Reads what [`Program::write`] wrote.
    fn check(&mut self, page: u32, round: u32) {
        let number = [(page + 1).to_le_bytes(), round.to_le_bytes()].concat();
        while self.pager.machine.access(page, false, |content| assert_eq!(content[..8], number)) != Found::Done {
            assert_eq!(self.pager.fault(PageNo(page), Access::Read, &mut self.cx), Fault::Done);
        }
    }

    fn count(&self, event: Event) -> u64 {
        self.pager.machine.events[event as usize].load(Relaxed)
    }
}

#[test]
fn a_full_store_is_left_alone_and_used_again_when_it_has_room() {
    const ROUNDS: u32 = 4;
    let arena = Arena::default();
    let mut program = Program::new(&arena);
    for round in 0..ROUNDS {
        for page in 0..PAGES {
            assert_eq!(program.write(page, round), Fault::Done, "the limit is exceeded");
        }
    }
    (0..PAGES).for_each(|page| program.check(page, ROUNDS - 1));
    let over = program.pager.used_pages();
    assert!(over > u64::from(PAGES) - STORE_PAGES as u64 - SLACK_PAGES, "{over} pages: there is no other place");
    assert!(over <= u64::from(PAGES), "nothing is held twice");
    // No time has passed but for waits of a microsecond, so only what was given up, and patience, are causes to ask again.
    let (refused, passed) = (program.count(Event::StoreFull), program.count(Event::StorePassedBy));
    let touched = u64::from(PAGES * (ROUNDS + 1));
    assert!(refused > 0 && refused < touched / 16, "{refused} refusals, {passed} batches passed by");
    assert!(passed > 4 * refused, "{refused} refusals, {passed} batches passed by");
    assert!(program.count(Event::OverLimitFull) > 0);
    assert_eq!(program.count(Event::OverLimit), 0, "the store is the cause");
    program.pager.check();

    // Somebody frees space, and says nothing.
    program.pager.store.calm();
    program.pager.machine.clock.pass_ns(1_000_000_000);
    for page in 0..PAGES {
        program.check(page, ROUNDS - 1);
    }
    assert!(program.pager.used_pages() <= LIMIT_PAGES + SLACK_PAGES, "{} pages", program.pager.used_pages());
    assert!(!program.pager.full.is_full());
    program.pager.check();
}

/// A copy of it would have to stay in memory.
#[test]
fn what_others_have_stays_where_the_store_is_full() {
    let arena = Arena::default();
    let mut program = Program::new(&arena);
    (0..PAGES).for_each(|page| assert_eq!(program.write(page, 0), Fault::Done));
    assert!(program.pager.full.is_full());
    program.pager.forked();
    program.pager.copies.forked(false);
    program.pager.machine.forked(1, false);
    let is_resident = |program: &Program, page: &u32| program.pager.state(PageNo(*page)) == State::Resident;
    let shared: Vec<u32> = (0..PAGES).filter(|page| is_resident(&program, page)).collect();
    assert!(shared.len() > BLOCK_PAGES);
    for _ in 0..4 {
        (0..PAGES).for_each(|page| program.check(page, 0));
        assert!(shared.iter().all(|page| is_resident(&program, page)));
    }
    // As long as it may refuse.
    program.pager.store.calm();
    program.pager.machine.clock.pass_ns(10_000_000_000);
    (0..PAGES).for_each(|page| program.check(page, 0));
    assert!(!shared.iter().all(|page| is_resident(&program, page)));
    program.pager.check();
}

#[test]
fn who_wants_new_memory_is_held_back_and_no_one_else() {
    let arena = Arena::default();
    let mut program = Program::new(&arena);
    program.pager.full.set_insists(true);
    let first = (0..PAGES).find(|&page| program.wait_and_write(page, 0) == Fault::Full).expect("not all of it fits");
    assert!(first > ROOM_PAGES - SLACK_PAGES as u32 && first <= ROOM_PAGES + SLACK_PAGES as u32, "{first}");
    for round in 1..4 {
        // What the program has it can use, and change.
        (0..first).for_each(|page| assert_eq!(program.wait_and_write(page, round), Fault::Done));
        (0..first).for_each(|page| program.check(page, round));
        assert_eq!(program.wait_and_write(first, round), Fault::Full, "there is room for no more");
        let used = program.pager.used_pages();
        assert!(used <= LIMIT_PAGES + SLACK_PAGES, "{used} pages");
    }
    assert_eq!(program.pager.fault(PageNo(PAGES), Access::Write, &mut program.cx), Fault::NotMapped);
    program.pager.unmap(PageNo(PAGES - 1), 1);
    let stray = program.pager.fault(PageNo(PAGES - 1), Access::Write, &mut program.cx);
    assert_eq!(stray, Fault::NotMapped, "what is not mapped is not waited for");

    // The program frees some, and has room for as much.
    program.pager.discard(PageNo(0), 2 * BLOCK_PAGES as u32);
    for page in first..first + BLOCK_PAGES as u32 {
        assert_eq!(program.wait_and_write(page, 9), Fault::Done, "page {page}");
    }
    // Who has waited long enough goes on.
    let last = (first..PAGES).find(|&page| program.wait_and_write(page, 9) == Fault::Full).expect("it is full again");
    program.pager.full.give_up();
    assert_eq!(program.wait_and_write(last, 9), Fault::Done);
    (first..=last).for_each(|page| program.check(page, 9));
    program.pager.check();
}
