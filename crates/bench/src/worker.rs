//! The programs that are measured: they run in a process of their own, alone, under kernel swap or under Outswap.
//!
//! The working set is one private anonymous mapping, made through the C library as any program would. Each thread
//! owns an equal, contiguous share of it and never touches another's, so the workloads need no locks and every page's
//! content is known to its owner.
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;

use crate::content::{Content, Mismatch, PAGE_WORDS, Page};
use crate::random::{Random, Scatter, Zipf};
use crate::units::{Bytes, PAGE_BYTES, PageNo};

/// Exponent of the Zipf workload.
const ZIPF_EXPONENT: f64 = 1.2;
/// Accesses of the random workloads, per page of the share.
const RANDOM_PASSES: usize = 2;
/// Passes of the sequential workloads.
const SEQUENTIAL_PASSES: usize = 2;
/// Pages from one to the next of the strided workload.
const STRIDE: usize = 3;
/// Streams of the interleaved workload.
const STREAMS: usize = 4;
/// Random write passes of the mixed worker: with everything in memory, one pass is over in no time.
const MIXED_PASSES: usize = 64;
/// Allocations that the mixed worker makes.
const MIXED_ALLOCATIONS: usize = 8_000_000;
/// Files that it looks at.
const MIXED_FILES: usize = 50_000;
/// Allocations that the mixed worker holds at a time.
const MIXED_LIVE: usize = 4096;

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// The first write of every page, in order.
    Fill,
    /// Reading every page in order, twice.
    Seq,
    /// Reading every page from the last to the first, twice.
    Falling,
    /// Reading each third page in order, then those beside them: six passes, which are two over all.
    Strided,
    /// Reading as four streams that take turns, two upwards and two downwards, twice.
    Interleaved,
    /// Reading pages chosen uniformly, two per page of the working set.
    RandRead,
    /// Writing a word of pages chosen uniformly, two per page of the working set.
    RandWrite,
    /// Reading pages chosen by a Zipf law of exponent 1.2, the frequent ones scattered over the working set.
    Zipf,
}

impl Workload {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Fill => "fill",
            Workload::Seq => "seq",
            Workload::Falling => "falling",
            Workload::Strided => "strided",
            Workload::Interleaved => "interleaved",
            Workload::RandRead => "rand-read",
            Workload::RandWrite => "rand-write",
            Workload::Zipf => "zipf",
        }
    }
}

/// One thread's part of the working set.
struct Share {
    first: u32,
    pages: &'static mut [Page],
    /// Version of each page, modulo 256: small beside the pages themselves.
    versions: Vec<u8>,
    random: Random,
}

/// A phase of work on a share: gives the number of page accesses.
type Work = fn(&mut Share, &Content) -> Result<u64, Mismatch>;

impl Share {
    fn page(&self, index: usize) -> PageNo {
        PageNo(self.first + index as u32)
    }

    fn fill(&mut self, content: &Content) -> Result<u64, Mismatch> {
        for (index, page) in self.pages.iter_mut().enumerate() {
            content.write(PageNo(self.first + index as u32), 0, page);
        }
        Ok(self.pages.len() as u64)
    }

    /// Reads one word of a page, another one at each access.
    #[inline]
    fn read(&self, content: &Content, index: usize, word: u64) -> Result<(), Mismatch> {
        let word = word as usize % PAGE_WORDS;
        content.check_word(self.page(index), self.versions[index], word, self.pages[index][word])
    }

    /// Reads the pages of these places, twice.
    fn in_order(&mut self, content: &Content, order: impl Iterator<Item = usize> + Clone) -> Result<u64, Mismatch> {
        let mut accesses = 0;
        for _ in 0..SEQUENTIAL_PASSES {
            for index in order.clone() {
                let word = self.random.next();
                self.read(content, index, word)?;
                accesses += 1;
            }
        }
        Ok(accesses)
    }

    fn sequential(&mut self, content: &Content) -> Result<u64, Mismatch> {
        self.in_order(content, 0..self.pages.len())
    }

    fn falling(&mut self, content: &Content) -> Result<u64, Mismatch> {
        self.in_order(content, (0..self.pages.len()).rev())
    }

    fn strided(&mut self, content: &Content) -> Result<u64, Mismatch> {
        let pages = self.pages.len();
        self.in_order(content, (0..STRIDE).flat_map(move |start| (start..pages).step_by(STRIDE)))
    }

