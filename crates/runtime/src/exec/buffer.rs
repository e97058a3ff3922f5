//! Buffers for the strings of an exec, which the kernel reads from there.
use crate::limits::{EXEC_BUFFER_BYTES, EXEC_BUFFER_WAITS, EXEC_BUFFERS};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_sys::{Errno, os, tables};

/// Reads the program's memory from an address on. False where it is not readable.
pub type Read<'a> = dyn FnMut(usize, &mut [u8]) -> bool + 'a;

/// The threads that have the buffers, 0 for none.
static OWNERS: [AtomicU32; EXEC_BUFFERS] = [const { AtomicU32::new(0) }; EXEC_BUFFERS];

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Reserves the buffers.
pub fn reserve() -> outswap_sys::Result<()> {
    BASE.store(tables::map(EXEC_BUFFERS * EACH_BYTES)?, Release);
    Ok(())
}

/// What a buffer takes: strings, then pages that are kept.
const EACH_BYTES: usize = EXEC_BUFFER_BYTES + size_of::<Kept>();

fn start(number: usize) -> usize {
    assert!(number < EXEC_BUFFERS, "one of the buffers");
    BASE.load(Acquire) + number * EACH_BYTES
}

/// In a forked child: no other thread is at work on a buffer.
pub fn forget() {
    OWNERS.iter().for_each(|owner| owner.store(0, Release));
}

/// Takes a buffer for the calling thread. Returns its number.
///
/// # Errors
/// As [`take_buffer`].
pub fn take(is_alive: impl Fn(i32) -> bool) -> Result<usize, Errno> {
    take_buffer(&OWNERS, os::gettid(), is_alive, os::wait_a_little)
}

/// Gives a buffer back.
pub fn give_back(buffer: usize) {
    OWNERS[buffer].store(0, Release);
}

/// Takes a buffer for a thread, waiting a while where all are in use. Buffers of threads that were killed before their exec, or
/// executed another program, are taken back.
///
/// # Errors
/// `EAGAIN` where none becomes free.
fn take_buffer(
    owners: &[AtomicU32],
    tid: i32,
    is_alive: impl Fn(i32) -> bool,
    mut pause: impl FnMut(u32),
) -> Result<usize, Errno> {
    let tid = tid as u32;
    for spins in 0..EXEC_BUFFER_WAITS {
        let free = owners.iter().position(|o| o.compare_exchange(0, tid, AcqRel, Relaxed).is_ok());
        let found = free.or_else(|| {
            owners.iter().position(|o| {
                let owner = o.load(Acquire);
                !is_alive(owner as i32) && o.compare_exchange(owner, tid, AcqRel, Relaxed).is_ok()
            })
        });
        match found {
            Some(found) => return Ok(found),
            None => pause(spins),
        }
    }
    Err(Errno::EAGAIN)
}

/// A buffer being filled: strings and arrays of pointers, one after the other.
pub struct Buffer {
    /// Its address.
    at: usize,
    /// Bytes so far. Set back, it takes back what was written since.
    pub used: usize,
}

impl Buffer {
    /// The buffer with a number, empty.
    pub fn empty(number: usize) -> Buffer {
        Buffer { at: start(number), used: 0 }
    }

    /// A buffer for a test.
    #[cfg(test)]
    pub fn for_test() -> Buffer {
        Buffer { at: os::mmap_anonymous(EXEC_BUFFER_BYTES).expect("memory"), used: 0 }
    }

    /// Where the next string will start.
    pub fn end(&self) -> usize {
        self.at + self.used
    }

    fn room(&mut self, bytes: usize) -> Result<usize, Errno> {
        let at = self.used;
        self.used = at.checked_add(bytes).filter(|u| *u <= EXEC_BUFFER_BYTES).ok_or(Errno::E2BIG)?;
        Ok(self.at + at)
    }

    /// Copies a NUL-terminated string of the program's.
    pub fn string(&mut self, read: &mut Read<'_>, from: usize) -> Result<usize, Errno> {
        let start = self.end();
        let mut from = from;
        loop {
            let mut chunk = [0u8; 256];
            let len = chunk.len().min(4096 - from % 4096);
            if !read(from, &mut chunk[..len]) {
                return Err(Errno::EFAULT);
            }
            let end = chunk[..len].iter().position(|b| *b == 0);
            let take = end.map_or(len, |e| e + 1);
            let at = self.room(take)?;
            // SAFETY: room of that size in our buffer.
            unsafe { core::ptr::copy_nonoverlapping(chunk.as_ptr(), at as *mut u8, take) };
            if end.is_some() {
                return Ok(start);
            }
            from += len;
        }
    }

    /// Appends bytes.
    pub fn put(&mut self, part: &[u8]) -> Result<(), Errno> {
        let at = self.room(part.len())?;
        // SAFETY: room of that size in our buffer.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), at as *mut u8, part.len()) };
        Ok(())
    }

    /// Appends a NUL-terminated string of several parts; returns its address.
    pub fn text(&mut self, parts: &[&[u8]]) -> Result<usize, Errno> {
        let start = self.end();
        parts.iter().chain([&b"\0".as_slice()]).try_for_each(|part| self.put(part))?;
        Ok(start)
    }

