//! A store that exists only as a table, fails as it is told to, and insists on its contract.
use crate::sabotage::Sabotage;
use crate::sched::{Rng, step};
use outswap_core::slots::Unused;
use outswap_core::store::{Folio, Page, Read, Run, Store, StoreError, Stored, Ticket, Write};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// How often things go wrong: once in so many times, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Puts that are refused.
    pub full_in: u32,
    /// How many puts fail in a row when one does.
    pub burst: u32,
    /// Reads that fail, and may succeed the next time.
    pub io_in: u32,
    /// Puts after which the slot can never be read.
    pub dead_in: u32,
    /// Puts that store a wrong bit.
    pub corrupt_in: u32,
    /// Pages that fit; 0 for any number.
    pub capacity: usize,
    /// Reads and writes that are over later.
    pub later_in: u32,
    /// Groups of 16 slots that are said to be slow: once in so many, in turns.
    pub slow_in: u32,
    /// Times that a slow slot is said to be scarce: once in so many.
    pub scarce_in: u32,
}

#[derive(Default)]
struct Slot {
    content: Option<Box<Page>>,
    corrupt: bool,
    /// Can never be read again.
    dead: bool,
    /// Calls at work on it.
    at_work: u32,
}

/// What is to be done later.
enum Job {
    Read(Vec<Run>),
    /// First slots, and where the contents lie.
    Write(Vec<(SlotId, usize, usize)>),
}

struct Inner {
    rng: Rng,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    trouble: Trouble,
    slots: Vec<Slot>,
    used: usize,
    refuse: u32,
    /// Never tells that something is wrong.
    silent: bool,
}

/// The store.
pub struct SimStore {
    inner: Mutex<Inner>,
    sabotage: Sabotage,
}

/// What the store did to the context's last fault.
#[derive(Default)]
pub struct Worker {
    /// It gave something wrong, or said so.
    pub saw_corrupt: bool,
    /// A read failed.
    pub saw_io: bool,
}

