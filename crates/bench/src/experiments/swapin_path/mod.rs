//! `swapin-path`: what a page costs that comes back by a hit, a miss or a bypass, and how often each is taken.
//!
//! Of Kairui Song, "mm/swap, shmem: use new swapin helper to skip readahead conditionally", 2024: private and shared memory use
//! one entry point, and readahead is skipped where the store makes nobody wait.
pub mod worker;

use serde_json::json;

use crate::chart::{self, Chart};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::swapin_path::worker::{Memory, Reader};
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::report;
use crate::units::Bytes;

/// As published, of a RAM disk: what skipping readahead changed, in hundredths (time of reading in order, rates of the others).
const PUBLISHED: [(&str, &str, f64); 3] = [
    ("seq", "22.248 s -> 22.021 s", -1.1),
    ("random", "1818 -> 1888 MiB/s", 3.85),
    ("zipf", "31.1 -> 32.3 GiB/s", 3.86),
];
/// A cell stands for a way of coming back where so much of its faults are of that way.
const PURE: f64 = 0.9;

/// Arguments of `swapin-path`.
#[derive(clap::Args)]
pub struct Args {
    /// Memory that is read
    #[arg(long, default_value = "128M")]
    size: Bytes,
    /// Limit of resident memory
    #[arg(long, default_value = "32M")]
    resident: Bytes,
    /// Orders of reading
    #[arg(long, value_delimiter = ',', value_enum, default_value = "seq,random,zipf,hot,cold")]
    readers: Vec<Reader>,
    /// Whose memory
    #[arg(long, value_delimiter = ',', value_enum, default_value = "private,shared")]
    memory: Vec<Memory>,
    /// A store, as `outswap run --swap` takes it; may be repeated [default: compressed:lz4, ram, file, and ram,model=ssd]
    #[arg(long = "store", value_name = "SPEC")]
    stores: Vec<String>,
    /// Readahead policies (`outswap run --mechanism readahead=`) [default: the default one, and off]
    #[arg(long, value_delimiter = ',')]
    readahead: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// A way for a page to come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Hit,
    Miss,
    Bypass,
}

impl Way {
    const ALL: [Way; 3] = [Way::Hit, Way::Miss, Way::Bypass];

    fn name(self) -> &'static str {
        match self {
            Way::Hit => "hit",
            Way::Miss => "miss",
            Way::Bypass => "bypass",
        }
    }

    fn count(self, sample: &Sample) -> Option<f64> {
        sample.number(&format!("/outswap/fault_{}", self.name()))
    }

    /// Its part of all three.
    fn share(self, sample: &Sample) -> Option<f64> {
        let all = Way::ALL.iter().map(|way| way.count(sample)).sum::<Option<f64>>();
        quotient(self.count(sample), all)
    }
}

/// Whether nobody has to wait for a store: its pages are in memory, and no device is modelled.
fn is_synchronous(store: &str) -> bool {
    store.split(',').all(|tier| {
        let kind = tier.split(':').next().unwrap_or(tier);
        matches!(kind, "ram" | "compressed")
    })
}

fn per_page(sample: &Sample, path: &str) -> Option<f64> {
    quotient(sample.number(path), sample.number("/accesses"))
}

/// Pages that came from the store or the device.
fn pages_in(sample: &Sample) -> Option<f64> {
    let outswap = |name: &str| sample.number(&format!("/outswap/pages_in_{name}"));
    match (outswap("ram"), outswap("file")) {
        (Some(ram), Some(file)) => Some(ram + file),
        _ => sample.number("/swap_in_pages"),
    }
}

const HEAD: [&str; 13] = [
    "reader",
    "memory",
    "store",
    "readahead",
    "us a page",
    "to the kernel's",
    "us a wait",
    "p50, us",
    "p99, us",
    "hits a page",
    "misses a page",
    "bypasses a page",
    "pages in a page",
];

