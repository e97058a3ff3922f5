//! *streams* ([`super::streams`]) where the store is synchronous, *strides* ([`super::strides`]) where it is not, as long as that pays.
use super::pays::Pays;
use super::streams::Streams;
use super::strides::Strides;
use super::{Plan, Readahead, Sizes, Window};
use crate::table::Reserve;
use crate::units::{PageNo, SlotId};

/// The policy.
pub struct Auto {
    near: Streams,
    far: Strides,
    pays: Pays,
}

impl Auto {
    /// Reserves what both remember. `None` where there is no memory.
    pub fn new(from: &impl Reserve, sizes: Sizes) -> Option<Auto> {
        Some(Auto { near: Streams::new(from, sizes)?, far: Strides::new(from, sizes)?, pays: Pays::new() })
    }
}

impl Readahead for Auto {
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
        self.near.plan(page, limit_pages)
    }
    fn answered(&self, page: PageNo, first: PageNo, end: PageNo) {
        self.near.answered(page, first, end);
    }
    fn missed(&self, page: PageNo, slot: SlotId, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        self.far.missed(page, slot, limit_pages, pause).filter(|_| self.pays.allows())
    }
    fn hit(&self, page: PageNo, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        self.pays.wanted();
        self.far.hit(page, limit_pages, pause).filter(|_| self.pays.allows())
    }
    fn dropped(&self, pages: u32) {
        self.pays.dropped(pages);
    }
    fn waited(&self, ns: u64) {
        self.pays.waited(ns);
    }
    fn block_bytes(&self) -> usize {
        self.near.block_bytes() + self.far.block_bytes()
    }
}
