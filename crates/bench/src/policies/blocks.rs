//! Policies that know what Outswap knows: faults, and of each block, at each look, how many of its pages were accessed since the
//! look before. A look costs milliseconds, so there are only a few of them while the whole limit is turned over.
//!
//! Whole blocks are chosen, those with the lowest score first, among equals first in, first out; their pages wait isolated for a
//! while, where a touch brings them back. [`Rules`] has what is tried.
use super::chain::Chains;
use super::load::{BLOCK_PAGES_MAX, Steps};
use super::{Outcome, Policy};

/// Lists of blocks, by score; the last is for those with the highest, and those that were asked in vain.
const LEVELS: usize = 16;
/// The list of blocks of which a few pages wait, to tell whether the block is in use.
const SOUNDED: usize = LEVELS;
const REFERENCED_MAX: u8 = 3;

/// What a block-by-block policy goes by.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Pages of a block.
    pub block_pages: usize,
    /// Looks while as many pages are evicted as the limit has; 0 for none.
    pub looks: usize,
    /// What the score before a look counts for beside what the look has found, of 1.
    pub memory: f64,
    /// The score of a block that was not in memory, of 1: one that is touched for the first time, and one that comes back.
    pub fresh: f64,
    /// See `fresh`.
    pub fresh_back: f64,
    /// A block that comes back counts as `fresh_back` only if fewer pages than this, in limits, were evicted meanwhile.
    pub back_within: f64,
    /// A page that comes back sooner than this, in limits of evicted pages, is passed by once.
    pub protect_within: f64,
    /// Pages that came in since so many looks stay when their block goes.
    pub keep_looks: u32,
    /// The limit through this may be isolated; 0 for nothing.
    pub isolated_share: usize,
    /// The share follows its success, between this and eight times as little: it is halved where more than a quarter of the pages
    /// that leave memory were hit while they waited, and doubled below a sixteenth.
    pub adapts: bool,
    /// A touch of an isolated page brings its block's other isolated pages along.
    pub neighbours: bool,
    /// Blocks that come for the first time, or late, wait in a queue of their own, from which pages go while it has more than
    /// this of the limit; 0 for none.
    pub small: f64,
    /// Blocks that come back wait on the lowest list, and go when this of the limit was evicted since; 0: as all others.
    pub probation: f64,
    /// A touch of an isolated page raises its block's score to this.
    pub hit_score: f64,
    /// One block in so many is a probe, whose pages never come along: that shows how many of those that do would be touched. 0: none is.
    pub probes: u32,
    /// Pages come along while at least this part of the probes' are touched before they leave.
    pub worth: f64,
    /// A block that was touched in each of its last waits, so many at most, is passed by as often, less once. 0: none is.
    pub hot: u8,
    /// Of a block with more than twice so many pages, so many are isolated first. It goes whole when this of the limit was evicted since, unless
    /// one of them was touched. 0: all are isolated at once.
    pub sounding_pages: u32,
    /// See `sounding_pages`.
    pub sounding: f64,
}

impl Rules {
    /// `--mechanism reclaim=fifo`.
    pub const FIFO: Rules = Rules {
        block_pages: 64,
        looks: 0,
        memory: 0.5,
        fresh: 1.0,
        fresh_back: 1.0,
        back_within: f64::INFINITY,
        protect_within: 0.0,
        keep_looks: 0,
        isolated_share: 8,
        adapts: false,
        neighbours: false,
        small: 0.0,
        probation: 0.0,
        hit_score: 0.0,
        probes: 0,
        worth: 0.0,
        hot: 0,
        sounding_pages: 0,
        sounding: 0.0,
    };
    /// `--mechanism reclaim=accessed`.
    pub const ACCESSED: Rules = Rules { looks: 8, isolated_share: 64, ..Rules::FIFO };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Resident,
    Isolated,
}

