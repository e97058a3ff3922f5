//! Lists of pages, of which a page is on one at most: to be put at the end, and taken from anywhere.

const NONE: u32 = u32::MAX;

/// So many lists over one range of numbers.
pub struct Chains {
    /// Neighbours, and the list that it is on.
    links: Vec<(u32, u32, u32)>,
    /// First, last, and how many.
    ends: Vec<(u32, u32, usize)>,
}

impl Chains {
    /// Empty lists.
    pub fn new(numbers: usize, lists: usize) -> Chains {
        Chains { links: vec![(NONE, NONE, NONE); numbers], ends: vec![(NONE, NONE, 0); lists] }
    }

    /// The list that a number is on.
    pub fn list(&self, number: u32) -> Option<usize> {
        let list = self.links[number as usize].2;
        (list != NONE).then_some(list as usize)
    }

    /// How many a list has.
    pub fn len(&self, list: usize) -> usize {
        self.ends[list].2
    }

    /// The one that was put there first.
    pub fn first(&self, list: usize) -> Option<u32> {
        let first = self.ends[list].0;
        (first != NONE).then_some(first)
    }

    /// Puts a number at the end of a list, from wherever it is.
    pub fn put(&mut self, number: u32, list: usize) {
        self.remove(number);
        let last = self.ends[list].1;
        self.links[number as usize] = (last, NONE, list as u32);
        match last {
            NONE => self.ends[list].0 = number,
            last => self.links[last as usize].1 = number,
        }
        self.ends[list].1 = number;
        self.ends[list].2 += 1;
    }

    /// Takes a number from its list, if it is on one.
    pub fn remove(&mut self, number: u32) -> bool {
        let (before, after, list) = self.links[number as usize];
        if list == NONE {
            return false;
        }
        let ends = &mut self.ends[list as usize];
        match before {
            NONE => ends.0 = after,
            before => self.links[before as usize].1 = after,
        }
        let ends = &mut self.ends[list as usize];
        match after {
            NONE => ends.1 = before,
            after => self.links[after as usize].0 = before,
        }
        self.ends[list as usize].2 -= 1;
        self.links[number as usize] = (NONE, NONE, NONE);
        true
    }

    /// Takes the first of a list.
    pub fn pop(&mut self, list: usize) -> Option<u32> {
        let first = self.first(list)?;
        self.remove(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn lists_are_what_queues_would_be() {
        let (mut chains, mut model) = (Chains::new(20, 3), vec![Vec::new(); 3]);
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            let (number, list) = (random.below(20) as u32, random.below(3));
            match random.below(4) {
                0 | 1 => {
                    model.iter_mut().for_each(|l: &mut Vec<u32>| l.retain(|&n| n != number));
                    model[list].push(number);
                    chains.put(number, list);
                }
                2 => {
                    let was = model.iter().any(|l| l.contains(&number));
                    model.iter_mut().for_each(|l| l.retain(|&n| n != number));
                    assert_eq!(chains.remove(number), was);
                }
                _ => {
                    let first = if model[list].is_empty() { None } else { Some(model[list].remove(0)) };
                    assert_eq!(chains.pop(list), first);
                }
            }
            for (list, model) in model.iter().enumerate() {
                assert_eq!((chains.len(list), chains.first(list)), (model.len(), model.first().copied()));
                assert!(model.iter().all(|&n| chains.list(n) == Some(list)));
            }
        }
    }
}
