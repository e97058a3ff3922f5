//! One thread takes pages and frees frames, and another writes out.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Machine, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::room::{Reclaimed, Reclaiming, Step};
use outswap_core::slots::CLUSTER_SLOTS;
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble, Worker};
use outswap_sim::world::{Arena, context};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A pager over so many blocks, all mapped.
fn pager(arena: &Arena, blocks: usize, trouble: Trouble) -> Box<SimPager> {
    let pages = blocks * BLOCK_PAGES;
    let slots = 2 * pages.max(CLUSTER_SLOTS);
    let config = Config {
        pages: pages as u32,
        slots,
        batches: 8,
        pins: 8,
        mappings: 64,
        seed: 1,
        readahead: readahead::Kind::Streams,
        page_cluster: readahead::PAGE_CLUSTER,
        reclaim: reclaim::Kind::Fifo,
        orders: orders::Any::Small,
        reuse: protection::Kind::Protect,
    };
    let machine = SimMachine::new(1, pages, config.batches, 1, Chaos::default(), Sabotage::None);
    let store = SimStore::new(1, slots, trouble, Sabotage::None);
    let pager = Box::new(Pager::new(machine, store, arena, config).expect("tables fit"));
    pager.machine.attach(&pager);
    assert!(pager.map(PageNo(0), pages as u32, Prot::READ_WRITE, false));
    pager
}

/// Writes the page's number to it.
fn touch(pager: &SimPager, page: u32, cx: &mut Context<Worker>) {
    let write = || pager.machine.access(page, true, |content| content[..4].copy_from_slice(&page.to_le_bytes()));
    while write() != Found::Done {
        assert_eq!(pager.fault(PageNo(page), Access::Write, cx), Fault::Done, "page {page}");
    }
}

#[test]
fn what_waits_goes_when_the_program_says_so() {
    const BLOCK: u32 = BLOCK_PAGES as u32;
    let (arena, mut cx) = (Arena::default(), context());
    let pager = pager(&arena, 8, Trouble::default());
    let all = || 0..4 * BLOCK;
    all().for_each(|page| touch(&pager, page, &mut cx));
    pager.page_out(PageNo(0), 4 * BLOCK, false, &mut cx);
    assert!(all().all(|page| pager.state(PageNo(page)) == State::Isolated));
    // A page of the third block, and what waits beside it; then of the second the page that was touched meanwhile as well.
    pager.page_out(PageNo(2 * BLOCK + 5), 1, true, &mut cx);
    let is_gone = |page: u32| matches!(pager.state(PageNo(page)), State::Swapped | State::Zero);
    assert!(all().all(|page| is_gone(page) == (page / BLOCK == 2)));
    touch(&pager, BLOCK + 7, &mut cx);
    pager.page_out(PageNo(0), 2 * BLOCK, true, &mut cx);
    assert!(all().all(|page| is_gone(page) == (page / BLOCK < 3)));
    pager.check();
    for page in all() {
        let read = || pager.machine.access(page, false, |content| assert_eq!(content[..4], page.to_le_bytes()));
        while read() != Found::Done {
            assert_eq!(pager.fault(PageNo(page), Access::Read, &mut cx), Fault::Done, "page {page}");
        }
    }
    pager.check();
}

