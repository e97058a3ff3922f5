//! Without any right: as user nobody, with no new privileges, with each fault source, and where userfaultfd and
//! io_uring are refused as they are in a container. Some programs of `tests/calls` as nobody, and those where sources differ; these for
//! other ways, too, but for three that are the same as another but for a name or an error. All of them all ways with `OUTSWAP_E2E_FULL=1`.
use libtest_mimic::{Arguments, Failed, Trial};
use outswap_e2e::{MIB, Setup, Tmp, calls, setup, stats, workloads};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Programs whose way through the runtime depends on the fault source: data both ways, protection, fork, signals,
/// threads.
const REPRESENTATIVE: &[&str] = &[
    "rw.c",
    "vec.c",
    "sendmsg.c",
    "exec.c",
    "wait.c",
    "futex.c",
    "mmap.c",
    "munmap.c",
    "mremap.c",
    "mprotect.c",
    "madvise.c",
    "mlock.c",
    "brk.c",
    "signals.c",
    "fork_tree.c",
    "fork_threads.c",
    "fork_exec.c",
    "lifecycle.c",
    "protect_threads.c",
    "threads.c",
    "coroutine.c",
    "bigio.c",
    "process_vm_busy.c",
    "process_vm_first.c",
    "iouring.c",
    "own_closes.c",
    "code_kept.c",
];

/// Programs that make the calls which the filter of an old container refuses, and so differ plainly; and those that name memory of the
/// kernel's that they must not use, which is not found wrong there (docs/limits.md).
const NOT_IN_OLD: &[&str] = &[
    "altstack_rules.c",
    "by_thread.c",
    "long_vectors.c",
    "mincore.c",
    "process_vm.c",
    "process_vm_other.c",
    "process_vm_soon.c",
    "process_vm_busy.c",
    "process_vm_first.c",
    "sigcalls.c",
    "untouched.c",
];

/// Python objects, some 60 MiB of them, in half of that. `programs.rs` has them in a quarter.
fn python_objects(setup: &Setup) {
    workloads::python_objects(setup, 60_000, 2);
}

/// A name, and the setup it stands for.
type Way = (&'static str, fn() -> Setup);

fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        catch_unwind(AssertUnwindSafe(test)).map_err(|payload| {
            let text = payload.downcast::<String>().map(|text| *text);
            Failed::from(text.unwrap_or_else(|p| p.downcast::<&str>().map_or("panicked".into(), |t| t.to_string())))
        })
    })
}

fn is_really_nobody() {
    let script = "id -u; grep -E '^(CapEff|NoNewPrivs|CapBnd)' /proc/self/status";
    let plain = Setup::nobody().plain("sh").args(["-c", script]).run().succeeded();
    let text = plain.text();
    if setup::is_root() {
        assert!(text.starts_with("65534\n") && text.contains("CapBnd:\t0000000000000000"), "{text}");
    }
    assert!(text.contains("CapEff:\t0000000000000000") && text.contains("NoNewPrivs:\t1"), "{text}");
    Setup::nobody().managed(32 * MIB, "sh").args(["-c", script]).run().same_as(&plain);
}

/// Calls that work where there is no filter; the second reads nothing of the process itself.
const USERFAULTFD: &str = "323,1";
const PROCESS_VM_READV: &str = "310,os.getpid(),0,0,0,0,0";

/// The filter that stands for a container's must be there, or its trials would show nothing.
fn is_really_denied(errno: &str, number: i32, call: &str) {
    let script = format!(
        "import ctypes,os\nl=ctypes.CDLL(None,use_errno=True)\nprint(l.syscall({call}),ctypes.get_errno()=={number})"
    );
    let plain = Setup::denied(errno).plain(workloads::python()).args(["-c", &script]).run().succeeded();
    assert_eq!(plain.text(), "-1 True\n");
}

/// Where userfaultfd is refused, whatever the error, the source is one of those that also run by their names.
fn another_source_is_chosen(errno: &str) {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let setup = Setup::denied(errno).option("--stats", &file.to_string_lossy());
    setup.managed(32 * MIB, "true").run().succeeded();
    let stats = stats::read(&file);
    let sources = stats["fault_sources"].as_array().expect("a list");
    let are_left = sources.iter().all(|source| matches!(source.as_str(), Some("guard" | "mprotect")));
    assert!(are_left && !sources.is_empty(), "{stats:#}");
}

