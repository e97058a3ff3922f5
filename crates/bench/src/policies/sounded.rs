//! What `--mechanism reclaim=sounded` does: as `hot`, but of a block that is full eight pages are isolated first, and the others only if none of these is touched for a while: one page
//! of a region tells of all, as in DAMON (SeongJae Park and others, "Profiling dynamic data access patterns with controlled overhead and quality",
//! 2019).
use super::blocks::{Blocks, Rules};
use super::load::Steps;
use super::probes;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    let rules = Rules { hot: 3, sounding_pages: 8, sounding: 1.0 / 128.0, isolated_share: 32, ..probes::RULES };
    Blocks::new(rules, limit, steps)
}
