//! The order of tiers: what the rest of the store knows of each.
use crate::limits::MAX_TIERS;
use outswap_core::units::Order;
use outswap_sys::Errno;

/// Why a store could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// No tiers, too many, two files, a kind that there is not, too large units, or no slots.
    Config,
    /// The system refused memory or randomness, or the directory's name is empty or too long.
    System(Errno),
}

/// Whose file is made when it is needed, or by [`ProcessStore::make_file`](crate::ProcessStore::make_file), rather than at once: most processes
/// end before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Later {
    /// Nobody's.
    Never,
    /// Those of forked children.
    Children,
    /// The store's own, too.
    All,
}

/// What a tier's set-up is told.
pub(crate) struct SetUp<'a> {
    /// The most it may hold, 0 for no limit.
    pub max_bytes: u64,
    /// Directory of the file, with or without a NUL byte at its end.
    pub directory: &'a [u8],
    /// Where a file is asked for that this process cannot make.
    pub requests_fd: Option<i32>,
    /// The store's descriptors are moved to this number or above.
    pub min_fd: i32,
    /// Whose file is made when it is needed.
    pub later: Later,
}

/// A tier as it runs.
#[derive(Clone, Copy)]
pub(crate) struct Tier {
    /// The number of its kind; 0: there is no such tier.
    pub kind: u8,
    /// It keeps its units in a pool.
    pub in_pool: bool,
    /// It is the file.
    pub in_file: bool,
    pub is_synchronous: bool,
    /// What its kind is given.
    pub parameters: [i32; 2],
}

impl Tier {
    /// No tier.
    pub const NONE: Tier = Tier { kind: 0, in_pool: false, in_file: false, is_synchronous: true, parameters: [0; 2] };
}

/// The tiers of one store, from the fastest on.
pub(crate) struct TierOrder {
    tiers: [Tier; MAX_TIERS],
    /// The last RAM tier and the file: what spills where.
    pub last_ram: Option<usize>,
    pub file: Option<usize>,
    /// All of them are synchronous.
    pub all_synchronous: bool,
    /// The order of the units that a folio is cut into.
    pub unit_order: Order,
}

impl TierOrder {
    /// The order of tiers as they run.
    ///
    /// # Errors
    /// [`InitError::Config`]: no tiers, too many, or two files.
    pub fn new(asked: impl ExactSizeIterator<Item = Tier>, unit_order: Order) -> Result<TierOrder, InitError> {
        if !(1..=MAX_TIERS).contains(&asked.len()) {
            return Err(InitError::Config);
        }
        let mut tiers = [Tier::NONE; MAX_TIERS];
        tiers.iter_mut().zip(asked).for_each(|(to, from)| *to = from);
        if tiers.iter().filter(|tier| tier.in_file).count() > 1 {
            return Err(InitError::Config);
        }
        Ok(TierOrder {
            tiers,
            last_ram: tiers.iter().rposition(|tier| tier.in_pool),
            file: tiers.iter().position(|tier| tier.in_file),
            all_synchronous: tiers.iter().all(|tier| tier.is_synchronous),
            unit_order,
        })
    }

    /// The tier of a number below [`MAX_TIERS`].
    pub fn tier(&self, tier: usize) -> Tier {
        self.tiers[tier]
    }

    /// The numbers of the tiers that keep their units in pools.
    pub fn ram(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_TIERS).filter(|&tier| self.tiers[tier].in_pool)
    }
}
