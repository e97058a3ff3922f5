//! The program's `.bss`: what of its file is zeros at first, and is memory like any other. Where it is large, it is managed, at the
//! addresses where the program expects it.
//!
//! What the kernel has put there becomes a new range of managed memory, into which goes what of it holds something already. Of the
//! program alone, not of its libraries (of those that it opens later: `memory/library.rs`). Pointers into it are recognised by a filter of this process's own, for calls from its own code:
//! programs that it executes inherit the filter, and one that is not managed could not answer it. So a program that is linked to fixed
//! addresses, where others have their code too, must make no calls itself, but through its libraries. One of whose code that cannot be
//! told keeps its `.bss` unmanaged. So does a program that brings its own `memcpy`, which the runtime would then use, and which may use
//! the `.bss`.
use crate::arena::{address, page_of};
use crate::layout::{self, BSS_MAX_BYTES, BSS_PAGE};
use crate::live::Live;
use crate::segments::{PT_LOAD, PT_PHDR, Segment};
use crate::{gate, heap_calls};
use core::slice;
use core::sync::atomic::Ordering::Relaxed;
use outswap_control::{Control, Process};
use outswap_core::clean::is_zero;
use outswap_core::machine::Prot;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::{nr, os, procfs};

/// Less than this is left to the kernel: it costs little, and the filter costs each call something.
pub const LEAST_BYTES: usize = 1 << 20;
/// Programs linked to fixed addresses lie below this.
const FIXED_END: usize = 1 << 32;
/// More code of such a program is not looked through for calls.
const CODE_MAX_BYTES: usize = 64 << 20;
/// With so many filters already, room is left for those of programs to come: each needs one at least.
const FILTERS_MAX: u64 = 13;
/// Attempts to put back what was there.
const BACK_TRIES: u32 = 1 << 12;

/// What the kernel tells a program at its start: where the headers of its own segments are, one's size, how many.
const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;

/// Rights of a segment that is data.
const READ_WRITE: u32 = 6;
/// Rights: to be executed, and to be read and executed.
const EXECUTE: u32 = 1;
/// See [`EXECUTE`].
const READ_EXECUTE: u32 = 5;

/// What is to be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bss {
    /// The first address that is managed.
    pub start: usize,
    /// The first after it.
    pub end: usize,
    /// The page in which the segment begins that ends with it. Ranges that a call is about may begin there.
    pub data: usize,
}

impl Bss {
    /// Pages.
    pub fn pages(&self) -> u32 {
        ((self.end - self.start) / PAGE_BYTES) as u32
    }
}

/// Finds the program's `.bss`, where it is large enough and can be managed. To be called while the process has one thread.
pub fn find() -> Option<Bss> {
    // SAFETY: only reads what the kernel passed at start.
    let [at, each, count] = [AT_PHDR, AT_PHENT, AT_PHNUM].map(|kind| unsafe { getauxval(kind) });
    if each != size_of::<Segment>() || at == 0 || !at.is_multiple_of(align_of::<Segment>()) {
        return None;
    }
    // SAFETY: the kernel says that so many are there, in the program's file as it is mapped.
    let segments = unsafe { slice::from_raw_parts(at as *const Segment, count) };
    let bss = zeros(segments, at)?;
    let can_be_told = bss.start >= FIXED_END || makes_no_calls(segments);
    let is_possible = can_be_told && !brings_its_own(segments, at) && is_random() && filters() < FILTERS_MAX;
    (is_possible && is_alone() && is_anonymous(bss.start, bss.end)).then_some(bss)
}

unsafe extern "C" {
    /// The C library's: what the kernel says of the program, 0 where it says nothing.
    fn getauxval(kind: usize) -> usize;
}

// What the compiler makes calls of, in the runtime, too.
unsafe extern "C" {
    fn memcpy();
    fn memmove();
    fn memset();
    fn memcmp();
    fn bcmp();
    fn strlen();
}

