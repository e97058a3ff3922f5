//! Transfers between memory and descriptors: whole, in pieces, or in parts, by what the descriptor is open on.
use crate::assisted::assisted;
use crate::budget;
use crate::calls::{self, Call};
use crate::errno::{EFBIG, EIO};
use crate::gate::{self, Part};
use crate::kind::{Kind, has_more, is_nonblocking, kind};
use crate::layout::*;
use crate::limits::{CONTROL_MAX_BYTES, IOV_MAX, NAME_MAX_BYTES, SHORT_BYTES};
use crate::live::Live;
use crate::longwrites::Room;
use crate::parts;
use crate::pins::{self, CallPins, UNCUT};
use crate::usermem::{MAX_RW_COUNT, MSGHDR_BYTES, word};
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::protection::Access;
use outswap_sys::nr;
use outswap_sys::signal::{Ucontext, without_sigxfsz};

/// Flags whose messages stay where they are, or are something else than the next bytes of a stream: MSG_OOB, MSG_PEEK,
/// MSG_ERRQUEUE.
const NOT_A_STREAM: usize = 0x1 | 0x2 | 0x2000;

/// How much managed memory an array of `struct iovec` names: none where the kernel will refuse it.
fn vector_bytes(live: &'static Live, vec: usize, count: usize) -> usize {
    if count > IOV_MAX {
        return 0;
    }
    live.with(move |cx| {
        let mut bytes = 0usize;
        let right = pins::each_iovec(live, cx, vec, count, |base, len| {
            if overlaps_managed(base, len) {
                bytes = bytes.saturating_add(len);
            }
            (len as isize) >= 0 && in_user_space(base, len)
        });
        if right { bytes } else { 0 }
    })
}

fn is_long_message(live: &'static Live, at: usize) -> bool {
    pins::read::<{ MSGHDR_BYTES }>(live, at).is_some_and(|header| {
        // Descriptors may come with any byte of a stream, and control data goes with one part only.
        let has_control = word(&header, 40) > 0;
        let room_bytes = most_bytes(live).saturating_sub(CONTROL_MAX_BYTES + NAME_MAX_BYTES);
        let most_bytes = if has_control { room_bytes.max(live.window_bytes()) } else { live.window_bytes() };
        vector_bytes(live, word(&header, 16), word(&header, 24)) > most_bytes
    })
}

/// Whether a call that sends or receives a message is to go in parts: it is long, on a stream, and nothing but the next bytes.
pub fn is_message_in_parts(live: &'static Live, args: [usize; 6]) -> bool {
    args[2] & NOT_A_STREAM == 0 && is_long_message(live, args[1]) && kind(args[0]) == Kind::Stream
}

/// What is not long whatever it is of: less than a window where many calls are in progress, as far as the last one knew.
fn may_wait_bytes(live: &Live, window_bytes: usize) -> usize {
    window_bytes.min(live.waiting_bytes(live.last_pin.load(Relaxed)))
}

/// A transfer of one buffer: whole, in pieces where it is a file, in parts where it is a stream.
pub fn transfer(live: &'static Live, nr: usize, mut args: [usize; 6], uc: &mut Ucontext) {
    let [fd, at, len, flags, ..] = args;
    // Asked once: it moves with the limit, and what is whole by one answer would be cut by another.
    let window_bytes = live.window_bytes();
    let long = overlaps_managed(at, len) && len > may_wait_bytes(live, window_bytes);
    // What the kernel refuses it must see as it is.
    if !long || (len as isize) < 0 || !in_user_space(at, len) {
        return assisted(live, nr, args, window_bytes, uc);
    }
    args[2] = len.min(MAX_RW_COUNT);
    const MSG_WAITALL: usize = 0x100;
    match (nr, kind(fd)) {
        (nr::READ | nr::PREAD64, Kind::File) | (nr::WRITE | nr::PWRITE64, Kind::File | Kind::Told) => {
            uc.gregs.rax = pieces(live, nr, args) as u64;
        }
        (nr::WRITE, Kind::Pipe | Kind::Stream) => parts::start(live, Part::Stream, nr, args, &mut uc.gregs),
        (nr::READ, Kind::Pipe | Kind::Stream) if is_nonblocking(fd, 0) => {
            uc.gregs.rax = drain(live, nr, fd, (at, args[2]), 0) as u64;
        }
        (nr::RECVFROM, Kind::Stream)
            if flags & (NOT_A_STREAM | MSG_WAITALL) == 0 && args[4] == 0 && is_nonblocking(fd, flags) =>
        {
            uc.gregs.rax = drain(live, nr, fd, (at, args[2]), flags) as u64;
        }
        (nr::SENDTO, Kind::Stream) if flags & NOT_A_STREAM == 0 => {
            parts::start(live, Part::Stream, nr, args, &mut uc.gregs);
        }
        (nr::RECVFROM, Kind::Stream)
            if flags & NOT_A_STREAM == 0 && (flags & MSG_WAITALL != 0 || is_nonblocking(fd, flags)) =>
        {
            parts::start(live, Part::Stream, nr, args, &mut uc.gregs);
        }
        (_, Kind::Messages) => assisted(live, nr, args, UNCUT, uc),
        (_, Kind::Other) => assisted(live, nr, args, most_bytes(live), uc),
        // Of a file that tells of signals, too: in a handler of ours all are blocked.
        _ => assisted(live, nr, args, window_bytes, uc),
    }
}