    /// Copies a NUL-terminated string of the program's, and gives the copy without the NUL. It stays until the buffer is
    /// given back.
    pub fn bytes(&mut self, read: &mut Read<'_>, from: usize) -> Result<&'static [u8], Errno> {
        let mark = self.used;
        let copy = self.string(read, from)?;
        // SAFETY: just written to our buffer, of which nothing is written twice unless `used` is set back.
        Ok(unsafe { core::slice::from_raw_parts(copy as *const u8, self.used - mark - 1) })
    }

    /// Copies an array of strings; `keep` says which (by their copy), `more` are appended.
    pub fn array(
        &mut self,
        read: &mut Read<'_>,
        from: usize,
        keep: impl Fn(&[u8]) -> bool,
        more: &[usize],
    ) -> Result<usize, Errno> {
        let mut count = 0;
        if from != 0 {
            while word(read, from + count * 8)? != 0 {
                count += 1;
                if count * 8 > EXEC_BUFFER_BYTES {
                    return Err(Errno::E2BIG);
                }
            }
        }
        self.used = self.used.next_multiple_of(8);
        let array = self.room((count + more.len() + 1) * 8)? as *mut usize;
        let mut n = 0;
        for i in 0..count {
            let mark = self.used;
            let pointer = word(read, from + i * 8)?;
            let bytes = self.bytes(read, pointer)?;
            if keep(bytes) {
                // SAFETY: within the array.
                unsafe { *array.add(n) = bytes.as_ptr() as usize };
                n += 1;
            } else {
                self.used = mark;
            }
        }
        for pointer in more.iter().chain([&0]) {
            // SAFETY: within the array.
            unsafe { *array.add(n) = *pointer };
            n += 1;
        }
        Ok(array as usize)
    }
}

/// Bytes of a page, whatever is looked for in it.
const PAGE: usize = outswap_sys::PAGE_BYTES;

/// Pages of the program's that are kept while its strings are read: those with pointers, and those with the strings that they point to, which
/// a shell has all over its heap.
pub const KEPT: usize = 32;

/// Memory for them.
pub type Kept = [[u8; PAGE]; KEPT];

/// That of the buffer with a number.
///
/// # Safety
/// The buffer is the calling thread's, and nobody has what this gave before.
pub unsafe fn kept(number: usize) -> &'static mut Kept {
    // SAFETY: a part of the buffer's memory in which no strings are, whole pages of zeros or of what was there; the caller has it alone.
    unsafe { &mut *((start(number) + EXEC_BUFFER_BYTES) as *mut Kept) }
}

/// Reads memory of the program's by whole pages, of which some are kept. Each page that is read costs a call of the kernel, and strings
/// are many.
pub struct Pages<'a, F> {
    /// Reads from an address on. False where nothing is readable.
    read: F,
    addresses: [Option<usize>; KEPT],
    bytes: &'a mut Kept,
    /// When each was used last, by counting.
    used: [u64; KEPT],
    uses: u64,
}

impl<F: FnMut(usize, &mut [u8]) -> bool> Pages<'_, F> {
    /// None is kept yet.
    pub fn new(read: F, bytes: &mut Kept) -> Pages<'_, F> {
        Pages { read, addresses: [None; KEPT], bytes, used: [0; KEPT], uses: 0 }
    }

    /// Reads from an address on. False where that is not readable.
    pub fn read(&mut self, from: usize, buf: &mut [u8]) -> bool {
        let at = from % PAGE;
        let page = from - at;
        if at + buf.len() > PAGE {
            return (self.read)(from, buf);
        }
        let kept = self.addresses.iter().position(|address| *address == Some(page));
        let oldest = || (0..KEPT).min_by_key(|&i| self.used[i]).unwrap_or(0);
        let i = kept.unwrap_or_else(oldest);
        if kept.is_none() {
            self.addresses[i] = None;
            if !(self.read)(page, &mut self.bytes[i]) {
                return false;
            }
            self.addresses[i] = Some(page);
        }
        self.uses += 1;
        self.used[i] = self.uses;
        buf.copy_from_slice(&self.bytes[i][at..at + buf.len()]);
        true
    }
}

