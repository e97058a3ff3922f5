//! Taking pages out of the program's reach, into frames: mechanism only. Which block, and which of its pages may go, is for the
//! reclaim policy to say ([`crate::reclaim`]), or for the program.
use crate::broken::{self, Broken};
use crate::machine::{BatchNo, Event, Machine};
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::pins::mask_of;
use crate::reclaim::{Asked, Reclaim, Search, Verdict};
use crate::store::Store;
use crate::sync::{Ordering::SeqCst, fence};
use crate::units::{BLOCK_PAGES, BlockNo, PageNo};

/// What became of an attempt to isolate pages of a block.
pub(crate) enum Isolated {
    /// They are in this batch.
    Batch(BatchNo),
    /// It has nothing that may be taken now, or the machine gave nothing.
    Nothing,
    /// No batch is free.
    NoBatch,
}

/// Who wants pages of a block to go.
pub(crate) enum Wanted<'a> {
    /// Reclaim: those that its policy gives up.
    ByPolicy(&'a mut Search),
    /// The program: these.
    Named(u64),
}

/// The pages of a block by what may be done with them.
#[derive(Default)]
struct Chosen {
    /// They are to go.
    wanted: u64,
    /// They stay, and nothing that moves pages may reach over them.
    blocked: u64,
    /// Whether resident ones are among those that stay.
    left: bool,
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Takes pages of a block into a free batch, except pages that are locked or in use by a call. The block goes back to the
    /// policy where it still has resident pages.
    pub(crate) fn isolate(&self, block: BlockNo, mut by: Wanted<'_>, cx: &mut Context<S::Worker>) -> Isolated {
        let Some(batch) = self.frames.take_free(block, self.pause()) else {
            self.add_block(block);
            return Isolated::NoBatch;
        };
        let Chosen { wanted, blocked, mut left } = self.choose(block, &by);
        let (mut taken_all, mut refused) = (0u64, false);
        let mut from = 0;
        while from < BLOCK_PAGES && wanted >> from != 0 {
            let start = from + (wanted >> from).trailing_zeros() as usize;
            // The run ends at the last wanted page before the next blocked one.
            let barrier =
                if blocked >> start == 0 { BLOCK_PAGES } else { start + (blocked >> start).trailing_zeros() as usize };
            let in_run = wanted & mask_of(start, barrier - start);
            let end = BLOCK_PAGES - in_run.leading_zeros() as usize;
            let (asked, taken) = self.isolate_run(block.first_page(), start, end, in_run, batch, cx);
            left |= taken != in_run;
            refused |= asked & !taken != 0;
            taken_all |= taken;
            from = barrier.max(end);
        }
        if left {
            self.add_block(block);
        }
        let nothing = taken_all == 0;
        let asked = if nothing && refused { Asked::Refused } else { Asked::Gave };
        self.policy().asked(block, asked, if let Wanted::ByPolicy(search) = &mut by { Some(search) } else { None });
        if nothing {
            // Pages that could not be dropped may have left copies.
            if wanted == 0 || self.machine.release(batch) {
                self.frames.give_back(batch, self.pause());
            } else {
                self.frames.make_inactive(batch, self.pause());
            }
            return Isolated::Nothing;
        }
        self.machine.count(Event::PagesTaken, taken_all.count_ones() as u64);
        Isolated::Batch(batch)
    }

    /// Looks at the pages of a block.
    fn choose(&self, block: BlockNo, by: &Wanted<'_>) -> Chosen {
        let mut chosen = Chosen::default();
        let pinned = if broken::is(Broken::PinsIgnored) { 0 } else { self.pins.mask(block) };
        for i in 0..BLOCK_PAGES {
            let page = block.first_page().plus(i);
            let word = self.pages.get(page);
            let stays = match word.state() {
                State::Untouched | State::Swapped | State::Zero => continue,
                State::Isolated | State::Busy => {
                    chosen.blocked |= 1 << i;
                    continue;
                }
                State::Resident if word.locked() && !broken::is(Broken::LockedGo) || pinned & 1 << i != 0 => true,
                State::Resident => match by {
                    Wanted::Named(mask) => mask & 1 << i == 0,
                    Wanted::ByPolicy(_) => match self.policy().judge(word) {
                        Verdict::Take => false,
                        Verdict::Keep { referenced } => {
                            // Where the word has changed meanwhile, it keeps its references until the next pass.
                            let _ = self.pages.change(page, word, word.with_referenced(referenced));
                            true
                        }
                    },
                },
            };
            if stays {
                chosen.blocked |= 1 << i;
                chosen.left = true;
            } else {
                chosen.wanted |= 1 << i;
            }
        }
        chosen
    }

    /// Takes the wanted pages among `start..end` of a block; all pages between are claimed, because a page that came in
    /// while its neighbours move would be moved with them. Returns the pages that the machine was asked for, and those that
    /// were taken.
    fn isolate_run(
        &self,
        base: PageNo,
        start: usize,
        end: usize,
        wanted: u64,
        batch: BatchNo,
        cx: &mut Context<S::Worker>,
    ) -> (u64, u64) {
        let early = broken::is(Broken::PinsFirst).then(|| self.pins.mask(base.block()));
        let mut claimed = start;
        let mut present = 0u64;
        while claimed < end {
            let page = base.plus(claimed);
            let word = self.pages.get(page);
            let movable = wanted & 1 << claimed != 0;
            let ok = match word.state() {
                State::Resident => movable && (!word.locked() || broken::is(Broken::LockedGo)),
                State::Untouched | State::Swapped | State::Zero => true,
                State::Isolated | State::Busy => false,
            };
            if !ok || !self.pages.claim(page, word) {
                break;
            }
            cx.saved[claimed] = word;
            if word.state() == State::Resident {
                present |= 1 << claimed;
            }
            claimed += 1;
        }
        // A call that published its range before we claimed these pages counts on them; one that publishes later finds
        // them busy and waits.
        fence(SeqCst);
        let pinned = match early {
            Some(pinned) => pinned,
            None if broken::is(Broken::PinsIgnored) => 0,
            None => self.pins.mask(base.block()),
        };
        let (mut asked, mut taken) = (0, 0);
        if present != 0 && pinned & present == 0 {
            asked = present;
            let first = base.plus(start);
            taken = self.machine.take(first, claimed - start, present >> start, batch, start) << start;
            assert!(taken & !present == 0, "the machine takes what it was asked for");
        }
        self.frames.fill(batch, taken);
        self.add_resident(-(taken.count_ones() as i64));
        for i in start..claimed {
            let old = cx.saved[i];
            if taken & 1 << i == 0 {
                self.pages.release(base.plus(i), old);
                continue;
            }
            let frame = batch.frame(i);
            self.frames.set_slot(frame, old.slot());
            self.pages.release(base.plus(i), Word::isolated(frame, old.order()).with_referenced(old.referenced()));
        }
        (asked, taken)
    }
}
