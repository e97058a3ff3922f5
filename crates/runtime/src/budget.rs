//! The budget's arithmetic: how many pages may be resident, so that the anonymous memory of the whole tree stays under its
//! limit, and what follows from that for the pool, for transfers and for what is held in memory.
//!
//! Numbers go in and come out; what they are measured from is in [`crate::charge`].
use crate::limits::{
    CALLS_FEW, PINNED_MIN_BYTES, RECORD_MAX_BYTES, WINDOW_LEAST_BYTES, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES,
};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use outswap_control::MAX_LEVELS;
use outswap_core::units::PAGE_BYTES;

/// Measuring takes at most one part in so many of a processor.
const MEASURE_SHARE: u64 = 20;
/// The same where processes that shared pages end on end.
const ENDS_SHARE: u64 = 4;
/// Processes that may measure as often as if each were alone: with more, each has the less, and what it has changes by the less.
const MEASURERS: usize = 8;
/// The longest time between two measurements of a process that shares pages, and does nothing.
const QUIET_MAX_NS: u64 = 1_000_000_000;

/// What it takes at least to write to a page that is shared, which the kernel copies.
const COPY_NS: u64 = 1_000;

/// What a process knows of its budget.
#[derive(Default)]
pub struct State {
    /// Memory that managed pages do not explain, at the last measurement, less the pool then; may be negative after a fork.
    pub other_bytes: AtomicI64,
    /// When that was measured.
    pub measured_at_ns: AtomicU64,
    /// The number of that measurement.
    pub measured_number: AtomicU64,
    /// `measured_at_ns` when that was last published.
    pub published_at_ns: AtomicU64,
    /// How long that took.
    pub measure_cost_ns: AtomicU64,
    /// Measurements in a row that found what the one before had found.
    pub quiet: AtomicU32,
    /// From when on pages may be held, after a fork.
    pub hold_from_ns: AtomicU64,
    /// The limit is exceeded, as far as is known.
    pub is_over: AtomicBool,
    /// A thread is measuring.
    pub measuring: AtomicBool,
    /// What forks took from what was measured last, and how many they were; 0 once it is measured anew.
    pub given_bytes: AtomicI64,
    /// See `given_bytes`.
    pub given_forks: AtomicU32,
    /// How many relatives had ended, or were about to, before the first of these.
    pub ended_before: AtomicU32,
    /// What the fork that made this process gave it; 0 once it has measured.
    pub inherited_bytes: AtomicI64,
    /// Until when what children that have not run yet were given counts.
    pub unborn_until_ns: AtomicU64,
    /// When the kernel was last asked.
    pub looked_at_ns: AtomicU64,
    /// Sixteenths of the budget that the pool may not have, less [`SHARE_START`].
    pub share: AtomicI64,
    /// What had come back when the shares were last looked at.
    pub seen: [AtomicU64; SEEN],
    /// This process has given up its records: it ends, and publishes nothing any more.
    pub left: AtomicBool,
    /// A thread is taking records, and when that was tried last.
    pub joining: AtomicBool,
    /// See `joining`.
    pub joined_at_ns: AtomicU64,
    /// [`outswap_control::Shared::sharers_ended`] of all runs for the family, before the last measurement.
    pub sharers_ended: AtomicU32,
    /// Processes of the tree, at the last measurement.
    pub processes: AtomicUsize,
    /// What it owes to the others.
    pub pressure: Pressure,
}

/// What this process found when it last looked. See [`crate::pressure`].
#[derive(Default)]
pub struct Pressure {
    /// It has looked before.
    pub has_begun: AtomicBool,
    /// What it had to evict itself, as far as the others know of it.
    pub told_pages: AtomicU64,
    /// The same, all of it.
    pub own_pages: AtomicU64,
    /// And what all processes had to, in each run.
    pub tree_pages: [AtomicU64; MAX_LEVELS],
    /// Pages that had come in.
    pub came_pages: AtomicU64,
    /// Faults on what was about to go.
    pub hits: AtomicU64,
    /// Pages that the others leave it.
    pub left_pages: AtomicU64,
    /// Several pages had come in since the look before.
    pub takes_in: AtomicBool,
    /// Pages that it may have at most, whatever the others leave; 0 for no such limit.
    pub most_pages: AtomicU64,
    /// Until when.
    pub held_until_ns: AtomicU64,
    /// Others have a part of what there is.
    pub is_shared: AtomicBool,
    /// The same of each run, and the limit is near.
    pub is_tight: [AtomicBool; MAX_LEVELS],
}