impl SimStore {
    /// A store of so many slots.
    pub fn new(seed: u64, slots: usize, trouble: Trouble, sabotage: Sabotage) -> Self {
        let slots = (0..slots).map(|_| Slot::default()).collect();
        SimStore {
            inner: Mutex::new(Inner {
                rng: Rng(seed),
                jobs: BTreeMap::new(),
                next_job: 0,
                trouble,
                slots,
                used: 0,
                refuse: 0,
                silent: false,
            }),
            sabotage,
        }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// From now on nothing goes wrong, and everything fits. What is damaged stays damaged.
    pub fn calm(&self) {
        let mut s = self.lock();
        s.trouble = Trouble::default();
        s.refuse = 0;
    }
    /// From now on everything is stored with a wrong bit, and the store does not notice.
    pub fn damage_puts(&self) {
        let mut s = self.lock();
        (s.trouble.corrupt_in, s.silent) = (1, true);
    }
    /// In each process after a fork: what goes wrong from now on is another matter.
    pub fn forked(&self, seed: u64) {
        self.lock().rng = Rng(seed);
    }
    /// Slots that hold something.
    pub fn used_slots(&self) -> u64 {
        self.lock().used as u64
    }

    /// Remembers a job of slots that are at work until it is done, if it is to be done later.
    fn later(&self, slots: impl Iterator<Item = (SlotId, usize)>, job: impl FnOnce() -> Job) -> Option<Ticket> {
        let mut s = self.lock();
        let later_in = s.trouble.later_in;
        if !s.rng.once_in(later_in) {
            return None;
        }
        s.at_work(slots, true);
        let ticket = s.next_job;
        s.next_job += 1;
        s.jobs.insert(ticket, job());
        Some(Ticket(ticket))
    }
    /// A job whose time has come.
    fn due(&self, ticket: Ticket) -> Option<Job> {
        step();
        let mut s = self.lock();
        if s.rng.once_in(2) {
            return None;
        }
        Some(s.jobs.remove(&ticket.0).expect("a ticket is good until its job is done"))
    }
    /// The content of a folio that is being written.
    fn content(at: usize, bytes: usize) -> &'static [u8] {
        // SAFETY: what is to be stored stays where it is until the write is over, and it is read before that only.
        unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }
    }

    fn store(&self, first: SlotId, pages: &[u8]) -> Result<(), StoreError> {
        step();
        let count = pages.len() / PAGE_BYTES;
        assert!(Order::of(count).is_some_and(|order| order.fits_at(first.0 as usize)), "a folio's slots are aligned");
        let mut s = self.lock();
        let trouble = s.trouble;
        if s.refuse > 0 {
            s.refuse -= 1;
            return Err(StoreError::Full);
        }
        if s.rng.once_in(trouble.full_in) {
            s.refuse = s.rng.below(trouble.burst as usize + 1) as u32;
            return Err(StoreError::Full);
        }
        if trouble.capacity != 0 && s.used + count > trouble.capacity {
            return Err(StoreError::Full);
        }
        for i in 0..count {
            let slot = &mut s.slots[first.0 as usize + i];
            assert!(slot.content.is_none() && slot.at_work == 0, "put: slot {} is in use", first.0 as usize + i);
            slot.at_work += 1;
        }
        drop(s);
        // The bytes are read while others run.
        for (i, page) in pages.chunks_exact(PAGE_BYTES).enumerate() {
            step();
            let mut copy: Box<Page> = Box::new([0; PAGE_BYTES]);
            copy.copy_from_slice(page);
            let mut s = self.lock();
            let corrupt = s.rng.once_in(trouble.corrupt_in);
            if corrupt {
                let bit = s.rng.below(PAGE_BYTES * 8);
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            let dead = s.rng.once_in(trouble.dead_in);
            s.used += 1;
            let slot = &mut s.slots[first.0 as usize + i];
            *slot = Slot { content: Some(copy), corrupt, dead, at_work: slot.at_work - 1 };
        }
        step();
        Ok(())
    }
}

impl Inner {
    fn is_slow(&self, slot: SlotId) -> bool {
        let slow_in = self.trouble.slow_in;
        slow_in != 0 && (slot.0 / 16).is_multiple_of(slow_in)
    }
    fn at_work(&mut self, slots: impl Iterator<Item = (SlotId, usize)>, begins: bool) {
        for (first, pages) in slots {
            for slot in &mut self.slots[first.0 as usize..first.0 as usize + pages] {
                slot.at_work = if begins { slot.at_work + 1 } else { slot.at_work - 1 };
            }
        }
    }
}

fn slots_of(runs: &[Run]) -> impl Iterator<Item = (SlotId, usize)> {
    runs.iter().map(|run| (run.first, run.pages as usize))
}

impl Store for SimStore {
    type Worker = Worker;

    fn put(&self, first: SlotId, content: &[u8], _: &mut Worker) -> Result<(), StoreError> {
        self.store(first, content)
    }

