//! `sources`: what pages cost with each source of faults, beside the best one and the kernel, and how far a fault is from what its
//! parts take by themselves: a trap and the return from it, one page decompressed, one page put in place; and what a flush of another
//! processor's TLB takes.
pub mod floor;

use serde_json::json;

use crate::chart::{self, Chart};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::report;
use crate::units::Bytes;
use crate::worker::Workload;

/// The source that the others are compared with.
const BEST: &str = "move";
/// What a source that needs no userfaultfd may take of the best one's time.
const GUARD_MOST: f64 = 1.3;
/// Groups of which that is expected.
const ONE_THREAD: &str = ", threads 1";

/// Arguments of `sources`.
#[derive(clap::Args)]
pub struct Args {
    /// Working set
    #[arg(long, default_value = "512M")]
    size: Bytes,
    /// Limit of resident memory
    #[arg(long, default_value = "128M")]
    resident: Bytes,
    /// Numbers of threads. A source without userfaultfd has an easier way where the program has one alone
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Workloads
    #[arg(long, value_delimiter = ',', value_enum, default_value = "fill,seq,rand-read,rand-write,zipf")]
    workloads: Vec<Workload>,
    /// Sources, as `outswap run --fault-source` takes them
    #[arg(long, value_delimiter = ',', default_value = "move,copy,guard,mprotect")]
    sources: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// The parts of a fault of a source, in us: trap, decompression, putting the page in place.
fn parts_us(floor: &Group, source: &str) -> Option<[f64; 3]> {
    let part = |path: &str| floor.median("parts", |sample| sample.number(path)).map(|ns| ns / 1000.0);
    Some([part(&format!("/{source}/trap_ns"))?, part("/decompress_ns")?, part(&format!("/{source}/put_ns"))?])
}

fn cost_table(groups: &[Group], sources: &[String]) -> String {
    let mut rows = Vec::new();
    for group in groups {
        for name in ["alone", "kernel"].into_iter().chain(sources.iter().map(String::as_str)) {
            let Some(series) = group.find(name) else { continue };
            let us = series.median(Sample::per_page_us);
            let to = |other: &str| report::number(quotient(us, group.median(other, Sample::per_page_us)), 2);
            rows.push(vec![
                group.name.clone(),
                name.to_owned(),
                series.shown(2, Sample::per_page_us),
                to("kernel"),
                if series.side == Side::Outswap { to(BEST) } else { "-".to_owned() },
            ]);
        }
    }
    report::table(&["workload", "source", "us a page", "to the kernel's", "to move's"], &rows)
}

fn floor_table(floor: &Group, waits: &Group, sources: &[String]) -> String {
    let row = |source: &String| {
        let parts = parts_us(floor, source);
        let sum = parts.map(|parts| parts.iter().sum::<f64>());
        let wait = waits.median(source, Sample::per_wait_us);
        let mut row = vec![source.clone()];
        row.extend((0..3).map(|part| report::number(parts.map(|parts| parts[part]), 2)));
        row.push(report::number(sum, 2));
        row.push(waits.find(source).map_or("-".to_owned(), |series| series.shown(2, Sample::per_wait_us)));
        row.push(report::number(quotient(wait, sum), 2));
        row
    };
    let head =
        ["source", "trap, us", "decompress, us", "put, us", "together, us", "a wait of a random reader, us", "to that"];
    report::table(&head, &sources.iter().map(row).collect::<Vec<_>>())
}

/// What it takes to flush the TLB of another processor: of who does so, and of who runs there.
fn flush_table(floor: &Group) -> String {
    let us = |path: &str| floor.median("parts", |sample| sample.number(path)).map(|ns| ns / 1000.0);
    let row = ["/flush/send_ns", "/flush/lost_ns"].map(|path| report::number(us(path), 2));
    report::table(&["who flushes, us", "who is interrupted, us"], &[row.to_vec()])
}

fn verdict(groups: &[Group], all: &[Group]) -> Verdict {
    let one_thread = |group: &&Group| group.name.ends_with(ONE_THREAD);
    let check = |group: &Group| {
        let ratio = quotient(group.median("guard", Sample::per_page_us), group.median(BEST, Sample::per_page_us));
        Check::new(format!("guard to move, {}", group.name), ratio, Bound::AtMost(GUARD_MOST))
    };
    Verdict {
        checks: groups.iter().filter(one_thread).map(check).collect(),
        failures: failures(all) + failures(groups),
    }
}

/// Runs `sources`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let mut lab = Lab::open(&args.common, Bytes(args.size.0.saturating_mul(2)), args.resident)?;
    let under = |worker: &[String]| {
        let series = |source: &String| {
            let options = [&*format!("--fault-source={source}"), "--swap=compressed:lz4"];
            Series::new(source.as_str(), Side::Outswap, &options, worker)
        };
        args.sources.iter().map(series).collect::<Vec<_>>()
    };
    let mut groups = Vec::new();
    for threads in &args.threads {
        for workload in &args.workloads {
            let (name, size, count) = (workload.name(), args.size.0.to_string(), threads.to_string());
            let worker = ["touch-worker", name, &size, &count].map(str::to_owned);
            let mut series = vec![
                Series::new("alone", Side::Alone, &[], &worker),
                Series::new("kernel", Side::Kernel, &[], &worker),
            ];
            series.extend(under(&worker));
            groups.push(Group { name: format!("{name}, threads {threads}"), series });
        }
    }
    let reader = ["swapin-worker", "random", "private", &args.size.0.to_string(), &args.resident.0.to_string()];
    let reader = reader.map(str::to_owned);
    let mut all = [
        Group {
            name: "parts of a fault".to_owned(),
            series: vec![Series::new("parts", Side::Alone, &[], &["floor-worker".to_owned()])],
        },
        Group { name: "random reader".to_owned(), series: under(&reader) },
    ];
    let mut signal = lab.measure(&mut all, args.size).err();
    if signal.is_none() {
        signal = lab.measure(&mut groups, args.size).err();
    }
    let [floor, waits] = &all;
    let tables = vec![
        (format!("{} in {}", args.size, args.resident), cost_table(&groups, &args.sources)),
        (
            "What a fault's parts take by themselves, and what a touch takes that has to wait".to_owned(),
            floor_table(floor, waits, &args.sources),
        ),
        (
            "A flush of the other processor's TLB, while a thread of the process runs there".to_owned(),
            flush_table(floor),
        ),
    ];
    let names: Vec<String> = ["kernel".to_owned()].into_iter().chain(args.sources.iter().cloned()).collect();
    let bars = |group: &Group| chart::Group {
        name: group.name.clone(),
        values: names.iter().map(|name| group.median(name, Sample::per_page_us)).collect(),
    };
    let bars: Vec<chart::Group> = groups.iter().map(bars).collect();
    let report = Report {
        benchmark: "sources",
        settings: json!({
            "size_bytes": args.size.0, "resident_bytes": args.resident.0, "sources": args.sources, "threads": args.threads,
        }),
        tables,
        results: all.iter().chain(&groups).map(Group::json).collect(),
        verdict: verdict(&groups, &all),
        chart: Chart {
            title: "Sources of faults",
            legend: &names,
            groups: &bars,
            mark: None,
            caption: "us a page, by workload.",
        },
    };
    lab.finish(report, signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, of: &[(&str, serde_json::Value)]) -> Group {
        let series = of.iter().map(|(name, result)| {
            let mut series = Series::new(*name, Side::Outswap, &[], &[]);
            series.samples.push(Sample { result: result.clone(), stats: None, kernel: None });
            series
        });
        Group { name: name.to_owned(), series: series.collect() }
    }

