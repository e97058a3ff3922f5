//! The command line. Every flag is also an `OUTSWAP_*` variable; the flag wins, and an empty variable is none.
use crate::command::{GENERATE, MIN_RAM_BYTES, MIN_RESIDENT_BYTES, command};
use crate::limits::{self, Machine};
use crate::mechanism::{self, Mechanisms};
use crate::record::{self, Recording};
use crate::spec;
use crate::{Failure, mistakes, size, swap_dir, variables};
use clap::ArgMatches;
use outswap_control::{MAX_TIERS, WhenFull};
use outswap_core::readahead::{PAGE_CLUSTER, PAGE_CLUSTER_MAX};
use outswap_core::units::PAGE_BYTES;
use outswap_source::Source;
use outswap_store::TierConfig;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Share of a limit or of the free memory that `--ram auto` takes.
const AUTO_PERCENT: u64 = 90;

/// What the command line says.
#[derive(Debug)]
pub enum Parsed {
    /// `outswap run`, and `outswap record`.
    Run(Box<RunOptions>),
    /// `outswap doctor`.
    Doctor(DoctorOptions),
    /// Manual pages and completions, into a directory.
    Generate(PathBuf),
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
    /// Orders of folios, a bit each; 0 where the mechanism says them.
    pub folio_orders: u64,
    /// The fault source asked for; the first that works where none was.
    pub fault_source: Option<Source>,
    /// The program keeps its own allocator.
    pub keep_malloc: bool,
    /// Exec'd children are not managed.
    pub no_follow: bool,
    /// The program has the process id that `outswap run` was started with.
    pub keep_pid: bool,
    /// What is done where the stores are full.
    pub when_full: WhenFull,
    /// A program that cannot be managed is not executed.
    pub strict: bool,
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

/// What is to be said of variables of our environment that look like Outswap's and are not.
pub fn unknown_variables() -> Option<String> {
    variables::warning(&command(), std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

/// Reads the command line (with the program's name first).
pub fn parse(arguments: Vec<OsString>) -> Result<Parsed, Failure> {
    let mut command = command();
    let matches = match command.try_get_matches_from_mut(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
            if matches!(error.kind(), DisplayHelp | DisplayVersion) {
                return Ok(Parsed::Text(error.render().to_string()));
            }
            return Err(Failure::ours(mistakes::line(&error, &command, &arguments)));
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
        Some(("version", _)) => Ok(Parsed::Text(command.render_version())),
        Some((GENERATE, matches)) => {
            let directory = matches.get_one::<PathBuf>("directory").expect("the parser requires it");
            Ok(Parsed::Generate(directory.clone()))
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
        let variable = variables::of_flag(name);
        let value = (self.environment)(&variable).filter(|v| !v.is_empty())?;
        Some((variable, value))
    }

    fn has_flag(&self, name: &str) -> bool {
        self.matches.get_one::<OsString>(name).is_some()
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

    fn when_full(&self) -> Result<WhenFull, String> {
        let found = self.read("when-full", |text| {
            let found = WhenFull::ALL.iter().find(|(name, _)| *name == text);
            found.map(|(_, when)| *when).ok_or_else(|| format!("'{text}' is none of exceed, wait, fail"))
        });
        Ok(found?.unwrap_or(WhenFull::Exceed))
    }

    /// Whether programs that cannot be managed are refused.
    fn strict(&self) -> Result<bool, String> {
        let strict = self.switch("strict")?;
        for other in ["allow-unmanaged", "no-follow"] {
            if strict && self.switch(other)? {
                return Err(format!("--strict and --{other} contradict each other"));
            }
        }
        Ok(strict)
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
        let named = self.value("swap-dir").map(|(_, v)| PathBuf::from(v));
        let directory = named.unwrap_or_else(|| swap_dir::default(temporary().map(PathBuf::from)));
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
        Some(limit) if limit.bytes < machine.available_bytes => (limit.bytes, RamSource::Container),
        _ => (machine.available_bytes, RamSource::Available),
    };
    ((limit_bytes / 100).saturating_mul(AUTO_PERCENT), from)
}

fn run_options(given: &Given, machine: Machine) -> Result<RunOptions, String> {
    let total = limits::bound_bytes(machine.total_bytes);
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
    let folio_orders = given.read("folio-orders", |text| mechanism::folio_orders(mechanisms, text))?;
    Ok(RunOptions {
        ram_bytes,
        ram_source,
        folio_orders: folio_orders.unwrap_or(0),
        resident_bytes: resident.unwrap_or(0),
        tiers,
        swap_dir: given.swap_dir(),
        mechanisms,
        page_cluster: page_cluster.unwrap_or(PAGE_CLUSTER),
        fault_source: given.fault_source()?,
        keep_malloc: given.keep_malloc()?,
        no_follow: given.switch("no-follow")?,
        keep_pid: given.switch("keep-pid")?,
        when_full: given.when_full()?,
        strict: given.strict()?,
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
    let total = limits::bound_bytes(machine.total_bytes);
    let least = record::MIN_WINDOW_BYTES;
    // Two names of one thing: the flag of either wins over the variable of the other.
    let by_bytes = || given.read("resident", |t| at_least(size::parse(t, total)?, least, t));
    let by_pages = || {
        given.read("resident-pages", |text| {
            let pages: u64 = text.parse().map_err(|_| format!("'{text}' is not a number of pages"))?;
            at_least(pages.saturating_mul(PAGE_BYTES as u64), least, text)
        })
    };
    let window = if given.has_flag("resident") {
        by_bytes()?
    } else if given.has_flag("resident-pages") {
        by_pages()?
    } else {
        by_pages()?.or(by_bytes()?)
    };
    let window_bytes = window.unwrap_or(record::WINDOW_BYTES);
    let output = given.matches.get_one::<OsString>("output").map_or("outswap.trace".into(), PathBuf::from);
    Ok(RunOptions {
        ram_bytes: 0,
        ram_source: RamSource::Unlimited,
        resident_bytes: window_bytes,
        tiers: spec::parse(record::TIERS, total)?,
        swap_dir: PathBuf::new(),
        mechanisms: mechanism::parse(record::MECHANISMS)?,
        page_cluster: 0,
        folio_orders: 0,
        fault_source: given.fault_source()?,
        keep_malloc: given.keep_malloc()?,
        no_follow: given.switch("no-follow")?,
        keep_pid: false,
        when_full: WhenFull::Exceed,
        strict: false,
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
    use clap::Command;
    const MACHINE: Machine = Machine { total_bytes: 8 << 30, available_bytes: 4 << 30 };

    fn given(
        words: &[&str],
        variables: &[(&str, &str)],
        read: fn(&Given, Machine) -> Result<RunOptions, String>,
    ) -> Result<RunOptions, String> {
        let line = ["outswap"].iter().chain(words);
        let matches = command().try_get_matches_from(line).map_err(|e| e.to_string())?;
        let (_, matches) = matches.subcommand().ok_or("no subcommand")?;
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        read(&Given { matches, environment: &environment }, MACHINE)
    }

    fn options(words: &[&str], variables: &[(&str, &str)]) -> Result<RunOptions, String> {
        given(&[&["run"], words].concat(), variables, run_options)
    }

    #[test]
    fn the_flag_of_a_window_wins_over_either_variable() {
        let window = |words: &[&str], variables: &[(&str, &str)]| {
            let words = [&["record"], words, &["x"]].concat();
            given(&words, variables, record_options).map(|options| options.resident_bytes)
        };
        let (bytes, pages) = (("OUTSWAP_RESIDENT", "2M"), ("OUTSWAP_RESIDENT_PAGES", "1024"));
        assert_eq!(window(&[], &[]), Ok(record::WINDOW_BYTES));
        assert_eq!(window(&[], &[bytes]), Ok(2 << 20));
        assert_eq!(window(&[], &[bytes, pages]), Ok(4 << 20));
        assert_eq!(window(&["--resident", "3M"], &[bytes, pages]), Ok(3 << 20));
        assert_eq!(window(&["--resident-pages", "256"], &[bytes, pages]), Ok(1 << 20));
        assert!(window(&[], &[("OUTSWAP_RESIDENT_PAGES", "1")]).is_err());
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
        assert!(!o.strict && o.when_full == WhenFull::Exceed);
        assert!(!o.no_follow && !o.keep_pid && !o.summary && !o.quiet && !o.allow_unmanaged && o.stats.is_none());
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
            "--keep-pid",
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
            ("OUTSWAP_KEEP_PID", "on"),
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
            !by_flag.keep_malloc
                && by_flag.no_follow
                && by_flag.keep_pid
                && by_flag.allow_unmanaged
                && by_flag.quiet
                && by_flag.summary
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
    fn what_is_done_where_stores_are_full_and_programs_cannot_be_managed() {
        for (name, when) in WhenFull::ALL {
            let o = options(&["--when-full", name, "p"], &[("OUTSWAP_WHEN_FULL", "junk")]).expect(name);
            assert_eq!(o.when_full, when);
            assert_eq!(options(&["p"], &[("OUTSWAP_WHEN_FULL", name)]).expect(name).when_full, when);
        }
        let o = options(&["p"], &[("OUTSWAP_STRICT", "1")]).expect("fine");
        assert!(o.strict && !options(&["--strict=false", "p"], &[("OUTSWAP_STRICT", "1")]).expect("fine").strict);
    }

    #[test]
    fn the_last_of_several_wins() {
        let words =
            ["--ram", "1G", "--quiet", "--ram=2G", "--quiet=false", "--swap", "junk", "--swap", "ram", "p", "--ram"];
        let o = options(&words, &[("OUTSWAP_RAM", "3G")]).expect("fine");
        assert_eq!((o.ram_bytes, o.quiet, o.tiers.len()), (2 << 30, false, 1));
        assert_eq!(o.command, ["p", "--ram"]);
        let o = options(&["--resident", "64M", "--resident", "32Mi", "--ram", "512 MiB", "p"], &[]).expect("fine");
        assert_eq!((o.ram_bytes, o.resident_bytes), (512 << 20, 32 << 20));
        let line = ["outswap", "record", "-o", "a", "--output", "b", "p"];
        let matches = command().try_get_matches_from(line).expect("fine");
        let (_, matches) = matches.subcommand().expect("record");
        assert_eq!(matches.get_one::<OsString>("output"), Some(&OsString::from("b")));
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
            (&["--when-full", "die", "p"], &[], "--when-full: 'die' is none of"),
            (&["--strict", "p"], &[("OUTSWAP_NO_FOLLOW", "1")], "--strict and --no-follow contradict"),
            (&["--strict", "--allow-unmanaged", "p"], &[], "--strict and --allow-unmanaged contradict"),
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

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn wrong_lines_are_told_what_was_meant() {
        for (line, want) in [
            ("outswap run --rma 64M true", "a similar argument exists: '--ram'"),
            ("outswap record --outptu x true", "a similar argument exists: '--output'"),
            ("outswap docter", "a similar subcommand exists: 'doctor'"),
            ("outswap redis-server --port 1", "; to run a program: outswap run -- redis-server ... ("),
            ("outswap ./a.out", "; to run a program: outswap run -- ./a.out ("),
            ("outswap --ram 64M true", "; it is an option of run: outswap run --ram ..."),
            ("outswap --ram=64M true", "; it is an option of run: outswap run --ram ..."),
        ] {
            let failure = parse(words(line)).expect_err(line);
            assert!(failure.text.contains(want) && failure.text.lines().count() == 1, "{line}: {}", failure.text);
        }
        for (line, not) in [
            ("outswap help fly", "to run a program"),
            ("outswap --magic", "option of run"),
            ("outswap run --foo true", "to pass"),
        ] {
            let failure = parse(words(line)).expect_err(line);
            assert!(!failure.text.contains(not), "{line}: {}", failure.text);
        }
    }

    #[test]
    fn help_and_version_have_all_their_forms() {
        let text = |line: &str| match parse(words(line)) {
            Ok(Parsed::Text(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        let version = format!("outswap {}\n", env!("CARGO_PKG_VERSION"));
        for line in ["outswap version", "outswap -V", "outswap --version"] {
            assert_eq!(text(line), version, "{line}");
        }
        assert_eq!(text("outswap help"), text("outswap --help"));
        for command in ["run", "record", "doctor"] {
            let help = text(&format!("outswap help {command}"));
            assert_eq!(help, text(&format!("outswap {command} --help")));
            assert!(help.contains("Examples:") && text("outswap help").contains(command), "{help}");
        }
        assert!(!text("outswap help").contains(GENERATE));
    }

    #[test]
    fn examples_can_be_read_and_least_values_are_told() {
        let mut command = command();
        for subcommand in ["run", "record", "doctor"] {
            let help = command.find_subcommand(subcommand).and_then(Command::get_after_help).expect("it has examples");
            let help = help.to_string();
            let lines = help.lines().skip_while(|l| *l != "Examples:").skip(1).take_while(|l| l.starts_with("  "));
            let lines: Vec<Vec<OsString>> = lines.map(words).collect();
            assert!(lines.len() > 1, "{help}");
            for mut line in lines {
                let start = line.iter().position(|word| word == "outswap").expect("all are of ours");
                let read = parse(line.split_off(start));
                assert!(matches!(read, Ok(Parsed::Run(_) | Parsed::Doctor(_))), "{read:?}");
            }
        }
        let run = command.find_subcommand_mut("run").expect("it is there").render_long_help().to_string();
        // The parser breaks lines where it likes.
        let run = run.split_whitespace().collect::<Vec<_>>().join(" ");
        for least in [MIN_RAM_BYTES, MIN_RESIDENT_BYTES, 64 << 10] {
            assert!(run.contains(&format!("at least {}", size::exact(least))), "{run}");
        }
    }

    #[test]
    fn help_is_as_wide_as_the_terminal() {
        for width in [60, 100, 160] {
            let mut command = command().term_width(width);
            command.build();
            for name in ["run", "record", "doctor"] {
                let help = command.find_subcommand_mut(name).expect("it is there").render_long_help().to_string();
                let widest =
                    help.lines().filter(|l| !l.trim_start().starts_with("--")).map(|l| l.chars().count()).max();
                assert!(widest.is_some_and(|w| w <= width), "{width}: {help}");
            }
        }
    }
}
