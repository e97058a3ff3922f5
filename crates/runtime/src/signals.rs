//! The runtime's signals: SIGBUS and SIGSEGV for faults, SIGSYS for trapped calls.
//!
//! The runtime's handlers stay in place whatever the program does; everything that is not ours is the program's
//! ([`crate::deliver`]). The three signals are never blocked in the program, because a fault at a blocked signal is death.
use crate::arena::page_of;
use crate::dispositions::{OURS, SIGNALS, set_default};
use crate::filter::OUR_TRAP;
use crate::layout::in_managed;
use crate::live::{Live, try_live};
use crate::stacks::{self, Kept};
use crate::{clock, deliver, dispatch, full, gate, memory, reclaim, threads, trap, unseen};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use outswap_control::Stat;
use outswap_core::fault::Fault;
use outswap_core::page::State;
use outswap_core::protection::Access;
use outswap_source::allows;
use outswap_sys::signal::*;
use outswap_sys::{Result, os};

const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
/// Of a page fault's error code: the access was a write.
const ERR_WRITE: u64 = 2;
const SYS_SECCOMP: i32 = 1;

/// Installs the handlers; the dispositions that were there become the program's. `old` gets those, to be put back by
/// [`uninstall`].
pub fn install(old: &mut [KernelSigaction; 3]) -> Result<()> {
    for (signal, old) in SIGNALS.into_iter().zip(old) {
        // One that is sent and ignored must not interrupt a call.
        let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_RESTART;
        let (handler, restorer) = match signal {
            SIGSYS => (on_sigsys as *const () as usize, deliver::plain_restorer()),
            _ => (on_fault as *const () as usize, deliver::fault_restorer()),
        };
        // Of faults, until there are many threads ([`crate::dispositions::open`]).
        let action = KernelSigaction { handler, flags, restorer, mask: u64::MAX };
        // SAFETY: the handlers keep the contract of the fault path.
        unsafe { sigaction(signal, Some(&action), Some(old))? };
    }
    let mask = set_mask(u64::MAX);
    set_mask(mask & !OURS);
    Ok(())
}

/// Gives the program its dispositions back: this process will not be managed after all.
pub fn uninstall(old: &[KernelSigaction; 3]) {
    for (signal, old) in SIGNALS.into_iter().zip(old) {
        // SAFETY: these were the dispositions before.
        let _ = unsafe { sigaction(signal, Some(old), None) };
    }
}

/// Where the thread that was interrupted has no place for a signal that comes meanwhile.
static NOWHERE: Kept = Kept::none();

/// Returns where a signal is that came meanwhile.
unsafe extern "C" fn on_fault(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) -> *const Kept {
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    let (siginfo, ucontext) = unsafe { (&mut *info, &mut *uc) };
    let Some(live) = try_live() else {
        set_default(signal);
        return &NOWHERE;
    };
    let rsp = ucontext.gregs.rsp as usize;
    if live.contexts.holds(rsp) {
        // Nothing that can be missing is touched there.
        // SAFETY: as above.
        unsafe { deliver::deliver(live, signal, info, uc) };
        return &NOWHERE;
    }
    // A frame on its way to the program, or back, may meet what is missing. All that is not ours is blocked then.
    let is_nested = stacks::holds(rsp);
    let has_stack = stacks::holds(&raw const signal as usize);
    if !has_stack {
        // On a stack of the program's, a signal would be handled in the midst of this.
        set_mask(u64::MAX);
    }
    if !is_nested {
        threads::adopt(live, ucontext);
    }
    let kept = match stacks::by_kernel_stack(&ucontext.stack) {
        Some(thread) if has_stack && !is_nested => &thread.kept,
        _ => &NOWHERE,
    };
    if answer(live, signal, siginfo, ucontext) {
        return kept;
    }
    if !is_nested {
        set_mask(u64::MAX);
    }
    if kept.is_some() {
        // That one first: what was a fault of the program's happens again, and what was sent, or told of by the kernel, comes again.
        const BUS_MCEERR_AO: i32 = 5;
        if siginfo.code <= 0 || siginfo.signo == SIGBUS && siginfo.code == BUS_MCEERR_AO {
            deliver::send_again(siginfo.signo, siginfo);
        }
        return kept;
    }
    // SAFETY: as above.
    unsafe { deliver::deliver(live, siginfo.signo, info, uc) };
    kept
}

