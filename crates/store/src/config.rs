//! What a store is made of, and the order of tiers that follows from it.
use crate::compress::{Algorithm, Compressor};
use crate::limits::{MAX_TIERS, MAX_UNIT_ORDER, UNIT_ORDER};
use outswap_core::units::Order;
use outswap_sys::Errno;

/// What a tier is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierKind {
    /// Pages in RAM as they are.
    Ram,
    /// Compressed pages in RAM.
    Compressed(Algorithm),
    /// An encrypted, unlinked file. At most one tier is a file, and nothing is moved further down from it.
    File,
}

/// One tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierConfig {
    /// What it is made of.
    pub kind: TierKind,
    /// The most it may hold, 0 for no limit: memory really held for RAM, bytes of whole segments in use by the
    /// process and its forks for a file (which therefore needs [`SEGMENT_BYTES`](crate::SEGMENT_BYTES) at least).
    pub max_bytes: u64,
    /// The order of the units that folios are cut into and compressed in, at most [`MAX_UNIT_ORDER`]. The first tier that says so
    /// has its way. `None`: as its compressor likes it best.
    pub unit_order: Option<Order>,
}

impl TierConfig {
    /// A tier whose units are as its compressor likes them best.
    pub const fn new(kind: TierKind, max_bytes: u64) -> TierConfig {
        TierConfig { kind, max_bytes, unit_order: None }
    }
}

/// What a store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// Tiers from the fastest on, at most [`MAX_TIERS`].
    pub tiers: &'a [TierConfig],
    /// Slots, from 0 on; at most [`MAX_SLOTS`](crate::MAX_SLOTS).
    pub slots: u32,
    /// Directory of the file, with or without a NUL byte at its end. The file is opened by
    /// [`Tiers::init`](crate::Tiers::init), those of forked children as they are forked.
    pub directory: &'a [u8],
    /// The store's descriptors are moved to this number or above, see
    /// [`Tiers::descriptors`](crate::Tiers::descriptors).
    pub min_fd: i32,
}

/// Why a store could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// No tiers, too many, two files, too large units, or no slots.
    Config,
    /// The system refused memory or randomness, or the directory's name is empty or too long.
    System(Errno),
}

/// A tier as it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    None,
    Ram,
    Compressed(Compressor),
    File,
}

impl Tier {
    fn new(kind: TierKind, unit_order: Option<Order>) -> Tier {
        match kind {
            TierKind::Ram => Tier::Ram,
            TierKind::Compressed(algorithm) => Tier::Compressed(Compressor::new(algorithm, unit_order)),
            TierKind::File => Tier::File,
        }
    }

    /// Whether it keeps its units in a pool.
    pub fn is_ram(self) -> bool {
        matches!(self, Tier::Ram | Tier::Compressed(_))
    }
}

/// The tiers of one store, from the fastest on.
pub(crate) struct TierOrder {
    tiers: [Tier; MAX_TIERS],
    /// The last RAM tier and the file: what spills where.
    pub last_ram: Option<usize>,
    pub file: Option<usize>,
    /// The order of the units that a folio is cut into.
    pub unit_order: Order,
}

impl TierOrder {
    /// The order of tiers as configured.
    ///
    /// # Errors
    /// [`InitError::Config`]: no tiers, too many, two files, or too large units.
    pub fn new(configs: &[TierConfig]) -> Result<TierOrder, InitError> {
        let files = configs.iter().filter(|t| t.kind == TierKind::File).count();
        let too_large = configs.iter().any(|t| t.unit_order > Some(MAX_UNIT_ORDER));
        let wanted = configs.iter().find_map(|t| t.unit_order);
        if configs.is_empty() || configs.len() > MAX_TIERS || files > 1 || too_large {
            return Err(InitError::Config);
        }
        let mut tiers = [Tier::None; MAX_TIERS];
        for (tier, config) in tiers.iter_mut().zip(configs) {
            *tier = Tier::new(config.kind, wanted);
        }
        let first = tiers.iter().find_map(|tier| match tier {
            Tier::Compressed(compressor) => Some(compressor.unit_order()),
            _ => None,
        });
        Ok(TierOrder {
            tiers,
            last_ram: tiers.iter().rposition(|tier| tier.is_ram()),
            file: tiers.iter().position(|&tier| tier == Tier::File),
            unit_order: wanted.or(first).unwrap_or(UNIT_ORDER),
        })
    }

    /// The tier of a number below [`MAX_TIERS`].
    pub fn tier(&self, tier: usize) -> Tier {
        self.tiers[tier]
    }

    /// The RAM tiers' numbers.
    pub fn ram(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_TIERS).filter(|&tier| self.tiers[tier].is_ram())
    }
}
