//! What a run came to: collected from the control block, written as JSON (`docs/stats.md`) or for people.
use crate::args::RunOptions;
use crate::device;
use crate::processes::is_zombie;
use crate::quantile::{quantile, sum};
use crate::size::show;
use crate::supervise::End;
use crate::watch::Watch;
use outswap_control::{ALL_STATS, Control, LATENCY_BUCKETS, STAT_COUNT, STAT_NAMES, Stat, TREE_PEAKS};
use outswap_source::Source;
use outswap_sys::PAGE_BYTES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

/// Name and version of the schema. Fields may be added under one version; a field that goes or changes its meaning
/// makes a new one.
pub const SCHEMA: &str = "outswap.stats/1";

/// Gathers what the processes publish. Any of them can have written anything: sums stop at the largest number.
pub struct Collector {
    control: &'static Control,
    started: Instant,
    gauges: [u64; STAT_COUNT],
    sources_seen: [bool; Source::ALL.len()],
}

fn is_gauge(stat: Stat) -> bool {
    let name = STAT_NAMES[stat as usize];
    name.ends_with("_bytes") && !name.starts_with("peak_")
}

impl Collector {
    /// Begins; the program starts now.
    pub fn new(control: &'static Control) -> Collector {
        Collector {
            control,
            started: Instant::now(),
            gauges: [0; STAT_COUNT],
            sources_seen: [false; Source::ALL.len()],
        }
    }

    /// Processes that have registered so far.
    pub fn processes_started(&self) -> u32 {
        self.control.processes_started.load(Relaxed)
    }

    /// Takes a sample of all live processes, and folds the records of dead ones into the tree's sums.
    pub fn tick(&mut self) {
        if self.processes_started() == 0 {
            return;
        }
        let mut sample = [0u64; STAT_COUNT];
        let mut any = false;
        let own = outswap_sys::os::getpid();
        for process in self.control.used_records() {
            // Folding leaves the fault source in a record, so it is seen for processes that came and went, too.
            let number = process.fault_source.load(Relaxed);
            for (seen, source) in self.sources_seen.iter_mut().zip(Source::ALL) {
                *seen |= source.number() == number;
            }
            if process.pid.load(Acquire) > 0 {
                any = true;
                for &stat in ALL_STATS.iter().filter(|&&s| is_gauge(s)) {
                    let sum = &mut sample[stat as usize];
                    let is_resident = stat == Stat::ResidentBytes;
                    let value = if is_resident { process.resident_bytes() } else { process.counters.get(stat) };
                    *sum = sum.saturating_add(value);
                }
            }
            // Who has said that it ends may be waited for late, or never.
            let ends = process.is_ending();
            self.control.fold_if(process, own, |pid| !self.control.exists(pid) || ends && is_zombie(pid));
        }
        if any {
            self.gauges = sample;
        }
    }

    /// Makes the report.
    pub fn finish(&self, options: &RunOptions, managed: bool, end: End, watch: &Watch) -> Stats {
        let control = self.control;
        let mut sums = self.gauges;
        let mut latency = [0u64; LATENCY_BUCKETS];
        let live = control.used_records().iter().filter(|p| p.pid.load(Acquire) > 0).map(|p| &p.counters);
        for counters in live.chain([&control.ended]) {
            for &stat in ALL_STATS.iter().filter(|&&s| !is_gauge(s)) {
                let sum = &mut sums[stat as usize];
                *sum = sum.saturating_add(counters.get(stat));
            }
            for (to, from) in latency.iter_mut().zip(&counters.latency_ns) {
                *to = to.saturating_add(from.load(Relaxed));
            }
        }
        let over = &mut sums[Stat::OverBudget as usize];
        *over = over.saturating_add(watch.over());
        // All of them are told here, whoever gives them.
        sums[Stat::Warnings as usize] = crate::warnings();
        let used = Source::ALL.iter().zip(self.sources_seen).filter(|(_, seen)| *seen).map(|(source, _)| source.name());
        Stats::new(Raw {
            options,
            managed,
            end,
            duration_ns: self.started.elapsed().as_nanos() as u64,
            sources: used.collect(),
            sums: &sums,
            latency: &latency,
            tree_peak_bytes: control.peak_charge_bytes.load(Relaxed),
            tree_peaks: control.tree_peaks.each_ref().map(|peak| peak.load(Relaxed)),
            processes: [control.processes_started.load(Relaxed), control.processes_unmanaged.load(Relaxed)],
            messages_dropped: control.messages_dropped.load(Relaxed),
        })
    }
}

