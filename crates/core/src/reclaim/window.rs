//! For recording accesses: memory is a window over the pages that were touched last. Blocks go first in, first out, whole, and at
//! once: no page stays for having been touched, or comes back without a fault that is seen.
use super::fifo::Fifo;
use super::{Along, Asked, Reclaim, Search, Verdict};
use crate::broken::{self, Broken};
use crate::page::Word;
use crate::table::Reserve;
use crate::units::BlockNo;

/// The policy.
pub struct Window(Fifo);

impl Window {
    /// Reserves a queue of all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Window> {
        Fifo::new(from, pages).map(Window)
    }
}

impl Reclaim for Window {
    fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
        self.0.add(block, pause);
    }

    fn search(&self, pause: &impl Fn(u32)) -> Search {
        self.0.search(pause)
    }

    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        self.0.next(search, pause)
    }

    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        self.0.asked(block, asked, search);
    }

    fn judge(&self, word: Word) -> Verdict {
        if broken::is(Broken::WindowKeeps) { self.0.judge(word) } else { Verdict::Take }
    }

    fn touched(&self, word: Word) -> u64 {
        word.referenced()
    }

    fn hit(&self, _: BlockNo) -> Along {
        Along::Nothing
    }

    fn isolated_max_pages(&self, _: u64) -> usize {
        0
    }

    fn block_bytes(&self) -> usize {
        self.0.block_bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;
    use crate::units::{BLOCK_PAGES, Order};

    #[test]
    fn no_page_stays_for_having_been_touched() {
        let window = Window::new(&Leak, 2 * BLOCK_PAGES).expect("there is memory");
        let word = Word::resident(None, Order::PAGE).with_referenced(2);
        assert_eq!((window.judge(word), window.touched(word)), (Verdict::Take, 2));
        assert_eq!(window.isolated_max_pages(1 << 20), 0);
    }
}
