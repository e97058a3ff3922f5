//! The background thread: it keeps frames free, so that faults need not wait for write-out, reads ahead, and works for processes
//! that share this memory ([`crate::desk`]).
//!
//! It is a bare thread of the kernel's, unknown to the C library: it must exist in programs that never make a thread, and work
//! when the C library's own state is in any condition.
use crate::background::{self, ASLEEP, HOLDS, THREAD, WAKE, wake};
use crate::budget::watermarks;
use crate::charge::free_pages;
use crate::confined::keeps_one_thread;
use crate::contexts::Cx;
use crate::limits::{BACKGROUND_STACK_BYTES, RECLAIM_STEPS, SHRINK_BYTES};
use crate::live::{Live, live};
use crate::store::ProcessStore;
use crate::{
    accessed, charge, clock, descriptors, desk, gate, pins, pressure, procfs, records, scheduling, sharers, threads,
    wishes,
};
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::*};
use outswap_control::Stat;
use outswap_core::lock::SpinLock;
use outswap_core::room::Step;
use outswap_core::store::Store;
use outswap_core::units::BLOCK_PAGES;
use outswap_source::Taker;
use outswap_sys::{PAGE_BYTES, nr, os, signal};

static QUIT: AtomicBool = AtomicBool::new(false);
/// The thread that faults next is to take pages: looks that found few frames since one did.
static TAKE: AtomicU32 = AtomicU32::new(0);
/// After so many of them the background thread is to: the program's threads have pages brought in by calls alone.
const TAKE_OVERDUE: u32 = 4;
/// The least limit with which the program's threads take pages: of fewer, what was just touched would soon be among them.
const TAKERS_MIN_PAGES: u64 = 16 * BLOCK_PAGES as u64;
/// While the background thread runs, pages are taken where one part in so many of what is to be free is left.
const CRITICAL_SHARE: u64 = 4;
/// The background thread is to take pages.
static OVERDUE: AtomicBool = AtomicBool::new(false);
/// Held while a thread is started, or is kept from being started.
static STARTING: SpinLock<()> = SpinLock::new(());
/// Some thread of the program has descriptors, directories or namespaces that others have not.
static IS_APART: AtomicBool = AtomicBool::new(false);
/// Who started the thread, which has what that one had.
static STARTER: AtomicI32 = AtomicI32::new(0);
static HAS_STARTER_ENDED: AtomicBool = AtomicBool::new(false);
/// Processes about to be made that will share the memory: the thread is not to end by itself.
static COMING: AtomicU32 = AtomicU32::new(0);
/// The thread's stack: one, kept for the next.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// How long the thread sleeps at most before it looks at the budget again: other processes of the tree may need room, and memory
/// that is not managed grows without a word.
const LOOK_NS: u64 = 50_000_000;
/// The thread starts when one part in so many of the limit is used: less is not worth evicting.
const START_SHARE: u64 = 16;
/// The same where so much is left to the kernel to fill: others may need what is not filled. Not less: some programs make sure at their start that
/// they have one thread (Chromium's zygotes). Processes without one leave no more where all together have left so much.
const START_LEFT_SHARE: u64 = 8;

/// The same for processes with a thread, which takes back what they have left when memory is short.
const LEFT_SHARE: u64 = 3;
/// First touches that are not left to the kernel, after what all have left was found to be too much: to add that up takes a while.
const LEAVE_REST: u32 = 64;
static LEAVE_RESTS: AtomicU32 = AtomicU32::new(0);

/// Rounds without success after which the thread sleeps.
const IDLE_ROUNDS: u32 = 3;

/// Looks after which pins of threads that ended inside a call are freed.
const SWEEP_LOOKS: u32 = 16;

/// Looks at the budget: called every few pages from the fault path.
pub fn tick(live: &'static Live) {
    if live.control.has_budget() {
        let near = live.pager.used_pages() * 4 > live.pager.limit_pages() * 3;
        charge::measure_if_due(live, near);
    }
    charge::refresh(live);
    pressure::tell(live);
    wake_if_low(live);
}

