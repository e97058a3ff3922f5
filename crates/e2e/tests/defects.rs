//! What needs options, another environment, other users or eyes from outside: programs that run unmanaged, limits from
//! outside, what a process of the tree may do to another, and the limit of memory where it is hard to keep.
use outswap_e2e::sample::PROCESS_ALLOWANCE_BYTES;
use outswap_e2e::{MIB, Outcome, Run, Setup, Tmp, build, plain_mode, setup, stats, workloads};
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const RAM_BYTES: u64 = 32 * MIB;

fn program(name: &str) -> String {
    build::program(&format!("tests/programs/{name}.c")).to_string_lossy().into_owned()
}

/// `outswap run` with these arguments, behind a command where one is given.
fn run(before: &[&str], args: &[&str]) -> Run {
    let mut words: Vec<String> = before.iter().map(|w| w.to_string()).collect();
    words.push(setup::outswap().to_string_lossy().into_owned());
    words.push("run".into());
    words.extend(args.iter().map(|w| w.to_string()));
    Run::new(&words[0]).args(&words[1..]).timeout_s(60)
}

/// Where a program of ours marks that the library `marker` was loaded.
fn marks(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(String::from).collect()
}

fn all_is_well(end: Outcome) -> Outcome {
    let end = end.exited(0);
    assert_eq!(end.text(), "ok\n", "{}", end.describe());
    assert!(!end.errors().contains("panicked"), "{}", end.describe());
    end
}

#[test]
fn processes_of_another_pid_namespace_reach_each_other() {
    let program = build::program("tests/calls/process_vm_other.c").to_string_lossy().into_owned();
    let apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"];
    let plain = Run::new(apart[0]).args(&apart[1..]).arg(&program).timeout_s(60).run();
    if plain_mode() || plain.errors().contains("unshare failed") {
        return;
    }
    let words = [&["--ram", "32M", "--"], &apart[..], &[&program]].concat();
    run(&[], &words).run().same_as(&plain.exited(0));
}

/// A limit that somebody set who is not managed is true: what is ours is below it then, and is closed by nobody, either.
#[test]
fn what_is_ours_below_a_lower_limit_stays_open() {
    if plain_mode() {
        return;
    }
    let lowers = build::static_program("tests/programs/lowers.c");
    let closes = build::program("tests/calls/own_closes.c");
    for source in ["move", "copy", "guard", "mprotect"] {
        for limit in ["200", "600"] {
            let script = format!("{} {limit} {}; exit $?", lowers.display(), closes.display());
            all_is_well(run(&[], &["--ram", "32M", "--fault-source", source, "--", "sh", "-c", &script]).run());
        }
    }
}

// Programs that run unmanaged.

#[test]
fn static_children_may_have_any_number_in_a_register() {
    if plain_mode() {
        return;
    }
    let actions = build::static_program("tests/programs/actions.c");
    let script = format!("{}; exit $?", actions.display());
    all_is_well(run(&[], &["--ram", "32M", "--", "sh", "-c", &script]).run());
    all_is_well(run(&[], &["--ram", "32M", "--allow-unmanaged", "--", &actions.to_string_lossy()]).run());
}

/// Where a managed process has its memory, one that is not may have anything: Go's programs ask for random places.
#[test]
fn static_children_may_have_memory_anywhere() {
    if plain_mode() {
        return;
    }
    for anywhere in [build::static_program, build::static_pie_program].map(|build| build("tests/programs/anywhere.c")) {
        let script = format!("{}; exit $?", anywhere.display());
        all_is_well(run(&[], &["--ram", "32M", "--", "sh", "-c", &script]).run());
    }
}

/// Our libraries need the C library.
#[test]
fn children_without_a_library_start() {
    if plain_mode() {
        return;
    }
    let alone = build::program_without_library("tests/programs/no_library.c");
    let script = format!("{}; exit $?", alone.display());
    let end = all_is_well(run(&[], &["--ram", "32M", "--", "sh", "-c", &script]).run());
    assert!(end.errors().contains("uses no C library: it runs without Outswap"), "{}", end.describe());
    let end = run(&[], &["--ram", "32M", "--", &alone.to_string_lossy()]).run().exited(125);
    assert!(end.errors().contains("uses no C library"), "{}", end.describe());
}

