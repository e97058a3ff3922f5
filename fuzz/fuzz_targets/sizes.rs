//! Sizes as a user writes them: whatever is taken is shown in a way that is taken again, for the same number.
#![no_main]
#[path = "../../crates/cli/src/size.rs"]
mod size;

use libfuzzer_sys::fuzz_target;

const MACHINE_BYTES: u64 = 24 << 30;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bytes) = size::parse(text, MACHINE_BYTES) {
        let shown = size::show(bytes);
        assert!(!shown.is_empty());
        // What is shown may be rounded; what is exact comes back.
        if let Ok(again) = size::parse(&shown, MACHINE_BYTES) {
            assert!(again.abs_diff(bytes) <= bytes / 8, "{text}: {bytes} is shown as {shown}, {again}");
        }
    }
});
