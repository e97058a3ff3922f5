//! Memory that was never touched is left to the kernel while there is plenty, and taken back when there is not: no byte changes, the limit
//! holds, and what the kernel has not filled takes no room.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::page::State;
use outswap_core::pager::Context;
use outswap_core::protection::Access;
use outswap_core::units::{MAX_FOLIO_PAGES, PageNo};
use outswap_sim::machine::{Chaos, Found, SimPager};
use outswap_sim::store::{Trouble, Worker};
use outswap_sim::world::{self, Arena, config, context};
use std::sync::atomic::Ordering::Relaxed;

const PAGES: u32 = 8192;
/// So many pages are left at once, with a limit of sixteen times as many and more.
const GROUP: u32 = MAX_FOLIO_PAGES as u32;

fn pager(arena: &Arena, limit_pages: u32) -> Box<SimPager> {
    let chaos = Chaos { untraps_in: 1, ..Chaos::default() };
    let pager = world::pager(arena, config(PAGES), chaos, Trouble::default(), u64::from(limit_pages));
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    pager
}

/// Writes to a page that must have been written to so often; returns how many faults that took.
fn touch(pager: &SimPager, page: u32, times: u8, cx: &mut Context<Worker>) -> u32 {
    let write = |content: &mut [u8]| {
        assert!(content[0] == times && content[1..].iter().all(|byte| *byte == 0), "page {page}");
        content[0] += 1;
    };
    let mut faults = 0;
    while pager.machine.access(page, true, |content| write(content)) != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
        faults += 1;
    }
    faults
}

fn count(pager: &SimPager, event: Event) -> u64 {
    pager.machine.events[event as usize].load(Relaxed)
}

#[test]
fn what_was_never_touched_takes_a_fault_for_many_pages_while_there_is_plenty() {
    let arena = Arena::default();
    let pager = pager(&arena, 4 * PAGES);
    let mut cx = context();
    let faults = |times: u8, cx: &mut Context<Worker>| -> u32 {
        (0..PAGES * 3 / 8).map(|n| touch(&pager, n * 2741 % PAGES, times, cx)).sum()
    };
    assert_eq!((faults(0, &mut cx), faults(1, &mut cx)), (PAGES / GROUP, 0));
    assert_eq!((pager.untrapped_pages(), pager.resident_pages()), (u64::from(PAGES), u64::from(PAGES)));
    pager.check();
}

#[test]
fn what_is_left_to_the_kernel_is_a_part_of_the_limit() {
    let arena = Arena::default();
    let limit = PAGES / 2;
    let pager = pager(&arena, limit);
    let mut cx = context();
    let mut most = 0;
    for times in 0..3 {
        for n in 0..PAGES {
            touch(&pager, n * 2741 % PAGES, times, &mut cx);
            most = most.max(pager.untrapped_pages());
            assert!(pager.used_pages() <= u64::from(limit) + 64, "{} pages are used", pager.used_pages());
        }
    }
    assert!(most > 0 && most <= u64::from(limit / 3), "{most} pages are left");
    assert_eq!(pager.untrapped_pages(), 0, "memory is short");
    pager.check();
}

#[test]
fn what_the_kernel_has_not_filled_makes_room_before_anything_is_evicted() {
    let arena = Arena::default();
    let pager = pager(&arena, PAGES);
    let mut cx = context();
    // One page of each group, as far as groups are left; then all of the rest, which fits with these.
    let groups = PAGES / 3 / GROUP;
    (0..groups).for_each(|group| _ = touch(&pager, group * GROUP + 7, 0, &mut cx));
    assert_eq!(pager.untrapped_pages(), u64::from(groups * GROUP));
    (groups * GROUP..PAGES).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    let wanted = groups + PAGES - groups * GROUP;
    pager.trap_all(false);
    assert_eq!((pager.untrapped_pages(), count(&pager, Event::PagesTaken)), (0, 0));
    assert_eq!(pager.resident_pages(), u64::from(wanted), "pages in use");
    (0..groups).for_each(|group| _ = touch(&pager, group * GROUP + 7, 1, &mut cx));
    pager.check();
}

#[test]
fn little_by_little_memory_is_taken_back_while_some_is_free() {
    let arena = Arena::default();
    let pager = pager(&arena, PAGES);
    let mut cx = context();
    let left = PAGES / 3 / GROUP * GROUP;
    (0..left).step_by(64).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    let (mut page, before) = (left, pager.used_pages());
    while pager.used_pages() >= before.min(u64::from(PAGES * 2 / 3)) && page < PAGES {
        touch(&pager, page, 0, &mut cx);
        page += 1;
    }
    let fits = pager.used_pages() < u64::from(PAGES * 3 / 4);
    assert!(fits && count(&pager, Event::DirectReclaims) == 0, "{} pages are used", pager.used_pages());
    assert!(pager.untrapped_pages() < u64::from(left), "some was taken back");
}

