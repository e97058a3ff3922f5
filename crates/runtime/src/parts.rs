//! Calls that go in parts because not all that they name may be resident at once, and the end of every call in a stub.
//!
//! A part that is done traps back here (see [`crate::gate`]), so that a call that waits does so outside of any handler, with the
//! program's own signal mask, however many parts it has.
use crate::contexts::Cx;
use crate::errno::{EFAULT, EIO};
use crate::gate::{self, CallState, Part};
use crate::kind::{self, Kind};
use crate::limits::{CONTROL_MAX_BYTES, IOV_MAX, MESSAGE_PARTS, NAME_MAX_BYTES, OWNED_PINS};
use crate::live::Live;
use crate::pins::{self, CallPins};
use crate::stub_call::{enter, restore, resume, set_arguments};
use crate::usermem::{MAX_RW_COUNT, MSGHDR_BYTES, word};
use crate::{avoided, exec, whole};
use core::sync::atomic::Ordering::Relaxed;
use outswap_sys::signal::{Gregs, Ucontext};
use outswap_sys::{nr, os};

const MSG_WAITALL: usize = 0x100;
/// No SIGPIPE, but for the error.
pub const MSG_NOSIGNAL: usize = 0x4000;
/// A connection is made by what is sent.
const MSG_FASTOPEN: usize = 0x2000_0000;
/// Calls that end early for a signal or an error alone, if they may wait.
const WRITES: [usize; 4] = [nr::WRITE, nr::WRITEV, nr::SENDTO, nr::SENDMSG];
/// A part that waits takes longer.
const WAIT_MIN_NS: u64 = 2_000_000;
/// Where control data is, in the words of a message's header.
const CONTROL: usize = 4;

/// Gives up what a call holds.
pub fn release(live: &'static Live, pin: usize) {
    // SAFETY: the pin is this call's.
    let state = unsafe { &*gate::state(pin) };
    if state.part == Part::Exec {
        exec::failed(live, state.buffer, state.domain);
    }
    live.pager.pins.release(pin);
}

/// Ends a call whose last part gave `result`.
pub fn finish(live: &'static Live, pin: usize, result: isize, g: &mut Gregs) {
    // SAFETY: the pin is this call's.
    let state = unsafe { &*gate::state(pin) };
    let mut total = match result {
        n if n > 0 => n + state.done_bytes as isize,
        _ if state.done_bytes > 0 => state.done_bytes as isize,
        n => n,
    };
    if state.part == Part::Message && result >= 0 && !tell_message(live, pin) {
        total = EFAULT;
    }
    restore(pin, g);
    g.rax = total as u64;
    release(live, pin);
}

/// A stub traps back: the call ends, or goes on with its next part.
pub fn go_on(live: &'static Live, uc: &mut Ucontext) {
    let g = &mut uc.gregs;
    let pin = g.rdi as usize;
    assert!(pin < OWNED_PINS, "only stubs trap back");
    // SAFETY: the stub was that of a call of this thread, whose pin it still has.
    let state = unsafe { &mut *gate::state(pin) };
    let result = state.result;
    let asked = match state.part {
        Part::Stream => state.part_bytes,
        Part::Message | Part::Vector => state.parts.iter().map(|p| p[1]).sum(),
        Part::Whole | Part::Exec => return finish(live, pin, result, g),
    };
    let total = state.total_bytes;
    // What is written is to be whole: a part that ends early without a signal was cut short by work that the kernel gave the thread, as where a
    // ring for the swap file was closed; or the next one says why.
    let is_enough = result > 0 && (result as usize == asked || WRITES.contains(&state.nr));
    let more = is_enough && state.done_bytes + (result as usize) < total;
    if !more || !goes_on(state) || !has_time(state) || state.part == Part::Message && !tell_message(live, pin) {
        return finish(live, pin, result, g);
    }
    let (part, nr, args, to, time_ns) = (state.part, state.nr, state.args, state.to, state.time_ns);
    let done = state.done_bytes + result as usize;
    live.pager.pins.release(pin);
    match prepare(live, part, nr, args, done) {
        Ok((pin, changed)) => {
            // SAFETY: the pin is this call's.
            let state = unsafe { &mut *gate::state(pin) };
            (state.to, state.nr, state.args, state.part, state.done_bytes) = (to, nr, args, part, done);
            let (nr, changed) = later_part(state, nr, changed);
            begin_waiting(state, time_ns);
            enter(pin, part, nr, changed, g);
        }
        Err(_) => {
            set_arguments(g, args);
            g.rip = to as u64;
            g.rax = done as u64;
        }
    }
}

