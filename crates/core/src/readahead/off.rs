//! Every fault brings its own page alone.
use super::{Plan, Readahead, Sizes};
use crate::table::Reserve;
use crate::units::PageNo;

/// The policy.
pub struct Off;

impl Off {
    /// Needs no memory.
    pub fn new(_: &impl Reserve, _: Sizes) -> Option<Off> {
        Some(Off)
    }
}

impl Readahead for Off {
    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, 1)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn block_bytes(&self) -> usize {
        0
    }
}
