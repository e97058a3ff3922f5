//! What a file is that is about to be executed.
use crate::live::Live;
use crate::process;
use core::ffi::{CStr, c_char};
use outswap_control::{Found, MESSAGE_BYTES, Text, until_nul};
use outswap_sys::{Errno, nr, os, ret, syscall4};

/// Paths are relative to the working directory.
pub const AT_FDCWD: usize = -100isize as usize;

/// Bytes of a program's header that are looked at.
const HEAD_BYTES: usize = 1024;

/// Bytes of a script in which the kernel looks for its interpreter.
const LINE_BYTES: usize = 256;

/// Interpreters of interpreters that the kernel follows.
const MAX_INTERPRETERS: usize = 5;

/// Bytes of the header of a 64-bit ELF file; that of a 32-bit one is shorter.
const ELF_HEADER_BYTES: usize = 64;

/// What a program that is to be executed will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Managed, as far as can be seen.
    Managed,
    /// Not managed, or nobody knows.
    Unmanaged,
    /// Not managed, and our libraries, which need the C library, would keep it from starting.
    Alone,
    /// Nothing: its interpreter cannot be executed.
    Fails,
}

/// Why a program cannot be managed, and what it is then.
type Cause = (&'static [u8], Target);

/// What is known of a file beside what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Looked {
    status: os::FileStatus,
    has_capabilities: bool,
    /// As [`linking`] says.
    linking: Option<Linking>,
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Linking {
    /// It names no dynamic linker, and no library.
    Static,
    /// It names no dynamic linker, but libraries: only the linker, told to, makes a program of it.
    Library,
    /// It names one, and no library: there is no C library in it.
    Alone,
    /// To libraries.
    Dynamic,
}

/// Looks at the program about to run, of which path and arguments were copied. Says so if it should be managed and cannot.
///
/// # Errors
/// It is not to run then, where the configuration is strict: this is what its exec fails with.
pub fn look_ahead(live: &Live, nr: usize, args: [usize; 6], [path, argv]: [usize; 2]) -> Result<Target, Errno> {
    if live.control.config.no_follow != 0 {
        return Ok(Target::Unmanaged);
    }
    let is_strict = live.control.levels().any(|level| level.config.strict != 0);
    // SAFETY: `copy` wrote a NUL-terminated string there.
    let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes_with_nul();
    let directory = (nr == nr::EXECVEAT).then_some(args[0] as i32);
    let (mut name, mut head) = ([0u8; LINE_BYTES], [0u8; HEAD_BYTES]);
    let mut found = look_at(directory, path, &mut head);
    for _ in 0..MAX_INTERPRETERS {
        // A script is what its interpreter is.
        let Ok((_, len)) = found else { break };
        let Some(interpreter) = interpreter(&head[..len.min(LINE_BYTES)]) else { break };
        name = [0; LINE_BYTES];
        name[..interpreter.len()].copy_from_slice(interpreter);
        found = look_at(None, &name[..interpreter.len() + 1], &mut head);
    }
    let error = found.as_ref().err().copied();
    // Of a script its interpreter is asked about; without the right the kernel refuses.
    let (dir, flags) = if nr == nr::EXECVE { (AT_FDCWD, 0) } else { (args[0], args[4]) };
    let may_execute = |interpreter: &[u8]| {
        let is_script = interpreter[0] != 0;
        has_right(dir, path.as_ptr() as usize, flags)
            && (!is_script || has_right(AT_FDCWD, interpreter.as_ptr() as usize, 0))
    };
    let Ok((looked, len)) = found else {
        let fails = name[0] != 0 && !is_executable(AT_FDCWD, name.as_ptr() as usize, 0);
        if fails {
            return Ok(Target::Fails);
        }
        // What may be executed but not read may be managed or not.
        let may_not_read = match name[0] {
            0 => !may(dir, path.as_ptr() as usize, flags, R_OK),
            _ => !may(AT_FDCWD, name.as_ptr() as usize, 0, R_OK),
        };
        let is_out_of_numbers = matches!(error, Some(Errno::EMFILE));
        if !(is_strict && (may_not_read || is_out_of_numbers) && may_execute(&name)) {
            return Ok(Target::Unmanaged);
        }
        let name = if name[0] == 0 { &path[..path.len() - 1] } else { until_nul(&name) };
        tell(live, name, b"cannot be read, so nobody knows whether it can be managed", is_strict);
        return Err(error.filter(|_| is_out_of_numbers).unwrap_or(Errno::EACCES));
    };
    let head = &head[..len];
    if interpreter(&head[..len.min(LINE_BYTES)]).is_some() {
        // A script still, beyond what the kernel follows.
        return Ok(Target::Fails);
    }
    let own_name = if name[0] == 0 { &path[..path.len() - 1] } else { until_nul(&name) };
    let mut loaded_head = [0u8; HEAD_BYTES];
    let loaded = match looked.linking {
        Some(Linking::Static) if name[0] == 0 && is_dynamic_linker(own_name) => loaded(argv, &mut loaded_head),
        _ => None,
    };
    let (own_name, why) = match loaded {
        Some((program, why)) => (program, Some(why)),
        None => (own_name, why_unmanaged(live, head, &looked, own_name)),
    };
    let Some((why, target)) = why else {
        let is_program = looked.linking == Some(Linking::Dynamic) || is_dynamic_linker(own_name);
        // What is no program has the error that the kernel gives, unless that runs it by other means.
        return if is_program {
            Ok(Target::Managed)
        } else if is_strict && may_execute(&name) {
            Err(Errno::ENOEXEC)
        } else {
            Ok(Target::Unmanaged)
        };
    };
    let starts = match name[0] {
        _ if is_strict => may_execute(&name),
        0 => is_executable(dir, path.as_ptr() as usize, flags),
        _ => is_executable(AT_FDCWD, name.as_ptr() as usize, 0),
    };
    if !starts {
        return Ok(Target::Unmanaged);
    }
    tell(live, own_name, why, is_strict);
    if is_strict {
        return Err(Errno::EACCES);
    }
    live.control.count_unmanaged();
    Ok(target)
}

/// Why a program cannot be managed, if so, and what it is then.
fn why_unmanaged(live: &Live, head: &[u8], looked: &Looked, name: &[u8]) -> Option<Cause> {
    const CLASS_32: u8 = 1;
    const EM_X86_64: [u8; 2] = [62, 0];
    if !head.starts_with(b"\x7fELF") || head.len() < ELF_HEADER_BYTES {
        return None;
    }
    let why: &'static [u8] = match looked.linking {
        _ if head[4] == CLASS_32 => b"is a 32-bit program",
        _ if head[18..20] != EM_X86_64 => b"is built for another processor",
        // The dynamic linker has none itself, and loads our libraries all the same.
        Some(Linking::Static | Linking::Library) if !is_dynamic_linker(name) => b"is statically linked",
        _ if is_of_musl(head) => b"is linked with musl",
        Some(Linking::Alone) => b"uses no C library",
        // With other rights than its user's the dynamic linker leaves our libraries out.
        _ if changes_ids(looked) => b"is set-uid or set-gid",
        _ if gives_capabilities(looked) => b"has file capabilities",
        _ if os::has_mixed_ids() => b"runs with other rights than its user's",
        _ => return libraries(live),
    };
    // The dynamic linker of musl loads what is named to it, or ends where it cannot.
    let is_alone = looked.linking == Some(Linking::Alone) || is_of_musl(head);
    Some((why, if is_alone { Target::Alone } else { Target::Unmanaged }))
}

