//! Indexes of a swap cache: slot to value. One as the kernel's was before it was split and its tags went, for this experiment
//! alone; and that of Outswap, where what others keep in an index stands with the page.
use outswap_core::lock::SpinLock;
use outswap_core::swapcache::SwapCache;
use outswap_core::units::SlotId;

/// Entries of a node.
const FAN_LOG2: usize = 6;
const FAN: usize = 1 << FAN_LOG2;
/// Slots of a shard, where there are shards: 64 MiB.
pub const SHARD_SLOTS_LOG2: usize = 14;

/// What is marked of an entry, for those who write files back.
#[derive(Clone, Copy)]
enum Tag {
    Dirty,
    ToWrite,
    Writeback,
}

const TAGS: usize = 3;

/// The nodes of a level: bits of their entries.
#[derive(Clone, Default)]
struct Level {
    present: Vec<u64>,
    tags: [Vec<u64>; TAGS],
}

/// A tree of three levels of 64-way nodes. A node has an entry, or a tag, where one of those below it has.
#[derive(Default)]
struct Tree {
    levels: [Level; 3],
    values: Vec<u64>,
}

/// Sets a bit at the lowest level, and above it as far as it is new. `levels` are given from the lowest on.
fn set<'a>(levels: impl Iterator<Item = &'a mut Vec<u64>>, mut at: usize) {
    for words in levels {
        let (word, bit) = (&mut words[at / FAN], 1 << (at % FAN));
        let was_empty = *word == 0;
        *word |= bit;
        if !was_empty {
            return;
        }
        at /= FAN;
    }
}

/// Clears a bit, and above it as far as nothing is left.
fn clear<'a>(levels: impl Iterator<Item = &'a mut Vec<u64>>, mut at: usize) {
    for words in levels {
        let word = &mut words[at / FAN];
        *word &= !(1 << (at % FAN));
        if *word != 0 {
            return;
        }
        at /= FAN;
    }
}

impl Tree {
    fn new(slots: usize) -> Tree {
        assert!(slots <= FAN * FAN * FAN, "three levels are enough");
        let level = |entries: usize| {
            let words = vec![0; entries.div_ceil(FAN)];
            Level { present: words.clone(), tags: std::array::from_fn(|_| words.clone()) }
        };
        let levels = [level(slots), level(slots.div_ceil(FAN)), level(slots.div_ceil(FAN * FAN))];
        Tree { levels, values: vec![0; slots] }
    }

    fn tag(&mut self, at: usize, tag: Tag, on: bool) {
        let levels = self.levels.iter_mut().map(|level| &mut level.tags[tag as usize]);
        if on { set(levels, at) } else { clear(levels, at) }
    }

    fn insert(&mut self, at: usize, value: u64) {
        self.values[at] = value;
        set(self.levels.iter_mut().map(|level| &mut level.present), at);
    }

    fn remove(&mut self, at: usize, tags: bool) -> Option<u64> {
        if self.levels[0].present[at / FAN] >> (at % FAN) & 1 == 0 {
            return None;
        }
        clear(self.levels.iter_mut().map(|level| &mut level.present), at);
        if tags {
            [Tag::Dirty, Tag::ToWrite, Tag::Writeback].into_iter().for_each(|tag| self.tag(at, tag, false));
        }
        Some(self.values[at])
    }

    fn is_empty(&self) -> bool {
        let levels = self.levels.iter().flat_map(|level| level.tags.iter().chain([&level.present]));
        levels.flatten().all(|&word| word == 0)
    }
}

/// An index of whatever kind. Each gives its own way to wait, as locks do.
pub trait Index: Sync {
    /// Puts a page in.
    fn add(&self, slot: SlotId, value: u64, lock: &mut impl Timer);
    /// It is being written out from now on.
    fn start(&self, slot: SlotId, lock: &mut impl Timer);
    /// It is written.
    fn end(&self, slot: SlotId, lock: &mut impl Timer);
    /// Takes a page out. False where it is not there, or is another.
    fn remove(&self, slot: SlotId, value: u64, lock: &mut impl Timer) -> bool;
    /// Whether nothing is in it.
    fn is_empty(&self) -> bool;
}

/// Takes the time of taking a lock, or not.
pub trait Timer {
    /// Calls `take`.
    fn time<T>(&mut self, take: impl FnOnce() -> T) -> T;
}

