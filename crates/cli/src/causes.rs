//! What the memory of a process is made of that cannot be managed, as the kernel lists its mappings.
use outswap_control::{ARENA, ARENA_MAX_BYTES};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// Where managed memory lies (`docs/ARCHITECTURE.md`, "Address space").
const MANAGED: std::ops::Range<u64> = ARENA as u64..(ARENA + ARENA_MAX_BYTES) as u64;
/// Mappings of one process that are looked at.
const MAX_MAPPINGS: usize = 1 << 17;
/// Stacks smaller than this are the runtime's own.
const STACK_MIN_BYTES: u64 = 128 << 10;
/// What guards a stack is smaller; what is larger is address space that an allocator reserves.
const GUARD_MAX_BYTES: u64 = 64 << 10;
/// Less of one kind than this is not worth a word.
const LEAST_BYTES: u64 = 1 << 20;
/// Characters of a name that are shown.
const NAME_CHARS: usize = 60;
/// Kinds that are named.
const NAMED: usize = 4;

struct Mapping {
    start: u64,
    end: u64,
    accessible: bool,
    executable: bool,
    path: String,
    anonymous_bytes: u64,
}

/// Bytes of each kind.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Causes(BTreeMap<String, u64>);

impl Causes {
    /// Adds what a process has. `own_bytes` are the runtime's: frames, pool and tables; from `bss[0]` to `bss[1]`, its program's `.bss`
    /// is managed. Nothing is added where the kernel does not tell.
    pub fn add(&mut self, pid: i32, own_bytes: u64, bss: [u64; 2]) {
        if let Ok(file) = File::open(format!("/proc/{pid}/smaps")) {
            self.add_mappings(&mappings(BufReader::new(file)), own_bytes, bss);
        }
    }

    fn add_mappings(&mut self, all: &[Mapping], own_bytes: u64, bss: [u64; 2]) {
        let programs: HashSet<&str> =
            all.iter().filter(|m| m.executable && m.path.starts_with('/')).map(|m| m.path.as_str()).collect();
        let (mut other, mut before): (u64, Option<&Mapping>) = (0, None);
        // The program or library whose zeros may follow.
        let mut data: Option<(&str, u64)> = None;
        for mapping in all {
            let adjacent = before.filter(|b| b.end == mapping.start);
            let is_file = mapping.path.starts_with('/');
            if is_file {
                data = programs.contains(mapping.path.as_str()).then_some((mapping.path.as_str(), mapping.end));
            }
            let zeros_of = data.filter(|(_, end)| !is_file && *end == mapping.start).map(|(path, _)| path);
            let kind = match mapping.path.as_str() {
                "[stack]" => Some("the main stack".to_owned()),
                "[heap]" => Some("the heap".to_owned()),
                path if programs.contains(path) => Some(format!("data of {}", name(path))),
                path if is_file => Some(format!("private pages of {}", name(path))),
                _ if mapping.executable => Some("executable anonymous memory".to_owned()),
                _ if MANAGED.contains(&mapping.start) || (bss[0]..bss[1]).contains(&mapping.start) => None,
                _ if zeros_of.is_some() => zeros_of.map(|path| format!("data of {}", name(path))),
                _ if adjacent
                    .is_some_and(|b| !b.accessible && b.path.is_empty() && b.end - b.start <= GUARD_MAX_BYTES)
                    && mapping.end - mapping.start >= STACK_MIN_BYTES =>
                {
                    Some("thread stacks".to_owned())
                }
                _ => {
                    other += mapping.anonymous_bytes;
                    None
                }
            };
            if let Some(kind) = kind {
                *self.0.entry(kind).or_default() += mapping.anonymous_bytes;
            }
            before = Some(mapping);
        }
        *self.0.entry("other anonymous memory".to_owned()).or_default() += other.saturating_sub(own_bytes);
    }

    /// The largest, in words; empty where none is worth one.
    pub fn text(&self) -> String {
        let mut all: Vec<(&String, u64)> =
            self.0.iter().map(|(kind, bytes)| (kind, *bytes)).filter(|(_, bytes)| *bytes >= LEAST_BYTES).collect();
        all.sort_by_key(|&(kind, bytes)| (std::cmp::Reverse(bytes), kind.clone()));
        let parts: Vec<String> =
            all.iter().take(NAMED).map(|(kind, bytes)| format!("{kind} {} MiB", bytes >> 20)).collect();
        parts.join(", ")
    }
}

