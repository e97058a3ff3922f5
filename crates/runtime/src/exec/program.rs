//! What a file is that is about to be executed.
use crate::live::Live;
use outswap_control::until_nul;
use outswap_sys::{Errno, nr, os, ret, syscall3, syscall4};

/// Paths are relative to the working directory.
pub const AT_FDCWD: usize = -100isize as usize;

/// Bytes of a program's header that are looked at.
const HEAD_BYTES: usize = 1024;

/// Bytes of a script in which the kernel looks for its interpreter.
const LINE_BYTES: usize = 256;

/// Interpreters of interpreters that the kernel follows.
const MAX_INTERPRETERS: usize = 4;

/// Bytes of the header of a 64-bit ELF file; that of a 32-bit one is shorter.
const ELF_HEADER_BYTES: usize = 64;

/// So that a FIFO without a writer is not waited for.
const O_NONBLOCK: usize = 0o4000;

/// What a program that is to be executed will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Managed, as far as can be seen.
    Managed,
    /// Not managed, or nobody knows.
    Unmanaged,
    /// Nothing: its interpreter cannot be executed.
    Fails,
}

/// Looks at the program about to run. Says so if it should be managed and cannot: it has no dynamic linker, or runs with other
/// rights.
pub fn look_ahead(live: &Live, nr: usize, args: [usize; 6], path: usize) -> Target {
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
        let fails = name[0] != 0 && !is_executable(AT_FDCWD, name.as_ptr() as usize, 0);
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
    live.control.count_unmanaged();
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
        unsafe { syscall3(nr::FACCESSAT, AT_FDCWD, place.as_ptr() as usize, F_OK) == 0 }
    })
}

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

/// Whether an exec of a file (NUL-terminated path, relative to `dir`) will probably succeed: it is there, may be executed, and is
/// of a kind that the kernel runs.
pub fn is_executable(dir: usize, path: usize, flags: usize) -> bool {
    const X_OK: usize = 1;
    const AT_EACCESS: usize = 0x200;
    const AT_SYMLINK_NOFOLLOW: usize = 0x100;
    const AT_EMPTY_PATH: usize = 0x1000;
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    // SAFETY: the path is NUL-terminated, as the caller says.
    let found = ret(unsafe { syscall4(nr::FACCESSAT2, dir, path, X_OK, flags | AT_EACCESS) });
    if !matches!(found, Ok(_) | Err(Errno::ENOSYS | Errno::EPERM)) {
        return false;
    }
    // SAFETY: as above; where nothing stands in the path, the file is open already.
    let empty = unsafe { *(path as *const u8) } == 0;
    let fd = if empty {
        dir as i32
    } else {
        // SAFETY: as above.
        let opened = ret(unsafe { syscall4(nr::OPENAT, dir, path, os::O_RDONLY | os::O_CLOEXEC | O_NONBLOCK, 0) });
        // What may be executed but not read is judged by its rights alone.
        let Ok(fd) = opened else { return true };
        fd as i32
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
