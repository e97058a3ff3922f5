//! Programs as they lie on a disk: whatever stands in one, looking at it before it is run ends.
#![no_main]
#[path = "../../crates/cli/src/elf.rs"]
#[allow(dead_code)]
mod elf;

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

fuzz_target!(|data: &[u8]| {
    // SAFETY: the name ends with a NUL; the descriptor is ours alone.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"program".as_ptr(), 0);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.write_all(data).expect("memory for a small file");
    let _ = elf::read(&file);
});
