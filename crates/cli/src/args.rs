//! The command line. Every flag is also an `OUTSWAP_*` variable; the flag wins, and an empty variable is none.
use crate::limits::{self, Machine};
use crate::mechanism::{self, Mechanisms};
use crate::record::{self, Recording};
use crate::spec;
use crate::{Failure, size};
use clap::{Arg, ArgMatches, Command};
use outswap_control::MAX_TIERS;
use outswap_core::readahead::{PAGE_CLUSTER, PAGE_CLUSTER_MAX};
use outswap_core::units::PAGE_BYTES;
use outswap_source::Source;
use outswap_store::TierConfig;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The smallest budget: below it the runtime's tables and batches leave no room for the program.
pub const MIN_RAM_BYTES: u64 = 16 << 20;
/// The smallest limit of resident pages: a few batches for each thread that faults.
pub const MIN_RESIDENT_BYTES: u64 = 4 << 20;
/// Share of a limit or of the free memory that `--ram auto` takes.
const AUTO_PERCENT: u64 = 90;

/// What the command line says.
#[derive(Debug)]
pub enum Parsed {
    /// `outswap run`, and `outswap record`.
    Run(Box<RunOptions>),
    /// `outswap doctor`.
    Doctor(DoctorOptions),
    /// Help or version, for standard output.
    Text(String),
}

/// Where the budget came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamSource {
    /// Said by the user.
    Given,
    /// From a container's limit.
    Container,
    /// From the memory that was available.
    Available,
    /// There is none: `--resident` alone was given.
    Unlimited,
}

impl RamSource {
    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            RamSource::Given => "given",
            RamSource::Container => "container",
            RamSource::Available => "available",
            RamSource::Unlimited => "none",
        }
    }
}

/// Options of `outswap run`.
#[derive(Debug)]
pub struct RunOptions {
    /// Budget, 0 for none.
    pub ram_bytes: u64,
    /// Where it came from.
    pub ram_source: RamSource,
    /// Limit of resident pages, 0 for none.
    pub resident_bytes: u64,
    /// Tiers.
    pub tiers: Vec<TierConfig>,
    /// Directory of the swap file, absolute where it exists.
    pub swap_dir: PathBuf,
    /// The policies asked for.
    pub mechanisms: Mechanisms,
    /// The largest window that is read ahead has 2 to this power pages.
    pub page_cluster: u32,
    /// The fault source asked for; the first that works where none was.
    pub fault_source: Option<Source>,
    /// The program keeps its own allocator.
    pub keep_malloc: bool,
    /// Exec'd children are not managed.
    pub no_follow: bool,
    /// Where statistics go.
    pub stats: Option<PathBuf>,
    /// Statistics for people.
    pub summary: bool,
    /// No warnings.
    pub quiet: bool,
    /// Run what cannot be managed.
    pub allow_unmanaged: bool,
    /// Accesses are recorded.
    pub record: Option<Recording>,
    /// Program and arguments.
    pub command: Vec<OsString>,
}

/// Options of `outswap doctor`.
#[derive(Debug)]
pub struct DoctorOptions {
    /// JSON instead of a table.
    pub json: bool,
    /// Directory of the swap file.
    pub swap_dir: PathBuf,
}

const SIZES_HELP: &str = "\
Sizes are binary: 512M, 1.5G, 25% (of the machine's memory).
Tiers:
";
const AFTER_HELP: &str = "\
Fault sources: {SOURCES}.
{MECHANISMS}Each flag is also a variable (--swap-dir: OUTSWAP_SWAP_DIR); the flag wins.
Exit status: the program's own; 125 our own failure, 126 cannot execute, 127 not found.";

fn after_help() -> String {
    AFTER_HELP.replace("{SOURCES}", &sources()).replace("{MECHANISMS}", &mechanism::help())
}

/// The fault sources, each with what it is.
fn sources() -> String {
    Source::ALL.iter().map(|s| format!("{} ({})", s.name(), s.about())).collect::<Vec<_>>().join(",\n  ")
}

fn value(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).help(help).value_parser(clap::value_parser!(OsString))
}

/// A switch; `=false` turns off what a variable turned on.
fn switch(name: &'static str, help: &'static str) -> Arg {
    value(name, "BOOL", help)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_possible_values(true)
}

fn fault_source() -> Arg {
    value("fault-source", Source::CHOICE, "How faults arrive [default: auto, the best that works]")
}

fn malloc() -> Arg {
    value("malloc", "keep|mimalloc", "The program's allocator: its own, or mimalloc [default: keep]")
}

