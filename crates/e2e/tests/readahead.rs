//! Readahead from a slow store: seen in the statistics, and content right, whatever the program does meanwhile and whichever policy evicts.
use outswap_e2e::{MIB, Setup, Tmp, plain_mode, stats, workloads};
use serde_json::Value;

const RAM_BYTES: u64 = 32 * MIB;

/// Writes 48 MiB that do not compress, reads them in order, by strides, at random and as several streams in turns, and forks, moves and
/// discards in between. Each page is looked at.
const SCRIPT: &str = "\
import mmap, os, random
N = 12288
seed = random.Random(7).randbytes(8192)
m = mmap.mmap(-1, N * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def page(i, n): return (i * 7919 + n).to_bytes(8, 'little') + seed[i % 4096:i % 4096 + 4088]
def put(i, n): m[i * 4096:i * 4096 + 4096] = page(i, n)
def see(i, n): assert m[i * 4096:i * 4096 + 4096] == page(i, n), i
for i in range(N): put(i, 1)
for i in range(N): see(i, 1)
for o in range(7):
    for i in range(o, N, 7): see(i, 1)
places = random.Random(5)
for _ in range(2000): see(places.randrange(N), 1)
child = os.fork()
for k in range(N // 4):
    for s in range(4): see(s * (N // 4) + k, 1)
if child == 0: os._exit(7)
assert os.waitpid(child, 0)[1] == 7 << 8
for i in range(0, N, 3): put(i, 2)
m.madvise(mmap.MADV_DONTNEED, 4096 * 64, 4096 * 64)
for i in range(N):
    if 64 <= i < 128: assert m[i * 4096:i * 4096 + 4096] == bytes(4096)
    else: see(i, 2 if i % 3 == 0 else 1)
print('right')
";

fn run(options: &[(&str, &str)], script: &str) -> Option<Value> {
    let dir = Tmp::new();
    let file = dir.join("stats.json");
    let mut setup = Setup::new().option("--stats", &file.to_string_lossy());
    for (name, value) in options {
        setup = setup.option(name, value);
    }
    let end = setup.managed(RAM_BYTES, workloads::python()).args(["-c", script]).timeout_s(240).run().succeeded();
    assert_eq!(end.text(), "right\n");
    if plain_mode() {
        return None;
    }
    let stats = stats::read(&file);
    stats::nothing_lost(&stats).expect("nothing is lost");
    Some(stats)
}

fn number(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {stats:#}"))
}

/// Pages read ahead, hits, pages dropped, misses.
fn counts(stats: &Value) -> [u64; 4] {
    ["/pages/read_ahead", "/pages/ahead_hit", "/pages/ahead_dropped", "/faults/miss"].map(|path| number(stats, path))
}

/// With each policy and each fault source, pages are read ahead from the file, some are wanted, and all are right.
#[test]
fn what_is_read_ahead_from_the_file_is_right() {
    for (source, how) in
        [("move", "auto"), ("copy", "cluster"), ("guard", "neighbourhood"), ("mprotect", "strides"), ("move", "fixed")]
    {
        let options = [("--swap", "file,model=nvme"), ("--fault-source", source), ("--readahead", how)];
        let Some(stats) = run(&options, SCRIPT) else { return };
        let [ahead, hits, dropped, misses] = counts(&stats);
        assert!(ahead > 500 && hits > 300 && misses > 500, "{source}, {how}: {stats:#}");
        // A fork has a part of them twice.
        assert!(hits + dropped <= 2 * ahead, "{source}, {how}: {stats:#}");
        assert_eq!(number(&stats, "/faults/bypass"), 0, "{source}, {how}: the file is not memory");
    }
}

/// The default reads ahead only what lies in the file, and nothing where there is none.
#[test]
fn memory_is_not_read_ahead() {
    let Some(stats) = run(&[("--swap", "compressed")], SCRIPT) else { return };
    assert_eq!(counts(&stats), [0; 4], "{stats:#}");
    assert!(number(&stats, "/faults/bypass") > 1000, "{stats:#}");
    let stats = run(&[], SCRIPT).expect("not in plain mode");
    let [ahead, hits, ..] = counts(&stats);
    assert!(ahead > 0 && hits > 0 && number(&stats, "/faults/bypass") > 0, "{stats:#}");
}

/// Reads 48 MiB that do not compress four times over, having written them once.
const SCANS: &str = "\
import mmap, random
N = 12288
seed = random.Random(7).randbytes(8192)
m = mmap.mmap(-1, N * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def page(i): return i.to_bytes(8, 'little') + seed[i % 4096:i % 4096 + 4088]
for i in range(N): m[i * 4096:i * 4096 + 4096] = page(i)
for _ in range(4):
    for i in range(N): assert m[i * 4096:i * 4096 + 4096] == page(i), i
print('right')
";

/// What came from the file and was not written since is in the file: with each source, read ahead or not, through memory or not.
#[test]
fn what_was_only_read_is_not_written_to_the_file_again() {
    for (source, how, swap) in [
        ("move", "auto", "file"),
        ("copy", "off", "file"),
        ("guard", "auto", "file"),
        ("mprotect", "off", "file"),
        ("move", "auto", "compressed:4M,file"),
    ] {
        let options = [("--swap", swap), ("--fault-source", source), ("--readahead", how)];
        let Some(stats) = run(&options, SCANS) else { return };
        // Those that do not fit once, with some of the interpreter's own that change all the time; they leave again in each of the scans.
        let (out, clean) = (number(&stats, "/stores/file/pages_out"), number(&stats, "/pages/clean"));
        assert!((3000..14000).contains(&out) && clean > out, "{source}, {how}, {swap}: {stats:#}");
        assert_eq!(number(&stats, "/pages/read_ahead") > 0, how == "auto", "{source}, {how}, {swap}: {stats:#}");
    }
}

/// Folios have the orders that are switched on, and their content is right.
#[test]
fn orders_of_folios_are_switched_on_one_by_one() {
    for (orders, is_whole) in [("0", false), ("2", true), ("0,1,3", true), ("4,6", true), ("4,8", true)] {
        let Some(stats) = run(&[("--folio-orders", orders)], SCRIPT) else { return };
        assert_eq!(number(&stats, "/folios/out") > 100, is_whole, "{orders}: {stats:#}");
        assert!(is_whole || number(&stats, "/folios/in") == 0, "{orders}: {stats:#}");
    }
}

/// Writes 48 MiB in order, reads them in order and here and there, has parts leave, and writes some of them beside a child that reads all.
const ROUNDS: &str = "\
import mmap, os, random
N = 12288
seed = random.Random(7).randbytes(8192)
m = mmap.mmap(-1, N * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
written = [0] * N
def page(i): return (i * 7919 + written[i]).to_bytes(8, 'little') + seed[i % 2048:i % 2048 + 504] + bytes(3584)
def put(i):
    written[i] += 1
    m[i * 4096:i * 4096 + 4096] = page(i)
def see(i): assert m[i * 4096:i * 4096 + 4096] == page(i), i
places = random.Random(5)
for rounds in range(3):
    for i in range(N): put(i)
    for i in range(N): see(i)
    for _ in range(500): put(places.randrange(N))
    m.madvise(21, 4096 * 1000, 4096 * 3000)
    child = os.fork()
    if child == 0:
        for i in range(N): see(i)
        os._exit(7)
    for i in range(rounds, N, 5): put(i)
    assert os.waitpid(child, 0)[1] == 7 << 8
    for i in range(N): see(i)
print('right')
";

/// Folios of several blocks are stored in one piece, in memory and in the file, with each fault source, and their content is right.
#[test]
fn folios_of_several_blocks_are_right() {
    for (orders, source, swap) in [
        ("0,4,8,9", "move", "compressed"),
        ("4,7", "copy", "compressed:4M,file"),
        ("0,4,9", "guard", "file"),
        ("4,6,8", "mprotect", "compressed"),
    ] {
        let options = [("--folio-orders", orders), ("--fault-source", source), ("--swap", swap)];
        let Some(stats) = run(&options, ROUNDS) else { return };
        assert!(number(&stats, "/counters/folio_blocks") > 30, "{orders}, {source}, {swap}: {stats:#}");
    }
    let stats = run(&[("--swap", "compressed")], ROUNDS).expect("not in plain mode");
    assert_eq!(number(&stats, "/counters/folio_blocks"), 0, "{stats:#}");
}

#[test]
fn it_can_be_turned_off_in_several_ways() {
    let file = ("--swap", "file");
    for options in [("--readahead", "off"), ("--page-cluster", "0"), ("--mechanism", "readahead=off")] {
        let Some(stats) = run(&[file, options], SCRIPT) else { return };
        let [ahead, hits, dropped, misses] = counts(&stats);
        assert_eq!([ahead, hits, dropped], [0; 3], "{options:?}: {stats:#}");
        assert!(misses > 5000, "{options:?}: {stats:#}");
    }
}

#[test]
fn content_is_right_whichever_policy_evicts() {
    let sources = ["move", "copy", "guard", "mprotect"];
    for (reclaim, source) in [("fifo", "move")].into_iter().chain(sources.map(|source| ("sounded", source))) {
        let reclaim = format!("reclaim={reclaim}");
        let options = [("--mechanism", reclaim.as_str()), ("--fault-source", source), ("--swap", "compressed,file")];
        let Some(stats) = run(&options, SCRIPT) else { return };
        let back = ["/counters/pages_in_ram", "/counters/pages_in_file"].map(|path| number(&stats, path));
        assert!(back.iter().sum::<u64>() > 5000, "{options:?}: {stats:#}");
    }
}
