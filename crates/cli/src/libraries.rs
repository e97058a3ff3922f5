//! Finds the libraries that are loaded into the program.
use crate::{elf, place};
use outswap_control::{LIBRARIES, Library};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The runtime.
pub const PRELOAD: &str = "liboutswap_preload.so";
/// The allocator.
pub const MALLOC: &str = "liboutswap_malloc.so";

/// What the executable carries.
#[cfg(feature = "bundled")]
const BUNDLED: &[(&str, &[u8])] = &[
    (PRELOAD, include_bytes!(concat!(env!("OUT_DIR"), "/libraries/release/liboutswap_preload.so"))),
    (MALLOC, include_bytes!(concat!(env!("OUT_DIR"), "/libraries/release/liboutswap_malloc.so"))),
];

/// Where the libraries lie: beside this executable, in `../lib/outswap` seen from it, or where it puts those that it carries.
pub fn directory() -> Result<PathBuf, String> {
    let exe = std::fs::read_link("/proc/self/exe").map_err(|e| format!("/proc/self/exe: {e}"))?;
    let beside = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
    let installed = beside.parent().map(|up| up.join("lib/outswap"));
    let mut searched = [Some(beside.clone()), installed].into_iter().flatten();
    searched.find(|d| d.join(PRELOAD).is_file()).map_or_else(|| carried(&beside), Ok)
}

#[cfg(feature = "bundled")]
fn carried(_: &Path) -> Result<PathBuf, String> {
    let hash = env!("BUNDLED_HASH").parse().expect("the build script writes a number");
    place::files(hash, BUNDLED)
        .map_err(|why| format!("{PRELOAD} can be put nowhere ({why}): install Outswap with make install"))
}

#[cfg(not(feature = "bundled"))]
fn carried(beside: &Path) -> Result<PathBuf, String> {
    Err(format!(
        "{PRELOAD} is neither in {0} nor in {0}/../lib/outswap, or cannot be looked at there: install Outswap whole, in its source by \
         make install, or by cargo install --path crates/cli --features bundled",
        beside.display()
    ))
}

/// Why a library cannot be loaded, as far as its file tells.
pub fn damage(path: &str) -> Option<String> {
    match File::open(path).and_then(|file| elf::is_whole(&file)) {
        Ok(true) => None,
        Ok(false) => Some("it is cut short".into()),
        Err(e) => Some(e.to_string()),
    }
}

/// The value of `LD_PRELOAD` for managed programs, without what was in it before.
pub fn preload(directory: &Path, with_malloc: bool) -> Result<String, String> {
    let names: &[&str] = if with_malloc { &[PRELOAD, MALLOC] } else { &[PRELOAD] };
    if let Some(missing) = names.iter().map(|name| directory.join(name)).find(|path| !path.is_file()) {
        return Err(format!("{} is missing: install Outswap whole, or use --malloc keep", missing.display()));
    }
    let linked = (!place::is_plain(directory)).then(|| place::links(directory, names)).transpose().map_err(|why| {
        let directory = directory.display();
        format!(
            "LD_PRELOAD takes no path with a space or colon in it, as in {directory}, and links to it can be made nowhere ({why}): \
             install Outswap elsewhere"
        )
    })?;
    let directory = linked.as_deref().unwrap_or(directory);
    let paths: Vec<_> = names.iter().map(|name| directory.join(name).to_string_lossy().into_owned()).collect();
    Ok(paths.join(":"))
}

/// What the libraries are that a value of `LD_PRELOAD` of ours names. Of one that cannot be read nothing is known: no program loads it, which
/// shows before one starts. They are looked at once: the trial's process has that from the one that makes it.
pub fn known(preload: &str) -> [Library; LIBRARIES] {
    static KNOWN: OnceLock<(String, [Library; LIBRARIES])> = OnceLock::new();
    let (name, libraries) = KNOWN.get_or_init(|| (preload.to_string(), look_at(preload)));
    if name == preload { *libraries } else { look_at(preload) }
}

fn look_at(preload: &str) -> [Library; LIBRARIES] {
    let look = |path: &str| {
        let file = File::open(path).ok()?;
        // What is no library is hashed whole: none of it is loaded.
        let loaded = elf::loaded_end(&file).ok().flatten();
        let end = loaded.or_else(|| Some(file.metadata().ok()?.len()))?;
        Library::of(file.as_raw_fd(), end).ok()
    };
    let mut known = [Library::NONE; LIBRARIES];
    for (library, path) in known.iter_mut().zip(preload.split(':')) {
        *library = look(path).unwrap_or(Library::NONE);
    }
    known
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
    fn names_what_is_missing_and_links_what_cannot_be_named() {
        let dir = std::env::temp_dir().join(format!("outswap lib {}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        assert!(preload(&dir, false).expect_err("nothing there").contains("missing"));
        std::fs::write(dir.join(PRELOAD), b"").expect("writable");
        let value = preload(&dir, false).expect("a link to it can be made");
        assert!(value.ends_with("/liboutswap_preload.so") && place::is_plain(Path::new(&value)), "{value}");
        assert_eq!(std::fs::canonicalize(&value).ok(), std::fs::canonicalize(dir.join(PRELOAD)).ok());
        let _ = std::fs::remove_dir_all(Path::new(&value).parent().expect("it has a directory"));
        let _ = std::fs::remove_dir_all(&dir);
    }
}