/// Whether a limit is near that several processes share: one part in so many is left.
pub fn is_tight(limit_bytes: u64, own_bytes: u64, others_bytes: u64) -> bool {
    const LEFT_SHARE: u64 = 16;
    others_bytes > 0 && own_bytes.saturating_add(others_bytes) > limit_bytes - limit_bytes / LEFT_SHARE
}

/// How far apart measurements are at least that are wanted each `ns`: each takes a share of [`MEASURE_SHARE`] of a processor at most, and
/// those of all of many processes no more than those of [`MEASURERS`].
pub fn measure_pause_ns(ns: u64, cost_ns: u64, processes: usize) -> u64 {
    let pause_ns = ns.max(cost_ns.saturating_mul(MEASURE_SHARE));
    pause_ns.saturating_mul(processes.max(MEASURERS) as u64) / MEASURERS as u64
}

/// How far apart measurements are at least on which room depends: those that come because processes ended which shared pages, whose charge
/// is taken for room until then, and those of what is shared while the limit is exceeded. They may take more of a processor than others.
pub fn ends_pause_ns(cost_ns: u64, processes: usize) -> u64 {
    cost_ns.saturating_mul(ENDS_SHARE).saturating_mul(processes.max(MEASURERS) as u64) / MEASURERS as u64
}

/// The same where nobody faults: the longer nothing changes, the further apart, unless the budget is nearly used up.
pub fn quiet_pause_ns(ns: u64, cost_ns: u64, processes: usize, quiet: u32, is_near: bool) -> u64 {
    let most = if is_near { ns } else { QUIET_MAX_NS };
    measure_pause_ns((ns << quiet.min(16)).min(most), cost_ns, processes)
}

/// Pages that the kernel may copy unseen from one measurement of a process that shares pages to the next, as fast as one thread can
/// write to them.
pub fn unseen_copies_pages(cost_ns: u64, processes: usize, pause_ns: u64) -> u64 {
    measure_pause_ns(pause_ns, cost_ns, processes) / COPY_NS
}

/// Sixteenths of the budget kept for resident pages, however much the pool would like: at start, at most, and at least, which is
/// also what is kept where there is no file.
pub const SHARE_START: i64 = 14;

/// See [`SHARE_START`].
pub const SHARE_MAX: i64 = 16;

/// See [`SHARE_START`].
pub const SHARE_MIN: i64 = 4;

/// One part in so many of the budget is moved at a time.
pub const SHARES: u64 = 16;

/// Pages that must have come in before the shares are looked at again.
const SHARE_STEP_PAGES: u64 = 512;

/// What is kept free: one part in so many of the limit, at least, and at most.
const FREE_SHARE: u64 = 64;
/// See [`FREE_SHARE`].
const FREE_MIN_PAGES: u64 = 96;
/// See [`FREE_SHARE`].
const FREE_MAX_PAGES: u64 = 512;

/// What a fault costs that needs no file, with the eviction of what has to go for it, about.
const FAULT_NS: u64 = 10_000;
/// How much one side's gain must be above the other's, in halves, for the border to move.
const CLEAR_HALVES: u64 = 3;
/// Pages that are about to leave are from a hundredth to a sixteenth of the budget: with a sixteenth less, so many times the hits on
/// them would be faults.
const HITS_LOST: u64 = 4;

/// Installed pages count in steps of 64; every so many bytes of budget are left uncounted at most by each of the threads.
const SLACK_SHARE: u64 = 128;

