//! Newtypes for numbers that must not be mixed up.

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages that come in at one time at most (64 KiB): what a context's buffer holds. Larger folios come in by parts.
pub const PART_PAGES: usize = 1 << Order::PART.0;
/// The highest order of a folio: that of a huge page (2 MiB).
pub const MAX_ORDER: usize = 9;
/// Pages in a folio of the highest order.
pub const MAX_FOLIO_PAGES: usize = 1 << MAX_ORDER;
/// Pages in a block, the unit of the reclaim queue and of one batch (256 KiB).
pub const BLOCK_PAGES: usize = 64;

/// The number of a page, counted from the start of the managed range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u32);

/// The number of a slot: 4 KiB of swap space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);

/// A frame of a batch: a page of real memory that holds one page's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameNo(pub u32);

/// The number of a block of [`BLOCK_PAGES`] pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNo(pub u32);

/// The order of a folio: it has 2^order pages or slots, and lies where that divides its first number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u8);

/// A count of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

impl Order {
    /// One page.
    pub const PAGE: Order = Order(0);
    /// [`PART_PAGES`] pages.
    pub const PART: Order = Order(4);
    /// A whole block.
    pub const BLOCK: Order = Order(BLOCK_PAGES.trailing_zeros() as u8);
    /// The highest.
    pub const MAX: Order = Order(MAX_ORDER as u8);
    /// All, from the lowest on.
    pub const ALL: [Order; MAX_ORDER + 1] = {
        let mut all = [Order(0); MAX_ORDER + 1];
        let mut order = 0;
        while order <= MAX_ORDER {
            all[order] = Order(order as u8);
            order += 1;
        }
        all
    };

    /// The order by its number.
    ///
    /// # Panics
    /// For a number above [`MAX_ORDER`].
    pub const fn new(order: usize) -> Order {
        assert!(order <= MAX_ORDER, "a folio has an order that there is");
        Order(order as u8)
    }
    /// Its number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
    /// Pages of a folio of this order.
    pub const fn pages(self) -> usize {
        1 << self.0
    }
    /// The order of a folio of just so many pages.
    pub fn of(pages: usize) -> Option<Order> {
        let order = pages.trailing_zeros() as usize;
        (pages.is_power_of_two() && order <= MAX_ORDER).then(|| Order::new(order))
    }
    /// Whether folios of this order are of several blocks.
    pub fn is_large(self) -> bool {
        self > Order::BLOCK
    }
    /// Whether a folio of this order can begin at a page or slot of this number.
    pub const fn fits_at(self, number: usize) -> bool {
        number.is_multiple_of(self.pages())
    }
}

impl PageNo {
    /// The block that holds this page.
    pub fn block(self) -> BlockNo {
        BlockNo(self.0 / BLOCK_PAGES as u32)
    }
    /// The page's place in its block.
    pub fn index_in_block(self) -> usize {
        self.0 as usize % BLOCK_PAGES
    }
    /// The first page of the folio of an order around this page.
    pub fn folio(self, order: Order) -> PageNo {
        PageNo(self.0 & !(order.pages() as u32 - 1))
    }
    /// The page `n` further on. Numbers end at the largest, which is no page of any range.
    pub fn plus(self, n: usize) -> PageNo {
        PageNo((self.0 as usize).saturating_add(n).min(u32::MAX as usize) as u32)
    }
}

impl BlockNo {
    /// The block's first page.
    pub fn first_page(self) -> PageNo {
        PageNo(self.0 * BLOCK_PAGES as u32)
    }
}

impl SlotId {
    /// The slot `n` further on.
    pub fn plus(self, n: usize) -> SlotId {
        SlotId(self.0 + n as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn orders_are_known_by_their_pages() {
        for (number, order) in Order::ALL.into_iter().enumerate() {
            assert_eq!((order.get(), order.pages()), (number, 1 << number));
            assert_eq!(Order::of(order.pages()), Some(order));
            assert!(order.fits_at(3 * order.pages()) && (number == 0 || !order.fits_at(order.pages() / 2)));
            assert_eq!(PageNo(1_000_003).folio(order).0 as usize, 1_000_003 / order.pages() * order.pages());
        }
        assert_eq!([0, 3, 17, 2 * MAX_FOLIO_PAGES].map(Order::of), [None; 4]);
        assert_eq!((Order::BLOCK.pages(), Order::PART.pages()), (BLOCK_PAGES, PART_PAGES));
        assert_eq!([6, 7, 9].map(|order| Order::new(order).is_large()), [false, true, true]);
    }
}
