//! Which pages go, and what is remembered of them.
//!
//! A policy is a file of this folder and a line of the list at the end of this one. It chooses blocks, and of a block's pages
//! those that go; that locked pages and those in use by calls stay is not its business.
mod along;
mod delayed;
mod rest;
mod soundings;
mod waiting;

use crate::broken::{self, Broken};
use crate::mask::Mask;
use crate::page::{REFERENCED_MAX, Word};
use crate::table::Reserve;
use crate::units::BlockNo;

/// What [`Reclaim::looked`] counts in: all pages of a block were accessed.
pub const ALL_ACCESSED: u32 = 256;

/// What becomes of a resident page that reclaim looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes.
    Take,
    /// It stays, with this many references from now on.
    Keep {
        /// See [`Word::referenced`].
        referenced: u64,
    },
}

/// What the machine did when it was asked for pages of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It gave some, or was not asked for any.
    Gave,
    /// It gave none of those that it was asked for.
    Refused,
}

/// What of a block that waits isolated comes back with a page of it that was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Along {
    /// All, unless it is scattered over the block.
    All,
    /// Nothing.
    Nothing,
    /// Nothing, and what becomes of what would have come is to be told ([`Reclaim::watched`]).
    Watched,
}

/// What is remembered of a page that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Returned {
    /// See [`Word::referenced`].
    pub referenced: u64,
    /// See [`Word::heat`].
    pub heat: u64,
}

/// One search for a block to take pages from: what the policy needs to end it.
#[derive(Debug, Default)]
pub struct Search {
    /// Blocks that may still be looked at.
    pub left: usize,
    /// Blocks that the machine may still refuse.
    pub refusals_left: u32,
    /// Whether blocks were passed by that may be worth a look if there is nothing else.
    pub passed_by: bool,
    /// Whether those are being looked at now.
    pub last_resort: bool,
}

/// A reclaim policy.
pub trait Reclaim: Sync {
    /// A block has resident pages. Called again and again, also while the policy knows.
    fn add(&self, block: BlockNo, pause: &impl Fn(u32));

    /// The same, where so many pages have just come back from a store.
    fn came_back(&self, block: BlockNo, pages: usize, pause: &impl Fn(u32)) {
        let _ = pages;
        self.add(block, pause);
    }

    /// Starts a search.
    fn search(&self, pause: &impl Fn(u32)) -> Search;

    /// The next block to take pages from; `None` ends the search. The policy has forgotten the block then: where pages stay, it
    /// is added again.
    fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo>;

    /// A block that the policy gave has resident pages left.
    fn back(&self, block: BlockNo, pause: &impl Fn(u32)) {
        self.add(block, pause);
    }

    /// Of a block's resident pages the program has used `accessed` of [`ALL_ACCESSED`] since the last look. Told of all such
    /// blocks now and then, where the machine can tell.
    fn looked(&self, block: BlockNo, accessed: u32, pause: &impl Fn(u32)) {
        let _ = (block, accessed, pause);
    }

    /// Whether it pays to look.
    fn wants_looks(&self) -> bool {
        false
    }

