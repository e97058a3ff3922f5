//! `redis`: a server with most of its data over the limit, under the kernel's swap and under Outswap.
mod wire;
pub mod load;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::chart::{self, Chart};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::redis::load::PHASES;
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::programs::peak::Sampler;
use crate::report;
use crate::rig::KernelSwap;
use crate::units::{Bytes, PAGE_BYTES};

/// Operations a second to the kernel's, at least, and the 99th percentile, at most.
const OPS_WANTED: f64 = 1.5;
const P99_WANTED: f64 = 0.5;
/// As published of reuse: operations a second and mean latency in ms, before and after.
const PUBLISHED: [[&str; 4]; 2] =
    [["published: ops/s", "109497", "155428", "+41 %"], ["published: latency, ms", "2.297", "1.603", "-30 %"]];
/// `outswap run --resident` takes no less.
const LEAST_LIMIT: u64 = 4 << 20;
/// What the server needs besides values, for each key, when sizes are guessed.
const KEY_BYTES: u64 = 160;

/// Arguments of `redis`.
#[derive(clap::Args)]
pub struct Args {
    /// Keys
    #[arg(long, default_value_t = 250_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: u32,
    /// Size of a value, at most 64K; it compresses to about half
    #[arg(long, default_value = "1K")]
    value: Bytes,
    /// Requests in each phase
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// The part of the server's anonymous memory that is over the limit, in hundredths
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=95))]
    over: u32,
    /// Connections of the client
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Requests that wait for answers on each of them
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// Exponent of the Zipf law, not 1
    #[arg(long, default_value_t = 0.99)]
    exponent: f64,
    #[command(flatten)]
    common: Common,
}

/// Where the server runs; it goes away with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("outswap-bench-redis-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind, it would do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The server, and how it is asked.
struct Bench<'a> {
    args: &'a Args,
    server: PathBuf,
    folder: Folder,
}

impl Bench<'_> {
    /// Runs server and client once. With `peak_bytes`, looks at how much anonymous memory the server has at most.
    fn once(&self, lab: &Lab, side: Side, limit: Bytes, peak_bytes: Option<&mut u64>) -> Result<Sample, Failure> {
        let socket = self.folder.socket();
        // One that was killed may have left it.
        let _ = fs::remove_file(&socket);
        let mut command = lab.command(side, &["--swap=compressed:lz4".to_owned()], &self.server);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"]);
        command.arg(&socket).current_dir(&self.folder.0).stdin(Stdio::null()).stdout(Stdio::null());
        let kernel = lab.kernel().filter(|_| side == Side::Kernel);
        lab.signals().warm_memory(lab.exe(), self.data())?;
        if let Some(kernel) = kernel {
            kernel.set_limit(limit).map_err(Failure::Failed)?;
        }
        let before = kernel.map(KernelSwap::counts).unwrap_or_default();
        let attention = kernel.map(KernelSwap::attend);
        let mut running = lab.signals().start(&mut command, kernel.map(KernelSwap::procs))?;
        let sampler = peak_bytes.is_some().then(|| Sampler::start(running.id()));
        let args = self.args;
        let mut client = Command::new(lab.exe());
        client.arg("redis-load").arg(&socket).args([args.keys.to_string(), args.value.0.to_string()]);
        client.args([args.requests.to_string(), args.connections.to_string(), args.pipeline.to_string()]);
        client.arg(args.exponent.to_string());
        let asked = lab.signals().run(&mut client, None, lab.timeout());
        if let (Some(peak_bytes), Some(sampler)) = (peak_bytes, sampler) {
            *peak_bytes = sampler.finish();
        }
        // Where the client failed, the server, which would wait for ever, is killed as it is dropped.
        let ended = asked.and_then(|asked| lab.signals().finish(&mut running, lab.timeout()).map(|_| asked));
        drop(attention);
        let counts = kernel.map(|kernel| kernel.counts().since(before));
        let stats = if side == Side::Outswap { lab.take_stats() } else { None };
        let killed = counts.map_or(0, |counts| counts.oom_kills);
        let outcome = match ended {
            Err(Failure::Failed(reason)) if killed > 0 => {
                return Err(Failure::Failed(format!("{reason} (the kernel killed {killed}: out of memory)")));
            }
            ended => ended?,
        };
        if side == Side::Outswap && stats.as_ref().is_none_or(|stats| stats["managed"] != true) {
            return Err(Failure::Failed("it ran without Outswap".to_owned()));
        }
        let result: Value = serde_json::from_str(&outcome.stdout)
            .map_err(|_| Failure::Failed(format!("the client printed `{}`", outcome.stdout.trim())))?;
        Ok(Sample { result, stats, kernel: counts })
    }

    /// About what the server's data take.
    fn data(&self) -> Bytes {
        Bytes(u64::from(self.args.keys) * (self.args.value.0 + KEY_BYTES))
    }
}