/// A part after the first: it does not connect again (`MSG_FASTOPEN`), and raises no signal where the other end of a connection was closed.
/// The kernel raises it only where a call has sent nothing; this one has, and gives back how much.
fn later_part(state: &mut CallState, nr: usize, mut args: [usize; 6]) -> (usize, [usize; 6]) {
    let [fd, at, len, ..] = args;
    match nr {
        nr::SENDTO => args[3] = args[3] & !MSG_FASTOPEN | MSG_NOSIGNAL,
        nr::SENDMSG => args[2] = args[2] & !MSG_FASTOPEN | MSG_NOSIGNAL,
        nr::WRITE | nr::WRITEV if !avoided::may_send() || kind::kind(fd) != Kind::Stream => {}
        nr::WRITE => return (nr::SENDTO, [fd, at, len, MSG_NOSIGNAL, 0, 0]),
        nr::WRITEV => {
            state.header = [0, 0, at, len, 0, 0, 0];
            return (nr::SENDMSG, [fd, state.header.as_ptr() as usize, MSG_NOSIGNAL, 0, 0, 0]);
        }
        _ => {}
    }
    (nr, args)
}

/// Whether a call whose part was full goes on. What is written or sent is to be whole, and what waits for all. Of what is read, less than was asked
/// for says that there is no more: who is told of edges alone (`EPOLLET`) waits for the next then, which does not come while something is left.
fn goes_on(state: &CallState) -> bool {
    let [fd, _, message_flags, flags, ..] = state.args;
    let reads_on = |flags: usize| flags & MSG_WAITALL != 0 || kind::is_nonblocking(fd, flags) && kind::has_more(fd);
    match state.nr {
        // Those that do not wait are not made in parts.
        nr::READV => false,
        nr::RECVFROM => reads_on(flags),
        // Descriptors may come with a later part, for which there is room in the first alone.
        nr::RECVMSG if message_flags & MSG_WAITALL == 0 => state.header[CONTROL] == 0 && reads_on(message_flags),
        _ => true,
    }
}

/// How long a call may wait in all (`SO_SNDTIMEO`, `SO_RCVTIMEO`): the kernel would begin anew with each part.
fn time_ns(nr: usize, [fd, _, message_flags, flags, ..]: [usize; 6]) -> Option<u64> {
    let (sends, flags) = match nr {
        nr::WRITE | nr::WRITEV => (true, 0),
        nr::SENDTO => (true, flags),
        nr::SENDMSG => (true, message_flags),
        nr::RECVFROM => (false, flags),
        nr::RECVMSG => (false, message_flags),
        _ => return None,
    };
    // Most have none, so that little more is asked.
    let time_ns = if kind::kind(fd) == Kind::Stream { kind::time_out_ns(fd, sends)? } else { return None };
    (!kind::is_nonblocking(fd, flags)).then_some(time_ns)
}

/// A part begins, with so much time for it and those that follow.
fn begin_waiting(state: &mut CallState, time_ns: Option<u64>) {
    (state.time_ns, state.begun_ns) = (time_ns, time_ns.map_or(0, |_| os::monotonic_ns()));
}

/// Takes off what the part waited that has just ended. False where no time is left.
fn has_time(state: &mut CallState) -> bool {
    let Some(time_ns) = state.time_ns else { return true };
    let took_ns = os::monotonic_ns().saturating_sub(state.begun_ns);
    // What took no longer has copied.
    let left_ns = time_ns.saturating_sub(if took_ns < WAIT_MIN_NS { 0 } else { took_ns });
    state.time_ns = Some(left_ns);
    left_ns > 0
}

/// Which argument of a call that goes in parts is its buffer; the length follows.
fn buffer_argument(nr: usize) -> usize {
    if nr == nr::GETRANDOM { 0 } else { 1 }
}

