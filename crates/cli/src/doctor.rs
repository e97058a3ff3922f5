//! `outswap doctor`: what this host allows, proved by doing it, and how to get what is missing.
use crate::args::{self, DoctorOptions};
use crate::command::MIN_RAM_BYTES;
use crate::probe::{self, Probe};
use crate::trial::{self, Managed};
use crate::{EXIT_OURS, Failure, libraries, limits, run, size, swap_dir};
use outswap_source::Source;
use outswap_sys::Errno;
use outswap_sys::uffd::{COPY_FEATURES, MOVE_FEATURES};
use serde::Serialize;
use std::io::Write;

/// Name and version of the JSON that `--json` prints (`docs/cli.md`).
const SCHEMA: &str = "outswap.doctor/1";

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Works, but less well, or under a condition.
    Limited,
    /// Not to be had here.
    Missing,
    /// For knowledge; nothing depends on it.
    Info,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    state: State,
    value: String,
    fix: Option<String>,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    outswap_version: &'static str,
    works: bool,
    fault_source: Option<&'static str>,
    cause: Option<String>,
    sources: Vec<Probe>,
    checks: Vec<Check>,
}

/// Runs all checks and prints them; 0 where `outswap run` manages programs.
pub fn doctor(options: &DoctorOptions) -> Result<i32, Failure> {
    let sources: Vec<Probe> = Source::ALL.iter().copied().map(probe::probe).collect();
    let managed = managed(options);
    let (works, fault_source) = (managed.is_ok(), managed.as_ref().ok().map(|how| how.source.name()));
    let report = Report {
        schema: SCHEMA,
        outswap_version: env!("CARGO_PKG_VERSION"),
        works,
        fault_source,
        checks: checks(options, &sources, &managed),
        cause: managed.err(),
        sources,
    };
    let text = if options.json {
        serde_json::to_string_pretty(&report).map_err(|e| Failure::ours(e.to_string()))? + "\n"
    } else {
        table(&report)
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| Failure::ours(format!("standard output: {e}")))?;
    Ok(if report.works { 0 } else { EXIT_OURS })
}

/// Whether `outswap run` would manage a program, with the options that it has without any, found as it finds it.
fn managed(options: &DoctorOptions) -> Result<Managed, String> {
    let words =
        ["outswap".as_ref(), "run".as_ref(), "--swap-dir".as_ref(), options.swap_dir.as_os_str(), "true".as_ref()];
    match args::parse(words.map(std::ffi::OsStr::to_os_string).to_vec()) {
        Ok(args::Parsed::Run(options)) => {
            swap_dir::check_for(&options.tiers, &options.swap_dir)?;
            let (_, how) = trial::try_managed(&options)?;
            options.stats.as_deref().map_or(Ok(()), run::test_stats)?;
            Ok(how)
        }
        Ok(_) => Err("the command line of outswap run is not understood".into()),
        Err(failure) => Err(failure.text),
    }
}

struct Checks(Vec<Check>);
impl Checks {
    fn add(&mut self, name: &'static str, state: State, value: impl Into<String>, fix: Option<&str>) {
        self.0.push(Check { name, state, value: value.into(), fix: fix.map(Into::into) });
    }
}

