//! Set-up of a managed process, once, before any of its code runs, or at the first call that needs it.
use crate::bss::{self, Bss};
use crate::code::{self, Code};
use crate::constants;
use crate::contexts::Contexts;
use crate::dispositions::SIGNALS;
use crate::filter::{self, Known};
use crate::heap_calls::{self, HeapCalls};
use crate::layout::*;
use crate::limits::{BATCH_BYTES, BATCHES, CALL_PINS, CODE_RANGES, FDS, MAPPINGS, SLOTS, SOURCE_FDS};
use crate::live::{self, Live};
use crate::machine::{Hooks, LiveMachine, LivePager, advise_frames};
use crate::objects::Objects;
use crate::store::{Asked, AskedTier, InitError, Later, OurStore, ProcessStore};
use crate::{
    arena, charge, clock, deliver, dispatch, exec, full, gate, kept, memory, merging, namespaces, process, reclaim,
    records, rlimits, sharers, signals, stacks, threads, unseen, usermem, wishes,
};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::*};
use outswap_control::{
    self as control, CONTROL_FDS, Control, MAX_LEVELS, MESSAGE_BYTES, Once, Opened, Place, Text, until_nul,
};
use outswap_core::orders::Orders;
use outswap_core::pager::{Config, Pager};
use outswap_core::table::Reserve;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PageNo};
use outswap_core::{orders, protection, readahead, reclaim as reclaim_policy};
use outswap_source::Source;
use outswap_sys::{Errno, nr, os, signal, tables};

static CONTEXTS: Contexts = Contexts::unreserved();
static SETUP_TID: AtomicI32 = AtomicI32::new(0);
/// The inherited descriptor of the configuration; that of the shared part of the control block is the next one.
static CONTROL_FD: AtomicI32 = AtomicI32::new(-1);

/// 0: not looked at; 1: being set up; 2: set up, or nothing to do.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Why a process cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No control block: this process is not to be managed.
    NotAsked,
    /// Address space or memory is missing.
    NoMemory,
    /// This fault source does not work here, or none.
    NoSource(Option<Source>, Errno),
    /// The system refused something else.
    System(&'static str, Errno),
}

impl SetupError {
    /// What is told of it.
    fn put(self, text: &mut Text) {
        match self {
            SetupError::NotAsked => {}
            SetupError::NoMemory => {
                text.put(b"warning: no address space for Outswap");
                text.put(match rlimits::kernel_has() {
                    (true, false) => b" (see ulimit -v)".as_slice(),
                    (false, true) => b" (see ulimit -d)",
                    (true, true) => b" (see ulimit -v and ulimit -d)",
                    (false, false) => b"",
                });
                text.put(b"; a process runs unmanaged");
            }
            SetupError::NoSource(source, error) => {
                match source {
                    Some(source) => {
                        text.put(b"warning: the fault source ");
                        text.put(source.name().as_bytes());
                        text.put(b" does not work (");
                    }
                    None => text.put(b"warning: no fault source works ("),
                }
                match error.name() {
                    Some(name) => text.put(name.as_bytes()),
                    None => {
                        text.put(b"errno ");
                        text.number(error.0);
                    }
                }
                text.put(match error {
                    Errno::EPERM | Errno::EACCES => b": it is forbidden".as_slice(),
                    Errno::ENOSYS => b": the kernel does not have it, or a sandbox forbids it",
                    Errno::EINVAL => b": this kernel lacks a feature that it needs",
                    _ => b"",
                });
                text.put(b") in a process, which runs unmanaged; see outswap doctor");
            }
            SetupError::System(what, _) => text.put(what.as_bytes()),
        }
    }
}

unsafe extern "C" {
    /// The dynamic linker's: where the process's first stack began. The number of arguments stands there, then pointers to them,
    /// a null pointer, pointers to the environment's variables, a null pointer.
    static __libc_stack_end: *const usize;
}

/// The environment as the C library passes it to functions that run at start; null before that.
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());

