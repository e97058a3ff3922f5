//! What a process is charged with when it forks: half of what it had, and its child the other half, until somebody has measured.
use crate::charge;
use crate::live::Live;
use core::sync::atomic::Ordering::*;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// Before a fork: what this process has, it has half of from then on, the child the other half. Whoever of the two measures
/// first must not find the other charged with all of it. Corrected by the measurement that follows.
///
/// Returns what is to be given to [`become_child`], or to [`failed`] where it fails.
pub fn before_fork(live: &Live) -> i64 {
    live.budget.quiet.store(0, Relaxed);
    // As long as nobody ends, halves of halves add up to what there was. What each measures at another moment does not.
    let budget = &live.budget;
    let unmeasured = budget.given_forks.load(Relaxed) > 0 || budget.inherited_bytes.load(Relaxed) != 0;
    if unmeasured && !charge::take_back_given(live) && !charge::is_told(live, budget.given_bytes.load(Relaxed)) {
        charge::measure(live);
    }
    let used = (live.pager.used_pages() * PAGE_BYTES as u64) as i64;
    let pool = charge::anonymous_store_bytes(live) as i64;
    let all = (used + pool + live.budget.other_bytes.load(Relaxed)).max(0);
    // Without a budget nothing is measured.
    let half = if live.control.has_budget() { all / 2 } else { 0 };
    budget.other_bytes.fetch_sub(half, Relaxed);
    budget.given_bytes.fetch_add(half, Relaxed);
    if budget.given_forks.fetch_add(1, Relaxed) == 0 {
        budget.ended_before.store(charge::relatives_ended(live), Relaxed);
    }
    for level in live.control.levels() {
        if let Some(record) = charge::own_record(live, level) {
            record.family.store(live.family.load(Relaxed), Release);
            if level.config.ram_bytes == 0 {
                continue;
            }
            record.charge_bytes.store(record.charge() / 2, Release);
        }
    }
    half
}

/// After a fork, on both sides: measures, unless there is plenty of room. Then the halves, which are right at that moment, stand until the
/// next measurement: of those who fork, most execute a program or wait for one that does, and what they shared is over before anything
/// is written.
pub fn after_fork(live: &Live) {
    if !live.control.has_budget() {
        return;
    }
    if charge::is_room_plenty(live, 0) {
        live.budget.measured_at_ns.store(os::monotonic_ns(), Release);
    } else {
        charge::measure(live);
    }
}

/// In the child: what it has is what its parent gave.
pub fn become_child(live: &Live, half: i64) {
    live.budget.given_bytes.store(0, Relaxed);
    live.budget.given_forks.store(0, Relaxed);
    live.budget.inherited_bytes.store(half, Relaxed);
}

/// There is no child: all is this process's as before.
pub fn failed(live: &Live, half: i64) {
    live.budget.given_bytes.fetch_sub(half, Relaxed);
    live.budget.given_forks.fetch_sub(1, Relaxed);
    live.budget.other_bytes.fetch_add(half, Relaxed);
}
