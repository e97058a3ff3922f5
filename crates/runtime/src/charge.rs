//! What this process is charged with, and what the charges of all leave it.
//!
//! What managed pages use is known exactly. Everything else of a process (runtime tables, pool, stacks, libraries' data) is
//! measured: what the kernel says of the process, less what managed pages explain. Between measurements the pool's growth
//! is added. After a fork, pages are shared until they are written, which nobody tells us; then the proportional share
//! (`Pss_Anon`) is measured, which is also what the limit is judged by.
//!
//! What the tree uses is the sum of what its live processes publish, so a process that is killed takes its part with it
//! whatever it was doing. In a run inside a run, a process publishes in both, and the tighter limit holds.
use crate::budget::{self, Back, Room, SEEN, SHARE_MIN, SHARE_START, SHARES, measure_pause_ns, quiet_pause_ns};
use crate::limits::MIN_RESIDENT_PAGES;
use crate::live::Live;
use crate::procfs::{self, Anonymous};
use crate::records::{UNCOUNTED, fold_dead_if_due, join, own_record, record_place};
use crate::store::ProcessStore;
use core::sync::atomic::Ordering::*;
use outswap_control::{Once, Process, Recorded, Stat, TREE_PEAKS};
use outswap_core::store::Store;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::os;

/// Measurements are at least so far apart, unless memory grows quickly.
const MEASURE_NS: u64 = 5_000_000;
/// And at most so far apart while pages come in, however much room there is: what is not managed may grow meanwhile.
const MEASURE_FAR_NS: u64 = 50_000_000;
/// The same where pages are shared with other processes, whose writes nobody tells of.
pub const LOOK_SHARED_NS: u64 = 10_000_000;
/// So much counts until the kernel has taken it back, though the process ends by itself.
const LEFT_BYTES: u64 = 1 << 20;
/// What two measurements may differ by that found the same.
const QUIET_BYTES: u64 = 256 << 10;
/// So long after a fork pages are held, if a relative lives then that has not executed another program. What is copied meanwhile is some
/// 8 MiB for each thread that writes.
const HOLD_AFTER_NS: u64 = 2_000_000;
/// So long after that a child is taken to be there, whether or not it has told.
const CHILD_TELLS_NS: u64 = 20_000_000;
/// Of what others have of this process's evicted pages, one part in so many takes room here, too.
const OWN_SHARE: u64 = 2;
/// Measures what managed pages do not explain, where a budget depends on it.
pub fn measure(live: &Live) {
    if live.control.has_budget() {
        measure_anyway(live);
    }
}

/// What the store has of this process's anonymous memory. A file in memory is none.
pub fn anonymous_store_bytes(live: &Live) -> u64 {
    live.pager.store.memory_bytes().saturating_sub(live.pager.store.file_memory_bytes())
}

