//! Where the code of this process lies: the process filter recognises its calls by that.
use crate::limits::CODE_RANGES;
use crate::segments::{PF_X, PT_LOAD, each_object};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;
use outswap_sys::procfs::{self, Mapping};

/// Code that lies closer together than this is one range.
const CLOSE_BYTES: usize = 1 << 20;
/// Code that lies farther apart than this never becomes one range, even if there are too many.
const FAR_BYTES: usize = 1 << 30;
/// Programs linked to a fixed address lie below this, and so do all unmanaged ones that this one may execute.
pub const FIXED_END: usize = 1 << 32;
/// Mappings of files that the dynamic linker is asked for, and bytes of their names.
const LOADED: usize = 4096;
const NAME_BYTES: usize = 32;
/// The name that it has for what the kernel has mapped of its own functions.
const VDSO: &[u8] = b"linux-vdso.";
/// End of the addresses that a program can have.
const USER_END: usize = 1 << 47;

/// Ascending address ranges.
#[derive(Default)]
pub struct Ranges {
    of: [(usize, usize); CODE_RANGES],
    len: usize,
    /// For each range, whether code that must not be part of any lies between it and the one before.
    walled: [bool; CODE_RANGES],
}

impl Ranges {
    /// The ranges.
    pub fn get(&self) -> &[(usize, usize)] {
        &self.of[..self.len]
    }

    /// Adds a range that lies after all others. If there are too many, those closest together become one; where none can, the
    /// new one is left out.
    fn add(&mut self, start: usize, end: usize, walled: bool) {
        if let Some(last) = self.len.checked_sub(1)
            && !walled
            && start - self.of[last].1 <= CLOSE_BYTES
        {
            self.of[last].1 = end;
            return;
        }
        if self.len == CODE_RANGES {
            let gap = |i: usize| match i {
                CODE_RANGES => (walled, start - self.of[i - 1].1),
                _ => (self.walled[i], self.of[i].0 - self.of[i - 1].1),
            };
            let Some((false, bytes)) = (1..=CODE_RANGES).map(gap).min() else { return };
            if bytes > FAR_BYTES {
                return;
            }
            let joined = (1..=CODE_RANGES).find(|&i| gap(i) == (false, bytes)).expect("it was found before");
            if joined == CODE_RANGES {
                self.of[CODE_RANGES - 1].1 = end;
                return;
            }
            self.of[joined - 1].1 = self.of[joined].1;
            self.of.copy_within(joined + 1.., joined);
            self.walled.copy_within(joined + 1.., joined);
            self.len -= 1;
        }
        self.of[self.len] = (start, end);
        self.walled[self.len] = walled;
        self.len += 1;
    }
}

/// The code of this process.
#[derive(Default)]
pub struct Code {
    /// The C library's.
    pub libc: Ranges,
    /// The program's and that of its libraries, without ours. Without code at fixed addresses, where unmanaged programs that
    /// this one executes have theirs.
    pub all: Ranges,
    /// From the first to the last of what lies at fixed addresses: a program that was linked so, and what is put near it.
    pub fixed: (usize, usize),
    /// What the kernel has mapped for the program of its own functions, some of which make calls.
    pub vdso: (usize, usize),
    /// Where the C library's file is mapped, from its start on.
    pub libc_file: (usize, usize),
    /// The dynamic linker's.
    pub linker: (usize, usize),
    /// Whether code is in [`Code::libc_file`].
    libc_runs: bool,
    walled: bool,
}

impl Code {
    /// Takes note of a line of `/proc/self/maps`.
    fn note_line(&mut self, line: &[u8]) {
        let path = line.iter().position(|b| *b == b'/').map(|at| &line[at..]);
        let name = path.and_then(|p| p.rsplit(|b| *b == b'/').next()).unwrap_or_default();
        let mapping = Mapping::of(line);
        if line.ends_with(b"[vdso]") && mapping.rights.get(2) == Some(&b'x') {
            self.vdso = (mapping.start, mapping.end);
        }
        self.note(&mapping, name);
    }

