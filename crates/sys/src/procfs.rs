//! Files of `/proc`: small, and made of words and numbers.
use crate::os;

/// Reads a small file; returns the bytes read.
pub fn read_file(path: &[u8], buf: &mut [u8]) -> usize {
    let Ok(fd) = os::open(path, os::O_RDONLY | os::O_CLOEXEC, 0) else { return 0 };
    let mut len = 0;
    while len < buf.len() {
        match os::read(fd, &mut buf[len..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => len += n,
        }
    }
    let _ = os::close(fd);
    len
}

/// Calls `f` with each line of a file, without its end. `buf` must have room for the longest line.
pub fn each_line(path: &[u8], buf: &mut [u8], mut f: impl FnMut(&[u8])) {
    let Ok(fd) = os::open(path, os::O_RDONLY | os::O_CLOEXEC, 0) else { return };
    let mut len = 0;
    loop {
        let got = os::read(fd, &mut buf[len..]).unwrap_or(0);
        len += got;
        let mut start = 0;
        while let Some(end) = buf[start..len].iter().position(|b| *b == b'\n') {
            f(&buf[start..start + end]);
            start += end + 1;
        }
        buf.copy_within(start..len, 0);
        len -= start;
        if got == 0 || len == buf.len() {
            break;
        }
    }
    let _ = os::close(fd);
}

/// A mapping of this process, as a line of `/proc/self/maps` tells of it.
pub struct Mapping<'a> {
    /// First address.
    pub start: usize,
    /// The first after it.
    pub end: usize,
    /// Rights, and whether it is shared.
    pub rights: &'a [u8],
    /// Where in its file it begins, if that is told.
    pub offset: Option<usize>,
    /// Inode of the file; `0` for none.
    pub inode: &'a [u8],
}

impl Mapping<'_> {
    /// That of a line; an empty one for what is none.
    pub fn of(line: &[u8]) -> Mapping<'_> {
        let mut fields = line.split(|c| *c == b' ');
        let mut bounds = fields.next().unwrap_or_default().split(|c| *c == b'-').map(hex);
        let (start, end) = (bounds.next().unwrap_or(0), bounds.next().unwrap_or(0));
        let (rights, offset) = (fields.next().unwrap_or_default(), fields.next().map(hex));
        Mapping { start, end, rights, offset, inode: fields.nth(1).unwrap_or_default() }
    }
}

/// Calls `f` with each mapping of this process; `buf` as for [`each_line`].
pub fn each_mapping(buf: &mut [u8], mut f: impl FnMut(Mapping<'_>)) {
    each_line(b"/proc/self/maps\0", buf, |line| f(Mapping::of(line)));
}

/// The hexadecimal number that a text is.
pub fn hex(text: &[u8]) -> usize {
    text.iter().fold(0, |n, c| n << 4 | (*c as char).to_digit(16).unwrap_or(0) as usize)
}

/// The decimal number that a text begins with.
pub fn number(text: &[u8]) -> u64 {
    text.iter()
        .skip_while(|c| **c == b' ')
        .take_while(|c| c.is_ascii_digit())
        .fold(0u64, |n, c| n.saturating_mul(10).saturating_add((c - b'0') as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_lines() {
        let (mut lines, mut all) = (0, 0);
        each_line(b"/proc/self/maps\0", &mut [0; 512], |line| {
            assert!(!line.contains(&b'\n') && hex(line.split(|c| *c == b'-').next().expect("a start")) > 0);
            lines += 1;
            all += line.len() + 1;
        });
        assert!(lines > 5 && all > lines * 40, "{lines} {all}");
        each_line(b"/proc/self/none\0", &mut [0; 16], |_| panic!("there is none"));
    }

    #[test]
    fn numbers_are_read_up_to_where_they_end() {
        for (text, want) in [
            ("", 0),
            ("x", 0),
            ("  17 kB\n", 17),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
            ("9".repeat(30).as_str(), u64::MAX),
        ] {
            assert_eq!(number(text.as_bytes()), want, "{text}");
        }
    }
}
