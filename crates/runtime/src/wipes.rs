//! Ranges of which something is remembered as long as they are mapped: that a forked child is not to have them as they are, but empty
//! (`MADV_WIPEONFORK`) or not at all (`MADV_DONTFORK`), or that they grow downwards (`MAP_GROWSDOWN`).
use crate::limits::WIPES;
use outswap_core::lock::SpinLock;
use outswap_core::units::PageNo;
use outswap_sys::os;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wipe {
    /// First page.
    pub first: u32,
    /// Pages; 0 for none.
    pub count: u32,
    /// Not only empty, but not mapped.
    pub gone: bool,
}

/// All of them. As many as there is room for; what is not remembered, a child gets.
pub struct Wipes<const ROOM: usize = WIPES>(SpinLock<List<ROOM>>);

/// The first `len` of them.
struct List<const ROOM: usize> {
    wipes: [Wipe; ROOM],
    len: usize,
}

impl<const ROOM: usize> List<ROOM> {
    fn all(&self) -> &[Wipe] {
        &self.wipes[..self.len]
    }

    fn push(&mut self, wipe: Wipe) -> bool {
        let has_room = self.len < ROOM;
        if has_room {
            self.wipes[self.len] = wipe;
            self.len += 1;
        }
        has_room
    }

    fn remove(&mut self, i: usize) {
        self.len -= 1;
        self.wipes[i] = self.wipes[self.len];
    }
}

impl<const ROOM: usize> Default for Wipes<ROOM> {
    fn default() -> Wipes<ROOM> {
        Wipes(SpinLock::new(List { wipes: [Wipe::default(); ROOM], len: 0 }))
    }
}

impl<const ROOM: usize> Wipes<ROOM> {
    /// Remembers a range that forked children find empty, or `gone`. False where there is no room. Ranges that they do not have become one
    /// with those that they touch.
    pub fn add(&self, first: PageNo, count: u32, gone: bool) -> bool {
        let mut list = self.0.lock(os::wait_a_little);
        let mut wipe = Wipe { first: first.0, count, gone };
        let mut i = 0;
        // They do not touch each other, so that what was passed over does not touch what it grows by.
        while gone && i < list.len {
            let other = list.wipes[i];
            if other.gone && other.first <= wipe.first + wipe.count && wipe.first <= other.first + other.count {
                let end = (wipe.first + wipe.count).max(other.first + other.count);
                wipe.first = wipe.first.min(other.first);
                wipe.count = end - wipe.first;
                list.remove(i);
            } else {
                i += 1;
            }
        }
        list.push(wipe)
    }

    /// Has a range begin so many pages earlier. False where none begins there.
    pub fn grow(&self, first: PageNo, by: u32) -> bool {
        let mut list = self.0.lock(os::wait_a_little);
        let len = list.len;
        let found = list.wipes[..len].iter_mut().find(|w| w.first == first.0 && w.first >= by);
        found.map(|w| (w.first, w.count) = (w.first - by, w.count + by)).is_some()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.lock(os::wait_a_little).len == 0
    }

    /// Pages of the ranges that children find empty.
    pub fn pages(&self) -> u64 {
        self.0.lock(os::wait_a_little).all().iter().filter(|w| !w.gone).map(|w| w.count as u64).sum()
    }

    /// The first part of a range that children find empty, or do not have (`gone`). A page may be of both kinds: what it is with one
    /// advice it is also while it has the other.
    pub fn next(&self, first: u32, end: u32, gone: bool) -> Option<(PageNo, u32)> {
        let list = self.0.lock(os::wait_a_little);
        let in_range = |w: &&Wipe| first < end && w.gone == gone && w.first < end && w.first + w.count > first;
        let wipe = list.all().iter().filter(in_range).min_by_key(|w| w.first)?;
        let (from, to) = (wipe.first.max(first), (wipe.first + wipe.count).min(end));
        Some((PageNo(from), to - from))
    }

    /// How many pages of a range children find empty.
    pub fn pages_in(&self, first: u32, end: u32) -> u32 {
        let (mut pages, mut page) = (0, first);
        while let Some((at, count)) = self.next(page, end, false) {
            pages += count;
            page = at.0 + count;
        }
        pages
    }

    /// Whether there is room for so many more ranges.
    pub fn has_room(&self, ranges: usize) -> bool {
        ROOM - self.0.lock(os::wait_a_little).len >= ranges
    }

