//! Signals of ours that came while the program believes to have them blocked. They wait here as they would in the kernel, of each
//! one at most, with all that was sent with it.
use crate::dispositions::SIGNALS;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_sys::signal::{Siginfo, bit};

/// Bytes of the kernel's `siginfo_t`.
pub const SIGINFO_BYTES: usize = 128;
/// All that the kernel said of a signal.
pub type Info = [u8; SIGINFO_BYTES];

const EMPTY: u32 = 0;
/// Somebody writes or reads it.
const BUSY: u32 = 1;
const FULL: u32 = 2;

/// The signals that wait for a thread, or for a process. All-zero memory holds none.
#[repr(C)]
pub struct Held {
    states: [AtomicU32; SIGNALS.len()],
    infos: [UnsafeCell<Info>; SIGNALS.len()],
}

// SAFETY: an information is only touched by whoever made its state BUSY.
unsafe impl Sync for Held {}

impl Held {
    /// None.
    pub const fn new() -> Held {
        Held {
            states: [const { AtomicU32::new(EMPTY) }; SIGNALS.len()],
            infos: [const { UnsafeCell::new([0; SIGINFO_BYTES]) }; SIGNALS.len()],
        }
    }

    /// Keeps a signal of ours. One that waits already stays as it is, and this returns false.
    pub fn add(&self, signal: i32, info: &Info) -> bool {
        let Some(i) = SIGNALS.iter().position(|s| *s == signal) else { return false };
        if self.states[i].compare_exchange(EMPTY, BUSY, SeqCst, Relaxed).is_err() {
            return false;
        }
        // SAFETY: the state makes it this caller's.
        unsafe { *self.infos[i].get() = *info };
        self.states[i].store(FULL, SeqCst);
        true
    }

    /// Takes one out of a set of signals, that of the lowest number.
    pub fn take(&self, set: u64) -> Option<(i32, Info)> {
        SIGNALS.iter().enumerate().filter(|(_, signal)| set & bit(**signal) != 0).find_map(|(i, &signal)| {
            self.states[i].compare_exchange(FULL, BUSY, SeqCst, Relaxed).ok()?;
            // SAFETY: the state makes it this caller's.
            let info = unsafe { *self.infos[i].get() };
            self.states[i].store(EMPTY, SeqCst);
            Some((signal, info))
        })
    }

    /// Those that wait.
    pub fn pending(&self) -> u64 {
        let full = |(i, _): &(usize, &i32)| self.states[*i].load(SeqCst) == FULL;
        SIGNALS.iter().enumerate().filter(full).fold(0, |set, (_, signal)| set | bit(*signal))
    }

    /// Forgets all of them, where nobody else is at work.
    pub fn clear(&self) {
        self.states.iter().for_each(|state| state.store(EMPTY, SeqCst));
    }
}

/// All that the kernel said of a signal whose handler runs.
///
/// # Safety
/// `info` is what the kernel passed to a handler, or has as many bytes.
pub unsafe fn whole(info: *const Siginfo) -> Info {
    // SAFETY: the caller vouches for the bytes.
    unsafe { *info.cast::<Info>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_sys::signal::{SIGBUS, SIGSEGV, SIGSYS};

    #[test]
    fn of_each_signal_the_first_waits_until_it_is_taken() {
        let held = Held::new();
        assert_eq!((held.pending(), held.take(u64::MAX)), (0, None));
        assert!(held.add(SIGSYS, &[3; SIGINFO_BYTES]) && held.add(SIGBUS, &[1; SIGINFO_BYTES]));
        assert!(!held.add(SIGBUS, &[2; SIGINFO_BYTES]), "one of each");
        assert!(!held.add(2, &[2; SIGINFO_BYTES]), "others wait in the kernel");
        assert_eq!(held.pending(), bit(SIGBUS) | bit(SIGSYS));
        assert_eq!(held.take(bit(SIGSEGV)), None);
        assert_eq!(held.take(u64::MAX), Some((SIGBUS, [1; SIGINFO_BYTES])));
        assert_eq!(held.take(!bit(SIGBUS)), Some((SIGSYS, [3; SIGINFO_BYTES])));
        assert_eq!((held.pending(), held.take(u64::MAX)), (0, None));
        assert!(held.add(SIGBUS, &[4; SIGINFO_BYTES]));
        held.clear();
        assert_eq!(held.pending(), 0);
    }

    #[test]
    fn what_two_threads_take_only_one_gets() {
        let held = Held::new();
        let taken = AtomicU32::new(0);
        let mut added = 0;
        std::thread::scope(|scope| {
            let done = AtomicU32::new(0);
            let done = &*Box::leak(Box::new(done));
            for _ in 0..2 {
                scope.spawn(|| {
                    while done.load(SeqCst) == 0 || held.pending() != 0 {
                        if let Some((signal, info)) = held.take(u64::MAX) {
                            assert!(signal == SIGSEGV && info.iter().all(|byte| *byte == info[0]), "a mixture");
                            taken.fetch_add(1, SeqCst);
                        }
                    }
                });
            }
            for n in 0..100_000u32 {
                added += held.add(SIGSEGV, &[n as u8; SIGINFO_BYTES]) as u32;
            }
            done.store(1, SeqCst);
        });
        assert_eq!(taken.load(SeqCst), added);
        assert!(added > 0);
    }
}