/// The filter that lets nobody make code of what was written must be there, too.
fn no_code_is_made() {
    let script =
        "import mmap\nm=mmap.mmap(-1,4096,prot=3)\ntry: mmap.mmap(-1,4096,prot=7)\nexcept OSError as e: print(e.errno)";
    let plain = Setup::without_code().plain(workloads::python()).args(["-c", script]).run().succeeded();
    assert_eq!(plain.text(), "1\n");
}

/// Touches memory when no more mappings can be made, which this fault source needs.
const NO_MAPPINGS: &str = "untrap_refused.c";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let full = outswap_e2e::is_full();
    let ways: &[Way] = &[
        ("nobody", Setup::nobody),
        ("move", || Setup::nobody().option("--fault-source", "move")),
        ("copy", || Setup::nobody().option("--fault-source", "copy")),
        ("guard", || Setup::nobody().option("--fault-source", "guard")),
        ("mprotect", || Setup::nobody().option("--fault-source", "mprotect")),
        ("eperm", || Setup::denied("EPERM")),
        ("enosys", || Setup::denied("ENOSYS")),
        ("old", || Setup::denied("OLD")),
    ];
    let mut trials = vec![
        trial("nobody::is_really_nobody".into(), is_really_nobody),
        trial("eperm::is_really_denied".into(), || is_really_denied("EPERM", 1, USERFAULTFD)),
        trial("enosys::is_really_denied".into(), || is_really_denied("ENOSYS", 38, USERFAULTFD)),
        trial("old::is_really_denied".into(), || is_really_denied("OLD", 1, USERFAULTFD)),
        trial("old::is_really_old".into(), || is_really_denied("OLD", 1, PROCESS_VM_READV)),
        trial("eperm::another_source_is_chosen".into(), || another_source_is_chosen("EPERM")),
        trial("enosys::another_source_is_chosen".into(), || another_source_is_chosen("ENOSYS")),
        trial("no_code::is_really_denied".into(), no_code_is_made),
        trial("no_code::python_objects".into(), || python_objects(&Setup::without_code())),
    ];
    // As root all of them run, in `calls.rs`.
    let sampled = calls::sample(calls::programs(), 3);
    for &(way, make) in ways {
        for program in calls::programs() {
            if way == "old" && NOT_IN_OLD.contains(&program.as_str()) || way == "mprotect" && program == NO_MAPPINGS {
                continue;
            }
            // The userfaultfd sources are like that which all programs run with as root, and `old` is like the others.
            let is_again = !matches!(way, "guard" | "mprotect") && !calls::runs_again(&program);
            // What nobody gets without asking is `move`; where a filter refuses that, with one error or the other, it is `guard`.
            let is_same = matches!(way, "move" | "eperm" | "enosys");
            let is_chosen = way == "nobody" && sampled.contains(&program) || REPRESENTATIVE.contains(&program.as_str());
            if full || is_chosen && !is_again && !is_same {
                let name = format!("{way}::{}", calls::stem(&program));
                trials.push(trial(name, move || calls::compare(&make(), &program)));
            }
        }
        if full || matches!(way, "copy" | "guard" | "mprotect") {
            trials.push(trial(format!("{way}::python_objects"), move || python_objects(&make())));
        }
        if way == "nobody" || full {
            trials.push(trial(format!("{way}::redis_server"), move || workloads::redis(&make())));
        }
        if full {
            trials.push(trial(format!("{way}::python_multiprocessing"), move || {
                workloads::python_program(&make(), "processes.py");
            }));
            trials.push(trial(format!("{way}::python_numpy"), move || workloads::python_program(&make(), "arrays.py")));
            trials.push(trial(format!("{way}::memcached"), move || workloads::memcached(&make())));
            trials.push(trial(format!("{way}::gnu_sort"), move || workloads::sort(&make())));
            trials.push(trial(format!("{way}::sqlite"), move || workloads::sqlite(&make())));
            trials.push(trial(format!("{way}::gcc"), move || workloads::gcc(&make())));
            trials.push(trial(format!("{way}::java"), move || workloads::java(&make())));
            trials.push(trial(format!("{way}::node"), move || workloads::node(&make())));
            trials.push(trial(format!("{way}::stress_ng"), move || workloads::stress_ng(&make())));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
