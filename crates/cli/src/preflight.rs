//! Looks at the program before it starts: is it there, can it be executed, can it be managed.
use crate::elf::{self, Elf};
use crate::{EXIT_CANNOT_EXECUTE, EXIT_NOT_FOUND, Failure};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that the kernel follows.
const MAX_INTERPRETERS: usize = 4;

/// A program that can be executed.
#[derive(Debug)]
pub struct Program {
    /// The file to execute.
    pub path: PathBuf,
    /// Neither ELF nor a `#!` script, but text: the kernel may refuse it, and then a shell runs it, as `execvp` does.
    pub maybe_shell: bool,
    /// Why it cannot be managed, and what to do about it; `None` where it can.
    pub refusal: Option<String>,
    /// That nobody can say whether it can be managed, since it may be executed and not read.
    pub unreadable: Option<String>,
    /// What its user should know of it, whether it can be managed or not.
    pub remark: Option<String>,
}

/// Finds and examines the program that a command names. `search` is the value of `PATH`.
pub fn examine(command: &[OsString], search: Option<&OsStr>) -> Result<Program, Failure> {
    let path = find(command.first().map_or(OsStr::new(""), OsString::as_os_str), search)?;
    let mut program = Program { path: path.clone(), maybe_shell: false, refusal: None, unreadable: None, remark: None };
    let mut file_path = path;
    for depth in 0.. {
        let file = match File::open(&file_path) {
            Ok(file) => file,
            // A file may be executable and not readable: nothing to examine then.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                let name = file_path.display();
                program.unreadable =
                    Some(format!("{name} may be executed and not read, so nobody knows whether it can be managed"));
                return Ok(program);
            }
            Err(e) => return Err(cannot_execute(&file_path, &e.to_string())),
        };
        let meta = file.metadata().map_err(|e| cannot_execute(&file_path, &e.to_string()))?;
        let subject = file_path.display();
        match elf::read(&file) {
            Ok(Some(elf)) => {
                program.refusal = privileges(&file_path, &meta)
                    .or_else(|| kind(&elf, &file_path))
                    .map(|why| format!("{subject} {why}"));
                if depth == 0 && elf.loader.is_none() && is_loader(&file_path) {
                    program.refusal = program.refusal.or_else(|| loaded(command));
                }
                return Ok(program);
            }
            Ok(None) => {}
            Err(e) if e.kind() == ErrorKind::InvalidData => {
                return Err(cannot_execute(&file_path, &format!("not a whole ELF file: {e}")));
            }
            Err(e) => return Err(cannot_execute(&file_path, &e.to_string())),
        }
        let mut head = [0u8; 256];
        let have = file.read_at(&mut head, 0).map_err(|e| cannot_execute(&file_path, &e.to_string()))?;
        let Some(interpreter) = interpreter(&head[..have]) else {
            program.maybe_shell = depth == 0 && !first_line(&head[..have]).contains(&0);
            return Ok(program);
        };
        if depth == MAX_INTERPRETERS {
            return Err(cannot_execute(&program.path, "too many interpreters of interpreters"));
        }
        let returned = first_line(&head[..have]).ends_with(b"\r").then(|| {
            format!(
                "{subject}: its first line ends in a carriage return, as Windows ends lines, and the system takes that \
                 for a part of the line: remove it (sed -i 's/\\r$//' FILE)"
            )
        });
        if interpreter.as_os_str().as_bytes().ends_with(b"\r") && executable(&interpreter).is_err() {
            return Err(Failure { status: EXIT_NOT_FOUND, text: returned.unwrap_or_default() });
        }
        program.remark = program.remark.or(returned);
        executable(&interpreter).map_err(|e| {
            let (status, why) = if e == ErrorKind::NotFound {
                (EXIT_NOT_FOUND, "is not there")
            } else {
                (EXIT_CANNOT_EXECUTE, "cannot be executed")
            };
            Failure { status, text: format!("{subject}: its interpreter {} {why}", interpreter.display()) }
        })?;
        file_path = interpreter;
    }
    unreachable!("the loop returns at the latest at MAX_INTERPRETERS")
}

