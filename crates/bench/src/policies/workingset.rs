//! Two lists with refault distance, as Linux has had them since 2014: what is new is inactive; the second access, or a return
//! from the store after fewer evictions than there are active pages, makes a page active.
use super::chain::Chains;
use super::load::Steps;
use super::{Outcome, Policy};

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
/// Active pages may outnumber inactive ones by so much, for memory below a gigabyte.
const ACTIVE_RATIO: usize = 1;

/// The policy.
pub struct Workingset {
    limit: usize,
    lists: Chains,
    accessed: Vec<bool>,
    /// Evictions so far, and when each page was evicted.
    evictions: u64,
    evicted_at: Vec<Option<u64>>,
}

impl Workingset {
    /// One page less.
    fn evict(&mut self) {
        loop {
            if self.lists.len(ACTIVE) > self.lists.len(INACTIVE) * ACTIVE_RATIO {
                // What was active becomes inactive, accessed or not.
                if let Some(page) = self.lists.first(ACTIVE) {
                    self.accessed[page as usize] = false;
                    self.lists.put(page, INACTIVE);
                }
            }
            let Some(page) = self.lists.first(INACTIVE) else { return };
            if std::mem::take(&mut self.accessed[page as usize]) {
                self.lists.put(page, ACTIVE);
                continue;
            }
            self.lists.remove(page);
            self.evictions += 1;
            self.evicted_at[page as usize] = Some(self.evictions);
            return;
        }
    }
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Workingset {
    let (accessed, evicted_at) = (vec![false; steps.pages], vec![None; steps.pages]);
    Workingset { limit, lists: Chains::new(steps.pages, 2), accessed, evictions: 0, evicted_at }
}

impl Policy for Workingset {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let index = page as usize;
        if self.lists.list(page).is_some() {
            self.accessed[index] = true;
            return Outcome::Resident;
        }
        if self.lists.len(INACTIVE) + self.lists.len(ACTIVE) >= self.limit {
            self.evict();
        }
        let distance = self.evicted_at[index].take().map(|at| self.evictions - at);
        let is_working_set = distance.is_some_and(|d| d <= self.lists.len(ACTIVE).max(self.limit / 2) as u64);
        self.lists.put(page, if is_working_set { ACTIVE } else { INACTIVE });
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        self.lists.remove(page);
        self.accessed[page as usize] = false;
        self.evicted_at[page as usize] = None;
    }
}
