//! What the pager asks of a store.
use crate::slots::Unused;
use crate::units::{PAGE_BYTES, SlotId};

/// The content of one page.
pub type Page = [u8; PAGE_BYTES];

/// A folio to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Folio<'a> {
    /// The first of its slots, whose number its count of pages divides.
    pub first: SlotId,
    /// What is to be stored: a power of two of pages.
    pub content: &'a [u8],
}

/// Folios that are given to a store at one time, at most.
pub const WRITES_MAX: usize = 16;

/// Which of the folios of one write are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored(u16);
const _: () = assert!(WRITES_MAX <= u16::BITS as usize);

impl Stored {
    /// Adds one, by its place among the others.
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }
    /// Whether that one is stored.
    pub fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }
}

/// How a write goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    /// It is over. What is not stored was refused, and its slots hold nothing.
    Done(Stored),
    /// It is over later: to be asked for by this number, which the store chooses.
    Later(Ticket),
}

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

/// Consecutive slots to be read, and where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first slot.
    pub first: SlotId,
    /// How many slots.
    pub pages: u32,
    /// Where in the buffer their content goes, in pages.
    pub at: u32,
}

impl Run {
    /// The part of a buffer that the run's content goes to.
    pub fn part<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        &mut out[self.at as usize * PAGE_BYTES..(self.at + self.pages) as usize * PAGE_BYTES]
    }
}

/// How a read goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// The content is there.
    Done,
    /// It comes later: to be asked for by this number, which the store chooses.
    Later(Ticket),
}

/// The number of a read or write in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

/// A place for evicted pages, keyed by slot.
///
/// The pager calls `put` only for a slot that holds nothing, `get` and `free` only for a slot that holds
/// something, and never `free` at the same time as another call for the same slot. Different slots may be
/// used from different threads at once; the store synchronises itself. Everything here may run in the
/// fault path: no allocation, no panic on a foreseeable error, raw system calls only.
pub trait Store: Sync {
    /// Scratch memory of one pager context: compression state and buffers. One thread uses it at a time.
    type Worker;

    /// Stores a folio under as many slots as it has pages, from `first` on. All or nothing.
    ///
    /// # Errors
    /// [`StoreError::Full`]: the slots hold nothing then.
    fn put(&self, first: SlotId, content: &[u8], worker: &mut Self::Worker) -> Result<(), StoreError>;

    /// Starts to store folios, at most [`WRITES_MAX`], each all or nothing. A store whose writes take time answers with a ticket;
    /// the contents stay where they are, and as they are, until the write is over.
    fn write(&self, folios: &[Folio<'_>], worker: &mut Self::Worker) -> Write {
        let mut stored = Stored::default();
        for (i, folio) in folios.iter().enumerate() {
            if self.put(folio.first, folio.content, worker).is_err() {
                // Who is refused one makes room before the next.
                break;
            }
            stored.insert(i);
        }
        Write::Done(stored)
    }

    /// Goes on with a write.
    fn finish_write(&self, ticket: Ticket, worker: &mut Self::Worker) -> Write {
        let _ = worker;
        unreachable!("a store that gives tickets takes them: {ticket:?}")
    }

    /// Reads `out.len() / 4096` consecutive slots from `first` on, all of which hold something.
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Self::Worker) -> Result<(), StoreError>;

    /// Starts to read runs of slots, all of which hold something, into one buffer. A store whose reads take time answers with a
    /// ticket and remembers the runs; `out` is not its to write to after that. The slots stay in use until the read is over.
    ///
    /// # Errors
    /// Where one of them cannot be read. Nothing is in progress then.
    fn read(&self, runs: &[Run], out: &mut [u8], worker: &mut Self::Worker) -> Result<Read, StoreError> {
        for run in runs {
            self.get(run.first, run.part(out), worker)?;
        }
        Ok(Read::Done)
    }

    /// Goes on with a read: its content is in `out` if it is done.
    ///
    /// # Errors
    /// Where it has failed. It is over then.
    fn finish_read(&self, ticket: Ticket, out: &mut [u8], worker: &mut Self::Worker) -> Result<Read, StoreError> {
        let _ = (out, worker);
        unreachable!("a store that gives tickets takes them: {ticket:?}")
    }

    /// Whether a read of this slot, which holds something, ends in the caller with no waiting: then reading others ahead can only
    /// cost. It may change at any time, as content moves.
    fn is_synchronous(&self, slot: SlotId) -> bool {
        let _ = slot;
        true
    }

    /// Whether the room that this slot takes, which holds something, is scarce: memory, or a file that is filling up. Only so many
    /// pages in memory keep such a slot. It may change at any time, as content moves and room is used up.
    fn is_scarce(&self, slot: SlotId) -> bool {
        let _ = slot;
        true
    }

    /// Frees one slot. The slots of a folio are freed one by one; the store gives memory back as it can.
    fn free(&self, slot: Unused);

    /// Frees one slot, and leaves nothing in memory of what it held, as far as that is its alone.
    fn wipe(&self, slot: Unused) {
        self.free(slot);
    }

    /// Bytes of memory this store holds now (pages of its pool in use, and its tables), as they count in the budget.
    fn memory_bytes(&self) -> u64;

    /// Sets how much memory the store may hold of what it was given. It keeps to it as it can: by refusing, by moving data to a
    /// lower tier, and, where it holds more already, when it is asked to [`Store::shrink`].
    fn set_memory_limit_bytes(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Bytes that it holds beyond that limit.
    fn excess_bytes(&self) -> u64 {
        0
    }

    /// Moves data to a lower tier or compacts until about `bytes` of memory are given back. Returns what it gave back.
    fn shrink(&self, bytes: u64, worker: &mut Self::Worker) -> u64;
}

impl<S: Store> Store for &S {
    type Worker = S::Worker;
    fn put(&self, first: SlotId, content: &[u8], worker: &mut Self::Worker) -> Result<(), StoreError> {
        S::put(self, first, content, worker)
    }
    fn write(&self, folios: &[Folio<'_>], worker: &mut Self::Worker) -> Write {
        S::write(self, folios, worker)
    }
    fn finish_write(&self, ticket: Ticket, worker: &mut Self::Worker) -> Write {
        S::finish_write(self, ticket, worker)
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Self::Worker) -> Result<(), StoreError> {
        S::get(self, first, out, worker)
    }
    fn read(&self, runs: &[Run], out: &mut [u8], worker: &mut Self::Worker) -> Result<Read, StoreError> {
        S::read(self, runs, out, worker)
    }
    fn finish_read(&self, ticket: Ticket, out: &mut [u8], worker: &mut Self::Worker) -> Result<Read, StoreError> {
        S::finish_read(self, ticket, out, worker)
    }
    fn is_synchronous(&self, slot: SlotId) -> bool {
        S::is_synchronous(self, slot)
    }
    fn is_scarce(&self, slot: SlotId) -> bool {
        S::is_scarce(self, slot)
    }
    fn free(&self, slot: Unused) {
        S::free(self, slot);
    }
    fn wipe(&self, slot: Unused) {
        S::wipe(self, slot);
    }
    fn memory_bytes(&self) -> u64 {
        S::memory_bytes(self)
    }
    fn set_memory_limit_bytes(&self, bytes: u64) {
        S::set_memory_limit_bytes(self, bytes);
    }
    fn excess_bytes(&self) -> u64 {
        S::excess_bytes(self)
    }
    fn shrink(&self, bytes: u64, worker: &mut Self::Worker) -> u64 {
        S::shrink(self, bytes, worker)
    }
}