fn cannot_execute(path: &Path, why: &str) -> Failure {
    Failure { status: EXIT_CANNOT_EXECUTE, text: format!("cannot execute {}: {why}", path.display()) }
}

/// Resolves a name through `PATH`, as `execvp` and the shells do.
fn find(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let not_found = || Failure { status: EXIT_NOT_FOUND, text: format!("{}: not found", Path::new(name).display()) };
    if name.is_empty() {
        return Err(not_found());
    }
    let denied = |path: &Path| {
        let why = if path.is_dir() { "it is a directory" } else { "permission denied" };
        cannot_execute(path, why)
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(ErrorKind::NotFound) => Err(not_found()),
            Err(_) => Err(denied(&path)),
        };
    }
    let mut refused = None;
    for directory in search.unwrap_or(OsStr::new("/bin:/usr/bin")).as_bytes().split(|&b| b == b':') {
        let path = Path::new(OsStr::from_bytes(if directory.is_empty() { b"." } else { directory })).join(name);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(ErrorKind::NotFound) => {}
            // A directory that may not be searched says nothing about the file; shells pass over it, too.
            Err(_) if std::fs::metadata(&path).is_err() => {}
            Err(_) => refused = refused.or(Some(path)),
        }
    }
    Err(refused.map_or_else(not_found, |path| denied(&path)))
}

/// Whether a path is a regular file this process may execute.
fn executable(path: &Path) -> Result<(), ErrorKind> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::NotFound,
    })?;
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| ErrorKind::NotFound)?;
    // SAFETY: the path is NUL-terminated and lives through the call.
    let allowed = unsafe { libc::faccessat(libc::AT_FDCWD, c_path.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0;
    if meta.is_file() && allowed { Ok(()) } else { Err(ErrorKind::PermissionDenied) }
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|&b| b == b'\n').next().unwrap_or_default()
}

/// The interpreter a script names.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = first_line(head).strip_prefix(b"#!")?;
    let word = line.split(|b| b" \t".contains(b)).find(|w| !w.is_empty())?;
    Some(OsString::from_vec(word.to_vec()).into())
}

const STATIC: &str = "is statically linked, so no library can be loaded into it: use a dynamically linked build";

/// Whether a path leads to the C library's loader.
fn is_loader(path: &Path) -> bool {
    let name = path.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    name.is_some_and(|n| n.starts_with("ld-linux-") || n.starts_with("ld-2."))
}

/// Why the program cannot be managed that a command of the loader's is to load.
fn loaded(command: &[OsString]) -> Option<String> {
    let path = Path::new(program_of_loader(command)?);
    let elf = elf::read(&File::open(path).ok()?).ok()??;
    let needs_nothing = !(elf.dynamic && elf.needs_library);
    let why = match elf.loader {
        None if !elf.native => return None,
        None if needs_nothing && !is_loader(path) => STATIC.into(),
        None => return None,
        Some(_) => kind(&elf, path)?,
    };
    Some(format!("{} {why}", path.display()))
}

/// Of a command of the loader's, the path of the program that it is to run. `None` where it runs none, or searches for one among the libraries.
fn program_of_loader(command: &[OsString]) -> Option<&OsStr> {
    const WITH_VALUE: [&str; 7] = [
        "--library-path",
        "--preload",
        "--audit",
        "--argv0",
        "--inhibit-rpath",
        "--glibc-hwcaps-prepend",
        "--glibc-hwcaps-mask",
    ];
    let mut words = command.iter().skip(1).map(OsString::as_os_str);
    let program = loop {
        let word = words.next()?;
        match word {
            word if word == "--" => break words.next()?,
            word if word == "--inhibit-cache" => {}
            word if WITH_VALUE.iter().any(|option| word == *option) => _ = words.next()?,
            // It lists or verifies, or knows no such option.
            word if word.as_bytes().starts_with(b"--") => return None,
            word => break word,
        }
    };
    program.as_bytes().contains(&b'/').then_some(program)
}

