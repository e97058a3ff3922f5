//! Kernel swap of our own: a zram device with LZ4 that is swapped to, and a memory cgroup with a limit.
//!
//! Both are the machine's, so they must not outlive the benchmark, however that ends. Therefore a **guardian** process
//! makes them and takes them down: it holds one end of a pipe, and when the other end closes (the benchmark is done,
//! has failed, was killed, even by SIGKILL) it cleans up. It runs in a session of its own and lets no ending signal
//! through. Should the guardian itself be killed, the benchmark cleans up in its place.
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::units::{Bytes, PAGE_BYTES};

const ZRAM_CONTROL: &str = "/sys/class/zram-control";
/// `SWAP_FLAG_PREFER` with priority 32767: nothing goes to another swap area that the user let us run beside.
const SWAP_HIGHEST_PRIORITY: libc::c_int = 0x8000 | 0x7fff;
/// Between two looks at a group's counters, see [`Attention`].
const ATTENTION: Duration = Duration::from_millis(10);
/// How long a busy device or group is waited for before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The swap areas that are on now.
pub fn swaps() -> Vec<String> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// The number in a line `name number` of a file of counters.
fn counter(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok())
}

/// Pages that the whole machine has swapped in and out since it started.
pub fn swap_pages() -> (u64, u64) {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = |name| counter(&text, name).unwrap_or(0);
    (value("pswpin"), value("pswpout"))
}

/// Pages read from and written to a block device, by the text of its `stat`.
fn device_pages(stat: &str) -> Option<(u64, u64)> {
    const SECTOR_BYTES: u64 = 512;
    let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let pages = |sectors: u64| sectors * SECTOR_BYTES / PAGE_BYTES as u64;
    Some((pages(*fields.get(2)?), pages(*fields.get(6)?)))
}

/// What the kernel has done to the programs in the group so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Faults that had to wait for swap or for a file.
    pub major_faults: u64,
    /// Pages read from the device, which nothing else swaps to as long as nothing else is short of memory.
    pub pages_in: u64,
    /// Pages written to it.
    pub pages_out: u64,
    /// Processes killed because the limit could not be held.
    pub oom_kills: u64,
}

impl Counts {
    /// What has happened since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            pages_in: self.pages_in.saturating_sub(before.pages_in),
            pages_out: self.pages_out.saturating_sub(before.pages_out),
            oom_kills: self.oom_kills.saturating_sub(before.oom_kills),
        }
    }
}

/// The memory controller: where its hierarchy is mounted, and which kind it is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Controller {
    V1(PathBuf),
    V2(PathBuf),
}

/// Finds the memory controller in the text of `/proc/self/mounts`; `has_memory` tells whether a v2 hierarchy has it.
fn controller(mounts: &str, has_memory: impl Fn(&Path) -> bool) -> Option<Controller> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (PathBuf::from(fields.next()?), fields.next()?, fields.next()?);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => Some(Controller::V1(path)),
            "cgroup2" if has_memory(&path) => Some(Controller::V2(path)),
            _ => None,
        }
    })
}

fn lists_memory(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"))
}

