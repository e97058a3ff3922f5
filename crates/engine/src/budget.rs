//! The budget: how many pages may be resident, so that the anonymous memory of the whole tree stays under its limit.
//!
//! What managed pages use is known exactly. Everything else of a process (engine tables, pool, stacks, libraries' data) is
//! measured: what the kernel says of the process, less what managed pages explain. Between measurements the pool's growth
//! is added. After a fork, pages are shared until they are written, which nobody tells us; then the proportional share
//! (`Pss_Anon`) is measured, which is also what the limit is judged by.
use crate::control::{Stat, tier};
use crate::live::Live;
use crate::reclaim;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use outswap_core::store::Store;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::{Errno, os};

/// What the budget knows.
#[derive(Default)]
pub struct Budget {
    /// Memory that managed pages do not explain, at the last measurement, less the pool then; may be negative after a fork.
    other_bytes: AtomicI64,
    measured_at_ns: AtomicU64,
    measuring: AtomicBool,
    /// The over-budget warning was given.
    warned: AtomicBool,
    /// Sixteenths of the budget that the pool may not have, less [`SHARE_START`].
    share: AtomicI64,
    /// Pages that had come in from RAM and from the file when the shares were last looked at.
    seen_in_ram: AtomicU64,
    seen_in_file: AtomicU64,
}

/// Resident pages that a process is left whatever happens: with fewer, an instruction with several operands and the calls in
/// progress could not all have their pages.
const MIN_RESIDENT_PAGES: u64 = 64;
/// Sixteenths of the budget kept for resident pages, however much the pool would like: at start, and at most.
const SHARE_START: i64 = 4;
const SHARE_MAX: i64 = 14;
/// Pages that must have come in before the shares are looked at again.
const SHARE_STEP_PAGES: u64 = 512;
/// A page from the file costs about so many from the pool.
const FILE_COST: u64 = 4;
/// Measurements are at least so far apart, unless memory grows quickly.
const MEASURE_NS: u64 = 5_000_000;
/// Installed pages count in steps of 64; every so many bytes of budget are left uncounted at most by each of the threads.
const SLACK_SHARE: u64 = 128;

