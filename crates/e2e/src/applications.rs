//! Larger programs that people run, each in half and in a quarter of the memory that it uses plainly (`make e2e-full`). What they do
//! is in `tests/programs/full`; what they need is installed by `scripts/setup.sh full`.
use crate::place::{plain_mode, workspace};
use crate::sample::PROCESS_ALLOWANCE_BYTES;
use crate::workloads::scale;
use crate::{MIB, Outcome, Run, Setup, Tmp, stats};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest time of a run.
const TIMEOUT_S: u64 = 900;
/// Below this a part of it would say nothing.
const SMALLEST_PEAK_BYTES: u64 = 48 * MIB;
/// The least that `outswap run` takes.
const SMALLEST_RAM_BYTES: u64 = 16 * MIB;
/// The parts of the plain run's peak that are tried.
pub const PERCENTAGES: &[u64] = &[50, 25];

/// A program, and how it is run. In `command`, `{scale}` is how much is asked of it, `{python}` the Python that has the libraries,
/// `{here}` the directory that it runs in.
pub struct Program {
    /// Its name in the tests.
    pub name: &'static str,
    /// What has to be there: programs, files with a `*` for one part of the path, and modules of Python (`python:NAME`).
    needs: &'static [&'static str],
    /// What is copied from `tests/programs/full`, or from `tests/programs`.
    sources: &'static [&'static str],
    /// Run once, plainly, beforehand.
    prepare: &'static [&'static str],
    /// The program and its arguments.
    command: &'static [&'static str],
    /// Whether it refuses to be root.
    unprivileged: bool,
    /// The parts of that peak that are tried.
    percentages: &'static [u64],
}