#[test]
fn one_isolates_and_another_writes_out() {
    const LIMIT_PAGES: u64 = 4 * BLOCK_PAGES as u64;
    let arena = Arena::default();
    let pager = pager(&arena, 8, Trouble::default());
    let mut cx = context();
    pager.set_limit_pages(LIMIT_PAGES);
    (0..LIMIT_PAGES as u32).for_each(|page| touch(&pager, page, &mut cx));
    assert_eq!(pager.write_back(&mut cx), Step::Nothing, "it isolates nothing by itself");
    assert_eq!(pager.resident_pages(), LIMIT_PAGES);
    assert!(pager.isolate_ahead(2 * BLOCK_PAGES, &mut cx), "there is something to write");
    let isolated = LIMIT_PAGES - pager.resident_pages();
    assert!(isolated >= 2 * BLOCK_PAGES as u64, "{isolated} pages");
    assert_eq!(pager.used_pages(), LIMIT_PAGES, "they still take memory");
    pager.isolate_ahead(BLOCK_PAGES, &mut cx);
    assert_eq!(LIMIT_PAGES - pager.resident_pages(), isolated, "there are enough");
    let mut written = 0;
    while let Step::Kept(pages) = pager.write_back(&mut cx) {
        written += pages as u64;
    }
    assert!((1..=isolated).contains(&written), "{written} of {isolated} pages");
    assert_eq!(pager.write_back(&mut cx), Step::Nothing);
    assert_eq!(pager.used_pages(), LIMIT_PAGES, "who writes out frees nothing");
    let freed: u64 = std::iter::from_fn(|| pager.release_kept()).map(|pages| pages as u64).sum();
    assert_eq!((freed, pager.used_pages()), (written, LIMIT_PAGES - written));
    assert_eq!(pager.machine.filled_frames(), isolated - written, "what waits is there still");
    assert!(!pager.isolate_ahead(freed as usize / 2, &mut cx), "there is room without");
    // Who needs room frees what is kept before anything else is taken.
    (0..LIMIT_PAGES as u32).for_each(|page| touch(&pager, page, &mut cx));
    assert!(pager.isolate_ahead(BLOCK_PAGES, &mut cx));
    let Step::Kept(pages) = pager.write_back(&mut cx) else { panic!("there is a batch to write") };
    let resident = pager.resident_pages();
    assert_eq!((pager.reclaim(&mut cx), pager.resident_pages()), (Step::Freed(pages), resident));
    assert_eq!(pager.release_kept(), None, "it was freed already");
    pager.check();
}

#[test]
fn who_is_at_it_is_waited_for() {
    const LIMIT_PAGES: u64 = BLOCK_PAGES as u64;
    /// What a thread may have to wait for a processor.
    const PAUSES: u64 = 200;
    let arena = Arena::default();
    let pager = pager(&arena, 8, Trouble { later_in: 1, ..Trouble::default() });
    let (mut cx, mut other) = (context(), context());
    pager.set_limit_pages(LIMIT_PAGES);
    (0..LIMIT_PAGES as u32).for_each(|page| touch(&pager, page, &mut cx));
    // All there is, is being written out by another thread, which does not get on.
    let mut work = Reclaiming::default();
    while !work.is_writing() {
        let step = pager.reclaim_step(&mut work, &mut other);
        assert!(matches!(step, Reclaimed::Done(Step::Isolated) | Reclaimed::Wait(_)), "{step:?}");
    }
    let over = || pager.machine.events[Event::OverLimit as usize].load(std::sync::atomic::Ordering::Relaxed);
    let now_ns = || pager.machine.clock.now_ns();
    let begun_ns = now_ns();
    pager.machine.pause(0);
    let pause_ns = now_ns() - begun_ns;
    assert!(!pager.make_room(1, &mut cx));
    assert!(now_ns() - begun_ns > PAUSES * pause_ns, "it gave up at once");
    assert_eq!(over(), 1);
    // Once that is done there is room.
    while work.is_writing() {
        pager.reclaim_step(&mut work, &mut other);
    }
    let used = pager.used_pages();
    assert!(used < LIMIT_PAGES && pager.make_room(1, &mut cx), "{used} pages");
    assert_eq!(over(), 1);
    pager.check();
}

/// A page that another thread touches for the first time while its mapping is unlocked is not locked for ever.
#[test]
fn what_comes_while_it_is_unlocked_is_not_locked() {
    const ROUNDS: usize = 3000;
    const COUNT: u32 = BLOCK_PAGES as u32;
    let arena = Arena::default();
    let pager = &*pager(&arena, 1, Trouble::default());
    let begin = Barrier::new(2);
    let touched = AtomicU32::new(0);
    let mut stuck = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cx = context();
            for _ in 0..ROUNDS {
                begin.wait();
                for page in 0..COUNT {
                    touched.store(page, SeqCst);
                    touch(pager, page, &mut cx);
                }
                begin.wait();
            }
        });
        for round in 0..ROUNDS {
            assert!(pager.set_locked(PageNo(0), COUNT, true, true));
            touched.store(0, SeqCst);
            begin.wait();
            // Somewhere among the touches, elsewhere each time.
            while touched.load(SeqCst) < round as u32 % COUNT {
                std::hint::spin_loop();
            }
            assert!(pager.set_locked(PageNo(0), COUNT, false, false));
            begin.wait();
            // The other thread waits for the next round: it is told of at the end.
            stuck += pager.locked_by_nobody();
            pager.discard(PageNo(0), COUNT);
        }
    });
    assert_eq!(stuck, 0, "pages are locked that no mapping holds");
}
