//! What experiments are made with: sides that take turns, workers, the kernel's swap, and the report.
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::chart::Chart;
use crate::experiments::verdict::Verdict;
use crate::process::{Failure, Signals};
use crate::report::{self, Output};
use crate::rig::{self, Counts, KernelSwap};
use crate::stats::Summary;
use crate::units::Bytes;
use crate::{Outswap, say};

/// What a worker runs under.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Side {
    /// Nothing: as much memory as it likes.
    Alone,
    /// A memory cgroup, and kernel swap on zram with LZ4.
    Kernel,
    /// `outswap run` with the same limit of resident memory.
    Outswap,
}

/// Arguments of every experiment.
#[derive(clap::Args)]
pub struct Common {
    /// Runs of each; the sides take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Measure only these sides
    #[arg(long, value_delimiter = ',', value_enum)]
    pub only: Vec<Side>,
    /// Run although another swap area is on (ours has the highest priority)
    #[arg(long)]
    pub allow_other_swap: bool,
    /// Seconds after which a run has failed
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    pub timeout: u64,
    /// Draw the figures as an SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub outswap: Outswap,
    #[command(flatten)]
    pub output: Output,
}

/// One run of a worker.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it printed.
    pub result: Value,
    /// What `outswap run --stats` wrote.
    pub stats: Option<Value>,
    /// What the kernel did to the group during the whole run.
    pub kernel: Option<Counts>,
}

impl Sample {
    /// A number of what the worker printed, by its JSON pointer.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.result.pointer(path).and_then(Value::as_f64)
    }

    /// A number of the statistics, by its JSON pointer.
    pub fn stat(&self, path: &str) -> Option<f64> {
        self.stats.as_ref()?.pointer(path).and_then(Value::as_f64)
    }

    /// What an access took in the mean, in us.
    pub fn per_page_us(&self) -> Option<f64> {
        quotient(self.number("/elapsed_ns"), self.number("/accesses")).map(|ns| ns / 1000.0)
    }

    /// What an access took in the mean that had to wait, in us.
    pub fn per_wait_us(&self) -> Option<f64> {
        quotient(self.number("/waits/sum_ns"), self.number("/waits/count")).map(|ns| ns / 1000.0)
    }
}

/// A worker on a side, with its runs.
pub struct Series {
    /// What tells it from the others of its group.
    pub name: String,
    /// What it runs under.
    pub side: Side,
    /// Arguments for `outswap run`.
    pub options: Vec<String>,
    /// Arguments of this benchmark that start the worker.
    pub worker: Vec<String>,
    /// Runs that ended well.
    pub samples: Vec<Sample>,
    /// Why one did not.
    pub failure: Option<String>,
}

impl Series {
    /// None has run yet.
    pub fn new(name: impl Into<String>, side: Side, options: &[&str], worker: &[String]) -> Series {
        Series {
            name: name.into(),
            side,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            worker: worker.to_vec(),
            samples: Vec::new(),
            failure: None,
        }
    }

    /// Median and range of a figure; none where a run failed, even if others ended well.
    pub fn summary(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        if self.failure.is_some() {
            return None;
        }
        Summary::of(&self.samples.iter().filter_map(value).collect::<Vec<_>>())
    }

    /// The median of a figure.
    pub fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.summary(value).map(|summary| summary.median)
    }

    /// The same for a table.
    pub fn shown(&self, digits: usize, value: impl Fn(&Sample) -> Option<f64>) -> String {
        if self.failure.is_some() { "FAILED".to_owned() } else { report::spread(self.summary(value), digits) }
    }

    fn json(&self) -> Value {
        let kernel = |counts: Counts| {
            json!({
                "major_faults": counts.major_faults,
                "pages_in": counts.pages_in,
                "pages_out": counts.pages_out,
                "oom_kills": counts.oom_kills,
            })
        };
        json!({
            "name": self.name,
            "options": self.options,
            "worker": self.worker,
            "runs": self.samples.iter().map(|sample| json!({
                "worker": sample.result,
                "kernel": sample.kernel.map(kernel),
                "outswap_stats": sample.stats,
            })).collect::<Vec<_>>(),
            "failure": self.failure,
        })
    }
}

