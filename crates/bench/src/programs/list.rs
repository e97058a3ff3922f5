//! The programs, and how each is made ready: which executable, which arguments, which input.
//!
//! Whatever a program would choose by looking at the machine or at its limits (heap sizes, threads, collectors) is given
//! to it, so that it does the same work on every side.
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;

use crate::process::{Failure, Signals};
use crate::programs::inputs;

const PREPARING: Duration = Duration::from_secs(300);
/// Where Debian's own Python is: the one that has Debian's numpy, and an executable, not a script that looks for one.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Program {
    /// GNU sort: lines in one buffer, one thread
    Sort,
    /// CPython: dicts, lists and strings
    PythonDicts,
    /// CPython with numpy: arrays
    PythonNumpy,
    /// SQLite: a data base in memory
    Sqlite,
    /// Node.js: objects, maps and typed arrays
    Node,
    /// OpenJDK with the serial collector: objects and garbage
    Java,
    /// Redis: filled, read by redis-benchmark, changed, read back
    Redis,
    /// GCC: one large file, with some optimisation and debugging information
    Gcc,
    /// Git: a history of one large text, repacked by one thread
    Git,
    /// LuaJIT: tables
    Luajit,
    /// Perl: hashes and arrays
    Perl,
    /// Ruby: objects, strings and hashes
    Ruby,
    /// PHP: arrays and strings
    Php,
    /// OCaml's interpreter: maps and strings
    Ocaml,
    /// Lua 5.4: tables
    Lua,
    /// GNU awk: arrays
    Gawk,
    /// Guile: pairs and hash tables
    Guile,
    /// SWI-Prolog: facts and terms
    Swipl,
    /// Tcl: arrays and lists
    Tcl,
    /// XZ: text, by one thread
    Xz,
    /// The command that was given
    #[value(skip)]
    Given,
}

/// Why a program cannot be measured.
pub enum Unready {
    /// It is not installed; this is what is missing.
    Absent(String),
    /// Its input could not be made.
    Failed(Failure),
}

impl From<io::Error> for Unready {
    fn from(error: io::Error) -> Unready {
        Unready::Failed(Failure::Failed(error.to_string()))
    }
}

impl From<Failure> for Unready {
    fn from(failure: Failure) -> Unready {
        Unready::Failed(failure)
    }
}

/// A program that is ready to be run, any number of times.
#[derive(Default)]
pub struct Job {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments. It runs in a folder of its own.
    pub args: Vec<OsString>,
    /// Variables that it finds beside the usual ones.
    pub env: Vec<(&'static str, OsString)>,
    /// What lies in its folder when it starts: a copy of this.
    pub start: Option<PathBuf>,
    /// For a server: what uses and ends it, as arguments of this benchmark. The server's socket is called `socket`.
    pub client: Option<Vec<OsString>>,
}

/// Where inputs are made.
pub struct Workshop<'a> {
    /// A folder for one program.
    pub folder: PathBuf,
    /// Whether a third of the data is enough.
    pub quick: bool,
    /// To start what makes inputs.
    pub signals: &'a Signals,
    /// For [`Program::Given`].
    pub command: &'a [OsString],
}

/// Finds an executable as a shell does.
fn find(name: &str) -> Result<PathBuf, Unready> {
    if name.contains('/') {
        return Ok(fs::canonicalize(name)?);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Unready::Absent(format!("no {name}")))
}

fn python() -> Result<PathBuf, Unready> {
    if Path::new(SYSTEM_PYTHON).is_file() { Ok(SYSTEM_PYTHON.into()) } else { find("python3") }
}

fn arguments<S: AsRef<OsStr>>(args: &[S]) -> Vec<OsString> {
    args.iter().map(|arg| arg.as_ref().to_owned()).collect()
}

