//! A pool of objects in RAM: compressed units, or raw pages (the plain RAM tier is this pool with raw objects).
//!
//! ```text
//! pool    | span 0 | span 1 | span 2 | ...          128 KiB each, one size class and one shard each
//! span    | object | object | free | object | ~~~   ~~~ never touched: no memory held
//! object  | header 8 B | payload | loss |           header: owner slot, live pages, length, codec
//! ```
//! A span's memory is touched from its start on and only as objects fill it, so what a span holds is known
//! without asking the kernel. The header names the owner, so that an object can be moved (compaction) and its
//! slots' records changed. Every function that takes a [`PoolShard`] runs under that shard's lock.
use crate::compress::Codec;
use crate::limits::{
    CACHED_SPANS, COMPACT_SCANNED_SPANS, MAX_POOL_BYTES, MAX_SLOTS, SCANNED_SPANS, SPAN_BYTES, UPGRADED_CLASSES,
};
use crate::lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering::*};
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// Bytes before an object's payload.
pub(crate) const HEADER_BYTES: usize = 8;
/// Object addresses are multiples of this.
const GRAIN: usize = 64;

/// Number of size classes.
const CLASSES: usize = 32 + 16 + 1 + 16 + 13;

/// Object sizes: steps of 64 bytes, from 2 KiB on 128, from 4 KiB on 256, from 8 KiB on 512 (3 % loss on
/// average at worst), and one exact fit for a raw page, without which raw pages would lose 6 %.
const CLASS_BYTES: [u16; CLASSES] = {
    let mut table = [0; CLASSES];
    let (mut i, mut size) = (0, 0);
    while i < CLASSES {
        size = if size == 4096 {
            4160
        } else if size == 4160 {
            4352
        } else {
            size + if size < 2048 {
                64
            } else if size < 4096 {
                128
            } else if size < 8192 {
                256
            } else {
                512
            }
        };
        table[i] = size;
        i += 1;
    }
    table
};

const _: () = assert!(CLASS_BYTES[CLASSES - 1] as usize <= SPAN_BYTES && SPAN_BYTES / GRAIN <= u16::MAX as usize);
const _: () = assert!(MAX_POOL_BYTES <= GRAIN as u64 * (1 << 32));

/// The smallest class for an object of `bytes`, header included.
fn class_of(bytes: usize) -> Option<usize> {
    let class = CLASS_BYTES.partition_point(|&size| (size as usize) < bytes);
    (class < CLASSES).then_some(class)
}

/// What stands before an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// First slot of the unit.
    pub slot: u32,
    /// One bit for each page of the unit that is still in use.
    pub live: u8,
    /// The unit is a chunk, not a page.
    pub chunk: bool,
    /// Payload bytes.
    pub len: u16,
    pub codec: Codec,
}

const FREE: u64 = 1 << 63;
const SLOT_BITS: u32 = 26;
const _: () = assert!(MAX_SLOTS <= 1 << SLOT_BITS);

impl Header {
    fn pack(self) -> u64 {
        self.slot as u64
            | (self.live as u64) << SLOT_BITS
            | (self.chunk as u64) << 30
            | (self.len as u64) << 32
            | (self.codec as u64) << 48
    }
    fn unpack(word: u64) -> Header {
        Header {
            slot: word as u32 & ((1 << SLOT_BITS) - 1),
            live: (word >> SLOT_BITS) as u8 & 15,
            chunk: word >> 30 & 1 != 0,
            len: (word >> 32) as u16,
            codec: Codec::from_bits(word >> 48),
        }
    }
}

/// An object: its offset in the pool in units of 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object(pub u32);

/// A span by its number + 1; 0 is none, so that zeroed tables are empty ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpanRef(u32);

const NONE: SpanRef = SpanRef(0);

/// What is known of a span. It belongs to the shard that holds it, or to the free list.
#[repr(C)]
struct Span {
    partial_next: SpanRef,
    partial_prev: SpanRef,
    fifo_next: SpanRef,
    fifo_prev: SpanRef,
    birth: u64,
    live: u16,
    /// Objects handed out so far, freed ones included.
    bump: u16,
    /// First free object's index + 1.
    free_head: u16,
    /// Pages held, from the start on. Outlives the span's use.
    touched_pages: u16,
    class: u8,
    in_partial: bool,
    /// A spiller is emptying it: nothing may be allocated here, and only the spiller gives it back.
    draining: bool,
}

