//! Sizes as people write them.

/// Reads a size: a number, perhaps with a fraction, and a binary unit (`K`, `M`, `G`, `T`, each alone or with `i`, `B` or `iB`
/// behind it), or a percentage of `machine_bytes`. One space before the unit is allowed, as [`show`] writes it.
pub fn parse(text: &str, machine_bytes: u64) -> Result<u64, String> {
    const SCALE: u128 = 1_000_000_000;
    let nonsense = || format!("'{text}' is not a size (write for example 512M, 512Mi, 1.5G or 25%)");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    // A space and nothing behind it is no unit.
    let unit = unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit);
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(nonsense()),
        Some(parts) => parts,
        None => (number, ""),
    };
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 9 || fraction.contains('.') {
        return Err(nonsense());
    }
    let digits = |s: &str| s.bytes().fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
    let scaled = digits(whole) * SCALE + digits(fraction) * 10u128.pow(9 - fraction.len() as u32);
    let unit = unit.to_ascii_uppercase();
    let bytes = if unit == "%" {
        if scaled > 100 * SCALE {
            return Err(format!("'{text}' is more than the machine's memory"));
        }
        scaled * u128::from(machine_bytes) / (100 * SCALE)
    } else {
        let shift = match unit.as_str() {
            "" | "B" => 0,
            "K" | "KI" | "KB" | "KIB" => 10,
            "M" | "MI" | "MB" | "MIB" => 20,
            "G" | "GI" | "GB" | "GIB" => 30,
            "T" | "TI" | "TB" | "TIB" => 40,
            _ => return Err(nonsense()),
        };
        if shift == 0 && !fraction.is_empty() {
            return Err(nonsense());
        }
        (scaled << shift) / SCALE
    };
    match u64::try_from(bytes) {
        Ok(0) => Err(format!("'{text}' is no memory at all")),
        // The kernel's file sizes are signed.
        Ok(n) if n <= i64::MAX as u64 => Ok(n),
        _ => Err(format!("'{text}' is too large")),
    }
}

/// Writes a size as it can be given, without loss: `16M`, `256K`.
pub fn exact(bytes: u64) -> String {
    match bytes.trailing_zeros() / 10 {
        0 => bytes.to_string(),
        1 => format!("{}K", bytes >> 10),
        2 => format!("{}M", bytes >> 20),
        _ => format!("{}G", bytes >> 30),
    }
}

/// Writes a size for people, with one decimal where that says more.
pub fn show(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit < 4 {
        value /= 1024.0;
        unit += 1;
    }
    let name = ["B", "KiB", "MiB", "GiB", "TiB"][unit];
    if unit == 0 || value >= 100.0 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: u64 = 1 << 30;

    #[test]
    fn reads_units_fractions_and_percentages() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("17B", 17),
            ("1K", 1024),
            ("1k", 1024),
            ("3KB", 3072),
            ("3KiB", 3072),
            ("512M", 512 << 20),
            ("512mib", 512 << 20),
            ("512Ki", 512 << 10),
            ("512Mi", 512 << 20),
            ("1Gi", GIB),
            ("1.5Gi", 3 * GIB / 2),
            ("2Ti", 2 << 40),
            ("512 MiB", 512 << 20),
            ("1.5 GiB", 3 * GIB / 2),
            ("17 B", 17),
            ("1.5G", 3 * GIB / 2),
            ("0.25G", GIB / 4),
            ("2T", 2 << 40),
            ("25%", 2 * GIB),
            ("12.5%", GIB),
            ("100%", 8 * GIB),
        ] {
            assert_eq!(parse(text, 8 * GIB), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for text in [
            "",
            " ",
            "M",
            "-1",
            "+5M",
            "5  M",
            "5 ",
            " 5M",
            "5M ",
            "5X",
            "5i",
            "5I",
            "5Mib5",
            "5MBi",
            "5MM",
            "5iB",
            "5BB",
            "1.2.3G",
            "1.",
            ".5G",
            "1.5",
            "0x10",
            "1e9",
            "%",
            "101%",
            "0",
            "0%",
            "0.0K",
            "99999999999T",
            "9223372036854775808",
            "123456789012345678901",
            "12ä",
            "1.5%%",
            "nan",
            "inf",
        ] {
            assert!(parse(text, 8 * GIB).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn reads_what_it_shows() {
        for bytes in [17, 3 << 10, 512 << 20, 3 * GIB / 2, GIB, 2 << 40] {
            assert_eq!(parse(&show(bytes), 8 * GIB), Ok(bytes), "{}", show(bytes));
            assert_eq!(parse(&exact(bytes), 8 * GIB), Ok(bytes), "{}", exact(bytes));
        }
    }

    #[test]
    fn shows_sizes() {
        assert_eq!(show(17), "17 B");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(512 << 20), "512 MiB");
        assert_eq!([1001, 64 << 10, 3 << 29, 2 << 40].map(exact), ["1001", "64K", "1536M", "2048G"]);
    }
}
