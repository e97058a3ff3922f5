//! As `together-accessed`, but pages of a block that came in since the last look stay when it goes.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    Blocks::new(Rules { neighbours: true, keep_looks: 1, ..Rules::ACCESSED }, limit, steps)
}