/// Whether a path is that of the C library's dynamic linker.
fn is_dynamic_linker(path: &[u8]) -> bool {
    let name = path.rsplit(|c| *c == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-linux-") || name.starts_with(b"ld-2.") || name == b"ld.so"
}

/// The program that the dynamic linker is to run, if that cannot be managed, and why. `argv`: the linker's arguments, as they were copied.
fn loaded(argv: usize, head: &mut [u8]) -> Option<(&'static [u8], Cause)> {
    let mut at = argv as *const *const c_char;
    let words = core::iter::from_fn(|| {
        // SAFETY: an array in our buffer that ends with a null pointer, beyond which nothing is asked for.
        let word = unsafe { *at };
        if word.is_null() {
            return None;
        }
        // SAFETY: not the end yet; the strings are in our buffer, too, and stay until the exec is over.
        unsafe {
            at = at.add(1);
            Some(CStr::from_ptr(word).to_bytes_with_nul())
        }
    });
    let program = program_of_linker(words)?;
    let (looked, _) = look_at(None, program, head).ok()?;
    let name = &program[..program.len() - 1];
    match looked.linking? {
        Linking::Static if !is_dynamic_linker(name) => Some((name, (b"is statically linked", Target::Unmanaged))),
        Linking::Alone => Some((name, (b"uses no C library", Target::Alone))),
        _ => None,
    }
}

/// Of the dynamic linker's arguments (NUL-terminated), the path of the program that it is to run. `None` where it runs none, or searches for one
/// among the libraries.
fn program_of_linker<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    const WITH_VALUE: [&[u8]; 7] = [
        b"--library-path",
        b"--preload",
        b"--audit",
        b"--argv0",
        b"--inhibit-rpath",
        b"--glibc-hwcaps-prepend",
        b"--glibc-hwcaps-mask",
    ];
    words.next();
    loop {
        let word = words.next()?;
        match &word[..word.len() - 1] {
            b"--" => return words.next().filter(|word| word.contains(&b'/')),
            b"--inhibit-cache" => {}
            option if WITH_VALUE.contains(&option) => {
                words.next()?;
            }
            // It lists or verifies, or knows no such option.
            option if option.starts_with(b"--") => return None,
            program => return program.contains(&b'/').then_some(word),
        }
    }
}