/// How many pages a process is to evict because others had to: of all that the tree evicted since, its part by what it has of all memory,
/// less what it has evicted itself. Negative where that was more.
pub fn owed_pages(tree_pages: u64, own_pages: u64, own_bytes: u64, others_bytes: u64) -> i64 {
    let all_bytes = u128::from(own_bytes) + u128::from(others_bytes);
    let part = (u128::from(tree_pages) * u128::from(own_bytes)).checked_div(all_bytes).unwrap_or(0);
    i64::try_from(part).unwrap_or(i64::MAX).saturating_sub(i64::try_from(own_pages).unwrap_or(i64::MAX))
}

/// Pages that may be held in memory for good: one part in so many of the limit must stay free to evict.
const HOLD_SHARE: u64 = 8;

/// What the limits of one run leave this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// For its managed pages, bytes.
    pub pages_bytes: u64,
    /// For its pool; `None` where nothing bounds it.
    pub pool_bytes: Option<u64>,
}

impl Pressure {
    /// Whether the limit of any run is near, and others have a part of it.
    pub fn is_any_tight(&self) -> bool {
        self.is_tight.iter().any(|tight| tight.load(Relaxed))
    }

    /// The pages that the process may have where the others leave so many.
    pub fn limit_pages(&self, left_pages: u64, now_ns: impl FnOnce() -> u64) -> u64 {
        match self.most_pages.load(Relaxed) {
            0 => left_pages,
            most_pages if now_ns() < self.held_until_ns.load(Relaxed) => left_pages.min(most_pages),
            _ => left_pages,
        }
    }
}

impl Room {
    /// As much as there is.
    pub const UNBOUNDED: Room = Room { pages_bytes: u64::MAX >> 1, pool_bytes: None };
}

/// Derives the room from a run's limits (0 for none). `others` is what the run's other processes are charged with, `rest` what
/// this process has beside managed pages, and `unmanaged` the part of that which is not the pool; `sixteenths` of what
/// the others leave of the budget are kept for resident pages.
pub fn room(ram_bytes: u64, resident_bytes: u64, others: u64, rest: i64, unmanaged: i64, sixteenths: i64) -> Room {
    let mut room = Room::UNBOUNDED;
    let others = i64::try_from(others).unwrap_or(i64::MAX);
    if ram_bytes > 0 {
        let ram = i64::try_from(ram_bytes - ram_bytes / SLACK_SHARE).unwrap_or(i64::MAX);
        room.pages_bytes = ram.saturating_sub(others).saturating_sub(rest).max(0) as u64;
        // Of what the others leave: of all of it, nothing would be left for the pool where several processes share it.
        let own = (ram_bytes as i64).saturating_sub(others).max(0);
        let fixed = others.saturating_add(unmanaged.max(0)).saturating_add((own / 16).saturating_mul(sixteenths));
        room.pool_bytes = Some(ram.saturating_sub(fixed).max(0) as u64);
    }
    if resident_bytes > 0 {
        let left = if ram_bytes > 0 { resident_bytes } else { resident_bytes.saturating_sub(others as u64) };
        room.pages_bytes = room.pages_bytes.min(left);
    }
    room
}

/// How many numbers [`Back`] is made of.
pub const SEEN: usize = 8;

/// What has come back since the border between pool and resident pages was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Back {
    /// Pages from the pool.
    pub from_ram: u64,
    /// Pages from the file.
    pub from_file: u64,
    /// Pages that would have stayed, had one part in [`SHARES`] more of the budget been for resident pages.
    pub near: u64,
    /// Pages from the file that would have been in the pool, had that been so much larger.
    pub near_file: u64,
    /// What the reads of the file took that were timed.
    pub file_ns: u64,
    /// Pages that these brought.
    pub timed: u64,
    /// Touches of pages that were about to leave.
    pub hits: u64,
    /// Pages that neither the file nor the pool had room for.
    pub refused: u64,
}

impl Back {
    /// Whether these are enough for the border to be moved.
    pub fn is_enough(&self) -> bool {
        self.from_ram + self.from_file >= SHARE_STEP_PAGES
    }
}