fn no_follow() -> Arg {
    switch("no-follow", "Leaves programs that the program starts alone")
}

fn quiet() -> Arg {
    switch("quiet", "Gives no warnings")
}

fn program() -> Arg {
    Arg::new("command")
        .value_names(["PROGRAM", "ARGS"])
        .help("The program and its arguments")
        .num_args(1..)
        .required(true)
        .trailing_var_arg(true)
        .value_parser(clap::value_parser!(OsString))
}

fn command() -> Command {
    let run = Command::new("run")
        .about("Runs a program in less memory than it needs")
        .override_usage("outswap run [OPTIONS] [--] PROGRAM [ARGS]...")
        .after_help(format!("{SIZES_HELP}{}{}", spec::help(), after_help()))
        .arg(value(
            "ram",
            "SIZE|N%|auto",
            "Bounds the anonymous memory of the program and all its children together \
             [default: auto, 90 % of the container's limit or of the memory available]",
        ))
        .arg(value("resident", "SIZE", "Bounds resident pages alone, the compressed pool not counted"))
        .arg(value("swap", "SPEC", "Where pages go, fastest first [default: compressed,file]"))
        .arg(value("swap-dir", "DIR", "Directory of the unlinked, encrypted file [default: $TMPDIR, else /var/tmp]"))
        .arg(fault_source())
        .arg(value("readahead", "HOW", "What is read ahead: auto, or one of the list below [default: auto]"))
        .arg(value(
            "page-cluster",
            "N",
            "The largest window that is read ahead from slow stores has 2^N pages; 0: none [default: 3]",
        ))
        .arg(value("mechanism", "NAME=HOW,...", "How swapping works, for experiments: see below"))
        .arg(malloc())
        .arg(no_follow())
        .arg(value("stats", "FILE", "Writes statistics as JSON at exit"))
        .arg(switch("summary", "Prints statistics on standard error at exit"))
        .arg(quiet())
        .arg(switch("allow-unmanaged", "Runs programs that cannot be managed, without Outswap"))
        .arg(program());
    let record = Command::new("record")
        .about("Runs a program and records which pages it touches, for comparing policies")
        .override_usage("outswap record [OPTIONS] [--] PROGRAM [ARGS]...")
        .arg(value("output", "FILE", "Where the trace goes [default: outswap.trace]").short('o'))
        .arg(value(
            "resident",
            "SIZE",
            "Memory whose touches are not seen: less is more exact, and slower [default: 1M]",
        ))
        .arg(value("resident-pages", "PAGES", "The same in pages of 4 KiB").conflicts_with("resident"))
        .arg(fault_source())
        .arg(malloc())
        .arg(no_follow())
        .arg(quiet())
        .arg(program());
    let doctor = Command::new("doctor")
        .about("Says what this host allows, and how to get what is missing")
        .arg(switch("json", "Prints JSON"))
        .arg(value("swap-dir", "DIR", "Directory of the swap file [default: $TMPDIR, else /var/tmp]"));
    Command::new("outswap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Swap that belongs to one program")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(run)
        .subcommand(record)
        .subcommand(doctor)
}

/// Reads the command line (with the program's name first).
pub fn parse(arguments: Vec<OsString>) -> Result<Parsed, Failure> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
            let text = error.render().to_string();
            if matches!(error.kind(), DisplayHelp | DisplayVersion) {
                return Ok(Parsed::Text(text));
            }
            let line: Vec<&str> = text.lines().take_while(|l| !l.is_empty()).map(str::trim).collect();
            let line = line.join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            return Err(Failure::ours(format!("{line} (outswap --help and outswap run --help say more)")));
        }
    };
    let environment = |name: &str| std::env::var_os(name);
    match matches.subcommand() {
        Some(("run", matches)) => {
            let given = Given { matches, environment: &environment };
            let machine = limits::machine().map_err(Failure::ours)?;
            run_options(&given, machine).map(|o| Parsed::Run(Box::new(o))).map_err(Failure::ours)
        }
        Some(("record", matches)) => {
            let given = Given { matches, environment: &environment };
            let machine = limits::machine().map_err(Failure::ours)?;
            record_options(&given, machine).map(|o| Parsed::Run(Box::new(o))).map_err(Failure::ours)
        }
        Some((_, matches)) => {
            let given = Given { matches, environment: &environment };
            let json = given.switch("json").map_err(Failure::ours)?;
            Ok(Parsed::Doctor(DoctorOptions { json, swap_dir: given.swap_dir() }))
        }
        None => Err(Failure::ours("a command is missing: outswap run, outswap record, outswap doctor")),
    }
}