    fn interleaved(&mut self, content: &Content) -> Result<u64, Mismatch> {
        let pages = self.pages.len();
        let part = pages / STREAMS;
        let turn =
            move |n: usize| (0..STREAMS).map(move |s| if s % 2 == 0 { s * part + n } else { (s + 1) * part - 1 - n });
        // What does not divide comes at the end.
        self.in_order(content, (0..part).flat_map(turn).chain(STREAMS * part..pages))
    }

    fn random_read(&mut self, content: &Content) -> Result<u64, Mismatch> {
        let accesses = self.pages.len() * RANDOM_PASSES;
        for _ in 0..accesses {
            let index = self.random.below(self.pages.len());
            let word = self.random.next();
            self.read(content, index, word)?;
        }
        Ok(accesses as u64)
    }

    fn random_write(&mut self, passes: usize) -> u64 {
        let accesses = self.pages.len() * passes;
        for _ in 0..accesses {
            let index = self.random.below(self.pages.len());
            let version = self.versions[index].wrapping_add(1);
            self.versions[index] = version;
            self.pages[index][0] = Content::version_word(self.page(index), version);
        }
        accesses as u64
    }

    fn zipf(&mut self, content: &Content) -> Result<u64, Mismatch> {
        let accesses = self.pages.len() * RANDOM_PASSES;
        let (zipf, scatter) = (Zipf::new(self.pages.len(), ZIPF_EXPONENT), Scatter::new(self.pages.len()));
        for _ in 0..accesses {
            let index = scatter.apply(zipf.sample(&mut self.random));
            let word = self.random.next();
            self.read(content, index, word)?;
        }
        Ok(accesses as u64)
    }

    fn verify(&mut self, content: &Content) -> Result<u64, Mismatch> {
        for (index, page) in self.pages.iter().enumerate() {
            content.check(self.page(index), self.versions[index], page)?;
        }
        Ok(self.pages.len() as u64)
    }
}

/// The working set: zeroed anonymous memory from `mmap`, private or (`libc::MAP_SHARED`) shared, never given back before the
/// process ends.
pub fn map(pages: usize, sharing: libc::c_int) -> io::Result<&'static mut [Page]> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses disturbs nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE_BYTES, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is that long, page-aligned, zeroed (a valid `Page`), ours alone, and never unmapped.
    Ok(unsafe { std::slice::from_raw_parts_mut(base.cast::<Page>(), pages) })
}

/// Cuts the working set into one share a thread.
fn split(pages: &'static mut [Page], threads: usize) -> Vec<Share> {
    let total = pages.len();
    let mut rest = pages;
    (0..threads)
        .map(|thread| {
            let first = total * thread / threads;
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(total * (thread + 1) / threads - first);
            rest = tail;
            Share { first: first as u32, versions: vec![0; head.len()], pages: head, random: Random::new(first as u64) }
        })
        .collect()
}

/// Does `work` on all shares at once, each in a thread; one alone in this thread, so that the process has no other. Gives the time
/// from the first thread's start to the last one's end, and the accesses of all.
fn together(shares: &mut [Share], content: &Content, work: Work) -> Result<(Duration, u64), Mismatch> {
    if let [share] = shares {
        let start = Instant::now();
        return work(share, content).map(|accesses| (start.elapsed(), accesses));
    }
    let barrier = &Barrier::new(shares.len());
    let run = |share: &mut Share| {
        barrier.wait();
        let start = Instant::now();
        work(share, content).map(|accesses| (start, Instant::now(), accesses))
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares.iter_mut().map(|share| scope.spawn(move || run(share))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic aborts the process")).collect()
    });
    let ended = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    let start = ended.iter().map(|t| t.0).min().expect("there is at least one share");
    let end = ended.iter().map(|t| t.1).max().expect("there is at least one share");
    Ok((end - start, ended.iter().map(|t| t.2).sum()))
}

/// Highest resident memory of this process so far, or 0 where `/proc` does not tell.
fn peak_rss() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Bytes(kib.unwrap_or(0) * 1024)
}

