//! A full store: what is said of it, and what becomes of a program that wants memory which it had not before
//! ([`outswap_control::WhenFull`]).
//!
//! Who waits does so outside of the runtime, where nobody waits for it: others fork, free memory, and end meanwhile. After each
//! short sleep it runs its instruction, or makes its call, again; so signals come in between, and it finds room by itself. The wait is
//! bounded, because what would make the room may be locked by who waits.
use crate::budget::watermarks;
use crate::live::Live;
use crate::store::ProcessStore;
use crate::{arena, charge};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use outswap_control::{EXIT_FULL, MESSAGE_BYTES, Once, Stat, Text, WhenFull, until_nul};
use outswap_core::machine::Machine;
use outswap_core::page::State;
use outswap_core::units::PageNo;
use outswap_sys::{Errno, nr, os};

/// How long threads may be held back, and none gets its page, before the limit is exceeded by who waits.
const WAIT_MAX_NS: u64 = 60_000_000_000;
/// How long a thread sleeps before it looks for room again.
const WAIT_STEP_NS: u64 = 10_000_000;

/// Before a process is ended for want of room: more than a file rests after a write that failed.
const LAST_TRY_NS: u64 = 120_000_000;
/// It was said that this process is ended.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Has the pager do as the configuration says.
pub fn begin(live: &Live) {
    live.pager.full.set_insists(live.control.config.when_full() != WhenFull::Exceed);
}

/// The limit is exceeded because the store is full. While that is not to be, by a little only, or by what comes back from the store.
pub fn over(live: &Live) {
    if live.control.config.when_full() != WhenFull::Exceed && !live.pager.full.has_given_up() {
        return;
    }
    if charge::takes_back(live) {
        return;
    }
    live.stat(Stat::OverBudget, 1);
    if live.control.is_first(Once::Exceeded) {
        tell(live, b"warning: ", b": the limit is exceeded rather than data lost");
    }
}

/// The calling thread has asked for a page that it had not before, and there is no room: it asks again after this, or never. Not
/// inside the runtime.
pub fn held_back(live: &'static Live) {
    if live.is_own_process() && live.contexts.with(|_| charge::takes_back(live)) {
        return;
    }
    let full = &live.pager.full;
    if live.control.config.when_full() == WhenFull::Fail {
        if full.try_at_once(live.pager.machine.now_ns()) {
            // Others may have ended, or given memory back; and a file rests after a write that failed.
            let end_ns = os::monotonic_ns() + LAST_TRY_NS;
            // A signal may end a sleep.
            while let left_ns @ 1.. = end_ns.saturating_sub(os::monotonic_ns()) {
                os::sleep_ns(left_ns);
            }
            if live.is_own_process() {
                live.contexts.with(|cx| {
                    charge::measure(live);
                    charge::refresh(live);
                    // With less, each few pages would take another wait like this one.
                    let pages = watermarks(live.pager.limit_pages()).0 as usize;
                    if live.pager.make_room(pages, cx) {
                        full.has_room();
                    }
                });
            }
            return;
        }
        if !ENDED.swap(true, Relaxed) {
            tell(live, b"error: ", b": a process that needs memory was ended (--when-full fail)");
        }
        if live.is_own_process() {
            live.contexts.with(|_| charge::leave(live));
        }
        os::exit_group(EXIT_FULL);
    }
    if full.held_ns(live.pager.machine.now_ns()) > WAIT_MAX_NS {
        full.give_up();
        return;
    }
    if live.control.is_first(Once::Waits) {
        tell(live, b"warning: ", b": the program waits for room, up to a minute (--when-full wait)");
    }
    live.stat(Stat::FullWaits, 1);
    let begun_ns = os::monotonic_ns();
    os::sleep_ns(WAIT_STEP_NS);
    live.stat(Stat::FullWaitNs, os::monotonic_ns().saturating_sub(begun_ns));
    if live.is_own_process() {
        // Others may have ended, or given memory back.
        live.contexts.with(|_| {
            charge::measure_if_due(live, true);
            charge::refresh(live);
        });
        live.contexts.with(|cx| live.pager.make_room(1, cx));
    }
}

