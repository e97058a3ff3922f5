//! Limits that the kernel sets for the process.
use crate::bed::{Bed, LZ4, file};
use outswap_core::units::PAGE_BYTES;
use outswap_store::{FileIo, LiveIo, SEGMENT_BYTES, TierConfig};
use outswap_sys::signal::{bit, set_mask};
use outswap_sys::{Errno, nr, os, syscall2, syscall4};

fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: `set` lives through the call.
    unsafe { syscall2(nr::RT_SIGPENDING, &raw mut set as usize, 8) };
    set
}

/// Writes beyond a limit of file size leave no signal behind, and take none that was there.
pub fn a_limit_of_file_size_kills_nobody() {
    const SIGXFSZ: i32 = 25;
    const EFBIG: Errno = Errno(27);
    let mut bed = Bed::new(&[file(0)]);
    let old_mask = set_mask(u64::MAX);
    let limit = [3 * SEGMENT_BYTES as u64 + 5000, u64::MAX];
    // SAFETY: `limit` has the layout of `struct rlimit64`. 1 = RLIMIT_FSIZE.
    assert_eq!(unsafe { syscall4(nr::PRLIMIT64, 0, 1, limit.as_ptr() as usize, 0) }, 0);
    let mut stored = 0;
    while bed.try_put(stored, stored).is_ok() {
        stored += 1;
        assert!(stored < 1000, "the limit is noticed");
    }
    assert!(stored > 100 && pending() & bit(SIGXFSZ) == 0);
    let fd = bed.store.file_descriptor().expect("a file");
    assert_eq!(LiveIo.pwrite(fd, b"beyond", 10 << 20), Err(EFBIG));
    assert_eq!(pending() & bit(SIGXFSZ), 0);
    // The program's own, raised before ours, stays.
    os::pwrite(fd, b"beyond", 10 << 20).expect_err("the limit");
    assert_eq!(LiveIo.pwrite(fd, b"beyond", 10 << 20), Err(EFBIG));
    assert_eq!(pending() & bit(SIGXFSZ), bit(SIGXFSZ));
    let (set, now) = (bit(SIGXFSZ), [0i64; 2]);
    // SAFETY: set and timeout live through the call.
    let got =
        unsafe { syscall4(nr::RT_SIGTIMEDWAIT, &raw const set as usize, 0, now.as_ptr() as usize, size_of::<u64>()) };
    assert_eq!(got, SIGXFSZ as isize);
    set_mask(old_mask);
    (0..stored).for_each(|slot| bed.check(slot, slot));
}

/// With little address space the tables are smaller, and what does not fit in the pool goes to the file.
pub fn little_address_space_is_enough() {
    let vm_pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let vm_pages: u64 = vm_pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let limit = [vm_pages * PAGE_BYTES as u64 + (120 << 20); 2];
    // SAFETY: `limit` has the layout of `struct rlimit`. 9 = RLIMIT_AS.
    let got = unsafe { syscall4(nr::PRLIMIT64, 0, 9, limit.as_ptr() as usize, 0) };
    assert_eq!(got, 0);
    let mut bed = Bed::new(&[TierConfig::new(LZ4, 0), file(400)]);
    (0..20_000).for_each(|slot| bed.put(slot, slot));
    (0..20_000).for_each(|slot| bed.check(slot, slot));
}
