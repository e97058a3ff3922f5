//! Compressed RAM tiers: pools of units that one compressor has packed.
use super::unit::Unit;
use super::{Kind, OptionError, Parameters, Words};
use crate::compress::{Algorithm, Compressor, Worker};
use crate::io::FileIo;
use crate::state::Tiers;
use crate::stats::add;
use outswap_core::store::StoreError;
use outswap_core::units::Order;

/// Levels of zstd that are offered: the fast ones below zero, and those up to 19 that need no extra memory.
const ZSTD_LEVELS: core::ops::RangeInclusive<i32> = -7..=19;

/// Compressed pages in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressed(pub Algorithm);

impl Kind for Compressed {
    const OPTIONS: &'static str = "[:lz4|zstd[:LEVEL]]";
    const IN_POOL: bool = true;

    fn parse<'a>(words: &mut Words<'a>) -> Result<Compressed, OptionError<'a>> {
        let Some(&word) = words.peek() else { return Ok(Compressed(Algorithm::Lz4)) };
        match word {
            "lz4" => {
                words.next();
                Ok(Compressed(Algorithm::Lz4))
            }
            "zstd" => {
                words.next();
                // A bare number is a level; a limit has a unit.
                let Some((word, level)) = words.peek().and_then(|word| Some((*word, word.parse::<i32>().ok()?))) else {
                    return Ok(Compressed(Algorithm::Zstd(0)));
                };
                words.next();
                if level == 0 || !ZSTD_LEVELS.contains(&level) {
                    return Err(OptionError {
                        word,
                        why: "is none of zstd's levels: 1 to 19, and -1 to -7 for the fast ones",
                    });
                }
                Ok(Compressed(Algorithm::Zstd(level)))
            }
            _ if word.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                Err(OptionError { word, why: "is not a compressor (compressors are lz4 and zstd)" })
            }
            _ => Ok(Compressed(Algorithm::Lz4)),
        }
    }
    fn pack(self) -> Parameters {
        match self.0 {
            Algorithm::Lz4 => [0, 0],
            Algorithm::Zstd(level) => [1, level],
        }
    }
    fn unpack(parameters: Parameters) -> Option<Compressed> {
        match parameters {
            [0, _] => Some(Compressed(Algorithm::Lz4)),
            [1, level] => Some(Compressed(Algorithm::Zstd(level))),
            _ => None,
        }
    }
    fn is_same(self, other: Compressed) -> bool {
        core::mem::discriminant(&self.0) == core::mem::discriminant(&other.0)
    }
    fn algorithm(self) -> Option<(&'static str, i32)> {
        Some(match self.0 {
            Algorithm::Lz4 => ("lz4", 0),
            Algorithm::Zstd(level) => ("zstd", level),
        })
    }
    fn unit_order(self) -> Option<Order> {
        Some(self.0.unit_order())
    }
    fn settle(self, order: Order) -> Parameters {
        Compressor::new(self.0, order).pack()
    }
    fn put<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        parameters: Parameters,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        store.put_compressed(tier, Compressor::unpack(parameters), unit, worker)
    }
}

impl<I: FileIo> Tiers<I> {
    /// Puts a unit into a compressed tier.
    pub(super) fn put_compressed(
        &self,
        tier: usize,
        compressor: Compressor,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let len = match unit.packed {
            Some((by, len)) if by == compressor => len,
            _ => self.pack(compressor, unit, worker),
        };
        let result = match len {
            None if unit.skip_incompressible => return Err(StoreError::Full),
            None => self.put_raw(tier, unit, worker),
            Some(len) => self.put_packed(tier, compressor, len, unit, worker),
        };
        if result.is_err() && Some(tier) == self.order.last_ram {
            // Making room uses the worker's buffer.
            unit.packed = None;
        }
        result
    }

    /// Compresses a unit into the worker's buffer. `None` where that saves too little.
    fn pack(&self, compressor: Compressor, unit: &mut Unit<'_>, worker: &mut Worker) -> Option<usize> {
        let len = compressor.compress(unit.raw, worker);
        add(&self.stats.compress_in_total, unit.raw.len() as u64);
        add(&self.stats.compress_out_total, len.unwrap_or(unit.raw.len()) as u64);
        if len.is_none() {
            add(&self.stats.raw_units, 1);
        }
        unit.packed = Some((compressor, len));
        len
    }

    /// Stores what the worker has packed, making room where this is the last RAM tier.
    fn put_packed(
        &self,
        tier: usize,
        compressor: Compressor,
        len: usize,
        unit: &Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        let insert = |packed: &[u8]| self.insert(tier, unit.first, unit.order(), compressor.codec, packed);
        if insert(&worker.packed[..len]).is_ok() {
            return Ok(());
        }
        if Some(tier) != self.order.last_ram {
            return Err(StoreError::Full);
        }
        // Making room uses the worker's buffer, so the unit is packed again afterwards, which is seldom.
        loop {
            if !self.make_room(worker) {
                return Err(StoreError::Full);
            }
            let len = compressor.compress(unit.raw, worker).ok_or(StoreError::Full)?;
            if insert(&worker.packed[..len]).is_ok() {
                return Ok(());
            }
        }
    }
}