    /// Takes note of a mapping, which lies behind all others, of a file of that name. What is executable but of no file is nobody's: it may be
    /// the gate.
    fn note(&mut self, &Mapping { start, end, rights, offset, .. }: &Mapping<'_>, name: &[u8]) {
        if start < end && rights.first() == Some(&b'r') && (name == b"libc.so.6" || name.starts_with(b"libc-2.")) {
            let file = &mut self.libc_file;
            if file.1 == start {
                file.1 = end;
                self.libc_runs |= rights.get(2) == Some(&b'x');
            } else if offset == Some(0) && !self.libc_runs {
                // What was before may have been somebody who only reads it.
                *file = (start, end);
            }
        }
        if rights.get(2) != Some(&b'x') || start >= end {
            return;
        }
        if start < FIXED_END && !name.is_empty() {
            self.fixed = (if self.fixed.1 == 0 { start } else { self.fixed.0 }, end);
        }
        // The gate is of a file where nothing else can be executed.
        let is_ours = [&b"liboutswap_"[..], b"memfd:liboutswap_"].iter().any(|ours| name.starts_with(ours));
        if name.is_empty() || is_ours || start < FIXED_END || end > USER_END {
            self.walled = true;
            return;
        }
        const LIBRARY: [&[u8]; 4] = [b"libc.so.6", b"libc-2.", b"libpthread.so.0", b"libpthread-2."];
        if LIBRARY.iter().any(|n| name.starts_with(n)) {
            // Never with what lies between: the checks for the C library are many.
            self.libc.add(start, end, true);
        }
        if name.starts_with(b"ld-linux-x86-64.so.") || name.starts_with(b"ld-2.") {
            self.linker = (start, end);
        }
        self.all.add(start, end, self.walled);
        self.walled = false;
    }
}

/// Finds the code of this process, as it is mapped now. Where no files of `/proc` can be read, the dynamic linker says what it has mapped.
pub fn find() -> Code {
    let mut code = Code::default();
    procfs::each_line(b"/proc/self/maps\0", &mut [0; 8192], |line| code.note_line(line));
    if code.all.get().is_empty() { of_linker() } else { code }
}

/// The same as the dynamic linker knows it: of files that it has loaded. At most [`LOADED`] of their mappings.
fn of_linker() -> Code {
    let mut code = Code::default();
    let mut last = None;
    for _ in 0..LOADED {
        // One after the other as they lie, since there is no place to sort them in.
        let mut next: Option<(usize, usize, usize, bool, [u8; NAME_BYTES], usize)> = None;
        each_object(|base, name, segments| {
            let path = if name.is_empty() { &b"program"[..] } else { name.to_bytes() };
            let file = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
            for segment in segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.file_bytes > 0) {
                let at = base.wrapping_add(segment.at as usize);
                let start = at & !(PAGE_BYTES - 1);
                let end = (at + segment.file_bytes as usize).next_multiple_of(PAGE_BYTES);
                if last.is_some_and(|last| start <= last) || next.is_some_and(|(first, ..)| start >= first) {
                    continue;
                }
                let mut known = [0; NAME_BYTES];
                let len = file.len().min(NAME_BYTES);
                known[..len].copy_from_slice(&file[..len]);
                let offset = segment.offset as usize & !(PAGE_BYTES - 1);
                next = Some((start, end, offset, segment.rights & PF_X != 0, known, len));
            }
            false
        });
        let Some((start, end, offset, runs, name, len)) = next else { break };
        last = Some(start);
        let rights = if runs { b"r-xp" } else { b"r--p" };
        let mut name = &name[..len];
        if name.starts_with(VDSO) {
            // What the kernel has mapped is of no file.
            name = &[];
            if runs {
                code.vdso = (start, end);
            }
        }
        code.note(&Mapping { start, end, rights, offset: Some(offset), inode: b"" }, name);
    }
    code
}

/// Makes the program that this thread executes next be loaded at random addresses; returns what [`restore`] needs if it is not
/// executed. The filters recognise a process by where its code lies: a program at the same addresses, which it would have
/// where addresses are not random, would be trapped before it can answer, or without ever answering.
pub fn randomize() -> Option<usize> {
    let before = os::personality(None).ok().filter(|domain| domain & os::ADDR_NO_RANDOMIZE != 0)?;
    os::personality(Some(before & !os::ADDR_NO_RANDOMIZE)).ok()?;
    Some(before)
}

