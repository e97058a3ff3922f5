//! `no-pressure` and `startup`: what Outswap costs a program that would not need it.
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Failure, Signals};
use crate::report::{self, Output};
use crate::stats::Summary;
use crate::units::Bytes;
use crate::{Outswap, say};

const TIMEOUT: Duration = Duration::from_secs(600);
/// Runs of `startup` to runs of its worker, which starts hundreds of programs by itself.
const STARTS_TO_WORKERS: u32 = 5;

/// Arguments of `no-pressure`.
#[derive(clap::Args)]
pub struct PressureArgs {
    /// Working set
    #[arg(long, default_value = "256M")]
    size: Bytes,
    /// Budget, above what the worker needs
    #[arg(long, default_value = "1G")]
    ram: Bytes,
    /// Runs; plain and under Outswap in turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    outswap: Outswap,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `startup`.
#[derive(clap::Args)]
pub struct StartupArgs {
    /// Runs; plain and under Outswap in turn
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The program that is started
    #[arg(long, default_value = "true")]
    program: String,
    #[command(flatten)]
    outswap: Outswap,
    #[command(flatten)]
    output: Output,
}

/// One thing that was timed, plain and under Outswap.
#[derive(Default)]
struct Pair {
    plain_ms: Vec<f64>,
    outswap_ms: Vec<f64>,
}

impl Pair {
    fn summaries(&self) -> (Option<Summary>, Option<Summary>) {
        (Summary::of(&self.plain_ms), Summary::of(&self.outswap_ms))
    }

    fn difference_ms(&self) -> Option<f64> {
        let (plain, outswap) = self.summaries();
        Some(outswap?.median - plain?.median)
    }

    fn ratio(&self) -> Option<f64> {
        let (plain, outswap) = self.summaries();
        report::ratio(outswap, plain)
    }

    fn row(&self, name: &str) -> Vec<String> {
        let (plain, outswap) = self.summaries();
        vec![
            name.to_owned(),
            report::spread(plain, 2),
            report::spread(outswap, 2),
            report::number(self.difference_ms(), 2),
            report::number(self.ratio(), 3),
        ]
    }

