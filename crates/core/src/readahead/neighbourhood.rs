//! As *cluster* ([`super::cluster`]), with the pages around the page in place of the slots around its slot: what went out in
//! another order than that of its addresses lies anywhere.
//!
//! Linux has read ahead so from SSDs since 2017 (Huang Ying, "mm, swap: VMA based swap readahead"), with a window for each
//! mapping.
use super::tuner::Tuner;
use super::{Over, Plan, Readahead, Sizes, Window};
use crate::table::Reserve;
use crate::units::{PageNo, SlotId};

/// The policy.
pub struct Neighbourhood {
    tuner: Tuner,
}

impl Neighbourhood {
    /// Needs no memory.
    pub fn new(_: &impl Reserve, sizes: Sizes) -> Option<Neighbourhood> {
        Some(Neighbourhood { tuner: Tuner::new(sizes.page_cluster) })
    }
}

impl Readahead for Neighbourhood {
    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, 1)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn missed(&self, page: PageNo, _: SlotId, _: u64, _: &impl Fn(u32)) -> Option<Window> {
        Window::around(Over::Pages, page.0, self.tuner.window(page.0))
    }
    fn hit(&self, _: PageNo, _: u64, _: &impl Fn(u32)) -> Option<Window> {
        self.tuner.hit();
        None
    }
    fn block_bytes(&self) -> usize {
        0
    }
}