/// Starts a call in parts; what cannot be brought in ends it with an error.
pub fn start(live: &'static Live, part: Part, nr: usize, args: [usize; 6], g: &mut Gregs) {
    match prepare(live, part, nr, args, 0) {
        Ok((pin, changed)) => {
            // SAFETY: the pin is this call's.
            let state = unsafe { &mut *gate::state(pin) };
            begin_waiting(state, time_ns(nr, args));
            resume(pin, part, nr, changed, g);
        }
        Err(error) => g.rax = error as u64,
    }
}

/// Brings in what the part of a call after `done` bytes needs: its pin, and the arguments that the kernel gets.
fn prepare(
    live: &'static Live,
    part: Part,
    nr: usize,
    args: [usize; 6],
    done: usize,
) -> Result<(usize, [usize; 6]), isize> {
    let alone = !live.threaded.load(Relaxed) || !live.is_own_process();
    loop {
        let (pin, changed, shared) = bring(live, part, nr, args, done)?;
        match shared.filter(|_| !alone) {
            None => return Ok((pin, changed)),
            Some(at) => {
                live.pager.pins.release(pin);
                whole::range(live, at, 1)?;
            }
        }
    }
}

/// As [`prepare`]; also an address in shared memory that the part uses, if any is managed.
fn bring(
    live: &'static Live,
    part: Part,
    nr: usize,
    args: [usize; 6],
    done: usize,
) -> Result<(usize, [usize; 6], Option<usize>), isize> {
    live.with(move |cx| {
        let mut pins = CallPins::new(live);
        let pin = pins.number();
        // SAFETY: the pin is this call's.
        let state = unsafe { &mut *gate::state(pin) };
        let mut changed = args;
        let ok = match part {
            Part::Message => message(live, cx, &mut pins, (nr, args[1]), done).map(|()| {
                changed[1] = state.header.as_ptr() as usize;
            }),
            Part::Vector => {
                buffers(live, cx, &mut pins, (args[1], args[2]), done, live.waiting_bytes(pin)).map(|used| {
                    (changed[1], changed[2]) = (state.parts.as_ptr() as usize, used);
                })
            }
            _ => {
                let at = buffer_argument(nr);
                let total = args[at + 1].min(MAX_RW_COUNT);
                let len = (total - done).min(live.waiting_bytes(pin));
                (changed[at], changed[at + 1]) = (args[at] + done, len);
                (state.part_bytes, state.total_bytes) = (len, total);
                let mut ok = pins.pin(cx, changed[at], len).is_ok();
                if nr == nr::RECVFROM && args[5] != 0 {
                    let size = pins::copy_in_u32(live, cx, args[5]).unwrap_or(0) as usize;
                    ok &= pins.pin(cx, args[5], 4).is_ok() && pins.pin(cx, args[4], size.min(1 << 20)).is_ok();
                } else if nr == nr::SENDTO {
                    ok &= pins.pin(cx, args[4], (args[5] as u32 as usize).min(1 << 20)).is_ok();
                }
                if ok { Ok(()) } else { Err(EIO) }
            }
        };
        match ok {
            Ok(()) => Ok((pin, changed, pins.shared())),
            Err(error) => {
                pins.release();
                Err(error)
            }
        }
    })
}

/// Fills in the header that stands for the program's: the buffers after `done` bytes, as many as may be resident at once.
fn message(
    live: &'static Live,
    cx: &mut Cx,
    pins: &mut CallPins<'_>,
    (nr, at): (usize, usize),
    done: usize,
) -> Result<(), isize> {
    let mut header = [0u8; MSGHDR_BYTES];
    if !pins::copy_in(live, cx, at, &mut header) {
        return Err(EFAULT);
    }
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pins.number()) };
    let (vector, room_bytes) = ((word(&header, 16), word(&header, 24).min(IOV_MAX)), live.waiting_bytes(pins.number()));
    let used = buffers(live, cx, pins, vector, done, room_bytes)?;
    let control = (word(&header, 32), word(&header, 40).min(CONTROL_MAX_BYTES));
    // Name and control data go with the first part; of what is sent, each part has what is said of all bytes.
    let (name, control) = if done == 0 {
        let name_bytes = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes")) as usize;
        pins.pin(cx, word(&header, 0), name_bytes.min(NAME_MAX_BYTES)).map_err(|_| EIO)?;
        pins.pin(cx, control.0, control.1).map_err(|_| EIO)?;
        ([word(&header, 0), word(&header, 8)], [word(&header, 32), word(&header, 40)])
    } else if nr == nr::SENDMSG {
        ([0; 2], repeated(live, cx, pins, control)?)
    } else {
        ([0; 2], [0; 2])
    };
    let buffers = state.parts.as_ptr() as usize;
    state.header = [name[0], name[1], buffers, used, control[0], control[1], word(&header, 48)];
    Ok(())
}