/// Reads a small file; returns the bytes read.
pub fn read_file(path: &[u8], buf: &mut [u8]) -> usize {
    let Ok(fd) = os::open(path, os::O_RDONLY | os::O_CLOEXEC, 0) else { return 0 };
    let mut len = 0;
    while len < buf.len() {
        match os::read(fd, &mut buf[len..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => len += n,
        }
    }
    let _ = os::close(fd);
    len
}

/// The decimal number that a text begins with.
pub fn number(text: &[u8]) -> u64 {
    text.iter()
        .skip_while(|c| **c == b' ')
        .take_while(|c| c.is_ascii_digit())
        .fold(0, |n, c| n * 10 + (c - b'0') as u64)
}

/// Anonymous memory of this process in bytes, as the kernel counts it.
pub fn anonymous_bytes(shared: bool) -> Option<u64> {
    let mut buf = [0u8; 1536];
    if shared {
        let len = read_file(b"/proc/thread-self/smaps_rollup\0", &mut buf);
        let key = b"\nPss_Anon:";
        let at = buf[..len].windows(key.len()).position(|w| w == key);
        if let Some(at) = at {
            return Some(number(&buf[at + key.len()..len]) * 1024);
        }
    }
    let len = read_file(b"/proc/thread-self/statm\0", &mut buf);
    let mut fields = buf[..len].split(|c| *c == b' ');
    let resident = number(fields.nth(1)?);
    let file_and_shared = number(fields.next()?);
    Some(resident.saturating_sub(file_and_shared) * PAGE_BYTES as u64)
}

/// Measures what managed pages do not explain.
pub fn measure(live: &Live) {
    let budget = &live.budget;
    if live.control.config.ram_bytes == 0 || budget.measuring.swap(true, Acquire) {
        return;
    }
    let used = || (live.engine.used_pages() * PAGE_BYTES as u64) as i64;
    let (before, pool) = (used(), live.engine.store.memory_bytes() as i64);
    if let Some(bytes) = anonymous_bytes(live.forked.load(Relaxed)) {
        let explained = before.min(used());
        let other = bytes as i64 - explained - pool;
        // With mprotect, pages that the program never touched count as used; the difference is no room to fill.
        let other = if live.forked.load(Relaxed) { other } else { other.max(0) };
        budget.other_bytes.store(other, Relaxed);
        budget.measured_at_ns.store(os::monotonic_ns(), Relaxed);
    }
    budget.measuring.store(false, Release);
}

/// In a forked child: a measurement that another thread of the parent was at is not ours to wait for.
pub fn forget(live: &Live) {
    live.budget.measuring.store(false, Release);
}

/// Measures if the last time is long ago.
pub fn measure_if_due(live: &Live) {
    if os::monotonic_ns().saturating_sub(live.budget.measured_at_ns.load(Relaxed)) > MEASURE_NS {
        measure(live);
    }
}

/// Moves the border between pool and resident pages. Where pages mostly come back from the pool, the program works on more
/// than is resident while the pool is full of what it does not work on: the pool gives way, and its oldest content goes to the
/// file. Where pages mostly come from the file, it is the other way round.
fn balance(live: &Live) -> i64 {
    let budget = &live.budget;
    let stats = live.engine.store.stats();
    let share = budget.share.load(Relaxed);
    let (ram, file) = (stats.pages_in_ram.load(Relaxed), stats.pages_in_file.load(Relaxed));
    let new_ram = ram.saturating_sub(budget.seen_in_ram.load(Relaxed));
    let new_file = file.saturating_sub(budget.seen_in_file.load(Relaxed));
    if new_ram + new_file < SHARE_STEP_PAGES || !has_file(live) {
        return SHARE_START + share;
    }
    budget.seen_in_ram.store(ram, Relaxed);
    budget.seen_in_file.store(file, Relaxed);
    let step = match (new_ram, new_file * FILE_COST) {
        (ram, file) if ram > file * 2 => 1,
        (ram, file) if file > ram * 2 => -1,
        _ => 0,
    };
    let share = (share + step).clamp(0, SHARE_MAX - SHARE_START);
    budget.share.store(share, Relaxed);
    SHARE_START + share
}

fn has_file(live: &Live) -> bool {
    live.control.config.tiers.iter().any(|t| t.kind == tier::FILE)
}

/// Publishes what this process uses, and derives from what all use how much may be resident.
pub fn refresh(live: &Live) {
    let config = &live.control.config;
    let engine = &live.engine;
    let page = PAGE_BYTES as u64;
    let used = engine.used_pages() * page;
    let pool = engine.store.memory_bytes();
    let other = live.budget.other_bytes.load(Relaxed);
    let rest = if config.ram_bytes > 0 { (pool as i64 + other).max(-(used as i64)) } else { 0 };
    let charge = (used as i64 + rest).max(0) as u64;
    let record = live.record();
    let before = record.charge_bytes.swap(charge, AcqRel);
    let total = live
        .control
        .charge_bytes
        .fetch_add(charge.wrapping_sub(before), AcqRel)
        .wrapping_add(charge.wrapping_sub(before));
    live.control.peak_charge_bytes.fetch_max(total, Relaxed);
    let others = total.saturating_sub(charge);

    let mut limit = u64::MAX >> 1;
    if config.ram_bytes > 0 {
        let slack = config.ram_bytes / SLACK_SHARE;
        let room = (config.ram_bytes - slack) as i64 - others as i64 - rest;
        limit = limit.min(room.max(0) as u64 / page);
        let fixed = others as i64 + other.max(0) + (config.ram_bytes / 16) as i64 * balance(live);
        engine.store.set_memory_limit_bytes((config.ram_bytes as i64 - slack as i64 - fixed).max(0) as u64);
        engine.set_retain_max(engine.used_pages() / 4);
    }
    if config.resident_bytes > 0 {
        let room =
            if config.ram_bytes > 0 { config.resident_bytes } else { config.resident_bytes.saturating_sub(others) };
        limit = limit.min(room / page);
    }
    engine.set_limit_pages(limit.max(MIN_RESIDENT_PAGES));

    let counters = &record.counters;
    let stats = engine.store.stats();
    let file = stats.file_live_bytes.load(Relaxed);
    let tables = engine.table_bytes() + pool.saturating_sub(stats.pool_bytes.load(Relaxed));
    let gauges = [
        (Stat::ResidentBytes, engine.resident_pages() * page),
        (Stat::CachedBytes, engine.staged_pages() * page),
        (Stat::PoolBytes, stats.pool_bytes.load(Relaxed)),
        (Stat::PoolUsedBytes, stats.pool_used_bytes.load(Relaxed)),
        (Stat::FileBytes, file),
        (Stat::TablesBytes, tables),
        (Stat::ChargeBytes, charge),
        (Stat::UnmanagedBytes, other.max(0) as u64),
    ];
    for (stat, value) in gauges {
        counters.set(stat, value);
    }
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
        (Stat::CompressIn, &stats.compress_in_total),
        (Stat::CompressOut, &stats.compress_out_total),
        (Stat::RawUnits, &stats.raw_units),
    ] {
        counters.set(stat, counter.load(Relaxed));
    }
}

