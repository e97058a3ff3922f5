//! Manual pages and completions, made of the parser itself.
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use std::io::{Error, Write};
use std::path::{Path, PathBuf};

/// Shells that completions are made for.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes all pages and completions into `directory`, which is made if it is not there. Gives the files.
///
/// # Errors
/// What could not be written.
pub fn generate(command: Command, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    std::fs::create_dir_all(directory)?;
    let mut files = Vec::new();
    let mut completed = with_values(command.clone());
    for shell in SHELLS {
        files.push(generate_to(shell, &mut completed, "outswap", directory)?);
    }
    // What a page of its own would be too much for.
    let mut command = command.disable_help_subcommand(true).mut_subcommand("version", |version| version.hide(true));
    command.build();
    for page in command.get_subcommands().filter(|c| !c.is_hide_set()).chain([&command]) {
        let file = directory.join(format!("{}.1", page.get_display_name().unwrap_or(page.get_name())));
        std::fs::write(&file, manual(page.clone())?)?;
        files.push(file);
    }
    files.sort();
    Ok(files)
}

/// The command with the values that its options take, where they are a fixed set, as the names of those values list them: shells offer files
/// otherwise. Not for reading a command line, where a wrong value gets a line of its own.
fn with_values(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let with = |argument: Arg| match fixed(&argument) {
        Some(values) => argument.value_parser(PossibleValuesParser::new(values)),
        None => argument,
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |c| c.mut_args(with)))
}

/// The values of an option, where its value is named by all of them.
fn fixed(argument: &Arg) -> Option<Vec<&'static str>> {
    let [name] = argument.get_value_names()? else { return None };
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    // The parser wants texts that stay.
    let leak = |word: &str| &*word.to_owned().leak();
    (name.contains('|') && name.split('|').all(is_word)).then(|| name.split('|').map(leak).collect())
}

/// A manual page. What stands behind the options is kept line by line: it has lists.
fn manual(command: Command) -> Result<Vec<u8>, Error> {
    let behind = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let has_subcommands = command.get_subcommands().any(|c| !c.is_hide_set());
    let page = Man::new(command).source(concat!("outswap ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    writeln!(out, ".SH SYNOPSIS\n{}", escaped(usage.trim_start_matches("Usage:").trim()))?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if has_subcommands {
        page.render_subcommands_section(&mut out)?;
    }
    writeln!(out, ".SH NOTES\n.nf")?;
    for line in behind.lines() {
        writeln!(out, "{}", escaped(line))?;
    }
    writeln!(out, ".fi")?;
    Ok(out)
}

/// A line as troff prints it: nothing in it is a command.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    // At the start of a line these two begin a command.
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn pages_and_completions_have_every_option() {
        let directory = std::env::temp_dir().join(format!("outswap-generate-{}", std::process::id()));
        let files = generate(command::documented(), &directory).expect("the temporary directory is writable");
        let read = |name: &str| {
            let path = directory.join(name);
            assert!(files.contains(&path), "{name} is not in {files:?}");
            std::fs::read_to_string(path).expect("written")
        };
        let completions = ["outswap.bash", "_outswap", "outswap.fish"].map(read);
        for text in &completions {
            for value in ["exceed", "wait", "fail", "mimalloc", "keep", "mprotect"] {
                assert!(text.contains(value), "{value} is not completed");
            }
        }
        let mut options = 0;
        for command in command::documented().get_subcommands() {
            let name = command.get_name();
            assert!(completions.iter().all(|text| text.contains(name)), "{name}");
            if name == "version" {
                continue;
            }
            assert!(read("outswap.1").contains(&escaped(&format!("outswap-{name}"))), "{name}");
            let page = read(&format!("outswap-{name}.1"));
            for long in command.get_arguments().filter_map(|argument| argument.get_long()) {
                options += 1;
                assert!(page.contains(&escaped(&format!("--{long}"))), "--{long} is not in the page of {name}");
                for (text, written) in
                    completions.iter().zip([format!("--{long}"), format!("--{long}"), format!("-l {long}")])
                {
                    assert!(text.contains(&written), "--{long} of {name} is not completed");
                }
            }
            let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(notes.lines().all(|line| page.contains(&escaped(line))), "{name}");
        }
        assert!(options > 20, "only {options} options were looked at");
        assert!(!completions.concat().contains(command::GENERATE), "what is hidden is completed");
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "1")) {
            let text = std::fs::read_to_string(file).expect("written");
            for see in text
                .split(|c: char| !c.is_ascii_alphanumeric() && !"-\\.()".contains(c))
                .filter_map(|w| w.strip_suffix("(1)"))
            {
                assert!(directory.join(format!("{}.1", see.replace('\\', ""))).is_file(), "{see} has no page");
            }
        }
        let _ = std::fs::remove_dir_all(&directory);
    }

    #[test]
    fn no_line_is_a_command() {
        assert_eq!(escaped(".so a"), "\\&.so a");
        assert_eq!(escaped("'a"), "\\&'a");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
    }
}
