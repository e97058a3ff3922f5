//! Pages read ahead of faults: not mapped before they are wanted, bounded, dropped without being written, and right whatever is
//! done to them.

use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::page::State;
use outswap_core::pager::{Config, Context, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::readahead::{Kind, Over, Window};
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble, Worker};
use outswap_sim::world::{Arena, context};
use std::sync::atomic::Ordering::Relaxed;

const BLOCKS: u32 = 40;
const PAGES: u32 = BLOCKS * BLOCK_PAGES as u32;

/// A program whose pages are all in a slow store at first, and somebody who reads ahead between its steps.
struct Program {
    pager: Box<SimPager>,
    cx: Box<Context<Worker>>,
    #[expect(dead_code, reason = "owns the memory of the tables, so it is dropped after the pager")]
    arena: Arena,
}

impl Program {
    fn new(readahead: Kind, page_cluster: u32, slow_in: u32) -> Program {
        let config = Config {
            pages: 2 * PAGES,
            slots: 4 * PAGES as usize,
            batches: 64,
            pins: 1,
            mappings: 8,
            seed: 1,
            readahead,
            page_cluster,
            reclaim: reclaim::Kind::Fifo,
            orders: if slow_in > 0 { orders::Any::Small } else { orders::Any::AsItCame },
            reuse: protection::Kind::Hash,
        };
        let arena = Arena::default();
        let trouble = Trouble { slow_in, ..Trouble::default() };
        let machine = SimMachine::new(1, config.pages as usize, config.batches, 1, Chaos::default(), Sabotage::None);
        let store = SimStore::new(1, config.slots, trouble, Sabotage::None);
        let pager = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
        let mut program = Program { pager, cx: context(), arena };
        for page in 0..PAGES {
            while program.access(page, Some(number(page))).is_none() {
                program.fault(page);
            }
        }
        program.evict_all();
        program.pager.set_limit_pages(u64::from(PAGES) / 4);
        program
    }

    fn evict_all(&mut self) {
        self.pager.page_out(PageNo(0), PAGES, true, &mut self.cx);
        while self.pager.drop_ahead() > 0 {}
        assert_eq!(self.pager.used_pages(), 0);
    }
    fn access(&self, page: u32, write: Option<u32>) -> Option<u32> {
        let mut held = 0;
        let found = self.pager.machine.access(page, write.is_some(), |content| {
            if let Some(number) = write {
                content[..4].copy_from_slice(&number.to_le_bytes());
            }
            held = u32::from_le_bytes(content[..4].try_into().expect("four bytes"));
        });
        (found == Found::Done).then_some(held)
    }
    fn fault(&mut self, page: u32) {
        assert_eq!(self.pager.fault(PageNo(page), Access::Write, &mut self.cx), Fault::Done, "page {page}");
    }
    /// Reads a page as the program does, and has others read ahead. What it must hold is looked at.
    fn read(&mut self, page: u32) {
        while self.access(page, None).is_none() {
            self.fault(page);
            while self.pager.read_ahead(&mut self.cx) {}
        }
        assert_eq!(self.access(page, None), Some(number(page)), "page {page}");
    }
    fn read_all(&mut self, pages: impl IntoIterator<Item = u32>) {
        pages.into_iter().for_each(|page| self.read(page));
    }
    /// Reads these pages ahead, and says which were.
    fn ahead(&mut self, first: u32, count: u32) -> Vec<u32> {
        self.pager.ask_ahead(Window { over: Over::Pages, first, step: 1, count });
        assert!(self.pager.read_ahead(&mut self.cx));
        (0..PAGES).filter(|&page| self.pager.state(PageNo(page)) == State::Isolated).collect()
    }
    fn count(&self, event: Event) -> u64 {
        self.pager.machine.events[event as usize].load(Relaxed)
    }
    /// Misses, hits, pages read ahead, those dropped.
    fn counts(&self) -> [u64; 4] {
        [Event::FaultMiss, Event::PagesAheadHit, Event::PagesReadAhead, Event::PagesAheadDropped]
            .map(|event| self.count(event))
    }
}

