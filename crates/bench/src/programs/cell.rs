//! What was measured of a program, as rows and as JSON.
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::programs::figures::Ratios;
use crate::programs::list::Program;
use crate::programs::run::{Run, Side, Trouble};
use crate::report;
use crate::stats::Summary;
use crate::units::Bytes;

/// Why a side has no figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failing {
    /// The kernel killed it: that is a result.
    OutOfMemory(u64),
    /// It failed, or its output was wrong: that is a failure of the benchmark.
    Failed(String),
}

/// The runs of a program on some sides.
#[derive(Default, Debug)]
pub struct Runs {
    runs: BTreeMap<Side, Vec<Run>>,
    failures: BTreeMap<Side, Failing>,
}

impl Runs {
    /// Takes the result of a run. A signal is given back.
    pub fn add(&mut self, side: Side, result: Result<Run, Trouble>) -> Result<(), libc::c_int> {
        let failing = match result {
            Ok(run) => {
                self.runs.entry(side).or_default().push(run);
                return Ok(());
            }
            Err(Trouble::Interrupted(signal)) => return Err(signal),
            Err(Trouble::OutOfMemory(kills)) => Failing::OutOfMemory(kills),
            Err(Trouble::Failed(reason)) => Failing::Failed(reason),
        };
        self.failures.insert(side, failing);
        Ok(())
    }

    /// Why a side has no figures, if it has none for a reason.
    pub fn failing(&self, side: Side) -> Option<&Failing> {
        self.failures.get(&side)
    }

    /// Failures that are the benchmark's.
    pub fn failed(&self) -> usize {
        self.failures.values().filter(|failing| matches!(failing, Failing::Failed(_))).count()
    }

    /// The runs of a side; none of one that failed, even if some ended well.
    fn good(&self, side: Side) -> &[Run] {
        let runs = self.runs.get(&side).filter(|_| !self.failures.contains_key(&side));
        runs.map_or(&[], Vec::as_slice)
    }

    fn summary(&self, side: Side, value: impl Fn(&Run) -> Option<f64>) -> Option<Summary> {
        Summary::of(&self.good(side).iter().filter_map(value).collect::<Vec<_>>())
    }

    fn seconds(&self, side: Side) -> Option<Summary> {
        self.summary(side, |run| Some(run.elapsed_ns as f64 / 1e9))
    }

    fn pages_in(&self, side: Side) -> Option<Summary> {
        self.summary(side, |run| match side {
            Side::Kernel => Some(run.kernel?.pages_in as f64),
            _ => Some(run.outswap?.pages_in as f64),
        })
    }

    fn shown_seconds(&self, side: Side) -> String {
        match self.failures.get(&side) {
            Some(Failing::OutOfMemory(_)) => "killed: OOM".to_owned(),
            Some(Failing::Failed(_)) => "FAILED".to_owned(),
            None => report::spread(self.seconds(side), 2),
        }
    }

    fn json(&self, side: Side) -> Option<Value> {
        let failure = self.failures.get(&side);
        if failure.is_none() && !self.runs.contains_key(&side) {
            return None;
        }
        let runs = self.runs.get(&side).map_or(&[][..], Vec::as_slice);
        let seconds = self.seconds(side);
        let kernel = |run: &Run| {
            run.kernel.map(|counts| {
                json!({
                    "major_faults": counts.major_faults,
                    "pages_in": counts.pages_in,
                    "pages_out": counts.pages_out,
                    "oom_kills": counts.oom_kills,
                })
            })
        };
        let counts = |run: &Run| kernel(run).or_else(|| run.outswap.map(|counts| counts.json()));
        Some(json!({
            "elapsed_ns": runs.iter().map(|run| run.elapsed_ns).collect::<Vec<_>>(),
            "median_s": seconds.map(|s| s.median),
            "min_s": seconds.map(|s| s.min),
            "max_s": seconds.map(|s| s.max),
            "counts": runs.iter().filter_map(counts).collect::<Vec<_>>(),
            "oom_killed": matches!(failure, Some(Failing::OutOfMemory(_))),
            "failure": match failure {
                Some(Failing::Failed(reason)) => Some(reason.clone()),
                Some(Failing::OutOfMemory(kills)) => Some(format!("the kernel killed {kills} processes: out of memory")),
                None => None,
            },
        }))
    }
}

