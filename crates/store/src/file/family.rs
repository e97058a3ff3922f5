//! The family: all processes that stem from one, and how large their files are, so that a limit can hold for all of them
//! together. It stands in shared memory, and only the limit rests on it.
use super::pids::{Entry, Pids};
use crate::limits::{FAMILY_FILES, FAMILY_PROCESSES, SEGMENT_BYTES};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const WORDS: usize = FAMILY_FILES / 64;

/// What the whole family sees.
#[repr(C)]
pub(crate) struct Family {
    processes: Pids<FAMILY_PROCESSES>,
    /// In which pid namespace a process is known by its number: 0, or the number + 1 of the process that began it, which
    /// itself is known by its number outside.
    spaces: [AtomicU32; FAMILY_PROCESSES],
    /// Segments in use in a file + 1, as its writer says; 0 for no file.
    sizes: [AtomicU32; FAMILY_FILES],
    /// Which files a process has open: they take room as long as anyone has.
    open: [[AtomicU64; WORDS]; FAMILY_PROCESSES],
}

impl Family {
    /// Takes a number for a process that is about to be forked; it will have these files open.
    pub fn reserve(&self, space: u32, files: impl Iterator<Item = usize>) -> Option<usize> {
        let process = self.processes.reserve().or_else(|| {
            self.reap(space, true);
            self.processes.reserve()
        })?;
        self.spaces[process].store(space, Release);
        self.open[process].iter().for_each(|word| word.store(0, Release));
        files.for_each(|file| self.mark(process, file));
        Some(process)
    }

    fn mark(&self, process: usize, file: usize) {
        self.open[process][file / 64].fetch_or(1 << (file % 64), SeqCst);
    }

    /// In the parent, see [`Pids::confirm`].
    pub fn confirm(&self, process: usize, pid: i32) {
        self.processes.confirm(process, pid);
    }

    /// In the child, see [`Pids::claim`].
    pub fn claim(&self, process: usize, parent_pid: i32, pid: i32) -> bool {
        self.processes.claim(process, parent_pid, pid, false)
    }

    /// In the process itself.
    pub fn set(&self, process: usize, pid: i32) {
        self.processes.set(process, pid);
    }

    /// A process is gone.
    pub fn forget(&self, process: usize) {
        self.open[process].iter().for_each(|word| word.store(0, Release));
        self.processes.set(process, 0);
    }

    /// A process has closed a file.
    pub fn close(&self, process: usize, file: usize) {
        self.open[process][file / 64].fetch_and(!(1 << (file % 64)), AcqRel);
    }

    /// Forgets dead processes, as seen from a pid namespace.
    pub fn reap(&self, space: u32, reserved: bool) -> bool {
        let clear = |process: usize| self.open[process].iter().for_each(|word| word.store(0, Release));
        let can_tell = |process: usize| self.spaces[process].load(Acquire) == space;
        self.processes.reap(
            reserved,
            can_tell,
            |_| false,
            |process| {
                clear(process);
                // A namespace ends with the process that began it.
                for other in 0..FAMILY_PROCESSES {
                    if self.spaces[other].load(Acquire) == process as u32 + 1 {
                        clear(other);
                        self.spaces[other].store(0, Release);
                        self.processes.set(other, 0);
                    }
                }
            },
        )
    }

    /// Files that some process has open.
    fn opened(&self) -> [u64; WORDS] {
        let mut all = [0; WORDS];
        for (process, open) in self.open.iter().enumerate() {
            if self.processes.get(process) != Entry::Free {
                all.iter_mut().zip(open).for_each(|(all, word)| *all |= word.load(Acquire));
            }
        }
        all
    }

