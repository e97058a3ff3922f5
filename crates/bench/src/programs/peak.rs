//! The most anonymous memory that a program and its children have at one moment, as samples show it.
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two samples.
const INTERVAL: Duration = Duration::from_millis(5);

/// Takes samples in a thread of its own.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    /// Begins with the processes of this group.
    pub fn start(group: libc::pid_t) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut peak_bytes = 0;
            while !stopped.load(Relaxed) {
                peak_bytes = peak_bytes.max(anon_bytes(group));
                std::thread::sleep(INTERVAL);
            }
            peak_bytes
        });
        Sampler { stop, thread }
    }

    /// Ends, and gives the largest sum that was seen.
    pub fn finish(self) -> u64 {
        self.stop.store(true, Relaxed);
        // Nothing in the thread panics; without samples there is no peak.
        self.thread.join().unwrap_or(0)
    }
}

/// What all processes of a group have now. What is shared after a fork counts in each of them.
fn anon_bytes(group: libc::pid_t) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let folders =
        processes.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    folders
        .filter(|entry| group_of(&read(entry.path().join("stat"))) == Some(group))
        .filter_map(|entry| rss_anon_bytes(&read(entry.path().join("status"))))
        .sum()
}

/// The process group in the text of `/proc/PID/stat`.
fn group_of(stat: &str) -> Option<libc::pid_t> {
    // The name before the last parenthesis may hold anything.
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(2)?.parse().ok()
}

/// `RssAnon` in the text of `/proc/PID/status`; a process that has ended has none.
fn rss_anon_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_as_the_kernel_writes_it() {
        assert_eq!(group_of("71 (a b) c) R 1 70 69 0 -1 4194560"), Some(70));
        assert_eq!(group_of(""), None);
        assert_eq!(rss_anon_bytes("VmRSS:\t    5100 kB\nRssAnon:\t    1234 kB\nRssFile:\t 1 kB\n"), Some(1234 << 10));
        assert_eq!(rss_anon_bytes("Name:\tzombie\n"), None);
    }

    #[test]
    fn memory_of_this_very_group_is_seen() {
        // SAFETY: asks for a number.
        let group = unsafe { libc::getpgrp() };
        let sampler = Sampler::start(group);
        let memory = std::hint::black_box(vec![1u8; 32 << 20]);
        std::thread::sleep(20 * INTERVAL);
        assert!(sampler.finish() >= memory.len() as u64);
        assert_eq!(anon_bytes(libc::pid_t::MAX), 0);
    }
}
