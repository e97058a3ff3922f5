//! Slots, address map, queue, pins and page words against simple reference models.
#![cfg(not(loom))]

use outswap_core::chain::Chain;
use outswap_core::machine::Prot;
use outswap_core::mask::Mask;
use outswap_core::page::{REFERENCED_MAX, State, Word};
use outswap_core::pins::{DIRECT, DIRECT_FIRST, Pins, RANGES};
use outswap_core::ring::Ring;
use outswap_core::slots::{CLUSTER_SLOTS, Slots, USERS_MAX};
use outswap_core::table::Reserve;
use outswap_core::units::{BLOCK_PAGES, BlockNo, FrameNo, MAX_ORDER, Order, PageNo, SlotId};
use outswap_core::vma::{Map, MapError, ObjectNo, Vma};
use proptest::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Default)]
struct Arena(Mutex<Vec<(usize, Layout)>>);
impl Reserve for Arena {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        let layout = Layout::from_size_align(bytes.max(1), 4096).expect("sizes are small");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        self.0.lock().expect("no panic while held").push((base as usize, layout));
        base
    }
}
impl Drop for Arena {
    fn drop(&mut self) {
        for (base, layout) in self.0.get_mut().expect("no panic while held").drain(..) {
            // SAFETY: allocated above with this layout; each test drops what lies in it first.
            unsafe { dealloc(base as *mut u8, layout) };
        }
    }
}

fn no_wait(_: u32) {
    panic!("one thread never waits");
}

// ---------------------------------------------------------------------- slots

#[derive(Clone, Debug)]
enum SlotOp {
    Pages(usize),
    Folios(usize, Order),
    /// Puts a run of the slots in use, every `stride`th.
    Put {
        from: usize,
        count: usize,
        stride: usize,
    },
    /// Adds so many users to a run of them.
    Dup {
        from: usize,
        count: usize,
        users: usize,
    },
}

fn slot_ops() -> impl Strategy<Value = Vec<SlotOp>> {
    let op = prop_oneof![
        (1..700usize).prop_map(SlotOp::Pages),
        (1..50usize, 1..=MAX_ORDER).prop_map(|(n, order)| SlotOp::Folios(n, Order::new(order))),
        (0..1600usize, 1..900usize, 1..20usize).prop_map(|(from, count, stride)| SlotOp::Put { from, count, stride }),
        (0..1600usize, 1..300usize, prop_oneof![Just(1), Just(2), Just(300)])
            .prop_map(|(from, count, users)| SlotOp::Dup { from, count, users }),
    ];
    prop::collection::vec(op, 1..25)
}

const CLUSTERS: usize = 3;

fn hash_for(slot: u32) -> u128 {
    (slot as u128 + 1) << 64 | (slot as u128 * 77 + 3)
}

