//! Finds the libraries that are loaded into the program.
use std::path::{Path, PathBuf};

/// The runtime.
pub const PRELOAD: &str = "liboutswap_preload.so";
/// The allocator.
pub const MALLOC: &str = "liboutswap_malloc.so";

/// Where the libraries lie: beside this executable, or in `../lib/outswap` seen from it.
pub fn directory() -> Result<PathBuf, String> {
    let exe = std::fs::read_link("/proc/self/exe").map_err(|e| format!("/proc/self/exe: {e}"))?;
    let beside = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
    let installed = beside.parent().map(|up| up.join("lib/outswap"));
    let found = [Some(beside.clone()), installed].into_iter().flatten().find(|d| d.join(PRELOAD).is_file());
    found.ok_or_else(|| {
        format!("{PRELOAD} is neither in {0} nor in {0}/../lib/outswap: install Outswap whole", beside.display())
    })
}

/// The value of `LD_PRELOAD` for managed programs, without what was in it before.
pub fn preload(directory: &Path, with_malloc: bool) -> Result<String, String> {
    let names: &[&str] = if with_malloc { &[PRELOAD, MALLOC] } else { &[PRELOAD] };
    let mut value = String::new();
    for name in names {
        let path = directory.join(name);
        if !path.is_file() {
            return Err(format!("{} is missing: install Outswap whole, or use --malloc keep", path.display()));
        }
        let text = path.to_str().filter(|t| !t.contains([' ', ':', '\t', '\n']));
        let text = text.ok_or_else(|| {
            let path = path.display();
            format!("{path}: LD_PRELOAD takes no path with a space or colon in it: install Outswap elsewhere")
        })?;
        if !value.is_empty() {
            value.push(':');
        }
        value.push_str(text);
    }
    Ok(value)
}

/// Puts `ours` in front of an existing `LD_PRELOAD`, from which entries of ours (a run inside a run) are dropped.
pub fn join(ours: &str, existing: &[u8]) -> Vec<u8> {
    let mut value = ours.as_bytes().to_vec();
    for entry in existing.split(|b| b" :".contains(b)).filter(|e| !e.is_empty()) {
        let name = entry.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if name != PRELOAD.as_bytes() && name != MALLOC.as_bytes() {
            value.push(b':');
            value.extend(entry);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_with_what_was_there() {
        assert_eq!(join("/a/p.so", b""), b"/a/p.so");
        assert_eq!(join("/a/p.so", b"/x/y.so  z.so:"), b"/a/p.so:/x/y.so:z.so");
        assert_eq!(join("/a/p.so", b"/old/liboutswap_preload.so:/old/liboutswap_malloc.so:/k.so"), b"/a/p.so:/k.so");
    }

    #[test]
    fn names_what_is_missing_and_what_cannot_be_named() {
        let dir = std::env::temp_dir().join(format!("outswap lib {}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        assert!(preload(&dir, false).expect_err("nothing there").contains("missing"));
        std::fs::write(dir.join(PRELOAD), b"").expect("writable");
        assert!(preload(&dir, false).expect_err("a space in it").contains("space or colon"));
        let _ = std::fs::remove_dir_all(&dir);
    }
}
