//! Streams of any stride, several at once.
//!
//! A miss that is the last of four at equal distances, whatever came between them, begins a stream; three will do where they are
//! neighbours. A stream is read ahead of, and further ahead each time that it reaches what was read.
//!
//! Streams that are allocated only after a filter has seen a few misses in order are those of S. Palacharla and R. E. Kessler,
//! "Evaluating Stream Buffers as a Secondary Cache Replacement", ISCA 1994. That a distance is found by looking for the places
//! before, and so for any number of streams that take turns, is from Y. Ishii, M. Inaba and K. Hiraki, "Access Map Pattern
//! Matching for Data Cache Prefetch", ICS 2009; here the map is of the latest misses, not of a part of memory.
use super::{Over, Plan, Readahead, Sizes, Window};
use crate::broken::{self, Broken};
use crate::lock::SpinLock;
use crate::table::Reserve;
use crate::units::{PageNo, SlotId};

/// Misses that are remembered, of which no stream is known.
const RECENT: usize = 48;
/// Touches after which a miss is forgotten. Else two that were far apart in time would seem to be in order.
const RECENT_TOUCHES: u32 = 4 * RECENT as u32;
/// Streams that are followed at the same time.
const STREAMS: usize = 16;
/// The longest stride, in pages.
const STRIDE_MAX: u32 = 1024;
/// Pages that a stream is read ahead of: at first, and at most in terms of the largest cluster.
const DEPTH_START: u32 = 4;
const DEPTH_CLUSTERS: u32 = 4;
/// What is read ahead of all streams is at most this share of the limit: half of what may be.
const LIMIT_SHARE: u64 = 16;
/// A stream that did not go on for so many touches is at rest, and needs nothing of that.
const REST_TOUCHES: u32 = 4 * STREAMS as u32;

#[derive(Clone, Copy)]
struct Stream {
    /// The page that is touched next; 0 with a stride of 0 where there is no stream.
    next: u32,
    stride: i32,
    /// How many strides from `next` on were asked for.
    ahead: u32,
    /// How many that should be.
    depth: u32,
    /// When it went on last.
    used: u32,
}

impl Stream {
    const NONE: Stream = Stream { next: 0, stride: 0, ahead: 0, depth: 0, used: 0 };

    /// How many strides after the next touch a page is, if it is among those asked for, or the first after them.
    fn position(&self, page: u32) -> Option<u32> {
        let (distance, stride) = (i64::from(page) - i64::from(self.next), i64::from(self.stride));
        let is_on = stride != 0 && distance % stride == 0;
        is_on.then(|| distance / stride).filter(|at| (0..=i64::from(self.ahead)).contains(at)).map(|at| at as u32)
    }
    /// The page so many strides after the next touch.
    fn at(&self, strides: u32) -> Option<u32> {
        u32::try_from(i64::from(self.next) + i64::from(self.stride) * i64::from(strides)).ok()
    }
}

struct Seen {
    /// Misses, and the touch that each was.
    recent: [(u32, u32); RECENT],
    /// How many were put there.
    count: usize,
    streams: [Stream; STREAMS],
    /// Touches so far.
    clock: u32,
}

impl Seen {
    fn has(&self, page: i64) -> bool {
        self.known().any(|known| known == page)
    }
    fn known(&self) -> impl Iterator<Item = i64> {
        let is_known = |(_, at): &&(u32, u32)| self.clock.wrapping_sub(*at) < RECENT_TOUCHES;
        self.recent[..self.count.min(RECENT)].iter().filter(is_known).map(|&(page, _)| i64::from(page))
    }
    /// The shortest stride of which this miss is the last of four, or of three neighbours. With fewer, misses without any order
    /// would often be in one by chance.
    fn stride(&self, page: u32) -> Option<i32> {
        let strides = self.known().map(|before| i64::from(page) - before);
        let is_one = |&stride: &i64| {
            let len = stride.unsigned_abs();
            let had = |strides: i64| self.has(i64::from(page) - strides * stride);
            len > 0 && len <= u64::from(STRIDE_MAX) && had(2) && (len == 1 || had(3))
        };
        strides.filter(is_one).min_by_key(|stride| stride.unsigned_abs()).map(|stride| stride as i32)
    }
    fn remember(&mut self, page: u32) {
        self.recent[self.count % RECENT] = (page, self.clock);
        self.count = if self.count + 1 == 2 * RECENT { RECENT } else { self.count + 1 };
    }