/// Flags over variables.
struct Given<'a> {
    matches: &'a ArgMatches,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Given<'_> {
    /// The value of a flag or its variable, with the name of the one it came from.
    fn value(&self, name: &str) -> Option<(String, OsString)> {
        if let Some(value) = self.matches.get_one::<OsString>(name) {
            return Some((format!("--{name}"), value.clone()));
        }
        let variable = format!("OUTSWAP_{}", name.replace('-', "_").to_ascii_uppercase());
        let value = (self.environment)(&variable).filter(|v| !v.is_empty())?;
        Some((variable, value))
    }

    /// A value that is read by `parse`, whose complaint gets the flag's name in front.
    fn read<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let Some((from, value)) = self.value(name) else {
            return Ok(None);
        };
        let text = value.to_str().ok_or_else(|| format!("{from}: the value is not text"))?;
        parse(text).map(Some).map_err(|e| format!("{from}: {e}"))
    }

    fn switch(&self, name: &str) -> Result<bool, String> {
        let read = self.read(name, |text| match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(true),
            "0" | "false" | "no" | "off" => Ok(false),
            _ => Err(format!("'{text}' is neither true nor false")),
        });
        Ok(read?.unwrap_or(false))
    }

    fn fault_source(&self) -> Result<Option<Source>, String> {
        let found = self.read("fault-source", |text| {
            let found = if text == "auto" { Some(None) } else { Source::named(text).map(Some) };
            found.ok_or_else(|| format!("'{text}' is not a fault source ({})", Source::CHOICE.replace('|', ", ")))
        });
        Ok(found?.flatten())
    }

    fn keep_malloc(&self) -> Result<bool, String> {
        let keep = self.read("malloc", |text| match text {
            "mimalloc" => Ok(false),
            "keep" => Ok(true),
            _ => Err(format!("'{text}' is not an allocator (keep, mimalloc)")),
        });
        Ok(keep?.unwrap_or(true))
    }

    fn command(&self) -> Result<Vec<OsString>, String> {
        let words = self.matches.get_many::<OsString>("command");
        let command: Vec<OsString> = words.map(|c| c.cloned().collect()).unwrap_or_default();
        if command.iter().any(|word| word.as_bytes().contains(&0)) {
            return Err("an argument has a NUL byte in it".into());
        }
        Ok(command)
    }

    fn swap_dir(&self) -> PathBuf {
        let temporary = || (self.environment)("TMPDIR").filter(|v| !v.is_empty());
        let directory = self.value("swap-dir").map(|(_, v)| v).or_else(temporary).unwrap_or("/var/tmp".into());
        let directory = PathBuf::from(directory);
        // The program may change its directory before the file is made.
        directory.canonicalize().unwrap_or(directory)
    }
}

fn at_least(bytes: u64, least: u64, text: &str) -> Result<u64, String> {
    if bytes < least {
        return Err(format!("'{text}' is too small: at least {} are needed", size::show(least)));
    }
    Ok(bytes)
}

/// The budget that `auto` stands for.
pub fn auto_ram(machine: Machine) -> (u64, RamSource) {
    let (limit_bytes, from) = match limits::container(machine.total_bytes) {
        Some(limit) => (limit.bytes, RamSource::Container),
        None => (machine.available_bytes, RamSource::Available),
    };
    ((limit_bytes / 100).saturating_mul(AUTO_PERCENT), from)
}

