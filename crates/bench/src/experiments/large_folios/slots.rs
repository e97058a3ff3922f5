//! The slot map alone, under what the kernel's swap-allocator test does to it: folios go out, parts come back, some are dropped and
//! made anew, in little more space than they need. How many do not get slots in one piece?
use outswap_core::slots::{CLUSTER_SLOTS, Slots};
use outswap_core::units::{Order, SlotId};

use crate::experiments::leak::Leak;
use crate::random::Random;

/// Hundredths of the memory that come back in a round, and that are dropped and made anew.
const BACK_PERCENT: usize = 60;
const DROPPED_PERCENT: usize = 10;

/// How folios come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Back {
    /// As the folios that they went as.
    Whole,
    /// Page by page, and are pages from then on.
    Pages,
}

struct Memory {
    map: Slots,
    order: Order,
    /// The slot of each page; none for one in memory.
    slots: Vec<Option<SlotId>>,
    /// By folio: it is in memory as one.
    is_large: Vec<bool>,
    /// By folio: it is in swap space as one.
    is_whole: Vec<bool>,
    /// By slot: the page that has it.
    owners: Vec<Option<usize>>,
}

fn alone(_: u32) {
    unreachable!("one thread waits for no lock")
}

impl Memory {
    fn new(order: Order, pages: usize) -> Option<Memory> {
        let folios = (pages / order.pages()).max(1);
        let pages = folios * order.pages();
        // A tenth more than all of it needs.
        let space = (pages + pages / 10).next_multiple_of(CLUSTER_SLOTS) + CLUSTER_SLOTS;
        Some(Memory {
            map: Slots::new(&Leak, space)?,
            order,
            slots: vec![None; pages],
            is_large: vec![true; folios],
            is_whole: vec![false; folios],
            owners: vec![None; space],
        })
    }

    fn give(&mut self, page: usize, slot: SlotId) -> Result<(), String> {
        match self.owners[slot.0 as usize].replace(page) {
            None => self.slots[page] = Some(slot),
            Some(other) => return Err(format!("slot {} was given to page {page} and is page {other}'s", slot.0)),
        }
        Ok(())
    }

    fn put(&mut self, page: usize) {
        if let Some(slot) = self.slots[page].take() {
            self.owners[slot.0 as usize] = None;
            self.map.put(slot, alone, |_| ());
        }
    }

    /// Everything goes out. Gives how many folios wanted slots in one piece, and how many did not get them.
    fn out(&mut self) -> Result<(u64, u64), String> {
        let (mut wanted, mut refused) = (0, 0);
        for folio in 0..self.is_large.len() {
            let pages = folio * self.order.pages()..(folio + 1) * self.order.pages();
            if std::mem::take(&mut self.is_large[folio]) {
                wanted += 1;
                if let Some(first) = self.map.alloc(self.order, 0, alone) {
                    if !self.order.fits_at(first.0 as usize) {
                        return Err(format!("a folio was put at slot {}", first.0));
                    }
                    self.is_whole[folio] = true;
                    pages.clone().enumerate().try_for_each(|(n, page)| self.give(page, first.plus(n)))?;
                    continue;
                }
                refused += 1;
            }
            for page in pages {
                if self.slots[page].is_none() {
                    let slot = self.map.alloc(Order::PAGE, 0, alone).ok_or("there is no slot for a page")?;
                    self.give(page, slot)?;
                }
            }
        }
        Ok((wanted, refused))
    }

    fn back(&mut self, back: Back, random: &mut Random) {
        for folio in 0..self.is_large.len() {
            let all_at_once = random.below(100) < BACK_PERCENT;
            let as_one = back == Back::Whole && self.is_whole[folio];
            for page in folio * self.order.pages()..(folio + 1) * self.order.pages() {
                let comes = if back == Back::Whole { all_at_once } else { random.below(100) < BACK_PERCENT };
                if comes {
                    self.put(page);
                    self.is_whole[folio] = false;
                }
            }
            self.is_large[folio] = as_one && all_at_once;
        }
    }

    fn drop_some(&mut self, random: &mut Random) {
        for folio in 0..self.is_large.len() {
            if random.below(100) < DROPPED_PERCENT {
                (folio * self.order.pages()..(folio + 1) * self.order.pages()).for_each(|page| self.put(page));
                (self.is_large[folio], self.is_whole[folio]) = (true, false);
            }
        }
    }
}

/// Hundredths of the folios that had to go as pages, by round.
pub fn fallbacks(order: Order, pages: usize, back: Back, rounds: u32) -> Result<Vec<f64>, String> {
    let mut memory = Memory::new(order, pages).ok_or("there is no memory for the tables")?;
    let (mut random, mut percents) = (Random::new(6), Vec::new());
    for _ in 0..rounds {
        let (wanted, refused) = memory.out()?;
        percents.push(if wanted == 0 { 0.0 } else { refused as f64 * 100.0 / wanted as f64 });
        memory.back(back, &mut random);
        memory.drop_some(&mut random);
    }
    Ok(percents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_that_come_back_whole_always_find_slots_and_others_soon_do_not() {
        for order in [4, 9] {
            let whole = fallbacks(Order::new(order), 32_768, Back::Whole, 17).expect("no slot is given twice");
            assert_eq!(whole, [0.0; 17], "order {order}");
            let pages = fallbacks(Order::new(order), 32_768, Back::Pages, 17).expect("no slot is given twice");
            assert_eq!(pages[0], 0.0);
            assert!(pages.iter().any(|&percent| percent > 20.0), "order {order}: {pages:?}");
        }
    }

    #[test]
    fn a_page_is_no_folio_that_could_fall_back() {
        let pages = fallbacks(Order::PAGE, 4096, Back::Pages, 5).expect("no slot is given twice");
        assert_eq!(pages, [0.0; 5]);
    }
}