    /// Takes a number that nobody had. False where another process is taking it, too: either sees that, or both do.
    fn take(&self, process: usize, file: usize) -> bool {
        self.mark(process, file);
        let is_others = |(other, open): (usize, &[AtomicU64; WORDS])| {
            other != process
                && self.processes.get(other) != Entry::Free
                && open[file / 64].load(SeqCst) >> (file % 64) & 1 != 0
        };
        let is_ours = !self.open.iter().enumerate().any(is_others);
        if !is_ours {
            self.close(process, file);
        }
        is_ours
    }

    /// Takes a number for a new file of a process.
    pub fn take_file(&self, process: usize, space: u32) -> Option<usize> {
        for attempt in 0..2 {
            let opened = self.opened();
            for file in 0..FAMILY_FILES {
                // Whoever had it open has closed it.
                if opened[file / 64] >> (file % 64) & 1 == 0 && self.take(process, file) {
                    self.sizes[file].store(1, Release);
                    return Some(file);
                }
            }
            if attempt == 0 && !self.reap(space, true) {
                break;
            }
        }
        None
    }

    /// The writer of a file says how many segments are in use in it.
    pub fn set_size(&self, file: usize, segments: u32) {
        self.sizes[file].store(segments.saturating_add(1), Release);
    }

    /// Segments in use by the family, without what only dead processes hold where a pid namespace to look from is given.
    pub fn segments(&self, reap_from: Option<u32>) -> u64 {
        if let Some(space) = reap_from {
            self.reap(space, false);
        }
        let opened = self.opened();
        let open = |&file: &usize| opened[file / 64] >> (file % 64) & 1 != 0;
        (0..FAMILY_FILES).filter(open).map(|file| self.sizes[file].load(Acquire).saturating_sub(1) as u64).sum()
    }

    /// The same in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments(None) * SEGMENT_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_take_numbers_at_once_take_different_ones() {
        const TIMES: usize = 200;
        // SAFETY: all-zero is a valid value.
        let family: Box<Family> = unsafe { Box::new(core::mem::zeroed()) };
        let processes: Vec<usize> = (0..4).map(|_| family.reserve(0, core::iter::empty()).expect("a number")).collect();
        processes.iter().for_each(|&process| family.set(process, 1));
        let barrier = std::sync::Barrier::new(processes.len());
        for _ in 0..TIMES {
            let mut taken: Vec<usize> = std::thread::scope(|scope| {
                let take = |process| {
                    barrier.wait();
                    family.take_file(process, 0).expect("there are many")
                };
                let threads: Vec<_> = processes.iter().map(|&process| scope.spawn(move || take(process))).collect();
                threads.into_iter().map(|thread| thread.join().expect("does not panic")).collect()
            });
            processes.iter().zip(&taken).for_each(|(&process, &file)| family.close(process, file));
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), processes.len());
        }
    }

    #[test]
    fn a_namespace_ends_with_the_process_that_began_it() {
        const DEAD: i32 = (1 << 22) + 1;
        // SAFETY: all-zero is a valid value.
        let family: Box<Family> = unsafe { Box::new(core::mem::zeroed()) };
        let add = |space, pid| {
            let process = family.reserve(space, core::iter::empty()).expect("a number");
            family.set(process, pid);
            (process, family.take_file(process, space).expect("a number"))
        };
        let (outside, own) = add(0, 1);
        let (first, its) = add(0, 1);
        let space = first as u32 + 1;
        let (inside, theirs) = add(space, DEAD);
        for (file, segments) in [(own, 100), (its, 20), (theirs, 3)] {
            family.set_size(file, segments);
        }
        assert_eq!(family.segments(Some(0)), 123, "not to be judged from outside");
        assert_eq!(family.segments(Some(space)), 120, "dead, as seen from inside");
        family.set(outside, DEAD);
        family.set(inside, 1);
        family.mark(inside, theirs);
        assert_eq!(family.segments(Some(space)), 123, "who is outside is not dead for being unknown here");
        family.set(outside, 1);
        family.set(first, DEAD);
        assert_eq!(family.segments(Some(0)), 100);
    }
}