/// Whether a process has ended, or is a zombie of which no thread lives.
pub fn is_gone(pid: i32) -> bool {
    if os::kill(pid, 0) == Err(Errno::ESRCH) {
        return true;
    }
    let mut path = *b"/proc/0000000000/stat\0";
    let mut rest = pid as u32;
    for digit in path[6..16].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // The kernel takes no zeros in front.
    let skip = path[6..15].iter().take_while(|c| **c == b'0').count();
    let mut shorter = [0u8; 24];
    shorter[..6].copy_from_slice(b"/proc/");
    let tail = &path[6 + skip..];
    shorter[6..6 + tail.len()].copy_from_slice(tail);
    threads(&shorter).is_some_and(|(state, threads)| state == b'Z' && threads <= 1)
}

/// State and number of threads from a `stat` file.
fn threads(path: &[u8]) -> Option<(u8, u64)> {
    let mut buf = [0u8; 512];
    let len = read_file(path, &mut buf);
    // The name before the last parenthesis may hold anything.
    let after = buf[..len].iter().rposition(|c| *c == b')')? + 2;
    let state = *buf[..len].get(after)?;
    let field = buf[after..len].split(|c| *c == b' ').nth(17)?;
    Some((state, number(field)))
}

/// Whether the calling thread, which is not the main one, is the last of its process: the main thread counts as long as its
/// end was not noticed by the parent.
pub fn is_last_thread() -> bool {
    threads(b"/proc/self/stat\0").is_some_and(|(state, threads)| state == b'Z' && threads <= 2)
}

/// Folds the records of processes that ended, which the supervisor does while it lives.
pub fn fold_dead(live: &Live) {
    for record in &live.control.processes {
        let pid = record.pid.load(Acquire);
        if pid > 0 && is_gone(pid) {
            live.control.fold(record, pid);
        }
    }
}

/// Gives up what this process holds of the budget: it ends.
pub fn leave(live: &Live) {
    live.control.fold(live.record(), live.pid.load(Relaxed));
}

/// Called every few pages from the fault path.
pub fn tick(live: &'static Live) {
    if live.control.config.ram_bytes > 0 {
        let near = live.engine.used_pages() * 4 > live.engine.limit_pages() * 3;
        if near {
            measure_if_due(live);
        }
    }
    refresh(live);
    reclaim::wake_if_low(live);
}

/// The budget could not be held: says so once, and counts.
pub fn over(live: &Live) {
    live.stat(Stat::OverBudget, 1);
    if !live.budget.warned.swap(true, Relaxed) {
        live.warn(b"warning: nothing more can be evicted: the limit is exceeded rather than data lost (give more --ram, or a file tier)");
    }
}
