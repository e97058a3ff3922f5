//! `cache-contention`: what it costs to keep pages that are in memory and have a slot, with 1 to 8 threads.
//!
//! Of Huang Ying, "mm: don't use radix tree writeback tags for pages in swap cache", 2016: the state of a page stands with the
//! page, and the index has no lock for all. What it is compared with, a tree with tags under one lock, is in `index.rs`, and is
//! used nowhere else.
mod index;
mod load;

use serde_json::{Value, json};

use crate::chart::{self, Chart};
use crate::experiments::contention::index::{Index, Locked, Ours, SHARD_SLOTS_LOG2};
use crate::experiments::contention::load::{Bed, STEPS, Took, run};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::report;
use crate::stats::Summary;
use crate::units::{Bytes, PAGE_BYTES};
use crate::worker::Workload;

/// As published, before and after: throughput, and KB/s swapped out.
const PUBLISHED: [(&str, f64, f64); 2] =
    [("throughput", 2_506_952.0, 3_212_076.0), ("swap-out, KB/s", 1_207_402.0, 1_476_578.0)];
/// As published: hundredths of cycles in the lock, before and after, by [`STEPS`].
const PUBLISHED_LOCK: [[f64; 2]; STEPS.len()] = [[10.86, 8.31], [10.36, 0.0], [10.52, 0.0], [10.82, 7.24]];
/// The largest tree has three levels.
const SIZE_MAX: Bytes = Bytes(1 << 30);

/// Arguments of `cache-contention`.
#[derive(clap::Args)]
pub struct Args {
    /// Swap space, up to 1G; also the memory that is filled under pressure, in a quarter of it
    #[arg(long, default_value = "256M")]
    size: Bytes,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Pages that go through the index in each run, in thousands
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    kpages: u32,
    #[command(flatten)]
    common: Common,
}

/// An index that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tagged,
    Untagged,
    Sharded,
    Ours,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Tagged, Kind::Untagged, Kind::Sharded, Kind::Ours];

    fn name(self) -> &'static str {
        match self {
            Kind::Tagged => "tags, one lock",
            Kind::Untagged => "no tags, one lock",
            Kind::Sharded => "no tags, a lock for 64 MiB",
            Kind::Ours => "ours",
        }
    }

    fn run(self, bed: &Bed, threads: usize, pages: usize, from_map: bool, timed: bool) -> Result<Took, String> {
        let slots = bed.slots();
        fn on<I: Index>(i: &I, b: &Bed, t: usize, p: usize, m: bool, timed: bool) -> Result<Took, String> {
            run(b, i, t, p, m, timed)
        }
        match self {
            Kind::Tagged => on(&Locked::single(slots, true), bed, threads, pages, from_map, timed),
            Kind::Untagged => on(&Locked::single(slots, false), bed, threads, pages, from_map, timed),
            Kind::Sharded => on(&Locked::new(slots, SHARD_SLOTS_LOG2, false), bed, threads, pages, from_map, timed),
            Kind::Ours => on(&Ours::default(), bed, threads, pages, from_map, timed),
        }
    }
}

/// An index with some threads.
struct Point {
    kind: Kind,
    threads: u32,
    /// Pages a second: of the index alone, and with slots from the slot map.
    alone: Vec<f64>,
    with_map: Vec<f64>,
    /// Parts of the cycles in its locks.
    locks: Vec<[f64; STEPS.len()]>,
    failure: Option<String>,
}

impl Point {
    fn rate(&self, rates: &[f64]) -> Option<f64> {
        if self.failure.is_some() { None } else { Summary::of(rates).map(|summary| summary.median) }
    }

    fn lock(&self, step: usize) -> Option<f64> {
        let shares: Vec<f64> = self.locks.iter().map(|shares| shares[step] * 100.0).collect();
        self.rate(&shares)
    }

    fn run(&mut self, bed: &Bed, pages: usize) -> Result<(), String> {
        let threads = self.threads as usize;
        let once = |from_map, timed| self.kind.run(bed, threads, pages, from_map, timed);
        let (alone, with_map, timed) = (once(false, false)?, once(true, false)?, once(false, true)?);
        self.alone.push(alone.pages_per_s);
        self.with_map.push(with_map.pages_per_s);
        self.locks.extend(timed.lock_shares);
        Ok(())
    }

