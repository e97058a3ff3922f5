//! Buffers for the strings of an exec, which the kernel reads from there.
use crate::contexts::Cx;
use crate::layout::in_arena;
use crate::limits::{EXEC_BUFFER_BYTES, EXEC_BUFFER_WAITS, EXEC_BUFFERS};
use crate::live::Live;
use crate::{pins, usermem};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_sys::{Errno, os};

static OWNERS: [AtomicU32; EXEC_BUFFERS] = [const { AtomicU32::new(0) }; EXEC_BUFFERS];

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Reserves the buffers.
pub fn reserve() -> outswap_sys::Result<()> {
    BASE.store(os::mmap_anonymous(EXEC_BUFFERS * EXEC_BUFFER_BYTES)?, Release);
    Ok(())
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

/// A buffer: strings from the start up, the arrays of pointers from the end down.
pub struct Buffer {
    /// Its address.
    at: usize,
    /// Bytes of strings so far.
    pub used: usize,
}

impl Buffer {
    /// The buffer with a number, empty.
    pub fn empty(number: usize) -> Buffer {
        Buffer { at: BASE.load(Acquire) + number * EXEC_BUFFER_BYTES, used: 0 }
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
    pub fn string(&mut self, live: &Live, cx: &mut Cx, from: usize) -> Result<usize, Errno> {
        let start = self.end();
        let mut from = from;
        loop {
            let mut chunk = [0u8; 256];
            let len = chunk.len().min(4096 - from % 4096);
            if !read(live, cx, from, &mut chunk[..len]) {
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
    pub fn bytes(&mut self, live: &Live, cx: &mut Cx, from: usize) -> Result<&'static [u8], Errno> {
        let mark = self.used;
        let copy = self.string(live, cx, from)?;
        // SAFETY: just written to our buffer, of which nothing is written twice unless `used` is set back.
        Ok(unsafe { core::slice::from_raw_parts(copy as *const u8, self.used - mark - 1) })
    }

    /// Copies an array of strings; `keep` says which (by their copy), `more` are appended.
    pub fn array(
        &mut self,
        live: &Live,
        cx: &mut Cx,
        from: usize,
        keep: impl Fn(&[u8]) -> bool,
        more: &[usize],
    ) -> Result<usize, Errno> {
        let mut count = 0;
        if from != 0 {
            while word(live, cx, from + count * 8)? != 0 {
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
            let pointer = word(live, cx, from + i * 8)?;
            let bytes = self.bytes(live, cx, pointer)?;
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

fn read(live: &Live, cx: &mut Cx, from: usize, buf: &mut [u8]) -> bool {
    if in_arena(from) { pins::copy_in(live, cx, from, buf) } else { usermem::peek(from, buf) }
}

/// A pointer of the program's.
pub fn word(live: &Live, cx: &mut Cx, from: usize) -> Result<usize, Errno> {
    let mut bytes = [0u8; 8];
    read(live, cx, from, &mut bytes).then(|| usize::from_le_bytes(bytes)).ok_or(Errno::EFAULT)
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
}