struct Raw<'a> {
    options: &'a RunOptions,
    managed: bool,
    end: End,
    duration_ns: u64,
    sources: Vec<&'static str>,
    sums: &'a [u64; STAT_COUNT],
    latency: &'a [u64; LATENCY_BUCKETS],
    tree_peak_bytes: u64,
    tree_peaks: [u64; TREE_PEAKS.len()],
    processes: [u32; 2],
    messages_dropped: u32,
}

/// The report. Its fields are explained in `docs/stats.md`, one by one.
#[derive(Serialize)]
pub struct Stats {
    schema: &'static str,
    outswap_version: &'static str,
    command: Vec<String>,
    managed: bool,
    exit: Exit,
    duration_ns: u64,
    config: ConfigStats,
    fault_sources: Vec<&'static str>,
    processes: Processes,
    memory: Memory,
    faults: Faults,
    fault_latency: Latency,
    stores: Stores,
    pages: Pages,
    compression: Compression,
    pool: Pool,
    folios: Folios,
    reclaim: Reclaim,
    calls: Calls,
    problems: Problems,
    counters: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Exit {
    status: Option<i32>,
    signal: Option<i32>,
}
#[derive(Serialize)]
struct ConfigStats {
    ram_bytes: u64,
    ram_source: &'static str,
    resident_bytes: u64,
    swap: Vec<TierStats>,
    swap_dir: String,
    fault_source: &'static str,
    malloc: &'static str,
    follow: bool,
}
#[derive(Serialize)]
struct TierStats {
    kind: &'static str,
    algorithm: Option<&'static str>,
    level: i32,
    max_bytes: u64,
    model: Option<&'static str>,
}
#[derive(Serialize)]
struct Processes {
    managed: u32,
    unmanaged: u32,
    forks: u64,
}
#[derive(Serialize)]
struct Memory {
    tree_peak_bytes: u64,
    tree_peaks: BTreeMap<&'static str, u64>,
    summed_peaks: SummedPeaks,
    current: Current,
}
/// The highest of each process, summed, at however unlike moments that was.
#[derive(Serialize)]
struct SummedPeaks {
    resident_bytes: u64,
    pool_bytes: u64,
    tables_bytes: u64,
    file_bytes: u64,
    charge_bytes: u64,
}
#[derive(Serialize)]
struct Current {
    resident_bytes: u64,
    cached_bytes: u64,
    pool_bytes: u64,
    tables_bytes: u64,
    file_bytes: u64,
    file_memory_bytes: u64,
    unmanaged_bytes: u64,
    charge_bytes: u64,
}
#[derive(Serialize)]
struct Faults {
    total: u64,
    first_touch: u64,
    hit: u64,
    miss: u64,
    bypass: u64,
    waited: u64,
}
#[derive(Serialize)]
struct Latency {
    count: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    buckets: Vec<Bucket>,
}
#[derive(Serialize)]
struct Bucket {
    from_ns: u64,
    count: u64,
}
#[derive(Serialize)]
struct Stores {
    memory: StoreStats,
    file: StoreStats,
}
#[derive(Serialize)]
struct StoreStats {
    pages_out: u64,
    pages_in: u64,
    bytes_out: u64,
    bytes_in: u64,
}
#[derive(Serialize)]
struct Pages {
    first_touch: u64,
    clean: u64,
    unwritten: u64,
    reused: u64,
    put_back: u64,
    read_ahead: u64,
    ahead_hit: u64,
    ahead_dropped: u64,
    zero: u64,
    taken: u64,
    taken_by_copy: u64,
}
#[derive(Serialize)]
struct Compression {
    in_bytes: u64,
    out_bytes: u64,
    ratio: Option<f64>,
    raw_units: u64,
}
#[derive(Serialize)]
struct Pool {
    held_bytes: u64,
    used_bytes: u64,
    utilisation: Option<f64>,
}
#[derive(Serialize)]
struct Folios {
    out: u64,
    out_fallbacks: u64,
    #[serde(rename = "in")]
    back: u64,
}
#[derive(Serialize)]
struct Reclaim {
    direct: u64,
    background: u64,
}
#[derive(Serialize)]
struct Calls {
    wrapped: u64,
    trapped: u64,
}
#[derive(Serialize)]
struct Problems {
    warnings: u64,
    over_budget: u64,
    store_full: u64,
    store_errors: u64,
    corruptions: u64,
    messages_dropped: u32,
}

impl Stats {
    fn new(raw: Raw) -> Stats {
        let n = |stat: Stat| raw.sums[stat as usize];
        let ratio = |a: u64, b: u64| (b > 0).then(|| (a as f64 / b as f64 * 1000.0).round() / 1000.0);
        let options = raw.options;
        let faults = sum([Stat::FaultFirstTouch, Stat::FaultHit, Stat::FaultMiss, Stat::FaultBypass].map(n));
        Stats {
            schema: SCHEMA,
            outswap_version: env!("CARGO_PKG_VERSION"),
            command: options.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            managed: raw.managed && raw.processes[0] > 0,
            exit: match raw.end {
                End::Exited(status) => Exit { status: Some(status), signal: None },
                End::Killed(signal) => Exit { status: None, signal: Some(signal) },
                End::Unknown => Exit { status: None, signal: None },
            },
            duration_ns: raw.duration_ns,
            config: ConfigStats {
                ram_bytes: options.ram_bytes,
                ram_source: options.ram_source.name(),
                resident_bytes: options.resident_bytes,
                swap: options
                    .tiers
                    .iter()
                    .map(|t| TierStats {
                        kind: t.kind.name(),
                        algorithm: t.kind.algorithm().map(|(name, _)| name),
                        level: t.kind.algorithm().map_or(0, |(_, level)| level),
                        max_bytes: t.max_bytes,
                        model: (!t.device.is_none()).then(|| device::name(&t.device).unwrap_or("other")),
                    })
                    .collect(),
                swap_dir: options.swap_dir.to_string_lossy().into_owned(),
                fault_source: options.fault_source.map_or("auto", Source::name),
                malloc: if options.keep_malloc { "keep" } else { "mimalloc" },
                follow: !options.no_follow,
            },
            fault_sources: raw.sources,
            processes: Processes { managed: raw.processes[0], unmanaged: raw.processes[1], forks: n(Stat::Forks) },
            memory: Memory {
                tree_peak_bytes: raw.tree_peak_bytes,
                tree_peaks: TREE_PEAKS.map(|stat| STAT_NAMES[stat as usize]).into_iter().zip(raw.tree_peaks).collect(),
                summed_peaks: SummedPeaks {
                    resident_bytes: n(Stat::PeakResidentBytes),
                    pool_bytes: n(Stat::PeakPoolBytes),
                    tables_bytes: n(Stat::PeakTablesBytes),
                    file_bytes: n(Stat::PeakFileBytes),
                    charge_bytes: n(Stat::PeakChargeBytes),
                },
                current: Current {
                    resident_bytes: n(Stat::ResidentBytes),
                    cached_bytes: n(Stat::IsolatedBytes),
                    pool_bytes: n(Stat::PoolBytes),
                    tables_bytes: n(Stat::TablesBytes),
                    file_bytes: n(Stat::FileBytes),
                    file_memory_bytes: n(Stat::FileMemoryBytes),
                    unmanaged_bytes: n(Stat::UnmanagedBytes),
                    charge_bytes: n(Stat::ChargeBytes),
                },
            },
            faults: Faults {
                total: faults,
                first_touch: n(Stat::FaultFirstTouch),
                hit: n(Stat::FaultHit),
                miss: n(Stat::FaultMiss),
                bypass: n(Stat::FaultBypass),
                waited: n(Stat::FaultWaited),
            },
            fault_latency: Latency {
                count: sum(raw.latency.iter().copied()),
                p50_ns: quantile(raw.latency, 0.50),
                p99_ns: quantile(raw.latency, 0.99),
                buckets: raw.latency.iter().enumerate().map(|(i, &count)| Bucket { from_ns: 1 << i, count }).collect(),
            },
            stores: Stores {
                memory: StoreStats {
                    pages_out: n(Stat::PagesOutRam),
                    pages_in: n(Stat::PagesInRam),
                    bytes_out: n(Stat::PagesOutRam).saturating_mul(PAGE_BYTES as u64),
                    bytes_in: n(Stat::PagesInRam).saturating_mul(PAGE_BYTES as u64),
                },
                file: StoreStats {
                    pages_out: n(Stat::PagesOutFile),
                    pages_in: n(Stat::PagesInFile),
                    bytes_out: n(Stat::BytesOutFile),
                    bytes_in: n(Stat::BytesInFile),
                },
            },
            pages: Pages {
                first_touch: n(Stat::PagesFirstTouch),
                clean: n(Stat::PagesClean),
                unwritten: n(Stat::PagesUnwritten),
                reused: n(Stat::PagesReused),
                put_back: n(Stat::PagesPutBack),
                read_ahead: n(Stat::PagesReadAhead),
                ahead_hit: n(Stat::PagesAheadHit),
                ahead_dropped: n(Stat::PagesAheadDropped),
                zero: n(Stat::PagesZero),
                taken: n(Stat::PagesTaken),
                taken_by_copy: n(Stat::PagesTakenByCopy),
            },
            compression: Compression {
                in_bytes: n(Stat::CompressIn),
                out_bytes: n(Stat::CompressOut),
                ratio: ratio(n(Stat::CompressIn), n(Stat::CompressOut)),
                raw_units: n(Stat::RawUnits),
            },
            pool: Pool {
                held_bytes: n(Stat::PoolBytes),
                used_bytes: n(Stat::PoolUsedBytes),
                utilisation: ratio(n(Stat::PoolUsedSeenKib), n(Stat::PoolSeenKib)),
            },
            folios: Folios { out: n(Stat::FoliosOut), out_fallbacks: n(Stat::FolioFallbacks), back: n(Stat::FoliosIn) },
            reclaim: Reclaim { direct: n(Stat::DirectReclaims), background: n(Stat::BackgroundReclaims) },
            calls: Calls { wrapped: n(Stat::CallsWrapped), trapped: n(Stat::CallsTrapped) },
            problems: Problems {
                warnings: n(Stat::Warnings),
                over_budget: n(Stat::OverBudget),
                store_full: n(Stat::StoreFull),
                store_errors: sum([Stat::StoreErrors, Stat::WriteErrors].map(n)),
                corruptions: n(Stat::Corruptions),
                messages_dropped: raw.messages_dropped,
            },
            counters: STAT_NAMES.iter().zip(raw.sums).map(|(&name, &value)| (name, value)).collect(),
        }
    }

