//! A store whose reads and writes take time.
use crate::clock::Clock;
use outswap_core::slots::Unused;
use outswap_core::store::{Folio, Read, Run, Store, StoreError, Stored, Ticket, Write};
use outswap_core::units::SlotId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Another store, each of whose reads and writes is over a fixed time after it was begun.
pub struct Slow<S> {
    /// The store.
    pub inner: S,
    clock: Clock,
    delay_ns: u64,
    state: Mutex<State>,
}

/// A folio that is to be stored: its first slot, and where its content lies.
type Pending = (SlotId, usize, usize);

#[derive(Default)]
struct State {
    next: u64,
    /// Reads in progress: when each is over, and what is read.
    reads: BTreeMap<u64, (u64, Vec<Run>)>,
    /// The same of writes.
    writes: BTreeMap<u64, (u64, Vec<Pending>)>,
    most_reads: usize,
    most_writes: usize,
}

impl<S> Slow<S> {
    /// Lets each read and write of a store take so long.
    pub fn new(inner: S, clock: Clock, delay_ns: u64) -> Slow<S> {
        Slow { inner, clock, delay_ns, state: Mutex::default() }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// The most reads, and writes, that were in progress at once.
    pub fn most_at_once(&self) -> (usize, usize) {
        let state = self.lock();
        (state.most_reads, state.most_writes)
    }
    fn due_ns(&self) -> u64 {
        self.clock.now_ns() + self.delay_ns
    }
}

impl<S: Store> Store for Slow<S> {
    type Worker = S::Worker;

    fn put(&self, first: SlotId, content: &[u8], worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.put(first, content, worker)
    }
    fn write(&self, folios: &[Folio<'_>], _: &mut S::Worker) -> Write {
        let due_ns = self.due_ns();
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        let pending = folios.iter().map(|f| (f.first, f.content.as_ptr() as usize, f.content.len())).collect();
        state.writes.insert(ticket, (due_ns, pending));
        state.most_writes = state.most_writes.max(state.writes.len());
        Write::Later(Ticket(ticket))
    }
    fn finish_write(&self, ticket: Ticket, worker: &mut S::Worker) -> Write {
        let pending = {
            let mut state = self.lock();
            let due_ns = state.writes.get(&ticket.0).expect("a write that is finished was begun").0;
            if self.clock.now_ns() < due_ns {
                return Write::Later(ticket);
            }
            state.writes.remove(&ticket.0).expect("it was found").1
        };
        let mut stored = Stored::default();
        for (i, (first, at, bytes)) in pending.into_iter().enumerate() {
            // SAFETY: what is to be stored stays where it is until the write is over.
            let content = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
            if self.inner.put(first, content, worker).is_ok() {
                stored.insert(i);
            }
        }
        Write::Done(stored)
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.get(first, out, worker)
    }
    fn read(&self, runs: &[Run], _: &mut [u8], _: &mut S::Worker) -> Result<Read, StoreError> {
        let due_ns = self.due_ns();
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.reads.insert(ticket, (due_ns, runs.to_vec()));
        state.most_reads = state.most_reads.max(state.reads.len());
        Ok(Read::Later(Ticket(ticket)))
    }
    fn finish_read(&self, ticket: Ticket, out: &mut [u8], worker: &mut S::Worker) -> Result<Read, StoreError> {
        let runs = {
            let mut state = self.lock();
            let due_ns = state.reads.get(&ticket.0).expect("a read that is finished was begun").0;
            if self.clock.now_ns() < due_ns {
                return Ok(Read::Later(ticket));
            }
            state.reads.remove(&ticket.0).expect("it was found").1
        };
        runs.iter().try_for_each(|run| self.inner.get(run.first, run.part(out), worker))?;
        Ok(Read::Done)
    }
    fn is_synchronous(&self, _: SlotId) -> bool {
        false
    }
    fn is_scarce(&self, slot: SlotId) -> bool {
        self.inner.is_scarce(slot)
    }
    fn free(&self, slot: Unused) {
        self.inner.free(slot);
    }
    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }
    fn shrink(&self, bytes: u64, worker: &mut S::Worker) -> u64 {
        self.inner.shrink(bytes, worker)
    }
}
