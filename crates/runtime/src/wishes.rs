//! `process_vm_readv` and `process_vm_writev` on another managed process of the run, by which libraries of MPI pass messages on.
//!
//! The kernel finds nothing where a page of that process is out, and only that process can bring it in. So it is asked to, in its record
//! ([`outswap_control::Wish`]): its background thread brings in what is wished, and keeps it in memory until the wish is another, or
//! none. To be read, pages are wished for where the kernel did not find them. To be written to, always: a page that the kernel has
//! looked up before it is taken, and writes to afterwards, would leave without what was written. So they are to be read from a process
//! that takes and fills pages where they are, as long as no other thread of its own can look: what the kernel finds there meanwhile are
//! zeros ([`Source::shows_zeros`]).
use crate::errno::{EFAULT, ENOMEM};
use crate::gate;
use crate::layout::in_arena;
use crate::limits::{IOV_MAX, WISH_BYTES};
use crate::live::Live;
use crate::pins::{self, CallPins};
use crate::procfs;
use crate::usermem::{Iovec, MAX_RW_COUNT, word};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use outswap_control::{Control, Process, Wish};
use outswap_core::fault::Fault;
use outswap_core::protection::Access;
use outswap_source::Source;
use outswap_sys::{nr, os};

/// How long a process is waited for in all that is to fulfil a wish. One without a background thread never does.
const PATIENCE_NS: u64 = 3_000_000_000;
/// After so long it is looked whether it is still there.
const LOOK_NS: u64 = 20_000_000;
/// As many waiters as there are.
const ALL: usize = i32::MAX as usize;

/// The pin that keeps what was wished of this process, and 1; 0: nothing is kept.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// A thread of this process has a wish.
static WISHING: AtomicBool = AtomicBool::new(false);

/// Whether there is something to do for [`serve`].
pub fn is_asked(live: &Live) -> bool {
    match Wish::kind(live.record().wish.state.load(SeqCst)) {
        Wish::READ | Wish::WRITE => true,
        Wish::HELD | Wish::VISIT => false,
        _ => HELD.load(Relaxed) != 0,
    }
}

/// There is a background thread from now on, or is not after all. That it runs may take a while on a busy machine, in which pages leave.
pub fn begin_service(live: &Live, begins: bool) {
    live.record().wish.served.store(u32::from(begins), Relaxed);
}

/// Fulfils what others wish of this process, and ends what they wish no longer. Called by the background thread.
pub fn serve(live: &'static Live) {
    let wish = &live.record().wish;
    wish.served.store(1, Relaxed);
    let state = wish.state.load(SeqCst);
    let kind = Wish::kind(state);
    let asked = matches!(kind, Wish::READ | Wish::WRITE);
    if !asked && kind != Wish::NONE {
        let owner = wish.owner.load(Acquire);
        if !procfs::is_gone_from(live.control, owner as i32) {
            return;
        }
        // Whoever wished it is gone.
        let _ = wish.state.compare_exchange(state, Wish::with_kind(state, Wish::NONE), SeqCst, Relaxed);
        let _ = wish.owner.compare_exchange(owner, 0, AcqRel, Relaxed);
    }
    let_go(live);
    if !asked {
        return;
    }
    let (addr, bytes) = (wish.addr.load(Relaxed) as usize, (wish.bytes.load(Relaxed) as usize).min(WISH_BYTES));
    let access = if kind == Wish::WRITE { Access::Write } else { Access::Read };
    let pin = live.contexts.with(|cx| {
        let mut pins = CallPins::new(live);
        pins.set_access(access);
        if pins.pin(cx, addr, bytes).is_ok() {
            return Some(pins.number());
        }
        pins.release();
        None
    });
    HELD.store(pin.map_or(0, |pin| pin + 1), Relaxed);
    let answer = if pin.is_some() { Wish::HELD } else { Wish::REFUSED };
    // Unless it is not wished any more.
    let _ = wish.state.compare_exchange(state, Wish::with_kind(state, answer), SeqCst, Relaxed);
    os::futex_wake(&wish.state, ALL, true);
}

/// What is kept goes as other pages do.
fn let_go(live: &Live) {
    match HELD.swap(0, Relaxed) {
        0 => {}
        held => live.pager.pins.release(held - 1),
    }
}

