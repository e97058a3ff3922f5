//! A store of one's own: one that counts what another is asked for.
//!
//! `cargo run -p outswap-sim --example own_store`
use outswap_core::fault::Fault;
use outswap_core::machine::Prot;
use outswap_core::pager::{Config, Pager};
use outswap_core::protection::{self, Access};
use outswap_core::slots::Unused;
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{PAGE_BYTES, PageNo, SlotId};
use outswap_core::{orders, readahead, reclaim};
use outswap_sim::machine::{Chaos, Found, SimMachine};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble};
use outswap_sim::world::{Arena, context};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts pages that go into a store, and come out of it.
struct Counting<S> {
    inner: S,
    pages_out: AtomicU64,
    pages_in: AtomicU64,
}

// A store keeps what it is given under a slot until the slot is unused. It answers from any thread, and never waits for the
// program. What it cannot take it refuses: the page stays in memory then.
impl<S: Store> Store for Counting<S> {
    type Worker = S::Worker;

    fn put(&self, first: SlotId, content: &[u8], worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.put(first, content, worker)?;
        self.pages_out.fetch_add((content.len() / PAGE_BYTES) as u64, Relaxed);
        Ok(())
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.get(first, out, worker)?;
        self.pages_in.fetch_add((out.len() / PAGE_BYTES) as u64, Relaxed);
        Ok(())
    }
    fn is_synchronous(&self, slot: SlotId) -> bool {
        self.inner.is_synchronous(slot)
    }
    fn free(&self, slot: Unused) {
        self.inner.free(slot);
    }
    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }
    fn shrink(&self, bytes: u64, worker: &mut S::Worker) -> u64 {
        self.inner.shrink(bytes, worker)
    }
}

fn main() {
    const PAGES: u32 = 1024;
    const LIMIT_PAGES: u64 = 256;
    let arena = Arena::default();
    let machine = SimMachine::new(1, PAGES as usize, 16, 1, Chaos::default(), Sabotage::None);
    let store = Counting {
        inner: SimStore::new(1, 2 * PAGES as usize, Trouble::default(), Sabotage::None),
        pages_out: AtomicU64::new(0),
        pages_in: AtomicU64::new(0),
    };
    let config = Config {
        pages: PAGES,
        slots: 2 * PAGES as usize,
        batches: 16,
        pins: 1,
        mappings: 8,
        seed: 1,
        readahead: readahead::Kind::Streams,
        page_cluster: readahead::PAGE_CLUSTER,
        reclaim: reclaim::Kind::Fifo,
        orders: orders::Any::AsItCame,
        reuse: protection::Kind::Protect,
    };
    let pager = Box::new(Pager::new(machine, store, &arena, config).expect("there is memory for the tables"));
    pager.machine.attach(&pager);
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    pager.set_limit_pages(LIMIT_PAGES);
    let mut cx = context();
    for round in 0..3u8 {
        for page in 0..PAGES {
            // An access that faults is tried again, as the program's instruction is.
            let write = |content: &mut Page| {
                assert_eq!(content[0], round);
                content[0] += 1;
                content[1..5].copy_from_slice(&page.to_le_bytes());
            };
            while pager.machine.access(page, true, write) != Found::Done {
                assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
            }
        }
    }
    let (pages_out, pages_in) = (pager.store.pages_out.load(Relaxed), pager.store.pages_in.load(Relaxed));
    println!("{PAGES} pages in {LIMIT_PAGES}, three times: {pages_out} pages out, {pages_in} in");
    assert!(pages_out >= 3 * (PAGES as u64 - LIMIT_PAGES) && pages_in >= 2 * (PAGES as u64 - LIMIT_PAGES));
    pager.check();
}
