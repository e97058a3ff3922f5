//! What a store is made of, and the order of tiers that follows from it.
use crate::compress::{Algorithm, Compressor};
use crate::limits::{CHUNK_PAGES, MAX_TIERS};
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
    /// No tiers, too many, two files, or no slots.
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
    fn new(kind: TierKind) -> Tier {
        match kind {
            TierKind::Ram => Tier::Ram,
            TierKind::Compressed(algorithm) => Tier::Compressed(Compressor::new(algorithm)),
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
    /// Pages of a folio that are compressed together.
    pub folio_unit_pages: usize,
}

impl TierOrder {
    /// The order of tiers as configured.
    ///
    /// # Errors
    /// [`InitError::Config`]: no tiers, too many, or two files.
    pub fn new(configs: &[TierConfig]) -> Result<TierOrder, InitError> {
        let files = configs.iter().filter(|t| t.kind == TierKind::File).count();
        if configs.is_empty() || configs.len() > MAX_TIERS || files > 1 {
            return Err(InitError::Config);
        }
        let mut tiers = [Tier::None; MAX_TIERS];
        for (tier, config) in tiers.iter_mut().zip(configs) {
            *tier = Tier::new(config.kind);
        }
        let first = tiers.iter().find_map(|tier| match tier {
            Tier::Compressed(compressor) => Some(compressor.folio_unit_pages()),
            _ => None,
        });
        Ok(TierOrder {
            tiers,
            last_ram: tiers.iter().rposition(|tier| tier.is_ram()),
            file: tiers.iter().position(|&tier| tier == Tier::File),
            folio_unit_pages: first.unwrap_or(CHUNK_PAGES),
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
