//! The kinds of tiers, one file each, and what each must say of itself: [`Kind`]. They are registered at the end of this file,
//! each by one line; its name in specifications, help, statistics and the control block follows from that. The rest of the store
//! knows which tiers keep their units in pools, and which one is the file.
mod unit;

use crate::compress::Worker;
use crate::config::{InitError, SetUp, Tier};
use crate::io::FileIo;
use crate::lock::Guard;
use crate::record::{Record, Shard};
use crate::regions::Regions;
use crate::state::Tiers;
use core::fmt::Debug;
use core::iter::Peekable;
use core::str::Split;
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::store::StoreError;
use outswap_core::units::{Order, SlotId};
pub(crate) use unit::Unit;

/// What a specification says of a tier behind its name, word by word, from options to the limit.
pub type Words<'a> = Peekable<Split<'a, char>>;

/// A word that is no option of its kind, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionError<'a> {
    /// The word.
    pub word: &'a str,
    /// What is wrong with it, to stand behind it.
    pub why: &'static str,
}

/// What a kind's tier was asked to be, or is, in two numbers.
pub type Parameters = [i32; 2];

/// A kind of tier, with what it can be asked for. What is not said is as of tiers that keep their units in pools.
pub(crate) trait Kind: Copy + PartialEq + Debug {
    /// How its options are written behind its name.
    const OPTIONS: &'static str = "";
    /// Its units are objects in the pool of its tier's number: they are compacted there, and spill to the file.
    const IN_POOL: bool = false;
    /// Its units stand in the file, of which there is one, as the last tier.
    const IN_FILE: bool = false;
    /// Reading from it takes no longer than decompressing does.
    const IS_SYNCHRONOUS: bool = !Self::IN_FILE;

    /// Takes the options of a specification.
    ///
    /// # Errors
    /// Where one is none.
    fn parse<'a>(words: &mut Words<'a>) -> Result<Self, OptionError<'a>>;

    /// The options in numbers, for the control block.
    fn pack(self) -> Parameters {
        [0; 2]
    }

    /// The options by their numbers. `None` for what [`Kind::pack`] never gives.
    fn unpack(parameters: Parameters) -> Option<Self>;

    /// Whether a second tier like this one would be of no use beside it.
    fn is_same(self, other: Self) -> bool {
        let _ = other;
        true
    }

    /// Compressor and level, for statistics.
    fn algorithm(self) -> Option<(&'static str, i32)> {
        None
    }

    /// The order of the units that it would have folios cut into.
    fn unit_order(self) -> Option<Order> {
        None
    }

    /// What the functions below are given, where units are of an order at most.
    fn settle(self, order: Order) -> Parameters {
        let _ = order;
        self.pack()
    }

    /// Maps and opens what the tier needs.
    fn set_up<I: FileIo>(
        store: &mut Tiers<I>,
        tier: usize,
        asked: &SetUp<'_>,
        regions: &mut Regions,
    ) -> Result<(), InitError> {
        store.set_up_pool(tier, asked.max_bytes, regions)
    }

    /// Stores a unit.
    ///
    /// # Errors
    /// The tier does not take it, or not all of it: then `unit.stored_pages` says what is to be freed.
    fn put<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        parameters: Parameters,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError>;

    /// Reads what one unit has of `out`, from `slot` on. Returns the pages read; `None` where the unit was moved meanwhile.
    fn get<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        shard: Guard<'_, Shard>,
        record: Record,
        slot: u32,
        out: &mut [u8],
        worker: &mut Worker,
    ) -> Result<Option<usize>, StoreError> {
        store.get_ram(tier, shard, record, slot, out, worker).map(Some)
    }

    /// Frees a slot, as its record said. With `wipe`, what it held is overwritten in memory first, if no other slot shares it.
    fn free<I: FileIo>(store: &Tiers<I>, tier: usize, shard: Guard<'_, Shard>, record: Record, slot: u32, wipe: bool) {
        store.free_ram(tier, shard, record, slot, wipe);
    }
}

