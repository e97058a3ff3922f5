//! userfaultfd with `UFFDIO_COPY` (Linux 5.11): pages are copied both ways.
use crate::host::{FaultSource, Host};
use crate::userfault;
use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::mask::Mask;
use outswap_core::units::PageNo;
use outswap_sys::Result;
use outswap_sys::uffd::{COPY_FEATURES, Uffd};

/// userfaultfd with `UFFDIO_COPY`.
pub struct Copying;

impl FaultSource for Copying {
    fn open() -> Result<i32> {
        Uffd::open(COPY_FEATURES).map(|uffd| uffd.0)
    }

    fn register(fd: i32, addr: usize, len: usize) -> Result<()> {
        Uffd(fd).register(addr, len, true)
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        userfault::may_be_missing(signal, code)
    }

    fn take(host: &impl Host, first: PageNo, count: usize, present: Mask, batch: BatchNo, offset: usize) -> Mask {
        userfault::take(host, first, count, present, batch, offset)
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
        userfault::put(host, first, src)
    }

    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        userfault::put_zero(host, first, count)
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        userfault::transfer(host, from, to)
    }

    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        host.set_access(first, count, prot).is_ok()
    }
}