/// The limit under which so many hundredths of the data are over it, in whole pages.
fn limit_of(data: Bytes, over_percent: u32) -> Bytes {
    let page = PAGE_BYTES as u64;
    Bytes((data.0 / 100 * u64::from(100 - over_percent) / page * page).max(LEAST_LIMIT))
}

fn in_phase(sample: &Sample, phase: &str, name: &str) -> Option<f64> {
    let phases = sample.result["phases"].as_array()?;
    phases.iter().find(|p| p["phase"] == phase)?[name].as_f64()
}

fn ops(sample: &Sample, phase: &str) -> Option<f64> {
    in_phase(sample, phase, "requests_per_s")
}

fn us(sample: &Sample, phase: &str, percentile: &str) -> Option<f64> {
    in_phase(sample, phase, percentile).map(|ns| ns / 1000.0)
}

const HEAD: [&str; 9] = [
    "requests",
    "side",
    "ops/s",
    "to the kernel's",
    "p50, us",
    "p99, us",
    "to the kernel's",
    "p99.9, us",
    "client, % of a processor",
];

fn rows(group: &Group) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for phase in PHASES {
        for series in &group.series {
            let to_kernel = |value: &dyn Fn(&Sample) -> Option<f64>| {
                report::number(quotient(series.median(value), group.median("kernel", value)), 2)
            };
            let busy = series.median(|s| in_phase(s, phase, "client_busy")).map(|part| part * 100.0);
            rows.push(vec![
                phase.to_owned(),
                series.name.clone(),
                series.shown(0, |s| ops(s, phase)),
                to_kernel(&|s| ops(s, phase)),
                report::number(series.median(|s| us(s, phase, "p50_ns")), 0),
                report::number(series.median(|s| us(s, phase, "p99_ns")), 0),
                to_kernel(&|s| us(s, phase, "p99_ns")),
                report::number(series.median(|s| us(s, phase, "p999_ns")), 0),
                report::number(busy, 0),
            ]);
        }
    }
    rows
}

fn published(group: &Group) -> String {
    let change = |before: Option<f64>, after: Option<f64>| {
        quotient(after, before).map_or("-".to_owned(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0))
    };
    let mut rows: Vec<Vec<String>> = PUBLISHED.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
    for phase in PHASES {
        let of = |name: &str| group.median(name, |s| ops(s, phase));
        let (kernel, outswap) = (of("kernel"), of("outswap"));
        let row = [format!("here: ops/s, {phase}"), report::number(kernel, 0), report::number(outswap, 0)];
        rows.push([&row[..], &[change(kernel, outswap)]].concat());
    }
    report::table(&["", "before (here: kernel)", "after (here: Outswap)", "change"], &rows)
}

