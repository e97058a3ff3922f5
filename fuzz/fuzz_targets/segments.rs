//! Segments of a file that fails, and gives back other bits, as the input says: never something else than what was stored.
#![no_main]
mod common;

use libfuzzer_sys::fuzz_target;
use outswap_store::{Algorithm, Compressed, File, FileIo, LiveIo, TierConfig, TierKind, Tiers, Worker};
use outswap_sys::{Errno, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of the bits, from the lowest on, each says whether the next call to the file goes wrong.
static WRONG: AtomicU64 = AtomicU64::new(0);

fn is_wrong() -> bool {
    let bits = WRONG.load(Relaxed);
    WRONG.store(bits.rotate_right(1), Relaxed);
    bits & 1 == 1
}

struct Wrong;
impl FileIo for Wrong {
    fn pread(&self, fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = LiveIo.pread(fd, buf, offset)?;
        if is_wrong() {
            if is_wrong() {
                return Err(Errno::EIO);
            }
            let at = offset as usize % read.max(1);
            if let Some(byte) = buf.get_mut(at) {
                *byte ^= 0x40;
            }
        }
        Ok(read)
    }
    fn pwrite(&self, fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
        if is_wrong() {
            return Err(Errno::ENOSPC);
        }
        LiveIo.pwrite(fd, buf, offset)
    }
    fn punch(&self, fd: i32, offset: u64, len: u64) -> Result<()> {
        LiveIo.punch(fd, offset, len)
    }
}

thread_local! {
    static STORES: RefCell<(Vec<&'static Tiers<Wrong>>, &'static mut Worker)> = RefCell::new({
        let tiers = [
            TierConfig::new(TierKind::Compressed(Compressed(Algorithm::Lz4)), 256 << 10),
            TierConfig::new(TierKind::File(File), 4 << 20),
        ];
        (common::stores(&tiers, || Wrong), common::worker())
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((bits, data)) = data.split_first_chunk::<8>() else { return };
    let Some((order, data)) = data.split_first() else { return };
    STORES.with(|stores| {
        let (stores, worker) = &mut *stores.borrow_mut();
        WRONG.store(u64::from_le_bytes(*bits), Relaxed);
        common::run(stores[*order as usize % stores.len()], worker, data, || u64::from_le_bytes(*bits) != 0);
        WRONG.store(0, Relaxed);
    });
});