#[test]
fn children_that_are_not_followed_make_every_call() {
    if plain_mode() {
        return;
    }
    let script = format!("{}; exit $?", program("actions"));
    all_is_well(run(&[], &["--ram", "32M", "--no-follow", "--", "sh", "-c", &script]).run());
}

#[test]
fn unmanaged_children_may_have_the_same_addresses() {
    if plain_mode() {
        return;
    }
    let fixed = ["setarch", "-R"];
    let actions = build::static_program("tests/programs/actions.c");
    for (option, path) in [
        ("--no-follow", program("actions")),
        ("--no-follow", actions.to_string_lossy().into_owned()),
        ("--quiet", actions.to_string_lossy().into_owned()),
    ] {
        let script = format!("{path}; exit $?");
        all_is_well(run(&fixed, &["--ram", "32M", option, "--", "sh", "-c", &script]).run());
    }
}

/// A filter outlives the program that it was made for: where the next one's C library lies in the same place, it must come
/// to the point where it has a handler of its own.
#[test]
fn managed_children_may_have_the_same_addresses() {
    if plain_mode() {
        return;
    }
    let fixed = build::static_program("tests/programs/fixed.c");
    let heap = program("heap");
    for malloc in ["mimalloc", "keep"] {
        let script = format!("grep -h libc.so.6 /proc/$$/maps; {} {heap} 80 || exit; exec {heap} 80", fixed.display());
        let args = ["--ram", "32M", "--malloc", malloc, "--", "sh", "-c", &script];
        let end = run(&["setarch", "-R"], &args).run();
        let place = end.text().split('-').next().map(str::to_owned).unwrap_or_default();
        let at_least = end.exited(0).within(RAM_BYTES);
        assert!(place.len() > 8, "{}", at_least.describe());
    }
}

#[test]
fn the_users_own_preload_is_kept() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let mark = dir.join("mark");
    let library = build::library("tests/programs/marker.c");
    for options in [&["--ram", "32M"][..], &["--ram", "32M", "--no-follow"][..]] {
        let _ = fs::remove_file(&mark);
        let args = [options, &["--", "sh", "-c", "/bin/echo started; /usr/bin/env true"]].concat();
        let end = run(&[], &args).env("LD_PRELOAD", &library).env("MARKER", &mark).run().exited(0);
        assert_eq!(end.text(), "started\n", "{}", end.describe());
        let marks = marks(&mark);
        for name in ["/dash ", "/echo ", "/true "] {
            let shell = name == "/dash " && marks.iter().any(|m| m.contains("sh "));
            assert!(shell || marks.iter().any(|m| m.contains(name)), "{options:?}: not loaded in {name}: {marks:?}");
        }
    }
}

#[test]
fn programs_that_may_be_executed_but_not_read_are_managed() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let heap = dir.join("heap");
    setup::copy_program(Path::new(&program("heap")), &heap);
    fs::set_permissions(&heap, fs::Permissions::from_mode(0o111)).expect("ours");
    let heap = heap.to_string_lossy();
    for source in ["move", "copy", "guard", "mprotect"] {
        let script = format!("{} --nobody {heap} 80; exit $?", program("launch"));
        let setup = Setup::new().with_binary(setup::readable_binary()).option("--fault-source", source);
        all_is_well(setup.managed(RAM_BYTES, "sh").args(["-c", &script]).run()).within(RAM_BYTES);
    }
}

// Limits from outside.

#[test]
fn a_limit_of_file_size_is_for_the_programs_own_files() {
    if plain_mode() {
        return;
    }
    let limited = ["sh", "-c", "ulimit -f 4000; exec \"$@\"", "sh"];
    for swap in ["file", "compressed,file"] {
        // Without room in the file, some stays in memory that should not: the limit is not asked for here.
        all_is_well(run(&limited, &["--ram", "32M", "--swap", swap, "--", &program("heap"), "36"]).run());
    }
    // The program has it as before.
    let script = "head -c 5000000 /dev/zero > big; echo $?; stat -c %s big; ulimit -f";
    let dir = Tmp::new();
    let plain = Run::new("sh").args(&limited[1..]).args(["sh", "-c", script]).dir(dir.path()).run();
    run(&limited, &["--ram", "32M", "--", "sh", "-c", script]).dir(dir.path()).run().same_as(&plain);
}

