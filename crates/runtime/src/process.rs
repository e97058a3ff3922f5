//! What the kernel lets this process do: its capabilities and limits.
use crate::limits::FDS;
pub use outswap_sys::numbers::{fd_limit, with_all_descriptors};
use outswap_sys::{nr, os};

/// Locking without limit.
pub const CAP_IPC_LOCK: u32 = 14;

/// Whether this process has a capability, one of the first 32.
pub fn has_capability(number: u32) -> bool {
    #[repr(C)]
    struct Header(u32, i32);
    let header = Header(0x2008_0522, 0);
    let mut data = [0u32; 6];
    // SAFETY: version 3 of capget: a header and two records of three words.
    let ok = unsafe { outswap_sys::syscall2(nr::CAPGET, &raw const header as usize, data.as_mut_ptr() as usize) } == 0;
    ok && data[0] & 1 << number != 0
}

/// `RLIMIT_MEMLOCK`, in bytes.
pub fn mlock_limit_bytes() -> u64 {
    const RLIMIT_MEMLOCK: usize = 8;
    limit(RLIMIT_MEMLOCK)
}

/// How large a mapping that grows downwards may be.
pub fn stack_limit_bytes() -> u64 {
    const RLIMIT_STACK: usize = 3;
    limit(RLIMIT_STACK)
}

fn limit(resource: usize) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { outswap_sys::syscall4(nr::PRLIMIT64, 0, resource, 0, limit.as_mut_ptr() as usize) };
    limit[0]
}

/// The lowest number that [`raise`] gives where `min_fd` is wanted, or the control block's descriptors have.
pub fn lowest_fd(min_fd: i32) -> i32 {
    let soft = fd_limit();
    if soft < (min_fd + FDS) as usize { min_fd.min(soft as i32 / 2) } else { min_fd }
}

/// Moves a descriptor out of the program's way: to `min_fd` or above, or as high as a lowered limit allows.
pub fn raise(low: i32, min_fd: i32) -> i32 {
    const BELOW_LIMIT: usize = 16;
    let soft = fd_limit();
    for at in [min_fd as usize, soft.saturating_sub(BELOW_LIMIT), soft / 2] {
        if at > low as usize
            && let Ok(high) = os::fcntl(low, os::F_DUPFD_CLOEXEC, at)
        {
            let _ = os::close(low);
            return high as i32;
        }
    }
    low
}
