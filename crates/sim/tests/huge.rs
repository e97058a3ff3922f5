//! Memory that a program fills from start to end comes as huge pages, and no other does.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::orders;
use outswap_core::pager::{Config, Context};
use outswap_core::protection::Access;
use outswap_core::units::{MAX_FOLIO_PAGES, PageNo};
use outswap_sim::machine::{Chaos, Found, SimPager};
use outswap_sim::store::{Trouble, Worker};
use outswap_sim::world::{self, Arena, config, context, with_huge};
use std::sync::atomic::Ordering::Relaxed;

const HUGE: u32 = MAX_FOLIO_PAGES as u32;
const PAGES: u32 = 8 * HUGE;

fn pager(arena: &Arena, orders: orders::Any, chaos: Chaos) -> Box<SimPager> {
    world::pager(arena, Config { orders, ..config(PAGES) }, chaos, Trouble::default(), 1 << 20)
}

fn content(page: u32) -> [u8; 4] {
    (page + 1).to_le_bytes()
}

/// Writes to a page that held nothing, or looks at what was written to it.
fn touch(pager: &SimPager, page: u32, writes: bool, cx: &mut Context<Worker>) {
    let access = if writes { Access::Write } else { Access::Read };
    let look = || {
        pager.machine.access(page, writes, |bytes| {
            if writes {
                assert!(bytes.iter().all(|&byte| byte == 0), "page {page} holds something");
                bytes[..4].copy_from_slice(&content(page));
            } else {
                assert!(bytes[..4] == content(page) && bytes[4..].iter().all(|&byte| byte == 0), "page {page}");
            }
        })
    };
    while look() != Found::Done {
        assert_eq!(pager.fault(PageNo(page), access, cx), Fault::Done, "page {page}");
    }
}

fn huge(pager: &SimPager) -> u64 {
    pager.machine.events[Event::HugeIn as usize].load(Relaxed)
}

#[test]
fn what_is_filled_in_order_comes_by_huge_pages() {
    for (policy, wanted) in [(with_huge(), 7), (orders::Any::DEFAULT, 0)] {
        let arena = Arena::default();
        let pager = pager(&arena, policy, Chaos::default());
        let mut cx = context();
        assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
        (0..PAGES).for_each(|page| touch(&pager, page, true, &mut cx));
        assert_eq!(huge(&pager), wanted, "{policy:?}");
        assert_eq!((pager.resident_pages(), pager.machine.mapped_pages()), (u64::from(PAGES), u64::from(PAGES)));
        pager.check();
        // All of it can leave, and is what it was.
        pager.set_limit_pages(512);
        pager.make_room(1, &mut cx);
        assert!(pager.used_pages() <= 512);
        (0..PAGES).rev().for_each(|page| touch(&pager, page, false, &mut cx));
        pager.check();
        assert!(pager.unmap(PageNo(0), PAGES));
        assert_eq!((pager.used_pages(), pager.machine.mapped_pages()), (0, 0));
    }
}

#[test]
fn who_uses_little_of_each_gets_no_more_than_one() {
    let arena = Arena::default();
    let pager = pager(&arena, with_huge(), Chaos::default());
    let mut cx = context();
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    (0..HUGE).for_each(|page| touch(&pager, page, true, &mut cx));
    (1..8).for_each(|folio| touch(&pager, folio * HUGE, true, &mut cx));
    assert_eq!(huge(&pager), 1, "the one after what was filled");
    assert!(pager.resident_pages() <= u64::from(2 * HUGE) + 7 * 16);
    // Nor who begins somewhere in the middle, or had something of it.
    let before = huge(&pager);
    (HUGE + 1..2 * HUGE).for_each(|page| touch(&pager, page, true, &mut cx));
    touch(&pager, 2 * HUGE + 100, true, &mut cx);
    assert_eq!(huge(&pager), before);
    pager.check();
}

