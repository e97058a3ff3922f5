//! The part of the control block that every process of the tree can write.
//!
//! Anything may stand there: all of it is checked where it is read.
use crate::accesses::{self, Accesses};
use crate::fingerprint::layout;
use crate::messages::{MESSAGE_BYTES, Message, Once, READY};
use crate::outside::{self, CHARGE_MAX_BYTES, PAGE_BYTES, Unmanaged};
use crate::stats::{Counters, Stat};
use crate::wish::{self, Wish};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use outswap_sys::{Errno, os};

/// Processes of one tree that are counted at the same time; later ones obey the limit, but do not count in it.
pub const MAX_PROCESSES: usize = 512;
/// Numbers from here on are no process's, of which the kernel has 2^22. They stand in records of processes that are in another pid
/// namespace than the supervisor, where their own numbers would be taken for those of others.
pub const MARKS: i32 = 1 << 30;
/// Marks from here on do not tell whether their process lives: nobody takes it for dead.
pub const SILENT_MARKS: i32 = MARKS + MARKS / 2;
/// Places in which ends are counted for all families.
const FAMILIES: usize = 64;
/// Messages that wait for the supervisor; further ones are counted and dropped.
pub const MAX_MESSAGES: usize = 64;

/// Tiers of a swap specification.
pub const MAX_TIERS: usize = 4;
/// More than a process may have touched since it last published; what says more is wrong.
const TOUCHED_MAX_PAGES: u64 = 4096;
/// Gauges whose highest sums over all processes are kept: [`Stat::IsolatedBytes`] counts in the first.
pub const TREE_PEAKS: [Stat; 5] =
    [Stat::ResidentBytes, Stat::PoolBytes, Stat::TablesBytes, Stat::FileBytes, Stat::UnmanagedBytes];
/// Words that tell what the device is at that a tier is slowed to.
pub const DEVICE_STATE_WORDS: usize = 35;

/// The record of one managed process.
#[repr(C, align(64))]
pub struct Process {
    /// Process id, or a mark ([`MARKS`]); 0: free; negative: process `-pid` is folding it into the tree's sums.
    pub pid: AtomicI32,
    /// Fault source in use ([`crate::source`]).
    pub fault_source: AtomicU32,
    /// Anonymous memory of this process as counted in the budget, bytes.
    pub charge_bytes: AtomicU64,
    /// What others of its family have because it had it, too, and perhaps do not know of: bytes that count until they have measured.
    pub others_part_bytes: AtomicU64,
    /// What its forks left to children that have not run yet, and so have no record: it counts here until they have.
    pub unborn_bytes: AtomicU64,
    /// How often the process has measured its anonymous memory, [`u32::MAX`] while it executes a program. Where it does not measure,
    /// the supervisor does.
    pub measured: AtomicU32,
    /// The number of the last measurement of its memory ([`Shared::begin_measurement`]), by whomever; 0: none. [`u64::MAX`] where it
    /// cannot measure itself: nobody waits for it.
    pub measured_number: AtomicU64,
    /// Managed memory that is left to the kernel to fill, bytes: all of it is charged, however much is there.
    pub left_bytes: AtomicU64,
    /// The number of the processes that came from each other by forks, and may share pages, of which this is one: that of the first
    /// of them. 0: it neither forked nor was forked.
    pub family: AtomicU32,
    /// [`Stat::PagesFirstTouch`] when [`Stat::ResidentBytes`] was set last: what came to be since is not in that.
    pub touched_pages: AtomicU64,
    /// 1: it ends. What it is charged with counts until it is gone, because the kernel takes its memory back only then.
    pub ending: AtomicU32,
    /// The managed part of its program's `.bss`: the first address, and the first after it. Twice 0: none.
    pub bss: [AtomicU64; 2],
    /// What another process wants of its memory.
    pub wish: Wish,
    /// Counters.
    pub counters: Counters,
}

