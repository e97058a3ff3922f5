//! `outswap`: runs an unmodified program in less memory than it needs, and says what a host allows.
//!
//! The program's standard streams and its exit status are its own. What `outswap run` has to say goes to standard
//! error, each line beginning `outswap: `; its own failures exit with 125, 126 (cannot execute) or 127 (not found).
#![cfg_attr(not(test), no_main)]

mod signal_set;
mod messages;
mod output;
mod size;
mod limits;
mod device;
mod spec;
mod swap_dir;
mod mechanism;
mod record;
mod command;
mod mistakes;
mod variables;
mod args;
mod generate;
mod elf;
mod place;
mod libraries;
mod block;
mod preflight;
mod scratch;
mod probe;
mod requests;
mod supervise;
mod spawn;
mod processes;
mod keep;
mod trial;
mod causes;
mod thrash;
mod watch;
mod quantile;
mod stats;
mod run;
mod doctor;

use messages::{say, tell, warnings};
use std::ffi::OsString;

/// Our own failure; the program was not started.
const EXIT_OURS: i32 = 125;
/// The program was found but cannot be executed.
const EXIT_CANNOT_EXECUTE: i32 = 126;
/// The program was not found.
const EXIT_NOT_FOUND: i32 = 127;

/// Why the program was not started: an exit status and one line.
#[derive(Debug)]
struct Failure {
    status: i32,
    text: String,
}

impl Failure {
    /// A failure of ours (125).
    fn ours(text: impl Into<String>) -> Failure {
        Failure { status: EXIT_OURS, text: text.into() }
    }
}

fn cli(arguments: Vec<OsString>) -> i32 {
    if trial::is_program(&arguments) {
        return trial::program();
    }
    let result = match args::parse(arguments) {
        Ok(args::Parsed::Run(options)) => {
            args::unknown_variables().iter().for_each(|line| tell(line, options.quiet));
            run::run(*options)
        }
        Ok(args::Parsed::Doctor(options)) => {
            args::unknown_variables().iter().for_each(|line| say(line));
            doctor::doctor(&options)
        }
        Ok(args::Parsed::Generate(directory)) => generate::generate(command::documented(), &directory)
            .map(|_| 0)
            .map_err(|e| Failure::ours(format!("{}: {e}", directory.display()))),
        Ok(args::Parsed::Text(text)) => {
            use std::io::Write;
            std::io::stdout().write_all(text.as_bytes()).map(|()| 0).map_err(|e| Failure::ours(e.to_string()))
        }
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| {
        say(&failure.text);
        failure.status
    })
}

/// The C entry point. Rust's own start-up would ignore SIGPIPE and open closed standard streams, and the program
/// must inherit both just as they were given to us.
///
/// # Safety
/// Called once, by the C runtime, with `argc` strings in `argv`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    use std::os::unix::ffi::OsStringExt;
    let arguments = (0..argc as usize)
        .map(|i| {
            // SAFETY: the C runtime passes `argc` valid NUL-terminated strings.
            OsString::from_vec(unsafe { std::ffi::CStr::from_ptr(*argv.add(i)) }.to_bytes().to_vec())
        })
        .collect();
    cli(arguments)
}

/// Under the test harness nothing calls this; it keeps `cli` in use.
#[cfg(test)]
fn main() {
    std::process::exit(cli(std::env::args_os().collect()));
}