/// Whether the program has functions in place of the C library's that the runtime's code uses, wherever it is.
fn brings_its_own(segments: &[Segment], headers_at: usize) -> bool {
    let Some(base) = base(segments, headers_at) else { return true };
    let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let mut places = loaded.map(|segment| base + segment.at as usize..base + (segment.at + segment.bytes) as usize);
    let used = [memcpy, memmove, memset, memcmp, bcmp, strlen].map(|function| function as *const () as usize);
    places.any(|place| used.iter().any(|function| place.contains(function)))
}

/// Whether programs lie at random addresses on this machine.
pub fn is_random() -> bool {
    let mut digit = [0u8; 1];
    procfs::read_file(b"/proc/sys/kernel/randomize_va_space\0", &mut digit) == 1 && digit != *b"0"
}

/// How many filters this process has; 0 where the kernel does not say (before Linux 5.9).
fn filters() -> u64 {
    const KEY: &[u8] = b"Seccomp_filters:\t";
    let mut found = 0;
    procfs::each_line(b"/proc/self/status\0", &mut [0; 4096], |line| {
        if let Some(number) = line.strip_prefix(KEY) {
            found = procfs::number(number);
        }
    });
    found
}

fn base(segments: &[Segment], headers_at: usize) -> Option<usize> {
    let headers = segments.iter().find(|segment| segment.kind == PT_PHDR)?;
    headers_at.checked_sub(headers.at as usize)
}

/// The largest part of a program that consists of zeros alone, in whole pages.
fn zeros(segments: &[Segment], headers_at: usize) -> Option<Bss> {
    let base = base(segments, headers_at)?;
    let data = segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.rights == READ_WRITE);
    let parts = data.filter_map(|segment| {
        let at = base.checked_add(segment.at as usize)?;
        let start = at.checked_add(segment.file_bytes as usize)?.checked_next_multiple_of(PAGE_BYTES)?;
        let end = at.checked_add(segment.bytes as usize)?.checked_next_multiple_of(PAGE_BYTES)?;
        let bytes = end.checked_sub(start)?;
        (LEAST_BYTES..=BSS_MAX_BYTES).contains(&bytes).then_some(Bss { data: at & !(PAGE_BYTES - 1), start, end })
    });
    parts.max_by_key(|bss| bss.end - bss.start)
}

/// Whether a program that lies where it was linked to certainly makes no system calls by instructions of its own: their two bytes are
/// nowhere in its code.
fn makes_no_calls(segments: &[Segment]) -> bool {
    let mut code = segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.rights & EXECUTE != 0);
    code.all(|segment| {
        let (at, bytes) = (segment.at as usize, segment.file_bytes as usize);
        if segment.rights != READ_EXECUTE || bytes > CODE_MAX_BYTES || at == 0 {
            return false;
        }
        // SAFETY: the kernel has mapped the program there, which says that it is linked to that place, and nobody writes there.
        let code = unsafe { slice::from_raw_parts(at as *const u8, bytes) };
        heap_calls::behind_calls(code).next().is_none()
    })
}

/// Whether what programs and libraries begin with is to be managed: zeros, and constants.
pub fn is_wanted(control: &Control) -> bool {
    let [.., asked, _] = control.config.policies;
    asked != outswap_control::source::number("off")
}

/// Whether the process has one thread, whoever made others.
pub fn is_alone() -> bool {
    // A directory has two names, and one for each directory in it.
    os::stat_at(None, b"/proc/self/task\0").is_ok_and(|status| status.links == 3)
}

/// Whether a range is one private anonymous mapping, readable and writable, or a part of one.
fn is_anonymous(start: usize, end: usize) -> bool {
    let mut is = false;
    procfs::each_mapping(&mut [0; 4096], |mapping| {
        let is_plain = mapping.rights == b"rw-p" && mapping.inode == b"0";
        is |= mapping.start <= start && end <= mapping.end && is_plain;
    });
    is
}

