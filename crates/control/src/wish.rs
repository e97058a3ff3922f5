//! What one process of the tree wants of another's memory.
use crate::fingerprint::layout;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// What another process wants of a process's memory: that a range is in memory and stays there, because the kernel is to read it for
/// that other process, or to write to it. One at a time.
#[repr(C)]
pub struct Wish {
    /// The process that has the wish; 0: nobody.
    pub owner: AtomicU32,
    /// One of the constants below, and above it the number of the wish ([`Wish::NUMBER`]). Whoever waits for a change of it waits on this
    /// word.
    pub state: AtomicU32,
    /// 1: somebody lives in the process who fulfils wishes.
    pub served: AtomicU32,
    /// 0: no page of the process has ever left. 1: the first is about to, once nobody visits ([`Wish::VISIT`]). 2: pages come and go.
    pub takes: AtomicU32,
    /// Where the range begins, in the process whose record this is.
    pub addr: AtomicU64,
    /// Its length.
    pub bytes: AtomicU64,
}

impl Wish {
    /// Nothing is wished.
    pub const NONE: u32 = 0;
    /// To be read.
    pub const READ: u32 = 1;
    /// To be written to.
    pub const WRITE: u32 = 2;
    /// It is in memory, and stays there until the state is another.
    pub const HELD: u32 = 3;
    /// It cannot be had.
    pub const REFUSED: u32 = 4;
    /// The kernel reads the process's memory, or writes to it, for one that found that no page has left: none does meanwhile.
    pub const VISIT: u32 = 5;

    /// Where the number begins. Each wish has another than the one before, so that no answer is taken for that of another.
    pub const NUMBER: u32 = 1 << 8;

    /// What a state is, without its number.
    pub const fn kind(state: u32) -> u32 {
        state % Wish::NUMBER
    }
    /// A state of another kind, with the number of this one.
    pub const fn with_kind(state: u32, kind: u32) -> u32 {
        state - Wish::kind(state) + kind
    }

    /// Nobody's.
    pub const fn none() -> Wish {
        Wish {
            owner: AtomicU32::new(0),
            state: AtomicU32::new(Wish::NONE),
            served: AtomicU32::new(0),
            takes: AtomicU32::new(0),
            addr: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

/// Goes on with how it lies in memory.
pub(crate) const fn layout(hash: u64) -> u64 {
    layout!(hash, Wish { owner, state, served, takes, addr, bytes })
}
