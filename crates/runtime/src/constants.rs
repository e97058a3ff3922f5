//! Constants that the dynamic linker has filled in: what of the program and its libraries is only read once the addresses in it are known
//! (`PT_GNU_RELRO`). The kernel counts them as anonymous memory of each process by itself, 11 MiB where one is linked to LLVM, and takes
//! them for its own swap; there is none here.
//!
//! Where they are much for the limit, they go into a file without a name beside the swap file, which is mapped in their place, private
//! and to be read only, as they were. So they are a file's pages, as code is: the kernel drops them where memory is short, and reads them
//! where they are touched. System calls may name them, children inherit them, and who makes them writable gets copies of what is written to.
//!
//! At the start of a process, while it has one thread; and of a library that is opened later as the linker protects them, before anybody else
//! has it. So nobody writes there meanwhile. What is mapped is on the disk before: what cannot be written there later would be lost.
use crate::contexts::Cx;
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::process::raise;
use crate::segments::{PT_RELRO, Segment, each_object};
use crate::{avoided, bss, memory};
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use outswap_control::{Control, until_nul};
use outswap_core::units::PAGE_BYTES;
use outswap_store::{NewFile, make_file};
use outswap_sys::signal::without_sigxfsz;
use outswap_sys::{Errno, Result, nr, os, procfs};

/// Of an object with less, they are left where they are.
const LEAST_BYTES: usize = 256 << 10;
/// Of a process with less, too.
const LEAST_ALL_BYTES: usize = 1 << 20;
/// Less than this part of the limit is no matter.
const SHARE: u64 = 32;
/// Objects whose constants are moved.
const OBJECTS: usize = 32;

/// Where constants lie, from the first to behind the last of them, in whole pages.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Place {
    start: usize,
    end: usize,
}

impl Place {
    /// Those of an object, as the linker has protected them.
    fn of(base: usize, segments: &[Segment]) -> Option<Place> {
        let segment = segments.iter().find(|segment| segment.kind == PT_RELRO)?;
        let start = base.wrapping_add(segment.at as usize);
        let end = start.checked_add(segment.bytes as usize)? & !(PAGE_BYTES - 1);
        let start = start & !(PAGE_BYTES - 1);
        (start.checked_add(LEAST_BYTES)? <= end).then_some(Place { start, end })
    }

    fn bytes(self) -> usize {
        self.end - self.start
    }

    /// What is there.
    ///
    /// # Safety
    /// It is mapped, and stays as it is.
    unsafe fn content<'a>(self) -> &'a [u8] {
        // SAFETY: the caller vouches.
        unsafe { slice::from_raw_parts(self.start as *const u8, self.bytes()) }
    }

    /// Whether they are mostly memory of this process's own.
    fn is_filled_in(self, pagemap: i32) -> bool {
        own_pages(pagemap, self).is_some_and(|pages| 2 * pages * PAGE_BYTES >= self.bytes())
    }
}

/// Bytes of all of them together.
fn all_bytes(places: &[Place]) -> usize {
    places.iter().map(|place| place.bytes()).sum()
}

/// Each of them, with where it begins in the file, in which they lie one behind the other.
fn in_file(places: &[Place]) -> impl Iterator<Item = (Place, usize)> + '_ {
    places.iter().enumerate().map(|(at, place)| (*place, all_bytes(&places[..at])))
}

/// Pages of a range that are anonymous memory.
fn own_pages(pagemap: i32, place: Place) -> Option<usize> {
    /// In a word of the file: the page is in memory; it is a file's.
    const PRESENT: u64 = 1 << 63;
    const FILES: u64 = 1 << 61;
    const WORDS: usize = 512;
    let (mut words, count) = ([0u8; 8 * WORDS], place.bytes() / PAGE_BYTES);
    let mut own = 0;
    for done in (0..count).step_by(WORDS) {
        let part = &mut words[..(count - done).min(WORDS) * 8];
        let offset = (place.start / PAGE_BYTES + done) * 8;
        if os::pread(pagemap, part, offset as u64) != Ok(part.len()) {
            return None;
        }
        let words = part.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        own += words.filter(|word| word & (PRESENT | FILES) == PRESENT).count();
    }
    Some(own)
}

/// Bytes of constants that this process had when it started, and of libraries that it has opened since.
static KNOWN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether they are to be managed in this run, which has a limit that they count in, and a file on a disk.
fn is_wanted(control: &Control) -> bool {
    let config = &control.config;
    let has_file = config.tiers.iter().any(|tier| until_nul(&tier.kind) == b"file") && config.file_in_memory == 0;
    has_file && config.ram_bytes > 0 && bss::is_wanted(control)
}

