//! Memory near code, for what compilers make while a program runs.
//!
//! An instruction reaches 2 GiB for a jump or a call. A compiler whose code calls functions of the program asks `mmap` for a place
//! near them, gives back what lies elsewhere, and asks for the next; LuaJIT does so for every piece of code, with memory that is
//! not executable yet. Managed memory lies elsewhere, so such hints are left to the kernel, as long as they ask for little: what
//! is large is a heap.
use crate::code::Code;
use crate::limits::CODE_RANGES;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a jump or a call reaches.
const REACH_BYTES: usize = 1 << 31;
/// The most that one mapping of code takes. Compilers map theirs in pieces; an executable mapping that is larger is a heap of a
/// language that keeps code among its data.
const CODE_MAX_BYTES: usize = 32 << 20;

/// Ranges of code: those of [`Code::all`], and the program's where it has fixed addresses.
const RANGES: usize = CODE_RANGES + 1;

struct Known([(AtomicUsize, AtomicUsize); RANGES]);

static KNOWN: Known = Known::new();

/// Takes note of where code lies. To be called before there is anything managed.
pub fn know(code: &Code) {
    KNOWN.set(code);
}

/// Whether an executable mapping is one of code, which the kernel is to make, by the address that is asked for and the length.
pub fn is_code(addr: usize, len: usize) -> bool {
    addr != 0 && len <= CODE_MAX_BYTES
}

/// Whether the kernel is to look for a place for this mapping because one near code is wanted.
pub fn is_wanted(addr: usize, len: usize) -> bool {
    is_code(addr, len) && KNOWN.is_near(addr)
}

impl Known {
    const fn new() -> Known {
        Known([const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; RANGES])
    }

    fn set(&self, code: &Code) {
        let ranges = code.all.get().iter().copied().chain([code.fixed]);
        for ((start, end), range) in self.0.iter().zip(ranges) {
            start.store(range.0, Relaxed);
            end.store(range.1, Relaxed);
        }
    }

    fn is_near(&self, addr: usize) -> bool {
        self.0.iter().any(|(start, end)| {
            let (start, end) = (start.load(Relaxed), end.load(Relaxed));
            end > 0 && (start.saturating_sub(REACH_BYTES)..end + REACH_BYTES).contains(&addr)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    #[test]
    fn hints_that_code_can_reach_are_known() {
        let known = Known::new();
        assert!(!known.is_near(0x1000), "nothing is known yet");
        known.set(&code::find());
        let here = hints_that_code_can_reach_are_known as *const () as usize;
        for addr in [here, here - REACH_BYTES / 2, here + REACH_BYTES / 2] {
            assert!(known.is_near(addr), "{addr:x}");
        }
        assert!(!known.is_near(1 << 40));
        let mut fixed = Code::default();
        fixed.fixed = (0x40_0000, 0x50_0000);
        known.set(&fixed);
        assert!(known.is_near(0x1000) && known.is_near(0x50_0000 + REACH_BYTES - 1));
        assert!(!known.is_near(0x50_0000 + REACH_BYTES));
    }

    #[test]
    fn what_is_large_or_has_no_place_is_no_code() {
        assert!(is_code(0x1000_0000, CODE_MAX_BYTES));
        assert!(!is_code(0x1000_0000, CODE_MAX_BYTES + 1) && !is_code(0, 4096));
    }
}
