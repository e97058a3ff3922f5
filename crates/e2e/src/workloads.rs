//! Programs that people run, at a quarter of the memory that they use plainly.
use crate::place::workspace;
use crate::sample::Peak;
use crate::setup::part_of;
use crate::wire::{Memcached, Redis};
use crate::{MIB, Outcome, Run, Setup, Tmp, env_or};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parts of what a program uses plainly, of which it gets one as a rule.
pub const QUARTER: u64 = 4;
/// Below this a quarter would say nothing.
const SMALLEST_PEAK_BYTES: u64 = 48 * MIB;
/// Longest time of a managed program.
const TIMEOUT_S: u64 = 300;

/// How many times larger than in the ordinary tests the data is (`OUTSWAP_E2E_SCALE`).
pub fn scale() -> u64 {
    env_or("OUTSWAP_E2E_SCALE", 1)
}

/// Fails, with what to do, where a program is not installed.
pub fn need(program: &str) {
    let found = std::env::var_os("PATH").is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(program).is_file()));
    assert!(found, "{program} is not installed: `make test` installs what the tests need");
}

/// A Python that has numpy.
pub fn python() -> &'static str {
    let works = |p: &&str| Command::new(p).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success());
    ["/usr/bin/python3", "python3"]
        .into_iter()
        .find(works)
        .expect("no python3 with numpy is installed: `make test` installs what the tests need")
}

/// A source of `tests/programs`, copied to where any user may read it.
fn source(name: &str, to: &Tmp) -> PathBuf {
    let target = to.join(name);
    fs::copy(workspace().join("tests/programs").join(name), &target).unwrap_or_else(|e| panic!("{name}: {e}"));
    target
}

/// The budget: a quarter of what the plain run used.
fn budget(peak: &Peak, what: &str) -> u64 {
    budget_of(peak, QUARTER, what)
}

/// One of so many parts of it.
fn budget_of(peak: &Peak, parts: u64, what: &str) -> u64 {
    let plain_bytes = peak.largest.anon_bytes;
    assert!(plain_bytes >= SMALLEST_PEAK_BYTES, "{what} uses only {} KiB, too little to tell", plain_bytes >> 10);
    part_of(plain_bytes, parts)
}

/// Runs both ways, in a quarter of the memory; `outputs` are files that must come out the same.
fn compare<S: AsRef<OsStr>>(setup: &Setup, dir: &Path, program: &str, args: &[S], outputs: &[&Path]) -> Outcome {
    compare_in(QUARTER, setup, dir, program, args, outputs)
}