/// A shard's part of a pool. All-zero is empty.
#[derive(Clone, Copy)]
pub(crate) struct PoolShard {
    partial: [SpanRef; CLASSES],
    /// Freed objects in spans on the partial lists: room that needs no new memory.
    free_objects: [u32; CLASSES],
    oldest: SpanRef,
    youngest: SpanRef,
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
    base: usize,
    spans: usize,
    span_count: u32,
    max_bytes: u64,
    free: SpinLock<FreeSpans>,
    births: AtomicU64,
    held_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

/// Bytes of span table for a pool of `bytes`.
pub(crate) fn table_bytes(bytes: usize) -> usize {
    bytes / SPAN_BYTES * size_of::<Span>()
}

/// Half a page: about what a page is compressed to.
const PREFETCH_BYTES: usize = 2048;

impl Pool {
    /// Makes this pool of `bytes` of zeroed memory at `base` and a zeroed table of [`table_bytes`] at `spans`.
    pub fn set(&mut self, base: usize, bytes: usize, spans: usize, max_bytes: u64) {
        self.base = base;
        self.spans = spans;
        self.span_count = (bytes / SPAN_BYTES) as u32;
        self.max_bytes = max_bytes;
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
    fn span(&self, span: SpanRef) -> &mut Span {
        debug_assert!(span != NONE && span.0 <= self.span_count);
        // SAFETY: the table has `span_count` entries. A span belongs to one shard or to the free list; whoever
        // holds that lock is the only one here, and no function keeps two references to the same span.
        unsafe { &mut *(self.spans as *mut Span).add(span.0 as usize - 1) }
    }

    fn object(&self, span: SpanRef, index: usize, class: usize) -> Object {
        Object(((span.0 as usize - 1) * (SPAN_BYTES / GRAIN) + index * (CLASS_BYTES[class] as usize / GRAIN)) as u32)
    }

    fn span_of(&self, object: Object) -> SpanRef {
        SpanRef((object.0 as usize / (SPAN_BYTES / GRAIN)) as u32 + 1)
    }

    fn at(&self, object: Object) -> *mut u8 {
        (self.base + object.0 as usize * GRAIN) as *mut u8
    }

    fn word(&self, object: Object) -> u64 {
        // SAFETY: every object lies in the pool and begins with 8 aligned bytes.
        unsafe { self.at(object).cast::<u64>().read() }
    }

    fn set_word(&self, object: Object, word: u64) {
        // SAFETY: as in `word`; the shard's lock is held.
        unsafe { self.at(object).cast::<u64>().write(word) }
    }

    /// The header of a live object.
    pub fn header(&self, object: Object) -> Header {
        Header::unpack(self.word(object))
    }

    /// Changes the header of a live object.
    pub fn set_header(&self, object: Object, header: Header) {
        self.set_word(object, header.pack());
    }

    /// Has the processor fetch the start of an object that will be wanted next.
    pub fn prefetch(&self, object: Object) {
        const LINE_BYTES: usize = 64;
        let at = self.at(object);
        for line in 0..PREFETCH_BYTES / LINE_BYTES {
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                    at.wrapping_add(line * LINE_BYTES).cast(),
                )
            };
        }
    }

    /// The payload of a live object.
    pub fn payload(&self, object: Object, header: Header) -> &[u8] {
        // SAFETY: an object's payload lies behind its header; callers hold the shard's lock while they use it.
        unsafe { core::slice::from_raw_parts(self.at(object).add(HEADER_BYTES), header.len as usize) }
    }

