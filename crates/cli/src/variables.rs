//! Variables of the environment that look like ours and are not: most likely misspelt, so their user has to know.
use crate::mistakes::nearest;
use clap::Command;

/// How all of ours begin.
const HEAD: &str = "OUTSWAP_";
/// Variables that Outswap sets for the programs that it starts.
const OWN: &[&str] = &[outswap_control::ENV, "OUTSWAP_LIMITS"];
/// Variables of tests, benchmarks and scripts; with `_` at the end, all that begin so.
const TESTS: &[&str] = &[
    "OUTSWAP_BIN",
    "OUTSWAP_BROKEN",
    "OUTSWAP_CALL_ENV",
    "OUTSWAP_DEMO_KEYS",
    "OUTSWAP_E2E_",
    "OUTSWAP_FUZZ_S",
    "OUTSWAP_SIM_",
    "OUTSWAP_SOAK_",
];
/// Arguments that have no variable.
const WITHOUT: &[&str] = &["help", "version", "command", "output"];

/// The variable of a flag.
pub fn of_flag(flag: &str) -> String {
    format!("{HEAD}{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// The variables of all flags.
fn of_flags(command: &Command) -> Vec<String> {
    let flags = command.get_subcommands().filter(|c| !c.is_hide_set()).flat_map(Command::get_arguments);
    let mut all: Vec<String> =
        flags.map(|flag| flag.get_id().as_str()).filter(|id| !WITHOUT.contains(id)).map(of_flag).collect();
    all.sort();
    all.dedup();
    all
}

fn is_known(name: &str, flags: &[String]) -> bool {
    let is_test = |test: &&str| if test.ends_with('_') { name.starts_with(*test) } else { name == *test };
    OWN.contains(&name) || TESTS.iter().any(is_test) || flags.iter().any(|flag| flag == name)
}

/// Whether Kubernetes, or a link between containers, sets a variable of this name for a service that is named like us.
fn is_service(name: &str) -> bool {
    let ends = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];
    ends.iter().any(|end| name.ends_with(end)) || ["_SERVICE_PORT_", "_PORT_"].iter().any(|part| name.contains(part))
}

/// What is to be said of those of `names` that look like ours and are not; `None` where there are none.
pub fn warning(command: &Command, names: impl Iterator<Item = String>) -> Option<String> {
    let flags = of_flags(command);
    let is_unknown = |name: &String| name.starts_with(HEAD) && !is_known(name, &flags) && !is_service(name);
    let mut unknown: Vec<String> = names.filter(is_unknown).collect();
    unknown.sort();
    let tell = |name: &String| {
        let meant = nearest(&name[HEAD.len()..], flags.iter().map(|flag| &flag[HEAD.len()..]));
        // Whoever named it, it does not command the terminal.
        let name = name.escape_debug();
        meant.map_or(name.to_string(), |flag| format!("{name} (did you mean {HEAD}{flag}?)"))
    };
    let told: Vec<String> = unknown.iter().map(tell).collect();
    (!told.is_empty()).then(|| format!("warning: no variable of Outswap, so without effect: {}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use std::path::Path;

    fn command() -> Command {
        let flags = ["ram", "swap", "swap-dir", "quiet", "help"].map(Arg::new);
        Command::new("outswap").subcommand(Command::new("run").disable_help_flag(true).args(flags))
    }

    fn said(names: &[&str]) -> Option<String> {
        warning(&command(), names.iter().map(|name| format!("{HEAD}{name}")))
    }

    #[test]
    fn only_what_is_not_ours_is_told_with_what_was_meant() {
        for fine in [
            "RAM",
            "SWAP_DIR",
            "QUIET",
            "CONTROL",
            "LIMITS",
            "BIN",
            "E2E_PLAIN",
            "SOAK_S",
            "SIM_SEEDS",
            "PORT",
            "X_SERVICE_HOST",
            "X_PORT_80_TCP",
        ] {
            assert_eq!(said(&[fine]), None, "{fine}");
        }
        assert_eq!(warning(&command(), ["OUTSWAP", "HOME", "XOUTSWAP_RAMM"].map(String::from).into_iter()), None);
        let text = said(&["XYZZY", "RAM", "SWAPDIR", "HELP"]).expect("three are not known");
        assert_eq!(text.lines().count(), 1);
        let tail = format!("{HEAD}HELP, {HEAD}SWAPDIR (did you mean {HEAD}SWAP_DIR?), {HEAD}XYZZY");
        assert!(text.ends_with(&tail), "{text}");
        assert!(said(&["RAMM"]).expect("unknown").ends_with("(did you mean OUTSWAP_RAM?)"));
        assert!(said(&["X\ny\u{1b}"]).is_some_and(|text| !text.contains(char::is_control)));
        assert!(said(&["RMA"]).expect("unknown").ends_with("(did you mean OUTSWAP_RAM?)"));
    }

    /// Names that stand in a text.
    fn names(text: &str) -> Vec<String> {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let starts = text.match_indices(HEAD).map(|(at, _)| &text[at..]);
        starts.map(|rest| rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())].to_owned()).collect()
    }

    fn scan(path: &Path, found: &mut Vec<(String, String)>) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).expect("readable").flatten() {
                scan(&entry.path(), found);
            }
        } else if let Ok(text) = std::fs::read_to_string(path) {
            found.extend(names(&text).into_iter().map(|name| (name, path.display().to_string())));
        }
    }

    #[test]
    fn what_sources_and_scripts_use_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        for part in ["crates", "scripts", "tests", "Makefile", "docs", "README.md", "CONTRIBUTING.md"] {
            scan(&root.join(part), &mut found);
        }
        assert!(found.len() > 50, "only {} were found", found.len());
        let flags = of_flags(&crate::command::command());
        // Made up in tests, or only a beginning.
        let made_up = [HEAD, "OUTSWAP_CONTROLS", "OUTSWAP_RAMM", "OUTSWAP_QUEIT"];
        for (name, path) in found {
            assert!(made_up.contains(&name.as_str()) || is_known(&name, &flags), "{name} in {path}");
        }
    }
}
