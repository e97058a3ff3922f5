//! Programs that cannot be managed and are started by ones that are: what is said of them, and `--strict`.
use outswap_control::VERSION;
use outswap_e2e::{MIB, Outcome, Run, Setup, Tmp, build, plain_mode, setup, workloads};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

const PRELOAD: &str = "liboutswap_preload.so";
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

fn run(options: &[&str], command: &[&str]) -> Outcome {
    Run::new(setup::outswap()).args(["run", "--ram", "32M"]).args(options).arg("--").args(command).supervised().run()
}

/// The lines of ours.
fn told(end: &Outcome) -> Vec<String> {
    end.errors().lines().filter_map(|line| line.strip_prefix("outswap: ")).map(str::to_owned).collect()
}

fn static_program() -> String {
    build::static_program("tests/programs/unmanaged.c").to_string_lossy().into_owned()
}

/// Makes a file that may be executed; its path.
fn executable(dir: &Tmp, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, content).expect("the directory is ours");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("the file is ours");
    path.to_string_lossy().into_owned()
}

/// The head of an ELF program, with one program header of a kind and what that points to.
fn elf(class: u8, machine: u8, kind: u8, content: &[u8]) -> Vec<u8> {
    const CONTENT_AT: u64 = 120;
    let mut head = vec![0u8; CONTENT_AT as usize];
    head[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    (head[16], head[18], head[20]) = (2, machine, 1);
    (head[32], head[52], head[54], head[56]) = (64, 64, 56, 1);
    head[64] = kind;
    head[72..80].copy_from_slice(&CONTENT_AT.to_le_bytes());
    head[96..104].copy_from_slice(&(content.len() as u64).to_le_bytes());
    [&head, content].concat()
}

#[test]
fn an_entrypoint_that_ends_in_a_static_program_does_not_run_it() {
    if plain_mode() {
        return;
    }
    let (dir, program) = (Tmp::new(), static_program());
    let entrypoint = executable(&dir, "entrypoint", format!("#!/bin/sh\nexec {program} bss 1 1\n").as_bytes());
    let end = run(&[], &[&entrypoint]).exited(0);
    assert_eq!(end.text(), "ok\n");
    assert_eq!(told(&end), [format!("warning: {program} is statically linked: it runs without Outswap")]);
    let refused = format!("error: {program} is statically linked: it was not executed (--strict)");
    for options in [&["--strict"][..], &["--strict", "--quiet"]] {
        let end = run(options, &[&entrypoint]).exited(126);
        assert!(end.stdout.is_empty(), "{}", end.describe());
        assert_eq!(told(&end), [refused.as_str()], "{}", end.describe());
    }
    let by_variable =
        Run::new(setup::outswap()).args(["run", "--ram", "32M", "--", &entrypoint]).env("OUTSWAP_STRICT", "1");
    assert_eq!(told(&by_variable.run().exited(126)), [refused.as_str()]);

    // Who starts it in another way gets the error, and goes on.
    let script = format!(
        "import subprocess\ntry:\n    subprocess.run(['{program}', 'bss', '1', '1'])\nexcept PermissionError as e:\n    print(e.errno)"
    );
    let end = run(&["--strict"], &[workloads::python(), "-c", &script]).exited(0);
    assert_eq!((end.text(), told(&end)), ("13\n".to_owned(), vec![refused.clone()]), "{}", end.describe());
    // As a script's interpreter it is not executed either.
    let script = executable(&dir, "script", format!("#!{program} bss\n").as_bytes());
    let end = run(&["--strict"], &["sh", "-c", &format!("{script}; echo $?")]).exited(0);
    assert_eq!((end.text(), told(&end)), ("126\n".to_owned(), vec![refused]), "{}", end.describe());
    // The first program is judged before it is started.
    let end = run(&["--strict"], &[&program]).exited(125);
    assert!(end.stdout.is_empty(), "{}", end.describe());
}

#[test]
fn a_first_program_that_may_not_be_read_is_not_started_either() {
    if plain_mode() || !setup::is_root() {
        return;
    }
    let dir = Tmp::new();
    let program = dir.join("program");
    setup::copy_program(&build::static_program("tests/programs/unmanaged.c"), &program);
    fs::set_permissions(&program, Permissions::from_mode(0o711)).expect("ours");
    let program = program.to_string_lossy().into_owned();
    let script = executable(&dir, "script", format!("#!{program} bss\n").as_bytes());
    for first in [&program, &script] {
        let end = Setup::nobody().option("--strict", "--quiet").managed(32 * MIB, first).arg("bss").run().exited(125);
        assert!(end.stdout.is_empty(), "{}", end.describe());
        assert!(end.errors().contains("may be executed and not read"), "{}", end.describe());
    }
}

#[test]
fn no_way_to_start_a_static_program_leads_past_it() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let [starter, program] = [build::program, build::static_program]
        .map(|build| build("tests/programs/starts.c").to_string_lossy().into_owned());
    // As many scripts, one the interpreter of the next, as the kernel follows.
    let scripts = (0..5).fold(program.clone(), |interpreter, i| {
        executable(&dir, &format!("script{i}"), format!("#!{interpreter}\n").as_bytes())
    });
    let ways = [("path", &program), ("read", &program), ("full", &program), ("path", &scripts), ("script", &scripts)];
    for (way, what) in ways {
        let end = run(&[], &[&starter, way, what]).exited(0);
        assert_eq!(end.text().lines().last(), Some("ok"), "{way}: {}", end.describe());
        assert!(told(&end).iter().any(|line| line.contains("runs without Outswap")), "{way}: {}", end.describe());
        let end = run(&["--strict"], &[&starter, way, what]).exited(1);
        assert!(end.stdout.is_empty(), "{way}: {}", end.describe());
        assert!(told(&end).iter().any(|line| line.contains("not executed")), "{way}: {}", end.describe());
    }
}

