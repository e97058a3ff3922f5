//! `outswap record`: what the processes of a run record of their accesses, taken out of the control block and written to a file.
//!
//! The run is one in which every touch of a page outside of a small window is a fault, and each fault is recorded: nothing is
//! brought in but the page that was touched, and pages go in the order in which they came. They go to plain memory, which
//! is fastest.
use outswap_control::{ACCESS_PLACES, Access, Accesses, Recorded};
use outswap_trace::{Event, Header, Writer};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The window, where nobody asks for another.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// The smallest: blocks of 64 pages go out of it as wholes.
pub const MIN_WINDOW_BYTES: u64 = 256 << 10;
/// Where pages go.
pub const TIERS: &str = "ram";
/// How.
pub const MECHANISMS: &str = "readahead=off,reclaim=window,folios=small";
/// How long an event may be in the making: whoever makes it may have been stopped, or killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Where the trace goes.
    pub output: PathBuf,
    /// Memory whose touches are not seen.
    pub window_bytes: u64,
}

/// Writes a trace while the program runs.
pub struct Recorder {
    output: PathBuf,
    writer: Writer<File>,
    /// The first error: nothing is written after it.
    failed: Option<std::io::Error>,
    process: i32,
    accesses: u64,
    told_until: Instant,
    last_progress: Instant,
}

fn event(access: Access) -> Option<Event> {
    let touch = |write, first| Some(Event::Access { page: access.first, write, first });
    match access.what {
        Recorded::Begins => Some(Event::Begins),
        Recorded::Forked => Some(Event::Forked(access.first)),
        Recorded::Ends => Some(Event::Ends),
        Recorded::Read => touch(false, false),
        Recorded::Write => touch(true, false),
        Recorded::ReadFirst => touch(false, true),
        Recorded::WriteFirst => touch(true, true),
        // Whatever a process says, the trace can be read.
        Recorded::Gone => {
            let pages = access.pages.min(u32::MAX - access.first);
            (pages > 0).then_some(Event::Gone { first: access.first, pages })
        }
    }
}

impl Recorder {
    /// Begins a trace in a file.
    pub fn new(recording: &Recording, file: File, command: &[OsString]) -> Recorder {
        let output = recording.output.clone();
        let program = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let window_pages = (recording.window_bytes / outswap_core::units::PAGE_BYTES as u64) as u32;
        let writer = Writer::new(file, &Header { window_pages, program });
        let now = Instant::now();
        Recorder { output, writer, failed: None, process: 0, accesses: 0, told_until: now, last_progress: now }
    }

    fn put(&mut self, event: Event) {
        if self.failed.is_none() {
            self.failed = self.writer.write(event).err();
        }
    }

    /// Takes what was recorded since the last time.
    pub fn take(&mut self, from: &Accesses) {
        self.take_with(from, self.last_progress.elapsed() > PATIENCE);
    }

    fn take_with(&mut self, from: &Accesses, is_patience_over: bool) {
        let mut any = false;
        let now = Instant::now();
        let drained = from.drain(is_patience_over, |access| {
            if !any {
                let us = now.duration_since(self.told_until).as_micros() as u64;
                self.put(Event::Time { us });
                (any, self.told_until) = (true, now);
            }
            if self.process != access.pid {
                self.process = access.pid;
                self.put(Event::Process(access.pid as u32));
            }
            if let Some(event) = event(access) {
                self.accesses += u64::from(matches!(event, Event::Access { .. }));
                self.put(event);
            }
        });
        if drained || !from.is_waiting() {
            self.last_progress = now;
        }
        if self.failed.is_some() {
            // Nobody shall wait for us.
            from.close();
        }
    }

    /// Takes what is left and ends the trace. Gives what there is to be said of it.
    pub fn finish(mut self, from: &Accesses) -> Result<String, String> {
        from.close();
        // The program is over: what is not filled in now, nobody will.
        for _ in 0..ACCESS_PLACES {
            if from.is_waiting() {
                self.take_with(from, true);
            }
        }
        let fail = |error: std::io::Error| format!("--output: {}: {error}", self.output.display());
        if let Some(error) = self.failed {
            return Err(fail(error));
        }
        let bytes = self.writer.finish().map_err(fail)?;
        let lost = match from.lost() {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        Ok(format!("{}: {} accesses in {bytes} bytes{lost}", self.output.display(), self.accesses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(what: Recorded, first: u32, pages: u32) -> Access {
        Access { pid: 5, what, first, pages }
    }

    #[test]
    fn ranges_end_where_pages_do() {
        assert_eq!(event(access(Recorded::Gone, 3, 4)), Some(Event::Gone { first: 3, pages: 4 }));
        assert_eq!(event(access(Recorded::Gone, u32::MAX - 1, 4)), Some(Event::Gone { first: u32::MAX - 1, pages: 1 }));
        assert_eq!(event(access(Recorded::Gone, 3, 0)), None);
        let first = Event::Access { page: 9, write: true, first: true };
        assert_eq!(event(access(Recorded::WriteFirst, 9, 1)), Some(first));
    }
}
