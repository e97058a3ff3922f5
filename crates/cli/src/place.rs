//! A directory of this user's own under a plain name, for libraries that cannot be named where they are: `LD_PRELOAD` ends names
//! at spaces and colons, and has no way to write them.
//!
//! It stays when the run is over: programs that outlive it execute others, which load the libraries by the same names.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where it may be, best first. All users can look into these, so a program that changes its user finds its libraries.
const BASES: [&str; 3] = ["/var/tmp", "/tmp", "/dev/shm"];

/// Whether `LD_PRELOAD` takes a path: what begins with a dollar sign, the dynamic linker replaces.
pub fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains([' ', ':', '\t', '\n', '$']))
}

/// A directory with links to the files of `directory` that have these names.
///
/// # Errors
/// Why there can be none, for the user.
pub fn links(directory: &Path, names: &[&str]) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    filled(hasher.finish(), |place| names.iter().try_for_each(|name| link(&directory.join(name), &place.join(name))))
}

/// A directory with libraries of these names and contents. `hash` tells contents apart.
///
/// # Errors
/// Why there can be none, for the user.
#[cfg_attr(not(any(test, feature = "bundled")), expect(dead_code))]
pub fn files(hash: u64, contents: &[(&str, &[u8])]) -> Result<PathBuf, String> {
    filled(hash, |place| contents.iter().try_for_each(|(name, bytes)| write(&place.join(name), bytes)))
}

/// The first directory that can be filled.
fn filled(hash: u64, fill: impl Fn(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut refused = Vec::new();
    for base in BASES.iter().map(PathBuf::from).chain(runtime) {
        let place = base.join(format!("outswap-{}-{hash:016x}", effective_user()));
        match own(&base, &place).and_then(|()| fill(&place)) {
            Ok(()) => return Ok(place),
            Err(why) => refused.push(format!("{}: {why}", base.display())),
        }
    }
    Err(refused.join("; "))
}

fn effective_user() -> u32 {
    // SAFETY: takes no pointers and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes `place`, a directory in `base`, unless it is there. Afterwards it is this user's, and nobody else can change or
/// replace it: what lies there is loaded into programs.
fn own(base: &Path, place: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    if !base.is_absolute() || !is_plain(base) {
        return Err("no plain path".into());
    }
    let meta = std::fs::metadata(base).map_err(text)?;
    let is_shared = meta.mode() & 0o022 != 0 && meta.mode() & libc::S_ISVTX == 0;
    if !meta.is_dir() || is_shared || ![0, effective_user()].contains(&meta.uid()) {
        return Err("others could replace what is in it".into());
    }
    match std::fs::DirBuilder::new().mode(0o755).create(place) {
        // Whatever the mask is: programs that change their user have to look into it.
        Ok(()) => std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).map_err(text)?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(text(e)),
    }
    let meta = std::fs::symlink_metadata(place).map_err(text)?;
    if !meta.is_dir() || meta.uid() != effective_user() || meta.mode() & 0o022 != 0 {
        return Err(format!("{} is not this user's alone", place.display()));
    }
    Ok(())
}

/// Puts a new file at `path`, which `make` makes elsewhere. Runs that start at the same time find the old or the new one, always a
/// whole one.
fn replace(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), String> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let _ = std::fs::remove_file(&fresh);
    make(&fresh).and_then(|()| std::fs::rename(&fresh, path)).map_err(|e| {
        let _ = std::fs::remove_file(&fresh);
        e.to_string()
    })
}

/// Makes `link` lead to `to`.
fn link(to: &Path, link: &Path) -> Result<(), String> {
    if std::fs::read_link(link).is_ok_and(|old| old == to) {
        return Ok(());
    }
    replace(link, |fresh| std::os::unix::fs::symlink(to, fresh))
}

/// Makes `path` a library with this content, and sees that it can be loaded from there.
fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if !std::fs::read(path).is_ok_and(|old| old == content) {
        replace(path, |fresh| {
            std::fs::write(fresh, content)?;
            std::fs::set_permissions(fresh, std::fs::Permissions::from_mode(0o644))
        })?;
    }
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    const BYTES: usize = 4096;
    // SAFETY: a new mapping of an open file, which goes away at once and is not looked at.
    let mapped = unsafe {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let at = libc::mmap(std::ptr::null_mut(), BYTES, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        at != libc::MAP_FAILED && libc::munmap(at, BYTES) == 0
    };
    // The file system may be mounted with noexec.
    if mapped { Ok(()) } else { Err("no library can be loaded from there".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes away.
    struct Dir(PathBuf);
    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("outswap-place {name} {}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir(&dir).expect("the temporary directory is writable");
            Dir(dir)
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_lead_to_the_files_and_are_mended() {
        let from = Dir::new("from");
        std::fs::write(from.0.join("a.so"), "1").expect("writable");
        let place = Dir(links(&from.0, &["a.so"]).expect("one of the bases is there"));
        assert!(is_plain(&place.0) && !is_plain(&from.0));
        let read = || std::fs::read_to_string(place.0.join("a.so")).expect("it leads to the file");
        assert_eq!(read(), "1");
        std::fs::remove_file(place.0.join("a.so")).expect("ours");
        std::os::unix::fs::symlink("/dev/null", place.0.join("a.so")).expect("ours");
        assert_eq!(links(&from.0, &["a.so"]).as_ref(), Ok(&place.0));
        assert_eq!(read(), "1");
        assert_eq!(std::fs::read_dir(&place.0).expect("readable").count(), 1, "nothing else is left in it");
    }

    #[test]
    fn files_are_whole_and_mended() {
        // A number that no other test has.
        let hash = u64::from(std::process::id()) << 32 | 0xf11e;
        let place = Dir(files(hash, &[("a.so", b"one"), ("b.so", b"two")]).expect("one of the bases is there"));
        std::fs::write(place.0.join("a.so"), "on").expect("ours");
        assert_eq!(files(hash, &[("a.so", b"one"), ("b.so", b"two")]).as_ref(), Ok(&place.0));
        let read = |name: &str| std::fs::read_to_string(place.0.join(name)).expect("it is there");
        assert_eq!((read("a.so").as_str(), read("b.so").as_str()), ("one", "two"));
        let mode = std::fs::metadata(place.0.join("a.so")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "others may read it");
        assert_eq!(std::fs::read_dir(&place.0).expect("readable").count(), 2, "nothing else is left in it");
    }

    #[test]
    fn a_place_that_others_can_change_is_none() {
        let base = Dir::new("base");
        let plain = std::env::temp_dir().join(format!("outswap-place-plain-{}", std::process::id()));
        let mode =
            |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        assert!(own(&base.0, &base.0.join("x")).expect_err("a space").contains("plain"));
        assert!(own(Path::new("relative"), &plain).is_err());
        std::fs::rename(&base.0, &plain).expect("the same directory");
        let base = Dir(plain);
        let place = base.0.join("x");
        mode(&base.0, 0o777);
        assert!(own(&base.0, &place).expect_err("all may rename in it").contains("replace"));
        mode(&base.0, 0o1777);
        own(&base.0, &place).expect("what is sticky is as good as our own");
        mode(&place, 0o775);
        assert!(own(&base.0, &place).expect_err("a group may write").contains("alone"));
        std::fs::remove_dir(&place).expect("empty");
        std::os::unix::fs::symlink("/tmp", &place).expect("ours");
        assert!(own(&base.0, &place).expect_err("a link").contains("alone"));
    }
}
