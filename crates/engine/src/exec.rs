//! exec: the new program is managed too.
//!
//! All strings are copied to memory of our own first, so that nothing the kernel reads is managed. A vforked child shares this
//! memory and never comes back to free it; the kernel clears the buffer's owner word when the child leaves
//! (`set_tid_address`), as it does for a thread's id.
use crate::control;
use crate::layout::in_arena;
use crate::live::Live;
use crate::signals::OURS;
use crate::{assist, budget, code, rlimits};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_core::engine::Context;
use outswap_store::Worker;
use outswap_sys::{Errno, nr, os, signal, syscall1, syscall3, syscall5};

type Cx = Context<Worker>;
const AT_FDCWD: usize = -100isize as usize;
const BUFFERS: usize = 16;
/// More than the kernel accepts of arguments and pointers (6 MiB at most), so that it is the kernel that refuses.
const BUFFER_BYTES: usize = 8 << 20;

static OWNERS: [AtomicU32; BUFFERS] = [const { AtomicU32::new(0) }; BUFFERS];
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Reserves the buffers.
pub fn reserve() -> outswap_sys::Result<()> {
    BASE.store(os::mmap_anonymous(BUFFERS * BUFFER_BYTES)?, Release);
    Ok(())
}

/// In a forked child: no other thread is at work on a buffer.
pub fn forget() {
    OWNERS.iter().for_each(|owner| owner.store(0, Release));
}

/// A buffer: strings from the start up, the arrays of pointers from the end down.
struct Buffer {
    at: usize,
    used: usize,
}

impl Buffer {
    fn room(&mut self, bytes: usize) -> Result<usize, Errno> {
        let at = self.used;
        self.used = at.checked_add(bytes).filter(|u| *u <= BUFFER_BYTES).ok_or(Errno::E2BIG)?;
        Ok(self.at + at)
    }

    /// Copies a NUL-terminated string of the program's.
    fn string(&mut self, live: &Live, cx: &mut Cx, from: usize) -> Result<usize, Errno> {
        let start = self.at + self.used;
        let mut from = from;
        loop {
            let mut chunk = [0u8; 256];
            let len = chunk.len().min(4096 - from % 4096);
            if !read(live, cx, from, &mut chunk[..len]) {
                return Err(Errno::EFAULT);
            }
            let end = chunk[..len].iter().position(|b| *b == 0);
            let take = end.map_or(len, |e| e + 1);
            let at = self.room(take)?;
            // SAFETY: room of that size in our buffer.
            unsafe { core::ptr::copy_nonoverlapping(chunk.as_ptr(), at as *mut u8, take) };
            if end.is_some() {
                return Ok(start);
            }
            from += len;
        }
    }

    fn text(&mut self, parts: &[&[u8]]) -> Result<usize, Errno> {
        let start = self.at + self.used;
        for part in parts.iter().chain([&b"\0".as_slice()]) {
            let at = self.room(part.len())?;
            // SAFETY: room of that size in our buffer.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), at as *mut u8, part.len()) };
        }
        Ok(start)
    }

    /// Copies an array of strings; `keep` says which (by their copy), `more` are appended.
    fn array(
        &mut self,
        live: &Live,
        cx: &mut Cx,
        from: usize,
        keep: impl Fn(&[u8]) -> bool,
        more: &[usize],
    ) -> Result<usize, Errno> {
        let mut count = 0;
        if from != 0 {
            while word(live, cx, from + count * 8)? != 0 {
                count += 1;
                if count * 8 > BUFFER_BYTES {
                    return Err(Errno::E2BIG);
                }
            }
        }
        self.used = self.used.next_multiple_of(8);
        let array = self.room((count + more.len() + 1) * 8)? as *mut usize;
        let mut n = 0;
        for i in 0..count {
            let mark = self.used;
            let pointer = word(live, cx, from + i * 8)?;
            let copy = self.string(live, cx, pointer)?;
            // SAFETY: `string` has just written these bytes to our buffer.
            let bytes = unsafe { core::slice::from_raw_parts(copy as *const u8, self.used - mark - 1) };
            if keep(bytes) {
                // SAFETY: within the array.
                unsafe { *array.add(n) = copy };
                n += 1;
            } else {
                self.used = mark;
            }
        }
        for pointer in more.iter().chain([&0]) {
            // SAFETY: within the array.
            unsafe { *array.add(n) = *pointer };
            n += 1;
        }
        Ok(array as usize)
    }
}

