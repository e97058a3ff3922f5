//! Blocks of which the program uses the least.
//!
//! Where the machine can tell which pages were accessed since it was last asked, block by block, each block has a score: what
//! share of its pages was used of late, the latest look counting for half. The blocks with the lowest go, among equals first in,
//! first out; a block that has just come in counts as used. Counters of accesses that are halved at each look are those of
//! "aging" (Tanenbaum, "Modern Operating Systems", after Corbato's clock), here for blocks instead of pages.
//!
//! Where nothing is known, all blocks are equal, and pages get their second chance while isolated, as with [`super::fifo`].
use super::rest::Rest;
use super::{ALL_ACCESSED, Asked, Reclaim, Search};
use crate::broken::{self, Broken};
use crate::lock::SpinLock;
use crate::sync::{AtomicU32, Ordering::*};
use crate::table::{Reserve, Table, Zeroed};
use crate::units::{BLOCK_PAGES, BlockNo};

/// The score of a block that has just come in: the highest.
const FRESH: u32 = 2 * ALL_ACCESSED - 1;
/// Lists of blocks, by score.
const LEVELS: usize = 16;
/// The share of the limit that may be isolated before the oldest pages are written out, where accesses are not known: enough that
/// a page in use is touched again before it goes. Where they are known, isolated pages tell little, and each touch costs a fault.
const ISOLATED_SHARE: usize = 8;
const ISOLATED_SHARE_INFORMED: usize = 64;
/// As the list of a block: none.
const UNLISTED: u32 = 0;

#[repr(C)]
struct Block {
    /// Its neighbours on a list, plus 1; 0 for none. Changed under the lock, as is what follows.
    before: AtomicU32,
    after: AtomicU32,
    /// The list that it is on, plus 1.
    list: AtomicU32,
    /// Below 2 * [`ALL_ACCESSED`].
    score: AtomicU32,
}
// SAFETY: atomics of zero are valid.
unsafe impl Zeroed for Block {}

#[derive(Clone, Copy, Default)]
struct List {
    /// The blocks at its ends, plus 1; 0 for none.
    first: u32,
    last: u32,
}

struct Lists {
    lists: [List; LEVELS],
    len: usize,
}

/// The policy.
pub struct Accessed {
    blocks: Table<Block>,
    rest: Rest,
    lists: SpinLock<Lists>,
    /// 1 once accesses are known.
    informed: AtomicU32,
}

fn level(score: u32) -> usize {
    (score as usize * LEVELS / (2 * ALL_ACCESSED as usize)).min(LEVELS - 1)
}

impl Accessed {
    /// Reserves lists of all blocks. `None` where there is no memory.
    pub fn new(from: &impl Reserve, pages: usize) -> Option<Accessed> {
        let lists = Lists { lists: [List::default(); LEVELS], len: 0 };
        Some(Accessed {
            blocks: Table::new(from, pages / BLOCK_PAGES)?,
            rest: Rest::new(from, pages)?,
            lists: SpinLock::new(lists),
            informed: AtomicU32::new(0),
        })
    }

    fn block(&self, block: BlockNo) -> &Block {
        &self.blocks[block.0 as usize]
    }

    /// Appends a block that is on no list to one.
    fn push(&self, lists: &mut Lists, number: BlockNo, level: usize) {
        let block = self.block(number);
        let list = &mut lists.lists[level];
        block.before.store(list.last, Relaxed);
        block.after.store(0, Relaxed);
        match list.last.checked_sub(1) {
            Some(last) => self.block(BlockNo(last)).after.store(number.0 + 1, Relaxed),
            None => list.first = number.0 + 1,
        }
        list.last = number.0 + 1;
        block.list.store(level as u32 + 1, Release);
        lists.len += 1;
    }

