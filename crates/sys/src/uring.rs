//! io_uring, as far as it is needed to make several reads of a file at the same time and wait for all of them.
use crate::os::{self, MAP_POPULATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use crate::{Errno, Result, nr, ret, syscall2, syscall6};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Requests that a ring takes at one time.
pub const ENTRIES: u32 = 16;

/// Where the kernel says that the parts of a ring are: offsets of head, tail, mask, count, flags, dropped, array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    rest: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    rest: [u32; 4],
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread: [u32; 2],
    features: u32,
    wq_fd: u32,
    rest: [u32; 3],
    sq: SubmissionOffsets,
    cq: CompletionOffsets,
}
const _: () = assert!(size_of::<Parameters>() == 120);

/// `struct io_uring_sqe`, as far as a read needs it.
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    bytes: u32,
    read_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}
const _: () = assert!(size_of::<Submission>() == 64);

/// `struct io_uring_cqe`.
#[repr(C)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

const OP_READ: u8 = 22;
const FEATURE_SINGLE_MAP: u32 = 1;
const ENTER_GETEVENTS: usize = 1;
const OFFSET_RING: usize = 0;
const OFFSET_SUBMISSIONS: usize = 0x1000_0000;

/// One read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Where the bytes go.
    pub address: usize,
    /// How many.
    pub bytes: usize,
    /// Where they are in the file.
    pub offset: u64,
    /// How it ended: as a system call's return value.
    pub result: isize,
}

/// A ring, which one thread uses at a time.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Its descriptor; it does not live through exec.
    pub fd: i32,
    ring: usize,
    ring_bytes: usize,
    submissions: usize,
    sq: [u32; 3],
    cq: [u32; 4],
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// Where the kernel has none, or does not let this process have one.
    pub fn new() -> Result<Ring> {
        let mut parameters = Parameters::default();
        // SAFETY: the structure is as the kernel has it, and lives through the call.
        let fd = ret(unsafe { syscall2(nr::IO_URING_SETUP, ENTRIES as usize, &raw mut parameters as usize) })? as i32;
        let made = Ring::map(fd, &parameters);
        if made.is_err() {
            let _ = os::close(fd);
        }
        made
    }

    fn map(fd: i32, parameters: &Parameters) -> Result<Ring> {
        if parameters.features & FEATURE_SINGLE_MAP == 0 || parameters.sq_entries < ENTRIES {
            return Err(Errno::EOPNOTSUPP);
        }
        let (sq, cq) = (&parameters.sq, &parameters.cq);
        let submitted = sq.array as usize + parameters.sq_entries as usize * size_of::<u32>();
        let completed = cq.cqes as usize + parameters.cq_entries as usize * size_of::<Completion>();
        let ring_bytes = submitted.max(completed);
        let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
        // SAFETY: new mappings at places of the kernel's choice.
        let ring = unsafe { os::mmap(0, ring_bytes, prot, flags, fd, OFFSET_RING)? };
        // SAFETY: as above.
        let submissions = match unsafe { os::mmap(0, SUBMISSIONS_BYTES, prot, flags, fd, OFFSET_SUBMISSIONS) } {
            Ok(at) => at,
            Err(e) => {
                // SAFETY: mapped above, and nobody knows of it.
                let _ = unsafe { os::munmap(ring, ring_bytes) };
                return Err(e);
            }
        };
        for (at, bytes) in [(ring, ring_bytes), (submissions, SUBMISSIONS_BYTES)] {
            // A forked child must not touch what is its parent's; where it has the mappings all the same, it does not use them.
            // SAFETY: an advice that drops nothing.
            let _ = unsafe { os::madvise(at, bytes, os::MADV_DONTFORK) };
        }
        let sq = [sq.tail, sq.ring_mask, sq.array];
        let cq = [cq.head, cq.tail, cq.ring_mask, cq.cqes];
        Ok(Ring { fd, ring, ring_bytes, submissions, sq, cq })
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of a word of the ring, which is mapped as long as the ring is in use.
        unsafe { &*((self.ring + at as usize) as *const AtomicU32) }
    }

    /// Makes reads of one file at the same time, at most [`ENTRIES`], and waits for all that the kernel took. False where it
    /// did not take all: those have the result `-EAGAIN`.
    ///
    /// # Safety
    /// The memory that the reads go to is the caller's alone. No other thread uses the ring.
    pub unsafe fn read_all(&self, fd: i32, reads: &mut [Read]) -> bool {
        debug_assert!(reads.len() <= ENTRIES as usize);
        let (sq_tail, sq_mask) = (self.word(self.sq[0]), self.word(self.sq[1]).load(Relaxed));
        let first = sq_tail.load(Relaxed);
        for (i, read) in reads.iter_mut().enumerate() {
            read.result = -(Errno::EAGAIN.0 as isize);
            let index = first.wrapping_add(i as u32) & sq_mask;
            let submission = Submission {
                opcode: OP_READ,
                flags: 0,
                priority: 0,
                fd,
                offset: read.offset,
                address: read.address as u64,
                bytes: read.bytes as u32,
                read_flags: 0,
                user_data: i as u64,
                rest: [0; 3],
            };
            // SAFETY: the index is masked to the entries that are mapped, which the kernel does not read before the tail says so.
            unsafe { (self.submissions as *mut Submission).add(index as usize).write(submission) };
            self.word(self.sq[2] + index * size_of::<u32>() as u32).store(index, Relaxed);
        }
        sq_tail.store(first.wrapping_add(reads.len() as u32), Release);
        let taken = self.enter(reads.len(), reads.len()).unwrap_or(0).min(reads.len());
        if taken < reads.len() {
            // The kernel takes entries during the call only: the others never were.
            sq_tail.store(first.wrapping_add(taken as u32), Release);
        }
        let (mut done, mut waits) = (0, 0);
        while done < taken {
            let came = self.reap(reads);
            done += came;
            if came == 0 {
                // A signal, or the program has closed the descriptor: the ring lives on with its mappings.
                if self.enter(0, taken - done).is_err() {
                    os::wait_a_little(waits);
                    waits = waits.saturating_add(1);
                }
            }
        }
        taken == reads.len()
    }

    fn enter(&self, submit: usize, complete: usize) -> Result<usize> {
        // SAFETY: what was submitted is the caller's to vouch for.
        let taken = unsafe { syscall6(nr::IO_URING_ENTER, self.fd as usize, submit, complete, ENTER_GETEVENTS, 0, 0) };
        ret(taken)
    }

    /// Takes what is completed. Returns how many.
    fn reap(&self, reads: &mut [Read]) -> usize {
        let (head, tail) = (self.word(self.cq[0]), self.word(self.cq[1]).load(Acquire));
        let mask = self.word(self.cq[2]).load(Relaxed);
        let (mut at, mut count) = (head.load(Relaxed), 0);
        while at != tail {
            let index = (at & mask) as usize;
            // SAFETY: between head and tail, the kernel has written it.
            let completion = unsafe { ((self.ring + self.cq[3] as usize) as *const Completion).add(index).read() };
            if let Some(read) = reads.get_mut(completion.user_data as usize) {
                read.result = completion.result as isize;
                count += 1;
            }
            at = at.wrapping_add(1);
        }
        head.store(at, Release);
        count
    }

    /// Unmaps the ring, whose descriptor is closed.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn unmap(&self) {
        // SAFETY: mapped by `map`; the rest is as the caller says.
        let _ = unsafe { os::munmap(self.ring, self.ring_bytes) };
        // SAFETY: as above.
        let _ = unsafe { os::munmap(self.submissions, SUBMISSIONS_BYTES) };
    }

    /// Unmaps and closes the ring.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn destroy(&self) {
        // SAFETY: as the caller says.
        unsafe { self.unmap() };
        let _ = os::close(self.fd);
    }
}

