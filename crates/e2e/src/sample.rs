//! What a process tree uses, seen from outside.
use crate::MIB;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two samples.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// What each process may use beyond the budget.
pub const PROCESS_ALLOWANCE_BYTES: u64 = 8 * MIB;

/// One process in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its id.
    pub pid: i32,
    /// Its `Pss_Anon`.
    pub anon_bytes: u64,
    /// When that was read, from the start of the sample.
    pub read_ms: u64,
}

/// The anonymous memory of a tree at one moment, or nearly: processes are read one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Sum of `Pss_Anon`.
    pub anon_bytes: u64,
    /// What it is the sum of.
    pub parts: Vec<Part>,
}

impl Sample {
    fn of(parts: Vec<Part>) -> Sample {
        Sample { anon_bytes: parts.iter().map(|p| p.anon_bytes).sum(), parts }
    }

    /// What is left after each process's allowance.
    pub fn charged_bytes(&self) -> u64 {
        self.anon_bytes.saturating_sub(self.parts.len() as u64 * PROCESS_ALLOWANCE_BYTES)
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let parts = self.parts.iter();
        let parts: Vec<_> =
            parts.map(|p| format!("{}: {} KiB at {} ms", p.pid, p.anon_bytes >> 10, p.read_ms)).collect();
        let kib = self.anon_bytes >> 10;
        write!(f, "{kib} KiB of anonymous memory in {} processes ({})", parts.len(), parts.join(", "))
    }
}

/// What was seen over a whole run.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    /// The sample with the largest sum.
    pub largest: Sample,
    /// The sample that is furthest above the processes' allowances.
    pub worst: Sample,
    /// The largest process of any sample.
    pub largest_part_bytes: u64,
    /// The most processes in a sample.
    pub processes: u64,
    /// Samples taken.
    pub count: u64,
}

impl Peak {
    fn add(&mut self, sample: Sample) {
        self.count += 1;
        self.processes = self.processes.max(sample.parts.len() as u64);
        let parts_bytes = sample.parts.iter().map(|part| part.anon_bytes);
        self.largest_part_bytes = parts_bytes.fold(self.largest_part_bytes, u64::max);
        if sample.anon_bytes > self.largest.anon_bytes {
            self.largest = sample.clone();
        }
        if self.count == 1 || sample.charged_bytes() > self.worst.charged_bytes() {
            self.worst = sample;
        }
    }

    /// Whether no process ever had more than `ram` + 5 % + 8 MiB, whatever they had together; else what was seen.
    pub fn each_within(&self, ram_bytes: u64) -> Result<(), String> {
        let limit_bytes = ram_bytes + ram_bytes / 20 + PROCESS_ALLOWANCE_BYTES;
        let (most_kib, ram_kib) = (self.largest_part_bytes >> 10, ram_bytes >> 10);
        match self.largest_part_bytes <= limit_bytes {
            true => Ok(()),
            false => {
                Err(format!("{most_kib} KiB in a process, over the budget of {ram_kib} KiB + 5 % + 8 MiB for each"))
            }
        }
    }

    /// Whether every sample was within `ram` + 5 % + 8 MiB a process; else what was seen.
    pub fn within(&self, ram_bytes: u64) -> Result<(), String> {
        let limit_bytes = ram_bytes + ram_bytes / 20;
        if self.worst.charged_bytes() <= limit_bytes {
            return Ok(());
        }
        let ram_kib = ram_bytes >> 10;
        Err(format!("{}, over the budget of {ram_kib} KiB + 5 % + 8 MiB a process", self.worst))
    }
}

/// Parent and start time of a process; the latter tells it from a later one with the same number.
fn stat(pid: i32) -> Option<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last parenthesis may hold anything.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// `Pss_Anon` of a process, in bytes; nothing where it has ended. The kernel adds it up mapping by mapping, lets go of the address space
/// in between, and counts pages twice that move from one to another meanwhile, as they do on their way out: by several MiB on a busy
/// machine. It is never more than all anonymous memory, which is one counter.
pub fn pss_anon_bytes(pid: i32) -> Option<u64> {
    let before = kib_bytes(pid, "status", "RssAnon:")?;
    let pss = kib_bytes(pid, "smaps_rollup", "Pss_Anon:")?;
    let after = kib_bytes(pid, "status", "RssAnon:").unwrap_or(before);
    Some(pss.min(before.max(after)))
}

/// A line in KiB of a file about a process, in bytes.
fn kib_bytes(pid: i32, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Whether a process is to be counted: not one that has ended by now, nor one whose memory is its parent's (a child of vfork, or
/// of `clone(CLONE_VM)`). To be asked before its memory is read, which one that has ended has not.
fn has_memory_of_its_own(pid: i32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    let Some((parent, _)) = stat(pid) else { return false };
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) } {
        0 => false,
        order if order > 0 => true,
        _ => std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH),
    }
}