/// Series that take turns.
pub struct Group {
    /// What is measured.
    pub name: String,
    /// On which sides, and how.
    pub series: Vec<Series>,
}

impl Group {
    /// The series of this name, where it is measured.
    pub fn find(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// The median of a figure of the series of this name.
    pub fn median(&self, name: &str, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.find(name)?.median(value)
    }

    /// For the report.
    pub fn json(&self) -> Value {
        json!({ "what": self.name, "series": self.series.iter().map(Series::json).collect::<Vec<_>>() })
    }
}

/// The quotient, where both are known.
pub fn quotient(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to.filter(|&to| to != 0.0)?)
}

/// What an experiment gives.
pub struct Report<'a> {
    /// Its name.
    pub benchmark: &'a str,
    /// How it was asked for.
    pub settings: Value,
    /// Tables, each with a line above it.
    pub tables: Vec<(String, String)>,
    /// The figures.
    pub results: Vec<Value>,
    /// Whether it paid.
    pub verdict: Verdict,
    /// A picture of it.
    pub chart: Chart<'a>,
}

/// The experiment while it runs.
pub struct Lab<'a> {
    common: &'a Common,
    signals: Signals,
    exe: PathBuf,
    outswap: Option<PathBuf>,
    kernel: Option<KernelSwap>,
    limit: Bytes,
    notes: Vec<String>,
}

fn failed(reason: String) -> Failure {
    Failure::Failed(reason)
}

impl<'a> Lab<'a> {
    /// Finds what can be measured. The kernel's swap has a device of `disk` bytes and a group with `limit`.
    pub fn open(common: &'a Common, disk: Bytes, limit: Bytes) -> Result<Lab<'a>, Failure> {
        let wants = |side| common.only.is_empty() || common.only.contains(&side);
        let others = rig::swaps();
        if wants(Side::Kernel) && !others.is_empty() && !common.allow_other_swap {
            let others = others.join(", ");
            return Err(failed(format!("other swap is on ({others}); turn it off or add --allow-other-swap")));
        }
        let signals = Signals::hold().map_err(|error| failed(error.to_string()))?;
        let exe = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut lab = Lab { common, signals, exe, outswap: None, kernel: None, limit, notes: Vec::new() };
        if wants(Side::Outswap) {
            match common.outswap.find() {
                Ok(path) => lab.outswap = Some(path),
                Err(reason) => lab.note(format!("outswap side not measured: {reason}")),
            }
        }
        if wants(Side::Kernel) {
            match KernelSwap::start(disk, limit) {
                Ok(swap) => {
                    say(&swap.describe());
                    lab.kernel = Some(swap);
                }
                Err(reason) => lab.note(format!("kernel side not measured: {reason}")),
            }
        }
        if [Side::Alone, Side::Kernel, Side::Outswap].into_iter().any(|side| lab.has(side)) {
            Ok(lab)
        } else {
            Err(failed("nothing is left to measure".to_owned()))
        }
    }

    /// Whether a side is measured.
    pub fn has(&self, side: Side) -> bool {
        match side {
            Side::Alone => self.common.only.is_empty() || self.common.only.contains(&side),
            Side::Kernel => self.kernel.is_some(),
            Side::Outswap => self.outswap.is_some(),
        }
    }

    /// Says something that belongs to the result.
    pub fn note(&mut self, note: String) {
        say(&note);
        self.notes.push(note);
    }

    /// Changes the limit of both sides.
    pub fn set_limit(&mut self, limit: Bytes) {
        self.limit = limit;
    }

    /// To start what is no worker.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The kernel's swap, where that side is measured.
    pub fn kernel(&self) -> Option<&KernelSwap> {
        self.kernel.as_ref()
    }

    /// This benchmark's own executable.
    pub fn exe(&self) -> &PathBuf {
        &self.exe
    }

    /// The policies of a mechanism that `outswap run --help` lists, by their names; the default first.
    pub fn policies(&mut self, mechanism: &str) -> Vec<String> {
        let Some(outswap) = &self.outswap else { return Vec::new() };
        let mut command = Command::new(outswap);
        command.args(["run", "--help"]);
        let help = self.signals.run(&mut command, None, Duration::from_secs(60));
        let names = listed(&help.map(|outcome| outcome.stdout).unwrap_or_default(), mechanism);
        if names.is_empty() {
            self.note(format!("`outswap run --help` names no way for --mechanism {mechanism}="));
        }
        names
    }

    /// `outswap run` with the limit, these options and a file for statistics; what it runs is to follow. On the other sides, just
    /// what is to run.
    pub fn command(&self, side: Side, options: &[String], program: &std::path::Path) -> Command {
        let Some(outswap) = self.outswap.as_ref().filter(|_| side == Side::Outswap) else {
            return Command::new(program);
        };
        let mut command = Command::new(outswap);
        command.arg("run").arg(format!("--resident={}", self.limit.0)).args(["--malloc=keep", "--quiet"]);
        command.arg("--stats").arg(self.stats_file()).args(options).args(&self.common.outswap.outswap_args);
        command.arg("--").arg(program);
        command
    }

    fn stats_file(&self) -> PathBuf {
        std::env::temp_dir().join(format!("outswap-bench-{}.json", std::process::id()))
    }

    /// What `outswap run` wrote since the last time, where it did.
    pub fn take_stats(&self) -> Option<Value> {
        let file = self.stats_file();
        let stats = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        // There is none where the run failed.
        let _ = fs::remove_file(file);
        stats
    }

    /// How long a run may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.common.timeout)
    }