/// What one call moves at most that cannot be made in parts, but may do less than was asked: who reads a device has reasons for the length
/// of the buffer. (The kernel refuses to give requests of FUSE to who has not room for the largest.)
fn most_bytes(live: &Live) -> usize {
    budget::pinned_max_bytes(live.pager.limit_pages()) - SHORT_BYTES
}

/// `getrandom`: whole, however much it is. A signal ends it after a part, as in the kernel after a page.
pub fn random(live: &'static Live, mut args: [usize; 6], uc: &mut Ucontext) {
    let window_bytes = live.window_bytes();
    // Any length stands for the largest.
    args[1] = args[1].min(MAX_RW_COUNT);
    let [at, len, ..] = args;
    if !overlaps_managed(at, len) || len <= window_bytes || !in_user_space(at, len) {
        return assisted(live, nr::GETRANDOM, args, window_bytes, uc);
    }
    parts::start(live, Part::Stream, nr::GETRANDOM, args, &mut uc.gregs);
}

/// A transfer of several buffers: as [`transfer`].
pub fn vector(live: &'static Live, nr: usize, mut args: [usize; 6], uc: &mut Ucontext) {
    // As the kernel takes it.
    args[2] = args[2] as u32 as usize;
    // Without flags, and where the file is, these are the older calls, which pipes and sockets have, too.
    let is_plain = args[3] as isize == -1 && args[5] as u32 == 0;
    let nr = match nr {
        nr::PREADV2 if is_plain => nr::READV,
        nr::PWRITEV2 if is_plain => nr::WRITEV,
        _ => nr,
    };
    let window_bytes = live.window_bytes();
    let bytes = vector_bytes(live, args[1], args[2]);
    if bytes <= may_wait_bytes(live, window_bytes) {
        return assisted(live, nr, args, window_bytes, uc);
    }
    let kind = kind(args[0]);
    let returns = matches!(kind, Kind::File | Kind::Told) || nr == nr::READV && is_nonblocking(args[0], 0);
    // Less than a window only where it waits: what a file is given in one call is one record beside those of others.
    if returns && bytes <= window_bytes {
        return assisted(live, nr, args, window_bytes, uc);
    }
    match (nr, kind) {
        (nr::READV | nr::PREADV | nr::PREADV2, Kind::Told) => assisted(live, nr, args, window_bytes, uc),
        (_, Kind::File | Kind::Told) => uc.gregs.rax = vector_pieces(live, nr, args, bytes) as u64,
        (_, Kind::Messages) => assisted(live, nr, args, UNCUT, uc),
        (_, Kind::Other) => assisted(live, nr, args, most_bytes(live), uc),
        (nr::READV, _) if returns => uc.gregs.rax = vector_drain(live, args) as u64,
        (nr::READV | nr::WRITEV, _) => parts::start(live, Part::Vector, nr, args, &mut uc.gregs),
        _ => assisted(live, nr, args, window_bytes, uc),
    }
}

/// A transfer between a file and more memory than a window. As in the kernel, no signal interrupts it.
fn pieces(live: &'static Live, nr: usize, [fd, buf, len, offset, ..]: [usize; 6]) -> isize {
    let window_bytes = live.window_bytes();
    let room = if len > window_bytes { room_for_record(live, nr, len) } else { None };
    let window_bytes = if room.is_some() { len } else { window_bytes };
    in_windows(live, access(nr), (buf, len), window_bytes, |at, part, done| {
        // SAFETY: the program's own call, on a part of its buffer.
        let call = || unsafe { gate::call(nr, fd, at, part, offset.wrapping_add(done), 0, 0) };
        piece(done, call)
    })
}

