//! Where a control block is, and how a process attaches to it.
use crate::config::{Config, MAGIC, PLACE_BYTES, VERSION};
use crate::shared::Shared;
use crate::text::{Text, process_path, take_number, until_nul};
use core::mem::offset_of;
use outswap_sys::{Errno, os};

/// Where a control block is found: `FD:/proc/PID/fd/N` in text. `FD` is the inherited descriptor of the configuration, and
/// `FD + 1` that of the shared part. Where a program in between has closed them, the supervisor `PID` has them as `N` and
/// `N + 1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The inherited descriptor.
    pub fd: i32,
    /// Process id of the supervisor.
    pub supervisor_pid: i32,
    /// The supervisor's own descriptor.
    pub supervisor_fd: i32,
}

impl Place {
    /// Reads the value of [`ENV`].
    pub fn parse(value: &[u8]) -> Option<Place> {
        let (fd, rest) = take_number(value)?;
        let (supervisor_pid, rest) = take_number(rest.strip_prefix(b":/proc/")?)?;
        let (supervisor_fd, rest) = take_number(rest.strip_prefix(b"/fd/")?)?;
        (rest.is_empty() && supervisor_pid > 0).then_some(Place { fd, supervisor_pid, supervisor_fd })
    }

    /// The value of [`ENV`].
    pub fn write<'a>(&self, buf: &'a mut [u8; PLACE_BYTES]) -> &'a [u8] {
        let mut text = Text { buf, len: 0 };
        text.number(self.fd);
        text.put(b":/proc/");
        text.number(self.supervisor_pid);
        text.put(b"/fd/");
        text.number(self.supervisor_fd);
        let len = text.len;
        &buf[..len]
    }

    /// Whether both name the same run, wherever its descriptors are.
    pub fn is_same_run(&self, other: &Place) -> bool {
        (self.supervisor_pid, self.supervisor_fd) == (other.supervisor_pid, other.supervisor_fd)
    }

    /// Maps the configuration and the shared part, by the inherited descriptors, or as the supervisor has them.
    pub fn open(&self) -> Option<Opened> {
        if let Some((config, shared)) = map(self.fd, self.fd.checked_add(1)?) {
            return Some(Opened { config, shared, fds: None });
        }
        let config = self.open_supervisors(self.supervisor_fd, os::O_RDONLY)?;
        let shared = self.open_supervisors(self.supervisor_fd.checked_add(1)?, os::O_RDWR);
        let mapped = shared.and_then(|shared| map(config, shared));
        match (mapped, shared) {
            (Some((mapped, shared_part)), Some(shared)) => {
                Some(Opened { config: mapped, shared: shared_part, fds: Some((config, shared)) })
            }
            _ => {
                let _ = os::close(config);
                let _ = shared.map(os::close);
                None
            }
        }
    }

    fn open_supervisors(&self, fd: i32, flags: usize) -> Option<i32> {
        let (mut name, mut path) = ([0u8; 16], [0u8; PLACE_BYTES]);
        let mut text = Text { buf: &mut name, len: 0 };
        text.put(b"/fd/");
        text.number(fd);
        text.put(b"\0");
        let len = text.len;
        os::open_regular(None, process_path(&mut path, self.supervisor_pid, &name[..len]), flags).ok().map(|(fd, _)| fd)
    }

    /// Whether what is there is a control block of another version. It may differ in all but its first two fields.
    pub fn is_of_another_version(&self) -> bool {
        if let Some(other) = is_other_version(self.fd) {
            return other;
        }
        let Some(fd) = self.open_supervisors(self.supervisor_fd, os::O_RDONLY) else { return false };
        let other = is_other_version(fd);
        let _ = os::close(fd);
        other == Some(true)
    }

    /// Whether this is the place of a run that was started inside the run at `ours`, as its configuration says.
    pub fn is_inside(&self, ours: &Place) -> bool {
        let Some(config) = map_config(self.fd) else { return false };
        let outer = Place::parse(until_nul(&config.outer));
        let inside = outer.is_some_and(|outer| outer.is_same_run(ours));
        // SAFETY: made above, and nobody else has the reference.
        let _ = unsafe { os::munmap(config as *const Config as usize, size_of::<Config>()) };
        inside
    }
}

/// A control block that was found.
pub struct Opened {
    /// The configuration.
    pub config: &'static Config,
    /// The part that all can write.
    pub shared: &'static Shared,
    /// New descriptors of both, the caller's to close, where the inherited ones are gone.
    pub fds: Option<(i32, i32)>,
}

