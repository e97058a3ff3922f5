//! Memory that is left to the kernel, which counts before it is filled, and who needs room beside it.
use outswap_e2e::{MIB, Setup, Tmp, build, plain_mode, stats};

/// Processes that have touched a page and wait would have all of the limit, were each left as much as one alone; none of them has a thread that
/// could give it back.
#[test]
fn processes_that_wait_leave_room() {
    const RAM_BYTES: u64 = 64 * MIB;
    const PROCESSES: &str = "30";
    const USED_MIB: &str = "30";
    let program = build::program("tests/programs/left_idle.c");
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let setup = Setup::new().option("--stats", &file.to_string_lossy());
    let end = setup.managed(RAM_BYTES, &program).args([PROCESSES, USED_MIB]).timeout_s(120).run().succeeded();
    assert_eq!(end.text(), "ok\n", "{}", end.describe());
    if plain_mode() {
        return;
    }
    let stats = stats::read(&file);
    let counter =
        |name: &str| stats["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stats:#}"));
    assert!(counter("pages_untrapped") > 0, "nothing was left: {stats:#}");
    assert_eq!(counter("pages_taken"), 0, "there was room: {stats:#}");
}
