//! `large-folios`: memory that goes out and comes back by folios, and by single pages.
//!
//! Of Chuanhua Han and Barry Song, "mm: support large folios swap-in for sync io devices", 2024: its five tables.
mod slots;
pub mod worker;

use outswap_core::units::{MAX_ORDER, Order};
use serde_json::{Value, json};

use crate::chart::{self, Chart};
use crate::experiments::lab::{Common, Group, Lab, Report, Sample, Series, Side, failures, quotient};
use crate::experiments::large_folios::slots::{Back, fallbacks};
use crate::experiments::verdict::{Bound, Check, Verdict};
use crate::process::Failure;
use crate::report;
use crate::stats::Summary;
use crate::units::{Bytes, PAGE_BYTES};

/// As published: hundredths of folios that fell back without large swap-in, by round; with it 0.00 in each.
const PUBLISHED_FALLBACKS: [(u32, f64); 4] = [(1, 0.0), (2, 43.5), (7, 84.5), (11, 93.0)];
/// As published: ms for 100 rounds of 100 MiB: in and out, in units of 4 KiB and of 64 KiB.
const PUBLISHED_ROUNDS: [(&str, [f64; 2], [f64; 2]); 2] =
    [("lz4", [45_274.0, 90_540.0], [22_942.0, 55_667.0]), ("zstd", [85_035.0, 186_585.0], [46_558.0, 118_533.0])];
/// Bytes of which this became, as published, with zstd: in units of 4 KiB and of 64 KiB.
const PUBLISHED_BYTES: (f64, f64, f64) = (1_048_576_000.0, 246_876_055.0, 199_763_892.0);
/// As published: memory of 0x11 that comes back, bytes a ms without and with.
const PUBLISHED_ELEVEN: (f64, f64) = (621_310.0, 1_137_359.0);
/// Rounds and bytes of the published figures.
const ROUNDS: f64 = 100.0;
const ROUND_BYTES: f64 = (100u64 << 20) as f64;

/// Arguments of `large-folios`.
#[derive(clap::Args)]
pub struct Args {
    /// Memory that goes and comes; twice as much may be resident, so that only what is sent away goes
    #[arg(long, default_value = "100M")]
    size: Bytes,
    /// Rounds of sending all away and coming back to it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    rounds: u32,
    /// Rounds in which folios that find no slots in one piece are counted
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u32).range(1..=200))]
    churn_rounds: u32,
    /// Policies of folio orders (`outswap run --mechanism folios=`), or orders as in 0+4+9 (`--folio-orders 0,4,9`) [default: all that have
    /// a name, 0+4+8 and 0+4+9]
    #[arg(long, value_delimiter = ',')]
    folios: Vec<String>,
    /// Algorithms
    #[arg(long, value_delimiter = ',', default_value = "lz4,zstd")]
    algorithms: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// The orders of the published tables that are of folios.
const ORDERS: [usize; 3] = [2, 4, 9];
/// Orders larger than a block that are measured beside the policies that have names. What is stored in the first comes in by one fault.
const LARGE: [&str; 2] = ["0+4+8", "0+4+9"];
/// Pages of the parts that folios of several blocks are stored in, each of which counts as a folio that went out.
const BLOCK_PAGES: f64 = 64.0;

/// How `outswap run` is told of a policy.
fn switch(policy: &str) -> String {
    match policy.contains('+') {
        true => format!("--folio-orders={}", policy.replace('+', ",")),
        false => format!("--mechanism=folios={policy}"),
    }
}

/// What counts a policy's folios, all of which have so many pages, or the blocks that went as part of larger ones.
fn counted(policy: &str) -> Option<(&'static str, f64)> {
    match policy {
        "as-it-came" => Some(("folios_out", 16.0)),
        "as-it-came-16k" => Some(("folios_out", 4.0)),
        _ => largest_pages(policy).map(|_| ("folio_blocks", BLOCK_PAGES)),
    }
}

/// Pages of the largest folios of a policy that lists its orders, where they are of several blocks.
fn largest_pages(policy: &str) -> Option<f64> {
    let order = policy.rsplit_once('+').and_then(|(_, order)| order.parse().ok());
    order
        .filter(|order| *order <= MAX_ORDER)
        .map(Order::new)
        .filter(|order| order.is_large())
        .map(|order| order.pages() as f64)
}

fn rounds_of(sample: &Sample) -> &[Value] {
    sample.result["rounds"].as_array().map_or(&[], Vec::as_slice)
}

