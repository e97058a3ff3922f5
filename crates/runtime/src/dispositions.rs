//! Dispositions of signals: what the program asked for each, and which signals are the runtime's own.
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};
use outswap_core::lock::SpinLock;
use outswap_sys::os;
use outswap_sys::signal::{KernelSigaction, SA_NODEFER, SIG_IGN, SIGBUS, SIGSEGV, SIGSYS, bit, sigaction};

/// The highest signal.
pub const SIGNAL_MAX: usize = 64;

/// Signals that the program can never block.
pub const OURS: u64 = bit(SIGBUS) | bit(SIGSEGV) | bit(SIGSYS);

/// The same, as a list.
pub const SIGNALS: [i32; 3] = [SIGBUS, SIGSEGV, SIGSYS];

/// Sets the default disposition, so that the fault that comes again ends the process as it would have.
pub fn set_default(signal: i32) {
    // SAFETY: the default disposition runs no code.
    let _ = unsafe { sigaction(signal, Some(&KernelSigaction::default()), None) };
}

/// Whether [`open`] has been done.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// From now on a fault of the program's, which is told by `signal`, does not change the mask of its thread: to change it, and to change it
/// back, the kernel takes a lock that all threads of the process share, which with sixteen of them costs more than all the rest of a
/// fault. What comes meanwhile is kept ([`crate::stacks::Kept`]). What is sent by the hundred of this one signal is not bounded then.
pub fn open(signal: i32) {
    if !IS_OPEN.swap(true, Relaxed) {
        change_mask(signal, SA_NODEFER, 0);
    }
}

/// In a forked child, which has one thread: as at the start.
pub fn close(signal: i32) {
    if IS_OPEN.swap(false, Relaxed) {
        change_mask(signal, 0, u64::MAX);
    }
}

fn change_mask(signal: i32, nodefer: u64, mask: u64) {
    let mut action = KernelSigaction::default();
    // SAFETY: the handler stays what it is, and keeps the contract of the fault path with both masks.
    unsafe {
        if sigaction(signal, None, Some(&mut action)).is_ok() && action.handler > SIG_IGN {
            let flags = action.flags & !SA_NODEFER | nodefer;
            let _ = sigaction(signal, Some(&KernelSigaction { flags, mask, ..action }), None);
        }
    }
}

/// What the program asked for each signal. Readers take no lock: they may run in any thread, also one of another process that
/// shares the memory.
pub struct Dispositions {
    version: AtomicU32,
    writer: SpinLock<()>,
    table: [[AtomicU64; 4]; SIGNAL_MAX],
    /// Masks that were asked for with no handler, which block nothing: of them the kernel does not get [`OURS`].
    idle_masks: [AtomicU64; SIGNAL_MAX],
}

impl Default for Dispositions {
    fn default() -> Dispositions {
        Dispositions {
            version: AtomicU32::new(0),
            writer: SpinLock::new(()),
            table: [const { [const { AtomicU64::new(0) }; 4] }; SIGNAL_MAX],
            idle_masks: [const { AtomicU64::new(0) }; SIGNAL_MAX],
        }
    }
}

impl Dispositions {
    /// The disposition of a signal (1 to 64).
    pub fn get(&self, signal: i32) -> KernelSigaction {
        let entry = &self.table[signal as usize - 1];
        let mut spins = 0;
        loop {
            let version = self.version.load(Acquire);
            let words = [0, 1, 2, 3].map(|i| entry[i].load(Relaxed));
            fence(Acquire);
            if version & 1 == 0 && self.version.load(Relaxed) == version {
                let [handler, flags, restorer, mask] = words;
                return KernelSigaction { handler: handler as usize, flags, restorer: restorer as usize, mask };
            }
            os::wait_a_little(spins);
            spins += 1;
        }
    }

    /// The mask that was last asked for with no handler; of no signal: none.
    pub fn idle_mask(&self, signal: i32) -> u64 {
        self.idle_masks.get((signal as usize).wrapping_sub(1)).map_or(0, |mask| mask.load(Relaxed))
    }

    /// Remembers it.
    pub fn set_idle_mask(&self, signal: i32, mask: u64) {
        if let Some(idle) = self.idle_masks.get((signal as usize).wrapping_sub(1)) {
            idle.store(mask, Relaxed);
        }
    }

    /// Changes the disposition of a signal. Only in the process whose runtime this is, with all signals blocked, inside the
    /// runtime: a fork must not copy a change half done.
    pub fn set(&self, signal: i32, action: &KernelSigaction) {
        let _writer = self.writer.lock(os::wait_a_little);
        let entry = &self.table[signal as usize - 1];
        self.version.fetch_add(1, AcqRel);
        fence(Release);
        let words = [action.handler as u64, action.flags, action.restorer as u64, action.mask];
        for (word, value) in entry.iter().zip(words) {
            word.store(value, Relaxed);
        }
        self.version.fetch_add(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use outswap_sys::signal::{SA_ONSTACK, SA_SIGINFO, SIG_DFL};

    fn action(n: usize) -> KernelSigaction {
        KernelSigaction { handler: n, flags: n as u64 * 3, restorer: n * 5, mask: n as u64 * 7 }
    }

    #[test]
    fn what_was_set_is_found_for_that_signal_alone() {
        let all = Dispositions::default();
        assert!((1..=SIGNAL_MAX as i32).all(|signal| all.get(signal).handler == SIG_DFL));
        for signal in [1, SIGSEGV, SIGNAL_MAX as i32] {
            all.set(signal, &action(signal as usize * 1000));
        }
        let set = |signal: i32| [1, SIGSEGV, SIGNAL_MAX as i32].contains(&signal);
        for signal in 1..=SIGNAL_MAX as i32 {
            let want = action(if set(signal) { signal as usize * 1000 } else { 0 });
            let found = all.get(signal);
            let fields = |a: &KernelSigaction| (a.handler, a.flags, a.restorer, a.mask);
            assert_eq!(fields(&found), fields(&want), "{signal}");
        }
        all.set(SIGBUS, &KernelSigaction { flags: SA_SIGINFO | SA_ONSTACK, ..action(9) });
        assert_eq!(all.get(SIGBUS).flags, SA_SIGINFO | SA_ONSTACK);
    }

    #[test]
    fn a_reader_sees_the_old_or_the_new_and_no_mixture() {
        let all = Dispositions::default();
        let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut last = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        let found = all.get(SIGBUS);
                        let want = action(found.handler);
                        assert_eq!((found.flags, found.restorer, found.mask), (want.flags, want.restorer, want.mask));
                        seen.fetch_add(1, Relaxed);
                    }
                });
            }
            // The readers may start late.
            while last < 200_000 || seen.load(Relaxed) < 1000 && last < 1 << 30 {
                last += 1;
                all.set(SIGBUS, &action(last));
            }
            done.store(true, Relaxed);
        });
        assert_eq!(all.get(SIGBUS).handler, last);
    }

    #[test]
    fn ours_are_the_same_as_a_list_and_as_a_mask() {
        assert_eq!(SIGNALS.iter().fold(0, |mask, signal| mask | bit(*signal)), OURS);
    }
}