/// Whether a file's rights count for who executes it: nothing gives any where a sandbox, or our own filter, forbade that.
fn gives_rights() -> bool {
    const PR_GET_NO_NEW_PRIVS: usize = 39;
    // SAFETY: asks for a number.
    unsafe { syscall4(nr::PRCTL, PR_GET_NO_NEW_PRIVS, 0, 0, 0) != 1 }
}

/// Whether a file makes who executes it another user, or one of another group.
fn changes_ids(looked: &Looked) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2000;
    let is_other = looked.status.mode & SET_UID != 0 && looked.status.uid != os::geteuid();
    (is_other || looked.status.mode & SET_GID != 0) && gives_rights()
}

/// Whether a file gives who executes it capabilities that he has not.
fn gives_capabilities(looked: &Looked) -> bool {
    // The dynamic linker is told to be careful also where they are not given (`no_new_privs`).
    looked.has_capabilities && os::geteuid() != 0
}

/// Says what becomes of a program that cannot be managed, and why it cannot.
fn tell(live: &Live, name: &[u8], why: &[u8], is_strict: bool) {
    /// Bytes of a name that are told.
    const NAME_BYTES: usize = 110;
    let mut buf = [0u8; MESSAGE_BYTES];
    let mut text = Text { buf: &mut buf, len: 0 };
    text.put(if is_strict { b"error: " } else { b"warning: " });
    text.put(&name[..name.len().min(NAME_BYTES)]);
    text.put(b" ");
    text.put(why);
    text.put(if is_strict { b": it was not executed (--strict)" } else { b": it runs without Outswap" });
    let len = text.len;
    if is_strict { live.control.post(&buf[..len]) } else { live.warn(&buf[..len]) }
}

/// Whether the dynamic linker that a program names is musl's.
fn is_of_musl(head: &[u8]) -> bool {
    const NAME: &[u8] = b"/ld-musl-";
    head.windows(NAME.len()).any(|name| name == NAME)
}