/// The environment as the kernel passed it. The C library may not have its own yet, and `/proc/self/environ` cannot be read by
/// a process whose program's file it may not read. `None`: the dynamic linker has forgotten, and the C library's comes later.
fn environment() -> Option<*const *const c_char> {
    let given = ENVIRONMENT.load(Acquire);
    if !given.is_null() {
        return Some(given);
    }
    // SAFETY: written by the dynamic linker, before it runs anything else.
    let first = unsafe { __libc_stack_end };
    if first.is_null() {
        return None;
    }
    // SAFETY: the stack is laid out as described, and stays.
    let (count, after) = unsafe { (*first, *first.add(1 + *first)) };
    // SAFETY: as above.
    (after == 0).then(|| unsafe { first.add(count + 2) }.cast())
}

/// Sets the process up at its start, if that was not done. `environment`: as the C library passes it.
pub fn start(environment: *const *const c_char) {
    ENVIRONMENT.store(environment.cast_mut(), Release);
    ensure();
}

/// Sets the process up unless that was done. Returns the runtime if the process is managed.
///
/// Every memory call passes here, on the program's own stack, of which there may be little: none of it is used once the process
/// is set up.
#[inline]
pub fn ensure() -> Option<&'static Live> {
    if let Some(live) = live::try_live() {
        return Some(live);
    }
    set_up_once()
}

#[cold]
#[inline(never)]
fn set_up_once() -> Option<&'static Live> {
    let environment = environment()?;
    if begin_setup() {
        setup_or_tell(environment);
        STATE.store(2, Release);
    }
    live::try_live()
}

/// Whether this caller is to set the process up. Others wait until it is done; a call from inside set-up gets false.
fn begin_setup() -> bool {
    if STATE.load(Acquire) == 2 {
        return false;
    }
    if STATE.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
        SETUP_TID.store(os::gettid(), Release);
        return true;
    }
    while STATE.load(Acquire) == 1 && SETUP_TID.load(Acquire) != os::gettid() {
        os::sched_yield();
    }
    false
}

fn setup_or_tell(environment: *const *const c_char) {
    // SAFETY: an array of strings that ends with a null pointer.
    let variable = |key| unsafe { find_variable(environment, key) };
    let Some(value) = variable(control::ENV.as_bytes()) else { return };
    let Some(control) = open_control(value) else {
        if Place::parse(value).is_some_and(|place| place.is_of_another_version()) {
            say_alone(
                b"outswap: warning: the library is of another version than the outswap run that this process is in: it runs unmanaged\n",
            );
        }
        return;
    };
    rlimits::begin_setup(variable(rlimits::VARIABLE).unwrap_or_default(), min_fd());
    if let Err(error) = setup(control) {
        rlimits::give_up_setup();
        control.count_unmanaged();
        if error != SetupError::NotAsked {
            let mut text = Text { buf: &mut [0; MESSAGE_BYTES], len: 0 };
            error.put(&mut text);
            let Text { buf, len } = text;
            control.post(&buf[..len]);
        }
        if error == SetupError::NotAsked {
            return;
        }
        if control.levels().any(|level| level.config.strict != 0) {
            control.post(b"error: a process that cannot be managed was ended (--strict)");
            os::exit_group(125);
        }
        // What was tried before the start is another program, which may differ: in what addresses it wants, say.
        let is_first = control.used_records().is_empty();
        if is_first && control.config.allow_unmanaged == 0 {
            control.post(b"error: the program cannot be managed, and was ended before it began: --allow-unmanaged runs it without the limit");
            os::exit_group(125);
        }
    }
}

/// Tells something where there is no supervisor to tell it to: at standard error, if that is there, without a signal that it is not.
fn say_alone(line: &[u8]) {
    const STDERR: i32 = 2;
    let raised = |written: &Result<usize, Errno>| match written {
        Err(Errno::EPIPE) => Some(signal::SIGPIPE),
        Err(Errno::EFBIG) => Some(signal::SIGXFSZ),
        _ => None,
    };
    let _ = signal::without_signal(|| os::write(STDERR, line), raised);
}

