//! Writing a trace.
use crate::event::*;
use crate::number::{put, zigzag};
use crate::{MAGIC, PAGE_SHIFT, PROGRAM_BYTES_MAX, VERSION};
use std::io::{self, Write};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// A trace being written. Without [`Writer::finish`] it counts as cut off.
pub struct Writer<W: Write> {
    to: W,
    buffer: Vec<u8>,
    last_page: u32,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(to: W, header: &Header) -> Writer<W> {
        let mut end = header.program.len().min(PROGRAM_BYTES_MAX);
        while !header.program.is_char_boundary(end) {
            end -= 1;
        }
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 64);
        buffer.extend(MAGIC);
        buffer.extend(VERSION.to_le_bytes());
        buffer.extend(PAGE_SHIFT.to_le_bytes());
        buffer.extend(header.window_pages.to_le_bytes());
        buffer.extend((end as u32).to_le_bytes());
        buffer.extend(&header.program.as_bytes()[..end]);
        Writer { to, buffer, last_page: 0, bytes: 0 }
    }

    fn record(&mut self, kind: u64, value: u64) {
        // The largest values are differences of pages and times: neither needs the top bits.
        put(value << KIND_BITS | kind, &mut self.buffer);
    }

    fn difference(&self, page: u32) -> u64 {
        zigzag(i64::from(page) - i64::from(self.last_page))
    }

    /// Appends an event.
    pub fn write(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Process(process) => self.record(PROCESS, process.into()),
            Event::Ends => self.record(LIFE, LIFE_ENDS),
            Event::Begins => self.record(LIFE, LIFE_BEGINS),
            Event::Forked(from) => self.record(LIFE, LIFE_FORKED + u64::from(from)),
            Event::Access { page, write, first } => {
                let kind = if write { WRITE } else { 0 } | if first { FIRST } else { 0 };
                self.record(kind, self.difference(page));
                self.last_page = page;
            }
            Event::Gone { first, pages } => {
                self.record(GONE, self.difference(first));
                put(pages.into(), &mut self.buffer);
            }
            // 0 is how a trace ends.
            Event::Time { us } => self.record(TIME, us.clamp(1, u64::MAX >> KIND_BITS)),
        }
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.bytes += self.buffer.len() as u64;
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        self.to.flush()
    }

    /// Ends the trace. Gives how many bytes it has.
    pub fn finish(mut self) -> io::Result<u64> {
        self.record(TIME, 0);
        self.flush()?;
        Ok(self.bytes)
    }
}
