//! Huge pages: where they are made before they are moved into the program's reach, and where they are since.
//!
//! A userfaultfd range gets no huge pages from the kernel by itself: each of its faults is ours. So one is made in two MiB of our own, by the
//! kernel's own first touch, and moved as a whole by one change of the page table. Where the kernel has none to give (none in one piece, or they
//! are switched off), it makes single pages there, which is noticed. Where one takes longer than single pages would (a virtual machine that
//! gives free memory back to its host has to be given it again, and what is free in such large pieces is what it gave back), that is noticed, too.
//! Then none are asked for, for a time that doubles.
use crate::layout::ARENA_MAX_BYTES;
use crate::{clock, kept};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use outswap_core::units::{MAX_FOLIO_PAGES, PageNo};
use outswap_sys::{PAGE_BYTES, os};

/// Bytes of a huge page.
const HUGE_BYTES: usize = MAX_FOLIO_PAGES * PAGE_BYTES;
/// Words of one bit for each part of the arena that a huge page can be.
const WORDS: usize = ARENA_MAX_BYTES / HUGE_BYTES / 64;
const TABLE_BYTES: usize = WORDS * size_of::<AtomicU64>();
/// A huge page that takes longer is dearer than so many single ones, which take 0.9 us each (`UFFDIO_COPY` of 16 at a time).
const DEAR_NS: u64 = 400_000;
/// Attempts that are left out after two in a row that did not pay, and how often that is doubled. One may be chance: the kernel finds a huge
/// page that is on its way elsewhere busy, or lets somebody else run meanwhile.
const REST: u32 = 64;
const REST_DOUBLED_MAX: u32 = 6;

/// Where huge pages are made, and where they are. Everything that a fork changes is an atomic; nobody is in here then.
pub struct HugePages {
    /// A bit for each two MiB of the arena, and behind them the place where they are made; 0 where there is no memory for that.
    table: AtomicUsize,
    /// Somebody makes one.
    busy: AtomicBool,
    /// How many in a row have not paid, and attempts that are still left out for them.
    in_vain: AtomicU32,
    rest: AtomicU32,
}

impl HugePages {
    /// Before set-up.
    pub const fn new() -> HugePages {
        HugePages {
            table: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            rest: AtomicU32::new(0),
        }
    }

    /// Reserves what is needed. Without it, there are no huge pages.
    pub fn reserve(&self) {
        let bytes = TABLE_BYTES.next_multiple_of(HUGE_BYTES) + 2 * HUGE_BYTES;
        let Ok(table) = os::mmap_anonymous(bytes) else { return };
        // SAFETY: advice that drops nothing, on memory of ours: of which the table is in no huge page, and the place is.
        unsafe {
            let _ = os::madvise(table, bytes, os::MADV_DONTDUMP);
            let _ = os::madvise(table, TABLE_BYTES.next_multiple_of(PAGE_BYTES), os::MADV_NOHUGEPAGE);
            let _ = os::madvise(place(table), HUGE_BYTES, os::MADV_HUGEPAGE);
        }
        self.table.store(table, Release);
    }

    fn bit(&self, first: PageNo) -> Option<(&'static AtomicU64, u64)> {
        let (at, table) = (first.0 as usize / MAX_FOLIO_PAGES, self.table.load(Acquire));
        if table == 0 || at / 64 >= WORDS {
            return None;
        }
        // SAFETY: the table has so many words, is zero at first, and stays mapped.
        Some((unsafe { &*(table as *const AtomicU64).add(at / 64) }, 1 << (at % 64)))
    }