    #[test]
    fn a_wait_is_compared_with_its_parts() {
        let floor = group(
            "parts",
            &[(
                "parts",
                json!({"decompress_ns": 500, "move": {"trap_ns": 2000, "put_ns": 1500}, "guard": {"missing": "x"},
                       "flush": {"send_ns": 16_000.0, "lost_ns": 11_000.0}}),
            )],
        );
        let waits = group("waits", &[("move", json!({"waits": {"sum_ns": 80_000, "count": 10}}))]);
        assert_eq!(parts_us(&floor, "move"), Some([2.0, 0.5, 1.5]));
        assert_eq!(parts_us(&floor, "guard"), None, "what this machine lacks has no figure");
        let table = floor_table(&floor, &waits, &["move".to_owned(), "guard".to_owned()]);
        let row = table.lines().nth(2).unwrap_or_default();
        let cells: Vec<_> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["move", "2.00", "0.50", "1.50", "4.00", "8.00 (8.00-8.00)", "2.00"]);
        let flush = flush_table(&floor);
        assert!(flush.lines().nth(2).is_some_and(|row| row.contains("16.00") && row.contains("11.00")), "{flush}");
    }

    #[test]
    fn guard_pays_where_it_is_not_much_slower_than_the_best() {
        let of = |guard_ns: u64| {
            let page = |ns: u64| json!({"elapsed_ns": ns, "accesses": 1});
            [
                group("seq, threads 1", &[("move", page(1000)), ("guard", page(guard_ns))]),
                group("seq, threads 2", &[("move", page(1000)), ("guard", page(9000))]),
            ]
        };
        assert_eq!(verdict(&of(1300), &[]).paid(), Some(true));
        assert_eq!(verdict(&of(1400), &[]).paid(), Some(false));
        assert_eq!(verdict(&[group("seq, threads 1", &[])], &[]).paid(), None);
    }
}
