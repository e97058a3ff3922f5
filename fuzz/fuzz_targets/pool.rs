//! Objects in pools: compressed with LZ4, then with zstd, then as they are, in little room.
#![no_main]
mod common;

use libfuzzer_sys::fuzz_target;
use outswap_store::{Algorithm, Compressed, LiveIo, Ram, TierConfig, TierKind, Tiers, Worker};
use std::cell::RefCell;

thread_local! {
    static STORES: RefCell<(Vec<&'static Tiers<LiveIo>>, &'static mut Worker)> = RefCell::new({
        let tiers = [
            TierConfig::new(TierKind::Compressed(Compressed(Algorithm::Lz4)), 256 << 10),
            TierConfig::new(TierKind::Compressed(Compressed(Algorithm::Zstd(3))), 256 << 10),
            TierConfig::new(TierKind::Ram(Ram), 512 << 10),
        ];
        (common::stores(&tiers, || LiveIo), common::worker())
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((order, data)) = data.split_first() else { return };
    STORES.with(|stores| {
        let (stores, worker) = &mut *stores.borrow_mut();
        common::run(stores[*order as usize % stores.len()], worker, data, || false);
    });
});
