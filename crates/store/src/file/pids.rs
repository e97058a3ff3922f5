//! Processes by number, in shared memory: who they are, and whether they live.
use core::sync::atomic::{AtomicU32, Ordering::*};
use outswap_sys::{Errno, nr, os, syscall5};

/// A process's number and what is said of it, in one word of shared memory; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Free,
    /// Alive, as far as its number tells.
    Process(u32),
    /// About to be forked by this process.
    Reserved(u32),
    /// About to execute a program; afterwards it has the same number, but nothing of what it shared.
    Executes(u32),
    /// What a dead process held is being given up by this one.
    Reaping(u32),
}

const PID_BITS: u32 = 24;

impl Entry {
    fn of(word: u32) -> Entry {
        let pid = word & ((1 << PID_BITS) - 1);
        match word >> PID_BITS {
            _ if pid == 0 => Entry::Free,
            1 => Entry::Reserved(pid),
            2 => Entry::Executes(pid),
            3 => Entry::Reaping(pid),
            _ => Entry::Process(pid),
        }
    }

    fn word(self) -> u32 {
        match self {
            Entry::Free => 0,
            Entry::Process(pid) => pid,
            Entry::Reserved(pid) => 1 << PID_BITS | pid,
            Entry::Executes(pid) => 2 << PID_BITS | pid,
            Entry::Reaping(pid) => 3 << PID_BITS | pid,
        }
    }
}

/// Whether a process has ended: there is none of this number, or only what its parent, this process, has not waited for.
fn is_dead(pid: u32) -> bool {
    const P_PID: usize = 1;
    /// `WNOHANG | WEXITED | WNOWAIT | __WALL`
    const ONLY_LOOK: usize = 1 | 4 | 0x0100_0000 | 0x4000_0000;
    if os::kill(pid as i32, 0) == Err(Errno::ESRCH) {
        return true;
    }
    let mut info = [0u32; 32];
    let at = info.as_mut_ptr() as usize;
    // SAFETY: the buffer has the size of `siginfo_t`; its first word is the signal, 0 where the child has not ended.
    unsafe { syscall5(nr::WAITID, P_PID, pid as usize, at, ONLY_LOOK, 0) == 0 && info[0] != 0 }
}

/// Processes by number, in shared memory.
pub(crate) struct Pids<const N: usize>([AtomicU32; N]);

impl<const N: usize> Pids<N> {
    pub(super) fn get(&self, user: usize) -> Entry {
        Entry::of(self.0[user].load(Acquire))
    }

    fn change(&self, user: usize, from: Entry, to: Entry) -> bool {
        self.0[user].compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
    }

    /// Takes a number for a process that is about to be forked by this one.
    pub fn reserve(&self) -> Option<usize> {
        let reserved = Entry::Reserved(os::getpid() as u32);
        (0..N).find(|&user| self.get(user) == Entry::Free && self.change(user, Entry::Free, reserved))
    }

    /// In the parent: the number that it reserved is this process's. The child may have said so itself, or have ended already,
    /// and the number may be another's by now.
    pub fn confirm(&self, user: usize, pid: i32) {
        self.change(user, Entry::Reserved(os::getpid() as u32), Entry::Process(pid as u32));
    }

    /// In the child: the number that its parent reserved is its own. False where it was given to another: the parent was
    /// killed, and every number was needed. In another pid namespace the parent knows it by another number.
    pub fn claim(&self, user: usize, parent_pid: i32, pid: i32, other_namespace: bool) -> bool {
        let (reserved, own) = (Entry::Reserved(parent_pid as u32), Entry::Process(pid as u32));
        self.change(user, reserved, own)
            || match self.get(user) {
                entry @ Entry::Process(known) if known == pid as u32 || other_namespace => {
                    self.change(user, entry, own)
                }
                _ => false,
            }
    }

    /// Sets a number's process, 0 for none.
    pub fn set(&self, user: usize, pid: i32) {
        self.0[user].store(pid as u32, Release);
    }

    /// A process says that it is about to execute a program (`to`), or that this failed. Once it has, only `is_gone` tells.
    pub fn executes(&self, user: usize, pid: i32, to: bool) {
        let (alive, executes) = (Entry::Process(pid as u32), Entry::Executes(pid as u32));
        if to {
            self.change(user, alive, executes)
        } else {
            self.change(user, executes, alive)
        };
    }

