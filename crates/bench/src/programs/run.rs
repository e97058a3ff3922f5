//! Running a program once: plainly, under the kernel's swap, or under Outswap.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::process::{Failure, Signals};
use crate::programs::check::Check;
use crate::programs::figures::OutswapCounts;
use crate::programs::list::Job;
use crate::programs::peak::Sampler;
use crate::rig::{Counts, KernelSwap};
use crate::units::Bytes;

/// What a program runs under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// Nothing: as much memory as it likes.
    Plain,
    /// A memory cgroup with the limit, and kernel swap on zram with LZ4, whose memory is not in the limit.
    Kernel,
    /// `outswap run --resident` with the limit, and a pool with LZ4, whose memory is not in the limit.
    Resident,
    /// `outswap run --ram` with the limit, in which everything counts, and a file behind the pool.
    Ram,
}

impl Side {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Side::Plain => "plain",
            Side::Kernel => "kernel",
            Side::Resident => "resident",
            Side::Ram => "ram",
        }
    }
}

/// A run that ended well.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the program's start to its end.
    pub elapsed_ns: u64,
    /// Of all that it printed and wrote.
    pub check: Check,
    /// On the kernel's side: what the kernel did.
    pub kernel: Option<Counts>,
    /// On Outswap's sides: what Outswap did.
    pub outswap: Option<OutswapCounts>,
}

/// Why a run gave nothing.
#[derive(Debug)]
pub enum Trouble {
    /// This signal asked us to end.
    Interrupted(libc::c_int),
    /// The kernel killed so many processes because it could not hold the limit.
    OutOfMemory(u64),
    /// The program could not be run, or failed.
    Failed(String),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        match failure {
            Failure::Interrupted(signal) => Trouble::Interrupted(signal),
            Failure::Failed(reason) => Trouble::Failed(reason),
        }
    }
}

/// A folder of our own, removed when this is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it, among temporary files.
    pub fn new() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("outswap-bench-programs-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            crate::say(&format!("{}: {error}", self.0.display()));
        }
    }
}

/// What programs are run with.
pub struct Runner<'a> {
    /// To start them.
    pub signals: &'a Signals,
    /// This benchmark.
    pub exe: PathBuf,
    /// `outswap`, where its sides are measured.
    pub outswap: Option<PathBuf>,
    /// Further arguments for `outswap run`.
    pub outswap_args: &'a [String],
    /// Kernel swap, where that side is measured.
    pub kernel: Option<KernelSwap>,
    /// Where they run.
    pub folder: Folder,
    /// How long one may run.
    pub timeout: Duration,
}

