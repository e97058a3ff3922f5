//! As `probation`, but what waits of a block comes back with a touched page only where that pays. Of one block in sixteen nothing comes along:
//! how many of its pages are touched before they leave tells how many are in the others.
use super::blocks::{Blocks, Rules};
use super::load::Steps;
use super::probation;

/// What it goes by.
pub const RULES: Rules = Rules { probes: 16, worth: 0.2, ..probation::RULES };

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Blocks {
    Blocks::new(RULES, limit, steps)
}
