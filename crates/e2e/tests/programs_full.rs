//! Larger programs that people run, each in half and in a quarter of the memory that its plain run used. Only with
//! `OUTSWAP_E2E_FULL=1` (`make e2e-full`). A program that is not installed counts as ignored, and is named at the end.
use libtest_mimic::{Arguments, Failed, Trial};
use outswap_e2e::applications::{PERCENTAGES, PROGRAMS};
use outswap_e2e::is_full;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Times are told beside each other, and each program wants the machine for itself.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let full = is_full();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut absent = Vec::new();
    let mut trials = Vec::new();
    for program in PROGRAMS {
        let missing = if full { program.missing() } else { Vec::new() };
        let kind = if missing.is_empty() { "" } else { "absent" };
        if !missing.is_empty() {
            absent.push(format!("{} ({})", program.name, missing.join(", ")));
        }
        let lines = lines.clone();
        let test = move || match catch_unwind(AssertUnwindSafe(|| program.compare())) {
            Ok(line) => {
                lines.lock().expect("nobody panics with it").push(line);
                Ok(())
            }
            Err(payload) => {
                let text = payload.downcast::<String>().map(|text| *text);
                Err(Failed::from(
                    text.unwrap_or_else(|p| p.downcast::<&str>().map_or("panicked".into(), |t| t.to_string())),
                ))
            }
        };
        trials.push(Trial::test(program.name, test).with_kind(kind).with_ignored_flag(!full || !missing.is_empty()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let lines = lines.lock().expect("nobody panics with it");
    if !lines.is_empty() {
        println!("peak and time plainly | limit, peak and time for each of {PERCENTAGES:?} % of that peak");
        lines.iter().for_each(|line| println!("{line}"));
    }
    if !absent.is_empty() {
        println!("absent, and not tested (`scripts/setup.sh full` installs what can be had): {}", absent.join("; "));
    }
    conclusion.exit_code()
}