impl Runner<'_> {
    /// Runs a program plainly or under Outswap while its memory is looked at; gives its peak as well.
    pub fn peak(&self, job: &Job, side: Side, limit: Bytes) -> Result<(Run, Bytes), Trouble> {
        let folder = self.fresh_folder(job)?;
        let mut command = self.command(job, side, limit)?;
        let mut peak_bytes = 0;
        let (elapsed_ns, check) = self.measure(job, &mut command, &folder, side, Some(&mut peak_bytes))?;
        let outswap = self.counts(side)?;
        Ok((Run { elapsed_ns, check, kernel: None, outswap }, Bytes(peak_bytes)))
    }

    /// Runs a program once. Its peak says how much memory is used first, for all sides to find it in the same state.
    pub fn run(&self, job: &Job, side: Side, limit: Bytes, peak: Bytes) -> Result<Run, Trouble> {
        let folder = self.fresh_folder(job)?;
        let mut command = self.command(job, side, limit)?;
        self.signals.warm_memory(&self.exe, peak)?;
        let kernel = self.kernel.as_ref().filter(|_| side == Side::Kernel);
        if let Some(kernel) = kernel {
            kernel.set_limit(limit).map_err(Trouble::Failed)?;
        }
        let before = kernel.map(KernelSwap::counts).unwrap_or_default();
        let attention = kernel.map(KernelSwap::attend);
        let measured = self.measure(job, &mut command, &folder, side, None);
        drop(attention);
        let counts = kernel.map(|kernel| kernel.counts().since(before));
        let (elapsed_ns, check) = match (measured, counts) {
            (Err(Trouble::Failed(_)), Some(Counts { oom_kills: kills @ 1.., .. })) => {
                return Err(Trouble::OutOfMemory(kills));
            }
            (measured, _) => measured?,
        };
        Ok(Run { elapsed_ns, check, kernel: counts, outswap: self.counts(side)? })
    }

    /// Where Outswap writes its statistics.
    fn stats_file(&self) -> PathBuf {
        self.folder.0.join("stats.json")
    }

    /// What runs the program on a side, without the program's arguments.
    fn command(&self, job: &Job, side: Side, limit: Bytes) -> Result<Command, Trouble> {
        let tiers = match side {
            Side::Plain | Side::Kernel => return Ok(Command::new(&job.program)),
            Side::Resident => "compressed:lz4",
            Side::Ram => "compressed:lz4,file",
        };
        let outswap = self.outswap.as_ref().ok_or_else(|| Trouble::Failed("there is no `outswap`".to_owned()))?;
        let mut command = Command::new(outswap);
        command.arg("run").arg(format!("--{}={}", side.name(), limit.0)).arg(format!("--swap={tiers}"));
        command.arg("--quiet").arg("--stats").arg(self.stats_file()).args(self.outswap_args);
        command.arg("--").arg(&job.program);
        Ok(command)
    }

    /// What Outswap counted in the run that has ended, on its sides.
    fn counts(&self, side: Side) -> Result<Option<OutswapCounts>, Trouble> {
        match side {
            Side::Resident | Side::Ram => take_stats(&self.stats_file()).map(Some).map_err(Trouble::Failed),
            Side::Plain | Side::Kernel => Ok(None),
        }
    }

    /// Makes the folder in which a program runs, with nothing in it but what is to lie there.
    fn fresh_folder(&self, job: &Job) -> Result<PathBuf, Trouble> {
        let folder = self.folder.0.join("run");
        let failed = |error| Trouble::Failed(format!("{}: {error}", folder.display()));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        match &job.start {
            None => fs::create_dir(&folder).map_err(failed)?,
            Some(start) => {
                let mut copy = Command::new("cp");
                self.signals.run(copy.arg("-a").arg(start).arg(&folder), None, self.timeout)?;
            }
        }
        Ok(folder)
    }

    /// Runs `command`, completed by the program's arguments; gives the time and the check of what came out.
    fn measure(
        &self,
        job: &Job,
        command: &mut Command,
        folder: &Path,
        side: Side,
        peak_bytes: Option<&mut u64>,
    ) -> Result<(u64, Check), Trouble> {
        // What programs and Outswap put among temporary files goes away with the folder.
        command.args(&job.args).env("LC_ALL", "C").env("TMPDIR", folder).current_dir(folder);
        command.envs(job.env.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        // A server's own messages tell times and process ids.
        command.stdout(if job.client.is_some() { Stdio::null() } else { Stdio::piped() });
        let procs = self.kernel.as_ref().filter(|_| side == Side::Kernel).map(KernelSwap::procs);
        let mut running = self.signals.start(command, procs)?;
        let sampler = peak_bytes.is_some().then(|| Sampler::start(running.id()));
        let stdout = running.stdout();
        let reader = std::thread::spawn(move || {
            let mut check = Check::new();
            stdout.map_or(Ok(()), |stdout| check.add_all(stdout)).map(|()| check)
        });
        let mut used = String::new();
        if let Some(args) = &job.client {
            let mut client = Command::new(&self.exe);
            client.args(args).current_dir(folder);
            // Where this fails, the server, which would wait for ever, is killed as it is dropped.
            used = self.signals.run(&mut client, None, self.timeout)?.stdout;
        }
        let finished = self.signals.finish(&mut running, self.timeout);
        if let (Some(peak_bytes), Some(sampler)) = (peak_bytes, sampler) {
            *peak_bytes = sampler.finish();
        }
        let failed = |error: std::io::Error| Trouble::Failed(format!("{}: {error}", folder.display()));
        let read = reader.join().unwrap_or_else(|_| Ok(Check::new()));
        let elapsed_ns = finished?.as_nanos() as u64;
        let mut check = read.map_err(failed)?;
        check.add(used.as_bytes());
        check.add_folder(folder).map_err(failed)?;
        Ok((elapsed_ns, check))
    }
}

/// Reads what `outswap run --stats` wrote, and removes it.
fn take_stats(file: &Path) -> Result<OutswapCounts, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let stats: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let counts = OutswapCounts::of(&stats)?;
    if counts.processes == 0 {
        return Err("it ran without Outswap".to_owned());
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::figures::tests::stats;

    #[test]
    fn a_run_that_nothing_managed_is_no_measurement() {
        let file = std::env::temp_dir().join(format!("outswap-bench-stats-{}", std::process::id()));
        let mut document = stats();
        fs::write(&file, document.to_string()).expect("a small file");
        assert_eq!(take_stats(&file).map(|counts| counts.processes), Ok(8));
        assert!(take_stats(&file).is_err(), "it was taken");
        document["processes"]["managed"] = 0.into();
        fs::write(&file, document.to_string()).expect("a small file");
        assert_eq!(take_stats(&file), Err("it ran without Outswap".to_owned()));
    }
}
