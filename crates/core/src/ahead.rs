//! Pages read ahead: they are in frames, out of the program's reach, until one is touched, and their slots still hold the same.
//!
//! ```text
//!                        a policy plans a window; any thread that has time takes it
//!                                     |
//!   Swapped --- claimed, read, checked, put in a frame ---> Isolated, AHEAD
//!      ^                                                      |   |   |
//!      +--- dropped: nothing is written, the oldest first ----+   |   +--- discarded
//!                                                                 +------- touched: a hit, mapped
//! ```
//! Their frames lie in batches of their own, filled one after the other with pages of any blocks. A batch is released when none
//! of its frames is live, that is, when each of its pages was touched, dropped or discarded; until then all its filled frames
//! count in the budget. A frame becomes live before it is filled, so that nobody releases it meanwhile.
//!
//! The page's word says what became of it: who claims it as Isolated in that frame owns page, frame and slot. What is kept here
//! is how to find the word from the frame.
use crate::broken::{self, Broken};
use crate::frames::Frames;
use crate::lock::SpinLock;
use crate::machine::BatchNo;
use crate::mask::Mask;
use crate::readahead::Window;
use crate::ring::Ring;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::table::{Reserve, Table};
use crate::units::{BLOCK_PAGES, BlockNo, FrameNo, PageNo};

/// Pages read ahead, and frames that held such, are one part in so many of the limit at most.
const SHARE: u64 = 8;
/// Batches are filled up to this share of that, so that there are some when the oldest is dropped.
const BATCHES_OF_SHARE: u64 = 4;
/// When one part in so many of the limit was isolated since a batch was begun, it has had its time.
const AGE_SHARE: u64 = 4;
/// Of all batches, one in so many may hold pages read ahead.
const BATCHES_SHARE: usize = 2;
/// Windows that can wait. Of more, the oldest are forgotten.
const WINDOWS: usize = 8;

/// What is known of pages read ahead.
pub(crate) struct Ahead {
    /// Of each frame, the page that it was filled for last, plus 1.
    owners: Table<AtomicU32>,
    /// Of each batch, how many pages had been isolated when it was begun.
    begun: Table<AtomicU64>,
    lists: SpinLock<Lists>,
    /// Batches that are not free, and frames of them that count.
    batches: AtomicU32,
    pages: AtomicU32,
    batches_max: usize,
    windows: SpinLock<Windows>,
    /// How many windows wait.
    asked: AtomicU32,
    /// Threads that are reading ahead.
    readers: AtomicU32,
    /// How often all that had been asked for was forgotten.
    forgotten: AtomicU32,
}

struct Lists {
    /// The batch that is being filled, and the first frame of it that is free.
    filling: Option<(BatchNo, usize)>,
    /// Those that are full, the oldest first, unless somebody has them in hand.
    full: Ring,
}

struct Windows {
    waiting: [Window; WINDOWS],
    len: usize,
}

impl Ahead {
    /// For so many batches. `None` where there is no memory.
    pub fn new(from: &impl Reserve, batches: usize) -> Option<Ahead> {
        Some(Ahead {
            owners: Table::new(from, batches * BLOCK_PAGES)?,
            begun: Table::new(from, batches)?,
            lists: SpinLock::new(Lists { filling: None, full: Ring::new(from, batches)? }),
            batches: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            batches_max: batches / BATCHES_SHARE,
            windows: SpinLock::new(Windows { waiting: [Window::NONE; WINDOWS], len: 0 }),
            asked: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            forgotten: AtomicU32::new(0),
        })
    }

    // ---------------------------------------------------------------- windows

