//! What the kernel tells of a process in `/proc`.
use crate::{avoided, kept};
use outswap_control::{Control, MARKS, Text};
use outswap_core::mask::Mask;
use outswap_core::units::BLOCK_PAGES;
use outswap_sys::procfs::{number, read_file};
use outswap_sys::{PAGE_BYTES, os};

/// The path of a file whose name is a descriptor's number, in a directory (with a `/` at the end), NUL-terminated.
pub fn of_descriptor(directory: &[u8], fd: i32) -> [u8; 40] {
    let mut path = [0u8; 40];
    let mut text = Text { buf: &mut path, len: 0 };
    text.put(directory);
    text.number(fd);
    assert!(text.len < 40, "a short path");
    path
}

/// The process that a descriptor of one names, by its number here. `None` where nobody says.
pub fn of_pidfd(fd: i32) -> Option<i32> {
    let mut buf = [0u8; 256];
    let len = read_file(&of_descriptor(b"/proc/self/fdinfo/", fd), &mut buf);
    let key = b"\nPid:\t";
    let at = buf[..len].windows(key.len()).position(|w| w == key)? + key.len();
    Some(number(&buf[at..len]) as i32)
}

/// Anonymous memory of this process, as the kernel counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anonymous {
    /// All of it, or this process's share where it may be shared, bytes.
    pub share_bytes: u64,
    /// What others are charged with of what this process has, bytes.
    pub shared_bytes: u64,
}

/// Anonymous memory of this process; its share of it where it may be `shared`. The kernel adds the share up mapping by mapping and counts
/// pages twice that move from one to another meanwhile, as they do on their way out. It is never more than all, which is one counter.
pub fn anonymous(shared: bool) -> Option<Anonymous> {
    let before = all_anonymous_bytes();
    if shared && let Some(share) = share_bytes() {
        let after = all_anonymous_bytes();
        let share_bytes = before.max(after).map_or(share, |all| share.min(all));
        // The less, the more this process is charged with.
        let shared_bytes = before.min(after).map_or(0, |all| all.saturating_sub(share_bytes));
        return Some(Anonymous { share_bytes, shared_bytes });
    }
    before.map(|share_bytes| Anonymous { share_bytes, shared_bytes: 0 })
}

/// What it has of the anonymous memory that it may share. Dear: the kernel looks at every page.
fn share_bytes() -> Option<u64> {
    let mut buf = [0u8; 1536];
    let len = kept::SMAPS_ROLLUP.read(&mut buf);
    let key = b"\nPss_Anon:";
    let at = buf[..len].windows(key.len()).position(|w| w == key)?;
    Some(number(&buf[at + key.len()..len]) * 1024)
}

/// All of it, shared or not.
fn all_anonymous_bytes() -> Option<u64> {
    let mut buf = [0u8; 256];
    let len = kept::STATM.read(&mut buf);
    let mut fields = buf[..len].split(|c| *c == b' ');
    let resident = number(fields.nth(1)?);
    let file_and_shared = number(fields.next()?);
    Some(resident.saturating_sub(file_and_shared) * PAGE_BYTES as u64)
}

// Of an entry of `/proc/PID/pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 56;

/// What the kernel's page table tells of the pages of a range, at most those of a block: which are there, in memory or in the host's swap, and
/// which of those in memory others have as well. And of how many it tells: fewer where it does not.
fn told(at: usize, count: usize) -> (Mask, Mask, usize) {
    const ENTRY_BYTES: usize = 8;
    let mut buf = [0u8; BLOCK_PAGES * ENTRY_BYTES];
    let wanted = &mut buf[..count.min(BLOCK_PAGES) * ENTRY_BYTES];
    let len = kept::PAGEMAP.read_at(wanted, (at / PAGE_BYTES * ENTRY_BYTES) as u64);
    let (mut there, mut shared) = (Mask::EMPTY, Mask::EMPTY);
    for (i, entry) in buf[..len].as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
        let entry = u64::from_ne_bytes(*entry);
        if entry & (PRESENT | SWAPPED) != 0 {
            there.insert(i);
        }
        if entry & (PRESENT | EXCLUSIVE) == PRESENT {
            shared.insert(i);
        }
    }
    (there, shared, len / ENTRY_BYTES)
}

/// Which pages of a range, at most those of a block, others have as well: none where the kernel does not tell.
pub fn shared_pages(at: usize, count: usize) -> Mask {
    told(at, count).1
}

/// Which pages of a range, at most those of a block, are there, in memory or in the host's swap; and which of those others have as well, the
/// kernel's page of zeros among them. `None` where the kernel does not tell.
pub fn pages_there(at: usize, count: usize) -> Option<(Mask, Mask)> {
    let (there, shared, told) = told(at, count);
    (told == count).then_some((there, shared))
}

