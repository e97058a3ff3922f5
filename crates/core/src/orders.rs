//! Which order of folio pages come in and go out as.
//!
//! Chuanhua Han and Barry Song, "mm: support large folios swap-in for sync io devices", 2024: what came in whole goes out whole,
//! so that it can come in whole again.
use crate::broken::{self, Broken};
use crate::units::{Order, PART_PAGES, PageNo};

/// A policy of folio orders.
pub trait Orders: Sync {
    /// The most pages that one fault may bring in one transfer, at most [`PART_PAGES`].
    fn pages_max(&self) -> usize;
    /// As what `count` pages from `first` on count that came in together.
    fn came(&self, first: PageNo, count: usize) -> Order;
    /// The order of the folio that goes out from the page `at` of a block on: one that fits there, and all of whose pages are to
    /// go. `leaving` has an order for each page of the block that is to be written, that which it came as.
    fn goes(&self, at: usize, leaving: &[Option<Order>]) -> Order;
    /// What to try where no folio of an order (which is not that of a page) could be stored: a lower one, of a block at most.
    fn lower(&self, order: Order) -> Order;
    /// Whether pages of several blocks, each of which came as part of one of these orders, go out as a folio of `order`, which is
    /// [`Order::is_large`].
    fn goes_large(&self, order: Order, came: Order) -> bool {
        let _ = (order, came);
        false
    }
    /// The highest order that a stream's fault brings in of what is stored as one folio, transfer by transfer.
    fn comes_large(&self) -> Order {
        Order::PART
    }
    /// Whether memory that the program had not before may come as huge pages, of [`Order::MAX`] ([`crate::huge`]).
    fn huge(&self) -> bool {
        false
    }
}

macro_rules! policies {
    ($($name:literal $variant:ident = $policy:expr, $about:literal)+) => {
        /// The policies there are.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Any {
            $(#[doc = $about] $variant,)+
            /// Orders that a user names one by one.
            Listed(Listed),
        }

        impl Any {
            /// All that have a name that a user gives.
            pub const ALL: &[(&str, Any)] = &[$(($name, Any::$variant)),+];

            /// What it does, in words.
            pub const fn about(self) -> &'static str {
                match self { $(Any::$variant => $about,)+ Any::Listed(_) => "the orders that were named" }
            }
        }

        impl Orders for Any {
            fn pages_max(&self) -> usize {
                match self { $(Any::$variant => $policy.pages_max(),)+ Any::Listed(listed) => listed.pages_max() }
            }
            fn came(&self, first: PageNo, count: usize) -> Order {
                match self { $(Any::$variant => $policy.came(first, count),)+ Any::Listed(listed) => listed.came(first, count) }
            }
            fn goes(&self, at: usize, leaving: &[Option<Order>]) -> Order {
                match self { $(Any::$variant => $policy.goes(at, leaving),)+ Any::Listed(listed) => listed.goes(at, leaving) }
            }
            fn lower(&self, order: Order) -> Order {
                match self { $(Any::$variant => $policy.lower(order),)+ Any::Listed(listed) => listed.lower(order) }
            }
            fn goes_large(&self, order: Order, came: Order) -> bool {
                match self { $(Any::$variant => $policy.goes_large(order, came),)+ Any::Listed(listed) => listed.goes_large(order, came) }
            }
            fn comes_large(&self) -> Order {
                match self { $(Any::$variant => $policy.comes_large(),)+ Any::Listed(listed) => listed.comes_large() }
            }
            fn huge(&self) -> bool {
                match self { $(Any::$variant => $policy.huge(),)+ Any::Listed(listed) => listed.huge() }
            }
        }
    };
}

policies! {
    "small" Small = Small, "single pages only"
    "as-it-came" AsItCame = Whole(Order::PART), "what came in as a whole folio of 64 KiB goes out as one, as long as all of it is to be written"
    "as-it-came-16k" AsItCame16k = Whole(Order::new(2)), "the same with folios of 16 KiB: a fault brings four pages at most"
    "largest" Largest = Largest, "the largest folio, of any order, that what is to be written has room for, whatever it came as"
}

impl Any {
    /// What is used where nobody asks for another.
    pub const DEFAULT: Any = Any::AsItCame;
}

/// Whether all pages of a folio are among those that are to be written.
fn is_whole(at: usize, order: Order, leaving: &[Option<Order>], wanted: impl Fn(Order) -> bool) -> bool {
    let pages = leaving.get(at..at + order.pages());
    order.fits_at(at) && pages.is_some_and(|pages| pages.iter().all(|came| came.is_some_and(&wanted)))
}