    /// Takes a block from the list that it is on.
    fn remove(&self, lists: &mut Lists, number: BlockNo) {
        let block = self.block(number);
        let level = block.list.load(Relaxed) as usize - 1;
        let (before, after) = (block.before.load(Relaxed), block.after.load(Relaxed));
        let list = &mut lists.lists[level];
        match before.checked_sub(1) {
            Some(before) => self.block(BlockNo(before)).after.store(after, Relaxed),
            None => list.first = after,
        }
        match after.checked_sub(1) {
            Some(after) => self.block(BlockNo(after)).before.store(before, Relaxed),
            None => list.last = before,
        }
        block.list.store(UNLISTED, Release);
        lists.len -= 1;
    }
}

impl Reclaim for Accessed {
    fn add(&self, number: BlockNo, pause: &impl Fn(u32)) {
        let block = self.block(number);
        if block.list.load(Acquire) != UNLISTED {
            return;
        }
        let mut lists = self.lists.lock(pause);
        if block.list.load(Relaxed) == UNLISTED {
            block.score.store(FRESH, Relaxed);
            self.push(&mut lists, number, level(FRESH));
        }
    }

    fn back(&self, number: BlockNo, pause: &impl Fn(u32)) {
        let mut lists = self.lists.lock(pause);
        if self.block(number).list.load(Relaxed) == UNLISTED {
            // Behind all others until the next look: what it has left could not go, and must not hold up what can.
            self.push(&mut lists, number, LEVELS - 1);
        }
    }

    fn looked(&self, number: BlockNo, accessed: u32, pause: &impl Fn(u32)) {
        if broken::is(Broken::LooksIgnored) {
            return;
        }
        let block = self.block(number);
        let mut lists = self.lists.lock(pause);
        let score = block.score.load(Relaxed) / 2 + accessed.min(ALL_ACCESSED);
        block.score.store(score, Relaxed);
        self.informed.store(1, Relaxed);
        let list = block.list.load(Relaxed);
        if list != UNLISTED && list as usize - 1 != level(score) {
            self.remove(&mut lists, number);
            self.push(&mut lists, number, level(score));
        }
    }

    fn wants_looks(&self) -> bool {
        true
    }

