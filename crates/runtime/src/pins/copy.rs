//! The program's memory, read and written with what is missing brought in.
use super::call::{CallPins, keep_pages};
use crate::contexts::Cx;
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::usermem::{peek, poke, word};
use outswap_core::protection::Access;

/// Reads a structure of the program's.
pub fn read<const N: usize>(live: &'static Live, at: usize) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    if overlaps_managed(at, N) {
        return live.with(move |cx| copy_in(live, cx, at, &mut bytes).then_some(bytes));
    }
    peek(at, &mut bytes).then_some(bytes)
}

/// Writes a structure of the program's. False where it is not writable.
pub fn write<const N: usize>(live: &'static Live, at: usize, bytes: [u8; N]) -> bool {
    if !overlaps_managed(at, N) {
        return poke(at, &bytes);
    }
    live.with(move |cx| copy_out(live, cx, at, &bytes))
}

/// Calls `f` with base and length of each of an array of `struct iovec`, until it says no. False where it did, or where the array
/// cannot be read.
pub fn each_iovec(live: &Live, cx: &mut Cx, vec: usize, count: usize, mut f: impl FnMut(usize, usize) -> bool) -> bool {
    const BATCH: usize = 64;
    let mut batch = [0u8; BATCH * 16];
    let mut at = 0;
    while at < count {
        let n = BATCH.min(count - at);
        let bytes = &mut batch[..n * 16];
        if !copy_in(live, cx, vec + at * 16, bytes) {
            return false;
        }
        for iov in bytes.chunks_exact(16) {
            if !f(word(iov, 0), word(iov, 8)) {
                return false;
            }
        }
        at += n;
    }
    true
}

/// Reads the program's memory, bringing in what is not resident. False where it is not readable.
pub fn copy_in(live: &Live, cx: &mut Cx, addr: usize, buf: &mut [u8]) -> bool {
    let mut pins = CallPins::new(live);
    pins.set_access(Access::Read);
    let ok = pins.pin(cx, addr, buf.len()).is_ok() && peek(addr, buf);
    pins.release();
    ok
}

/// [`copy_in`] of a 32-bit number.
pub fn copy_in_u32(live: &Live, cx: &mut Cx, addr: usize) -> Option<u32> {
    let mut bytes = [0u8; 4];
    copy_in(live, cx, addr, &mut bytes).then_some(u32::from_le_bytes(bytes))
}

/// Writes the program's memory, bringing in what is not resident. False where it is not writable.
pub fn copy_out(live: &Live, cx: &mut Cx, addr: usize, buf: &[u8]) -> bool {
    let mut pins = CallPins::new(live);
    let ok = pins.pin(cx, addr, buf.len()).is_ok() && poke(addr, buf);
    pins.release();
    ok
}

/// Keeps the pages of a range resident for good: the kernel uses them on its own. False where they cannot be brought in.
pub fn keep(live: &Live, cx: &mut Cx, addr: usize, len: usize) -> bool {
    if !overlaps_managed(addr, len) {
        return true;
    }
    let mut pins = CallPins::new(live);
    let ok = pins.pin(cx, addr, len).is_ok();
    if ok {
        keep_pages(live, addr, len);
    }
    pins.release();
    ok
}