#[test]
fn a_limit_of_address_space_from_outside() {
    if plain_mode() {
        return;
    }
    let limited = ["sh", "-c", "ulimit -v 8000000; exec \"$@\"", "sh"];
    all_is_well(run(&limited, &["--ram", "32M", "--", &program("heap"), "60"]).run()).within(RAM_BYTES);
}

#[test]
fn a_run_on_a_hard_disk_is_right_and_says_what_it_waited() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let mine = dir.join("mine.toml");
    fs::write(&mine, "like = \"hdd\"\nseek_max_ns = 2_000_000\n").expect("writable");
    let devices = [("hdd".to_owned(), "hdd"), (mine.to_string_lossy().into_owned(), "other")];
    let script = "x=bytearray(b'12345678'*(3<<20)); print([sum(x[::4096]) for _ in range(2)])";
    let python = outswap_e2e::workloads::python();
    let plain = Run::new(python).args(["-c", script]).run().exited(0);
    for (device, name) in devices {
        let (file, swap) = (dir.join("stats.json"), format!("file,model={device}"));
        let said = file.to_string_lossy().into_owned();
        let args = ["--resident", "16M", "--swap", &swap, "--stats", &said, "--", python, "-c", script];
        run(&[], &args).run().exited(0).same_as(&plain);
        let stats = stats::read(&file);
        stats::nothing_lost(&stats).expect("every page came back");
        assert_eq!(stats["config"]["swap"][0]["model"], name);
        let count = |name: &str| stats["counters"][name].as_u64().expect("a number");
        // A read costs its tenth of a millisecond at least, and more than one in ten a turn of the disk or a part of it.
        let (requests, ns, waited) = (count("device_requests"), count("device_ns"), count("device_wait_ns"));
        assert!(count("pages_in_file") > 1000 && requests > 100, "{stats}");
        assert!(ns > requests * 200_000 && waited > requests * 100_000, "{stats}");
        assert!(stats["duration_ns"].as_u64() > Some(waited / 4), "{stats}");
    }
}

// What a process of the tree may do to another.

fn hostile(way: &str) -> Outcome {
    let dir = Tmp::new();
    let mark = dir.join("mark");
    let library = build::library("tests/programs/marker.c");
    let args = ["--ram", "32M", "--", &program("hostile"), way, &library.to_string_lossy()];
    let end = run(&[], &args).env("MARKER", &mark).dir(dir.path()).run();
    assert!(!end.errors().contains("panicked"), "{}", end.describe());
    assert!(marks(&mark).is_empty(), "a foreign library was loaded: {:?}", marks(&mark));
    end
}

#[test]
fn a_child_cannot_choose_the_library_that_its_parent_loads() {
    if !plain_mode() {
        all_is_well(hostile("preload"));
    }
}

#[test]
fn a_child_cannot_take_the_shared_memory_away() {
    if plain_mode() {
        return;
    }
    let end = all_is_well(hostile("truncate"));
    assert!(!end.errors().contains("truncated") && !end.errors().contains("grown"), "{}", end.describe());
}

#[test]
fn false_numbers_in_shared_memory_end_nothing() {
    if !plain_mode() {
        all_is_well(hostile("lengths"));
    }
}

#[test]
fn noise_in_shared_memory_ends_nothing() {
    if !plain_mode() {
        all_is_well(hostile("noise"));
    }
}

/// The words behind `who what`, one set of them.
fn told(text: &str, who: &str, what: &str) -> HashSet<String> {
    let start = format!("{who} {what} ");
    text.lines().filter_map(|l| l.strip_prefix(&start)).map(String::from).collect()
}

#[test]
fn a_child_cannot_read_what_its_parent_writes_after_the_fork() {
    if plain_mode() {
        return;
    }
    let end = run(&[], &["--ram", "32M", "--swap", "file", "--", &program("keys"), "read"]).run().exited(0);
    let text = end.text();
    let (ours, theirs) = (told(&text, "parent", "key"), told(&text, "child", "key"));
    assert!(!ours.is_empty(), "no key of the parent was found: {}", end.describe());
    assert!(ours.difference(&theirs).next().is_some(), "the child has every key of its parent: {}", end.describe());
    // What the child can write to is its own.
    let name = |line: &String| line.split(' ').next().unwrap_or_default().to_string();
    let of_parent: HashSet<String> = told(&text, "parent", "file").iter().map(name).collect();
    assert!(text.contains(" grew "), "nothing was written to a file: {}", end.describe());
    for line in told(&text, "child", "file") {
        let file = name(&line);
        let writable = line.ends_with(" W") && setup::is_root();
        assert!(
            !writable || !of_parent.contains(&file),
            "the child can write to its parent's file: {}",
            end.describe()
        );
    }
}

