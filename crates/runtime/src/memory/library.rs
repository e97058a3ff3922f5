//! Libraries that the program opens while it runs (`dlopen`). One that begins with many zeros (`.bss`) is put into managed memory, where
//! these are memory like any other; its code and its data are mappings of a file there, which are the kernel's.
//!
//! The dynamic linker maps a library in one piece first, and then segments and zeros over parts of that, so that it is enough to choose the
//! place of the first piece. That is one of the library's file; or one of nothing, a reservation, where segments are to begin at larger
//! borders than pages. Then the file is not named: it is one of those that are open, and what is asked for is as long as it needs.
//!
//! A library that makes system calls by instructions of its own, as what Go makes for other languages does, has a filter for its code, as the
//! program has: it would block or replace signals that the runtime needs, or make a child that nobody has seen.
use super::common::*;
use super::map::{leave, make_foreign, mmap};
use crate::arena::address;
use crate::bss::LEAST_BYTES;
use crate::heap_calls::{SYSCALL, behind_calls};
use crate::limits::LINKER_CALLS;
use crate::live::Live;
use crate::{avoided, bss, filter, rlimits};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use outswap_core::machine::Prot;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os::*;
use outswap_sys::{nr, os};

/// Where the dynamic linker's calls come from.
static LINKER: [AtomicUsize; LINKER_CALLS] = [const { AtomicUsize::new(0) }; LINKER_CALLS];

/// Descriptors that are looked at for a library whose file is not named.
const DESCRIPTORS: usize = 256;
/// Segments of a library that are looked at.
const SEGMENTS: usize = 32;
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
/// What an ELF file of this machine begins with, and the kind of one that can be loaded anywhere.
const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
const ET_DYN: u64 = 3;
const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
/// Rights of a segment that is data, and the one of code.
const READ_WRITE: u64 = 6;
const EXECUTE: u64 = 1;
/// Bytes of notes that are looked at.
const NOTE_BYTES: usize = 512;
/// Who has written a note in what Go makes.
const GO: [u8; 4] = *b"Go\0\0";
/// Code of more bytes is not looked through: it would all have to be read from disk, and by far most has no calls.
const CODE_MAX_BYTES: usize = 1 << 20;
/// Libraries that are watched: each has a filter, of which the kernel has room for some hundred with those of programs that are executed.
const WATCHED: usize = 16;

/// Takes note of where the linker's calls come from: addresses after them.
pub fn know(calls: &[(usize, usize); LINKER_CALLS]) {
    calls.iter().zip(&LINKER).for_each(|(call, place)| place.store(call.0, Relaxed));
}

/// Whether a call of the process comes from there.
pub fn is_linkers(addr: usize) -> bool {
    addr != 0 && LINKER.iter().any(|place| place.load(Relaxed) == addr)
}

/// How a library is to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Library {
    /// From the first page of it to the last byte.
    bytes: usize,
    /// What its beginning is to be a multiple of.
    align: usize,
    /// Whole pages of zeros that one of its segments ends with.
    zero_bytes: usize,
    /// Where its code is, from its first page on: the largest segment, if there are several.
    code: (usize, usize),
    /// Where that is in the file.
    code_offset: usize,
    /// Go has made it.
    is_go: bool,
}

