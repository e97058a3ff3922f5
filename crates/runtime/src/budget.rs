//! The budget's arithmetic: how many pages may be resident, so that the anonymous memory of the whole tree stays under its
//! limit, and what follows from that for the pool, for transfers and for what is held in memory.
//!
//! Numbers go in and come out; what they are measured from is in [`crate::charge`].
use crate::limits::{PINNED_MIN_BYTES, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use outswap_core::units::PAGE_BYTES;

/// What a process knows of its budget.
#[derive(Default)]
pub struct State {
    /// Memory that managed pages do not explain, at the last measurement, less the pool then; may be negative after a fork.
    pub other_bytes: AtomicI64,
    /// When that was measured.
    pub measured_at_ns: AtomicU64,
    /// A thread is measuring.
    pub measuring: AtomicBool,
    /// The over-budget warning was given.
    pub warned: AtomicBool,
    /// Sixteenths of the budget that the pool may not have, less [`SHARE_START`].
    pub share: AtomicI64,
    /// Pages that had come in from RAM and from the file when the shares were last looked at.
    pub seen_in_ram: AtomicU64,
    /// See `seen_in_ram`.
    pub seen_in_file: AtomicU64,
    /// This process has given up its records: it ends, and publishes nothing any more.
    pub left: AtomicBool,
    /// A thread is taking records, and when that was tried last.
    pub joining: AtomicBool,
    /// See `joining`.
    pub joined_at_ns: AtomicU64,
    /// When records of dead processes were last looked for because there was no room.
    pub folded_at_ns: AtomicU64,
    /// The next record to be looked at more closely.
    pub closer_look: AtomicUsize,
}

/// Sixteenths of the budget kept for resident pages, however much the pool would like: at start, and at most.
pub const SHARE_START: i64 = 4;

/// See [`SHARE_START`].
pub const SHARE_MAX: i64 = 14;

/// Pages that must have come in before the shares are looked at again.
const SHARE_STEP_PAGES: u64 = 512;

/// What is kept free: at least, and at most.
const FREE_MIN_PAGES: u64 = 96;
const FREE_MAX_PAGES: u64 = 256;

/// A page from the file costs about so many from the pool.
const FILE_COST: u64 = 4;

/// Installed pages count in steps of 64; every so many bytes of budget are left uncounted at most by each of the threads.
const SLACK_SHARE: u64 = 128;

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

impl Room {
    /// As much as there is.
    pub const UNBOUNDED: Room = Room { pages_bytes: u64::MAX >> 1, pool_bytes: None };
}

/// Derives the room from a run's limits (0 for none). `others` is what the run's other processes are charged with, `rest` what
/// this process has beside managed pages, and `unmanaged` the part of that which is not the pool; `sixteenths` of the budget
/// are kept for resident pages.
pub fn room(ram_bytes: u64, resident_bytes: u64, others: u64, rest: i64, unmanaged: i64, sixteenths: i64) -> Room {
    let mut room = Room::UNBOUNDED;
    let others = i64::try_from(others).unwrap_or(i64::MAX);
    if ram_bytes > 0 {
        let ram = i64::try_from(ram_bytes - ram_bytes / SLACK_SHARE).unwrap_or(i64::MAX);
        room.pages_bytes = ram.saturating_sub(others).saturating_sub(rest).max(0) as u64;
        let kept = ((ram_bytes / 16) as i64).saturating_mul(sixteenths);
        let fixed = others.saturating_add(unmanaged.max(0)).saturating_add(kept);
        room.pool_bytes = Some(ram.saturating_sub(fixed).max(0) as u64);
    }
    if resident_bytes > 0 {
        let left = if ram_bytes > 0 { resident_bytes } else { resident_bytes.saturating_sub(others as u64) };
        room.pages_bytes = room.pages_bytes.min(left);
    }
    room
}

/// Whether so many pages have come in since the border between pool and resident pages was looked at that it may move.
pub fn is_share_due(from_ram: u64, from_file: u64) -> bool {
    from_ram + from_file >= SHARE_STEP_PAGES
}

/// Moves the border between pool and resident pages. `share` is where it was, in sixteenths of the budget above
/// [`SHARE_START`]; where it is then is returned. Where pages mostly come back from the pool, the program works on more
/// than is resident while the pool is full of what it does not work on: the pool gives way, and its oldest content goes to the
/// file. Where pages mostly come from the file, it is the other way round.
pub fn next_share(share: i64, from_ram: u64, from_file: u64) -> i64 {
    let step = match (from_ram, from_file * FILE_COST) {
        (ram, file) if ram > file * 2 => 1,
        (ram, file) if file > ram * 2 => -1,
        _ => 0,
    };
    (share + step).clamp(0, SHARE_MAX - SHARE_START)
}

/// Free pages under the limit at which background reclaim starts, and up to which it works. What is kept free is not used: with
/// 1/32 and 1/16 of the limit, programs read back up to a third more. But the thread needs as much as programs take before it has
/// freed anything.
pub fn watermarks(limit_pages: u64) -> (u64, u64) {
    let least = FREE_MIN_PAGES.min(limit_pages / 32).max(16);
    let low = (limit_pages / 256).clamp(least, FREE_MAX_PAGES);
    (low, low * 2)
}

/// Bytes of a transfer that are resident at once: an eighth of the limit, 64 KiB to 1 MiB.
pub fn window_bytes(limit_pages: u64) -> usize {
    (limit_pages as usize / 8).saturating_mul(PAGE_BYTES).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
}

/// Managed bytes that one call may have resident: what is in use cannot be evicted, so that more would break the limit.
pub fn pinned_max_bytes(limit_pages: u64) -> usize {
    (limit_pages as usize / 2).saturating_mul(PAGE_BYTES).max(PINNED_MIN_BYTES)
}

/// Whether the limit has room for so many pages that stay.
pub fn may_hold(limit_pages: u64, pages: u64) -> bool {
    pages <= limit_pages - limit_pages / HOLD_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_RESIDENT_PAGES;
    const MIB: u64 = 1 << 20;

    #[test]
    fn what_others_use_and_what_is_not_managed_takes_room() {
        let alone = room(128 * MIB, 0, 0, 0, 0, 4);
        assert_eq!(alone, Room { pages_bytes: 127 * MIB, pool_bytes: Some(95 * MIB) });
        let with_others = room(128 * MIB, 0, 20 * MIB, 0, 0, 4);
        assert_eq!(with_others, Room { pages_bytes: 107 * MIB, pool_bytes: Some(75 * MIB) });
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
    fn the_border_moves_towards_where_pages_come_from() {
        assert!(!is_share_due(SHARE_STEP_PAGES - 1, 0) && is_share_due(SHARE_STEP_PAGES / 2, SHARE_STEP_PAGES / 2));
        assert_eq!(next_share(0, 1000, 0), 1, "the pool gives way");
        assert_eq!(next_share(1, 0, 1000), 0, "and comes back");
        assert_eq!(next_share(5, 1000, 1000 / FILE_COST), 5, "equally dear");
        assert_eq!(next_share(5, 1000, 1000 / FILE_COST / 2 + 1), 5, "not twice as dear");
        assert_eq!(next_share(5, 1000, 1000 / FILE_COST / 2 - 1), 6);
        let end = (0..100).fold(0, |share, _| next_share(share, 1000, 0));
        assert_eq!(SHARE_START + end, SHARE_MAX, "resident pages have no more than so much");
        assert_eq!((0..100).fold(end, |share, _| next_share(share, 0, 1000)), 0);
    }

    #[test]
    fn reclaim_starts_before_it_has_to_and_ends_after() {
        for limit in [MIN_RESIDENT_PAGES, 1000, 10_000, 1 << 16, 1 << 30] {
            let (low, high) = watermarks(limit);
            assert!(0 < low && low < high && high <= limit / 2, "{limit}");
        }
        assert_eq!((watermarks(512), watermarks(2048)), ((16, 32), (64, 128)));
        assert_eq!(watermarks(1 << 16), (256, 512));
    }

    #[test]
    fn a_window_is_a_part_of_what_one_call_may_have() {
        let pages = |mib: u64| mib * MIB / PAGE_BYTES as u64;
        assert_eq!(window_bytes(pages(4)), 512 << 10);
        assert_eq!((window_bytes(MIN_RESIDENT_PAGES), window_bytes(u64::MAX)), (WINDOW_MIN_BYTES, WINDOW_MAX_BYTES));
        assert_eq!(pinned_max_bytes(pages(64)), 32 << 20);
        assert_eq!(pinned_max_bytes(MIN_RESIDENT_PAGES), PINNED_MIN_BYTES);
        for limit in [0, MIN_RESIDENT_PAGES, pages(1), pages(100), u64::MAX] {
            assert!(window_bytes(limit) <= pinned_max_bytes(limit), "{limit}");
        }
    }

    #[test]
    fn an_eighth_stays_free_to_evict() {
        assert!(may_hold(64, 56) && !may_hold(64, 57));
        assert!(may_hold(0, 0) && !may_hold(0, 1) && may_hold(u64::MAX, u64::MAX / 8 * 7));
    }
}
