//! First in, first out, page by page.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

/// The policy.
pub struct Fifo {
    limit: usize,
    queue: Chains,
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Fifo {
    Fifo { limit, queue: Chains::new(steps.pages, 1) }
}

impl Policy for Fifo {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        if self.queue.list(page).is_some() {
            return Outcome::Resident;
        }
        if self.queue.len(0) >= self.limit {
            self.queue.pop(0);
        }
        self.queue.put(page, 0);
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.queue.remove(page);
    }
}
