//! How much memory writes to regular files may have resident for being one operation each: more than a window, as long as all of a process together
//! keep to a part of its limit.
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use outswap_sys::os;

/// Looks for room after which a write goes in windows: some 100 ms.
const LOOKS: u32 = 3000;

/// What they have.
#[derive(Default)]
pub struct LongWrites {
    bytes: AtomicUsize,
}

/// A write's part of it.
pub struct Room<'a> {
    of: &'a LongWrites,
    bytes: usize,
}

impl LongWrites {
    /// Room for a write, of `most_bytes` in all: waits a little for the others, which end soon. To be asked for outside of the runtime.
    pub fn take(&self, bytes: usize, most_bytes: usize) -> Option<Room<'_>> {
        let with = |had: usize| had.checked_add(bytes).filter(|sum| *sum <= most_bytes);
        with(0)?;
        for looks in 0..LOOKS {
            if self.bytes.fetch_update(Relaxed, Relaxed, with).is_ok() {
                return Some(Room { of: self, bytes });
            }
            os::wait_a_little(looks);
        }
        None
    }

    /// In a forked child: the writes of the parent's other threads are not its own.
    pub fn forget(&self) {
        self.bytes.store(0, Relaxed);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_keep_to_the_most() {
        let writes = LongWrites::default();
        assert!(writes.take(11, 10).is_none());
        let (first, second) = (writes.take(4, 10), writes.take(6, 10));
        assert!(first.is_some() && second.is_some() && writes.take(1, 10).is_none());
        drop(first);
        assert!(writes.take(5, 10).is_none() && writes.take(4, 10).is_some());
        drop(second);
        assert!(writes.take(10, 10).is_some() && writes.take(usize::MAX, usize::MAX).is_some());
        core::mem::forget(writes.take(10, 10));
        writes.forget();
        assert!(writes.take(10, 10).is_some());
    }

    #[test]
    fn who_finds_no_room_gets_it_once_there_is_some() {
        let writes = LongWrites::default();
        let first = writes.take(10, 10);
        std::thread::scope(|scope| {
            // A busy machine may take longer than one of them waits.
            let other = scope.spawn(|| while writes.take(10, 10).is_none() {});
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert!(!other.is_finished());
            drop(first);
        });
        assert!(writes.take(10, 10).is_some());
    }
}