#[test]
fn who_has_time_takes_all_back_where_memory_is_short_for_itself_or_for_others() {
    let arena = Arena::default();
    let pager = pager(&arena, 4 * PAGES);
    let mut cx = context();
    (0..GROUP * 4).step_by(64).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    assert!(!pager.trap_in_time(false), "there is plenty");
    while pager.trap_in_time(true) {}
    assert_eq!((pager.untrapped_pages(), pager.resident_pages()), (0, u64::from(GROUP * 4 / 64)));
    (GROUP * 4..GROUP * 8).step_by(64).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    pager.set_limit_pages(u64::from(GROUP * 4));
    while pager.trap_in_time(false) {}
    assert!(pager.used_pages() <= u64::from(GROUP * 4 * 2 / 3), "{} pages are used", pager.used_pages());
    pager.check();
}

#[test]
fn what_calls_are_using_stays_the_kernels() {
    let arena = Arena::default();
    let pager = pager(&arena, PAGES);
    let mut cx = context();
    touch(&pager, 0, 0, &mut cx);
    let (first, pages) = (PageNo(70), 20);
    let pin = pager.pins.acquire(1, usize::MAX).expect("one is free");
    pager.pins.publish(pin, first, pages);
    assert_eq!(pager.pin(first, pages, Access::Write, &mut cx).0, pages);
    pager.trap_all(false);
    // The call writes to them now.
    (70..90).for_each(|page| assert!(pager.machine.is_mapped(page), "page {page}"));
    assert_eq!(pager.untrapped_pages(), u64::from(pages));
    (70..90).for_each(|page| assert_eq!(touch(&pager, page, 0, &mut cx), 0, "page {page}"));
    pager.pins.release(pin);
    pager.trap_all(false);
    assert_eq!((pager.untrapped_pages(), pager.resident_pages()), (0, 21));
    (70..90).for_each(|page| _ = touch(&pager, page, 1, &mut cx));
    pager.check();
}

#[test]
fn what_is_told_of_though_it_was_left_is_filled_all_the_same() {
    let arena = Arena::default();
    let pager = pager(&arena, 4 * PAGES);
    let mut cx = context();
    touch(&pager, 0, 0, &mut cx);
    touch(&pager, 7, 0, &mut cx);
    let before = (pager.untrapped_pages(), pager.resident_pages());
    pager.machine.trap_unasked(0..GROUP as usize);
    for page in 0..GROUP {
        let is_there = page == 0 || page == 7;
        assert_eq!(touch(&pager, page, u8::from(is_there), &mut cx), u32::from(!is_there), "page {page}");
    }
    assert_eq!((pager.untrapped_pages(), pager.resident_pages()), before);
    pager.trap_all(false);
    (0..GROUP)
        .for_each(|page| assert_eq!(touch(&pager, page, if page % 7 == 0 && page < 8 { 2 } else { 1 }, &mut cx), 0));
    pager.check();
}

#[test]
fn what_is_locked_as_it_is_touched_is_taken_back() {
    let arena = Arena::default();
    let pager = pager(&arena, 4 * PAGES);
    let mut cx = context();
    (0..40).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    assert!(pager.set_locked(PageNo(0), GROUP, true, true));
    assert_eq!((pager.untrapped_pages(), pager.resident_pages()), (0, 40));
    assert!(touch(&pager, 50, 0, &mut cx) > 0 && pager.set_locked(PageNo(0), GROUP, false, true));
    pager.check();
}

#[test]
fn what_is_unmapped_is_nobodys_and_what_is_discarded_is_filled_anew() {
    let arena = Arena::default();
    let pager = pager(&arena, 2 * PAGES);
    let mut cx = context();
    (0..GROUP).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    pager.discard(PageNo(0), 100);
    (0..100).for_each(|page| assert_eq!(touch(&pager, page, 0, &mut cx), 0, "page {page}"));
    assert!(pager.unmap(PageNo(50), 100));
    assert_eq!((pager.untrapped_pages(), pager.state(PageNo(149))), (u64::from(GROUP) - 100, State::Untouched));
    pager.check();
    assert!(pager.map(PageNo(50), 100, Prot::READ_WRITE, false));
    assert!(touch(&pager, 60, 0, &mut cx) > 0, "the first touch is told");
    (0..50).chain(150..GROUP).for_each(|page| assert_eq!(touch(&pager, page, 1, &mut cx), 0, "page {page}"));
    pager.check();
}

#[test]
fn what_moves_holds_what_it_held() {
    let arena = Arena::default();
    let pager = pager(&arena, 2 * PAGES);
    let mut cx = context();
    (0..200).step_by(3).for_each(|page| _ = touch(&pager, page, 0, &mut cx));
    assert!(pager.unmap(PageNo(4096), 200) && pager.map(PageNo(4096), 200, Prot::READ_WRITE, false));
    assert_eq!(pager.move_pages(PageNo(0), PageNo(4096), 200, &mut cx), 200);
    for page in 0..200 {
        touch(&pager, 4096 + page, u8::from(page % 3 == 0), &mut cx);
        touch(&pager, page, 0, &mut cx);
    }
    pager.check();
}