/// The background thread ends: whoever has what is kept is waited for, for a while.
pub fn end_service(live: &Live) {
    let wish = &live.record().wish;
    wish.served.store(0, Relaxed);
    let (until_ns, mut spins) = (os::monotonic_ns() + PATIENCE_NS, 0);
    while Wish::kind(wish.state.load(SeqCst)) == Wish::HELD && os::monotonic_ns() < until_ns {
        if procfs::is_gone_from(live.control, wish.owner.load(Acquire) as i32) {
            break;
        }
        os::wait_a_little(spins);
        spins += 1;
    }
    let_go(live);
}

/// In a forked child nobody wishes anything, and the pin is the parent's.
pub fn forget() {
    HELD.store(0, Relaxed);
    WISHING.store(false, Relaxed);
}

/// This process has just executed a program: what a thread of it wished that is no more is wished no longer.
pub fn disown(control: &Control, number: i32) {
    for wish in control.used_records().iter().map(|record| &record.wish) {
        if wish.owner.load(Acquire) == number as u32 {
            wish.state.store(Wish::with_kind(wish.state.load(SeqCst), Wish::NONE), SeqCst);
            os::futex_wake(&wish.state, ALL, true);
            wish.owner.store(0, Release);
        }
    }
}

/// This process's wish of another.
struct Asking<'a> {
    live: &'a Live,
    other: &'a Process,
    /// What stands in its record.
    number: i32,
    pid: i32,
    /// No other thread of this process has a wish.
    alone: bool,
    /// The wish is ours to change.
    claimed: bool,
    /// It was waited for in vain.
    given_up: bool,
}

impl Asking<'_> {
    fn is_there(&self) -> bool {
        let control = self.live.control;
        self.other.pid.load(Acquire) == self.number && control.exists(self.number)
    }

    fn claim(&mut self, until_ns: u64) -> bool {
        let wish = &self.other.wish;
        let me = self.live.control.number(self.live.pid.load(Relaxed)) as u32;
        let mut spins = 0;
        while !self.claimed {
            if !self.alone {
                self.alone = WISHING.compare_exchange(false, true, AcqRel, Relaxed).is_ok();
            }
            let owner = wish.owner.load(Acquire);
            // What is left of this process's own was before it executed this program.
            let is_free =
                self.alone && (owner == 0 || owner == me || procfs::is_gone_from(self.live.control, owner as i32));
            self.claimed = is_free && wish.owner.compare_exchange(owner, me, AcqRel, Relaxed).is_ok();
            if !self.claimed {
                if os::monotonic_ns() > until_ns || !self.is_there() {
                    return false;
                }
                os::wait_a_little(spins);
                spins += 1;
            }
        }
        true
    }

    /// Whether somebody lives in the other process who fulfils wishes.
    fn is_served(&self) -> bool {
        self.other.wish.served.load(Relaxed) != 0
    }

    /// Whether no page of the other process has ever left: then none does until [`Asking::end`]. The caller has its own memory there, and waits
    /// for nobody meanwhile, since the other one may wait for it.
    fn visit(&self) -> bool {
        let wish = &self.other.wish;
        wish.state.store(Wish::with_kind(wish.state.load(SeqCst), Wish::VISIT), SeqCst);
        // Either who is about to take the first page sees this, or that is seen here.
        if wish.takes.load(SeqCst) == 0 {
            return true;
        }
        wish.state.store(Wish::with_kind(wish.state.load(SeqCst), Wish::NONE), SeqCst);
        false
    }

    /// Whether the other process may be visited, as far as can be told before.
    fn may_visit(&mut self) -> bool {
        let takes = self.other.wish.takes.load(SeqCst) != 0;
        !self.given_up && !takes && self.claim(os::monotonic_ns() + PATIENCE_NS) && self.is_there()
    }

    /// Whether the other process must not be read from while its pages come and go.
    fn shows_zeros(&self) -> bool {
        Source::of(self.other.fault_source.load(Relaxed)).is_none_or(Source::shows_zeros)
    }

    /// Makes a call that needs the range to stay as it is; `EFAULT` where it could not be had.
    fn undisturbed(&mut self, transfer: &Transfer, what: u32) -> isize {
        if self.wish(transfer.there, transfer.len, what) {
            return transfer.make();
        }
        if self.may_visit()
            && let Some(got) = transfer.make_if(|| self.visit())
        {
            return got;
        }
        // It may have begun just now to take pages, and to fulfil wishes; or it has ended, of which the kernel tells.
        let is_gone = || !self.is_there() || procfs::is_gone_from(self.live.control, self.number);
        if is_gone() || self.wish(transfer.there, transfer.len, what) { transfer.make() } else { EFAULT }
    }

    /// Wishes a range of the other process's memory; whether it is there now, and stays until [`Asking::end`].
    fn wish(&mut self, addr: usize, bytes: usize, what: u32) -> bool {
        if self.given_up || !self.is_served() {
            return false;
        }
        let until_ns = os::monotonic_ns() + PATIENCE_NS;
        if !self.claim(until_ns) || !self.is_there() {
            self.given_up = true;
            return false;
        }
        let wish = &self.other.wish;
        let what = (wish.state.load(SeqCst) / Wish::NUMBER).wrapping_add(1).wrapping_mul(Wish::NUMBER) + what;
        wish.addr.store(addr as u64, Relaxed);
        wish.bytes.store(bytes as u64, Relaxed);
        wish.state.store(what, SeqCst);
        os::futex_wake(&wish.state, ALL, true);
        loop {
            match wish.state.load(SeqCst) {
                state if state == Wish::with_kind(what, Wish::HELD) => return true,
                state if state != what => return false,
                _ => {}
            }
            if os::monotonic_ns() > until_ns || !self.is_there() {
                self.given_up = true;
                let _ = wish.state.compare_exchange(what, Wish::with_kind(what, Wish::NONE), SeqCst, Relaxed);
                return wish.state.load(SeqCst) == Wish::with_kind(what, Wish::HELD);
            }
            let _ = os::futex_wait(&wish.state, what, LOOK_NS, true);
        }
    }

    /// What was wished may go, and others may wish.
    fn end(&mut self) {
        let wish = &self.other.wish;
        if self.claimed && self.is_there() {
            wish.state.store(Wish::with_kind(wish.state.load(SeqCst), Wish::NONE), SeqCst);
            os::futex_wake(&wish.state, ALL, true);
            wish.owner.store(0, Release);
        }
        if self.alone {
            WISHING.store(false, Release);
        }
        (self.claimed, self.alone) = (false, false);
    }
}

