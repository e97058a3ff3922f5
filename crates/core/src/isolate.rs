//! Taking pages out of the program's reach, into frames, or, where they are known to be unwritten, back to their slots: mechanism
//! only. Which block, and which of its pages may go, is for the reclaim policy to say ([`crate::reclaim`]), or for the program.
use crate::broken::{self, Broken};
use crate::machine::{BatchNo, Event, Machine, Taken, Wanted};
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
    /// So many went back to their slots, and no others were taken.
    Dropped(usize),
    /// It has nothing that may be taken now, or the machine gave nothing.
    Nothing,
    /// No batch is free.
    NoBatch,
}

/// Who wants pages of a block to go.
pub(crate) enum By<'a> {
    /// Reclaim: those that its policy gives up.
    Policy(&'a mut Search),
    /// The program: these.
    Program(Mask),
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
    pub(crate) fn isolate(&self, block: BlockNo, mut by: By<'_>, cx: &mut Context<S::Worker>) -> Isolated {
        let Some(batch) = self.frames.take_free(block, self.pause()) else {
            self.policy().back(block, &self.pause());
            return Isolated::NoBatch;
        };
        let Chosen { mut wanted, mut blocked, mut left } = self.choose(block, &by);
        if let By::Policy(_) = by {
            let part = self.policy().part(block, wanted) & wanted;
            left |= part != wanted;
            blocked |= wanted - part;
            wanted = part;
        }
        let (mut framed, mut dropped, mut refused) = (Mask::EMPTY, Mask::EMPTY, false);
        let mut from = 0;
        while let Some(start) = wanted.next(from) {
            // The run ends at the last wanted page before the next blocked one.
            let barrier = blocked.next(start).unwrap_or(BLOCK_PAGES);
            let in_run = wanted & Mask::range(start, barrier - start);
            let end = in_run.end();
            let (asked, taken, unfilled) = self.isolate_run(block.first_page(), start, end, in_run, batch, cx);
            left |= taken.all() | unfilled != in_run;
            refused |= !(asked - taken.all()).is_empty();
            framed |= taken.framed;
            dropped |= taken.dropped;
            from = barrier;
        }
        if left {
            self.policy().back(block, &self.pause());
        }
        let taken_pages = (framed | dropped).count() as u64;
        let asked = if taken_pages == 0 && refused { Asked::Refused } else { Asked::Gave };
        self.policy().asked(block, asked, if let By::Policy(search) = &mut by { Some(search) } else { None });
        self.looks.taken(taken_pages);
        self.machine.count(Event::PagesTaken, taken_pages);
        if !dropped.is_empty() {
            self.machine.count(Event::PagesClean, dropped.count() as u64);
            self.machine.count(Event::PagesUnwritten, dropped.count() as u64);
        }
        if framed.is_empty() {
            // Pages that could not be dropped may have left copies.
            if wanted.is_empty() || self.machine.release(batch) {
                self.frames.emptied(batch);
                self.frames.give_back(batch, self.pause());
            } else {
                self.frames.make_inactive(batch, self.pause());
            }
            return if dropped.is_empty() { Isolated::Nothing } else { Isolated::Dropped(dropped.count()) };
        }
        Isolated::Batch(batch)
    }

    /// Looks at the pages of a block.
    fn choose(&self, block: BlockNo, by: &By<'_>) -> Chosen {
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
                    By::Program(mask) => !mask.contains(i),
                    By::Policy(_) => match self.policy().judge(word) {
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
    /// while its neighbours move would be moved with them. Returns the pages that the machine was asked for, those that
    /// were taken, and those that held nothing.
    fn isolate_run(
        &self,
        base: PageNo,
        start: usize,
        end: usize,
        wanted: Mask,
        batch: BatchNo,
        cx: &mut Context<S::Worker>,
    ) -> (Mask, Taken, Mask) {
        let early = broken::is(Broken::PinsFirst).then(|| self.pins.mask(base.block()));
        let mut claimed = start;
        let (mut present, mut clean) = (Mask::EMPTY, Mask::EMPTY);
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
                if self.protection.is_known_clean(word) && !broken::is(Broken::NothingIsClean) {
                    clean.insert(claimed);
                }
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
        let (mut asked, mut taken, mut unfilled) = (Mask::EMPTY, Taken::default(), Mask::EMPTY);
        let mut is_trapped = (pinned & present).is_empty();
        if is_trapped {
            let trapped = self.trap_owned(base.plus(start), &mut cx.saved[start..claimed]);
            is_trapped = trapped.is_some();
            unfilled = trapped.unwrap_or(Mask::EMPTY).at(start);
            present = present - unfilled;
        }
        if !present.is_empty() && is_trapped {
            let shared = match self.copies.is_shared() {
                true => self.machine.shared(base.plus(start), claimed - start).at(start),
                false => Mask::EMPTY,
            };
            // What others have as well is taken as a copy, and so comes back from its slot. Where the store has no room for more, that is more than
            // was used before. Zeros as well: to look at their content by a call has the kernel copy them.
            let stays = match self.full.may_refuse(|| self.machine.now_ns()) && !broken::is(Broken::SharedIsCopied) {
                true => shared,
                false => Mask::EMPTY,
            };
            asked = present - stays;
            let mut at = start;
            while let Some(from) = asked.next(at) {
                // Not over one that stays: it would move along.
                at = stays.next(from).unwrap_or(claimed);
                let run = asked & Mask::range(from, at - from);
                let wanted = Wanted { framed: run - clean, clean: run & clean }.part(from, at - from);
                taken = taken.and_part(from, self.machine.take(base.plus(from), at - from, wanted, batch, from));
            }
            self.copies.left((taken.all() & shared).count() as u64);
            let is_sound = (taken.all() - present).is_empty() && (taken.dropped - clean).is_empty();
            assert!(is_sound && (taken.framed & taken.dropped).is_empty(), "the machine takes what it was asked for");
        }
        self.frames.fill(batch, taken.framed);
        if asked != taken.all() {
            self.frames.taint(batch, asked - taken.all());
        }
        self.add_resident(-(taken.all().count() as i64));
        for i in start..claimed {
            let (page, old) = (base.plus(i), cx.saved[i]);
            if taken.dropped.contains(i) {
                let slot = old.slot().expect("a page that is known to be clean has a slot");
                self.take_from_swapcache(slot);
                let gone = Word::swapped(slot, old.order()).with_heat(old.heat());
                self.pages.release(page, gone.with_stamp(self.workingset.evict()));
            } else if taken.framed.contains(i) {
                let frame = batch.frame(i);
                self.frames.set_slot(frame, old.slot());
                let word = Word::isolated(frame, old.order()).with_referenced(old.referenced());
                // In its frame it stays as it was: clean, or perhaps protected still.
                let protected = if clean.contains(i) { old } else { old.with_doubt() }.protected();
                self.pages.release(page, word.with_past_of(old).with_protected(protected));
            } else {
                // The machine may have lifted the protection of what it could not take.
                let lifted = asked.contains(i) && !broken::is(Broken::ProtectionTrusted);
                self.pages.release(page, if lifted { old.with_doubt() } else { old });
            }
        }
        (asked, taken, unfilled)
    }
}