/// Moves the border between pool and resident pages. `share` is where it was, in sixteenths of the budget above
/// [`SHARE_START`]; where it is then is returned. It goes to where a sixteenth saves more time: as resident memory, the faults of
/// pages that left just before they were wanted again; as pool, reading the file for what spilled just before. (What the sums of
/// faults of either kind are says nothing of that: with a pool that held most of the budget, programs took twice as long.) Where the
/// file is full, all room is needed that there is.
pub fn next_share(share: i64, back: &Back) -> i64 {
    if back.refused > 0 {
        return SHARE_MIN - SHARE_START;
    }
    let all = (back.from_ram + back.from_file).max(1);
    let file_ns = back.file_ns.checked_div(back.timed).unwrap_or(FAULT_NS);
    let fault_ns = FAULT_NS + (file_ns as u128 * back.from_file as u128 / all as u128) as u64;
    let gained_ns = back.near.saturating_mul(fault_ns);
    let lost_ns = back.hits.saturating_mul(HITS_LOST * fault_ns).saturating_add(gained_ns);
    let for_pool_ns = back.near_file.saturating_mul(file_ns);
    let is_clear = |more: u64, less: u64| more.saturating_mul(2) > less.saturating_mul(CLEAR_HALVES);
    let step = match () {
        () if is_clear(gained_ns, for_pool_ns) => 1,
        () if is_clear(for_pool_ns, lost_ns) => -1,
        () => 0,
    };
    (share + step).clamp(SHARE_MIN - SHARE_START, SHARE_MAX - SHARE_START)
}

/// Free pages under the limit at which background reclaim starts, and up to which it works. What is kept free is not used: with
/// 1/32 and 1/16 of the limit, programs read back up to a third more. But the thread needs as much as programs take before it has
/// written out anything, and while it runs nobody should take pages: with 1/256 in place of 1/64, CPython read back 3 % less and took 9 %
/// longer, java 6 % less and 11 % longer, sort 4 % less and 3 % less time (half of their memory, three runs each).
pub fn watermarks(limit_pages: u64) -> (u64, u64) {
    let least = FREE_MIN_PAGES.min(limit_pages / 32).max(16);
    let low = (limit_pages / FREE_SHARE).clamp(least, FREE_MAX_PAGES);
    (low, low * 2)
}

/// Bytes of a transfer that are resident at once: an eighth of the limit, 64 KiB to 1 MiB.
pub fn window_bytes(limit_pages: u64) -> usize {
    (limit_pages as usize / 8).saturating_mul(PAGE_BYTES).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
}

/// The same of a write to a file, so that it is one operation for others: a quarter of the limit, up to 4 MiB. While more is resident at once,
/// it is in the way of other pages.
pub fn record_bytes(limit_pages: u64) -> usize {
    (limit_pages as usize / 4).saturating_mul(PAGE_BYTES).min(RECORD_MAX_BYTES).max(window_bytes(limit_pages))
}

/// The same of one that may wait for long, beside so many other calls: less the more there are, so that all of them together have no more than
/// some half of the limit, but for the least of each.
pub fn waiting_bytes(limit_pages: u64, calls: usize) -> usize {
    let part = 4usize.saturating_mul(calls.saturating_sub(1).saturating_pow(2));
    let least_bytes = if calls < CALLS_FEW { WINDOW_MIN_BYTES } else { WINDOW_LEAST_BYTES };
    (limit_pages as usize / part.max(8)).saturating_mul(PAGE_BYTES).clamp(least_bytes, WINDOW_MAX_BYTES)
}

/// Managed bytes that one call may have resident: what is in use cannot be evicted, so that more would break the limit.
pub fn pinned_max_bytes(limit_pages: u64) -> usize {
    (limit_pages as usize / 2).saturating_mul(PAGE_BYTES).max(PINNED_MIN_BYTES)
}

/// Whether the limit has room for so many pages that stay.
pub fn may_hold(limit_pages: u64, pages: u64) -> bool {
    pages <= limit_pages - limit_pages / HOLD_SHARE
}

/// What a process has beside `explained_bytes`, which its managed pages and its store are known to have. Less than nothing where others are
/// charged with a part of those, and by no more than that: with mprotect, pages that the program never wrote to count as used as well, and
/// the difference is no room to fill, for they become memory by a write that nobody sees.
pub fn unexplained_bytes(share_bytes: u64, shared_bytes: u64, explained_bytes: i64) -> i64 {
    (share_bytes as i64 - explained_bytes).max(-(shared_bytes as i64))
}