    fn row(&self, points: &[Point]) -> Vec<String> {
        let million = |rate: Option<f64>| report::number(rate.map(|rate| rate / 1e6), 2);
        let tagged = points.iter().find(|point| point.kind == Kind::Tagged && point.threads == self.threads);
        let to = |rates: fn(&Point) -> &[f64]| {
            let of = |point: &Point| point.rate(rates(point));
            report::number(quotient(of(self), tagged.and_then(of)), 2)
        };
        let mut row = vec![self.threads.to_string(), self.kind.name().to_owned()];
        if self.failure.is_some() {
            row.extend(["FAILED", "-", "-", "-", "-", "-", "-", "-"].map(str::to_owned));
            return row;
        }
        row.extend([million(self.rate(&self.alone)), to(|point| &point.alone)]);
        row.extend([million(self.rate(&self.with_map)), to(|point| &point.with_map)]);
        row.extend((0..STEPS.len()).map(|step| report::number(self.lock(step), 1)));
        row
    }

    fn json(&self) -> Value {
        json!({
            "index": self.kind.name(), "threads": self.threads, "pages_per_s": self.alone,
            "pages_per_s_with_slot_map": self.with_map, "lock_shares": self.locks, "steps": STEPS, "failure": self.failure,
        })
    }
}

const HEAD: [&str; 10] = [
    "threads",
    "index",
    "million pages/s",
    "to tags, one lock",
    "with the slot map",
    "to tags, one lock",
    "in the lock, %: add",
    "writeback start",
    "writeback end",
    "remove",
];

fn fill_rate(sample: &Sample) -> Option<f64> {
    let pages = quotient(sample.number("/accesses"), sample.number("/elapsed_ns"))?;
    Some(pages * PAGE_BYTES as f64 * 1e9 / (1u64 << 20) as f64)
}

fn published(points: &[Point], most: u32) -> String {
    let of = |kind| points.iter().find(|point| point.kind == kind && point.threads == most);
    let gain = |before: Option<f64>, after: Option<f64>| {
        quotient(after, before).map_or("-".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0))
    };
    let mut rows: Vec<Vec<String>> = PUBLISHED
        .iter()
        .map(|&(what, before, after)| {
            vec![
                format!("published: {what}"),
                format!("{before:.0}"),
                format!("{after:.0}"),
                gain(Some(before), Some(after)),
            ]
        })
        .collect();
    let rate = |kind, with_map: bool| of(kind).and_then(|c| c.rate(if with_map { &c.with_map } else { &c.alone }));
    for (what, with_map) in [("pages/s", false), ("pages/s with the slot map", true)] {
        let (before, after) = (rate(Kind::Tagged, with_map), rate(Kind::Ours, with_map));
        let name = format!("here, {most} threads: {what}");
        rows.push(vec![name, report::number(before, 0), report::number(after, 0), gain(before, after)]);
    }
    for (step, name) in STEPS.iter().enumerate() {
        let [before, after] = PUBLISHED_LOCK[step];
        rows.push(vec![
            format!("published: in the lock, %: {name}"),
            before.to_string(),
            after.to_string(),
            "-".to_owned(),
        ]);
        let here = |kind| report::number(of(kind).and_then(|point| point.lock(step)), 2);
        rows.push(vec![format!("here: {name}"), here(Kind::Tagged), here(Kind::Ours), "-".to_owned()]);
    }
    report::table(&["", "before (here: tags, one lock)", "after (here: ours)", "gain"], &rows)
}

