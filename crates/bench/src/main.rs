//! Outswap against the kernel's own swap, and against no limit at all.
//!
//! Every measured program runs in a process of its own: this same binary as a worker. The benchmark drives Outswap as a user
//! would, through `outswap run`, and shares no code with it, but for two things in [`experiments`]: workers read the counters of
//! their run in its control block, and where the index of the swap cache and the slot map are measured alone, they are the core
//! crate's.
mod units;
mod random;
mod stats;
mod report;
mod chart;
mod content;
mod process;
mod rig;
mod worker;
mod overhead;
mod touch;
mod readahead;
mod programs;
mod policies;
mod experiments;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::process::Failure;
use crate::units::Bytes;
use crate::worker::Workload;

/// Measures Outswap against the kernel's own swap, and against no limit at all.
#[derive(Parser)]
#[command(name = "outswap-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Touch a large working set: alone, under kernel swap on zram, and under Outswap
    Touch(touch::Args),
    /// Run programs that people use in a part of their memory: under kernel swap on zram, and under Outswap
    Programs(programs::Args),
    /// Read ahead from slow swap in several ways, on modelled disks
    Readahead(readahead::Args),
    /// Compare eviction policies over traces of page accesses
    Policies(policies::Args),
    #[command(flatten)]
    Experiment(experiments::Task),
    /// Run a program whose budget is above its need: plainly and under Outswap
    NoPressure(overhead::PressureArgs),
    /// Start a small program: plainly and under Outswap
    Startup(overhead::StartupArgs),
    #[command(hide = true)]
    TouchWorker {
        #[arg(value_enum)]
        workload: Workload,
        size: Bytes,
        threads: usize,
    },
    #[command(hide = true)]
    ReadaheadWorker(readahead::worker::Args),
    #[command(hide = true)]
    MixedWorker { size: Bytes },
    #[command(hide = true)]
    StartWorker { program: String },
    #[command(hide = true)]
    RedisClient(programs::redis::Args),
    #[command(flatten)]
    ExperimentWorker(experiments::Worker),
    #[command(hide = true)]
    Guardian { disk: Bytes, limit: Bytes },
}

/// Which `outswap` is measured, and how.
#[derive(clap::Args)]
struct Outswap {
    /// The `outswap` program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    outswap: Option<PathBuf>,
    /// A further argument for `outswap run`; may be repeated
    #[arg(long = "outswap-arg", value_name = "ARG", allow_hyphen_values = true)]
    outswap_args: Vec<String>,
}

impl Outswap {
    fn find(&self) -> Result<PathBuf, String> {
        let path = match &self.outswap {
            Some(path) => path.clone(),
            None => std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("outswap"),
        };
        if path.is_file() { Ok(path) } else { Err("no `outswap` beside this program (name one with --outswap)".into()) }
    }
}

/// Says a line to the user, who may have closed standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "outswap-bench: {line}");
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Touch(args) => touch::main(&args),
        Task::Programs(args) => programs::main(&args),
        Task::Policies(args) => policies::main(&args),
        Task::Experiment(task) => experiments::main(&task),
        Task::Readahead(args) => readahead::main(&args),
        Task::NoPressure(args) => overhead::pressure_main(&args),
        Task::Startup(args) => overhead::startup_main(&args),
        Task::TouchWorker { workload, size, threads } => return worker::touch_main(workload, size, threads),
        Task::ReadaheadWorker(args) => return readahead::worker::main(&args),
        Task::MixedWorker { size } => return worker::mixed_main(size),
        Task::StartWorker { program } => return worker::start_main(&program),
        Task::RedisClient(args) => return programs::redis::client_main(&args),
        Task::ExperimentWorker(worker) => return experiments::worker_main(&worker),
        Task::Guardian { disk, limit } => return rig::guardian_main(disk, limit),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Interrupted(signal)) => process::die_by(signal),
        Err(Failure::Failed(reason)) => {
            say(&reason);
            ExitCode::FAILURE
        }
    }
}
