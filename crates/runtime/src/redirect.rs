//! Functions of the C library whose callers inside of it come to us, too: stdio's `write` and `read`, `readdir`'s `getdents64`. Nothing can be put
//! in front of those; so a jump is put at the beginning of the function, in this process's own copy of that page of its code.
//!
//! It is written through `/proc/self/mem`, which changes no rights of the mapping, and where that is refused, or other threads may be running, all
//! stays as it is: such calls are trapped.
use crate::bss::is_alone;
use crate::live::try_live;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use outswap_core::units::PAGE_BYTES;
use outswap_sys::os;

/// `jmp` to an address in 32 bits from behind it.
pub(crate) const JUMP: u8 = 0xe9;
/// Bytes of that.
pub(crate) const JUMP_BYTES: usize = 5;
/// `endbr64`, at which an indirect jump may arrive: it stays.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The instruction that goes from `at` to `to`. `None` where that is too far.
fn jump(at: usize, to: usize) -> Option<[u8; JUMP_BYTES]> {
    let distance = i32::try_from(to.wrapping_sub(at + JUMP_BYTES) as isize).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

/// A descriptor through which code can be changed.
pub struct Code(i32);

impl Code {
    /// `None` where calls are not made directly, code cannot be written, or another thread may be running it.
    pub fn open() -> Option<Code> {
        let is_wanted = try_live().is_some_and(|live| live.direct.load(Relaxed)) && is_alone();
        // Who may not open his own memory is not made to be allowed to: that would open it to others for an instant.
        is_wanted.then(Code::of_this_process)?
    }

    /// The same for who knows that nobody else runs it. `None` where code cannot be written.
    pub(crate) fn of_this_process() -> Option<Code> {
        os::open(b"/proc/self/mem\0", os::O_RDWR | os::O_CLOEXEC, 0).ok().map(Code)
    }

    /// Jumps that are to be written.
    pub(crate) fn jumps(&self) -> Jumps<'_> {
        Jumps { code: self, page: 0, span: 0..0, bytes: [0; PAGE_BYTES] }
    }

    /// Lets a function begin with a jump to another one, which takes and gives the same. Whether it does.
    ///
    /// # Safety
    /// `function` is the beginning of a function of 16 bytes or more, which nobody runs or jumps into the midst of, and the other one does not
    /// call it.
    pub unsafe fn redirect(&self, function: usize, to: usize) -> bool {
        // SAFETY: the caller vouches for 16 bytes.
        let begins = unsafe { core::ptr::read_unaligned(function as *const [u8; 4]) };
        let at = if begins == LANDING { function + LANDING.len() } else { function };
        let mut jumps = self.jumps();
        // SAFETY: the beginning of the function, as the caller says.
        unsafe { jumps.add(at, to) && jumps.write() }
    }
}

/// Jumps of one page of code, which are written all at once: each write is a call, and each page is copied.
pub(crate) struct Jumps<'a> {
    code: &'a Code,
    page: usize,
    /// What of the page is to be written: from the first jump to the last, with the code between them as it is.
    span: Range<usize>,
    bytes: [u8; PAGE_BYTES],
}

impl Jumps<'_> {
    /// Replaces an instruction of five bytes by a jump, now or later. False where none can be there.
    ///
    /// # Safety
    /// There is such a one, behind those before it, which nobody is in the midst of until this is dropped, and there goes on from where it is
    /// jumped to whatever is to be done. Its page is readable.
    pub(crate) unsafe fn add(&mut self, at: usize, to: usize) -> bool {
        let (page, offset) = (at - at % PAGE_BYTES, at % PAGE_BYTES);
        // Half a jump would be the worst that can be.
        let Some(bytes) = jump(at, to).filter(|_| offset <= PAGE_BYTES - JUMP_BYTES) else { return false };
        if page != self.page || self.span.is_empty() {
            self.write();
            (self.page, self.span) = (page, offset..offset);
            // SAFETY: a page of code, as the caller says.
            self.bytes = unsafe { core::ptr::read(page as *const [u8; PAGE_BYTES]) };
        }
        self.span.end = offset + JUMP_BYTES;
        self.bytes[offset..self.span.end].copy_from_slice(&bytes);
        true
    }

    /// Writes those that were added. False where that is refused: nothing has changed then.
    pub(crate) fn write(&mut self) -> bool {
        let bytes = &self.bytes[self.span.clone()];
        let is_done = os::pwrite(self.code.0, bytes, (self.page + self.span.start) as u64) == Ok(bytes.len());
        self.span = 0..0;
        is_done
    }
}

impl Drop for Jumps<'_> {
    fn drop(&mut self) {
        if !self.span.is_empty() {
            self.write();
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let _ = os::close(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_goes_from_behind_itself() {
        assert_eq!(jump(0x1000, 0x1005), Some([JUMP, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x1000), Some([JUMP, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0x7f00_0000_0000, 0x7f00_0000_1005), Some([JUMP, 0, 0x10, 0, 0]));
        assert_eq!(jump(0x7f00_0000_0000, 0x7f01_0000_0000), None, "too far");
    }
}
