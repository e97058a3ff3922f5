//! Makes the control block that the program inherits.
use crate::args::RunOptions;
use crate::{libraries, swap_dir};
use outswap_control::{
    self as control, CONFIG_SEALS, Config, Control, PLACE_BYTES, Place, SHARED_SEALS, Shared, Tier, source,
};
use outswap_source::Source;
use outswap_sys::{Errno, os};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::Relaxed;

/// Lowest number the inherited descriptors get where the limit allows it.
const LOW_FD: usize = 100;
/// Limit the number is taken from where the real one is higher. A process's descriptor table is as long as its
/// highest descriptor, and is copied at each fork, so a number just below a limit of a million would be dear.
const HIGH_FD: usize = 1024;
/// Descriptors left free above it: more than the runtime of a managed process guards.
const SPARE_FDS: usize = 96;
/// How far a run inside a run keeps from the numbers of the other, which guards as many.
const LEVEL_FDS: usize = 96;

const MFD_CLOEXEC: usize = 1;
const MFD_ALLOW_SEALING: usize = 2;
const MFD_NOEXEC_SEAL: usize = 8;

/// The control block, mapped here for the life of the process.
pub struct Block {
    /// The block.
    pub control: &'static Control,
    /// Where the program finds it, where it is to.
    pub place: Option<Place>,
    /// Where files are asked for.
    pub requests: Option<OwnedFd>,
}

/// A block that is there, and says nothing yet.
pub struct Blank {
    config_fd: i32,
    shared_fd: i32,
    shared: &'static Shared,
    /// The first of the numbers that the program finds it under, where it is to.
    fd: Option<i32>,
    requests: Option<OwnedFd>,
    outer: Option<Place>,
}

fn fail(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| {
        let why = if e == Errno::EFBIG { " (files may be no longer: see ulimit -f)" } else { "" };
        format!("cannot make the control block: {what}: {e:?}{why}")
    }
}

/// Makes and fills the block. `preload` is the value of `LD_PRELOAD` that managed children get first; without one,
/// the program is not to find the block, and no descriptor is kept. `outer` is the run that this one is inside of. `allow_unmanaged`: the
/// first program goes on where it cannot be managed.
pub fn make(
    options: &RunOptions,
    preload: Option<&str>,
    outer: Option<Place>,
    allow_unmanaged: bool,
) -> Result<Block, String> {
    Blank::make(options, preload.is_some(), outer)?.fill(options, preload, allow_unmanaged)
}