#[derive(Clone, Copy)]
struct Page {
    state: State,
    accessed: bool,
    referenced: u8,
    /// It waits, and would have come along if its block were no probe.
    probed: bool,
    /// Looks before it came in.
    came_look: u32,
    evicted_at: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Block {
    score: f64,
    resident: u32,
    accessed: u32,
    evicted_at: Option<u64>,
    /// Evictions before it was put on a list.
    queued_at: u64,
    /// Pages of it were isolated, and none was touched since.
    waits: bool,
    /// Waits on end in which one was, and how often it is passed by still.
    touched_waits: u8,
    passes: u8,
    /// A few of its pages are isolated, or were, and all else goes next.
    sounded: bool,
}

/// Such a policy.
pub struct Blocks {
    rules: Rules,
    limit: usize,
    pages: Vec<Page>,
    blocks: Vec<Block>,
    lists: Chains,
    isolated: Chains,
    resident: usize,
    /// Pages of the blocks on the lowest list.
    lowest: usize,
    /// Pages that have left memory so far, and at the last look.
    evictions: u64,
    looked_at: u64,
    looks: u32,
    /// The isolated share in use; hits, and evictions before, since it was last set.
    share: usize,
    hits: u64,
    set_at: u64,
    /// Pages that came along with others.
    along: u64,
    probed: Probed,
}

/// What became of the pages of probes, the last ones more than those before.
struct Probed {
    touched: u32,
    left: u32,
}

impl Probed {
    /// So many before both numbers are halved.
    const WINDOW: u32 = 512;
    /// Until more is known pages come along.
    const NEW: Probed = Probed { touched: 8, left: 0 };

    fn note(&mut self, touched: bool) {
        *(if touched { &mut self.touched } else { &mut self.left }) += 1;
        if self.touched + self.left > Probed::WINDOW {
            (self.touched, self.left) = (self.touched / 2, self.left / 2);
        }
    }

    fn touched_part(&self) -> f64 {
        f64::from(self.touched) / f64::from(self.touched + self.left)
    }
}

fn level(score: f64) -> usize {
    ((score * LEVELS as f64) as usize).min(LEVELS - 1)
}

impl Blocks {
    /// Such a policy.
    pub fn new(rules: Rules, limit: usize, steps: &Steps) -> Blocks {
        assert!(BLOCK_PAGES_MAX.is_multiple_of(rules.block_pages), "blocks have whole numbers of pages");
        assert!(rules.probes == 0 || rules.probes.is_power_of_two(), "a mask chooses probes");
        let page =
            Page { state: State::Out, accessed: false, referenced: 0, probed: false, came_look: 0, evicted_at: None };
        let blocks = steps.pages / rules.block_pages;
        Blocks {
            rules,
            limit,
            pages: vec![page; steps.pages],
            blocks: vec![Block::default(); blocks],
            lists: Chains::new(blocks, LEVELS + 1),
            isolated: Chains::new(steps.pages, 1),
            resident: 0,
            lowest: 0,
            evictions: 0,
            looked_at: 0,
            looks: 0,
            share: rules.isolated_share,
            hits: 0,
            set_at: 0,
            along: 0,
            probed: Probed::NEW,
        }
    }

    /// Sets the share that may be isolated by what came of the last one.
    fn adapt(&mut self) {
        let since = self.evictions - self.set_at;
        if !self.rules.adapts || (since + self.hits) * 8 < self.limit as u64 {
            return;
        }
        if self.hits * 4 > since {
            self.share = (self.share * 2).min(self.rules.isolated_share * 8);
        } else if self.hits * 16 < since {
            self.share = (self.share / 2).max(self.rules.isolated_share);
        }
        (self.hits, self.set_at) = (0, self.evictions);
    }

    /// Puts a block on the list of a level.
    fn put_block(&mut self, number: u32, level: usize) {
        self.take_block(number);
        self.lists.put(number, level);
        self.lowest += if level == 0 { self.blocks[number as usize].resident as usize } else { 0 };
    }

    /// Takes a block from its list.
    fn take_block(&mut self, number: u32) {
        let list = self.lists.list(number);
        self.lowest -= if list == Some(0) { self.blocks[number as usize].resident as usize } else { 0 };
        self.lists.remove(number);
    }

    /// The block that was sounded, and not touched in its time. Those that were are with the others again.
    fn sounded_in_vain(&mut self) -> Option<u32> {
        loop {
            let number = self.lists.first(SOUNDED)?;
            let block = self.blocks[number as usize];
            if ((self.evictions - block.queued_at) as f64) < self.rules.sounding * self.limit as f64 {
                return None;
            }
            self.take_block(number);
            if block.waits {
                return Some(number);
            }
            self.blocks[number as usize].sounded = false;
            self.put_block(number, LEVELS - 1);
        }
    }

    /// Isolates a few pages of a block, from some place on.
    fn sound(&mut self, number: u32) {
        let pages = self.rules.block_pages as u32;
        let start = (self.evictions as u32).wrapping_mul(0x9e37_79b1) >> 16;
        let places = (0..pages).map(|place| number * pages + (start + place) % pages);
        let resident = |&page: &u32| self.pages[page as usize].state == State::Resident;
        let chosen: Vec<u32> = places.filter(resident).take(self.rules.sounding_pages as usize).collect();
        for page in chosen {
            self.leave(page, State::Isolated);
            self.isolated.put(page, 0);
        }
        let block = &mut self.blocks[number as usize];
        (block.sounded, block.queued_at) = (true, self.evictions);
        self.put_block(number, SOUNDED);
    }

