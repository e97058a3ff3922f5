//! Functions of the C library whose callers inside of it come to us, too: stdio's `write` and `read`, `readdir`'s `getdents64`. Nothing can be put
//! in front of those; so a jump is put at the beginning of the function, in this process's own copy of that page of its code.
//!
//! It is written through `/proc/self/mem`, which changes no rights of the mapping, and where that is refused, or other threads may be running, all
//! stays as it is: such calls are trapped.
use crate::bss::is_alone;
use crate::live::try_live;
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

    /// Replaces an instruction of five bytes by a jump. Whether it did.
    ///
    /// # Safety
    /// There is such a one, which nobody is in the midst of, and there goes on from where it is jumped to whatever is to be done.
    pub(crate) unsafe fn jump(&self, at: usize, to: usize) -> bool {
        // Half a jump would be the worst that can be.
        if at % PAGE_BYTES > PAGE_BYTES - JUMP_BYTES {
            return false;
        }
        jump(at, to).is_some_and(|bytes| os::pwrite(self.0, &bytes, at as u64) == Ok(bytes.len()))
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
        // SAFETY: the beginning of the function, as the caller says.
        unsafe { self.jump(at, to) }
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