/// Pages were left to the kernel: the supervisor is to know, which sees those that are there alone, and somebody may have to take them back.
pub fn has_left(live: &'static Live) {
    charge::tell_left(live);
    wake_if_low(live);
}

/// Whether pages may be left to the kernel: what a process has left, and has no thread to take back, is room for nobody.
pub fn may_leave(live: &Live) -> bool {
    if let rest @ 1.. = LEAVE_RESTS.load(Relaxed) {
        // Two at once may count as one.
        LEAVE_RESTS.store(rest - 1, Relaxed);
        return false;
    }
    let may = charge::is_little_left(live, if THREAD.load(Relaxed) == 0 { START_LEFT_SHARE } else { LEFT_SHARE });
    if !may {
        LEAVE_RESTS.store(LEAVE_REST, Relaxed);
    }
    may
}

/// Wakes the thread when frames run low; starts it when they might soon.
pub fn wake_if_low(live: &'static Live) {
    let limit = live.pager.limit_pages();
    if THREAD.load(Relaxed) == 0 {
        let left = live.pager.untrapped_pages();
        let is_much = live.pager.used_pages().saturating_sub(left) > limit / START_SHARE
            || left > limit / START_LEFT_SHARE && live.control.has_budget();
        if is_much && live.is_own_process() && !keeps_one_thread(live) {
            ensure();
        }
        return;
    }
    if !lacks_room(live) {
        return;
    }
    if !has_takers(live) {
        return wake();
    }
    // Who has just faulted takes pages, and wakes the thread when it has; not while the thread runs, which says nothing of whether
    // anybody would.
    if !background::is_asleep() {
        TAKE.store(1, Relaxed);
    } else if TAKE.fetch_add(1, Relaxed) >= TAKE_OVERDUE {
        OVERDUE.store(true, Relaxed);
        wake();
    }
}

/// Whether room is to be made: the limit is exceeded, or less is free than this process is to find where it takes in pages.
fn lacks_room(live: &Live) -> bool {
    is_over(live) || free_pages(live) < watermarks(live.pager.limit_pages()).0 && pressure::makes_room_ahead(live)
}

/// Whether this process has more than it may have, or more than it is to keep ([`pressure`]).
fn is_over(live: &Live) -> bool {
    charge::used_pages(live) > live.pager.limit_pages()
}

/// Takes pages on behalf of the background thread, and frees what that has written out. For a thread of the program's that has just
/// been given a page.
pub fn take_if_wanted(live: &Live, cx: &mut Cx) {
    if TAKE.load(Relaxed) == 0 {
        return;
    }
    let (low, high) = watermarks(live.pager.limit_pages());
    if !background::is_asleep() {
        // The thread that runs would be interrupted, and waited for. What it has written out is enough for now.
        let critical = low / CRITICAL_SHARE;
        if free_pages(live) <= critical {
            release_kept(live, low);
        }
        if free_pages(live) > critical {
            return;
        }
    }
    if TAKE.swap(0, Relaxed) == 0 {
        return;
    }
    if live.source().taker() == Taker::Lone && !threads::is_alone() {
        return wake();
    }
    let begun = clock::ticks();
    release_kept(live, high);
    let has_work = live.pager.isolate_ahead(high as usize, cx);
    live.stat(Stat::TakeNs, clock::ticks_to_ns(clock::ticks().saturating_sub(begun)));
    // Each batch that was freed was a look.
    TAKE.store(0, Relaxed);
    if has_work {
        wake();
    }
}

/// Frees what was written out, until so many pages are free.
fn release_kept(live: &Live, pages: u64) {
    while free_pages(live) < pages && live.pager.release_kept().is_some() {}
}

/// Whether threads of the program are to take pages.
fn has_takers(live: &Live) -> bool {
    let is_large = live.pager.limit_pages() >= TAKERS_MIN_PAGES;
    is_large && (live.source().taker() == Taker::Toucher || threads::is_program_alone())
}

