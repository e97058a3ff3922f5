//! What a process is charged with when it forks: half of what it had, and its child the other half, until somebody has measured.
//!
//! The child's half counts as its parent's until the child has run: where other work keeps the processors busy that takes tens of
//! milliseconds, in which the parent would fill what it had given.
use crate::charge;
use crate::live::Live;
use crate::records::own_record;
use core::sync::atomic::Ordering::*;
use outswap_control::{MAX_LEVELS, Process};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// So long at most what children that have not run were given counts as their parent's: one that is killed before it runs tells nobody.
const UNBORN_NS: u64 = 1_000_000_000;

/// What a fork gives the child.
pub struct Half {
    /// Of what was measured, bytes.
    bytes: i64,
    /// What the child is charged with at first.
    charge_bytes: u64,
    /// The records of its parent in all runs, and what it counts there.
    left: [Option<(&'static Process, u64)>; MAX_LEVELS],
}

impl Half {
    /// What the child is charged with until it has measured, bytes.
    pub fn charge_bytes(&self) -> u64 {
        self.charge_bytes
    }
    /// It counts no longer as the parent's: the child is charged with it, or there is none.
    pub fn born(&self) {
        self.left.iter().flatten().for_each(|(record, bytes)| record.born(*bytes));
    }
}

/// Before a fork: what this process has, it has half of from then on, the child the other half. Whoever of the two measures
/// first must not find the other charged with all of it. Corrected by the measurement that follows.
///
/// Returns what is to be given to [`become_child`], or to [`failed`] where it fails.
pub fn before_fork(live: &Live) -> Half {
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
        budget.ended_before.store(charge::relatives_ended_or_ending(live), Relaxed);
    }
    if charge::unborn_bytes(live, live.record()) == 0 {
        budget.unborn_until_ns.store(os::monotonic_ns() + UNBORN_NS, Relaxed);
    }
    let mut left = [None; MAX_LEVELS];
    for (level, left) in live.control.levels().zip(&mut left) {
        if let Some(record) = own_record(live, level) {
            record.family.store(live.family.load(Relaxed), Release);
            if level.config.ram_bytes == 0 {
                continue;
            }
            let charge_bytes = record.charge();
            let left_bytes = charge_bytes / 2;
            record.unborn_bytes.fetch_add(left_bytes, AcqRel);
            record.charge_bytes.store(charge_bytes - left_bytes, Release);
            *left = Some((record, left_bytes));
        }
    }
    Half { bytes: half, charge_bytes: live.record().charge(), left }
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
pub fn become_child(live: &Live, half: &Half) {
    live.budget.given_bytes.store(0, Relaxed);
    live.budget.given_forks.store(0, Relaxed);
    live.budget.inherited_bytes.store(half.bytes, Relaxed);
}

/// There is no child: all is this process's as before.
pub fn failed(live: &Live, half: &Half) {
    half.born();
    live.budget.given_bytes.fetch_sub(half.bytes, Relaxed);
    live.budget.given_forks.fetch_sub(1, Relaxed);
    live.budget.other_bytes.fetch_add(half.bytes, Relaxed);
}