/// False where another thread is at it.
fn measure_anyway(live: &Live) -> bool {
    let budget = &live.budget;
    if budget.measuring.swap(true, Acquire) {
        return false;
    }
    let used = || (live.pager.used_pages() * PAGE_BYTES as u64) as i64;
    let number = live.control.begin_measurement();
    live.pager.copies.begin_measurement(number, relatives_measured(live));
    let (before, pool, start_ns) = (used(), anonymous_store_bytes(live) as i64, os::thread_cpu_ns());
    // Whoever has executed a program or ended shares nothing any more. To look at each page is dear. A child that was made just now may not
    // have told that it is there.
    let is_shared = live.may_share() && (may_have_new_relative(live) || has_relatives(live));
    if let Some(Anonymous { share_bytes, shared_bytes }) = procfs::anonymous(is_shared) {
        budget.given_bytes.store(0, Relaxed);
        budget.given_forks.store(0, Relaxed);
        budget.inherited_bytes.store(0, Relaxed);
        let explained = before.min(used());
        let other = budget::unexplained_bytes(share_bytes, shared_bytes, explained + pool);
        // Zero pages that are mapped count as used, and are no memory, as is what the kernel has not filled: what they hide may be there as it was.
        let hidden_pages = match live.pager.machine.has_mapped_zeros.load(Relaxed) {
            true => live.pager.used_pages(),
            false => live.pager.untrapped_pages(),
        };
        let most = share_bytes as i64 - (explained + pool) + (hidden_pages * PAGE_BYTES as u64) as i64;
        let other = budget::believed_bytes(other, most, budget.other_bytes.load(Relaxed));
        let changed = budget.other_bytes.swap(other, Relaxed).abs_diff(other) > QUIET_BYTES;
        budget.quiet.store(if changed { 0 } else { budget.quiet.load(Relaxed).saturating_add(1) }, Relaxed);
        // Of its own: a thread that others keep from running would measure ever less often.
        budget.measure_cost_ns.store(os::thread_cpu_ns().saturating_sub(start_ns), Relaxed);
        let processes = live.control.levels().map(|level| level.live_processes()).max();
        // Every process of the tree can write there: a sudden multitude must not keep this one from measuring.
        let believed = budget.processes.load(Relaxed) * 2 + 8;
        budget.processes.store(processes.unwrap_or(0).min(believed), Relaxed);
        budget.measured_number.store(number, Release);
        let now = os::monotonic_ns();
        budget.looked_at_ns.store(now, Relaxed);
        budget.measured_at_ns.store(now, Release);
    } else if let Some(record) = own_record(live, live.control) {
        record.measured_number.store(u64::MAX, Release);
    }
    budget.measuring.store(false, Release);
    true
}

/// In a forked child: what another thread of the parent was at is not ours to wait for, and the records are the parent's.
pub fn forget(live: &Live) {
    live.budget.measuring.store(false, Release);
    live.budget.quiet.store(0, Relaxed);
    live.budget.joining.store(false, Release);
    live.budget.left.store(false, Release);
    live.budget.joined_at_ns.store(0, Release);
    // The child's store counts from nothing.
    live.budget.seen.iter().for_each(|seen| seen.store(0, Relaxed));
    live.pager.workingset.forget();
    live.control.levels().for_each(|level| level.record.store(core::ptr::null_mut(), Release));
}

/// Pages that the others leave this process, used or not: its limit, but for what it is to give up.
pub fn left_pages(live: &Live) -> u64 {
    live.pager.limit_pages().max(live.budget.pressure.left_pages.load(Relaxed))
}

/// Pages that are used, with what the kernel has copied since it was last measured.
pub fn used_pages(live: &Live) -> u64 {
    live.pager.used_pages() + live.pager.copies.unmeasured_pages()
}

/// Pages that fit beside those that are used.
pub fn free_pages(live: &Live) -> u64 {
    left_pages(live).saturating_sub(used_pages(live))
}

/// Whether what this process shares with others is so much that, were it copied by writes to it, the room there is would be gone
/// before a measurement could tell.
pub fn copies_may_exceed(live: &Live) -> bool {
    hold_in_ns(live).is_none() && copies_would_exceed(live) && has_relatives(live)
}

/// The same where there is a relative: right after a fork, in the parent.
pub fn copies_would_exceed(live: &Live) -> bool {
    // Without a budget, the limit is of managed pages, which the copies are instead of others.
    if !live.may_share() || !live.control.has_budget() || live.pager.copies.is_held() {
        return false;
    }
    let budget = &live.budget;
    let (cost_ns, processes) = (budget.measure_cost_ns.load(Relaxed), budget.processes.load(Relaxed));
    let unseen_pages = budget::unseen_copies_pages(cost_ns, processes, LOOK_SHARED_NS);
    free_pages(live) < live.pager.used_pages().min(unseen_pages)
}

/// Whether another process lives that may share pages with this one, or will when it has run.
fn has_relatives(live: &Live) -> bool {
    let family = live.family.load(Relaxed);
    let own = |level| own_record(live, level).map_or(core::ptr::null(), |r| r as *const Process);
    unborn_bytes(live, live.record()) > 0 || live.control.levels().any(|level| level.has_relatives(family, own(level)))
}

