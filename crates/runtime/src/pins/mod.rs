//! Assistance for system calls: what their arguments point to is made resident and kept so until they return.

mod call;
mod arguments;
mod copy;

pub use arguments::{UNCUT, pinned};
pub use call::{CallPins, acquire, build_direct, build_more, build_more_direct, free_dead};
pub use copy::{copy_in, copy_in_u32, copy_out, each_iovec, keep, read, write};
