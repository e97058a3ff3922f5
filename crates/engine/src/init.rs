//! Set-up of a managed process, once, before any of its code runs, or at the first call that needs it.
use crate::contexts::Contexts;
use crate::control::{self, Control, tier};
use crate::filter::{self, Known};
use crate::layout::*;
use crate::live::{self, Live, Mapped};
use crate::machine::LiveMachine;
use crate::source::{Source, mprotect};
use crate::{budget, exec, fork, gate, signals, trap};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};
use outswap_core::engine::{Config, Engine};
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES};
use outswap_store::{Algorithm, TierConfig, TierKind, Tiers};
use outswap_sys::{Errno, nr, os};

static CONTEXTS: Contexts = Contexts::unreserved();
static SETUP_TID: AtomicI32 = AtomicI32::new(0);
/// The inherited descriptor of the control block, and the supervisor, for the environment of children.
static CONTROL_FD: AtomicI32 = AtomicI32::new(-1);
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);
/// Where the engine's object is.
static OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Slots: 256 GiB of swap space.
const SLOTS: usize = 1 << 26;
/// Staging windows of a large managed range: 4 GiB of frames.
const WINDOWS: usize = 1 << 14;
const MAPPINGS: usize = 1 << 18;
/// Descriptors that the engine keeps: the control block's is inherited, the others follow it.
const FDS: i32 = 8;

/// Why a process cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No control block: this process is not to be managed.
    NotAsked,
    /// The control block is of another version.
    Version,
    /// The tree has too many managed processes.
    TooMany,
    /// Address space or memory is missing.
    NoMemory,
    /// No fault source works here.
    NoSource(Errno),
    /// The system refused something else.
    System(&'static str, Errno),
}

impl SetupError {
    fn text(self) -> &'static [u8] {
        match self {
            SetupError::NotAsked => b"",
            SetupError::Version => {
                b"error: outswap and its preload library are of different versions; install both from one build"
            }
            SetupError::TooMany => b"warning: too many managed processes; one runs unmanaged",
            SetupError::NoMemory => {
                b"warning: no address space for the engine (see ulimit -v); a process runs unmanaged"
            }
            SetupError::NoSource(_) => {
                b"warning: the fault source does not work in a process, which runs unmanaged; see outswap doctor"
            }
            SetupError::System(what, _) => what.as_bytes(),
        }
    }
}

/// Sets the process up unless that was done. Returns the engine if the process is managed.
pub fn ensure() -> Option<&'static Live> {
    if let Some(live) = live::try_live() {
        return Some(live);
    }
    if live::begin_setup(&SETUP_TID) {
        setup_or_tell();
        live::end_setup();
    }
    live::try_live()
}

fn setup_or_tell() {
    let Some(control) = open_control() else { return };
    if let Err(error) = setup(control) {
        control.processes_unmanaged.fetch_add(1, Relaxed);
        if error != SetupError::NotAsked {
            control.post(error.text());
        }
    }
}

/// The value of the control block's environment variable, for children.
pub fn control_value(buf: &mut [u8; 64]) -> &[u8] {
    let mut at = 0;
    let mut put = |text: &[u8]| {
        buf[at..at + text.len()].copy_from_slice(text);
        at += text.len();
    };
    let mut digits = [0u8; 12];
    put(decimal(CONTROL_FD.load(Relaxed) as u32, &mut digits));
    put(b":/proc/");
    put(decimal(SUPERVISOR.load(Relaxed) as u32, &mut digits));
    put(b"/fd/");
    put(decimal(CONTROL_FD.load(Relaxed) as u32, &mut digits));
    &buf[..at]
}

fn decimal(mut n: u32, buf: &mut [u8; 12]) -> &[u8] {
    let mut at = buf.len();
    loop {
        at -= 1;
        buf[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &buf[at..];
        }
    }
}

