//! Compiling the test programs, each once; with `OUTSWAP_E2E_PROGRAMS=DIRECTORY` once for all that are given the same directory, which nobody
//! may use for other sources or with another compiler.
use crate::place::workspace;
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What has been compiled, or is being compiled, by its path in the workspace.
type Programs = Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>;

static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

extern "C" fn clean_up() {
    if let Some(path) = DIRECTORY.get() {
        let _ = fs::remove_dir_all(path);
    }
}

/// Where compiled programs go; removed when the test program ends.
pub fn directory() -> &'static Path {
    DIRECTORY.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("outswap-e2e-build-{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("the directory is ours");
        // SAFETY: the function takes nothing, unwinds nowhere and lives as long as the program.
        unsafe { libc::atexit(clean_up) };
        path
    })
}

/// Compiles a C or C++ file of the workspace, without any warning, and tells where the program is.
pub fn program(source: &str) -> PathBuf {
    compiled(source, &[])
}

/// The same, with a macro defined.
pub fn program_with(source: &str, macro_name: &str) -> PathBuf {
    compiled(source, &["-D", macro_name])
}

/// The same as [`program`], linked to a fixed address.
pub fn fixed_program(source: &str) -> PathBuf {
    compiled(source, &["-fno-pie", "-no-pie"])
}

/// The same, with a macro defined.
pub fn fixed_program_with(source: &str, macro_name: &str) -> PathBuf {
    compiled(source, &["-fno-pie", "-no-pie", "-D", macro_name])
}

/// A program that is linked to a library that was built here.
pub fn program_linked_to(source: &str, library: &Path) -> PathBuf {
    compiled(source, &["-Wl,--no-as-needed", &library.to_string_lossy()])
}

/// A program that is linked statically: such a program runs unmanaged.
pub fn static_program(source: &str) -> PathBuf {
    compiled(source, &["-static"])
}

/// The same, at random addresses.
pub fn static_pie_program(source: &str) -> PathBuf {
    compiled(source, &["-static-pie", "-fPIE"])
}

/// The same, linked to no library, though a dynamic linker starts it.
pub fn program_without_library(source: &str) -> PathBuf {
    compiled(source, &["-fpie", "-pie", "-nostdlib", "-nostartfiles", "-fno-stack-protector", "-fcf-protection=none"])
}

/// The same, built with a sanitizer; that for addresses is in the program itself, since as a library it must be the first.
pub fn sanitized_program(source: &str, sanitizer: &str) -> PathBuf {
    let with = format!("-fsanitize={sanitizer}");
    let both = [with.as_str(), "-static-libasan"];
    compiled(source, if sanitizer == "address" { &both } else { &both[..1] })
}

/// The same, as a library.
pub fn library(source: &str) -> PathBuf {
    compiled(source, &["-shared", "-fPIC"])
}

/// The same, with a macro defined.
pub fn library_with(source: &str, name: &str) -> PathBuf {
    compiled(source, &["-shared", "-fPIC", &format!("-D{name}")])
}

/// A library that wants executable stacks.
pub fn library_with_executable_stack(source: &str) -> PathBuf {
    compiled(source, &["-shared", "-fPIC", "-Wl,-z,execstack"])
}

/// A library whose constructor is the first of all.
pub fn library_that_is_first(source: &str) -> PathBuf {
    compiled(source, &["-shared", "-fPIC", "-Wl,-z,initfirst"])
}

/// A library with segments that begin at such borders, bytes.
pub fn library_with_borders(source: &str, border_bytes: u64) -> PathBuf {
    compiled(source, &["-shared", "-fPIC", &format!("-Wl,-z,max-page-size={border_bytes}")])
}

fn compiled(source: &str, options: &[&str]) -> PathBuf {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(Programs::default);
    let cell = {
        let mut map = programs.lock().unwrap_or_else(PoisonError::into_inner);
        map.entry(format!("{source}{}", options.concat())).or_default().clone()
    };
    let path = cell.get_or_init(|| {
        let from = workspace().join(source);
        let kept = std::env::var_os("OUTSWAP_E2E_PROGRAMS").map(PathBuf::from);
        let place = kept.as_deref().unwrap_or_else(|| directory());
        let to = place.join(source.replace(['/', '.'], "_") + &options.concat().replace('/', "_"));
        if kept.is_some() && to.exists() {
            return to;
        }
        let unfinished = PathBuf::from(format!("{}.{}.part", to.display(), std::process::id()));
        // Exceptions that pass through signal handlers need tables for instructions that are no calls.
        let (compiler, more) = if source.ends_with(".cc") {
            ("c++", &["-fnon-call-exceptions", "-rdynamic"][..])
        } else {
            ("cc", &[][..])
        };
        let output = Command::new(compiler)
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(more)
            .args(options)
            .arg("-o")
            .args([&unfinished, &from])
            .arg("-ldl")
            .output()
            .unwrap_or_else(|e| panic!("cannot run {compiler}: {e}"));
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&unfinished, &to).expect("both are in the same directory");
        to
    });
    path.clone()
}
