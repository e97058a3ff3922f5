//! How segments and offsets are counted over all files of a process.
use crate::limits::{SEGMENT_BYTES, VOLUME_ORDER};

/// A segment by its number among those of all files that this process knows.
///
/// An *offset* counts bytes in the same way, over the segments of all files; a *file offset* counts those of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment(u32);

impl Segment {
    /// The segment of this number within a file.
    pub fn new(volume: usize, number: u32) -> Segment {
        Segment((volume as u32) << VOLUME_ORDER | number)
    }

    /// The segment that an offset is in.
    pub fn at(offset: u64) -> Segment {
        Segment((offset / SEGMENT_BYTES as u64) as u32)
    }

    /// The file that it belongs to.
    pub fn volume(self) -> usize {
        self.0 as usize >> VOLUME_ORDER
    }

    /// Its number within its file.
    pub fn number(self) -> u32 {
        self.0 & ((1 << VOLUME_ORDER) - 1)
    }

    /// The offset that it begins at.
    pub fn offset(self) -> u64 {
        self.0 as u64 * SEGMENT_BYTES as u64
    }

    /// The file offset of an offset in it.
    pub fn file_offset_of(self, offset: u64) -> u64 {
        self.file_offset() + offset % SEGMENT_BYTES as u64
    }

    /// The file offset that it begins at.
    pub fn file_offset(self) -> u64 {
        self.number() as u64 * SEGMENT_BYTES as u64
    }
}