/// Folios that wanted slots in one piece in a round, and those that fell back; Outswap's or the kernel's. One of several blocks is one, in
/// however many parts it was stored.
fn round_folios(round: &Value, largest: Option<f64>) -> Option<(f64, f64)> {
    let of = |out: &str, fallbacks: &str| {
        let (out, fallbacks) = (round.pointer(out)?.as_f64()?, round.pointer(fallbacks)?.as_f64()?);
        Some((out + fallbacks, fallbacks))
    };
    let (out, fallbacks) = ("/out/outswap/folios_out", "/out/outswap/folio_fallbacks");
    let blocks = round.pointer("/out/outswap/folio_blocks").and_then(Value::as_f64);
    // Blocks that are not folios by themselves.
    let parts = blocks.zip(largest).map_or(0.0, |(blocks, pages)| blocks - blocks * BLOCK_PAGES / pages);
    of(out, fallbacks)
        .map(|(wanted, fallbacks)| (wanted - parts, fallbacks))
        .or_else(|| of("/kernel_folios/out", "/kernel_folios/fallbacks"))
}

/// Hundredths that fell back in a round; none where no folio went.
fn fallback_percent(sample: &Sample, round: usize, largest: Option<f64>) -> Option<f64> {
    let (wanted, fallbacks) = round_folios(rounds_of(sample).get(round)?, largest)?;
    quotient(Some(fallbacks * 100.0), Some(wanted))
}

/// The most of all rounds.
fn worst_fallback(sample: &Sample, largest: Option<f64>) -> Option<f64> {
    (0..rounds_of(sample).len()).filter_map(|round| fallback_percent(sample, round, largest)).reduce(f64::max)
}

/// The part of what was written to the store that went in the largest folios of a policy, from round 2 on; none where they are of any size.
fn in_folios(sample: &Sample, policy: &str) -> Option<f64> {
    let (counter, pages) = counted(policy)?;
    let sum = |name: &str| {
        let rounds = rounds_of(sample).iter().skip(1);
        rounds.map(|round| round.pointer(&format!("/out/outswap/{name}"))?.as_f64()).sum::<Option<f64>>()
    };
    quotient(sum(counter).map(|folios| folios * pages), sum("pages_out_ram"))
}

/// ms of all rounds, scaled to those of the published figures.
fn scaled_ms(sample: &Sample, name: &str, bytes: Bytes) -> Option<f64> {
    let ns = sample.number(&format!("/{name}_ns"))?;
    let done = bytes.0 as f64 * rounds_of(sample).len() as f64;
    quotient(Some(ns / 1e6 * ROUNDS * ROUND_BYTES), Some(done))
}

/// Bytes that come back in a ms.
fn bytes_per_ms(sample: &Sample, bytes: Bytes) -> Option<f64> {
    quotient(Some(bytes.0 as f64 * rounds_of(sample).len() as f64), sample.number("/in_ns").map(|ns| ns / 1e6))
}

/// The part of the memory that really came back from swap, in the mean over the rounds.
fn came_back(sample: &Sample, bytes: Bytes) -> Option<f64> {
    let of = |round: &Value| {
        let number = |path: &str| round.pointer(path).and_then(Value::as_f64);
        number("/in/outswap/pages_in_ram").or_else(|| number("/in/swap_in_pages"))
    };
    let sum = rounds_of(sample).iter().map(of).sum::<Option<f64>>();
    quotient(sum, Some((bytes.pages() * rounds_of(sample).len()) as f64))
}

/// Stored bytes of each byte that was compressed.
fn stored_share(sample: &Sample) -> Option<f64> {
    quotient(sample.stat("/compression/out_bytes"), sample.stat("/compression/in_bytes"))
}

fn group(name: &str, worker: &[&str], algorithm: &str, folios: &[String], args: &Args, rounds: u32) -> Group {
    let mut all = vec!["folios-worker".to_owned()];
    all.extend(worker.iter().map(|&word| word.to_owned()));
    all.extend([args.size.0.to_string(), rounds.to_string()]);
    // The rig's device has LZ4.
    let mut series = if algorithm == "lz4" { vec![Series::new("kernel", Side::Kernel, &[], &all)] } else { Vec::new() };
    for policy in folios {
        let (swap, mechanism) = (format!("--swap=compressed:{algorithm}"), switch(policy));
        series.push(Series::new(policy.clone(), Side::Outswap, &[&swap, &mechanism], &all));
    }
    Group { name: name.to_owned(), series }
}