/// The lowest number of the last measurements of these, in the innermost run; `None` where there are none.
fn relatives_measured(live: &Live) -> Option<u64> {
    if unborn_bytes(live, live.record()) > 0 {
        return Some(0);
    }
    live.control.relatives_measured(live.family.load(Relaxed), live.record())
}

/// What children that have not run yet were given, as far as it counts in a record of this process, bytes.
pub fn unborn_bytes(live: &Live, record: &Process) -> u64 {
    let bytes = record.unborn();
    if bytes > 0 && os::monotonic_ns() > live.budget.unborn_until_ns.load(Relaxed) {
        record.unborn_bytes.store(0, Release);
        return 0;
    }
    bytes
}

/// Whether a fork was a short while ago.
fn may_have_new_relative(live: &Live) -> bool {
    os::monotonic_ns() < live.budget.hold_from_ns.load(Relaxed) + CHILD_TELLS_NS
}

/// Right after a fork, on both sides. A child's pages are held later: many execute a program at once, and then nothing is shared any more.
pub fn forked(live: &Live, is_child: bool) {
    if live.control.has_budget() {
        live.pager.copies.forked(is_child);
        live.budget.hold_from_ns.store(os::monotonic_ns() + HOLD_AFTER_NS, Relaxed);
    }
}

/// How long until pages may be held, where that is soon.
pub fn hold_in_ns(live: &Live) -> Option<u64> {
    let in_ns = live.budget.hold_from_ns.load(Relaxed).saturating_sub(os::monotonic_ns());
    (in_ns > 0).then_some(in_ns)
}

/// What forks took is this process's again, where as many relatives have ended or executed a program since, as far as that can be: no look
/// at each of its pages, which takes longer than the rest of a fork. False where it is not so, or is to be measured ([`is_told`]).
pub fn take_back_given(live: &Live) -> bool {
    let (budget, ended) = (&live.budget, relatives_ended(live));
    let (given, forks) = (budget.given_bytes.load(Relaxed), budget.given_forks.load(Relaxed));
    // Fewer than before, where some were still ending.
    let since = ended.wrapping_sub(budget.ended_before.load(Relaxed)) as i32;
    let are_gone = forks > 0 && since >= 0 && since as u32 >= forks;
    if !are_gone || !is_told(live, given) {
        return false;
    }
    if budget.given_bytes.swap(0, Relaxed) != 0 {
        budget.other_bytes.fetch_add(given, Relaxed);
    }
    budget.given_forks.store(0, Relaxed);
    budget.sharers_ended.store(ended, Relaxed);
    true
}

/// Whether halves may stand for a measurement: somebody has looked a short while ago, and there is plenty of room beside what this process
/// counts, with so much more.
pub fn is_told(live: &Live, more_bytes: i64) -> bool {
    let since_ns = os::monotonic_ns().saturating_sub(live.budget.looked_at_ns.load(Relaxed));
    since_ns < MEASURE_FAR_NS && is_room_plenty(live, more_bytes)
}

/// How many have ended that may have shared pages with this process, as far as it goes round.
pub fn relatives_ended(live: &Live) -> u32 {
    let family = live.family.load(Relaxed);
    live.control.levels().fold(0u32, |sum, level| sum.wrapping_add(level.sharers_ended(family)))
}

/// The same with those that have said that they end: what forks give from now on is not theirs to give back.
pub fn relatives_ended_or_ending(live: &Live) -> u32 {
    let family = live.family.load(Relaxed);
    live.control.levels().fold(relatives_ended(live), |sum, level| sum.wrapping_add(level.sharers_ending(family)))
}

/// Whether there is several times as much room as this process counts, with so much more.
pub fn is_room_plenty(live: &Live, more_bytes: i64) -> bool {
    const TIMES: u64 = 8;
    let pages = |bytes: i64| bytes.max(0) as u64 / PAGE_BYTES as u64;
    let pool = live.pager.store.memory_bytes() as i64;
    let counted_pages = used_pages(live) + pages(pool + live.budget.other_bytes.load(Relaxed) + more_bytes);
    free_pages(live) / TIMES > counted_pages
}

