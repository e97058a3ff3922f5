//! Background reclaim: a thread that keeps frames free, so that faults need not wait for write-out.
//!
//! It is a bare thread of the kernel's, unknown to the C library: it must exist in programs that never make a thread, and
//! work when the C library's own state is in any condition.
use crate::control::Stat;
use crate::live::{Live, live};
use crate::{assist, budget, trap};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_core::engine::Step;
use outswap_core::store::Store;
use outswap_sys::{nr, os, signal};

static STARTED: AtomicU32 = AtomicU32::new(0);
static WAKE: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicU32 = AtomicU32::new(0);

const STACK_BYTES: usize = 64 * 1024;
/// Steps before others are let in again (fork waits for that).
const STEPS: usize = 8;
/// How long the thread sleeps at most before it looks at the budget again: other processes of the tree may need room.
const LOOK_NS: u64 = 50_000_000;
/// The same in a process that shares pages with others, whose writes nobody tells it of.
const LOOK_SHARED_NS: u64 = 10_000_000;

/// Bytes of a pool over its limit that are given back at one look.
const SHRINK_BYTES: u64 = 1 << 20;
/// Looks after which slots of threads that ended inside a call are freed.
const SWEEP_LOOKS: u32 = 16;

/// Free pages under the limit at which background reclaim starts, and up to which it works: 1/32 and 1/16 of the limit,
/// 8 MiB and 16 MiB at most.
fn watermarks(limit: u64) -> (u64, u64) {
    ((limit / 32).clamp(16, 2048), (limit / 16).clamp(32, 4096))
}

fn free_pages(live: &Live) -> u64 {
    live.engine.limit_pages().saturating_sub(live.engine.used_pages())
}

/// Wakes the thread when frames run low; starts it when they might soon.
pub fn wake_if_low(live: &Live) {
    let limit = live.engine.limit_pages();
    if STARTED.load(Relaxed) == 0 {
        // Not in a vforked child, whose exec would end the thread.
        if live.engine.used_pages() > limit / 2 && live.is_own_process() && STARTED.swap(1, AcqRel) == 0 {
            start();
        }
        return;
    }
    if free_pages(live) < watermarks(limit).0 {
        wake();
    }
}

/// Wakes the thread.
pub fn wake() {
    if ASLEEP.load(SeqCst) != 0 && ASLEEP.swap(0, SeqCst) != 0 {
        WAKE.fetch_add(1, SeqCst);
        os::futex_wake(&WAKE, 1, false);
    }
}

/// In a forked child the thread is gone.
pub fn forget() {
    STARTED.store(0, Release);
    ASLEEP.store(0, Release);
}

/// Starts the thread. Where it cannot be made (a limit of processes), reclaim happens in the program's threads alone.
pub fn start() {
    const CLONE_FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
    let Ok(stack) = os::mmap_anonymous(STACK_BYTES) else { return };
    // All signals stay blocked in the new thread, which gets a copy of this thread's mask.
    let mask = signal::set_mask(u64::MAX);
    // SAFETY: CLONE_VM|FS|FILES|SIGHAND|THREAD|SYSVSEM with a stack of its own; the child jumps to `main` and never
    // returns here.
    let tid = unsafe {
        let tid: isize;
        asm!("syscall",
             "test rax, rax",
             "jnz 2f",
             "xor ebp, ebp",
             "call {main}",
             "ud2",
             "2:",
             main = in(reg) main as extern "C" fn() -> !,
             inlateout("rax") nr::CLONE as isize => tid,
             in("rdi") CLONE_FLAGS, in("rsi") stack + STACK_BYTES - 64, in("rdx") 0, in("r10") 0, in("r8") 0, in("r9") 0,
             out("rcx") _, out("r11") _);
        tid
    };
    signal::set_mask(mask);
    if tid < 0 {
        // SAFETY: no thread was made on this stack.
        let _ = unsafe { os::munmap(stack, STACK_BYTES) };
    }
}

extern "C" fn main() -> ! {
    let live = live();
    let (mut idle, mut looks) = (0u32, 0u32);
    loop {
        let seen = WAKE.load(SeqCst);
        let (low, high) = watermarks(live.engine.limit_pages());
        if free_pages(live) >= low || idle > 3 {
            idle = 0;
            ASLEEP.store(1, SeqCst);
            let look_ns = if live.forked.load(Relaxed) { LOOK_SHARED_NS } else { LOOK_NS };
            let _ = os::futex_wait(&WAKE, seen, look_ns, false);
            ASLEEP.store(0, SeqCst);
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SWEEP_LOOKS) {
                assist::free_dead(live);
                budget::fold_dead(live);
            }
            if budget::is_last_thread() {
                // All of the program's threads have ended, and none of them ended the process.
                os::exit_thread(trap::last_status());
            }
            let mut held = live.contexts.hold();
            budget::measure_if_due(live);
            budget::refresh(live);
            held.run(|cx| {
                let excess = live.engine.store.excess_bytes();
                if excess > 0 {
                    live.engine.store.shrink(excess.min(SHRINK_BYTES), &mut cx.worker);
                }
            });
            drop(held);
            if free_pages(live) >= low {
                continue;
            }
        }
        let mut held = live.contexts.hold();
        let freed = held.run(|cx| {
            let mut useful = false;
            for _ in 0..STEPS {
                if free_pages(live) >= high {
                    return true;
                }
                match live.engine.reclaim(cx) {
                    Step::Freed(_) | Step::Staged => useful = true,
                    Step::Nothing | Step::StoreFull => break,
                }
            }
            useful
        });
        drop(held);
        live.stat(Stat::BackgroundReclaims, 1);
        idle = if freed { 0 } else { idle + 1 };
    }
}
