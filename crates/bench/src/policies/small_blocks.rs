//! As `together`, with blocks of 16 pages.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules { block_pages: 16, neighbours: true, isolated_share: 16, adapts: true, ..Rules::FIFO };
    Blocks::new(rules, limit, steps)
}
