//! What a failed system call returns: a negative error number.
use outswap_sys::Errno;

/// What a call returns that fails.
pub const fn error(e: Errno) -> isize {
    -(e.0 as isize)
}

pub const EACCES: isize = error(Errno::EACCES);
pub const EAGAIN: isize = error(Errno::EAGAIN);
pub const EBADF: isize = error(Errno::EBADF);
pub const EBUSY: isize = error(Errno::EBUSY);
pub const EEXIST: isize = error(Errno::EEXIST);
pub const EFAULT: isize = error(Errno::EFAULT);
pub const EFBIG: isize = error(Errno::EFBIG);
pub const EINVAL: isize = error(Errno::EINVAL);
pub const EIO: isize = error(Errno::EIO);
pub const ENOMEM: isize = error(Errno::ENOMEM);
pub const ENOSYS: isize = error(Errno::ENOSYS);
pub const EPERM: isize = error(Errno::EPERM);
pub const ESRCH: isize = error(Errno::ESRCH);
