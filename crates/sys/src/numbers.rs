//! The numbers that descriptors of a process may have.
use crate::{OWN_CALL, nr, syscall5};

const RLIMIT_NOFILE: usize = 7;

/// Descriptor numbers that this process may have (`RLIMIT_NOFILE`).
pub fn fd_limit() -> usize {
    let [soft, _] = fd_limits();
    soft.min(i32::MAX as u64) as usize
}

/// The soft limit, and the hard one.
fn fd_limits() -> [u64; 2] {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has the layout of `struct rlimit64`.
    unsafe { syscall5(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr() as usize, OWN_CALL) };
    limit
}

fn set_fd_limits(limit: [u64; 2]) -> bool {
    // SAFETY: `limit` has the layout of `struct rlimit64`, and lives through the call.
    unsafe { syscall5(nr::PRLIMIT64, 0, RLIMIT_NOFILE, limit.as_ptr() as usize, 0, OWN_CALL) == 0 }
}

/// Runs `f`, which opens descriptors of the runtime's, with as many numbers as the kernel's hard limit allows. The caller is best the only
/// thread of its process: of others, one may get more numbers than it may have, and one that sets the limit just then has set it in vain.
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
