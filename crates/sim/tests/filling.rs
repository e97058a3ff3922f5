//! Memory that a program fills comes by many pages a fault, also where it fills it piece by piece; and memory that it uses here and there
//! comes as it is used.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::pager::{Config, Context};
use outswap_core::protection::Access;
use outswap_core::units::PageNo;
use outswap_core::{orders, readahead};
use outswap_sim::machine::{Chaos, Found, SimPager};
use outswap_sim::store::{Trouble, Worker};
use outswap_sim::world::{self, Arena, config, context};
use std::sync::atomic::Ordering::Relaxed;

const PAGES: u32 = 8192;

fn pager(arena: &Arena, maps_zero_in: u32, limit_pages: u32) -> Box<SimPager> {
    let config = Config { readahead: readahead::Kind::Auto, orders: orders::Any::AsItCame, ..config(PAGES) };
    let chaos = Chaos { maps_zero_in, ..Chaos::default() };
    let pager = world::pager(arena, config, chaos, Trouble::default(), u64::from(limit_pages));
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    pager
}

/// Writes to a page that must have been written to so often.
fn touch_again(pager: &SimPager, page: u32, times: u8, cx: &mut Context<Worker>) {
    let write = |content: &mut [u8]| {
        assert_eq!(content[0], times, "page {page}");
        content[0] += 1;
    };
    while pager.machine.access(page, true, |content| write(content)) != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
    }
}

fn touch(pager: &SimPager, page: u32, cx: &mut Context<Worker>) {
    while pager.machine.access(page, true, |content| content[0] = 1) != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
    }
}

/// Faults of first touches, and pages that came with them.
fn first_touches(pager: &SimPager) -> [u64; 2] {
    [Event::FaultFirstTouch, Event::PagesFirstTouch].map(|event| pager.machine.events[event as usize].load(Relaxed))
}

#[test]
fn memory_that_is_filled_piece_by_piece_comes_by_many_pages() {
    let arena = Arena::default();
    let pager = pager(&arena, 0, 2 * PAGES);
    let mut cx = context();
    let (mut at, mut n) = (0u32, 0u32);
    while at < PAGES - 64 {
        // An allocator writes the header behind the piece first, then its caller fills the piece.
        let piece = 20 + n * 7 % 21;
        touch(&pager, at + piece, &mut cx);
        (at..at + piece).for_each(|page| touch(&pager, page, &mut cx));
        (at, n) = (at + piece, n + 1);
    }
    let [faults, pages] = first_touches(&pager);
    assert!(pages <= u64::from(PAGES), "{pages} pages came");
    assert!(faults * 7 < pages, "{pages} pages came by {faults} faults");
    pager.check();
}

#[test]
fn memory_that_is_used_here_and_there_comes_as_it_is_used() {
    let arena = Arena::default();
    let pager = pager(&arena, 0, 2 * PAGES);
    let mut cx = context();
    let used = PAGES * 3 / 10;
    (0..used).for_each(|n| touch(&pager, n * 2741 % PAGES, &mut cx));
    let [_, pages] = first_touches(&pager);
    assert!(pages <= u64::from(used) * 102 / 100, "{pages} pages came for {used}");
    pager.check();
}

#[test]
fn memory_that_is_used_here_and_there_takes_a_fault_a_block_while_there_is_plenty() {
    let arena = Arena::default();
    let pager = pager(&arena, 1, 4 * PAGES);
    let mut cx = context();
    let used = PAGES * 3 / 10;
    for times in 0..3 {
        (0..used).for_each(|n| touch_again(&pager, n * 2741 % PAGES, times, &mut cx));
    }
    let [faults, pages] = first_touches(&pager);
    assert!(faults <= u64::from(PAGES) / 64, "{faults} faults");
    assert_eq!(pages, u64::from(PAGES));
    pager.check();
}

#[test]
fn zero_pages_are_mapped_up_to_a_part_of_the_limit() {
    let arena = Arena::default();
    let pager = pager(&arena, 1, PAGES / 2);
    let mut cx = context();
    for times in 0..3 {
        (0..PAGES).for_each(|n| touch_again(&pager, n * 2741 % PAGES, times, &mut cx));
    }
    let mapped = pager.machine.events[Event::PagesZeroMapped as usize].load(Relaxed);
    assert!(mapped > 0 && mapped <= u64::from(PAGES) / 4, "{mapped} pages were mapped");
    pager.check();
}
