//! Which pages a fault brings besides its own, and which are read ahead of later faults.
//!
//! Where the store is synchronous, neighbours cost little, and come with the page, mapped ([`Readahead::plan`]). Where it is not,
//! the page comes alone, and others are read ahead, unmapped, so that it is seen which of them were wanted
//! ([`Readahead::missed`]).
//!
//! A policy is a file of this folder and a line of the list at the end of this one.
mod pays;
mod tuner;

use crate::table::Reserve;
use crate::units::{PART_PAGES, PageNo, SlotId};

/// What a touch of a page should bring from a store that is synchronous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Pages just before the touched one that come with it, at most to the start of its folio.
    pub before: usize,
    /// Pages from the touched one on that come with it, in one transfer: 1 for it alone, at most to the end of its folio.
    pub pages: usize,
    /// The page before which reading on ends that follows when the touched page is there. Where it is not beyond those pages,
    /// nothing follows. Of a policy at most the end of the block, beyond which a fault reads on only to the end of a folio that is stored as one.
    pub ahead_end: PageNo,
    /// What follows: 1 for all pages, else the touched page alone comes, and then each that is so many behind the one before.
    pub step: usize,
}

impl Plan {
    /// `pages` pages from `page` on, and nothing after them.
    pub fn only(page: PageNo, pages: usize) -> Plan {
        Plan { before: 0, pages, ahead_end: page.plus(pages), step: 1 }
    }

    /// What of it lies in the aligned group of `most` pages, a power of two, around the page; and what follows, where nothing is cut
    /// off and folios are as large as one transfer.
    pub fn within(self, page: PageNo, most: usize) -> Plan {
        let at = page.0 as usize % most;
        let (before, pages) = (self.before.min(at), self.pages.min(most - at));
        let is_whole = (before, pages) == (self.before, self.pages) && most >= PART_PAGES;
        if is_whole { self } else { Plan { before, ..Plan::only(page, pages) } }
    }
}

/// What the numbers of a window are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Pages.
    Pages,
    /// Slots, whosever they are: only where [`Readahead::WANTS_OWNERS`].
    Slots,
}

/// What is to be read ahead: `count` numbers from `first` on, `step` apart. What of it is not in a store, or in one that is
/// synchronous, is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// What it is of.
    pub over: Over,
    /// The first number.
    pub first: u32,
    /// From one to the next.
    pub step: i32,
    /// How many.
    pub count: u32,
}

impl Window {
    /// Nothing.
    pub const NONE: Window = Window { over: Over::Pages, first: 0, step: 1, count: 0 };

    /// The pages from `first` to the one before `end`. `None` where there are none.
    pub fn pages(first: PageNo, end: PageNo) -> Option<Window> {
        let count = end.0.checked_sub(first.0).filter(|&count| count > 0)?;
        Some(Window { over: Over::Pages, first: first.0, step: 1, count })
    }
    /// The aligned group of `count`, a power of two, around a number. `None` where that is it alone.
    pub fn around(over: Over, number: u32, count: u32) -> Option<Window> {
        (count > 1).then_some(Window { over, first: number & !(count - 1), step: 1, count })
    }
    /// The numbers, as far as there are such.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..i64::from(self.count))
            .map_while(move |i| u32::try_from(i64::from(self.first) + i * i64::from(self.step)).ok())
    }
}

/// What a policy is made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Pages of the managed range.
    pub pages: usize,
    /// A window has at most 2 to this power pages.
    pub page_cluster: u32,
}

/// The highest [`Sizes::page_cluster`].
pub const PAGE_CLUSTER_MAX: u32 = 6;
/// What is used where nobody asks for another: what Linux has.
pub const PAGE_CLUSTER: u32 = 3;

/// A readahead policy.
pub trait Readahead: Sync {
    /// Whether it plans windows of slots, so that it must be known whose they are.
    const WANTS_OWNERS: bool = false;

    /// What a touch of `page` should bring from a store that is synchronous, under a limit of so many resident pages. Asking
    /// changes nothing: a fault may have to be tried again.
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan;

    /// A touch of `page` by the program was answered: what was planned with it came, from `first` to the page before `end`. Not
    /// told of pages that system calls and advice bring in, whose ranges are known.
    fn answered(&self, page: PageNo, first: PageNo, end: PageNo);

    /// `page` was touched and is read, alone, from `slot` of a store that is not synchronous: what is to be read ahead? Asked
    /// once for each such miss. Where the policy does not say, what it would have brought from a store that is.
    fn missed(&self, page: PageNo, slot: SlotId, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        let _ = (slot, pause);
        let plan = self.plan(page, limit_pages);
        if plan.before > 0 {
            return Some(Window { over: Over::Pages, first: page.0 - 1, step: -1, count: plan.before as u32 });
        }
        if plan.step > 1 {
            let count = (plan.ahead_end.0 - page.0).div_ceil(plan.step as u32) - 1;
            let window = Window { over: Over::Pages, first: page.plus(plan.step).0, step: plan.step as i32, count };
            return (count > 0).then_some(window);
        }
        Window::pages(page.plus(1), page.plus(plan.pages).max(plan.ahead_end))
    }

