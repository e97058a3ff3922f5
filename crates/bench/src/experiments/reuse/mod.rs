//! `reuse`: how many evictions need no write, from mixtures that only read to those that only write, and after a fork.
//!
//! Of Liang Zhang, "mm: reuse the unshared swapcache page in do_wp_page", 2022: what a store holds already is not written again,
//! and after a fork only what is truly shared is copied.
pub mod worker;

use serde_json::json;

use crate::chart::{self, Chart};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::report;
use crate::units::{Bytes, PAGE_BYTES};

/// Operations a second before and after, as published.
const PUBLISHED_OPS: (&str, &str, &str) = ("109497", "155428", "+41 %");
/// Where so much is copied before there is a child, what a fork adds is not seen.
const TELLING_SHARE: f64 = 0.5;
/// Evictions that need no write where nothing is written: at least this part of what was written once.
const CLEAN_WANTED: f64 = 0.9;

/// Arguments of `reuse`.
#[derive(clap::Args)]
pub struct Args {
    /// Memory that is read and written
    #[arg(long, default_value = "128M")]
    size: Bytes,
    /// Limit of resident memory
    #[arg(long, default_value = "32M")]
    resident: Bytes,
    /// Accesses that write, in hundredths
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,90,100", value_parser = clap::value_parser!(u32).range(0..=100))]
    writes: Vec<u32>,
    /// Accesses, for each page of the memory
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// Ways to know what is clean (`outswap run --mechanism reuse=`) [default: all that there are]
    #[arg(long, value_delimiter = ',')]
    reuse: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// The phases that count: in the first, what was never swapped out goes for the first time.
const COUNTED: std::ops::Range<usize> = 1..3;

/// A sum of a counter of Outswap's.
fn counted(sample: &Sample, name: &str) -> Option<f64> {
    COUNTED.map(|phase| in_phase(sample, phase, name)).sum()
}

fn in_phase(sample: &Sample, phase: usize, name: &str) -> Option<f64> {
    sample.number(&format!("/phases/{phase}/outswap/{name}"))
}

/// Pages that went to a store, and those that went back without a write.
fn evictions(sample: &Sample) -> Option<(f64, f64)> {
    let written = counted(sample, "pages_out_ram")? + counted(sample, "pages_out_file")?;
    Some((written, counted(sample, "pages_clean")?))
}

/// The part of evictions that needed no write.
fn unwritten_share(sample: &Sample) -> Option<f64> {
    let (written, clean) = evictions(sample)?;
    quotient(Some(clean), Some(written + clean))
}

/// Pages written to swap for each that came back. With as many coming as going, that is for each that was evicted.
fn writes_per_page_in(sample: &Sample) -> Option<f64> {
    let sum = |name: &str| COUNTED.map(|phase| sample.number(&format!("/phases/{phase}/{name}"))).sum::<Option<f64>>();
    let outswap = |names: [&str; 2]| names.iter().map(|name| counted(sample, name)).sum::<Option<f64>>();
    match outswap(["pages_out_ram", "pages_out_file"]) {
        Some(out) => quotient(Some(out), outswap(["pages_in_ram", "pages_in_file"])),
        None => quotient(sum("swap_out_pages"), sum("swap_in_pages")),
    }
}

fn per_access_us(sample: &Sample) -> Option<f64> {
    quotient(sample.number("/elapsed_ns"), sample.number("/accesses")).map(|ns| ns / 1000.0)
}

/// Copied pages for each page taken, in a phase.
fn copied_share(sample: &Sample, phase: usize) -> Option<f64> {
    quotient(in_phase(sample, phase, "pages_taken_by_copy"), in_phase(sample, phase, "pages_taken"))
}

/// Pages that were copied because of the fork: those beyond what would have been without it, at the rate of the phase before.
fn copied_by_fork(sample: &Sample) -> Option<f64> {
    // A fault source that copies everything anyway cannot tell.
    let usual = copied_share(sample, 0).filter(|&share| share < TELLING_SHARE)?;
    let beyond = |phase| {
        let (copied, taken) =
            (in_phase(sample, phase, "pages_taken_by_copy")?, in_phase(sample, phase, "pages_taken")?);
        Some(copied - usual * taken)
    };
    Some((beyond(1)? + beyond(2)?).max(0.0))
}

/// What `outswap run` is told of a way to know what is clean.
fn series_of(way: &str, worker: &[String]) -> Series {
    let mechanism = format!("--mechanism=reuse={way}");
    Series::new(way, Side::Outswap, &["--swap=compressed:lz4", &mechanism], worker)
}

const HEAD: [&str; 9] = [
    "writes, %",
    "side",
    "us an access",
    "to the kernel's",
    "evictions",
    "no write, %",
    "not looked at, %",
    "taken over in place",
    "written a page in",
];

fn rows(group: &Group) -> Vec<Vec<String>> {
    let percent = |value: Option<f64>| report::number(value.map(|value| value * 100.0), 1);
    let row = |series: &Series| {
        let median = |value: fn(&Sample) -> Option<f64>| series.median(value);
        vec![
            group.name.clone(),
            series.name.clone(),
            series.shown(2, per_access_us),
            report::number(quotient(median(per_access_us), group.median("kernel", per_access_us)), 2),
            report::number(median(|s| evictions(s).map(|(written, clean)| written + clean)), 0),
            percent(median(unwritten_share)),
            percent(median(|s| quotient(counted(s, "pages_unwritten"), evictions(s).map(|(w, clean)| w + clean)))),
            report::number(median(|s| counted(s, "pages_reused")), 0),
            report::number(median(writes_per_page_in), 2),
        ]
    };
    group.series.iter().map(row).collect()
}

const FORK_HEAD: [&str; 8] = [
    "writes, %",
    "side",
    "us an access",
    "copied before, %",
    "with a child, %",
    "after it, %",
    "copied by the fork",
    "resident then, twice",
];

fn fork_rows(group: &Group, resident: Bytes) -> Vec<Vec<String>> {
    let row = |series: &Series| {
        let share = |phase| report::number(series.median(|s| copied_share(s, phase)).map(|share| share * 100.0), 1);
        vec![
            group.name.clone(),
            series.name.clone(),
            series.shown(2, per_access_us),
            share(0),
            share(1),
            share(2),
            report::number(series.median(copied_by_fork), 0),
            (2 * resident.pages()).to_string(),
        ]
    };
    group.series.iter().map(row).collect()
}

fn published(groups: &[Group], ways: &[String]) -> String {
    let ops = |group: &Group, name: &str| group.median(name, per_access_us).map(|us| 1e6 / us);
    let mut rows = vec![vec![
        "published: redis, NVMe swap".to_owned(),
        PUBLISHED_OPS.0.to_owned(),
        PUBLISHED_OPS.1.to_owned(),
        PUBLISHED_OPS.2.to_owned(),
    ]];
    for group in groups {
        for way in ways.iter().filter(|way| *way != "off") {
            let (off, on) = (ops(group, "off"), ops(group, way));
            let gain = quotient(on, off).map_or("-".to_owned(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0));
            let name = format!("{way}, {} % writes", group.name);
            rows.push(vec![name, report::number(off, 0), report::number(on, 0), gain]);
        }
    }
    report::table(&["", "accesses/s without", "with", "gain"], &rows)
}

/// Runs `reuse`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let mut lab = Lab::open(&args.common, Bytes(args.size.0.saturating_mul(3)), args.resident)?;
    let known = lab.policies("reuse");
    let ways = if args.reuse.is_empty() { known.clone() } else { args.reuse.clone() };
    if lab.has(Side::Outswap) && !known.iter().any(|way| way == "off") {
        lab.note(
            "This outswap has no --mechanism reuse=off: what reuse gains is seen only beside the kernel.".to_owned(),
        );
    }
    let group = |&writes: &u32, fork: bool| {
        let mut worker = vec!["reuse-worker".to_owned(), args.size.0.to_string(), writes.to_string()];
        worker.push(args.passes.to_string());
        if fork {
            // At random, pages leave scattered over their blocks, and are copied whoever has them.
            worker.extend(["--in-order", "--fork"].map(str::to_owned));
        }
        let sides = [("alone", Side::Alone), ("kernel", Side::Kernel)];
        let mut series: Vec<Series> =
            sides.into_iter().map(|(name, side)| Series::new(name, side, &[], &worker)).collect();
        series.extend(ways.iter().map(|way| series_of(way, &worker)));
        Group { name: writes.to_string(), series }
    };
    let mut groups: Vec<Group> = args.writes.iter().map(|writes| group(writes, false)).collect();
    let mut forks: Vec<Group> = args.writes.iter().map(|writes| group(writes, true)).collect();
    let mut signal = lab.measure(&mut groups, args.size).err();
    if signal.is_none() {
        signal = lab.measure(&mut forks, args.size).err();
    }
    let default = ways.iter().find(|way| *way != "off").cloned().unwrap_or_default();
    let verdict = verdict(args, &groups, &forks, &default);
    let tables = vec![
        (
            format!("{} in {}, accesses at random", args.size, args.resident),
            report::table(&HEAD, &groups.iter().flat_map(rows).collect::<Vec<_>>()),
        ),
        (
            "In order, with a fork after a third of the accesses; for the next third there is a child that does the same. Of the pages \
             that left memory, those that were copied and not moved"
                .to_owned(),
            report::table(&FORK_HEAD, &forks.iter().flat_map(|group| fork_rows(group, args.resident)).collect::<Vec<_>>()),
        ),
        ("Beside what was published".to_owned(), published(&groups, &ways)),
    ];
    lab.note(
        "Evictions are Outswap's own count of pages written to the store and of those that went back to the slot that held them \
         still, in the last two thirds of the accesses: in the first, most leave for the first time. Written a page in: pages written to \
         swap for each read from it, of both sides; as many leave as come in."
            .to_owned(),
    );
    let legend: Vec<String> = ["kernel".to_owned()].into_iter().chain(ways.iter().cloned()).collect();
    let bars = |group: &Group| chart::Group {
        name: format!("{} %", group.name),
        values: legend.iter().map(|name| group.median(name, per_access_us)).collect(),
    };
    let bars: Vec<chart::Group> = groups.iter().map(bars).collect();
    let report = Report {
        benchmark: "reuse",
        settings: json!({
            "size_bytes": args.size.0, "resident_bytes": args.resident.0, "passes": args.passes, "reuse": ways,
            "page_bytes": PAGE_BYTES,
        }),
        tables,
        results: groups.iter().map(Group::json).chain(forks.iter().map(|g| json!({ "fork": g.json() }))).collect(),
        verdict,
        chart: Chart {
            title: "Reuse of what is clean",
            legend: &legend,
            groups: &bars,
            mark: None,
            caption: "us an access, by how many of the accesses write.",
        },
    };
    lab.finish(report, signal)
}

