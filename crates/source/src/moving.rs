//! userfaultfd with `UFFDIO_MOVE` (Linux 6.8): a page is taken by moving its frame into a batch. No write can be lost, because
//! the page leaves the page table and reaches the batch in one step.
//!
//! Linux 6.18 was seen to move a page and to report it as not moved (`EAGAIN`, in about one of eighty runs of the benchmark's
//! random workloads on 256 MiB in 64 MiB). The next attempt then finds the place taken (`EEXIST`); a page that is gone from its
//! old place counts as moved.
use crate::host::{FaultSource, Host, RETRIES};
use crate::userfault;
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, MAX_FOLIO_PAGES, PAGE_BYTES, PageNo};
use outswap_sys::uffd::{MOVE_FEATURES, Progress, Uffd};
use outswap_sys::{Errno, Result, os};

/// Pages that are copied instead when one of them cannot be moved. After a fork that is all of them, and a failed move
/// costs a system call each.
const COPY_RUN_PAGES: usize = 16;
/// Runs of neighbours up to which pages are moved. The kernel flushes TLBs once a run when it moves, once or twice in all when pages are
/// write-protected, copied and dropped; but a page that is copied is written to memory, and its frame has to be allocated and freed.
const MOVE_RUNS: usize = 8;
/// Clean pages that move with others, for each of those: they need frames for a while, and are not read there. More are dropped where
/// they are.
const MOVE_CLEAN: usize = 4;

/// What taking asks of the kernel. Pages count from the first of the range.
trait Kernel {
    fn move_pages(&mut self, at: usize, count: usize) -> Progress;
    /// Whether a page is in its old place.
    fn is_at_source(&mut self, at: usize) -> bool;
    /// Takes pages by copying them; returns which. Both count from `at`.
    fn copy(&mut self, at: usize, count: usize, present: Mask) -> Mask;
    fn pause(&mut self, tries: u32);
}

struct Pages<'a, H: Host> {
    host: &'a H,
    first: PageNo,
    batch: BatchNo,
    offset: usize,
}

impl<H: Host> Kernel for Pages<'_, H> {
    fn move_pages(&mut self, at: usize, count: usize) -> Progress {
        let dst = self.host.batch_address(self.batch, self.offset + at);
        // SAFETY: the caller of `take` owns the pages and the batch.
        unsafe { self.host.uffd().move_pages(dst, self.host.address(self.first.plus(at)), count * PAGE_BYTES) }
    }
    fn is_at_source(&mut self, at: usize) -> bool {
        is_present(self.host.address(self.first.plus(at)))
    }
    fn copy(&mut self, at: usize, count: usize, present: Mask) -> Mask {
        let wanted = Wanted { framed: present, clean: Mask::EMPTY };
        userfault::take_part(self.host, self.first.plus(at), count, wanted, self.batch, self.offset + at).framed
    }
    fn pause(&mut self, tries: u32) {
        self.host.wait(tries);
    }
}

/// Frames of a batch on their way back.
struct Back<'a, H: Host> {
    host: &'a H,
    first: PageNo,
    batch: BatchNo,
}

impl<H: Host> Kernel for Back<'_, H> {
    fn move_pages(&mut self, at: usize, count: usize) -> Progress {
        let (to, from) = (self.host.address(self.first.plus(at)), self.host.batch_address(self.batch, at));
        // SAFETY: the caller of `put_back` owns the pages and has the batch in hand.
        unsafe { self.host.uffd().move_pages(to, from, count * PAGE_BYTES) }
    }
    fn is_at_source(&mut self, at: usize) -> bool {
        is_present(self.host.batch_address(self.batch, at))
    }
    fn copy(&mut self, at: usize, _count: usize, present: Mask) -> Mask {
        userfault::put_back(self.host, self.first, self.batch, present.at(at)).from(at)
    }
    fn pause(&mut self, tries: u32) {
        self.host.wait(tries);
    }
}

/// The parts of `pages` that can be moved in one call: empty frames in between do not matter, those that hold something do.
fn stretches(pages: Mask, held: Mask) -> impl Iterator<Item = Mask> {
    let mut left = pages;
    core::iter::from_fn(move || {
        let start = left.first()?;
        let stop = (held - pages).next(start).unwrap_or_else(|| left.end());
        let stretch = left & Mask::range(start, stop - start);
        left = left - stretch;
        Some(stretch)
    })
}

/// Whether the kernel has a page there.
fn is_present(address: usize) -> bool {
    let mut flag = [0u8; 1];
    // When in doubt it is there: then nothing counts as moved that was not.
    os::mincore(address, PAGE_BYTES, &mut flag).is_err() || flag[0] & 1 != 0
}