impl Blank {
    /// Makes a block, which the program is to find if `is_found`.
    pub fn make(options: &RunOptions, is_found: bool, outer: Option<Place>) -> Result<Blank, String> {
        let config_fd = memory_file(b"outswap-config\0").map_err(fail("memfd_create"))?;
        let shared_fd = memory_file(b"outswap-control\0").map_err(fail("memfd_create"))?;
        os::ftruncate(shared_fd, size_of::<Shared>() as u64).map_err(fail("ftruncate"))?;
        os::fcntl(shared_fd, os::F_ADD_SEALS, SHARED_SEALS).map_err(fail("F_ADD_SEALS"))?;
        let (prot, flags) = (os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe { os::mmap(0, size_of::<Shared>(), prot, flags, shared_fd, 0) }.map_err(fail("mmap"))?;
        // SAFETY: the mapping is as long as the block, page-aligned and zero, which is a valid value of every field; it
        // is never unmapped.
        let shared = unsafe { &*(at as *const Shared) };
        let fd = if is_found { Some(inheritable(config_fd, shared_fd, outer).map_err(fail("fcntl"))?) } else { None };
        let requests = fd.filter(|_| has_file(options)).and_then(|fd| socket_pair(fd + 2));
        Ok(Blank { config_fd, shared_fd, shared, fd, requests, outer })
    }

    /// Where the program finds it, if `supervisor_pid` fills it.
    pub fn place(&self, supervisor_pid: i32) -> Option<Place> {
        self.fd.map(|fd| Place { fd, supervisor_pid, supervisor_fd: fd })
    }

    /// Fills it, as [`make`] does: this process is the supervisor.
    pub fn fill(self, options: &RunOptions, preload: Option<&str>, allow_unmanaged: bool) -> Result<Block, String> {
        let Blank { config_fd, shared_fd, shared, fd, ref requests, outer } = self;
        let mut config = Box::new(Config::EMPTY);
        config.supervisor_pid = os::getpid();
        config.supervisor_fd = fd.unwrap_or(-1);
        let status = os::fstat(shared_fd).map_err(fail("fstat"))?;
        config.shared_file = [status.device, status.inode];
        if let (Some(fd), Some(_)) = (fd, requests) {
            config.requests = os::fstat(fd + 2).map_or([0; 2], |status| [status.device, status.inode]);
        }
        config.pid_namespace = os::stat_at(None, b"/proc/self/ns/pid\0").map_or(0, |status| status.inode);
        config.gate = gate(outer).map_err(fail("getrandom"))?;
        config.ram_bytes = options.ram_bytes;
        config.resident_bytes = options.resident_bytes;
        config.policies = options.mechanisms.0;
        config.fault_source = options.fault_source.map_or(source::AUTO, Source::number);
        config.file_in_memory = (has_file(options) && swap_dir::is_memory(&options.swap_dir)).into();
        config.page_cluster = options.page_cluster as u64;
        config.folio_orders = options.folio_orders;
        config.record = options.record.is_some().into();
        config.no_follow = options.no_follow.into();
        config.keep_malloc = options.keep_malloc.into();
        config.when_full = options.when_full as u32;
        config.strict = options.strict.into();
        config.allow_unmanaged = allow_unmanaged.into();
        for (to, from) in config.tiers.iter_mut().zip(&options.tiers) {
            *to = Tier::NONE;
            put(&mut to.kind, from.kind.name().as_bytes(), "a tier's name")?;
            to.parameters = from.kind.pack();
            to.max_bytes = from.max_bytes;
            to.device = from.device.to_words();
        }
        if let Some(outer) = outer {
            put(&mut config.outer, outer.write(&mut [0; PLACE_BYTES]), "the place of the run around this one")?;
        }
        put(&mut config.swap_dir, options.swap_dir.as_os_str().as_bytes(), "the path of --swap-dir")?;
        put(&mut config.preload, preload.unwrap_or_default().as_bytes(), "the path of the libraries")?;
        if let Some(preload) = preload {
            config.libraries = libraries::known(preload);
        }
        let written = os::pwrite(config_fd, config.as_bytes(), 0).map_err(fail("pwrite"))?;
        if written != size_of::<Config>() {
            return Err("cannot make the control block: memory is full".into());
        }
        // From here on nothing can change it, neither the program nor we.
        os::fcntl(config_fd, os::F_ADD_SEALS, CONFIG_SEALS).map_err(fail("F_ADD_SEALS"))?;
        os::close(config_fd).map_err(fail("close"))?;
        os::close(shared_fd).map_err(fail("close"))?;
        let place = self.place(config.supervisor_pid);
        let control = Box::leak(Box::new(Control::new(Box::leak(config), shared, None)));
        control.shared_fd.store(fd.map_or(-1, |fd| fd + 1), Relaxed);
        Ok(Block { control, place, requests: self.requests })
    }
}

fn has_file(options: &RunOptions) -> bool {
    options.tiers.iter().any(|tier| tier.kind.is_file())
}

/// The run that this process is inside of, if there is one that can be reached.
pub fn outer() -> Option<Place> {
    let value = std::env::var_os(control::ENV)?;
    let place = Place::parse(value.as_bytes())?;
    config_of(place).map(|_| place)
}

fn config_of(place: Place) -> Option<&'static Config> {
    let opened = place.open()?;
    for fd in opened.fds.map_or([None; 2], |(config, shared)| [Some(config), Some(shared)]).into_iter().flatten() {
        let _ = os::close(fd);
    }
    Some(opened.config)
}

