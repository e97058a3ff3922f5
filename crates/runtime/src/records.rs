//! The records in which this process counts, one in each run that it is in, and those of processes that ended, which somebody has to fold
//! into the sums.
use crate::live::Live;
use crate::{bss, procfs};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use outswap_control::{Control, Counters, Once, Process, Wish};
use outswap_sys::os;

/// Where a process counts that has no record in the control block.
pub static UNCOUNTED: Process = Process {
    pid: AtomicI32::new(0),
    fault_source: AtomicU32::new(0),
    charge_bytes: AtomicU64::new(0),
    left_bytes: AtomicU64::new(0),
    others_part_bytes: AtomicU64::new(0),
    unborn_bytes: AtomicU64::new(0),
    measured: AtomicU32::new(0),
    measured_number: AtomicU64::new(0),
    family: AtomicU32::new(0),
    touched_pages: AtomicU64::new(0),
    ending: AtomicU32::new(0),
    bss: [const { AtomicU64::new(0) }; 2],
    wish: Wish::none(),
    counters: Counters::zero(),
};

/// How often a process without a record tries to get one.
const JOIN_NS: u64 = 100_000_000;
/// How often processes without room look for dead ones that hold it.
const FOLD_NS: u64 = 2_000_000;
/// Records that are looked at more closely each time: whether a process that exists is a zombie costs reading a file.
const CLOSER_LOOKS: usize = 8;

/// Takes a record of the control block for this process. With more processes than records it counts for itself alone, until
/// there is one.
pub fn take_record(control: &Control, pid: i32) -> &Process {
    let number = control.number(pid);
    let after_zombies = || {
        fold_ended(control, |_, record| record.is_ending());
        control.take(number)
    };
    control.take(number).or_else(after_zombies).unwrap_or_else(|| {
        UNCOUNTED.counters.clear();
        control.post_once(Once::Full);
        &UNCOUNTED
    })
}

/// Where the address of this process's record in a run is kept.
pub fn record_place<'a>(live: &'a Live, level: &'a Control) -> &'a AtomicPtr<Process> {
    if core::ptr::eq(level, live.control) { &live.pager.machine.record } else { &level.record }
}

/// This process's record in a run. `None` where it has none, or no longer: every process of the tree can write there.
pub fn own_record(live: &Live, level: &Control) -> Option<&'static Process> {
    // SAFETY: null, or a record of a control block, which stays mapped, or the process's own.
    let record = unsafe { record_place(live, level).load(Acquire).as_ref() };
    record.filter(|r| r.pid.load(Relaxed) == level.number(live.pid.load(Relaxed)))
}

/// Takes records where this process has none; tried now and then only.
pub fn join(live: &Live) {
    let budget = &live.budget;
    if live.control.levels().all(|level| own_record(live, level).is_some()) || budget.left.load(Acquire) {
        return;
    }
    let now = os::monotonic_ns();
    let due = now.saturating_sub(budget.joined_at_ns.load(Relaxed)) > JOIN_NS;
    if !due || budget.joining.swap(true, Acquire) {
        return;
    }
    budget.joined_at_ns.store(now, Relaxed);
    for level in live.control.levels().filter(|level| own_record(live, level).is_none()) {
        if level.is_marked() {
            // The lock was lost: with the old mark this process would count as dead.
            level.mark();
        }
        if let Some(record) = level.take(level.number(live.pid.load(Relaxed))) {
            record.fault_source.store(live.pager.machine.source.load(Relaxed), Relaxed);
            record.family.store(live.family.load(Relaxed), Relaxed);
            bss::publish(record);
            if core::ptr::eq(level, live.control) {
                record.counters.fold(&UNCOUNTED.counters);
                // Nobody has heard of what it has taken before.
                record.wish.takes.store(1, Relaxed);
            }
            record_place(live, level).store(record as *const Process as *mut Process, Release);
        }
    }
    budget.joining.store(false, Release);
}

/// Folds the records of processes that ended, which the supervisor does while it lives.
pub fn fold_dead(live: &Live) {
    for level in live.control.levels() {
        fold_ended(level, |_, _| true);
        if !level.exists(level.config.supervisor_pid) {
            // Nobody looks at what runs unmanaged any more.
            level.unmanaged.set(&[], 0);
        }
    }
}

/// [`fold_dead`], not as thorough: only those that said that they end, or with `all` those that do not exist, and of those that nobody
/// has waited for a few in turn. Returns whether anything was folded; does nothing if the last time was just now.
pub fn fold_dead_if_due(live: &Live, all: bool) -> bool {
    let now_ns = os::monotonic_ns();
    let mut any = false;
    for level in live.control.levels().filter(|level| level.may_look(all, now_ns, FOLD_NS)) {
        let records = level.used_records().len().max(1);
        let start = if all { level.closer_look.fetch_add(CLOSER_LOOKS as u32, Relaxed) as usize } else { 0 };
        any |=
            fold_ended(level, |i, record| record.is_ending() || all && i.wrapping_sub(start) % records < CLOSER_LOOKS);
        if all {
            let charged = level.used_records().iter().filter(|record| record.charge() > 0);
            let own = level.number(os::getpid());
            any |= charged.fold(false, |any, record| any | level.fold_if(record, own, |pid| !level.exists(pid)));
        }
    }
    any
}

/// Folds the records of processes that ended, also if nobody has waited for them, out of those that `is_looked_at` chooses. Returns
/// whether there was one.
fn fold_ended(level: &Control, is_looked_at: impl Fn(usize, &Process) -> bool) -> bool {
    let records = level.used_records().iter().enumerate().filter(|(i, record)| is_looked_at(*i, record));
    let is_gone = |number| procfs::is_gone_from(level, number);
    let own = level.number(os::getpid());
    records.fold(false, |any, (_, record)| any | level.fold_if(record, own, is_gone))
}