/// Table 1: fallbacks by round, of real runs and of the slot map alone.
fn fallback_table(churn: &Group, maps: &[(String, Vec<f64>)], rounds: u32) -> String {
    let mut head = vec!["round".to_owned(), "published: without".to_owned(), "published: with".to_owned()];
    head.extend(churn.series.iter().map(|series| series.name.clone()));
    head.extend(maps.iter().map(|(name, _)| name.clone()));
    let row = |round: u32| {
        let published = PUBLISHED_FALLBACKS.iter().find(|(n, _)| *n == round).map(|(_, percent)| *percent);
        let mut row = vec![round.to_string(), report::number(published, 1), "0.00".to_owned()];
        let index = round as usize - 1;
        row.extend(churn.series.iter().map(|series| {
            let largest = largest_pages(&series.name);
            report::number(series.median(|s| fallback_percent(s, index, largest)), 2)
        }));
        row.extend(maps.iter().map(|(_, percents)| report::number(percents.get(index).copied(), 2)));
        row
    };
    let rows: Vec<Vec<String>> = (1..=rounds).map(row).collect();
    report::table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
}

/// Tables 2 and 3: rounds of going and coming.
fn rounds_table(groups: &[Group], args: &Args) -> String {
    let mut rows = Vec::new();
    for group in groups {
        if let Some((_, small, large)) = PUBLISHED_ROUNDS.iter().find(|(name, ..)| *name == group.name) {
            for (unit, [back, out]) in [("4 KiB", small), ("64 KiB", large)] {
                let ms = |ms: f64| format!("{ms:.0}");
                let row = [group.name.clone(), format!("published: {unit}"), ms(*back), ms(*out)];
                rows.push([&row[..], &["-", "-"].map(str::to_owned)].concat());
            }
        }
        for series in &group.series {
            let percent = |value: Option<f64>| report::number(value.map(|part| part * 100.0), 1);
            rows.push(vec![
                group.name.clone(),
                series.name.clone(),
                series.shown(0, |s| scaled_ms(s, "in", args.size)),
                series.shown(0, |s| scaled_ms(s, "out", args.size)),
                percent(series.median(|s| came_back(s, args.size))),
                percent(series.median(|s| in_folios(s, &series.name))),
            ]);
        }
    }
    let head = ["algorithm", "folios", "in, ms", "out, ms", "came back from swap, %", "in folios, % of pages out"];
    report::table(&head, &rows)
}

/// Table 4: bytes.
fn bytes_table(groups: &[Group]) -> String {
    let (plain, small, large) = PUBLISHED_BYTES;
    let share = |bytes: f64| format!("{:.1}", bytes * 100.0 / plain);
    let mut rows = vec![
        vec!["zstd".to_owned(), "published: 4 KiB".to_owned(), format!("{small:.0}"), share(small)],
        vec!["zstd".to_owned(), "published: 64 KiB".to_owned(), format!("{large:.0}"), share(large)],
    ];
    for group in groups {
        for series in group.series.iter().filter(|series| series.side == Side::Outswap) {
            let bytes = series.median(stored_share).map(|share| share * plain);
            let percent = bytes.map(|bytes| bytes * 100.0 / plain);
            rows.push(vec![
                group.name.clone(),
                series.name.clone(),
                report::number(bytes, 0),
                report::number(percent, 1),
            ]);
        }
    }
    report::table(&["algorithm", "folios", "bytes of 1,048,576,000", "%"], &rows)
}

/// Table 5: memory of 0x11.
fn eleven_table(group: &Group, args: &Args) -> String {
    let gain = |to: Option<f64>, of: Option<f64>| {
        quotient(of, to).map_or("-".to_owned(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0))
    };
    let mut rows = vec![
        vec!["published: without".to_owned(), format!("{:.0}", PUBLISHED_ELEVEN.0), "-".to_owned()],
        vec![
            "published: with".to_owned(),
            format!("{:.0}", PUBLISHED_ELEVEN.1),
            gain(Some(PUBLISHED_ELEVEN.0), Some(PUBLISHED_ELEVEN.1)),
        ],
    ];
    let small = group.median("small", |s| bytes_per_ms(s, args.size));
    for series in &group.series {
        let rate = series.median(|s| bytes_per_ms(s, args.size));
        rows.push(vec![series.name.clone(), series.shown(0, |s| bytes_per_ms(s, args.size)), gain(small, rate)]);
    }
    report::table(&["folios", "bytes/ms", "to single pages"], &rows)
}

