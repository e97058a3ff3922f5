//! Reading a trace.
use crate::event::*;
use crate::number::{Partial, unzigzag};
use crate::{MAGIC, PAGE_SHIFT, PAGES_MAX, PROGRAM_BYTES_MAX, VERSION};
use std::fmt;
use std::io::{self, Read};

const BUFFER_BYTES: usize = 1 << 16;

/// Why a trace cannot be read, or not on.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Io(io::Error),
    /// It is something else.
    NotATrace,
    /// It has another version.
    Version(u16),
    /// It ends before its end: who wrote it was stopped.
    Cut,
    /// What stands there makes no sense.
    Damaged {
        /// How many bytes stand before the end of what was read.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotATrace => write!(f, "it is no trace"),
            Error::Version(version) => {
                write!(f, "it is of version {version}, and this program reads version {VERSION}")
            }
            Error::Cut => write!(f, "it is cut off"),
            Error::Damaged { at, what } => write!(f, "it is damaged before byte {at}: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// A trace being read: an iterator over its events, which ends with the trace or behind the first error.
pub struct Reader<R: Read> {
    from: R,
    buffer: Box<[u8]>,
    next: usize,
    filled: usize,
    /// Bytes in front of the buffer.
    before: u64,
    header: Header,
    last_page: u32,
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(from: R) -> Result<Reader<R>, Error> {
        let header = Header { window_pages: 0, program: String::new() };
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let mut reader = Reader { from, buffer, next: 0, filled: 0, before: 0, header, last_page: 0, over: false };
        // What is too short to have a header is none of ours.
        let nothing = |error| if matches!(error, Error::Cut) { Error::NotATrace } else { error };
        if reader.bytes::<8>().map_err(nothing)? != MAGIC {
            return Err(Error::NotATrace);
        }
        let version = u16::from_le_bytes(reader.bytes()?);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        if u16::from_le_bytes(reader.bytes()?) != PAGE_SHIFT {
            return Err(reader.damaged("its pages do not have 4 KiB"));
        }
        reader.header.window_pages = u32::from_le_bytes(reader.bytes()?);
        let len = u32::from_le_bytes(reader.bytes()?) as usize;
        if len > PROGRAM_BYTES_MAX {
            return Err(reader.damaged("the program's name is too long"));
        }
        let name = (0..len).map(|_| reader.byte()).collect::<Result<Vec<u8>, Error>>()?;
        reader.header.program = String::from_utf8(name).map_err(|_| reader.damaged("the program's name is no text"))?;
        Ok(reader)
    }

    /// What the trace begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { at: self.before + self.next as u64, what }
    }

    fn byte(&mut self) -> Result<u8, Error> {
        while self.next == self.filled {
            self.before += self.filled as u64;
            (self.next, self.filled) = (0, 0);
            match self.from.read(&mut self.buffer) {
                Ok(0) => return Err(Error::Cut),
                Ok(filled) => self.filled = filled,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Io(error)),
            }
        }
        self.next += 1;
        Ok(self.buffer[self.next - 1])
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut partial = Partial::default();
        loop {
            let byte = self.byte()?;
            match partial.take(byte) {
                Ok(None) => {}
                Ok(Some(number)) => return Ok(number),
                Err(()) => return Err(self.damaged("a number is too long")),
            }
        }
    }

    fn page(&self, difference: u64) -> Result<u32, Error> {
        let page = i64::from(self.last_page).checked_add(unzigzag(difference));
        page.and_then(|page| u32::try_from(page).ok()).ok_or_else(|| self.damaged("there is no such page"))
    }

    fn process(&self, number: u64) -> Result<u32, Error> {
        u32::try_from(number).map_err(|_| self.damaged("there is no such process"))
    }

    /// The next event; `None` at the end.
    fn event(&mut self) -> Result<Option<Event>, Error> {
        let number = self.number()?;
        let (kind, value) = (number & ((1 << KIND_BITS) - 1), number >> KIND_BITS);
        Ok(Some(match kind {
            GONE => {
                let first = self.page(value)?;
                let pages = self.number()?;
                if pages == 0 || u64::from(first) + pages.min(PAGES_MAX) > PAGES_MAX || pages > u64::from(u32::MAX) {
                    return Err(self.damaged("there are not so many pages"));
                }
                Event::Gone { first, pages: pages as u32 }
            }
            PROCESS => Event::Process(self.process(value)?),
            LIFE => match value {
                LIFE_ENDS => Event::Ends,
                LIFE_BEGINS => Event::Begins,
                _ => Event::Forked(self.process(value - LIFE_FORKED)?),
            },
            TIME if value == 0 => return Ok(None),
            TIME => Event::Time { us: value },
            _ => {
                let page = self.page(value)?;
                self.last_page = page;
                Event::Access { page, write: kind & WRITE != 0, first: kind & FIRST != 0 }
            }
        }))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        if self.over {
            return None;
        }
        let event = self.event().transpose();
        self.over = !matches!(event, Some(Ok(_)));
        event
    }
}
