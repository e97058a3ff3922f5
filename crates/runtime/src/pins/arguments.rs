//! What the arguments of a call point to, by the table of calls.
use super::call::{CallPins, keep_pages};
use crate::calls::{self, Arg, Call};
use crate::contexts::Cx;
use crate::layout::*;
use crate::limits::{
    CONTROL_MAX_BYTES, DEFAULT_BYTES, ELEMENTS_MAX, FD_SET_MAX_WORDS, GUESS_WORDS, GUESSES, IOV_MAX, NAME_MAX_BYTES,
    SHORT_BYTES, SIZED_MAX_BYTES, STRING_MAX_BYTES,
};
use crate::live::Live;
use crate::pointers;
use crate::structures::{self, Inner, Length, Structure};
use crate::usermem::{Iovec, MAX_RW_COUNT, MMSGHDR_BYTES, Msghdr, peek};
use core::mem::size_of;
use outswap_core::fault::Fault;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::nr;

/// In place of a length: no length is cut, because what is transferred is a message, which would be another one.
pub const UNCUT: usize = usize::MAX;

/// Makes what a call names resident, as [`CallPins::arguments`] does. Gives the pin that keeps it so, and the arguments then; `None` where it
/// cannot be read.
pub fn pinned(live: &'static Live, nr: usize, args: [usize; 6], window_bytes: usize) -> Option<(usize, [usize; 6])> {
    live.with(move |cx| {
        let mut pins = CallPins::new(live);
        let mut args = args;
        if pins.arguments(cx, calls::find(nr), &mut args, window_bytes).is_ok() {
            return Some((pins.number(), args));
        }
        pins.release();
        None
    })
}

