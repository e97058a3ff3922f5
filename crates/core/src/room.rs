//! Room under the limit: step by step, pages are isolated, and the oldest isolated ones written out.
use crate::broken::{self, Broken};
use crate::isolate::Isolated;
use crate::machine::{Event, Machine};
use crate::pageout::Progress;
use crate::pager::{Context, Pager, Policies};
use crate::reclaim::Reclaim;
use crate::store::Store;
use crate::sync::Ordering::Relaxed;
use crate::units::BLOCK_PAGES;
use crate::writeback::Writeback;

/// Steps without success after which the limit is exceeded: alone, while other threads are at it, and where the store has room for what
/// they write. The steps beyond [`IDLE_STEPS_WITH_WORK`] are sleeps: who is at it may have to wait for a processor itself.
const IDLE_STEPS: u32 = 4;
const IDLE_STEPS_WITH_WORK: u32 = 40;
const IDLE_STEPS_WITH_ROOM: u32 = 240;
/// So many times as far in [`Machine::pause`] are those.
const LONG_PAUSES: u32 = 32;
/// Batches that are isolated at a time for others to write out.
const ISOLATE_AHEAD_BATCHES: usize = 4;
/// Pages that come in without an attempt to make room after one that failed.
const REST_PAGES: u32 = 16;
/// What who is to keep to the limit may exceed it by while the store is full: one part in so many, and so many pages at most. To
/// free memory, or to end, a program may need some.
const RESERVE_SHARE: u64 = 32;
const RESERVE_MAX_PAGES: u64 = 1024;

/// What one step of reclaim achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many frames were freed.
    Freed(usize),
    /// So many frames were written out, and are kept ([`Pager::release_kept`]).
    Kept(usize),
    /// Pages were isolated.
    Isolated,
    /// Nothing can be evicted now.
    Nothing,
    /// The stores have no room.
    StoreFull,
}

/// How far a step of reclaim has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimed {
    /// It is over.
    Done(Step),
    /// A batch is being written out and has to wait: how long, in the terms of [`Machine::pause`].
    Wait(u32),
}

/// Reclaim in progress: the batch that it is writing out. It keeps the context that it was begun with.
#[derive(Default)]
pub struct Reclaiming {
    writeback: Option<Writeback>,
    /// Takes no pages, and frees no frames.
    writes_only: bool,
}

impl Reclaiming {
    /// Whether it has a batch, so that it has to go on.
    pub fn is_writing(&self) -> bool {
        self.writeback.is_some()
    }
}

