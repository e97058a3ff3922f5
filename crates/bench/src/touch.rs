//! `touch`: the same work alone, under the kernel's swap on zram, and under Outswap.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::process::{Failure, Signals};
use crate::report::{self, Output};
use crate::rig::{self, KernelSwap};
use crate::stats::Summary;
use crate::units::Bytes;
use crate::worker::Workload;
use crate::{Outswap, say};

/// What a workload runs under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Side {
    /// Nothing: as much memory as it likes.
    Alone,
    /// A memory cgroup, and kernel swap on zram with LZ4.
    Kernel,
    /// `outswap run` with the same limit of resident memory, and a compressed pool with LZ4.
    Outswap,
}

impl Side {
    const ALL: [Side; 3] = [Side::Alone, Side::Kernel, Side::Outswap];

    fn name(self) -> &'static str {
        match self {
            Side::Alone => "alone",
            Side::Kernel => "kernel",
            Side::Outswap => "outswap",
        }
    }
}

/// Arguments of `touch`.
#[derive(clap::Args)]
pub struct Args {
    /// Working set
    #[arg(long, default_value = "1G")]
    size: Bytes,
    /// Limit of resident memory
    #[arg(long, default_value = "256M")]
    resident: Bytes,
    /// Numbers of threads; each works on its own contiguous share
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    threads: Vec<usize>,
    /// Workloads
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "fill,seq,falling,strided,interleaved,rand-read,rand-write,zipf"
    )]
    workloads: Vec<Workload>,
    /// Runs of each; the sides take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure only these sides
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Side>,
    /// Run although another swap area is on (ours has the highest priority)
    #[arg(long)]
    allow_other_swap: bool,
    /// Seconds after which a run has failed
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    outswap: Outswap,
    #[command(flatten)]
    output: Output,
}

/// One run of a worker.
#[derive(Clone, Debug)]
struct Run {
    elapsed_ns: u64,
    accesses: u64,
    peak_rss_bytes: u64,
    /// Pages that the kernel moved to and from swap during the run.
    swap_pages: (u64, u64),
    /// What `outswap run --stats` wrote.
    stats: Option<Value>,
}

impl Run {
    fn per_page_us(&self) -> f64 {
        self.elapsed_ns as f64 / self.accesses as f64 / 1000.0
    }
}

/// All runs of a workload with some threads.
struct Cell {
    workload: Workload,
    threads: usize,
    runs: BTreeMap<Side, Vec<Run>>,
    failures: BTreeMap<Side, String>,
}

impl Cell {
    /// A side that failed has no numbers, even if some runs ended well.
    fn summary(&self, side: Side) -> Option<Summary> {
        if self.failures.contains_key(&side) {
            return None;
        }
        Summary::of(&self.runs.get(&side)?.iter().map(Run::per_page_us).collect::<Vec<_>>())
    }

    fn ratio(&self) -> Option<f64> {
        report::ratio(self.summary(Side::Outswap), self.summary(Side::Kernel))
    }

    fn row(&self) -> Vec<String> {
        let shown = |&side: &Side| match self.failures.get(&side) {
            Some(_) => "FAILED".to_owned(),
            None => report::spread(self.summary(side), 2),
        };
        let mut row = vec![self.workload.name().to_owned(), self.threads.to_string()];
        row.extend(Side::ALL.iter().map(shown));
        row.push(report::number(self.ratio(), 2));
        row
    }

    fn json(&self) -> Value {
        let side = |side: Side| {
            let runs = self.runs.get(&side)?;
            let summary = self.summary(side);
            let each = |value: fn(&Run) -> u64| runs.iter().map(value).collect::<Vec<_>>();
            Some(json!({
                "elapsed_ns": each(|run| run.elapsed_ns),
                "accesses": runs.first().map(|run| run.accesses),
                "median_per_page_us": summary.map(|s| s.median),
                "min_per_page_us": summary.map(|s| s.min),
                "max_per_page_us": summary.map(|s| s.max),
                "peak_rss_bytes": each(|run| run.peak_rss_bytes),
                "kernel_swap_in_pages": each(|run| run.swap_pages.0),
                "kernel_swap_out_pages": each(|run| run.swap_pages.1),
                "outswap_stats": runs.last().and_then(|run| run.stats.clone()),
                "failure": self.failures.get(&side),
            }))
        };
        let sides = |s: Side| Some((s.name().to_owned(), side(s)?));
        json!({
            "workload": self.workload.name(),
            "threads": self.threads,
            "sides": Side::ALL.into_iter().filter_map(sides).collect::<serde_json::Map<_, _>>(),
            "outswap_to_kernel_ratio": self.ratio(),
        })
    }
}

