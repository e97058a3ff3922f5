//! As `together`, but a page that comes back before the whole limit was turned over is passed by once.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules { neighbours: true, isolated_share: 16, adapts: true, protect_within: 1.0, ..Rules::FIFO };
    Blocks::new(rules, limit, steps)
}