impl Library {
    /// By the first bytes of its file, or of what there is of it, and a function that reads more.
    fn of(read: impl Fn(&mut [u8], usize) -> bool) -> Option<Library> {
        let mut header = [0u8; HEADER_BYTES];
        let number = |bytes: &[u8], at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0u64, |all, byte| all << 8 | *byte as u64)
        };
        if !read(&mut header, 0) || !header.starts_with(&MAGIC) || number(&header, 16, 2) != ET_DYN {
            return None;
        }
        let (at, each, count) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2) as usize);
        let mut segments = [0u8; SEGMENTS * SEGMENT_BYTES];
        let segments = segments.get_mut(..count * SEGMENT_BYTES)?;
        if each as usize != SEGMENT_BYTES || !read(segments, usize::try_from(at).ok()?) {
            return None;
        }
        let none = Library { bytes: 0, align: 1, zero_bytes: 0, code: (0, 0), code_offset: 0, is_go: false };
        let (mut start, mut end, mut library) = (usize::MAX, 0, none);
        for note in segments.chunks_exact(SEGMENT_BYTES).filter(|segment| number(segment, 0, 4) == PT_NOTE) {
            let [offset, bytes] = [8, 32].map(|field| number(note, field, 8) as usize);
            let mut notes = [0u8; NOTE_BYTES];
            let notes = &mut notes[..bytes.min(NOTE_BYTES)];
            library.is_go |= read(notes, offset) && has_note_of(notes, &GO);
        }
        for segment in segments.chunks_exact(SEGMENT_BYTES).filter(|segment| number(segment, 0, 4) == PT_LOAD) {
            let [at, in_file, bytes, align] = [16, 32, 40, 48].map(|field| number(segment, field, 8) as usize);
            let (filled, last) = (at.checked_add(in_file)?, at.checked_add(bytes)?);
            (start, end) = (start.min(at & !(PAGE_BYTES - 1)), end.max(last));
            library.align = library.align.max(align);
            let code_bytes = library.code.1 - library.code.0;
            if number(segment, 4, 4) & EXECUTE != 0 && in_file > code_bytes {
                (library.code, library.code_offset) = ((at, filled), number(segment, 8, 8) as usize);
            }
            if number(segment, 4, 4) == READ_WRITE {
                let zeros = last
                    .checked_next_multiple_of(PAGE_BYTES)?
                    .saturating_sub(filled.checked_next_multiple_of(PAGE_BYTES)?);
                library.zero_bytes = library.zero_bytes.max(zeros);
            }
        }
        library.bytes = end.checked_sub(start)?;
        if library.code.1 > 0 {
            library.code = (library.code.0.checked_sub(start)?, library.code.1.checked_sub(start)?);
        }
        Some(library)
    }

    /// Whether it makes calls by instructions of its own that the runtime must know of, as far as can be seen.
    fn makes_calls(&self, read: impl Fn(&mut [u8], usize) -> bool) -> bool {
        const PART_BYTES: usize = 8192;
        let bytes = self.code.1 - self.code.0;
        if self.is_go || bytes > CODE_MAX_BYTES {
            return self.is_go;
        }
        let mut part = [0u8; PART_BYTES];
        // What a part ends with is looked at once more with the next one.
        (0..bytes).step_by(PART_BYTES - NUMBER_BEFORE_BYTES).any(|at| {
            let part = &mut part[..PART_BYTES.min(bytes - at)];
            read(part, self.code_offset.saturating_add(at)) && has_calls(part)
        })
    }

    /// That which a descriptor is open on.
    fn opened(fd: usize) -> Option<Library> {
        // What tells no length may wait until there is something to be read, and be read once.
        if !os::fstat(fd as i32).is_ok_and(|file| file.is_regular() && file.size_bytes > 0) {
            return None;
        }
        Library::of(|to, at| read_from(fd, to, at))
    }

    /// Whether it is worth it.
    fn has_zeros(&self) -> bool {
        self.zero_bytes >= LEAST_BYTES
    }

    /// What the linker reserves for it.
    fn reserved_bytes(&self) -> usize {
        self.bytes.max(self.align).saturating_add(self.align)
    }
}

/// Reads all of a buffer from a place in an open file.
fn read_from(fd: usize, to: &mut [u8], at: usize) -> bool {
    os::pread(fd as i32, to, at as u64) == Ok(to.len())
}

/// Whether notes of an ELF file have one by this author.
fn has_note_of(mut notes: &[u8], author: &[u8; 4]) -> bool {
    const HEADER_BYTES: usize = 12;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    while notes.len() > HEADER_BYTES {
        let [name, content] = [0, 4].map(|at| (word(notes, at) as usize).next_multiple_of(4));
        if name == author.len() && notes[HEADER_BYTES..].starts_with(author) {
            return true;
        }
        notes = notes.get(HEADER_BYTES.saturating_add(name).saturating_add(content)..).unwrap_or_default();
    }
    false
}

/// So far before a call its number is set.
const NUMBER_BEFORE_BYTES: usize = 40;

/// Whether code has a call by its own instruction that the runtime must know of: one whose number was set right before.
fn has_calls(code: &[u8]) -> bool {
    behind_calls(code).any(|behind| {
        let end = behind - SYSCALL.len();
        let before = &code[end.saturating_sub(NUMBER_BEFORE_BYTES)..end];
        // `mov eax, NUMBER`.
        before.windows(5).any(|at| at[0] == 0xb8 && filter::from_all().any(|nr| at[1..] == (nr as u32).to_le_bytes()))
    })
}

/// Where the code is of libraries that are watched: from, to.
static WATCHED_AT: [[AtomicUsize; 2]; WATCHED] = [const { [const { AtomicUsize::new(0) }; 2] }; WATCHED];