/// Opens the control block that the control variable names, and those of the runs around it.
fn open_control(value: &[u8]) -> Option<&'static Control> {
    let place = Place::parse(value)?;
    let own = place.open()?;
    CONTROL_FD.store(inherit(&own, place.fd)?, Relaxed);

    // From the outside in: each names the one around it.
    let mut levels = [const { None }; MAX_LEVELS];
    let (mut count, mut complete, mut outer) = (1, true, until_nul(&own.config.outer));
    let mut shared_fds = [-1; MAX_LEVELS];
    shared_fds[0] = CONTROL_FD.load(Relaxed) + 1;
    levels[0] = Some(own);
    while !outer.is_empty() && count < MAX_LEVELS {
        let Some((place, opened)) = Place::parse(outer).and_then(|place| Some((place, place.open()?))) else {
            complete = false;
            break;
        };
        close_both(&opened);
        // Inherited: it is there as long as the program leaves it alone.
        shared_fds[count] = if opened.fds.is_none() { place.fd + 1 } else { -1 };
        outer = until_nul(&opened.config.outer);
        levels[count] = Some(opened);
        count += 1;
    }
    let memory = tables::map(size_of::<[Control; MAX_LEVELS]>()).ok()? as *mut Control;
    let mut control: Option<&'static Control> = None;
    for (i, level) in levels.into_iter().enumerate().rev() {
        let Some(level) = level else { continue };
        // SAFETY: fresh memory for so many, page-aligned, never unmapped.
        control = Some(unsafe {
            memory.add(i).write(Control::new(level.config, level.shared, control));
            (*memory.add(i)).shared_fd.store(shared_fds[i], Relaxed);
            &*memory.add(i)
        });
    }
    if let Some(control) = control {
        namespaces::begin(control);
    }
    if !complete && let Some(control) = control {
        control.post(b"warning: the run around this one cannot be reached: its limit does not count a process");
    }
    control
}

/// Where the numbers of the runtime's descriptors begin.
fn min_fd() -> i32 {
    CONTROL_FD.load(Relaxed) + CONTROL_FDS
}