/// Why a program cannot load our libraries, if so, and what it is then: without those that would kill it, or that it complains of.
fn libraries(live: &Live) -> Option<Cause> {
    let config = live.control.config;
    let files = until_nul(&config.preload).split(|b| *b == b':' || *b == b' ');
    let mut path = [0u8; 1024];
    files.zip(&config.libraries).find_map(|(file, library)| {
        let found = path.get_mut(..file.len() + 1).map_or(Found::Missing, |place| {
            place[..file.len()].copy_from_slice(file);
            place[file.len()] = 0;
            library.find(place)
        });
        match found {
            Found::Same => None,
            Found::Other => Some((
                b"cannot load Outswap's libraries, which were replaced after the run began".as_slice(),
                Target::Alone,
            )),
            Found::Unreadable => {
                Some((b"cannot load Outswap's libraries, which may not be read".as_slice(), Target::Alone))
            }
            // In another root directory; who leaves that finds them again.
            Found::Missing => Some((
                b"cannot load Outswap's libraries, which are not where it looks for them".as_slice(),
                Target::Unmanaged,
            )),
        }
    })
}

/// The interpreter that a script names; shorter than what it is read from.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    line.split(|b| b" \t\0".contains(b)).find(|word| !word.is_empty())
}

/// Reads the beginning of a program.
///
/// # Errors
/// Where it cannot be read, or is no regular file, which then is not opened either.
fn look_at(directory: Option<i32>, path: &[u8], head: &mut [u8]) -> Result<(Looked, usize), Errno> {
    let look = |fd: i32, status: os::FileStatus, head: &mut [u8]| {
        let len = os::pread(fd, head, 0)?;
        let linking = linking(&head[..len], |at, to| os::pread(fd, to, at) == Ok(to.len()));
        Ok((Looked { status, has_capabilities: has_capabilities(fd), linking }, len))
    };
    let mut buf = [0u8; MESSAGE_BYTES];
    let (mut directory, mut path) = (directory, path);
    if let (Some(fd), b"\0") = (directory, path) {
        // The program is the descriptor itself, whose position is not ours to move.
        let status = os::fstat(fd)?;
        if !status.is_regular() {
            return Err(Errno::EACCES);
        }
        match look(fd, status, head) {
            // One that only names a file (`O_PATH`).
            Err(Errno::EBADF) => {
                let mut text = Text { buf: &mut buf, len: 0 };
                text.put(b"/proc/self/fd/");
                text.number(fd);
                text.put(b"\0");
                let len = text.len;
                (directory, path) = (None, &buf[..len]);
            }
            looked => return looked,
        }
    }
    let open = || os::open_regular(directory, path, os::O_RDONLY);
    let (fd, status) = match open() {
        // Another thread may have more numbers than it may, for a moment.
        Err(Errno::EMFILE) => process::with_all_descriptors(open)?,
        opened => opened?,
    };
    let looked = look(fd, status, head);
    let _ = os::close(fd);
    looked
}

/// Whether a file gives rights to who executes it.
fn has_capabilities(fd: i32) -> bool {
    let name = c"security.capability".as_ptr() as usize;
    // SAFETY: a NUL-terminated name; the value is not asked for, only its length.
    ret(unsafe { syscall4(nr::FGETXATTR, fd as usize, name, 0, 0) }).is_ok()
}

/// How a 64-bit ELF program is linked; `None` where the bytes are something else (a script) or do not tell. What is not in its head is
/// asked for with `read`, by its offset.
fn linking(head: &[u8], read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Linking> {
    const PT_DYNAMIC: u32 = 2;
    const PT_INTERP: u32 = 3;
    const HEADER_BYTES: u64 = 56;
    /// More program headers than any program has.
    const MAX_HEADERS: u64 = 128;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?) as u64);
    if head.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let (size, count) = (half(54)?, half(56)?);
    let (mut has_linker, mut dynamic) = (false, None);
    for i in 0..count.min(MAX_HEADERS) {
        let at = table.checked_add(i * size)?;
        let mut header = [0; HEADER_BYTES as usize];
        match usize::try_from(at).ok().and_then(|at| head.get(at..at.checked_add(header.len())?)) {
            Some(in_head) => header.copy_from_slice(in_head),
            None if size >= HEADER_BYTES && read(at, &mut header) => {}
            None => return None,
        }
        match u32::from_le_bytes(header[..4].try_into().ok()?) {
            PT_INTERP => has_linker = true,
            PT_DYNAMIC => dynamic = Some([8, 32].map(|at| u64::from_le_bytes(field(&header, at)))),
            _ => {}
        }
    }
    Some(match (has_linker, dynamic) {
        (false, Some([at, bytes])) if needs_library(at, bytes, &read) => Linking::Library,
        (false, _) => Linking::Static,
        (true, Some([at, bytes])) if !needs_library(at, bytes, &read) => Linking::Alone,
        (true, _) => Linking::Dynamic,
    })
}

