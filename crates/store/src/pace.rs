//! Tiers that are slowed to a device: what is asked of them is done when the device's model says so, and not before.
//!
//! The model is [`outswap_core::device`]. What the device is at stands in memory that all processes of a run share, so that they
//! get in each other's way as they would. Whoever dies while he changes it holds up the others for some milliseconds, and whatever
//! is written there can only make a wait wrong, and never longer than [`BACKLOG_MAX_NS`].
use crate::broken::{self, Broken};
use crate::io::{FileIo, FileRead, NewFile};
use crate::limits::{BACKLOG_MAX_NS, MAX_TIERS, REQUEST_BYTES_MAX, WRITES_BEHIND};
use crate::stats::add;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use outswap_core::device::{DEPTH_MAX, Device, Request, State};
use outswap_sys::{Result, os};

/// Words that tell what a device is at: who changes it, its head, its bus, its lanes.
pub const DEVICE_STATE_WORDS: usize = LANES + DEPTH_MAX;
/// What the devices of all tiers are at. All zero: nothing.
pub type DeviceStates = [[AtomicU64; DEVICE_STATE_WORDS]; MAX_TIERS];

/// Odd while somebody changes the others.
const CHANGES: usize = 0;
const HEAD: usize = 1;
const BUS: usize = 2;
const LANES: usize = 3;

/// Waits after which whoever changes a state is taken for dead: some milliseconds.
const DEAD_SPINS: u32 = 1200;
/// What is left of a wait when sleeping ends: a sleep takes about so much longer than it should.
const AWAKE_NS: u64 = 80_000;

/// How slow a tier is. All-zero memory: as fast as it can be.
#[derive(Default)]
pub(crate) struct Pace {
    device: Device,
    /// Where the words of its state are; 0 where there is no device.
    state: usize,
    /// When the last writes are done that nobody waits for.
    behind_ns: [AtomicU64; WRITES_BEHIND],
    next_behind: AtomicU32,
    pub requests: AtomicU64,
    /// Sum of what the requests took, and of what was waited for them.
    pub taken_ns: AtomicU64,
    pub waited_ns: AtomicU64,
}

impl Pace {
    /// Becomes as slow as a device.
    pub fn set(&mut self, device: Device, state: &'static [AtomicU64; DEVICE_STATE_WORDS]) {
        self.device = device;
        self.state = core::ptr::from_ref(state) as usize;
    }

    fn words(&self) -> Option<&[AtomicU64; DEVICE_STATE_WORDS]> {
        // SAFETY: `set` was given words that live as long as the store.
        (self.state != 0).then(|| unsafe { &*(self.state as *const [AtomicU64; DEVICE_STATE_WORDS]) })
    }

    /// In a forked child, which counts for itself and has written nothing yet.
    pub fn begin_child(&self) {
        let counters = [&self.requests, &self.taken_ns, &self.waited_ns];
        counters.into_iter().chain(&self.behind_ns).for_each(|word| word.store(0, Relaxed));
    }

    /// Makes a request of the device. Returns when it is done; 0 where there is no device.
    pub fn begin(&self, request: &Request) -> u64 {
        let Some(words) = self.words() else { return 0 };
        let mine = enter(words);
        let now_ns = os::monotonic_ns();
        let soon_ns = now_ns + BACKLOG_MAX_NS;
        let mut state = State {
            head: words[HEAD].load(Relaxed),
            bus_free_ns: words[BUS].load(Relaxed).min(soon_ns),
            lanes_free_ns: core::array::from_fn(|i| words[LANES + i].load(Relaxed).min(soon_ns)),
        };
        let done_ns = self.device.serve(&mut state, request, now_ns).min(soon_ns);
        words[HEAD].store(state.head, Relaxed);
        words[BUS].store(state.bus_free_ns, Relaxed);
        for (word, free_ns) in words[LANES..].iter().zip(state.lanes_free_ns) {
            word.store(free_ns, Relaxed);
        }
        // Unless somebody took this thread for dead.
        let _ = words[CHANGES].compare_exchange(mine, mine.wrapping_add(1), Release, Relaxed);
        add(&self.requests, 1);
        add(&self.taken_ns, done_ns - now_ns);
        done_ns
    }

    /// Waits until something is done.
    pub fn wait(&self, done_ns: u64) {
        if done_ns == 0 || broken::is(Broken::DeviceUnawaited) {
            return;
        }
        let begun_ns = os::monotonic_ns();
        let mut now_ns = begun_ns;
        while now_ns < done_ns {
            match (done_ns - now_ns).checked_sub(AWAKE_NS) {
                Some(sleep_ns) if sleep_ns > 0 => os::sleep_ns(sleep_ns),
                // Others may need the processor.
                _ => os::sched_yield(),
            }
            now_ns = os::monotonic_ns();
        }
        add(&self.waited_ns, now_ns - begun_ns);
    }