fn take_from(kernel: &mut impl Kernel, present: Mask) -> Mask {
    let end = present.end();
    let (mut taken, mut from, mut tries) = (Mask::EMPTY, 0, 0);
    while let Some(mut at) = present.next(from) {
        let progress = kernel.move_pages(at, end - at);
        let moved = progress.done_bytes / PAGE_BYTES;
        taken |= Mask::range(at, moved) & present;
        at += moved;
        from = at;
        if at >= end {
            break;
        }
        match progress.error {
            None => break,
            // What is not in its old place was moved, and the next attempt says so.
            Some(Errno::EAGAIN) if moved > 0 || tries < RETRIES || tries < RETRIES * 2 && !kernel.is_at_source(at) => {
                // So often without any page between.
                tries = if moved > 0 { 1 } else { tries + 1 };
                kernel.pause(tries);
            }
            // The place was empty before, so what is there can only be the page itself.
            Some(Errno::EEXIST) if moved == 0 && !kernel.is_at_source(at) => {
                taken.insert(at);
                from = at + 1;
                tries = 0;
            }
            Some(error) => {
                let Some(at) = present.next(at) else { break };
                // A mapping with other access than the batch's has it for all its pages.
                let run = if error == Errno::EINVAL { end - at } else { COPY_RUN_PAGES.min(end - at) };
                let wanted = (present & Mask::range(at, run)).from(at);
                taken |= kernel.copy(at, run, wanted).at(at);
                from = at + run;
            }
        }
    }
    taken
}

/// Takes pages of one mapping.
fn take_part(host: &impl Host, first: PageNo, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
    let all = wanted.all();
    let few_clean = wanted.clean.count() <= wanted.framed.count() * MOVE_CLEAN;
    // To drop pages of a huge page frees nothing before all of it is gone; to move one splits it.
    let is_huge = host.split_huge(first);
    if !is_huge && (!few_clean || all.runs().nth(MOVE_RUNS).is_some()) {
        return userfault::take_part(host, first, all.end(), wanted, batch, offset);
    }
    Taken { framed: take_from(&mut Pages { host, first, batch, offset }, all), dropped: Mask::EMPTY }
}

/// userfaultfd with `UFFDIO_MOVE`.
pub struct Moving;

impl FaultSource for Moving {
    const LOSES_PAGES: bool = true;
    const WRITE_PROTECTS: bool = true;
    const MOVES_HUGE: bool = true;

    fn open() -> Result<i32> {
        Uffd::open(MOVE_FEATURES).map(|uffd| uffd.0)
    }

    fn register(fd: i32, addr: usize, len: usize) -> Result<()> {
        Uffd(fd).register(addr, len, true)
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        userfault::may_be_missing(signal, code)
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        userfault::take_by_mapping(host, first, wanted, |at, _, wanted| {
            take_part(host, first.plus(at), wanted, batch, offset + at)
        })
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
        let mut back = Back { host, first, batch };
        stretches(pages, held).fold(Mask::EMPTY, |all, stretch| {
            let of_mapping = |(at, count)| take_from(&mut back, stretch & Mask::range(at, count));
            userfault::parts(host, first, stretch).map(of_mapping).fold(all, |all, part| all | part)
        })
    }

    const MOVES_BACK: bool = true;