    /// The same for people, in short lines.
    pub fn summary(&self) -> Vec<String> {
        let budget = match (self.config.ram_bytes, self.config.resident_bytes) {
            (0, resident) => format!("no budget, {} resident", show(resident)),
            (ram, 0) => format!("budget {}", show(ram)),
            (ram, resident) => format!("budget {}, {} resident", show(ram), show(resident)),
        };
        let time_s = self.duration_ns as f64 / 1e9;
        let (processes, es) = (self.processes.managed, if self.processes.managed == 1 { "" } else { "es" });
        let mut lines = vec![format!("time        {time_s:.2} s, {processes} managed process{es}")];
        if !self.managed {
            lines.push("memory      the program was not managed".into());
            return lines;
        }
        let (peaks, faults, pages) = (&self.memory.tree_peaks, &self.faults, &self.pages);
        let ns = |stat: Stat| self.counters[STAT_NAMES[stat as usize]] as f64;
        lines.push(format!("memory      peak {} ({budget})", show(self.memory.tree_peak_bytes)));
        let peak = |name: &str| show(peaks.get(name).copied().unwrap_or(0));
        let [resident, pool, tables] = ["resident_bytes", "pool_bytes", "tables_bytes"].map(peak);
        lines.push(format!(
            "peaks       resident {resident}, pool {pool}, tables {tables}, file {}",
            peak("file_bytes")
        ));
        lines.push(format!("unmanaged   peak {}, which is never evicted", peak("unmanaged_bytes")));
        lines.push(format!(
            "faults      {}: {} first touches, {} cache hits, {} misses, {} bypasses; {} waited",
            faults.total, faults.first_touch, faults.hit, faults.miss, faults.bypass, faults.waited
        ));
        if let (Some(p50), Some(p99)) = (self.fault_latency.p50_ns, self.fault_latency.p99_ns) {
            let (p50, p99) = (p50 as f64 / 1000.0, p99 as f64 / 1000.0);
            let all_s = ns(Stat::FaultNs) / 1e9;
            lines.push(format!("latency     half within {p50:.1} us, 99 % within {p99:.1} us; {all_s:.2} s in all"));
        }
        let (memory, file) = (&self.stores.memory, &self.stores.file);
        for (name, store, verbs) in [("to memory ", memory, ["", ""]), ("to file   ", file, [" written", " read"])] {
            let (out, back) = (show(store.bytes_out) + verbs[0], show(store.bytes_in) + verbs[1]);
            lines.push(format!("{name}  {} pages out, {} back ({out} and {back})", store.pages_out, store.pages_in));
        }
        lines.push(format!("for free    {} clean evictions, {} zero pages", pages.clean, pages.zero));
        if let Some(ratio) = self.compression.ratio {
            let (from, to) = (show(self.compression.in_bytes), show(self.compression.out_bytes));
            let used = self.pool.utilisation.map_or(String::new(), |u| format!(", pool {:.0} % used", u * 100.0));
            lines.push(format!("compressed  {from} to {to} ({ratio:.2} : 1){used}"));
        }
        lines.push(format!("calls       {} assisted, {} after a trap", self.calls.wrapped, self.calls.trapped));
        let [behind, own] = [Stat::BackgroundNs, Stat::TakeNs].map(|stat| ns(stat) / 1e3 / pages.taken.max(1) as f64);
        let mut line = format!("source      {}", self.fault_sources.join(", "));
        if pages.taken > 0 {
            line +=
                &format!("; a page out took {behind:.2} us in the background, {own:.2} us in the program's threads");
        }
        lines.push(line);
        let p = &self.problems;
        let counted = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let all = [
            counted(p.warnings, "warning", "warnings"),
            counted(p.over_budget, "time over budget", "times over budget"),
            counted(p.store_full, "time full", "times full"),
            counted(p.store_errors, "store error", "store errors"),
            counted(p.corruptions, "corruption", "corruptions"),
        ];
        lines.push(format!("problems    {}", all.join(", ")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RamSource;
    use outswap_control::{CHARGE_MAX_BYTES, Config, MAX_PROCESSES, MESSAGE_BYTES, Shared};
    use outswap_sys::os;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU32;

    fn example() -> Stats {
        let options = RunOptions {
            ram_bytes: 128 << 20,
            ram_source: RamSource::Given,
            resident_bytes: 0,
            tiers: crate::spec::parse("compressed:zstd:3:1G,file", 8 << 30).expect("fine"),
            swap_dir: "/var/tmp".into(),
            mechanisms: crate::mechanism::Mechanisms::default(),
            page_cluster: 3,
            folio_orders: 0,
            fault_source: None,
            keep_malloc: false,
            summary: true,
            command: vec!["prog".into(), "arg".into()],
            ..options()
        };
        let mut sums = [0u64; STAT_COUNT];
        sums.iter_mut().enumerate().for_each(|(i, n)| *n = i as u64 + 1);
        let mut latency = [0u64; LATENCY_BUCKETS];
        (latency[10], latency[11], latency[20]) = (50, 49, 1);
        Stats::new(Raw {
            options: &options,
            managed: true,
            end: End::Exited(3),
            duration_ns: 1_500_000_000,
            sources: vec!["move"],
            sums: &sums,
            latency: &latency,
            tree_peak_bytes: 100 << 20,
            tree_peaks: [60 << 20, 8 << 20, 4 << 20, 1 << 20, 7 << 20],
            processes: [2, 1],
            messages_dropped: 0,
        })
    }

    fn paths(value: &Value, at: &str, out: &mut BTreeSet<String>) {
        let below = |name: &str| {
            if at.is_empty() { name.to_string() } else { format!("{at}.{name}") }
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| paths(value, &below(name), out)),
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                items.iter().for_each(|item| paths(item, &format!("{at}[]"), out));
            }
            _ => {
                out.insert(at.to_string());
            }
        }
    }

    #[test]
    fn every_field_is_documented_and_every_documented_field_exists() {
        let text = serde_json::to_string(&example()).expect("plain data");
        let value: Value = serde_json::from_str(&text).expect("our own JSON");
        let mut fields = BTreeSet::new();
        paths(&value, "", &mut fields);
        let page = include_str!("../../../docs/stats.md");
        let documented: BTreeSet<String> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(name, _)| name.to_string())
            .collect();
        let undocumented: Vec<_> = fields.difference(&documented).collect();
        let imaginary: Vec<_> = documented.difference(&fields).collect();
        assert!(undocumented.is_empty(), "not in docs/stats.md: {undocumented:?}");
        assert!(imaginary.is_empty(), "only in docs/stats.md: {imaginary:?}");
        assert!(page.contains(SCHEMA));
    }