/// Runs `cache-contention`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let mut threads = args.threads.clone();
    threads.sort();
    threads.dedup();
    let most = threads.last().copied().unwrap_or(1);
    if args.size.0 > SIZE_MAX.0 || args.size.pages() < 512 * most as usize {
        return Err(Failure::Failed(format!("--size is from 2M for each thread up to {SIZE_MAX}")));
    }
    let resident = Bytes((args.size.0 / 4).max(8 << 20));
    let mut lab = Lab::open(&args.common, Bytes(args.size.0 * 2), resident)?;
    let bed = Bed::new(args.size.pages()).ok_or(Failure::Failed("there is no memory for the tables".to_owned()))?;
    let point = |threads, kind| Point { kind, threads, alone: vec![], with_map: vec![], locks: vec![], failure: None };
    let mut points: Vec<Point> = threads.iter().flat_map(|&n| Kind::ALL.map(|kind| point(n, kind))).collect();
    let mut signal = None;
    'all: for turn in 1..=args.common.runs {
        for point in points.iter_mut().filter(|point| point.failure.is_none()) {
            if let Some(pending) = lab.signals().pending() {
                lab.note("interrupted: not all was measured".to_owned());
                signal = Some(pending);
                break 'all;
            }
            point.failure = point.run(&bed, args.kpages as usize * 1000).err();
            if let Some(reason) = &point.failure {
                crate::say(&format!("{}, {} threads, FAILED: {reason}", point.kind.name(), point.threads));
            }
        }
        crate::say(&format!("indexes, run {turn} of {}", args.common.runs));
    }
    let sides = [("alone", Side::Alone), ("kernel", Side::Kernel), ("outswap", Side::Outswap)];
    let group = |&threads: &u32| {
        let worker =
            ["touch-worker".to_owned(), Workload::Fill.name().to_owned(), args.size.0.to_string(), threads.to_string()];
        let series = |(name, side)| Series::new(name, side, &["--swap=compressed:lz4"], &worker);
        Group { name: threads.to_string(), series: sides.into_iter().map(series).collect() }
    };
    let mut groups: Vec<Group> = threads.iter().map(group).collect();
    if signal.is_none() {
        signal = lab.measure(&mut groups, args.size).err();
    }
    let fill_row = |group: &Group| {
        let shown = |name: &str| group.find(name).map_or("-".to_owned(), |series| series.shown(0, fill_rate));
        let ratio = quotient(group.median("outswap", fill_rate), group.median("kernel", fill_rate));
        vec![group.name.clone(), shown("alone"), shown("kernel"), shown("outswap"), report::number(ratio, 2)]
    };
    let wrong = points.iter().filter(|point| point.failure.is_some()).count() + failures(&groups);
    let rate = |kind, threads, of: fn(&Point) -> &[f64]| {
        points
            .iter()
            .find(|point| point.kind == kind && point.threads == threads)
            .and_then(|point| point.rate(of(point)))
    };
    let gain = |of: fn(&Point) -> &[f64]| {
        let ratio = |&n: &u32| quotient(rate(Kind::Ours, n, of), rate(Kind::Tagged, n, of));
        threads.iter().filter_map(ratio).reduce(f64::min)
    };
    let of_most = quotient(rate(Kind::Ours, most, |c| &c.alone), rate(Kind::Tagged, most, |c| &c.alone));
    let checks = vec![
        Check::new("pages/s to those with tags and one lock, at worst", gain(|c| &c.alone), Bound::AtLeast(1.0)),
        Check::new(
            format!("the same with {most} threads (published: 1.281 with 8)"),
            of_most,
            Bound::AtLeast(if most > 1 { 1.281 } else { 1.0 }),
        ),
        Check::new("with the slot map, at worst", gain(|c| &c.with_map), Bound::AtLeast(1.0)),
    ];
    lab.note(
        "A page goes through four steps: it comes in and keeps its slot, is taken to be written, is written, and leaves. Pages' own states \
         are Outswap's in all four indexes. With more threads than processors, a lock can be held by a thread that does not run."
            .to_owned(),
    );
    let legend: Vec<String> = Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    let bars: Vec<chart::Group> = threads
        .iter()
        .map(|&n| chart::Group {
            name: format!("{n} threads"),
            values: Kind::ALL.iter().map(|&kind| rate(kind, n, |c| &c.alone).map(|rate| rate / 1e6)).collect(),
        })
        .collect();
    let report = Report {
        benchmark: "cache-contention",
        settings: json!({ "size_bytes": args.size.0, "resident_bytes": resident.0, "threads": threads, "kpages": args.kpages }),
        tables: vec![
            (
                "The index alone".to_owned(),
                report::table(&HEAD, &points.iter().map(|point| point.row(&points)).collect::<Vec<_>>()),
            ),
            ("Beside what was published (8 processes, two sockets)".to_owned(), published(&points, most)),
            (
                format!("{} written by threads in {resident}, MiB/s", args.size),
                report::table(
                    &["threads", "alone", "kernel", "outswap", "outswap/kernel"],
                    &groups.iter().map(fill_row).collect::<Vec<_>>(),
                ),
            ),
        ],
        results: points.iter().map(Point::json).chain(groups.iter().map(Group::json)).collect(),
        verdict: Verdict { checks, failures: wrong },
        chart: Chart {
            title: "The index of the swap cache",
            legend: &legend,
            groups: &bars,
            mark: None,
            caption: "Million pages a second that go through it.",
        },
    };
    lab.finish(report, signal)
}
