//! What the kernel lets this process do: its capabilities and limits.
use crate::layout::{OWN_CALL, RLIMIT_NOFILE};
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

/// Descriptor numbers that this process may have (`RLIMIT_NOFILE`).
pub fn fd_limit() -> usize {
    let [soft, _] = fd_limits();
    soft.min(i32::MAX as u64) as usize
}

/// The soft limit, and the hard one.
fn fd_limits() -> [u64; 2] {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { outswap_sys::syscall5(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr() as usize, OWN_CALL) };
    limit
}

fn set_fd_limits(limit: [u64; 2]) -> bool {
    // SAFETY: `limit` has the layout of `struct rlimit64`, and lives through the call.
    unsafe { outswap_sys::syscall5(nr::PRLIMIT64, 0, RLIMIT_NOFILE, limit.as_ptr() as usize, 0, OWN_CALL) == 0 }
}

/// Runs `f`, which opens descriptors of the runtime's, with as many numbers as the kernel's hard limit allows. The caller is the
/// only thread of its process.
pub fn with_all_descriptors<R>(f: impl FnOnce() -> R) -> R {
    let found = fd_limits();
    let [soft, hard] = found;
    let is_raised = soft != hard && set_fd_limits([hard, hard]);
    let result = f();
    if is_raised {
        set_fd_limits(found);
    }
    result
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