impl CallPins<'_> {
    fn string(&mut self, cx: &mut Cx, addr: usize) -> Result<(), Fault> {
        if !overlaps_managed(addr, PAGE_BYTES) {
            return Ok(());
        }
        let (mut at, mut total) = (addr, 0);
        while total < STRING_MAX_BYTES {
            let rest = PAGE_BYTES - at % PAGE_BYTES;
            self.pin(cx, at, rest)?;
            let mut chunk = [0u8; 256];
            for part in (0..rest).step_by(chunk.len()) {
                let len = chunk.len().min(rest - part);
                if !peek(at + part, &mut chunk[..len]) || chunk[..len].contains(&0) {
                    return Ok(());
                }
            }
            at += rest;
            total += rest;
        }
        Ok(())
    }

    /// Makes resident what an array of `struct iovec` names, as far as `limit` allows. Returns how many elements may go out; all
    /// where the kernel refuses the array, which it must see as a whole then.
    fn vector(&mut self, cx: &mut Cx, addr: usize, count: usize, limit: &mut Option<usize>) -> Result<usize, Fault> {
        if count > IOV_MAX {
            return Ok(count);
        }
        self.pin(cx, addr, count * 16)?;
        for i in 0..count {
            match self.read::<Iovec>(cx, addr.wrapping_add(i * 16)) {
                // One alone counts as the largest that a call moves where it is too large; of several it is refused.
                Some(iov) if is_allowed(&iov) && (count == 1 || in_user_space(iov.base, iov.len)) => {}
                _ => return Ok(count),
            }
        }
        let mut usable = 0;
        for i in 0..count {
            let Some(iov) = self.read::<Iovec>(cx, addr.wrapping_add(i * 16)).filter(is_allowed) else {
                return Ok(count);
            };
            if overlaps_managed(iov.base, iov.len.max(1)) {
                if let Some(limit) = limit {
                    if iov.len > *limit {
                        return Ok(usable);
                    }
                    *limit -= iov.len;
                }
                self.pin(cx, iov.base, iov.len)?;
            }
            usable = i + 1;
        }
        Ok(usable)
    }

    fn message(&mut self, cx: &mut Cx, addr: usize) -> Result<(), Fault> {
        self.pin(cx, addr, size_of::<Msghdr>())?;
        let Some(msg) = self.read::<Msghdr>(cx, addr) else { return Ok(()) };
        self.pin(cx, msg.name, (msg.namelen as usize).min(NAME_MAX_BYTES))?;
        self.pin(cx, msg.control, msg.controllen.min(CONTROL_MAX_BYTES))?;
        self.uncut_vector(cx, msg.iov, msg.iovlen)
    }

    /// Whether a further message may be resident beside what is pinned, and beside the call's other arguments.
    fn has_room(&mut self, cx: &mut Cx, addr: usize) -> bool {
        let room_bytes = self.room_bytes();
        // Structures count each time that they are read: here, and as they are brought in.
        const LOOKS: usize = 4;
        let mut bytes = SHORT_BYTES + NAME_MAX_BYTES + LOOKS * MMSGHDR_BYTES;
        if bytes > room_bytes {
            return false;
        }
        // What the kernel does not accept is for it to see.
        let Some(msg) = self.read::<Msghdr>(cx, addr).filter(|msg| msg.iovlen <= IOV_MAX) else { return true };
        bytes += msg.controllen.min(CONTROL_MAX_BYTES) + LOOKS * msg.iovlen * size_of::<Iovec>();
        if bytes > room_bytes {
            return false;
        }
        for i in 0..msg.iovlen {
            let at = msg.iov.wrapping_add(i * size_of::<Iovec>());
            let Some(iov) = self.read::<Iovec>(cx, at).filter(is_allowed) else { break };
            if overlaps_managed(iov.base, iov.len) {
                bytes = bytes.saturating_add(self.reachable(iov.base, iov.len));
            }
        }
        bytes <= room_bytes
    }

    /// Makes resident what an array of `struct iovec` names, as much of it as may be: the call goes out as it is.
    fn uncut_vector(&mut self, cx: &mut Cx, addr: usize, count: usize) -> Result<(), Fault> {
        if count > IOV_MAX {
            return Ok(());
        }
        self.pin(cx, addr, count * 16)?;
        for i in 0..count {
            let Some(iov) = self.read::<Iovec>(cx, addr.wrapping_add(i * 16)).filter(is_allowed) else { return Ok(()) };
            self.uncut_buffer(cx, iov.base, iov.len)?;
        }
        Ok(())
    }

    /// The same of a buffer.
    fn uncut_buffer(&mut self, cx: &mut Cx, addr: usize, len: usize) -> Result<(), Fault> {
        // Pages at both ends are rounded up.
        let len = len.min(self.room_bytes().saturating_sub(2 * PAGE_BYTES));
        self.pin(cx, addr, self.reachable(addr, len))
    }

    /// Makes everything resident that a call's arguments point to. Lengths of a transfer in `args` are cut to `window_bytes`, unless
    /// that is [`UNCUT`].
    pub fn arguments(
        &mut self,
        cx: &mut Cx,
        call: Option<&Call>,
        args: &mut [usize; 6],
        window_bytes: usize,
    ) -> Result<(), Fault> {
        let Some(call) = call else {
            for &arg in args.iter() {
                if overlaps_managed(arg, DEFAULT_BYTES as usize) {
                    self.pin(cx, arg, DEFAULT_BYTES as usize)?;
                }
            }
            return Ok(());
        };
        // What is cut to was found to have room, and the limit may have moved since.
        if window_bytes != UNCUT {
            self.most_bytes = self.most_bytes.max(window_bytes.saturating_add(SHORT_BYTES));
        }
        self.set_access(call.access());
        let pointers = pointers::pointers_of(call.nr, args);
        for (i, spec) in call.args.iter().enumerate().filter(|(i, _)| pointers & 1 << i != 0) {
            let at = args[i];
            match *spec {
                Arg::No => {}
                Arg::Buf(k) => self.buffer(cx, call, at, args, k as usize, window_bytes)?,
                Arg::IntBuf(k) => {
                    let len = args[k as usize] as u32 as usize;
                    // What is too long for the others is refused, or they look at the first of it.
                    let is_whole = matches!(call.nr, nr::SETSOCKOPT | nr::SYSLOG) && len <= i32::MAX as usize;
                    let most = if is_whole { len } else { SIZED_MAX_BYTES };
                    self.pin(cx, at, self.reachable(at, len.min(most)))?;
                }
                Arg::Message(k) => self.pin(cx, at, args[k as usize].saturating_add(8))?,
                Arg::Each(k, bytes) => {
                    // Some calls take an int here, whose upper half says nothing.
                    let count = (args[k as usize] as u32 as usize).min(ELEMENTS_MAX);
                    self.pin(cx, at, count * bytes as usize)?;
                }
                Arg::N(bytes) => self.pin(cx, at, bytes as usize)?,
                Arg::Str => self.string(cx, at)?,
                Arg::Iov(k) => {
                    // As the kernel takes it, but for the other process's of two, of which more are refused.
                    let mut count = args[k as usize] as u32 as usize;
                    if call.transfer && window_bytes == UNCUT {
                        self.uncut_vector(cx, at, count)?;
                    } else {
                        self.buffers(cx, at, &mut count, call.transfer.then_some(window_bytes))?;
                    }
                    if call.transfer {
                        args[k as usize] = count;
                    }
                }
                Arg::Msg => self.message(cx, at)?,
                Arg::Mmsg(k) => {
                    for i in 0..(args[k as usize] as u32 as usize).min(IOV_MAX) {
                        let at = at + i * MMSGHDR_BYTES;
                        // The kernel, too, may do fewer than were asked for.
                        if i > 0 && !self.has_room(cx, at) {
                            args[k as usize] = i;
                            break;
                        }
                        self.pin(cx, at, MMSGHDR_BYTES)?;
                        self.message(cx, at)?;
                    }
                }
                Arg::SizedBy(k) => {
                    if let Some(len) = self.read::<u32>(cx, args[k as usize]) {
                        // SO_GET_FILTER counts instructions.
                        let each = if call.nr == nr::GETSOCKOPT && args[1] == 1 && args[2] == 26 { 8 } else { 1 };
                        self.pin(cx, at, (len as usize * each).min(SIZED_MAX_BYTES))?;
                    }
                }
                Arg::FdSet(k) => {
                    let words = (args[k as usize] as u32 as usize).div_ceil(64);
                    self.pin(cx, at, words.min(FD_SET_MAX_WORDS) * 8)?;
                }
                Arg::Forever(bytes) => {
                    self.pin(cx, at, bytes as usize)?;
                    keep_pages(self.live, at, bytes as usize);
                }
            }
        }
        match structures::find(call.nr, args) {
            Some(structure) => self.structures(cx, structure, args),
            None => Ok(()),
        }
    }

    /// What pointers in an argument's structures lead to.
    fn structures(&mut self, cx: &mut Cx, structure: &Structure, args: &[usize; 6]) -> Result<(), Fault> {
        let at = args[structure.arg as usize];
        let (count, bytes) = structure.extent(args);
        match structure.inner {
            Inner::Guess => self.guess(cx, at, bytes),
            Inner::Behind(length) => {
                let len = self.length(cx, at, length);
                self.uncut_buffer(cx, at.wrapping_add(bytes), len)
            }
            Inner::At(pointers) => {
                for i in 0..count.min(IOV_MAX) {
                    for &(offset, length) in pointers {
                        self.inner(cx, at.wrapping_add(i * bytes), offset, length)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// A length that stands in the structure at `at`: 0 where it cannot be read, or is none of these.
    fn length(&mut self, cx: &mut Cx, at: usize, length: Length) -> usize {
        let Length::Field { at: field, bytes, each } = length else { return 0 };
        let field = at.wrapping_add(field as usize);
        let count = match bytes {
            2 => self.read::<u16>(cx, field).map(usize::from),
            4 => self.read::<u32>(cx, field).map(|n| n as usize),
            _ => self.read::<usize>(cx, field),
        };
        count.unwrap_or(0).saturating_mul(each as usize)
    }

    /// What a pointer in a structure leads to.
    fn inner(&mut self, cx: &mut Cx, at: usize, offset: u16, length: Length) -> Result<(), Fault> {
        let Some(to) = self.read::<usize>(cx, at.wrapping_add(offset as usize)) else { return Ok(()) };
        match length {
            Length::Str => self.string(cx, to),
            Length::Bytes(len) => self.pin(cx, to, len as usize),
            Length::Field { .. } => {
                // Others may follow it, which must find room.
                let most = SIZED_MAX_BYTES.max(self.room_bytes() / 2);
                let len = self.length(cx, at, length).min(most);
                self.pin(cx, to, len)
            }
        }
    }

    /// Makes resident what words of a structure may point to. None of it must be: a call that takes such a word for something
    /// else does not fail for it.
    fn guess(&mut self, cx: &mut Cx, at: usize, bytes: usize) -> Result<(), Fault> {
        let mut guesses = 0;
        for i in 0..(bytes / 8).min(GUESS_WORDS) {
            let Some(word) = self.read::<usize>(cx, at.wrapping_add(i * 8)) else { return Ok(()) };
            if in_managed(word) && self.reachable(word, 1) == 1 && guesses < GUESSES {
                guesses += 1;
                let _ = self.pin(cx, word, self.reachable(word, DEFAULT_BYTES as usize));
            }
        }
        Ok(())
    }

    /// A buffer whose length is argument `k`, which is cut where the call may do less than was asked.
    fn buffer(
        &mut self,
        cx: &mut Cx,
        call: &Call,
        at: usize,
        args: &mut [usize; 6],
        k: usize,
        window_bytes: usize,
    ) -> Result<(), Fault> {
        const MSG_WAITALL: usize = 0x100;
        let waits_for_all = call.nr == nr::RECVFROM && args[3] & MSG_WAITALL != 0;
        let len = &mut args[k];
        if matches!(call.nr, nr::GETDENTS | nr::GETDENTS64) {
            // An unsigned int.
            *len = *len as u32 as usize;
        }
        if matches!(call.nr, nr::SENDTO | nr::RECVFROM) {
            // Sockets take any length for the largest.
            *len = (*len).min(MAX_RW_COUNT);
        } else if is_refused(at, *len) {
            // The kernel refuses this length; cut, it would not.
            return Ok(());
        }
        if call.transfer && window_bytes == UNCUT {
            return self.uncut_buffer(cx, at, *len);
        }
        // Who waits for all of it takes less for the end of the connection.
        if call.transfer && !waits_for_all && overlaps_managed(at, *len) {
            *len = (*len).min(window_bytes);
        }
        let len = self.reachable(at, *len);
        self.pin(cx, at, len)
    }

    /// The buffers of a vector, whose number is cut to those that fit `limit`.
    fn buffers(&mut self, cx: &mut Cx, at: usize, count: &mut usize, limit: Option<usize>) -> Result<(), Fault> {
        let usable = self.vector(cx, at, *count, &mut { limit })?;
        // One element at least goes out whole, however long: the call would do nothing otherwise.
        if usable == 0 && *count > 0 {
            if let Some(iov) = self.read::<Iovec>(cx, at) {
                self.pin(cx, iov.base, self.reachable(iov.base, iov.len))?;
            }
        }
        if limit.is_some() && usable < *count {
            *count = usable.max(1);
        }
        Ok(())
    }
}

/// Whether the kernel accepts an element of a vector: a length that is not negative. One that is too large counts as the largest
/// that a call moves.
fn is_allowed(iov: &Iovec) -> bool {
    (iov.len as isize) >= 0
}

/// Whether the kernel refuses a buffer: its length is negative, or it ends beyond what a process can have.
fn is_refused(addr: usize, len: usize) -> bool {
    (len as isize) < 0 || in_managed(addr) && addr.saturating_add(len) > TASK_SIZE
}