/// Whether a process has memory: none has that has ended.
fn has_memory(pid: i32) -> bool {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    pages.split(' ').next().is_some_and(|size| !matches!(size, "" | "0"))
}

/// The children of a process that its first thread has made, as the kernel has them; none where there is no such process.
pub fn children(pid: i32) -> Vec<i32> {
    children_of(Path::new(&format!("/proc/{pid}/task/{pid}")))
}

/// The same of one thread, given as its directory.
fn children_of(thread: &Path) -> Vec<i32> {
    let text = fs::read_to_string(thread.join("children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// The same of all threads.
fn all_children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.flat_map(|thread| children_of(&thread.path())).collect()
}

/// The tree below a process. A process stays in it when its parent ends.
pub struct Tree {
    root: i32,
    known: HashMap<i32, u64>,
}

impl Tree {
    /// The tree below `root`, which belongs to it.
    pub fn new(root: i32) -> Tree {
        let started = stat(root).map_or(0, |s| s.1);
        Tree { root, known: HashMap::from([(root, started)]) }
    }

    /// All processes that live now, the root first if it lives. One whose parent ended before either was seen is not found.
    pub fn update(&mut self) -> Vec<i32> {
        self.known.retain(|&pid, started| stat(pid).is_some_and(|found| found.1 == *started));
        let mut parents: Vec<i32> = self.known.keys().copied().collect();
        while let Some(pid) = parents.pop() {
            for child in all_children(pid) {
                if !self.known.contains_key(&child)
                    && let Some((parent, started)) = stat(child)
                    && self.known.contains_key(&parent)
                {
                    self.known.insert(child, started);
                    parents.push(child);
                }
            }
        }
        let mut pids: Vec<i32> = self.known.keys().copied().collect();
        pids.sort_by_key(|&pid| (pid != self.root, pid));
        pids
    }
}

/// Takes samples in a thread of its own.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Peak>>,
}

impl Sampler {
    /// Begins; `with_root` is false where the root is the supervisor, which is no part of the program.
    pub fn start(root: i32, with_root: bool) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tree = Tree::new(root);
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                let mut peak = Peak::default();
                while !stop.load(Relaxed) {
                    let mut parts = Vec::new();
                    let pids = tree.update();
                    let started = Instant::now();
                    for pid in pids {
                        if (with_root || pid != root)
                            && has_memory_of_its_own(pid)
                            && let Some(anon_bytes) = pss_anon_bytes(pid)
                        {
                            parts.push(Part { pid, anon_bytes, read_ms: started.elapsed().as_millis() as u64 });
                        }
                    }
                    // One that ended meanwhile may have left its memory to a child that shared it, which was counted since.
                    parts.retain(|part| has_memory(part.pid));
                    if !parts.is_empty() {
                        peak.add(Sample::of(parts));
                    }
                    thread::sleep(INTERVAL);
                }
                peak
            }
        });
        Sampler { stop, thread: Some(thread) }
    }

    /// Ends, and tells what was seen.
    pub fn finish(mut self) -> Peak {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("taken only here and in drop");
        thread.join().expect("sampling does not panic")
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;

    const TOUCH: &str = "import time,sys\nb=bytearray(96<<20)\nfor i in range(0,len(b),4096): b[i]=1\ntime.sleep(0.5)";

    #[test]
    fn sees_the_memory_of_a_process() {
        let peak = Run::new("python3").args(["-c", TOUCH]).run().succeeded().peak;
        assert!(peak.largest.anon_bytes > 96 * MIB && peak.largest.anon_bytes < 160 * MIB, "{peak:?}");
        assert!(peak.count > 5);
        assert!(peak.within(96 * MIB).is_ok() && peak.within(64 * MIB).is_err());
    }

    #[test]
    fn sees_children_and_leaves_out_the_supervisor() {
        let script = format!("import os\nif os.fork()==0:\n  os.setsid()\nelse:\n  os.wait()\n  os._exit(0)\n{TOUCH}");
        let peak = Run::new("sh").args(["-c", "python3 -c \"$1\"; true", "sh", &script]).run().succeeded().peak;
        assert!(peak.largest.anon_bytes > 96 * MIB && peak.largest.parts.len() >= 2, "{peak:?}");
        let mut alone = Run::new("sleep").arg("0.2");
        alone.supervised = true;
        assert_eq!(alone.run().succeeded().peak.count, 0);
    }

    #[test]
    fn every_process_has_its_allowance() {
        let mut peak = Peak::default();
        let part = |anon_bytes| Part { pid: 1, anon_bytes, read_ms: 0 };
        peak.add(Sample::of(vec![part(10 * MIB); 10]));
        peak.add(Sample::of(vec![part(60 * MIB)]));
        assert_eq!((peak.largest.parts.len(), peak.worst.parts.len()), (10, 1));
        assert!(peak.within(50 * MIB).is_ok() && peak.within(49 * MIB).is_err());
        assert!(peak.each_within(50 * MIB).is_ok() && peak.each_within(49 * MIB).is_err());
    }
}
