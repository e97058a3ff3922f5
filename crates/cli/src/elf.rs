//! What an executable file says about itself, as far as it decides whether the program can be managed.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// `e_machine` of x86-64.
pub const X86_64: u16 = 62;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const NOTE_GO_BUILD_ID: u32 = 4;

/// The facts of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// 64-bit, little-endian and for x86-64.
    pub native: bool,
    /// 64-bit.
    pub wide: bool,
    /// `e_machine`.
    pub machine: u16,
    /// The loader it asks for; none in a static program.
    pub loader: Option<String>,
    /// It names a library, as a program does that uses the C library. In doubt it does.
    pub needs_library: bool,
    /// It has a dynamic section, so that the loader can make a program of it, told to.
    pub dynamic: bool,
    /// Built by the Go tool chain.
    pub go: bool,
}

/// Reads the facts; `None` where the file is not ELF.
///
/// # Errors
/// `InvalidData` where it begins like ELF but ends or points nowhere.
pub fn read(file: &File) -> io::Result<Option<Elf>> {
    let mut header = [0u8; 64];
    let have = read_up_to(file, &mut header, 0)?;
    if have < 4 || &header[..4] != b"\x7fELF" {
        return Ok(None);
    }
    if have < 20 {
        return Err(broken("it ends in its header"));
    }
    let (wide, little) = (header[4] == 2, header[5] == 1);
    let machine = if little { le16(&header, 18) } else { u16::from_be_bytes([header[18], header[19]]) };
    let native = wide && little && machine == X86_64;
    let mut elf = Elf { native, wide, machine, loader: None, needs_library: true, dynamic: false, go: false };
    if !native {
        return Ok(Some(elf));
    }
    if have < 64 {
        return Err(broken("it ends in its header"));
    }
    let (table_at, entry_bytes, entries) =
        (le64(&header, 0x20), u64::from(le16(&header, 0x36)), u64::from(le16(&header, 0x38)));
    if entry_bytes != 56 || entries == 0 {
        return Err(broken("it has no program headers"));
    }
    let table = read_range(file, table_at, entry_bytes * entries)?;
    for entry in table.chunks_exact(56) {
        let (kind, at, bytes) = (le32(entry, 0), le64(entry, 8), le64(entry, 32));
        match kind {
            PT_INTERP => {
                let name = read_range(file, at, bytes.min(4096))?;
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                elf.loader = Some(String::from_utf8_lossy(&name[..end]).into_owned());
            }
            PT_DYNAMIC => {
                elf.dynamic = true;
                elf.needs_library = needs_library(&read_range(file, at, bytes.min(64 << 10))?);
            }
            PT_NOTE => elf.go |= has_go_note(&read_range(file, at, bytes.min(64 << 10))?),
            _ => {}
        }
    }
    elf.go |= has_go_section(file, &header);
    Ok(Some(elf))
}

/// Whether a file for this kind of machine holds all that is to be loaded of it.
///
/// # Errors
/// As [`read`].
pub fn is_whole(file: &File) -> io::Result<bool> {
    let end = loaded_end(file)?;
    let bytes = file.metadata()?.len();
    Ok(end.is_some_and(|end| end <= bytes))
}

/// Where in a file for this kind of machine all ends that is to be loaded of it; `None` where it is none.
///
/// # Errors
/// As [`read`].
pub fn loaded_end(file: &File) -> io::Result<Option<u64>> {
    const PT_LOAD: u32 = 1;
    let mut header = [0u8; 64];
    if !read(file)?.is_some_and(|elf| elf.native) || read_up_to(file, &mut header, 0)? < header.len() {
        return Ok(None);
    }
    let table = read_range(file, le64(&header, 0x20), 56 * u64::from(le16(&header, 0x38)))?;
    let loaded = table.chunks_exact(56).filter(|entry| le32(entry, 0) == PT_LOAD);
    Ok(loaded.map(|entry| le64(entry, 8).saturating_add(le64(entry, 32))).max().or(Some(0)))
}