#[test]
fn a_child_cannot_overwrite_what_its_parent_wrote() {
    if plain_mode() || !setup::is_root() {
        return;
    }
    for swap in ["file", "compressed,file"] {
        all_is_well(run(&[], &["--ram", "32M", "--swap", swap, "--", &program("keys"), "overwrite"]).run());
    }
}

/// What a fork leaves to a child that does not get a processor is no room for its parent.
#[test]
fn a_child_that_has_not_run_yet_counts() {
    const LIMIT_BYTES: u64 = 96 * MIB;
    if plain_mode() {
        return;
    }
    let end = run(&[], &["--ram", "96M", "--", &program("late_child")]).run().exited(0);
    let text = end.text();
    let numbers: Vec<u64> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[most_kib, looks] = &numbers[..] else { panic!("{}", end.describe()) };
    // That much is allowed to three processes.
    let allowed_kib = (LIMIT_BYTES + LIMIT_BYTES / 20 + 3 * PROCESS_ALLOWANCE_BYTES) >> 10;
    assert!(looks > 0 && most_kib <= allowed_kib, "{most_kib} KiB of {allowed_kib}: {}", end.describe());
}

#[test]
fn a_fork_after_giving_up_rights() {
    if plain_mode() {
        return;
    }
    for source in ["move", "copy", "guard", "mprotect"] {
        let plain = Setup::new().plain(program("dropped")).run().succeeded();
        let setup = Setup::new().option("--fault-source", source);
        setup.managed(RAM_BYTES, program("dropped")).timeout_s(60).run().same_as(&plain).within(RAM_BYTES);
    }
}

#[test]
fn a_process_that_cannot_have_a_swap_file_says_so() {
    if plain_mode() || !setup::is_root() {
        return;
    }
    let dir = Tmp::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("ours");
    let args = ["--ram", "32M", "--swap", "compressed,file", "--swap-dir", &dir.path().to_string_lossy(), "--"];
    let end = all_is_well(run(&[], &[&args[..], &[&program("dropped")]].concat()).run());
    let lines = end.errors().lines().filter(|l| l.contains("cannot make a swap file")).count();
    assert_eq!(lines, 1, "{}", end.describe());
}

/// Pages that the kernel has merged come without write protection: a process ends what it has inherited, and may not begin it.
#[test]
fn equal_pages_are_not_merged() {
    if plain_mode() {
        return;
    }
    let ask = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True); merge = lambda *a: c.prctl(*a, 0, 0, 0)";
    let begin = format!("{ask}; merge(67, 1); os.execvp(sys.argv[1], sys.argv[1:])");
    let look = format!("{ask}; print(merge(68, 0), merge(67, 1), ctypes.get_errno(), merge(68, 0), merge(67, 0))");
    let before = [workloads::python(), "-c", &begin];
    let plain = Run::new(before[0]).args(&before[1..]).args([workloads::python(), "-c", &look]).run().exited(0);
    if plain.text() != "1 0 0 1 0\n" {
        // A kernel that merges nothing.
        assert_eq!(plain.text(), "-1 -1 22 -1 -1\n");
        return;
    }
    let end = run(&before, &["--ram", "64M", "--", workloads::python(), "-c", &look]).run().exited(0);
    assert_eq!(end.text(), "0 -1 22 0 0\n", "{}", end.describe());
}

#[test]
fn what_is_refused_says_so_once() {
    if plain_mode() {
        return;
    }
    let end = run(&[], &["--ram", "32M", "--", &program("refused")]).run().exited(0);
    let refused = "strict -1 22\nstrict -1 22\nfiles -1 22\ndispatch -1 22\ndispatch -1 22\ndispatch -1 22\n";
    assert_eq!(end.text(), format!("{refused}{refused}ok\n"), "{}", end.describe());
    for line in [
        "strict mode of seccomp is refused",
        "clone with CLONE_FILES and without CLONE_VM is refused",
        "Syscall User Dispatch is refused",
    ] {
        assert_eq!(end.errors().matches(line).count(), 1, "{line}: {}", end.describe());
    }
}

