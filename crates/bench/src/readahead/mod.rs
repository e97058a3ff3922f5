//! `readahead`: ways to read ahead from slow swap, beside what was published when the self-tuning window came to Linux.
//!
//! Hugh Dickins, "swap: add a simple detector for inappropriate swapin readahead", 2012: a mapping of 1000 MB in 900 MB of
//! memory, five sequential passes over it, or as many random touches, with swap on a hard disk and on an SSD. Here all is
//! smaller, and the disks are models (`--swap file,model=...`), so times are compared with each other and not with those of 2012.
mod chart;
pub mod worker;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Failure, Signals};
use crate::report::{self, Output};
use crate::stats::Summary;
use crate::units::Bytes;
use crate::{Outswap, say};
use worker::{Load, Memory};

const TIMEOUT: Duration = Duration::from_secs(1800);

/// Ways to read ahead: the name here, `--readahead` and `--page-cluster`. The first is what the others are compared with.
const WAYS: [(&str, &str, u32); 7] = [
    ("fixed 8", "fixed", 3),
    ("cluster 3", "cluster", 3),
    ("cluster 4", "cluster", 4),
    ("cluster 0", "cluster", 0),
    ("neighbourhood", "neighbourhood", 3),
    ("strides", "strides", 3),
    ("streams", "streams", 3),
];
/// The one that `auto` takes where the store is slow.
const OURS: &str = "strides";

/// Published times in hundredths of a second: device, load, memory; then as the first four of [`WAYS`].
const PUBLISHED: [(&str, Load, Memory, [u32; 4]); 8] = [
    ("hdd", Load::Seq, Memory::Anon, [73921, 76904, 78191, 121_542]),
    ("hdd", Load::Seq, Memory::Shmem, [73601, 72947, 74543, 118_322]),
    ("hdd", Load::Rand, Memory::Anon, [895_392, 845_197, 846_496, 841_680]),
    ("hdd", Load::Rand, Memory::Shmem, [1_058_375, 764_955, 764_376, 756_489]),
    ("ssd", Load::Seq, Memory::Anon, [24634, 25107, 21614, 70018]),
    ("ssd", Load::Seq, Memory::Shmem, [24959, 25703, 22030, 69678]),
    ("ssd", Load::Rand, Memory::Anon, [43014, 25989, 26935, 25901]),
    ("ssd", Load::Rand, Memory::Shmem, [45349, 24268, 24138, 24332]),
];
/// Times that differ by less count as the same: what was published varies by as much where nothing else differs.
const SAME: f64 = 0.06;

/// Arguments of `readahead`.
#[derive(clap::Args)]
pub struct Args {
    /// Working set
    #[arg(long, default_value = "20M")]
    size: Bytes,
    /// Limit of resident memory
    #[arg(long, default_value = "18M")]
    resident: Bytes,
    /// Passes over the working set
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// Devices
    #[arg(long, value_delimiter = ',', default_value = "hdd,ssd", value_parser = ["hdd", "ssd", "nvme"])]
    devices: Vec<String>,
    /// Orders of touches
    #[arg(long, value_delimiter = ',', value_enum, default_value = "seq,rand,stride,turns")]
    loads: Vec<Load>,
    /// Kinds of memory
    #[arg(long, value_delimiter = ',', value_enum, default_value = "anon,shmem")]
    memory: Vec<Memory>,
    /// Runs of each; the ways to read ahead take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Draw the times as an SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    outswap: Outswap,
    #[command(flatten)]
    output: Output,
}

/// A device, load and memory, with the times of each way.
struct Row {
    device: String,
    load: Load,
    memory: Memory,
    runs_s: Vec<Vec<f64>>,
    /// The readahead counters of each way's last run.
    pages: Vec<Value>,
}

