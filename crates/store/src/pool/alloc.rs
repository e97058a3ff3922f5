//! Objects: where they lie, and how they come and go.
use super::object::{CLASS_BYTES, FREE, GRAIN, HEADER_BYTES, Header, Object, PREFETCH_BYTES, class_of};
use super::span::{Budget, NONE, NoRoom, Pool, PoolShard, SpanRef};
use crate::broken::{self, Broken};
use crate::limits::{SCANNED_SPANS, SPAN_BYTES};
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::units::PAGE_BYTES;

impl Pool {
    pub(super) fn object(&self, span: SpanRef, index: usize, class: usize) -> Object {
        Object(((span.0 as usize - 1) * (SPAN_BYTES / GRAIN) + index * (CLASS_BYTES[class] as usize / GRAIN)) as u32)
    }

    fn span_of(&self, object: Object) -> SpanRef {
        SpanRef((object.0 as usize / (SPAN_BYTES / GRAIN)) as u32 + 1)
    }

    fn at(&self, object: Object) -> *mut u8 {
        (self.base + object.0 as usize * GRAIN) as *mut u8
    }

    pub(super) fn word(&self, object: Object) -> u64 {
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

    /// Overwrites the payload of an object that is about to be removed.
    pub fn wipe(&self, object: Object, header: Header) {
        if broken::is(Broken::WipeLeaves) {
            return;
        }
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

    pub(super) fn fill(&self, object: Object, header: Header, payload: &[u8]) {
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

    pub(super) fn pop_free(&self, shard: &mut PoolShard, at: SpanRef) -> Object {
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

    /// Puts an object on its span's list of free ones.
    pub(super) fn vacate(&self, at: SpanRef, index: usize, object: Object, header: Header) {
        self.used_bytes.fetch_sub((HEADER_BYTES + header.len as usize) as u64, Relaxed);
        let span = self.span(at);
        self.set_word(object, FREE | span.free_head as u64);
        span.free_head = index as u16 + 1;
        span.live -= 1;
    }

    /// Frees an object. A span that became free is returned, to be given to [`Pool::release`] without the lock.
    #[must_use]
    pub fn remove(&self, shard: &mut PoolShard, object: Object) -> Option<SpanRef> {
        let at = self.span_of(object);
        let class = self.span(at).class as usize;
        let index = (object.0 as usize % (SPAN_BYTES / GRAIN)) / (CLASS_BYTES[class] as usize / GRAIN);
        self.vacate(at, index, object, self.header(object));
        let span = self.span(at);
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
}