/// Measures if the last time is long ago; longer where the limit is not near.
pub fn measure_if_due(live: &Live, near: bool) {
    let ns = if near { MEASURE_NS } else { MEASURE_FAR_NS };
    let budget = &live.budget;
    let (cost_ns, processes) = (budget.measure_cost_ns.load(Relaxed), budget.processes.load(Relaxed));
    measure_after(live, measure_pause_ns(ns, cost_ns, processes));
}

/// As [`measure_if_due`], by the background thread while nothing is asked of it. Where pages are shared with other processes, whose
/// writes and ends nobody tells of, a measurement is dear, so that it comes less often the longer nothing changes.
pub fn measure_in_quiet(live: &Live) {
    if !live.may_share() {
        return measure_if_due(live, true);
    }
    let (cost_ns, quiet) = (live.budget.measure_cost_ns.load(Relaxed), live.budget.quiet.load(Relaxed));
    let processes = live.budget.processes.load(Relaxed);
    let is_near = live.control.levels().any(|level| {
        let ram = level.config.ram_bytes;
        ram > 0 && level.charges_of_others(core::ptr::null()) > ram / 8 * 7
    });
    measure_after(live, quiet_pause_ns(LOOK_SHARED_NS, cost_ns, processes, quiet, is_near));
}

/// Measures where a process ended that may have shared pages with this one, which has them alone now: what the other was charged
/// with is no room. Of many that end in a row, not each at once.
fn measure_after_ends(live: &Live) {
    let family = live.family.load(Relaxed);
    if family == 0 || !live.control.has_budget() {
        return;
    }
    let ended = relatives_ended(live);
    let budget = &live.budget;
    if budget.sharers_ended.load(Relaxed) == ended {
        return;
    }
    let pause_ns = budget::ends_pause_ns(budget.measure_cost_ns.load(Relaxed), budget.processes.load(Relaxed));
    let since_ns = os::monotonic_ns().saturating_sub(budget.measured_at_ns.load(Relaxed));
    if !take_back_given(live) && since_ns >= pause_ns && measure_anyway(live) {
        budget.sharers_ended.store(ended, Relaxed);
    }
}

fn measure_after(live: &Live, ns: u64) {
    let budget = &live.budget;
    // Where what others have changes and the limit is exceeded, room is made for what measurements find.
    let is_urgent = live.may_share() && budget.is_over.load(Relaxed) && budget.quiet.load(Relaxed) == 0;
    let ns = if is_urgent {
        ns.min(budget::ends_pause_ns(budget.measure_cost_ns.load(Relaxed), budget.processes.load(Relaxed)))
    } else {
        ns
    };
    if os::monotonic_ns().saturating_sub(budget.measured_at_ns.load(Relaxed)) >= ns {
        measure(live);
    }
}

/// Gives up what this process is charged with, and its records: it ends now. To be called inside the runtime, so that no
/// fork copies it half done. A child that only borrows our memory (vfork) ends without that.
pub fn leave(live: &Live) {
    if !live.is_own_process() {
        return;
    }
    measure_last(live);
    if live.budget.left.swap(true, AcqRel) {
        return;
    }
    // What it shared all the time is the others' again, who count it when they are told.
    let inherited = live.budget.inherited_bytes.load(Relaxed).max(0) as u64;
    for level in live.control.levels().filter(|level| level.config.ram_bytes > 0) {
        if let Some(record) = own_record(live, level) {
            record.charge_bytes.store(record.charge().saturating_sub(inherited), Release);
        }
    }
    let pid = live.pid.load(Relaxed);
    live.pager.machine.note(Recorded::Ends, PageNo(0), 0);
    for level in live.control.levels() {
        if let Some(record) = own_record(live, level) {
            // Threads that go on counting until they are ended must not do so in a record that is another's by then.
            record_place(live, level).store((&raw const UNCOUNTED).cast_mut(), Release);
            // Of whom nobody is told that it has ended, nobody else frees the record.
            if record.charge() < LEFT_BYTES || level.is_silent() {
                let number = level.number(pid);
                level.fold(record, number, number);
            } else {
                record.ending.store(1, Release);
            }
        }
    }
}

