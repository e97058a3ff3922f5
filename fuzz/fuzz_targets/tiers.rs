//! Lists of tiers as a user writes them.
#![no_main]
#[path = "../../crates/cli/src/size.rs"]
#[allow(dead_code)]
mod size;
#[path = "../../crates/cli/src/spec.rs"]
#[allow(dead_code)]
mod spec;

use libfuzzer_sys::fuzz_target;
use outswap_control::MAX_TIERS;
use outswap_store::TierKind;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(tiers) = spec::parse(text, 24 << 30) {
        assert!(!tiers.is_empty() && tiers.len() <= MAX_TIERS, "{text}");
        for tier in &tiers {
            assert_eq!(TierKind::unpack(tier.kind.name().as_bytes(), tier.kind.pack()), Some(tier.kind), "{text}");
            let _ = tier.kind.algorithm();
        }
    }
});
