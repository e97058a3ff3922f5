//! The programs of `tests/calls`.
use crate::place::workspace;
use crate::{MIB, Setup, Tmp, build, is_full, plain_mode, stats};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What each of the programs gets.
pub const RAM_BYTES: u64 = 32 * MIB;

/// Programs that write nonsense over all that a process of the tree can write, the statistics among it. After that each process keeps to
/// the limit for itself alone (docs/security.md).
const SCRIBBLERS: [&str; 2] = ["dropped_parent.c", "untrusted.c"];

/// Programs that take long, on a busy machine more than ten seconds.
pub const LONG: [&str; 11] = [
    "bigio.c",
    "clone_vm_threads.c",
    "mappings_used_up.c",
    "moving_limit.c",
    "own_filter_forks.c",
    "own_sandbox.c",
    "process_vm_other.c",
    "process_vm_soon.c",
    "protect_threads.c",
    "sharers_end.c",
    "swap_fds.c",
];

/// Of programs that run one way already, one in so many runs another way in CI.
const SAMPLED: usize = 8;

/// One line of the manifest.
#[derive(Clone, Debug)]
pub struct Row {
    /// The call, or `-` for a program that stands for no single one.
    pub call: String,
    /// File in `tests/calls`.
    pub program: String,
}

/// Reads the manifest.
pub fn manifest() -> Vec<Row> {
    let path = workspace().join("tests/calls/MANIFEST");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [call, program] => Row { call: call.into(), program: program.into() },
            _ => panic!("MANIFEST: `{line}` is not a name and a file"),
        })
        .collect()
}

/// All programs of the manifest, each once.
pub fn programs() -> BTreeSet<String> {
    manifest().into_iter().map(|row| row.program).collect()
}

/// Whether a program is to run another way, too.
pub fn runs_again(program: &str) -> bool {
    is_full() || !LONG.contains(&program)
}

/// The `part`th sample of programs that run one way already, for another: one in eight, and none that takes long, unless all is asked for.
pub fn sample(programs: impl IntoIterator<Item = String>, part: usize) -> Vec<String> {
    let is_in = |i: usize, program: &str| is_full() || i % SAMPLED == part && runs_again(program);
    let all = programs.into_iter().enumerate();
    all.filter(|(i, program)| is_in(*i, program)).map(|(_, program)| program).collect()
}

/// The calls that the runtime's table names, from its source: the first word of each `call!(NAME, ...)`.
pub fn table(source: &str) -> Vec<String> {
    let code: String = source.lines().map(|l| l.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut names = Vec::new();
    for mark in ["call!", "row!"] {
        for (at, _) in code.match_indices(mark) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = code[at + mark.len()..].trim_start();
            let Some(rest) = rest.strip_prefix(['(', '[', '{']) else { continue };
            let rest = rest.trim_start().trim_start_matches('"').trim_start_matches("nr::");
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                names.push(name.to_ascii_lowercase());
            }
        }
    }
    names
}

/// The name of a program's test.
pub fn stem(program: &str) -> &str {
    program.split('.').next().unwrap_or(program)
}

/// Runs a program both ways, each in a directory of its own.
pub fn compare(setup: &Setup, program: &str) {
    compare_binary(setup, program, &build::program(&format!("tests/calls/{program}")));
}

/// Programs that are not themselves with 1.5 GiB of `.bss`: because of limits of address space that they set, because they lock all that
/// there is, because they want places near their code; and one that registers, with a userfaultfd of its own, pages beside others in use,
/// some of which come in with those (docs/limits.md).
const NOT_IN_BSS: [&str; 7] =
    ["exec_limits.c", "lost.c", "mlock_rules.c", "near_code.c", "own_closes.c", "own_userfaultfd.c", "rlimit_as.c"];

/// Programs that can have their memory in their `.bss`.
pub fn in_bss() -> BTreeSet<String> {
    programs().into_iter().filter(|program| !NOT_IN_BSS.contains(&program.as_str())).collect()
}

/// The same with the memory that it maps for its calls in its `.bss`.
pub fn compare_in_bss(setup: &Setup, program: &str) {
    compare_binary(setup, program, &build::program_with(&format!("tests/calls/{program}"), "IN_BSS"));
}