    /// What the machine did when it was asked for pages of a block, which `search` has found, or which the program named.
    fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>);

    /// What becomes of a resident page. Where the policy does not say, each reference saves it once.
    fn judge(&self, word: Word) -> Verdict {
        match word.referenced() {
            0 => Verdict::Take,
            n => Verdict::Keep { referenced: n - 1 },
        }
    }

    /// Of a block's pages that may go, those that go this time. Where others stay, the block is given back ([`Reclaim::back`]).
    fn part(&self, block: BlockNo, wanted: Mask) -> Mask {
        let _ = block;
        wanted
    }

    /// The references of a page that is touched while it is isolated: one more, where the policy does not say.
    fn touched(&self, word: Word) -> u64 {
        if broken::is(Broken::NoReferences) { 0 } else { (word.referenced() + 1).min(REFERENCED_MAX) }
    }

    /// An isolated page of a block was touched. Says what of the block that waits with it comes back, too.
    fn hit(&self, block: BlockNo) -> Along {
        let _ = block;
        Along::All
    }

    /// Of pages that stayed where they were ([`Along::Watched`]), so many were touched since, and so many have left memory.
    fn watched(&self, touched: u32, left: u32) {
        let _ = (touched, left);
    }

    /// A page comes back from a store because it was touched, after so many others were evicted, about. `word` is that of the page
    /// while it was there.
    fn refaulted(&self, word: Word, distance_pages: u64, limit_pages: u64) -> Returned {
        let _ = (word, distance_pages, limit_pages);
        Returned::default()
    }

    /// So many pages have left memory.
    fn evicted(&self, pages: usize) {
        let _ = pages;
    }

    /// The most pages that stay isolated, waiting for a touch, before the oldest are written out.
    fn isolated_max_pages(&self, limit_pages: u64) -> usize;

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

        impl Reclaim for Any {
            fn add(&self, block: BlockNo, pause: &impl Fn(u32)) {
                match self { $(Any::$type(policy) => policy.add(block, pause)),+ }
            }
            fn came_back(&self, block: BlockNo, pages: usize, pause: &impl Fn(u32)) {
                match self { $(Any::$type(policy) => policy.came_back(block, pages, pause)),+ }
            }
            fn search(&self, pause: &impl Fn(u32)) -> Search {
                match self { $(Any::$type(policy) => policy.search(pause)),+ }
            }
            fn next(&self, search: &mut Search, pause: &impl Fn(u32)) -> Option<BlockNo> {
                match self { $(Any::$type(policy) => policy.next(search, pause)),+ }
            }
            fn back(&self, block: BlockNo, pause: &impl Fn(u32)) {
                match self { $(Any::$type(policy) => policy.back(block, pause)),+ }
            }
            fn looked(&self, block: BlockNo, accessed: u32, pause: &impl Fn(u32)) {
                match self { $(Any::$type(policy) => policy.looked(block, accessed, pause)),+ }
            }
            fn wants_looks(&self) -> bool {
                match self { $(Any::$type(policy) => policy.wants_looks()),+ }
            }
            fn asked(&self, block: BlockNo, asked: Asked, search: Option<&mut Search>) {
                match self { $(Any::$type(policy) => policy.asked(block, asked, search)),+ }
            }
            fn judge(&self, word: Word) -> Verdict {
                match self { $(Any::$type(policy) => policy.judge(word)),+ }
            }
            fn part(&self, block: BlockNo, wanted: Mask) -> Mask {
                match self { $(Any::$type(policy) => policy.part(block, wanted)),+ }
            }
            fn touched(&self, word: Word) -> u64 {
                match self { $(Any::$type(policy) => policy.touched(word)),+ }
            }
            fn hit(&self, block: BlockNo) -> Along {
                match self { $(Any::$type(policy) => policy.hit(block)),+ }
            }
            fn watched(&self, touched: u32, left: u32) {
                match self { $(Any::$type(policy) => policy.watched(touched, left)),+ }
            }
            fn refaulted(&self, word: Word, distance_pages: u64, limit_pages: u64) -> Returned {
                match self { $(Any::$type(policy) => policy.refaulted(word, distance_pages, limit_pages)),+ }
            }
            fn evicted(&self, pages: usize) {
                match self { $(Any::$type(policy) => policy.evicted(pages)),+ }
            }
            fn isolated_max_pages(&self, limit_pages: u64) -> usize {
                match self { $(Any::$type(policy) => policy.isolated_max_pages(limit_pages)),+ }
            }
            fn block_bytes(&self) -> usize {
                match self { $(Any::$type(policy) => policy.block_bytes()),+ }
            }
        }
    };
}

policies! {
    "fifo" fifo::Fifo "blocks in the order in which they came in, with a second chance for pages that are touched while isolated"
    "probation" probation::Probation "as fifo, but blocks of which pages come back from a store go first, unless they are touched while isolated"
    "sounded" sounded::Sounded "as probation, but a few pages of a block go first, and the others only if none of these is touched for a while"
    "accessed" accessed::Accessed "blocks of which the program uses the least, as far as the kernel tells; not ready"
    "window" window::Window "blocks in the order in which they came in, at once: for recording accesses"
}

impl Kind {
    /// What is used where nobody asks for another.
    pub const DEFAULT: Kind = Kind::Probation;
}
