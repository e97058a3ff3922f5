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
pub struct Wipes(SpinLock<[Wipe; WIPES]>);

impl Default for Wipes {
    fn default() -> Wipes {
        Wipes(SpinLock::new([Wipe::default(); WIPES]))
    }
}

impl Wipes {
    /// Remembers a range that forked children find empty, or `gone`. False where there is no room.
    pub fn add(&self, first: PageNo, count: u32, gone: bool) -> bool {
        let mut wipes = self.0.lock(os::wait_a_little);
        match wipes.iter_mut().find(|w| w.count == 0) {
            Some(free) => {
                *free = Wipe { first: first.0, count, gone };
                true
            }
            None => false,
        }
    }

    /// Has a range begin so many pages earlier. False where none begins there.
    pub fn grow(&self, first: PageNo, by: u32) -> bool {
        let mut wipes = self.0.lock(os::wait_a_little);
        let found = wipes.iter_mut().find(|w| w.count > 0 && w.first == first.0 && w.first >= by);
        found.map(|w| (w.first, w.count) = (w.first - by, w.count + by)).is_some()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.lock(os::wait_a_little).iter().all(|w| w.count == 0)
    }

    /// Pages of the ranges that children find empty.
    pub fn pages(&self) -> u64 {
        self.0.lock(os::wait_a_little).iter().filter(|w| !w.gone).map(|w| w.count as u64).sum()
    }

    /// The first part of a range that children find empty, or do not have (`gone`). A page may be of both kinds: what it is with one
    /// advice it is also while it has the other.
    pub fn next(&self, first: u32, end: u32, gone: bool) -> Option<(PageNo, u32)> {
        let wipes = self.0.lock(os::wait_a_little);
        let in_range =
            |w: &&Wipe| first < end && w.count > 0 && w.gone == gone && w.first < end && w.first + w.count > first;
        let wipe = wipes.iter().filter(in_range).min_by_key(|w| w.first)?;
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
        self.0.lock(os::wait_a_little).iter().filter(|w| w.count == 0).count() >= ranges
    }

    /// How many ranges, of both kinds, a range has parts of.
    pub fn ranges_in(&self, first: u32, end: u32) -> usize {
        let wipes = self.0.lock(os::wait_a_little);
        wipes.iter().filter(|w| w.count > 0 && w.first < end && w.first + w.count > first).count()
    }

    /// Whether there is room for what is left when a range is cut out, as a hole makes two of one, and for so many `more`.
    pub fn may_cut(&self, first: PageNo, count: u32, more: usize) -> bool {
        let (start, end) = (first.0, first.0 + count);
        let wipes = self.0.lock(os::wait_a_little);
        let holes = wipes.iter().filter(|w| w.count > 0 && w.first < start && w.first + w.count > end).count();
        holes + more <= wipes.iter().filter(|w| w.count == 0).count()
    }

    /// Forgets a range, which is unmapped. What overlaps it is cut. Where a hole has no room ([`Wipes::may_cut`]), children get the rest.
    pub fn forget(&self, first: PageNo, count: u32) {
        self.cut(first, count, |_| true);
    }

    /// The same where children are to get it after all, as far as that kind goes.
    pub fn forget_kind(&self, first: PageNo, count: u32, gone: bool) {
        self.cut(first, count, |wipe| wipe.gone == gone);
    }

    fn cut(&self, first: PageNo, count: u32, wanted: impl Fn(&Wipe) -> bool) {
        let (start, end) = (first.0, first.0 + count);
        let mut wipes = self.0.lock(os::wait_a_little);
        for i in 0..WIPES {
            let Wipe { first, count, gone } = wipes[i];
            let last = first + count;
            if count == 0 || !wanted(&wipes[i]) || first >= end || last <= start {
                continue;
            }
            wipes[i].count = start.saturating_sub(first);
            if last > end {
                let rest = Wipe { first: end, count: last - end, gone };
                // Cutting a hole makes two of one; with all places taken, a child gets the rest after all.
                let place = if wipes[i].count == 0 { Some(i) } else { wipes.iter().position(|w| w.count == 0) };
                if let Some(place) = place {
                    wipes[place] = rest;
                }
            }
        }
    }

    /// All of them at once.
    pub fn all(&self) -> impl Iterator<Item = Wipe> {
        let all = *self.0.lock(os::wait_a_little);
        all.into_iter().filter(|wipe| wipe.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(wipes: &Wipes) -> Vec<(u32, u32, bool)> {
        let mut all: Vec<_> = wipes.all().map(|w| (w.first, w.count, w.gone)).collect();
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
        let wipes = Wipes::default();
        assert!(wipes.add(PageNo(50), 10, true) && wipes.add(PageNo(40), 9, true) && wipes.add(PageNo(10), 20, false));
        assert_eq!(wipes.next(0, 100, false), Some((PageNo(10), 20)));
        assert_eq!(wipes.next(0, 100, true), Some((PageNo(40), 9)));
        assert_eq!(wipes.next(15, 20, false), Some((PageNo(15), 5)));
        assert_eq!(wipes.next(49, 55, true), Some((PageNo(50), 5)));
        assert_eq!((wipes.next(30, 50, false), wipes.next(60, 100, true)), (None, None));
        assert_eq!(wipes.next(15, 15, false), None, "an empty range has none");
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
