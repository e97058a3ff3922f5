//! Texts that are put together and read without memory of their own.

/// The part of a NUL-terminated field before the NUL.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// A text that is put together without memory of its own. What does not fit is left out.
pub struct Text<'a> {
    /// Where it is put together.
    pub buf: &'a mut [u8],
    /// Its length.
    pub len: usize,
}

impl Text<'_> {
    /// Adds a text.
    pub fn put(&mut self, text: &[u8]) {
        for (to, from) in self.buf[self.len..].iter_mut().zip(text) {
            *to = *from;
            self.len += 1;
        }
    }
    /// Adds a number in decimal digits; a negative one as 0.
    pub fn number(&mut self, n: i32) {
        let (mut digits, mut at, mut rest) = ([0u8; 10], 10, n.max(0));
        while at == 10 || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.put(&digits[at..]);
    }
}

/// `/proc/PID` and a name, which ends with a NUL, below it.
pub fn process_path<'a>(buf: &'a mut [u8], pid: i32, name: &[u8]) -> &'a [u8] {
    let mut text = Text { buf, len: 0 };
    text.put(b"/proc/");
    text.number(pid);
    text.put(name);
    let len = text.len;
    &buf[..len]
}

/// The decimal number that a text begins with, and the rest. `None` for no digit, or too many.
pub(crate) fn take_number(text: &[u8]) -> Option<(i32, &[u8])> {
    let len = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let add = |n: i32, c: &u8| n.checked_mul(10)?.checked_add((c - b'0') as i32);
    Some((text[..len].iter().try_fold(0, add).filter(|_| len > 0)?, &text[len..]))
}