struct SlotModel {
    slots: Slots,
    /// Each request comes from the next of three lanes.
    lane: usize,
    /// Slots in use, with their users.
    used: BTreeMap<u32, u8>,
}
impl SlotModel {
    /// Hands out one slot or folio, and checks it; false where there is none.
    fn alloc(&mut self, order: Order) -> bool {
        self.lane += 1;
        let Some(first) = self.slots.alloc(order, self.lane % 3, no_wait) else {
            if order == Order::PAGE {
                assert_eq!(self.used.len(), CLUSTERS * CLUSTER_SLOTS, "no slot is refused while one is free");
            } else {
                let empty = |c: usize| self.used.range(range_of(c)).next().is_none();
                assert!(!(0..CLUSTERS).any(empty), "no folio is refused while a cluster is empty");
            }
            return false;
        };
        let width = order.pages() as u32;
        assert!(first.0.is_multiple_of(width), "folios are aligned");
        for slot in first.0..first.0 + width {
            assert!((slot as usize) < CLUSTERS * CLUSTER_SLOTS, "slot {slot} does not exist");
            assert!(self.used.insert(slot, 1).is_none(), "slot {slot} was handed out twice");
            self.slots.set_hash(SlotId(slot), hash_for(slot));
        }
        true
    }
    /// Gives up one use; whether it was the last.
    fn put(&mut self, slot: u32) -> bool {
        let users = self.used.get_mut(&slot).expect("it is in use");
        *users -= 1;
        let last = *users == 0;
        let mut unused = None;
        self.slots.put(SlotId(slot), no_wait, |slot| {
            assert!(self.slots.in_use(slot.slot()), "it is not handed out before the store has forgotten it");
            unused = Some(slot.slot());
        });
        assert_eq!(unused, last.then_some(SlotId(slot)), "the store frees what has no user left");
        if last {
            self.used.remove(&slot);
        }
        last
    }
    fn dup(&mut self, slot: u32) {
        let users = self.used.get_mut(&slot).expect("it is in use");
        assert_eq!(self.slots.dup(SlotId(slot)), *users < USERS_MAX);
        *users = users.saturating_add(1);
    }
    fn check(&self) {
        assert_eq!(self.slots.used(), self.used.len() as u64);
        for slot in 0..(CLUSTERS * CLUSTER_SLOTS) as u32 {
            let used = self.used.contains_key(&slot);
            assert_eq!(self.slots.in_use(SlotId(slot)), used, "slot {slot}");
            assert!(!used || self.slots.hash(SlotId(slot)) == hash_for(slot), "hash of slot {slot}");
        }
    }
}
fn range_of(cluster: usize) -> std::ops::Range<u32> {
    (cluster * CLUSTER_SLOTS) as u32..((cluster + 1) * CLUSTER_SLOTS) as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn slots_are_handed_out_once(ops in slot_ops()) {
        let arena = Arena::default();
        // A last cluster that is not whole does not count.
        let slots = Slots::new(&arena, CLUSTERS * CLUSTER_SLOTS + 100).expect("tables fit");
        let mut model = SlotModel { slots, lane: 0, used: BTreeMap::new() };
        for op in ops {
            match op {
                SlotOp::Pages(n) => { (0..n).any(|_| !model.alloc(Order::PAGE)); }
                SlotOp::Folios(n, order) => { (0..n).any(|_| !model.alloc(order)); }
                SlotOp::Put { from, count, stride } => {
                    let some: Vec<u32> = model.used.keys().copied().skip(from).step_by(stride).take(count).collect();
                    some.into_iter().for_each(|slot| { model.put(slot); });
                }
                SlotOp::Dup { from, count, users } => {
                    let some: Vec<u32> = model.used.keys().copied().skip(from).take(count).collect();
                    (0..users).for_each(|_| some.iter().for_each(|&slot| model.dup(slot)));
                }
            }
            model.check();
        }
        // Whatever happened before: all slots can still be used, and all folios once they are free.
        while model.alloc(Order::PAGE) {}
        model.check();
        (0..(CLUSTERS * CLUSTER_SLOTS) as u32).for_each(|slot| while !model.put(slot) {});
        for order in Order::ALL {
            (0..CLUSTERS * CLUSTER_SLOTS / order.pages()).for_each(|_| assert!(model.alloc(order), "{order:?}"));
            assert!(!model.alloc(order), "{order:?}");
            model.check();
            (0..(CLUSTERS * CLUSTER_SLOTS) as u32).for_each(|slot| assert!(model.put(slot)));
        }
    }
}

#[test]
#[should_panic(expected = "slot freed twice")]
fn a_slot_freed_twice_is_noticed() {
    let arena = Arena::default();
    let slots = Slots::new(&arena, CLUSTER_SLOTS).expect("tables fit");
    let slot = slots.alloc(Order::PAGE, 0, no_wait).expect("all are free");
    slots.put(slot, no_wait, |_| ());
    slots.put(slot, no_wait, |_| ());
}

// ------------------------------------------------------------------------ map

const PAGES: u32 = 96;
type Kind = (u8, bool, bool);

#[derive(Clone, Debug)]
enum MapOp {
    Insert(u32, u32, Kind),
    Remove(u32, u32),
    Protect(u32, u32, u8),
    Lock(u32, u32, bool),
}

