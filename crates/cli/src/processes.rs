//! Processes of this machine, as the kernel tells of them.
use std::collections::HashMap;
use std::fs;

/// Whether a process has ended, memory and all, and nobody has waited for it yet. Its threads may outlive the first of them.
pub fn is_zombie(pid: i32) -> bool {
    find(pid).is_some_and(|found| found.is_zombie)
}

/// A process of this machine.
pub struct Found {
    /// Its parent.
    pub parent: i32,
    is_zombie: bool,
    /// How long it was on a processor, with its threads that have ended.
    pub processor_ns: u64,
    /// When it started, and where its stack does.
    pub identity: [u64; 2],
}

/// All processes that can be seen.
pub fn processes() -> HashMap<i32, Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, find(pid)?))).collect()
}

/// One process.
pub fn find(pid: i32) -> Option<Found> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields of a line of `/proc/PID/stat` behind the name: the state is the first.
pub fn fields_of(line: &[u8]) -> Option<Vec<&str>> {
    // The name before the last parenthesis may hold anything.
    let after = line.iter().rposition(|c| *c == b')')? + 1;
    Some(std::str::from_utf8(&line[after..]).ok()?.split_ascii_whitespace().collect())
}

fn parse_stat(text: &[u8]) -> Option<Found> {
    let fields = fields_of(text)?;
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    let is_zombie = *fields.first()? == "Z" && number(17)? <= 1;
    let ticks = number(11)?.saturating_add(number(12)?);
    // SAFETY: asks for a number.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|n| *n > 0)?;
    let processor_ns = ticks.saturating_mul(1_000_000_000 / per_second);
    Some(Found { parent: fields.get(1)?.parse().ok()?, is_zombie, processor_ns, identity: [number(19)?, number(25)?] })
}

/// How long a process's threads ran, and how long they could have but waited for a processor, of those that live and are looked at.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Turns {
    /// On a processor.
    pub ran_ns: u64,
    /// Waiting for one.
    pub waited_ns: u64,
}

/// So many threads of a process are looked at.
const THREADS_MAX: usize = 64;

/// What the kernel says of that; zeros where it does not.
pub fn turns(pid: i32) -> Turns {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(THREADS_MAX);
    let each = threads.filter_map(|thread| parse_turns(&fs::read_to_string(thread.path().join("schedstat")).ok()?));
    each.fold(Turns::default(), |sum, each| Turns {
        ran_ns: sum.ran_ns.saturating_add(each.ran_ns),
        waited_ns: sum.waited_ns.saturating_add(each.waited_ns),
    })
}

fn parse_turns(line: &str) -> Option<Turns> {
    let mut numbers = line.split_ascii_whitespace().map(|n| n.parse().ok());
    Some(Turns { ran_ns: numbers.next()??, waited_ns: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_sys::os;

    #[test]
    fn what_is_no_line_of_a_process_is_nobody() {
        assert!(parse_stat(b"1 (x) y) S 7 1 1").is_none() && parse_stat(b"").is_none());
    }

    #[test]
    fn turns_are_what_the_kernel_says() {
        assert_eq!(parse_turns("12 34 5\n"), Some(Turns { ran_ns: 12, waited_ns: 34 }));
        assert!(parse_turns("").is_none() && parse_turns("12").is_none() && parse_turns("x 1 1").is_none());
        assert_eq!(turns(-1), Turns::default());
        // Where the kernel counts them at all, who has come so far has run.
        let counts = fs::read_to_string("/proc/self/schedstat").is_ok_and(|line| !line.starts_with("0 "));
        assert!(!counts || turns(os::getpid()).ran_ns > 0);
    }

    #[test]
    fn a_zombie_is_who_ended_and_was_not_waited_for() {
        let mut child = std::process::Command::new("true").spawn().expect("a program that is everywhere");
        let pid = child.id() as i32;
        let is_zombie_soon = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_zombie(pid)
        });
        assert!(is_zombie_soon && !is_zombie(os::getpid()));
        child.wait().expect("our child");
        assert!(!is_zombie(pid));
        // Its first thread has ended, others have not.
        let stat = |threads| parse_stat(format!("1 (x) Z{} {threads} 0 5 0 0 0 0 0 9", " 0".repeat(16)).as_bytes());
        assert!(stat(1).is_some_and(|found| found.is_zombie) && stat(2).is_some_and(|found| !found.is_zombie));
    }
}