/// Where the gate is: where the run around this one has it, whose filter is inherited, or anywhere.
fn gate(outer: Option<Place>) -> outswap_sys::Result<u64> {
    if let Some(config) = outer.and_then(config_of) {
        return Ok(config.gate);
    }
    let mut bytes = [0; 8];
    os::getrandom(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Makes a socket whose other end lives through exec under a number. Each message says whose it is. `None` where that is not to be had.
fn socket_pair(number: i32) -> Option<OwnedFd> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: a place for two descriptors, which are nobody else's.
    let [ours, theirs] = unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) != 0 {
            return None;
        }
        fds.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    say_whose(&ours);
    let placed = os::fcntl(theirs.as_raw_fd(), os::F_DUPFD, number as usize).ok()? as i32;
    if placed == number {
        return Some(ours);
    }
    let _ = os::close(placed);
    None
}

/// Has what comes at a socket say whose it is; what has come before does not.
pub fn say_whose(socket: &OwnedFd) {
    let yes: libc::c_int = 1;
    let (at, len) = ((&raw const yes).cast(), size_of_val(&yes) as libc::socklen_t);
    // SAFETY: reads a number.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, at, len) };
}

/// Makes an empty memory file that can be sealed.
fn memory_file(name: &[u8]) -> outswap_sys::Result<i32> {
    let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_NOEXEC_SEAL.
    os::memfd_create(name, flags | MFD_NOEXEC_SEAL).or_else(|_| os::memfd_create(name, flags))
}

/// Copies a text into a field that ends it with a NUL.
fn put(field: &mut [u8], text: &[u8], what: &str) -> Result<(), String> {
    if text.len() >= field.len() || text.contains(&0) {
        return Err(format!("{what} is too long ({} bytes; {} fit)", text.len(), field.len() - 1));
    }
    field[..text.len()].copy_from_slice(text);
    Ok(())
}

/// Copies of both descriptors that live through exec, at numbers that programs seldom touch.
fn inheritable(config_fd: i32, shared_fd: i32, outer: Option<Place>) -> outswap_sys::Result<i32> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    let soft = if known { usize::try_from(limit.rlim_cur).unwrap_or(HIGH_FD) } else { HIGH_FD };
    control::place_pair(config_fd, shared_fd, lowest_fd(soft, outer.map(|o| o.fd)))
}