const SUBMISSIONS_BYTES: usize = ENTRIES as usize * size_of::<Submission>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_as_those_of_pread() {
        let Ok(ring) = Ring::new() else {
            println!("no io_uring here");
            return;
        };
        let file = os::memfd_create(b"ring\0", 1).expect("memory");
        let content: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        assert_eq!(os::pwrite(file, &content, 0), Ok(content.len()));
        let mut memory = vec![0u8; ENTRIES as usize * 4096];
        for round in 0..50usize {
            let count = round % ENTRIES as usize + 1;
            let at = |i: usize| (i * 7919 + round * 131) % 98_000;
            let mut reads: Vec<Read> = (0..count)
                .map(|i| Read {
                    address: memory.as_mut_ptr() as usize + i * 4096,
                    bytes: 4096,
                    offset: at(i) as u64,
                    result: 1,
                })
                .collect();
            // SAFETY: each read has its part of the memory.
            assert!(unsafe { ring.read_all(file, &mut reads) });
            for (i, read) in reads.iter().enumerate() {
                let len = 4096.min(content.len() - at(i));
                assert_eq!(read.result, len as isize, "read {i} of round {round}");
                assert!(memory[i * 4096..][..len] == content[at(i)..][..len]);
            }
        }
        let mut wrong = [Read { address: memory.as_mut_ptr() as usize, bytes: 10, offset: 0, result: 0 }; 2];
        // SAFETY: nothing is read.
        let taken = unsafe { ring.read_all(-1, &mut wrong) };
        assert!(taken && wrong.iter().all(|r| r.result == -(Errno::EBADF.0 as isize)));
        // Somebody has closed it: nothing is taken, and nothing waited for.
        os::close(ring.fd).expect("ours");
        // SAFETY: nothing is read.
        assert!(!unsafe { ring.read_all(file, &mut wrong) } && wrong[0].result == -(Errno::EAGAIN.0 as isize));
        os::close(file).expect("ours");
    }
}
