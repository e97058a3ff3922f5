//! Memory for tables: pieces of one mapping, which is made and advised once. A process has some forty tables, and a start that maps
//! and advises each by itself spends a tenth of its time on that.
use crate::{PAGE_BYTES, Result, os};
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// What the pieces of a process together may take: small ones, which lie side by side and so share the kernel's page tables, and others.
const AREAS_BYTES: [usize; 2] = [1 << 28, 1 << 39];
/// Pieces up to this size are small.
const SMALL_BYTES: usize = 1 << 17;

/// A part of the mapping.
struct Area {
    /// Where the next piece lies.
    next: AtomicUsize,
    end: AtomicUsize,
}

static AREAS: [Area; 2] = [const { Area { next: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; 2];

impl Area {
    fn set(&self, at: usize, bytes: usize) {
        self.end.store(at + bytes, Relaxed);
        self.next.store(at, Release);
    }

    fn piece(&self, bytes: usize) -> Option<usize> {
        let after = |at: usize| at.checked_add(bytes).filter(|&after| after <= self.end.load(Relaxed));
        self.next.fetch_update(AcqRel, Acquire, after).ok()
    }
}

/// Makes the mapping. Without it, each piece is a mapping of its own: so in a process with a limit of address space, and where the
/// system refuses so much. To be called once, by a process with one thread.
pub fn begin() {
    let [small, large] = AREAS_BYTES;
    let Ok(at) = os::mmap_anonymous(small + large) else { return };
    advise(at, small + large);
    AREAS[0].set(at, small);
    AREAS[1].set(at + small, large);
}

/// Maps zeroed memory, in whole pages, which may be unmapped. It is in no core dump, since gigabytes of tables say nothing of the
/// program; and in no huge page, which would be held for one touched byte.
///
/// # Errors
/// No address space.
pub fn map(bytes: usize) -> Result<usize> {
    let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
    if let Some(at) = AREAS[(bytes > SMALL_BYTES) as usize].piece(bytes) {
        return Ok(at);
    }
    let at = os::mmap_anonymous(bytes)?;
    advise(at, bytes);
    Ok(at)
}

/// Keeps memory out of core dumps, and out of huge pages. See [`map`].
pub fn advise(at: usize, bytes: usize) {
    for advice in [os::MADV_NOHUGEPAGE, os::MADV_DONTDUMP] {
        // SAFETY: an advice that drops nothing. Failing is harmless.
        let _ = unsafe { os::madvise(at, bytes, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_side_by_side_until_there_is_no_room() {
        let area = Area { next: AtomicUsize::new(0), end: AtomicUsize::new(0) };
        assert_eq!(area.piece(PAGE_BYTES), None, "nothing is reserved");
        area.set(0x10000, 4 * PAGE_BYTES);
        assert_eq!(area.piece(PAGE_BYTES), Some(0x10000));
        assert_eq!(area.piece(4 * PAGE_BYTES), None);
        assert_eq!(area.piece(usize::MAX), None);
        assert_eq!(area.piece(3 * PAGE_BYTES), Some(0x10000 + PAGE_BYTES));
        assert_eq!(area.piece(PAGE_BYTES), None);
    }

    #[test]
    fn memory_is_zero_and_apart_with_and_without_the_mapping() {
        let mut last = Vec::new();
        for round in 0..2 {
            if round == 1 {
                begin();
            }
            for bytes in [1, PAGE_BYTES + 1, SMALL_BYTES + 1, 1 << 30] {
                let at = map(bytes).expect("address space");
                // SAFETY: fresh memory of that size.
                let word = unsafe { &mut *(at as *mut usize) };
                assert_eq!((*word, at % PAGE_BYTES), (0, 0));
                *word = round + 1;
                assert!(last.iter().all(|&(from, end)| at >= end || at + bytes <= from));
                last.push((at, at + bytes));
            }
        }
        let [small, large] = AREAS_BYTES;
        let first = AREAS[0].end.load(Relaxed) - small;
        let within = last.iter().filter(|&&(from, end)| from >= first && end <= first + small + large);
        assert_eq!(within.count(), 4, "the second round's, and no others");
    }
}