/// What every process of the tree can write.
#[repr(C)]
pub struct Shared {
    /// Highest sum of the charges of all live processes that was seen, bytes.
    pub peak_charge_bytes: AtomicU64,
    /// Highest sums of [`TREE_PEAKS`] over all live processes at one moment, bytes.
    pub tree_peaks: [AtomicU64; TREE_PEAKS.len()],
    /// Anonymous memory of the processes of the tree that run unmanaged, as the supervisor last saw it.
    pub unmanaged: Unmanaged,
    /// What all processes of the tree had to evict, in pages; those that were wanted back soon count several times. Goes round.
    pub pressure_pages: AtomicU64,
    /// Managed processes ever started.
    pub processes_started: AtomicU32,
    /// Children that were run unmanaged.
    pub processes_unmanaged: AtomicU32,
    /// Messages dropped because the queue was full.
    pub messages_dropped: AtomicU32,
    /// Records that were ever in use: those behind it need not be looked at for a sum.
    pub records_used: AtomicU32,
    /// What of [`Once`] was said, a bit each.
    pub told: AtomicU32,
    /// Processes that ended, or executed a program, while they may have shared pages with others of their family, which have more
    /// from then on: see [`Shared::sharers_ended`].
    pub sharers_ended: [AtomicU32; FAMILIES],
    /// Marks that were given.
    pub marks: AtomicU32,
    /// When somebody last looked for dead processes because it had no room: for those that said that they end, and for all.
    pub looked_at_ns: [AtomicU64; 2],
    /// The next record to be looked at more closely.
    pub closer_look: AtomicU32,
    /// Sums over processes that ended.
    pub ended: Counters,
    /// Messages.
    pub messages: [Message; MAX_MESSAGES],
    /// Records of live processes.
    pub processes: [Process; MAX_PROCESSES],
    /// What the devices are at that tiers are slowed to: one for each tier, for all processes.
    pub devices: [[AtomicU64; DEVICE_STATE_WORDS]; MAX_TIERS],
    /// How many measurements have begun.
    pub measurements: AtomicU64,
    /// Accesses, where they are recorded.
    pub accesses: Accesses,
}

/// Goes on with how all of it lies in memory.
pub(crate) const fn layout(hash: u64) -> u64 {
    let hash = layout!(
        hash,
        Process {
            pid,
            fault_source,
            charge_bytes,
            others_part_bytes,
            unborn_bytes,
            measured,
            measured_number,
            left_bytes,
            family,
            touched_pages,
            ending,
            bss,
            wish,
            counters
        }
    );
    let hash = layout!(accesses::layout(outside::layout(wish::layout(hash))), Message { state, len, text });
    layout!(
        hash,
        Shared {
            peak_charge_bytes,
            tree_peaks,
            unmanaged,
            pressure_pages,
            processes_started,
            processes_unmanaged,
            messages_dropped,
            records_used,
            told,
            sharers_ended,
            marks,
            looked_at_ns,
            closer_look,
            ended,
            messages,
            processes,
            devices,
            measurements,
            accesses,
        }
    )
}

impl Process {
    /// What the process is charged with, in bytes; never more than [`CHARGE_MAX_BYTES`].
    pub fn charge(&self) -> u64 {
        self.charge_bytes.load(Relaxed).min(CHARGE_MAX_BYTES)
    }
    /// What is mapped in the program of its managed memory, bytes: with the few pages that came to be since it said so last.
    pub fn resident_bytes(&self) -> u64 {
        let new = self.counters.get(Stat::PagesFirstTouch).saturating_sub(self.touched_pages.load(Relaxed));
        let new = if new < TOUCHED_MAX_PAGES { new } else { 0 };
        self.counters.get(Stat::ResidentBytes).saturating_add(new * PAGE_BYTES)
    }
    /// Whether it has said that it ends.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Acquire) != 0
    }
    /// What its forks left to children that have not run yet.
    pub fn unborn(&self) -> u64 {
        self.unborn_bytes.load(Relaxed).min(CHARGE_MAX_BYTES)
    }
    /// A child has run, or there is none: what was left to it counts here no longer.
    pub fn born(&self, bytes: u64) {
        // It always gives a value.
        let _ = self.unborn_bytes.fetch_update(AcqRel, Relaxed, |all| Some(all.saturating_sub(bytes)));
    }
    /// The same as [`Process::charge`] with what others have and perhaps do not know of, and with what children have that nobody else
    /// counts.
    pub fn claim(&self) -> u64 {
        let others_part = self.others_part_bytes.load(Relaxed).min(CHARGE_MAX_BYTES);
        (self.charge() + others_part + self.unborn()).min(CHARGE_MAX_BYTES)
    }
}

/// Whether a process exists. A number that names no single process is none's; whose a mark is, [`crate::Control::exists`] may know.
pub fn exists(pid: i32) -> bool {
    pid > 0 && os::kill(pid, 0) != Err(Errno::ESRCH)
}