/// What a group of series is of: a reader of some memory.
struct Cell {
    reader: Reader,
    memory: Memory,
    group: Group,
}

fn label(store: &str, readahead: &str) -> String {
    format!("{store} | {readahead}")
}

impl Cell {
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |series: &Series| {
            let median = |value: &dyn Fn(&Sample) -> Option<f64>| series.median(value);
            let us = |path: &'static str| report::number(median(&|s| s.number(path)).map(|ns| ns / 1000.0), 2);
            let way = |way: Way, kernel: Option<f64>| {
                let count = median(&|s| quotient(way.count(s), s.number("/accesses")));
                report::number(count.or(kernel.filter(|_| series.side == Side::Kernel)), 3)
            };
            let (store, readahead) = series.name.split_once(" | ").unwrap_or((&series.name, "-"));
            let minor = median(&|s| per_page(s, "/minor_faults"));
            let major = median(&|s| per_page(s, "/major_faults"));
            vec![
                self.reader.name().to_owned(),
                self.memory.name().to_owned(),
                store.to_owned(),
                readahead.to_owned(),
                series.shown(2, Sample::per_page_us),
                report::number(
                    quotient(median(&Sample::per_page_us), self.group.median("kernel", Sample::per_page_us)),
                    2,
                ),
                report::number(median(&Sample::per_wait_us), 2),
                us("/waits/p50_ns"),
                us("/waits/p99_ns"),
                way(Way::Hit, minor),
                way(Way::Miss, None),
                way(Way::Bypass, major),
                report::number(median(&|s| quotient(pages_in(s), s.number("/accesses"))), 3),
            ]
        };
        self.group.series.iter().map(row).collect()
    }
}

/// Time of all waits, for each page that came from a store: what a miss brings besides its own counts.
fn waited_a_page_in_us(sample: &Sample) -> Option<f64> {
    quotient(sample.number("/waits/sum_ns"), pages_in(sample)).map(|ns| ns / 1000.0)
}

/// Cost of each way on each store, from the cells that consist of it.
fn ways(cells: &[Cell], stores: &[String], readahead: &[String]) -> String {
    let mut rows = Vec::new();
    for store in stores {
        for way in Way::ALL {
            let mut best: Option<(f64, String, f64, Option<f64>)> = None;
            for cell in cells {
                for policy in readahead {
                    let Some(series) = cell.group.find(&label(store, policy)) else { continue };
                    let (Some(share), Some(us)) = (series.median(|s| way.share(s)), series.median(Sample::per_wait_us))
                    else {
                        continue;
                    };
                    if best.as_ref().is_none_or(|(most, ..)| share > *most) {
                        let of = format!("{}, {}, readahead {policy}", cell.reader.name(), cell.memory.name());
                        let a_page = series.median(waited_a_page_in_us).filter(|_| way != Way::Hit);
                        best = Some((share, of, us, a_page));
                    }
                }
            }
            let mut row = vec![store.clone(), way.name().to_owned()];
            row.extend(match best {
                Some((share, of, us, a_page)) if share >= PURE => {
                    [format!("{us:.2}"), report::number(a_page, 2), of, format!("{:.1}", share * 100.0)]
                }
                Some((share, of, ..)) => {
                    let none = format!("no reader has mostly that; the most: {of}");
                    ["-".to_owned(), "-".to_owned(), none, format!("{:.1}", share * 100.0)]
                }
                None => ["-", "-", "not measured", "-"].map(str::to_owned),
            });
            rows.push(row);
        }
    }
    report::table(&["store", "way", "us a wait", "us a page that came", "from", "its share of the faults, %"], &rows)
}

