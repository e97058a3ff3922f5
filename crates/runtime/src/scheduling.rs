//! How the kernel schedules a thread of ours: as the process was when it was set up, and not as the thread that starts it. One that has a
//! real-time policy, or is kept to a processor, may never let ours run there, for which others wait.
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use outswap_sys::os;

/// A bit for each processor that Linux can have.
const WORDS: usize = 128;

/// The processors that the process could run on, so many words of them; 0: nothing is known.
static MASK: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static KNOWN_WORDS: AtomicUsize = AtomicUsize::new(0);
static POLICY: AtomicI32 = AtomicI32::new(os::USUAL_POLICY);
/// A filter of the program's own may end the process for what is called here.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// At set-up.
pub fn note() {
    let mut mask = [0; WORDS];
    let words = os::affinity(&mut mask).unwrap_or(0).min(WORDS);
    MASK.iter().zip(mask).for_each(|(word, value)| word.store(value, Relaxed));
    KNOWN_WORDS.store(words, Relaxed);
    POLICY.store(os::policy().unwrap_or(os::USUAL_POLICY), Relaxed);
}

/// From here on threads are scheduled as who starts them.
pub fn leave() {
    IS_LEFT.store(true, Relaxed);
}

/// Has a thread scheduled as at set-up that the calling thread has just started. Not by that one itself, which may not come to run.
pub fn settle(tid: i32) {
    let words = KNOWN_WORDS.load(Relaxed);
    if words == 0 || IS_LEFT.load(Relaxed) {
        return;
    }
    // Where the kernel refuses, it runs as who has started it. A real-time policy would want its priority, too: those that have it keep it.
    let policy = POLICY.load(Relaxed);
    if os::policy() != Ok(policy) && !os::is_real_time(policy) {
        let _ = os::set_policy(tid, policy);
    }
    let (mut now, mut then, mut elsewhere) = ([0; WORDS], [0; WORDS], [0; WORDS]);
    if os::affinity(&mut now).is_err() {
        return;
    }
    for i in 0..words {
        then[i] = MASK[i].load(Relaxed);
        elsewhere[i] = then[i] & !now[i];
    }
    if then != now {
        // First away from where the caller runs: a thread that may stay where it is does.
        let _ = os::set_affinity(tid, &elsewhere[..words]);
        let _ = os::set_affinity(tid, &then[..words]);
    }
}