fn map_ops() -> impl Strategy<Value = Vec<MapOp>> {
    let range = || (0..PAGES).prop_flat_map(|first| (Just(first), 1..=(PAGES - first).min(30)));
    let kind = (prop::sample::select(vec![0u8, 1, 3]), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let op = prop_oneof![
        4 => (range(), kind).prop_map(|((first, count), kind)| MapOp::Insert(first, count, kind)),
        2 => range().prop_map(|(first, count)| MapOp::Remove(first, count)),
        2 => (range(), 0..4u8).prop_map(|((first, count), prot)| MapOp::Protect(first, count, prot)),
        1 => (range(), any::<bool>()).prop_map(|((first, count), locked)| MapOp::Lock(first, count, locked)),
    ];
    prop::collection::vec(op, 1..60)
}

fn kind_of(vma: &Vma) -> Kind {
    (vma.prot.0, vma.foreign, vma.locked)
}

/// The maximal runs of pages of one kind.
fn runs(model: &[Option<Kind>]) -> Vec<Vma> {
    let mut runs: Vec<Vma> = Vec::new();
    for (page, kind) in model.iter().enumerate() {
        let Some(kind) = *kind else { continue };
        match runs.last_mut() {
            Some(last) if last.end() == page as u32 && kind_of(last) == kind => last.count += 1,
            _ => {
                let first = PageNo(page as u32);
                runs.push(Vma { foreign: kind.1, locked: kind.2, ..Vma::new(first, 1, Prot(kind.0)) });
            }
        }
    }
    runs
}

#[test]
fn shared_objects_are_mappings_of_their_own_and_no_data() {
    let arena = Arena::default();
    let mut map = Map::new(&arena, PAGES, 16).expect("tables fit");
    let shared = |first, object| Vma { object: Some(ObjectNo(object)), ..Vma::new(PageNo(first), 8, Prot::READ_WRITE) };
    for vma in [shared(0, 1), shared(8, 2), Vma::new(PageNo(16), 8, Prot::READ_WRITE), shared(24, 1)] {
        map.insert(vma).expect("there is room");
        assert_eq!(map.find(vma.first), Some(vma), "it is joined with no other");
    }
    assert_eq!((map.mapped(), map.writable(), map.data()), (32, 32, 8));
    map.update(PageNo(0), 4, |v| v.prot = Prot::READ).expect("there is room");
    assert_eq!((map.writable(), map.data()), (28, 8));
    map.update(PageNo(0), 4, |v| v.prot = Prot::READ_WRITE).expect("there is room");
    assert_eq!(map.find(PageNo(3)), Some(shared(0, 1)), "two parts of one object are one again");
    map.update(PageNo(8), 8, |v| (v.foreign, v.object) = (true, None)).expect("there is room");
    map.remove(PageNo(0), 4).expect("there is room");
    assert_eq!((map.mapped(), map.writable(), map.data()), (28, 20, 8));
}

fn check_map(map: &mut Map, model: &[Option<Kind>], top: u32) {
    let runs = runs(model);
    assert_eq!(map.len(), runs.len(), "like neighbours are one mapping");
    assert_eq!(map.is_empty(), runs.is_empty());
    assert_eq!(map.mapped(), runs.iter().map(|r| r.count).sum::<u32>());
    let data = runs.iter().filter(|r| !r.foreign && r.prot.0 & Prot::WRITE.0 != 0);
    assert_eq!(map.data(), data.map(|r| r.count).sum::<u32>());
    assert_eq!(map.writable(), map.data(), "none of it is shared");
    for page in 0..PAGES {
        let run = runs.iter().find(|r| r.first.0 <= page && page < r.end());
        assert_eq!(map.find(PageNo(page)), run.copied(), "page {page}");
    }
    for (first, count) in [(0, PAGES), (3, 1), (10, 20), (50, 46), (95, 1), (40, 8)] {
        let pages = &model[first as usize..(first + count) as usize];
        assert_eq!(map.covered(PageNo(first), count), pages.iter().all(Option::is_some));
        assert_eq!(map.is_free(PageNo(first), count), pages.iter().all(Option::is_none));
        let cut = runs.iter().find(|r| r.end() > first && r.first.0 < first + count).map(|r| {
            let (from, to) = (r.first.0.max(first), r.end().min(first + count));
            Vma { first: PageNo(from), count: to - from, ..*r }
        });
        assert_eq!(map.next_in(first, first + count), cut);
        assert_eq!(map.next_in(first, first), None, "an empty range holds nothing");
    }
    for (first, count) in
        [(PAGES - 1, 2), (PAGES, 1), (3, u32::MAX), (3, u32::MAX - 2), (u32::MAX, 1), (PAGES, u32::MAX)]
    {
        assert!(!map.is_free(PageNo(first), count), "nothing is free beyond the end");
        assert!(!map.covered(PageNo(first), count), "nothing is mapped beyond the end");
        assert_eq!(map.remove(PageNo(first), count), Err(MapError::Hole));
        assert_eq!(map.update(PageNo(first), count, |v| v.prot = Prot(7)), Err(MapError::Hole));
    }
    for (count, align) in [(1, 1), (5, 1), (3, 16), (16, 16), (40, 1), (96, 1), (97, 1)] {
        let fits = |first: u32| {
            first + count <= top && model[first as usize..(first + count) as usize].iter().all(Option::is_none)
        };
        match map.gap(count, align) {
            Some(gap) => assert!(gap.0.is_multiple_of(align) && fits(gap.0), "gap of {count} at {align}: {gap:?}"),
            None => assert!(!(0..top).step_by(align as usize).any(fits), "there is a gap of {count} at {align}"),
        }
    }
}

#[test]
fn what_is_cut_off_is_where_the_next_gap_begins_and_what_is_near_is_known() {
    const GIB: u32 = 1 << 18;
    let arena = Arena::default();
    let mut map = Map::new(&arena, 64 * GIB, 20).expect("tables fit");
    map.set_bottom(PageNo(8 * GIB));
    for i in 0..3 {
        let piece = PageNo(8 * GIB + i * 64);
        assert_eq!(map.gap(127, 64), Some(piece), "one piece behind the other");
        map.insert(Vma::new(piece, 127, Prot(3))).expect("it is free");
        map.remove(PageNo(piece.0 + 64), 63).expect("there is room");
    }
    // What was all unmapped, or is not the end of it, stays free for a while.
    let all = map.gap(10, 1).expect("there is room");
    for (first, count) in [(all.0, 10), (all.0 + 2, 3), (all.0 - 64, 74), (all.0 - 1, 11)] {
        map.remove(PageNo(first), count).expect("there is room");
    }
    assert_eq!(map.gap(10, 1), Some(PageNo(all.0 + 10)));
    // All from a GiB below the first mapping, or from the bottom, to a GiB above the highest gap; and around mappings elsewhere.
    map.insert(Vma::new(PageNo(40 * GIB), 5, Prot(3))).expect("it is free");
    let highest = 8 * GIB + 2 * 64 + 127;
    let near = [8 * GIB - 7, 9 * GIB, highest + GIB - 1, 39 * GIB - 7, 40 * GIB + 5, 41 * GIB + 4];
    let far = [7 * GIB - 8, highest + GIB, 39 * GIB - 8, 41 * GIB + 5, 60 * GIB];
    for (pages, is_near) in [(&near[..], true), (&far, false)] {
        for first in pages {
            assert_eq!(map.is_near(PageNo(*first), 8), is_near, "page {first:#x}");
        }
    }
}

#[test]
fn who_keeps_the_upper_part_of_each_gap_gets_one_piece_below_the_other() {
    let arena = Arena::default();
    let mut map = Map::new(&arena, 1 << 20, 200).expect("tables fit");
    for i in 0..500 {
        let gap = map.gap(8, 1).expect("there is room");
        map.insert(Vma::new(gap, 8, Prot(3))).expect("it is free");
        map.remove(gap, 4).expect("there is room");
        // Each room for falling gaps has 64 of them, so 127 of these: the first half of each is the next one's second.
        assert!(map.len() <= 2 + i / 127, "{} mappings of {i}", map.len());
    }
    // Another size, or with something in between, goes on upwards.
    let [last, other] = [8, 9].map(|count| map.gap(count, 1).expect("there is room"));
    assert!(other > last && map.is_free(other, 9) && map.is_free(last, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn gaps_are_free_wherever_they_come(
        steps in proptest::collection::vec((prop_oneof![Just(8u32), 1..40u32], prop_oneof![Just(1u32), Just(4)], 0..40u32, 0..40u32), 1..200),
        pages in prop_oneof![Just(700u32), Just(1 << 20)],
    ) {
        let arena = Arena::default();
        let mut map = Map::new(&arena, pages, 2000).expect("tables fit");
        for (count, align, from, cut) in steps {
            let Some(gap) = map.gap(count, align) else { break };
            prop_assert!(gap.0.is_multiple_of(align) && map.is_free(gap, count), "{gap:?}");
            map.insert(Vma::new(gap, count, Prot(3))).expect("it is free");
            // Most often a beginning.
            let from = if from < count { from } else { 0 };
            if let Some(cut) = Some(cut.min(count - from)).filter(|&cut| cut > 0) {
                map.remove(PageNo(gap.0 + from), cut).expect("there is room");
            }
        }
    }

    #[test]
    fn the_map_is_an_array_of_attributes(
        ops in map_ops(),
        capacity in prop_oneof![Just(200usize), 2..10usize],
        bottom in 0..PAGES,
        kept in prop_oneof![Just(0), 0..40u32],
    ) {
        let arena = Arena::default();
        let mut map = Map::new(&arena, PAGES, capacity).expect("tables fit");
        map.set_bottom(PageNo(bottom));
        let top = bottom.max(PAGES - kept);
        map.set_top(PageNo(top));
        if bottom + 5 <= top {
            prop_assert_eq!(map.gap(5, 1), Some(PageNo(bottom)));
        }
        let mut model: Vec<Option<Kind>> = vec![None; PAGES as usize];
        for op in ops {
            let (first, count) = match op {
                MapOp::Insert(f, c, _) | MapOp::Remove(f, c) | MapOp::Protect(f, c, _) | MapOp::Lock(f, c, _) => (f, c),
            };
            let pages = &mut model[first as usize..(first + count) as usize];
            let (free, covered) = (pages.iter().all(Option::is_none), pages.iter().all(Option::is_some));
            let tight = map.len() + 2 > capacity;
            let page = PageNo(first);
            match op {
                MapOp::Insert(_, _, kind) => {
                    let vma = Vma { foreign: kind.1, locked: kind.2, ..Vma::new(page, count, Prot(kind.0)) };
                    let result = map.insert(vma);
                    let right = if free { tight || result.is_ok() } else { result == Err(MapError::NoRoom) };
                    prop_assert!(right, "insert: {:?}", result);
                    if result.is_ok() {
                        pages.fill(Some(kind));
                        // What was just added can always be taken back.
                        let before = map.len();
                        prop_assert_eq!(map.remove(page, count), Ok(()));
                        prop_assert_eq!(map.insert(vma), Ok(()));
                        prop_assert_eq!(map.len(), before);
                    }
                }
                MapOp::Remove(..) => match map.remove(page, count) {
                    Ok(()) => pages.fill(None),
                    Err(error) => prop_assert!(tight && error == MapError::NoRoom),
                },
                MapOp::Protect(_, _, prot) => match map.update(page, count, |v| v.prot = Prot(prot)) {
                    Ok(()) => {
                        prop_assert!(covered);
                        pages.iter_mut().flatten().for_each(|kind| kind.0 = prot);
                    }
                    Err(MapError::Hole) => prop_assert!(!covered),
                    Err(MapError::NoRoom) => prop_assert!(tight),
                },
                MapOp::Lock(_, _, locked) => match map.update(page, count, |v| v.locked = locked) {
                    Ok(()) => {
                        prop_assert!(covered);
                        pages.iter_mut().flatten().for_each(|kind| kind.2 = locked);
                    }
                    Err(MapError::Hole) => prop_assert!(!covered),
                    Err(MapError::NoRoom) => prop_assert!(tight),
                },
            }
            check_map(&mut map, &model, top);
        }
    }
}

// ----------------------------------------------------------------------- ring

proptest! {
    #[test]
    fn a_ring_is_a_queue(capacity in 1..20usize, ops in prop::collection::vec(any::<Option<u32>>(), 0..200)) {
        let arena = Arena::default();
        let mut ring = Ring::new(&arena, capacity).expect("tables fit");
        let mut model = VecDeque::new();
        for op in ops {
            match op {
                Some(item) if model.len() < capacity => {
                    ring.push(item);
                    model.push_back(item);
                }
                _ => prop_assert_eq!(ring.pop(), model.pop_front()),
            }
            prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
        }
    }
}

#[test]
#[should_panic(expected = "at most once")]
fn a_full_ring_takes_nothing() {
    let arena = Arena::default();
    let mut ring = Ring::new(&arena, 1).expect("tables fit");
    ring.push(1);
    ring.push(2);
}

// ---------------------------------------------------------------------- chain

proptest! {
    /// Each number is in it once at most, and they come out as they went in.
    #[test]
    fn a_chain_is_a_queue_of_each_once(numbers in 1..20u32, ops in prop::collection::vec(any::<Option<u32>>(), 0..200)) {
        let arena = Arena::default();
        let chain = Chain::new(&arena, numbers as usize).expect("tables fit");
        let mut model = VecDeque::new();
        for op in ops {
            match op.map(|number| number % numbers) {
                Some(number) => {
                    chain.add(number, &|_| ());
                    if !model.contains(&number) {
                        model.push_back(number);
                    }
                }
                None => prop_assert_eq!(chain.take(&|_| ()), model.pop_front()),
            }
            prop_assert_eq!(chain.len(&|_| ()), model.len());
        }
    }
}

// -------------------------------------------------------------------- pins

#[derive(Clone, Debug)]
enum PinOp {
    Acquire(u32),
    Publish(usize, u32, u32),
    /// As the code that ends a call does it.
    Release(usize),
    /// Publishes that many single pages, this far apart.
    PublishMany(usize, u32, u32),
}

const BLOCKS: u32 = 6;
const PINS: usize = 3;

fn pin_ops() -> impl Strategy<Value = Vec<PinOp>> {
    let pages = BLOCKS * BLOCK_PAGES as u32;
    let op = prop_oneof![
        2 => (1..100u32).prop_map(PinOp::Acquire),
        8 => (0..PINS, 0..pages, 1..100u32).prop_map(move |(s, f, c)| PinOp::Publish(s, f, c.min(pages - f))),
        1 => (0..PINS).prop_map(PinOp::Release),
        2 => (0..PINS, 1..70u32, 2..9u32).prop_map(|(s, n, d)| PinOp::PublishMany(s, n, d)),
    ];
    prop::collection::vec(op, 1..60)
}

/// As many calls as are allowed may be in progress, which is more than at first, and no page of theirs is overlooked.
#[test]
fn direct_pins_are_seen_however_many_there_are() {
    let arena = Arena::default();
    let pins = Pins::new(&arena, PINS).expect("tables fit");
    let take = |threads: std::ops::Range<u32>| -> Vec<(u32, usize)> {
        threads.filter_map(|who| Some((who, pins.acquire_direct(who)?))).collect()
    };
    let mut taken = take(1..2000);
    let first = taken.len();
    assert!((DIRECT_FIRST / 2..=DIRECT_FIRST).contains(&first), "{first}");
    pins.allow_direct(DIRECT_FIRST / 2);
    assert_eq!(pins.direct_allowed(), DIRECT_FIRST);
    for _ in 0..2 {
        // Two threads have found that there may be more, as many as there are by then.
        pins.allow_direct(2 * DIRECT_FIRST);
        assert_eq!(pins.direct_allowed(), 2 * DIRECT_FIRST);
    }
    while pins.direct_allowed() < DIRECT {
        pins.allow_direct(usize::MAX);
    }
    taken.extend(take(2000..9000));
    assert!((DIRECT / 2..=DIRECT).contains(&taken.len()), "{}", taken.len());
    let pages = BLOCKS * BLOCK_PAGES as u32;
    for &(who, pin) in &taken {
        assert!(pins.publish_direct(pin, PageNo(who % pages), 1));
    }
    let masks = |of: &[(u32, usize)]| {
        for block in 0..BLOCKS {
            let there = of.iter().map(|&(who, _)| PageNo(who % pages)).filter(|page| page.block() == BlockNo(block));
            let wanted: Mask = there.map(PageNo::index_in_block).collect();
            assert_eq!(pins.mask(BlockNo(block)), wanted, "block {block}");
        }
    };
    masks(&taken);
    // Those of every other thread end.
    pins.release_direct(|who| who % 2 == 0);
    taken.retain(|(who, _)| who % 2 == 1);
    masks(&taken);
}

proptest! {
    #[test]
    fn pins_cover_what_was_published(ops in pin_ops()) {
        let arena = Arena::default();
        let pins = Pins::new(&arena, PINS).expect("tables fit");
        let mut model: BTreeMap<usize, (u32, Vec<(u32, u32)>)> = BTreeMap::new();
        let mut short = false;
        for op in ops {
            match op {
                PinOp::Acquire(owner) => match pins.acquire(owner, usize::MAX) {
                    Some(slot) => prop_assert!(model.insert(slot, (owner, Vec::new())).is_none()),
                    None => prop_assert_eq!(model.len(), PINS),
                },
                PinOp::Publish(slot, first, count) => {
                    if let Some((_, ranges)) = model.get_mut(&slot) {
                        pins.publish(slot, PageNo(first), count);
                        ranges.push((first, count));
                    }
                }
                PinOp::PublishMany(slot, count, distance) => {
                    if let Some((_, ranges)) = model.get_mut(&slot) {
                        let pages = (0..count).map(|i| i * distance).take_while(|&p| p < BLOCKS * BLOCK_PAGES as u32);
                        for page in pages {
                            pins.publish(slot, PageNo(page), 1);
                            ranges.push((page, 1));
                        }
                    }
                }
                PinOp::Release(slot) => {
                    if model.remove(&slot).is_some() {
                        pins.owner_word(slot).store(0, Relaxed);
                    }
                }
            }
            let owners: Vec<(usize, u32)> = model.iter().map(|(&slot, (owner, _))| (slot, *owner)).collect();
            prop_assert_eq!(pins.in_use().collect::<Vec<_>>(), owners);
            // Ranges that touch need one place; these counts do not know of it, so they are upper bounds. A record is full, or
            // the last of its slot.
            let records: usize = model.values().map(|(_, ranges)| ranges.len().saturating_sub(1) / RANGES).sum();
            for block in 0..BLOCKS {
                let published = |page: u32| {
                    model.values().flat_map(|(_, ranges)| ranges).any(|&(f, c)| f <= page && page < f + c)
                };
                let first = BlockNo(block).first_page().0;
                let wanted: Mask = (0..BLOCK_PAGES).filter(|&i| published(first + i as u32)).collect();
                let mask = pins.mask(BlockNo(block));
                prop_assert_eq!(mask & wanted, wanted, "block {}: a published page is not covered", block);
                // Only who found no record had ranges joined. Once short of records, a slot stays so.
                short |= records > PINS;
                prop_assert!(short || mask == wanted, "block {}: more is covered than was published", block);
            }
            short &= !model.is_empty();
        }
    }

    #[test]
    fn a_call_has_as_many_ranges_as_it_needs(distances in prop::collection::vec(2..300u32, 1..1024), rounds in 1..4u32) {
        const SLOTS: usize = 80;
        let arena = Arena::default();
        let pins = Pins::new(&arena, SLOTS).expect("tables fit");
        let pages: Vec<u32> = distances.iter().scan(0, |at, d| { *at += d; Some(*at) }).collect();
        let blocks = pages[pages.len() - 1] / BLOCK_PAGES as u32 + 1;
        for round in 0..rounds {
            let slot = pins.acquire(round + 1, usize::MAX).expect("none is in use");
            // What the slot itself covers needs no further place.
            for &page in pages.iter().chain(&pages[..RANGES.min(pages.len())]) {
                pins.publish(slot, PageNo(page), 1);
            }
            for block in 0..blocks {
                let there = pages.iter().filter(|&&p| PageNo(p).block() == BlockNo(block));
                let wanted: Mask = there.map(|&p| PageNo(p).index_in_block()).collect();
                prop_assert_eq!(pins.mask(BlockNo(block)), wanted, "block {}", block);
                let users = |except| pins.users(BlockNo(block).first_page(), BLOCK_PAGES as u32, except);
                prop_assert_eq!(users(0), (!wanted.is_empty()).then_some(round + 1));
                prop_assert_eq!(users(round + 1), None, "who asks is not meant");
            }
            pins.owner_word(slot).store(0, Relaxed);
            prop_assert!((0..blocks).all(|b| pins.mask(BlockNo(b)).is_empty()), "all is free with the owner word");
        }
    }
}

// ---------------------------------------------------------------------- words

proptest! {
    #[test]
    fn words_give_back_what_was_put_in(
        number: u32, retained: bool, order in 0..=MAX_ORDER, referenced in 0..10u64, locked: bool,
    ) {
        let (slot, order) = (retained.then_some(SlotId(number)), Order::new(order));
        let check = |word: Word, state: State, slot: Option<SlotId>| {
            let word = word.with_referenced(referenced).with_locked(locked);
            assert_eq!((word.state(), word.slot(), word.order()), (state, slot, order));
            assert_eq!((word.referenced(), word.locked()), (referenced.min(REFERENCED_MAX), locked));
            let busy = word.busy();
            assert_eq!((busy.state(), busy.slot(), busy.order()), (State::Busy, slot, order));
            assert_ne!(busy, word);
        };
        check(Word::resident(slot, order), State::Resident, slot);
        check(Word::swapped(SlotId(number), order), State::Swapped, Some(SlotId(number)));
        check(Word::isolated(FrameNo(number), order), State::Isolated, None);
        prop_assert_eq!(Word::isolated(FrameNo(number), order).with_referenced(referenced).frame(), FrameNo(number));
        prop_assert_eq!(Word::zero().state(), State::Zero);
        prop_assert_eq!(Word::UNTOUCHED.state(), State::Untouched);
    }
}