/// What a process has right before it ends, or executes a program: nobody may have looked while it had that. After a fork that is
/// dear to measure, and not done again at once.
fn measure_last(live: &Live) {
    let since_ns = os::monotonic_ns().saturating_sub(live.budget.measured_at_ns.load(Relaxed));
    if !live.may_share() || live.control.has_budget() && since_ns > MEASURE_FAR_NS {
        measure_anyway(live);
    }
    // With what was counted since the last time.
    refresh(live);
    let used = live.pager.used_pages() * PAGE_BYTES as u64;
    let all = used.saturating_add(live.pager.store.memory_bytes());
    let all = all.saturating_add_signed(live.budget.other_bytes.load(Relaxed));
    for level in live.control.levels().filter(|level| level.config.ram_bytes == 0) {
        let own = own_record(live, level).map_or(core::ptr::null(), |r| r);
        level.note_charge(|| level.charges_that_go_on(own).saturating_add(level.outside()).saturating_add(all));
    }
}

/// What this process is charged with does not count any more: its memory ends with the exec that follows. A managed program
/// counts anew; one that is not must not stand for it.
/// `starts`: as far as can be seen, the exec succeeds.
pub fn begin_exec(live: &Live, starts: bool) {
    live.contexts.with(|_| measure_last(live));
    live.budget.left.store(true, Release);
    set_gauges(live, [Stat::IsolatedBytes, Stat::FileMemoryBytes].into_iter().chain(TREE_PEAKS).map(|stat| (stat, 0)));
    for record in live.control.levels().filter_map(|level| own_record(live, level)) {
        record.charge_bytes.store(0, Release);
        record.others_part_bytes.store(0, Release);
        record.left_bytes.store(0, Release);
        record.measured.store(u32::MAX, Release);
    }
    live.control.levels().for_each(|level| level.tell_sharers(live.family.load(Relaxed)));
    // The program that comes cannot know by what mark this one went.
    for level in live.control.levels().filter(|level| starts && level.is_marked()) {
        if let Some(record) = own_record(live, level) {
            record_place(live, level).store((&raw const UNCOUNTED).cast_mut(), Release);
            let number = level.number(live.pid.load(Relaxed));
            level.fold(record, number, number);
        }
    }
    // If the exec fails, all is to be told again.
    live.budget.published_at_ns.store(0, Relaxed);
}

/// The exec failed: all counts again. To be called inside the runtime.
pub fn exec_failed(live: &Live) {
    live.budget.left.store(false, Release);
    live.budget.joined_at_ns.store(0, Relaxed);
    refresh(live);
}

/// Moves the border between pool and resident pages where it is time, see [`budget::next_share`]. Returns the sixteenths of the
/// budget that the pool may not have.
fn balance(live: &Live) -> i64 {
    if !has_file(live) || live.pager.store.is_file_memory() || live.pager.store.file_error().is_some() {
        return SHARE_MIN;
    }
    let (budget, stats) = (&live.budget, live.pager.store.stats());
    let share = budget.share.load(Relaxed);
    let near = live.pager.workingset.near_refaults();
    let now = [
        stats.pages_in_ram.load(Relaxed),
        stats.pages_in_file.load(Relaxed),
        near,
        stats.pages_in_file_near.load(Relaxed),
        stats.file_read_ns.load(Relaxed),
        stats.file_pages_timed.load(Relaxed),
        live.record().counters.stats[Stat::FaultHit as usize].load(Relaxed),
        stats.full.load(Relaxed),
    ];
    let since: [u64; SEEN] = core::array::from_fn(|i| now[i].saturating_sub(budget.seen[i].load(Relaxed)));
    let [from_ram, from_file, near, near_file, file_ns, timed, hits, refused] = since;
    // A store that is left alone after it refused is as full as before.
    let refused = refused + u64::from(live.pager.full.is_full());
    let back = Back { from_ram, from_file, near, near_file, file_ns, timed, hits, refused };
    if !back.is_enough() && refused == 0 {
        return SHARE_START + share;
    }
    budget.seen.iter().zip(now).for_each(|(seen, now)| seen.store(now, Relaxed));
    let share = budget::next_share(share, &back);
    budget.share.store(share, Relaxed);
    // The distances that count as near: what a share of the budget is as pages, and as pages in the pool.
    let budgets = live.control.levels().map(|level| level.config.ram_bytes).filter(|bytes| *bytes > 0);
    let part_pages = budgets.min().unwrap_or(0) / SHARES / PAGE_BYTES as u64;
    let packed = |pages: u64| match stats.compress_out_total.load(Relaxed) {
        0 => pages,
        out => (pages as u128 * stats.compress_in_total.load(Relaxed) as u128 / out as u128) as u64,
    };
    live.pager.workingset.set_near_pages(part_pages);
    live.pager.store.set_near_pages(packed(part_pages));
    SHARE_START + share
}

