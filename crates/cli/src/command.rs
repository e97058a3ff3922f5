//! The definition of the command line: subcommands, options, and what the help says of them.
use crate::{mechanism, record, size, spec};
use clap::builder::StyledStr;
use clap::{Arg, Command, ValueHint};
use outswap_core::readahead::PAGE_CLUSTER_MAX;
use outswap_source::Source;
use std::ffi::OsString;
use std::path::PathBuf;

/// The hidden subcommand that writes manual pages and completions.
pub const GENERATE: &str = "generate";

/// The smallest budget: below it the runtime's tables and batches leave no room for the program.
pub const MIN_RAM_BYTES: u64 = 16 << 20;
/// The smallest limit of resident pages: a few batches for each thread that faults.
pub const MIN_RESIDENT_BYTES: u64 = 4 << 20;
const EXAMPLES: &str = "\
Examples:
  outswap run --ram 512M -- redis-server
  outswap run --ram 25% --summary -- sort big.txt
  outswap run --ram 1Gi --swap compressed:256Mi,file:4Gi -- python3 job.py
  OUTSWAP_RAM=512M outswap run make -j4

";
const SIZES_HELP: &str = "\
Sizes are binary: 512M, 512Mi and 512MiB are the same; 1.5G; 25% is of the container's
limit, or of the machine's memory where that is less.
Tiers:
";
const MAIN_EXAMPLES: &str = "\
Examples:
  outswap run --ram 512M -- redis-server
  outswap doctor
  outswap help run";
const RECORD_EXAMPLES: &str = "\
Examples:
  outswap record -o sort.trace -- sort big.txt
  outswap record --resident 256K -- python3 job.py";
const DOCTOR_EXAMPLES: &str = "\
Examples:
  outswap doctor
  outswap doctor --json --swap-dir /var/tmp";
const AFTER_HELP: &str = "\
Fault sources: {SOURCES}.
{MECHANISMS}Each flag is also a variable (--swap-dir: OUTSWAP_SWAP_DIR); the flag wins.
Exit status: the program's own; 122 no store has room (--when-full fail), 125 our own failure,
126 cannot execute, 127 not found.";

fn after_help() -> String {
    AFTER_HELP.replace("{SOURCES}", &sources()).replace("{MECHANISMS}", &mechanism::help())
}

/// The fault sources, each with what it is.
fn sources() -> String {
    Source::ALL.iter().map(|s| format!("{} ({})", s.name(), s.about())).collect::<Vec<_>>().join(",\n  ")
}

/// An option with one value. Given again, it wins over what stands before it: scripts append options to those they were given.
fn value(name: &'static str, value_name: &'static str, help: impl Into<StyledStr>) -> Arg {
    let argument = Arg::new(name).long(name).value_name(value_name).help(help.into()).overrides_with(name);
    argument.value_parser(clap::value_parser!(OsString))
}

fn swap_dir(help: &'static str) -> Arg {
    value("swap-dir", "DIR", help).value_hint(ValueHint::DirPath)
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
        .value_hint(ValueHint::CommandWithArguments)
        .value_parser(clap::value_parser!(OsString))
}

/// The whole command line.
pub fn command() -> Command {
    let generate = Command::new(GENERATE)
        .about("Writes manual pages and completions for shells")
        .hide(true)
        .arg(Arg::new("directory").value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf)));
    documented().subcommand(generate)
}

/// The command line that is told of: what is hidden is not in it.
pub fn documented() -> Command {
    let least = |bytes| format!("at least {}", size::exact(bytes));
    let run = Command::new("run")
        .about("Runs a program in less memory than it needs")
        .next_line_help(true)
        .override_usage("outswap run [OPTIONS] [--] PROGRAM [ARGS]...")
        .after_help(format!("{EXAMPLES}{SIZES_HELP}{}{}", spec::help(), after_help()))
        .arg(value(
            "ram",
            "SIZE|N%|auto",
            format!(
                "Bounds the anonymous memory of the program and all its children together, {} \
                 [default: auto, 90 % of the container's limit or of the memory available, whichever is less]",
                least(MIN_RAM_BYTES)
            ),
        ))
        .arg(value(
            "resident",
            "SIZE",
            format!("Bounds resident pages alone, the compressed pool not counted, {}", least(MIN_RESIDENT_BYTES)),
        ))
        .arg(value("swap", "SPEC", "Where pages go, fastest first [default: compressed,file]"))
        .arg(swap_dir("Directory of the unlinked, encrypted file [default: $TMPDIR if on a disk, else /var/tmp]"))
        .arg(fault_source())
        .arg(value("readahead", "HOW", "What is read ahead: auto, or one of the list below [default: auto]"))
        .arg(value(
            "page-cluster",
            "N",
            format!("Windows read ahead from slow stores have at most 2^N pages (with strides, four times as many for each stream), \
                 0 to {PAGE_CLUSTER_MAX}; 0: none [default: 3]"),
        ))
        .arg(value(
            "folio-orders",
            "N,...",
            "Orders of folios, each switched on by itself, 0 to 9 (4 KiB to 2 MiB; 5 to 8 need 4 beside them; 9 brings huge pages, and folios of 2 MiB where 4 is there); single pages always are [default: 0,4]",
        ))
        .arg(value("mechanism", "NAME=HOW,...", "How swapping works, for experiments: see below"))
        .arg(malloc())
        .arg(no_follow())
        .arg(switch(
            "keep-pid",
            "The program has the process id that outswap was started with, for who signals or waits for that one; what Outswap has to say \
             at the end may come after the program's end",
        ))
        .arg(value(
            "when-full",
            "exceed|wait|fail",
            "What happens where no store has room for more: the limit is exceeded, the program waits for room (up to a minute), \
             or it is ended with status 122 [default: exceed]",
        ))
        .arg(switch("strict", "Programs that cannot be managed are not executed (EACCES), also those that the program starts"))
        .arg(value("stats", "FILE", "Writes statistics as JSON at exit; - is standard output").value_hint(ValueHint::FilePath))
        .arg(switch("summary", "Prints statistics on standard error at exit"))
        .arg(quiet())
        .arg(switch("allow-unmanaged", "Runs programs that cannot be managed, without Outswap"))
        .arg(program());
    let record = Command::new("record")
        .about("Runs a program and records which pages it touches, for comparing policies")
        .next_line_help(true)
        .override_usage("outswap record [OPTIONS] [--] PROGRAM [ARGS]...")
        .after_help(RECORD_EXAMPLES)
        .arg(
            value("output", "FILE", "Where the trace goes [default: outswap.trace]")
                .short('o')
                .value_hint(ValueHint::FilePath),
        )
        .arg(value(
            "resident",
            "SIZE",
            format!(
                "Memory whose touches are not seen, {}: less is more exact, and slower [default: 1M]",
                least(record::MIN_WINDOW_BYTES)
            ),
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
        .arg(swap_dir("Directory of the swap file [default: $TMPDIR if on a disk, else /var/tmp]"))
        .after_help(DOCTOR_EXAMPLES);
    Command::new("outswap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Swap that belongs to one program")
        .after_help(MAIN_EXAMPLES)
        .subcommand_required(true)
        .subcommand(run)
        .subcommand(record)
        .subcommand(doctor)
        .subcommand(Command::new("version").about("Prints the version"))
}
