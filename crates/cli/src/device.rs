//! The devices that a tier can be slowed to: by their names, or as a file describes them.
use outswap_core::device::{Device, PRESETS};

/// The names, and how a file is given.
pub fn choice() -> String {
    let names: Vec<_> = PRESETS.iter().map(|(name, ..)| *name).collect();
    format!("{}|FILE.toml", names.join("|"))
}

/// The name of a device; `None` for one that a file describes.
pub fn name(device: &Device) -> Option<&'static str> {
    PRESETS.iter().find(|(_, known, _)| known == device).map(|(name, ..)| *name)
}

/// Finds a device by its name, or reads its description.
pub fn find(name: &str) -> Result<Device, String> {
    if let Some(device) = Device::named(name) {
        return Ok(device);
    }
    if !name.ends_with(".toml") {
        return Err(format!("'{name}' is not a device ({})", choice().replace('|', ", ")));
    }
    let text = std::fs::read_to_string(name).map_err(|e| format!("'{name}' cannot be read: {e}"))?;
    read(&text).map_err(|e| format!("'{name}': {e}"))
}

/// Reads a description: a table of the device's numbers, and with `like` those that it does not give.
fn read(text: &str) -> Result<Device, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let mut device = Device { depth: 1, ..Device::NONE };
    if let Some(like) = table.get("like") {
        let like = like.as_str().ok_or("'like' is not a name in quotes")?;
        device = Device::named(like).ok_or_else(|| format!("like = \"{like}\": there is no such device"))?;
    }
    for (name, value) in table.iter().filter(|(name, _)| *name != "like") {
        let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
        if !device.set(name, number.unwrap_or(0)) {
            return Err(format!("'{name}' is not one of like, {}", Device::NAMES.join(", ")));
        }
        number.ok_or_else(|| format!("'{name}' is not a whole number of 0 or more"))?;
    }
    match device.complaint() {
        None => Ok(device),
        Some((name, why)) => Err(format!("'{name}' {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_gives_what_is_unlike() {
        let ssd = Device::named("ssd").expect("a known name");
        assert_eq!(read("like = \"ssd\""), Ok(ssd));
        assert_eq!(read("like = \"ssd\"\ndepth = 4 # fewer\n"), Ok(Device { depth: 4, ..ssd }));
        assert_eq!(read("read_ns = 1_000"), Ok(Device { read_ns: 1000, depth: 1, ..Device::NONE }));
        assert_eq!((name(&ssd), name(&Device { depth: 4, ..ssd })), (Some("ssd"), None));
    }

    #[test]
    fn nonsense_is_told() {
        for (text, word) in [
            ("", "'read_ns' is missing"),
            ("speed = 3", "'speed' is not one of like, seek_min_ns"),
            ("lik = \"ssd\"", "'lik' is not one of like"),
            ("depth = -1", "'depth' is not a whole number"),
            ("depth = \"many\"", "'depth' is not a whole number"),
            ("like = 3", "'like' is not a name"),
            ("like = \"tape\"", "no such device"),
            ("like = \"hdd\"\nspan_bytes = 0", "'span_bytes' is missing"),
            ("read_ns", "key"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(find("tape").is_err_and(|e| e.contains("hdd, ssd, nvme, FILE.toml")));
        assert!(find("/nonexistent/device.toml").is_err_and(|e| e.contains("cannot be read")));
    }
}
