//! Cleaning: what lives in sparse segments of the file moves to the open one, where there is no room or much is dead.
use crate::file::{Seal, Segment, UnitId};
use crate::io::FileIo;
use crate::limits::{CLEAN_TRIES, MAX_SEALED_BYTES, SEGMENT_BYTES, WAIT_SPINS};
use crate::state::Tiers;
use crate::stats::add;
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::store::StoreError;
use outswap_sys::os;

impl<I: FileIo> Tiers<I> {
    /// Appends to the file, cleaning a sparse segment where there is no room, or much is dead.
    pub(crate) fn append(&self, sealed: &[u8; MAX_SEALED_BYTES], seal: Seal, pages: u32) -> Result<u64, StoreError> {
        let append = || {
            if self.is_memory_used_up() {
                return Err(StoreError::Full);
            }
            self.file.append(&self.io, &sealed[..seal.stored], seal.key, pages, false, &self.stats)
        };
        let (mut tries, mut waits) = (0, 0);
        loop {
            match append() {
                Ok(offset) => {
                    // One cleaner at a time.
                    if (self.file.segments.wants_cleaning() || self.file.wants_moving())
                        && let Some(buffer) = self.cleaning_buffer.try_lock()
                    {
                        self.clean(*buffer);
                    }
                    return Ok(offset);
                }
                // What is won here others may take first.
                Err(_) if tries < CLEAN_TRIES && self.win_room(&mut waits) => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Cleans, or waits for who does, as far as `waits` allows, which are counted. False where that won nothing, or takes too long.
    fn win_room(&self, waits: &mut u32) -> bool {
        let before = *waits;
        while *waits < WAIT_SPINS {
            if let Some(buffer) = self.cleaning_buffer.try_lock() {
                return *waits > before || self.clean(*buffer);
            }
            os::wait_a_little(*waits);
            *waits += 1;
        }
        false
    }

    /// Moves what is live in the sparsest segment into the open one. False where nothing was won; the cleaner then
    /// rests for a while, so that a store without room does not read its file over and over. `buffer` is locked.
    fn clean(&self, buffer: usize) -> bool {
        if !self.file.segments.may_clean() {
            return false;
        }
        if let Some(segment) = self.file.stranded(&self.io) {
            let moved = self.clean_segment(segment, buffer);
            return self.end_cleaning(self.file.moved(&self.io, segment), moved);
        }
        // What only dead children shared can be cleaned, too.
        self.file.segments.tend(&self.io);
        let Some(segment) = self.file.sparsest(&self.io) else { return self.end_cleaning(false, 0) };
        // Held, or it could be freed and filled anew while its old content is being moved.
        if !self.file.hold(&self.io, segment) {
            // It has just died.
            return true;
        }
        let moved = self.clean_segment(segment, buffer);
        let emptied = self.file.segments.is_emptied(segment);
        self.file.segments.release(&self.io, segment, 1);
        self.end_cleaning(emptied, moved)
    }

    /// A segment was emptied, or `moved` units of it were: what is left in it may be going just now.
    fn end_cleaning(&self, emptied: bool, moved: u32) -> bool {
        if emptied {
            self.file.cleaned(&self.io);
        } else if moved == 0 {
            self.file.segments.rest_cleaning();
        }
        emptied || moved > 0
    }

    /// Returns how many units were moved.
    fn clean_segment(&self, segment: Segment, buffer: usize) -> u32 {
        self.cleaning_used.store(1, Relaxed);
        // SAFETY: a region of this size, used under its lock only.
        let bytes = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u8, SEGMENT_BYTES) };
        let base = segment.offset();
        let mut moved = 0;
        if self.file.read_segment(&self.io, segment, bytes, &self.stats) {
            self.for_units(bytes, |id, at, unit| {
                let done = self.move_unit(id, base + at as u64, unit);
                moved += u32::from(done == Ok(true));
                done.is_ok()
            });
        }
        moved
    }

    /// Moves what is live of a unit of the own file. A unit under the current key moves as it is: its seal is bound to the
    /// slot, not to the place. Returns whether anything was.
    fn move_unit(&self, id: UnitId, from: u64, unit: &mut [u8]) -> Result<bool, StoreError> {
        let Some(nonce) = self.find_unit(id, from) else { return Ok(false) };
        let Some(seal) = self.file.reseal(id, from, nonce, unit) else { return Ok(false) };
        let to = self.file.append(&self.io, unit, seal.key, id.pages(), true, &self.stats)?;
        let moved = self.repoint(id, from, nonce, to, seal.nonce);
        self.file.segments.release(&self.io, Segment::at(to), id.pages() - moved);
        self.file.segments.release(&self.io, Segment::at(from), moved);
        add(&self.stats.file_moved_units, (moved > 0) as u64);
        Ok(moved > 0)
    }
}