/// Whether the program's threads take pages and free frames, so that the background thread only writes out.
fn program_takes(live: &Live) -> bool {
    let fits = live.pager.used_pages() <= charge::left_pages(live);
    fits && !OVERDUE.swap(false, Relaxed) && has_takers(live)
}

/// Pages may have to be held soon: the thread looks then.
pub fn wake_to_hold(live: &Live) {
    if THREAD.load(Relaxed) != 0 && charge::hold_in_ns(live).is_some() {
        wake();
    }
}

/// Something is to be read ahead: the thread does it; without one, nobody.
pub fn wake_to_read(live: &'static Live) {
    if THREAD.load(Relaxed) != 0 {
        wake();
    } else if live.is_own_process() && !keeps_one_thread(live) {
        ensure();
    }
}

/// A stream is about to enter a block: the thread brings it in, where the program has one thread, so that there is a processor that
/// has time, and the fault source is one for which that is not dearer than for the program's thread.
pub fn wake_for_stream(live: &'static Live) -> bool {
    let brings = THREAD.load(Relaxed) != 0
        && live.is_own_process()
        && live.source().taker() == Taker::Toucher
        && threads::is_program_alone();
    if brings && free_pages(live) >= watermarks(live.pager.limit_pages()).0 {
        wake();
    }
    brings
}

/// In a forked child the thread is gone.
pub fn forget() {
    background::forget();
    QUIT.store(false, Release);
    COMING.store(0, Release);
    OVERDUE.store(false, Relaxed);
    IS_APART.store(false, Relaxed);
    // SAFETY: no other thread exists that could hold it.
    unsafe { STARTING.forget() };
}

/// Whether the thread lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// It does.
    Lives,
    /// It may not just now.
    HeldOff,
    /// It cannot be made: a limit of processes, or another namespace of process ids for all children.
    Impossible,
}

/// Starts the thread unless there is one. Where it cannot be made, reclaim happens in the program's threads alone. Only for the process
/// whose runtime this is.
pub fn ensure() -> Ensured {
    if THREAD.load(Acquire) != 0 && !QUIT.load(SeqCst) {
        return Ensured::Lives;
    }
    let mut spins = 0;
    loop {
        {
            let _starting = STARTING.lock(os::wait_a_little);
            if HOLDS.load(SeqCst) != 0 {
                return Ensured::HeldOff;
            }
            if THREAD.load(Acquire) == 0 {
                return if start() { Ensured::Lives } else { Ensured::Impossible };
            }
            if !QUIT.load(SeqCst) {
                return Ensured::Lives;
            }
        }
        // Without the lock, which the thread may want before it ends.
        os::wait_a_little(spins);
        spins += 1;
    }
}

/// A process is about to be made that shares the memory: from here on, the thread that it needs does not end by itself.
pub fn expect_sharer() {
    let _starting = STARTING.lock(os::wait_a_little);
    COMING.fetch_add(1, SeqCst);
}

/// It has its place, or there is none.
pub fn end_expectation() {
    COMING.fetch_sub(1, SeqCst);
}

/// Whether the thread is to end, because nobody needs it in a process that is to have one thread: who shared the memory has executed a
/// program, or was killed. Or because it has what only a thread had that has ended: another thread starts the next.
fn is_superfluous(live: &Live) -> bool {
    if !keeps_one_thread(live) && !HAS_STARTER_ENDED.load(SeqCst) {
        return false;
    }
    let _starting = STARTING.lock(os::wait_a_little);
    quit_unless_needed()
}

/// Has the thread end, unless a process needs it that shares the memory. Says whether it is to. The caller has `STARTING`.
fn quit_unless_needed() -> bool {
    let is_needed = COMING.load(SeqCst) != 0 || HOLDS.load(SeqCst) != 0 || sharers::is_any_here();
    if !is_needed {
        QUIT.store(true, SeqCst);
    }
    !is_needed
}

/// Threads have from here on what others have not: descriptors, directories or namespaces.
pub fn note_apart() {
    IS_APART.store(true, Relaxed);
}