    /// Something is to be read ahead.
    pub fn ask(&self, window: Window, pause: impl Fn(u32)) {
        let mut windows = self.windows.lock(pause);
        if windows.len == WINDOWS {
            windows.waiting.copy_within(1.., 0);
            windows.len -= 1;
        }
        let len = windows.len;
        windows.waiting[len] = window;
        windows.len += 1;
        self.asked.store(windows.len as u32, SeqCst);
    }
    /// What has waited longest.
    pub fn next(&self, pause: impl Fn(u32)) -> Option<Window> {
        if !self.is_asked() {
            return None;
        }
        let mut windows = self.windows.lock(pause);
        if windows.len == 0 {
            return None;
        }
        let window = windows.waiting[0];
        windows.waiting.copy_within(1.., 0);
        windows.len -= 1;
        self.asked.store(windows.len as u32, SeqCst);
        Some(window)
    }
    /// Forgets all that was asked for, also what is about to be read. Says whether somebody is at that: who claims a page, and
    /// looks at [`Ahead::asked_at`] after that, sees this, or else whoever looks at the page after this sees it claimed.
    pub fn forget(&self, pause: impl Fn(u32)) -> bool {
        if self.is_asked() {
            let mut windows = self.windows.lock(pause);
            windows.len = 0;
            self.asked.store(0, SeqCst);
        }
        let is_read = self.readers.load(SeqCst) > 0;
        if is_read && !broken::is(Broken::AheadRemembered) {
            self.forgotten.fetch_add(1, SeqCst);
        }
        fence(SeqCst);
        is_read
    }
    /// A number that changes when what was asked for before is forgotten.
    pub fn asked_at(&self) -> u32 {
        fence(SeqCst);
        self.forgotten.load(SeqCst)
    }
    /// A thread begins to read ahead.
    pub fn begin(&self) {
        self.readers.fetch_add(1, SeqCst);
    }
    /// It ends.
    pub fn end(&self) {
        self.readers.fetch_sub(1, SeqCst);
    }
    /// Whether something waits.
    pub fn is_asked(&self) -> bool {
        self.asked.load(SeqCst) > 0
    }

    // ----------------------------------------------------------------- frames

    /// Frames of pages read ahead that there may be under a limit.
    pub fn max_pages(&self, limit_pages: u64) -> u64 {
        limit_pages / SHARE
    }
    /// Frames that count: of pages read ahead, and of such that were touched since, in batches not yet released.
    pub fn pages(&self) -> u64 {
        u64::from(self.pages.load(Relaxed))
    }
    /// Batches that are not free.
    pub fn batches(&self) -> usize {
        self.batches.load(Relaxed) as usize
    }

    /// A frame for a page, which the caller owns; `isolated` is how many pages were isolated so far. The frame counts, and is
    /// live, and is the caller's to fill, or to give back by [`Ahead::unfilled`]. `None` where there is none.
    pub fn frame(
        &self,
        page: PageNo,
        frames: &Frames,
        limit_pages: u64,
        isolated: u64,
        pause: impl Fn(u32) + Copy,
    ) -> Option<FrameNo> {
        let most = (self.max_pages(limit_pages) / BATCHES_OF_SHARE).clamp(1, BLOCK_PAGES as u64) as usize;
        let mut lists = self.lists.lock(pause);
        if let Some((batch, _)) = lists.filling.filter(|&(_, next)| next >= most) {
            lists.full.push(batch.0);
            lists.filling = None;
        }
        let (batch, at) = match lists.filling {
            Some(filling) => filling,
            None if self.batches() >= self.batches_max => return None,
            None => {
                // Which block a batch is of says nothing here.
                let batch = frames.take_free(BlockNo(0), pause)?;
                self.begun[batch.0 as usize].store(isolated, Relaxed);
                self.batches.fetch_add(1, Relaxed);
                (batch, 0)
            }
        };
        lists.filling = Some((batch, at + 1));
        let frame = batch.frame(at);
        self.owners[frame.0 as usize].store(page.0 + 1, Relaxed);
        frames.fill(batch, Mask::single(at));
        self.pages.fetch_add(1, Relaxed);
        Some(frame)
    }
    /// A frame could not be filled.
    pub fn unfilled(&self, frame: FrameNo, frames: &Frames) {
        self.pages.fetch_sub(1, Relaxed);
        frames.unfill(frame);
    }
    /// The page that a frame was filled for last.
    pub fn owner(&self, frame: FrameNo) -> Option<PageNo> {
        self.owners[frame.0 as usize].load(Relaxed).checked_sub(1).map(PageNo)
    }

    // ---------------------------------------------------------------- batches

