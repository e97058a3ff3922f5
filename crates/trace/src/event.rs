//! What a trace tells.

/// What a trace begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Pages that were in memory at a time while the trace was taken: touches of those are not in it.
    pub window_pages: u32,
    /// The program and its arguments, for people.
    pub program: String,
}

/// What a trace says of the process that it speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// From here on, the trace speaks of this process.
    Process(u32),
    /// The process begins with no pages: it was started, or has executed another program.
    Begins,
    /// The process begins with copies of all pages of this one.
    Forked(u32),
    /// The process has ended.
    Ends,
    /// A page that was not in the window is touched.
    Access {
        /// Its number in the process.
        page: u32,
        /// It is written; a page that is read may be written later, unseen.
        write: bool,
        /// It had no content before.
        first: bool,
    },
    /// Pages have lost their content: they were unmapped, or the program gave them up.
    Gone {
        /// The first of them.
        first: u32,
        /// How many; the range ends at [`crate::PAGES_MAX`] at the latest.
        pages: u32,
    },
    /// So much time has passed since the last such event.
    Time {
        /// In microseconds, never 0.
        us: u64,
    },
}

/// Kinds of records: the low bits of a record's first number. Below [`GONE`]: accesses.
pub(crate) const WRITE: u64 = 1;
pub(crate) const FIRST: u64 = 2;
pub(crate) const GONE: u64 = 4;
pub(crate) const PROCESS: u64 = 5;
pub(crate) const LIFE: u64 = 6;
pub(crate) const TIME: u64 = 7;
pub(crate) const KIND_BITS: u32 = 3;

/// What a record of kind [`LIFE`] says, where it names no process: numbers from [`LIFE_FORKED`] on do.
pub(crate) const LIFE_ENDS: u64 = 0;
pub(crate) const LIFE_BEGINS: u64 = 1;
pub(crate) const LIFE_FORKED: u64 = 2;