#[test]
fn no_address_is_known_before() {
    if plain_mode() {
        return;
    }
    // What can be written or executed beside managed memory lies somewhere else in each run.
    let maps = || {
        let end = run(&[], &["--ram", "32M", "--", "cat", "/proc/self/maps"]).run().exited(0);
        let text = end.text();
        let fixed: HashSet<String> = text
            .lines()
            .filter(|l| !l.contains("[vsyscall]"))
            .filter_map(|l| {
                let mut words = l.split_ascii_whitespace();
                let (range, rights) = (words.next()?, words.next()?);
                let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
                let managed = (0x2000_0000_0000..0x2c00_0000_0000).contains(&start);
                (!managed && (rights.contains('w') || rights.contains('x'))).then(|| format!("{start:x} {rights}"))
            })
            .collect();
        assert!(!fixed.is_empty());
        fixed
    };
    let (one, two) = (maps(), maps());
    let same: Vec<_> = one.intersection(&two).filter(|l| l.contains('w')).collect();
    assert!(same.is_empty(), "writable at the same address in two runs: {same:?}");
    let both: Vec<_> = one.iter().filter(|l| l.contains('w') && l.contains('x')).collect();
    assert!(both.is_empty(), "writable and executable: {both:?}");
}

#[test]
fn managed_memory_lies_elsewhere_in_each_run() {
    if plain_mode() {
        return;
    }
    // The lowest managed addresses that the program can use.
    let lowest = |before: &[&str], malloc: &str| {
        let args = ["--ram", "32M", "--malloc", malloc, "--", "cat", "/proc/self/maps"];
        let end = run(before, &args).run().exited(0);
        let start = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (range, rights) = (words.next()?, words.next()?);
            let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
            ((0x2000_0000_0000..0x2c00_0000_0000).contains(&start) && rights.starts_with("rw")).then_some(start)
        };
        end.text().lines().filter_map(start).min().unwrap_or_else(|| panic!("nothing is managed: {}", end.describe()))
    };
    for malloc in ["mimalloc", "keep"] {
        assert_ne!(lowest(&[], malloc), lowest(&[], malloc), "{malloc}");
        let fixed = ["setarch", "-R"];
        assert_eq!(lowest(&fixed, malloc), lowest(&fixed, malloc), "{malloc}, where addresses are to be fixed");
    }
}

#[test]
fn pages_on_their_way_out_are_in_no_core_dump() {
    if plain_mode() {
        return;
    }
    let end = run(&[], &["--ram", "32M", "--", "cat", "/proc/self/smaps"]).run().exited(0);
    let text = end.text();
    // The one mapping of 4 GiB: the batches.
    let after = text.split("Size:            4194304 kB").nth(1).expect("batches are mapped");
    let flags = after.lines().find(|l| l.starts_with("VmFlags:")).expect("each mapping has them");
    assert!(flags.split_ascii_whitespace().any(|f| f == "dd"), "{flags}");
}

/// Sanitizers set handlers, block signals and make threads by instructions of their own, and stop all threads to look for leaks.
#[test]
fn programs_built_with_sanitizers_end_as_plainly() {
    for sanitizer in ["leak", "address"] {
        let program = build::sanitized_program("tests/programs/leaks.c", sanitizer).to_string_lossy().into_owned();
        for (what, status) in [("none", 0), ("leak", 23)] {
            // With the same number for both sanitizers.
            let with = |run: Run| {
                let exit = format!("exitcode={status}");
                run.env("LSAN_OPTIONS", &exit).env("ASAN_OPTIONS", &exit).run().exited(status)
            };
            let plain = with(Run::new(&program).args([what]));
            let managed = with(run(&[], &["--ram", "64M", "--", &program, what]));
            assert_eq!(managed.text(), plain.text(), "{sanitizer} {what}: {}", managed.describe());
            let finds = |end: &Outcome| end.errors().contains("2048 byte(s) leaked in 2 allocation(s)");
            assert!(finds(&managed) == finds(&plain) && finds(&plain) == (what == "leak"), "{}", managed.describe());
        }
    }
}