/// Answers a fault: whether that is all, so that the program goes on. What is not ours becomes what the program is to be told.
fn answer(live: &'static Live, signal: i32, siginfo: &mut Siginfo, ucontext: &mut Ucontext) -> bool {
    let (addr, code, err) = (siginfo.addr, siginfo.code, ucontext.gregs.err);
    if code > 0 && in_managed(addr) && unseen::is_here() {
        live.control.post(b"error: a process forked by an instruction of its own, which Outswap could not see: its child was ended when it used memory that it does not have");
        os::exit_group(125);
    }
    let is_denied = signal == SIGSEGV && code == SEGV_ACCERR && in_managed(addr);
    let source = live.source();
    let may_be_ours = source.may_be_missing(signal, code) && live.is_managed(addr, 1);
    let ours = if may_be_ours && source.asks_map() {
        // Looking at the map takes its lock, which a fork in another thread must not copy held: that is done inside the runtime.
        live.with(move |_| source.is_missing(&live.pager.machine, page_of(addr), err))
    } else {
        may_be_ours
    };
    let mut is_unclear = may_be_ours || is_denied;
    if ours {
        is_unclear = false;
        let start = clock::ticks();
        let page = page_of(addr);
        let state = live.pager.state(page);
        let access = if err & ERR_WRITE != 0 { Access::Write } else { Access::Read };
        let outcome = live.with(move |cx| {
            let outcome = live.pager.fault(page, access, cx);
            reclaim::take_if_wanted(live, cx);
            outcome
        });
        if (state != State::Resident || access == Access::Write) && outcome == Fault::Done {
            live.pager.machine.record_touch(page, access == Access::Write, state == State::Untouched);
        }
        let took_ns = clock::ticks_to_ns(clock::ticks().saturating_sub(start));
        let bucket = took_ns.max(1).ilog2() as usize;
        let buckets = &live.record().counters.latency_ns;
        buckets[bucket.min(buckets.len() - 1)].fetch_add(1, Relaxed);
        live.stat(Stat::FaultNs, took_ns);
        match outcome {
            Fault::Done => return true,
            // The instruction runs again, after signals that came meanwhile.
            Fault::Full => {
                full::held_back(live);
                return true;
            }
            Fault::NotMapped => is_unclear = true,
            Fault::Corrupt => tell(live, outcome, b"error: what the store gave back is not what was stored: the program gets SIGBUS instead of wrong data"),
            Fault::Unreadable => tell(live, outcome, b"error: the swap file cannot be read: the program gets SIGBUS"),
            Fault::NoMemory if source.asks_map() => {
                tell(live, outcome, b"error: the machine has no memory for a page, or the process has used up its mappings (vm.max_map_count): the program gets SIGBUS");
            }
            Fault::NoMemory => tell(live, outcome, b"error: the machine has no memory for a page: the program gets SIGBUS"),
        }
        siginfo.signo = SIGBUS;
    }
    if is_unclear {
        match judge(live, addr, ucontext) {
            Verdict::Again => return true,
            Verdict::Denied(code) => (siginfo.signo, siginfo.code) = (SIGSEGV, code),
            Verdict::Kernels => (siginfo.signo, siginfo.code) = (signal, code),
        }
    }
    code > 0 && deliver::copy_failed(ucontext)
}

/// What a fault in managed memory means that is not ours to answer.
enum Verdict {
    /// The instruction is to run again: what is mapped there has changed since, or been given to the kernel ([`crate::whole`]).
    Again,
    /// The program has no memory there, or not the access, as the code of its SIGSEGV says.
    Denied(i32),
    /// It is the kernel's memory, and what the kernel said holds.
    Kernels,
}

/// Attempts in a row at memory of the kernel's, as long as mappings change meanwhile.
const FOREIGN_TRIES: u32 = 100;

/// Judges a fault by what is mapped there now, after the memory call of another thread that is under way, if any: each is one step for the
/// program. Nobody faults here while it is in one itself.
fn judge(live: &'static Live, addr: usize, uc: &mut Ucontext) -> Verdict {
    let page = page_of(addr);
    let (vma, changes) = live.with(move |_| {
        let _call = live.pager.begin_call();
        live.pager.find_and_changes(page)
    });
    let (err, ip) = (uc.gregs.err, uc.gregs.rip as usize);
    let mut again =
        |at_most| threads::current_or_new(live, uc).is_some_and(|t| t.tries_again([addr, ip], changes, at_most));
    match vma {
        // The reserved range is mapped without access where the program has nothing mapped.
        None if live.with(move |cx| live.is_managed(addr, 1) && memory::grow(live, cx, page)) => Verdict::Again,
        None => Verdict::Denied(SEGV_MAPERR),
        Some(vma) if !allows(&vma, err) => Verdict::Denied(SEGV_ACCERR),
        // What the kernel says of its own memory may be right, with others that change mappings all the time.
        Some(vma) if again(if vma.foreign { FOREIGN_TRIES } else { u32::MAX }) => Verdict::Again,
        Some(vma) if vma.foreign => Verdict::Kernels,
        // The kernel keeps to what it says though the map allows it, and nothing has changed since.
        Some(_) => Verdict::Denied(SEGV_ACCERR),
    }
}

/// Says why the program gets SIGBUS: once in each process, as one that handles the signal may meet it at every page.
fn tell(live: &Live, cause: Fault, text: &[u8]) {
    /// The process that has told of each.
    static TOLD: [AtomicI32; Fault::Full as usize] = [const { AtomicI32::new(0) }; Fault::Full as usize];
    let pid = live.pid.load(Relaxed);
    if TOLD[cause as usize].swap(pid, Relaxed) != pid {
        live.warn(text);
    }
}

unsafe extern "C" fn on_sigsys(signal: i32, info: *mut Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid structures to a handler with SA_SIGINFO.
    let siginfo = unsafe { &*info };
    match try_live() {
        // What traps in the gate is trapped by a filter of the program's own.
        Some(live) if siginfo.code == SYS_SECCOMP && siginfo.errno == OUR_TRAP && !gate::holds(siginfo.addr) => {
            // SAFETY: as above; nobody else has the context of the interrupted code.
            unsafe { trap::on_trap(live, siginfo, &mut *uc) }
        }
        // SAFETY: as above.
        Some(live) if dispatch::tells(siginfo) => unsafe { trap::on_dispatch(live, siginfo, &mut *uc) },
        // SAFETY: as above.
        Some(live) => unsafe { deliver::deliver(live, signal, info, uc) },
        // During set-up: the probe for an inherited filter.
        None if siginfo.code == SYS_SECCOMP => {
            TRAPPED.store(true, Release);
            // SAFETY: as above.
            unsafe { (*uc).gregs.rax = 0 };
        }
        None => set_default(signal),
    }
}

/// Set by a trap before the runtime is in place.
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// Whether a trap came before the runtime was in place.
pub fn was_trapped() -> bool {
    TRAPPED.load(Acquire)
}
