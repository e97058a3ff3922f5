//! Draining: a shard's oldest span is emptied, object by object, while its objects may still be freed.
use super::object::{FREE, Header, Object, span_objects};
use super::span::{NONE, Pool, PoolShard, SpanRef};

impl Pool {
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
        self.fifo_push(shard, at);
        let span = self.span(at);
        if (span.live as usize) < span_objects(span.class as usize) {
            self.partial_push(shard, at);
        }
        None
    }
}
