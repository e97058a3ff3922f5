//! The directory of the swap file.
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Proves that the swap file can be made, by making one.
pub fn check(directory: &Path) -> Result<(), String> {
    use std::io::{Error, ErrorKind};
    let attempt = || {
        let unnamed =
            OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory);
        match unnamed {
            Ok(_) => return Ok(()),
            // Not every file system knows unnamed files.
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
                return Err(e);
            }
            Err(_) => {}
        }
        if !directory.is_dir() {
            return Err(Error::from(ErrorKind::NotADirectory));
        }
        let name = directory.join(format!(".outswap-try-{}", std::process::id()));
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name)?;
        std::fs::remove_file(&name)
    };
    attempt().map_err(|e| {
        format!(
            "--swap-dir: no swap file can be made in {}: {e} (name another directory, or leave the file out: \
             --swap compressed)",
            directory.display()
        )
    })
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
