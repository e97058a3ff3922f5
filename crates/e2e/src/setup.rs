//! Where things are, and the ways in which programs are run.
use crate::place::{plain_mode, workspace};
use crate::{MIB, Run, build};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The binary under test.
pub fn outswap() -> PathBuf {
    let path = match std::env::var_os("OUTSWAP_BIN") {
        Some(path) => PathBuf::from(path),
        None => workspace().join("target/release/outswap"),
    };
    assert!(path.is_file(), "{} is missing: run `make build` first, or set OUTSWAP_BIN", path.display());
    path
}

/// A directory that goes away, which any user may write.
pub struct Tmp(PathBuf);

impl Tmp {
    /// Makes one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Tmp {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("outswap-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("the directory is ours");
        Tmp(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A way in which programs are run: as which user, behind which launcher, with which options.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What stands before both the plain and the managed command.
    pub launcher: Vec<OsString>,
    /// Options of `outswap run`.
    pub options: Vec<OsString>,
    /// The binary.
    pub binary: PathBuf,
}

impl Setup {
    /// As we are ourselves.
    pub fn new() -> Setup {
        let binary = if plain_mode() { PathBuf::new() } else { outswap() };
        Setup { launcher: Vec::new(), options: Vec::new(), binary }
    }

    /// As user nobody (where we are root), with no capabilities and no new privileges.
    pub fn nobody() -> Setup {
        Setup { launcher: launcher(&["--nobody"]), binary: readable_binary(), ..Setup::new() }
    }

    /// As nobody, with userfaultfd and io_uring answered by `errno` (`EPERM` or `ENOSYS`); with `OLD`, also `process_vm_readv` and
    /// `process_vm_writev`, and any call of x32 ends the process.
    pub fn denied(errno: &str) -> Setup {
        Setup { launcher: launcher(&["--nobody", "--deny", errno]), ..Setup::nobody() }
    }

    /// As nobody, where no memory becomes executable that was written.
    pub fn without_code() -> Setup {
        Setup { launcher: launcher(&["--nobody", "--no-code"]), ..Setup::nobody() }
    }

    /// As nobody, with no more seccomp filters.
    pub fn without_filters() -> Setup {
        Setup { launcher: launcher(&["--nobody", "--no-filters"]), ..Setup::nobody() }
    }

    /// As nobody, where no thread can be made: `clone3` is answered by `EPERM`, upon which the C library does not try another call.
    pub fn without_threads() -> Setup {
        Setup { launcher: launcher(&["--nobody", "--no-clone3"]), ..Setup::nobody() }
    }

    /// With an empty `/proc`; the launcher ends with 124 where that cannot be had.
    pub fn without_proc() -> Setup {
        Setup { launcher: launcher(&["--no-proc"]), ..Setup::new() }
    }

    /// With the binary at another place.
    pub fn with_binary(self, binary: PathBuf) -> Setup {
        Setup { binary, ..self }
    }

    /// `outswap doctor`.
    pub fn doctor(&self) -> Run {
        self.launched().arg(&self.binary).arg("doctor")
    }

    /// With an option more.
    pub fn option(mut self, name: &str, value: &str) -> Setup {
        self.options.extend([name.into(), value.into()]);
        self
    }

    /// The fault source that programs are to have; `None` where any is right.
    pub fn fault_source(&self) -> Option<&str> {
        if self.launcher.iter().any(|word| word == "--deny") {
            return Some(if has_guards() { "guard" } else { "mprotect" });
        }
        let at = self.options.iter().position(|option| option == "--fault-source")?;
        self.options.get(at + 1)?.to_str()
    }

    fn launched(&self) -> Run {
        match self.launcher.split_first() {
            Some((first, rest)) => Run::new(first).args(rest),
            None => Run::new("env"),
        }
    }

    /// A plain run.
    pub fn plain(&self, program: impl AsRef<OsStr>) -> Run {
        self.launched().arg(program)
    }

    /// A run under Outswap.
    pub fn managed(&self, ram_bytes: u64, program: impl AsRef<OsStr>) -> Run {
        if plain_mode() {
            return self.plain(program);
        }
        let ram = format!("{}K", ram_bytes.div_ceil(1024));
        let run = self.launched().arg(&self.binary).args(["run", "--ram", &ram]).args(&self.options).arg("--");
        let mut run = run.arg(program).env("OUTSWAP_E2E_MANAGED", "1");
        run.supervised = true;
        run
    }
}

impl Default for Setup {
    fn default() -> Setup {
        Setup::new()
    }
}

/// Whether the kernel has guard markers, which are the best there is without userfaultfd.
fn has_guards() -> bool {
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    const PAGE_BYTES: usize = 4096;
    // SAFETY: a new page that nobody else knows of.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert!(page != libc::MAP_FAILED, "a page can be mapped");
        let known = libc::madvise(page, PAGE_BYTES, MADV_GUARD_INSTALL) == 0;
        libc::munmap(page, PAGE_BYTES);
        known
    }
}

fn launcher(options: &[&str]) -> Vec<OsString> {
    let mut words = vec![build::program("tests/programs/launch.c").into_os_string()];
    words.extend(options.iter().map(OsString::from));
    words
}

/// A copy of the binary and its libraries that any user may read, for programs that become another: where the sources lie, others may not get.
pub fn readable_binary() -> PathBuf {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    let copy = COPY.get_or_init(|| {
        if plain_mode() {
            return PathBuf::new();
        }
        let binary = outswap();
        let from = binary.parent().expect("a file has a directory");
        let to = build::directory().join("bin");
        fs::create_dir_all(&to).expect("the build directory is ours");
        for entry in fs::read_dir(from).expect("the binary lies there").flatten() {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            if name == binary.file_name().expect("a file has a name") || text.ends_with(".so") {
                copy_program(&entry.path(), &to.join(&name));
            }
        }
        to.join(binary.file_name().expect("a file has a name"))
    });
    copy.clone()
}

/// Copies a program, or a library of one, for anybody to execute. Another process does that: a file that were open for writing here would be so in a child that
/// another test makes, until that executes its program, and could not be executed meanwhile (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    let done = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status().expect("install is everywhere");
    assert!(done.success(), "no copy of {} at {}", from.display(), to.display());
}

/// Whether we can become another user.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// One of so many parts of what a plain run used; never less than the runtime itself needs.
pub fn part_of(plain_bytes: u64, parts: u64) -> u64 {
    (plain_bytes / parts).max(12 * MIB)
}
