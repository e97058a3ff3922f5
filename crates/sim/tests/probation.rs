//! What comes back from the store is on probation: a program that goes over more memory than there is keeps most of what it has.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context};
use outswap_core::protection::Access;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimPager};
use outswap_sim::store::{Trouble, Worker};
use outswap_sim::world::{self, Arena, config, context};
use std::sync::atomic::Ordering::Relaxed;

const BLOCKS: usize = 96;
const PAGES: u32 = (BLOCKS * BLOCK_PAGES) as u32;
const LIMIT_PAGES: u64 = PAGES as u64 * 2 / 3;

fn pager(arena: &Arena, reclaim: reclaim::Kind, trouble: Trouble) -> Box<SimPager> {
    let small = Config { readahead: readahead::Kind::Streams, orders: orders::Any::Small, ..config(PAGES) };
    let pager = world::pager(arena, Config { reclaim, ..small }, Chaos::default(), trouble, LIMIT_PAGES);
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    pager
}

/// Finds in a page what was written to it in the round before, and writes this round's. Returns how many faults that took.
fn touch(pager: &SimPager, page: u32, round: u32, cx: &mut Context<Worker>) -> u64 {
    let look = || {
        pager.machine.access(page, true, |content| {
            let word = |n: u32| (page << 10 | n).to_le_bytes();
            assert!(round == 0 || content[..4] == word(round - 1), "page {page} in round {round}");
            content[..4].copy_from_slice(&word(round));
        })
    };
    let mut faults = 0;
    while look() != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
        faults += 1;
    }
    faults
}

/// Faults of rounds over all pages, as if each were touched at random: no two of them one after the other.
fn faults_of_rounds(reclaim: reclaim::Kind, rounds: u32) -> u64 {
    let arena = Arena::default();
    let pager = pager(&arena, reclaim, Trouble::default());
    let mut cx = context();
    let mut round = |round| (0..PAGES).map(|n| touch(&pager, n * 2741 % PAGES, round, &mut cx)).sum::<u64>();
    round(0);
    let faults = (1..=rounds).map(round).sum();
    pager.check();
    faults
}

/// The same, block by block.
fn faults_of_passes(reclaim: reclaim::Kind, rounds: u32) -> u64 {
    let arena = Arena::default();
    let pager = pager(&arena, reclaim, Trouble::default());
    let mut cx = context();
    let mut pass = |round| {
        let blocks = (0..BLOCKS as u32).map(|n| n * 37 % BLOCKS as u32);
        let in_block = BLOCK_PAGES as u32;
        let pages = blocks.flat_map(|block| (0..in_block).map(move |n| block * in_block + n * 27 % in_block));
        pages.map(|page| touch(&pager, page, round, &mut cx)).sum::<u64>()
    };
    pass(0);
    let faults = (1..=rounds).map(pass).sum();
    pager.check();
    faults
}

#[test]
fn a_program_that_goes_over_too_much_finds_most_of_what_fits() {
    const ROUNDS: u32 = 6;
    let all = u64::from(PAGES * ROUNDS);
    let (fifo, probation) =
        (faults_of_passes(reclaim::Kind::Fifo, ROUNDS), faults_of_passes(reclaim::Kind::Probation, ROUNDS));
    // A third of the pages does not fit.
    assert!(fifo > all * 9 / 10, "{fifo} of {all} touches fault, first in, first out");
    assert!(probation < all / 2, "{probation} of {all} touches fault");
}

/// Pages that rounds over all pages in order read from a store that is slow, with what is read ahead.
fn pages_read(reclaim: reclaim::Kind, rounds: u32) -> u64 {
    let arena = Arena::default();
    let pager = pager(&arena, reclaim, Trouble { slow_in: 1, ..Trouble::default() });
    let mut cx = context();
    for round in 0..=rounds {
        for page in 0..PAGES {
            touch(&pager, page, round, &mut cx);
            while pager.is_ahead_asked() {
                pager.read_ahead(&mut cx);
            }
        }
    }
    pager.check();
    let [missed, ahead] =
        [Event::FaultMiss, Event::PagesReadAhead].map(|e| pager.machine.events[e as usize].load(Relaxed));
    assert!(ahead > missed, "{missed} pages were waited for, {ahead} read ahead");
    missed + ahead
}

#[test]
fn what_was_read_ahead_and_is_touched_has_come_back_too() {
    let (fifo, probation) = (pages_read(reclaim::Kind::Fifo, 6), pages_read(reclaim::Kind::Probation, 6));
    assert!(probation * 3 < fifo * 2, "{probation} pages were read, {fifo} first in, first out");
}

#[test]
fn where_all_is_touched_at_random_nothing_is_lost_by_it() {
    let (fifo, probation) = (faults_of_rounds(reclaim::Kind::Fifo, 4), faults_of_rounds(reclaim::Kind::Probation, 4));
    assert!(probation * 10 < fifo * 11, "{probation} faults, {fifo} first in, first out");
}