    fn run(&self, series: &Series, warm: Bytes) -> Result<Sample, Failure> {
        let mut command = self.command(series.side, &series.options, &self.exe);
        command.args(&series.worker);
        self.signals.warm_memory(&self.exe, warm)?;
        let kernel = self.kernel.as_ref().filter(|_| series.side == Side::Kernel);
        if let Some(kernel) = kernel {
            kernel.set_limit(self.limit).map_err(failed)?;
        }
        let before = kernel.map(KernelSwap::counts).unwrap_or_default();
        let attention = kernel.map(KernelSwap::attend);
        let outcome = self.signals.run(&mut command, kernel.map(KernelSwap::procs), self.timeout());
        drop(attention);
        let kernel = kernel.map(|kernel| kernel.counts().since(before));
        let stats = if series.side == Side::Outswap { self.take_stats() } else { None };
        let killed = kernel.map_or(0, |counts| counts.oom_kills);
        let outcome = match outcome {
            Err(Failure::Failed(reason)) if killed > 0 => {
                return Err(failed(format!("{reason} (the kernel killed {killed}: out of memory)")));
            }
            outcome => outcome?,
        };
        if series.side == Side::Outswap && stats.as_ref().is_none_or(|stats| stats["managed"] != true) {
            return Err(failed("it ran without Outswap".to_owned()));
        }
        let result: Value = serde_json::from_str(&outcome.stdout)
            .map_err(|_| failed(format!("the worker printed `{}`", outcome.stdout.trim())))?;
        let sample = Sample { result, stats, kernel };
        match sample.number("/elapsed_ns") {
            Some(_) => Ok(sample),
            None => Err(failed(format!("the worker printed `{}`", outcome.stdout.trim()))),
        }
    }

    /// Lets the series of each group take turns. `warm` bytes are touched before each run. An error is a signal: what was
    /// measured before it is there.
    pub fn measure(&mut self, groups: &mut [Group], warm: Bytes) -> Result<(), libc::c_int> {
        for group in groups {
            group.series.retain(|series| self.has(series.side));
            for turn in 1..=self.common.runs {
                let mut line = format!("{}, run {turn} of {}:", group.name, self.common.runs);
                for series in &mut group.series {
                    if series.failure.is_some() {
                        continue;
                    }
                    match self.run(series, warm) {
                        Ok(sample) => {
                            let ms = sample.number("/elapsed_ns").unwrap_or(f64::NAN) / 1e6;
                            line += &format!(" {} {ms:.0} ms", series.name);
                            series.samples.push(sample);
                        }
                        Err(Failure::Interrupted(signal)) => {
                            self.note("interrupted: not all was measured".to_owned());
                            return Err(signal);
                        }
                        Err(Failure::Failed(reason)) => {
                            line += &format!(" {} FAILED: {reason}", series.name);
                            series.failure = Some(reason);
                        }
                    }
                }
                say(&line);
            }
        }
        Ok(())
    }