/// Seals of a configuration: nothing about it can change.
pub const CONFIG_SEALS: usize = os::F_SEAL_WRITE | SHARED_SEALS;
/// Seals of the shared part: its length cannot change, so that reading it cannot fault.
pub const SHARED_SEALS: usize = os::F_SEAL_SHRINK | os::F_SEAL_GROW | os::F_SEAL_SEAL;

/// Whether a descriptor is a file that can be used as part of a control block: sealed, of the right length (where that is known), and made
/// by root or by who we are ourselves. Another user's file could say what that user likes.
fn checked(fd: i32, size_bytes: Option<usize>, seals: usize) -> Option<os::FileStatus> {
    let status = os::fstat(fd).ok()?;
    let sealed = os::fcntl(fd, os::F_GET_SEALS, 0).ok()? & seals == seals;
    let trusted = status.uid == 0 || status.uid == os::geteuid();
    let has_length = size_bytes.is_none_or(|bytes| status.size_bytes == bytes as u64);
    (status.is_regular() && has_length && sealed && trusted).then_some(status)
}

/// Whether a descriptor is a configuration of another version; `None` where it is none that can be trusted.
fn is_other_version(fd: i32) -> Option<bool> {
    const HEAD_BYTES: usize = size_of::<u64>() + size_of::<u32>();
    const _: () = assert!(offset_of!(Config, magic) == 0 && offset_of!(Config, version) == size_of::<u64>());
    checked(fd, None, CONFIG_SEALS)?;
    let mut head = [0u8; HEAD_BYTES];
    if os::pread(fd, &mut head, 0) != Ok(HEAD_BYTES) {
        return None;
    }
    let (magic, version) = head.split_at(size_of::<u64>());
    (magic == MAGIC.to_le_bytes()).then(|| version != VERSION.to_le_bytes())
}

fn map_config(fd: i32) -> Option<&'static Config> {
    checked(fd, Some(size_of::<Config>()), CONFIG_SEALS)?;
    // Private: kernels before 6.7 refuse any shared mapping of a file that is sealed against writing.
    // SAFETY: no address given.
    let at = unsafe { os::mmap(0, size_of::<Config>(), os::PROT_READ, os::MAP_PRIVATE, fd, 0) }.ok()?;
    // SAFETY: the file is long enough and never changes, and all fields are integers.
    let config = unsafe { &*(at as *const Config) };
    if config.magic == MAGIC && config.version == VERSION {
        return Some(config);
    }
    // SAFETY: nobody uses the mapping.
    let _ = unsafe { os::munmap(at, size_of::<Config>()) };
    None
}

/// Maps both parts. The shared part must be the very file that the configuration names.
fn map(config_fd: i32, shared_fd: i32) -> Option<(&'static Config, &'static Shared)> {
    let config = map_config(config_fd)?;
    let status = checked(shared_fd, Some(size_of::<Shared>()), SHARED_SEALS);
    let at = status.filter(|s| [s.device, s.inode] == config.shared_file).and_then(|_| {
        let (prot, flags) = (os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED);
        // SAFETY: no address given.
        unsafe { os::mmap(0, size_of::<Shared>(), prot, flags, shared_fd, 0) }.ok()
    });
    match at {
        // SAFETY: the file is as long and stays so, and all fields are atomic integers.
        Some(at) => Some((config, unsafe { &*(at as *const Shared) })),
        None => {
            // SAFETY: made above, and nobody else has the reference.
            let _ = unsafe { os::munmap(config as *const Config as usize, size_of::<Config>()) };
            None
        }
    }
}

/// Attempts to find two free numbers next to each other.
const PAIR_ATTEMPTS: usize = 16;