/// Makes sure that children inherit a control block's descriptors. Returns the first of them.
fn inherit(opened: &Opened, wanted: i32) -> Option<i32> {
    let Some((config, shared)) = opened.fds else { return Some(wanted) };
    // A program in between has closed them, and may have lowered its limit, or use the numbers for something else.
    let limit = process::fd_limit();
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

/// The value of a variable. Of several, the first.
///
/// # Safety
/// An array of pointers to NUL-terminated strings, ended by a null pointer, all of which stays.
unsafe fn find_variable(environment: *const *const c_char, key: &[u8]) -> Option<&'static [u8]> {
    let mut at = environment;
    loop {
        // SAFETY: the array's end was not seen yet.
        let variable = unsafe { *at };
        if variable.is_null() {
            return None;
        }
        // SAFETY: as the caller says.
        let variable = unsafe { CStr::from_ptr(variable) }.to_bytes();
        if let Some(value) = variable.strip_prefix(key).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> SetupError {
    move |e| SetupError::System(what, e)
}

/// Tables of the live runtime, never unmapped.
struct Mapped;
impl Reserve for Mapped {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        tables::map(bytes).map_or(core::ptr::null_mut(), |at| at as *mut u8)
    }
}

/// Looks at the budget as pages come and go.
const HOOKS: Hooks = Hooks {
    progress: || when_set_up(reclaim::tick),
    over_limit: || when_set_up(charge::over),
    over_limit_full: || when_set_up(full::over),
    // What it shares is the others' from then on, who may find that out before this process does.
    discarding: || {
        if let Some(live) = live::try_live().filter(|live| live.may_share()) {
            charge::count_less(live);
        }
    },
    uses_less: || when_set_up(charge::refresh),
    has_left: || when_set_up(reclaim::has_left),
    may_leave: || live::try_live().is_some_and(reclaim::may_leave),
    ahead: || when_set_up(reclaim::wake_to_read),
    stream: || live::try_live().is_some_and(reclaim::wake_for_stream),
    is_alone: threads::is_alone,
    peek: usermem::peek_anywhere,
};

fn when_set_up(f: impl FnOnce(&'static Live)) {
    if let Some(live) = live::try_live() {
        f(live);
    }
}

fn setup(control: &'static Control) -> Result<(), SetupError> {
    if threads::are_there_others() {
        let what = "warning: a library made threads before a process was set up; it runs unmanaged";
        return Err(SetupError::System(what, Errno::EBUSY));
    }
    clock::start();
    place_gate(control.config.gate);
    gate::open().map_err(|error| match error {
        Errno::EEXIST => SetupError::System(
            "warning: something else is at an address that Outswap needs; a process runs unmanaged",
            error,
        ),
        error => SetupError::System("warning: memory cannot be made executable; a process runs unmanaged", error),
    })?;
    if rlimits::are_none() {
        tables::begin();
    }
    // First: where this fails the process has the little address space that there is for itself.
    let arena_bytes = arena::reserve().ok_or(SetupError::NoMemory)?;
    CONTEXTS.begin(stacks::reserve(Contexts::BYTES).map_err(|_| SetupError::NoMemory)?);
    unseen::reserve().map_err(|_| SetupError::NoMemory)?;
    sharers::reserve().map_err(|_| SetupError::NoMemory)?;
    exec::reserve().map_err(|_| SetupError::NoMemory)?;
    let [.., shared_anon, calls, _, _] = control.config.policies;
    let is_wanted = bss::is_wanted(control) && arena_bytes == ARENA_MAX_BYTES;
    let bss = is_wanted.then(bss::find).flatten();
    let stage_bytes = BATCHES.min(arena_bytes / 8 / BATCH_BYTES) * BATCH_BYTES;
    let min_fd = min_fd();
    let machine = make_machine(control, arena_bytes, stage_bytes, min_fd)?;
    let pager = make_pager(control, machine, arena_bytes, stage_bytes, min_fd, bss.map_or(0, |bss| bss.pages()))?;
    gate::build(|pin| pager.pins.owner_word(pin).as_ptr() as usize)
        .map_err(system("warning: the gate cannot be built; a process runs unmanaged"))?;

    let objects = Objects::new(shared_anon != control::source::number("off"));
    let direct = calls != control::source::number("trapped");
    let object = tables::map(core::mem::size_of::<Live>()).map_err(|_| SetupError::NoMemory)? as *mut Live;
    // SAFETY: fresh memory of that size, page-aligned, never unmapped.
    let live: &'static Live = unsafe {
        object.write(Live::new(
            pager,
            control,
            &CONTEXTS,
            stage_bytes,
            (min_fd - CONTROL_FDS, process::lowest_fd(min_fd - CONTROL_FDS)..=min_fd + FDS),
            objects,
            direct,
        ));
        &*object
    };
    live.pager.machine.belongs_to(&live.pager);
    live.register_all().map_err(|e| SetupError::NoSource(Some(live.source()), e))?;
    live.inherit(false);
    let mut handlers = Default::default();
    signals::install(&mut handlers)
        .map_err(system("warning: signal handlers are refused; a process runs unmanaged"))?;
    for (signal, action) in SIGNALS.into_iter().zip(&handlers) {
        live.dispositions.set(signal, action);
    }
    threads::set_up_own_stack(live).map_err(|_| SetupError::NoMemory)?;
    crate::scheduling::note();
    let code = code::find();
    if let Err(e) = install_filters(live, &code) {
        signals::uninstall(&handlers);
        let number = control.number(os::getpid());
        control.fold(live.record(), number, number);
        return Err(SetupError::System("warning: no more seccomp filters are possible; a process runs unmanaged", e));
    }
    let bss_pages = bss.filter(|bss| manage_bss(live, &code, bss)).map_or(0, |bss| bss.pages());
    full::begin(live);
    live::set(live);
    dispatch::begin(code.fixed);
    deliver::adopt(live);
    if usermem::is_refused() {
        // Calls made without a trap read the program's memory with signals open.
        live.direct.store(false, Release);
        kept::want_mem();
    }
    if !kept::open(min_fd) {
        control.post(
            b"error: process_vm_readv is refused, and /proc/self/mem cannot be opened: a process cannot be managed",
        );
        os::exit_group(125);
    }
    // Who hands memory over to a userfaultfd of the program's own has to tell zero pages apart.
    let looks = |fd| os::part(fd, ARENA, PAGE_BYTES, os::Mapped::ZeroOrNothing).is_ok();
    let zeros = &live.pager.machine.zeros;
    zeros.store(zeros.load(Relaxed) && kept::PAGEMAP.fd().is_some_and(looks), Relaxed);
    let [managed, counted] = [live.pager.writable_pages(), live.counted_pages()];
    rlimits::end_setup(bss_pages as u64, managed - counted.min(managed));
    constants::put_into_file(control);
    charge::measure(live);
    charge::refresh(live);
    Ok(())
}

/// Opens the fault source, reserves the batches, and takes a record of the control block.
fn make_machine(
    control: &'static Control,
    arena_bytes: usize,
    stage_bytes: usize,
    min_fd: i32,
) -> Result<LiveMachine, SetupError> {
    let machine = LiveMachine::new(control, HOOKS);
    machine.arena_bytes.store(arena_bytes, Relaxed);
    open_source(control, &machine, min_fd)?;
    let stage = os::mmap_anonymous(stage_bytes).map_err(|_| SetupError::NoMemory)?;
    advise_frames(stage, stage_bytes);
    machine.stage.store(stage, Relaxed);
    let record = records::take_record(control, os::getpid());
    wishes::disown(control, control.number(os::getpid()));
    record.fault_source.store(machine.source.load(Relaxed), Relaxed);
    machine.record.store(record as *const _ as *mut _, Release);
    machine.record_begin(os::getpid(), 0);
    let [.., asked] = control.config.policies;
    let [mapped, put] = ["mapped", "put"].map(control::source::number);
    // A record would lack what is touched without a fault.
    let (is_free, source) = (control.config.record == 0, machine.source());
    machine.zeros.store(is_free && asked == mapped && source.maps_zero(), Relaxed);
    machine.untraps.store(is_free && ![mapped, put].contains(&asked) && source.untraps(), Relaxed);
    Ok(machine)
}

/// The policy that has a number by its name.
fn named<T: Copy>(all: &[(&str, T)], number: u32) -> Option<T> {
    all.iter().find(|(name, _)| control::source::number(name) == number).map(|&(_, policy)| policy)
}

/// Opens the store, and reserves the tables over both.
fn make_pager(
    control: &'static Control,
    machine: LiveMachine,
    arena_bytes: usize,
    stage_bytes: usize,
    min_fd: i32,
    bss_pages: u32,
) -> Result<LivePager, SetupError> {
    let (mut seed, mut place) = ([0u8; 8], [0u8; 8]);
    os::getrandom(&mut seed)
        .and_then(|_| os::getrandom(&mut place))
        .map_err(system("warning: no random numbers; a process runs unmanaged"))?;
    let slots = SLOTS.min(arena_bytes / PAGE_BYTES * 4);
    let [asked_readahead, asked_reclaim, asked_orders, asked_reuse, ..] = control.config.policies;
    let arena_pages = (arena_bytes / PAGE_BYTES) as u32;
    let config = Config {
        pages: if bss_pages > 0 {
            BSS_PAGE as u32 + bss_pages.next_multiple_of(BLOCK_PAGES as u32)
        } else {
            arena_pages
        },
        slots,
        batches: stage_bytes / BATCH_BYTES,
        pins: CALL_PINS,
        mappings: MAPPINGS,
        seed: u64::from_le_bytes(seed),
        readahead: named(readahead::Kind::ALL, asked_readahead).unwrap_or(readahead::Kind::DEFAULT),
        page_cluster: control.config.page_cluster.min(readahead::PAGE_CLUSTER_MAX as u64) as u32,
        reclaim: named(reclaim_policy::Kind::ALL, asked_reclaim).unwrap_or(reclaim_policy::Kind::DEFAULT),
        orders: match orders::Listed::new(control.config.folio_orders) {
            Some(listed) if control.config.folio_orders != 0 => orders::Any::Listed(listed),
            _ => named(orders::Any::ALL, asked_orders).unwrap_or(orders::Any::DEFAULT),
        },
        reuse: merging::end(named(protection::Kind::ALL, asked_reuse).unwrap_or(protection::Kind::DEFAULT)),
    };
    if config.orders.huge() {
        machine.huge.reserve();
    }
    let store = make_store(control, slots, min_fd)?;
    if store.file_error().is_some() {
        control.post_once(Once::NoFile);
    }
    let pager = Pager::new(machine, store, &Mapped, config).ok_or(SetupError::NoMemory)?;
    if is_anywhere() {
        pager.set_bottom(bottom(u64::from_le_bytes(place), arena_pages));
    }
    pager.set_top(PageNo(arena_pages));
    Ok(pager)
}

/// Whether this process, as far as it is told, has random addresses.
fn is_anywhere() -> bool {
    !os::personality(None).is_ok_and(|domain| domain & os::ADDR_NO_RANDOMIZE != 0)
}

/// Installs both filters. Without both nothing may be managed: a fork that nobody notices would give the child wrong data. A
/// chain of a few hundred execs ends here, because filters add up.
fn install_filters(live: &Live, code: &Code) -> outswap_sys::Result<()> {
    memory::know_code(code);
    if !range_is_trapped() {
        filter::install_range(gate(), GATE_CODE_BYTES, dispatch::is_possible())?;
    }
    // Where the C library is another than expected, all of it counts.
    let heap_calls = HeapCalls::find(code.libc_file);
    let heap = heap_calls.as_ref().map_or(code.libc.get(), HeapCalls::get);
    let heap = if live.control.config.keep_malloc != 0 { heap } else { &[] };
    // A linker that lies where all others do would have theirs trapped, before they can answer.
    let may_trap = is_anywhere() && bss::is_random();
    let linker = heap_calls::of_linker(if may_trap { code.linker } else { (0, 0) });
    memory::know_linker(&linker);
    filter::install_process(&Known {
        libc: code.libc.get(),
        all: code.all.get(),
        fds: live.fds.clone(),
        heap: &heap_calls::with_linkers(heap, &linker),
    })
}

/// Has the program's `.bss` managed, as far as the kernel has room for another filter.
fn manage_bss(live: &Live, code: &Code, bss: &Bss) -> bool {
    let mut all = [code.vdso; CODE_RANGES + 1];
    let known = code.all.get();
    let at = known.partition_point(|range| range.0 < code.vdso.0);
    all[..at].copy_from_slice(&known[..at]);
    all[at + 1..=known.len()].copy_from_slice(&known[at..]);
    if filter::install_bss((bss.data, bss.end), &all[..=known.len()]).is_err() {
        return false;
    }
    set_bss((bss.start, bss.end));
    let adopted = bss::adopt(live, bss);
    if adopted {
        bss::publish(live.record())
    } else {
        set_bss((0, 0))
    }
    adopted
}

/// Where the first mappings lie: somewhere in the first eighth of a managed range of so many pages, so that their addresses
/// are not known before. A small range is left whole.
fn bottom(random: u64, pages: u32) -> PageNo {
    const SMALL_PAGES: u32 = 1 << 24;
    /// The runtime's tables, and the kernel's, are touched in pieces for so many.
    const STEP_PAGES: u32 = 512;
    if pages < SMALL_PAGES {
        return PageNo(0);
    }
    PageNo((random % (pages / 8 / STEP_PAGES) as u64) as u32 * STEP_PAGES)
}

/// Chooses and opens the fault source: the one asked for, or the best that works.
fn open_source(control: &Control, machine: &LiveMachine, min_fd: i32) -> Result<(), SetupError> {
    let asked = control.config.fault_source;
    let mut error = Errno::ENOSYS;
    for &source in Source::ALL {
        if asked != control::source::AUTO && asked != source.number() {
            continue;
        }
        source.learn();
        match source.open() {
            Ok(fd) => {
                machine.source_fd.store(process::raise(fd, min_fd), Relaxed);
                machine.source.store(source.number(), Relaxed);
                return Ok(());
            }
            Err(e) => error = e,
        }
    }
    Err(SetupError::NoSource(Source::of(asked), error))
}

fn make_store(control: &Control, slots: usize, min_fd: i32) -> Result<&'static OurStore, SetupError> {
    let tiers = control.config.tiers.each_ref().map(|tier| AskedTier {
        kind: until_nul(&tier.kind),
        parameters: tier.parameters,
        max_bytes: tier.max_bytes,
        device: tier.device,
    });
    let count = tiers.iter().take_while(|tier| !tier.kind.is_empty()).count();
    let asked = Asked {
        tiers: &tiers[..count],
        slots: slots as u32,
        directory: until_nul(&control.config.swap_dir),
        requests_fd: control.requests_fd(),
        min_fd: min_fd + SOURCE_FDS,
        // The first of a run says at once where none can be made.
        later: if control.live_processes() > 1 { Later::All } else { Later::Children },
        devices: Some(&control.shared().devices),
    };
    let store = OurStore::open(&asked).map_err(|error| match error {
        InitError::Config => SetupError::System(
            "warning: the tiers are not known to Outswap's library; a process runs unmanaged",
            Errno::EINVAL,
        ),
        InitError::System(_) => SetupError::NoMemory,
    })?;
    if control.config.file_in_memory != 0 {
        store.count_file_as_memory();
    }
    Ok(store)
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

    fn find(variables: &[&CStr]) -> Option<&'static [u8]> {
        let variables: Vec<_> = variables.iter().map(|v| v.as_ptr()).chain([core::ptr::null()]).collect();
        // SAFETY: literals, and an array that lives through the call.
        unsafe { find_variable(variables.as_ptr(), control::ENV.as_bytes()) }
    }

    #[test]
    fn the_variable_is_found_wherever_it_stands() {
        let want = Some(b"7:/proc/1/fd/7".as_slice());
        for variables in [
            &[c"OUTSWAP_CONTROL=7:/proc/1/fd/7"][..],
            &[c"A=1", c"OUTSWAP_CONTROL=7:/proc/1/fd/7", c"B=2"],
            &[c"OUTSWAP_CONTROLS=no", c"XOUTSWAP_CONTROL=no", c"OUTSWAP_CONTROL=7:/proc/1/fd/7"],
            &[c"A=OUTSWAP_CONTROL=no", c"", c"OUTSWAP_CONTROL=7:/proc/1/fd/7", c"OUTSWAP_CONTROL=second"],
        ] {
            assert_eq!(find(variables), want, "{variables:?}");
        }
        assert_eq!(find(&[c"OUTSWAP_CONTROL="]), Some(b"".as_slice()));
        assert_eq!(find(&[c"A=1", c"OUTSWAP=2", c"OUTSWAP_CONTROL"]), None);
        assert_eq!(find(&[]), None);
    }

    #[test]
    fn first_mappings_lie_anywhere_in_the_first_eighth() {
        for pages in [1 << 24, 1 << 30, 3 << 30] {
            assert_eq!(bottom(0, pages), PageNo(0));
            let highest = (0..).map(|n| bottom(n, pages).0).take(1 << 20).max();
            assert_eq!(highest, Some(pages / 8 - 512));
        }
        assert_eq!(bottom(u64::MAX, (1 << 24) - 512), PageNo(0));
    }

    #[test]
    fn the_first_stack_has_the_environment() {
        let mut at = environment().expect("the dynamic linker knows");
        let mut found = Vec::new();
        // SAFETY: an array of strings that ends with a null pointer.
        unsafe {
            while !(*at).is_null() {
                found.push(CStr::from_ptr(*at).to_bytes().to_vec());
                at = at.add(1);
            }
        }
        let file = std::fs::read("/proc/self/environ").expect("our own");
        let want: Vec<_> = file.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
        assert_eq!(found, want[..want.len() - 1]);
        assert!(!found.is_empty());
    }
}
