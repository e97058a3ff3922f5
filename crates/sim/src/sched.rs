//! Decides which thread runs: either one at a time, by a seeded generator alone, or all at once.
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::thread::Thread;

/// A small generator (splitmix64): the same numbers on every machine.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }
    /// A number from `from` to `to`, both included.
    pub fn range(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }
    /// True once in `n` times; never for 0.
    pub fn once_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n as usize) == 0
    }
    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Steps after which a program that has not ended counts as hung.
const MAX_STEPS: u64 = 20_000_000;

struct Choice {
    rng: Rng,
    alive: Vec<bool>,
    steps: u64,
    /// Hash of all decisions, to see that a seed replays.
    trace: u64,
    /// A thread that does not run for a while, as if the kernel had taken its processor away.
    frozen: usize,
    frozen_until: u64,
}

/// The right to run, which one thread has at a time.
pub struct Baton {
    holder: AtomicUsize,
    choice: UnsafeCell<Choice>,
    threads: OnceLock<Vec<Thread>>,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    /// The baton goes on once in so many steps.
    switch_in: u32,
    /// All threads run at once.
    parallel: bool,
}
// SAFETY: only the holder of the baton looks at `choice`, and the baton is handed over with release and acquire.
unsafe impl Sync for Baton {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Baton {}

/// Payload with which threads end once another has failed.
struct Stopped;

thread_local! {
    static TURN: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

const NOBODY: usize = usize::MAX;

impl Baton {
    fn choose(&self, me: usize, waiting: bool) -> usize {
        // SAFETY: the caller holds the baton.
        let choice = unsafe { &mut *self.choice.get() };
        choice.steps += 1;
        assert!(choice.steps < MAX_STEPS, "no end after {MAX_STEPS} steps: the pager hangs");
        if choice.steps >= choice.frozen_until {
            choice.frozen = NOBODY;
            if choice.rng.once_in(500) {
                choice.frozen = choice.rng.below(choice.alive.len());
                choice.frozen_until = choice.steps + choice.rng.below(600) as u64;
            }
        }
        let stay = choice.alive[me] && me != choice.frozen && !waiting && !choice.rng.once_in(self.switch_in);
        let next = if stay {
            me
        } else {
            let able = |c: &Choice, i: usize, me_too: bool| c.alive[i] && i != c.frozen && (me_too || i != me);
            let count = choice.alive.len();
            let start = choice.rng.below(count);
            let order = (0..count).map(|i| (start + i) % count);
            order
                .clone()
                .find(|&i| able(choice, i, !waiting))
                .or_else(|| order.clone().find(|&i| able(choice, i, true)))
                .or_else(|| order.clone().find(|&i| choice.alive[i]))
                .unwrap_or(NOBODY)
        };
        choice.trace = (choice.trace ^ next as u64).wrapping_mul(0x100_0000_01b3);
        next
    }

    fn hand_to(&self, next: usize) {
        self.holder.store(next, Release);
        if next != NOBODY {
            self.threads.get().expect("set before the first turn")[next].unpark();
        }
    }

    fn wait(&self, me: usize) {
        while self.holder.load(Acquire) != me {
            if self.failed.load(Acquire) {
                resume_unwind(Box::new(Stopped));
            }
            std::thread::park();
        }
        if self.failed.load(Acquire) {
            resume_unwind(Box::new(Stopped));
        }
    }

    fn step(&self, me: usize, waiting: bool) {
        if self.parallel {
            if self.failed.load(Relaxed) {
                resume_unwind(Box::new(Stopped));
            }
            if waiting {
                std::thread::yield_now();
            }
            return;
        }
        let next = self.choose(me, waiting);
        if next != me {
            self.hand_to(next);
            self.wait(me);
        }
    }

    fn fail(&self, message: String) {
        let mut failure = self.failure.lock().expect("no panic while held");
        failure.get_or_insert(message);
        self.failed.store(true, Release);
        if let Some(threads) = self.threads.get() {
            threads.iter().for_each(Thread::unpark);
        }
    }
}

/// A point at which another thread may go on.
pub fn step() {
    turn(false);
}
/// A point at which this thread waits for another, for the time that many spins take. Who is waited for by a thread of a test's own may not have
/// a processor just now.
pub fn wait(spins: u32) {
    match spins {
        _ if TURN.with_borrow(Option::is_some) => turn(true),
        0..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(20)),
    }
}
fn turn(waiting: bool) {
    if std::thread::panicking() {
        return;
    }
    let turn = TURN.with_borrow(|t| t.clone());
    if let Some((baton, me)) = turn {
        baton.step(me, waiting);
    }
}
/// Whether the threads of this run run at once.
pub fn is_parallel() -> bool {
    TURN.with_borrow(|t| t.as_ref().is_some_and(|(baton, _)| baton.parallel))
}

fn message_of(payload: Box<dyn Any + Send>) -> Option<String> {
    if payload.is::<Stopped>() {
        return None;
    }
    Some(LAST_PANIC.with_borrow_mut(std::mem::take))
}

/// Keeps panics of simulated threads from being printed: they are results here.
fn set_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                let mut text = info.to_string();
                if std::env::var_os("OUTSWAP_SIM_SEED").is_some() {
                    text += &format!("\n{}", std::backtrace::Backtrace::force_capture());
                }
                LAST_PANIC.with_borrow_mut(|l| *l = text);
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs `f`, giving the message of a panic as the error.
pub fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    set_hook();
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result.map_err(|payload| message_of(payload).unwrap_or_default())
}

