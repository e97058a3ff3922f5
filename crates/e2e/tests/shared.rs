//! Shared anonymous memory, over each fault source: managed while one process has it, and the kernel's once two have.
use outswap_e2e::{KIB, MIB, Setup, Tmp, build, calls, place, plain_mode, stats, workloads};
use serde_json::Value;

const RAM_BYTES: u64 = 32 * MIB;
const SOURCES: [&str; 3] = ["move", "copy", "mprotect"];

fn counter(stats: &Value, name: &str) -> u64 {
    stats["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stats:#}"))
}

fn each_source(program: &str) {
    for source in SOURCES {
        calls::compare(&Setup::new().option("--fault-source", source), program);
    }
}

#[test]
fn every_call_finds_it_shared() {
    each_source("shared_anon.c");
}

#[test]
fn forks_share_it() {
    each_source("shared_fork.c");
}

#[test]
fn locks_work_across_forks() {
    each_source("shared_futex.c");
}

/// CPython's `mmap(-1, n)`, three times as large as the limit: it is in the limit until the fork, and told of from then on.
#[test]
fn python_has_more_of_it_than_memory() {
    let script = place::workspace().join("tests/programs/shared.py");
    let (one, two) = (Tmp::new(), Tmp::new());
    let run = |setup: &Setup, dir: &Tmp| {
        let python = setup.managed(RAM_BYTES, workloads::python());
        python.arg(&script).arg("1").dir(dir.path()).timeout_s(240).run()
    };
    let plain = Setup::new().plain(workloads::python()).arg(&script).arg("1").dir(one.path()).run().succeeded();
    for source in SOURCES {
        let file = two.join("stats.json");
        let setup = Setup::new().option("--fault-source", source).option("--stats", &file.to_string_lossy());
        let managed = run(&setup, &two).succeeded().same_as(&plain);
        if plain_mode() {
            return;
        }
        let errors = managed.errors();
        let most: Vec<u64> = errors
            .lines()
            .find(|line| line.starts_with("most "))
            .map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default();
        let [most_kib, shared_kib] = most[..] else { panic!("nothing is told of memory: {errors}") };
        // What is resident of libraries' code counts here, and not in the limit.
        assert!(most_kib * KIB < RAM_BYTES + 24 * MIB, "{most_kib} KiB with {source}: {errors}");
        // The control block is shared memory, too.
        assert!(shared_kib < 1024, "nothing of it is the kernel's: {errors}");
        let told = errors.matches("shared anonymous memory was made whole").count();
        assert_eq!(told, 1, "it is said once: {errors}");
        let stats = stats::read(&file);
        assert_eq!(counter(&stats, "shared_whole"), 2, "{stats:#}");
        assert_eq!(counter(&stats, "shared_whole_pages"), 24 * 1024 + 64);
        let copied = counter(&stats, "shared_copied_pages");
        assert!((24 * 1024..24 * 1024 + 64).contains(&copied), "untouched pages are not copied: {copied}");
        assert_eq!(counter(&stats, "shared_pages"), 24 * 1024 + 64);
        assert!(counter(&stats, "pages_taken") > 16 * 1024, "{stats:#}");
        stats::nothing_lost(&stats).expect("nothing is lost");
    }
}

/// A fork that cannot have it whole fails, and changes nothing.
#[test]
fn a_fork_without_room_for_mappings_fails() {
    if plain_mode() {
        return;
    }
    let program = build::program("tests/programs/mappings.c");
    for source in ["move", "copy"] {
        let end = Setup::new().option("--fault-source", source).managed(RAM_BYTES, &program).timeout_s(120).run();
        let end = end.succeeded();
        let numbers: Vec<u32> = end.text().split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        let [made, failed] = numbers[..] else { panic!("{}", end.describe()) };
        assert!(made > 0 && failed > 0 && made + failed == 12, "{}", end.describe());
        assert!(end.errors().contains("cannot be made whole"), "{}", end.describe());
    }
}

/// What is left to the kernel is counted, and works as it always does.
#[test]
fn what_is_not_managed_is_counted() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let setup = Setup::new().option("--stats", &file.to_string_lossy());
    let script = "import mmap, os\n\
                  m = mmap.mmap(-1, 40 << 20); m[:] = b'x' * len(m); print(m[5])\n\
                  fd = os.memfd_create('f'); os.ftruncate(fd, 8 << 20)\n\
                  a, b = mmap.mmap(fd, 8 << 20), mmap.mmap(fd, 8 << 20); a[:4] = b'same'; print(b[:4], os.pread(fd, 4, 0))";
    let run = |setup: &Setup| {
        let end = setup.managed(RAM_BYTES, workloads::python()).args(["-c", script]).run().succeeded();
        assert_eq!(end.text(), "120\nb'same' b'same'\n");
        let stats = stats::read(&file);
        ["shared_pages", "shared_unmanaged_pages", "shared_whole"].map(|name| counter(&stats, name))
    };
    assert_eq!(run(&setup), [10240, 4096, 0]);
    assert_eq!(run(&setup.option("--mechanism", "shared-anon=off")), [0, 14336, 0]);
}
