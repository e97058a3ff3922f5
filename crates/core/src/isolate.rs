//! Taking pages out of the program's reach, into frames: mechanism only. Which block, and which of its pages may go, is for the
//! reclaim policy to say ([`crate::reclaim`]), or for the program.
use crate::broken::{self, Broken};
use crate::machine::{BatchNo, Event, Machine};
use crate::mask::Mask;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
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
    Named(Mask),
}

/// The pages of a block by what may be done with them.
#[derive(Default)]
struct Chosen {
    /// They are to go.
    wanted: Mask,
    /// They stay, and nothing that moves pages may reach over them.
    blocked: Mask,
    /// Whether resident ones are among those that stay.
    left: bool,
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Takes pages of a block into a free batch, except pages that are locked or in use by a call. The block goes back to the
    /// policy where it still has resident pages.
    pub(crate) fn isolate(&self, block: BlockNo, mut by: Wanted<'_>, cx: &mut Context<S::Worker>) -> Isolated {
        let Some(batch) = self.frames.take_free(block, self.pause()) else {
            self.policy().back(block, &self.pause());
            return Isolated::NoBatch;
        };
        let Chosen { wanted, blocked, mut left } = self.choose(block, &by);
        let (mut taken_all, mut refused) = (Mask::EMPTY, false);
        let mut from = 0;
        while let Some(start) = wanted.next(from) {
            // The run ends at the last wanted page before the next blocked one.
            let barrier = blocked.next(start).unwrap_or(BLOCK_PAGES);
            let in_run = wanted & Mask::range(start, barrier - start);
            let end = in_run.end();
            let (asked, taken) = self.isolate_run(block.first_page(), start, end, in_run, batch, cx);
            left |= taken != in_run;
            refused |= !(asked - taken).is_empty();
            taken_all |= taken;
            from = barrier;
        }
        if left {
            self.policy().back(block, &self.pause());
        }
        let nothing = taken_all.is_empty();
        let asked = if nothing && refused { Asked::Refused } else { Asked::Gave };
        self.policy().asked(block, asked, if let Wanted::ByPolicy(search) = &mut by { Some(search) } else { None });
        if nothing {
            // Pages that could not be dropped may have left copies.
            if wanted.is_empty() || self.machine.release(batch) {
                self.frames.give_back(batch, self.pause());
            } else {
                self.frames.make_inactive(batch, self.pause());
            }
            return Isolated::Nothing;
        }
        let taken_pages = taken_all.count() as u64;
        self.looks.taken(taken_pages);
        self.machine.count(Event::PagesTaken, taken_pages);
        Isolated::Batch(batch)
    }

    /// Looks at the pages of a block.
    fn choose(&self, block: BlockNo, by: &Wanted<'_>) -> Chosen {
        let mut chosen = Chosen::default();
        let pinned = if broken::is(Broken::PinsIgnored) { Mask::EMPTY } else { self.pins.mask(block) };
        for i in 0..BLOCK_PAGES {
            let page = block.first_page().plus(i);
            let word = self.pages.get(page);
            let stays = match word.state() {
                State::Untouched | State::Swapped | State::Zero => continue,
                State::Isolated | State::Busy => {
                    chosen.blocked.insert(i);
                    continue;
                }
                State::Resident if word.locked() && !broken::is(Broken::LockedGo) || pinned.contains(i) => true,
                State::Resident => match by {
                    Wanted::Named(mask) => !mask.contains(i),
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
                chosen.blocked.insert(i);
                chosen.left = true;
            } else {
                chosen.wanted.insert(i);
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
        wanted: Mask,
        batch: BatchNo,
        cx: &mut Context<S::Worker>,
    ) -> (Mask, Mask) {
        let early = broken::is(Broken::PinsFirst).then(|| self.pins.mask(base.block()));
        let mut claimed = start;
        let mut present = Mask::EMPTY;
        while claimed < end {
            let page = base.plus(claimed);
            let word = self.pages.get(page);
            let movable = wanted.contains(claimed);
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
                present.insert(claimed);
            }
            claimed += 1;
        }
        // A call that published its range before we claimed these pages counts on them; one that publishes later finds
        // them busy and waits.
        fence(SeqCst);
        let pinned = match early {
            Some(pinned) => pinned,
            None if broken::is(Broken::PinsIgnored) => Mask::EMPTY,
            None => self.pins.mask(base.block()),
        };
        let (mut asked, mut taken) = (Mask::EMPTY, Mask::EMPTY);
        if !present.is_empty() && (pinned & present).is_empty() {
            asked = present;
            let first = base.plus(start);
            taken = self.machine.take(first, claimed - start, present.from(start), batch, start).at(start);
            assert!((taken - present).is_empty(), "the machine takes what it was asked for");
        }
        self.frames.fill(batch, taken);
        self.add_resident(-(taken.count() as i64));
        for i in start..claimed {
            let old = cx.saved[i];
            if !taken.contains(i) {
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