    /// Takes the oldest batch in hand, if `wanted` says so of it.
    pub fn take_oldest(&self, wanted: impl Fn(BatchNo) -> bool, pause: impl Fn(u32)) -> Option<BatchNo> {
        if self.batches() == 0 {
            return None;
        }
        let mut lists = self.lists.lock(pause);
        let oldest = lists.full.oldest().map(BatchNo).or(lists.filling.map(|(batch, _)| batch))?;
        if !wanted(oldest) {
            return None;
        }
        if lists.full.pop().is_none() {
            lists.filling = None;
        }
        Some(oldest)
    }
    /// Gives back a batch in hand that could not be released.
    pub fn keep(&self, batch: BatchNo, pause: impl Fn(u32)) {
        self.lists.lock(pause).full.push(batch.0);
    }
    /// A batch in hand, of which so many frames counted, was released.
    pub fn released(&self, pages: usize) {
        self.pages.fetch_sub(pages as u32, Relaxed);
        self.batches.fetch_sub(1, Relaxed);
    }
    /// Whether a batch has had its time, with so many pages isolated so far.
    pub fn is_old(&self, batch: BatchNo, limit_pages: u64, isolated: u64) -> bool {
        isolated.saturating_sub(self.begun[batch.0 as usize].load(Relaxed)) > limit_pages / AGE_SHARE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::readahead::Over;
    use crate::table::tests::Leak;

    const LIMIT_PAGES: u64 = 1 << 16;

    #[test]
    fn of_too_many_windows_the_oldest_are_forgotten() {
        let ahead = Ahead::new(&Leak, 4).expect("there is memory");
        assert!(!ahead.is_asked() && ahead.next(|_| ()).is_none());
        let window = |first| Window { over: Over::Pages, first, step: 1, count: 1 };
        (0..WINDOWS as u32 + 3).for_each(|first| ahead.ask(window(first), |_| ()));
        let got = core::iter::from_fn(|| ahead.next(|_| ()).map(|window| window.first));
        assert_eq!(got.collect::<Vec<_>>(), (3..WINDOWS as u32 + 3).collect::<Vec<_>>());
        assert!(!ahead.is_asked());
    }

    #[test]
    fn batches_come_back_in_the_order_in_which_they_were_filled_and_are_not_all_taken() {
        let (ahead, frames) =
            (Ahead::new(&Leak, 6).expect("there is memory"), Frames::new(&Leak, 6).expect("there is memory"));
        let frame = |page| ahead.frame(PageNo(page), &frames, LIMIT_PAGES, u64::from(page), |_| ());
        let filled = (0..).map_while(|page| Some((page, frame(page)?))).collect::<Vec<_>>();
        assert_eq!(filled.len(), 3 * BLOCK_PAGES, "half of the batches");
        assert!(filled.iter().all(|&(page, frame)| ahead.owner(frame) == Some(PageNo(page)) && frames.is_live(frame)));
        assert_eq!((ahead.pages(), ahead.batches(), frames.isolated_pages()), (192, 3, 192));
        let first = frames.batch_of(filled[0].1);
        assert!(!ahead.is_old(first, 400, 100) && ahead.is_old(first, 400, 101));
        assert_eq!(ahead.take_oldest(|_| false, |_| ()), None);
        for part in filled.chunks(BLOCK_PAGES) {
            let batch = ahead.take_oldest(|_| true, |_| ()).expect("there is one");
            assert!(part.iter().all(|&(_, frame)| frames.batch_of(frame) == batch));
            part.iter().for_each(|&(_, frame)| frames.end_live(frame));
            ahead.released(frames.filled_pages(batch));
            frames.emptied(batch);
            frames.give_back(batch, |_| ());
        }
        assert_eq!((ahead.pages(), ahead.batches(), ahead.take_oldest(|_| true, |_| ())), (0, 0, None));
        frames.check(0);
    }

    #[test]
    fn a_frame_that_was_not_filled_does_not_count() {
        let (ahead, frames) =
            (Ahead::new(&Leak, 2).expect("there is memory"), Frames::new(&Leak, 2).expect("there is memory"));
        // Under a small limit batches are small, so that not all is dropped at once.
        let frame = |page| ahead.frame(PageNo(page), &frames, 64, 0, |_| ());
        let all = [1, 2].map(|page| frame(page).expect("there is room"));
        assert_eq!(frame(3), None, "one batch, of two pages");
        ahead.unfilled(all[1], &frames);
        assert_eq!((ahead.pages(), frames.isolated_pages(), frames.is_live(all[1])), (1, 1, false));
        frames.check(1);
    }
}
