//! How much memory there is: the machine's, and what the container allows.
use crate::size;
use std::path::{Path, PathBuf};

/// The tightest memory limit of the control groups this process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLimit {
    /// The limit.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The machine's memory, and what of it can be had without swapping.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
}

/// Reads `/proc/meminfo`; where there is none (systemd's `ProcSubset=pid`), what can be had is what is free.
pub fn machine() -> Result<Machine, String> {
    let text = match std::fs::read_to_string("/proc/meminfo") {
        Ok(text) => text,
        Err(e) => return from_sysinfo().ok_or_else(|| format!("/proc/meminfo: {e}")),
    };
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    match (field("MemTotal"), field("MemAvailable")) {
        (Some(total_bytes), Some(available_bytes)) => Ok(Machine { total_bytes, available_bytes }),
        _ => Err("/proc/meminfo does not say how much memory there is".into()),
    }
}

fn from_sysinfo() -> Option<Machine> {
    // SAFETY: numbers, which may be zero; the call fills them in.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        (libc::sysinfo(&mut info) == 0).then_some(info)?
    };
    let bytes = |units: libc::c_ulong| units * libc::c_ulong::from(info.mem_unit);
    Some(Machine { total_bytes: bytes(info.totalram), available_bytes: bytes(info.freeram + info.bufferram) })
}

/// The tightest limit that applies to this process: of its own groups and all their visible ancestors, version 1
/// and version 2. A limit that is not below the machine's memory is none.
pub fn container(total_bytes: u64) -> Option<ContainerLimit> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    tightest(&groups, &mounts, total_bytes, read)
}

/// The machine's memory, or the container's limit where that is less: what a percentage is of.
pub fn bound_bytes(total_bytes: u64) -> u64 {
    container(total_bytes).map_or(total_bytes, |limit| limit.bytes)
}

/// What is to be said of a limit, given by `flag`, that the container does not allow.
pub fn above_container(flag: &str, bytes: u64, total_bytes: u64) -> Option<String> {
    let limit = container(total_bytes).filter(|limit| limit.bytes < bytes)?;
    let (asked, most) = (size::show(bytes), size::show(limit.bytes));
    let file = limit.file.display();
    Some(format!(
        "{flag}: {asked} are more than the container's limit of {most} ({file}): the kernel may end the program first"
    ))
}

/// How often the kernel has ended a process of our control groups for want of memory. `None` where it does not say.
pub fn oom_kills() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    count_oom_kills(&read(Path::new("/proc/self/cgroup"))?, &read(Path::new("/proc/self/mountinfo"))?, read)
}

/// What is to be said where the kernel has ended a process since there were so many [`oom_kills`]; `is_program`: the program was killed, too.
pub fn killed(before: Option<u64>, is_program: bool) -> Option<String> {
    if oom_kills()? <= before? {
        return None;
    }
    let limit = machine().ok().and_then(|machine| container(machine.total_bytes));
    let of = |limit: ContainerLimit| {
        format!("its container may have {} ({})", size::show(limit.bytes), limit.file.display())
    };
    let why = limit.map_or("the machine's memory was used up".into(), of);
    let what = if is_program {
        "the program was killed, and the kernel ended a process of its group"
    } else {
        "the kernel ended a process of the program's group"
    };
    Some(format!("{what} for want of memory: {why}; give less --ram"))
}

fn count_oom_kills(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let counts = mounts.lines().filter_map(Mount::parse).filter_map(|mount| {
        let file_name = if mount.version_2 { "memory.events" } else { "memory.oom_control" };
        let text = read(&mount.point.join(mount.own_group(groups)).join(file_name))?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
    });
    counts.reduce(u64::saturating_add)
}

fn tightest(
    groups: &str,
    mounts: &str,
    total_bytes: u64,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<ContainerLimit> {
    let mut best: Option<ContainerLimit> = None;
    for mount in mounts.lines().filter_map(Mount::parse) {
        let file_name = if mount.version_2 { "memory.max" } else { "memory.limit_in_bytes" };
        for group in mount.own_group(groups).ancestors() {
            let file = mount.point.join(group).join(file_name);
            let Some(bytes) = read(&file).and_then(|text| text.trim().parse::<u64>().ok()) else {
                continue;
            };
            if bytes < total_bytes && best.as_ref().is_none_or(|b| bytes < b.bytes) {
                best = Some(ContainerLimit { bytes, file });
            }
        }
    }
    best
}

struct Mount {
    root: PathBuf,
    point: PathBuf,
    version_2: bool,
}

impl Mount {
    /// The group that we are in, below where this is mounted. `groups` is what `/proc/self/cgroup` says.
    fn own_group<'a>(&self, groups: &'a str) -> &'a Path {
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let ours =
                if self.version_2 { controllers.is_empty() } else { controllers.split(',').any(|c| c == "memory") };
            ours.then_some(path)
        });
        // A group outside what is mounted here (another cgroup namespace) is seen as the mount's own top.
        own.and_then(|path| Path::new(path).strip_prefix(&self.root).ok()).unwrap_or(Path::new(""))
    }

    /// Reads a line of `mountinfo`; `None` for what is no control group file system with memory in it.
    fn parse(line: &str) -> Option<Mount> {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let kind = right.next()?;
        let version_2 = match kind {
            "cgroup2" => true,
            "cgroup" if right.nth(1)?.split(',').any(|o| o == "memory") => false,
            _ => return None,
        };
        let mut left = left.split(' ').skip(3);
        Some(Mount { root: unescape(left.next()?), point: unescape(left.next()?), version_2 })
    }
}