/// Has the pager manage it, with what it holds. False where the kernel does not help; nothing has changed then. Nobody else may be
/// at work in this process, and what [`crate::layout::bss`] says must be this.
pub fn adopt(live: &Live, bss: &Bss) -> bool {
    let (bytes, first) = (bss.end - bss.start, PageNo(BSS_PAGE as u32));
    assert!((page_of(bss.start), address(first)) == (first, bss.start), "pages have numbers");
    let Ok(pagemap) = os::open(b"/proc/self/pagemap\0", os::O_RDONLY | os::O_CLOEXEC, 0) else { return false };
    let signals = outswap_sys::signal::set_mask(u64::MAX);
    let adopted = move_away(bss.start, bytes).is_some_and(|old| {
        live.restore(first, bss.pages());
        let mapped = {
            let _call = live.pager.begin_call();
            live.pager.map(first, bss.pages(), Prot::READ_WRITE, false)
        };
        let known = mapped && copy(live, pagemap, old, bss.pages());
        if known {
            // SAFETY: what was there is copied, and nobody else knows of this place.
            let _ = unsafe { os::munmap(old, bytes) };
        } else {
            live.pager.unmap(first, bss.pages());
            let back = pass(nr::MREMAP, [old, bytes, bytes, os::MREMAP_MAYMOVE | os::MREMAP_FIXED, bss.start, 0]);
            assert!(back == bss.start as isize, "what was moved away can be moved back");
        }
        known
    });
    outswap_sys::signal::set_mask(signals);
    let _ = os::close(pagemap);
    adopted
}

/// Says where it is, for who looks at this process from outside.
pub fn publish(record: &Process) {
    let (start, end) = layout::bss();
    record.bss[0].store(start as u64, Relaxed);
    record.bss[1].store(end as u64, Relaxed);
}

