//! Libraries that the program opens while it runs (`dlopen`). One that begins with many zeros (`.bss`) is put into managed memory, where
//! these are memory like any other; its code and its data are mappings of a file there, which are the kernel's.
//!
//! The dynamic linker maps a library in one piece first, and then segments and zeros over parts of that, so that it is enough to choose the
//! place of the first piece. That is one of the library's file; or one of nothing, a reservation, where segments are to begin at larger
//! borders than pages. Then the file is not named: it is one of those that are open, and what is asked for is as long as it needs.
use super::common::*;
use super::map::{leave, make_foreign, mmap};
use crate::arena::address;
use crate::bss::LEAST_BYTES;
use crate::limits::LINKER_CALLS;
use crate::live::Live;
use crate::{avoided, rlimits};
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
/// Rights of a segment that is data.
const READ_WRITE: u64 = 6;

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
        let (mut start, mut end, mut library) = (usize::MAX, 0, Library { bytes: 0, align: 1, zero_bytes: 0 });
        for segment in segments.chunks_exact(SEGMENT_BYTES).filter(|segment| number(segment, 0, 4) == PT_LOAD) {
            let [at, in_file, bytes, align] = [16, 32, 40, 48].map(|field| number(segment, field, 8) as usize);
            let (filled, last) = (at.checked_add(in_file)?, at.checked_add(bytes)?);
            (start, end) = (start.min(at & !(PAGE_BYTES - 1)), end.max(last));
            library.align = library.align.max(align);
            if number(segment, 4, 4) == READ_WRITE {
                let zeros = last
                    .checked_next_multiple_of(PAGE_BYTES)?
                    .saturating_sub(filled.checked_next_multiple_of(PAGE_BYTES)?);
                library.zero_bytes = library.zero_bytes.max(zeros);
            }
        }
        library.bytes = end.checked_sub(start)?;
        Some(library)
    }

    /// That which a descriptor is open on.
    fn opened(fd: usize) -> Option<Library> {
        let fd = fd as i32;
        if !os::fstat(fd).is_ok_and(|file| file.is_regular()) {
            return None;
        }
        Library::of(|to, at| os::pread(fd, to, at as u64) == Ok(to.len()))
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

/// Serves a call of the linker's that names no managed memory.
pub fn load(live: &'static Live, args: [usize; 6]) -> isize {
    let [addr, len, prot, flags, fd, _] = args;
    let may_look = live.is_own_process() && addr == 0 && avoided::may_read_its_files();
    if may_look && flags == MAP_PRIVATE | MAP_DENYWRITE {
        let is_wanted = Library::opened(fd).is_some_and(|library| library.has_zeros() && library.align <= PAGE_BYTES);
        if is_wanted && let Some(at) = map_inside(live, args) {
            return at;
        }
    }
    if may_look && flags == MAP_PRIVATE | MAP_ANONYMOUS && prot == 0 {
        let is_it =
            |library: Library| library.has_zeros() && library.align > PAGE_BYTES && library.reserved_bytes() == len;
        if (0..DESCRIPTORS).any(|fd| Library::opened(fd).is_some_and(is_it)) {
            return live.with(move |cx| mmap(live, cx, args));
        }
    }
    pass(nr::MMAP, args)
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
        assert_eq!(found, Library { bytes: 0x3010 + 3 * MIB as usize, align: 0x1000, zero_bytes: 3 * MIB as usize });
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
    fn only_known_calls_are_the_linkers() {
        assert!(!is_linkers(0) && !is_linkers(0x1000));
    }
}
