//! The system, with io_uring where the kernel lets us have it: reads that a fault wants from several places of a file are made at
//! the same time.
//!
//! Only reads: those wait in the disk's queue, or are answered from the page cache at once. Writes to files would make the kernel
//! start threads in the program's process. A ring is made while the process has one thread, and ends before the process gives up
//! rights: a filter of the program's may not know the call. Without one, the reads are made one after the other.
use crate::broken::{self, Broken};
use crate::io::{self, FileIo, FileRead, LiveIo};
use crate::lock::SpinLock;
use crate::stats::add;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};
use outswap_sys::uring::{self, Ring};
use outswap_sys::{Errno, Result};

/// The real system, with a ring of this process's own where there can be one.
#[derive(Default)]
pub struct RingIo {
    ring: SpinLock<Option<Ring>>,
    /// The ring's descriptor + 1, for who may not wait for the lock; 0: there is none.
    fd: AtomicI32,
    /// Reads that were made at the same time as others.
    together: AtomicU64,
}

impl RingIo {
    /// Makes several reads through the ring. False where there is none, or another thread uses it.
    fn try_all(&self, fd: i32, reads: &mut [FileRead<'_>]) -> bool {
        let count = reads.len();
        if !(2..=uring::ENTRIES as usize).contains(&count) || broken::is(Broken::RingUnused) {
            return false;
        }
        let Some(guard) = self.ring.try_lock() else { return false };
        let Some(ring) = *guard else { return false };
        let mut asked = [uring::Read { address: 0, bytes: 0, offset: 0, result: 0 }; uring::ENTRIES as usize];
        let asked = &mut asked[..count];
        for (to, from) in asked.iter_mut().zip(&mut *reads) {
            *to = uring::Read {
                address: from.buf.as_mut_ptr() as usize,
                bytes: from.buf.len(),
                offset: from.offset,
                result: 0,
            };
        }
        // SAFETY: the buffers are exclusively borrowed until all reads that were begun are over; the lock is held.
        unsafe { ring.read_all(fd, asked) };
        drop(guard);
        for (to, from) in reads.iter_mut().zip(asked) {
            to.result = outswap_sys::ret(from.result);
        }
        add(&self.together, count as u64);
        true
    }
}

impl FileIo for RingIo {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
        LiveIo.pread(fd, buf, offset)
    }
    fn pread_all(&self, fd: i32, reads: &mut [FileRead<'_>]) {
        let done = self.try_all(fd, reads);
        for read in reads.iter_mut().filter(|read| !done || read.result == Err(Errno::EAGAIN)) {
            read.result = LiveIo.pread(fd, read.buf, read.offset);
        }
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
        LiveIo.pwrite(fd, buf, offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()> {
        LiveIo.punch(fd, offset, len)
    }
    fn begin(&self, min_fd: i32) {
        let Ok(mut ring) = Ring::new() else { return };
        let Ok(fd) = io::raise(ring.fd, min_fd) else {
            // SAFETY: nobody has seen it; its descriptor is closed.
            unsafe { ring.unmap() };
            return;
        };
        ring.fd = fd;
        *self.ring.lock() = Some(ring);
        self.fd.store(fd + 1, Release);
    }
    fn end(&self) {
        let ring = self.ring.lock().take();
        if let Some(ring) = ring {
            // SAFETY: it was taken out under the lock that its users hold.
            unsafe { ring.destroy() };
            self.fd.store(0, Release);
        }
    }
    fn begin_child(&self, min_fd: i32) {
        // The lock is not held while another ring is made.
        let ring = self.ring.lock().take();
        if let Some(ring) = ring {
            // The parent's: its mappings were not inherited.
            let _ = outswap_sys::os::close(ring.fd);
            self.fd.store(0, Release);
            self.together.store(0, Relaxed);
            self.begin(min_fd);
        }
    }
    fn descriptor(&self) -> Option<i32> {
        self.fd.load(Acquire).checked_sub(1).filter(|fd| *fd >= 0)
    }
    fn reads_together(&self) -> u64 {
        self.together.load(Relaxed)
    }
}
