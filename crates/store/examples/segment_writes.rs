//! Measures ways to write segments to a file: one after the other or through io_uring, several at the same time or not, through the
//! page cache or past it; and what a page that is then read at random takes.
//!
//! `cargo run --release -p outswap-store --example segment_writes [DIRECTORY]`
use outswap_store::SEGMENT_BYTES;
use outswap_sys::{nr, os, ret, syscall2, syscall4, syscall6};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

const SEGMENTS: usize = 512;
const ROUNDS: usize = 9;
const READS: u64 = 500;
const PAGE_BYTES: usize = 4096;
/// The next segment comes so much later.
const BETWEEN: Duration = Duration::from_micros(150);
const O_DIRECT: usize = 0o40000;
const ENTRIES: u32 = 16;

/// A ring for writes alone: `struct io_uring_params` in words, and its two mappings.
struct Ring {
    fd: i32,
    words: [u32; 30],
    ring: usize,
    submissions: usize,
}

impl Ring {
    fn new() -> Option<Ring> {
        let mut words = [0u32; 30];
        // SAFETY: the structure has 120 bytes and lives through the call.
        let fd =
            ret(unsafe { syscall2(nr::IO_URING_SETUP, ENTRIES as usize, words.as_mut_ptr() as usize) }).ok()? as i32;
        let (prot, flags) = (os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED | os::MAP_POPULATE);
        // SAFETY: new mappings at places of the kernel's choice.
        let ring = unsafe { os::mmap(0, PAGE_BYTES, prot, flags, fd, 0) }.ok()?;
        // SAFETY: as above.
        let submissions = unsafe { os::mmap(0, ENTRIES as usize * 64, prot, flags, fd, 0x1000_0000) }.ok()?;
        Some(Ring { fd, words, ring, submissions })
    }
    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of a word of the ring, which stays mapped.
        unsafe { &*((self.ring + at as usize) as *const AtomicU32) }
    }
    fn enter(&self, submit: usize, complete: usize) {
        // SAFETY: what is submitted are writes of memory that stays.
        let done = unsafe { syscall6(nr::IO_URING_ENTER, self.fd as usize, submit, complete, 1, 0, 0) };
        assert!(ret(done) == Ok(submit), "the kernel takes what it is given");
    }
    fn write(&self, fd: i32, buffer: &[u8], offset: u64, number: u64) {
        let (tail, mask) = (self.word(self.words[11]), self.word(self.words[12]).load(Relaxed));
        let index = tail.load(Relaxed) & mask;
        // Opcode 23, descriptor; offset; address; length; user data.
        let entry = [23 | (fd as u64) << 32, offset, buffer.as_ptr() as u64, buffer.len() as u64, number, 0, 0, 0];
        // SAFETY: the index is masked to the entries that are mapped.
        unsafe { (self.submissions as *mut [u64; 8]).add(index as usize).write(entry) };
        self.word(self.words[16] + index * 4).store(index, Relaxed);
        tail.store(tail.load(Relaxed).wrapping_add(1), Release);
        self.enter(1, 0);
    }
    /// The number of a write that is over, waiting for one where that is wanted.
    fn reap(&self, wait: bool) -> Option<usize> {
        let (head, tail) = (self.word(self.words[20]), self.word(self.words[21]));
        while head.load(Relaxed) == tail.load(Acquire) {
            if !wait {
                return None;
            }
            self.enter(0, 1);
        }
        let at = head.load(Relaxed);
        let index = at & self.word(self.words[22]).load(Relaxed);
        // SAFETY: between head and tail, the kernel has written it: user data, then result and flags.
        let [number, result] =
            unsafe { ((self.ring + self.words[25] as usize) as *const [u64; 2]).add(index as usize).read() };
        assert_eq!(result as i32, SEGMENT_BYTES as i32, "it is written whole");
        head.store(at.wrapping_add(1), Release);
        Some(number as usize)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = os::close(self.fd);
    }
}

/// Processor time of this process with all its threads, those that the kernel started in it among them.
fn cpu() -> Duration {
    let mut time = [0u64; 2];
    // SAFETY: the structure has two words and lives through the call.
    unsafe { syscall2(nr::CLOCK_GETTIME, 2, time.as_mut_ptr() as usize) };
    Duration::new(time[0], time[1] as u32)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count())
}

/// Processor time of a segment, for how long its write held the caller up, threads, what a read at random took: nanoseconds.
type Measured = [u64; 4];