fn proc_value(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// What to do where a system call is refused.
fn call_fix(call: &str, error: Errno, status: &str) -> String {
    let filtered = status.lines().any(|l| l.strip_prefix("Seccomp:").is_some_and(|v| v.trim() == "2"));
    match error {
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS if filtered => format!(
            "a seccomp filter is in force: allow the call {call} in its profile \
             (docker run --security-opt seccomp=PROFILE.json, or seccomp=unconfined; \
             Kubernetes: securityContext.seccompProfile)"
        ),
        Errno::ENOSYS => format!("the kernel was built without {call} (CONFIG_{})", call.to_ascii_uppercase()),
        Errno::EINVAL => {
            format!("this kernel's {call} lacks a feature: Linux 6.8 or later has all of them")
        }
        _ => format!("{call} is refused by a security module or sandbox: allow it there"),
    }
}

/// Whether a source could not be tried to the end, for want of a thread.
fn no_thread(sources: &[Probe]) -> bool {
    sources.iter().any(|probe| probe.error.as_ref().is_some_and(|error| error.starts_with(probe::NO_THREAD)))
}

fn checks(options: &DoctorOptions, sources: &[Probe], managed: &Result<Managed, String>) -> Vec<Check> {
    use State::*;
    let mut out = Checks(Vec::new());
    let status = proc_value("/proc/self/status").unwrap_or_default();
    let works = |source: Source| sources.iter().any(|p| p.works && p.source == source.name());

    let release = proc_value("/proc/sys/kernel/osrelease").unwrap_or_default();
    match version(&release) {
        v if v >= (6, 8) => out.add("kernel", Ok, release, None),
        v if v >= (5, 11) => {
            out.add(
                "kernel",
                Limited,
                release,
                Some("Linux 6.8 or later brings UFFDIO_MOVE, the fastest fault source"),
            );
        }
        _ => out.add("kernel", Limited, release, Some("Linux 5.11 or later brings userfaultfd without privilege")),
    }

    let opens = probe::userfaultfd(COPY_FEATURES);
    match opens {
        Result::Ok(()) => out.add("userfaultfd", Ok, "opens without privilege (user mode only)", None),
        Err(e) => out.add("userfaultfd", Missing, format!("{e:?}"), Some(&call_fix("userfaultfd", e, &status))),
    }
    match (opens, probe::userfaultfd(MOVE_FEATURES), works(Source::Moving)) {
        (_, Result::Ok(()), true) => out.add("uffdio_move", Ok, "pages are moved, not copied", None),
        (_, Result::Ok(()), false) if no_thread(sources) => {
            let fix = "threads cannot be made: allow the call clone3 in the sandbox, or let it answer ENOSYS, upon which the C library uses \
                       another one";
            out.add("uffdio_move", Limited, "offered, and not tried with a thread that writes meanwhile", Some(fix));
        }
        (_, Result::Ok(()), false) => {
            let fix = "run with --fault-source copy, and report this kernel: it offers UFFDIO_MOVE but fails the test";
            out.add("uffdio_move", Limited, "offered, but it fails the test above", Some(fix));
        }
        (Result::Ok(()), Err(e), _) => {
            let fix = call_fix("userfaultfd", e, &status);
            out.add("uffdio_move", Limited, format!("{e:?}; pages are copied instead"), Some(&fix));
        }
        (Err(_), Err(_), _) => out.add("uffdio_move", Missing, "needs userfaultfd", Some("as for userfaultfd")),
    }
    let value = match probe::privileged_userfaultfd() {
        Result::Ok(()) => "allowed (not needed)".to_string(),
        Err(e) => format!("{e:?} (not needed)"),
    };
    out.add("userfaultfd_privileged", Info, value, None);
    let value = proc_value("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or("absent".into());
    out.add("vm.unprivileged_userfaultfd", Info, format!("{value} (any value will do)"), None);
    let value = match std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd") {
        Result::Ok(_) => "opens (not needed)".to_string(),
        Err(e) => format!("{} (not needed)", e.kind()),
    };
    out.add("dev_userfaultfd", Info, value, None);
    let value = match probe::io_uring() {
        Result::Ok(()) => "allowed (reads of several places of the swap file at the same time)".to_string(),
        Err(e) => format!("{e:?} (not needed: the swap file is read one place after the other)"),
    };
    out.add("io_uring", Info, value, None);

    match probe::seccomp() {
        Result::Ok(value) => out.add("seccomp", Ok, value, None),
        Err(e) => {
            let fix = "without it no program is managed: allow prctl(PR_SET_NO_NEW_PRIVS) and seccomp in the sandbox";
            out.add("seccomp", Missing, e, Some(fix));
        }
    }
    if works(Source::Mprotect) || no_thread(sources) {
        out.add("proc_self_mem", Ok, "reads and writes through protection", None);
    } else {
        let why = sources
            .iter()
            .find_map(|p| p.error.clone().filter(|_| p.source == Source::Mprotect.name()))
            .unwrap_or_default();
        let fix = "only the fault sources guard and mprotect need it: mount /proc in the sandbox, and boot without \
                   proc_mem.force_override=never";
        let state = if sources.iter().any(|p| p.works) { Limited } else { Missing };
        out.add("proc_self_mem", state, why, Some(fix));
    }

    memory_checks(&mut out, sources);
    swap_dir_check(&mut out, options);
    match libraries::directory().and_then(|d| libraries::preload(&d, true)) {
        Result::Ok(value) => out.add("libraries", Ok, value, None),
        Err(e) => out.add("libraries", Missing, "not found", Some(&e)),
    }
    match managed {
        Result::Ok(how) => {
            let (source, pages) = (how.source.name(), how.faults);
            out.add(
                "managed_program",
                Ok,
                format!("started with the fault source {source}; {pages} faults brought evicted pages back"),
                None,
            );
        }
        Err(why) => {
            let fix = "mend the cause, which outswap run gives as well; the other lines may say how";
            out.add("managed_program", Missing, why.clone(), Some(fix));
        }
    }
    out.0
}

fn memory_checks(out: &mut Checks, sources: &[Probe]) {
    match limits::machine() {
        Ok(machine) => budget_checks(out, machine),
        Err(e) => out.add("memory", State::Missing, e, Some("mount /proc in the sandbox")),
    }
    address_checks(out, sources);
}

fn budget_checks(out: &mut Checks, machine: limits::Machine) {
    use State::*;
    let value = format!("{} of {} available", size::show(machine.available_bytes), size::show(machine.total_bytes));
    out.add("memory", Info, value, None);
    let value = match limits::container(machine.total_bytes) {
        Some(limit) => format!("{} ({})", size::show(limit.bytes), limit.file.display()),
        None => "none".into(),
    };
    out.add("container_memory_limit", Info, value, None);
    let (auto_bytes, from) = args::auto_ram(machine);
    let value = format!("{} (from: {})", size::show(auto_bytes), from.name());
    if auto_bytes >= MIN_RAM_BYTES {
        out.add("ram_auto", Ok, value, None);
    } else {
        let fix = format!("give --ram yourself, at least {}", size::show(MIN_RAM_BYTES));
        out.add("ram_auto", Limited, value, Some(&fix));
    }
}

fn address_checks(out: &mut Checks, sources: &[Probe]) {
    use State::*;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        out.add("address_space_limit", Ok, "none", None);
    } else {
        let fix = "the managed range is reserved at once, and needs address space, not memory: ulimit -v unlimited \
                   (or RLIMIT_AS of the service manager or batch system)";
        out.add("address_space_limit", Limited, size::show(limit.rlim_cur), Some(fix));
    }
    let value = proc_value("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    match value.as_str() {
        "2" => {
            let fix = "strict accounting counts reserved ranges as memory: sysctl vm.overcommit_memory=0";
            out.add("vm.overcommit_memory", Limited, value, Some(fix));
        }
        _ => out.add("vm.overcommit_memory", Ok, value, None),
    }
    let value = proc_value("/proc/sys/vm/max_map_count").unwrap_or_default();
    let enough = value.parse::<u64>().is_ok_and(|n| n >= 65530);
    if enough || sources.iter().any(|p| p.works && p.source != Source::Mprotect.name()) {
        out.add("vm.max_map_count", Ok, value, None);
    } else {
        let fix = "the fault source mprotect splits mappings: sysctl vm.max_map_count=1048576";
        out.add("vm.max_map_count", Limited, value, Some(fix));
    }
}