/// Finds the control block through the environment as the kernel keeps it: the C library may not have its own yet.
fn open_control() -> Option<&'static Control> {
    let fd = os::open(b"/proc/self/environ\0", os::O_RDONLY | os::O_CLOEXEC, 0).ok()?;
    let mut value = [0u8; 256];
    let len = find_variable(fd, &mut value);
    let _ = os::close(fd);
    let value = &value[..len?];
    let colon = value.iter().position(|b| *b == b':')?;
    let number = value[..colon]
        .iter()
        .try_fold(0i32, |n, c| c.is_ascii_digit().then(|| n.wrapping_mul(10).wrapping_add((c - b'0') as i32)))?;
    CONTROL_FD.store(number, Relaxed);
    let control = map_control(number).or_else(|| {
        // A program in between may have closed it.
        let mut path = [0u8; 256];
        path[..value.len() - colon - 1].copy_from_slice(&value[colon + 1..]);
        let fd = os::open(&path[..value.len() - colon], os::O_RDWR | os::O_CLOEXEC, 0).ok()?;
        let control = map_control(fd);
        // Children inherit it under the same number again.
        if control.is_some() {
            // SAFETY: duplicates a descriptor to a number that was closed.
            unsafe { outswap_sys::syscall3(outswap_sys::nr::DUP3, fd as usize, number as usize, 0) };
        }
        let _ = os::close(fd);
        control
    })?;
    SUPERVISOR.store(control.supervisor_pid, Relaxed);
    Some(control)
}

fn map_control(fd: i32) -> Option<&'static Control> {
    let len = core::mem::size_of::<Control>();
    // SAFETY: no address given.
    let at = unsafe { os::mmap(0, len, os::PROT_READ | os::PROT_WRITE, os::MAP_SHARED, fd, 0) }.ok()?;
    // Some other file may have the number: only what begins as a control block is one. A file shorter than a page would
    // fault, so its length is checked first.
    let mut stat = [0u64; 18];
    // SAFETY: the buffer has the size of `struct stat`; the size is its seventh word.
    let ok = unsafe { outswap_sys::syscall2(outswap_sys::nr::FSTAT, fd as usize, stat.as_mut_ptr() as usize) } == 0;
    // SAFETY: the file is long enough, and all its fields are integers.
    let control = unsafe { &*(at as *const Control) };
    if ok && stat[6] >= len as u64 && control.magic == control::MAGIC {
        return Some(control);
    }
    // SAFETY: nobody uses the mapping.
    let _ = unsafe { os::munmap(at, len) };
    None
}

