//! What of the managed range is in core dumps.
//!
//! The range is reserved without core dumps: once the kernel has a page of it, it takes all that is still one mapping with that page
//! for worth dumping, terabytes of nothing. What the program can touch is dumped. To tell the kernel so for each mapping would split
//! its mappings where ours end, and take a call each; so it is told once of each chunk that ever had a mapping with access, and in one call of all
//! those of a mapping that it does not know yet. What
//! the program says of its own mappings (`MADV_DONTDUMP`) goes to the kernel for those alone.
use crate::layout::ARENA_MAX_BYTES;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use outswap_core::lock::SpinLock;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::{Result, os};

/// Pages of a chunk: what a dump may have too much of, as a hole, at both ends of a mapping.
pub const CHUNK_PAGES: u32 = 4096;
const CHUNKS: usize = ARENA_MAX_BYTES / PAGE_BYTES / CHUNK_PAGES as usize;

/// What is in dumps.
pub struct Dumps {
    /// One bit for each chunk that is.
    shown: [AtomicU64; CHUNKS / 64],
    /// Of who tells: what is shown by one must not be shown again by another, after the program has hidden it.
    telling: SpinLock<()>,
    /// Whether the program has hidden anything.
    hides: AtomicBool,
}

/// That of this process. A forked child's mappings and bits are its parent's.
pub static DUMPS: Dumps = Dumps::new();

impl Dumps {
    const fn new() -> Dumps {
        let shown = [const { AtomicU64::new(0) }; CHUNKS / 64];
        Dumps { shown, telling: SpinLock::new(()), hides: AtomicBool::new(false) }
    }

    /// Whether the program has hidden anything of its own.
    pub fn hides(&self) -> bool {
        self.hides.load(Relaxed)
    }

    /// The program hides some of its own. What it is in must have been shown before: it would be shown later otherwise.
    pub fn hide(&self) {
        self.hides.store(true, Relaxed);
    }

    /// Has the chunks of a range of `pages` in all dumped: calls `tell` for those that are not. One that the kernel cannot be told of,
    /// because it has no room for another mapping, is told of again at the next occasion.
    pub fn show(&self, first: PageNo, count: usize, pages: u32, tell: impl Fn(PageNo, u32) -> Result<()>) {
        if first.0 >= pages {
            // The program's own `.bss`, which is in dumps.
            return;
        }
        let last = first.0 + (count.max(1) as u32 - 1);
        let (mut chunk, end) = (first.0 / CHUNK_PAGES, last / CHUNK_PAGES + 1);
        while chunk < end {
            if self.is_shown(chunk) {
                chunk += 1;
                continue;
            }
            let _telling = self.telling.lock(os::wait_a_little);
            let run_end = (chunk..end).find(|&chunk| self.is_shown(chunk)).unwrap_or(end);
            let start = chunk * CHUNK_PAGES;
            if chunk < run_end && tell(PageNo(start), pages.min(run_end * CHUNK_PAGES) - start).is_ok() {
                for chunk in chunk..run_end {
                    self.word(chunk).fetch_or(1 << (chunk % 64), Relaxed);
                }
            }
            chunk = run_end.max(chunk + 1);
        }
    }

    fn word(&self, chunk: u32) -> &AtomicU64 {
        &self.shown[chunk as usize / 64]
    }

    fn is_shown(&self, chunk: u32) -> bool {
        self.word(chunk).load(Relaxed) & 1 << (chunk % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use outswap_sys::Errno;

    #[test]
    fn chunks_are_told_of_once_whole_and_again_after_a_failure() {
        static DUMPS: Dumps = Dumps::new();
        let dumps = &DUMPS;
        let told = RefCell::new(Vec::new());
        let fails = RefCell::new(true);
        let tell = |first: PageNo, count: u32| {
            told.borrow_mut().push((first.0 / CHUNK_PAGES, count));
            if fails.replace(false) { Err(Errno::ENOMEM) } else { Ok(()) }
        };
        let pages = 100 * CHUNK_PAGES + 7;
        dumps.show(PageNo(CHUNK_PAGES - 1), 2, pages, tell);
        dumps.show(PageNo(CHUNK_PAGES - 1), 2, pages, tell);
        dumps.show(PageNo(5), 1, pages, tell);
        assert_eq!(told.take(), [(0, 2 * CHUNK_PAGES), (0, 2 * CHUNK_PAGES)]);
        dumps.show(PageNo(100 * CHUNK_PAGES + 3), 4, pages, tell);
        assert_eq!(told.take(), [(100, 7)], "as much as there is");
        dumps.show(PageNo(70 * CHUNK_PAGES), 1, pages, tell);
        dumps.show(PageNo(CHUNK_PAGES), 99 * CHUNK_PAGES as usize + 7, pages, tell);
        let rest = [(70, CHUNK_PAGES), (2, 68 * CHUNK_PAGES), (71, 29 * CHUNK_PAGES)];
        assert_eq!(told.take(), rest, "what lies between those that are shown, in one call each");
    }
}