/// Whether a dynamic section names a library.
fn needs_library(section: &[u8]) -> bool {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    let kinds = section.chunks_exact(16).map(|entry| le64(entry, 0));
    kinds.take_while(|kind| *kind != DT_NULL).any(|kind| kind == DT_NEEDED)
}

/// Whether a section is named as only the Go linker names them. A stripped or odd section table says no.
fn has_go_section(file: &File, header: &[u8; 64]) -> bool {
    let (table_at, index) = (le64(header, 0x28), u64::from(le16(header, 0x3e)));
    if table_at == 0 || le16(header, 0x3a) != 64 {
        return false;
    }
    let Some(at) = table_at.checked_add(index * 64) else {
        return false;
    };
    let Ok(section) = read_range(file, at, 64) else {
        return false;
    };
    let Ok(names) = read_range(file, le64(&section, 24), le64(&section, 32).min(1 << 20)) else {
        return false;
    };
    names.split(|&b| b == 0).any(|name| name == b".go.buildinfo" || name == b".note.go.buildid")
}

fn has_go_note(mut notes: &[u8]) -> bool {
    while notes.len() >= 12 {
        let pad = |n: u32| (n as usize).saturating_add(3) & !3;
        let (name_bytes, body_bytes, kind) = (pad(le32(notes, 0)), pad(le32(notes, 4)), le32(notes, 8));
        if kind == NOTE_GO_BUILD_ID && notes.get(12..16) == Some(b"Go\0\0") {
            return true;
        }
        match notes.get(12usize.saturating_add(name_bytes).saturating_add(body_bytes)..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
    false
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read_at(&mut buffer[have..], at + have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

fn read_range(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    // Offsets beyond what a file can hold would wrap below.
    if at > i64::MAX as u64 / 2 || bytes > 64 << 20 {
        return Err(broken("a header points nowhere"));
    }
    let mut buffer = vec![0; bytes as usize];
    if read_up_to(file, &mut buffer, at)? < buffer.len() {
        return Err(broken("a header points nowhere"));
    }
    Ok(buffer)
}

fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn le32(b: &[u8], at: usize) -> u32 {
    u32::from(le16(b, at)) | u32::from(le16(b, at + 2)) << 16
}
fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | u64::from(le32(b, at + 4)) << 32
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What a synthesised program is to have.
    #[derive(Clone, Default)]
    pub struct Make<'a> {
        pub loader: Option<&'a str>,
        pub note: Option<&'a [u8]>,
        pub section: Option<&'a str>,
        /// Kinds of entries of a dynamic section.
        pub dynamic: Option<&'a [u8]>,
    }

    /// An ELF file of headers only.
    pub fn make(m: &Make) -> Vec<u8> {
        let mut out = vec![0u8; 64];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        out[0x10] = 3;
        out[0x12] = X86_64 as u8;
        out[0x20] = 64;
        out[0x36] = 56;
        let parts: Vec<(u32, Vec<u8>)> = [
            Some((1, vec![0u8; 16])),
            m.loader.map(|l| (PT_INTERP, [l.as_bytes(), b"\0"].concat())),
            m.note.map(|n| (PT_NOTE, n.to_vec())),
            m.dynamic
                .map(|d| (PT_DYNAMIC, d.iter().flat_map(|kind| [[*kind].as_slice(), &[0; 15]].concat()).collect())),
        ]
        .into_iter()
        .flatten()
        .collect();
        out[0x38] = parts.len() as u8;
        let mut at = 64 + 56 * parts.len();
        for (kind, body) in &parts {
            let mut entry = [0u8; 56];
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            entry[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            entry[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
            out.extend(entry);
            at += body.len();
        }
        parts.iter().for_each(|(_, body)| out.extend(body));
        if let Some(name) = m.section {
            let names = [b"\0.shstrtab\0", name.as_bytes(), b"\0"].concat();
            let names_at = out.len() as u64;
            out.extend(&names);
            let table_at = out.len() as u64;
            let mut section = [0u8; 128];
            section[64 + 24..64 + 32].copy_from_slice(&names_at.to_le_bytes());
            section[64 + 32..64 + 40].copy_from_slice(&(names.len() as u64).to_le_bytes());
            out.extend(section);
            out[0x28..0x30].copy_from_slice(&table_at.to_le_bytes());
            out[0x3a] = 64;
            out[0x3c] = 2;
            out[0x3e] = 1;
        }
        out
    }

    fn read_bytes(bytes: &[u8]) -> io::Result<Option<Elf>> {
        let fd = outswap_sys::os::memfd_create(b"elf\0", 1).expect("memfd works where tests run");
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        file.write_all_at(bytes, 0)?;
        read(&file)
    }

    #[test]
    fn tells_dynamic_static_and_go_apart() {
        let loader = Some("/lib64/ld-linux-x86-64.so.2");
        let elf = |m: Make| read_bytes(&make(&m)).expect("whole").expect("ELF");
        let dynamic = elf(Make { loader, ..Make::default() });
        assert_eq!(dynamic.loader.as_deref(), loader);
        assert!(dynamic.native && !dynamic.go);
        assert_eq!(elf(Make::default()).loader, None);
        for (entries, needs) in [(&[5, 1, 0][..], true), (&[5, 6, 0, 1], false), (&[5, 6], false)] {
            assert_eq!(elf(Make { loader, dynamic: Some(entries), ..Make::default() }).needs_library, needs);
        }
        let note = [b"\x04\0\0\0\x05\0\0\0\x04\0\0\0Go\0\0abcde\0\0\0".as_slice(), &[0; 4]].concat();
        assert!(elf(Make { note: Some(&note), ..Make::default() }).go);
        let other = [b"\x04\0\0\0\x10\0\0\0\x01\0\0\0GNU\0".as_slice(), &[0; 16], &note].concat();
        assert!(elf(Make { note: Some(&other), ..Make::default() }).go);
        assert!(!elf(Make { note: Some(&other[..32]), ..Make::default() }).go);
        assert!(elf(Make { loader, section: Some(".go.buildinfo"), ..Make::default() }).go);
        assert!(elf(Make { loader, section: Some(".note.go.buildid"), ..Make::default() }).go);
        assert!(!elf(Make { loader, section: Some(".gopher"), ..Make::default() }).go);
    }

    #[test]
    fn other_machines_and_widths_are_not_native() {
        let mut bytes = make(&Make::default());
        bytes[0x12] = 183;
        let elf = read_bytes(&bytes).expect("whole").expect("ELF");
        assert!(!elf.native && elf.wide && elf.machine == 183);
        bytes[4] = 1;
        bytes[0x12] = 3;
        let elf = read_bytes(&bytes[..52]).expect("whole").expect("ELF");
        assert!(!elf.native && !elf.wide);
    }

    #[test]
    fn text_is_not_elf_and_cut_files_are_broken() {
        assert_eq!(read_bytes(b"#!/bin/sh\n").expect("readable"), None);
        assert_eq!(read_bytes(b"").expect("readable"), None);
        let whole = make(&Make { loader: Some("/lib64/ld-linux-x86-64.so.2"), ..Make::default() });
        for cut in 4..whole.len() {
            assert!(read_bytes(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn no_header_makes_it_panic() {
        let note = b"\x04\0\0\0\x05\0\0\0\x04\0\0\0Go\0\0abcde\0\0\0";
        let whole = make(&Make {
            loader: Some("/x"),
            note: Some(note),
            section: Some(".go.buildinfo"),
            dynamic: Some(&[5, 1, 0]),
        });
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let elf = read_bytes(&bytes);
                assert!(at >= 4 || value == whole[at] || matches!(elf, Ok(None)), "byte {at} = {value}");
            }
        }
    }
}