fn run_options(given: &Given, machine: Machine) -> Result<RunOptions, String> {
    let total = machine.total_bytes;
    let resident = given.read("resident", |t| at_least(size::parse(t, total)?, MIN_RESIDENT_BYTES, t))?;
    let ram = given.read("ram", |text| {
        if text == "auto" {
            return Ok(None);
        }
        at_least(size::parse(text, total)?, MIN_RAM_BYTES, text).map(Some)
    })?;
    let (ram_bytes, ram_source) = match ram {
        Some(Some(bytes)) => (bytes, RamSource::Given),
        None if resident.is_some() => (0, RamSource::Unlimited),
        _ => {
            let (bytes, from) = auto_ram(machine);
            if bytes < MIN_RAM_BYTES {
                let have = size::show(bytes);
                return Err(format!("--ram auto finds only {have}, and {} are needed", size::show(MIN_RAM_BYTES)));
            }
            (bytes, from)
        }
    };
    let tiers = given.read("swap", |t| spec::parse(t, total))?;
    let tiers = tiers.map_or_else(|| spec::parse(spec::DEFAULT, total), Ok)?;
    debug_assert!(tiers.len() <= MAX_TIERS);
    let mechanisms = given.read("mechanism", mechanism::parse)?.unwrap_or_default();
    let mechanisms = given.read("readahead", |how| mechanism::with_readahead(mechanisms, how))?.unwrap_or(mechanisms);
    let page_cluster = given.read("page-cluster", |text| {
        let known = text.parse().ok().filter(|n| *n <= PAGE_CLUSTER_MAX);
        known.ok_or_else(|| format!("'{text}' is not a number from 0 to {PAGE_CLUSTER_MAX}"))
    })?;
    Ok(RunOptions {
        ram_bytes,
        ram_source,
        resident_bytes: resident.unwrap_or(0),
        tiers,
        swap_dir: given.swap_dir(),
        mechanisms,
        page_cluster: page_cluster.unwrap_or(PAGE_CLUSTER),
        fault_source: given.fault_source()?,
        keep_malloc: given.keep_malloc()?,
        no_follow: given.switch("no-follow")?,
        stats: given.value("stats").map(|(_, v)| v.into()),
        summary: given.switch("summary")?,
        quiet: given.switch("quiet")?,
        allow_unmanaged: given.switch("allow-unmanaged")?,
        record: None,
        command: given.command()?,
    })
}

