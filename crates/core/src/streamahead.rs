//! Streams from a synchronous store are met half-way: the block that one is about to enter is brought in, mapped, from its end, while
//! the program is at the block before. Where the program gets there first, it brings in what is left from the block's start.
//!
//! The program has to notice that it is at a new block, or nobody knows when to ask for the next: so the block's first pages come by
//! its own fault, whoever is faster.
use crate::fault::Faulting;
use crate::machine::{Event, Machine};
use crate::page::State;
use crate::pager::{Context, Pager, Policies};
use crate::store::Store;
use crate::units::{BLOCK_PAGES, PART_PAGES, PageNo};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Whether a block of a stream is to be brought in.
    pub fn is_stream_asked(&self) -> bool {
        self.upcoming.next().is_some()
    }

    /// Brings in one part of a block that a stream is about to enter. False where none is asked for.
    pub fn bring_stream(&self, cx: &mut Context<S::Worker>) -> bool {
        let Some(block) = self.upcoming.next() else { return false };
        let first = block.first_page();
        let mut parts = (PART_PAGES..BLOCK_PAGES).step_by(PART_PAGES).rev().map(|at| first.plus(at));
        let has_room = self.used_pages() + PART_PAGES as u64 <= self.limit_pages();
        let part = if has_room { parts.find(|&part| self.waits(part)) } else { None };
        if let Some(part) = part {
            let waiting = || (0..PART_PAGES).filter(|&i| self.waits(part.plus(i))).count();
            let before = waiting();
            self.answer(Faulting::unasked(part), cx);
            self.machine.count(Event::PagesStreamedAhead, before.saturating_sub(waiting()) as u64);
        }
        if part.is_none_or(|part| self.waits(part)) {
            self.upcoming.done(block);
        }
        true
    }

    /// Whether a page waits in a store that is synchronous.
    fn waits(&self, page: PageNo) -> bool {
        let word = self.pages.get(page);
        word.state() == State::Swapped && word.slot().is_some_and(|slot| self.store.is_synchronous(slot))
    }
}
