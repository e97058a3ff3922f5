//! `outswap run`.
use crate::args::{RamSource, RunOptions};
use crate::block::{self, Blank};
use crate::keep::{self, ProgramSide, Side, SupervisorSide};
use crate::output::Output;
use crate::preflight::{self, Program};
use crate::record::{Recorder, Recording};
use crate::requests::Requests;
use crate::spawn::{self, SpawnError, Timers};
use crate::stats::Collector;
use crate::supervise::{self, Job, Signals};
use crate::watch::Watch;
use crate::{EXIT_CANNOT_EXECUTE, EXIT_NOT_FOUND, Failure, limits, messages, say, swap_dir, tell, trial};
use outswap_control::{Control, Place};
use outswap_sys::os;
use std::ffi::{CStr, CString, OsStr};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// The process whose end ends all others of its container.
const FIRST_OF_ALL: i32 = 1;

/// Messages that begin so are printed under `--quiet` too.
const ERROR_HEAD: &[u8] = b"error";

/// The descriptors that were handed to us for the program, other than the standard streams: those that an exec does not close.
fn inherited() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // SAFETY: takes integers only.
    let stays = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFD) } & libc::FD_CLOEXEC == 0;
    numbers.filter(|&fd| fd > libc::STDERR_FILENO && stays(fd)).collect()
}

/// Where a standard stream was closed when we were started, holds its number until the program is executed, which finds it closed:
/// nothing of ours gets it, to be taken for that stream, or to be replaced with it.
fn hold_standard_streams() {
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: the first takes integers only, and the other opens what is there everywhere; the lowest free number is this one.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

/// The program has them now, and standard input and output, too: whoever waits for their end waits for the program alone. (Standard
/// error is where we tell what there is to tell; an outer run's descriptors are what programs are known to it by.)
fn leave_to_program(inherited: &[i32], outer: Option<Place>) {
    let outer = outer.map_or([-1; 2], |place| [place.fd, place.fd + 1]);
    for &fd in inherited.iter().filter(|fd| !outer.contains(fd)) {
        // SAFETY: nothing of ours: it was there before anything was opened.
        unsafe { libc::close(fd) };
    }
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            // SAFETY: nobody reads or writes these any more.
            unsafe { libc::dup2(nothing.as_raw_fd(), stream) };
        }
    }
}

/// Runs the program and gives the exit status to end with.
pub fn run(options: RunOptions) -> Result<i32, Failure> {
    hold_standard_streams();
    let inherited = inherited();
    if options.command.is_empty() {
        return Err(Failure::ours("no program was named"));
    }
    let mut program = preflight::examine(&options.command, std::env::var_os("PATH").as_deref())?;
    let is_unknown = options.strict && program.refusal.is_none() && program.unreadable.is_some();
    if is_unknown {
        // Of what it may be nobody can say before it runs.
        program.refusal = program.unreadable.take();
    }
    let warn = |text: &str| tell(&format!("warning: {text}"), options.quiet);
    if let Some(remark) = &program.remark {
        warn(remark);
    }
    if options.keep_pid && os::getpid() == FIRST_OF_ALL && (options.summary || options.stats.is_some()) {
        return Err(Failure::ours(
            "--keep-pid: as the first process of a container the program ends all others, so that nothing can be told after it: leave --summary and --stats out",
        ));
    }
    if program.refusal.is_none() {
        swap_dir::check_for(&options.tiers, &options.swap_dir)
            .map_err(Failure::ours)?
            .iter()
            .for_each(|text| warn(text));
    }
    let preload = match program.refusal.clone().map_or_else(|| trial::try_managed(&options), Err) {
        Ok((preload, how)) => {
            if let Some(text) = how.fallback(&options) {
                warn(&text);
            }
            Some(preload)
        }
        Err(why) if options.allow_unmanaged => {
            warn(&format!("{why}; it runs unmanaged"));
            None
        }
        Err(why) => {
            let remedy = match options.strict {
                true if is_unknown => "without --strict it is tried",
                true => "--allow-unmanaged, in place of --strict, runs it without Outswap",
                false => "--allow-unmanaged runs it without Outswap",
            };
            return Err(Failure::ours(format!("{why}; {remedy}")));
        }
    };
    let managed = preload.is_some();
    // A budget that was not given is within the container's limit.
    let ram_bytes = if options.ram_source == RamSource::Given { options.ram_bytes } else { 0 };
    for (flag, bytes) in [("--ram", ram_bytes), ("--resident", options.resident_bytes)] {
        if let Ok(machine) = limits::machine()
            && let Some(text) = limits::above_container(flag, bytes, machine.total_bytes)
        {
            warn(&text);
        }
    }
    let outer = block::outer();
    // To open a pipe waits for who reads it, and may be interrupted until then.
    let outputs = Outputs::open(&options).map_err(Failure::ours)?;
    let signals = Signals::take().map_err(|e| Failure::ours(format!("signalfd: {e}")))?;
    let blank = Blank::make(&options, managed, outer).map_err(Failure::ours)?;
    let mut beside = None;
    if options.keep_pid {
        match keep::part().map_err(Failure::ours)? {
            Side::Supervisor(side) => beside = Some(side),
            Side::Program(side) => {
                let place = blank.place(side.supervisor_pid);
                return become_program(
                    side,
                    &program,
                    &options,
                    &spawn::environment(place.zip(preload.as_deref())),
                    &signals,
                );
            }
        }
    }
    let run = Run { options, program, preload, inherited, outer, signals };
    let result = run.attend(blank, outputs, beside.as_ref());
    if let (Some(side), Err(failure)) = (&beside, &result) {
        side.refuse(failure.status);
    }
    result
}