/// What `outswap record` comes to: a run in which memory is a window over the pages that were touched last.
fn record_options(given: &Given, machine: Machine) -> Result<RunOptions, String> {
    let total = machine.total_bytes;
    let least = record::MIN_WINDOW_BYTES;
    let resident = given.read("resident", |t| at_least(size::parse(t, total)?, least, t))?;
    let pages = given.read("resident-pages", |text| {
        let pages: u64 = text.parse().map_err(|_| format!("'{text}' is not a number of pages"))?;
        at_least(pages.saturating_mul(PAGE_BYTES as u64), least, text)
    })?;
    let window_bytes = pages.or(resident).unwrap_or(record::WINDOW_BYTES);
    let output = given.matches.get_one::<OsString>("output").map_or("outswap.trace".into(), PathBuf::from);
    Ok(RunOptions {
        ram_bytes: 0,
        ram_source: RamSource::Unlimited,
        resident_bytes: window_bytes,
        tiers: spec::parse(record::TIERS, total)?,
        swap_dir: PathBuf::new(),
        mechanisms: mechanism::parse(record::MECHANISMS)?,
        page_cluster: 0,
        fault_source: given.fault_source()?,
        keep_malloc: given.keep_malloc()?,
        no_follow: given.switch("no-follow")?,
        stats: None,
        summary: false,
        quiet: given.switch("quiet")?,
        allow_unmanaged: false,
        record: Some(Recording { output, window_bytes }),
        command: given.command()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    const MACHINE: Machine = Machine { total_bytes: 8 << 30, available_bytes: 4 << 30 };

    fn options(words: &[&str], variables: &[(&str, &str)]) -> Result<RunOptions, String> {
        let line = ["outswap", "run"].iter().chain(words);
        let matches = command().try_get_matches_from(line).map_err(|e| e.to_string())?;
        let (_, matches) = matches.subcommand().ok_or("no subcommand")?;
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        run_options(&Given { matches, environment: &environment }, MACHINE)
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn defaults() {
        let o = options(&["true"], &[]).expect("fine");
        assert!(o.ram_bytes >= MIN_RAM_BYTES && o.ram_source != RamSource::Given);
        assert_eq!((o.resident_bytes, o.fault_source, o.keep_malloc), (0, None, true));
        assert_eq!(o.tiers, spec::parse("compressed,file", 0).expect("fine"));
        assert_eq!(o.swap_dir, PathBuf::from("/var/tmp").canonicalize().unwrap_or("/var/tmp".into()));
        assert!(!o.no_follow && !o.summary && !o.quiet && !o.allow_unmanaged && o.stats.is_none());
    }

    #[test]
    fn every_flag_and_its_variable() {
        let words = [
            "--ram",
            "25%",
            "--resident=64M",
            "--swap",
            "ram:1G",
            "--swap-dir",
            "/",
            "--fault-source",
            "copy",
            "--malloc",
            "mimalloc",
            "--readahead=cluster",
            "--page-cluster",
            "5",
            "--no-follow",
            "--stats",
            "s.json",
            "--summary",
            "--quiet",
            "--allow-unmanaged",
            "--",
            "-prog",
            "-x",
        ];
        let variables = [
            ("OUTSWAP_RAM", "25%"),
            ("OUTSWAP_RESIDENT", "64M"),
            ("OUTSWAP_SWAP", "ram:1G"),
            ("OUTSWAP_SWAP_DIR", "/"),
            ("OUTSWAP_FAULT_SOURCE", "copy"),
            ("OUTSWAP_MALLOC", "mimalloc"),
            ("OUTSWAP_READAHEAD", "cluster"),
            ("OUTSWAP_PAGE_CLUSTER", "5"),
            ("OUTSWAP_NO_FOLLOW", "1"),
            ("OUTSWAP_STATS", "s.json"),
            ("OUTSWAP_SUMMARY", "yes"),
            ("OUTSWAP_QUIET", "on"),
            ("OUTSWAP_ALLOW_UNMANAGED", "TRUE"),
        ];
        let by_flag = options(&words, &[]).expect("fine");
        let by_variable = options(&["--", "-prog", "-x"], &variables).expect("fine");
        assert_eq!(format!("{by_flag:?}"), format!("{by_variable:?}"));
        assert_eq!((by_flag.ram_bytes, by_flag.ram_source), (2 << 30, RamSource::Given));
        assert_eq!((by_flag.resident_bytes, by_flag.page_cluster), (64 << 20, 5));
        assert_eq!(by_flag.command, ["-prog", "-x"]);
        assert!(
            !by_flag.keep_malloc && by_flag.no_follow && by_flag.allow_unmanaged && by_flag.quiet && by_flag.summary
        );
    }

    #[test]
    fn the_flag_wins_over_the_variable() {
        let o = options(&["--ram", "1G", "--quiet=false", "p"], &[("OUTSWAP_RAM", "junk"), ("OUTSWAP_QUIET", "1")]);
        let o = o.expect("the variable is not looked at");
        assert_eq!((o.ram_bytes, o.quiet), (1 << 30, false));
        let o = options(&["p"], &[("OUTSWAP_RAM", ""), ("TMPDIR", "/")]).expect("empty is none");
        assert!(o.ram_source != RamSource::Given);
        assert_eq!(o.swap_dir, PathBuf::from("/"));
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let o = options(&["--quiet", "ls", "--ram", "x", "--help", "--", "-l"], &[]).expect("fine");
        assert!(o.quiet);
        assert_eq!(o.command, ["ls", "--ram", "x", "--help", "--", "-l"]);
    }

    #[test]
    fn resident_alone_means_no_budget() {
        let o = options(&["--resident", "64M", "p"], &[]).expect("fine");
        assert_eq!((o.ram_bytes, o.ram_source, o.resident_bytes), (0, RamSource::Unlimited, 64 << 20));
        let o = options(&["--resident", "64M", "--ram", "auto", "p"], &[]).expect("fine");
        assert!(o.ram_bytes > 0 && o.resident_bytes == 64 << 20);
    }

    #[test]
    fn says_which_flag_or_variable_is_wrong() {
        for (words, variables, want) in [
            (&["--ram", "lots", "p"][..], &[][..], "--ram: 'lots' is not a size"),
            (&["--ram", "1M", "p"], &[], "--ram: '1M' is too small"),
            (&["--resident", "1M", "p"], &[], "--resident: '1M' is too small"),
            (&["p"], &[("OUTSWAP_RAM", "5X")], "OUTSWAP_RAM: '5X' is not a size"),
            (&["--swap", "disk", "p"], &[], "--swap: 'disk' is not a tier"),
            (&["--fault-source", "magic", "p"], &[], "--fault-source: 'magic'"),
            (&["--malloc", "glibc", "p"], &[], "--malloc: 'glibc'"),
            (&["--readahead", "magic", "p"], &[], "--readahead: 'magic' is no readahead"),
            (&["--page-cluster", "7", "p"], &[], "--page-cluster: '7'"),
            (
                &["--readahead", "off", "--mechanism", "readahead=auto", "p"],
                &[],
                "--readahead: 'off' is not what --mechanism says",
            ),
            (&["p"], &[("OUTSWAP_QUIET", "maybe")], "OUTSWAP_QUIET: 'maybe'"),
        ] {
            let error = options(words, variables).expect_err(want);
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn wrong_lines_fail_in_one_line() {
        for words in [&["outswap"][..], &["outswap", "run"], &["outswap", "run", "--foo", "p"], &["outswap", "fly"]] {
            let failure = parse(words.iter().map(OsString::from).collect()).expect_err("wrong");
            assert_eq!((failure.status, failure.text.lines().count()), (crate::EXIT_OURS, 1), "{failure:?}");
        }
    }
}