/// Looks for the control variable in a block of `NAME=VALUE\0` read from a descriptor.
fn find_variable(fd: i32, value: &mut [u8; 256]) -> Option<usize> {
    let key = control::ENV.as_bytes();
    let mut buf = [0u8; 4096];
    // How much of `NAME=` has matched; `None` after a mismatch, until the next variable.
    let mut matched = Some(0);
    let mut len = 0;
    loop {
        let n = os::read(fd, &mut buf).ok()?;
        if n == 0 {
            return None;
        }
        for &byte in &buf[..n] {
            match matched {
                Some(m) if m > key.len() => {
                    if byte == 0 {
                        return Some(len);
                    }
                    *value.get_mut(len)? = byte;
                    len += 1;
                }
                Some(m) if m == key.len() && byte == b'=' || m < key.len() && byte == key[m] => matched = Some(m + 1),
                _ => matched = (byte == 0).then_some(0),
            }
        }
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> SetupError {
    move |e| SetupError::System(what, e)
}

fn setup(control: &'static Control) -> Result<(), SetupError> {
    if control.version != control::VERSION {
        return Err(SetupError::Version);
    }
    signals::start_clock();
    gate::open().map_err(system("warning: the gate's address is taken; a process runs unmanaged"))?;
    CONTEXTS.reserve().map_err(|_| SetupError::NoMemory)?;
    trap::reserve().map_err(|_| SetupError::NoMemory)?;
    exec::reserve().map_err(|_| SetupError::NoMemory)?;
    let arena_bytes = reserve_arena().ok_or(SetupError::NoMemory)?;
    let stage_bytes = WINDOWS.min(arena_bytes / 8 / (BLOCK_PAGES * PAGE_BYTES)) * BLOCK_PAGES * PAGE_BYTES;

    let machine = LiveMachine::unset();
    let min_fd = CONTROL_FD.load(Relaxed) + 1;
    machine.arena_bytes.store(arena_bytes, Relaxed);
    open_source(control, &machine, min_fd)?;
    let stage = os::mmap_anonymous(stage_bytes).map_err(|_| SetupError::NoMemory)?;
    // SAFETY: an advice that drops nothing.
    let _ = unsafe { os::madvise(stage, stage_bytes, os::MADV_NOHUGEPAGE) };
    machine.stage.store(stage, Relaxed);
    let record = fork::take_record(control, os::getpid()).ok_or(SetupError::TooMany)?;
    record.fault_source.store(machine.source.load(Relaxed), Relaxed);
    machine.record.store(record as *const _ as *mut _, Release);

    let mut seed = [0u8; 8];
    os::getrandom(&mut seed).map_err(system("warning: no random numbers; a process runs unmanaged"))?;
    let slots = SLOTS.min(arena_bytes / PAGE_BYTES * 4);
    let config = Config {
        pages: (arena_bytes / PAGE_BYTES) as u32,
        slots,
        windows: live::windows(stage_bytes),
        hazards: HAZARDS,
        mappings: MAPPINGS,
        seed: u64::from_le_bytes(seed),
        folios: true,
    };
    let store = make_store(control, slots, min_fd)?;
    if store.file_error().is_some() {
        control.post(b"warning: the swap file cannot be made (see --swap-dir); nothing is written to disk");
    }
    let engine = Engine::new(machine, store, &Mapped, config).ok_or(SetupError::NoMemory)?;
    gate::build(|slot| engine.hazards.owner_word(slot).as_ptr() as usize)
        .map_err(system("warning: the gate cannot be built; a process runs unmanaged"))?;

    let object = os::mmap_anonymous(core::mem::size_of::<Live>()).map_err(|_| SetupError::NoMemory)? as *mut Live;
    OBJECT.store(object as usize, Relaxed);
    // SAFETY: fresh memory of that size, page-aligned, never unmapped.
    let live: &'static Live = unsafe {
        object.write(Live::new(engine, control, &CONTEXTS, stage_bytes, (min_fd - 1, min_fd + FDS)));
        &*object
    };
    live.register_all().map_err(SetupError::NoSource)?;
    signals::install(&mut live.actions.lock(|s| live::pause(live, s)))
        .map_err(system("warning: signal handlers are refused; a process runs unmanaged"))?;
    signals::take_altstack().map_err(|_| SetupError::NoMemory)?;
    let known =
        Known { code: library_code(), fds: live.fds.0..=live.fds.1, keep_malloc: control.config.keep_malloc != 0 };
    // Without both filters nothing may be managed: a fork that nobody notices would give the child wrong data. A chain of a
    // few hundred execs ends here, because filters add up.
    let filtered = if range_is_trapped() { Ok(()) } else { filter::install_range() };
    if let Err(e) = filtered.and_then(|()| filter::install_process(&known)) {
        signals::uninstall(&mut live.actions.lock(|s| live::pause(live, s)));
        control.fold(live.record(), os::getpid());
        return Err(SetupError::System("warning: no more seccomp filters are possible; a process runs unmanaged", e));
    }
    live::set(live);
    budget::measure(live);
    budget::refresh(live);
    Ok(())
}

/// Reserves the managed range, as large as the address-space limit allows.
fn reserve_arena() -> Option<usize> {
    let flags = os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE | os::MAP_FIXED_NOREPLACE;
    ARENA_SIZES.iter().copied().find(|&bytes| {
        // Tables and staging need a part of a limited address space too: half as much again must be free.
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing; the probe is given back at once.
        unsafe {
            let Ok(probe) =
                os::mmap(0, bytes / 2, os::PROT_NONE, os::MAP_PRIVATE | os::MAP_ANONYMOUS | os::MAP_NORESERVE, -1, 0)
            else {
                return false;
            };
            let at = gate::call(nr::MMAP, ARENA, bytes, os::PROT_NONE, flags, usize::MAX, 0);
            let _ = os::munmap(probe, bytes / 2);
            at == ARENA as isize
        }
    })
}

/// Chooses and opens the fault source: the one asked for, or the best that works.
fn open_source(control: &Control, machine: &LiveMachine, min_fd: i32) -> Result<(), SetupError> {
    use control::source::*;
    let asked = control.config.fault_source;
    let mut error = Errno::ENOSYS;
    for number in [MOVE, COPY, MPROTECT] {
        if asked != AUTO && asked != number {
            continue;
        }
        let opened = match Source::of(number) {
            Source::Mprotect => {
                mprotect::learn_limits();
                fork::open_mem(min_fd + 1).map(|fd| machine.mem_fd.store(fd, Relaxed))
            }
            source => live::open_uffd(source, min_fd).map(|uffd| machine.uffd.store(uffd.0, Relaxed)),
        };
        match opened {
            Ok(()) => {
                machine.source.store(number, Relaxed);
                return Ok(());
            }
            Err(e) => error = e,
        }
    }
    Err(SetupError::NoSource(error))
}

fn make_store(control: &Control, slots: usize, min_fd: i32) -> Result<&'static Tiers, SetupError> {
    let mut tiers = [TierConfig { kind: TierKind::Ram, max_bytes: 0 }; control::MAX_TIERS];
    let mut n = 0;
    for spec in control.config.tiers.iter().filter(|t| t.kind != tier::NONE) {
        let kind = match (spec.kind, spec.algorithm) {
            (tier::RAM, _) => TierKind::Ram,
            (tier::FILE, _) => TierKind::File,
            (_, tier::ZSTD) => TierKind::Compressed(Algorithm::Zstd(if spec.level == 0 { 3 } else { spec.level })),
            _ => TierKind::Compressed(Algorithm::Lz4),
        };
        tiers[n] = TierConfig { kind, max_bytes: spec.max_bytes };
        n += 1;
    }
    let dir = &control.config.swap_dir;
    let dir = &dir[..dir.iter().position(|b| *b == 0).unwrap_or(dir.len())];
    let config = outswap_store::Config { tiers: &tiers[..n], slots: slots as u32, directory: dir, min_fd: min_fd + 2 };
    Tiers::init(&config).map_err(|_| SetupError::NoMemory)
}