    fn reserve(&self, pages: u64, budget: &Budget) -> Result<(), NoRoom> {
        let bytes = pages * PAGE_BYTES as u64;
        let total = budget.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        let own = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        if total > budget.limit_bytes.load(Relaxed) || own > self.max_bytes {
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

    fn partial_push(&self, shard: &mut PoolShard, at: SpanRef) {
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

    fn partial_remove(&self, shard: &mut PoolShard, at: SpanRef) {
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

    fn fifo_remove(&self, shard: &mut PoolShard, at: SpanRef) {
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
    fn take_span(&self, shard: &mut PoolShard, class: usize) -> Option<SpanRef> {
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
            fifo_prev: shard.youngest,
            birth: self.births.fetch_add(1, Relaxed),
            live: 0,
            bump: 0,
            free_head: 0,
            touched_pages,
            class: class as u8,
            in_partial: false,
            draining: false,
        };
        match shard.youngest {
            NONE => shard.oldest = at,
            last => self.span(last).fifo_next = at,
        }
        shard.youngest = at;
        self.partial_push(shard, at);
        Some(at)
    }

    fn drop_span(&self, shard: &mut PoolShard, at: SpanRef) {
        self.partial_remove(shard, at);
        self.fifo_remove(shard, at);
    }

    fn pop_free(&self, shard: &mut PoolShard, at: SpanRef) -> Object {
        let class = self.span(at).class as usize;
        let object = self.object(at, self.span(at).free_head as usize - 1, class);
        let next = self.word(object) as u16;
        let span = self.span(at);
        span.free_head = next;
        span.live += 1;
        shard.free_objects[class] -= 1;
        self.leave_partial_if_full(shard, at);
        object
    }

    fn leave_partial_if_full(&self, shard: &mut PoolShard, at: SpanRef) {
        let span = self.span(at);
        if span.live as usize == SPAN_BYTES / CLASS_BYTES[span.class as usize] as usize {
            self.partial_remove(shard, at);
        }
    }

    /// Overwrites the payload of an object that is about to be removed.
    pub fn wipe(&self, object: Object, header: Header) {
        // SAFETY: as in `payload`, and the object's last slot is being freed.
        unsafe { core::ptr::write_bytes(self.at(object).add(HEADER_BYTES), 0, header.len as usize) };
    }

    /// Stores an object. `NoRoom` where that would need memory beyond a limit.
    pub fn insert(
        &self,
        shard: &mut PoolShard,
        header: Header,
        payload: &[u8],
        budget: &Budget,
    ) -> Result<Object, NoRoom> {
        let class = class_of(HEADER_BYTES + payload.len()).ok_or(NoRoom)?;
        let object = self.allocate(shard, class, budget)?;
        self.fill(object, header, payload);
        Ok(object)
    }

    fn fill(&self, object: Object, header: Header, payload: &[u8]) {
        self.set_header(object, header);
        // SAFETY: the object's class has room for header and payload, and the object is ours.
        unsafe {
            core::ptr::copy_nonoverlapping(payload.as_ptr(), self.at(object).add(HEADER_BYTES), payload.len());
        }
        self.used_bytes.fetch_add((HEADER_BYTES + payload.len()) as u64, Relaxed);
    }

    fn allocate(&self, shard: &mut PoolShard, class: usize, budget: &Budget) -> Result<Object, NoRoom> {
        // A span with free objects may stand behind one that has only untouched room.
        let mut at = shard.partial[class];
        if shard.free_objects[class] > 0 {
            let mut seen = 0;
            while at != NONE && seen < SCANNED_SPANS {
                if self.span(at).free_head != 0 {
                    return Ok(self.pop_free(shard, at));
                }
                at = self.span(at).partial_next;
                seen += 1;
            }
            at = shard.partial[class];
        }
        let size = CLASS_BYTES[class] as usize;
        let fresh = at == NONE;
        if fresh {
            at = self.take_span(shard, class).ok_or(NoRoom)?;
        } else if self.span(at).free_head != 0 {
            return Ok(self.pop_free(shard, at));
        }
        let span = self.span(at);
        let end = (span.bump as usize + 1) * size;
        if end > SPAN_BYTES {
            // On the list without room: cannot be, as full spans leave it.
            debug_assert!(false, "full span on a partial list");
            return Err(NoRoom);
        }
        let pages = end.div_ceil(PAGE_BYTES) as u16;
        if pages > span.touched_pages {
            if let Err(e) = self.reserve((pages - span.touched_pages) as u64, budget) {
                if fresh {
                    self.drop_span(shard, at);
                    self.release(at, budget);
                }
                return Err(e);
            }
            span.touched_pages = pages;
        }
        let object = self.object(at, span.bump as usize, class);
        span.bump += 1;
        span.live += 1;
        self.leave_partial_if_full(shard, at);
        Ok(object)
    }

    /// Frees an object. A span that became free is returned, to be given to [`Pool::release`] without the lock.
    #[must_use]
    pub fn remove(&self, shard: &mut PoolShard, object: Object) -> Option<SpanRef> {
        let header = self.header(object);
        self.used_bytes.fetch_sub((HEADER_BYTES + header.len as usize) as u64, Relaxed);
        let at = self.span_of(object);
        let span = self.span(at);
        let class = span.class as usize;
        let index = (object.0 as usize % (SPAN_BYTES / GRAIN)) / (CLASS_BYTES[class] as usize / GRAIN);
        self.set_word(object, FREE | span.free_head as u64);
        span.free_head = index as u16 + 1;
        span.live -= 1;
        if span.in_partial {
            shard.free_objects[class] += 1;
        }
        if span.draining {
            return None;
        }
        if span.live == 0 {
            self.drop_span(shard, at);
            return Some(at);
        }
        if !span.in_partial {
            self.partial_push(shard, at);
        }
        None
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

    /// Empties one sparse span of the shard into free objects of others, needing no new memory. `moved` is told
    /// of every object's new place. Returns the emptied span, for [`Pool::release`].
    pub fn compact(&self, shard: &mut PoolShard, mut moved: impl FnMut(Header, Object)) -> Option<SpanRef> {
        for class in 0..CLASSES {
            let Some(victim) = self.sparsest(shard, class) else { continue };
            let (live, free) = {
                let span = self.span(victim);
                (span.live as u32, (span.bump - span.live) as u32)
            };
            let last = (class + UPGRADED_CLASSES).min(CLASSES - 1);
            let room: u32 = shard.free_objects[class..=last].iter().sum();
            if room - free < live {
                continue;
            }
            self.partial_remove(shard, victim);
            let bump = self.span(victim).bump as usize;
            for index in 0..bump {
                let from = self.object(victim, index, class);
                let word = self.word(from);
                if word & FREE != 0 {
                    continue;
                }
                let Some(to) = (class..=last).find_map(|class| self.allocate_existing(shard, class)) else {
                    // Room was counted, but lies behind more full spans than one call looks at.
                    self.partial_push(shard, victim);
                    return None;
                };
                let header = Header::unpack(word);
                self.fill(to, header, self.payload(from, header));
                moved(header, to);
                // The victim is on no list and is not draining, so `remove` must not see it empty.
                self.used_bytes.fetch_sub((HEADER_BYTES + header.len as usize) as u64, Relaxed);
                let span = self.span(victim);
                self.set_word(from, FREE | span.free_head as u64);
                span.free_head = index as u16 + 1;
                span.live -= 1;
            }
            self.fifo_remove(shard, victim);
            return Some(victim);
        }
        None
    }

    fn sparsest(&self, shard: &PoolShard, class: usize) -> Option<SpanRef> {
        let mut best: Option<(u16, SpanRef)> = None;
        let mut at = shard.partial[class];
        let mut seen = 0;
        while at != NONE && seen < SCANNED_SPANS {
            let span = self.span(at);
            // A span that is more than three quarters full costs more to move than it gives.
            let held = span.touched_pages as usize * PAGE_BYTES;
            let live = span.live as usize * CLASS_BYTES[class] as usize;
            if live * 4 <= held * 3 && best.is_none_or(|(least, _)| span.live < least) {
                best = Some((span.live, at));
            }
            at = span.partial_next;
            seen += 1;
        }
        best.map(|(_, at)| at)
    }

    fn allocate_existing(&self, shard: &mut PoolShard, class: usize) -> Option<Object> {
        let mut at = shard.partial[class];
        if shard.free_objects[class] == 0 {
            return None;
        }
        for _ in 0..COMPACT_SCANNED_SPANS {
            if at == NONE {
                return None;
            }
            if self.span(at).free_head != 0 {
                return Some(self.pop_free(shard, at));
            }
            at = self.span(at).partial_next;
        }
        None
    }

    /// When the shard's oldest span was taken into use.
    pub fn oldest_birth(&self, shard: &PoolShard) -> Option<u64> {
        (shard.oldest != NONE).then(|| self.span(shard.oldest).birth)
    }

    /// Begins to empty the shard's oldest span: nothing is allocated there any more.
    pub fn drain_begin(&self, shard: &mut PoolShard) -> Option<SpanRef> {
        let at = shard.oldest;
        if at == NONE || shard.spilling {
            return None;
        }
        self.partial_remove(shard, at);
        self.span(at).draining = true;
        shard.spilling = true;
        Some(at)
    }

    /// The first live object of a span from index `from` on, with its index.
    pub fn next_live(&self, at: SpanRef, from: usize) -> Option<(usize, Object)> {
        let (bump, class) = (self.span(at).bump as usize, self.span(at).class as usize);
        (from..bump).map(|i| (i, self.object(at, i, class))).find(|&(_, object)| self.word(object) & FREE == 0)
    }

    /// Whether an object of a draining span still belongs to the unit at `slot`.
    pub fn still_live(&self, object: Object, slot: u32) -> Option<Header> {
        let word = self.word(object);
        (word & FREE == 0 && Header::unpack(word).slot == slot).then(|| Header::unpack(word))
    }

    /// Ends what [`Pool::drain_begin`] began. A span that is now empty is returned, for [`Pool::release`].
    pub fn drain_end(&self, shard: &mut PoolShard, at: SpanRef) -> Option<SpanRef> {
        shard.spilling = false;
        let span = self.span(at);
        span.draining = false;
        if span.live == 0 {
            self.drop_span(shard, at);
            return Some(at);
        }
        // A span that could not be emptied goes to the end of the queue, so that the next attempt tries another.
        self.fifo_remove(shard, at);
        let last = shard.youngest;
        let span = self.span(at);
        (span.fifo_prev, span.fifo_next) = (last, NONE);
        match last {
            NONE => shard.oldest = at,
            last => self.span(last).fifo_next = at,
        }
        shard.youngest = at;
        let span = self.span(at);
        if (span.live as usize) < SPAN_BYTES / CLASS_BYTES[span.class as usize] as usize {
            self.partial_push(shard, at);
        }
        None
    }
}
