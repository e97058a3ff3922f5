//! S3-FIFO (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023): a small queue for what is new, a main
//! one for what was used again, and a list of what has left the small one and would go to the main one at once.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// The share of the small queue.
const SMALL_SHARE: usize = 10;
const USES_MAX: u8 = 3;

/// The policy.
pub struct S3Fifo {
    limit: usize,
    queues: Chains,
    uses: Vec<u8>,
}

impl S3Fifo {
    fn is_full(&self) -> bool {
        self.queues.len(SMALL) + self.queues.len(MAIN) >= self.limit
    }

    fn evict(&mut self) {
        if self.queues.len(SMALL) > self.limit / SMALL_SHARE || self.queues.len(MAIN) == 0 {
            let Some(page) = self.queues.first(SMALL) else { return };
            if std::mem::take(&mut self.uses[page as usize]) > 0 {
                self.queues.put(page, MAIN);
                return;
            }
            self.queues.put(page, GHOST);
            if self.queues.len(GHOST) > self.limit {
                self.queues.pop(GHOST);
            }
        } else if let Some(page) = self.queues.pop(MAIN) {
            if self.uses[page as usize] > 0 {
                self.uses[page as usize] -= 1;
                self.queues.put(page, MAIN);
            }
        }
    }
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> S3Fifo {
    S3Fifo { limit, queues: Chains::new(steps.pages, 3), uses: vec![0; steps.pages] }
}

impl Policy for S3Fifo {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let uses = &mut self.uses[page as usize];
        match self.queues.list(page) {
            Some(SMALL | MAIN) => {
                *uses = (*uses + 1).min(USES_MAX);
                return Outcome::Resident;
            }
            list => {
                *uses = 0;
                // Making room must not drop what is being looked for from the list.
                self.queues.remove(page);
                while self.is_full() {
                    self.evict();
                }
                self.queues.put(page, if list == Some(GHOST) { MAIN } else { SMALL });
            }
        }
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.queues.remove(page);
        self.uses[page as usize] = 0;
    }
}