/// Whether the range filter is in force already: asks for something harmless with an argument in the managed range, from
/// outside the gate.
fn range_is_trapped() -> bool {
    // SAFETY: getuid ignores its arguments.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") nr::GETUID => _, in("rdi") ARENA, out("rcx") _, out("r11") _);
    }
    signals::was_trapped()
}

/// The executable mappings of the C library.
fn library_code() -> [(usize, usize); 4] {
    let mut found = [(0, 0); 4];
    let mut n = 0;
    let Ok(fd) = os::open(b"/proc/self/maps\0", os::O_RDONLY | os::O_CLOEXEC, 0) else { return found };
    let mut buf = [0u8; 8192];
    let mut len = 0;
    loop {
        let got = os::read(fd, &mut buf[len..]).unwrap_or(0);
        len += got;
        let mut start = 0;
        while let Some(end) = buf[start..len].iter().position(|b| *b == b'\n') {
            let line = &buf[start..start + end];
            let name = line.rsplit(|b| *b == b'/').next().unwrap_or(line);
            let is_library = [b"libc.so.6".as_slice(), b"libc-2.", b"libpthread.so.0", b"libpthread-2."]
                .iter()
                .any(|n| name.starts_with(n));
            if is_library && line.windows(4).any(|w| w == b"r-xp") && n < found.len() {
                let mut bounds = line.split(|b| *b == b'-' || *b == b' ').map(hex);
                found[n] = (bounds.next().unwrap_or(0), bounds.next().unwrap_or(0));
                n += 1;
            }
            start += end + 1;
        }
        buf.copy_within(start..len, 0);
        len -= start;
        if got == 0 || len == buf.len() {
            break;
        }
    }
    let _ = os::close(fd);
    found
}

fn hex(text: &[u8]) -> usize {
    text.iter().fold(0, |n, c| n << 4 | (*c as char).to_digit(16).unwrap_or(0) as usize)
}