/// Runs `large-folios`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let limit = Bytes((args.size.0 * 2).max(32 << 20));
    let mut lab = Lab::open(&args.common, Bytes(args.size.0.saturating_mul(4).max(64 << 20)), limit)?;
    let folios = match args.folios.is_empty() {
        true => lab.policies("folios").into_iter().chain(LARGE.map(str::to_owned)).collect(),
        false => args.folios.clone(),
    };
    let mut maps = Vec::new();
    for number in ORDERS {
        for (back, name) in [(Back::Pages, "pages back"), (Back::Whole, "whole back")] {
            // At least a few folios of the highest order.
            let pages = args.size.pages().max(64 * 512);
            let percents = fallbacks(Order::new(number), pages, back, args.churn_rounds).map_err(Failure::Failed)?;
            maps.push((format!("map, order {number}, {name}"), percents));
        }
    }
    let mut churn = [group("churn", &["churn", "records"], "lz4", &folios, args, args.churn_rounds)];
    let mut swaps: Vec<Group> = args
        .algorithms
        .iter()
        .map(|algorithm| group(algorithm, &["swap", "records"], algorithm, &folios, args, args.rounds))
        .collect();
    let mut eleven = [group("0x11", &["swap", "eleven"], "lz4", &folios, args, args.rounds.min(5))];
    let mut signal = None;
    for groups in [&mut churn[..], &mut swaps[..], &mut eleven[..]] {
        if signal.is_none() {
            signal = lab.measure(groups, args.size).err();
        }
    }
    lab.note(
        "Orders: `small` is order 0, `as-it-came-16k` order 2, `as-it-came` order 4, `largest` all. Of orders that are listed the highest is that \
         of folios of several blocks: of 1 MiB, which a stream's fault brings in as a whole, and of 2 MiB, which come in by parts of 64 KiB, as \
         those of the kernel's swap come by lower orders. What of them is no such folio goes as one of order 4, or as single pages."
            .to_owned(),
    );
    lab.note(
        "The kernel's device has LZ4. Its folios are those of 64 KiB that its own settings allow (see the machine); its column has - \
         where there were none. In real runs there is more slot space than is needed, in the slot map alone a tenth more. Times are \
         scaled to 100 rounds of 100 MiB; pages are written anew before each round, except for those of 0x11, which go for free."
            .to_owned(),
    );
    let verdict = verdict(args, &churn[0], &swaps, &eleven[0], &maps);
    let tables = vec![
        (
            "1. Folios that had to go as pages, %, by round".to_owned(),
            fallback_table(&churn[0], &maps, args.churn_rounds),
        ),
        ("2, 3. 100 rounds of 100 MiB".to_owned(), rounds_table(&swaps, args)),
        ("4. What 1,048,576,000 bytes become".to_owned(), bytes_table(&swaps)),
        ("5. Memory of 0x11 that comes back".to_owned(), eleven_table(&eleven[0], args)),
    ];
    let legend: Vec<String> = ["kernel".to_owned()].into_iter().chain(folios.iter().cloned()).collect();
    let mut bars = Vec::new();
    for swap in &swaps {
        for way in ["in", "out"] {
            let value = |name: &String| swap.median(name, |s| scaled_ms(s, way, args.size)).map(|ms| ms / 1000.0);
            bars.push(chart::Group {
                name: format!("{} {way}", swap.name),
                values: legend.iter().map(value).collect(),
            });
        }
    }
    let report = Report {
        benchmark: "large-folios",
        settings: json!({
            "size_bytes": args.size.0, "resident_bytes": limit.0, "rounds": args.rounds, "churn_rounds": args.churn_rounds,
            "folios": folios, "page_bytes": PAGE_BYTES,
        }),
        tables,
        results: churn
            .iter()
            .chain(&swaps)
            .chain(&eleven)
            .map(Group::json)
            .chain(maps.iter().map(|(name, percents)| json!({ "what": name, "fallback_percents": percents })))
            .collect(),
        verdict,
        chart: Chart {
            title: "Large folios",
            legend: &legend,
            groups: &bars,
            mark: None,
            caption: "Seconds for 100 rounds of 100 MiB.",
        },
    };
    lab.finish(report, signal)
}

