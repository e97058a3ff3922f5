//! What processes of the tree have to say: the supervisor prints it.
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32};

/// Bytes of one message.
pub const MESSAGE_BYTES: usize = 240;

/// One message for the supervisor's standard error.
#[repr(C)]
pub struct Message {
    /// 0: free; positive: the process that writes it; [`READY`]: written.
    pub state: AtomicI32,
    /// Length of the text.
    pub len: AtomicU32,
    /// The text, without the `outswap: ` at its head.
    pub text: [AtomicU8; MESSAGE_BYTES],
}
/// State of a message that is written.
pub const READY: i32 = -1;

/// What is said once in a run, though it holds for every process from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Once {
    /// There are more processes than records.
    Full,
    /// A process has no swap file.
    NoFile,
    /// A process that is not the first has none, where the first has one.
    NoFileLater,
    /// A system call names more memory than may be resident at once.
    TooLong,
    /// A shared object is the kernel's now.
    SharedIsWhole,
    /// Private memory is the kernel's now, for a userfaultfd of the program's.
    Given,
    /// Strict mode of seccomp is refused.
    Strict,
    /// A process that would share descriptors, but not memory, is refused.
    SharedFiles,
    /// To be told of calls, the runtime's among them, is refused.
    Dispatch,
    /// That memory becomes executable no more is refused.
    CodeKept,
    /// The limit is exceeded. Who says so knows why.
    Exceeded,
    /// A program waits for room. The same.
    Waits,
}
impl Once {
    pub(crate) fn text(self) -> &'static [u8] {
        match self {
            Once::Full => b"warning: too many managed processes: some obey the limit, but do not count in it",
            Once::NoFile => b"warning: the swap file cannot be made (see --swap-dir); nothing is written to disk",
            Once::NoFileLater => {
                b"warning: a process of the run cannot make a swap file of its own (see --swap-dir): it writes nothing to disk"
            }
            Once::TooLong => {
                b"warning: a system call names more memory at once than half of what may be resident: it fails with ENOMEM (give more --ram)"
            }
            Once::SharedIsWhole => {
                b"warning: shared anonymous memory was made whole for a fork, or for a call that needs it so: from then on it is not managed, and does not count in the limit"
            }
            Once::Given => {
                b"warning: memory that the program registered with a userfaultfd of its own is not managed from then on: it counts in the limit, and is never evicted"
            }
            Once::SharedFiles => {
                b"warning: clone with CLONE_FILES and without CLONE_VM is refused with EINVAL: a process with memory of its own has descriptors of its own here"
            }
            Once::Dispatch => {
                b"warning: Syscall User Dispatch is refused with EINVAL where it does not pass the calls of Outswap itself: it would end the program at the next page that is brought in"
            }
            Once::CodeKept => {
                b"warning: prctl(PR_SET_MDWE) is refused with EINVAL: code in managed memory could not be made executable again when it comes back (see --fault-source)"
            }
            Once::Exceeded => b"warning: the limit is exceeded rather than data lost",
            Once::Waits => b"warning: a program waits for room",
            Once::Strict => {
                b"warning: strict mode of seccomp is refused with EINVAL: it would kill the program at the next page that is brought in (run the program without Outswap)"
            }
        }
    }
}