#[test]
fn what_a_call_is_about_to_fill_counts_as_filled() {
    for calls in [true, false] {
        let arena = Arena::default();
        let pager = pager(&arena, with_huge(), Chaos::default());
        let mut cx = context();
        assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
        (0..HUGE - 150).for_each(|page| touch(&pager, page, true, &mut cx));
        let pin = pager.pins.acquire(1, usize::MAX).expect("nobody has one");
        if calls {
            pager.pins.publish(pin, PageNo(HUGE - 150), 250);
        }
        assert_eq!(pager.pin(PageNo(HUGE - 150), 250, Access::Write, &mut cx), (250, Fault::Done));
        pager.pins.release(pin);
        assert_eq!(huge(&pager), u64::from(calls));
        pager.check();
    }
}

#[test]
fn huge_pages_come_far_below_the_limit_alone() {
    let arena = Arena::default();
    let pager = pager(&arena, with_huge(), Chaos::default());
    let mut cx = context();
    pager.set_limit_pages(u64::from(4 * HUGE));
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    for page in 0..PAGES {
        touch(&pager, page, true, &mut cx);
        assert!(pager.used_pages() <= pager.limit_pages());
    }
    assert_eq!(huge(&pager), 1, "with two the half of the limit is used");
    (0..PAGES).for_each(|page| touch(&pager, page, false, &mut cx));
    pager.check();
}

#[test]
fn a_huge_page_lies_in_one_mapping_whose_pages_may_leave() {
    type Maps = &'static dyn Fn(&SimPager);
    let cases: [(&str, Maps); 5] = [
        ("two mappings", &|pager| {
            assert!(pager.map(PageNo(HUGE), HUGE - 64, Prot::READ_WRITE, false));
            assert!(pager.map(PageNo(2 * HUGE - 64), 64, Prot::READ, false));
        }),
        ("to be read", &|pager| assert!(pager.map(PageNo(HUGE), HUGE, Prot::READ, false))),
        ("locked", &|pager| assert!(pager.map(PageNo(HUGE), HUGE, Prot::READ_WRITE, true))),
        ("too short", &|pager| assert!(pager.map(PageNo(HUGE), HUGE - 1, Prot::READ_WRITE, false))),
        ("another mapping of the machine's", &|pager| {
            assert!(pager.map(PageNo(HUGE), HUGE, Prot::READ_WRITE, false));
            pager.machine.set_border(HUGE as usize + 300);
        }),
    ];
    for (name, map) in cases {
        let arena = Arena::default();
        let pager = pager(&arena, with_huge(), Chaos::default());
        let mut cx = context();
        assert!(pager.map(PageNo(0), HUGE, Prot::READ_WRITE, false));
        map(&pager);
        (0..HUGE).for_each(|page| touch(&pager, page, true, &mut cx));
        assert_eq!(pager.fault(PageNo(HUGE), Access::Read, &mut cx), Fault::Done, "{name}");
        assert_eq!(huge(&pager), 0, "{name}");
        assert!(pager.resident_pages() < u64::from(HUGE) + 64, "{name}");
        pager.check();
    }
}

#[test]
fn a_machine_that_has_none_and_threads_that_come_at_once_lose_nothing() {
    for no_memory_in in [0, 2] {
        let arena = Arena::default();
        let chaos = Chaos { put_again_in: 5, no_memory_in, ..Chaos::default() };
        let pager = pager(&arena, with_huge(), chaos);
        assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
        (0..HUGE).for_each(|page| fill(&pager, page));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let pager = &pager;
                scope.spawn(move || (HUGE..PAGES).filter(|page| page % 3 == thread).for_each(|page| fill(pager, page)));
            }
        });
        let mut cx = context();
        pager.machine.calm();
        (0..PAGES).for_each(|page| touch(&pager, page, false, &mut cx));
        assert!(no_memory_in != 0 || huge(&pager) > 0);
        pager.check();
    }
}

/// Writes to a page, as often as the machine has no memory for it.
fn fill(pager: &SimPager, page: u32) {
    let mut cx = context();
    while pager.machine.access(page, true, |bytes| bytes[..4].copy_from_slice(&content(page))) != Found::Done {
        let end = pager.fault(PageNo(page), Access::Write, &mut cx);
        assert!(matches!(end, Fault::Done | Fault::NoMemory), "page {page}: {end:?}");
    }
}