#[test]
fn each_kind_of_program_has_its_cause() {
    if plain_mode() {
        return;
    }
    const PT_LOAD: u8 = 1;
    const PT_INTERP: u8 = 3;
    let dir = Tmp::new();
    for (name, content, cause) in [
        ("narrow", elf(1, 3, PT_LOAD, b""), "is a 32-bit program"),
        ("other", elf(2, 183, PT_INTERP, b"/lib/ld.so\0"), "is built for another processor"),
        ("musl", elf(2, 62, PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0"), "is linked with musl"),
        ("static", elf(2, 62, PT_LOAD, b""), "is statically linked"),
    ] {
        let path = executable(&dir, name, &content);
        let end = run(&["--strict"], &["sh", "-c", &format!("{path}; echo $?")]).exited(0);
        assert_eq!(end.text(), "126\n", "{}", end.describe());
        let cause = format!("error: {path} {cause}: it was not executed (--strict)");
        assert_eq!(told(&end), [cause], "{}", end.describe());
    }
}

/// A dynamic linker that takes our libraries for something to load, and ends where it cannot, is not told of them.
#[test]
fn what_is_linked_with_musl_runs_without_us() {
    if plain_mode() {
        return;
    }
    const LINKER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    const MUSL: &[u8] = b"./ld-musl-x86_64.so.1\0\0\0\0\0\0\0";
    let dir = Tmp::new();
    let mut content = fs::read("/usr/bin/env").expect("it is everywhere");
    let at = content.windows(LINKER.len()).position(|part| part == LINKER).expect("it is dynamically linked");
    content[at..at + MUSL.len()].copy_from_slice(MUSL);
    executable(&dir, "env", &content);
    symlink("/lib64/ld-linux-x86-64.so.2", dir.join("ld-musl-x86_64.so.1")).expect("the directory is ours");
    let outswap = setup::outswap();
    let args = ["run", "--ram", "64M", "--", "sh", "-c", "./env; exit $?"];
    let end = Run::new(&outswap).args(args).dir(dir.path()).timeout_s(60).run().exited(0);
    assert!(
        told(&end).iter().any(|line| line.contains("is linked with musl: it runs without Outswap")),
        "{}",
        end.describe()
    );
    assert!(end.text().contains("PATH=") && !end.text().contains("LD_PRELOAD"), "{}", end.describe());
}

#[test]
fn what_can_be_managed_runs_as_ever() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    // Without a first line that names its interpreter, the shell itself runs it, once the system has refused to.
    let bare = executable(&dir, "bare", b"echo bare\n");
    executable(&dir, "text", b"x");
    fs::set_permissions(dir.join("text"), Permissions::from_mode(0o644)).expect("the file is ours");
    let script =
        format!("{bare}; printf '2\\n1\\n' | sort; /no/such/program; echo $?; {}/text; echo $?", dir.path().display());
    let plain = Run::new("sh").args(["-c", &script]).run();
    assert_eq!(plain.text(), "bare\n1\n2\n127\n126\n");
    let end = run(&["--strict"], &["sh", "-c", &script]).same_as(&plain);
    assert!(told(&end).is_empty(), "{}", end.describe());
}

#[test]
fn what_contradicts_it_is_told_of() {
    if plain_mode() {
        return;
    }
    for other in ["--allow-unmanaged", "--no-follow"] {
        let end = run(&["--strict", other], &["true"]).exited(125);
        assert_eq!(told(&end).len(), 1, "{}", end.describe());
        assert!(end.errors().contains(other), "{}", end.describe());
    }
}

/// The binary and its library in a directory of their own, where a test may replace them.
fn with_own_library(dir: &Tmp, setup: Setup) -> Setup {
    for name in ["outswap", PRELOAD] {
        setup::copy_program(&setup::outswap().with_file_name(name), &dir.join(name));
        if setup::is_root() {
            std::os::unix::fs::chown(dir.join(name), Some(65534), Some(65534)).expect("root may");
        }
    }
    setup.with_binary(dir.join("outswap"))
}

/// The library as it would be if it were of another version.
fn of_another_version() -> Vec<u8> {
    let mut library = fs::read(setup::outswap().with_file_name(PRELOAD)).expect("it was built");
    let version = VERSION.to_le_bytes();
    let places: Vec<usize> = library.windows(4).enumerate().filter(|(_, at)| *at == version).map(|(i, _)| i).collect();
    assert!(!places.is_empty(), "it knows its version");
    places.into_iter().for_each(|at| library[at] ^= 1);
    library
}

/// Runs a script in which `$1` is a file, `$2` the library, and `$3` a program.
fn run_with(setup: &Setup, dir: &Tmp, options: &[&str], script: &str) -> Outcome {
    let mut setup = setup.clone();
    setup.options.extend(options.iter().map(Into::into));
    let run = setup.managed(32 * MIB, "sh").args(["-c", script, "sh"]).arg(dir.join("new")).arg(dir.join(PRELOAD));
    run.arg(static_program()).run()
}

#[test]
fn a_library_that_is_replaced_while_a_run_goes_on_is_not_loaded() {
    if plain_mode() {
        return;
    }
    let whole = fs::read(setup::outswap().with_file_name(PRELOAD)).expect("it was built");
    let script = "cp \"$1\" \"$2.n\" && mv \"$2.n\" \"$2\"; /bin/echo child; echo $?";
    let longer = [&whole[..], b"x"].concat();
    let other = of_another_version();
    for replaced in [&other[..], &longer, &whole[..300_000], &whole[..100], b""] {
        for is_strict in [false, true] {
            let dir = Tmp::new();
            let setup = with_own_library(&dir, Setup::new());
            fs::write(dir.join("new"), replaced).expect("the directory is ours");
            let end = run_with(&setup, &dir, if is_strict { &["--strict"] } else { &[] }, script).exited(0);
            assert_eq!(end.text(), if is_strict { "126\n" } else { "child\n0\n" }, "{}", end.describe());
            let (head, tail) = match is_strict {
                true => ("error", "it was not executed (--strict)"),
                false => ("warning", "it runs without Outswap"),
            };
            let why = "cannot load Outswap's libraries, which were replaced after the run began";
            assert_eq!(told(&end), [format!("{head}: /bin/echo {why}: {tail}")], "{}", end.describe());
            assert!(is_strict || end.errors().lines().count() == 1, "the linker says nothing: {}", end.describe());
        }
    }
    // Installed once more, it is the same.
    let dir = Tmp::new();
    let setup = with_own_library(&dir, Setup::new());
    fs::write(dir.join("new"), &whole).expect("the directory is ours");
    let script = "cp \"$1\" \"$2.n\" && mv \"$2.n\" \"$2\"; grep -q liboutswap /proc/self/maps; echo $?";
    let end = run_with(&setup, &dir, &["--strict"], script).exited(0);
    assert_eq!((end.text().as_str(), end.errors().as_str()), ("0\n", ""), "{}", end.describe());
}

#[test]
fn a_library_that_may_not_be_read_any_more_is_not_asked_for() {
    if plain_mode() {
        return;
    }
    let script = "chmod 0 \"$2\"; /bin/echo child; echo $?";
    let why = "/bin/echo cannot load Outswap's libraries, which may not be read";
    for (options, line, text) in [
        (&[][..], format!("warning: {why}: it runs without Outswap"), "child\n0\n"),
        (&["--strict"], format!("error: {why}: it was not executed (--strict)"), "126\n"),
    ] {
        let dir = Tmp::new();
        let setup = with_own_library(&dir, Setup::nobody());
        let end = run_with(&setup, &dir, options, script).exited(0);
        assert_eq!((end.text().as_str(), told(&end)), (text, vec![line]), "{}", end.describe());
        assert!(!end.errors().contains("ld.so"), "{}", end.describe());
    }
}

#[test]
fn a_library_of_another_version_says_so() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let setup = with_own_library(&dir, Setup::new());
    fs::write(dir.join("new"), of_another_version()).expect("the directory is ours");
    // Between the runtime and the program there is one that looks at no library. Where standard error leads nowhere, nothing happens.
    let start = "\"$3\" heap 1 1 /bin/echo child";
    let script = format!("cp \"$1\" \"$2.n\" && mv \"$2.n\" \"$2\"; {start}; {start} 2>&-; {start} 2>/dev/full");
    let end = run_with(&setup, &dir, &[], &script).exited(0);
    assert_eq!(end.text(), "child\nok\n".repeat(3), "{}", end.describe());
    let version =
        "warning: the library is of another version than the outswap run that this process is in: it runs unmanaged";
    let (versions, others): (Vec<_>, Vec<_>) = told(&end).into_iter().partition(|line| line == version);
    assert_eq!(versions.len(), 1, "{}", end.describe());
    let is_static = format!("warning: {} is statically linked: it runs without Outswap", static_program());
    assert!(others.iter().all(|line| *line == is_static), "{}", end.describe());
    assert_eq!(end.errors().lines().count(), 1 + others.len(), "{}", end.describe());
}

