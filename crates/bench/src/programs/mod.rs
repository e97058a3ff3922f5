//! `programs`: programs that people run, under the kernel's swap on zram and under Outswap, with the same limit.
//!
//! The limit is a part of the anonymous memory that the program uses when nothing limits it. Each run's output is compared
//! with the plain run's.
mod check;
mod inputs;
mod list;
mod figures;
pub mod peak;
pub mod redis;
mod run;
mod cell;
mod chart;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;

use crate::process::{Failure, Signals};
use crate::programs::cell::{COUNT_HEAD, Cell, Failing, Measured, ROOM_HEAD, Runs, State, Subject, TIME_HEAD};
use crate::programs::chart::Group;
use crate::programs::figures::Verdict;
use crate::programs::list::{Job, Program, Unready, Workshop};
use crate::programs::run::{Folder, Run, Runner, Side, Trouble};
use crate::report::{self, Output};
use crate::rig::{self, KernelSwap};
use crate::units::Bytes;
use crate::{Outswap, say};

/// Several times what any of the programs uses: the device is never what is short.
const DISK: Bytes = Bytes(2 << 30);
/// `outswap run --ram` takes no less.
const LEAST_LIMIT: Bytes = Bytes(16 << 20);
const RUNS: u32 = 3;

/// What is measured beside the plain runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// A memory cgroup with the limit, and kernel swap on zram
    Kernel,
    /// `outswap run --resident` and `outswap run --ram` with the limit
    Outswap,
}

/// Arguments of `programs`.
#[derive(clap::Args)]
pub struct Args {
    /// Programs [default: sort to git]
    #[arg(long, value_delimiter = ',', value_enum, conflicts_with = "command")]
    programs: Vec<Program>,
    /// Another program in their place, with its arguments: it has to do the same whenever it runs, and runs in an empty folder, so
    /// that files are to be named from the root
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Limits, in hundredths of the anonymous memory that the program uses plainly; 1500 is no limit. Of 100 and more, the memory
    /// that is used is measured as well, by further runs
    #[arg(long, value_delimiter = ',', default_value = "50,70", value_parser = clap::value_parser!(u32).range(1..=2000))]
    percent: Vec<u32>,
    /// Runs of each; the sides take turns [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// A third of the data, and one run: shows that all works, and measures little
    #[arg(long)]
    quick: bool,
    /// Measure only this beside the plain runs
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Run although another swap area is on (ours has the highest priority)
    #[arg(long)]
    allow_other_swap: bool,
    /// Seconds after which a run has failed
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
    /// Draw the ratios of time as an SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    outswap: Outswap,
    #[command(flatten)]
    output: Output,
}

impl Args {
    fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { RUNS })
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// The benchmark while it runs.
struct Bench<'a> {
    args: &'a Args,
    runner: Runner<'a>,
    sides: Vec<Side>,
    notes: Vec<String>,
}