/// What is measured with.
struct Bench<'a> {
    args: &'a Args,
    signals: &'a Signals,
    exe: PathBuf,
    outswap: Option<PathBuf>,
    kernel: Option<KernelSwap>,
}

impl Bench<'_> {
    fn run(&self, side: Side, workload: Workload, threads: usize) -> Result<Run, Failure> {
        let stats_file = std::env::temp_dir().join(format!("outswap-bench-{}.json", std::process::id()));
        let mut command = match (side, &self.outswap) {
            (Side::Outswap, Some(outswap)) => {
                let mut command = Command::new(outswap);
                command.arg("run").arg(format!("--resident={}", self.args.resident.0));
                command.args(["--swap=compressed:lz4", "--malloc=keep", "--quiet"]).arg("--stats").arg(&stats_file);
                command.args(&self.args.outswap.outswap_args).arg("--").arg(&self.exe);
                command
            }
            _ => Command::new(&self.exe),
        };
        command.arg("touch-worker").arg(workload.name());
        command.arg(self.args.size.0.to_string()).arg(threads.to_string());
        let procs = self.kernel.as_ref().filter(|_| side == Side::Kernel).map(KernelSwap::procs);
        self.signals.warm_memory(&self.exe, self.args.size)?;
        let before = rig::swap_pages();
        let outcome = self.signals.run(&mut command, procs, Duration::from_secs(self.args.timeout));
        let after = rig::swap_pages();
        let stats = std::fs::read_to_string(&stats_file).ok().and_then(|text| serde_json::from_str(&text).ok());
        if side == Side::Outswap {
            // There is none where the run failed.
            let _ = std::fs::remove_file(&stats_file);
        }
        let outcome = outcome?;
        let result: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        let number = |name: &str| {
            let value = result[name].as_u64();
            value.ok_or_else(|| Failure::Failed(format!("the worker printed `{}`", outcome.stdout.trim())))
        };
        Ok(Run {
            elapsed_ns: number("elapsed_ns")?,
            accesses: number("accesses")?,
            peak_rss_bytes: number("peak_rss_bytes")?,
            swap_pages: (after.0 - before.0, after.1 - before.1),
            stats,
        })
    }

    /// Measures one cell. On a signal, gives what was measured before it.
    fn cell(&self, sides: &[Side], workload: Workload, threads: usize) -> (Cell, Option<libc::c_int>) {
        let mut cell = Cell { workload, threads, runs: BTreeMap::new(), failures: BTreeMap::new() };
        for turn in 1..=self.args.runs {
            let mut line = format!("{}, threads {threads}, run {turn} of {}:", workload.name(), self.args.runs);
            for &side in sides {
                if cell.failures.contains_key(&side) {
                    continue;
                }
                match self.run(side, workload, threads) {
                    Ok(run) => {
                        line += &format!(" {} {:.2} us", side.name(), run.per_page_us());
                        cell.runs.entry(side).or_default().push(run);
                    }
                    Err(Failure::Interrupted(signal)) => return (cell, Some(signal)),
                    Err(Failure::Failed(reason)) => {
                        say(&format!("{}, threads {threads}, {}: {reason}", workload.name(), side.name()));
                        cell.runs.entry(side).or_default();
                        cell.failures.insert(side, reason);
                    }
                }
            }
            say(&line);
        }
        (cell, None)
    }
}

