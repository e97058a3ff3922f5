//! As `together`, but a block is put last only where it comes back before the whole limit was turned over, else in the middle.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules =
        Rules { neighbours: true, isolated_share: 16, adapts: true, fresh: 0.5, back_within: 1.0, ..Rules::FIFO };
    Blocks::new(rules, limit, steps)
}