/// The last part of a path, or as much of that as a line has room for.
fn name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.char_indices().nth(NAME_CHARS).map_or(name, |(at, _)| &name[..at])
}

/// Reads `smaps`. What is no mapping is passed over.
fn mappings(text: impl BufRead) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(kib) = line.strip_prefix("Anonymous:") {
            let kib = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            if let Some(last) = all.last_mut() {
                last.anonymous_bytes = kib.saturating_mul(1024);
            }
        } else if let Some(mapping) = header(&line) {
            if all.len() == MAX_MAPPINGS {
                break;
            }
            all.push(mapping);
        }
    }
    all
}

/// The first line of a mapping.
fn header(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let rights = fields.next()?;
    let path = fields.nth(3).unwrap_or("").trim().to_owned();
    Some(Mapping {
        start,
        end: end.max(start),
        accessible: rights.contains(['r', 'w', 'x']),
        executable: rights.contains('x'),
        path,
        anonymous_bytes: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d000000000-55d000001000 r-xp 00000000 fd:00 11                         /home/u/my prog
Anonymous:             0 kB
55d000001000-55d000003000 rw-p 00001000 fd:00 11                         /home/u/my prog
Rss:                   8 kB
Anonymous:             8 kB
55d000003000-55d006403000 rw-p 00000000 00:00 0
Anonymous:        102400 kB
200000000000-200010000000 rw-p 00000000 00:00 0
Anonymous:         50000 kB
7f0000000000-7f0000100000 rw-p 00000000 fd:00 12                         /tmp/cow.dat
Anonymous:          1024 kB
7f0000200000-7f0000201000 ---p 00000000 00:00 0
Anonymous:             0 kB
7f0000201000-7f0000a01000 rw-p 00000000 00:00 0
Anonymous:          2048 kB
7f0001000000-7f0001100000 rwxp 00000000 00:00 0
Anonymous:          3072 kB
7f0002000000-7f0002800000 rw-p 00000000 00:00 0
Anonymous:          5120 kB
7ffff0000000-7ffff0800000 rw-p 00000000 00:00 0                          [stack]
Anonymous:          4096 kB
nonsense
VmFlags: rd wr
";

    #[test]
    fn each_kind_has_its_name() {
        let mut causes = Causes::default();
        causes.add_mappings(&mappings(SMAPS.as_bytes()), 1 << 20, [0; 2]);
        let kib = |kind: &str| causes.0.get(kind).map(|bytes| bytes >> 10);
        assert_eq!(kib("data of my prog"), Some(102408));
        assert_eq!(kib("private pages of cow.dat"), Some(1024));
        assert_eq!(kib("thread stacks"), Some(2048));
        assert_eq!(kib("executable anonymous memory"), Some(3072));
        assert_eq!(kib("the main stack"), Some(4096));
        assert_eq!(kib("other anonymous memory"), Some(4096), "less what is the runtime's");
        assert_eq!(causes.0.len(), 6, "managed memory is none of them: {causes:?}");
        let text = "data of my prog 100 MiB, other anonymous memory 4 MiB, the main stack 4 MiB, executable anonymous memory 3 MiB";
        assert_eq!(causes.text(), text);
        assert_eq!(Causes::default().text(), "");
        let mut managed = Causes::default();
        managed.add_mappings(&mappings(SMAPS.as_bytes()), 1 << 20, [0x55d0_0000_3000, 0x55d0_0640_3000]);
        assert_eq!(managed.0.get("data of my prog"), Some(&8192), "its zeros are managed");
    }

    #[test]
    fn what_lies_beside_address_space_that_is_reserved_is_no_stack() {
        let heap = "\
7f0000000000-7f0004000000 ---p 00000000 00:00 0
Anonymous:             0 kB
7f0004000000-7f0006000000 rw-p 00000000 00:00 0
Anonymous:         30720 kB
";
        let mut causes = Causes::default();
        causes.add_mappings(&mappings(heap.as_bytes()), 0, [0; 2]);
        assert_eq!(causes.text(), "other anonymous memory 30 MiB");
    }

    #[test]
    fn this_process_has_some() {
        let mut causes = Causes::default();
        causes.add(std::process::id() as i32, 0, [0; 2]);
        assert!(causes.0.values().sum::<u64>() > 0, "{causes:?}");
        causes.add(-1, 0, [0; 2]);
    }
}