impl Bench<'_> {
    fn note(&mut self, note: String) {
        say(&note);
        self.notes.push(note);
    }

    /// Measures a program. On a signal, gives what was measured before it.
    fn subject(&mut self, program: Program) -> (Subject, Option<libc::c_int>) {
        let name = program.name();
        let failed = |reason: String| {
            say(&format!("{name}: {reason}"));
            Subject { program, state: State::Failed(reason) }
        };
        let interrupted = |signal| (Subject { program, state: State::Failed("interrupted".to_owned()) }, Some(signal));
        let folder = self.runner.folder.0.join(name);
        if let Err(error) = fs::create_dir(&folder) {
            return (failed(format!("{}: {error}", folder.display())), None);
        }
        let (quick, command) = (self.args.quick, &*self.args.command);
        let workshop = Workshop { folder: folder.clone(), quick, signals: self.runner.signals, command };
        let job = match program.prepare(&workshop) {
            Ok(job) => job,
            Err(Unready::Absent(what)) => {
                self.note(format!("{name} is absent: {what}"));
                return (Subject { program, state: State::Absent(what) }, None);
            }
            Err(Unready::Failed(Failure::Interrupted(signal))) => return interrupted(signal),
            Err(Unready::Failed(Failure::Failed(reason))) => return (failed(reason), None),
        };
        let (reference, peak) = match self.runner.peak(&job, Side::Plain, Bytes(0)) {
            Ok(reference) => reference,
            Err(Trouble::Interrupted(signal)) => return interrupted(signal),
            Err(Trouble::OutOfMemory(_)) => return (failed("out of memory without a limit".to_owned()), None),
            Err(Trouble::Failed(reason)) => return (failed(reason), None),
        };
        let (mut cells, mut percents) = (Vec::new(), self.args.percent.clone());
        percents.sort();
        percents.dedup();
        for percent in percents {
            let limit = Bytes(figures::limit_bytes(peak.0, percent));
            if limit.0 < LEAST_LIMIT.0 {
                self.note(format!("{name}: {percent} % of {} KiB is less than {LEAST_LIMIT}", peak.0 >> 10));
                continue;
            }
            cells.push(Cell { percent, limit, runs: Runs::default(), peaks: Vec::new() });
        }
        let mut measured = Measured { peak, plain: Runs::default(), cells };
        let signal = self.measure(&job, name, &reference, &mut measured).err();
        // Inputs of programs that are done would only fill the disk; the whole folder goes away in the end.
        let _ = fs::remove_dir_all(&folder);
        (Subject { program, state: State::Measured(measured) }, signal)
    }

    /// Lets the sides take turns. An error is a signal.
    fn measure(&self, job: &Job, name: &str, reference: &Run, measured: &mut Measured) -> Result<(), libc::c_int> {
        let peak = measured.peak;
        for turn in 1..=self.args.runs() {
            let head = format!("{name}, run {turn} of {}", self.args.runs());
            let plain = self.once(job, Side::Plain, peak, peak, reference, &mut measured.plain)?;
            say(&format!("{head}:{plain}"));
            for cell in &mut measured.cells {
                let mut line = format!("{head}, {} %:", cell.percent);
                for &side in &self.sides {
                    line += &self.once(job, side, cell.limit, peak, reference, &mut cell.runs)?;
                }
                if cell.percent >= 100 && self.sides.contains(&Side::Resident) {
                    line += &self.peaks(job, reference, cell)?;
                }
                say(&line);
            }
        }
        Ok(())
    }

    /// Runs a program once on a side, unless it has failed there before. Gives what to say about it.
    fn once(
        &self,
        job: &Job,
        side: Side,
        limit: Bytes,
        peak: Bytes,
        reference: &Run,
        runs: &mut Runs,
    ) -> Result<String, libc::c_int> {
        let name = side.name();
        if runs.failing(side).is_some() {
            return Ok(format!(" {name} failed before"));
        }
        let result = self.runner.run(job, side, limit, peak).and_then(|run| right(run, reference));
        let seconds = result.as_ref().map_or(0.0, |run| run.elapsed_ns as f64 / 1e9);
        runs.add(side, result)?;
        Ok(match runs.failing(side) {
            None => format!(" {name} {seconds:.2} s"),
            Some(Failing::OutOfMemory(kills)) => format!(" {name} OUT OF MEMORY, {kills} killed"),
            Some(Failing::Failed(reason)) => format!(" {name} FAILED: {reason}"),
        })
    }

    /// Looks at the memory that a program uses plainly and under Outswap, unless it has failed there before. Gives what to say about it.
    fn peaks(&self, job: &Job, reference: &Run, cell: &mut Cell) -> Result<String, libc::c_int> {
        if cell.runs.failing(Side::Resident).is_some() {
            return Ok(String::new());
        }
        let look = |side| {
            let (run, peak) = self.runner.peak(job, side, cell.limit)?;
            right(run, reference).map(|_| peak)
        };
        match look(Side::Plain).and_then(|plain| Ok([plain, look(Side::Resident)?])) {
            Ok([plain, resident]) => {
                cell.peaks.push([plain, resident]);
                Ok(format!(" memory {} and {} KiB", plain.0 >> 10, resident.0 >> 10))
            }
            Err(trouble) => {
                cell.runs.add(Side::Resident, Err(trouble))?;
                Ok(" FAILED while its memory was looked at".to_owned())
            }
        }
    }
}

/// A run, unless its output is another one than that of the first.
fn right(run: Run, first: &Run) -> Result<Run, Trouble> {
    let is_right = run.check == first.check;
    if is_right { Ok(run) } else { Err(Trouble::Failed("its output is not that of the first run".to_owned())) }
}

/// What a reader has to know to compare the sides.
fn explanations(sides: &[Side]) -> Vec<String> {
    let mut notes = vec![
        "Peak: the largest sum of the anonymous resident memory (RssAnon) of all processes of a plain run, looked at every \
         5 ms in a run of its own that is not timed."
            .to_owned(),
    ];
    if sides.contains(&Side::Kernel) {
        notes.push(
            "Kernel: the limit is a memory cgroup's. The zram device's memory is not charged to it, as the pool is not in \
             --resident. Files that the program writes and the kernel's own tables for it are charged. The group's counters \
             are read every 10 ms, which keeps the kernel from killing the program for counts of pages that are out of \
             date. Pages in and out are the device's."
                .to_owned(),
        );
    }
    if sides.contains(&Side::Resident) {
        notes.push(
            "Outswap: --resident with compressed:lz4; --ram with compressed:lz4,file, where pool and tables count in the \
             limit. Pages in are those read from stores, neighbours included, as the kernel's are."
                .to_owned(),
        );
    }
    notes
}

