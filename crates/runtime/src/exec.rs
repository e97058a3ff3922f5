//! exec: the new program is managed too.
//!
//! All strings are copied to memory of our own first, so that nothing the kernel reads is managed. A vforked child shares this
//! memory and never comes back to free it; its buffer is taken back once it has left.
use crate::assist::{CallPins, Cx};
use crate::gate::Part;
use crate::layout::in_arena;
use crate::live::Live;
use crate::{assist, budget, code, foreign, gate, init, parts, rlimits};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_control::{self as control, PLACE_BYTES, Place, until_nul};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr, os};

/// Paths are relative to the working directory.
const AT_FDCWD: usize = -100isize as usize;
const BUFFERS: usize = 16;
/// More than the kernel accepts of arguments and pointers (6 MiB at most), so that it is the kernel that refuses.
const BUFFER_BYTES: usize = 8 << 20;

/// How often to look for a free buffer before giving up: a few seconds. The kernel can hang on to one for as long as a program's
/// file takes to be read.
const BUFFER_WAITS: u32 = 1 << 14;

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

    fn put(&mut self, part: &[u8]) -> Result<(), Errno> {
        let at = self.room(part.len())?;
        // SAFETY: room of that size in our buffer.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), at as *mut u8, part.len()) };
        Ok(())
    }

    fn text(&mut self, parts: &[&[u8]]) -> Result<usize, Errno> {
        let start = self.at + self.used;
        parts.iter().chain([&b"\0".as_slice()]).try_for_each(|part| self.put(part))?;
        Ok(start)
    }

    /// Copies a NUL-terminated string of the program's, and gives the copy without the NUL. It stays until the buffer is
    /// given back.
    fn bytes(&mut self, live: &Live, cx: &mut Cx, from: usize) -> Result<&'static [u8], Errno> {
        let mark = self.used;
        let copy = self.string(live, cx, from)?;
        // SAFETY: just written to our buffer, of which nothing is written twice unless `used` is set back.
        Ok(unsafe { core::slice::from_raw_parts(copy as *const u8, self.used - mark - 1) })
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
            let bytes = self.bytes(live, cx, pointer)?;
            if keep(bytes) {
                // SAFETY: within the array.
                unsafe { *array.add(n) = bytes.as_ptr() as usize };
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

/// Takes a buffer for a thread, waiting a while where all are in use. Buffers of threads that were killed before their exec, or
/// executed another program, are taken back. `EAGAIN` where none becomes free.
fn take_buffer(
    owners: &[AtomicU32],
    tid: i32,
    is_alive: impl Fn(i32) -> bool,
    mut pause: impl FnMut(u32),
) -> Result<usize, Errno> {
    let tid = tid as u32;
    for spins in 0..BUFFER_WAITS {
        let free = owners.iter().position(|o| o.compare_exchange(0, tid, AcqRel, Relaxed).is_ok());
        let found = free.or_else(|| {
            owners.iter().position(|o| {
                let owner = o.load(Acquire);
                !is_alive(owner as i32) && o.compare_exchange(owner, tid, AcqRel, Relaxed).is_ok()
            })
        });
        match found {
            Some(found) => return Ok(found),
            None => pause(spins),
        }
    }
    Err(Errno::EAGAIN)
}

/// Serves execve and execveat: the call is made to run in a stub, so that a signal that comes before it finds the program's own
/// code, and the new program inherits the program's own signal mask.
pub fn exec(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let buffer = match take_buffer(&OWNERS, os::gettid(), |tid| foreign::is_alive(live, tid), os::wait_a_little) {
        Ok(buffer) => buffer,
        Err(e) => {
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    let at = BASE.load(Acquire) + buffer * BUFFER_BYTES;
    // As this process has them: the strings may be copied in another.
    let limits = rlimits::handed_on();
    let copied =
        live.with(move |cx| copy(live, cx, nr, args, at, &limits).map(|strings| (strings, CallPins::new(live).slot())));
    let ([path, argv, envp], slot) = match copied {
        Ok(copied) => copied,
        Err(e) => {
            OWNERS[buffer].store(0, Release);
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    let (dir, flags) = if nr == nr::EXECVE { (AT_FDCWD, 0) } else { (args[0], args[4]) };
    let target = look_ahead(live, nr, args, path);
    if target != Target::Managed {
        rlimits::give_to_kernel(target != Target::Fails && rlimits::is_executable(dir, path, flags));
    }
    let domain = code::randomize();
    if live.is_own_process() {
        budget::begin_exec(live);
        live.contexts.with(|_| live.pager.store.begin_exec());
    }
    let changed = match nr {
        nr::EXECVE => [path, argv, envp, 0, 0, 0],
        _ => [args[0], path, argv, envp, args[4], 0],
    };
    parts::run(slot, Part::Exec, nr, changed, &mut uc.gregs);
    // SAFETY: the slot is this call's.
    let state = unsafe { &mut *gate::state(slot) };
    (state.buffer, state.domain) = (buffer, domain);
}

/// After an exec that failed, or is not to be: undoes what was done for it.
pub fn failed(live: &'static Live, buffer: usize, domain: Option<usize>) {
    code::restore(domain);
    rlimits::take_back(live);
    if live.is_own_process() {
        live.contexts.with(|_| {
            live.pager.store.exec_failed();
            budget::exec_failed(live)
        });
    }
    OWNERS[buffer].store(0, Release);
}

fn copy(
    live: &Live,
    cx: &mut Cx,
    nr: usize,
    args: [usize; 6],
    at: usize,
    limits: &rlimits::HandedOn,
) -> Result<[usize; 3], Errno> {
    let mut buffer = Buffer { at, used: 0 };
    let [path, argv, envp] = if nr == nr::EXECVE { [args[0], args[1], args[2]] } else { [args[1], args[2], args[3]] };
    let path = buffer.string(live, cx, path)?;
    let argv = buffer.array(live, cx, argv, |_| true, &[])?;
    let follow = live.control.config.no_follow == 0;

    // The program may have cleared or changed the environment.
    let mut found = Found::default();
    let ours = init::place(live.control);
    let mut i = 0;
    while envp != 0 && i * 8 < BUFFER_BYTES {
        let pointer = word(live, cx, envp + i * 8)?;
        if pointer == 0 {
            break;
        }
        let mark = buffer.used;
        if !found.see(buffer.bytes(live, cx, pointer)?) {
            buffer.used = mark;
        }
        i += 1;
    }
    let mut more = [0usize; 3];
    let mut n = 0;
    if follow && !limits.value().is_empty() {
        more[n] = buffer.text(&[rlimits::VARIABLE, b"=", limits.value()])?;
        n += 1;
    }
    let place = found.control.and_then(Place::parse);
    if follow && place.is_some_and(|place| !place.is_same_run(&ours) && place.is_inside(&ours)) {
        // A run that was started inside this one manages the program, and keeps to our limit as well.
        let keep = |entry: &[u8]| value_of(entry, rlimits::VARIABLE).is_none();
        let envp = buffer.array(live, cx, envp, keep, &more[..n])?;
        return Ok([path, argv, envp]);
    }
    let (mark, start) = (buffer.used, buffer.at + buffer.used);
    buffer.put(b"LD_PRELOAD=")?;
    let libraries = until_nul(&live.control.config.preload);
    if write_preload(libraries, found.preload.unwrap_or_default(), follow, |part| buffer.put(part))? {
        buffer.put(b"\0")?;
        more[n] = start;
        n += 1;
    } else {
        buffer.used = mark;
    }
    if follow {
        let mut value = [0u8; PLACE_BYTES];
        more[n] = buffer.text(&[control::ENV.as_bytes(), b"=", ours.write(&mut value)])?;
        n += 1;
    }
    let ours = [control::ENV.as_bytes(), b"LD_PRELOAD", rlimits::VARIABLE];
    let keep = |entry: &[u8]| ours.iter().all(|name| value_of(entry, name).is_none());
    let envp = buffer.array(live, cx, envp, keep, &more[..n])?;
    Ok([path, argv, envp])
}

/// What of a new program's environment concerns us.
#[derive(Default)]
struct Found<'a> {
    /// Of several, the dynamic linker takes the last.
    preload: Option<&'a [u8]>,
    /// Of several, our own set-up takes the first.
    control: Option<&'a [u8]>,
}
impl<'a> Found<'a> {
    /// Looks at the next entry. Returns whether it is kept.
    fn see(&mut self, entry: &'a [u8]) -> bool {
        if let Some(value) = value_of(entry, b"LD_PRELOAD") {
            self.preload = Some(value);
            return true;
        }
        match value_of(entry, control::ENV.as_bytes()) {
            Some(value) if self.control.is_none() => {
                self.control = Some(value);
                true
            }
            _ => false,
        }
    }
}

/// The value of an entry of the environment, if that is its name.
fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Writes a value for `LD_PRELOAD`: our libraries first, if they are to be `with`in it, then what else stands in `value`.
/// Returns whether it is not empty.
fn write_preload(
    libraries: &[u8],
    value: &[u8],
    with: bool,
    mut put: impl FnMut(&[u8]) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    let is_separator = |b: &u8| *b == b':' || *b == b' ';
    let mut any = with && !libraries.is_empty();
    if any {
        put(libraries)?;
    }
    for entry in value.split(is_separator).filter(|e| !e.is_empty()) {
        if libraries.split(is_separator).any(|l| l == entry) {
            continue;
        }
        if any {
            put(b":")?;
        }
        put(entry)?;
        any = true;
    }
    Ok(any)
}

/// What a program that is to be executed will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// Managed, as far as can be seen.
    Managed,
    /// Not managed, or nobody knows.
    Unmanaged,
    /// Nothing: its interpreter cannot be executed.
    Fails,
}

/// Looks at the program about to run. Says so if it should be managed and cannot: it has no dynamic linker, or runs with other
/// rights.
fn look_ahead(live: &Live, nr: usize, args: [usize; 6], path: usize) -> Target {
    if live.control.config.no_follow != 0 {
        return Target::Unmanaged;
    }
    // SAFETY: `copy` wrote a NUL-terminated string there.
    let path = unsafe { core::ffi::CStr::from_ptr(path as *const core::ffi::c_char) }.to_bytes_with_nul();
    let directory = (nr == nr::EXECVEAT).then_some(args[0] as i32);
    let (mut name, mut head) = ([0u8; LINE_BYTES], [0u8; HEAD_BYTES]);
    let mut found = look_at(directory, path, &mut head);
    for _ in 0..MAX_INTERPRETERS {
        // A script is what its interpreter is.
        let Some((_, len)) = found else { break };
        let Some(interpreter) = interpreter(&head[..len.min(LINE_BYTES)]) else { break };
        name = [0; LINE_BYTES];
        name[..interpreter.len()].copy_from_slice(interpreter);
        found = look_at(None, &name[..interpreter.len() + 1], &mut head);
    }
    let Some((status, len)) = found else {
        let fails = name[0] != 0 && !rlimits::is_executable(AT_FDCWD, name.as_ptr() as usize, 0);
        return if fails { Target::Fails } else { Target::Unmanaged };
    };
    if interpreter(&head[..len.min(LINE_BYTES)]).is_some() {
        // A script still, beyond what the kernel follows.
        return Target::Fails;
    }
    const SET_ID: u32 = 0o6000;
    let why: &[u8] = match is_dynamic(&head[..len]) {
        Some(false) => b"is statically linked",
        Some(true) if status.mode & SET_ID != 0 && os::geteuid() != 0 => b"is set-uid or set-gid",
        // With other rights than its user's the dynamic linker may leave our libraries out.
        Some(true) if status.mode & SET_ID == 0 && !os::has_mixed_ids() && can_preload(live) => return Target::Managed,
        _ => return Target::Unmanaged,
    };
    live.control.processes_unmanaged.fetch_add(1, Relaxed);
    let mut text = [0u8; 200];
    let mut at = 0;
    let name = if name[0] == 0 { &path[..path.len() - 1] } else { until_nul(&name) };
    for part in [b"warning: ", &name[..name.len().min(120)], b" ", why, b": it runs without Outswap"] {
        text[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    live.warn(&text[..at]);
    Target::Unmanaged
}

/// Whether the libraries are where the dynamic linker will look for them, which in another root directory they may not be.
fn can_preload(live: &Live) -> bool {
    const F_OK: usize = 0;
    let mut libraries = until_nul(&live.control.config.preload).split(|b| *b == b':' || *b == b' ');
    let mut path = [0u8; 1024];
    libraries.all(|library| {
        let Some(place) = path.get_mut(..library.len() + 1) else { return false };
        place[..library.len()].copy_from_slice(library);
        place[library.len()] = 0;
        // SAFETY: a NUL-terminated path that lives through the call.
        unsafe { outswap_sys::syscall3(nr::FACCESSAT, AT_FDCWD, place.as_ptr() as usize, F_OK) == 0 }
    })
}

/// Bytes of a program's header that are looked at.
const HEAD_BYTES: usize = 1024;
/// Bytes of a script in which the kernel looks for its interpreter.
const LINE_BYTES: usize = 256;
/// Interpreters of interpreters that the kernel follows.
const MAX_INTERPRETERS: usize = 4;

/// The interpreter that a script names; shorter than what it is read from.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    line.split(|b| b" \t\0".contains(b)).find(|word| !word.is_empty())
}

/// Reads the beginning of a program. `None` where it cannot be read, or is no regular file, which then is not opened either.
fn look_at(directory: Option<i32>, path: &[u8], head: &mut [u8]) -> Option<(os::FileStatus, usize)> {
    if let (Some(fd), b"\0") = (directory, path) {
        // The program is the descriptor itself, whose position is not ours to move.
        let status = os::fstat(fd).ok().filter(os::FileStatus::is_regular)?;
        return Some((status, os::pread(fd, head, 0).ok()?));
    }
    let (fd, status) = os::open_regular(directory, path, os::O_RDONLY)?;
    let len = os::pread(fd, head, 0);
    let _ = os::close(fd);
    Some((status, len.ok()?))
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
        if u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preload(libraries: &str, value: &str, with: bool) -> Option<String> {
        let mut text = Vec::new();
        let put = |part: &[u8]| {
            text.extend_from_slice(part);
            Ok(())
        };
        let any = write_preload(libraries.as_bytes(), value.as_bytes(), with, put).expect("put never fails");
        assert_eq!(any, !text.is_empty());
        any.then(|| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn a_managed_program_has_our_libraries_first_and_keeps_its_own() {
        for (value, want) in [
            ("", "/o/p.so:/o/m.so"),
            ("/o/p.so:/o/m.so", "/o/p.so:/o/m.so"),
            ("/u.so", "/o/p.so:/o/m.so:/u.so"),
            ("/o/p.so:/o/m.so:/u.so /v.so", "/o/p.so:/o/m.so:/u.so:/v.so"),
            ("/u.so:/o/p.so:/o/m.so", "/o/p.so:/o/m.so:/u.so"),
            ("/o/m.so", "/o/p.so:/o/m.so"),
            ("/o/p.so:/o/m.so.2", "/o/p.so:/o/m.so:/o/m.so.2"),
            (" :: ", "/o/p.so:/o/m.so"),
        ] {
            assert_eq!(preload("/o/p.so:/o/m.so", value, true).as_deref(), Some(want), "{value}");
        }
    }

    #[test]
    fn a_program_left_alone_keeps_its_own_libraries() {
        for (value, want) in [
            ("", None),
            ("/o/p.so:/o/m.so", None),
            ("/o/p.so:/o/m.so:/u.so", Some("/u.so")),
            ("/u.so", Some("/u.so")),
            ("/u.so:/o/p.so:/v.so", Some("/u.so:/v.so")),
            ("/o/p.so /o/m.so u.so", Some("u.so")),
            ("/o/p.so.1", Some("/o/p.so.1")),
            (":", None),
        ] {
            assert_eq!(preload("/o/p.so:/o/m.so", value, false).as_deref(), want, "{value}");
        }
        assert_eq!(preload("", "/u.so", true).as_deref(), Some("/u.so"));
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let full = |_: &[u8]| Err(Errno::E2BIG);
        assert_eq!(write_preload(b"/o/p.so", b"", true, full), Err(Errno::E2BIG));
        assert_eq!(write_preload(b"/o/p.so", b"", false, full), Ok(false));
    }

    #[test]
    fn variables_are_known_by_their_whole_name() {
        assert_eq!(value_of(b"LD_PRELOAD=x=y", b"LD_PRELOAD"), Some(b"x=y".as_slice()));
        assert_eq!(value_of(b"LD_PRELOAD=", b"LD_PRELOAD"), Some(b"".as_slice()));
        for other in ["LD_PRELOAD", "LD_PRELOADX=1", "XLD_PRELOAD=1", "=LD_PRELOAD=", ""] {
            assert_eq!(value_of(other.as_bytes(), b"LD_PRELOAD"), None, "{other}");
        }
    }

    #[test]
    fn of_several_the_one_counts_that_the_new_program_takes() {
        let mut found = Found::default();
        let entries = ["A=1", "OUTSWAP_CONTROL=1", "LD_PRELOAD=a", "OUTSWAP_CONTROL=2", "LD_PRELOAD=b", "OUTSWAP=3"];
        let kept = entries.map(|entry| found.see(entry.as_bytes()));
        assert_eq!(kept, [false, true, true, false, true, false]);
        assert_eq!((found.preload, found.control), (Some(b"b".as_slice()), Some(b"1".as_slice())));
    }

    #[test]
    fn a_buffer_of_a_killed_thread_is_taken_back_and_that_of_a_live_one_waited_for() {
        let owners = [const { AtomicU32::new(0) }; 3];
        let never = |_: u32| panic!("there is a buffer");
        assert_eq!(take_buffer(&owners, 10, |_| true, never), Ok(0));
        assert_eq!(take_buffer(&owners, 11, |_| true, never), Ok(1));
        assert_eq!(take_buffer(&owners, 12, |_| true, never), Ok(2));
        assert_eq!(take_buffer(&owners, 13, |tid| tid != 11, never), Ok(1));
        assert_eq!(owners[1].load(Relaxed), 13);
        let mut waits = 0;
        let give_back = |_: u32| {
            waits += 1;
            if waits == 5 {
                owners[2].store(0, Relaxed);
            }
        };
        assert_eq!(take_buffer(&owners, 14, |tid| tid != 0, give_back), Ok(2));
        assert_eq!(waits, 5);
        assert_eq!(take_buffer(&owners, 15, |_| true, |_| ()), Err(Errno::EAGAIN), "no wait is without an end");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = std::env::temp_dir().join(format!("outswap-exec-{}", os::getpid()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let path = |name: &str| [dir.join(name).to_str().expect("UTF-8").as_bytes(), b"\0"].concat();
        const FIFO: usize = 0o010755;
        // SAFETY: a NUL-terminated path that lives through the call.
        let made = unsafe { outswap_sys::syscall3(nr::MKNOD, path("fifo").as_ptr() as usize, FIFO, 0) };
        assert_eq!(made, 0);
        std::fs::write(dir.join("file"), b"#!/bin/sh\n").expect("writable");
        let mut head = [0u8; 64];
        // With a writer that waits, opening the FIFO would let that go on.
        assert_eq!(look_at(None, &path("fifo"), &mut head), None);
        assert_eq!(look_at(None, b"/dev/null\0", &mut head), None);
        assert_eq!(look_at(None, &path("."), &mut head), None);
        assert_eq!(look_at(None, &path("missing"), &mut head), None);
        assert_eq!(look_at(None, &path("file"), &mut head).map(|(_, len)| len), Some(10));
        let directory = os::open(&path(""), os::O_RDONLY, 0).expect("ours");
        assert_eq!(look_at(Some(directory), b"file\0", &mut head).map(|(_, len)| len), Some(10));
        assert_eq!(look_at(Some(directory), b"fifo\0", &mut head), None);
        let file = os::open(&path("file"), os::O_RDONLY, 0).expect("ours");
        assert_eq!(look_at(Some(file), b"\0", &mut head).map(|(_, len)| len), Some(10));
        assert_eq!(look_at(Some(directory), b"\0", &mut head), None);
        [file, directory].into_iter().for_each(|fd| os::close(fd).expect("ours"));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn scripts_name_their_interpreter() {
        for (head, want) in [
            ("#!/bin/sh\n", Some("/bin/sh")),
            ("#! \t/usr/bin/env python3\n#!/no", Some("/usr/bin/env")),
            ("#!/bin/sh", Some("/bin/sh")),
            ("#!\n/bin/sh", None),
            ("#!", None),
            ("\x7fELF", None),
        ] {
            assert_eq!(interpreter(head.as_bytes()), want.map(str::as_bytes), "{head}");
        }
    }

    #[test]
    fn headers_tell_whether_there_is_a_dynamic_linker() {
        let mut head = [0u8; 256];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32..40].copy_from_slice(&64u64.to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&2u16.to_le_bytes());
        assert_eq!(is_dynamic(&head), Some(false));
        head[64 + 56] = 3;
        assert_eq!(is_dynamic(&head), Some(true));
        assert_eq!(is_dynamic(b"#!/bin/sh"), None);
        for table in [u64::MAX, u64::MAX - 3, 250, 1 << 63] {
            head[32..40].copy_from_slice(&table.to_le_bytes());
            assert_eq!(is_dynamic(&head), None, "a table at {table:#x}");
        }
    }
}