/// What is only read is not written again, at any rate of writes no more than the kernel does, and it takes no longer than without.
fn verdict(args: &Args, groups: &[Group], forks: &[Group], default: &str) -> Verdict {
    let mut checks = Vec::new();
    if let Some(group) = groups.iter().find(|group| group.name == "0") {
        let share = group.median(default, unwritten_share);
        let what = format!("{default}: part of the evictions without a write where nothing is written");
        checks.push(Check::new(what, share, Bound::AtLeast(CLEAN_WANTED)));
    }
    let worst = |ratio: &dyn Fn(&Group) -> Option<f64>| groups.iter().filter_map(ratio).reduce(f64::max);
    let to_off = worst(&|group| quotient(group.median(default, per_access_us), group.median("off", per_access_us)));
    if to_off.is_some() {
        checks.push(Check::new(format!("time with {default} to that without, at worst"), to_off, Bound::AtMost(1.02)));
    }
    let to_kernel =
        worst(&|group| quotient(group.median(default, per_access_us), group.median("kernel", per_access_us)));
    checks.push(Check::new("time to the kernel's, at worst", to_kernel, Bound::AtMost(1.0)));
    let shared = 2.0 * args.resident.pages() as f64;
    let copied = forks.iter().filter_map(|group| group.median(default, copied_by_fork)).reduce(f64::max);
    let what = "pages copied by a fork to those that were resident then, in both processes, at worst";
    checks.push(Check::new(what, quotient(copied, Some(shared)), Bound::AtMost(1.0)));
    Verdict { checks, failures: failures(groups) + failures(forks) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn phase(out: u64, clean: u64, taken: u64, copied: u64) -> Value {
        json!({ "swap_in_pages": 0, "swap_out_pages": 0, "outswap": {
            "pages_out_ram": out, "pages_out_file": 0, "pages_in_ram": 10, "pages_in_file": 0, "pages_clean": clean,
            "pages_unwritten": 0, "pages_reused": 0, "pages_taken": taken, "pages_taken_by_copy": copied,
        }})
    }

    fn sample(phases: [Value; 3]) -> Sample {
        Sample { result: json!({ "elapsed_ns": 9000, "accesses": 3, "phases": phases }), stats: None, kernel: None }
    }

    #[test]
    fn evictions_are_those_with_a_write_and_those_without() {
        let sample = sample([phase(10, 30, 40, 4), phase(0, 30, 30, 3), phase(10, 0, 10, 1)]);
        assert_eq!(evictions(&sample), Some((10.0, 30.0)));
        assert_eq!(unwritten_share(&sample), Some(0.75));
        assert_eq!(writes_per_page_in(&sample), Some(0.5));
        assert_eq!(per_access_us(&sample), Some(3.0));
        assert_eq!(copied_by_fork(&sample), Some(0.0));
    }

    #[test]
    fn what_a_fork_had_copied_is_what_is_beyond_the_rate_before_it() {
        let sample = sample([phase(1, 1, 100, 10), phase(1, 1, 200, 60), phase(1, 1, 100, 15)]);
        assert_eq!(copied_by_fork(&sample), Some(45.0));
        let all_are = phase(1, 1, 100, 100);
        assert_eq!(copied_by_fork(&self::sample([all_are.clone(), all_are.clone(), all_are])), None);
    }

    #[test]
    fn without_counts_of_outswap_the_kernels_are_taken() {
        let kernel = json!({ "swap_in_pages": 20, "swap_out_pages": 5, "outswap": null });
        let sample = sample([kernel.clone(), kernel.clone(), kernel]);
        assert_eq!((evictions(&sample), writes_per_page_in(&sample)), (None, Some(0.25)));
    }
}
