//! What the pager's tables take.

use outswap_core::fault::Fault;
use outswap_core::machine::Prot;
use outswap_core::pager::{Config, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::units::{BLOCK_PAGES, PageNo};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine, SimPager};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble};
use outswap_sim::world::{Arena, context};

/// Of a wide range little is used, and goes and comes back for hours: tables take memory for what there is, not for how often it came.
#[test]
fn tables_take_memory_for_what_is_there_however_often_it_comes_back() {
    const USED_PAGES: u32 = 16 * BLOCK_PAGES as u32;
    for reclaim in [reclaim::Kind::Fifo, reclaim::Kind::Accessed] {
        let config = Config {
            pages: 1 << 21,
            slots: 1 << 16,
            batches: 8,
            pins: 1,
            mappings: 8,
            seed: 1,
            readahead: readahead::Kind::Off,
            page_cluster: 0,
            reclaim,
            orders: orders::Any::Small,
            reuse: protection::Kind::Protect,
        };
        let arena = Arena::default();
        let machine = SimMachine::new(1, config.pages as usize, config.batches, 1, Chaos::default(), Sabotage::None);
        let store = SimStore::new(1, config.slots, Trouble::default(), Sabotage::None);
        let pager: Box<SimPager> = Box::new(Pager::new(machine, store, &arena, config).expect("tables fit"));
        pager.machine.attach(&pager);
        assert!(pager.map(PageNo(0), USED_PAGES, Prot::READ_WRITE, false));
        pager.set_limit_pages(u64::from(USED_PAGES) / 2);
        let mut cx = context();
        let mut pages = 0u32;
        let mut go_on = |rounds: u32| {
            for _ in 0..rounds * USED_PAGES {
                // Steps through all of them, each in another block than the one before.
                pages = pages.wrapping_add(1);
                let page = pages.wrapping_mul(BLOCK_PAGES as u32 * 5 + 7) % USED_PAGES;
                let is_write = pages.is_multiple_of(3);
                let access = if is_write { Access::Write } else { Access::Read };
                let touch = || {
                    pager.machine.access(page, is_write, |content| {
                        if is_write {
                            content[..4].copy_from_slice(&page.to_le_bytes());
                        }
                    })
                };
                while touch() != Found::Done {
                    assert_eq!(pager.fault(PageNo(page), access, &mut cx), Fault::Done);
                }
            }
            arena.touched_bytes()
        };
        let before = go_on(8);
        let after = go_on(120);
        assert!(after <= before + before / 8, "{reclaim:?}: {before} bytes came to {after}");
        pager.check();
    }
}