/// Runs the benchmark.
pub fn main(args: &Args) -> Result<(), Failure> {
    let failed = |reason: String| Failure::Failed(reason);
    let others = rig::swaps();
    if args.wants(Part::Kernel) && !others.is_empty() && !args.allow_other_swap {
        let others = others.join(", ");
        return Err(failed(format!("other swap is on ({others}); turn it off or add --allow-other-swap")));
    }
    let signals = Signals::hold().map_err(|error| failed(error.to_string()))?;
    let exe = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let runner = Runner {
        signals: &signals,
        exe,
        outswap: None,
        outswap_args: &args.outswap.outswap_args,
        kernel: None,
        folder: Folder::new().map_err(failed)?,
        timeout: Duration::from_secs(args.timeout),
    };
    let mut bench = Bench { args, runner, sides: Vec::new(), notes: Vec::new() };
    if args.wants(Part::Kernel) {
        match KernelSwap::start(DISK, DISK) {
            Ok(swap) => {
                say(&swap.describe());
                bench.runner.kernel = Some(swap);
                bench.sides.push(Side::Kernel);
            }
            Err(reason) => bench.note(format!("kernel side not measured: {reason}")),
        }
    }
    if args.wants(Part::Outswap) {
        match args.outswap.find() {
            Ok(path) => {
                bench.runner.outswap = Some(path);
                bench.sides.extend([Side::Resident, Side::Ram]);
            }
            Err(reason) => bench.note(format!("outswap sides not measured: {reason}")),
        }
    }
    if bench.sides.is_empty() {
        return Err(failed("nothing is left to measure".to_owned()));
    }
    let programs = match (&*args.programs, &*args.command) {
        ([], []) => Program::usual(),
        ([], _) => &[Program::Given],
        (named, _) => named,
    };
    let (mut subjects, mut interrupted) = (Vec::new(), None);
    for &program in programs {
        let (subject, signal) = bench.subject(program);
        if signal.is_some() {
            interrupted = signal;
            bench.note("interrupted: not all was measured".to_owned());
            if matches!(subject.state, State::Measured(_)) {
                subjects.push(subject);
            }
            break;
        }
        subjects.push(subject);
    }
    let closed = bench.runner.kernel.take().map_or(Ok(()), KernelSwap::close);
    let published = publish(&bench, &subjects);
    if let Some(signal) = interrupted {
        return Err(Failure::Interrupted(signal));
    }
    closed.and(published).map_err(failed)?;
    match subjects.iter().map(Subject::failed).sum::<usize>() {
        0 => Ok(()),
        wrong => Err(failed(format!("{wrong} measurements failed"))),
    }
}

fn publish(bench: &Bench, subjects: &[Subject]) -> Result<(), String> {
    let args = bench.args;
    let failures = subjects.iter().map(Subject::failed).sum();
    let verdict = Verdict::of(&subjects.iter().flat_map(Subject::ratios).collect::<Vec<_>>(), failures);
    let times = subjects.iter().flat_map(Subject::time_rows).collect::<Vec<_>>();
    let counts = subjects.iter().flat_map(Subject::count_rows).collect::<Vec<_>>();
    let rooms = subjects.iter().flat_map(Subject::room_rows).collect::<Vec<_>>();
    let mut text = format!("{}\n{}\n", report::table(&TIME_HEAD, &times), report::table(&COUNT_HEAD, &counts));
    if !rooms.is_empty() {
        text += &format!("{}\n", report::table(&ROOM_HEAD, &rooms));
    }
    text += &format!("{}\n", verdict.line());
    let settings = json!({
        "percent": args.percent,
        "runs": args.runs(),
        "quick": args.quick,
        "command": args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
        "outswap_args": args.outswap.outswap_args,
    });
    let mut notes = bench.notes.clone();
    if args.quick {
        notes.push("Quick: a third of the data; these figures measure little.".to_owned());
    }
    notes.extend(explanations(&bench.sides));
    let results = subjects.iter().map(Subject::json).collect();
    let mut document = report::document("programs", settings, &notes, results);
    document["summary"] = verdict.json();
    if let Some(path) = &args.svg {
        let group = |subject: &Subject| Group {
            name: subject.program.name().to_owned(),
            ratios: args.percent.iter().map(|&percent| subject.time_ratio(percent)).collect(),
        };
        let groups: Vec<Group> = subjects.iter().map(group).collect();
        let svg = chart::svg("Programs under Outswap and under kernel swap", &args.percent, &groups);
        fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    report::publish(&args.output, &document, &text)
}
