//! The swap specification: a comma-separated list of tiers, fastest first.
use crate::size;
use outswap_control::{MAX_TIERS, tier};

/// Tiers where none are given.
pub const DEFAULT: &str = "compressed,file";
/// The smallest limit of a tier: one 64 KiB folio.
const MIN_TIER_BYTES: u64 = 64 << 10;
/// Levels of zstd that are offered: the fast ones below zero, and those up to 19 that need no extra memory.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -7..=19;

/// One tier as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// `tier::RAM`, `tier::COMPRESSED` or `tier::FILE`.
    pub kind: u32,
    /// `tier::LZ4` or `tier::ZSTD`; meaningless for other kinds.
    pub algorithm: u32,
    /// Level of zstd, 0 for its default.
    pub level: i32,
    /// Limit, 0 for none.
    pub max_bytes: u64,
}

impl TierSpec {
    /// The kind's name in a specification.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            tier::RAM => "ram",
            tier::COMPRESSED => "compressed",
            _ => "file",
        }
    }
    /// The compressor's name, where there is one.
    pub fn algorithm_name(&self) -> Option<&'static str> {
        (self.kind == tier::COMPRESSED).then_some(if self.algorithm == tier::ZSTD { "zstd" } else { "lz4" })
    }
}

/// Reads a specification. Percentages are of `machine_bytes`.
pub fn parse(text: &str, machine_bytes: u64) -> Result<Vec<TierSpec>, String> {
    let mut tiers: Vec<TierSpec> = Vec::new();
    for word in text.split(',') {
        let tier = parse_tier(word, machine_bytes)?;
        if tiers.iter().any(|t| t.kind == tier::FILE) {
            return Err(format!("'{word}' comes after the file: the file is the last tier"));
        }
        if tiers.iter().any(|t| t.kind == tier.kind && t.algorithm == tier.algorithm) {
            return Err(format!("'{word}' names the same tier twice"));
        }
        if tiers.len() == MAX_TIERS {
            return Err(format!("'{text}' has more than {MAX_TIERS} tiers"));
        }
        tiers.push(tier);
    }
    Ok(tiers)
}

fn parse_tier(word: &str, machine_bytes: u64) -> Result<TierSpec, String> {
    let mut fields = word.split(':').peekable();
    let mut spec = TierSpec { kind: 0, algorithm: tier::LZ4, level: 0, max_bytes: 0 };
    spec.kind = match fields.next() {
        Some("ram") => tier::RAM,
        Some("compressed") => tier::COMPRESSED,
        Some("file") => tier::FILE,
        Some("") | None => {
            return Err("a tier is empty (tiers are ram, compressed and file)".into());
        }
        Some(other) => {
            return Err(format!("'{other}' is not a tier (tiers are ram, compressed and file)"));
        }
    };
    if spec.kind == tier::COMPRESSED {
        match fields.peek() {
            Some(&"lz4") => {
                fields.next();
            }
            Some(&"zstd") => {
                fields.next();
                spec.algorithm = tier::ZSTD;
                // A bare number is a level; a limit has a unit.
                if let Some(level) = fields.peek().and_then(|f| f.parse::<i32>().ok()) {
                    if level == 0 || !ZSTD_LEVELS.contains(&level) {
                        return Err(format!("'{word}': zstd levels are 1 to 19, and -1 to -7 for the fast ones"));
                    }
                    spec.level = level;
                    fields.next();
                }
            }
            Some(other) if other.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err(format!("'{word}': '{other}' is not a compressor (compressors are lz4 and zstd)"));
            }
            _ => {}
        }
    }
    if let Some(max) = fields.next() {
        spec.max_bytes = size::parse(max, machine_bytes).map_err(|e| format!("'{word}': {e}"))?;
        if spec.max_bytes < MIN_TIER_BYTES {
            return Err(format!("'{word}': a tier of less than 64K is of no use"));
        }
    }
    match fields.next() {
        None => Ok(spec),
        Some(rest) => Err(format!("'{word}': nothing was expected at ':{rest}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: u64 = 1 << 30;

    fn t(kind: u32, algorithm: u32, level: i32, max_bytes: u64) -> TierSpec {
        TierSpec { kind, algorithm, level, max_bytes }
    }

    #[test]
    fn reads_every_form() {
        let (ram, compressed, file) = (tier::RAM, tier::COMPRESSED, tier::FILE);
        for (text, want) in [
            (DEFAULT, vec![t(compressed, 0, 0, 0), t(file, 0, 0, 0)]),
            ("ram", vec![t(ram, 0, 0, 0)]),
            ("ram:1G", vec![t(ram, 0, 0, GIB)]),
            ("compressed:lz4", vec![t(compressed, 0, 0, 0)]),
            ("compressed:2G", vec![t(compressed, 0, 0, 2 * GIB)]),
            ("compressed:lz4:25%", vec![t(compressed, 0, 0, 2 * GIB)]),
            ("compressed:zstd", vec![t(compressed, tier::ZSTD, 0, 0)]),
            ("compressed:zstd:19", vec![t(compressed, tier::ZSTD, 19, 0)]),
            ("compressed:zstd:-7:1G", vec![t(compressed, tier::ZSTD, -7, GIB)]),
            ("compressed:zstd:1G", vec![t(compressed, tier::ZSTD, 0, GIB)]),
            (
                "ram:64M,compressed:lz4:1G,compressed:zstd:3:2G,file:4G",
                vec![
                    t(ram, 0, 0, 64 << 20),
                    t(compressed, 0, 0, GIB),
                    t(compressed, tier::ZSTD, 3, 2 * GIB),
                    t(file, 0, 0, 4 * GIB),
                ],
            ),
        ] {
            assert_eq!(parse(text, 8 * GIB), Ok(want), "{text}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for (text, word) in [
            ("", "empty"),
            ("compressed,,file", "empty"),
            ("disk", "not a tier"),
            ("File", "not a tier"),
            ("file,compressed", "last tier"),
            ("file,file", "last tier"),
            ("ram,ram", "twice"),
            ("compressed,compressed:lz4", "twice"),
            ("compressed:snappy", "not a compressor"),
            ("compressed:zstd:0", "levels"),
            ("compressed:zstd:20", "levels"),
            ("compressed:zstd:-8", "levels"),
            ("compressed:lz4:3:1G", "64K"),
            ("file:lots", "not a size"),
            ("file:0", "no memory"),
            ("file:1K", "64K"),
            ("file:1G:2G", "nothing was expected"),
            ("ram:", "not a size"),
        ] {
            let error = parse(text, 8 * GIB).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
