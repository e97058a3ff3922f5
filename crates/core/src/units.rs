//! Newtypes for numbers that must not be mixed up.

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages in a large folio (order 4, 64 KiB).
pub const FOLIO_PAGES: usize = 16;
/// log2 of [`FOLIO_PAGES`].
pub const FOLIO_ORDER: u32 = 4;
/// log2 of [`MAX_FOLIO_PAGES`].
pub const MAX_ORDER: u32 = 9;
/// Pages in the largest folio there may be (2 MiB).
pub const MAX_FOLIO_PAGES: usize = 1 << MAX_ORDER;
/// Pages in a block, the unit of the reclaim queue and of one batch (256 KiB).
pub const BLOCK_PAGES: usize = 64;

/// The number of a page, counted from the start of the managed range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u32);

/// The number of a slot: 4 KiB of swap space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);

/// A frame of a batch: a page of real memory that holds one page's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameNo(pub u32);

/// The number of a block of [`BLOCK_PAGES`] pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNo(pub u32);

/// A count of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

impl PageNo {
    /// The block that holds this page.
    pub fn block(self) -> BlockNo {
        BlockNo(self.0 / BLOCK_PAGES as u32)
    }
    /// The page's place in its block.
    pub fn index_in_block(self) -> usize {
        self.0 as usize % BLOCK_PAGES
    }
    /// The first page of the aligned folio around this page.
    pub fn folio(self) -> PageNo {
        PageNo(self.0 & !(FOLIO_PAGES as u32 - 1))
    }
    /// The page `n` further on. Numbers end at the largest, which is no page of any range.
    pub fn plus(self, n: usize) -> PageNo {
        PageNo((self.0 as usize).saturating_add(n).min(u32::MAX as usize) as u32)
    }
}

impl BlockNo {
    /// The block's first page.
    pub fn first_page(self) -> PageNo {
        PageNo(self.0 * BLOCK_PAGES as u32)
    }
}

impl SlotId {
    /// The slot `n` further on.
    pub fn plus(self, n: usize) -> SlotId {
        SlotId(self.0 + n as u32)
    }
}