/// What a page holds.
fn number(page: u32) -> u32 {
    page * 7 + 1
}

/// Places that have no order.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    let mut random = 88_172_645_463_325_252u64;
    (0..count).map(move |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as u32 % PAGES
    })
}

#[test]
fn what_is_read_ahead_is_not_mapped_until_it_is_wanted() {
    let mut program = Program::new(Kind::Fixed, 3, 1);
    program.read(83);
    // 80 to 87 lie in neighbouring slots, aligned as their pages are.
    for page in 80..88 {
        let mapped = program.pager.machine.is_mapped(page);
        assert_eq!(mapped, page == 83, "page {page}");
        let state = if page == 83 { State::Resident } else { State::Isolated };
        assert_eq!(program.pager.state(PageNo(page)), state, "page {page}");
    }
    assert_eq!((program.pager.resident_pages(), program.pager.ahead_pages()), (1, 7));
    program.pager.check();
    program.read_all(80..88);
    assert_eq!(program.counts(), [1, 7, 7, 0]);
    assert_eq!((program.count(Event::FaultHit), program.count(Event::FaultBypass)), (7, 0));
    // Their slots still hold them.
    assert_eq!(program.pager.swapcache_pages(), 8);
    program.pager.check();
}

#[test]
fn from_a_store_that_is_synchronous_nothing_is_read_ahead() {
    for &(name, kind) in Kind::ALL {
        let mut program = Program::new(kind, 3, 0);
        program.read_all(0..PAGES);
        assert_eq!(program.counts(), [0; 4], "{name}");
        let bypasses = program.count(Event::FaultBypass);
        assert!(bypasses > 0 && !program.pager.is_ahead_asked(), "{name}");
        program.pager.check();
    }
}

#[test]
fn from_a_store_that_is_synchronous_a_stream_by_steps_takes_what_it_will_touch() {
    for step in [3, 7] {
        let mut program = Program::new(Kind::Streams, 3, 0);
        program.pager.set_limit_pages(u64::from(PAGES));
        for offset in 0..step {
            program.read_all((offset..PAGES).step_by(step as usize));
            // Nothing else has come.
            let came = (0..PAGES).filter(|&page| program.pager.state(PageNo(page)) == State::Resident);
            assert!(came.clone().all(|page| page % step <= offset), "{step}, {offset}");
            assert!(came.count() as u32 >= PAGES / step * (offset + 1));
        }
        let faults = program.count(Event::FaultBypass) as u32;
        assert!((BLOCKS * step..(BLOCKS + 6) * step).contains(&faults), "{faults} faults by steps of {step}");
        program.pager.check();
    }
}

#[test]
fn streams_are_met_half_way() {
    let mut program = Program::new(Kind::Streams, 3, 0);
    program.pager.set_limit_pages(u64::from(PAGES));
    program.pager.machine.meets_streams.store(true, Relaxed);
    let block_pages = BLOCK_PAGES as u32;
    let mut brought = 0;
    for page in 0..PAGES {
        program.read(page);
        // Somebody has time for less than a block while the program is at one.
        if page % 17 == 0 {
            brought += u32::from(program.pager.bring_stream(&mut program.cx));
        }
        let (came, reached) = (program.pager.resident_pages() as u32, (page / block_pages + 2) * block_pages);
        assert!(came <= reached, "{came} pages at page {page}: nothing comes before the stream is at the block before");
    }
    let faults = program.count(Event::FaultBypass) as u32;
    assert!((BLOCKS..BLOCKS + 10).contains(&faults), "{faults} faults: one where each block begins");
    assert!(brought > 2 * BLOCKS, "{brought} parts, and requests that were done");
    program.pager.check();
    // With all of the time, all but the first part of each block comes.
    program.evict_all();
    program.pager.set_limit_pages(u64::from(PAGES));
    let folios = program.count(Event::FoliosIn);
    for page in 0..PAGES {
        program.read(page);
        while program.pager.bring_stream(&mut program.cx) {}
    }
    let faults = program.count(Event::FaultBypass) as u32 - faults;
    assert!((BLOCKS..BLOCKS + 10).contains(&faults), "{faults} faults");
    let streamed = program.count(Event::PagesStreamedAhead);
    assert!(streamed >= u64::from(PAGES / 2) && streamed <= u64::from(2 * PAGES), "{streamed} pages counted");
    assert!(program.count(Event::FoliosIn) - folios >= u64::from(BLOCKS) * 3);
    // Where it does not fit, it does not come.
    program.evict_all();
    program.pager.set_limit_pages(u64::from(block_pages));
    program.pager.ask_stream(PageNo(0).block());
    program.read_all(0..block_pages);
    assert!(program.pager.bring_stream(&mut program.cx) && !program.pager.is_stream_asked());
    assert_eq!(program.pager.state(PageNo(2 * block_pages - 1)), State::Swapped);
    program.pager.check();
}

