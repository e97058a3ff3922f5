//! What `outswap run --stats` wrote.
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Reads it.
///
/// # Panics
/// Where there is none, or something else than JSON.
pub fn read(file: impl AsRef<Path>) -> Value {
    let file = file.as_ref();
    let bytes = fs::read(file).unwrap_or_else(|e| panic!("no statistics in {}: {e}", file.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{} is no JSON: {e}", file.display()))
}

/// Whether no page came back wrong, or not at all; else which problem was counted.
pub fn nothing_lost(stats: &Value) -> Result<(), String> {
    for problem in ["corruptions", "store_errors"] {
        if stats["problems"][problem] != 0 {
            return Err(format!("{problem}: {}", stats["problems"][problem]));
        }
    }
    Ok(())
}