/// An attempt to make room.
pub(crate) struct Room {
    /// Pages that are to fit.
    pages: usize,
    started: bool,
    idle: u32,
    /// Batches without pages that may still leave the inactive list, since a step that had success, before that counts as one without: they can come
    /// on end, where the machine refuses all else.
    empty_batches: usize,
    /// The store had no room.
    full: bool,
    reclaiming: Reclaiming,
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
        Room { pages, started: false, idle: 0, empty_batches: 0, full: false, reclaiming: Reclaiming::default() }
    }

    /// Whether the store had no room.
    pub(crate) fn is_full(&self) -> bool {
        self.full
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

    /// Whether the limit is exceeded by as much as it may be while the store is full and the limit is to hold.
    pub fn has_used_reserve(&self) -> bool {
        let limit = self.limit_pages();
        self.used_pages() >= limit.saturating_add((limit / RESERVE_SHARE).min(RESERVE_MAX_PAGES))
    }

    /// Reclaims for an attempt to make room, up to where it has to wait.
    pub(crate) fn room_step(&self, room: &mut Room, cx: &mut Context<S::Worker>) -> Made {
        let used = || self.used_pages() + self.copies.unmeasured_pages();
        let fits = || used() + room.pages as u64 <= self.limit_pages() || broken::is(Broken::NoLimit);
        if !room.reclaiming.is_writing() {
            while self.trap_if_short(room.pages) > 0 && !fits() {}
        }
        if !room.started && !fits() {
            // Where nothing could be evicted just now, the next faults need not find that out again: a full store is slow.
            let rest = self.rest.load(Relaxed);
            if rest > 0 {
                self.rest.store(rest.saturating_sub(room.pages as u32), Relaxed);
                return Made::Done(false);
            }
            room.started = true;
            room.empty_batches = self.frames.batches();
            self.machine.count(Event::DirectReclaims, 1);
        }
        while room.reclaiming.is_writing() || !fits() {
            match self.reclaim_step(&mut room.reclaiming, cx) {
                Reclaimed::Wait(spins) => return Made::Wait(spins),
                Reclaimed::Done(Step::Freed(1..) | Step::Kept(1..) | Step::Isolated) => {
                    (room.idle, room.empty_batches) = (0, self.frames.batches());
                }
                Reclaimed::Done(Step::Freed(_) | Step::Kept(_)) if room.empty_batches > 0 => {
                    (room.idle, room.empty_batches) = (0, room.empty_batches - 1);
                }
                Reclaimed::Done(step) => {
                    room.idle += 1;
                    room.full |= step == Step::StoreFull;
                    // What other threads are writing out is about to be free.
                    let patience = match self.frames.at_work(self.pause()) > self.ahead.batches() {
                        true if room.full => IDLE_STEPS_WITH_WORK,
                        true => IDLE_STEPS_WITH_ROOM,
                        false => IDLE_STEPS,
                    };
                    if room.idle > patience {
                        if !(room.full && self.full.holds_back()) {
                            self.rest.store(REST_PAGES, Relaxed);
                        }
                        self.machine.count(if room.full { Event::OverLimitFull } else { Event::OverLimit }, 1);
                        return Made::Done(false);
                    }
                    let longer = if room.idle > IDLE_STEPS_WITH_WORK { LONG_PAUSES } else { 1 };
                    return Made::Wait(room.idle * longer);
                }
            }
        }
        Made::Done(true)
    }

    /// One step of reclaim, which waits for the store where it must.
    pub fn reclaim(&self, cx: &mut Context<S::Worker>) -> Step {
        self.reclaim_with(Reclaiming::default(), cx)
    }

    /// As [`Pager::reclaim`], where other threads take pages ([`Pager::isolate_ahead`]) and free frames ([`Pager::release_kept`]): writes out
    /// what waits beyond its share.
    pub fn write_back(&self, cx: &mut Context<S::Worker>) -> Step {
        self.reclaim_with(Reclaiming { writes_only: true, ..Reclaiming::default() }, cx)
    }

    /// Isolates so much that [`Pager::write_back`] has `pages` to write out, as far as a few blocks give them, unless there is room for so
    /// many without. Says whether it has any.
    pub fn isolate_ahead(&self, pages: usize, cx: &mut Context<S::Worker>) -> bool {
        let share = self.share_pages();
        let waiting = || self.frames.inactive(self.pause()).0;
        for _ in 0..ISOLATE_AHEAD_BATCHES {
            let has_room = self.used_pages() + pages as u64 <= self.limit_pages() || self.trap_if_short(pages) > 0;
            if has_room || waiting() >= share + pages || self.isolate_next(self.large_max_pages(), cx) == Step::Nothing
            {
                break;
            }
        }
        waiting() > share
    }

    /// Isolates about so many pages for others of the program's processes although there is room, beside all else that waits: what is not touched
    /// until then goes by [`Pager::write_yielded`].
    pub fn yield_pages(&self, pages: usize, cx: &mut Context<S::Worker>) {
        let waiting = || self.frames.inactive(self.pause()).0;
        let before = waiting();
        let blocks = if broken::is(Broken::NothingYielded) { 0 } else { pages.div_ceil(BLOCK_PAGES) };
        for _ in 0..blocks {
            let wanted = (before + pages).saturating_sub(waiting());
            if wanted == 0 || self.isolate_next(wanted as u64, cx) == Step::Nothing {
                break;
            }
        }
        let extra_pages = self.frames.extra_pages() + waiting().saturating_sub(before);
        self.frames.mark_inactive(extra_pages, self.pause());
    }

    /// Writes one batch out of what waited when pages were yielded, the oldest first, as many in all as were yielded then and did not leave
    /// since. False where that is over, or the store has no room.
    pub fn write_yielded(&self, cx: &mut Context<S::Worker>) -> bool {
        let batch = if self.frames.extra_pages() > 0 { self.frames.pop_marked(self.pause()) } else { None };
        let Some(batch) = batch else {
            self.forget_yielded();
            return false;
        };
        let writeback = Some(self.begin_writeback(batch, cx));
        if !matches!(self.reclaim_with(Reclaiming { writeback, writes_only: false }, cx), Step::Freed(_)) {
            self.forget_yielded();
        }
        self.has_yielded()
    }

    /// What was yielded waits like all else from here on.
    pub fn forget_yielded(&self) {
        self.frames.mark_inactive(0, self.pause());
    }

    /// Whether pages wait to be yielded.
    pub fn has_yielded(&self) -> bool {
        self.frames.extra_pages() > 0
    }

    /// How many isolated pages wait before the oldest of them are written out.
    fn share_pages(&self) -> usize {
        let extra_pages = if broken::is(Broken::YieldedAtOnce) { 0 } else { self.frames.extra_pages() };
        self.policy().isolated_max_pages(self.limit_pages()) + extra_pages
    }

    fn reclaim_with(&self, mut reclaiming: Reclaiming, cx: &mut Context<S::Worker>) -> Step {
        loop {
            match self.reclaim_step(&mut reclaiming, cx) {
                Reclaimed::Wait(spins) => self.machine.pause(spins),
                Reclaimed::Done(step) => return step,
            }
        }
    }

    /// One step of reclaim: trap what is left to the kernel, else free a batch that was written out and kept, else drop pages read ahead that have had their time, else isolate
    /// pages up to their share, else write out the batch that waits longest, up to where that has to wait. The context is the same in all
    /// steps, and nobody else's while [`Reclaiming::is_writing`].
    pub fn reclaim_step(&self, reclaiming: &mut Reclaiming, cx: &mut Context<S::Worker>) -> Reclaimed {
        let mut writeback = match reclaiming.writeback.take() {
            Some(writeback) => writeback,
            None => {
                let freed = self.trap_if_short(0);
                if freed > 0 {
                    return Reclaimed::Done(Step::Freed(freed));
                }
                if !reclaiming.writes_only
                    && !broken::is(Broken::KeptForEver)
                    && let Some(freed) = self.release_kept()
                {
                    return Reclaimed::Done(Step::Freed(freed));
                }
                if !broken::is(Broken::AheadStays) {
                    let freed = self.drop_old_ahead();
                    if freed > 0 {
                        return Reclaimed::Done(Step::Freed(freed));
                    }
                }
                let share = self.share_pages();
                let few = self.frames.inactive(self.pause()).0 < share;
                if few && reclaiming.writes_only {
                    return Reclaimed::Done(Step::Nothing);
                }
                if few {
                    match self.isolate_next(self.large_max_pages(), cx) {
                        Step::Nothing => {}
                        step => return Reclaimed::Done(step),
                    }
                }
                let Some(batch) = self.frames.pop_inactive(self.pause()) else {
                    return Reclaimed::Done(self.isolate_or_drop(cx));
                };
                Writeback { keeps_frames: reclaiming.writes_only, ..self.begin_writeback(batch, cx) }
            }
        };
        let batch = writeback.batch();
        let pages = self.frames.filled_pages(batch);
        match self.writeback_step(&mut writeback, cx) {
            Progress::Wait(spins) => {
                reclaiming.writeback = Some(writeback);
                Reclaimed::Wait(spins)
            }
            Progress::Done(true) => {
                self.policy().evicted(pages);
                Reclaimed::Done(if reclaiming.writes_only { Step::Kept(pages) } else { Step::Freed(pages) })
            }
            Progress::Done(false) => {
                self.frames.make_inactive(batch, self.pause());
                Reclaimed::Done(Step::StoreFull)
            }
        }
    }

    /// As [`Pager::isolate_next`]; where there is nothing, pages read ahead go, however new.
    fn isolate_or_drop(&self, cx: &mut Context<S::Worker>) -> Step {
        match self.isolate_next(self.large_max_pages(), cx) {
            Step::Nothing => match self.drop_ahead() {
                0 => Step::Nothing,
                freed => Step::Freed(freed),
            },
            step => step,
        }
    }

    /// Isolates pages of the next block that has any to give, and those of a large folio with it, of so many pages at most.
    fn isolate_next(&self, large_max_pages: u64, cx: &mut Context<S::Worker>) -> Step {
        let mut search = self.policy().search(&self.pause());
        while let Some(block) = self.policy().next(&mut search, &self.pause()) {
            match self.isolate_chosen(block, large_max_pages, &mut search, cx) {
                Isolated::Batch(batch) => {
                    self.frames.make_inactive(batch, self.pause());
                    return Step::Isolated;
                }
                Isolated::Dropped(pages) => {
                    self.policy().evicted(pages);
                    return Step::Freed(pages);
                }
                Isolated::NoBatch => return Step::Nothing,
                Isolated::Nothing => {}
            }
        }
        Step::Nothing
    }
}
