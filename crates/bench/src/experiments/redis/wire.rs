//! The protocol of Redis, as far as GET and SET need it, and what values hold.
use crate::random::mix;

const BLOCK_WORDS: usize = 8192;

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// This is the value.
    Value(&'a [u8]),
    /// There is no such value.
    Nothing,
    /// It cannot be done.
    Error(&'a [u8]),
}

/// Reads an answer from the start of what came; gives how long it is as well. `None` while a part of it is still to come.
///
/// # Errors
/// What came is no answer to GET or SET.
pub fn answer(bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, String> {
    let Some(end) = bytes.windows(2).take(512).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, head) = (&bytes[..end], end + 2);
    let strange = || format!("`{}` from the server", String::from_utf8_lossy(line));
    let (kind, rest) = line.split_first().ok_or_else(strange)?;
    match kind {
        b'+' => Ok(Some((Answer::Done, head))),
        b'-' => Ok(Some((Answer::Error(rest), head))),
        b'$' if rest == b"-1" => Ok(Some((Answer::Nothing, head))),
        b'$' => {
            let length = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|&length| length < 1 << 29).ok_or_else(strange)?;
            if bytes.len() < head + length + 2 {
                return Ok(None);
            }
            let ends = bytes[head + length..].starts_with(b"\r\n");
            if ends {
                Ok(Some((Answer::Value(&bytes[head..head + length]), head + length + 2)))
            } else {
                Err(strange())
            }
        }
        _ => Err(strange()),
    }
}

/// Adds a part of a command, with its length before it.
fn part(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    out.extend_from_slice(bytes.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Adds a command.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| part(out, word));
}

/// The name of a key.
pub fn key(n: u32) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = n;
    for digit in name.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// What values hold: half of it random, half of it one word, so that they compress to about half. No two have much in common.
pub struct Values {
    block: Vec<u64>,
    bytes: usize,
}

impl Values {
    /// Values of so many bytes, rounded up to whole words, at most 64 KiB.
    pub fn new(bytes: usize) -> Values {
        let bytes = bytes.next_multiple_of(8).clamp(16, BLOCK_WORDS * 8);
        Values { block: (0..BLOCK_WORDS as u64).map(|n| mix(n ^ 0x7265_6469_7300)).collect(), bytes }
    }

    /// The value of a key that was set so many times.
    pub fn write(&self, key: u32, version: u8, out: &mut Vec<u8>) {
        out.clear();
        let word = mix(u64::from(key) << 8 | u64::from(version));
        let words = self.bytes / 8;
        let random = words / 2;
        let start = (word >> 32) as usize % (BLOCK_WORDS - random);
        for from in &self.block[start..start + random] {
            out.extend_from_slice(&(from ^ word).to_le_bytes());
        }
        for _ in random..words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let all = b"+OK\r\n$5\r\nab\r\nc\r\n$-1\r\n-ERR no\r\n";
        let expected = [Answer::Done, Answer::Value(b"ab\r\nc"), Answer::Nothing, Answer::Error(b"ERR no")];
        let mut at = 0;
        for (number, want) in expected.into_iter().enumerate() {
            let (_, length) = answer(&all[at..]).expect("they are answers").expect("it is whole");
            for cut in 0..length {
                assert_eq!(answer(&all[at..at + cut]), Ok(None), "answer {number} cut at {cut}");
            }
            assert_eq!(answer(&all[at..]), Ok(Some((want, length))));
            at += length;
        }
        assert_eq!(at, all.len());
        for strange in [&b"*1\r\n"[..], b"$x\r\n", b"\r\n", b"$1\r\nabc\r\n"] {
            assert!(answer(strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn commands_and_keys_are_as_the_server_wants_them() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", &key(1_234_567)]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000001234567\r\n");
        assert_eq!(&key(u32::MAX), b"key:004294967295");
        assert_eq!(&key(0), b"key:000000000000");
    }

    #[test]
    fn values_tell_key_and_version_and_half_of_them_repeats() {
        let values = Values::new(1000);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        values.write(7, 1, &mut a);
        assert_eq!(a.len(), 1000);
        assert_eq!(a[496..504], a[992..1000]);
        let distinct: std::collections::HashSet<&[u8]> = a.chunks(8).collect();
        assert_eq!(distinct.len(), 125 / 2 + 1);
        for (key, version) in [(7, 2), (8, 1)] {
            values.write(key, version, &mut b);
            assert!(a.chunks(8).zip(b.chunks(8)).all(|(a, b)| a != b));
        }
    }
}
