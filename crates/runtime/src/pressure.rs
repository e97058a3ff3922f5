//! Pressure between the processes of a tree: who has to evict, and who does it.
//!
//! Each process may have what the others leave, so that one that does nothing any more would keep what it has for ever, and one that has just
//! been started would go on with what is left. The kernel's reclaim takes pages from all alike, and those that are used come back. Here,
//! each process counts for all what it had to evict, and who had to evict less than its part by what it has of all memory gives up the rest: so
//! pages stay for equally long wherever they are, and what is not used ends up with the stores. A page that is wanted back soon counts for
//! several: it was in use, wherever else something may not be.
//!
//! Who takes in no more than it owes has pages isolated, and loses those that are not touched until the next look. Who takes in more is held
//! to a limit that is lower by what it owes: what it gave up it would take again, before those for whom it is.
//!
//! Only background threads look.
use crate::budget;
use crate::charge::own_record;
use crate::limits::MIN_RESIDENT_PAGES;
use crate::live::Live;
use core::sync::atomic::Ordering::Relaxed;
use outswap_control::{Control, Stat};
use outswap_core::units::BLOCK_PAGES;
use outswap_sys::os;

/// So many evictions a page counts for that comes back soon.
const SOON_WEIGHT: u64 = 32;
/// At one look a process gives up one part in so many of its pages at most: it may need them, and finds out by faults alone. More where it
/// had none since the last.
const GIVE_SHARE: u64 = 32;
const GIVE_SHARE_IDLE: u64 = 8;
/// So many faults that take in pages between two looks are several.
const AHEAD_FAULTS: u64 = 32;
/// How far apart looks are at least: what is touched less often than that goes.
pub const LOOK_NS: u64 = 50_000_000;
/// How long a lower limit holds without another look.
const HELD_NS: u64 = 4 * LOOK_NS;

/// What a look found that this process owes to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// Nothing, or the limit was lowered by it.
    Nothing,
    /// So many pages are to be given up.
    Pages(usize),
}

fn limited(live: &Live) -> impl Iterator<Item = (usize, &Control)> {
    live.control.levels().enumerate().filter(|(_, level)| level.config.ram_bytes > 0 || level.config.resident_bytes > 0)
}

/// What this process had to evict so far, as it counts for all.
fn own_pages(live: &Live) -> u64 {
    let workingset = &live.pager.workingset;
    workingset.evicted_pages().wrapping_add(workingset.soon_refaults().wrapping_mul(SOON_WEIGHT))
}

/// Tells the others what this process had to evict since the last time.
pub fn tell(live: &Live) {
    let now_pages = own_pages(live);
    let pages = now_pages.wrapping_sub(live.budget.pressure.told_pages.swap(now_pages, Relaxed));
    // Two threads that tell at once may do so in the other order.
    if pages > 0 && pages <= i64::MAX as u64 {
        limited(live).for_each(|(_, level)| _ = level.pressure_pages.fetch_add(pages, Relaxed));
    }
}

/// Finds out what this process owes to the others. For the background thread alone.
pub fn look(live: &Live) -> Owed {
    tell(live);
    let (pressure, used_pages) = (&live.budget.pressure, live.pager.used_pages());
    let own_now_pages = own_pages(live);
    let own_since_pages = own_now_pages.wrapping_sub(pressure.own_pages.load(Relaxed));
    let owed = limited(live).filter_map(|(i, level)| {
        let tree_pages = level.pressure_pages.load(Relaxed).wrapping_sub(pressure.tree_pages.get(i)?.load(Relaxed));
        let own = own_record(live, level)?;
        Some(budget::owed_pages(tree_pages, own_since_pages, own.charge(), level.charges_of_others(own)))
    });
    let owed = owed.max().unwrap_or(0);
    let has_begun = pressure.has_begun.swap(true, Relaxed);
    if has_begun && (1..BLOCK_PAGES as i64).contains(&owed) {
        // Not worth the while yet.
        return Owed::Nothing;
    }
    pressure.own_pages.store(own_now_pages, Relaxed);
    for (i, level) in limited(live) {
        if let Some(seen) = pressure.tree_pages.get(i) {
            seen.store(level.pressure_pages.load(Relaxed), Relaxed);
        }
    }
    let taken_in = taken_in(live);
    let taken_in = taken_in.saturating_sub(pressure.taken_in.swap(taken_in, Relaxed));
    let hits = live.record().counters.get(Stat::FaultHit);
    let is_idle = taken_in == 0 && pressure.hits.swap(hits, Relaxed) == hits;
    pressure.most_pages.store(0, Relaxed);
    if !has_begun || owed <= 0 || used_pages <= MIN_RESIDENT_PAGES || live.pager.full.is_full() {
        return Owed::Nothing;
    }
    let owed_pages = (owed as u64).min(used_pages / if is_idle { GIVE_SHARE_IDLE } else { GIVE_SHARE });
    if taken_in <= owed_pages {
        return Owed::Pages(owed_pages as usize);
    }
    pressure.held_until_ns.store(os::monotonic_ns() + HELD_NS, Relaxed);
    pressure.most_pages.store(used_pages - owed_pages, Relaxed);
    Owed::Nothing
}

/// Whether this process has the room made that is kept free ahead of its faults: where it is alone, or took in several pages since the last
/// look. What there is free is all processes', and who takes in next to nothing would only evict what it uses for the others.
pub fn makes_room_ahead(live: &Live) -> bool {
    let pressure = &live.budget.pressure;
    !pressure.is_shared.load(Relaxed) || taken_in(live).saturating_sub(pressure.taken_in.load(Relaxed)) >= AHEAD_FAULTS
}

/// Faults so far that took in pages.
fn taken_in(live: &Live) -> u64 {
    const FAULTS: [Stat; 3] = [Stat::FaultFirstTouch, Stat::FaultMiss, Stat::FaultBypass];
    FAULTS.iter().map(|&stat| live.record().counters.get(stat)).sum()
}