/// Whether there are so many that they matter for the limit.
fn are_many(control: &Control) -> bool {
    let bytes = KNOWN_BYTES.load(Relaxed);
    bytes >= LEAST_ALL_BYTES && bytes as u64 >= control.config.ram_bytes / SHARE
}

/// Moves the constants of this process into a file, where that is wanted and possible. To be called while it has one thread.
pub fn put_into_file(control: &Control) {
    if !is_wanted(control) {
        return;
    }
    let (mut places, mut count) = ([Place::default(); OBJECTS], 0);
    each_object(|base, _, segments| {
        if let Some(place) = Place::of(base, segments) {
            places[count] = place;
            count += 1;
        }
        count == OBJECTS
    });
    let places = &mut places[..count];
    KNOWN_BYTES.fetch_add(all_bytes(places), Relaxed);
    if are_many(control) && bss::is_alone() {
        move_away(control, places, None);
    }
}

/// Serves a call of the linker's that protects memory: constants of a library, if it is only to be read.
///
/// # Panics
/// Never: it is a call for memory.
pub fn protect(live: &Live, cx: &mut Cx, args: [usize; 6]) -> isize {
    let [start, bytes, rights, ..] = args;
    let done = memory::call(live, nr::MPROTECT, args, cx).expect("a call for memory");
    let is_kernels = !overlaps_managed(start, bytes) || memory::is_kernels(live, start, bytes);
    let are_constants = rights == os::PROT_READ && bytes >= LEAST_BYTES && (start | bytes).is_multiple_of(PAGE_BYTES);
    if done != 0 || !are_constants || !is_kernels || !live.is_own_process() || !is_wanted(live.control) {
        return done;
    }
    KNOWN_BYTES.fetch_add(bytes, Relaxed);
    if avoided::may_open_files() && are_many(live.control) {
        move_away(live.control, &mut [Place { start, end: start + bytes }], Some(live.control_fd));
    }
    done
}

/// Moves constants into a file, of those places where there are any. Descriptors are as high as `min_fd` says, where the program may have
/// others.
fn move_away(control: &Control, places: &mut [Place], min_fd: Option<i32>) {
    let Ok(pagemap) = os::open(b"/proc/self/pagemap\0", os::O_RDONLY | os::O_CLOEXEC, 0) else { return };
    let mut are_constant = [false; OBJECTS];
    procfs::each_mapping(&mut [0; 4096], |mapping| {
        for (place, is) in places.iter().zip(&mut are_constant) {
            *is |= mapping.start <= place.start && place.end <= mapping.end && mapping.rights == b"r--p";
        }
    });
    let mut kept = 0;
    for at in 0..places.len() {
        if are_constant[at] && places[at].is_filled_in(pagemap) {
            places[kept] = places[at];
            kept += 1;
        }
    }
    let _ = os::close(pagemap);
    let places = &places[..kept];
    if places.is_empty() {
        return;
    }
    let swap_dir = &control.config.swap_dir;
    let Ok(mut file) = make_file(&swap_dir[..=until_nul(swap_dir).len()]) else { return };
    if let Some(min_fd) = min_fd {
        [&mut file.write_fd, &mut file.read_fd].into_iter().for_each(|fd| *fd = raise(*fd, min_fd));
    }
    if is_new(&file) && write(file.write_fd, places).is_ok() && are_same(file.read_fd, places) {
        for (place, offset) in in_file(places) {
            if !replace(place, file.read_fd, offset) {
                control.post(b"error: constants of a library could not be mapped again; a process was ended to keep its data safe");
                os::exit_group(125);
            }
        }
    }
    let _ = os::close(file.write_fd);
    let _ = os::close(file.read_fd);
}

/// Whether both descriptors are of one file that has no name and nothing in it: a program can put others in the place of any.
fn is_new(file: &NewFile) -> bool {
    let [one, other] =
        [file.write_fd, file.read_fd].map(|fd| os::fstat(fd).ok().map(|s| (s.device, s.inode, s.links, s.size_bytes)));
    one == other && one.is_some_and(|(.., links, bytes)| (links, bytes) == (0, 0))
}

/// Writes what is in places one behind the other, until it is on the disk.
fn write(fd: i32, places: &[Place]) -> Result<()> {
    for (place, offset) in in_file(places) {
        // SAFETY: the linker's constants.
        let content = unsafe { place.content() };
        let mut done = 0;
        while done < content.len() {
            let write = || os::pwrite(fd, &content[done..], (offset + done) as u64);
            done += match without_sigxfsz(write, |done| *done == Err(Errno::EFBIG))? {
                0 => return Err(Errno::ENOSPC),
                written => written,
            };
        }
    }
    os::fdatasync(fd)
}

