//! What `--mechanism reclaim=fifo` does: as `live-fifo`, but a touch of an isolated page brings all of its block back, and as much waits as pays.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules { neighbours: true, isolated_share: 16, adapts: true, ..Rules::FIFO };
    Blocks::new(rules, limit, steps)
}
