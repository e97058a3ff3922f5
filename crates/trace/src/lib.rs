//! Traces of page accesses: what `outswap record` writes, and what compares policies reads. `docs/traces.md` has the format.
//!
//! A trace comes from a machine that may be another, and may have been cut off: whatever is in it, reading ends with an error
//! and never with a panic, and takes no more memory than a few buffers.
mod number;
mod event;
mod writer;
mod reader;

pub use event::{Event, Header};
pub use reader::{Error, Reader};
pub use writer::Writer;

/// The first bytes of every trace.
const MAGIC: [u8; 8] = *b"osw-trac";
/// The version of the format.
pub const VERSION: u16 = 1;
/// Bytes of a page, as a power of two.
const PAGE_SHIFT: u16 = 12;
/// The longest name of a program that a header has.
pub const PROGRAM_BYTES_MAX: usize = 4096;
/// Pages have numbers below this.
pub const PAGES_MAX: u64 = 1 << 32;
