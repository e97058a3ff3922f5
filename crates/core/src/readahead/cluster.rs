//! The aligned group of slots around the page's, whose size follows its own success: Hugh Dickins, "swap: add a simple detector for
//! inappropriate swapin readahead", 2012.
//!
//! There is one such size for all misses, whatever mapping they are in.
use super::tuner::Tuner;
use super::{Over, Plan, Readahead, Sizes, Window};
use crate::table::Reserve;
use crate::units::{PageNo, SlotId};

/// The policy.
pub struct Cluster {
    tuner: Tuner,
}

impl Cluster {
    /// Needs no memory.
    pub fn new(_: &impl Reserve, sizes: Sizes) -> Option<Cluster> {
        Some(Cluster { tuner: Tuner::new(sizes.page_cluster) })
    }
}

impl Readahead for Cluster {
    const WANTS_OWNERS: bool = true;

    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, 1)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn missed(&self, _: PageNo, slot: SlotId, _: u64, _: &impl Fn(u32)) -> Option<Window> {
        Window::around(Over::Slots, slot.0, self.tuner.window(slot.0))
    }
    fn hit(&self, _: PageNo, _: u64, _: &impl Fn(u32)) -> Option<Window> {
        self.tuner.hit();
        None
    }
    fn block_bytes(&self) -> usize {
        0
    }
}