/// Why the kind of program cannot be managed.
fn kind(elf: &Elf, path: &Path) -> Option<String> {
    if !elf.native {
        return Some(match (elf.machine, elf.wide) {
            (3, _) | (elf::X86_64, false) => {
                "is a 32-bit program, and Outswap manages 64-bit ones: use a 64-bit build".into()
            }
            (machine, _) => {
                format!("is built for another processor (ELF machine {machine}), not for x86-64")
            }
        });
    }
    // One that uses cgo asks the C library for memory.
    if elf.go && !(elf.loader.is_some() && elf.needs_library) {
        return Some(
            "is a Go program without cgo, whose memory comes past any library: build it with cgo \
             (CGO_ENABLED=1, and a package that uses it, as net does), or use GOMEMLIMIT"
                .into(),
        );
    }
    let Some(loader) = &elf.loader else {
        // The loader itself has no loader, and obeys LD_PRELOAD all the same.
        return (!is_loader(path)).then(|| STATIC.into());
    };
    let name = loader.rsplit('/').next().unwrap_or_default();
    if name.starts_with("ld-musl") {
        return Some("is linked with musl, and Outswap needs glibc: use a build for glibc".into());
    }
    if !elf.needs_library {
        return Some("uses no C library, so no memory of its comes through one: it has to be left alone".into());
    }
    if name.starts_with("linker") {
        return Some("is linked with Android's libc, and Outswap needs glibc: use a build for glibc".into());
    }
    None
}

