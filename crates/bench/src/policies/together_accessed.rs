//! As `live-accessed`, but a touch of an isolated page brings all of its block back.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules { neighbours: true, ..Rules::ACCESSED };
    Blocks::new(rules, limit, steps)
}