/// What is taken for what a process has beside its managed pages, where it was found to be something from `least` to `most`, since some of those
/// pages count and are no memory: what it was before, as far as it can be so still.
pub fn believed_bytes(least: i64, most: i64, before: i64) -> i64 {
    least.max(before.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_RESIDENT_PAGES;
    const MIB: u64 = 1 << 20;

    #[test]
    fn what_was_never_written_to_is_no_room() {
        let unexplained = |share: u64, shared: u64, explained: i64| {
            unexplained_bytes(share * MIB, shared * MIB, explained * MIB as i64) / MIB as i64
        };
        assert_eq!(unexplained(50, 0, 40), 10);
        // 40 MiB that were read alone, and are the kernel's page of zeros.
        assert_eq!(unexplained(1, 0, 40), 0);
        // After a fork: 40 MiB, half of which the child is charged with, and 10 that were read alone.
        assert_eq!(unexplained(20, 20, 40), -20);
        assert_eq!(unexplained(20, 20, 50), -20);
        assert_eq!(unexplained(25, 20, 40), -15);
    }

    #[test]
    fn what_is_hidden_may_be_what_it_was_and_no_more_than_there_is_room_for() {
        // Nothing is hidden.
        assert_eq!([0, 7, 20].map(|before| believed_bytes(7, 7, before)), [7; 3]);
        assert_eq!([-3, 5, 12, 40].map(|before| believed_bytes(5, 25, before)), [5, 5, 12, 25]);
        // After a fork, with pages that are shared.
        assert_eq!([-30, -15, 0].map(|before| believed_bytes(-20, -10, before)), [-20, -15, -10]);
    }

    #[test]
    fn a_process_that_does_nothing_is_measured_ever_less_often() {
        const MS: u64 = 1_000_000;
        let pauses = [0, 1, 3, 30, u32::MAX].map(|quiet| quiet_pause_ns(10 * MS, MS / 10, 1, quiet, false) / MS);
        assert_eq!(pauses, [10, 20, 80, 1000, 1000]);
        assert_eq!(quiet_pause_ns(10 * MS, MS / 10, 1, 30, true), 10 * MS, "the budget is nearly used up");
        // Whatever else: at most a twentieth of a processor.
        assert_eq!([false, true].map(|near| quiet_pause_ns(10 * MS, 3 * MS, 1, 0, near)), [60 * MS; 2]);
        assert_eq!([ends_pause_ns(3 * MS, 1), ends_pause_ns(0, 1)], [12 * MS, 0]);
        assert_eq!([MS / 10, 2 * MS].map(|cost| measure_pause_ns(5 * MS, cost, 1)), [5 * MS, 40 * MS]);
        // All together not more than a few alone.
        assert_eq!(
            [2, 8, 80, 800].map(|n| measure_pause_ns(5 * MS, 2 * MS, n)),
            [40 * MS, 40 * MS, 400 * MS, 4000 * MS]
        );
        assert_eq!([8, 80].map(|n| ends_pause_ns(3 * MS, n)), [12 * MS, 120 * MS]);
    }

    #[test]
    fn the_dearer_it_is_to_measure_the_more_may_be_copied_unseen() {
        const MS: u64 = 1_000_000;
        assert_eq!([0, 1, 10].map(|cost| unseen_copies_pages(cost * MS, 1, 10 * MS)), [10_000, 20_000, 200_000]);
    }

    #[test]
    fn who_evicts_less_than_its_part_owes_the_rest() {
        assert_eq!(owed_pages(1000, 0, 3 * MIB, MIB), 750, "an idle one");
        assert_eq!(owed_pages(1000, 1000, MIB, 3 * MIB), -750, "the one that had to");
        assert_eq!(owed_pages(1000, 500, MIB, MIB), 0, "both alike");
        assert_eq!(owed_pages(1000, 1000, MIB, 0), 0, "alone");
        assert_eq!(owed_pages(1000, 0, 0, 0), 0);
        assert_eq!(owed_pages(u64::MAX, 0, u64::MAX, 0), i64::MAX);
        assert_eq!(owed_pages(0, u64::MAX, 1, u64::MAX), -i64::MAX);
    }

    #[test]
    fn only_what_others_have_too_is_tight() {
        assert!(is_tight(100, 94, 1) && is_tight(100, u64::MAX, 1));
        assert!(!is_tight(100, 93, 1) && !is_tight(100, 200, 0) && is_tight(0, 1, 1));
    }

    #[test]
    fn a_lower_limit_holds_for_its_time() {
        let pressure = Pressure::default();
        assert_eq!(pressure.limit_pages(100, || unreachable!("there is none")), 100);
        pressure.most_pages.store(80, Relaxed);
        pressure.held_until_ns.store(1000, Relaxed);
        assert_eq!(
            [(100, 999), (60, 999), (100, 1000)].map(|(left, now)| pressure.limit_pages(left, || now)),
            [80, 60, 100]
        );
    }

    #[test]
    fn what_others_use_and_what_is_not_managed_takes_room() {
        let alone = room(128 * MIB, 0, 0, 0, 0, 4);
        assert_eq!(alone, Room { pages_bytes: 127 * MIB, pool_bytes: Some(95 * MIB) });
        let with_others = room(128 * MIB, 0, 20 * MIB, 0, 0, 4);
        assert_eq!(with_others, Room { pages_bytes: 107 * MIB, pool_bytes: Some(80 * MIB) });
        let pools = [0, 32, 64, 96, 112].map(|others| room(128 * MIB, 0, others * MIB, 0, 0, 12).pool_bytes);
        assert_eq!(pools, [31, 23, 15, 7, 3].map(|mib| Some(mib * MIB)), "there is a pool beside others");
        let rest = (10 * MIB) as i64;
        assert_eq!(room(128 * MIB, 0, 0, rest, rest, 4).pages_bytes, 117 * MIB);
        assert_eq!(room(128 * MIB, 0, 0, rest, rest, 4).pool_bytes, Some(85 * MIB));
        // After a fork, pages that are shared make more room than they take.
        assert_eq!(room(128 * MIB, 0, 0, -rest, -rest, 4).pages_bytes, 137 * MIB);
        assert_eq!(room(128 * MIB, 0, 0, -rest, -rest, 4).pool_bytes, Some(95 * MIB));
    }

    #[test]
    fn resident_pages_alone_can_be_bounded() {
        assert_eq!(room(0, 0, 5 * MIB, 0, 0, 4), Room { pages_bytes: u64::MAX >> 1, pool_bytes: None });
        assert_eq!(room(0, 32 * MIB, 5 * MIB, 0, 0, 4), Room { pages_bytes: 27 * MIB, pool_bytes: None });
        assert_eq!(room(0, 32 * MIB, 50 * MIB, 0, 0, 4).pages_bytes, 0);
        assert_eq!(room(128 * MIB, 32 * MIB, 5 * MIB, 0, 0, 4).pages_bytes, 32 * MIB);
        assert_eq!(room(128 * MIB, 32 * MIB, 120 * MIB, 0, 0, 4).pages_bytes, 7 * MIB);
    }

    #[test]
    fn no_number_is_too_large() {
        for ram in [0, 1, MIB, u64::MAX] {
            for resident in [0, 1, u64::MAX] {
                for others in [0, 1, u64::MAX] {
                    for rest in [i64::MIN, -1, 0, 1, i64::MAX] {
                        let room = room(ram, resident, others, rest, rest, SHARE_MAX);
                        assert!(room.pages_bytes <= u64::MAX >> 1 || resident > 0 && ram == 0);
                        assert_eq!(room.pool_bytes.is_some(), ram > 0);
                    }
                }
            }
        }
    }

    #[test]
    fn the_border_moves_to_where_memory_saves_more_time() {
        let back = Back { from_ram: 1000, from_file: 1000, file_ns: 20_000, timed: 1, ..Back::default() };
        assert!(back.is_enough() && !Back { from_ram: SHARE_STEP_PAGES - 1, ..Back::default() }.is_enough());
        assert_eq!(next_share(-3, &Back { near: 500, ..back }), -2, "working set larger than what is resident");
        assert_eq!(next_share(-3, &Back { near_file: 500, ..back }), -4, "a scan that would fit the pool");
        assert_eq!(next_share(-3, &Back { near: 500, near_file: 500, ..back }), -3, "equally dear");
        // A page that comes back soon costs a fault, and half of them a read of the file.
        assert_eq!(next_share(-3, &Back { near: 500, near_file: 700, ..back }), -3);
        assert_eq!(next_share(-3, &Back { near: 500, near_file: 800, ..back }), -4);
        assert_eq!(next_share(-3, &Back { near: 500, near_file: 300, file_ns: 5_000_000, ..back }), -3, "a slow file");
        assert_eq!(next_share(-3, &Back { near: 100, near_file: 100, from_file: 10, file_ns: 5_000_000, ..back }), -4);
        assert_eq!(SHARE_START + next_share(0, &Back { near: 500, refused: 1, ..back }), SHARE_MIN, "the file is full");
        assert_eq!(next_share(-3, &Back { near_file: 500, hits: 100, ..back }), -3, "what stays is used");
        let end = |back: &Back| (0..100).fold(0, |share, _| next_share(share, back));
        assert_eq!(SHARE_START + end(&Back { near: 1, ..back }), SHARE_MAX);
        assert_eq!(SHARE_START + end(&Back { near_file: 1, ..back }), SHARE_MIN);
    }

    #[test]
    fn reclaim_starts_before_it_has_to_and_ends_after() {
        for limit in [MIN_RESIDENT_PAGES, 1000, 10_000, 1 << 16, 1 << 30] {
            let (low, high) = watermarks(limit);
            assert!(0 < low && low < high && high <= limit / 2, "{limit}");
        }
        assert_eq!((watermarks(512), watermarks(2048)), ((16, 32), (64, 128)));
        assert_eq!((watermarks(1 << 14), watermarks(1 << 16)), ((256, 512), (512, 1024)));
    }

    #[test]
    fn a_window_is_a_part_of_what_one_call_may_have() {
        let pages = |mib: u64| mib * MIB / PAGE_BYTES as u64;
        assert_eq!(window_bytes(pages(4)), 512 << 10);
        assert_eq!((window_bytes(MIN_RESIDENT_PAGES), window_bytes(u64::MAX)), (WINDOW_MIN_BYTES, WINDOW_MAX_BYTES));
        assert_eq!([0, 1, 2, 3, 5, 400].map(|calls| waiting_bytes(pages(4), calls) >> 10), [512, 512, 512, 256, 64, 8]);
        for limit in [MIN_RESIDENT_PAGES, pages(4), pages(32), pages(1000), u64::MAX] {
            let all: Vec<usize> = (0..1000).map(|calls| waiting_bytes(limit, calls)).collect();
            assert!(all[0] == window_bytes(limit) && all.iter().all(|bytes| bytes.is_multiple_of(PAGE_BYTES)));
            let beyond: u64 = all.iter().map(|bytes| (bytes - WINDOW_LEAST_BYTES) as u64).sum();
            let few = (CALLS_FEW * WINDOW_MIN_BYTES) as u64;
            assert!(beyond <= (limit / 8).saturating_mul(5 * PAGE_BYTES as u64).saturating_add(few), "{limit} pages");
        }
        assert_eq!([2, 8, 64, 1000].map(|mib| record_bytes(pages(mib)) >> 10), [512, 2 << 10, 4 << 10, 4 << 10]);
        assert_eq!(pinned_max_bytes(pages(64)), 32 << 20);
        assert_eq!(pinned_max_bytes(MIN_RESIDENT_PAGES), PINNED_MIN_BYTES);
        for limit in [0, MIN_RESIDENT_PAGES, pages(1), pages(100), u64::MAX] {
            assert!(
                window_bytes(limit) <= record_bytes(limit) && record_bytes(limit) <= pinned_max_bytes(limit),
                "{limit}"
            );
        }
    }

    #[test]
    fn an_eighth_stays_free_to_evict() {
        assert!(may_hold(64, 56) && !may_hold(64, 57));
        assert!(may_hold(0, 0) && !may_hold(0, 1) && may_hold(u64::MAX, u64::MAX / 8 * 7));
    }
}
