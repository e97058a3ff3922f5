//! The aligned group of slots around the page's, whatever came of earlier ones: Linux before 2012, to compare with.
use super::{Over, Plan, Readahead, Sizes, Window};
use crate::table::Reserve;
use crate::units::{PageNo, SlotId};

/// The policy.
pub struct Fixed {
    count: u32,
}

impl Fixed {
    /// Needs no memory.
    pub fn new(_: &impl Reserve, sizes: Sizes) -> Option<Fixed> {
        Some(Fixed { count: 1 << sizes.page_cluster })
    }
}

impl Readahead for Fixed {
    const WANTS_OWNERS: bool = true;

    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, 1)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn missed(&self, _: PageNo, slot: SlotId, _: u64, _: &impl Fn(u32)) -> Option<Window> {
        Window::around(Over::Slots, slot.0, self.count)
    }
    fn block_bytes(&self) -> usize {
        0
    }
}
