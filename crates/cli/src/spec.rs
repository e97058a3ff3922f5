//! The swap specification: a comma-separated list of tiers, fastest first. What kinds there are, and their options, the store
//! says.
use crate::{device, size};
use outswap_control::MAX_TIERS;
use outswap_store::{SEGMENT_BYTES, TierConfig, TierKind};

/// Tiers where none are given.
pub const DEFAULT: &str = "compressed,file";
/// How the device begins that the tier before it is slowed to.
const MODEL: &str = "model=";
/// The smallest limit of a tier in memory: one 64 KiB folio.
const MIN_TIER_BYTES: u64 = 64 << 10;
/// That of a file, whose room is had by so much.
const MIN_FILE_BYTES: u64 = SEGMENT_BYTES as u64;

/// How each kind of tier is written and what it is, a line each.
pub fn help() -> String {
    let written = |(name, options, _): &(&str, &str, &str)| format!("{name}{options}[:MAX]");
    let width = TierKind::ALL.iter().map(|kind| written(kind).len()).max().unwrap_or(0);
    let kinds: String = TierKind::ALL.iter().map(|kind| format!("  {:width$} {}\n", written(kind), kind.2)).collect();
    let [least, of_file] = [MIN_TIER_BYTES, MIN_FILE_BYTES].map(size::exact);
    format!(
        "{kinds}  MAX is at least {least}, of a file {of_file}. Behind a tier, ,{MODEL}{} slows it to a device.\n",
        device::choice()
    )
}

/// The names of all kinds, as in "a, b and c".
fn names() -> String {
    let names: Vec<_> = TierKind::ALL.iter().map(|(name, ..)| *name).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Reads a specification. Percentages are of `machine_bytes`.
pub fn parse(text: &str, machine_bytes: u64) -> Result<Vec<TierConfig>, String> {
    let mut tiers: Vec<TierConfig> = Vec::new();
    for word in text.split(',') {
        if let Some(name) = word.strip_prefix(MODEL) {
            let tier = tiers.last_mut().ok_or_else(|| format!("'{word}' stands behind no tier"))?;
            if !tier.device.is_none() {
                return Err(format!("'{word}' is the second device of one tier"));
            }
            tier.device = device::find(name).map_err(|e| format!("'{word}': {e}"))?;
            continue;
        }
        let tier = parse_tier(word, machine_bytes)?;
        if tiers.iter().any(|t| t.kind.is_file()) {
            return Err(format!("'{word}' comes after the file: the file is the last tier"));
        }
        if tiers.iter().any(|t| t.kind.is_same(tier.kind)) {
            return Err(format!("'{word}' names the same tier twice"));
        }
        if tiers.len() == MAX_TIERS {
            return Err(format!("'{text}' has more than {MAX_TIERS} tiers"));
        }
        tiers.push(tier);
    }
    Ok(tiers)
}

fn parse_tier(word: &str, machine_bytes: u64) -> Result<TierConfig, String> {
    let mut fields = word.split(':').peekable();
    let name = fields.next().unwrap_or_default();
    if name.is_empty() {
        return Err(format!("a tier is empty (tiers are {})", names()));
    }
    let kind = TierKind::parse(name, &mut fields);
    let kind = kind.ok_or_else(|| format!("'{name}' is not a tier (tiers are {})", names()))?;
    let kind = kind.map_err(|e| format!("'{word}': '{}' {}", e.word, e.why))?;
    let mut max_bytes = 0;
    if let Some(max) = fields.next() {
        max_bytes = size::parse(max, machine_bytes).map_err(|e| format!("'{word}': {e}"))?;
        let (what, least) = if kind.is_file() { ("file", MIN_FILE_BYTES) } else { ("tier", MIN_TIER_BYTES) };
        if max_bytes < least {
            return Err(format!("'{word}': a {what} of less than {} is of no use", size::exact(least)));
        }
    }
    match fields.next() {
        None => Ok(TierConfig::new(kind, max_bytes)),
        Some(rest) => Err(format!("'{word}': nothing was expected at ':{rest}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_store::{Algorithm, Compressed, File, Ram};
    const GIB: u64 = 1 << 30;

    #[test]
    fn reads_every_form() {
        let t = |kind, max_bytes| TierConfig::new(kind, max_bytes);
        let (ram, file) = (TierKind::Ram(Ram), TierKind::File(File));
        let lz4 = TierKind::Compressed(Compressed(Algorithm::Lz4));
        let zstd = |level| TierKind::Compressed(Compressed(Algorithm::Zstd(level)));
        for (text, want) in [
            (DEFAULT, vec![t(lz4, 0), t(file, 0)]),
            ("ram", vec![t(ram, 0)]),
            ("ram:1G", vec![t(ram, GIB)]),
            ("compressed:lz4", vec![t(lz4, 0)]),
            ("compressed:2G", vec![t(lz4, 2 * GIB)]),
            ("compressed:lz4:25%", vec![t(lz4, 2 * GIB)]),
            ("compressed:zstd", vec![t(zstd(0), 0)]),
            ("compressed:zstd:19", vec![t(zstd(19), 0)]),
            ("compressed:zstd:-7:1G", vec![t(zstd(-7), GIB)]),
            ("compressed:zstd:1G", vec![t(zstd(0), GIB)]),
            ("compressed:256Mi", vec![t(lz4, 256 << 20)]),
            ("compressed:zstd:1Gi,file:4Gi", vec![t(zstd(0), GIB), t(file, 4 * GIB)]),
            ("file:512 MiB", vec![t(file, 512 << 20)]),
            (
                "ram:64M,compressed:lz4:1G,compressed:zstd:3:2G,file:4G",
                vec![t(ram, 64 << 20), t(lz4, GIB), t(zstd(3), 2 * GIB), t(file, 4 * GIB)],
            ),
        ] {
            assert_eq!(parse(text, 8 * GIB), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_device_is_that_of_the_tier_before_it() {
        let tiers = parse("ram:1G,model=hdd,compressed,file,model=ssd", 8 * GIB).expect("three tiers");
        assert_eq!(tiers.iter().map(|t| device::name(&t.device)).collect::<Vec<_>>(), [Some("hdd"), None, Some("ssd")]);
        assert!(tiers[1].device.is_none() && tiers[0].max_bytes == GIB);
        assert!(help().contains(",model=hdd|ssd|nvme|FILE.toml"));
    }

    #[test]
    fn every_kind_goes_through_the_control_block() {
        let levels = [-7, -1, 1, 19].map(|level| format!("compressed:zstd:{level}"));
        let plain = TierKind::ALL.iter().map(|(name, ..)| (*name).to_owned());
        for text in plain.chain(levels) {
            let kind = parse(&text, GIB).expect("a kind's name, and an option")[0].kind;
            assert!(text.starts_with(kind.name()) && kind.name().len() < outswap_control::TIER_KIND_BYTES);
            assert_eq!(TierKind::unpack(kind.name().as_bytes(), kind.pack()), Some(kind), "{text}");
            assert!(help().contains(kind.name()));
        }
        assert_eq!(TierKind::unpack(b"disk", [0; 2]), None);
        assert_eq!(TierKind::unpack(b"compressed", [2, 0]), None);
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
            ("file:1K", "256K"),
            ("file:255K", "256K"),
            ("ram:63K", "64K"),
            ("file:1G:2G", "nothing was expected"),
            ("ram:", "not a size"),
            ("model=hdd", "no tier"),
            ("file,model=hdd,model=ssd", "second device"),
            ("file,model=tape", "not a device"),
            ("file,model=", "not a device"),
        ] {
            let error = parse(text, 8 * GIB).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
