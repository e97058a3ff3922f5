//! Threads that put pages into an index, write them out and take them from it, as reclaim and faults do.
use std::sync::Barrier;
use std::time::Instant;

use outswap_core::page::{Pages, Word};
use outswap_core::slots::Slots;
use outswap_core::units::{FrameNo, Order, PageNo, SlotId};

use crate::experiments::contention::index::{Index, Timer, pause};
use crate::experiments::leak::Leak;

/// Pages that go together, as in the kernel's reclaim.
const BATCH: usize = 32;
/// Slots that one thread uses side by side, as those of a cluster.
const CLUSTER: usize = 512;

/// What is done to an index, in order.
pub const STEPS: [&str; 4] = ["add", "writeback start", "writeback end", "remove"];

/// Takes no time.
struct Untimed;

impl Timer for Untimed {
    #[inline]
    fn time<T>(&mut self, take: impl FnOnce() -> T) -> T {
        take()
    }
}

/// Adds up the cycles of taking locks.
struct Cycles {
    sum: u64,
    /// What two looks at the counter take by themselves.
    own: u64,
}

fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and the kernel lets programs read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Cycles {
    fn new() -> Cycles {
        let own = (0..1000).map(|_| {
            let start = cycles();
            cycles() - start
        });
        Cycles { sum: 0, own: own.min().unwrap_or(0) }
    }
}

impl Timer for Cycles {
    #[inline]
    fn time<T>(&mut self, take: impl FnOnce() -> T) -> T {
        let start = cycles();
        let taken = take();
        self.sum += cycles().saturating_sub(start).saturating_sub(self.own);
        taken
    }
}

/// What the threads work on. The states of pages are kept as Outswap keeps them, whatever the index is.
pub struct Bed {
    pages: Pages,
    slots: Slots,
    count: usize,
}

impl Bed {
    /// For so many slots, and as many pages. `None` where there is no memory.
    pub fn new(slots: usize) -> Option<Bed> {
        let count = slots.next_multiple_of(CLUSTER);
        Some(Bed { pages: Pages::new(&Leak, count)?, slots: Slots::new(&Leak, count)?, count })
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.count
    }
}

/// What some threads took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Took {
    /// Pages that went through all steps, a second.
    pub pages_per_s: f64,
    /// Part of the threads' cycles in which they took the lock of the index, by step; where that was measured.
    pub lock_shares: Option<[f64; STEPS.len()]>,
}

/// One thread: its pages, a batch at a time, until `pages` have gone through. With `from_map`, slots are asked of the slot map
/// each time; else those of every `threads`th cluster are its own. Gives the cycles of the locks.
fn work<I: Index, T: Timer>(
    bed: &Bed,
    index: &I,
    place: (usize, usize),
    pages: usize,
    from_map: bool,
    timers: &mut [T; STEPS.len()],
) -> Result<(), String> {
    let (thread, threads) = place;
    let clusters: Vec<usize> = (thread..bed.count / CLUSTER).step_by(threads).collect();
    if clusters.is_empty() {
        return Err("there are fewer clusters than threads".to_owned());
    }
    let (mut batch, wrong) = (Vec::with_capacity(BATCH), |slot: SlotId| format!("slot {} has lost its page", slot.0));
    for number in 0..pages.div_ceil(BATCH) {
        batch.clear();
        let start = clusters[number * BATCH / CLUSTER % clusters.len()] * CLUSTER + number * BATCH % CLUSTER;
        for page in start..start + BATCH {
            let slot = if from_map { bed.slots.alloc(Order::PAGE, thread, pause) } else { Some(SlotId(page as u32)) };
            batch.push((PageNo(page as u32), slot.ok_or("there are no slots left")?));
        }
        for &(page, slot) in &batch {
            let seen = bed.pages.get(page);
            if !bed.pages.claim(page, seen) {
                return Err(wrong(slot));
            }
            index.add(slot, u64::from(page.0), &mut timers[0]);
            bed.pages.release(page, Word::resident(Some(slot), Order::PAGE));
        }
        for &(page, slot) in &batch {
            let seen = bed.pages.get(page);
            if seen.slot() != Some(slot) || !bed.pages.claim(page, seen) {
                return Err(wrong(slot));
            }
            bed.pages.release(page, Word::isolated(FrameNo(page.0), Order::PAGE));
            index.start(slot, &mut timers[1]);
        }
        batch.iter().for_each(|&(_, slot)| index.end(slot, &mut timers[2]));
        for &(page, slot) in &batch {
            let seen = bed.pages.get(page);
            if !bed.pages.claim(page, seen) || !index.remove(slot, u64::from(page.0), &mut timers[3]) {
                return Err(wrong(slot));
            }
            bed.pages.release(page, Word::swapped(slot, Order::PAGE));
        }
        for &(page, slot) in &batch {
            // As one that is discarded: it starts from nothing again.
            let seen = bed.pages.get(page);
            if seen.slot() != Some(slot) || !bed.pages.claim(page, seen) {
                return Err(wrong(slot));
            }
            bed.pages.release(page, Word::UNTOUCHED);
            if from_map {
                bed.slots.put(slot, pause, |_| ());
            }
        }
    }
    Ok(())
}