/// The calling thread ends. What it alone had is to be gone with it: a pipe's end that nobody has any more is closed, and a namespace
/// without threads is none.
pub fn thread_ends(live: &Live) {
    if !IS_APART.load(Relaxed) {
        return;
    }
    let (tid, ends) = {
        // Another one may be starting the next.
        let _starting = STARTING.lock(os::wait_a_little);
        let tid = THREAD.load(SeqCst);
        if tid == 0 || STARTER.load(SeqCst) != os::gettid() {
            return;
        }
        HAS_STARTER_ENDED.store(true, SeqCst);
        (tid, quit_unless_needed())
    };
    // Where it is needed still, it ends by itself.
    if ends {
        while THREAD.load(SeqCst) == tid {
            wake_to_end(tid);
        }
        await_gone(live, tid);
    }
}

/// So long at most who changes rights waits for processes to be made that share the memory: several threads that do so on end would let no
/// such process come to be.
const GIVES_WAY_NS: u64 = 10_000_000;

/// Ends the thread, and keeps it from being started until [`let_go`]: no thread of ours may have rights that the program gives
/// up.
pub fn hold_off(live: &Live) {
    live.contexts.assert_outside();
    let (until_ns, mut spins) = (os::monotonic_ns() + GIVES_WAY_NS, 0);
    while COMING.load(SeqCst) != 0 && os::monotonic_ns() < until_ns {
        os::wait_a_little(spins);
        spins += 1;
    }
    {
        let _starting = STARTING.lock(os::wait_a_little);
        HOLDS.fetch_add(1, SeqCst);
    }
    retire(live);
}

/// Ends the thread, and waits until it is out of the process.
pub fn retire(live: &Live) {
    let last = THREAD.load(SeqCst);
    loop {
        let tid = THREAD.load(SeqCst);
        if tid == 0 {
            return await_gone(live, last);
        }
        QUIT.store(true, SeqCst);
        wake_to_end(tid);
    }
}

/// Wakes the thread, which is to end, and waits for that a little.
fn wake_to_end(tid: u32) {
    const LOOK_NS: u64 = 1_000_000;
    wake();
    let _ = os::futex_wait(&THREAD, tid, LOOK_NS, true);
}

/// Waits until the thread that had this id is out of the process: the word is cleared a moment before. 0: there was none.
fn await_gone(live: &Live, tid: u32) {
    let mut spins = 0;
    while tid != 0 && os::tgkill(live.pid.load(Relaxed), tid as i32, 0).is_ok() {
        os::wait_a_little(spins);
        spins += 1;
    }
}

/// Ends a [`hold_off`].
pub fn let_go(live: &'static Live) {
    {
        let _starting = STARTING.lock(os::wait_a_little);
        if HOLDS.load(SeqCst) == 1 && sharers::is_any_here() {
            // Somebody may wait for it.
            start();
        }
        HOLDS.fetch_sub(1, SeqCst);
    }
    wake_if_low(live);
}

/// How the thread is made: VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, PARENT_SETTID, CHILD_CLEARTID.
pub const THREAD_FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x10_0000 | 0x20_0000;

global_asm!(
    ".globl outswap_background",
    ".hidden outswap_background",
    "outswap_background:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    main = sym main,
);
unsafe extern "C" {
    fn outswap_background();
}