#[test]
fn a_program_that_its_loader_runs_is_judged_itself() {
    if plain_mode() {
        return;
    }
    let program = static_program();
    for options in [&[][..], &["--strict"]] {
        let end = run(options, &[LOADER, "--argv0", "x", &program, "bss", "1", "1"]).exited(125);
        assert!(end.stdout.is_empty() && told(&end).len() == 1, "{}", end.describe());
        assert!(end.errors().starts_with(&format!("outswap: {program} is statically linked")), "{}", end.describe());
    }
    let script = format!("{LOADER} --argv0 x {program} bss 1 1; echo $?; {LOADER} /bin/echo fine");
    let end = run(&[], &["sh", "-c", &script]).exited(0);
    assert_eq!(end.text(), "ok\n0\nfine\n", "{}", end.describe());
    assert_eq!(told(&end), [format!("warning: {program} is statically linked: it runs without Outswap")]);
    let end = run(&["--strict"], &["sh", "-c", &script]).exited(0);
    assert_eq!(end.text(), "126\nfine\n", "{}", end.describe());
    assert_eq!(told(&end), [format!("error: {program} is statically linked: it was not executed (--strict)")]);
    let end = run(&["--strict"], &[LOADER, "/bin/sh", "-c", "grep -c liboutswap_preload /proc/$$/maps >/dev/null"]);
    assert!(end.exited(0).stderr.is_empty(), "managed");
}