/// A vector of buffers that is gone through.
struct Cursor {
    vec: usize,
    count: usize,
    /// What is left of the buffer that is at hand.
    base: usize,
    left: usize,
}

impl Cursor {
    /// The next bytes; `Ok(0)`: there are no more.
    fn next(&mut self, live: &'static Live) -> Result<usize, isize> {
        while self.left == 0 && self.count > 0 {
            let iov = pins::read::<16>(live, self.vec).ok_or(EFAULT)?;
            (self.base, self.left) = (word(&iov, 0), word(&iov, 8));
            (self.vec, self.count) = (self.vec + size_of::<Iovec>(), self.count - 1);
        }
        Ok(self.left)
    }

    fn skip(&mut self, bytes: usize) {
        (self.base, self.left) = (self.base + bytes, self.left - bytes);
    }
}

/// Whether a range of another process's memory may be managed there.
fn may_be_managed(other: &Process, addr: usize, bytes: usize) -> bool {
    let [start, end] = other.bss.each_ref().map(|border| border.load(Relaxed) as usize);
    in_arena(addr) || addr < end && addr.saturating_add(bytes) > start
}

/// The managed process that a call is about which names one, or a thread of it: its record, and what stands there. Not this one.
fn find(live: &'static Live, id: i32, (vec, count): (usize, usize)) -> Option<(&'static Process, i32)> {
    let others = || {
        let all = live.control.used_records().iter().map(|record| (record, record.pid.load(Acquire)));
        all.filter(|(record, number)| *number > 0 && !core::ptr::eq(*record, live.record()))
    };
    if let Some(found) = others().find(|(_, number)| live.control.pid_of(*number) == Some(id)) {
        return Some(found);
    }
    // The kernel is asked about those alone that may have memory there.
    let (mut first, mut last, mut is_arena) = (usize::MAX, 0, false);
    for i in 0..count {
        let iov = pins::read::<16>(live, vec.checked_add(i * size_of::<Iovec>())?)?;
        let (base, len) = (word(&iov, 0), word(&iov, 8));
        (first, last, is_arena) = (first.min(base), last.max(base.saturating_add(len)), is_arena || in_arena(base));
    }
    let is_named = |(record, number): &(&Process, i32)| {
        let is_about = is_arena || first < last && may_be_managed(record, first, last - first);
        let pid = live.control.pid_of(*number).filter(|_| is_about);
        pid.is_some_and(|pid| os::tgkill(pid, id, 0).is_ok())
    };
    others().find(is_named)
}

