//! What the runtime must not call any more, because a filter of the program's own would end the process for it ([`crate::sandbox`]).
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use outswap_core::lock::SpinLock;

/// Held by who installs a filter: what comes to be avoided meanwhile is avoided for that one.
pub static INSTALLING: SpinLock<()> = SpinLock::new(());
static AVOIDED: AtomicU32 = AtomicU32::new(0);
const NAMES: u32 = 1;
const MEMORY: u32 = 2;
const OPEN: u32 = 4;
const DISPATCH: u32 = 8;
const CODE: u32 = 16;
const READS: u32 = 32;
const SENDS: u32 = 64;

/// In a forked child: nobody installs a filter.
pub fn forget() {
    // SAFETY: no other thread exists that could hold it.
    unsafe { INSTALLING.forget() };
}

/// All that is avoided, for [`again`].
pub fn all() -> u32 {
    AVOIDED.load(Relaxed)
}

/// Only what was avoided before is: what came to it was for a filter that was not installed.
pub fn again(before: u32) {
    AVOIDED.fetch_and(before, Relaxed);
}

/// Whether files can be named.
pub fn may_name_files() -> bool {
    AVOIDED.load(Relaxed) & NAMES == 0
}

/// Files are named no more.
pub fn avoid_names() {
    AVOIDED.fetch_or(NAMES, Relaxed);
}

/// Whether files can be opened by name, for all that is known.
pub fn may_open_files() -> bool {
    AVOIDED.load(Relaxed) & (NAMES | OPEN) == 0
}

/// Opening files by name is refused.
pub fn cannot_open() {
    AVOIDED.fetch_or(OPEN, Relaxed);
}

/// Whether memory can be read and written by calls that name the process.
pub fn may_name_memory() -> bool {
    AVOIDED.load(Relaxed) & MEMORY == 0
}

/// Such calls are made no more.
pub fn avoid_memory() {
    AVOIDED.fetch_or(MEMORY, Relaxed);
}

/// Whether code may be made and changed.
pub fn may_change_code() -> bool {
    AVOIDED.load(Relaxed) & CODE == 0
}

/// It is left as it is from here on.
pub fn leave_code() {
    AVOIDED.fetch_or(CODE, Relaxed);
}

/// Whether the kernel may be asked to tell of calls by where they come from ([`crate::dispatch`]).
pub fn may_dispatch() -> bool {
    AVOIDED.load(Relaxed) & DISPATCH == 0
}

/// It is asked no more.
pub fn avoid_dispatch() {
    AVOIDED.fetch_or(DISPATCH, Relaxed);
}

/// Whether the program's files may be read by descriptors that it has open.
pub fn may_read_its_files() -> bool {
    AVOIDED.load(Relaxed) & READS == 0
}

/// They are read no more.
pub fn avoid_reads() {
    AVOIDED.fetch_or(READS, Relaxed);
}

/// Whether what the program writes to a connection may be sent by calls that it does not make itself.
pub fn may_send() -> bool {
    AVOIDED.load(Relaxed) & SENDS == 0
}

/// Such calls are not made any more.
pub fn avoid_sends() {
    AVOIDED.fetch_or(SENDS, Relaxed);
}
