//! A batch that is being written out: what stands between the steps of [`crate::pageout`].
use crate::machine::BatchNo;
use crate::store::{Ticket, WRITES_MAX};
use crate::units::{BLOCK_PAGES, FrameNo, Order, PageNo, SlotId};

/// What a look at the pages of a batch has found.
pub(crate) struct Sorted {
    /// Of each page that is to be stored, the order that it came as.
    pub(crate) leaving: [Option<Order>; BLOCK_PAGES],
    /// The hashes of their contents.
    pub(crate) hashes: [u128; BLOCK_PAGES],
}

impl Sorted {
    /// No page is to be stored.
    pub(crate) const NOTHING: Sorted = Sorted { leaving: [None; BLOCK_PAGES], hashes: [0; BLOCK_PAGES] };
}

/// A batch and the block whose pages it holds. Its frames keep their bytes until it is released, also where a page is touched
/// meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub(crate) batch: BatchNo,
    pub(crate) base: PageNo,
}

impl Out {
    pub(crate) fn page(self, index: usize) -> PageNo {
        self.base.plus(index)
    }
    pub(crate) fn frame(self, index: usize) -> FrameNo {
        self.batch.frame(index)
    }
}

/// A folio that the store has been given: its first page in the batch, and where it goes. Small, as each fault carries some.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) at: u16,
    pub(crate) order: Order,
    /// That of the folio of which it is a part, where it is one.
    pub(crate) whole: Order,
    pub(crate) slot: SlotId,
}

impl Given {
    /// A folio of its own.
    pub(crate) fn alone(at: usize, order: Order, slot: SlotId) -> Given {
        Given { at: at as u16, order, whole: order, slot }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// The next folios are to be given to the store.
    Give,
    /// It is writing them.
    Write(Ticket),
    /// All that it takes is stored.
    End,
}

/// A batch that is being written out. It keeps the context that it was begun with, where what is known of its pages stands.
pub(crate) struct Writeback {
    pub(crate) out: Out,
    pub(crate) stage: Stage,
    /// Pages before this one are done with.
    pub(crate) at: usize,
    /// Folios before a page are of this order at most, because the store refused a higher one.
    pub(crate) ladder: (usize, Order),
    /// The store refused a page.
    pub(crate) refused: bool,
    /// The store is left alone, as it has refused others.
    pub(crate) passed_by: bool,
    pub(crate) given: [Given; WRITES_MAX],
    pub(crate) given_len: usize,
    pub(crate) waits: u32,
    /// Its frames are freed later, by whoever that costs least.
    pub(crate) keeps_frames: bool,
}

impl Writeback {
    /// Nothing of it has been given to the store.
    pub(crate) fn new(out: Out) -> Writeback {
        Writeback {
            out,
            stage: Stage::Give,
            at: 0,
            ladder: (0, Order::PAGE),
            refused: false,
            passed_by: false,
            given: [Given::alone(0, Order::PAGE, SlotId(0)); WRITES_MAX],
            given_len: 0,
            waits: 0,
            keeps_frames: false,
        }
    }
    /// The batch.
    pub(crate) fn batch(&self) -> BatchNo {
        self.out.batch
    }
}