/// The same in one of so many parts of it.
fn compare_in<S: AsRef<OsStr>>(
    parts: u64,
    setup: &Setup,
    dir: &Path,
    program: &str,
    args: &[S],
    outputs: &[&Path],
) -> Outcome {
    let read = || -> Vec<Vec<u8>> {
        let one = |p: &&Path| fs::read(p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
        outputs.iter().map(one).collect()
    };
    let finish = |run: Run| run.args(args).dir(dir).env("TMPDIR", dir).timeout_s(TIMEOUT_S).run();
    let plain = finish(setup.plain(program)).succeeded();
    let plain_files = read();
    for path in outputs {
        fs::remove_file(path).expect("the plain run made it");
    }
    let ram_bytes = budget_of(&plain.peak, parts, program);
    let managed = finish(setup.managed(ram_bytes, program)).same_as(&plain).within(ram_bytes);
    assert!(read() == plain_files, "other files came out: {}", managed.describe());
    eprintln!(
        "{program}: {} MiB, with Outswap {} MiB of {}; {:?}, with Outswap {:?}",
        plain.peak.largest.anon_bytes / MIB,
        managed.peak.largest.anon_bytes / MIB,
        ram_bytes / MIB,
        plain.took,
        managed.took
    );
    managed
}

/// A Python program of `tests/programs`.
pub fn python_program(setup: &Setup, name: &str) {
    python_with(QUARTER, setup, name, scale());
}

/// So many Python objects, in one of so many parts of their memory.
pub fn python_objects(setup: &Setup, count: u64, parts: u64) {
    python_with(parts, setup, "objects.py", count);
}

fn python_with(parts: u64, setup: &Setup, name: &str, argument: u64) {
    let dir = Tmp::new();
    let script = source(name, &dir);
    compare_in(parts, setup, dir.path(), python(), &[script.as_os_str(), OsStr::new(&argument.to_string())], &[]);
}

/// A Node program.
pub fn node(setup: &Setup) {
    need("node");
    let dir = Tmp::new();
    let script = source("objects.js", &dir);
    let scale = scale().to_string();
    let args = [OsStr::new("--max-old-space-size=1024"), script.as_os_str(), scale.as_ref()];
    compare(setup, dir.path(), "node", &args, &[]);
}

/// A directory with the compiled program.
fn java_classes() -> Tmp {
    need("java");
    need("javac");
    let dir = Tmp::new();
    let file = source("Objects.java", &dir);
    Run::new("javac").arg("-d").arg(dir.path()).arg(file).run().succeeded();
    dir
}

/// A Java program.
pub fn java(setup: &Setup) {
    let dir = java_classes();
    let heap = format!("-Xmx{}m", 192 * scale());
    let scale = scale().to_string();
    // Without a file of performance data, which would be shared memory by another name.
    let args = [&heap, "-XX:-UsePerfData", "-cp", ".", "Objects", &scale];
    compare(setup, dir.path(), "java", &args, &[]);
}

/// A Java program under ZGC, which maps its heap several times and at certain places only. The heap is shared memory: it is not in
/// the limit.
pub fn java_zgc(setup: &Setup) {
    let dir = java_classes();
    let run = |run: Run| {
        let args = ["-XX:+UseZGC", "-Xmx256m", "-XX:-UsePerfData", "-cp", ".", "Objects", "1"];
        run.args(args).dir(dir.path()).env("TMPDIR", dir.path()).timeout_s(TIMEOUT_S).run()
    };
    let plain = run(setup.plain("java")).succeeded();
    run(setup.managed(256 * MIB, "java")).same_as(&plain).within(256 * MIB);
}

/// GNU sort with much memory.
pub fn sort(setup: &Setup) {
    let dir = Tmp::new();
    let (input, output) = (dir.join("input"), dir.join("output"));
    let mut text = String::new();
    let mut state = 88_172_645_463_325_252u64;
    for i in 0..600_000 * scale() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        writeln!(text, "{:016x} line {i} of the text to be sorted", state).expect("strings take all");
    }
    fs::write(&input, text).expect("the directory is ours");
    let args =
        [OsStr::new("-S"), "1G".as_ref(), "--parallel=2".as_ref(), "-o".as_ref(), output.as_ref(), input.as_ref()];
    compare(setup, dir.path(), "sort", &args, &[&output]);
}

/// SQLite with its data base in memory.
pub fn sqlite(setup: &Setup) {
    need("sqlite3");
    let dir = Tmp::new();
    let sql = format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {})
         INSERT INTO t SELECT i, printf('%08x', (i * 2654435761) % 4294967296), printf('%0300d', i * 7919) FROM n;
         CREATE INDEX by_k ON t(k);
         SELECT count(*), sum(id), sum(length(v)) FROM t;
         SELECT k, substr(v, -12) FROM t ORDER BY k LIMIT 20;
         UPDATE t SET v = v || k WHERE id % 3 = 0;
         DELETE FROM t WHERE id % 7 = 0;
         SELECT count(*), sum(length(v)), max(v), min(k) FROM t;
         SELECT count(*) FROM t a JOIN t b ON b.k = printf('%08x', ((a.id + 1) * 2654435761) % 4294967296);
         PRAGMA integrity_check;",
        220_000 * scale()
    );
    compare(setup, dir.path(), "sqlite3", &[":memory:", &sql], &[]);
}

/// A C file that makes the compiler work.
pub fn large_c_file(functions: u64) -> String {
    let mut text = String::from("typedef unsigned long u;\n");
    for i in 0..functions {
        write!(
            text,
            "struct s{i} {{ u a, b[4]; struct s{i} *next; }};\n\
             u f{i}(struct s{i} *p, u x) {{\n  u r = x ^ {i}u;\n\
               for (u j = 0; j < x; j++) {{\n    if (p->b[j & 3] > r) {{ r += p->a * {m}u; p = p->next; }}\n\
                 else switch (r % 7) {{ case 0: r ^= p->b[1]; break; case 1: r += {i}; break; case 2: r *= 3; break;\n\
                 case 3: r -= p->b[(r >> 3) & 3]; break; case 5: r = r << 1 | r >> 63; break; default: r++; }}\n  }}\n",
            m = i * 37 + 11
        )
        .expect("strings take all");
        if i > 0 {
            writeln!(text, "  return f{}((struct s{} *)p, r & 15) + r;\n}}", i - 1, i - 1).expect("strings take all");
        } else {
            text.push_str("  return r;\n}\n");
        }
    }
    text
}

