//! Folios larger than a block. Their pages are in several blocks, which are isolated one after the other, each in a batch of its own, and
//! go to slots in one piece.
//!
//! ```text
//!  a folio of order 9   [ block ][ block ] ... [ block ]   all of it in memory, unlocked, not in use by calls, and to go
//!                           |        |             |
//!  batches              [ 64 frames ]  ...             each knows its part of the slots
//!                           |        |             |
//!  slots                [ 512 in one piece, from a number on that 512 divides ]
//! ```
//! From there on each block is on its own: its batch is written out, and its pages are touched meanwhile, as those of any other. What of a
//! block cannot go whole, as a page of it was touched, or is clean or zero, goes as if it had no part of a larger folio, and the slots of
//! that part are put.
use crate::broken::{self, Broken};
use crate::frames::Part;
use crate::isolate::{By, Isolated};
use crate::machine::{Event, Machine};
use crate::mask::Mask;
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::reclaim::{Reclaim, Search, Verdict};
use crate::store::Store;
use crate::units::{BLOCK_PAGES, BlockNo, Order, PageNo};

/// Reclaim takes folios of one part in so many of the limit at most.
const LIMIT_SHARE: u64 = 4;

/// Slots in one piece for a folio larger than a block.
pub(crate) struct Large {
    first: BlockNo,
    order: Order,
    /// Of the first block's part. Each part is to be given to one batch, or to be put.
    part: Part,
}

impl Large {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockNo> + use<> {
        (self.first.0..self.end().0).map(BlockNo)
    }
    /// The block behind the last.
    pub(crate) fn end(&self) -> BlockNo {
        BlockNo(self.first.0 + (self.order.pages() / BLOCK_PAGES) as u32)
    }
    fn part_of(&self, block: BlockNo) -> Part {
        let before = (block.0 - self.first.0) as usize * BLOCK_PAGES;
        Part { slot: self.part.slot.plus(before), ..self.part }
    }
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Slots for the largest folio of several blocks around `block` of at most `most` pages, all of whose pages are to go: `goes` says so of
    /// what is in nobody's way. `None` where there is no such folio, or only smaller ones find slots in one piece.
    pub(crate) fn large(
        &self,
        block: BlockNo,
        most: u64,
        goes: impl Fn(PageNo, Word) -> bool,
        lane: usize,
    ) -> Option<Large> {
        let large = Order::ALL.into_iter().rev().take_while(|order| order.is_large());
        for order in large.filter(|order| order.pages() as u64 <= most) {
            let first = block.first_page().folio(order);
            let is_part = |word: Word| {
                let free = || word.state() == State::Resident && !word.locked() && !word.is_untrapped();
                self.orders().goes_large(order, word.order()) && free() && !self.protection.is_known_clean(word)
            };
            let is_going = |page: PageNo| {
                let word = self.pages.get(page);
                is_part(word) && goes(page, word)
            };
            // To a full store it would not go.
            let has_room = !self.full.is_full() && !broken::is(Broken::NoLarge);
            let is_there = has_room && first.0 as usize + order.pages() <= self.pages.len();
            if !is_there || !(0..order.pages()).all(|i| is_going(first.plus(i))) {
                continue;
            }
            let blocks = (first.block().0..).take(order.pages() / BLOCK_PAGES).map(BlockNo);
            if !blocks.into_iter().all(|block| self.pins.mask(block).is_empty()) {
                continue;
            }
            if let Some(slot) = self.slots.alloc(order, lane, self.pause()) {
                return Some(Large { first: first.block(), order, part: Part { slot, order } });
            }
            self.machine.count(Event::FolioFallbacks, 1);
        }
        None
    }

    /// Gives a block's batch its part of the slots, where all of the block is in it; else they are put.
    pub(crate) fn give_part(&self, large: &Large, block: BlockNo, isolated: &Isolated) {
        let part = large.part_of(block);
        match *isolated {
            Isolated::Batch(batch) if self.frames.filled_pages(batch) == BLOCK_PAGES => {
                self.frames.set_part(batch, part);
            }
            _ => self.put_part(part),
        }
    }

    /// How many pages reclaim may take as one folio: what goes with a block was not chosen.
    pub(crate) fn large_max_pages(&self) -> u64 {
        self.limit_pages() / LIMIT_SHARE
    }

    /// Isolates pages of a block that reclaim's policy has chosen, and with them those of the folio of at most `most` pages that they go as.
    pub(crate) fn isolate_chosen(
        &self,
        block: BlockNo,
        most: u64,
        search: &mut Search,
        cx: &mut Context<S::Worker>,
    ) -> Isolated {
        let goes = |_: PageNo, word: Word| self.policy().judge(word) == Verdict::Take;
        let large = self.large(block, most, goes, cx.lane);
        let isolated = self.isolate(block, By::Policy(search), cx);
        let Some(large) = large else { return isolated };
        self.give_part(&large, block, &isolated);
        for other in large.blocks().filter(|&other| other != block) {
            let by = By::Program(Mask::range(0, BLOCK_PAGES));
            let others = match isolated {
                Isolated::Batch(_) => self.isolate(other, by, cx),
                _ => Isolated::Nothing,
            };
            self.give_part(&large, other, &others);
            match others {
                Isolated::Batch(batch) => self.frames.make_inactive(batch, self.pause()),
                Isolated::Dropped(pages) => self.policy().evicted(pages),
                Isolated::NoBatch | Isolated::Nothing => {}
            }
        }
        isolated
    }
}