macro_rules! kinds {
    ($($name:literal $module:ident::$type:ident = $doc:literal)+) => {
        $(mod $module; pub use $module::$type;)+

        /// What a tier is made of.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum TierKind { $(#[doc = $doc] $type($type)),+ }

        /// The kinds' numbers in this process. That of no tier is 0.
        #[repr(u8)]
        enum Number { #[allow(dead_code)] None, $($type),+ }

        $(const _: () = assert!(!$name.is_empty() && $name.len() < KIND_NAME_BYTES);)+

        impl TierKind {
            /// All kinds: the name, how options are written behind it, and what it is.
            pub const ALL: &[(&str, &str, &str)] = &[$(($name, <$type as Kind>::OPTIONS, $doc)),+];

            /// Takes a tier's options behind its kind's name. `None`: there is no such kind.
            pub fn parse<'a>(name: &str, words: &mut Words<'a>) -> Option<Result<TierKind, OptionError<'a>>> {
                match name {
                    $($name => Some(<$type as Kind>::parse(words).map(TierKind::$type)),)+
                    _ => None,
                }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(TierKind::$type(_) => $name),+ }
            }

            /// Its options in numbers.
            pub fn pack(self) -> Parameters {
                match self { $(TierKind::$type(kind) => kind.pack()),+ }
            }

            /// The kind by its name and its options in numbers.
            pub fn unpack(name: &[u8], parameters: Parameters) -> Option<TierKind> {
                $(if name == $name.as_bytes() {
                    return <$type as Kind>::unpack(parameters).map(TierKind::$type);
                })+
                None
            }

            /// Whether a second tier like this one would be of no use beside it.
            pub fn is_same(self, other: TierKind) -> bool {
                match (self, other) {
                    $((TierKind::$type(one), TierKind::$type(other)) => one.is_same(other),)+
                    _ => false,
                }
            }

            /// Compressor and level, where it has one.
            pub fn algorithm(self) -> Option<(&'static str, i32)> {
                match self { $(TierKind::$type(kind) => kind.algorithm()),+ }
            }

            /// Whether it is the file.
            pub fn is_file(self) -> bool {
                match self { $(TierKind::$type(_) => <$type as Kind>::IN_FILE),+ }
            }

            /// The order of the units that it would have folios cut into.
            pub(crate) fn unit_order(self) -> Option<Order> {
                match self { $(TierKind::$type(kind) => kind.unit_order()),+ }
            }

            /// The tier as it runs, where units are of an order at most.
            pub(crate) fn settle(self, order: Order) -> Tier {
                match self {
                    $(TierKind::$type(kind) => Tier {
                        kind: Number::$type as u8,
                        in_pool: <$type as Kind>::IN_POOL,
                        in_file: <$type as Kind>::IN_FILE,
                        is_synchronous: <$type as Kind>::IS_SYNCHRONOUS,
                        parameters: kind.settle(order),
                    },)+
                }
            }
        }

        impl<I: FileIo> Tiers<I> {
            /// Maps and opens what a tier needs.
            pub(crate) fn set_up(
                &mut self,
                tier: usize,
                asked: &SetUp<'_>,
                regions: &mut Regions,
            ) -> Result<(), InitError> {
                match self.order.tier(tier).kind {
                    $(kind if kind == Number::$type as u8 => <$type as Kind>::set_up(self, tier, asked, regions),)+
                    _ => Ok(()),
                }
            }

            /// Offers a unit to a tier.
            ///
            /// # Errors
            /// See [`Kind::put`].
            pub(crate) fn offer(&self, tier: usize, unit: &mut Unit<'_>, worker: &mut Worker) -> Result<(), StoreError> {
                let Tier { kind, parameters, .. } = self.order.tier(tier);
                match kind {
                    $(_ if kind == Number::$type as u8 => <$type as Kind>::put(self, tier, parameters, unit, worker),)+
                    _ => Err(StoreError::Full),
                }
            }

            /// Reads what one unit of a tier has of `out`, from `slot` on, whose record is this. Returns the pages read; `None`
            /// where the unit was moved meanwhile.
            pub(crate) fn read_unit(
                &self,
                tier: usize,
                shard: Guard<'_, Shard>,
                record: Record,
                slot: u32,
                out: &mut [u8],
                worker: &mut Worker,
            ) -> Result<Option<usize>, StoreError> {
                match self.order.tier(tier).kind {
                    $(kind if kind == Number::$type as u8 => {
                        <$type as Kind>::get(self, tier, shard, record, slot, out, worker)
                    })+
                    _ => Err(StoreError::Corrupt),
                }
            }

            /// Frees a slot. With `wipe`, its object is overwritten first, if no other slot shares it.
            pub(crate) fn free_slot(&self, slot: SlotId, wipe: bool) {
                if !self.records.in_range(slot, 1) {
                    return;
                }
                let shard = self.records.lock(slot.0);
                let record = self.records.get(&shard, slot.0);
                let Some(tier) = record.tier() else { return };
                self.records.put(&shard, slot.0, Record::default());
                match self.order.tier(tier).kind {
                    $(kind if kind == Number::$type as u8 => {
                        <$type as Kind>::free(self, tier, shard, record, slot.0, wipe)
                    })+
                    _ => {}
                }
            }
        }
    };
}

/// Bytes of the longest name of a kind, with a NUL.
pub const KIND_NAME_BYTES: usize = 16;

kinds! {
    "ram" ram::Ram = "pages in RAM as they are"
    "compressed" compressed::Compressed = "compressed pages in RAM"
    "file" file::File = "an encrypted file without a name; always the last tier"
}

impl<I: FileIo> Tiers<I> {
    /// Reads what one unit has of `out`, from `slot` on. Returns the pages read.
    pub(crate) fn get_unit(&self, slot: u32, out: &mut [u8], worker: &mut Worker) -> Result<usize, StoreError> {
        loop {
            let shard = self.records.lock(slot);
            let record = self.records.get(&shard, slot);
            let tier = record.tier().ok_or(StoreError::Corrupt)?;
            if let Some(pages) = self.read_unit(tier, shard, record, slot, out, worker)? {
                return Ok(pages);
            }
        }
    }

    /// Whether reading `slot` needs no file (see "synchronous store").
    pub fn is_synchronous(&self, slot: SlotId) -> bool {
        if self.order.all_synchronous {
            return true;
        }
        let shard = self.records.lock(slot.0);
        let tier = self.records.get(&shard, slot.0).tier();
        tier.is_none_or(|tier| self.order.tier(tier).is_synchronous)
    }

    /// Whether `slot` takes memory, or the file has little room left.
    pub(crate) fn is_scarce(&self, slot: SlotId) -> bool {
        let Some(file) = self.order.file else { return true };
        // Where it is the first tier, all is in it.
        let is_in_file = file == 0 || self.records.get(&self.records.lock(slot.0), slot.0).tier() == Some(file);
        !is_in_file || self.file.is_tight() || self.file_in_memory.load(Relaxed)
    }
}