fn put(path: impl AsRef<Path>, text: &str) -> Result<(), String> {
    let path = path.as_ref();
    // Never create: a control file that is missing is one that this kernel does not have.
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Repeats `step` until it gives something, or patience ends.
fn patiently<T>(mut step: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = step();
        if result.is_some() || Instant::now() >= deadline {
            return result;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first page of a swap area that covers a device of `pages` pages, as `mkswap` writes it.
fn swap_header(pages: u32) -> [u8; PAGE_BYTES] {
    let mut header = [0; PAGE_BYTES];
    header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&(pages - 1).to_le_bytes());
    header[1052..1065].copy_from_slice(b"outswap-bench");
    header[PAGE_BYTES - 10..].copy_from_slice(b"SWAPSPACE2");
    header
}

/// What has been made so far and must be taken down.
#[derive(Default, Debug)]
struct Rig {
    zram: Option<u32>,
    cgroup: Option<PathBuf>,
    /// A `cgroup.subtree_control` in which we switched the memory controller on.
    subtree: Option<PathBuf>,
}

impl Rig {
    fn device(zram: u32) -> String {
        format!("/dev/zram{zram}")
    }

    fn build(&mut self, disk: Bytes, limit: Bytes, name: &str) -> Result<(), String> {
        self.build_cgroup(limit, name)?;
        self.build_swap(disk)
    }

    fn build_cgroup(&mut self, limit: Bytes, name: &str) -> Result<(), String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| format!("/proc/self/mounts: {error}"))?;
        let found = controller(&mounts, |path| lists_memory(&path.join("cgroup.controllers")));
        let found = found.ok_or("no memory cgroup controller is mounted")?;
        let (Controller::V1(root) | Controller::V2(root)) = &found;
        if let Controller::V2(root) = &found {
            let subtree = root.join("cgroup.subtree_control");
            if !lists_memory(&subtree) {
                put(&subtree, "+memory")?;
                self.subtree = Some(subtree);
            }
        }
        let path = root.join(name);
        fs::create_dir(&path).map_err(|error| format!("memory cgroup {}: {error}", path.display()))?;
        self.cgroup = Some(path.clone());
        match found {
            Controller::V1(_) => put(path.join("memory.limit_in_bytes"), &limit.0.to_string()),
            Controller::V2(_) => {
                put(path.join("memory.swap.max"), "max")?;
                if path.join("memory.zswap.max").exists() {
                    // Pages kept by zswap never reach the device that is measured.
                    put(path.join("memory.zswap.max"), "0")?;
                }
                put(path.join("memory.max"), &limit.0.to_string())
            }
        }
    }

    fn build_swap(&mut self, disk: Bytes) -> Result<(), String> {
        let hot_add = format!("{ZRAM_CONTROL}/hot_add");
        let number = match fs::read_to_string(&hot_add) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("this kernel has no zram (try `modprobe zram`)".to_owned());
            }
            other => other.map_err(|error| format!("{hot_add}: {error}"))?,
        };
        let zram: u32 = number.trim().parse().map_err(|_| format!("{hot_add} gave `{number}`"))?;
        self.zram = Some(zram);
        let device = Rig::device(zram);
        put(format!("/sys/block/zram{zram}/comp_algorithm"), "lz4")?;
        put(format!("/sys/block/zram{zram}/disksize"), &disk.0.to_string())?;
        patiently(|| Path::new(&device).exists().then_some(())).ok_or_else(|| format!("{device} does not appear"))?;
        let pages = u32::try_from(disk.pages()).map_err(|_| format!("a swap area of {disk} is too large"))?;
        let write = |file: &mut File| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&swap_header(pages))?;
            file.sync_all()
        };
        let mut file = OpenOptions::new().write(true).open(&device).map_err(|error| format!("{device}: {error}"))?;
        write(&mut file).map_err(|error| format!("{device}: {error}"))?;
        drop(file);
        let path = std::ffi::CString::new(device.as_str()).map_err(|error| error.to_string())?;
        // SAFETY: a NUL-terminated path of a device that we made.
        if unsafe { libc::swapon(path.as_ptr(), SWAP_HIGHEST_PRIORITY) } != 0 {
            return Err(format!("swapon {device}: {}", io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Takes everything down; gives what could not be. May be called again, and after another process's attempt.
    fn teardown(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        if let Some(cgroup) = &self.cgroup {
            if patiently(|| empty(cgroup).then_some(())).is_none() {
                left.push(format!("processes in {}", cgroup.display()));
            }
        }
        if let Some(zram) = self.zram.take() {
            let device = Rig::device(zram);
            if patiently(|| swapped_off(&device).then_some(())).is_none() {
                left.push(format!("swap on {device}: {}", io::Error::last_os_error()));
            }
            let remove = || {
                let removed = put(format!("{ZRAM_CONTROL}/hot_remove"), &zram.to_string());
                (removed.is_ok() || !Path::new(&format!("/sys/block/zram{zram}")).exists()).then_some(())
            };
            if patiently(remove).is_none() {
                left.push(device);
            }
        }
        if let Some(cgroup) = self.cgroup.take() {
            let remove = || (fs::remove_dir(&cgroup).is_ok() || !cgroup.exists()).then_some(());
            if patiently(remove).is_none() {
                left.push(format!("cgroup {}", cgroup.display()));
            }
        }
        if let Some(subtree) = self.subtree.take() {
            // Someone else may use the controller by now, and then it has to stay.
            let _ = put(subtree, "-memory");
        }
        if left.is_empty() { Ok(()) } else { Err(format!("could not be taken down: {}", left.join("; "))) }
    }
}

/// Ends what runs in our group, and tells whether nothing does any more.
fn empty(cgroup: &Path) -> bool {
    let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<libc::pid_t> = procs.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 1).collect();
    for &pid in &pids {
        // SAFETY: a process that stands in a group which only ever held our workers.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    pids.is_empty()
}

fn swapped_off(device: &str) -> bool {
    if !swaps().iter().any(|swap| swap == device) {
        return true;
    }
    if let Ok(path) = std::ffi::CString::new(Path::new(device).as_os_str().as_bytes()) {
        // SAFETY: a NUL-terminated path of a device that we made. Whether it worked is read from the list of swaps.
        unsafe { libc::swapoff(path.as_ptr()) };
    }
    !swaps().iter().any(|swap| swap == device)
}

/// Says something to the benchmark, which may be gone.
fn tell(message: Value) {
    // A panic would keep the guardian from its work, so a closed pipe is nothing to stop at.
    let _ = writeln!(io::stdout(), "{message}");
}

/// `guardian`: makes the rig, tells where it is, waits for standard input to close, and takes the rig down.
pub fn guardian_main(disk: Bytes, limit: Bytes) -> ExitCode {
    crate::process::block_signals();
    // SAFETY: no memory is involved. A new session keeps a terminal's signals away.
    unsafe { libc::setsid() };
    // Whoever runs out of memory, it should not be the process that cleans up. Needs root, as all of this does.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let mut rig = Rig::default();
    let built = rig.build(disk, limit, &format!("outswap-bench-{}", std::process::id()));
    if built.is_ok() {
        tell(json!({ "zram": rig.zram, "cgroup": rig.cgroup, "subtree": rig.subtree }));
        // The end of the pipe, or an error that is as good as one.
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    let down = rig.teardown();
    match (&built, &down) {
        (Ok(()), Ok(())) => tell(json!({ "down": true })),
        (_, Err(left)) => tell(json!({ "error": left })),
        (Err(reason), _) => tell(json!({ "error": reason })),
    }
    if built.is_ok() && down.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Kernel swap on zram and a memory cgroup, for as long as this lives.
pub struct KernelSwap {
    guardian: Child,
    /// Closing it is the sign to clean up.
    pipe: Option<ChildStdin>,
    answers: BufReader<std::process::ChildStdout>,
    /// What the guardian made, for the case that it dies before its time.
    rig: Rig,
    procs: File,
}

impl KernelSwap {
    /// Has a guardian make it. An error is one line that says why this machine cannot.
    pub fn start(disk: Bytes, limit: Bytes) -> Result<KernelSwap, String> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(exe);
        command.arg("guardian").arg(disk.0.to_string()).arg(limit.0.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guardian = command.spawn().map_err(|error| format!("guardian: {error}"))?;
        let pipe = guardian.stdin.take();
        let mut answers = BufReader::new(guardian.stdout.take().ok_or("guardian: no standard output")?);
        let answer = read_answer(&mut answers);
        if let Some(error) = answer["error"].as_str() {
            // It has cleaned up and is about to end.
            let _ = guardian.wait();
            return Err(error.to_owned());
        }
        if answer.is_null() {
            return Err(format!("the guardian ended: {}", guardian.wait().map_err(|error| error.to_string())?));
        }
        let path = |name: &str| answer[name].as_str().map(PathBuf::from);
        let zram = answer["zram"].as_u64().map(|number| number as u32);
        let rig = Rig { zram, cgroup: path("cgroup"), subtree: path("subtree") };
        let procs = rig.cgroup.clone().unwrap_or_default().join("cgroup.procs");
        let procs =
            OpenOptions::new().write(true).open(&procs).map_err(|error| format!("{}: {error}", procs.display()));
        match procs {
            Ok(procs) => Ok(KernelSwap { guardian, pipe, answers, rig, procs }),
            Err(error) => {
                drop(pipe);
                let _ = guardian.wait();
                Err(error)
            }
        }
    }

    /// The `cgroup.procs` to start a program through.
    pub fn procs(&self) -> &File {
        &self.procs
    }

    /// Changes the limit, when nothing runs in the group.
    pub fn set_limit(&self, limit: Bytes) -> Result<(), String> {
        let cgroup = self.rig.cgroup.clone().unwrap_or_default();
        let files = ["memory.limit_in_bytes", "memory.max"].map(|name| cgroup.join(name));
        let file = files.iter().find(|file| file.exists()).ok_or("the memory cgroup has no limit")?;
        // Files in memory that earlier programs left count as well. They go, but perhaps not at once.
        let mut result = Ok(());
        patiently(|| {
            result = put(file, &limit.0.to_string());
            result.is_ok().then_some(())
        });
        result
    }

    /// What has been counted since it was made.
    pub fn counts(&self) -> Counts {
        let cgroup = self.rig.cgroup.clone().unwrap_or_default();
        let read = |name: &str| fs::read_to_string(cgroup.join(name)).unwrap_or_default();
        let oom_kills =
            ["memory.oom_control", "memory.events"].iter().find_map(|name| counter(&read(name), "oom_kill"));
        let device = self.rig.zram.map(|number| format!("/sys/block/zram{number}/stat"));
        let device = device.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let (pages_in, pages_out) = device_pages(&device).unwrap_or((0, 0));
        Counts {
            major_faults: counter(&read("memory.stat"), "pgmajfault").unwrap_or(0),
            pages_in,
            pages_out,
            oom_kills: oom_kills.unwrap_or(0),
        }
    }

    /// Has the kernel's counters of the group kept up to date from now on.
    pub fn attend(&self) -> Attention {
        let file = self.rig.cgroup.clone().unwrap_or_default().join("memory.stat");
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                // What it says is not wanted, only that it is added up.
                let _ = fs::read(&file);
                std::thread::sleep(ATTENTION);
            }
        });
        Attention { ended, thread: Some(thread) }
    }

    /// Where it is, for people.
    pub fn describe(&self) -> String {
        let device = self.rig.zram.map(Rig::device).unwrap_or_default();
        let cgroup = self.rig.cgroup.clone().unwrap_or_default();
        format!("kernel swap on {device}, memory cgroup {}, guardian {}", cgroup.display(), self.guardian.id())
    }

    /// Takes it down.
    pub fn close(mut self) -> Result<(), String> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), String> {
        if self.pipe.take().is_none() {
            return Ok(());
        }
        let answer = read_answer(&mut self.answers);
        let _ = self.guardian.wait();
        if answer["down"] == true { Ok(()) } else { self.rig.teardown() }
    }
}

