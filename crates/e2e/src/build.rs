//! Compiling the test programs, each once.
use crate::setup::workspace;
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

/// Compiles a C file of the workspace, without any warning, and tells where the program is.
pub fn program(source: &str) -> PathBuf {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(Programs::default);
    let cell = {
        let mut map = programs.lock().unwrap_or_else(PoisonError::into_inner);
        map.entry(source.into()).or_default().clone()
    };
    let path = cell.get_or_init(|| {
        let from = workspace().join(source);
        let to = directory().join(source.replace(['/', '.'], "_"));
        let output = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .args([&to, &from])
            .output()
            .unwrap_or_else(|e| panic!("cannot run cc: {e}"));
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        to
    });
    path.clone()
}