    /// A page that was read ahead is wanted, for the first time: what else is to be read ahead now?
    fn hit(&self, page: PageNo, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        let _ = (page, limit_pages, pause);
        None
    }

    /// Pages that were read ahead are dropped, because nobody wanted them.
    fn dropped(&self, pages: u32) {
        let _ = pages;
    }

    /// A page that was not read ahead of its touch was waited for so long.
    fn waited(&self, ns: u64) {
        let _ = ns;
    }

    /// [`Readahead::WANTS_OWNERS`], of a policy that is one of several.
    fn wants_owners(&self) -> bool {
        Self::WANTS_OWNERS
    }

    /// Bytes remembered for each block that was ever touched.
    fn block_bytes(&self) -> usize;
}

macro_rules! policies {
    ($($name:literal $module:ident::$type:ident $about:literal)+) => {
        $(pub mod $module;)+

        /// The policies there are.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $(#[doc = $about] $type),+ }

        impl Kind {
            /// All, with the names that a user gives.
            pub const ALL: &[(&str, Kind)] = &[$(($name, Kind::$type)),+];

            /// What it does, in words.
            pub const fn about(self) -> &'static str {
                match self { $(Kind::$type => $about),+ }
            }
        }

        /// One of them.
        #[allow(missing_docs)]
        pub enum Any { $($type($module::$type)),+ }

        impl Any {
            /// Reserves what the policy remembers. `None` where there is no memory.
            pub fn new(kind: Kind, from: &impl Reserve, sizes: Sizes) -> Option<Any> {
                Some(match kind { $(Kind::$type => Any::$type($module::$type::new(from, sizes)?)),+ })
            }
        }

        impl Readahead for Any {
            fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
                match self { $(Any::$type(policy) => policy.plan(page, limit_pages)),+ }
            }
            fn answered(&self, page: PageNo, first: PageNo, end: PageNo) {
                match self { $(Any::$type(policy) => policy.answered(page, first, end)),+ }
            }
            fn missed(&self, page: PageNo, slot: SlotId, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
                match self { $(Any::$type(policy) => policy.missed(page, slot, limit_pages, pause)),+ }
            }
            fn hit(&self, page: PageNo, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
                match self { $(Any::$type(policy) => policy.hit(page, limit_pages, pause)),+ }
            }
            fn dropped(&self, pages: u32) {
                match self { $(Any::$type(policy) => policy.dropped(pages)),+ }
            }
            fn waited(&self, ns: u64) {
                match self { $(Any::$type(policy) => policy.waited(ns)),+ }
            }
            fn wants_owners(&self) -> bool {
                match self { $(Any::$type(policy) => policy.wants_owners()),+ }
            }
            fn block_bytes(&self) -> usize {
                match self { $(Any::$type(policy) => policy.block_bytes()),+ }
            }
        }
    };
}

policies! {
    "off" off::Off "nothing: every fault brings its own page alone"
    "streams" streams::Streams "what a stream of sequential touches is about to reach"
    "fixed" fixed::Fixed "from slow stores, the aligned group of slots around the page's, always"
    "cluster" cluster::Cluster "from slow stores, the group of slots around the page's, as large as earlier ones were of use"
    "neighbourhood" neighbourhood::Neighbourhood "the same with the pages around the page"
    "strides" strides::Strides "from slow stores, what streams of any stride are about to reach, of several at once"
    "auto" auto::Auto "streams where the store is memory, strides where it is slow, as long as they pay"
}

impl Kind {
    /// What is used where nobody asks for another.
    pub const DEFAULT: Kind = Kind::Auto;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(first: u32, step: i32, count: u32) -> Vec<u32> {
        Window { over: Over::Pages, first, step, count }.numbers().collect()
    }

    #[test]
    fn a_plan_keeps_to_the_folios_that_there_are() {
        let page = PageNo(100);
        let plan = Plan { ahead_end: PageNo(128), ..Plan::only(page, 12) };
        assert_eq!(plan.within(page, 16), plan);
        assert_eq!(plan.within(page, 4), Plan::only(page, 4));
        assert_eq!(Plan::only(page, 4).within(page, 4), Plan::only(page, 4));
        let falls = Plan { before: 7, ..Plan::only(PageNo(103), 1) };
        assert_eq!(falls.within(PageNo(103), 16), falls);
        assert_eq!(falls.within(PageNo(103), 4), Plan { before: 3, ..falls });
    }

    #[test]
    fn windows_end_where_the_numbers_do() {
        assert_eq!(numbers(7, 3, 4), [7, 10, 13, 16]);
        assert_eq!(numbers(7, -3, 4), [7, 4, 1]);
        assert_eq!(numbers(u32::MAX - 1, 1, 9), [u32::MAX - 1, u32::MAX]);
        assert_eq!((Window::pages(PageNo(4), PageNo(4)), Window::around(Over::Slots, 9, 1)), (None, None));
        assert_eq!(Window::around(Over::Slots, 9, 8).map(|w| (w.first, w.count)), Some((8, 8)));
    }
}