impl Drop for KernelSwap {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            crate::say(&error);
        }
    }
}

/// Looks at a group's counters again and again, for as long as this lives.
///
/// The kernel decides by the lengths of a group's lists whether to refill the list from which it takes pages, and reads
/// lengths that are added up every two seconds, or when somebody reads the counters. A program that swaps hard empties
/// that list much faster: the kernel sees pages that are long gone, finds nothing to take, and kills the program (seen
/// with Linux 6.18 without MGLRU, from one limit of 20 MiB to one of 75 MiB; never when the counters are read this
/// often).
pub struct Attention {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Attention {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did, there would be nothing to do.
            let _ = thread.join();
        }
    }
}

/// One line of the guardian; null where it has died.
fn read_answer(answers: &mut impl BufRead) -> Value {
    let mut line = String::new();
    let _ = answers.read_line(&mut line);
    serde_json::from_str(&line).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_both_hierarchies() {
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                  cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(controller(v1, |_| false), Some(Controller::V1("/sys/fs/cgroup/memory".into())));
        let v2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(controller(v2, |_| true), Some(Controller::V2("/sys/fs/cgroup".into())));
        assert_eq!(controller(v2, |_| false), None);
        assert_eq!(controller("", |_| true), None);
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\npgmajfault 12\n";
        assert_eq!(counter(text, "oom_kill"), Some(3));
        assert_eq!(counter(text, "pgmajfault"), Some(12));
        assert_eq!(counter(text, "oom"), None);
        assert_eq!(counter("", "oom_kill"), None);
    }

    #[test]
    fn pages_of_a_device_are_its_sectors() {
        let stat =
            "      12        0       96        3       40        1      328        5        0        4        8\n";
        assert_eq!(device_pages(stat), Some((12, 41)));
        assert_eq!(device_pages(""), None);
    }

    #[test]
    fn what_happened_between_two_looks_is_their_difference() {
        let before = Counts { major_faults: 5, pages_in: 100, pages_out: 200, oom_kills: 1 };
        let after = Counts { major_faults: 9, pages_in: 150, pages_out: 260, oom_kills: 1 };
        let between = Counts { major_faults: 4, pages_in: 50, pages_out: 60, oom_kills: 0 };
        assert_eq!(after.since(before), between);
    }

    #[test]
    fn the_swap_header_is_what_the_kernel_looks_for() {
        let header = swap_header(1000);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
        assert_eq!(header[1024..1028], 1u32.to_le_bytes());
        assert_eq!(header[1028..1032], 999u32.to_le_bytes());
    }

    #[test]
    fn a_rig_that_holds_nothing_comes_down_at_once_and_twice() {
        let mut rig = Rig::default();
        assert_eq!(rig.teardown(), Ok(()));
        assert_eq!(rig.teardown(), Ok(()));
    }
}