/// Programs that make calls by instructions of their own, or have threads, children and signals, to be linked to fixed addresses.
pub const FIXED: [&str; 10] = [
    "altstacks.c",
    "fork_threads.c",
    "own_code.c",
    "own_dispatch.c",
    "own_instruction.c",
    "own_sandbox.c",
    "own_signals.c",
    "processes.c",
    "signals.c",
    "threads.c",
];

/// Programs that together have more than the limit for a moment, with a fault source or with any, though none of them does: what the kernel
/// copies after a fork is known there by measuring alone, from outside where the root directory is another, or Landlock lets who forks see no
/// `/proc` (docs/limits.md, "The budget").
const COPIED_LATE: [(&str, Option<&str>); 5] = [
    ("clone_vfork.c", Some("guard")),
    ("copies.c", Some("guard")),
    ("copies.c", Some("mprotect")),
    ("landlock_fork.c", None),
    ("swap_fds.c", None),
];

/// The same as [`compare`], linked to a fixed address.
pub fn compare_fixed(setup: &Setup, program: &str) {
    compare_binary(setup, program, &build::fixed_program(&format!("tests/calls/{program}")));
}

fn compare_binary(setup: &Setup, program: &str, binary: &Path) {
    let (one, two) = (Tmp::new(), Tmp::new());
    let plain = setup.plain(binary).env("TMPDIR", one.path()).dir(one.path()).timeout_s(60).run().succeeded();
    let stats = two.join("stats.json");
    let with_stats = setup.clone().option("--stats", &stats.to_string_lossy());
    let managed = with_stats.managed(RAM_BYTES, binary).env("TMPDIR", two.path()).dir(two.path()).timeout_s(90).run();
    let managed = managed.same_as(&plain);
    let scribbles = SCRIBBLERS.contains(&program);
    let stats = if plain_mode() { Value::Null } else { stats::read(stats) };
    let is_source = |source: &str| stats["fault_sources"].as_array().is_some_and(|all| all.iter().any(|s| s == source));
    let copies_late = COPIED_LATE.iter().any(|&(late, source)| late == program && source.is_none_or(is_source));
    assert!(!managed.errors().contains("no swap file can be made"), "{}", managed.describe());
    let managed = if scribbles || copies_late { managed.each_within(RAM_BYTES) } else { managed.within(RAM_BYTES) };
    if !plain_mode() {
        let told = if scribbles { Ok(()) } else { was_managed(setup, &stats) };
        told.unwrap_or_else(|why| panic!("{why}: {}", managed.describe()));
    }
}

/// Whether a run was what it was to be: with the fault source that was asked for, and with pages that went out and came back.
fn was_managed(setup: &Setup, stats: &Value) -> Result<(), String> {
    if stats["managed"] != true {
        return Err("nothing was managed".into());
    }
    let sources = &stats["fault_sources"];
    if setup.fault_source().is_some_and(|wanted| *sources != serde_json::json!([wanted])) {
        return Err(format!("another fault source: {sources}"));
    }
    for (name, count) in [("taken", &stats["pages"]["taken"]), ("faults", &stats["faults"]["total"])] {
        if count.as_u64().is_none_or(|n| n == 0) {
            return Err(format!("{name}: {count}"));
        }
    }
    stats::nothing_lost(stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_rows_are_found() {
        let source = "macro_rules! call { ($n:ident) => {} }\n const T: &[C] = &[\n\
                      call!(READ, [No]),\n // call!(GONE)\n\
                      call!(\n WRITE, [No]), row!(\"openat2\", x), syscall!(NOT), call!{nr::STAT}];";
        assert_eq!(table(source), ["read", "write", "stat", "openat2"]);
    }

    #[test]
    fn every_file_has_a_row_and_every_row_a_file() {
        let found: BTreeSet<String> = fs::read_dir(workspace().join("tests/calls"))
            .expect("the directory exists")
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|n| n.ends_with(".c") || n.ends_with(".cc"))
            .collect();
        assert_eq!(found, programs());
    }

    #[test]
    fn no_call_has_two_rows() {
        let rows = manifest();
        let calls: Vec<&str> = rows.iter().map(|r| r.call.as_str()).filter(|c| *c != "-").collect();
        assert!(calls.len() > 180);
        assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len());
    }
}