impl Shared {
    /// The records that were ever in use.
    pub fn used_records(&self) -> &[Process] {
        &self.processes[..(self.records_used.load(Relaxed) as usize).min(MAX_PROCESSES)]
    }

    /// A new mark, counted from 0.
    pub(crate) fn give_mark(&self) -> u32 {
        self.marks.fetch_add(1, Relaxed) % (MARKS / 2) as u32
    }

    /// Whether a number is a mark that was given.
    pub fn is_mark(&self, number: i32) -> bool {
        let first = if number < SILENT_MARKS { MARKS } else { SILENT_MARKS };
        number >= first && ((number - first) as u32) < self.marks.load(Relaxed)
    }

    /// How many processes have a record.
    pub fn live_processes(&self) -> usize {
        self.used_records().iter().filter(|process| process.pid.load(Relaxed) > 0).count()
    }

    /// Whether who wants to look for dead processes may: with many that have no room, not each of them all the time. `all`: for any, not
    /// for those alone that said that they end.
    pub fn may_look(&self, all: bool, now_ns: u64, pause_ns: u64) -> bool {
        let looked_at_ns = &self.looked_at_ns[usize::from(all)];
        let last_ns = looked_at_ns.load(Relaxed);
        // Clocks differ between time namespaces.
        now_ns.abs_diff(last_ns) > pause_ns && looked_at_ns.compare_exchange(last_ns, now_ns, AcqRel, Relaxed).is_ok()
    }

    /// Whether another process of a family lives, and has what it got of it.
    pub fn has_relatives(&self, family: u32, own: *const Process) -> bool {
        self.relatives(family, own).next().is_some()
    }

    /// The lowest number of the last measurements of these; `None` where there are none.
    pub fn relatives_measured(&self, family: u32, own: *const Process) -> Option<u64> {
        self.relatives(family, own).map(|relative| relative.measured_number.load(Acquire)).min()
    }

    fn relatives(&self, family: u32, own: *const Process) -> impl Iterator<Item = &Process> {
        let has_memory = |p: &Process| p.ending.load(Relaxed) == 0 && p.measured.load(Relaxed) != u32::MAX;
        let is_relative = move |p: &&Process| family != 0 && p.family.load(Relaxed) == family && has_memory(p);
        self.others(own).filter(is_relative)
    }

    /// The number of a measurement that begins now, from 1 on.
    pub fn begin_measurement(&self) -> u64 {
        self.measurements.fetch_add(1, AcqRel).wrapping_add(1)
    }

    /// Sum of the charges of all live processes but the one with this record, bytes.
    pub(crate) fn charges_but(&self, own: *const Process) -> u64 {
        self.others(own).map(Process::charge).sum()
    }

    /// The same for peaks: without those that have said that they end. What such a process shares becomes the others' while the kernel takes
    /// its memory back, so that it would count twice; and what all had when it said so was noted then.
    pub fn charges_that_go_on(&self, own: *const Process) -> u64 {
        self.others(own).filter(|process| !process.is_ending()).map(Process::charge).sum()
    }

    /// Raises the highest charge of the tree to a sum that is told anew each time. Charges move from one process to another, as at a fork:
    /// a sum that is slow to be told has them in both. So more is believed where it is there twice.
    pub fn note_charge(&self, sum_bytes: impl Fn() -> u64) {
        let bytes = sum_bytes();
        if bytes > self.peak_charge_bytes.load(Relaxed) {
            self.peak_charge_bytes.fetch_max(bytes.min(sum_bytes()), Relaxed);
        }
    }

    /// What these leave no room for: the same sum of [`Process::claim`].
    pub fn claims_but(&self, own: *const Process) -> u64 {
        self.others(own).map(Process::claim).sum()
    }

    /// The records of live processes, but for this one.
    pub fn others(&self, own: *const Process) -> impl Iterator<Item = &Process> {
        self.used_records().iter().filter(move |p| p.pid.load(Relaxed) > 0 && !core::ptr::eq(*p, own))
    }