#[test]
fn where_some_is_slow_that_alone_is_read_ahead() {
    for kind in [Kind::Auto, Kind::Fixed, Kind::Strides] {
        let mut program = Program::new(kind, 3, 3);
        program.read_all(0..PAGES);
        let [misses, hits, ahead, _] = program.counts();
        assert!(misses > 0 && hits > 0 && program.count(Event::FaultBypass) > 0, "{kind:?}");
        // A third of the slots is said to be slow.
        assert!(ahead <= u64::from(PAGES) * 2 / 5, "{kind:?}: {ahead} pages");
        program.pager.check();
    }
}

#[test]
fn windows_follow_their_hits() {
    let misses = |kind, page_cluster, pages: &mut dyn Iterator<Item = u32>| {
        let mut program = Program::new(kind, page_cluster, 1);
        program.read_all(pages);
        program.pager.check();
        program.counts()
    };
    let pages = u64::from(PAGES);
    for kind in [Kind::Cluster, Kind::Neighbourhood] {
        let [in_order, hits, ahead, dropped] = misses(kind, 3, &mut (0..PAGES));
        assert!(in_order <= pages / 8 + 4, "{kind:?}: {in_order} misses in order");
        assert_eq!((hits, dropped), (ahead, 0), "{kind:?}");
        let [larger, ..] = misses(kind, 4, &mut (0..PAGES));
        assert!(larger <= pages / 16 + 4, "{kind:?}: {larger} misses in order, of 16");
        assert_eq!(misses(kind, 0, &mut (0..PAGES)), [pages, 0, 0, 0], "{kind:?}");
        let [at_random, _, ahead, _] = misses(kind, 3, &mut scattered(PAGES));
        assert!(ahead < at_random / 4, "{kind:?}: {ahead} pages for {at_random} misses at random");
    }
    // The one that does not.
    let [at_random, _, ahead, _] = misses(Kind::Fixed, 3, &mut scattered(PAGES));
    assert!(ahead > 3 * at_random, "{ahead} pages for {at_random} misses at random");
    assert_eq!(misses(Kind::Off, 3, &mut (0..PAGES)), [pages, 0, 0, 0]);
}

#[test]
fn what_does_not_pay_is_not_read_ahead() {
    // Three pages at a time, at places without order: what looks like a stream goes no further.
    let read_in_vain = |program: &mut Program| {
        let before = program.count(Event::PagesReadAhead);
        for place in scattered(3000) {
            program.read_all(place..(place + 3).min(PAGES));
        }
        program.count(Event::PagesReadAhead) - before
    };
    let [all, paying] = [Kind::Strides, Kind::Auto].map(|kind| {
        let mut program = Program::new(kind, 3, 1);
        read_in_vain(&mut program);
        let again = read_in_vain(&mut program);
        // What goes on is seen all the same, and pays from then on. A quarter of the pages may be in memory.
        (0..20).for_each(|_| program.read_all(0..PAGES));
        let [misses, ..] = program.counts();
        program.read_all(0..PAGES);
        let [missed, ..] = program.counts();
        assert!(missed - misses < u64::from(PAGES) / 8, "{kind:?}: {} misses of {PAGES} pages", missed - misses);
        again
    });
    assert!(all > 3000 && paying < all / 4, "{all} pages in vain, and {paying}");
}