#[test]
fn what_comes_into_use_stays_however_late() {
    let arena = Arena::default();
    let pager = pager(&arena, reclaim::Kind::Probation, Trouble::default());
    let mut cx = context();
    let mut round_of = vec![0u32; PAGES as usize];
    let mut use_page = |page: u32, cx: &mut Context<Worker>| {
        let round = &mut round_of[page as usize];
        *round += 1;
        touch(&pager, page, *round - 1, cx)
    };
    // All is touched once; then four blocks are used all the time that are in the store by then, while the rest is gone over.
    (0..PAGES).for_each(|page| _ = use_page(page, &mut cx));
    let used = 4 * BLOCK_PAGES as u32;
    let (mut early, mut late) = (0, 0);
    for n in 0..4 * PAGES {
        use_page(used + n % (PAGES - used), &mut cx);
        let faults = use_page(n * 37 % used, &mut cx);
        if n < PAGES { early += faults } else { late += faults }
    }
    assert!(early >= u64::from(used), "{early}: they were in the store");
    assert!(late * 20 < u64::from(3 * PAGES), "{late} faults of {} touches of what is in use", 3 * PAGES);
    pager.check();
}

/// A program that goes over all blocks again and again, and what it has in each page.
struct Passes<'a> {
    pager: &'a SimPager,
    cx: Box<Context<Worker>>,
    round_of: Vec<u32>,
}

impl Passes<'_> {
    fn touch(&mut self, page: u32) {
        let round = &mut self.round_of[page as usize];
        touch(self.pager, page, *round, &mut self.cx);
        *round += 1;
    }

    /// Goes over all of them so often. Where one waits whole, so many of its pages are touched, one after the other. Returns how many pages
    /// came along with a touched one, of each touch that brought any back.
    fn go_over(&mut self, passes: u32, touched: u32) -> f64 {
        let count = |event: Event| self.pager.machine.events[event as usize].load(Relaxed);
        let (hits, along) = (count(Event::FaultHit), count(Event::PagesPutBack));
        let pages_of = |block: u32| (0..BLOCK_PAGES as u32).map(move |i| block * BLOCK_PAGES as u32 + i);
        for n in 0..passes * BLOCKS as u32 {
            pages_of(n * 37 % BLOCKS as u32).for_each(|page| self.touch(page));
            let waits = |&block: &u32| pages_of(block).all(|page| self.pager.state(PageNo(page)) == State::Isolated);
            if let Some(block) = (0..BLOCKS as u32).find(waits) {
                pages_of(block).take(touched as usize).for_each(|page| self.touch(page));
            }
        }
        (count(Event::PagesPutBack) - along) as f64 / (count(Event::FaultHit) - hits) as f64
    }
}

#[test]
fn what_is_touched_page_by_page_brings_nothing_along_and_again_all_when_that_changes() {
    const ALL: u32 = BLOCK_PAGES as u32;
    let arena = Arena::default();
    let pager = pager(&arena, reclaim::Kind::Probation, Trouble::default());
    let mut program = Passes { pager: &pager, cx: context(), round_of: vec![0; PAGES as usize] };
    let along = program.go_over(1, 1);
    assert!(along > 30.0, "{along} pages come along at first");
    program.go_over(40, 1);
    let along = program.go_over(4, 1);
    assert!(along < 1.0, "{along} pages come along that nobody wants");
    program.go_over(20, ALL);
    let along = program.go_over(4, ALL);
    assert!(along > 10.0, "{along} pages come along where all are wanted");
    pager.check();
}

/// Pages that were read, and those that came back from where they waited, while a third of the memory is touched now and then, and the rest is
/// gone over.
fn read_and_back(reclaim: reclaim::Kind) -> (u64, u64) {
    const USED: u32 = 24;
    let arena = Arena::default();
    let pager = pager(&arena, reclaim, Trouble::default());
    let mut program = Passes { pager: &pager, cx: context(), round_of: vec![0; PAGES as usize] };
    let count = |[a, b]: [Event; 2]| [a, b].map(|e| pager.machine.events[e as usize].load(Relaxed)).iter().sum::<u64>();
    let pages_of = |block: u32| (0..BLOCK_PAGES as u32).map(move |i| block * BLOCK_PAGES as u32 + i);
    (0..USED).flat_map(pages_of).for_each(|page| program.touch(page));
    let (mut read, mut touches) = (0, 0);
    for _ in 0..12 {
        for block in USED..BLOCKS as u32 {
            pages_of(block).for_each(|page| program.touch(page));
            let before = count([Event::FaultMiss, Event::FaultBypass]);
            for _ in 0..BLOCK_PAGES {
                touches += 1;
                program.touch(touches * 2741 % (USED * BLOCK_PAGES as u32));
            }
            read += count([Event::FaultMiss, Event::FaultBypass]) - before;
        }
    }
    pager.check();
    (read, count([Event::FaultHit, Event::PagesPutBack]))
}

#[test]
fn a_few_pages_tell_of_a_block_that_is_used() {
    let [sounded, probation] = [reclaim::Kind::Sounded, reclaim::Kind::Probation].map(read_and_back);
    assert!(sounded.0 * 2 < probation.0, "{} pages read, {} where all of a block waits", sounded.0, probation.0);
    assert!(sounded.1 * 2 < probation.1, "{} pages came back, {} where all of a block waits", sounded.1, probation.1);
}
