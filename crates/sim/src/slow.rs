//! A store whose reads take time.
use outswap_core::slots::Unused;
use outswap_core::store::{Folio, Page, Read, Run, Store, StoreError, Ticket};
use outswap_core::units::SlotId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Another store, each of whose reads is over a fixed time after it was begun. Time passes when it is told to.
pub struct Slow<S> {
    /// The store.
    pub inner: S,
    delay_ticks: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    next: u64,
    /// Reads in progress: when each is over, and what is read.
    reads: BTreeMap<u64, (u64, Vec<Run>)>,
    most: usize,
}

impl<S> Slow<S> {
    /// Lets each read of a store take so many ticks.
    pub fn new(inner: S, delay_ticks: u64) -> Slow<S> {
        Slow { inner, delay_ticks, state: Mutex::default() }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// Lets time pass.
    pub fn tick(&self) {
        self.lock().now += 1;
    }
    /// The time.
    pub fn now(&self) -> u64 {
        self.lock().now
    }
    /// The most reads that were in progress at once.
    pub fn most_at_once(&self) -> usize {
        self.lock().most
    }
}

impl<S: Store> Store for Slow<S> {
    type Worker = S::Worker;

    fn put_page(&self, slot: SlotId, page: &Page, worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.put_page(slot, page, worker)
    }
    fn put_folio(&self, first: SlotId, folio: &Folio, worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.put_folio(first, folio, worker)
    }
    fn get(&self, first: SlotId, out: &mut [u8], worker: &mut S::Worker) -> Result<(), StoreError> {
        self.inner.get(first, out, worker)
    }
    fn read(&self, runs: &[Run], _: &mut [u8], _: &mut S::Worker) -> Result<Read, StoreError> {
        let mut state = self.lock();
        let (ticket, due) = (state.next, state.now + self.delay_ticks);
        state.next += 1;
        state.reads.insert(ticket, (due, runs.to_vec()));
        state.most = state.most.max(state.reads.len());
        Ok(Read::Later(Ticket(ticket)))
    }
    fn finish_read(&self, ticket: Ticket, out: &mut [u8], worker: &mut S::Worker) -> Result<Read, StoreError> {
        let runs = {
            let mut state = self.lock();
            let due = state.reads.get(&ticket.0).expect("a read that is finished was begun").0;
            if state.now < due {
                return Ok(Read::Later(ticket));
            }
            state.reads.remove(&ticket.0).expect("it was found").1
        };
        runs.iter().try_for_each(|run| self.inner.get(run.first, run.part(out), worker))?;
        Ok(Read::Done)
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