    /// How many ranges, of both kinds, a range has parts of.
    pub fn ranges_in(&self, first: u32, end: u32) -> usize {
        let list = self.0.lock(os::wait_a_little);
        list.all().iter().filter(|w| w.first < end && w.first + w.count > first).count()
    }

    /// Whether there is room for what is left when a range is cut out, as a hole makes two of one, and for so many `more`.
    pub fn may_cut(&self, first: PageNo, count: u32, more: usize) -> bool {
        self.has_room_for_holes(first, count, more, |_| true)
    }

    /// Whether a range can be unmapped: what children would have to find empty, and would get as it is for want of room, stays. What they do
    /// not have at all, they get then.
    pub fn may_unmap(&self, first: PageNo, count: u32) -> bool {
        self.has_room_for_holes(first, count, 0, |wipe| !wipe.gone)
    }

    fn has_room_for_holes(&self, first: PageNo, count: u32, more: usize, counts: impl Fn(&Wipe) -> bool) -> bool {
        let (start, end) = (first.0, first.0 + count);
        let list = self.0.lock(os::wait_a_little);
        let holes = list.all().iter().filter(|w| w.first < start && w.first + w.count > end && counts(w)).count();
        holes + more <= ROOM - list.len
    }

    /// Forgets a range, which is unmapped. What overlaps it is cut. Where a hole has no room ([`Wipes::may_unmap`]), children get the rest.
    pub fn forget(&self, first: PageNo, count: u32) {
        [false, true].into_iter().for_each(|gone| self.forget_kind(first, count, gone));
    }

    /// The same where children are to get it after all, as far as that kind goes.
    pub fn forget_kind(&self, first: PageNo, count: u32, gone: bool) {
        let (start, end) = (first.0, first.0 + count);
        let mut list = self.0.lock(os::wait_a_little);
        let mut i = 0;
        while i < list.len {
            let Wipe { first, count, gone: is_gone } = list.wipes[i];
            let last = first + count;
            if is_gone != gone || first >= end || last <= start {
                i += 1;
                continue;
            }
            let rest = Wipe { first: end, count: last.saturating_sub(end), gone };
            match (start.saturating_sub(first), rest.count) {
                (0, 0) => {
                    list.remove(i);
                    continue;
                }
                (0, _) => list.wipes[i] = rest,
                (before, 0) => list.wipes[i].count = before,
                (before, _) => {
                    list.wipes[i].count = before;
                    // With all places taken, a child gets the rest after all.
                    list.push(rest);
                }
            }
            i += 1;
        }
    }

    /// One of those that children do not have at all.
    pub fn any_gone(&self) -> Option<Wipe> {
        self.0.lock(os::wait_a_little).all().iter().find(|wipe| wipe.gone).copied()
    }