/// Runs `redis`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let server = find("redis-server").ok_or(Failure::Failed("there is no redis-server".to_owned()))?;
    if args.exponent <= 0.0 || args.exponent == 1.0 || args.value.0 > 64 << 10 {
        return Err(Failure::Failed("--exponent is positive and not 1, and --value at most 64K".to_owned()));
    }
    let bench = Bench { args, server, folder: Folder::new().map_err(Failure::Failed)? };
    let disk = Bytes(bench.data().0.saturating_mul(3).max(64 << 20));
    let mut lab = Lab::open(&args.common, disk, disk)?;
    let mut data_bytes = 0;
    let reference = bench.once(&lab, Side::Alone, disk, Some(&mut data_bytes))?;
    let (data, limit) = (Bytes(data_bytes), limit_of(Bytes(data_bytes), args.over));
    crate::say(&format!(
        "{} KiB of anonymous memory without a limit; the limit is {} KiB",
        data.0 >> 10,
        limit.0 >> 10
    ));
    if limit.0 >= data.0 {
        lab.note("The limit is the least that there is, and not less than the data: nothing is swapped.".to_owned());
    }
    lab.set_limit(limit);
    let sides = [("alone", Side::Alone), ("kernel", Side::Kernel), ("outswap", Side::Outswap)];
    let measured = sides.into_iter().filter(|&(_, side)| lab.has(side));
    let series = measured.map(|(name, side)| Series::new(name, side, &["--swap=compressed:lz4"], &[])).collect();
    let mut group = Group { name: "redis".to_owned(), series };
    let mut signal = None;
    'all: for turn in 1..=args.common.runs {
        let mut line = format!("redis, run {turn} of {}:", args.common.runs);
        for series in group.series.iter_mut().filter(|series| series.failure.is_none()) {
            match bench.once(&lab, series.side, limit, None) {
                Ok(sample) => {
                    line += &format!(" {} {:.0}/s", series.name, ops(&sample, PHASES[0]).unwrap_or(f64::NAN));
                    series.samples.push(sample);
                }
                Err(Failure::Interrupted(pending)) => {
                    lab.note("interrupted: not all was measured".to_owned());
                    signal = Some(pending);
                    break 'all;
                }
                Err(Failure::Failed(reason)) => {
                    line += &format!(" {} FAILED: {reason}", series.name);
                    series.failure = Some(reason);
                }
            }
        }
        crate::say(&line);
    }
    lab.note(format!(
        "{} keys with values of {}, {} connections with {} requests each; every value is compared. Alone is the server without a limit: more \
         than that the client has not been seen to ask for; where the client takes a whole processor, it is what limits. The limit is {} % \
         of the server's RssAnon without one.",
        args.keys,
        args.value,
        args.connections,
        args.pipeline,
        100 - args.over
    ));
    let extreme = |pick: fn(f64, f64) -> f64, value: &dyn Fn(&Sample, &str) -> Option<f64>| {
        let ratio = |&phase: &&str| {
            let of = |name: &str| group.median(name, |s| value(s, phase));
            quotient(of("outswap"), of("kernel"))
        };
        PHASES.iter().filter_map(ratio).reduce(pick)
    };
    let checks = vec![
        Check::new("ops/s to the kernel's, at worst", extreme(f64::min, &ops), Bound::AtLeast(OPS_WANTED)),
        Check::new(
            "p99 to the kernel's, at worst",
            extreme(f64::max, &|s, phase| us(s, phase, "p99_ns")),
            Bound::AtMost(P99_WANTED),
        ),
    ];
    let legend: Vec<String> = group.series.iter().map(|series| series.name.clone()).collect();
    let bars: Vec<chart::Group> = PHASES
        .iter()
        .map(|&phase| chart::Group {
            name: phase.to_owned(),
            values: group.series.iter().map(|s| s.median(|s| ops(s, phase)).map(|ops| ops / 1000.0)).collect(),
        })
        .collect();
    let tables = vec![
        (format!("{} MiB of data in {} MiB", data.0 >> 20, limit.0 >> 20), report::table(&HEAD, &rows(&group))),
        ("Beside what was published of reuse (16 virtual machines, NVMe swap)".to_owned(), published(&group)),
    ];
    let report = Report {
        benchmark: "redis",
        settings: json!({
            "keys": args.keys, "value_bytes": args.value.0, "requests": args.requests, "connections": args.connections,
            "pipeline": args.pipeline, "exponent": args.exponent, "over_percent": args.over,
            "data_bytes": data.0, "limit_bytes": limit.0, "server": version(&bench.server),
        }),
        tables,
        results: vec![group.json(), json!({ "what": "the run that was looked at", "worker": reference.result })],
        verdict: Verdict { checks, failures: failures(std::slice::from_ref(&group)) },
        chart: Chart {
            title: "redis-server with most of its data over the limit",
            legend: &legend,
            groups: &bars,
            mark: None,
            caption: "Thousand operations a second.",
        },
    };
    lab.finish(report, signal)
}

/// What the server says it is.
fn version(server: &Path) -> Option<String> {
    let output = Command::new(server).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_leaves_so_much_of_the_data_over_it() {
        assert_eq!(limit_of(Bytes(100 << 20), 60), Bytes(41_943_040));
        assert_eq!(limit_of(Bytes(100 << 20), 0), Bytes(104_857_600));
        assert_eq!(limit_of(Bytes(5 << 20), 60), Bytes(LEAST_LIMIT));
    }

    #[test]
    fn figures_are_found_by_their_phase() {
        let result = json!({ "phases": [{ "phase": "get-zipf", "requests_per_s": 5.0, "p99_ns": 4000.0 }] });
        let sample = Sample { result, stats: None, kernel: None };
        assert_eq!((ops(&sample, "get-zipf"), us(&sample, "get-zipf", "p99_ns")), (Some(5.0), Some(4.0)));
        assert_eq!((ops(&sample, "get-uniform"), us(&sample, "get-zipf", "p50_ns")), (None, None));
    }
}
