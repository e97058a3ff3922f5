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