#[test]
fn strides_and_streams_that_take_turns_are_seen() {
    let misses = |kind, pages: &mut dyn Iterator<Item = u32>| {
        let mut program = Program::new(kind, 3, 1);
        program.read_all(pages);
        program.pager.check();
        program.counts()
    };
    let by_nine = || (0..9).flat_map(|offset| (0..PAGES / 9).map(move |i| i * 9 + offset));
    let in_turns = || (0..PAGES / 5).flat_map(|i| (0..5).map(move |stream| stream * (PAGES / 5) + i));
    for kind in [Kind::Strides, Kind::Auto] {
        let [strides, hits, ahead, _] = misses(kind, &mut by_nine());
        assert!(ahead < hits * 4 / 3, "{kind:?}: {ahead} pages for {hits} hits");
        let [turns, ..] = misses(kind, &mut in_turns());
        let [in_order, ..] = misses(kind, &mut (0..PAGES));
        assert!(strides <= 120 && turns <= 60 && in_order <= 20, "{kind:?}: {strides}, {turns}, {in_order} misses");
        let [at_random, _, ahead, _] = misses(kind, &mut scattered(PAGES));
        assert!(ahead < at_random / 4, "{kind:?}: {ahead} pages for {at_random} misses at random");
    }
    assert!(misses(Kind::Cluster, &mut by_nine())[0] > 1000);
}

#[test]
fn what_nobody_wants_goes_unwritten_the_oldest_first() {
    let mut program = Program::new(Kind::Off, 3, 1);
    let slots = program.pager.used_slots();
    let limit = program.pager.limit_pages();
    // An eighth of the limit, whatever is asked for.
    for first in (0..PAGES).step_by(64) {
        program.ahead(first, 64);
        assert!(program.pager.ahead_pages() <= limit / 8, "{} pages", program.pager.ahead_pages());
    }
    let [_, _, ahead, dropped] = program.counts();
    let kept: Vec<u32> = (0..PAGES).filter(|&page| program.pager.state(PageNo(page)) == State::Isolated).collect();
    assert_eq!((ahead - dropped) as usize, kept.len());
    assert!(kept.len() > limit as usize / 16 && kept[0] == PAGES - kept.len() as u32, "the last are left");
    program.pager.check();
    // While the program works on other pages, they go.
    for page in scattered(3 * PAGES).filter(|&page| page < PAGES / 2) {
        program.read(page);
    }
    assert_eq!(program.pager.ahead_pages(), 0, "they had their time");
    assert_eq!(program.counts()[3], ahead);
    assert_eq!(program.pager.used_slots(), slots, "nothing was stored");
    program.pager.check();
    // What nobody needs the memory of stays.
    let mut program = Program::new(Kind::Off, 3, 1);
    let kept = program.ahead(0, 32);
    assert_eq!(kept, (0..32).collect::<Vec<_>>());
    program.read_all(1000..1100);
    assert_eq!(program.pager.ahead_pages(), 32);
    program.read_all(kept);
    assert_eq!(program.counts()[1..], [32, 32, 0]);
}

#[test]
fn where_nothing_else_can_go_pages_read_ahead_do() {
    let mut program = Program::new(Kind::Off, 3, 1);
    assert_eq!(program.ahead(100, 32).len(), 32);
    program.pager.set_limit_pages(1);
    program.read(5);
    assert_eq!((program.pager.ahead_pages(), program.pager.used_pages()), (0, 1));
    assert_eq!(program.count(Event::OverLimit), 0);
    program.pager.check();
}