/// A program under one limit.
pub struct Cell {
    /// Hundredths of the plain peak.
    pub percent: u32,
    /// The limit.
    pub limit: Bytes,
    /// The sides with a limit.
    pub runs: Runs,
    /// Most anonymous memory of plain runs and of runs with `--resident`, where that was looked at.
    pub peaks: Vec<[Bytes; 2]>,
}

/// A program that was measured.
pub struct Measured {
    /// Most anonymous memory of the plain run.
    pub peak: Bytes,
    /// The plain side.
    pub plain: Runs,
    /// For each limit.
    pub cells: Vec<Cell>,
}

/// What became of a program.
pub enum State {
    /// It is not installed.
    Absent(String),
    /// It could not be prepared, or failed even without a limit.
    Failed(String),
    /// It was measured.
    Measured(Measured),
}

/// A program and what became of it.
pub struct Subject {
    /// The program.
    pub program: Program,
    /// What became of it.
    pub state: State,
}

/// Heads of the table of times.
pub const TIME_HEAD: [&str; 11] = [
    "program",
    "peak, MiB",
    "limit, %",
    "plain, s",
    "kernel, s",
    "resident, s",
    "ram, s",
    "resident/kernel",
    "ram/resident",
    "pages in, kernel",
    "resident/kernel",
];

/// Heads of the table of counts: of the kernel's side, then of the side with `--resident`.
pub const COUNT_HEAD: [&str; 12] = [
    "program",
    "limit, %",
    "kernel: major faults",
    "pages in",
    "pages out",
    "outswap: store faults",
    "pages in",
    "pages out",
    "hits",
    "over limit",
    "unmanaged, MiB",
    "processes",
];

/// Heads of the table of limits that are no less than what the program uses: what Outswap costs a program that does not need it.
pub const ROOM_HEAD: [&str; 9] = [
    "program",
    "limit, %",
    "plain, s",
    "resident, s",
    "resident/plain",
    "ram/plain",
    "memory: plain, MiB",
    "resident, MiB",
    "resident/plain",
];

fn mib(bytes: f64) -> f64 {
    bytes / (1 << 20) as f64
}

impl Cell {
    fn time_ratio(&self) -> Option<f64> {
        report::ratio(self.runs.seconds(Side::Resident), self.runs.seconds(Side::Kernel))
    }

    fn ram_ratio(&self) -> Option<f64> {
        report::ratio(self.runs.seconds(Side::Ram), self.runs.seconds(Side::Resident))
    }

    /// Peaks of plain runs, and of those with `--resident`.
    fn peaks(&self) -> [Option<Summary>; 2] {
        let of = |i: usize| Summary::of(&self.peaks.iter().map(|peaks| mib(peaks[i].0 as f64)).collect::<Vec<_>>());
        [of(0), of(1)]
    }

    fn memory_ratio(&self) -> Option<f64> {
        let [plain, resident] = self.peaks();
        report::ratio(resident, plain)
    }

    fn plain_ratio(&self, side: Side, plain: &Runs) -> Option<f64> {
        report::ratio(self.runs.seconds(side), plain.seconds(Side::Plain))
    }

    fn room_row(&self, program: Program, plain: &Runs) -> Vec<String> {
        let [plain_peak, resident_peak] = self.peaks();
        vec![
            program.name().to_owned(),
            self.percent.to_string(),
            plain.shown_seconds(Side::Plain),
            self.runs.shown_seconds(Side::Resident),
            report::number(self.plain_ratio(Side::Resident, plain), 3),
            report::number(self.plain_ratio(Side::Ram, plain), 3),
            report::spread(plain_peak, 1),
            report::spread(resident_peak, 1),
            report::number(self.memory_ratio(), 3),
        ]
    }