    /// The block that goes next.
    fn next_block(&mut self) -> Option<u32> {
        if let Some(number) = self.sounded_in_vain() {
            return Some(number);
        }
        let has_time = |block: u32| {
            let age_pages = self.evictions - self.blocks[block as usize].queued_at;
            (age_pages as f64) < self.rules.probation * self.limit as f64
        };
        let keeps_lowest = self.rules.small > 0.0 && (self.lowest as f64) <= self.rules.small * self.limit as f64
            || self.rules.probation > 0.0 && self.lists.first(0).is_none_or(has_time);
        let main = (1..LEVELS).find_map(|level| self.lists.first(level)).filter(|_| keeps_lowest);
        let number = main.or_else(|| (0..=SOUNDED).find_map(|level| self.lists.first(level)))?;
        self.take_block(number);
        Some(number)
    }

    /// Brings back what waits of a block of which a page was touched, or leaves it.
    fn bring_along(&mut self, number: u32) {
        let is_probe = self.rules.probes > 0 && number.wrapping_mul(0x9e37_79b1) >> 16 & (self.rules.probes - 1) == 0;
        if !is_probe && self.rules.probes > 0 && self.probed.touched_part() < self.rules.worth {
            return;
        }
        let pages = self.rules.block_pages as u32;
        for page in number * pages..(number + 1) * pages {
            let place = &mut self.pages[page as usize];
            if place.state != State::Isolated {
                continue;
            }
            if is_probe {
                place.probed = true;
                continue;
            }
            self.isolated.remove(page);
            self.along += 1;
            self.come(page);
        }
    }

    /// Whether a block whose turn it is is passed by this time.
    fn passes_by(&mut self, number: u32) -> bool {
        let block = &mut self.blocks[number as usize];
        if block.passes > 0 {
            block.passes -= 1;
            return true;
        }
        if std::mem::replace(&mut block.waits, true) {
            block.touched_waits = 0;
        }
        false
    }

    fn block_of(&self, page: u32) -> u32 {
        page / self.rules.block_pages as u32
    }

    /// Whether fewer pages than `limits` times the limit were evicted since.
    fn is_within(&self, at: Option<u64>, limits: f64) -> bool {
        at.is_some_and(|at| ((self.evictions - at) as f64) < limits * self.limit as f64)
    }

    fn look_if_due(&mut self) {
        let since = self.evictions - self.looked_at;
        let is_first = self.looks == 0 && self.resident * 4 > self.limit * 3;
        if self.rules.looks == 0 || !is_first && since <= (self.limit / self.rules.looks) as u64 {
            return;
        }
        self.looked_at = self.evictions;
        self.looks += 1;
        for number in 0..self.blocks.len() {
            let block = &mut self.blocks[number];
            let found = std::mem::take(&mut block.accessed);
            if block.resident == 0 {
                continue;
            }
            let share = f64::from(found) / f64::from(block.resident);
            block.score = block.score * self.rules.memory + share * (1.0 - self.rules.memory);
            let level = level(block.score);
            if self.lists.list(number as u32).is_some_and(|list| list != level) {
                self.put_block(number as u32, level);
            }
        }
        self.pages.iter_mut().for_each(|page| page.accessed = false);
    }

    fn mark_accessed(&mut self, page: u32) {
        let block = self.block_of(page) as usize;
        if !std::mem::replace(&mut self.pages[page as usize].accessed, true) {
            self.blocks[block].accessed += 1;
        }
    }

    /// A page becomes resident.
    fn come(&mut self, page: u32) {
        self.pages[page as usize].state = State::Resident;
        self.resident += 1;
        let number = self.block_of(page);
        self.blocks[number as usize].resident += 1;
        self.lowest += usize::from(self.lists.list(number) == Some(0));
        self.mark_accessed(page);
        if self.lists.list(number).is_none() {
            let evicted_at = self.blocks[number as usize].evicted_at;
            let is_back = self.is_within(evicted_at, self.rules.back_within);
            let score = if is_back { self.rules.fresh_back } else { self.rules.fresh };
            let block = &mut self.blocks[number as usize];
            block.score = score;
            block.queued_at = self.evictions;
            block.sounded = false;
            self.put_block(number, level(score));
        }
    }

