//! The directory of the swap file.
use outswap_store::{NewFile, TierConfig, make_file};
use outswap_sys::os;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where it is if nobody names one.
pub const DEFAULT: &str = "/var/tmp";

/// The directory to take where none is named: the one for temporary files, unless that lies in memory and another one does not.
pub fn default(temporary: Option<PathBuf>) -> PathBuf {
    let fallback = Path::new(DEFAULT);
    let is_better = |directory: &Path| is_memory(directory) && !is_memory(fallback) && check(fallback).is_ok();
    temporary.filter(|directory| !is_better(directory)).unwrap_or_else(|| fallback.to_path_buf())
}

/// Proves that a run with these tiers can have its swap file, where it is to have one. Gives what its user should know of the
/// directory.
pub fn check_for(tiers: &[TierConfig], directory: &Path) -> Result<Option<String>, String> {
    if !tiers.iter().any(|t| t.kind.is_file()) {
        return Ok(None);
    }
    check(directory)?;
    Ok(is_memory(directory).then(|| {
        let directory = directory.display();
        format!(
            "the swap directory {directory} lies in memory, so a swap file there saves none, and counts in --ram: name one on a disk by --swap-dir, or leave the \
             file out: --swap compressed"
        )
    }))
}

/// Proves that the swap file can be made, by making one.
pub fn check(directory: &Path) -> Result<(), String> {
    let path = [directory.as_os_str().as_bytes(), b"\0"].concat();
    let made = make_file(&path).map_err(|e| std::io::Error::from_raw_os_error(e.0));
    let NewFile { write_fd, read_fd } = made.map_err(|e| {
        format!(
            "no swap file can be made in {}: {e} (name another directory by --swap-dir, or leave the file out: \
             --swap compressed)",
            directory.display()
        )
    })?;
    // What cannot be closed is not there.
    let _ = os::close(write_fd).and(os::close(read_fd));
    Ok(())
}

fn c_path(directory: &Path) -> std::ffi::CString {
    std::ffi::CString::new(directory.as_os_str().as_bytes()).unwrap_or_default()
}

/// Bytes that a user may still write there; 0 where the system does not say.
pub fn free_bytes(directory: &Path) -> u64 {
    // SAFETY: the path is NUL-terminated, `info` has room for the answer, and all zeros is a valid value of it.
    unsafe {
        let mut info: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(c_path(directory).as_ptr(), &mut info) != 0 {
            return 0;
        }
        info.f_bavail.saturating_mul(info.f_frsize)
    }
}

/// Whether its file system lies in memory.
pub fn is_memory(directory: &Path) -> bool {
    const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;
    // SAFETY: as in `free_bytes`.
    unsafe {
        let mut info: libc::statfs = std::mem::zeroed();
        libc::statfs(c_path(directory).as_ptr(), &mut info) == 0
            && [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&info.f_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_in_memory_gives_way_to_one_on_a_disk() {
        let [memory, disk] = ["/dev/shm", "/proc"].map(PathBuf::from);
        assert!(!is_memory(&disk), "whatever it is, it is no tmpfs");
        assert_eq!(default(None), PathBuf::from(DEFAULT));
        assert_eq!(default(Some(disk.clone())), disk);
        let is_better = is_memory(&memory) && !is_memory(Path::new(DEFAULT)) && check(Path::new(DEFAULT)).is_ok();
        assert_eq!(default(Some(memory.clone())), if is_better { PathBuf::from(DEFAULT) } else { memory });
    }
}