/// Spaces and the like are octal in `mountinfo`.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let octal = bytes.get(i + 1..i + 4).filter(|o| bytes[i] == b'\\' && o.iter().all(|d| (b'0'..b'8').contains(d)));
        if let Some(o) = octal {
            out.push(o.iter().fold(0u8, |n, d| n.wrapping_mul(8).wrapping_add(d - b'0')));
            i += 4;
        } else {
            out.push(bytes[i]);
            i += 1;
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

/// The limit that a signal comes from, as far as that can be told: what to say of it.
pub fn behind(signal: i32) -> Option<String> {
    /// Smaller stacks are too small for what a program does at its start.
    const STACK_BYTES: u64 = 256 << 10;
    let limit = |resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` has room for the answer.
        (unsafe { libc::getrlimit(resource, &mut limit) } == 0).then_some(limit.rlim_cur)
    };
    match signal {
        libc::SIGXFSZ => {
            let bytes = limit(libc::RLIMIT_FSIZE)?;
            Some(format!("files may be no longer than {} (see ulimit -f)", size::show(bytes)))
        }
        libc::SIGSEGV | libc::SIGBUS => {
            let bytes = limit(libc::RLIMIT_STACK).filter(|bytes| *bytes < STACK_BYTES)?;
            Some(format!("a stack may be no larger than {} (see ulimit -s)", size::show(bytes)))
        }
        libc::SIGXCPU => Some("its processor time is limited (see ulimit -t)".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: u64 = 1 << 30;

    fn tree<'a>(files: &'a [(&str, &str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        move |path| files.iter().find(|(p, _)| Path::new(p) == path).map(|(_, text)| text.to_string())
    }

    #[test]
    fn takes_the_tightest_of_all_ancestors() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let files = [
            ("/sys/fs/cgroup/a/b/c/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "3221225472\n"),
            ("/sys/fs/cgroup/a/memory.max", "2147483648\n"),
        ];
        let limit = tightest("0::/a/b/c\n", mounts, 8 * GIB, tree(&files)).expect("a limit is set");
        assert_eq!(limit, ContainerLimit { bytes: 2 * GIB, file: "/sys/fs/cgroup/a/memory.max".into() });
        assert_eq!(tightest("0::/a/b/c\n", mounts, GIB, tree(&files)), None, "limits above the machine are none");
    }

    #[test]
    fn version_1_in_a_container_without_its_own_namespace() {
        let mounts = "700 690 0:33 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      701 690 0:34 /docker/f00 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/cgroup/cpu/memory.limit_in_bytes", "4096\n"),
        ];
        let groups = "5:cpu:/docker/f00\n4:memory:/docker/f00\n0::/docker/f00\n";
        assert_eq!(tightest(groups, mounts, 8 * GIB, tree(&files)).map(|l| l.bytes), Some(GIB));
        assert_eq!(tightest("4:memory:/../x\n", mounts, 8 * GIB, tree(&files)).map(|l| l.bytes), Some(GIB));
    }

    #[test]
    fn unlimited_version_1_is_no_limit() {
        let mounts = "1 2 0:3 / /cg\\040m rw - cgroup cgroup rw,memory\n";
        let files = [("/cg m/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(tightest("4:memory:/\n", mounts, 8 * GIB, tree(&files)), None);
        let files = [("/cg m/memory.limit_in_bytes", "65536\n")];
        assert_eq!(tightest("4:memory:/\n", mounts, 8 * GIB, tree(&files)).map(|l| l.bytes), Some(65536));
    }

    #[test]
    fn processes_that_the_kernel_ended_are_counted_in_our_own_group() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n\
                      31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let events = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 3\noom_group_kill 0\n";
        let files = [
            ("/sys/fs/cgroup/unified/a/memory.events", events),
            ("/sys/fs/cgroup/unified/memory.events", "oom_kill 100\n"),
            ("/sys/fs/cgroup/memory/b/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
            ("/sys/fs/cgroup/memory/b/memory.oom_control", "oom_kill 100\n"),
        ];
        assert_eq!(count_oom_kills("4:memory:/b/c\n0::/a\n", mounts, tree(&files)), Some(7));
        assert_eq!(count_oom_kills("4:memory:/x\n0::/a\n", mounts, tree(&files)), Some(3));
        assert_eq!(count_oom_kills("4:memory:/x\n0::/x\n", mounts, tree(&files)), None);
        assert_eq!((killed(None, true), killed(Some(u64::MAX), false)), (None, None));
        assert_eq!(above_container("--ram", 0, 8 * GIB), None, "no budget is above no limit");
    }

    #[test]
    fn this_machine_has_memory() {
        let machine = machine().expect("proc is mounted where tests run");
        assert!(machine.total_bytes >= machine.available_bytes && machine.available_bytes > 0);
    }
}