/// What of a message's control data goes with its later parts, too: all of it, as which kind of record it is (TLS); but descriptors go once,
/// and who sends them beside his credentials sends these alone.
fn repeated(
    live: &'static Live,
    cx: &mut Cx,
    pins: &mut CallPins<'_>,
    (control, bytes): (usize, usize),
) -> Result<[usize; 2], isize> {
    const HEAD_BYTES: usize = 16;
    const SOL_SOCKET: u32 = 1;
    const SCM_RIGHTS: u32 = 1;
    const SCM_CREDENTIALS: u32 = 2;
    let (mut at, mut has_rights, mut credentials) = (0, false, [0; 2]);
    while at + HEAD_BYTES <= bytes {
        let mut head = [0u8; HEAD_BYTES];
        if !pins::copy_in(live, cx, control + at, &mut head) {
            return Err(EFAULT);
        }
        let (len, kind) = (word(&head, 0), word(&head, 8));
        if len < HEAD_BYTES || len > bytes - at {
            break;
        }
        match (kind as u32, (kind >> 32) as u32) {
            (SOL_SOCKET, SCM_RIGHTS) => has_rights = true,
            (SOL_SOCKET, SCM_CREDENTIALS) => credentials = [control + at, len],
            _ => {}
        }
        at += len.next_multiple_of(8);
    }
    let part = if has_rights { credentials } else { [control, bytes] };
    pins.pin(cx, part[0], part[1]).map_err(|_| EIO)?;
    Ok(part)
}

/// Lists in the pin what comes after `done` bytes of a vector's buffers, as much of it as there is room for. Returns how many buffers that
/// are.
pub fn buffers(
    live: &'static Live,
    cx: &mut Cx,
    pins: &mut CallPins<'_>,
    (vec, count): (usize, usize),
    done: usize,
    room_bytes: usize,
) -> Result<usize, isize> {
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pins.number()) };
    // As in the kernel, what goes beyond the largest transfer is left.
    let mut left = MAX_RW_COUNT;
    let (mut used, mut room, mut skip) = (0, room_bytes, done);
    state.parts = [[0; 2]; MESSAGE_PARTS];
    for i in 0..count {
        let mut iov = [0u8; 16];
        if !pins::copy_in(live, cx, vec + i * 16, &mut iov) {
            return Err(EFAULT);
        }
        let (base, len) = (word(&iov, 0), word(&iov, 8).min(left));
        left -= len;
        let passed = skip.min(len);
        skip -= passed;
        let len = (len - passed).min(room);
        if len > 0 && used < MESSAGE_PARTS {
            pins.pin(cx, base + passed, len).map_err(|_| EIO)?;
            state.parts[used] = [base + passed, len];
            used += 1;
            room -= len;
        }
    }
    state.total_bytes = MAX_RW_COUNT - left;
    Ok(used)
}

/// Tells the program what the kernel said of a message: lengths of name and control data, and flags. They come with the first
/// part.
fn tell_message(live: &'static Live, pin: usize) -> bool {
    // SAFETY: the pin is this call's.
    let state = unsafe { &*gate::state(pin) };
    if state.nr != nr::RECVMSG || state.done_bytes > 0 {
        return true;
    }
    let (at, header) = (state.args[1], state.header);
    live.with(move |cx| {
        let [name, control, flags] = [header[1], header[5], header[6]].map(usize::to_le_bytes);
        pins::copy_out(live, cx, at + 8, &name[..4])
            && pins::copy_out(live, cx, at + 40, &control)
            && pins::copy_out(live, cx, at + 48, &flags[..4])
    })
}