fn has_file(live: &Live) -> bool {
    live.pager.store.has_file()
}

/// The tightest of the rooms that all runs leave, after publishing in each what this process uses. Also whether other
/// processes' use is what makes it as tight as it is.
fn tightest(live: &Live, used: u64, rest: i64, unmanaged: i64, sixteenths: i64) -> (Room, bool) {
    let mut tight = Room::UNBOUNDED;
    let (mut shared, mut over) = (false, false);
    for (i, level) in live.control.levels().enumerate() {
        let (config, record) = (level.config, own_record(live, level));
        // Without a budget, managed pages alone count.
        let charge = if config.ram_bytes > 0 { used.saturating_add_signed(rest) } else { used };
        let others_part = if config.ram_bytes > 0 { live.pager.copies.others_pages() * PAGE_BYTES as u64 } else { 0 };
        if let Some(record) = record {
            record.charge_bytes.store(charge, Release);
            record.others_part_bytes.store(others_part, Release);
        }
        let own = record.map_or(core::ptr::null(), |r| r as *const Process);
        // Nobody else counts what children have that have not run yet.
        let outside = || level.outside().saturating_add(record.map_or(0, |record| unborn_bytes(live, record)));
        level.note_charge(|| outside().saturating_add(level.charges_that_go_on(own)).saturating_add(charge));
        let others = outside().saturating_add(level.claims_but(own));
        let all = others.saturating_add(charge).saturating_add(others_part);
        over |= config.ram_bytes > 0 && all > config.ram_bytes;
        let limit_bytes = if config.ram_bytes > 0 { config.ram_bytes } else { config.resident_bytes };
        if let Some(tight) = live.budget.pressure.is_tight.get(i) {
            tight.store(limit_bytes > 0 && budget::is_tight(limit_bytes, charge + others_part, others), Relaxed);
        }
        // Others make room for their part. Where each of two leaves as much to the other, nobody would make room for half of it; and all of it
        // would be too much, because what this process evicts for it may be shared, too.
        let others = others.saturating_add(others_part / OWN_SHARE);
        let room = budget::room(config.ram_bytes, config.resident_bytes, others, rest, unmanaged, sixteenths);
        if room.pages_bytes < tight.pages_bytes {
            tight.pages_bytes = room.pages_bytes;
            shared = others > 0;
        }
        tight.pool_bytes = [tight.pool_bytes, room.pool_bytes].into_iter().flatten().min();
    }
    live.budget.is_over.store(over, Relaxed);
    (tight, shared)
}