    /// How many streams are going on.
    fn going_on(&self) -> u32 {
        let is_going_on = |s: &&Stream| s.stride != 0 && self.clock.wrapping_sub(s.used) < REST_TOUCHES;
        self.streams.iter().filter(is_going_on).count() as u32
    }

    /// A page was touched: what its stream is to be read ahead of now, at most `depth_max` pages, and `all_max` of all streams.
    fn touched(&mut self, page: u32, is_hit: bool, depth_max: u32, all_max: u32) -> Option<Window> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let depth_max = depth_max.min(all_max / self.going_on().max(1)).max(1);
        let going_on = self.streams.iter_mut().find_map(|stream| Some((stream.position(page)?, stream)));
        let stream = match going_on {
            Some((at, stream)) => {
                let next = stream.at(at + 1)?;
                (stream.next, stream.used) = (next, clock);
                stream.ahead = stream.ahead.saturating_sub(at + 1);
                stream
            }
            // What was read ahead for a stream that is forgotten tells nothing.
            None if is_hit => return None,
            None => {
                let Some(stride) = self.stride(page).filter(|_| !broken::is(Broken::NoStrides)) else {
                    self.remember(page);
                    return None;
                };
                let oldest = self
                    .streams
                    .iter_mut()
                    .max_by_key(|stream| if stream.stride == 0 { u32::MAX } else { clock.wrapping_sub(stream.used) })?;
                *oldest = Stream { next: page, stride, ahead: 0, depth: DEPTH_START, used: clock };
                oldest.next = oldest.at(1)?;
                oldest
            }
        };
        stream.depth = stream.depth.min(depth_max);
        if stream.ahead > stream.depth / 2 {
            return None;
        }
        let (first, count) = (stream.at(stream.ahead)?, stream.depth - stream.ahead);
        stream.ahead = stream.depth;
        stream.depth = stream.depth.saturating_mul(2).min(depth_max);
        (count > 0).then_some(Window { over: Over::Pages, first, step: stream.stride, count })
    }
}

/// The policy.
pub struct Strides {
    depth_max: u32,
    seen: SpinLock<Seen>,
}

impl Strides {
    /// Needs no memory beside its own.
    pub fn new(_: &impl Reserve, sizes: Sizes) -> Option<Strides> {
        let seen = Seen { recent: [(0, 0); RECENT], count: 0, streams: [Stream::NONE; STREAMS], clock: 0 };
        let depth_max = if sizes.page_cluster == 0 { 0 } else { DEPTH_CLUSTERS << sizes.page_cluster };
        Some(Strides { depth_max, seen: SpinLock::new(seen) })
    }
    fn touched(&self, page: PageNo, is_hit: bool, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        let all_max = (limit_pages / LIMIT_SHARE).min(u64::from(u32::MAX)) as u32;
        if self.depth_max == 0 || all_max == 0 {
            return None;
        }
        self.seen.lock(pause).touched(page.0, is_hit, self.depth_max, all_max)
    }
}

