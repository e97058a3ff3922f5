//! What a fork means for the files: the child gets a number in every table, and each side a key of its own.
use super::address::Segment;
use super::segments::{PINNED, SHARED, Segments};
use super::users::{FOR_EVER, Table};
use super::volume::{HELD, Volume};
use crate::io::FileIo;
use crate::limits::{MAX_USERS, MAX_VOLUMES};
use crate::stats::{StoreStats, add};
use core::sync::atomic::Ordering::*;
use outswap_sys::os;

/// What both sides of a fork need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForkedUse {
    /// The child's number in each file's table.
    users: [u8; MAX_VOLUMES],
    /// The child's number in the family + 1.
    process: u32,
    /// Something that the child needs will not be freed while the file is open anywhere.
    pinned: bool,
}

/// The child needs nothing of the file.
const NO_USER: u8 = u8::MAX;

const _: () = assert!(FOR_EVER < NO_USER as usize);

impl ForkedUse {
    pub const NONE: ForkedUse = ForkedUse { users: [NO_USER; MAX_VOLUMES], process: 0, pinned: false };

    pub fn is_pinned(self) -> bool {
        self.pinned
    }
}

impl Segments {
    /// Reserves what a child needs in the tables of the files.
    pub(super) fn fork_prepare(&self, stats: &StoreStats) -> ForkedUse {
        let mut forked = ForkedUse::NONE;
        for (index, volume) in self.files.volumes.iter().enumerate() {
            if volume.state.load(SeqCst) == HELD && volume.live_segments.load(Acquire) > 0 {
                forked.users[index] = self.share(index, volume) as u8;
                // What this process itself does not hold as a numbered user, nobody will free.
                let freed = self.files.own() == Some(index) || volume.user.load(Relaxed) != FOR_EVER as u32;
                forked.pinned |= freed && forked.users[index] == FOR_EVER as u8;
            }
        }
        add(&stats.pinned_forks, forked.pinned as u64);
        let files = self.files.volumes.iter().zip(forked.users).filter(|(_, user)| *user != NO_USER);
        let files = files.filter_map(|(volume, _)| (volume.family.load(Relaxed) as usize).checked_sub(1));
        forked.process =
            self.files.family().reserve(self.files.space.load(Relaxed), files).map_or(0, |process| process as u32 + 1);
        forked
    }

    /// Marks what this process needs of a file as needed by a child, too. Returns the child's number there.
    fn share(&self, index: usize, volume: &Volume) -> usize {
        let own = self.files.own() == Some(index);
        if !own && volume.user.load(Relaxed) == FOR_EVER as u32 {
            return FOR_EVER;
        }
        let table = if own { volume.table.make(self.files.segment_count()) } else { volume.table.head() };
        if own {
            self.files.shared.store(true, Release);
        }
        let reserve = |table: &Table| {
            table.users.reserve().or_else(|| {
                // Others do not know all segments of the file, but all that their own children can need.
                if own {
                    volume.reap(true)
                } else {
                    volume.reap_forked()
                };
                table.users.reserve()
            })
        };
        let user = table.and_then(reserve).inspect(|&user| volume.reserved(user)).unwrap_or(FOR_EVER);
        for number in 0..volume.bound.load(Acquire) {
            let usage = self.usage(Segment::new(index, number));
            if usage.live.load(Acquire) > 0 {
                usage.bits.fetch_or(if table.is_none() || user == FOR_EVER { SHARED | PINNED } else { SHARED }, AcqRel);
                volume.table.join(number, user);
            }
        }
        user
    }

    /// In the parent, after the fork: `child_pid` as fork returned it, or not positive where it failed.
    pub(super) fn fork_parent<I: FileIo>(&self, io: &I, forked: &ForkedUse, child_pid: i32) {
        for (volume, user) in self.files.volumes.iter().zip(forked.users) {
            let user = user as usize;
            let Some(table) = volume.table.head().filter(|_| user < MAX_USERS) else { continue };
            if child_pid > 0 {
                table.users.confirm(user, child_pid);
            } else {
                volume.leave_all(user);
                table.users.set(user, 0);
            }
        }
        if let Some(process) = (forked.process as usize).checked_sub(1) {
            if child_pid > 0 {
                self.files.family().confirm(process, child_pid);
            } else {
                self.files.family().forget(process);
            }
        }
        if child_pid > 0 {
            self.keys.renew(|secret| io.random(secret).is_ok());
        }
        // One that could not be had before.
        if !self.files.has_own() {
            self.open_own(io);
        }
    }

    /// In the child, before it has a file of its own.
    pub(super) fn fork_child<I: FileIo>(&self, io: &I, forked: &ForkedUse, parent_pid: i32) {
        // SAFETY: touches no memory.
        let seen = unsafe { outswap_sys::syscall0(outswap_sys::nr::GETPPID) } as i32;
        let pids_unknown = seen != parent_pid && seen == 0;
        let pid = os::getpid();
        self.files.pid.store(pid, Relaxed);
        self.keys.renew(|secret| io.random(secret).is_ok());
        self.reaping.end();
        self.tending.end();
        self.cleaning.end();
        self.files.process.store(forked.process, Relaxed);
        if pids_unknown {
            // The first of a pid namespace is known by the number that its parent has of it. Without a number for all of them
            // nobody judges.
            self.files.space.store(if forked.process == 0 { u32::MAX } else { forked.process }, Relaxed);
        } else if let Some(process) = self.files.process()
            && !self.files.family().claim(process, parent_pid, pid)
        {
            self.files.process.store(0, Relaxed);
        }
        for (volume, user) in self.files.volumes.iter().zip(forked.users) {
            volume.begin_child(user as usize, parent_pid, pid, pids_unknown);
        }
    }
}
