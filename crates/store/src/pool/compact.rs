//! Compaction: a sparse span's objects move into free ones of others.
use super::object::{CLASS_BYTES, CLASSES, FREE, Header, Object};
use super::span::{NONE, Pool, PoolShard, SpanRef};
use crate::limits::{COMPACT_SCANNED_SPANS, SCANNED_SPANS, UPGRADED_CLASSES};
use outswap_core::units::PAGE_BYTES;

impl Pool {
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
                self.vacate(victim, index, from, header);
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
}
