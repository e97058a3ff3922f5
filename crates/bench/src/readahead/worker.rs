//! What is measured: memory a little larger than the limit, touched in one order or another, each touch looked at.
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use serde_json::json;

use crate::content::{Content, PAGE_WORDS, Page};
use crate::random::Random;
use crate::units::{Bytes, PAGE_BYTES, PageNo};

/// An order of touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Load {
    /// Every page in order.
    Seq,
    /// As many pages, chosen uniformly.
    Rand,
    /// Every ninth page, then every ninth from the next on.
    Stride,
    /// Five streams that take turns.
    Turns,
}

impl Load {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Load::Seq => "seq",
            Load::Rand => "rand",
            Load::Stride => "stride",
            Load::Turns => "turns",
        }
    }

    /// The pages of one pass over so many.
    fn pages(self, pages: usize, random: &mut Random) -> Vec<usize> {
        const STRIDE: usize = 9;
        const STREAMS: usize = 5;
        match self {
            Load::Seq => (0..pages).collect(),
            Load::Rand => (0..pages).map(|_| random.below(pages)).collect(),
            Load::Stride => (0..STRIDE).flat_map(|first| (first..pages).step_by(STRIDE)).collect(),
            Load::Turns => {
                let each = pages / STREAMS;
                (0..each).flat_map(|at| (0..STREAMS).map(move |stream| stream * each + at)).collect()
            }
        }
    }
}

/// Whose the memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Memory {
    /// Private.
    Anon,
    /// Shared and anonymous.
    Shmem,
}

impl Memory {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Memory::Anon => "anon",
            Memory::Shmem => "shmem",
        }
    }
}

/// Arguments of the worker.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    load: Load,
    #[arg(value_enum)]
    memory: Memory,
    size: Bytes,
    passes: u32,
}

/// The worker: prints how long the touches took.
pub fn main(args: &Args) -> ExitCode {
    match work(args) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn map(memory: Memory, pages: usize) -> Result<&'static mut [Page], String> {
    let shared = if memory == Memory::Shmem { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, shared | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses disturbs nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE_BYTES, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(format!("mmap: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the mapping is that long, page-aligned, zeroed (a valid `Page`), ours alone, and never unmapped.
    Ok(unsafe { std::slice::from_raw_parts_mut(base.cast::<Page>(), pages) })
}

fn work(args: &Args) -> Result<serde_json::Value, String> {
    let (content, mut random) = (Content::new(), Random::new(1));
    let pages = map(args.memory, args.size.pages())?;
    for (index, page) in pages.iter_mut().enumerate() {
        content.write(PageNo(index as u32), 0, page);
    }
    let passes: Vec<Vec<usize>> = (0..args.passes).map(|_| args.load.pages(pages.len(), &mut random)).collect();
    let start = Instant::now();
    for &index in passes.iter().flatten() {
        let word = random.below(PAGE_WORDS);
        let found = content.check_word(PageNo(index as u32), 0, word, pages[index][word]);
        found.map_err(|mismatch| format!("content is wrong: {mismatch}"))?;
    }
    let elapsed = start.elapsed();
    let touches: usize = passes.iter().map(Vec::len).sum();
    for (index, page) in pages.iter().enumerate() {
        content.check(PageNo(index as u32), 0, page).map_err(|mismatch| format!("content is wrong: {mismatch}"))?;
    }
    Ok(json!({ "elapsed_ns": elapsed.as_nanos() as u64, "touches": touches }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_but_the_random_one_has_every_page_once() {
        for load in [Load::Seq, Load::Stride, Load::Turns] {
            let mut pages = load.pages(1000, &mut Random::new(1));
            pages.sort_unstable();
            assert_eq!(pages, (0..1000).collect::<Vec<_>>(), "{load:?}");
        }
        let random = Load::Rand.pages(1000, &mut Random::new(1));
        assert!(random.len() == 1000 && random.iter().all(|page| *page < 1000));
    }
}