impl Row {
    fn name(&self) -> String {
        format!("{} {} {}", self.device, self.load.name(), self.memory.name())
    }
    fn median(&self, way: usize) -> Option<f64> {
        Summary::of(&self.runs_s[way]).map(|summary| summary.median)
    }
    /// The time of a way to that of the first.
    fn ratio(&self, way: usize) -> Option<f64> {
        Some(self.median(way)? / self.median(0)?)
    }
    fn published(&self) -> Option<[f64; 4]> {
        let found = PUBLISHED.iter().find(|row| (row.0, row.1, row.2) == (&self.device, self.load, self.memory));
        found.map(|row| row.3.map(|time| f64::from(time) / f64::from(row.3[0])))
    }
    /// Pairs of ways that were published in one order and came out in the other.
    fn turned_round(&self) -> Option<Vec<String>> {
        let published = self.published()?;
        let ours = (0..4).map(|way| self.ratio(way)).collect::<Option<Vec<f64>>>()?;
        let slower = |a: f64, b: f64| a > b * (1.0 + SAME);
        let pairs = (0..4).flat_map(|a| (0..4).map(move |b| (a, b)));
        let wrong = pairs.filter(|&(a, b)| slower(published[a], published[b]) && slower(ours[b], ours[a]));
        Some(wrong.map(|(a, b)| format!("{} was slower than {}", WAYS[a].0, WAYS[b].0)).collect())
    }
    fn cells(&self) -> Vec<String> {
        let published =
            self.published().map_or("-".to_owned(), |ratios| ratios.map(|ratio| format!("{ratio:.2}")).join(" "));
        let first = report::number(self.median(0), 2);
        let rest = (1..WAYS.len()).map(|way| report::number(self.ratio(way), 2));
        [self.name(), first].into_iter().chain(rest).chain([published]).collect()
    }
    fn json(&self) -> Value {
        let ways = WAYS.iter().enumerate().map(|(way, &(name, policy, page_cluster))| {
            json!({
                "way": name, "readahead": policy, "page_cluster": page_cluster,
                "runs_s": self.runs_s[way], "median_s": self.median(way), "to_fixed_ratio": self.ratio(way),
                "pages": self.pages[way],
            })
        });
        json!({
            "device": self.device, "load": self.load.name(), "memory": self.memory.name(),
            "ways": ways.collect::<Vec<_>>(),
            "published_to_fixed_ratio": self.published(),
            "turned_round": self.turned_round(),
        })
    }
}