    /// Sums of [`TREE_PEAKS`] over all live processes, bytes, none counted for more than [`CHARGE_MAX_BYTES`]; they go into the highest ones.
    pub(crate) fn note_peaks_with(&self, outside_bytes: u64) -> [u64; TREE_PEAKS.len()] {
        let mut sums = [0u64; TREE_PEAKS.len()];
        for process in self.used_records().iter().filter(|p| p.pid.load(Relaxed) > 0) {
            for (sum, stat) in sums.iter_mut().zip(TREE_PEAKS) {
                let bytes =
                    if stat == Stat::ResidentBytes { process.resident_bytes() } else { process.counters.get(stat) };
                *sum += bytes.min(CHARGE_MAX_BYTES);
            }
            sums[0] += process.counters.get(Stat::IsolatedBytes).min(CHARGE_MAX_BYTES);
        }
        sums[TREE_PEAKS.len() - 1] += outside_bytes;
        for (peak, sum) in self.tree_peaks.iter().zip(sums) {
            peak.fetch_max(sum, Relaxed);
        }
        sums
    }

    /// The highest sums are no less than what one process has, in the order of [`TREE_PEAKS`]: where it is alone, no look is needed for that.
    pub fn note_own(&self, bytes: [u64; TREE_PEAKS.len()]) {
        for (peak, bytes) in self.tree_peaks.iter().zip(bytes) {
            if peak.load(Relaxed) < bytes {
                peak.fetch_max(bytes, Relaxed);
            }
        }
    }

    /// Folds the record of an ended process into the sums and frees it. `number` is what the record was seen with: the process,
    /// or a folder that is dead, whose work is taken up; `own` is that of the caller. Returns whether this caller did it.
    pub fn fold(&self, process: &Process, number: i32, own: i32) -> bool {
        if number == 0 || process.pid.compare_exchange(number, -own, AcqRel, Relaxed).is_err() {
            return false;
        }
        let bytes = [&process.charge_bytes, &process.others_part_bytes, &process.unborn_bytes, &process.left_bytes];
        bytes.iter().for_each(|bytes| bytes.store(0, Relaxed));
        self.ended.fold(&process.counters);
        self.tell_sharers(process.family.swap(0, Relaxed));
        // Unless somebody took us for dead, and goes on with it.
        let _ = process.pid.compare_exchange(-own, 0, Release, Relaxed);
        true
    }

    /// Says that a process of a family (0: of none) has its pages no longer.
    pub fn tell_sharers(&self, family: u32) {
        if family != 0 {
            self.sharers_ended[family as usize % FAMILIES].fetch_add(1, Release);
        }
    }

    /// How many processes of a family, or of another one with the same place, have ended, modulo 2^32.
    pub fn sharers_ended(&self, family: u32) -> u32 {
        self.sharers_ended[family as usize % FAMILIES].load(Acquire)
    }

    /// How many processes of a family have said that they end, and are not counted in [`Shared::sharers_ended`] yet.
    pub fn sharers_ending(&self, family: u32) -> u32 {
        let is_one = |p: &&Process| p.is_ending() && p.family.load(Relaxed) == family;
        self.others(core::ptr::null()).filter(is_one).count() as u32
    }

    /// Folds a record if its process is dead, or its folder, for the caller whose number is `own`. `is_dead` is asked about numbers above
    /// 0 only.
    pub fn fold_if(&self, process: &Process, own: i32, is_dead: impl FnOnce(i32) -> bool) -> bool {
        let pid = process.pid.load(Acquire);
        let whose = pid.checked_abs().unwrap_or(i32::MAX);
        pid != 0 && is_dead(whose) && self.fold(process, pid, own)
    }

    /// Takes a record for a process. A record that this process had before an exec, or that a dead process left, is folded
    /// into the sums first. `None` with as many live processes as there are records.
    pub fn take(&self, pid: i32) -> Option<&Process> {
        for record in self.used_records() {
            self.fold_if(record, pid, |whose| whose == pid);
        }
        for attempt in 0..2 {
            for (i, record) in self.processes.iter().enumerate() {
                if attempt == 1 {
                    // Who has a mark sees other processes, or none, under the numbers of others.
                    self.fold_if(record, pid, |whose| pid < MARKS && !self.is_mark(whose) && !exists(whose));
                }
                if record.pid.load(Relaxed) == 0 && record.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok() {
                    // Whoever wrongly takes a process for dead may have left something.
                    let bytes =
                        [&record.charge_bytes, &record.others_part_bytes, &record.unborn_bytes, &record.left_bytes];
                    bytes.iter().for_each(|bytes| bytes.store(0, Relaxed));
                    record.measured.store(0, Relaxed);
                    record.measured_number.store(0, Relaxed);
                    record.family.store(0, Relaxed);
                    record.touched_pages.store(0, Relaxed);
                    record.ending.store(0, Relaxed);
                    record.bss.iter().for_each(|border| border.store(0, Relaxed));
                    record.wish.state.store(Wish::NONE, Relaxed);
                    record.wish.served.store(0, Relaxed);
                    record.wish.takes.store(0, Relaxed);
                    record.wish.owner.store(0, Relaxed);
                    record.counters.clear();
                    self.records_used.fetch_max(i as u32 + 1, Relaxed);
                    self.processes_started.fetch_add(1, Relaxed);
                    return Some(record);
                }
            }
        }
        None
    }

