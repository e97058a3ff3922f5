//! A spinlock that gives up the processor, and then sleeps, when it does not get on.
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_sys::os;

/// Data that one thread at a time may use. All-zero memory is an unlocked lock of zeroed data.
pub(crate) struct SpinLock<T> {
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands out access to one thread at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to locked data; unlocks on drop.
pub(crate) struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    /// An unlocked lock.
    pub const fn new(data: T) -> SpinLock<T> {
        SpinLock { word: AtomicU32::new(0), data: UnsafeCell::new(data) }
    }

    /// Locks, waiting as long as it takes. Holders never sleep, and no handler of the program's runs in them.
    pub fn lock(&self) -> Guard<'_, T> {
        let mut spins = 0u32;
        while self.word.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            while self.word.load(Relaxed) != 0 {
                os::wait_a_little(spins);
                spins = spins.saturating_add(1);
            }
        }
        Guard(self)
    }

    /// Locks where that needs no waiting.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word.compare_exchange(0, 1, Acquire, Relaxed).ok().map(|_| Guard(self))
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> SpinLock<T> {
        SpinLock::new(T::default())
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.word.store(0, Release);
    }
}