    /// Where nothing came back, that counts as one page: a mean can be made of it.
    fn pages_ratio(&self) -> Option<f64> {
        let pages = |side| Some(self.runs.pages_in(side)?.median.max(1.0));
        Some(pages(Side::Resident)? / pages(Side::Kernel)?)
    }

    fn count_row(&self, program: Program) -> Vec<String> {
        let shown = |side, digits, value: &dyn Fn(&Run) -> Option<f64>| {
            report::number(self.runs.summary(side, value).map(|summary| summary.median), digits)
        };
        let kernel = |value: fn(&crate::rig::Counts) -> u64| {
            shown(Side::Kernel, 0, &|run| run.kernel.as_ref().map(|counts| value(counts) as f64))
        };
        let outswap = |value: fn(&crate::programs::figures::OutswapCounts) -> u64| {
            shown(Side::Resident, 0, &|run| run.outswap.as_ref().map(|counts| value(counts) as f64))
        };
        vec![
            program.name().to_owned(),
            self.percent.to_string(),
            kernel(|c| c.major_faults),
            kernel(|c| c.pages_in),
            kernel(|c| c.pages_out),
            outswap(|c| c.store_faults),
            outswap(|c| c.pages_in),
            outswap(|c| c.pages_out),
            outswap(|c| c.hits),
            outswap(|c| c.over_limit),
            shown(Side::Resident, 1, &|run| Some(mib(run.outswap?.unmanaged_bytes as f64))),
            outswap(|c| c.processes),
        ]
    }
}

impl Subject {
    /// The cells, where there are some.
    pub fn cells(&self) -> &[Cell] {
        match &self.state {
            State::Measured(measured) => &measured.cells,
            State::Absent(_) | State::Failed(_) => &[],
        }
    }

    /// Failures that are the benchmark's.
    pub fn failed(&self) -> usize {
        match &self.state {
            State::Absent(_) => 0,
            State::Failed(_) => 1,
            State::Measured(measured) => {
                measured.plain.failed() + measured.cells.iter().map(|cell| cell.runs.failed()).sum::<usize>()
            }
        }
    }

    /// Its rows in the table of times.
    pub fn time_rows(&self) -> Vec<Vec<String>> {
        let name = self.program.name().to_owned();
        let measured = match &self.state {
            State::Measured(measured) => measured,
            State::Absent(_) | State::Failed(_) => {
                let state = if matches!(self.state, State::Absent(_)) { "absent" } else { "FAILED" };
                let mut row = vec![name, state.to_owned()];
                row.resize(TIME_HEAD.len(), "-".to_owned());
                return vec![row];
            }
        };
        let row = |cell: &Cell| {
            vec![
                name.clone(),
                format!("{:.1}", mib(measured.peak.0 as f64)),
                cell.percent.to_string(),
                measured.plain.shown_seconds(Side::Plain),
                cell.runs.shown_seconds(Side::Kernel),
                cell.runs.shown_seconds(Side::Resident),
                cell.runs.shown_seconds(Side::Ram),
                report::number(cell.time_ratio(), 2),
                report::number(cell.ram_ratio(), 2),
                report::number(cell.runs.pages_in(Side::Kernel).map(|s| s.median), 0),
                report::number(cell.pages_ratio(), 2),
            ]
        };
        measured.cells.iter().map(row).collect()
    }

    /// Its rows in the table of counts.
    pub fn count_rows(&self) -> Vec<Vec<String>> {
        self.cells().iter().map(|cell| cell.count_row(self.program)).collect()
    }

    /// Its rows in the table of limits that are no less than what it uses.
    pub fn room_rows(&self) -> Vec<Vec<String>> {
        let State::Measured(measured) = &self.state else { return Vec::new() };
        let rooms = measured.cells.iter().filter(|cell| !cell.peaks.is_empty());
        rooms.map(|cell| cell.room_row(self.program, &measured.plain)).collect()
    }

