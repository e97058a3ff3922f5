//! As `together`, but in the manner of S3-FIFO: blocks wait in a small queue of their own, unless they come back before half of the
//! limit was turned over, or are hit while they wait isolated.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules {
        neighbours: true,
        isolated_share: 16,
        adapts: true,
        small: 0.1,
        fresh: 0.0,
        back_within: 0.5,
        hit_score: 1.0,
        ..Rules::FIFO
    };
    Blocks::new(rules, limit, steps)
}