    #[test]
    fn numbers_land_where_they_belong() {
        let value = serde_json::to_value(example()).expect("plain data");
        let counter = |stat: Stat| stat as u64 + 1;
        assert_eq!(value["faults"]["miss"], counter(Stat::FaultMiss));
        assert_eq!(value["memory"]["summed_peaks"]["file_bytes"], counter(Stat::PeakFileBytes));
        assert_eq!(value["memory"]["current"]["resident_bytes"], counter(Stat::ResidentBytes));
        assert_eq!(value["stores"]["memory"]["bytes_out"], counter(Stat::PagesOutRam) * 4096);
        assert_eq!(value["stores"]["file"]["bytes_in"], counter(Stat::BytesInFile));
        assert_eq!(value["memory"]["tree_peaks"]["unmanaged_bytes"], 7 << 20);
        assert_eq!(value["problems"]["store_errors"], counter(Stat::StoreErrors) + counter(Stat::WriteErrors));
        assert_eq!(value["counters"]["corruptions"], counter(Stat::Corruptions));
        assert_eq!(value["exit"]["status"], 3);
        assert_eq!(value["config"]["swap"][0]["algorithm"], "zstd");
        assert_eq!(value["fault_latency"]["count"], 100);
    }

    #[test]
    fn the_summary_is_short() {
        let lines = example().summary();
        assert!(lines.len() <= 13, "{lines:#?}");
        assert!(lines.iter().all(|l| l.len() <= 100 && !l.contains('\n')), "{lines:#?}");
        assert!(lines[0].ends_with("2 managed processes"), "{}", lines[0]);
        assert!(lines[1].contains("100 MiB (budget 128 MiB)"), "{}", lines[1]);
        assert!(lines[2].contains("resident 60.0 MiB") && lines[3].contains("peak 7.0 MiB"), "{lines:#?}");
    }

