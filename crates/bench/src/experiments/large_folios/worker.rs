//! A program that has all its memory go out (`MADV_PAGEOUT`) and comes back to it, round after round.
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::content::{PAGE_WORDS, Page};
use crate::experiments::meter::Meter;
use crate::random::{Random, mix};
use crate::units::{Bytes, PAGE_BYTES, PageNo};
use crate::worker;

/// Pages of a folio of 64 KiB, by which memory is dropped and touched.
const FOLIO_PAGES: usize = 16;
/// Bytes that are advised at a time.
const ADVICE_BYTES: usize = 4 << 20;
/// Words that records are made of.
const WORDS: [&[u8]; 16] = [
    b"account ",
    b"address ",
    b"amount ",
    b"created ",
    b"customer ",
    b"delivery ",
    b"invoice ",
    b"number ",
    b"open ",
    b"order ",
    b"ordinary ",
    b"paid ",
    b"quantity ",
    b"status=",
    b"total ",
    b"user=",
];

/// What pages hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Text of words and numbers, other ones in each page
    Records,
    /// Bytes of 0x11
    Eleven,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// All of it is written anew, goes, and is read in order
    Swap,
    /// All of it goes; six of ten folios are touched, half of these are written, and one of ten is dropped and made anew
    Churn,
}

/// Arguments of the worker.
#[derive(clap::Args)]
pub struct Args {
    /// What is done in each round
    #[arg(value_enum)]
    mode: Mode,
    /// What pages hold
    #[arg(value_enum)]
    kind: Kind,
    /// Memory
    size: Bytes,
    /// Rounds
    rounds: u32,
}

/// Fills a page with what it should hold.
fn write(kind: Kind, page: PageNo, version: u8, out: &mut Page) {
    if kind == Kind::Eleven {
        out.fill(u64::from_ne_bytes([0x11; 8]));
        return;
    }
    // SAFETY: a page is as many bytes, and any bytes are words.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), PAGE_BYTES) };
    let mut random = Random::new(mix((u64::from(page.0)) << 8 | u64::from(version)));
    let mut at = 0;
    while at < PAGE_BYTES {
        let number = random.next();
        let word = WORDS[number as usize % WORDS.len()];
        let text = if number >> 8 & 3 == 0 { format!("{:08x} ", number >> 32).into_bytes() } else { word.to_vec() };
        let part = text.len().min(PAGE_BYTES - at);
        bytes[at..at + part].copy_from_slice(&text[..part]);
        at += part;
    }
}

struct Memory {
    pages: &'static mut [Page],
    versions: Vec<u8>,
    kind: Kind,
}

fn advise(pages: &mut [Page], advice: libc::c_int) -> Result<(), String> {
    for part in pages.chunks_mut(ADVICE_BYTES / PAGE_BYTES) {
        let len = size_of_val(part);
        // SAFETY: memory of our own; what it holds stays, or is written anew before it is read.
        if unsafe { libc::madvise(part.as_mut_ptr().cast(), len, advice) } != 0 {
            return Err(format!("madvise: {}", std::io::Error::last_os_error()));
        }
    }
    Ok(())
}

impl Memory {
    fn rewrite(&mut self, first: usize, count: usize) {
        for index in first..(first + count).min(self.pages.len()) {
            let version = self.versions[index].wrapping_add(1);
            self.versions[index] = version;
            write(self.kind, PageNo(index as u32), version, &mut self.pages[index]);
        }
    }

    /// Reads a word of every page, in order.
    fn read(&self) {
        for page in self.pages.iter() {
            // SAFETY: a word of the memory; volatile, so that it is read.
            unsafe { std::ptr::read_volatile(&page[PAGE_WORDS / 2]) };
        }
    }

    /// Looks at every byte.
    fn verify(&self) -> Result<(), String> {
        let mut expected: Page = [0; PAGE_WORDS];
        for (index, page) in self.pages.iter().enumerate() {
            write(self.kind, PageNo(index as u32), self.versions[index], &mut expected);
            if let Some(word) = (0..PAGE_WORDS).find(|&word| page[word] != expected[word]) {
                return Err(format!("content is wrong: page {index}, word {word}"));
            }
        }
        Ok(())
    }

