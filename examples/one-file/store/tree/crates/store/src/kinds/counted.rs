//! Compressed pages in RAM, counted: how many units went in, were read, and left again.
use super::compressed::Compressed;
use super::unit::Unit;
use super::{Kind, OptionError, Parameters, Words};
use crate::compress::Worker;
use crate::io::FileIo;
use crate::lock::Guard;
use crate::record::{Record, Shard};
use crate::state::Tiers;
use crate::stats::add;
use core::sync::atomic::AtomicU64;
use outswap_core::store::StoreError;
use outswap_core::units::Order;

/// Units that this process put into tiers of this kind.
pub static UNITS_IN: AtomicU64 = AtomicU64::new(0);
/// Reads of one unit, or of a part of it.
pub static UNITS_READ: AtomicU64 = AtomicU64::new(0);
/// Pages that were freed there.
pub static PAGES_FREED: AtomicU64 = AtomicU64::new(0);

/// As compressed RAM, with the same options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted(Compressed);

impl Kind for Counted {
    const OPTIONS: &'static str = Compressed::OPTIONS;
    const IN_POOL: bool = true;

    fn parse<'a>(words: &mut Words<'a>) -> Result<Counted, OptionError<'a>> {
        Compressed::parse(words).map(Counted)
    }
    fn pack(self) -> Parameters {
        self.0.pack()
    }
    fn unpack(parameters: Parameters) -> Option<Counted> {
        Compressed::unpack(parameters).map(Counted)
    }
    fn is_same(self, other: Counted) -> bool {
        self.0.is_same(other.0)
    }
    fn algorithm(self) -> Option<(&'static str, i32)> {
        self.0.algorithm()
    }
    fn unit_order(self) -> Option<Order> {
        self.0.unit_order()
    }
    fn settle(self, order: Order) -> Parameters {
        self.0.settle(order)
    }
    fn put<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        parameters: Parameters,
        unit: &mut Unit<'_>,
        worker: &mut Worker,
    ) -> Result<(), StoreError> {
        Compressed::put(store, tier, parameters, unit, worker)?;
        add(&UNITS_IN, 1);
        Ok(())
    }
    fn get<I: FileIo>(
        store: &Tiers<I>,
        tier: usize,
        shard: Guard<'_, Shard>,
        record: Record,
        slot: u32,
        out: &mut [u8],
        worker: &mut Worker,
    ) -> Result<Option<usize>, StoreError> {
        let pages = Compressed::get(store, tier, shard, record, slot, out, worker)?;
        add(&UNITS_READ, 1);
        Ok(pages)
    }
    fn free<I: FileIo>(store: &Tiers<I>, tier: usize, shard: Guard<'_, Shard>, record: Record, slot: u32, wipe: bool) {
        add(&PAGES_FREED, 1);
        Compressed::free(store, tier, shard, record, slot, wipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TierKind;
    use crate::tests::bed::Bed;
    use core::sync::atomic::Ordering::Relaxed;
    use outswap_core::slots::Unused;
    use outswap_core::store::Store;
    use outswap_core::units::{PAGE_BYTES, SlotId};

    #[test]
    fn every_unit_is_counted() {
        let mut words = "counted:zstd:1G".split(':').peekable();
        let name = words.next().expect("a name");
        let kind = TierKind::parse(name, &mut words).expect("it is registered").expect("its options are right");
        assert_eq!(TierKind::unpack(name.as_bytes(), kind.pack()), Some(kind));
        let mut bed = Bed::new(&[(kind, 0)], 64);
        let worker = bed.worker();
        let content = vec![7; 16 * PAGE_BYTES];
        bed.store.put(SlotId(16), &content, worker).expect("room");
        let mut out = vec![0; 16 * PAGE_BYTES];
        bed.store.get(SlotId(16), &mut out, worker).expect("it is stored");
        assert!(out == content);
        (16..32).for_each(|slot| bed.store.free(Unused::vouched(SlotId(slot))));
        // Four units of four pages each.
        assert_eq!([&UNITS_IN, &UNITS_READ, &PAGES_FREED].map(|count| count.load(Relaxed)), [4, 4, 16]);
    }
}
