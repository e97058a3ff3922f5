//! Libraries that a program is linked to, or opens while it runs: those that make system calls by instructions of their own, block signals that
//! the runtime needs, handle them, and fork, with threads there and most of the memory evicted; and those with threads from before the program.
use outswap_e2e::{MIB, Run, Tmp, build, plain_mode, setup, stats};

/// Over each fault source, without and with zeros of libraries managed, and mapped by the linker in each of its two ways.
fn a_library_may_make_calls_of_its_own(source: &str) {
    for (border_bytes, bss) in [(4096, "on"), (4096, "off"), (2 * MIB, "on")] {
        let library = build::library_with_borders("tests/programs/own_calls_library.c", border_bytes);
        let program = build::program("tests/programs/own_calls.c");
        let plain = Run::new(&program).arg(&library).run().exited(0);
        assert_eq!(plain.text(), "ok\n", "{}", plain.describe());
        if plain_mode() {
            continue;
        }
        let dir = Tmp::new();
        let file = dir.join("stats.json");
        let run =
            Run::new(setup::outswap()).args(["run", "--ram", "16M", "--fault-source", source, "--stats"]).arg(&file);
        let run = if bss == "off" { run.args(["--mechanism", "bss=off"]) } else { run };
        let end = run.arg("--").arg(&program).arg(&library).timeout_s(120).run().exited(0).same_as(&plain);
        assert!(end.stderr.is_empty(), "{}", end.describe());
        let stats = stats::read(&file);
        let out = |store: &str| stats.pointer(&format!("/stores/{store}/pages_out")).and_then(|pages| pages.as_u64());
        let out_pages = out("memory").expect("a number") + out("file").expect("a number");
        assert!(out_pages * 4096 > 16 * MIB, "{stats:#}");
    }
}

#[test]
fn a_library_may_make_calls_of_its_own_move() {
    a_library_may_make_calls_of_its_own("move");
}

#[test]
fn a_library_may_make_calls_of_its_own_copy() {
    a_library_may_make_calls_of_its_own("copy");
}

#[test]
fn a_library_may_make_calls_of_its_own_guard() {
    a_library_may_make_calls_of_its_own("guard");
}

#[test]
fn a_library_may_make_calls_of_its_own_mprotect() {
    a_library_may_make_calls_of_its_own("mprotect");
}

/// A library's thread from before the program, functions of its own by the C library's names, and one that wants executable stacks.
#[test]
fn a_library_may_have_threads_first_and_names_of_its_own() {
    let library = build::library("tests/programs/linked_library.c");
    let program = build::program_linked_to("tests/programs/linked.c", &library);
    let stack = build::library_with_executable_stack("tests/programs/stack_library.c");
    let plain = Run::new(&program).arg(&stack).run().exited(0);
    assert!(plain.text().contains("own: 204025027\nthread: 0\n"), "{}", plain.describe());
    if plain_mode() {
        return;
    }
    for source in ["move", "copy", "guard", "mprotect"] {
        let dir = Tmp::new();
        let file = dir.join("stats.json");
        let run =
            Run::new(setup::outswap()).args(["run", "--ram", "16M", "--fault-source", source, "--stats"]).arg(&file);
        let end = run.arg("--").arg(&program).arg(&stack).timeout_s(120).run().exited(0).same_as(&plain);
        assert!(end.stderr.is_empty(), "{}", end.describe());
        let stats = stats::read(&file);
        stats::nothing_lost(&stats).expect("every page came back");
        assert!(stats["pages"]["taken"].as_u64() > Some(4096), "{stats:#}");
    }
}

/// What has threads before ours can be set up is not managed, and that is said.
#[test]
fn threads_from_before_all_are_told_of() {
    let library = build::library_that_is_first("tests/programs/linked_library.c");
    let program = build::program_linked_to("tests/programs/linked.c", &library);
    let stack = build::library_with_executable_stack("tests/programs/stack_library.c");
    let plain = Run::new(&program).arg(&stack).run().exited(0);
    if plain_mode() {
        return;
    }
    let run = |more: &[&str]| {
        let run = Run::new(setup::outswap()).args(["run", "--ram", "16M"]).args(more).arg("--");
        run.arg(&program).arg(&stack).timeout_s(120).run()
    };
    let refused = run(&[]).exited(125);
    assert!(refused.errors().contains("a library made threads before a process was set up"), "{}", refused.describe());
    let unmanaged = run(&["--allow-unmanaged"]).exited(0);
    assert_eq!(unmanaged.text(), plain.text(), "{}", unmanaged.describe());
    assert!(unmanaged.errors().contains("it runs unmanaged"), "{}", unmanaged.describe());
}