    /// Its ratios, for the verdict.
    pub fn ratios(&self) -> Vec<Ratios> {
        let ratios = |cell: &Cell| Ratios {
            name: format!("{} at {} %", self.program.name(), cell.percent),
            time: cell.time_ratio(),
            pages: cell.pages_ratio(),
            ram: cell.ram_ratio(),
        };
        self.cells().iter().map(ratios).collect()
    }

    /// Its ratio of time at a limit, for the chart.
    pub fn time_ratio(&self, percent: u32) -> Option<f64> {
        self.cells().iter().find(|cell| cell.percent == percent)?.time_ratio()
    }

    /// For the report.
    pub fn json(&self) -> Value {
        let name = self.program.name();
        let measured = match &self.state {
            State::Absent(what) => return json!({ "program": name, "absent": what }),
            State::Failed(reason) => return json!({ "program": name, "failure": reason }),
            State::Measured(measured) => measured,
        };
        let cell = |cell: &Cell| {
            json!({
                "percent": cell.percent,
                "limit_bytes": cell.limit.0,
                "kernel": cell.runs.json(Side::Kernel),
                "resident": cell.runs.json(Side::Resident),
                "ram": cell.runs.json(Side::Ram),
                "resident_to_kernel_time": cell.time_ratio(),
                "resident_to_kernel_pages_in": cell.pages_ratio(),
                "ram_to_resident_time": cell.ram_ratio(),
                "resident_to_plain_time": cell.plain_ratio(Side::Resident, &measured.plain),
                "peaks_plain_and_resident_bytes": cell.peaks.iter().map(|peaks| peaks.map(|peak| peak.0)).collect::<Vec<_>>(),
                "resident_to_plain_memory": cell.memory_ratio(),
            })
        };
        json!({
            "program": name,
            "peak_anon_bytes": measured.peak.0,
            "plain": measured.plain.json(Side::Plain),
            "limits": measured.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::check::Check;
    use crate::programs::figures::OutswapCounts;
    use crate::rig::Counts;

    fn run(elapsed_ms: u64) -> Run {
        Run { elapsed_ns: elapsed_ms * 1_000_000, check: Check::new(), kernel: None, outswap: None }
    }

    fn subject() -> Subject {
        let mut plain = Runs::default();
        plain.add(Side::Plain, Ok(run(1000))).expect("no signal");
        let mut runs = Runs::default();
        for (kernel_ms, resident_ms, ram_ms) in [(3000, 1400, 2100), (5000, 2000, 3000), (4000, 3000, 4000)] {
            let counts = Counts { major_faults: 50, pages_in: 100, pages_out: 300, oom_kills: 0 };
            let kernel = Run { kernel: Some(counts), ..run(kernel_ms) };
            let counts =
                OutswapCounts { pages_in: 110, hits: 7, processes: 1, unmanaged_bytes: 3 << 20, ..Default::default() };
            let outswap = |elapsed_ms| Run { outswap: Some(counts), ..run(elapsed_ms) };
            runs.add(Side::Kernel, Ok(kernel)).expect("no signal");
            runs.add(Side::Resident, Ok(outswap(resident_ms))).expect("no signal");
            runs.add(Side::Ram, Ok(outswap(ram_ms))).expect("no signal");
        }
        let peaks = vec![
            [Bytes(100 << 20), Bytes(104 << 20)],
            [Bytes(100 << 20), Bytes(101 << 20)],
            [Bytes(100 << 20), Bytes(102 << 20)],
        ];
        let cell = Cell { percent: 50, limit: Bytes(64 << 20), runs, peaks };
        let measured = Measured { peak: Bytes(128 << 20), plain, cells: vec![cell] };
        Subject { program: Program::Sort, state: State::Measured(measured) }
    }

    fn runs(subject: &mut Subject) -> &mut Runs {
        match &mut subject.state {
            State::Measured(measured) => &mut measured.cells[0].runs,
            _ => panic!("it was measured"),
        }
    }

    #[test]
    fn medians_and_ratios_of_them() {
        let subject = subject();
        let row = &subject.time_rows()[0];
        assert_eq!(row[..4], ["sort", "128.0", "50", "1.00 (1.00-1.00)"]);
        assert_eq!(row[4..7], ["4.00 (3.00-5.00)", "2.00 (1.40-3.00)", "3.00 (2.10-4.00)"]);
        assert_eq!(row[7..], ["0.50", "1.50", "100", "1.10"]);
        assert_eq!(row.len(), TIME_HEAD.len());
        let counts = &subject.count_rows()[0];
        assert_eq!(counts[..], ["sort", "50", "50", "100", "300", "0", "110", "0", "7", "0", "3.0", "1"]);
        assert_eq!(counts.len(), COUNT_HEAD.len());
        let json = subject.json();
        assert_eq!(json["limits"][0]["resident_to_kernel_time"], 0.5);
        assert_eq!(json["limits"][0]["kernel"]["counts"][2]["pages_in"], 100);
        assert_eq!(json["limits"][0]["ram"]["counts"][0]["managed_processes"], 1);
        assert_eq!(json["plain"]["median_s"], 1.0);
        let room = &subject.room_rows()[0];
        assert_eq!(room[..6], ["sort", "50", "1.00 (1.00-1.00)", "2.00 (1.40-3.00)", "2.000", "3.000"]);
        assert_eq!(room[6..], ["100.0 (100.0-100.0)", "102.0 (101.0-104.0)", "1.020"]);
        assert_eq!(room.len(), ROOM_HEAD.len());
        assert_eq!(json["limits"][0]["resident_to_plain_memory"], 1.02);
        assert_eq!((subject.time_ratio(50), subject.time_ratio(70)), (Some(0.5), None));
        assert_eq!(subject.failed(), 0);
    }

    #[test]
    fn an_oom_kill_is_told_and_no_failure_of_the_benchmark() {
        let mut subject = subject();
        runs(&mut subject).add(Side::Kernel, Err(Trouble::OutOfMemory(2))).expect("no signal");
        assert_eq!(subject.time_rows()[0][4], "killed: OOM");
        assert_eq!(subject.time_ratio(50), None);
        assert_eq!(subject.ratios()[0].pages, None);
        assert_eq!(subject.json()["limits"][0]["kernel"]["oom_killed"], true);
        assert_eq!(subject.failed(), 0);
    }

    #[test]
    fn a_side_that_failed_once_has_no_figures_and_fails_the_benchmark() {
        let mut subject = subject();
        runs(&mut subject)
            .add(Side::Resident, Err(Trouble::Failed("its output is wrong".to_owned())))
            .expect("no signal");
        let row = &subject.time_rows()[0];
        assert_eq!(row[5], "FAILED");
        assert_eq!(row[7..], ["-", "-", "100", "-"]);
        assert_eq!(subject.json()["limits"][0]["resident"]["failure"], "its output is wrong");
        assert_eq!(subject.failed(), 1);
        assert_eq!(runs(&mut subject).add(Side::Ram, Err(Trouble::Interrupted(2))), Err(2));
    }

    #[test]
    fn absent_is_a_row_and_no_failure() {
        let subject = Subject { program: Program::Java, state: State::Absent("no javac".to_owned()) };
        assert_eq!(subject.time_rows()[0][..3], ["java", "absent", "-"]);
        assert_eq!(subject.time_rows()[0].len(), TIME_HEAD.len());
        assert_eq!(subject.json()["absent"], "no javac");
        assert_eq!((subject.failed(), subject.count_rows().len()), (0, 0));
        let failed = Subject { program: Program::Git, state: State::Failed("git ended with status 1".to_owned()) };
        assert_eq!((failed.failed(), failed.time_rows()[0][1].as_str()), (1, "FAILED"));
    }
}
