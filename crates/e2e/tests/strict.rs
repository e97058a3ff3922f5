//! Programs that cannot be managed and are started by ones that are: what is said of them, and `--strict`.
use outswap_e2e::{Outcome, Run, Tmp, build, plain_mode, setup, workloads};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

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