/// What is tried before the start is another program: where the first one turns out to be one that cannot be managed, it ends before it begins.
#[test]
fn a_first_program_that_wants_our_addresses_does_not_begin() {
    if plain_mode() {
        return;
    }
    let program = build::sanitized_program("tests/programs/leaks.c", "thread").to_string_lossy().into_owned();
    for (options, status, last) in [
        (&["--ram", "64M"][..], 125, "--allow-unmanaged"),
        (&["--ram", "64M", "--quiet"], 125, "--allow-unmanaged"),
        (&["--ram", "64M", "--strict"], 125, "--strict"),
        (&["--ram", "64M", "--allow-unmanaged"], 0, "a process runs unmanaged"),
    ] {
        let options = [options, &["--", &program, "none"]].concat();
        let end = run(&[], &options).run().exited(status);
        assert_eq!(end.text().is_empty(), status != 0, "{}", end.describe());
        assert!(end.errors().lines().last().is_some_and(|line| line.contains(last)), "{}", end.describe());
    }
}

/// A child that nobody told the runtime of has none of its parent's managed memory: it must not read zeros there.
#[test]
fn a_fork_that_nobody_saw_gives_no_zeros() {
    if plain_mode() {
        return;
    }
    let path = program("unseen_fork");
    for source in ["move", "copy", "guard", "mprotect"] {
        for (what, status) in [("read", 125), ("exit", 7), ("exec", 8)] {
            let end = run(&[], &["--ram", "32M", "--fault-source", source, "--", &path, what]).run().exited(0);
            assert_eq!(end.text(), format!("{status} 0\n"), "{source} {what}: {}", end.describe());
            let told = end.errors().contains("forked by an instruction of its own");
            assert_eq!(told, what == "read", "{source} {what}: {}", end.describe());
        }
        // What it names in a call is not there.
        let end = run(&[], &["--ram", "32M", "--fault-source", source, "--", &path, "call"]).run().exited(0);
        assert_eq!(end.text(), "10 0\n", "{source}: {}", end.describe());
    }
}

/// The marked pages of a core dump of `tests/programs/dumps.c`, and how long the dump is. `None` where this machine keeps none in
/// the working directory.
fn dumped(directory: &Path) -> Option<(Vec<u64>, u64)> {
    let file = fs::read_dir(directory).ok()?.flatten().find(|e| e.file_name().to_string_lossy().starts_with("core"))?;
    let length = file.metadata().ok()?.len();
    let mut file = fs::File::open(file.path()).ok()?;
    let (mut page, mut pages) = ([0u8; 4096], Vec::new());
    let word = |page: &[u8], at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    while file.read_exact(&mut page).is_ok() {
        if word(&page, 0) == 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(3) {
            pages.push(word(&page, 8));
        }
    }
    pages.sort_unstable();
    Some((pages, length))
}

#[test]
fn core_dumps_have_what_is_resident_and_nothing_that_is_hidden() {
    let path = program("dumps");
    let plain_dir = Tmp::new();
    let plain = Run::new(&path).dir(plain_dir.path()).timeout_s(60).run();
    assert_eq!(plain.text(), "resident 2304\n", "{}", plain.describe());
    let Some((pages, _)) = dumped(plain_dir.path()) else {
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").expect("our own");
        let forbidden =
            limits.lines().any(|l| l.starts_with("Max core file size") && l.split_whitespace().nth(5) == Some("0"));
        assert!(pattern.trim() != "core" || forbidden, "no dump, though dumps are kept: {}", plain.describe());
        return;
    };
    assert_eq!(pages, (0..2304).collect::<Vec<_>>());
    for source in ["move", "copy", "guard", "mprotect"] {
        if plain_mode() {
            return;
        }
        let dir = Tmp::new();
        let end = run(&[], &["--ram", "64M", "--fault-source", source, "--", &path]).dir(dir.path()).run();
        let resident = end.text().trim().strip_prefix("resident ").and_then(|n| n.parse::<usize>().ok());
        let resident = resident.unwrap_or_else(|| panic!("{source}: {}", end.describe()));
        let (pages, length) = dumped(dir.path()).unwrap_or_else(|| panic!("{source}: no dump: {}", end.describe()));
        assert_eq!(pages.len(), resident, "{source}: {pages:?}");
        assert!((1700..2304).contains(&resident) && pages.is_sorted_by(|a, b| a < b), "{source}: {resident}");
        assert!(pages.iter().all(|page| *page < 2304), "{source}: hidden or unmapped pages: {pages:?}");
        assert!(length < 1 << 30, "{source}: a dump of {length} bytes");
    }
}