/// Folios never fall back, come and go in less time than pages, and take less space.
fn verdict(args: &Args, churn: &Group, swaps: &[Group], eleven: &Group, maps: &[(String, Vec<f64>)]) -> Verdict {
    const FOLIOS: &str = "as-it-came";
    let mut checks = vec![Check::new(
        "fallbacks, %, at worst",
        churn.median(FOLIOS, |s| worst_fallback(s, None)),
        Bound::AtMost(0.0),
    )];
    for name in LARGE {
        if let Some(worst) = churn.median(name, |s| worst_fallback(s, largest_pages(name))) {
            checks.push(Check::new(format!("{name}: fallbacks, %, at worst"), Some(worst), Bound::AtMost(0.0)));
        }
    }
    let whole = maps.iter().filter(|(name, _)| name.ends_with("whole back")).flat_map(|(_, percents)| percents);
    let worst = Summary::of(&whole.copied().collect::<Vec<_>>()).map(|summary| summary.max);
    checks.push(Check::new("in the slot map alone, folios back whole", worst, Bound::AtMost(0.0)));
    let ratio = |group: &Group, value: &dyn Fn(&Sample) -> Option<f64>| {
        quotient(group.median(FOLIOS, value), group.median("small", value))
    };
    for group in swaps {
        for way in ["in", "out"] {
            let what = format!("{}: time {way} to that of pages", group.name);
            checks.push(Check::new(what, ratio(group, &|s| scaled_ms(s, way, args.size)), Bound::AtMost(1.0)));
        }
        let what = format!("{}: bytes to those of pages", group.name);
        checks.push(Check::new(what, ratio(group, &stored_share), Bound::AtMost(1.0)));
    }
    let rate = ratio(eleven, &|s| bytes_per_ms(s, args.size));
    checks.push(Check::new("0x11: rate to that of pages (published: 1.83)", rate, Bound::AtLeast(1.83)));
    let all = [churn, eleven].into_iter().chain(swaps);
    Verdict { checks, failures: all.map(|group| failures(std::slice::from_ref(group))).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        let round = |out: u64, fell: u64| {
            json!({ "out": { "outswap": { "folios_out": out, "folio_fallbacks": fell, "pages_out_ram": 200 } },
                    "in": { "outswap": { "pages_in_ram": 128 }, "swap_in_pages": 0 } })
        };
        let result =
            json!({ "in_ns": 4_000_000, "out_ns": 8_000_000, "rounds": [round(0, 0), round(10, 0), round(6, 2)] });
        let stats = json!({ "compression": { "in_bytes": 400, "out_bytes": 100 } });
        Sample { result, stats: Some(stats), kernel: None }
    }

    #[test]
    fn fallbacks_are_parts_of_the_folios_that_wanted_to_go() {
        let sample = sample();
        assert_eq!(
            [0, 1, 2, 3].map(|round| fallback_percent(&sample, round, None)),
            [None, Some(0.0), Some(25.0), None]
        );
        assert_eq!((worst_fallback(&sample, None), in_folios(&sample, "as-it-came")), (Some(25.0), Some(0.64)));
        let kernel = json!({ "out": { "outswap": null }, "kernel_folios": { "out": 3, "fallbacks": 1 } });
        assert_eq!(round_folios(&kernel, None), Some((4.0, 1.0)));
    }

    #[test]
    fn a_folio_of_several_blocks_is_one() {
        let round = json!({ "out": { "outswap": { "folios_out": 13, "folio_blocks": 12, "folio_fallbacks": 1, "pages_out_ram": 1024 } } });
        // Three of four parts, and one other.
        assert_eq!(round_folios(&round, largest_pages("0+4+8")), Some((5.0, 1.0)));
        let sample = Sample { result: json!({ "rounds": [{}, round] }), stats: None, kernel: None };
        assert_eq!(in_folios(&sample, "0+4+8"), Some(0.75));
        assert_eq!((largest_pages("0+4+9"), largest_pages("0+4+6")), (Some(512.0), None));
        assert_eq!((in_folios(&sample, "largest"), in_folios(&sample, "small")), (None, None));
        assert_eq!([switch("0+4+9"), switch("small")], ["--folio-orders=0,4,9", "--mechanism=folios=small"]);
    }

    #[test]
    fn times_are_scaled_to_the_published_work() {
        let (sample, bytes) = (sample(), Bytes(1 << 20));
        // 3 MiB took 4 ms to come back.
        assert_eq!(scaled_ms(&sample, "in", bytes), Some(4.0 * 10_000.0 / 3.0));
        assert_eq!(bytes_per_ms(&sample, bytes), Some(3.0 * 1_048_576.0 / 4.0));
        assert_eq!((came_back(&sample, bytes), stored_share(&sample)), (Some(0.5), Some(0.25)));
    }
}
