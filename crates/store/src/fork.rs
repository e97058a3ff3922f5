//! Fork, exec and exit: what a process shares with those that it stems from, and with those that it forks.
use crate::file::{ForkedUse, Kept};
use crate::io::FileIo;
use crate::limits::SEGMENT_BUFFERS;
use crate::pace::Pace;
use crate::state::Tiers;
use outswap_sys::os;

/// What a fork needs to be told to both sides, see [`ProcessStore::fork_prepare`](crate::ProcessStore::fork_prepare).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkTicket {
    child: ForkedUse,
    parent_pid: i32,
}

impl ForkTicket {
    /// Whether the tree has so many processes that what the child shares will never be freed.
    pub fn is_pinned(self) -> bool {
        self.child.is_pinned()
    }
}

impl<I: FileIo> Tiers<I> {
    /// In the parent before a fork, while no other call is in progress anywhere in the process.
    pub(crate) fn fork_prepare(&self) -> ForkTicket {
        let file = self.order.file.map(|_| self.file.fork_prepare(&self.io, &self.stats));
        let child = file.unwrap_or(ForkedUse::NONE);
        ForkTicket { child, parent_pid: os::getpid() }
    }

    /// In the parent after the fork; `child_pid` is what fork returned (not positive: it failed).
    pub(crate) fn fork_parent(&self, ticket: ForkTicket, child_pid: i32) {
        if self.order.file.is_some() {
            self.file.fork_parent(&self.io, &ticket.child, child_pid);
        }
    }

    /// In the child, before any other use of the store and before any of the program's code runs: afterwards the child has no
    /// descriptor that can write to its parent's file.
    pub(crate) fn fork_child(&self, ticket: ForkTicket) {
        self.stats.begin_child();
        self.paces.iter().chain([&self.io.pace]).for_each(Pace::begin_child);
        if self.order.file.is_some() {
            self.io.begin_child(self.file.files().min_fd());
            self.file.fork_child(&self.io, &ticket.child, ticket.parent_pid, &self.stats);
            self.adopt();
        }
    }

    /// Gives back what was left to others that have ended since.
    pub(crate) fn tend(&self) {
        if self.order.file.is_some() {
            self.file.segments.tend_left(&self.io);
            self.file.rest();
        }
    }

    /// Whether the process can write to a file that its children may read, see [`Tiers::give_up_writing`].
    pub(crate) fn is_writing_shared(&self) -> bool {
        self.order.file.is_some() && self.file.files().is_writing_shared()
    }

    /// Before the process gives up rights that its children keep: afterwards it cannot change what they read, which is then in
    /// a file that it only reads as well. What it swaps out later goes to a new file; where none can be made, the tier is full.
    /// No other call may be in progress anywhere in the process. Does nothing in a vforked child.
    pub(crate) fn give_up_writing(&self) {
        if self.order.file.is_some() {
            self.file.give_up_writing(&self.io, &self.stats);
            self.adopt();
        }
    }

    /// Makes what could not be written to the file before, in a forked child to its parent's, the own file's, sealed anew.
    fn adopt(&self) {
        for index in 0..SEGMENT_BUFFERS {
            let Some(Kept { at, filled_bytes, offset: from }) = self.file.kept(index) else { continue };
            let Some(to) = self.file.adopt(&self.io) else { return };
            // SAFETY: the filled part of a buffer that only this thread, the only one of its process, knows.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at, filled_bytes) };
            let mut moved = 0;
            self.for_units(bytes, |id, at, unit| {
                let old = from + at as u64;
                if let Some(nonce) = self.find_unit(id, old)
                    && let Some(seal) = self.file.reseal(id, old, nonce, unit)
                {
                    let pages = self.repoint(id, old, nonce, to + at as u64, seal.nonce);
                    let share_bytes = (id.stored_bytes() / id.pages() as usize) as u64;
                    self.file.segments.count_own(to, pages as u64 * share_bytes, 0);
                    moved += pages;
                }
                true
            });
            self.file.adopted(&self.io, index, to, moved);
        }
    }

    /// Before the process executes a program: what it shares with others is theirs as soon as it has. While it tries, a file
    /// with a limit is full. For the process itself, not for one that it vforked.
    pub(crate) fn begin_exec(&self) {
        if self.order.file.is_some() {
            self.file.begin_exec();
        }
    }

    /// After an exec that [`Tiers::begin_exec`] announced has failed.
    pub(crate) fn exec_failed(&self) {
        if self.order.file.is_some() {
            self.file.exec_failed();
        }
    }
}