// The limit.

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

#[test]
fn unmanaged_memory_counts_while_little_is_managed() {
    if plain_mode() {
        return;
    }
    all_is_well(run(&[], &["--ram", "64M", "--", &program("heap"), "28", "60"]).supervised().run()).within(64 * MIB);
}

#[test]
fn processes_that_ended_count_no_longer() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let taken = |times: u32| {
        let file = dir.join(format!("stats-{times}"));
        let script = format!("i=0; while [ $i -lt {times} ]; do {} 20 || exit 1; i=$((i+1)); done", program("heap"));
        let args = ["--ram", "32M", "--stats", &file.to_string_lossy(), "--", "sh", "-c", &script];
        run(&[], &args).supervised().run().exited(0).within(RAM_BYTES);
        let stats = stats::read(&file);
        number(&stats, "/pages/taken")
    };
    let (one, twenty) = (taken(1), taken(20));
    // Each has room for all it needs, so hardly anything has to leave.
    assert!(twenty <= 20 * (one + 128), "{twenty} pages were taken from twenty processes, {one} from one");
}

/// What the kernel fills by itself counts before it does, and must not hide what nobody manages.
#[test]
fn what_was_hardly_touched_hides_no_other_memory() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    for way in ["sparse", "read"] {
        let file = dir.join(way).to_string_lossy().into_owned();
        let args =
            ["--ram", "64M", "--swap", "compressed,file", "--stats", &file, "--", &program("hides"), way, "20", "56"];
        all_is_well(run(&[], &args).supervised().run()).within(64 * MIB);
        let peak = number(&stats::read(Path::new(&file)), "/memory/tree_peak_bytes");
        assert!(peak <= 64 * MIB + 64 * MIB / 20, "{way}: {peak} bytes");
    }
}

/// Many that are too small to be looked after fill what was left to the kernel without a word, all at once.
#[test]
fn many_small_programs_keep_the_limit() {
    if plain_mode() {
        return;
    }
    all_is_well(run(&[], &["--ram", "64M", "--", &program("crowded"), "60", "70"]).run());
}

/// Nor does it end a process that needs what others only count.
#[test]
fn what_others_hardly_touched_is_room() {
    if plain_mode() {
        return;
    }
    let script =
        "for i in 1 2 3 4; do \"$0\" idle 64 & done; sleep 1; \"$0\" uses 40; end=$?; kill %1 %2 %3 %4; exit $end";
    let args = [
        "--ram",
        "80M",
        "--swap",
        "compressed:1M",
        "--when-full",
        "fail",
        "--",
        "bash",
        "-c",
        script,
        &program("hides"),
    ];
    all_is_well(run(&[], &args).run());
}

#[test]
fn a_run_inside_a_run_has_its_own_limit() {
    if plain_mode() {
        return;
    }
    let outswap = setup::outswap().to_string_lossy().into_owned();
    for inner in ["16M", "96M"] {
        let args = ["--ram", "64M", "--", &outswap, "run", "--ram", inner, "--", &program("heap"), "80"];
        let least = if inner == "16M" { 16 } else { 64 };
        all_is_well(run(&[], &args).supervised().run()).within(least * MIB);
    }
    // Its status and its words are the program's.
    let args = ["--ram", "64M", "--", &outswap, "run", "--ram", "16M", "--", "sh", "-c", "echo inner; exit 7"];
    assert_eq!(run(&[], &args).run().exited(7).text(), "inner\n");
}

#[test]
fn room_is_given_back_however_many_share() {
    if plain_mode() {
        return;
    }
    let args = ["--resident", "8M", "--swap", "file", "--", &program("sharers"), "130"];
    let end = run(&[], &args).run().exited(0);
    let rooms: Vec<u64> = end.text().lines().filter_map(|l| l.parse().ok()).collect();
    assert!(rooms.len() == 5 && end.text().ends_with("ok\n"), "{}", end.describe());
    // Four more times 24 MiB were written over the same memory.
    assert!(rooms[4] < rooms[0] + 24, "room in the files, in MiB: {rooms:?}");
}