/// Why the kernel would start the program with privileges of its own, and so ignore `LD_PRELOAD`.
fn privileges(path: &Path, meta: &Metadata) -> Option<String> {
    // SAFETY: these calls take no pointers and cannot fail.
    let (uid, gid, no_new) =
        unsafe { (libc::getuid(), libc::getgid(), libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) };
    let set_uid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let set_gid = meta.mode() & (libc::S_ISGID | libc::S_IXGRP) == (libc::S_ISGID | libc::S_IXGRP) && meta.gid() != gid;
    let what = if set_uid {
        "is set-uid"
    } else if set_gid {
        "is set-gid"
    } else if uid != 0 && has_capabilities(path) {
        "has file capabilities"
    } else {
        return None;
    };
    if no_new || on_nosuid(path) {
        return None;
    }
    Some(format!("{what}, and the system loads no library of ours into such a program: use a copy without that"))
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn has_capabilities(path: &Path) -> bool {
    c_path(path).is_some_and(|path| {
        // SAFETY: both strings are NUL-terminated; a null buffer of size 0 only asks for the length.
        unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
    })
}

fn on_nosuid(path: &Path) -> bool {
    c_path(path).is_some_and(|path| {
        let mut info = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the path is NUL-terminated, and `info` has room for the answer; all zeros is a valid value of it.
        unsafe {
            libc::statvfs(path.as_ptr(), info.as_mut_ptr()) == 0 && info.assume_init().f_flag & libc::ST_NOSUID != 0
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::{Make, make};
    use std::os::unix::fs::PermissionsExt;

    struct Dir(PathBuf);
    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("outswap-preflight-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
            Dir(dir)
        }
        fn put(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).expect("writable");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our file");
            path
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn look(path: &Path) -> Result<Program, Failure> {
        examine(&[path.into()], None)
    }
    fn refusal(path: &Path) -> String {
        look(path).expect("found").refusal.expect("refused")
    }

    #[test]
    fn refuses_what_no_library_can_enter() {
        let dir = Dir::new("kinds");
        let glibc = Some("/lib64/ld-linux-x86-64.so.2");
        let fine = dir.put("fine", &make(&Make { loader: glibc, ..Make::default() }), 0o755);
        assert_eq!(look(&fine).expect("found").refusal, None);
        let bare = make(&Make::default());
        assert!(refusal(&dir.put("static", &bare, 0o755)).contains("statically linked"));
        let go = Make { section: Some(".go.buildinfo"), ..Make::default() };
        assert!(refusal(&dir.put("go", &make(&go), 0o755)).contains("Go program without cgo"));
        let alone = Make { loader: glibc, dynamic: Some(&[5, 0]), ..go.clone() };
        assert!(refusal(&dir.put("pie-go", &make(&alone), 0o755)).contains("Go program without cgo"));
        let cgo = dir.put("cgo", &make(&Make { loader: glibc, dynamic: Some(&[1, 5, 0]), ..go }), 0o755);
        assert_eq!(look(&cgo).expect("found").refusal, None);
        let alone = make(&Make { loader: glibc, dynamic: Some(&[5, 0]), ..Make::default() });
        assert!(refusal(&dir.put("alone", &alone, 0o755)).contains("no C library"));
        let musl = make(&Make { loader: Some("/lib/ld-musl-x86_64.so.1"), ..Make::default() });
        assert!(refusal(&dir.put("musl", &musl, 0o755)).contains("musl"));
        let mut arm = bare.clone();
        arm[0x12] = 183;
        assert!(refusal(&dir.put("arm", &arm, 0o755)).contains("another processor"));
        let mut narrow = bare;
        (narrow[4], narrow[0x12]) = (1, 3);
        assert!(refusal(&dir.put("narrow", &narrow, 0o755)).contains("32-bit"));
    }

    #[test]
    fn what_the_loader_is_to_load_is_judged() {
        let dir = Dir::new("loader");
        let glibc = Some("/lib64/ld-linux-x86-64.so.2");
        let loader = dir.put("ld-linux-x86-64.so.2", &make(&Make { dynamic: Some(&[5, 0]), ..Make::default() }), 0o755);
        let put = |name: &str, made: Make| dir.put(name, &make(&made), 0o755).display().to_string();
        let fine = put("fine", Make { loader: glibc, dynamic: Some(&[1, 0]), ..Make::default() });
        let library = put("library", Make { dynamic: Some(&[1, 0]), ..Make::default() });
        let quiet = put("static", Make::default());
        let pie = put("static-pie", Make { dynamic: Some(&[5, 0]), ..Make::default() });
        let go = put(
            "go",
            Make { loader: glibc, section: Some(".go.buildinfo"), dynamic: Some(&[5, 0]), ..Make::default() },
        );
        let ours = loader.display().to_string();
        let [fine, library, quiet, pie, go, ours] = [&fine, &library, &quiet, &pie, &go, &ours].map(String::as_str);
        let refusal = |words: &[&str]| {
            let command: Vec<OsString> = [ours].iter().chain(words).map(OsString::from).collect();
            examine(&command, None).expect("found").refusal
        };
        for words in [
            &[][..],
            &[fine],
            &[library],
            &["--list", quiet],
            &["--argv0", quiet],
            &["--argv0", quiet, fine],
            &["static"],
            &["--no-such-option", quiet],
            &["/nonexistent/program"],
            &[ours, quiet],
        ] {
            assert_eq!(refusal(words), None, "{words:?}");
        }
        let is_static = format!("{quiet} {STATIC}");
        for words in [
            &[quiet, "--list"][..],
            &["--", quiet],
            &["--inhibit-cache", "--library-path", "/l", "--preload", "/p", "--audit", "/a", quiet],
            &["--argv0", fine, "--inhibit-rpath", "/r", quiet],
            &["--glibc-hwcaps-prepend", "/h", "--glibc-hwcaps-mask", "/m", quiet],
        ] {
            assert_eq!(refusal(words).as_deref(), Some(is_static.as_str()), "{words:?}");
        }
        assert_eq!(refusal(&[pie]), Some(format!("{pie} {STATIC}")));
        assert!(refusal(&[go]).is_some_and(|why| why.starts_with(&format!("{go} is a Go program"))));
    }

    #[test]
    fn follows_interpreters() {
        let dir = Dir::new("scripts");
        let quiet = dir.put("static", &make(&Make::default()), 0o755);
        let mut last = dir.put("s1", format!("#! {}  -x\n", quiet.display()).as_bytes(), 0o755);
        assert!(refusal(&last).contains("static is statically linked"));
        for level in 2..=4 {
            last = dir.put(&format!("s{level}"), format!("#!{}\n", last.display()).as_bytes(), 0o755);
        }
        assert!(refusal(&last).contains("statically"));
        last = dir.put("s5", format!("#!{}\n", last.display()).as_bytes(), 0o755);
        assert_eq!(look(&last).expect_err("too deep").status, EXIT_CANNOT_EXECUTE);
        let lost = dir.put("lost", b"#!/nonexistent/sh\n", 0o755);
        assert_eq!(look(&lost).expect_err("no interpreter").status, EXIT_NOT_FOUND);
        let blocked = dir.put("blocked", format!("#!{}\n", dir.put("text", b"x", 0o644).display()).as_bytes(), 0o755);
        assert_eq!(look(&blocked).expect_err("no permission").status, EXIT_CANNOT_EXECUTE);
        let plain = look(&dir.put("plain", b"echo hello\n", 0o755)).expect("found");
        assert!(plain.maybe_shell && plain.refusal.is_none());
        assert!(!look(&dir.put("junk", b"\x01\0\x02\n", 0o755)).expect("found").maybe_shell);
        let cut = dir.put("cut", b"\x7fELF\x02\x01\x01", 0o755);
        assert_eq!(look(&cut).expect_err("broken").status, EXIT_CANNOT_EXECUTE);
    }

    #[test]
    fn a_carriage_return_behind_the_interpreter_is_told() {
        let dir = Dir::new("return");
        let bare = look(&dir.put("bare", b"#!/bin/sh\r\nexit 3\r\n", 0o755)).expect_err("no such interpreter");
        assert_eq!((bare.status, bare.text.lines().count()), (EXIT_NOT_FOUND, 1), "{}", bare.text);
        assert!(bare.text.contains("carriage return") && !bare.text.contains('\r'), "{}", bare.text);
        // The interpreter is there, and gets an argument that ends so.
        let word = look(&dir.put("word", b"#!/usr/bin/env sh\r\n", 0o755)).expect("env is everywhere");
        assert!(word.remark.expect("told").contains("carriage return"));
        assert!(look(&dir.put("fine", b"#!/bin/sh\nexit 3\r\n", 0o755)).expect("found").remark.is_none());
    }

    #[test]
    fn searches_as_execvp_does() {
        let dir = Dir::new("path");
        let (one, two) = (Dir::new("path1"), Dir::new("path2"));
        one.put("prog", b"#!/bin/sh\n", 0o644);
        let path = OsString::from(format!("{}:/nonexistent:{}", one.0.display(), two.0.display()));
        let find = |name: &str| find(OsStr::new(name), Some(&path));
        assert_eq!(find("prog").expect_err("not executable").status, EXIT_CANNOT_EXECUTE);
        let good = two.put("prog", b"#!/bin/sh\n", 0o755);
        assert_eq!(find("prog").expect("in the second directory"), good);
        assert_eq!(find("other").expect_err("nowhere").status, EXIT_NOT_FOUND);
        assert_eq!(find("").expect_err("no name").status, EXIT_NOT_FOUND);
        assert_eq!(find(&dir.0.display().to_string()).expect_err("directory").status, EXIT_CANNOT_EXECUTE);
    }

    #[test]
    fn set_uid_programs_of_others_are_refused() {
        let dir = Dir::new("setuid");
        let bytes = make(&Make { loader: Some("/lib64/ld-linux-x86-64.so.2"), ..Make::default() });
        let path = dir.put("own", &bytes, 0o4755);
        assert_eq!(look(&path).expect("found").refusal, None, "set-uid to ourselves changes nothing");
        let other = c_path(&path).expect("no NUL in it");
        // SAFETY: the path is NUL-terminated.
        if unsafe { libc::chown(other.as_ptr(), 12345, 12345) } != 0 {
            return; // Only root can give a file away; the rest is for root.
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("root may");
        // SAFETY: takes no pointers.
        let no_new = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 };
        let refused = look(&path).expect("found").refusal.is_some_and(|r| r.contains("set-uid"));
        assert_eq!(refused, !no_new && !on_nosuid(&path));
    }
}
