//! Policies of one's own: a readahead that always brings the rest of the folio, and a reclaim that takes the block that came in
//! last, against those that the pager has, on one load.
//!
//! `cargo run -p outswap-sim --example own_policies`
use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::orders::{self, Whole};
use outswap_core::page::Word;
use outswap_core::pager::{Chosen, Config, Pager, Policies};
use outswap_core::protection::{self, Access};
use outswap_core::readahead::{self, Plan, Readahead};
use outswap_core::reclaim::{self, Asked, Reclaim, Search, Verdict};
use outswap_core::units::{BLOCK_PAGES, BlockNo, Order, PART_PAGES, PageNo};
use outswap_sim::machine::{Chaos, Found, SimMachine};
use outswap_sim::sabotage::Sabotage;
use outswap_sim::store::{SimStore, Trouble};
use outswap_sim::world::{Arena, context};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

/// Always the rest of the folio.
struct Cluster;

impl Readahead for Cluster {
    fn plan(&self, page: PageNo, _limit_pages: u64) -> Plan {
        Plan::only(page, PART_PAGES - page.0 as usize % PART_PAGES)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn block_bytes(&self) -> usize {
        0
    }
}

/// The block that came in last goes first. In a real process a policy may not allocate: it reserves its memory beforehand.
#[derive(Default)]
struct Last(Mutex<Vec<BlockNo>>);

impl Reclaim for Last {
    fn add(&self, block: BlockNo, _: &impl Fn(u32)) {
        let mut blocks = self.0.lock().expect("no panic while held");
        if !blocks.contains(&block) {
            blocks.push(block);
        }
    }
    fn search(&self, _: &impl Fn(u32)) -> Search {
        Search { left: self.0.lock().expect("no panic while held").len(), ..Search::default() }
    }
    fn next(&self, search: &mut Search, _: &impl Fn(u32)) -> Option<BlockNo> {
        search.left = search.left.checked_sub(1)?;
        self.0.lock().expect("no panic while held").pop()
    }
    fn asked(&self, _: BlockNo, _: Asked, _: Option<&mut Search>) {}
    fn judge(&self, _: Word) -> Verdict {
        Verdict::Take
    }
    fn touched(&self, _: Word) -> u64 {
        0
    }
    fn isolated_max_pages(&self, _: u64) -> usize {
        BLOCK_PAGES
    }
    fn block_bytes(&self) -> usize {
        0
    }
}

const PAGES: u32 = 2048;
const LIMIT_PAGES: u64 = 1024;

const CONFIG: Config = Config {
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

fn parts() -> (SimMachine, SimStore) {
    (
        SimMachine::new(1, PAGES as usize, 16, 1, Chaos::default(), Sabotage::None),
        SimStore::new(1, 2 * PAGES as usize, Trouble::default(), Sabotage::None),
    )
}

/// Goes over all pages again and again, and tells how many faults that took, and how many pages went out.
fn sweep<P: Policies>(name: &str, pager: &Pager<SimMachine, SimStore, P>) -> u64 {
    pager.machine.attach(pager);
    assert!(pager.map(PageNo(0), PAGES, Prot::READ_WRITE, false));
    pager.set_limit_pages(LIMIT_PAGES);
    let mut cx = context();
    let mut faults = 0;
    for round in 0..4u8 {
        for page in 0..PAGES {
            let write = |content: &mut outswap_core::store::Page| {
                assert_eq!(content[0], round, "page {page}");
                content[0] += 1;
                content[1..5].copy_from_slice(&(page + 1).to_le_bytes());
            };
            while pager.machine.access(page, true, write) != Found::Done {
                assert_eq!(pager.fault(PageNo(page), Access::Write, &mut cx), Fault::Done);
                faults += 1;
            }
        }
    }
    let count = |event: Event| pager.machine.events[event as usize].load(Relaxed);
    let taken = count(Event::PagesTaken);
    println!("{name:16} {faults:6} faults, {taken:6} pages out");
    pager.check();
    taken
}

fn main() {
    println!("{PAGES} pages in {LIMIT_PAGES}, swept four times");
    let arena = Arena::default();
    let (machine, store) = parts();
    let usual = Box::new(Pager::new(machine, store, &arena, CONFIG).expect("there is memory for the tables"));
    let usual = sweep("fifo, streams", &usual);

    let policies = Chosen { readahead: Cluster, reclaim: Last::default(), orders: Whole(Order::PART) };
    let (machine, store) = parts();
    let own = Pager::with(machine, store, policies, &arena, CONFIG).expect("there is memory for the tables");
    let own = sweep("last, cluster", &Box::new(own));
    // What was touched last is what a sweep needs last: half of the pages stay where they are.
    assert!(own < usual, "{own} pages out, usually {usual}");
}
