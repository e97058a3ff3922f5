//! Set-up of a managed process, once, before any of its code runs, or at the first call that needs it.
use crate::contexts::Contexts;
use crate::control::{self, Control, MAX_LEVELS, Opened, PLACE_BYTES, Place, tier, until_nul};
use crate::filter::{self, Known};
use crate::layout::*;
use crate::live::{self, Live, Mapped};
use crate::machine::LiveMachine;
use crate::source::{Source, mprotect};
use crate::{budget, code, deliver, exec, foreign, fork, gate, rlimits, signals, threads};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};
use outswap_core::engine::{Config, Engine};
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES};
use outswap_store::{Algorithm, TierConfig, TierKind, Tiers};
use outswap_sys::{Errno, nr, os};

static CONTEXTS: Contexts = Contexts::unreserved();
static SETUP_TID: AtomicI32 = AtomicI32::new(0);
/// The inherited descriptor of the configuration; that of the shared part of the control block is the next one.
static CONTROL_FD: AtomicI32 = AtomicI32::new(-1);
/// Where the engine's object is.
static OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Slots: 256 GiB of swap space.
const SLOTS: usize = 1 << 26;
/// Staging windows of a large managed range: 4 GiB of frames.
const WINDOWS: usize = 1 << 14;
const MAPPINGS: usize = 1 << 18;
/// Descriptors that the engine keeps: the control block's two are inherited, the others follow them.
const FDS: i32 = 64;
/// What the store's numbers come after: the fault source's two.
const SOURCE_FDS: i32 = 2;
const _: () = assert!(SOURCE_FDS + outswap_store::DESCRIPTORS <= FDS);

/// Why a process cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No control block: this process is not to be managed.
    NotAsked,
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
    rlimits::begin_setup();
    if let Err(error) = setup(control) {
        rlimits::give_up_setup();
        control.processes_unmanaged.fetch_add(1, Relaxed);
        if error != SetupError::NotAsked {
            control.post(error.text());
        }
    }
}

/// Where this process has the control block of `control`'s run: what children find in their environment.
pub fn place(control: &Control) -> Place {
    Place {
        fd: CONTROL_FD.load(Relaxed),
        supervisor_pid: control.config.supervisor_pid,
        supervisor_fd: control.config.supervisor_fd,
    }
}

/// Finds the control block through the environment as the kernel keeps it (the C library may not have its own yet), and those
/// of the runs around it.
fn open_control() -> Option<&'static Control> {
    let fd = os::open(b"/proc/self/environ\0", os::O_RDONLY | os::O_CLOEXEC, 0).ok()?;
    let mut value = [0u8; PLACE_BYTES];
    let len = find_variable(|buf| os::read(fd, buf).unwrap_or(0), &mut value);
    let _ = os::close(fd);
    let place = Place::parse(&value[..len?])?;
    let own = place.open()?;
    CONTROL_FD.store(inherit(&own, place.fd)?, Relaxed);

    // From the outside in: each names the one around it.
    let mut levels = [const { None }; MAX_LEVELS];
    let (mut count, mut complete, mut outer) = (1, true, until_nul(&own.config.outer));
    levels[0] = Some(own);
    while !outer.is_empty() && count < MAX_LEVELS {
        let Some(opened) = Place::parse(outer).and_then(|place| place.open()) else {
            complete = false;
            break;
        };
        close_both(&opened);
        outer = until_nul(&opened.config.outer);
        levels[count] = Some(opened);
        count += 1;
    }
    let memory = os::mmap_anonymous(size_of::<[Control; MAX_LEVELS]>()).ok()? as *mut Control;
    let mut control: Option<&'static Control> = None;
    for (i, level) in levels.into_iter().enumerate().rev() {
        let Some(level) = level else { continue };
        // SAFETY: fresh memory for so many, page-aligned, never unmapped.
        control = Some(unsafe {
            memory.add(i).write(Control::new(level.config, level.shared, control));
            &*memory.add(i)
        });
    }
    if !complete && let Some(control) = control {
        control.post(b"warning: the run around this one cannot be reached: its limit does not count a process");
    }
    control
}

/// Makes sure that children inherit a control block's descriptors. Returns the first of them.
fn inherit(opened: &Opened, wanted: i32) -> Option<i32> {
    let Some((config, shared)) = opened.fds else { return Some(wanted) };
    // A program in between has closed them, and may have lowered its limit, or use the numbers for something else.
    let limit = live::fd_limit();
    let from = [wanted as usize, limit.saturating_sub(FDS as usize * 2), limit / 2];
    let placed = from.into_iter().find_map(|from| control::place_pair(config, shared, from).ok());
    close_both(opened);
    placed
}

fn close_both(opened: &Opened) {
    if let Some((config, shared)) = opened.fds {
        let _ = os::close(config);
        let _ = os::close(shared);
    }
}

