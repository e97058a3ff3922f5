//! Every wrapped system call and every memory call, one trial each, against a plain run.
use libtest_mimic::{Arguments, Failed, Trial};
use outswap_e2e::place::workspace;
use outswap_e2e::{Setup, calls};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// Calls that share a program share its run.
type Result = Arc<OnceLock<std::result::Result<(), String>>>;

fn every_row_of_the_table_has_a_program() -> std::result::Result<(), Failed> {
    let path = workspace().join("crates/runtime/src/calls.rs");
    let source = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let table = calls::table(&source);
    if table.len() < 100 {
        return Err(format!("only {} rows found in {}", table.len(), path.display()).into());
    }
    let manifest = calls::manifest();
    let without: Vec<_> = table.iter().filter(|name| !manifest.iter().any(|row| row.call == **name)).collect();
    if without.is_empty() { Ok(()) } else { Err(format!("no program for {without:?}").into()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut results: BTreeMap<String, Result> = BTreeMap::new();
    let mut trials = vec![Trial::test("table", every_row_of_the_table_has_a_program)];
    for row in calls::manifest() {
        let name = if row.call == "-" {
            format!("program::{}", calls::stem(&row.program))
        } else {
            format!("call::{}", row.call)
        };
        let result = results.entry(row.program.clone()).or_default().clone();
        trials.push(Trial::test(name, move || {
            let run = || {
                catch_unwind(AssertUnwindSafe(|| calls::compare(&Setup::new(), &row.program)))
                    .map_err(|payload| payload.downcast::<String>().map_or("panicked".into(), |text| *text))
            };
            result.get_or_init(run).clone().map_err(Failed::from)
        }));
    }
    // Once more with their memory where their `.bss` is.
    for program in calls::sample(calls::in_bss(), 1) {
        trials.push(Trial::test(format!("bss::{}", calls::stem(&program)), move || {
            catch_unwind(AssertUnwindSafe(|| calls::compare_in_bss(&Setup::new(), &program)))
                .map_err(|payload| Failed::from(payload.downcast::<String>().map_or("panicked".into(), |text| *text)))
        }));
    }
    // Some linked to fixed addresses, where calls of their own instructions are told in another way.
    for program in calls::FIXED.into_iter().filter(|program| calls::runs_again(program)) {
        trials.push(Trial::test(format!("fixed::{}", calls::stem(program)), move || {
            catch_unwind(AssertUnwindSafe(|| calls::compare_fixed(&Setup::new(), program)))
                .map_err(|payload| Failed::from(payload.downcast::<String>().map_or("panicked".into(), |text| *text)))
        }));
    }
    // And once more with mimalloc, whose memory comes by ordinary calls of `mmap`.
    for program in calls::sample(results.into_keys(), 5) {
        trials.push(Trial::test(format!("mimalloc::{}", calls::stem(&program)), move || {
            let setup = Setup::new().option("--malloc", "mimalloc");
            catch_unwind(AssertUnwindSafe(|| calls::compare(&setup, &program)))
                .map_err(|payload| Failed::from(payload.downcast::<String>().map_or("panicked".into(), |text| *text)))
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
