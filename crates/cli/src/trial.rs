//! Starts a small program of our own as `outswap run` starts a program, and sees whether it is managed: what a library that cannot be
//! loaded, a limit or a sandbox does to a program shows before there is one.
use crate::args::RunOptions;
use crate::{block, libraries, limits, probe, spawn};
use outswap_control::{ALL_STATS, Control, Stat};
use outswap_source::Source;
use outswap_sys::{PAGE_BYTES, os};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

/// The only word of our command line where this process is the small program.
pub const NAME: &str = "outswap: trial";
/// Seconds after which the small program is ended: far more than a busy machine needs.
const TRIAL_SECONDS: u32 = 60;
/// Pages that it writes, has evicted, and compares.
const PAGES: usize = 64;
/// Exit status where a byte differs.
const EXIT_DIFFERS: i32 = 3;
/// Bytes of what the dynamic linker says that are looked at.
const SAID_BYTES: u64 = 64 << 10;

/// How the small program was managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Its fault source.
    pub source: Source,
    /// Faults that brought evicted pages back, some of them several.
    pub faults: u64,
}

impl Managed {
    /// What a user should know where userfaultfd is refused, and nobody asked for another fault source.
    pub fn fallback(self, options: &RunOptions) -> Option<String> {
        if options.fault_source.is_some() || matches!(self.source, Source::Moving | Source::Copying) {
            return None;
        }
        let why = match probe::userfaultfd(outswap_sys::uffd::COPY_FEATURES) {
            Err(e) => format!("userfaultfd is refused ({e:?})"),
            Ok(()) => "userfaultfd does not work".to_string(),
        };
        let name = self.source.name();
        Some(format!("{why}: the fault source {name} is used, which is slower; outswap doctor says what to change"))
    }
}

/// The value of `LD_PRELOAD` for a program that is run with these options, and how the small program was managed with it.
///
/// # Errors
/// Why a program would not be managed, for the user.
pub fn try_managed(options: &RunOptions) -> Result<(String, Managed), String> {
    let directory = libraries::directory()?;
    let preload = libraries::preload(&directory, !options.keep_malloc)?;
    // Before the child, which has that from here.
    libraries::known(&preload);
    // In a child of its own, with a control block of its own, which goes away with it.
    let text = probe::in_child_for(0, || start(options, &preload)).map_err(|why| match probe::seccomp() {
        Err(refused) if why.contains("seccomp") => format!("{why} ({refused}: a sandbox forbids them)"),
        _ if options.fault_source.is_some() && why.contains("the fault source") => {
            format!("{why}: leave --fault-source out, and one that works is used (outswap doctor lists them)")
        }
        _ => why,
    })?;
    let mut words = text.split(' ');
    let source =
        words.next().and_then(Source::named).ok_or("a program is managed, and its fault source is not known")?;
    Ok((preload, Managed { source, faults: words.next().and_then(|n| n.parse().ok()).unwrap_or(0) }))
}

