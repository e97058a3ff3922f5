//! What `--mechanism reclaim=accessed` does.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules::ACCESSED;
    Blocks::new(rules, limit, steps)
}