/// Which pages of a range, at most those of a block, are the kernel's page of zeros. `None` where the kernel does not tell (before Linux 6.7).
pub fn zero_pages(at: usize, count: usize) -> Option<Mask> {
    let (mut zeros, mut from, end) = (Mask::EMPTY, at, at + count * PAGE_BYTES);
    let fd = kept::PAGEMAP.fd()?;
    while from < end {
        let part = os::part(fd, from, end - from, os::Mapped::Zero).ok()?;
        if part.start < from || part.is_empty() {
            break;
        }
        zeros |= Mask::range((part.start - at) / PAGE_BYTES, part.len() / PAGE_BYTES);
        from = part.end;
    }
    Some(zeros)
}

/// Pages of this process's address space, and of its private writable mappings with its stack. `None` where the kernel does not
/// tell.
pub fn sizes_pages() -> Option<[u64; 2]> {
    let mut buf = [0u8; 256];
    let len = kept::STATM.read(&mut buf);
    let mut fields = buf[..len].split(|c| *c == b' ').map(number);
    Some([fields.next()?, fields.nth(4)?])
}

/// Whether a process has ended, or is a zombie of which no thread lives.
pub fn is_gone(pid: i32) -> bool {
    !outswap_control::exists(pid) || is_zombie(pid)
}

/// The same of one that is known by a number or a mark in a run: what a mark stands for is told until the process has given its memory
/// back.
pub fn is_gone_from(run: &Control, number: i32) -> bool {
    !run.exists(number) || number < MARKS && !run.is_marked() && is_zombie(number)
}

/// Whether a process is a zombie of which no thread lives.
pub fn is_zombie(pid: i32) -> bool {
    let (mut exe, mut stat) = ([0u8; 24], [0u8; 24]);
    let exe = outswap_control::process_path(&mut exe, pid, b"/exe\0");
    let stat = outswap_control::process_path(&mut stat, pid, b"/stat\0");
    threads_past_main(exe, stat).is_some_and(|threads| threads <= 1)
}

/// The threads that count in a process whose main thread has ended, that one among them; `None` where it has not, or nobody tells.
fn threads_past_main(exe: &[u8], stat: &[u8]) -> Option<u64> {
    // A main thread that has ended executes nothing. That much can be asked without a descriptor, of which the program may have none
    // left, and which it would miss for that moment.
    if !avoided::may_name_files() || os::stat_at(None, exe).is_ok() {
        return None;
    }
    let mut buf = [0u8; STAT_BYTES];
    let len = read_file(stat, &mut buf);
    parse_threads(&buf[..len]).filter(|(state, _)| *state == b'Z').map(|(_, threads)| threads)
}

/// Of a `stat` file, more than what is before the number of threads.
const STAT_BYTES: usize = 512;

/// State and number of threads from a `stat` file.
fn parse_threads(text: &[u8]) -> Option<(u8, u64)> {
    // The name before the last parenthesis may hold anything.
    let after = text.iter().rposition(|c| *c == b')')? + 2;
    let state = *text.get(after)?;
    let field = text[after..].split(|c| *c == b' ').nth(17)?;
    Some((state, number(field)))
}

/// Whether the calling thread, which is not the main one, is the last of its process: the main thread counts as long as its
/// end was not noticed by the parent.
pub fn is_last_thread() -> bool {
    threads_past_main(b"/proc/self/exe\0", b"/proc/self/stat\0").is_some_and(|threads| threads <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_are_no_zombies() {
        assert!(!is_zombie(os::getpid()));
        assert!(!is_zombie(i32::MAX));
        let mut child = std::process::Command::new("true").spawn().expect("true is everywhere");
        let pid = child.id() as i32;
        while !is_zombie(pid) {
            std::thread::yield_now();
        }
        assert!(outswap_control::exists(pid));
        child.wait().expect("our child");
        assert!(!is_zombie(pid));
    }

    #[test]
    fn a_name_does_not_pass_for_what_follows_it() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 42 18 19";
        for name in ["sleep", "a b c", "x) Z 1 1 (y", ")", ""] {
            let text = format!("4242 ({name}) S {rest}");
            assert_eq!(parse_threads(text.as_bytes()), Some((b'S', 42)), "{name}");
        }
        assert_eq!(parse_threads(format!("1 (x) Z {rest}").as_bytes()), Some((b'Z', 42)));
        for text in ["", "1 (x", "1 (x)", "1 (x) ", "1 (x) S 1 2 3"] {
            assert_eq!(parse_threads(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn this_process_has_memory_and_this_thread_is_not_the_last() {
        let [size, data] = sizes_pages().expect("it is told");
        assert!(size > data && data > 0);
        assert!(anonymous(false).is_some_and(|own| own.share_bytes > 0 && own.shared_bytes == 0));
        assert!(!is_last_thread() && !is_gone(os::getpid()));
    }
}