/// A row, of which most is usual.
const fn program(name: &'static str, command: &'static [&'static str]) -> Program {
    Program { name, needs: &[], sources: &[], prepare: &[], command, unprivileged: false, percentages: PERCENTAGES }
}

const JAVAC: &[&str] = &["javac", "Objects.java"];

/// All of them, those that most people use first.
pub const PROGRAMS: &[Program] = &[
    Program { needs: &["php"], sources: &["objects.php"], ..program("php", &["php", "objects.php", "{scale}"]) },
    Program {
        needs: &["php-fpm*", "nginx", "curl"],
        sources: &["fpm.sh", "page.php"],
        unprivileged: true,
        ..program("php_fpm_nginx", &["bash", "fpm.sh", "-n"])
    },
    // With its extensions, which are libraries opened with RTLD_DEEPBIND: in a quarter, three processes have no room beside what of
    // these cannot be managed.
    Program {
        needs: &["php-fpm*", "nginx", "curl"],
        sources: &["fpm.sh", "page.php"],
        unprivileged: true,
        percentages: &[50],
        ..program("php_fpm_extensions", &["bash", "fpm.sh"])
    },
    Program {
        needs: &["mariadbd", "mariadb", "mariadb-install-db"],
        sources: &["mariadb.sh"],
        unprivileged: true,
        ..program("mariadb", &["bash", "mariadb.sh", "mariadbd", "mariadb-install-db", "mariadb", "{scale}"])
    },
    Program {
        needs: &["/usr/lib/postgresql/*/bin/postgres", "/usr/lib/postgresql/*/bin/pgbench"],
        sources: &["postgres.sh"],
        unprivileged: true,
        ..program("postgresql", &["bash", "postgres.sh", "{scale}"])
    },
    Program { needs: &["ruby"], sources: &["objects.rb"], ..program("ruby", &["ruby", "objects.rb", "{scale}"]) },
    Program { needs: &["perl"], sources: &["objects.pl"], ..program("perl", &["perl", "objects.pl", "{scale}"]) },
    Program { needs: &["git"], sources: &["repack.sh"], ..program("git_repack", &["bash", "repack.sh", "{scale}"]) },
    Program {
        needs: &["python:pandas"],
        sources: &["pandas_frames.py"],
        ..program("pandas", &["{python}", "pandas_frames.py", "{scale}"])
    },
    Program {
        needs: &["python:sklearn"],
        sources: &["learn.py"],
        ..program("scikit_learn", &["{python}", "learn.py", "{scale}"])
    },
    // ZGC's heap is shared memory, which is not in the limit: `workloads::java_zgc` compares its output.
    java("java_serial", &["java", "-XX:+UseSerialGC", "-Xmx256m", "-XX:-UsePerfData", "-cp", ".", "Objects", "1"]),
    java("java_parallel", &["java", "-XX:+UseParallelGC", "-Xmx256m", "-XX:-UsePerfData", "-cp", ".", "Objects", "1"]),
    java("java_g1", &["java", "-XX:+UseG1GC", "-Xmx256m", "-XX:-UsePerfData", "-cp", ".", "Objects", "1"]),
    Program { needs: &["ffmpeg"], sources: &["video.sh"], ..program("ffmpeg", &["bash", "video.sh", "{scale}"]) },
    Program {
        needs: &["python:polars"],
        sources: &["polars_frames.py"],
        ..program("polars", &["{python}", "polars_frames.py", "{scale}"])
    },
    Program {
        needs: &["python:duckdb"],
        sources: &["duckdb_queries.py"],
        ..program("duckdb", &["{python}", "duckdb_queries.py", "{scale}"])
    },
    Program {
        needs: &["gfortran"],
        sources: &["fields.sh", "fields.F90"],
        ..program("fortran", &["bash", "fields.sh", "{scale}"])
    },
    Program {
        needs: &["mpirun", "mpicc"],
        sources: &["messages.sh", "messages.c"],
        ..program("open_mpi", &["bash", "messages.sh", "{scale}"])
    },
    Program { needs: &["rustc"], sources: &["rustc.sh"], ..program("rustc", &["bash", "rustc.sh", "{scale}"]) },
    Program {
        needs: &["luajit"],
        sources: &["objects.lua"],
        ..program("luajit", &["luajit", "objects.lua", "{scale}"])
    },
    Program {
        needs: &["sbcl"],
        sources: &["objects.lisp"],
        // 29 MiB of what it uses is the image that it starts from, which is mapped at a fixed address: a quarter leaves
        // next to nothing.
        percentages: &[50],
        ..program("sbcl", &["sbcl", "--script", "objects.lisp", "{scale}"])
    },
    Program {
        needs: &["ghc"],
        sources: &["Objects.hs"],
        prepare: &["ghc", "-v0", "-O1", "-o", "objects", "Objects.hs"],
        ..program("haskell", &["./objects", "{scale}"])
    },
    Program {
        needs: &["ocamlc"],
        sources: &["objects.ml"],
        prepare: &["ocamlc", "-o", "objects", "objects.ml"],
        ..program("ocaml", &["ocamlrun", "./objects", "{scale}"])
    },
    Program {
        needs: &["fpc"],
        sources: &["objects.pas"],
        prepare: &["fpc", "-v0", "-O2", "objects.pas"],
        ..program("free_pascal", &["./objects", "{scale}"])
    },
    Program {
        needs: &["go"],
        sources: &["objects.go"],
        prepare: &["sh", "-c", "CGO_ENABLED=1 GOCACHE=$PWD/cache exec go build objects.go"],
        ..program("go", &["./objects", "{scale}"])
    },
    Program {
        needs: &["go", "python3"],
        sources: &["library.go", "library.py"],
        prepare: &[
            "sh",
            "-c",
            "CGO_ENABLED=1 GOCACHE=$PWD/cache exec go build -buildmode=c-shared -o library.so library.go",
        ],
        ..program("go_library", &["python3", "library.py", "{scale}"])
    },
    Program {
        needs: &["erl", "erlc"],
        sources: &["objects.erl"],
        prepare: &["erlc", "objects.erl"],
        ..program("erlang", &["erl", "-noshell", "-run", "objects", "main", "{scale}"])
    },
    Program { needs: &["Rscript"], sources: &["frames.R"], ..program("r", &["Rscript", "frames.R", "{scale}"]) },
    Program { needs: &["swipl"], sources: &["objects.plg"], ..program("prolog", &["swipl", "objects.plg", "{scale}"]) },
    Program {
        needs: &["octave-cli"],
        sources: &["frames.m"],
        ..program("octave", &["octave-cli", "--norc", "frames.m", "{scale}"])
    },
    Program {
        needs: &["convert"],
        sources: &["pictures.sh"],
        // In a quarter it took minutes.
        percentages: &[50],
        ..program("imagemagick", &["bash", "pictures.sh", "{scale}"])
    },
    Program {
        needs: &["emacs"],
        sources: &["objects.el"],
        ..program("emacs", &["emacs", "-Q", "--batch", "-l", "objects.el", "{scale}"])
    },
    Program {
        needs: &["guile"],
        sources: &["objects.scm"],
        ..program("guile", &["guile", "--no-auto-compile", "objects.scm", "{scale}"])
    },
    Program {
        needs: &["mono", "mcs"],
        sources: &["Objects.cs"],
        prepare: &["mcs", "Objects.cs"],
        ..program("mono", &["mono", "Objects.exe", "{scale}"])
    },
    Program {
        needs: &["pdflatex", "gs"],
        sources: &["book.sh"],
        ..program("latex_ghostscript", &["bash", "book.sh", "{scale}"])
    },
    Program {
        needs: &["clang++"],
        sources: &["templates.sh"],
        // In a quarter it took minutes.
        percentages: &[50],
        ..program("clang", &["bash", "templates.sh", "{scale}"])
    },
    Program {
        needs: &["firefox-esr"],
        sources: &["firefox.sh"],
        // A third of what it uses cannot be managed.
        percentages: &[50],
        ..program("firefox", &["bash", "firefox.sh"])
    },
    chromium("chromium_sandbox", &["chromium", "--headless", "--disable-gpu", "--dump-dom", "file://{here}/page.html"]),
    chromium(
        "chromium",
        &["chromium", "--no-sandbox", "--headless", "--disable-gpu", "--dump-dom", "file://{here}/page.html"],
    ),
];

const fn chromium(name: &'static str, command: &'static [&'static str]) -> Program {
    // A fifth of what it uses cannot be managed (data of its program, thread stacks, code): a quarter leaves next to nothing.
    let percentages: &[_] = &[50];
    Program { needs: &["chromium"], sources: &["page.html"], unprivileged: true, percentages, ..program(name, command) }
}

const fn java(name: &'static str, command: &'static [&'static str]) -> Program {
    Program { needs: &["java", "javac"], sources: &["Objects.java"], prepare: JAVAC, ..program(name, command) }
}

/// The Python that has the libraries.
fn python() -> PathBuf {
    workspace().join("target/e2e-python/bin/python")
}

/// Directories of programs; servers are in those that users seldom have in `PATH`.
fn path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]).collect()
}

