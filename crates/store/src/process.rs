//! What a process asks of its store beyond what the pager does: to be made, to fork, to be looked at.
use crate::config::{InitError, Later};
use crate::fork::ForkTicket;
use crate::io::FileIo;
use crate::kinds::{Parameters, TierKind};
use crate::limits::{DESCRIPTORS, MAX_SLOTS, MAX_TIERS};
use crate::pace::DeviceStates;
use crate::ring::RingIo;
use crate::state::Tiers;
use crate::stats::StoreStats;
use crate::tiers::{Config, TierConfig};
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::device::{self, Device};
use outswap_core::store::Store;
use outswap_sys::Errno;

/// A tier as the control block has it.
#[derive(Clone, Copy, Debug)]
pub struct AskedTier<'a> {
    /// The name of its kind; empty where there is no tier.
    pub kind: &'a [u8],
    /// The kind's options.
    pub parameters: Parameters,
    /// The most it may hold, 0 for no limit.
    pub max_bytes: u64,
    /// The numbers of the device that it is slowed to; all zero: none.
    pub device: [u64; device::WORDS],
}

/// What a process's store is to be made of.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Tiers from the fastest on, at most [`MAX_TIERS`].
    pub tiers: &'a [AskedTier<'a>],
    /// Slots, from 0 on.
    pub slots: u32,
    /// Directory of files.
    pub directory: &'a [u8],
    /// Where files are asked for, as in [`Config::requests_fd`].
    pub requests_fd: Option<i32>,
    /// The store's descriptors have this number or one above.
    pub min_fd: i32,
    /// Whose files are made when they are needed, as in [`Config::later`].
    pub later: Later,
    /// Where all processes of a run have what the devices are at, as in [`Config::devices`].
    pub devices: Option<&'static DeviceStates>,
}

/// The store of a process. The budget uses what core's [`Store`] has: bytes held, a limit of them, and shrinking.
pub trait ProcessStore: Store + Sized + 'static {
    /// What a fork needs to be told to both sides.
    type Ticket: Copy;
    /// Numbers from `min_fd` on that the store's descriptors have.
    const DESCRIPTORS: i32;
    /// The most slots it can have.
    const MAX_SLOTS: u32;

    /// Makes the store, which lives until the process ends.
    ///
    /// # Errors
    /// Where that is not to be had.
    fn open(asked: &Asked<'_>) -> Result<&'static Self, InitError>;

    // ---- what it tells ----

    /// Counters and gauges, up to date.
    fn stats(&self) -> &StoreStats;
    /// Whether pages may lie where reading takes long.
    fn has_file(&self) -> bool;
    /// The directory of files lies in memory, so that they count with what the store has there. To be called before anything is stored.
    fn count_file_as_memory(&self);
    /// Whether it does.
    fn is_file_memory(&self) -> bool;
    /// Bytes that the file of this process takes in memory, of those that the store has there; 0 where files lie on a disk.
    fn file_memory_bytes(&self) -> u64;
    /// Sets how many pages may have gone to the file since one that counts as near when it is read
    /// ([`StoreStats::pages_in_file_near`]).
    fn set_near_pages(&self, pages: u64);
    /// All descriptors that it has open now. Takes no lock.
    fn descriptors(&self) -> impl Iterator<Item = i32> + '_;
    /// Why this process has no file to write to, if it should have.
    fn file_error(&self) -> Option<Errno>;
    /// Whether the file that this process writes is not made yet: [`ProcessStore::make_file`] is to be called before there is a second
    /// thread, which would see a number in use for a moment, and before the process may not make it any more.
    fn is_file_put_off(&self) -> bool;
    /// Makes it.
    fn make_file(&self);

    // ---- rights that the process gives up ----

    /// Ends what calls on the system that a program's filters may not know are used for. For good.
    fn leave_ring(&self);
    /// Closes the directory in which forked children would get their files: they ask for them from then on, if that can be.
    fn leave_directory(&self);
    /// Nobody is asked for files from then on.
    fn leave_requests(&self);
    /// Whether the process can write to what its children read.
    fn is_writing_shared(&self) -> bool;
    /// Afterwards it cannot. No other call may be in progress anywhere in the process.
    fn give_up_writing(&self);

    // ---- fork, exec and exit ----

    /// In the parent before a fork, while no other call is in progress anywhere in the process.
    fn fork_prepare(&self) -> Self::Ticket;
    /// In the parent after the fork; `child_pid` is what fork returned (not positive: it failed).
    fn fork_parent(&self, ticket: Self::Ticket, child_pid: i32);
    /// In the child, before any other use of the store and before any of the program's code runs.
    fn fork_child(&self, ticket: Self::Ticket);
    /// Gives back what this process does not need any more, and what those that shared it do not since they have ended. To be called now and
    /// then: they tell nobody.
    fn tend(&self);
    /// Before the process executes a program.
    fn begin_exec(&self);
    /// After that has failed.
    fn exec_failed(&self);
}