    fn write(&self, folios: &[Folio<'_>], _: &mut Worker) -> Write {
        let slots = folios.iter().map(|f| (f.first, f.content.len() / PAGE_BYTES));
        let job =
            || Job::Write(folios.iter().map(|f| (f.first, f.content.as_ptr() as usize, f.content.len())).collect());
        if let Some(ticket) = self.later(slots, job) {
            return Write::Later(ticket);
        }
        let mut stored = Stored::default();
        for (i, folio) in folios.iter().enumerate() {
            if self.store(folio.first, folio.content).is_ok() {
                stored.insert(i);
            }
        }
        Write::Done(stored)
    }

    fn finish_write(&self, ticket: Ticket, _: &mut Worker) -> Write {
        let Some(job) = self.due(ticket) else { return Write::Later(ticket) };
        let Job::Write(folios) = job else { panic!("a write is finished as one") };
        let mut stored = Stored::default();
        for (i, (first, at, bytes)) in folios.into_iter().enumerate() {
            self.lock().at_work([(first, bytes / PAGE_BYTES)].into_iter(), false);
            if self.store(first, Self::content(at, bytes)).is_ok() {
                stored.insert(i);
            }
        }
        Write::Done(stored)
    }

    fn read(&self, runs: &[Run], out: &mut [u8], worker: &mut Worker) -> Result<Read, StoreError> {
        if let Some(ticket) = self.later(slots_of(runs), || Job::Read(runs.to_vec())) {
            return Ok(Read::Later(ticket));
        }
        runs.iter().try_for_each(|run| self.get(run.first, run.part(out), worker))?;
        Ok(Read::Done)
    }

    fn finish_read(&self, ticket: Ticket, out: &mut [u8], worker: &mut Worker) -> Result<Read, StoreError> {
        let Some(job) = self.due(ticket) else { return Ok(Read::Later(ticket)) };
        let Job::Read(runs) = job else { panic!("a read is finished as one") };
        self.lock().at_work(slots_of(&runs), false);
        runs.iter().try_for_each(|run| self.get(run.first, run.part(out), worker))?;
        Ok(Read::Done)
    }

    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut Worker) -> Result<(), StoreError> {
        step();
        let count = out.len() / PAGE_BYTES;
        let mut s = self.lock();
        let range = first.0 as usize..first.0 as usize + count;
        for i in range.clone() {
            assert!(s.slots[i].content.is_some(), "get: slot {i} holds nothing");
        }
        let trouble = s.trouble;
        if s.rng.once_in(trouble.io_in) || range.clone().any(|i| s.slots[i].dead) {
            worker.saw_io = true;
            return Err(StoreError::Io);
        }
        if range.clone().any(|i| s.slots[i].corrupt) && !s.silent && s.rng.once_in(3) {
            worker.saw_corrupt = true;
            return Err(StoreError::Corrupt);
        }
        range.clone().for_each(|i| s.slots[i].at_work += 1);
        drop(s);
        for (i, out) in range.zip(out.chunks_exact_mut(PAGE_BYTES)) {
            step();
            let mut s = self.lock();
            let wrong = self.sabotage == Sabotage::StoreWrongPage && s.rng.once_in(20);
            let from =
                if wrong { (i + 1..s.slots.len()).find(|&k| s.slots[k].content.is_some()).unwrap_or(i) } else { i };
            let slot = &s.slots[from];
            worker.saw_corrupt |= slot.corrupt;
            out.copy_from_slice(&slot.content.as_ref().expect("held while at work")[..]);
            if self.sabotage == Sabotage::StoreForgets && s.rng.once_in(20) {
                out.fill(0);
            }
            s.slots[i].at_work -= 1;
        }
        step();
        Ok(())
    }

    fn is_synchronous(&self, slot: SlotId) -> bool {
        !self.lock().is_slow(slot)
    }

    fn is_scarce(&self, slot: SlotId) -> bool {
        let mut s = self.lock();
        let scarce_in = s.trouble.scarce_in;
        let is_slow = s.is_slow(slot);
        !is_slow || s.rng.once_in(scarce_in)
    }

    fn free(&self, slot: Unused) {
        let slot = slot.slot();
        step();
        let mut s = self.lock();
        let entry = &mut s.slots[slot.0 as usize];
        assert_eq!(entry.at_work, 0, "free: slot {} is being read or written", slot.0);
        assert!(entry.content.is_some(), "free: slot {} holds nothing", slot.0);
        *entry = Slot::default();
        s.used -= 1;
        drop(s);
        step();
    }

    fn memory_bytes(&self) -> u64 {
        (self.lock().used * PAGE_BYTES) as u64
    }

    fn shrink(&self, _: u64, _: &mut Worker) -> u64 {
        0
    }
}