/// Has calls trapped that come from a library's code, unless what was there before is trapped at the same addresses.
fn watch(live: &'static Live, (start, end): (usize, usize)) {
    let is_known = |place: &[AtomicUsize; 2]| place[0].load(Relaxed) <= start && end <= place[1].load(Relaxed);
    if WATCHED_AT.iter().any(is_known) {
        return;
    }
    let done = WATCHED_AT.iter().find(|place| place[1].load(Relaxed) == 0).is_some_and(|place| {
        // On a stack with room for a filter.
        let is_installed = live.with(move |_| filter::install_library((start, end), &live.fds).is_ok());
        if is_installed {
            place[0].store(start, Relaxed);
            place[1].store(end, Relaxed);
        }
        is_installed
    });
    if !done {
        live.warn(b"warning: a library makes system calls by instructions of its own, and no filter can be installed for them: a program that opens it may be ended by a signal");
    }
}

/// Serves a call of the linker's that names no managed memory.
pub fn load(live: &'static Live, args: [usize; 6]) -> isize {
    let [addr, len, prot, flags, fd, _] = args;
    let may_look = live.is_own_process() && addr == 0 && avoided::may_read_its_files();
    let manages_zeros = bss::is_wanted(live.control);
    let found = if may_look && flags == MAP_PRIVATE | MAP_DENYWRITE {
        Library::opened(fd).filter(|library| library.align <= PAGE_BYTES).map(|library| (library, fd))
    } else if may_look && flags == MAP_PRIVATE | MAP_ANONYMOUS && prot == 0 {
        let is_it = |library: &Library| library.align > PAGE_BYTES && library.reserved_bytes() == len;
        (0..DESCRIPTORS).find_map(|fd| Library::opened(fd).filter(is_it).map(|library| (library, fd)))
    } else {
        None
    };
    let Some((library, fd)) = found else { return pass(nr::MMAP, args) };
    let inside = manages_zeros && library.has_zeros();
    let at = match (inside, flags & MAP_ANONYMOUS != 0) {
        (true, true) => live.with(move |cx| mmap(live, cx, args)),
        (true, false) => map_inside(live, args).unwrap_or_else(|| pass(nr::MMAP, args)),
        _ => pass(nr::MMAP, args),
    };
    if at > 0 && library.code.1 <= len && library.makes_calls(|to, at| read_from(fd, to, at)) {
        let start = (at as usize).next_multiple_of(library.align);
        watch(
            live,
            (start + library.code.0 / PAGE_BYTES * PAGE_BYTES, (start + library.code.1).next_multiple_of(PAGE_BYTES)),
        );
    }
    at
}