#[test]
fn what_is_done_to_pages_read_ahead_is_right() {
    let mut program = Program::new(Kind::Off, 3, 1);
    let ahead = program.ahead(64, 64);
    assert_eq!(ahead, (64..128).collect::<Vec<_>>());
    let (pager, cx) = (&program.pager, &mut program.cx);
    let slots = pager.used_slots();
    // Discarded: zeros, and the slot is free.
    pager.discard(PageNo(64), 8);
    assert_eq!((pager.state(PageNo(64)), pager.used_slots()), (State::Untouched, slots - 8));
    // Unmapped.
    assert!(pager.unmap(PageNo(72), 8));
    assert_eq!((pager.state(PageNo(72)), pager.used_slots()), (State::Untouched, slots - 16));
    pager.check();
    // Moved: it goes by its slot, and is found in it from its new place.
    assert!(pager.map(PageNo(PAGES), 8, Prot::READ_WRITE, false));
    assert_eq!(pager.move_pages(PageNo(80), PageNo(PAGES), 8, cx), 8);
    assert_eq!((pager.state(PageNo(80)), pager.state(PageNo(PAGES))), (State::Untouched, State::Swapped));
    // Used by a call.
    assert_eq!(pager.pin(PageNo(88), 8, Access::Write, cx), (8, Fault::Done));
    assert!((88..96).all(|page| pager.machine.is_mapped(page)));
    // Locked: in memory, and no copy of it anywhere else.
    assert_eq!(pager.keep_private(PageNo(96), 8, cx), Fault::Done);
    assert!((96..104).all(|page| pager.machine.is_mapped(page)));
    assert_eq!((pager.used_slots(), pager.ahead_pages()), (slots - 24, 0), "the frames of what was read ahead go, too");
    pager.check();
    // Without access it stays where it is.
    assert_eq!(program.ahead(104, 8).len(), 8);
    let (pager, cx) = (&program.pager, &mut program.cx);
    assert!(pager.protect(PageNo(104), 8, Prot::NONE) && pager.protect(PageNo(104), 8, Prot::READ_WRITE));
    // Evicted: it is only in its slot, as anything else is.
    pager.page_out(PageNo(108), 2, false, cx);
    assert_eq!(pager.state(PageNo(108)), State::Isolated, "it is out of reach already");
    pager.page_out(PageNo(108), 2, true, cx);
    assert_eq!(
        [108, 109, 110].map(|page| pager.state(PageNo(page))),
        [State::Swapped, State::Swapped, State::Isolated]
    );
    // Taken away.
    let mut taken = Vec::new();
    let all = pager.take_content(PageNo(104), 4, cx, |page, content| {
        assert_eq!(content[..4], number(page.0).to_le_bytes());
        taken.push(page.0);
    });
    assert_eq!((all, taken), (Ok(()), vec![104, 105, 106, 107]));
    pager.check();
    program.read_all((88..104).chain(108..112));
    for page in 0..8 {
        while program.access(PAGES + page, None).is_none() {
            program.fault(PAGES + page);
        }
        assert_eq!(program.access(PAGES + page, None), Some(number(80 + page)));
    }
    program.pager.check();
}

#[test]
fn a_slot_is_read_ahead_for_whom_it_is_of_now() {
    let mut program = Program::new(Kind::Fixed, 3, 1);
    let pager = &program.pager;
    assert!(pager.map(PageNo(PAGES), 8, Prot::READ_WRITE, false));
    assert_eq!(pager.move_pages(PageNo(80), PageNo(PAGES), 3, &mut program.cx), 3);
    pager.discard(PageNo(84), 1);
    program.read(83);
    let pager = &program.pager;
    let state = |page| pager.state(PageNo(page));
    assert_eq!([80, 84, 85, PAGES, PAGES + 2].map(state), {
        use State::*;
        [Untouched, Untouched, Isolated, Isolated, Isolated]
    });
    pager.check();
}

#[test]
fn what_is_not_what_was_stored_is_not_read_ahead() {
    let mut program = Program::new(Kind::Off, 3, 1);
    let page = PAGES / 2;
    while program.access(page, Some(1)).is_none() {
        program.fault(page);
    }
    program.pager.store.damage_puts();
    program.pager.page_out(PageNo(page), 1, true, &mut program.cx);
    let around = program.ahead(page - 4, 8);
    assert_eq!(around, (page - 4..page + 4).filter(|&other| other != page).collect::<Vec<_>>());
    assert_eq!(program.pager.fault(PageNo(page), Access::Write, &mut program.cx), Fault::Corrupt);
    program.pager.check();
}