/// Runs the benchmark.
pub fn main(args: &Args) -> Result<(), Failure> {
    let failed = |reason: String| Failure::Failed(reason);
    let mut sides = if args.only.is_empty() { Side::ALL.to_vec() } else { args.only.clone() };
    sides.sort();
    sides.dedup();
    let others = rig::swaps();
    if sides.contains(&Side::Kernel) && !others.is_empty() && !args.allow_other_swap {
        let others = others.join(", ");
        return Err(failed(format!("other swap is on ({others}); turn it off or add --allow-other-swap")));
    }
    let signals = Signals::hold().map_err(|error| failed(error.to_string()))?;
    let mut notes = Vec::new();
    let mut leave_out = |side: Side, reason: String, sides: &mut Vec<Side>| {
        let note = format!("{} side not measured: {reason}", side.name());
        say(&note);
        notes.push(note);
        sides.retain(|&s| s != side);
    };
    let outswap = args.outswap.find();
    if let (true, Err(reason)) = (sides.contains(&Side::Outswap), &outswap) {
        leave_out(Side::Outswap, reason.clone(), &mut sides);
    }
    let mut kernel = None;
    if sides.contains(&Side::Kernel) {
        // Twice the working set: the device is never what is short.
        match KernelSwap::start(Bytes(args.size.0.saturating_mul(2)), args.resident) {
            Ok(swap) => {
                say(&swap.describe());
                kernel = Some(swap);
            }
            Err(reason) => leave_out(Side::Kernel, reason, &mut sides),
        }
    }
    if sides.is_empty() {
        return Err(failed("nothing is left to measure".to_owned()));
    }
    let exe = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut bench = Bench { args, signals: &signals, exe, outswap: outswap.ok(), kernel };
    let (mut cells, mut interrupted) = (Vec::new(), None);
    'all: for &workload in &args.workloads {
        for &threads in &args.threads {
            let (cell, signal) = bench.cell(&sides, workload, threads);
            cells.push(cell);
            if signal.is_some() {
                interrupted = signal;
                notes.push("interrupted: not all was measured".to_owned());
                break 'all;
            }
        }
    }
    let closed = bench.kernel.take().map_or(Ok(()), KernelSwap::close);
    let head = ["workload", "threads", "alone, us/page", "kernel, us/page", "outswap, us/page", "outswap/kernel"];
    let table = report::table(&head, &cells.iter().map(Cell::row).collect::<Vec<_>>());
    let settings = json!({
        "size_bytes": args.size.0,
        "resident_bytes": args.resident.0,
        "runs": args.runs,
        "outswap_args": args.outswap.outswap_args,
    });
    let document = report::document("touch", settings, &notes, cells.iter().map(Cell::json).collect());
    let published = report::publish(&args.output, &document, &table);
    if let Some(signal) = interrupted {
        return Err(Failure::Interrupted(signal));
    }
    closed.and(published).map_err(failed)?;
    let wrong: usize = cells.iter().map(|cell| cell.failures.len()).sum();
    if wrong == 0 { Ok(()) } else { Err(failed(format!("{wrong} measurements failed"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(elapsed_ns: u64) -> Run {
        Run { elapsed_ns, accesses: 1000, peak_rss_bytes: 4096, swap_pages: (5, 6), stats: Some(json!({"v": 1})) }
    }

    fn cell() -> Cell {
        let runs = [
            (Side::Alone, vec![run(1_000_000), run(3_000_000), run(2_000_000)]),
            (Side::Kernel, vec![run(8_000_000), run(9_000_000), run(10_000_000)]),
            (Side::Outswap, vec![run(4_500_000), run(4_000_000), run(5_000_000)]),
        ];
        Cell { workload: Workload::Seq, threads: 2, runs: BTreeMap::from(runs), failures: BTreeMap::new() }
    }

    #[test]
    fn a_cell_in_json_has_every_side_with_its_runs_and_the_ratio() {
        let json = cell().json();
        assert_eq!(json["workload"], "seq");
        assert_eq!(json["threads"], 2);
        assert_eq!(json["outswap_to_kernel_ratio"], 0.5);
        assert_eq!(json["sides"]["alone"]["median_per_page_us"], 2.0);
        assert_eq!(json["sides"]["alone"]["min_per_page_us"], 1.0);
        assert_eq!(json["sides"]["alone"]["max_per_page_us"], 3.0);
        assert_eq!(json["sides"]["kernel"]["elapsed_ns"], json!([8_000_000, 9_000_000, 10_000_000]));
        assert_eq!(json["sides"]["kernel"]["kernel_swap_out_pages"], json!([6, 6, 6]));
        assert_eq!(json["sides"]["outswap"]["outswap_stats"]["v"], 1);
        assert_eq!(json["sides"]["outswap"]["failure"], Value::Null);
    }

    #[test]
    fn a_failed_side_has_neither_number_nor_ratio() {
        let mut cell = cell();
        cell.failures.insert(Side::Outswap, "content is wrong".to_owned());
        let json = cell.json();
        assert_eq!(json["sides"]["outswap"]["failure"], "content is wrong");
        assert_eq!(json["sides"]["outswap"]["median_per_page_us"], Value::Null);
        assert_eq!(json["outswap_to_kernel_ratio"], Value::Null);
        assert_eq!(cell.row(), ["seq", "2", "2.00 (1.00-3.00)", "9.00 (8.00-10.00)", "FAILED", "-"]);
    }

    #[test]
    fn a_side_that_was_left_out_is_absent() {
        let mut cell = cell();
        cell.runs.remove(&Side::Kernel);
        assert_eq!(cell.json()["sides"].get("kernel"), None);
        assert_eq!(cell.row()[3..], ["-", "4.50 (4.00-5.00)", "-"]);
    }
}