impl ProcessStore for Tiers<RingIo> {
    type Ticket = ForkTicket;
    const DESCRIPTORS: i32 = DESCRIPTORS;
    const MAX_SLOTS: u32 = MAX_SLOTS;

    fn open(asked: &Asked<'_>) -> Result<&'static Self, InitError> {
        let read = |tier: &AskedTier<'_>| {
            let kind = TierKind::unpack(tier.kind, tier.parameters).ok_or(InitError::Config)?;
            Ok(TierConfig { device: Device::from_words(tier.device), ..TierConfig::new(kind, tier.max_bytes) })
        };
        let first = asked.tiers.first().ok_or(InitError::Config)?;
        let mut tiers = [read(first)?; MAX_TIERS];
        let tiers = tiers.get_mut(..asked.tiers.len()).ok_or(InitError::Config)?;
        for (to, from) in tiers.iter_mut().zip(asked.tiers) {
            *to = read(from)?;
        }
        let Asked { slots, directory, requests_fd, min_fd, later, devices, .. } = *asked;
        Tiers::init(&Config { tiers, slots, directory, requests_fd, min_fd, later, devices })
    }
    fn stats(&self) -> &StoreStats {
        Tiers::stats(self)
    }
    fn has_file(&self) -> bool {
        self.order.file.is_some()
    }
    fn count_file_as_memory(&self) {
        Tiers::count_file_as_memory(self);
    }
    fn is_file_memory(&self) -> bool {
        self.order.file.is_some() && self.file_in_memory.load(Relaxed)
    }
    fn file_memory_bytes(&self) -> u64 {
        Tiers::file_memory_bytes(self)
    }
    fn set_near_pages(&self, pages: u64) {
        self.near_pages.store(pages, Relaxed);
    }
    fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        Tiers::descriptors(self)
    }
    fn file_error(&self) -> Option<Errno> {
        Tiers::file_error(self)
    }
    fn is_file_put_off(&self) -> bool {
        Tiers::is_file_put_off(self)
    }
    fn make_file(&self) {
        Tiers::make_file(self);
    }
    fn leave_ring(&self) {
        self.io.end();
    }
    fn leave_directory(&self) {
        Tiers::leave_directory(self);
    }
    fn leave_requests(&self) {
        Tiers::leave_requests(self);
    }
    fn is_writing_shared(&self) -> bool {
        Tiers::is_writing_shared(self)
    }
    fn give_up_writing(&self) {
        Tiers::give_up_writing(self);
    }
    fn fork_prepare(&self) -> ForkTicket {
        Tiers::fork_prepare(self)
    }
    fn fork_parent(&self, ticket: ForkTicket, child_pid: i32) {
        Tiers::fork_parent(self, ticket, child_pid);
    }
    fn fork_child(&self, ticket: ForkTicket) {
        Tiers::fork_child(self, ticket);
    }
    fn tend(&self) {
        Tiers::tend(self);
    }
    fn begin_exec(&self) {
        Tiers::begin_exec(self);
    }
    fn exec_failed(&self) {
        Tiers::exec_failed(self);
    }
}
