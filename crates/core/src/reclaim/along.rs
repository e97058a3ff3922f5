//! What a touched page that waits isolated brings along: all of its block that waits with it, where that pays.
//!
//! They come by one move, and spare a fault each where they are wanted soon. Where they are not, each has to be taken again. So of one block
//! in [`PROBES`] nothing comes along: how many of the pages that would have are touched before they leave memory tells how many of those of
//! other blocks are. That a few sets are led differently, to see what pays for all, is set dueling (Moinuddin Qureshi and others, "Adaptive
//! insertion policies for high performance caching", 2007); here one kind of block is counted, and not two compared.
use super::Along;
use crate::broken::{self, Broken};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::BlockNo;

/// One block in so many is a probe. Others are after so many touches, so that none is for long and every program meets some; before that
/// many none is.
const PROBES: u32 = 32;
const TURN: u32 = 256;
/// Pages come along where at least one in so many of the probes' is touched.
const WORTH: u32 = 8;
/// So many pages of probes are a window; those before count half.
const WINDOW: u32 = 2048;
/// So many are taken to have been touched at first: pages come along until more speaks against it.
const BEGIN_TOUCHED: u32 = 64;

/// What became of the pages of probes.
pub(super) struct Probes {
    touched: AtomicU32,
    left: AtomicU32,
    hits: AtomicU32,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes { touched: AtomicU32::new(BEGIN_TOUCHED), left: AtomicU32::new(0), hits: AtomicU32::new(0) }
    }
}

impl Probes {
    /// What comes along with a page of a block that was touched.
    pub(super) fn along(&self, block: BlockNo) -> Along {
        let turn = self.hits.fetch_add(1, Relaxed) / TURN;
        let hash = (block.0 ^ turn.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b1) >> 16;
        if turn > 0 && hash.is_multiple_of(PROBES) {
            return Along::Watched;
        }
        let (touched, left) = (self.touched.load(Relaxed), self.left.load(Relaxed));
        let pays = touched.saturating_mul(WORTH) >= touched.saturating_add(left);
        if pays || broken::is(Broken::ProbesUnheard) { Along::All } else { Along::Nothing }
    }

    /// Of the pages that were watched, so many were touched, and so many have left memory.
    pub(super) fn watched(&self, touched: u32, left: u32) {
        // Threads that halve both at once halve them twice: half a window is forgotten.
        let touched = self.touched.fetch_add(touched, Relaxed) + touched;
        let left = self.left.fetch_add(left, Relaxed) + left;
        if touched + left > WINDOW {
            self.touched.store(touched / 2, Relaxed);
            self.left.store(left / 2, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pays(probes: &Probes) -> bool {
        (0..64).any(|block| probes.along(BlockNo(block)) == Along::All)
    }

    #[test]
    fn one_block_in_so_many_is_a_probe_and_in_time_every_block_is() {
        let probes = Probes::default();
        let watched = || (0..TURN).filter(|&b| probes.along(BlockNo(b)) == Along::Watched).collect::<Vec<_>>();
        assert_eq!(watched(), []);
        let turns: Vec<_> = (0..600).map(|_| watched()).collect();
        assert!(turns.iter().all(|blocks| (1..30).contains(&blocks.len())), "{turns:?}");
        assert!((0..TURN).all(|block| turns.iter().any(|blocks| blocks.contains(&block))));
        assert_ne!(turns[0], turns[1]);
    }

    #[test]
    fn pages_come_along_while_those_of_probes_are_touched() {
        let probes = Probes::default();
        assert!(pays(&probes), "nothing is known");
        probes.watched(0, BEGIN_TOUCHED * WORTH);
        assert!(!pays(&probes));
        // One in two: it takes less than a window to see that.
        let seen = (0..WINDOW / 2).find(|_| {
            probes.watched(1, 1);
            pays(&probes)
        });
        assert!(seen.is_some());
        // One more than it takes, and one fewer.
        (0..9).for_each(|_| probes.watched(WINDOW / WORTH + 1, WINDOW - WINDOW / WORTH - 1));
        assert!(pays(&probes));
        (0..9).for_each(|_| probes.watched(WINDOW / WORTH - 1, WINDOW - WINDOW / WORTH + 1));
        assert!(!pays(&probes));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let probes = Probes::default();
        (0..1000).for_each(|_| probes.watched(60, 0));
        let seen = (1..).find(|_| {
            probes.watched(0, 60);
            !pays(&probes)
        });
        assert!(seen.is_some_and(|steps| steps * 60 < 5 * WINDOW), "{seen:?}");
    }
}