/// See [`Any::Small`].
pub struct Small;

impl Orders for Small {
    fn pages_max(&self) -> usize {
        1
    }
    fn came(&self, _: PageNo, _: usize) -> Order {
        Order::PAGE
    }
    fn goes(&self, _: usize, _: &[Option<Order>]) -> Order {
        Order::PAGE
    }
    fn lower(&self, _: Order) -> Order {
        Order::PAGE
    }
}

/// Folios of one order, up to [`Order::PART`], which go out as they came in, and single pages.
pub struct Whole(pub Order);

impl Orders for Whole {
    fn pages_max(&self) -> usize {
        self.0.min(Order::PART).pages()
    }
    fn came(&self, first: PageNo, count: usize) -> Order {
        if count == self.0.pages() && self.0.fits_at(first.0 as usize) { self.0 } else { Order::PAGE }
    }
    fn goes(&self, at: usize, leaving: &[Option<Order>]) -> Order {
        let whole = is_whole(at, self.0, leaving, |came| came == self.0);
        if whole && !broken::is(Broken::NoFolios) { self.0 } else { Order::PAGE }
    }
    fn lower(&self, _: Order) -> Order {
        Order::PAGE
    }
}

/// Several orders, each switched on by itself, as in the kernel's `transparent_hugepage/hugepages-*kB`: what came in as a folio of one
/// goes out as one, or as one of the next lower of them. What came in as [`Order::PART`], the most that comes at once, may go out in
/// higher ones, and what is stored in higher ones comes in for a stream by one fault, up to an order below [`Order::MAX`]. Single pages are always
/// among them. With [`Order::MAX`], memory comes as huge pages that the program had not before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed(u32);

impl Listed {
    /// The orders of which `bits` has the bit, and that of a page. `None` with one that there is not.
    pub const fn new(bits: u64) -> Option<Listed> {
        let known = (1 << (Order::MAX.get() + 1)) - 1;
        if bits & !known == 0 { Some(Listed(bits as u32 | 1)) } else { None }
    }
    fn has(self, order: Order) -> bool {
        self.0 >> order.get() & 1 != 0
    }
    fn downwards(self) -> impl Iterator<Item = Order> {
        Order::ALL.into_iter().rev().filter(move |&order| self.has(order))
    }
    fn highest(self, wanted: impl FnMut(&Order) -> bool) -> Order {
        self.downwards().find(wanted).unwrap_or(Order::PAGE)
    }
}

impl Orders for Listed {
    fn pages_max(&self) -> usize {
        self.highest(|order| *order <= Order::PART).pages()
    }
    fn came(&self, first: PageNo, count: usize) -> Order {
        self.highest(|order| order.pages() == count && order.fits_at(first.0 as usize))
    }
    fn goes(&self, at: usize, leaving: &[Option<Order>]) -> Order {
        self.highest(|order| is_whole(at, *order, leaving, |came| came >= (*order).min(Order::PART)))
    }
    fn lower(&self, order: Order) -> Order {
        self.highest(|lower| *lower < order)
    }
    fn goes_large(&self, order: Order, came: Order) -> bool {
        self.has(order) && came >= Order::PART
    }
    fn comes_large(&self) -> Order {
        self.highest(|order| *order < Order::MAX).max(Order::PART)
    }
    fn huge(&self) -> bool {
        self.has(Order::MAX)
    }
}

/// See [`Any::Largest`].
pub struct Largest;