/// The program's side of a run that keeps its number: comes back only where there is no program.
fn become_program(
    side: ProgramSide,
    program: &Program,
    options: &RunOptions,
    envp: &[CString],
    signals: &Signals,
) -> Result<i32, Failure> {
    match side.wait() {
        Ok(()) => {}
        Err(Some(status)) => return Ok(status),
        Err(None) => return Err(Failure::ours("--keep-pid: the supervisor has ended before the program began")),
    }
    let result = start(program, options, |path, argv| Err(spawn::become_program(path, argv, envp, signals)));
    side.give_up();
    result
}

/// The files that a run writes.
struct Outputs {
    stats: Option<Output>,
    trace: Option<Output>,
}

impl Outputs {
    fn open(options: &RunOptions) -> Result<Outputs, String> {
        let open = |path: &Path| if is_standard_output(path) { Output::standard() } else { Output::open(path) };
        let stats = options.stats.as_deref().map(|path| open(path).map_err(|e| cannot_write("--stats", path, &e)));
        let trace = options
            .record
            .as_ref()
            .map(|Recording { output, .. }| Output::open(output).map_err(|e| cannot_write("--output", output, &e)));
        Ok(Outputs { stats: stats.transpose()?, trace: trace.transpose()? })
    }
}

/// A run for which all is prepared.
struct Run {
    options: RunOptions,
    program: Program,
    preload: Option<String>,
    inherited: Vec<i32>,
    outer: Option<Place>,
    signals: Signals,
}

impl Run {
    /// Starts the program, stays until it ends, and says what there is to say. `beside`: the program is not our child.
    fn attend(&self, blank: Blank, outputs: Outputs, beside: Option<&SupervisorSide>) -> Result<i32, Failure> {
        let Run { options, program, preload, signals, .. } = self;
        let managed = preload.is_some();
        let warn = |text: &str| tell(&format!("warning: {text}"), options.quiet);
        let block = blank.fill(options, preload.as_deref(), options.allow_unmanaged).map_err(Failure::ours)?;
        let mut collector = Collector::new(block.control);
        let oom_kills = limits::oom_kills();
        let mut job = match beside {
            None => {
                let environment = spawn::environment(block.place.zip(preload.as_deref()));
                let timers = Timers::take();
                start(program, options, |path, argv| spawn::spawn(path, argv, &environment, signals, &timers))?
            }
            Some(side) if side.let_begin() => Job::new(side.program_pid),
            // It has said why.
            Some(_) => return Ok(0),
        };
        leave_to_program(&self.inherited, self.outer);
        messages::begin_apart();
        let trace = options.record.as_ref().zip(outputs.trace);
        let mut recorder = trace.map(|(record, trace)| Recorder::new(record, trace.begin(), &options.command));
        let mut watch = Watch::new(block.control, job.pid, !options.no_follow);
        let print = || print_messages(block.control, options.quiet);
        if let Some(socket) = block.requests {
            Requests::new(socket, options.swap_dir.as_os_str()).serve_apart();
        }
        let tick = || {
            print();
            collector.tick();
            if let Some(recorder) = &mut recorder {
                recorder.take(&block.control.accesses);
            }
            watch.look(|text| warn(&harmless(text.as_bytes())))
        };
        let end = match beside {
            None => supervise::supervise(&mut job, signals, tick),
            Some(side) => side.supervise(tick),
        };
        collector.tick();
        print();
        watch.finish(warn);
        if let Some(text) = limits::killed(oom_kills, end == supervise::End::Killed(libc::SIGKILL)) {
            say(&format!("error: {text}"));
        }
        if let Some(recorder) = recorder {
            match recorder.finish(&block.control.accesses) {
                Ok(told) if options.quiet => drop(told),
                Ok(told) => say(&told),
                // The program has run, and its status is ours.
                Err(text) => say(&format!("error: {text}")),
            }
        }
        // Who came as far as to find that it cannot be managed has said why; who was killed may not have come so far.
        let is_silent = collector.processes_started() == 0 && block.control.processes_unmanaged.load(Relaxed) == 0;
        if managed && is_silent && !matches!(end, supervise::End::Killed(_)) {
            warn("the program ran unmanaged: it did not load Outswap's library, or one of another version");
        }
        if options.stats.is_some() || options.summary {
            let stats = collector.finish(options, managed, end, &watch);
            if options.summary {
                stats.summary().iter().for_each(|line| say(line));
            }
            if let Some(mut file) = outputs.stats.map(Output::begin) {
                let text = serde_json::to_string_pretty(&stats).map_err(std::io::Error::from);
                if let Err(e) = text.and_then(|text| file.write_all(format!("{text}\n").as_bytes())) {
                    say(&format!("cannot write the statistics: {e}"));
                }
            }
        }
        messages::end_apart(|| signals.restore_for_program());
        // Beside the program nobody waits for our status.
        Ok(if beside.is_some() { 0 } else { supervise::end_like(end) })
    }
}

