//! A spin lock for sections of a few dozen instructions.
//!
//! While a thread holds one, nothing of the program's runs in it, so a fault on the holder's own thread cannot meet it held.
use crate::sync::{AtomicBool, Ordering::*};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// Data behind a spin lock.
pub struct SpinLock<T> {
    held: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives the data to one thread at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: sending the lock sends the data.
unsafe impl<T: Send> Send for SpinLock<T> {}

/// Access to the data of a held lock.
pub struct Guard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    /// Wraps data.
    pub const fn new(data: T) -> SpinLock<T> {
        SpinLock { held: AtomicBool::new(false), data: UnsafeCell::new(data) }
    }

    /// Frees the lock of whoever held it.
    ///
    /// # Safety
    /// Its holder must not exist any more, as in a forked child, and the data must be whole.
    pub unsafe fn forget(&self) {
        self.held.store(false, Release);
    }

    /// Takes the lock, calling `pause` with a growing count while another thread holds it.
    pub fn lock(&self, pause: impl Fn(u32)) -> Guard<'_, T> {
        let mut spins = 0;
        while self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            pause(spins);
            spins = spins.saturating_add(1);
        }
        Guard { lock: self }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while this thread holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while this thread holds the lock.
        unsafe { &mut *self.lock.data.get() }
    }
}
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.held.store(false, Release);
    }
}
