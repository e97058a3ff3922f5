//! What the store counts.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! stats {
    (counters { $($(#[$doc:meta])* $counter:ident),* $(,)? } gauges { $($(#[$gauge_doc:meta])* $gauge:ident),* $(,)? }) => {
        /// Counters and gauges of one process's store; read them with relaxed loads.
        #[derive(Default, Debug)]
        #[repr(C)]
        pub struct StoreStats {
            $($(#[$doc])* pub $counter: AtomicU64,)*
            $($(#[$gauge_doc])* pub $gauge: AtomicU64,)*
        }

        impl StoreStats {
            /// In a forked child: what its parent did is its parent's to tell. The gauges stay, they say what the child has.
            pub(crate) fn begin_child(&self) {
                $(self.$counter.store(0, Relaxed);)*
            }
        }
    };
}
stats! {
    counters {
        /// Pages written to a plain or compressed RAM tier.
        pages_out_ram,
        /// Pages read from a RAM tier.
        pages_in_ram,
        /// Pages written to the file tier, directly or from a RAM tier.
        pages_out_file,
        /// Pages read from the file tier.
        pages_in_file,
        /// Those of them that had been in it for no longer than a number of other pages took to follow ([`crate::ProcessStore::set_near_pages`]).
        pages_in_file_near,
        /// Nanoseconds that those reads of the file took that were timed: a few of all.
        file_read_ns,
        /// Pages of these reads.
        file_pages_timed,
        /// Bytes written to the file.
        file_written_total,
        /// Writes of the file: one for a segment, or for what there is of one at a fork.
        file_writes,
        /// Bytes read from the file.
        file_read_total,
        /// Reads of the file that were made at the same time as others.
        file_reads_together,
        /// Requests to devices that tiers are slowed to.
        device_requests,
        /// Nanoseconds that these took, of each from when it was made.
        device_ns,
        /// Nanoseconds of them that were waited.
        device_wait_ns,
        /// Bytes that went into compression.
        compress_in_total,
        /// Bytes that came out of compression, raw units counted at full size.
        compress_out_total,
        /// Units that did not compress.
        raw_units,
        /// Puts refused because every tier was full.
        full,
        /// Read and write errors of the file.
        errors,
        /// Those of them that were of writes.
        write_errors,
        /// Units that came back changed.
        corruptions,
        /// Objects moved by compaction of a pool.
        compacted_objects,
        /// Units moved out of sparse file segments.
        file_moved_units,
        /// Forked children for which a file's table had no entry: what they share is never freed.
        pinned_forks,
        /// Forked children that could not make a file to write to as they were forked: no permission, or too many ancestors' files in use.
        forks_without_file,
    }
    gauges {
        /// Gauge: live bytes of this process in the file.
        file_live_bytes,
        /// Gauge: pool memory really held.
        pool_bytes,
        /// Gauge: bytes of stored objects in the pools.
        pool_used_bytes,
        /// Gauge: the error of the last write to the file, if it failed; else 0.
        file_errno,
    }
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
