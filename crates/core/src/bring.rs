//! What a fault brings in: the page and the neighbours that come with it, from being claimed to being installed.
use crate::machine::{Machine, PutError};
use crate::page::{State, Word};
use crate::pager::{Pager, Policies};
use crate::protection::Access;
use crate::store::{Store, Ticket};
use crate::units::{BLOCK_PAGES, PageNo, SlotId};

/// How a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The page is there (or was already): run the instruction again.
    Done,
    /// No managed page: not ours.
    NotMapped,
    /// The store gave something else than what was stored. The page stays in the store; the program must not go on.
    Corrupt,
    /// The store cannot be read.
    Unreadable,
    /// No memory for the page.
    NoMemory,
    /// The limit is not to be exceeded for a page that the program had not before, and the store is full.
    Full,
}

/// How the content of a page in a store comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Straight from a store that is synchronous, and neighbours in such stores with it.
    Bypass,
    /// Alone, while others are read ahead.
    Miss,
    /// Alone, and what is to be read ahead was said.
    MissAsked,
    /// From where it is, as its neighbours: a call needs them.
    Call,
}

/// Pages that are to be brought in for the sake of one.
pub(crate) struct Target {
    /// That one.
    pub(crate) page: PageNo,
    /// What it is wanted for.
    pub(crate) access: Access,
    /// Its word, as it was seen.
    pub(crate) seen: Word,
    /// How it comes, if it is in a store.
    pub(crate) way: Way,
    /// The pages that may come: the first, and how many.
    pub(crate) range: (PageNo, usize),
    /// Those of them that were claimed. Their words stand in the context.
    pub(crate) claimed: (PageNo, usize),
    /// They come as zero pages that are mapped, and are memory once they are written to.
    pub(crate) mapped: bool,
    /// When a read from a store began that is not synchronous.
    pub(crate) asked_ns: u64,
}

/// What one stage has come to.
pub(crate) enum Next {
    /// The page is there, with so many pages claimed for it.
    There(usize),
    /// It cannot be had.
    Failed(Fault),
    /// Another thread was faster, or the machine was not ready.
    Again,
    /// It is being read.
    Reading(Ticket),
    /// A neighbour is in the way: the page alone.
    Alone,
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Claims the longest run of pages around `page`, within `count` pages from `first`, for which `wanted` holds. The words as
    /// seen go to `saved`, from its start on. `None` where `page` itself could not be claimed.
    pub(crate) fn claim_run(
        &self,
        page: PageNo,
        seen: Word,
        (first, count): (PageNo, usize),
        saved: &mut [Word; BLOCK_PAGES],
        wanted: impl Fn(Word) -> bool,
    ) -> Option<(PageNo, usize)> {
        if !self.pages.claim(page, seen) {
            return None;
        }
        let (mut start, mut end) = (page.0, page.0 + 1);
        let at = |p: u32| (p - first.0) as usize;
        saved[at(page.0)] = seen;
        let grab = |p: u32, saved: &mut [Word; BLOCK_PAGES]| {
            let word = self.pages.get(PageNo(p));
            let ok = word.state() != State::Busy && wanted(word) && self.pages.claim(PageNo(p), word);
            saved[at(p)] = word;
            ok
        };
        while end < first.0 + count as u32 && grab(end, saved) {
            end += 1;
        }
        while start > first.0 && grab(start - 1, saved) {
            start -= 1;
        }
        saved.copy_within(at(start)..at(end), 0);
        Some((PageNo(start), (end - start) as usize))
    }

    /// The slot that a page of the swap cache keeps as it comes back from its frame: none where it is locked, because it will not be
    /// evicted, and none where its room has become scarce meanwhile and enough others have such a slot.
    pub(crate) fn unless_locked(&self, word: Word, slot: Option<SlotId>) -> Option<SlotId> {
        let slot = slot?;
        self.take_from_swapcache(slot);
        if word.locked() {
            self.wipe_slot(slot);
        } else if self.enter_swapcache(slot) {
            return Some(slot);
        } else {
            self.put_slot(slot);
        }
        None
    }

    /// What follows where the machine did not install a page.
    pub(crate) fn put_failed(&self, error: Option<PutError>) -> Next {
        match error {
            Some(PutError::Gone) => Next::Failed(Fault::NotMapped),
            Some(PutError::NoMemory) => Next::Failed(Fault::NoMemory),
            // Who tries again waits longer each time.
            Some(PutError::Again) | None => Next::Again,
        }
    }
}