/// Ends this process when its parent does: under Outswap the parent is not the bench, which could not reach it.
pub fn end_with_parent() {
    // SAFETY: plain values; affects this process only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn touch(workload: Workload, size: Bytes, threads: usize) -> Result<serde_json::Value, String> {
    if size.pages() < threads || threads == 0 || size.pages() > u32::MAX as usize {
        return Err(format!("{size} cannot be shared by {threads} threads"));
    }
    let wrong = |mismatch: Mismatch| format!("content is wrong: {mismatch}");
    let content = Content::new();
    let pages = map(size.pages(), libc::MAP_PRIVATE).map_err(|error| format!("mmap of {size}: {error}"))?;
    let mut shares = split(pages, threads);
    let filled = together(&mut shares, &content, Share::fill).map_err(wrong)?;
    let timed: Option<Work> = match workload {
        Workload::Fill => None,
        Workload::Seq => Some(Share::sequential),
        Workload::Falling => Some(Share::falling),
        Workload::Strided => Some(Share::strided),
        Workload::Interleaved => Some(Share::interleaved),
        Workload::RandRead => Some(Share::random_read),
        Workload::RandWrite => Some(|share, _| Ok(share.random_write(RANDOM_PASSES))),
        Workload::Zipf => Some(Share::zipf),
    };
    let (elapsed, accesses) = match timed {
        None => filled,
        Some(work) => together(&mut shares, &content, work).map_err(wrong)?,
    };
    together(&mut shares, &content, Share::verify).map_err(wrong)?;
    Ok(json!({
        "elapsed_ns": elapsed.as_nanos() as u64,
        "accesses": accesses,
        "peak_rss_bytes": peak_rss().0,
    }))
}

/// Allocates, stamps, checks and frees many small blocks.
fn allocate(count: usize) -> Result<(), String> {
    let mut random = Random::new(3);
    let mut live: Vec<Vec<u8>> = vec![Vec::new(); MIXED_LIVE];
    for n in 0..count {
        let size = 16 + random.below(1024);
        let mut block = Vec::with_capacity(size);
        block.resize(size, n as u8);
        let old = std::mem::replace(&mut live[random.below(MIXED_LIVE)], std::hint::black_box(block));
        if old.first() != old.last() {
            return Err("content is wrong: a small block changed while it was held".to_owned());
        }
    }
    Ok(())
}

/// Touches three of eight pages of fresh memory, neither one after the other nor at random, as who allocates objects of some pages does.
fn scatter(size: Bytes) -> Result<(), String> {
    let pages = map(size.pages(), libc::MAP_PRIVATE).map_err(|error| format!("mmap of {size}: {error}"))?;
    for eight in pages.chunks_exact_mut(8) {
        for at in [5, 3, 0] {
            eight[at][0] = std::hint::black_box(1);
        }
    }
    Ok(())
}

/// Asks for the status of so many files, and of all directories on the way.
fn look_at_files(count: usize) -> Result<(), String> {
    let (mut left, mut folders) = (count, vec![std::path::PathBuf::from("/usr")]);
    while let Some(folder) = folders.pop() {
        // One that is not to be read is passed over.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match std::fs::symlink_metadata(&path) {
                Ok(status) if status.is_dir() => folders.push(path),
                _ => {}
            }
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn mixed(size: Bytes) -> Result<serde_json::Value, String> {
    let wrong = |mismatch: Mismatch| format!("content is wrong: {mismatch}");
    let content = Content::new();
    let pages = map(size.pages().max(1), libc::MAP_PRIVATE).map_err(|error| format!("mmap of {size}: {error}"))?;
    let mut shares = split(pages, 1);
    let (fill, _) = together(&mut shares, &content, Share::fill).map_err(wrong)?;
    let write: Work = |share, _| Ok(share.random_write(MIXED_PASSES));
    let (write, _) = together(&mut shares, &content, write).map_err(wrong)?;
    let start = Instant::now();
    allocate(MIXED_ALLOCATIONS)?;
    let malloc = start.elapsed();
    let start = Instant::now();
    scatter(size)?;
    let scattered = start.elapsed();
    let start = Instant::now();
    look_at_files(MIXED_FILES)?;
    let files = start.elapsed();
    together(&mut shares, &content, Share::verify).map_err(wrong)?;
    Ok(json!({
        "fill_ns": fill.as_nanos() as u64,
        "rand_write_ns": write.as_nanos() as u64,
        "malloc_ns": malloc.as_nanos() as u64,
        "scattered_ns": scattered.as_nanos() as u64,
        "files_ns": files.as_nanos() as u64,
        "peak_rss_bytes": peak_rss().0,
    }))
}

/// Memory of so many bytes as pages, each of which has a number ([`map`]).
pub fn numbered(size: Bytes, sharing: libc::c_int) -> Result<&'static mut [Page], String> {
    let pages = size.pages();
    if pages == 0 || pages > u32::MAX as usize {
        return Err(format!("{size} of memory cannot be measured"));
    }
    map(pages, sharing).map_err(|error| format!("mmap of {size}: {error}"))
}

