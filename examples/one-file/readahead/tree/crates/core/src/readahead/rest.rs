//! A touch of one page brings the rest of the 64 KiB that it is in.
use super::{Plan, Readahead, Sizes};
use crate::table::Reserve;
use crate::units::{PART_PAGES, PageNo};

/// The policy.
pub struct Rest;

impl Rest {
    /// Needs no memory.
    pub fn new(_: &impl Reserve, _: Sizes) -> Option<Rest> {
        Some(Rest)
    }
}

impl Readahead for Rest {
    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, PART_PAGES - page.0 as usize % PART_PAGES)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn block_bytes(&self) -> usize {
        0
    }
}
