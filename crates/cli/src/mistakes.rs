//! What is said of a command line that cannot be read: one line, with what was probably meant.
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsString;

/// From here on a word is near enough to another to have been meant: 1 is the same, 0 nothing in common.
const NEAR: f64 = 0.8;

/// The one of `known` that was probably meant by `word`: a slip of one letter away, or much alike.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| {
        let is_slip = word.len() > 2 && strsim::osa_distance(word, other) == 1;
        if is_slip { 1.0 } else { strsim::jaro_winkler(word, other) }
    };
    let best = known.map(|other| (likeness(other), other)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness > NEAR).map(|(_, other)| other)
}

/// The line for `error`, which `arguments` (with the program's name first) led to. `command` is what they were read by.
pub fn line(error: &Error, command: &Command, arguments: &[OsString]) -> String {
    if error.kind() == ErrorKind::MissingSubcommand {
        let named = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        let names: Vec<&str> = named.map(Command::get_name).collect();
        return format!(
            "a subcommand is missing: {} (outswap --help and outswap run --help say more)",
            names.join(", ")
        );
    }
    let text = error.render().to_string();
    let what: Vec<&str> = text.lines().take_while(|l| !l.is_empty()).map(str::trim).collect();
    let what = what.join(" ");
    let mut parts = vec![what.strip_prefix("error: ").unwrap_or(&what).to_owned()];
    // What could be passed "as a value" would be taken for the program here.
    let tips = text.lines().filter_map(|l| l.trim().strip_prefix("tip: "));
    parts.extend(tips.filter(|tip| !tip.starts_with("to pass ")).map(str::to_owned));
    if parts.len() == 1 {
        parts.extend(similar(error, command, arguments));
    }
    parts.extend(run_instead(error, command, arguments));
    format!("{} (outswap --help and outswap run --help say more)", parts.join("; "))
}

fn said(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The option that an unknown one is a slip for: the parser knows only of longer likenesses.
fn similar(error: &Error, command: &Command, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let flag = said(error, ContextKind::InvalidArg)?.strip_prefix("--")?;
    let subcommand = command.find_subcommand(arguments.get(1)?)?;
    let meant = nearest(flag, subcommand.get_arguments().filter_map(|option| option.get_long()))?;
    Some(format!("a similar argument exists: '--{meant}'"))
}

/// The hint for those who left out `run`.
fn run_instead(error: &Error, command: &Command, arguments: &[OsString]) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let program = said(error, ContextKind::InvalidSubcommand)?;
            // `outswap help fly` asks for no program.
            let first = arguments.get(1).is_some_and(|word| word == program);
            let more = if arguments.len() > 2 { " ..." } else { "" };
            first.then(|| format!("to run a program: outswap run -- {program}{more}"))
        }
        ErrorKind::UnknownArgument => {
            let flag = said(error, ContextKind::InvalidArg)?;
            let given = arguments.get(1)?.to_str()?;
            let is_first = given == flag || given.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
            let mut options = command.find_subcommand("run")?.get_arguments();
            let is_of_run =
                options.any(|option| option.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long)));
            (is_first && is_of_run).then(|| format!("it is an option of run: outswap run {flag} ..."))
        }
        _ => None,
    }
}