/// Whether the file is there; its last name may end in `*`, or another be one.
fn is_there(file: &Path) -> bool {
    let mut found = vec![PathBuf::new()];
    for part in file.iter() {
        let text = part.to_string_lossy();
        found = match text.split_once('*') {
            None => found.into_iter().map(|d| d.join(part)).collect(),
            Some((start, end)) => {
                let entries = found.iter().flat_map(fs::read_dir).flatten().flatten().map(|e| e.path());
                let matches = |p: &PathBuf| {
                    let name = p.file_name().unwrap_or_default().to_string_lossy();
                    name.starts_with(start) && name.ends_with(end)
                };
                entries.filter(matches).collect()
            }
        };
    }
    found.iter().any(|f| f.is_file())
}

impl Program {
    /// What of it is not installed here.
    pub fn missing(&self) -> Vec<&'static str> {
        let is_missing = |need: &&&str| match need.strip_prefix("python:") {
            Some(module) => {
                let import = format!("import {module}");
                !Command::new(python()).args(["-c", &import]).output().is_ok_and(|o| o.status.success())
            }
            None if need.starts_with('/') => !is_there(Path::new(need)),
            None => !path().iter().any(|d| is_there(&d.join(need))),
        };
        self.needs.iter().filter(is_missing).copied().collect()
    }

    fn words(&self, words: &[&str], here: &Path) -> Vec<String> {
        let (here, python) = (here.to_string_lossy(), python());
        let one = |w: &&str| {
            let word = w.replace("{scale}", &scale().to_string()).replace("{here}", &here);
            word.replace("{python}", &python.to_string_lossy())
        };
        words.iter().map(one).collect()
    }

    fn run(&self, make: &dyn Fn(&Tmp, &str) -> Run) -> (Outcome, Tmp) {
        let dir = Tmp::new();
        for name in self.sources {
            let programs = workspace().join("tests/programs");
            let from = [programs.join("full").join(name), programs.join(name)].into_iter().find(|f| f.is_file());
            let to = dir.join(name);
            fs::copy(from.unwrap_or_else(|| panic!("{name} is nowhere in tests/programs")), &to)
                .expect("there is room");
            fs::set_permissions(&to, Permissions::from_mode(0o644)).expect("the copy is ours");
        }
        if let Some((first, rest)) = self.words(self.prepare, dir.path()).split_first() {
            Run::new(first).args(rest).dir(dir.path()).run().succeeded();
        }
        let words = self.words(self.command, dir.path());
        let path = std::env::join_paths(path()).expect("they came out of such a list");
        let run = make(&dir, &words[0]).args(&words[1..]).dir(dir.path()).env("TMPDIR", dir.path()).env("PATH", path);
        let run = if self.unprivileged { run.env("HOME", dir.path()) } else { run };
        let outcome = run.timeout_s(TIMEOUT_S).run();
        (outcome, dir)
    }

    /// Runs it plainly and in each part of its memory: same output and end, no byte lost, limit held as the kernel and as the
    /// supervisor count. Returns a line of a table.
    ///
    /// # Panics
    /// Where one of that does not hold.
    pub fn compare(&self) -> String {
        let setup = if self.unprivileged { Setup::nobody() } else { Setup::new() };
        let plain = self.run(&|_, program| setup.plain(program)).0.succeeded();
        let peak_bytes = plain.peak.largest.anon_bytes;
        assert!(peak_bytes >= SMALLEST_PEAK_BYTES, "it uses only {} KiB, too little to tell", peak_bytes >> 10);
        let mut line = format!("{:<18} {:>5} MiB {:>6.1} s", self.name, peak_bytes / MIB, plain.took.as_secs_f64());
        for percentage in self.percentages {
            let ram_bytes = (peak_bytes * percentage / 100).max(SMALLEST_RAM_BYTES);
            let (managed, dir) = self.run(&|dir: &Tmp, program| {
                let stats = dir.join("stats.json");
                setup.clone().option("--stats", &stats.to_string_lossy()).managed(ram_bytes, program)
            });
            eprintln!("{}: in {} MiB: {:?}, {:?}", self.name, ram_bytes / MIB, managed.status, managed.took);
            let managed = managed.same_as(&plain).within(ram_bytes);
            if !plain_mode() {
                self.holds_by_its_own_account(&managed, &dir.join("stats.json"), ram_bytes);
            }
            let times = managed.took.as_secs_f64() / plain.took.as_secs_f64();
            let used = managed.peak.largest.anon_bytes / MIB;
            write!(line, " | {:>5} MiB: {used:>5} MiB, {times:>5.2} times as long", ram_bytes / MIB)
                .expect("strings take all");
        }
        line
    }

    fn holds_by_its_own_account(&self, managed: &Outcome, file: &Path, ram_bytes: u64) {
        let stats = stats::read(file);
        stats::nothing_lost(&stats).unwrap_or_else(|why| panic!("{}: {why}\n{}", self.name, managed.describe()));
        let count = |path: [&str; 2]| stats[path[0]][path[1]].as_u64().expect("the statistics have it");
        let processes = managed.peak.processes.max(1);
        let allowed_bytes = ram_bytes + ram_bytes / 20 + processes * PROCESS_ALLOWANCE_BYTES;
        let tree_bytes = count(["memory", "tree_peak_bytes"]);
        assert!(
            tree_bytes <= allowed_bytes,
            "the supervisor saw {} KiB, of {} KiB for {processes} processes\n{}",
            tree_bytes >> 10,
            allowed_bytes >> 10,
            managed.describe()
        );
    }
}