fn published(cells: &[Cell], store: &str, readahead: &[String]) -> String {
    let Some((default, others)) = readahead.split_first() else { return String::new() };
    let mut rows = Vec::new();
    for cell in cells {
        let of = |name: &str| cell.group.median(&label(store, name), Sample::per_page_us);
        let (what, change) = PUBLISHED
            .iter()
            .find(|(name, ..)| *name == cell.reader.name())
            .map_or(("-", "-".to_owned()), |(_, what, change)| (*what, format!("{change:+.2} %")));
        for other in others {
            let gain = quotient(of(other), of(default)).map(|ratio| (ratio - 1.0) * 100.0);
            rows.push(vec![
                cell.reader.name().to_owned(),
                cell.memory.name().to_owned(),
                what.to_owned(),
                change.clone(),
                format!("{other} -> {default}"),
                gain.map_or("-".to_owned(), |gain| format!("{gain:+.2} %")),
            ]);
        }
    }
    report::table(&["reader", "memory", "published", "changed", "here, rate of pages", "changed"], &rows)
}

/// Runs `swapin-path`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let mut lab = Lab::open(&args.common, Bytes(args.size.0.saturating_mul(2)), args.resident)?;
    let stores = if args.stores.is_empty() {
        ["compressed:lz4", "ram", "file", "ram,model=ssd"].map(str::to_owned).to_vec()
    } else {
        args.stores.clone()
    };
    let mut readahead = args.readahead.clone();
    if readahead.is_empty() {
        readahead.extend(lab.policies("readahead").into_iter().next());
        readahead.push("off".to_owned());
        readahead.dedup();
    }
    let mut cells = Vec::new();
    for &reader in &args.readers {
        for &memory in &args.memory {
            let sizes = [args.size.0.to_string(), args.resident.0.to_string()];
            let mut worker = vec!["swapin-worker".to_owned(), reader.name().to_owned(), memory.name().to_owned()];
            worker.extend(sizes);
            let sides = [("alone", Side::Alone), ("kernel", Side::Kernel)];
            let mut series: Vec<Series> =
                sides.into_iter().map(|(name, side)| Series::new(name, side, &[], &worker)).collect();
            for store in &stores {
                for policy in &readahead {
                    let (swap, mechanism) = (format!("--swap={store}"), format!("--mechanism=readahead={policy}"));
                    series.push(Series::new(label(store, policy), Side::Outswap, &[&swap, &mechanism], &worker));
                }
            }
            let name = format!("{}, {}", reader.name(), memory.name());
            cells.push(Cell { reader, memory, group: Group { name, series } });
        }
    }
    let mut signal = None;
    for cell in &mut cells {
        if signal.is_none() {
            signal = lab.measure(std::slice::from_mut(&mut cell.group), args.size).err();
        }
    }
    let verdict = verdict(&cells, &stores, &readahead);
    let first = stores.iter().find(|store| is_synchronous(store)).cloned().unwrap_or_default();
    let tables = vec![
        (
            format!("{} in {}", args.size, args.resident),
            report::table(&HEAD, &cells.iter().flat_map(Cell::rows).collect::<Vec<_>>()),
        ),
        ("What each way costs".to_owned(), ways(&cells, &stores, &readahead)),
        (
            format!("Beside what was published of skipping readahead; here on {first}"),
            published(&cells, &first, &readahead),
        ),
    ];
    lab.note(
        "A wait is an access of 0.7 us or more, as the program sees it; time a page of `cold` has its calls of madvise as well. Of the kernel, hits are minor faults of the program and \
         bypasses major ones: with zram it skips readahead."
            .to_owned(),
    );
    let policy = readahead.first().cloned().unwrap_or_default();
    let names: Vec<String> =
        ["kernel".to_owned()].into_iter().chain(stores.iter().map(|store| label(store, &policy))).collect();
    let bars = |cell: &Cell| chart::Group {
        name: cell.group.name.clone(),
        values: names.iter().map(|name| cell.group.median(name, Sample::per_page_us)).collect(),
    };
    let bars: Vec<chart::Group> = cells.iter().map(bars).collect();
    let report = Report {
        benchmark: "swapin-path",
        settings: json!({
            "size_bytes": args.size.0, "resident_bytes": args.resident.0, "stores": stores, "readahead": readahead,
        }),
        tables,
        results: cells.iter().map(|cell| cell.group.json()).collect(),
        verdict,
        chart: Chart {
            title: "The way in",
            legend: &names,
            groups: &bars,
            mark: None,
            caption: "us a page read, by reader and memory.",
        },
    };
    lab.finish(report, signal)
}