    fn search(&self, pause: &impl Fn(u32)) -> Search {
        Rest::search(self.lists.lock(pause).len)
    }

    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
        let pop = || {
            let mut lists = self.lists.lock(pause);
            let first = lists.lists.iter().find_map(|list| list.first.checked_sub(1))?;
            self.remove(&mut lists, BlockNo(first));
            Some(BlockNo(first))
        };
        self.rest.next(search, pop, |block| self.back(block, pause), || self.lists.lock(pause).len)
    }

    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
        self.rest.asked(block, asked, search);
    }

    fn isolated_max_pages(&self, limit_pages: u64) -> usize {
        if broken::is(Broken::NoInactive) {
            return 0;
        }
        let share = if self.informed.load(Relaxed) == 0 { ISOLATED_SHARE } else { ISOLATED_SHARE_INFORMED };
        (limit_pages as usize / share).max(BLOCK_PAGES)
    }

    fn block_bytes(&self) -> usize {
        size_of::<Block>() + Rest::BLOCK_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;

    fn policy(blocks: u32) -> Accessed {
        let policy = Accessed::new(&Leak, blocks as usize * BLOCK_PAGES).expect("there is memory");
        (0..blocks).for_each(|block| policy.add(BlockNo(block), &|_| ()));
        policy
    }

    fn all(policy: &Accessed) -> Vec<u32> {
        let mut search = policy.search(&|_| ());
        core::iter::from_fn(|| policy.next(&mut search, &|_| ()).map(|b| b.0)).collect()
    }

    fn look(policy: &Accessed, accessed: &[u32]) {
        (0..).zip(accessed).for_each(|(block, &accessed)| policy.looked(BlockNo(block), accessed, &|_| ()));
    }

    #[test]
    fn where_nothing_is_known_blocks_go_in_the_order_in_which_they_came() {
        let policy = policy(5);
        policy.add(BlockNo(2), &|_| ());
        assert_eq!(policy.isolated_max_pages(64 * BLOCK_PAGES as u64), 8 * BLOCK_PAGES);
        assert_eq!(all(&policy), [0, 1, 2, 3, 4]);
        assert_eq!(all(&policy), []);
    }

    #[test]
    fn what_is_used_least_goes_first() {
        let policy = policy(4);
        (0..4).for_each(|_| look(&policy, &[ALL_ACCESSED, 0, ALL_ACCESSED / 2, 3]));
        assert_eq!(policy.isolated_max_pages(64 * BLOCK_PAGES as u64), BLOCK_PAGES, "sampling has no use any more");
        assert_eq!(all(&policy), [1, 3, 2, 0]);
    }

    #[test]
    fn what_was_used_is_forgotten_in_time() {
        let policy = policy(2);
        look(&policy, &[ALL_ACCESSED, ALL_ACCESSED]);
        let looks = (1..).find(|_| {
            look(&policy, &[0, ALL_ACCESSED]);
            level(policy.block(BlockNo(0)).score.load(Relaxed)) == 0
        });
        assert!(looks.is_some_and(|looks| looks <= 6), "{looks:?}");
        assert_eq!(all(&policy), [0, 1]);
    }

    #[test]
    fn a_block_that_comes_in_again_counts_as_used_and_one_that_goes_back_holds_up_nobody() {
        let policy = policy(3);
        (0..9).for_each(|_| look(&policy, &[0, 0, ALL_ACCESSED / 4]));
        let mut search = policy.search(&|_| ());
        assert_eq!(policy.next(&mut search, &|_| ()), Some(BlockNo(0)));
        assert_eq!(policy.next(&mut search, &|_| ()), Some(BlockNo(1)));
        policy.add(BlockNo(0), &|_| ());
        policy.back(BlockNo(1), &|_| ());
        policy.back(BlockNo(1), &|_| ());
        assert_eq!(all(&policy), [2, 0, 1]);
        policy.back(BlockNo(1), &|_| ());
        policy.back(BlockNo(2), &|_| ());
        (0..9).for_each(|_| look(&policy, &[0, ALL_ACCESSED, 0]));
        assert_eq!(all(&policy), [2, 1], "the next look tells again");
    }

    #[test]
    fn refused_blocks_rest() {
        let policy = policy(2);
        let mut search = policy.search(&|_| ());
        assert_eq!(policy.next(&mut search, &|_| ()), Some(BlockNo(0)));
        policy.asked(BlockNo(0), Asked::Refused, Some(&mut search));
        policy.back(BlockNo(0), &|_| ());
        let mut search = policy.search(&|_| ());
        assert_eq!(policy.next(&mut search, &|_| ()), Some(BlockNo(1)));
        assert_eq!(policy.next(&mut search, &|_| ()), Some(BlockNo(0)), "there is nothing else");
    }

    #[test]
    fn lists_hold_under_random_changes() {
        let policy = policy(40);
        let mut state = 1u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut listed = [true; 40];
        for _ in 0..20_000 {
            let block = random(40) as u32;
            match random(4) {
                0 => policy.looked(BlockNo(block), random(300) as u32, &|_| ()),
                1 => {
                    policy.add(BlockNo(block), &|_| ());
                    listed[block as usize] = true;
                }
                2 => {
                    policy.back(BlockNo(block), &|_| ());
                    listed[block as usize] = true;
                }
                _ => {
                    let lists: Vec<u32> = (0..40).map(|b| policy.blocks[b].list.load(Relaxed)).collect();
                    let lowest = (0..40).filter(|&b| listed[b]).map(|b| lists[b]).min();
                    let found = policy.next(&mut policy.search(&|_| ()), &|_| ());
                    let list = found.map(|block| lists[block.0 as usize]);
                    assert_eq!(list, lowest);
                    if let Some(found) = found {
                        assert!(core::mem::take(&mut listed[found.0 as usize]), "it was listed");
                    }
                }
            }
            assert_eq!(policy.lists.lock(|_| ()).len, listed.iter().filter(|l| **l).count());
        }
        let mut rest = all(&policy);
        rest.sort_unstable();
        assert!(rest.iter().copied().eq((0..40).filter(|&b| listed[b as usize])));
    }
}