/// A pointer of the program's.
pub fn word(read: &mut Read<'_>, from: usize) -> Result<usize, Errno> {
    let mut bytes = [0u8; 8];
    read(from, &mut bytes).then(|| usize::from_le_bytes(bytes)).ok_or(Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_a_killed_thread_is_taken_back_and_that_of_a_live_one_waited_for() {
        let owners = [const { AtomicU32::new(0) }; 3];
        let never = |_: u32| panic!("there is a buffer");
        assert_eq!(take_buffer(&owners, 10, |_| true, never), Ok(0));
        assert_eq!(take_buffer(&owners, 11, |_| true, never), Ok(1));
        assert_eq!(take_buffer(&owners, 12, |_| true, never), Ok(2));
        assert_eq!(take_buffer(&owners, 13, |tid| tid != 11, never), Ok(1));
        assert_eq!(owners[1].load(Relaxed), 13);
        let mut waits = 0;
        let give_back = |_: u32| {
            waits += 1;
            if waits == 5 {
                owners[2].store(0, Relaxed);
            }
        };
        assert_eq!(take_buffer(&owners, 14, |tid| tid != 0, give_back), Ok(2));
        assert_eq!(waits, 5);
        assert_eq!(take_buffer(&owners, 15, |_| true, |_| ()), Err(Errno::EAGAIN), "no wait is without an end");
    }

    /// Reads this process's own memory, but not its first page.
    fn own(from: usize, buf: &mut [u8]) -> bool {
        if from < 4096 {
            return false;
        }
        // SAFETY: the tests name strings and arrays of theirs, and the rest of a page behind them is mapped.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, buf.as_mut_ptr(), buf.len()) };
        true
    }

    /// A text at the start of a page of its own.
    fn text(len: usize) -> usize {
        let at = os::mmap_anonymous(len + 4096).expect("memory");
        // SAFETY: fresh memory of that size.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }.fill(b'x');
        at
    }

    #[test]
    fn strings_are_copied_whatever_their_length() {
        let mut buffer = Buffer::for_test();
        for len in [0, 1, 255, 256, 257, 4095, 4096, 10_000] {
            let copy = buffer.bytes(&mut own, text(len)).expect("readable");
            assert_eq!((copy.len(), copy.iter().all(|b| *b == b'x')), (len, true));
        }
        assert_eq!(buffer.bytes(&mut own, 8), Err(Errno::EFAULT));
    }

    #[test]
    fn an_array_has_what_is_kept_and_what_is_added() {
        let mut buffer = Buffer::for_test();
        let strings = [text(1), text(2), text(3)];
        let array = [strings[0], strings[1], strings[2], 0];
        let more = buffer.text(&[b"A", b"=", b"1"]).expect("room");
        let odd = |entry: &[u8]| entry.len() != 2;
        let at = buffer.array(&mut own, array.as_ptr() as usize, odd, &[more]).expect("readable");
        // SAFETY: the array that was just made: three pointers and a null pointer.
        let made = unsafe { core::slice::from_raw_parts(at as *const usize, 4) };
        assert_eq!((made[2], made[3]), (more, 0));
        // SAFETY: they point to NUL-terminated strings.
        let made = made[..3].iter().map(|at| unsafe { core::ffi::CStr::from_ptr(*at as *const _) }.to_bytes());
        assert_eq!(made.collect::<Vec<_>>(), [b"x".as_slice(), b"xxx", b"A=1"]);
        assert_eq!((at % 8, buffer.end() - at), (0, 5 * 8 + 2 + 4), "what is not kept takes no room for its text");
        let none = buffer.array(&mut own, 0, |_| true, &[]).expect("no array is an empty one");
        // SAFETY: as above.
        assert_eq!(unsafe { *(none as *const usize) }, 0);
        assert_eq!(buffer.array(&mut own, [8usize, 0].as_ptr() as usize, |_| true, &[]), Err(Errno::EFAULT));
        assert_eq!(buffer.array(&mut own, 8, |_| true, &[]), Err(Errno::EFAULT));
    }

    #[test]
    fn pages_are_read_once_and_right() {
        let mut reads = Vec::new();
        let byte = |at: usize| (at / 3) as u8;
        const LAST: usize = 3 * KEPT;
        let mut kept = Box::new([[0; PAGE]; KEPT]);
        let fill = |from: usize, buf: &mut [u8]| {
            reads.push(from);
            buf.iter_mut().enumerate().for_each(|(i, b)| *b = byte(from + i));
            from < LAST * PAGE
        };
        let mut pages = Pages::new(fill, &mut kept);
        let mut look = |from: usize, len: usize| {
            let mut buf = vec![0; len];
            let ok = pages.read(from, &mut buf);
            assert!(!ok || buf.iter().enumerate().all(|(i, b)| *b == byte(from + i)), "{from} {len}");
            ok
        };
        for i in 0..2 * KEPT {
            assert!(look(PAGE + i * 8, 8) && look((3 + i % (KEPT - 1)) * PAGE + i * 50, 100), "pointers and strings");
        }
        let mut want: Vec<_> = [1].into_iter().chain(3..KEPT + 2).map(|page| page * PAGE).collect();
        assert!(look(PAGE - 3, 8), "across a border");
        assert!(look(LAST / 2 * PAGE, PAGE) && look(PAGE, 1), "in place of what was used longest ago");
        assert!(!look(LAST * PAGE, 1) && !look(LAST * PAGE, 1), "what cannot be read is not kept");
        assert!(look(PAGE, 1) && look(LAST / 2 * PAGE, 1));
        want.extend([PAGE - 3, LAST / 2 * PAGE, LAST * PAGE, LAST * PAGE]);
        assert_eq!(reads, want);
    }

    #[test]
    fn what_does_not_fit_is_too_much() {
        let mut buffer = Buffer::for_test();
        let long = text(EXEC_BUFFER_BYTES / 2);
        assert!(buffer.string(&mut own, long).is_ok());
        assert_eq!(buffer.string(&mut own, long), Err(Errno::E2BIG));
    }
}
