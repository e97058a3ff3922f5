//! Folios larger than a block: they go to slots in one piece, and a stream's fault brings one.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::orders::{Any, Listed};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context};
use outswap_core::protection::Access;
use outswap_core::units::{BLOCK_PAGES, MAX_FOLIO_PAGES, Order, PageNo};
use outswap_sim::machine::{Chaos, Found, SimPager};
use outswap_sim::store::{Trouble, Worker};
use outswap_sim::world::{self, Arena, config, context};
use std::sync::atomic::Ordering::Relaxed;

const FOLIO: u32 = MAX_FOLIO_PAGES as u32;
const PAGES: u32 = 4 * FOLIO;

fn listed(orders: &[usize]) -> Any {
    Any::Listed(Listed::new(orders.iter().fold(0, |bits, order| bits | 1 << order)).expect("all are there"))
}

/// A pager of these orders, with slots for so many pages, whose memory is all there, each page with its number.
fn filled(arena: &Arena, orders: &[usize], slots: u32, cx: &mut Context<Worker>) -> Box<SimPager> {
    let config = Config { orders: listed(orders), slots: slots as usize, batches: 64, ..config(PAGES) };
    let pager = world::pager(arena, config, Chaos::default(), Trouble::default(), 1 << 20);
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    write(&pager, 0, PAGES, 0, cx);
    pager
}

fn content(page: u32) -> [u8; 4] {
    (page + 1).to_le_bytes()
}

/// Has a call bring pages in, and writes their numbers to them, and which write this is.
fn write(pager: &SimPager, first: u32, count: u32, round: u8, cx: &mut Context<Worker>) {
    assert_eq!(pager.pin(PageNo(first), count, Access::Write, cx), (count, Fault::Done));
    for page in first..first + count {
        let found = pager.machine.access(page, true, |bytes| {
            bytes[..4].copy_from_slice(&content(page));
            bytes[4] = round;
        });
        assert_eq!(found, Found::Done, "page {page}");
    }
}

/// Reads a page, and says whether that was a fault.
fn read(pager: &SimPager, page: u32, cx: &mut Context<Worker>) -> bool {
    let look = || {
        pager.machine.access(page, false, |bytes| {
            assert!(bytes[..4] == content(page) && bytes[5..].iter().all(|&byte| byte == 0), "page {page}");
        })
    };
    let mut faulted = false;
    while look() != Found::Done {
        faulted = true;
        assert_eq!(pager.fault(PageNo(page), Access::Read, cx), Fault::Done, "page {page}");
    }
    faulted
}

fn count(pager: &SimPager, event: Event) -> u64 {
    pager.machine.events[event as usize].load(Relaxed)
}

/// Whether the aligned group of so many pages from `first` on is stored in slots in one piece, from one on that their count divides.
fn is_in_one_piece(pager: &SimPager, first: u32, pages: u32) -> bool {
    let Some(slot) = pager.stored_in(PageNo(first)) else { return false };
    let follows = |i: u32| pager.stored_in(PageNo(first + i)) == Some(slot.plus(i as usize));
    slot.0.is_multiple_of(pages) && (0..pages).all(follows)
}

#[test]
fn what_fills_several_blocks_goes_to_slots_in_one_piece() {
    for order in 7..=9 {
        let (arena, mut cx) = (Arena::default(), context());
        let pager = filled(&arena, &[4, order], 2 * PAGES, &mut cx);
        let pages = Order::new(order).pages() as u32;
        for round in 1..=3 {
            pager.page_out(PageNo(0), PAGES, true, &mut cx);
            let whole = (0..PAGES).step_by(pages as usize).filter(|&first| is_in_one_piece(&pager, first, pages));
            assert_eq!(whole.count() as u32, PAGES / pages, "order {order}, round {round}");
            // Each block is stored at once, as a part of its folio.
            assert_eq!(count(&pager, Event::FoliosOut), u64::from(round * PAGES) / BLOCK_PAGES as u64);
            pager.check();
            write(&pager, 0, PAGES, round as u8, &mut cx);
        }
        assert_eq!(count(&pager, Event::FolioFallbacks), 0);
        // What is asked for ends in the middle of a folio: only those that are whole go whole.
        pager.page_out(PageNo(pages / 2), 2 * pages, true, &mut cx);
        assert!(!is_in_one_piece(&pager, 0, pages) && is_in_one_piece(&pager, pages, pages));
        assert_eq!([0, pages / 2].map(|page| pager.state(PageNo(page))), [State::Resident, State::Swapped]);
        (0..PAGES).for_each(|page| _ = read(&pager, page, &mut cx));
        pager.check();
    }
}