fn read(live: &Live, cx: &mut Cx, from: usize, buf: &mut [u8]) -> bool {
    if in_arena(from) { assist::copy_in(live, cx, from, buf) } else { assist::peek(from, buf) }
}

fn word(live: &Live, cx: &mut Cx, from: usize) -> Result<usize, Errno> {
    let mut bytes = [0u8; 8];
    read(live, cx, from, &mut bytes).then(|| usize::from_le_bytes(bytes)).ok_or(Errno::EFAULT)
}

/// Serves execve and execveat; returns only when the call fails. `mask` is the signal mask of the interrupted code, which the
/// new program inherits.
pub fn exec(live: &'static Live, nr: usize, args: [usize; 6], mask: u64) -> isize {
    let tid = os::gettid() as u32;
    let mut spins = 0;
    let buffer = loop {
        let free = OWNERS.iter().position(|o| o.compare_exchange(0, tid, AcqRel, Relaxed).is_ok());
        match free {
            Some(free) => break free,
            None => {
                os::wait_a_little(spins);
                spins += 1;
            }
        }
    };
    let at = BASE.load(Acquire) + buffer * BUFFER_BYTES;
    let own = live.is_own_process();
    let copied = live.with(move |cx| copy(live, cx, nr, args, at));
    let result = match copied {
        Err(e) => -(e.0 as isize),
        Ok([path, argv, envp]) => {
            if live.control.config.no_follow == 0 && nr == nr::EXECVE {
                tell_if_unmanaged(live, path);
            }
            if !own {
                // SAFETY: the word lives for ever; the kernel clears it when this child leaves our memory.
                unsafe { syscall1(nr::SET_TID_ADDRESS, OWNERS[buffer].as_ptr() as usize) };
            }
            // What this process uses ends with its memory. A managed program counts anew; one that is not must not stand for it.
            let charge = if own { live.record().charge_bytes.swap(0, AcqRel) } else { 0 };
            live.control.charge_bytes.fetch_sub(charge, AcqRel);
            let personality = code::randomize();
            signal::set_mask(mask & !OURS);
            match nr {
                nr::EXECVE => rlimits::hand_on(AT_FDCWD, path, 0),
                _ => rlimits::hand_on(args[0], path, args[4]),
            }
            // SAFETY: strings and arrays are in our buffer, NUL-terminated.
            let error = unsafe {
                match nr {
                    nr::EXECVE => syscall3(nr, path, argv, envp),
                    _ => syscall5(nr, args[0], path, argv, envp, args[4]),
                }
            };
            signal::set_mask(u64::MAX);
            code::restore(personality);
            rlimits::take_back(live);
            if own {
                live.contexts.with(|_| budget::refresh(live));
            } else {
                // SAFETY: takes the buffer's word away from the kernel again.
                unsafe { syscall1(nr::SET_TID_ADDRESS, 0) };
            }
            error
        }
    };
    OWNERS[buffer].store(0, Release);
    result
}