/// Whether the file has them, as a mapping of it shows, and can be mapped at all.
fn are_same(fd: i32, places: &[Place]) -> bool {
    let bytes = all_bytes(places);
    // SAFETY: no address is given, so nothing is replaced.
    let Ok(at) = (unsafe { os::mmap(0, bytes, os::PROT_READ, os::MAP_PRIVATE, fd, 0) }) else { return false };
    let are = in_file(places).all(|(place, offset)| {
        let mapped = Place { start: at + offset, end: at + offset + place.bytes() };
        // SAFETY: constants, and the file's of so many bytes; it is nobody else's, and has become no shorter.
        unsafe { place.content() == mapped.content() }
    });
    // SAFETY: the mapping that was just made.
    let _ = unsafe { os::munmap(at, bytes) };
    are
}

/// Maps a part of the file where it came from. False where nothing is there any more.
fn replace(place: Place, fd: i32, offset: usize) -> bool {
    let flags = os::MAP_PRIVATE | os::MAP_FIXED;
    // SAFETY: what the file has of it is the same, byte by byte, and nobody else is at work who could see that it is gone for a moment.
    let mapped = unsafe { os::mmap(place.start, place.bytes(), os::PROT_READ, flags, fd, offset) };
    if mapped.is_err() {
        return os::mincore(place.start, PAGE_BYTES, &mut [0]).is_ok();
    }
    // SAFETY: nothing is read or written there but what follows, after which it is as before.
    let protect = |rights| unsafe { os::mprotect(place.start, place.bytes(), rights) };
    // A page of its own makes it a mapping that is in core dumps, as before: debuggers look there for the libraries.
    if protect(os::PROT_READ | os::PROT_WRITE).is_ok() {
        let first = place.start as *mut u8;
        // SAFETY: the byte becomes what it is.
        unsafe { first.write_volatile(first.read_volatile()) };
        let _ = protect(os::PROT_READ);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::PT_LOAD;

    fn segment(kind: u32, at: u64, bytes: u64) -> Segment {
        Segment { kind, rights: 4, offset: 0, at, physical: 0, file_bytes: bytes, bytes, align: 1 }
    }

    #[test]
    fn constants_are_whole_pages_of_a_segment() {
        const MIB: u64 = 1 << 20;
        let base = 0x7f00_0000_0000;
        let of = |kind, at, bytes| Place::of(base, &[segment(PT_LOAD, 0, 64 * MIB), segment(kind, at, bytes)]);
        let found = |start: u64, end: u64| Some(Place { start: base + start as usize, end: base + end as usize });
        assert_eq!(of(PT_RELRO, 0x1d10, MIB + 0x2f0), found(0x1000, MIB + 0x2000));
        assert_eq!(
            of(PT_RELRO, 0x1d10, MIB + 0x2ef),
            found(0x1000, MIB + 0x1000),
            "what shares its page with data is data"
        );
        assert_eq!(of(PT_RELRO, 0x1000, LEAST_BYTES as u64), found(0x1000, 0x1000 + LEAST_BYTES as u64));
        assert_eq!(of(PT_RELRO, 0x1000, LEAST_BYTES as u64 - 1), None, "little");
        assert_eq!(of(PT_LOAD, 0x1000, MIB), None, "none");
        assert_eq!(of(PT_RELRO, 0x1000, u64::MAX), None, "nonsense");
    }

    #[test]
    fn pages_of_ones_own_are_told_from_a_files() {
        let pagemap = os::open(b"/proc/self/pagemap\0", os::O_RDONLY, 0).expect("it is there");
        let fd = os::open(b"/proc/self/exe\0", os::O_RDONLY, 0).expect("it is there");
        // SAFETY: no address is given; the mapping is this test's alone.
        let start = unsafe {
            let start =
                os::mmap(0, 4 * PAGE_BYTES, os::PROT_READ | os::PROT_WRITE, os::MAP_PRIVATE, fd, 0).expect("memory");
            let at = |page: usize| (start + page * PAGE_BYTES) as *mut u8;
            at(1).write_volatile(1);
            at(3).write_volatile(at(2).read_volatile());
            start
        };
        assert_eq!(own_pages(pagemap, Place { start, end: start + 4 * PAGE_BYTES }), Some(2));
        let _ = (os::close(pagemap), os::close(fd));
    }
}
