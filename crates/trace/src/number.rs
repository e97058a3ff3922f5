//! Numbers: seven bits a byte, the lowest first, the top bit set in all but the last. Small ones are short.

/// The longest number.
pub(crate) const BYTES_MAX: usize = 10;

/// Appends a number.
pub(crate) fn put(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A number being read, byte after byte.
#[derive(Default)]
pub(crate) struct Partial {
    value: u64,
    bytes: usize,
}

impl Partial {
    /// Takes the next byte: the number, once it is whole. `Err` where it does not fit 64 bits.
    pub(crate) fn take(&mut self, byte: u8) -> Result<Option<u64>, ()> {
        let shift = 7 * self.bytes as u32;
        if self.bytes == BYTES_MAX - 1 && byte > 1 {
            return Err(());
        }
        self.value |= u64::from(byte & 0x7f) << shift;
        self.bytes += 1;
        Ok((byte & 0x80 == 0).then_some(self.value))
    }
}

/// A difference as a number: small in either direction is small.
pub(crate) fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

/// The difference again.
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<u64> {
        let mut partial = Partial::default();
        bytes.iter().find_map(|&byte| partial.take(byte).transpose())?.ok()
    }

    #[test]
    fn numbers_come_back() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, u64::MAX >> bit]);
        for value in edges {
            let mut bytes = Vec::new();
            put(value, &mut bytes);
            assert!(bytes.len() <= BYTES_MAX);
            assert_eq!(read(&bytes), Some(value));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None, "half a number is none");
            assert_eq!(zigzag(unzigzag(value)), value);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    #[test]
    fn what_fits_no_64_bits_is_refused() {
        let mut partial = Partial::default();
        let taken: Vec<_> = (0..BYTES_MAX).map(|_| partial.take(0xff)).collect();
        assert_eq!(taken.last(), Some(&Err(())));
        assert!(taken[..BYTES_MAX - 1].iter().all(|t| *t == Ok(None)));
    }
}
