//! A unit on its way into the store.
use crate::compress::Compressor;
use outswap_core::units::{Order, PAGE_BYTES};

/// A unit that is offered to one tier after the other, until one takes it.
pub(crate) struct Unit<'a> {
    /// The first of its slots.
    pub first: u32,
    /// Its pages as they are.
    pub raw: &'a [u8],
    /// The compressor whose result stands in the worker, and that result in bytes, `None` for what does not compress.
    pub packed: Option<(Compressor, Option<usize>)>,
    /// What does not compress is for the file.
    pub skip_incompressible: bool,
    /// Pages from the first on that stand in the store although the tier, in the end, had no room for all.
    pub stored_pages: usize,
}

impl<'a> Unit<'a> {
    /// A unit that no tier has seen.
    pub fn new(first: u32, raw: &'a [u8], skip_incompressible: bool) -> Unit<'a> {
        Unit { first, raw, packed: None, skip_incompressible, stored_pages: 0 }
    }

    /// Its pages.
    pub fn pages(&self) -> usize {
        self.raw.len() / PAGE_BYTES
    }

    /// Its order.
    pub fn order(&self) -> Order {
        Order::new(self.pages().trailing_zeros() as usize)
    }
}