/// gcc, its driver, compiler and assembler in one budget.
pub fn gcc(setup: &Setup) {
    need("gcc");
    let dir = Tmp::new();
    let (input, output) = (dir.join("large.c"), dir.join("large.o"));
    fs::write(&input, large_c_file(700 * scale())).expect("the directory is ours");
    let args = [OsStr::new("-O2"), "-c".as_ref(), "-o".as_ref(), output.as_ref(), input.as_ref()];
    compare(setup, dir.path(), "gcc", &args, &[&output]);
}

/// stress-ng's memory stressors, which verify what they read.
pub fn stress_ng(setup: &Setup) {
    need("stress-ng");
    let dir = Tmp::new();
    let bytes = format!("{}M", 160 * scale());
    let time = format!("{}s", 8 * scale());
    let args = ["--vm", "4", "--vm-bytes", &bytes, "--vm-method", "all", "--verify", "-t", &time, "-q"];
    compare(setup, dir.path(), "stress-ng", &args, &[]);
}

/// A server's life: start, use, end, the last one by `signal` unless its user saw to it.
fn serve(run: &Run, signal: Option<i32>, use_it: impl FnOnce()) -> Outcome {
    let mut server = run.start();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(use_it)) {
        // What a server said before it died is the best hint; one that lives is ended when dropped.
        if server.has_ended() {
            eprintln!("{}", server.wait().describe());
        }
        resume_unwind(payload);
    }
    if let Some(signal) = signal {
        server.signal(signal);
    }
    server.wait()
}

/// redis-server: load, read all, save, restart from the dump, read all.
pub fn redis(setup: &Setup) {
    need("redis-server");
    let count = env_or("OUTSWAP_E2E_REDIS_KEYS", 70_000) as u32;
    let life = |make: &dyn Fn(&str) -> Run| -> [Outcome; 2] {
        let dir = Tmp::new();
        let socket = dir.join("socket");
        let options = ["--port", "0", "--save", "", "--loglevel", "warning", "--dbfilename", "dump.rdb", "--dir", "."];
        let run = make("redis-server").args(options).arg("--unixsocket").arg(&socket).dir(dir.path()).timeout_s(600);
        let first = serve(&run, None, || {
            let mut redis = Redis::connect(&socket);
            redis.load(count);
            redis.verify(count);
            redis.save();
            redis.verify(count);
            redis.shut_down();
        });
        let second = serve(&run, None, || {
            let mut redis = Redis::connect(&socket);
            redis.verify(count);
            redis.shut_down();
        });
        [first.exited(0), second.exited(0)]
    };
    let plain = life(&|p| setup.plain(p));
    let ram_bytes = budget(&plain[0].peak, "redis-server");
    for managed in life(&|p| setup.managed(ram_bytes, p)) {
        managed.within(ram_bytes);
    }
}

/// memcached over loopback.
pub fn memcached(setup: &Setup) {
    need("memcached");
    let count = (80_000 * scale()) as u32;
    let life = |make: &dyn Fn(&str) -> Run| -> Outcome {
        let dir = Tmp::new();
        // Free a moment ago; another program would have to take the very same port in between.
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a port is free").port();
        let text = port.to_string();
        let memory = (200 * scale()).to_string();
        let run = make("memcached").args(["-l", "127.0.0.1", "-p", &text, "-m", &memory, "-u", "nobody"]);
        serve(&run.dir(dir.path()).timeout_s(TIMEOUT_S), Some(libc::SIGTERM), || {
            let mut client = Memcached::connect(port);
            client.load(count);
            client.verify(count);
            Memcached::connect(port).verify(count);
        })
    };
    let plain = life(&|p| setup.plain(p));
    let ram_bytes = budget(&plain.peak, "memcached");
    life(&|p| setup.managed(ram_bytes, p)).same_as(&plain).within(ram_bytes);
}