impl Orders for Largest {
    fn pages_max(&self) -> usize {
        PART_PAGES
    }
    fn came(&self, first: PageNo, count: usize) -> Order {
        Order::of(count).filter(|order| order.fits_at(first.0 as usize)).unwrap_or(Order::PAGE)
    }
    fn goes(&self, at: usize, leaving: &[Option<Order>]) -> Order {
        let whole = |order: &Order| is_whole(at, *order, leaving, |_| true);
        Order::ALL.into_iter().rev().find(whole).unwrap_or(Order::PAGE)
    }
    fn lower(&self, order: Order) -> Order {
        // As mTHP's ladder: the next lower order, until pages are left.
        Order::new(order.get() - 1)
    }
    fn goes_large(&self, _: Order, _: Order) -> bool {
        true
    }
    fn comes_large(&self) -> Order {
        Order::new(Order::MAX.get() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::units::BLOCK_PAGES;

    fn goes(policy: &impl Orders, leaving: &[Option<Order>]) -> Vec<usize> {
        let (mut at, mut orders) = (0, Vec::new());
        while at < BLOCK_PAGES {
            if leaving[at].is_none() {
                at += 1;
                continue;
            }
            let order = policy.goes(at, leaving);
            assert!(order.fits_at(at) && leaving[at..at + order.pages()].iter().all(Option::is_some));
            orders.push(order.get());
            at += order.pages();
        }
        orders
    }

    #[test]
    fn what_came_whole_goes_whole() {
        let mut leaving = [Some(Order::PART); BLOCK_PAGES];
        let as_it_came = Whole(Order::PART);
        assert_eq!(goes(&as_it_came, &leaving), [4, 4, 4, 4]);
        leaving[20] = None;
        leaving[40] = Some(Order::PAGE);
        assert_eq!(goes(&as_it_came, &leaving).len(), 2 + 15 + 16);
        let of_four = Whole(Order::new(2));
        assert_eq!(goes(&of_four, &[Some(of_four.came(PageNo(8), 4)); BLOCK_PAGES]), [2; 16]);
        assert_eq!((of_four.came(PageNo(2), 4), of_four.came(PageNo(4), 3)), (Order::PAGE, Order::PAGE));
        assert_eq!(goes(&Small, &leaving).len(), BLOCK_PAGES - 1);
    }

    #[test]
    fn the_largest_takes_what_there_is() {
        let mut leaving = [Some(Order::PAGE); BLOCK_PAGES];
        assert_eq!(goes(&Largest, &leaving), [6]);
        leaving[0] = None;
        assert_eq!(goes(&Largest, &leaving), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Largest.lower(Order::BLOCK), Order::new(5));
        assert_eq!((Largest.came(PageNo(8), 8), Largest.came(PageNo(4), 8)), (Order::new(3), Order::PAGE));
    }

    #[test]
    fn of_listed_orders_each_is_switched_on_by_itself() {
        let listed = |orders: &[usize]| Listed::new(orders.iter().fold(0, |bits, order| bits | 1 << order));
        assert_eq!(Listed::new(1 << (Order::MAX.get() + 1)), None);
        let [with, without] = [&[0, 4, 9][..], &[0, 4]].map(|orders| listed(orders).expect("all are there"));
        assert!(with.huge() && Any::Listed(with).huge() && !without.huge() && !Any::DEFAULT.huge());
        assert_eq!(goes(&with, &[Some(Order::PART); BLOCK_PAGES]), goes(&without, &[Some(Order::PART); BLOCK_PAGES]));
        let policy = listed(&[2, 5]).expect("all are there");
        assert_eq!(policy.pages_max(), 4);
        let [came, one, eight] = [(8, 4), (8, 1), (8, 8)].map(|(first, count)| policy.came(PageNo(first), count));
        assert_eq!((came, one, eight), (Order::new(2), Order::PAGE, Order::PAGE));
        assert_eq!(goes(&policy, &[Some(came); BLOCK_PAGES]), [2; 16], "what came as that goes as that");
        assert_eq!(goes(&policy, &[Some(Order::PAGE); BLOCK_PAGES]), [0; BLOCK_PAGES]);
        assert_eq!([5, 2].map(|order| policy.lower(Order::new(order)).get()), [2, 0]);
        let policy = listed(&[4, 6]).expect("all are there");
        assert_eq!((policy.pages_max(), policy.came(PageNo(16), 16)), (16, Order::PART));
        assert_eq!(goes(&policy, &[Some(Order::PART); BLOCK_PAGES]), [6]);
        let mut leaving = [Some(Order::PART); BLOCK_PAGES];
        leaving[60] = Some(Order::PAGE);
        assert_eq!(goes(&policy, &leaving).len(), 3 + 16);
        assert_eq!(listed(&[]).expect("pages are").pages_max(), 1);
        let policy = listed(&[4, 7, 9]).expect("all are there");
        let large = [7, 8, 9].map(|order| policy.goes_large(Order::new(order), Order::PART));
        assert_eq!((large, policy.goes_large(Order::MAX, Order::new(3))), ([true, false, true], false));
        assert_eq!([policy, with, without].map(|policy| policy.comes_large().get()), [7, 4, 4]);
        assert!(!Any::DEFAULT.goes_large(Order::MAX, Order::MAX) && Any::DEFAULT.comes_large() == Order::PART);
    }
}