/// The geometric mean of a way's ratios over rows.
fn mean<'a>(rows: impl Iterator<Item = &'a Row>, way: usize) -> Option<f64> {
    let logs: Vec<f64> = rows.filter_map(|row| row.ratio(way)).map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Whether it paid, in one line; and, for each row whose order was published, whether that came out.
fn verdict(rows: &[Row]) -> Vec<String> {
    let means: Vec<String> =
        (1..WAYS.len()).filter_map(|way| Some(format!("{} {:.2}", WAYS[way].0, mean(rows.iter(), way)?))).collect();
    let ours = WAYS.iter().position(|way| way.0 == OURS).and_then(|way| mean(rows.iter(), way));
    let tuned = mean(rows.iter(), 1);
    let paid = match (ours, tuned) {
        (Some(ours), Some(tuned)) if ours < 1.0 - SAME && ours < tuned => "It paid",
        (Some(_), Some(_)) => "It did not pay",
        _ => "Not measured",
    };
    let line = format!("{paid}: time to that of fixed 8, geometric mean over all: {}.", means.join(", "));
    let orders = rows.iter().filter_map(|row| Some((row.name(), row.turned_round()?))).map(|(name, wrong)| {
        let found = if wrong.is_empty() {
            "as published".to_owned()
        } else {
            format!("not as published: {}", wrong.join("; "))
        };
        format!("Order of the ways, {name}: {found}.")
    });
    std::iter::once(line).chain(orders).collect()
}

/// Runs `readahead`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let signals = Signals::hold().map_err(failed)?;
    let exe = std::env::current_exe().map_err(failed)?;
    let outswap = args.outswap.find().map_err(Failure::Failed)?;
    let stats_file = std::env::temp_dir().join(format!("outswap-bench-{}.json", std::process::id()));
    let run = |row: &Row, way: usize| -> Result<(f64, Value), Failure> {
        let (_, policy, page_cluster) = WAYS[way];
        let mut command = Command::new(&outswap);
        command.arg("run").arg(format!("--resident={}", args.resident.0));
        command.arg(format!("--swap=file,model={}", row.device)).arg(format!("--readahead={policy}"));
        command.arg(format!("--page-cluster={page_cluster}")).args(["--malloc=keep", "--quiet"]);
        command.arg("--stats").arg(&stats_file).args(&args.outswap.outswap_args).arg("--").arg(&exe);
        command.args(["readahead-worker", row.load.name(), row.memory.name()]);
        command.arg(args.size.0.to_string()).arg(args.passes.to_string());
        let outcome = signals.run(&mut command, None, TIMEOUT);
        let stats =
            std::fs::read_to_string(&stats_file).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let _ = std::fs::remove_file(&stats_file);
        let outcome = outcome?;
        let result: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        let elapsed_ns = result["elapsed_ns"].as_u64();
        let elapsed_ns =
            elapsed_ns.ok_or_else(|| Failure::Failed(format!("the worker printed `{}`", outcome.stdout.trim())))?;
        let stats = stats.unwrap_or_default();
        let pages = ["read_ahead", "ahead_hit", "ahead_dropped"].map(|name| (name, &stats["pages"][name]));
        let mut pages: serde_json::Map<String, Value> =
            pages.into_iter().map(|(name, count)| (name.to_owned(), count.clone())).collect();
        pages.insert("misses".to_owned(), stats["faults"]["miss"].clone());
        Ok((elapsed_ns as f64 / 1e9, pages.into()))
    };
    let mut rows = Vec::new();
    for device in &args.devices {
        for &load in &args.loads {
            for &memory in &args.memory {
                let (runs_s, pages) = (vec![Vec::new(); WAYS.len()], vec![Value::Null; WAYS.len()]);
                let mut row = Row { device: device.clone(), load, memory, runs_s, pages };
                for _ in 0..args.runs {
                    for way in 0..WAYS.len() {
                        let (time_s, pages) = run(&row, way)?;
                        row.runs_s[way].push(time_s);
                        row.pages[way] = pages;
                    }
                }
                say(&format!("readahead, {}: {}", row.name(), row.cells()[1..].join(" ")));
                rows.push(row);
            }
        }
    }
    let notes = verdict(&rows);
    let head: Vec<String> = ["load".to_owned(), format!("{}, s", WAYS[0].0)]
        .into_iter()
        .chain(WAYS[1..].iter().map(|way| format!("{}, ratio", way.0)))
        .chain(["published: fixed 8, 3, 4, 0".to_owned()])
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let table = report::table(&head, &rows.iter().map(Row::cells).collect::<Vec<_>>());
    let settings = json!({
        "size_bytes": args.size.0, "resident_bytes": args.resident.0, "passes": args.passes, "runs": args.runs,
        "outswap_args": args.outswap.outswap_args,
    });
    if let Some(path) = &args.svg {
        let groups = rows.iter().map(|row| (row.name(), (0..WAYS.len()).map(|way| row.ratio(way)).collect()));
        let chart = chart::svg("Time to that of fixed 8", &WAYS.map(|way| way.0), &groups.collect::<Vec<_>>());
        std::fs::write(path, chart).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    }
    let document = report::document("readahead", settings, &notes, rows.iter().map(Row::json).collect());
    report::publish(&args.output, &document, &table).map_err(Failure::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(load: Load, times_s: [f64; WAYS.len()]) -> Row {
        let runs_s = times_s.iter().map(|&time| vec![time]).collect();
        Row { device: "ssd".to_owned(), load, memory: Memory::Anon, runs_s, pages: vec![Value::Null; WAYS.len()] }
    }

    #[test]
    fn the_published_order_is_compared_where_times_differ() {
        let as_published = row(Load::Rand, [4.3, 2.6, 2.7, 2.6, 2.6, 2.6, 2.6]);
        assert_eq!(as_published.turned_round(), Some(Vec::new()));
        let other = row(Load::Rand, [2.0, 2.6, 2.01, 2.0, 2.6, 2.6, 2.6]);
        assert_eq!(other.turned_round(), Some(vec!["fixed 8 was slower than cluster 3".to_owned()]));
        assert_eq!(row(Load::Stride, [1.0; 7]).turned_round(), None, "nothing was published of it");
        assert_eq!(other.cells()[0], "ssd rand anon");
        assert_eq!(other.json()["ways"][1]["to_fixed_ratio"], 1.3);
    }

    #[test]
    fn one_line_says_whether_it_paid() {
        let better = [
            row(Load::Seq, [2.0, 1.8, 1.8, 4.0, 1.8, 0.5, 1.0]),
            row(Load::Turns, [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]),
        ];
        let lines = verdict(&better);
        assert!(lines[0].starts_with("It paid: ") && lines[0].contains("strides 0.35"), "{lines:?}");
        assert_eq!(lines.len(), 2, "one of them was published: {lines:?}");
        assert!(verdict(&[row(Load::Seq, [1.0; 7])])[0].starts_with("It did not pay"));
        assert!(verdict(&[])[0].starts_with("Not measured"));
    }
}