/// Makes the thread. The caller has `STARTING`, and there is none.
fn start() -> bool {
    let mut stack = STACK.load(Acquire);
    if stack == 0 {
        let Ok(at) = os::mmap_anonymous(PAGE_BYTES + BACKGROUND_STACK_BYTES) else { return false };
        // SAFETY: the lowest page of a stack that nobody uses yet.
        let _ = unsafe { os::mprotect(at, PAGE_BYTES, os::PROT_NONE) };
        stack = at + PAGE_BYTES;
        STACK.store(stack, Release);
    }
    QUIT.store(false, SeqCst);
    STARTER.store(os::gettid(), SeqCst);
    HAS_STARTER_ENDED.store(false, SeqCst);
    descriptors::open_all(live());
    wishes::begin_service(live(), true);
    let mask = signal::set_mask(u64::MAX);
    let top = stack + BACKGROUND_STACK_BYTES - 64;
    // SAFETY: a thread with a stack of its own, which no other thread uses: the one before has ended. It returns from the gate to what
    // stands on that stack, and never here. The id's word lives for ever.
    let tid = unsafe {
        (top as *mut usize).write(outswap_background as *const () as usize);
        let id = THREAD.as_ptr() as usize;
        gate::call(nr::CLONE, THREAD_FLAGS, top, id, id, 0, 0)
    };
    signal::set_mask(mask);
    if tid > 0 {
        scheduling::settle(tid as i32);
    } else {
        wishes::begin_service(live(), false);
    }
    tid > 0
}

/// Reads ahead what was asked for.
fn read_ahead(live: &'static Live) {
    while live.pager.is_ahead_asked() && !QUIT.load(SeqCst) {
        live.contexts.with(|cx| live.pager.read_ahead(cx));
    }
}

/// Whether there is room for what streams will reach: eviction goes first.
fn may_follow_streams(live: &Live) -> bool {
    live.pager.is_stream_asked() && free_pages(live) >= watermarks(live.pager.limit_pages()).0
}

/// Brings in what streams will reach.
fn follow_streams(live: &'static Live) {
    while may_follow_streams(live) && !live.pager.is_ahead_asked() && !QUIT.load(SeqCst) {
        live.contexts.with(|cx| live.pager.bring_stream(cx));
    }
}

/// Whether the thread is to leave off what nobody waits for: somebody asks for something, or it is to end.
fn is_wanted(live: &Live) -> bool {
    QUIT.load(SeqCst) || wishes::is_asked(live) || desk::is_asked() || live.pager.is_ahead_asked()
}

/// Gives up what this process owes to the others of the tree. A few blocks at a time: a fork, and much else, waits for that. Says whether
/// it came to an end.
fn give_up(live: &'static Live, owed_pages: &mut usize) -> bool {
    const STEP_PAGES: usize = RECLAIM_STEPS * BLOCK_PAGES;
    if *owed_pages == 0 {
        // What was not touched since the last look.
        while live.pager.has_yielded() {
            if !live.budget.pressure.is_any_tight() || lacks_room(live) {
                live.contexts.with(|_| live.pager.forget_yielded());
                break;
            }
            if is_wanted(live) {
                return false;
            }
            live.contexts.with(|cx| {
                let evicted_pages = || live.pager.workingset.evicted_pages();
                let before_pages = evicted_pages();
                let _ = (0..RECLAIM_STEPS).all(|_| live.pager.write_yielded(cx));
                pressure::given(live, evicted_pages().wrapping_sub(before_pages));
            });
        }
        *owed_pages = pressure::look(live);
        if live.budget.pressure.is_any_tight() {
            // The look may have lowered the limit.
            live.contexts.with(|_| charge::refresh(live));
        }
    }
    while *owed_pages > 0 {
        if is_wanted(live) {
            return false;
        }
        let pages = STEP_PAGES.min(*owed_pages);
        live.contexts.with(|cx| live.pager.yield_pages(pages, cx));
        *owed_pages -= pages;
    }
    true
}

/// Takes back what is left to the kernel where memory is short, all of it, and counts anew: what that hid of other memory is seen then. A part
/// at a time: a fork, and much else, waits for an end.
fn take_back(live: &Live) {
    let is_tight = live.budget.pressure.is_any_tight();
    let mut has_any = false;
    while !is_wanted(live) && live.contexts.with(|_| live.pager.trap_in_time(is_tight || has_any)) {
        has_any = true;
    }
    if has_any {
        live.contexts.with(|_| {
            charge::measure(live);
            charge::refresh(live);
        });
    }
}