    /// Writes, and waits only where the device is far behind.
    pub fn write(&self, offset: u64, bytes: u64) {
        let done_ns = self.begin(&Request { is_write: true, offset, bytes });
        if done_ns != 0 {
            let next = self.next_behind.fetch_add(1, Relaxed) as usize % WRITES_BEHIND;
            self.wait(self.behind_ns[next].swap(done_ns, Relaxed));
        }
    }
}

/// Waits for whoever changes a state. Returns the number of the change that is now the caller's.
fn enter(words: &[AtomicU64; DEVICE_STATE_WORDS]) -> u64 {
    let mut spins = 0;
    loop {
        let seen = words[CHANGES].load(Relaxed);
        let is_free = seen.is_multiple_of(2);
        let mine = seen.wrapping_add(if is_free { 1 } else { 2 });
        if (is_free || spins >= DEAD_SPINS) && words[CHANGES].compare_exchange(seen, mine, Acquire, Relaxed).is_ok() {
            return mine;
        }
        os::wait_a_little(spins);
        spins = spins.saturating_add(1);
    }
}

/// Requests of one call to a tier in RAM that is slowed to a device: its blocks are the slots, and neighbours are one request. All
/// of a call are made at once, and waited for together. All-zero memory: none.
#[derive(Clone, Copy)]
pub(crate) struct Requests {
    /// The number + 1 of the tier that `gathered` is not made of yet; 0: it is nothing.
    of: u8,
    gathered: Request,
    done_ns: [u64; MAX_TIERS],
}

impl Requests {
    /// Adds one.
    pub fn add(&mut self, paces: &[Pace; MAX_TIERS], tier: usize, request: Request) {
        if paces[tier].state == 0 {
            return;
        }
        let of = tier as u8 + 1;
        if self.of != of || !self.gathered.join(&request, REQUEST_BYTES_MAX) {
            self.make(paces);
            (self.of, self.gathered) = (of, request);
        }
    }

    fn make(&mut self, paces: &[Pace; MAX_TIERS]) {
        let Some(tier) = (core::mem::take(&mut self.of) as usize).checked_sub(1) else { return };
        let (pace, request) = (&paces[tier], self.gathered);
        if request.is_write {
            pace.write(request.offset, request.bytes);
        } else {
            self.done_ns[tier] = self.done_ns[tier].max(pace.begin(&request));
        }
    }

    /// Makes those that are gathered, and waits for all reads.
    pub fn end(&mut self, paces: &[Pace; MAX_TIERS]) {
        self.make(paces);
        for (pace, done_ns) in paces.iter().zip(&mut self.done_ns) {
            pace.wait(core::mem::take(done_ns));
        }
    }
}

/// The system, as slow as a device where there is one.
pub(crate) struct Paced<I> {
    pub inner: I,
    pub pace: Pace,
}

impl<I> Paced<I> {
    /// As fast as it can be.
    pub fn new(inner: I) -> Paced<I> {
        Paced { inner, pace: Pace::default() }
    }
}

impl<I: FileIo> FileIo for Paced<I> {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
        let done_ns = self.pace.begin(&Request { is_write: false, offset, bytes: buf.len() as u64 });
        let result = self.inner.pread(fd, buf, offset);
        self.pace.wait(done_ns);
        result
    }
    fn pread_all(&self, fd: i32, reads: &mut [FileRead<'_>]) {
        let mut done_ns = 0;
        for read in &*reads {
            let request = Request { is_write: false, offset: read.offset, bytes: read.buf.len() as u64 };
            done_ns = done_ns.max(self.pace.begin(&request));
        }
        self.inner.pread_all(fd, reads);
        self.pace.wait(done_ns);
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
        let result = self.inner.pwrite(fd, buf, offset);
        if let Ok(bytes) = result {
            self.pace.write(offset, bytes as u64);
        }
        result
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(fd, offset, len)
    }
    fn begin(&self, min_fd: i32) {
        self.inner.begin(min_fd);
    }
    fn end(&self) {
        self.inner.end();
    }
    fn begin_child(&self, min_fd: i32) {
        self.inner.begin_child(min_fd);
    }
    fn descriptor(&self) -> Option<i32> {
        self.inner.descriptor()
    }
    fn reads_together(&self) -> u64 {
        self.inner.reads_together()
    }
    fn create(&self, directory_fd: i32) -> Result<NewFile> {
        self.inner.create(directory_fd)
    }
    fn request(&self, requests_fd: i32) -> Result<NewFile> {
        self.inner.request(requests_fd)
    }
    fn random(&self, buf: &mut [u8]) -> Result<()> {
        self.inner.random(buf)
    }
    fn size_limit_bytes(&self) -> u64 {
        self.inner.size_limit_bytes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pace of its own, for who looks at it alone.
    pub(crate) fn of(device: Device, state: &'static [AtomicU64; DEVICE_STATE_WORDS]) -> Pace {
        let mut pace = Pace::default();
        pace.set(device, state);
        pace
    }
}
