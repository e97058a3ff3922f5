//! Objects in pools: compressed with LZ4, then with zstd, then as they are, in little room.
#![no_main]
mod common;

use libfuzzer_sys::fuzz_target;
use outswap_store::{Algorithm, Config, LiveIo, TierConfig, TierKind, Tiers, Worker};
use std::cell::RefCell;

thread_local! {
    static STORE: RefCell<(&'static Tiers<LiveIo>, &'static mut Worker)> = RefCell::new({
        let tiers = [
            TierConfig { kind: TierKind::Compressed(Algorithm::Lz4), max_bytes: 256 << 10 },
            TierConfig { kind: TierKind::Compressed(Algorithm::Zstd(3)), max_bytes: 256 << 10 },
            TierConfig { kind: TierKind::Ram, max_bytes: 512 << 10 },
        ];
        let config = Config { tiers: &tiers, slots: common::SLOTS as u32, directory: b"/tmp", min_fd: 100 };
        (Tiers::init(&config).expect("memory for a small store"), common::worker())
    });
}

fuzz_target!(|data: &[u8]| {
    STORE.with(|store| {
        let (store, worker) = &mut *store.borrow_mut();
        common::run(store, worker, data, || false);
    });
});
