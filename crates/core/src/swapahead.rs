//! Reading ahead: what a readahead policy planned is brought to frames, and mapped only when it is touched.
//!
//! Kairui Song, "mm/swap, shmem: use new swapin helper to skip readahead conditionally", 2024: where the store is synchronous,
//! and the slot has no other user, this is left out. That a page is not mapped before it is touched is what tells which were read
//! for nothing: Hugh Dickins, "swap: add a simple detector for inappropriate swapin readahead", 2012.
use crate::bring::{Next, Target};
use crate::broken::{self, Broken};
use crate::clean::hash_page;
use crate::machine::{Event, Machine};
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::readahead::{Over, Readahead, Window};
use crate::room::Step;
use crate::store::{Read, Run, Store, StoreError};
use crate::units::{PAGE_BYTES, PART_PAGES, PageNo, SlotId};

/// Steps of reclaim that make room for one part of a window. Where they make none, nothing is read.
const ROOM_STEPS: usize = 4;

/// Pages, at most what the buffer holds, that were claimed for being read ahead. Their words stand in the context.
struct Claimed {
    pages: [PageNo; PART_PAGES],
    len: usize,
}

/// The runs of slots that hold the content of pages with these words, one page after the other.
pub(crate) fn runs_of(words: &[Word]) -> ([Run; PART_PAGES], usize) {
    let (mut runs, mut len) = ([Run { first: SlotId(0), pages: 0, at: 0 }; PART_PAGES], 0);
    for (i, word) in words.iter().enumerate() {
        let slot = word.slot().expect("a swapped page has a slot");
        match runs[..len].last_mut() {
            Some(run) if run.first.plus(run.pages as usize) == slot => run.pages += 1,
            _ => {
                runs[len] = Run { first: slot, pages: 1, at: i as u32 };
                len += 1;
            }
        }
    }
    (runs, len)
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Whether a page that is in a store comes straight from there, without reading others ahead.
    pub(crate) fn is_bypass(&self, word: Word) -> bool {
        let slot = word.slot().expect("a swapped page has a slot");
        self.store.is_synchronous(slot) && self.slots.is_single(slot)
    }

    /// The page of a target, which is claimed, is being read from a store that is not synchronous: what comes after it is asked
    /// for.
    pub(crate) fn ask_after_miss(&self, page: PageNo, word: Word) {
        let slot = word.slot().expect("a swapped page has a slot");
        let window = self.readahead().missed(page, slot, self.limit_pages(), &self.pause());
        if let Some(window) = window {
            self.ask_ahead(window);
        }
    }

    /// Asks for a window to be read ahead, by whoever calls [`Pager::read_ahead`] next.
    pub fn ask_ahead(&self, window: Window) {
        self.ahead.ask(window, self.pause());
        self.machine.ahead_is_asked();
    }

    /// Whether something is to be read ahead.
    pub fn is_ahead_asked(&self) -> bool {
        self.ahead.is_asked()
    }

    /// Reads one window ahead. False where none was asked for.
    pub fn read_ahead(&self, cx: &mut Context<S::Worker>) -> bool {
        if !self.ahead.is_asked() {
            return false;
        }
        self.ahead.begin();
        let asked_at = self.ahead.asked_at();
        let window = self.ahead.next(self.pause());
        if let Some(window) = window {
            self.read_window(window, asked_at, cx);
        }
        self.ahead.end();
        window.is_some()
    }

    fn read_window(&self, window: Window, asked_at: u32, cx: &mut Context<S::Worker>) {
        let mut numbers = window.numbers();
        loop {
            let most = self.room_ahead(window.count, cx);
            let mut claimed = Claimed { pages: [PageNo(0); PART_PAGES], len: 0 };
            while claimed.len < most
                && let Some(number) = numbers.next()
            {
                if let Some((page, word)) = self.claim_ahead(window.over, number, claimed.len) {
                    (claimed.pages[claimed.len], cx.saved[claimed.len]) = (page, word);
                    claimed.len += 1;
                }
            }
            let is_forgotten = self.ahead.asked_at() != asked_at;
            if is_forgotten {
                self.give_up(&claimed, cx);
            }
            if claimed.len == 0 || is_forgotten {
                return;
            }
            self.bring_ahead(&claimed, cx);
        }
    }

    /// Makes room for some pages of a window, at the expense of older ones, and says for how many there is.
    fn room_ahead(&self, count: u32, cx: &mut Context<S::Worker>) -> usize {
        let limit = self.limit_pages();
        let max = self.ahead.max_pages(limit);
        let wanted = u64::from(count).min(PART_PAGES as u64).min(max / 2);
        while self.ahead.pages() + wanted > max {
            if self.drop_ahead() == 0 {
                return 0;
            }
        }
        for _ in 0..ROOM_STEPS {
            if self.used_pages() + wanted <= limit || matches!(self.reclaim(cx), Step::Nothing | Step::StoreFull) {
                break;
            }
        }
        limit.saturating_sub(self.used_pages()).min(wanted) as usize
    }

    /// Claims the page of a number, if it is in a store that is not synchronous, and can keep its slot as `others` do.
    fn claim_ahead(&self, over: Over, number: u32, others: usize) -> Option<(PageNo, Word)> {
        let page = match over {
            Over::Pages => PageNo(number),
            Over::Slots => self.owners.of(SlotId(number))?,
        };
        if page.0 as usize >= self.pages.len() {
            return None;
        }
        let word = self.pages.get(page);
        if word.state() != State::Swapped || word.locked() {
            return None;
        }
        let slot = word.slot().expect("a swapped page has a slot");
        let is_wanted = over == Over::Pages || slot == SlotId(number);
        let comes = is_wanted && !self.store.is_synchronous(slot) && self.could_keep(slot, others);
        (comes && self.pages.claim(page, word)).then_some((page, word))
    }

    /// Leaves claimed pages where they are.
    fn give_up(&self, claimed: &Claimed, cx: &Context<S::Worker>) {
        for (&page, &word) in claimed.pages[..claimed.len].iter().zip(&cx.saved) {
            self.pages.release(page, word);
        }
    }

    /// Reads claimed pages and gives each a frame; what cannot be read stays where it is.
    fn bring_ahead(&self, claimed: &Claimed, cx: &mut Context<S::Worker>) {
        let bytes = claimed.len * PAGE_BYTES;
        let (runs, len) = runs_of(&cx.saved[..claimed.len]);
        let mut read = self.store.read(&runs[..len], &mut cx.buffer[..bytes], &mut cx.worker);
        let mut spins = 0;
        while let Ok(Read::Later(ticket)) = read {
            spins += 1;
            self.machine.pause(spins);
            read = self.store.finish_read(ticket, &mut cx.buffer[..bytes], &mut cx.worker);
        }
        let mut done = 0;
        for (i, (&page, &word)) in claimed.pages[..claimed.len].iter().zip(&cx.saved).enumerate() {
            let content = &cx.buffer[i * PAGE_BYTES..(i + 1) * PAGE_BYTES];
            let ahead = match read {
                Ok(_) => self.frame_ahead(page, word, content),
                Err(StoreError::Full | StoreError::Io | StoreError::Corrupt) => None,
            };
            done += ahead.is_some() as u64;
            self.pages.release(page, ahead.unwrap_or(word));
        }
        self.machine.count(Event::PagesReadAhead, done);
    }

    /// Puts the content of an owned page in a frame, if it is what was stored. Returns its word.
    fn frame_ahead(&self, page: PageNo, word: Word, content: &[u8]) -> Option<Word> {
        let slot = word.slot().expect("a swapped page has a slot");
        if hash_page(content, self.seed) != self.slots.hash(slot) && !broken::is(Broken::Unverified) {
            return None;
        }
        if !self.enter_swapcache(slot) {
            return None;
        }
        let pause = |spins| self.machine.pause(spins);
        let frame = self.ahead.frame(page, &self.frames, self.limit_pages(), self.looks.taken_pages(), pause);
        let filled = frame.filter(|&frame| {
            let filled = self.machine.fill(frame, content);
            if !filled {
                self.ahead.unfilled(frame, &self.frames);
            }
            filled
        });
        let Some(frame) = filled else {
            self.take_from_swapcache(slot);
            return None;
        };
        self.frames.set_slot(frame, Some(slot));
        let ahead = Word::isolated(frame, word.order()).with_locked(word.locked()).with_past_of(word);
        Some(ahead.with_ahead())
    }

    /// A page that was read ahead is wanted: it is mapped, alone, so that it is seen which others are.
    pub(crate) fn hit_ahead(&self, target: &Target) -> Next {
        let Target { page, seen, .. } = *target;
        if !self.pages.claim(page, seen) {
            return Next::Again;
        }
        if let Err(next) = self.hit_alone(page, seen, 0) {
            return next;
        }
        self.machine.count(Event::PagesAheadHit, 1);
        if let Some(window) = self.readahead().hit(page, self.limit_pages(), &self.pause()) {
            self.ask_ahead(window);
        }
        Next::There(1)
    }
}
