//! As `probation`, but a few pages of a block go first, and the others only if none of these is touched for a while ([`super::soundings`]).
//!
//! So a page that waits tells of a whole block, fewer have to wait, and what is used often stays for less: fewer faults on what waits, and less that comes back
//! with it.
use super::probation::Probation;
use super::soundings::Soundings;
use super::{Along, Asked, Reclaim, Returned, Search};
use crate::mask::Mask;
use crate::page::Word;
use crate::sync::Ordering::Relaxed;
use crate::table::Reserve;
use crate::units::{BLOCK_PAGES, BlockNo};

/// As many pages wait as with `probation`, divided by this: those of a sounding tell of eight times as many.
const FEWER: usize = 2;
/// So many blocks are passed by at most, before one is taken all the same: a fault may wait for it.
const PASSED_MAX: u32 = 256;

/// The policy.
pub struct Sounded {
    probation: Probation,
    soundings: Soundings,
}

impl Sounded {
    /// Reserves queues of all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Sounded> {
        Some(Sounded { probation: Probation::new(from, pages)?, soundings: Soundings::new(from, pages)? })
    }

    /// Takes the block that goes next.
    fn take(&self, pause: &impl Fn(u32)) -> Option<u32> {
        let evicted = self.probation.evicted.load(Relaxed);
        while let Some((block, was_touched)) = self.soundings.take(evicted, false, pause) {
            if !was_touched {
                return Some(block.0);
            }
            self.probation.add(block, pause);
        }
        for _ in 0..PASSED_MAX {
            let Some(block) = self.probation.take(pause).map(BlockNo) else {
                return self.soundings.take(evicted, true, pause).map(|(block, _)| block.0);
            };
            if !self.soundings.passes(block) {
                return Some(block.0);
            }
            self.probation.add(block, pause);
        }
        self.probation.take(pause)
    }
}

impl Reclaim for Sounded {
    fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        if !self.soundings.has(block) {
            self.probation.add(block, pause);
        }
    }

    fn came_back(&self, block: BlockNo, pages: usize, pause: &impl Fn(u32)) {
        if self.soundings.has(block) {
            self.soundings.touched(block);
        } else {
            self.probation.came_back(block, pages, pause);
        }
    }

    fn search(&self, pause: &impl Fn(u32)) -> Search {
        let search = self.probation.search(pause);
        Search { left: search.left + self.soundings.len(pause), ..search }
    }

    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        self.probation.next_of(search, || self.take(pause), || self.soundings.len(pause), pause)
    }

    fn part(&self, block: BlockNo, wanted: Mask) -> Mask {
        self.soundings.part(block, wanted, self.probation.evicted.load(Relaxed))
    }

    fn back(&self, block: BlockNo, pause: &impl Fn(u32)) {
        if !self.soundings.back(block, pause) {
            self.add(block, pause);
        }
    }

    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        self.probation.asked(block, asked, search);
    }

    fn hit(&self, block: BlockNo) -> Along {
        self.soundings.touched(block);
        self.probation.hit(block)
    }

    fn watched(&self, touched: u32, left: u32) {
        self.probation.watched(touched, left);
    }

    fn refaulted(&self, word: Word, distance_pages: u64, limit_pages: u64) -> Returned {
        self.probation.refaulted(word, distance_pages, limit_pages)
    }

    fn evicted(&self, pages: usize) {
        self.probation.evicted(pages);
    }

    fn isolated_max_pages(&self, limit_pages: u64) -> usize {
        self.soundings.set_limit_pages(limit_pages);
        (self.probation.isolated_max_pages(limit_pages) / FEWER).max(BLOCK_PAGES)
    }

    fn block_bytes(&self) -> usize {
        self.probation.block_bytes() + Soundings::BLOCK_BYTES
    }
}