    fn control() -> &'static Control {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        let shared = unsafe { &*(at as *const Shared) };
        Box::leak(Box::new(Control::new(&Config::EMPTY, shared, None)))
    }

    fn options() -> RunOptions {
        match crate::args::parse(["outswap", "run", "p"].map(Into::into).to_vec()) {
            Ok(crate::args::Parsed::Run(options)) => *options,
            _ => panic!("not run"),
        }
    }

    #[test]
    fn no_content_of_the_block_disturbs_the_supervisor() {
        let control = control();
        let words = size_of::<Shared>() / 4;
        // SAFETY: all fields are atomic integers of at least one byte, and other threads do not know of the block.
        let block = unsafe { std::slice::from_raw_parts((&raw const **control).cast::<AtomicU32>(), words) };
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..60 {
            for word in block {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Numbers near the ends, too, and small ones that pass for states, lengths and process ids.
                let value = match round % 6 {
                    0 => 0,
                    1 => u32::MAX,
                    2 => 1 << 31,
                    3 => (state >> 40) as u32 % 4,
                    4 => ((state >> 40) as u32 % 4).wrapping_sub(2),
                    _ => (state >> 32) as u32,
                };
                word.store(value, Relaxed);
            }
            let mut collector = Collector::new(control);
            let mut watch = Watch::new(control, os::getpid(), true);
            for _ in 0..3 {
                collector.tick();
                watch.look_now(|_| ());
                control.drain(|text| assert!(text.len() <= MESSAGE_BYTES));
            }
            let stats = collector.finish(&options(), true, End::Exited(0), &watch);
            assert!(stats.summary().iter().all(|line| !line.contains('\n')));
            serde_json::to_string(&stats).expect("plain data");
            // What processes do with it.
            control.post(b"x");
            assert!(control.used_records().len() <= MAX_PROCESSES);
            assert!(control.charges_of_others(std::ptr::null()) <= CHARGE_MAX_BYTES * MAX_PROCESSES as u64);
            if let Some(record) = control.take(os::getpid()) {
                assert_eq!((record.pid.load(Relaxed), record.charge()), (os::getpid(), 0));
                assert!(control.fold(record, os::getpid(), os::getpid()));
            }
        }
    }