/// Starts the program by `launch`, which is given a path and arguments; one without a format goes to the shell.
fn start<T>(
    program: &Program,
    options: &RunOptions,
    mut launch: impl FnMut(&CStr, &[CString]) -> Result<T, SpawnError>,
) -> Result<T, Failure> {
    // Neither the command line nor the environment can hold a NUL byte, so nothing is lost here.
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
    let argv: Vec<CString> = options.command.iter().map(|word| c_string(word)).collect();
    let path = c_string(program.path.as_os_str());
    let mut result = launch(&path, &argv);
    let no_exec_format = |e: &std::io::Error| e.raw_os_error() == Some(libc::ENOEXEC);
    if program.maybe_shell && matches!(&result, Err(SpawnError::Exec(e)) if no_exec_format(e)) {
        let shell = c"/bin/sh";
        let words = [shell.to_owned(), path].into_iter().chain(argv.into_iter().skip(1));
        result = launch(shell, &words.collect::<Vec<_>>());
    }
    result.map_err(|error| match error {
        SpawnError::Clone(e) => Failure::ours(format!("cannot start a process: {e}")),
        SpawnError::Exec(e) => {
            let missing = e.raw_os_error() == Some(libc::ENOENT);
            let status = if missing { EXIT_NOT_FOUND } else { EXIT_CANNOT_EXECUTE };
            let hint = if missing { " (it, its loader or its interpreter)" } else { "" };
            Failure { status, text: format!("cannot execute {}: {e}{hint}", program.path.display()) }
        }
    })
}

/// Whether statistics go to standard output.
fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether statistics could be written, as far as that shows before.
pub fn test_stats(path: &Path) -> Result<(), String> {
    if is_standard_output(path) {
        return Ok(());
    }
    Output::test(path).map_err(|e| cannot_write("--stats", path, &e))
}

fn cannot_write(option: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{option}: cannot write {}: {error}", path.display())
}

fn print_messages(control: &Control, quiet: bool) {
    control.drain(|text| {
        tell(&harmless(text), quiet && !text.starts_with(ERROR_HEAD));
    });
}

/// A text as it may go to a terminal: any process of the tree can have written it, and it must not command the terminal, nor
/// look like what it is not.
fn harmless(text: &[u8]) -> String {
    // Marks that change the direction or the look of what follows, or have no look.
    let is_format = |c: char| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    String::from_utf8_lossy(text).replace(|c: char| c != '\n' && (c.is_control() || is_format(c)), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cannot_command_a_terminal() {
        assert_eq!(harmless(b"warning: fine\nreally"), "warning: fine\nreally");
        assert_eq!(harmless("größer 日本".as_bytes()), "größer 日本");
        assert_eq!(harmless(b"\x1b]0;title\x07\x1b[2J\r\x7f"), "?]0;title??[2J??");
        assert_eq!(harmless("\u{9b}31m\u{202e}txt".as_bytes()), "?31m?txt");
        assert_eq!(harmless(b"\xff\0"), "\u{fffd}?");
    }
}