/// Whether a program's dynamic section names a library. In doubt it does.
fn needs_library(at: u64, bytes: u64, read: &impl Fn(u64, &mut [u8]) -> bool) -> bool {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const ENTRY_BYTES: u64 = 16;
    /// More entries than any program has.
    const MAX_ENTRIES: u64 = 512;
    for i in 0..(bytes / ENTRY_BYTES).min(MAX_ENTRIES) {
        let mut entry = [0; ENTRY_BYTES as usize];
        let is_read = at.checked_add(i * ENTRY_BYTES).is_some_and(|at| read(at, &mut entry));
        match u64::from_le_bytes(field(&entry, 0)) {
            _ if !is_read => return true,
            DT_NEEDED => return true,
            DT_NULL => return false,
            _ => {}
        }
    }
    bytes / ENTRY_BYTES > MAX_ENTRIES
}

/// Eight bytes of a structure.
fn field(bytes: &[u8], at: usize) -> [u8; 8] {
    core::array::from_fn(|i| bytes[at + i])
}

/// Whether this process may execute a file (NUL-terminated path, relative to `dir`), as far as its rights go.
fn has_right(dir: usize, path: usize, flags: usize) -> bool {
    may(dir, path, flags, X_OK)
}

const X_OK: usize = 1;
const R_OK: usize = 4;

/// Asks the kernel for a right.
fn ask(dir: usize, path: usize, flags: usize, right: usize) -> Result<usize, Errno> {
    const AT_EACCESS: usize = 0x200;
    const AT_SYMLINK_NOFOLLOW: usize = 0x100;
    const AT_EMPTY_PATH: usize = 0x1000;
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    // SAFETY: the path is NUL-terminated, as the caller says.
    ret(unsafe { syscall4(nr::FACCESSAT2, dir, path, right, flags | AT_EACCESS) })
}

/// The same; where the kernel does not say, it is taken to be there.
fn may(dir: usize, path: usize, flags: usize, right: usize) -> bool {
    matches!(ask(dir, path, flags, right), Ok(_) | Err(Errno::ENOSYS | Errno::EPERM))
}

/// What the kernel says of an exec of a file (NUL-terminated path) that is not there, or in no directory.
pub fn missing(path: &[u8]) -> Option<Errno> {
    let error = ask(AT_FDCWD, path.as_ptr() as usize, 0, X_OK).err();
    error.filter(|e| [Errno::ENOENT, Errno::ENOTDIR].contains(e) && path.contains(&0))
}

/// Whether an exec of a file (NUL-terminated path, relative to `dir`) will probably succeed: it is there, may be executed, and is
/// of a kind that the kernel runs.
pub fn is_executable(dir: usize, path: usize, flags: usize) -> bool {
    if !has_right(dir, path, flags) {
        return false;
    }
    // SAFETY: as above; where nothing stands in the path, the file is open already.
    let empty = unsafe { *(path as *const u8) } == 0;
    let fd = if empty {
        dir as i32
    } else {
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes_with_nul();
        match os::open_regular(Some(dir as i32), path, os::O_RDONLY) {
            Ok((fd, _)) => fd,
            // What may be executed but not read is judged by its rights alone.
            Err(_) => return !os::stat_at(Some(dir as i32), path).is_ok_and(|status| !status.is_regular()),
        }
    };
    let mut head = [0u8; ELF_HEADER_BYTES];
    let is_regular = os::fstat(fd).is_ok_and(|status| status.is_regular());
    let len = os::pread(fd, &mut head, 0);
    if !empty {
        let _ = os::close(fd);
    }
    is_regular && len.map_or(true, |len| head.starts_with(b"#!") || is_program(&head[..len]))
}

