//! Newtypes for numbers that must not be mixed up.
//!
//! The benchmark shares no code with what it measures, so it has its own.
use std::fmt;
use std::str::FromStr;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// The number of a page, counted from the start of the working set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageNo(pub u32);

/// A count of bytes, written on the command line with an optional binary suffix K, M, G or T.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Whole pages in this many bytes.
    pub fn pages(self) -> usize {
        self.0 as usize / PAGE_BYTES
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let (digits, shift) = match text.chars().last() {
            Some('K' | 'k') => (&text[..text.len() - 1], 10),
            Some('M' | 'm') => (&text[..text.len() - 1], 20),
            Some('G' | 'g') => (&text[..text.len() - 1], 30),
            Some('T' | 't') => (&text[..text.len() - 1], 40),
            _ => (text, 0),
        };
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size such as 256M or 1G"))?;
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(|| format!("`{text}` is too large"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, suffix) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{suffix}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_round_trip() {
        for (text, bytes) in [("1G", 1 << 30), ("256M", 256 << 20), ("64K", 65536), ("4097", 4097), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!("3g".parse(), Ok(Bytes(3 << 30)));
        assert_eq!(Bytes(8191).pages(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "G", "-1M", "1.5G", "1GB", "99999999999T", "M1", "1é"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
