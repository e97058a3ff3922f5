//! Makes the control block that the program inherits.
use crate::args::RunOptions;
use outswap_engine::control::{Control, MAGIC, Tier, VERSION};
use outswap_sys::os;
use std::os::unix::ffi::OsStrExt;

/// Lowest number the inherited descriptor gets where the limit allows it.
const LOW_FD: usize = 100;
/// Limit the number is taken from where the real one is higher. A process's descriptor table is as long as its
/// highest descriptor, and is copied at each fork, so a number just below a limit of a million would be dear.
const HIGH_FD: usize = 1024;
/// Descriptors left free above it.
const SPARE_FDS: usize = 16;

const MFD_CLOEXEC: usize = 1;
const MFD_NOEXEC_SEAL: usize = 8;

/// The control block, mapped here for the life of the process.
pub struct Block {
    /// The block.
    pub control: &'static Control,
    /// The descriptor that the program inherits, where it does.
    pub fd: Option<i32>,
}

/// Makes and fills the block. `preload` is the value of `LD_PRELOAD` that managed children get first; without one,
/// the program is not to find the block, and the descriptor is not kept.
pub fn make(options: &RunOptions, preload: Option<&str>) -> Result<Block, String> {
    let fail = |what: &str, e: outswap_sys::Errno| format!("cannot make the control block: {what}: {e:?}");
    let length = size_of::<Control>();
    let name = b"outswap-control\0";
    let memory = os::memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL)
        // Kernels before 6.3 do not know that flag.
        .or_else(|_| os::memfd_create(name, MFD_CLOEXEC))
        .map_err(|e| fail("memfd_create", e))?;
    os::ftruncate(memory, length as u64).map_err(|e| fail("ftruncate", e))?;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { os::mmap(0, length, os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED, memory, 0) }
        .map_err(|e| fail("mmap", e))?;
    let pointer = at as *mut Control;
    // SAFETY: the mapping is as long as the block, page-aligned and zero, which is a valid value of every field; it
    // is never unmapped, and nobody else knows of it before the reference is shared.
    let control = unsafe {
        let control = &mut *pointer;
        control.magic = MAGIC;
        control.version = VERSION;
        control.supervisor_pid = os::getpid();
        let config = &mut control.config;
        config.ram_bytes = options.ram_bytes;
        config.resident_bytes = options.resident_bytes;
        config.fault_source = options.fault_source;
        config.no_follow = options.no_follow.into();
        config.keep_malloc = options.keep_malloc.into();
        for (to, from) in config.tiers.iter_mut().zip(&options.tiers) {
            *to = Tier::default();
            to.kind = from.kind;
            to.algorithm = from.algorithm;
            to.level = from.level;
            to.max_bytes = from.max_bytes;
        }
        put(&mut config.swap_dir, options.swap_dir.as_os_str().as_bytes(), "the path of --swap-dir")?;
        put(&mut config.preload, preload.unwrap_or_default().as_bytes(), "the path of the libraries")?;
        &*pointer
    };
    let fd = match preload {
        Some(_) => Some(inheritable(memory).map_err(|e| fail("fcntl", e))?),
        None => None,
    };
    os::close(memory).map_err(|e| fail("close", e))?;
    Ok(Block { control, fd })
}

/// Copies a text into a field that ends it with a NUL.
fn put(field: &mut [u8], text: &[u8], what: &str) -> Result<(), String> {
    if text.len() >= field.len() || text.contains(&0) {
        return Err(format!("{what} is too long ({} bytes; {} fit)", text.len(), field.len() - 1));
    }
    field[..text.len()].copy_from_slice(text);
    Ok(())
}

/// A copy of a descriptor that lives through exec, at a number that programs seldom touch.
fn inheritable(fd: i32) -> outswap_sys::Result<i32> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    let soft = if known { usize::try_from(limit.rlim_cur).unwrap_or(HIGH_FD) } else { HIGH_FD };
    os::fcntl(fd, os::F_DUPFD, lowest_fd(soft)).map(|fd| fd as i32)
}

fn lowest_fd(soft_limit: usize) -> usize {
    let wanted = soft_limit.min(HIGH_FD).saturating_sub(SPARE_FDS);
    if wanted >= LOW_FD { wanted } else { soft_limit / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_high_but_not_dear() {
        for (limit, lowest) in [(1024, 1008), (1 << 30, 1008), (256, 240), (116, 100), (64, 32), (8, 4)] {
            assert_eq!(lowest_fd(limit), lowest);
        }
    }

    #[test]
    fn texts_must_fit() {
        let mut field = [0u8; 4];
        assert!(put(&mut field, b"abc", "x").is_ok() && field == *b"abc\0");
        assert!(put(&mut field, b"abcd", "x").is_err());
    }
}
