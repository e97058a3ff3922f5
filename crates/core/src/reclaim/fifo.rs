//! First in, first out, with references.
//!
//! Blocks go in the order in which their first pages came in. A page that is touched while it is isolated counts as referenced:
//! as many passes as it has references take it by. So does one that comes back from the store soon, again and again: it was taken too
//! early each time, and where it is known to be unwritten it has no wait in which it could be touched. A block that the machine has
//! refused rests, longer each time.
use super::along::Probes;
use super::rest::Rest;
use super::waiting::Waiting;
use super::{Along, Asked, Reclaim, Returned, Search};
use crate::broken::{self, Broken};
use crate::chain::Chain;
use crate::page::{HEAT_MAX, Word};
use crate::table::Reserve;
use crate::units::{BLOCK_PAGES, BlockNo};
use crate::workingset::SOON_SHARE;

/// The policy.
pub struct Fifo {
    pub(super) queue: Chain,
    pub(super) rest: Rest,
    waiting: Waiting,
    probes: Probes,
}

impl Fifo {
    /// Reserves a queue of all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Fifo> {
        Some(Fifo {
            queue: Chain::new(from, pages / BLOCK_PAGES)?,
            rest: Rest::new(from, pages)?,
            waiting: Waiting::default(),
            probes: Probes::default(),
        })
    }
}

impl Reclaim for Fifo {
    fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        self.queue.add(block.0, pause);
    }

    fn search(&self, pause: &impl Fn(u32)) -> Search {
        Rest::search(self.queue.len(pause))
    }

    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        let take = || self.queue.take(pause).map(BlockNo);
        self.rest.next(search, take, |block| self.add(block, pause), || self.queue.len(pause))
    }

    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        self.rest.asked(block, asked, search);
    }

    fn hit(&self, block: BlockNo) -> Along {
        self.waiting.hit();
        self.probes.along(block)
    }

    fn watched(&self, touched: u32, left: u32) {
        self.probes.watched(touched, left);
    }

    fn refaulted(&self, word: Word, distance_pages: u64, limit_pages: u64) -> Returned {
        if distance_pages >= limit_pages / SOON_SHARE || broken::is(Broken::SoonForgotten) {
            return Returned::default();
        }
        Returned { referenced: word.heat(), heat: (word.heat() + 1).min(HEAT_MAX) }
    }

    fn evicted(&self, pages: usize) {
        self.waiting.evicted(pages);
    }

    fn isolated_max_pages(&self, limit_pages: u64) -> usize {
        if broken::is(Broken::NoInactive) { 0 } else { self.waiting.max_pages(limit_pages as usize).max(BLOCK_PAGES) }
    }

    fn block_bytes(&self) -> usize {
        Chain::NUMBER_BYTES + Rest::BLOCK_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::REFERENCED_MAX;
    use crate::reclaim::Verdict;
    use crate::reclaim::rest::REST_VISITS;
    use crate::table::tests::Leak;
    use crate::units::Order;

    fn fifo(blocks: u32) -> Fifo {
        let fifo = Fifo::new(&Leak, blocks as usize * BLOCK_PAGES).expect("there is memory");
        (0..blocks).for_each(|block| fifo.add(BlockNo(block), &|_| ()));
        fifo
    }

    fn all(fifo: &Fifo) -> Vec<u32> {
        let mut search = fifo.search(&|_| ());
        core::iter::from_fn(|| fifo.next(&mut search, &|_| ()).map(|b| b.0)).collect()
    }

    #[test]
    fn blocks_go_in_the_order_in_which_they_came_each_once() {
        let fifo = fifo(5);
        fifo.add(BlockNo(2), &|_| ());
        assert_eq!(all(&fifo), [0, 1, 2, 3, 4]);
        assert_eq!(all(&fifo), []);
    }

    #[test]
    fn refused_blocks_rest_longer_each_time_unless_nothing_else_is_left() {
        let fifo = fifo(2);
        let mut search = fifo.search(&|_| ());
        assert_eq!(fifo.next(&mut search, &|_| ()), Some(BlockNo(0)));
        fifo.asked(BlockNo(0), Asked::Refused, Some(&mut search));
        for visit in 0..REST_VISITS {
            fifo.add(BlockNo(0), &|_| ());
            fifo.add(BlockNo(1), &|_| ());
            let mut search = fifo.search(&|_| ());
            assert_eq!(fifo.next(&mut search, &|_| ()), Some(BlockNo(1)), "visit {visit}");
        }
        // It is queued, and has rested.
        assert_eq!(all(&fifo), [0]);
        fifo.asked(BlockNo(0), Asked::Refused, None);
        fifo.add(BlockNo(0), &|_| ());
        assert_eq!(all(&fifo), [0], "there is nothing else");
        assert_eq!(fifo.rest.visits_left(BlockNo(0)), REST_VISITS * 4 - 1);
    }

    #[test]
    fn a_page_stays_for_as_many_passes_as_it_has_references() {
        let fifo = fifo(1);
        let mut word = Word::resident(None, Order::PAGE).with_referenced(2);
        for left in [1, 0] {
            assert_eq!(fifo.judge(word), Verdict::Keep { referenced: left });
            word = word.with_referenced(left);
        }
        assert_eq!(fifo.judge(word), Verdict::Take);
        assert_eq!(fifo.touched(word), 1);
        assert_eq!(fifo.touched(word.with_referenced(REFERENCED_MAX)), REFERENCED_MAX);
    }

    #[test]
    fn what_comes_back_soon_again_and_again_is_referenced() {
        let fifo = fifo(1);
        let mut word = Word::resident(None, Order::PAGE);
        for times in 0..6 {
            let returned = fifo.refaulted(word, 99, 800);
            assert_eq!(returned, Returned { referenced: times.min(HEAT_MAX), heat: (times + 1).min(HEAT_MAX) });
            word = word.with_heat(returned.heat);
        }
        assert_eq!(fifo.refaulted(word, 100, 800), Returned::default(), "it starts anew");
    }
}