/// Waits for a lock: for its holder on another processor, then by letting others run.
pub fn pause(spins: u32) {
    if spins < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Trees under locks.
pub struct Locked {
    shards: Vec<SpinLock<Tree>>,
    shard_slots_log2: usize,
    tags: bool,
}

impl Locked {
    /// For so many slots, with shards of 2^`shard_slots_log2` of them, with tags or without.
    pub fn new(slots: usize, shard_slots_log2: usize, tags: bool) -> Locked {
        let of_shard = 1 << shard_slots_log2;
        let count = slots.div_ceil(of_shard);
        let shards = (0..count).map(|_| SpinLock::new(Tree::new(of_shard.min(slots)))).collect();
        Locked { shards, shard_slots_log2, tags }
    }

    /// Under one lock.
    pub fn single(slots: usize, tags: bool) -> Locked {
        Locked::new(slots, slots.next_power_of_two().trailing_zeros() as usize, tags)
    }

    fn with<T>(&self, slot: SlotId, lock: &mut impl Timer, f: impl FnOnce(&mut Tree, usize) -> T) -> T {
        let slot = slot.0 as usize;
        let shard = &self.shards[slot >> self.shard_slots_log2];
        let mut tree = lock.time(|| shard.lock(pause));
        f(&mut tree, slot & ((1 << self.shard_slots_log2) - 1))
    }
}

impl Index for Locked {
    fn add(&self, slot: SlotId, value: u64, lock: &mut impl Timer) {
        self.with(slot, lock, |tree, at| {
            tree.insert(at, value);
            if self.tags {
                tree.tag(at, Tag::Dirty, true);
            }
        });
    }
    fn start(&self, slot: SlotId, lock: &mut impl Timer) {
        if self.tags {
            self.with(slot, lock, |tree, at| {
                tree.tag(at, Tag::Writeback, true);
                tree.tag(at, Tag::Dirty, false);
                tree.tag(at, Tag::ToWrite, false);
            });
        }
    }
    fn end(&self, slot: SlotId, lock: &mut impl Timer) {
        if self.tags {
            self.with(slot, lock, |tree, at| tree.tag(at, Tag::Writeback, false));
        }
    }
    fn remove(&self, slot: SlotId, value: u64, lock: &mut impl Timer) -> bool {
        self.with(slot, lock, |tree, at| tree.remove(at, self.tags)) == Some(value)
    }
    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock(pause).is_empty())
    }
}

/// Outswap's: a count. Which slot a page has stands in its word, see `outswap_core::page`.
#[derive(Default)]
pub struct Ours(SwapCache);

impl Index for Ours {
    fn add(&self, _: SlotId, _: u64, _: &mut impl Timer) {
        assert!(self.0.enter(true), "there is no limit");
    }
    fn start(&self, _: SlotId, _: &mut impl Timer) {}
    fn end(&self, _: SlotId, _: &mut impl Timer) {}
    fn remove(&self, _: SlotId, _: u64, _: &mut impl Timer) -> bool {
        self.0.leave(true);
        true
    }
    fn is_empty(&self) -> bool {
        self.0.pages() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    struct Free;
    impl Timer for Free {
        fn time<T>(&mut self, take: impl FnOnce() -> T) -> T {
            take()
        }
    }

    #[test]
    fn an_index_gives_back_what_was_put_in_and_nothing_else() {
        for index in
            [Locked::single(5000, true), Locked::single(5000, false), Locked::new(40_000, SHARD_SLOTS_LOG2, true)]
        {
            let mut random = Random::new(2);
            let mut model = std::collections::BTreeMap::new();
            for n in 1..20_000u64 {
                let slot = SlotId(random.below(5000) as u32);
                match model.remove(&slot) {
                    Some(value) => {
                        assert!(n % 3 > 0 || !index.remove(slot, value + 1, &mut Free));
                        if n % 3 > 0 {
                            assert!(index.remove(slot, value, &mut Free));
                        }
                        assert!(!index.remove(slot, value, &mut Free));
                    }
                    None => {
                        model.insert(slot, n);
                        index.add(slot, n, &mut Free);
                        index.start(slot, &mut Free);
                        if n % 2 == 0 {
                            index.end(slot, &mut Free);
                        }
                    }
                }
                assert_eq!(index.is_empty(), model.is_empty());
            }
            assert!(model.into_iter().all(|(slot, value)| index.remove(slot, value, &mut Free)));
            assert!(index.is_empty(), "tags are gone with what they were of");
        }
    }

    #[test]
    fn nodes_above_know_of_tags_below() {
        let mut tree = Tree::new(FAN * FAN * 2);
        let (first, last) = (0, FAN * FAN * 2 - 1);
        tree.tag(first, Tag::Writeback, true);
        tree.tag(last, Tag::Writeback, true);
        let roots = |tree: &Tree| tree.levels[2].tags[Tag::Writeback as usize][0];
        assert_eq!(roots(&tree), 0b11);
        tree.tag(first, Tag::Writeback, false);
        assert_eq!(roots(&tree), 0b10);
        tree.tag(last, Tag::Writeback, false);
        assert!(tree.is_empty());
    }
}
