//! Spans: the memory that they hold, the lists that they are on, and what becomes of free ones.
use super::object::{CLASSES, span_objects};
use crate::broken::{self, Broken};
use crate::limits::{CACHED_SPANS, SPAN_BYTES};
use crate::lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering::*};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// A span by its number + 1; 0 is none, so that zeroed tables are empty ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpanRef(pub(super) u32);

pub(super) const NONE: SpanRef = SpanRef(0);

/// What is known of a span. It belongs to the shard that holds it, or to the free list.
#[repr(C)]
pub(super) struct Span {
    pub(super) partial_next: SpanRef,
    pub(super) partial_prev: SpanRef,
    pub(super) fifo_next: SpanRef,
    pub(super) fifo_prev: SpanRef,
    pub(super) birth: u64,
    pub(super) live: u16,
    /// Objects handed out so far, freed ones included.
    pub(super) bump: u16,
    /// First free object's index + 1.
    pub(super) free_head: u16,
    /// Pages held, from the start on. Outlives the span's use.
    pub(super) touched_pages: u16,
    pub(super) class: u8,
    pub(super) in_partial: bool,
    /// A spiller is emptying it: nothing may be allocated here, and only the spiller gives it back.
    pub(super) draining: bool,
}

/// A shard's part of a pool. All-zero is empty.
#[derive(Clone, Copy)]
pub(crate) struct PoolShard {
    pub(super) partial: [SpanRef; CLASSES],
    /// Freed objects in spans on the partial lists: room that needs no new memory.
    pub(super) free_objects: [u32; CLASSES],
    pub(super) oldest: SpanRef,
    pub(super) youngest: SpanRef,
    /// A span of this shard is being spilled.
    pub spilling: bool,
}

struct FreeSpans {
    /// Spans from this number on were never used.
    next: u32,
    /// Free spans that hold memory.
    cached: SpanRef,
    cached_count: u32,
    /// Free spans that hold none.
    empty: SpanRef,
}

/// Memory held by all pools of a store together, and the limit the runtime sets.
pub(crate) struct Budget {
    pub held_bytes: AtomicU64,
    pub limit_bytes: AtomicU64,
}

/// A pool needs more memory than it may have.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// A pool. All-zero memory is a pool of no spans, which has no room.
pub(crate) struct Pool {
    pub(super) base: usize,
    spans: usize,
    span_count: u32,
    max_bytes: u64,
    free: SpinLock<FreeSpans>,
    births: AtomicU64,
    held_bytes: AtomicU64,
    pub(super) used_bytes: AtomicU64,
}

/// Bytes of span table for a pool of `bytes`.
pub(crate) fn table_bytes(bytes: usize) -> usize {
    bytes / SPAN_BYTES * size_of::<Span>()
}

impl Pool {
    /// Makes this pool of `bytes` of zeroed memory at `base` and a zeroed table of [`table_bytes`] at `spans`.
    pub fn set(&mut self, base: usize, bytes: usize, spans: usize, max_bytes: u64) {
        self.base = base;
        self.spans = spans;
        self.span_count = (bytes / SPAN_BYTES) as u32;
        self.max_bytes = max_bytes;
    }

    /// Where the pool's memory begins, and how many bytes of it were ever given to spans.
    #[cfg(test)]
    pub fn memory(&self) -> (usize, usize) {
        (self.base, self.free.lock().next as usize * SPAN_BYTES)
    }

    /// Memory held.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Bytes of objects, headers included.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Bytes of the span table that were touched.
    pub fn touched_table_bytes(&self) -> u64 {
        let bytes = self.free.lock().next as usize * size_of::<Span>();
        bytes.next_multiple_of(PAGE_BYTES) as u64
    }

    #[allow(clippy::mut_from_ref)]
    pub(super) fn span(&self, span: SpanRef) -> &mut Span {
        debug_assert!(span != NONE && span.0 <= self.span_count);
        // SAFETY: the table has `span_count` entries. A span belongs to one shard or to the free list; whoever
        // holds that lock is the only one here, and no function keeps two references to the same span.
        unsafe { &mut *(self.spans as *mut Span).add(span.0 as usize - 1) }
    }

    pub(super) fn reserve(&self, pages: u64, budget: &Budget) -> Result<(), NoRoom> {
        let bytes = pages * PAGE_BYTES as u64;
        let total = budget.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        let own = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        let is_over = total > budget.limit_bytes.load(Relaxed) || own > self.max_bytes;
        if is_over && !broken::is(Broken::PoolUnlimited) {
            self.unreserve(pages, budget);
            return Err(NoRoom);
        }
        Ok(())
    }

