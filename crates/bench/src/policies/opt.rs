//! Belady's optimum: the page goes whose next use is furthest away. It knows the future, and no policy reads back less.
use std::collections::BTreeSet;

use super::load::{Step, Steps};
use super::{Outcome, Policy};

const NEVER: u32 = u32::MAX;

/// The policy.
pub struct Opt {
    limit: usize,
    /// For each step: when its page is used next. A page that loses its content first is not.
    next: Vec<u32>,
    at: usize,
    /// Of the pages in memory: when each is used next.
    uses: BTreeSet<(u32, u32)>,
    /// The same by page; `None` where it is not in memory.
    of: Vec<Option<u32>>,
}

/// The policy with room for so many pages.
pub fn new(limit: usize, steps: &Steps) -> Opt {
    let mut next = vec![NEVER; steps.len()];
    let mut coming = vec![NEVER; steps.pages];
    for (at, step) in steps.iter().enumerate().rev() {
        match step {
            Step::Access { page, .. } => next[at] = std::mem::replace(&mut coming[page as usize], at as u32),
            Step::Gone(page) => coming[page as usize] = NEVER,
        }
    }
    Opt { limit, next, at: 0, uses: BTreeSet::new(), of: vec![None; steps.pages] }
}

impl Policy for Opt {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let next = self.next[self.at];
        self.at += 1;
        let before = self.of[page as usize].replace(next);
        match before {
            Some(before) => {
                self.uses.remove(&(before, page));
            }
            None if self.uses.len() >= self.limit => {
                if let Some((_, victim)) = self.uses.pop_last() {
                    self.of[victim as usize] = None;
                }
            }
            None => {}
        }
        self.uses.insert((next, page));
        if before.is_some() { Outcome::Resident } else { Outcome::Missing }
    }

    fn gone(&mut self, page: u32) {
        self.at += 1;
        if let Some(next) = self.of[page as usize].take() {
            self.uses.remove(&(next, page));
        }
    }
}