/// Makes copies of two descriptors that live through exec, at neighbouring free numbers of at least `from`. Returns the
/// first.
pub fn place_pair(config_fd: i32, shared_fd: i32, from: usize) -> outswap_sys::Result<i32> {
    let mut from = from;
    for _ in 0..PAIR_ATTEMPTS {
        let first = os::fcntl(config_fd, os::F_DUPFD, from)?;
        match os::fcntl(shared_fd, os::F_DUPFD, first + 1) {
            Ok(second) if second == first + 1 => return Ok(first as i32),
            second => {
                os::close(first as i32)?;
                from = second?;
                os::close(from as i32)?;
            }
        }
    }
    Err(Errno::EMFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no process has.
    const NOBODY: i32 = i32::MAX;

    /// A sealed configuration, and the shared part that it names, at neighbouring numbers.
    fn pair(change: impl FnOnce(&mut Config)) -> Place {
        const MFD_ALLOW_SEALING: usize = 2;
        let file = || os::memfd_create(b"test\0", MFD_ALLOW_SEALING).expect("memory");
        let (config_fd, shared_fd) = (file(), file());
        os::ftruncate(shared_fd, size_of::<Shared>() as u64).expect("room");
        os::fcntl(shared_fd, os::F_ADD_SEALS, SHARED_SEALS).expect("may be sealed");
        let status = os::fstat(shared_fd).expect("ours");
        let mut config = Config { shared_file: [status.device, status.inode], ..Config::EMPTY };
        change(&mut config);
        os::pwrite(config_fd, config.as_bytes(), 0).expect("room");
        os::fcntl(config_fd, os::F_ADD_SEALS, CONFIG_SEALS).expect("may be sealed");
        let fd = place_pair(config_fd, shared_fd, 50).expect("free numbers");
        [config_fd, shared_fd].into_iter().for_each(|fd| os::close(fd).expect("ours"));
        Place { fd, supervisor_pid: NOBODY, supervisor_fd: 0 }
    }

    #[test]
    fn a_process_attaches_to_no_other_version() {
        let opens = |change: fn(&mut Config)| {
            let place = pair(change);
            let opened = place.open().is_some();
            assert!(!opened || !place.is_of_another_version());
            [place.fd, place.fd + 1].into_iter().for_each(|fd| os::close(fd).expect("ours"));
            opened
        };
        assert!(opens(|_| {}), "what is refused below is refused for its difference");
        let changes: [fn(&mut Config); 4] =
            [|c| c.version = 0, |c| c.version = 2, |c| c.version ^= 1 << 31, |c| c.magic += 1];
        for change in changes {
            assert!(!opens(change));
        }
        let is_other = |change: fn(&mut Config)| {
            let place = pair(change);
            let other = place.is_of_another_version();
            [place.fd, place.fd + 1].into_iter().for_each(|fd| os::close(fd).expect("ours"));
            other
        };
        assert!(is_other(|c| c.version = 2) && is_other(|c| c.version ^= 1 << 31));
        assert!(!is_other(|c| c.magic += 1), "something else");
        assert!(
            !is_other(|_| {}) && !Place { fd: -1, supervisor_pid: NOBODY, supervisor_fd: 0 }.is_of_another_version()
        );
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = Place { fd: 1008, supervisor_pid: 4242, supervisor_fd: 976 };
        let mut buf = [0; PLACE_BYTES];
        assert_eq!(place.write(&mut buf), b"1008:/proc/4242/fd/976");
        assert_eq!(Place::parse(b"1008:/proc/4242/fd/976"), Some(place));
        let largest = Place { fd: i32::MAX, supervisor_pid: i32::MAX, supervisor_fd: i32::MAX };
        assert_eq!(Place::parse(largest.write(&mut [0; PLACE_BYTES])), Some(largest));
        let smallest = Place { fd: 0, supervisor_pid: 1, supervisor_fd: 0 };
        assert_eq!(Place::parse(smallest.write(&mut [0; PLACE_BYTES])), Some(smallest));
        assert!(place.is_same_run(&Place { fd: 5, ..place }) && !place.is_same_run(&smallest));
    }

    #[test]
    fn nothing_but_a_place_is_a_place() {
        for value in [
            "",
            "1008",
            ":/proc/1/fd/2",
            "1008:/tmp/evil",
            "1008:/proc/1/fd/2/../../../../tmp/evil",
            "1008:/proc/self/fd/2",
            "1008:/proc/0/fd/2",
            "1008:/proc/-1/fd/2",
            "-1:/proc/1/fd/2",
            "+1:/proc/1/fd/2",
            "1 :/proc/1/fd/2",
            "1008:/proc/1/fd/",
            "1008:/proc/1/fd/2 ",
            "1008:/proc/99999999999/fd/2",
            "2147483648:/proc/1/fd/2",
            "18446744073709552624:/proc/1/fd/2",
        ] {
            assert_eq!(Place::parse(value.as_bytes()), None, "{value}");
        }
        assert!(Place { fd: -1, supervisor_pid: NOBODY, supervisor_fd: 3 }.open().is_none());
        assert!(Place { fd: i32::MAX, supervisor_pid: 1, supervisor_fd: i32::MAX }.open().is_none());
    }
}