impl Workshop<'_> {
    /// A size: all of it, or a third.
    fn size(&self, full: u64) -> u64 {
        if self.quick { full / 3 } else { full }
    }

    fn text(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    fn made(&self, name: &str, make: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        let mut file = BufWriter::new(File::create(&path)?);
        make(&mut file)?;
        file.flush()?;
        Ok(path)
    }

    /// Runs something that makes an input.
    fn run(&self, command: &mut Command) -> Result<(), Failure> {
        let mut running = self.signals.start(command.stdout(Stdio::null()), None)?;
        self.signals.finish(&mut running, PREPARING).map(|_| ())
    }

    fn sort(&self) -> Result<Job, Unready> {
        let program = find("sort")?;
        let input = self.made("lines", |to| inputs::lines(to, self.size(1_800_000)))?;
        let mut args = arguments(&["--parallel=1", "-S", "1G"]);
        args.push(input.into());
        Ok(Job { program, args, ..Job::default() })
    }

    fn script(&self, program: PathBuf, name: &str, text: &str, count: u64) -> Result<Job, Unready> {
        let script = self.text(name, text)?;
        let args = vec![script.into(), count.to_string().into()];
        let env = vec![("PYTHONHASHSEED", "0".into()), ("OPENBLAS_NUM_THREADS", "1".into())];
        Ok(Job { program, args, env, ..Job::default() })
    }

    fn tool(&self, name: &str, file: &str, text: &str, count: u64) -> Result<Job, Unready> {
        self.script(find(name)?, file, text, self.size(count))
    }

    /// The same, of a tool that wants an option before the script.
    fn led(&self, name: &str, option: &str, file: &str, text: &str, count: u64) -> Result<Job, Unready> {
        let mut job = self.tool(name, file, text, count)?;
        job.args.insert(0, option.into());
        Ok(job)
    }

    fn python_dicts(&self) -> Result<Job, Unready> {
        self.script(python()?, "dicts.py", include_str!("../../programs/dicts.py"), self.size(120_000))
    }

    fn python_numpy(&self) -> Result<Job, Unready> {
        let python = python()?;
        let mut probe = Command::new(&python);
        match self.run(probe.args(["-c", "import numpy"]).stderr(Stdio::null())) {
            Ok(()) => {}
            Err(Failure::Failed(_)) => return Err(Unready::Absent(format!("no numpy for {}", python.display()))),
            Err(interrupted) => return Err(interrupted.into()),
        }
        self.script(python, "arrays.py", include_str!("../../programs/arrays.py"), self.size(4_200_000))
    }

    fn sqlite(&self) -> Result<Job, Unready> {
        let program = find("sqlite3")?;
        let queries = include_str!("../../programs/queries.sql").replace("COUNT", &self.size(210_000).to_string());
        let queries = self.text("queries.sql", &queries)?;
        let mut read = OsString::from(".read ");
        read.push(queries);
        Ok(Job { program, args: vec!["-batch".into(), ":memory:".into(), read], ..Job::default() })
    }

    fn node(&self) -> Result<Job, Unready> {
        let job =
            self.script(find("node")?, "objects.js", include_str!("../../programs/objects.js"), self.size(210_000))?;
        let mut args = arguments(&["--max-old-space-size=1024", "--max-semi-space-size=16"]);
        args.extend(job.args);
        Ok(Job { args, ..job })
    }

    fn java(&self) -> Result<Job, Unready> {
        let (program, compiler) = (find("java")?, find("javac")?);
        let source = self.text("Records.java", include_str!("../../programs/Records.java"))?;
        self.run(Command::new(compiler).arg("-d").arg(&self.folder).arg(source))?;
        // Without a file of performance data, which would be shared memory by another name, and without a look at the
        // limits of the group.
        let mut args = arguments(&["-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:-UseContainerSupport"]);
        args.push(format!("-Xmx{}m", self.size(192)).into());
        args.extend(arguments(&["-Xss1m", "-cp"]));
        args.push(self.folder.clone().into());
        args.extend(["Records".into(), self.size(270_000).to_string().into()]);
        Ok(Job { program, args, ..Job::default() })
    }

    fn redis(&self) -> Result<Job, Unready> {
        let program = find("redis-server")?;
        find("redis-benchmark")?;
        let args =
            ["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no", "--loglevel", "warning"];
        let mut client = arguments(&["redis-client", "socket"]);
        client.extend([self.size(160_000), self.size(120_000)].map(|number| number.to_string().into()));
        Ok(Job { program, args: arguments(&args), client: Some(client), ..Job::default() })
    }

    fn gcc(&self) -> Result<Job, Unready> {
        let program = find("gcc")?;
        let input = self.made("large.c", |to| inputs::c_file(to, self.size(450)))?;
        // When the compiler collects garbage would follow from the machine's memory.
        let mut args = arguments(&["-O1", "-g", "-w", "--param=ggc-min-expand=100", "--param=ggc-min-heapsize=65536"]);
        args.extend(arguments(&["-c", "-o", "large.o"]));
        args.push(input.into());
        Ok(Job { program, args, env: vec![("TMPDIR", ".".into())], ..Job::default() })
    }

    fn git(&self) -> Result<Job, Unready> {
        let program = find("git")?;
        let history = self.made("history", |to| inputs::history(to, 48, self.size(15_000) as usize))?;
        let start = self.folder.join("repository");
        // What the user has set for git does not count.
        let env = [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")];
        self.run(Command::new(&program).envs(env).args(["init", "-q", "--bare", "--template="]).arg(&start))?;
        let mut import = Command::new(&program);
        import.envs(env).arg("-C").arg(&start).args(["fast-import", "--quiet", "--done"]);
        self.run(import.stdin(File::open(&history)?))?;
        fs::remove_file(history)?;
        let settings =
            ["pack.threads=1", "pack.windowMemory=0", "pack.deltaCacheSize=32m", "core.deltaBaseCacheLimit=16m"];
        let mut args = Vec::new();
        for setting in settings {
            args.extend(arguments(&["-c", setting]));
        }
        args.extend(arguments(&["repack", "-a", "-d", "-f", "-q", "--window=40", "--depth=20"]));
        let env = env.map(|(name, value)| (name, value.into())).to_vec();
        Ok(Job { program, args, env, start: Some(start), client: None })
    }

    fn xz(&self) -> Result<Job, Unready> {
        let program = find("xz")?;
        let input = self.made("lines", |to| inputs::lines(to, self.size(130_000)))?;
        let mut args = arguments(&["-8", "-T1", "-k", "-c"]);
        args.push(input.into());
        Ok(Job { program, args, ..Job::default() })
    }

    fn given(&self) -> Result<Job, Unready> {
        let Some((name, args)) = self.command.split_first() else {
            return Err(Unready::Absent("no command".to_owned()));
        };
        Ok(Job { program: find(&name.to_string_lossy())?, args: args.to_vec(), ..Job::default() })
    }
}

impl Program {
    /// Those that are measured where none is named, in the order of reports.
    pub fn usual() -> &'static [Program] {
        use Program::*;
        &[Sort, PythonDicts, PythonNumpy, Sqlite, Node, Java, Redis, Gcc, Git]
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Program::Sort => "sort",
            Program::PythonDicts => "python-dicts",
            Program::PythonNumpy => "python-numpy",
            Program::Sqlite => "sqlite",
            Program::Node => "node",
            Program::Java => "java",
            Program::Redis => "redis",
            Program::Gcc => "gcc",
            Program::Git => "git",
            Program::Luajit => "luajit",
            Program::Perl => "perl",
            Program::Ruby => "ruby",
            Program::Php => "php",
            Program::Ocaml => "ocaml",
            Program::Lua => "lua",
            Program::Gawk => "gawk",
            Program::Guile => "guile",
            Program::Swipl => "swipl",
            Program::Tcl => "tcl",
            Program::Xz => "xz",
            Program::Given => "given",
        }
    }

    /// Makes it ready in the workshop's folder.
    pub fn prepare(self, workshop: &Workshop) -> Result<Job, Unready> {
        match self {
            Program::Sort => workshop.sort(),
            Program::PythonDicts => workshop.python_dicts(),
            Program::PythonNumpy => workshop.python_numpy(),
            Program::Sqlite => workshop.sqlite(),
            Program::Node => workshop.node(),
            Program::Java => workshop.java(),
            Program::Redis => workshop.redis(),
            Program::Gcc => workshop.gcc(),
            Program::Git => workshop.git(),
            Program::Luajit => {
                workshop.tool("luajit", "tables.lua", include_str!("../../programs/tables.lua"), 500_000)
            }
            Program::Perl => workshop.tool("perl", "hashes.pl", include_str!("../../programs/hashes.pl"), 240_000),
            Program::Ruby => workshop.tool("ruby", "objects.rb", include_str!("../../programs/objects.rb"), 400_000),
            Program::Php => workshop.tool("php", "arrays.php", include_str!("../../programs/arrays.php"), 200_000),
            Program::Ocaml => workshop.tool("ocaml", "maps.ml", include_str!("../../programs/maps.ml"), 300_000),
            Program::Lua => workshop.tool("lua5.4", "tables.lua", include_str!("../../programs/tables.lua"), 500_000),
            Program::Gawk => workshop.led("gawk", "-f", "words.awk", include_str!("../../programs/words.awk"), 700_000),
            Program::Guile => {
                let text = include_str!("../../programs/pairs.scm");
                workshop.led("guile", "--no-auto-compile", "pairs.scm", text, 400_000)
            }
            Program::Swipl => workshop.tool("swipl", "facts.pl", include_str!("../../programs/facts.pl"), 400_000),
            Program::Tcl => workshop.tool("tclsh", "lists.tcl", include_str!("../../programs/lists.tcl"), 500_000),
            Program::Xz => workshop.xz(),
            Program::Given => workshop.given(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_the_name_that_it_is_asked_for_by() {
        for &program in Program::value_variants() {
            assert_eq!(Program::from_str(program.name(), false), Ok(program));
        }
        assert!(Program::from_str(Program::Given.name(), false).is_err());
    }

    #[test]
    fn what_is_not_installed_is_absent() {
        assert!(find("sh").is_ok());
        assert!(
            matches!(find("no-such-program-anywhere"), Err(Unready::Absent(what)) if what == "no no-such-program-anywhere")
        );
    }
}