/// Looks for the control variable in a block of `NAME=VALUE\0`, of which `read` gives one piece after another, and none at the
/// end. Returns the length of the value.
fn find_variable(mut read: impl FnMut(&mut [u8]) -> usize, value: &mut [u8; PLACE_BYTES]) -> Option<usize> {
    let key = control::ENV.as_bytes();
    let mut buf = [0u8; 4096];
    // How much of `NAME=` has matched; `None` after a mismatch, until the next variable.
    let mut matched = Some(0);
    let mut len = 0;
    loop {
        let n = read(&mut buf);
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
    signals::start_clock();
    place_gate(control.config.gate);
    gate::open().map_err(system("warning: the gate's address is taken; a process runs unmanaged"))?;
    CONTEXTS.reserve().map_err(|_| SetupError::NoMemory)?;
    threads::reserve().map_err(|_| SetupError::NoMemory)?;
    foreign::reserve().map_err(|_| SetupError::NoMemory)?;
    exec::reserve().map_err(|_| SetupError::NoMemory)?;
    let arena_bytes = reserve_arena().ok_or(SetupError::NoMemory)?;
    let stage_bytes = WINDOWS.min(arena_bytes / 8 / (BLOCK_PAGES * PAGE_BYTES)) * BLOCK_PAGES * PAGE_BYTES;

    let machine = LiveMachine::unset();
    let min_fd = CONTROL_FD.load(Relaxed) + 2;
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
        object.write(Live::new(engine, control, &CONTEXTS, stage_bytes, (min_fd - 2, min_fd + FDS)));
        &*object
    };
    live.register_all().map_err(SetupError::NoSource)?;
    let mut handlers = Default::default();
    signals::install(&mut handlers)
        .map_err(system("warning: signal handlers are refused; a process runs unmanaged"))?;
    for (signal, action) in signals::SIGNALS.into_iter().zip(&handlers) {
        live.actions.set(signal, action);
    }
    threads::take_own(live).map_err(|_| SetupError::NoMemory)?;
    let code = code::find();
    let known = Known {
        library: code.library.get(),
        all: code.all.get(),
        fds: live.fds.0..=live.fds.1,
        keep_malloc: control.config.keep_malloc != 0,
    };
    // Without both filters nothing may be managed: a fork that nobody notices would give the child wrong data. A chain of a
    // few hundred execs ends here, because filters add up.
    let filtered = if range_is_trapped() { Ok(()) } else { filter::install_range(gate(), GATE_CODE_BYTES) };
    if let Err(e) = filtered.and_then(|()| filter::install_process(&known)) {
        signals::uninstall(&handlers);
        control.fold(live.record(), os::getpid());
        return Err(SetupError::System("warning: no more seccomp filters are possible; a process runs unmanaged", e));
    }
    live::set(live);
    deliver::adopt(live);
    rlimits::end_setup();
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
    let config =
        outswap_store::Config { tiers: &tiers[..n], slots: slots as u32, directory: dir, min_fd: min_fd + SOURCE_FDS };
    Tiers::init(&config).map_err(|_| SetupError::NoMemory)
}

/// Whether the range filter is in force already: asks for something harmless with a pointer into the managed range, from
/// outside the gate.
fn range_is_trapped() -> bool {
    // SAFETY: advice of no kind for no memory.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") nr::MADVISE => _, in("rdi") ARENA, in("rsi") 0, in("rdx") 0,
                         in("r10") 0, in("r8") 0, in("r9") 0, out("rcx") _, out("r11") _);
    }
    signals::was_trapped()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(environ: &[u8], piece: usize) -> Option<Vec<u8>> {
        let mut rest = environ;
        let read = |buf: &mut [u8]| {
            let n = rest.len().min(piece).min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            n
        };
        let mut value = [0; PLACE_BYTES];
        find_variable(read, &mut value).map(|len| value[..len].to_vec())
    }

    #[test]
    fn the_variable_is_found_wherever_it_stands() {
        let want = Some(b"7:/proc/1/fd/7".to_vec());
        for piece in [1, 3, 16, 4096] {
            for environ in [
                b"OUTSWAP_CONTROL=7:/proc/1/fd/7\0".as_slice(),
                b"A=1\0OUTSWAP_CONTROL=7:/proc/1/fd/7\0B=2\0",
                b"OUTSWAP_CONTROLS=no\0XOUTSWAP_CONTROL=no\0OUTSWAP_CONTROL=7:/proc/1/fd/7\0",
                b"A=OUTSWAP_CONTROL=no\0\0OUTSWAP_CONTROL=7:/proc/1/fd/7\0OUTSWAP_CONTROL=second\0",
            ] {
                assert_eq!(find(environ, piece), want, "{}", String::from_utf8_lossy(environ));
            }
            assert_eq!(find(b"OUTSWAP_CONTROL=\0", piece), Some(Vec::new()));
            assert_eq!(find(b"A=1\0OUTSWAP=2\0OUTSWAP_CONTROL\0", piece), None);
            assert_eq!(find(b"OUTSWAP_CONTROL=cut", piece), None);
            assert_eq!(find(b"", piece), None);
            let long = [b"OUTSWAP_CONTROL=".as_slice(), &[b'1'; 100], b"\0"].concat();
            assert_eq!(find(&long, piece), None, "longer than any value");
        }
    }
}
