//! As `probes`, but a block of which a page was touched in each of its last two waits or three is passed by once or twice.
use super::blocks::{Blocks, Rules};
use super::load::Steps;
use super::probes;

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    Blocks::new(Rules { hot: 3, ..probes::RULES }, limit, steps)
}