    fn unreserve(&self, pages: u64, budget: &Budget) {
        let bytes = pages * PAGE_BYTES as u64;
        budget.held_bytes.fetch_sub(bytes, Relaxed);
        self.held_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn partial_push(&self, shard: &mut PoolShard, at: SpanRef) {
        let class = self.span(at).class as usize;
        let next = shard.partial[class];
        if next != NONE {
            self.span(next).partial_prev = at;
        }
        let span = self.span(at);
        (span.partial_next, span.partial_prev, span.in_partial) = (next, NONE, true);
        shard.partial[class] = at;
        shard.free_objects[class] += (span.bump - span.live) as u32;
    }

    pub(super) fn partial_remove(&self, shard: &mut PoolShard, at: SpanRef) {
        let span = self.span(at);
        if !span.in_partial {
            return;
        }
        span.in_partial = false;
        let (next, prev, class) = (span.partial_next, span.partial_prev, span.class as usize);
        shard.free_objects[class] -= (span.bump - span.live) as u32;
        if next != NONE {
            self.span(next).partial_prev = prev;
        }
        if prev != NONE {
            self.span(prev).partial_next = next;
        } else {
            shard.partial[class] = next;
        }
    }

    /// Puts a span at the end of the queue of those to be spilled.
    pub(super) fn fifo_push(&self, shard: &mut PoolShard, at: SpanRef) {
        let last = shard.youngest;
        let span = self.span(at);
        (span.fifo_prev, span.fifo_next) = (last, NONE);
        match last {
            NONE => shard.oldest = at,
            last => self.span(last).fifo_next = at,
        }
        shard.youngest = at;
    }

    pub(super) fn fifo_remove(&self, shard: &mut PoolShard, at: SpanRef) {
        let (next, prev) = (self.span(at).fifo_next, self.span(at).fifo_prev);
        match next {
            NONE => shard.youngest = prev,
            next => self.span(next).fifo_prev = prev,
        }
        match prev {
            NONE => shard.oldest = next,
            prev => self.span(prev).fifo_next = next,
        }
    }

    /// Gives a span a class and puts it on the shard's lists.
    pub(super) fn take_span(&self, shard: &mut PoolShard, class: usize) -> Option<SpanRef> {
        let at = {
            let mut free = self.free.lock();
            if free.cached != NONE {
                let at = free.cached;
                free.cached = self.span(at).partial_next;
                free.cached_count -= 1;
                at
            } else if free.empty != NONE {
                let at = free.empty;
                free.empty = self.span(at).partial_next;
                at
            } else if free.next < self.span_count {
                free.next += 1;
                SpanRef(free.next)
            } else {
                return None;
            }
        };
        let span = self.span(at);
        let touched_pages = span.touched_pages;
        *span = Span {
            partial_next: NONE,
            partial_prev: NONE,
            fifo_next: NONE,
            fifo_prev: NONE,
            birth: self.births.fetch_add(1, Relaxed),
            live: 0,
            bump: 0,
            free_head: 0,
            touched_pages,
            class: class as u8,
            in_partial: false,
            draining: false,
        };
        self.fifo_push(shard, at);
        self.partial_push(shard, at);
        Some(at)
    }

    pub(super) fn drop_span(&self, shard: &mut PoolShard, at: SpanRef) {
        self.partial_remove(shard, at);
        self.fifo_remove(shard, at);
    }

    pub(super) fn leave_partial_if_full(&self, shard: &mut PoolShard, at: SpanRef) {
        let span = self.span(at);
        if span.live as usize == span_objects(span.class as usize) {
            self.partial_remove(shard, at);
        }
    }

    /// Puts a span that no shard holds any more on the free list, with its memory or without.
    pub fn release(&self, at: SpanRef, budget: &Budget) {
        let mut free = self.free.lock();
        if self.span(at).touched_pages > 0 && free.cached_count < CACHED_SPANS {
            self.span(at).partial_next = free.cached;
            free.cached = at;
            free.cached_count += 1;
            return;
        }
        drop(free);
        self.discard(at, budget);
    }

    /// Gives back the memory of a span that is on no list, and puts it on the list of empty ones.
    fn discard(&self, at: SpanRef, budget: &Budget) -> u64 {
        let pages = core::mem::take(&mut self.span(at).touched_pages);
        if pages > 0 {
            let start = self.base + (at.0 as usize - 1) * SPAN_BYTES;
            // SAFETY: nothing lives in a free span.
            let done = unsafe { os::madvise(start, pages as usize * PAGE_BYTES, os::MADV_DONTNEED) };
            if done.is_err() {
                // Locked memory, for one: it is still held, so it stays counted.
                self.span(at).touched_pages = pages;
            } else {
                self.unreserve(pages as u64, budget);
            }
        }
        let mut free = self.free.lock();
        self.span(at).partial_next = free.empty;
        free.empty = at;
        pages as u64 * PAGE_BYTES as u64
    }

    /// Gives back the memory of free spans. Returns the bytes.
    pub fn discard_cached(&self, budget: &Budget) -> u64 {
        let mut bytes = 0;
        loop {
            let at = {
                let mut free = self.free.lock();
                let at = free.cached;
                if at == NONE {
                    return bytes;
                }
                free.cached = self.span(at).partial_next;
                free.cached_count -= 1;
                at
            };
            bytes += self.discard(at, budget);
        }
    }
}