/// Starts the small program, and waits for it. Runs in a child.
fn start(options: &RunOptions, preload: &str) -> Result<String, String> {
    let mut block = block::make(options, Some(preload), block::outer(), true)?;
    // Nobody answers here.
    block.requests = None;
    let mut said = os::memfd_create(b"outswap-trial\0", 1)
        // SAFETY: a new descriptor, which is ours alone.
        .map(|fd| unsafe { File::from_raw_fd(fd) })
        .map_err(|e| format!("memfd_create: {e:?}"))?;
    let output = || said.try_clone().map(Stdio::from).map_err(|e| format!("dup: {e}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).stdin(Stdio::null()).stdout(output()?).stderr(output()?).env_clear();
    for variable in spawn::environment(block.place.map(|place| (place, preload))) {
        let bytes = variable.as_bytes();
        // A name may begin with "=", as the C library reads it.
        if let Some(at) = bytes.iter().skip(1).position(|&b| b == b'=') {
            command.env(OsStr::from_bytes(&bytes[..at + 1]), OsStr::from_bytes(&bytes[at + 2..]));
        }
    }
    // SAFETY: plain calls without locks or allocation. A timer goes on through an exec, and not through a fork; dispositions that
    // our starter ignores would be ignored by the child, too. The child dies with us.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        command.pre_exec(|| {
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            let no_dump = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &no_dump);
            libc::alarm(TRIAL_SECONDS);
            Ok(())
        });
    }
    let status = command.status().map_err(|e| format!("no program can be started to try it: {e}"))?;
    let mut text = Vec::new();
    let _ = said.rewind().and_then(|()| (&said).take(SAID_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let mut messages = Vec::new();
    block.control.drain(|message| messages.push(String::from_utf8_lossy(message).into_owned()));
    judge(block.control, status, &text, &messages, preload)
}

/// What became of the small program, which has ended.
fn judge(
    control: &Control,
    status: std::process::ExitStatus,
    said: &str,
    messages: &[String],
    preload: &str,
) -> Result<String, String> {
    let linker =
        said.lines().find(|line| line.contains("ld.so: object") && preload.split(':').any(|path| line.contains(path)));
    if let Some(line) = linker {
        let line = line.trim_start_matches("ERROR: ").trim_end_matches(": ignored.");
        return Err(format!("Outswap's libraries cannot be loaded into a program: {line}"));
    }
    let managed = control.processes_started.load(Relaxed) > 0 && control.processes_unmanaged.load(Relaxed) == 0;
    if !managed || status.code() != Some(0) {
        return Err(why_not(managed, status, messages, preload));
    }
    let of_all = |stat: Stat| {
        let live: u64 = control.used_records().iter().map(|p| p.counters.get(stat)).sum();
        control.ended.get(stat) + live
    };
    let is_back = |stat: &&Stat| matches!(stat, Stat::FaultHit | Stat::FaultMiss | Stat::FaultBypass);
    let back: u64 = ALL_STATS.iter().filter(is_back).map(|&stat| of_all(stat)).sum();
    let number = control.processes[0].fault_source.load(Relaxed);
    let source = Source::ALL.iter().find(|source| source.number() == number).map_or("", |source| source.name());
    Ok(format!("{source} {back}"))
}

/// Why the small program was not managed, or did not end well.
fn why_not(managed: bool, status: std::process::ExitStatus, messages: &[String], preload: &str) -> String {
    let damaged = preload.split(':').find_map(|path| libraries::damage(path).map(|why| format!("{path}: {why}")));
    if let Some(why) = damaged {
        return format!("Outswap's library is damaged: {why}; install Outswap anew");
    }
    match (managed, status.code()) {
        (_, Some(EXIT_DIFFERS)) => "evicted memory does not come back as it was: report this kernel".into(),
        (_, None) => {
            let signal = status.signal().unwrap_or(0);
            let behind = limits::behind(signal).map_or_else(|| told(messages), |limit| format!(": {limit}"));
            format!("a program that loads Outswap's libraries dies of signal {signal}{behind}")
        }
        (true, Some(code)) => format!("a managed program ends with status {code}{}", told(messages)),
        (false, _) if messages.is_empty() => {
            "a program does not load Outswap's library, or one of another version: install Outswap anew".into()
        }
        (false, _) => format!("a program cannot be managed here{}", told(messages)),
    }
}

/// Why nothing is managed, as the runtime says it, as the end of a line.
fn told(messages: &[String]) -> String {
    let Some(text) = messages.iter().find(|text| text.contains("unmanaged")).or(messages.first()) else {
        return String::new();
    };
    let text = text.trim_start_matches("warning: ").trim_start_matches("error: ");
    let ends = ["; a process runs unmanaged", " in a process, which runs unmanaged"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    format!(": {}", &text[..end])
}

/// The small program: writes pages, asks for them to be evicted, and compares what comes back.
pub fn program() -> i32 {
    let value = |page: usize, at: usize| (page.wrapping_mul(31) ^ at.wrapping_mul(0x9e37_79b9) >> 9) as u8;
    let bytes = PAGES * PAGE_BYTES;
    // SAFETY: a new mapping, as long as the slice, and an advice that changes no content.
    let memory = unsafe {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return 1;
        }
        std::slice::from_raw_parts_mut(at.cast::<u8>(), bytes)
    };
    for (page, content) in memory.chunks_exact_mut(PAGE_BYTES).enumerate() {
        content.iter_mut().enumerate().for_each(|(at, byte)| *byte = value(page, at));
    }
    // SAFETY: as above.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), bytes, libc::MADV_PAGEOUT) };
    let memory = std::hint::black_box(memory);
    let same = |(page, content): (usize, &[u8])| content.iter().enumerate().all(|(at, &byte)| byte == value(page, at));
    if memory.chunks_exact(PAGE_BYTES).enumerate().all(same) { 0 } else { EXIT_DIFFERS }
}

/// Whether this process is the small program.
pub fn is_program(arguments: &[std::ffi::OsString]) -> bool {
    matches!(arguments, [name] if name.clone().into_vec() == NAME.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_or_not_it_compares() {
        assert_eq!(program(), 0);
        assert!(
            is_program(&[NAME.into()]) && !is_program(&["outswap".into()]) && !is_program(&[NAME.into(), "x".into()])
        );
    }

    #[test]
    fn what_the_runtime_says_becomes_the_end_of_a_line() {
        let message = "warning: no more seccomp filters are possible; a process runs unmanaged".to_string();
        let other = "warning: the run around this one cannot be reached".to_string();
        assert_eq!(told(&[other.clone(), message]), ": no more seccomp filters are possible");
        assert_eq!(told(&[other]), ": the run around this one cannot be reached");
        let message = "warning: the fault source move does not work (EPERM) in a process, which runs unmanaged; see outswap doctor";
        assert_eq!(told(&[message.into()]), ": the fault source move does not work (EPERM)");
        assert_eq!(told(&[]), "");
    }
}