/// Publishes what this process uses, and derives from what all use how much may be resident.
pub fn refresh(live: &Live) {
    if live.budget.left.load(Acquire) {
        return;
    }
    join(live);
    measure_after_ends(live);
    let pager = &live.pager;
    let page = PAGE_BYTES as u64;
    let used = used_pages(live) * page;
    let pool = pager.store.memory_bytes();
    // Before what was measured then, so that it is not older.
    let measured = (live.budget.measured_at_ns.load(Acquire), live.budget.measured_number.load(Acquire));
    let other = live.budget.other_bytes.load(Relaxed);
    let has_budget = live.control.has_budget();
    let rest = if has_budget { (pool as i64 + other).max(-(used as i64)) } else { 0 };
    let charge = (used as i64 + rest).max(0) as u64;
    let sixteenths = if has_budget { balance(live) } else { 0 };
    let (mut room, shared) = tightest(live, used, rest, other, sixteenths);
    live.budget.pressure.is_shared.store(shared, Relaxed);
    // What ended processes held must not weigh on this one until somebody else finds out.
    if shared && room.pages_bytes / 8 * 7 < used && fold_dead_if_due(live, room.pages_bytes < used) {
        room = tightest(live, used, rest, other, sixteenths).0;
    }
    if let Some(bytes) = room.pool_bytes {
        pager.store.set_memory_limit_bytes(bytes);
        pager.set_swapcache_max(pager.used_pages() / 4);
    }
    let pressure = &live.budget.pressure;
    let left_pages = room.pages_bytes / page;
    pressure.left_pages.store(left_pages, Relaxed);
    // What cannot go anywhere, or what nobody needs any more, is not to be given up.
    let gives = pressure.is_any_tight() && !pager.full.is_full();
    let limit_pages = if gives { pressure.limit_pages(left_pages, os::monotonic_ns) } else { left_pages };
    pager.set_limit_pages(limit_pages.max(MIN_RESIDENT_PAGES));

    let record = live.record();
    let counters = &record.counters;
    let stats = pager.store.stats();
    let file = stats.file_live_bytes.load(Relaxed);
    let in_file = pager.store.file_memory_bytes();
    let tables = pager.table_bytes() + pool.saturating_sub(stats.pool_bytes.load(Relaxed)).saturating_sub(in_file);
    let gauges = [
        (Stat::ResidentBytes, pager.resident_pages() * page),
        (Stat::IsolatedBytes, pager.isolated_pages() * page),
        (Stat::PoolBytes, stats.pool_bytes.load(Relaxed)),
        (Stat::PoolUsedBytes, stats.pool_used_bytes.load(Relaxed)),
        (Stat::FileBytes, file),
        (Stat::FileMemoryBytes, in_file),
        (Stat::TablesBytes, tables),
        (Stat::ChargeBytes, charge),
    ];
    record.touched_pages.store(counters.get(Stat::PagesFirstTouch), Relaxed);
    set_gauges(live, gauges);
    tell_left(live);
    for level in live.control.levels() {
        level.note_own([used, stats.pool_bytes.load(Relaxed), tables, file, 0]);
    }
    publish_measured(live, measured, other);
    for (peak, value) in [
        (Stat::PeakResidentBytes, used),
        (Stat::PeakPoolBytes, stats.pool_bytes.load(Relaxed)),
        (Stat::PeakFileBytes, file),
        (Stat::PeakTablesBytes, tables),
        (Stat::PeakChargeBytes, charge),
    ] {
        counters.stats[peak as usize].fetch_max(value, Relaxed);
    }
    counters.add(Stat::PoolSeenKib, stats.pool_bytes.load(Relaxed) >> 10);
    counters.add(Stat::PoolUsedSeenKib, stats.pool_used_bytes.load(Relaxed) >> 10);
    // The store counts for itself; its counters are copied, so that they survive the process.
    for (stat, counter) in [
        (Stat::PagesOutRam, &stats.pages_out_ram),
        (Stat::PagesInRam, &stats.pages_in_ram),
        (Stat::PagesOutFile, &stats.pages_out_file),
        (Stat::PagesInFile, &stats.pages_in_file),
        (Stat::BytesOutFile, &stats.file_written_total),
        (Stat::BytesInFile, &stats.file_read_total),
        (Stat::FileWrites, &stats.file_writes),
        (Stat::FileReadsTogether, &stats.file_reads_together),
        (Stat::DeviceRequests, &stats.device_requests),
        (Stat::DeviceNs, &stats.device_ns),
        (Stat::DeviceWaitNs, &stats.device_wait_ns),
        (Stat::CompressIn, &stats.compress_in_total),
        (Stat::CompressOut, &stats.compress_out_total),
        (Stat::RawUnits, &stats.raw_units),
        (Stat::WriteErrors, &stats.write_errors),
    ] {
        counters.set(stat, counter.load(Relaxed));
    }
}