/// Before a call that reads into memory: whether it is to be made again later, because some of that is new and there is no room.
/// What needs no new memory goes on.
pub fn holds_back_call(live: &'static Live, nr: usize, args: [usize; 6]) -> bool {
    if !matches!(nr, nr::READ | nr::PREAD64 | nr::RECVFROM) || !live.pager.full.holds_back() {
        return false;
    }
    let (addr, len) = (args[1], args[2].min(live.window_bytes()));
    if len == 0 || !live.is_managed(addr, len) || !live.pager.has_used_reserve() {
        return false;
    }
    let pages = arena::page_of(addr).0..=arena::page_of(addr + len - 1).0;
    let is_new = |page| matches!(live.pager.state(page), State::Untouched | State::Zero);
    let holds_back = pages.map(PageNo).any(is_new);
    if holds_back {
        held_back(live);
    }
    holds_back
}

/// Says why nothing can be stored, what follows, and what to do.
fn tell(live: &Live, head: &[u8], follows: &[u8]) {
    let mut buf = [0; MESSAGE_BYTES];
    let mut text = Text { buf: &mut buf, len: 0 };
    text.put(head);
    let advice = why(live, &mut text);
    text.put(follows);
    text.put(advice);
    let len = text.len;
    if head.starts_with(b"warning") { live.warn(&buf[..len]) } else { live.control.post(&buf[..len]) }
}

/// Adds why nothing can be stored. Gives what to do about it.
fn why(live: &Live, text: &mut Text<'_>) -> &'static [u8] {
    /// Bytes of a path that are told: its end, where it is longer.
    const PATH_BYTES: usize = 64;
    let (config, store) = (live.control.config, &live.pager.store);
    let directory = until_nul(&config.swap_dir);
    let file = config.tiers.iter().find(|tier| until_nul(&tier.kind) == b"file");
    let max_bytes = file.map_or(0, |tier| tier.max_bytes);
    let failed = Errno(store.stats().file_errno.load(Relaxed) as i32);
    let put_directory = |text: &mut Text<'_>| {
        if directory.len() > PATH_BYTES {
            text.put(b"...");
        }
        text.put(&directory[directory.len().saturating_sub(PATH_BYTES)..]);
    };
    if !store.has_file() {
        text.put(b"the pool in memory is full, and --swap names no file");
        return b"; add a file tier, or give more --ram";
    }
    if store.file_error().is_some() {
        text.put(b"no swap file can be made in ");
        put_directory(text);
        return b"; name another --swap-dir, or give more --ram";
    }
    match failed {
        Errno(0) if store.is_file_memory() && config.ram_bytes > 0 => {
            text.put(b"the swap file lies in memory, and --ram leaves it no more, in ");
            put_directory(text);
            return b"; name a --swap-dir on a disk, or give more --ram";
        }
        Errno(0) if max_bytes > 0 => {
            let (unit_bytes, unit) = if max_bytes.is_multiple_of(1 << 20) { (1 << 20, b"M") } else { (1 << 10, b"K") };
            text.put(b"the swap file has all that file:");
            text.number(i32::try_from(max_bytes / unit_bytes).unwrap_or(i32::MAX));
            text.put(unit);
            text.put(b" allows (in ");
            put_directory(text);
            text.put(b")");
            return b"; allow more there, or give more --ram";
        }
        Errno(0) => {
            text.put(b"the swap file may not grow (ulimit -f), or has no slots left, in ");
            put_directory(text);
            return b"; raise that limit, or give more --ram";
        }
        Errno::ENOSPC => text.put(b"no space left (ENOSPC) in "),
        failed => {
            text.put(b"writing to the swap file fails (error ");
            text.number(failed.0);
            text.put(b") in ");
        }
    }
    put_directory(text);
    b"; free space there, name another --swap-dir, or give more --ram"
}
