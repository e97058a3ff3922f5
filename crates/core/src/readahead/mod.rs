//! Which pages a fault brings besides its own.
//!
//! A policy is a file of this folder and a line of the list at the end of this one.
use crate::table::Reserve;
use crate::units::PageNo;

/// What a touch of a page should bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Pages from the touched one on that come with it, in one transfer: 1 for it alone, at most to the end of its folio.
    pub pages: usize,
    /// The page before which reading on ends that follows when the touched page is there. Where it is not beyond those pages,
    /// nothing follows; at most the end of the block.
    pub ahead_end: PageNo,
}

impl Plan {
    /// `pages` pages from `page` on, and nothing after them.
    pub fn only(page: PageNo, pages: usize) -> Plan {
        Plan { pages, ahead_end: page.plus(pages) }
    }
}

/// A readahead policy.
pub trait Readahead: Sync {
    /// What a touch of `page` should bring, under a limit of so many resident pages. Asking changes nothing: a fault may have to
    /// be tried again.
    fn plan(&self, page: PageNo, limit_pages: u64) -> Plan;

    /// A touch of `page` by the program was answered: what was planned from it on came, up to the page before `end`. Not told of
    /// pages that system calls and advice bring in, whose ranges are known.
    fn answered(&self, page: PageNo, end: PageNo);

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
            /// Reserves what the policy remembers of a range of so many pages. `None` where there is no memory.
            pub fn new(kind: Kind, from: &impl Reserve, pages: usize) -> Option<Any> {
                Some(match kind { $(Kind::$type => Any::$type($module::$type::new(from, pages)?)),+ })
            }
        }

        impl Readahead for Any {
            fn plan(&self, page: PageNo, limit_pages: u64) -> Plan {
                match self { $(Any::$type(policy) => policy.plan(page, limit_pages)),+ }
            }
            fn answered(&self, page: PageNo, end: PageNo) {
                match self { $(Any::$type(policy) => policy.answered(page, end)),+ }
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
}

impl Kind {
    /// What is used where nobody asks for another.
    pub const DEFAULT: Kind = Kind::Streams;
}