/// A synchronous store is read past readahead by who reads at random, at no more than the kernel's cost; and asking for readahead
/// costs a random reader nothing.
fn verdict(cells: &[Cell], stores: &[String], readahead: &[String]) -> Verdict {
    let mut checks = Vec::new();
    let default = readahead.first().map(String::as_str).unwrap_or_default();
    for store in stores.iter().filter(|store| is_synchronous(store)) {
        let name = label(store, default);
        let random = || cells.iter().filter(|cell| cell.reader == Reader::Random);
        let bypassed = |series: &Sample| {
            let (miss, bypass) = (Way::Miss.count(series)?, Way::Bypass.count(series)?);
            quotient(Some(bypass), Some(miss + bypass))
        };
        let least = random().filter_map(|cell| cell.group.median(&name, bypassed)).reduce(f64::min);
        let what = format!("{store}: part of a random reader's reads that are bypasses, at least");
        checks.push(Check::new(what, least, Bound::AtLeast(PURE)));
        let worst = |of: &dyn Fn(&Cell) -> Option<f64>| cells.iter().filter_map(of).reduce(f64::max);
        let to_kernel = worst(&|cell| {
            let of = |name: &str| cell.group.median(name, Sample::per_page_us);
            // What the kernel is told to be cold it leaves where it is.
            if cell.reader == Reader::Cold { None } else { quotient(of(&name), of("kernel")) }
        });
        checks.push(Check::new(format!("{store}: time to the kernel's, at worst"), to_kernel, Bound::AtMost(1.0)));
        if default != "off" && readahead.iter().any(|policy| policy == "off") {
            let off = label(store, "off");
            let to_off = worst(&|cell| {
                let of = |name: &str| cell.group.median(name, Sample::per_page_us);
                if cell.reader == Reader::Random { quotient(of(&name), of(&off)) } else { None }
            });
            let what = format!("{store}: a random reader's time to that without readahead, at worst");
            checks.push(Check::new(what, to_off, Bound::AtMost(1.05)));
        }
    }
    Verdict { checks, failures: cells.iter().map(|cell| failures(std::slice::from_ref(&cell.group))).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_synchronous_where_nobody_waits() {
        for store in ["ram", "compressed:lz4", "ram:1G", "ram,compressed:zstd:3"] {
            assert!(is_synchronous(store), "{store}");
        }
        for store in ["file", "compressed,file", "ram,model=ssd", "file,model=hdd"] {
            assert!(!is_synchronous(store), "{store}");
        }
    }

    #[test]
    fn shares_are_of_all_three_ways_and_pages_are_counted_on_either_side() {
        let outswap = json!({ "elapsed_ns": 8000, "accesses": 4, "waits": { "sum_ns": 6000, "count": 2 }, "swap_in_pages": 7,
            "outswap": { "fault_hit": 1, "fault_miss": 2, "fault_bypass": 5, "pages_in_ram": 9, "pages_in_file": 1 } });
        let sample = |result| Sample { result, stats: None, kernel: None };
        let ours = sample(outswap);
        assert_eq!((Way::Hit.share(&ours), Way::Bypass.share(&ours)), (Some(0.125), Some(0.625)));
        assert_eq!((ours.per_page_us(), ours.per_wait_us(), pages_in(&ours)), (Some(2.0), Some(3.0), Some(10.0)));
        let kernel = sample(json!({ "swap_in_pages": 7, "outswap": null, "waits": { "sum_ns": 0, "count": 0 } }));
        assert_eq!((Way::Hit.share(&kernel), pages_in(&kernel), kernel.per_wait_us()), (None, Some(7.0), None));
    }
}