    /// The one with a number, counted from 0.
    pub fn nth(&self, n: usize) -> Option<Wipe> {
        self.0.lock(os::wait_a_little).all().get(n).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(wipes: &Wipes) -> Vec<(u32, u32, bool)> {
        let mut all: Vec<_> = (0..).map_while(|n| wipes.nth(n)).map(|w| (w.first, w.count, w.gone)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn what_is_forgotten_is_cut_out() {
        let wipes = Wipes::default();
        assert!(wipes.add(PageNo(100), 50, false) && wipes.add(PageNo(200), 10, true));
        wipes.forget(PageNo(0), 100);
        wipes.forget(PageNo(150), 50);
        assert_eq!(list(&wipes), [(100, 50, false), (200, 10, true)], "neighbours stay");
        wipes.forget(PageNo(120), 10);
        assert_eq!(list(&wipes), [(100, 20, false), (130, 20, false), (200, 10, true)]);
        wipes.forget(PageNo(90), 15);
        wipes.forget(PageNo(145), 56);
        assert_eq!(list(&wipes), [(105, 15, false), (130, 15, false), (201, 9, true)]);
        assert_eq!(wipes.pages(), 30, "what a child does not have at all is not held");
        wipes.forget(PageNo(106), 13);
        assert_eq!(list(&wipes), [(105, 1, false), (119, 1, false), (130, 15, false), (201, 9, true)]);
        assert!(!wipes.is_empty());
        wipes.forget(PageNo(0), 1000);
        assert_eq!(list(&wipes), []);
        assert!(wipes.is_empty());
    }

    #[test]
    fn a_range_grows_downwards() {
        let wipes = Wipes::default();
        assert!(wipes.add(PageNo(100), 5, false) && wipes.add(PageNo(10), 5, true));
        assert!(wipes.grow(PageNo(100), 7) && !wipes.grow(PageNo(100), 1) && !wipes.grow(PageNo(10), 11));
        assert!(wipes.grow(PageNo(10), 10));
        assert_eq!(list(&wipes), [(0, 15, true), (93, 12, false)]);
        assert_eq!((wipes.pages_in(0, 95), wipes.ranges_in(14, 94), wipes.ranges_in(15, 93)), (2, 2, 0));
    }

    #[test]
    fn parts_of_a_range_are_found_in_ascending_order() {
        let wipes = Wipes::<WIPES>::default();
        assert!(wipes.add(PageNo(50), 10, true) && wipes.add(PageNo(40), 9, true) && wipes.add(PageNo(10), 20, false));
        assert_eq!(wipes.next(0, 100, false), Some((PageNo(10), 20)));
        assert_eq!(wipes.next(0, 100, true), Some((PageNo(40), 9)));
        assert_eq!(wipes.next(15, 20, false), Some((PageNo(15), 5)));
        assert_eq!(wipes.next(49, 55, true), Some((PageNo(50), 5)));
        assert_eq!((wipes.next(30, 50, false), wipes.next(60, 100, true)), (None, None));
        assert_eq!(wipes.next(15, 15, false), None, "an empty range has none");
    }

    #[test]
    fn what_children_do_not_have_becomes_one_with_what_it_touches() {
        let wipes = Wipes::default();
        for (first, count) in [(10, 10), (30, 10), (50, 10), (12, 3), (15, 5), (20, 5), (60, 1)] {
            assert!(wipes.add(PageNo(first), count, true));
        }
        assert_eq!(list(&wipes), [(10, 15, true), (30, 10, true), (50, 11, true)]);
        assert!(wipes.add(PageNo(40), 10, true) && wipes.add(PageNo(61), 5, false));
        assert_eq!(list(&wipes), [(10, 15, true), (30, 31, true), (61, 5, false)]);
        assert!(wipes.add(PageNo(0), 100, true));
        assert_eq!(list(&wipes), [(0, 100, true), (61, 5, false)]);
        assert_eq!(wipes.any_gone(), Some(Wipe { first: 0, count: 100, gone: true }));
    }

    #[test]
    fn what_has_no_room_for_its_rest_can_be_unmapped_unless_it_was_to_be_empty() {
        let wipes = Wipes::<2>::default();
        assert!(wipes.add(PageNo(0), 10, true) && wipes.add(PageNo(20), 10, false));
        assert!(!wipes.may_cut(PageNo(4), 2, 0) && wipes.may_unmap(PageNo(4), 2) && !wipes.may_unmap(PageNo(24), 2));
        wipes.forget(PageNo(4), 2);
        assert_eq!(wipes.next(0, 100, true), Some((PageNo(0), 4)));
        assert_eq!((wipes.next(4, 100, true), wipes.next(0, 100, false)), (None, Some((PageNo(20), 10))));
    }

    #[test]
    fn each_kind_is_forgotten_by_itself() {
        let wipes = Wipes::default();
        assert!(wipes.add(PageNo(10), 10, true) && wipes.add(PageNo(10), 10, false));
        wipes.forget_kind(PageNo(12), 2, true);
        assert_eq!(list(&wipes), [(10, 2, true), (10, 10, false), (14, 6, true)]);
        wipes.forget_kind(PageNo(0), 100, false);
        assert_eq!(list(&wipes), [(10, 2, true), (14, 6, true)]);
        wipes.forget(PageNo(0), 100);
        assert!(wipes.is_empty());
    }

    #[test]
    fn there_is_room_for_so_many() {
        let wipes = Wipes::default();
        (0..WIPES as u32).for_each(|i| assert!(wipes.add(PageNo(i * 10), 9, false)));
        assert!(!wipes.add(PageNo(100_000), 1, false));
        // The rest of a range that is cut in two has no place either.
        assert!(!wipes.may_cut(PageNo(4), 1, 0) && wipes.may_cut(PageNo(0), 4, 0) && wipes.may_cut(PageNo(5), 30, 0));
        assert!(!wipes.may_cut(PageNo(0), 4, 1));
        assert!(wipes.has_room(0) && !wipes.has_room(1));
        wipes.forget(PageNo(4), 1);
        assert_eq!(list(&wipes)[0], (0, 4, false));
        assert_eq!(wipes.pages(), WIPES as u64 * 9 - 5);
        wipes.forget(PageNo(10), 9);
        assert!(wipes.add(PageNo(100_000), 1, false));
    }
}
