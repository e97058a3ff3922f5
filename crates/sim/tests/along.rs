//! What waits isolated comes back with a page of its block that is touched while that pays, which probes tell.
#![cfg(not(loom))]

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

const BLOCKS: u32 = 96;
const IN_BLOCK: u32 = BLOCK_PAGES as u32;
const PAGES: u32 = BLOCKS * IN_BLOCK;
const LIMIT_PAGES: u64 = PAGES as u64 / 2;

struct Program<'a> {
    pager: &'a SimPager,
    cx: Box<Context<Worker>>,
    round_of: Vec<u32>,
}

impl Program<'_> {
    /// Finds in a page what was written to it last, and writes something else.
    fn touch(&mut self, page: u32) {
        let round = &mut self.round_of[page as usize];
        let look = || {
            self.pager.machine.access(page, true, |content| {
                let word = |n: u32| (page << 16 | n).to_le_bytes();
                assert!(*round == 0 || content[..4] == word(*round), "page {page}");
                content[..4].copy_from_slice(&word(*round + 1));
            })
        };
        while look() != Found::Done {
            assert_eq!(self.pager.fault(PageNo(page), Access::Write, &mut self.cx), Fault::Done, "page {page}");
        }
        *round += 1;
    }

    fn count(&self, event: Event) -> u64 {
        self.pager.machine.events[event as usize].load(Relaxed)
    }

    /// Pages that came along with a touched one, of each hit since then.
    fn along_each(&self, since: (u64, u64)) -> f64 {
        let (hits, along) = self.hits_and_along();
        (along - since.1) as f64 / (hits - since.0) as f64
    }

    fn hits_and_along(&self) -> (u64, u64) {
        (self.count(Event::FaultHit), self.count(Event::PagesPutBack))
    }

    /// Goes over all blocks again and again. Where one waits after it was used, so many of its pages are touched: one after the other, from
    /// the first on.
    fn go_over(&mut self, blocks: u32, touched: u32) {
        for n in 0..blocks {
            let block = n * 37 % BLOCKS;
            (0..IN_BLOCK).for_each(|i| self.touch(block * IN_BLOCK + i));
            let waits = |block: &u32| {
                let state = |i| self.pager.state(PageNo(block * IN_BLOCK + i));
                (0..IN_BLOCK).all(|i| state(i) == State::Isolated)
            };
            if let Some(block) = (0..BLOCKS).find(waits) {
                (0..touched).for_each(|i| self.touch(block * IN_BLOCK + i));
            }
        }
    }
}

fn with_program(test: impl FnOnce(&mut Program)) {
    let arena = Arena::default();
    let small = Config { readahead: readahead::Kind::Streams, orders: orders::Any::Small, ..config(PAGES) };
    let reclaim = reclaim::Kind::Probation;
    let pager = world::pager(&arena, Config { reclaim, ..small }, Chaos::default(), Trouble::default(), LIMIT_PAGES);
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    test(&mut Program { pager: &pager, cx: context(), round_of: vec![0; PAGES as usize] });
    pager.check();
}

#[test]
fn what_is_touched_page_by_page_brings_nothing_along_and_again_all_when_that_changes() {
    with_program(|program| {
        program.go_over(BLOCKS, 1);
        let along = program.along_each((0, 0));
        assert!(along > 30.0, "{along} pages come along at first");
        program.go_over(40 * BLOCKS, 1);
        let since = program.hits_and_along();
        program.go_over(4 * BLOCKS, 1);
        let along = program.along_each(since);
        assert!(along < 1.0, "{along} pages come along that nobody wants");
        program.go_over(20 * BLOCKS, IN_BLOCK);
        let since = program.hits_and_along();
        program.go_over(4 * BLOCKS, IN_BLOCK);
        let along = program.along_each(since);
        assert!(along > 10.0, "{along} pages come along where all are wanted");
    });
}