    /// Takes the kernel's swap down, and gives the report.
    pub fn finish(mut self, mut report: Report, signal: Option<libc::c_int>) -> Result<(), Failure> {
        let closed = self.kernel.take().map_or(Ok(()), KernelSwap::close);
        report.settings["runs"] = self.common.runs.into();
        report.settings["outswap_args"] = json!(self.common.outswap.outswap_args);
        let mut document = report::document(report.benchmark, report.settings, &self.notes, report.results);
        document["summary"] = report.verdict.json();
        let tables: String = report.tables.iter().map(|(title, table)| format!("{title}:\n\n{table}\n")).collect();
        let text = format!("{tables}{}\n", report.verdict.line());
        let drawn = match &self.common.svg {
            Some(path) => fs::write(path, report.chart.svg()).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(()),
        };
        let published = report::publish(&self.common.output, &document, &text);
        if let Some(signal) = signal {
            return Err(Failure::Interrupted(signal));
        }
        closed.and(drawn).and(published).map_err(failed)?;
        match report.verdict.failures {
            0 => Ok(()),
            wrong => Err(failed(format!("{wrong} measurements failed"))),
        }
    }
}

/// How many series failed.
pub fn failures(groups: &[Group]) -> usize {
    groups.iter().flat_map(|group| &group.series).filter(|series| series.failure.is_some()).count()
}

/// The policies of a mechanism in the text of the help: lines `MECHANISM=NAME: ...`; the default first.
fn listed(help: &str, mechanism: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in help.lines() {
        let Some(rest) = line.trim().strip_prefix(mechanism).and_then(|rest| rest.strip_prefix('=')) else { continue };
        let Some((name, _)) = rest.split_once(':') else { continue };
        match name.strip_suffix(", default") {
            Some(name) => names.insert(0, name.to_owned()),
            None => names.push(name.to_owned()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_from_the_help() {
        let help = "Mechanism reuse, how pages are known:\n    reuse=protect: by protection; else\n    \
                    reuse=hash, default: each is read: slow\nMechanism readahead, x:\n    readahead=off: nothing\n";
        assert_eq!(listed(help, "reuse"), ["hash", "protect"]);
        assert_eq!(listed(help, "readahead"), ["off"]);
        assert!(listed(help, "read").is_empty());
    }

    #[test]
    fn a_series_that_failed_once_has_no_figure() {
        let sample = |ms: u64| Sample { result: json!({"a": {"b": ms}}), stats: None, kernel: None };
        let mut series = Series::new("kernel", Side::Kernel, &[], &[]);
        assert_eq!(series.shown(1, |s| s.number("/a/b")), "-");
        series.samples = vec![sample(1), sample(9), sample(2)];
        assert_eq!(series.median(|s| s.number("/a/b")), Some(2.0));
        assert_eq!(series.median(|s| s.number("/a/c")), None);
        let mut group = Group { name: "g".to_owned(), series: vec![series] };
        assert_eq!(
            (failures(std::slice::from_ref(&group)), group.median("kernel", |s| s.number("/a/b"))),
            (0, Some(2.0))
        );
        group.series[0].failure = Some("content is wrong".to_owned());
        assert_eq!((failures(std::slice::from_ref(&group)), group.median("kernel", |s| s.number("/a/b"))), (1, None));
        assert_eq!(group.find("kernel").map(|s| s.shown(1, |s| s.number("/a/b"))), Some("FAILED".to_owned()));
        assert_eq!(group.json()["series"][0]["failure"], "content is wrong");
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(quotient(Some(1.0), Some(4.0)), Some(0.25));
        assert_eq!((quotient(Some(1.0), Some(0.0)), quotient(None, Some(1.0))), (None, None));
    }
}
