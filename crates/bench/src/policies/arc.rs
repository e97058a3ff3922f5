//! ARC (Megiddo and Modha, FAST 2003): one LRU list for what was used once and one for what was used again, each with a list of
//! what has left it; finding something there shifts room to its side.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

const ONCE: usize = 0;
const AGAIN: usize = 1;
const ONCE_GHOST: usize = 2;
const AGAIN_GHOST: usize = 3;

/// The policy.
pub struct Arc {
    limit: usize,
    lists: Chains,
    /// The room that pages used once should have.
    once: usize,
}

impl Arc {
    fn make_room(&mut self, found: Option<usize>) {
        let (lists, limit) = (&mut self.lists, self.limit);
        if lists.len(ONCE) + lists.len(AGAIN) < limit {
            return;
        }
        let once = lists.len(ONCE);
        let from_once = once > 0 && (once > self.once || found == Some(AGAIN_GHOST) && once == self.once);
        let from = if from_once || lists.len(AGAIN) == 0 { ONCE } else { AGAIN };
        if let Some(old) = lists.first(from) {
            lists.put(old, from + 2);
        }
        // What is remembered of pages used once, with those, is as much as there is room for; and twice that in all.
        if lists.len(ONCE) + lists.len(ONCE_GHOST) > limit {
            lists.pop(ONCE_GHOST);
        }
        if (0..4).map(|list| lists.len(list)).sum::<usize>() > 2 * limit {
            lists.pop(AGAIN_GHOST);
        }
    }
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Arc {
    Arc { limit, lists: Chains::new(steps.pages, 4), once: 0 }
}

impl Policy for Arc {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let found = self.lists.list(page);
        let (once_ghosts, again_ghosts) = (self.lists.len(ONCE_GHOST), self.lists.len(AGAIN_GHOST));
        match found {
            Some(ONCE | AGAIN) => {
                self.lists.put(page, AGAIN);
                return Outcome::Resident;
            }
            Some(ONCE_GHOST) => self.once = (self.once + (again_ghosts / once_ghosts).max(1)).min(self.limit),
            Some(_) => self.once = self.once.saturating_sub((once_ghosts / again_ghosts).max(1)),
            None => {}
        }
        self.lists.remove(page);
        self.make_room(found);
        self.lists.put(page, if found.is_some() { AGAIN } else { ONCE });
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.lists.remove(page);
    }
}
