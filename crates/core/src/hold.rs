//! Holds the pages of a process that may share them, see [`crate::copies`]: mechanism only.
use crate::broken::{self, Broken};
use crate::machine::Machine;
use crate::mask::Mask;
use crate::page::{EPOCH_UNSURE, State};
use crate::pager::{Context, Pager, Policies};
use crate::store::Store;
use crate::sync::{Ordering::SeqCst, fence};
use crate::units::{BLOCK_PAGES, BlockNo, PageNo};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Has writes to all resident pages noticed that may be shared, once after each fork. False where they are held already, or the
    /// machine cannot.
    pub fn hold_copies(&self, cx: &mut Context<S::Worker>) -> bool {
        if !self.machine.write_protects() || self.copies.hold() {
            return false;
        }
        if !broken::is(Broken::CopiesUnseen) {
            self.regions.touched(PageNo(0), self.pages.len() as u32, |first, count| {
                for at in (0..count).step_by(BLOCK_PAGES) {
                    self.hold_block(first.plus(at as usize).block(), cx);
                }
            });
        }
        true
    }

    /// Whether a page that is held would be copied by a write, and how many from it on are to be given back for one that would not: those
    /// of its block that are held for that alone and not shared any more.
    pub(crate) fn held_alone(&self, page: PageNo) -> (bool, usize) {
        let rest = BLOCK_PAGES - page.0 as usize % BLOCK_PAGES;
        let shared = self.machine.shared(page, rest);
        let is_held = |&i: &usize| {
            let word = self.pages.get(page.plus(i));
            !shared.contains(i) && word.state() == State::Resident && word.protected() == EPOCH_UNSURE
        };
        (shared.contains(0), (0..rest).take_while(is_held).count().max(1))
    }

    /// Write-protects resident pages of a block, but those that the kernel may write to.
    fn hold_block(&self, block: BlockNo, cx: &mut Context<S::Worker>) {
        let base = block.first_page();
        let (mut at, mut any) = (0, false);
        while at < BLOCK_PAGES {
            let start = at;
            while at < BLOCK_PAGES {
                let word = self.pages.get(base.plus(at));
                let is_free = word.state() == State::Resident && !word.locked() && !word.is_untrapped();
                if !is_free || !self.pages.claim(base.plus(at), word) {
                    break;
                }
                cx.saved[at] = word;
                at += 1;
            }
            if at > start {
                any = true;
                self.hold_run(base, start, at, cx);
            }
            at += 1;
        }
        if any {
            // Reclaim may have passed by while they were owned.
            self.add_block(block);
        }
    }

    /// The same with pages that are claimed, and gives them up.
    fn hold_run(&self, base: PageNo, start: usize, end: usize, cx: &mut Context<S::Worker>) {
        // A call that published its range before these pages were claimed counts on them; one that publishes later finds them
        // busy and waits.
        fence(SeqCst);
        let pinned = if broken::is(Broken::PinnedHeld) { Mask::EMPTY } else { self.pins.mask(base.block()) };
        let mut from = start;
        while from < end {
            let stays = pinned.contains(from);
            let to = (from..end).find(|&i| pinned.contains(i) != stays).unwrap_or(end);
            if !stays {
                // Where it fails, it may have come half way.
                let _ = self.machine.forbid_writes(base.plus(from), to - from);
            }
            for i in from..to {
                let word = cx.saved[i];
                let unsure = !stays && word.protected() == 0;
                self.pages.release(base.plus(i), if unsure { word.with_protected(EPOCH_UNSURE) } else { word });
            }
            from = to;
        }
    }
}