/// Undoes [`randomize`].
pub fn restore(before: Option<usize>) {
    if before.is_some() {
        let _ = os::personality(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(maps: &str) -> Code {
        let mut code = Code::default();
        maps.lines().for_each(|line| code.note_line(line.as_bytes()));
        code
    }

    #[test]
    fn code_is_that_of_the_program_and_its_libraries() {
        let code = parse(
            "00400000-00401000 r-xp 00000000 08:01 1 /usr/bin/fixed\n\
             1fffff000000-1fffff001000 r-xp 00000000 00:00 0 \n\
             555500001000-555500003000 r-xp 00001000 08:01 2 /usr/bin/a program\n\
             555500003000-555500004000 r--p 00003000 08:01 2 /usr/bin/a program\n\
             7f0000000000-7f0000100000 r-xp 00000000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000180000-7f0000190000 r-xp 00000000 08:01 4 /usr/lib/libm.so.6\n\
             7f0000400000-7f0000410000 r-xp 00000000 08:01 5 /usr/lib/libz.so.1.2\n\
             7f0000420000-7f0000430000 r-xp 00000000 08:01 6 /opt/liboutswap_preload.so (deleted)\n\
             7f0000440000-7f0000450000 r-xp 00000000 08:01 7 /usr/lib/ld-linux-x86-64.so.2\n\
             7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0 [vdso]\n\
             ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
        );
        assert_eq!(code.libc.get(), [(0x7f00_0000_0000, 0x7f00_0010_0000)]);
        let all = [
            (0x5555_0000_1000, 0x5555_0000_3000),
            (0x7f00_0000_0000, 0x7f00_0019_0000),
            (0x7f00_0040_0000, 0x7f00_0041_0000),
            (0x7f00_0044_0000, 0x7f00_0045_0000),
        ];
        assert_eq!((code.fixed, code.vdso), ((0x40_0000, 0x40_1000), (0x7ffd_0000_0000, 0x7ffd_0000_1000)));
        assert_eq!(code.linker, (0x7f00_0044_0000, 0x7f00_0045_0000));
        assert_eq!(code.all.get(), all, "ours and what is of no file lie in no range");
    }

    #[test]
    fn the_file_of_the_c_library_is_what_is_mapped_of_it_in_one_piece() {
        let code = parse(
            "7e0000000000-7e0000020000 r--p 00000000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000000000-7f0000020000 r--p 00000000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000020000-7f0000100000 r-xp 00020000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000100000-7f0000150000 r--p 00100000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000150000-7f0000151000 ---p 00150000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000151000-7f0000155000 rw-p 00150000 08:01 3 /usr/lib/libc.so.6\n\
             7f0000155000-7f0000160000 rw-p 00000000 00:00 0 \n\
             7f1000000000-7f1000020000 r--p 00000000 08:01 3 /usr/lib/libc.so.6\n",
        );
        assert_eq!(code.libc_file, (0x7f00_0000_0000, 0x7f00_0015_0000));
        assert_eq!(parse("7f0000020000-7f0000100000 r-xp 00020000 08:01 3 /usr/lib/libc.so.6").libc_file, (0, 0));
    }

    #[test]
    fn too_many_ranges_become_fewer_but_never_across_what_is_not_the_programs() {
        let base = 0x7f00_0000_0000;
        let mut ranges = Ranges::default();
        for i in 0..20 {
            let start = base + i * 0x40_0000 - (i == 5) as usize * 0x10_0000;
            ranges.add(start, start + 0x1000, i == 10 || i == 15);
        }
        assert_eq!(ranges.get().len(), CODE_RANGES);
        for i in 0..20 {
            let start = base + i * 0x40_0000 - (i == 5) as usize * 0x10_0000;
            let holds = |at| ranges.get().iter().any(|r| r.0 <= at && at < r.1);
            assert!(holds(start) && holds(start + 0xfff), "range {i}");
            if i == 10 || i == 15 {
                assert!(!holds(start - 0x1000), "before range {i}");
            }
        }
        let mut apart = Ranges::default();
        (0..10).for_each(|i| apart.add((i + 1) << 40, ((i + 1) << 40) + 0x1000, i % 2 == 0));
        assert_eq!(apart.get().len(), CODE_RANGES);
        assert_eq!(apart.get()[7], (8 << 40, (8 << 40) + 0x1000), "what is far apart stays so");
    }

    #[test]
    fn this_process_has_code_and_a_c_library() {
        let code = find();
        let here = this_process_has_code_and_a_c_library as *const () as usize;
        assert!(code.all.get().iter().any(|r| r.0 <= here && here < r.1));
        assert!(!code.libc.get().is_empty());
    }

    #[test]
    fn the_dynamic_linker_knows_the_same_code() {
        let (told, known) = (find(), of_linker());
        assert_eq!(known.libc.get(), told.libc.get());
        assert_eq!(known.all.get(), told.all.get());
        assert_eq!((known.fixed, known.linker, known.vdso), (told.fixed, told.linker, told.vdso));
        assert_eq!(known.libc_file.0, told.libc_file.0);
        let libc = known.libc.get()[0];
        assert!(known.libc_file.0 <= libc.0 && libc.1 <= known.libc_file.1);
    }

    #[test]
    fn the_next_program_gets_random_addresses_once() {
        const NO_RANDOMIZE: usize = os::ADDR_NO_RANDOMIZE;
        let ask = || os::personality(None).expect("asking is allowed");
        std::thread::spawn(move || {
            let first = ask();
            restore(Some(first | NO_RANDOMIZE));
            let before = randomize();
            assert_eq!((before, ask()), (Some(first | NO_RANDOMIZE), first & !NO_RANDOMIZE));
            assert_eq!(randomize(), None, "they are random already");
            restore(before);
            assert_eq!(ask(), first | NO_RANDOMIZE);
        })
        .join()
        .expect("the thread asserts");
    }
}
