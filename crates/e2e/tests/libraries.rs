//! Libraries that a program opens while it runs, and that make system calls by instructions of their own: they block signals that the runtime
//! needs, handle them, and fork, with threads there and most of the memory evicted.
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
