//! Compaction: sparse spans of the pools are emptied into others.
use crate::broken::{self, Broken};
use crate::io::FileIo;
use crate::record::Record;
use crate::state::Tiers;
use crate::stats::add;

impl<I: FileIo> Tiers<I> {
    /// Empties one sparse span, where the pools' utilisation promises any.
    pub(crate) fn compact(&self) -> bool {
        for tier in self.order.ram() {
            let pool = &self.pools[tier];
            if pool.used_bytes() * 8 > pool.held_bytes() * 7 {
                continue;
            }
            for shard in self.records.shards() {
                let mut shard = shard.lock();
                let mut part = shard.pools[tier];
                let span = pool.compact(&mut part, |header, object| {
                    for i in 0..header.order.pages() as u32 {
                        if header.live >> i & 1 != 0 && !broken::is(Broken::CompactForgotten) {
                            self.records.put(&shard, header.slot + i, Record::ram(tier, object));
                        }
                    }
                    add(&self.stats.compacted_objects, 1);
                });
                shard.pools[tier] = part;
                drop(shard);
                if span.is_some() {
                    self.release(tier, span);
                    return true;
                }
            }
        }
        false
    }
}