    /// Calls `forget` for each number whose process is gone, then frees it. Returns whether there were any. `is_gone` says so
    /// of a number whose process was about to execute; `can_tell` whether a process is to be judged by its number. With
    /// `reserved`, forks that their parent did not live to see are counted as gone, too.
    pub fn reap(
        &self,
        reserved: bool,
        can_tell: impl Fn(usize) -> bool,
        is_gone: impl Fn(usize) -> bool,
        mut forget: impl FnMut(usize),
    ) -> bool {
        let me = os::getpid() as u32;
        let mut any = false;
        for user in 0..N {
            let entry = self.get(user);
            let gone = match entry {
                Entry::Free => false,
                Entry::Executes(pid) => pid != me && (is_gone(user) || can_tell(user) && is_dead(pid)),
                // Who gave up what it held died too.
                Entry::Process(pid) | Entry::Reaping(pid) => pid != me && can_tell(user) && is_dead(pid),
                Entry::Reserved(pid) => reserved && pid != me && can_tell(user) && is_dead(pid),
            };
            if gone && self.change(user, entry, Entry::Reaping(me)) {
                forget(user);
                self.0[user].store(0, Release);
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pids(entries: [Entry; 4]) -> Pids<4> {
        Pids(entries.map(|entry| AtomicU32::new(entry.word())))
    }

    #[test]
    fn words_tell_what_they_were_made_of() {
        for pid in [1, 77, 1 << 22] {
            for entry in [Entry::Process(pid), Entry::Reserved(pid), Entry::Executes(pid), Entry::Reaping(pid)] {
                assert_eq!(Entry::of(entry.word()), entry);
            }
        }
        assert_eq!((Entry::of(0), Entry::Free.word()), (Entry::Free, 0));
    }

    #[test]
    fn only_the_one_who_reserved_a_number_confirms_it() {
        let me = os::getpid() as u32;
        let users = pids([Entry::Free; 4]);
        assert_eq!(users.reserve(), Some(0));
        // The child came, ended and was forgotten before its parent got here; another parent has the number now.
        users.0[0].store(Entry::Reserved(me + 1).word(), Release);
        users.confirm(0, 4321);
        assert_eq!(users.get(0), Entry::Reserved(me + 1));
        assert!(!users.claim(0, me as i32, 4321, false), "the child of the first parent does not have it");
        assert!(users.claim(0, me as i32 + 1, 99, false) && users.get(0) == Entry::Process(99));
        assert!(users.claim(0, me as i32 + 1, 99, false), "confirmed before it came to say so itself");
        assert!(!users.claim(0, me as i32 + 1, 98, false) && users.claim(0, me as i32 + 1, 1, true));
    }

    #[test]
    fn the_dead_are_forgotten_and_the_unknown_are_not() {
        // Larger than any process id.
        const DEAD: u32 = (1 << 22) + 1;
        let me = os::getpid() as u32;
        let all = [Entry::Process(DEAD), Entry::Reserved(DEAD), Entry::Executes(DEAD), Entry::Reaping(DEAD)];
        let reap = |users: &Pids<4>, reserved, known: bool, gone: bool| {
            let mut found = Vec::new();
            let any = users.reap(reserved, |_| known, |_| gone, |user| found.push(user));
            assert_eq!(any, !found.is_empty());
            assert!(found.iter().all(|&user| users.get(user) == Entry::Free));
            found
        };
        assert_eq!(reap(&pids(all), false, true, false), [0, 2, 3], "the fork may be going on");
        assert_eq!(reap(&pids(all), true, true, false), [0, 1, 2, 3]);
        assert_eq!(reap(&pids(all), true, false, false), [], "numbers of another namespace");
        assert_eq!(reap(&pids(all), true, false, true), [2], "the lock tells");
        let alive = [Entry::Process(1), Entry::Reserved(1), Entry::Executes(1), Entry::Reaping(me)];
        assert_eq!(reap(&pids(alive), true, true, false), []);
        assert_eq!(reap(&pids(alive), true, true, true), [2], "another program has the number");
    }
}