    fn churn(&mut self, random: &mut Random) -> Result<(), String> {
        for first in (0..self.pages.len()).step_by(FOLIO_PAGES) {
            let count = FOLIO_PAGES.min(self.pages.len() - first);
            match random.below(10) {
                0 => {
                    advise(&mut self.pages[first..first + count], libc::MADV_DONTNEED)?;
                    self.rewrite(first, count);
                }
                1..=3 => self.rewrite(first, count),
                4..=6 => self.pages[first..first + count].iter().for_each(|page| {
                    // SAFETY: a word of the memory; volatile, so that it is read.
                    unsafe { std::ptr::read_volatile(&page[0]) };
                }),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What the kernel has counted of its own folios of 64 KiB: swapped out whole, and as pages after all.
fn kernels_folios() -> Option<(u64, u64)> {
    let read = |name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    Some((read("swpout")?, read("swpout_fallback")?))
}

fn work(args: &Args) -> Result<Value, String> {
    let mapped = worker::numbered(args.size, libc::MAP_PRIVATE)?;
    let pages = mapped.len();
    let mut memory = Memory { pages: mapped, versions: vec![0; pages], kind: args.kind };
    let (mut random, mut rounds) = (Random::new(10), Vec::new());
    let (mut out_ns, mut in_ns) = (0, 0);
    memory.rewrite(0, pages);
    for round in 0..args.rounds {
        if args.mode == Mode::Swap && round > 0 {
            memory.rewrite(0, pages);
        }
        let (before, meter, start) = (kernels_folios(), Meter::start(), Instant::now());
        advise(memory.pages, libc::MADV_PAGEOUT)?;
        let out = start.elapsed();
        let mut this = json!({ "out_ns": out.as_nanos() as u64, "out": meter.end(pages as u64) });
        if let (Some(before), Some(after)) = (before, kernels_folios()) {
            this["kernel_folios"] = json!({ "out": after.0 - before.0, "fallbacks": after.1 - before.1 });
        }
        if args.mode == Mode::Swap {
            let (meter, start) = (Meter::start(), Instant::now());
            memory.read();
            let back = start.elapsed();
            this["in_ns"] = json!(back.as_nanos() as u64);
            this["in"] = meter.end(pages as u64);
            in_ns += back.as_nanos() as u64;
            memory.verify()?;
        } else {
            memory.churn(&mut random)?;
        }
        out_ns += out.as_nanos() as u64;
        rounds.push(this);
    }
    memory.verify()?;
    Ok(json!({ "elapsed_ns": out_ns + in_ns, "out_ns": out_ns, "in_ns": in_ns, "rounds": rounds }))
}

/// `folios-worker`: prints one line of JSON.
pub fn main(args: &Args) -> ExitCode {
    worker::end_with_parent();
    worker::finish(work(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_ends_with_right_content() {
        for mode in [Mode::Swap, Mode::Churn] {
            for kind in [Kind::Records, Kind::Eleven] {
                let result = work(&Args { mode, kind, size: Bytes(1 << 20), rounds: 3 }).expect("nothing disturbs it");
                assert_eq!(result["rounds"].as_array().map(Vec::len), Some(3), "{mode:?} {kind:?}");
                assert!(result["out_ns"].as_u64() > Some(0));
            }
        }
    }

    #[test]
    fn pages_differ_by_number_and_version_and_a_changed_byte_is_noticed() {
        let (mut a, mut b) = ([0; PAGE_WORDS], [0; PAGE_WORDS]);
        write(Kind::Records, PageNo(3), 1, &mut a);
        for (page, version) in [(3, 2), (4, 1)] {
            write(Kind::Records, PageNo(page), version, &mut b);
            assert_ne!(a, b);
        }
        let pages = vec![[0; PAGE_WORDS]; 4].leak();
        let mut memory = Memory { pages, versions: vec![0; 4], kind: Kind::Records };
        memory.rewrite(0, 4);
        assert_eq!(memory.verify(), Ok(()));
        memory.pages[2][511] ^= 1 << 63;
        assert_eq!(memory.verify(), Err("content is wrong: page 2, word 511".to_owned()));
    }
}
