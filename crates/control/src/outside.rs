//! What the processes of a tree have that run unmanaged, and say nothing of it themselves.
//!
//! The supervisor looks now and then. One that ends between two looks is to count no longer at once, so it stands here whose what is, and
//! who adds up asks whether that process lives.
use crate::fingerprint;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// A charge beyond this is a lie, and counts as this: so many cannot overflow a sum.
pub const CHARGE_MAX_BYTES: u64 = 1 << 47;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Processes whose memory counts as long as they live; that of others counts until the next look.
pub const MAX_OUTSIDE: usize = 16;
/// Where the number of a process begins in its word; below it are pages.
const PID_BIT: u32 = 40;
/// What is below.
const PAGES: u64 = (1 << PID_BIT) - 1;

/// See above.
#[repr(C)]
pub struct Unmanaged {
    /// What counts whoever lives, bytes.
    pub rest_bytes: AtomicU64,
    /// Of some processes, who they are, and what goes with each when it ends. One word each, so that nobody takes the one's memory for
    /// the other's.
    pub own: [AtomicU64; MAX_OUTSIDE],
}

/// Goes on with how it lies in memory.
pub(crate) const fn layout(hash: u64) -> u64 {
    fingerprint::layout!(hash, Unmanaged { rest_bytes, own })
}

fn pid_of(word: u64) -> i32 {
    (word >> PID_BIT) as i32
}

/// Whether a number is one that fits: the kernel has none that does not.
fn fits(pid: i32) -> bool {
    pid > 0 && pid_of((pid as u64) << PID_BIT) == pid
}

impl Unmanaged {
    /// What they have, in bytes; never more than [`CHARGE_MAX_BYTES`]. Those that are not there any more have nothing.
    pub(crate) fn bytes(&self, is_there: impl Fn(i32) -> bool) -> u64 {
        // What is said to be a process's own meanwhile, and is the rest's no longer, or the other way round, counts once at least.
        let rest_bytes = self.rest_bytes.load(Acquire);
        let own = self.own.iter().map(|word| word.load(Acquire));
        let own = own.filter(|word| *word != 0 && is_there(pid_of(*word)));
        let own: u64 = own.map(|word| (word & PAGES) * PAGE_BYTES).sum();
        self.rest_bytes.load(Acquire).max(rest_bytes).saturating_add(own).min(CHARGE_MAX_BYTES)
    }

    /// Says what they have: `own` of each, by its number, what goes with it when it ends, and `rest_bytes` all else. Who looks meanwhile
    /// may see too much, and never too little.
    pub fn set(&self, own: &[(i32, u64)], rest_bytes: u64) {
        let word = |&(pid, bytes): &(i32, u64)| ((pid as u64) << PID_BIT) | (bytes.min(CHARGE_MAX_BYTES) / PAGE_BYTES);
        let is_in = |words: &[u64], pid: i32| words.iter().any(|word| pid_of(*word) == pid);
        // Who has a place keeps it: others read one place after the other.
        let mut words = self.own.each_ref().map(|place| {
            let pid = pid_of(place.load(Relaxed));
            own.iter().find(|known| known.0 == pid && fits(pid)).map_or(0, word)
        });
        let kept = words;
        let mut new = own.iter().filter(|(pid, _)| fits(*pid) && !is_in(&kept, *pid));
        for place in words.iter_mut().filter(|word| **word == 0) {
            *place = new.next().map_or(0, word);
        }
        let left = own.iter().filter(|(pid, _)| !fits(*pid) || !is_in(&words, *pid)).map(|(_, bytes)| *bytes);
        let rest_bytes = left.fold(rest_bytes, u64::saturating_add);
        self.rest_bytes.fetch_max(rest_bytes, Relaxed);
        self.own.iter().zip(words).for_each(|(place, word)| place.store(word, Release));
        self.rest_bytes.store(rest_bytes, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_unmanaged_counts_as_long_as_it_lives() {
        const MIB: u64 = 1 << 20;
        let all = Unmanaged { rest_bytes: AtomicU64::new(0), own: [const { AtomicU64::new(0) }; MAX_OUTSIDE] };
        let lives = |_| true;
        all.set(&[(5, 10 * MIB), (6, 20 * MIB)], MIB);
        assert_eq!((all.bytes(lives), all.bytes(|pid| pid != 6)), (31 * MIB, 11 * MIB));
        all.set(&[(6, 8 * MIB), (7, 16 * MIB)], 0);
        assert_eq!((all.bytes(lives), all.bytes(|pid| pid == 7)), (24 * MIB, 16 * MIB));
        assert_eq!(pid_of(all.own[1].load(Relaxed)), 6, "it keeps its place");
        // Those without a place count whether they live or not.
        let many: Vec<_> = (1..=MAX_OUTSIDE as i32 + 3).map(|pid| (pid, MIB)).collect();
        all.set(&many, 0);
        assert_eq!((all.bytes(lives), all.bytes(|_| false)), (19 * MIB, 3 * MIB));
        all.set(&[], 0);
        assert_eq!(all.bytes(lives), 0);
    }

    #[test]
    fn who_looks_while_it_is_said_never_sees_too_little() {
        const MIB: u64 = 1 << 20;
        let all = Unmanaged { rest_bytes: AtomicU64::new(0), own: [const { AtomicU64::new(0) }; MAX_OUTSIDE] };
        let (low, high) = ((&[(5, 20 * MIB)], 10 * MIB), (&[(5, 30 * MIB)], 0));
        for (before, after) in [(low, high), (high, low)] {
            all.set(before.0, before.1);
            let at_once = |_| {
                all.set(after.0, after.1);
                true
            };
            assert!(all.bytes(at_once) >= 30 * MIB);
        }
    }

    #[test]
    fn what_cannot_be_is_bounded() {
        let all = Unmanaged { rest_bytes: AtomicU64::new(0), own: [const { AtomicU64::new(u64::MAX) }; MAX_OUTSIDE] };
        assert_eq!(all.bytes(|_| true), CHARGE_MAX_BYTES);
        all.rest_bytes.store(u64::MAX, Relaxed);
        assert_eq!(all.bytes(|_| false), CHARGE_MAX_BYTES);
        all.set(&[(1, u64::MAX), (0, 4), (-1, 5), (i32::MAX, 6)], 7);
        assert_eq!((all.bytes(|_| true), all.bytes(|_| false)), (CHARGE_MAX_BYTES, 22));
    }
}
