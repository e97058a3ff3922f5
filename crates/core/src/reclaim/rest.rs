//! Rest: blocks that the machine has refused are passed by for a while, longer each time.
use super::{Asked, Search};
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, Ordering::*};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, BlockNo};

/// Blocks that one search looks at.
const SEARCH_MAX: usize = 4096;
/// Blocks that the machine may refuse in one search: among those that do not rest, and, where nothing else is left, among those
/// that do.
const REFUSALS_MAX: u32 = 32;
const REFUSALS_RESTING_MAX: u32 = 4;
/// Visits that pass a block by after the machine refused all that was wanted of it: at first, and at most. Each refusal on end
/// makes them four times as many.
pub(super) const REST_VISITS: u32 = 8;
const REST_VISITS_MAX: u32 = 512;
/// The visits left of a block's word.
const LEFT: u32 = 0xffff;
const _: () = assert!(REST_VISITS_MAX <= LEFT);

/// Of each block: visits that still pass it by (low half), and how many they were at first.
pub(super) struct Rest(Table<AtomicU32>);

impl Rest {
    /// What it takes for a block, bytes.
    pub(super) const BLOCK_BYTES: usize = size_of::<u32>();

    /// Reserves a word a block. `None` where there is no memory.
    pub(super) fn new(from: &impl Reserve, pages: usize) -> Option<Rest> {
        Some(Rest(Table::new(from, pages / BLOCK_PAGES)?))
    }

    /// Starts a search among `queued` blocks.
    pub(super) fn search(queued: usize) -> Search {
        let left = queued.min(SEARCH_MAX);
        Search { left, refusals_left: REFUSALS_MAX, passed_by: false, last_resort: false }
    }

    /// Goes on with a search: the next block that `pop` gives and that does not rest. Those that do go to `back`.
    pub(super) fn next(
        &self,
        search: &mut Search,
        mut pop: impl FnMut() -> Option<BlockNo>,
        back: impl Fn(BlockNo),
        queued: impl Fn() -> usize,
    ) -> Option<BlockNo> {
        loop {
            if search.refusals_left == 0 {
                return None;
            }
            let Some(block) = (if search.left > 0 { pop() } else { None }) else {
                // Blocks that were refused lately are asked again only where no other has anything.
                if search.last_resort || !search.passed_by {
                    return None;
                }
                let left = queued().min(SEARCH_MAX);
                *search = Search { left, refusals_left: REFUSALS_RESTING_MAX, passed_by: false, last_resort: true };
                continue;
            };
            search.left -= 1;
            let rest = &self.0[block.0 as usize];
            let visits = rest.load(Relaxed);
            if visits & LEFT == 0 || search.last_resort || broken::is(Broken::NoRest) {
                return Some(block);
            }
            rest.store(visits - 1, Relaxed);
            search.passed_by = true;
            back(block);
        }
    }

    /// What the machine did when it was asked for pages of a block.
    pub(super) fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        if asked == Asked::Refused
            && let Some(search) = search
        {
            search.refusals_left = search.refusals_left.saturating_sub(1);
        }
        let rest = &self.0[block.0 as usize];
        let before = rest.load(Relaxed) >> 16;
        let visits = match asked {
            Asked::Refused if before == 0 => REST_VISITS,
            Asked::Refused => (before * 4).min(REST_VISITS_MAX),
            Asked::Gave => 0,
        };
        if visits != before || asked == Asked::Refused {
            rest.store(visits << 16 | visits, Relaxed);
        }
    }

    /// Visits that still pass a block by.
    #[cfg(test)]
    pub(super) fn visits_left(&self, block: BlockNo) -> u32 {
        self.0[block.0 as usize].load(Relaxed) & LEFT
    }
}