/// Has threads put `pages` pages in all through an index. With `timed`, the time of its locks is taken, which costs some.
pub fn run<I: Index>(
    bed: &Bed,
    index: &I,
    threads: usize,
    pages: usize,
    from_map: bool,
    timed: bool,
) -> Result<Took, String> {
    let barrier = &Barrier::new(threads);
    let one = |thread: usize| {
        let place = (thread, threads);
        let mut locks = std::array::from_fn(|_| Cycles::new());
        barrier.wait();
        let (start, first) = (Instant::now(), cycles());
        let result = if timed {
            work(bed, index, place, pages / threads, from_map, &mut locks)
        } else {
            work(bed, index, place, pages / threads, from_map, &mut [const { Untimed }; STEPS.len()])
        };
        result.map(|()| (start, Instant::now(), cycles() - first, locks.map(|lock| lock.sum)))
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic aborts the process")).collect()
    });
    let ended = ended.into_iter().collect::<Result<Vec<_>, String>>()?;
    if !index.is_empty() {
        return Err("pages are left in the index".to_owned());
    }
    let start = ended.iter().map(|t| t.0).min().ok_or("no threads")?;
    let end = ended.iter().map(|t| t.1).max().ok_or("no threads")?;
    let all: u64 = ended.iter().map(|t| t.2).sum();
    let share = |step: usize| ended.iter().map(|t| t.3[step]).sum::<u64>() as f64 / all.max(1) as f64;
    let done = (pages / threads).div_ceil(BATCH) * BATCH * threads;
    Ok(Took {
        pages_per_s: done as f64 / (end - start).as_secs_f64().max(1e-9),
        lock_shares: timed.then(|| std::array::from_fn(share)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::contention::index::{Locked, Ours, SHARD_SLOTS_LOG2};

    #[test]
    fn pages_go_through_every_index_with_one_thread_and_with_several() {
        let bed = Bed::new(1 << 15).expect("there is memory");
        for threads in [1, 3] {
            for (from_map, timed) in [(false, false), (true, false), (false, true)] {
                let tagged = Locked::single(bed.slots(), true);
                let sharded = Locked::new(bed.slots(), SHARD_SLOTS_LOG2, false);
                let all = [
                    run(&bed, &tagged, threads, 5000, from_map, timed),
                    run(&bed, &sharded, threads, 5000, from_map, timed),
                    run(&bed, &Ours::default(), threads, 5000, from_map, timed),
                ];
                for took in all {
                    let took = took.expect("nothing is lost");
                    assert!(took.pages_per_s > 0.0 && took.lock_shares.is_some() == timed);
                }
            }
        }
    }

    /// An index that forgets: the load must notice.
    struct Forgets(Locked);
    impl Index for Forgets {
        fn add(&self, slot: SlotId, value: u64, lock: &mut impl Timer) {
            if value != 77 {
                self.0.add(slot, value, lock);
            }
        }
        fn start(&self, _: SlotId, _: &mut impl Timer) {}
        fn end(&self, _: SlotId, _: &mut impl Timer) {}
        fn remove(&self, slot: SlotId, value: u64, lock: &mut impl Timer) -> bool {
            self.0.remove(slot, value, lock)
        }
        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn a_page_that_an_index_loses_is_noticed() {
        let bed = Bed::new(1 << 12).expect("there is memory");
        let lost = run(&bed, &Forgets(Locked::single(bed.slots(), false)), 1, 4096, false, false);
        assert_eq!(lost, Err("slot 77 has lost its page".to_owned()));
    }
}