    /// Queues a message for the supervisor; counted and dropped where the queue is full.
    pub fn post(&self, text: &[u8]) {
        for message in &self.messages {
            if message.state.compare_exchange(0, os::getpid(), Acquire, Relaxed).is_ok() {
                let len = text.len().min(MESSAGE_BYTES);
                for (to, from) in message.text.iter().zip(&text[..len]) {
                    to.store(*from, Relaxed);
                }
                message.len.store(len as u32, Relaxed);
                message.state.store(READY, Release);
                return;
            }
        }
        self.messages_dropped.fetch_add(1, Relaxed);
    }

    /// Queues a message unless a process of the tree did so before.
    pub fn post_once(&self, what: Once) {
        if self.is_first(what) {
            self.post(what.text());
        }
    }

    /// Whether nothing was said of this in the run so far. The caller says it.
    pub fn is_first(&self, what: Once) -> bool {
        let bit = 1 << what as u32;
        self.told.load(Relaxed) & bit == 0 && self.told.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Hands every waiting message to `print` and frees it, and frees those that somebody was killed at. The text may be
    /// anything at all.
    pub fn drain(&self, mut print: impl FnMut(&[u8])) {
        for message in &self.messages {
            let state = message.state.load(Acquire);
            if state > 0 && exists(state) {
                continue;
            }
            if state == READY {
                let mut text = [0u8; MESSAGE_BYTES];
                for (to, from) in text.iter_mut().zip(&message.text) {
                    *to = from.load(Relaxed);
                }
                print(&text[..(message.len.load(Relaxed) as usize).min(MESSAGE_BYTES)]);
            }
            let _ = message.state.compare_exchange(state, 0, AcqRel, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stat;

    fn shared() -> &'static Shared {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        unsafe { &*(at as *const Shared) }
    }

    /// A number that no process has.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn the_tree_uses_what_its_live_processes_do() {
        let shared = shared();
        let records: Vec<_> = (1..=3).map(|pid| shared.take(pid).expect("room")).collect();
        records.iter().zip([10, 200, 3000]).for_each(|(r, n)| r.charge_bytes.store(n, Relaxed));
        assert_eq!(shared.used_records().len(), 3);
        assert_eq!(shared.charges_but(core::ptr::null()), 3210);
        assert_eq!(shared.charges_but(records[1]), 3010);
        records[2].others_part_bytes.store(500, Relaxed);
        assert_eq!((shared.claims_but(records[1]), shared.claims_but(records[2])), (3510, 210));
        assert_eq!(shared.charges_but(records[1]), 3010, "it has them no longer");
        records[2].ending.store(1, Relaxed);
        assert_eq!(shared.charges_but(records[1]), 3010, "no room before it is gone");
        assert_eq!(shared.charges_that_go_on(records[1]), 10, "but no peak");
        assert!(shared.fold(records[2], 3, os::getpid()) && !shared.fold(records[2], 3, os::getpid()));
        assert_eq!(shared.charges_but(core::ptr::null()), 210);
        // A process that was taken for dead publishes in a record that is not its own any more.
        records[2].charge_bytes.store(77, Relaxed);
        assert_eq!(shared.charges_but(core::ptr::null()), 210);
        assert_eq!(shared.take(4).map(Process::charge), Some(0));
        records[0].charge_bytes.store(u64::MAX, Relaxed);
        assert_eq!(shared.charges_but(core::ptr::null()), CHARGE_MAX_BYTES + 200);
        shared.records_used.store(u32::MAX, Relaxed);
        assert_eq!(shared.used_records().len(), MAX_PROCESSES);
    }

    #[test]
    fn the_end_of_a_process_that_forked_is_told_to_those_it_may_share_with() {
        let shared = shared();
        let records: Vec<_> = (1..=2).map(|pid| shared.take(pid).expect("room")).collect();
        let ended = || [7, 8].map(|family| shared.sharers_ended(family));
        records[1].family.store(7, Relaxed);
        assert!(shared.has_relatives(7, core::ptr::null()) && !shared.has_relatives(7, records[1]));
        assert!(!shared.has_relatives(8, core::ptr::null()) && !shared.has_relatives(0, core::ptr::null()));
        records[1].ending.store(1, Relaxed);
        assert!(shared.fold(records[0], 1, os::getpid()));
        assert_eq!(ended(), [0, 0], "it never forked");
        assert!(shared.fold(records[1], 2, os::getpid()));
        assert_eq!(ended(), [1, 0]);
        shared.tell_sharers(8);
        assert_eq!(ended(), [1, 1]);
        for pid in [3, 4] {
            let next = shared.take(pid).expect("room");
            assert_eq!([next.family.load(Relaxed), next.ending.load(Relaxed)], [0, 0], "another process");
        }
    }

    #[test]
    fn of_many_that_look_for_dead_processes_one_does() {
        let shared = shared();
        let look = |all, now_ns| shared.may_look(all, now_ns, 100);
        assert_eq!(
            [look(false, 1000), look(false, 1000), look(false, 1100), look(false, 1101)],
            [true, false, false, true]
        );
        assert!(look(true, 1101), "those who look closer have a clock of their own");
        assert!(look(false, 5) && !look(false, 5), "another time namespace's clock");
        assert_eq!(shared.live_processes(), 0);
        let records: Vec<_> = (1..=2).map(|pid| shared.take(pid).expect("room")).collect();
        assert_eq!(shared.live_processes(), 2);
        assert!(shared.fold(records[0], 1, os::getpid()));
        assert_eq!(shared.live_processes(), 1);
    }

    #[test]
    fn peaks_are_of_one_moment() {
        let shared = shared();
        let records: Vec<_> = (1..=2).map(|pid| shared.take(pid).expect("room")).collect();
        let set = |i: usize, all: [(Stat, u64); 3]| all.map(|(stat, n)| records[i].counters.set(stat, n));
        set(0, [(Stat::ResidentBytes, 10), (Stat::IsolatedBytes, 5), (Stat::PoolBytes, 7)]);
        assert_eq!(shared.note_peaks_with(0), [15, 7, 0, 0, 0]);
        shared.note_own([14, 0, 0, 0, 0]);
        set(0, [(Stat::ResidentBytes, 1), (Stat::IsolatedBytes, 0), (Stat::PoolBytes, 0)]);
        set(1, [(Stat::ResidentBytes, 12), (Stat::TablesBytes, 3), (Stat::UnmanagedBytes, 2)]);
        assert_eq!(shared.note_peaks_with(4), [13, 0, 3, 0, 6]);
        let peaks = shared.tree_peaks.each_ref().map(|peak| peak.load(Relaxed));
        assert_eq!(peaks, [15, 7, 3, 0, 6], "neither moment's, and no sum of both");
        records[0].counters.set(Stat::FileBytes, u64::MAX);
        records[1].counters.set(Stat::FileBytes, 1);
        assert_eq!(shared.note_peaks_with(0)[3], CHARGE_MAX_BYTES + 1);
    }

    #[test]
    fn a_charge_that_moves_while_it_is_summed_is_no_peak() {
        let shared = shared();
        let told = core::cell::Cell::new(0);
        let sums = |all: [u64; 2]| {
            told.set(0);
            shared.note_charge(|| all[told.replace(told.get() + 1)]);
            (told.get(), shared.peak_charge_bytes.load(Relaxed))
        };
        assert_eq!(sums([60, 40]), (2, 40), "in both for a moment");
        assert_eq!(sums([40, 99]), (1, 40), "no more than there was");
        assert_eq!(sums([50, 70]), (2, 50), "more is for the next time");
    }

    #[test]
    fn who_ends_is_ending_until_it_has_ended() {
        let shared = shared();
        let records: Vec<_> = (1..=3).map(|pid| shared.take(pid).expect("room")).collect();
        records.iter().zip([7, 7, 8]).for_each(|(record, family)| record.family.store(family, Relaxed));
        records[1..].iter().for_each(|record| record.ending.store(1, Relaxed));
        assert_eq!((shared.sharers_ending(7), shared.sharers_ended(7)), (1, 0));
        assert!(shared.fold(records[1], 2, os::getpid()));
        assert_eq!((shared.sharers_ending(7), shared.sharers_ended(7)), (0, 1));
    }

    #[test]
    fn what_came_to_be_since_a_process_last_published_counts() {
        let record = shared().take(1).expect("room");
        record.counters.set(Stat::ResidentBytes, 10 * PAGE_BYTES);
        record.counters.set(Stat::PagesFirstTouch, 60);
        record.touched_pages.store(10, Relaxed);
        assert_eq!(record.resident_bytes(), 60 * PAGE_BYTES);
        for wrong in [61, 0] {
            record.touched_pages.store(wrong, Relaxed);
            record.counters.set(Stat::PagesFirstTouch, if wrong == 0 { u64::MAX } else { 60 });
            assert_eq!(record.resident_bytes(), 10 * PAGE_BYTES);
        }
    }

    #[test]
    fn a_record_whose_folder_was_killed_is_folded_by_another_and_counts_once() {
        let shared = shared();
        let record = shared.take(NOBODY).expect("room");
        record.counters.add(Stat::FaultMiss, 5);
        record.counters.add(Stat::PagesClean, 7);
        record.counters.set(Stat::ResidentBytes, 4096);
        record.counters.set(Stat::PeakResidentBytes, 8192);
        record.charge_bytes.store(99, Relaxed);
        // A folder was killed when it had moved one counter.
        record.pid.store(-NOBODY, Relaxed);
        shared.ended.add(Stat::FaultMiss, record.counters.stats[Stat::FaultMiss as usize].swap(0, Relaxed));
        assert!(!shared.fold_if(record, os::getpid(), |pid| pid != NOBODY), "not while the folder lives");
        assert!(shared.fold_if(record, os::getpid(), |pid| pid == NOBODY && !exists(pid)));
        assert_eq!((record.pid.load(Relaxed), record.charge()), (0, 0));
        let sums = [Stat::FaultMiss, Stat::PagesClean, Stat::ResidentBytes, Stat::PeakResidentBytes];
        assert_eq!(sums.map(|stat| shared.ended.get(stat)), [5, 7, 0, 8192]);
        assert!(sums.iter().all(|stat| record.counters.get(*stat) == 0));
    }

    #[test]
    fn records_of_the_dead_are_taken_over_and_those_of_the_living_are_not() {
        let shared = shared();
        for record in &shared.processes {
            record.pid.store(os::getpid(), Relaxed);
        }
        shared.records_used.store(MAX_PROCESSES as u32, Relaxed);
        assert!(shared.take(5).is_none());
        let place = |record: &Process| shared.processes.iter().position(|r| core::ptr::eq(r, record));
        for (i, left) in [(7, NOBODY), (9, -NOBODY), (11, i32::MIN), (13, 0)] {
            shared.processes[i].pid.store(left, Relaxed);
            assert_eq!(shared.take(5).and_then(place), Some(i), "{left}");
            shared.processes[i].pid.store(os::getpid(), Relaxed);
        }
        // What this process had before an exec.
        let record = shared.take(os::getpid()).expect("all were its own");
        assert_eq!(record.pid.load(Relaxed), os::getpid());
        assert!(shared.processes[1..].iter().all(|r| r.pid.load(Relaxed) == 0));
    }

    #[test]
    fn messages_come_out_as_they_went_in_and_none_is_lost_for_good() {
        let shared = shared();
        let drained = || {
            let mut all = Vec::new();
            shared.drain(|text| all.push(text.to_vec()));
            all
        };
        shared.post(b"one");
        shared.post(&[b'x'; 1000]);
        assert_eq!(drained(), [b"one".to_vec(), vec![b'x'; MESSAGE_BYTES]]);
        shared.messages[0].state.store(READY, Relaxed);
        shared.messages[0].len.store(100_000, Relaxed);
        assert_eq!(drained().concat().len(), MESSAGE_BYTES, "a false length");
        // Writers that were killed hold their places no longer; one that lives does.
        shared.messages.iter().for_each(|m| m.state.store(NOBODY, Relaxed));
        shared.messages[3].state.store(os::getpid(), Relaxed);
        shared.post(b"lost");
        assert_eq!(shared.messages_dropped.load(Relaxed), 1);
        assert!(drained().is_empty());
        (0..MAX_MESSAGES).for_each(|_| shared.post(b"again"));
        assert_eq!((drained().len(), shared.messages_dropped.load(Relaxed)), (MAX_MESSAGES - 1, 2));
    }
}
