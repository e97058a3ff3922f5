//! Room under the limit: step by step, pages are isolated, and the oldest isolated ones written out.
use crate::broken::{self, Broken};
use crate::isolate::{Isolated, Wanted};
use crate::machine::{Event, Machine};
use crate::pager::{Context, Pager, Policies};
use crate::reclaim::Reclaim;
use crate::store::Store;
use crate::sync::Ordering::Relaxed;

/// Steps without success after which the limit is exceeded: alone, and while other threads are at it.
const IDLE_STEPS: u32 = 4;
const IDLE_STEPS_WITH_WORK: u32 = 40;
/// Pages that come in without an attempt to make room after one that failed.
const REST_PAGES: u32 = 16;

/// What one step of reclaim achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many frames were freed.
    Freed(usize),
    /// Pages were isolated.
    Isolated,
    /// Nothing can be evicted now.
    Nothing,
    /// The stores have no room.
    StoreFull,
}

/// An attempt to make room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Pages that are to fit.
    pages: usize,
    started: bool,
    idle: u32,
}

/// How an attempt to make room goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// There is room, or there is none to be had and the limit is exceeded (false).
    Done(bool),
    /// Others are about to make some, perhaps: look again after a pause of this length.
    Wait(u32),
}

impl Room {
    /// Room for so many pages more.
    pub(crate) fn new(pages: usize) -> Room {
        Room { pages, started: false, idle: 0 }
    }
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Reclaims in the caller until `pages` more fit under the limit, or nothing more can be done (false).
    pub fn make_room(&self, pages: usize, cx: &mut Context<S::Worker>) -> bool {
        let mut room = Room::new(pages);
        loop {
            match self.room_step(&mut room, cx) {
                Made::Done(made) => return made,
                Made::Wait(spins) => self.machine.pause(spins),
            }
        }
    }

    /// Reclaims for an attempt to make room, up to where it has to wait.
    pub(crate) fn room_step(&self, room: &mut Room, cx: &mut Context<S::Worker>) -> Made {
        let fits = || self.used_pages() + room.pages as u64 <= self.limit_pages() || broken::is(Broken::NoLimit);
        if !room.started && !fits() {
            // Where nothing could be evicted just now, the next faults need not find that out again: a full store is slow.
            let rest = self.rest.load(Relaxed);
            if rest > 0 {
                self.rest.store(rest.saturating_sub(room.pages as u32), Relaxed);
                return Made::Done(false);
            }
            room.started = true;
            self.machine.count(Event::DirectReclaims, 1);
        }
        while !fits() {
            match self.reclaim(cx) {
                Step::Freed(_) | Step::Isolated => room.idle = 0,
                Step::Nothing | Step::StoreFull => {
                    room.idle += 1;
                    // What other threads are writing out is about to be free.
                    let patience =
                        if self.frames.at_work(self.pause()) > 0 { IDLE_STEPS_WITH_WORK } else { IDLE_STEPS };
                    if room.idle > patience {
                        self.rest.store(REST_PAGES, Relaxed);
                        self.machine.count(Event::OverLimit, 1);
                        return Made::Done(false);
                    }
                    return Made::Wait(room.idle);
                }
            }
        }
        Made::Done(true)
    }

    /// One step of reclaim: isolate pages up to their share, else write out the batch that waits longest.
    pub fn reclaim(&self, cx: &mut Context<S::Worker>) -> Step {
        let share = self.policy().isolated_max_pages(self.limit_pages());
        let few = self.frames.inactive(self.pause()).0 < share;
        if few && self.isolate_next(cx) {
            return Step::Isolated;
        }
        let Some(batch) = self.frames.pop_inactive(self.pause()) else {
            return if self.isolate_next(cx) { Step::Isolated } else { Step::Nothing };
        };
        let pages = self.frames.filled_pages(batch);
        if self.write_out(batch, cx) {
            return Step::Freed(pages);
        }
        self.frames.make_inactive(batch, self.pause());
        Step::StoreFull
    }

    /// Isolates pages of the next block that has any to give.
    fn isolate_next(&self, cx: &mut Context<S::Worker>) -> bool {
        let mut search = self.policy().search(&self.pause());
        while let Some(block) = self.policy().next(&mut search, &self.pause()) {
            match self.isolate(block, Wanted::ByPolicy(&mut search), cx) {
                Isolated::Batch(batch) => {
                    self.frames.make_inactive(batch, self.pause());
                    return true;
                }
                Isolated::NoBatch => return false,
                Isolated::Nothing => {}
            }
        }
        false
    }
}
