//! What the pager asks of a store.
use crate::units::{FOLIO_PAGES, PAGE_BYTES, SlotId};

/// The content of one page.
pub type Page = [u8; PAGE_BYTES];
/// The content of one large folio.
pub type Folio = [u8; PAGE_BYTES * FOLIO_PAGES];

/// Why a store could not do as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// No room (limit reached, disk full, or a write error): the page stays in memory.
    Full,
    /// The content cannot be read now (read error). The slot still holds it.
    Io,
    /// What came back is not what was stored. Never hand it out.
    Corrupt,
}

/// A place for evicted pages, keyed by slot.
///
/// The pager calls `put` only for a slot that holds nothing, `get` and `free` only for a slot that holds
/// something, and never `free` at the same time as another call for the same slot. Different slots may be
/// used from different threads at once; the store synchronises itself. Everything here may run in the
/// fault path: no allocation, no panic on a foreseeable error, raw system calls only.
pub trait Store: Sync {
    /// Scratch memory of one pager context: compression state and buffers. One thread uses it at a time.
    type Worker;

    /// Stores one page under `slot`.
    fn put_page(&self, slot: SlotId, page: &Page, worker: &mut Self::Worker) -> Result<(), StoreError>;

    /// Stores a large folio under `first` and the 15 slots after it (`first` is a multiple of 16). All or nothing.
    fn put_folio(&self, first: SlotId, folio: &Folio, worker: &mut Self::Worker) -> Result<(), StoreError>;

    /// Reads `out.len() / 4096` consecutive slots from `first` on, all of which hold something.
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Self::Worker) -> Result<(), StoreError>;

    /// Frees one slot. The slots of a folio are freed one by one; the store gives memory back as it can.
    fn free(&self, slot: SlotId);

    /// Frees one slot, and leaves nothing in memory of what it held, as far as that is its alone.
    fn wipe(&self, slot: SlotId) {
        self.free(slot);
    }

    /// Bytes of memory this store holds now (pages of its pool in use, and its tables), as they count in the budget.
    fn memory_bytes(&self) -> u64;

    /// Moves data to a lower tier or compacts until about `bytes` of memory are given back. Returns what it gave back.
    fn shrink(&self, bytes: u64, worker: &mut Self::Worker) -> u64;
}

impl<S: Store> Store for &S {
    type Worker = S::Worker;
    fn put_page(&self, slot: SlotId, page: &Page, worker: &mut Self::Worker) -> Result<(), StoreError> {
        S::put_page(self, slot, page, worker)
    }
    fn put_folio(&self, first: SlotId, folio: &Folio, worker: &mut Self::Worker) -> Result<(), StoreError> {
        S::put_folio(self, first, folio, worker)
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Self::Worker) -> Result<(), StoreError> {
        S::get(self, first, out, worker)
    }
    fn free(&self, slot: SlotId) {
        S::free(self, slot);
    }
    fn wipe(&self, slot: SlotId) {
        S::wipe(self, slot);
    }
    fn memory_bytes(&self) -> u64 {
        S::memory_bytes(self)
    }
    fn shrink(&self, bytes: u64, worker: &mut Self::Worker) -> u64 {
        S::shrink(self, bytes, worker)
    }
}
