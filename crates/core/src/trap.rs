//! While there is plenty of memory, what a program has never touched is left to the kernel: *untrapped* pages, which it fills with zeros at its
//! own faults, for a fourth of what a fault costs that is told of. Nobody knows then which of them it has filled; so all count as resident,
//! up to a part of the limit, and the limit holds whatever the program touches. When memory runs short they are *trapped*, a few blocks with each
//! fault: the kernel says which are there, the others hold nothing again and count no more.
//!
//! A page whose word says so ([`Word::is_untrapped`]) may be missing, and its touch is not told. All other pages that are missing are trapped.
//! So whoever takes such a page away from where it is, or forgets it, traps it first ([`Pager::trap_owned`]), while it is owned: what a thread
//! touches meanwhile waits.
use crate::broken::{self, Broken};
use crate::machine::Machine;
use crate::mask::Mask;
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Pager, Policies};
use crate::store::Store;
use crate::sync::{Ordering::SeqCst, fence};
use crate::units::{BLOCK_PAGES, BlockNo, Order, PART_PAGES, PageNo};

/// They are trapped where less than one part in so many of the limit is free.
const TRAP_SHARE: u64 = 3;
/// Blocks that a fault traps where memory runs short, and where it has: then for nothing that would have to be evicted.
const TRAP_BLOCKS: usize = 2;
const TRAP_BLOCKS_SHORT: usize = 16;
/// And who has time, at once: others may wait for an end of it.
const TRAP_BLOCKS_IN_TIME: usize = 64;
/// Attempts to put a page of zeros where a locked page is missing.
const PUT_TRIES: u32 = 1000;

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Pages that are left to the kernel: it has filled some of them.
    pub fn untrapped_pages(&self) -> u64 {
        self.left.pages()
    }

    /// Traps those of owned pages that are left to the kernel. `words` are those as which they were claimed, from that of `first` on, and are
    /// those that they have now. Returns the pages that turned out to hold nothing, counted from `first`. `None` where the machine
    /// refuses, and nothing has changed.
    pub(crate) fn trap_owned(&self, first: PageNo, words: &mut [Word]) -> Option<Mask> {
        let left: Mask = (0..words.len()).filter(|&i| words[i].is_untrapped()).collect();
        let Some(from) = left.first() else { return Some(Mask::EMPTY) };
        let there = self.machine.trap(first.plus(from), left.end() - from, left.from(from))?.at(from);
        let unfilled = if broken::is(Broken::UnfilledCounts) { Mask::EMPTY } else { left - there };
        let filled = left - unfilled;
        for i in left.iter() {
            words[i] = if unfilled.contains(i) { Word::UNTOUCHED } else { words[i].trapped() };
        }
        // What was filled as a whole goes out as what comes as a whole does.
        let parts = (0..words.len()).filter(|&i| Order::PART.fits_at(first.plus(i).0 as usize));
        for part in parts.filter(|&i| (Mask::range(i, PART_PAGES) - filled).is_empty()) {
            let order = self.orders().came(first.plus(part), PART_PAGES);
            words[part..part + PART_PAGES].iter_mut().for_each(|word| *word = word.with_order(order));
        }
        for (at, count) in left.runs() {
            self.left.remove(count as u64, self.left_beside(first.plus(at), count));
        }
        self.add_resident(-(unfilled.count() as i64));
        Some(unfilled)
    }

    /// Where memory runs short, traps a few blocks: more where `pages` more do not fit any more. Returns how many pages
    /// turned out to hold nothing, about.
    pub(crate) fn trap_if_short(&self, pages: usize) -> usize {
        let (before, wanted) = (self.resident_pages(), self.used_pages() + pages as u64);
        let most = if wanted > self.limit_pages() { TRAP_BLOCKS_SHORT } else { TRAP_BLOCKS };
        if self.is_short(wanted) && self.trap_if_due(most) {
            before.saturating_sub(self.resident_pages()) as usize
        } else {
            0
        }
    }

    /// As [`Pager::trap_if_short`], by who has time: some blocks more; also where others are short of memory (`for_others`), for which what is not
    /// filled is used. Whether any was trapped: then there may be more to do.
    pub fn trap_in_time(&self, for_others: bool) -> bool {
        (for_others || self.is_short(self.used_pages())) && self.trap_if_due(TRAP_BLOCKS_IN_TIME)
    }

    /// Whether memory is short with so many pages used.
    fn is_short(&self, used: u64) -> bool {
        used > self.limit_pages() - self.limit_pages() / TRAP_SHARE
    }

    /// Traps so many blocks at most, unless an attempt took nothing a short while ago. Whether this one took any.
    fn trap_if_due(&self, most: usize) -> bool {
        if !self.left.is_due() || broken::is(Broken::UntrappedStays) {
            return false;
        }
        let left = self.left.pages();
        self.trap_blocks(most, false);
        let is_trapped = self.left.pages() < left;
        if !is_trapped {
            self.left.took_nothing();
        }
        is_trapped
    }

    /// Traps all pages that are left to the kernel, but those that are locked or in use by calls. `all`: these, too, for a process that has
    /// no such call, and whose pages are trapped already, as far as the kernel goes.
    pub fn trap_all(&self, all: bool) {
        self.trap_blocks(usize::MAX, all);
    }

    /// The same of so many blocks at most, those first that have had such pages for the longest time.
    fn trap_blocks(&self, most: usize, all: bool) {
        for _ in 0..most.min(self.left.blocks(&self.pause())) {
            let Some(block) = self.left.next_block(&self.pause()) else { break };
            self.trap_block(block, all);
        }
    }

    /// The same of a range.
    pub fn trap_range(&self, first: PageNo, count: u32) {
        if self.left.pages() == 0 {
            return;
        }
        self.regions.touched(first, count, |first, count| {
            for block in first.block().0..=first.plus(count as usize - 1).block().0 {
                if self.left.has_block(BlockNo(block)) {
                    self.trap_block(BlockNo(block), false);
                }
            }
        });
    }

    fn trap_block(&self, block: BlockNo, all: bool) {
        let base = block.first_page();
        let (mut at, mut is_left) = (0, false);
        while at < BLOCK_PAGES {
            let start = at;
            let mut words = [Word::UNTOUCHED; BLOCK_PAGES];
            while at < BLOCK_PAGES {
                let word = self.pages.get(base.plus(at));
                let is_wanted = word.is_untrapped() && word.state() != State::Busy && (all || !word.locked());
                if !is_wanted || !self.pages.claim(base.plus(at), word) {
                    break;
                }
                words[at] = word;
                at += 1;
            }
            self.trap_run(base, &mut words, (start, at), all);
            is_left |= (start..at).any(|i| words[i].is_untrapped());
            is_left |= at < BLOCK_PAGES && self.pages.get(base.plus(at)).is_untrapped();
            at += 1;
        }
        if is_left {
            self.left.add_block(block, &self.pause());
        }
        // Reclaim may have passed by while they were owned.
        self.add_block(block);
    }

    /// The same with the pages from `start` to `end` of a block, which are claimed, and gives them up.
    fn trap_run(&self, base: PageNo, words: &mut [Word; BLOCK_PAGES], (start, end): (usize, usize), all: bool) {
        // A call that published its range before these pages were claimed counts on them; one that publishes later finds them
        // busy and waits.
        fence(SeqCst);
        let ignores = all || broken::is(Broken::PinnedTrapped);
        let pinned = if ignores { Mask::EMPTY } else { self.pins.mask(base.block()) };
        let claimed = Mask::range(start, end - start);
        let release = |words: &[Word], from: usize, to: usize| {
            (from..to).for_each(|i| self.pages.release(base.plus(i), words[i]));
        };
        // First those that stay: the others are counted by what lies beside them.
        (claimed & pinned).runs().for_each(|(at, count)| release(words, at, at + count));
        for (from, to) in (claimed - pinned).runs().map(|(at, count)| (at, at + count)) {
            let locked: Mask = (from..to).filter(|&i| words[i].locked()).collect();
            let unfilled = self.trap_owned(base.plus(from), &mut words[from..to]).unwrap_or(Mask::EMPTY).at(from);
            for i in (unfilled & locked).iter() {
                // What the kernel may use by itself is to be there.
                let put = |tries: u32| {
                    self.machine.pause(tries);
                    self.machine.put_zero(base.plus(i), 1).0 == 1
                };
                if (0..PUT_TRIES).any(put) {
                    words[i] = Word::resident(None, Order::PAGE).with_locked(true);
                    self.add_resident(1);
                }
            }
            release(words, from, to);
        }
    }

    /// How many of the pages right before these and right behind them are left to the kernel.
    pub(crate) fn left_beside(&self, first: PageNo, count: usize) -> u32 {
        let is_left = |&page: &u32| (page as usize) < self.pages.len() && self.pages.get(PageNo(page)).is_untrapped();
        [first.0.checked_sub(1), Some(first.0 + count as u32)].iter().flatten().filter(|page| is_left(page)).count()
            as u32
    }
}