/// `outer_fd` is the number that a run around this one has: what its runtime guards in us is near it.
fn lowest_fd(soft_limit: usize, outer_fd: Option<i32>) -> usize {
    let below = outer_fd.map_or(usize::MAX, |fd| (fd as usize).saturating_sub(LEVEL_FDS));
    let wanted = soft_limit.min(HIGH_FD).saturating_sub(SPARE_FDS).min(below);
    if wanted >= LOW_FD { wanted } else { soft_limit / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_before_anybody_listens_says_whose_it_is() {
        const NUMBER: i32 = 300;
        let ours = socket_pair(NUMBER).expect("a free number");
        let (mut value, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: room for the answer, as long as it says.
        let asked = unsafe {
            let at = (&raw mut value).cast();
            libc::getsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, at, &raw mut len)
        };
        assert_eq!((asked, value), (0, 1));
        os::close(NUMBER).expect("ours");
    }

    #[test]
    fn the_descriptor_is_high_but_not_dear() {
        for (limit, lowest) in [(1024, 928), (1 << 30, 928), (256, 160), (196, 100), (116, 58), (64, 32), (8, 4)] {
            assert_eq!(lowest_fd(limit, None), lowest);
        }
        assert_eq!(lowest_fd(1024, Some(928)), 832, "away from what the run around this one guards");
        assert_eq!(lowest_fd(1024, Some(110)), 512);
    }

    #[test]
    fn nothing_can_change_the_configuration() {
        let options = crate::args::parse(["outswap", "run", "--ram", "64M", "p"].map(Into::into).to_vec());
        let Ok(crate::args::Parsed::Run(options)) = options else { panic!("not run") };
        let place = make(&options, Some("/x/p.so"), None, false).expect("made").place.expect("for the program");
        let opened = place.open().expect("by its descriptors");
        assert_eq!((opened.config.ram_bytes, opened.fds), (64 << 20, None));
        let elsewhere = Place { fd: -1, ..place }.open().expect("as the supervisor has them");
        let (config_fd, shared_fd) = elsewhere.fds.expect("opened anew");
        let writable = os::open(format!("/proc/self/fd/{}\0", place.fd).as_bytes(), os::O_RDWR, 0).expect("ours");
        assert_eq!(os::pwrite(writable, b"x", 0), Err(Errno::EPERM));
        for length in [0, 1 << 20] {
            assert_eq!(os::ftruncate(writable, length), Err(Errno::EPERM));
        }
        for flags in [os::MAP_SHARED, os::MAP_SHARED | os::MAP_POPULATE] {
            // SAFETY: a new mapping, if any.
            let mapped = unsafe { os::mmap(0, 4096, os::PROT_READ | os::PROT_WRITE, flags, writable, 0) };
            assert_eq!(mapped, Err(Errno::EPERM));
        }
        for length in [0, 4096, 1 << 30] {
            assert_eq!(os::ftruncate(place.fd + 1, length), Err(Errno::EPERM), "reading the shared part cannot fault");
        }
        for fd in [config_fd, shared_fd, writable, place.fd, place.fd + 1] {
            os::close(fd).expect("ours");
        }
    }

    #[test]
    fn what_is_not_sealed_is_not_a_control_block() {
        let options = crate::args::parse(["outswap", "run", "p"].map(Into::into).to_vec());
        let Ok(crate::args::Parsed::Run(options)) = options else { panic!("not run") };
        let place = make(&options, Some("/x/p.so"), None, false).expect("made").place.expect("for the program");
        let copy = |name: &[u8], config: Config, seals: usize| {
            let fd = memory_file(name).expect("memory");
            os::pwrite(fd, config.as_bytes(), 0).expect("room");
            os::fcntl(fd, os::F_ADD_SEALS, seals).expect("may be sealed");
            fd
        };
        let good = *place.open().expect("ours").config;
        let pair = |config_fd: i32| {
            let fd = control::place_pair(config_fd, place.fd + 1, 200).expect("free numbers");
            let opened = Place { fd, supervisor_pid: i32::MAX, supervisor_fd: 0 }.open().is_some();
            [config_fd, fd, fd + 1].into_iter().for_each(|fd| os::close(fd).expect("ours"));
            opened
        };
        assert!(pair(copy(b"same\0", good, CONFIG_SEALS)), "what is refused below is refused for its difference");
        assert!(!pair(copy(b"open\0", good, SHARED_SEALS)), "can be written");
        assert!(!pair(copy(b"old\0", Config { version: good.version ^ 1, ..good }, CONFIG_SEALS)));
        assert!(!pair(copy(b"foreign\0", Config { magic: 0, ..good }, CONFIG_SEALS)));
        assert!(!pair(copy(b"other\0", Config { shared_file: [1, 2], ..good }, CONFIG_SEALS)), "of another run");
        let long = memory_file(b"long\0").expect("memory");
        os::pwrite(long, &[good.as_bytes(), b"x"].concat(), 0).expect("room");
        os::fcntl(long, os::F_ADD_SEALS, CONFIG_SEALS).expect("may be sealed");
        assert!(!pair(long));
        let foreign = copy(b"user\0", good, CONFIG_SEALS);
        // SAFETY: takes no pointers.
        if unsafe { libc::fchown(foreign, 12345, 12345) } == 0 {
            assert!(!pair(foreign), "another user's");
        }
        [place.fd, place.fd + 1].into_iter().for_each(|fd| os::close(fd).expect("ours"));
    }

    #[test]
    fn texts_must_fit() {
        let mut field = [0u8; 4];
        assert!(put(&mut field, b"abc", "x").is_ok() && field == *b"abc\0");
        assert!(put(&mut field, b"abcd", "x").is_err());
    }
}
