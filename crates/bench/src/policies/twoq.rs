//! 2Q (Johnson and Shasha, VLDB 1994): a queue for what is new, a list of what has left it, and LRU for what came back from there.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

const NEW: usize = 0;
const OFTEN: usize = 1;
const GHOST: usize = 2;
/// A quarter is for what is new, and half as many pages as there is room for are remembered: as its authors found best.
const NEW_SHARE: usize = 4;
const GHOST_SHARE: usize = 2;

/// The policy.
pub struct TwoQ {
    limit: usize,
    queues: Chains,
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> TwoQ {
    TwoQ { limit, queues: Chains::new(steps.pages, 3) }
}

impl Policy for TwoQ {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let queues = &mut self.queues;
        let list = queues.list(page);
        match list {
            Some(NEW) => return Outcome::Resident,
            Some(OFTEN) => {
                queues.put(page, OFTEN);
                return Outcome::Resident;
            }
            _ => {}
        }
        queues.remove(page);
        if queues.len(NEW) + queues.len(OFTEN) >= self.limit {
            if queues.len(NEW) > self.limit / NEW_SHARE || queues.len(OFTEN) == 0 {
                if let Some(old) = queues.first(NEW) {
                    queues.put(old, GHOST);
                }
                if queues.len(GHOST) > self.limit / GHOST_SHARE {
                    queues.pop(GHOST);
                }
            } else {
                queues.pop(OFTEN);
            }
        }
        queues.put(page, if list == Some(GHOST) { OFTEN } else { NEW });
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.queues.remove(page);
    }
}
