//! A program that reads memory in one of several orders, and takes the time of every access.
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::content::{Content, PAGE_WORDS};
use crate::experiments::histogram::Histogram;
use crate::experiments::meter::Meter;
use crate::random::{Random, Scatter, Zipf};
use crate::units::{Bytes, PAGE_BYTES, PageNo};
use crate::worker;

/// No access to memory that is there takes so long, and none that faults is so short.
const FAULT_NS: u64 = 700;
/// Exponent of the Zipf reader, as in the published figures.
const ZIPF_EXPONENT: f64 = 1.2;
/// Passes of the sequential reader, and accesses of the others for each page.
const PASSES: usize = 2;

/// The order in which pages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Reader {
    /// One after the other
    Seq,
    /// Chosen uniformly
    Random,
    /// Chosen by a Zipf law of exponent 1.2, the frequent ones scattered
    Zipf,
    /// Nine of ten chosen among nine tenths of what may be resident, the others in order: pages that are about to go are wanted
    /// again
    Hot,
    /// Chosen among half of what may be resident, of which each is said to be cold (`MADV_COLD`) just before
    Cold,
}

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Memory {
    /// `MAP_PRIVATE`
    Private,
    /// `MAP_SHARED`
    Shared,
}

impl Memory {
    /// Its name.
    pub fn name(self) -> &'static str {
        if self == Memory::Shared { "shared" } else { "private" }
    }
}

impl Reader {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Reader::Seq => "seq",
            Reader::Random => "random",
            Reader::Zipf => "zipf",
            Reader::Hot => "hot",
            Reader::Cold => "cold",
        }
    }
}

/// Arguments of the worker.
#[derive(clap::Args)]
pub struct Args {
    /// Order of reading
    #[arg(value_enum)]
    reader: Reader,
    /// Whose memory
    #[arg(value_enum)]
    memory: Memory,
    /// How much
    size: Bytes,
    /// How much of it may be resident
    resident: Bytes,
}

/// The pages to be read, in their order; of so many, `resident` of which may be in memory.
fn order(reader: Reader, pages: usize, resident: usize, random: &mut Random) -> Box<dyn FnMut(usize) -> usize> {
    let mut random = Random::new(random.next());
    match reader {
        Reader::Seq => Box::new(move |n| n % pages),
        Reader::Random => Box::new(move |_| random.below(pages)),
        Reader::Zipf => {
            let (zipf, scatter) = (Zipf::new(pages, ZIPF_EXPONENT), Scatter::new(pages));
            Box::new(move |_| scatter.apply(zipf.sample(&mut random)))
        }
        Reader::Cold => {
            let near = (resident / 2).clamp(1, pages);
            Box::new(move |_| random.below(near))
        }
        Reader::Hot => {
            let hot = (resident / 10 * 9).clamp(1, pages);
            let cold = (pages - hot).max(1);
            let mut next = 0;
            Box::new(move |_| {
                if random.below(10) > 0 {
                    return random.below(hot);
                }
                next = (next + 1) % cold;
                (hot + next).min(pages - 1)
            })
        }
    }
}

fn work(args: &Args) -> Result<Value, String> {
    let sharing = if args.memory == Memory::Shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let memory = worker::numbered(args.size, sharing)?;
    let pages = memory.len();
    let content = Content::new();
    for (index, page) in memory.iter_mut().enumerate() {
        content.write(PageNo(index as u32), 0, page);
    }
    let mut random = Random::new(5);
    let mut next = order(args.reader, pages, args.resident.pages(), &mut random);
    let (mut faulting, accesses) = (Histogram::new(), pages * PASSES);
    if args.reader == Reader::Cold {
        // They are to be there.
        for page in memory.iter().take(args.resident.pages() / 2) {
            std::hint::black_box(page[0]);
        }
    }
    let meter = Meter::start();
    for n in 0..accesses {
        let (index, word) = (next(n), random.next() as usize % PAGE_WORDS);
        if args.reader == Reader::Cold {
            // SAFETY: a page of ours; what it holds stays.
            let told = unsafe { libc::madvise(memory[index].as_mut_ptr().cast(), PAGE_BYTES, libc::MADV_COLD) };
            if told != 0 {
                return Err(format!("madvise: {}", std::io::Error::last_os_error()));
            }
        }
        let start = Instant::now();
        // SAFETY: a word of the memory; volatile, so that it is read between the two looks at the clock.
        let found = unsafe { std::ptr::read_volatile(&memory[index][word]) };
        let ns = start.elapsed().as_nanos() as u64;
        if ns >= FAULT_NS {
            faulting.add(ns);
        }
        content.check_word(PageNo(index as u32), 0, word, found).map_err(|m| format!("content is wrong: {m}"))?;
    }
    let mut phase = meter.end(accesses as u64);
    for (index, page) in memory.iter().enumerate() {
        content.check(PageNo(index as u32), 0, page).map_err(|m| format!("content is wrong: {m}"))?;
    }
    phase["waits"] = json!({
        "count": faulting.count(),
        "sum_ns": faulting.sum_ns() as u64,
        "p50_ns": faulting.percentile_ns(50.0),
        "p99_ns": faulting.percentile_ns(99.0),
    });
    Ok(phase)
}

/// `swapin-worker`: prints one line of JSON.
pub fn main(args: &Args) -> ExitCode {
    worker::end_with_parent();
    worker::finish(work(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_reads_right_content_as_often_as_it_says() {
        for &reader in Reader::value_variants() {
            for memory in [Memory::Private, Memory::Shared] {
                let args = Args { reader, memory, size: Bytes(1 << 20), resident: Bytes(1 << 18) };
                let result = work(&args).expect("nothing disturbs the memory");
                assert_eq!(result["accesses"], 512, "{reader:?}");
                assert!(result["waits"]["count"].is_u64());
            }
        }
    }

    #[test]
    fn readers_stay_in_the_memory_and_the_hot_one_prefers_its_part() {
        let mut random = Random::new(1);
        for &reader in Reader::value_variants() {
            for (pages, resident) in [(1, 0), (1, 9), (100, 30), (100, 200)] {
                let mut next = order(reader, pages, resident, &mut random);
                assert!((0..1000).all(|n| next(n) < pages), "{reader:?}");
            }
        }
        let mut next = order(Reader::Hot, 1000, 110, &mut random);
        let hot = (0..10_000).filter(|&n| next(n) < 99).count();
        assert!(hot.abs_diff(9000) < 200, "{hot}");
    }
}
