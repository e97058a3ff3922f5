//! A program that reads and writes memory at random, in any mixture, and can fork.
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::content::{Content, Mismatch, PAGE_WORDS, Page};
use crate::experiments::meter::Meter;
use crate::random::Random;
use crate::units::{Bytes, PageNo};
use crate::worker;

/// Arguments of the worker.
#[derive(clap::Args)]
pub struct Args {
    /// Memory
    size: Bytes,
    /// Accesses that write, in hundredths
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    write_percent: u32,
    /// Accesses, for each page
    passes: u32,
    /// Go through the pages in order, not at random
    #[arg(long)]
    in_order: bool,
    /// Fork after a third of the accesses; for another third there is a child, which does the same
    #[arg(long)]
    fork: bool,
}

/// The memory, and what each page should hold.
struct Memory {
    pages: &'static mut [Page],
    /// Version of each page, modulo 256.
    versions: Vec<u8>,
    content: Content,
    random: Random,
    /// The next page, where they are gone through in order.
    next: Option<usize>,
}

impl Memory {
    fn new(pages: &'static mut [Page]) -> Memory {
        let (versions, content) = (vec![0; pages.len()], Content::new());
        for (index, page) in pages.iter_mut().enumerate() {
            content.write(PageNo(index as u32), 0, page);
        }
        Memory { pages, versions, content, random: Random::new(8), next: None }
    }

    fn choose(&mut self) -> usize {
        let Some(next) = &mut self.next else { return self.random.below(self.pages.len()) };
        *next = (*next + 1) % self.pages.len();
        *next
    }

    /// Reads a word of so many pages, or writes one.
    fn mix(&mut self, accesses: u64, write_percent: u32) -> Result<(), Mismatch> {
        for _ in 0..accesses {
            let index = self.choose();
            let page = PageNo(index as u32);
            if self.random.below(100) < write_percent as usize {
                let version = self.versions[index].wrapping_add(1);
                self.versions[index] = version;
                self.pages[index][0] = Content::version_word(page, version);
            } else {
                let word = self.random.next() as usize % PAGE_WORDS;
                self.content.check_word(page, self.versions[index], word, self.pages[index][word])?;
            }
        }
        Ok(())
    }

    /// Looks at every byte.
    fn verify(&self) -> Result<(), Mismatch> {
        let pages = self.pages.iter().zip(&self.versions).enumerate();
        pages
            .into_iter()
            .try_for_each(|(index, (page, &version))| self.content.check(PageNo(index as u32), version, page))
    }
}

/// Forks. The child does `accesses` of its own on its copy, looks at all of it, and ends; gives its process id in the parent.
fn fork(memory: &mut Memory, accesses: u64, write_percent: u32) -> Result<libc::pid_t, String> {
    // SAFETY: this process has one thread, so the child can go on as it would.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(format!("fork: {}", std::io::Error::last_os_error()));
    }
    if pid == 0 {
        worker::end_with_parent();
        // Other accesses than the parent's, from here on.
        memory.random = Random::new(9);
        let result = memory.mix(accesses, write_percent).and_then(|()| memory.verify());
        if let Err(mismatch) = &result {
            crate::say(&format!("in the child, content is wrong: {mismatch}"));
        }
        // SAFETY: ends this process; nothing of it is to be tidied up.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    Ok(pid)
}

fn join(pid: libc::pid_t) -> Result<(), String> {
    let mut status = 0;
    // SAFETY: waits for our own child, with a place for its status.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    let ended = waited == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    if ended { Ok(()) } else { Err(format!("the child failed: wait status {status}")) }
}

fn work(args: &Args) -> Result<Value, String> {
    let wrong = |mismatch: Mismatch| format!("content is wrong: {mismatch}");
    let mut memory = Memory::new(worker::numbered(args.size, libc::MAP_PRIVATE)?);
    memory.next = args.in_order.then_some(0);
    let accesses = memory.pages.len() as u64 * u64::from(args.passes);
    let third = accesses.div_ceil(3);
    let phase = |memory: &mut Memory, child: bool| -> Result<Value, String> {
        let meter = Meter::start();
        let pid = if child { Some(fork(memory, third, args.write_percent)?) } else { None };
        memory.mix(third, args.write_percent).map_err(wrong)?;
        pid.map_or(Ok(()), join)?;
        Ok(meter.end(third * (1 + u64::from(child))))
    };
    let phases = [phase(&mut memory, false)?, phase(&mut memory, args.fork)?, phase(&mut memory, false)?];
    memory.verify().map_err(wrong)?;
    let sum = |name: &str| phases.iter().filter_map(|phase| phase[name].as_u64()).sum::<u64>();
    Ok(json!({ "elapsed_ns": sum("elapsed_ns"), "accesses": sum("accesses"), "phases": phases }))
}

/// `reuse-worker`: prints one line of JSON.
pub fn main(args: &Args) -> ExitCode {
    worker::end_with_parent();
    worker::finish(work(args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::PAGE_WORDS;

    #[test]
    fn every_mixture_ends_with_right_content_and_counts_its_accesses() {
        for (write_percent, in_order) in [(0, false), (50, true), (100, false)] {
            let args = Args { size: Bytes(1 << 20), write_percent, passes: 3, in_order, fork: false };
            let result = work(&args).expect("nothing disturbs the memory");
            assert_eq!(result["accesses"], 3 * 256);
            assert_eq!(result["phases"].as_array().map(Vec::len), Some(3));
        }
    }

    #[test]
    fn a_lost_write_is_noticed() {
        let mut memory = Memory::new(vec![[0; PAGE_WORDS]; 16].leak());
        memory.mix(200, 50).expect("nothing disturbs the memory");
        assert_eq!(memory.verify(), Ok(()));
        let before = memory.versions[3].wrapping_sub(1);
        memory.pages[3][0] = Content::version_word(PageNo(3), before);
        assert_eq!(memory.verify().map_err(|mismatch| mismatch.page), Err(PageNo(3)));
    }
}