    #[test]
    fn the_collector_sums_records_and_remembers_what_folding_forgets() {
        let control = control();
        let mut collector = Collector::new(control);
        collector.tick();
        assert_eq!(collector.gauges, [0; STAT_COUNT]);
        let mut dead = std::process::Command::new("true").spawn().expect("true is everywhere");
        let dead_pid = dead.id() as i32;
        dead.wait().expect("our child");
        for (i, pid) in [(0, os::getpid()), (1, dead_pid)] {
            let process = &control.processes[i];
            process.counters.set(Stat::ResidentBytes, 4096);
            process.counters.set(Stat::PeakResidentBytes, 8192);
            process.counters.add(Stat::FaultMiss, 5);
            process.counters.latency_ns[3].store(7, Relaxed);
            process.fault_source.store(Source::Copying.number(), Relaxed);
            process.pid.store(pid, Relaxed);
        }
        control.records_used.store(2, Relaxed);
        control.processes_started.store(2, Relaxed);
        collector.tick();
        assert_eq!(control.processes[1].pid.load(Relaxed), 0, "the dead one's record is free");
        let watch = Watch::new(control, os::getpid(), true);
        let stats = collector.finish(&options(), true, End::Killed(9), &watch);
        let value = serde_json::to_value(stats).expect("plain data");
        assert_eq!(value["faults"]["miss"], 10);
        assert_eq!(value["memory"]["current"]["resident_bytes"], 8192);
        assert_eq!(value["memory"]["summed_peaks"]["resident_bytes"], 16384);
        assert_eq!(value["fault_latency"]["buckets"][3]["count"], 14);
        assert_eq!(value["fault_sources"], serde_json::json!(["copy"]));
        assert_eq!((&value["exit"]["signal"], &value["managed"]), (&9.into(), &true.into()));
    }
}