/// Serves such a call on another managed process. `None` where it is none, or the kernel is to say what is wrong with it.
pub fn transfer(
    live: &'static Live,
    nr: usize,
    [pid, local, local_count, remote, remote_count, flags]: [usize; 6],
) -> Option<isize> {
    let own = live.pid.load(Relaxed);
    if flags != 0 || pid as i32 == own || local_count > IOV_MAX || remote_count > IOV_MAX || !live.is_own_process() {
        return None;
    }
    let (other, number) = find(live, pid as i32, (remote, remote_count))?;
    let mut managed = false;
    for (vec, count, is_remote) in [(local, local_count, false), (remote, remote_count, true)] {
        let mut bytes = 0usize;
        for i in 0..count {
            let iov = pins::read::<16>(live, vec.checked_add(i * size_of::<Iovec>())?)?;
            bytes = bytes.checked_add(word(&iov, 8)).filter(|bytes| *bytes <= MAX_RW_COUNT)?;
            managed |= is_remote && may_be_managed(other, word(&iov, 0), word(&iov, 8));
        }
    }
    if !managed {
        return None;
    }
    let mut asking = Asking { live, other, number, pid: pid as i32, alone: false, claimed: false, given_up: false };
    let here = Cursor { vec: local, count: local_count, base: 0, left: 0 };
    let there = Cursor { vec: remote, count: remote_count, base: 0, left: 0 };
    Some(go_through(live, nr, here, there, &mut asking))
}

fn go_through(live: &'static Live, nr: usize, mut here: Cursor, mut there: Cursor, asking: &mut Asking<'_>) -> isize {
    let mut done = 0;
    loop {
        let len = match (here.next(live), there.next(live)) {
            (Ok(here), Ok(there)) => here.min(there).min(WISH_BYTES).min(live.window_bytes()),
            (Err(error), _) | (_, Err(error)) => return if done > 0 { done as isize } else { error },
        };
        if len == 0 {
            return done as isize;
        }
        match piece(live, nr, here.base, there.base, len, asking) {
            got if got > 0 => {
                done += got as usize;
                if (got as usize) < len {
                    return done as isize;
                }
            }
            _ if done > 0 => return done as isize,
            error => return error,
        }
        here.skip(len);
        there.skip(len);
    }
}

/// A piece of both, each in one buffer.
fn piece(live: &'static Live, nr: usize, here: usize, there: usize, len: usize, asking: &mut Asking<'_>) -> isize {
    let transfer = Transfer { live, nr, pid: asking.pid, here, there, len };
    let got = if !may_be_managed(asking.other, there, len) {
        transfer.make()
    } else if nr == nr::PROCESS_VM_WRITEV {
        asking.undisturbed(&transfer, Wish::WRITE)
    } else if asking.shows_zeros() {
        asking.undisturbed(&transfer, Wish::READ)
    } else {
        let got = transfer.make();
        let is_whole = got == len as isize || got < 0 && got != EFAULT;
        if !is_whole && asking.wish(there, len, Wish::READ) { transfer.make() } else { got }
    };
    asking.end();
    got
}

/// One call.
struct Transfer {
    live: &'static Live,
    nr: usize,
    pid: i32,
    /// In this process.
    here: usize,
    /// In the other one.
    there: usize,
    len: usize,
}

impl Transfer {
    /// The call, with this process's side in memory.
    fn make(&self) -> isize {
        self.make_if(|| true).unwrap_or(EFAULT)
    }

    /// The same, if it is to be made once that side is there.
    fn make_if(&self, is_ready: impl FnOnce() -> bool) -> Option<isize> {
        self.live.contexts.with(|cx| {
            let mut pins = CallPins::new(self.live);
            pins.set_access(if self.nr == nr::PROCESS_VM_WRITEV { Access::Read } else { Access::Write });
            let got = match pins.pin(cx, self.here, self.len) {
                Ok(()) => is_ready().then(|| {
                    let (mine, theirs) = (self.vector(self.here), self.vector(self.there));
                    let (mine, theirs) = (&raw const mine as usize, &raw const theirs as usize);
                    // SAFETY: the program's own call, on memory that is pinned.
                    unsafe { gate::call(self.nr, self.pid as usize, mine, 1, theirs, 1, 0) }
                }),
                Err(Fault::NoMemory) => Some(ENOMEM),
                Err(_) => Some(EFAULT),
            };
            pins.release();
            got
        })
    }

    fn vector(&self, base: usize) -> Iovec {
        Iovec { base, len: self.len }
    }
}