    /// A resident page leaves.
    fn leave(&mut self, page: u32, to: State) {
        let number = self.block_of(page) as usize;
        let place = &mut self.pages[page as usize];
        place.state = to;
        self.blocks[number].resident -= 1;
        self.lowest -= usize::from(self.lists.list(number as u32) == Some(0));
        if std::mem::take(&mut place.accessed) {
            self.blocks[number].accessed -= 1;
        }
        self.resident -= 1;
    }

    /// Isolates what may go of the next block, or all of it. Gives false where there is none.
    fn isolate(&mut self, all: bool) -> bool {
        let Some(number) = self.next_block() else { return false };
        if self.passes_by(number) && !all {
            self.put_block(number, LEVELS - 1);
            return true;
        }
        let block = &mut self.blocks[number as usize];
        let is_sounded = std::mem::take(&mut block.sounded) || block.resident <= 2 * self.rules.sounding_pages;
        if self.rules.sounding_pages > 0 && !is_sounded && !all {
            self.sound(number);
            return true;
        }
        let pages = self.rules.block_pages as u32;
        let mut left = false;
        for page in number * pages..(number + 1) * pages {
            let place = &mut self.pages[page as usize];
            if place.state != State::Resident {
                continue;
            }
            let is_new = self.looks - place.came_look < self.rules.keep_looks;
            if !all && (place.referenced > 0 || is_new) {
                place.referenced = place.referenced.saturating_sub(1);
                left = true;
                continue;
            }
            self.leave(page, State::Isolated);
            self.isolated.put(page, 0);
        }
        if left {
            self.put_block(number, LEVELS - 1);
        }
        true
    }

    fn make_room(&mut self) {
        self.adapt();
        let share = self.limit.checked_div(self.share).unwrap_or(0).max(1);
        let mut tries = 0;
        while self.resident + self.isolated.len(0) >= self.limit {
            self.look_if_due();
            let few = self.isolated.len(0) < share;
            tries += 1;
            let all = tries > 2 * self.blocks.len();
            if few && self.isolate(all) {
                continue;
            }
            match self.isolated.pop(0) {
                Some(page) => {
                    self.evictions += 1;
                    let block = self.block_of(page) as usize;
                    let place = &mut self.pages[page as usize];
                    place.state = State::Out;
                    place.evicted_at = Some(self.evictions);
                    if std::mem::take(&mut place.probed) {
                        self.probed.note(false);
                    }
                    self.blocks[block].evicted_at = Some(self.evictions);
                }
                None => break,
            }
        }
    }
}

impl Policy for Blocks {
    fn access(&mut self, page: u32, _write: bool) -> Outcome {
        let place = &mut self.pages[page as usize];
        match place.state {
            State::Resident => {
                self.mark_accessed(page);
                return Outcome::Resident;
            }
            State::Isolated => {
                place.referenced = (place.referenced + 1).min(REFERENCED_MAX);
                let probed = std::mem::take(&mut place.probed);
                self.hits += 1;
                if probed {
                    self.probed.note(true);
                }
                let number = self.block_of(page);
                self.isolated.remove(page);
                self.come(page);
                let block = &mut self.blocks[number as usize];
                if std::mem::take(&mut block.waits) {
                    block.touched_waits = (block.touched_waits + 1).min(self.rules.hot);
                    block.passes = block.touched_waits.saturating_sub(1);
                }
                if block.score < self.rules.hit_score && !block.sounded {
                    block.score = self.rules.hit_score;
                    self.put_block(number, level(self.rules.hit_score));
                }
                if self.rules.neighbours {
                    self.bring_along(number);
                }
                self.make_room();
                return Outcome::Isolated;
            }
            State::Out => {}
        }
        self.make_room();
        let evicted_at = self.pages[page as usize].evicted_at;
        let is_soon = self.is_within(evicted_at, self.rules.protect_within);
        let place = &mut self.pages[page as usize];
        place.came_look = self.looks;
        place.referenced = u8::from(is_soon);
        self.come(page);
        Outcome::Missing
    }

    fn gone(&mut self, page: u32) {
        match self.pages[page as usize].state {
            State::Resident => self.leave(page, State::Out),
            State::Isolated => {
                self.isolated.remove(page);
                self.pages[page as usize].state = State::Out;
            }
            State::Out => {}
        }
        self.pages[page as usize].evicted_at = None;
        self.pages[page as usize].probed = false;
        let number = self.block_of(page);
        if self.blocks[number as usize].resident == 0 {
            self.take_block(number);
        }
    }

    fn looks(&self) -> u64 {
        self.looks.into()
    }

    fn along(&self) -> u64 {
        self.along
    }
}