#[test]
fn a_stream_brings_a_large_folio_by_one_fault() {
    for (orders, pages) in [(&[4, 8, 9][..], 256), (&[4, 7, 9], 128)] {
        let (arena, mut cx) = (Arena::default(), context());
        let pager = filled(&arena, orders, 2 * PAGES, &mut cx);
        pager.page_out(PageNo(0), PAGES, true, &mut cx);
        let mut faults = || (0..PAGES).filter(|&page| read(&pager, page, &mut cx)).count() as u32;
        let few = PAGES / pages..PAGES / pages + 8;
        let first = faults();
        assert!(few.contains(&first), "{orders:?}: {first} faults");
        // What was not written goes back to where it was, and is the same folios there.
        pager.page_out(PageNo(0), PAGES, true, &mut context());
        assert_eq!(count(&pager, Event::FolioBlocks), u64::from(PAGES) / BLOCK_PAGES as u64);
        let second = faults();
        assert!(few.contains(&second), "{orders:?}: {second} faults");
        pager.check();
    }
}

#[test]
fn a_stream_brings_no_large_folio_of_much_of_the_limit() {
    for (limit, is_whole) in [(16 * FOLIO / 2, true), (16 * FOLIO / 2 - 1, false)] {
        let (arena, mut cx) = (Arena::default(), context());
        let pager = filled(&arena, &[4, 8], 2 * PAGES, &mut cx);
        pager.page_out(PageNo(0), PAGES, true, &mut cx);
        pager.set_limit_pages(u64::from(limit));
        let faults = (0..PAGES).filter(|&page| read(&pager, page, &mut cx)).count() as u32;
        // A fault a folio, or a block.
        assert_eq!(faults < PAGES / (FOLIO / 2) + 8, is_whole, "{limit}: {faults} faults");
        pager.check();
    }
}

#[test]
fn a_part_of_a_folio_that_was_moved_to_the_end_of_the_range_comes_in() {
    let (arena, mut cx) = (Arena::default(), context());
    let pages = PAGES + BLOCK_PAGES as u32;
    let config = Config { orders: listed(&[4, 8, 9]), slots: 2 * PAGES as usize, batches: 64, ..config(pages) };
    let pager = world::pager(&arena, config, Chaos::default(), Trouble::default(), 1 << 20);
    assert!(pager.map(PageNo(0), pages, Prot::READ_WRITE, false));
    write(&pager, 0, PAGES, 0, &mut cx);
    pager.page_out(PageNo(0), PAGES, true, &mut cx);
    let block = BLOCK_PAGES as u32;
    assert_eq!(pager.move_pages(PageNo(block), PageNo(PAGES), block, &mut cx), block);
    for page in PAGES - 2 * block..pages {
        while pager.machine.access(page, false, |_| ()) != Found::Done {
            assert_eq!(pager.fault(PageNo(page), Access::Read, &mut cx), Fault::Done, "page {page}");
        }
    }
    pager.check();
}

#[test]
fn who_reads_large_folios_here_and_there_gets_a_page_each() {
    let (arena, mut cx) = (Arena::default(), context());
    let pager = filled(&arena, &[4, 8, 9], 2 * PAGES, &mut cx);
    pager.page_out(PageNo(0), PAGES, true, &mut cx);
    (1..=20).for_each(|i| assert!(read(&pager, i * 1237 % PAGES, &mut cx)));
    assert_eq!(pager.resident_pages(), 20);
    pager.check();
}