/// Whether a file begins like an ELF program for this machine, with program headers after it.
fn is_program(head: &[u8]) -> bool {
    const ET_EXEC: u8 = 2;
    const ET_DYN: u8 = 3;
    const EM_386: u8 = 3;
    const EM_X86_64: u8 = 62;
    head.len() == ELF_HEADER_BYTES
        && head.starts_with(b"\x7fELF")
        && matches!(head[16], ET_EXEC | ET_DYN)
        && matches!(head[18], EM_386 | EM_X86_64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(look_at(None, &path("fifo"), &mut head).ok(), None);
        assert_eq!(look_at(None, b"/dev/null\0", &mut head).ok(), None);
        assert_eq!(look_at(None, &path("."), &mut head).ok(), None);
        assert_eq!(look_at(None, &path("missing"), &mut head).ok(), None);
        assert_eq!(look_at(None, &path("file"), &mut head).map(|(_, len)| len), Ok(10));
        let directory = os::open(&path(""), os::O_RDONLY, 0).expect("ours");
        assert_eq!(look_at(Some(directory), b"file\0", &mut head).map(|(_, len)| len), Ok(10));
        assert_eq!(look_at(Some(directory), b"fifo\0", &mut head).ok(), None);
        let file = os::open(&path("file"), os::O_RDONLY, 0).expect("ours");
        assert_eq!(look_at(Some(file), b"\0", &mut head).map(|(_, len)| len), Ok(10));
        assert_eq!(look_at(Some(directory), b"\0", &mut head).ok(), None);
        [file, directory].into_iter().for_each(|fd| os::close(fd).expect("ours"));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn file_capabilities_are_seen() {
        let path = std::env::temp_dir().join(format!("outswap-capabilities-{}", os::getpid()));
        std::fs::write(&path, b"x").expect("the temporary directory is writable");
        let fd = os::open(&[path.to_str().expect("UTF-8").as_bytes(), b"\0"].concat(), os::O_RDONLY, 0).expect("ours");
        assert!(!has_capabilities(fd));
        // Revision 2, `CAP_NET_BIND_SERVICE` permitted.
        let value: [u32; 5] = [0x0200_0000, 1 << 10, 0, 0, 0];
        let name = c"security.capability".as_ptr() as usize;
        // SAFETY: a NUL-terminated name and a value of that length.
        let set = unsafe {
            outswap_sys::syscall6(nr::FSETXATTR, fd as usize, name, value.as_ptr() as usize, size_of_val(&value), 0, 0)
        };
        assert_eq!(has_capabilities(fd), set == 0, "only root can set them");
        os::close(fd).expect("ours");
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn the_dynamic_linker_of_musl_is_known() {
        assert!(is_of_musl(b"\x7fELF ... /lib/ld-musl-x86_64.so.1\0") && !is_of_musl(b"/lib64/ld-linux-x86-64.so.2\0"));
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
    fn headers_tell_how_a_program_is_linked() {
        let mut head = [0u8; 256];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32..40].copy_from_slice(&64u64.to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&2u16.to_le_bytes());
        let nothing = |_: u64, _: &mut [u8]| false;
        assert_eq!(linking(&head, nothing), Some(Linking::Static));
        head[64 + 56] = 3;
        assert_eq!(linking(&head, nothing), Some(Linking::Dynamic));
        assert_eq!(linking(b"#!/bin/sh", nothing), None);
        // A dynamic section of three entries at 9000.
        head[64] = 2;
        head[72..80].copy_from_slice(&9000u64.to_le_bytes());
        head[96..104].copy_from_slice(&48u64.to_le_bytes());
        let section = |kinds: [u8; 3]| {
            move |at: u64, to: &mut [u8]| {
                to.fill(0);
                to[0] = kinds[(at - 9000) as usize / 16];
                true
            }
        };
        assert_eq!(linking(&head, section([5, 1, 0])), Some(Linking::Dynamic));
        assert_eq!(linking(&head, section([5, 6, 0])), Some(Linking::Alone));
        assert_eq!(linking(&head, section([5, 6, 7])), Some(Linking::Alone), "without an end");
        assert_eq!(linking(&head, section([0, 1, 0])), Some(Linking::Alone), "behind its end");
        assert_eq!(linking(&head, nothing), Some(Linking::Dynamic), "cannot be read");
        head[96..104].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(linking(&head, |_, to| (to.fill(5), true).1), Some(Linking::Dynamic), "too long");
        head[72..80].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        assert_eq!(linking(&head, |_, to| (to.fill(5), true).1), Some(Linking::Dynamic), "past all files");
        // The same without a linker.
        head[64 + 56] = 1;
        assert_eq!(linking(&head, nothing), Some(Linking::Library), "cannot be read");
        head[72..80].copy_from_slice(&9000u64.to_le_bytes());
        head[96..104].copy_from_slice(&48u64.to_le_bytes());
        assert_eq!(linking(&head, section([5, 1, 0])), Some(Linking::Library));
        assert_eq!(linking(&head, section([5, 6, 0])), Some(Linking::Static), "static, at any address");
        (head[64 + 56], head[64]) = (3, 0);
        for table in [u64::MAX, u64::MAX - 3, 250, 1 << 63] {
            head[32..40].copy_from_slice(&table.to_le_bytes());
            assert_eq!(linking(&head, nothing), None, "a table at {table:#x}");
        }
        // Tools that change programs put the table behind all else.
        head[32..40].copy_from_slice(&5000u64.to_le_bytes());
        let has_one = |at: u64, to: &mut [u8]| {
            to.fill(0);
            to[0] = if at == 5056 { 3 } else { 1 };
            at == 5000 || at == 5056
        };
        assert_eq!(linking(&head, has_one), Some(Linking::Dynamic));
        let has_none = |_: u64, to: &mut [u8]| (to.fill(1), true).1;
        assert_eq!(linking(&head, has_none), Some(Linking::Static));
    }

    #[test]
    fn the_linkers_arguments_name_a_program() {
        for (words, program) in [
            ("ld.so ./a b", Some("./a")),
            ("ld.so --argv0 /x --inhibit-cache --library-path /l:/m ./a", Some("./a")),
            ("ld.so --preload /p.so --audit /a.so --inhibit-rpath /r -- /bin/a", Some("/bin/a")),
            ("ld.so --glibc-hwcaps-prepend /h --glibc-hwcaps-mask /m /bin/a --list", Some("/bin/a")),
            ("ld.so -a/b", Some("-a/b")),
            ("ld.so --list /bin/a", None),
            ("ld.so --verify /bin/a", None),
            ("ld.so --no-such-option /bin/a", None),
            ("ld.so --argv0 /bin/a", None),
            ("ld.so --argv0", None),
            ("ld.so libc.so.6", None),
            ("ld.so --", None),
            ("ld.so", None),
        ] {
            let words: Vec<Vec<u8>> = words.split(' ').map(|word| [word.as_bytes(), b"\0"].concat()).collect();
            let found = program_of_linker(words.iter().map(Vec::as_slice));
            assert_eq!(found, program.map(|name| [name.as_bytes(), b"\0"].concat()).as_deref(), "{words:?}");
        }
        assert_eq!(program_of_linker(core::iter::empty()), None);
    }

    #[test]
    fn headers_tell_what_may_be_a_program() {
        let mut head = [0u8; ELF_HEADER_BYTES];
        assert!(!is_program(&head));
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[16], head[18]) = (3, 62);
        assert!(is_program(&head));
        assert!(!is_program(&head[..ELF_HEADER_BYTES - 1]), "cut");
        head[16] = 1;
        assert!(!is_program(&head), "an object file");
        (head[16], head[18]) = (2, 183);
        assert!(!is_program(&head), "of another machine");
    }
}
