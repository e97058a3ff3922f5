//! Blocks, first in, first out, with a second chance for pages that are touched while isolated.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules::FIFO;
    Blocks::new(rules, limit, steps)
}
