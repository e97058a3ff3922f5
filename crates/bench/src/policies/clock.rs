//! CLOCK: first in, first out, but a page whose accessed bit is set goes round once more without it. Bits are exact and free here.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

/// The policy.
pub struct Clock {
    limit: usize,
    queue: Chains,
    accessed: Vec<bool>,
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Clock {
    Clock { limit, queue: Chains::new(steps.pages, 1), accessed: vec![false; steps.pages] }
}

impl Policy for Clock {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        if self.queue.list(page).is_some() {
            self.accessed[page as usize] = true;
            return Outcome::Resident;
        }
        while self.queue.len(0) >= self.limit {
            let Some(first) = self.queue.pop(0) else { break };
            if std::mem::take(&mut self.accessed[first as usize]) {
                self.queue.put(first, 0);
            }
        }
        self.queue.put(page, 0);
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.queue.remove(page);
        self.accessed[page as usize] = false;
    }
}