/// Room for a write to be one operation, where others may write at the same place: at a position that they share, or at the end of the file.
fn room_for_record(live: &'static Live, nr: usize, bytes: usize) -> Option<Room<'static>> {
    if matches!(nr, nr::WRITE | nr::WRITEV | nr::PWRITEV2) { live.room_for_record(bytes) } else { None }
}

/// The same of several buffers, of so many bytes.
fn vector_pieces(live: &'static Live, nr: usize, args: [usize; 6], bytes: usize) -> isize {
    let room = room_for_record(live, nr, bytes);
    if let Some(value) = room.and_then(|_room| whole_vector(live, nr, args, bytes)) {
        return value;
    }
    let [fd, vec, count, offset, _, flags] = args;
    // Where the file is, whatever comes before.
    let is_there = offset as isize == -1;
    vector_in_windows(live, access(nr), (vec, count), |at, used, done| {
        let offset = if is_there { offset } else { offset.wrapping_add(done) };
        // SAFETY: the program's own call, on a part of its buffers.
        let call = || unsafe { gate::call(nr, fd, at, used, offset, 0, flags) };
        piece(done, call)
    })
}

/// A transfer of several buffers, of so many bytes, which have room to be resident at once. `None` where they cannot be read.
fn whole_vector(live: &'static Live, nr: usize, args: [usize; 6], bytes: usize) -> Option<isize> {
    let (pin, [fd, vec, count, offset, high, flags]) = pins::pinned(live, nr, args, bytes)?;
    // The file may be slow: nobody must wait for this thread meanwhile.
    live.contexts.assert_outside();
    // SAFETY: the program's own call.
    let value = unsafe { gate::call(nr, fd, vec, count, offset, high, flags) };
    live.pager.pins.release(pin);
    Some(value)
}

/// One window of a transfer of a file, after so much.
fn piece(done: usize, call: impl FnOnce() -> isize) -> isize {
    // The kernel cuts a write at the limit of file size, and raises a signal only where nothing of it fits.
    if done > 0 { without_sigxfsz(call, |value| *value == EFBIG) } else { call() }
}

/// What a transfer does to the program's memory.
fn access(nr: usize) -> Access {
    calls::find(nr).map_or(Access::Write, Call::access)
}

/// As [`drain`], into several buffers.
fn vector_drain(live: &'static Live, [fd, vec, count, ..]: [usize; 6]) -> isize {
    vector_in_windows(live, Access::Write, (vec, count), |at, used, done| {
        // SAFETY: the program's own call, on a part of its buffers.
        let read = || unsafe { gate::call(nr::READV, fd, at, used, 0, 0, 0) };
        if done == 0 || has_more(fd) { read() } else { 0 }
    })
}

/// Does with each window of a vector's buffers, once it is brought in, what `one` says, which is told where they are listed, how many they
/// are, and how much was done before, as long as all of it is done.
fn vector_in_windows(
    live: &'static Live,
    access: Access,
    vector: (usize, usize),
    mut one: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    let window_bytes = live.window_bytes();
    let mut done = 0;
    loop {
        let listed = live.with(move |cx| {
            let mut pins = CallPins::new(live);
            pins.set_access(access);
            let listed = parts::buffers(live, cx, &mut pins, vector, done, window_bytes);
            let pin = pins.number();
            listed.map(|used| (pin, used)).inspect_err(|_| pins.release())
        });
        let or_done = |error: isize| if done > 0 { done as isize } else { error };
        let (pin, used) = match listed {
            Ok(listed) => listed,
            Err(error) => return or_done(error),
        };
        // SAFETY: the pin is this call's.
        let state = unsafe { &*gate::state(pin) };
        let (part, total) = (state.parts.iter().map(|part| part[1]).sum::<usize>(), state.total_bytes);
        // The file may be slow: nobody must wait for this thread meanwhile.
        live.contexts.assert_outside();
        let value = one(state.parts.as_ptr() as usize, used, done);
        live.pager.pins.release(pin);
        if value < 0 {
            return or_done(value);
        }
        done += value as usize;
        if (value as usize) < part || done >= total {
            return done as isize;
        }
    }
}

/// A read that does not wait from a pipe or socket, into more memory than may be resident at once: all that is there. As in the kernel, no signal
/// interrupts it.
fn drain(live: &'static Live, nr: usize, fd: usize, buffer: (usize, usize), flags: usize) -> isize {
    in_windows(live, Access::Write, buffer, live.window_bytes(), |at, part, done| {
        // SAFETY: the program's own call, on a part of its buffer.
        let read = || unsafe { gate::call(nr, fd, at, part, flags, 0, 0) };
        // Nothing is told as what a read at the end gives.
        if done == 0 || has_more(fd) { read() } else { 0 }
    })
}

/// Does with each window of a buffer, once it is brought in, what `one` says, which is told where it is, how long, and how much was done
/// before, as long as all of it is done.
fn in_windows(
    live: &'static Live,
    access: Access,
    (buf, len): (usize, usize),
    window_bytes: usize,
    mut one: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    let mut done = 0;
    while done < len {
        let (at, part) = (buf + done, window_bytes.min(len - done));
        let Some(pin) = pin(live, access, at, part) else { return if done > 0 { done as isize } else { EIO } };
        // The file may be slow: nobody must wait for this thread meanwhile.
        live.contexts.assert_outside();
        let value = one(at, part, done);
        live.pager.pins.release(pin);
        match value {
            n if n < 0 => return if done > 0 { done as isize } else { n },
            n => done += n as usize,
        }
        if (value as usize) < part {
            break;
        }
    }
    done as isize
}

/// Brings in a part of a call's buffer. `None` where it cannot be read.
fn pin(live: &'static Live, access: Access, at: usize, bytes: usize) -> Option<usize> {
    live.with(move |cx| {
        let mut pins = CallPins::new(live);
        pins.set_access(access);
        match pins.pin(cx, at, bytes) {
            Ok(()) => Some(pins.number()),
            Err(_) => {
                pins.release();
                None
            }
        }
    })
}