/// Runs `bodies`, each as a thread of its own, under a schedule that `seed` decides. Gives a hash of that schedule and
/// the number of steps.
pub fn run<'a>(seed: u64, parallel: bool, bodies: Vec<Box<dyn FnOnce() + Send + 'a>>) -> Result<(u64, u64), String> {
    set_hook();
    let mut rng = Rng(seed);
    let switch_in = rng.pick(&[1, 3, 8, 30, 100]);
    let count = bodies.len();
    let baton = Arc::new(Baton {
        holder: AtomicUsize::new(NOBODY),
        choice: UnsafeCell::new(Choice {
            rng,
            alive: vec![true; count],
            steps: 0,
            trace: 0,
            frozen: NOBODY,
            frozen_until: 0,
        }),
        threads: OnceLock::new(),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        switch_in,
        parallel,
    });
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (me, body) in bodies.into_iter().enumerate() {
            let baton = baton.clone();
            let handle = scope.spawn(move || {
                QUIET.set(true);
                TURN.set(Some((baton.clone(), me)));
                let result = catch_unwind(AssertUnwindSafe(|| {
                    if !baton.parallel {
                        baton.wait(me);
                    }
                    body();
                }));
                TURN.set(None);
                match result {
                    Err(payload) => {
                        if let Some(message) = message_of(payload) {
                            baton.fail(message);
                        }
                    }
                    Ok(()) if !baton.parallel => {
                        // SAFETY: this thread holds the baton.
                        let choice = unsafe { &mut *baton.choice.get() };
                        choice.alive[me] = false;
                        // The count of steps may run out here just as elsewhere.
                        match catch_unwind(AssertUnwindSafe(|| baton.choose(me, false))) {
                            Ok(next) => baton.hand_to(next),
                            Err(payload) => baton.fail(message_of(payload).unwrap_or_default()),
                        }
                    }
                    Ok(()) => {}
                }
            });
            handles.push(handle);
        }
        let _ = baton.threads.set(handles.iter().map(|h| h.thread().clone()).collect());
        if !parallel {
            baton.hand_to(0);
        }
        // Joined one by one: whoever forks next must not do so while a thread is still ending.
        handles.into_iter().for_each(|h| h.join().expect("panics are caught within"));
    });
    if let Some(message) = baton.failure.lock().expect("no panic while held").take() {
        return Err(message);
    }
    // SAFETY: all threads have ended.
    let choice = unsafe { &*baton.choice.get() };
    Ok((choice.trace, choice.steps))
}