impl Readahead for Strides {
    fn plan(&self, page: PageNo, _: u64) -> Plan {
        Plan::only(page, 1)
    }
    fn answered(&self, _: PageNo, _: PageNo, _: PageNo) {}
    fn missed(&self, page: PageNo, _: SlotId, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        self.touched(page, false, limit_pages, pause)
    }
    fn hit(&self, page: PageNo, limit_pages: u64, pause: &impl Fn(u32)) -> Option<Window> {
        self.touched(page, true, limit_pages, pause)
    }
    fn block_bytes(&self) -> usize {
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::tests::Leak;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LIMIT_PAGES: u64 = 1 << 16;

    fn strides() -> Strides {
        Strides::new(&Leak, Sizes { pages: 0, page_cluster: 3 }).expect("there is memory")
    }

    /// Touches pages, where all that is asked for is there at the next touch. Returns misses, and pages that were asked for.
    fn touch(policy: &Strides, pages: impl Iterator<Item = u32>) -> (usize, HashSet<u32>) {
        let (mut misses, mut asked) = (0, HashSet::new());
        for page in pages {
            let window = if asked.contains(&page) {
                policy.hit(PageNo(page), LIMIT_PAGES, &|_| ())
            } else {
                misses += 1;
                policy.missed(PageNo(page), SlotId(0), LIMIT_PAGES, &|_| ())
            };
            asked.extend(window.into_iter().flat_map(Window::numbers));
        }
        (misses, asked)
    }

    #[test]
    fn a_stream_misses_until_it_is_seen_and_then_never() {
        for (stride, misses_max) in [(1i64, 3), (-1, 3), (7, 4), (-64, 4), (1000, 4)] {
            let pages = (0..200).map(|i| (250_000 + i * stride) as u32).collect::<Vec<_>>();
            let (misses, asked) = touch(&strides(), pages.iter().copied());
            assert_eq!(misses, misses_max, "stride {stride}");
            assert!(asked.len() <= pages.len() + 4 * 8, "stride {stride}: {} pages", asked.len());
        }
        let (misses, asked) = touch(&strides(), (0..200).map(|i| i * (STRIDE_MAX + 1)));
        assert_eq!((misses, asked.len()), (200, 0), "too far");
    }

    #[test]
    fn streams_that_take_turns_are_told_apart() {
        let strides_of = [1i64, -3, 16, 5, 2, 100, -1, 9];
        let place = |i: usize| (i as i64 + 1) * 1_000_000;
        let turns = (0..100).flat_map(|n| strides_of.iter().enumerate().map(move |(i, s)| (place(i) + n * s) as u32));
        let (misses, _) = touch(&strides(), turns);
        assert!(misses <= 4 * strides_of.len(), "{misses} misses");
    }

    #[test]
    fn places_that_were_touched_long_ago_are_in_no_order() {
        // A sweep by columns: each begins beside where the one before began.
        const ROW: u32 = 9;
        const ROWS: u32 = 2 * RECENT_TOUCHES;
        let (misses, asked) =
            touch(&strides(), (0..ROW).flat_map(|column| (0..ROWS).map(move |row| row * ROW + column)));
        assert_eq!(misses, 4 * ROW as usize);
        let beyond = ROW * 4 * 8;
        assert!(asked.len() as u32 <= ROW * ROWS + beyond, "{} pages", asked.len());
    }

    #[test]
    fn what_has_no_order_is_left_alone() {
        let mut random = 1u64;
        let pages = (0..20_000).map(|_| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 44) as u32
        });
        let (_, asked) = touch(&strides(), pages);
        assert!(asked.len() < 400, "{} pages for 20,000 touches", asked.len());
    }

    #[test]
    fn many_streams_share_what_may_be_read_ahead() {
        const PLACE: u32 = 100_000;
        let policy = strides();
        let turns = (0..60).flat_map(|n| (1..=STREAMS as u32).map(move |stream| stream * PLACE + n));
        let (mut ahead, mut most) = (HashSet::new(), 0);
        for page in turns {
            let touched = policy.touched(PageNo(page), ahead.remove(&page), 40 * LIMIT_SHARE, &|_| ());
            ahead.extend(touched.into_iter().flat_map(Window::numbers));
            most = most.max(ahead.len());
        }
        assert!((STREAMS..=2 * 40).contains(&most), "{most} pages ahead");
    }

    #[test]
    fn nothing_is_read_ahead_where_a_page_comes_alone() {
        let policy = Strides::new(&Leak, Sizes { pages: 0, page_cluster: 0 }).expect("there is memory");
        assert_eq!(touch(&policy, 0..100).0, 100);
        let narrow = |page| strides().missed(PageNo(page), SlotId(0), LIMIT_SHARE - 1, &|_| ());
        assert_eq!([0, 1, 2].map(narrow), [None; 3], "nor in so little memory");
    }

    proptest! {
        /// Whatever is touched, windows are bounded, and no stream leaves the range of numbers.
        #[test]
        fn windows_are_bounded(touches in proptest::collection::vec((any::<bool>(), prop_oneof![0u32..200, any::<u32>()]), 1..300)) {
            let policy = strides();
            for (is_hit, page) in touches {
                if let Some(window) = policy.touched(PageNo(page), is_hit, LIMIT_PAGES, &|_| ()) {
                    prop_assert!((1..=DEPTH_CLUSTERS << 3).contains(&window.count), "{window:?}");
                    prop_assert!(window.step != 0 && window.step.unsigned_abs() <= STRIDE_MAX, "{window:?}");
                    prop_assert!(!window.numbers().any(|number| number == page), "{window:?} for {page}");
                }
            }
        }
    }
}
