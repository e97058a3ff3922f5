//! What `--mechanism reclaim=probation` does: as `together`, but blocks that come back go first, unless they are touched while isolated.
//! That few blocks do where pages come back one by one is left out, and that what comes along follows probes: see `probes`.
use super::blocks::{Blocks, Rules};
use super::load::Steps;

/// What it goes by.
pub const RULES: Rules = Rules {
    neighbours: true,
    isolated_share: 16,
    adapts: true,
    fresh_back: 0.0,
    probation: 1.0 / 64.0,
    hit_score: 1.0,
    ..Rules::FIFO
};

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    Blocks::new(RULES, limit, steps)
}