fn pass(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: moves of a mapping that nobody uses meanwhile.
    unsafe { gate::call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// Moves a mapping somewhere else. Returns where.
fn move_away(at: usize, bytes: usize) -> Option<usize> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE;
    // SAFETY: no address is given, so nothing is replaced.
    let to = unsafe { os::mmap(0, bytes, os::PROT_NONE, flags, -1, 0) }.ok()?;
    if pass(nr::MREMAP, [at, bytes, bytes, os::MREMAP_MAYMOVE | os::MREMAP_FIXED, to, 0]) == to as isize {
        return Some(to);
    }
    // SAFETY: the mapping that was just made.
    let _ = unsafe { os::munmap(to, bytes) };
    None
}

/// Copies what pages at an address hold into the managed ones. False where it is not told what they hold.
fn copy(live: &Live, pagemap: i32, from: usize, count: u32) -> bool {
    /// In a word of the file: the page is in memory, or in the kernel's swap.
    const HOLDS: u64 = 0b11 << 62;
    const WORDS: usize = 512;
    let mut words = [0u8; WORDS * 8];
    for done in (0..count as usize).step_by(WORDS) {
        let part = &mut words[..(count as usize - done).min(WORDS) * 8];
        let offset = (from / PAGE_BYTES + done) * 8;
        if os::pread(pagemap, part, offset as u64) != Ok(part.len()) {
            return false;
        }
        for (i, word) in part.chunks_exact(8).enumerate() {
            if u64::from_le_bytes(word.try_into().expect("8 bytes")) & HOLDS == 0 {
                continue;
            }
            // SAFETY: a page of a mapping that is readable, and that nobody else knows of.
            let content = unsafe { slice::from_raw_parts((from + (done + i) * PAGE_BYTES) as *const u8, PAGE_BYTES) };
            let page = PageNo((BSS_PAGE + done + i) as u32);
            let put = |tries: u32| {
                let put = live.pager.put_content(page, content);
                if !put {
                    os::wait_a_little(tries);
                }
                put
            };
            if !is_zero(content) && !(0..BACK_TRIES).any(put) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap_calls::SYSCALL;

    const MIB: u64 = 1 << 20;

    fn segment(kind: u32, rights: u32, at: u64, file_bytes: u64, bytes: u64) -> Segment {
        Segment { kind, rights, offset: 0, at, physical: 0, file_bytes, bytes, align: 4096 }
    }

    #[test]
    fn zeros_are_the_whole_pages_after_what_the_file_has() {
        let base = 0x5555_0000_0000;
        let headers = segment(PT_PHDR, 4, 0x40, 0x200, 0x200);
        let of = |data: &[Segment], base: usize| {
            let segments: Vec<Segment> = [headers].iter().chain(data).copied().collect();
            zeros(&segments, base + 0x40)
        };
        let found = |data: usize, start, mib: usize| Some(Bss { data, start, end: start + mib * MIB as usize });
        let data = segment(PT_LOAD, READ_WRITE, 0x3d10, 0x300, 0x300 + 10 * MIB);
        assert_eq!(of(&[data], base), found(base + 0x3000, base + 0x5000, 10));
        assert_eq!(of(&[segment(PT_LOAD, 7, 0x3d10, 0x300, 10 * MIB)], base), None, "executable");
        assert_eq!(of(&[segment(PT_LOAD, READ_WRITE, 0x3d10, 0x300, MIB)], base), None, "small");
        assert_eq!(of(&[segment(PT_LOAD, READ_WRITE, 0x3d10, 0x300, u64::MAX)], base), None, "nonsense");
        assert_eq!(
            of(&[segment(PT_LOAD, READ_WRITE, 0x3d10, 0x300, 65 << 30)], base),
            None,
            "more than there are numbers for"
        );
        assert_eq!(of(&[segment(PT_LOAD, READ_WRITE, 0x4000, 0x1000, 0x1000)], base), None, "none");
        let larger = segment(PT_LOAD, READ_WRITE, 0x4000_0000, 0, 20 * MIB);
        assert_eq!(of(&[data, larger], base), found(base + 0x4000_0000, base + 0x4000_0000, 20));
        assert_eq!(zeros(&[data], base), None, "nobody says where the program lies");
    }

    #[test]
    fn this_process_has_the_c_librarys_functions_and_no_other() {
        let at = memcpy as *const () as u64 & !0xfff;
        let headers = segment(PT_PHDR, 4, 0x40, 0x200, 0x200);
        let with = |at: u64| [headers, segment(PT_LOAD, READ_EXECUTE, at, 0x1000, 0x1000)];
        assert!(brings_its_own(&with(at), 0x40) && !brings_its_own(&with(0x1000), 0x40));
        assert!(brings_its_own(&[], 0x40), "nobody says where the program lies");
        assert!(is_random() && filters() < FILTERS_MAX);
    }

    #[test]
    fn code_with_a_call_is_found() {
        let mut code = [0x90u8; 100];
        let of = |code: &[u8], rights: u32| {
            let at = code.as_ptr() as u64;
            makes_no_calls(&[segment(PT_LOAD, rights, at, code.len() as u64, code.len() as u64)])
        };
        assert!(of(&code, READ_EXECUTE) && !of(&code, EXECUTE), "what cannot be read is not known");
        code[98..].copy_from_slice(&SYSCALL);
        assert!(!of(&code, READ_EXECUTE) && of(&code, READ_WRITE), "data is no code");
        assert!(of(&code[..99], READ_EXECUTE));
        let none = segment(PT_LOAD, READ_EXECUTE, 0, 100, 100);
        assert!(!makes_no_calls(&[none]), "nobody says where it is");
    }

    #[test]
    fn anonymous_memory_is_told_from_files() {
        let at = os::mmap_anonymous(4 * PAGE_BYTES).expect("memory");
        assert!(is_anonymous(at, at + 4 * PAGE_BYTES) && is_anonymous(at + PAGE_BYTES, at + 2 * PAGE_BYTES));
        assert!(!is_anonymous(0, PAGE_BYTES), "nothing is there");
        let code = anonymous_memory_is_told_from_files as *const () as usize / PAGE_BYTES * PAGE_BYTES;
        assert!(!is_anonymous(code, code + PAGE_BYTES));
    }
}
