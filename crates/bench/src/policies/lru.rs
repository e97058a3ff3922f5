//! The page that was not used for longest goes.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

/// The policy.
pub struct Lru {
    limit: usize,
    queue: Chains,
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Lru {
    Lru { limit, queue: Chains::new(steps.pages, 1) }
}

impl Policy for Lru {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let there = self.queue.list(page).is_some();
        if !there && self.queue.len(0) >= self.limit {
            self.queue.pop(0);
        }
        self.queue.put(page, 0);
        if there { Outcome::Resident } else { Outcome::Missing }
    }

    fn gone(&mut self, page: u32) {
        self.queue.remove(page);
    }
}