/// Sets gauges in all runs: their sums are of all that the limit of a run is for.
fn set_gauges(live: &Live, gauges: impl IntoIterator<Item = (Stat, u64)>) {
    for (stat, value) in gauges {
        live.record().counters.set(stat, value);
        for record in live.control.levels().filter_map(|level| own_record(live, level)) {
            record.counters.set(stat, value);
        }
    }
}

/// Tells the others, and the supervisor, that this process has measured itself, where it has since the last time.
fn publish_measured(live: &Live, (at_ns, number): (u64, u64), other: i64) {
    // Without a measurement of its own, the supervisor's stands.
    if at_ns == live.budget.published_at_ns.swap(at_ns, Relaxed) {
        return;
    }
    // What is there in tables is counted with them.
    let tables = live.pager.table_bytes();
    set_gauges(live, [(Stat::UnmanagedBytes, (other.max(0) as u64).saturating_sub(tables))]);
    for level in live.control.levels() {
        if let Some(record) = own_record(live, level) {
            record.family.store(live.family.load(Relaxed), Relaxed);
            record.measured.fetch_add(1, Release);
            record.measured_number.store(number, Release);
        }
        level.note_peaks();
    }
}

/// Whether what all processes of the run have left to the kernel is at most one part in so many of the limit.
pub fn is_little_left(live: &Live, share: u64) -> bool {
    live.control.levels().all(|level| {
        let limits = [level.config.ram_bytes, level.config.resident_bytes];
        let limit_bytes = limits.into_iter().filter(|&bytes| bytes > 0).min().unwrap_or(u64::MAX);
        let left_bytes = |process: &Process| process.left_bytes.load(Relaxed).min(limit_bytes);
        level.others(core::ptr::null()).map(left_bytes).fold(0, u64::saturating_add) <= limit_bytes / share
    })
}

/// Publishes how much is left to the kernel.
pub fn tell_left(live: &Live) {
    let bytes = live.pager.untrapped_pages() * PAGE_BYTES as u64;
    for record in live.control.levels().filter_map(|level| own_record(live, level)) {
        record.left_bytes.store(bytes, Release);
    }
}

/// Publishes that this process uses less by now, where it does. Nothing is measured: of several that free what they share, each would find what
/// the others have not freed yet.
pub fn count_less(live: &Live) {
    let used = (used_pages(live) * PAGE_BYTES as u64) as i64;
    let rest = anonymous_store_bytes(live) as i64 + live.budget.other_bytes.load(Relaxed);
    for level in live.control.levels().filter(|level| level.config.ram_bytes > 0) {
        if let Some(record) = own_record(live, level) {
            record.charge_bytes.fetch_min((used + rest).max(0) as u64, AcqRel);
        }
    }
}

/// Whether the limit was lower by what this process is to give up. It is not any more.
pub fn takes_back(live: &Live) -> bool {
    let is_lower = live.budget.pressure.most_pages.swap(0, Relaxed) > 0;
    if is_lower {
        refresh(live);
    }
    is_lower
}

/// The budget could not be held: says so once in a run, and counts.
pub fn over(live: &Live) {
    if takes_back(live) {
        return;
    }
    live.stat(Stat::OverBudget, 1);
    if live.control.is_first(Once::Exceeded) {
        live.warn(match has_file(live) {
            true => b"warning: nothing more can be evicted for now: the limit is exceeded rather than data lost (give more --ram)",
            false => b"warning: nothing more can be evicted: the limit is exceeded rather than data lost (give more --ram, or a file tier)",
        });
    }
}