/// Writes all segments; `depth` of them at the same time, 0 for `pwrite`.
fn measure(directory: &[u8], buffers: &[u8], is_direct: bool, depth: usize) -> Option<Measured> {
    let flags = os::O_RDWR | os::O_CLOEXEC | os::O_TMPFILE | if is_direct { O_DIRECT } else { 0 };
    let fd = os::open(directory, flags, 0o600).ok()?;
    let ring = if depth > 0 { Some(Ring::new()?) } else { None };
    let (begun, mut held_up) = (cpu(), Duration::ZERO);
    let mut free: Vec<usize> = (0..depth.max(1)).collect();
    for segment in 0..SEGMENTS {
        let (start, offset) = (Instant::now(), (segment * SEGMENT_BYTES) as u64);
        match &ring {
            None => assert_eq!(os::pwrite(fd, &buffers[..SEGMENT_BYTES], offset), Ok(SEGMENT_BYTES)),
            Some(ring) => {
                while let Some(number) = ring.reap(free.is_empty()) {
                    free.push(number);
                }
                let number = free.pop().expect("one was waited for");
                ring.write(fd, &buffers[number * SEGMENT_BYTES..][..SEGMENT_BYTES], offset, number as u64);
            }
        }
        held_up += start.elapsed();
        std::thread::sleep(BETWEEN);
    }
    let threads = threads();
    while let Some(ring) = ring.as_ref().filter(|_| free.len() < depth) {
        free.extend(ring.reap(true));
    }
    let used = cpu() - begun;
    // Through the page cache, as a fault reads.
    // SAFETY: no memory is touched. F_SETFL, no flags.
    unsafe { syscall4(nr::FCNTL, fd as usize, 4, 0, 0) };
    let (mut page, mut state, start) = ([0; PAGE_BYTES], 88172645463325252u64, Instant::now());
    for _ in 0..READS {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (state >> 33) % (SEGMENTS * SEGMENT_BYTES / PAGE_BYTES) as u64;
        assert_eq!(os::pread(fd, &mut page, number * PAGE_BYTES as u64), Ok(PAGE_BYTES));
    }
    let read = start.elapsed().as_nanos() as u64 / READS;
    let each = |time: Duration| time.as_nanos() as u64 / SEGMENTS as u64;
    Some([each(used), each(held_up), threads as u64, read])
}

/// Measures one way, and tells the parent.
fn child(directory: &str, is_direct: bool, depth: usize) {
    let mut memory = vec![0u8; (ENTRIES as usize + 1) * SEGMENT_BYTES];
    let mut state = 88172645463325252u64;
    memory.chunks_exact_mut(8).for_each(|word| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        word.copy_from_slice(&state.to_le_bytes());
    });
    let aligned = memory.as_ptr().align_offset(PAGE_BYTES);
    let directory = format!("{directory}\0");
    if let Some(numbers) = measure(directory.as_bytes(), &memory[aligned..], is_direct, depth) {
        numbers.iter().for_each(|number| print!("{number} "));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [directory, is_direct, depth] = &arguments[..] {
        return child(directory, is_direct == "true", depth.parse().expect("a number"));
    }
    let directory = arguments.first().map_or("/var/tmp", |name| name);
    let ways: Vec<_> = [false, true].into_iter().flat_map(|direct| [0, 1, 4, 8].map(|depth| (direct, depth))).collect();
    let mut all: Vec<Vec<Measured>> = ways.iter().map(|_| Vec::new()).collect();
    let program = std::env::current_exe().expect("this program");
    // In turns that begin elsewhere each time, so that what else the machine does meets all of them. Each in a process of its own,
    // as the threads that the kernel starts for a ring stay for a while.
    for turn in (0..ROUNDS).flat_map(|round| (0..ways.len()).map(move |i| i + round * 3)) {
        let (direct, depth) = ways[turn % ways.len()];
        let run =
            std::process::Command::new(&program).args([directory, &direct.to_string(), &depth.to_string()]).output();
        let told = String::from_utf8(run.expect("it runs").stdout).expect("numbers");
        let numbers: Vec<u64> = told.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        all[turn % ways.len()].extend(Measured::try_from(numbers));
    }
    println!(
        "{SEGMENTS} segments of {SEGMENT_BYTES} bytes in {directory}, least and median of {ROUNDS} rounds in turns"
    );
    for (of, (direct, depth)) in all.iter().zip(ways) {
        let how = if direct { "O_DIRECT" } else { "page cache" };
        let way = if depth == 0 { "pwrite".into() } else { format!("io_uring, {depth} at a time") };
        if of.is_empty() {
            println!("{how}, {way}: not to be had here");
            continue;
        }
        let told = |i: usize, unit_ns: f64| {
            let mut numbers: Vec<u64> = of.iter().map(|measured| measured[i]).collect();
            numbers.sort();
            format!("{:.1} {:.1}", numbers[0] as f64 / unit_ns, numbers[numbers.len() / 2] as f64 / unit_ns)
        };
        println!(
            "{how}, {way}: processor time of a segment {} us, caller held up {} us, threads {}, a read at random {} us",
            told(0, 1e3),
            told(1, 1e3),
            told(2, 1.0),
            told(3, 1e3),
        );
    }
}