    fn put(host: &impl Host, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        userfault::put(host, first, src, write_protected)
    }

    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
        userfault::fill(host, frame, content)
    }

    fn forbid_writes(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::set_writes(host, first, count, false)
    }

    fn allow_writes(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::set_writes(host, first, count, true)
    }

    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        userfault::put_zero(host, first, count)
    }

    const MAPS_ZERO: bool = true;

    fn map_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        userfault::map_zero(host, first, count)
    }

    const UNTRAPS: bool = true;

    fn untrap(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::untrap(host, first, count)
    }

    fn put_huge(host: &impl Host, first: PageNo, from: usize) -> bool {
        for tries in 0..RETRIES {
            // SAFETY: the caller owns the pages, which hold nothing, and what is moved to them.
            match unsafe { host.uffd().move_pages(host.address(first), from, MAX_FOLIO_PAGES * PAGE_BYTES) } {
                Progress { error: None, .. } => return true,
                Progress { done_bytes: 0, error: Some(Errno::EAGAIN) } => host.wait(tries),
                // Nothing is there to be moved to, or may be: nothing has come.
                Progress { done_bytes: 0, error: Some(Errno::EINVAL | Errno::ENOENT) } => return false,
                Progress { .. } => break,
            }
        }
        // A part may have come, or all without its being told: zeros.
        assert!(host.drop_content(first, MAX_FOLIO_PAGES), "managed pages can be dropped");
        false
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        for tries in 0..RETRIES {
            // SAFETY: the caller owns both pages.
            match unsafe { host.uffd().move_pages(host.address(to), host.address(from), PAGE_BYTES) }.error {
                None => return true,
                Some(Errno::EAGAIN) => host.wait(tries),
                // As in `take_from`: the caller found the target empty.
                Some(Errno::EEXIST) if !is_present(host.address(from)) => return true,
                Some(_) => break,
            }
        }
        // The last attempt may have moved it.
        !is_present(host.address(from)) && is_present(host.address(to)) || userfault::transfer(host, from, to)
    }

    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        host.set_access(first, count, prot).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that moves pages one by one, as a script says.
    struct Script {
        source: Mask,
        batch: Mask,
        shared: Mask,
        /// Pages whose first move is done but not told.
        untold: Mask,
        copied: Mask,
        /// First attempts that fail, the last of which has moved a page all the same.
        fail: u32,
    }

    impl Kernel for Script {
        fn move_pages(&mut self, at: usize, count: usize) -> Progress {
            if self.fail > 0 {
                self.fail -= 1;
                let moved = self.source & Mask::single(at);
                if self.fail == 0 {
                    self.batch |= moved;
                    self.source = self.source - moved;
                }
                return Progress { done_bytes: 0, error: Some(Errno::EAGAIN) };
            }
            for i in at..at + count {
                let stop = |e| Progress {
                    done_bytes: (i - at) * PAGE_BYTES,
                    error: Some(if i > at { Errno::EAGAIN } else { e }),
                };
                if self.batch.contains(i) {
                    return stop(Errno::EEXIST);
                }
                if self.source.contains(i) && self.shared.contains(i) {
                    return stop(Errno::EBUSY);
                }
                self.batch |= self.source & Mask::single(i);
                self.source.remove(i);
                if self.untold.contains(i) {
                    self.untold.remove(i);
                    return stop(Errno::EAGAIN);
                }
            }
            Progress { done_bytes: count * PAGE_BYTES, error: None }
        }
        fn is_at_source(&mut self, at: usize) -> bool {
            self.source.contains(at)
        }
        fn copy(&mut self, at: usize, count: usize, present: Mask) -> Mask {
            let pages = present.at(at) & Mask::range(at, count) & (self.source - self.batch);
            self.batch |= pages;
            self.source = self.source - pages;
            self.copied |= pages;
            pages.from(at)
        }
        fn pause(&mut self, _tries: u32) {}
    }

    fn check(present: Mask, shared: Mask, untold: Mask) {
        check_after(0, present, shared, untold);
    }
    fn check_after(fail: u32, present: Mask, shared: Mask, untold: Mask) {
        let mut kernel = Script { source: present, batch: Mask::EMPTY, shared, untold, copied: Mask::EMPTY, fail };
        let taken = take_from(&mut kernel, present);
        assert_eq!(taken, present, "all pages can be taken: {present:?} {shared:?} {untold:?}");
        assert_eq!((kernel.batch, kernel.source), (present, Mask::EMPTY));
        assert_eq!(kernel.copied & shared, present & shared, "shared pages are copied");
    }

    #[test]
    fn stretches_end_where_something_is_to_stay() {
        let parts = |pages: u64, held: u64| -> Vec<u64> {
            stretches(Mask::of_word(pages), Mask::of_word(held)).map(Mask::first_word).collect()
        };
        assert_eq!(parts(0b1011_0001, 0b1011_0001), [0b1011_0001]);
        assert_eq!(parts(0b1011_0001, 0b1011_0101), [0b0000_0001, 0b1011_0000]);
        assert_eq!(parts(1 << 63 | 1, u64::MAX), [1, 1 << 63]);
        assert_eq!(parts(u64::MAX, u64::MAX), [u64::MAX]);
        assert_eq!(parts(0, u64::MAX), [0u64; 0]);
    }

    #[test]
    fn pages_moved_but_not_told_count_as_taken() {
        for present in [1, 0b1001, 0b1001_0000, 0x201, u64::MAX, 1 << 63, 0xf0f0_0f0f_5555_aaaa] {
            for untold in [0, 1, 0b1000, 0b1001, 0x200, u64::MAX, 1 << 63, 0x5555_5555_5555_5555] {
                for shared in [0, 0b1000, 1 << 63, 0xff00] {
                    let [present, shared, untold] = [present, shared, untold & !shared].map(Mask::of_word);
                    check(present, shared, untold);
                    // The same, over the border of two words, and as much as there is.
                    let wide = |mask: Mask| mask.at(30) | mask.at(448);
                    check(wide(present), wide(shared), wide(untold));
                }
            }
        }
    }

    #[test]
    fn the_last_attempt_of_many_may_have_moved_a_page() {
        for fail in [1, 2, RETRIES, RETRIES + 1, RETRIES + 2] {
            check_after(fail, Mask::of_word(0b1101_1000), Mask::EMPTY, Mask::EMPTY);
        }
    }

    #[test]
    fn a_place_that_was_not_empty_takes_nothing() {
        let (present, there) = (Mask::of_word(0b1001), Mask::of_word(0b1000));
        let mut kernel = Script {
            source: present,
            batch: there,
            shared: Mask::EMPTY,
            untold: Mask::EMPTY,
            copied: Mask::EMPTY,
            fail: 0,
        };
        assert_eq!(take_from(&mut kernel, present), Mask::single(0));
        assert_eq!(kernel.source, there, "the page stays where it is");
    }
}