/// Prints the one line of JSON that a worker gives, or says what went wrong.
pub fn finish(result: Result<serde_json::Value, String>) -> ExitCode {
    match result.and_then(|value| writeln!(io::stdout(), "{value}").map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::say(&error);
            ExitCode::FAILURE
        }
    }
}

/// `touch-worker`: one timed workload; prints one line of JSON.
pub fn touch_main(workload: Workload, size: Bytes, threads: usize) -> ExitCode {
    end_with_parent();
    finish(touch(workload, size, threads))
}

/// `mixed-worker`: fill, random writes and small allocations; prints one line of JSON.
pub fn mixed_main(size: Bytes) -> ExitCode {
    end_with_parent();
    finish(mixed(size))
}

/// Starts a program so many times, and forks so many times, one after the other; what each takes until its end.
fn start(program: &str) -> Result<serde_json::Value, String> {
    const TIMES: u32 = 200;
    let begin = Instant::now();
    for _ in 0..TIMES {
        let status = Command::new(program).stdout(Stdio::null()).status().map_err(|e| format!("{program}: {e}"))?;
        if !status.success() {
            return Err(format!("{program}: {status}"));
        }
    }
    let program_ns = begin.elapsed() / TIMES;
    let begin = Instant::now();
    for _ in 0..TIMES {
        // SAFETY: this process has one thread; the child does nothing but end.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: a place for the status.
        if pid < 0 || unsafe { libc::waitpid(pid, &mut status, 0) } != pid || status != 0 {
            return Err(format!("a fork: {}", io::Error::last_os_error()));
        }
    }
    let fork_ns = begin.elapsed() / TIMES;
    Ok(json!({ "program_ns": program_ns.as_nanos() as u64, "fork_ns": fork_ns.as_nanos() as u64 }))
}

/// `start-worker`: starts programs and forks; prints one line of JSON.
pub fn start_main(program: &str) -> ExitCode {
    end_with_parent();
    finish(start(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_ends_with_right_content_and_counts_its_accesses() {
        for workload in Workload::value_variants().iter().copied() {
            for threads in [1, 2, 3] {
                let result = touch(workload, Bytes(1 << 20), threads).expect("nothing disturbs the memory");
                let passes = if workload == Workload::Fill { 1 } else { 2 };
                assert_eq!(result["accesses"], 256 * passes, "{workload:?}");
                assert!(result["elapsed_ns"].as_u64() > Some(0));
            }
        }
    }

    #[test]
    fn a_change_behind_the_workers_back_is_a_mismatch() {
        let content = Content::new();
        let mut share = split(vec![[0; PAGE_WORDS]; 8].leak(), 1).pop().expect("one share was asked for");
        assert_eq!(share.fill(&content), Ok(8));
        share.random_write(2);
        assert_eq!(share.verify(&content), Ok(8));
        share.pages[5][300] ^= 1 << 9;
        let mismatch = share.verify(&content).unwrap_err();
        assert_eq!((mismatch.page, mismatch.word), (PageNo(5), 300));
        share.pages[5][300] ^= 1 << 9;
        // A write that was lost: the page is as it was one version before.
        let before = share.versions[2].wrapping_sub(1);
        share.pages[2][0] = Content::version_word(PageNo(2), before);
        assert_eq!(share.verify(&content).unwrap_err().page, PageNo(2));
    }

    #[test]
    fn shares_cover_the_working_set_once() {
        let shares = split(vec![[0; PAGE_WORDS]; 10].leak(), 4);
        let ranges: Vec<_> = shares.iter().map(|s| (s.first, s.pages.len())).collect();
        assert_eq!(ranges, [(0, 2), (2, 3), (5, 2), (7, 3)]);
    }

    #[test]
    fn more_threads_than_pages_are_refused() {
        assert!(touch(Workload::Fill, Bytes(4096), 2).is_err());
    }
}