#[test]
fn what_is_touched_of_a_large_folio_on_its_way_out_stays_and_the_rest_goes() {
    let (arena, mut cx) = (Arena::default(), context());
    let pager = filled(&arena, &[4, 9], 2 * PAGES, &mut cx);
    // Reclaim's policy takes a block, and what is of one folio with it.
    pager.set_limit_pages(u64::from(PAGES));
    assert!(pager.isolate_ahead(64, &mut cx) || pager.isolated_pages() > 0);
    assert_eq!(pager.isolated_pages(), u64::from(FOLIO), "all of a folio");
    let first = (0..PAGES).find(|&page| pager.state(PageNo(page)) == State::Isolated).expect("there is one");
    assert!(first.is_multiple_of(FOLIO) && pager.used_slots() == u64::from(FOLIO));
    assert_eq!(pager.waiting_slots(), u64::from(FOLIO));
    pager.check();
    // One that is touched brings its block back, which has no slots then.
    pager.set_limit_pages(2 * u64::from(PAGES));
    assert_eq!(pager.fault(PageNo(first + 3), Access::Write, &mut cx), Fault::Done);
    assert_eq!(pager.waiting_slots(), u64::from(FOLIO) - BLOCK_PAGES as u64);
    pager.set_limit_pages(u64::from(PAGES) - 2 * u64::from(FOLIO));
    assert!(pager.make_room(1, &mut cx));
    pager.page_out(PageNo(first), FOLIO, true, &mut cx);
    let last = pager.stored_in(PageNo(first + FOLIO - 1)).expect("all of it is gone").0;
    let is_in_place = |i: u32| pager.stored_in(PageNo(first + i)).is_some_and(|slot| slot.0 + FOLIO - 1 - i == last);
    let in_place = (0..FOLIO).filter(|&i| is_in_place(i)).collect::<Vec<_>>();
    assert_eq!(((last + 1) % FOLIO, in_place), (0, (BLOCK_PAGES as u32..FOLIO).collect::<Vec<_>>()));
    pager.check();
    (0..PAGES).for_each(|page| _ = read(&pager, page, &mut cx));
    pager.check();
}

#[test]
fn a_large_folio_that_finds_no_slots_in_one_piece_goes_in_smaller_ones() {
    let (arena, mut cx) = (Arena::default(), context());
    // Four clusters, of which one serves single pages.
    let pager = filled(&arena, &[0, 4, 8, 9], PAGES, &mut cx);
    pager.page_out(PageNo(PAGES - 1), 1, true, &mut cx);
    pager.page_out(PageNo(0), PAGES, true, &mut cx);
    let whole =
        |pages: u32| (0..PAGES).step_by(pages as usize).filter(|&first| is_in_one_piece(&pager, first, pages)).count();
    // The last folio lacks a page. Its half that is whole finds no slots, nor does any of its 31 parts that are.
    assert_eq!((whole(FOLIO), count(&pager, Event::FolioFallbacks)), (3, 1 + 31));
    assert_eq!(pager.resident_pages(), 0, "single pages find some");
    (0..PAGES).for_each(|page| _ = read(&pager, page, &mut cx));
    pager.check();
}

#[test]
fn reclaim_takes_no_large_folio_of_much_of_the_limit() {
    let (arena, mut cx) = (Arena::default(), context());
    let pager = filled(&arena, &[4, 9], 2 * PAGES, &mut cx);
    pager.set_limit_pages(u64::from(FOLIO));
    assert!(pager.isolate_ahead(64, &mut cx));
    assert!(pager.isolated_pages() < u64::from(FOLIO), "{} pages", pager.isolated_pages());
    // Nor more than others ask for.
    let before = pager.isolated_pages();
    pager.yield_pages(BLOCK_PAGES, &mut cx);
    assert_eq!(pager.isolated_pages(), before + BLOCK_PAGES as u64);
    (0..PAGES).for_each(|page| _ = read(&pager, page, &mut cx));
    pager.check();
}