fn copy(live: &Live, cx: &mut Cx, nr: usize, args: [usize; 6], at: usize) -> Result<[usize; 3], Errno> {
    let mut buffer = Buffer { at, used: 0 };
    let [path, argv, envp] = if nr == nr::EXECVE { [args[0], args[1], args[2]] } else { [args[1], args[2], args[3]] };
    let path = buffer.string(live, cx, path)?;
    let argv = buffer.array(live, cx, argv, |_| true, &[])?;
    let config = &live.control.config;
    let preload = until_nul(&config.preload);
    let follow = config.no_follow == 0;
    let mut more = [0usize; 2];
    let mut n = 0;
    let mut kept_preload: &[u8] = b"";
    if follow {
        // The program may have cleared or changed the environment; what it put into LD_PRELOAD itself stays behind ours.
        let mut i = 0;
        while envp != 0 && i * 8 < BUFFER_BYTES {
            let pointer = word(live, cx, envp + i * 8)?;
            if pointer == 0 {
                break;
            }
            let mut head = [0u8; 11];
            if read(live, cx, pointer, &mut head) && &head == b"LD_PRELOAD=" {
                let mark = buffer.used;
                let copy = buffer.string(live, cx, pointer + 11)?;
                // SAFETY: just written to our buffer, and kept there.
                kept_preload = unsafe { core::slice::from_raw_parts(copy as *const u8, buffer.used - mark - 1) };
            }
            i += 1;
        }
        let ours = kept_preload.starts_with(preload);
        more[n] = match (ours, kept_preload.is_empty()) {
            (true, _) => buffer.text(&[b"LD_PRELOAD=", kept_preload])?,
            (false, true) => buffer.text(&[b"LD_PRELOAD=", preload])?,
            (false, false) => buffer.text(&[b"LD_PRELOAD=", preload, b":", kept_preload])?,
        };
        n += 1;
        let mut own = [0u8; 64];
        let own = crate::init::control_value(&mut own);
        more[n] = buffer.text(&[control::ENV.as_bytes(), b"=", own])?;
        n += 1;
    }
    let keep = |entry: &[u8]| {
        let name = |name: &[u8]| entry.starts_with(name) && entry.get(name.len()) == Some(&b'=');
        !(name(control::ENV.as_bytes()) || name(b"LD_PRELOAD"))
            || !follow && name(b"LD_PRELOAD") && !entry[11..].starts_with(preload)
    };
    let envp = buffer.array(live, cx, envp, keep, &more[..n])?;
    Ok([path, argv, envp])
}

/// Says so if a program about to run cannot be managed: it has no dynamic linker, or runs with other rights.
fn tell_if_unmanaged(live: &Live, path: usize) {
    // SAFETY: `copy` wrote a NUL-terminated string there.
    let path = unsafe { core::ffi::CStr::from_ptr(path as *const core::ffi::c_char) }.to_bytes_with_nul();
    let Ok(fd) = os::open(path, os::O_RDONLY | os::O_CLOEXEC, 0) else { return };
    let mut head = [0u8; 1024];
    let len = os::read(fd, &mut head).unwrap_or(0);
    let mut stat = [0u32; 36];
    // SAFETY: the buffer has the size of `struct stat`; the mode is at byte 24.
    let _ = unsafe { outswap_sys::syscall2(nr::FSTAT, fd as usize, stat.as_mut_ptr() as usize) };
    let _ = os::close(fd);
    const SET_ID: u32 = 0o6000;
    // SAFETY: asks for the effective user.
    let is_root = unsafe { outswap_sys::syscall0(nr::GETEUID) } == 0;
    let why: &[u8] = match is_dynamic(&head[..len]) {
        Some(false) => b"is statically linked",
        Some(true) if stat[6] & SET_ID != 0 && !is_root => b"is set-uid or set-gid",
        _ => return,
    };
    live.control.processes_unmanaged.fetch_add(1, Relaxed);
    let mut text = [0u8; 200];
    let mut at = 0;
    let name = &path[..path.len() - 1];
    for part in [b"warning: ", &name[..name.len().min(120)], b" ", why, b": it runs without Outswap"] {
        text[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    live.warn(&text[..at]);
}

/// Whether an ELF program of this machine names a dynamic linker; `None` where the bytes are something else (a script) or do
/// not tell.
fn is_dynamic(head: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?) as usize);
    if head.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(head.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    for i in 0..count {
        let at = table.checked_add(i * size)?;
        if u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}