fn swap_dir_check(out: &mut Checks, options: &DoctorOptions) {
    let directory = &options.swap_dir;
    match swap_dir::check(directory) {
        Ok(()) => {
            let free = swap_dir::free_bytes(directory);
            let value = format!("{}: {} free", directory.display(), size::show(free));
            if swap_dir::is_memory(directory) {
                let fix = "this file system lies in memory, so a file there saves none: --swap-dir on a disk";
                out.add("swap_dir", State::Limited, value, Some(fix));
            } else if free < 1 << 30 {
                let fix = "there is little room: --swap-dir DIR with more";
                out.add("swap_dir", State::Limited, value, Some(fix));
            } else {
                out.add("swap_dir", State::Ok, value, None);
            }
        }
        Err(e) => {
            let fix = "--swap-dir DIR (or OUTSWAP_SWAP_DIR) that can be written, or --swap compressed";
            out.add("swap_dir", State::Missing, e, Some(fix));
        }
    }
}

/// Major and minor version out of a release name.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn table(report: &Report) -> String {
    let verdict = match (&report.cause, report.fault_source) {
        (Some(cause), _) => format!("does not work here: {cause}"),
        (None, source) => format!("works here, with the fault source {}", source.unwrap_or("none")),
    };
    let version = report.outswap_version;
    let mut lines = vec![format!("outswap run {verdict}"), String::new(), format!("outswap {version}"), String::new()];
    lines
        .push(format!("Fault sources: {} pages filled, taken out, faulted back in, every byte compared", probe::PAGES));
    for p in &report.sources {
        let what = match &p.error {
            None => format!("works    {} faults, {:.1} us each", p.faults, p.page_ns as f64 / 1000.0),
            // A managed program was just started with it, or it came through as far as it was tried.
            Some(error) if Some(p.source) == report.fault_source || error.starts_with(probe::NO_THREAD) => {
                format!("limited  {error}")
            }
            Some(error) => format!("missing  {error}"),
        };
        lines.push(format!("  {:<28}{what}", p.source));
    }
    lines.push(match report.fault_source {
        Some(name) => format!("  {:<28}{name}", "will be used"),
        None => "  none will be used: programs cannot be managed here".into(),
    });
    lines.extend([String::new(), "This host".into()]);
    for c in &report.checks {
        let state = match c.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
            State::Info => "-",
        };
        lines.push(format!("  {:<28}{state:<9}{}", c.name, c.value));
    }
    let fixes: Vec<_> = report.checks.iter().filter_map(|c| Some((c.name, c.fix.as_ref()?))).collect();
    if !fixes.is_empty() {
        lines.extend([String::new(), "To fix".into()]);
        lines.extend(fixes.iter().map(|(name, fix)| format!("  {name}: {fix}")));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases() {
        assert_eq!(version("6.18.44-fc-v657"), (6, 18));
        assert_eq!(version("5.11-rc1"), (5, 11));
        assert!(version("6.8.0-41-generic") >= (6, 8) && version("5.10.0") < (5, 11));
        assert_eq!(version(""), (0, 0));
    }

    #[test]
    fn fixes_name_what_is_in_the_way() {
        let filtered = "Name:\tx\nSeccomp:\t2\n";
        assert!(call_fix("userfaultfd", Errno::EPERM, filtered).contains("docker run --security-opt"));
        assert!(call_fix("userfaultfd", Errno::ENOSYS, filtered).contains("seccomp filter"));
        assert!(call_fix("userfaultfd", Errno::ENOSYS, "Seccomp:\t0\n").contains("CONFIG_USERFAULTFD"));
        assert!(call_fix("userfaultfd", Errno::EINVAL, filtered).contains("6.8"));
        assert!(call_fix("userfaultfd", Errno::EPERM, "").contains("security module"));
    }

    #[test]
    fn the_table_says_all_that_is_to_fix() {
        let check = |name, state, fix: Option<&str>| Check { name, state, value: "v".into(), fix: fix.map(Into::into) };
        let report = Report {
            schema: SCHEMA,
            outswap_version: "0",
            works: false,
            fault_source: None,
            cause: Some("the cause".into()),
            sources: vec![Probe { source: "move", works: false, faults: 0, page_ns: 0, error: Some("EPERM".into()) }],
            checks: vec![check("a", State::Ok, None), check("b", State::Missing, Some("do this"))],
        };
        let text = table(&report);
        assert!(
            text.starts_with("outswap run does not work here: the cause\n")
                && text.contains("missing  EPERM")
                && text.contains("  b: do this\n")
        );
        assert!(!text.contains("  a: "));
    }
}