/// Maps a file into managed memory. `None` where there is no room; nothing has changed then.
fn map_inside(live: &'static Live, [_, len, prot, flags, fd, offset]: [usize; 6]) -> Option<isize> {
    let count = pages(len)?;
    if !rlimits::allow(live, count as u64, 0) {
        return None;
    }
    live.with(move |_| {
        let _call = live.pager.begin_call();
        let first = live.pager.gap(count, super::map::alignment(count))?;
        if !live.pager.vacate(first, count) {
            return None;
        }
        let args = [address(first), len, prot, flags | MAP_FIXED, fd, offset];
        let (at, is_mapped) = make_foreign(live, first, count, Prot((prot & PROT_ALL) as u8), || leave(live, args));
        if !is_mapped {
            live.restore(first, count);
            return None;
        }
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these segments: kind, rights, address, bytes in the file, bytes, border.
    fn file(segments: &[[u64; 6]]) -> Vec<u8> {
        let mut file = vec![0u8; HEADER_BYTES + segments.len() * SEGMENT_BYTES];
        file[..6].copy_from_slice(&MAGIC);
        for (at, value, len) in [
            (16, ET_DYN, 2),
            (32, HEADER_BYTES as u64, 8),
            (54, SEGMENT_BYTES as u64, 2),
            (56, segments.len() as u64, 2),
        ] {
            file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        for (i, &[kind, rights, at, in_file, bytes, align]) in segments.iter().enumerate() {
            let place = &mut file[HEADER_BYTES + i * SEGMENT_BYTES..][..SEGMENT_BYTES];
            for (field, value, len) in
                [(0, kind, 4), (4, rights, 4), (16, at, 8), (32, in_file, 8), (40, bytes, 8), (48, align, 8)]
            {
                place[field..field + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        file
    }

    fn of(file: &[u8]) -> Option<Library> {
        Library::of(|to, at| file.get(at..at + to.len()).map(|bytes| to.copy_from_slice(bytes)).is_some())
    }

    #[test]
    fn how_a_library_is_to_be_loaded_stands_in_its_file() {
        const MIB: u64 = 1 << 20;
        let code = [PT_LOAD, 5, 0x0, 0x1000, 0x1000, 0x1000];
        let data = [PT_LOAD, READ_WRITE, 0x2d10, 0x300, 0x300 + 3 * MIB, 0x1000];
        let found = of(&file(&[code, data, [6, 4, 0, 0, 64 * MIB, 8]])).expect("a library");
        let [bytes, zero_bytes] = [0x3010 + 3 * MIB as usize, 3 * MIB as usize];
        let want = Library { bytes, align: 0x1000, zero_bytes, code: (0, 0x1000), code_offset: 0, is_go: false };
        assert_eq!(found, want);
        assert!(found.has_zeros());
        let wide = [PT_LOAD, READ_WRITE, 0x20_2d10, 0x300, 0x300, 0x20_0000];
        let found = of(&file(&[code, wide])).expect("a library");
        assert_eq!((found.align, found.zero_bytes, found.reserved_bytes()), (0x20_0000, 0, 0x20_3010 + 0x20_0000));
        assert!(!found.has_zeros());
        assert_eq!(of(&file(&[[PT_LOAD, 5, 0, 1, 1, 0x20_0000]])).expect("a library").reserved_bytes(), 0x40_0000);
    }

    #[test]
    fn what_is_no_library_is_none() {
        let good = file(&[[PT_LOAD, 5, 0, 1, 1, 1]]);
        assert!(of(&good).is_some() && of(&good[..good.len() - 1]).is_none() && of(b"#!/bin/sh").is_none());
        assert_eq!(of(&file(&[])), None, "nothing to be loaded");
        assert_eq!(of(&file(&[[PT_LOAD, 6, u64::MAX, 1, 1, 1]])), None, "nonsense");
        assert_eq!(of(&file(&[[PT_LOAD, 5, 0, 1, 1, 1]; SEGMENTS + 1])), None, "more than anybody has");
        let mut program = good;
        program[16] = 2;
        assert_eq!(of(&program), None, "at a fixed address");
    }

    #[test]
    fn calls_by_instructions_of_its_own_are_found() {
        let mut code = vec![0x90u8; 20_000];
        let library = |code_bytes: usize, is_go: bool| {
            let code = (0, code_bytes);
            Library { bytes: code_bytes, align: 1, zero_bytes: 0, code, code_offset: 0, is_go }
        };
        let makes = |code: &[u8]| {
            let read = |to: &mut [u8], at: usize| code.get(at..at + to.len()).map(|part| to.copy_from_slice(part));
            library(20_000, false).makes_calls(|to, at| read(to, at).is_some())
        };
        assert!(!makes(&code));
        let of_mask = [0xb8, 14, 0, 0, 0, 0x0f, 0x05];
        // Also about where parts end.
        for at in (0..100).chain(8100..8300).chain([19_993]) {
            code[at..at + 7].copy_from_slice(&of_mask);
            assert!(makes(&code), "at {at}");
            code[at + 1] = 1;
            assert!(!makes(&code), "another call");
            code[at..at + 7].fill(0x90);
        }
        (code[50], code[51], code[90], code[91]) = (0xb8, 57, 0x0f, 0x05);
        code[52..55].fill(0);
        assert!(makes(&code), "a number that is set a while before");
        assert!(!library(CODE_MAX_BYTES + 1, false).makes_calls(|_, _| panic!("too large")));
        assert!(library(20_000, true).makes_calls(|_, _| panic!("it is known")));
    }

    #[test]
    fn an_author_of_a_note_is_found_behind_others() {
        let note = |name: &[u8], content: &[u8]| {
            let mut all = [name.len() as u32, content.len() as u32, 4].map(u32::to_le_bytes).concat();
            all.extend(name);
            all.resize(all.len().next_multiple_of(4), 0);
            all.extend(content);
            all.resize(all.len().next_multiple_of(4), 0);
            all
        };
        let (gnu, go) = (note(b"GNU\0", &[7; 20]), note(b"Go\0\0", &[1; 83]));
        assert!(has_note_of(&go, &GO) && has_note_of(&[&gnu[..], &go].concat(), &GO));
        assert!(!has_note_of(&gnu, &GO) && !has_note_of(&[], &GO) && !has_note_of(&[0xff; 64], &GO));
        assert!(!has_note_of(&note(b"X", b"Go\0\0"), &GO));
    }

    #[test]
    fn only_known_calls_are_the_linkers() {
        assert!(!is_linkers(0) && !is_linkers(0x1000));
    }
}
