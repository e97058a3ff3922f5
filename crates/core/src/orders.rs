//! Which order of folio pages come in and go out as.
//!
//! Chuanhua Han and Barry Song, "mm: support large folios swap-in for sync io devices", 2024: what came in whole goes out whole,
//! so that it can come in whole again.
use crate::broken::{self, Broken};
use crate::slots::Order;
use crate::units::{FOLIO_PAGES, PageNo};

/// A policy of folio orders.
pub trait Orders: Sync {
    /// The most pages that one fault may bring in one transfer.
    fn pages_max(&self) -> usize;
    /// As what `count` pages from `first` on count that came in together.
    fn came(&self, first: PageNo, count: usize) -> Order;
    /// As what the pages of one aligned group of [`FOLIO_PAGES`] go out: `changed` and `whole` say, by bits, which of them are to
    /// be written, and which came in as part of a whole folio.
    fn goes(&self, changed: u64, whole: u64) -> Order;
}

macro_rules! policies {
    ($($(#[doc = $doc:literal])+ $name:literal $type:ident)+) => {
        /// The policies there are.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Any { $($(#[doc = $doc])+ $type),+ }

        impl Any {
            /// All, with the names that a user gives.
            pub const ALL: &[(&str, Any)] = &[$(($name, Any::$type)),+];
        }

        impl Orders for Any {
            fn pages_max(&self) -> usize {
                match self { $(Any::$type => $type.pages_max()),+ }
            }
            fn came(&self, first: PageNo, count: usize) -> Order {
                match self { $(Any::$type => $type.came(first, count)),+ }
            }
            fn goes(&self, changed: u64, whole: u64) -> Order {
                match self { $(Any::$type => $type.goes(changed, whole)),+ }
            }
        }
    };
}

policies! {
    /// Single pages only.
    "small" Small
    /// What came in as a whole folio goes out as one, as long as all of it is to be written.
    "as-it-came" AsItCame
}

/// See [`Any::Small`].
pub struct Small;

impl Orders for Small {
    fn pages_max(&self) -> usize {
        1
    }
    fn came(&self, _: PageNo, _: usize) -> Order {
        Order::Page
    }
    fn goes(&self, _: u64, _: u64) -> Order {
        Order::Page
    }
}

/// See [`Any::AsItCame`].
pub struct AsItCame;

impl Orders for AsItCame {
    fn pages_max(&self) -> usize {
        FOLIO_PAGES
    }
    fn came(&self, first: PageNo, count: usize) -> Order {
        if count == FOLIO_PAGES && first == first.folio() { Order::Folio } else { Order::Page }
    }
    fn goes(&self, changed: u64, whole: u64) -> Order {
        const ALL: u64 = (1 << FOLIO_PAGES) - 1;
        if changed & whole == ALL && !broken::is(Broken::NoFolios) { Order::Folio } else { Order::Page }
    }
}