    fn json(&self, name: &str) -> Value {
        let (plain, outswap) = self.summaries();
        json!({
            "what": name,
            "plain_ms": self.plain_ms,
            "outswap_ms": self.outswap_ms,
            "plain_median_ms": plain.map(|s| s.median),
            "outswap_median_ms": outswap.map(|s| s.median),
            "difference_ms": self.difference_ms(),
            "outswap_to_plain_ratio": self.ratio(),
        })
    }
}

const HEAD: [&str; 5] = ["what", "plain, ms", "outswap, ms", "difference, ms", "outswap/plain"];

fn publish(
    benchmark: &str,
    settings: Value,
    notes: &[String],
    pairs: &[(&str, Pair)],
    to: &Output,
) -> Result<(), Failure> {
    let table = report::table(&HEAD, &pairs.iter().map(|(name, pair)| pair.row(name)).collect::<Vec<_>>());
    let results = pairs.iter().map(|(name, pair)| pair.json(name)).collect();
    let document = report::document(benchmark, settings, notes, results);
    report::publish(to, &document, &table).map_err(Failure::Failed)
}

/// The `outswap` to measure; without it, the plain side is still measured, with a note.
fn find(outswap: &Outswap) -> (Option<std::path::PathBuf>, Vec<String>) {
    match outswap.find() {
        Ok(path) => (Some(path), Vec::new()),
        Err(reason) => {
            let note = format!("outswap side not measured: {reason}");
            say(&note);
            (None, vec![note])
        }
    }
}

/// Runs `no-pressure`.
pub fn pressure_main(args: &PressureArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let signals = Signals::hold().map_err(failed)?;
    let exe = std::env::current_exe().map_err(failed)?;
    let (outswap, notes) = find(&args.outswap);
    let phases = ["fill", "rand-write", "malloc", "scattered", "files"];
    let mut pairs: Vec<(&str, Pair)> =
        phases.into_iter().chain(["phases together", "whole process"]).map(|name| (name, Pair::default())).collect();
    for turn in 1..=args.runs {
        let mut line = format!("no-pressure, run {turn} of {}:", args.runs);
        for under in [None, Some(outswap.as_ref())] {
            let mut command = match under {
                None => Command::new(&exe),
                Some(None) => continue,
                Some(Some(outswap)) => {
                    let mut command = Command::new(outswap);
                    command.arg("run").arg(format!("--ram={}", args.ram.0)).arg("--quiet");
                    command.args(&args.outswap.outswap_args).arg("--").arg(&exe);
                    command
                }
            };
            signals.warm_memory(&exe, args.size)?;
            let outcome = signals.run(command.arg("mixed-worker").arg(args.size.0.to_string()), None, TIMEOUT)?;
            let result: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
            let ms = |name: &str| {
                let value = result[name].as_u64().map(|ns| ns as f64 / 1e6);
                value.ok_or_else(|| Failure::Failed(format!("the worker printed `{}`", outcome.stdout.trim())))
            };
            let [fill, write, malloc] = [ms("fill_ns")?, ms("rand_write_ns")?, ms("malloc_ns")?];
            let [scattered, files] = [ms("scattered_ns")?, ms("files_ns")?];
            let together = fill + write + malloc + scattered + files;
            let times = [fill, write, malloc, scattered, files, together, outcome.wall.as_secs_f64() * 1e3];
            for ((_, pair), time) in pairs.iter_mut().zip(times) {
                if under.is_some() { &mut pair.outswap_ms } else { &mut pair.plain_ms }.push(time);
            }
            line += &format!(" {} {:.1} ms", if under.is_some() { "outswap" } else { "plain" }, together);
        }
        say(&line);
    }
    let settings = json!({
        "size_bytes": args.size.0,
        "ram_bytes": args.ram.0,
        "runs": args.runs,
        "outswap_args": args.outswap.outswap_args,
    });
    publish("no-pressure", settings, &notes, &pairs, &args.output)
}

/// Runs `startup`.
pub fn startup_main(args: &StartupArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let signals = Signals::hold().map_err(failed)?;
    let exe = std::env::current_exe().map_err(failed)?;
    let (outswap, notes) = find(&args.outswap);
    let mut pairs = [&args.program, "a program that it starts", "a fork of it"].map(|name| (name, Pair::default()));
    let command = |managed: bool, program: &std::ffi::OsStr| {
        let Some(outswap) = outswap.as_ref().filter(|_| managed) else { return Command::new(program) };
        let mut command = Command::new(outswap);
        command.args(["run", "--quiet"]).args(&args.outswap.outswap_args).arg("--").arg(program);
        command
    };
    // The first turn only warms the page cache.
    for turn in 0..=args.runs {
        for managed in [false, true] {
            if managed && outswap.is_none() {
                continue;
            }
            let whole = signals.run(&mut command(managed, args.program.as_ref()), None, TIMEOUT)?;
            let mut times = vec![whole.wall.as_secs_f64() * 1e3];
            // These take long, and scatter less.
            if turn <= args.runs.div_ceil(STARTS_TO_WORKERS) {
                let mut worker = command(managed, exe.as_os_str());
                let outcome = signals.run(worker.arg("start-worker").arg(&args.program), None, TIMEOUT)?;
                let result: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
                let ms = |name: &str| result[name].as_u64().map(|ns| ns as f64 / 1e6);
                let found = ms("program_ns").zip(ms("fork_ns"));
                let unknown = || Failure::Failed(format!("the worker printed `{}`", outcome.stdout.trim()));
                let (program, fork) = found.ok_or_else(unknown)?;
                times.extend([program, fork]);
            }
            if turn > 0 {
                for ((_, pair), time) in pairs.iter_mut().zip(times) {
                    if managed { &mut pair.outswap_ms } else { &mut pair.plain_ms }.push(time);
                }
            }
        }
    }
    let settings = json!({
        "program": args.program, "runs": args.runs, "outswap_args": args.outswap.outswap_args,
    });
    publish("startup", settings, &notes, &pairs, &args.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_gives_difference_and_ratio_of_medians() {
        let pair = Pair { plain_ms: vec![1.0, 9.0, 2.0], outswap_ms: vec![4.0, 3.0, 30.0] };
        assert_eq!(pair.difference_ms(), Some(2.0));
        let json = pair.json("true");
        assert_eq!(json["what"], "true");
        assert_eq!(json["plain_median_ms"], 2.0);
        assert_eq!(json["outswap_to_plain_ratio"], 2.0);
        assert_eq!(pair.row("true"), ["true", "2.00 (1.00-9.00)", "4.00 (3.00-30.00)", "2.00", "2.000"]);
    }

    #[test]
    fn a_pair_of_which_one_was_not_measured_has_no_ratio() {
        let pair = Pair { plain_ms: vec![1.0], outswap_ms: vec![] };
        assert_eq!(pair.json("true")["difference_ms"], Value::Null);
        assert_eq!(pair.row("true")[2..], ["-", "-", "-"]);
    }
}