extern "C" fn main() -> ! {
    let live = live();
    let (mut idle, mut looks, mut next_look_ns) = (0u32, 0u32, 0u64);
    let (mut owed_pages, mut next_give_ns) = (0, 0);
    loop {
        if QUIT.load(SeqCst) {
            wishes::end_service(live);
            live.contexts.with(|_| live.pager.forget_yielded());
            os::exit_thread(0);
        }
        if is_superfluous(live) {
            continue;
        }
        let seen = WAKE.load(SeqCst);
        if sharers::any() {
            desk::serve(live.pid.load(Relaxed), live.contexts);
        }
        wishes::serve(live);
        read_ahead(live);
        follow_streams(live);
        if charge::copies_may_exceed(live) {
            live.contexts.with(|cx| live.pager.hold_copies(cx));
        }
        let now_ns = os::monotonic_ns();
        if now_ns >= next_give_ns && give_up(live, &mut owed_pages) {
            next_give_ns = now_ns + pressure::LOOK_NS;
        }
        let high = watermarks(live.pager.limit_pages()).1;
        if !lacks_room(live) || idle > IDLE_ROUNDS {
            idle = 0;
            // Now nobody waits for this thread.
            accessed::look_if_due(live);
            ASLEEP.store(1, SeqCst);
            let wish = &live.record().wish.state;
            let wished = wish.load(SeqCst);
            if wishes::is_asked(live)
                || desk::is_asked()
                || live.pager.is_ahead_asked()
                || may_follow_streams(live)
                || QUIT.load(SeqCst)
            {
                ASLEEP.store(0, SeqCst);
                continue;
            }
            let look_ns = if live.may_share() { charge::LOOK_SHARED_NS } else { LOOK_NS };
            let look_ns = charge::hold_in_ns(live).map_or(look_ns, |in_ns| look_ns.min(in_ns));
            os::futex_wait_either((&WAKE, seen), (wish, wished), look_ns);
            ASLEEP.store(0, SeqCst);
            // Not each time that it is woken: to look at the threads takes a descriptor, which the program could meet.
            let now_ns = os::monotonic_ns();
            let mut is_sweep = false;
            if now_ns >= next_look_ns {
                next_look_ns = now_ns + look_ns;
                looks = looks.wrapping_add(1);
                is_sweep = looks.is_multiple_of(SWEEP_LOOKS);
                if is_sweep {
                    pins::free_dead(live);
                    records::fold_dead(live);
                }
                if procfs::is_last_thread() {
                    // All of the program's threads have ended, and none of them ended the process.
                    os::exit_thread(threads::last_status());
                }
            }
            live.contexts.with(|cx| {
                charge::measure_in_quiet(live);
                charge::refresh(live);
                if is_sweep {
                    live.pager.store.tend();
                }
                let excess = live.pager.store.excess_bytes();
                if excess > 0 {
                    live.pager.store.shrink(excess.min(SHRINK_BYTES), &mut cx.worker);
                }
            });
            take_back(live);
            if !lacks_room(live) {
                continue;
            }
        }
        let begun_ns = os::thread_cpu_ns();
        let (useful, is_done) = live.contexts.with(|cx| {
            let (mut useful, writes_only) = (false, program_takes(live));
            for _ in 0..RECLAIM_STEPS {
                // What was asked for is wanted soon.
                let has_room = free_pages(live) >= high && !is_over(live);
                if has_room || live.pager.is_ahead_asked() || may_follow_streams(live) {
                    return (true, false);
                }
                match if writes_only { live.pager.write_back(cx) } else { live.pager.reclaim(cx) } {
                    Step::Freed(_) | Step::Kept(_) | Step::Isolated => useful = true,
                    // The program's threads go on from here.
                    Step::Nothing if writes_only => return (useful, true),
                    Step::Nothing | Step::StoreFull => break,
                }
            }
            (useful, false)
        });
        live.stat(Stat::BackgroundReclaims, 1);
        live.stat(Stat::BackgroundNs, os::thread_cpu_ns().saturating_sub(begun_ns));
        idle = if is_done {
            IDLE_ROUNDS + 1
        } else if useful {
            0
        } else {
            idle + 1
        };
    }
}