    /// Makes a huge page of zeros and has it moved to pages of the arena, of which the first is at a border of so many. Says whether it
    /// was moved.
    pub fn put(&self, first: PageNo, put: impl FnOnce(usize) -> bool) -> bool {
        let Some((word, bit)) = self.bit(first) else { return false };
        if !is_due(&self.rest) || self.busy.swap(true, Acquire) {
            return false;
        }
        let (at, begun) = (place(self.table.load(Acquire)), clock::ticks());
        // SAFETY: memory of ours that nobody else uses, and that holds nothing.
        let is_made = unsafe { os::madvise(at, HUGE_BYTES, os::MADV_POPULATE_WRITE) }.is_ok() && is_huge(at);
        let is_put = is_made && put(at);
        if is_put {
            word.fetch_or(bit, Relaxed);
        } else {
            // SAFETY: as above; what is there is zeros.
            let _ = unsafe { os::madvise(at, HUGE_BYTES, os::MADV_DONTNEED) };
        }
        self.judge(is_put, clock::ticks_to_ns(clock::ticks().saturating_sub(begun)));
        self.busy.store(false, Release);
        is_put
    }

    /// An attempt was over after so long.
    fn judge(&self, is_put: bool, took_ns: u64) {
        if is_put && took_ns <= DEAR_NS {
            return self.in_vain.store(0, Relaxed);
        }
        if let Some(before) = self.in_vain.fetch_add(1, Relaxed).checked_sub(1) {
            self.rest.store(REST << before.min(REST_DOUBLED_MAX), Relaxed);
        }
    }

    /// Whether a page lies where a huge page was put; not from now on.
    pub fn split(&self, page: PageNo) -> bool {
        let Some((word, bit)) = self.bit(page) else { return false };
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0
    }
}

/// Whether no attempt is to be left out any more; one that is counts.
fn is_due(rest: &AtomicU32) -> bool {
    rest.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
}

/// Where huge pages are made, behind a table.
fn place(table: usize) -> usize {
    (table + TABLE_BYTES).next_multiple_of(HUGE_BYTES)
}

/// Whether the kernel has a huge page there. False where it does not tell.
fn is_huge(at: usize) -> bool {
    let huge = kept::PAGEMAP.fd().and_then(|fd| os::part(fd, at, HUGE_BYTES, os::Mapped::Huge).ok());
    huge == Some(at..at + HUGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pay_is_left_alone_for_longer_each_time() {
        let pages = HugePages::new();
        assert!(!pages.put(PageNo(0), |_| true) && !pages.split(PageNo(0)), "nothing is reserved");
        pages.reserve();
        let mut tries = Vec::new();
        for at in 0..500 {
            pages.put(PageNo(0), |_| unreachable!("the file that says what is huge is not open"));
            let in_vain = pages.in_vain.load(Relaxed) as usize;
            if in_vain > tries.len() {
                tries.push(at);
            }
        }
        assert_eq!(tries, [0, 1, 66, 195, 452]);
        let judged =
            [(true, DEAR_NS, 0), (true, DEAR_NS + 1, 0), (false, 0, 64), (true, DEAR_NS + 1, 128), (true, 1, 128)];
        for (is_put, took_ns, left) in judged {
            if left == 0 {
                pages.rest.store(0, Relaxed);
            }
            pages.judge(is_put, took_ns);
            assert_eq!(pages.rest.load(Relaxed), left, "{is_put} {took_ns}");
        }
        assert_eq!(pages.in_vain.load(Relaxed), 0);
    }

    #[test]
    fn a_huge_page_is_split_once() {
        let pages = HugePages::new();
        pages.reserve();
        let page = PageNo(5 * MAX_FOLIO_PAGES as u32 + 77);
        let (word, bit) = pages.bit(page).expect("it was reserved");
        word.fetch_or(bit, Relaxed);
        assert!(!pages.split(PageNo(4 * MAX_FOLIO_PAGES as u32)));
        assert!(pages.split(page) && !pages.split(page));
        let (end, beyond) = (ARENA_MAX_BYTES / PAGE_BYTES, ARENA_MAX_BYTES / PAGE_BYTES + 600);
        assert!(pages.bit(PageNo(end as u32 - 1)).is_some() && pages.bit(PageNo(beyond as u32)).is_none());
    }
}
