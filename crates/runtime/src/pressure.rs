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
use crate::limits::MIN_RESIDENT_PAGES;
use crate::live::Live;
use crate::records::own_record;
use crate::store::ProcessStore;
use core::sync::atomic::Ordering::Relaxed;
use outswap_control::{Control, MAX_LEVELS, Stat};
use outswap_core::units::BLOCK_PAGES;
use outswap_sys::os;

/// So many evictions a page counts for that comes back soon.
const SOON_WEIGHT: u64 = 32;
/// At one look a process gives up one part in so many of its pages at most: it may need them, and finds out by faults alone. More where it
/// had none since the last.
const GIVE_SHARE: u64 = 32;
const GIVE_SHARE_IDLE: u64 = 8;
/// So many pages that come in between two looks are several.
const SEVERAL_PAGES: u64 = 16;
/// How far apart looks are at least: what is touched less often than that goes.
pub const LOOK_NS: u64 = 50_000_000;
/// How long a lower limit holds without another look.
const HELD_NS: u64 = 4 * LOOK_NS;

/// What this process had to evict so far, as it counts for all.
fn own_pages(live: &Live) -> u64 {
    let workingset = &live.pager.workingset;
    workingset.evicted_pages().wrapping_add(workingset.soon_refaults().wrapping_mul(SOON_WEIGHT))
}

/// The runs whose limits several processes share, and are near: what is evicted where there is room is nobody's concern.
fn tight(live: &Live) -> impl Iterator<Item = (usize, &Control)> {
    let is_tight = |i: usize| live.budget.pressure.is_tight.get(i).is_some_and(|tight| tight.load(Relaxed));
    live.control.levels().enumerate().filter(move |(i, _)| is_tight(*i))
}

/// Tells the others what this process had to evict since the last time.
pub fn tell(live: &Live) {
    let now_pages = own_pages(live);
    let told_pages = live.budget.pressure.told_pages.fetch_max(now_pages, Relaxed);
    // Of two threads that tell at once, one may find that the other has told more.
    let pages = now_pages.saturating_sub(told_pages);
    if pages > 0 {
        tight(live).for_each(|(_, level)| _ = level.pressure_pages.fetch_add(pages, Relaxed));
    }
}

/// So many of this process's pages were given up: that is no need of its own.
pub fn given(live: &Live, pages: u64) {
    live.budget.pressure.told_pages.fetch_add(pages, Relaxed);
}

/// Finds out how many pages this process is to give up now; where it is to have fewer instead, sets that. For the background thread alone.
pub fn look(live: &Live) -> usize {
    tell(live);
    let (pressure, used_pages) = (&live.budget.pressure, live.pager.used_pages());
    let came_pages = came_pages(live);
    let since_pages = came_pages.wrapping_sub(pressure.came_pages.swap(came_pages, Relaxed));
    pressure.takes_in.store(since_pages >= SEVERAL_PAGES, Relaxed);
    let hits = live.record().counters.get(Stat::FaultHit);
    let had_hits = pressure.hits.swap(hits, Relaxed) != hits;
    pressure.most_pages.store(0, Relaxed);
    let owed = owed(live);
    let is_new = !pressure.has_begun.swap(true, Relaxed);
    if owed <= 0 || is_new || used_pages <= MIN_RESIDENT_PAGES || live.pager.full.is_full() {
        return 0;
    }
    let is_idle = since_pages == 0 && !had_hits;
    let owed_pages = (owed as u64).min(used_pages / if is_idle { GIVE_SHARE_IDLE } else { GIVE_SHARE });
    if since_pages > owed_pages {
        pressure.held_until_ns.store(os::monotonic_ns() + HELD_NS, Relaxed);
        pressure.most_pages.store(used_pages - owed_pages, Relaxed);
        return 0;
    }
    // A block is what goes at a time; who has little and uses it is spared.
    if is_idle || owed_pages >= BLOCK_PAGES as u64 { owed_pages as usize } else { 0 }
}

/// What this process owes to the others since it last was told, in pages; 0 or less for nothing, also where it is not worth the while yet.
fn owed(live: &Live) -> i64 {
    let pressure = &live.budget.pressure;
    // In this order: what this process tells meanwhile is not to be taken for the others'.
    let mut tree_now_pages = [0; MAX_LEVELS];
    for (now, level) in tree_now_pages.iter_mut().zip(live.control.levels()) {
        *now = level.pressure_pages.load(Relaxed);
    }
    let own_now_pages = own_pages(live);
    let own_since_pages = own_now_pages.wrapping_sub(pressure.own_pages.load(Relaxed));
    let owed = tight(live).filter_map(|(i, level)| {
        let tree_pages = tree_now_pages[i].wrapping_sub(pressure.tree_pages[i].load(Relaxed));
        let own = own_record(live, level)?;
        Some(budget::owed_pages(tree_pages, own_since_pages, own.charge(), level.charges_of_others(own)))
    });
    let owed = owed.max().unwrap_or(0);
    if (1..BLOCK_PAGES as i64).contains(&owed) {
        return 0;
    }
    pressure.own_pages.store(own_now_pages, Relaxed);
    pressure.tree_pages.iter().zip(tree_now_pages).for_each(|(seen, now)| seen.store(now, Relaxed));
    owed
}

/// Whether this process has the room made that is kept free ahead of its faults: where it is alone, or takes in several pages. What is free is
/// all processes', and who takes in next to nothing would only evict what it uses for the others.
pub fn makes_room_ahead(live: &Live) -> bool {
    let pressure = &live.budget.pressure;
    let since_pages = || came_pages(live).saturating_sub(pressure.came_pages.load(Relaxed));
    !pressure.is_shared.load(Relaxed) || pressure.takes_in.load(Relaxed) || since_pages() >= SEVERAL_PAGES
}

/// Pages that came in so far, or came to be.
fn came_pages(live: &Live) -> u64 {
    let stats = live.pager.store.stats();
    let read = [&stats.pages_in_ram, &stats.pages_in_file].map(|pages| pages.load(Relaxed));
    let first = live.record().counters.get(Stat::PagesFirstTouch);
    read.iter().fold(first, |all, pages| all.wrapping_add(*pages))
}

/// In a forked child: what its parent had found says nothing of it.
pub fn forget(live: &Live) {
    let pressure = &live.budget.pressure;
    pressure.has_begun.store(false, Relaxed);
    pressure.takes_in.store(false, Relaxed);
    pressure.most_pages.store(0, Relaxed);
}
